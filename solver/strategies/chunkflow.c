// ChunkFlow (Yuan et al., arXiv 2503.02356, section 4): a sample longer than ChunkSize is cut into
// chunks of that length (dependent chunks), what is left as the last one; the other samples are
// packed into as few chunks as first-fit decreasing needs (standalone chunks). A micro-batch is a
// standalone chunk, or all chunks of a long sample. The paper does not say how micro-batches get to
// data-parallel ranks; here they are dealt by their time, with what is recomputed.
#include "sim/base/alloc.h"
#include "solver/rows.h"
#include "solver/slicing.h"
#include "solver/strategies/karmarkar_karp.h"
#include "solver/strategy_list.h"

// The best chunks of the paper's runs have 2K to 8K tokens.
enum { DEFAULT_CHUNK_TOKENS = 8192 };

// The samples of at most a chunk, as a batch of their own.
typedef struct shorts {
    sp_batch batch;
    int32_t *sample; // [batch.count]: in the whole batch
} shorts;

static bool add_row(sp_packing *packing, const int32_t *samples, size_t count)
{
    bool ok = sp_pack_list_begin(&packing->forward, 0, 1);
    for (size_t i = 0; ok && i < count; i++) {
        int64_t tokens = packing->batch->tokens[samples[i]];
        sp_slice slice = {.sample = samples[i], .tokens = tokens, .computed_tokens = tokens};
        ok = sp_pack_list_add(&packing->forward, slice, true);
    }
    return ok;
}

// Long samples become rows, longest first, so that their many chunks do not end the step.
static sp_status split_batch(const sp_batch *batch, int64_t chunk_tokens, sp_packing *packing,
                             shorts *rest, sp_error *err)
{
    int32_t *order = NULL;
    sp_status status = sp_i_order_descending(batch, &order, err);
    if (status != SP_OK) {
        return status;
    }
    size_t longs = 0;
    while (longs < batch->count && batch->tokens[order[longs]] > chunk_tokens) {
        longs++;
    }
    bool ok = true;
    for (size_t i = 0; ok && i < longs; i++) {
        ok = add_row(packing, &order[i], 1);
    }
    rest->batch.count = batch->count - longs;
    rest->batch.tokens = sp_i_calloc(rest->batch.count, sizeof *rest->batch.tokens);
    rest->sample = sp_i_calloc(rest->batch.count, sizeof *rest->sample);
    ok = ok && rest->batch.tokens != NULL && rest->sample != NULL;
    for (size_t i = 0; ok && i < rest->batch.count; i++) {
        rest->sample[i] = order[longs + i];
        rest->batch.tokens[i] = batch->tokens[rest->sample[i]];
    }
    sp_i_free(order);
    return ok ? SP_OK : sp_error_no_memory(err, "chunks");
}

static sp_status pack_shorts(const sp_strategy_input *input, const shorts *rest,
                             int64_t chunk_tokens, sp_packing *packing, sp_error *err)
{
    sp_strategy_input only = *input;
    only.batch = &rest->batch;
    only.context = chunk_tokens;
    sp_i_rows rows;
    sp_status status = sp_i_rows_init(&rows, &rest->batch, err);
    if (status != SP_OK) {
        return status;
    }
    status = rest->batch.count > 0 ? sp_i_rows_first_fit(&rows, &only, err) : SP_OK;
    for (size_t i = 0; status == SP_OK && rows.count > 0 && i < rest->batch.count; i++) {
        rows.sample[i] = rest->sample[rows.sample[i]];
    }
    for (size_t r = 0; status == SP_OK && r < rows.count; r++) {
        size_t first = rows.first[r];
        if (!add_row(packing, &rows.sample[first], rows.first[r + 1] - first)) {
            status = sp_error_no_memory(err, "chunks");
        }
    }
    sp_i_rows_fini(&rows);
    return status;
}

sp_status sp_i_pack_chunkflow(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    const sp_scenario *scenario = input->scenario;
    int64_t chunk_tokens = scenario->strategy.chunk_tokens;
    int retained = scenario->schedule.retained;
    shorts rest = {0};
    chunk_tokens = chunk_tokens > 0 ? chunk_tokens : DEFAULT_CHUNK_TOKENS;
    sp_packing_init(packing, input->batch, scenario->layout.dp);
    sp_status status = split_batch(input->batch, chunk_tokens, packing, &rest, err);
    if (status == SP_OK) {
        status = pack_shorts(input, &rest, chunk_tokens, packing, err);
    }
    if (status == SP_OK) {
        status = sp_slice_rows_every(packing, chunk_tokens, err);
    }
    if (status == SP_OK) {
        status = sp_i_assign_by_time(packing, input->cost, retained > 0 ? retained : 1, err);
    }
    if (status != SP_OK) {
        sp_packing_fini(packing);
    }
    sp_batch_fini(&rest.batch);
    sp_i_free(rest.sample);
    return status;
}
