// One simulated step of a small model on the flat profile (flat_profile.h) without launch floors
// and latencies, so that its times have closed forms.
#ifndef SLIMPACK_TESTS_SUPPORT_PRICED_STEP_H
#define SLIMPACK_TESTS_SUPPORT_PRICED_STEP_H

#include "sim/cost/cost_model.h"
#include "sim/metrics/metrics.h"
#include "sim/schedule/schedule.h"
#include "sim/simulate/engine.h"

typedef struct priced_case {
    sp_model model;
    sp_layout layout;
    sp_memory_options memory;
    sp_schedule_spec schedule;
    int microbatches; // per data-parallel rank, each one sample of `tokens`
    int64_t tokens;
    double nvlink_gb_per_s;   // and so the rate of every group inside a node of 8 GPUs
    const char *overrides[4]; // of the profile, NULL-terminated
    double launch_layer_s;    // what the host takes for a layer's launches
    sp_collective_algorithm algorithm;
    sp_fabric fabric;
    double host_link_bytes_per_s; // 0: too fast to be seen
} priced_case;

// 8 layers, untied, 1F1B on one rank.
priced_case priced_default(void);

typedef struct priced_step {
    priced_case of;
    sp_cluster cluster;
    sp_profile profile;
    sp_cost_model cost;
    sp_packing packing;
    sp_plan plan;
    sp_step_costs costs;
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_engine_counts counts;
    sp_step_metrics metrics;
} priced_step;

// Prices, schedules, simulates with --verify and measures; fails the running test on any error.
void priced_step_run(const priced_case *c, priced_step *step);
void priced_step_fini(priced_step *step);
// Such a step until the end of its block.
#define PRICED_STEP(name, c) \
    AUTO(priced_step) name;  \
    priced_step_run(c, &(name))

// Parameters of a stage on one TP rank.
double priced_parameters(const priced_step *step, sp_stage stage);
// Seconds of a collective over the data-parallel ranks.
double priced_collective_s(const priced_step *step, sp_collective kind, double bytes);

#endif
