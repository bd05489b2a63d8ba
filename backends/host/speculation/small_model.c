#include "backends/host/speculation/small_model.h"

#include <math.h>
#include <string.h>

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
typedef struct rows {
    sp_small_cache *cache;
    const sp_small_model *model;
    int count, first; // its rows are pending[first .. first + count)
    double *x, *normed, *qkv, *mixed, *gate_up, *middle, *rstd, *cosine, *sine, *scores;
    int64_t *position;
    int *place; // [capacity], of what a row sees
    sp_arena arena;
} rows;

static double *draw(sp_small_model *model, sp_prng *prng, size_t count, double deviation);
static void draw_layers(sp_small_model *model, sp_prng *prng);
static void rows_init(rows *r, sp_small_cache *cache, int count);
static void attend(rows *r, int layer);
static void feed_forward(rows *r, int layer);

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

const sp_small_shape *sp_small_model_shape(const sp_small_model *model)
{
    return &model->shape;
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
    cache->keys = sp_calloc(size, sizeof *cache->keys);
    cache->values = sp_calloc(size, sizeof *cache->values);
    cache->parent = sp_calloc((size_t)capacity, sizeof *cache->parent);
    cache->depth = sp_calloc((size_t)capacity, sizeof *cache->depth);
}

void sp_small_cache_fini(sp_small_cache *cache)
{
    sp_free(cache->keys);
    sp_free(cache->values);
    sp_free(cache->parent);
    sp_free(cache->depth);
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

static void take_tokens(rows *r, const int64_t *tokens, const int *parents)
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

static void norm(rows *r)
{
    int64_t hidden = r->model->hidden;
    sp_kernel_rms_norm_f64(r->count, hidden, r->x, hidden, r->model->ones, EPSILON, r->normed,
                           hidden, r->rstd);
}

void sp_small_forward(sp_small_cache *cache, int count, const int64_t *tokens, const int *parents,
                      double *logits)
{
    const sp_small_model *model = cache->model;
    rows r;
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

static void rows_init(rows *r, sp_small_cache *cache, int count)
{
    size_t n = (size_t)count;
    size_t hidden = (size_t)cache->model->hidden;
    size_t ffn = (size_t)cache->model->shape.ffn;
    *r = (rows){.cache = cache, .model = cache->model, .count = count, .first = cache->pending};
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
static void add_projected(rows *r, const double *part, int width, const double *weight)
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
static int visible(rows *r, int row)
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

static void attend_head(rows *r, int layer, int row, int head, int count)
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

static void attend(rows *r, int layer)
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

static void feed_forward(rows *r, int layer)
{
    const sp_small_model *model = r->model;
    int ffn = model->shape.ffn;
    norm(r);
    sp_kernel_linear_f64(r->count, model->hidden, 2 * ffn, r->normed, model->hidden,
                         model->layers[layer].gate_up, model->hidden, NULL, r->gate_up, 2 * ffn);
    sp_kernel_swiglu_f64(r->count, ffn, r->gate_up, r->gate_up + ffn, 2 * ffn, r->middle, ffn);
    add_projected(r, r->middle, ffn, model->layers[layer].down);
}
