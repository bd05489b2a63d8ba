#include "sim/cost/cost_private.h"

#include <math.h>

// Sizes of packs that are tried grow by this much, and at first by so many tokens; where the least
// time per token may lie between two of them, so many lie between.
#define GROWTH (1.0 / 256.0)
#define LEAST_STEP 8.0
#define FINER 16

// The largest pack of a size, and the largest that is thought of.
#define FIRST_SIZE 256.0
#define MOST_TOKENS 16777216.0

const double sp_i_unit_share[SP_I_PASSES] = {
    [SP_PASS_F] = 0.5, [SP_PASS_I] = 0.25, [SP_PASS_W] = 0.25};

// Share of the least time per token that a slope keeps; slope 0 is that of every operator alone.
static const double kept[SP_LEAST_SLOPES] = {0.0, 1.0, 0.98, 0.95, 0.9};

static sp_op_timer silent_timer(const sp_cost_model *cost);
static double of_stage(const sp_stage *stage, double of_part[SP_I_PARTS][SP_I_PASSES],
                       sp_pass pass);
static sp_least_work least_of(const sp_cost_model *cost, sp_i_least_work *parts,
                              const sp_stage *stage);
static const sp_least_work *least_of_class(sp_cost_model *cost, int class, int slope);
static void make_known(sp_cost_model *cost, int class);
static void find_lines(sp_cost_model *cost, int class);

void sp_i_least_work_find(sp_cost_model *cost)
{
    sp_op_timer timer = silent_timer(cost);
    sp_i_least_work parts;
    sp_i_pack_least_work(cost->packs, &timer, &parts);
    for (int c = 0; c < cost->classes; c++) {
        cost->least[c] = least_of(cost, &parts, &cost->class_stage[c]);
    }
    for (int s = 0; s < sp_layout_vstages(cost->layout); s++) {
        const sp_least_work *least = sp_cost_model_least_work(cost, s, 0);
        cost->work_per_token_s += least->f_token_s + least->b_token_s;
        cost->work_per_square_s += least->f_square_s + least->b_square_s;
    }
}

const sp_least_work *sp_cost_model_least_work(sp_cost_model *cost, int vstage, int slope)
{
    return least_of_class(cost, cost->class_of_vstage[vstage], slope);
}

static const sp_least_work *least_of_class(sp_cost_model *cost, int class, int slope)
{
    if (slope > 0) {
        make_known(cost, class);
    }
    return &cost->least[slope * cost->classes + class];
}

static int passage_class(const sp_cost_model *cost, int vstage)
{
    const int *of = cost->memory_class_of_vstage;
    return of != NULL ? of[vstage] : cost->class_of_vstage[vstage];
}

const sp_least_work *sp_cost_model_least_passage(sp_cost_model *cost, int vstage, int slope)
{
    return least_of_class(cost, passage_class(cost, vstage), slope);
}

const sp_least_size *sp_cost_model_least_sizes(sp_cost_model *cost, int vstage)
{
    int class = passage_class(cost, vstage);
    make_known(cost, class);
    return &cost->sizes[class * SP_LEAST_SIZES];
}

// Once for each class: sizes of a known one have tokens.
static void make_known(sp_cost_model *cost, int class)
{
    if (cost->sizes[class * SP_LEAST_SIZES].tokens <= 0.0) {
        find_lines(cost, class);
    }
}

static sp_op_timer silent_timer(const sp_cost_model *cost)
{
    return (sp_op_timer){.cluster = cost->cluster, .profile = cost->profile};
}

static double of_stage(const sp_stage *stage, double of_part[SP_I_PARTS][SP_I_PASSES], sp_pass pass)
{
    return stage->layers * of_part[SP_PART_LAYER][pass] +
           stage->embedding * of_part[SP_PART_EMBEDDING][pass] +
           stage->head * of_part[SP_PART_HEAD][pass];
}

static sp_least_work least_of(const sp_cost_model *cost, sp_i_least_work *parts,
                              const sp_stage *stage)
{
    double unit_s = cost->profile->host.unit_s;
    double layers = stage->layers;
    const double *square_s = parts->square_s;
    sp_least_work least = {
        .f_token_s = of_stage(stage, parts->token_s, SP_PASS_F),
        .f_square_s = layers * square_s[SP_PASS_F],
        .i_token_s = of_stage(stage, parts->token_s, SP_PASS_RECOMPUTE) +
                     of_stage(stage, parts->token_s, SP_PASS_I),
        .i_square_s = layers * (square_s[SP_PASS_RECOMPUTE] + square_s[SP_PASS_I]),
        .f_pack_s = sp_i_unit_share[SP_PASS_F] * unit_s,
        .i_pack_s = sp_i_unit_share[SP_PASS_I] * unit_s,
    };
    least.b_token_s = least.i_token_s + of_stage(stage, parts->token_s, SP_PASS_W);
    least.b_square_s = least.i_square_s + layers * square_s[SP_PASS_W];
    least.b_pack_s = least.i_pack_s + sp_i_unit_share[SP_PASS_W] * unit_s;
    return least;
}

// ---- packs of every size ----

enum { FORWARD, INPUTS, BACKWARD, SIDES };

// The times of packs on one class, and what is known of the least so far.
typedef struct scan {
    const sp_cost_model *cost;
    sp_op_timer timer;
    const sp_stage *stage;
    double rate_s[SIDES];                  // least time per token
    double line_s[SP_LEAST_SLOPES][SIDES]; // beyond the lines of the slopes
    double size_s[SP_LEAST_SIZES][SIDES];  // beyond the least time per token, by size
} scan;

static void add_parts(const scan *s, double of_part[SP_I_PARTS][SP_I_PASSES], double time_s[SIDES])
{
    time_s[FORWARD] = of_stage(s->stage, of_part, SP_PASS_F);
    time_s[INPUTS] =
        of_stage(s->stage, of_part, SP_PASS_RECOMPUTE) + of_stage(s->stage, of_part, SP_PASS_I);
    time_s[BACKWARD] = time_s[INPUTS] + of_stage(s->stage, of_part, SP_PASS_W);
}

static void times_at(const scan *s, double tokens, double time_s[SIDES])
{
    double of_part[SP_I_PARTS][SP_I_PASSES];
    sp_i_pack_token_time(s->cost->packs, &s->timer, tokens, s->stage, of_part);
    add_parts(s, of_part, time_s);
}

// Every scan of every class goes through the same sizes.
static void times_of_size(const scan *s, int size, double tokens, double time_s[SIDES])
{
    sp_i_size_times *times = s->cost->tried;
    SP_ASSERT(size < SP_I_SIZES_TRIED && size <= times->count);
    if (size == times->count) {
        sp_i_pack_token_time(s->cost->packs, &s->timer, tokens, NULL, times->of_part[size]);
        times->count++;
    }
    add_parts(s, times->of_part[size], time_s);
}

static double step_of(double tokens)
{
    return fmax(LEAST_STEP, tokens * GROWTH);
}

// Packs of more than `tokens`, up to `next`, take at least the time of one of `tokens`: times do
// not fall with size.
typedef void (*visit)(scan *s, double tokens, double next, const double time_s[SIDES]);

// Merged ranks hold as little as one token's share of a pack.
static void scan_all(scan *s, visit look)
{
    double tokens = 1.0 / s->cost->layout->dp;
    for (int size = 0; tokens < MOST_TOKENS; size++) {
        double time_s[SIDES];
        double next = tokens + step_of(tokens);
        times_of_size(s, size, tokens, time_s);
        look(s, tokens, next, time_s);
        tokens = next;
    }
}

// From above: what packs of `tokens` take.
static void find_rate(scan *s, double tokens, double next, const double time_s[SIDES])
{
    (void)next;
    for (int side = 0; side < SIDES; side++) {
        s->rate_s[side] = fmin(s->rate_s[side], time_s[side] / tokens);
    }
}

// From below, with finer steps where the least may be.
static void lower_rate(scan *s, double tokens, double next, const double time_s[SIDES])
{
    double rate_s[SIDES];
    bool near = false;
    for (int side = 0; side < SIDES; side++) {
        rate_s[side] = time_s[side] / next;
        near = near || rate_s[side] < s->line_s[0][side];
    }
    if (!near) {
        return;
    }
    double step = (next - tokens) / FINER;
    for (int i = 0; i < FINER; i++) {
        double at_s[SIDES];
        times_at(s, tokens + i * step, at_s);
        for (int side = 0; side < SIDES; side++) {
            double least_s = at_s[side] / (tokens + (i + 1) * step);
            rate_s[side] = i == 0 ? least_s : fmin(rate_s[side], least_s);
        }
    }
    for (int side = 0; side < SIDES; side++) {
        s->rate_s[side] = fmin(s->rate_s[side], rate_s[side]);
    }
}

static void lower_lines(scan *s, double tokens, double next, const double time_s[SIDES])
{
    for (int side = 0; side < SIDES; side++) {
        for (int slope = 1; slope < SP_LEAST_SLOPES; slope++) {
            double beyond_s = fmax(0.0, time_s[side] - kept[slope] * s->rate_s[side] * next);
            s->line_s[slope][side] = fmin(s->line_s[slope][side], beyond_s);
        }
        double beyond_s = fmax(0.0, time_s[side] - s->rate_s[side] * next);
        for (int size = SP_LEAST_SIZES - 1; size >= 0; size--) {
            if (tokens < ldexp(FIRST_SIZE, size)) {
                s->size_s[size][side] = fmin(s->size_s[size][side], beyond_s);
            }
        }
    }
}

static void find_lines(sp_cost_model *cost, int class)
{
    const sp_least_work *best = &cost->least[class];
    scan s = {.cost = cost, .timer = silent_timer(cost), .stage = &cost->class_stage[class]};
    for (int side = 0; side < SIDES; side++) {
        s.rate_s[side] = HUGE_VAL;
        for (int slope = 0; slope < SP_LEAST_SLOPES; slope++) {
            s.line_s[slope][side] = HUGE_VAL;
        }
        for (int size = 0; size < SP_LEAST_SIZES; size++) {
            s.size_s[size][side] = HUGE_VAL;
        }
    }
    scan_all(&s, find_rate);
    for (int side = 0; side < SIDES; side++) {
        s.line_s[0][side] = s.rate_s[side];
    }
    scan_all(&s, lower_rate);
    scan_all(&s, lower_lines);
    for (int slope = 1; slope < SP_LEAST_SLOPES; slope++) {
        sp_least_work *least = &cost->least[slope * cost->classes + class];
        *least = *best;
        least->f_token_s = kept[slope] * s.rate_s[FORWARD];
        least->i_token_s = kept[slope] * s.rate_s[INPUTS];
        least->b_token_s = kept[slope] * s.rate_s[BACKWARD];
        least->f_pack_s += s.line_s[slope][FORWARD];
        least->i_pack_s += s.line_s[slope][INPUTS];
        least->b_pack_s += s.line_s[slope][BACKWARD];
    }
    for (int size = 0; size < SP_LEAST_SIZES; size++) {
        cost->sizes[class * SP_LEAST_SIZES + size] =
            (sp_least_size){.tokens = ldexp(FIRST_SIZE, size),
                            .f_pack_s = best->f_pack_s + s.size_s[size][FORWARD],
                            .i_pack_s = best->i_pack_s + s.size_s[size][INPUTS],
                            .b_pack_s = best->b_pack_s + s.size_s[size][BACKWARD]};
    }
}
