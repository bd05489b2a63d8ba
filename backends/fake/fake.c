#include "backends/fake/fake.h"

#include <string.h>

#include "backends/fake/fake_damage.h"
#include "backends/fake/fake_options.h"
#include "backends/fake/fake_tensor.h"
#include "backends/fake/fake_time.h"
#include "sim/base/alloc.h"
#include "sim/engine/engine.h"
#include "sim/engine/memory.h"
#include "sim/plan/vocab_shares.h"
#include "sim/plan/walk.h"

static sp_status device_count(int *count, sp_error *err)
{
    (void)err;
    *count = 2;
    return SP_OK;
}

static sp_status device_info(int device, sp_device_info *info, sp_error *err)
{
    static const sp_device_info devices[2] = {
        {.name = "scripted", .capabilities = SP_CAN_EVERYTHING & ~SP_CAN(CLOCK_WALL)},
        {.name = "plain",
         .capabilities = SP_CAN(PIPELINE) | SP_CAN(DATA_PARALLEL) | SP_CAN(NO_MODEL) |
                         SP_CAN(FP64) | SP_CAN(CLOCK_VIRTUAL),
         .ranks = 16}};
    (void)err;
    *info = devices[device];
    return SP_OK;
}

// ---- checks ----

static bool selects_any(const sp_plan *plan, const sp_i_selector *selector)
{
    for (int d = 0; d < plan->layout.dp; d++) {
        for (int p = 0; p < plan->layout.pp; p++) {
            const sp_stage_plan *stage = sp_plan_stage(plan, d, p);
            for (size_t a = 0; a < stage->count; a++) {
                sp_plan_place place = {.dp = d, .pp = p, .action = stage->actions[a]};
                if (sp_i_selects(selector, &place)) {
                    return true;
                }
            }
        }
    }
    return false;
}

static sp_status check_selectors(const sp_plan *plan, const sp_i_fake_options *o, sp_error *err)
{
    const struct {
        const char *key;
        const sp_i_selector *selector;
    } all[] = {{"fail", &o->fail},
               {"stall", &o->stall},
               {"exhaust", &o->exhaust},
               {"damage", &o->damaged}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].selector->given && !selects_any(plan, all[i].selector)) {
            return sp_error_set(err, SP_ERR_USAGE,
                                "backend 'fake': %s: the plan has no such action", all[i].key);
        }
    }
    return SP_OK;
}

static sp_status check(int device, const sp_run_request *request, sp_error *err)
{
    (void)device;
    sp_i_fake_options options;
    sp_status status = sp_i_fake_options_read(request, &options, err);
    if (status == SP_OK) {
        status = check_selectors(request->plan, &options, err);
    }
    if (status == SP_OK) {
        status = sp_i_fake_time_check(request, &options, err);
    }
    sp_i_fake_options_fini(&options);
    return status;
}

// ---- execution ----

// Nothing may still run when the time is over; `before_ns` is what earlier steps took.
static sp_status check_timeout(const sp_run_request *request, const sp_timeline *timeline,
                               int64_t before_ns, sp_error *err)
{
    for (size_t r = 0; request->timeout_ns > 0 && r < timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &timeline->ranks[r];
        for (size_t i = 0; i < rank->count; i++) {
            if (rank->spans[i].end_ns > request->timeout_ns - before_ns) {
                sp_plan_place place = {rank->dp, rank->pp, rank->spans[i].action};
                return sp_error_at_action(err, SP_ERR_LIMIT, request->plan, &place,
                                          "it is not done at the timeout of %lld ns",
                                          (long long)request->timeout_ns);
            }
        }
    }
    return SP_OK;
}

static sp_status check_limit(const sp_run_request *request, const sp_measured_step *step,
                             sp_error *err)
{
    int64_t limit = request->memory_limit_bytes;
    for (size_t r = 0; limit > 0 && r < step->memory.rank_count; r++) {
        const sp_rank_memory *memory = &step->memory.ranks[r];
        const sp_rank_timeline *rank = &step->timeline.ranks[r];
        long long peak = (long long)sp_bytes_total(&memory->peak);
        if (peak > limit && memory->has_peak_action) {
            sp_plan_place place = {rank->dp, rank->pp, memory->peak_action};
            return sp_error_at_action(err, SP_ERR_INFEASIBLE, request->plan, &place,
                                      "it holds %lld bytes, over the limit of %lld", peak,
                                      (long long)limit);
        }
        if (peak > limit) {
            return sp_error_set(err, SP_ERR_INFEASIBLE,
                                "dp %d pp %d: parameters, gradients and optimizer hold %lld "
                                "bytes, over the limit of %lld",
                                rank->dp, rank->pp, peak, (long long)limit);
        }
    }
    return SP_OK;
}

static sp_status run_step(const sp_run_request *request, const sp_i_fake_options *options,
                          int number, sp_measured_step *step, sp_error *err)
{
    sp_i_fake_time time = {.request = request, .options = options, .step = number};
    const sp_step_costs *costs = request->costs;
    sp_shares shares = {0};
    sp_walk_driver driver = {.context = &time,
                             .run = sp_i_fake_action,
                             .transfer_ns = sp_i_fake_transfer_ns,
                             .blocking_transfers = costs != NULL && costs->blocking_transfers,
                             .shares = &shares};
    sp_status status = sp_timeline_init(&step->timeline, request->plan, err);
    if (status == SP_OK && costs != NULL && costs->share_class > 0) {
        status = sp_shares_make(request->plan, &shares, err);
    }
    if (status == SP_OK) {
        status = sp_walk(request->plan, &driver, &step->timeline, NULL, err);
    }
    sp_shares_fini(&shares);
    if (status == SP_OK && costs != NULL) {
        status = sp_epilogue_fill(costs, &step->timeline, err);
    }
    if (status != SP_OK) {
        return status;
    }
    sp_timeline_finish(&step->timeline);
    status = costs != NULL ? sp_memory_replay(&step->timeline, costs, request->memory_points,
                                              &step->memory, err)
                           : sp_memory_timeline_init(&step->memory, &step->timeline, err);
    step->has_loss = options->has_loss;
    step->loss = options->loss;
    return status;
}

static sp_status new_state(const sp_i_fake_options *options, void **state, sp_error *err)
{
    if (options->tensor == NULL) {
        return SP_OK;
    }
    sp_i_fake_tensor *tensor = sp_malloc(sizeof *tensor);
    if (tensor == NULL) {
        return sp_error_no_memory(err, "a tensor");
    }
    sp_status status = sp_i_fake_tensor_read(options->tensor, tensor, err);
    if (status != SP_OK) {
        sp_free(tensor);
        return status;
    }
    *state = tensor;
    return SP_OK;
}

static sp_status execute(int device, const sp_run_request *request, sp_measured_step *steps,
                         void **state, sp_error *err)
{
    (void)device;
    sp_i_fake_options options;
    sp_status status = sp_i_fake_options_read(request, &options, err);
    if (status == SP_OK) {
        status = new_state(&options, state, err);
    }
    int64_t before_ns = 0;
    for (int i = 0; status == SP_OK && i < request->steps; i++) {
        status = run_step(request, &options, i, &steps[i], err);
        status =
            status == SP_OK ? check_timeout(request, &steps[i].timeline, before_ns, err) : status;
        status = status == SP_OK ? check_limit(request, &steps[i], err) : status;
        // No further than the timeout, so that no sum overflows.
        before_ns += request->timeout_ns > 0 ? steps[i].timeline.iteration_ns : 0;
        if (status == SP_OK && !sp_i_fake_damage(&options, &steps[i])) {
            status = sp_error_no_memory(err, "a damaged timeline");
        }
    }
    sp_i_fake_options_fini(&options);
    return status;
}

// ---- tensors ----

static void free_state(void *state)
{
    sp_i_fake_tensor *tensor = state;
    sp_free(tensor->values);
    sp_free(tensor);
}

static sp_status tensor_count(void *state, size_t *count, sp_error *err)
{
    (void)err;
    *count = state != NULL;
    return SP_OK;
}

static sp_status tensor_info(void *state, size_t index, sp_tensor_info *info, sp_error *err)
{
    (void)err;
    *info = ((sp_i_fake_tensor *)state)[index].info;
    return SP_OK;
}

static sp_status tensor_read(void *state, size_t index, double *values, sp_error *err)
{
    (void)err;
    const sp_i_fake_tensor *tensor = &((sp_i_fake_tensor *)state)[index];
    memcpy(values, tensor->values, (size_t)tensor->info.elements * sizeof *values);
    return SP_OK;
}

const sp_backend_ops sp_fake_backend = {
    .abi = SP_BACKEND_ABI,
    .size = sizeof(sp_backend_ops),
    .types = SP_BACKEND_TYPES,
    .name = "fake",
    .description = "no work: simulated or scripted durations in virtual time, failures on demand",
    .options = sp_i_fake_option_list,
    .device_count = device_count,
    .device_info = device_info,
    .execute = execute,
    .free_state = free_state,
    .check = check,
    .tensor_count = tensor_count,
    .tensor_info = tensor_info,
    .tensor_read = tensor_read,
};
