#include "tests/support/plain_step.h"

#include "sim/base/alloc.h"
#include "sim/schedule/schedule.h"

static bool left_out(const sp_packing *packing, int64_t sample)
{
    for (size_t i = 0; i < packing->dropped_count; i++) {
        if (packing->dropped[i] == sample) {
            return true;
        }
    }
    for (size_t i = 0; i < packing->delayed_count; i++) {
        if (packing->delayed[i] == sample) {
            return true;
        }
    }
    return false;
}

static sp_status pack_samples(const sp_packing *packing, sp_packing *plain, sp_error *err)
{
    sp_packing_init(plain, packing->batch, 1);
    plain->dropped = sp_calloc(packing->batch->count, sizeof(int64_t));
    bool good = plain->dropped != NULL;
    for (size_t s = 0; good && s < packing->batch->count; s++) {
        if (left_out(packing, (int64_t)s)) {
            plain->dropped[plain->dropped_count++] = (int64_t)s;
            continue;
        }
        int64_t tokens = packing->batch->tokens[s];
        sp_slice slice = {.sample = (int32_t)s, .tokens = tokens, .computed_tokens = tokens};
        good = sp_pack_list_begin(&plain->forward, 0, 1);
        if (good) {
            sp_pack_list_add(&plain->forward, slice, true);
        }
    }
    return good ? SP_OK : sp_error_no_memory(err, "the plain step");
}

sp_status plain_step_make(const sp_run_request *request, plain_step *plain, sp_error *err)
{
    const sp_schedule_spec spec = {.kind = SP_SCHEDULE_GPIPE};
    static const sp_memory_options memory;
    *plain = (plain_step){.layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1}};
    sp_status status = pack_samples(request->plan->packing, &plain->packing, err);
    if (status == SP_OK) {
        sp_plan_init(&plain->plan, &plain->layout, &plain->packing);
        status = sp_schedule_generate(&spec, NULL, "plain", &plain->plan, err);
    }
    plain->request = *request;
    plain->request.plan = &plain->plan;
    plain->request.memory = &memory;
    if (request->precision == SP_BF16) {
        plain->request.precision = SP_FP64;
    }
    return status;
}

void plain_step_fini(plain_step *plain)
{
    sp_plan_fini(&plain->plan);
    sp_packing_fini(&plain->packing);
}
