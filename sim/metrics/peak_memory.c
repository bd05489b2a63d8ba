#include "sim/metrics/metrics.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/memory/saved_tensors.h"
#include "sim/simulate/memory.h"

enum { MOST_HOLDERS = 128 };

typedef struct explanation {
    const sp_timeline *timeline;
    const sp_step_costs *costs;
    const sp_model *model;
    const sp_memory_options *options;
    const sp_rank_timeline *rank;
    const sp_rank_memory *memory;
    sp_peak_state state;
    sp_stage *stages; // [virtual stages]
    sp_memory_holder holders[MOST_HOLDERS];
    int count;
} explanation;

static size_t fullest_rank(const sp_memory_timeline *memory)
{
    size_t fullest = 0;
    for (size_t r = 1; r < memory->rank_count; r++) {
        if (sp_bytes_total(&memory->ranks[r].peak) > sp_bytes_total(&memory->ranks[fullest].peak)) {
            fullest = r;
        }
    }
    return fullest;
}

static void add(explanation *e, const char *name, sp_memory_category category, int64_t bytes,
                int64_t count)
{
    if (bytes == 0) {
        return;
    }
    for (int i = 0; i < e->count; i++) {
        sp_memory_holder *holder = &e->holders[i];
        if (holder->category == category && strcmp(holder->name, name) == 0) {
            holder->bytes += bytes;
            holder->count += count;
            return;
        }
    }
    SP_ASSERT(e->count < MOST_HOLDERS);
    sp_memory_holder *holder = &e->holders[e->count++];
    *holder = (sp_memory_holder){.category = category, .bytes = bytes, .count = count};
    snprintf(holder->name, sizeof holder->name, "%s", name);
}

static void add_states(explanation *e)
{
    static const struct {
        sp_memory_category category;
        const char *name;
    } names[] = {{SP_MEM_PARAMETERS, "parameters"},
                 {SP_MEM_GRADIENTS, "gradients"},
                 {SP_MEM_OPTIMIZER, "optimizer states"},
                 {SP_MEM_WORKSPACE, "persistent work spaces"}};
    const sp_bytes *states = &e->costs->ranks[e->rank->pp].states;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        add(e, names[i].name, names[i].category, states->of[names[i].category], 1);
    }
    add(e, "copy-back buffers", SP_MEM_WORKSPACE, e->state.buffers * e->state.buffer_bytes,
        e->state.buffers);
}

static int vstage_of(const explanation *e, int chunk)
{
    return sp_layout_vstage(&e->timeline->plan->layout, e->rank->pp, chunk);
}

// A rank's share of a head that pipeline ranks share is one chunk more.
static bool is_share(const explanation *e, int chunk)
{
    return chunk == e->timeline->plan->layout.chunks;
}

static size_t class_of(const explanation *e, int chunk)
{
    return is_share(e, chunk) ? (size_t)(e->costs->share_class + 1)
                              : sp_i_memory_class(e->costs, vstage_of(e, chunk));
}

static sp_stage stage_of(const explanation *e, int chunk)
{
    if (is_share(e, chunk)) {
        return (sp_stage){.head = true};
    }
    int vstage = vstage_of(e, chunk);
    sp_stage stage = e->stages[vstage];
    if (e->costs->share_class > 0) {
        stage.embedding = vstage == 0;
        stage.head = vstage + 1 == sp_layout_vstages(&e->timeline->plan->layout);
    }
    return stage;
}

static void add_transients(explanation *e)
{
    static const char *const names[SP_MEM_CATEGORIES] = {
        [SP_MEM_KV_GRADIENTS] = "gradients of keys and values",
        [SP_MEM_LOGITS] = "logits in flight",
        [SP_MEM_RECOMPUTE] = "rebuilt activations",
        [SP_MEM_COMMUNICATION] = "tensors at the stage borders",
    };
    sp_action_kind kind = (sp_action_kind)e->memory->peak_action.kind;
    bool backward = kind == SP_ACTION_B || kind == SP_ACTION_I;
    const sp_bytes *bytes = &e->state.running;
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        const char *rest = backward ? "backward transients" : "forward transients";
        const char *name = names[c] != NULL ? names[c] : rest;
        // The softmax of the loss, not there at the moment, stands among the unit's tensors.
        bool absent = bytes->of[c] < 0;
        add(e, absent ? sp_layer_tensors[SP_TENSOR_LOGITS].name : name, (sp_memory_category)c,
            bytes->of[c], absent ? 0 : 1);
    }
}

static void add_tensors(explanation *e, int32_t index, int chunk, const sp_unit_state *state)
{
    const sp_plan *plan = e->timeline->plan;
    const sp_pack *pack = &plan->packing->forward.packs[index];
    // A merged pack is sharded over its data-parallel ranks like context parallelism.
    sp_layout layout = plan->layout;
    layout.cp *= pack->dp_count;
    layout.dp /= pack->dp_count;
    sp_unit_tensor tensors[SP_UNIT_TENSORS];
    const sp_stage stage = stage_of(e, chunk);
    const sp_unit_load load = {.tokens = pack->computed,
                               .kv_tokens = pack->kv_tokens,
                               .pairs = pack->full_pairs,
                               .expert_tokens = e->costs->side[0].pack[index].expert_tokens};
    int count = sp_unit_tensors(e->model, &layout, &stage, e->options, &load, tensors);
    bool away = state->holds == SP_HOLDS_RESIDENT || state->holds == SP_HOLDS_LOADED;
    int64_t part = away ? sp_unit_offload(tensors, count, e->options->offload_ratio) : 0;
    for (int i = 0; i < count; i++) {
        const sp_unit_tensor *tensor = &tensors[i];
        bool is_kv = tensor->is_kv && state->holds == SP_HOLDS_ALL;
        int64_t bytes = sp_mul_bytes(tensor->count, tensor->bytes) - tensor->away_bytes;
        add(e, tensor->name, tensor->category,
            sp_unit_left(pack, state, tensor->category, is_kv, bytes), 1);
    }
    if (state->holds == SP_HOLDS_LOADED) {
        add(e, "tensors rebuilt from a copy", SP_MEM_ACTIVATIONS,
            sp_unit_left(pack, state, SP_MEM_ACTIVATIONS, false, part), 1);
    }
}

static void add_all(explanation *e, const char *name, const sp_bytes *bytes)
{
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        add(e, name, (sp_memory_category)c, bytes->of[c], 1);
    }
}

static void add_units(explanation *e)
{
    static const char kept[] = "kept for the weight gradient";
    const sp_plan *plan = e->timeline->plan;
    int parts = e->state.parts;
    for (size_t p = 0; p < plan->packing->forward.count; p++) {
        for (int chunk = 0; chunk < parts; chunk++) {
            const sp_unit_state *state = &e->state.units[p * (size_t)parts + (size_t)chunk];
            const sp_unit_bytes *unit =
                &e->costs->side[0].unit[sp_step_costs_units(e->costs, 0, p) + class_of(e, chunk)];
            if (state->holds == SP_HOLDS_WEIGHTS) {
                add_all(e, kept, &unit->weights);
            } else if (state->holds == SP_HOLDS_REPEAT) {
                add_all(e, "kept for a repeated forward", &unit->repeated);
            } else if (state->holds != SP_HOLDS_NOTHING) {
                add_tensors(e, (int32_t)p, chunk, state);
            }
        }
    }
    for (size_t p = 0; p < plan->packing->backward.count; p++) {
        for (int chunk = 0; chunk < parts; chunk++) {
            if (e->state.deferred[p * (size_t)parts + (size_t)chunk] != 0) {
                size_t row = sp_step_costs_units(e->costs, 1, p) + class_of(e, chunk);
                add_all(e, kept, &e->costs->side[1].unit[row].weights);
            }
        }
    }
    add(e, "gradients of keys and values", SP_MEM_KV_GRADIENTS, e->state.gradient_sums, 1);
}

// The first found comes first where sizes are equal.
static void take_largest(explanation *e, sp_peak_memory *peak)
{
    for (int i = 0; i < e->count; i++) {
        peak->bytes += e->holders[i].bytes;
    }
    while (peak->count < SP_PEAK_HOLDERS && peak->count < e->count) {
        int largest = 0;
        for (int i = 1; i < e->count; i++) {
            largest = e->holders[i].bytes > e->holders[largest].bytes ? i : largest;
        }
        peak->holders[peak->count++] = e->holders[largest];
        e->holders[largest].bytes = -1;
    }
}

sp_status sp_peak_memory_explain(const sp_timeline *timeline, const sp_memory_timeline *memory,
                                 const sp_step_costs *costs, const sp_model *model,
                                 const sp_memory_options *options, sp_peak_memory *peak,
                                 sp_error *err)
{
    const sp_layout *layout = &timeline->plan->layout;
    size_t fullest = fullest_rank(memory);
    explanation e = {.timeline = timeline,
                     .costs = costs,
                     .model = model,
                     .options = options,
                     .rank = &timeline->ranks[fullest],
                     .memory = &memory->ranks[fullest]};
    *peak = (sp_peak_memory){
        .known = true, .dp = e.rank->dp, .pp = e.rank->pp, .at_ns = e.memory->peak_ns};
    if (e.memory->has_peak_action) {
        sp_action_name(e.memory->peak_action, layout->chunks, peak->action);
    }
    sp_status status = sp_memory_at_peak(timeline, costs, memory, fullest, &e.state, err);
    if (status == SP_OK) {
        e.stages = sp_calloc((size_t)sp_layout_vstages(layout), sizeof *e.stages);
        status = sp_layout_stages(layout, model, "", e.stages, err);
    }
    if (status == SP_OK) {
        add_states(&e);
        add_transients(&e);
        add_units(&e);
        take_largest(&e, peak);
    }
    sp_free(e.stages);
    sp_peak_state_fini(&e.state);
    return status;
}
