#include "backends/host/speculation/generate.h"

#include <math.h>

#include "sim/base/alloc.h"

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
    const sp_small_shape *shape = sp_small_model_shape(g->model);
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
static sp_status draft_rows(void *context, sp_draft_tree *tree, sp_error *err)
{
    (void)err;
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
