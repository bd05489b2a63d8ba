#include "tests/support/plan_sample.h"

#include "sim/schedule/schedule.h"
#include "tests/support/random_step.h"
#include "tests/support/test_main.h"

typedef struct shape {
    sp_schedule_kind kind;
    int pp, dp, chunks, slices;
} shape;

static shape shape_for(sp_capability capability)
{
    shape s = {.kind = SP_SCHEDULE_1F1B, .pp = 2, .dp = 1, .chunks = 1, .slices = 1};
    switch (capability) {
    case SP_CAP_DATA_PARALLEL:
    case SP_CAP_DP_MERGE:
    case SP_CAP_ZONES:
    case SP_CAP_ZERO_1:
    case SP_CAP_ZERO_2:
    case SP_CAP_ZERO_3:
        s.dp = 2;
        break;
    case SP_CAP_CHUNKS:
        s.kind = SP_SCHEDULE_INTERLEAVED;
        s.chunks = 2;
        break;
    case SP_CAP_SLICES:
        s.kind = SP_SCHEDULE_SEQ1F1B;
        s.slices = 2;
        break;
    case SP_CAP_REGROUPED:
    case SP_CAP_RECOMPUTE_ACTION:
        s.kind = SP_SCHEDULE_CHUNKFLOW;
        s.slices = 3;
        break;
    case SP_CAP_SPLIT_BACKWARD:
        s.kind = SP_SCHEDULE_ZB_H1;
        break;
    case SP_CAP_PAIRS:
        s.kind = SP_SCHEDULE_DUALPIPE_V;
        s.chunks = 2;
        break;
    default:
        break;
    }
    return s;
}

// What a request asks for beside its plan.
static void set_options(sp_capability capability, plan_sample *sample)
{
    sp_run_request *request = &sample->request;
    switch (capability) {
    case SP_CAP_RECOMPUTE_ACTIVATION:
        sample->memory.recompute = SP_RECOMPUTE_ACTIVATION;
        break;
    case SP_CAP_RECOMPUTE_PARTIAL_FC1:
        sample->memory.recompute = SP_RECOMPUTE_PARTIAL_FC1;
        break;
    case SP_CAP_RECOMPUTE_ATTENTION:
        sample->memory.recompute = SP_RECOMPUTE_ATTENTION;
        break;
    case SP_CAP_RECOMPUTE_MLA_UP_PROJ:
        sample->memory.recompute = SP_RECOMPUTE_MLA_UP_PROJ;
        break;
    case SP_CAP_RECOMPUTE_FULL:
        sample->memory.recompute = SP_RECOMPUTE_FULL;
        break;
    case SP_CAP_RECOMPUTE_MLP:
        sample->memory.recompute = sp_recompute_of_modules(SP_MODULE_MLP);
        break;
    case SP_CAP_RECOMPUTE_MOE:
        sample->memory.recompute = sp_recompute_of_modules(SP_MODULE_MOE);
        break;
    case SP_CAP_RECOMPUTE_SHARED_EXPERTS:
        sample->memory.recompute = sp_recompute_of_modules(SP_MODULE_SHARED_EXPERTS);
        break;
    case SP_CAP_NO_MODEL:
        request->model = NULL;
        break;
    case SP_CAP_FP64:
        request->precision = SP_FP64;
        break;
    case SP_CAP_FP32:
        request->precision = SP_FP32;
        break;
    case SP_CAP_BF16:
        request->precision = SP_BF16;
        break;
    case SP_CAP_CLOCK_VIRTUAL:
        request->clock = SP_CLOCK_VIRTUAL;
        break;
    case SP_CAP_CLOCK_WALL:
        request->clock = SP_CLOCK_WALL;
        break;
    case SP_CAP_STEPS:
        request->steps = 2;
        break;
    case SP_CAP_MEMORY_POINTS:
        request->memory_points = true;
        break;
    default:
        break;
    }
}

static void set_layout(sp_capability capability, sp_layout *layout)
{
    bool tp = capability == SP_CAP_TENSOR_PARALLEL || capability == SP_CAP_SEQUENCE_PARALLEL;
    layout->tp = tp ? 2 : 1;
    layout->sequence_parallel = capability == SP_CAP_SEQUENCE_PARALLEL;
    layout->cp = capability == SP_CAP_CONTEXT_PARALLEL ? 2 : 1;
    layout->vocab_parallel = capability == SP_CAP_VOCAB_PARALLEL;
    layout->zero = capability == SP_CAP_ZERO_1   ? 1
                   : capability == SP_CAP_ZERO_2 ? 2
                   : capability == SP_CAP_ZERO_3 ? 3
                                                 : 0;
}

// One pack on both data-parallel ranks, then one on each.
static void merge_packs(plan_sample *sample)
{
    static const int first[3] = {0, 0, 1};
    static const int ranks[3] = {2, 1, 1};
    sp_packing_init(&sample->packing, NULL, 2);
    for (int p = 0; p < 3; p++) {
        sp_pack_list_begin(&sample->packing.forward, first[p], ranks[p]);
    }
}

// One sample on both ranks, with its attention on the second.
static void add_zone(plan_sample *sample)
{
    sp_slice slice = {.zone = sp_zone_of(1, 1), .tokens = 4, .computed_tokens = 4};
    sample->batch = (sp_batch){.count = 1, .total_tokens = 4};
    sample->batch.ids = sp_calloc(1, sizeof *sample->batch.ids);
    sample->batch.tokens = sp_calloc(1, sizeof *sample->batch.tokens);
    assert_true(sample->batch.ids != NULL && sample->batch.tokens != NULL);
    sample->batch.tokens[0] = 4;
    sp_packing_init(&sample->packing, &sample->batch, 2);
    sp_pack_list_begin(&sample->packing.forward, 0, 2);
    sp_pack_list_add(&sample->packing.forward, slice, true);
}

void plan_sample_make(sp_capability capability, const sp_run_request *request, plan_sample *sample)
{
    sp_prng prng;
    shape s = shape_for(capability);
    sp_prng_seed(&prng, (uint64_t)capability);
    *sample = (plan_sample){.layout = {.pp = s.pp,
                                       .dp = s.dp,
                                       .chunks = s.chunks,
                                       .placement = sp_schedule_traits_of(s.kind).placement},
                            .request = *request};
    set_layout(capability, &sample->layout);
    if (capability == SP_CAP_DP_MERGE) {
        merge_packs(sample);
    } else if (capability == SP_CAP_ZONES) {
        add_zone(sample);
    } else {
        must_succeed(
            sp_packing_uniform_sliced(&sample->packing, &sample->batch, s.dp, 4, s.slices, ERR));
    }
    sp_plan_init(&sample->plan, &sample->layout, &sample->packing);
    sp_schedule_spec spec = {.kind = s.kind, .slices = s.slices, .retained = 1};
    must_succeed(sp_schedule_generate(&spec, NULL, "sample", &sample->plan, ERR));
    if (capability == SP_CAP_OFFLOAD) {
        sp_schedule_add_offload(&sample->plan);
    }
    random_costs(&prng, &sample->layout, &sample->packing, 0, &sample->costs);
    random_copies(&prng, &sample->packing, &sample->costs);
    sample->request.plan = &sample->plan;
    sample->request.memory = &sample->memory;
    set_options(capability, sample);
}

void plan_sample_fini(plan_sample *sample)
{
    sp_plan_fini(&sample->plan);
    sp_step_costs_fini(&sample->costs);
    sp_packing_fini(&sample->packing);
    sp_batch_fini(&sample->batch);
}

// A draw in [0, bound) that belongs to a unit and not to the rank that asks.
static uint64_t draw_of(uint64_t seed, int what, int chunk, size_t pack, uint64_t bound)
{
    sp_prng prng;
    sp_prng_seed(&prng, seed ^ ((uint64_t)what << 48) ^ ((uint64_t)chunk << 32) ^ pack);
    return sp_prng_below(&prng, bound);
}

static bool runs(const sp_pack *pack, int dp)
{
    return dp >= pack->dp_first && dp < pack->dp_first + pack->dp_count;
}

static void put(sp_stage_plan *stage, sp_action_kind kind, int chunk, size_t pack)
{
    sp_stage_plan_add(stage, kind, chunk, (int64_t)pack);
}

static void agreed_forwards(uint64_t seed, const random_plan *r, int dp, sp_stage_plan *stage)
{
    const sp_pack_list *forward = &r->packing.forward;
    for (int chunk = 0; chunk < r->layout.chunks; chunk++) {
        for (size_t p = 0; p < forward->count; p++) {
            if (runs(&forward->packs[p], dp)) {
                put(stage, SP_ACTION_F, chunk, p);
                if (draw_of(seed, 1, chunk, p, 4) == 0) {
                    put(stage, SP_ACTION_O, chunk, p);
                }
            }
        }
    }
    // What is recomputed comes before its load or behind it.
    size_t count = stage->count;
    for (uint64_t turn = 0; turn < 2; turn++) {
        bool loads = (turn ^ seed) % 2 == 0;
        for (size_t a = 0; a < count; a++) {
            sp_action action = stage->actions[a];
            size_t p = (size_t)action.pack;
            if (loads && action.kind == SP_ACTION_O) {
                put(stage, SP_ACTION_L, action.chunk, p);
            } else if (!loads && action.kind == SP_ACTION_F &&
                       draw_of(seed, 2, action.chunk, p, 4) == 0) {
                put(stage, SP_ACTION_R, action.chunk, p);
            }
        }
    }
}

// Puts the weight gradients of the input gradients from place `from` on; returns the end.
static size_t put_weights(sp_stage_plan *stage, size_t from)
{
    size_t end = stage->count;
    for (size_t a = from; a < end; a++) {
        sp_action action = stage->actions[a];
        if (action.kind == SP_ACTION_I) {
            put(stage, SP_ACTION_W, action.chunk, (size_t)action.pack);
        }
    }
    return stage->count;
}

// When a rank runs the weight gradients of a merged pack is its own affair.
static void agreed_backwards(uint64_t seed, const random_plan *r, int dp, sp_stage_plan *stage)
{
    const sp_pack_list *backward = sp_packing_backward(&r->packing);
    size_t weighed = stage->count;
    for (int chunk = r->layout.chunks - 1; chunk >= 0; chunk--) {
        for (size_t p = 0; p < backward->count; p++) {
            if (runs(&backward->packs[p], dp)) {
                bool split = draw_of(seed, 3, chunk, p, 3) == 0;
                put(stage, split ? SP_ACTION_I : SP_ACTION_B, chunk, p);
                if (draw_of(seed + (uint64_t)dp, 4, chunk, p, 2) == 0) {
                    weighed = put_weights(stage, weighed);
                }
            }
        }
    }
    put_weights(stage, weighed);
}

void random_agreed_actions(sp_prng *prng, random_plan *r)
{
    uint64_t seed = sp_prng_u64(prng);
    for (int d = 0; d < r->layout.dp; d++) {
        for (int p = 0; p < r->layout.pp; p++) {
            sp_stage_plan *stage = sp_plan_stage(&r->plan, d, p);
            stage->count = 0;
            agreed_forwards(seed + (uint64_t)p, r, d, stage);
            agreed_backwards(seed + (uint64_t)p, r, d, stage);
        }
    }
}

void random_copies(sp_prng *prng, const sp_packing *packing, sp_step_costs *costs)
{
    size_t rows = packing->forward.count * (size_t)costs->classes;
    costs->o_ns = sp_calloc(rows, sizeof *costs->o_ns);
    costs->l_ns = sp_calloc(rows, sizeof *costs->l_ns);
    costs->offloaded_bytes = sp_calloc(rows, sizeof *costs->offloaded_bytes);
    for (size_t i = 0; i < rows; i++) {
        uint64_t held = (uint64_t)costs->side[0].unit[i].held.of[SP_MEM_ACTIVATIONS];
        costs->o_ns[i] = (int64_t)sp_prng_below(prng, 4000);
        costs->l_ns[i] = (int64_t)sp_prng_below(prng, 4000);
        costs->offloaded_bytes[i] = (int64_t)sp_prng_below(prng, held + 1);
    }
}
