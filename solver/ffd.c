// First-fit decreasing bin packing (Johnson 1973): samples by descending length, each into the
// first row with room. At most 11/9 OPT + 6/9 rows (Dosa 2007). O(n log n) with a tree of free
// room.
#include <string.h>

#include "sim/base/alloc.h"
#include "solver/rows.h"

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

// Groups samples by the row they went to, in the order in which they were placed.
static void gather(sp_i_rows *rows, const sp_batch *batch, const int32_t *order,
                   const size_t *row_of)
{
    memset(rows->first, 0, (batch->count + 1) * sizeof *rows->first);
    for (size_t i = 0; i < batch->count; i++) {
        rows->first[row_of[i]]++;
    }
    size_t begin = 0;
    for (size_t r = 0; r <= rows->count; r++) {
        size_t size = r < rows->count ? rows->first[r] : 0;
        rows->first[r] = begin;
        begin += size;
    }
    for (size_t i = 0; i < batch->count; i++) {
        rows->sample[rows->first[row_of[i]]++] = order[i];
    }
    for (size_t r = rows->count; r > 0; r--) {
        rows->first[r] = rows->first[r - 1];
    }
    rows->first[0] = 0;
}

sp_status sp_i_rows_ffd(sp_i_rows *rows, const sp_batch *batch, int64_t context, sp_error *err)
{
    room_tree tree = {.leaves = 1};
    while (tree.leaves < batch->count) {
        tree.leaves *= 2;
    }
    int32_t *order = NULL;
    size_t *row_of = sp_i_malloc(batch->count * sizeof *row_of);
    tree.room = sp_i_malloc(2 * tree.leaves * sizeof *tree.room);
    sp_status status = row_of == NULL || tree.room == NULL
                           ? sp_error_no_memory(err, "packing")
                           : sp_i_order_descending(batch, &order, err);
    if (status != SP_OK) {
        goto out;
    }
    for (size_t node = 0; node < 2 * tree.leaves; node++) {
        tree.room[node] = context;
    }
    for (size_t i = 0; i < batch->count; i++) {
        int64_t tokens = batch->tokens[order[i]];
        row_of[i] = first_with_room(&tree, tokens);
        take_room(&tree, row_of[i], tokens);
        if (row_of[i] >= rows->count) {
            rows->count = row_of[i] + 1;
        }
    }
    gather(rows, batch, order, row_of);
out:
    sp_i_free(order);
    sp_i_free(row_of);
    sp_i_free(tree.room);
    return status;
}
