// A small run of generated text that cases of decoding change: llama-3-8b on one A800 with the flat
// profile.
#ifndef SLIMPACK_TESTS_SUPPORT_DECODE_CASE_H
#define SLIMPACK_TESTS_SUPPORT_DECODE_CASE_H

#include "sim/inference/decode_private.h"
#include "tests/support/flat_profile.h"

#define KV_BYTES (2.0 * 2.0 * 8.0 * 128.0) // of a token in a layer

typedef struct fixture {
    sp_model model;
    sp_cluster cluster;
    sp_profile profile;
    sp_stack stack;
    sp_layout layout;
    sp_decode_spec spec;
} fixture;

static inline void begin(fixture *f)
{
    *f = (fixture){.layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1}};
    must_succeed(sp_model_builtin("llama-3-8b", &f->model, ERR));
    must_succeed(sp_cluster_builtin("a800-8", &f->cluster, ERR));
    must_succeed(flat_profile(NULL, &f->profile, ERR));
    f->cluster.nodes = 1;
    sp_stack_builtin("ours", &f->stack);
    f->spec = (sp_decode_spec){.how = {.method = SP_DECODE_HETEROSPEC,
                                       .depth = 5,
                                       .top_k = 6,
                                       .nodes = 24,
                                       .extend = true,
                                       .prune = true,
                                       .alpha = 3,
                                       .keep = {0.3, 0.6, 1.0}},
                               .text = {.ease = 0.5,
                                        .spread = 0.8,
                                        .noise = 0.9,
                                        .persistence = 0.9,
                                        .agreement = 6.0,
                                        .blind = 0.02},
                               .training_ease = (double)NAN,
                               .sequences = 9,
                               .prompt_tokens = 100,
                               .output_tokens = 60,
                               .batch = 1,
                               .graphs = 64,
                               .eagle_graphs = 64,
                               .draft_tp = 1,
                               .call_ms = 0.5,
                               .graph_miss_ms = 2.0,
                               .seed = 1};
}

static inline void fixture_fini(fixture *f)
{
    sp_profile_fini(&f->profile);
}

static inline sp_decode_machine machine_of(const fixture *f)
{
    return (sp_decode_machine){&f->model, &f->cluster, &f->profile,
                               &f->stack, &f->layout,  INT64_C(80) << 30};
}

static inline sp_decode_result run(const fixture *f)
{
    sp_decode_machine machine = machine_of(f);
    sp_decode_result result;
    must_succeed(sp_decode_run(&f->spec, &machine, &result, ERR));
    return result;
}

#endif
