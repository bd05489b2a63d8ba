#include "sim/cost/cost_private.h"

#include <math.h>

// Sizes of packs that are tried grow by this much, and at first by so many tokens; where the least
// time per token may lie between two of them, so many lie between.
#define GROWTH (1.0 / 256.0)
#define LEAST_STEP 8.0
#define FINER 16

// Classes of stages that go through the sizes of packs together.
enum { AT_ONCE = 8 };

// The largest pack of a size, and the largest that is thought of.
#define FIRST_SIZE 256.0
#define MOST_TOKENS 16777216.0

const double sp_i_unit_share[SP_I_PASSES] = {
    [SP_PASS_F] = 0.5, [SP_PASS_I] = 0.25, [SP_PASS_W] = 0.25};

// Share of the least time per token that a slope keeps; slope 0 is that of every operator alone.
static const double kept[SP_LEAST_SLOPES] = {0.0, 1.0, 0.98, 0.95, 0.9};

static void find_limit(sp_cost_model *cost);
static void find_lines(sp_cost_model *cost, int first, int classes);

static sp_op_timer silent_timer(const sp_cost_model *cost)
{
    return (sp_op_timer){.cluster = cost->cluster, .profile = cost->profile};
}

static double of_stage(const sp_model *model, const sp_stage *stage,
                       double of_part[SP_I_PARTS][SP_I_PASSES], sp_pass pass)
{
    double of_layers = 0.0;
    for (int k = 0; k < sp_model_kinds(model); k++) {
        of_layers += sp_stage_count(stage, model, k) * of_part[sp_i_part_of_kind(k)][pass];
    }
    return of_layers + stage->embedding * of_part[SP_PART_EMBEDDING][pass] +
           stage->head * of_part[SP_PART_HEAD][pass];
}

static sp_least_work least_of(const sp_cost_model *cost, sp_i_least_work *parts,
                              const sp_stage *stage)
{
    double unit_s = cost->profile->host.unit_s;
    const sp_model *model = cost->model;
    sp_least_work least = {
        .f_token_s = of_stage(model, stage, parts->token_s, SP_PASS_F),
        .f_square_s = of_stage(model, stage, parts->square_s, SP_PASS_F),
        .i_token_s = of_stage(model, stage, parts->token_s, SP_PASS_RECOMPUTE) +
                     of_stage(model, stage, parts->token_s, SP_PASS_I),
        .i_square_s = of_stage(model, stage, parts->square_s, SP_PASS_RECOMPUTE) +
                      of_stage(model, stage, parts->square_s, SP_PASS_I),
        .f_pack_s = sp_i_unit_share[SP_PASS_F] * unit_s,
        .i_pack_s = sp_i_unit_share[SP_PASS_I] * unit_s,
    };
    least.b_token_s = least.i_token_s + of_stage(model, stage, parts->token_s, SP_PASS_W);
    least.b_square_s = least.i_square_s + of_stage(model, stage, parts->square_s, SP_PASS_W);
    least.b_pack_s = least.i_pack_s + sp_i_unit_share[SP_PASS_W] * unit_s;
    for (int k = 0; k < sp_model_kinds(model); k++) {
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            least.seen_s[k] += sp_stage_count(stage, model, k) * parts->seen_s[k][pass];
        }
    }
    return least;
}

void sp_i_least_work_find(sp_cost_model *cost)
{
    sp_op_timer timer = silent_timer(cost);
    sp_i_least_work parts;
    sp_i_least_work whole;
    sp_i_pack_least_work(cost->packs, &timer, false, &parts);
    sp_i_pack_least_work(cost->packs, &timer, true, &whole);
    for (int c = 0; c < cost->classes; c++) {
        cost->least[c] = least_of(cost, &parts, &cost->class_stage[c]);
        cost->least[SP_LEAST_SLOPES * cost->classes + c] =
            least_of(cost, &whole, &cost->class_stage[c]);
    }
    for (int s = 0; s < sp_layout_vstages(cost->layout); s++) {
        const sp_least_work *least = sp_cost_model_least_work(cost, s, 0);
        cost->work.f_token_s += least->f_token_s + least->b_token_s;
        cost->work.f_square_s += least->f_square_s + least->b_square_s;
        for (int k = 0; k < SP_LAYER_KINDS; k++) {
            cost->work.seen_s[k] += least->seen_s[k];
        }
    }
    find_limit(cost);
}

double sp_cost_model_limit_s(const sp_cost_model *cost, double tokens, double pairs2)
{
    return tokens * cost->limit_token_s + pairs2 * cost->limit_pair2_s;
}

void sp_sample_sums_add(sp_sample_sums *sums, const sp_model *model, int64_t tokens)
{
    double n = (double)tokens;
    sums->tokens += n;
    sums->squares += n * n;
    for (int k = 0; sp_model_least_seen(model) > 0 && k < sp_model_kinds(model); k++) {
        sp_model space;
        sums->seen[k] += sp_model_pairs2(sp_model_of_kind(model, k, &space), 0.0, n);
    }
}

double sp_least_work_s(const sp_least_work *least, const sp_sample_sums *sums)
{
    double work_s = sums->tokens * (least->f_token_s + least->b_token_s) +
                    sums->squares * (least->f_square_s + least->b_square_s);
    for (int k = 0; k < SP_LAYER_KINDS; k++) {
        work_s += sums->seen[k] * least->seen_s[k];
    }
    return work_s;
}

// Once for all classes: sizes of known ones have tokens.
static void make_known(sp_cost_model *cost)
{
    bool known = cost->sizes[0].tokens > 0.0;
    for (int c = 0; !known && c < cost->classes; c += AT_ONCE) {
        find_lines(cost, c, cost->classes - c < AT_ONCE ? cost->classes - c : AT_ONCE);
    }
}

static const sp_least_work *least_of_class(sp_cost_model *cost, int class, int slope)
{
    if (slope > 0 && slope < SP_LEAST_SLOPES) {
        make_known(cost);
    }
    return &cost->least[slope * cost->classes + class];
}

const sp_least_work *sp_cost_model_least_work(sp_cost_model *cost, int vstage, int slope)
{
    return least_of_class(cost, cost->class_of_vstage[vstage], slope > 0 ? slope : SP_LEAST_SLOPES);
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
    make_known(cost);
    return &cost->sizes[class * SP_LEAST_SIZES];
}

// ---- the limit of any layout ----

// Of any product by a curve, tiles or a table.
static double best_gemm_rate(const sp_profile *profile)
{
    double best = sp_gemm_most_rate(profile);
    for (int t = 0; t < profile->gemm_tables; t++) {
        const sp_gemm_table *table = &profile->gemm[t];
        double flops_per_token = 2.0 * (double)table->n * (double)table->k;
        for (int i = 0; i < table->time_s.points; i++) {
            best = fmax(best, flops_per_token * table->time_s.x[i] / table->time_s.y[i]);
        }
    }
    return best;
}

// Seconds for each token of the products of one part in one pass, on one GPU.
static double products_s(const sp_inventory *inventory, double rate, double fp8_rate)
{
    double token_s = 0.0;
    for (int i = 0; i < inventory->count; i++) {
        const sp_op *op = &inventory->ops[i];
        if (op->kind == SP_OP_GEMM) {
            // The dimension of the tokens is 0.
            double weights = (double)(op->m > 0 ? op->m : 1) * (double)(op->n > 0 ? op->n : 1) *
                             (double)(op->k > 0 ? op->k : 1);
            token_s += 2.0 * op->repeat * op->token_share * weights /
                       (op->fp8 ? fmax(rate, fp8_rate) : rate);
        }
    }
    return token_s;
}

static double part_products_s(const sp_cost_model *cost, const sp_layout *whole,
                              const sp_model *alike, sp_part part)
{
    static const sp_pass passes[] = {SP_PASS_F, SP_PASS_I, SP_PASS_W};
    const sp_memory_options *memory = &cost->memory;
    double rate = best_gemm_rate(cost->profile);
    double token_s = 0.0;
    for (int p = 0; p < 3; p++) {
        sp_inventory inventory;
        sp_inventory_build(alike, whole, &memory->stack, memory->attention, SP_RECOMPUTE_NONE, part,
                           passes[p], &inventory);
        token_s += products_s(&inventory, rate, sp_gemm_most_fp8_rate(cost->profile));
    }
    return token_s;
}

// The model on one GPU, so that no layout has another limit.
static void find_limit(sp_cost_model *cost)
{
    const sp_layout whole = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .ep = 1, .etp = 1, .chunks = 1};
    const sp_model *model = cost->model;
    const sp_op_timer timer = silent_timer(cost);
    const sp_i_attention attention = {
        .model = model, .layout = &whole, .memory = &cost->memory, .timer = &timer};
    int count[SP_LAYER_KINDS];
    double least_s[2];
    sp_model_count_kinds(model, 0, sp_model_all_layers(model), count);
    cost->limit_token_s = part_products_s(cost, &whole, model, SP_PART_EMBEDDING) +
                          part_products_s(cost, &whole, model, SP_PART_HEAD);
    for (int k = 0; k < sp_model_kinds(model); k++) {
        sp_model space;
        cost->limit_token_s +=
            count[k] *
            part_products_s(cost, &whole, sp_model_of_kind(model, k, &space), SP_PART_LAYER);
    }
    // Pairs are those of the mean layer (sp_model_pairs2).
    sp_i_attention_least_s(&attention, least_s);
    cost->limit_pair2_s = sp_model_all_layers(model) * (least_s[0] + least_s[1]);
}

// ---- packs of every size ----

enum { FORWARD, INPUTS, BACKWARD, SIDES };

// The times of packs on one class, as far as they are known.
typedef struct lines {
    const sp_stage *stage;
    double rate_s[SIDES];                  // least time per token
    double line_s[SP_LEAST_SLOPES][SIDES]; // beyond the lines of the slopes
    double size_s[SP_LEAST_SIZES][SIDES];  // beyond the least time per token, by size
} lines;

typedef struct scan {
    const sp_cost_model *cost;
    sp_op_timer timer;
    int classes;
    lines of[AT_ONCE];
} scan;

typedef double part_times[SP_I_PARTS][SP_I_PASSES];

static void add_parts(const scan *s, const sp_stage *stage, part_times of_part,
                      double time_s[SIDES])
{
    const sp_model *model = s->cost->model;
    time_s[FORWARD] = of_stage(model, stage, of_part, SP_PASS_F);
    time_s[INPUTS] = of_stage(model, stage, of_part, SP_PASS_RECOMPUTE) +
                     of_stage(model, stage, of_part, SP_PASS_I);
    time_s[BACKWARD] = time_s[INPUTS] + of_stage(model, stage, of_part, SP_PASS_W);
}

// Every scan goes through the same sizes.
static part_times *times_of_size(const scan *s, int size, double tokens)
{
    sp_i_size_times *times = s->cost->tried;
    SP_ASSERT(size < SP_I_SIZES_TRIED && size <= times->count);
    if (size == times->count) {
        sp_i_pack_token_time(s->cost->packs, &s->timer, tokens, times->of_part[size]);
        times->count++;
    }
    return &times->of_part[size];
}

static double step_of(double tokens)
{
    return fmax(LEAST_STEP, tokens * GROWTH);
}

// Packs of more than `tokens`, up to `next`, take at least the time of one of `tokens`: times do
// not fall with size.
typedef void (*visit)(scan *s, double tokens, double next, part_times of_part);

// Merged ranks hold as little as one token's share of a pack.
static void scan_all(scan *s, visit look)
{
    double tokens = 1.0 / s->cost->layout->dp;
    for (int size = 0; tokens < MOST_TOKENS; size++) {
        double next = tokens + step_of(tokens);
        look(s, tokens, next, *times_of_size(s, size, tokens));
        tokens = next;
    }
}

// From above: what packs of `tokens` take.
static void find_rate(scan *s, double tokens, double next SP_UNUSED, part_times of_part)
{
    for (lines *l = s->of; l < s->of + s->classes; l++) {
        double time_s[SIDES];
        add_parts(s, l->stage, of_part, time_s);
        for (int side = 0; side < SIDES; side++) {
            l->rate_s[side] = fmin(l->rate_s[side], time_s[side] / tokens);
        }
    }
}

// From below, with finer steps where the least may be.
static void lower_rate(scan *s, double tokens, double next, part_times of_part)
{
    bool near[AT_ONCE];
    bool any = false;
    for (int c = 0; c < s->classes; c++) {
        double time_s[SIDES];
        add_parts(s, s->of[c].stage, of_part, time_s);
        near[c] = false;
        for (int side = 0; side < SIDES; side++) {
            near[c] = near[c] || time_s[side] / next < s->of[c].line_s[0][side];
        }
        any = any || near[c];
    }
    double step = (next - tokens) / FINER;
    for (int i = 0; any && i < FINER; i++) {
        part_times at;
        sp_i_pack_token_time(s->cost->packs, &s->timer, tokens + i * step, at);
        for (int c = 0; c < s->classes; c++) {
            double at_s[SIDES];
            add_parts(s, s->of[c].stage, at, at_s);
            for (int side = 0; near[c] && side < SIDES; side++) {
                s->of[c].rate_s[side] =
                    fmin(s->of[c].rate_s[side], at_s[side] / (tokens + (i + 1) * step));
            }
        }
    }
}

static void lower_lines(scan *s, double tokens, double next, part_times of_part)
{
    for (lines *l = s->of; l < s->of + s->classes; l++) {
        double time_s[SIDES];
        add_parts(s, l->stage, of_part, time_s);
        for (int side = 0; side < SIDES; side++) {
            for (int slope = 1; slope < SP_LEAST_SLOPES; slope++) {
                double beyond_s = fmax(0.0, time_s[side] - kept[slope] * l->rate_s[side] * next);
                l->line_s[slope][side] = fmin(l->line_s[slope][side], beyond_s);
            }
            double beyond_s = fmax(0.0, time_s[side] - l->rate_s[side] * next);
            for (int size = SP_LEAST_SIZES - 1; size >= 0; size--) {
                if (tokens < ldexp(FIRST_SIZE, size)) {
                    l->size_s[size][side] = fmin(l->size_s[size][side], beyond_s);
                }
            }
        }
    }
}

static void begin_lines(lines *l, const sp_stage *stage)
{
    l->stage = stage;
    for (int side = 0; side < SIDES; side++) {
        l->rate_s[side] = HUGE_VAL;
        for (int slope = 0; slope < SP_LEAST_SLOPES; slope++) {
            l->line_s[slope][side] = HUGE_VAL;
        }
        for (int size = 0; size < SP_LEAST_SIZES; size++) {
            l->size_s[size][side] = HUGE_VAL;
        }
    }
}

static void keep_lines(sp_cost_model *cost, int class, const lines *l)
{
    const sp_least_work *best = &cost->least[class];
    for (int slope = 1; slope < SP_LEAST_SLOPES; slope++) {
        sp_least_work *least = &cost->least[slope * cost->classes + class];
        *least = *best;
        least->f_token_s = kept[slope] * l->rate_s[FORWARD];
        least->i_token_s = kept[slope] * l->rate_s[INPUTS];
        least->b_token_s = kept[slope] * l->rate_s[BACKWARD];
        least->f_pack_s += l->line_s[slope][FORWARD];
        least->i_pack_s += l->line_s[slope][INPUTS];
        least->b_pack_s += l->line_s[slope][BACKWARD];
    }
    for (int size = 0; size < SP_LEAST_SIZES; size++) {
        cost->sizes[class * SP_LEAST_SIZES + size] =
            (sp_least_size){.tokens = ldexp(FIRST_SIZE, size),
                            .f_pack_s = best->f_pack_s + l->size_s[size][FORWARD],
                            .i_pack_s = best->i_pack_s + l->size_s[size][INPUTS],
                            .b_pack_s = best->b_pack_s + l->size_s[size][BACKWARD]};
    }
}

static void find_lines(sp_cost_model *cost, int first, int classes)
{
    scan s = {.cost = cost, .timer = silent_timer(cost), .classes = classes};
    for (int c = 0; c < classes; c++) {
        begin_lines(&s.of[c], &cost->class_stage[first + c]);
    }
    scan_all(&s, find_rate);
    for (int c = 0; c < classes; c++) {
        for (int side = 0; side < SIDES; side++) {
            s.of[c].line_s[0][side] = s.of[c].rate_s[side];
        }
    }
    scan_all(&s, lower_rate);
    scan_all(&s, lower_lines);
    for (int c = 0; c < classes; c++) {
        keep_lines(cost, first + c, &s.of[c]);
    }
}
