// One plan, predicted and executed.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/execution/execution.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/metrics/predecessors.h"
#include "solver/strategy.h"

typedef struct executor {
    sp_scenario scenario; // the caller's, with the stack of the prediction; owns nothing
    const sp_execution_options *options;
    sp_execution *execution;
} executor;

// ---- what ranks hold ----

static void raise(sp_bytes *most, const sp_bytes *bytes)
{
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        most->of[c] = bytes->of[c] > most->of[c] ? bytes->of[c] : most->of[c];
    }
}

// The first point of the moment in which an action ends is what it left; later ones of the same
// moment belong to the action that follows at once. An action without length (of a stage that holds
// nothing) begins in that moment, too: what it left is the last point.
static sp_bytes held_by_rank(const sp_rank_timeline *rank, const sp_rank_memory *memory)
{
    sp_bytes most = {{0}};
    size_t point = 0;
    for (size_t a = 0; a < rank->count; a++) {
        int64_t end_ns = rank->spans[a].end_ns;
        while (point + 1 < memory->point_count && memory->points[point].time_ns < end_ns &&
               memory->points[point + 1].time_ns <= end_ns) {
            point++;
        }
        while (rank->spans[a].start_ns == end_ns && point + 1 < memory->point_count &&
               memory->points[point + 1].time_ns == end_ns) {
            point++;
        }
        if (point < memory->point_count) {
            raise(&most, &memory->points[point].bytes);
        }
    }
    return most;
}

void sp_held_memory_add(sp_held_memory *held, int pp, const sp_timeline *timeline,
                        const sp_memory_timeline *memory, bool measured)
{
    for (size_t r = 0; r < timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &timeline->ranks[r];
        sp_bytes most = held_by_rank(rank, &memory->ranks[r]);
        for (int i = 0; i < rank->alike; i++) {
            sp_held_memory *place =
                &held[(size_t)rank->dp_alike[i] * (size_t)pp + (size_t)rank->pp];
            raise(measured ? &place->measured : &place->predicted, &most);
        }
    }
}

// ---- runs ----

static sp_status find_device(const sp_execution_options *options, sp_device_info *device,
                             sp_error *err)
{
    if (options->executed != NULL) {
        *device = options->executed->device;
    }
    return options->executed != NULL || options->taker != NULL
               ? SP_OK
               : sp_backend_device_info(options->backend, options->device, device, err);
}

void sp_execution_fini(sp_execution *execution)
{
    for (size_t b = 0; b < execution->batch_count; b++) {
        sp_free(execution->batches[b].steps);
    }
    sp_free(execution->batches);
    sp_free(execution->held);
    sp_result_fini(&execution->predicted);
    sp_result_fini(&execution->measured);
    *execution = (sp_execution){0};
}

static sp_run_request request_of(const executor *e, const sp_step_view *view)
{
    const sp_scenario *scenario = &e->scenario;
    const sp_execution_options *options = e->options;
    return (sp_run_request){.plan = view->plan,
                            .source = scenario->source,
                            .model = scenario->uniform ? NULL : &scenario->model,
                            .memory = scenario->uniform ? NULL : &scenario->memory,
                            .costs = view->costs,
                            .clock = options->clock,
                            .precision = options->precision,
                            .seed = options->seed,
                            .steps = options->steps,
                            .memory_limit_bytes = e->execution->predicted.memory_limit_bytes,
                            .memory_points = options->memory_points || options->compare_memory,
                            .options = options->options,
                            .option_count = options->option_count};
}

// Copies what is the same for both results. Bounds and peak rate are those of the scenario's
// machine, which need not be the one that executes: without them gaps and MFU are unknown. What
// explains the peak tensor by tensor knows simulated steps alone.
static void describe(const executor *e, sp_result *measured)
{
    const sp_result *predicted = &e->execution->predicted;
    measured->layout = predicted->layout;
    memcpy(measured->strategy, predicted->strategy, sizeof measured->strategy);
    memcpy(measured->schedule, predicted->schedule, sizeof measured->schedule);
    memcpy(measured->model_name, predicted->model_name, sizeof measured->model_name);
    measured->parameters = predicted->parameters;
    measured->trained_parameters = predicted->trained_parameters;
    measured->flops_per_token = predicted->flops_per_token;
    measured->memory_limit_bytes = predicted->memory_limit_bytes;
    snprintf(measured->profile, sizeof measured->profile, "backend %.48s",
             sp_backend_name(e->options->backend));
    measured->level = SP_LEVEL_MEASURED;
    measured->seed = predicted->seed;
    measured->lossless = predicted->lossless;
    measured->over_length_share = predicted->over_length_share;
    measured->published_bubble_ratio = -1.0;
}

// Ranks that take turns on a core wait for it where a prediction has them compute.
static void warn_of_shared_cores(const sp_execution_options *options, const sp_device_info *device,
                                 sp_result *measured)
{
    int64_t ranks = sp_layout_ranks(&measured->layout);
    if (options->clock == SP_CLOCK_WALL && device->cores > 0 && ranks > device->cores) {
        sp_warnings_add(&measured->warnings,
                        "%lld ranks share %lld core%s: times are not those of side-by-side ranks",
                        (long long)ranks, (long long)device->cores,
                        sp_plural((int64_t)device->cores));
    }
}

// Room for what a batch came to: `count` steps.
static sp_executed_step *begin_steps(sp_execution *execution, int count)
{
    sp_executed_step *steps = sp_calloc((size_t)count, sizeof *steps);
    *SP_ADDED(execution->batches, execution->batch_capacity, execution->batch_count) =
        (sp_executed_batch){.steps = steps, .step_count = count};
    return steps;
}

static void add_measured(executor *e, const sp_step_view *view)
{
    sp_execution *execution = e->execution;
    sp_result *measured = &execution->measured;
    sp_step_metrics metrics = {0};
    sp_batch_facts facts = execution->predicted.batches[view->batch].facts;
    facts.lower_bound_ns = -1.0;
    facts.work_bound_ns = -1.0;
    facts.limit_ns = 0.0; // of the profile's GPU
    facts.solver_ms = 0.0;
    facts.simulate_ms = 0.0;
    describe(e, measured);
    warn_of_shared_cores(e->options, &execution->device, measured);
    sp_step_metrics_compute(view->timeline, view->memory, &metrics);
    sp_result_add(measured, &metrics, &facts);
    sp_step_metrics_fini(&metrics);
}

static void compare_memory(executor *e, const sp_step_view *predicted, const sp_step_view *measured)
{
    sp_execution *execution = e->execution;
    const sp_layout *layout = &predicted->plan->layout;
    size_t ranks = (size_t)layout->dp * (size_t)layout->pp;
    if (!e->options->compare_memory) {
        return;
    }
    if (execution->held == NULL) {
        execution->held = sp_calloc(ranks, sizeof *execution->held);
    }
    sp_held_memory_add(execution->held, layout->pp, predicted->timeline, predicted->memory, false);
    sp_held_memory_add(execution->held, layout->pp, measured->timeline, measured->memory, true);
}

// Metrics of a step that was executed, beside those of the simulated one.
static sp_status measure(executor *e, const sp_step_view *view, const sp_measured_step *step,
                         sp_error *err)
{
    sp_step_view measured = *view;
    measured.timeline = &step->timeline;
    measured.memory = &step->memory;
    measured.lower_bound_ms = -1.0;
    add_measured(e, &measured);
    compare_memory(e, view, &measured);
    return e->options->observer != NULL
               ? e->options->observer(e->options->observer_context, view, &measured, err)
               : SP_OK;
}

static sp_status execute_here(executor *e, const sp_step_view *view, const sp_run_request *request,
                              sp_error *err)
{
    sp_run *run = NULL;
    SP_TRY(sp_backend_run(e->options->backend, e->options->device, request, &run, err));
    int count = sp_run_steps(run);
    sp_executed_step *steps = begin_steps(e->execution, count);
    for (int i = 0; i < count; i++) {
        steps[i] = sp_executed_step_of(sp_run_step(run, i));
    }
    if (e->options->record != NULL) {
        sp_result_document_add(e->options->record, run);
    }
    int shown = sp_execution_median_step(steps, count);
    e->execution->batches[e->execution->batch_count - 1].shown = shown;
    sp_status status = measure(e, view, sp_run_step(run, shown), err);
    sp_run_free(run);
    return status;
}

// Turns what ended an execution on another machine into a status of this one: what was wrong with
// that machine's files or memory is no such thing here.
static sp_status recalled(sp_status status)
{
    switch (status) {
    case SP_ERR_USAGE:
        return SP_ERR_CONTENT;
    case SP_ERR_IO:
    case SP_ERR_SYNTAX:
    case SP_ERR_ACCESS:
    case SP_ERR_SYSTEM:
    case SP_ERR_NO_MEMORY:
    case SP_ERR_STOPPED:
        return SP_ERR_INTERNAL;
    case SP_OK:
    case SP_ERR_INFEASIBLE:
    case SP_ERR_CONTENT:
    case SP_ERR_DEADLOCK:
    case SP_ERR_LIMIT:
    case SP_ERR_INTERNAL:
        break;
    }
    return status;
}

static sp_status recall(executor *e, const sp_step_view *view, sp_error *err)
{
    const sp_result_file *executed = e->options->executed;
    if (executed->status != SP_OK) {
        return sp_error_set(err, recalled(executed->status), "%s", executed->reason);
    }
    const sp_executed_run *run = &executed->batches[view->batch];
    sp_executed_step *steps = begin_steps(e->execution, run->step_count);
    memcpy(steps, run->steps, (size_t)run->step_count * sizeof *steps);
    e->execution->batches[e->execution->batch_count - 1].shown = run->shown;
    return measure(e, view, &run->step, err);
}

static sp_status prove(executor *e, const sp_step_view *view, sp_error *err)
{
    sp_proofs *proofs = e->options->proofs;
    sp_run_request request = request_of(e, view);
    request.memory_points = false;
    SP_RESERVE(proofs->items, proofs->capacity, proofs->count + 1);
    return sp_proof_run(e->options->backend, e->options->device, proofs->plain, &request,
                        &proofs->items[proofs->count++], err);
}

void sp_proofs_fini(sp_proofs *proofs)
{
    for (size_t i = 0; i < proofs->count; i++) {
        sp_proof_fini(&proofs->items[i]);
    }
    sp_free(proofs->items);
    *proofs = (sp_proofs){0};
}

bool sp_proofs_hold(const sp_proofs *proofs)
{
    bool hold = proofs->count > 0;
    for (size_t i = 0; i < proofs->count; i++) {
        hold = hold && proofs->items[i].holds;
    }
    return hold;
}

// An sp_step_observer: the simulated step is there, now the same plan is executed.
static sp_status execute_batch(void *context, const sp_step_view *view, sp_error *err)
{
    executor *e = context;
    const sp_execution_options *options = e->options;
    if (options->executed != NULL) {
        return recall(e, view, err);
    }
    if (options->proofs != NULL) {
        return prove(e, view, err);
    }
    if (options->taker != NULL) {
        return options->taker(options->taker_context, view, err);
    }
    const sp_run_request request = request_of(e, view);
    return execute_here(e, view, &request, err);
}

// Plans that are given, or those of the scenario's own batches.
static sp_status evaluate(executor *e, const sp_evaluate_options *how, sp_error *err)
{
    const sp_execution_options *options = e->options;
    const sp_result_file *executed = options->executed;
    sp_result *predicted = &e->execution->predicted;
    sp_batches batches = {0};
    if (executed != NULL || options->plans != NULL) {
        const sp_plan_file *given = executed != NULL ? &executed->plans : options->plans;
        sp_warn_of_batches(&given->formed, &e->execution->measured.warnings);
        return sp_evaluate_plans(&e->scenario, given, how, predicted, err);
    }
    sp_status status = sp_evaluate_batches(&e->scenario, &batches, err);
    if (status == SP_OK) {
        sp_warn_of_batches(&batches, &e->execution->measured.warnings);
        status = sp_evaluate(&e->scenario, &batches, how, predicted, err);
    }
    sp_batches_fini(&batches);
    return status;
}

sp_status sp_execution_run(const sp_scenario *scenario, const sp_execution_options *options,
                           sp_execution *execution, sp_error *err)
{
    executor e = {.scenario = *scenario, .options = options, .execution = execution};
    const sp_evaluate_options how = {
        .engine = {.memory_points = options->memory_points || options->compare_memory},
        .no_bounds = !options->bounds,
        .threads = options->threads,
        .observer = execute_batch,
        .observer_context = &e};
    *execution = (sp_execution){.options = options};
    // Memory is predicted for the software that executes, unless the scenario asks for another.
    const char *stack = sp_backend_stack(options->backend);
    if (!scenario->stack_given && stack != NULL) {
        sp_stack_builtin(stack, &e.scenario.memory.stack);
        e.scenario.memory.stack.precision = scenario->memory.stack.precision; // is refused
    }
    execution->stack = e.scenario.memory.stack;
    sp_status status = find_device(options, &execution->device, err);
    if (status == SP_OK) {
        status = evaluate(&e, &how, err);
    }
    if (status != SP_OK) {
        sp_execution_fini(execution);
    }
    return status;
}

// ---- Documents ----

double sp_relative_error(double predicted, double measured)
{
    if (predicted == measured) {
        return 0.0;
    }
    return measured != 0.0 ? predicted / measured - 1.0 : (double)NAN;
}

sp_execution_error sp_execution_compare(const sp_execution *execution)
{
    const sp_result *predicted = &execution->predicted;
    const sp_result *measured = &execution->measured;
    int64_t ranks = (int64_t)measured->layout.dp * measured->layout.pp;
    double sum = 0.0;
    for (int64_t r = 0; r < ranks; r++) {
        sum += fabs(sp_relative_error((double)predicted->ranks[r].peak_bytes,
                                      (double)measured->ranks[r].peak_bytes));
    }
    return (sp_execution_error){
        .iteration_time = sp_relative_error(predicted->iteration_ns, measured->iteration_ns),
        .bubble_ratio = sp_result_bubble_ratio(predicted) - sp_result_bubble_ratio(measured),
        .peak_memory_mape = measured->parameters > 0 ? sum / (double)ranks : (double)NAN};
}

static json_t *batches_json(const sp_execution *execution)
{
    json_t *batches = json_array();
    for (size_t b = 0; b < execution->batch_count; b++) {
        const sp_executed_batch *batch = &execution->batches[b];
        json_t *steps = json_array();
        for (int i = 0; i < batch->step_count; i++) {
            const sp_executed_step *step = &batch->steps[i];
            double ms = sp_ms_from_ns(step->iteration_ns);
            json_t *loss = step->has_loss ? sp_json_figure(step->loss) : json_null();
            json_t *told = sp_json_object(SP_JSON("iteration_ms", ms), SP_JSON("loss", loss));
            if (execution->options->learning_rates) {
                sp_json_put(told, "learning_rate", json_real(step->learning_rate));
            }
            json_array_append_new(steps, told);
        }
        json_array_append_new(
            batches, sp_json_object(SP_JSON("steps", steps), SP_JSON("shown", batch->shown)));
    }
    return batches;
}

// A name that is not UTF-8 has no place in JSON: its key is left out.
static json_t *setting_json(const sp_execution *execution)
{
    const sp_execution_options *options = execution->options;
    const char *stack = execution->measured.parameters > 0 ? execution->stack.name : NULL;
    return sp_json_object(SP_JSON("backend", sp_backend_name(options->backend)),
                          SP_JSON("device", execution->device.name),
                          SP_JSON("stack", sp_json_text_or_null(stack)),
                          SP_JSON("clock", sp_clock_names[options->clock]),
                          SP_JSON("precision", sp_precision_names[options->precision]),
                          SP_JSON("seed", options->seed), SP_JSON("steps", options->steps),
                          SP_JSON("batches", batches_json(execution)));
}

json_t *sp_execution_result_json(const sp_execution *execution)
{
    json_t *object = sp_result_json(&execution->measured, true);
    sp_json_put(object, "execution", setting_json(execution));
    return object;
}

// Errors that are infinite or no numbers are null.
static json_t *tensor_json(const sp_proven_tensor *tensor)
{
    return sp_json_object(
        SP_JSON("name", tensor->name), SP_JSON("elements", tensor->elements),
        SP_JSON("error", tensor->error), SP_JSON("largest_error", tensor->largest),
        SP_JSON("bound", tensor->bound), SP_JSON("holds", (bool)(tensor->error <= tensor->bound)));
}

static json_t *proof_json(const sp_proof *proof)
{
    json_t *tensors = json_array();
    for (size_t t = 0; t < proof->count; t++) {
        json_array_append_new(tensors, tensor_json(&proof->tensors[t]));
    }
    return sp_json_object(SP_JSON("holds", proof->holds), SP_JSON("loss", proof->loss),
                          SP_JSON("plain_loss", proof->plain_loss),
                          SP_JSON("worst", tensor_json(&proof->tensors[proof->worst])),
                          SP_JSON("tensors", tensors));
}

json_t *sp_execution_proofs_json(const sp_execution *execution)
{
    const sp_execution_options *options = execution->options;
    const sp_proofs *proofs = options->proofs;
    json_t *batches = json_array();
    for (size_t i = 0; i < proofs->count; i++) {
        json_array_append_new(batches, proof_json(&proofs->items[i]));
    }
    return sp_json_object(SP_JSON("schema", "slimpack/proof/1"),
                          SP_JSON("backend", sp_backend_name(options->backend)),
                          SP_JSON("device", execution->device.name),
                          SP_JSON("plain_backend", sp_backend_name(proofs->plain)),
                          SP_JSON("precision", sp_precision_names[options->precision]),
                          SP_JSON("seed", options->seed), SP_JSON("holds", sp_proofs_hold(proofs)),
                          SP_JSON("batches", batches));
}

static json_t *bytes_json(const sp_bytes *bytes)
{
    json_t *object = json_object();
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        sp_json_put(object, sp_memory_category_names[c], json_integer((json_int_t)bytes->of[c]));
    }
    return object;
}

static json_t *rank_json(const sp_result *result, size_t rank, const sp_bytes *held)
{
    const sp_rank_metrics *metrics = &result->ranks[rank];
    double batches = (double)result->batch_count;
    json_t *peak =
        result->parameters > 0 ? json_integer((json_int_t)metrics->peak_bytes) : json_null();
    return sp_json_object(SP_JSON("busy_ms", sp_ms_from_ns(metrics->busy_ns) / batches),
                          SP_JSON("span_ms", sp_ms_from_ns(metrics->span_ns) / batches),
                          SP_JSON("peak_bytes", peak),
                          SP_JSON("held_bytes", held != NULL ? bytes_json(held) : json_null()));
}

static json_t *rank_error_json(const sp_rank_metrics *predicted, const sp_rank_metrics *measured,
                               bool with_memory)
{
    double busy = sp_relative_error((double)predicted->busy_ns, (double)measured->busy_ns);
    double peak = sp_relative_error((double)predicted->peak_bytes, (double)measured->peak_bytes);
    return sp_json_object(SP_JSON("busy_time", busy),
                          SP_JSON("peak_memory", with_memory ? sp_json_figure(peak) : json_null()));
}

static json_t *ranks_json(const sp_execution *execution)
{
    const sp_layout *layout = &execution->measured.layout;
    size_t count = (size_t)layout->dp * (size_t)layout->pp;
    bool with_memory = execution->measured.parameters > 0;
    json_t *ranks = json_array();
    for (size_t r = 0; r < count; r++) {
        const sp_rank_metrics *predicted = &execution->predicted.ranks[r];
        const sp_rank_metrics *measured = &execution->measured.ranks[r];
        const sp_held_memory *held = execution->held != NULL ? &execution->held[r] : NULL;
        json_array_append_new(
            ranks,
            sp_json_object(SP_JSON("dp", measured->dp), SP_JSON("pp", measured->pp),
                           SP_JSON("predicted", rank_json(&execution->predicted, r,
                                                          held != NULL ? &held->predicted : NULL)),
                           SP_JSON("measured", rank_json(&execution->measured, r,
                                                         held != NULL ? &held->measured : NULL)),
                           SP_JSON("error", rank_error_json(predicted, measured, with_memory))));
    }
    return ranks;
}

json_t *sp_execution_error_json(const sp_execution_error *error)
{
    return sp_json_object(SP_JSON("iteration_time", error->iteration_time),
                          SP_JSON("bubble_ratio_abs", error->bubble_ratio),
                          SP_JSON("peak_memory_mape", error->peak_memory_mape));
}

void sp_execution_warnings(const sp_execution *execution, sp_warnings *warnings)
{
    *warnings = execution->predicted.warnings;
    sp_warnings_add_all(warnings, &execution->measured.warnings, NULL);
}

json_t *sp_execution_validation_json(const sp_execution *execution)
{
    sp_warnings warnings;
    sp_execution_warnings(execution, &warnings);
    const sp_execution_error error = sp_execution_compare(execution);
    json_t *object = sp_json_object(SP_JSON("schema", "slimpack/validation/1"));
    json_t *setting = setting_json(execution);
    json_object_update(object, setting);
    json_decref(setting);
    return sp_json_add(
        object, SP_JSON("predicted", sp_result_json(&execution->predicted, false)),
        SP_JSON("measured", sp_result_json(&execution->measured, false)),
        SP_JSON("error", sp_execution_error_json(&error)), SP_JSON("ranks", ranks_json(execution)),
        SP_JSON("warnings", sp_json_lines(warnings.text[0], SP_WARNING_TEXT, warnings.count)));
}

static json_t *spans_json(const sp_predecessors *predecessors, const sp_timeline *timeline,
                          size_t rank, sp_timeline_list list, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        char name[SP_ITEM_NAME];
        char waited_for[SP_WAITED_FOR];
        sp_timeline_item item = {.rank = rank, .index = i, .list = list};
        const sp_span *span = sp_timeline_item_span(timeline, item);
        sp_timeline_item_name(timeline, item, name);
        json_array_append_new(array, json_pack("[s, f, f, s*]", name, sp_ms_from_ns(span->start_ns),
                                               sp_ms_from_ns(span->end_ns),
                                               sp_waited_for(predecessors, item, waited_for)));
    }
    return array;
}

void sp_execution_put_timeline(json_t *ranks, const sp_step_view *step)
{
    const sp_timeline *timeline = step->timeline;
    sp_predecessors *predecessors = sp_predecessors_new(timeline, step->costs);
    for (size_t r = 0; r < timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &timeline->ranks[r];
        json_array_append_new(
            ranks, sp_json_object(SP_JSON("dp", rank->dp), SP_JSON("pp", rank->pp),
                                  SP_JSON("actions", spans_json(predecessors, timeline, r,
                                                                SP_LIST_ACTIONS, rank->count)),
                                  SP_JSON("copies", spans_json(predecessors, timeline, r,
                                                               SP_LIST_COPIES, rank->copy_count)),
                                  SP_JSON("end_ms", sp_ms_from_ns(rank->gather_end_ns))));
    }
    sp_predecessors_free(predecessors);
}
