// What fills the peak. The named holders must add up to the peak that the memory timeline found,
// whatever the schedule; counts and sizes of a small case are worked out by hand.
#include "sim/metrics/metrics.h"

#include "solver/evaluate/evaluate.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { TEXT = 2048 };

// For each batch: the explanation beside the memory timeline that it explains.
typedef struct check {
    const sp_scenario *scenario;
    const char *text;
} check;

static sp_status explain(void *context, const sp_step_view *view, sp_error *err)
{
    const check *c = context;
    sp_peak_memory peak;
    SP_TRY(sp_peak_memory_explain(view->timeline, view->memory, view->costs, &c->scenario->model,
                                  &c->scenario->memory, &peak, err));
    int64_t most = 0;
    bool found = false;
    for (size_t r = 0; r < view->memory->rank_count; r++) {
        const sp_rank_memory *rank = &view->memory->ranks[r];
        int64_t bytes = sp_bytes_total(&rank->peak);
        most = bytes > most ? bytes : most;
        found = found ||
                (view->timeline->ranks[r].dp == peak.dp && view->timeline->ranks[r].pp == peak.pp &&
                 rank->peak_ns == peak.at_ns && bytes == peak.bytes);
    }
    // Where backward packs free shares of forward packs each tensor is rounded for itself.
    int64_t slack = view->plan->packing->backward.count > 0 ? 4096 : 0;
    must_hold(llabs(peak.bytes - most) <= slack && (slack != 0 || found),
              "%lld of %lld bytes named: %s", (long long)peak.bytes, (long long)most, c->text);
    assert_true(peak.known);
    assert_true(peak.count > 0 && peak.count <= SP_PEAK_HOLDERS);
    for (int i = 0; i < peak.count; i++) {
        assert_true(peak.holders[i].bytes > 0);
        assert_true(peak.holders[i].count > 0);
        assert_true(i == 0 || peak.holders[i].bytes <= peak.holders[i - 1].bytes);
    }
    return SP_OK;
}

static void evaluate(const char *text, sp_result *result)
{
    AUTO(sp_batches) batches;
    SCENARIO_READ(scenario, text);
    check c = {&scenario, text};
    sp_evaluate_options options = {
        .effort_percent = 20, .observer = explain, .observer_context = &c};
    must_succeed(sp_evaluate_batches(&scenario, &batches, ERR));
    must_succeed_for(text, sp_evaluate(&scenario, &batches, &options, result, ERR));
}

TEST_ROUNDS(holders_add_up_to_the_peak, 5, 90)
{
    static const char *const schedules[] = {
        "{'kind': 'gpipe'}",
        "{'kind': '1f1b'}",
        "{'kind': 'zb-h1'}",
        "{'kind': 'zb-v'}",
        "{'kind': 'interleaved', 'group': 'even'}",
        "{'kind': 'seq1f1b', 'slices': 4}",
        "{'kind': 'slimpipe', 'slices': 4}",
        "{'kind': 'terapipe', 'slices': 2}",
        "{'kind': 'chunkflow', 'slices': 4, 'retained_chunks': 1}",
    };
    static const char *const recompute[] = {"none", "activation", "partial-fc1", "attention",
                                            "full"};
    enum { SCHEDULES = sizeof schedules / sizeof schedules[0] };
    char text[TEXT];
    const char *schedule = schedules[round % SCHEDULES];
    bool many = strstr(schedule, "interleaved") != NULL;
    bool v = strstr(schedule, "zb-v") != NULL;
    snprintf(text, sizeof text,
             "{'model': {'layers': 16, 'hidden': 2048, 'ffn': 5632, 'heads': 16, 'vocab': "
             "32000, 'activation': '%s'}, 'cluster': 'h800-8', 'profile': 'h800', "
             "'stack': {'name': 'ours', 'fused_swiglu': %s}, "
             "'parallel': {'tp': 2, 'pp': 4, 'cp': %d, 'dp': 1, 'chunks_per_rank': %d}, "
             "'schedule': %s, 'memory': {'recompute': '%s', 'attention': '%s', "
             "'offload_ratio': %g}, "
             "'workload': {'lengths': [8000, 4000, 7000, 6000, 100, 200, 5000, 3000], "
             "'context': 8192, 'samples_per_batch': 8, 'batches': 2}}",
             sp_prng_below(prng, 2) == 0 ? "swiglu" : "gelu",
             sp_prng_below(prng, 2) == 0 ? "true" : "false", 1 + prng_below(prng, 2),
             many || v ? 2 : 1, schedule, recompute[sp_prng_below(prng, 5)],
             sp_prng_below(prng, 3) == 0 ? "unfused" : "flash",
             0.125 * (double)sp_prng_below(prng, 9));
    AUTO(sp_result) result;
    evaluate(text, &result);
    assert_true(result.peak_memory.known);
}

// Also of packs that are regrouped, with gradients apart or forwards that run again.
TEST(holders_of_regrouped_packs)
{
    static const char *const strategies[] = {
        "'strategy': {'kind': 'slimpack', 'slice_tokens': 1024}",
        "'strategy': {'kind': 'slimpack-zb', 'slice_tokens': 1024}",
        "'strategy': {'kind': 'chunkflow', 'chunk_tokens': 1024}",
    };
    static const char *const stacks[] = {"ours", "reference"};
    for (int s = 0; s < 3; s++) {
        for (int stack = 0; stack < 2; stack++) {
            char text[TEXT];
            AUTO(sp_result) result;
            snprintf(text, sizeof text,
                     "{'model': {'layers': 8, 'hidden': 1024, 'ffn': 2816, 'heads': 8, 'vocab': "
                     "32000}, 'cluster': 'h800-8', 'profile': 'h800', 'stack': '%s', "
                     "'parallel': {'pp': 4}, 'workload': {'lengths': [8000, 4000, 7000, 6000, 100, "
                     "200, 5000, 3000], 'context': 8192, 'samples_per_batch': 8}, %s}",
                     stacks[stack], strategies[s]);
            evaluate(text, &result);
            assert_true(result.peak_memory.known);
        }
    }
}

// One rank, two micro-batches of 1024 tokens under GPipe: at the start of the first backward both
// units hold all. Two layers, hidden 1024, ffn 2048, tokens 1024: 2 MiB a hidden tensor, 4 MiB a
// tensor of the MLP's width, twice for two layers and twice for two units; 4 B a logit.
TEST(names_and_counts)
{
    AUTO(sp_result) result;
    evaluate("{'model': {'layers': 2, 'hidden': 1024, 'ffn': 2048, 'heads': 8, 'vocab': 4096, "
             "'activation': 'swiglu', 'norm': 'rmsnorm', 'bias': false}, 'cluster': 'h800-8', "
             "'profile': 'h800', 'nodes': 1, 'parallel': {'pp': 1, 'dp': 8}, "
             "'schedule': {'kind': 'gpipe'}, 'workload': {'uniform': 1024, 'context': 1024, "
             "'samples_per_batch': 16}}",
             &result);
    const sp_peak_memory *peak = &result.peak_memory;
    const int64_t mib = 1 << 20;
    assert_int_equal(peak->pp, 0);
    assert_true(peak->action[0] == 'F' || peak->action[0] == 'B');
    bool halves = false, softmax = false;
    for (int i = 0; i < peak->count; i++) {
        const sp_memory_holder *holder = &peak->holders[i];
        if (strcmp(holder->name, "fc1 output, gate half") == 0) {
            halves = true;
            assert_int_equal(holder->category, SP_MEM_ACTIVATIONS);
            assert_int_equal(holder->bytes, 16 * mib);
            assert_int_equal(holder->count, 2);
        }
        if (strcmp(holder->name, "softmax of the logits") == 0) {
            softmax = true;
            assert_int_equal(holder->category, SP_MEM_LOGITS);
            assert_int_equal(holder->bytes, 32 * mib);
            assert_int_equal(holder->count, 2);
        }
    }
    assert_true(halves);
    assert_true(softmax);
}

TEST(planner_and_uniform_costs_have_none)
{
    static const char *const texts[] = {
        "{'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'w_ms': 1, 'p2p_ms': 0}, 'parallel': {'pp': 2}, "
        "'schedule': {'kind': '1f1b', 'microbatches': 4}}",
        "{'model': 'llama-7b', 'cluster': 'h800-8', 'parallel': {'pp': 8}, "
        "'memory': {'model': 'slimpipe-planner', 'recompute': 'partial-fc1'}, "
        "'workload': {'uniform': 1024, 'context': 1024, 'samples_per_batch': 16}}"};
    for (size_t i = 0; i < 2; i++) {
        AUTO(sp_batches) batches;
        AUTO(sp_result) result;
        sp_evaluate_options options = {0};
        SCENARIO_READ(scenario, texts[i]);
        must_succeed(sp_evaluate_batches(&scenario, &batches, ERR));
        must_succeed_for(texts[i], sp_evaluate(&scenario, &batches, &options, &result, ERR));
        assert_false(result.peak_memory.known);
    }
}
