#include "tests/support/unit_draw.h"

// Layers of two kinds, of which only one may have experts.
static void draw_kinds(sp_prng *prng, unit_draw *d)
{
    sp_model *model = &d->model;
    model->kinds = 2;
    model->runs = 2 + prng_below(prng, 2);
    model->kind[0] = (sp_layer_mlp){.ffn = model->ffn,
                                    .experts = model->experts,
                                    .experts_per_token = model->experts_per_token,
                                    .shared_ffn = model->shared_ffn,
                                    .shared_gate = model->shared_gate};
    model->kind[1] = (sp_layer_mlp){.ffn = 64 * (17 + prng_below(prng, 16))};
    for (int r = 0; r < model->runs; r++) {
        model->run[r] = (sp_layer_run){.layers = 1 + prng_below(prng, 3), .kind = r % 2};
    }
    d->stage.first = prng_below(prng, 4);
}

// Latents of keys and values, and at times of queries.
static void draw_latents(sp_prng *prng, unit_draw *d)
{
    sp_model *model = &d->model;
    model->kv_lora_rank = 8 * (1 + prng_below(prng, 32));
    model->q_lora_rank = prng_below(prng, 2) == 0 ? 8 * (1 + prng_below(prng, 64)) : 0;
    model->qk_nope_dim = 8 * (1 + prng_below(prng, 8));
    model->qk_rope_dim = 8 * (1 + prng_below(prng, 4));
    model->v_head_dim = 8 * (1 + prng_below(prng, 8));
    model->head_dim = model->qk_nope_dim + model->qk_rope_dim;
    model->kv_heads = model->heads;
    model->positional = SP_ROPE;
    model->qk_norm = false;
    d->options.stack.unfused_norms = false;
    if (d->options.stack.cp_overlap == SP_CP_QKV) {
        d->options.stack.cp_overlap = SP_CP_BLOCKING;
    }
}

// Adapters, which no routed, latent or further layers have.
static void draw_adapters(sp_prng *prng, unit_draw *d)
{
    make_usual(d);
    d->model.lora_rank = 8 * (1 + prng_below(prng, 8));
    d->model.lora_targets = (sp_lora_targets)prng_below(prng, SP_LORA_MEGATRON + 1);
    d->model.lora_dropout = prng_below(prng, 2) == 0;
    if (d->layout.tp == 1) {
        d->model.frozen_weights = (sp_frozen_weights)(d->model.lora_rank / 8 % 3);
    }
}

// Layers with a state, or that lack a block; samples are whole and no ranks share them.
static void draw_mixers(sp_prng *prng, unit_draw *d)
{
    sp_model *model = &d->model;
    model->state_groups = 4 << prng_below(prng, 2);
    model->state_heads = model->state_groups * (1 + prng_below(prng, 3));
    model->state_head_dim = 8 * (1 + prng_below(prng, 8));
    model->state_dim = 8 * (1 + prng_below(prng, 8));
    model->state_conv = 2 + prng_below(prng, 4);
    model->mixer = (sp_mixer)prng_below(prng, SP_MIXER_NONE + 1);
    model->without_mlp =
        model->mixer != SP_MIXER_NONE && model->experts == 0 && prng_below(prng, 2) == 0;
    for (int k = 0; model->runs > 0 && k < model->kinds; k++) {
        model->kind[k].mixer = (sp_mixer)prng_below(prng, SP_MIXER_NONE + 1);
        model->kind[k].without_mlp = model->kind[k].mixer != SP_MIXER_NONE &&
                                     model->kind[k].experts == 0 && prng_below(prng, 2) == 0;
    }
    d->layout.cp = 1;
    d->load.kv_tokens = 0;
    d->options.stack.unfused_norms = false;
}

void make_usual(unit_draw *draw)
{
    sp_model *model = &draw->model;
    model->q_lora_rank = model->kv_lora_rank = 0;
    model->qk_nope_dim = model->qk_rope_dim = model->v_head_dim = 0;
    model->mtp_layers = 0;
    model->lora_rank = 0;
    model->lora_targets = SP_LORA_ALL_LINEAR;
    model->lora_dropout = false;
    model->frozen_weights = SP_FROZEN_BF16;
    model->mixer = model->kind[0].mixer = model->kind[1].mixer = SP_MIXER_ATTENTION;
    model->without_mlp = model->kind[0].without_mlp = model->kind[1].without_mlp = false;
    model->attention_gate = false;
    make_dense(draw);
}

void make_dense(unit_draw *draw)
{
    draw->model.experts = draw->model.experts_per_token = 0;
    draw->model.expert_latent = 0;
    draw->model.shared_ffn = draw->model.kind[0].shared_ffn = 0;
    draw->model.shared_gate = draw->model.kind[0].shared_gate = false;
    draw->model.kind[0].experts = draw->model.kind[0].experts_per_token = 0;
}

unit_draw draw_unit(sp_prng *prng)
{
    int tp = 1 << prng_below(prng, 3);
    int cp = 1 << prng_below(prng, 3);
    int kv_heads = 4 << prng_below(prng, 2);
    unit_draw d = {.model = {.layers = 8,
                             .hidden = 64 * (1 + prng_below(prng, 8)),
                             .ffn = 64 * (1 + prng_below(prng, 16)),
                             .kv_heads = kv_heads,
                             .heads = kv_heads * (1 + prng_below(prng, 3)),
                             .head_dim = 8 * (1 + prng_below(prng, 4)),
                             .vocab = 1000 + prng_below(prng, 1000),
                             .max_positions = 4096,
                             .activation = prng_below(prng, 2) == 0 ? SP_SWIGLU : SP_GELU,
                             .norm = prng_below(prng, 2) == 0 ? SP_RMSNORM : SP_LAYERNORM,
                             .positional = prng_below(prng, 2) == 0 ? SP_ROPE : SP_LEARNED,
                             .tied_embeddings = prng_below(prng, 2) == 0,
                             .bias = prng_below(prng, 2) == 0,
                             .qk_norm = prng_below(prng, 3) == 0,
                             .post_norms = prng_below(prng, 3) == 0},
                   .layout = {.tp = tp,
                              .cp = cp,
                              .pp = 4,
                              .dp = 1 + prng_below(prng, 3),
                              .zero = prng_below(prng, 4),
                              .chunks = 1,
                              .cp_a2a = 1 << prng_below(prng, 3),
                              .sequence_parallel = prng_below(prng, 2) == 0},
                   .stage = {.layers = prng_below(prng, 4),
                             .embedding = prng_below(prng, 3) == 0,
                             .head = prng_below(prng, 3) == 0},
                   .options = {.recompute = (sp_recompute)prng_below(prng, SP_RECOMPUTE_MODES),
                               .attention = (sp_attention)prng_below(prng, 2)},
                   .load = {.tokens = 1 + prng_below(prng, 5000)}};
    if (prng_below(prng, 4) == 0) {
        d.model.experts = 8;
        d.model.experts_per_token = 1 + prng_below(prng, 3);
        d.model.shared_ffn = 64 * prng_below(prng, 12);
        d.model.shared_gate = d.model.shared_ffn > 0 && prng_below(prng, 2) == 0;
    }
    d.options.stack = (sp_stack){
        .fused_swiglu = prng_below(prng, 2) == 0,
        .cp_overlap = prng_below(prng, 4) == 0   ? SP_CP_A2A
                      : prng_below(prng, 4) == 0 ? SP_CP_A2A_P2P
                                                 : (sp_cp_overlap)prng_below(prng, 3),
        .fused_cross_entropy = prng_below(prng, 3) == 0,
        .copied_logits = prng_below(prng, 3) == 0,
        .unfused_weight_gradient = prng_below(prng, 2) == 0,
        .memory_efficient_permutation = prng_below(prng, 2) == 0,
        .dummy_weight_gradients = prng_below(prng, 2) == 0,
        .keep_gathered_inputs = prng_below(prng, 3) == 0,
        .transposed_output = prng_below(prng, 3) == 0,
        .attention_mask = prng_below(prng, 3) == 0,
        .unfused_softmax = prng_below(prng, 3) == 0,
        .unfused_norms = prng_below(prng, 3) == 0,
        .loss_chunks = prng_below(prng, 3) == 0 ? 1 + prng_below(prng, 9) : 0,
        .gathered_logits = prng_below(prng, 3) == 0,
    };
    d.options.stack.loss_recompute =
        d.options.stack.loss_chunks > 0 && d.options.stack.loss_chunks % 2 == 0;
    // No draw of its own, so that others stay as they were.
    if (d.options.stack.loss_chunks == 9) {
        d.options.stack.loss_chunks = 0;
        d.options.stack.cut_cross_entropy = true;
        d.options.stack.gathered_logits = false;
    }
    d.load.kv_tokens = prng_below(prng, 2) == 0 ? 0 : prng_below(prng, (int)d.load.tokens + 1);
    d.load.pairs = d.load.tokens * (1 + prng_below(prng, 5000));
    if (!d.stage.embedding && !d.stage.head) {
        d.stage.layers++;
    }
    if (prng_below(prng, 3) == 0) {
        draw_kinds(prng, &d);
    }
    if (prng_below(prng, 3) == 0) {
        draw_latents(prng, &d);
    }
    if (d.stage.head && d.options.stack.loss_chunks == 0 && !d.options.stack.gathered_logits &&
        prng_below(prng, 4) == 0) {
        d.model.mtp_layers = 1 + prng_below(prng, 2);
    }
    if (prng_below(prng, 3) == 0) {
        draw_mixers(prng, &d);
    }
    d.model.attention_gate =
        d.model.kv_lora_rank == 0 && !d.options.stack.unfused_norms && prng_below(prng, 4) == 0;
    if (prng_below(prng, 3) == 0) {
        draw_adapters(prng, &d);
    }
    // No draws of their own either.
    d.model.expert_latent =
        sp_model_most_experts(&d.model) > 0 && d.model.ffn % 128 == 0 ? d.model.hidden / 2 : 0;
    d.model.post_norms_alone = d.model.post_norms && d.model.hidden % 128 == 0 &&
                               d.model.kv_lora_rank == 0 && d.model.lora_rank == 0 &&
                               !d.options.stack.keep_gathered_inputs;
    sp_memory_options *options = &d.options;
    unsigned again = sp_recompute_operations(options->recompute, &d.model);
    if (d.model.activation == SP_SWIGLU && !d.model.post_norms && d.model.runs == 0 &&
        d.model.experts == 0 && d.model.mixer == SP_MIXER_ATTENTION && !d.model.without_mlp &&
        d.model.kv_lora_rank == 0 && d.model.lora_rank == 0 &&
        !options->stack.keep_gathered_inputs &&
        (again == SP_LAYER_ALL || (again & SP_LAYER_JOINED) == 0)) {
        d.model.blocks = (sp_blocks)(d.model.hidden / 64 % 3);
    }
    sp_model_count_kinds(&d.model, d.stage.first, d.stage.layers, d.stage.count);
    if (prng_below(prng, 2) == 0) {
        d.options.recompute = random_modules(prng, &d.model);
    }
    return d;
}

sp_recompute random_modules(sp_prng *prng, const sp_model *model)
{
    unsigned set = 0;
    for (int m = 0; sp_module_name(m) != NULL; m++) {
        unsigned module = sp_module_find(sp_module_name(m));
        bool has = sp_recompute_lacks((sp_recompute)module, model, NULL) == NULL;
        set |= prng_below(prng, 2) == 0 && has ? module : 0;
    }
    return sp_recompute_of_modules(set);
}
