#include "sim/model/tensor_builder.h"

#include "sim/base/alloc.h"

enum { BF16 = 2, FP32 = 4 };

// The end of the function that made the tensor of a row, which only a saved one survives.
static void leave(sp_i_program_builder *b, const char *name)
{
    int r = sp_i_program_row(b, name);
    if (r >= 0 && !sp_saved_is_kept(&b->rows[r], b->mode)) {
        sp_i_program_free(b, b->now[r]);
        b->now[r] = SP_NO_TENSOR;
    }
}

// Part of a larger tensor.
static void make_view(sp_i_program_builder *b, const char *name, int32_t storage)
{
    int32_t view = sp_i_program_make(b, name);
    if (view != SP_NO_TENSOR) {
        b->program->tensors[view].storage = storage;
    }
}

// A row-parallel projection gives its full width before the reduce-scatter.
static int32_t project(sp_i_program_builder *b, const char *name)
{
    int32_t full = SP_NO_TENSOR;
    if (b->sequence_split) {
        full = sp_i_program_allocate(b, "projection before its reduction", b->hidden_full);
    }
    int32_t output = sp_i_program_allocate(b, name, b->hidden);
    sp_i_program_free(b, full);
    return output;
}

// Gives the attention block's output; *gathered is left to the end of the layer.
static int32_t attention_forward(sp_i_program_builder *b, int32_t *gathered)
{
    bool whole = sp_recompute_is_whole(b->mode);
    sp_i_program_make(b, "first norm output");
    int32_t mixed[3] = {SP_NO_TENSOR, SP_NO_TENSOR, SP_NO_TENSOR};
    if (b->splits_qkv) {
        mixed[0] = sp_i_program_allocate(b, "own keys", b->kv_own / 2);
        mixed[1] = sp_i_program_allocate(b, "own values", b->kv_own / 2);
    } else {
        mixed[0] = sp_i_program_allocate(b, "QKV output", b->q + b->kv_own);
    }
    *gathered = SP_NO_TENSOR;
    if (b->kv_gathered > 0) {
        *gathered = sp_i_program_allocate(b, "gathered keys and values", b->kv_gathered);
    }
    if (b->splits_qkv) {
        mixed[2] = sp_i_program_allocate(b, "queries before their rotation", b->q);
    }
    if (!whole) {
        // Rebuilt inside the projection's own backward.
        leave(b, "first norm output");
    }
    sp_i_program_make(b, "rest of the QKV output");
    sp_i_program_make(b, "queries before their norm");
    sp_i_program_make(b, "keys before their norm");
    if (b->mixed_views && *gathered == SP_NO_TENSOR) {
        make_view(b, "queries", mixed[0]);
        make_view(b, "keys and values", mixed[0]);
    } else {
        sp_i_program_make(b, "queries");
        if (*gathered == SP_NO_TENSOR) {
            sp_i_program_make(b, "keys and values");
        }
    }
    for (int i = 0; i < 3; i++) {
        sp_i_program_free(b, mixed[i]);
    }
    int32_t scores = SP_NO_TENSOR;
    if (b->unfused_attention) {
        scores = sp_i_program_allocate(b, "scores", b->scores);
        sp_i_program_make(b, "probabilities");
        sp_i_program_free(b, scores);
        sp_i_program_make(b, "probability dropout mask");
        sp_i_program_make(b, "dropped probabilities");
    }
    sp_i_program_make(b, "attention output in its own order");
    sp_i_program_make(b, "attention output");
    sp_i_program_make(b, "log-sum-exp");
    leave(b, "log-sum-exp");
    leave(b, "probabilities");
    leave(b, "probability dropout mask");
    leave(b, "dropped probabilities");
    int32_t output = project(b, "attention block output");
    leave(b, "rest of the QKV output");
    leave(b, "queries before their norm");
    leave(b, "keys before their norm");
    leave(b, "queries");
    leave(b, "attention output in its own order");
    leave(b, "attention output");
    if (*gathered == SP_NO_TENSOR) {
        leave(b, "keys and values");
    }
    return output;
}

static int32_t mlp_forward(sp_i_program_builder *b)
{
    bool halves = sp_i_program_keeps(b, "fc1 output, gate half");
    bool whole = sp_i_program_keeps(b, "fc1 output");
    sp_i_program_make(b, "router probabilities");
    sp_i_program_make(b, "expert input");
    int32_t fc1;
    if (whole) {
        fc1 = sp_i_program_make(b, "fc1 output");
    } else {
        fc1 = sp_i_program_allocate(b, "fc1 output", b->fc1);
    }
    if (halves) {
        make_view(b, "fc1 output, gate half", fc1);
        make_view(b, "fc1 output, up half", fc1);
        sp_i_program_free(b, fc1);
    }
    if (!sp_recompute_is_whole(b->mode)) {
        leave(b, "second norm output");
    }
    if (b->swiglu && !b->fused_swiglu) {
        sp_i_program_make(b, "SiLU output");
    }
    sp_i_program_make(b, "fc2 input");
    leave(b, "SiLU output");
    sp_i_program_make(b, "expert output");
    int32_t output = project(b, "MLP output");
    leave(b, "fc2 input");
    leave(b, "expert output");
    leave(b, "expert input");
    leave(b, "router probabilities");
    if (!whole && !halves) {
        sp_i_program_free(b, fc1);
    }
    return output;
}

int32_t sp_i_program_layer_forward(sp_i_program_builder *b, int32_t input, const char *output_name)
{
    for (int r = 0; r < b->row_count; r++) {
        b->now[r] = SP_NO_TENSOR;
    }
    b->now[sp_i_program_row(b, "layer input")] = input;
    int32_t gathered;
    int32_t attention = attention_forward(b, &gathered);
    sp_i_program_make(b, "attention block dropout mask");
    sp_i_program_make(b, "residual");
    sp_i_program_make(b, "second norm output");
    if (sp_recompute_is_whole(b->mode)) {
        leave(b, "first norm output");
    }
    int32_t mlp = mlp_forward(b);
    if (gathered != SP_NO_TENSOR && sp_i_program_keeps(b, "keys and values")) {
        // This rank's own part, copied from what the group gathered.
        sp_i_program_make(b, "keys and values");
    }
    sp_i_program_make(b, "MLP dropout mask");
    int32_t output = sp_i_program_allocate(b, output_name, b->hidden);
    sp_i_program_free(b, mlp);
    sp_i_program_free(b, attention);
    sp_i_program_free(b, gathered);
    leave(b, "second norm output");
    leave(b, "residual");
    leave(b, "attention block dropout mask");
    leave(b, "MLP dropout mask");
    return output;
}

static void save(sp_i_program_builder *b, int32_t tensor, int64_t elements, bool contiguous,
                 bool leaves)
{
    sp_tensor_program *program = b->program;
    sp_reserve((void **)&program->saved, &program->saved_capacity, program->saved_count + 1,
               sizeof *program->saved);
    program->saved[program->saved_count++] = (sp_saved_item){
        .tensor = tensor, .elements = elements, .contiguous = contiguous, .leaves = leaves};
}

static void save_row(sp_i_program_builder *b, const sp_saved_tensor *row, int32_t tensor)
{
    // Keys and values that later slices of the sample read stay, and so do logits.
    bool leaves = !row->is_logits && (!row->is_kv || b->kv_tokens == 0);
    save(b, tensor, sp_i_program_row_bytes(b, row) / row->element_bytes, row->contiguous, leaves);
}

static void save_layer(sp_i_program_builder *b, int layer)
{
    for (int r = 0; r < b->row_count; r++) {
        bool kept = sp_saved_is_kept(&b->rows[r], b->mode) && b->now[r] != SP_NO_TENSOR;
        b->kept[layer * b->row_count + r] = kept ? b->now[r] : SP_NO_TENSOR;
        if (kept) {
            save_row(b, &b->rows[r], b->now[r]);
        }
    }
    b->cached[layer] = SP_NO_TENSOR;
    if (b->kv_cached > 0 && !sp_i_program_keeps(b, "keys and values")) {
        b->cached[layer] = sp_i_program_allocate(b, "cached keys and values", b->kv_cached);
        save(b, b->cached[layer], b->kv_cached / BF16, true, false);
    }
}

static int32_t embedding_forward(sp_i_program_builder *b)
{
    int32_t output = project(b, "embedding output");
    for (int r = 0; r < b->embedding_count; r++) {
        const sp_saved_tensor *row = &b->embedding_rows[r];
        b->embedding_saved[r] = sp_i_program_allocate(b, row->name, sp_i_program_row_bytes(b, row));
        save_row(b, row, b->embedding_saved[r]);
    }
    return output;
}

// The first saved tensor of the head is what the last layer gives. A fused loss keeps the logits;
// others make an fp32 copy, and their softmax in its place or beside it.
static void head_forward(sp_i_program_builder *b, int32_t input)
{
    int32_t logits = SP_NO_TENSOR;
    int32_t exact = SP_NO_TENSOR;
    for (int r = 0; r < b->head_count; r++) {
        const sp_saved_tensor *row = &b->head_rows[r];
        if (row->is_logits && !b->fused_loss) {
            logits = sp_i_program_allocate(b, "logits", b->logits);
            if (b->copied_logits) {
                exact = sp_i_program_allocate(b, "logits in fp32", b->logits * FP32 / BF16);
            }
        }
        b->head_saved[r] =
            r == 0 ? input : sp_i_program_allocate(b, row->name, sp_i_program_row_bytes(b, row));
        save_row(b, row, b->head_saved[r]);
    }
    sp_i_program_free(b, exact);
    sp_i_program_free(b, logits);
}

void sp_i_program_forward(sp_i_program_builder *b)
{
    sp_tensor_program *program = b->program;
    b->to = NULL;
    int32_t at = SP_NO_TENSOR;
    if (!b->stage->embedding) {
        at = sp_i_program_allocate(b, "input", b->hidden);
        program->input = at;
    }
    b->to = &program->pass[SP_PROGRAM_FORWARD];
    int32_t mask = SP_NO_TENSOR;
    if (b->mask > 0 && (b->stage->embedding || b->stage->head)) {
        mask = sp_i_program_allocate(b, "attention mask", b->mask);
    }
    if (b->stage->embedding) {
        at = embedding_forward(b);
    }
    int32_t parameters = b->stage->layers > 0 ? sp_i_program_gather_parameters(b) : SP_NO_TENSOR;
    for (int layer = 0; layer < b->stage->layers; layer++) {
        bool last = layer + 1 == b->stage->layers;
        int32_t next = last ? SP_NO_TENSOR : sp_i_program_gather_parameters(b);
        at = sp_i_program_layer_forward(b, at, "layer output");
        save_layer(b, layer);
        sp_i_program_free(b, parameters);
        parameters = next;
    }
    if (sp_stage_is_empty(b->stage)) {
        at = sp_i_program_allocate(b, "output", b->hidden);
        sp_i_program_free(b, program->input);
    }
    if (b->stage->head) {
        head_forward(b, at);
    } else {
        program->output = at;
    }
    sp_i_program_free(b, mask);
}
