// Times of collectives, on a clock that goes on as they say.
#include "backends/cuda/calibrate/collective_bench.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/test_main.h"

enum { MOST_BYTES = 64 << 10, SIZES = 4 }; // 1, 4, 16 and 64 KiB

static sp_i_cuda_api api;

// What was put, by the group's size.
static int put_by[16];

// 10 us, 1 us for each rank and kind, and a byte a nanosecond; the first of a size takes longer.
static double collective_us(sp_collective kind, int ranks, double bytes)
{
    return 10.0 + (double)ranks + (double)kind + 1e-3 * bytes;
}

static sp_status put(void *context, sp_collective kind, int ranks, const void *in, void *out,
                     int64_t bytes, cudaStream_t stream, sp_error *err)
{
    static int64_t last_bytes;
    const sp_i_cuda_collective_bench *b = context;
    (void)err;
    assert_true(stream == b->stream && b->rank < ranks && ranks <= b->ranks);
    assert_int_equal(bytes % (2 * ranks), 0);
    // Both hold the whole tensor.
    assert_true((const char *)out - (const char *)in >= bytes);
    put_by[ranks]++;
    fake.clock_ns += llround(1e3 * collective_us(kind, ranks, (double)bytes)) +
                     (bytes != last_bytes ? 5000000 : 0);
    last_bytes = bytes;
    return SP_OK;
}

static sp_status measure(int rank, int ranks, json_t **tables, sp_error *err)
{
    static sp_i_cuda_collective_bench bench;
    bench = (sp_i_cuda_collective_bench){.device = {&api, 0},
                                         .rank = rank,
                                         .ranks = ranks,
                                         .put = put,
                                         .context = &bench,
                                         .seed = 1,
                                         .most_bytes = MOST_BYTES,
                                         .source = "a fake clock"};
    memset(put_by, 0, sizeof put_by);
    sp_status status = sp_i_cuda_time_collectives(&bench, tables, err);
    assert_int_equal(fake.live_blocks, 0);
    assert_int_equal(fake.live_events, 0);
    return status;
}

static json_t *profile_with(json_t *tables)
{
    json_t *document = json_loads(
        "{\"schema\": \"slimpack/profile/1\","
        "\"gemm_rate\": {\"level\": \"assumed\", \"source\": \"x\", \"points\": [[512, 100]]},"
        "\"attention\": {"
        "\"forward_causal\": {\"level\": \"assumed\", \"source\": \"x\", \"points\": [[512, 9]]},"
        "\"backward_causal\": {\"level\": \"assumed\", \"source\": \"x\", \"points\": [[512, 9]]}},"
        "\"memory\": {\"level\": \"assumed\", \"source\": \"x\", \"gb_per_s\": 1},"
        "\"kernel\": {\"level\": \"assumed\", \"source\": \"x\", \"us\": 1},"
        "\"links\": {\"level\": \"assumed\", \"source\": \"x\", \"nvlink_gb_per_s\": 380,"
        "\"nvlink_latency_us\": 5, \"nic_efficiency\": 0.9, \"nic_latency_us\": 20},"
        "\"optimizer\": {\"level\": \"assumed\", \"source\": \"x\", \"bytes_per_parameter\": 30}}",
        0, NULL);
    assert_non_null(document);
    assert_int_equal(json_object_set_new(document, "collective_times", tables), 0);
    return document;
}

TEST(tables_are_what_collectives_took)
{
    static const int groups[] = {2, 4, 6};
    sp_profile profile;
    json_t *tables;
    fake_cuda_reset(&api);
    must_succeed(measure(0, 6, &tables, ERR));
    json_t *document = profile_with(tables);
    must_succeed(sp_profile_from_json(document, "document", &profile, ERR));
    assert_int_equal(profile.collective_tables, 3 * SP_COLLECTIVES);
    for (int i = 0; i < profile.collective_tables; i++) {
        const sp_collective_table *t = &profile.collective_times[i];
        assert_int_equal(t->kind, i / 3);
        assert_int_equal(t->ranks, groups[i % 3]);
        assert_int_equal(t->time_s.points, SIZES);
        assert_int_equal(t->time_s.level, SP_LEVEL_MEASURED);
        for (int p = 0; p < SIZES; p++) {
            double least = (double)(1024 << 2 * p);
            double us = collective_us(t->kind, t->ranks, t->time_s.x[p]);
            assert_true(t->time_s.x[p] >= least && t->time_s.x[p] < least + 2.0 * t->ranks);
            // Times pass through milliseconds of 24 bits.
            assert_within(1e6 * t->time_s.y[p], us, 1e-3 * us);
        }
    }
    sp_profile_fini(&profile);
    json_decref(document);
}

// The world's last rank is in the group of all alone, and puts there what the first does.
TEST(ranks_put_the_collectives_of_their_groups)
{
    json_t *tables;
    int first[16];
    fake_cuda_reset(&api);
    must_succeed(measure(0, 5, &tables, ERR));
    memcpy(first, put_by, sizeof first);
    json_decref(tables);
    assert_true(first[2] > 0 && first[2] == first[4] && first[4] == first[5]);
    must_succeed(measure(4, 5, &tables, ERR));
    assert_null(tables);
    for (int ranks = 0; ranks < 16; ranks++) {
        assert_int_equal(put_by[ranks], ranks == 5 ? first[5] : 0);
    }
    must_succeed(measure(2, 5, &tables, ERR));
    assert_int_equal(put_by[2], 0);
    assert_int_equal(put_by[4], first[4]);
}

TEST(a_world_of_one_has_no_collectives)
{
    sp_error_clear(ERR);
    json_t *tables;
    fake_cuda_reset(&api);
    assert_int_equal(measure(0, 1, &tables, ERR), SP_ERR_USAGE);
    assert_null(tables);
}

TEST(failed_calls_leave_nothing_behind)
{
    static const char *const calls[] = {"Malloc", "EventCreateWithFlags", "EventRecord",
                                        "EventElapsedTime"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        sp_error_clear(ERR);
        json_t *tables;
        fake_cuda_reset(&api);
        fake.fail = calls[i];
        assert_int_not_equal(measure(0, 2, &tables, ERR), SP_OK);
        assert_null(tables);
    }
}
