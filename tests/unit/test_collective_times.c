// Measured times of collectives by group size, and context parallelism that exchanges keys and
// values slice by slice.

#include "tests/support/flat_profile.h"
#include "tests/support/initializers.h"
#include "tests/support/pack_times.h"

#include "sim/cost/op_time.h"

// 2 and 8 ranks. Between points and group sizes times follow the definitions below.
#define TABLES                                                                      \
    "collective_times=["                                                            \
    "{\"kind\":\"all_gather\",\"ranks\":2,\"level\":\"measured\",\"source\":\"s\"," \
    "\"points\":[[1000,2],[100000,20]]},"                                           \
    "{\"kind\":\"all_gather\",\"ranks\":8,\"level\":\"measured\",\"source\":\"s\"," \
    "\"points\":[[1000,6],[100000,40]]}]"

static sp_profile profile;

static const sp_cluster cluster = {
    .gpus_per_node = 64, .nodes = 4, .nics_per_node = 8, .nic_bytes_per_s = 50e9};

static const sp_model model = {.name = "dense", LLAMA_SHAPE(4, 1024, 2816, 8, 4, 32000)};

static double gather_us(int ranks, int nodes, double bytes)
{
    const sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
    const sp_group group = {ranks, nodes, ranks / nodes, ranks / nodes};
    return 1e6 * sp_time_collective(&timer, SP_ALL_GATHER, group, bytes);
}

// log t is linear in log bytes: at the geometric mean of two points stands that of their times.
TEST(by_bytes)
{
    flat_profile_load((const char *[]){TABLES, NULL}, &profile);
    assert_close(gather_us(2, 1, 1000), 2.0, 1e-9);
    assert_close(gather_us(2, 1, 100000), 20.0, 1e-9);
    assert_close(gather_us(2, 1, 10000), sqrt(2.0 * 20.0), 1e-9);
    assert_close(gather_us(2, 1, 10), 2.0, 1e-9);
    assert_close(gather_us(2, 1, 300000), 60.0, 1e-9);
    sp_profile_fini(&profile);
}

// 4 ranks are halfway from 2 to 8 in log2; 16 get 15/16 of a tensor from others, 8 get 7/8.
TEST(by_group_size)
{
    flat_profile_load((const char *[]){TABLES, NULL}, &profile);
    assert_close(gather_us(8, 1, 1000), 6.0, 1e-9);
    assert_close(gather_us(4, 1, 1000), 4.0, 1e-9);
    assert_close(gather_us(4, 1, 100000), 30.0, 1e-9);
    assert_close(gather_us(16, 1, 1000), 6.0 * (15.0 / 16.0) / (7.0 / 8.0), 1e-9);
    assert_true(gather_us(1, 1, 1000) == 0.0);
    sp_profile_fini(&profile);
}

// Other kinds, and groups over nodes, take what the rest of the profile says.
TEST(others_are_not_timed)
{
    AUTO(sp_profile) with;
    flat_profile_load((const char *[]){TABLES, NULL}, &profile);
    with = profile;
    flat_profile_load(NULL, &profile);
    const sp_op_timer timed = {.cluster = &cluster, .profile = &with};
    const sp_op_timer plain = {.cluster = &cluster, .profile = &profile};
    const sp_group inside = {4, 1, 4, 4};
    const sp_group over = {4, 2, 2, 2};
    assert_true(sp_time_collective(&timed, SP_ALL_REDUCE, inside, 1e6) ==
                sp_time_collective(&plain, SP_ALL_REDUCE, inside, 1e6));
    assert_true(sp_time_collective(&timed, SP_ALL_GATHER, over, 1e6) ==
                sp_time_collective(&plain, SP_ALL_GATHER, over, 1e6));
    sp_profile_fini(&profile);
}

TEST(refuses_tables)
{
    static const char *const wrong[][2] = {
        {"collective_times=[{\"kind\":\"all_gather\",\"ranks\":1,\"level\":\"measured\","
         "\"source\":\"s\",\"points\":[[1,1]]}]",
         "collective_times[0].ranks"},
        {"collective_times=[{\"kind\":\"gather\",\"ranks\":2,\"level\":\"measured\","
         "\"source\":\"s\",\"points\":[[1,1]]}]",
         "collective_times[0].kind"},
        {"collective_times=[{\"kind\":\"all_gather\",\"ranks\":2,\"level\":\"measured\","
         "\"source\":\"s\",\"points\":[[1,1]]},{\"kind\":\"all_gather\",\"ranks\":2,"
         "\"level\":\"measured\",\"source\":\"s\",\"points\":[[1,1]]}]",
         "a table for all_gather of 2 ranks is given already"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        must_fail_with(flat_profile((const char *[]){wrong[i][0], NULL}, &profile, ERR),
                       SP_ERR_CONTENT, wrong[i][1]);
    }
}

static void pack_of(sp_cp_overlap mode, int samples, int64_t tokens, sp_i_pack_time *time)
{
    pack_times_case of = {.model = &model,
                          .cluster = &cluster,
                          .profile = &profile,
                          .layout = {.tp = 1, .cp = 4, .pp = 1, .dp = 1, .chunks = 1},
                          .memory = {.stack = {.cp_overlap = mode}}};
    pack_times_of_samples(&of, samples, tokens, time);
}

// Where the rate is the same for every length the blocks of all ranks make up the whole attention.
TEST(blocks_cover_the_attention)
{
    flat_profile_load(NULL, &profile);
    sp_i_pack_time whole, blocks;
    pack_of(SP_CP_BLOCKING, 2, 4096, &whole);
    pack_of(SP_CP_SLICES, 2, 4096, &blocks);
    for (int pass = SP_PASS_F; pass <= SP_PASS_I; pass++) {
        assert_close(blocks.of[SP_PART_LAYER][pass].attention_s,
                     whole.of[SP_PART_LAYER][pass].attention_s, 1e-9);
    }
    sp_profile_fini(&profile);
}

// At a rate that grows with the length small blocks take longer: 8 runs of 512, of which a rank has
// two, sees 7 before them, and all of them in full at the rate of 512 tokens' squares.
TEST(blocks_run_at_their_own_rate)
{
    flat_profile_load(
        (const char *[]){"attention.forward_causal={\"level\":\"assumed\",\"source\":\"s\","
                         "\"points\":[[1,1],[1000000,1000000]]}",
                         NULL},
        &profile);
    sp_i_pack_time time;
    pack_of(SP_CP_SLICES, 1, 4096, &time);
    double flops_per_pair = 4.0 * 8 * 128;
    double causal_s = 0.5 * 512 * 512 * flops_per_pair / (512 * 1e12);
    double block_s = 512.0 * 512 * flops_per_pair / (1024 * 1e12); // at the rate of all its keys
    assert_close(time.of[SP_PART_LAYER][SP_PASS_F].attention_s, 2 * causal_s + 7 * block_s, 1e-9);
    sp_profile_fini(&profile);
}

// Two slices of one sample in one pack are cut and exchanged each for itself: runs of 256, of which
// a rank has two of each slice, sees 7 of the own slice, and with its two all 8 of the slice
// before.
TEST(slices_of_a_pack_run_one_by_one)
{
    flat_profile_load(
        (const char *[]){"attention.forward_causal={\"level\":\"assumed\",\"source\":\"s\","
                         "\"points\":[[1,1],[1000000,1000000]]}",
                         "attention.forward_block={\"level\":\"assumed\",\"source\":\"s\","
                         "\"points\":[[1,3],[1000000,3000000]]}",
                         NULL},
        &profile);
    static const sp_slice slices[] = {{0, 0, 0, 2048, 2048}, {0, 0, 2048, 2048, 2048}};
    pack_times_case of = {.model = &model,
                          .cluster = &cluster,
                          .profile = &profile,
                          .layout = {.tp = 1, .cp = 4, .pp = 1, .dp = 1, .chunks = 1},
                          .memory = {.stack = {.cp_overlap = SP_CP_SLICES}}};
    sp_i_pack_time time;
    pack_times(&of, slices, 2, 1, &time);
    double flops_per_pair = 4.0 * 8 * 128;
    double causal_s = 0.5 * 256 * 256 * flops_per_pair / (256 * 1e12);
    double block_s = 256.0 * 256 * flops_per_pair / (3 * 256 * 1e12);
    assert_close(time.of[SP_PART_LAYER][SP_PASS_F].attention_s,
                 4 * causal_s + (7 + 7 + 2 * 8) * block_s, 1e-9);
    sp_profile_fini(&profile);
}

// Each of three samples has a gather of its own; backward its gradients are scattered besides. A
// ring of 4 has 3 steps.
TEST(slices_have_latencies_of_their_own)
{
    flat_profile_load(NULL, &profile);
    sp_i_pack_time whole, slices;
    pack_of(SP_CP_BLOCKING, 3, 4096, &whole);
    pack_of(SP_CP_SLICES, 3, 4096, &slices);
    double latency_s = 3 * FLAT_NVLINK_LATENCY_S;
    assert_close(slices.of[SP_PART_LAYER][SP_PASS_F].cp_s,
                 whole.of[SP_PART_LAYER][SP_PASS_F].cp_s + 2 * latency_s, 1e-9);
    assert_close(slices.of[SP_PART_LAYER][SP_PASS_I].cp_s,
                 whole.of[SP_PART_LAYER][SP_PASS_I].cp_s + 5 * latency_s, 1e-9);
    sp_profile_fini(&profile);
}

// The same gathers, and gradients that take twice the bytes in fp32; the attention of the pack is
// one, at the rate of its samples.
TEST(gathered_slices_have_one_attention)
{
    flat_profile_load(NULL, &profile);
    sp_i_pack_time whole, slices, gathered;
    pack_of(SP_CP_BLOCKING, 3, 4096, &whole);
    pack_of(SP_CP_SLICES, 3, 4096, &slices);
    pack_of(SP_CP_GATHERED, 3, 4096, &gathered);
    double latency_s = 3 * FLAT_NVLINK_LATENCY_S;
    double one_way_s = whole.of[SP_PART_LAYER][SP_PASS_F].cp_s - latency_s;
    for (int pass = SP_PASS_F; pass <= SP_PASS_I; pass++) {
        assert_close(gathered.of[SP_PART_LAYER][pass].attention_s,
                     whole.of[SP_PART_LAYER][pass].attention_s, 1e-9);
    }
    assert_close(gathered.of[SP_PART_LAYER][SP_PASS_F].cp_s,
                 slices.of[SP_PART_LAYER][SP_PASS_F].cp_s, 1e-9);
    assert_close(gathered.of[SP_PART_LAYER][SP_PASS_I].cp_s,
                 slices.of[SP_PART_LAYER][SP_PASS_I].cp_s + one_way_s, 1e-9);
    sp_profile_fini(&profile);
}
