// One packing as a step: its costs, its simulation, how it is judged, and what a judged step leaves
// to the evaluation.
#include "solver/step/step.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/progress.h"
#include "sim/base/units.h"
#include "sim/simulate/allocator_replay.h"
#include "solver/search.h"

// Of the memory limit: a step with a lower peak fits by blocks, too. Of some hundred packings of
// 7B to 13B without a pipeline blocks took up to 1.72 times the peak, with one up to 2.6 times.
#define AMPLE 0.5
#define AMPLE_IN_PIPELINES 0.35

// What a forward or backward of a layer takes the allocator, in units of work and about in seconds,
// and the share of a step that it may take to ask whether a whole plan fits.
enum { PASS_UNITS = 200 };
#define PASS_S 20e-6
#define ASKING_SHARE 0.01

static void group_starts_try(const sp_i_group_starts *starts, const sp_packing *packing,
                             sp_step_costs *costs);
static void best_step_keep(sp_i_best_step *kept, sp_i_best_step *judged, const sp_packing *packing);

sp_status sp_i_steps_init(sp_i_steps *steps, sp_error *err)
{
    SP_TRY(sp_scenario_cost_model(steps->scenario, &steps->cost, err));
    return sp_scenario_cost_model(steps->scenario, &steps->trial, err);
}

void sp_i_steps_fini(sp_i_steps *steps)
{
    sp_cost_model_fini(&steps->cost);
    sp_cost_model_fini(&steps->trial);
}

// A state goes on from slice to slice and from rank to rank, which is not priced: samples stay
// whole, on ranks that share none. Searches pass over packings that are refused.
static sp_status check_whole_samples(const sp_scenario *scenario, const sp_packing *packing,
                                     sp_error *err)
{
    const sp_pack_list *list = &packing->forward;
    const char *what = NULL;
    if (scenario->uniform || packing->batch == NULL || !sp_model_has_state(&scenario->model)) {
        return SP_OK;
    }
    for (size_t p = 0; what == NULL && p < list->count; p++) {
        const sp_pack *pack = &list->packs[p];
        what = pack->dp_count > 1 ? "shares samples among ranks" : NULL;
        for (size_t s = 0; what == NULL && s < pack->slice_count; s++) {
            const sp_slice *slice = &list->slices[pack->first_slice + s];
            bool whole =
                slice->begin == 0 && slice->tokens == packing->batch->tokens[slice->sample];
            what = whole ? NULL : "cuts samples into slices";
        }
    }
    return what == NULL
               ? SP_OK
               : sp_error_in(err, SP_ERR_CONTENT, scenario->source, "strategy.kind",
                             "\"%s\", with schedule \"%s\", %s, and how their state is "
                             "handed on (model.mixer) is not simulated: expected a strategy "
                             "and a schedule of whole samples, as \"packed\" and \"1f1b\"",
                             scenario->strategy.kind, sp_schedule_names[scenario->schedule.kind],
                             what);
}

sp_status sp_i_step_costs(sp_i_steps *steps, const sp_packing *packing, sp_step_costs *costs,
                          sp_error *err)
{
    const sp_scenario *scenario = steps->scenario;
    *costs = (sp_step_costs){0};
    SP_TRY(sp_schedule_check_size(&scenario->layout, packing, err));
    SP_TRY(check_whole_samples(scenario, packing, err));
    if (scenario->uniform) {
        sp_step_costs_uniform(&scenario->uniform_costs, &scenario->layout, packing, costs);
        return SP_OK;
    }
    return sp_cost_model_build(&steps->cost, packing, costs, err);
}

sp_status sp_i_step_alone(sp_i_steps *steps, const sp_packing *packing, sp_error *err)
{
    sp_plan plan = {0};
    sp_step_costs costs = {0};
    sp_batch_facts facts = {.microbatches = sp_i_step_microbatches(packing)};
    sp_result_fini(steps->result);
    sp_i_step_describe(steps->scenario, steps->result);
    sp_plan_init(&plan, &steps->scenario->layout, packing);
    sp_status status = sp_i_step_costs(steps, packing, &costs, err);
    if (status == SP_OK) {
        group_starts_try(steps->starts, packing, &costs);
        status = sp_i_step_schedule(steps, &plan, &costs, err);
    }
    if (status == SP_OK) {
        status = sp_i_step_simulate(steps, 0, &plan, &costs, &facts, err);
    }
    sp_step_costs_fini(&costs);
    if (steps->keep != NULL && status == SP_OK) {
        steps->keep->plan = plan;
    } else {
        sp_plan_fini(&plan);
    }
    return status;
}

// The allocator is asked this while the step's timelines are alive.
typedef struct allocator_question {
    const sp_i_steps *steps;
    const sp_packflow_outcome
        *best; // NULL: of a whole plan, whether gaps between blocks fit at all
    double deadline_s;
    int64_t reserved_bytes; // 0: not known
    int64_t least_bytes;    // 0: not known, or all that is reserved fits
} allocator_question;

static sp_packflow_outcome outcome_of(const sp_result *alone)
{
    const int64_t has_bytes = sp_larger(alone->device_bytes, alone->memory_limit_bytes);
    const int64_t lacking_bytes = !sp_result_is_oom(alone) ? 0
                                  : alone->peak_bytes > alone->memory_limit_bytes
                                      ? alone->peak_bytes - alone->memory_limit_bytes
                                      : alone->least_device_bytes - has_bytes;
    bool tight = sp_result_fits(alone) == SP_FITS_TIGHT;
    return (sp_packflow_outcome){.makespan_ns = alone->batches[0].iteration_ns,
                                 .lacking_bytes = lacking_bytes,
                                 .tight = tight,
                                 .overfull = (tight || alone->least_device_bytes > 0) &&
                                             alone->reserved_peak_bytes > 0};
}

static bool is_worth_asking(const allocator_question *a)
{
    const sp_scenario *scenario = a->steps->scenario;
    const sp_result *alone = a->steps->result;
    const double ample = scenario->layout.pp > 1 ? AMPLE_IN_PIPELINES : AMPLE;
    sp_packflow_outcome at_best = outcome_of(alone);
    at_best.tight = false;
    return (scenario->layout.pp == 1 || a->best == NULL) &&
           scenario->memory_model == SP_MEMORY_TENSORS && alone->memory_limit_bytes > 0 &&
           at_best.lacking_bytes == 0 &&
           (double)alone->peak_bytes > ample * (double)alone->memory_limit_bytes &&
           (a->best == NULL || sp_packflow_is_better(&at_best, a->best)) &&
           !sp_i_is_late(scenario, a->deadline_s);
}

static sp_status ask_allocator(void *context, const sp_step_view *view, sp_error *err)
{
    allocator_question *a = context;
    const sp_scenario *scenario = a->steps->scenario;
    const char *obstacle;
    const size_t passes = sp_layer_passes(view->timeline, &scenario->model);
    const double step_s = (double)a->steps->result->batches[0].iteration_ns / SP_NS_PER_S;
    const double most = a->best == NULL ? ASKING_SHARE * step_s / PASS_S : 0.0;
    if (!is_worth_asking(a) || (double)passes > fmax(SP_STEP_COUNTED_PASSES, most)) {
        return SP_OK;
    }
    sp_i_spend(scenario, (int64_t)passes * PASS_UNITS);
    const int64_t limit_bytes = scenario->memory_limit_bytes;
    const int64_t enough_bytes = a->best == NULL
                                     ? sp_larger(limit_bytes, a->steps->result->device_bytes)
                                     : (int64_t)((1.0 - SP_RESERVED_TIGHT) * (double)limit_bytes);
    sp_status status =
        sp_allocator_reserved(view->timeline, view->costs, view->memory, &scenario->model,
                              &scenario->memory, enough_bytes, &a->reserved_bytes, &obstacle, err);
    if (status == SP_OK && a->best == NULL && a->reserved_bytes > enough_bytes) {
        sp_allocator_peak peak;
        status = sp_allocator_replay(view->timeline, view->costs, view->memory, &scenario->model,
                                     &scenario->memory, SP_NO_RANK, &peak, &obstacle, err);
        a->least_bytes = peak.least_bytes;
    }
    return status;
}

// Unless `rows` is NULL, it is the packing: first cut where the schedule runs slices. Unless `best`
// is NULL, blocks count where the step would be better than that; with `gaps` those of a pipeline.
static sp_status judge(const sp_strategy_input *input, const sp_packing *packing, sp_packing *rows,
                       const sp_packflow_outcome *best, bool gaps, sp_packflow_outcome *outcome,
                       sp_error *err)
{
    allocator_question ask = {.best = best, .deadline_s = input->deadline_s};
    const sp_evaluate_options options = {.engine = {.no_cycle = true},
                                         .no_bounds = true,
                                         .no_causes = true,
                                         .observer = best != NULL || gaps ? ask_allocator : NULL,
                                         .observer_context = &ask};
    sp_error own;
    sp_result alone = {0};
    sp_i_best_step judged = {.plan = {.packing = NULL}};
    // Ranks that exchange attention change the costs, which are not kept.
    bool keeps = input->best_step != NULL && rows == NULL &&
                 input->scenario->schedule.kind != SP_SCHEDULE_SLIMPIPE;
    // With the strategy's cost model, which goes on from what it has priced.
    sp_i_steps steps = {.scenario = input->scenario,
                        .options = &options,
                        .cost = *input->cost,
                        .trial = *input->cost,
                        .starts = input->starts,
                        .result = &alone,
                        .keep = keeps ? &judged : NULL};
    ask.steps = &steps;
    sp_error_clear(&own);
    *outcome = SP_PACKFLOW_WORST;
    sp_status status = rows != NULL ? sp_i_step_rows(&steps, rows, &own) : SP_OK;
    if (status == SP_OK) {
        status = sp_i_step_alone(&steps, packing, &own);
    }
    sp_i_spend_step(input->scenario, packing);
    if (status == SP_OK) {
        alone.reserved_peak_bytes = ask.reserved_bytes;
        alone.least_device_bytes = ask.least_bytes;
        sp_result_add_stalls(&alone, steps.scenario->profile.interference.tight_microbatch_s);
        *outcome = outcome_of(&alone);
    }
    judged.outcome = *outcome;
    if (status == SP_OK && steps.keep != NULL) {
        best_step_keep(input->best_step, &judged, packing);
    } else {
        sp_i_best_step_fini(&judged);
    }
    sp_result_fini(&alone);
    return sp_i_only_fatal(status, &own, err);
}

sp_status sp_step_judge(const sp_strategy_input *input, const sp_packing *packing,
                        sp_packflow_outcome *outcome, sp_error *err)
{
    return judge(input, packing, NULL, NULL, false, outcome, err);
}

sp_status sp_step_judge_blocks(const sp_strategy_input *input, const sp_packing *packing,
                               const sp_packflow_outcome *best, sp_packflow_outcome *outcome,
                               sp_error *err)
{
    return judge(input, packing, NULL, best, false, outcome, err);
}

sp_status sp_step_judge_gaps(const sp_strategy_input *input, const sp_packing *packing,
                             sp_packflow_outcome *outcome, sp_error *err)
{
    return judge(input, packing, NULL, NULL, true, outcome, err);
}

sp_status sp_step_judge_rows(const sp_strategy_input *input, sp_packing *packing,
                             sp_packflow_outcome *outcome, sp_error *err)
{
    return judge(input, packing, packing, NULL, false, outcome, err);
}

sp_status sp_step_tail(const sp_strategy_input *input, int64_t *tail_ns, sp_error *err)
{
    const sp_evaluate_options options = {
        .engine = {.no_cycle = true}, .no_bounds = true, .no_causes = true};
    sp_error own;
    sp_result alone = {0};
    sp_packing packing;
    sp_batch first = *input->batch;
    first.count = 1;
    first.total_tokens = first.tokens[0];
    const sp_slice whole = {.tokens = first.tokens[0], .computed_tokens = first.tokens[0]};
    sp_packing_init(&packing, &first, input->scenario->layout.dp);
    sp_pack_list_begin(&packing.forward, 0, 1);
    sp_pack_list_add(&packing.forward, whole, true);
    sp_i_steps steps = {.scenario = input->scenario,
                        .options = &options,
                        .cost = *input->cost,
                        .trial = *input->cost,
                        .result = &alone};
    sp_error_clear(&own);
    *tail_ns = 0;
    sp_status status = sp_i_step_alone(&steps, &packing, &own);
    if (status == SP_OK) {
        *tail_ns = alone.batches[0].iteration_ns - alone.batches[0].makespan_ns;
    }
    sp_result_fini(&alone);
    sp_packing_fini(&packing);
    return sp_i_only_fatal(status, &own, err);
}

// ---- steps that were judged ----

// A judged step that the evaluation of its packing takes over in place of doing all of it again.

void sp_i_best_step_fini(sp_i_best_step *kept)
{
    sp_packing_fini(&kept->packing);
    sp_plan_fini(&kept->plan);
    sp_timeline_fini(&kept->timeline);
    sp_memory_timeline_fini(&kept->memory);
    *kept = (sp_i_best_step){.plan = {.packing = NULL}};
}

static sp_pack_list copy_of(const sp_pack_list *from)
{
    sp_pack_list to = {.packs = sp_malloc(from->count * sizeof *to.packs),
                       .count = from->count,
                       .capacity = from->count,
                       .slices = sp_malloc(from->slice_count * sizeof *to.slices),
                       .slice_count = from->slice_count,
                       .slice_capacity = from->slice_count,
                       .padding = from->padding};
    if (from->count > 0) {
        memcpy(to.packs, from->packs, from->count * sizeof *to.packs);
        memcpy(to.slices, from->slices, from->slice_count * sizeof *to.slices);
    }
    return to;
}

static bool is_same_list(const sp_pack_list *a, const sp_pack_list *b)
{
    return a->count == b->count && a->slice_count == b->slice_count &&
           (a->count == 0 ||
            (memcmp(a->packs, b->packs, a->count * sizeof *a->packs) == 0 &&
             memcmp(a->slices, b->slices, a->slice_count * sizeof *a->slices) == 0));
}

// A judged step knows the numbers of its timeline alone.
bool sp_i_best_step_serves(const sp_i_best_step *kept, const sp_evaluate_options *options,
                           const sp_packing *packing)
{
    const sp_engine_options *engine = &options->engine;
    return kept->plan.stages != NULL && !engine->unfold && !engine->memory_points &&
           !engine->verify && kept->packing.batch == packing->batch &&
           kept->packing.dp == packing->dp && kept->packing.spare_bytes == packing->spare_bytes &&
           kept->packing.whole_backwards == packing->whole_backwards &&
           kept->packing.in_1f1b == packing->in_1f1b &&
           is_same_list(&kept->packing.forward, &packing->forward) &&
           is_same_list(&kept->packing.backward, &packing->backward);
}

// Takes the place of *kept where it is better, with a copy of its packing, else ends.
static void best_step_keep(sp_i_best_step *kept, sp_i_best_step *judged, const sp_packing *packing)
{
    if (judged->plan.stages == NULL ||
        (kept->plan.stages != NULL && !sp_packflow_is_better(&judged->outcome, &kept->outcome))) {
        sp_i_best_step_fini(judged);
        return;
    }
    judged->packing = (sp_packing){.batch = packing->batch,
                                   .dp = packing->dp,
                                   .spare_bytes = packing->spare_bytes,
                                   .whole_backwards = packing->whole_backwards,
                                   .in_1f1b = packing->in_1f1b,
                                   .forward = copy_of(&packing->forward),
                                   .backward = copy_of(&packing->backward)};
    sp_i_best_step_fini(kept);
    *kept = *judged;
}

// ---- the cold start of groups ----

// The first pack of a job that some data-parallel ranks share, or whose attention some of them
// share, makes NCCL connect them. Groups stay for later batches.

// Codes of zones go up to 2 * first + ranks < 3 * dp; 0 stands for all ranks.
static size_t codes_of(const sp_i_group_starts *starts)
{
    return 3 * (size_t)starts->dp;
}

static void take_tables(sp_i_group_starts *starts)
{
    if (starts->start_ms > 0.0) {
        starts->started = sp_calloc(codes_of(starts), sizeof *starts->started);
        starts->joined = sp_calloc((size_t)starts->dp, sizeof *starts->joined);
    }
}

void sp_i_group_starts_init(sp_i_group_starts *starts, const sp_scenario *scenario)
{
    *starts = (sp_i_group_starts){.start_ms = scenario->strategy.group_start_ms,
                                  .dp = scenario->layout.dp};
    take_tables(starts);
}

void sp_i_group_starts_fini(sp_i_group_starts *starts)
{
    sp_free(starts->started);
    sp_free(starts->joined);
    *starts = (sp_i_group_starts){0};
}

// Lets the ranks join the group unless it is there already.
static void join(sp_i_group_starts *starts, int first, int ranks)
{
    int32_t code = ranks == starts->dp ? 0 : sp_zone_of(first, ranks);
    bool new = ranks > 1 && !starts->started[code];
    starts->started[code] = starts->started[code] || new;
    for (int r = first; new &&r < first + ranks; r++) {
        starts->joined[r]++;
    }
}

static int most_joined(sp_i_group_starts *starts, const sp_pack_list *list, const sp_pack *pack)
{
    int most = 0;
    join(starts, pack->dp_first, pack->dp_count);
    for (size_t s = 0; s < pack->slice_count; s++) {
        int32_t zone = list->slices[pack->first_slice + s].zone;
        if (zone != 0) {
            join(starts, sp_zone_first(zone), sp_zone_ranks(zone));
        }
    }
    for (int r = pack->dp_first; r < pack->dp_first + pack->dp_count; r++) {
        most = starts->joined[r] > most ? starts->joined[r] : most;
        starts->joined[r] = 0;
    }
    return most;
}

void sp_i_group_starts_add(sp_i_group_starts *starts, const sp_packing *packing,
                           sp_step_costs *costs)
{
    const sp_pack_list *list = &packing->forward;
    for (size_t k = 0; starts->start_ms > 0.0 && k < list->count; k++) {
        int64_t ns =
            sp_ns_from_s(1e-3 * starts->start_ms) * most_joined(starts, list, &list->packs[k]);
        for (int c = 0; c < costs->classes; c++) {
            costs->action[SP_ACTION_F][k * (size_t)costs->classes + (size_t)c].cp_ns += ns;
        }
    }
}

// The same for a packing that is only tried. NULL: nothing starts.
static void group_starts_try(const sp_i_group_starts *starts, const sp_packing *packing,
                             sp_step_costs *costs)
{
    if (starts == NULL || !(starts->start_ms > 0.0)) {
        return;
    }
    sp_i_group_starts tried = {.start_ms = starts->start_ms, .dp = starts->dp};
    take_tables(&tried);
    memcpy(tried.started, starts->started, codes_of(starts) * sizeof *tried.started);
    sp_i_group_starts_add(&tried, packing, costs);
    sp_i_group_starts_fini(&tried);
}

// ---- simulation ----

static sp_status plan_memory(const sp_i_steps *steps, const sp_packing *packing,
                             sp_step_metrics *metrics, sp_error *err);
static sp_status count_blocks(const sp_i_steps *steps, const sp_timeline *timeline,
                              const sp_step_costs *costs, const sp_memory_timeline *memory,
                              int64_t peak_bytes, sp_error *err);
static sp_status explain_peak(const sp_i_steps *steps, const sp_timeline *timeline,
                              const sp_step_costs *costs, const sp_memory_timeline *memory,
                              int64_t peak_bytes, sp_error *err);

static void note_limit(const sp_i_steps *steps, const sp_step_metrics *metrics,
                       sp_batch_facts *facts);

sp_status sp_i_step_simulate(sp_i_steps *steps, int index, const sp_plan *plan,
                             const sp_step_costs *costs, sp_batch_facts *facts, sp_error *err)
{
    sp_timeline timeline;
    sp_memory_timeline memory;
    sp_engine_counts counts = {0};
    sp_step_metrics metrics = {0};
    sp_engine_options engine = steps->options->engine;
    engine.source = steps->scenario->source;
    const sp_network network = sp_scenario_network(steps->scenario);
    engine.network = &network;
    engine.jitter = steps->scenario->jitter;
    double started_s = sp_clock_s();
    const sp_i_best_step *known = steps->known;
    sp_status status = SP_OK;
    if (known != NULL) {
        timeline = known->timeline;
        timeline.plan = plan;
        memory = known->memory;
        counts = known->counts;
    } else {
        status = sp_simulate(plan, costs, &engine, &timeline, &memory, &counts, err);
    }
    if (status != SP_OK) {
        return status;
    }
    sp_step_metrics_compute(&timeline, &memory, &metrics);
    status = plan_memory(steps, plan->packing, &metrics, err);
    if (status == SP_OK) {
        status = count_blocks(steps, &timeline, costs, &memory, metrics.peak_bytes, err);
    }
    if (status == SP_OK) {
        status = explain_peak(steps, &timeline, costs, &memory, metrics.peak_bytes, err);
    }
    facts->simulate_ms += (sp_clock_s() - started_s) * 1e3;
    facts->overload = costs->overload;
    facts->tasks = (int64_t)counts.tasks;
    facts->edges = (int64_t)counts.edges;
    facts->lower_bound_ns = -1.0;
    facts->work_bound_ns = -1.0;
    // GPUs that differ may be faster than those of the profile, from which bounds follow.
    bool bounded = !steps->options->no_bounds && !(engine.jitter.gpu_cv > 0.0);
    note_limit(steps, &metrics, facts);
    if (status == SP_OK && bounded) {
        sp_i_step_bounds(steps, plan, costs, &metrics, facts);
    }
    if (status == SP_OK) {
        sp_result_add(steps->result, &metrics, facts);
    }
    if (status == SP_OK && steps->options->observer != NULL) {
        sp_step_view view = {.batch = index,
                             .plan = plan,
                             .costs = costs,
                             .timeline = &timeline,
                             .memory = &memory,
                             .lower_bound_ms = facts->lower_bound_ns / SP_NS_PER_MS};
        status = steps->options->observer(steps->options->observer_context, &view, err);
    }
    sp_step_metrics_fini(&metrics);
    if (steps->keep != NULL && status == SP_OK) {
        steps->keep->timeline = timeline;
        steps->keep->memory = memory;
        steps->keep->counts = counts;
    } else if (known == NULL) {
        sp_timeline_fini(&timeline);
        sp_memory_timeline_fini(&memory);
    }
    return status;
}

// GPUs that differ have no common best rate. With uniform costs all work but what runs again is
// the limit.
static void note_limit(const sp_i_steps *steps, const sp_step_metrics *metrics,
                       sp_batch_facts *facts)
{
    if (steps->scenario->jitter.gpu_cv > 0.0) {
        facts->limit_ns = facts->padded_limit_ns = 0.0;
    } else if (steps->scenario->uniform) {
        facts->limit_ns =
            (double)(metrics->busy_ns - metrics->again_ns) / (double)metrics->rank_count;
        facts->padded_limit_ns = facts->limit_ns;
    } else {
        facts->host_ns = fmin(steps->cost.profile->host.iteration_s * SP_NS_PER_S,
                              (double)metrics->optimizer_ns);
    }
}

// Memory by SlimPipe's planner in place of the simulated one: one figure for all ranks, the
// fullest.
static sp_status plan_memory(const sp_i_steps *steps, const sp_packing *packing,
                             sp_step_metrics *metrics, sp_error *err)
{
    const sp_scenario *scenario = steps->scenario;
    sp_planner_options options = sp_scenario_planner_options(scenario);
    if (scenario->memory_model != SP_MEMORY_SLIMPIPE_PLANNER) {
        return SP_OK;
    }
    // The longest row: its slices lie in a row.
    int64_t tokens = 0;
    for (size_t k = 0; k < packing->forward.count; k++) {
        const sp_pack *pack = &packing->forward.packs[k];
        bool same = k > 0 && pack->microbatch == packing->forward.packs[k - 1].microbatch;
        tokens = same ? tokens + pack->computed : pack->computed;
        options.sequence_tokens =
            tokens > options.sequence_tokens ? tokens : options.sequence_tokens;
    }
    sp_status status = sp_planner_memory(&scenario->model, &scenario->layout, &options,
                                         scenario->source, &metrics->peak, err);
    metrics->peak_bytes = sp_bytes_total(&metrics->peak);
    for (int64_t r = 0; status == SP_OK && r < metrics->rank_count; r++) {
        metrics->ranks[r].peak_bytes = metrics->peak_bytes;
    }
    return status;
}

// Counts what PyTorch's allocator would, where that can be said.
static sp_status count_blocks(const sp_i_steps *steps, const sp_timeline *timeline,
                              const sp_step_costs *costs, const sp_memory_timeline *memory,
                              int64_t peak_bytes, sp_error *err)
{
    const sp_scenario *scenario = steps->scenario;
    const sp_evaluate_options *options = steps->options;
    steps->result->reserved_peak_bytes =
        sp_larger(steps->result->reserved_peak_bytes, options->reserved_bytes);
    bool all_ranks = options->allocator_peak ||
                     (options->allocator_if_near && peak_bytes <= scenario->memory_limit_bytes &&
                      (double)peak_bytes > SP_MEMORY_NEAR * (double)scenario->memory_limit_bytes);
    if ((!all_ranks && options->rank_peak == SP_NO_RANK) || scenario->uniform) {
        return SP_OK;
    }
    const char *obstacle = "the planner's formulas know no tensors";
    bool known = scenario->memory_model != SP_MEMORY_SLIMPIPE_PLANNER;
    sp_allocator_peak all = {0};
    sp_allocator_peak one = {0};
    sp_status status = SP_OK;
    if (known && all_ranks) {
        status = sp_allocator_replay(timeline, costs, memory, &scenario->model, &scenario->memory,
                                     SP_NO_RANK, &all, &obstacle, err);
    }
    if (known && options->rank_peak != SP_NO_RANK && status == SP_OK) {
        status = sp_allocator_replay(timeline, costs, memory, &scenario->model, &scenario->memory,
                                     options->rank_peak, &one, &obstacle, err);
    }
    bool asked = options->allocator_peak || options->rank_peak != SP_NO_RANK;
    if (status == SP_OK && obstacle != NULL && asked) {
        sp_warnings_add(&steps->result->warnings, "no peak_memory_allocator_gib: %s", obstacle);
    } else if (status == SP_OK && obstacle == SP_REPLAY_TOO_LONG) {
        sp_warnings_add(&steps->result->warnings,
                        "gaps between blocks may fill the memory, and what PyTorch reserves is not "
                        "counted: %s",
                        obstacle);
    }
    if (status == SP_OK) {
        sp_result *r = steps->result;
        r->allocator_peak_bytes = sp_larger(r->allocator_peak_bytes, all.allocated_bytes);
        r->reserved_peak_bytes = sp_larger(r->reserved_peak_bytes, all.reserved_bytes);
        r->least_device_bytes = sp_larger(r->least_device_bytes, all.least_bytes);
        r->rank_peak_bytes = sp_larger(r->rank_peak_bytes, one.allocated_bytes);
        r->rank_reserved_bytes = sp_larger(r->rank_reserved_bytes, one.reserved_bytes);
    }
    return status;
}

// Tells what fills the peak of the batch that has the largest.
static sp_status explain_peak(const sp_i_steps *steps, const sp_timeline *timeline,
                              const sp_step_costs *costs, const sp_memory_timeline *memory,
                              int64_t peak_bytes, sp_error *err)
{
    const sp_scenario *scenario = steps->scenario;
    if (steps->options->no_causes || scenario->uniform ||
        scenario->memory_model != SP_MEMORY_TENSORS || peak_bytes <= steps->result->peak_bytes) {
        return SP_OK;
    }
    return sp_peak_memory_explain(timeline, memory, costs, &scenario->model, &scenario->memory,
                                  &steps->result->peak_memory, err);
}
