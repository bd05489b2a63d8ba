// Sampled attention (sample_attention.h) of one sample's queries on a CUDA device. In turn:
//   sp_cuda_attention_forward() with each band of sampled queries as a slice, for their lse;
//   sp_cuda_sample_mass(), whose sums the host fetches and adds up (sp_cuda_sample_gather_mass);
//   sp_kernel_sample_select() and sp_cuda_sample_plan() on the host;
//   sp_cuda_sample_attention().
// Shapes and alignment as in cuda_attention.h. Sums have a fixed order.
#ifndef SLIMPACK_KERNELS_CUDA_SAMPLE_H
#define SLIMPACK_KERNELS_CUDA_SAMPLE_H

#include "kernels/attention_shape.h"
#include "kernels/cuda_stream.h"
#include "kernels/sample_attention.h"

SP_CUDA_BEGIN

// The sampled queries and all keys of a sample, on the device.
typedef struct sp_cuda_sample_bands {
    const sp_bf16 *q;        // of the position `begin`
    const sp_bf16 *k;        // of the position 0
    const float *lse;        // [sampled, heads]
    const int32_t *position; // [sampled], ascending
    int64_t begin, keys, sampled;
    int64_t window; // keys up to a query that count as the window's; 0: none
} sp_cuda_sample_bands;

// Probability summed over the sampled queries: of each key before their windows and inside them
// [heads, keys], and of each block of keys by query [heads, blocks, sampled] unless that is NULL.
typedef struct sp_cuda_sample_sums {
    float *before, *inside;
    float *by_query;
} sp_cuda_sample_sums;

int sp_cuda_sample_mass(const sp_kernel_attention_shape *shape, const sp_cuda_sample_bands *bands,
                        const sp_cuda_sample_sums *sums, sp_cuda_stream stream);

// On the host: the sums of a head, fetched, as the mass that is chosen from. `position` is on the
// host, too.
void sp_cuda_sample_gather_mass(const sp_kernel_sample_options *options,
                                const sp_cuda_sample_bands *bands, const int32_t *position,
                                int64_t head, const sp_cuda_sample_sums *sums,
                                sp_kernel_sample_mass *mass);

// A tile of queries of a head: the first `columns` of the head's single columns, then its runs.
typedef struct sp_cuda_sample_item {
    int32_t head, begin; // the first query, counted from the first of all
    int32_t columns, runs;
    int64_t first_run;
} sp_cuda_sample_item;

typedef struct sp_cuda_sample_run {
    int32_t begin, keys;
} sp_cuda_sample_run;

typedef struct sp_cuda_sample_tables {
    const int32_t *column; // [heads, keys], of which a head's mask fills the first
    sp_cuda_sample_item *items;
    sp_cuda_sample_run *runs;
    int64_t item_count;
} sp_cuda_sample_tables;

// On the host: how many items and runs there are (items and runs NULL), or the tables, costliest
// items first. Columns stay where the masks have them.
int64_t sp_cuda_sample_plan(int64_t heads, const sp_kernel_sample_mask *masks, int64_t begin,
                            int64_t queries, sp_kernel_sample_item *work,
                            sp_cuda_sample_tables *tables);

// Queries at [begin, begin + queries), their keys from 0 on.
typedef struct sp_cuda_sample_queries {
    const sp_bf16 *q, *k, *v;
    sp_bf16 *out;
    float *lse; // [queries, heads]
    int64_t begin, queries;
} sp_cuda_sample_queries;

int sp_cuda_sample_attention(const sp_kernel_attention_shape *shape,
                             const sp_cuda_sample_queries *queries,
                             const sp_cuda_sample_tables *tables, sp_cuda_stream stream);

SP_CUDA_END

#endif
