// Communication between two worker threads: latency of a barrier and of a message there and back,
// bandwidth of collectives and of a queue, beside memcpy in two threads in the same run. One JSON
// line on stdout for each. Bytes of memcpy are those written; "written" of a collective are those
// that its ranks write together, so that a ratio of 1 is the speed of plain copies.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/host/cpu_runtime.h"
#include "backends/ranks/comm.h"
#include "sim/base/progress.h"
#include "tests/bench/bench.h"

enum { RANKS = 2, MOST_SAMPLES = 4000, TAG = 1 };

typedef enum what {
    COPY,
    BARRIER,
    PING_PONG,
    ALL_REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    BROADCAST,
    QUEUE,
    WHATS
} what;

static const char *const names[WHATS] = {"memcpy",     "barrier",        "ping_pong", "all_reduce",
                                         "all_gather", "reduce_scatter", "broadcast", "queue"};

typedef struct job {
    sp_comm_world *world;
    int group;
    what what;
    int64_t bytes; // of one rank's large buffer
    int64_t repeats;
    int samples;
    double seconds[MOST_SAMPLES]; // of rank 0
    char *in[RANKS], *out[RANKS];
} job;

static sp_status ping_pong(sp_comm *me, int rank, char *data, size_t bytes)
{
    sp_status status = SP_OK;
    if (rank == 0) {
        status = sp_comm_send(me, 1, TAG, data, bytes, NULL);
    }
    if (status == SP_OK) {
        status = sp_comm_receive(me, 1 - rank, TAG, data, bytes, NULL);
    }
    return status == SP_OK && rank == 1 ? sp_comm_send(me, 0, TAG, data, bytes, NULL) : status;
}

// Of each rank, in gathers and scatters.
static const int64_t rows[RANKS] = {1, 1};

static sp_status once(sp_comm *me, const job *j, int rank)
{
    size_t bytes = (size_t)j->bytes;
    int64_t floats = j->bytes / (int64_t)sizeof(float);
    char *in = j->in[rank];
    char *out = j->out[rank];
    switch (j->what) {
    case COPY:
        memcpy(out, in, bytes);
        return SP_OK;
    case BARRIER:
        return sp_comm_barrier(me, j->group, NULL);
    case PING_PONG:
        return ping_pong(me, rank, in, 8);
    case ALL_REDUCE:
        return sp_comm_all_reduce(me, j->group, SP_ELEMENT_F32, SP_COMM_SUM, in, out, floats, NULL);
    case ALL_GATHER:
        return sp_comm_all_gather(me, j->group, SP_ELEMENT_F32, in, out, rows, floats / RANKS,
                                  NULL);
    case REDUCE_SCATTER:
        return sp_comm_reduce_scatter(me, j->group, SP_ELEMENT_F32, SP_COMM_SUM, in, out, rows,
                                      floats / RANKS, NULL);
    case BROADCAST:
        return sp_comm_broadcast(me, j->group, SP_ELEMENT_F32, in, out, floats, 0, NULL);
    case QUEUE:
        return rank == 0 ? sp_comm_send(me, 1, TAG, in, bytes, NULL)
                         : sp_comm_receive(me, 0, TAG, out, bytes, NULL);
    case WHATS:
        break;
    }
    return SP_ERR_INTERNAL;
}

// Samples of `repeats` calls each; both ranks begin a sample together.
static sp_status run(void *data, int rank, sp_error *err)
{
    job *j = data;
    sp_comm *me = sp_comm_of(j->world, rank);
    sp_status status = SP_OK;
    for (int s = -1; s < j->samples && status == SP_OK; s++) {
        status = sp_comm_barrier(me, j->group, err);
        double begin_s = sp_clock_s();
        for (int64_t i = 0; i < j->repeats && status == SP_OK; i++) {
            status = once(me, j, rank);
        }
        if (status == SP_OK) {
            status = sp_comm_barrier(me, j->group, err);
        }
        if (rank == 0 && s >= 0) {
            j->seconds[s] = (sp_clock_s() - begin_s) / (double)j->repeats;
        }
    }
    return status;
}

static void need(bool condition, const char *text)
{
    if (!condition) {
        fprintf(stderr, "%s\n", text);
        exit(1);
    }
}

static void measure(job *j, bool *pinned)
{
    sp_workers *workers;
    sp_workers_options options = {.pin = true};
    sp_error err = {0};
    need(sp_workers_start(RANKS, &options, run, j, &workers, &err) == SP_OK, "cannot start");
    need(sp_workers_join(workers, 0, &err) == SP_OK, err.message[0]);
    *pinned = sp_workers_are_pinned(workers);
    sp_workers_free(workers);
    qsort(j->seconds, (size_t)j->samples, sizeof j->seconds[0], sp_ascending_doubles);
}

// Bytes that all ranks write together in one call.
static double written(const job *j)
{
    static const double buffers[WHATS] = {[COPY] = 2,           [ALL_REDUCE] = 2, [ALL_GATHER] = 2,
                                          [REDUCE_SCATTER] = 1, [BROADCAST] = 2,  [QUEUE] = 2};
    return buffers[j->what] * (double)j->bytes;
}

static double report(job *j, double limit)
{
    bool pinned;
    measure(j, &pinned);
    double median_s = j->seconds[j->samples / 2];
    double rate = written(j) / median_s * 1e-9;
    bool latency = j->what == BARRIER || j->what == PING_PONG;
    printf(
        "{\"bench\": \"comm\", \"version\": \"%s\", \"what\": \"%s\", \"ranks\": %d, \"pinned\": "
        "%s, \"buffer_bytes\": %lld, \"samples\": %d, \"calls\": %lld, \"min_us\": %.3f, "
        "\"median_us\": %.3f, \"p95_us\": %.3f",
        SP_VERSION, names[j->what], RANKS, pinned ? "true" : "false",
        latency ? 8LL : (long long)j->bytes, j->samples, (long long)j->repeats, j->seconds[0] * 1e6,
        median_s * 1e6, j->seconds[j->samples * 95 / 100] * 1e6);
    if (!latency) {
        printf(", \"written_gb_per_s\": %.2f, \"limit\": \"memcpy\", \"ratio\": %.3f", rate,
               limit > 0 ? rate / limit : 1.0);
    }
    printf("}\n");
    fflush(stdout);
    return rate;
}

// What a rank holds afterwards, before its speed is believed.
static void check_sum(job *j)
{
    bool pinned;
    for (int rank = 0; rank < RANKS; rank++) {
        for (int64_t i = 0; i < j->bytes / (int64_t)sizeof(float); i++) {
            float x = (float)((i * 7 + rank) % 1000);
            memcpy(j->in[rank] + i * (int64_t)sizeof x, &x, sizeof x);
        }
    }
    j->what = ALL_REDUCE;
    j->samples = 1;
    j->repeats = 1;
    measure(j, &pinned);
    for (int64_t i = 0; i < j->bytes / (int64_t)sizeof(float); i++) {
        float x;
        memcpy(&x, j->out[1] + i * (int64_t)sizeof x, sizeof x);
        need(x == (float)(i * 7 % 1000 + (i * 7 + 1) % 1000), "wrong sum");
    }
}

int main(void)
{
    static job j;
    static const int64_t sizes[] = {1 << 16, 1 << 20, 1 << 26};
    const int both[RANKS] = {0, 1};
    const sp_comm_options options = {.runtime = sp_runtime_cpu(), .spins = -1};
    need(sp_comm_world_new(RANKS, &options, &j.world, NULL) == SP_OK, "no world");
    need(sp_comm_group_new(j.world, "both", both, RANKS, &j.group, NULL) == SP_OK, "no group");
    for (int rank = 0; rank < RANKS; rank++) {
        j.in[rank] = calloc(1, 1 << 26);
        j.out[rank] = calloc(1, 1 << 26);
        need(j.in[rank] != NULL && j.out[rank] != NULL, "out of memory");
    }
    j.bytes = 1 << 26;
    check_sum(&j);
    for (j.what = BARRIER; j.what <= PING_PONG; j.what++) {
        j.samples = 1000;
        j.repeats = 1000;
        report(&j, 0);
    }
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        double limit = 0;
        j.bytes = sizes[s];
        j.samples = 30;
        j.repeats = ((int64_t)1 << 29) / j.bytes / 8;
        for (j.what = COPY; j.what < WHATS; j.what++) {
            if (j.what != BARRIER && j.what != PING_PONG) {
                double rate = report(&j, limit);
                limit = j.what == COPY ? rate : limit;
            }
        }
    }
    sp_comm_world_free(j.world);
    for (int rank = 0; rank < RANKS; rank++) {
        free(j.in[rank]);
        free(j.out[rank]);
    }
    return 0;
}
