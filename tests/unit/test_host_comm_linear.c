// Tensor-parallel linear layers against the whole layer: forward, gradient by input and by weight,
// with and without sequence parallelism, uneven shares, both types.
#include <stdlib.h>

#include "backends/host/comm_linear.h"
#include "kernels/kernels.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/kernels/tensors.h"
#include "tests/support/test_main.h"

enum { MOST_RANKS = 4, TOKENS = 23, IN = 19, OUT = 27 };

// One layer as a whole; the ranks fill `found` from their shares.
typedef struct layer {
    tensor y, dx, dweight, dbias;
} layer;

typedef struct job {
    tensors all;
    int ranks, group;
    bool row_parallel, sequence_parallel, wide;
    int64_t tokens[MOST_RANKS]; // of each rank
    int64_t features[MOST_RANKS];
    tensor x, weight, bias, dy;
    layer expected, found;
} job;

static int64_t sum_before(const int64_t *counts, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) {
        sum += counts[i];
    }
    return sum;
}

static void split(sp_prng *prng, int64_t total, int ranks, int64_t *counts)
{
    for (int i = 0; i < ranks; i++) {
        counts[i] = 0;
    }
    for (int64_t i = 0; i < total; i++) {
        counts[sp_prng_below(prng, (uint64_t)ranks)]++;
    }
}

// A part of a tensor in the type of the job: `rows` rows of `width` from (row, column) of `from`.
static void *part(const job *j, tensor from, int64_t from_width, int64_t row, int64_t column,
                  int64_t rows, int64_t width)
{
    size_t n = (size_t)(rows * width) + 1;
    double *wide = calloc(n, sizeof *wide);
    float *narrow = calloc(n, sizeof *narrow);
    for (int64_t r = 0; wide != NULL && narrow != NULL && r < rows; r++) {
        for (int64_t c = 0; c < width; c++) {
            int64_t at = (row + r) * from_width + column + c;
            wide[r * width + c] = from.d[at];
            narrow[r * width + c] = from.f[at];
        }
    }
    free(j->wide ? (void *)narrow : (void *)wide);
    return j->wide ? (void *)wide : (void *)narrow;
}

static void put(const job *j, const void *values, tensor to, int64_t to_width, int64_t row,
                int64_t column, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < width; c++) {
            int64_t at = (row + r) * to_width + column + c;
            to.d[at] = j->wide ? ((const double *)values)[r * width + c]
                               : (double)((const float *)values)[r * width + c];
        }
    }
}

typedef struct shares {
    int64_t in, out, in_at, out_at; // features of this rank and where they begin
    int64_t outer, outer_at;        // tokens of the outer side
    int64_t told;                   // of them this rank's to write down
} shares;

static shares shares_of(const job *j, int rank)
{
    int64_t mine = j->features[rank];
    int64_t at = sum_before(j->features, rank);
    shares s = {.in = j->row_parallel ? mine : IN,
                .out = j->row_parallel ? OUT : mine,
                .in_at = j->row_parallel ? at : 0,
                .out_at = j->row_parallel ? 0 : at,
                .outer = j->sequence_parallel ? j->tokens[rank] : TOKENS,
                .outer_at = j->sequence_parallel ? sum_before(j->tokens, rank) : 0};
    bool last = rank == j->ranks - 1;
    s.told = j->sequence_parallel || last ? s.outer : 0;
    return s;
}

static sp_status run_column(sp_comm *me, const job *j, const sp_comm_linear *l, const shares *s,
                            void *const *t, sp_error *err)
{
    // What forward gathered serves the gradient by weight, unless the other gradient came between.
    bool kept = j->sequence_parallel && j->tokens[0] % 2 == 0;
    sp_status status = sp_comm_column_forward(me, l, t[0], t[1], t[2], t[4], t[5], err);
    if (status == SP_OK && kept) {
        status = sp_comm_column_backward_weight(me, l, t[3], NULL, t[4], t[7], t[8], err);
    }
    if (status == SP_OK) {
        status = sp_comm_column_backward_input(me, l, t[3], t[1], t[4], t[6], err);
    }
    if (status == SP_OK && !kept) {
        status = sp_comm_column_backward_weight(me, l, t[3], t[0], t[4], t[7], t[8], err);
    }
    put(j, t[5], j->found.y, OUT, 0, s->out_at, TOKENS, s->out);
    put(j, t[6], j->found.dx, IN, s->outer_at, 0, s->told, IN);
    put(j, t[8], j->found.dbias, OUT, 0, s->out_at, 1, s->out);
    return status;
}

static sp_status run_row(sp_comm *me, const job *j, const sp_comm_linear *l, const shares *s,
                         void *const *t, sp_error *err)
{
    sp_status status = sp_comm_row_forward(me, l, t[0], t[1], t[2], t[4], t[5], err);
    bool again = j->tokens[0] % 2 == 0 || !j->sequence_parallel;
    if (status == SP_OK) {
        status = sp_comm_row_backward_input(me, l, t[3], t[1], t[4], t[6], err);
    }
    if (status == SP_OK) {
        status =
            sp_comm_row_backward_weight(me, l, again ? t[3] : NULL, t[0], t[4], t[7], t[8], err);
    }
    put(j, t[5], j->found.y, OUT, s->outer_at, 0, s->told, OUT);
    put(j, t[6], j->found.dx, IN, 0, s->in_at, TOKENS, s->in);
    if (sp_comm_rank(me) == j->ranks - 1) {
        put(j, t[8], j->found.dbias, OUT, 0, 0, 1, OUT);
    }
    return status;
}

// x, weight, bias, dy, all, y, dx, dweight, dbias of this rank.
static sp_status run_share(sp_comm *me, void *data, sp_error *err)
{
    job *j = data;
    shares s = shares_of(j, sp_comm_rank(me));
    bool row = j->row_parallel;
    int64_t x_tokens = row ? TOKENS : s.outer;
    int64_t y_tokens = row ? s.outer : TOKENS;
    sp_comm_linear l = {.group = j->group,
                        .type = j->wide ? SP_COMM_F64 : SP_COMM_F32,
                        .tokens = TOKENS,
                        .shard_tokens = j->sequence_parallel ? j->tokens : NULL,
                        .in = s.in,
                        .out = s.out};
    void *t[9] = {
        part(j, j->x, IN, row ? 0 : s.outer_at, s.in_at, x_tokens, s.in),
        part(j, j->weight, IN, s.out_at, s.in_at, s.out, s.in),
        part(j, j->bias, OUT, 0, s.out_at, 1, s.out),
        part(j, j->dy, OUT, row ? s.outer_at : 0, s.out_at, y_tokens, s.out),
        calloc(TOKENS * OUT + 1, sizeof(double)),
        calloc(TOKENS * OUT + 1, sizeof(double)),
        calloc(TOKENS * OUT + 1, sizeof(double)),
        // Gradients by weight are added to what is there.
        part(j, j->weight, IN, s.out_at, s.in_at, s.out, s.in),
        part(j, j->bias, OUT, 0, s.out_at, 1, s.out),
    };
    bool made = true;
    for (int i = 0; i < 9; i++) {
        made = made && t[i] != NULL;
    }
    sp_status status = RANK_CHECK(made);
    if (status == SP_OK) {
        status = row ? run_row(me, j, &l, &s, t, err) : run_column(me, j, &l, &s, t, err);
        put(j, t[7], j->found.dweight, IN, s.out_at, s.in_at, s.out, s.in);
    }
    for (int i = 0; i < 9; i++) {
        free(t[i]);
    }
    return status;
}

static layer layer_zero(tensors *all)
{
    return (layer){.y = tensor_zero(all, TOKENS * OUT),
                   .dx = tensor_zero(all, TOKENS * IN),
                   .dweight = tensor_zero(all, OUT * IN),
                   .dbias = tensor_zero(all, OUT)};
}

// The definition, on one rank.
static void whole(job *j)
{
    for (int64_t t = 0; t < TOKENS; t++) {
        for (int64_t o = 0; o < OUT; o++) {
            const double *w = j->weight.d + o * IN;
            double dy = j->dy.d[t * OUT + o];
            j->expected.y.d[t * OUT + o] = j->bias.d[o] + dot_of(j->x.d + t * IN, w, IN);
            for (int64_t i = 0; i < IN; i++) {
                j->expected.dx.d[t * IN + i] += dy * w[i];
                j->expected.dweight.d[o * IN + i] += dy * j->x.d[t * IN + i];
            }
            j->expected.dbias.d[o] += dy;
        }
    }
    for (int64_t i = 0; i < OUT * IN; i++) {
        j->expected.dweight.d[i] += j->weight.d[i];
    }
    for (int64_t i = 0; i < OUT; i++) {
        j->expected.dbias.d[i] += j->bias.d[i];
    }
}

static void check_layer(int ranks, bool row, bool sequence, bool wide, uint64_t seed)
{
    job j = {.ranks = ranks, .row_parallel = row, .sequence_parallel = sequence, .wide = wide};
    tensors_init(&j.all, seed);
    split(&j.all.prng, TOKENS, ranks, j.tokens);
    split(&j.all.prng, row ? IN : OUT, ranks, j.features);
    j.x = tensor_random(&j.all, TOKENS * IN);
    j.weight = tensor_random(&j.all, OUT * IN);
    j.bias = tensor_random(&j.all, OUT);
    j.dy = tensor_random(&j.all, TOKENS * OUT);
    j.expected = layer_zero(&j.all);
    j.found = layer_zero(&j.all);
    whole(&j);
    sp_comm_world *world = world_of(ranks, 0);
    j.group = group_of_all(world);
    assert_ranks(world, run_share, &j);
    double tolerance = wide ? 1e-12 : 1e-5;
    assert_near_rows(j.found.y.d, j.expected.y.d, TOKENS * OUT, tolerance);
    assert_near_rows(j.found.dx.d, j.expected.dx.d, TOKENS * IN, tolerance);
    assert_near_rows(j.found.dweight.d, j.expected.dweight.d, OUT * IN, tolerance);
    assert_near_rows(j.found.dbias.d, j.expected.dbias.d, OUT, tolerance);
    sp_comm_world_free(world);
    tensors_fini(&j.all);
}

static void check_all(bool row, bool sequence)
{
    sp_kernels_start();
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        for (uint64_t seed = 0; seed < 20; seed++) {
            check_layer(ranks, row, sequence, seed % 2 == 0, seed);
        }
    }
}

static void column_parallel(void **state)
{
    (void)state;
    check_all(false, false);
}

static void column_and_sequence_parallel(void **state)
{
    (void)state;
    check_all(false, true);
}

static void row_parallel(void **state)
{
    (void)state;
    check_all(true, false);
}

static void row_and_sequence_parallel(void **state)
{
    (void)state;
    check_all(true, true);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(column_parallel),
    cmocka_unit_test(column_and_sequence_parallel),
    cmocka_unit_test(row_parallel),
    cmocka_unit_test(row_and_sequence_parallel),
};

SP_TEST_MAIN(tests)
