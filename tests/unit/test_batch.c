// Batches: what is drawn, in which order, and what is said about the rest.
#include "sim/workload/batch.h"
#include "tests/support/test_main.h"

enum { COUNT = 1000 };

// Lengths 1 to COUNT, scattered; the length tells the position and the other way round.
static int64_t scattered(size_t position)
{
    return 1 + (int64_t)(position * 377 % COUNT);
}

static sp_lengths *list_of(size_t count)
{
    static int64_t tokens[COUNT];
    static sp_lengths lengths;
    assert_true(count <= COUNT);
    for (size_t i = 0; i < count; i++) {
        tokens[i] = scattered(i);
    }
    lengths = (sp_lengths){.tokens = tokens, .count = count, .capacity = count};
    return &lengths;
}

static sp_batches make(const sp_workload_spec *spec)
{
    sp_batches batches;
    must_succeed(sp_batches_make(spec, &batches, ERR));
    assert_int_equal(batches.count, spec->batches);
    for (int i = 0; i < batches.count; i++) {
        int64_t total = 0;
        for (size_t j = 0; j < batches.batch[i].count; j++) {
            total += batches.batch[i].tokens[j];
        }
        assert_int_equal(batches.batch[i].total_tokens, total);
        assert_true(batches.batch[i].count > 0);
    }
    return batches;
}

static void expect_error(const sp_workload_spec *spec, sp_status status, const char *message)
{
    sp_batches batches;
    sp_error_clear(ERR);
    assert_int_equal(sp_batches_make(spec, &batches, ERR), status);
    assert_string_equal(ERR->message[0], message);
    assert_null(batches.batch);
}

static bool same_samples(const sp_batches *a, const sp_batches *b)
{
    for (int i = 0; i < a->count; i++) {
        if (a->batch[i].count != b->batch[i].count ||
            memcmp(a->batch[i].ids, b->batch[i].ids, a->batch[i].count * sizeof(int64_t)) != 0) {
            return false;
        }
    }
    return true;
}

TEST(every_sample_once_per_pass)
{
    // 30 batches of 100 are three passes over 1,000.
    sp_workload_spec spec = {
        .lengths = list_of(COUNT), .samples_per_batch = 100, .batches = 30, .seed = 4};
    AUTO(sp_batches) batches = make(&spec);
    assert_true(batches.wrapped);
    assert_int_equal(batches.context, COUNT);
    for (int pass = 0; pass < 3; pass++) {
        int seen[COUNT] = {0};
        int in_place = 0;
        for (int i = 0; i < COUNT; i++) {
            const sp_batch *batch = &batches.batch[10 * pass + i / 100];
            assert_int_equal(batch->count, 100);
            int64_t id = batch->ids[i % 100];
            assert_int_equal(batch->tokens[i % 100], scattered((size_t)id));
            seen[id]++;
            in_place += id == i || (pass > 0 && id == batches.batch[i / 100].ids[i % 100]);
        }
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(seen[i], 1);
        }
        // A random permutation keeps one position on the mean (here two are compared).
        assert_true(in_place < 12);
    }
}

TEST(seed_alone_decides)
{
    sp_workload_spec spec = {
        .lengths = list_of(COUNT), .samples_per_batch = 64, .batches = 20, .seed = 7};
    AUTO(sp_batches) first = make(&spec);
    AUTO(sp_batches) again = make(&spec);
    assert_true(same_samples(&first, &again));
    sp_batches_fini(&again);
    // Fewer batches are the beginning of more.
    spec.batches = 3;
    again = make(&spec);
    assert_true(same_samples(&again, &first));
    assert_false(again.wrapped);
    sp_batches_fini(&again);
    spec.seed = 8;
    again = make(&spec);
    assert_false(same_samples(&again, &first));
}

// All 24 orders of four samples, each about equally often: chi-square with 23 degrees of freedom is
// below 49.7 with probability 0.999; the seeds are fixed.
TEST(shuffle_is_fair)
{
    enum { ROUNDS = 24000 };
    int orders[256] = {0};
    sp_workload_spec spec = {.lengths = list_of(4), .samples_per_batch = 4, .batches = 2};
    for (spec.seed = 0; spec.seed < ROUNDS; spec.seed++) {
        AUTO(sp_batches) batches = make(&spec);
        for (int pass = 0; pass < 2; pass++) {
            int code = 0;
            for (int i = 0; i < 4; i++) {
                code = code * 4 + (int)batches.batch[pass].ids[i];
            }
            orders[code]++;
        }
    }
    double chi = 0;
    int found = 0;
    const double expected = 2. * ROUNDS / 24;
    for (int i = 0; i < 256; i++) {
        found += orders[i] > 0;
        chi += orders[i] > 0 ? pow(orders[i] - expected, 2) / expected : 0;
    }
    assert_int_equal(found, 24);
    assert_true(chi < 49.7);
}

TEST(file_order_repeats)
{
    sp_workload_spec spec = {
        .lengths = list_of(10), .samples_per_batch = 4, .batches = 5, .order = SP_ORDER_FILE};
    AUTO(sp_batches) batches = make(&spec);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(batches.batch[i / 4].ids[i % 4], i % 10);
        assert_int_equal(batches.batch[i / 4].tokens[i % 4], scattered((size_t)i % 10));
    }
    assert_true(batches.wrapped);
    sp_batches_fini(&batches);
    // Exactly one pass is no second one, though one more sample is looked at.
    spec.samples_per_batch = 5;
    spec.batches = 2;
    batches = make(&spec);
    assert_false(batches.wrapped);
}

TEST(tokens_fill_batches)
{
    int64_t tokens[] = {3, 3, 4, 11, 10, 1, 9, 1};
    sp_lengths lengths = {.tokens = tokens, .count = 8, .capacity = 8};
    sp_workload_spec spec = {
        .lengths = &lengths, .tokens_per_batch = 10, .batches = 5, .order = SP_ORDER_FILE};
    AUTO(sp_batches) batches = make(&spec);
    // 3+3+4 | 11, alone over the limit | 10 | 1+9 | 1+3+3 of the next pass
    const size_t counts[] = {3, 1, 1, 2, 3};
    const int64_t totals[] = {10, 11, 10, 10, 7};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(batches.batch[i].count, counts[i]);
        assert_int_equal(batches.batch[i].total_tokens, totals[i]);
    }
    assert_true(batches.wrapped);
    assert_int_equal(batches.context, 11);
    sp_batches_fini(&batches);
    spec.batches = 4;
    batches = make(&spec);
    assert_false(batches.wrapped);
}

TEST(tokens_fill_shuffled_batches)
{
    sp_workload_spec spec = {
        .lengths = list_of(COUNT), .tokens_per_batch = 4096, .batches = 50, .seed = 2};
    AUTO(sp_batches) batches = make(&spec);
    for (int i = 0; i < batches.count; i++) {
        assert_true(batches.batch[i].total_tokens <= 4096);
        if (i > 0) {
            int64_t next = batches.batch[i].tokens[0];
            assert_true(batches.batch[i - 1].total_tokens + next > 4096);
        }
    }
}

enum { LISTED = 400 };

// Rows that hold documents one after the other: the batch is the longest beginning of the list that
// they hold, counted anew for each document.
TEST(rows_fill_batches)
{
    enum { ROW = 700, ROWS = 9, BATCHES = 6 };
    static int64_t tokens[LISTED];
    sp_prng prng = prng_seeded(7);
    for (int i = 0; i < LISTED; i++) {
        tokens[i] = 1 + (int64_t)sp_prng_below(&prng, ROW);
    }
    sp_lengths lengths = {.tokens = tokens, .count = LISTED, .capacity = LISTED};
    sp_workload_spec spec = {.lengths = &lengths,
                             .context = ROW,
                             .rows_per_batch = ROWS,
                             .batches = BATCHES,
                             .order = SP_ORDER_FILE};
    AUTO(sp_batches) batches = make(&spec);
    int next = 0;
    for (int b = 0; b < BATCHES; b++) {
        int count = 0;
        int rows = 0;
        int64_t used = ROW;
        while (rows < ROWS || used + tokens[next + count] <= ROW) {
            bool begins = used + tokens[next + count] > ROW;
            rows += begins;
            used = tokens[next + count] + (begins ? 0 : used);
            count++;
        }
        assert_int_equal(batches.batch[b].count, count);
        assert_int_equal(batches.batch[b].ids[0], next);
        next += count;
    }
    assert_true(next < LISTED);
    sp_batches_fini(&batches);
    // Without a context a row is as long as the longest document.
    int64_t few[] = {3, 5, 2, 4, 1};
    lengths = (sp_lengths){.tokens = few, .count = 5, .capacity = 5};
    spec.context = 0;
    spec.rows_per_batch = 2;
    spec.batches = 2;
    batches = make(&spec);
    assert_int_equal(batches.batch[0].count, 2); // 3 | 5
    assert_int_equal(batches.batch[1].count, 3); // 2 | 4 + 1
}

static int descending(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a;
    const int64_t right = *(const int64_t *)b;
    return (left < right) - (left > right);
}

// Rows of the first samples by best-fit decreasing, as it is defined: each into the fullest row
// with room.
static int best_fit_rows(const int64_t *tokens, int count, int64_t length)
{
    int64_t sorted[LISTED];
    int64_t room[LISTED];
    int rows = 0;
    memcpy(sorted, tokens, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, descending);
    for (int i = 0; i < count; i++) {
        int best = -1;
        for (int r = 0; r < rows; r++) {
            if (room[r] >= sorted[i] && (best < 0 || room[r] < room[best])) {
                best = r;
            }
        }
        if (best < 0) {
            best = rows++;
            room[best] = length;
        }
        room[best] -= sorted[i];
    }
    return rows;
}

// Of rows by best fit a batch holds what they have room for, and no more: the next document would
// need another. What a batch leaves the next one takes, in the order of the list.
TEST(best_fit_fills_rows_of_batches)
{
    enum { ROW = 700, ROWS = 9, BATCHES = 6 };
    static int64_t tokens[LISTED];
    sp_prng prng = prng_seeded(8);
    for (int i = 0; i < LISTED; i++) {
        tokens[i] = 1 + (int64_t)sp_prng_below(&prng, ROW);
    }
    sp_lengths lengths = {.tokens = tokens, .count = LISTED, .capacity = LISTED};
    sp_workload_spec spec = {.lengths = &lengths,
                             .context = ROW,
                             .rows_per_batch = ROWS,
                             .best_fit = true,
                             .batches = BATCHES,
                             .order = SP_ORDER_FILE};
    AUTO(sp_batches) batches = make(&spec);
    int next = 0;
    for (int b = 0; b < BATCHES; b++) {
        const sp_batch *batch = &batches.batch[b];
        for (size_t i = 0; i < batch->count; i++) {
            assert_int_equal(batch->ids[i], next + (int)i);
            assert_int_equal(batch->tokens[i], tokens[next + (int)i]);
        }
        assert_true(best_fit_rows(&tokens[next], (int)batch->count, ROW) <= ROWS);
        assert_true(best_fit_rows(&tokens[next], (int)batch->count + 1, ROW) > ROWS);
        next += (int)batch->count;
    }
    assert_true(next < LISTED);
    assert_int_equal(batches.left_samples, LISTED - next);
}

// Documents in pieces and drawn ones come in the same order whatever fills the rows, no token is
// lost between batches, and what is left is counted alike.
TEST(best_fit_keeps_the_order_of_what_is_drawn)
{
    enum { ROW = 500, ROWS = 7, BATCHES = 8 };
    static int64_t tokens[LISTED];
    sp_prng prng = prng_seeded(9);
    for (int i = 0; i < LISTED; i++) {
        tokens[i] = 1 + (int64_t)sp_prng_below(&prng, (uint64_t)(3 * ROW));
    }
    sp_lengths lengths = {.tokens = tokens, .count = LISTED, .capacity = LISTED};
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        sp_workload_spec spec = {.lengths = &lengths,
                                 .context = ROW,
                                 .over_length = SP_OVER_SPLIT,
                                 .rows_per_batch = ROWS,
                                 .best_fit = true,
                                 .batches = BATCHES,
                                 .seed = 3,
                                 .order = shuffled ? SP_ORDER_SHUFFLED : SP_ORDER_FILE};
        AUTO(sp_batches) filled = make(&spec);
        int64_t count = 0;
        int64_t sum = 0;
        for (int b = 0; b < BATCHES; b++) {
            count += (int64_t)filled.batch[b].count;
            sum += filled.batch[b].total_tokens;
        }
        // The same samples, one batch of all of them.
        spec.rows_per_batch = 0;
        spec.best_fit = false;
        spec.samples_per_batch = count;
        spec.batches = 1;
        AUTO(sp_batches) all = make(&spec);
        int64_t at = 0;
        for (int b = 0; b < BATCHES; b++) {
            for (size_t i = 0; i < filled.batch[b].count; i++, at++) {
                assert_int_equal(filled.batch[b].ids[i], all.batch[0].ids[at]);
                assert_int_equal(filled.batch[b].tokens[i], all.batch[0].tokens[at]);
                assert_int_equal(filled.batch[b].goes_on[i], all.batch[0].goes_on[at]);
            }
        }
        assert_int_equal(sum, all.batch[0].total_tokens);
        assert_int_equal(filled.left_samples, all.left_samples);
        assert_int_equal(filled.left_tokens, all.left_tokens);
        assert_int_equal(filled.split, all.split);
    }
}

TEST(long_samples_are_dropped)
{
    sp_workload_spec spec = {.lengths = list_of(COUNT),
                             .context = 600,
                             .over_length = SP_OVER_DROP,
                             .samples_per_batch = 100,
                             .batches = 6,
                             .seed = 1};
    AUTO(sp_batches) batches = make(&spec);
    // Lengths are 1 to 1,000: 600 stay, which six batches hold exactly.
    assert_int_equal(batches.dropped, 400);
    assert_int_equal(batches.truncated, 0);
    // 601 to 1,000 of 1 to 1,000.
    assert_int_equal(batches.lost_tokens, 500500 - 180300);
    assert_int_equal(batches.source_tokens, 500500);
    assert_int_equal(batches.context, 600);
    assert_false(batches.wrapped);
    int seen[COUNT + 1] = {0};
    for (int i = 0; i < 600; i++) {
        seen[batches.batch[i / 100].tokens[i % 100]]++;
    }
    for (int i = 1; i <= COUNT; i++) {
        assert_int_equal(seen[i], i <= 600);
    }
}

TEST(long_samples_are_truncated)
{
    sp_workload_spec spec = {.lengths = list_of(COUNT),
                             .context = 600,
                             .over_length = SP_OVER_TRUNCATE,
                             .samples_per_batch = 100,
                             .batches = 10,
                             .seed = 1};
    AUTO(sp_batches) batches = make(&spec);
    assert_int_equal(batches.dropped, 0);
    assert_int_equal(batches.truncated, 400);
    assert_int_equal(batches.lost_tokens, 400 * 401 / 2); // 1 to 400 of each
    assert_int_equal(batches.source_tokens, 500500);
    for (int i = 0; i < COUNT; i++) {
        const sp_batch *batch = &batches.batch[i / 100];
        int64_t whole = scattered((size_t)batch->ids[i % 100]);
        assert_int_equal(batch->tokens[i % 100], whole < 600 ? whole : 600);
    }
}

// Where samples were lost and nobody counted their tokens (older plans), the share is not known.
TEST(share_that_the_context_takes)
{
    const sp_batches all = {.source_tokens = 900};
    const sp_batches some = {.dropped = 1, .lost_tokens = 300, .source_tokens = 900};
    const sp_batches unknown = {.truncated = 1};
    assert_true(sp_batches_over_length_share(&all) == 0.0);
    assert_true(sp_batches_over_length_share(&some) == 1.0 / 3.0);
    assert_true(isnan(sp_batches_over_length_share(&unknown)));
}

TEST(errors_are_named)
{
    int64_t tokens[] = {3, 9, 8};
    sp_lengths lengths = {.tokens = tokens, .count = 3, .capacity = 3};
    sp_lengths empty = {0};
    const sp_workload_spec good = {.lengths = &lengths,
                                   .context = 5,
                                   .over_length = SP_OVER_ERROR,
                                   .samples_per_batch = 2,
                                   .batches = 1,
                                   .source = "a.txt"};
    sp_workload_spec spec = good;
    expect_error(&spec, SP_ERR_CONTENT, "a.txt: sample 1: 9 tokens are more than the context of 5");
    spec.over_length = SP_OVER_DROP;
    spec.context = 2;
    expect_error(&spec, SP_ERR_CONTENT,
                 "a.txt: no sample is left: all 3 are longer than the context of 2");
    spec.lengths = &empty;
    expect_error(&spec, SP_ERR_CONTENT, "a.txt: holds no lengths");
    spec = good;
    spec.uniform_tokens = 4;
    expect_error(&spec, SP_ERR_USAGE, "a.txt: expected one source of lengths, got 2");
    spec.lengths = NULL;
    spec.uniform_tokens = 6;
    expect_error(&spec, SP_ERR_CONTENT,
                 "a.txt: workload.uniform: 6 tokens are more than the context of 5; without "
                 "workload.uniform (or with null) samples are as long as the context");
    spec.uniform_tokens = 0;
    spec.source = NULL;
    expect_error(&spec, SP_ERR_USAGE, "workload: expected one source of lengths, got 0");
    spec = good;
    spec.tokens_per_batch = 5;
    expect_error(&spec, SP_ERR_USAGE,
                 "a.txt: expected one of samples_per_batch, tokens_per_batch and rows_per_batch");
    spec = good;
    spec.batches = 0;
    expect_error(&spec, SP_ERR_USAGE, "a.txt: expected at least 1 batch, got 0");
}

TEST(distributions_are_drawn)
{
    sp_workload_spec spec = {.distribution = sp_distribution_find("prolong"),
                             .context = 2048,
                             .over_length = SP_OVER_DROP,
                             .samples_per_batch = 5000,
                             .batches = 4,
                             .seed = 3,
                             .source = "prolong"};
    AUTO(sp_batches) batches = make(&spec);
    for (int i = 0; i < 20000; i++) {
        assert_int_equal(batches.batch[i / 5000].ids[i % 5000], i);
        assert_in_range(batches.batch[i / 5000].tokens[i % 5000], 575, 2048);
    }
    // 53.4 % of the documents have at most 2,048 tokens: to keep 20,000 about 17,460 are dropped,
    // with a standard deviation of sqrt(20000 * .466) / .534 = 181.
    assert_in_range(batches.dropped, 17460 - 4 * 181, 17460 + 4 * 181);
    assert_true(batches.lost_tokens >= 2049 * batches.dropped);
    int64_t kept = 0;
    for (int i = 0; i < 4; i++) {
        kept += batches.batch[i].total_tokens;
    }
    assert_int_equal(batches.source_tokens, batches.lost_tokens + kept);
    assert_false(batches.wrapped);
    sp_batches again = make(&spec);
    for (int i = 0; i < 4; i++) {
        assert_memory_equal(again.batch[i].tokens, batches.batch[i].tokens, 5000 * sizeof(int64_t));
    }
    sp_batches_fini(&again);
    sp_batches_fini(&batches);

    spec.over_length = SP_OVER_TRUNCATE;
    batches = make(&spec);
    assert_int_equal(batches.dropped, 0);
    assert_in_range(batches.truncated, 9320 - 4 * 71, 9320 + 4 * 71);
}

TEST(distributions_that_do_not_fit_are_refused)
{
    sp_workload_spec spec = {.distribution = sp_distribution_find("prolong"),
                             .context = 575,
                             .over_length = SP_OVER_DROP,
                             .samples_per_batch = 1,
                             .batches = 1,
                             .source = "prolong"};
    expect_error(
        &spec, SP_ERR_CONTENT,
        "prolong: no sample is left: fewer than one in 10000 fits into the context of 575");
    spec.over_length = SP_OVER_ERROR;
    expect_error(&spec, SP_ERR_CONTENT,
                 "prolong: the longest sample: 340149 tokens are more than the context of 575");
    spec.context = 340149;
    AUTO(sp_batches) batches = make(&spec);
    assert_int_equal(batches.context, 340149);
}

TEST(uniform_samples)
{
    sp_workload_spec spec = {.uniform_tokens = 4096, .tokens_per_batch = 16384, .batches = 3};
    AUTO(sp_batches) batches = make(&spec);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(batches.batch[i / 4].ids[i % 4], i);
        assert_int_equal(batches.batch[i / 4].tokens[i % 4], 4096);
    }
    assert_int_equal(batches.context, 4096);
    assert_false(batches.wrapped);
    sp_batches_fini(&batches);
    spec.context = 1024;
    spec.over_length = SP_OVER_TRUNCATE;
    batches = make(&spec);
    assert_int_equal(batches.batch[0].count, 16);
    assert_int_equal(batches.truncated, 48);
}

// Documents one after the other: rows of the context are full but the last, every token is there in
// its order, and only what a row ends in is cut.
TEST_ROUNDS(concatenated_rows_are_full, 181, 300)
{
    enum { MOST = 50 };
    int64_t ids[MOST];
    int64_t tokens[MOST];
    sp_batch batch = {.ids = ids, .tokens = tokens, .count = 1 + sp_prng_below(prng, MOST)};
    int64_t context = 1 + (int64_t)sp_prng_below(prng, 1000);
    for (size_t i = 0; i < batch.count; i++) {
        ids[i] = 100 + (int64_t)i;
        tokens[i] = 1 + (int64_t)sp_prng_below(prng, sp_prng_below(prng, 4) == 0 ? 3000 : 90);
        batch.total_tokens += tokens[i];
    }
    AUTO(sp_batch) cut;
    sp_batch_concatenate(&batch, context, false, &cut);
    assert_int_equal(cut.total_tokens, batch.total_tokens);
    int64_t at = 0;
    size_t sample = 0;
    int64_t left = tokens[0];
    int64_t cut_tokens = 0;
    for (size_t i = 0; i < cut.count; i++) {
        assert_int_equal(cut.ids[i], ids[sample]);
        cut_tokens += i > 0 && cut.ids[i] == cut.ids[i - 1] ? cut.tokens[i] : 0;
        int64_t room = context - at % context;
        assert_int_equal(cut.tokens[i], left < room ? left : room);
        at += cut.tokens[i];
        left -= cut.tokens[i];
        if (left == 0 && sample + 1 < batch.count) {
            left = tokens[++sample];
        }
    }
    assert_int_equal(at, batch.total_tokens);
    assert_int_equal(cut.cut_tokens, cut_tokens);
    assert_int_equal(cut.documents, batch.count);
    sp_batch_fini(&cut);
    sp_batch_concatenate(&batch, context, true, &cut);
    assert_int_equal(cut.count, (batch.total_tokens + context - 1) / context);
    at = 0;
    for (size_t i = 0; i < cut.count; i++) {
        bool last = i + 1 == cut.count;
        assert_int_equal(cut.tokens[i], last ? batch.total_tokens - at : context);
        at += cut.tokens[i];
    }
}

// Pieces of a long sample follow each other under its id, and no token is lost.
TEST(long_samples_are_split)
{
    int64_t tokens[] = {5, 25, 10, 31, 1};
    const sp_lengths lengths = {.tokens = tokens, .count = 5};
    sp_workload_spec spec = {.lengths = &lengths,
                             .context = 10,
                             .over_length = SP_OVER_SPLIT,
                             .samples_per_batch = 10,
                             .batches = 1,
                             .order = SP_ORDER_FILE};
    static const int64_t ids[] = {0, 1, 1, 1, 2, 3, 3, 3, 3, 4};
    static const int64_t pieces[] = {5, 10, 10, 5, 10, 10, 10, 10, 1, 1};
    AUTO(sp_batches) batches;
    must_succeed(sp_batches_make(&spec, &batches, ERR));
    assert_int_equal(batches.batch[0].count, 10);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(batches.batch[0].ids[i], ids[i]);
        assert_int_equal(batches.batch[0].tokens[i], pieces[i]);
    }
    assert_int_equal(batches.split, 2);
    assert_int_equal(batches.truncated, 0);
    assert_int_equal(batches.lost_tokens, 0);
    assert_int_equal(batches.dropped, 0);
    assert_int_equal(batches.left_samples, 0);
    // Of 25 the last 15 do not see the beginning, of 31 the last 21.
    assert_int_equal(batches.batch[0].cut_tokens, 36);
    assert_int_equal(sp_workload_samples(&spec), 10);
    // Rows of 7 cut pieces again, and a token is counted once: the 36, and of what sees its
    // beginning the piece of 10 after 5 in the rows 5+2 | 7 | 1+..., which loses 8, that of sample
    // 2 (30 before it, 2 in row 4) 5 in the next row, and that of sample 3 (40 before it) 8.
    sp_batch cut;
    sp_batch_concatenate(&batches.batch[0], 7, false, &cut);
    assert_int_equal(cut.cut_tokens, 36 + (10 - 2) + (10 - 5) + (10 - 2));
    sp_batch_fini(&cut);
    sp_batches_fini(&batches);
    // Three of the pieces are left over, and so are two whole samples.
    spec.samples_per_batch = 5;
    must_succeed(sp_batches_make(&spec, &batches, ERR));
    assert_int_equal(batches.left_samples, 2);
    assert_int_equal(batches.left_tokens, 32);
    sp_batches_fini(&batches);
    spec.samples_per_batch = 2;
    must_succeed(sp_batches_make(&spec, &batches, ERR));
    assert_int_equal(batches.left_samples, 4);
    assert_int_equal(batches.left_tokens, 72 - 15);
}

// Every token of a list is in a batch of its first pass, was dropped or truncated, or is left over;
// pieces that go on are those that a split document has behind its first.
TEST_ROUNDS(no_token_is_lost_without_a_word, 977, 4000)
{
    enum { MOST = 40 };
    int64_t tokens[MOST];
    const sp_lengths lengths = {.tokens = tokens, .count = 1 + sp_prng_below(prng, MOST)};
    int64_t context = (int64_t)sp_prng_below(prng, 60);
    int64_t total = 0;
    int64_t over = 0;
    int64_t above = 0; // tokens beyond the context
    int64_t pieces = 0;
    for (size_t i = 0; i < lengths.count; i++) {
        tokens[i] = 1 + (int64_t)sp_prng_below(prng, sp_prng_below(prng, 5) == 0 ? 400 : 50);
        bool is_over = context > 0 && tokens[i] > context;
        total += tokens[i];
        over += is_over ? tokens[i] : 0;
        above += is_over ? tokens[i] - context : 0;
        pieces += context > 0 ? (tokens[i] + context - 1) / context : 1;
    }
    static const sp_over_length kinds[] = {SP_OVER_DROP, SP_OVER_TRUNCATE, SP_OVER_SPLIT};
    sp_workload_spec spec = {.lengths = &lengths,
                             .context = context,
                             .over_length = kinds[sp_prng_below(prng, 3)],
                             .batches = 1 + (int)sp_prng_below(prng, 4),
                             .seed = (uint64_t)round,
                             .order = (sp_order)sp_prng_below(prng, 2)};
    int64_t size = 1 + (int64_t)sp_prng_below(prng, 100);
    *(sp_prng_below(prng, 2) == 0 ? &spec.samples_per_batch : &spec.tokens_per_batch) = size;
    bool splits = spec.over_length == SP_OVER_SPLIT;
    bool drops = spec.over_length == SP_OVER_DROP;
    if (drops && over == total) {
        return;
    }
    AUTO(sp_batches) batches;
    must_succeed(sp_batches_make(&spec, &batches, ERR));
    int64_t taken = 0;
    int64_t begun = 0;
    int64_t truncated = 0;
    for (int b = 0; b < batches.count; b++) {
        int64_t cut = 0;
        for (size_t i = 0; i < batches.batch[b].count; i++) {
            bool goes_on = splits && context > 0 && batches.batch[b].goes_on[i];
            int64_t of_list = tokens[batches.batch[b].ids[i]];
            begun += !goes_on;
            cut += goes_on ? batches.batch[b].tokens[i] : 0;
            truncated +=
                spec.over_length == SP_OVER_TRUNCATE ? of_list - batches.batch[b].tokens[i] : 0;
        }
        taken += batches.batch[b].total_tokens;
        assert_int_equal(batches.batch[b].cut_tokens, cut);
    }
    assert_int_equal(batches.lost_tokens, drops ? over : truncated);
    if (!batches.wrapped) {
        assert_int_equal(taken + batches.lost_tokens + batches.left_tokens, total);
        assert_int_equal(batches.left_samples == 0, batches.left_tokens == 0);
    } else {
        assert_true(begun + batches.dropped > (int64_t)lengths.count);
    }
    sp_batches_fini(&batches);
    // One batch of all samples leaves nothing over.
    spec.batches = 1;
    spec.tokens_per_batch = 0;
    spec.samples_per_batch = sp_workload_samples(&spec);
    must_succeed(sp_batches_make(&spec, &batches, ERR));
    assert_false(batches.wrapped);
    assert_int_equal(batches.left_samples, 0);
    assert_int_equal(batches.left_tokens, 0);
    assert_int_equal(batches.batch[0].total_tokens + batches.lost_tokens, total);
    if (splits) {
        assert_int_equal(batches.batch[0].count, pieces);
        assert_int_equal(batches.batch[0].cut_tokens, above);
    }
}

// A distribution has no end, but a sample in pieces has.
TEST(rest_of_a_uniform_sample_is_left_over)
{
    const sp_workload_spec spec = {.uniform_tokens = 35,
                                   .context = 10,
                                   .over_length = SP_OVER_SPLIT,
                                   .samples_per_batch = 3,
                                   .batches = 2};
    AUTO(sp_batches) batches;
    must_succeed(sp_batches_make(&spec, &batches, ERR));
    // 10 10 10 | 5 10 10: of the second sample 15 are left.
    assert_int_equal(batches.left_samples, 1);
    assert_int_equal(batches.left_tokens, 15);
    assert_int_equal(batches.batch[0].cut_tokens, 20);
    assert_int_equal(batches.batch[1].cut_tokens, 15);
}
