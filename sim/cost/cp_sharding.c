#include "sim/cost/attention_load.h"

#include "sim/base/alloc.h"
#include "sim/plan/packing.h"

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

// The pieces visited so far, by rank.
typedef struct ranks {
    const sp_op_timer *timer;
    double heads, head_dim;
    double *forward_s, *backward_s; // [cp]; NULL: not asked for
    sp_i_cp_ring *ring;             // NULL: not asked for
} ranks;

static sp_cp_sharding sharding_of(const sp_i_attention *attention, const sp_pack_list *list,
                                  const sp_pack *pack);
static void slowest(const sp_i_attention *attention, const sp_op_timer *timer, sp_cp_sharding way,
                    const sp_pack_list *list, const sp_pack *pack, bool forward, bool backward,
                    sp_i_cp_ring *ring, sp_i_attention_load *load);

void sp_i_cp_slowest_s(const sp_i_attention *attention, const sp_pack_list *list,
                       const sp_pack *pack, bool forward, bool backward, sp_i_attention_load *load)
{
    sp_cp_sharding way = sharding_of(attention, list, pack);
    slowest(attention, attention->timer, way, list, pack, forward, backward, attention->ring, load);
}

// What is tried notes no range as used.
static sp_cp_sharding sharding_of(const sp_i_attention *attention, const sp_pack_list *list,
                                  const sp_pack *pack)
{
    static const sp_cp_sharding ways[] = {SP_SHARD_SEQUENCE, SP_SHARD_DOCUMENT};
    double step_s[2];
    sp_op_timer quiet = *attention->timer;
    quiet.uncalibrated = NULL;
    if (attention->layout->cp_sharding != SP_SHARD_ADAPTIVE) {
        return attention->layout->cp_sharding;
    }
    for (int i = 0; i < 2; i++) {
        sp_i_attention_load load;
        slowest(attention, &quiet, ways[i], list, pack, true, true, NULL, &load);
        step_s[i] = load.forward_s * (attention->recomputes ? 2.0 : 1.0) + load.backward_s;
    }
    return ways[step_s[1] < step_s[0] ? 1 : 0];
}

static void add_piece(void *state, int rank, int64_t tokens, int64_t context)
{
    const ranks *r = state;
    double l = (double)tokens;
    double o = (double)context;
    if (r->forward_s != NULL) {
        r->forward_s[rank] += sp_time_attention_piece(r->timer, false, l, o, r->heads, r->head_dim);
    }
    if (r->backward_s != NULL) {
        r->backward_s[rank] += sp_time_attention_piece(r->timer, true, l, o, r->heads, r->head_dim);
    }
    if (r->ring != NULL) {
        sp_i_cp_ring_add(r->ring, rank, tokens, context);
    }
}

static double most(const double *of, int count)
{
    double most = 0.0;
    for (int i = 0; of != NULL && i < count; i++) {
        most = of[i] > most ? of[i] : most;
    }
    return most;
}

static void slowest(const sp_i_attention *attention, const sp_op_timer *timer, sp_cp_sharding way,
                    const sp_pack_list *list, const sp_pack *pack, bool forward, bool backward,
                    sp_i_cp_ring *ring, sp_i_attention_load *load)
{
    int cp = attention->layout->cp;
    ranks r = {.timer = timer,
               .heads = (double)attention->model->heads / attention->layout->tp,
               .head_dim = (double)attention->model->head_dim,
               .forward_s = forward ? attention->rank_s : NULL,
               .backward_s = backward ? attention->rank_s + cp : NULL,
               .ring = ring};
    SP_ASSERT(attention->rank_s != NULL);
    for (int i = 0; i < 2 * cp; i++) {
        attention->rank_s[i] = 0.0;
    }
    if (ring != NULL) {
        sp_i_cp_ring_clear(ring);
    }
    if (way == SP_SHARD_SEQUENCE) {
        sp_i_cp_by_sequence(list, pack, cp, add_piece, &r);
    } else {
        sp_i_cp_by_document(list, pack, cp, add_piece, &r);
    }
    load->forward_s = most(r.forward_s, cp);
    load->backward_s = most(r.backward_s, cp);
}

static bool is_cut(const sp_layout *layout, const sp_pack *pack)
{
    return pack->slice_count > 0 && (layout->cp > 1 || pack->dp_count > 1);
}

// Each slice stands in one forward pack: as many slices of it are all of it.
static bool is_forward_pack(const sp_pack_list *forward, const sp_pack *pack,
                            const int32_t *forward_pack)
{
    int32_t of = forward_pack[pack->first_slice];
    for (size_t s = 1; s < pack->slice_count; s++) {
        if (forward_pack[pack->first_slice + s] != of) {
            return false;
        }
    }
    return forward->packs[of].slice_count == pack->slice_count;
}

sp_status sp_i_cp_regroup(const sp_layout *layout, const sp_packing *packing, const char *source,
                          int32_t **forward_pack, sp_error *err)
{
    const sp_pack_list *backward = &packing->backward;
    *forward_pack = NULL;
    if (layout->cp_sharding == SP_SHARD_EVEN || layout->cp_sharding == SP_SHARD_DOCUMENT) {
        return SP_OK;
    }
    sp_status status = SP_OK;
    sp_regroup(packing, forward_pack);
    for (size_t k = 0; status == SP_OK && k < backward->count; k++) {
        const sp_pack *pack = &backward->packs[k];
        if (is_cut(layout, pack) && !is_forward_pack(&packing->forward, pack, *forward_pack)) {
            status = sp_error_in(err, SP_ERR_CONTENT, source, "strategy.cp_sharding",
                                 "\"%s\" cuts whole packs over CP ranks, but backward pack %zu "
                                 "regroups slices of forward packs; \"document\" cuts each slice",
                                 sp_cp_sharding_names[layout->cp_sharding], k);
        }
    }
    if (status != SP_OK) {
        sp_free(*forward_pack);
        *forward_pack = NULL;
    }
    return status;
}

sp_i_cp_row sp_i_cp_row_of(const sp_layout *layout, const sp_packing *packing,
                           const int32_t *forward_pack, const sp_pack *pack)
{
    if (forward_pack == NULL || !is_cut(layout, pack)) {
        return (sp_i_cp_row){sp_packing_backward(packing), pack};
    }
    const sp_pack_list *forward = &packing->forward;
    return (sp_i_cp_row){forward, &forward->packs[forward_pack[pack->first_slice]]};
}
