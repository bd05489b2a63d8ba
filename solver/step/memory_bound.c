#include "solver/step/memory_bound.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"

// Tokens of every rank in the packs that bytes of a token are told from.
enum { ROWS = 4096 };

static void count_bytes(const sp_cost_model *cost, int vstage, sp_bound_stage *stage);

void sp_i_memory_bound_init(sp_i_memory_bound *bound, const sp_scenario *scenario,
                            const sp_cost_model *cost, const sp_step_costs *costs, bool limited)
{
    const sp_layout *layout = &scenario->layout;
    size_t vstages = (size_t)sp_layout_vstages(layout);
    *bound = (sp_i_memory_bound){
        .stage = sp_calloc(vstages, sizeof *bound->stage),
        .room_bytes = sp_calloc((size_t)layout->pp, sizeof *bound->room_bytes),
        .tail_s = sp_calloc((size_t)layout->pp, sizeof *bound->tail_s),
        .limited = limited,
    };
    for (size_t s = 0; s < vstages; s++) {
        int chunk;
        sp_layout_locate(layout, (int)s, &bound->stage[s].rank, &chunk);
        if (limited) {
            count_bytes(cost, (int)s, &bound->stage[s]);
        }
    }
    for (int r = 0; r < layout->pp; r++) {
        double states = (double)sp_bytes_total(&costs->states[r]);
        bound->room_bytes[r] = fmax((double)scenario->memory_limit_bytes - states, 1.0);
        bound->tail_s[r] = (double)sp_epilogue_ns(&costs->epilogue[r]) / SP_NS_PER_S;
    }
}

void sp_i_memory_bound_fini(sp_i_memory_bound *bound)
{
    sp_free(bound->stage);
    sp_free(bound->room_bytes);
    sp_free(bound->tail_s);
    *bound = (sp_i_memory_bound){0};
}

void sp_i_memory_bound_s(const sp_i_memory_bound *bound, sp_cost_model *cost, int slope,
                         sp_i_memory_kind may, const sp_bound_batch *batch, double *endless_s,
                         double *room_s)
{
    const sp_layout *layout = cost->layout;
    sp_bound_memory memory = {.stage = bound->stage,
                              .stages = sp_layout_vstages(layout),
                              .ranks = layout->pp,
                              .tail_s = bound->tail_s,
                              // Chunks that follow each other on one rank send nothing.
                              .p2p_s = layout->chunks > 1 ? 0.0 : sp_cost_model_least_p2p_s(cost),
                              .split = may.splits,
                              .whole = may.whole,
                              .repeats = may.repeats};
    for (int s = 0; s < memory.stages; s++) {
        sp_least_work *least = &bound->stage[s].least;
        *least = *sp_cost_model_least_passage(cost, s, slope);
        if (!may.splits) {
            least->i_token_s = least->b_token_s;
            least->i_square_s = least->b_square_s;
            least->i_pack_s = least->b_pack_s;
        }
    }
    *endless_s = sp_bound_memory_s(&memory, batch);
    memory.room_bytes = bound->room_bytes;
    *room_s = bound->limited ? sp_bound_memory_s(&memory, batch) : *endless_s;
}

// Bytes of a pack of so many tokens and what later slices read of it.
static sp_unit_bytes unit_of(const sp_cost_model *cost, const sp_stage *layers, int64_t tokens,
                             int64_t kv_tokens)
{
    sp_memory_options options = cost->memory;
    sp_unit_load load = {.tokens = tokens, .kv_tokens = kv_tokens};
    sp_unit_bytes unit;
    options.offload_ratio = 0.0;
    sp_footprint_unit(cost->model, cost->layout, layers, &options, &load, &unit);
    return unit;
}

// Of the layers alone: the softmax of the head is not there all the time. A pack whose rows are
// whole has the least a token. Keys and values that no later slice reads are rebuilt rather than
// held, others are not rebuilt.
static void count_bytes(const sp_cost_model *cost, int vstage, sp_bound_stage *stage)
{
    const sp_stage layers = {.layers = cost->stages[vstage].layers};
    int64_t tokens = (int64_t)ROWS * cost->layout->cp * cost->layout->tp;
    if (layers.layers == 0) {
        return;
    }
    sp_unit_bytes unit = unit_of(cost, &layers, tokens, 0);
    const sp_bytes held = unit.held;
    // What may be offloaded is away all the time and costs nothing. It is rounded up to whole MiB,
    // and no tensor of a layer below one leaves.
    double ratio = cost->memory.offload_ratio;
    double away = ratio > 0.0 ? fmin(1.0, ratio + 1.0 / layers.layers) : 0.0;
    stage->held_bytes =
        ((double)sp_bytes_total(&held) - away * (double)held.of[SP_MEM_ACTIVATIONS]) /
        (double)tokens;
    if (!cost->stages[vstage].embedding) {
        stage->repeated_bytes = (double)sp_bytes_total(&unit.repeated) / (double)tokens;
    }
    if (cost->memory.stack.tensors == SP_TENSORS_EXPLICIT) {
        return; // not in proportion to tokens
    }
    sp_unit_bytes one = unit_of(cost, &layers, tokens, tokens);
    sp_unit_bytes two = unit_of(cost, &layers, 2 * tokens, 2 * tokens);
    int64_t f_bytes = sp_bytes_total(&two.forward) - sp_bytes_total(&one.forward);
    int64_t i_bytes = sp_bytes_total(&two.input_gradient) - sp_bytes_total(&one.input_gradient);
    stage->f_bytes = (double)f_bytes / (double)tokens;
    stage->i_bytes = (double)i_bytes / (double)tokens;
}
