// Random plans whose ranks stand alone, as in processes of their own: tensor, sequence and context
// parallelism, merged packs, tied tables, vocabularies over pipeline ranks, repeats, copies to host
// memory, split backwards, pairs.
#include "tests/support/host_random.h"
#include "tests/support/joined_runs.h"
#include "tests/support/test_main.h"

static host_device device;
static int turn; // settings change from plan to plan

static void agrees(const sp_run_request *request)
{
    const joined_settings settings = {.late = turn % 2 == 0, .skewed = turn % 3 == 0};
    turn++;
    joined_runs_agree(&device, request, &settings);
}

static void agree(const host_random *draw)
{
    host_random own = *draw;
    own.agrees = agrees;
    own.precision = SP_FP64;
    own.clock = SP_CLOCK_WALL;
    host_open(&device);
    host_random_agree(&own);
    host_close(&device);
}

TEST(pipeline)
{
    const sp_model model = host_llama();
    agree(&(host_random){.model = &model, .dropout = "0", .seed = 31, .count = 25, .most_cp = 1});
}

TEST(tied_table)
{
    const sp_model model = host_gpt();
    agree(&(host_random){
        .model = &model, .dropout = "0", .seed = 32, .count = 15, .most_tp_bits = 1, .most_cp = 1});
}

TEST(tensor_parallel)
{
    const sp_model model = host_llama();
    agree(&(host_random){
        .model = &model, .dropout = "0", .seed = 33, .count = 12, .most_tp_bits = 2, .most_cp = 1});
}

TEST(context_parallel)
{
    const sp_model model = host_llama();
    agree(&(host_random){
        .model = &model, .dropout = "0", .seed = 34, .count = 12, .most_cp = 3, .merges = true});
}

TEST(spread_vocabulary)
{
    const sp_model models[] = {host_llama(), host_gpt()};
    for (int m = 0; m < 2; m++) {
        agree(&(host_random){.model = &models[m],
                             .dropout = m == 1 ? "0.1" : "0",
                             .seed = 35,
                             .count = 8,
                             .most_tp_bits = 1,
                             .most_cp = 2,
                             .merges = true,
                             .vocab = true});
    }
}

TEST(all_at_once)
{
    const sp_model models[] = {host_llama(), host_gpt()};
    for (int m = 0; m < 2; m++) {
        agree(&(host_random){.model = &models[m],
                             .dropout = m == 1 ? "0.1" : "0",
                             .seed = 36,
                             .count = 8,
                             .most_tp_bits = 1,
                             .most_cp = 2,
                             .merges = true});
    }
}
