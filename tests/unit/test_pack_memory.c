// What packs hold and the room that leaves: tables against the costs that they come from, and plans
// that were found to fit against the simulated memory.
#include "solver/slimpack/slimpack_search.h"
#include "solver/step/step.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

#define SMALL_MODEL \
    "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "

#define GIB ((double)(INT64_C(1) << 30))

typedef struct memory_case {
    sp_scenario scenario;
    sp_cost_model cost;
} memory_case;

static void case_init(const char *more, memory_case *c)
{
    const char *text =
        json_text("%s'cluster': 'h800-8', 'workload': {'uniform': 64}, 'schedule': {'kind': "
                  "'packflow'}, 'strategy': {'kind': 'slimpack'}, %s}",
                  SMALL_MODEL, more);
    must_succeed_for(text, run_read(text, &c->scenario, ERR));
    must_succeed(sp_scenario_cost_model(&c->scenario, &c->cost, ERR));
}

static void case_fini(memory_case *c)
{
    sp_cost_model_fini(&c->cost);
    sp_scenario_fini(&c->scenario);
}

static void add_pack(sp_packing *packing, int32_t sample, int64_t tokens, int dp_first,
                     int dp_count)
{
    pack_sample(&packing->forward, dp_first, dp_count, sample, tokens);
}

static void fullest_of(const sp_packing *packing, int cp, sp_fullest_pack *fullest)
{
    sp_fullest_packs(packing, cp, fullest);
}

// Every pack is within the tables: so many bytes for each of its tokens, and so many while it runs.
// The fullest needs all of it.
TEST(tables_cover_every_pack)
{
    static memory_case c;
    sp_prng prng = prng_seeded(149);
    for (int chunks = 1; chunks <= 2; chunks++) {
        case_init(chunks == 1 ? "'parallel': {'pp': 2}"
                              : "'parallel': {'pp': 2, 'chunks_per_rank': 2}",
                  &c);
        for (int round = 0; round < 50; round++) {
            int64_t tokens[20];
            size_t count = 1 + (size_t)sp_prng_below(&prng, 20);
            sp_batch batch = {.ids = tokens, .tokens = tokens, .count = count};
            AUTO(sp_packing) packing;
            AUTO(sp_step_costs) costs;
            AUTO(sp_pack_memory) memory;
            sp_fullest_pack fullest;
            int64_t longest = 0;
            sp_packing_init(&packing, &batch, 1);
            for (size_t k = 0; k < count; k++) {
                tokens[k] = 1 + (int64_t)sp_prng_below(&prng, round < 25 ? 30000 : 100);
                longest = tokens[k] > longest ? tokens[k] : longest;
                add_pack(&packing, (int32_t)k, tokens[k], 0, 1);
            }
            must_succeed(sp_cost_model_build(&c.cost, &packing, &costs, ERR));
            sp_pack_memory_init(&memory, &c.scenario.layout, &costs);
            fullest_of(&packing, 1, &fullest);
            assert_int_equal(fullest.tokens, longest);
            assert_int_equal(fullest.summed_tokens, 0);
            sp_pack_memory_measure(&memory, &c.cost, &fullest);
            for (int v = 0; v < sp_layout_vstages(&c.scenario.layout); v++) {
                double least_gap = 1.0;
                for (size_t k = 0; k < count; k++) {
                    const sp_unit_bytes *unit =
                        &costs.side[0].unit[sp_step_costs_units(&costs, 0, k) +
                                            (size_t)costs.stages[v].cost_class];
                    double held = (double)sp_bytes_total(&unit->held);
                    double most = memory.whole[v] * (double)tokens[k];
                    assert_true(held <= most * (1.0 + 1e-12));
                    least_gap = most - held < least_gap * most ? (most - held) / most : least_gap;
                    assert_true(memory.split[v] >= memory.whole[v]);
                    assert_true((double)sp_bytes_total(&unit->forward) <= memory.running[v]);
                    assert_true((double)sp_bytes_total(&unit->backward) <= memory.running[v]);
                }
                assert_true(least_gap < 1e-9);
                assert_true(memory.sums[v] == 0.0);
            }
        }
        case_fini(&c);
    }
}

// Where routing is forced unevenly a pack holds the rows of the fullest rank: no pack of a rank
// holds more than the tables say, and one holds more than they say of even routing, so that a limit
// that even rows of all packs just meet is not enough.
TEST(tables_hold_the_fullest_rank_of_experts)
{
    static const char text[] =
        "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000, 'experts': "
        "16, 'experts_per_token': 2, 'expert_imbalance': %s}, 'cluster': 'h800-8', 'parallel': "
        "{'pp': 2, 'dp': 4, 'ep': 4}, 'workload': {'uniform': 64}, 'schedule': {'kind': "
        "'packflow'}, 'strategy': {'kind': 'slimpack'}}";
    enum { PACKS = 24, DP = 4, TOKENS = 3000 };
    int64_t tokens[PACKS];
    sp_batch batch = {.ids = tokens, .tokens = tokens, .count = PACKS};
    AUTO(sp_packing) packing;
    sp_packing_init(&packing, &batch, DP);
    for (int k = 0; k < PACKS; k++) {
        tokens[k] = TOKENS;
        add_pack(&packing, k, TOKENS, k % DP, 1);
    }
    int64_t room[2][2], token_bytes[2][2];
    double held[2] = {0.0, 0.0}; // of all packs of a rank, on the first stage
    for (int uneven = 0; uneven < 2; uneven++) {
        static memory_case c;
        sp_step_costs costs;
        sp_pack_memory memory;
        sp_fullest_pack fullest[DP];
        must_succeed(run_read(json_text(text, uneven ? "1.0" : "'exact'"), &c.scenario, ERR));
        must_succeed(sp_scenario_cost_model(&c.scenario, &c.cost, ERR));
        must_succeed(sp_cost_model_build(&c.cost, &packing, &costs, ERR));
        sp_pack_memory_init(&memory, &c.scenario.layout, &costs);
        fullest_of(&packing, 1, fullest);
        assert_int_equal(fullest[0].packs, PACKS / DP);
        sp_pack_memory_measure(&memory, &c.cost, &fullest[0]);
        for (size_t k = 0; k < PACKS; k++) {
            for (int v = 0; v < 2; v++) {
                const sp_unit_bytes *unit = &costs.side[0].unit[sp_step_costs_units(&costs, 0, k) +
                                                                (size_t)costs.stages[v].cost_class];
                double bytes = (double)sp_bytes_total(&unit->held);
                assert_true(bytes <= memory.whole[v] * TOKENS * (1.0 + 1e-12));
                assert_true((double)sp_bytes_total(&unit->forward) <= memory.running[v]);
                assert_true((double)sp_bytes_total(&unit->backward) <= memory.running[v]);
                held[uneven] += v == 0 && k % DP == 0 ? bytes : 0.0;
            }
        }
        int64_t again[2];
        const sp_pack_room of = {
            .token_bytes = token_bytes[uneven], .room_bytes = room[uneven], .again_bytes = again};
        sp_pack_memory_room(&memory, &c.scenario.layout, false, INT64_C(1) << 33, &of);
        sp_pack_memory_fini(&memory);
        sp_step_costs_fini(&costs);
        case_fini(&c);
    }
    assert_true(held[1] > 1.02 * held[0]);
    double needed = (double)token_bytes[0][0] * TOKENS * PACKS / DP;
    assert_true(held[0] <= needed && held[1] > needed);
    assert_true((double)token_bytes[1][0] * TOKENS * PACKS / DP >= held[1]);
    assert_true(room[1][0] <= room[0][0]);
}

// Two merged ranks with a pack of twice the tokens ask for as much as one alone.
TEST(merged_ranks_share_their_tokens)
{
    sp_fullest_pack fullest[3];
    int64_t tokens[2] = {8192, 4096};
    sp_batch batch = {.ids = tokens, .tokens = tokens, .count = 2};
    AUTO(sp_packing) packing;
    sp_packing_init(&packing, &batch, 3);
    add_pack(&packing, 0, 8192, 0, 2);
    add_pack(&packing, 1, 4096, 2, 1);
    fullest_of(&packing, 1, fullest);
    for (int d = 0; d < 3; d++) {
        assert_int_equal(fullest[d].tokens, 4096);
        assert_int_equal(fullest[d].dp_count, d < 2 ? 2 : 1);
    }
    // A sample of its own: half of 8192 tokens each, and all keys and values of it.
    assert_int_equal(fullest[0].seen_tokens, 8192);
    assert_true(fullest[0].pairs_per_token == 8192.0);
    assert_true(fullest[2].pairs_per_token == 4096.0);
}

// Sample 0 is cut into three slices, sample 1 into two, sample 2 not at all. The backward of the
// last slice of each begins the sums of its earlier ones; the backward of each of these ends its
// own. By hand: after pack 0 sample 0's 100 + 200 tokens wait, in pack 1 sample 1's 50 besides, and
// so on.
TEST(sums_wait_from_the_last_slice_to_their_own)
{
    static const struct {
        int32_t sample;
        int64_t begin, tokens;
    } slices[] = {{0, 300, 10}, {1, 50, 20}, {0, 100, 200}, {1, 0, 50}, {0, 0, 100}, {2, 0, 500}};
    sp_fullest_pack fullest;
    int64_t tokens[3] = {310, 70, 500};
    sp_batch batch = {.ids = tokens, .tokens = tokens, .count = 3};
    AUTO(sp_packing) packing;
    sp_packing_init(&packing, &batch, 1);
    for (size_t k = 0; k < sizeof slices / sizeof slices[0]; k++) {
        sp_slice slice = {.sample = slices[k].sample,
                          .begin = slices[k].begin,
                          .tokens = slices[k].tokens,
                          .computed_tokens = slices[k].tokens};
        sp_pack_list_begin(&packing.backward, 0, 1);
        sp_pack_list_add(&packing.backward, slice, true);
    }
    fullest_of(&packing, 1, &fullest);
    assert_int_equal(fullest.summed_tokens, 100 + 200 + 50);
    assert_int_equal(fullest.waiting_tokens, 0);
    assert_int_equal(fullest.tokens, 500);
    // Up to the end of sample 2's only slice.
    assert_int_equal(fullest.seen_tokens, 500);
}

// limit = states + what a pack needs as it runs + sums of all chunks + room, and never less than
// nothing.
TEST(room_is_what_the_rest_leaves)
{
    double whole[4] = {10.0, 20.5, 30.0, 40.0};
    double split[4] = {11.0, 21.0, 31.0, 41.0};
    double running[4] = {100.0, 200.0, 300.0, 400.0};
    double sums[4] = {1.0, 2.0, 4.0, 8.0};
    double again[4] = {7.0, 50.5, 0.0, 3.0};
    double states[2] = {1000.0, 2000.0};
    const sp_pack_memory memory = {.whole = whole,
                                   .split = split,
                                   .running = running,
                                   .sums = sums,
                                   .again = again,
                                   .states = states};
    // A V: rank 0 has virtual stages 0 and 3, rank 1 has 1 and 2.
    const sp_layout layout = {
        .tp = 1, .cp = 1, .pp = 2, .dp = 1, .chunks = 2, .placement = SP_PLACE_V};
    int64_t token_bytes[4], room_bytes[2], again_bytes[2];
    const sp_pack_room room = {token_bytes, room_bytes, again_bytes};
    sp_pack_memory_room(&memory, &layout, false, 5000, &room);
    assert_int_equal(token_bytes[0], 10);
    assert_int_equal(token_bytes[1], 21);
    assert_int_equal(room_bytes[0], 5000 - 1000 - 400 - 9);
    assert_int_equal(room_bytes[1], 5000 - 2000 - 300 - 6);
    assert_int_equal(again_bytes[0], 7);
    assert_int_equal(again_bytes[1], 51);
    sp_pack_memory_room(&memory, &layout, true, 2100, &room);
    assert_int_equal(token_bytes[3], 41);
    assert_int_equal(room_bytes[0], 691);
    assert_int_equal(room_bytes[1], 0);
}

static sp_status note_fit(void *context, const sp_step_view *view, sp_error *err)
{
    int64_t *peak = context;
    for (size_t r = 0; r < view->memory->rank_count; r++) {
        int64_t bytes = sp_bytes_total(&view->memory->ranks[r].peak);
        *peak = bytes > *peak ? bytes : *peak;
    }
    return SP_OK;
}

// Of the effort of a search: what it says of memory holds for any.
enum { EFFORT_PERCENT = 5 };

// The largest peak of the step.
static int64_t peak_of(const char *text)
{
    int64_t peak = 0;
    const sp_evaluate_options options = {.observer = note_fit,
                                         .observer_context = &peak,
                                         .no_bounds = true,
                                         .effort_percent = EFFORT_PERCENT};
    SCENARIO_RUN(r, text, &options);
    return peak;
}

typedef struct verdict {
    bool said; // by the search: its packs fit
    bool fits; // when they are run
} verdict;

// `runs`: with a packing, which is run.
static verdict search(const char *text, bool asymmetric, bool split, bool runs)
{
    AUTO(sp_scenario) settled;
    AUTO(sp_batches) batches;
    must_succeed(run_read(text, &settled, ERR));
    must_succeed(sp_evaluate_batches(&settled, &batches, ERR));
    settled.strategy.effort_percent = EFFORT_PERCENT;
    must_succeed(sp_strategy_resolve(&settled, false, ERR));
    AUTO(sp_cost_model) cost;
    must_succeed(sp_scenario_cost_model(&settled, &cost, ERR));
    const sp_strategy_input input = {.scenario = &settled,
                                     .batch = &batches.batch[0],
                                     .context = batches.context,
                                     .cost = &cost};
    sp_i_slimpack_options options = sp_i_slimpack_options_of(&input, asymmetric, split);
    sp_packflow_outcome said;
    sp_packflow_outcome run = {0};
    AUTO(sp_packing) packing = {0};
    must_succeed(sp_i_slimpack_search(&input, &options, NULL, &said, ERR));
    if (runs) {
        must_succeed(sp_i_slimpack_search(&input, &options, &packing, &run, ERR));
    }
    return (verdict){said.lacking_bytes == 0, run.lacking_bytes == 0};
}

static void put_lengths(sp_prng *prng, int count, uint64_t longest, char *text)
{
    put_json(text, "'workload': {'order': 'file', 'lengths': [");
    for (int k = 0; k < count; k++) {
        uint64_t most = sp_prng_below(prng, 6) == 0 ? longest : longest / 10;
        put_json(text, "%s%d", k > 0 ? ", " : "", 1 + (int)sp_prng_below(prng, most));
    }
    put_json(text, "]}}");
}

static const struct {
    const char *kind, *parallel;
    bool asymmetric, split;
} searches[] = {
    {"slimpack-symmetric", "'pp': 4", false, false},
    {"slimpack", "'pp': 4, 'dp': 2", true, false},
    {"slimpack-zb", "'pp': 4, 'chunks_per_rank': 1", true, true},
    {"slimpack-zb", "'pp': 4, 'chunks_per_rank': 2", true, true},
};

enum { SEARCHES = sizeof searches / sizeof searches[0] };

// Limits from nothing to plenty: what the search says fits is within the limit when it is run.
TEST(what_fits_stays_within_the_limit)
{
    sp_prng prng = prng_seeded(151);
    int fitting = 0, searched = 0;
    for (int i = 0; i < SEARCHES; i++) {
        for (int round = test_is_full() ? 0 : i % 3; round < 7; round += test_is_full() ? 1 : 3) {
            char text[RUN_TEXT] = "";
            put_json(text,
                     "{'model': {'layers': 8, 'hidden': 2048, 'ffn': 5504, 'heads': 16, 'vocab': "
                     "32000}, 'cluster': 'h800-8', 'profile': 'h800-burst', 'parallel': {%s}, "
                     "'memory': {'limit_gib': %g}, 'strategy': {'kind': '%s'}, ",
                     searches[i].parallel, 4.5 + 2.5 * round, searches[i].kind);
            put_lengths(&prng, 4 + prng_below(&prng, 20), 40000, text);
            verdict v = search(text, searches[i].asymmetric, searches[i].split, false);
            int64_t limit = (int64_t)((4.5 + 2.5 * round) * GIB);
            int64_t peak = peak_of(text);
            must_hold(!v.said || peak <= limit, "%s: %lld bytes", text, (long long)peak);
            fitting += v.said;
            searched++;
        }
    }
    int least = test_is_full() ? 5 : 2;
    assert_in_range(fitting, least, searched - least);
}

static const char *drawn(sp_prng *prng, const char *const *from, uint64_t count)
{
    return from[sp_prng_below(prng, count)];
}

// A scenario up to its limit.
static void put_any(sp_prng *prng, int which, char *text)
{
    static const char *const models[] = {
        "{'layers': 8, 'hidden': 1024, 'ffn': 2816, 'heads': 16, 'vocab': 128000}",
        "{'layers': 8, 'hidden': 1024, 'ffn': 2816, 'heads': 16, 'kv_heads': 2, 'vocab': 1000}",
        "{'layers': 8, 'hidden': 512, 'ffn': 2048, 'heads': 8, 'vocab': 32000, 'activation': "
        "'gelu', 'tied_embeddings': true}"};
    static const char *const widths[] = {"",
                                         ", 'tp': 2",
                                         ", 'cp': 2",
                                         ", 'zero': 3",
                                         ", 'vocab_parallel': true",
                                         ", 'tp': 4, 'zero': 2"};
    static const char *const recomputes[] = {"none", "activation", "partial-fc1", "attention",
                                             "full"};
    static const char *const stacks[] = {"ours", "megatron-core-2025", "nanotron-2025", "cuda",
                                         "reference"};
    put_json(text,
             "{'model': %s, 'cluster': 'h800-8', 'profile': 'h800-burst', 'parallel': {%s%s}, "
             "'stack': '%s', 'strategy': {'kind': '%s'}, 'memory': {'recompute': '%s', "
             "'offload_ratio': %s, ",
             drawn(prng, models, 3), searches[which].parallel, drawn(prng, widths, 6),
             drawn(prng, stacks, 5), searches[which].kind, drawn(prng, recomputes, 5),
             sp_prng_below(prng, 4) == 0 ? "0.4" : "0");
}

// Limits below what each step takes without any, in all layouts and stacks and with packs from a
// few tokens to some thousands.
TEST_OF_VALUES(what_fits_stays_within_any_limit)
{
    sp_prng prng = prng_seeded(157);
    int fitting = 0, rounds = 0;
    for (; rounds < test_draws(50); rounds++) {
        char scenario[RUN_TEXT] = "";
        char lengths[RUN_TEXT] = "";
        int which = prng_below(&prng, SEARCHES);
        put_any(&prng, which, scenario);
        put_lengths(&prng, 2 + prng_below(&prng, 40), (uint64_t)300 << sp_prng_below(&prng, 8),
                    lengths);
        char text[RUN_TEXT] = "";
        put_json(text, "%s'limit_gib': 4000}, %s", scenario, lengths);
        double peak_gib = (double)peak_of(text) / GIB;
        text[0] = '\0';
        put_json(text, "%s'limit_gib': %.9f}, %s", scenario,
                 peak_gib * (0.7 + 0.3 * sp_prng_uniform(&prng)), lengths);
        verdict v = search(text, searches[which].asymmetric, searches[which].split, true);
        must_hold(!v.said || v.fits, "%s", text);
        fitting += v.said;
    }
    assert_in_range(fitting, rounds / 10, rounds - rounds / 10);
}
