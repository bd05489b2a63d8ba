// Layers whose experts are spread over data-parallel ranks, on the CPU and the wall clock:
// gradients and loss of plans are those of the plain step, whatever the strategy, with rounds in
// which some ranks have no micro-batch.
#include "backends/executor/run.h"
#include "backends/host/host.h"
#include "sim/memory/saved_tensors.h"
#include "tests/support/host_memory.h"
#include "tests/support/host_random.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

// A dense layer, experts, and experts beside shared ones behind a gate.
#define KINDS                                                                                     \
    "'layer_kinds': [{'experts': 0, 'ffn': 48}, {'experts': 4, 'experts_per_token': 2}, "         \
    "{'experts': 8, 'experts_per_token': 3, 'shared_ffn': 24, 'shared_gate': true}, {'experts': " \
    "4, 'experts_per_token': 1, 'shared_ffn': 16}]"
#define MODEL \
    "{'layers': 4, 'hidden': 32, 'ffn': 24, 'heads': 4, 'kv_heads': 2, 'vocab': 61, " KINDS "}"

typedef struct examination {
    scenario_run run;
    host_device device;
    int plans, joins;
    const char *refused; // what the executor says; NULL: it agrees
} examination;

// Empty micro-batches of all ranks.
static int count_joins(const sp_run_request *request)
{
    sp_i_exec_run *run;
    int count = 0;
    assert_int_equal(sp_i_host_run_new_cpu(request, &run, NULL), SP_OK);
    for (size_t r = 0; r < sp_i_exec_rank_count(run); r++) {
        count += (int)run->ranks[r].joins.count;
    }
    sp_i_exec_run_free(run);
    return count;
}

static sp_status execute(void *context, const sp_step_view *view, sp_error *err)
{
    examination *e = context;
    const sp_scenario *scenario = &e->run.scenario;
    const sp_run_request request = {RUN_OF(view->plan, &scenario->model, &scenario->memory),
                                    .clock = SP_CLOCK_WALL, RUN_STEPS(SP_FP64, 5, 1)};
    e->plans++;
    if (e->refused != NULL) {
        sp_run *run = NULL;
        must_fail_with(sp_backend_run(e->device.backend, 0, &request, &run, ERR), SP_ERR_CONTENT,
                       e->refused);
        return SP_OK;
    }
    e->joins += count_joins(&request);
    host_must_agree(&e->device, &request);
    return SP_OK;
}

static void run_plans(examination *e, const char *parallel, const char *more)
{
    const sp_evaluate_options options = {
        .no_bounds = true, .effort_percent = 10, .observer = execute, .observer_context = e};
    const char *text =
        json_text("{'model': " MODEL ", 'cluster': 'host', 'profile': 'host', "
                  "'parallel': %s, 'workload': {'lengths': [38, 11, 64, 24, 12, 83, 15, 22, 9], "
                  "'order': 'file', 'samples_per_batch': 9, 'context': 96}, %s}",
                  parallel, more);
    host_open(&e->device);
    run_good(text, &options, &e->run);
    assert_true(e->plans > 0);
    scenario_run_fini(&e->run);
    host_device_fini(&e->device);
}

#define EP2 "'ep': 2, 'zero': 0"
#define TWO_STAGES "{'pp': 2, 'dp': 2, " EP2 "}"

TEST(strategies_schedules_and_recomputation)
{
    static const struct {
        const char *parallel, *more;
        bool empty; // rounds in which a rank has no micro-batch
    } cases[] = {
        {"{'dp': 2, " EP2 "}", "'strategy': {'kind': 'packed'}", false},
        {"{'dp': 2, " EP2 "}", "'strategy': {'kind': 'sorted'}", false},
        {"{'dp': 2, " EP2 "}", "'strategy': {'kind': 'padded'}", true},
        {"{'dp': 4, " EP2 "}", "'strategy': {'kind': 'packed'}", false},
        {"{'dp': 4, 'ep': 4, 'zero': 0}", "'strategy': {'kind': 'packed'}", false},
        {"{'dp': 4, 'ep': 4, 'zero': 0}", "'strategy': {'kind': 'padded'}", true},
        {TWO_STAGES, "'strategy': {'kind': 'padded'}", true},
        {TWO_STAGES, "'schedule': {'kind': '1f1b'}", false},
        {TWO_STAGES, "'schedule': {'kind': 'gpipe'}", false},
        {TWO_STAGES, "'schedule': {'kind': 'zb-h1'}", false},
        {TWO_STAGES, "'memory': {'recompute': 'activation'}", false},
        {TWO_STAGES, "'memory': {'recompute': 'partial-fc1'}", false},
        {TWO_STAGES, "'memory': {'recompute': 'attention'}", false},
        {TWO_STAGES, "'memory': {'recompute': 'full'}", false},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        examination e = {0};
        run_plans(&e, cases[i].parallel, cases[i].more);
        assert_true(e.joins > 0 || !cases[i].empty);
    }
}

// A plan of two stages and four data-parallel ranks, of which two share the experts of a layer.
typedef struct uneven {
    int64_t ids[8], tokens[8];
    sp_layout layout;
    sp_batch batch;
    sp_model model;
    sp_packing packing;
    sp_plan plan;
    sp_memory_options memory;
    sp_run_request request;
} uneven;

// Sample i is a pack of `tokens` on rank_of[i] and those behind it, ranks_of[i] in all, NULL: one.
static void uneven_make(uneven *u, const int *rank_of, const int *ranks_of, const int64_t *tokens,
                        int samples, int pp, int dp, sp_schedule_kind schedule, sp_recompute mode)
{
    *u = (uneven){.layout = {.tp = 1, .cp = 1, .pp = pp, .dp = dp, .ep = 2, .etp = 1, .chunks = 1},
                  .model = host_routed(),
                  .memory = {.recompute = mode}};
    u->batch = (sp_batch){.ids = u->ids, .tokens = u->tokens, .count = (size_t)samples};
    sp_packing_init(&u->packing, &u->batch, dp);
    for (int32_t i = 0; i < samples; i++) {
        u->ids[i] = i;
        u->tokens[i] = tokens[i];
        u->batch.total_tokens += tokens[i];
        pack_sample(&u->packing.forward, rank_of[i], ranks_of != NULL ? ranks_of[i] : 1, i,
                    tokens[i]);
    }
    must_succeed(plan_by_schedule(&u->plan, &u->layout, &u->packing, schedule, ERR));
    u->request = (sp_run_request){RUN_OF(&u->plan, &u->model, &u->memory), .clock = SP_CLOCK_WALL,
                                  RUN_STEPS(SP_FP64, 5, 1)};
}

static void uneven_fini(uneven *u)
{
    sp_plan_fini(&u->plan);
    sp_packing_fini(&u->packing);
}

// One rank has five micro-batches, its neighbour one; of the others one has none.
static const int rank_of[] = {0, 0, 1, 0, 0, 3, 0};
static const int64_t sizes[] = {5, 8, 11, 14, 17, 20, 23};

enum { SAMPLES = sizeof rank_of / sizeof rank_of[0], MISSED = 4 + 1 };

static void agree_unevenly(sp_schedule_kind schedule, sp_recompute mode)
{
    AUTO(uneven) u;
    uneven_make(&u, rank_of, NULL, sizes, SAMPLES, 2, 4, schedule, mode);
    // A forward and a backward for each round that a rank has no pack in, on each stage.
    assert_int_equal(count_joins(&u.request), MISSED * 2 * 2);
    AUTO(host_device) device = host_opened();
    host_must_agree(&device, &u.request);
}

TEST(uneven_ranks)
{
    agree_unevenly(SP_SCHEDULE_1F1B, SP_RECOMPUTE_NONE);
    agree_unevenly(SP_SCHEDULE_GPIPE, SP_RECOMPUTE_FULL);
    agree_unevenly(SP_SCHEDULE_ZB_H1, SP_RECOMPUTE_ACTIVATION);
}

// Puts a forward that runs again before the backward of a pack on a stage.
static void run_again(uneven *u, int dp, int pp, int32_t pack)
{
    sp_stage_plan *stage = sp_plan_stage(&u->plan, dp, pp);
    sp_stage_plan_add(stage, SP_ACTION_R, 0, pack);
    size_t at = stage->count - 1;
    const sp_action again = stage->actions[at];
    bool is_behind = true;
    while (is_behind) {
        const sp_action before = stage->actions[--at];
        stage->actions[at + 1] = before;
        is_behind =
            before.pack != pack || (before.kind != SP_ACTION_B && before.kind != SP_ACTION_I);
    }
    stage->actions[at] = again;
}

// All packs of some pipeline ranks.
static void run_some_again(sp_prng *prng, uneven *u)
{
    for (int pp = 0; pp < u->layout.pp; pp++) {
        bool again = prng_below(prng, 2) == 0;
        for (int32_t p = 0; again && p < (int32_t)u->packing.forward.count; p++) {
            const sp_pack *pack = &u->packing.forward.packs[p];
            for (int dp = pack->dp_first; dp < pack->dp_first + pack->dp_count; dp++) {
                run_again(u, dp, pp, p);
            }
        }
    }
}

// Any number of packs on any ranks, some of them on two that share experts or on two of different
// groups; the experts are spread over two ranks or over all.
TEST(random_plans)
{
    static const sp_schedule_kind schedules[] = {SP_SCHEDULE_1F1B, SP_SCHEDULE_GPIPE,
                                                 SP_SCHEDULE_ZB_H1};
    sp_prng prng = prng_seeded(71);
    AUTO(host_device) device = host_opened();
    for (int i = 0; i < test_draws(60); i++) {
        AUTO(uneven) u;
        int ranks[8], counts[8];
        int64_t tokens[8];
        int dp = 2 << prng_below(&prng, 2);
        int pp = 1 << prng_below(&prng, 2);
        int samples = 1 + prng_below(&prng, 8);
        sp_schedule_kind schedule = schedules[prng_below(&prng, 3)];
        for (int s = 0; s < samples; s++) {
            // 1F1B of packs on several ranks cannot always finish.
            counts[s] = 1 + (schedule == SP_SCHEDULE_GPIPE ? prng_below(&prng, 2) : 0);
            ranks[s] = prng_below(&prng, dp - counts[s] + 1);
            tokens[s] = 1 + prng_below(&prng, 40);
        }
        const sp_model model = host_routed();
        uneven_make(&u, ranks, counts, tokens, samples, pp, dp, schedule,
                    host_random_mode(&prng, &model));
        u.plan.layout.ep = u.layout.ep = prng_below(&prng, 2) == 0 ? 2 : dp;
        for (int k = 0; k < u.model.kinds; k++) {
            u.model.kind[k].experts += u.model.kind[k].experts % u.layout.ep;
        }
        run_some_again(&prng, &u);
        host_must_agree(&device, &u.request);
    }
}

// Replicas of experts are others than those of all else, in sums, in the norm that clips and in
// steps.
TEST(steps_with_clipping)
{
    const sp_backend_option options[] = {{"clip", "0.4"}};
    AUTO(uneven) u;
    AUTO(host_plain) plain;
    uneven_make(&u, rank_of, NULL, sizes, SAMPLES, 2, 4, SP_SCHEDULE_1F1B, SP_RECOMPUTE_NONE);
    u.request.options = options;
    u.request.option_count = 1;
    u.request.steps = 3;
    AUTO(host_device) device = host_opened();
    host_plain_make(&u.request, &plain);
    OWNED(sp_run) own = host_run(&device, &u.request);
    OWNED(sp_run) expected = host_run(&device, &plain.request);
    for (int s = 0; s < 3; s++) {
        assert_within(sp_run_step(own, s)->loss, sp_run_step(expected, s)->loss, 1e-9);
    }
    assert_true(host_distance(own, expected, "parameters/") < 1e-8);
}

static void must_end(const host_device *device, const sp_run_request *request, sp_status status,
                     const char *text)
{
    sp_run *run = NULL;
    must_fail_with(sp_backend_run(device->backend, 0, request, &run, ERR), status, text);
    assert_null(run);
}

// The neighbours of a rank that fails wait for its rows, or for an empty micro-batch of its own.
TEST(a_failing_action_ends_all)
{
    AUTO(uneven) u;
    uneven_make(&u, rank_of, NULL, sizes, SAMPLES, 2, 4, SP_SCHEDULE_1F1B, SP_RECOMPUTE_NONE);
    AUTO(host_device) device = host_opened();
    for (int r = 0; r < 8; r++) {
        const sp_stage_plan *stage = sp_plan_stage(&u.plan, r / 2, r % 2);
        for (size_t a = 0; a < stage->count; a++) {
            char name[32], place[64];
            sp_action_name(stage->actions[a], 1, name);
            snprintf(place, sizeof place, "%s@%d.%d", name, r / 2, r % 2);
            const sp_backend_option options[] = {{"fail", place}};
            u.request.options = options;
            u.request.option_count = 1;
            u.request.timeout_ns = INT64_C(20000000000);
            must_end(&device, &u.request, SP_ERR_INTERNAL, "it fails on demand");
        }
    }
}

// Between two exchanges of a layer, too.
TEST(a_rank_without_memory_ends_all)
{
    AUTO(uneven) u;
    uneven_make(&u, rank_of, NULL, sizes, SAMPLES, 2, 4, SP_SCHEDULE_1F1B, SP_RECOMPUTE_NONE);
    AUTO(host_device) device = host_opened();
    sp_run *run = host_run(&device, &u.request);
    int64_t most = 0, least = 0;
    for (size_t r = 0; r < sp_run_step(run, 0)->memory.rank_count; r++) {
        const sp_rank_memory *memory = &sp_run_step(run, 0)->memory.ranks[r];
        int64_t peak = sp_bytes_total(&memory->peak);
        int64_t states = memory->peak.of[SP_MEM_PARAMETERS] + memory->peak.of[SP_MEM_GRADIENTS] +
                         memory->peak.of[SP_MEM_OPTIMIZER];
        most = peak > most ? peak : most;
        least = states > least ? states : least;
    }
    sp_run_free(run);
    u.request.timeout_ns = INT64_C(20000000000);
    for (int i = 1; i < 100; i++) {
        u.request.memory_limit_bytes = least + (most - least) * i / 100;
        must_end(&device, &u.request, SP_ERR_INFEASIBLE, "over the limit of");
    }
}

// A token in all experts has a row at each, so that ranks have equally many: as many bytes as the
// table says of rows that are levelled over the ranks of a round.
TEST(memory_of_level_rows)
{
    static const int of_rank[] = {0, 1};
    static const int64_t tokens[] = {20, 12};
    AUTO(uneven) u;
    sp_i_exec_run *run;
    sp_measured_step step = {0};
    sp_unit_tensor tensors[SP_UNIT_TENSORS];
    uneven_make(&u, of_rank, NULL, tokens, 2, 1, 2, SP_SCHEDULE_GPIPE, SP_RECOMPUTE_NONE);
    for (int k = 0; k < u.model.kinds; k++) {
        u.model.kind[k].experts_per_token = u.model.kind[k].experts;
    }
    must_succeed(sp_i_host_run_new_cpu(&u.request, &run, ERR));
    must_succeed(sp_i_exec_run_step(run, &step, ERR));
    for (int r = 0; r < 2; r++) {
        const sp_memory_options options = {
            .stack = {.fused_swiglu = true, .tensors = SP_TENSORS_EXPLICIT}};
        const sp_unit_load load = {.tokens = tokens[r], .expert_tokens = 16};
        int count =
            sp_unit_tensors(&u.model, &u.layout, &run->model_parts[0], &options, &load, tensors);
        int64_t bytes = 0;
        for (int t = 0; t < count; t++) {
            bool counted = tensors[t].category == SP_MEM_ACTIVATIONS;
            bytes += counted ? tensors[t].count * tensors[t].bytes : 0;
        }
        assert_int_equal(run->ranks[r].log[0].after.of[SP_MEM_ACTIVATIONS], bytes);
    }
    sp_timeline_fini(&step.timeline);
    sp_memory_timeline_fini(&step.memory);
    sp_i_exec_run_free(run);
}

// By the predictor of the executor's own stack, too.
TEST(memory_of_level_steps)
{
    static const char scenario[] =
        "{'model': {'layers': 2, 'hidden': 32, 'ffn': 24, 'heads': 4, 'vocab': 61, 'experts': 4, "
        "'experts_per_token': 4, 'shared_ffn': 16}, 'cluster': 'host', 'profile': 'host', 'stack': "
        "'reference', 'parallel': {'dp': 2, 'ep': 2, 'zero': 0}, 'workload': {'lengths': [32, 32, "
        "16, 16, 24, 40, 8, 24], 'order': 'file', 'samples_per_batch': 8, 'context': 64}, "
        "'strategy': {'kind': 'packed'}}";
    AUTO(host_device) device = host_opened();
    host_memory_must_hold(&device, scenario, SP_CLOCK_WALL);
}

// One rank runs both forwards first, the other each backward behind its forward.
TEST(orders_that_cannot_meet)
{
    static const int of_rank[] = {0, 0, 1, 1};
    AUTO(uneven) u;
    sp_i_exec_run *run;
    uneven_make(&u, of_rank, NULL, sizes, 4, 1, 2, SP_SCHEDULE_GPIPE, SP_RECOMPUTE_NONE);
    sp_action *actions = u.plan.stages[1].actions;
    assert_int_equal(u.plan.stages[1].count, 4);
    sp_action second = actions[1];
    int backward = actions[2].pack == actions[0].pack ? 2 : 3;
    actions[1] = actions[backward];
    actions[backward] = actions[2];
    actions[2] = second;
    must_fail_with(sp_i_host_run_new_cpu(&u.request, &run, ERR), SP_ERR_CONTENT,
                   "in orders that cannot meet");
}

// What a rank keeps of its neighbour's rows it would have to have from the forward.
TEST(one_of_two_runs_again)
{
    static const int of_rank[] = {0, 1};
    AUTO(uneven) u;
    sp_i_exec_run *run;
    uneven_make(&u, of_rank, NULL, sizes, 2, 1, 2, SP_SCHEDULE_GPIPE, SP_RECOMPUTE_NONE);
    run_again(&u, 1, 0, 1);
    must_fail_with(sp_i_host_run_new_cpu(&u.request, &run, ERR), SP_ERR_CONTENT,
                   "run forwards again on pipeline rank 0 that others of them do not");
}

TEST(refusals)
{
    static const struct {
        const char *parallel, *more, *text;
    } cases[] = {
        {"{'dp': 2, 'ep': 2, 'zero': 1}", "'strategy': {'kind': 'packed'}", "parallel.zero"},
        {"{'cp': 2, " EP2 "}", "'strategy': {'kind': 'packed'}", "parallel.cp"},
        {"{'tp': 2}", "'strategy': {'kind': 'packed'}", "parallel.tp"},
        {"{'pp': 2, 'dp': 2, " EP2 "}", "'strategy': {'kind': 'slimpack', 'slice_tokens': 16}",
         "backward packs that differ from the forward packs"},
        {"{'pp': 2, 'dp': 2, 'vocab_parallel': true, " EP2 "}", "'strategy': {'kind': 'packed'}",
         "a vocabulary spread over the pipeline ranks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        examination e = {.refused = cases[i].text};
        run_plans(&e, cases[i].parallel, cases[i].more);
    }
}

// Exchanges of experts are within a process, and on the wall clock; nothing of theirs is copied
// out.
TEST(refusals_of_requests)
{
    static const int of_rank[] = {0, 1};
    sp_transport two = {.rank = 0, .ranks = 2};
    const sp_i_exec_site site = {.backend = "host", .transport = &two};
    AUTO(uneven) u;
    AUTO(host_device) device = host_opened();
    uneven_make(&u, of_rank, NULL, sizes, 2, 1, 2, SP_SCHEDULE_GPIPE, SP_RECOMPUTE_NONE);
    must_fail_with(sp_i_exec_check_transport(&u.request, &site, ERR), SP_ERR_CONTENT,
                   "experts shared by ranks in processes of their own");
    u.memory.offload_ratio = 0.5;
    must_end(&device, &u.request, SP_ERR_CONTENT, "(parallel.ep) beside offload");
    u.memory.offload_ratio = 0.0;
    u.request.clock = SP_CLOCK_VIRTUAL;
    must_end(&device, &u.request, SP_ERR_CONTENT, "(parallel.ep) beside the virtual clock");
    u.request.clock = SP_CLOCK_WALL;
    u.memory.stack.dispatcher = SP_DISPATCH_DEEPEP;
    must_end(&device, &u.request, SP_ERR_CONTENT, "dispatcher \"deepep\" (stack.dispatcher)");
    u.memory.stack.dispatcher = SP_DISPATCH_ALLTOALL;
    u.memory.stack.expert_overlap = true;
    must_end(&device, &u.request, SP_ERR_CONTENT, "(stack.expert_overlap)");
    u.memory.stack.expert_overlap = false;
    u.memory.stack.shared_expert_overlap = true;
    must_end(&device, &u.request, SP_ERR_CONTENT, "(stack.shared_expert_overlap)");
    u.memory.stack.shared_expert_overlap = false;
    u.plan.layout.ep = 1;
    u.plan.layout.etp = 2;
    must_end(&device, &u.request, SP_ERR_CONTENT, "(parallel.etp)");
    u.plan.layout.ep = 2;
    u.plan.layout.etp = 1;
    u.model.kind[1].experts = 5;
    must_end(&device, &u.request, SP_ERR_CONTENT, "5 experts cannot be spread over 2 ranks");
}
