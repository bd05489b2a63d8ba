#include "tests/gpu/gradients.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/api/proof.h"
#include "tests/gpu/plan_request.h"

enum { MOST_OPTIONS = 16 };

// The runs of one step: on the GPU, and the plain one from rounded parameters and from the others.
typedef struct runs {
    sp_run *gpu, *plain, *unrounded;
} runs;

static void describe(const sp_proof *proof, gradients_report *report)
{
    const sp_proven_tensor *worst = &proof->tensors[proof->worst];
    double share = worst->error > 0.0 ? worst->error / worst->bound : 0.0;
    *report = (gradients_report){.worst = isnan(share) ? HUGE_VAL : share,
                                 .distance = worst->error,
                                 .bound = worst->bound,
                                 .tensors = (int)proof->count - 1, // without the loss
                                 .loss = proof->loss,
                                 .plain_loss = proof->plain_loss};
    snprintf(report->tensor, sizeof report->tensor, "%s", worst->name);
}

static bool is_rounding(const sp_backend_option *option)
{
    return strcmp(option->key, "rounded") == 0;
}

sp_status gradients_compare(const sp_backend *gpu, const sp_backend *cpu,
                            const sp_run_request *request, const sp_backend_option *more,
                            size_t more_count, gradients_report *report, sp_error *err)
{
    sp_backend_option all[MOST_OPTIONS], exact[MOST_OPTIONS];
    sp_run_request on_gpu = *request;
    size_t exact_count = 0;
    sp_plain_step plain;
    sp_proof proof = {0};
    runs r = {0};
    *report = (gradients_report){0};
    if (request->option_count + more_count > MOST_OPTIONS || request->steps != 1) {
        return sp_error_set(err, SP_ERR_USAGE, "gradients are compared of one step");
    }
    for (size_t o = 0; o < request->option_count; o++) {
        all[o] = request->options[o];
        if (!is_rounding(&all[o])) {
            exact[exact_count++] = all[o];
        }
    }
    for (size_t o = 0; o < more_count; o++) {
        all[request->option_count + o] = more[o];
    }
    on_gpu.options = all;
    on_gpu.option_count = request->option_count + more_count;
    sp_status status = sp_plain_step_make(request, &plain, err);
    plain.request.memory_limit_bytes = 0;
    sp_run_request unrounded = plain.request;
    unrounded.options = exact;
    unrounded.option_count = exact_count;
    status = status == SP_OK ? sp_backend_run(gpu, 0, &on_gpu, &r.gpu, err) : status;
    status = status == SP_OK ? sp_backend_run(cpu, 0, &plain.request, &r.plain, err) : status;
    status = status == SP_OK ? sp_backend_run(cpu, 0, &unrounded, &r.unrounded, err) : status;
    if (status == SP_OK) {
        status = sp_proof_compare(r.gpu, r.plain, r.unrounded, SP_BF16, &proof, err);
    }
    if (status == SP_OK) {
        describe(&proof, report);
    }
    sp_proof_fini(&proof);
    sp_run_free(r.gpu);
    sp_run_free(r.plain);
    sp_run_free(r.unrounded);
    sp_plain_step_fini(&plain);
    return status;
}

sp_status gradients_compare_file(const sp_backend *gpu, const sp_backend *cpu, const char *path,
                                 const sp_backend_option *more, size_t more_count,
                                 gradients_report *report, sp_error *err)
{
    static const sp_backend_option rounded = {"rounded", "true"};
    sp_plan_input in;
    sp_status status = sp_plan_input_read(path, &in, err);
    if (status == SP_OK) {
        sp_clock clock = strstr(path, "-wall.json") != NULL ? SP_CLOCK_WALL : SP_CLOCK_VIRTUAL;
        sp_run_request request = plan_request(&in, clock, 1);
        request.options = &rounded;
        request.option_count = 1;
        status = gradients_compare(gpu, cpu, &request, more, more_count, report, err);
    }
    sp_plan_input_fini(&in);
    return status;
}
