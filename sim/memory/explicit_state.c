#include "sim/memory/explicit_state.h"

#include "sim/base/units.h"
#include "sim/model/layout.h"

static sp_i_memory_gauge gauge_at(const sp_bytes *bytes);

enum { BF16 = 2, FP32 = 4 };

void sp_i_explicit_begin(sp_i_explicit *x, const sp_bytes *there)
{
    x->gauge = gauge_at(there);
    x->rebuilds = false;
    for (int t = 0; t < SP_ALL_TENSORS; t++) {
        x->place[t] = SP_MEM_CATEGORIES;
        x->viewed[t] = false;
    }
}

void sp_i_explicit_offload(sp_i_explicit *x, const sp_unit_tensor *tensors, int count, double ratio)
{
    x->away_from_last = sp_unit_offload_from_last(ratio);
    for (int i = 0; i < count; i++) {
        if (tensors[i].away_bytes > 0) {
            x->away_layers[tensors[i].id] = (int)(tensors[i].away_bytes / tensors[i].bytes);
        }
    }
}

// Sums over the layers of a stage must stay defined.
static int64_t cut(const sp_stage *stage, int64_t bytes)
{
    int64_t most = SP_MOST_BYTES / (stage->layers + 1);
    return bytes < most ? bytes : most;
}

static void measure_tensors(const sp_saved_tensor *rows, int count, const sp_layout *layout,
                            sp_recompute mode, const sp_unit_load *load, sp_i_explicit *x)
{
    for (int r = 0; r < count; r++) {
        const sp_saved_tensor *row = &rows[r];
        sp_layer_tensor_id t = row->id;
        int64_t bytes = sp_saved_bytes(row, layout, load->tokens, load->pairs);
        if (row->is_kv) {
            int64_t cached = sp_saved_bytes(row, layout, load->kv_tokens, 0);
            x->kv_cached = cut(x->stage, cached);
            bytes -= cached;
        }
        const sp_layer_tensor *tensor = &sp_layer_tensors[t];
        if (tensor->part == SP_PART_LAYER) {
            x->made[tensor->made] |= 1u << t;
            x->last_read[tensor->last_read] |= 1u << t;
        }
        x->bytes[t] = cut(x->stage, bytes);
        x->kept[t] = sp_saved_is_kept(row, mode);
        x->category[t] = sp_saved_category(row);
    }
}

// Gradients of norms and of tables that are looked up do not wait for the weight gradients.
static void measure_parts(const sp_model *model, const sp_layout *layout, sp_i_explicit *x)
{
    static const sp_stage stages[SP_PARTS] = {[SP_PART_LAYER] = {.layers = 1},
                                              [SP_PART_EMBEDDING] = {.embedding = true},
                                              [SP_PART_HEAD] = {.head = true}};
    int64_t table = sp_shard_of(model, layout).vocab * model->hidden;
    int64_t norm = sp_footprint_parameters(model, layout, &stages[SP_PART_HEAD], 1) - table;
    for (int p = 0; p < SP_PARTS; p++) {
        int64_t all = sp_footprint_parameters(model, layout, &stages[p], 1);
        int64_t now = p == SP_PART_EMBEDDING ? all : p == SP_PART_LAYER ? 2 * norm : norm;
        x->parameters[p] = layout->zero >= 3 ? cut(x->stage, sp_mul_bytes(BF16, all)) : 0;
        x->gradients[p] = layout->zero >= 2 ? cut(x->stage, sp_mul_bytes(FP32, all)) : 0;
        x->input_gradients[p] = layout->zero >= 2 ? cut(x->stage, sp_mul_bytes(FP32, now)) : 0;
    }
}

// Rows that work spaces of cuDNN are for (backends/cuda/attention.c).
static int64_t planned_rows(int64_t rows)
{
    int64_t base = 128;
    while (2 * base < rows) {
        base *= 2;
    }
    return rows <= base ? base : sp_ceil_div(rows, base / 8) * (base / 8);
}

// Keys that the runs of a pack's queries see, each run for itself: its sample's up to its end. A
// rank has one run of a slice, of a zig-zag shard two; of several slices each sequence-parallel
// part is a run of its own.
static int64_t run_keys(const sp_shard *shard, const sp_layout *layout, const sp_unit_load *load,
                        int64_t rows, int64_t seen)
{
    int64_t runs = layout->cp > 1 ? 2 : 1;
    int64_t parts = load->slices > 1 ? shard->norm_split / runs : 1;
    int64_t ends = runs * seen - (runs - 1) * (load->tokens - rows / 2);
    return parts > 1 ? parts * ends - rows * (parts - 1) / 2 : ends;
}

// By cuDNN: keys and values of all samples in one matrix, but of the one slice that stands so
// already; their gradients in another, of each run; the gradients of the queries in fp32 and a
// number for each row, and where heads are grouped the gradients of the keys and values of every
// query head.
static void measure_cudnn(const sp_shard *shard, const sp_layout *layout, const sp_unit_load *load,
                          int64_t rows, int64_t seen, sp_i_explicit *x)
{
    bool alone = layout->cp == 1 && load->slices == 1 && seen == load->tokens;
    int64_t keys = run_keys(shard, layout, load, rows, seen);
    int64_t joined = alone ? 0 : sp_mul_bytes(seen, 2 * BF16 * shard->kv);
    int64_t spread = shard->q != shard->kv ? 2 * FP32 * shard->q : 0;
    x->attend += joined;
    x->attend_backward += joined + sp_mul_bytes(keys, 2 * BF16 * shard->kv) +
                          sp_mul_bytes(planned_rows(rows), FP32 * (shard->q + shard->heads)) +
                          sp_mul_bytes(planned_rows(keys), spread);
}

// What a GPU's attention takes beside its tensors: backward a number for each query and head; keys
// and values of all ranks that share the pack, backward with gradients in fp32.
static void measure_attention(const sp_model *model, const sp_layout *layout, const sp_stack *stack,
                              const sp_unit_load *load, sp_i_explicit *x)
{
    enum { HEAD_STEP = 16 };
    if (!sp_stack_counts_device(stack)) {
        return;
    }
    sp_shard shard = sp_shard_of(model, layout);
    int64_t rows = sp_ceil_div(load->tokens, layout->cp);
    int64_t seen = load->seen_tokens > 0 ? load->seen_tokens : load->tokens;
    x->attend_backward = sp_mul_bytes(rows, FP32 * shard.heads);
    if (layout->cp > 1) {
        x->attend = sp_mul_bytes(seen, 2 * BF16 * shard.kv);
        x->attend_backward += sp_mul_bytes(seen, 2 * (BF16 + FP32) * shard.kv);
    }
    if (stack->cudnn_attention && load->slices > 0 && model->head_dim % HEAD_STEP == 0) {
        measure_cudnn(&shard, layout, load, rows, seen, x);
    }
    x->attend = cut(x->stage, x->attend);
    x->attend_backward = cut(x->stage, x->attend_backward);
}

void sp_i_explicit_measure(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                           const sp_memory_options *options, const sp_unit_load *load,
                           sp_i_explicit *x)
{
    *x = (sp_i_explicit){.stage = stage, .collects = load->collects};
    sp_saved_tensor rows[SP_SAVED_TENSORS];
    for (int part = 0; part < SP_PARTS; part++) {
        int count = sp_saved_part(model, layout, options, (sp_part)part, rows);
        measure_tensors(rows, count, layout, options->recompute, load, x);
    }
    sp_shard shard = sp_shard_of(model, layout);
    int64_t local = sp_ceil_div(load->tokens, layout->cp);
    int64_t value = cut(x->stage, sp_mul_bytes(local, BF16)); // of one column
    x->hidden = x->bytes[SP_TENSOR_INPUT];
    x->hidden_gathered =
        shard.norm_split > 1 ? cut(x->stage, sp_mul_bytes(value, model->hidden)) : 0;
    x->q = cut(x->stage, sp_mul_bytes(value, shard.q));
    x->qkv = cut(x->stage, sp_mul_bytes(value, shard.q + 2 * shard.kv));
    x->scores = x->bytes[SP_TENSOR_PROBABILITIES];
    x->ffn = cut(x->stage, sp_mul_bytes(value, shard.ffn * shard.active));
    x->fc1 = cut(x->stage, sp_mul_bytes(value, shard.fc1 * shard.active));
    x->logits_gradient = cut(x->stage, sp_mul_bytes(value, shard.vocab));
    measure_attention(model, layout, &options->stack, load, x);
    int64_t kv = sp_mul_bytes(2 * sp_footprint_kv_gradient_bytes(&options->stack), shard.kv);
    x->kv_found = cut(x->stage, sp_mul_bytes(load->found_tokens / layout->cp, kv));
    x->kv_begun = cut(x->stage, sp_mul_bytes(load->begun_tokens / layout->cp, kv));
    x->kv_missing = cut(x->stage, sp_mul_bytes(local, kv)) - x->kv_found;
    x->kv_missing = x->kv_missing > 0 ? x->kv_missing : 0;
    measure_parts(model, layout, x);
}

void sp_i_explicit_take(sp_i_explicit *x, int64_t workspace_bytes)
{
    sp_i_memory_take(&x->gauge, SP_MEM_WORKSPACE, workspace_bytes);
}

void sp_i_explicit_give(sp_i_explicit *x, int64_t workspace_bytes)
{
    sp_i_memory_give(&x->gauge, SP_MEM_WORKSPACE, workspace_bytes);
}

static int64_t open_bytes(const sp_i_explicit *x, sp_part part, bool backward)
{
    int64_t gradients = x->splits ? x->input_gradients[part] : x->gradients[part];
    return x->parameters[part] + (backward ? gradients : 0);
}

void sp_i_explicit_open(sp_i_explicit *x, sp_part part, bool backward)
{
    sp_i_explicit_take(x, open_bytes(x, part, backward));
}

void sp_i_explicit_close(sp_i_explicit *x, sp_part part, bool backward)
{
    sp_i_explicit_give(x, open_bytes(x, part, backward));
}

void sp_i_explicit_pass(sp_i_explicit *x, int64_t workspace_bytes)
{
    sp_i_explicit_take(x, workspace_bytes);
    sp_i_explicit_give(x, workspace_bytes);
}

bool sp_i_explicit_has(const sp_i_explicit *x, sp_layer_tensor_id tensor)
{
    return x->place[tensor] != SP_MEM_CATEGORIES && x->bytes[tensor] > 0;
}

sp_memory_category sp_i_explicit_place(const sp_i_explicit *x, sp_layer_tensor_id tensor)
{
    if (x->rebuilds) {
        return SP_MEM_RECOMPUTE;
    }
    return x->keeps && x->kept[tensor] ? x->category[tensor] : SP_MEM_WORKSPACE;
}

void sp_i_explicit_make(sp_i_explicit *x, sp_layer_tensor_id tensor)
{
    if (x->place[tensor] == SP_MEM_CATEGORIES) {
        x->place[tensor] = sp_i_explicit_place(x, tensor);
        sp_i_memory_take(&x->gauge, x->place[tensor], x->bytes[tensor]);
    }
}

void sp_i_explicit_drop(sp_i_explicit *x, sp_layer_tensor_id tensor)
{
    if (x->place[tensor] != SP_MEM_CATEGORIES) {
        int64_t gone = x->viewed[tensor] ? 0 : x->bytes[tensor];
        sp_i_memory_give(&x->gauge, x->place[tensor], gone);
        x->place[tensor] = SP_MEM_CATEGORIES;
    }
}

// Starts at what is there, which is also the first mark.
static sp_i_memory_gauge gauge_at(const sp_bytes *bytes)
{
    int64_t total = sp_bytes_total(bytes);
    return (sp_i_memory_gauge){.now = *bytes, .high = *bytes, .total = total, .high_total = total};
}

void sp_i_memory_take(sp_i_memory_gauge *gauge, sp_memory_category category, int64_t bytes)
{
    gauge->now.of[category] += bytes;
    gauge->total += bytes;
    if (gauge->total > gauge->high_total) {
        gauge->high_total = gauge->total;
        gauge->high = gauge->now;
    }
}

void sp_i_memory_give(sp_i_memory_gauge *gauge, sp_memory_category category, int64_t bytes)
{
    gauge->now.of[category] -= bytes;
    gauge->total -= bytes;
}
