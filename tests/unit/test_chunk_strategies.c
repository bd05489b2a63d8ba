// ChunkFlow's chunks and SlimPipe's slices: their numbers, their order, every token once; and the
// order of its own that a strategy brings.
#include "solver/strategy.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { MOST_SAMPLES = 60, MOST_PACKS = 4096 };

typedef struct fixture {
    sp_scenario scenario;
    sp_cost_model cost;
    int64_t ids[MOST_SAMPLES], tokens[MOST_SAMPLES];
    sp_batch batch;
    sp_strategy_input input;
    sp_packing packing;
} fixture;

static void fixture_init(fixture *f, const char *kind, const char *more, int dp, int64_t context,
                         sp_prng *prng)
{
    const char *text = json_text(
        "%s'cluster': 'h800-8', 'parallel': {'pp': 2, 'dp': %d}, 'workload': {'uniform': 64}, "
        "'strategy': {'kind': '%s'%s}}",
        TINY_MODEL, dp, kind, more);
    must_succeed(run_read(text, &f->scenario, ERR));
    must_succeed(sp_strategy_resolve(&f->scenario, false, ERR));
    must_succeed(sp_scenario_cost_model(&f->scenario, &f->cost, ERR));
    f->batch = (sp_batch){.ids = f->ids, .tokens = f->tokens};
    f->batch.count = 1 + (size_t)sp_prng_below(prng, MOST_SAMPLES);
    for (size_t i = 0; i < f->batch.count; i++) {
        int64_t most = sp_prng_below(prng, 6) == 0 ? context : context / 10 + 1;
        f->ids[i] = (int64_t)i;
        f->tokens[i] = 1 + (int64_t)sp_prng_below(prng, (uint64_t)most);
        f->batch.total_tokens += f->tokens[i];
    }
    f->input = (sp_strategy_input){
        .scenario = &f->scenario, .batch = &f->batch, .context = context, .cost = &f->cost};
}

static void fixture_pack(fixture *f)
{
    const sp_strategy *strategy = sp_strategy_find(f->scenario.strategy.kind);
    must_succeed(sp_strategy_pack(strategy, &f->input, &f->packing, ERR));
}

static void fixture_fini(fixture *f)
{
    sp_packing_fini(&f->packing);
    sp_cost_model_fini(&f->cost);
    sp_scenario_fini(&f->scenario);
}

// Packs of micro-batch m: [first, first + count).
typedef struct span {
    size_t first, count;
} span;

static size_t spans_of(const sp_pack_list *list, span spans[MOST_PACKS])
{
    size_t count = 0;
    for (size_t k = 0; k < list->count; k++) {
        if (k == 0 || list->packs[k].microbatch != list->packs[k - 1].microbatch) {
            assert_true(count < MOST_PACKS);
            spans[count++] = (span){.first = k};
        }
        assert_int_equal(list->packs[k].microbatch, count - 1);
        spans[count - 1].count++;
    }
    return count;
}

// Every token of every sample once, in order, without padding; the slices of a micro-batch on one
// rank, backward in reverse.
static void assert_every_token_once(const fixture *f)
{
    int64_t done[MOST_SAMPLES] = {0};
    const sp_pack_list *lists[] = {&f->packing.forward, &f->packing.backward};
    static span spans[2][MOST_PACKS];
    size_t count = spans_of(lists[0], spans[0]);
    for (size_t s = 0; s < lists[0]->slice_count; s++) {
        const sp_slice *slice = &lists[0]->slices[s];
        assert_int_equal(slice->begin, done[slice->sample]);
        assert_true(slice->tokens > 0);
        assert_int_equal(slice->computed_tokens, slice->tokens);
        done[slice->sample] += slice->tokens;
    }
    for (size_t i = 0; i < f->batch.count; i++) {
        assert_int_equal(done[i], f->tokens[i]);
    }
    assert_int_equal(spans_of(lists[1], spans[1]), count);
    for (size_t m = 0; m < count; m++) {
        assert_int_equal(spans[0][m].count, spans[1][m].count);
        for (size_t k = 0; k < spans[0][m].count; k++) {
            const sp_pack *a = &lists[0]->packs[spans[0][m].first + k];
            const sp_pack *b = &lists[1]->packs[spans[1][m].first + spans[1][m].count - 1 - k];
            assert_int_equal(a->dp_first, lists[0]->packs[spans[0][m].first].dp_first);
            assert_int_equal(a->dp_first, b->dp_first);
            assert_int_equal(a->slice_count, b->slice_count);
            assert_memory_equal(&lists[0]->slices[a->first_slice],
                                &lists[1]->slices[b->first_slice],
                                a->slice_count * sizeof(sp_slice));
        }
    }
}

// First-fit decreasing without a tree.
static size_t first_fit(const fixture *f, int64_t chunk)
{
    int64_t room[MOST_SAMPLES], tokens[MOST_SAMPLES];
    size_t n = 0, bins = 0;
    for (size_t i = 0; i < f->batch.count; i++) {
        size_t k = n;
        if (f->tokens[i] > chunk) {
            continue;
        }
        for (; k > 0 && tokens[k - 1] < f->tokens[i]; k--) {
            tokens[k] = tokens[k - 1];
        }
        tokens[k] = f->tokens[i];
        n++;
    }
    for (size_t i = 0; i < n; i++) {
        size_t b = 0;
        while (b < bins && room[b] < tokens[i]) {
            b++;
        }
        if (b == bins) {
            room[bins++] = chunk;
        }
        room[b] -= tokens[i];
    }
    return bins;
}

// ChunkFlow, section 4.1: a sample longer than ChunkSize makes ceil(tokens / ChunkSize) dependent
// chunks, full but for the last; the others are packed, trying 1, 2, ... bins until they fit.
TEST_ROUNDS(chunks_of_the_paper, 3, test_rounds(80))
{
    AUTO(fixture) f;
    char more[64];
    int64_t chunk = 1 + (int64_t)sp_prng_below(prng, 400);
    int dp = 1 + prng_below(prng, 4);
    snprintf(more, sizeof more, ", 'chunk_tokens': %d", (int)chunk);
    fixture_init(&f, "chunkflow", more, dp, 2000, prng);
    fixture_pack(&f);
    assert_every_token_once(&f);
    static span spans[MOST_PACKS];
    size_t count = spans_of(&f.packing.forward, spans);
    size_t longs = 0, dependent = 0;
    for (size_t i = 0; i < f.batch.count; i++) {
        longs += f.tokens[i] > chunk;
        dependent += f.tokens[i] > chunk ? (size_t)((f.tokens[i] + chunk - 1) / chunk) : 0;
    }
    assert_int_equal(count, longs + first_fit(&f, chunk));
    assert_int_equal(f.packing.forward.count, dependent + first_fit(&f, chunk));
    for (size_t m = 0; m < count; m++) {
        for (size_t k = 0; k < spans[m].count; k++) {
            const sp_pack *pack = &f.packing.forward.packs[spans[m].first + k];
            assert_true(pack->tokens <= chunk);
            if (spans[m].count > 1) {
                assert_int_equal(pack->slice_count, 1);
                assert_true(k + 1 == spans[m].count || pack->tokens == chunk);
            }
        }
    }
}

// Chunks of every long sample, from its plan: recomputed as the paper says.
typedef struct expectation {
    int64_t chunk, retained;
} expectation;

// Section 4.2: with N chunks of which K keep their activations, all but the last K run forward a
// second time, just before their backward; the first backward of a sample follows its last forward.
static sp_status check_order(void *context, const sp_step_view *view, sp_error *err)
{
    const expectation *e = context;
    const sp_packing *packing = view->plan->packing;
    int64_t again = 0;
    for (size_t i = 0; i < packing->batch->count; i++) {
        int64_t chunks = (packing->batch->tokens[i] + e->chunk - 1) / e->chunk;
        again += chunks > e->retained ? chunks - e->retained : 0;
    }
    const sp_layout *layout = &view->plan->layout;
    for (int r = 0; r < layout->pp; r++) {
        int64_t recomputed = 0;
        for (int d = 0; d < layout->dp; d++) {
            const sp_stage_plan *stage = sp_plan_stage(view->plan, d, r);
            int64_t forwards[MOST_SAMPLES] = {0};
            for (size_t a = 0; a < stage->count; a++) {
                sp_action action = stage->actions[a];
                bool back = action.kind == SP_ACTION_B;
                const sp_pack_list *list = back ? &packing->backward : &packing->forward;
                const sp_pack *pack = &list->packs[action.pack];
                const sp_slice *slice = &list->slices[pack->first_slice];
                if (action.kind == SP_ACTION_F) {
                    forwards[slice->sample] += slice->tokens;
                } else if (back) {
                    assert_int_equal(forwards[slice->sample],
                                     packing->batch->tokens[slice->sample]);
                } else {
                    assert_int_equal(action.kind, SP_ACTION_R);
                    assert_int_equal(stage->actions[a + 1].kind, SP_ACTION_B);
                    recomputed++;
                }
            }
        }
        assert_int_equal(recomputed, again);
    }
    return SP_OK;
}

TEST(chunks_are_recomputed_as_published)
{
    for (int64_t retained = 1; retained <= 8; retained *= 2) {
        expectation e = {.chunk = 256, .retained = retained};
        const sp_evaluate_options options = {
            .engine = {.verify = true}, .observer = check_order, .observer_context = &e};
        const char *text = json_text(
            "%s'cluster': 'h800-8', 'parallel': {'pp': 2, 'dp': 3}, 'schedule': "
            "{'retained_chunks': %d}, 'strategy': {'kind': 'chunkflow', 'chunk_tokens': 256}, "
            "'workload': {'lengths': [2000, 10, 1200, 256, 257, 90, 700, 100, 30, 1, 512], "
            "'samples_per_batch': 40, 'batches': 2}}",
            TINY_MODEL, (int)retained);
        SCENARIO_RUN(r, text, &options);
        assert_string_equal(r.result.schedule, "chunkflow");
        assert_true(r.result.lossless);
        assert_int_equal(r.result.batches[0].facts.computed_tokens,
                         r.result.batches[0].facts.tokens);
    }
}

// The rows of "packed", each in equal slices but for one token, or in slices of one length and a
// rest.
TEST(slices_are_uniform)
{
    sp_prng prng = prng_seeded(19);
    for (int round = 0; round < test_rounds(80); round++) {
        AUTO(fixture) f, rows;
        char more[64] = "";
        int64_t slice = sp_prng_below(&prng, 2) == 0 ? 0 : 1 + (int64_t)sp_prng_below(&prng, 300);
        int dp = 1 + prng_below(&prng, 4);
        if (slice > 0) {
            snprintf(more, sizeof more, ", 'slice_tokens': %d", (int)slice);
        }
        sp_prng same = prng;
        fixture_init(&f, "slimpipe", more, dp, 1500, &prng);
        fixture_init(&rows, "packed", "", dp, 1500, &same);
        int64_t slices = 1 + (int64_t)sp_prng_below(&prng, 5);
        f.scenario.schedule.slices = (int)slices;
        fixture_pack(&rows);
        bool short_row = false;
        for (size_t k = 0; k < rows.packing.forward.count; k++) {
            short_row = short_row || rows.packing.forward.packs[k].tokens < slices;
        }
        if (slice == 0 && short_row) {
            must_fail_with(
                sp_strategy_pack(sp_strategy_find("slimpipe"), &f.input, &f.packing, ERR),
                SP_ERR_INFEASIBLE, "");
            f.packing = (sp_packing){0};
        } else {
            static span spans[MOST_PACKS];
            fixture_pack(&f);
            // One slice a row is the row, which runs backward as it is.
            if (f.packing.backward.count > 0) {
                assert_every_token_once(&f);
            }
            size_t count = spans_of(&f.packing.forward, spans);
            assert_int_equal(count, rows.packing.forward.count);
            for (size_t m = 0; m < count; m++) {
                int64_t row = rows.packing.forward.packs[m].tokens;
                int64_t sum = 0;
                for (size_t k = 0; k < spans[m].count; k++) {
                    int64_t tokens = f.packing.forward.packs[spans[m].first + k].tokens;
                    bool last = k + 1 == spans[m].count;
                    sum += tokens;
                    assert_true(slice > 0 ? tokens == slice || (last && tokens < slice)
                                          : tokens == row / slices || tokens == row / slices + 1);
                }
                assert_int_equal(sum, row);
                assert_int_equal(spans[m].count, slice > 0 ? (row + slice - 1) / slice : slices);
            }
        }
    }
}

static double busiest_s(const fixture *f)
{
    double busy_s[8] = {0.0};
    double most_s = 0.0;
    for (size_t k = 0; k < f->packing.forward.count; k++) {
        const sp_pack *pack = &f->packing.forward.packs[k];
        busy_s[pack->dp_first] +=
            sp_cost_model_pack_s((sp_cost_model *)&f->cost, &f->packing.forward, pack);
        most_s = fmax(most_s, busy_s[pack->dp_first]);
    }
    return most_s;
}

// Over many batches the busiest rank is less busy than with rows dealt in turn.
TEST(rows_are_dealt_by_time)
{
    sp_prng prng = prng_seeded(31);
    double dealt_s = 0.0, in_turn_s = 0.0;
    for (int round = 0; round < test_rounds(40); round++) {
        AUTO(fixture) f;
        fixture_init(&f, "slimpipe", ", 'slice_tokens': 100", 4, 30000, &prng);
        fixture_pack(&f);
        dealt_s += busiest_s(&f);
        for (size_t k = 0; k < f.packing.forward.count; k++) {
            f.packing.forward.packs[k].dp_first = f.packing.forward.packs[k].microbatch % 4;
        }
        in_turn_s += busiest_s(&f);
    }
    assert_true(dealt_s < in_turn_s);
}

static int64_t peak_of(const char *offload, const char *exchange)
{
    const char *text = json_text(
        "{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "
        "'cluster': 'h800-8', 'parallel': {'pp': 4}, 'memory': {'offload_ratio': %s}, "
        "'schedule': {'exchange': %s}, 'strategy': {'kind': 'slimpipe', 'slice_tokens': 512}, "
        "'workload': {'lengths': [9000, 2000, 700], 'samples_per_batch': 9}}",
        offload, exchange);
    SCENARIO_RUN(r, text, &run_verified);
    return r.result.peak_bytes;
}

// Attention that another rank computes holds nothing there; what is offloaded stays offloaded.
TEST(exchange_leaves_memory)
{
    assert_int_equal(peak_of("0.0", "false"), peak_of("0.0", "true"));
    assert_true(peak_of("0.9", "true") < peak_of("0.0", "true"));
}

// ---- the order of its own ----

static void order_scenario(char *text, const char *strategy, const char *schedule)
{
    put_json(text,
             "%s'cluster': 'h800-8', 'parallel': {'pp': 2}, 'strategy': {'kind': '%s'}, "
             "'schedule': {%s}, 'workload': {'lengths': [90, 2000, 700], 'samples_per_batch': 9}}",
             TINY_MODEL, strategy, schedule);
}

static const char *const own_order[] = {"chunkflow", "slimpipe"};

TEST(strategies_bring_their_order)
{
    for (size_t i = 0; i < sizeof own_order / sizeof own_order[0]; i++) {
        const char *strategy = own_order[i];
        const char *stated = json_text("'kind': '%s'", strategy);
        const char *const settings[] = {"", "'kind': '1f1b'", stated};
        sp_status expected[] = {SP_OK, SP_ERR_CONTENT, SP_OK};
        for (int k = 0; k < 3; k++) {
            char text[RUN_TEXT] = "";
            AUTO(scenario_run) r;
            order_scenario(text, strategy, settings[k]);
            assert_int_equal(run_text(text, &run_verified, &r, ERR), expected[k]);
            if (expected[k] == SP_OK) {
                assert_string_equal(r.result.schedule, strategy);
            } else {
                assert_non_null(
                    strstr(ERR->message[0], "schedule.kind: is \"1f1b\", but strategy"));
            }
            scenario_run_fini(&r);
            // In a comparison the stated order is for the others.
            sp_evaluate_options compared = run_verified;
            compared.compared = true;
            run_good(text, &compared, &r);
            assert_string_equal(r.result.schedule, strategy);
            assert_int_equal(r.scenario.schedule.kind,
                             k == 2 ? r.scenario.schedule.kind : SP_SCHEDULE_1F1B);
        }
    }
}

TEST(order_asks_for_its_layout)
{
    AUTO(scenario_run) r;
    const char *text =
        json_text("{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "
                  "'cluster': 'h800-8', 'parallel': {'pp': 2, 'chunks_per_rank': 2}, 'strategy': "
                  "{'kind': 'chunkflow'}, 'workload': {'uniform': 64}}");
    must_fail_with(run_text(text, &run_verified, &r, ERR), SP_ERR_CONTENT,
                   "\"chunkflow\" runs one chunk per rank");
}

// The resolved document names the order that runs, and means the same when it is read.
TEST(resolved_order_is_read_again)
{
    for (size_t i = 0; i < sizeof own_order / sizeof own_order[0]; i++) {
        char text[RUN_TEXT] = "";
        AUTO(sp_scenario) scenario, again;
        order_scenario(text, own_order[i], "");
        must_succeed(run_read(text, &scenario, ERR));
        must_succeed(sp_strategy_resolve(&scenario, false, ERR));
        must_succeed(sp_strategy_resolve(&scenario, false, ERR));
        json_auto_t *root = json_deep_copy(scenario.resolved);
        must_succeed(sp_scenario_from_json(root, "again", NULL, 0, &again, ERR));
        must_succeed(sp_strategy_resolve(&again, false, ERR));
        assert_true(json_equal(again.resolved, scenario.resolved));
        assert_string_equal(sp_schedule_names[again.schedule.kind], own_order[i]);
        assert_int_equal(again.schedule.slices, scenario.schedule.slices);
    }
}
