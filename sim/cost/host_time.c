#include "sim/cost/host_time.h"

#include <math.h>

static double layer_s(const sp_host_model *host, const sp_i_pack_time *time, sp_pass pass,
                      bool pipeline_crosses_nodes)
{
    int tp = time->layout->tp;
    double growth = 1.0 + host->tp_growth * log2((double)tp);
    double launches = 0.25 * host->layer_s * growth;
    if (tp > 1 && pipeline_crosses_nodes) {
        launches += 0.25 * host->tp_rank_s * tp;
    }
    double softmax = host->softmax_s * growth * time->unfused_softmax;
    double ring = 0.5 * host->cp_step_s * time->ring_steps;
    switch (pass) {
    case SP_PASS_F:
        return launches + softmax + ring;
    case SP_PASS_I:
        return launches + 0.5 * softmax + ring;
    case SP_PASS_W:
        return launches;
    case SP_PASS_RECOMPUTE:
        return launches * time->recompute_share +
               (time->recomputes_attention ? softmax + ring : 0.0);
    }
    SP_UNREACHABLE("a pass");
}

double sp_i_exec_s(const sp_host_model *host, const sp_i_pack_time *time, const sp_stage *stage,
                   sp_pass pass, bool pipeline_crosses_nodes)
{
    double ends = 0.0;
    if (pass == SP_PASS_F) {
        ends = (stage->embedding ? 0.2 : 0.0) + (stage->head ? 0.4 : 0.0);
    } else if (pass == SP_PASS_I) {
        ends = stage->head ? 0.4 : 0.0;
    }
    return stage->layers * layer_s(host, time, pass, pipeline_crosses_nodes) + ends * host->head_s;
}

double sp_i_launch_wait_s(const sp_host_model *host, double gpu_s, double host_s)
{
    double longer = fmax(gpu_s, host_s);
    double shorter = fmin(gpu_s, host_s);
    if (!(shorter > 0.0)) {
        return longer - gpu_s;
    }
    double q = host->overlap_power;
    double norm = q > 0.0 ? longer * pow(1.0 + pow(shorter / longer, q), 1.0 / q) : longer;
    return norm - gpu_s;
}
