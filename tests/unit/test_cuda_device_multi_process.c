// Whether the ranks of a plan are processes, which GPU each takes, and what they must have in
// common.
#include "backends/cuda/distributed/multi_process.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/initializers.h"
#include "tests/support/plan_sample.h"
#include "tests/support/test_main.h"

static const sp_run_request base = {.clock = SP_CLOCK_WALL, RUN_STEPS(SP_BF16, 3, 1)};

// A plan of 2 pipeline ranks.
static void make(plan_sample *s)
{
    plan_sample_make(SP_CAP_PIPELINE, &base, s);
    assert_int_equal(sp_layout_ranks(&s->plan.layout), 2);
}

static bool is_multi_process(const sp_run_request *request, sp_i_cuda_ranks ranks, int processes,
                             sp_status expected)
{
    const sp_i_cuda_process_options chosen = {.ranks = ranks};
    const sp_i_place place = {.ranks = processes};
    bool found = false;
    assert_int_equal(sp_i_cuda_is_multi_process(request, &chosen, &place, &found, NULL), expected);
    return found;
}

TEST(ranks_are_processes_or_not)
{
    plan_sample s;
    make(&s);
    sp_run_request request = s.request;
    request.clock = SP_CLOCK_WALL;
    assert_false(is_multi_process(&request, SP_I_CUDA_AUTO, 1, SP_OK));
    assert_true(is_multi_process(&request, SP_I_CUDA_AUTO, 2, SP_OK));
    assert_true(is_multi_process(&request, SP_I_CUDA_NCCL, 2, SP_OK));
    assert_false(is_multi_process(&request, SP_I_CUDA_THREADS, 2, SP_OK));
    (void)is_multi_process(&request, SP_I_CUDA_AUTO, 3, SP_ERR_USAGE);
    (void)is_multi_process(&request, SP_I_CUDA_NCCL, 1, SP_ERR_USAGE);
    request.clock = SP_CLOCK_VIRTUAL;
    assert_false(is_multi_process(&request, SP_I_CUDA_AUTO, 1, SP_OK));
    (void)is_multi_process(&request, SP_I_CUDA_AUTO, 2, SP_ERR_USAGE);
    plan_sample_fini(&s);
}

TEST(options)
{
    sp_backend_option set[2] = {{"transport", "threads"}, {"nccl_mib", "5"}};
    sp_run_request request = base;
    sp_i_cuda_process_options chosen;
    assert_int_equal(sp_i_cuda_process_options_read(&request, &chosen, NULL), SP_OK);
    assert_int_equal(chosen.ranks, SP_I_CUDA_AUTO);
    assert_true(chosen.spare_bytes == (int64_t)2 << 30);
    request.options = set;
    request.option_count = 2;
    assert_int_equal(sp_i_cuda_process_options_read(&request, &chosen, NULL), SP_OK);
    assert_int_equal(chosen.ranks, SP_I_CUDA_THREADS);
    assert_true(chosen.spare_bytes == (int64_t)5 << 20);
    static const char *const wrong[] = {"", "x", "5x", "-1", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        set[1].value = wrong[i];
        assert_int_equal(sp_i_cuda_process_options_read(&request, &chosen, NULL), SP_ERR_USAGE);
    }
    set[1].value = "0";
    set[0].value = "NCCL";
    assert_int_equal(sp_i_cuda_process_options_read(&request, &chosen, NULL), SP_ERR_USAGE);
}

TEST(devices)
{
    static const struct {
        int count, device, local_rank, own; // own -1: none
    } cases[] = {{8, 0, 0, 0}, {8, 0, 7, 7},   {8, 2, 3, 5},  {4, 2, 2, -1},
                 {1, 0, 5, 0}, {4, 0, -1, -1}, {1, 0, -1, 0}, {2, 1, 0, 1}};
    sp_i_cuda_api api;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const sp_i_place place = {.rank = 9, .ranks = 16, .local_rank = cases[i].local_rank};
        int own = -1;
        fake_cuda_reset(&api);
        fake.devices = cases[i].count;
        sp_status status = sp_i_cuda_process_device(&api, &place, cases[i].device, &own, NULL);
        assert_int_equal(status, cases[i].own >= 0 ? SP_OK : SP_ERR_USAGE);
        assert_true(status != SP_OK || own == cases[i].own);
    }
}

TEST(timeouts)
{
    sp_run_request request = base;
    assert_int_equal(sp_i_cuda_timeout_ms(&request), 600000);
    request.timeout_ns = 1;
    assert_int_equal(sp_i_cuda_timeout_ms(&request), 1);
    request.timeout_ns = 2500000000;
    assert_int_equal(sp_i_cuda_timeout_ms(&request), 2500);
    request.timeout_ns = INT64_MAX;
    assert_int_equal(sp_i_cuda_timeout_ms(&request), INT32_MAX);
}

static uint32_t hash_of(const sp_run_request *request)
{
    uint32_t hash = 0;
    assert_int_equal(sp_i_cuda_request_hash(request, &hash, NULL), SP_OK);
    return hash;
}

// Whatever differs shows; where it lies does not.
TEST(what_processes_have_in_common)
{
    plan_sample s, same;
    make(&s);
    make(&same);
    const uint32_t hash = hash_of(&s.request);
    assert_int_equal(hash_of(&same.request), hash);
    sp_run_request request = s.request;
    sp_model model = {.name = "a", .layers = 2};
    sp_memory_options memory = {.recompute = SP_RECOMPUTE_FULL};
    sp_backend_option option = {"clip", "1"};
    request.seed++;
    assert_int_not_equal(hash_of(&request), hash);
    request = s.request;
    request.steps++;
    assert_int_not_equal(hash_of(&request), hash);
    request = s.request;
    request.model = &model;
    const uint32_t with_model = hash_of(&request);
    model.layers++;
    assert_int_not_equal(with_model, hash);
    assert_int_not_equal(hash_of(&request), with_model);
    request = s.request;
    request.memory = &memory;
    assert_int_not_equal(hash_of(&request), hash);
    request = s.request;
    request.options = &option;
    request.option_count = 1;
    const uint32_t with_option = hash_of(&request);
    option.value = "2";
    assert_int_not_equal(with_option, hash);
    assert_int_not_equal(hash_of(&request), with_option);
    // Two actions of a rank change places.
    sp_stage_plan *stage = &s.plan.stages[0];
    assert_true(stage->count > 1);
    sp_action first = stage->actions[0];
    stage->actions[0] = stage->actions[1];
    stage->actions[1] = first;
    assert_int_not_equal(hash_of(&s.request), hash);
    plan_sample_fini(&s);
    plan_sample_fini(&same);
}

TEST(the_environment)
{
    static const char *const names[] = {"RANK", "WORLD_SIZE", "CUDA_MODULE_LOADING"};
    int rank = -1, ranks = -1;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(unsetenv(names[i]), 0);
    }
    assert_int_equal(sp_i_cuda_process(&rank, &ranks, NULL), SP_OK);
    assert_int_equal(rank, 0);
    assert_int_equal(ranks, 1);
    assert_null(getenv("CUDA_MODULE_LOADING"));
    assert_int_equal(setenv("RANK", "3", 1), 0);
    assert_int_equal(sp_i_cuda_process(&rank, &ranks, NULL), SP_ERR_USAGE);
    assert_int_equal(setenv("WORLD_SIZE", "4", 1), 0);
    assert_int_equal(setenv("SLIMPACK_RENDEZVOUS", ".", 1), 0);
    assert_int_equal(setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8", 1), 0);
    assert_int_equal(sp_i_cuda_process(&rank, &ranks, NULL), SP_OK);
    assert_int_equal(rank, 3);
    assert_int_equal(ranks, 4);
    assert_string_equal(getenv("CUDA_MODULE_LOADING"), "EAGER");
    assert_string_equal(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "8");
    assert_string_equal(getenv("NCCL_RUNTIME_CONNECT"), "0");
}
