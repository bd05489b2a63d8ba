// A rank's place in its run, read from what launchers leave in the environment.
#include <unistd.h>

#include "backends/cuda/distributed/multi_process.h"
#include "backends/cuda/distributed/place.h"
#include "tests/support/test_main.h"

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

static sp_i_place place;
static sp_error error;

static sp_status read_place(const variable *variables)
{
    environment = variables;
    sp_error_clear(&error);
    return sp_i_place_read(look_up, &place, &error);
}

TEST(without_a_launcher_a_rank_is_alone)
{
    assert_int_equal(read_place((variable[]){{"MASTER_PORT", "1"}, {0}}), SP_OK);
    assert_int_equal(place.rank, 0);
    assert_int_equal(place.ranks, 1);
    assert_int_equal(place.local_rank, 0);
    assert_null(place.variable);
}

TEST(torchrun_is_read)
{
    variable v[] = {{"RANK", "5"},
                    {"WORLD_SIZE", "8"},
                    {"LOCAL_RANK", "1"},
                    {"SLIMPACK_RENDEZVOUS", "/shared/meet"},
                    {"MASTER_PORT", "29500"},
                    {"TORCHELASTIC_RUN_ID", "j7"},
                    {"SLURM_PROCID", "1"},
                    {"SLURM_STEP_ID", "0"},
                    {"SLURM_JOB_ID", "12"},
                    {0}};
    assert_int_equal(read_place(v), SP_OK);
    assert_int_equal(place.rank, 5);
    assert_int_equal(place.ranks, 8);
    assert_int_equal(place.local_rank, 1);
    assert_string_equal(place.folder, "/shared/meet");
    assert_string_equal(place.run, "j7-29500");
    assert_false(place.by_mpi);
    assert_string_equal(place.variable, "RANK");
}

// Ranks of one machine need no folder that others see; the name of their run is a file's.
TEST(one_machine_has_a_folder_of_its_own)
{
    char folder[64];
    variable v[] = {{"RANK", "0"},
                    {"WORLD_SIZE", "2"},
                    {"LOCAL_WORLD_SIZE", "2"},
                    {"TORCHELASTIC_RUN_ID", "../a b"},
                    {"MASTER_PORT", "29500"},
                    {0}};
    snprintf(folder, sizeof folder, "/tmp/slimpack-%lu", (unsigned long)getuid());
    assert_int_equal(read_place(v), SP_OK);
    assert_string_equal(place.folder, folder);
    assert_string_equal(place.run, "---a-b-29500");
    assert_int_equal(place.local_rank, -1);
    v[2].value = "1";
    assert_int_equal(read_place(v), SP_ERR_USAGE);
    variable slurm[] = {{"SLURM_PROCID", "1"},         {"SLURM_NTASKS", "2"},
                        {"SLURM_LOCALID", "1"},        {"SLURM_STEP_ID", "0"},
                        {"SLURM_STEP_NUM_NODES", "1"}, {0}};
    assert_int_equal(read_place(slurm), SP_OK);
    assert_string_equal(place.folder, folder);
    assert_string_equal(place.run, "run");
    slurm[4].value = "2";
    assert_int_equal(read_place(slurm), SP_ERR_USAGE);
}

TEST(launchers_of_mpi_are_read)
{
    variable open_mpi[] = {{"OMPI_COMM_WORLD_RANK", "3"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                           {"SLIMPACK_RENDEZVOUS", "/shared"},
                           {"SLIMPACK_RUN_ID", "mine"},
                           {"SLURM_JOB_ID", "12"},
                           {0}};
    assert_int_equal(read_place(open_mpi), SP_OK);
    assert_int_equal(place.rank, 3);
    assert_int_equal(place.ranks, 4);
    assert_int_equal(place.local_rank, 2);
    assert_string_equal(place.run, "mine");
    variable pmi[] = {{"PMI_RANK", "1"},
                      {"PMI_SIZE", "2"},
                      {"SLURM_LOCALID", "0"},
                      {"MPI_LOCALNRANKS", "2"},
                      {0}};
    assert_int_equal(read_place(pmi), SP_OK);
    assert_int_equal(place.rank, 1);
    assert_int_equal(place.local_rank, 0);
    assert_string_equal(place.variable, "PMI_RANK");
}

// A batch script has SLURM_PROCID=0 and SLURM_NTASKS=4 where no step was started.
TEST(slurm_counts_inside_a_step)
{
    variable v[] = {{"SLURM_PROCID", "2"},         {"SLURM_NTASKS", "4"},
                    {"SLURM_LOCALID", "2"},        {"SLURM_JOB_ID", "12"},
                    {"SLIMPACK_RENDEZVOUS", "n1"}, {"MASTER_PORT", "29500"},
                    {"SLURM_STEP_ID", "0"},        {0}};
    assert_int_equal(read_place(v), SP_OK);
    assert_int_equal(place.rank, 2);
    assert_int_equal(place.ranks, 4);
    assert_string_equal(place.run, "12-29500");
    v[6].name = NULL;
    assert_int_equal(read_place(v), SP_OK);
    assert_int_equal(place.ranks, 1);
}

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
        {{{"RANK", "0"}, {"WORLD_SIZE", "2"}},
         "environment: SLIMPACK_RENDEZVOUS is not set: 2 ranks that may be on several machines "
         "need a folder that all of them see"},
        {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}},
         "environment: LOCAL_RANK: expected an integer from 0 to 1, got \"2\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_place(cases[i].variables), SP_ERR_USAGE);
        assert_string_equal(error.message[0], cases[i].text);
    }
}

// Check value of CRC-32/ISO-HDLC in the catalogue of parametrised CRC algorithms.
TEST(the_hash_is_crc_32)
{
    assert_int_equal(sp_i_cuda_hash("123456789", 9), 0xcbf43926u);
    assert_int_equal(sp_i_cuda_hash("", 0), 0);
}
