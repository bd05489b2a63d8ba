#include "sim/inference/speculation.h"

#include "sim/base/alloc.h"

const char *const sp_decode_method_names[] = {"plain", "eagle", "heterospec", NULL};

enum {
    SEQUENCE_CALLS = 32, // calls of one sequence of text that bins are fitted to
    LEAST_IN_BIN = 8,
};

int sp_speculation_usual_alpha(int depth)
{
    return (depth + 1) / 2;
}

sp_speculation sp_speculation_of_eagle(const sp_speculation *how)
{
    sp_speculation eagle = *how;
    eagle.method = SP_DECODE_EAGLE;
    eagle.bins = (sp_bins){.count = 1};
    return eagle;
}

bool sp_speculation_is_low(const sp_speculation *how, int bin)
{
    return how->method == SP_DECODE_HETEROSPEC && bin < SP_LOW_BINS && bin < how->bins.count - 1;
}

void sp_speculation_shape(const sp_speculation *how, int bin, int *depth, int *nodes)
{
    bool low = sp_speculation_is_low(how, bin);
    int more = how->alpha > bin ? how->alpha - bin : 0;
    *depth = how->depth + (low && how->extend ? more : 0);
    *nodes = low && how->prune ? (int)(how->keep[bin] * how->nodes + 0.5) + more : how->nodes;
}

int sp_speculation_most_depth(const sp_speculation *how)
{
    return how->depth + (how->method == SP_DECODE_HETEROSPEC ? how->alpha : 0);
}

static sp_status grow_to(int depth, sp_draft_source *source, void *context, sp_draft_tree *tree,
                         sp_error *err)
{
    sp_status status = SP_OK;
    while (status == SP_OK && tree->depth < depth) {
        status = source(context, tree, err);
        if (status == SP_OK) {
            sp_draft_tree_grow(tree);
        }
    }
    return status;
}

sp_status sp_speculation_draft(const sp_speculation *how, sp_draft_source *source, void *context,
                               sp_draft_tree *tree, sp_speculated *call, sp_error *err)
{
    *call = (sp_speculated){0};
    sp_status status = grow_to(how->depth, source, context, tree, err);
    if (status != SP_OK) {
        return status;
    }
    call->path_end = sp_draft_tree_best_leaf(tree);
    call->entropy = sp_draft_tree_path_entropy(tree, call->path_end);
    call->bin = sp_bin_of(&how->bins, call->entropy);
    sp_speculation_shape(how, call->bin, &call->depth, &call->nodes);
    status = grow_to(call->depth, source, context, tree, err);
    if (status == SP_OK) {
        sp_draft_tree_rank(tree, call->nodes);
        call->nodes = tree->ranked;
        call->path_rank = tree->place[call->path_end]; // the root is no candidate
    }
    return status;
}

void sp_speculation_accept(const sp_speculation *how, const sp_draft_tree *tree, int node,
                           sp_speculated *call)
{
    call->accepted = tree->nodes[node].depth;
    while (tree->nodes[node].depth > how->depth) {
        node = tree->nodes[node].parent;
    }
    call->path_accepted = node == call->path_end;
}

// Text that the model of acceptance draws, and the tree's deepest node that it agrees with.
typedef struct drawn_text {
    const sp_acceptance *model;
    sp_drafted_sequence *sequence;
    int agreed;
} drawn_text;

static sp_status draw_rows(void *context, sp_draft_tree *tree, sp_error *err)
{
    drawn_text *text = context;
    int agreed = text->agreed;
    (void)err;
    for (int i = 0; i < tree->frontier_count; i++) {
        int child = sp_acceptance_draw(text->model, text->sequence, tree->top_k, &tree->rows[i]);
        if (tree->frontier[i] == agreed && child >= 0) {
            text->agreed = tree->count + i * tree->top_k + child;
        }
    }
    return SP_OK;
}

void sp_speculate(const sp_speculation *how, const sp_acceptance *model,
                  sp_drafted_sequence *sequence, sp_draft_tree *tree, sp_speculated *call)
{
    drawn_text text = {.model = model, .sequence = sequence};
    sp_drafted_sequence_next(sequence, model);
    sp_draft_tree_start(tree, 0);
    sp_status status = sp_speculation_draft(how, draw_rows, &text, tree, call, NULL);
    SP_ASSERT(status == SP_OK);
    int node = text.agreed;
    while (tree->place[node] >= tree->ranked) {
        node = tree->nodes[node].parent;
    }
    sp_speculation_accept(how, tree, node, call);
}

static size_t collect(const sp_speculation *how, const sp_acceptance *model, uint64_t seed,
                      int calls, sp_draft_tree *tree, sp_sample *samples)
{
    sp_drafted_sequence sequence;
    size_t count = 0;
    for (int i = 0; i < calls; i++) {
        sp_speculated call;
        if (i % SEQUENCE_CALLS == 0) {
            sp_drafted_sequence_begin(&sequence, seed, (uint64_t)(i / SEQUENCE_CALLS));
        }
        sp_speculate(how, model, &sequence, tree, &call);
        if (call.path_accepted) {
            samples[count++] = (sp_sample){.x = call.entropy, .y = call.path_rank};
        }
    }
    return count;
}

void sp_speculation_fit_bins(sp_speculation *how, const sp_acceptance *model, uint64_t seed,
                             int calls)
{
    sp_speculation eagle = sp_speculation_of_eagle(how);
    sp_draft_tree tree;
    sp_sample *samples = sp_calloc((size_t)calls, sizeof *samples);
    sp_draft_tree_init(&tree, how->top_k, how->depth, NULL);
    size_t count = collect(&eagle, model, seed, calls, &tree, samples);
    sp_bins_fit(samples, count, LEAST_IN_BIN, &how->bins, NULL);
    sp_draft_tree_fini(&tree);
    sp_free(samples);
}
