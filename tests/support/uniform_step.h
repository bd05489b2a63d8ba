// One simulated step with uniform costs, for tests of schedules and engine.
#ifndef SLIMPACK_TESTS_SUPPORT_UNIFORM_STEP_H
#define SLIMPACK_TESTS_SUPPORT_UNIFORM_STEP_H

#include "sim/metrics/metrics.h"
#include "sim/schedule/schedule.h"
#include "sim/simulate/engine.h"

// What a simulation makes of a plan, and measures.
typedef struct simulated_plan {
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_engine_counts counts;
    sp_step_metrics metrics;
} simulated_plan;

void simulate_plan(const sp_plan *plan, const sp_step_costs *costs,
                   const sp_engine_options *options, simulated_plan *s);
void simulated_plan_fini(simulated_plan *s);

typedef struct uniform_case {
    sp_schedule_kind kind;
    int pp;
    int dp, chunks;                   // 0: one
    int microbatches;                 // per data-parallel rank
    int group;                        // interleaved
    int slices;                       // packs of a micro-batch; 0: one
    int retained;                     // chunkflow
    double attention_share;           // of f and i: slice k of n takes (2k+1)/n of the mean there
    double memory_limit_microbatches; // zb-auto
    bool has_units;                   // memory units as given, else the defaults
    double unit_f, unit_b, unit_w;
    // Nanoseconds of one pack on one chunk (with attention_share: the mean over the slices).
    union {
        struct {
            int64_t f_ns, i_ns, w_ns;
        };
        int64_t ns[3];
    };
    int64_t p2p_ns;
} uniform_case;

typedef struct uniform_step {
    sp_batch batch; // of sliced micro-batches
    sp_packing packing;
    sp_plan plan;
    sp_step_costs costs;
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_engine_counts counts;
    sp_step_metrics metrics;
} uniform_step;

// Builds, checks (sp_plan_check), simulates with --verify and measures; fails the running test on
// any error.
void uniform_step_run(const uniform_case *c, const sp_engine_options *options, uniform_step *step);
void uniform_step_fini(uniform_step *step);
// Such a step until the end of its block.
#define UNIFORM_STEP(name, c, options) \
    AUTO(uniform_step) name;           \
    uniform_step_run(c, options, &(name))

// Times and peak of two steps are equal.
void uniform_step_same_times(const sp_step_metrics *a, const sp_step_metrics *b);

#endif
