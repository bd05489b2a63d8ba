// Measurements of slimpack on a GPU machine: gaps between actions, products in an executor, kernels
// bound by memory. Each that has a bound fails where that is missed (backends/cuda/README.md).
#include <stdio.h>
#include <string.h>

#include "backends/api/device.h"
#include "backends/cuda/calibration.h"
#include "backends/record/result.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/scenario/scenario.h"
#include "tests/gpu/device_memory.h"
#include "tests/gpu/gpu_check.h"
#include "tests/gpu/plan_request.h"
#include "tests/gpu/products.h"
#include "tests/support/idle_time.h"

enum { NONE = 77 };

static int fail(const char *command, const char *what, const sp_error *err)
{
    fprintf(stderr, "%s: %s%s%s\n", command, what, what[0] != '\0' ? ": " : "", err->message[0]);
    return 1;
}

// ---- gaps ----

// gpu_check gaps FILE: of every result in FILE (of slimpack measure) of a step in pipeline stages
// side by side (the wall clock, two ranks or more, no other parallelism): how long ranks were idle
// between two of their own actions although what the second reads was there (idle_time.h), by the
// stamps around their kernels. Prints a line for each; `share` is that of the idlest rank in the
// time of the step. What is idle inside an action is part of its time. Exit status: 0 some were
// looked at, 1 a result cannot be read or a share of a step in four stages is above MOST_GAPS, 2
// wrong usage, 77 there are none.
#define MOST_GAPS 0.02

// Looks at a case; false: there is nothing to look at in it. `missed`: it is beyond its bound.
typedef bool look_fn(const char *name, const sp_result_file *file, bool *missed);

static bool is_looked_at(const sp_result_file *file)
{
    const sp_layout *l = &file->plans.plans[0].layout;
    return file->status == SP_OK && file->run.clock == SP_CLOCK_WALL && l->pp > 1 &&
           l->tp * l->cp * l->dp == 1 && !l->vocab_parallel;
}

static bool print_gaps(const char *name, const sp_result_file *file)
{
    const sp_measured_step *step = &file->batches[0].step;
    int64_t *idle_ns = sp_calloc(step->timeline.rank_count, sizeof *idle_ns);
    size_t worst = 0;
    idle_time(step, idle_ns);
    for (size_t r = 1; r < step->timeline.rank_count; r++) {
        worst = idle_ns[r] > idle_ns[worst] ? r : worst;
    }
    double step_ns = (double)step->timeline.iteration_ns;
    double share = (double)idle_ns[worst] / step_ns;
    int pp = file->plans.plans[0].layout.pp;
    printf("{\"gaps\":\"%s\",\"pp\":%d,\"rank\":%zu,\"actions\":%zu,\"idle_us\":%.3f,"
           "\"step_us\":%.3f,\"share\":%.6f}\n",
           name, pp, worst, step->timeline.ranks[worst].count, 1e-3 * (double)idle_ns[worst],
           1e-3 * step_ns, share);
    sp_free(idle_ns);
    return pp == 4 && share > MOST_GAPS;
}

static bool look_at_gaps(const char *name, const sp_result_file *file, bool *missed)
{
    bool looked = is_looked_at(file);
    *missed = looked && print_gaps(name, file);
    return looked;
}

// gpu_check memory FILE: of every result there, the memory that the device saw beside what the
// executor counted, which the prediction meets; the constants of context and libraries apart. The
// last line has the mean of the errors' sizes over all cases. Exit status as that of gaps.
enum { MOST_CASES = 256 };
static device_memory cases[MOST_CASES];
static int case_count;

static bool look_at_memory(const char *name, const sp_result_file *file, bool *missed)
{
    *missed = false;
    const json_t *batch = json_array_get(json_object_get(file->document, "batches"), 0);
    device_memory *m = &cases[case_count];
    if (file->status != SP_OK || case_count == MOST_CASES ||
        !device_memory_of(json_object_get(batch, "report"), &file->batches[0].step, m)) {
        return false;
    }
    printf("{\"memory\":\"%s\",\"context\":%lld,\"libraries\":%lld,\"workspaces\":%lld,"
           "\"beside\":%lld,\"block_peak\":%lld,\"device\":%lld,\"counted\":%lld,"
           "\"error\":%.6f}\n",
           name, (long long)m->context, (long long)m->libraries, (long long)m->workspaces,
           (long long)m->beside, (long long)m->block_peak, (long long)m->device,
           (long long)m->counted, m->error);
    case_count++;
    return true;
}

// Takes the result over. Counts what was looked at.
static sp_status look_at(const char *name, json_t *result, look_fn *look, int *count, bool *missed,
                         sp_error *err)
{
    sp_scenario scenario = {0};
    sp_result_file file;
    const json_t *plan = json_object_get(json_object_get(result, "request"), "plan");
    sp_status status =
        sp_scenario_from_json(json_object_get(plan, "scenario"), name, NULL, 0, &scenario, err);
    if (status != SP_OK) {
        json_decref(result);
        return status;
    }
    status = sp_result_json_read(result, name, &scenario.layout, &file, err);
    if (status == SP_OK) {
        *count += look(name, &file, missed);
        sp_result_file_fini(&file);
    }
    sp_scenario_fini(&scenario);
    return status;
}

static int look_at_all(int argc, char **argv, look_fn *look)
{
    sp_error err = {0};
    json_auto_t *measurement = NULL;
    const char *name;
    json_t *result;
    int count = 0;
    bool failed = false;
    if (argc != 2) {
        fprintf(stderr, "gpu_check %s FILE\n", argv[0]);
        return 2;
    }
    if (sp_json_read_file(argv[1], 0, &measurement, &err) != SP_OK) {
        return fail(argv[0], "", &err);
    }
    json_object_foreach (json_object_get(measurement, "results"), name, result) {
        sp_error own = {0};
        bool missed = false;
        if (look_at(name, json_incref(result), look, &count, &missed, &own) != SP_OK) {
            failed = fail(argv[0], "", &own) != 0;
        }
        failed = failed || missed;
    }
    return failed ? 1 : count == 0 ? NONE : 0;
}

int gpu_gaps(int argc, char **argv)
{
    return look_at_all(argc, argv, look_at_gaps);
}

int gpu_memory(int argc, char **argv)
{
    const int status = look_at_all(argc, argv, look_at_memory);
    if (case_count > 0) {
        printf("{\"memory\":\"all\",\"cases\":%d,\"mape\":%.6f}\n", case_count,
               device_memory_mape(cases, case_count));
    }
    return status;
}

// ---- products ----

// gpu_check products PLAN...: executes six steps of each plan (one batch, one rank) on the first
// GPU and times every product where it stands, between the executor's other kernels, and then
// cuBLASLt alone at the same shapes. Prints a line for each shape; `ratio` is alone over in the
// executor: the share of the library's own rate that the executor reaches, LEAST_PRODUCTS or more.
// Exit status: 0 timed, 1 failed or a share is less, 2 wrong usage, 77 no GPU.
#define LEAST_PRODUCTS 0.9
enum { STEPS = 6 };
// Of device time, for each shape alone.
#define BUDGET_S 0.03

static products_shape shapes[PRODUCTS_SHAPES];

static sp_status run(const sp_run_request *request, sp_error *err)
{
    sp_backend *backend = NULL;
    sp_run *done = NULL;
    sp_status status = sp_i_backend_new(&sp_backend_plugin, "products", &backend, err);
    if (status == SP_OK) {
        status = sp_backend_run(backend, 0, request, &done, err);
    }
    sp_run_free(done);
    sp_backend_free(backend);
    return status;
}

static sp_status time_plan(const char *path, const sp_i_cuda_device *device,
                           const sp_i_cublas_api *cublas, int *count, sp_error *err)
{
    sp_plan_input in;
    sp_status status = sp_plan_input_read(path, &in, err);
    if (status == SP_OK) {
        const sp_run_request request = plan_request(&in, SP_CLOCK_WALL, STEPS);
        products_watch(device);
        status = run(&request, err);
    }
    if (status == SP_OK) {
        status = products_seen(STEPS, shapes, count, err);
    }
    if (status == SP_OK) {
        status = products_alone(device, cublas, BUDGET_S, shapes, *count, err);
    }
    sp_plan_input_fini(&in);
    return status;
}

// Does each reach its share?
static bool print_shapes(const char *path, int count)
{
    bool reached = true;
    static const char *const kinds[] = {"forward", "input gradient", "weight gradient"};
    const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    for (int i = 0; i < count; i++) {
        const products_shape *s = &shapes[i];
        const sp_i_cuda_product *p = &s->product;
        double flops = 2.0 * (double)p->tokens * (double)p->in * (double)p->out;
        printf("{\"products\":\"%s\",\"kind\":\"%s\",\"tokens\":%lld,\"in\":%lld,\"out\":%lld,"
               "\"times\":%d,\"executor_us\":%.3f,\"alone_us\":%.3f,\"alone_tflops\":%.1f,"
               "\"ratio\":%.4f}\n",
               name, kinds[p->kind], (long long)p->tokens, (long long)p->in, (long long)p->out,
               s->times, 1e6 * s->executor_s, 1e6 * s->alone_s, 1e-12 * flops / s->alone_s,
               s->alone_s / s->executor_s);
        reached = reached && s->alone_s / s->executor_s >= LEAST_PRODUCTS;
    }
    fflush(stdout);
    return reached;
}

int gpu_products(int argc, char **argv)
{
    gpu_test t;
    sp_i_cublas_api cublas;
    sp_error err = {0};
    char reason[SP_I_CUDA_TEXT];
    bool reached = true;
    if (argc < 2) {
        fprintf(stderr, "gpu_check products PLAN...\n");
        return 2;
    }
    const int missing = gpu_start_command(&t);
    if (missing != 0) {
        return missing;
    }
    if (!sp_i_cublas_api_init(&cublas, reason, sizeof reason)) {
        printf("nothing to time: %s\n", reason);
        return NONE;
    }
    for (int i = 1; i < argc; i++) {
        int count = 0;
        if (time_plan(argv[i], &t.device, &cublas, &count, &err) != SP_OK) {
            return fail("products", argv[i], &err);
        }
        reached = print_shapes(argv[i], count) && reached;
    }
    return reached ? 0 : 1;
}

// ---- kernels bound by memory ----

// gpu_check kernels_bench: a layer's kernels that are bound by memory, as a calibration times them,
// on larger tensors. Prints a line for each; `ratio` is the time of a copy that moves as many bytes
// over the kernel's, LEAST_OF_COPY or more. Exit status: 0 timed, 1 failed or a ratio is less, 77
// no GPU.
#define LEAST_OF_COPY 0.8
#define LIMIT_S 40.0
enum { KERNEL_TOKENS = 32768 };

static sp_status time_kernels(sp_i_cuda_calibration *c, sp_error *err)
{
    sp_status status = sp_i_cuda_calibration_begin(c, err);
    status = status == SP_OK ? sp_i_cuda_calibrate_copies(c, err) : status;
    status = status == SP_OK ? sp_i_cuda_calibrate_elements(c, err) : status;
    sp_i_cuda_calibration_end(c);
    return status;
}

int gpu_kernels_bench(int argc, char **argv)
{
    gpu_test t;
    sp_error err = {0};
    size_t i;
    const json_t *note;
    int looked = 0;
    bool reached = true;
    const int missing = gpu_start_command(&t);
    if (missing != 0) {
        return missing;
    }
    sp_i_cuda_calibration c = {.device = t.device,
                               .info = t.info,
                               .launch = sp_i_cuda_launch_element,
                               .delay = sp_i_cuda_put_delay,
                               .places = 1,
                               .seed = 1,
                               .limit_s = LIMIT_S,
                               .most_tokens = t.small ? KERNEL_TOKENS / 64 : KERNEL_TOKENS,
                               .document = json_object(),
                               .extra = json_object()};
    sp_status status = sp_model_builtin("llama-7b", &c.model, &err);
    status = status == SP_OK ? time_kernels(&c, &err) : status;
    json_array_foreach (json_object_get(c.extra, "elements"), i, note) {
        if (json_integer_value(json_object_get(note, "tokens")) * 4 > c.most_tokens) {
            double ratio = json_number_value(json_object_get(note, "copy_ratio"));
            looked++;
            reached = reached && ratio >= LEAST_OF_COPY;
            printf("{\"bench\": \"cuda_kernels\", \"device\": \"%s\", \"kernel\": \"%s\", "
                   "\"median_us\": %.3f, \"rate\": %.2f, \"unit\": \"GB/s\", \"limit\": "
                   "\"copy\", \"ratio\": %.3f}\n",
                   t.info.name, json_string_value(json_object_get(note, "name")),
                   json_number_value(json_object_get(note, "us")),
                   json_number_value(json_object_get(note, "gb_per_s")), ratio);
        }
    }
    json_decref(c.document);
    json_decref(c.extra);
    return status != SP_OK ? fail("kernels_bench", "", &err) : looked > 0 && reached ? 0 : 1;
}
