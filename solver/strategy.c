#include "solver/strategy.h"

#include <string.h>

#include "solver/rows.h"

enum strategy { PADDED, PACKED, SORTED, FFD, STRATEGIES };

const char *const sp_strategy_names[] = {"padded", "packed", "sorted", "ffd", NULL};

static int find(const char *name)
{
    for (int i = 0; sp_strategy_names[i] != NULL; i++) {
        if (strcmp(sp_strategy_names[i], name) == 0) {
            return i;
        }
    }
    return STRATEGIES;
}

bool sp_strategy_is_lossless(const char *name)
{
    return find(name) != STRATEGIES;
}

sp_status sp_strategy_check(const char *name, const char *source, sp_error *err)
{
    if (find(name) != STRATEGIES) {
        return SP_OK;
    }
    const char *near = sp_nearest_name(name, sp_strategy_names, STRATEGIES);
    return near != NULL
               ? sp_error_in(err, SP_ERR_CONTENT, source, "strategy.kind",
                             "unknown strategy \"%s\" (did you mean \"%s\"?)", name, near)
               : sp_error_in(err, SP_ERR_CONTENT, source, "strategy.kind",
                             "unknown strategy \"%s\" (known: padded, packed, sorted, ffd)", name);
}

static sp_status make_rows(enum strategy strategy, sp_i_rows *rows, const sp_batch *batch,
                           int64_t context, sp_error *err)
{
    switch (strategy) {
    case PADDED:
        return sp_i_rows_padded(rows, batch, err);
    case PACKED:
        return sp_i_rows_packed(rows, batch, context, err);
    case SORTED:
        return sp_i_rows_sorted(rows, batch, context, err);
    case FFD:
        return sp_i_rows_ffd(rows, batch, context, err);
    case STRATEGIES:
        break;
    }
    SP_UNREACHABLE("a strategy");
}

// Tokens that a padded row of this micro-batch is padded to; 0: rows are not padded.
static int64_t padded_length(const sp_strategy_spec *spec, enum strategy strategy,
                             const sp_i_rows *rows, const sp_batch *batch, int64_t context,
                             size_t first_row, size_t last_row)
{
    if (strategy != PADDED) {
        return 0;
    }
    if (spec->pad_to == SP_PAD_CONTEXT) {
        return context;
    }
    int64_t longest = 0;
    for (size_t i = rows->first[first_row]; i < rows->first[last_row]; i++) {
        int64_t tokens = batch->tokens[rows->sample[i]];
        longest = tokens > longest ? tokens : longest;
    }
    return longest;
}

static bool add_microbatch(sp_packing *packing, const sp_i_rows *rows, const sp_batch *batch,
                           size_t first_row, size_t last_row, int dp_rank, int64_t padded)
{
    bool ok = sp_pack_list_begin(&packing->forward, dp_rank, 1);
    for (size_t i = rows->first[first_row]; ok && i < rows->first[last_row]; i++) {
        int64_t tokens = batch->tokens[rows->sample[i]];
        sp_slice slice = {.sample = rows->sample[i],
                          .tokens = tokens,
                          .computed_tokens = padded > tokens ? padded : tokens};
        ok = sp_pack_list_add(&packing->forward, slice, true);
    }
    return ok;
}

sp_status sp_strategy_pack(const sp_strategy_spec *spec, const sp_batch *batch, int64_t context,
                           int dp, sp_packing *packing, sp_error *err)
{
    enum strategy strategy = (enum strategy)find(spec->kind);
    SP_ASSERT(strategy != STRATEGIES);
    sp_packing_init(packing, batch, dp);
    sp_i_rows rows;
    sp_status status = sp_i_rows_init(&rows, batch, err);
    if (status != SP_OK) {
        return status;
    }
    status = make_rows(strategy, &rows, batch, context, err);
    size_t step = (size_t)spec->microbatch_samples;
    size_t k = 0;
    for (size_t row = 0; status == SP_OK && row < rows.count; row += step, k++) {
        size_t last = rows.count - row < step ? rows.count : row + step;
        int64_t padded = padded_length(spec, strategy, &rows, batch, context, row, last);
        if (!add_microbatch(packing, &rows, batch, row, last, (int)(k % (size_t)dp), padded)) {
            status = sp_error_no_memory(err, "a packing");
        }
    }
    sp_i_rows_fini(&rows);
    if (status != SP_OK) {
        sp_packing_fini(packing);
    }
    return status;
}
