// Speed of the strategies that fill rows, on a million samples as long as Wikipedia's documents.
// One JSON line on stdout for each strategy and context.
#include <stdio.h>

#include "sim/base/progress.h"
#include "solver/strategy.h"
#include "tests/bench/bench.h"

enum { SAMPLES = 1000000 };

static void run(const char *kind, const sp_batch *batch, int64_t context)
{
    static sp_scenario scenario;
    scenario.strategy = (sp_strategy_spec){.microbatch_samples = 1};
    scenario.layout = (sp_layout){.tp = 1, .cp = 1, .pp = 1, .dp = 32, .chunks = 1};
    sp_strategy_input input = {.scenario = &scenario, .batch = batch, .context = context};
    sp_packing packing;
    sp_error err = {0};
    double started_s = sp_clock_s();
    require(sp_strategy_pack(sp_strategy_find(kind), &input, &packing, &err), &err);
    double done_s = sp_clock_s();
    double room = (double)packing.forward.count * (double)context;
    printf("{\"bench\": \"row_strategies\", \"version\": \"%s\", \"strategy\": \"%s\", "
           "\"samples\": %zu, \"context\": %lld, \"rows\": %zu, \"filled\": %.6f, "
           "\"pack_s\": %.3f}\n",
           SP_VERSION, kind, batch->count, (long long)context, packing.forward.count,
           (double)batch->total_tokens / room, done_s - started_s);
    sp_packing_fini(&packing);
}

int main(void)
{
    static const char *const kinds[] = {"packed", "sorted", "ffd", "bfd", "lpfhp"};
    static const int64_t contexts[] = {8192, 65536, 1048576};
    for (int c = 0; c < 3; c++) {
        sp_workload_spec spec = {.distribution = sp_distribution_find("wikipedia"),
                                 .context = contexts[c],
                                 .over_length = SP_OVER_TRUNCATE,
                                 .samples_per_batch = SAMPLES,
                                 .batches = 1,
                                 .seed = 1,
                                 .source = "wikipedia"};
        sp_batches batches;
        sp_error err = {0};
        require(sp_batches_make(&spec, &batches, &err), &err);
        for (int i = 0; i < 5; i++) {
            run(kinds[i], &batches.batch[0], contexts[c]);
        }
        sp_batches_fini(&batches);
    }
    return 0;
}
