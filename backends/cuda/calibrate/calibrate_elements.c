// Kernels bound by memory, over tokens, each beside a copy of as many bytes; and of their times
// what the cost model knows of them: a rate, a floor of each launch, bytes of loss and optimizer.
#include "backends/cuda/calibrate/bench.h"
#include "backends/cuda/calibrate/calibration.h"
#include "backends/cuda/device/device.h"
#include "kernels/cuda_kernels.h"
#include "sim/base/alloc.h"
#include "sim/base/prng.h"

#define LEAST_KERNEL_S 1e-7

void sp_i_cuda_fit_add(sp_i_cuda_fit_sums *sums, double times, double bytes, double kernels,
                       double time_s)
{
    double k = kernels / time_s;
    double b = bytes / time_s;
    sums->kernels2 += times * k * k;
    sums->bytes2 += times * b * b;
    sums->both += times * k * b;
    sums->kernels += times * k;
    sums->bytes += times * b;
}

bool sp_i_cuda_fit_solve(const sp_i_cuda_fit_sums *s, sp_i_cuda_fit *fit)
{
    double determinant = s->kernels2 * s->bytes2 - s->both * s->both;
    if (!(determinant > 0.0)) {
        return false;
    }
    double kernel_s = (s->kernels * s->bytes2 - s->bytes * s->both) / determinant;
    fit->kernel_s = kernel_s > LEAST_KERNEL_S ? kernel_s : LEAST_KERNEL_S;
    double s_per_byte = (s->bytes - fit->kernel_s * s->both) / s->bytes2;
    fit->bytes_per_s = 1.0 / s_per_byte;
    return s_per_byte > 0.0;
}

enum { LEAST_TOKENS = 128, STEP = 4, SIZES = 8 };

// What one place works on.
typedef struct room {
    const struct elements *of;
    char *memory;
    sp_i_cuda_element_data data;
} room;

typedef struct elements {
    sp_i_cuda_calibration *c;
    sp_i_cuda_element element;
    sp_i_cuda_element_shape shape;
    int64_t drawn_bytes; // of each room
    int64_t copied_bytes;
    double budget_s;
    sp_i_cuda_rooms memory;
    room rooms[SP_I_CUDA_MOST_PLACES];
    void *contexts[SP_I_CUDA_MOST_PLACES];
    double time_s[SP_I_CUDA_ELEMENTS][SIZES]; // less an empty pair of events
    sp_i_cuda_element_shape shapes[SIZES];
    int sizes;
    double spread;
    json_t *notes;
} elements;

// The gradient is cleared with the step.
static sp_status run(void *context, cudaStream_t stream, sp_error *err)
{
    const room *r = context;
    const elements *e = r->of;
    const sp_i_cuda_device *device = &e->c->device;
    int code = e->c->launch(e->element, &e->shape, &r->data, stream);
    sp_status status = sp_i_cuda_check(device, (cudaError_t)code,
                                       sp_i_cuda_element_name(e->element), __FILE__, __LINE__, err);
    if (status == SP_OK && e->element == SP_I_CUDA_ADAMW) {
        status = SP_I_CUDA(device, err, MemsetAsync, r->data.wide[0], 0,
                           (size_t)(4 * e->shape.tokens * e->shape.hidden), stream);
    }
    return status;
}

static sp_status run_copy(void *context, cudaStream_t stream, sp_error *err)
{
    const room *r = context;
    return SP_I_CUDA(&r->of->c->device, err, MemcpyAsync, r->memory + r->of->drawn_bytes / 2,
                     r->memory, (size_t)r->of->copied_bytes, cudaMemcpyDeviceToDevice, stream);
}

// ---- memory ----

// Pairs of bf16 numbers are fp32 numbers of the same kind.
static sp_status init(sp_i_cuda_calibration *c, elements *e, sp_error *err)
{
    const int64_t most = c->most_tokens;
    *e = (elements){.c = c, .notes = json_array()};
    e->shape = sp_i_cuda_element_shape_of(&c->model, most, most);
    e->drawn_bytes = sp_i_cuda_element_drawn(&e->shape);
    const int64_t bytes = sp_i_cuda_element_bytes(&e->shape);
    sp_status status = e->notes != NULL ? SP_OK : sp_i_cuda_no_profile(err);
    if (status == SP_OK) {
        status = sp_i_cuda_rooms_init(c, bytes, bytes / 2, bytes / 2, &e->memory, err);
    }
    for (int i = 0; status == SP_OK && i < c->places; i++) {
        e->rooms[i] = (room){.of = e, .memory = e->memory.memory[i]};
        e->contexts[i] = &e->rooms[i];
        sp_i_cuda_element_place(&e->shape, e->rooms[i].memory, &e->rooms[i].data);
    }
    return status;
}

// Indices drawn from as many rows as there are tokens, and the order that their gradients take.
static sp_status set_tokens(elements *e, int64_t tokens, sp_error *err)
{
    sp_i_cuda_calibration *c = e->c;
    sp_prng prng;
    sp_prng_seed(&prng, c->seed);
    e->shape = sp_i_cuda_element_shape_of(&c->model, tokens, c->most_tokens);
    int64_t *index = sp_malloc(3 * (size_t)tokens * sizeof *index);
    int64_t *order = index + tokens;
    for (int64_t t = 0; t < tokens; t++) {
        index[t] = (int64_t)(sp_prng_uniform(&prng) * (double)tokens);
    }
    sp_cuda_embedding_order(tokens, index, order, order + tokens);
    e->shape.distinct = 1;
    for (int64_t t = 1; t < tokens; t++) {
        e->shape.distinct += index[order[t]] != index[order[t - 1]];
    }
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < c->places; i++) {
        const sp_i_cuda_element_data *d = &e->rooms[i].data;
        status = sp_i_cuda_upload(&c->device, d->index, index, 8 * tokens, c->bench.stream, err);
        if (status == SP_OK) {
            status =
                sp_i_cuda_upload(&c->device, d->order, order, 8 * tokens, c->bench.stream, err);
        }
    }
    sp_free(index);
    return status;
}

// ---- times ----

// AdamW's second moments must not be negative.
static sp_status clear_moments(const elements *e, sp_error *err)
{
    const sp_i_cuda_device *device = &e->c->device;
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < e->c->places; i++) {
        status = SP_I_CUDA(device, err, MemsetAsync, e->rooms[i].data.wide[3], 0,
                           (size_t)(4 * e->shape.tokens * e->shape.hidden), e->c->bench.stream);
    }
    return status == SP_OK ? SP_I_CUDA(device, err, StreamSynchronize, e->c->bench.stream) : status;
}

// A copy that moves as many bytes; of more than there is room for, in proportion.
static sp_status time_copy(elements *e, double moved_bytes, double *seconds, sp_error *err)
{
    sp_i_cuda_timing t;
    int64_t most = e->drawn_bytes / 2;
    int64_t wanted = (int64_t)(0.5 * moved_bytes);
    e->copied_bytes = wanted < most ? wanted : most;
    sp_status status =
        sp_i_cuda_calibration_time(e->c, run_copy, e->contexts, e->budget_s, &t, err);
    *seconds = t.median_s * (double)wanted / (double)e->copied_bytes;
    return status;
}

static sp_status time_element(elements *e, sp_i_cuda_element element, int size, sp_error *err)
{
    sp_i_cuda_calibration *c = e->c;
    sp_i_cuda_timing t;
    double copy_s;
    e->element = element;
    double moved_bytes = sp_i_cuda_element_cost_of(element, &e->shape).moved_bytes;
    sp_status status = time_copy(e, moved_bytes, &copy_s, err);
    if (status == SP_OK && element == SP_I_CUDA_ADAMW) {
        status = clear_moments(e, err);
    }
    if (status == SP_OK) {
        status = sp_i_cuda_calibration_time(c, run, e->contexts, e->budget_s, &t, err);
    }
    if (status != SP_OK) {
        return status;
    }
    // What is left of a time below the events' resolution is that resolution.
    double time_s = t.median_s - c->empty_s;
    e->time_s[element][size] = time_s > 1e-7 ? time_s : 1e-7;
    if (sp_i_cuda_element_in_layer(element, &c->model) > 0 && t.spread > e->spread) {
        e->spread = t.spread;
    }
    json_t *note = json_pack(
        "{s:s, s:I, s:f, s:f, s:f, s:f, s:f}", "name", sp_i_cuda_element_name(element), "tokens",
        (json_int_t)e->shape.tokens, "bytes", moved_bytes, "us", 1e6 * t.median_s, "spread",
        t.spread, "gb_per_s", 1e-9 * moved_bytes / t.median_s, "copy_ratio", copy_s / t.median_s);
    return json_array_append_new(e->notes, note) == 0 ? SP_OK : sp_i_cuda_no_profile(err);
}

static sp_status time_all(elements *e, sp_error *err)
{
    sp_i_cuda_calibration *c = e->c;
    sp_status status = SP_OK;
    e->budget_s = 0.1 * c->limit_s / (2 * SP_I_CUDA_ELEMENTS * 4);
    for (int64_t tokens = LEAST_TOKENS; status == SP_OK && tokens <= c->most_tokens;
         tokens *= STEP) {
        SP_ASSERT(e->sizes < SIZES);
        status = set_tokens(e, tokens, err);
        e->shapes[e->sizes] = e->shape;
        for (int i = 0; status == SP_OK && i < SP_I_CUDA_ELEMENTS; i++) {
            status = time_element(e, (sp_i_cuda_element)i, e->sizes, err);
        }
        e->sizes++;
    }
    if (status == SP_OK) {
        e->element = SP_I_CUDA_RESIDUAL_ADD;
        status = sp_i_cuda_note_places(c, "residual add of most tokens", run, e->contexts,
                                       e->contexts[0], e->budget_s, err);
    }
    return status;
}

// ---- what the cost model knows ----

static sp_status fit_layer(const elements *e, sp_i_cuda_fit *fit, sp_error *err)
{
    sp_i_cuda_fit_sums sums = {0};
    for (int i = 0; i < SP_I_CUDA_ELEMENTS; i++) {
        int times = sp_i_cuda_element_in_layer((sp_i_cuda_element)i, &e->c->model);
        for (int size = 0; times > 0 && size < e->sizes; size++) {
            sp_i_cuda_element_cost cost =
                sp_i_cuda_element_cost_of((sp_i_cuda_element)i, &e->shapes[size]);
            sp_i_cuda_fit_add(&sums, times, cost.counted_bytes, cost.counted_kernels,
                              e->time_s[i][size]);
        }
    }
    return sp_i_cuda_fit_solve(&sums, fit)
               ? SP_OK
               : sp_error_set(err, SP_ERR_INTERNAL,
                              "element-wise kernels take no longer for more tokens");
}

static sp_status write(const elements *e, const sp_i_cuda_fit *fit, sp_error *err)
{
    const sp_i_cuda_calibration *c = e->c;
    const int last = e->sizes - 1;
    const sp_i_cuda_element_shape *s = &e->shapes[last];
    double loss_s = e->time_s[SP_I_CUDA_CROSS_ENTROPY][last] +
                    e->time_s[SP_I_CUDA_CROSS_ENTROPY_BACKWARD][last];
    int loss_kernels =
        sp_i_cuda_element_cost_of(SP_I_CUDA_CROSS_ENTROPY, s).counted_kernels +
        sp_i_cuda_element_cost_of(SP_I_CUDA_CROSS_ENTROPY_BACKWARD, s).counted_kernels;
    double logits = (double)s->loss_tokens * (double)s->vocab;
    // Where the launches that the model counts take longer than the kernels do, nothing is left.
    double loss_bytes = (loss_s - loss_kernels * fit->kernel_s) * fit->bytes_per_s / logits;
    double step_bytes = e->time_s[SP_I_CUDA_ADAMW][last] * fit->bytes_per_s /
                        ((double)s->tokens * (double)s->hidden);
    const struct {
        const char *section, *key, *what;
        double value;
    } values[] = {
        {"memory", "gb_per_s", "a layer's element-wise kernels", 1e-9 * fit->bytes_per_s},
        {"kernel", "us", "a layer's element-wise kernels", 1e6 * fit->kernel_s},
        {"loss", "bytes_per_logit", "cross-entropy at the memory rate",
         loss_bytes > 0.1 ? loss_bytes : 0.1},
        {"optimizer", "bytes_per_parameter", "AdamW, clearing, at the memory rate", step_bytes}};
    sp_status status = SP_OK;
    for (size_t i = 0; status == SP_OK && i < sizeof values / sizeof *values; i++) {
        status = sp_i_cuda_add_value(c, values[i].section, values[i].key, values[i].value,
                                     values[i].what, e->spread, err);
    }
    if (status == SP_OK && json_object_set(c->extra, "elements", e->notes) != 0) {
        status = sp_i_cuda_no_profile(err);
    }
    return status;
}

sp_status sp_i_cuda_calibrate_elements(sp_i_cuda_calibration *c, sp_error *err)
{
    elements e;
    sp_i_cuda_fit fit;
    sp_status status = init(c, &e, err);
    if (status == SP_OK) {
        status = time_all(&e, err);
    }
    if (status == SP_OK) {
        status = fit_layer(&e, &fit, err);
    }
    if (status == SP_OK) {
        status = write(&e, &fit, err);
    }
    sp_i_cuda_rooms_fini(c, &e.memory);
    json_decref(e.notes);
    return status;
}
