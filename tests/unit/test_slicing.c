// Rows cut into slices: every token once, in the order the sliced schedules need; cuts of a
// sequence for a token-level pipeline against exhaustive search.
#include "sim/schedule/schedule.h"
#include "solver/slicing.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

enum { MOST_SAMPLES = 40 };

typedef struct rows {
    sp_batch batch;
    int64_t ids[MOST_SAMPLES], tokens[MOST_SAMPLES];
    sp_packing packing;
} rows;

// Rows of one to three samples dealt to the ranks in turn; `padded` fills samples up to the longest
// of their row. Every second row gathers, and every second sample has a zone.
static void random_rows(sp_prng *prng, int dp, int64_t longest, bool padded, rows *r)
{
    *r = (rows){0};
    size_t count = 1 + (size_t)sp_prng_below(prng, MOST_SAMPLES);
    r->batch = (sp_batch){.ids = r->ids, .tokens = r->tokens, .count = count};
    sp_packing_init(&r->packing, &r->batch, dp);
    for (size_t i = 0; i < count; i++) {
        r->ids[i] = (int64_t)i;
        r->tokens[i] = 1 + (int64_t)sp_prng_below(prng, (uint64_t)longest);
        r->batch.total_tokens += r->tokens[i];
    }
    for (size_t i = 0; i < count;) {
        size_t end = i + 1 + (size_t)sp_prng_below(prng, 3);
        end = end < count ? end : count;
        int64_t width = 0;
        for (size_t s = i; s < end; s++) {
            width = r->tokens[s] > width ? r->tokens[s] : width;
        }
        int rank = (int)(r->packing.forward.count % (size_t)dp);
        size_t row = r->packing.forward.count;
        sp_pack_list_begin(&r->packing.forward, rank, 1);
        r->packing.forward.packs[row].gathers = row % 2 == 1;
        for (; i < end; i++) {
            sp_slice slice = {.sample = (int32_t)i,
                              .zone = i % 2 == 1 ? sp_zone_of(rank, 1) : 0,
                              .tokens = r->tokens[i],
                              .computed_tokens = padded ? width : r->tokens[i]};
            sp_pack_list_add(&r->packing.forward, slice, true);
        }
    }
}

static int64_t least_row(const sp_packing *packing)
{
    int64_t least = INT64_MAX;
    for (size_t k = 0; k < packing->forward.count; k++) {
        int64_t tokens = packing->forward.packs[k].tokens;
        least = tokens < least ? tokens : least;
    }
    return least;
}

typedef struct sums {
    int64_t tokens, computed, pairs2;
} sums;

static sums sum_packs(const sp_pack_list *list, size_t first, size_t count)
{
    sums total = {0};
    for (size_t k = first; k < first + count; k++) {
        total.tokens += list->packs[k].tokens;
        total.computed += list->packs[k].computed;
        total.pairs2 += list->packs[k].pairs2;
    }
    return total;
}

// Any sliced schedule over the slices is a plan that the checker accepts.
static void assert_schedulable(const sp_packing *packing, int dp)
{
    for (int kind = SP_SCHEDULE_TERAPIPE; kind <= SP_SCHEDULE_CHUNKFLOW; kind++) {
        AUTO(sp_plan) plan;
        sp_layout layout = {.tp = 1, .cp = 1, .pp = 3, .dp = dp, .chunks = 1};
        must_succeed(plan_by_schedule(&plan, &layout, packing, (sp_schedule_kind)kind, ERR));
        must_succeed(sp_plan_check(&plan, "test", ERR));
    }
}

// The backward packs of a row are its forward packs, last first.
static void assert_mirrored(const sp_packing *packing, int n)
{
    assert_int_equal(packing->forward.count, packing->backward.count);
    for (size_t k = 0; k < packing->forward.count; k++) {
        size_t row = k / (size_t)n;
        const sp_pack *f = &packing->forward.packs[k];
        const sp_pack *b = &packing->backward.packs[(2 * row + 1) * (size_t)n - 1 - k];
        assert_int_equal(f->microbatch, (int)row);
        assert_int_equal(b->microbatch, (int)row);
        assert_int_equal(f->dp_first, (int)(row % (size_t)packing->dp));
        assert_int_equal(b->dp_first, f->dp_first);
        assert_int_equal(f->gathers, row % 2 == 1);
        assert_int_equal(b->gathers, f->gathers);
        assert_int_equal(b->slice_count, f->slice_count);
        assert_int_equal(b->kv_tokens, f->kv_tokens);
        assert_memory_equal(&packing->backward.slices[b->first_slice],
                            &packing->forward.slices[f->first_slice],
                            f->slice_count * sizeof(sp_slice));
        for (size_t i = f->first_slice; i < f->first_slice + f->slice_count; i++) {
            const sp_slice *slice = &packing->forward.slices[i];
            assert_int_equal(slice->zone, slice->sample % 2 == 1 ? sp_zone_of(f->dp_first, 1) : 0);
        }
    }
}

// Tokens, padding and causal pairs of every row stay what they were; without padding cut k lies at
// floor(tokens * k / n).
TEST_ROUNDS(random_rows_of_equal_tokens, 71, 300)
{
    rows r;
    bool padded = sp_prng_below(prng, 3) == 0;
    int dp = 1 + prng_below(prng, 3);
    random_rows(prng, dp, 300, padded, &r);
    int64_t most = least_row(&r.packing) < 9 ? least_row(&r.packing) : 9;
    int n = 1 + prng_below(prng, (int)most);
    size_t count = r.packing.forward.count;
    sums before[MOST_SAMPLES];
    for (size_t k = 0; k < count; k++) {
        before[k] = sum_packs(&r.packing.forward, k, 1);
    }
    assert_int_equal(sp_slice_rows(&r.packing, n, SP_SLICE_TOKENS, NULL, "test", NULL), SP_OK);
    assert_int_equal(r.packing.forward.count, count * (size_t)n);
    for (size_t k = 0; k < count; k++) {
        sums after = sum_packs(&r.packing.forward, k * (size_t)n, (size_t)n);
        assert_memory_equal(&after, &before[k], sizeof after);
        for (int s = 0; s < n && !padded; s++) {
            assert_int_equal(r.packing.forward.packs[k * (size_t)n + (size_t)s].computed,
                             after.tokens * (s + 1) / n - after.tokens * s / n);
        }
    }
    if (n > 1) {
        assert_mirrored(&r.packing, n);
    } else {
        assert_int_equal(r.packing.backward.count, 0);
    }
    assert_schedulable(&r.packing, dp);
    sp_packing_fini(&r.packing);
}

static void one_row(const int64_t *tokens, const int64_t *computed, size_t count, rows *r)
{
    *r = (rows){0};
    r->batch = (sp_batch){.ids = r->ids, .tokens = r->tokens, .count = count};
    sp_packing_init(&r->packing, &r->batch, 1);
    sp_pack_list_begin(&r->packing.forward, 0, 1);
    for (size_t i = 0; i < count; i++) {
        r->tokens[i] = tokens[i];
        sp_slice slice = {
            .sample = (int32_t)i, .tokens = tokens[i], .computed_tokens = computed[i]};
        sp_pack_list_add(&r->packing.forward, slice, true);
    }
}

// One sample: linear a and attention d per pair, so cut k solves a x + d x^2/2 = share k of the
// whole (Seq1F1B, uniform_comp). The cut is the token below.
TEST(equal_flops_solve_the_quadratic)
{
    sp_model model;
    assert_int_equal(sp_model_builtin("llama-7b", &model, NULL), SP_OK);
    double a = sp_model_layer_linear_flops_per_token(&model);
    double d = sp_model_attention_flops_per_pair(&model);
    static const int64_t lengths[] = {4096, 32768, 262144};
    for (size_t i = 0; i < 3; i++) {
        for (int n = 2; n <= 16; n *= 2) {
            rows r;
            double length = (double)lengths[i];
            one_row(&lengths[i], &lengths[i], 1, &r);
            assert_int_equal(sp_slice_rows(&r.packing, n, SP_SLICE_FLOPS, &model, "test", NULL),
                             SP_OK);
            double whole = a * length + 0.5 * d * length * length;
            for (int k = 1; k < n; k++) {
                double cut = (sqrt(a * a + 2.0 * d * whole * k / n) - a) / d;
                const sp_slice *slice = &r.packing.forward.slices[k];
                assert_within((double)slice->begin, floor(cut), 1.0);
                assert_true(slice->tokens <= slice[-1].tokens + 1);
            }
            sp_packing_fini(&r.packing);
        }
    }
}

// Rows of several samples: the FLOPs of each slice are the share of the row up to one token at
// either cut.
TEST_ROUNDS(equal_flops_of_random_rows, 72, 100)
{
    sp_model model;
    assert_int_equal(sp_model_builtin("llama-7b", &model, NULL), SP_OK);
    double a = sp_model_layer_linear_flops_per_token(&model);
    double d = sp_model_attention_flops_per_pair(&model);
    rows r;
    random_rows(prng, 2, 60000, false, &r);
    int64_t least = least_row(&r.packing);
    // Shares of more than a few tokens: no cut is moved to give each slice a token.
    int n = least > 3000 ? 8 : 1;
    size_t count = r.packing.forward.count;
    assert_int_equal(sp_slice_rows(&r.packing, n, SP_SLICE_FLOPS, &model, "test", NULL), SP_OK);
    for (size_t k = 0; k < count && n > 1; k++) {
        const sp_pack *packs = &r.packing.forward.packs[k * (size_t)n];
        sums row = sum_packs(&r.packing.forward, k * (size_t)n, (size_t)n);
        double whole = a * (double)row.tokens + 0.5 * d * (double)row.pairs2;
        for (int s = 0; s < n; s++) {
            double flops = a * (double)packs[s].tokens + 0.5 * d * (double)packs[s].pairs2;
            assert_within(flops, whole / n, 2.0 * (a + d * 60000.0));
        }
    }
    assert_schedulable(&r.packing, 2);
    sp_packing_fini(&r.packing);
}

// Padding stays with the last token of its sample: cuts inside it move to its end, and every slice
// keeps a token.
TEST(padding_is_not_cut)
{
    static const int64_t lone_tokens[] = {10};
    static const int64_t lone_computed[] = {100};
    static const int64_t lone_slices[] = {7, 1, 1, 91};
    rows r;
    one_row(lone_tokens, lone_computed, 1, &r);
    assert_int_equal(sp_slice_rows(&r.packing, 4, SP_SLICE_TOKENS, NULL, "test", NULL), SP_OK);
    for (int s = 0; s < 4; s++) {
        assert_int_equal(r.packing.forward.packs[s].computed, lone_slices[s]);
    }
    sp_packing_fini(&r.packing);

    // Cuts at 8 and 16 of 24: the first in the padding of sample 0, the second inside sample 1.
    static const int64_t pair_tokens[] = {4, 12};
    static const int64_t pair_computed[] = {12, 12};
    static const int64_t pair_slices[] = {12, 4, 8};
    one_row(pair_tokens, pair_computed, 2, &r);
    assert_int_equal(sp_slice_rows(&r.packing, 3, SP_SLICE_TOKENS, NULL, "test", NULL), SP_OK);
    for (int s = 0; s < 3; s++) {
        assert_int_equal(r.packing.forward.packs[s].computed, pair_slices[s]);
        assert_int_equal(r.packing.forward.packs[s].slice_count, 1);
    }
    sp_packing_fini(&r.packing);
}

TEST(short_rows_are_infeasible)
{
    static const int64_t tokens[] = {3, 2};
    rows r;
    one_row(tokens, tokens, 2, &r);
    must_fail(sp_slice_rows(&r.packing, 6, SP_SLICE_TOKENS, NULL, "s.json", ERR), SP_ERR_INFEASIBLE,
              "s.json: schedule.slices: micro-batch 0 has 5 tokens, fewer than the 6 slices");
    // The rows are still there.
    assert_int_equal(r.packing.forward.count, 1);
    assert_int_equal(r.packing.backward.count, 0);
    assert_int_equal(sp_slice_rows(&r.packing, 5, SP_SLICE_TOKENS, NULL, "s.json", NULL), SP_OK);
    assert_int_equal(r.packing.forward.count, 5);
    sp_packing_fini(&r.packing);
}

// t(l, prefix) of a transformer: a launch, tokens, pairs.
typedef struct quadratic {
    int64_t fixed_ns, token_ns, pair_ns;
} quadratic;

static int64_t quadratic_ns(const void *context, int64_t tokens, int64_t prefix)
{
    const quadratic *q = context;
    return q->fixed_ns + q->token_ns * tokens + q->pair_ns * tokens * (2 * prefix + tokens) / 2;
}

// A table of arbitrary times, monotone in nothing.
typedef struct table {
    int64_t granularity, ns[16][16];
} table;

static int64_t table_ns(const void *context, int64_t tokens, int64_t prefix)
{
    const table *t = context;
    int64_t begin = prefix / t->granularity;
    int64_t end = (prefix + tokens + t->granularity - 1) / t->granularity;
    return t->ns[begin][end];
}

// Every way to cut: bit i of `mask` cuts after position i + 1.
static int64_t exhaustive(const sp_terapipe_problem *p)
{
    int64_t count = (p->tokens + p->granularity - 1) / p->granularity;
    int64_t best = INT64_MAX;
    for (int64_t mask = 0; mask < (int64_t)1 << (count - 1); mask++) {
        int64_t begin = 0, sum = 0, longest = 0;
        for (int64_t i = 1; i <= count; i++) {
            if (i == count || (mask >> (i - 1) & 1) != 0) {
                int64_t end = i == count ? p->tokens : i * p->granularity;
                int64_t ns = p->time(p->context, end - begin, begin);
                sum += ns;
                longest = ns > longest ? ns : longest;
                begin = end;
            }
        }
        int64_t total = sum + (p->stages - 1) * longest;
        best = total < best ? total : best;
    }
    return best;
}

// The slices cover the sequence and take what is said.
static void assert_consistent(const sp_terapipe_problem *p, const sp_terapipe_slices *slices)
{
    int64_t prefix = 0, sum = 0, longest = 0;
    for (size_t k = 0; k < slices->count; k++) {
        int64_t ns = p->time(p->context, slices->tokens[k], prefix);
        assert_true(slices->tokens[k] > 0);
        assert_int_equal(prefix % p->granularity, 0);
        prefix += slices->tokens[k];
        sum += ns;
        longest = ns > longest ? ns : longest;
    }
    assert_int_equal(prefix, p->tokens);
    assert_int_equal(slices->total_ns, sum + (p->stages - 1) * longest);
}

TEST_ROUNDS(terapipe_against_exhaustive_search, 73, 400)
{
    quadratic q = {.fixed_ns = (int64_t)sp_prng_below(prng, 500),
                   .token_ns = 1 + (int64_t)sp_prng_below(prng, 20),
                   .pair_ns = (int64_t)sp_prng_below(prng, 4)};
    table t = {.granularity = 1 + (int64_t)sp_prng_below(prng, 8)};
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 16; j++) {
            t.ns[i][j] = (int64_t)sp_prng_below(prng, 1000);
        }
    }
    bool smooth = sp_prng_below(prng, 2) == 0;
    sp_terapipe_problem p = {.tokens =
                                 1 + (int64_t)sp_prng_below(prng, (uint64_t)(11 * t.granularity)),
                             .granularity = t.granularity,
                             .stages = 1 + prng_below(prng, 12),
                             .time = smooth ? quadratic_ns : table_ns,
                             .context = smooth ? (const void *)&q : (const void *)&t};
    int64_t best = exhaustive(&p);
    AUTO(sp_terapipe_slices) slices;
    sp_terapipe_slices_find(&p, &slices);
    assert_consistent(&p, &slices);
    assert_int_equal(slices.total_ns, best);
    sp_terapipe_slices_fini(&slices);
    // The coarser search stays within its bound.
    p.tolerance_ns = (int64_t)sp_prng_below(prng, 100);
    sp_terapipe_slices_find(&p, &slices);
    assert_consistent(&p, &slices);
    assert_true(slices.total_ns >= best);
    assert_true(slices.total_ns <= best + (p.stages - 1) * p.tolerance_ns);
}

// TeraPipe, section 3.3: with attention the slices get shorter towards the end, so that none is
// much longer in time; one stage takes the whole sequence at once.
TEST(terapipe_slices_shrink)
{
    quadratic q = {.fixed_ns = 50000, .token_ns = 1000, .pair_ns = 1};
    sp_terapipe_problem p = {
        .tokens = 2048, .granularity = 32, .stages = 24, .time = quadratic_ns, .context = &q};
    AUTO(sp_terapipe_slices) slices;
    sp_terapipe_slices_find(&p, &slices);
    assert_consistent(&p, &slices);
    assert_true(slices.count > 2);
    assert_true(slices.tokens[0] > slices.tokens[slices.count - 1]);
    // Better than any number of equal slices.
    for (int64_t n = 1; n <= 64; n *= 2) {
        int64_t sum = 0, longest = 0;
        for (int64_t k = 0; k < n; k++) {
            int64_t ns = quadratic_ns(&q, 2048 / n, 2048 / n * k);
            sum += ns;
            longest = ns > longest ? ns : longest;
        }
        assert_true(slices.total_ns <= sum + 23 * longest);
    }
    sp_terapipe_slices_fini(&slices);
    p.stages = 1;
    sp_terapipe_slices_find(&p, &slices);
    assert_int_equal(slices.count, 1);
}

// 7 ns a pack, 1 ns a token and a hundredth of the pairs.
static int64_t counted_ns(void *context, const sp_pack_list *list)
{
    return 7 + list->packs[0].computed + list->packs[0].pairs2 / 200;
}

static int64_t forward_ns(const sp_pack_list *list, size_t first, size_t count, int stages)
{
    int64_t sum = 0, most = 0;
    for (size_t k = first; k < first + count; k++) {
        int64_t ns = 7 + list->packs[k].computed + list->packs[k].pairs2 / 200;
        sum += ns;
        most = ns > most ? ns : most;
    }
    return sum + (stages - 1) * most;
}

// TeraPipe's slices of random rows: schedulable, and the forward pass sum t + (K-1) max t of no
// equal cut is shorter (by more than the tolerance and one grid step).
TEST(shortest_slices_of_random_rows)
{
    sp_prng prng = prng_seeded(77);
    for (int round = 0; round < 20; round++) {
        static rows r, equal;
        int dp = 1 + prng_below(&prng, 3);
        int stages = 2 + prng_below(&prng, 14);
        sp_prng same = prng;
        random_rows(&prng, dp, 300, false, &r);
        assert_int_equal(sp_slice_rows_shortest(&r.packing, stages, counted_ns, NULL, NULL), SP_OK);
        assert_schedulable(&r.packing, dp);
        for (int n = 1; n <= 16; n *= 2) {
            sp_prng again = same;
            random_rows(&again, dp, 300, false, &equal);
            sp_status status =
                sp_slice_rows(&equal.packing, n, SP_SLICE_TOKENS, NULL, "test", NULL);
            size_t at = 0;
            for (size_t k = 0; status == SP_OK && k < equal.packing.forward.count; k += (size_t)n) {
                size_t count = 1;
                const sp_pack_list *list = &r.packing.forward;
                while (at + count < list->count &&
                       list->packs[at + count].microbatch == list->packs[at].microbatch) {
                    count++;
                }
                int64_t best = forward_ns(list, at, count, stages);
                int64_t other = forward_ns(&equal.packing.forward, k, (size_t)n, stages);
                assert_true((double)best <= 1.05 * (double)other + 8.0 * stages);
                at += count;
            }
            sp_packing_fini(&equal.packing);
        }
        sp_packing_fini(&r.packing);
    }
}
