// Which of the processes of a run this one is, how they meet, whether the ranks of a plan are
// processes, which GPU each takes, and what they must have in common.
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/cuda/multi_process.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/initializers.h"
#include "tests/support/job.h"
#include "tests/support/plan_sample.h"
#include "tests/support/test_main.h"

// ---- the environment ----

typedef struct variable {
    const char *name;
    char *value;
} variable;

static const variable *environment;

static char *look_up(const char *name)
{
    for (const variable *v = environment; v->name != NULL; v++) {
        if (strcmp(v->name, name) == 0) {
            return v->value;
        }
    }
    return NULL;
}

static sp_i_place place_read;
static sp_error error;

static sp_status read_place(const variable *variables)
{
    environment = variables;
    sp_error_clear(&error);
    return sp_i_place_read(look_up, &place_read, &error);
}

static void must_be(const variable *variables, int rank, int ranks, int local_rank,
                    const char *file, const char *named)
{
    assert_int_equal(read_place(variables), SP_OK);
    assert_int_equal(place_read.rank, rank);
    assert_int_equal(place_read.ranks, ranks);
    assert_int_equal(place_read.local_rank, local_rank);
    assert_true(file == NULL || strcmp(place_read.file, file) == 0);
    assert_string_equal(place_read.variable != NULL ? place_read.variable : "none", named);
}

#define PLACE(rank, ranks, local_rank, file, named, ...) \
    must_be((variable[]){__VA_ARGS__, {0}}, rank, ranks, local_rank, file, named)

TEST(launchers_are_read)
{
    PLACE(0, 1, 0, NULL, "none", {"MASTER_PORT", "1"});
    PLACE(5, 8, 1, "/shared/meet/j7-29500", "RANK", {"RANK", "5"}, {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"}, {"SLIMPACK_RENDEZVOUS", "/shared/meet"}, {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RUN_ID", "j7"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_ID", "0"},
          {"SLURM_JOB_ID", "12"});
    PLACE(3, 4, 2, "/shared/mine", "OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
          {"SLIMPACK_RENDEZVOUS", "/shared"}, {"SLIMPACK_RUN_ID", "mine"}, {"SLURM_JOB_ID", "12"});
    PLACE(3, 4, 2, "/shared/prterun-n1-77-1", "OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
          {"SLIMPACK_RENDEZVOUS", "/shared"}, {"PMIX_NAMESPACE", "prterun-n1-77@1"},
          {"SLURM_JOB_ID", "12"});
    PLACE(1, 2, 0, NULL, "PMI_RANK", {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"SLURM_LOCALID", "0"},
          {"MPI_LOCALNRANKS", "2"});
    PLACE(2, 4, 2, "n1/12-0-29500", "SLURM_PROCID", {"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"},
          {"SLURM_LOCALID", "2"}, {"SLURM_JOB_ID", "12"}, {"SLIMPACK_RENDEZVOUS", "n1"},
          {"MASTER_PORT", "29500"}, {"SLURM_STEP_ID", "0"});
    // A batch script has SLURM_PROCID=0 and SLURM_NTASKS=4 where no step was started.
    PLACE(0, 1, 0, NULL, "none", {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"},
          {"SLURM_LOCALID", "2"}, {"SLURM_JOB_ID", "12"}, {"SLIMPACK_RENDEZVOUS", "n1"});
}

// Ranks of one machine need no folder that others see; the name of their run is a file's.
TEST(one_machine_has_a_folder_of_its_own)
{
    char file[2][80];
    for (int i = 0; i < 2; i++) {
        snprintf(file[i], sizeof file[i], "/tmp/slimpack-%lu/%s", (unsigned long)getuid(),
                 i == 0 ? "---a-b-29500" : "run");
    }
    PLACE(0, 2, -1, file[0], "RANK", {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"},
          {"TORCHELASTIC_RUN_ID", "../a b"}, {"MASTER_PORT", "29500"});
    PLACE(1, 2, 1, file[1], "SLURM_PROCID", {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"},
          {"SLURM_LOCALID", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_NODES", "1"});
}

#define NO_FOLDER                                                                                  \
    "environment: SLIMPACK_RENDEZVOUS is not set: 2 ranks that may be on several machines need a " \
    "folder that all of them see"

TEST(what_is_missing_or_wrong_is_named)
{
    static const struct {
        variable variables[6];
        const char *text;
    } cases[] = {
        {{{"RANK", "0"}}, "environment: WORLD_SIZE is not set"},
        {{{"WORLD_SIZE", "2"}}, "environment: RANK is not set"},
        {{{"RANK", "2"}, {"WORLD_SIZE", "2"}},
         "environment: RANK: expected an integer from 0 to 1, got \"2\""},
        {{{"RANK", "-1"}, {"WORLD_SIZE", "2"}},
         "environment: RANK: expected an integer from 0 to 1, got \"-1\""},
        {{{"RANK", "1x"}, {"WORLD_SIZE", "2"}},
         "environment: RANK: expected an integer from 0 to 1, got \"1x\""},
        {{{"RANK", "0"}, {"WORLD_SIZE", "99999999999999999999"}},
         "environment: WORLD_SIZE: expected an integer from 1 to 65536, got "
         "\"99999999999999999999\""},
        {{{"RANK", "0"}, {"WORLD_SIZE", "2"}}, NO_FOLDER},
        {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "1"}}, NO_FOLDER},
        {{{"SLURM_PROCID", "1"},
          {"SLURM_NTASKS", "2"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NUM_NODES", "2"}},
         NO_FOLDER},
        {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}},
         "environment: LOCAL_RANK: expected an integer from 0 to 1, got \"2\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_place(cases[i].variables), SP_ERR_USAGE);
        assert_string_equal(error.message[0], cases[i].text);
    }
}

// ---- meeting ----

enum { LONG_MS = 60000, SHORT_MS = 300 };
static const char plan[] = "plan 0000004d";

// What ranks meet with, in processes of their own.
typedef struct meeting {
    sp_i_place place; // but for the rank
    const char *card; // of the last rank
    int timeout_ms, absent;
    bool late; // the others come before rank 0
} meeting;

static sp_status meet(int rank, void *context, sp_error *err)
{
    const meeting *m = context;
    sp_i_place own = m->place;
    char id[128];
    own.rank = rank;
    memset(id, rank == 0 ? 'x' : 0, sizeof id);
    if (rank == m->absent) {
        return SP_OK;
    }
    if (rank == 0 && m->late) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    sp_status status = sp_i_meeting_give_id(&own, rank == own.ranks - 1 ? m->card : plan, id,
                                            sizeof id, m->timeout_ms, err);
    return status == SP_OK && (id[0] != 'x' || id[127] != 'x')
               ? sp_error_set(err, SP_ERR_INTERNAL, "another id")
               : status;
}

static meeting meeting_of(int ranks, const char *file)
{
    meeting m = {.place = {.ranks = ranks}, .card = plan, .timeout_ms = LONG_MS, .absent = -1};
    snprintf(m.place.file, sizeof m.place.file, "./folder-%d/%s", (int)getpid(), file);
    return m;
}

TEST(ranks_have_the_id_of_rank_0)
{
    for (int late = 0; late < 2; late++) {
        meeting m = meeting_of(4, "good");
        m.late = late;
        job_end end = job_run(4, meet, &m);
        assert_string_equal(end.text, "");
        assert_int_equal(end.status, SP_OK);
        // What stays until all are connected goes with rank 0.
        assert_int_equal(access(m.place.file, F_OK), 0);
        m.place.rank = 1;
        sp_i_meeting_clear(&m.place);
        assert_int_equal(access(m.place.file, F_OK), 0);
        m.place.rank = 0;
        sp_i_meeting_clear(&m.place);
        assert_int_not_equal(access(m.place.file, F_OK), 0);
    }
}

TEST(one_rank_meets_nobody)
{
    meeting m = meeting_of(1, "alone");
    assert_int_equal(meet(0, &m, NULL), SP_OK);
    assert_int_not_equal(access(m.place.file, F_OK), 0);
}

static void must_end(meeting *m, sp_status status, const char *text)
{
    job_end end = job_run(m->place.ranks, meet, m);
    must_hold(end.status == status && strstr(end.text, text) != NULL, "\"%s\" of status %d",
              end.text, (int)end.status);
    sp_i_meeting_clear(&m->place);
}

TEST(ranks_that_do_not_meet)
{
    meeting m = meeting_of(2, "misfit");
    m.card = "plan 0000004e";
    must_end(&m, SP_ERR_USAGE,
             "rank 1 has 2 ranks, plan 0000004e, rank 0 has 2 ranks, plan 0000004d");
    m = meeting_of(2, "absent");
    m.absent = 0;
    m.timeout_ms = SHORT_MS;
    must_end(&m, SP_ERR_LIMIT, "rank 0 did not come to ./folder-");
    m = meeting_of(2, "none");
    snprintf(m.place.file, sizeof m.place.file, "/proc/none/none");
    must_end(&m, SP_ERR_IO, "/proc/none/none: ");
}

// An earlier run, which was ended, has left a file: it is not taken.
TEST(files_of_earlier_runs)
{
    meeting m = meeting_of(2, "old");
    sp_i_place first = m.place;
    char id[128] = "old";
    assert_int_equal(sp_i_meeting_give_id(&first, plan, id, sizeof id, LONG_MS, NULL), SP_OK);
    const struct timespec hour_ago[2] = {{time(NULL) - 3600, 0}, {time(NULL) - 3600, 0}};
    assert_int_equal(utimensat(AT_FDCWD, first.file, hour_ago, 0), 0);
    m.late = true;
    must_end(&m, SP_OK, "");
    // Half of a file is none.
    FILE *file = fopen(m.place.file, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "2 ranks, %s\nshort", plan) > 0 && fclose(file) == 0);
    must_end(&m, SP_OK, "");
}

// ---- requests ----

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
    AUTO(plan_sample) s;
    make(&s);
    sp_run_request request = s.request;
    request.clock = SP_CLOCK_WALL;
    assert_false(is_multi_process(&request, SP_I_CUDA_AUTO, 1, SP_OK));
    assert_true(is_multi_process(&request, SP_I_CUDA_AUTO, 2, SP_OK));
    assert_true(is_multi_process(&request, SP_I_CUDA_NCCL, 2, SP_OK));
    assert_false(is_multi_process(&request, SP_I_CUDA_ONE_PROCESS, 2, SP_OK));
    (void)is_multi_process(&request, SP_I_CUDA_AUTO, 3, SP_ERR_USAGE);
    (void)is_multi_process(&request, SP_I_CUDA_NCCL, 1, SP_ERR_USAGE);
    request.clock = SP_CLOCK_VIRTUAL;
    assert_false(is_multi_process(&request, SP_I_CUDA_AUTO, 1, SP_OK));
    (void)is_multi_process(&request, SP_I_CUDA_AUTO, 2, SP_ERR_USAGE);
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
    assert_int_equal(chosen.ranks, SP_I_CUDA_ONE_PROCESS);
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
    sp_cuda_api api;
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
    AUTO(plan_sample) s, same;
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
    sp_cuda_api found;
    sp_i_cuda_api_init(&found);
    assert_string_equal(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "8");
    assert_int_equal(unsetenv("CUDA_DEVICE_MAX_CONNECTIONS"), 0);
    sp_i_cuda_api_init(&found);
    assert_string_equal(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
    assert_string_equal(getenv("NCCL_RUNTIME_CONNECT"), "0");
}

// Check value of CRC-32/ISO-HDLC in the catalogue of parametrised CRC algorithms.
TEST(the_hash_is_crc_32)
{
    assert_int_equal(sp_i_cuda_hash("123456789", 9), 0xcbf43926u);
    assert_int_equal(sp_i_cuda_hash("", 0), 0);
}
