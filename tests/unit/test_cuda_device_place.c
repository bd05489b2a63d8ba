// A rank's place in its run, read from what launchers leave in the environment; the wire's format.
#include "backends/cuda/bootstrap_frame.h"
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

static sp_i_bootstrap_place place;
static sp_error error;

static sp_status read_place(const variable *variables)
{
    environment = variables;
    sp_error_clear(&error);
    return sp_i_bootstrap_place_read(look_up, &place, &error);
}

static void without_a_launcher_a_rank_is_alone(void **state)
{
    (void)state;
    assert_int_equal(read_place((variable[]){{"MASTER_PORT", "x"}, {0}}), SP_OK);
    assert_int_equal(place.rank, 0);
    assert_int_equal(place.ranks, 1);
    assert_int_equal(place.local_rank, 0);
    assert_null(place.variable);
}

static void torchrun_is_read(void **state)
{
    (void)state;
    variable v[] = {{"RANK", "5"},
                    {"WORLD_SIZE", "8"},
                    {"LOCAL_RANK", "1"},
                    {"MASTER_ADDR", "fe80::1"},
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
    assert_string_equal(place.address, "fe80::1");
    assert_int_equal(place.port, 29500);
    assert_string_equal(place.run, "j7");
    assert_string_equal(place.variable, "RANK");
}

// torchrun's agent listens on MASTER_PORT itself (torch.distributed.elastic, agent store).
static void the_agents_port_is_left_to_it(void **state)
{
    (void)state;
    variable v[] = {{"RANK", "0"},
                    {"WORLD_SIZE", "2"},
                    {"MASTER_ADDR", "a"},
                    {"MASTER_PORT", "29500"},
                    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                    {"SLIMPACK_PORT", ""},
                    {0}};
    assert_int_equal(read_place(v), SP_OK);
    assert_int_equal(place.port, 29501);
    assert_int_equal(place.local_rank, -1);
    v[3].value = "65535";
    assert_int_equal(read_place(v), SP_OK);
    assert_int_equal(place.port, 65534);
    v[4].value = "False";
    assert_int_equal(read_place(v), SP_OK);
    assert_int_equal(place.port, 65535);
    v[5].value = "7000";
    assert_int_equal(read_place(v), SP_OK);
    assert_int_equal(place.port, 7000);
}

static void launchers_of_mpi_are_read(void **state)
{
    (void)state;
    variable open_mpi[] = {{"OMPI_COMM_WORLD_RANK", "3"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                           {"MASTER_ADDR", "node-1"},
                           {"MASTER_PORT", "1"},
                           {"SLIMPACK_RUN_ID", "mine"},
                           {"SLURM_JOB_ID", "12"},
                           {0}};
    assert_int_equal(read_place(open_mpi), SP_OK);
    assert_int_equal(place.rank, 3);
    assert_int_equal(place.ranks, 4);
    assert_int_equal(place.local_rank, 2);
    assert_string_equal(place.run, "mine");
    variable pmi[] = {{"PMI_RANK", "1"},      {"PMI_SIZE", "2"},    {"SLURM_LOCALID", "0"},
                      {"MASTER_ADDR", "::1"}, {"MASTER_PORT", "9"}, {0}};
    assert_int_equal(read_place(pmi), SP_OK);
    assert_int_equal(place.rank, 1);
    assert_int_equal(place.local_rank, 0);
    assert_string_equal(place.variable, "PMI_RANK");
}

// A batch script has SLURM_PROCID=0 and SLURM_NTASKS=4 where no step was started.
static void slurm_counts_inside_a_step(void **state)
{
    (void)state;
    variable v[] = {{"SLURM_PROCID", "2"},  {"SLURM_NTASKS", "4"},
                    {"SLURM_LOCALID", "2"}, {"SLURM_JOB_ID", "12"},
                    {"MASTER_ADDR", "n1"},  {"MASTER_PORT", "29500"},
                    {"SLURM_STEP_ID", "0"}, {0}};
    assert_int_equal(read_place(v), SP_OK);
    assert_int_equal(place.rank, 2);
    assert_int_equal(place.ranks, 4);
    assert_string_equal(place.run, "12");
    v[6].name = NULL;
    assert_int_equal(read_place(v), SP_OK);
    assert_int_equal(place.ranks, 1);
}

static void what_is_missing_or_wrong_is_named(void **state)
{
    (void)state;
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
         "environment: MASTER_ADDR is not set: 2 ranks need the address of rank 0's machine, and "
         "MASTER_PORT"},
        {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}},
         "environment: MASTER_PORT is not set"},
        {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "0"}},
         "environment: MASTER_PORT: expected an integer from 1 to 65535, got \"0\""},
        {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}},
         "environment: LOCAL_RANK: expected an integer from 0 to 1, got \"2\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_place(cases[i].variables), SP_ERR_USAGE);
        assert_string_equal(error.message[0], cases[i].text);
    }
}

// Check value of CRC-32/ISO-HDLC in the catalogue of parametrised CRC algorithms.
static void the_hash_is_crc_32(void **state)
{
    (void)state;
    assert_int_equal(sp_i_bootstrap_hash("123456789", 9), 0xcbf43926u);
    assert_int_equal(sp_i_bootstrap_hash("", 0), 0);
}

static void the_first_message_has_its_layout(void **state)
{
    (void)state;
    unsigned char bytes[SP_I_BOOTSTRAP_HELLO];
    sp_i_bootstrap_hello hello = {1, "r", 0x01020304, 3, 0xa0b0c0d0}, back;
    sp_i_bootstrap_hello_write(&hello, bytes);
    assert_memory_equal(bytes, "slimpack\0\0\0\1r\0", 14);
    assert_memory_equal(bytes + 76, "\1\2\3\4\0\0\0\3\xa0\xb0\xc0\xd0", 12);
    assert_int_equal(sizeof bytes, 88);
    assert_true(sp_i_bootstrap_hello_read(bytes, &back));
    assert_memory_equal(&hello, &back, sizeof back);
    bytes[75] = 'x'; // the run's last byte ends it
    assert_false(sp_i_bootstrap_hello_read(bytes, &back));
}

static void heads_are_checked(void **state)
{
    (void)state;
    unsigned char bytes[SP_I_BOOTSTRAP_HEAD];
    sp_i_bootstrap_head head = {SP_I_BOOTSTRAP_GATHER, 0x0102030405060708, SP_I_BOOTSTRAP_BYTES};
    sp_i_bootstrap_head back;
    sp_i_bootstrap_head_write(&head, bytes);
    assert_memory_equal(bytes, "spkf\0\0\0\3\1\2\3\4\5\6\7\10\0\0\0\0\x10\0\0\0", sizeof bytes);
    assert_true(sp_i_bootstrap_head_read(bytes, &back));
    assert_int_equal(back.kind, SP_I_BOOTSTRAP_GATHER);
    assert_int_equal(back.call, head.call);
    assert_int_equal(back.bytes, head.bytes);
    static const sp_i_bootstrap_head wrong[] = {
        {SP_I_BOOTSTRAP_GATHER, 0, SP_I_BOOTSTRAP_BYTES + 1ull},
        {SP_I_BOOTSTRAP_GATHER, 0, UINT64_MAX},
        {SP_I_BOOTSTRAP_ARRIVE, 0, 1},
        {SP_I_BOOTSTRAP_ABORT, 0, 3},
        {SP_I_BOOTSTRAP_ABORT, 0, 4 + SP_ERROR_TEXT + 1},
        {SP_I_BOOTSTRAP_KINDS, 0, 0},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        sp_i_bootstrap_head_write(&wrong[i], bytes);
        assert_false(sp_i_bootstrap_head_read(bytes, &back));
    }
    sp_i_bootstrap_head_write(&head, bytes);
    bytes[0] ^= 1;
    assert_false(sp_i_bootstrap_head_read(bytes, &back));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(without_a_launcher_a_rank_is_alone),
    cmocka_unit_test(torchrun_is_read),
    cmocka_unit_test(the_agents_port_is_left_to_it),
    cmocka_unit_test(launchers_of_mpi_are_read),
    cmocka_unit_test(slurm_counts_inside_a_step),
    cmocka_unit_test(what_is_missing_or_wrong_is_named),
    cmocka_unit_test(the_hash_is_crc_32),
    cmocka_unit_test(the_first_message_has_its_layout),
    cmocka_unit_test(heads_are_checked),
};

SP_TEST_MAIN(tests)
