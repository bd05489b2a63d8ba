#include "backends/host/speculation.h"

#include <math.h>
#include <string.h>

#include "backends/host/host.h"
#include "kernels/kernels.h"
#include "sim/base/alloc.h"
#include "sim/base/prng.h"

#define EPSILON 1e-6
#define ROPE_BASE 10000.0

typedef struct layer_weights {
    double *qkv, *out;      // [3 hidden, hidden], [hidden, hidden]
    double *gate_up, *down; // [2 ffn, hidden], [hidden, ffn]
} layer_weights;

struct sp_small_model {
    sp_small_shape shape;
    int hidden;
    layer_weights *layers;
    double *embedding, *head; // [vocab, hidden]
    double *ones;             // [hidden], weights of the norms
    sp_arena arena;
};

// The rows of one forward.
typedef struct forward_rows {
    sp_small_cache *cache;
    const sp_small_model *model;
    int count, first; // its rows are pending[first .. first + count)
    double *x, *normed, *qkv, *mixed, *gate_up, *middle, *rstd, *cosine, *sine, *scores;
    int64_t *position;
    int *place; // [capacity], of what a row sees
    sp_arena arena;
} forward_rows;

static double *draw(sp_small_model *model, sp_prng *prng, size_t count, double deviation);
static void draw_layers(sp_small_model *model, sp_prng *prng);
static void rows_init(forward_rows *r, sp_small_cache *cache, int count);
static void attend(forward_rows *r, int layer);
static void feed_forward(forward_rows *r, int layer);

sp_small_model *sp_small_model_new(const sp_small_shape *shape, uint64_t seed)
{
    sp_prng prng;
    sp_prng_seed(&prng, seed);
    sp_small_model *m = sp_calloc(1, sizeof *m);
    m->shape = *shape;
    m->hidden = shape->heads * shape->head_dim;
    size_t table = (size_t)shape->vocab * (size_t)m->hidden;
    m->embedding = draw(m, &prng, table, 1.0);
    m->head = draw(m, &prng, table, shape->logit_scale / sqrt(m->hidden));
    m->ones = draw(m, &prng, (size_t)m->hidden, 0.0);
    draw_layers(m, &prng);
    for (int i = 0; i < m->hidden; i++) {
        m->ones[i] = 1.0;
    }
    return m;
}

void sp_small_model_free(sp_small_model *model)
{
    if (model != NULL) {
        sp_arena_free(&model->arena);
        sp_free(model);
    }
}

// Uniform with that deviation: weights need no other moments.
static double *draw(sp_small_model *model, sp_prng *prng, size_t count, double deviation)
{
    double *weights = sp_arena_take(&model->arena, count, sizeof *weights);
    double width = deviation * sqrt(12.0);
    for (size_t i = 0; i < count; i++) {
        weights[i] = width * (sp_prng_uniform(prng) - 0.5);
    }
    return weights;
}

static void draw_layers(sp_small_model *model, sp_prng *prng)
{
    const sp_small_shape *shape = &model->shape;
    size_t hidden = (size_t)model->hidden;
    size_t ffn = (size_t)shape->ffn;
    double in = 1.0 / sqrt(model->hidden);
    model->layers = sp_arena_take(&model->arena, (size_t)shape->layers, sizeof *model->layers);
    for (int l = 0; l < shape->layers; l++) {
        double scale = l < shape->draft_layers ? 1.0 : shape->late_scale;
        layer_weights *w = &model->layers[l];
        w->qkv = draw(model, prng, 3 * hidden * hidden, 2.0 * in);
        w->out = draw(model, prng, hidden * hidden, scale * in);
        w->gate_up = draw(model, prng, 2 * ffn * hidden, 2.0 * in);
        w->down = draw(model, prng, hidden * ffn, scale / sqrt(shape->ffn));
    }
}

// ---- the cache ----

void sp_small_cache_init(sp_small_cache *cache, const sp_small_model *model, int layers,
                         int capacity)
{
    size_t size = (size_t)layers * (size_t)capacity * (size_t)model->hidden;
    *cache = (sp_small_cache){.model = model, .layers = layers, .capacity = capacity};
    cache->keys = sp_arena_take(&cache->arena, size, sizeof *cache->keys);
    cache->values = sp_arena_take(&cache->arena, size, sizeof *cache->values);
    cache->parent = sp_arena_take(&cache->arena, (size_t)capacity, sizeof *cache->parent);
    cache->depth = sp_arena_take(&cache->arena, (size_t)capacity, sizeof *cache->depth);
}

void sp_small_cache_fini(sp_small_cache *cache)
{
    sp_arena_free(&cache->arena);
    *cache = (sp_small_cache){0};
}

static double *cached(const sp_small_cache *cache, double *table, int layer, int place)
{
    size_t row = (size_t)layer * (size_t)cache->capacity + (size_t)place;
    return table + row * (size_t)cache->model->hidden;
}

// Places ascend from the root down, so that no token is written over before it has moved.
void sp_small_settle(sp_small_cache *cache, const int *places, int count)
{
    size_t bytes = (size_t)cache->model->hidden * sizeof *cache->keys;
    for (int layer = 0; layer < cache->layers; layer++) {
        for (int i = 0; i < count; i++) {
            int from = cache->settled + places[i];
            int to = cache->settled + i;
            memmove(cached(cache, cache->keys, layer, to), cached(cache, cache->keys, layer, from),
                    bytes);
            memmove(cached(cache, cache->values, layer, to),
                    cached(cache, cache->values, layer, from), bytes);
        }
    }
    cache->settled += count;
    cache->pending = 0;
}

// ---- a forward ----

static void take_tokens(forward_rows *r, const int64_t *tokens, const int *parents)
{
    sp_small_cache *cache = r->cache;
    for (int i = 0; i < r->count; i++) {
        int place = r->first + i;
        int parent = parents[i];
        SP_ASSERT(parent < place);
        cache->parent[place] = parent;
        cache->depth[place] = parent < 0 ? 0 : cache->depth[parent] + 1;
        r->position[i] = cache->settled + cache->depth[place];
    }
    cache->pending += r->count;
    sp_kernel_embedding_f64(r->count, r->model->hidden, tokens, 0, r->model->shape.vocab,
                            r->model->embedding, false, r->x, r->model->hidden);
    sp_kernel_rope_table_f64(r->count, r->position, r->model->shape.head_dim, ROPE_BASE, r->cosine,
                             r->sine);
}

static void norm(forward_rows *r)
{
    int64_t hidden = r->model->hidden;
    sp_kernel_rms_norm_f64(r->count, hidden, r->x, hidden, r->model->ones, EPSILON, r->normed,
                           hidden, r->rstd);
}

void sp_small_forward(sp_small_cache *cache, int count, const int64_t *tokens, const int *parents,
                      double *logits)
{
    const sp_small_model *model = cache->model;
    forward_rows r;
    SP_ASSERT(cache->settled + cache->pending + count <= cache->capacity);
    rows_init(&r, cache, count);
    take_tokens(&r, tokens, parents);
    for (int layer = 0; layer < cache->layers; layer++) {
        attend(&r, layer);
        feed_forward(&r, layer);
    }
    norm(&r);
    sp_kernel_linear_f64(count, model->hidden, model->shape.vocab, r.normed, model->hidden,
                         model->head, model->hidden, NULL, logits, model->shape.vocab);
    sp_arena_free(&r.arena);
}

static void rows_init(forward_rows *r, sp_small_cache *cache, int count)
{
    size_t n = (size_t)count;
    size_t hidden = (size_t)cache->model->hidden;
    size_t ffn = (size_t)cache->model->shape.ffn;
    *r = (forward_rows){
        .cache = cache, .model = cache->model, .count = count, .first = cache->pending};
    r->x = sp_arena_take(&r->arena, n * hidden, sizeof *r->x);
    r->normed = sp_arena_take(&r->arena, n * hidden, sizeof *r->normed);
    r->qkv = sp_arena_take(&r->arena, n * 3 * hidden, sizeof *r->qkv);
    r->mixed = sp_arena_take(&r->arena, n * hidden, sizeof *r->mixed);
    r->gate_up = sp_arena_take(&r->arena, n * 2 * ffn, sizeof *r->gate_up);
    r->middle = sp_arena_take(&r->arena, n * (ffn > hidden ? ffn : hidden), sizeof *r->middle);
    r->rstd = sp_arena_take(&r->arena, n, sizeof *r->rstd);
    r->cosine = sp_arena_take(&r->arena, n * hidden, sizeof *r->cosine);
    r->sine = sp_arena_take(&r->arena, n * hidden, sizeof *r->sine);
    r->scores = sp_arena_take(&r->arena, (size_t)cache->capacity, sizeof *r->scores);
    r->place = sp_arena_take(&r->arena, (size_t)cache->capacity, sizeof *r->place);
    r->position = sp_arena_take(&r->arena, n, sizeof *r->position);
}

// x += part W^T
static void add_projected(forward_rows *r, const double *part, int width, const double *weight)
{
    int hidden = r->model->hidden;
    sp_kernel_linear_f64(r->count, width, hidden, part, width, weight, width, NULL, r->normed,
                         hidden);
    for (int i = 0; i < r->count * hidden; i++) {
        r->x[i] += r->normed[i];
    }
}

static double dot(const double *a, const double *b, int count)
{
    double sum = 0.0;
    for (int i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

// The places that a row sees: the settled tokens, then its ancestors and itself from the root down;
// in the order of their positions, so that a path sums up as the text that it becomes.
static int visible(forward_rows *r, int row)
{
    int *place = r->place;
    const sp_small_cache *cache = r->cache;
    int own = r->first + row;
    int count = cache->settled + cache->depth[own] + 1;
    for (int i = 0; i < cache->settled; i++) {
        place[i] = i;
    }
    for (int at = own, i = count - 1; at >= 0; at = cache->parent[at]) {
        place[i--] = cache->settled + at;
    }
    return count;
}

static void attend_head(forward_rows *r, int layer, int row, int head, int count)
{
    const sp_small_cache *cache = r->cache;
    const int *place = r->place;
    int dim = r->model->shape.head_dim;
    int at = head * dim;
    const double *query = r->qkv + (size_t)row * 3 * (size_t)r->model->hidden + at;
    double *mixed = r->mixed + (size_t)row * (size_t)r->model->hidden + at;
    double most = -(double)INFINITY;
    for (int i = 0; i < count; i++) {
        r->scores[i] =
            dot(query, cached(cache, cache->keys, layer, place[i]) + at, dim) / sqrt(dim);
        most = fmax(most, r->scores[i]);
    }
    double sum = 0.0;
    memset(mixed, 0, (size_t)dim * sizeof *mixed);
    for (int i = 0; i < count; i++) {
        double weight = exp(r->scores[i] - most);
        const double *value = cached(cache, cache->values, layer, place[i]) + at;
        sum += weight;
        for (int d = 0; d < dim; d++) {
            mixed[d] += weight * value[d];
        }
    }
    for (int d = 0; d < dim; d++) {
        mixed[d] /= sum;
    }
}

static void attend(forward_rows *r, int layer)
{
    const sp_small_model *model = r->model;
    const sp_small_shape *shape = &model->shape;
    sp_small_cache *cache = r->cache;
    int hidden = model->hidden;
    norm(r);
    sp_kernel_linear_f64(r->count, hidden, 3 * hidden, r->normed, hidden, model->layers[layer].qkv,
                         hidden, NULL, r->qkv, 3 * hidden);
    // Queries and keys turn, side by side.
    sp_kernel_rope_f64(r->count, 2 * shape->heads, shape->head_dim, r->cosine, r->sine, false,
                       r->qkv, 3 * hidden);
    for (int i = 0; i < r->count; i++) {
        const double *row = r->qkv + (size_t)i * 3 * (size_t)hidden;
        size_t bytes = (size_t)hidden * sizeof *row;
        int to = cache->settled + r->first + i;
        memcpy(cached(cache, cache->keys, layer, to), row + hidden, bytes);
        memcpy(cached(cache, cache->values, layer, to), row + 2 * hidden, bytes);
    }
    for (int i = 0; i < r->count; i++) {
        int count = visible(r, i);
        for (int head = 0; head < shape->heads; head++) {
            attend_head(r, layer, i, head, count);
        }
    }
    add_projected(r, r->mixed, hidden, model->layers[layer].out);
}

static void feed_forward(forward_rows *r, int layer)
{
    const sp_small_model *model = r->model;
    int ffn = model->shape.ffn;
    norm(r);
    sp_kernel_linear_f64(r->count, model->hidden, 2 * ffn, r->normed, model->hidden,
                         model->layers[layer].gate_up, model->hidden, NULL, r->gate_up, 2 * ffn);
    sp_kernel_swiglu_f64(r->count, ffn, r->gate_up, r->gate_up + ffn, 2 * ffn, r->middle, ffn);
    add_projected(r, r->middle, ffn, model->layers[layer].down);
}

// ---- Text ----

typedef struct generator {
    const sp_small_model *model;
    const sp_speculation *how;
    int vocab;
    sp_small_cache target, draft;
    sp_draft_tree tree;
    double *logits;  // [rows of one forward, vocab]
    int64_t *tokens; // of one forward
    int *parents;    // of one forward
    int *place;      // [nodes]: of a node among the draft's pending tokens, or among the verified
    int *kept;       // [nodes]: the verified ones, parents before children
    int *path;       // places of what is accepted
    int64_t *fresh;  // tokens that the draft has not read, the root last
    int fresh_count;
    sp_small_text *text;
    int wanted;
    sp_arena arena;
} generator;

static void generator_init(generator *g, int draft_layers, int prompt_count);
static void generator_fini(generator *g);
static void read_prompt(generator *g, const int64_t *prompt, int count);
static sp_status run_call(generator *g, sp_error *err);

sp_status sp_small_generate(const sp_small_model *model, int draft_layers,
                            const sp_speculation *how, const int64_t *prompt, int prompt_count,
                            int count, sp_small_text *text, sp_error *err)
{
    generator g = {.model = model, .how = how, .text = text, .wanted = count};
    *text = (sp_small_text){.tokens = sp_calloc((size_t)count, sizeof *text->tokens),
                            .calls = sp_calloc((size_t)count, sizeof *text->calls)};
    sp_status status = SP_OK;
    generator_init(&g, draft_layers, prompt_count);
    read_prompt(&g, prompt, prompt_count);
    while (status == SP_OK && text->count < count) {
        status = run_call(&g, err);
    }
    generator_fini(&g);
    return status;
}

void sp_small_text_fini(sp_small_text *text)
{
    sp_free(text->tokens);
    sp_free(text->calls);
    *text = (sp_small_text){0};
}

static void take_rows(generator *g, int rows, int nodes)
{
    size_t n = (size_t)rows;
    g->logits = sp_arena_take(&g->arena, n * (size_t)g->vocab, sizeof *g->logits);
    g->tokens = sp_arena_take(&g->arena, n, sizeof *g->tokens);
    g->parents = sp_arena_take(&g->arena, n, sizeof *g->parents);
    g->path = sp_arena_take(&g->arena, n, sizeof *g->path);
    g->fresh = sp_arena_take(&g->arena, n, sizeof *g->fresh);
    g->place = sp_arena_take(&g->arena, (size_t)nodes, sizeof *g->place);
    g->kept = sp_arena_take(&g->arena, (size_t)nodes, sizeof *g->kept);
}

static void generator_init(generator *g, int draft_layers, int prompt_count)
{
    const sp_small_shape *shape = &g->model->shape;
    int depth = sp_speculation_most_depth(g->how);
    int widest = g->how->nodes + g->how->alpha;
    int tokens = prompt_count + g->wanted + depth + 1;
    g->vocab = shape->vocab;
    sp_draft_tree_init(&g->tree, g->how->top_k, depth);
    sp_small_cache_init(&g->target, g->model, shape->layers, tokens + widest);
    sp_small_cache_init(&g->draft, g->model, draft_layers, tokens + depth * g->how->top_k);
    int rows = prompt_count > widest ? prompt_count : widest;
    rows = rows > SP_DRAFT_TOP_K ? rows : SP_DRAFT_TOP_K;
    take_rows(g, rows + depth, g->tree.capacity);
}

static void generator_fini(generator *g)
{
    sp_draft_tree_fini(&g->tree);
    sp_small_cache_fini(&g->target);
    sp_small_cache_fini(&g->draft);
    sp_arena_free(&g->arena);
}

// Reads a chain of tokens, which settle; `logits` are theirs.
static void read_chain(generator *g, sp_small_cache *cache, const int64_t *tokens, int count)
{
    for (int i = 0; i < count; i++) {
        g->parents[i] = cache->pending + i - 1;
        g->path[i] = i;
    }
    sp_small_forward(cache, count, tokens, g->parents, g->logits);
    sp_small_settle(cache, g->path, count);
}

// The last token of the prompt is the first root.
static void read_prompt(generator *g, const int64_t *prompt, int count)
{
    for (int i = 0; i < count; i++) {
        g->fresh[i] = prompt[i];
    }
    g->fresh_count = count;
    if (count > 1) {
        read_chain(g, &g->target, prompt, count - 1);
    }
}

// ---- drafting ----

static int best_token(const double *logits, int vocab)
{
    int best = 0;
    for (int i = 1; i < vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

static void take_best(const double *logits, int vocab, int top_k, sp_draft_row *row)
{
    int held = 0;
    for (int t = 0; t < vocab; t++) {
        if (held == top_k && !(logits[t] > logits[row->token[held - 1]])) {
            continue;
        }
        held += held < top_k;
        int at = held - 1;
        for (; at > 0 && logits[t] > logits[row->token[at - 1]]; at--) {
            row->token[at] = row->token[at - 1];
        }
        row->token[at] = t;
    }
}

static void row_of(const double *logits, int vocab, int top_k, sp_draft_row *row)
{
    take_best(logits, vocab, top_k, row);
    double most = logits[row->token[0]];
    double sum = 0.0;
    for (int t = 0; t < vocab; t++) {
        sum += exp(logits[t] - most);
    }
    for (int i = 0; i < top_k; i++) {
        row->log_confidence[i] = logits[row->token[i]] - most - log(sum);
        row->confidence[i] = exp(row->log_confidence[i]);
    }
}

// The draft reads the frontier; the root it has read already, behind the fresh tokens.
static sp_status draft_rows(void *context, sp_draft_tree *tree, sp_error *err SP_UNUSED)
{
    generator *g = context;
    int first = 0;
    if (tree->depth == 0) {
        read_chain(g, &g->draft, g->fresh, g->fresh_count);
        first = g->fresh_count - 1;
    } else {
        for (int i = 0; i < tree->frontier_count; i++) {
            int node = tree->frontier[i];
            int parent = tree->nodes[node].parent;
            g->tokens[i] = tree->nodes[node].token;
            g->parents[i] = parent == 0 ? -1 : g->place[parent];
            g->place[node] = g->draft.pending + i;
        }
        sp_small_forward(&g->draft, tree->frontier_count, g->tokens, g->parents, g->logits);
    }
    for (int i = 0; i < tree->frontier_count; i++) {
        row_of(g->logits + (size_t)(first + i) * (size_t)g->vocab, g->vocab, tree->top_k,
               &tree->rows[i]);
    }
    return SP_OK;
}

// ---- verifying ----

static void verify(generator *g)
{
    const sp_draft_tree *tree = &g->tree;
    int count = 0;
    for (int node = 0; node < tree->count; node++) {
        if (tree->place[node] < tree->ranked) {
            int parent = tree->nodes[node].parent;
            g->tokens[count] = tree->nodes[node].token;
            g->parents[count] = parent < 0 ? -1 : g->place[parent];
            g->kept[count] = node;
            g->place[node] = count++;
        }
    }
    sp_small_forward(&g->target, count, g->tokens, g->parents, g->logits);
}

static int child_with(const generator *g, int node, int64_t token)
{
    const sp_draft_tree *tree = &g->tree;
    for (int i = 0; i < tree->ranked; i++) {
        const sp_draft_node *child = &tree->nodes[g->kept[i]];
        if (child->parent == node && child->token == token) {
            return g->kept[i];
        }
    }
    return -1;
}

static void yield(generator *g, int64_t token)
{
    g->fresh[g->fresh_count++] = token;
    if (g->text->count < g->wanted) {
        g->text->tokens[g->text->count++] = token;
    }
}

// Down from the root along the target's own tokens; the first that was not drafted is the next
// root.
static void accept(generator *g, sp_speculated *call)
{
    int node = 0;
    int count = 0;
    g->fresh_count = 0;
    while (true) {
        int place = g->place[node];
        int token = best_token(g->logits + (size_t)place * (size_t)g->vocab, g->vocab);
        int child = child_with(g, node, token);
        g->path[count++] = place;
        yield(g, token);
        if (child < 0) {
            break;
        }
        node = child;
    }
    sp_small_settle(&g->target, g->path, count);
    sp_small_settle(&g->draft, g->path, 0);
    sp_speculation_accept(g->how, &g->tree, node, call);
}

// Without a draft the tree is its root.
static sp_status run_call(generator *g, sp_error *err)
{
    sp_speculated call = {.nodes = 1};
    sp_status status = SP_OK;
    sp_draft_tree_start(&g->tree, g->fresh[g->fresh_count - 1]);
    if (g->how->method == SP_DECODE_PLAIN) {
        sp_draft_tree_rank(&g->tree, 1);
    } else {
        status = sp_speculation_draft(g->how, draft_rows, g, &g->tree, &call, err);
    }
    if (status == SP_OK) {
        verify(g);
        accept(g, &call);
        g->text->calls[g->text->call_count++] = call;
    }
    return status;
}

// ---- Measurements ----

enum { PROMPT = 8, LEAST_IN_BIN = 4 };

static const sp_small_shape shape = {.layers = 4,
                                     .heads = 2,
                                     .head_dim = 16,
                                     .ffn = 64,
                                     .vocab = SP_SMALL_VOCAB,
                                     .draft_layers = 2,
                                     .logit_scale = 3.0};

typedef struct measuring {
    const sp_speculation *how;
    int sequences, tokens;
    uint64_t seed;
    sp_sample *samples; // [sequences * tokens], owned: of meta-paths that were accepted
    size_t sample_count;
    sp_small_measure *measure;
} measuring;

// One sequence: its model and prompt.
typedef struct source {
    sp_small_model *model;
    int64_t prompt[PROMPT];
} source;

// Drafts of every second sequence are close to their target, those of the others further off.
static void source_init(source *s, uint64_t seed, int index)
{
    static const double scales[] = {0.1, 0.6};
    sp_small_shape own = shape;
    sp_prng prng;
    own.late_scale = scales[index % 2];
    sp_prng_seed(&prng, seed + (uint64_t)index);
    for (int i = 0; i < PROMPT; i++) {
        s->prompt[i] = (int64_t)sp_prng_below(&prng, SP_SMALL_VOCAB);
    }
    s->model = sp_small_model_new(&own, sp_prng_u64(&prng));
}

static void add_calls(const sp_small_text *text, const sp_bins *bins, sp_small_tally *tally)
{
    sp_speculation fitted = {.method = SP_DECODE_HETEROSPEC, .bins = *bins};
    for (int i = 0; i < text->call_count; i++) {
        const sp_speculated *call = &text->calls[i];
        tally->calls++;
        tally->tokens += call->accepted + 1;
        tally->verified += call->nodes;
        tally->low += sp_speculation_is_low(&fitted, call->bin);
    }
}

static void add_samples(measuring *m, const sp_small_text *text)
{
    for (int i = 0; i < text->call_count; i++) {
        const sp_speculated *call = &text->calls[i];
        if (call->path_accepted) {
            m->samples[m->sample_count++] = (sp_sample){.x = call->entropy, .y = call->path_rank};
        }
    }
}

static sp_status generate(const measuring *m, const source *s, sp_decode_method method,
                          sp_small_text *text, sp_error *err)
{
    sp_speculation how = *m->how;
    how.method = method;
    how.bins = m->measure->bins;
    return sp_small_generate(s->model, shape.draft_layers, &how, s->prompt, PROMPT, m->tokens, text,
                             err);
}

static sp_status fit_on(measuring *m, const source *s, sp_error *err)
{
    sp_small_text text;
    sp_status status = generate(m, s, SP_DECODE_EAGLE, &text, err);
    add_samples(m, &text);
    sp_small_text_fini(&text);
    return status;
}

static sp_status compare_on(measuring *m, const source *s, sp_error *err)
{
    sp_small_text text[3] = {{0}};
    sp_small_measure *to = m->measure;
    sp_status status = SP_OK;
    for (int method = 0; status == SP_OK && method < 3; method++) {
        status = generate(m, s, (sp_decode_method)method, &text[method], err);
    }
    if (status == SP_OK) {
        size_t bytes = (size_t)m->tokens * sizeof *text[0].tokens;
        add_calls(&text[SP_DECODE_EAGLE], &to->bins, &to->eagle);
        add_calls(&text[SP_DECODE_HETEROSPEC], &to->bins, &to->heterospec);
        for (int method = 1; method < 3; method++) {
            to->lossless = to->lossless && memcmp(text[method].tokens, text[0].tokens, bytes) == 0;
        }
    }
    for (int method = 0; method < 3; method++) {
        sp_small_text_fini(&text[method]);
    }
    return status;
}

static sp_status each_sequence(measuring *m, int first,
                               sp_status (*visit)(measuring *m, const source *s, sp_error *err),
                               sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = first; status == SP_OK && i < first + m->sequences; i++) {
        source s = {0};
        source_init(&s, m->seed, i);
        status = visit(m, &s, err);
        sp_small_model_free(s.model);
    }
    return status;
}

sp_status sp_small_measure_run(const sp_speculation *how, int sequences, int tokens, uint64_t seed,
                               sp_small_measure *measure, sp_error *err)
{
    measuring m = {
        .how = how, .sequences = sequences, .tokens = tokens, .seed = seed, .measure = measure};
    *measure = (sp_small_measure){.bins = {.count = 1}, .lossless = true};
    SP_TRY(sp_i_host_start(err));
    m.samples = sp_calloc((size_t)sequences * (size_t)tokens, sizeof *m.samples);
    sp_status status = each_sequence(&m, sequences, fit_on, err);
    if (status == SP_OK) {
        sp_bins_fit(m.samples, m.sample_count, LEAST_IN_BIN, &measure->bins);
    }
    if (status == SP_OK) {
        status = each_sequence(&m, 0, compare_on, err);
    }
    sp_free(m.samples);
    return status;
}
