#include "tests/support/backend_conformance.h"

#include "sim/schedule/schedule.h"
#include "tests/support/execution_rules.h"
#include "tests/support/initializers.h"
#include "tests/support/plan_sample.h"
#include "tests/support/random_plan.h"
#include "tests/support/random_step.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_step.h"

static sp_run_request request_for(const conformance_device *device, const sp_plan *plan,
                                  const sp_step_costs *costs)
{
    sp_run_request request = device->request;
    request.plan = plan;
    request.costs = device->takes_costs ? costs : NULL;
    return request;
}

static const char *text_of(sp_status status, const sp_error *err)
{
    return err->count > 0 ? err->message[0] : sp_status_text(status);
}

static void run_and_check(const conformance_device *device, const sp_run_request *request)
{
    sp_error_clear(ERR);
    sp_run *run = NULL;
    sp_status status = sp_backend_run(device->backend, device->device, request, &run, ERR);
    must_hold(status == SP_OK, "%s", text_of(status, ERR));
    assert_int_equal(sp_run_steps(run), request->steps);
    for (int i = 0; i < request->steps; i++) {
        execution_must_hold(request->plan, sp_run_step(run, i), request->memory_points);
    }
    sp_run_free(run);
}

void conformance_runs(const conformance_device *device, const sp_plan *plan,
                      const sp_step_costs *costs)
{
    sp_run_request request = request_for(device, plan, costs);
    run_and_check(device, &request);
}

// ---- random plans ----

static bool has_action(const sp_plan *plan, sp_action_kind kind)
{
    for (int s = 0; s < plan->layout.dp * plan->layout.pp; s++) {
        for (size_t a = 0; a < plan->stages[s].count; a++) {
            if (plan->stages[s].actions[a].kind == kind) {
                return true;
            }
        }
    }
    return false;
}

// What a random plan asks of a device, beyond what the request always does.
static uint64_t needs_of(const random_plan *r)
{
    uint64_t needs = 0;
    needs |= r->layout.pp > 1 ? SP_CAN(PIPELINE) : 0;
    needs |= r->layout.dp > 1 ? SP_CAN(DATA_PARALLEL) | SP_CAN(ZERO_1) : 0;
    needs |= r->layout.chunks > 1 ? SP_CAN(CHUNKS) : 0;
    needs |= r->packing.backward.count > 0 ? SP_CAN(REGROUPED) : 0;
    needs |= has_action(&r->plan, SP_ACTION_I) ? SP_CAN(SPLIT_BACKWARD) : 0;
    needs |= has_action(&r->plan, SP_ACTION_R) ? SP_CAN(RECOMPUTE_ACTION) : 0;
    needs |= has_action(&r->plan, SP_ACTION_O) ? SP_CAN(OFFLOAD) : 0;
    const sp_pack_list *forward = &r->packing.forward;
    for (size_t p = 0; p < forward->count; p++) {
        needs |= forward->packs[p].dp_count > 1 ? SP_CAN(DP_MERGE) : 0;
    }
    for (size_t s = 0; s < forward->slice_count; s++) {
        bool whole = forward->slices[s].tokens == r->tokens[forward->slices[s].sample];
        needs |= whole ? 0 : SP_CAN(SLICES);
    }
    return needs;
}

void conformance_runs_random_plans(const conformance_device *device, uint64_t seed, int count)
{
    sp_prng prng;
    sp_device_info info;
    sp_prng_seed(&prng, seed);
    assert_int_equal(sp_backend_device_info(device->backend, device->device, &info, NULL), SP_OK);
    for (int i = 0; i < count; i++) {
        AUTO(random_plan) r;
        AUTO(sp_step_costs) costs;
        sp_error_clear(ERR);
        random_plan_make(&prng, 3, 2, &r);
        random_agreed_actions(&prng, &r);
        random_costs(&prng, &r.layout, &r.packing, 0, &costs);
        random_copies(&prng, &r.packing, &costs);
        sp_run_request request = request_for(device, &r.plan, &costs);
        if ((needs_of(&r) & ~info.capabilities) == 0) {
            run_and_check(device, &request);
        } else {
            sp_run *run = NULL;
            assert_int_equal(sp_backend_run(device->backend, device->device, &request, &run, ERR),
                             SP_ERR_CONTENT);
            assert_null(run);
        }
    }
}

// ---- refusals ----

static bool says(const sp_error *err, const char *text)
{
    bool found = false;
    for (int i = 0; i < err->count; i++) {
        found = found || strstr(err->message[i], text) != NULL;
    }
    return found;
}

void conformance_refuses(const conformance_device *device)
{
    sp_device_info info;
    assert_int_equal(sp_backend_device_info(device->backend, device->device, &info, NULL), SP_OK);
    for (int c = 0; c < SP_CAPABILITIES; c++) {
        AUTO(plan_sample) sample;
        sp_error_clear(ERR);
        sp_run *run = NULL;
        plan_sample_make((sp_capability)c, &device->request, &sample);
        sample.request.costs = device->takes_costs ? &sample.costs : NULL;
        sp_status status = sp_backend_check(device->backend, device->device, &sample.request, ERR);
        const char *text = sp_capability_text((sp_capability)c);
        if ((info.capabilities >> c & 1) == 0) {
            assert_int_equal(status, SP_ERR_CONTENT);
            must_hold(says(ERR, text), "no word of '%s' in \"%s\"", text, text_of(status, ERR));
            assert_int_equal(
                sp_backend_run(device->backend, device->device, &sample.request, &run, NULL),
                SP_ERR_CONTENT);
            assert_null(run);
        } else if (says(ERR, text)) {
            fail_msg("%s", text_of(status, ERR));
        }
    }
}

// ---- failures ----

void conformance_runs_schedule(const conformance_device *device, sp_schedule_kind kind, int pp,
                               int dp, int microbatches, int slices)
{
    static const sp_engine_options simulated;
    sp_schedule_traits traits = sp_schedule_traits_of(kind);
    int chunks = traits.chunks > 0 ? traits.chunks : kind == SP_SCHEDULE_INTERLEAVED ? 2 : 1;
    const uniform_case c = {.kind = kind,
                            .pp = pp,
                            .dp = dp,
                            .chunks = chunks,
                            .microbatches = microbatches,
                            .slices = traits.sliced ? slices : 0,
                            .ns = {1000, 1100, 900},
                            .p2p_ns = 90};
    UNIFORM_STEP(step, &c, &simulated);
    conformance_runs(device, &step.plan, &step.costs);
}

void conformance_runs_every_schedule(const conformance_device *device, int pp, int dp,
                                     int microbatches, int slices)
{
    for (int kind = 0; kind < SP_SCHEDULE_KINDS; kind++) {
        conformance_runs_schedule(device, (sp_schedule_kind)kind, pp, dp, microbatches, slices);
    }
}

static void fail_at(const conformance_device *device, const plan_sample *sample, const char *key,
                    sp_status expected, int dp, int pp, sp_action action)
{
    char name[32], value[64], place[80];
    sp_action_name(action, sample->plan.layout.chunks, name);
    snprintf(value, sizeof value, "%s@%d.%d", name, dp, pp);
    snprintf(place, sizeof place, "dp %d pp %d: %s: ", dp, pp, name);
    sp_backend_option options[8];
    size_t count = device->request.option_count;
    assert_true(count < 8);
    for (size_t o = 0; o < count; o++) {
        options[o] = device->request.options[o];
    }
    options[count] = (sp_backend_option){key, value};
    sp_run_request request = request_for(device, &sample->plan, &sample->costs);
    request.options = options;
    request.option_count = count + 1;
    sp_error_clear(ERR);
    sp_run *run = NULL;
    sp_status status = sp_backend_run(device->backend, device->device, &request, &run, ERR);
    assert_int_equal(status, expected);
    assert_null(run);
    const char *text = text_of(status, ERR);
    const char *at = strstr(text, place);
    must_hold(at != NULL && at[strlen(place)] != '\0', "expected \"%s\" and a reason, got \"%s\"",
              place, text);
}

void conformance_fails(const conformance_device *device)
{
    const struct {
        const char *key;
        sp_status status;
    } ways[] = {{device->fail, SP_ERR_INTERNAL},
                {device->stall, SP_ERR_LIMIT},
                {device->exhaust, SP_ERR_INFEASIBLE}};
    AUTO(plan_sample) sample;
    plan_sample_make(SP_CAP_PIPELINE, &device->request, &sample);
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        for (int p = 0; p < sample.plan.layout.pp && ways[w].key != NULL; p++) {
            const sp_stage_plan *stage = sp_plan_stage(&sample.plan, 0, p);
            for (size_t a = 0; a < stage->count; a++) {
                fail_at(device, &sample, ways[w].key, ways[w].status, 0, p, stage->actions[a]);
            }
        }
    }
}

sp_model conformance_model(void)
{
    sp_model model = {.name = "llama", LLAMA_SHAPE(12, 8, 8, 2, 1, 11)};
    model.head_dim = 8; // the least that a GPU takes
    return model;
}

conformance_device conformance_of(const sp_backend *backend, const sp_model *model, sp_clock clock,
                                  sp_precision precision)
{
    return (conformance_device){.backend = backend,
                                .request = {.model = model,
                                            .clock = clock,
                                            .precision = precision,
                                            .steps = 1,
                                            .memory_points = true},
                                .fail = "fail",
                                .stall = "stall",
                                .exhaust = "exhaust"};
}
