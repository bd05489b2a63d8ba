#include "sim/cost/op_time.h"

#include <math.h>
#include <stdio.h>

#include "sim/cost/cost_private.h"

// Keys and queries of one FlashAttention tile (Dao, arXiv 2307.08691, section 3.3).
#define TILE 128.0
#define BYTES_BF16 2.0

static const struct {
    const char *kind, *x;
} range_texts[SP_RANGES] = {{"gemm", "cube edge"},
                            {"attention forward", "length"},
                            {"attention backward", "length"},
                            {"collective", "bytes"}};

// Elements of bf16 in the 16 bytes that rows must be aligned to.
#define ALIGNED 8.0

// The curves of one pass, and their shortest point.
typedef struct attention_rates {
    const sp_curve *causal, *full;
    double first;
} attention_rates;

static void note_range(sp_uncalibrated *use, sp_range_kind kind, double least, double most,
                       double first, double last)
{
    if (use->most[kind] <= 0.0) {
        use->least[kind] = least;
        use->most[kind] = most;
        use->table_least[kind] = first;
        use->table_most[kind] = last;
        return;
    }
    use->least[kind] = fmin(use->least[kind], least);
    use->most[kind] = fmax(use->most[kind], most);
    // Several tables of one kind: the range that all of them cover.
    use->table_least[kind] = fmax(use->table_least[kind], first);
    use->table_most[kind] = fmin(use->table_most[kind], last);
}

int sp_uncalibrated_lines(const sp_uncalibrated *use, char lines[SP_RANGES][160])
{
    const sp_range_kind forward = SP_RANGE_ATTENTION_FORWARD;
    const sp_range_kind backward = SP_RANGE_ATTENTION_BACKWARD;
    bool both = use->most[forward] > 0.0 && use->most[backward] > 0.0;
    sp_uncalibrated said = *use;
    int count = 0;
    if (both) { // of one length each
        note_range(&said, forward, use->least[backward], use->most[backward],
                   use->table_least[backward], use->table_most[backward]);
        said.most[backward] = 0.0;
    }
    for (int i = 0; i < SP_RANGES; i++) {
        if (said.most[i] > 0.0) {
            snprintf(
                lines[count++], sizeof lines[0], "%s: %s %.6g to %.6g (calibrated %.6g to %.6g)",
                both && i == (int)forward ? "attention" : range_texts[i].kind, range_texts[i].x,
                said.least[i], said.most[i], said.table_least[i], said.table_most[i]);
        }
    }
    return count;
}

json_t *sp_uncalibrated_json(const sp_uncalibrated *use)
{
    char lines[SP_RANGES][160];
    int count = sp_uncalibrated_lines(use, lines);
    return sp_json_lines(lines[0], sizeof lines[0], count);
}

void sp_i_note_range(const sp_op_timer *timer, sp_range_kind kind, double x, double first,
                     double last)
{
    sp_uncalibrated *use = timer->uncalibrated;
    if (use != NULL && !(x >= first && x <= last)) {
        note_range(use, kind, x, x, first, last);
    }
}

// By a captured graph of which the profile says what its kernels take.
static bool is_replayed(const sp_op_timer *timer)
{
    return timer->graphed && timer->profile->decode.kernel_s > 0.0;
}

// Seconds of one kernel; `otherwise` where it is not replayed.
static double fixed_s(const sp_op_timer *timer, double otherwise)
{
    return is_replayed(timer) ? timer->profile->decode.kernel_s : otherwise;
}

double sp_time_launch(const sp_op_timer *timer, int kernels)
{
    return kernels * fixed_s(timer, timer->profile->kernel_s);
}

double sp_time_memory(const sp_op_timer *timer, double bytes, int kernels)
{
    double share = timer->profile->kernel_share;
    double bytes_per_s = timer->profile->memory_bytes_per_s * (share > 0.0 ? share : 1.0);
    return bytes / bytes_per_s + sp_time_launch(timer, kernels);
}

const sp_gemm_table *sp_i_gemm_table(const sp_profile *profile, sp_gemm_pass pass, double n,
                                     double k)
{
    const sp_gemm_table *found = NULL;
    for (int i = 0; i < profile->gemm_tables; i++) {
        const sp_gemm_table *table = &profile->gemm[i];
        if ((double)table->n != n || (double)table->k != k) {
            continue;
        }
        if (table->weight_gradient && pass == SP_GEMM_TOKENS_IN) {
            return table;
        }
        found = table->weight_gradient ? found : table;
    }
    return found;
}

// Measured times hold launch and memory traffic already. Outside the points the rate behaves as
// that of the curve: held above, proportional to the cube edge below, so the time to its square.
static double time_from_table(const sp_op_timer *timer, const sp_gemm_table *table, double m)
{
    const sp_curve *curve = &table->time_s;
    double first = sp_i_curve_first(curve);
    double last = sp_i_curve_last(curve);
    double weights = (double)table->n * (double)table->k;
    sp_i_note_range(timer, SP_RANGE_GEMM, cbrt(m * weights), cbrt(first * weights),
                    cbrt(last * weights));
    double time_s = sp_i_curve_hold(curve, m);
    if (m < first) {
        return time_s * pow(m / first, 2.0 / 3.0);
    }
    return m > last ? time_s * (m / last) : time_s;
}

static double curve_gemm(const sp_op_timer *timer, double m, double n, double k)
{
    const sp_profile *profile = timer->profile;
    const sp_curve *curve = &profile->gemm_rate;
    double edge = cbrt(m * n * k);
    double first = sp_i_curve_first(curve);
    sp_i_note_range(timer, SP_RANGE_GEMM, edge, first, sp_i_curve_last(curve));
    double rate = sp_i_curve_hold(curve, edge) * (edge < first ? edge / first : 1.0);
    double compute_s = 2.0 * m * n * k / rate;
    double memory_s = BYTES_BF16 * (m * k + k * n + m * n) / profile->memory_bytes_per_s;
    return fmax(compute_s, memory_s) + fixed_s(timer, profile->kernel_s);
}

// Twice the elements of the result as the tiles cover them, whole waves of them (profile.h) unless
// the product is split over k so that no SM waits.
static double covered(const sp_gemm_model *model, double batch, double m, double n, bool splits)
{
    double least = 2.0 * batch * m * n;
    for (int i = 0; model->sms > 0 && i < model->tile_count; i++) {
        double rows = model->tiles[i].m;
        double columns = model->tiles[i].n;
        double tiles = ceil(batch * ceil(m / rows) * ceil(n / columns));
        double waves = splits ? tiles / model->sms : ceil(tiles / model->sms);
        double work = waves * model->sms * 2.0 * rows * columns / model->tiles[i].efficiency;
        least = i == 0 ? work : fmin(least, work);
    }
    return least;
}

// Are such rows slower? Most profiles do not say so, and this is asked for every product.
static bool is_unaligned(const sp_gemm_model *model, double row)
{
    return model->unaligned_share > 0.0 && floor(row / ALIGNED) < row / ALIGNED;
}

// Tiles of all products of a batch fill waves together.
static double tile_gemm(const sp_op_timer *timer, double batch, double launches, double m, double n,
                        double k, bool unaligned)
{
    const sp_gemm_model *model = &timer->profile->gemm_model;
    double compute_s = covered(model, batch, m, n, is_replayed(timer)) * (k + model->half_rate_k) /
                       model->flops_per_s;
    if (unaligned) {
        compute_s /= model->unaligned_share;
    }
    double memory_s =
        BYTES_BF16 * batch * (m * k + k * n + m * n) / timer->profile->memory_bytes_per_s;
    return fmax(compute_s, memory_s) + launches * fixed_s(timer, model->fixed_s);
}

// Launches whose fixed times follow each other: Transformer Engine gives the products of experts to
// four streams, as its work spaces say (megatron_memory_experts).
static double launches_of(int count)
{
    enum { STREAMS = 4 };
    return ceil((double)count / STREAMS);
}

static double gemms(const sp_op_timer *timer, sp_gemm_pass pass, int count, double tokens, double n,
                    double k)
{
    if (!(tokens > 0.0 && n > 0.0 && k > 0.0)) {
        return 0.0;
    }
    const sp_gemm_table *table = sp_i_gemm_table(timer->profile, pass, n, k);
    if (table != NULL) {
        return count * time_from_table(timer, table, tokens);
    }
    const sp_gemm_model *model = &timer->profile->gemm_model;
    if (model->flops_per_s > 0.0) {
        bool unaligned = is_unaligned(model, n) || is_unaligned(model, k);
        bool out = pass == SP_GEMM_TOKENS_OUT;
        return tile_gemm(timer, count, launches_of(count), out ? tokens : n, out ? n : k,
                         out ? k : tokens, unaligned);
    }
    return count * curve_gemm(timer, tokens, n, k);
}

double sp_time_gemm(const sp_op_timer *timer, sp_gemm_pass pass, double tokens, double n, double k)
{
    return gemms(timer, pass, 1, tokens, n, k);
}

double sp_time_grouped_gemm(const sp_op_timer *timer, sp_gemm_pass pass, int count, double tokens,
                            double n, double k)
{
    const sp_profile *profile = timer->profile;
    const sp_gemm_model *model = &profile->gemm_model;
    double half_rows = profile->grouped.half_rows;
    double weights = count * n * k;
    double weights_s = BYTES_BF16 * weights / profile->memory_bytes_per_s;
    if (!(tokens > 0.0) || half_rows <= 0.0 || sp_i_gemm_table(profile, pass, n, k) != NULL) {
        double all_s = gemms(timer, pass, count, tokens, n, k);
        return all_s > 0.0 ? fmax(all_s, weights_s) : 0.0;
    }
    double compute_s = 2.0 * weights * (tokens + half_rows) / sp_gemm_most_rate(profile);
    if (is_unaligned(model, n) || is_unaligned(model, k)) {
        compute_s /= model->unaligned_share;
    }
    double rows_s = BYTES_BF16 * count * tokens * (n + k) / profile->memory_bytes_per_s;
    return fmax(compute_s, rows_s + weights_s) + fixed_s(timer, model->fixed_s);
}

// FLOPs that the rate is over: what tiles cover, or of experts in one launch what few rows cost
// beside. The inner dimension counts its half-rate length more.
static double fp8_work(const sp_op_timer *timer, sp_gemm_pass pass, int count, double tokens,
                       double n, double k)
{
    const sp_profile *profile = timer->profile;
    const sp_fp8_model *fp8 = &profile->fp8;
    double few = count > 1 && fp8->half_rows > 0.0 ? fp8->half_rows
                 : count > 1                       ? profile->grouped.half_rows
                                                   : 0.0;
    if (pass == SP_GEMM_TOKENS_IN) {
        double results = few > 0.0 ? count * 2.0 * n * k
                                   : covered(&profile->gemm_model, count, n, k, is_replayed(timer));
        return results * (tokens + fmax(few, fp8->half_rate_k));
    }
    double results = few > 0.0
                         ? count * 2.0 * (tokens + few) * n
                         : covered(&profile->gemm_model, count, tokens, n, is_replayed(timer));
    return results * (k + fp8->half_rate_k);
}

// Operands are read in FP8 and the result is written in BF16, each once.
double sp_time_fp8_gemm(const sp_op_timer *timer, sp_gemm_pass pass, int count, double tokens,
                        double n, double k)
{
    const sp_profile *profile = timer->profile;
    const sp_fp8_model *fp8 = &profile->fp8;
    bool out = pass == SP_GEMM_TOKENS_OUT;
    if (!(tokens > 0.0 && n > 0.0 && k > 0.0)) {
        return 0.0;
    }
    SP_ASSERT(fp8->flops_per_s > 0.0);
    double result = BYTES_BF16 * (out ? tokens * n : n * k);
    double operands = tokens * k + (out ? k * n : tokens * n);
    double memory_s = (operands + result) / profile->memory_bytes_per_s;
    double compute_s = fp8_work(timer, pass, count, tokens, n, k) / fp8->flops_per_s;
    double fixed = fixed_s(timer, profile->gemm_model.fixed_s > 0.0 ? profile->gemm_model.fixed_s
                                                                    : profile->kernel_s);
    bool grouped = count > 1 && (fp8->half_rows > 0.0 || profile->grouped.half_rows > 0.0);
    return fmax(compute_s, count * memory_s) + (grouped ? 1.0 : launches_of(count)) * fixed;
}

double sp_time_batched_gemm(const sp_op_timer *timer, double batch, double m, double n, double k,
                            double row)
{
    if (!(batch > 0.0 && m > 0.0 && n > 0.0 && k > 0.0)) {
        return 0.0;
    }
    const sp_gemm_model *model = &timer->profile->gemm_model;
    return model->flops_per_s > 0.0
               ? tile_gemm(timer, batch, 1.0, m, n, k, is_unaligned(model, row))
               : curve_gemm(timer, batch * m, n, k);
}

double sp_gemm_most_rate(const sp_profile *profile)
{
    const sp_gemm_model *model = &profile->gemm_model;
    if (!(model->flops_per_s > 0.0)) {
        return sp_i_curve_most(&profile->gemm_rate);
    }
    double best = 1.0;
    for (int i = 0; model->sms > 0 && i < model->tile_count; i++) {
        best = i == 0 ? model->tiles[i].efficiency : fmax(best, model->tiles[i].efficiency);
    }
    return best * model->flops_per_s;
}

double sp_gemm_most_fp8_rate(const sp_profile *profile)
{
    const sp_gemm_model *model = &profile->gemm_model;
    double best = model->sms > 0 && model->tile_count > 0
                      ? sp_gemm_most_rate(profile) / model->flops_per_s
                      : 1.0;
    return best * profile->fp8.flops_per_s;
}

static attention_rates rates_of(const sp_op_timer *timer, int backward, double l, double o)
{
    const sp_profile *profile = timer->profile;
    const sp_curve *curves = profile->attention[backward];
    attention_rates r = {&curves[SP_PAIRS_CAUSAL], &curves[SP_PAIRS_FULL], 0.0};
    sp_range_kind kind = backward ? SP_RANGE_ATTENTION_BACKWARD : SP_RANGE_ATTENTION_FORWARD;
    r.first = sp_i_curve_first(r.causal);
    sp_i_note_range(timer, kind, l < r.first ? l : fmax(l + o, r.first), r.first,
                    sp_i_curve_last(r.causal));
    return r;
}

static attention_rates rates_of_window(const sp_op_timer *timer, int backward, double l, double o,
                                       double w)
{
    return l + o <= w ? rates_of(timer, backward, l, o)
                      : rates_of(timer, backward, fmin(l, w), fmax(0.0, w - l));
}

// A tile beyond the shortest measured length cannot be told from the table; a smaller one keeps the
// time rising with l whatever the table's slope.
static double tile_of(const attention_rates *r)
{
    return fmin(TILE, r->first);
}

// The factor by which the rate falls below the shortest measured length.
static double falloff(const attention_rates *r, double l)
{
    double tile = tile_of(r);
    return (l + tile) / l * (r->first / (r->first + tile));
}

static double causal_pairs_s(const attention_rates *r, double l)
{
    return 0.5 * l * l / sp_i_curve_hold(r->causal, l);
}

static double rectangle_pairs_s(const attention_rates *r, double l, double o)
{
    double rate = sp_i_curve_hold(r->causal, l + o);
    if (r->full->points > 0) {
        rate = fmin(rate, sp_i_curve_hold(r->full, sqrt(fmax(l, r->first) * o)));
    }
    return l * o / rate;
}

static double with_flops(double rate_pairs_s, int backward, double heads, double head_dim)
{
    return rate_pairs_s * heads * head_dim *
           (backward ? SP_I_BACKWARD_FLOPS_PER_PAIR : SP_I_FORWARD_FLOPS_PER_PAIR);
}

static double slice_pairs_s(const attention_rates *r, double l, double o)
{
    double rate_pairs_s = causal_pairs_s(r, l);
    if (o > 0.0) {
        rate_pairs_s += rectangle_pairs_s(r, l, o);
    }
    return l < r->first ? rate_pairs_s * falloff(r, l) : rate_pairs_s;
}

// Those of l queries after o tokens that see all before them, because the window still holds it.
static double queries_before(double l, double o, double w)
{
    return fmin(l, fmax(0.0, w - o));
}

// Queries that see w keys each.
static double band_pairs_s(const attention_rates *r, double queries, double w)
{
    double rate = sp_i_curve_hold(r->causal, w);
    if (r->full->points > 0) {
        rate = fmin(rate, sp_i_curve_hold(r->full, sqrt(fmax(queries, r->first) * w)));
    }
    return queries * w / rate;
}

// `least`: the rate of all falls below the shortest measured length with this one.
static double window_pairs_s(const attention_rates *r, double l, double o, double w, double least)
{
    double before = queries_before(l, o, w);
    double rate_pairs_s = band_pairs_s(r, l - before, w);
    if (before > 0.0) {
        rate_pairs_s += causal_pairs_s(r, before);
        rate_pairs_s += o > 0.0 ? rectangle_pairs_s(r, before, o) : 0.0;
    }
    return least < r->first ? rate_pairs_s * falloff(r, least) : rate_pairs_s;
}

double sp_time_attention_slice(const sp_op_timer *timer, int backward, double l, double o, double w,
                               double heads, double head_dim)
{
    bool sees_all = l + o <= w;
    if (!(l > 0.0)) {
        return 0.0;
    }
    attention_rates r = rates_of_window(timer, backward, l, o, w);
    double rate_pairs_s = slice_pairs_s(&r, l, o);
    if (!sees_all) {
        rate_pairs_s = fmin(rate_pairs_s, window_pairs_s(&r, l, o, w, fmin(l, w)));
    }
    return with_flops(rate_pairs_s, backward, heads, head_dim);
}

double sp_time_attention_block(const sp_op_timer *timer, int backward, double l, double o,
                               double heads, double head_dim)
{
    const sp_profile *profile = timer->profile;
    const sp_curve *curve = &profile->attention[backward][SP_PAIRS_BLOCK];
    if (!(l > 0.0 && o > 0.0)) {
        return 0.0;
    }
    if (curve->points == 0) {
        return o / l *
               (sp_time_attention_slice(timer, backward, l, l, HUGE_VAL, heads, head_dim) -
                sp_time_attention_slice(timer, backward, l, 0.0, HUGE_VAL, heads, head_dim));
    }
    double first = sp_i_curve_first(curve);
    sp_i_note_range(timer, backward ? SP_RANGE_ATTENTION_BACKWARD : SP_RANGE_ATTENTION_FORWARD,
                    sqrt(l * o), first, sp_i_curve_last(curve));
    double pairs = fmax(l * o, first * first);
    return with_flops(pairs / sp_i_curve_hold(curve, sqrt(pairs)), backward, heads, head_dim);
}

static double rows_of_piece(const attention_rates *r, double l)
{
    double tile = tile_of(r);
    return tile > 1.0 ? ceil(l / tile) * tile : l;
}

static double piece_pairs_s(const attention_rates *r, double rows, double o)
{
    double rate_pairs_s = causal_pairs_s(r, rows);
    if (rows < r->first) {
        rate_pairs_s *= falloff(r, rows);
    }
    if (o > 0.0) {
        rate_pairs_s += rectangle_pairs_s(r, rows, o);
    }
    return rate_pairs_s;
}

double sp_time_attention_piece(const sp_op_timer *timer, int backward, double l, double o, double w,
                               double heads, double head_dim)
{
    bool sees_all = l + o <= w;
    if (!(l > 0.0)) {
        return 0.0;
    }
    attention_rates r = rates_of_window(timer, backward, l, o, w);
    double rows = rows_of_piece(&r, l);
    double rate_pairs_s = piece_pairs_s(&r, rows, o);
    if (!sees_all) {
        rate_pairs_s = fmin(rate_pairs_s, window_pairs_s(&r, rows, o, w, w));
    }
    return with_flops(rate_pairs_s, backward, heads, head_dim);
}
