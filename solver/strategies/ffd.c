// First-fit decreasing bin packing (Johnson 1973): samples by descending length, each into the
// first row with room. At most 11/9 OPT + 6/9 rows (Dosa 2007). O(n log n) with a tree of free
// room.
#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/strategy_list.h"

// Most free room below each node of a complete binary tree; leaves are rows.
typedef struct room_tree {
    int64_t *room; // [2 * leaves]
    size_t leaves;
} room_tree;

static size_t first_with_room(const room_tree *tree, int64_t tokens)
{
    size_t node = 1;
    while (node < tree->leaves) {
        node = tree->room[2 * node] >= tokens ? 2 * node : 2 * node + 1;
    }
    return node - tree->leaves;
}

static void take_room(room_tree *tree, size_t row, int64_t tokens)
{
    size_t node = tree->leaves + row;
    tree->room[node] -= tokens;
    for (node /= 2; node > 0; node /= 2) {
        int64_t left = tree->room[2 * node];
        int64_t right = tree->room[2 * node + 1];
        tree->room[node] = left > right ? left : right;
    }
}

void sp_i_rows_first_fit(sp_i_rows *rows, const sp_batch *batch, const int32_t *order,
                         size_t samples, int64_t context)
{
    room_tree tree = {.leaves = 1};
    while (tree.leaves < samples) {
        tree.leaves *= 2;
    }
    size_t *row_of = sp_malloc(samples * sizeof *row_of);
    tree.room = sp_malloc(2 * tree.leaves * sizeof *tree.room);
    for (size_t node = 0; node < 2 * tree.leaves; node++) {
        tree.room[node] = context;
    }
    size_t count = 0;
    for (size_t i = 0; i < samples; i++) {
        int64_t tokens = batch->tokens[order[i]];
        row_of[i] = first_with_room(&tree, tokens);
        take_room(&tree, row_of[i], tokens);
        count = row_of[i] >= count ? row_of[i] + 1 : count;
    }
    sp_i_rows_gather(rows, order, row_of, samples, count);
    sp_free(row_of);
    sp_free(tree.room);
}

static void fill(sp_i_rows *rows, const sp_strategy_input *input, const int32_t *order)
{
    sp_i_rows_first_fit(rows, input->batch, order, input->batch->count, input->context);
}

sp_status sp_i_pack_ffd(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    (void)err;
    sp_i_pack_rows(input, fill, packing);
    return SP_OK;
}
