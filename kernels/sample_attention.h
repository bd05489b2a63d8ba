// Prefill attention over a part of the keys that a sample of the queries chooses, head by head (Zhu
// and others: "SampleAttention", arXiv 2406.15486: version 2 of June 2024 keeps a local window and
// columns, version 3 of MLSys 2025 columns and slashes). The papers were read in summaries;
// comments say what those leave open. typed.h declares what reads queries and keys, in fp32 and
// fp64; here stands what is chosen, and how the work is dealt.
#ifndef SLIMPACK_KERNELS_SAMPLE_ATTENTION_H
#define SLIMPACK_KERNELS_SAMPLE_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

// Queries that share their keys; also the block of version 3. A band is a run of sampled queries
// (32 is a choice of ours).
enum { SP_KERNEL_SAMPLE_TILE = 128, SP_KERNEL_SAMPLE_BAND = 32 };

typedef enum sp_kernel_sample_pattern {
    SP_KERNEL_SAMPLE_STRIPES, // window and single columns (version 2)
    SP_KERNEL_SAMPLE_SLASHES  // columns and diagonals, in blocks (version 3)
} sp_kernel_sample_pattern;

typedef struct sp_kernel_sample_options {
    sp_kernel_sample_pattern pattern;
    double alpha;        // share of the sampled probability that is kept; 1 keeps every key
    double alpha_slash;  // slashes: share that diagonals keep, apart from the columns
    double row_share;    // above 0: of the queries that are sampled, at least one band
    double window_share; // stripes: the window as a share of the keys
    bool window_counts;  // stripes: what the window holds counts towards alpha
    bool by_mean;        // stripes: a column's mean over the queries that see it, not its sum
    int64_t bottom_rows; // stripes: the last queries see every key
} sp_kernel_sample_options;

// A head's sampled mass: probability summed over the sampled queries. total = their
// number.
typedef struct sp_kernel_sample_mass {
    double *column;       // [keys]; with window_counts what lies before the window
    double *slash;        // [blocks of keys], by the distance of blocks; slashes only
    double window, total; // window: 0 unless it counts
} sp_kernel_sample_mass;

// The keys that the queries of one head keep. A tile of queries keeps what one of its queries
// keeps, in causal order, and always its own keys.
typedef struct sp_kernel_sample_mask {
    int64_t window;     // keys up to a query, itself included
    int64_t dense_from; // queries of this position and later see every key
    int64_t grain;      // keys of a column: 1, or a block
    int64_t columns, slashes;
    int32_t *column; // [keys], ascending
    int32_t *slash;  // [blocks of keys], ascending distances
} sp_kernel_sample_mask;

// Keys [begin, end).
typedef struct sp_kernel_sample_run {
    int64_t begin, end;
} sp_kernel_sample_run;

// A tile of queries of a head, as work for one worker. Cost: its pairs of query and key.
typedef struct sp_kernel_sample_item {
    int64_t cost;
    int32_t head, tile, worker;
} sp_kernel_sample_item;

// Blocks of keys, or tiles of queries.
int64_t sp_kernel_sample_blocks(int64_t tokens);

// Bands stand at the end of equal segments of the queries, counted from the last one: so version 2
// is drawn, and version 3 says it.
int64_t sp_kernel_sample_bands(const sp_kernel_sample_options *options, int64_t queries);

// The band's queries.
sp_kernel_sample_run sp_kernel_sample_band(const sp_kernel_sample_options *options, int64_t queries,
                                           int64_t band);

int64_t sp_kernel_sample_window(const sp_kernel_sample_options *options, int64_t keys);

// The smallest masks that keep alpha of the mass, for the queries [begin, begin + queries) of a
// sample. Sums are what the paper takes. They pass over late stripes, which few queries see and
// those need: means are the mass of a query that sees every key. Linear in keys. Changes the mass.
void sp_kernel_sample_select(const sp_kernel_sample_options *options, int64_t begin,
                             int64_t queries, sp_kernel_sample_mass *mass,
                             sp_kernel_sample_mask *mask);

// Where a walk over a tile's keys stands.
typedef struct sp_kernel_sample_walk {
    const sp_kernel_sample_mask *mask;
    sp_kernel_sample_run tile; // positions of the queries
    int64_t column, slash;
    bool own; // the window and the tile's own keys are still to come
} sp_kernel_sample_walk;

// The kept keys of the queries at the positions of `tile`, as ascending runs that do not touch.
sp_kernel_sample_walk sp_kernel_sample_walk_start(const sp_kernel_sample_mask *mask,
                                                  sp_kernel_sample_run tile);
bool sp_kernel_sample_walk_next(sp_kernel_sample_walk *walk, sp_kernel_sample_run *run);

// Pairs of a query and a kept key that it sees, of one tile: what the kernel computes.
int64_t sp_kernel_sample_pairs(const sp_kernel_sample_mask *mask, sp_kernel_sample_run tile);

// Fills heads x tiles items, the costliest first.
void sp_kernel_sample_items(int64_t heads, const sp_kernel_sample_mask *masks, int64_t begin,
                            int64_t queries, sp_kernel_sample_item *items);

// Gives each item in turn to the worker with the least so far (Graham: "Bounds on Multiprocessing
// Timing Anomalies", 1969: at most 4/3 of the best). load [workers] receives the costs.
void sp_kernel_sample_deal(int64_t count, sp_kernel_sample_item *items, int64_t workers,
                           int64_t *load);

#endif
