#include "sim/memory/planner_memory.h"

#include <math.h>

#include "sim/base/units.h"

// Bytes per parameter of weight (bf16), gradient (fp32), and optimizer (fp32 master, two moments).
enum { BYTES_WEIGHT = 2, BYTES_GRADIENT = 4, BYTES_OPTIMIZER = 12 };

// The quantities of the formulas, as real numbers: the planner rounds nothing.
typedef struct sizes {
    double h, k, f;    // widths of hidden states, of all keys (or values), of the MLP
    double vocab;      // V
    double layers;     // of a pipeline rank, L/p
    double p, v, n, t; // pipeline ranks, chunks, slices, TP
    double tokens;     // of a sequence on one TP x CP rank, s/(tc)
    double replicas;   // dp*cp
} sizes;

static sizes sizes_of(const sp_model *model, const sp_layout *layout,
                      const sp_planner_options *options);
static double activation_bytes(const sizes *z, sp_recompute recompute);
static double rank_parameters(const sizes *z, bool vocab_parallel);
static double held_units(const sizes *z, sp_planner_order order);
static double offloaded_units(const sizes *z, double ratio);
static double kv_cache_bytes(const sizes *z, double ratio);
static double kv_gradient_bytes(const sizes *z, sp_planner_order order);
static double recompute_bytes(const sizes *z, sp_recompute recompute);
static int64_t rounded(double bytes);

sp_status sp_planner_memory(const sp_model *model, const sp_layout *layout,
                            const sp_planner_options *options, const char *source, sp_bytes *bytes,
                            sp_error *err)
{
    *bytes = (sp_bytes){{0}};
    SP_TRY(sp_planner_memory_check(model, layout, options, source, err));
    SP_ASSERT(options->sequence_tokens >= 0);
    SP_ASSERT(options->order != SP_PLANNER_SLIMPIPE || options->slices > 0);
    sizes z = sizes_of(model, layout, options);
    sp_recompute recompute = options->memory.recompute;
    double ratio = options->memory.offload_ratio;

    double parameters = rank_parameters(&z, layout->vocab_parallel);
    bytes->of[SP_MEM_PARAMETERS] = rounded(BYTES_WEIGHT * parameters);
    bytes->of[SP_MEM_GRADIENTS] = rounded(BYTES_GRADIENT * parameters);
    bytes->of[SP_MEM_OPTIMIZER] = rounded(BYTES_OPTIMIZER * parameters / z.replicas);

    double unit = z.tokens * z.layers * activation_bytes(&z, recompute) / (z.v * z.n);
    double offloaded = offloaded_units(&z, ratio);
    bytes->of[SP_MEM_ACTIVATIONS] = rounded(unit * (held_units(&z, options->order) - offloaded));
    bytes->of[SP_MEM_OFFLOADED] = rounded(unit * offloaded);
    bytes->of[SP_MEM_KV_CACHE] = rounded(kv_cache_bytes(&z, ratio));
    bytes->of[SP_MEM_KV_GRADIENTS] = rounded(kv_gradient_bytes(&z, options->order));
    // fp32 logits of the whole sequence.
    bytes->of[SP_MEM_LOGITS] = rounded(4.0 * z.tokens * z.vocab / z.p);
    bytes->of[SP_MEM_RECOMPUTE] = rounded(recompute_bytes(&z, recompute));
    return SP_OK;
}

sp_status sp_planner_memory_check(const sp_model *model, const sp_layout *layout,
                                  const sp_planner_options *options, const char *source,
                                  sp_error *err)
{
    const char *planner = "\"slimpipe-planner\"";
    sp_recompute recompute = options->memory.recompute;
    SP_ASSERT(options->memory.offload_ratio >= 0.0 && options->memory.offload_ratio <= 1.0);
    if (sp_model_most_experts(model) > 0) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "memory.model",
                           "%s knows dense models, '%s' has %d experts", planner, model->name,
                           sp_model_most_experts(model));
    }
    if (model->runs > 0) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "memory.model",
                           "%s knows models whose layers are alike, '%s' has model.layer_kinds",
                           planner, model->name);
    }
    if (sp_model_is_latent(model)) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "memory.model",
                           "%s knows no latent attention, which '%s' has", planner, model->name);
    }
    if (model->post_norms) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "memory.model",
                           "%s knows layers with two norms, '%s' has model.post_norms", planner,
                           model->name);
    }
    if (!sp_model_is_gated(model)) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "memory.model",
                           "%s knows models with SwiGLU, which '%s' has not", planner, model->name);
    }
    if (recompute != SP_RECOMPUTE_NONE && recompute != SP_RECOMPUTE_FULL &&
        recompute != SP_RECOMPUTE_PARTIAL_FC1) {
        char text[SP_RECOMPUTE_TEXT];
        return sp_error_in(err, SP_ERR_CONTENT, source, "memory.recompute",
                           "%s knows \"none\", \"partial-fc1\" and \"full\", got \"%s\"", planner,
                           sp_recompute_text(recompute, text));
    }
    if (options->memory.attention != SP_ATTENTION_FLASH) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "memory.attention",
                           "%s knows \"flash\", got \"%s\"", planner,
                           sp_attention_names[options->memory.attention]);
    }
    if (!sp_layout_is_even(layout)) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "parallel.stage_layers",
                           "memory.model %s knows equal shares of the layers alone", planner);
    }
    if (options->memory.offload_ratio > 0.0 && options->order != SP_PLANNER_SLIMPIPE) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "memory.offload_ratio",
                           "%s offloads with the schedule \"slimpipe\" alone", planner);
    }
    return SP_OK;
}

static sizes sizes_of(const sp_model *model, const sp_layout *layout,
                      const sp_planner_options *options)
{
    return (sizes){
        .h = (double)model->hidden,
        .k = (double)model->kv_heads * (double)model->head_dim,
        .f = (double)model->ffn,
        .vocab = (double)model->vocab,
        .layers = (double)model->layers / layout->pp,
        .p = layout->pp,
        .v = layout->chunks,
        .n = options->order == SP_PLANNER_SLIMPIPE ? options->slices : 1,
        .t = layout->tp,
        .tokens = (double)options->sequence_tokens / ((double)layout->tp * layout->cp),
        .replicas = sp_layout_zero_ranks(layout),
    };
}

// Kept of one token in one layer, before the division by TP.
static double activation_bytes(const sizes *z, sp_recompute recompute)
{
    switch (recompute) {
    case SP_RECOMPUTE_FULL:
        return 2.0 * z->h;
    case SP_RECOMPUTE_PARTIAL_FC1:
        return 8.0 * z->h + 4.0 * z->k;
    default:
        return 12.0 * z->h + 4.0 * z->k + 6.0 * z->f;
    }
}

static double rank_parameters(const sizes *z, bool vocab_parallel)
{
    double layer = 2.0 * z->h * z->h + 2.0 * z->h * z->k + 3.0 * z->h * z->f;
    double table = z->vocab * z->h / (vocab_parallel ? z->p : 1.0);
    return (z->layers * layer + table) / z->t;
}

// Units (one slice of one chunk; one chunk of a micro-batch without slices) in flight on the first
// rank.
static double held_units(const sizes *z, sp_planner_order order)
{
    switch (order) {
    case SP_PLANNER_1F1B:
        return z->v * z->p;
    case SP_PLANNER_INTERLEAVED:
        return z->v * z->p + z->p - 1.0;
    case SP_PLANNER_SLIMPIPE:
        break;
    }
    return z->n * z->v + 2.0 * (z->p - 1.0);
}

// Of the units in flight four always stay.
static double offloaded_units(const sizes *z, double ratio)
{
    return ratio * fmax(0.0, z->n * z->v + 2.0 * (z->p - 1.0) - 4.0);
}

// Keys and values are read by later slices and stay when the other activations leave; without
// offloading they are part of the activations.
static double kv_cache_bytes(const sizes *z, double ratio)
{
    if (ratio <= 0.0) {
        return 0.0;
    }
    double units = fmax(0.0, z->n * z->v + 2.0 * (z->p - 1.0) - 2.0);
    return 4.0 * z->k * z->tokens * z->layers * units / (z->n * z->v);
}

// Of the width of the hidden states also with grouped queries, as the planner counts it.
static double kv_gradient_bytes(const sizes *z, sp_planner_order order)
{
    if (order != SP_PLANNER_SLIMPIPE) {
        return 0.0;
    }
    double units = fmax(0.0, (z->v - 1.0) * (z->n - z->p) + 2.0 * (z->n - 1.0));
    return 4.0 * z->h * z->tokens * z->layers * units / (z->n * z->v);
}

// What is rebuilt at a time: a layer of the whole sequence, or the first MLP projection of a slice.
static double recompute_bytes(const sizes *z, sp_recompute recompute)
{
    switch (recompute) {
    case SP_RECOMPUTE_FULL:
        return z->tokens * activation_bytes(z, SP_RECOMPUTE_NONE);
    case SP_RECOMPUTE_PARTIAL_FC1:
        return 6.0 * z->f * z->tokens / z->n;
    default:
        return 0.0;
    }
}

static int64_t rounded(double bytes)
{
    return bytes < (double)SP_MOST_BYTES ? (int64_t)llround(bytes) : SP_MOST_BYTES;
}
