#include <math.h>

#include "backends/record/result.h"
#include "backends/record/result_private.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"

const char *const sp_i_status_names[] = {
    [SP_OK] = "ok",
    [SP_ERR_INFEASIBLE] = "infeasible",
    [SP_ERR_USAGE] = "usage",
    [SP_ERR_IO] = "io",
    [SP_ERR_ACCESS] = "access",
    [SP_ERR_SYNTAX] = "syntax",
    [SP_ERR_CONTENT] = "content",
    [SP_ERR_DEADLOCK] = "deadlock",
    [SP_ERR_LIMIT] = "limit",
    [SP_ERR_SYSTEM] = "system",
    [SP_ERR_NO_MEMORY] = "no-memory",
    [SP_ERR_STOPPED] = "stopped",
    [SP_ERR_INTERNAL] = "internal",
    NULL,
};

const char *const sp_i_share_names[] = {
    [SP_SHARE_HEAD] = "head",
    [SP_SHARE_EMBEDDING_BACKWARD] = "embedding-backward",
    [SP_SHARE_EMBEDDING] = "embedding",
    [SP_SHARE_HEAD_BACKWARD] = "head-backward",
    NULL,
};

void sp_i_span_times(const sp_span *span, int64_t times[SP_I_SPAN_TIMES])
{
    times[0] = span->start_ns;
    times[1] = span->end_ns;
    times[2] = span->tp_ns;
    times[3] = span->cp_ns;
    times[4] = span->dp_ns;
    times[5] = span->launch_ns;
    times[6] = span->wait_p2p_ns;
}

void sp_i_span_set_times(sp_span *span, const int64_t times[SP_I_SPAN_TIMES])
{
    span->start_ns = times[0];
    span->end_ns = times[1];
    span->tp_ns = times[2];
    span->cp_ns = times[3];
    span->dp_ns = times[4];
    span->launch_ns = times[5];
    span->wait_p2p_ns = times[6];
}

static json_t *device_json(const sp_device_info *device)
{
    return device == NULL
               ? json_null()
               : json_pack("{s:s, s:I, s:I}", "name", device->name, "ranks",
                           (json_int_t)device->ranks, "cores", (json_int_t)device->cores);
}

static json_t *request_json(const char *backend, const sp_run_request *run, const json_t *plan)
{
    json_t *options = json_object();
    for (size_t o = 0; o < run->option_count; o++) {
        if (json_object_get(options, run->options[o].key) == NULL) {
            sp_json_put(options, run->options[o].key, json_string(run->options[o].value));
        }
    }
    return json_pack("{s:s, s:s, s:s, s:I, s:i, s:b, s:o, s:O}", "backend", backend, "clock",
                     sp_clock_names[run->clock], "precision", sp_precision_names[run->precision],
                     "seed", (json_int_t)run->seed, "steps", run->steps, "memory_points",
                     run->memory_points, "options", options, "plan", plan);
}

json_t *sp_result_document(const char *backend, const sp_run_request *run, const json_t *plan,
                           const sp_device_info *device, sp_status status, const char *reason)
{
    return json_pack("{s:s, s:o, s:s, s:s?, s:o, s:o}", "schema", "slimpack/execution/1", "request",
                     request_json(backend, run, plan), "status", sp_i_status_names[status],
                     "reason", reason, "device", device_json(device), "batches", json_array());
}

static json_t *step_json(const sp_executed_step *step)
{
    return json_pack("{s:I, s:o}", "iteration_ns", (json_int_t)step->iteration_ns, "loss",
                     step->has_loss && isfinite(step->loss) ? json_real(step->loss) : json_null());
}

// ---- the timeline ----

static json_t *span_json(const sp_span *span, int chunks)
{
    char name[32];
    int64_t times[SP_I_SPAN_TIMES];
    json_t *array = json_array();
    sp_action_name(span->action, chunks, name);
    sp_i_span_times(span, times);
    json_array_append_new(array, json_string(name));
    for (int i = 0; i < SP_I_SPAN_TIMES; i++) {
        json_array_append_new(array, json_integer(times[i]));
    }
    return array;
}

static json_t *spans_json(const sp_span *spans, size_t count, int chunks)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(array, span_json(&spans[i], chunks));
    }
    return array;
}

static json_t *shares_json(const sp_rank_timeline *rank, int chunks)
{
    json_t *array = json_array();
    for (size_t i = 0; i < rank->share_count; i++) {
        const sp_share_span *share = &rank->shares[i];
        json_t *span = span_json(&share->span, chunks);
        json_array_append_new(span, json_string(sp_i_share_names[share->part]));
        json_array_append_new(span, json_boolean(share->own));
        json_array_append_new(array, span);
    }
    return array;
}

// ---- memory ----

static json_t *points_json(const sp_rank_memory *memory)
{
    json_t *points = json_array();
    for (size_t i = 0; i < memory->point_count; i++) {
        const sp_memory_point *point = &memory->points[i];
        json_t *numbers = json_array();
        json_array_append_new(numbers, json_integer(point->time_ns));
        for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
            json_array_append_new(numbers, json_integer(point->bytes.of[c]));
        }
        json_array_append_new(points, numbers);
    }
    return points;
}

static json_t *memory_json(const sp_rank_memory *memory, int chunks)
{
    char name[32];
    json_t *peak = json_object();
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        sp_json_put(peak, sp_memory_category_names[c], json_integer(memory->peak.of[c]));
    }
    sp_action_name(memory->peak_action, chunks, name);
    return json_pack("{s:o, s:I, s:s?, s:f, s:o}", "peak", peak, "peak_ns",
                     (json_int_t)memory->peak_ns, "peak_action",
                     memory->has_peak_action ? name : NULL, "units_peak", memory->units_peak,
                     "points", points_json(memory));
}

static json_t *rank_json(const sp_rank_timeline *rank, const sp_rank_memory *memory, int chunks)
{
    return json_pack("{s:i, s:i, s:o, s:o, s:o, s:[I,I,I,I], s:o}", "dp", rank->dp, "pp", rank->pp,
                     "actions", spans_json(rank->spans, rank->count, chunks), "copies",
                     spans_json(rank->copies, rank->copy_count, chunks), "shares",
                     shares_json(rank, chunks), "tail_ns", (json_int_t)rank->reduce_start_ns,
                     (json_int_t)rank->reduce_end_ns, (json_int_t)rank->optimizer_end_ns,
                     (json_int_t)rank->gather_end_ns, "memory", memory_json(memory, chunks));
}

static json_t *ranks_json(const sp_measured_step *step)
{
    const sp_timeline *timeline = &step->timeline;
    json_t *ranks = json_array();
    for (size_t r = 0; r < timeline->rank_count; r++) {
        json_array_append_new(ranks, rank_json(&timeline->ranks[r], &step->memory.ranks[r],
                                               timeline->plan->layout.chunks));
    }
    return ranks;
}

void sp_result_document_add(json_t *document, const sp_run *run)
{
    int count = sp_run_steps(run);
    sp_executed_step *steps = sp_calloc((size_t)count, sizeof *steps);
    json_t *array = json_array();
    for (int i = 0; i < count; i++) {
        steps[i] = sp_executed_step_of(sp_run_step(run, i));
        json_array_append_new(array, step_json(&steps[i]));
    }
    int shown = sp_execution_median_step(steps, count);
    sp_free(steps);
    json_t *batch = json_pack("{s:o, s:i, s:o}", "steps", array, "shown", shown, "ranks",
                              ranks_json(sp_run_step(run, shown)));
    json_array_append_new(json_object_get(document, "batches"), batch);
}

// ---- the steps of a run ----

sp_executed_step sp_executed_step_of(const sp_measured_step *step)
{
    return (sp_executed_step){.iteration_ns = step->timeline.iteration_ns,
                              .has_loss = step->has_loss,
                              .loss = step->loss};
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
