#include "experiments/execution/execution_json.h"

#include <math.h>

#include "sim/base/json.h"
#include "sim/base/units.h"

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

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

static json_t *step_json(const sp_executed_step *step)
{
    json_t *object = json_object();
    sp_json_put(object, "iteration_ms", number(sp_ms_from_ns(step->iteration_ns)));
    sp_json_put(object, "loss", step->has_loss ? number(step->loss) : json_null());
    return object;
}

static json_t *batches_json(const sp_execution *execution)
{
    json_t *batches = json_array();
    for (size_t b = 0; b < execution->batch_count; b++) {
        const sp_executed_batch *batch = &execution->batches[b];
        json_t *object = json_object();
        json_t *steps = json_array();
        for (int i = 0; i < batch->step_count; i++) {
            json_array_append_new(steps, step_json(&batch->steps[i]));
        }
        sp_json_put(object, "steps", steps);
        sp_json_put(object, "shown", json_integer(batch->shown));
        json_array_append_new(batches, object);
    }
    return batches;
}

static void put_setting(json_t *object, const sp_execution *execution)
{
    const sp_execution_options *options = execution->options;
    sp_json_put(object, "backend", json_string(sp_backend_name(options->backend)));
    sp_json_put(object, "device", json_string(execution->device.name));
    sp_json_put(object, "stack",
                execution->measured.parameters > 0 ? json_string(execution->stack.name)
                                                   : json_null());
    sp_json_put(object, "clock", json_string(sp_clock_names[options->clock]));
    sp_json_put(object, "precision", json_string(sp_precision_names[options->precision]));
    sp_json_put(object, "seed", json_integer((json_int_t)options->seed));
    sp_json_put(object, "steps", json_integer(options->steps));
    sp_json_put(object, "batches", batches_json(execution));
}

json_t *sp_execution_result_json(const sp_execution *execution)
{
    json_t *object = sp_result_json(&execution->measured, true);
    if (object != NULL) {
        json_t *how = json_object();
        put_setting(how, execution);
        sp_json_put(object, "execution", how);
    }
    return object;
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
    json_t *object = json_object();
    sp_json_put(object, "busy_ms", number(sp_ms_from_ns(metrics->busy_ns) / batches));
    sp_json_put(object, "span_ms", number(sp_ms_from_ns(metrics->span_ns) / batches));
    sp_json_put(object, "peak_bytes",
                result->parameters > 0 ? json_integer((json_int_t)metrics->peak_bytes)
                                       : json_null());
    sp_json_put(object, "held_bytes", held != NULL ? bytes_json(held) : json_null());
    return object;
}

static json_t *rank_error_json(const sp_rank_metrics *predicted, const sp_rank_metrics *measured,
                               bool with_memory)
{
    json_t *object = json_object();
    double peak = sp_relative_error((double)predicted->peak_bytes, (double)measured->peak_bytes);
    sp_json_put(object, "busy_time",
                number(sp_relative_error((double)predicted->busy_ns, (double)measured->busy_ns)));
    sp_json_put(object, "peak_memory", with_memory ? number(peak) : json_null());
    return object;
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
        json_t *object = json_object();
        sp_json_put(object, "dp", json_integer(measured->dp));
        sp_json_put(object, "pp", json_integer(measured->pp));
        sp_json_put(object, "predicted",
                    rank_json(&execution->predicted, r, held != NULL ? &held->predicted : NULL));
        sp_json_put(object, "measured",
                    rank_json(&execution->measured, r, held != NULL ? &held->measured : NULL));
        sp_json_put(object, "error", rank_error_json(predicted, measured, with_memory));
        json_array_append_new(ranks, object);
    }
    return ranks;
}

json_t *sp_execution_validation_json(const sp_execution *execution)
{
    const sp_execution_error error = sp_execution_compare(execution);
    json_t *object = json_object();
    json_t *errors = json_object();
    if (object == NULL || errors == NULL) {
        json_decref(object);
        json_decref(errors);
        return NULL;
    }
    sp_json_put(object, "schema", json_string("slimpack/validation/1"));
    put_setting(object, execution);
    sp_json_put(object, "predicted", sp_result_json(&execution->predicted, false));
    sp_json_put(object, "measured", sp_result_json(&execution->measured, false));
    sp_json_put(errors, "iteration_time", number(error.iteration_time));
    sp_json_put(errors, "bubble_ratio_abs", number(error.bubble_ratio));
    sp_json_put(errors, "peak_memory_mape", number(error.peak_memory_mape));
    sp_json_put(object, "error", errors);
    sp_json_put(object, "ranks", ranks_json(execution));
    return object;
}

static json_t *spans_json(const sp_timeline *timeline, const sp_span *spans, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        char name[32];
        sp_action_name(spans[i].action, timeline->plan->layout.chunks, name);
        json_t *span = json_array();
        json_array_append_new(span, json_string(name));
        json_array_append_new(span, json_real(sp_ms_from_ns(spans[i].start_ns)));
        json_array_append_new(span, json_real(sp_ms_from_ns(spans[i].end_ns)));
        json_array_append_new(array, span);
    }
    return array;
}

void sp_execution_put_timeline(json_t *ranks, const sp_timeline *timeline)
{
    for (size_t r = 0; r < timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &timeline->ranks[r];
        json_t *object = json_object();
        sp_json_put(object, "dp", json_integer(rank->dp));
        sp_json_put(object, "pp", json_integer(rank->pp));
        sp_json_put(object, "actions", spans_json(timeline, rank->spans, rank->count));
        sp_json_put(object, "copies", spans_json(timeline, rank->copies, rank->copy_count));
        sp_json_put(object, "end_ms", json_real(sp_ms_from_ns(rank->gather_end_ns)));
        json_array_append_new(ranks, object);
    }
}
