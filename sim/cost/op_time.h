// Time of one operator from a profile: tables by interpolation, else a roofline with a launch
// floor. All times are seconds, non-decreasing in tokens and context, and continuous but for the
// waves of a tile model.
#ifndef SLIMPACK_SIM_COST_OP_TIME_H
#define SLIMPACK_SIM_COST_OP_TIME_H

#include "sim/cost/profile.h"
#include "sim/model/cluster.h"

// Uses of a table outside its points, for the result's `uncalibrated` list.
typedef enum sp_range_kind {
    SP_RANGE_GEMM,
    SP_RANGE_ATTENTION_FORWARD,
    SP_RANGE_ATTENTION_BACKWARD,
    SP_RANGE_COLLECTIVE,
    SP_RANGES
} sp_range_kind;

typedef struct sp_uncalibrated {
    double least[SP_RANGES], most[SP_RANGES]; // x asked for outside the table; 0, 0: none
    double table_least[SP_RANGES], table_most[SP_RANGES];
} sp_uncalibrated;

// "gemm: cube edge 120 to 980 (calibrated 1024 to 10240)" and the like, one line per kind used
// outside its table, and one for attention both ways. Returns the number of lines.
int sp_uncalibrated_lines(const sp_uncalibrated *use, char lines[SP_RANGES][160]);
json_t *sp_uncalibrated_json(const sp_uncalibrated *use);

typedef struct sp_op_timer {
    const sp_cluster *cluster;
    const sp_profile *profile;
    sp_uncalibrated *uncalibrated; // may be NULL
    // The spine and PCIe, which slow collectives by algorithm too; NULL: NVLink and NICs alone do.
    const struct sp_i_spine_lines *spine;
    bool graphed; // kernels are replayed from a captured graph (the profile's decode.kernel_s)
} sp_op_timer;

// One GEMM in bf16 over `tokens`, the other two dimensions as the pass has them.
typedef enum sp_gemm_pass {
    SP_GEMM_TOKENS_OUT, // tokens x k times k x n: forward and input gradient
    SP_GEMM_TOKENS_IN,  // n x tokens times tokens x k: weight gradient
} sp_gemm_pass;

// From the table of this n and k where the profile has one, else by the profile's tile model, else
// max(FLOPs / rate(cube edge), bytes / memory rate) + launch floor.
double sp_time_gemm(const sp_op_timer *timer, sp_gemm_pass pass, double tokens, double n, double k);

// `count` equal products, of an expert's weights each with `tokens` rows: in one launch where the
// profile says what few rows cost (sp_grouped_model) and no table has this n and k; else, by the
// tile model, side by side, or by tables and curves one after another. At least as long as reading
// or writing all weights once takes.
double sp_time_grouped_gemm(const sp_op_timer *timer, sp_gemm_pass pass, int count, double tokens,
                            double n, double k);

// `count` products of FP8 matrices, of experts in one launch; results are BF16. At the profile's
// fp8_gemm rate, which must be stated, with the tiles, few rows of experts and fixed time of its
// products in BF16.
double sp_time_fp8_gemm(const sp_op_timer *timer, sp_gemm_pass pass, int count, double tokens,
                        double n, double k);

// `batch` products m x k times k x n in one launch (unfused attention), of operands whose stored
// rows have `row` elements; without a tile model they count as one GEMM of batch * m rows.
double sp_time_batched_gemm(const sp_op_timer *timer, double batch, double m, double n, double k,
                            double row);

// The highest rate that any GEMM reaches by the curve or the tile model, in FLOP/s.
double sp_gemm_most_rate(const sp_profile *profile);
// The same of products of FP8 matrices.
double sp_gemm_most_fp8_rate(const sp_profile *profile);

// Kernel that moves `bytes`.
double sp_time_memory(const sp_op_timer *timer, double bytes, int kernels);

// One slice of a variable-length attention call: l query tokens after o tokens of context, `heads`
// query heads of head_dim on this rank (where values have other heads than keys, the mean over the
// products of the pass); the share of the time that the slice adds, without the
// launch floor. FLOPs: 4*heads*head_dim per (query, key) pair forward, 2.5 times that backward. The
// causal part, l*l/2 pairs, runs at the causal rate of length l; the rectangle, l*o pairs, at the
// full-mask rate of length sqrt(max(l, x0)*o), at most at the causal rate of length l+o. So the
// slices of a sample never take less than the whole sample does (where the causal rate does not
// fall with length). Below the shortest table point x0 the rate of both falls as l/(l+128), for the
// half tile of 128 keys that a query row computes in vain on average (min(128, x0) where x0 is
// shorter).
//
// Of queries that see w keys at most (HUGE_VAL: all), their own among them: those that begin
// before the window does are causal, and each of the others sees w keys at the rate of length w,
// whose half tile stands for those at both edges of the band, and at most at the full-mask rate of
// the rectangle. Below x0 the rate falls with the shorter of l and w. At most what the slice takes
// with all keys, which a mask leaves; from w = l + o on, that. A wider window takes no less, but
// for slices shorter than x0, where it may be a tenth.
double sp_time_attention_slice(const sp_op_timer *timer, int backward, double l, double o, double w,
                               double heads, double head_dim);

// A rectangle of l queries over o earlier keys in a call of its own, at the rate that the profile's
// table of such blocks has at length sqrt(l*o); shorter than the table it takes what its first
// does. Without the table: what o = l tokens of context add to a slice of l, over l*l pairs.
double sp_time_attention_block(const sp_op_timer *timer, int backward, double l, double o,
                               double heads, double head_dim);

// One slice as above, of a piece that a CP rank holds of a slice, where others hold the keys and
// queries around it. Its rows fill whole tiles of 128 queries (min(128, x0) where x0 is shorter),
// so that a piece takes what one of whole tiles takes (WLB-LLM, arXiv 2503.17924). The rectangle
// has no half tiles of keys, and from a whole tile on a piece of any length reaches its rate in a
// variable-length call (DistCA, arXiv 2510.18121): there the rate does not fall below x0. Not
// continuous in l. With a window of w keys the rows of the tiles take what they do above.
double sp_time_attention_piece(const sp_op_timer *timer, int backward, double l, double o, double w,
                               double heads, double head_dim);

// The launch floor of `kernels` kernels.
double sp_time_launch(const sp_op_timer *timer, int kernels);

// ---- collectives and point-to-point transfers (collective.c): size tables inside a node, else
// alpha-beta with the better of ring and tree ----

// Seconds of one collective over `group` for a full tensor of `bytes` (the reduced tensor, the
// gathered result, the tensor before scattering). 0 for a group of one. Inside a node: from
// the profile's tables of times by group size (sp_collective_table); else bytes * f(n) /
// busbw(bytes), f = 2(n-1)/n for all-reduce and (n-1)/n otherwise, busbw from the profile's table,
// else alpha-beta. Across nodes: ring, S*f(n)/B + steps*alpha with B the slower of NVLink and the
// NICs that the members of the least populated node share; tree for all-reduce, 2*log2(nodes)
// steps, where it is faster.
//
// A profile's `algorithm` other than SP_ALGORITHM_PROFILE takes the place of all that, but for
// all-to-all: the model of that algorithm by rates and latencies of links alone, inside a node
// too. Where it has none the ring's serves: a tree and NVLS over nodes for
// anything but an all-reduce, NVLS and hierarchical where nodes have different numbers of members
// or one, NVLS where the cluster has none.
double sp_time_collective(const sp_op_timer *timer, sp_collective kind, sp_group group,
                          double bytes);

// Seconds of a broadcast from one rank of the group to all, or of a reduction to one, over a ring.
double sp_time_rooted(const sp_op_timer *timer, sp_group group, double bytes);

// The algorithm whose model that is: never SP_ALGORITHM_AUTO; SP_ALGORITHM_PROFILE without one.
sp_collective_algorithm sp_collective_choice(const sp_op_timer *timer, sp_collective kind,
                                             sp_group group, double bytes);

// Seconds of a ring over the nodes of `group` in which every rank hands the blocks of a tensor of
// `bytes`, a block for each rank, to the next, size - 1 times. All wait for the hop from node to
// node. It uses as many NICs, up to `nics` and those that the group shares, as make it fastest: a
// rank whose block of n bytes goes by x NICs first gives (x-1)/x of it to x - 1 others of its node,
// and as much is put together behind: 2n(x-1)/x / B_nvlink + n / (x B_nic) (Zeppelin's routing
// layer, arXiv 2509.21841; inferred from its description: nothing of the three overlaps). nics 1:
// send and receive, as Transformer Engine's ring does.
double sp_time_ring(const sp_op_timer *timer, sp_group group, double bytes, int64_t nics);

// How many NICs its hops use, whatever the bytes.
int sp_ring_nics(const sp_op_timer *timer, sp_group group, int64_t nics);

// Seconds of a transfer between two GPUs: latency + bytes / rate of NVLink, or of one GPU's share
// of the node's NICs.
double sp_time_p2p(const sp_op_timer *timer, double bytes, int crosses_node);

#endif
