// How much a local search that knows nothing of SlimPack's finds beyond its plans: local_search
// [INSTANCES TRIALS]. Small instances of 4 to 32 samples on one data-parallel rank; from SlimPack's
// packs on, slices go to other packs, cuts move, packs are split, merged and change places, forward
// and backward apart, each change kept where the whole simulated step gets faster. Prints what the
// better of slimpack and slimpack-zb left.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/prng.h"
#include "solver/evaluate/evaluate.h"
#include "solver/step/step.h"
#include "solver/strategy.h"
#include "tests/bench/bench.h"

enum { MOST_SLICES = 4096, TEXT = 2048 };

// The slices of all samples, sample by sample and in order, and the places of their packs. Packs
// are compared by place alone, so that there is always one between two others.
typedef struct packs {
    sp_slice slice[MOST_SLICES];
    double forward[MOST_SLICES], backward[MOST_SLICES];
    int count;
} packs;

static packs best;
static packs tried;

static int by_slice(const void *a, const void *b)
{
    const sp_slice *x = a;
    const sp_slice *y = b;
    return x->sample != y->sample ? (x->sample > y->sample) - (x->sample < y->sample)
                                  : (x->begin > y->begin) - (x->begin < y->begin);
}

static void take_places(const sp_pack_list *list, packs *to, double *place)
{
    for (size_t k = 0; k < list->count; k++) {
        for (size_t i = 0; i < list->packs[k].slice_count; i++) {
            const sp_slice *slice = &list->slices[list->packs[k].first_slice + i];
            const sp_slice *at = bsearch(slice, to->slice, (size_t)to->count, sizeof *at, by_slice);
            place[at - to->slice] = (double)k;
        }
    }
}

static bool take(const sp_packing *packing, packs *to)
{
    to->count = (int)packing->forward.slice_count;
    if (packing->forward.slice_count > MOST_SLICES) {
        return false;
    }
    memcpy(to->slice, packing->forward.slices, (size_t)to->count * sizeof *to->slice);
    qsort(to->slice, (size_t)to->count, sizeof *to->slice, by_slice);
    take_places(&packing->forward, to, to->forward);
    take_places(sp_packing_backward(packing), to, to->backward);
    return true;
}

// The slices of a sample go forward in order and backward in reverse.
static bool is_allowed(const packs *p)
{
    for (int i = 1; i < p->count; i++) {
        bool continues = p->slice[i].sample == p->slice[i - 1].sample;
        if (p->slice[i].tokens < 1 || (continues && (p->forward[i] < p->forward[i - 1] ||
                                                     p->backward[i] > p->backward[i - 1]))) {
            return false;
        }
    }
    return p->slice[0].tokens > 0;
}

static const double *sorting;

static int by_place(const void *a, const void *b)
{
    int x = *(const int *)a;
    int y = *(const int *)b;
    return sorting[x] < sorting[y] ? -1 : sorting[x] > sorting[y] ? 1 : (x > y) - (x < y);
}

static void write_list(const packs *p, const double *place, sp_pack_list *list)
{
    int order[MOST_SLICES];
    sorting = place;
    for (int i = 0; i < p->count; i++) {
        order[i] = i;
    }
    qsort(order, (size_t)p->count, sizeof *order, by_place);
    for (int n = 0; n < p->count; n++) {
        int i = order[n];
        bool last = i + 1 == p->count || p->slice[i + 1].sample != p->slice[i].sample;
        if (n == 0 || place[i] > place[order[n - 1]]) {
            sp_pack_list_begin(list, 0, 1);
        }
        sp_pack_list_add(list, p->slice[i], last);
    }
}

static sp_packflow_outcome judged(const sp_strategy_input *input, const packs *p)
{
    sp_error err = {0};
    sp_packing packing;
    sp_packflow_outcome outcome;
    sp_packing_init(&packing, input->batch, 1);
    write_list(p, p->forward, &packing.forward);
    write_list(p, p->backward, &packing.backward);
    require(sp_step_judge(input, &packing, &outcome, &err), &err);
    sp_packing_fini(&packing);
    return outcome;
}

static void replace(double *place, int count, double from, double to)
{
    for (int i = 0; i < count; i++) {
        place[i] = place[i] < from || place[i] > from ? place[i] : to;
    }
}

static void change(sp_prng *prng, packs *p)
{
    int i = (int)sp_prng_below(prng, (uint64_t)p->count);
    int j = (int)sp_prng_below(prng, (uint64_t)p->count);
    double *place = sp_prng_below(prng, 2) == 0 ? p->forward : p->backward;
    double from = place[i];
    double to = place[j];
    switch (sp_prng_below(prng, 7)) {
    case 0: // a slice to another pack
        place[i] = to;
        break;
    case 1: // to the next pack or the one before, or to one of its own between them
        place[i] += 0.5 * ((double)sp_prng_below(prng, 5) - 2.0);
        break;
    case 2: // with its sample's neighbour on both sides
        p->forward[i] = p->forward[j];
        p->backward[i] = p->backward[j];
        break;
    case 3: // another cut
        if (i + 1 < p->count && p->slice[i + 1].sample == p->slice[i].sample) {
            int64_t most = (p->slice[i].tokens + p->slice[i + 1].tokens) / 4 + 1;
            int64_t tokens = (int64_t)sp_prng_below(prng, (uint64_t)(2 * most)) - most;
            p->slice[i].tokens += tokens;
            p->slice[i].computed_tokens += tokens;
            p->slice[i + 1].begin += tokens;
            p->slice[i + 1].tokens -= tokens;
            p->slice[i + 1].computed_tokens -= tokens;
        }
        break;
    case 4: // two packs become one
        replace(place, p->count, from, to);
        break;
    case 5: // two packs change places
        replace(place, p->count, from, -1e9);
        replace(place, p->count, to, from);
        replace(place, p->count, -1e9, to);
        break;
    default: // a cut more
        if (p->count < MOST_SLICES && p->slice[i].tokens > 1) {
            int64_t first = 1 + (int64_t)sp_prng_below(prng, (uint64_t)p->slice[i].tokens - 1);
            size_t rest = (size_t)(p->count - i);
            memmove(&p->slice[i + 1], &p->slice[i], rest * sizeof *p->slice);
            memmove(&p->forward[i + 1], &p->forward[i], rest * sizeof *p->forward);
            memmove(&p->backward[i + 1], &p->backward[i], rest * sizeof *p->backward);
            p->count++;
            p->slice[i].tokens = p->slice[i].computed_tokens = first;
            p->slice[i + 1].begin += first;
            p->slice[i + 1].tokens -= first;
            p->slice[i + 1].computed_tokens -= first;
            p->forward[i + 1] += sp_prng_below(prng, 2) == 0 ? 0.5 : 0.0;
            p->backward[i] += sp_prng_below(prng, 2) == 0 ? 0.5 : 0.0;
        }
        break;
    }
}

// Places become 0, 1, 2 and so on.
static void number(packs *p, double *place)
{
    int order[MOST_SLICES];
    double next = -1.0;
    double was = -HUGE_VAL;
    sorting = place;
    for (int i = 0; i < p->count; i++) {
        order[i] = i;
    }
    qsort(order, (size_t)p->count, sizeof *order, by_place);
    for (int n = 0; n < p->count; n++) {
        double at = place[order[n]];
        next += at > was ? 1.0 : 0.0;
        was = at;
        place[order[n]] = next;
    }
}

// The step's time before and after, in ms.
static double search(const sp_strategy_input *input, sp_prng *prng, int trials, double *first_ms)
{
    sp_packflow_outcome now = judged(input, &best);
    *first_ms = (double)now.makespan_ns / 1e6;
    for (int i = 0; i < trials; i++) {
        tried = best;
        for (uint64_t steps = 1 + sp_prng_below(prng, 2); steps > 0; steps--) {
            change(prng, &tried);
        }
        if (!is_allowed(&tried)) {
            continue;
        }
        number(&tried, tried.forward);
        number(&tried, tried.backward);
        sp_packflow_outcome next = judged(input, &tried);
        if (!sp_packflow_is_better(&now, &next)) {
            now = next;
            best = tried;
        }
    }
    return (double)now.makespan_ns / 1e6;
}

static void draw(sp_prng *prng, char text[TEXT])
{
    int layers = 16 << sp_prng_below(prng, 2);
    int used = snprintf(
        text, TEXT,
        "{\"model\": {\"layers\": %d, \"hidden\": 4096, \"ffn\": 11008, \"heads\": 32, \"vocab\": "
        "32000}, \"cluster\": \"h800-8\", \"profile\": \"h800\", \"parallel\": {\"tp\": 8, \"pp\": "
        "%d}, \"workload\": {\"order\": \"file\", \"lengths\": [",
        layers, 2 << sp_prng_below(prng, 3));
    int samples = 4 + (int)sp_prng_below(prng, 29);
    for (int i = 0; i < samples; i++) {
        double tokens = exp(6.0 + 5.0 * sp_prng_uniform(prng));
        used +=
            snprintf(text + used, (size_t)(TEXT - used), "%s%d", i > 0 ? ", " : "", (int)tokens);
    }
    snprintf(text + used, (size_t)(TEXT - used), "]}}");
}

// Fills `best` with the strategy's packs, and goes on from them.
static double improve(const char *text, const char *kind, sp_prng *prng, int trials,
                      double *first_ms)
{
    sp_error err = {0};
    char setting[64];
    const char *const settings[] = {setting};
    sp_scenario scenario;
    sp_batches batches;
    sp_cost_model cost;
    sp_packing packing;
    json_t *root = json_loads(text, 0, NULL);
    snprintf(setting, sizeof setting, "strategy.kind=%s", kind);
    require(sp_scenario_from_json(root, "bench", settings, 1, &scenario, &err), &err);
    json_decref(root);
    require(sp_strategy_resolve(&scenario, false, &err), &err);
    require(sp_evaluate_batches(&scenario, &batches, &err), &err);
    require(sp_scenario_cost_model(&scenario, &cost, &err), &err);
    const sp_strategy_input input = {.scenario = &scenario,
                                     .batch = &batches.batch[0],
                                     .context = batches.context,
                                     .cost = &cost,
                                     .threads = 1};
    require(sp_strategy_pack(sp_strategy_find(kind), &input, &packing, &err), &err);
    double ms = NAN;
    if (take(&packing, &best)) {
        ms = search(&input, prng, trials, first_ms);
    }
    sp_packing_fini(&packing);
    sp_cost_model_fini(&cost);
    sp_batches_fini(&batches);
    sp_scenario_fini(&scenario);
    return ms;
}

int main(int argc, char **argv)
{
    int instances = argc > 1 ? atoi(argv[1]) : 100;
    int trials = argc > 2 ? atoi(argv[2]) : 1000;
    static const char *const kinds[] = {"slimpack", "slimpack-zb"};
    sp_prng prng;
    char text[TEXT];
    double worst = 0.0;
    double sum = 0.0;
    int above[3] = {0};
    sp_prng_seed(&prng, 7);
    for (int n = 0; n < instances; n++) {
        double first_ms = HUGE_VAL;
        double found_ms = HUGE_VAL;
        draw(&prng, text);
        for (int k = 0; k < 2; k++) {
            double own_ms = HUGE_VAL;
            found_ms = fmin(found_ms, improve(text, kinds[k], &prng, trials, &own_ms));
            first_ms = fmin(first_ms, own_ms);
        }
        double left = 1.0 - found_ms / first_ms;
        worst = fmax(worst, left);
        sum += left;
        above[0] += left > 0.001;
        above[1] += left > 0.01;
        above[2] += left > 0.02;
    }
    printf("instances                     %6d\n", instances);
    printf("changes tried in each         %6d\n", 2 * trials);
    printf("found more than 0.1 %%         %6d\n", above[0]);
    printf("more than 1 %%                 %6d\n", above[1]);
    printf("more than 2 %%                 %6d\n", above[2]);
    printf("mean                          %6.2f %%\n", 100.0 * sum / instances);
    printf("most                          %6.2f %%\n", 100.0 * worst);
    return 0;
}
