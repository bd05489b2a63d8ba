#include "sim/cost/cp_sharding.h"

// Chunk k of 2*cp goes to rank k, or back from the last.
static int rank_of(int64_t chunk, int cp)
{
    int64_t mirrored = 2 * (int64_t)cp - 1 - chunk;
    return (int)(chunk < mirrored ? chunk : mirrored);
}

const sp_slice *sp_i_segment_end(const sp_slice *slice, const sp_slice *end, int64_t *tokens)
{
    const sp_slice *next = slice + 1;
    *tokens = slice->computed_tokens;
    while (next < end && next->sample == slice->sample && next->begin == slice->begin + *tokens) {
        *tokens += next->computed_tokens;
        next++;
    }
    return next;
}

// A product of row and chunk could pass 63 bits; this does not.
static int64_t chunk_tokens(int64_t row, int64_t chunks, int64_t chunk)
{
    return row / chunks + (chunk < row % chunks ? 1 : 0);
}

void sp_i_cp_by_sequence(const sp_pack_list *list, const sp_pack *pack, int cp,
                         sp_i_cp_visit *visit, void *state)
{
    const sp_slice *slice = list->slices + pack->first_slice;
    const sp_slice *end = slice + pack->slice_count;
    int64_t chunks = 2 * (int64_t)cp;
    int64_t chunk = 0;
    int64_t room = chunk_tokens(pack->computed, chunks, chunk);
    while (slice < end) {
        int64_t context = slice->begin;
        int64_t left;
        slice = sp_i_segment_end(slice, end, &left);
        while (left > 0) {
            while (room == 0) {
                room = chunk_tokens(pack->computed, chunks, ++chunk);
            }
            int64_t tokens = left < room ? left : room;
            visit(state, rank_of(chunk, cp), tokens, context);
            context += tokens;
            left -= tokens;
            room -= tokens;
        }
    }
}

void sp_i_cp_by_document(const sp_pack_list *list, const sp_pack *pack, int cp,
                         sp_i_cp_visit *visit, void *state)
{
    int64_t chunks = 2 * (int64_t)cp;
    int next_rank = 0;
    for (size_t s = 0; s < pack->slice_count; s++) {
        const sp_slice *slice = &list->slices[pack->first_slice + s];
        int64_t tokens = slice->computed_tokens / chunks;
        int64_t context = slice->begin;
        for (int64_t chunk = 0; tokens > 0 && chunk < chunks; chunk++) {
            visit(state, rank_of(chunk, cp), tokens, context);
            context += tokens;
        }
        for (int64_t left = slice->computed_tokens % chunks; left > 0; left--) {
            visit(state, next_rank, 1, context++);
            next_rank = next_rank + 1 < cp ? next_rank + 1 : 0;
        }
    }
}
