#include "tests/gpu/gradients.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "tests/gpu/plan_request.h"
#include "tests/gpu/support/emulated_plans.h"
#include "tests/support/plain_step.h"

enum { MOST_OPTIONS = 16 };

// |a - b| / |b|; 0 where both are zero.
static double distance_of(const double *a, const double *b, int64_t count)
{
    double difference = 0.0, size = 0.0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(a[i])) {
            return HUGE_VAL;
        }
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return size > 0.0 ? sqrt(difference / size) : difference > 0.0 ? HUGE_VAL : 0.0;
}

static sp_status tensor_distance(const sp_run *a, const sp_run *b, const sp_tensor_info *info,
                                 double *distance, sp_error *err)
{
    sp_tensor_info own;
    size_t bytes = (size_t)info->elements * sizeof(double);
    *distance = HUGE_VAL;
    if (sp_run_tensor_find(a, info->name, &own, err) != SP_OK || own.elements != info->elements) {
        return SP_OK;
    }
    double *x = sp_malloc(bytes);
    double *y = sp_malloc(bytes);
    sp_status status = sp_run_tensor_read(a, info->name, x, info->elements, err);
    status = status == SP_OK ? sp_run_tensor_read(b, info->name, y, info->elements, err) : status;
    if (status == SP_OK) {
        *distance = distance_of(x, y, info->elements);
    }
    sp_free(x);
    sp_free(y);
    return status;
}

static bool is_bias(const char *tensor)
{
    const char *end = strrchr(tensor, '.');
    return end != NULL && strcmp(end, ".bias") == 0;
}

static void note(gradients_report *report, const char *tensor, double distance, double bound)
{
    double share = distance > 0.0 ? distance / bound : 0.0;
    if (share >= report->worst || isnan(share)) {
        report->worst = isnan(share) ? HUGE_VAL : share;
        report->distance = distance;
        report->bound = bound;
        snprintf(report->tensor, sizeof report->tensor, "%s", tensor);
    }
}

// The runs of one step: on the GPU, and the plain one from rounded parameters and from the others.
typedef struct runs {
    sp_run *gpu, *plain, *unrounded;
} runs;

static sp_status compare(const runs *r, gradients_report *report, sp_error *err)
{
    size_t count;
    sp_status status = sp_run_tensor_count(r->plain, &count, err);
    for (size_t i = 0; status == SP_OK && i < count; i++) {
        sp_tensor_info info;
        double distance = 0.0, rounding = 0.0;
        status = sp_run_tensor_at(r->plain, i, &info, err);
        if (status != SP_OK || strncmp(info.name, "gradients/", strlen("gradients/")) != 0) {
            continue;
        }
        status = tensor_distance(r->gpu, r->plain, &info, &distance, err);
        if (status == SP_OK) {
            status = tensor_distance(r->unrounded, r->plain, &info, &rounding, err);
        }
        double times = is_bias(info.name) ? EMULATED_BIAS_BOUND : EMULATED_WEIGHT_BOUND;
        note(report, info.name, distance, times * rounding);
        report->tensors++;
    }
    report->loss = sp_run_step(r->gpu, 0)->loss;
    report->plain_loss = sp_run_step(r->plain, 0)->loss;
    note(report, "loss", fabs(report->loss / report->plain_loss - 1.0), EMULATED_LOSS_BOUND);
    return status;
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
    plain_step plain;
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
    sp_status status = plain_step_make(request, &plain, err);
    plain.request.memory_limit_bytes = 0;
    sp_run_request unrounded = plain.request;
    unrounded.options = exact;
    unrounded.option_count = exact_count;
    status = status == SP_OK ? sp_backend_run(gpu, 0, &on_gpu, &r.gpu, err) : status;
    status = status == SP_OK ? sp_backend_run(cpu, 0, &plain.request, &r.plain, err) : status;
    status = status == SP_OK ? sp_backend_run(cpu, 0, &unrounded, &r.unrounded, err) : status;
    status = status == SP_OK ? compare(&r, report, err) : status;
    sp_run_free(r.gpu);
    sp_run_free(r.plain);
    sp_run_free(r.unrounded);
    plain_step_fini(&plain);
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
