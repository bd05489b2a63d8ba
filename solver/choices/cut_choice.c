// How many model chunks each pipeline rank holds, and which layers, where that is for the strategy
// to say: what a short search on the first batch of the workload predicts to be fastest. A job
// keeps its chunks, whatever its later batches. Changes the layout, and the resolved document if
// there is one, unless the scenario states its layers, or its chunks without "auto" layers.
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/progress.h"
#include "solver/choices/choices.h"
#include "solver/choices/cut_layers.h"
#include "solver/search.h"
#include "solver/slimpack/slimpack_search.h"
#include "solver/step/step.h"

// Actions timed for a first look at each cut, before it of fewer where time is limited so that all
// are looked at, and again for each of those that look best.
enum { QUICK_LOOK = 1000, FIRST_LOOK = 15000, SECOND_LOOK = 60000, SECOND_LOOKS = 4 };

// More than the usual chunks are looked at where the best have more than so many.
enum { MOST_CHUNKS = 20, USUAL_CHUNKS = 10, MANY_CHUNKS = 5 };

// A short look tells cuts with many chunks badly apart: the best cuts are looked at for longer, as
// whole steps. Of a batch of few samples, which gain by many chunks, these are more, for as long as
// the plan itself will be searched.
enum { LAST_LOOK = 200000, LAST_LOOKS = 2 };
enum { SO_FEW_SAMPLES = 32, MORE_LOOKS = 12, LONG_LOOK = 500000 };

// With gradients apart looks tell cuts badly apart that come so near to the best: without a time
// limit plans decide between so many of them. Of 56 random jobs (tests/bench/rivals.c and the like)
// 9 gain 0.3 to 3 % by that, and none is longer; packs of slimpack gain in 3, 0.5 % at most. The
// least gain is that of exchanges, which are compared afterwards: without it one of these took
// 0.7 % longer.
#define NEAR_CUTS 0.02
#define MIN_GAIN 2e-3
enum { MOST_PLANS = 4 };

// Where short searches hardly find room, cuts in one chunk are as near up to so many times the
// best: 586 samples of 67K to 258K tokens need 1.02.
#define NEAR_BY_LOOKS 1.1

// Part of the work that is left for each of these plans.
#define OF_A_PLAN 0.25

// A look at a cut counts one of these.
typedef enum cut_look {
    AS_PREDICTED,   // what the search predicts
    AS_STEPS,       // its whole step, with all that the strategy does
    UNTIL_ONE_FITS, // its whole step; none is looked at after one that fits
} cut_look;

// Part of the time left in which the cuts are compared, which without a limit takes a few times as
// long as the search of the first batch, and the least that is enough to look at one.
#define CHOOSING_CHUNKS 0.6
#define LEAST_LOOK_S 1e-3

// One way to cut the model.
typedef struct cut {
    int chunks;
    int *layers; // [pp * chunks]; NULL: equal shares
    sp_packflow_outcome outcome;
    int64_t tail_ns; // behind it, which predictions do not know; 0: of a whole step
    int number;      // in the order in which all cuts are made
    bool brief;      // no more than a quick look was taken
} cut;

static bool may_choose(const sp_scenario *scenario)
{
    return scenario->layout.pp > 1 && (scenario->cuts_layers || !scenario->chunks_given);
}

// Virtual stages r and 2p-1-r lie on one rank and differ in parity.
static void alternate_layers(const sp_scenario *scenario, int *layers)
{
    int each = scenario->model.layers / scenario->layout.pp;
    for (int s = 0; s < 2 * scenario->layout.pp; s++) {
        layers[s] = s % 2 == 0 ? (each + 1) / 2 : each / 2;
    }
}

static sp_i_job_way way_of(const cut *tried)
{
    return (sp_i_job_way){.chunks = tried->chunks, .layers = tried->layers};
}

// Plans the first batch of the workload in a cut, as it would be reported. Only fatal errors are
// returned.
static sp_status plan_cut(const sp_scenario *scenario, const sp_batches *batches, const cut *tried,
                          double deadline_s, sp_packflow_outcome *outcome, sp_error *err)
{
    const sp_i_job_way way = way_of(tried);
    return sp_i_job_plan(scenario, &way, batches, deadline_s, outcome, NULL, err);
}

// The choice among cuts.
typedef struct chunk_choice {
    const sp_scenario *scenario;
    sp_batches batches; // the first of the workload
    int64_t effort;     // of one look
    cut_look look;
    bool mirrored;     // whole steps as slimpack-symmetric looks at them
    double deadline_s; // 0: none
    bool hurried;      // no time to look at any: the first that is possible is taken
    cut *cuts;         // best first
    int count;
} chunk_choice;

static bool is_late(const chunk_choice *c)
{
    return sp_i_is_late(c->scenario, c->deadline_s);
}

static sp_status search_cut(const chunk_choice *c, const sp_strategy_input *input, bool split,
                            bool whole, cut *tried, sp_error *err)
{
    sp_packing packing;
    sp_packflow_outcome outcome;
    bool judged = c->look != AS_PREDICTED;
    const sp_i_slimpack_options options = {
        .asymmetric = c->look == AS_STEPS && !c->mirrored && c->scenario->strategy.asymmetric &&
                      !sp_strategy_find(c->scenario->strategy.kind)->symmetric,
        .split = split,
        .whole = whole,
        .effort = sp_i_slimpack_effort(&c->scenario->strategy, c->effort),
        .deadline_s = c->deadline_s};
    sp_status status =
        sp_i_slimpack_search(input, &options, judged ? &packing : NULL, &outcome, err);
    if (status == SP_OK && judged) {
        sp_packing_fini(&packing);
    }
    if (status == SP_OK && sp_packflow_is_better(&outcome, &tried->outcome)) {
        tried->outcome = outcome;
    }
    return status;
}

static sp_status predict_job(const chunk_choice *c, const sp_scenario *with, cut *tried,
                             sp_error *err)
{
    sp_i_trial trial;
    sp_status status = sp_i_trial_init(with, &c->batches, &trial, err);
    if (status != SP_OK) {
        return status;
    }
    bool split = sp_strategy_find(with->strategy.kind)->split_backward;
    if (split) {
        status = search_cut(c, &trial.input, true, false, tried, err);
    }
    if (status == SP_OK) {
        status = search_cut(c, &trial.input, false, false, tried, err);
    }
    tried->tail_ns = 0;
    if (status == SP_OK && c->look == AS_PREDICTED) {
        status = sp_step_tail(&trial.input, &tried->tail_ns, err);
    }
    if (status == SP_OK && split && c->look != AS_PREDICTED &&
        sp_packflow_is_short(&tried->outcome)) {
        status = search_cut(c, &trial.input, false, true, tried, err);
    }
    sp_cost_model_fini(&trial.cost);
    return status;
}

// A cut that the layout does not know has no plan.
static sp_status predict(const chunk_choice *c, cut *tried, sp_error *err)
{
    const sp_i_job_way way = way_of(tried);
    sp_error own;
    sp_scenario with;
    sp_error_clear(&own);
    tried->outcome = SP_PACKFLOW_WORST;
    sp_status status = sp_i_job_copy(c->scenario, &way, &with, &own);
    if (status != SP_OK) {
        return sp_i_only_fatal(status, &own, err);
    }
    status = predict_job(c, &with, tried, err);
    sp_scenario_fini(&with);
    return status;
}

// Ways to cut the layers into so many chunks.
typedef enum cut_kind {
    CUT_EVEN,      // equal shares
    CUT_ALTERNATE, // equal shares of ranks in V placement
    CUT_BY_LOAD,   // with the head counted
    CUT_KINDS
} cut_kind;

static bool is_possible(const sp_scenario *scenario, int chunks, cut_kind kind)
{
    int layers = scenario->model.layers;
    int pp = scenario->layout.pp;
    bool v = sp_schedule_placement(scenario->schedule.kind, chunks) == SP_PLACE_V;
    switch (kind) {
    case CUT_EVEN:
        return layers % (pp * chunks) == 0;
    case CUT_ALTERNATE:
        return v && layers % pp == 0 && layers % (pp * chunks) != 0;
    default:
        return layers >= pp * chunks;
    }
}

static cut cut_layers(const sp_scenario *scenario, int chunks, cut_kind kind)
{
    int vstages = scenario->layout.pp * chunks;
    cut tried = {.chunks = chunks};
    if (kind == CUT_EVEN) {
        return tried;
    }
    tried.layers = sp_malloc((size_t)vstages * sizeof *tried.layers);
    if (kind == CUT_ALTERNATE) {
        alternate_layers(scenario, tried.layers);
        return tried;
    }
    const sp_layout layout = sp_i_layout_in_chunks(scenario, chunks, tried.layers);
    sp_layout_spread(&layout, &scenario->model, tried.layers);
    bool even = true;
    for (int v = 1; v < vstages; v++) {
        even = even && tried.layers[v] == tried.layers[0];
    }
    if (even) {
        sp_free(tried.layers); // has been looked at
        tried = (cut){.chunks = 0};
    }
    return tried;
}

// Keeps the order of outcomes; of equal ones the earlier, with fewer chunks, stays in front.
static void add_cut(chunk_choice *c, cut tried)
{
    int at = c->count++;
    for (; at > 0 && sp_packflow_is_better(&tried.outcome, &c->cuts[at - 1].outcome); at--) {
        c->cuts[at] = c->cuts[at - 1];
    }
    c->cuts[at] = tried;
}

static int compare_numbers(const void *a, const void *b)
{
    const cut *x = a;
    const cut *y = b;
    return x->number - y->number;
}

// Where a quick look was taken, from the best on: as without a limit, if time is left for all.
static sp_status look_properly(chunk_choice *c, sp_error *err)
{
    sp_status status = SP_OK;
    cut found[MOST_CHUNKS * CUT_KINDS];
    int count = c->count;
    c->effort = FIRST_LOOK;
    for (int i = 0; status == SP_OK && i < count && !is_late(c); i++) {
        const sp_packflow_outcome quick = c->cuts[i].outcome;
        if (!c->cuts[i].brief) {
            continue;
        }
        c->cuts[i].brief = false;
        status = predict(c, &c->cuts[i], err);
        if (is_late(c) && sp_packflow_is_better(&quick, &c->cuts[i].outcome)) {
            c->cuts[i].outcome = quick;
        }
    }
    memcpy(found, c->cuts, (size_t)count * sizeof *found);
    qsort(found, (size_t)count, sizeof *found, compare_numbers);
    c->count = 0;
    for (int i = 0; i < count; i++) {
        add_cut(c, found[i]);
    }
    return status;
}

// At all ways to cut the model into `least` to `most` chunks a rank.
static sp_status look_at_all(chunk_choice *c, int least, int most, sp_error *err)
{
    sp_status status = SP_OK;
    bool brief = c->deadline_s > 0.0;
    c->effort = brief ? QUICK_LOOK : FIRST_LOOK;
    for (int i = (least - 1) * CUT_KINDS; status == SP_OK && i < most * CUT_KINDS; i++) {
        int chunks = i / CUT_KINDS + 1;
        cut_kind kind = (cut_kind)(i % CUT_KINDS);
        bool enough = c->count > 0 && (c->hurried || is_late(c));
        if (!is_possible(c->scenario, chunks, kind) || enough) {
            continue;
        }
        cut tried = cut_layers(c->scenario, chunks, kind);
        if (tried.chunks > 0) {
            tried.number = i;
            tried.brief = brief;
            status = c->hurried ? SP_OK : predict(c, &tried, err);
            add_cut(c, tried);
        }
    }
    return status == SP_OK && brief && !c->hurried ? look_properly(c, err) : status;
}

// Searches the first so many cuts for longer: that much effort for each. Whole steps are compared
// with each other alone: where time runs out, all cuts that are left stay behind (these looks are
// at all cuts that c->count counts).
static sp_status look_again(chunk_choice *c, int count, cut_look look, int64_t effort,
                            sp_error *err)
{
    sp_status status = SP_OK;
    cut found[MOST_CHUNKS * CUT_KINDS];
    bool fits = false;
    count = c->count < count ? c->count : count;
    c->effort = effort;
    c->look = look;
    memcpy(found, c->cuts, (size_t)count * sizeof *found);
    memmove(c->cuts, c->cuts + count, (size_t)(c->count - count) * sizeof *found);
    c->count -= count;
    int compared = count;
    for (int i = 0; status == SP_OK && i < count && !fits; i++) {
        if (!is_late(c)) {
            status = predict(c, &found[i], err);
            fits = look == UNTIL_ONE_FITS && found[i].outcome.lacking_bytes == 0;
        }
        if (look != AS_PREDICTED && is_late(c) && i < compared) {
            compared = i;
        }
    }
    for (int i = 0; i < compared; i++) {
        add_cut(c, found[i]);
    }
    for (int i = compared; i < count; i++) {
        c->cuts[c->count++] = found[i];
    }
    return status;
}

// Puts a cut in front of others.
static void move_cut(chunk_choice *c, int from, int to)
{
    const cut taken = c->cuts[from];
    memmove(c->cuts + to + 1, c->cuts + to, (size_t)(from - to) * sizeof *c->cuts);
    c->cuts[to] = taken;
}

static sp_packflow_outcome with_tail(const cut *of)
{
    sp_packflow_outcome with = of->outcome;
    with.makespan_ns += with.makespan_ns < INT64_MAX ? of->tail_ns : 0;
    return with;
}

// Puts the cut that is predicted to be the best with what follows its last backward behind the
// first `count` unless it is one of them; how many there are then. Where ranks hold the embedding
// and the head together (V), less may follow than what other cuts gain.
static int take_least_tail(chunk_choice *c, int count)
{
    sp_packflow_outcome least = SP_PACKFLOW_WORST;
    int best = 0;
    for (int i = 0; i < c->count; i++) {
        const sp_packflow_outcome with = with_tail(&c->cuts[i]);
        if (with.lacking_bytes == 0 && sp_packflow_is_better(&with, &least)) {
            best = i;
            least = with;
        }
    }
    if (best < count) {
        return count;
    }
    move_cut(c, best, count);
    return count + 1;
}

// At the best cuts as whole steps. The others, of which no step is known, stay behind these.
static sp_status look_at_whole(chunk_choice *c, int count, int64_t effort, sp_error *err)
{
    int all = c->count;
    c->count = all < count ? all : count;
    sp_status status = all > 1 ? look_again(c, c->count, AS_STEPS, effort, err) : SP_OK;
    c->count = all;
    return status;
}

// Cuts whose plans are compared with that of the first one.
typedef struct planned {
    const chunk_choice *c;
    int at[MOST_PLANS];
    int count;
} planned;

static sp_status plan_nth(const chunk_choice *c, int at, sp_packflow_outcome *outcome,
                          sp_error *err)
{
    const int64_t limit = sp_i_begin_part(c->scenario, OF_A_PLAN);
    sp_status status = plan_cut(c->scenario, &c->batches, &c->cuts[at], 0.0, outcome, err);
    sp_i_end_part(c->scenario, limit);
    return status;
}

static sp_status judge_plan(void *context, int i, const sp_packflow_outcome *best,
                            sp_packflow_outcome *outcome, sp_error *err)
{
    const planned *p = context;
    (void)best;
    return plan_nth(p->c, p->at[i], outcome, err);
}

static bool are_plans_over(const void *context)
{
    const planned *p = context;
    return is_late(p->c);
}

// Puts the one whose plan gains most in front. *least is the plan of the cut that is there,
// SP_PACKFLOW_WORST before it is made.
static sp_status prefer_by_plan(chunk_choice *c, planned *p, double min_gain,
                                sp_packflow_outcome *least, sp_error *err)
{
    int best = -1;
    const sp_i_candidates candidates = {.count = p->count,
                                        .judge = judge_plan,
                                        .is_over = are_plans_over,
                                        .context = p,
                                        .min_gain = min_gain};
    sp_status status = SP_OK;
    if (p->count > 0 && least->makespan_ns == INT64_MAX) {
        status = plan_nth(c, 0, least, err);
    }
    if (status == SP_OK) {
        status = sp_i_search(&candidates, &best, least, err);
    }
    if (best >= 0) {
        move_cut(c, p->at[best], 0);
    }
    return status;
}

// Where packs of a short search hardly have room, those of other rules may, which looks do not
// know: plans decide between cuts in one chunk, which keep least.
static sp_status prefer_one_chunk(chunk_choice *c, sp_error *err)
{
    planned one = {.c = c};
    sp_packflow_outcome least = SP_PACKFLOW_WORST;
    for (int i = 1; i < c->count && one.count < MOST_PLANS - 1; i++) {
        if (c->cuts[i].chunks == 1 && (double)c->cuts[i].outcome.makespan_ns <=
                                          NEAR_BY_LOOKS * (double)c->cuts[0].outcome.makespan_ns) {
            one.at[one.count++] = i;
        }
    }
    return prefer_by_plan(c, &one, MIN_GAIN, &least, err);
}

static void list_near(const chunk_choice *c, planned *p)
{
    const sp_packflow_outcome first = with_tail(&c->cuts[0]);
    for (int i = 1; i < c->count && p->count < MOST_PLANS - 1; i++) {
        const sp_packflow_outcome other = with_tail(&c->cuts[i]);
        if (other.lacking_bytes == 0 &&
            (double)other.makespan_ns <= (1.0 + NEAR_CUTS) * (double)first.makespan_ns) {
            p->at[p->count++] = i;
        }
    }
}

// A short look tells badly what packs of their own backward gain in a cut: where
// slimpack-symmetric would take another one, its plan is compared, too, so that slimpack is not
// slower than it.
static sp_status look_at_steps(chunk_choice *c, int count, int64_t effort, sp_error *err)
{
    const sp_scenario *scenario = c->scenario;
    cut cuts[MOST_CHUNKS * CUT_KINDS];
    chunk_choice symmetric = *c;
    planned other = {.c = c}, near = {.c = c};
    sp_packflow_outcome least = SP_PACKFLOW_WORST;
    bool plans = c->deadline_s <= 0.0 && c->count > 1;
    bool mirrors =
        plans && strcmp(scenario->strategy.kind, "slimpack") == 0 && scenario->strategy.asymmetric;
    count = take_least_tail(c, count);
    memcpy(cuts, c->cuts, (size_t)c->count * sizeof *cuts);
    symmetric.cuts = cuts;
    symmetric.mirrored = true;
    sp_status status = look_at_whole(c, count, effort, err);
    if (status == SP_OK && mirrors) {
        status = look_at_whole(&symmetric, count, effort, err);
    }
    if (status != SP_OK || !plans) {
        return status;
    }
    if (mirrors && cuts[0].number != c->cuts[0].number) {
        for (other.count = 1; c->cuts[other.at[0]].number != cuts[0].number; other.at[0]++) {
        }
        status = prefer_by_plan(c, &other, 0.0, &least, err);
    }
    if (sp_strategy_find(scenario->strategy.kind)->split_backward &&
        scenario->strategy.effort_percent == 0) {
        list_near(c, &near);
    }
    return status == SP_OK ? prefer_by_plan(c, &near, MIN_GAIN, &least, err) : status;
}

// Where one of them fits.
static sp_status look_closer(chunk_choice *c, sp_error *err)
{
    bool few = c->batches.batch[0].count <= SO_FEW_SAMPLES;
    sp_status status = SP_OK;
    if (!c->scenario->chunks_given && (few || c->cuts[0].chunks > MANY_CHUNKS)) {
        status = look_at_all(c, USUAL_CHUNKS + 1, MOST_CHUNKS, err);
    }
    if (status == SP_OK && few) {
        return look_at_steps(c, MORE_LOOKS, LONG_LOOK, err);
    }
    if (status == SP_OK && c->count > 1) {
        status = look_again(c, SECOND_LOOKS, AS_PREDICTED, SECOND_LOOK, err);
    }
    return status == SP_OK ? look_at_steps(c, LAST_LOOKS, LAST_LOOK, err) : status;
}

sp_status sp_i_choose_chunks(sp_scenario *scenario, sp_error *err)
{
    if (!may_choose(scenario)) {
        return SP_OK;
    }
    chunk_choice c = {.scenario = scenario};
    sp_workload_spec first = scenario->workload;
    double begun_s = sp_clock_s();
    first.batches = 1;
    if (scenario->strategy.time_limit_ms > 0) {
        double left_s =
            sp_i_time_left_s(scenario->strategy.time_limit_ms, scenario->strategy.spent_s);
        c.deadline_s = begun_s + CHOOSING_CHUNKS * left_s;
        c.hurried = CHOOSING_CHUNKS * left_s < LEAST_LOOK_S;
    }
    c.cuts = sp_calloc(MOST_CHUNKS * CUT_KINDS, sizeof *c.cuts);
    sp_status status = sp_batches_make(&first, &c.batches, err);
    if (status == SP_OK && c.batches.count > 0 && c.batches.batch[0].count > 0) {
        bool one = scenario->chunks_given; // number of chunks
        int chunks = scenario->layout.chunks;
        status = look_at_all(&c, one ? chunks : 1, one ? chunks : USUAL_CHUNKS, err);
    }
    bool fits = c.count > 0 && c.cuts[0].outcome.lacking_bytes == 0;
    if (status == SP_OK && fits) {
        status = look_closer(&c, err);
    } else if (status == SP_OK && c.count > 1) {
        status = look_again(&c, SECOND_LOOKS, AS_PREDICTED, SECOND_LOOK, err);
    }
    if (status == SP_OK && c.count > 1 && c.cuts[0].outcome.lacking_bytes > 0) {
        // A short search, which reckons memory a little high, found none that fits.
        status = look_again(&c, c.count, UNTIL_ONE_FITS, SECOND_LOOK, err);
    }
    if (status == SP_OK && !fits && c.count > 0 && c.cuts[0].outcome.lacking_bytes == 0 &&
        c.deadline_s <= 0.0 && scenario->strategy.effort_percent == 0) {
        status = prefer_one_chunk(&c, err);
    }
    if (status == SP_OK && c.count > 0) {
        sp_scenario_take_cut(scenario, c.cuts[0].chunks, c.cuts[0].layers);
        c.cuts[0].layers = NULL;
    }
    for (int i = 0; i < c.count; i++) {
        sp_free(c.cuts[i].layers);
    }
    sp_free(c.cuts);
    sp_batches_fini(&c.batches);
    scenario->strategy.spent_s += sp_clock_s() - begun_s;
    return status;
}

// ---- parallel.stage_layers "auto": of several cuts the one that the strategy runs fastest ----

enum { MOST_CUTS = 3 };

// Part of a time limit in which they are compared.
#define CHOOSING 0.6

// By time: for rows in the order of the schedule, or for packs of about equal work.
static sp_status cut_by_time(const sp_scenario *scenario, bool rows, cut *made, sp_error *err)
{
    int vstages = sp_layout_vstages(&scenario->layout);
    *made = (cut){.chunks = scenario->layout.chunks,
                  .layers = sp_calloc((size_t)vstages, sizeof *made->layers)};
    return sp_i_cut_layers(scenario, rows, made->layers, err);
}

// As the layout is, which the strategy chose.
static cut cut_as_chosen(const sp_layout *layout)
{
    size_t bytes = (size_t)sp_layout_vstages(layout) * sizeof *layout->stage_layers;
    cut made = {.chunks = layout->chunks};
    if (layout->stage_layers != NULL) {
        made.layers = sp_malloc(bytes);
        memcpy(made.layers, layout->stage_layers, bytes);
    }
    return made;
}

// Equal shares first, where there are: of equal steps they are wanted. Tells the one to take where
// none runs.
static sp_status make_cuts(const sp_scenario *scenario, cut *cuts, int *count, int *usual,
                           sp_error *err)
{
    bool chooses = sp_strategy_find(scenario->strategy.kind)->chooses_chunks;
    int chunks = chooses && !scenario->chunks_given ? 1 : scenario->layout.chunks;
    sp_status status = SP_OK;
    if (scenario->model.layers % (scenario->layout.pp * chunks) == 0) {
        cuts[(*count)++] = (cut){.chunks = chunks};
    }
    *usual = *count;
    if (chooses) {
        cuts[(*count)++] = cut_as_chosen(&scenario->layout);
    } else if (!sp_schedule_traits_of(scenario->schedule.kind).sliced) {
        status = cut_by_time(scenario, true, &cuts[(*count)++], err);
    }
    return status == SP_OK ? cut_by_time(scenario, false, &cuts[(*count)++], err) : status;
}

typedef struct cut_choice {
    const sp_scenario *scenario;
    sp_batches batches; // the first of the workload
    const cut *cuts;
    int count;
    double deadline_s;
} cut_choice;

static sp_status judge_cut(void *context, int i, const sp_packflow_outcome *best,
                           sp_packflow_outcome *outcome, sp_error *err)
{
    const cut_choice *c = context;
    (void)best;
    double part_s = sp_i_deadline_part_s(c->deadline_s, 1.0 / (c->count - i));
    return plan_cut(c->scenario, &c->batches, &c->cuts[i], part_s, outcome, err);
}

static sp_status find_fastest(const sp_scenario *scenario, const cut *cuts, int count,
                              double deadline_s, int *fastest, sp_error *err)
{
    cut_choice c = {.scenario = scenario, .cuts = cuts, .count = count, .deadline_s = deadline_s};
    sp_workload_spec first = scenario->workload;
    sp_packflow_outcome least = SP_PACKFLOW_WORST;
    first.batches = 1;
    sp_status status = sp_batches_make(&first, &c.batches, err);
    const sp_i_candidates candidates = {
        .count = c.batches.count > 0 ? count : 0, .judge = judge_cut, .context = &c};
    if (status == SP_OK) {
        status = sp_i_search(&candidates, fastest, &least, err);
    }
    sp_batches_fini(&c.batches);
    return status;
}

sp_status sp_i_choose_cut(sp_scenario *scenario, sp_error *err)
{
    cut cuts[MOST_CUTS] = {0};
    int count = 0;
    int fastest = 0;
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    if (strategy->chooses_chunks && scenario->strategy.time_limit_ms > 0) {
        return SP_OK;
    }
    const double begun_s = sp_clock_s();
    const double left_s =
        sp_i_time_left_s(scenario->strategy.time_limit_ms, scenario->strategy.spent_s);
    const double deadline_s = left_s > 0.0 ? begun_s + CHOOSING * left_s : 0.0;
    sp_status status = make_cuts(scenario, cuts, &count, &fastest, err);
    if (status == SP_OK && count > 1) {
        status = find_fastest(scenario, cuts, count, deadline_s, &fastest, err);
    }
    scenario->strategy.spent_s += sp_clock_s() - begun_s;
    if (status == SP_OK) {
        sp_scenario_take_cut(scenario, cuts[fastest].chunks, cuts[fastest].layers);
        cuts[fastest].layers = NULL;
    }
    for (int i = 0; i < count; i++) {
        sp_free(cuts[i].layers);
    }
    return status == SP_OK ? sp_scenario_set_order(scenario, err) : status;
}
