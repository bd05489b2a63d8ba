#include "sim/metrics/metrics.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"

void sp_step_metrics_fini(sp_step_metrics *metrics)
{
    sp_free(metrics->ranks);
    *metrics = (sp_step_metrics){0};
}

double sp_bubble_of(double busy_ns, double rank_ns)
{
    return rank_ns > 0.0 ? 1.0 - busy_ns / rank_ns : 0.0;
}

// Spread of pack times: the relative variance inside each virtual stage, averaged over them, so
// that stages and chunks of different weight do not count as spread.
typedef struct spread {
    double count, sum, squares; // of one virtual stage
} spread;

static void add_time(spread *s, double value)
{
    s->count += 1.0;
    s->sum += value;
    s->squares += value * value;
}

static double relative_variance(const spread *s)
{
    if (s->count <= 0.0 || s->sum <= 0.0) {
        return 0.0;
    }
    double mean = s->sum / s->count;
    double variance = s->squares / s->count - mean * mean;
    // Rounding can leave a variance of equal values just beside zero.
    return variance > 1e-12 * mean * mean ? variance / (mean * mean) : 0.0;
}

static double mean_relative_variance(const spread *s, size_t chunks)
{
    double sum = 0.0;
    for (size_t c = 0; c < chunks; c++) {
        sum += relative_variance(&s[c]);
    }
    return sum / (double)chunks;
}

typedef struct rank_sums {
#define FIELD(time) int64_t time;
    SP_RANK_TIMES(FIELD)
#undef FIELD
    int64_t first_ns, last_ns;
    double forward_variance, backward_variance;
} rank_sums;

// A rank is idle while it waits in its layers for others that gather parameters with it: as idle as
// where it waits for them at the end of the step.
static int64_t busy_ns_of(const sp_span *span)
{
    return span->end_ns - span->start_ns - span->dp_wait_ns;
}

// Actions compute, and so does what a rank does of a vocabulary that pipeline ranks share.
static void add_span(const sp_span *span, rank_sums *sums)
{
    sums->busy_ns += busy_ns_of(span);
    sums->tp_ns += span->tp_ns;
    sums->cp_ns += span->cp_ns;
    sums->dp_ns += span->dp_ns - span->dp_wait_ns;
    sums->ep_ns += span->ep_ns;
    sums->dp_wait_ns += span->dp_wait_ns;
    sums->ep_wait_ns += span->ep_wait_ns;
    sums->ep_hidden_ns += span->ep_hidden_ns;
    sums->launch_ns += span->launch_ns;
    sums->again_ns += span->again_ns;
    sums->first_ns = span->start_ns < sums->first_ns ? span->start_ns : sums->first_ns;
    sums->last_ns = span->end_ns > sums->last_ns ? span->end_ns : sums->last_ns;
}

// Scratch of the ranks' sums.
typedef struct scratch {
    spread *spreads;      // forward, then backward, of each chunk
    int64_t *backward_ns; // [backward packs * chunks], zeros between ranks
    size_t chunks;
    bool regrouped; // backward packs are not the forward packs, which R counts by
    sp_arena work;
} scratch;

// The backward time of the pack that an action works on.
static int64_t *backward_of(const scratch *s, sp_action action)
{
    return &s->backward_ns[(size_t)action.pack * s->chunks + action.chunk];
}

// A pack's backward is one action or in parts: recomputation, input gradient, weight gradient.
static bool is_backward_part(const scratch *s, sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_I || action.kind == SP_ACTION_W ||
           (action.kind == SP_ACTION_R && !s->regrouped);
}

// Takes the backward times of a rank's packs out of the scratch.
static void add_backwards(const sp_rank_timeline *rank, const scratch *s)
{
    for (size_t i = 0; i < rank->count; i++) {
        sp_action action = rank->spans[i].action;
        if (action.kind == SP_ACTION_B || action.kind == SP_ACTION_I) {
            int64_t *took_ns = backward_of(s, action);
            add_time(&s->spreads[s->chunks + action.chunk], (double)*took_ns);
            *took_ns = 0;
        }
    }
}

static rank_sums sum_rank(const sp_rank_timeline *rank, const scratch *s)
{
    rank_sums sums = {.first_ns = INT64_MAX};
    memset(s->spreads, 0, 2 * s->chunks * sizeof *s->spreads);
    for (size_t i = 0; i < rank->count; i++) {
        const sp_span *span = &rank->spans[i];
        sums.wait_p2p_ns += span->wait_p2p_ns;
        if (sp_action_is_copy(span->action)) {
            continue;
        }
        int64_t took_ns = busy_ns_of(span);
        add_span(span, &sums);
        if (span->action.kind == SP_ACTION_F) {
            add_time(&s->spreads[span->action.chunk], (double)took_ns);
        } else if (is_backward_part(s, span->action)) {
            *backward_of(s, span->action) += took_ns;
        }
    }
    add_backwards(rank, s);
    for (size_t i = 0; i < rank->share_count; i++) {
        add_span(&rank->shares[i].span, &sums);
    }
    sums.forward_variance = mean_relative_variance(s->spreads, s->chunks);
    sums.backward_variance = mean_relative_variance(s->spreads + s->chunks, s->chunks);
    return sums;
}

// Each data-parallel rank by its busiest stage.
static void measure_imbalance(sp_step_metrics *metrics, int dp, int pp)
{
    double sum = 0.0;
    for (int d = 0; d < dp; d++) {
        int64_t busiest = 0;
        for (int r = 0; r < pp; r++) {
            int64_t busy = metrics->ranks[(size_t)d * (size_t)pp + (size_t)r].busy_ns;
            busiest = busy > busiest ? busy : busiest;
        }
        if ((double)busiest > metrics->dp_busiest_ns) {
            metrics->dp_busiest_ns = (double)busiest;
        }
        sum += (double)busiest;
    }
    metrics->dp_mean_ns = sum / dp;
}

// The epilogue that ends last decides how much of the time past the makespan is optimizer; the rest
// is gradient reduction and parameter gather.
static void split_epilogue(const sp_timeline *timeline, sp_step_metrics *metrics)
{
    for (size_t i = 0; i < timeline->rank_count; i++) {
        const sp_rank_timeline *rank = &timeline->ranks[i];
        if (rank->gather_end_ns == timeline->iteration_ns) {
            int64_t from_ns = rank->reduce_end_ns > metrics->makespan_ns ? rank->reduce_end_ns
                                                                         : metrics->makespan_ns;
            int64_t optimizer_ns = rank->optimizer_end_ns - from_ns;
            metrics->optimizer_ns = optimizer_ns > 0 ? optimizer_ns : 0;
            metrics->reduce_ns =
                metrics->iteration_ns - metrics->makespan_ns - metrics->optimizer_ns;
            return;
        }
    }
}

void sp_step_metrics_compute(const sp_timeline *timeline, const sp_memory_timeline *memory,
                             sp_step_metrics *metrics)
{
    int dp = timeline->plan->layout.dp;
    int pp = timeline->plan->layout.pp;
    const sp_pack_list *backwards = sp_packing_backward(timeline->plan->packing);
    scratch s = {.chunks = (size_t)timeline->plan->layout.chunks,
                 .regrouped = backwards != &timeline->plan->packing->forward};
    s.spreads = sp_arena_take(&s.work, 2 * s.chunks, sizeof *s.spreads);
    s.backward_ns = sp_arena_take(&s.work, backwards->count * s.chunks, sizeof *s.backward_ns);
    *metrics =
        (sp_step_metrics){.rank_count = (int64_t)dp * pp, .iteration_ns = timeline->iteration_ns};
    metrics->ranks = sp_calloc((size_t)dp * (size_t)pp, sizeof *metrics->ranks);
    double forward = 0.0;
    double backward = 0.0;
    for (size_t i = 0; i < timeline->rank_count; i++) {
        const sp_rank_timeline *rank = &timeline->ranks[i];
        const sp_rank_memory *held = &memory->ranks[i];
        rank_sums sums = sum_rank(rank, &s);
        int64_t span_ns = rank->count > 0 ? sums.last_ns - sums.first_ns : 0;
        int64_t peak_bytes = sp_bytes_total(&held->peak);
        forward += rank->alike * sums.forward_variance;
        backward += rank->alike * sums.backward_variance;
#define ADD(time) metrics->time += rank->alike * sums.time;
        SP_RANK_TIMES(ADD)
#undef ADD
        if (sums.last_ns > metrics->makespan_ns) {
            metrics->makespan_ns = sums.last_ns;
        }
        if (span_ns > metrics->longest_span_ns) {
            metrics->longest_span_ns = span_ns;
            metrics->longest_span_work_ns = sums.busy_ns;
        }
        if (peak_bytes > metrics->peak_bytes) {
            metrics->peak_bytes = peak_bytes;
            metrics->peak = held->peak;
        }
        if (held->uncopied_peak_bytes > metrics->uncopied_peak_bytes) {
            metrics->uncopied_peak_bytes = held->uncopied_peak_bytes;
        }
        for (int a = 0; a < rank->alike; a++) {
            int d = rank->dp_alike[a];
            metrics->ranks[(size_t)d * (size_t)pp + (size_t)rank->pp] =
                (sp_rank_metrics){.dp = d,
                                  .pp = rank->pp,
                                  .busy_ns = sums.busy_ns,
                                  .span_ns = span_ns,
                                  .peak_bytes = peak_bytes,
                                  .units_peak = held->units_peak};
        }
    }
    measure_imbalance(metrics, dp, pp);
    metrics->forward_pack_cv = sqrt(forward / (double)metrics->rank_count);
    metrics->backward_pack_cv = sqrt(backward / (double)metrics->rank_count);
    split_epilogue(timeline, metrics);
    sp_arena_free(&s.work);
}
