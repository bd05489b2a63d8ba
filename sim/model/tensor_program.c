#include "sim/model/tensor_program.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/model/layout.h"
#include "sim/model/tensor_builder.h"

void sp_tensor_program_fini(sp_tensor_program *program)
{
    sp_free(program->tensors);
    sp_free(program->saved);
    for (int p = 0; p < SP_PROGRAM_PASSES; p++) {
        sp_free(program->pass[p].items);
    }
    *program = (sp_tensor_program){0};
}

static void note(sp_tensor_events *to, sp_tensor_event event)
{
    sp_reserve((void **)&to->items, &to->capacity, to->count + 1, sizeof *to->items);
    to->items[to->count++] = event;
}

int32_t sp_i_program_allocate(sp_i_program_builder *b, const char *name, int64_t bytes)
{
    sp_tensor_program *program = b->program;
    sp_reserve((void **)&program->tensors, &program->tensor_capacity, program->tensor_count + 1,
               sizeof *program->tensors);
    int32_t tensor = (int32_t)program->tensor_count++;
    program->tensors[tensor] = (sp_program_tensor){.name = name, .bytes = bytes, .storage = tensor};
    if (b->to != NULL) {
        note(b->to, (sp_tensor_event){.tensor = tensor});
    }
    return tensor;
}

void sp_i_program_free(sp_i_program_builder *b, int32_t tensor)
{
    if (tensor != SP_NO_TENSOR) {
        note(b->to, (sp_tensor_event){.tensor = tensor, .gone = true});
    }
}

int sp_i_program_row(const sp_i_program_builder *b, const char *name)
{
    for (int r = 0; r < b->row_count; r++) {
        if (strcmp(b->rows[r].name, name) == 0) {
            return r;
        }
    }
    return -1;
}

bool sp_i_program_keeps(const sp_i_program_builder *b, const char *name)
{
    int r = sp_i_program_row(b, name);
    return r >= 0 && sp_saved_is_kept(&b->rows[r], b->mode);
}

int64_t sp_i_program_row_bytes(const sp_i_program_builder *b, const sp_saved_tensor *row)
{
    return sp_saved_bytes(row, b->layout, b->tokens, b->pairs);
}

int32_t sp_i_program_make(sp_i_program_builder *b, const char *name)
{
    int r = sp_i_program_row(b, name);
    if (r < 0) {
        return SP_NO_TENSOR;
    }
    b->now[r] = sp_i_program_allocate(b, name, sp_i_program_row_bytes(b, &b->rows[r]));
    return b->now[r];
}

int32_t sp_i_program_gather_parameters(sp_i_program_builder *b)
{
    return b->gathered_parameters > 0
               ? sp_i_program_allocate(b, "gathered parameters", b->gathered_parameters)
               : SP_NO_TENSOR;
}

enum { BF16 = 2 };

static void measure(sp_i_program_builder *b, const sp_model *model, const sp_stack *stack);

sp_status sp_tensor_program_build(const sp_model *model, const sp_layout *layout,
                                  const sp_stage *stage, const sp_memory_options *options,
                                  int64_t tokens, int64_t kv_tokens, int64_t pairs,
                                  sp_tensor_program *program, sp_error *err)
{
    *program = (sp_tensor_program){.input = SP_NO_TENSOR,
                                   .output = SP_NO_TENSOR,
                                   .output_gradient = SP_NO_TENSOR,
                                   .input_gradient = {SP_NO_TENSOR, SP_NO_TENSOR}};
    sp_i_program_builder b = {
        .program = program,
        .layout = layout,
        .stage = stage,
        .mode = options->recompute,
        .recomputes_layers = sp_recompute_is_whole(options->recompute),
        .swiglu = model->activation == SP_SWIGLU,
        .fused_swiglu = options->stack.fused_swiglu,
        .unfused_attention = options->attention == SP_ATTENTION_UNFUSED,
        .routed = model->experts > 0,
        .splits_qkv = layout->cp > 1 && options->stack.cp_overlap == SP_CP_QKV,
        .fused_loss = sp_stack_keeps_bf16_logits(&options->stack),
        .copied_logits = options->stack.copied_logits,
        .weight_gradients = options->stack.unfused_weight_gradient,
        .mixed_views = model->positional == SP_LEARNED && !model->qk_norm,
        .shares_table = model->tied_embeddings && stage->embedding && stage->head,
        .tokens = tokens,
        .kv_tokens = kv_tokens,
        .pairs = pairs};
    b.row_count = sp_saved_layer(model, layout, options, b.rows);
    if (stage->embedding) {
        b.embedding_count =
            sp_saved_part(model, layout, &options->stack, SP_PART_EMBEDDING, b.embedding_rows);
    }
    if (stage->head) {
        b.head_count = sp_saved_part(model, layout, &options->stack, SP_PART_HEAD, b.head_rows);
    }
    measure(&b, model, &options->stack);
    size_t layers = (size_t)stage->layers;
    b.kept = sp_calloc(layers * (size_t)b.row_count, sizeof *b.kept);
    b.cached = sp_calloc(layers, sizeof *b.cached);
    sp_i_program_forward(&b);
    program->output_gradient = stage->head ? SP_NO_TENSOR : (int32_t)program->tensor_count;
    if (!stage->head) {
        // Comes from outside: no event makes it.
        b.to = NULL;
        sp_i_program_allocate(&b, "output gradient", b.hidden);
    }
    for (int split = 0; split < 2; split++) {
        b.splits = split == 1;
        b.to = &program->pass[split == 0 ? SP_PROGRAM_BACKWARD : SP_PROGRAM_INPUT_GRADIENT];
        program->input_gradient[split] =
            sp_i_program_backward(&b, &program->pass[SP_PROGRAM_WEIGHT_GRADIENT]);
    }
    sp_free(b.kept);
    sp_free(b.cached);
    sp_free(b.deferred);
    (void)err;
    return SP_OK;
}

static void measure(sp_i_program_builder *b, const sp_model *model, const sp_stack *stack)
{
    const sp_layout *layout = b->layout;
    sp_shard shard = sp_shard_of(model, layout);
    int64_t rows = sp_ceil_div(b->tokens, layout->cp);
    int64_t norm_rows = sp_ceil_div(b->tokens, (int64_t)layout->cp * shard.norm_split);
    b->sequence_split = shard.norm_split > 1;
    b->hidden = sp_mul_bytes(norm_rows, BF16 * model->hidden);
    b->hidden_full = sp_mul_bytes(rows, BF16 * model->hidden);
    b->routed_rows = sp_mul_bytes(shard.active, b->hidden_full);
    b->q = sp_mul_bytes(rows, BF16 * shard.q);
    b->kv_own = sp_mul_bytes(rows, 2 * BF16 * shard.kv);
    int peers = layout->cp / sp_stack_head_ranks(stack, layout);
    b->kv_gathered = peers > 1 ? sp_mul_bytes(peers, b->kv_own) : 0;
    b->kv_cached = sp_mul_bytes(sp_ceil_div(b->kv_tokens, layout->cp), 2 * BF16 * shard.kv);
    b->ffn = sp_mul_bytes(rows, BF16 * shard.ffn * shard.active);
    b->fc1 = sp_mul_bytes(rows, BF16 * shard.fc1 * shard.active);
    b->logits = sp_mul_bytes(rows, BF16 * shard.vocab);
    sp_footprint_weights(model, layout, b->weights);
    const sp_stage one_layer = {.layers = 1};
    b->gathered_parameters =
        layout->zero >= 3 ? BF16 * sp_footprint_parameters(model, layout, &one_layer, 1) : 0;
    b->mask = stack->attention_mask ? sp_ceil_div(b->pairs, layout->cp) : 0;
    b->table = sp_mul_bytes(shard.vocab, BF16 * model->hidden);
    if (b->unfused_attention) {
        b->scores = sp_mul_bytes(sp_ceil_div(b->pairs, layout->cp), BF16 * shard.heads);
    }
}
