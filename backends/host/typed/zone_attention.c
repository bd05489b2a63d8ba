// Attention of slices that have a zone (sim/plan/packing.h): the ranks of the zone have zig-zag
// shares of its queries, all of a pack have shares of everything else. Queries are sent into the
// zone, and keys and values of the sample so far to each of its ranks; what comes of them is sent
// back. Messages go from rank to rank, each kind in an order that sender and receiver know, so that
// sums are the same bits every time.
#include "backends/host/typed/zone_attention.h"

#include <string.h>

#include "backends/ranks/comm.h"
#include "kernels/typed.h"
#include "sim/base/alloc.h"

// The ring of shared packs has the first two (attention.c).
enum { TAG_QUERIES = 3, TAG_KEYS, TAG_KEY_GRADIENTS, TAG_RESULTS };

// A slice at work on one rank.
typedef struct zone {
    const layer *l;
    const sp_kernel_attention_shape *shape;
    const zone_pass *pass;
    int32_t i; // of the pack's slices
    const sp_i_exec_slice *slice;
    int group, me; // the pack's ranks, and which of them this one is
    int64_t q, kv, heads;
    int64_t columns; // of a row of queries as it is sent
    sp_arena memory;
    // At a rank of the zone, rows of its share of the queries. `sent`: as they came.
    int64_t rows;
    real *sent, *out, *max, *sum, *dq, *tiles;
} zone;

static bool in_zone(const zone *z, int member)
{
    return member >= z->slice->zone_shard && member < z->slice->zone_shard + z->slice->zone_shards;
}

// The queries of a rank of the zone: positions in two runs, of which either may be empty.
static void share_of(const zone *z, int member, sp_token_run runs[SP_ZIGZAG_RUNS])
{
    const sp_i_exec_slice *slice = z->slice;
    runs[0] = (sp_token_run){0, slice->computed};
    runs[1] = (sp_token_run){slice->computed, 0};
    if (slice->zone_shards > 1) {
        sp_zigzag_runs(slice->computed, slice->zone_shards, member - slice->zone_shard, runs);
    }
    runs[0].begin += slice->begin;
    runs[1].begin += slice->begin;
}

static sp_token_run overlap(sp_token_run a, sp_token_run b)
{
    int64_t begin = a.begin > b.begin ? a.begin : b.begin;
    int64_t a_end = a.begin + a.tokens;
    int64_t b_end = b.begin + b.tokens;
    int64_t end = a_end < b_end ? a_end : b_end;
    return (sp_token_run){begin, end > begin ? end - begin : 0};
}

// Rows that `owner` sends of its queries to a rank of the zone.
static int64_t common_rows(const zone *z, int owner, int member)
{
    sp_token_run own[SP_ZIGZAG_RUNS];
    sp_token_run share[SP_ZIGZAG_RUNS];
    int runs = sp_i_exec_shard_runs(z->slice, owner, own);
    int64_t rows = 0;
    share_of(z, member, share);
    for (int r = 0; r < runs; r++) {
        rows += overlap(own[r], share[0]).tokens + overlap(own[r], share[1]).tokens;
    }
    return rows;
}

static bool send(const zone *z, int to, int tag, const real *data, int64_t count)
{
    sp_i_exec_links *links = z->l->stage->links;
    if (count > 0) {
        int rank = sp_comm_group_rank(sp_comm_world_of(links->me), z->group, to);
        links->status =
            sp_comm_send(links->me, rank, tag, data, (size_t)count * sizeof *data, &links->err);
    }
    return links->status == SP_OK;
}

static bool receive(const zone *z, int from, int tag, real *data, int64_t count)
{
    sp_i_exec_links *links = z->l->stage->links;
    if (count > 0) {
        int rank = sp_comm_group_rank(sp_comm_world_of(links->me), z->group, from);
        links->status =
            sp_comm_receive(links->me, rank, tag, data, (size_t)count * sizeof *data, &links->err);
    }
    return links->status == SP_OK;
}

// ---- rows of queries: at their owner in the pack, at a rank of the zone in its share ----

// Called for rows that follow each other: the first one's place in the pack and in a message.
typedef void visit_rows(zone *z, int64_t row, int64_t at, int64_t rows, real *message);

// This rank's rows of the slice that are a zone rank's, in the order of their positions.
static void for_own_rows(zone *z, int member, real *message, visit_rows *take)
{
    const sp_i_exec_pack *pack = z->l->pack;
    sp_token_run share[SP_ZIGZAG_RUNS];
    int64_t at = 0;
    share_of(z, member, share);
    for (size_t p = pack->first_piece[z->i]; p < pack->first_piece[z->i + 1]; p++) {
        const sp_i_exec_piece *piece = &pack->piece[p];
        for (int s = 0; s < SP_ZIGZAG_RUNS; s++) {
            sp_token_run both = overlap((sp_token_run){piece->begin, piece->rows}, share[s]);
            take(z, piece->row + both.begin - piece->begin, at, both.tokens, message);
            at += both.tokens;
        }
    }
}

// The rows of this zone rank's share that are an owner's, as the owner has them in its message.
static void for_shared_rows(zone *z, int owner, real *message, visit_rows *take)
{
    sp_token_run own[SP_ZIGZAG_RUNS];
    sp_token_run share[SP_ZIGZAG_RUNS];
    int runs = sp_i_exec_shard_runs(z->slice, owner, own);
    int64_t at = 0;
    share_of(z, z->me, share);
    for (int r = 0; r < runs; r++) {
        for (int s = 0; s < SP_ZIGZAG_RUNS; s++) {
            sp_token_run both = overlap(own[r], share[s]);
            int64_t row = both.begin - share[s].begin + (s == 1 ? share[0].tokens : 0);
            take(z, row, at, both.tokens, message);
            at += both.tokens;
        }
    }
}

static void copy(real *to, const real *from, int64_t count)
{
    memcpy(to, from, (size_t)count * sizeof *to);
}

// A row is [queries], backward [queries, gradient of the output, lse, delta].
static void write_queries(zone *z, int64_t row, int64_t at, int64_t rows, real *message)
{
    const zone_pass *p = z->pass;
    const real *queries = z->l->t[SP_TENSOR_QUERIES];
    const real *lse = z->l->t[SP_TENSOR_LOG_SUM_EXP];
    for (int64_t r = 0; r < rows; r++) {
        real *to = message + (at + r) * z->columns;
        copy(to, queries + (row + r) * z->q, z->q);
        if (p->dq != NULL) {
            copy(to + z->q, p->dout + (row + r) * z->q, z->q);
            copy(to + 2 * z->q, lse + (row + r) * z->heads, z->heads);
            copy(to + 2 * z->q + z->heads, p->delta + (row + r) * z->heads, z->heads);
        }
    }
}

// Column by column: queries, gradients of outputs, lse, delta, each of all rows of the share.
static void read_queries(zone *z, int64_t row, int64_t at, int64_t rows, real *message)
{
    for (int64_t r = 0; r < rows; r++) {
        const real *from = message + (at + r) * z->columns;
        real *to = z->sent;
        copy(to + (row + r) * z->q, from, z->q);
        if (z->pass->dq != NULL) {
            to += z->rows * z->q;
            copy(to + (row + r) * z->q, from + z->q, z->q);
            to += z->rows * z->q;
            copy(to + (row + r) * z->heads, from + 2 * z->q, z->heads);
            to += z->rows * z->heads;
            copy(to + (row + r) * z->heads, from + 2 * z->q + z->heads, z->heads);
        }
    }
}

// A row is [output, maximum, sum] or, backward, [gradient of the queries].
static void write_results(zone *z, int64_t row, int64_t at, int64_t rows, real *message)
{
    int64_t width = z->pass->dq != NULL ? z->q : z->q + 2 * z->heads;
    for (int64_t r = 0; r < rows; r++) {
        real *to = message + (at + r) * width;
        if (z->pass->dq != NULL) {
            copy(to, z->dq + (row + r) * z->q, z->q);
            continue;
        }
        copy(to, z->out + (row + r) * z->q, z->q);
        copy(to + z->q, z->max + (row + r) * z->heads, z->heads);
        copy(to + z->q + z->heads, z->sum + (row + r) * z->heads, z->heads);
    }
}

static void read_results(zone *z, int64_t row, int64_t at, int64_t rows, real *message)
{
    const zone_pass *p = z->pass;
    int64_t width = p->dq != NULL ? z->q : z->q + 2 * z->heads;
    real *out = z->l->t[SP_TENSOR_ATTENTION];
    real *max = z->l->t[SP_TENSOR_LOG_SUM_EXP];
    for (int64_t r = 0; r < rows; r++) {
        const real *from = message + (at + r) * width;
        if (p->dq != NULL) {
            copy(p->dq + (row + r) * z->q, from, z->q);
            continue;
        }
        copy(out + (row + r) * z->q, from, z->q);
        copy(max + (row + r) * z->heads, from + z->q, z->heads);
        copy(p->sum + (row + r) * z->heads, from + z->q + z->heads, z->heads);
    }
}

// From all owners into the zone, or back. A rank that is both copies within itself.
static bool exchange_rows(zone *z, bool back)
{
    int tag = back ? TAG_RESULTS : TAG_QUERIES;
    int64_t width = !back ? z->columns : z->pass->dq != NULL ? z->q : z->q + 2 * z->heads;
    real *message = sp_malloc((size_t)(z->slice->computed * width) * sizeof *message);
    bool ok = true;
    for (int to = 0; ok && to < z->slice->shards; to++) {
        if (back ? !in_zone(z, z->me) : !in_zone(z, to)) {
            continue;
        }
        int64_t rows = back ? common_rows(z, to, z->me) : common_rows(z, z->me, to);
        (back ? for_shared_rows : for_own_rows)(z, to, message,
                                                back ? write_results : write_queries);
        if (to == z->me) {
            (back ? for_own_rows : for_shared_rows)(z, to, message,
                                                    back ? read_results : read_queries);
        } else {
            ok = send(z, to, tag, message, rows * width);
        }
    }
    for (int from = 0; ok && from < z->slice->shards; from++) {
        if (from == z->me || (back ? !in_zone(z, from) : !in_zone(z, z->me))) {
            continue;
        }
        int64_t rows = back ? common_rows(z, z->me, from) : common_rows(z, from, z->me);
        ok = receive(z, from, tag, message, rows * width);
        (back ? for_own_rows : for_shared_rows)(z, from, message,
                                                back ? read_results : read_queries);
    }
    sp_free(message);
    return ok;
}

// ---- keys ----

static int64_t shard_rows(const sp_i_exec_slice *slice, int member)
{
    sp_token_run runs[SP_ZIGZAG_RUNS];
    int count = sp_i_exec_shard_runs(slice, member, runs);
    return runs[0].tokens + (count > 1 ? runs[1].tokens : 0);
}

// Queries of the share against one run of keys, of earlier slices without the padding behind them.
static void attend_run(zone *z, sp_token_run keys, const real *kv, real *dkv)
{
    sp_token_run share[SP_ZIGZAG_RUNS];
    int64_t row = 0;
    share_of(z, z->me, share);
    for (int s = 0; s < SP_ZIGZAG_RUNS; row += share[s++].tokens) {
        sp_kernel_attention_block block = {share[s].begin, share[s].tokens, keys.begin,
                                           keys.tokens};
        real *q = z->sent + row * z->q;
        if (share[s].tokens == 0 || keys.tokens <= 0 ||
            keys.begin >= share[s].begin + share[s].tokens) {
            continue;
        }
        if (dkv == NULL) {
            SP_KERNEL(attention_block)
            (z->shape, &block, q, kv, kv + z->kv, z->out + row * z->q, z->max + row * z->heads,
             z->sum + row * z->heads, z->tiles);
            continue;
        }
        const real *dout = z->sent + z->rows * z->q + row * z->q;
        const real *lse = z->sent + 2 * z->rows * z->q + row * z->heads;
        SP_KERNEL(attention_block_backward)
        (z->shape, &block, q, kv, kv + z->kv, dout, lse, lse + z->rows * z->heads,
         z->dq + row * z->q, dkv, dkv + z->kv, z->tiles);
    }
}

static void attend_shard(zone *z, const sp_i_exec_slice *of, int member, const real *kv, real *dkv)
{
    sp_token_run runs[SP_ZIGZAG_RUNS];
    int count = sp_i_exec_shard_runs(of, member, runs);
    int64_t end = of->begin + (of == z->slice ? of->computed : of->tokens);
    int64_t row = 0;
    for (int r = 0; r < count; row += runs[r++].tokens) {
        int64_t shown = end - runs[r].begin < runs[r].tokens ? end - runs[r].begin : runs[r].tokens;
        attend_run(z, (sp_token_run){runs[r].begin, shown}, kv + row * 2 * z->kv,
                   dkv != NULL ? dkv + row * 2 * z->kv : NULL);
    }
}

// A rank of the zone goes through the keys of all ranks, one after the other, and gives each the
// gradients of its own.
static bool attend_all(zone *z, int32_t e, const real *own, real *gradient)
{
    const sp_i_exec_slice *of = slice_of(z->l, e);
    size_t most = (size_t)(of->computed * 2 * z->kv);
    real *kv = sp_malloc(most * sizeof *kv);
    real *dkv = sp_calloc(most, sizeof *dkv);
    bool ok = true;
    for (int m = 0; ok && m < of->shards; m++) {
        int64_t count = shard_rows(of, m) * 2 * z->kv;
        ok = m == z->me || receive(z, m, TAG_KEYS, kv, count);
        memset(dkv, 0, (size_t)count * sizeof *dkv);
        if (ok && count > 0) {
            attend_shard(z, of, m, m == z->me ? own : kv,
                         z->pass->dq == NULL ? NULL
                         : m == z->me        ? gradient
                                             : dkv);
        }
        if (ok && z->pass->dq != NULL && m != z->me) {
            ok = send(z, m, TAG_KEY_GRADIENTS, dkv, count);
        }
    }
    sp_free(kv);
    sp_free(dkv);
    return ok;
}

// Adds what the ranks of the zone give of the gradients of this rank's keys.
static bool add_gradients(zone *z, int32_t e, real *gradient)
{
    int64_t count = shard_rows(slice_of(z->l, e), z->me) * 2 * z->kv;
    real *part = sp_malloc((size_t)count * sizeof *part);
    bool ok = true;
    for (int m = 0; ok && count > 0 && m < z->slice->shards; m++) {
        if (!in_zone(z, m) || m == z->me) {
            continue;
        }
        ok = receive(z, m, TAG_KEY_GRADIENTS, part, count);
        for (int64_t k = 0; ok && k < count; k++) {
            gradient[k] += part[k];
        }
    }
    sp_free(part);
    return ok;
}

static bool run_keys(zone *z, int32_t e)
{
    const real *own = *sp_i_exec_kv(z->l->stage, e, z->l->index);
    real *gradient = NULL;
    bool ok = true;
    if (z->pass->dq != NULL) {
        gradient = SP_EXEC(kv_gradient)(z->l, e);
        ok = gradient != NULL;
    }
    for (int m = 0; ok && m < z->slice->shards; m++) {
        if (in_zone(z, m) && m != z->me) {
            ok = send(z, m, TAG_KEYS, own, shard_rows(slice_of(z->l, e), z->me) * 2 * z->kv);
        }
    }
    if (ok && in_zone(z, z->me)) {
        ok = attend_all(z, e, own, gradient);
    }
    return ok && (z->pass->dq == NULL || add_gradients(z, e, gradient));
}

// ---- a slice ----

static void begin(zone *z)
{
    sp_token_run share[SP_ZIGZAG_RUNS];
    if (!in_zone(z, z->me)) {
        return;
    }
    share_of(z, z->me, share);
    z->rows = share[0].tokens + share[1].tokens;
    size_t rows = (size_t)z->rows;
    z->sent = sp_arena_take(&z->memory, rows * (size_t)z->columns, sizeof *z->sent);
    z->tiles = sp_arena_take(&z->memory, (size_t)SP_KERNEL(attention_workspace)(z->shape, z->rows),
                             sizeof *z->tiles);
    z->out = sp_arena_take(&z->memory, rows * (size_t)z->q, sizeof *z->out);
    z->max = sp_arena_take(&z->memory, rows * (size_t)z->heads, sizeof *z->max);
    z->sum = sp_arena_take(&z->memory, rows * (size_t)z->heads, sizeof *z->sum);
    z->dq = z->out; // zeros: the backward has no output here
    if (z->pass->dq == NULL) {
        SP_KERNEL(attention_start)(z->shape, z->rows, z->out, z->max, z->sum);
    }
}

bool SP_EXEC(attend_zone)(const layer *l, int32_t i, const sp_kernel_attention_shape *shape,
                          const zone_pass *pass)
{
    zone z = {.l = l,
              .shape = shape,
              .pass = pass,
              .i = i,
              .slice = slice_of(l, l->pack->slice[i]),
              .q = l->kind->shard.q,
              .kv = l->kind->shard.k,
              .heads = shape->heads};
    z.group = l->stage->links->token_group[z.slice->forward_pack];
    z.me = z.slice->shard;
    z.columns = pass->dq != NULL ? 2 * (z.q + z.heads) : z.q;
    begin(&z);
    bool ok = exchange_rows(&z, false);
    for (int32_t e = l->pack->slice[i]; ok && e != SP_I_EXEC_NONE; e = slice_of(l, e)->earlier) {
        ok = run_keys(&z, e);
    }
    ok = ok && exchange_rows(&z, true);
    sp_arena_free(&z.memory);
    return ok;
}
