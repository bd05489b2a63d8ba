// The saved tensors of a layer as PyTorch's autograd keeps them in Megatron-LM. Llama family: read
// from kwai/Megatron-Kwai, branch atc24ae (megatron/model/transformer.py,
// core/tensor_parallel/layers.py, core/context_parallel/dattention.py). GPT with unfused attention:
// Korthikanti et al., arXiv 2205.05198, section 4.1: s*b*h*(34 + 5*a*s/h) bytes. Mixture of experts
// without expert parallelism: each token's row is copied for each of its experts (Megatron-LM,
// core/transformer/moe). Experts' outputs are kept for the gradient of the router's probabilities
// unless these are multiplied in before, with the activation.
#include "sim/memory/saved_tensors.h"

#include <math.h>

#include "sim/base/units.h"

// Is the tensor read by the backward? Inputs of frozen projections are not, but for the output of
// flash attention.
static bool is_read(sp_layer_tensor_id id, uint64_t conditions)
{
    switch (id) {
    case SP_TENSOR_NORM1:
        return sp_layer_reads_input(conditions, SP_STEP_QKV);
    case SP_TENSOR_NORM2:
        return sp_layer_reads_input(conditions, SP_STEP_FC1);
    case SP_TENSOR_FC2_INPUT:
        return sp_layer_reads_input(conditions, SP_STEP_FC2);
    case SP_TENSOR_ATTENTION:
        return sp_layer_reads_input(conditions, SP_STEP_OUTPUT) ||
               ((conditions & SP_IF_FLASH) != 0 && (conditions & SP_IF_REORDERED) == 0);
    default:
        return true;
    }
}

// With a frozen head none reads its input, but a loss by chunks has its gradient there.
static bool has_row(sp_layer_tensor_id id, uint64_t conditions)
{
    bool unread = (conditions & SP_IF_TRAINED) == 0 && (conditions & SP_IF_WHOLE_LOSS) != 0;
    return sp_layer_has(&sp_layer_tensors[id], conditions) &&
           !(id == SP_TENSOR_FINAL_NORM && unread);
}

enum { NEVER = ~SP_LAYER_ALL }; // no operation

// Recomputation covers layers only, so embedding and head keep theirs whatever runs again, and so
// does a layer its input. Autograd keeps the halves of a SwiGLU in several kernels as views of one
// tensor; only an MLP whose activation runs again keeps it whole.
static unsigned kept_with(sp_layer_tensor_id id, uint64_t conditions, const sp_stack *stack)
{
    bool split = (conditions & SP_IF_SPLIT_SWIGLU) != 0;
    bool weighted = id == SP_TENSOR_EXPERT_OUTPUT && stack->memory_efficient_permutation;
    return weighted || !is_read(id, conditions)  ? (unsigned)NEVER
           : split && id == SP_TENSOR_FC1        ? SP_LAYER_ACTIVATION
           : split && id == SP_TENSOR_SHARED_FC1 ? SP_LAYER_SHARED_ACTIVATION
                                                 : 0;
}

// Logits of the loss: a share of the vocabulary, or all of it.
static void fill_widths(const sp_model *model, const sp_layout *layout,
                        const sp_memory_options *options, const sp_shard *shard,
                        int64_t widths[SP_LAYER_WIDTHS])
{
    sp_layer_widths(model, shard, widths);
    widths[SP_WIDTH_LOGITS] *= sp_stack_logit_ranks(&options->stack, layout);
}

int sp_saved_part(const sp_model *model, const sp_layout *layout, const sp_memory_options *options,
                  sp_part part, sp_saved_tensor rows[SP_SAVED_TENSORS])
{
    sp_shard shard = sp_shard_of(model, layout);
    uint64_t conditions = sp_layer_conditions(model, layout, &options->stack, options->attention);
    int64_t widths[SP_LAYER_WIDTHS];
    fill_widths(model, layout, options, &shard, widths);
    // What experts on other ranks read is not gathered, nor what only their down-projection reads.
    bool splits_norm2 =
        shard.dispatches || ((conditions & SP_IF_EXPERT_LATENT) != 0 && model->shared_ffn == 0);
    int count = 0;
    for (int t = 0; t < SP_ALL_TENSORS; t++) {
        const sp_layer_tensor *tensor = &sp_layer_tensors[t];
        sp_layer_tensor_id id = (sp_layer_tensor_id)t;
        if (tensor->part != part || !has_row(id, conditions)) {
            continue;
        }
        bool splits = tensor->rows == SP_ROWS_RESIDUAL ||
                      (tensor->rows == SP_ROWS_INPUT && (!options->stack.keep_gathered_inputs ||
                                                         (id == SP_TENSOR_NORM2 && splits_norm2)));
        bool experts = tensor->rows == SP_ROWS_EXPERTS;
        int element = sp_layer_element_bytes(tensor->type, &options->stack);
        int64_t numbers = widths[tensor->width] * (experts ? shard.rows_of : 1);
        int64_t bytes = sp_layer_tensor_bytes(id, conditions, &options->stack, numbers);
        int64_t split = experts ? shard.rows_over : splits ? shard.norm_split : 1;
        bool pairs = tensor->rows == SP_ROWS_PAIRS;
        bool view = id == SP_TENSOR_GATE || id == SP_TENSOR_UP || id == SP_TENSOR_SHARED_HALF ||
                    id == SP_TENSOR_SHARED_UP;
        rows[count++] =
            (sp_saved_tensor){.id = id,
                              .name = tensor->name,
                              .row_bytes = pairs ? 0 : bytes,
                              .pair_bytes = pairs ? bytes : 0,
                              .element_bytes = element,
                              .shard = layout->cp * (int)split,
                              .of_experts = experts && model->experts > 0,
                              .capacity = shard.capacity,
                              .is_kv = id == SP_TENSOR_KEYS_VALUES,
                              .is_logits = id == SP_TENSOR_LOGITS,
                              .is_statistic = (tensor->conditions & SP_IF_EXPLICIT) != 0,
                              .contiguous = !view,
                              .dropped_by = tensor->kept_by,
                              .kept_with = kept_with(id, conditions, &options->stack)};
    }
    return count;
}

sp_memory_category sp_saved_category(const sp_saved_tensor *tensor)
{
    return tensor->is_logits      ? SP_MEM_LOGITS
           : tensor->is_statistic ? SP_MEM_WORKSPACE
                                  : SP_MEM_ACTIVATIONS;
}

int64_t sp_saved_bytes(const sp_saved_tensor *tensor, const sp_layout *layout, int64_t tokens,
                       int64_t pairs)
{
    int64_t kept =
        tensor->of_experts ? sp_capacity_tokens(&tensor->capacity, layout, tokens) : tokens;
    return sp_mul_bytes(sp_ceil_div(kept, tensor->shard), tensor->row_bytes) +
           sp_mul_bytes(sp_ceil_div(pairs, layout->cp), tensor->pair_bytes);
}

int64_t sp_saved_load_bytes(const sp_saved_tensor *tensor, const sp_layout *layout,
                            const sp_unit_load *load)
{
    bool levelled = tensor->of_experts && load->expert_tokens > 0;
    return sp_saved_bytes(tensor, layout, levelled ? load->expert_tokens : load->tokens,
                          load->pairs);
}

// ---- A unit ----

// Smaller tensors are not worth a copy.
#define LEAST_BYTES (INT64_C(1) << 20)
#define STEP_BYTES (INT64_C(1) << 20)

enum { BF16 = 2 };

void sp_unit_sizes_of(const sp_model *model, const sp_layout *layout,
                      const sp_memory_options *options, const sp_unit_load *load,
                      sp_unit_sizes *sizes)
{
    *sizes = (sp_unit_sizes){.shard = sp_shard_of(model, layout)};
    const sp_shard *shard = &sizes->shard;
    int64_t widths[SP_LAYER_WIDTHS];
    fill_widths(model, layout, options, shard, widths);
    int64_t rows = sp_ceil_div(load->tokens, layout->cp);
    int64_t norm_rows = sp_ceil_div(load->tokens, (int64_t)layout->cp * shard->norm_split);
    int64_t mlp_rows = sp_layer_mlp_rows(
        shard, layout,
        shard->dispatches && load->expert_tokens > 0 ? load->expert_tokens : load->tokens);
    for (int w = 0; w < SP_LAYER_WIDTHS; w++) {
        bool experts = w == SP_WIDTH_ROUTED || w == SP_WIDTH_FFN || w == SP_WIDTH_FC1;
        sizes->width[w] = sp_mul_bytes(experts ? mlp_rows : rows, BF16 * widths[w]);
        sizes->split[w] = sp_mul_bytes(norm_rows, BF16 * widths[w]);
    }
    sizes->hidden = sizes->split[SP_WIDTH_HIDDEN];
    int peers = model->mixer == SP_MIXER_ATTENTION
                    ? layout->cp / sp_stack_head_ranks(&options->stack, layout)
                    : 1;
    sizes->kv_gathered = peers > 1 ? sp_mul_bytes(peers, sizes->width[SP_WIDTH_KV]) : 0;
    int64_t local_pairs = sp_ceil_div(load->pairs, layout->cp);
    if (options->attention == SP_ATTENTION_UNFUSED && model->mixer == SP_MIXER_ATTENTION) {
        sizes->scores = sp_mul_bytes(local_pairs, BF16 * shard->heads);
    }
    sizes->mask = options->stack.attention_mask ? local_pairs : 0;
}

typedef struct list {
    sp_unit_tensor *tensors;
    int count;
    int kind; // of layers whose tensors are added
} list;

static void add(list *to, const sp_saved_tensor *saved, sp_memory_category category, int count,
                int64_t bytes)
{
    if (bytes == 0 || count == 0) {
        return;
    }
    SP_ASSERT(to->count < SP_UNIT_TENSORS);
    to->tensors[to->count++] = (sp_unit_tensor){
        .id = saved->id,
        .name = category == SP_MEM_KV_CACHE ? "keys and values of earlier slices" : saved->name,
        .category = category,
        .is_kv = saved->is_kv,
        .kind = to->kind,
        .count = count,
        .bytes = bytes,
        .elements = bytes / saved->element_bytes,
        .contiguous = saved->contiguous};
}

// The tensors of a part of the model, or else their statistics. Keys and values that later slices
// read stay whatever runs again.
static void add_part(list *to, const sp_saved_rows *rows, const sp_layout *layout,
                     const sp_memory_options *options, bool statistics, int times,
                     const sp_unit_load *load)
{
    bool are_counted = !statistics || options->stack.tensors == SP_TENSORS_EXPLICIT;
    for (int i = 0; times > 0 && are_counted && i < rows->count; i++) {
        const sp_saved_tensor *row = &rows->row[i];
        if (row->is_statistic != statistics) {
            continue;
        }
        int64_t bytes = sp_saved_load_bytes(row, layout, load);
        if (row->is_kv) {
            int64_t cached = sp_saved_bytes(row, layout, load->kv_tokens, 0);
            add(to, row, SP_MEM_KV_CACHE, times, cached);
            bytes -= cached;
        }
        if (sp_saved_is_kept(row, rows->repeated)) {
            add(to, row, sp_saved_category(row), times, bytes);
        }
    }
}

static void add_layers(list *to, const sp_saved_parts *parts, const sp_model *model,
                       const sp_layout *layout, const sp_stage *stage,
                       const sp_memory_options *options, bool statistics, const sp_unit_load *load)
{
    for (int k = 0; k < sp_model_kinds(model); k++) {
        to->kind = k;
        add_part(to, &parts->layer[k], layout, options, statistics, sp_stage_count(stage, model, k),
                 load);
    }
}

void sp_saved_parts_find(const sp_model *model, const sp_layout *layout,
                         const sp_memory_options *options, sp_saved_parts *parts)
{
    sp_saved_rows *embedding = &parts->embedding;
    sp_saved_rows *head = &parts->head;
    embedding->repeated = head->repeated = 0;
    embedding->count = sp_saved_part(model, layout, options, SP_PART_EMBEDDING, embedding->row);
    head->count = sp_saved_part(model, layout, options, SP_PART_HEAD, head->row);
    for (int k = 0; k < sp_model_kinds(model); k++) {
        sp_model space;
        const sp_model *alike = sp_model_of_kind(model, k, &space);
        parts->layer[k].repeated = sp_recompute_operations(options->recompute, alike);
        parts->layer[k].count =
            sp_saved_part(alike, layout, options, SP_PART_LAYER, parts->layer[k].row);
    }
}

int sp_unit_tensors_of(const sp_saved_parts *parts, const sp_model *model, const sp_layout *layout,
                       const sp_stage *stage, const sp_memory_options *options,
                       const sp_unit_load *load, sp_unit_tensor tensors[SP_UNIT_TENSORS])
{
    list to = {.tensors = tensors};
    add_part(&to, &parts->embedding, layout, options, false, stage->embedding, load);
    add_layers(&to, parts, model, layout, stage, options, false, load);
    add_part(&to, &parts->head, layout, options, false, stage->head, load);
    add_part(&to, &parts->head, layout, options, true, stage->head, load);
    add_layers(&to, parts, model, layout, stage, options, true, load);
    return to.count;
}

int sp_unit_tensors(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                    const sp_memory_options *options, const sp_unit_load *load,
                    sp_unit_tensor tensors[SP_UNIT_TENSORS])
{
    sp_saved_parts parts;
    sp_saved_parts_find(model, layout, options, &parts);
    return sp_unit_tensors_of(&parts, model, layout, stage, options, load, tensors);
}

static bool may_leave(const sp_unit_tensor *tensor)
{
    return tensor->category == SP_MEM_ACTIVATIONS && tensor->bytes >= LEAST_BYTES;
}

int64_t sp_unit_offload_bytes(const sp_unit_tensor *tensors, int count, double ratio)
{
    int64_t all = 0;
    for (int i = 0; i < count; i++) {
        all += may_leave(&tensors[i]) ? sp_mul_bytes(tensors[i].count, tensors[i].bytes) : 0;
    }
    int64_t share = llround(ratio * (double)all);
    int64_t rounded = sp_ceil_div(share, STEP_BYTES) * STEP_BYTES;
    return rounded < all ? rounded : all;
}

// Does `a` stand before `b` in the order of leaving, by what all their layers share?
static bool is_before(const sp_unit_tensor *a, const sp_unit_tensor *b)
{
    return a->contiguous != b->contiguous ? a->contiguous : a->elements > b->elements;
}

static bool is_alike(const sp_unit_tensor *a, const sp_unit_tensor *b)
{
    return a->contiguous == b->contiguous && a->elements == b->elements;
}

// Takes up to *left bytes from the tensors of one layer that are alike `like`; returns what it took
// of one that it did not take whole.
static int64_t take_layer(sp_unit_tensor *tensors, int count, const sp_unit_tensor *like, int layer,
                          bool reversed, int64_t *left)
{
    int64_t part = 0;
    for (int k = 0; k < count; k++) {
        sp_unit_tensor *tensor = &tensors[reversed ? count - 1 - k : k];
        if (may_leave(tensor) && is_alike(tensor, like) && layer < tensor->count) {
            int64_t taken = tensor->bytes < *left ? tensor->bytes : *left;
            tensor->away_bytes += taken;
            *left -= taken;
            part = taken > 0 && taken < tensor->bytes ? taken : part;
        }
    }
    return part;
}

bool sp_unit_offload_from_last(double ratio)
{
    return ratio > 0.5;
}

int64_t sp_unit_offload(sp_unit_tensor *tensors, int count, double ratio)
{
    int64_t left = sp_unit_offload_bytes(tensors, count, ratio);
    bool reversed = sp_unit_offload_from_last(ratio);
    const sp_unit_tensor *last = NULL;
    int layers = 0;
    int64_t part = 0;
    for (int i = 0; i < count; i++) {
        layers = tensors[i].count > layers ? tensors[i].count : layers;
    }
    while (left > 0) {
        // The kind that comes next: the first (or, reversed, last) of those beyond `last`.
        const sp_unit_tensor *next = NULL;
        for (int i = 0; i < count; i++) {
            const sp_unit_tensor *t = &tensors[i];
            bool beyond = last == NULL || (reversed ? is_before(t, last) : is_before(last, t));
            bool nearer = next == NULL || (reversed ? is_before(next, t) : is_before(t, next));
            next = may_leave(t) && beyond && nearer ? t : next;
        }
        SP_ASSERT(next != NULL);
        for (int layer = 0; layer < layers && left > 0; layer++) {
            part = take_layer(tensors, count, next, reversed ? layers - 1 - layer : layer, reversed,
                              &left);
        }
        last = next;
    }
    return part;
}
