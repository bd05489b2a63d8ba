// Collectives against their definitions, worked out by every rank for itself: random groups, sizes,
// types and timings, in place and not. Sums are compared bit by bit.
#include <pthread.h>

#include "backends/comm/collective.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/test_main.h"
#include "tests/support/threaded_transport.h"

enum { MOST_RANKS = 6, MOST_COUNT = 300, GROUPS = 8, ROOM = MOST_RANKS * MOST_COUNT };

typedef enum kind { BARRIER, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, KINDS } kind;

typedef struct step {
    kind kind;
    int group;
    sp_element type;
    sp_comm_op op;
    bool in_place;
    int root;
    int64_t count, rows[MOST_RANKS], width;
} step;

typedef struct script {
    int groups[GROUPS];
    step *steps;
    int count;
    uint64_t sleep_one_of;
} script;

static step random_step(sp_prng *prng, const sp_comm_world *world, const script *s)
{
    step made = {.kind = (kind)sp_prng_below(prng, KINDS),
                 .group = s->groups[sp_prng_below(prng, GROUPS)],
                 .type = (sp_element)sp_prng_below(prng, 2),
                 .op = sp_prng_below(prng, 4) == 0 ? SP_COMM_MAX : SP_COMM_SUM,
                 .in_place = sp_prng_below(prng, 2) == 0};
    uint64_t most = sp_prng_below(prng, 3) == 0 ? MOST_COUNT : 4;
    made.root = (int)sp_prng_below(prng, (uint64_t)sp_comm_group_size(world, made.group));
    made.count = (int64_t)sp_prng_below(prng, most + 1);
    made.width = 1 + (int64_t)sp_prng_below(prng, 3);
    for (int i = 0; i < MOST_RANKS; i++) {
        made.rows[i] = (int64_t)sp_prng_below(prng, most / (uint64_t)made.width + 1);
    }
    return made;
}

static void random_group(sp_prng *prng, sp_comm_world *world, int *group)
{
    int ranks[MOST_RANKS];
    int n = sp_comm_world_ranks(world);
    for (int i = 0; i < n; i++) {
        int j = (int)sp_prng_below(prng, (uint64_t)i + 1);
        ranks[i] = ranks[j];
        ranks[j] = i;
    }
    *group = group_of(world, "some", ranks, 1 + prng_below(prng, n));
}

// Numbers in either type.
typedef struct numbers {
    float f32[ROOM];
    double f64[ROOM];
} numbers;

static void *at(numbers *x, sp_element type, int64_t i)
{
    return type == SP_ELEMENT_F32 ? (void *)(x->f32 + i) : (void *)(x->f64 + i);
}

static void fill(numbers *x, int step_index, int rank, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        x->f64[i] = number_at((uint64_t)step_index, (uint64_t)rank, (uint64_t)i);
        x->f32[i] = (float)x->f64[i];
    }
}

// Element i of a member's input, and the reduction of all members' in their order.
static double reduced(const sp_comm_world *world, const step *s, int index, int64_t i)
{
    double wide = 0;
    float narrow = 0;
    for (int m = 0; m < sp_comm_group_size(world, s->group); m++) {
        double x = number_at((uint64_t)index, (uint64_t)sp_comm_group_rank(world, s->group, m),
                             (uint64_t)i);
        float y = (float)x;
        if (m == 0) {
            wide = x;
            narrow = y;
        } else if (s->op == SP_COMM_SUM) {
            wide += x;
            narrow += y;
        } else {
            wide = fmax(wide, x);
            narrow = fmaxf(narrow, y);
        }
    }
    return s->type == SP_ELEMENT_F32 ? (double)narrow : wide;
}

static double given(const sp_comm_world *world, const step *s, int index, int member, int64_t i)
{
    int rank = sp_comm_group_rank(world, s->group, member);
    double x = number_at((uint64_t)index, (uint64_t)rank, (uint64_t)i);
    return s->type == SP_ELEMENT_F32 ? (double)(float)x : x;
}

static int64_t part_count(const step *s, int member)
{
    bool rows = s->kind == ALL_GATHER || s->kind == REDUCE_SCATTER;
    return rows ? s->rows[member] * s->width : s->count;
}

static int64_t part_offset(const step *s, int member)
{
    int64_t offset = 0;
    for (int m = 0; m < member; m++) {
        offset += part_count(s, m);
    }
    return offset;
}

static double value_of(numbers *x, sp_element type, int64_t i)
{
    return type == SP_ELEMENT_F32 ? (double)x->f32[i] : x->f64[i];
}

// Result of [0, count) against what member `me` should have.
static sp_status check_result(const sp_comm_world *world, const step *s, int index, int me,
                              numbers *all, int64_t first, sp_error *err)
{
    int size = sp_comm_group_size(world, s->group);
    bool gathers = s->kind == ALL_GATHER;
    int parts = gathers ? size : 1;
    int64_t done = first;
    for (int m = 0; m < parts; m++) {
        bool scatters = s->kind == REDUCE_SCATTER;
        int64_t count = part_count(s, scatters ? me : m);
        for (int64_t i = 0; i < count; i++) {
            double expected;
            if (gathers) {
                expected = given(world, s, index, m, i);
            } else if (s->kind == BROADCAST) {
                expected = given(world, s, index, s->root, i);
            } else {
                expected = reduced(world, s, index, (scatters ? part_offset(s, me) : 0) + i);
            }
            double found = value_of(all, s->type, done++);
            if (memcmp(&found, &expected, sizeof found) != 0) {
                return sp_error_set(err, SP_ERR_INTERNAL, "step %d, kind %d, element %lld: %g, %g",
                                    index, (int)s->kind, (long long)i, found, expected);
            }
        }
    }
    return SP_OK;
}

typedef struct buffers {
    numbers in, out;
} buffers;

// In place, the input of a gather lies in its part of the output.
static sp_status gather(sp_comm *me, const step *s, int index, int m, buffers *b, sp_error *err)
{
    numbers *from = &b->in;
    int64_t offset = 0;
    fill(&b->in, index, sp_comm_rank(me), part_count(s, m));
    if (s->in_place) {
        from = &b->out;
        offset = part_offset(s, m);
        size_t n = (size_t)part_count(s, m);
        memcpy(b->out.f32 + offset, b->in.f32, n * sizeof(float));
        memcpy(b->out.f64 + offset, b->in.f64, n * sizeof(double));
    }
    void *in = at(from, s->type, offset);
    void *out = at(&b->out, s->type, 0);
    return sp_comm_all_gather(me, s->group, s->type, in, out, s->rows, s->width, err);
}

static sp_status run_step(sp_comm *me, const sp_comm_world *world, const step *s, int index,
                          buffers *b, sp_error *err)
{
    int m = sp_comm_member(me, s->group);
    numbers *result = s->in_place ? &b->in : &b->out;
    int64_t first = 0;
    sp_status status = SP_OK;
    fill(&b->in, index, sp_comm_rank(me), part_offset(s, sp_comm_group_size(world, s->group)));
    void *in = at(&b->in, s->type, 0);
    void *out = at(result, s->type, 0);
    switch (s->kind) {
    case BARRIER:
        return sp_comm_barrier(me, s->group, err);
    case ALL_REDUCE:
        status = sp_comm_all_reduce(me, s->group, s->type, s->op, in, out, s->count, err);
        break;
    case ALL_GATHER:
        result = &b->out;
        status = gather(me, s, index, m, b, err);
        break;
    case REDUCE_SCATTER:
        first = s->in_place ? part_offset(s, m) : 0;
        status = sp_comm_reduce_scatter(me, s->group, s->type, s->op, in,
                                        at(result, s->type, first), s->rows, s->width, err);
        break;
    case BROADCAST:
    case KINDS:
        status = sp_comm_broadcast(me, s->group, s->type, in, out, s->count, s->root, err);
        break;
    }
    return status == SP_OK ? check_result(world, s, index, m, result, first, err) : status;
}

typedef struct job {
    const sp_comm_world *world;
    const script *script;
} job;

static sp_status run_script(sp_comm *me, void *data, sp_error *err)
{
    job *j = data;
    sp_prng prng = prng_seeded(77 + (uint64_t)sp_comm_rank(me));
    buffers *b = malloc(sizeof *b);
    sp_status status = RANK_CHECK(b != NULL);
    for (int i = 0; i < j->script->count && status == SP_OK; i++) {
        const step *s = &j->script->steps[i];
        if (sp_comm_member(me, s->group) >= 0) {
            sleep_sometimes(&prng, j->script->sleep_one_of, 80);
            status = run_step(me, j->world, s, i, b, err);
        }
    }
    free(b);
    return status;
}

static sp_status run_all(sp_comm_world *world, int steps, uint64_t seed, uint64_t sleep_one_of,
                         sp_error *err)
{
    sp_prng prng = prng_seeded(seed);
    script s = {.count = steps, .sleep_one_of = sleep_one_of};
    for (int i = 0; i < GROUPS; i++) {
        random_group(&prng, world, &s.groups[i]);
    }
    s.steps = malloc((size_t)steps * sizeof *s.steps);
    assert_non_null(s.steps);
    for (int i = 0; i < steps; i++) {
        s.steps[i] = random_step(&prng, world, &s);
    }
    job j = {.world = world, .script = &s};
    sp_status status = run_ranks(world, run_script, &j, err);
    free(s.steps);
    return status;
}

static void check_script(int ranks, int steps, uint64_t seed, uint64_t sleep_one_of)
{
    sp_error err = {0};
    sp_comm_world *world = world_of(ranks);
    if (run_all(world, steps, seed, sleep_one_of, &err) != SP_OK) {
        fail_msg("%s", err.message[0]);
    }
    sp_comm_world_free(world);
}

// ---- worlds with one rank each, and a transport between them ----

typedef struct apart {
    pthread_t thread;
    sp_transport *transport;
    sp_comm_counts counts;
    sp_status status;
    sp_error err;
} apart;

enum { APART_STEPS = 1500 };

// Groups and steps are drawn by each from the same seed.
static void *run_apart(void *data)
{
    apart *a = data;
    int ranks = a->transport->ranks;
    sp_comm_world *world = world_with(ranks, &(sp_comm_options){.transport = a->transport});
    a->status = run_all(world, APART_STEPS, 20 + (uint64_t)ranks, 100, &a->err);
    a->counts = sp_comm_counted(sp_comm_of(world, a->transport->rank));
    sp_comm_world_free(world);
    return NULL;
}

TEST(over_a_transport)
{
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        threaded_world *world = threaded_world_new(ranks, false);
        apart all[MOST_RANKS] = {0};
        for (int r = 0; r < ranks; r++) {
            all[r].transport = threaded_rank_at(world, r);
            assert_int_equal(pthread_create(&all[r].thread, NULL, run_apart, &all[r]), 0);
        }
        for (int r = 0; r < ranks; r++) {
            assert_int_equal(pthread_join(all[r].thread, NULL), 0);
        }
        for (int r = 0; r < ranks; r++) {
            if (all[r].status != SP_OK) {
                fail_msg("rank %d: %s", r, all[r].err.message[0]);
            }
            assert_true(all[r].counts.collectives > 0);
        }
        threaded_world_free(world);
    }
}

TEST_CALL(one_rank, check_script(1, 500, 1, 100))
TEST_CALL(two_ranks, check_script(2, 5000, 2, 200))

TEST(many_ranks)
{
    for (int ranks = 3; ranks <= MOST_RANKS; ranks++) {
        check_script(ranks, 1500, (uint64_t)ranks, 100);
    }
}

TEST_CALL(without_disturbance, check_script(4, 4000, 9, UINT64_MAX))
