// Sampled attention executed on this machine beside dense attention: what it takes, and what it
// keeps.
#ifndef SLIMPACK_BACKENDS_HOST_SAMPLED_EXECUTION_H
#define SLIMPACK_BACKENDS_HOST_SAMPLED_EXECUTION_H

#include "backends/host/sampled_attention.h"
#include "backends/host/sampled_input.h"

// Heads of keys with stripes, with a local band and with both.
enum { SP_SAMPLED_KINDS = 3 };
extern const sp_sample_input sp_sampled_kinds[SP_SAMPLED_KINDS];

typedef struct sp_sampled_execution {
    int heads, kv_heads;
    int64_t head_dim, tokens;
    sp_kernel_sample_options options;
    uint64_t seed;
    int threads;
    const sp_sample_input *input; // of all heads; NULL: sp_sampled_kinds, in turn by KV head
    double (*clock_s)(void);      // NULL: that of the wall
} sp_sampled_execution;

typedef struct sp_sampled_outcome {
    double dense_s, sampled_s; // all heads
    sp_host_sampled_report report;
    double coverage; // smallest share of dense probability that any query keeps
    double error;    // largest sum of differences of a query's output over its head
    double bound;    // what theorem 1 allows of it with that coverage
} sp_sampled_outcome;

// Queries, keys and values are drawn. SP_ERR_LIMIT for tensors above 8 GiB.
sp_status sp_sampled_execute(const sp_sampled_execution *what, sp_sampled_outcome *outcome,
                             sp_error *err);

#endif
