// slimpack-zones: SlimPack's packs within pipelines with Zeppelin's zones for the attention (arXiv
// 2509.26246, 2509.21841).
//
// Packs of all data-parallel ranks together (pooled.c), slimpack's and zeppelin's are simulated,
// and the fastest are taken.
//
// A job keeps its order, its model chunks and its exchange of keys and values. What the scenario
// does not state of them is chosen by all batches: they are slimpack's, or with zeppelin's
// exchange, or all are zeppelin's.
#include "solver/slimpack/slimpack_search.h"
#include "solver/step/step.h"
#include "solver/strategies/job_choice.h"
#include "solver/strategy_list.h"
#include "solver/time_limit.h"

enum { MOST_WAYS = 7 };

static int list_ways(const sp_scenario *scenario, bool compared, sp_i_job_way ways[MOST_WAYS])
{
    const sp_layout *layout = &scenario->layout;
    bool open = (int64_t)layout->dp * layout->cp > 1 &&
                !(scenario->cp_overlap_given && scenario->cp_ring_nics_given);
    bool ordered = layout->pp > 1 || scenario->schedule_given;
    bool starts = scenario->strategy.group_start_ms > 0.0 && scenario->workload.batches > 1;
    int count = 0;
    ways[count++] = (sp_i_job_way){.kind = "slimpack-zones"};
    if (open) {
        ways[count++] = (sp_i_job_way){.kind = "slimpack-zones", .exchange_of = "zeppelin"};
    }
    // Its packs are among those of each batch, in this order and exchange.
    if (open || ordered || starts) {
        ways[count++] = (sp_i_job_way){.kind = "zeppelin"};
    }
    if (starts) {
        ways[count++] = (sp_i_job_way){.kind = "slimpack"};
        ways[count++] = (sp_i_job_way){.kind = "te-cp"};
        ways[count++] = (sp_i_job_way){.kind = "hybrid-dp"};
        ways[count++] = (sp_i_job_way){.kind = "llama-cp"};
    }
    bool other = scenario->schedule_given && scenario->schedule.kind != SP_SCHEDULE_PACKFLOW;
    return other && !compared ? 1 : count; // resolving then says that the order is another
}

sp_status sp_i_choose_slimpack_zones(sp_scenario *scenario, bool compared, sp_error *err)
{
    sp_i_job_way ways[MOST_WAYS];
    return sp_i_job_choose(scenario, ways, list_ways(scenario, compared, ways), compared, err);
}

static sp_status pack_pooled(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    return sp_i_pack_pooled(input, sp_i_pack_slimpack, packing, err);
}

// Shares of the time and work that are left, for slimpack and for packs of all ranks.
#define ALONE 0.45
#define POOLED 0.75

sp_status sp_i_pack_slimpack_zones(const sp_strategy_input *input, sp_packing *packing,
                                   sp_error *err)
{
    sp_strategy_input with = *input;
    sp_packflow_outcome outcome;
    bool pools = sp_i_may_pool(input->scenario);
    with.deadline_s = sp_i_deadline_part_s(input->deadline_s, pools ? ALONE : POOLED);
    const int64_t limit = sp_i_begin_part(input->scenario, ALONE);
    sp_status status = sp_i_pack_slimpack(&with, packing, err);
    sp_i_end_part(input->scenario, limit);
    if (status == SP_OK && !sp_i_is_late(input->scenario, input->deadline_s)) {
        status = sp_step_judge_blocks(input, packing, &SP_PACKFLOW_WORST, &outcome, err);
        if (status == SP_OK && pools) {
            with.deadline_s = sp_i_deadline_part_s(input->deadline_s, POOLED);
            const int64_t rest = sp_i_begin_part(input->scenario, POOLED);
            status = sp_i_try_packs(&with, pack_pooled, packing, &outcome, err);
            sp_i_end_part(input->scenario, rest);
        }
        if (status == SP_OK) {
            status = sp_i_try_packs(input, sp_i_pack_zeppelin, packing, &outcome, err);
        }
        if (status != SP_OK) {
            sp_packing_fini(packing);
        }
    }
    return status;
}
