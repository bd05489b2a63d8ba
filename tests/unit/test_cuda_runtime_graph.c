// A captured step on the machine of a GPU: what is kept, what is read again, what is refused, and
// its times; on a fake of CUDA whose graphs do their nodes in a random order that keeps edges
// alone.
#include "backends/cuda/device/stream_context.h"
#include "tests/gpu/support/emulated_backend.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/gpu/support/fake_graph.h"
#include "tests/support/test_main.h"

enum { MEMORY = 200 << 20 };

static void end(sp_runtime *runtime)
{
    emulated_runtime_free(runtime);
    assert_int_equal(fake_graphs.live, 0);
    assert_false(fake_graph_capturing());
}

static void must(sp_status status, const sp_error *err)
{
    if (status != SP_OK) {
        fail_msg("%s", err->message[0]);
    }
}

// Puts the same work down twice: once to be done, once to be kept.
static void capture(sp_runtime *m, void (*put)(sp_runtime *m, void *data), void *data)
{
    sp_error_clear(ERR);
    m->ops->rehearse(m);
    put(m, data);
    must(m->ops->capture_begin(m, ERR), ERR);
    put(m, data);
    must(m->ops->capture_end(m, true, ERR), ERR);
}

static void replay(sp_runtime *m)
{
    sp_error_clear(ERR);
    must(m->ops->replay(m, ERR), ERR);
}

// ---- what is kept and what is read again ----

enum { COUNT = 5 };

typedef struct uploads {
    int64_t *bytes, *numbers, *order; // of the device: [COUNT] each
    int64_t *copy;
    int64_t from[COUNT], index[COUNT]; // of the host
} uploads;

static void upload(sp_runtime *m, void *data)
{
    uploads *u = data;
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    m->ops->upload(m, u->bytes, u->from, sizeof u->from);
    sp_i_cuda_hold(rank);
    sp_i_cuda_stage_numbers(rank, u->numbers, u->index, COUNT, false);
    sp_i_cuda_stage_numbers(rank, u->order, u->index, COUNT, true);
    sp_i_cuda_release(rank);
    m->ops->copy(m, u->copy, u->bytes, sizeof u->from);
}

TEST(numbers_are_read_again_and_bytes_are_not)
{
    sp_runtime *m = emulated_runtime_new(1, true, MEMORY);
    int64_t *room = m->ops->allocate(m, 4 * COUNT * (int64_t)sizeof *room);
    uploads u = {.bytes = room,
                 .numbers = room + COUNT,
                 .order = room + 2 * COUNT,
                 .copy = room + 3 * COUNT,
                 .from = {5, 4, 3, 2, 1},
                 .index = {30, 10, 50, 20, 40}};
    const int64_t was[COUNT] = {5, 4, 3, 2, 1};
    const int64_t first[COUNT] = {1, 3, 0, 4, 2}; // the places of 10, 20, ...
    capture(m, upload, &u);
    memset(room, 0, 4 * sizeof u.from);
    memset(u.from, 0, sizeof u.from);
    replay(m);
    assert_memory_equal(u.bytes, was, sizeof was);
    assert_memory_equal(u.copy, was, sizeof was);
    assert_memory_equal(u.numbers, u.index, sizeof u.index);
    assert_memory_equal(u.order, first, sizeof first);
    const int64_t other[COUNT] = {7, 7, 2, 9, 7};
    const int64_t second[COUNT] = {2, 0, 1, 4, 3}; // equal ones as they come
    memcpy(u.index, other, sizeof other);
    replay(m);
    assert_memory_equal(u.bytes, was, sizeof was);
    assert_memory_equal(u.numbers, other, sizeof other);
    assert_memory_equal(u.order, second, sizeof second);
    m->ops->release(m, room);
    end(m);
}

static void upload_nothing(sp_runtime *m, void *data)
{
    sp_i_cuda_rank *rank = sp_i_cuda_rank_now();
    m->ops->upload(m, data, data, 0);
    sp_i_cuda_hold(rank);
    sp_i_cuda_stage_numbers(rank, data, data, 0, false);
    sp_i_cuda_stage_numbers(rank, data, data, 0, true);
    sp_i_cuda_release(rank);
}

TEST(what_has_no_bytes_needs_no_room)
{
    sp_runtime *m = emulated_runtime_new(1, true, MEMORY);
    sp_error_clear(ERR);
    void *room = m->ops->allocate(m, 64);
    capture(m, upload_nothing, room);
    replay(m);
    must(m->ops->synchronize(m, ERR), ERR);
    m->ops->release(m, room);
    end(m);
}

TEST(a_repetition_is_one_launch)
{
    sp_runtime *m = emulated_runtime_new(3, true, MEMORY);
    int64_t *room = m->ops->allocate(m, 4 * COUNT * (int64_t)sizeof *room);
    uploads u = {room, room + COUNT, room + 2 * COUNT, room + 3 * COUNT, {1}, {1}};
    capture(m, upload, &u);
    fake.log[0] = '\0';
    replay(m);
    replay(m);
    assert_string_equal(fake.log, "GraphLaunch StreamSynchronize GraphLaunch StreamSynchronize ");
    m->ops->release(m, room);
    end(m);
}

// ---- order ----

enum { RANKS = 4, ROUNDS = 40 };

// A number goes round the ranks, each of which copies it after the one before.
typedef struct ring {
    int64_t *at; // [RANKS * ROUNDS + 1]
    sp_fence before;
} ring;

static void go_round(sp_runtime *m, void *data)
{
    ring *r = data;
    for (int i = 0; i < RANKS * ROUNDS; i++) {
        m->ops->enter(m, i % RANKS);
        m->ops->wait(m, r->before);
        m->ops->copy(m, &r->at[i + 1], &r->at[i], sizeof *r->at);
        r->before = m->ops->mark(m);
    }
    m->ops->enter(m, 0);
}

TEST(fences_order_a_repetition)
{
    sp_runtime *m = emulated_runtime_new(RANKS, true, MEMORY);
    int64_t bytes = (RANKS * ROUNDS + 1) * (int64_t)sizeof(int64_t);
    ring r = {.at = m->ops->allocate(m, bytes)};
    memset(r.at, 0, (size_t)bytes);
    capture(m, go_round, &r); // the second round's first wait is for a point before the capture
    for (int64_t i = 1; i < 20; i++) {
        r.at[0] = i;
        replay(m);
        assert_int_equal(r.at[RANKS * ROUNDS], i);
    }
    // A point in the capture is over, whoever waits for it later.
    sp_error_clear(ERR);
    m->ops->enter(m, 1);
    m->ops->wait(m, r.before);
    must(m->ops->synchronize(m, ERR), ERR);
    assert_int_equal(fake_graphs.refused, 0);
    m->ops->release(m, r.at);
    end(m);
}

// ---- times ----

enum { STAMPS = 6 };

static void stamp(sp_runtime *m, void *data)
{
    uint64_t(*stamps)[STAMPS] = data;
    for (int r = 0; r < 2; r++) {
        m->ops->enter(m, r);
        for (int i = 0; i < STAMPS; i++) {
            stamps[r][i] = m->ops->stamp(m);
        }
    }
    m->ops->enter(m, 0);
}

// Every repetition has times of its own, on one clock with stamps beside it, however long ago the
// capture was and however long it takes.
TEST(repetitions_have_their_own_times)
{
    const int64_t tick_ns = 70000000;
    uint64_t stamps[2][STAMPS];
    sp_runtime *m = emulated_runtime_new(2, true, MEMORY);
    capture(m, stamp, stamps);
    fake.tick_ns = tick_ns;
    for (int step = 0; step < 50; step++) {
        fake.clock_ns += 3600000000000;
        int64_t begin_ns = m->ops->stamp_ns(m, m->ops->stamp(m));
        replay(m);
        int64_t end_ns = m->ops->stamp_ns(m, m->ops->stamp(m));
        int64_t sum_ns = 0;
        for (int r = 0; r < 2; r++) {
            for (int i = 0; i < STAMPS; i++) {
                int64_t ns = m->ops->stamp_ns(m, stamps[r][i]);
                assert_true(ns > begin_ns && ns < end_ns);
                assert_true(i == 0 || ns > m->ops->stamp_ns(m, stamps[r][i - 1]));
                sum_ns += ns - begin_ns;
            }
        }
        // Each of the ticks once: 1 to 12, in milliseconds of 24 bits.
        assert_true(llabs(sum_ns - tick_ns * STAMPS * (2 * STAMPS + 1)) < 2 * STAMPS * 100);
        assert_true(llabs(end_ns - begin_ns - tick_ns * (2 * STAMPS + 1)) < 1000);
    }
    end(m);
}

// ---- what is refused ----

static void must_say(const sp_error *err, const char *text)
{
    if (err->count == 0 || strstr(err->message[0], text) == NULL) {
        fail_msg("no \"%s\" in \"%s\"", text, err->count > 0 ? err->message[0] : "");
    }
}

// The rank's error, at the capture's end; it is dropped.
static void capture_must_fail(sp_runtime *m, const char *text)
{
    sp_error_clear(ERR);
    assert_int_not_equal(m->ops->synchronize(m, ERR), SP_OK);
    must_say(ERR, text);
    must(m->ops->capture_end(m, false, ERR), ERR);
    assert_false(fake_graph_capturing());
    end(m);
}

static void begin_capture(sp_runtime *m)
{
    sp_error_clear(ERR);
    m->ops->rehearse(m);
    must(m->ops->capture_begin(m, ERR), ERR);
}

TEST(nothing_in_a_capture_waits)
{
    double out;
    sp_runtime *m = emulated_runtime_new(2, true, MEMORY);
    void *room = m->ops->allocate(m, 64);
    memset(room, 0, 64);
    begin_capture(m);
    m->ops->download(m, &out, room, sizeof out);
    assert_int_equal(fake_graphs.refused, 1);
    capture_must_fail(m, "cudaStreamSynchronize");

    m = emulated_runtime_new(2, true, MEMORY);
    begin_capture(m);
    (void)m->ops->now_ns(m);
    assert_int_equal(fake_graphs.refused, 1);
    capture_must_fail(m, "cudaEventSynchronize");
}

TEST(a_capture_is_as_its_rehearsal)
{
    int64_t x = 1;
    sp_runtime *m = emulated_runtime_new(2, true, MEMORY);
    void *room = m->ops->allocate(m, 64);
    begin_capture(m);
    m->ops->upload(m, room, &x, sizeof x);
    capture_must_fail(m, "GPU 0: a captured step uploads more than its rehearsal");

    m = emulated_runtime_new(2, true, MEMORY);
    begin_capture(m);
    assert_int_equal(m->ops->stamp(m), 0);
    capture_must_fail(m, "GPU 0: a captured step has more stamps than its rehearsal");

    m = emulated_runtime_new(2, true, MEMORY);
    begin_capture(m);
    sp_i_cuda_hold(sp_i_cuda_rank_now());
    assert_null(sp_i_cuda_scratch(sp_i_cuda_rank_now(), 1));
    sp_i_cuda_release(sp_i_cuda_rank_now());
    capture_must_fail(m, "GPU 0: scratch memory of a captured step would move");
}

// What was dropped leaves a machine that works, and may capture again.
TEST(a_dropped_capture_leaves_nothing)
{
    sp_error_clear(ERR);
    sp_runtime *m = emulated_runtime_new(RANKS, true, MEMORY);
    int64_t bytes = (RANKS * ROUNDS + 1) * (int64_t)sizeof(int64_t);
    ring r = {.at = m->ops->allocate(m, bytes)};
    memset(r.at, 0, (size_t)bytes);
    m->ops->rehearse(m);
    must(m->ops->capture_begin(m, ERR), ERR);
    go_round(m, &r);
    must(m->ops->capture_end(m, false, ERR), ERR);
    r.at[0] = 3;
    go_round(m, &r);
    assert_int_equal(r.at[RANKS * ROUNDS], 3);
    capture(m, go_round, &r);
    r.at[0] = 4;
    replay(m);
    assert_int_equal(r.at[RANKS * ROUNDS], 4);
    m->ops->release(m, r.at);
    end(m);
}
