// Lower bounds of a step's time: no packing of the given samples, and no order in which the stages
// run the packs, is faster. They hold for the model below, whose times are at most those of the
// cost model, so they hold there too.
//
// The model. One data-parallel rank has p stages in a row. A forward pack of content phi (the sum
// of its slices' work) takes x = o + phi on every stage, at least, o the fixed cost; a backward
// pack y = o' + psi. A pack needs p2p_s from stage to stage. Packs may differ between the two
// passes; slices of a sample go forward in order, backward in reverse. Every stage runs its packs
// in any order of its own and may idle. Stages dearer than the cheapest count as the cheapest,
// except for the last one's work per token (the head).
//
// What all proofs use (I): a forward pack k starts on the last stage not before
//     S + (p-1)(x_k + p2p),   S: time of the forward packs that the last stage starts before k.
// A pack j of S goes before k on the first stage, where k waits x_j for it; or j overtakes k on the
// way, at a stage where k has arrived and waits x_j for it. Each j adds x_j to the p-1 passes of k
// itself. By time reversal (II): after the end of a backward pack j on the last stage the step
// lasts R + (p-1)(y_j + p2p), R the time of the backward packs that the last stage runs after j.
#ifndef SLIMPACK_SOLVER_BOUNDS_BOUNDS_H
#define SLIMPACK_SOLVER_BOUNDS_BOUNDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/cost/cost_model.h"

enum { SP_BOUND_SIZES = 14 };

// Fixed cost at least, of packs of up to so many tokens.
typedef struct sp_bound_size {
    double tokens;
    double f_pack_s, b_pack_s;
} sp_bound_size;

// Seconds. A sample of n tokens costs n * token + n*n * square, a slice its part of that.
typedef struct sp_bound_costs {
    int stages; // virtual ones
    double f_token_s, f_square_s;
    double b_token_s, b_square_s; // whole backward
    double i_token_s, i_square_s; // the input gradient's part of it; all where it is not split
    double f_last_token_s, b_last_token_s; // what the last stage takes beyond this
    double f_pack_s, b_pack_s, i_pack_s;   // per pack: forward, whole backward, input gradient
    double p2p_s;
    bool split; // weight gradients run as actions of their own
    // Smaller packs may cost more: tokens rise, fixed costs fall, none below those above. The
    // backward one has the fixed cost of weight gradients in it. Read by sp_bound_growth_s alone.
    sp_bound_size size[SP_BOUND_SIZES];
    int sizes;
} sp_bound_costs;

typedef struct sp_bound_batch {
    const int64_t *tokens; // [count], of whole samples
    size_t count;
    int ranks;   // data-parallel ranks to spread them over
    bool merged; // ranks may share a sample (DP-Merge), which costs nothing here
} sp_bound_batch;

// Pure work of the last stage, evenly spread over the ranks. O(samples), as the next three.
double sp_bound_work_s(const sp_bound_costs *costs, const sp_bound_batch *batch);

// Work, one pack of each pass, and the way of a pack of one token to the last stage before it has
// work and, where the backward is not split, from it after its work.
double sp_bound_simple_s(const sp_bound_costs *costs, const sp_bound_batch *batch);

// A long sample with the others around it. Its forward F lies in some m packs, the largest of
// content >= F/m, and ends on the last stage before its backward starts there. So by (I) and (II)
//     T >= F + B + min_m (o m + (p-1) F/m) + min_m' (o' m' + (p-1) B/m') + (p-1)(o + o' + 2 p2p).
// Another sample of the rank is forward before the end of that forward, or else backward after the
// start of that backward, or both between; each case adds its work on the last stage to the chain:
// + sum of min(F_i, B_i). Over d ranks the others may be elsewhere: with rho the most that work is
// over min(F_i, B_i), the other d-1 ranks hold at least W' - rho (T - T_1), T_1 the chain alone, so
// T >= (W' + rho T_1)/(d-1+rho). The best over all samples; 0 where ranks may share samples. With
// split backward B is the input gradient. Holds for several chunks per rank, too: the proof counts
// the work of the last virtual stage only.
double sp_bound_flow_shop_s(const sp_bound_costs *costs, const sp_bound_batch *batch);

// The flow shop where samples are not cut, m = m' = 1: p (F+B) of the longest and more. With split
// backward its weight gradient follows on the first stage.
double sp_bound_whole_s(const sp_bound_costs *costs, const sp_bound_batch *batch);

// One chunk per rank; stages idle where packs grow or shrink too fast, and packs have fixed costs.
//
// Fill. When forward pack k starts on the last stage, that stage has run the forward packs before,
// of content Phi, and n backward packs. When the last of these started, forward packs of content
// Phi' <= Phi were done, and a sample's first backward slice waits for all of its forward ones: the
// backward content done is at most Bmax(Phi'). With I the idle time so far, (I) says
//     (p-1)(o + phi_k + p2p) <= I + Bmax(Phi') + n o'.
// So between two starts of backward packs, an epoch, forward packs grow no more, and an epoch costs
// o'. E(I, C) is the least o n_F + o' n_B of any order of packs whose forward content reaches C
// with the last of the n_F, and which keeps this. Packs may be taken as large as allowed: content,
// and with it all that follows, only grows, and o and o' fall with the size of a pack. Where they
// do, o' is that of a pack of content Bmax(Phi'), the largest possible one. What an action takes
// beyond its least time counts as idle; what the last stage's forward packs take more than those of
// the cheapest stage is added to the right side.
//
// Drain. The fill with time reversed, by (II): backward packs from the last one back, with forward
// packs between them. After the end of backward pack j, forward packs hold only samples whose
// backward comes after j as a whole, at most Fmax of the backward content after j.
//
// Cut the last stage's time where the forward pack starts with which the content reaches C. Idle
// time, backward packs before the cut, and forward packs up to that one belong to the fill. The
// backward packs before started when less than C was done, so backward content of at least
// B' = B - Bmax(< C) starts after the cut; the drain counts the backward packs from the end that
// reach B', the forward packs after the first of these, and idle time after its end. All that lies
// after the cut, and forward packs there start after the one that reaches C: nothing counts twice.
//     T >= W + min_I [I + E(I, C)] + min_J [J + E'(J, B')]   for every C.
// With split backward the fill counts likewise, with C all forward work, packs of input gradients
// as backward packs, o' with the fixed cost of their weight gradients, which run sooner or later,
// and Bmax of both, for weight gradients may fill, too. One more backward pack, that of the last
// forward pack's samples, follows. Weight gradients may fill all of the drain.
//
// Bmax and Fmax are knapsacks, fractional but for the few longest samples, over all samples of the
// batch, which contain those of any rank; a rank with work >= W/ranks has at least the least
// forward work that any such choice of samples has. E is found by dynamic programming over the cost
// so far, ways of about the same cost merged to the best of each; where that takes too many steps,
// a backward pack keeps a group of forward packs fed as if backward work were enabled at once, and
// the fixed cost of the others in it is part of I. The minima are taken as lower ends of intervals
// of I. O(samples log samples), and some milliseconds.
double sp_bound_growth_s(const sp_bound_costs *costs, const sp_bound_batch *batch);

// ---- within memory ----

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
    double *endless_s; // takes the bound without limits; NULL: nobody asks
} sp_bound_memory;

// Without limits A alone: of the rank with the most of work, way to it and way back. Falls with
// memory. O(samples * stages that differ from their neighbours + stages^2).
double sp_bound_memory_s(const sp_bound_memory *memory, const sp_bound_batch *batch);

// ---- parts of the growth bound ----

// Parts of the growth bound (bounds.h, sp_bound_growth_s).

enum {
    SP_I_WHOLE = 3,                  // longest samples that the knapsack takes only whole
    SP_I_SUBSETS = 1 << SP_I_WHOLE,  // of them
    SP_I_CELLS = 256,                // of the table of the other samples' value
    SP_I_BANDS = SP_BOUND_SIZES + 1, // the last one without end
};

typedef struct sp_i_item {
    double size_s, value_s;
} sp_i_item;

// Most value of samples of limited size. The value of all but the longest samples, which may be
// taken in part, is a concave function; the table has tangents of it.
typedef struct sp_i_knapsack {
    sp_i_item of[SP_I_SUBSETS]; // sums of the subsets of the longest samples
    int subsets;
    double cell_s;
    double value_s[SP_I_CELLS], slope[SP_I_CELLS]; // at the lower end of each cell
} sp_i_knapsack;

// items [count] are reordered. Merged ranks hold any part of a sample each: none is taken only
// whole. Sizes asked for later are at most `most_s`. O(items log items + subsets).
void sp_i_knapsack_init(sp_i_knapsack *k, sp_i_item *items, size_t count,
                        const sp_bound_batch *batch, double most_s);
double sp_i_knapsack_most_s(const sp_i_knapsack *k, double size_s);

// Fixed cost at least, of packs whose content is in (edge of the band before, edge].
typedef struct sp_i_bands {
    double edge_s[SP_I_BANDS], least_s[SP_I_BANDS];
    int count;
} sp_i_bands;

// Fill or drain. In the drain backward packs are counted from the end, and forward packs are what
// may follow them.
typedef struct sp_i_side {
    double hops, p2p_s;
    double extra; // least-stage work to what the last stage takes more for the same packs
    sp_i_bands own, other;
    sp_i_knapsack enabled;
    int group; // own packs fed at once after each counted pack of the other pass
} sp_i_side;

// E of bounds.h: least fixed cost of packs of both passes by which own content reaches cover_s[j],
// with idle time `idle_s`, for each of the ascending covers; limit_s where it is not below it.
// Returns the number of own packs looked at. From `most_steps` on it gives up, and the costs mean
// nothing.
long sp_i_epochs_least_s(const sp_i_side *side, double idle_s, const double *cover_s, int covers,
                         double limit_s, long most_steps, double *cost_s);

#endif
