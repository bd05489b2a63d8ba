// The attention of a pack on its context-parallel ranks: its time, how it is shared, and the ring
// in which keys and values go round.
#include "sim/cost/cost_private.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/cost/op_time.h"
#include "sim/plan/packing.h"

#define BYTES_BF16 2.0

// Products (sp_model_pair_features).
enum { FORWARD_PRODUCTS = 2, FLASH_BACKWARD_PRODUCTS = 5, UNFUSED_BACKWARD_PRODUCTS = 4 };

// Where Megatron-LM's fused softmax serves (stack.h).
enum { FUSED_MULTIPLE = 4, FUSED_KEYS = 2048 };

// Equal segments that follow each other: `count` stretches of `length` tokens after `context`.
typedef struct run {
    double length, context, count;
} run;

static const sp_slice *segment_end(const sp_slice *slice, const sp_slice *end, int64_t *tokens);
static void cp_slowest_s(const sp_i_attention *attention, const sp_pack_list *list,
                         const sp_pack *pack, bool forward, bool backward,
                         sp_i_attention_load *load);

// sp_time_attention_slice or sp_time_attention_piece.
typedef double slice_timer(const sp_op_timer *timer, int backward, double l, double o, double w,
                           double heads, double head_dim);

static sp_i_task_bytes task_bytes(const sp_i_attention *attention)
{
    sp_shard shard = sp_shard_of(attention->model, attention->layout);
    return (sp_i_task_bytes){.queries = BYTES_BF16 * (double)shard.q,
                             .results = BYTES_BF16 * (double)shard.context,
                             .keys = BYTES_BF16 * (double)(shard.k + shard.v)};
}

// Of a head, over the products of a pass of flash attention; more where kernels run at a share of
// the rate.
static double mean_features(const sp_op_timer *timer, const sp_model *model, bool backward)
{
    int products = backward ? FLASH_BACKWARD_PRODUCTS : FORWARD_PRODUCTS;
    double mean = (double)sp_model_pair_features(model, products) / products;
    const sp_profile *profile = timer->profile;
    const sp_attention_shares *shares = sp_model_is_latent(model)  ? &profile->latent
                                        : profile->flash_2.is_used ? &profile->flash_2
                                                                   : NULL;
    double share = shares == NULL ? 0.0 : backward ? shares->backward_share : shares->forward_share;
    return share > 0.0 ? mean / share : mean;
}

// Queries [context, context + length) of chunks that run like samples of their own, at most as long
// as all of them with a mask.
static double chunks_s(const sp_op_timer *timer, double chunk, slice_timer *time, bool backward,
                       double length, double context, double heads, double head_dim)
{
    const double all = HUGE_VAL;
    if (context + length <= chunk) {
        return time(timer, backward, length, context, all, heads, head_dim);
    }
    double inside = fmod(context, chunk);
    double first = fmin(chunk - inside, length);
    double last = fmod(length - first, chunk);
    double whole = (length - first - last) / chunk;
    double sum_s = time(timer, backward, first, inside, all, heads, head_dim) +
                   time(timer, backward, last, 0.0, all, heads, head_dim);
    if (whole > 0.0) {
        sum_s += whole * time(timer, backward, chunk, 0.0, all, heads, head_dim);
    }
    sp_op_timer quiet = *timer;
    quiet.uncalibrated = NULL;
    return fmin(sum_s, time(&quiet, backward, length, context, all, heads, head_dim));
}

// Queries of a layer that sees all tokens, a window or a chunk.
static double seen_s(const sp_op_timer *timer, const sp_model *model, slice_timer *time,
                     bool backward, double length, double context, double heads)
{
    double head_dim = mean_features(timer, model, backward);
    double window = model->window_tokens > 0 ? (double)model->window_tokens : HUGE_VAL;
    return model->window_tokens <= 0 && model->chunk_tokens > 0
               ? chunks_s(timer, (double)model->chunk_tokens, time, backward, length, context,
                          heads, head_dim)
               : time(timer, backward, length, context, window, heads, head_dim);
}

static double slice_s(const sp_i_attention *attention, bool backward, const run *r)
{
    return seen_s(attention->timer, attention->model, sp_time_attention_slice, backward, r->length,
                  r->context, (double)attention->model->heads / attention->layout->tp);
}

static const double *remembered_s(const sp_i_attention *attention, bool backward, const run *r)
{
    uint64_t hash =
        ((uint64_t)r->length * 0x9E3779B97F4A7C15u) ^ ((uint64_t)r->context * 0xC2B2AE3D27D4EB4Fu);
    sp_i_attention_memo *memo = &attention->memo[(hash >> 40) % SP_I_ATTENTION_MEMOS];
    if (memo->length < r->length || memo->length > r->length || memo->context < r->context ||
        memo->context > r->context) {
        *memo = (sp_i_attention_memo){r->length, r->context, {-1.0, -1.0}};
    }
    if (memo->time_s[backward] < 0.0) {
        memo->time_s[backward] = slice_s(attention, backward, r);
    }
    return &memo->time_s[backward];
}

// Of all keys: what a query does not see is masked.
static double unfused_s(const sp_i_attention *attention, bool backward, const run *r)
{
    double batch = r->count * (double)attention->model->heads / attention->layout->tp;
    double qk = (double)attention->model->head_dim;
    double v = (double)sp_model_v_dim(attention->model);
    double l = r->length;
    double keys = r->context + r->length;
    double of_scores = backward ? v : qk; // dP = dO V^T, S = Q K^T
    double of_rows = backward ? qk : v;   // dQ = dS K, O = P V
    double scores_s = sp_time_batched_gemm(attention->timer, batch, l, keys, of_scores, of_scores);
    double rows_s = sp_time_batched_gemm(attention->timer, batch, l, of_rows, keys, of_rows);
    if (!backward) {
        return scores_s + rows_s;
    }
    double keys_s = sp_time_batched_gemm(attention->timer, batch, keys, qk, l, qk);
    double values_s = sp_time_batched_gemm(attention->timer, batch, keys, v, l, v);
    return scores_s + rows_s + (keys_s + values_s);
}

static bool is_sliced(const sp_i_attention *attention)
{
    return attention->layout->cp > 1 && attention->memory->stack.cp_overlap == SP_CP_SLICES;
}

// The blocks that all 2*cp runs of a slice see before them where a query does not see all: a block
// of which a run's first query sees a part runs whole.
static double blocks_seen(const sp_model *model, double l, double context, double cp)
{
    double blocks = 0.0;
    for (double begin = context; begin < context + (2.0 * cp - 0.5) * l; begin += l) {
        double before = model->window_tokens > 0 ? fmin(begin, (double)model->window_tokens - 1.0)
                                                 : fmod(begin, (double)model->chunk_tokens);
        blocks += ceil(before / l);
    }
    return blocks;
}

// All ranks together. Of the 2*cp runs of a slice the i-th sees i runs before it and itself; a
// rank's two, i and 2*cp-1-i, see 2*cp-1, and each sees all runs of the context. Every run with
// itself is a call as well, and takes no less than the shortest block.
static double sliced_s(const sp_i_attention *attention, bool backward, const run *r)
{
    double cp = attention->layout->cp;
    double heads = (double)attention->model->heads / attention->layout->tp;
    double head_dim = mean_features(attention->timer, attention->model, backward);
    double l = r->length / (2.0 * cp);
    double seen = 2.0 * cp - 1.0 + 2.0 * r->context / l;
    const run own = {.length = l, .count = 1.0};
    int64_t most = sp_model_least_seen(attention->model);
    if (most > 0 && r->context + r->length > (double)most) {
        seen = blocks_seen(attention->model, l, r->context, cp) / cp;
    }
    double own_s = slice_s(attention, backward, &own);
    double seen_s = sp_time_attention_block(attention->timer, backward, l, l, heads, head_dim);
    double one = fmin(l, 1.0);
    double least_s = sp_time_attention_block(attention->timer, backward, one, one, heads, head_dim);
    return cp * (2.0 * fmax(own_s, least_s) + seen * seen_s);
}

static double run_s(const sp_i_attention *attention, bool backward, const run *r)
{
    if (attention->memory->attention == SP_ATTENTION_UNFUSED) {
        return unfused_s(attention, backward, r);
    }
    if (is_sliced(attention)) {
        return r->count * sliced_s(attention, backward, r);
    }
    return r->count * (attention->memo != NULL ? *remembered_s(attention, backward, r)
                                               : slice_s(attention, backward, r));
}

// The rank with the longest attention sets the pace.
static void place_blocks(const sp_i_attention *attention, const sp_pack_list *list,
                         const sp_pack *pack, bool forward, bool backward,
                         sp_i_attention_load *load)
{
    sp_i_blocks *blocks = attention->blocks;
    int ranks = attention->layout->cp;
    double *rank_s = sp_calloc(2 * (size_t)ranks, sizeof *rank_s);
    const sp_stack *stack = &attention->memory->stack;
    int64_t block_tokens = sp_stack_block_tokens(stack);
    sp_i_task_bytes bytes = task_bytes(attention);
    if (stack->cp_overlap == SP_CP_TASKS) {
        sp_i_tasks_place(list, pack, block_tokens, ranks, attention->node_ranks, &bytes, blocks);
    } else {
        sp_i_blocks_place(list, pack, block_tokens, ranks, attention->node_ranks, blocks);
    }
    for (size_t i = 0; i < blocks->count; i++) {
        const sp_i_block_of *b = &blocks->block[i];
        const run r = {.length = (double)b->tokens, .context = (double)b->context, .count = 1.0};
        rank_s[b->rank] += forward ? run_s(attention, false, &r) : 0.0;
        rank_s[ranks + b->rank] += backward ? run_s(attention, true, &r) : 0.0;
    }
    load->forward_s = load->backward_s = 0.0;
    for (int r = 0; r < ranks; r++) {
        load->forward_s = fmax(load->forward_s, rank_s[r]);
        load->backward_s = fmax(load->backward_s, rank_s[ranks + r]);
    }
    if (stack->cp_overlap == SP_CP_TASKS) {
        sp_i_tasks_moved(blocks, &bytes, false, load->task_bytes[0]);
        sp_i_tasks_moved(blocks, &bytes, true, load->task_bytes[1]);
    } else {
        sp_i_blocks_rounds(blocks, load->rounds);
        sp_i_blocks_moved(blocks, load->moved_tokens);
    }
    sp_free(rank_s);
}

// Traffic per score over what the kernels' own count says.
static double score_weight(const sp_score_model *scores, double keys)
{
    if (!(scores->factor > 0.0)) {
        return 1.0;
    }
    double held = fmin(fmax(keys, 1.0), scores->to_keys);
    return scores->factor * pow(held / scores->from_keys, scores->growth);
}

static bool is_softmax_unfused(const sp_i_attention *attention, const run *r)
{
    if (attention->memory->attention != SP_ATTENTION_UNFUSED) {
        return false;
    }
    double matrices = r->count * (double)attention->model->heads / attention->layout->tp;
    bool beyond = fmod(matrices, FUSED_MULTIPLE) != 0.0 || r->context + r->length > FUSED_KEYS;
    const sp_stack *stack = &attention->memory->stack;
    return stack->unfused_softmax || (stack->fused_softmax_limited && beyond);
}

static void add_run(const sp_i_attention *attention, const run *r, bool forward, bool backward,
                    sp_i_attention_load *load)
{
    if (!(r->length > 0.0)) {
        return;
    }
    double keys = r->context + r->length;
    double pairs =
        r->count * r->length * keys * score_weight(&attention->timer->profile->scores, keys);
    bool unfused = is_softmax_unfused(attention, r);
    load->forward_s += forward ? run_s(attention, false, r) : 0.0;
    load->backward_s += backward ? run_s(attention, true, r) : 0.0;
    load->keys += r->count * keys;
    load->exchanges += r->count * (1.0 + ceil(r->context / r->length));
    load->pairs += pairs;
    load->unfused_pairs += unfused ? pairs : 0.0;
    load->calls += 1.0;
    load->unfused_calls += unfused ? 1.0 : 0.0;
}

sp_i_attention_load sp_i_attention_load_of(const sp_i_attention *attention,
                                           const sp_pack_list *list, const sp_pack *pack,
                                           bool forward, bool backward)
{
    sp_i_attention_load load = {0};
    bool even = attention->rank_s == NULL && attention->blocks == NULL;
    if (pack->slice_count == 0) {
        return load;
    }
    const sp_slice *slice = &list->slices[pack->first_slice];
    const sp_slice *end = slice + pack->slice_count;
    run pending = {0};
    while (slice < end) {
        double context = (double)slice->begin;
        int64_t length = slice->computed_tokens;
        slice = is_sliced(attention) ? slice + 1 : segment_end(slice, end, &length);
        if ((double)length != pending.length || context != pending.context) {
            add_run(attention, &pending, forward && even, backward && even, &load);
            pending = (run){.length = (double)length, .context = context};
        }
        pending.count += 1.0;
    }
    add_run(attention, &pending, forward && even, backward && even, &load);
    load.forward_s /= attention->layout->cp;
    load.backward_s /= attention->layout->cp;
    if (attention->rank_s != NULL) {
        cp_slowest_s(attention, list, pack, forward, backward, &load);
    }
    if (attention->blocks != NULL) {
        place_blocks(attention, list, pack, forward, backward, &load);
    }
    load.pairs /= attention->layout->cp;
    load.unfused_pairs /= attention->layout->cp;
    return load;
}

static bool is_gathered(const sp_i_attention *attention)
{
    return attention->layout->cp > 1 && attention->memory->stack.cp_overlap == SP_CP_GATHERED;
}

double sp_i_cp_exchange_s(const sp_i_attention *attention, sp_group cp,
                          const sp_i_attention_load *load, double bytes, bool gradients)
{
    bool by_slices = is_sliced(attention) || is_gathered(attention);
    int64_t nics = attention->memory->stack.cp_ring_nics;
    if (attention->memory->stack.cp_overlap == SP_CP_TASKS) {
        return sp_i_blocks_reshuffle_s(attention->timer, load->task_bytes[gradients], 1.0);
    }
    if (attention->blocks != NULL) {
        double token_bytes = load->keys > 0.0 ? bytes / load->keys : 0.0;
        return sp_i_blocks_exchange_s(attention->timer, load->rounds,
                                      token_bytes *
                                          (double)sp_stack_block_tokens(&attention->memory->stack));
    }
    if (sp_stack_passes_keys(&attention->memory->stack, attention->layout)) {
        return nics > 0 && cp.nodes > 1
                   ? sp_time_ring(attention->timer, cp, bytes, nics)
                   : sp_i_time_by_profile(attention->timer, SP_ALL_GATHER, cp, bytes);
    }
    if (!by_slices || !(load->exchanges > 0.0)) {
        return sp_time_collective(attention->timer, SP_ALL_GATHER, cp, bytes);
    }
    double each = bytes / load->exchanges / (gradients ? 2.0 : 1.0);
    double each_s = sp_time_collective(attention->timer, SP_ALL_GATHER, cp, each);
    if (gradients) {
        double number = is_gathered(attention) ? 2.0 : 1.0; // fp32 or bf16
        each_s += sp_time_collective(attention->timer, SP_REDUCE_SCATTER, cp, number * each);
    }
    return load->exchanges * each_s;
}

// Where the slowest rank's attention takes attention_s, as many times what was found of one layer.
static double exposed_ring_s(const sp_i_attention *attention, double cp_s, double attention_s,
                             bool backward)
{
    int cp = attention->layout->cp;
    const double *rank_s = attention->rank_s + (backward ? cp : 0);
    double most_s = 0.0;
    for (int r = 0; r < cp; r++) {
        most_s = fmax(most_s, rank_s[r]);
    }
    if (!(most_s > 0.0)) {
        return cp_s;
    }
    double layers = attention_s / most_s;
    double transfer_s = cp_s / layers / (cp - 1);
    return fmax(0.0, layers * sp_i_cp_ring_s(attention->ring, rank_s, transfer_s) - attention_s);
}

double sp_i_exposed_cp_s(const sp_i_attention *attention, const sp_i_attention_load *load,
                         double cp_s, double attention_s, double qkv_s, bool backward)
{
    double blocks =
        attention->layout->cp / sp_stack_head_ranks(&attention->memory->stack, attention->layout);
    switch (attention->memory->stack.cp_overlap) {
    case SP_CP_ATTENTION:
    case SP_CP_A2A:     // nothing hides where all exchange heads
    case SP_CP_A2A_P2P: // whose steps nobody follows
        if (attention->ring != NULL && attention_s > 0.0) {
            return exposed_ring_s(attention, cp_s, attention_s, backward);
        }
        return fmax(0.0, cp_s - attention_s * (blocks - 1.0) / blocks);
    case SP_CP_BLOCKS: {
        // What a rank holds runs before any launch is in, and what the last one brings behind it.
        double launches = sp_i_blocks_launches(load->rounds);
        return fmax(0.0, cp_s - attention_s * launches / (launches + 1.0));
    }
    case SP_CP_TASKS:
        return fmax(0.0, cp_s - attention_s - qkv_s);
    case SP_CP_QKV:
        return attention->model->kv_heads == attention->model->heads ? fmax(0.0, cp_s - qkv_s)
                                                                     : cp_s;
    case SP_CP_BLOCKING:
    case SP_CP_SLICES:
    case SP_CP_GATHERED:
        return cp_s;
    }
    SP_UNREACHABLE("a CP overlap");
}

// Packs of merged ranks run in blocks as well, so this does not ask for the CP size.
static double most_of_blocks(const sp_i_attention *attention, const sp_curve *curve)
{
    bool used = attention->memory->stack.cp_overlap == SP_CP_SLICES && curve->points > 0;
    return used ? sp_i_curve_most(curve) : 0.0;
}

void sp_i_attention_least_s(const sp_i_attention *attention, double least_s[2])
{
    static const double flops[2] = {SP_I_FORWARD_FLOPS_PER_PAIR, SP_I_BACKWARD_FLOPS_PER_PAIR};
    static const int unfused_products[2] = {FORWARD_PRODUCTS, UNFUSED_BACKWARD_PRODUCTS};
    const sp_model *model = attention->model;
    const sp_profile *profile = attention->timer->profile;
    double half = 0.5 * (double)attention->model->heads / attention->layout->tp;
    for (int backward = 0; backward < 2; backward++) {
        const sp_curve *curves = profile->attention[backward];
        least_s[backward] = flops[backward] * half *
                            mean_features(attention->timer, model, backward) /
                            fmax(sp_i_curve_most(&curves[SP_PAIRS_CAUSAL]),
                                 most_of_blocks(attention, &curves[SP_PAIRS_BLOCK]));
        if (attention->memory->attention == SP_ATTENTION_UNFUSED) {
            least_s[backward] = 2.0 * half / sp_gemm_most_rate(profile) *
                                (double)sp_model_pair_features(model, unfused_products[backward]);
        }
    }
}

// ---- shares of context-parallel ranks ----

// Chunk k of 2*cp goes to rank k, or back from the last.
static int rank_of(int64_t chunk, int cp)
{
    int64_t mirrored = 2 * (int64_t)cp - 1 - chunk;
    return (int)(chunk < mirrored ? chunk : mirrored);
}

// The slices from `slice` on, before `end`, that follow each other in one sample: returns the first
// that does not, and the tokens computed of those that do.
static const sp_slice *segment_end(const sp_slice *slice, const sp_slice *end, int64_t *tokens)
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
        slice = segment_end(slice, end, &left);
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
    const sp_model *model;
    double heads;
    double *forward_s, *backward_s; // [cp]; NULL: not asked for
    sp_i_cp_ring *ring;             // NULL: not asked for
} ranks;

static void add_piece(void *state, int rank, int64_t tokens, int64_t context)
{
    const ranks *r = state;
    double l = (double)tokens;
    double o = (double)context;
    if (r->forward_s != NULL) {
        r->forward_s[rank] +=
            seen_s(r->timer, r->model, sp_time_attention_piece, false, l, o, r->heads);
    }
    if (r->backward_s != NULL) {
        r->backward_s[rank] +=
            seen_s(r->timer, r->model, sp_time_attention_piece, true, l, o, r->heads);
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

// Neighbours that exchange heads have the tokens of all of them, each with its share of the heads.
static void level_neighbours(double *of, int count, int neighbours)
{
    for (int i = 0; of != NULL && i < count; i += neighbours) {
        double mean = 0.0;
        for (int n = i; n < i + neighbours; n++) {
            mean += of[n] / neighbours;
        }
        for (int n = i; n < i + neighbours; n++) {
            of[n] = mean;
        }
    }
}

static void slowest(const sp_i_attention *attention, const sp_op_timer *timer, sp_cp_sharding way,
                    const sp_pack_list *list, const sp_pack *pack, bool forward, bool backward,
                    sp_i_cp_ring *ring, sp_i_attention_load *load)
{
    int cp = attention->layout->cp;
    int neighbours = sp_stack_head_ranks(&attention->memory->stack, attention->layout);
    ranks r = {.timer = timer,
               .model = attention->model,
               .heads = (double)attention->model->heads / attention->layout->tp,
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
    level_neighbours(r.forward_s, cp, neighbours);
    level_neighbours(r.backward_s, cp, neighbours);
    load->forward_s = most(r.forward_s, cp);
    load->backward_s = most(r.backward_s, cp);
}

// A trial notes no range as used.
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
    sp_model whole = *attention->model;
    sp_i_attention trial = *attention;
    if (attention->is_mixed) {
        whole.window_tokens = whole.chunk_tokens = 0;
        trial.model = &whole;
    }
    for (int i = 0; i < 2; i++) {
        sp_i_attention_load load;
        slowest(&trial, &quiet, ways[i], list, pack, true, true, NULL, &load);
        step_s[i] = load.forward_s * (attention->recomputes ? 2.0 : 1.0) + load.backward_s;
    }
    return ways[step_s[1] < step_s[0] ? 1 : 0];
}

// Attention time of the CP rank that takes longest over a pack, by the way its tokens are cut.
// Fills forward_s and backward_s, those that are asked for, of one layer: every layer gathers keys
// and values anew, so that the ranks wait for the slowest of each pass. The layout must shard in
// another way than evenly and have several CP ranks. Adaptive takes the way whose passes of the
// whole step, forward (again where it is recomputed) and backward, are the shorter together, the
// sequence where they are alike: the forward and the backward of a pack agree on it, and so do its
// layers, by attention to all tokens where they see different ones. O(slices * cp).
static void cp_slowest_s(const sp_i_attention *attention, const sp_pack_list *list,
                         const sp_pack *pack, bool forward, bool backward,
                         sp_i_attention_load *load)
{
    sp_cp_sharding way = sharding_of(attention, list, pack);
    slowest(attention, attention->timer, way, list, pack, forward, backward, attention->ring, load);
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

// ---- the ring, step by step ----

// Tokens of the sample that is visited, and who holds their keys.
typedef struct piece {
    int64_t begin, end;
    int rank;
} piece;

struct sp_i_cp_ring {
    int cp;
    double *pairs;                     // [rank * cp + step]
    double *sums;                      // [rank]
    double *start_s, *there_s, *end_s; // [cp]: of the step that is run
    piece *pieces;
    int count, most;
};

sp_i_cp_ring *sp_i_cp_ring_new(int cp)
{
    size_t n = (size_t)cp;
    sp_i_cp_ring *ring = sp_calloc(1, sizeof *ring);
    double *table = sp_calloc(n * (n + 4), sizeof *table);
    piece *pieces = sp_calloc(4 * n, sizeof *pieces);
    *ring = (sp_i_cp_ring){.cp = cp,
                           .pairs = table,
                           .sums = table + n * n,
                           .start_s = table + n * (n + 1),
                           .there_s = table + n * (n + 2),
                           .end_s = table + n * (n + 3),
                           .pieces = pieces,
                           .most = 4 * cp};
    return ring;
}

void sp_i_cp_ring_free(sp_i_cp_ring *ring)
{
    if (ring != NULL) {
        sp_free(ring->pairs);
        sp_free(ring->pieces);
        sp_free(ring);
    }
}

void sp_i_cp_ring_clear(sp_i_cp_ring *ring)
{
    ring->count = 0;
    for (int i = 0; i < ring->cp * (ring->cp + 1); i++) {
        ring->pairs[i] = 0.0; // and sums
    }
}

// At step s a rank has the keys of the one s places before it.
static void add_pairs(sp_i_cp_ring *ring, int rank, int keys_of, double pairs)
{
    int step = (rank - keys_of + ring->cp) % ring->cp;
    ring->pairs[rank * ring->cp + step] += pairs;
    ring->sums[rank] += pairs;
}

void sp_i_cp_ring_add(sp_i_cp_ring *ring, int rank, int64_t tokens, int64_t context)
{
    double l = (double)tokens;
    bool follows =
        ring->count > 0 && ring->count < ring->most && ring->pieces[ring->count - 1].end == context;
    ring->count = follows ? ring->count : 0;
    for (int i = 0; i < ring->count; i++) {
        const piece *p = &ring->pieces[i];
        add_pairs(ring, rank, p->rank, l * (double)(p->end - p->begin));
    }
    int64_t unknown = follows ? ring->pieces[0].begin : context;
    for (int k = 0; k < ring->cp; k++) {
        add_pairs(ring, rank, k, l * (double)unknown / ring->cp);
    }
    add_pairs(ring, rank, rank, 0.5 * l * l);
    ring->pieces[ring->count++] = (piece){context, context + tokens, rank};
}

double sp_i_cp_ring_pairs(const sp_i_cp_ring *ring, int rank, int step)
{
    return ring->pairs[rank * ring->cp + step];
}

static double step_s(const sp_i_cp_ring *ring, const double *rank_s, int rank, int step)
{
    double sum = ring->sums[rank];
    return sum > 0.0 ? rank_s[rank] * ring->pairs[rank * ring->cp + step] / sum : 0.0;
}

// A rank hands a block on as soon as it begins to work on it, one block after another, and works on
// the next one when that is there and its work on this one is done.
double sp_i_cp_ring_s(sp_i_cp_ring *ring, const double *rank_s, double transfer_s)
{
    int cp = ring->cp;
    double last_s = 0.0;
    for (int r = 0; r < cp; r++) {
        ring->start_s[r] = ring->there_s[r] = 0.0;
        ring->end_s[r] = step_s(ring, rank_s, r, 0);
    }
    for (int s = 1; s < cp; s++) {
        for (int r = 0; r < cp; r++) {
            double sent_s = ring->start_s[(r + cp - 1) % cp];
            ring->there_s[r] = fmax(sent_s, ring->there_s[r]) + transfer_s;
        }
        for (int r = 0; r < cp; r++) {
            ring->start_s[r] = fmax(ring->end_s[r], ring->there_s[r]);
            ring->end_s[r] = ring->start_s[r] + step_s(ring, rank_s, r, s);
        }
    }
    for (int r = 0; r < cp; r++) {
        last_s = fmax(last_s, ring->end_s[r]);
    }
    return last_s;
}
