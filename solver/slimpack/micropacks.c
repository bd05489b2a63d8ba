// The packs of one shape: forward packs of growing and shrinking work, and backward packs from
// them.
#include "solver/slimpack/slimpack_search.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "solver/rows.h"

// Share of all work that sums may be off by rounding.
#define ROUNDING 1e-9

typedef struct filling {
    const sp_i_work *work;
    const sp_batch *batch;
    const sp_i_rank_samples *rank;
    sp_packing *packing;
    sp_arena memory;      // of the next three
    double *target_s;     // [packs], cumulative
    double *sample_s;     // [count]
    size_t longs;         // the first so many are cut
    size_t *next_free;    // [count + 1]: shorts not placed yet, a forest with path halving
    size_t next_long;     // being placed
    int64_t placed;       // tokens of it
    double shorts_left_s; // before the long samples
    double placed_s;      // all so far
    double rounding_s;    // that the sums of work may be off
    int64_t slice_tokens;
    uint8_t *tied; // [packs made]: a sample continues from this pack into the next
    size_t tied_count, tied_capacity;
} filling;

static double whole_s(const filling *f, size_t i)
{
    return sp_i_slice_work_s(f->work, 0, f->batch->tokens[f->rank->sample[i]]);
}

static size_t find_free(filling *f, size_t i)
{
    while (f->next_free[i] != i) {
        f->next_free[i] = f->next_free[f->next_free[i]];
        i = f->next_free[i];
    }
    return i;
}

// The largest short sample from `low` on that is left and fits; count: none. Samples descend.
static size_t largest_short(filling *f, size_t low, double room_s)
{
    size_t high = f->rank->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (f->sample_s[middle] <= room_s) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return find_free(f, low);
}

static void add_slice(filling *f, size_t i, int64_t begin, int64_t tokens, double work_s)
{
    sp_slice slice = {
        .sample = f->rank->sample[i], .begin = begin, .tokens = tokens, .computed_tokens = tokens};
    f->placed_s += work_s;
    sp_i_add_slice(f->batch, slice, &f->packing->forward);
}

static void place_short(filling *f, size_t i)
{
    f->next_free[i] = i + 1;
    f->shorts_left_s -= f->sample_s[i];
    add_slice(f, i, 0, f->batch->tokens[f->rank->sample[i]], f->sample_s[i]);
}

// Fills the open pack with short samples. An empty pack takes one that does not fit. Once there is
// a first one, room for the next is less, so that the next free one is the largest where it fits.
static void fill_shorts(filling *f, double end_s, bool before_longs)
{
    for (size_t low = f->longs;;) {
        double room_s = end_s - f->placed_s + f->rounding_s;
        bool fits = low > f->longs && low < f->rank->count && f->sample_s[low] <= room_s;
        size_t i = fits ? low : largest_short(f, low, room_s);
        const sp_pack_list *list = &f->packing->forward;
        bool empty = list->packs[list->count - 1].slice_count == 0;
        if (i == f->rank->count && empty) {
            i = find_free(f, f->longs);
        }
        if (i == f->rank->count || (before_longs && f->shorts_left_s <= 0.0)) {
            return;
        }
        place_short(f, i);
        low = find_free(f, i);
    }
}

// As much of the long sample at hand as fits; all of it where little would be left.
static void place_long(filling *f, double end_s)
{
    int64_t total = f->batch->tokens[f->rank->sample[f->next_long]];
    int64_t left = total - f->placed;
    int64_t tokens = sp_i_slice_tokens(f->work, f->placed, end_s - f->placed_s + f->rounding_s);
    const sp_pack_list *list = &f->packing->forward;
    bool empty = list->packs[list->count - 1].slice_count == 0;
    bool whole = tokens >= left;
    tokens = tokens / f->slice_tokens * f->slice_tokens;
    if (empty && tokens == 0) {
        tokens = f->slice_tokens;
    }
    if (whole || (tokens > 0 && tokens >= left - f->slice_tokens)) {
        tokens = left;
    }
    if (tokens == 0) {
        return;
    }
    add_slice(f, f->next_long, f->placed, tokens, sp_i_slice_work_s(f->work, f->placed, tokens));
    f->placed += tokens;
    if (f->placed == total) {
        f->next_long++;
        f->placed = 0;
    }
}

static bool done(filling *f)
{
    return f->next_long == f->longs && find_free(f, f->longs) == f->rank->count;
}

// One pack up to the cumulative target: shorts until their share is used up, then the long sample
// at hand; where that ends, shorts fill the rest, so that no two long samples tie their packs.
static void fill_pack(filling *f, double end_s)
{
    sp_pack_list_begin(&f->packing->forward, f->rank->dp_first, f->rank->dp_count);
    bool continues = f->placed > 0;
    if (!continues && f->shorts_left_s > 0.0) {
        fill_shorts(f, end_s, true);
    }
    if (f->next_long < f->longs && (continues || f->placed_s < end_s)) {
        place_long(f, end_s);
    }
    if (f->placed == 0) {
        fill_shorts(f, end_s, false);
    }
    sp_reserve((void **)&f->tied, &f->tied_capacity, f->tied_count + 1, 1);
    f->tied[f->tied_count++] = f->placed > 0;
}

// All that rounding leaves over goes into packs of the mean work.
static void fill_all(filling *f, const sp_i_shape *shape)
{
    int packs = sp_i_taper_packs(&shape->forward);
    double mean_s = f->target_s[packs - 1] / packs;
    for (int k = 0; !done(f); k++) {
        double end_s = k < packs ? f->target_s[k] : f->placed_s + mean_s;
        if (k >= packs || end_s > f->placed_s + f->rounding_s) {
            fill_pack(f, end_s);
        }
    }
}

static void prepare(filling *f, const sp_i_shape *shape)
{
    size_t count = f->rank->count;
    f->target_s =
        sp_arena_take(&f->memory, (size_t)sp_i_taper_packs(&shape->forward), sizeof *f->target_s);
    f->sample_s = sp_arena_take(&f->memory, count, sizeof *f->sample_s);
    f->next_free = sp_arena_take(&f->memory, count + 1, sizeof *f->next_free);
    double total_s = 0.0;
    for (size_t i = 0; i < count; i++) {
        f->sample_s[i] = whole_s(f, i);
        total_s += f->sample_s[i];
    }
    double long_s = ldexp(total_s / sp_i_taper_packs(&shape->forward), shape->doublings);
    while (f->longs < count && f->sample_s[f->longs] > long_s) {
        f->longs++;
    }
    for (size_t i = f->longs; i < count; i++) {
        f->shorts_left_s += f->sample_s[i] * shape->shorts_first;
    }
    for (size_t i = 0; i <= count; i++) {
        f->next_free[i] = i;
    }
    f->rounding_s = ROUNDING * total_s;
    sp_i_taper_targets(&shape->forward, total_s, f->target_s);
}

void sp_i_micropacks_make(const sp_i_work *work, const sp_batch *batch,
                          const sp_i_rank_samples *rank, const sp_i_shape *shape,
                          sp_packing *packing, sp_i_needs *needs)
{
    filling f = {.work = work,
                 .batch = batch,
                 .rank = rank,
                 .packing = packing,
                 .slice_tokens = shape->slice_tokens};
    prepare(&f, shape);
    fill_all(&f, shape);
    if (shape->regrouped) {
        sp_i_backward_regroup(work, shape, f.tied, packing, needs);
    } else {
        sp_i_backward_mirror(f.tied, shape->retained, packing, needs);
    }
    sp_arena_free(&f.memory);
    sp_free(f.tied);
}

static sp_status append(const sp_pack_list *from, sp_pack_list *to, sp_error *err)
{
    void *packs = to->packs;
    void *slices = to->slices;
    // Actions name packs by 32-bit indices.
    if (to->count + from->count > INT32_MAX) {
        return sp_error_no_memory(err, "micro packs");
    }
    if (from->count == 0) {
        return SP_OK;
    }
    sp_reserve(&packs, &to->capacity, to->count + from->count, sizeof *to->packs);
    sp_reserve(&slices, &to->slice_capacity, to->slice_count + from->slice_count,
               sizeof *to->slices);
    to->packs = packs;
    to->slices = slices;
    for (size_t k = 0; k < from->count; k++) {
        sp_pack *added = &to->packs[to->count];
        *added = from->packs[k];
        added->microbatch = (int32_t)to->count++;
        added->first_slice += to->slice_count;
    }
    memcpy(to->slices + to->slice_count, from->slices, from->slice_count * sizeof *to->slices);
    to->slice_count += from->slice_count;
    return SP_OK;
}

sp_status sp_i_micropacks_append(const sp_packing *rank, sp_packing *packing, sp_error *err)
{
    sp_status status = append(&rank->forward, &packing->forward, err);
    return status == SP_OK ? append(&rank->backward, &packing->backward, err) : status;
}

// ---- backward packs of their own ----

// Past the first forward pack of the next block.
static size_t block_end(const uint8_t *tied, size_t block)
{
    size_t end = block;
    while (tied[end] != 0) {
        end++;
    }
    return end + 1;
}

static void add_need(sp_i_needs *needs, size_t pack)
{
    if (needs != NULL) {
        sp_reserve((void **)&needs->pack, &needs->capacity, needs->count + 1, sizeof *needs->pack);
        needs->pack[needs->count++] = (int32_t)pack;
    }
}

// The first backward pack of a block has slices of its last forward pack.
void sp_i_backward_mirror(const uint8_t *tied, int retained, sp_packing *packing, sp_i_needs *needs)
{
    sp_pack_list *forward = &packing->forward;
    for (size_t block = 0; block < forward->count;) {
        size_t end = block_end(tied, block);
        for (size_t k = end; k > block; k--) {
            int after = (int)(end - k); // of the block
            forward->packs[k - 1].runs_again = retained != 0 && after >= retained;
            add_need(needs, end - 1);
            sp_i_add_pack(forward, &forward->packs[k - 1], &packing->backward);
        }
        block = end;
    }
}

// ---- regrouping ----

// A part of a forward slice in the order of the backward.
typedef struct piece {
    sp_slice slice;
    size_t from;     // its forward slice
    size_t need;     // last forward pack of its block
    size_t backward; // pack
} piece;

typedef struct regrouping {
    const sp_i_work *work;
    const sp_packing *packing;
    piece *pieces;
    size_t count, capacity;
    double *target_s; // cumulative
    int targets;
    double placed_s;
    double rounding_s; // that sums of work may be off
    size_t pack;       // being filled
    bool empty;        // it is
    int64_t slice_tokens;
} regrouping;

static double backward_s(const sp_i_work *work, const sp_slice *slice)
{
    return sp_i_slice_pass_s(work, true, slice->begin, slice->tokens);
}

static double end_s(const regrouping *r)
{
    return r->pack < (size_t)r->targets ? r->target_s[r->pack] : r->placed_s + r->target_s[0];
}

static void next_pack(regrouping *r)
{
    r->pack += r->empty ? 0 : 1;
    r->empty = true;
    while (r->pack + 1 < (size_t)r->targets &&
           r->target_s[r->pack] <= r->placed_s + r->rounding_s) {
        r->pack++;
    }
}

static void place(regrouping *r, sp_slice slice, size_t from, size_t need)
{
    sp_reserve((void **)&r->pieces, &r->capacity, r->count + 1, sizeof *r->pieces);
    r->pieces[r->count++] = (piece){slice, from, need, r->pack};
    r->placed_s += backward_s(r->work, &slice);
    r->empty = false;
}

// As much of the end of a slice as fits into room_s; 0: none, all: the slice. Samples that are not
// cut go where more than half of them fits.
static int64_t tail_tokens(const regrouping *r, const sp_slice *slice, double room_s)
{
    int64_t total = r->packing->batch->tokens[slice->sample];
    double work_s = backward_s(r->work, slice);
    if (slice->tokens == total) {
        return work_s * 0.5 <= room_s ? slice->tokens : 0;
    }
    if (work_s <= room_s) {
        return slice->tokens;
    }
    // The last x tokens take (t + q e) x - 0.5 q x^2, e the end of the slice.
    double q = r->work->backward.pair_s;
    double linear = r->work->backward.token_s + q * (double)(slice->begin + slice->tokens);
    double x = 2.0 * room_s / (linear + sqrt(fmax(0.0, linear * linear - 2.0 * q * room_s)));
    int64_t tokens = (int64_t)x / r->slice_tokens * r->slice_tokens;
    // More fit where they do not see all tokens.
    sp_slice tail = *slice;
    while (r->work->model != NULL && tokens + r->slice_tokens < slice->tokens) {
        tail.tokens = tokens + r->slice_tokens;
        tail.begin = slice->begin + slice->tokens - tail.tokens;
        if (backward_s(r->work, &tail) > room_s) {
            break;
        }
        tokens = tail.tokens;
    }
    return tokens + r->slice_tokens > slice->tokens ? slice->tokens : tokens;
}

// The part that goes into an empty pack even where it does not fit.
static int64_t least_tokens(const regrouping *r, const sp_slice *slice)
{
    bool is_cut = slice->tokens < r->packing->batch->tokens[slice->sample];
    return is_cut && slice->tokens > r->slice_tokens ? r->slice_tokens : slice->tokens;
}

static void place_slice(regrouping *r, sp_slice slice, size_t from, size_t need)
{
    while (slice.tokens > 0) {
        double room_s = end_s(r) - r->placed_s + r->rounding_s;
        int64_t tokens = room_s > 2.0 * r->rounding_s ? tail_tokens(r, &slice, room_s) : 0;
        if (tokens == 0 && !r->empty) {
            next_pack(r);
            continue;
        }
        tokens = tokens == 0 ? least_tokens(r, &slice) : tokens;
        sp_slice tail = slice;
        tail.begin += slice.tokens - tokens;
        tail.tokens = tokens;
        tail.computed_tokens = tokens;
        place(r, tail, from, need);
        slice.tokens -= tokens;
        slice.computed_tokens = slice.tokens;
    }
}

static void place_all(regrouping *r, const uint8_t *tied)
{
    const sp_pack_list *forward = &r->packing->forward;
    for (size_t block = 0; block < forward->count;) {
        size_t end = block_end(tied, block);
        size_t first = forward->packs[block].first_slice;
        const sp_pack *last = &forward->packs[end - 1];
        for (size_t i = last->first_slice + last->slice_count; i > first; i--) {
            place_slice(r, forward->slices[i - 1], i - 1, end - 1);
        }
        block = end;
    }
}

// The forward packs again, with slices cut where backward packs end; pieces of one slice follow
// each other from its end to its beginning.
static void cut_forward(const regrouping *r, const sp_pack_list *old, const size_t *last_piece,
                        sp_pack_list *list)
{
    for (size_t k = 0; k < old->count; k++) {
        const sp_pack *pack = &old->packs[k];
        sp_pack_list_begin(list, pack->dp_first, pack->dp_count);
        for (size_t i = pack->first_slice; i < pack->first_slice + pack->slice_count; i++) {
            for (size_t p = last_piece[i] + 1; p > 0 && r->pieces[p - 1].from == i; p--) {
                sp_i_add_slice(r->packing->batch, r->pieces[p - 1].slice, list);
            }
        }
    }
}

// Within a pack slices stand in the order of the forward, so that neighbours run as one segment.
static void write_backward(const regrouping *r, sp_packing *packing, sp_i_needs *needs)
{
    for (size_t first = 0; first < r->count;) {
        size_t end = first;
        while (end < r->count && r->pieces[end].backward == r->pieces[first].backward) {
            end++;
        }
        const sp_pack *any = &packing->forward.packs[0]; // all are on the same ranks
        sp_pack_list_begin(&packing->backward, any->dp_first, any->dp_count);
        add_need(needs, r->pieces[end - 1].need);
        for (size_t p = end; p > first; p--) {
            sp_i_add_slice(packing->batch, r->pieces[p - 1].slice, &packing->backward);
        }
        first = end;
    }
}

static void rewrite(const regrouping *r, sp_packing *packing, sp_i_needs *needs)
{
    sp_pack_list cut = {.padding = packing->forward.padding};
    size_t *last_piece = sp_malloc((packing->forward.slice_count + 1) * sizeof *last_piece);
    for (size_t p = 0; p < r->count; p++) {
        last_piece[r->pieces[p].from] = p;
    }
    cut_forward(r, &packing->forward, last_piece, &cut);
    sp_free(last_piece);
    sp_free(packing->forward.packs);
    sp_free(packing->forward.slices);
    packing->forward = cut;
    write_backward(r, packing, needs);
}

void sp_i_backward_regroup(const sp_i_work *work, const sp_i_shape *shape, const uint8_t *tied,
                           sp_packing *packing, sp_i_needs *needs)
{
    int targets = sp_i_taper_packs(&shape->backward);
    regrouping r = {.work = work,
                    .packing = packing,
                    .targets = targets,
                    .empty = true,
                    .slice_tokens = shape->slice_tokens};
    double total_s = 0.0;
    for (size_t i = 0; i < packing->forward.slice_count; i++) {
        total_s += backward_s(work, &packing->forward.slices[i]);
    }
    r.target_s = sp_malloc((size_t)targets * sizeof *r.target_s);
    r.rounding_s = ROUNDING * total_s;
    sp_i_taper_targets(&shape->backward, total_s, r.target_s);
    place_all(&r, tied);
    rewrite(&r, packing, needs);
    sp_free(r.target_s);
    sp_free(r.pieces);
}

int sp_i_taper_packs(const sp_i_taper *taper)
{
    return taper->rise + taper->flat + taper->fall;
}

void sp_i_taper_targets(const sp_i_taper *taper, double total, double *target)
{
    int packs = sp_i_taper_packs(taper);
    double size = 1.0;
    for (int k = taper->rise - 1; k >= 0; k--) {
        size /= taper->grow;
        target[k] = size;
    }
    for (int k = 0; k < taper->flat; k++) {
        target[taper->rise + k] = 1.0;
    }
    size = 1.0;
    for (int k = packs - taper->fall; k < packs; k++) {
        size /= taper->shrink;
        target[k] = size;
    }
    double sum = 0.0;
    for (int k = 0; k < packs; k++) {
        sum += target[k];
        target[k] = sum;
    }
    for (int k = 0; k < packs; k++) {
        target[k] *= total / sum;
    }
}
