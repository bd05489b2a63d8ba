// A scenario of a 13B model whose data-parallel ranks can be merged, with its cost model.
#ifndef SLIMPACK_TESTS_SUPPORT_MERGED_RANKS_H
#define SLIMPACK_TESTS_SUPPORT_MERGED_RANKS_H

#include "sim/cost/cost_model.h"
#include "tests/support/scenario_fixture.h"

typedef struct merged_ranks {
    sp_scenario scenario;
    sp_cost_model cost;
} merged_ranks;

static void merged_ranks_init(merged_ranks *m, const char *cluster, int tp, int dp)
{
    fixture_begin(); // makes texts of its own
    const char *text = json_text(
        "{'schema': 'slimpack/scenario/1', 'model': 'llama-13b', 'cluster': '%s', 'parallel': "
        "{'tp': %d, 'dp': %d}, 'workload': {'lengths': [100], 'samples_per_batch': 1}}",
        cluster, tp, dp);
    must_succeed(fixture_read(text, &m->scenario, ERR));
    must_succeed(sp_scenario_cost_model(&m->scenario, &m->cost, ERR));
}

static void merged_ranks_fini(merged_ranks *m)
{
    sp_cost_model_fini(&m->cost);
    sp_scenario_fini(&m->scenario);
}

#endif
