#include "experiments/execution/execution.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"

typedef struct executor {
    sp_scenario scenario; // the caller's, with the stack of the prediction; owns nothing
    const sp_execution_options *options;
    sp_execution *execution;
} executor;

static sp_status execute_batch(void *context, const sp_step_view *view, sp_error *err);

// What simulation and execution have in common.
static sp_evaluate_options evaluation(executor *e)
{
    const sp_execution_options *options = e->options;
    return (sp_evaluate_options){
        .engine = {.memory_points = options->memory_points || options->compare_memory},
        .no_bounds = !options->bounds,
        .threads = options->threads,
        .observer = execute_batch,
        .observer_context = e};
}

// Memory is predicted for the software that executes, unless the scenario asks for another.
static sp_status begin(const sp_scenario *scenario, const sp_execution_options *options,
                       executor *e, sp_execution *execution, sp_error *err)
{
    const char *stack = sp_backend_stack(options->backend);
    *execution = (sp_execution){.options = options};
    *e = (executor){.scenario = *scenario, .options = options, .execution = execution};
    if (!scenario->stack_given && stack != NULL) {
        sp_stack_builtin(stack, &e->scenario.memory.stack);
    }
    execution->stack = e->scenario.memory.stack;
    return sp_backend_device_info(options->backend, options->device, &execution->device, err);
}

static sp_status end(sp_execution *execution, sp_status status)
{
    if (status != SP_OK) {
        sp_execution_fini(execution);
    }
    return status;
}

sp_status sp_execution_run(const sp_scenario *scenario, const sp_execution_options *options,
                           sp_execution *execution, sp_error *err)
{
    executor e;
    sp_batches batches = {0};
    sp_status status = begin(scenario, options, &e, execution, err);
    const sp_evaluate_options evaluate = evaluation(&e);
    if (status == SP_OK) {
        status = sp_evaluate_batches(&e.scenario, &batches, err);
    }
    if (status == SP_OK) {
        status = sp_evaluate(&e.scenario, &batches, &evaluate, &execution->predicted, err);
    }
    sp_batches_fini(&batches);
    return end(execution, status);
}

sp_status sp_execution_run_plans(const sp_scenario *scenario, const sp_plan *plans, int count,
                                 const sp_execution_options *options, sp_execution *execution,
                                 sp_error *err)
{
    executor e;
    sp_status status = begin(scenario, options, &e, execution, err);
    const sp_evaluate_options evaluate = evaluation(&e);
    if (status == SP_OK) {
        status =
            sp_evaluate_plans(&e.scenario, plans, count, &evaluate, &execution->predicted, err);
    }
    return end(execution, status);
}

void sp_execution_fini(sp_execution *execution)
{
    for (size_t b = 0; b < execution->batch_count; b++) {
        sp_i_free(execution->batches[b].steps);
    }
    sp_i_free(execution->batches);
    sp_i_free(execution->held);
    sp_result_fini(&execution->predicted);
    sp_result_fini(&execution->measured);
    *execution = (sp_execution){0};
}

int sp_execution_median_step(const sp_executed_step *steps, int count)
{
    int first = count > 1 ? 1 : 0;
    int rank = (count - first - 1) / 2;
    for (int i = first; i < count; i++) {
        int before = 0;
        for (int k = first; k < count; k++) {
            before += steps[k].iteration_ns < steps[i].iteration_ns ||
                      (steps[k].iteration_ns == steps[i].iteration_ns && k < i);
        }
        if (before == rank) {
            return i;
        }
    }
    SP_UNREACHABLE("an order of steps");
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

// What is the same for both results. Bounds and peak rate are those of the scenario's machine,
// which need not be the one that executes: without them gaps and MFU are unknown. What explains the
// peak tensor by tensor knows simulated steps alone.
static void describe(const executor *e, sp_result *measured)
{
    const sp_result *predicted = &e->execution->predicted;
    measured->layout = predicted->layout;
    memcpy(measured->strategy, predicted->strategy, sizeof measured->strategy);
    memcpy(measured->schedule, predicted->schedule, sizeof measured->schedule);
    memcpy(measured->model_name, predicted->model_name, sizeof measured->model_name);
    measured->parameters = predicted->parameters;
    measured->flops_per_token = predicted->flops_per_token;
    measured->memory_limit_bytes = predicted->memory_limit_bytes;
    snprintf(measured->profile, sizeof measured->profile, "backend %.48s",
             sp_backend_name(e->options->backend));
    measured->level = SP_LEVEL_MEASURED;
    measured->seed = predicted->seed;
    measured->lossless = predicted->lossless;
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
                        (long long)ranks, (long long)device->cores, device->cores == 1 ? "" : "s");
    }
}

static sp_status keep_steps(sp_execution *execution, const sp_run *run, sp_error *err)
{
    int count = sp_run_steps(run);
    sp_executed_step *steps = sp_i_calloc((size_t)count, sizeof *steps);
    if (steps == NULL || !sp_i_reserve((void **)&execution->batches, &execution->batch_capacity,
                                       execution->batch_count + 1, sizeof *execution->batches)) {
        sp_i_free(steps);
        return sp_error_no_memory(err, "the steps of a run");
    }
    for (int i = 0; i < count; i++) {
        const sp_measured_step *step = sp_run_step(run, i);
        steps[i] = (sp_executed_step){.iteration_ns = step->timeline.iteration_ns,
                                      .has_loss = step->has_loss,
                                      .loss = step->loss};
    }
    execution->batches[execution->batch_count++] = (sp_executed_batch){
        .steps = steps, .step_count = count, .shown = sp_execution_median_step(steps, count)};
    return SP_OK;
}

static sp_status add_measured(executor *e, const sp_step_view *view, sp_error *err)
{
    sp_execution *execution = e->execution;
    sp_result *measured = &execution->measured;
    sp_step_metrics metrics = {0};
    sp_batch_facts facts = execution->predicted.batches[view->batch].facts;
    facts.lower_bound_ns = -1.0;
    facts.work_bound_ns = -1.0;
    facts.solver_ms = 0.0;
    facts.simulate_ms = 0.0;
    describe(e, measured);
    warn_of_shared_cores(e->options, &execution->device, measured);
    sp_status status = sp_step_metrics_compute(view->timeline, view->memory, &metrics, err);
    if (status == SP_OK) {
        status = sp_result_add(measured, &metrics, &facts, err);
    }
    sp_step_metrics_fini(&metrics);
    return status;
}

static sp_status compare_memory(executor *e, const sp_step_view *predicted,
                                const sp_step_view *measured, sp_error *err)
{
    sp_execution *execution = e->execution;
    const sp_layout *layout = &predicted->plan->layout;
    size_t ranks = (size_t)layout->dp * (size_t)layout->pp;
    if (!e->options->compare_memory) {
        return SP_OK;
    }
    if (execution->held == NULL) {
        execution->held = sp_i_calloc(ranks, sizeof *execution->held);
    }
    if (execution->held == NULL) {
        return sp_error_no_memory(err, "a comparison of memory");
    }
    sp_held_memory_add(execution->held, layout->pp, predicted->timeline, predicted->memory, false);
    sp_held_memory_add(execution->held, layout->pp, measured->timeline, measured->memory, true);
    return SP_OK;
}

// An sp_step_observer: the simulated step is there, now the same plan is executed.
static sp_status execute_batch(void *context, const sp_step_view *view, sp_error *err)
{
    executor *e = context;
    const sp_run_request request = request_of(e, view);
    sp_run *run = NULL;
    sp_status status = sp_backend_run(e->options->backend, e->options->device, &request, &run, err);
    if (status == SP_OK) {
        status = keep_steps(e->execution, run, err);
    }
    if (status == SP_OK) {
        const sp_execution *execution = e->execution;
        int shown = execution->batches[execution->batch_count - 1].shown;
        const sp_measured_step *step = sp_run_step(run, shown);
        sp_step_view measured = *view;
        measured.timeline = &step->timeline;
        measured.memory = &step->memory;
        measured.lower_bound_ms = -1.0;
        status = add_measured(e, &measured, err);
        if (status == SP_OK) {
            status = compare_memory(e, view, &measured, err);
        }
        if (status == SP_OK && e->options->observer != NULL) {
            status = e->options->observer(e->options->observer_context, view, &measured, err);
        }
    }
    sp_run_free(run);
    return status;
}
