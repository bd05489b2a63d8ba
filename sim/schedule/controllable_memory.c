// V-Half and V-Min (Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362):
// a building block of one micro-batch in unit passes is repeated every six
// passes; how long it holds its chunks sets the memory. The repetition is then squeezed and
// reordered within that memory, here by justification. Longest-stage bubble with F = I = W in unit
// passes, from p micro-batches on: V-Min 4p-9 for p = 3k+2, else 4p-5 (4p-7 for p = 3k); V-Half
// 3p-7 for even p, 3p-4 for odd.
#include <stdlib.h>

#include "sim/schedule/v_order.h"

// Passes from one rank to the next on the way down (F of chunk 0, I of chunk 1) and up (F of chunk
// 1, I of chunk 0), and from each of the four to the next where the V turns: F 0 to 1 on rank p-1,
// F to I of chunk 1 on rank 0, I 1 to 0 on rank p-1.
typedef struct block {
    int down, up;
    int turn[3];
    int most_microbatches; // a rank's activations
} block;

enum { PERIOD = 6, BLOCK_OPS = 6, ROUNDS = 3 };

// An operation of a rank in the block.
typedef struct block_op {
    int64_t pass;
    int kind, chunk;
} block_op;

static int by_pass(const void *a, const void *b)
{
    const block_op *x = a;
    const block_op *y = b;
    return x->pass < y->pass ? -1 : x->pass > y->pass;
}

// First pass after `after` that has this place in the period.
static int64_t next_pass(int64_t after, int64_t place)
{
    int64_t ahead = (place - after - 1) % PERIOD;
    return after + 1 + (ahead < 0 ? ahead + PERIOD : ahead);
}

// The two W take the places of the period that the four others leave, so that they wait least.
static void place_weight_gradients(block_op ops[BLOCK_OPS])
{
    bool taken[PERIOD] = {false};
    for (int k = 0; k < 4; k++) {
        SP_ASSERT(!taken[ops[k].pass % PERIOD]);
        taken[ops[k].pass % PERIOD] = true;
    }
    int64_t place[2] = {0};
    int found = 0;
    for (int k = 0; k < PERIOD; k++) {
        if (!taken[k]) {
            place[found++] = k;
        }
    }
    int64_t straight[2];
    int64_t crossed[2];
    for (int k = 0; k < 2; k++) {
        straight[k] = next_pass(ops[2 + k].pass, place[k]);
        crossed[k] = next_pass(ops[2 + k].pass, place[1 - k]);
    }
    bool cross = crossed[0] + crossed[1] < straight[0] + straight[1];
    for (int k = 0; k < 2; k++) {
        ops[4 + k] = (block_op){cross ? crossed[k] : straight[k], SP_I_V_W, ops[2 + k].chunk};
    }
}

static void lay_out_rank(const block *b, int pp, int rank, block_op ops[BLOCK_OPS])
{
    int64_t to_last = rank * (int64_t)b->down;
    int64_t from_last = (pp - 1 - rank) * (int64_t)b->up;
    int64_t f1 = (pp - 1) * (int64_t)b->down + b->turn[0];
    int64_t i1 = f1 + (pp - 1) * (int64_t)b->up + b->turn[1];
    int64_t i0 = i1 + (pp - 1) * (int64_t)b->down + b->turn[2];
    ops[0] = (block_op){to_last, SP_I_V_F, 0};
    ops[1] = (block_op){f1 + from_last, SP_I_V_F, 1};
    ops[2] = (block_op){i1 + to_last, SP_I_V_I, 1};
    ops[3] = (block_op){i0 + from_last, SP_I_V_I, 0};
    place_weight_gradients(ops);
    qsort(ops, BLOCK_OPS, sizeof *ops, by_pass);
}

// One rank's block repeated: micro-batch k comes PERIOD * k passes after the first.
static void repeat_block(sp_i_v_order *order, int rank, const block_op ops[BLOCK_OPS])
{
    const sp_i_v_setting *s = order->setting;
    int64_t last = ops[BLOCK_OPS - 1].pass + (int64_t)PERIOD * (s->microbatches - 1);
    int64_t first_period = ops[0].pass / PERIOD;
    for (int64_t period = first_period; period * PERIOD <= last; period++) {
        for (int64_t place = 0; place < PERIOD; place++) {
            for (int k = 0; k < BLOCK_OPS; k++) {
                int64_t microbatch = period - ops[k].pass / PERIOD;
                if (ops[k].pass % PERIOD == place && microbatch >= 0 &&
                    microbatch < s->microbatches) {
                    int vstage = ops[k].chunk == 0 ? rank : 2 * s->pp - 1 - rank;
                    sp_i_v_order_append(order, ops[k].kind, vstage, (int)microbatch);
                }
            }
        }
    }
}

static void schedule_block(sp_i_schedule_job *job, const block *b)
{
    int pp = job->pp;
    int64_t *pass = sp_arena_take(&job->work, 2 * (size_t)pp, sizeof *pass);
    for (int k = 0; k < 2 * pp; k++) {
        pass[k] = 1;
    }
    sp_i_v_setting setting = {.pp = pp,
                              .microbatches = job->microbatches,
                              .duration_ns = {pass, pass, pass},
                              .unit = {SP_I_V_UNIT, 0, -SP_I_V_UNIT},
                              .cap = 2 * (int64_t)b->most_microbatches * SP_I_V_UNIT};
    sp_i_v_order order = sp_i_v_order_new(&job->work, &setting);
    sp_i_v_order best = sp_i_v_order_new(&job->work, &setting);
    if (job->microbatches == 0) {
        return;
    }
    for (int r = 0; r < pp; r++) {
        block_op ops[BLOCK_OPS];
        lay_out_rank(b, pp, r, ops);
        repeat_block(&order, r, ops);
    }
    int64_t best_ns = INT64_MAX;
    sp_i_v_order_improve(&order, ROUNDS, &best, &best_ns);
    sp_i_v_order_emit(&best, job);
}

// The turns are the shortest for which no rank has two operations at one place of the period: the
// passes of the four differ by constants and by multiples of 2 (V-Min) or 3 (V-Half) per rank, so
// what remains to be avoided depends on p modulo 3 or 2.
void sp_i_schedule_v_min(sp_i_schedule_job *job)
{
    int pp = job->pp;
    block b = {.down = 1, .up = 1, .turn = {1, 1, 1}, .most_microbatches = (pp + 4) / 3};
    if (pp % 3 == 0) {
        b.turn[0] = 3;
        b.turn[2] = 3;
    }
    schedule_block(job, &b);
}

void sp_i_schedule_v_half(sp_i_schedule_job *job)
{
    int pp = job->pp;
    block b = {.down = 2, .up = 1, .turn = {2, 1, 1}, .most_microbatches = (pp + 2) / 2};
    if (pp % 2 == 0) {
        b.turn[0] = 5;
        b.turn[2] = 4;
    }
    schedule_block(job, &b);
}
