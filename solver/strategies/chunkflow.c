// ChunkFlow (Yuan et al., arXiv 2503.02356, section 4): a sample longer than ChunkSize is cut into
// chunks of that length (dependent chunks), what is left as the last one; the other samples are
// packed into as few chunks as first-fit decreasing needs (standalone chunks). A micro-batch is a
// standalone chunk, or all chunks of a long sample. The paper does not say how micro-batches get to
// data-parallel ranks; here they are assigned by their time, with what is recomputed.
#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/slicing.h"
#include "solver/strategies/karmarkar_karp.h"
#include "solver/strategy_list.h"

// The best chunks of the paper's runs have 2K to 8K tokens.
enum { DEFAULT_CHUNK_TOKENS = 8192 };

// Long samples become rows, longest first, so that their many chunks do not end the step; the
// others share rows of a chunk.
static void make_rows(const sp_batch *batch, int64_t chunk_tokens, sp_packing *packing)
{
    int32_t *order = sp_i_order_descending(batch);
    sp_i_rows rows = {0};
    size_t longs = 0;
    while (longs < batch->count && batch->tokens[order[longs]] > chunk_tokens) {
        sp_i_add_row(packing, 0, 1, &order[longs++], 1);
    }
    size_t shorts = batch->count - longs;
    if (shorts > 0) {
        sp_i_rows_init(&rows, shorts);
        sp_i_rows_first_fit(&rows, batch, &order[longs], shorts, chunk_tokens);
    }
    for (size_t r = 0; r < rows.count; r++) {
        size_t first = rows.first[r];
        sp_i_add_row(packing, 0, 1, &rows.sample[first], rows.first[r + 1] - first);
    }
    sp_i_rows_fini(&rows);
    sp_free(order);
}

sp_status sp_i_pack_chunkflow(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    const sp_scenario *scenario = input->scenario;
    int64_t chunk_tokens = scenario->strategy.chunk_tokens;
    int retained = scenario->schedule.retained;
    chunk_tokens = chunk_tokens > 0 ? chunk_tokens : DEFAULT_CHUNK_TOKENS;
    sp_packing_init(packing, input->batch, scenario->layout.dp);
    make_rows(input->batch, chunk_tokens, packing);
    sp_status status = sp_slice_rows_every(packing, chunk_tokens, err);
    if (status == SP_OK) {
        sp_i_assign_by_time(packing, input->cost, retained > 0 ? retained : 1);
    } else {
        sp_packing_fini(packing);
    }
    return status;
}
