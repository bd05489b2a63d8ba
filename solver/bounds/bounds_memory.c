#include "solver/bounds/bounds_memory.h"

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

// Of all samples on one virtual stage.
typedef struct sums {
    double f_root, i_root;   // R
    double f_whole, i_whole; // D
    double chain;            // L
    double work_s;
} sums;

// Of one pipeline rank.
typedef struct rank_sums {
    double work_s, f_pack_s, b_pack_s; // of all its chunks
    double most_bytes;                 // with every token held and running
    double f_bytes_per_s, i_bytes_per_s;
    double to_s, back_s; // of a pack of hardly any token, to its first stage and from it to the end
    bool met;
    // Bytes times seconds: whatever the packs, and times their number.
    double any, f_packs, i_packs;
} rank_sums;

typedef struct area {
    const sp_bound_memory *memory;
    const sums *of;   // [stages]
    rank_sums *ranks; // [ranks]
    double tokens, shares;
} area;

static void sum_stage(const sp_bound_memory *memory, int s, const sp_bound_batch *batch, sums *of);
static void sum_ranks(const area *a);
static double best_s(const area *a, way count, bool ramps);

sp_status sp_bound_memory_s(const sp_bound_memory *memory, const sp_bound_batch *batch,
                            double *bound_s, sp_error *err)
{
    size_t stages = (size_t)memory->stages;
    sums *of = sp_calloc(stages, sizeof *of);
    rank_sums *ranks = sp_calloc((size_t)memory->ranks, sizeof *ranks);
    area a = {.memory = memory, .of = of, .ranks = ranks, .shares = batch->ranks};
    sp_status status =
        of != NULL && ranks != NULL ? SP_OK : sp_error_no_memory(err, "a lower bound");
    *bound_s = 0.0;
    if (status == SP_OK && batch->count > 0) {
        for (size_t i = 0; i < batch->count; i++) {
            a.tokens += (double)batch->tokens[i];
        }
        for (size_t s = 0; s < stages; s++) {
            const sp_bound_stage *stage = &memory->stage[s];
            if (s > 0 && memcmp(&stage->least, &stage[-1].least, sizeof stage->least) == 0) {
                of[s] = of[s - 1];
            } else {
                sum_stage(memory, (int)s, batch, &of[s]);
            }
        }
        sum_ranks(&a);
        for (way count = PASSES; count < (memory->whole ? WAYS : WHOLE); count++) {
            *bound_s = fmax(*bound_s, fmax(best_s(&a, count, false), best_s(&a, count, true)));
        }
    }
    sp_free(of);
    sp_free(ranks);
    return status;
}

// The integral of the root of token + 2 a square over a in [0, n).
static double root_of(double token_s, double square_s, double n)
{
    double first = sqrt(token_s);
    double last = sqrt(token_s + 2.0 * square_s * n);
    double sum = first + last;
    return sum > 0.0 ? 2.0 / 3.0 * n * (sum - first * last / sum) : 0.0;
}

static void sum_stage(const sp_bound_memory *memory, int s, const sp_bound_batch *batch, sums *of)
{
    const sp_least_work *c = &memory->stage[s].least;
    double sharers = batch->merged ? batch->ranks : 1.0;
    for (size_t i = 0; i < batch->count; i++) {
        double n = (double)batch->tokens[i];
        of->f_root += root_of(c->f_token_s, c->f_square_s, n);
        of->i_root += root_of(c->i_token_s, c->i_square_s, n);
        of->f_whole += n * n * (c->f_token_s + n * c->f_square_s);
        of->i_whole += n * n * (c->i_token_s + n * c->i_square_s);
        of->chain += n * n *
                     ((c->f_token_s + c->i_token_s) / 2.0 +
                      n * (c->f_square_s + c->i_square_s) * 2.0 / 3.0) /
                     sharers;
        of->work_s += n * (c->f_token_s + c->b_token_s + n * (c->f_square_s + c->b_square_s));
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
        rank->work_s += a->of[s].work_s;
        rank->f_pack_s += c->f_pack_s;
        rank->b_pack_s += c->b_pack_s;
        rank->most_bytes += a->tokens * (stage->held_bytes + fmax(stage->f_bytes, stage->i_bytes));
        rank->f_bytes_per_s = fmax(rank->f_bytes_per_s, rate_of(stage->held_bytes, c->f_token_s));
        rank->i_bytes_per_s = fmax(rank->i_bytes_per_s, rate_of(stage->held_bytes, c->i_token_s));
        to_s += c->f_pack_s + memory->p2p_s;
        back_s = fmax(back_s, memory->tail_s[stage->rank]) + c->i_pack_s + memory->p2p_s;
    }
}

// A token-second of each virtual stage's rank is worth bytes. From the last stage to the first, so
// that the passes of all later stages are known.
static void sum_areas(const area *a, way count, bool ramps)
{
    const sp_bound_memory *memory = a->memory;
    double any = 0.0;
    double f_packs = 0.0;
    double i_packs = 0.0;
    for (int r = 0; r < memory->ranks; r++) {
        a->ranks[r].any = a->ranks[r].f_packs = a->ranks[r].i_packs = 0.0;
    }
    for (int s = memory->stages - 1; s >= 0; s--) {
        const sp_bound_stage *stage = &memory->stage[s];
        const sp_least_work *c = &stage->least;
        const sums *of = &a->of[s];
        bool chain = count == CHAIN && s == memory->stages - 1;
        double held = stage->held_bytes;
        double pass = chain ? 0.0 : ramps ? 0.5 * held : held;
        double f_bytes = pass + (ramps ? 0.0 : stage->f_bytes);
        double i_bytes = pass + (ramps ? 0.0 : stage->i_bytes);
        double f_whole = count == WHOLE ? of->f_whole : 0.0;
        double i_whole = count == WHOLE ? of->i_whole : 0.0;
        double f_root2 = count == WHOLE ? 0.0 : of->f_root * of->f_root;
        double i_root2 = count == WHOLE ? 0.0 : of->i_root * of->i_root;
        rank_sums *rank = &a->ranks[stage->rank];
        rank->any += held * any + f_bytes * (a->tokens * c->f_pack_s + f_whole) +
                     i_bytes * (a->tokens * c->i_pack_s + i_whole);
        rank->f_packs += held * f_packs + f_bytes * f_root2;
        rank->i_packs += held * i_packs + i_bytes * i_root2;
        any += a->tokens * (c->f_pack_s + c->i_pack_s + 2.0 * memory->p2p_s) + f_whole + i_whole;
        if (chain) {
            rank->any += held * of->chain;
            any += of->chain;
        } else {
            f_packs += f_root2;
            i_packs += i_root2;
        }
    }
}

// The least step in which the work of one rank and the memory of another have room.
static double meet_s(const area *a, const rank_sums *work, double work_s, const rank_sums *held,
                     double room_bytes, bool ramps)
{
    double room = held->most_bytes <= room_bytes ? HUGE_VAL : room_bytes;
    double ways_s = held->to_s + held->back_s;
    double memory_s = ways_s + held->any / (a->shares * room);
    double full_s = 0.0; // of both ramps
    if (ramps) {
        full_s = room * (1.0 / held->f_bytes_per_s + 1.0 / held->i_bytes_per_s);
        memory_s += 0.5 * full_s;
    }
    if (!isfinite(memory_s)) {
        return 0.0;
    }
    double root = sqrt(work->f_pack_s * held->f_packs) + sqrt(work->b_pack_s * held->i_packs);
    double packs = root * root / (a->shares * a->shares * room);
    double apart_s = work_s - memory_s;
    double step_s = 0.5 * (work_s + memory_s + sqrt(apart_s * apart_s + 4.0 * packs));
    return step_s - ways_s >= full_s ? step_s : 0.0;
}

static double best_s(const area *a, way count, bool ramps)
{
    const sp_bound_memory *memory = a->memory;
    const rank_sums *most = NULL;
    double most_s = 0.0;
    for (int r = 0; r < memory->ranks; r++) {
        const rank_sums *rank = &a->ranks[r];
        double work_s = rank->work_s / a->shares + rank->to_s;
        work_s += memory->split ? memory->tail_s[r] : rank->back_s;
        if (most == NULL || work_s > most_s) {
            most = rank;
            most_s = work_s;
        }
    }
    sum_areas(a, count, ramps);
    double step_s = 0.0;
    for (int r = 0; r < memory->ranks; r++) {
        const rank_sums *held = &a->ranks[r];
        double room_bytes = memory->room_bytes != NULL ? memory->room_bytes[r] : HUGE_VAL;
        step_s = fmax(step_s, meet_s(a, most, most_s, held, room_bytes, ramps));
    }
    return step_s;
}
