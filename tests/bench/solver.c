// SlimPack's plans against the time that its solver is given: 2048 Wikipedia samples on 32
// data-parallel ranks with 8 stages each (Llama-13B, TP 8), on one thread per core: solver [SAMPLES
// DP]. The first plan, then the plan after 10, 50, 200 and 500 ms, then without a limit; for each
// the time really taken, the gap over the lower bound, and the slowest data-parallel rank over the
// mean. One JSON line on stdout.
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "solver/evaluate/evaluate.h"
#include "tests/bench/bench.h"

static json_t *scenario_of(int samples, int dp, int limit_ms)
{
    json_t *scenario =
        json_pack("{s:s, s:s, s:s, s:{s:i, s:i, s:i}, s:{s:s, s:i, s:i, s:i}, s:{s:s}}", "model",
                  "llama-13b", "cluster", "h800-8", "profile", "h800", "parallel", "tp", 8, "pp", 8,
                  "dp", dp, "workload", "lengths", "wikipedia", "context", 131072,
                  "samples_per_batch", samples, "seed", 1, "strategy", "kind", "slimpack");
    if (scenario == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    if (limit_ms > 0) {
        json_object_set_new(json_object_get(scenario, "strategy"), "time_limit_ms",
                            json_integer(limit_ms));
    }
    return scenario;
}

static void measure(int samples, int dp, int limit_ms, const char *name)
{
    sp_error err = {0};
    sp_scenario scenario;
    json_t *root = scenario_of(samples, dp, limit_ms);
    require(sp_scenario_from_json(root, "bench", NULL, 0, &scenario, &err), &err);
    json_decref(root);
    sp_batches batches;
    sp_result result;
    const sp_evaluate_options options = {.threads = (int)sysconf(_SC_NPROCESSORS_ONLN)};
    require(sp_evaluate_batches(&scenario, &batches, &err), &err);
    require(sp_evaluate(&scenario, &batches, &options, &result, &err), &err);
    json_auto_t *json = sp_result_json(&result, false);
    printf(
        "\"%s solver_ms\": %.1f, \"%s gap\": %.4f, \"%s slowest over mean\": %.4f, ", name,
        json_real_value(json_object_get(json, "solver_ms")), name,
        json_real_value(json_object_get(json, "gap")), name,
        json_real_value(json_object_get(json_object_get(json, "imbalance"), "dp_max_over_mean")));
    sp_result_fini(&result);
    sp_batches_fini(&batches);
    sp_scenario_fini(&scenario);
}

int main(int argc, char **argv)
{
    int samples = argc > 1 ? atoi(argv[1]) : 2048;
    int dp = argc > 2 ? atoi(argv[2]) : 32;
    printf("{\"samples\": %d, \"dp\": %d, \"pp\": 8, \"threads\": %ld, ", samples, dp,
           sysconf(_SC_NPROCESSORS_ONLN));
    measure(samples, dp, 1, "first plan");
    measure(samples, dp, 10, "10 ms");
    measure(samples, dp, 50, "50 ms");
    measure(samples, dp, 200, "200 ms");
    measure(samples, dp, 500, "500 ms");
    measure(samples, dp, 0, "no limit");
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("\"most memory MB\": %.1f}\n", (double)usage.ru_maxrss / 1024.0);
    return 0;
}
