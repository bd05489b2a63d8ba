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

#endif
