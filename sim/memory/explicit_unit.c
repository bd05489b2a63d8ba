#include "sim/memory/explicit_unit.h"

#include "sim/base/units.h"
#include "sim/model/layout.h"

enum { BF16 = 2, FP32 = 4 };

// ---- Sizes ----

// Sums over the layers of a stage must stay defined.
static int64_t cut(const sp_stage *stage, int64_t bytes)
{
    int64_t most = SP_MOST_BYTES / (stage->layers + 1);
    return bytes < most ? bytes : most;
}

static void measure_tensors(const sp_saved_tensor *rows, int count, const sp_layout *layout,
                            unsigned repeated, const sp_unit_load *load, sp_i_explicit *x)
{
    for (int r = 0; r < count; r++) {
        const sp_saved_tensor *row = &rows[r];
        sp_layer_tensor_id t = row->id;
        int64_t bytes = sp_saved_load_bytes(row, layout, load);
        if (row->is_kv) {
            int64_t cached = sp_saved_bytes(row, layout, load->kv_tokens, 0);
            x->kv_cached = cut(x->stage, cached);
            bytes -= cached;
        }
        const sp_layer_tensor *tensor = &sp_layer_tensors[t];
        if (tensor->part == SP_PART_LAYER) {
            x->at->made[tensor->made] |= SP_LAYER_SET(t);
            x->at->last_read[tensor->last_read] |= SP_LAYER_SET(t);
            x->at->read_back[tensor->read_back] |= SP_LAYER_SET(t);
        }
        x->at->bytes[t] = cut(x->stage, bytes);
        x->at->kept[t] = sp_saved_is_kept(row, repeated);
        x->at->category[t] = sp_saved_category(row);
    }
}

// Of router and gate, whose gradients do not wait for the weight gradients either.
static int64_t choice_parameters(const sp_model *model, const sp_shard *shard)
{
    static const sp_layer_place steps[] = {SP_STEP_ROUTER, SP_STEP_SHARED_GATE};
    int64_t parameters = 0;
    for (int i = 0; i < 2; i++) {
        sp_layer_linear linear;
        if (model->experts > 0 && sp_layer_linear_of(model, shard, steps[i], &linear)) {
            parameters += linear.outputs * (linear.inputs + (linear.bias ? 1 : 0));
        }
    }
    return parameters;
}

static void measure_steps(const sp_model *alike, const sp_unit_sizes *sizes, sp_i_explicit *x)
{
    enum { ROUTE_NUMBERS = 2 }; // a weight and an expert
    sp_i_explicit_kind *kind = x->at;
    kind->routed = alike->experts > 0;
    kind->gated = alike->shared_gate;
    kind->latent = sp_model_is_latent(alike);
    for (int s = 0; s < SP_LAYER_STEPS; s++) {
        const sp_layer_step *step = &sp_layer_steps[s];
        bool routes = (step->operation & (SP_LAYER_ROUTER | SP_LAYER_SHARED_GATE)) != 0 ||
                      step->kind == SP_LAYER_KIND_PERMUTATION;
        kind->reads[s] = sp_layer_reads(sp_layer_model_conditions(alike), (sp_layer_place)s);
        kind->runs[s] = sp_layer_has_step(alike, step) && (kind->routed || !routes);
    }
    if (sizes->shard.dispatches) {
        int64_t rows = sp_mul_bytes(sizes->shard.active, sizes->width[SP_WIDTH_ONE]);
        kind->sent_rows =
            cut(x->stage, sp_mul_bytes(sizes->shard.active, sizes->width[SP_WIDTH_EXPERT]));
        kind->sent_routes = cut(x->stage, sp_mul_bytes(ROUTE_NUMBERS, rows));
    }
}

// Gradients of norms and of tables that are looked up do not wait for the weight gradients.
static void measure_parts(const sp_model *model, const sp_layout *layout, sp_i_explicit *x)
{
    static const sp_stage stages[SP_PARTS] = {[SP_PART_LAYER] = {.layers = 1},
                                              [SP_PART_EMBEDDING] = {.embedding = true},
                                              [SP_PART_HEAD] = {.head = true}};
    const sp_shard shard = sp_shard_of(model, layout);
    int64_t table = shard.vocab * model->hidden;
    int64_t norm = sp_footprint_parameters(model, layout, &stages[SP_PART_HEAD], 1) - table;
    // One rank alone has nothing to gather or to scatter.
    int zero = sp_layout_zero_ranks(layout) > 1 ? layout->zero : 0;
    int64_t layer_norms = sp_layer_norms(model);
    for (int p = 0; p < SP_PARTS; p++) {
        int64_t all = sp_footprint_parameters(model, layout, &stages[p], 1);
        int64_t of_layer = layer_norms * norm + choice_parameters(model, &shard);
        int64_t now = p == SP_PART_EMBEDDING ? all : p == SP_PART_LAYER ? of_layer : norm;
        x->at->parameters[p] = zero >= 3 ? cut(x->stage, sp_mul_bytes(BF16, all)) : 0;
        x->at->gradients[p] = zero >= 2 ? cut(x->stage, sp_mul_bytes(FP32, all)) : 0;
        x->at->input_gradients[p] = zero >= 2 ? cut(x->stage, sp_mul_bytes(FP32, now)) : 0;
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
    int64_t joined = alone ? 0 : sp_mul_bytes(seen, BF16 * (shard->k + shard->v));
    int64_t spread = shard->q != shard->k ? 2 * FP32 * shard->q : 0;
    x->attend += joined;
    x->attend_backward += joined + sp_mul_bytes(keys, BF16 * (shard->k + shard->v)) +
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
        x->attend = sp_mul_bytes(seen, BF16 * (shard.k + shard.v));
        x->attend_backward += sp_mul_bytes(seen, (BF16 + FP32) * (shard.k + shard.v));
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
    *x = (sp_i_explicit){.model = model, .stage = stage, .collects = load->collects};
    sp_unit_sizes sizes;
    // The first kind comes last, whose sizes are those of what all layers share.
    for (int k = sp_model_kinds(model); k-- > 0;) {
        sp_model space;
        const sp_model *alike = sp_model_of_kind(model, k, &space);
        x->at = &x->kinds[k];
        unsigned repeated = sp_recompute_operations(options->recompute, alike);
        sp_saved_tensor rows[SP_SAVED_TENSORS];
        for (int part = 0; part < SP_PARTS; part++) {
            int count = sp_saved_part(alike, layout, options, (sp_part)part, rows);
            measure_tensors(rows, count, layout, repeated, load, x);
        }
        sp_unit_sizes_of(alike, layout, options, load, &sizes);
        for (int w = 0; w < SP_LAYER_WIDTHS; w++) {
            x->at->width[w] = cut(stage, sizes.width[w]);
        }
        measure_parts(alike, layout, x);
        measure_steps(alike, &sizes, x);
    }
    x->hidden = x->at->bytes[SP_TENSOR_INPUT];
    x->hidden_gathered = sizes.shard.norm_split > 1 ? x->at->width[SP_WIDTH_HIDDEN] : 0;
    measure_attention(model, layout, &options->stack, load, x);
    int64_t kv = sp_mul_bytes(sp_footprint_kv_gradient_bytes(&options->stack),
                              sizes.shard.k + sizes.shard.v);
    x->kv_found = cut(x->stage, sp_mul_bytes(load->found_tokens / layout->cp, kv));
    x->kv_begun = cut(x->stage, sp_mul_bytes(load->begun_tokens / layout->cp, kv));
    x->kv_missing =
        cut(x->stage, sp_mul_bytes(sp_ceil_div(load->tokens, layout->cp), kv)) - x->kv_found;
    x->kv_missing = x->kv_missing > 0 ? x->kv_missing : 0;
}

// ---- What is there ----

static void count_in(sp_i_memory_gauge *gauge, sp_memory_category category, int64_t bytes)
{
    gauge->now.of[category] += bytes;
    gauge->total += bytes;
    if (gauge->total > gauge->high_total) {
        gauge->high_total = gauge->total;
        gauge->high = gauge->now;
    }
}

static void count_out(sp_i_memory_gauge *gauge, sp_memory_category category, int64_t bytes)
{
    gauge->now.of[category] -= bytes;
    gauge->total -= bytes;
}

void sp_i_explicit_begin(sp_i_explicit *x, const sp_bytes *there)
{
    int64_t total = sp_bytes_total(there);
    x->gauge =
        (sp_i_memory_gauge){.now = *there, .high = *there, .total = total, .high_total = total};
    x->rebuilds = false;
    for (int t = 0; t < SP_ALL_TENSORS; t++) {
        x->place[t] = SP_MEM_CATEGORIES;
        x->viewed[t] = false;
    }
}

// From now on layer number `layer` of the stage is at hand.
static void enter_layer(sp_i_explicit *x, int layer)
{
    x->at = &x->kinds[sp_model_kind_of(x->model, x->stage->first + layer)];
}

static void take(sp_i_explicit *x, int64_t workspace_bytes)
{
    count_in(&x->gauge, SP_MEM_WORKSPACE, workspace_bytes);
}

static void give(sp_i_explicit *x, int64_t workspace_bytes)
{
    count_out(&x->gauge, SP_MEM_WORKSPACE, workspace_bytes);
}

// What a layer, embedding or LM head has beside its tensors while it is at work.
static int64_t open_bytes(const sp_i_explicit *x, sp_part part, bool backward)
{
    int64_t gradients = x->splits ? x->at->input_gradients[part] : x->at->gradients[part];
    return x->at->parameters[part] + (backward ? gradients : 0);
}

static void open_part(sp_i_explicit *x, sp_part part, bool backward)
{
    take(x, open_bytes(x, part, backward));
}

static void close_part(sp_i_explicit *x, sp_part part, bool backward)
{
    give(x, open_bytes(x, part, backward));
}

// A buffer that comes and goes at once.
static void take_briefly(sp_i_explicit *x, int64_t workspace_bytes)
{
    take(x, workspace_bytes);
    give(x, workspace_bytes);
}

static bool has(const sp_i_explicit *x, sp_layer_tensor_id tensor)
{
    return x->place[tensor] != SP_MEM_CATEGORIES && x->at->bytes[tensor] > 0;
}

// Where the pass at hand counts a tensor that it makes.
static sp_memory_category place_of(const sp_i_explicit *x, sp_layer_tensor_id tensor)
{
    if (x->rebuilds) {
        return SP_MEM_RECOMPUTE;
    }
    return x->keeps && x->at->kept[tensor] ? x->at->category[tensor] : SP_MEM_WORKSPACE;
}

// Makes a tensor of the layer at hand unless it is there.
static void make(sp_i_explicit *x, sp_layer_tensor_id tensor)
{
    if (x->place[tensor] == SP_MEM_CATEGORIES) {
        x->place[tensor] = place_of(x, tensor);
        count_in(&x->gauge, x->place[tensor], x->at->bytes[tensor]);
    }
}

static void drop(sp_i_explicit *x, sp_layer_tensor_id tensor)
{
    if (x->place[tensor] != SP_MEM_CATEGORIES) {
        int64_t gone = x->viewed[tensor] ? 0 : x->at->bytes[tensor];
        count_out(&x->gauge, x->place[tensor], gone);
        x->place[tensor] = SP_MEM_CATEGORIES;
    }
}

// ---- Forward ----

// Its readers are done: only what is kept survives them, and what a backward rebuilt.
static void leave(sp_i_explicit *x, sp_layer_tensor_id tensor)
{
    if (!x->rebuilds && !(x->keeps && x->at->kept[tensor])) {
        drop(x, tensor);
    }
}

// The end of a layer: what is kept is nobody's to give until the backward.
static void end_layer(sp_i_explicit *x)
{
    for (int t = 0; t < SP_ALL_TENSORS; t++) {
        leave(x, (sp_layer_tensor_id)t);
        x->place[t] = SP_MEM_CATEGORIES;
    }
}

static void make_all(sp_i_explicit *x, sp_layer_place step)
{
    for (sp_layer_set left = x->at->made[step]; left != 0; left &= left - 1) {
        make(x, sp_layer_set_first(left));
    }
}

// A column-parallel product has read its gathered input when its output is there. Queries, keys
// and values are taken from the output of theirs.
static void project(sp_i_explicit *x, sp_layer_place step)
{
    take(x, x->hidden_gathered);
    bool joint = step == SP_STEP_QKV && x->at->runs[step];
    take(x, joint ? x->at->width[SP_WIDTH_QKV] : 0);
    make_all(x, step);
    give(x, x->hidden_gathered);
}

static void split_qkv(sp_i_explicit *x)
{
    make(x, SP_TENSOR_QUERIES);
    if (!x->cached && !x->rebuilds) {
        count_in(&x->gauge, SP_MEM_KV_CACHE, x->kv_cached);
    }
    make(x, SP_TENSOR_KEYS_VALUES);
    give(x, x->at->width[x->at->latent ? SP_WIDTH_KV_UP : SP_WIDTH_QKV]);
}

// A latent without what stands behind it, and the statistics of its norm.
static int64_t latent_norm_bytes(const sp_i_explicit *x, sp_layer_place step)
{
    enum { STATISTICS = 2 * FP32 / BF16 };
    const int64_t *width = x->at->width;
    return (step == SP_STEP_KV_NORM ? width[SP_WIDTH_KV_LATENT] : 0) +
           STATISTICS * width[SP_WIDTH_ONE];
}

// The output is there before the scores, which go when there are probabilities.
static void attend(sp_i_explicit *x)
{
    make(x, SP_TENSOR_ATTENTION);
    take(x, x->at->bytes[SP_TENSOR_PROBABILITIES]);
    make(x, SP_TENSOR_PROBABILITIES);
    give(x, x->at->bytes[SP_TENSOR_PROBABILITIES]);
    make_all(x, SP_STEP_CORE);
    take_briefly(x, x->attend);
}

// A row-parallel product gives all rows, whose sum goes into the residual path.
static void reduce(sp_i_explicit *x, sp_layer_place step)
{
    if (step == SP_STEP_OUTPUT_REDUCE) {
        make(x, SP_TENSOR_RESIDUAL);
    }
    make_all(x, step);
    take_briefly(x, x->hidden_gathered);
}

// What shared experts give, without a gate, goes when it is added.
static int64_t ungated_bytes(const sp_i_explicit *x, sp_layer_place step)
{
    const sp_i_explicit_kind *kind = x->at;
    return kind->runs[step] && !kind->gated && !x->rebuilds ? x->hidden : 0;
}

// Rows are put in order before they go to experts on other ranks.
static void permute(sp_i_explicit *x)
{
    make_all(x, SP_STEP_PERMUTATION);
    take(x, x->at->sent_routes);
    take(x, x->at->sent_rows);
    give(x, x->at->sent_routes);
    give(x, x->at->sent_rows);
}

static void run_step(sp_i_explicit *x, sp_layer_place step)
{
    switch (step) {
    case SP_STEP_QKV:
    case SP_STEP_FC1:
        project(x, step);
        break;
    case SP_STEP_QKV_ELEMENTWISE:
        split_qkv(x);
        break;
    case SP_STEP_CORE:
        attend(x);
        break;
    case SP_STEP_OUTPUT_REDUCE:
    case SP_STEP_FC2_REDUCE:
        reduce(x, step);
        break;
    case SP_STEP_Q:
    case SP_STEP_Q_UP:
        if (x->at->runs[step]) {
            make(x, SP_TENSOR_QUERIES);
        }
        break;
    case SP_STEP_KV_UP:
        take(x, x->at->runs[step] ? x->at->width[SP_WIDTH_KV_UP] : 0);
        break;
    case SP_STEP_Q_NORM:
    case SP_STEP_KV_NORM:
        make_all(x, step);
        take_briefly(x, x->at->runs[step] ? latent_norm_bytes(x, step) : 0);
        break;
    case SP_STEP_SHARED_FC2:
        take(x, ungated_bytes(x, step));
        break;
    case SP_STEP_SHARED_SUM:
        give(x, ungated_bytes(x, step));
        break;
    case SP_STEP_PERMUTATION:
        permute(x);
        break;
    case SP_STEP_UNPERMUTATION:
        take_briefly(x, x->at->sent_rows);
        break;
    default:
        make_all(x, step);
    }
}

// A tensor goes when the last step of the forward that reads it is done.
static void layer_forward(sp_i_explicit *x)
{
    for (int step = 0; step < SP_LAYER_STEPS; step++) {
        run_step(x, (sp_layer_place)step);
        for (sp_layer_set left = x->at->last_read[step]; left != 0; left &= left - 1) {
            leave(x, sp_layer_set_first(left));
        }
    }
}

// Is anything missing that the step makes? A product runs for what is taken from its output, a
// reduction for the residual path that it adds to.
static bool misses_any(const sp_i_explicit *x, sp_layer_place step)
{
    bool projects =
        step == SP_STEP_QKV || step == SP_STEP_Q || step == SP_STEP_Q_UP || step == SP_STEP_KV_UP;
    sp_layer_place made = projects                        ? SP_STEP_QKV_ELEMENTWISE
                          : step == SP_STEP_OUTPUT_REDUCE ? SP_STEP_RESIDUAL1
                                                          : step;
    for (sp_layer_set left = x->at->made[made]; left != 0; left &= left - 1) {
        sp_layer_tensor_id tensor = sp_layer_set_first(left);
        if (x->place[tensor] == SP_MEM_CATEGORIES && x->at->bytes[tensor] > 0) {
            return true;
        }
    }
    return false;
}

// Makes what a layer's backward reads and the mode dropped.
static void rebuild(sp_i_explicit *x)
{
    x->rebuilds = true;
    for (int step = 0; step < SP_LAYER_STEPS; step++) {
        if (misses_any(x, (sp_layer_place)step)) {
            run_step(x, (sp_layer_place)step);
        }
    }
    x->rebuilds = false;
}

static void head_forward(sp_i_explicit *x)
{
    make(x, SP_TENSOR_FINAL_NORM);
    make(x, SP_TENSOR_FINAL_STATISTICS);
    take(x, x->hidden_gathered);
    make(x, SP_TENSOR_LOGITS);
    give(x, x->hidden_gathered);
    make(x, SP_TENSOR_LOGITS_SUM);
}

// The output of a layer is made before the layer runs, as the input of what follows it; that of the
// last one goes into a message.
void sp_i_explicit_forward(sp_i_explicit *x)
{
    const sp_stage *stage = x->stage;
    make(x, stage->layers > 0 ? SP_TENSOR_INPUT : SP_TENSOR_FINAL_INPUT);
    if (stage->embedding) {
        open_part(x, SP_PART_EMBEDDING, false);
        take_briefly(x, x->hidden_gathered);
        make(x, SP_TENSOR_EMBEDDING_MASK);
        close_part(x, SP_PART_EMBEDDING, false);
    }
    for (int i = 0; i < stage->layers; i++) {
        bool last = i + 1 == stage->layers;
        sp_layer_tensor_id next = last ? SP_TENSOR_FINAL_INPUT : SP_TENSOR_INPUT;
        sp_memory_category output = SP_MEM_CATEGORIES;
        if (!last || stage->head) {
            output = place_of(x, next);
            count_in(&x->gauge, output, x->at->bytes[next]);
        }
        enter_layer(x, i);
        open_part(x, SP_PART_LAYER, false);
        layer_forward(x);
        close_part(x, SP_PART_LAYER, false);
        end_layer(x);
        x->place[next] = output;
    }
    if (stage->head) {
        open_part(x, SP_PART_HEAD, false);
        head_forward(x);
        close_part(x, SP_PART_HEAD, false);
    } else if (stage->layers == 0) {
        drop(x, SP_TENSOR_FINAL_INPUT);
    }
    end_layer(x);
}

// ---- Backward ----

// Is the tensor of one of `layers` a view of the buffer that a copy came back into?
static bool is_viewed(const sp_i_explicit *x, int tensor, int layer, int layers)
{
    int place = x->away_from_last ? layers - 1 - layer : layer;
    return x->loaded && x->at->kept[tensor] && place < x->away_layers[tensor];
}

// What the forward kept. Where its rows lie in several forward packs they are copied, and given
// back where they came from.
static void fetch(sp_i_explicit *x, sp_layer_tensor_id first, sp_layer_tensor_id end, int layer,
                  int layers)
{
    for (int t = (int)first; t < (int)end; t++) {
        x->place[t] = x->at->kept[t] ? x->at->category[t] : SP_MEM_CATEGORIES;
        x->viewed[t] = is_viewed(x, t, layer, layers);
        if (x->at->kept[t] && x->collects && t != SP_TENSOR_KEYS_VALUES) {
            count_in(&x->gauge, x->at->category[t], x->at->bytes[t]);
            count_out(&x->gauge, x->at->category[t], x->at->bytes[t]);
        }
    }
}

// The end of a product: its input and the gradient of its output are read once more, by the weight
// gradient, now or later. Until then they count as activations.
static void finish(sp_i_explicit *x, sp_layer_tensor_id input, int64_t output_gradient)
{
    if (x->splits) {
        if (x->place[input] != SP_MEM_CATEGORIES) { // else another product has read it
            count_out(&x->gauge, x->place[input], x->viewed[input] ? 0 : x->at->bytes[input]);
            count_in(&x->gauge, SP_MEM_ACTIVATIONS, x->at->bytes[input]);
        }
        give(x, output_gradient);
        count_in(&x->gauge, SP_MEM_ACTIVATIONS, output_gradient);
    } else {
        drop(x, input);
        give(x, output_gradient);
    }
    x->place[input] = SP_MEM_CATEGORIES;
}

// The gradient of a block's output is behind its dropout, or its norm, a matrix of its own.
static bool enter_block(sp_i_explicit *x, sp_layer_tensor_id mask, sp_layer_tensor_id normed)
{
    bool own = has(x, mask) || has(x, normed);
    if (own) {
        take(x, x->hidden);
        drop(x, mask);
    }
    return own;
}

// Slices add to the sums of their own and of earlier slices, then their own are complete. Keys that
// were gathered go sample by sample as sums are taken: they count to the last.
static void attend_backward(sp_i_explicit *x)
{
    sp_i_memory_gauge *gauge = &x->gauge;
    const int64_t *width = x->at->width;
    // Of queries, or with latents, whose queries' gradients stay, of keys and values.
    int64_t gradients = width[x->at->latent ? SP_WIDTH_KV : SP_WIDTH_Q];
    take(x, gradients);
    take(x, 2 * x->at->bytes[SP_TENSOR_PROBABILITIES]);
    take(x, x->attend_backward);
    count_in(gauge, SP_MEM_KV_GRADIENTS, x->kv_missing);
    count_in(gauge, SP_MEM_KV_GRADIENTS, x->kv_begun);
    give(x, x->attend_backward);
    count_out(gauge, SP_MEM_KV_GRADIENTS, x->kv_missing);
    count_out(gauge, SP_MEM_KV_GRADIENTS, x->kv_found);
    count_out(gauge, SP_MEM_KV_CACHE, x->kv_cached);
    drop(x, SP_TENSOR_KEYS_VALUES);
    give(x, 2 * x->at->bytes[SP_TENSOR_PROBABILITIES]);
    take_briefly(x, x->at->latent ? 2 * width[SP_WIDTH_ROTARY] : 0);
    give(x, gradients);
}

// A product whose weight gradient waits for the norm of its block.
typedef struct due_product {
    sp_layer_tensor_id reads;
    int64_t gradient; // bytes, of its output
    bool is_column;   // parallel: its input is gathered once more
} due_product;

enum { BLOCK_PRODUCTS = 6 }; // of latent attention at most

// What the steps of a block's backward leave for the norm that it begins with.
typedef struct block {
    due_product due[BLOCK_PRODUCTS];
    int count;
    bool own;      // the gradient of its output is a matrix of its own
    bool down;     // the gradient of hidden states that latents are made from is there
    bool residual; // the one that goes around the block is that of a product's output
} block;

static void owe(block *b, sp_layer_tensor_id reads, int64_t gradient, bool is_column)
{
    SP_ASSERT(b->count < BLOCK_PRODUCTS);
    b->due[b->count++] = (due_product){reads, gradient, is_column};
}

// Of a column-parallel product all rows of its input's gradient come first. What was gathered of
// the gradient of a row-parallel one's output stays for the weight gradient.
static void product_backward(sp_i_explicit *x, sp_layer_place place, block *b)
{
    const sp_layer_step *step = &sp_layer_steps[place];
    const int64_t *width = x->at->width;
    bool column = sp_layer_enters(step);
    if (place == SP_STEP_FC1 && x->at->routed) {
        take(x, width[SP_WIDTH_ROUTED]);
        owe(b, SP_TENSOR_EXPERT_INPUT, width[step->outputs], column);
        return;
    }
    take(x, x->hidden_gathered);
    if (column) {
        take(x, x->hidden);
        give(x, x->hidden_gathered);
        owe(b, x->at->reads[place], width[step->outputs], column);
    } else {
        bool routed = place == SP_STEP_FC2 && x->at->routed;
        bool leaves = step->outputs == SP_WIDTH_HIDDEN || step->outputs == SP_WIDTH_EXPERT;
        int64_t output = routed   ? width[SP_WIDTH_ROUTED]
                         : leaves ? x->hidden
                                  : width[step->outputs];
        take(x, width[step->inputs]);
        owe(b, step->reads, output, column);
    }
}

// From the gradient of a sum to those of experts' outputs and of the router's logits; from those of
// what experts read to one of hidden states.
static void permute_backward(sp_i_explicit *x, sp_layer_place place, block *b)
{
    const sp_i_explicit_kind *kind = x->at;
    if (place == SP_STEP_PERMUTATION) {
        take(x, x->hidden);
        take_briefly(x, kind->sent_rows);
        give(x, kind->width[SP_WIDTH_ROUTED]);
        return;
    }
    take(x, kind->width[SP_WIDTH_ROUTED]);
    take(x, kind->width[SP_WIDTH_EXPERTS]);
    take_briefly(x, kind->sent_rows);
    give(x, b->own ? x->hidden : 0);
    b->own = b->residual = false;
}

// Shared experts work on the gradient around the block, or, behind a gate, on one of their own.
static void shared_backward(sp_i_explicit *x, sp_layer_place place, block *b)
{
    const sp_i_explicit_kind *kind = x->at;
    switch (place) {
    case SP_STEP_SHARED_SUM:
        take(x, kind->gated ? x->hidden : 0);
        take(x, kind->gated ? kind->width[SP_WIDTH_ONE] : 0);
        break;
    case SP_STEP_SHARED_FC2:
        take(x, kind->width[SP_WIDTH_SHARED_FFN]);
        owe(b, SP_TENSOR_SHARED_FC2_INPUT, x->hidden, false);
        b->residual = b->residual || !kind->gated;
        break;
    case SP_STEP_SHARED_ACTIVATION:
        take(x, kind->width[SP_WIDTH_SHARED_FC1]);
        give(x, kind->width[SP_WIDTH_SHARED_FFN]);
        break;
    case SP_STEP_SHARED_FC1:
        take(x, x->hidden);
        owe(b, kind->reads[place], kind->width[SP_WIDTH_SHARED_FC1], true);
        break;
    case SP_STEP_SHARED_GATHER: // joins what the experts give
        give(x, x->hidden);
        break;
    default:
        break;
    }
}

// Down-projections add to one gradient; an up-projection has its weight gradient at once.
static void latent_backward(sp_i_explicit *x, sp_layer_place place, block *b)
{
    const sp_layer_step *step = &sp_layer_steps[place];
    const int64_t *width = x->at->width;
    int64_t inputs = width[step->inputs];
    if (step->kind == SP_LAYER_KIND_NORM) {
        take_briefly(x, latent_norm_bytes(x, place) + 2 * inputs);
        give(x, place == SP_STEP_KV_NORM ? inputs : 0);
    } else if (step->kind == SP_LAYER_KIND_LINEAR && step->inputs == SP_WIDTH_HIDDEN) {
        take(x, x->hidden);
        give(x, b->down ? x->hidden : 0);
        b->down = true;
        owe(b, step->reads, width[step->outputs], true);
    } else if (step->kind == SP_LAYER_KIND_LINEAR) {
        take(x, inputs);
        finish(x, step->reads, width[step->outputs]);
    }
}

static void latent_attention_backward(sp_i_explicit *x)
{
    const int64_t *width = x->at->width;
    take(x, width[SP_WIDTH_Q] + width[SP_WIDTH_KV_UP] + width[SP_WIDTH_KV_DOWN]);
    attend_backward(x);
    give(x, width[SP_WIDTH_CONTEXT]);
}

// To the gradient of the block's input; then what goes around the block is there no more, unless it
// is also the gradient of a product's output. The weight gradients of the block are due, for which
// the input of the column-parallel product is gathered once more.
static void norm_backward(sp_i_explicit *x, sp_layer_place place, block *b)
{
    bool normed = x->at->bytes[sp_layer_steps[place].writes] > 0;
    take_briefly(x, normed ? x->hidden : 0);
    give(x, b->residual ? 0 : x->hidden);
    give(x, x->hidden_gathered);
    for (int d = 0; d < b->count; d++) {
        const due_product *due = &b->due[d];
        bool again = d + 1 < b->count && b->due[d + 1].reads == due->reads;
        take_briefly(x, due->is_column && !x->splits ? x->hidden_gathered : 0);
        if (again && !x->splits) {
            give(x, due->gradient);
        } else {
            finish(x, due->reads, due->gradient);
        }
    }
    b->count = 0;
    b->down = false;
}

static void step_backward(sp_i_explicit *x, sp_layer_place place, block *b)
{
    const sp_layer_step *step = &sp_layer_steps[place];
    if (!x->at->runs[place]) {
        return;
    }
    if ((step->conditions & (SP_IF_LATENT | SP_IF_QUERY_LATENT)) != 0) {
        latent_backward(x, place, b);
        return;
    }
    if (place == SP_STEP_CORE && x->at->latent) {
        latent_attention_backward(x);
        return;
    }
    if ((step->conditions & SP_IF_SHARED) != 0 && step->operation != SP_LAYER_SHARED_GATE) {
        shared_backward(x, place, b);
        return;
    }
    switch (step->kind) {
    case SP_LAYER_KIND_REDUCE:
        b->own =
            enter_block(x, step->reads,
                        place == SP_STEP_FC2_REDUCE ? SP_TENSOR_POST_NORM2 : SP_TENSOR_POST_NORM1);
        b->residual = !b->own;
        break;
    case SP_LAYER_KIND_LINEAR:
        if (sp_layer_is_product(step)) {
            product_backward(x, place, b);
        } else {
            give(x, x->at->width[step->outputs]);
        }
        break;
    case SP_LAYER_KIND_PERMUTATION:
        permute_backward(x, place, b);
        break;
    case SP_LAYER_KIND_ACTIVATION:
        take(x, x->at->width[SP_WIDTH_FC1]);
        give(x, x->at->width[SP_WIDTH_FFN]);
        break;
    case SP_LAYER_KIND_ATTENTION:
        take(x, x->at->width[SP_WIDTH_QKV]);
        attend_backward(x);
        give(x, x->at->width[SP_WIDTH_Q]);
        break;
    case SP_LAYER_KIND_NORM:
        norm_backward(x, place, b);
        break;
    default:
        break;
    }
}

static void layer_backward(sp_i_explicit *x, int layer)
{
    block b = {0};
    fetch(x, SP_TENSOR_INPUT, SP_LAYER_TENSORS, layer, x->stage->layers);
    rebuild(x);
    for (int step = SP_LAYER_STEPS - 1; step >= 0; step--) {
        step_backward(x, (sp_layer_place)step, &b);
        for (sp_layer_set left = x->at->read_back[step]; left != 0; left &= left - 1) {
            drop(x, sp_layer_set_first(left));
        }
    }
}

// The gradient of the logits takes their place.
static void head_backward(sp_i_explicit *x)
{
    int64_t gradient = x->at->width[SP_WIDTH_VOCAB];
    take(x, x->hidden);
    take(x, x->hidden);
    fetch(x, SP_TENSOR_FINAL_INPUT, SP_ALL_TENSORS, 0, 1);
    count_out(&x->gauge, SP_MEM_LOGITS, x->at->bytes[SP_TENSOR_LOGITS] - gradient);
    x->place[SP_TENSOR_LOGITS] = SP_MEM_CATEGORIES;
    take_briefly(x, x->hidden_gathered);
    give(x, x->hidden);
    if (x->splits) {
        x->place[SP_TENSOR_FINAL_NORM] = SP_MEM_CATEGORIES;
    } else {
        count_out(&x->gauge, SP_MEM_LOGITS, gradient);
    }
    for (int t = SP_TENSOR_FINAL_INPUT; t < SP_ALL_TENSORS; t++) {
        drop(x, (sp_layer_tensor_id)t);
    }
}

static void embedding_backward(sp_i_explicit *x)
{
    fetch(x, SP_TENSOR_EMBEDDING_MASK, SP_TENSOR_FINAL_INPUT, 0, 1);
    bool own = enter_block(x, SP_TENSOR_EMBEDDING_MASK, SP_TENSOR_EMBEDDING_MASK);
    take_briefly(x, x->hidden_gathered);
    give(x, own ? x->hidden : 0);
}

// The gradient of the hidden states is a buffer of its own from the head, or from a message, to the
// end.
void sp_i_explicit_backward(sp_i_explicit *x)
{
    if (x->stage->head) {
        open_part(x, SP_PART_HEAD, true);
        head_backward(x);
        close_part(x, SP_PART_HEAD, true);
    } else {
        take(x, x->hidden);
    }
    for (int i = 0; i < x->stage->layers; i++) {
        enter_layer(x, x->stage->layers - 1 - i);
        open_part(x, SP_PART_LAYER, true);
        layer_backward(x, x->stage->layers - 1 - i);
        close_part(x, SP_PART_LAYER, true);
    }
    if (x->stage->embedding) {
        open_part(x, SP_PART_EMBEDDING, true);
        embedding_backward(x);
        close_part(x, SP_PART_EMBEDDING, true);
    }
    give(x, x->hidden);
}

// ---- The unit ----

// Finds the part of the unit's tensors that an offload of this ratio takes (saved_tensors.h,
// away_bytes).
static void take_away(sp_i_explicit *x, const sp_unit_tensor *tensors, int count, double ratio)
{
    x->away_from_last = sp_unit_offload_from_last(ratio);
    for (int i = 0; i < count; i++) {
        if (tensors[i].away_bytes > 0) {
            x->away_layers[tensors[i].id] = (int)(tensors[i].away_bytes / tensors[i].bytes);
        }
    }
}

static sp_bytes less(const sp_bytes *a, const sp_bytes *b)
{
    sp_bytes difference;
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        difference.of[c] = a->of[c] - b->of[c];
    }
    return difference;
}

static sp_bytes backward_peak(sp_i_explicit *x, bool splits)
{
    static const sp_bytes nothing;
    sp_i_explicit_begin(x, &nothing);
    x->splits = splits;
    sp_i_explicit_backward(x);
    return x->gauge.high;
}

// What is offloaded is there while a pass runs: forwards start with it.
void sp_i_explicit_unit(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                        const sp_memory_options *options, const sp_unit_load *load,
                        const sp_unit_tensor *tensors, int count, sp_unit_bytes *unit)
{
    static const sp_bytes nothing;
    sp_i_explicit x;
    sp_i_explicit_measure(model, layout, stage, options, load, &x);
    sp_bytes held = unit->held;
    held.of[SP_MEM_ACTIVATIONS] += held.of[SP_MEM_OFFLOADED];
    held.of[SP_MEM_OFFLOADED] = 0;

    sp_bytes start = less(&nothing, &held);
    sp_i_explicit_begin(&x, &start);
    x.keeps = true;
    sp_i_explicit_forward(&x);
    unit->forward = x.gauge.high;

    start = less(&nothing, &unit->repeated);
    sp_i_explicit_begin(&x, &start);
    x.keeps = false;
    count_in(&x.gauge, SP_MEM_RECOMPUTE, unit->repeated.of[SP_MEM_RECOMPUTE]);
    sp_i_explicit_forward(&x);
    unit->first = x.gauge.high;

    start = less(&unit->repeated, &held);
    sp_i_explicit_begin(&x, &start);
    x.keeps = true;
    x.cached = true;
    // Nobody reads the output a second time.
    take(&x, stage->head ? 0 : x.hidden);
    sp_i_explicit_forward(&x);
    unit->repeat = x.gauge.high;

    unit->backward = backward_peak(&x, false);
    unit->input_gradient = backward_peak(&x, true);
    unit->loaded_backward = unit->backward;
    unit->loaded_input_gradient = unit->input_gradient;
    if (options->offload_ratio > 0.0) {
        take_away(&x, tensors, count, options->offload_ratio);
        x.loaded = true;
        unit->loaded_backward = backward_peak(&x, false);
        unit->loaded_input_gradient = backward_peak(&x, true);
    }
}
