#include "sim/memory/tensor_program.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/memory/saved_tensors.h"
#include "sim/model/layout.h"

enum { BF16 = 2, FP32 = 4 };

// What layers of one kind have.
typedef struct layer_kind {
    sp_unit_sizes size;
    int64_t weights[SP_LAYER_STEPS]; // that are trained, of projections
    // Of adapters: by projection, and the tensors that they keep.
    sp_layer_adapters adapters[SP_LAYER_STEPS];
    sp_layer_set adapted[SP_LAYER_STEPS + 1];
    bool reads_input[SP_LAYER_STEPS]; // a weight gradient, by projection
    int64_t copies[SP_LAYER_STEPS];   // in BF16 of a weight in 4 bits, by projection; 0: none
    int64_t gathered_parameters;      // of one layer, with ZeRO 3; 0: a rank holds them
    bool has_step[SP_LAYER_STEPS];
    sp_layer_tensor_id reads[SP_LAYER_STEPS];
    sp_saved_tensor rows[SP_LAYER_TENSORS];
    // Sets of these tensors as bits: those that the layer has; by step, which it makes and which
    // the function leaves that returns at its end.
    sp_layer_set exist, made[SP_LAYER_STEPS + 1], scope[SP_LAYER_STEPS + 1];
    unsigned repeated; // operations, in a backward
} layer_kind;

// A tensor program being written: its state, and single tensors that come and go.
typedef struct program_builder {
    sp_tensor_program *program;
    sp_tensor_events *to; // the pass that events go to
    const sp_layout *layout;
    const sp_model *model;
    const sp_stage *stage;
    layer_kind kinds[SP_LAYER_KINDS];
    const layer_kind *of; // that of the layer at hand
    bool frozen;          // weights: adapters alone are trained
    bool beside;          // attention and MLP are side by side
    bool recomputes_layers;
    bool runs_again;       // a layer, or a part of it, that is rebuilt and keeps all
    bool splits;           // the backward being written leaves the weight gradients
    bool fused_loss;       // keeps the bf16 logits, and puts their gradient in their place
    int logit_ranks;       // whose logits a rank has
    int64_t logits;        // bytes of them in bf16
    int64_t loss_chunks;   // with their gradients in the forward; 0: the loss is of all rows
    bool loss_recompute;   // they run again in the backward, with their gradients there
    bool cuts_logits;      // whose logits never are in memory
    bool copied_logits;    // to fp32, beside the softmax
    bool weight_gradients; // are tensors of their own, then added to their buffer
    // Queries, keys and values stay parts of what the projection gave: nothing is done to them
    // before the attention.
    bool mixed_views;
    const sp_step_precision *precision;
    bool sequence_split; // hidden states are split over TP outside attention and MLP
    // Keys and values are projected apart from the queries, so that their gathering hides behind
    // the projection of the queries.
    bool splits_qkv;
    const sp_unit_load *load;
    int64_t kv_cached;
    int64_t table; // of embedding or head
    // Which tensor of the program each saved tensor is in the layer at hand.
    int32_t now[SP_LAYER_TENSORS];
    int32_t *kept;   // [layers][SP_LAYER_TENSORS]: the same of what a layer keeps
    int32_t *cached; // [layers]: keys and values of later slices, where the mode does not keep them
    // Tables of embedding and LM head, and which tensor each of their rows is.
    sp_saved_tensor embedding_rows[SP_SAVED_TENSORS], head_rows[SP_SAVED_TENSORS];
    int embedding_count, head_count;
    int32_t embedding_saved[SP_SAVED_TENSORS], head_saved[SP_SAVED_TENSORS];
    bool shares_table;     // of embedding and head, both on this stage
    int32_t head_gradient; // of the output weight
    bool outer_read;       // the gradient from outside is that of a projection's output
    // What the weight gradients free.
    int32_t *deferred;
    size_t deferred_count, deferred_capacity;
} program_builder;

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
    *SP_ADDED(to->items, to->capacity, to->count) = event;
}

static int32_t allocate(program_builder *b, const char *name, int64_t bytes)
{
    sp_tensor_program *program = b->program;
    SP_RESERVE(program->tensors, program->tensor_capacity, program->tensor_count + 1);
    int32_t tensor = (int32_t)program->tensor_count++;
    program->tensors[tensor] = (sp_program_tensor){.name = name, .bytes = bytes, .storage = tensor};
    if (b->to != NULL) {
        note(b->to, (sp_tensor_event){.tensor = tensor});
    }
    return tensor;
}

// All rows that the rank has within attention and MLP.
static int32_t allocate_wide(program_builder *b, const char *name, sp_layer_width width)
{
    return allocate(b, name, b->of->size.width[width]);
}

// Hidden states as the residual path holds them.
static int32_t allocate_hidden(program_builder *b, const char *name)
{
    return allocate(b, name, b->of->size.hidden);
}

static void free_tensor(program_builder *b, int32_t tensor)
{
    if (tensor != SP_NO_TENSOR) {
        note(b->to, (sp_tensor_event){.tensor = tensor, .gone = true});
    }
}

static bool has_row(const program_builder *b, sp_layer_tensor_id t)
{
    return (b->of->exist & SP_LAYER_SET(t)) != 0;
}

// The operations whose tensors the pass at hand does not keep.
static unsigned repeated(const program_builder *b)
{
    return b->runs_again ? 0 : b->of->repeated;
}

static bool keeps(const program_builder *b, sp_layer_tensor_id t)
{
    return has_row(b, t) && sp_saved_is_kept(&b->of->rows[t], repeated(b));
}

static int64_t row_bytes(const program_builder *b, const sp_saved_tensor *row)
{
    return sp_saved_load_bytes(row, b->layout, b->load);
}

// A tensor that the layer does not have is no tensor.
static int32_t make(program_builder *b, sp_layer_tensor_id t)
{
    if (!has_row(b, t)) {
        return SP_NO_TENSOR;
    }
    b->now[t] = allocate(b, b->of->rows[t].name, row_bytes(b, &b->of->rows[t]));
    return b->now[t];
}

static void make_all(program_builder *b, sp_layer_set tensors)
{
    for (; tensors != 0; tensors &= tensors - 1) {
        make(b, sp_layer_set_first(tensors));
    }
}

static const layer_kind *kind_at(const program_builder *b, int layer)
{
    return &b->kinds[sp_model_kind_of(b->model, b->stage->first + layer)];
}

// With ZeRO 3 the parameters of the layer that runs are gathered, and behind it those of the next.
// Gives a layer's, SP_NO_TENSOR where nothing is gathered.
static int32_t gather_parameters(program_builder *b, int layer)
{
    int64_t bytes = kind_at(b, layer)->gathered_parameters;
    return bytes > 0 ? allocate(b, "gathered parameters", bytes) : SP_NO_TENSOR;
}

// The end of the function that made these tensors, which only saved ones survive.
static void leave_all(program_builder *b, sp_layer_set tensors)
{
    for (; tensors != 0; tensors &= tensors - 1) {
        sp_layer_tensor_id t = sp_layer_set_first(tensors);
        if (!keeps(b, t)) {
            free_tensor(b, b->now[t]);
            b->now[t] = SP_NO_TENSOR;
        }
    }
}

// Part of a larger tensor.
static void make_view(program_builder *b, sp_layer_tensor_id t, int32_t storage)
{
    int32_t view = make(b, t);
    if (view != SP_NO_TENSOR) {
        b->program->tensors[view].storage = storage;
    }
}

// The BF16 copy of a projection's weight in 4 bits, which lasts as long as the product.
static int32_t turn_back(program_builder *b, sp_layer_place step)
{
    int64_t bytes = b->of->copies[step];
    return bytes > 0 ? allocate(b, "frozen weight in BF16", bytes) : SP_NO_TENSOR;
}

// A row-parallel projection gives its full width before the reduce-scatter.
static int32_t project(program_builder *b, const char *name)
{
    int32_t full = SP_NO_TENSOR;
    if (b->sequence_split) {
        full = allocate_wide(b, "projection before its reduction", SP_WIDTH_HIDDEN);
    }
    int32_t output = allocate_hidden(b, name);
    free_tensor(b, full);
    return output;
}

// Rows as the residual path holds them, of another width than hidden states.
static int32_t allocate_split(program_builder *b, const char *name, sp_layer_width width)
{
    return allocate(b, name, b->of->size.split[width]);
}

// What passes between the steps of a layer's forward beside the tensors of the table.
typedef struct layer_values {
    int32_t mixed[3]; // outputs of the QKV projection
    int32_t gathered; // keys and values, to the end of the layer
    int32_t attention, mlp, output;
    int32_t shared; // output of the shared experts, behind their gate
    int32_t latent; // that goes to experts
    const char *output_name;
} layer_values;

// The tensors of an MLP: dense or of experts, or of the shared experts.
typedef struct mlp {
    sp_layer_tensor_id fc1, gate, up, silu, fc2_input;
    sp_layer_width ffn, fc1_width;
} mlp;

static const mlp own_mlp = {SP_TENSOR_FC1,       SP_TENSOR_GATE, SP_TENSOR_UP, SP_TENSOR_SILU,
                            SP_TENSOR_FC2_INPUT, SP_WIDTH_FFN,   SP_WIDTH_FC1};
static const mlp shared_mlp = {
    SP_TENSOR_SHARED_FC1,       SP_TENSOR_SHARED_HALF, SP_TENSOR_SHARED_UP, SP_TENSOR_SHARED_SILU,
    SP_TENSOR_SHARED_FC2_INPUT, SP_WIDTH_SHARED_FFN,   SP_WIDTH_SHARED_FC1};

static const mlp *mlp_of(sp_layer_place step)
{
    bool shared = step == SP_STEP_SHARED_FC1 || step == SP_STEP_SHARED_ACTIVATION ||
                  step == SP_STEP_SHARED_FC2;
    return shared ? &shared_mlp : &own_mlp;
}

static void gather_keys(program_builder *b, layer_values *v)
{
    if (b->of->size.kv_gathered > 0) {
        v->gathered = allocate(b, "gathered keys and values", b->of->size.kv_gathered);
    }
}

static void project_qkv(program_builder *b, layer_values *v)
{
    if (b->splits_qkv) {
        v->mixed[0] = allocate_wide(b, "own keys", SP_WIDTH_K);
        v->mixed[1] = allocate_wide(b, "own values", SP_WIDTH_V);
    } else {
        v->mixed[0] = allocate_wide(b, "QKV output", SP_WIDTH_QKV);
    }
    gather_keys(b, v);
    if (b->splits_qkv) {
        v->mixed[2] = allocate_wide(b, "queries before their rotation", SP_WIDTH_Q);
    }
}

// Gathered keys and values stand in for this rank's own.
static void split_qkv(program_builder *b, layer_values *v)
{
    sp_layer_set made = b->of->made[SP_STEP_QKV_ELEMENTWISE];
    if (v->gathered != SP_NO_TENSOR) {
        made &= ~SP_LAYER_SET(SP_TENSOR_KEYS_VALUES);
    } else if (b->mixed_views) {
        static const sp_layer_tensor_id views[] = {SP_TENSOR_QUERIES, SP_TENSOR_KEYS_VALUES,
                                                   SP_TENSOR_ATTENTION_GATE};
        sp_layer_set parts = 0;
        for (size_t p = 0; p < sizeof views / sizeof views[0]; p++) {
            parts |= SP_LAYER_SET(views[p]);
        }
        make_all(b, made & ~parts);
        for (size_t p = 0; p < sizeof views / sizeof views[0]; p++) {
            make_view(b, views[p], v->mixed[0]);
        }
        made = 0;
    }
    make_all(b, made);
    for (int i = 0; i < 3; i++) {
        free_tensor(b, v->mixed[i]);
    }
}

// The probabilities of unfused attention are made beside the scores, before the output.
static void attend(program_builder *b)
{
    if (has_row(b, SP_TENSOR_PROBABILITIES)) {
        int32_t scores = allocate(b, "scores", b->of->size.scores);
        make(b, SP_TENSOR_PROBABILITIES);
        free_tensor(b, scores);
        make(b, SP_TENSOR_PROBABILITY_MASK);
        make(b, SP_TENSOR_DROPPED_PROBABILITIES);
    }
    make(b, SP_TENSOR_REORDERED);
    make(b, SP_TENSOR_ATTENTION);
    make(b, SP_TENSOR_LOG_SUM_EXP);
}

// Where the halves are kept, only they hold the whole.
static void project_fc1(program_builder *b, const mlp *m)
{
    int32_t fc1 = make(b, m->fc1);
    if (keeps(b, m->gate)) {
        make_view(b, m->gate, fc1);
        make_view(b, m->up, fc1);
        free_tensor(b, fc1);
        b->now[m->fc1] = SP_NO_TENSOR;
    }
}

// A gate multiplies into a tensor of its own.
static void project_shared(program_builder *b, layer_values *v)
{
    v->shared = project(b, "output of the shared experts");
    if (has_row(b, SP_TENSOR_SHARED_OUTPUT)) {
        b->now[SP_TENSOR_SHARED_OUTPUT] = v->shared;
        v->shared = allocate_hidden(b, "gated output of the shared experts");
    }
}

static void add_shared(program_builder *b, layer_values *v)
{
    int32_t sum = allocate_hidden(b, "MLP output");
    free_tensor(b, v->shared);
    free_tensor(b, v->mlp);
    v->mlp = sum;
}

// What experts of latents give is summed before its up-projection.
static void combine_latents(program_builder *b)
{
    int32_t full = SP_NO_TENSOR;
    if (b->sequence_split) {
        full = allocate_wide(b, "experts' sums before their reduction", SP_WIDTH_EXPERT);
    }
    make(b, SP_TENSOR_COMBINED);
    free_tensor(b, full);
}

// Attention and MLP side by side: the sum of what both give is reduced.
static void reduce_both(program_builder *b, layer_values *v)
{
    int32_t of_mlp = allocate_wide(b, "MLP output", SP_WIDTH_HIDDEN);
    v->mlp = allocate_wide(b, "sum of attention and MLP", SP_WIDTH_HIDDEN);
    free_tensor(b, of_mlp);
    free_tensor(b, v->attention);
    v->attention = SP_NO_TENSOR;
    if (b->sequence_split) {
        int32_t sum = v->mlp;
        v->mlp = allocate_hidden(b, "reduced sum of attention and MLP");
        free_tensor(b, sum);
    }
}

static void add_to_residual(program_builder *b, layer_values *v)
{
    if (v->gathered != SP_NO_TENSOR && keeps(b, SP_TENSOR_KEYS_VALUES)) {
        // This rank's own part, copied from what the group gathered.
        make(b, SP_TENSOR_KEYS_VALUES);
    }
    make(b, SP_TENSOR_MLP_MASK);
    v->output = allocate_hidden(b, v->output_name);
    free_tensor(b, v->mlp);
    free_tensor(b, v->attention);
    free_tensor(b, v->gathered);
}

// What adapters keep, what one of them gives, and that scaled; it is added to the output.
static void run_adapters(program_builder *b, sp_layer_place step)
{
    const sp_layer_adapters *adapters = &b->of->adapters[step];
    if (adapters->count == 0) {
        return;
    }
    make_all(b, b->of->adapted[step]);
    int32_t output = allocate_wide(b, "output of an adapter", adapters->output_width);
    int32_t scaled = allocate_wide(b, "scaled output of an adapter", adapters->output_width);
    free_tensor(b, output);
    free_tensor(b, scaled);
}

static void run_step(program_builder *b, layer_values *v, sp_layer_place step)
{
    int32_t copy = SP_NO_TENSOR;
    if (!b->of->has_step[step]) {
        return;
    }
    switch (step) {
    case SP_STEP_Q_UP:
    case SP_STEP_Q:
        v->mixed[0] = allocate_wide(b, "queries before their rotation", SP_WIDTH_Q);
        break;
    case SP_STEP_KV_UP:
        v->mixed[1] = allocate_wide(b, "output of the key and value up-projection", SP_WIDTH_KV_UP);
        gather_keys(b, v);
        break;
    case SP_STEP_QKV:
        copy = turn_back(b, step);
        project_qkv(b, v);
        break;
    case SP_STEP_QKV_ELEMENTWISE:
        split_qkv(b, v);
        break;
    case SP_STEP_CORE:
        attend(b);
        break;
    case SP_STEP_OUTPUT_REDUCE:
        copy = turn_back(b, SP_STEP_OUTPUT);
        v->attention = b->beside ? allocate_wide(b, "attention block output", SP_WIDTH_HIDDEN)
                                 : project(b, "attention block output");
        make_all(b, b->of->made[step]);
        break;
    case SP_STEP_FC1:
    case SP_STEP_SHARED_FC1:
        make_all(b, b->of->made[step] & SP_LAYER_SET(SP_TENSOR_SHARED_INPUT_COPY));
        copy = turn_back(b, step);
        project_fc1(b, mlp_of(step));
        break;
    case SP_STEP_SHARED_REDUCE:
        project_shared(b, v);
        break;
    case SP_STEP_FC2_REDUCE:
        copy = turn_back(b, SP_STEP_FC2);
        if (b->of->has_step[SP_STEP_EXPERT_UP]) {
            combine_latents(b);
            v->mlp = allocate_hidden(b, "MLP output");
        } else if (b->beside) {
            reduce_both(b, v);
        } else {
            v->mlp = project(b, "MLP output");
        }
        make_all(b, b->of->made[step] & ~SP_LAYER_SET(SP_TENSOR_COMBINED));
        break;
    case SP_STEP_EXPERT_DOWN:
        make_all(b, b->of->made[step]);
        v->latent = allocate_split(b, "latents for experts", SP_WIDTH_EXPERT_LATENT);
        break;
    case SP_STEP_PERMUTATION:
        make_all(b, b->of->made[step]);
        free_tensor(b, v->latent);
        break;
    case SP_STEP_SHARED_SUM:
        add_shared(b, v);
        break;
    case SP_STEP_RESIDUAL1:
        make_all(b, b->of->made[step]);
        if (!b->of->has_step[SP_STEP_RESIDUAL2]) { // the layer has no MLP
            add_to_residual(b, v);
        }
        break;
    case SP_STEP_RESIDUAL2:
        add_to_residual(b, v);
        break;
    default:
        make_all(b, b->of->made[step]);
    }
    free_tensor(b, copy);
}

static layer_values no_values(const char *output_name)
{
    return (layer_values){.mixed = {SP_NO_TENSOR, SP_NO_TENSOR, SP_NO_TENSOR},
                          .gathered = SP_NO_TENSOR,
                          .attention = SP_NO_TENSOR,
                          .mlp = SP_NO_TENSOR,
                          .shared = SP_NO_TENSOR,
                          .latent = SP_NO_TENSOR,
                          .output_name = output_name};
}

// Is a norm a function of its own that runs again? Where the MLP is one it is a part of that, or
// of the projection behind it.
static bool repeats_norm(const program_builder *b, sp_layer_operation norm)
{
    unsigned again = repeated(b);
    bool in_mlp =
        norm == SP_LAYER_NORM2 && (again & SP_LAYER_FC2) != 0 && !has_row(b, SP_TENSOR_ROUTER);
    return (again & norm) != 0 &&
           (b->recomputes_layers || ((again & SP_LAYER_JOINED) == 0 && !in_mlp));
}

// The forward of one layer from its input to its output. Where a projection or the MLP rebuilds the
// output of the norm before it in its own backward, it lets go of it; where norms or whole layers
// are rebuilt it stays as functions of their own leave it.
static int32_t layer_forward(program_builder *b, int32_t input, const char *output_name)
{
    layer_values v = no_values(output_name);
    sp_layer_set staying = (repeats_norm(b, SP_LAYER_NORM1) ? SP_LAYER_SET(SP_TENSOR_NORM1) : 0) |
                           (repeats_norm(b, SP_LAYER_NORM2) ? SP_LAYER_SET(SP_TENSOR_NORM2) : 0);
    for (int t = 0; t < SP_LAYER_TENSORS; t++) {
        b->now[t] = SP_NO_TENSOR;
    }
    b->now[SP_TENSOR_INPUT] = input;
    for (int step = 0; step < SP_LAYER_STEPS; step++) {
        run_step(b, &v, (sp_layer_place)step);
        run_adapters(b, (sp_layer_place)step);
        leave_all(b, b->of->scope[step] & ~staying);
        if (step == SP_STEP_NORM2) {
            leave_all(b, staying & SP_LAYER_SET(SP_TENSOR_NORM1));
        }
    }
    leave_all(b, staying & SP_LAYER_SET(SP_TENSOR_NORM2));
    return v.output;
}

static void save(program_builder *b, int32_t tensor, int64_t elements, bool contiguous, bool leaves)
{
    sp_tensor_program *program = b->program;
    *SP_ADDED(program->saved, program->saved_capacity, program->saved_count) = (sp_saved_item){
        .tensor = tensor, .elements = elements, .contiguous = contiguous, .leaves = leaves};
}

static void save_row(program_builder *b, const sp_saved_tensor *row, int32_t tensor)
{
    // Keys and values that later slices of the sample read stay, and so do logits.
    bool leaves = !row->is_logits && (!row->is_kv || b->load->kv_tokens == 0);
    save(b, tensor, row_bytes(b, row) / row->element_bytes, row->contiguous, leaves);
}

static void save_layer(program_builder *b, int layer)
{
    for (int t = 0; t < SP_LAYER_TENSORS; t++) {
        bool kept = keeps(b, (sp_layer_tensor_id)t) && b->now[t] != SP_NO_TENSOR;
        b->kept[layer * SP_LAYER_TENSORS + t] = kept ? b->now[t] : SP_NO_TENSOR;
        if (kept) {
            save_row(b, &b->of->rows[t], b->now[t]);
        }
    }
    b->cached[layer] = SP_NO_TENSOR;
    if (b->kv_cached > 0 && has_row(b, SP_TENSOR_KEYS_VALUES) && !keeps(b, SP_TENSOR_KEYS_VALUES)) {
        b->cached[layer] = allocate(b, "cached keys and values", b->kv_cached);
        save(b, b->cached[layer], b->kv_cached / BF16, true, false);
    }
}

static int32_t embedding_forward(program_builder *b)
{
    int32_t output = project(b, "embedding output");
    for (int r = 0; r < b->embedding_count; r++) {
        const sp_saved_tensor *row = &b->embedding_rows[r];
        b->embedding_saved[r] = allocate(b, row->name, row_bytes(b, row));
        save_row(b, row, b->embedding_saved[r]);
    }
    return output;
}

// Gradient of a column-parallel projection's input, reduced to this rank's share.
static int32_t project_back(program_builder *b, int64_t full_bytes, sp_layer_width width)
{
    bool narrows = b->sequence_split || full_bytes != b->of->size.split[width];
    int32_t full = SP_NO_TENSOR;
    if (narrows) {
        full = allocate(b, "gradient before its reduction", full_bytes);
    }
    int32_t gradient = allocate_split(b, "gradient of a projection's input", width);
    free_tensor(b, full);
    return gradient;
}

// Logits for the loss: where they are gathered, from this rank's share, which then goes.
static int32_t gathered(program_builder *b, const char *name, int64_t bytes)
{
    int32_t share = b->logit_ranks > 1
                        ? allocate(b, "logits of this rank", sp_ceil_div(bytes, b->logit_ranks))
                        : SP_NO_TENSOR;
    int32_t logits = allocate(b, name, bytes);
    free_tensor(b, share);
    return logits;
}

// The largest moment of a loss by chunks: one of them, beside gradients of all rows (none where
// there are none yet), which go with it.
static void run_chunk(program_builder *b, int32_t input, int32_t table)
{
    if (b->cuts_logits) { // and none has gradients in the forward
        return;
    }
    int64_t rows = sp_ceil_div(b->logits, b->loss_chunks);
    int64_t exact = b->fused_loss ? 0 : rows * FP32 / BF16;
    // One after the other: where the allocator puts them follows from their order.
    int32_t logits = gathered(b, "logits of a chunk", rows);
    int32_t softmax = exact > 0 ? allocate(b, "softmax of a chunk", exact) : SP_NO_TENSOR;
    int32_t copied =
        b->copied_logits ? allocate(b, "logits of a chunk in fp32", exact) : SP_NO_TENSOR;
    const int32_t tensors[] = {input, table, logits, softmax, copied};
    for (size_t t = 0; t < sizeof tensors / sizeof tensors[0]; t++) {
        free_tensor(b, tensors[t]);
    }
}

static int32_t table_gradient(program_builder *b)
{
    return b->weight_gradients && !b->frozen
               ? allocate(b, "gradient of the output weight", b->table)
               : SP_NO_TENSOR;
}

// The first saved tensor of the head is what the last layer gives. A fused loss keeps the logits;
// others make an fp32 copy, and their softmax in its place or beside it.
static void head_forward(program_builder *b, int32_t input)
{
    int32_t logits = SP_NO_TENSOR;
    int32_t exact = SP_NO_TENSOR;
    for (int r = 0; r < b->head_count; r++) {
        const sp_saved_tensor *row = &b->head_rows[r];
        if (row->is_logits && !b->fused_loss) {
            logits = gathered(b, "logits", b->logits);
            if (b->copied_logits) {
                exact = allocate(b, "logits in fp32", b->logits * FP32 / BF16);
            }
        }
        b->head_saved[r] = r == 0 ? input
                           : row->is_logits && b->fused_loss
                               ? gathered(b, row->name, row_bytes(b, row))
                               : allocate(b, row->name, row_bytes(b, row));
        save_row(b, row, b->head_saved[r]);
    }
    free_tensor(b, exact);
    free_tensor(b, logits);
    if (b->loss_chunks > 0 && b->loss_recompute) {
        run_chunk(b, SP_NO_TENSOR, SP_NO_TENSOR);
    } else if (b->loss_chunks > 0) {
        int32_t gradient = project_back(b, b->of->size.width[SP_WIDTH_HIDDEN], SP_WIDTH_HIDDEN);
        run_chunk(b, gradient, table_gradient(b));
    }
}

static void write_forward(program_builder *b)
{
    sp_tensor_program *program = b->program;
    b->to = NULL;
    int32_t at = SP_NO_TENSOR;
    if (!b->stage->embedding) {
        at = allocate_hidden(b, "input");
        program->input = at;
    }
    b->to = &program->pass[SP_PROGRAM_FORWARD];
    int32_t mask = SP_NO_TENSOR;
    if (b->of->size.mask > 0 && (b->stage->embedding || b->stage->head)) {
        mask = allocate(b, "attention mask", b->of->size.mask);
    }
    if (b->stage->embedding) {
        at = embedding_forward(b);
    }
    int32_t parameters = b->stage->layers > 0 ? gather_parameters(b, 0) : SP_NO_TENSOR;
    for (int layer = 0; layer < b->stage->layers; layer++) {
        bool last = layer + 1 == b->stage->layers;
        int32_t next = last ? SP_NO_TENSOR : gather_parameters(b, layer + 1);
        b->of = kind_at(b, layer);
        at = layer_forward(b, at, "layer output");
        save_layer(b, layer);
        free_tensor(b, parameters);
        parameters = next;
    }
    if (sp_stage_is_empty(b->stage)) {
        at = allocate_hidden(b, "output");
        free_tensor(b, program->input);
    }
    if (b->stage->head) {
        head_forward(b, at);
    } else {
        program->output = at;
    }
    free_tensor(b, mask);
}

static void release_later(program_builder *b, int32_t tensor)
{
    if (!b->splits || tensor == SP_NO_TENSOR) {
        free_tensor(b, tensor);
        return;
    }
    *SP_ADDED(b->deferred, b->deferred_capacity, b->deferred_count) = tensor;
}

// Frees what the weight gradients of projections still read: inputs of the GEMMs and gradients of
// their outputs. Frozen weights have none.
static void release_for_weights(program_builder *b, int32_t tensor)
{
    if (b->frozen) {
        free_tensor(b, tensor);
    } else {
        release_later(b, tensor);
    }
}

// The gradient of a product's output: in FP8 the weight gradient reads a copy of it.
static void release_gradient(program_builder *b, int32_t tensor)
{
    if (b->splits && tensor != SP_NO_TENSOR && sp_precision_is_fp8(b->precision)) {
        int64_t bytes = b->program->tensors[tensor].bytes;
        int32_t copy =
            allocate(b, "gradient in FP8", sp_fp8_tensor_bytes(b->precision, bytes / BF16));
        free_tensor(b, tensor);
        tensor = copy;
    }
    release_for_weights(b, tensor);
}

// The gradient that goes around a block; `read` says that it is also that of the block's output.
// What came from outside is held there until the pass ends.
static void release_around(program_builder *b, int32_t gradient, bool read)
{
    if (gradient == b->program->output_gradient) {
        b->outer_read = b->outer_read || read;
    } else if (read) {
        release_gradient(b, gradient);
    } else {
        free_tensor(b, gradient);
    }
}

static int32_t take(program_builder *b, sp_layer_tensor_id t)
{
    int32_t tensor = b->now[t];
    b->now[t] = SP_NO_TENSOR;
    return tensor;
}

static void drop(program_builder *b, sp_layer_tensor_id t)
{
    free_tensor(b, take(b, t));
}

static void drop_for_weights(program_builder *b, sp_layer_tensor_id t)
{
    release_for_weights(b, take(b, t));
}

// The input of a projection, which its weight gradient reads, or that of its adapters may.
static void drop_input(program_builder *b, sp_layer_tensor_id t, sp_layer_place step)
{
    int32_t tensor = take(b, t);
    if (b->of->reads_input[step]) {
        release_later(b, tensor);
    } else {
        free_tensor(b, tensor);
    }
}

static bool has(const program_builder *b, sp_layer_tensor_id t)
{
    return b->now[t] != SP_NO_TENSOR;
}

static void rebuild(program_builder *b, sp_layer_tensor_id t)
{
    if (!has(b, t)) {
        make(b, t);
    }
}

// A weight gradient that the GEMM does not add itself: there until it is added to its buffer.
static void make_weight_gradient(program_builder *b, sp_layer_place step)
{
    if (b->weight_gradients && b->of->weights[step] > 0) {
        int32_t gradient = allocate(b, "gradient of a layer's weight", b->of->weights[step]);
        free_tensor(b, gradient);
    }
}

// The scaled gradient of the output (of one adapter at a time, unless the weight gradients read it
// later) gives that of what A gave, and this one that of the input,
// which is added to the projection's.
static void adapters_backward(program_builder *b, sp_layer_place step)
{
    const sp_layer_adapters *adapters = &b->of->adapters[step];
    if (adapters->count == 0) {
        return;
    }
    for (sp_layer_set kept = b->of->adapted[step]; kept != 0; kept &= kept - 1) {
        rebuild(b, sp_layer_set_first(kept));
    }
    int64_t outputs = b->splits ? sp_mul_bytes(sp_layer_adapter_outputs(adapters),
                                               b->of->size.width[SP_WIDTH_ONE])
                                : b->of->size.width[adapters->output_width];
    int32_t scaled = allocate(b, "scaled gradient of adapters", outputs);
    int32_t low = allocate_wide(b, "gradient of the first products", adapters->low_width);
    release_later(b, scaled);
    int32_t input = allocate_wide(b, "gradient of an adapter's input", adapters->input_width);
    release_later(b, low);
    free_tensor(b, input);
    for (sp_layer_set kept = b->of->adapted[step]; kept != 0; kept &= kept - 1) {
        sp_layer_tensor_id t = sp_layer_set_first(kept);
        int32_t tensor = take(b, t);
        if (sp_layer_tensors[t].type == SP_TYPE_BYTE) {
            free_tensor(b, tensor); // a mask
        } else {
            release_later(b, tensor);
        }
    }
}

// Through a norm, if there is one, and the sum with the gradient that goes around the block.
static int32_t norm_backward(program_builder *b, bool normed, int32_t inner, int32_t around,
                             bool read)
{
    int32_t gradient = normed ? allocate_hidden(b, "gradient of a norm's input") : inner;
    free_tensor(b, normed ? inner : SP_NO_TENSOR);
    int32_t sum = allocate_hidden(b, "gradient of the residual path");
    free_tensor(b, gradient);
    release_around(b, around, read);
    return sum;
}

// Flash attention accumulates the gradient of the queries in fp32, in two halves under context
// parallelism, where the shorter part's keys and values (half of all on the last rank) have
// gradients of their own. Gives the gradients of the projection's outputs.
static void core_attention_backward(program_builder *b, int32_t gathered, int32_t outputs[2])
{
    bool parallel = gathered != SP_NO_TENSOR;
    int32_t rebuilt_output = SP_NO_TENSOR;
    if ((repeated(b) & SP_LAYER_QKV) != 0) {
        rebuild(b, SP_TENSOR_Q_NORM);
        rebuild(b, SP_TENSOR_KV_NORM);
        rebuild(b, SP_TENSOR_QUERIES);
        rebuild(b, SP_TENSOR_KEYS_VALUES);
    }
    if ((repeated(b) & SP_LAYER_CORE) != 0) {
        rebuilt_output = allocate_wide(b, "attention output", SP_WIDTH_CONTEXT);
        for (sp_layer_set made = b->of->made[SP_STEP_CORE]; made != 0; made &= made - 1) {
            rebuild(b, sp_layer_set_first(made));
        }
    }
    bool unfused = has_row(b, SP_TENSOR_PROBABILITIES);
    int32_t pairs[2] = {SP_NO_TENSOR, SP_NO_TENSOR};
    if (unfused) {
        pairs[0] = allocate(b, "gradient of the probabilities", b->of->size.scores);
        pairs[1] = allocate(b, "gradient of the scores", b->of->size.scores);
    }
    int32_t kv = allocate(b, "gradient of keys and values",
                          parallel ? b->of->size.kv_gathered : b->of->size.width[SP_WIDTH_KV]);
    int32_t part = SP_NO_TENSOR;
    if (parallel) {
        part = allocate(b, "gradient of a part's keys and values", b->of->size.kv_gathered / 2);
    }
    int32_t q = allocate_wide(b, "gradient of the queries", SP_WIDTH_Q);
    int32_t exact[2] = {SP_NO_TENSOR, SP_NO_TENSOR};
    for (int half = 0; half < (unfused ? 0 : parallel ? 2 : 1); half++) {
        exact[half] = allocate(b, "gradient of the queries in fp32",
                               b->of->size.width[SP_WIDTH_Q] * FP32 / BF16 / (parallel ? 2 : 1));
    }
    free_tensor(b, exact[0]);
    free_tensor(b, exact[1]);
    free_tensor(b, part);
    free_tensor(b, pairs[0]);
    free_tensor(b, pairs[1]);
    free_tensor(b, rebuilt_output);
    const sp_layer_set later =
        SP_LAYER_SET(SP_TENSOR_ATTENTION) | SP_LAYER_SET(SP_TENSOR_KEYS_VALUES);
    sp_layer_set read = (b->of->made[SP_STEP_CORE] | b->of->made[SP_STEP_QKV_ELEMENTWISE]) & ~later;
    for (; read != 0; read &= read - 1) {
        drop(b, sp_layer_set_first(read));
    }
    // What the gate gave, or an FP8 copy, is projected.
    if (b->of->has_step[SP_STEP_ATTENTION_GATE] || has_row(b, SP_TENSOR_ATTENTION_COPY)) {
        drop(b, SP_TENSOR_ATTENTION);
    } else {
        drop_input(b, SP_TENSOR_ATTENTION, SP_STEP_OUTPUT);
    }
    if (parallel) {
        int32_t own = allocate_wide(b, "gradient of own keys and values", SP_WIDTH_KV);
        free_tensor(b, kv);
        free_tensor(b, gathered);
        kv = own;
    }
    drop(b, SP_TENSOR_KEYS_VALUES);
    outputs[0] = q;
    outputs[1] = kv;
    if (sp_model_is_latent(b->model)) {
        outputs[0] = allocate_wide(b, "gradient of the queries' projection", SP_WIDTH_Q);
        outputs[1] = allocate_wide(b, "gradient of the key and value up-projection's output",
                                   SP_WIDTH_KV_UP);
        free_tensor(b, q);
        free_tensor(b, kv);
    } else if (!b->splits_qkv) {
        outputs[0] = allocate_wide(b, "gradient of the QKV output", SP_WIDTH_QKV);
        outputs[1] = SP_NO_TENSOR;
        free_tensor(b, q);
        free_tensor(b, kv);
    }
}

// What passes between the steps of a layer's backward beside the tensors of the table.
typedef struct layer_gradients {
    int32_t gradient;   // of what the step before has read
    int32_t around;     // of the block's output, which goes around the block
    int32_t behind;     // the same behind dropout: SP_NO_TENSOR without
    int32_t combined;   // of what experts of latents give a token
    int32_t routed;     // of the outputs of experts
    int32_t outputs[2]; // of a column-parallel projection
    int32_t gathered;   // keys and values
    bool of_hidden;     // the gradient is of hidden states that several products read
    int32_t beside;     // of what the MLP reads, by the experts, beside that by the shared ones
    int32_t shared;     // of the output of the shared experts behind which a gate is
    int32_t gate;       // of the gate of the attention's output
    int32_t of_mlp; // by an MLP beside the attention, of what both read, or of the layer's input
    bool rebuilds;  // the second projection of the MLP its input
    // What the MLP, or its shared experts, gave once more where they are rebuilt as one function.
    int32_t again, shared_again;
} layer_gradients;

// A part of the layer runs again as one function, which holds what it gives to the end of its
// backward (PyTorch's checkpoint).
static layer_values rebuild_part(program_builder *b, unsigned operations)
{
    layer_values v = no_values(NULL);
    int32_t before[SP_LAYER_TENSORS];
    memcpy(before, b->now, sizeof before);
    b->runs_again = true;
    for (int step = 0; step < SP_LAYER_STEPS; step++) {
        if ((sp_layer_steps[step].operation & operations) != 0) {
            run_step(b, &v, (sp_layer_place)step);
            run_adapters(b, (sp_layer_place)step);
            leave_all(b, b->of->scope[step]);
        }
    }
    b->runs_again = false;
    // What stayed is not made twice: the input of a norm behind the MLP, which has been read.
    for (int t = 0; t < SP_LAYER_TENSORS; t++) {
        if (b->now[t] != before[t] && (sp_layer_tensors[t].kept_by & operations) == 0) {
            free_tensor(b, b->now[t]);
            b->now[t] = before[t];
        }
    }
    return v;
}

// As the backward of attention or of the MLP begins.
static void rebuild_block(program_builder *b, layer_gradients *g, sp_layer_place reduction)
{
    const unsigned block = SP_LAYER_NORM2 | SP_LAYER_ROUTER | SP_LAYER_PERMUTATION | SP_LAYER_FC1 |
                           SP_LAYER_ACTIVATION | SP_LAYER_FC2 | SP_LAYER_SHARED;
    const unsigned again = repeated(b);
    bool is_mlp = reduction == SP_STEP_FC2_REDUCE;
    sp_layer_operation norm = is_mlp ? SP_LAYER_NORM2 : SP_LAYER_NORM1;
    bool own_norm = repeats_norm(b, norm);
    if (own_norm) {
        rebuild(b, is_mlp ? SP_TENSOR_NORM2 : SP_TENSOR_NORM1);
    }
    if (is_mlp && (again & SP_LAYER_FC2) != 0) {
        g->again = rebuild_part(b, again & block & (own_norm ? ~(unsigned)norm : ~0u)).mlp;
    }
}

// Where the second projection of the MLP is one function with the activation, it rebuilds its
// input and holds it to the end of both. An activation that is a module by itself is rebuilt for
// the projection, which frees it.
static void row_backward(program_builder *b, layer_gradients *g, sp_layer_place step)
{
    int32_t copy = turn_back(b, step);
    if (step == SP_STEP_OUTPUT || step == SP_STEP_STATE_OUT) {
        g->gradient = allocate_wide(b,
                                    step == SP_STEP_OUTPUT ? "gradient of the attention output"
                                                           : "gradient of the state's output",
                                    sp_layer_steps[step].inputs);
        free_tensor(b, copy);
        make_weight_gradient(b, step);
        adapters_backward(b, step);
        release_gradient(b, g->behind);
        drop_for_weights(b, SP_TENSOR_ATTENTION_COPY);
        return;
    }
    const mlp *m = mlp_of(step);
    // Unless all of the MLP has been.
    bool rebuilds = !has(b, m->fc2_input) &&
                    (repeated(b) & sp_layer_tensors[m->fc2_input].kept_by) != 0 &&
                    (repeated(b) & sp_layer_steps[step].operation) == 0;
    g->rebuilds = rebuilds && (repeated(b) & SP_LAYER_JOINED) != 0;
    if (rebuilds && !has(b, m->fc1)) {
        rebuild(b, SP_TENSOR_NORM2);
        make(b, m->fc1);
    }
    if (rebuilds) {
        make(b, m->silu);
        if (step == SP_STEP_FC2) {
            make(b, SP_TENSOR_UNWEIGHTED);
        }
        make(b, m->fc2_input);
    }
    g->gradient = allocate_wide(b, "gradient of fc2's input", m->ffn);
    free_tensor(b, copy);
    adapters_backward(b, step);
    if (!g->rebuilds) {
        make_weight_gradient(b, step);
        drop_input(b, m->fc2_input, SP_STEP_FC2);
    }
}

// The probabilities' gradient is a sum over the product of the output's gradient and what they were
// multiplied with.
static void weighting_backward(program_builder *b, layer_gradients *g)
{
    int32_t unweighted = allocate_wide(b, "gradient of the activation's output", SP_WIDTH_FFN);
    free_tensor(b, allocate_wide(b, "product for the probabilities' gradient", SP_WIDTH_FFN));
    drop(b, SP_TENSOR_UNWEIGHTED);
    free_tensor(b, g->gradient);
    g->gradient = unweighted;
}

// A SwiGLU of several kernels has a gradient for each. One function frees all of its own at its
// end, autograd what a node has read.
static void activation_backward(program_builder *b, layer_gradients *g, sp_layer_place step)
{
    const mlp *m = mlp_of(step);
    bool split = has_row(b, m->silu);
    if (step == SP_STEP_ACTIVATION && has_row(b, SP_TENSOR_UNWEIGHTED)) {
        weighting_backward(b, g);
    }
    int32_t up = SP_NO_TENSOR;
    int32_t gate = SP_NO_TENSOR;
    if (split) {
        int32_t silu = allocate_wide(b, "gradient of the SiLU output", m->ffn);
        up = allocate_wide(b, "gradient of the up half", m->ffn);
        free_tensor(b, g->rebuilds ? SP_NO_TENSOR : g->gradient);
        drop(b, m->silu);
        drop(b, m->up);
        gate = allocate_wide(b, "gradient of the gate half", m->ffn);
        free_tensor(b, silu);
        drop(b, m->gate);
    }
    g->outputs[0] = allocate_wide(b, "gradient of fc1's output", m->fc1_width);
    g->outputs[1] = SP_NO_TENSOR;
    free_tensor(b, gate);
    free_tensor(b, up);
    free_tensor(b, g->rebuilds || !split ? g->gradient : SP_NO_TENSOR);
    drop_input(b, m->fc2_input, SP_STEP_FC2);
    drop(b, m->fc1);
    if (step == SP_STEP_SHARED_ACTIVATION) {
        release_gradient(b, g->shared);
        release_gradient(b, g->behind);
        return;
    }
    release_gradient(b, g->routed);
    if (!b->of->has_step[SP_STEP_SHARED_FC1]) {
        release_gradient(b, g->behind);
    }
}

static void column_backward(program_builder *b, layer_gradients *g, sp_layer_place step)
{
    bool routed = has_row(b, SP_TENSOR_ROUTER) && step == SP_STEP_FC1;
    bool shared = step == SP_STEP_SHARED_FC1;
    sp_layer_tensor_id input = b->of->reads[step];
    if (b->of->reads_input[step]) {
        rebuild(b, input);
    }
    int32_t copy = turn_back(b, step);
    bool latent = routed && b->of->has_step[SP_STEP_EXPERT_DOWN];
    g->gradient = project_back(b, b->of->size.width[routed ? SP_WIDTH_ROUTED : SP_WIDTH_HIDDEN],
                               sp_layer_steps[step].inputs);
    free_tensor(b, copy);
    make_weight_gradient(b, step);
    adapters_backward(b, step);
    release_gradient(b, g->outputs[0]);
    release_gradient(b, g->outputs[1]);
    if (routed) {
        drop_for_weights(b, SP_TENSOR_EXPERT_INPUT);
        drop(b, SP_TENSOR_ROUTES);
        g->beside = g->gradient;
    }
    bool read_again = input == SP_TENSOR_NORM1 && step == SP_STEP_FC1; // by the attention
    if (!read_again && !latent && (!routed || !b->of->has_step[SP_STEP_SHARED_FC1])) {
        drop_input(b, input, step);
    }
    if (shared) {
        drop_for_weights(b, SP_TENSOR_SHARED_INPUT_COPY);
        free_tensor(b, g->beside); // added to the other
        free_tensor(b, g->shared_again);
    }
}

// From the gradient of the MLP's output to that of what experts give, and from that of their
// latents to one of hidden states.
static void expert_up_backward(program_builder *b, layer_gradients *g)
{
    g->combined =
        allocate_split(b, "gradient of the sum of a token's experts", SP_WIDTH_EXPERT_LATENT);
    make_weight_gradient(b, SP_STEP_EXPERT_UP);
    drop_for_weights(b, SP_TENSOR_COMBINED);
}

static void expert_down_backward(program_builder *b, layer_gradients *g)
{
    int32_t latent = g->gradient;
    g->gradient = allocate_hidden(b, "gradient of a projection's input");
    g->beside = g->gradient;
    make_weight_gradient(b, SP_STEP_EXPERT_DOWN);
    release_gradient(b, latent);
    drop_for_weights(b, SP_TENSOR_LATENT_INPUT_COPY);
    if (!b->of->has_step[SP_STEP_SHARED_FC1]) {
        drop_input(b, b->of->reads[SP_STEP_EXPERT_DOWN], SP_STEP_EXPERT_DOWN);
    }
}

// A product of hidden states whose gradient is added to that of others.
static void add_gradient(program_builder *b, layer_gradients *g)
{
    int32_t own = allocate_hidden(b, "gradient of a projection's input");
    free_tensor(b, g->of_hidden ? own : SP_NO_TENSOR);
    g->gradient = g->of_hidden ? g->gradient : own;
    g->of_hidden = true;
}

// A projection of latent attention; outputs[0] is of the queries, outputs[1] of keys and values.
static void latent_backward(program_builder *b, layer_gradients *g, sp_layer_place place)
{
    const sp_layer_step *step = &sp_layer_steps[place];
    bool is_query = place == SP_STEP_Q || place == SP_STEP_Q_UP || place == SP_STEP_Q_DOWN;
    int32_t *output = &g->outputs[is_query ? 0 : 1];
    bool is_up = step->inputs != SP_WIDTH_HIDDEN;
    int32_t read = *output;
    rebuild(b, step->reads);
    int32_t full = SP_NO_TENSOR;
    if (b->sequence_split && !step->duplicated) {
        full = allocate_wide(b, "gradient before its reduction", step->inputs);
    }
    if (is_up) {
        *output = allocate_split(b, "gradient of a normed latent", step->inputs);
    } else {
        add_gradient(b, g);
    }
    free_tensor(b, full);
    make_weight_gradient(b, place);
    release_gradient(b, read);
    if (is_up) {
        drop_for_weights(b, step->reads);
    }
}

static void latent_norm_backward(program_builder *b, layer_gradients *g, sp_layer_place place)
{
    const sp_layer_step *step = &sp_layer_steps[place];
    int32_t *output = &g->outputs[place == SP_STEP_Q_NORM ? 0 : 1];
    int32_t inner = *output;
    *output = allocate_split(b, "gradient of a latent", sp_layer_tensors[step->reads].width);
    free_tensor(b, inner);
    drop(b, step->reads);
}

// Gradients of what attention gave and of its gate, which is that of a part of the QKV output.
static void gate_backward(program_builder *b, layer_gradients *g)
{
    int32_t inner = allocate_wide(b, "gradient of the attention output", SP_WIDTH_CONTEXT);
    g->gate = allocate_wide(b, "gradient of the gate of the attention output", SP_WIDTH_CONTEXT);
    free_tensor(b, g->gradient);
    drop_for_weights(b, SP_TENSOR_GATED_ATTENTION);
    drop(b, SP_TENSOR_ATTENTION_GATE);
    g->gradient = inner;
}

static void state_backward(program_builder *b, layer_gradients *g)
{
    int32_t conv = allocate_wide(b, "gradient of the convolution", SP_WIDTH_STATE_CONV);
    g->outputs[0] =
        allocate_wide(b, "gradient of the projection into the state", SP_WIDTH_STATE_IN);
    g->outputs[1] = SP_NO_TENSOR;
    free_tensor(b, conv);
    free_tensor(b, g->gradient);
    drop(b, SP_TENSOR_STATE_CONV);
    drop(b, SP_TENSOR_STATE_INPUT);
    drop_for_weights(b, SP_TENSOR_STATE_OUTPUT);
}

// What a norm in PyTorch's operations kept beside its input and its output.
static void drop_unfused_norm(program_builder *b, sp_layer_place norm)
{
    for (int t = 0; t < SP_LAYER_TENSORS; t++) {
        const sp_layer_tensor *tensor = &sp_layer_tensors[t];
        if (tensor->made == norm && (tensor->conditions & SP_IF_UNFUSED_NORMS) != 0 &&
            has_row(b, (sp_layer_tensor_id)t)) {
            rebuild(b, (sp_layer_tensor_id)t);
            drop(b, (sp_layer_tensor_id)t);
        }
    }
}

// The end of the backward of an MLP beside the attention, whose output has the same gradient.
static void leave_to_attention(program_builder *b, layer_gradients *g)
{
    g->of_mlp = g->gradient;
    if (has_row(b, SP_TENSOR_NORM2)) {
        g->of_mlp = allocate_hidden(b, "gradient of a norm's input");
        free_tensor(b, g->gradient);
        drop_unfused_norm(b, SP_STEP_NORM2);
    }
    g->gradient = g->around;
    free_tensor(b, g->again);
    g->again = SP_NO_TENSOR;
}

static void add_of_mlp(program_builder *b, layer_gradients *g)
{
    int32_t sum = allocate_hidden(b, "gradient of what attention and MLP read");
    free_tensor(b, g->gradient);
    free_tensor(b, g->of_mlp);
    g->gradient = sum;
}

static void run_step_backward(program_builder *b, layer_gradients *g, sp_layer_place place)
{
    const sp_layer_step *step = &sp_layer_steps[place];
    if (!b->of->has_step[place]) {
        return;
    }
    switch (step->kind) {
    case SP_LAYER_KIND_RESIDUAL:
        g->around = g->gradient;
        break;
    case SP_LAYER_KIND_REDUCE:
        if (place == SP_STEP_SHARED_REDUCE) {
            // Unless all of the MLP has been rebuilt, with the experts.
            if ((repeated(b) & (SP_LAYER_SHARED_FC2 | SP_LAYER_FC2)) == SP_LAYER_SHARED_FC2) {
                g->shared_again = rebuild_part(b, SP_LAYER_SHARED).shared;
            }
            if (has_row(b, SP_TENSOR_SHARED_OUTPUT)) {
                g->shared = allocate_hidden(b, "gradient of the shared experts' output");
            }
            drop(b, SP_TENSOR_SHARED_OUTPUT);
            drop(b, SP_TENSOR_SHARED_SCORE);
            break;
        }
        g->behind = SP_NO_TENSOR;
        if (has(b, step->reads) ||
            has_row(b, place == SP_STEP_FC2_REDUCE ? SP_TENSOR_POST_NORM2 : SP_TENSOR_POST_NORM1)) {
            g->behind = allocate_hidden(b, place == SP_STEP_FC2_REDUCE
                                               ? "gradient of the MLP output"
                                               : "gradient of the attention block output");
            drop(b, step->reads);
            drop(b, place == SP_STEP_FC2_REDUCE ? SP_TENSOR_POST_NORM2 : SP_TENSOR_POST_NORM1);
            drop_unfused_norm(b, place);
        }
        rebuild_block(b, g, place);
        if (place == SP_STEP_FC2_REDUCE && b->of->has_step[SP_STEP_EXPERT_UP]) {
            expert_up_backward(b, g);
        }
        break;
    case SP_LAYER_KIND_PERMUTATION:
        if (has_row(b, SP_TENSOR_ROUTER) && place == SP_STEP_UNPERMUTATION) {
            g->routed = allocate_wide(b, "gradient of the expert output", SP_WIDTH_ROUTED);
            drop(b, SP_TENSOR_EXPERT_OUTPUT);
            drop(b, SP_TENSOR_ROUTER);
            drop(b, SP_TENSOR_ROUTING_MAP);
            free_tensor(b, g->combined);
        }
        break;
    case SP_LAYER_KIND_LINEAR:
        if ((step->conditions & (SP_IF_LATENT | SP_IF_QUERY_LATENT)) != 0) {
            latent_backward(b, g, place);
        } else if (place == SP_STEP_EXPERT_DOWN) {
            expert_down_backward(b, g);
        } else if (place == SP_STEP_EXPERT_UP) {
            break; // behind the reduction, which makes its input again
        } else if (!sp_layer_enters(step)) {
            row_backward(b, g, place);
        } else if (sp_layer_is_product(step)) {
            column_backward(b, g, place);
        }
        break;
    case SP_LAYER_KIND_ACTIVATION:
        activation_backward(b, g, place);
        break;
    case SP_LAYER_KIND_ATTENTION:
        core_attention_backward(b, g->gathered, g->outputs);
        if (b->splits_qkv) { // else it is a part of the gradient of the QKV output
            release_for_weights(b, g->gate);
        } else {
            free_tensor(b, g->gate);
        }
        free_tensor(b, g->gradient);
        break;
    case SP_LAYER_KIND_GATE:
        gate_backward(b, g);
        break;
    case SP_LAYER_KIND_STATE:
        state_backward(b, g);
        break;
    case SP_LAYER_KIND_NORM:
        if (place != SP_STEP_NORM1 && place != SP_STEP_NORM2) {
            latent_norm_backward(b, g, place);
            break;
        }
        drop_for_weights(b, step->writes);
        if (b->beside && place == SP_STEP_NORM2) {
            leave_to_attention(b, g);
            break;
        }
        bool joined = has_row(b, SP_TENSOR_NORM2);
        if (b->beside && !joined) {
            add_of_mlp(b, g);
        }
        g->gradient = norm_backward(b, has_row(b, step->writes), g->gradient, g->around,
                                    g->behind == SP_NO_TENSOR);
        if (b->beside && joined) {
            add_of_mlp(b, g);
        }
        drop_unfused_norm(b, place);
        drop(b, b->of->reads[place]);
        free_tensor(b, g->again);
        g->again = SP_NO_TENSOR;
        break;
    default:
        break;
    }
}

// Keys and values are gathered again behind the first GEMM of the layer's backward.
static int32_t layer_backward(program_builder *b, int layer, int32_t gradient)
{
    for (int t = 0; t < SP_LAYER_TENSORS; t++) {
        b->now[t] = b->kept[layer * SP_LAYER_TENSORS + t];
    }
    int32_t output = SP_NO_TENSOR;
    if (b->recomputes_layers) {
        b->runs_again = true;
        output = layer_forward(b, take(b, SP_TENSOR_INPUT), "rebuilt layer output");
    }
    layer_gradients g = {.gradient = gradient,
                         .combined = SP_NO_TENSOR,
                         .routed = SP_NO_TENSOR,
                         .gathered = SP_NO_TENSOR,
                         .beside = SP_NO_TENSOR,
                         .shared = SP_NO_TENSOR,
                         .gate = SP_NO_TENSOR,
                         .of_mlp = SP_NO_TENSOR,
                         .again = SP_NO_TENSOR,
                         .shared_again = SP_NO_TENSOR};
    if (b->of->size.kv_gathered > 0) {
        g.gathered = allocate(b, "gathered keys and values", b->of->size.kv_gathered);
    }
    for (int step = SP_LAYER_STEPS - 1; step >= 0; step--) {
        run_step_backward(b, &g, (sp_layer_place)step);
    }
    free_tensor(b, output);
    free_tensor(b, b->cached[layer]);
    return g.gradient;
}

// Does the weight gradient of the head read the row? One by chunks is made in the forward, and the
// row then stands for the gradient of the head's input, or at once where chunks run again.
static bool is_read_by_weight(const program_builder *b, int row)
{
    sp_layer_tensor_id id = b->head_rows[row].id;
    return (id == SP_TENSOR_FINAL_NORM || id == SP_TENSOR_MTP_NORM || id == SP_TENSOR_MTP_JOINED) &&
           b->loss_chunks == 0;
}

// The loss turns the softmax into its gradient in place and casts it to bf16; a fused one has
// written it over the logits.
static int32_t head_backward(program_builder *b)
{
    int last = b->head_count - 1;
    int32_t logits = SP_NO_TENSOR;
    int32_t inner = SP_NO_TENSOR;
    if (b->loss_chunks == 0) {
        logits = b->head_saved[last];
        if (!b->fused_loss) {
            logits = allocate_wide(b, "gradient of the logits", SP_WIDTH_LOGITS);
            free_tensor(b, b->head_saved[last]);
        }
        if (b->logit_ranks > 1) {
            int32_t whole = logits;
            logits = allocate_wide(b, "share of the logits' gradient", SP_WIDTH_VOCAB);
            free_tensor(b, whole);
        }
        last--;
    }
    bool repeats = b->loss_chunks > 0 && b->loss_recompute;
    if (b->loss_chunks == 0 || repeats) {
        inner = project_back(b, b->of->size.width[SP_WIDTH_HIDDEN], SP_WIDTH_HIDDEN);
    }
    b->head_gradient = table_gradient(b);
    if (repeats) {
        run_chunk(b, SP_NO_TENSOR, SP_NO_TENSOR);
    }
    if (!b->shares_table) {
        free_tensor(b, b->head_gradient);
    }
    release_for_weights(b, logits);
    for (int r = last; r > 0; r--) {
        if (is_read_by_weight(b, r)) {
            release_for_weights(b, b->head_saved[r]);
        }
    }
    int32_t gradient = allocate_hidden(b, "gradient of a norm's input");
    free_tensor(b, inner);
    for (int r = 0; r <= last; r++) {
        if (!is_read_by_weight(b, r)) {
            free_tensor(b, b->head_saved[r]);
        }
    }
    return gradient;
}

// PyTorch makes the gradient of the lookup as a dense table.
static void lookup_backward(program_builder *b)
{
    int32_t full = SP_NO_TENSOR;
    if (b->sequence_split) {
        full = allocate_wide(b, "gathered gradient", SP_WIDTH_HIDDEN);
    }
    int32_t table = allocate(b, "gradient of the embedding", b->table);
    if (b->shares_table && b->weight_gradients) {
        // Autograd adds the two up before it hands them on.
        free_tensor(b, b->head_gradient);
    }
    free_tensor(b, table);
    free_tensor(b, full);
}

static void embedding_backward(program_builder *b, int32_t gradient)
{
    if (!b->frozen) {
        lookup_backward(b);
    }
    for (int r = 0; r < b->embedding_count; r++) {
        free_tensor(b, b->embedding_saved[r]);
    }
    release_around(b, gradient, false);
}

// All of the backward, into b->to, and the weight gradients of a split one into `weights`. Autograd
// frees what a node has saved when the node is done; inside one recomputing function everything
// stays to its end.
static int32_t write_backward(program_builder *b, sp_tensor_events *weights)
{
    const sp_tensor_program *program = b->program;
    b->deferred_count = 0;
    b->outer_read = false;
    // bf16, like the keys and values that they are gradients of.
    int32_t cached = SP_NO_TENSOR;
    if (b->kv_cached > 0) {
        cached = allocate(b, "gradients of cached keys and values",
                          sp_stage_attending_layers(b->stage, b->model) * b->kv_cached);
    }
    int32_t gradient = b->stage->head ? head_backward(b) : program->output_gradient;
    int32_t parameters =
        b->stage->layers > 0 ? gather_parameters(b, b->stage->layers - 1) : SP_NO_TENSOR;
    for (int layer = b->stage->layers - 1; layer >= 0; layer--) {
        int32_t next = layer > 0 ? gather_parameters(b, layer - 1) : SP_NO_TENSOR;
        b->of = kind_at(b, layer);
        gradient = layer_backward(b, layer, gradient);
        free_tensor(b, parameters);
        parameters = next;
    }
    if (sp_stage_is_empty(b->stage)) {
        gradient = allocate_hidden(b, "gradient of the input");
    }
    if (b->stage->embedding) {
        embedding_backward(b, gradient);
        gradient = SP_NO_TENSOR;
    }
    free_tensor(b, cached);
    b->runs_again = false;
    if (b->outer_read) {
        release_gradient(b, program->output_gradient);
    } else {
        free_tensor(b, program->output_gradient);
    }
    if (b->splits) {
        b->to = weights;
        for (size_t i = 0; i < b->deferred_count; i++) {
            free_tensor(b, b->deferred[i]);
        }
    }
    return gradient;
}

static void measure_kind(const sp_model *alike, const sp_layout *layout,
                         const sp_memory_options *options, const sp_unit_load *load,
                         layer_kind *kind);

void sp_tensor_program_build(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                             const sp_memory_options *options, const sp_unit_load *load,
                             sp_tensor_program *program)
{
    *program = (sp_tensor_program){.input = SP_NO_TENSOR,
                                   .output = SP_NO_TENSOR,
                                   .output_gradient = SP_NO_TENSOR,
                                   .input_gradient = {SP_NO_TENSOR, SP_NO_TENSOR}};
    program_builder b = {.program = program,
                         .model = model,
                         .layout = layout,
                         .stage = stage,
                         .frozen = sp_model_is_frozen(model),
                         .beside = model->blocks != SP_BLOCKS_IN_TURN,
                         .recomputes_layers = sp_recompute_is_whole(options->recompute),
                         .splits_qkv = layout->cp > 1 && options->stack.cp_overlap == SP_CP_QKV,
                         .fused_loss = sp_stack_keeps_bf16_logits(&options->stack),
                         .logit_ranks = sp_stack_logit_ranks(&options->stack, layout),
                         .loss_chunks = sp_stack_loss_chunks(&options->stack),
                         .loss_recompute = sp_stack_repeats_loss(&options->stack),
                         .cuts_logits = options->stack.cut_cross_entropy,
                         .copied_logits = options->stack.copied_logits,
                         .weight_gradients = options->stack.unfused_weight_gradient,
                         .mixed_views = model->positional != SP_ROPE && !model->qk_norm,
                         .shares_table = model->tied_embeddings && stage->embedding && stage->head,
                         .precision = &options->stack.precision,
                         .load = load};
    for (int k = 0; k < sp_model_kinds(model); k++) {
        sp_model space;
        measure_kind(sp_model_of_kind(model, k, &space), layout, options, load, &b.kinds[k]);
    }
    b.of = &b.kinds[0];
    b.logits = sp_mul_bytes(b.logit_ranks, b.of->size.width[SP_WIDTH_VOCAB]);
    if (stage->embedding) {
        b.embedding_count =
            sp_saved_part(model, layout, options, SP_PART_EMBEDDING, b.embedding_rows);
    }
    if (stage->head) {
        b.head_count = sp_saved_part(model, layout, options, SP_PART_HEAD, b.head_rows);
    }
    const sp_shard *shard = &b.of->size.shard;
    b.sequence_split = shard->norm_split > 1;
    b.kv_cached =
        sp_mul_bytes(sp_ceil_div(load->kv_tokens, layout->cp), BF16 * (shard->k + shard->v));
    b.table = sp_mul_bytes(shard->vocab, BF16 * model->hidden);
    size_t layers = (size_t)stage->layers;
    b.kept = sp_calloc(layers * SP_LAYER_TENSORS, sizeof *b.kept);
    b.cached = sp_calloc(layers, sizeof *b.cached);
    write_forward(&b);
    program->output_gradient = stage->head ? SP_NO_TENSOR : (int32_t)program->tensor_count;
    if (!stage->head) {
        // Comes from outside: no event makes it.
        b.to = NULL;
        allocate(&b, "output gradient", b.of->size.hidden);
    }
    for (int split = 0; split < (load->whole ? 1 : 2); split++) {
        b.splits = split == 1;
        b.to = &program->pass[split == 0 ? SP_PROGRAM_BACKWARD : SP_PROGRAM_INPUT_GRADIENT];
        program->input_gradient[split] =
            write_backward(&b, &program->pass[SP_PROGRAM_WEIGHT_GRADIENT]);
    }
    sp_free(b.kept);
    sp_free(b.cached);
    sp_free(b.deferred);
}

static void measure_kind(const sp_model *alike, const sp_layout *layout,
                         const sp_memory_options *options, const sp_unit_load *load,
                         layer_kind *kind)
{
    const sp_stage one_layer = {.layers = 1};
    sp_saved_tensor rows[SP_SAVED_TENSORS];
    int count = sp_saved_part(alike, layout, options, SP_PART_LAYER, rows);
    uint64_t conditions = sp_layer_conditions(alike, layout, &options->stack, options->attention);
    for (int r = 0; r < count; r++) {
        const sp_layer_tensor *tensor = &sp_layer_tensors[rows[r].id];
        kind->rows[rows[r].id] = rows[r];
        kind->exist |= SP_LAYER_SET(rows[r].id);
        bool adapted = (tensor->conditions & SP_IF_ADAPTERS) != 0;
        (adapted ? kind->adapted : kind->made)[tensor->made] |= SP_LAYER_SET(rows[r].id);
        kind->scope[tensor->scope] |= SP_LAYER_SET(rows[r].id);
    }
    kind->repeated = sp_recompute_operations(options->recompute, alike);
    sp_unit_sizes_of(alike, layout, options, load, &kind->size);
    for (int s = 0; s < SP_LAYER_STEPS; s++) {
        kind->adapters[s] = sp_layer_adapters_of(alike, &kind->size.shard, (sp_layer_place)s);
        kind->reads_input[s] = sp_layer_reads_input(conditions, (sp_layer_place)s);
        kind->weights[s] = sp_model_is_frozen(alike)
                               ? BF16 * sp_layer_adapter_parameters(&kind->adapters[s])
                               : sp_footprint_weight(alike, layout, (sp_layer_place)s);
        kind->copies[s] =
            BF16 * sp_layer_frozen_of(alike, &kind->size.shard, (sp_layer_place)s).largest;
        kind->reads[s] = sp_layer_reads(conditions, (sp_layer_place)s);
        kind->has_step[s] = sp_layer_has_step(alike, &sp_layer_steps[s]);
    }
    kind->gathered_parameters = sp_layout_zero_in_step(layout) >= 3
                                    ? sp_footprint_gathered(alike, layout, &one_layer, 1)
                                    : 0;
}
