#include "sim/inference/speculation.h"

#include <math.h>
#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/base/order.h"

const char *const sp_decode_method_names[] = {"plain", "eagle", "heterospec", NULL};

enum {
    BINS_DEPTH = 3,      // of the regression tree
    SEQUENCE_CALLS = 32, // calls of one sequence of text that bins are fitted to
    LEAST_IN_BIN = 8,
};

// ---- the tree of drafted tokens ----

static void add_children(sp_draft_tree *tree, int parent, const sp_draft_row *row);
static double row_entropy(const sp_draft_row *row, int top_k);
static int best_nodes(const sp_draft_tree *tree, int first, int most, int *best);

void sp_draft_tree_init(sp_draft_tree *tree, int top_k, int most_depth)
{
    int capacity = sp_draft_tree_nodes(top_k, most_depth);
    *tree = (sp_draft_tree){.top_k = top_k, .capacity = capacity};
    tree->nodes = sp_calloc((size_t)capacity, sizeof *tree->nodes);
    tree->order = sp_calloc((size_t)capacity, sizeof *tree->order);
    tree->place = sp_calloc((size_t)capacity, sizeof *tree->place);
}

void sp_draft_tree_fini(sp_draft_tree *tree)
{
    sp_free(tree->nodes);
    sp_free(tree->order);
    sp_free(tree->place);
    *tree = (sp_draft_tree){0};
}

void sp_draft_tree_start(sp_draft_tree *tree, int64_t root_token)
{
    tree->nodes[0] = (sp_draft_node){.parent = -1, .token = root_token};
    tree->count = 1;
    tree->depth = 0;
    tree->frontier[0] = 0;
    tree->frontier_count = 1;
}

void sp_draft_tree_grow(sp_draft_tree *tree)
{
    int first = tree->count;
    SP_ASSERT(first + tree->frontier_count * tree->top_k <= tree->capacity);
    for (int i = 0; i < tree->frontier_count; i++) {
        add_children(tree, tree->frontier[i], &tree->rows[i]);
    }
    tree->depth++;
    tree->frontier_count = best_nodes(tree, first, tree->top_k, tree->frontier);
}

static void add_children(sp_draft_tree *tree, int parent, const sp_draft_row *row)
{
    sp_draft_node *from = &tree->nodes[parent];
    from->entropy = row_entropy(row, tree->top_k);
    for (int c = 0; c < tree->top_k; c++) {
        tree->nodes[tree->count++] = (sp_draft_node){.parent = parent,
                                                     .depth = from->depth + 1,
                                                     .child = c,
                                                     .token = row->token[c],
                                                     .value = from->value + row->log_confidence[c]};
    }
}

// log(sum) - sum p log(p) / sum, which is -sum q log(q) of q = p / sum.
static double row_entropy(const sp_draft_row *row, int top_k)
{
    double sum = 0.0;
    double weighted = 0.0;
    for (int i = 0; i < top_k; i++) {
        double p = row->confidence[i];
        sum += p;
        weighted += p > 0.0 ? p * row->log_confidence[i] : 0.0;
    }
    // The logarithms round: a certain row may come out a little below 0.
    return sum > 0.0 ? fmax(0.0, log(sum) - weighted / sum) : 0.0;
}

// Writes the `most` nodes of the highest value from `first` on, or all there are, in the order of
// sp_draft_tree_rank(): inserts one after the other, so that earlier ones stay before equal ones.
static int best_nodes(const sp_draft_tree *tree, int first, int most, int *best)
{
    double values[SP_DRAFT_RANKED]; // of the best
    int held = 0;
    for (int i = first; i < tree->count; i++) {
        const sp_draft_node *node = &tree->nodes[i];
        if (held == most && !(node->value > values[held - 1])) {
            // Nor is one of the rest of its row.
            i = i > 0 ? i + tree->top_k - 1 - node->child : i;
            continue;
        }
        held += held < most;
        int place = held - 1;
        for (; place > 0 && node->value > values[place - 1]; place--) {
            values[place] = values[place - 1];
            best[place] = best[place - 1];
        }
        values[place] = node->value;
        best[place] = i;
    }
    return held;
}

void sp_draft_tree_rank(sp_draft_tree *tree, int most)
{
    SP_ASSERT(most <= SP_DRAFT_RANKED);
    tree->ranked = best_nodes(tree, 0, most, tree->order);
    for (int i = 0; i < tree->count; i++) {
        tree->place[i] = tree->ranked;
    }
    for (int i = 0; i < tree->ranked; i++) {
        tree->place[tree->order[i]] = i;
    }
}

int sp_draft_tree_best_leaf(const sp_draft_tree *tree)
{
    // The frontier is of the deepest layer, the highest value first.
    return tree->frontier[0];
}

double sp_draft_tree_path_entropy(const sp_draft_tree *tree, int leaf)
{
    double sum = 0.0;
    for (int i = tree->nodes[leaf].parent; i >= 0; i = tree->nodes[i].parent) {
        sum += tree->nodes[i].entropy;
    }
    return sum;
}

// ---- the model of acceptance ----

// Box and Muller's transformation by Marsaglia's polar method, which needs no sine.
static double normal(sp_drafted_sequence *sequence)
{
    if (sequence->has_spare) {
        sequence->has_spare = false;
        return sequence->spare;
    }
    double x = 0.0;
    double y = 0.0;
    double square = 0.0;
    while (!(square > 0.0 && square < 1.0)) {
        x = 2.0 * sp_prng_uniform(&sequence->prng) - 1.0;
        y = 2.0 * sp_prng_uniform(&sequence->prng) - 1.0;
        square = x * x + y * y;
    }
    double factor = sqrt(-2.0 * log(square) / square);
    sequence->spare = factor * y;
    sequence->has_spare = true;
    return factor * x;
}

void sp_drafted_sequence_begin(sp_drafted_sequence *sequence, uint64_t seed, uint64_t index)
{
    static const uint64_t odd = 0x9e3779b97f4a7c15; // spreads neighbours over all bits
    *sequence = (sp_drafted_sequence){.has_spare = false};
    sp_prng_seed(&sequence->prng, seed + odd * (index + 1));
    sequence->difficulty = normal(sequence);
}

void sp_drafted_sequence_next(sp_drafted_sequence *sequence, const sp_acceptance *model)
{
    double kept = model->persistence;
    sequence->difficulty = kept * sequence->difficulty + sqrt(1.0 - kept * kept) * normal(sequence);
}

int sp_acceptance_draw(const sp_acceptance *model, sp_drafted_sequence *sequence, int top_k,
                       sp_draft_row *row)
{
    sp_prng *prng = &sequence->prng;
    double logit =
        model->ease + model->spread * sequence->difficulty + model->noise * normal(sequence);
    // No setting makes a logit whose exponential overflows.
    double odds = exp(logit);
    double left = 1.0 / (1.0 + odds);
    double log_left = log(left);
    row->confidence[0] = odds * left;
    row->log_confidence[0] = log_left + logit;
    for (int i = 0; i < top_k; i++) {
        row->token[i] = i;
        if (i > 0) {
            row->confidence[i] = left * row->confidence[i - 1];
            row->log_confidence[i] = log_left + row->log_confidence[i - 1];
        }
    }
    double place = floor(log(1.0 - sp_prng_uniform(prng)) / (model->agreement * log_left));
    bool blind = sp_prng_uniform(prng) < model->blind;
    return !blind && place >= 0.0 && place < top_k ? (int)place : -1;
}

// ---- bins of the entropy ----

// Sums over the first i samples.
typedef struct sums {
    double *y, *squares; // [count + 1]; squares follows y in one block, which y owns
} sums;

static void cut(const sp_sample *samples, const sums *s, size_t first, size_t end, size_t least,
                int depth, sp_bins *bins);

// By x, and by y where x is equal: the sums do not depend on how the sort treats equal ones.
static int by_x(const void *left, const void *right)
{
    const sp_sample *a = left;
    const sp_sample *b = right;
    return SP_ORDER_2(a, b, x, y);
}

void sp_bins_fit(sp_sample *samples, size_t count, size_t least, sp_bins *bins)
{
    *bins = (sp_bins){.count = 1};
    sums s = {.y = sp_calloc(2 * (count + 1), sizeof *s.y)};
    s.squares = s.y + count + 1;
    if (count > 0) {
        qsort(samples, count, sizeof *samples, by_x);
    }
    for (size_t i = 0; i < count; i++) {
        s.y[i + 1] = s.y[i] + samples[i].y;
        s.squares[i + 1] = s.squares[i] + samples[i].y * samples[i].y;
    }
    cut(samples, &s, 0, count, least > 0 ? least : 1, BINS_DEPTH, bins);
    sp_free(s.y);
}

// Squared errors of [first, end) about their mean.
static double squared_error(const sums *s, size_t first, size_t end)
{
    double y = s->y[end] - s->y[first];
    return s->squares[end] - s->squares[first] - y * y / (double)(end - first);
}

// The first sample of the right side; `end` where there is no place for a cut.
static size_t best_cut(const sp_sample *samples, const sums *s, size_t first, size_t end,
                       size_t least)
{
    size_t best = end;
    double best_error = (double)INFINITY;
    for (size_t i = first + least; i + least <= end; i++) {
        double error = squared_error(s, first, i) + squared_error(s, i, end);
        if (samples[i - 1].x < samples[i].x && error < best_error) {
            best = i;
            best_error = error;
        }
    }
    return best;
}

// Left part, border, right part: the borders come out ascending.
static void cut(const sp_sample *samples, const sums *s, size_t first, size_t end, size_t least,
                int depth, sp_bins *bins)
{
    size_t border = depth > 0 ? best_cut(samples, s, first, end, least) : end;
    if (border == end) {
        return;
    }
    cut(samples, s, first, border, least, depth - 1, bins);
    bins->above[bins->count++ - 1] = samples[border - 1].x;
    cut(samples, s, border, end, least, depth - 1, bins);
}

int sp_bin_of(const sp_bins *bins, double x)
{
    int bin = 0;
    while (bin < bins->count - 1 && x > bins->above[bin]) {
        bin++;
    }
    return bin;
}

// ---- a call of the target ----

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
    while (tree->depth < depth) {
        SP_TRY(source(context, tree, err));
        sp_draft_tree_grow(tree);
    }
    return SP_OK;
}

sp_status sp_speculation_draft(const sp_speculation *how, sp_draft_source *source, void *context,
                               sp_draft_tree *tree, sp_speculated *call, sp_error *err)
{
    *call = (sp_speculated){0};
    SP_TRY(grow_to(how->depth, source, context, tree, err));
    call->path_end = sp_draft_tree_best_leaf(tree);
    call->entropy = sp_draft_tree_path_entropy(tree, call->path_end);
    call->bin = sp_bin_of(&how->bins, call->entropy);
    sp_speculation_shape(how, call->bin, &call->depth, &call->nodes);
    SP_TRY(grow_to(call->depth, source, context, tree, err));
    sp_draft_tree_rank(tree, call->nodes);
    call->nodes = tree->ranked;
    call->path_rank = tree->place[call->path_end]; // the root is no candidate
    return SP_OK;
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

static sp_status draw_rows(void *context, sp_draft_tree *tree, sp_error *err SP_UNUSED)
{
    drawn_text *text = context;
    int agreed = text->agreed;
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
    sp_draft_tree_init(&tree, how->top_k, how->depth);
    size_t count = collect(&eagle, model, seed, calls, &tree, samples);
    sp_bins_fit(samples, count, LEAST_IN_BIN, &how->bins);
    sp_draft_tree_fini(&tree);
    sp_free(samples);
}
