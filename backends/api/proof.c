#include "backends/api/proof.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/schedule/schedule.h"

// ---- the plain step ----

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

static void pack_samples(const sp_packing *packing, sp_packing *plain)
{
    sp_packing_init(plain, packing->batch, 1);
    plain->dropped = sp_calloc(packing->batch->count, sizeof(int64_t));
    for (size_t s = 0; s < packing->batch->count; s++) {
        if (left_out(packing, (int64_t)s)) {
            plain->dropped[plain->dropped_count++] = (int64_t)s;
            continue;
        }
        int64_t tokens = packing->batch->tokens[s];
        sp_slice slice = {.sample = (int32_t)s, .tokens = tokens, .computed_tokens = tokens};
        sp_pack_list_begin(&plain->forward, 0, 1);
        sp_pack_list_add(&plain->forward, slice, true);
    }
}

sp_status sp_plain_step_make(const sp_run_request *request, sp_plain_step *plain, sp_error *err)
{
    const sp_schedule_spec spec = {.kind = SP_SCHEDULE_GPIPE};
    static const sp_memory_options memory;
    *plain = (sp_plain_step){.layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1}};
    pack_samples(request->plan->packing, &plain->packing);
    sp_plan_init(&plain->plan, &plain->layout, &plain->packing);
    plain->request = *request;
    plain->request.plan = &plain->plan;
    plain->request.memory = &memory;
    if (request->precision == SP_BF16) {
        plain->request.precision = SP_FP64;
    }
    return sp_schedule_generate(&spec, NULL, "plain", &plain->plan, err);
}

void sp_plain_step_fini(sp_plain_step *plain)
{
    sp_plan_fini(&plain->plan);
    sp_packing_fini(&plain->packing);
}

// ---- one tensor ----

static void compare_elements(const double *a, const double *b, sp_proven_tensor *tensor)
{
    double difference = 0.0;
    double size = 0.0;
    double largest = 0.0;
    double most = 0.0;
    for (int64_t i = 0; i < tensor->elements; i++) {
        if (!isfinite(a[i])) {
            return;
        }
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
        largest = fmax(largest, fabs(a[i] - b[i]));
        most = fmax(most, fabs(b[i]));
    }
    bool same = difference == 0.0;
    tensor->error = size > 0.0 ? sqrt(difference / size) : same ? 0.0 : HUGE_VAL;
    tensor->largest = most > 0.0 ? largest / most : same ? 0.0 : HUGE_VAL;
}

sp_status sp_proof_tensor(const sp_run *run, const sp_run *plain, const sp_tensor_info *info,
                          sp_proven_tensor *tensor, sp_error *err)
{
    sp_tensor_info own;
    size_t bytes = (size_t)info->elements * sizeof(double);
    *tensor = (sp_proven_tensor){
        .elements = info->elements, .error = HUGE_VAL, .largest = HUGE_VAL, .bound = 0.0};
    memcpy(tensor->name, info->name, sizeof tensor->name);
    if (sp_run_tensor_find(run, info->name, &own, NULL) != SP_OK ||
        own.elements != info->elements) {
        return SP_OK;
    }
    double *a = sp_malloc(bytes);
    double *b = sp_malloc(bytes);
    sp_status status = sp_run_tensor_read(run, info->name, a, info->elements, err);
    if (status == SP_OK) {
        status = sp_run_tensor_read(plain, info->name, b, info->elements, err);
    }
    if (status == SP_OK) {
        compare_elements(a, b, tensor);
    }
    sp_free(a);
    sp_free(b);
    return status;
}

// ---- all tensors ----

static bool is_bias(const char *tensor)
{
    const char *end = strrchr(tensor, '.');
    return end != NULL && strcmp(end, ".bias") == 0;
}

// What rounding to bf16 explains of this tensor.
static sp_status bf16_bound(const sp_run *unrounded, const sp_run *plain,
                            const sp_tensor_info *info, double *bound, sp_error *err)
{
    sp_proven_tensor rounding;
    sp_status status = sp_proof_tensor(unrounded, plain, info, &rounding, err);
    *bound = (is_bias(info->name) ? SP_PROOF_BF16_BIAS_BOUND : SP_PROOF_BF16_WEIGHT_BOUND) *
             rounding.error;
    return status;
}

static double share_of_bound(const sp_proven_tensor *tensor)
{
    double share = tensor->error > 0.0 ? tensor->error / tensor->bound : 0.0;
    return isnan(share) ? HUGE_VAL : share;
}

static void judge(sp_proof *proof)
{
    proof->holds = proof->count > 1;
    for (size_t t = 0; t < proof->count; t++) {
        double share = share_of_bound(&proof->tensors[t]);
        proof->holds = proof->holds && share <= 1.0;
        if (share >= share_of_bound(&proof->tensors[proof->worst])) {
            proof->worst = t;
        }
    }
}

static void add_loss(const sp_run *run, const sp_run *plain, double bound, sp_proof *proof)
{
    const sp_measured_step *own = sp_run_step(run, 0);
    const sp_measured_step *other = sp_run_step(plain, 0);
    proof->loss = own->loss;
    proof->plain_loss = other->loss;
    double error = fabs(own->loss / other->loss - 1.0);
    bool alike = own->has_loss == other->has_loss && (!own->has_loss || isfinite(error));
    error = !alike ? HUGE_VAL : own->has_loss ? error : 0.0;
    proof->tensors[proof->count++] = (sp_proven_tensor){
        .name = "loss", .elements = 1, .error = error, .largest = error, .bound = bound};
}

sp_status sp_proof_compare(const sp_run *run, const sp_run *plain, const sp_run *unrounded,
                           sp_precision precision, sp_proof *proof, sp_error *err)
{
    static const char gradients[] = "gradients/";
    size_t count = 0;
    double bound = precision == SP_FP64 ? SP_PROOF_FP64_BOUND : SP_PROOF_FP32_BOUND;
    *proof = (sp_proof){0};
    sp_status status = sp_run_tensor_count(plain, &count, err);
    proof->tensors = sp_calloc(count + 1, sizeof *proof->tensors);
    for (size_t i = 0; status == SP_OK && i < count; i++) {
        sp_tensor_info info;
        sp_proven_tensor *tensor = &proof->tensors[proof->count];
        status = sp_run_tensor_at(plain, i, &info, err);
        if (status != SP_OK || strncmp(info.name, gradients, sizeof gradients - 1) != 0) {
            continue;
        }
        status = sp_proof_tensor(run, plain, &info, tensor, err);
        tensor->bound = bound;
        if (status == SP_OK && precision == SP_BF16) {
            status = bf16_bound(unrounded, plain, &info, &tensor->bound, err);
        }
        proof->count++;
    }
    if (status == SP_OK) {
        add_loss(run, plain, precision == SP_BF16 ? SP_PROOF_BF16_LOSS_BOUND : bound, proof);
        judge(proof);
    }
    return status;
}

void sp_proof_fini(sp_proof *proof)
{
    sp_free(proof->tensors);
    *proof = (sp_proof){0};
}

// ---- the runs ----

// An option that a backend knows and that is of no action of the plan; NULL: of any backend.
static bool takes(const sp_backend *backend, const char *key)
{
    static const char *const of_actions[] = {"fail", "stall", "exhaust", "fault_step"};
    const sp_backend_option_info *options = backend != NULL ? sp_backend_options(backend) : NULL;
    for (size_t i = 0; backend != NULL && i < sizeof of_actions / sizeof of_actions[0]; i++) {
        if (strcmp(key, of_actions[i]) == 0) {
            return false;
        }
    }
    for (int i = 0; options != NULL && options[i].key != NULL; i++) {
        if (strcmp(options[i].key, key) == 0) {
            return true;
        }
    }
    return backend == NULL;
}

// One plan and its plain step, from the same parameters, and in bf16 the plain step from those
// before they were rounded.
typedef struct runs {
    sp_run_request own, unrounded;
    sp_backend_option *options[3]; // owned
    sp_run *run, *plain, *whole;
} runs;

// The options of `from` that the backend takes; `rounded` (NULL: as it is there) is put in place.
static void set_options(const sp_backend *backend, const sp_run_request *from, const char *rounded,
                        sp_run_request *request, sp_backend_option **options)
{
    size_t count = 0;
    *options = sp_calloc(from->option_count + 1, sizeof **options);
    for (size_t o = 0; o < from->option_count; o++) {
        bool replaced = rounded != NULL && strcmp(from->options[o].key, "rounded") == 0;
        if (!replaced && takes(backend, from->options[o].key)) {
            (*options)[count++] = from->options[o];
        }
    }
    if (rounded != NULL) {
        (*options)[count++] = (sp_backend_option){.key = "rounded", .value = rounded};
    }
    request->options = *options;
    request->option_count = count;
}

sp_status sp_proof_run(const sp_backend *backend, int device, const sp_backend *plain_backend,
                       const sp_run_request *request, sp_proof *proof, sp_error *err)
{
    runs r = {.own = *request};
    sp_plain_step plain;
    bool bf16 = request->precision == SP_BF16;
    *proof = (sp_proof){0};
    if (request->steps != 1) {
        return sp_error_set(err, SP_ERR_USAGE, "gradients are compared of one step");
    }
    const char *rounded = bf16 ? "true" : NULL;
    sp_status status = sp_plain_step_make(request, &plain, err);
    plain.request.memory_limit_bytes = 0;
    plain.request.memory_points = false;
    r.unrounded = plain.request;
    set_options(NULL, request, rounded, &r.own, &r.options[0]);
    set_options(plain_backend, request, rounded, &plain.request, &r.options[1]);
    set_options(plain_backend, request, "false", &r.unrounded, &r.options[2]);
    status = status == SP_OK ? sp_backend_run(backend, device, &r.own, &r.run, err) : status;
    if (status == SP_OK) {
        status = sp_backend_run(plain_backend, 0, &plain.request, &r.plain, err);
    }
    if (status == SP_OK && bf16) {
        status = sp_backend_run(plain_backend, 0, &r.unrounded, &r.whole, err);
    }
    if (status == SP_OK) {
        status = sp_proof_compare(r.run, r.plain, r.whole, request->precision, proof, err);
    }
    sp_run_free(r.run);
    sp_run_free(r.plain);
    sp_run_free(r.whole);
    sp_plain_step_fini(&plain);
    for (size_t i = 0; i < sizeof r.options / sizeof r.options[0]; i++) {
        sp_free(r.options[i]);
    }
    return status;
}
