// Bounds in closed form.
#include "solver/bounds/bounds.h"

#include <math.h>

// Work of one sample on the cheapest stage.
typedef struct sample {
    double forward_s, backward_s, input_s;
    double tokens;
} sample;

// Sums over a batch that the chain of one sample is seen against.
typedef struct sums {
    double work_s;
    double least_s; // of min(forward, input gradient)
    double ratio;   // the most of a sample's work over its min(forward, input gradient)
} sums;

typedef double (*chain)(const sp_bound_costs *costs, const sample *s);

static sample sample_of(const sp_bound_costs *costs, int64_t tokens);
static double best_chain_s(const sp_bound_costs *costs, const sp_bound_batch *batch, chain alone_s);
static double cut_chain_s(const sp_bound_costs *costs, const sample *s);
static double whole_chain_s(const sp_bound_costs *costs, const sample *s);

double sp_bound_work_s(const sp_bound_costs *costs, const sp_bound_batch *batch)
{
    double work_s = 0.0;
    for (size_t i = 0; i < batch->count; i++) {
        sample s = sample_of(costs, batch->tokens[i]);
        work_s +=
            s.forward_s + s.backward_s + s.tokens * (costs->f_last_token_s + costs->b_last_token_s);
    }
    return work_s / batch->ranks;
}

double sp_bound_simple_s(const sp_bound_costs *costs, const sp_bound_batch *batch)
{
    if (batch->count == 0) {
        return 0.0;
    }
    double hops = costs->stages - 1;
    double bound_s = sp_bound_work_s(costs, batch) + costs->f_pack_s + costs->b_pack_s +
                     hops * (costs->f_pack_s + costs->p2p_s);
    bound_s += costs->split ? 0.0 : hops * (costs->b_pack_s + costs->p2p_s);
    if (!batch->merged) {
        // A token of its own: the first of a sample, the last of one backward.
        bound_s += hops * (costs->f_token_s + costs->f_square_s);
        bound_s += costs->split ? 0.0 : hops * (costs->b_token_s + costs->b_square_s);
    }
    return bound_s;
}

double sp_bound_flow_shop_s(const sp_bound_costs *costs, const sp_bound_batch *batch)
{
    return best_chain_s(costs, batch, cut_chain_s);
}

double sp_bound_whole_s(const sp_bound_costs *costs, const sp_bound_batch *batch)
{
    return best_chain_s(costs, batch, whole_chain_s);
}

static sample sample_of(const sp_bound_costs *costs, int64_t tokens)
{
    double n = (double)tokens;
    return (sample){.forward_s = n * costs->f_token_s + n * n * costs->f_square_s,
                    .backward_s = n * costs->b_token_s + n * n * costs->b_square_s,
                    .input_s = n * costs->i_token_s + n * n * costs->i_square_s,
                    .tokens = n};
}

static sums sums_of(const sp_bound_costs *costs, const sp_bound_batch *batch)
{
    sums all = {.ratio = 1.0};
    for (size_t i = 0; i < batch->count; i++) {
        sample s = sample_of(costs, batch->tokens[i]);
        double least_s = fmin(s.forward_s, s.input_s);
        all.work_s += s.forward_s + s.backward_s;
        all.least_s += least_s;
        all.ratio =
            least_s > 0.0 ? fmax(all.ratio, (s.forward_s + s.backward_s) / least_s) : all.ratio;
    }
    return all;
}

static double best_chain_s(const sp_bound_costs *costs, const sp_bound_batch *batch, chain alone_s)
{
    if (batch->merged && batch->ranks > 1) {
        return 0.0;
    }
    sums all = sums_of(costs, batch);
    double others = batch->ranks - 1;
    double best_s = 0.0;
    for (size_t i = 0; i < batch->count; i++) {
        sample s = sample_of(costs, batch->tokens[i]);
        double chain_s = alone_s(costs, &s);
        double work_s = all.work_s - s.forward_s - s.backward_s;
        double bound_s = batch->ranks == 1 ? chain_s + all.least_s - fmin(s.forward_s, s.input_s)
                                           : (work_s + all.ratio * chain_s) / (others + all.ratio);
        best_s = fmax(best_s, fmax(chain_s, bound_s));
    }
    return best_s;
}

// Least of pack_s * m + hops * work_s / m over 1 <= m <= most; convex in m.
static double cut_s(double pack_s, double hops, double work_s, double most)
{
    double best = pack_s > 0.0 ? sqrt(hops * work_s / pack_s) : most;
    double low = fmin(fmax(floor(best), 1.0), most);
    double high = fmin(low + 1.0, most);
    return fmin(pack_s * low + hops * work_s / low, pack_s * high + hops * work_s / high);
}

static double cut_chain_s(const sp_bound_costs *costs, const sample *s)
{
    if (!(s->tokens >= 1.0)) {
        return 0.0;
    }
    double hops = costs->stages - 1;
    return s->forward_s + s->input_s + cut_s(costs->f_pack_s, hops, s->forward_s, s->tokens) +
           cut_s(costs->i_pack_s, hops, s->input_s, s->tokens) +
           hops * (costs->f_pack_s + costs->i_pack_s + 2.0 * costs->p2p_s);
}

static double whole_chain_s(const sp_bound_costs *costs, const sample *s)
{
    if (!(s->tokens >= 1.0)) {
        return 0.0;
    }
    double stages = costs->stages;
    double weights_s = s->backward_s - s->input_s + costs->b_pack_s - costs->i_pack_s;
    double last_s = costs->f_last_token_s + (costs->split ? 0.0 : costs->b_last_token_s);
    return stages * (costs->f_pack_s + s->forward_s + costs->i_pack_s + s->input_s) + weights_s +
           2.0 * (stages - 1.0) * costs->p2p_s + s->tokens * last_s;
}
