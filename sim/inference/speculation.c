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

void sp_speculation_shape(const sp_speculation *how, int bin, int *depth, int *nodes)
{
    bool low = how->method == SP_DECODE_HETEROSPEC && bin < SP_LOW_BINS;
    int more = how->alpha > bin ? how->alpha - bin : 0;
    *depth = how->depth + (low && how->extend ? more : 0);
    *nodes = low && how->prune ? (int)(how->keep[bin] * how->nodes + 0.5) + more : how->nodes;
}

int sp_speculation_most_depth(const sp_speculation *how)
{
    return how->depth + (how->method == SP_DECODE_HETEROSPEC ? how->alpha : 0);
}

// The nodes that the target's own text follows, from the root down.
typedef struct true_path {
    int node[SP_DRAFT_DEPTH + 1];
    int length; // without the root
} true_path;

static void grow(const sp_acceptance *model, sp_drafted_sequence *sequence, sp_draft_tree *tree,
                 true_path *path)
{
    sp_draft_row rows[SP_DRAFT_TOP_K] = {0};
    int first = tree->count;
    int next = -1;
    for (int i = 0; i < tree->frontier_count; i++) {
        int child = sp_acceptance_draw(model, sequence, tree->top_k, &rows[i]);
        bool on_path = tree->frontier[i] == path->node[path->length];
        next = on_path && child >= 0 ? first + i * tree->top_k + child : next;
    }
    sp_draft_tree_grow(tree, rows);
    if (next >= 0) {
        path->node[++path->length] = next;
    }
}

static int verified_length(const sp_draft_tree *tree, const true_path *path)
{
    int length = 0;
    while (length < path->length && tree->place[path->node[length + 1]] < tree->ranked) {
        length++;
    }
    return length;
}

void sp_speculate(const sp_speculation *how, const sp_acceptance *model,
                  sp_drafted_sequence *sequence, sp_draft_tree *tree, sp_speculated *call)
{
    true_path path = {.node = {0}};
    *call = (sp_speculated){0};
    sp_drafted_sequence_next(sequence, model);
    sp_draft_tree_start(tree, 0);
    while (tree->depth < how->depth) {
        grow(model, sequence, tree, &path);
    }
    int leaf = sp_draft_tree_best_leaf(tree);
    call->entropy = sp_draft_tree_path_entropy(tree, leaf);
    call->bin = sp_bin_of(&how->bins, call->entropy);
    sp_speculation_shape(how, call->bin, &call->depth, &call->nodes);
    while (tree->depth < call->depth) {
        grow(model, sequence, tree, &path);
    }
    sp_draft_tree_rank(tree, call->nodes);
    call->nodes = tree->ranked;
    call->accepted = verified_length(tree, &path);
    call->path_rank = tree->place[leaf]; // the root is no candidate
    call->path_accepted = call->accepted >= how->depth && path.node[how->depth] == leaf;
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

sp_status sp_speculation_fit_bins(sp_speculation *how, const sp_acceptance *model, uint64_t seed,
                                  int calls, sp_error *err)
{
    sp_speculation plain = *how;
    plain.method = SP_DECODE_EAGLE;
    plain.bins = (sp_bins){.count = 1};
    sp_draft_tree tree;
    sp_sample *samples = sp_calloc((size_t)calls, sizeof *samples);
    if (samples == NULL) {
        return sp_error_no_memory(err, "calls of a target");
    }
    sp_status status = sp_draft_tree_init(&tree, how->top_k, how->depth, err);
    if (status == SP_OK) {
        size_t count = collect(&plain, model, seed, calls, &tree, samples);
        status = sp_bins_fit(samples, count, LEAST_IN_BIN, &how->bins, err);
        sp_draft_tree_fini(&tree);
    }
    sp_free(samples);
    return status;
}
