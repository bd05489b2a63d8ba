// A backend of few lines as a plug-in: a forward takes 1000 ns and holds 10 bytes of activations
// until its backward, which takes 2000 ns, is over. Built several times, once right and otherwise
// with something wrong.
#include <stdlib.h>

#include "backends/api/backend.h"
#include "sim/plan/walk.h"

#ifndef SAMPLE_NAME
#define SAMPLE_NAME "sample"
#endif
#ifndef SAMPLE_ABI
#define SAMPLE_ABI SP_BACKEND_ABI
#endif
#ifndef SAMPLE_TYPES
#define SAMPLE_TYPES SP_BACKEND_TYPES
#endif
#ifndef SAMPLE_SIZE
#define SAMPLE_SIZE sizeof(sp_backend_ops)
#endif
#ifndef SAMPLE_SYMBOL
#define SAMPLE_SYMBOL sp_backend_plugin
#endif
#ifndef SAMPLE_DESCRIPTION
#define SAMPLE_DESCRIPTION "a sample"
#endif

enum { UNIT_BYTES = 10 };

static sp_status device_count(int *count, sp_error *err)
{
    *count = 1;
    return SP_OK;
}

static sp_status device_info(int device, sp_device_info *info, sp_error *err)
{
    *info =
        (sp_device_info){.name = "sample",
                         .capabilities = SP_CAN(PIPELINE) | SP_CAN(DATA_PARALLEL) | SP_CAN(CHUNKS) |
                                         SP_CAN(NO_MODEL) | SP_CAN(FP64) | SP_CAN(CLOCK_VIRTUAL) |
                                         SP_CAN(MEMORY_POINTS) | SP_CAN(STEPS)};
    return SP_OK;
}

static sp_status run_action(void *context, const sp_walk_action *action, sp_walk_outcome *outcome,
                            sp_error *err)
{
    outcome->took.compute_ns = action->place.action.kind == SP_ACTION_F ? 1000 : 2000;
    return SP_OK;
}

static void note_memory(const sp_rank_timeline *rank, bool points, sp_rank_memory *memory)
{
    sp_bytes held = {{0}};
    sp_rank_memory_note(memory, 0, &held, NULL, points);
    for (size_t i = 0; i < rank->count; i++) {
        const sp_span *span = &rank->spans[i];
        bool forward = span->action.kind == SP_ACTION_F;
        held.of[SP_MEM_ACTIVATIONS] += forward ? UNIT_BYTES : -UNIT_BYTES;
        sp_rank_memory_note(memory, forward ? span->start_ns : span->end_ns, &held, &span->action,
                            points);
    }
}

static sp_status run_step(const sp_run_request *request, sp_measured_step *step, sp_error *err)
{
    const sp_walk_driver driver = {.run = run_action};
    sp_timeline_init(&step->timeline, request->plan);
    sp_status status = sp_walk(request->plan, &driver, &step->timeline, NULL, err);
    if (status == SP_OK) {
        sp_timeline_finish(&step->timeline);
        sp_memory_timeline_init(&step->memory, &step->timeline);
    }
    for (size_t r = 0; status == SP_OK && r < step->timeline.rank_count; r++) {
        note_memory(&step->timeline.ranks[r], request->memory_points, &step->memory.ranks[r]);
    }
    return status;
}

static sp_status execute(int device, const sp_run_request *request, sp_measured_step *steps,
                         void **state, sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < request->steps; i++) {
        status = run_step(request, &steps[i], err);
    }
    return status;
}

static sp_status calibrate(int device, const sp_calibration_request *request, json_t **profile,
                           sp_error *err)
{
    *profile = json_pack("{s:s, s:f}", "schema", "slimpack/profile/1", "limit", request->limit_s);
    return *profile != NULL ? SP_OK : sp_error_no_memory(err, "a profile");
}

#ifdef SAMPLE_PROCESS
// As a launcher of two processes might say it.
static sp_status process(int *rank, int *ranks, sp_error *err)
{
    const char *text = getenv("SAMPLE_RANK");
    *rank = text != NULL && text[0] == '1';
    *ranks = 2;
    return text != NULL ? SP_OK
                        : sp_error_set(err, SP_ERR_USAGE, "environment: SAMPLE_RANK is not set");
}
#endif

extern const sp_backend_ops SAMPLE_SYMBOL;
const sp_backend_ops SAMPLE_SYMBOL = {
    .abi = SAMPLE_ABI,
    .size = SAMPLE_SIZE,
    .types = SAMPLE_TYPES,
    .name = SAMPLE_NAME,
    .description = SAMPLE_DESCRIPTION,
    .device_count = device_count,
    .device_info = device_info,
    .execute = execute,
    .calibrate = calibrate,
#ifdef SAMPLE_PROCESS
    .process = process,
#endif
};
