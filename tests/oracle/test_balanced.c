// Imbalance of the balanced strategy against WLB-LLM's packing table (Wang et al., arXiv
// 2503.17924: 7B, context 128K, four micro-batches): largest over mean micro-batch latency of 1.41
// with the greedy on packs of the context's length, then 1.24, 1.05 and 1.05 with one, two and
// three outlier queues; documents wait half a step in the mean.
//
// The paper's documents are not public. DistCA (hao-ai-lab/DistCA, dist_wlbllm.json) has digitised
// their distribution (sim/workload/distribution.c): mean 3,962 tokens; 0.53 % between 64K and 128K
// hold 12.8 % of the tokens and 67 % of the squares. Nor are its latencies: without TP and CP
// communication the greedy comes out as published, and the queues must follow.
#include "sim/workload/distribution.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { CONTEXT = 131072, PACKS = 4, STEPS = 250, MOST_DOCUMENTS = 4000 };

static int64_t document(sp_prng *prng)
{
    return sp_distribution_sample(sp_distribution_find("wlb-llm"), prng);
}

// Batches of exactly so many contexts, the last document of each cut to fit.
static void make_batches(int64_t context, int packs, sp_batches *batches)
{
    sp_prng prng = prng_seeded(47);
    *batches = (sp_batches){.count = STEPS, .context = context};
    batches->batch = sp_calloc(STEPS, sizeof *batches->batch);
    for (int b = 0; b < STEPS; b++) {
        sp_batch *batch = &batches->batch[b];
        batch->ids = sp_calloc(MOST_DOCUMENTS, sizeof *batch->ids);
        batch->tokens = sp_calloc(MOST_DOCUMENTS, sizeof *batch->tokens);
        int64_t left = packs * context;
        while (left > 0) {
            int64_t tokens = document(&prng);
            assert_true(batch->count < MOST_DOCUMENTS);
            batch->ids[batch->count] = b; // the step it comes in
            batch->tokens[batch->count] = tokens < left ? tokens : left;
            left -= batch->tokens[batch->count++];
        }
        batch->total_tokens = packs * context;
    }
}

static void free_batches(sp_batches *batches)
{
    for (int b = 0; b < batches->count; b++) {
        free(batches->batch[b].ids);
        free(batches->batch[b].tokens);
    }
    free(batches->batch);
}

// The mix has the moments that it is made for.
TEST(mix_is_the_published_one)
{
    sp_prng prng = prng_seeded(53);
    double tokens = 0.0, squares = 0.0, long_tokens = 0.0, long_squares = 0.0;
    const int n = 400000;
    for (int i = 0; i < n; i++) {
        double t = (double)document(&prng);
        tokens += t;
        squares += t * t;
        long_tokens += t >= 65536.0 ? t : 0.0;
        long_squares += t >= 65536.0 ? t * t : 0.0;
    }
    assert_within(tokens / n / 3962.0, 1.0, 0.02);
    assert_within(long_tokens / tokens, 0.128, 0.005);
    assert_within(long_squares / squares, 0.67, 0.02);
}

typedef struct tally {
    double degree;         // sum over the steps
    double waited, tokens; // token steps; tokens
} tally;

static sp_status observe(void *context, const sp_step_view *view, sp_error *err)
{
    tally *t = context;
    const sp_step_costs *costs = view->costs;
    const sp_pack_list *packs = &view->plan->packing->forward;
    assert_int_equal(packs->count, PACKS);
    double most = 0.0, sum = 0.0;
    for (size_t k = 0; k < packs->count; k++) {
        double ns = 0.0;
        for (int s = 0; s < PACKS; s++) {
            size_t at = k * (size_t)costs->classes + (size_t)costs->stages[s].cost_class;
            ns += (double)(sp_action_cost_ns(&costs->action[SP_ACTION_F][at]) +
                           sp_action_cost_ns(&costs->action[SP_ACTION_B][at]));
        }
        most = fmax(most, ns);
        sum += ns;
    }
    t->degree += most * PACKS / sum;
    for (size_t s = 0; s < packs->slice_count; s++) {
        double tokens = (double)packs->slices[s].tokens;
        int64_t came = view->plan->packing->batch->ids[packs->slices[s].sample];
        t->waited += tokens * (double)(view->batch - came);
        t->tokens += tokens;
    }
    return SP_OK;
}

// Mean imbalance degree; *wait becomes the mean over tokens of the steps waited.
static double degree(const sp_batches *batches, const char *strategy, double *wait)
{
    const char *text =
        json_text("{'model': 'llama-7b', 'cluster': 'h100-8', 'parallel': {'pp': 4}, 'schedule': {"
                  "'microbatches': 4}, 'workload': {'uniform': 1, 'context': 131072}, "
                  "'strategy': {'kind': 'balanced', %s}}",
                  strategy);
    AUTO(sp_scenario) scenario;
    AUTO(sp_result) result;
    tally t = {0};
    const sp_evaluate_options options = {.observer = observe, .observer_context = &t};
    must_succeed(run_read(text, &scenario, ERR));
    must_succeed(sp_evaluate(&scenario, batches, &options, &result, ERR));
    *wait = t.waited / t.tokens;
    return t.degree / STEPS;
}

TEST(imbalance_of_the_paper)
{
    sp_batches batches;
    make_batches(CONTEXT, PACKS, &batches);
    double wait;
    // Whole documents do not fill four contexts exactly: a hundredth of room.
    double greedy = degree(&batches, "'outlier_queues': 0, 'pack_tokens': 132382", &wait);
    assert_true(wait == 0.0);
    double one = degree(&batches, "'outlier_queues': 1", &wait);
    double two = degree(&batches, "'outlier_queues': 2", &wait);
    double wait_two = wait;
    double three = degree(&batches, "'outlier_queues': 3", &wait);
    // Where the paper's queues begin is unknown; the first one alone tells most by that.
    // Over these steps the degree is known to 2 %.
    assert_within(greedy, 1.41, 0.08);
    assert_within(one, 1.24, 0.08);
    assert_within(two, 1.05, 0.02);
    assert_within(three, 1.05, 0.04);
    assert_within(wait_two, 0.5, 0.1);
    free_batches(&batches);
}

// ---- the paper's study of one layer with CP = 4 ----

static sp_status add_time(void *context, const sp_step_view *view, sp_error *err)
{
    double *ns = context;
    const sp_step_costs *costs = view->costs;
    for (size_t k = 0; k < view->plan->packing->forward.count; k++) {
        *ns += (double)(sp_action_cost_ns(&costs->action[SP_ACTION_F][k * (size_t)costs->classes]) +
                        sp_action_cost_ns(&costs->action[SP_ACTION_B][k * (size_t)costs->classes]));
    }
    return SP_OK;
}

static double layer_ns(const sp_batches *batches, const char *sharding)
{
    const char *text = json_text(
        "{'model': {'layers': 1, 'hidden': 4096, 'ffn': 11008, 'heads': 32, 'vocab': 128}, "
        "'cluster': 'h100-8', 'parallel': {'cp': 4}, 'workload': {'uniform': 1, 'context': %lld}, "
        "'strategy': {'kind': 'packed', 'cp_sharding': '%s'}}",
        (long long)batches->context, sharding);
    AUTO(sp_scenario) scenario;
    AUTO(sp_result) result;
    double ns = 0.0;
    const sp_evaluate_options options = {.observer = add_time, .observer_context = &ns};
    must_succeed(run_read(text, &scenario, ERR));
    must_succeed(sp_evaluate(&scenario, batches, &options, &result, ERR));
    return ns;
}

typedef struct gains {
    double document, over_sequence, over_document; // per document, then adaptive
} gains;

static gains gains_at(int64_t context)
{
    sp_batches batches;
    make_batches(context, 1, &batches);
    double sequence = layer_ns(&batches, "sequence");
    double document = layer_ns(&batches, "document");
    double adaptive = layer_ns(&batches, "adaptive");
    free_batches(&batches);
    print_message("%lld: per document %.3f, adaptive %.3f over per sequence, %.3f over per "
                  "document\n",
                  (long long)context, sequence / document, sequence / adaptive,
                  document / adaptive);
    return (gains){sequence / document, sequence / adaptive, document / adaptive};
}

// Per document over per sequence 1.01 at 64K and 1.07 at 128K, adaptive +7.5 % over per sequence
// and +3.4 % over per document. The adaptive figures are of both lengths together: 1.075 / 1.034
// = 1.040 is the mean of 1.01 and 1.07, and neither of them. So read, the study is reproduced but
// for +3.4 %
// (+1.5 % here), which is what adaptive leaves per document (1.075 / 1.04 published, 1.073 / 1.056
// here): rows of the digitised list have fewer documents so short that cutting them costs time than
// the paper's own, which are not public, must have.
TEST(cp_study)
{
    assert_within(1.075 / 1.034, (1.01 + 1.07) / 2.0, 0.001);
    gains at_64k = gains_at(65536);
    gains at_128k = gains_at(131072);
    assert_within(at_64k.document, 1.01, 0.02);
    assert_within(at_128k.document, 1.07, 0.04);
    assert_within((at_64k.over_sequence + at_128k.over_sequence) / 2.0, 1.075, 0.01);
    double over_document = (at_64k.over_document + at_128k.over_document) / 2.0;
    assert_true(over_document > 1.0 && over_document < 1.034);
}
