#include "solver/bounds/bounds.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"

// How the time that tokens are held for is counted.
typedef enum way {
    PASSES, // of packs of any samples on every stage
    CHAIN,  // on the last one the rest of the sample
    WHOLE,  // of packs of whole samples
    WAYS
} way;

enum { LEVEL, RAMPED, FILLS }; // memory is there from the beginning, or fills and empties

enum { STEPS = 64 }; // intervals of repeats

// Sums over all samples on one virtual stage.
typedef struct sums {
    double f_root, i_root;   // R
    double f_whole, i_whole; // D
    double chain;            // L
    double forward_s, work_s;
} sums;

// Bytes times seconds: whatever the packs, and times their number; of what repeats leave and of
// what they may take away.
enum { STAYS, GOES, PARTS };

typedef struct held_sums {
    double any[PARTS], f_packs[PARTS], i_packs[PARTS];
} held_sums;

// Sums of one pipeline rank.
typedef struct rank_sums {
    double forward_s, work_s, f_pack_s, b_pack_s; // of all its chunks
    double alone_s;                               // A
    double most_bytes;                            // with every token held and running
    double f_bytes_per_s, i_bytes_per_s;
    double to_s, back_s; // of a pack of hardly any token, to its first stage and from it to the end
    bool met;
    held_sums held[WAYS][FILLS];
    // Shares of GOES that a second of repeats takes away at most.
    double any_per_s[WAYS], root_per_s;
} rank_sums;

typedef struct area {
    const sp_bound_memory *memory;
    const sums *of;   // [stages]
    rank_sums *ranks; // [ranks]
    double tokens, longest, shares;
    double sharers; // of a sample
    int ways;
} area;

static void sum_stage(const area *a, int s, const sp_bound_batch *batch, sums *of);
static void sum_ranks(const area *a);
static void sum_held(const area *a, way count, int fill);
static void sum_repeats(const area *a);
static double least_s(const area *a, int rank);

double sp_bound_memory_s(const sp_bound_memory *memory, const sp_bound_batch *batch)
{
    size_t stages = (size_t)memory->stages;
    sums *of = sp_calloc(stages, sizeof *of);
    rank_sums *ranks = sp_calloc((size_t)memory->ranks, sizeof *ranks);
    area a = {.memory = memory,
              .of = of,
              .ranks = ranks,
              .shares = batch->ranks,
              .sharers = batch->merged ? batch->ranks : 1.0,
              .ways = memory->whole ? WAYS : WHOLE};
    double bound_s = 0.0;
    double endless_s = 0.0;
    if (batch->count > 0) {
        for (size_t i = 0; i < batch->count; i++) {
            a.tokens += (double)batch->tokens[i];
            a.longest = fmax(a.longest, (double)batch->tokens[i]);
        }
        for (size_t s = 0; s < stages; s++) {
            const sp_bound_stage *stage = &memory->stage[s];
            if (s > 0 && memcmp(&stage->least, &stage[-1].least, sizeof stage->least) == 0) {
                of[s] = of[s - 1];
            } else {
                sum_stage(&a, (int)s, batch, &of[s]);
            }
        }
        sum_ranks(&a);
        for (int count = PASSES; count < a.ways; count++) {
            for (int fill = LEVEL; fill < FILLS; fill++) {
                sum_held(&a, (way)count, fill);
            }
        }
        if (memory->repeats) {
            sum_repeats(&a);
        }
        for (int r = 0; r < memory->ranks; r++) {
            bound_s = fmax(bound_s, least_s(&a, r));
            endless_s = fmax(endless_s, ranks[r].alone_s);
        }
    }
    if (memory->endless_s != NULL) {
        *memory->endless_s = endless_s;
    }
    sp_free(of);
    sp_free(ranks);
    return bound_s;
}

// The integral of the root of token + 2 a square over a in [0, n).
static double root_of(double token_s, double square_s, double n)
{
    double first = sqrt(token_s);
    double last = sqrt(token_s + 2.0 * square_s * n);
    double sum = first + last;
    return sum > 0.0 ? 2.0 / 3.0 * n * (sum - first * last / sum) : 0.0;
}

static void sum_stage(const area *a, int s, const sp_bound_batch *batch, sums *of)
{
    const sp_least_work *c = &a->memory->stage[s].least;
    for (size_t i = 0; i < batch->count; i++) {
        double n = (double)batch->tokens[i];
        double f_s = n * (c->f_token_s + n * c->f_square_s);
        of->f_root += root_of(c->f_token_s, c->f_square_s, n);
        of->i_root += root_of(c->i_token_s, c->i_square_s, n);
        of->f_whole += n * f_s / a->sharers;
        of->i_whole += n * n * (c->i_token_s + n * c->i_square_s) / a->sharers;
        of->chain += n * n *
                     ((c->f_token_s + c->i_token_s) / 2.0 +
                      n * (c->f_square_s + c->i_square_s) * 2.0 / 3.0) /
                     a->sharers;
        of->forward_s += f_s;
        of->work_s += f_s + n * (c->b_token_s + n * c->b_square_s);
    }
}

static double rate_of(double bytes, double token_s)
{
    return token_s > 0.0 ? bytes / token_s : HUGE_VAL;
}

static void sum_ranks(const area *a)
{
    const sp_bound_memory *memory = a->memory;
    double to_s = 0.0;
    double back_s = 0.0;
    for (int s = 0; s < memory->stages; s++) {
        const sp_bound_stage *stage = &memory->stage[s];
        const sp_least_work *c = &stage->least;
        rank_sums *rank = &a->ranks[stage->rank];
        if (!rank->met) {
            rank->met = true;
            rank->to_s = to_s;
            rank->back_s = fmax(back_s, memory->tail_s[stage->rank]);
        }
        rank->forward_s += a->of[s].forward_s;
        rank->work_s += a->of[s].work_s;
        rank->f_pack_s += c->f_pack_s;
        rank->b_pack_s += c->b_pack_s;
        rank->most_bytes += a->tokens * (stage->held_bytes + fmax(stage->f_bytes, stage->i_bytes));
        rank->f_bytes_per_s = fmax(rank->f_bytes_per_s, rate_of(stage->held_bytes, c->f_token_s));
        rank->i_bytes_per_s = fmax(rank->i_bytes_per_s, rate_of(stage->held_bytes, c->i_token_s));
        to_s += c->f_pack_s + memory->p2p_s;
        back_s = fmax(back_s, memory->tail_s[stage->rank]) + c->i_pack_s + memory->p2p_s;
    }
    for (int r = 0; r < memory->ranks; r++) {
        rank_sums *rank = &a->ranks[r];
        rank->alone_s = rank->work_s / a->shares + rank->to_s +
                        (memory->split ? memory->tail_s[r] : rank->back_s);
    }
}

// From the last stage to the first, so that the passes of all later stages are known.
static void sum_held(const area *a, way count, int fill)
{
    const sp_bound_memory *memory = a->memory;
    double any = 0.0;
    double f_packs = 0.0;
    double i_packs = 0.0;
    for (int s = memory->stages - 1; s >= 0; s--) {
        const sp_bound_stage *stage = &memory->stage[s];
        const sp_least_work *c = &stage->least;
        const sums *of = &a->of[s];
        bool chain = count == CHAIN && s == memory->stages - 1;
        double own = chain ? 0.0 : fill == RAMPED ? 0.5 : 1.0; // passes of this stage
        double f_any = a->tokens * c->f_pack_s + (count == WHOLE ? of->f_whole : 0.0);
        double i_any = a->tokens * c->i_pack_s + (count == WHOLE ? of->i_whole : 0.0);
        double f_root2 = count == WHOLE ? 0.0 : of->f_root * of->f_root;
        double i_root2 = count == WHOLE ? 0.0 : of->i_root * of->i_root;
        double rest = chain ? of->chain : 0.0;
        double stays =
            memory->repeats ? fmin(stage->repeated_bytes, stage->held_bytes) : stage->held_bytes;
        const double held[PARTS] = {stays, stage->held_bytes - stays};
        held_sums *to = &a->ranks[stage->rank].held[count][fill];
        for (int part = STAYS; part < PARTS; part++) {
            bool runs = fill == LEVEL && part == STAYS;
            double f_bytes = own * held[part] + (runs ? stage->f_bytes : 0.0);
            double i_bytes = own * held[part] + (runs ? stage->i_bytes : 0.0);
            to->any[part] += held[part] * (any + rest) + f_bytes * f_any + i_bytes * i_any;
            to->f_packs[part] += held[part] * f_packs + f_bytes * f_root2;
            to->i_packs[part] += held[part] * i_packs + i_bytes * i_root2;
        }
        any += f_any + i_any + 2.0 * a->tokens * memory->p2p_s + rest;
        f_packs += chain ? 0.0 : f_root2;
        i_packs += chain ? 0.0 : i_root2;
    }
}

// The most of sqrt(token + 2 a square) / (own_token + 2 a own_square) over a >= 0.
static double root_rate(double token_s, double square_s, double own_token_s, double own_square_s)
{
    double at = 0.0;
    if (own_square_s > 0.0 && square_s > 0.0) {
        at = fmax(0.0, 0.5 * (own_token_s / own_square_s - 2.0 * token_s / square_s));
    } else if (square_s > 0.0) {
        return HUGE_VAL;
    }
    return sqrt(token_s + 2.0 * at * square_s) / (own_token_s + 2.0 * at * own_square_s);
}

static double share_of(double part, double all)
{
    return part > 0.0 ? part / all : 0.0;
}

static void sum_repeats(const area *a)
{
    const sp_bound_memory *memory = a->memory;
    const sp_least_work *last = &memory->stage[memory->stages - 1].least;
    double n = a->longest;
    double chain_s =
        n * (last->f_token_s + last->i_token_s + n * (last->f_square_s + last->i_square_s));
    double token[WAYS]; // of one token the most of all that is held
    token[PASSES] = token[WHOLE] = 1.0 / a->tokens;
    token[CHAIN] =
        fmax(token[PASSES], share_of(chain_s / a->sharers, a->of[memory->stages - 1].chain));
    for (int s = memory->stages - 1; s >= 0; s--) {
        const sp_least_work *own = &memory->stage[s].least;
        rank_sums *rank = &a->ranks[memory->stage[s].rank];
        double f_s = n * (own->f_token_s + n * own->f_square_s) / a->sharers;
        double i_s = n * (own->i_token_s + n * own->i_square_s) / a->sharers;
        token[WHOLE] = fmax(token[WHOLE], share_of(f_s, a->of[s].f_whole));
        token[WHOLE] = fmax(token[WHOLE], share_of(i_s, a->of[s].i_whole));
        for (int count = PASSES; count < a->ways; count++) {
            double per_s = a->shares * token[count] / own->f_token_s;
            rank->any_per_s[count] = fmax(rank->any_per_s[count], per_s);
        }
        for (int later = s; later < memory->stages; later++) {
            const sp_least_work *c = &memory->stage[later].least;
            double f_root = root_rate(c->f_token_s, c->f_square_s, own->f_token_s, own->f_square_s);
            double i_root = root_rate(c->i_token_s, c->i_square_s, own->f_token_s, own->f_square_s);
            double per_s = a->shares * fmax(share_of(f_root, a->of[later].f_root),
                                            share_of(i_root, a->of[later].i_root));
            rank->root_per_s = fmax(rank->root_per_s, per_s);
        }
    }
}

// The rest of a share.
static double left_of(double per_s, double repeats_s)
{
    return repeats_s > 0.0 ? fmax(0.0, 1.0 - repeats_s * per_s) : 1.0;
}

// The least step in which the work of one rank and the memory of another, `held`, have room, with
// repeats of so many seconds.
static double meet_s(const area *a, const rank_sums *work, double work_s, const rank_sums *held,
                     double room_bytes, double repeats_s, way count, int fill)
{
    const held_sums *sum = &held->held[count][fill];
    double any_left = left_of(held->any_per_s[count], repeats_s);
    double root_left = left_of(held->root_per_s, repeats_s);
    double any = sum->any[STAYS] + any_left * sum->any[GOES];
    double f_packs = sum->f_packs[STAYS] + root_left * root_left * sum->f_packs[GOES];
    double i_packs = sum->i_packs[STAYS] + root_left * root_left * sum->i_packs[GOES];
    double ways_s = held->to_s + held->back_s;
    double memory_s = ways_s + any / (a->shares * room_bytes);
    double full_s = 0.0; // of both ramps
    if (fill == RAMPED) {
        full_s = room_bytes * (1.0 / held->f_bytes_per_s + 1.0 / held->i_bytes_per_s);
        memory_s += 0.5 * full_s;
    }
    if (!isfinite(memory_s)) {
        return 0.0; // nothing is held
    }
    double root = sqrt(work->f_pack_s * f_packs) + sqrt(work->b_pack_s * i_packs);
    double packs = root * root / (a->shares * a->shares * room_bytes);
    double apart_s = work_s - memory_s;
    double step_s = 0.5 * (work_s + memory_s + sqrt(apart_s * apart_s + 4.0 * packs));
    return step_s - ways_s >= full_s ? step_s : 0.0;
}

// Over the ways to count what is held.
static double most_s(const area *a, const rank_sums *work, double work_s, const rank_sums *held,
                     double room_bytes, double repeats_s)
{
    double step_s = work_s;
    for (int count = PASSES; count < a->ways; count++) {
        for (int fill = LEVEL; fill < FILLS; fill++) {
            step_s = fmax(step_s,
                          meet_s(a, work, work_s, held, room_bytes, repeats_s, (way)count, fill));
        }
    }
    return step_s;
}

// Of all that one rank may do.
static double least_s(const area *a, int r)
{
    const rank_sums *held = &a->ranks[r];
    const rank_sums *most = &a->ranks[0];
    for (int q = 1; q < a->memory->ranks; q++) {
        most = a->ranks[q].alone_s > most->alone_s ? &a->ranks[q] : most;
    }
    if (a->memory->room_bytes == NULL || held->most_bytes <= a->memory->room_bytes[r]) {
        return most->alone_s;
    }
    double room_bytes = a->memory->room_bytes[r];
    if (!a->memory->repeats) {
        return most_s(a, most, most->alone_s, held, room_bytes, 0.0);
    }
    double all_s = held->forward_s / a->shares;
    double step_s = HUGE_VAL;
    for (int i = 0; i <= STEPS; i++) {
        double from_s = all_s * i / STEPS;
        double to_s = i < STEPS ? all_s * (i + 1) / STEPS : HUGE_VAL;
        double both_s = fmax(most_s(a, most, most->alone_s, held, room_bytes, to_s),
                             most_s(a, held, held->alone_s + from_s, held, room_bytes, to_s));
        step_s = fmin(step_s, both_s);
    }
    return step_s;
}
