#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/sample_attention.h"
#include "kernels/shapes.h"

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t sp_kernel_sample_blocks(int64_t tokens)
{
    return (tokens + SP_KERNEL_SAMPLE_TILE - 1) / SP_KERNEL_SAMPLE_TILE;
}

static int64_t segment(const sp_kernel_sample_options *options)
{
    return largest(SP_KERNEL_SAMPLE_BAND,
                   (int64_t)((double)SP_KERNEL_SAMPLE_BAND / options->row_share));
}

int64_t sp_kernel_sample_bands(const sp_kernel_sample_options *options, int64_t queries)
{
    return queries > 0 ? largest(1, queries / segment(options)) : 0;
}

sp_kernel_sample_run sp_kernel_sample_band(const sp_kernel_sample_options *options, int64_t queries,
                                           int64_t band)
{
    int64_t after = sp_kernel_sample_bands(options, queries) - 1 - band;
    int64_t end = queries - after * segment(options);
    return (sp_kernel_sample_run){largest(0, end - SP_KERNEL_SAMPLE_BAND), end};
}

int64_t sp_kernel_sample_window(const sp_kernel_sample_options *options, int64_t keys)
{
    return largest(1, (int64_t)ceil(options->window_share * (double)keys));
}

// ---- What is kept ----

// Doubles that are not negative are ordered as their bits are.
static double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double sum_from(int64_t n, const double *mass, double threshold)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += mass[i] >= threshold ? mass[i] : 0.0;
    }
    return sum;
}

// The largest threshold from which on the masses reach the goal; 0 if all of them do not.
static double threshold_of(int64_t n, const double *mass, double goal)
{
    uint64_t reached = 0;
    double infinity = HUGE_VAL;
    uint64_t missed;
    memcpy(&missed, &infinity, sizeof missed);
    while (missed - reached > 1) {
        uint64_t middle = reached + (missed - reached) / 2;
        if (sum_from(n, mass, from_bits(middle)) >= goal) {
            reached = middle;
        } else {
            missed = middle;
        }
    }
    return from_bits(reached);
}

// The fewest masses that reach the goal, ascending by index; of equal ones the first.
static int64_t keep_heaviest(int64_t n, const double *mass, double goal, int32_t *kept)
{
    if (goal <= 0.0) {
        return 0;
    }
    double threshold = threshold_of(n, mass, goal);
    double sum = sum_from(n, mass, nextafter(threshold, HUGE_VAL));
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        bool tied = mass[i] == threshold && sum < goal;
        sum += tied ? threshold : 0.0;
        if (mass[i] > threshold || tied) {
            kept[count++] = (int32_t)i;
        }
    }
    return count;
}

// Sums of blocks of columns, in place.
static void reduce_to_blocks(int64_t keys, double *column)
{
    for (int64_t b = 0; b < sp_kernel_sample_blocks(keys); b++) {
        int64_t end = sp_i_least(keys, (b + 1) * SP_KERNEL_SAMPLE_TILE);
        double sum = 0.0;
        for (int64_t j = b * SP_KERNEL_SAMPLE_TILE; j < end; j++) {
            sum += column[j];
        }
        column[b] = sum;
    }
}

static void select_slashes(const sp_kernel_sample_options *options, int64_t keys,
                           sp_kernel_sample_mass *mass, sp_kernel_sample_mask *mask)
{
    int64_t blocks = sp_kernel_sample_blocks(keys);
    reduce_to_blocks(keys, mass->column);
    mask->columns = keep_heaviest(blocks, mass->column, options->alpha * mass->total, mask->column);
    mask->slashes =
        keep_heaviest(blocks, mass->slash, options->alpha_slash * mass->total, mask->slash);
}

// Columns become means over the sampled queries that see them (with window_counts: before their
// window); window and total are of one query.
static void take_means(const sp_kernel_sample_options *options, int64_t begin, int64_t queries,
                       sp_kernel_sample_mass *mass)
{
    int64_t keys = begin + queries;
    int64_t hidden = options->window_counts ? sp_kernel_sample_window(options, keys) : 0;
    int64_t next = sp_kernel_sample_bands(options, queries) - 1;
    sp_kernel_sample_run band = sp_kernel_sample_band(options, queries, next);
    int64_t seen = 0;
    mass->window /= mass->total;
    mass->total = mass->window;
    for (int64_t j = keys - 1; j >= 0; j--) {
        while (next >= 0 && begin + band.end - hidden > j) {
            seen++;
            if (--band.end == band.begin && --next >= 0) {
                band = sp_kernel_sample_band(options, queries, next);
            }
        }
        mass->column[j] /= seen > 0 ? (double)seen : 1.0;
        mass->total += mass->column[j];
    }
}

void sp_kernel_sample_select(const sp_kernel_sample_options *options, int64_t begin,
                             int64_t queries, sp_kernel_sample_mass *mass,
                             sp_kernel_sample_mask *mask)
{
    int64_t keys = begin + queries;
    bool slashes = options->pattern == SP_KERNEL_SAMPLE_SLASHES;
    mask->columns = mask->slashes = 0;
    mask->grain = slashes ? SP_KERNEL_SAMPLE_TILE : 1;
    mask->window = slashes ? 1 : sp_kernel_sample_window(options, keys);
    mask->dense_from = slashes ? keys : keys - options->bottom_rows;
    if (options->alpha >= 1.0) {
        // Not left to the rounding of sums.
        mask->dense_from = 0;
    } else if (slashes) {
        select_slashes(options, keys, mass, mask);
    } else {
        if (options->by_mean) {
            take_means(options, begin, queries, mass);
        }
        mask->columns = keep_heaviest(keys, mass->column,
                                      options->alpha * mass->total - mass->window, mask->column);
    }
}

// ---- A tile's keys ----

sp_kernel_sample_walk sp_kernel_sample_walk_start(const sp_kernel_sample_mask *mask,
                                                  sp_kernel_sample_run tile)
{
    sp_kernel_sample_walk walk = {.mask = mask, .tile = tile, .slash = mask->slashes, .own = true};
    // Diagonals that begin after the tile have no keys there.
    int64_t block = (tile.end - 1) / SP_KERNEL_SAMPLE_TILE;
    while (walk.slash > 0 && mask->slash[walk.slash - 1] > block) {
        walk.slash--;
    }
    return walk;
}

static sp_kernel_sample_run own_run(const sp_kernel_sample_walk *walk)
{
    bool dense = walk->tile.end > walk->mask->dense_from;
    int64_t begin = dense ? 0 : largest(0, walk->tile.begin + 1 - walk->mask->window);
    return (sp_kernel_sample_run){begin, walk->tile.end};
}

static sp_kernel_sample_run column_run(const sp_kernel_sample_walk *walk)
{
    int64_t begin = walk->mask->column[walk->column] * walk->mask->grain;
    return (sp_kernel_sample_run){begin, begin + walk->mask->grain};
}

// Queries that lie in two blocks keep the diagonal's blocks of both.
static sp_kernel_sample_run slash_run(const sp_kernel_sample_walk *walk)
{
    int64_t distance = walk->mask->slash[walk->slash - 1];
    int64_t first = walk->tile.begin / SP_KERNEL_SAMPLE_TILE - distance;
    int64_t last = (walk->tile.end - 1) / SP_KERNEL_SAMPLE_TILE - distance;
    return (sp_kernel_sample_run){largest(0, first * SP_KERNEL_SAMPLE_TILE),
                                  (last + 1) * SP_KERNEL_SAMPLE_TILE};
}

// Takes the source that begins first, if that is no later than `before`.
static bool take_first(sp_kernel_sample_walk *walk, int64_t before, sp_kernel_sample_run *run)
{
    enum { NONE, OWN, COLUMN, SLASH } source = NONE;
    run->begin = before + 1;
    if (walk->own && own_run(walk).begin < run->begin) {
        *run = own_run(walk);
        source = OWN;
    }
    if (walk->column < walk->mask->columns && column_run(walk).begin < run->begin) {
        *run = column_run(walk);
        source = COLUMN;
    }
    if (walk->slash > 0 && slash_run(walk).begin < run->begin) {
        *run = slash_run(walk);
        source = SLASH;
    }
    walk->own = walk->own && source != OWN;
    walk->column += source == COLUMN;
    walk->slash -= source == SLASH;
    return source != NONE;
}

bool sp_kernel_sample_walk_next(sp_kernel_sample_walk *walk, sp_kernel_sample_run *run)
{
    // Later than all keys of the tile there is nothing to take.
    if (!take_first(walk, walk->tile.end - 1, run)) {
        return false;
    }
    sp_kernel_sample_run more;
    while (take_first(walk, run->end, &more)) {
        run->end = largest(run->end, more.end);
    }
    run->end = sp_i_least(run->end, walk->tile.end);
    return true;
}

int64_t sp_kernel_sample_pairs(const sp_kernel_sample_mask *mask, sp_kernel_sample_run tile)
{
    int64_t rows = tile.end - tile.begin;
    int64_t keys = 0;
    sp_kernel_sample_walk walk = sp_kernel_sample_walk_start(mask, tile);
    for (sp_kernel_sample_run run; sp_kernel_sample_walk_next(&walk, &run);) {
        keys += run.end - run.begin;
    }
    // A query sees those of the tile's own keys up to itself.
    return rows * keys - rows * (rows - 1) / 2;
}

// ---- Who computes what ----

static int by_cost(const void *x, const void *y)
{
    const sp_kernel_sample_item *a = x;
    const sp_kernel_sample_item *b = y;
    if (a->cost != b->cost) {
        return a->cost > b->cost ? -1 : 1;
    }
    if (a->head != b->head) {
        return a->head < b->head ? -1 : 1;
    }
    return a->tile < b->tile ? -1 : a->tile > b->tile;
}

void sp_kernel_sample_items(int64_t heads, const sp_kernel_sample_mask *masks, int64_t begin,
                            int64_t queries, sp_kernel_sample_item *items)
{
    int64_t tiles = sp_kernel_sample_blocks(queries);
    for (int64_t i = 0; i < heads * tiles; i++) {
        int64_t first = i % tiles * SP_KERNEL_SAMPLE_TILE;
        sp_kernel_sample_run tile = {begin + first,
                                     begin + sp_i_least(queries, first + SP_KERNEL_SAMPLE_TILE)};
        items[i] = (sp_kernel_sample_item){.cost = sp_kernel_sample_pairs(&masks[i / tiles], tile),
                                           .head = (int32_t)(i / tiles),
                                           .tile = (int32_t)(i % tiles)};
    }
    qsort(items, (size_t)(heads * tiles), sizeof *items, by_cost);
}

void sp_kernel_sample_deal(int64_t count, sp_kernel_sample_item *items, int64_t workers,
                           int64_t *load)
{
    memset(load, 0, (size_t)workers * sizeof *load);
    for (int64_t i = 0; i < count; i++) {
        int64_t to = 0;
        for (int64_t w = 1; w < workers; w++) {
            to = load[w] < load[to] ? w : to;
        }
        items[i].worker = (int32_t)to;
        load[to] += items[i].cost;
    }
}
