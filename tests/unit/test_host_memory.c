// What the executor holds, beside what the predictor says for the very same timeline: equal to the
// byte, after every action, in each category that the saved-tensor table describes.
#include "sim/engine/memory.h"
#include "tests/support/host_run.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

typedef struct comparison {
    scenario_run run;
    host_device device;
    uint64_t categories; // bits 1 << sp_memory_category
} comparison;

// What is held after an action that ended at `time_ns`: the first point of that moment, before
// those of an action that follows at once. An action always ends with something given back.
static const sp_bytes *held_after(const sp_rank_memory *memory, int64_t time_ns)
{
    size_t i = 0;
    while (i + 1 < memory->point_count && memory->points[i].time_ns < time_ns) {
        i++;
    }
    assert_int_equal(memory->points[i].time_ns, time_ns);
    return &memory->points[i].bytes;
}

static void compare_rank(const comparison *c, const sp_plan *plan, const sp_rank_timeline *rank,
                         const sp_rank_memory *measured, const sp_rank_memory *predicted)
{
    for (size_t i = 0; i < rank->count; i++) {
        const sp_bytes *mine = held_after(measured, rank->spans[i].end_ns);
        const sp_bytes *theirs = held_after(predicted, rank->spans[i].end_ns);
        char name[32];
        sp_action_name(rank->spans[i].action, plan->layout.chunks, name);
        for (int k = 0; k < SP_MEM_CATEGORIES; k++) {
            if ((c->categories >> k & 1) != 0 && mine->of[k] != theirs->of[k]) {
                fail_msg("dp %d pp %d after %s: %s %lld, predicted %lld", rank->dp, rank->pp, name,
                         sp_memory_category_names[k], (long long)mine->of[k],
                         (long long)theirs->of[k]);
            }
        }
    }
}

static sp_status compare(void *context, const sp_step_view *view, sp_error *err)
{
    const comparison *c = context;
    const sp_scenario *scenario = &c->run.scenario;
    const sp_run_request request = {.plan = view->plan,
                                    .model = &scenario->model,
                                    .memory = &scenario->memory,
                                    .precision = SP_FP32,
                                    .seed = 5,
                                    .steps = 1,
                                    .memory_points = true};
    sp_run *run = host_run(&c->device, &request);
    const sp_measured_step *step = sp_run_step(run, 0);
    sp_memory_timeline predicted;
    must_succeed("replay", sp_i_memory_replay(&step->timeline, view->costs, true, &predicted, err),
                 err);
    for (size_t r = 0; r < step->timeline.rank_count; r++) {
        compare_rank(c, view->plan, &step->timeline.ranks[r], &step->memory.ranks[r],
                     &predicted.ranks[r]);
    }
    sp_memory_timeline_fini(&predicted);
    sp_run_free(run);
    return SP_OK;
}

#define HELD                                                                     \
    (1u << SP_MEM_PARAMETERS | 1u << SP_MEM_GRADIENTS | 1u << SP_MEM_OPTIMIZER | \
     1u << SP_MEM_ACTIVATIONS | 1u << SP_MEM_KV_CACHE | 1u << SP_MEM_LOGITS)

#define LLAMA "{'layers': 4, 'hidden': 32, 'ffn': 48, 'heads': 4, 'kv_heads': 2, 'vocab': 61}"
#define GPT                                                                                  \
    "{'layers': 4, 'hidden': 32, 'ffn': 64, 'heads': 4, 'vocab': 61, 'activation': 'gelu', " \
    "'norm': 'layernorm', 'positional': 'learned', 'max_positions': 128, 'bias': true, "     \
    "'tied_embeddings': true}"

static void holds(const char *model, const char *layout, const char *more)
{
    comparison c = {.categories = HELD};
    const sp_evaluate_options options = {.observer = compare, .observer_context = &c};
    char text[RUN_TEXT] = "";
    put_json(text,
             "{'model': %s, 'cluster': 'h800-8', 'stack': {'fused_swiglu': true}, 'parallel': %s, "
             "'workload': {'lengths': [38, 11, 64, 24, 12, 83, 15, 22], 'order': 'file', "
             "'samples_per_batch': 8, 'context': 128}, %s}",
             model, layout, more);
    host_open(&c.device);
    run_good(text, &options, &c.run);
    run_fini(&c.run);
    host_close(&c.device);
}

static void is_as_predicted(const char *layout, const char *more)
{
    holds(LLAMA, layout, more);
    holds(GPT, layout, more);
}

static void whole_samples_hold_what_is_predicted(void **state)
{
    (void)state;
    is_as_predicted("{}", "'schedule': {'kind': 'gpipe'}");
    is_as_predicted("{'pp': 2, 'dp': 2}", "'schedule': {'kind': '1f1b'}");
    is_as_predicted("{'pp': 2, 'dp': 3, 'zero': 0}", "'schedule': {'kind': '1f1b'}");
    is_as_predicted("{'pp': 2, 'chunks_per_rank': 2}", "'schedule': {'kind': 'interleaved'}");
    is_as_predicted("{'pp': 2}", "'strategy': {'kind': 'padded'}");
}

static void split_backwards_hold_what_is_predicted(void **state)
{
    (void)state;
    is_as_predicted("{'pp': 4}", "'schedule': {'kind': 'zb-h1'}");
    is_as_predicted("{'pp': 2}", "'schedule': {'kind': 'zb-h2'}");
    is_as_predicted("{'pp': 2}", "'schedule': {'kind': 'zb-v'}");
}

static void slices_hold_what_is_predicted(void **state)
{
    (void)state;
    is_as_predicted("{'pp': 2}", "'schedule': {'kind': 'seq1f1b', 'slices': 4}");
    is_as_predicted("{'pp': 2}", "'schedule': {'kind': 'terapipe', 'slices': 2}");
    is_as_predicted("{'pp': 2}", "'strategy': {'kind': 'slimpipe'}, 'schedule': {'slices': 4}");
    is_as_predicted("{'pp': 2}", "'strategy': {'kind': 'chunkflow', 'chunk_tokens': 16}");
}

static void regrouped_packs_hold_what_is_predicted(void **state)
{
    (void)state;
    is_as_predicted("{'pp': 2}", "'strategy': {'kind': 'slimpack'}");
    is_as_predicted("{'pp': 4}", "'strategy': {'kind': 'slimpack-symmetric'}");
}

static void recomputation_holds_what_is_predicted(void **state)
{
    (void)state;
    static const char *const modes[] = {"activation", "partial-fc1", "attention", "full"};
    static const char *const plans[] = {"'schedule': {'kind': '1f1b'}",
                                        "'schedule': {'kind': 'zb-h1'}",
                                        "'schedule': {'kind': 'seq1f1b', 'slices': 4}",
                                        "'strategy': {'kind': 'chunkflow', 'chunk_tokens': 16}",
                                        "'strategy': {'kind': 'slimpack'}"};
    for (int m = 0; m < 4; m++) {
        for (int p = 0; p < 5; p++) {
            char more[256];
            snprintf(more, sizeof more, "'memory': {'recompute': '%s'}, %s", modes[m], plans[p]);
            is_as_predicted("{'pp': 2}", more);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(whole_samples_hold_what_is_predicted),
    cmocka_unit_test(split_backwards_hold_what_is_predicted),
    cmocka_unit_test(slices_hold_what_is_predicted),
    cmocka_unit_test(regrouped_packs_hold_what_is_predicted),
    cmocka_unit_test(recomputation_holds_what_is_predicted),
};

SP_TEST_MAIN(tests)
