#include "sim/cost/least_work.h"

#include <math.h>

// Sizes of packs that are tried grow by this much, and at first by so many tokens.
#define GROWTH 0.01
#define LEAST_STEP 8.0

const double sp_i_unit_share[SP_I_PASSES] = {
    [SP_PASS_F] = 0.5, [SP_PASS_I] = 0.25, [SP_PASS_W] = 0.25};

// Share of the best rate per token that a slope keeps.
static const double kept[SP_LEAST_SLOPES] = {1.0, 0.98, 0.95, 0.9};

static sp_op_timer silent_timer(const sp_cost_model *cost);
static double of_stage(const sp_stage *stage, double of_part[SP_I_PARTS][SP_I_PASSES],
                       sp_pass pass);
static sp_least_work least_of(const sp_cost_model *cost, sp_i_least_work *parts,
                              const sp_stage *stage);
static void find_fixed_times(sp_cost_model *cost);

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
    if (slope > 0 && !cost->least_is_known) {
        find_fixed_times(cost);
        cost->least_is_known = true;
    }
    return &cost->least[slope * cost->classes + cost->class_of_vstage[vstage]];
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

// ---- fixed times ----

enum { FORWARD, INPUTS, BACKWARD, SIDES };

// Of one class and slope: best time per token by side, the slope's, and what packs take beyond it.
typedef struct line {
    double best_s[SIDES], token_s[SIDES], pack_s[SIDES];
} line;

// Packs up to `next` take time_s at least, that of a smaller one: times do not fall with size.
// False when no larger pack can matter.
static bool lower(line *l, const double time_s[SIDES], double next)
{
    bool open = false;
    for (int side = 0; side < SIDES; side++) {
        double beyond_s = fmax(0.0, time_s[side] - l->token_s[side] * next);
        l->pack_s[side] = fmin(l->pack_s[side], beyond_s);
        open = open || (l->best_s[side] > 0.0 &&
                        (l->best_s[side] - l->token_s[side]) * next < l->pack_s[side]);
    }
    return open;
}

// A slope's line lies below the time of every size of pack. Merged ranks hold as little as one
// token's share of a pack.
static void find_line(const sp_cost_model *cost, int class, int slope, line *l)
{
    const sp_least_work *best = &cost->least[class];
    const sp_stage *stage = &cost->class_stage[class];
    sp_op_timer timer = silent_timer(cost);
    *l = (line){.best_s = {best->f_token_s, best->i_token_s, best->b_token_s},
                .pack_s = {HUGE_VAL, HUGE_VAL, HUGE_VAL}};
    for (int side = 0; side < SIDES; side++) {
        l->token_s[side] = kept[slope] * l->best_s[side];
    }
    double tokens = 1.0 / cost->layout->dp;
    bool open = true;
    while (open) {
        double of_part[SP_I_PARTS][SP_I_PASSES];
        sp_i_pack_token_time(cost->packs, &timer, tokens, of_part);
        double forward_s = of_stage(stage, of_part, SP_PASS_F);
        double inputs_s =
            of_stage(stage, of_part, SP_PASS_RECOMPUTE) + of_stage(stage, of_part, SP_PASS_I);
        double time_s[SIDES] = {forward_s, inputs_s,
                                inputs_s + of_stage(stage, of_part, SP_PASS_W)};
        double next = tokens + fmax(LEAST_STEP, tokens * GROWTH);
        open = lower(l, time_s, next);
        tokens = next;
    }
}

static void find_fixed_times(sp_cost_model *cost)
{
    for (int slope = 1; slope < SP_LEAST_SLOPES; slope++) {
        for (int c = 0; c < cost->classes; c++) {
            line l;
            find_line(cost, c, slope, &l);
            sp_least_work *least = &cost->least[slope * cost->classes + c];
            *least = cost->least[c];
            least->f_token_s = l.token_s[FORWARD];
            least->i_token_s = l.token_s[INPUTS];
            least->b_token_s = l.token_s[BACKWARD];
            least->f_pack_s += l.pack_s[FORWARD];
            least->i_pack_s += l.pack_s[INPUTS];
            least->b_pack_s += l.pack_s[BACKWARD];
        }
    }
}
