// Random plans whose ranks stand alone, as in processes of their own: tensor, sequence and context
// parallelism, merged packs, tied tables, vocabularies over pipeline ranks, repeats, copies to host
// memory, split backwards, pairs.
#include "tests/support/host_random.h"
#include "tests/support/process_runs.h"
#include "tests/support/test_main.h"

static host_device device;
static int turn; // settings change from plan to plan

static void agrees(const sp_run_request *request)
{
    const process_settings settings = {.late = turn % 2 == 0, .skewed = turn % 3 == 0};
    turn++;
    process_runs_agree(&device, request, &settings);
}

static void agree(host_random draw)
{
    draw.agrees = agrees;
    draw.clock = SP_CLOCK_WALL;
    draw.count = test_draws(draw.count);
    host_open(&device);
    host_random_agree(draw);
    host_device_fini(&device);
}

TEST_CALL(pipeline, agree((host_random){.seed = 31, .count = 25}))
TEST_CALL(tied_table, agree((host_random){.gpt = true, .seed = 32, .count = 15, .most_tp_bits = 1}))
TEST_CALL(tensor_parallel, agree((host_random){.seed = 33, .count = 12, .most_tp_bits = 2}))
TEST_CALL(context_parallel,
          agree((host_random){.seed = 34, .count = 12, .most_cp = 3, .merges = true}))

static void agree_at_once(host_random draw)
{
    draw.most_tp_bits = 1;
    draw.most_cp = 2;
    draw.merges = true;
    draw.count = 8;
    agree(draw);
    draw.gpt = true;
    draw.dropout = "0.1";
    agree(draw);
}

TEST_CALL(spread_vocabulary, agree_at_once((host_random){.seed = 35, .vocab = true}))
TEST_CALL(all_at_once, agree_at_once((host_random){.seed = 36}))
