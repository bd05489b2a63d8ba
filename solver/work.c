#include "solver/work.h"

#include <math.h>

#include "sim/base/units.h"

// The three packs: { samples of equal length, tokens of each, context of each }.
typedef struct probe {
    int samples;
    int64_t tokens, context;
} probe;

enum { PROBES = 3, SHORT = 256, CONTEXTS = 16 };

static void add_probe(sp_pack_list *list, const probe *p, int32_t first_sample)
{
    sp_pack_list_begin(list, 0, 1);
    for (int i = 0; i < p->samples; i++) {
        sp_slice slice = {.sample = first_sample + i,
                          .begin = p->context,
                          .tokens = p->tokens,
                          .computed_tokens = p->tokens};
        sp_pack_list_add(list, slice, true);
    }
}

// Mean over the virtual stages.
static double stage_s(const sp_step_costs *costs, const sp_action_cost *table, int pack,
                      int vstages)
{
    double sum_s = 0.0;
    for (int s = 0; s < vstages; s++) {
        size_t at = (size_t)pack * (size_t)costs->classes + (size_t)costs->class_of_vstage[s];
        sum_s += 1e-9 * (double)sp_action_cost_ns(&table[at]);
    }
    return sum_s / vstages;
}

// Solves the three equations; what rounding and curvature make negative is nothing.
static sp_i_pass_work solve(const double t[PROBES], const probe p[PROBES])
{
    double tokens[PROBES];
    double pairs[PROBES];
    for (int i = 0; i < PROBES; i++) {
        double l = (double)p[i].tokens;
        tokens[i] = p[i].samples * l;
        pairs[i] = p[i].samples * (l * (double)p[i].context + 0.5 * l * l);
    }
    // The second and third pack have equal tokens: their difference is pairs alone.
    double pair_s = fmax(0.0, (t[2] - t[1]) / (pairs[2] - pairs[1]));
    double token_s =
        fmax(1e-15, (t[1] - t[0] - pair_s * (pairs[1] - pairs[0])) / (tokens[1] - tokens[0]));
    double pack_s = fmax(0.0, t[0] - token_s * tokens[0] - pair_s * pairs[0]);
    return (sp_i_pass_work){pack_s, token_s, pair_s};
}

sp_status sp_i_work_measure(sp_cost_model *cost, int64_t tokens, sp_i_work *work, sp_error *err)
{
    int64_t many = tokens < 4 * SHORT ? 4 * SHORT : tokens / SHORT * SHORT;
    const probe probes[PROBES] = {
        {1, SHORT, 0}, {(int)(many / SHORT), SHORT, 0}, {1, many, CONTEXTS * many}};
    sp_packing packing;
    sp_packing_init(&packing, NULL, cost->layout->dp);
    int32_t samples = 0;
    for (int i = 0; i < PROBES; i++) {
        add_probe(&packing.forward, &probes[i], samples);
        samples += probes[i].samples;
    }
    sp_step_costs costs = {0};
    sp_status status = sp_cost_model_build(cost, &packing, &costs, err);
    if (status == SP_OK) {
        double f_s[PROBES];
        double b_s[PROBES];
        int vstages = sp_layout_vstages(cost->layout);
        for (int i = 0; i < PROBES; i++) {
            f_s[i] = stage_s(&costs, costs.f, i, vstages);
            b_s[i] = stage_s(&costs, costs.b, i, vstages);
        }
        *work = (sp_i_work){solve(f_s, probes), solve(b_s, probes)};
    }
    sp_step_costs_fini(&costs);
    sp_packing_fini(&packing);
    return status;
}

static double token_s(const sp_i_work *work)
{
    return work->forward.token_s + work->backward.token_s;
}

static double pair_s(const sp_i_work *work)
{
    return work->forward.pair_s + work->backward.pair_s;
}

double sp_i_slice_work_s(const sp_i_work *work, int64_t begin, int64_t tokens)
{
    double l = (double)tokens;
    return token_s(work) * l + pair_s(work) * (l * (double)begin + 0.5 * l * l);
}

int64_t sp_i_slice_tokens(const sp_i_work *work, int64_t begin, double work_s)
{
    if (!(work_s > 0.0)) {
        return 0;
    }
    // 0.5 q l^2 + (t + q o) l = w, in the form without cancellation.
    double q = pair_s(work);
    double linear = token_s(work) + q * (double)begin;
    return sp_whole(2.0 * work_s / (linear + sqrt(linear * linear + 2.0 * q * work_s)));
}
