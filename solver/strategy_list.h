// The list of all strategies, and their functions.
#ifndef SLIMPACK_SOLVER_STRATEGY_LIST_H
#define SLIMPACK_SOLVER_STRATEGY_LIST_H

#include "solver/strategy.h"

// Every strategy in one row: X("name", function, kind, "summary", "options", traits...). The
// function is sp_i_pack_<function>, in a file of strategies (solver/strategies, solver/slimpack,
// solver/flexsp); what stands in a row is said at sp_strategy. The order is that of comparisons and
// of help. A new strategy is a file and a row: compare, sweeps, help and completion read this list.
// clang-format off
#define SP_STRATEGY_LIST(X)                                                                       \
    X("padded", padded, ROWS, "each sample padded to the context or to its micro-batch's longest",\
      "pad_to", .pads = true)                                                                     \
    X("packed", packed, ROWS, "samples in batch order fill rows of the context's length", "",     \
      .plain = true)                                                                              \
    X("concat", concat, ROWS, "samples joined and cut at the context, as in pretraining",         \
      "attention_across", .joins_documents = true)                                                \
    X("packed-tuned", packed_tuned, SEARCH,                                                       \
      "packed, in rows of the length whose whole step is fastest, of 17 lengths",                 \
      "time_limit_ms", .chooses_rows = true)                                                      \
    X("sorted", sorted, ROWS, "as packed, longest samples first", "")                             \
    X("ffd", ffd, ROWS, "first-fit decreasing: each sample into the first row with room", "")     \
    X("bfd", bfd, ROWS, "best-fit decreasing: each sample into the fullest row with room", "")    \
    X("lpfhp", lpfhp, ROWS, "best fit on the histogram of lengths (arXiv 2107.02027)",            \
      "max_per_pack")                                                                             \
    X("dp-balanced", dp_balanced, BUDGETS,                                                        \
      "as packed, with as many packs for every data-parallel rank (Megatron-LM)", "rank_tokens")  \
    X("kk-flops", kk_flops, BUDGETS,                                                              \
      "FLOPs of ranks, then of micro-batches levelled by Karmarkar and Karp (verl, slime)",       \
      "rank_tokens")                                                                              \
    X("odc", odc, BUDGETS,                                                                        \
      "work of ranks levelled, each packs for itself, no barrier in layers (arXiv 2601.19362)",   \
      "rank_tokens", .one_sided = true, .own_microbatches = true)                                 \
    X("hybrid-cp", hybrid_cp, BUDGETS,                                                            \
      "ranks grouped for long samples in balanced rounds, no barrier between (Megatron-LM)",      \
      "rank_tokens, pack_rounds", SP_SHARES_RANKS, .rings = true,                                 \
      .rank_tokens_option = "Megatron-LM: --max-seqlen-per-dp-cp-rank")                           \
    X("hbp", hbp, BUDGETS,                                                                        \
      "packs of lengths that double, each over the ranks it needs (arXiv 2503.07680)",            \
      "rank_tokens", SP_SHARES_RANKS)                                                             \
    X("flexsp", flexsp, SEARCH,                                                                   \
      "ranks grouped anew for every micro-batch, with GLPK (arXiv 2412.01523)",                   \
      "rank_tokens, time_limit_ms, mip_gap", SP_SHARES_RANKS)                                     \
    X("bytescale", bytescale, BUDGETS,                                                            \
      "ranks grouped for long samples, short ones level the load (arXiv 2502.21231)",             \
      "rank_tokens", SP_SHARES_RANKS, .rings = true)                                              \
    X("te-cp", te_cp, BUDGETS, "every sample in a ring of all ranks (Transformer Engine)",        \
      "rank_tokens", SP_EXCHANGES(ATTENTION), .cp_ring_nics = 1)                                  \
    X("llama-cp", llama_cp, BUDGETS,                                                              \
      "every sample over all ranks, keys and values gathered before (arXiv 2407.21783)",          \
      "rank_tokens", SP_EXCHANGES(BLOCKING), .cp_ring_nics = 1)                                   \
    X("fcp", fcp, BUDGETS,                                                                        \
      "blocks of samples on any rank, keys and values point to point (arXiv 2605.08524)",         \
      "rank_tokens", SP_EXCHANGES(BLOCKS))                                                        \
    X("distca", distca, BUDGETS,                                                                  \
      "attention as tasks for any rank and stage, behind other half packs (arXiv 2510.18121)",    \
      "rank_tokens", SP_EXCHANGES(TASKS))                                                         \
    X("hybrid-dp", hybrid_dp, BUDGETS,                                                            \
      "samples that a rank holds whole, by FLOPs, longer ones in rings of a few ranks",           \
      "rank_tokens", SP_EXCHANGES(ATTENTION), .cp_ring_nics = 1)                                  \
    X("zeppelin", zeppelin, SEARCH,                                                               \
      "samples in zones: over nodes, inside a node, on one rank (arXiv 2509.21841)",              \
      "rank_tokens, zones, remap, gathers, time_limit_ms", SP_EXCHANGES(ATTENTION),               \
      .cp_ring_nics = SP_MOST_RING_NICS, .zones = true)                                           \
    X("slimpack-symmetric", slimpack_symmetric, SEARCH,                                           \
      "long samples cut, packs that grow and shrink, backward packs as forward", SP_OF_SLIMPACK,  \
      SP_SEARCHES_PACKS, .symmetric = true)                                                       \
    X("slimpack", slimpack, SEARCH,                                                               \
      "slimpack-symmetric, with backward packs of their own (arXiv 2509.26246)",                  \
      SP_OF_SLIMPACK ", asymmetric", SP_SEARCHES_PACKS)                                           \
    X("slimpack-zb", slimpack_zb, SEARCH,                                                         \
      "slimpack, with input and weight gradients apart where that is faster",                     \
      SP_OF_SLIMPACK ", asymmetric", SP_SEARCHES_PACKS, .split_backward = true,                   \
      .without_pipeline = "slimpack")                                                             \
    X("slimpack-zones", slimpack_zones, SEARCH,                                                   \
      "slimpack's packs, those of all ranks with zones, or zeppelin's, as is fastest",            \
      SP_OF_SLIMPACK ", asymmetric, rank_tokens, zones, remap", SP_SEARCHES_PACKS,                \
      .zones = true)                                                                              \
    X("dynapipe", dynapipe, SEARCH,                                                               \
      "micro-batches by dynamic programme, padded to their longest (arXiv 2311.10418)",           \
      "time_limit_ms", .own_microbatches = true)                                                  \
    X("chunkflow", chunkflow, BUDGETS, "chunks of equal length (arXiv 2503.02356)",               \
      "chunk_tokens", .sliced = true, .own_microbatches = true, SP_BRINGS(CHUNKFLOW))             \
    X("slimpipe", slimpipe, BUDGETS, "rows in slices of equal length (arXiv 2504.14519)",         \
      "slice_tokens", .sliced = true, .cuts_rows = true, SP_BRINGS(SLIMPIPE))                     \
    X("balanced", balanced, BUDGETS,                                                              \
      "packs of equal work, outliers wait for later batches (arXiv 2503.17924)",                  \
      "pack_tokens, outlier_queues, outlier_tokens", .outlier_queues = true)
// clang-format on

#define SP_OF_SLIMPACK \
    "slice_tokens, time_limit_ms, mip_gap, slices, taper, dp_merge, gathers, milp"
#define SP_SHARES_RANKS .shares_ranks = true, .own_microbatches = true
#define SP_SEARCHES_PACKS \
    SP_SHARES_RANKS, .sliced = true, SP_BRINGS(PACKFLOW), .by_effort = true, .chooses_chunks = true
#define SP_EXCHANGES(overlap) \
    SP_SHARES_RANKS, .brings_exchange = true, .cp_overlap = SP_CP_##overlap
#define SP_BRINGS(order) .brings_order = true, .schedule = SP_SCHEDULE_##order

#define X(name, function, ...)                                                          \
    sp_status sp_i_pack_##function(const sp_strategy_input *input, sp_packing *packing, \
                                   sp_error *err);
SP_STRATEGY_LIST(X)
#undef X

#endif
