// Collectives, barriers and flags in memory that is reached through its machine alone, against
// their definitions: on the CPU, on a machine that does work as late as fences allow, and between
// processes.
#include <pthread.h>

#include "backends/api/device_runtime.h"
#include "backends/host/cpu_runtime.h"
#include "backends/ranks/comm.h"
#include "kernels/bf16.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/queued_runtime.h"
#include "tests/support/test_main.h"
#include "tests/support/threaded_transport.h"

// Numbers as elements of any type, for tests of what moves and adds them.

enum { WIDEST_ELEMENT = 8 };

// Element i of an array that need not be aligned. A byte holds |x| without what is behind the
// point, modulo 256.
static void store_element(sp_element element, char *at, int64_t i, double x)
{
    sp_bf16 half = sp_bf16_from_float((float)x);
    float narrow = (float)x;
    unsigned char byte = (unsigned char)(int)fmod(fabs(x), 256);
    const void *bits[] = {&narrow, &x, &half, &byte};
    size_t bytes = (size_t)sp_element_bytes(element);
    memcpy(at + (size_t)i * bytes, bits[element], bytes);
}

static double load_element(sp_element element, const char *at, int64_t i)
{
    char bits[WIDEST_ELEMENT];
    float narrow;
    double wide;
    sp_bf16 half;
    size_t bytes = (size_t)sp_element_bytes(element);
    memcpy(bits, at + (size_t)i * bytes, bytes);
    switch (element) {
    case SP_ELEMENT_F32:
        memcpy(&narrow, bits, sizeof narrow);
        return (double)narrow;
    case SP_ELEMENT_F64:
        memcpy(&wide, bits, sizeof wide);
        return wide;
    case SP_ELEMENT_BF16:
        memcpy(&half, bits, sizeof half);
        return (double)sp_bf16_to_float(half);
    case SP_ELEMENT_BYTE:
        break;
    }
    return (unsigned char)bits[0];
}

// x as it comes back.
static double as_element(sp_element element, double x)
{
    char bits[WIDEST_ELEMENT];
    store_element(element, bits, 0, x);
    return load_element(element, bits, 0);
}

enum { MOST_RANKS = 6, MOST_PART = 500, GROUPS = 6, STEPS = 150, ROOM = MOST_RANKS * MOST_PART };
enum { ROOM_BYTES = ROOM * WIDEST_ELEMENT };

typedef enum kind { ALL_REDUCE, GATHER, SCATTER, BROADCAST, BARRIER, FLAG, KINDS } kind;

typedef struct step {
    kind kind;
    int group;
    sp_element type;
    sp_comm_op op;
    bool in_place;
    int root, from, to;
    int64_t rows[MOST_RANKS], width; // of each member's part
} step;

typedef struct job {
    sp_comm_world *world;
    sp_runtime *runtime;
    int groups[GROUPS];
    step steps[STEPS];
    sp_comm_flag flags[STEPS];
    uint64_t seed;
    char *mail[MOST_RANKS]; // [STEPS] a number that others copy
} job;

// ---- A step by its definition ----

static int64_t part(const step *s, int member)
{
    return s->rows[member] * s->width;
}

static int64_t before(const step *s, int member)
{
    int64_t sum = 0;
    for (int m = 0; m < member; m++) {
        sum += part(s, m);
    }
    return sum;
}

static double of_rank(const step *s, int index, int rank, int64_t i)
{
    return as_element(s->type, number_at((uint64_t)index, (uint64_t)rank, (uint64_t)i));
}

static double given(const job *j, int index, int member, int64_t i)
{
    const step *s = &j->steps[index];
    return of_rank(s, index, sp_comm_group_rank(j->world, s->group, member), i);
}

// In the order of members; of fp32 and bf16 in fp32, of bf16 rounded at the end.
static double reduced(const job *j, int index, int64_t i)
{
    const step *s = &j->steps[index];
    double wide = given(j, index, 0, i);
    float narrow = (float)wide;
    for (int m = 1; m < sp_comm_group_size(j->world, s->group); m++) {
        double x = given(j, index, m, i);
        wide = s->op == SP_COMM_SUM ? wide + x : fmax(wide, x);
        narrow = s->op == SP_COMM_SUM ? narrow + (float)x : fmaxf(narrow, (float)x);
    }
    return s->type == SP_ELEMENT_F64 ? wide : as_element(s->type, (double)narrow);
}

// Elements of a member's input, and of its result.
static int64_t input_count(const step *s, int size, int me)
{
    return s->kind == BARRIER || s->kind == FLAG ? 1
           : s->kind == GATHER                   ? part(s, me)
                                                 : before(s, size);
}

static int64_t result_count(const step *s, int size, int me)
{
    return s->kind == BARRIER || s->kind == FLAG ? 1
           : s->kind == SCATTER                  ? part(s, me)
                                                 : before(s, size);
}

static double expected(const job *j, int index, int me, int64_t i)
{
    const step *s = &j->steps[index];
    int size = sp_comm_group_size(j->world, s->group);
    int m = 0;
    switch (s->kind) {
    case ALL_REDUCE:
        return reduced(j, index, i);
    case GATHER:
        while (i >= before(s, m + 1)) {
            m++;
        }
        return given(j, index, m, i - before(s, m));
    case SCATTER:
        return reduced(j, index, before(s, me) + i);
    case BROADCAST:
        return given(j, index, s->root, i);
    case BARRIER:
        return given(j, index, (me + 1) % size, 0);
    case FLAG:
    case KINDS:
        break;
    }
    return of_rank(s, index, s->from, 0);
}

// ---- A rank: nothing waits for its machine but by chance, and at the end for all results ----

typedef struct rank_memory {
    sp_runtime *runtime;
    char *in, *out, *log; // of the machine; log: [STEPS] results
    char *caller;         // ROOM_BYTES of the test's
} rank_memory;

static void copy(const rank_memory *r, char *to, const char *from, int64_t bytes)
{
    r->runtime->ops->copy(r->runtime, to, from, bytes);
}

static void give(const rank_memory *r, char *to, const step *s, int index, int rank, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        store_element(s->type, r->caller, i, of_rank(s, index, rank, i));
    }
    r->runtime->ops->upload(r->runtime, to, r->caller, count * sp_element_bytes(s->type));
    memset(r->caller, 0xff, ROOM_BYTES); // it is the caller's again
}

// The flag is raised behind the number, the wait comes before its copy.
static sp_status pass_number(sp_comm *me, job *j, int index, const rank_memory *r, sp_error *err)
{
    const step *s = &j->steps[index];
    int rank = sp_comm_rank(me);
    int member = sp_comm_member(me, s->group);
    int from = s->from;
    sp_status status = SP_OK;
    if (s->kind == BARRIER || rank == from) {
        give(r, j->mail[rank] + index * WIDEST_ELEMENT, s, index, rank, 1);
    }
    if (s->kind == BARRIER) {
        int size = sp_comm_group_size(j->world, s->group);
        from = sp_comm_group_rank(j->world, s->group, (member + 1) % size);
        status = sp_comm_barrier(me, s->group, err);
    } else {
        if (rank == from) {
            sp_comm_flag_raise(me, s->to, &j->flags[index]);
        }
        status =
            rank == s->to ? sp_comm_flag_wait(me, &j->flags[index], from, "a number", err) : SP_OK;
    }
    copy(r, r->log + index * (int64_t)ROOM_BYTES, j->mail[from] + index * WIDEST_ELEMENT,
         s->kind == BARRIER || rank == s->to ? sp_element_bytes(s->type) : 0);
    return status;
}

static sp_status call(sp_comm *me, const step *s, int size, char *in, char *out, sp_error *err)
{
    int64_t all = before(s, size);
    switch (s->kind) {
    case ALL_REDUCE:
        return sp_comm_all_reduce(me, s->group, s->type, s->op, in, out, all, err);
    case GATHER:
        return sp_comm_all_gather(me, s->group, s->type, in, out, s->rows, s->width, err);
    case SCATTER:
        return sp_comm_reduce_scatter(me, s->group, s->type, s->op, in, out, s->rows, s->width,
                                      err);
    case BROADCAST:
    case BARRIER:
    case FLAG:
    case KINDS:
        break;
    }
    return sp_comm_broadcast(me, s->group, s->type, in, out, all, s->root, err);
}

static sp_status run_step(sp_comm *me, job *j, int index, const rank_memory *r, sp_error *err)
{
    const step *s = &j->steps[index];
    int member = sp_comm_member(me, s->group);
    int size = sp_comm_group_size(j->world, s->group);
    if (s->kind == BARRIER || s->kind == FLAG) {
        return pass_number(me, j, index, r, err);
    }
    int64_t own = before(s, member) * sp_element_bytes(s->type);
    char *in = s->in_place && s->kind == GATHER ? r->out + own : r->in;
    char *out = !s->in_place ? r->out : s->kind == GATHER ? r->out : r->in;
    out += s->in_place && s->kind == SCATTER ? own : 0;
    give(r, in, s, index, sp_comm_rank(me), input_count(s, size, member));
    SP_TRY(call(me, s, size, in, out, err));
    copy(r, r->log + index * (int64_t)ROOM_BYTES, out,
         result_count(s, size, member) * sp_element_bytes(s->type));
    return SP_OK;
}

static sp_status check_step(const job *j, int index, int rank, const rank_memory *r, sp_error *err)
{
    const step *s = &j->steps[index];
    int member = sp_comm_member(sp_comm_of(j->world, rank), s->group);
    bool mine = s->kind == FLAG ? rank == s->to : member >= 0;
    int64_t count = mine ? result_count(s, sp_comm_group_size(j->world, s->group), member) : 0;
    r->runtime->ops->download(r->runtime, r->caller, r->log + index * (int64_t)ROOM_BYTES,
                              count * sp_element_bytes(s->type));
    for (int64_t i = 0; i < count; i++) {
        double found = load_element(s->type, r->caller, i);
        double right = expected(j, index, member, i);
        if (memcmp(&found, &right, sizeof found) != 0) {
            return sp_error_set(err, SP_ERR_INTERNAL,
                                "step %d, kind %d, type %d, element %lld: %g "
                                "instead of %g",
                                index, (int)s->kind, (int)s->type, (long long)i, found, right);
        }
    }
    return SP_OK;
}

static sp_status run_script(sp_comm *me, job *j, const rank_memory *r, sp_error *err)
{
    int rank = sp_comm_rank(me);
    sp_prng prng = prng_seeded(j->seed * MOST_RANKS + (uint64_t)rank);
    for (int i = 0; i < STEPS; i++) {
        const step *s = &j->steps[i];
        if (s->kind == FLAG ? rank == s->from || rank == s->to
                            : sp_comm_member(me, s->group) >= 0) {
            sleep_sometimes(&prng, 50, 60);
            SP_TRY(run_step(me, j, i, r, err));
            if (sp_prng_below(&prng, 8) == 0) {
                SP_TRY(check_step(j, i, rank, r, err));
            }
        }
    }
    for (int i = 0; i < STEPS; i++) {
        SP_TRY(check_step(j, i, rank, r, err));
    }
    return SP_OK;
}

static sp_status run_rank(sp_comm *me, void *data, sp_error *err)
{
    job *j = data;
    rank_memory r = {.runtime = j->runtime, .caller = sp_malloc(ROOM_BYTES)};
    r.in = j->mail[sp_comm_rank(me)] + STEPS * WIDEST_ELEMENT;
    r.out = r.in + ROOM_BYTES;
    r.log = r.out + ROOM_BYTES;
    SP_TRY(run_script(me, j, &r, err));
    sp_free(r.caller);
    return SP_OK;
}

// ---- Scripts ----

// Flags, and memory of other ranks, are for ranks of one process.
static step random_step(sp_prng *prng, const job *j, int ranks, bool apart)
{
    step s = {.kind = (kind)sp_prng_below(prng, apart ? BARRIER : KINDS),
              .group = j->groups[sp_prng_below(prng, GROUPS)],
              .op = sp_prng_below(prng, 4) == 0 ? SP_COMM_MAX : SP_COMM_SUM,
              .from = prng_below(prng, ranks),
              .to = prng_below(prng, ranks),
              .width = 1 + (int64_t)sp_prng_below(prng, 3)};
    bool reduces = s.kind == ALL_REDUCE || s.kind == SCATTER;
    s.type = (sp_element)sp_prng_below(prng, reduces ? SP_ELEMENT_BYTE : SP_ELEMENT_BYTE + 1);
    s.in_place = sp_prng_below(prng, 2) == 0;
    bool equal = sp_prng_below(prng, 2) == 0;
    s.root = (int)sp_prng_below(prng, (uint64_t)sp_comm_group_size(j->world, s.group));
    int64_t most = sp_prng_below(prng, 3) == 0 ? MOST_PART : 6;
    for (int i = 0; i < MOST_RANKS; i++) {
        s.rows[i] = (int64_t)sp_prng_below(prng, (uint64_t)(most / s.width) + 1);
        s.rows[i] = equal ? s.rows[0] : s.rows[i];
    }
    return s;
}

static void random_groups(sp_prng *prng, job *j, int ranks)
{
    for (int g = 0; g < GROUPS; g++) {
        int members[MOST_RANKS];
        for (int i = 0; i < ranks; i++) {
            int other = (int)sp_prng_below(prng, (uint64_t)i + 1);
            members[i] = members[other];
            members[other] = i;
        }
        j->groups[g] = group_of(j->world, "some", members, 1 + prng_below(prng, ranks));
    }
}

static void draw_script(job *j, int ranks, bool apart)
{
    sp_prng prng = prng_seeded(j->seed);
    random_groups(&prng, j, ranks);
    for (int i = 0; i < STEPS; i++) {
        j->steps[i] = random_step(&prng, j, ranks, apart);
    }
}

static char *mail_new(sp_runtime *runtime)
{
    char *mail = runtime->ops->allocate(runtime, STEPS * WIDEST_ELEMENT + (2 + STEPS) * ROOM_BYTES);
    assert_non_null(mail);
    return mail;
}

static void check_scripts(sp_runtime *runtime, int ranks, uint64_t seed, bool virtual_time)
{
    static job j;
    j = (job){.runtime = runtime, .seed = seed};
    j.world =
        world_with(ranks, &(sp_comm_options){.one_at_a_time = virtual_time, .runtime = runtime});
    draw_script(&j, ranks, false);
    for (int r = 0; r < ranks; r++) {
        j.mail[r] = mail_new(runtime);
    }
    assert_ranks(j.world, run_rank, &j);
    for (int r = 0; r < ranks; r++) {
        runtime->ops->release(runtime, j.mail[r]);
    }
    sp_comm_world_free(j.world);
}

static void check_queued(uint64_t first_seed, uint64_t seeds, bool guarded, bool virtual_time)
{
    for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++) {
        int ranks = 1 + (int)(seed % MOST_RANKS);
        sp_runtime *runtime = queued_runtime_new(
            &(queued_runtime_options){.ranks = ranks, .seed = seed, .guarded = guarded});
        check_scripts(runtime, ranks, seed, virtual_time);
        queued_runtime_free(runtime);
    }
}

TEST(on_the_cpu)
{
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        check_scripts(sp_runtime_cpu(), ranks, 100 + (uint64_t)ranks, ranks % 2 == 1);
    }
}

TEST_CALL(as_late_as_fences_allow, check_queued(1, 18, false, false))
TEST_CALL(through_the_machine_alone, check_queued(200, 6, true, false))
TEST_CALL(in_virtual_time, check_queued(300, 6, false, true))

// ---- Worlds with one rank each, and a transport between them ----

typedef struct process {
    pthread_t thread;
    sp_transport *transport;
    job job;
    sp_status status;
    sp_error err;
} process;

static void *run_process(void *data)
{
    process *p = data;
    sp_transport *transport = p->transport;
    sp_runtime *cpu = sp_runtime_cpu();
    p->job = (job){.runtime = cpu, .seed = 20 + (uint64_t)transport->ranks};
    p->job.world = world_with(transport->ranks, &(sp_comm_options){.transport = transport});
    draw_script(&p->job, transport->ranks, true);
    p->job.mail[transport->rank] = mail_new(cpu);
    p->status = run_ranks(p->job.world, run_rank, &p->job, &p->err);
    cpu->ops->release(cpu, p->job.mail[transport->rank]);
    sp_comm_world_free(p->job.world);
    return NULL;
}

TEST(over_a_transport)
{
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        static process all[MOST_RANKS];
        threaded_world *world = threaded_world_new(ranks, false);
        for (int r = 0; r < ranks; r++) {
            all[r] = (process){.transport = threaded_rank_at(world, r)};
            assert_int_equal(pthread_create(&all[r].thread, NULL, run_process, &all[r]), 0);
        }
        for (int r = 0; r < ranks; r++) {
            assert_int_equal(pthread_join(all[r].thread, NULL), 0);
        }
        for (int r = 0; r < ranks; r++) {
            must_hold(all[r].status == SP_OK, "rank %d: %s", r, all[r].err.message[0]);
        }
        threaded_world_free(world);
    }
}
