#include "experiments/execution/execution_json.h"

#include <math.h>

#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/metrics/predecessors.h"

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
            json_array_append_new(
                steps, json_pack("{s:o, s:o}", "iteration_ms", sp_json_figure(ms), "loss", loss));
        }
        json_array_append_new(batches,
                              json_pack("{s:o, s:i}", "steps", steps, "shown", batch->shown));
    }
    return batches;
}

// A name that is not UTF-8 has no place in JSON: its key is left out.
static json_t *setting_json(const sp_execution *execution)
{
    const sp_execution_options *options = execution->options;
    const char *stack = execution->measured.parameters > 0 ? execution->stack.name : NULL;
    return json_pack("{s:o*, s:o*, s:s?, s:s, s:s, s:I, s:i, s:o}", "backend",
                     json_string(sp_backend_name(options->backend)), "device",
                     json_string(execution->device.name), "stack", stack, "clock",
                     sp_clock_names[options->clock], "precision",
                     sp_precision_names[options->precision], "seed", (json_int_t)options->seed,
                     "steps", options->steps, "batches", batches_json(execution));
}

json_t *sp_execution_result_json(const sp_execution *execution)
{
    json_t *object = sp_result_json(&execution->measured, true);
    sp_json_put(object, "execution", setting_json(execution));
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
    json_t *peak =
        result->parameters > 0 ? json_integer((json_int_t)metrics->peak_bytes) : json_null();
    return json_pack("{s:o, s:o, s:o, s:o}", "busy_ms",
                     sp_json_figure(sp_ms_from_ns(metrics->busy_ns) / batches), "span_ms",
                     sp_json_figure(sp_ms_from_ns(metrics->span_ns) / batches), "peak_bytes", peak,
                     "held_bytes", held != NULL ? bytes_json(held) : json_null());
}

static json_t *rank_error_json(const sp_rank_metrics *predicted, const sp_rank_metrics *measured,
                               bool with_memory)
{
    double busy = sp_relative_error((double)predicted->busy_ns, (double)measured->busy_ns);
    double peak = sp_relative_error((double)predicted->peak_bytes, (double)measured->peak_bytes);
    return json_pack("{s:o, s:o}", "busy_time", sp_json_figure(busy), "peak_memory",
                     with_memory ? sp_json_figure(peak) : json_null());
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
            json_pack("{s:i, s:i, s:o, s:o, s:o}", "dp", measured->dp, "pp", measured->pp,
                      "predicted",
                      rank_json(&execution->predicted, r, held != NULL ? &held->predicted : NULL),
                      "measured",
                      rank_json(&execution->measured, r, held != NULL ? &held->measured : NULL),
                      "error", rank_error_json(predicted, measured, with_memory)));
    }
    return ranks;
}

json_t *sp_execution_error_json(const sp_execution_error *error)
{
    return json_pack("{s:o, s:o, s:o}", "iteration_time", sp_json_figure(error->iteration_time),
                     "bubble_ratio_abs", sp_json_figure(error->bubble_ratio), "peak_memory_mape",
                     sp_json_figure(error->peak_memory_mape));
}

json_t *sp_execution_validation_json(const sp_execution *execution)
{
    const sp_execution_error error = sp_execution_compare(execution);
    json_t *object = json_pack("{s:s}", "schema", "slimpack/validation/1");
    json_t *setting = setting_json(execution);
    json_object_update(object, setting);
    json_decref(setting);
    sp_json_put(object, "predicted", sp_result_json(&execution->predicted, false));
    sp_json_put(object, "measured", sp_result_json(&execution->measured, false));
    sp_json_put(object, "error", sp_execution_error_json(&error));
    sp_json_put(object, "ranks", ranks_json(execution));
    return object;
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
            ranks,
            json_pack("{s:i, s:i, s:o, s:o, s:f}", "dp", rank->dp, "pp", rank->pp, "actions",
                      spans_json(predecessors, timeline, r, SP_LIST_ACTIONS, rank->count), "copies",
                      spans_json(predecessors, timeline, r, SP_LIST_COPIES, rank->copy_count),
                      "end_ms", sp_ms_from_ns(rank->gather_end_ns)));
    }
    sp_predecessors_free(predecessors);
}
