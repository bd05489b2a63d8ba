// A lower bound of a step's time where memory is limited: what is held, times how long, goes into
// the memory there is, times the step (the law of Little, Operations Research 9, 1961).
//
// The model is that of bounds.h, but every virtual stage v has costs of its own. Rank r has M bytes
// beside its states. A token takes c bytes on v from the start of its forward pack there to the end
// of its backward pack (or input gradient); while a pack of n tokens runs it needs f n, in the
// backward i n bytes more.
//
// Passes. On v a token of forward pack k and backward pack j is held while k passes v and every
// later stage and j comes back. A pass of n tokens of content phi lasts o + phi or longer, for all
// of them n (o + phi). Per token, content has the density w(a) = token + 2 a square at place a of
// its sample, so by Cauchy and Schwarz n phi >= (sum of sqrt(w) over the pack)^2, and over m packs
//     sum of n phi >= R^2 / m,    R = sum of the integrals of sqrt(w) over all samples.
// Samples that are not cut have at least D = n phi of their own each, over g ranks that share one a
// g-th of it. R counts these by m, where a pack counts once for each of its ranks.
//
// Chain. On the last stage all later tokens of the sample run forward and backward between the
// start of a token's forward and the end of its backward, in any cut: the forward of the first
// slice to come back waits for them, and slices come back in reverse. In place of the passes of the
// last stage this is
//     L = sum over samples of the integral over a of F[a, n) + B[a, n)
// and, while earlier stages hold the token, one fixed cost of each pass. Over g ranks that share a
// sample F and B take a g-th.
//
// Work. m forward packs and m' backward packs cost rank q the time A + (o m + o' m')/d, with d
// data-parallel ranks and A its work, the way of the first pack to it, and, where the backward is
// not split, the way of the last one back from it. Memory needs B + (P/m + P'/m')/(d M), with P and
// P' the bytes times R^2, and B all that does not depend on m, for q any rank. Both hold, and the
// best m for a given e = (o m + o' m')/d leaves
//     T >= max(A + e, B + Q/e),   Q = (sqrt(o P) + sqrt(o' P'))^2 / (d^2 M),
// which is least where they meet: T = (A + B + sqrt((A - B)^2 + 4 Q)) / 2.
// Ranks may hold different samples: m, work and bytes are sums over them, and by Cauchy and Schwarz
// R^2/m of the sums is no more than the sum.
//
// Ramps. Memory fills no faster than forwards run, k = max of c / token bytes a second over the
// rank's chunks, and empties so (k'). Count tokens from when their own share of a forward is over
// to when that of their backward begins: they take min(M, k t, k' (T - t)) bytes at most, and
// passes of v itself count half. Where T >= M/k + M/k' the area is M T - M^2 (1/k + 1/k')/2, else
// the bound does not follow, nor does memory matter. What running packs need more does not add to
// this: the better of both ways counts.
//
// Repeats. Where forwards may run again, and backwards stay as long, a token whose forward does so
// takes c' < c bytes until then. Repeats of x seconds a rank r make A + e + x of its work, as rank
// q = r. They are of x d / w tokens at most, w the least density of a forward on v, take from R no
// more than x d times the most of sqrt(w') / w of a place, w' the density of a pass that is
// counted, and from L (D) no more than the longest hold of a token each. So shares of what c - c'
// takes part in are there for any x. The bound is the least over x, on intervals: time of the lower
// end, area of the upper one.
//
// The step begins for rank r after the way to its first stage, and ends for it before the way back
// to the first of all and what follows there.
#ifndef SLIMPACK_SOLVER_BOUNDS_BOUNDS_MEMORY_H
#define SLIMPACK_SOLVER_BOUNDS_BOUNDS_MEMORY_H

#include "sim/cost/cost_model.h"
#include "solver/bounds/bounds.h"

typedef struct sp_bound_stage {
    int rank;            // pipeline rank
    sp_least_work least; // i_*: whole backward where it is not split
    // Bytes of a token on one rank.
    double held_bytes, f_bytes, i_bytes;
    double repeated_bytes; // in place of held_bytes where a forward is to run again
} sp_bound_stage;

typedef struct sp_bound_memory {
    const sp_bound_stage *stage; // [stages], virtual ones
    int stages, ranks;           // pipeline ranks
    const double *room_bytes;    // [ranks], beside the states; NULL: no limit
    const double *tail_s;        // [ranks], after the last action
    double p2p_s;
    bool split, whole; // weight gradients apart; samples are not cut
    bool repeats;      // forwards may run again
} sp_bound_memory;

// Without limits A alone: of the rank with the most of work, way to it and way back. Falls with
// memory. O(samples * stages that differ from their neighbours + stages^2).
double sp_bound_memory_s(const sp_bound_memory *memory, const sp_bound_batch *batch);

#endif
