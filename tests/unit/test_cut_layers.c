// parallel.stage_layers "auto": against every cut, every neighbour of the one that is chosen, equal
// shares and nothing stated, as simulated; closed forms of the time that it goes by; and the memory
// limit.
#include "sim/schedule/schedule.h"
#include "solver/choices/cut_layers.h"
#include "solver/evaluate/evaluate.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { TEXT = 1024, MOST_STAGES = 8 };

// ---- loads ----

typedef struct allowance {
    const sp_layout *layout;
    int most; // layers of rank 0
} allowance;

static bool rank_0_is_small(void *context, int pp_rank, const int *stage_layers)
{
    const allowance *a = context;
    int held = 0;
    for (int c = 0; c < a->layout->chunks; c++) {
        held += stage_layers[sp_layout_vstage(a->layout, 0, c)];
    }
    return pp_rank > 0 || held <= a->most;
}

// The least possible largest load of a rank, by trying every split of the layers over ranks.
static double best_load(const double *beside, int ranks, int layers, int most_of_first)
{
    double best = 1e9;
    for (int n = ranks == 1 ? layers : 0; n <= layers && n <= most_of_first; n++) {
        double load = beside[0] + n;
        double rest = ranks > 1 ? best_load(beside + 1, ranks - 1, layers - n, layers) : 0.0;
        best = fmin(best, fmax(load, rest));
    }
    return best;
}

static double largest_load(const sp_layout *layout, const double *beside, const int *layers)
{
    double most = 0.0;
    for (int r = 0; r < layout->pp; r++) {
        double load = beside[r];
        for (int c = 0; c < layout->chunks; c++) {
            load += layers[sp_layout_vstage(layout, r, c)];
        }
        most = fmax(most, load);
    }
    return most;
}

TEST_ROUNDS(the_largest_load_is_the_least_possible, 5, 400)
{
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 2 + prng_below(prng, 3), .dp = 1};
    layout.chunks = 1 + prng_below(prng, 2);
    layout.placement = layout.chunks == 2 && round % 2 == 0 ? SP_PLACE_V : (sp_placement)0;
    int count = 1 + prng_below(prng, 12);
    double first = 3.0 * sp_prng_uniform(prng);
    double last = 3.0 * sp_prng_uniform(prng);
    double beside[MOST_STAGES] = {first};
    int layers[MOST_STAGES];
    int pp_rank, chunk, sum = 0;
    sp_layout_locate(&layout, sp_layout_vstages(&layout) - 1, &pp_rank, &chunk);
    beside[pp_rank] += last;
    bool limited = round % 3 == 0;
    allowance small = {.layout = &layout, .most = limited ? prng_below(prng, 3) : count};
    assert_true(sp_layout_level(&layout, count, first, last, limited ? rank_0_is_small : NULL,
                                &small, layers));
    for (int s = 0; s < sp_layout_vstages(&layout); s++) {
        sum += layers[s];
    }
    assert_int_equal(sum, count);
    assert_within(largest_load(&layout, beside, layers),
                  best_load(beside, layout.pp, count, small.most), 1e-9);
}

// ---- loads of layers that differ ----

typedef struct unlike {
    const sp_layout *layout;
    const double *layer; // [count]
    int count;
    double first, last;
} unlike;

static double most_of_cut(const unlike *u, const int *layers)
{
    double load[MOST_STAGES] = {0.0};
    double most = 0.0;
    int at = 0;
    for (int s = 0; s < sp_layout_vstages(u->layout); s++) {
        int pp_rank, chunk;
        sp_layout_locate(u->layout, s, &pp_rank, &chunk);
        for (int i = 0; i < layers[s]; i++) {
            load[pp_rank] += u->layer[at++];
        }
        load[pp_rank] += s == 0 ? u->first : 0.0;
        load[pp_rank] += s == sp_layout_vstages(u->layout) - 1 ? u->last : 0.0;
    }
    for (int r = 0; r < u->layout->pp; r++) {
        most = fmax(most, load[r]);
    }
    return most;
}

// Over all cuts, the layers of the stages before `s` as they are.
static double least_of_cuts(const unlike *u, sp_layout_fits *fits, void *context, int s, int left,
                            int *layers)
{
    double best = HUGE_VAL;
    if (s == sp_layout_vstages(u->layout) - 1) {
        bool fit = true;
        layers[s] = left;
        for (int r = 0; fit && r < u->layout->pp; r++) {
            fit = fits(context, r, layers);
        }
        return fit ? most_of_cut(u, layers) : best;
    }
    for (layers[s] = 0; layers[s] <= left; layers[s]++) {
        best = fmin(best, least_of_cuts(u, fits, context, s + 1, left - layers[s], layers));
    }
    return best;
}

// The layers of rank 0 where all layers are as the mean: with several chunks moves begin there.
static int share_of_rank_0(const unlike *u)
{
    int layers[MOST_STAGES];
    int share = 0;
    double mean = 0.0;
    for (int i = 0; i < u->count; i++) {
        mean += u->layer[i] / u->count;
    }
    sp_layout_level(u->layout, u->count, u->first / mean, u->last / mean, NULL, NULL, layers);
    for (int c = 0; c < u->layout->chunks; c++) {
        share += layers[sp_layout_vstage(u->layout, 0, c)];
    }
    return share;
}

// Dense layers in front and routed ones behind, or kinds in any order; few ranks, of one chunk.
// The shares of ranks with two chunks are no ranges: theirs are moved layer by layer, which mostly
// finds the least, and a cut that fits where one layer less on a rank does.
static void level_unlike(int chunks, double most_over)
{
    sp_prng prng = prng_seeded(31);
    double worst = 1.0;
    int found = 0;
    for (int round = 0; round < 300; round++) {
        sp_layout layout = {.tp = 1, .cp = 1, .pp = 2 + prng_below(&prng, chunks == 1 ? 4 : 2)};
        layout.dp = 1;
        layout.chunks = chunks;
        layout.placement = chunks == 2 && round % 2 == 0 ? SP_PLACE_V : (sp_placement)0;
        int count = 1 + prng_below(&prng, 12);
        double kind[3];
        double layer[12];
        for (int k = 0; k < 3; k++) {
            kind[k] = 0.1 + 3.0 * sp_prng_uniform(&prng);
        }
        int dense = prng_below(&prng, 5);
        for (int i = 0; i < count; i++) {
            layer[i] = kind[round % 3 == 0 ? prng_below(&prng, 3) : i >= dense];
        }
        const unlike u = {&layout, layer, count, 2.0 * sp_prng_uniform(&prng),
                          3.0 * sp_prng_uniform(&prng)};
        bool limited = round % 4 == 0;
        allowance small = {.layout = &layout, .most = count};
        if (limited && chunks == 1) {
            small.most = prng_below(&prng, 3);
        } else if (limited && share_of_rank_0(&u) > 0) {
            small.most = share_of_rank_0(&u) - 1;
        }
        int layers[MOST_STAGES];
        int tried[MOST_STAGES];
        int sum = 0;
        assert_true(sp_layout_level_unlike(&layout, layer, count, u.first, u.last,
                                           limited ? rank_0_is_small : NULL, &small, layers));
        for (int s = 0; s < sp_layout_vstages(&layout); s++) {
            assert_true(layers[s] >= 0);
            sum += layers[s];
        }
        assert_int_equal(sum, count);
        assert_true(rank_0_is_small(&small, 0, layers));
        double least = least_of_cuts(&u, rank_0_is_small, &small, 0, count, tried);
        assert_true(most_of_cut(&u, layers) >= least * (1.0 - 1e-9));
        worst = fmax(worst, most_of_cut(&u, layers) / least);
        found += most_of_cut(&u, layers) <= least * (1.0 + 1e-9);
    }
    print_message("%d of 300 the least, %.3f times it at most\n", found, worst);
    assert_true(worst <= most_over);
    assert_true(found >= (chunks > 1 ? 225 : 300));
}

TEST_CALL(unlike_layers_have_the_least_largest_load, level_unlike(1, 1.0 + 1e-9))
TEST_CALL(unlike_layers_of_two_chunks_are_nearly_level, level_unlike(2, 1.2))

// Ranks of one chunk, each of its own room. A rank without layers takes as much as is counted for
// none.
typedef struct rooms {
    const double *bytes; // [layers]
    double of_none;
    double room[MOST_STAGES];
    int asked;
} rooms;

static bool has_room(void *context, int pp_rank, const int *stage_layers)
{
    rooms *r = context;
    int at = 0;
    double taken = stage_layers[pp_rank] == 0 ? r->of_none : 0.0;
    for (int s = 0; s < pp_rank; s++) {
        at += stage_layers[s];
    }
    for (int i = 0; i < stage_layers[pp_rank]; i++) {
        taken += r->bytes[at + i];
    }
    r->asked++;
    return taken <= r->room[pp_rank];
}

TEST(ranges_of_unlike_layers_fit_their_ranks)
{
    sp_prng prng = prng_seeded(37);
    int told = 0;
    int limiting = 0;
    for (int round = 0; round < 400; round++) {
        sp_layout layout = {.tp = 1, .cp = 1, .pp = 2 + prng_below(&prng, 3), .dp = 1, .chunks = 1};
        int count = 2 + prng_below(&prng, 11);
        double layer[12], bytes[12];
        double sum = 0.0;
        for (int i = 0; i < count; i++) {
            layer[i] = 0.1 + sp_prng_uniform(&prng);
            bytes[i] = 0.1 + sp_prng_uniform(&prng);
            sum += bytes[i];
        }
        rooms r = {.bytes = bytes, .of_none = sp_prng_uniform(&prng)};
        rooms wide = r;
        for (int i = 0; i < layout.pp; i++) {
            r.room[i] = sum / layout.pp * (0.5 + 1.5 * sp_prng_uniform(&prng));
            wide.room[i] = sum + 1.0;
        }
        const unlike u = {&layout, layer, count, sp_prng_uniform(&prng), sp_prng_uniform(&prng)};
        int layers[MOST_STAGES];
        int tried[MOST_STAGES];
        bool found =
            sp_layout_level_unlike(&layout, layer, count, u.first, u.last, has_room, &r, layers);
        double least = least_of_cuts(&u, has_room, &r, 0, count, tried);
        assert_int_equal(found, isfinite(least));
        told += !found;
        if (found) {
            assert_within(most_of_cut(&u, layers), least, 1e-9);
            limiting += least > least_of_cuts(&u, has_room, &wide, 0, count, tried) * (1.0 + 1e-9);
            for (int i = 0; i < layout.pp; i++) {
                assert_true(has_room(&r, i, layers));
            }
        }
    }
    print_message("%d without a cut, %d limited\n", told, limiting);
    assert_true(told > 0 && limiting > 0);
}

// For each end of a range: once when it fits, and once for an empty one; and once for each begin
// that does not fit; in each of two passes.
TEST(unlike_layers_are_seldom_asked_to_fit)
{
    enum { LAYERS = 120 };
    sp_layout layout = {.tp = 1, .cp = 1, .pp = MOST_STAGES, .dp = 1, .chunks = 1};
    double layer[LAYERS], bytes[LAYERS];
    int layers[MOST_STAGES];
    for (int i = 0; i < LAYERS; i++) {
        layer[i] = i < 12 ? 1.0 : 2.0;
        bytes[i] = i < 12 ? 1.0 : 5.0;
    }
    for (int tight = 0; tight < 2; tight++) {
        rooms r = {.bytes = bytes};
        for (int i = 0; i < MOST_STAGES; i++) {
            r.room[i] = tight ? 75.0 : 1000.0;
        }
        assert_true(sp_layout_level_unlike(&layout, layer, LAYERS, 0.0, 0.0, has_room, &r, layers));
        assert_true(r.asked <= 2 * 3 * MOST_STAGES * (LAYERS + 1));
    }
}

TEST(unlike_layers_without_room_are_told)
{
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    allowance small = {.layout = &layout, .most = 3};
    const double layer[] = {1.0, 2.0, 1.0, 2.0};
    int layers[1];
    assert_true(
        sp_layout_level_unlike(&layout, layer, 3, 0.0, 0.0, rank_0_is_small, &small, layers));
    assert_false(
        sp_layout_level_unlike(&layout, layer, 4, 0.0, 0.0, rank_0_is_small, &small, layers));
}

TEST(layers_without_room_are_told)
{
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    allowance small = {.layout = &layout, .most = 3};
    int layers[1];
    assert_true(sp_layout_level(&layout, 3, 0.0, 0.0, rank_0_is_small, &small, layers));
    assert_false(sp_layout_level(&layout, 4, 0.0, 0.0, rank_0_is_small, &small, layers));
}

// ---- the time that a cut is judged by ----

enum { ROWS = 9 };

static double time_of(const sp_layout *layout, const char *kind, const int *layers)
{
    sp_i_cut_pack packs[ROWS];
    sp_packing packing;
    sp_batch batch;
    sp_plan plan;
    sp_i_cut_clock clock = {.layout = layout, .packs = packs, .count = ROWS};
    sp_schedule_spec spec = {0};
    for (int k = 0; k < ROWS; k++) {
        packs[k] = (sp_i_cut_pack){0};
        packs[k].ns[SP_I_CUT_LAYER][SP_I_CUT_F] = 10.0;
        packs[k].ns[SP_I_CUT_LAYER][SP_I_CUT_B] = 20.0;
    }
    if (kind != NULL) {
        while (strcmp(sp_schedule_names[spec.kind], kind) != 0) {
            spec.kind++;
        }
        must_succeed(sp_packing_uniform_sliced(&packing, &batch, 1, ROWS, 1, ERR));
        sp_plan_init(&plan, layout, &packing);
        must_succeed(sp_schedule_generate(&spec, NULL, "test", &plan, ERR));
        clock.plan = &plan;
    }
    sp_i_cut_clock_init(&clock);
    double ns = sp_i_cut_clock_ns(&clock, layers);
    sp_i_cut_clock_fini(&clock);
    if (kind != NULL) {
        sp_plan_fini(&plan);
        sp_packing_fini(&packing);
        sp_batch_fini(&batch);
    }
    return ns;
}

// m + p - 1 times forward and backward of a stage, in any of the orders (facts of GPipe and 1F1B);
// interleaved with v chunks of them each a v-th: the bubble is a v-th of that.
TEST(equal_stages_take_the_published_times)
{
    static const int ones[MOST_STAGES] = {1, 1, 1, 1, 1, 1, 1, 1};
    sp_layout layout = {.tp = 1, .cp = 1, .pp = 3, .dp = 1, .chunks = 1};
    assert_within(time_of(&layout, "gpipe", ones), 30.0 * (ROWS + 2), 1e-9);
    assert_within(time_of(&layout, "1f1b", ones), 30.0 * (ROWS + 2), 1e-9);
    assert_within(time_of(&layout, NULL, ones), 30.0 * (ROWS + 2), 1e-9);
    layout.chunks = 2;
    assert_within(time_of(&layout, "interleaved", ones), 30.0 * (2 * ROWS + 2), 1e-9);
}

// A stage that is slower than all others together sets the pace: the others work before its first
// forward and after its last backward alone.
TEST(a_slow_stage_sets_the_pace)
{
    for (int slow = 0; slow < 3; slow++) {
        int layers[3] = {1, 1, 1};
        layers[slow] = 9;
        sp_layout layout = {.tp = 1, .cp = 1, .pp = 3, .dp = 1, .chunks = 1};
        double expected = 30.0 * 9.0 * ROWS + 10.0 * slow + 20.0 * slow;
        assert_within(time_of(&layout, "1f1b", layers), expected, 1e-9);
    }
}

// ---- whole scenarios ----

typedef struct outcome {
    double ms;
    bool oom, tight;
    int layers[MOST_STAGES]; // of as many virtual stages at most
} outcome;

static outcome simulate(const char *format, const char *stage_layers)
{
    char text[4 * TEXT];
    snprintf(text, sizeof text, format, stage_layers);
    json_auto_t *root = json_document(text);
    AUTO(sp_scenario) scenario;
    AUTO(sp_batches) batches;
    AUTO(sp_result) result;
    outcome found = {0};
    const sp_evaluate_options options = {.no_bounds = true, .effort_percent = 25};
    must_succeed_for(text, sp_scenario_from_json(root, "test", NULL, 0, &scenario, ERR));
    must_succeed_for(text, sp_evaluate_batches(&scenario, &batches, ERR));
    must_succeed_for(text, sp_evaluate(&scenario, &batches, &options, &result, ERR));
    found.ms = sp_result_iteration_ms(&result);
    found.oom = sp_result_is_oom(&result);
    found.tight = sp_result_fits(&result) == SP_FITS_TIGHT;
    int vstages = sp_layout_vstages(&result.layout);
    for (int s = 0; s < vstages && s < MOST_STAGES; s++) {
        found.layers[s] =
            result.stage_layers != NULL ? result.stage_layers[s] : scenario.model.layers / vstages;
    }
    return found;
}

static outcome simulate_cut(const char *format, const int *layers, int stages)
{
    char list[TEXT];
    size_t used = 0;
    for (int s = 0; s < stages; s++) {
        used += (size_t)snprintf(list + used, TEXT - used, "%s%d", s > 0 ? "," : "[", layers[s]);
    }
    snprintf(list + used, TEXT - used, "]");
    return simulate(format, list);
}

// No cut with one layer elsewhere is more than a share faster.
static void compare_with_neighbours(const char *format, int stages, double share)
{
    outcome chosen = simulate(format, "'auto'");
    for (int i = 0; i < stages * stages; i++) {
        int from = i / stages;
        int to = i % stages;
        if (from != to && chosen.layers[from] > 0) {
            int layers[MOST_STAGES];
            memcpy(layers, chosen.layers, sizeof layers);
            layers[from]--;
            layers[to]++;
            outcome other = simulate_cut(format, layers, stages);
            must_hold(other.oom || other.ms * (1.0 + share) >= chosen.ms,
                      "%s: a layer from stage %d to %d: %.3f ms, chosen %.3f", format, from, to,
                      other.ms, chosen.ms);
        }
    }
}

#define UNIFORM_8B(more)                                                                     \
    "{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': 'ours', 'memory': {'recompute': " \
    "'full', 'limit_gib': 500}, 'workload': {'uniform': 8192, 'samples_per_batch': 16}, "    \
    "'parallel': {'stage_layers': %s, " more "}}"

TEST(no_cut_of_equal_rows_is_faster)
{
    static const char format[] =
        "{'model': {'layers': 10, 'hidden': 4096, 'ffn': 14336, 'heads': 32, 'vocab': 128256}, "
        "'cluster': 'h100-8', 'stack': 'ours', 'memory': {'limit_gib': 500}, 'workload': "
        "{'uniform': 4096, 'samples_per_batch': 12}, 'parallel': {'pp': 3, 'stage_layers': %s}}";
    outcome chosen = simulate(format, "'auto'");
    for (int a = 0; a <= 10; a++) {
        for (int b = 0; a + b <= 10; b++) {
            outcome other = simulate_cut(format, (const int[]){a, b, 10 - a - b}, 3);
            assert_true(chosen.ms <= other.ms * 1.01);
        }
    }
}

TEST_CALL(one_chunk, compare_with_neighbours(UNIFORM_8B("'pp': 4"), 4, 0.01))
TEST_CALL(two_chunks, compare_with_neighbours(UNIFORM_8B("'pp': 4, 'chunks_per_rank': 2"), 8, 0.01))
// Its order is found by the times of the stages, and not again for every cut that is tried.
TEST_CALL(a_v,
          compare_with_neighbours(UNIFORM_8B("'pp': 4}, 'schedule': {'kind': 'zb-v'"), 8, 0.02))

// Ranks that share experts take the slowest row of each round, so that the longest stage counts for
// more than unlike rows of one rank tell.
TEST_CALL(rounds_of_experts,
          compare_with_neighbours(
              "{'model': 'glm-4.5-air', 'cluster': 'h100-8', 'workload': {'lengths': 'lognormal', "
              "'context': 4096, 'tokens_per_batch': 4194304}, 'memory': {'limit_gib': 500}, "
              "'parallel': {'tp': 2, 'pp': 8, 'ep': 16, 'dp': 16, 'stage_layers': %s}}",
              8, 0.01))

#define LONGMIX_8B(kind, samples, more)                                                      \
    "{'model': 'llama-3-8b', 'cluster': 'h100-8', 'nodes': 8, 'stack': 'ours', 'workload': " \
    "{'lengths': 'longmix', 'context': 32768, 'samples_per_batch': " samples                 \
    "}, 'strategy': {'kind': "                                                               \
    "'" kind "'}, 'parallel': {'stage_layers': %s, " more "}}"

// The best cuts that moving layers one by one found with the simulated step.
TEST_OF_VALUES(as_good_as_the_best_cuts_found)
{
    static const struct {
        const char *format;
        int stages, layers[MOST_STAGES];
    } cases[] = {
        {LONGMIX_8B("slimpack", "512", "'pp': 4"), 4, {9, 9, 8, 6}},
        {LONGMIX_8B("slimpack", "512", "'pp': 8"), 8, {4, 5, 5, 5, 4, 4, 4, 1}},
        {LONGMIX_8B("packed", "1024", "'pp': 4}, 'memory': {'recompute': 'full'"), 4, {9, 9, 9, 5}},
        {LONGMIX_8B("packed", "1024", "'pp': 8}, 'memory': {'recompute': 'full'"),
         8,
         {4, 5, 5, 6, 4, 4, 3, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        outcome best = simulate_cut(cases[i].format, cases[i].layers, cases[i].stages);
        outcome chosen = simulate(cases[i].format, "'auto'");
        must_hold(!best.oom && !chosen.oom && chosen.ms <= 1.01 * best.ms, "%s: %.3f ms, best %.3f",
                  cases[i].format, chosen.ms, best.ms);
    }
}

// Nothing lies beside the layers that is worth moving one for.
TEST(equal_shares_where_they_are_no_slower)
{
    static const char format[] =
        "{'model': {'layers': 12, 'hidden': 4096, 'ffn': 14336, 'heads': 32, 'vocab': 256}, "
        "'cluster': 'h100-8', 'workload': {'uniform': 4096, 'samples_per_batch': 32}, 'parallel': "
        "{'pp': 4, 'stage_layers': %s}}";
    outcome chosen = simulate(format, "'auto'");
    for (int s = 0; s < 4; s++) {
        assert_int_equal(chosen.layers[s], 3);
    }
}

// Under less and less memory the cut fits wherever the even one, or any that has fewer layers on
// the first rank, does.
TEST(a_cut_fits_where_one_does)
{
    static const char format[] =
        "{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': 'ours', 'memory': {'limit_gib': "
        "%d}, 'workload': {'uniform': 8192, 'samples_per_batch': 16}, 'parallel': {'tp': 2, 'pp': "
        "4, 'stage_layers': %%s}}";
    int other_cuts = 0;
    int free_cut[4] = {0};
    for (int gib = 200; gib >= 40; gib -= 4) {
        char text[TEXT];
        snprintf(text, sizeof text, format, gib);
        outcome chosen = simulate(text, "'auto'");
        if (gib == 200) {
            memcpy(free_cut, chosen.layers, sizeof free_cut);
        }
        other_cuts += memcmp(free_cut, chosen.layers, sizeof free_cut) != 0;
        bool any = !simulate_cut(text, (const int[]){8, 8, 8, 8}, 4).oom ||
                   !simulate_cut(text, (const int[]){7, 8, 9, 8}, 4).oom;
        must_hold(!any || !chosen.oom, "%d GiB: [%d, %d, %d, %d] is out of memory", gib,
                  chosen.layers[0], chosen.layers[1], chosen.layers[2], chosen.layers[3]);
    }
    assert_true(other_cuts > 0);
}

// Dense layers before routed ones, which have far more parameters, on ranks of two chunks: a cut
// with many of the dense on rank 0 needs the least memory of all that are tried here.
static void fits_in_chunks(double gib)
{
    static const char format[] =
        "{'model': {'layers': 60, 'hidden': 2048, 'ffn': 1408, 'heads': 16, 'vocab': 32000, "
        "'experts': 32, 'experts_per_token': 4, 'layer_kinds': [{'layers': 8, 'ffn': 12288, "
        "'experts': 0}, {'layers': 52}]}, 'cluster': 'h100-8', 'schedule': {'kind': "
        "'interleaved'}, 'memory': {'recompute': 'full', 'limit_gib': %g}, 'strategy': {'kind': "
        "'packed'}, 'workload': {'uniform': 4096, 'samples_per_batch': 32}, 'parallel': {'pp': 8, "
        "'chunks_per_rank': 2, 'stage_layers': %%s}}";
    static const int cut[] = {8, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4};
    char text[TEXT];
    snprintf(text, sizeof text, format, gib);
    assert_false(simulate_cut(text, cut, 16).oom);
    assert_false(simulate(text, "'auto'").oom);
}

// The cut by loads alone does not fit.
TEST_CALL(unlike_layers_in_chunks_are_moved_until_they_fit, fits_in_chunks(34.0))
TEST_CALL(unlike_layers_in_chunks_are_moved_until_more_of_them_fit, fits_in_chunks(35.0))
// Moves for time come behind it, of layers that lie between the stages too.
TEST_CALL(unlike_layers_that_move_along_still_fit, fits_in_chunks(36.0))

// ---- with the strategy ----

// As choices count it: a step that fits tightly is 5 % longer.
static double counted_ms(const outcome *found)
{
    return found->ms * (found->tight ? 1.05 : 1.0);
}

static void assert_no_worse(const char *text, const outcome *chosen, const outcome *other,
                            const char *cut)
{
    must_hold(
        (!chosen->oom || other->oom) && (chosen->oom != other->oom || chosen->oom ||
                                         counted_ms(chosen) <= counted_ms(other) * (1.0 + 1e-9)),
        "%s: \"auto\" %.6f ms%s, %s %.6f ms%s", text, chosen->ms,
        chosen->oom ? ", out of memory" : "", cut, other->ms, other->oom ? ", out of memory" : "");
}

typedef struct way {
    const char *kind, *schedule;
    int chunks; // 0: not stated
} way;

// A scenario with a place for what `parallel` says of the cut.
static void random_scenario(sp_prng *prng, const way *run, int layers, int pp, char *format)
{
    static const char *const recompute[] = {"none", "full"};
    char lengths[TEXT / 2] = "";
    size_t used = 0;
    // Of few samples SlimPack searches for seconds.
    bool searches = strncmp(run->kind, "slimpack", 8) == 0;
    int samples = (searches ? 33 : 4) + prng_below(prng, 40);
    for (int s = 0; s < samples; s++) {
        int tokens = 64 << prng_below(prng, 8);
        used += (size_t)snprintf(lengths + used, sizeof lengths - used, "%s%d", s > 0 ? "," : "",
                                 tokens + prng_below(prng, tokens));
    }
    snprintf(format, TEXT,
             "{'model': {'layers': %d, 'hidden': 2048, 'ffn': 5504, 'heads': 16, 'vocab': %d}, "
             "'cluster': 'h100-8', 'schedule': {'kind': '%s', 'group': 'even'}, 'strategy': "
             "{'kind': '%s'}, "
             "'memory': {'recompute': '%s', 'limit_gib': %d}, 'workload': {'order': 'file', "
             "'context': 16384, 'lengths': [%s]}, 'parallel': {'tp': %d, 'pp': %d, 'dp': %d%%s}}",
             layers, 4000 << prng_below(prng, 7), run->schedule, run->kind,
             recompute[prng_below(prng, 2)], 4 << prng_below(prng, 5), lengths,
             1 << prng_below(prng, 2), pp, 1 + prng_below(prng, 2));
}

static void compare_with_others(const way *run, int rounds)
{
    sp_prng prng = prng_seeded(29);
    int better = 0;
    for (int round = 0; round < test_draws(rounds); round++) {
        int pp = 2 << prng_below(&prng, 2);
        int chunks = run->chunks > 0 ? run->chunks : 1;
        int layers = pp * chunks * (1 + prng_below(&prng, 4));
        char format[TEXT], stated[64], even[TEXT], cut[2 * TEXT];
        random_scenario(&prng, run, layers, pp, format);
        stated[0] = even[0] = '\0';
        if (run->chunks > 0) {
            snprintf(stated, sizeof stated, ", 'chunks_per_rank': %d", run->chunks);
        }
        for (int s = 0, used = 0; s < pp * chunks; s++) {
            used += snprintf(even + used, sizeof even - (size_t)used, "%s%d", s > 0 ? "," : "",
                             layers / pp / chunks);
        }
        outcome nothing = simulate(format, stated);
        snprintf(cut, sizeof cut, "%s, 'stage_layers': [%s]", stated, even);
        outcome equal = simulate(format, cut);
        snprintf(cut, sizeof cut, "%s, 'stage_layers': 'auto'", stated);
        outcome chosen = simulate(format, cut);
        assert_no_worse(format, &chosen, &nothing, "nothing stated");
        assert_no_worse(format, &chosen, &equal, "equal shares");
        better += !chosen.oom && counted_ms(&chosen) < 0.999 * counted_ms(&equal);
    }
    assert_true(better > 0);
}

TEST_CALL(no_worse_packed, compare_with_others(&(const way){"packed", "1f1b", 0}, 60))
TEST_CALL(no_worse_packed_tuned, compare_with_others(&(const way){"packed-tuned", "1f1b", 0}, 30))
TEST_CALL(no_worse_concat, compare_with_others(&(const way){"concat", "gpipe", 0}, 30))
TEST_CALL(no_worse_interleaved, compare_with_others(&(const way){"packed", "interleaved", 2}, 60))
TEST_CALL(no_worse_zb_v, compare_with_others(&(const way){"sorted", "zb-v", 2}, 30))
TEST_CALL(no_worse_sliced_rows, compare_with_others(&(const way){"ffd", "seq1f1b", 0}, 30))
TEST_CALL(no_worse_slimpipe, compare_with_others(&(const way){"slimpipe", "slimpipe", 0}, 30))
TEST_CALL(no_worse_bytescale, compare_with_others(&(const way){"bytescale", "1f1b", 0}, 30))
TEST_CALL(no_worse_slimpack, compare_with_others(&(const way){"slimpack", "packflow", 0}, 4))
TEST_CALL(no_worse_slimpack_zb, compare_with_others(&(const way){"slimpack-zb", "packflow", 0}, 3))
TEST_CALL(no_worse_slimpack_in_chunks,
          compare_with_others(&(const way){"slimpack", "packflow", 3}, 4))

// Three layers that are far lighter than the others come first (as in DeepSeek-V3): of all cuts of
// equal micro-batches over two stages "auto" takes one that none beats.
TEST(kinds_of_layers_count_by_their_own_time)
{
    static const char format[] =
        "{'model': {'layers': 9, 'hidden': 2048, 'ffn': 1024, 'heads': 16, 'vocab': 8000, "
        "'layer_kinds': [{'layers': 3}, {'layers': 6, 'ffn': 16384}]}, 'cluster': 'h100-8', "
        "'memory': {'recompute': 'full'}, 'strategy': {'kind': 'packed'}, "
        "'workload': {'uniform': 8192, 'samples_per_batch': 32}, 'parallel': {'pp': 2%s}}";
    double best_ms = HUGE_VAL;
    int best = 0;
    for (int first = 1; first < 9; first++) {
        const char *cut = json_text(", 'stage_layers': [%d, %d]", first, 9 - first);
        outcome stated = simulate(format, cut);
        best = counted_ms(&stated) < best_ms ? first : best;
        best_ms = fmin(best_ms, counted_ms(&stated));
    }
    outcome chosen = simulate(format, ", 'stage_layers': 'auto'");
    assert_int_equal(best, 6);
    assert_close(counted_ms(&chosen), best_ms, 1e-9);
}
