// Best-fit decreasing and longest-pack-first histogram packing against scans that look at every
// row, and against the least number of rows by exhaustive search.
#include "solver/strategy.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { MOST_SAMPLES = 120, FEW_SAMPLES = 8 };

typedef struct drawn_batch {
    int64_t ids[MOST_SAMPLES], tokens[MOST_SAMPLES];
    sp_batch batch;
} drawn_batch;

// Few distinct lengths make equal packs, many make single ones.
static void draw_batch(sp_prng *prng, size_t most, int64_t context, drawn_batch *d)
{
    d->batch = (sp_batch){.ids = d->ids, .tokens = d->tokens};
    d->batch.count = 1 + (size_t)sp_prng_below(prng, most);
    int64_t longest = sp_prng_below(prng, 2) == 0 ? context : context / 3 + 1;
    int64_t step = 1 + (int64_t)sp_prng_below(prng, (uint64_t)context / 4 + 1);
    for (size_t i = 0; i < d->batch.count; i++) {
        int64_t tokens = 1 + (int64_t)sp_prng_below(prng, (uint64_t)longest);
        d->ids[i] = (int64_t)i;
        d->tokens[i] = tokens < step ? tokens : tokens / step * step;
        d->batch.total_tokens += d->tokens[i];
    }
}

// The lengths of each row, longest first, 0 behind the last.
typedef struct row_set {
    int64_t row[MOST_SAMPLES][MOST_SAMPLES + 1];
    size_t count;
} row_set;

static void pack_rows(const char *kind, int64_t max_per_pack, const sp_batch *batch,
                      int64_t context, row_set *rows)
{
    static sp_scenario scenario;
    scenario.strategy = (sp_strategy_spec){.microbatch_samples = 1, .max_per_pack = max_per_pack};
    scenario.layout = (sp_layout){.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    sp_strategy_input input = {.scenario = &scenario, .batch = batch, .context = context};
    AUTO(sp_packing) packing;
    must_succeed(sp_strategy_pack(sp_strategy_find(kind), &input, &packing, ERR));
    memset(rows, 0, sizeof *rows);
    rows->count = packing.forward.count;
    size_t samples = 0;
    for (size_t k = 0; k < rows->count; k++) {
        const sp_pack *p = &packing.forward.packs[k];
        assert_true(p->tokens <= context);
        samples += p->slice_count;
        for (size_t s = 0; s < p->slice_count; s++) {
            rows->row[k][s] = packing.forward.slices[p->first_slice + s].tokens;
        }
    }
    assert_int_equal(samples, batch->count);
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

static int compare_rows(const void *a, const void *b)
{
    const int64_t *x = a;
    const int64_t *y = b;
    for (size_t i = 0; i <= MOST_SAMPLES; i++) {
        if (x[i] != y[i]) {
            return x[i] > y[i] ? -1 : 1;
        }
    }
    return 0;
}

static void sort_rows(row_set *rows)
{
    qsort(rows->row, rows->count, sizeof rows->row[0], compare_rows);
}

// Each sample by descending length into the row with the least room that suffices; of equal rooms
// into the row that was opened first, or into the one that has had its room for the shortest time.
static void scan_best_fit(const sp_batch *batch, int64_t context, size_t max_per_pack,
                          bool newest_first, row_set *rows)
{
    static int64_t tokens[MOST_SAMPLES], room[MOST_SAMPLES];
    static size_t held[MOST_SAMPLES], since[MOST_SAMPLES];
    memcpy(tokens, batch->tokens, batch->count * sizeof tokens[0]);
    qsort(tokens, batch->count, sizeof tokens[0], descending);
    memset(rows, 0, sizeof *rows);
    for (size_t i = 0; i < batch->count; i++) {
        size_t best = rows->count;
        for (size_t r = 0; r < rows->count; r++) {
            bool fits = room[r] >= tokens[i] && held[r] < max_per_pack;
            bool better = best == rows->count || room[r] < room[best] ||
                          (newest_first && room[r] == room[best] && since[r] > since[best]);
            if (fits && better) {
                best = r;
            }
        }
        if (best == rows->count) {
            room[best] = context;
            held[best] = 0;
            rows->count++;
        }
        rows->row[best][held[best]++] = tokens[i];
        room[best] -= tokens[i];
        since[best] = i;
    }
}

// Any two rows hold more than the context together: fewer than twice the rows that the tokens fill
// when they are laid end to end, one more for each boundary there.
TEST_ROUNDS(bfd_is_best_fit, 41, 300)
{
    static drawn_batch d;
    static row_set rows, scanned;
    int64_t context = 5 + (int64_t)sp_prng_below(prng, 500);
    draw_batch(prng, MOST_SAMPLES, context, &d);
    pack_rows("bfd", 0, &d.batch, context, &rows);
    int64_t filled = (d.batch.total_tokens + context - 1) / context;
    assert_true((int64_t)rows.count >= filled && (int64_t)rows.count <= 2 * filled - 1);
    scan_best_fit(&d.batch, context, MOST_SAMPLES, false, &scanned);
    assert_int_equal(rows.count, scanned.count);
    for (size_t r = 0; r < rows.count; r++) {
        assert_int_equal(compare_rows(rows.row[r], scanned.row[r]), 0);
    }
}

// Packs of equal lengths together come to the same rows as one sample after the other.
TEST_ROUNDS(lpfhp_is_best_fit, 43, 600)
{
    static drawn_batch d;
    static row_set rows, scanned;
    int64_t context = 5 + (int64_t)sp_prng_below(prng, 500);
    int64_t limit = (int64_t)sp_prng_below(prng, 7);
    draw_batch(prng, MOST_SAMPLES, context, &d);
    pack_rows("lpfhp", limit, &d.batch, context, &rows);
    for (size_t r = 1; r < rows.count; r++) {
        assert_true(rows.row[r][0] <= rows.row[r - 1][0]);
    }
    scan_best_fit(&d.batch, context, limit > 0 ? (size_t)limit : MOST_SAMPLES, true, &scanned);
    sort_rows(&rows);
    sort_rows(&scanned);
    assert_int_equal(rows.count, scanned.count);
    for (size_t r = 0; r < rows.count; r++) {
        assert_int_equal(compare_rows(rows.row[r], scanned.row[r]), 0);
    }
}

// The order of the batch decides only which sample of a length goes where; without a limit both
// strategies need equally many rows.
TEST_ROUNDS(rows_follow_from_the_lengths, 47, 200)
{
    static drawn_batch d;
    static row_set rows[2];
    static const char *const kinds[] = {"bfd", "lpfhp"};
    int64_t context = 5 + (int64_t)sp_prng_below(prng, 500);
    draw_batch(prng, MOST_SAMPLES, context, &d);
    size_t counts[2];
    for (int k = 0; k < 2; k++) {
        pack_rows(kinds[k], 0, &d.batch, context, &rows[0]);
        for (size_t i = d.batch.count; i > 1; i--) {
            size_t other = (size_t)sp_prng_below(prng, i);
            int64_t tokens = d.tokens[i - 1];
            d.tokens[i - 1] = d.tokens[other];
            d.tokens[other] = tokens;
        }
        pack_rows(kinds[k], 0, &d.batch, context, &rows[1]);
        assert_memory_equal(&rows[0], &rows[1], sizeof rows[0]);
        counts[k] = rows[0].count;
    }
    assert_int_equal(counts[0], counts[1]);
}

typedef struct search {
    int64_t room[FEW_SAMPLES + 1];
    size_t held[FEW_SAMPLES + 1];
    int64_t context;
    size_t max_per_pack;
} search;

static size_t least_rows(search *s, const int64_t *tokens, size_t n, size_t rows, size_t best)
{
    if (rows >= best) {
        return best;
    }
    if (n == 0) {
        return rows;
    }
    for (size_t r = 0; r <= rows; r++) {
        if (r == rows) {
            s->room[r] = s->context;
            s->held[r] = 0;
        }
        if (s->room[r] >= tokens[0] && s->held[r] < s->max_per_pack) {
            s->room[r] -= tokens[0];
            s->held[r]++;
            best = least_rows(s, tokens + 1, n - 1, r == rows ? rows + 1 : rows, best);
            s->room[r] += tokens[0];
            s->held[r]--;
        }
    }
    return best;
}

// At most 3/2 of the least number of rows (Simchi-Levi, "New worst-case results for the bin-packing
// problem", 1994). With at most two samples to a row best fit is optimal: all rows with room for a
// sample have room for any later one, so that it does not matter which of them it joins, and
// leaving it alone helps no later one.
TEST_ROUNDS(tiny_cases_against_optimum, 53, 400)
{
    static drawn_batch d;
    static row_set rows;
    int64_t context = 20 + (int64_t)sp_prng_below(prng, 100);
    draw_batch(prng, FEW_SAMPLES, context, &d);
    for (size_t limit = 1; limit <= FEW_SAMPLES; limit++) {
        search s = {.context = context, .max_per_pack = limit};
        size_t optimum = least_rows(&s, d.tokens, d.batch.count, 0, d.batch.count + 1);
        pack_rows("lpfhp", (int64_t)limit, &d.batch, context, &rows);
        assert_true(rows.count >= optimum);
        assert_true(limit > 2 || rows.count == optimum);
        if (limit == FEW_SAMPLES) {
            assert_true(2 * rows.count <= 3 * optimum);
            pack_rows("bfd", 0, &d.batch, context, &rows);
            assert_true(rows.count >= optimum && 2 * rows.count <= 3 * optimum);
        }
    }
}

// A row that is found full of samples is closed though it has room.
TEST(limit_of_samples)
{
    static row_set rows;
    int64_t ids[] = {0, 1, 2, 3, 4, 5};
    int64_t tokens[] = {10, 50, 10, 10, 10, 10};
    sp_batch batch = {.ids = ids, .tokens = tokens, .count = 6, .total_tokens = 100};
    pack_rows("lpfhp", 0, &batch, 100, &rows);
    assert_int_equal(rows.count, 1);
    pack_rows("lpfhp", 4, &batch, 100, &rows);
    assert_int_equal(rows.count, 2);
    assert_int_equal(rows.row[0][3], 10);
    assert_int_equal(rows.row[1][1], 10);
    pack_rows("lpfhp", 1, &batch, 100, &rows);
    assert_int_equal(rows.count, 6);
}

#define TINY_RUN                                                                         \
    TINY_MODEL "'parallel': {'pp': 2, 'dp': 2}, 'workload': {'lengths': "                \
               "[600, 1, 300, 300, 80, 80, 80, 80, 1024, 20], 'samples_per_batch': 10, " \
               "'context': 1024, 'batches': 2}, 'strategy': "

// strategy.max_per_pack from the scenario to the packs of a checked plan, and back in what was
// resolved. 2565 tokens fill three rows; ten samples need four of at most three.
TEST(samples_per_pack_of_a_scenario)
{
    static const struct {
        const char *strategy;
        int64_t packs, given;
    } cases[] = {{"{'kind': 'bfd'}}", 3, 0},
                 {"{'kind': 'lpfhp'}}", 3, 0},
                 {"{'kind': 'lpfhp', 'max_per_pack': 3}}", 4, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = json_text("%s%s", TINY_RUN, cases[i].strategy);
        SCENARIO_RUN(r, text, &run_verified);
        assert_true(r.result.lossless);
        assert_int_equal(r.result.batches[0].facts.microbatches, cases[i].packs);
        const json_t *strategy = json_object_get(r.scenario.resolved, "strategy");
        const json_t *given = json_object_get(strategy, "max_per_pack");
        assert_int_equal(json_integer_value(given), cases[i].given);
    }
    sp_scenario scenario;
    const char *text = json_text("%s%s", TINY_RUN, "{'max_per_pack': 0}}");
    must_fail_with(run_read(text, &scenario, ERR), SP_ERR_CONTENT, "strategy.max_per_pack");
}
