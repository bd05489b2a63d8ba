// What the parts of a calibration (calibrate.h) share.
#ifndef SLIMPACK_BACKENDS_HOST_CALIBRATE_CALIBRATION_H
#define SLIMPACK_BACKENDS_HOST_CALIBRATE_CALIBRATION_H

#include <jansson.h>

#include "backends/api/backend.h"
#include "backends/host/calibrate/probe.h"
#include "sim/cost/profile.h"

enum { SP_I_HOST_REFERENCES = 5 };

typedef struct sp_i_host_calibration {
    sp_model model;
    const sp_i_host_probe *probe;
    sp_precision precision;
    uint64_t seed;
    double limit_s;
    int64_t most_tokens;                      // of a measurement
    json_t *document;                         // owned by the caller of the parts below
    double reference_s[SP_I_HOST_REFERENCES]; // before, between and behind the parts
    int references;
} sp_i_host_calibration;

// Seconds of repeated runs of one piece of work: the lower quartile, since what disturbs a run can
// only make it longer, and half the distance between the quartiles as a share of it.
typedef struct sp_i_host_timing {
    double quartile_s, spread;
    int repeats;
} sp_i_host_timing;

enum { SP_I_HOST_LEAST_REPEATS = 5, SP_I_HOST_MOST_REPEATS = 1001 };

// The processor time of the calling thread.
int64_t sp_i_host_now_ns(void);
// Runs it once to warm up, then until `budget_s` is over, at least SP_I_HOST_LEAST_REPEATS times.
sp_i_host_timing sp_i_host_time(void (*work)(void *), void *context, double budget_s);
// Of `count` samples, which it sorts.
sp_i_host_timing sp_i_host_timing_of(double *seconds, int count);

// ---- the parts of the document, each O(its measurements) ----

// "gemm" for the model's products and "gemm_rate" for any other.
sp_status sp_i_host_calibrate_products(sp_i_host_calibration *c, sp_error *err);
// "attention" at the model's heads.
sp_status sp_i_host_calibrate_attention(sp_i_host_calibration *c, sp_error *err);
// "collective_times" over 2, 4 and 8 ranks.
sp_status sp_i_host_calibrate_collectives(sp_i_host_calibration *c, sp_error *err);
// "memory", "kernel", "host", "loss", "optimizer" and "links"; needs the first two.
sp_status sp_i_host_calibrate_steps(sp_i_host_calibration *c, sp_error *err);

// Bytes per second of copies that no cache holds.
sp_status sp_i_host_copy_rate(const sp_i_host_calibration *c, double *bytes_per_s, sp_error *err);

// What the steps measure of a pack of `tokens` tokens, for virtual stages with the embedding, with
// nothing but a layer, and with the head: seconds of F, I and W.
enum { SP_I_HOST_PROBE_STAGES = 3, SP_I_HOST_PROBE_KINDS = 3 };

typedef struct sp_i_host_step_times {
    int64_t tokens;
    sp_i_host_timing action[SP_I_HOST_PROBE_STAGES][SP_I_HOST_PROBE_KINDS];
    double optimizer_s;                                               // of the middle stage
    double parameters;                                                // of the middle stage
    double products_s[SP_I_HOST_PROBE_STAGES][SP_I_HOST_PROBE_KINDS]; // predicted, with attention
    double bytes[SP_I_HOST_PROBE_STAGES][SP_I_HOST_PROBE_KINDS];      // counted, without the loss
} sp_i_host_step_times;

// Runs steps for about budget_s. `profile` has products and attention.
sp_status sp_i_host_time_steps(const sp_i_host_calibration *c, const sp_profile *profile,
                               double budget_s, sp_i_host_step_times *times, sp_error *err);

// A member of a document that is a table or a section: {"level": "measured", "source": text}. NULL
// when memory ran out.
json_t *sp_i_host_measured(const sp_i_host_calibration *c, const char *what, double spread);

#endif
