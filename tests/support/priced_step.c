#include "tests/support/priced_step.h"

#include "sim/cost/op_time.h"
#include "tests/support/flat_profile.h"
#include "tests/support/initializers.h"
#include "tests/support/test_main.h"

enum { MOST_OVERRIDES = 8 };

priced_case priced_default(void)
{
    return (priced_case){.model = {.name = "small", LLAMA_SHAPE(8, 1024, 2816, 8, 4, 32000)},
                         .layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1, .zero = 1},
                         .schedule = {.kind = SP_SCHEDULE_1F1B},
                         .microbatches = 1,
                         .tokens = 4096,
                         .nvlink_gb_per_s = 200.0};
}

static void load_profile(priced_step *step)
{
    char rate[64];
    const char *overrides[MOST_OVERRIDES] = {rate, "links.nvlink_latency_us=0",
                                             "links.nic_latency_us=0"};
    snprintf(rate, sizeof rate, "links.nvlink_gb_per_s=%.17g", step->of.nvlink_gb_per_s);
    for (int i = 0; step->of.overrides[i] != NULL; i++) {
        overrides[3 + i] = step->of.overrides[i];
    }
    must_succeed(flat_profile(overrides, &step->profile, ERR));
    step->profile.algorithm = step->of.algorithm;
    if (step->of.launch_layer_s > 0.0) {
        step->profile.host.layer_s = step->of.launch_layer_s;
        step->profile.host.overlap_power = 8.0;
    }
}

static void make_packs(priced_step *step)
{
    int dp = step->of.layout.dp;
    sp_packing_init(&step->packing, NULL, dp);
    for (int k = 0; k < step->of.microbatches * dp; k++) {
        sp_slice slice = {k, 0, 0, step->of.tokens, step->of.tokens};
        sp_pack_list_begin(&step->packing.forward, k % dp, 1);
        sp_pack_list_add(&step->packing.forward, slice, true);
    }
}

void priced_step_run(const priced_case *c, priced_step *step)
{
    sp_engine_options options = {.verify = true};
    *step = (priced_step){.of = *c};
    const sp_layout *layout = &step->of.layout;
    step->cluster = (sp_cluster){
        .gpus_per_node = 8,
        .nics_per_node = 8,
        .nic_bytes_per_s = 50e9,
        .peak_flops_per_s = 1e15,
        .host_link_bytes_per_s = c->host_link_bytes_per_s > 0.0 ? c->host_link_bytes_per_s : 1e15,
        .nvls = true,
        .fabric = step->of.fabric};
    must_succeed(sp_cluster_fit(&step->cluster, sp_layout_ranks(layout), "test", ERR));
    load_profile(step);
    must_succeed(sp_cost_model_init(&step->cost, &step->of.model, layout, &step->cluster,
                                    &step->profile, step->of.memory, "test", ERR));
    make_packs(step);
    must_succeed(sp_cost_model_build(&step->cost, &step->packing, &step->costs, ERR));
    sp_plan_init(&step->plan, layout, &step->packing);
    sp_schedule_costs *means = sp_step_costs_means(&step->costs, &step->plan);
    must_succeed(sp_schedule_generate(&step->of.schedule, means, "test", &step->plan, ERR));
    sp_schedule_costs_free(means);
    must_succeed(sp_simulate(&step->plan, &step->costs, &options, &step->timeline, &step->memory,
                             &step->counts, ERR));
    sp_step_metrics_compute(&step->timeline, &step->memory, &step->metrics);
}

void priced_step_fini(priced_step *step)
{
    sp_step_metrics_fini(&step->metrics);
    sp_memory_timeline_fini(&step->memory);
    sp_timeline_fini(&step->timeline);
    sp_step_costs_fini(&step->costs);
    sp_plan_fini(&step->plan);
    sp_packing_fini(&step->packing);
    sp_cost_model_fini(&step->cost);
    sp_profile_fini(&step->profile);
}

double priced_parameters(const priced_step *step, sp_stage stage)
{
    return (double)sp_footprint_parameters(&step->of.model, &step->of.layout, &stage, 1);
}

double priced_collective_s(const priced_step *step, sp_collective kind, double bytes)
{
    sp_op_timer timer = {.cluster = &step->cluster, .profile = &step->profile};
    sp_group group = sp_cluster_group(&step->cluster, &step->of.layout, SP_DIM_DP_CP);
    return sp_time_collective(&timer, kind, group, bytes);
}
