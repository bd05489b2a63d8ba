// One of several partitions is measured while the others are busy with the same.
#include "sim/cost/profile.h"
#include "tests/gpu/support/clocked_cuda.h"

TEST(a_partition_is_measured_beside_busy_neighbours)
{
    AUTO(sp_profile) profile;
    json_auto_t *document = calibrated_in(PLACES);
    check_tables(document, LOADED);
    assert_true(clocked.delays > 0 && clocked.told_sms > 0);
    must_succeed(sp_profile_from_json(document, "document", &profile, ERR));
    assert_string_equal(profile.name, "fake-1of4");
    assert_close(profile.memory_bytes_per_s, 1e9 * MOVED_PER_NS / LOADED, 1e-3);
    assert_close(profile.kernel_s, 1e-9 * LAUNCH_NS * LOADED, 1e-3);
    assert_close(profile.reference_s, 1e-9 * LOADED * product_ns(2048, 2048, 2048, false), 1e-3);
    // Links are copies between partitions; those between GPUs do not hold here.
    assert_close(profile.nvlink_bytes_per_s, 1e9 * BYTES_PER_NS / LOADED, 1e-3);
    assert_close(profile.nvlink_latency_s, 1e-9 * SMALL_NS * LOADED, 1e-2);
    assert_int_equal(profile.link_level, SP_LEVEL_MEASURED);
}

TEST(whole_alone_and_loaded_are_noted)
{
    size_t i;
    const json_t *note;
    json_auto_t *document = calibrated_in(PLACES);
    const json_t *partition = json_object_get(json_object_get(document, "fit"), "partition");
    assert_int_equal(json_integer_value(json_object_get(partition, "partitions")), PLACES);
    assert_int_equal(json_integer_value(json_object_get(partition, "sms")), 32);
    const json_t *notes = json_object_get(partition, "work");
    assert_int_equal(json_array_size(notes), 3); // a copy, an addition, a product
    json_array_foreach (notes, i, note) {
        double whole_us = json_number_value(json_object_get(note, "whole_us"));
        assert_true(whole_us > 0.0);
        assert_close(json_number_value(json_object_get(note, "alone_us")), ALONE * whole_us, 2e-3);
        assert_close(json_number_value(json_object_get(note, "loaded_us")), LOADED * whole_us,
                     2e-3);
    }
}

TEST(partitions_that_cannot_be_had_are_refused)
{
    for (int i = 0; i < 3; i++) {
        sp_error_clear(ERR);
        json_t *document = NULL;
        fake_cuda_reset(&clocked.api);
        fake.fail = i == 0 ? "GreenCtxCreate" : NULL;
        fake.groups_less = i == 1;
        int places = i < 2 ? PLACES : SP_I_CUDA_MOST_PLACES + 1;
        assert_int_equal(clocked_calibrate(places, &document, ERR),
                         i < 2 ? SP_ERR_INFEASIBLE : SP_ERR_USAGE);
        assert_null(document);
    }
}

// ---- under load ----

typedef struct worker {
    CUstream stream;
    int runs;
} worker;

static int started; // runs of anybody before the delay

static sp_status work(void *context, CUstream stream, sp_error *err)
{
    worker *w = context;
    assert_true(stream == w->stream);
    started += clocked.delays == 0;
    w->runs++;
    fake.clock_ns += 1000;
    return SP_OK;
}

static CUresult first_delay(int64_t ns, CUstream stream)
{
    assert_true(ns > 0 && stream == NULL);
    clocked.delays++;
    return CUDA_SUCCESS;
}

// A first repeat, a warm-up and two batches: every stream has its own context, and no repeat that
// is timed is without neighbours, who start after one delay and go on after the last.
TEST(neighbours_work_longer_than_what_is_timed)
{
    AUTO(sp_i_cuda_bench) bench;
    sp_i_cuda_timing t;
    int place;
    fake_cuda_reset(&clocked.api);
    clocked.delays = started = 0;
    const sp_i_cuda_device device = {&clocked.api, 0};
    must_succeed(sp_i_cuda_bench_init(&device, NULL, 64, &bench, ERR));
    worker workers[3] = {{0}};
    void *contexts[3] = {&workers[0], &workers[1], &workers[2]};
    bench.delay = first_delay;
    bench.neighbours = 2;
    for (place = 1; place < 3; place++) {
        bench.neighbour[place - 1] = workers[place].stream = (CUstream)(void *)&workers[place];
    }
    must_succeed(sp_i_cuda_bench_time_loaded(&bench, work, contexts, 16.5e-6, &t, ERR));
    assert_int_equal(started, 0);
    assert_int_equal(clocked.delays, 4);
    assert_int_equal(t.repeats, 2 * SP_I_CUDA_BATCH);
    assert_int_equal(workers[0].runs, 1 + 3 * SP_I_CUDA_BATCH);
    assert_true(workers[1].runs > workers[0].runs && workers[2].runs == workers[1].runs);
    assert_close(t.median_s, 1e-6, 1e-4);
    // Alone, the neighbours rest.
    int runs = workers[1].runs;
    must_succeed(sp_i_cuda_bench_time(&bench, work, contexts[0], 0.0, &t, ERR));
    assert_int_equal(workers[1].runs, runs);
    assert_int_equal(clocked.delays, 4);
    // What takes longer than its budget has few repeats, after one that warms up.
    assert_int_equal(t.repeats, SP_I_CUDA_LEAST_REPEATS);
}

// What stands beside the work that is timed is other work where it is named: as much of it as takes
// longer than the batch, on each neighbour's own context.
TEST(neighbours_do_the_work_that_is_named)
{
    enum { PIECE_NS = 300 };
    AUTO(sp_i_cuda_bench) bench;
    sp_i_cuda_timing t;
    worker workers[3] = {{0}};
    worker beside[3] = {{0}};
    void *contexts[3] = {&workers[0], NULL, NULL};
    void *others[3] = {NULL, &beside[1], &beside[2]};
    fake_cuda_reset(&clocked.api);
    clocked.delays = 0;
    const sp_i_cuda_device device = {&clocked.api, 0};
    must_succeed(sp_i_cuda_bench_init(&device, NULL, 64, &bench, ERR));
    bench.delay = first_delay;
    bench.neighbours = 2;
    bench.beside = work;
    bench.beside_contexts = others;
    bench.beside_s = 1e-9 * PIECE_NS;
    for (int place = 1; place < 3; place++) {
        bench.neighbour[place - 1] = beside[place].stream = (CUstream)(void *)&beside[place];
    }
    must_succeed(sp_i_cuda_bench_time_loaded(&bench, work, contexts, 16.5e-6, &t, ERR));
    assert_int_equal(workers[0].runs, 1 + 3 * SP_I_CUDA_BATCH);
    // A batch takes 16 us: 16 pieces of 1 us.
    assert_true(beside[1].runs * PIECE_NS >= 3 * SP_I_CUDA_BATCH * 1250);
    assert_int_equal(beside[1].runs, beside[2].runs);
    assert_close(t.median_s, 1e-6, 1e-4);
}

// ---- short pieces ----

static int64_t true_ns;

static sp_status short_work(void *context, CUstream stream, sp_error *err)
{
    fake.clock_ns += true_ns;
    return SP_OK;
}

// Events of a GPU see steps of half a microsecond.
static CUresult coarse_between(float *ms, CUevent start, CUevent end)
{
    sp_cuda_api plain;
    const fake_cuda kept = fake;
    fake_cuda_reset(&plain);
    fake = kept;
    CUresult code = plain.EventElapsedTime(ms, start, end);
    *ms = (float)(5e-4 * floor((double)*ms / 5e-4 + 0.5));
    return code;
}

TEST(short_pieces_are_timed_together)
{
    AUTO(sp_i_cuda_bench) bench;
    sp_i_cuda_timing one, several;
    fake_cuda_reset(&clocked.api);
    clocked.api.EventElapsedTime = coarse_between;
    const sp_i_cuda_device device = {&clocked.api, 0};
    must_succeed(sp_i_cuda_bench_init(&device, NULL, 64, &bench, ERR));
    bench.delay = first_delay;
    true_ns = 2230;
    must_succeed(sp_i_cuda_bench_time(&bench, short_work, NULL, 1e-4, &one, ERR));
    bench.several = true;
    must_succeed(sp_i_cuda_bench_time(&bench, short_work, NULL, 1e-4, &several, ERR));
    assert_true(fabs(one.median_s - 2.23e-6) > 0.2e-6);
    assert_int_equal(one.pieces, 1);
    assert_int_equal(several.pieces, 8);
    // A quarter of a microsecond of eight pieces.
    assert_true(fabs(several.median_s - 2.23e-6) <= 0.25e-6 / 8 + 1e-12);
    // What takes long stands alone.
    true_ns = 12000;
    must_succeed(sp_i_cuda_bench_time(&bench, short_work, NULL, 1e-4, &several, ERR));
    assert_int_equal(several.pieces, 1);
}
