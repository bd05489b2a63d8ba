// Sampled attention: against its definition over the keys that its masks name, against dense
// attention where every key is kept, and what it reports of itself against dense probabilities.

#include "backends/host/sampled_attention.h"
#include "kernels/kernels.h"
#include "kernels/sample_attention.h"
#include "sim/prefill/prefill.h"
#include "tests/support/kernels/naive_attention.h"
#include "tests/support/test_main.h"

// Which keys a mask of sampled attention keeps, from the words of kernels/sample_attention.h alone.

static bool sampled_contains(int64_t n, const int32_t *ascending, int64_t value)
{
    for (int64_t i = 0; i < n && ascending[i] <= value; i++) {
        if (ascending[i] == value) {
            return true;
        }
    }
    return false;
}

// Whether the tile of query i, of the queries at [begin, past), keeps key j: it is the tile's own,
// or one of the tile's queries keeps it.
static bool sampled_tile_keeps(const sp_kernel_sample_mask *mask, int64_t begin, int64_t past,
                               int64_t i, int64_t j)
{
    const int64_t tile = SP_KERNEL_SAMPLE_TILE;
    int64_t first = begin + (i - begin) / tile * tile;
    int64_t end = first + tile < past ? first + tile : past;
    if (j >= first || end > mask->dense_from || j > first - mask->window ||
        sampled_contains(mask->columns, mask->column, j / mask->grain)) {
        return true;
    }
    for (int64_t block = first / tile; block <= (end - 1) / tile; block++) {
        if (sampled_contains(mask->slashes, mask->slash, block - j / tile)) {
            return true;
        }
    }
    return false;
}

enum { TILE = SP_KERNEL_SAMPLE_TILE };

static const sp_kernel_sample_options stripes = {.pattern = SP_KERNEL_SAMPLE_STRIPES,
                                                 .alpha = 0.9,
                                                 .row_share = 0.1,
                                                 .window_share = 0.08,
                                                 .window_counts = true,
                                                 .bottom_rows = 1};
static const sp_kernel_sample_options slashes = {
    .pattern = SP_KERNEL_SAMPLE_SLASHES, .alpha = 0.6, .alpha_slash = 0.6, .row_share = 0.2};

// A problem with room for a head's masks; the queries are those from `begin` on.
typedef struct sample_problem {
    attention_problem p;
    int64_t begin, len;
    sp_kernel_sample_mass mass;
    sp_kernel_sample_mask mask;
    tensor out, lse, sampled_lse, workspace;
    double *probability, *dense_lse;
} sample_problem;

static int32_t *room(int64_t n)
{
    return sp_calloc((size_t)n, sizeof(int32_t));
}

static void set_up(sample_problem *s, int64_t heads, int64_t kv_heads, int64_t head_dim,
                   int64_t tokens, int64_t begin)
{
    attention_set_up(&s->p, heads, kv_heads, head_dim, tokens);
    tensors *all = &s->p.all;
    s->begin = begin;
    s->len = tokens - begin;
    s->mass = (sp_kernel_sample_mass){.column = tensor_zero(all, tokens).d,
                                      .slash = tensor_zero(all, tokens).d};
    s->mask = (sp_kernel_sample_mask){.column = room(tokens), .slash = room(tokens)};
    s->out = tensor_zero(all, s->p.out.n);
    s->lse = tensor_zero(all, s->p.lse.n);
    s->sampled_lse = tensor_zero(all, tokens + SP_KERNEL_SAMPLE_BAND);
    s->workspace = tensor_zero(all, sp_kernel_sample_attention_workspace_f64(&s->p.shape, tokens));
    s->probability = tensor_zero(all, tokens).d;
    s->dense_lse = tensor_zero(all, tokens * heads).d;
}

// Keys and queries of one head that attend as trained ones do.
static void set_up_structured(sample_problem *s, const sp_sample_input *in, int64_t tokens)
{
    set_up(s, 1, 1, 64, tokens, 0);
    attention_problem *p = &s->p;
    p->shape.scale = 0.125;
    sp_sample_input_fill(in, 7, tokens, 64, p->q.f, p->shape.q_stride, p->k.f, p->shape.kv_stride);
    for (int64_t i = 0; i < p->q.n; i++) {
        p->q.d[i] = (double)p->q.f[i];
    }
    for (int64_t i = 0; i < p->k.n; i++) {
        p->k.d[i] = (double)p->k.f[i];
    }
}

static void sample_problem_fini(sample_problem *s)
{
    sp_free(s->mask.column);
    sp_free(s->mask.slash);
    tensors_fini(&s->p.all);
}

// In either type: what a head's sampled rows hold; a tile over the mask; a head and all heads by
// what sampling chooses, with the smallest share that a sampled row is reported to keep.
#define OF_TYPE(type, member)                                                                      \
    static void sample_##type(sample_problem *s, const sp_kernel_sample_options *options,          \
                              int64_t head)                                                        \
    {                                                                                              \
        sp_kernel_sample_mass_##type(&s->p.shape, options, s->begin, s->len, head,                 \
                                     s->p.q.member + s->begin * s->p.shape.q_stride,               \
                                     s->p.k.member, &s->mass, s->sampled_lse.member,               \
                                     s->workspace.member);                                         \
    }                                                                                              \
    static void run_tile_##type(sample_problem *s, int64_t head, int64_t tile)                     \
    {                                                                                              \
        const sp_kernel_attention_shape *shape = &s->p.shape;                                      \
        sp_kernel_sample_attention_tile_##type(                                                    \
            shape, &s->mask, s->begin, s->len, head, tile,                                         \
            s->p.q.member + s->begin * shape->q_stride, s->p.k.member, s->p.v.member,              \
            s->out.member + s->begin * shape->out_stride, s->lse.member + s->begin * shape->heads, \
            s->workspace.member);                                                                  \
    }                                                                                              \
    static double run_head_##type(sample_problem *s, const sp_kernel_sample_options *options,      \
                                  int64_t head)                                                    \
    {                                                                                              \
        sample_##type(s, options, head);                                                           \
        sp_kernel_sample_select(options, s->begin, s->len, &s->mass, &s->mask);                    \
        for (int64_t t = 0; t < sp_kernel_sample_blocks(s->len); t++) {                            \
            run_tile_##type(s, head, t);                                                           \
        }                                                                                          \
        return sp_kernel_sample_coverage_##type(&s->p.shape, options, s->len, head,                \
                                                s->lse.member + s->begin * s->p.shape.heads,       \
                                                s->sampled_lse.member);                            \
    }                                                                                              \
    static double run_all_##type(sample_problem *s, const sp_kernel_sample_options *options)       \
    {                                                                                              \
        double coverage = 1.0;                                                                     \
        for (int64_t h = 0; h < s->p.shape.heads; h++) {                                           \
            coverage = fmin(coverage, run_head_##type(s, options, h));                             \
        }                                                                                          \
        return coverage;                                                                           \
    }

OF_TYPE(f64, d)
OF_TYPE(f32, f)

// The row of dense probabilities of a head's query, by definition.
static void dense_row(sample_problem *s, int64_t head, int64_t i)
{
    const sp_kernel_attention_shape *shape = &s->p.shape;
    int64_t kv_head = head / (shape->heads / shape->kv_heads);
    double sum = 0;
    double max = -HUGE_VAL;
    for (int64_t j = 0; j <= i; j++) {
        s->probability[j] =
            shape->scale * dot_of(s->p.q.d + i * shape->q_stride + head * shape->head_dim,
                                  s->p.k.d + j * shape->kv_stride + kv_head * shape->head_dim,
                                  shape->head_dim);
        max = fmax(max, s->probability[j]);
    }
    for (int64_t j = 0; j <= i; j++) {
        s->probability[j] = exp(s->probability[j] - max);
        sum += s->probability[j];
    }
    for (int64_t j = 0; j <= i; j++) {
        s->probability[j] /= sum;
    }
    s->dense_lse[i * shape->heads + head] = max + log(sum);
}

// Probability that query i's mask keeps; `out` becomes the mean of the values that are kept.
static double kept_of(sample_problem *s, int64_t head, int64_t i, double *out)
{
    const sp_kernel_attention_shape *shape = &s->p.shape;
    int64_t kv_at = head / (shape->heads / shape->kv_heads) * shape->head_dim;
    double kept = 0;
    memset(out, 0, (size_t)shape->head_dim * sizeof *out);
    dense_row(s, head, i);
    for (int64_t j = 0; j <= i; j++) {
        double share =
            sampled_tile_keeps(&s->mask, s->begin, s->p.tokens, i, j) ? s->probability[j] : 0.0;
        kept += share;
        for (int64_t c = 0; share > 0 && c < shape->head_dim; c++) {
            out[c] += share * s->p.v.d[j * shape->kv_stride + kv_at + c];
        }
    }
    for (int64_t c = 0; c < shape->head_dim; c++) {
        out[c] /= kept;
    }
    return kept;
}

// Checks a head's out and lse; returns the smallest share that a row keeps, by definition.
static double check_head(sample_problem *s, int64_t head)
{
    const sp_kernel_attention_shape *shape = &s->p.shape;
    double cra = 1.0;
    double expected[64];
    for (int64_t i = s->begin; i < s->p.tokens; i++) {
        double kept = kept_of(s, head, i, expected);
        int64_t at = i * shape->heads + head;
        assert_within(s->lse.d[at], s->dense_lse[at] + log(kept), 1e-12);
        assert_near_rows(s->out.d + i * shape->out_stride + head * shape->head_dim, expected,
                         shape->head_dim, 1e-12);
        cra = fmin(cra, kept);
    }
    return cra;
}

static void check_against_definition(const sp_kernel_sample_options *options, int64_t heads,
                                     int64_t kv_heads, int64_t tokens, int64_t begin)
{
    AUTO(sample_problem) s;
    set_up(&s, heads, kv_heads, 8, tokens, begin);
    for (int64_t h = 0; h < heads; h++) {
        run_head_f64(&s, options, h);
        check_head(&s, h);
    }
    double f64 = run_all_f64(&s, options);
    double f32 = run_all_f32(&s, options);
    assert_within(f32, f64, 1e-4);
}

TEST(stripes_by_definition)
{
    check_against_definition(&stripes, 2, 1, 1, 0);
    check_against_definition(&stripes, 2, 1, 31, 0);
    check_against_definition(&stripes, 1, 1, 129, 0);
    check_against_definition(&stripes, 4, 2, 391, 0);
    check_against_definition(&stripes, 2, 2, 391, 77);
}

TEST(slashes_by_definition)
{
    check_against_definition(&slashes, 2, 1, 1, 0);
    check_against_definition(&slashes, 1, 1, 129, 0);
    check_against_definition(&slashes, 2, 1, 700, 0);
    check_against_definition(&slashes, 2, 2, 391, 77);
}

static void check_all_kept(sp_kernel_sample_options options, int64_t tokens, int64_t begin)
{
    options.alpha = 1.0;
    AUTO(sample_problem) s;
    set_up(&s, 4, 2, 16, tokens, begin);
    const sp_kernel_attention_shape *shape = &s.p.shape;
    assert_within(run_all_f64(&s, &options), 1.0, 1e-12);
    sp_kernel_attention_f64(shape, begin, s.len, s.p.q.d + begin * shape->q_stride, s.p.k.d,
                            s.p.v.d, s.p.out.d + begin * shape->out_stride,
                            s.p.lse.d + begin * shape->heads, s.p.workspace.d);
    assert_memory_equal(s.out.d, s.p.out.d, (size_t)s.out.n * sizeof(double));
    assert_memory_equal(s.lse.d, s.p.lse.d, (size_t)s.lse.n * sizeof(double));
    run_all_f32(&s, &options);
    sp_kernel_attention_f32(shape, begin, s.len, s.p.q.f + begin * shape->q_stride, s.p.k.f,
                            s.p.v.f, s.p.out.f + begin * shape->out_stride,
                            s.p.lse.f + begin * shape->heads, s.p.workspace.f);
    assert_memory_equal(s.out.f, s.p.out.f, (size_t)s.out.n * sizeof(float));
    assert_memory_equal(s.lse.f, s.p.lse.f, (size_t)s.lse.n * sizeof(float));
}

TEST(alpha_of_one_is_dense_bit_for_bit)
{
    static const int64_t tokens[5] = {1, 127, 128, 391, 643};
    for (int i = 0; i < 5; i++) {
        check_all_kept(stripes, tokens[i], 0);
        check_all_kept(slashes, tokens[i], 0);
        check_all_kept(stripes, tokens[i], tokens[i] / 3);
    }
}

// A window of all keys is dense attention, whatever alpha is.
TEST(window_of_all_keys_is_dense)
{
    sp_kernel_sample_options options = stripes;
    options.window_share = 1.0;
    AUTO(sample_problem) s;
    set_up(&s, 2, 1, 8, 300, 0);
    assert_within(run_all_f64(&s, &options), 1.0, 1e-12);
    for (int64_t h = 0; h < 2; h++) {
        assert_within(check_head(&s, h), 1.0, 1e-12);
    }
}

// The sums of the sampled rows, by definition; the window's part apart.
TEST(mass_of_columns_and_slashes)
{
    AUTO(sample_problem) s;
    set_up(&s, 2, 1, 8, 500, 60);
    tensor column = tensor_zero(&s.p.all, s.p.tokens);
    tensor slash = tensor_zero(&s.p.all, s.p.tokens);
    for (int turn = 0; turn < 2; turn++) {
        const sp_kernel_sample_options *options = turn == 0 ? &stripes : &slashes;
        int64_t window = turn == 0 ? sp_kernel_sample_window(options, s.p.tokens) : 0;
        double in_window = 0;
        memset(column.d, 0, (size_t)column.n * sizeof *column.d);
        sample_f64(&s, options, 1);
        int64_t rows = 0;
        for (int64_t b = 0; b < sp_kernel_sample_bands(options, s.len); b++) {
            sp_kernel_sample_run band = sp_kernel_sample_band(options, s.len, b);
            for (int64_t i = s.begin + band.begin; i < s.begin + band.end; i++) {
                dense_row(&s, 1, i);
                assert_within(s.sampled_lse.d[rows++], s.dense_lse[i * 2 + 1], 1e-12);
                for (int64_t j = 0; j <= i; j++) {
                    *(j > i - window ? &in_window : &column.d[j]) += s.probability[j];
                    slash.d[i / TILE - j / TILE] += turn == 1 ? s.probability[j] : 0.0;
                }
            }
        }
        assert_within(s.mass.total, (double)rows, 0.0);
        assert_within(s.mass.window, in_window, 1e-12);
        assert_near_rows(s.mass.column, column.d, s.p.tokens, 1e-12);
    }
    assert_near_rows(s.mass.slash, slash.d, sp_kernel_sample_blocks(s.p.tokens), 1e-12);
}

TEST(bands_end_with_the_last_query)
{
    for (int64_t queries = 1; queries < 3000; queries = queries * 3 / 2 + 1) {
        int64_t bands = sp_kernel_sample_bands(&stripes, queries);
        int64_t before = 0;
        for (int64_t b = 0; b < bands; b++) {
            sp_kernel_sample_run band = sp_kernel_sample_band(&stripes, queries, b);
            assert_true(band.begin >= before && band.end > band.begin);
            before = band.end;
        }
        assert_int_equal(before, queries);
        assert_true(bands * SP_KERNEL_SAMPLE_BAND <= queries / 10 ||
                    bands == 1); // the share of rows, rounded down
    }
}

// With means, late columns count as much as early ones: level attention to a stripe of every tenth
// key keeps those that few sampled queries see.
TEST(means_keep_late_stripes)
{
    enum { KEYS = 2000, STRIPES = KEYS / 10 };
    sp_kernel_sample_options options = stripes;
    options.window_counts = false;
    int32_t column[KEYS];
    for (int turn = 0; turn < 2; turn++) {
        double mass[KEYS] = {0};
        double total = 0;
        options.by_mean = turn == 1;
        for (int64_t b = 0; b < sp_kernel_sample_bands(&options, KEYS); b++) {
            sp_kernel_sample_run band = sp_kernel_sample_band(&options, KEYS, b);
            for (int64_t i = band.begin; i < band.end; i++, total += 1.0) {
                for (int64_t j = 0; j <= i; j += 10) {
                    mass[j] += 1.0 / STRIPES;
                }
            }
        }
        sp_kernel_sample_mass all = {.column = mass, .total = total};
        sp_kernel_sample_mask mask = {.column = column};
        options.alpha = options.by_mean ? 0.999 : 0.4;
        sp_kernel_sample_select(&options, 0, KEYS, &all, &mask);
        bool late = mask.column[mask.columns - 1] >= KEYS - 20;
        assert_true(options.by_mean ? late && mask.columns == STRIPES : !late);
    }
}

static int descending(const void *x, const void *y)
{
    double a = *(const double *)x;
    double b = *(const double *)y;
    return a < b ? 1 : a > b ? -1 : 0;
}

// As many as the cumulative sum of the sorted masses needs, and no lighter one than is left out.
TEST_ROUNDS(fewest_columns_that_reach_alpha, 5, 50)
{
    enum { KEYS = 400 };
    double mass[KEYS], sorted[KEYS];
    int32_t column[KEYS];
    double total = 0;
    for (int j = 0; j < KEYS; j++) {
        // Equal ones and zeros among them.
        mass[j] = (double)sp_prng_below(prng, 1 + (uint64_t)round) * sp_prng_uniform(prng) *
                  (double)sp_prng_below(prng, 2);
        mass[j] = round % 2 == 0 ? floor(mass[j]) : mass[j];
        sorted[j] = mass[j];
        total += mass[j];
    }
    qsort(sorted, KEYS, sizeof sorted[0], descending);
    int64_t needed = 0;
    for (double sum = 0; sum < 0.9 * total * (1.0 - 1e-12); needed++) {
        sum += sorted[needed];
    }
    sp_kernel_sample_mass all = {.column = mass, .total = total};
    sp_kernel_sample_mask mask = {.column = column};
    sp_kernel_sample_select(&stripes, 0, KEYS, &all, &mask);
    assert_int_equal(mask.columns, needed);
    for (int64_t c = 0; c < mask.columns; c++) {
        assert_true(mass[column[c]] >= sorted[needed - 1]);
        assert_true(c == 0 || column[c] > column[c - 1]);
    }
}

static const sp_sample_input structured = {
    .sink = 9, .stripe = 9, .stripe_share = 0.01, .band = 9, .noise = 0.7};

// What is reported of the sampled rows is what dense probabilities say of them; of all rows the
// difference of lse says it.
TEST(reported_coverage_is_that_of_dense_attention)
{
    AUTO(sample_problem) s;
    set_up_structured(&s, &structured, 1000);
    double reported = run_all_f64(&s, &stripes);
    double out[64];
    double sampled = 1.0;
    for (int64_t b = 0; b < sp_kernel_sample_bands(&stripes, s.len); b++) {
        sp_kernel_sample_run band = sp_kernel_sample_band(&stripes, s.len, b);
        for (int64_t i = band.begin; i < band.end; i++) {
            sampled = fmin(sampled, kept_of(&s, 0, i, out));
        }
    }
    assert_within(reported, sampled, 1e-12);
    double all = check_head(&s, 0);
    double by_lse = 1.0;
    for (int64_t i = 0; i < s.p.tokens; i++) {
        by_lse = fmin(by_lse, exp(s.lse.d[i] - s.dense_lse[i]));
    }
    assert_within(by_lse, all, 1e-12);
    assert_true(all <= reported && reported > 0.5 && reported < 1.0);
}

// Theorem 1: if kept probabilities differ by at most epsilon / R in sum, so does out by epsilon. A
// row that keeps c and is divided by it differs by 2 (1 - c).
TEST(output_error_within_theorem_1)
{
    AUTO(sample_problem) s;
    set_up_structured(&s, &structured, 1000);
    double largest = 0;
    for (int64_t j = 0; j < s.p.tokens; j++) {
        double sum = 0;
        for (int64_t c = 0; c < 64; c++) {
            sum += fabs(s.p.v.d[j * s.p.shape.kv_stride + c]);
        }
        largest = fmax(largest, sum);
    }
    sp_kernel_attention_f64(&s.p.shape, 0, s.len, s.p.q.d, s.p.k.d, s.p.v.d, s.p.out.d, s.p.lse.d,
                            s.p.workspace.d);
    static const double alphas[3] = {0.5, 0.8, 0.95};
    for (int a = 0; a < 3; a++) {
        sp_kernel_sample_options options = stripes;
        options.alpha = alphas[a];
        run_all_f64(&s, &options);
        double error = 0;
        for (int64_t i = 0; i < s.p.tokens; i++) {
            double kept = exp(s.lse.d[i] - s.p.lse.d[i]);
            double difference = 0;
            for (int64_t c = 0; c < 64; c++) {
                int64_t at = i * s.p.shape.out_stride + c;
                difference += fabs(s.out.d[at] - s.p.out.d[at]);
            }
            assert_true(difference <= 2.0 * (1.0 - kept) * largest + 1e-12);
            error = fmax(error, difference);
        }
        assert_true(error > 1e-6); // keys are left out
    }
}

// More columns with more alpha; the sampled rows keep at least alpha in the mean.
TEST(coverage_grows_with_alpha)
{
    AUTO(sample_problem) s;
    set_up_structured(&s, &structured, 1500);
    double before = 0;
    int64_t columns = -1;
    for (double alpha = 0.5; alpha < 0.99; alpha += 0.1) {
        sp_kernel_sample_options options = stripes;
        options.alpha = alpha;
        double coverage = run_all_f64(&s, &options);
        assert_true(coverage >= before - 1e-12);
        assert_true(s.mask.columns >= columns);
        before = coverage;
        columns = s.mask.columns;
        sample_f64(&s, &options, 0);
        double kept = s.mass.window;
        for (int64_t c = 0; c < s.mask.columns; c++) {
            kept += s.mass.column[s.mask.column[c]];
        }
        assert_true(kept >= alpha * s.mass.total);
    }
}

static double least_kept_of_late_rows(sample_problem *s)
{
    double kept = 1.0;
    for (int64_t i = s->p.tokens / 2; i < s->p.tokens; i++) {
        kept = fmin(kept, exp(s->lse.d[i] - s->p.lse.d[i]));
    }
    return kept;
}

// A diagonal that the window does not hold: version 3 finds its distance.
TEST(slashes_find_a_diagonal)
{
    enum { TOKENS = 12 * TILE };
    static const sp_sample_input diagonal = {
        .sink = 6, .diagonal = 12, .distance = 5 * TILE, .noise = 0.5};
    AUTO(sample_problem) s;
    set_up_structured(&s, &diagonal, TOKENS);
    sp_kernel_attention_f64(&s.p.shape, 0, s.len, s.p.q.d, s.p.k.d, s.p.v.d, s.p.out.d, s.p.lse.d,
                            s.p.workspace.d);
    sp_kernel_sample_options window = stripes;
    window.window_share = 0.3;
    window.alpha = 0.01;
    run_all_f64(&s, &window);
    sp_kernel_sample_run last = {TOKENS - 2 * TILE, TOKENS - TILE};
    int64_t window_pairs = sp_kernel_sample_pairs(&s.mask, last);
    assert_true(least_kept_of_late_rows(&s) < 0.5);
    sp_kernel_sample_options found = slashes;
    found.alpha = 0.05;
    found.alpha_slash = 0.7;
    run_all_f64(&s, &found);
    assert_true(sampled_contains(s.mask.slashes, s.mask.slash, 5));
    assert_true(least_kept_of_late_rows(&s) > 0.5);
    assert_true(sp_kernel_sample_pairs(&s.mask, last) <= 2 * window_pairs);
}

// The masks of all heads, each with a room of its own for columns.
static void choose_masks(sample_problem *s, const sp_kernel_sample_options *options,
                         sp_kernel_sample_mask *masks)
{
    for (int64_t h = 0; h < s->p.shape.heads; h++) {
        sample_f64(s, options, h);
        masks[h] = s->mask;
        masks[h].column = room(s->p.tokens);
        sp_kernel_sample_select(options, s->begin, s->len, &s->mass, &masks[h]);
    }
}

// Tiles that are dealt to workers by cost: each tile once, Graham's bound, and the bits of one
// worker.
TEST(tiles_dealt_by_cost)
{
    enum { HEADS = 3, TOKENS = 1000, TILES = (TOKENS + TILE - 1) / TILE, WORKERS = 4 };
    AUTO(sample_problem) s;
    set_up(&s, HEADS, 1, 8, TOKENS, 0);
    sp_kernel_sample_mask masks[HEADS];
    sp_kernel_sample_mask own = s.mask;
    sp_kernel_sample_item items[HEADS * TILES];
    int64_t load[WORKERS];
    run_all_f64(&s, &stripes);
    tensor alone = tensor_copy(&s.p.all, s.out);
    choose_masks(&s, &stripes, masks);
    sp_kernel_sample_items(HEADS, masks, 0, TOKENS, items);
    sp_kernel_sample_deal(HEADS * TILES, items, WORKERS, load);
    int64_t all = 0;
    bool seen[HEADS * TILES] = {false};
    memset(s.out.d, 0, (size_t)s.out.n * sizeof *s.out.d);
    for (int i = 0; i < HEADS * TILES; i++) {
        assert_true(i == 0 || items[i].cost <= items[i - 1].cost);
        assert_false(seen[items[i].head * TILES + items[i].tile]);
        seen[items[i].head * TILES + items[i].tile] = true;
        all += items[i].cost;
        s.mask = masks[items[i].head];
        run_tile_f64(&s, items[i].head, items[i].tile);
    }
    for (int w = 0; w < WORKERS; w++) {
        assert_true((double)load[w] <= (double)all / WORKERS + (double)items[0].cost);
    }
    assert_memory_equal(s.out.d, alone.d, (size_t)alone.n * sizeof(double));
    for (int64_t h = 0; h < HEADS; h++) {
        sp_free(masks[h].column);
    }
    s.mask = own;
}

// What a tile costs is the number of pairs that its queries see and keep.
TEST(pairs_of_a_tile)
{
    AUTO(sample_problem) s;
    set_up(&s, 1, 1, 8, 391, 77);
    for (int turn = 0; turn < 2; turn++) {
        run_head_f64(&s, turn == 0 ? &stripes : &slashes, 0);
        for (int64_t first = s.begin; first < s.p.tokens; first += TILE) {
            int64_t end = first + TILE < s.p.tokens ? first + TILE : s.p.tokens;
            int64_t pairs = 0;
            for (int64_t i = first; i < end; i++) {
                for (int64_t j = 0; j <= i; j++) {
                    pairs += sampled_tile_keeps(&s.mask, s.begin, s.p.tokens, i, j);
                }
            }
            sp_kernel_sample_run tile = {first, end};
            assert_int_equal(sp_kernel_sample_pairs(&s.mask, tile), pairs);
        }
    }
}

// What the cost model counts of a window and of stripes beyond it is what the kernel computes, but
// for what tiles keep beyond their single queries.
TEST(kept_pairs_are_those_of_the_cost_model)
{
    enum { KEYS = 1 << 17, EVERY = 50 };
    const sp_model model = {.layers = 1, .heads = 1};
    sp_prefill_spec spec = {.attention = SP_PREFILL_SAMPLE,
                            .alpha = 0.9,
                            .window_share = 0.08,
                            .row_share = 0.05,
                            .fixed_us = 0.0};
    sp_kernel_sample_mask mask = {.window = (int64_t)ceil(0.08 * KEYS),
                                  .dense_from = KEYS - TILE,
                                  .grain = 1,
                                  .column = room(KEYS)};
    for (int turn = 0; turn < 2; turn++) {
        // A stripe of every 50th key is 1/50 of the pairs that the window leaves.
        for (int64_t j = 0; turn == 1 && j < KEYS; j += EVERY) {
            mask.column[mask.columns++] = (int32_t)j;
        }
        double pairs = 0;
        for (int64_t first = 0; first < KEYS; first += TILE) {
            sp_kernel_sample_run tile = {first, first + TILE};
            pairs += (double)sp_kernel_sample_pairs(&mask, tile);
        }
        double outside = 1.0 - sp_prefill_attention_of(&spec, &model, 1, 1, 0, KEYS).window;
        spec.stripe_share = turn == 1 ? outside / EVERY : 0.0;
        sp_prefill_attention a = sp_prefill_attention_of(&spec, &model, 1, 1, 0, KEYS);
        double modelled = a.window + a.bottom + a.stripes;
        double half_tile = (double)TILE * KEYS / 2.0;
        double all = (double)KEYS * KEYS / 2.0;
        assert_true(pairs >= modelled * all * 0.995);
        assert_true(pairs <= modelled * all * 1.005 + half_tile);
    }
    sp_free(mask.column);
}
