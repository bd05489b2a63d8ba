// Sweeps by several ranks, which are threads here that send messages through memory: same lines as
// by one, also where ranks fall silent.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/sweep/run.h"
#include "tests/support/test_main.h"

enum { MOST_RANKS = 4, THREADS = 2 };
enum { POINTS = 240 };
enum { BLOCK = 4 }; // tags of blocks of points, from this one on

// ---- the messages ----

typedef struct letter {
    sweep_message message;
    struct letter *next;
} letter;

typedef struct net {
    pthread_mutex_t mutex;
    letter *first[MOST_RANKS], **end[MOST_RANKS]; // to each rank
    int sent[MOST_RANKS];                         // by each
    int most[MOST_RANKS]; // after so many messages nothing of it arrives; 0: all do
    int workers;          // threads of rank 0, and blocks that it has elsewhere
    int64_t largest;      // points of a block that rank 0 asked for
    bool too_large;       // one of these leaves too little to the other workers
} net;

typedef struct end {
    sweep_transport base; // first
    net *net;
    sweep_ending how; // in the end
} end;

// The combinations of a block are the numbers of its points, in a grid without a condition.
static void note_block(net *n, const sweep_message *asked)
{
    int64_t first = 0;
    int64_t count = (int64_t)(asked->bytes / sizeof first);
    memcpy(&first, asked->data, sizeof first);
    n->largest = count > n->largest ? count : n->largest;
    n->too_large = n->too_large || (count > 1 && count * n->workers > POINTS - first);
}

static sp_status put(sweep_transport *transport, const sweep_message *message, sp_error *err)
{
    net *n = ((end *)(void *)transport)->net;
    letter *l = calloc(1, sizeof *l);
    assert_non_null(l);
    (void)err;
    l->message = *message;
    l->message.rank = transport->rank;
    l->message.data = malloc(message->bytes + 1);
    assert_non_null(l->message.data);
    if (message->bytes > 0) {
        memcpy(l->message.data, message->data, message->bytes);
    }
    pthread_mutex_lock(&n->mutex);
    int most = n->most[transport->rank];
    if (transport->rank == 0 && message->tag >= BLOCK) {
        note_block(n, message);
    }
    if (++n->sent[transport->rank] <= most || most == 0) {
        *n->end[message->rank] = l;
        n->end[message->rank] = &l->next;
        l = NULL;
    }
    pthread_mutex_unlock(&n->mutex);
    if (l != NULL) {
        free(l->message.data);
        free(l);
    }
    return SP_OK;
}

static bool get(sweep_transport *transport, sweep_message *message)
{
    net *n = ((end *)(void *)transport)->net;
    pthread_mutex_lock(&n->mutex);
    letter *l = n->first[transport->rank];
    if (l != NULL) {
        n->first[transport->rank] = l->next;
        n->end[transport->rank] =
            l->next != NULL ? n->end[transport->rank] : &n->first[transport->rank];
        *message = l->message;
    }
    pthread_mutex_unlock(&n->mutex);
    free(l);
    return l != NULL;
}

static void forget(sweep_transport *transport, int rank)
{
    (void)transport;
    (void)rank;
}

static void note_end(sweep_transport *transport, sweep_ending how, int exit_status)
{
    (void)exit_status;
    ((end *)(void *)transport)->how = how;
}

static void net_begin(net *n, end ends[MOST_RANKS], int ranks)
{
    *n = (net){.workers = 1 + 2 * THREADS * (ranks - 1)};
    pthread_mutex_init(&n->mutex, NULL);
    for (int r = 0; r < ranks; r++) {
        n->end[r] = &n->first[r];
        ends[r] = (end){.net = n,
                        .base = {.rank = r,
                                 .ranks = ranks,
                                 .silent_s = 0.3,
                                 .send = put,
                                 .receive = get,
                                 .forget = forget,
                                 .end = note_end}};
    }
}

static void net_end(net *n)
{
    for (int r = 0; r < MOST_RANKS; r++) {
        for (letter *l = n->first[r]; l != NULL;) {
            letter *next = l->next;
            free(l->message.data);
            free(l);
            l = next;
        }
    }
    pthread_mutex_destroy(&n->mutex);
}

// ---- the ranks ----

typedef struct other {
    end *transport;
    sp_status status;
    pthread_t thread;
} other;

static void *be_other(void *argument)
{
    other *o = argument;
    sweep_ranks *ranks = NULL;
    sp_error err = {0};
    o->status = sweep_ranks_begin(&o->transport->base, THREADS, &ranks, &err);
    if (o->status == SP_OK) {
        o->status = sweep_ranks_serve(ranks, &err);
    }
    sweep_ranks_end(ranks, sp_status_exit(o->status));
    return NULL;
}

// Of POINTS points.
static json_t *make_sweep(void)
{
    return json_pack("{s:{s:{s:i, s:i, s:i}}, s:{s:[s, s, s], s:[i, i, i, i], "
                     "s:[i, i, i, i, i, i, i, i, i, i], s:[i, i]}}",
                     "base", "uniform_costs", "f_ms", 1, "b_ms", 1, "w_ms", 1, "grid",
                     "schedule.kind", "gpipe", "1f1b", "interleaved", "parallel.pp", 1, 2, 4, 8,
                     "schedule.microbatches", 8, 16, 24, 32, 40, 48, 56, 64, 72, 80,
                     "parallel.chunks_per_rank", 1, 2);
}

static void run_first(sweep_ranks *ranks, int64_t search, const char *path)
{
    sweep_spec spec;
    sweep_summary summary;
    must_succeed(sweep_spec_from_json(make_sweep(), "sweep.json", &spec, ERR));
    const sweep_run_options options = {
        .threads = 1, .ranks = ranks, .quiet = true, .choice = {.search = search}};
    must_succeed(sweep_summary_begin(&summary, &spec, NULL, ERR));
    if (search > 0) {
        summary.options.front = true;
        summary.options.x = SWEEP_ITERATION_MS;
        summary.options.y = SWEEP_BUBBLE_RATIO;
    }
    remove(path);
    must_succeed(sweep_run(&spec, path, &options, &summary, ERR));
    sweep_summary_fini(&summary);
    sweep_spec_fini(&spec);
}

static void must_be_equal(const char *a, const char *b)
{
    FILE *files[] = {fopen(a, "rb"), fopen(b, "rb")};
    assert_non_null(files[0]);
    assert_non_null(files[1]);
    int bytes[2];
    do {
        bytes[0] = fgetc(files[0]);
        bytes[1] = fgetc(files[1]);
        assert_int_equal(bytes[0], bytes[1]);
    } while (bytes[0] != EOF);
    fclose(files[0]);
    fclose(files[1]);
}

// Runs with ranks of which number r sends most[r] messages, and compares the lines with those of
// one process. Returns the points of the largest block that rank 0 asked for.
static int64_t run_ranks(int count, const int most[MOST_RANKS], int64_t search,
                         other others[MOST_RANKS])
{
    net n;
    end ends[MOST_RANKS];
    sweep_ranks *ranks = NULL;
    char alone[] = "/tmp/slimpack-alone-XXXXXX";
    char together[] = "/tmp/slimpack-ranks-XXXXXX";
    assert_true(mkstemp(alone) >= 0 && mkstemp(together) >= 0);
    run_first(NULL, search, alone);
    net_begin(&n, ends, count);
    for (int r = 0; r < count; r++) {
        n.most[r] = most[r];
        others[r] = (other){.transport = &ends[r]};
        if (r > 0) {
            assert_int_equal(pthread_create(&others[r].thread, NULL, be_other, &others[r]), 0);
        }
    }
    must_succeed(sweep_ranks_begin(&ends[0].base, 1, &ranks, ERR));
    run_first(ranks, search, together);
    sweep_ranks_end(ranks, 0);
    for (int r = 1; r < count; r++) {
        pthread_join(others[r].thread, NULL);
    }
    bool silent = false;
    for (int r = 1; r < count; r++) {
        silent = silent || most[r] > 0;
    }
    assert_int_equal(ends[0].how, silent ? SWEEP_END_ALL : SWEEP_END_TOGETHER);
    must_be_equal(alone, together);
    assert_true(search > 0 || !n.too_large);
    remove(alone);
    remove(together);
    net_end(&n);
    return n.largest;
}

static const int all_speak[MOST_RANKS] = {0};

TEST(lines_do_not_depend_on_ranks)
{
    other others[MOST_RANKS];
    int64_t largest = 0;
    for (int count = 1; count <= MOST_RANKS; count++) {
        int64_t of_count = run_ranks(count, all_speak, 0, others);
        largest = of_count > largest ? of_count : largest;
        for (int r = 1; r < count; r++) {
            assert_int_equal(others[r].status, SP_OK);
        }
    }
    // These points are quick: they go by the dozen, but for the last ones.
    assert_true(largest > 1);
}

TEST(a_search_does_not_depend_on_ranks)
{
    other others[MOST_RANKS];
    run_ranks(3, all_speak, 150, others);
}

// The first message of a rank is its word, others are blocks of points or beats.
TEST(points_of_a_silent_rank_are_evaluated_by_others)
{
    other others[MOST_RANKS];
    run_ranks(3, (const int[MOST_RANKS]){0, 0, 3}, 0, others);
    run_ranks(3, (const int[MOST_RANKS]){0, 1, 2}, 0, others);
}

// A sweep needs rank 0: the others end with an error that says what to do.
TEST(ranks_end_where_rank_0_is_silent)
{
    net n;
    end ends[MOST_RANKS];
    net_begin(&n, ends, 2);
    n.most[0] = 1;
    other o = {.transport = &ends[1]};
    assert_int_equal(pthread_create(&o.thread, NULL, be_other, &o), 0);
    sweep_ranks *ranks = NULL;
    must_succeed(sweep_ranks_begin(&ends[0].base, 1, &ranks, ERR));
    pthread_join(o.thread, NULL);
    assert_int_equal(o.status, SP_ERR_IO);
    assert_int_equal(ends[1].how, SWEEP_END_ALONE);
    sweep_ranks_end(ranks, 0);
    net_end(&n);
}
