// A calibration by several processes with a GPU each: threads of this one, on a fake NCCL; rank 0's
// GPU is the fake with a clock (clocked_cuda.h).
#include <pthread.h>

#include "backends/cuda/calibration.h"
#include "backends/cuda/multi_process.h"
#include "sim/cost/profile.h"
#include "tests/gpu/support/clocked_cuda.h"
#include "tests/gpu/support/fake_nccl.h"
#include "tests/gpu/support/gpu_ranks.h"
#include "tests/support/initializers.h"

enum { LONG_WAIT_MS = 60000 };

// Untied embeddings 2 x 128, a norm of 8, three layers of 464: attention 4 x 64, MLP 3 x 64, norms
// 2 x 8. 1656 gradients of 4 bytes are more than 4 KiB.
static const sp_model tiny = {.name = "tiny", LLAMA_SHAPE(3, 8, 8, 1, 1, 16)};
enum { SIZES = 3, KINDS = SP_COLLECTIVES }; // 1, 4 and 16 KiB

typedef struct process {
    sp_i_place place;
    sp_model model;
    int wait_ms;
    sp_status status;
    sp_error err;
    json_t *document;
} process;

static process processes[FAKE_NCCL_RANKS];
static sp_i_nccl_api nccl_api;
static sp_cuda_api nccl_cuda;
static sp_cuda_api plain;     // the fake's own
static bool fails_to_measure; // rank 0
static bool gpus_differ;
static _Thread_local int own_rank;

static CUresult stream_new(CUstream *stream, unsigned flags, int priority)
{
    *stream = (CUstream)(void *)&fake_nccl_stream;
    return flags == CU_STREAM_NON_BLOCKING ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult stream_free(CUstream stream)
{
    return (void *)stream == (void *)&fake_nccl_stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Rank 1's GPU has failed, and no other's work is over without it.
static CUresult query_beside_a_failure(CUstream stream)
{
    return own_rank == 1 ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_NOT_READY;
}

// Equal GPUs, or rank 1's is another.
static CUresult device_name(char *name, int bytes, CUdevice device)
{
    snprintf(name, (size_t)bytes, "NVIDIA %s", gpus_differ && device == 1 ? "Other" : "Fake");
    return CUDA_SUCCESS;
}

// Each record of an event takes a while, so that collectives do; copies are real again.
static sp_status measure(void *context, const sp_i_cuda_device *device, json_t **document,
                         sp_error *err)
{
    assert_true(context == &processes[0] && device->index == 0);
    if (fails_to_measure) {
        return sp_error_set(err, SP_ERR_INTERNAL, "no power");
    }
    sp_status status = clocked_calibrate(1, document, err);
    clocked.api.MemcpyAsync = plain.MemcpyAsync;
    clocked.api.MemcpyHtoDAsync = plain.MemcpyHtoDAsync;
    fake.tick_ns = 5000;
    return status;
}

static sp_status calibrate(int rank, void *context, sp_error *err)
{
    process *me = &processes[rank];
    own_rank = me->place.rank;
    const sp_i_cuda_team team = {.place = &me->place,
                                 .api = &clocked.api,
                                 .model = &me->model,
                                 .seed = 1,
                                 .wait_ms = me->wait_ms,
                                 .nccl = &nccl_api};
    return sp_i_cuda_calibrate_together(&team, measure, me, &me->document, err);
}

static void *process_main(void *context)
{
    process *me = context;
    me->status = calibrate(me->place.rank, NULL, &me->err);
    return NULL;
}

static void reset(int ranks)
{
    const sp_i_place place = gpu_ranks_place(ranks);
    fake_nccl_reset(&nccl_api, &nccl_cuda);
    fake_cuda_reset(&clocked.api);
    fake.devices = FAKE_NCCL_RANKS;
    plain = clocked.api;
    fails_to_measure = gpus_differ = false;
    clocked.api.DeviceGetName = device_name;
    clocked.api.StreamQuery = nccl_cuda.StreamQuery;
    clocked.api.StreamCreateWithPriority = stream_new;
    clocked.api.StreamDestroy = stream_free;
    for (int i = 0; i < ranks; i++) {
        processes[i] = (process){.place = place, .model = tiny, .wait_ms = LONG_WAIT_MS};
        processes[i].place.rank = processes[i].place.local_rank = i;
    }
}

// Rank 0 is this thread.
static void run(int ranks)
{
    pthread_t threads[FAKE_NCCL_RANKS];
    for (int i = 1; i < ranks; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, process_main, &processes[i]), 0);
    }
    (void)process_main(&processes[0]);
    for (int i = 1; i < ranks; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(fake.live_blocks, 0);
    assert_int_equal(fake.live_events, 0);
    assert_int_equal(atomic_load(&nccl.live), 0);
    assert_false(atomic_load(&nccl.stream_was_other));
}

static void check_collectives(const json_t *tables, int ranks, const char *source)
{
    static const char *const kinds[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"};
    size_t i;
    const json_t *table;
    assert_int_equal(json_array_size(tables), 2 * KINDS);
    json_array_foreach (tables, i, table) {
        const int members = i % 2 == 0 ? 2 : ranks;
        const json_t *points = json_object_get(table, "points");
        assert_string_equal(json_string_value(json_object_get(table, "kind")), kinds[i / 2]);
        assert_int_equal(json_integer_value(json_object_get(table, "ranks")), members);
        assert_string_equal(json_string_value(json_object_get(table, "level")), "measured");
        assert_non_null(strstr(json_string_value(json_object_get(table, "source")), source));
        assert_int_equal(json_array_size(points), SIZES);
        for (int p = 0; p < SIZES; p++) {
            const json_t *point = json_array_get(points, (size_t)p);
            // Up to the next multiple of a bf16 for each member twice.
            double least = 1024 << 2 * p;
            double bytes = json_number_value(json_array_get(point, 0));
            assert_true(bytes >= least && bytes < least + 2.0 * members);
            assert_true(json_number_value(json_array_get(point, 1)) >= 4.9);
        }
    }
}

TEST(all_have_rank_0s_profile_and_the_times_of_collectives)
{
    for (int ranks = 3; ranks <= 4; ranks++) {
        char source[120];
        reset(ranks);
        run(ranks);
        for (int i = 0; i < ranks; i++) {
            assert_string_equal(processes[i].err.message[0], "");
            assert_int_equal(processes[i].status, SP_OK);
            assert_true(json_equal(processes[i].document, processes[0].document));
        }
        check_tables(processes[0].document, 1);
        snprintf(source, sizeof source,
                 "NCCL 2.28.9 between GPUs of a node with %d of NVIDIA Fake, CUDA 13.0; bf16",
                 ranks);
        check_collectives(json_object_get(processes[1].document, "collective_times"), ranks,
                          source);
        // What NCCL was given: bf16 numbers, 16 KiB of them at most.
        assert_non_null(strstr(nccl.log, "AllReduce bf16 512; "));
        for (int i = 0; i < ranks; i++) {
            json_decref(processes[i].document);
        }
    }
}

TEST(the_document_is_a_profile)
{
    AUTO(sp_profile) profile;
    reset(2);
    run(2);
    assert_int_equal(processes[0].status, SP_OK);
    must_hold(sp_profile_from_json(processes[0].document, "document", &profile, ERR) == SP_OK, "%s",
              ERR->message[0]);
    assert_int_equal(profile.collective_tables, KINDS);
    json_decref(processes[0].document);
    json_decref(processes[1].document);
}

TEST(one_process_alone_has_no_tables)
{
    json_auto_t *document = calibrated_in(1);
    assert_null(json_object_get(document, "collective_times"));
}

static void must_end(int ranks, int rank, sp_status status, const char *text)
{
    job_end end = job_run(ranks, calibrate, NULL);
    must_hold(end.rank == rank && end.status == status && strstr(end.text, text) != NULL,
              "rank %d: '%s' is not in '%s'", end.rank, text, end.text);
}

TEST(a_failure_of_one_ends_the_job)
{
    // While the others wait for rank 0.
    reset(3);
    fails_to_measure = true;
    must_end(3, 0, SP_ERR_INTERNAL, "no power");
    // At NCCL's begin.
    reset(3);
    nccl.fail = "CommInitRank";
    nccl.fail_rank = 2;
    nccl.fail_code = ncclInvalidUsage;
    must_end(3, 2, SP_ERR_USAGE, "GPU 2: group 'all' of 3: ncclCommInitRank failed");
    // On a GPU while the other waits for it.
    reset(2);
    clocked.api.StreamQuery = query_beside_a_failure;
    must_end(2, 1, SP_ERR_INTERNAL, "GPU 1: cuStreamQuery failed");
}

TEST(ranks_that_do_not_fit_are_said)
{
    reset(2);
    gpus_differ = true;
    must_end(2, 1, SP_ERR_USAGE, "GPU NVIDIA Other, model ");
    reset(3);
    processes[2].place.local_rank = 9;
    must_end(3, 2, SP_ERR_USAGE,
             "backend 'cuda': rank 2 is number 9 of its machine, which has no device 9");
    reset(2);
    processes[1].model.hidden = 16;
    must_end(2, 1, SP_ERR_USAGE, "rank 1 has 2 ranks, NCCL 2.28.9, machine ");
}

TEST(tensors_are_as_large_as_the_models_gradients)
{
    sp_model model = tiny;
    assert_int_equal(sp_i_cuda_most_exchanged_bytes(&model), 16 << 10);
    model.layers = 1; // 728 of 4 bytes
    assert_int_equal(sp_i_cuda_most_exchanged_bytes(&model), 4 << 10);
    assert_int_equal(sp_model_builtin("llama-7b", &model, ERR), SP_OK);
    assert_int_equal(sp_i_cuda_most_exchanged_bytes(&model), 256 << 20);
}
