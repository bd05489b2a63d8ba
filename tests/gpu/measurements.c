// Measurements of slimpack on a GPU machine: gaps between actions, a profile, products in an
// executor, kernels bound by memory.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/api/device.h"
#include "backends/cuda/calibration.h"
#include "backends/cuda/multi_process.h"
#include "backends/record/result.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/cost/profile.h"
#include "sim/scenario/scenario.h"
#include "tests/gpu/device_memory.h"
#include "tests/gpu/gpu_check.h"
#include "tests/gpu/plan_request.h"
#include "tests/gpu/products.h"

enum { PATH_BYTES = 1024, NONE = 77 };

static int fail(const char *command, const char *what, const sp_error *err)
{
    fprintf(stderr, "%s: %s%s%s\n", command, what, what[0] != '\0' ? ": " : "", err->message[0]);
    return 1;
}

// ---- gaps ----

// gpu_check gaps FOLDER: of every result in FOLDER (NAME.result.json of slimpack run --record) of a
// step in pipeline stages side by side (the wall clock, two ranks or more, no other parallelism):
// how long ranks were idle between two of their own actions although what the second reads was
// there (sp_measured_step_idle), by the stamps around their kernels. Prints a line for each;
// `share` is that of the idlest rank in the time of the step. What is idle inside an action is part
// of its time. Exit status: 0 some were looked at, 1 a result cannot be read, 2 wrong usage, 77
// there are none.
static int is_result(const struct dirent *entry)
{
    static const char ending[] = ".result.json";
    size_t length = strlen(entry->d_name);
    return length > sizeof ending &&
           strcmp(entry->d_name + length - (sizeof ending - 1), ending) == 0;
}

static bool is_looked_at(const sp_result_file *file)
{
    const sp_layout *l = &file->plans.plans[0].layout;
    return file->status == SP_OK && file->run.clock == SP_CLOCK_WALL && l->pp > 1 &&
           l->tp * l->cp * l->dp == 1 && !l->vocab_parallel;
}

static void print_gaps(const char *name, const sp_result_file *file)
{
    const sp_measured_step *step = &file->batches[0].step;
    int64_t *idle_ns = sp_calloc(step->timeline.rank_count, sizeof *idle_ns);
    size_t worst = 0;
    sp_measured_step_idle(step->timeline.plan, step, idle_ns);
    for (size_t r = 1; r < step->timeline.rank_count; r++) {
        worst = idle_ns[r] > idle_ns[worst] ? r : worst;
    }
    double step_ns = (double)step->timeline.iteration_ns;
    printf("{\"gaps\":\"%s\",\"pp\":%d,\"rank\":%zu,\"actions\":%zu,\"idle_us\":%.3f,"
           "\"step_us\":%.3f,\"share\":%.6f}\n",
           name, file->plans.plans[0].layout.pp, worst, step->timeline.ranks[worst].count,
           1e-3 * (double)idle_ns[worst], 1e-3 * step_ns, (double)idle_ns[worst] / step_ns);
    sp_free(idle_ns);
}

static bool look_at_gaps(const char *name, const sp_result_file *file)
{
    if (is_looked_at(file)) {
        print_gaps(name, file);
    }
    return is_looked_at(file);
}

// gpu_check memory FOLDER: of every result there, the memory that the device saw beside what the
// executor counted, which the prediction meets; the constants of context and libraries apart. The
// last line has the mean of the errors' sizes over all cases. Exit status as that of gaps.
enum { MOST_CASES = 256 };
static device_memory cases[MOST_CASES];
static int case_count;

static bool look_at_memory(const char *name, const sp_result_file *file)
{
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

// Counts what was looked at.
static sp_status look_at(const char *folder, const char *name,
                         bool (*look)(const char *name, const sp_result_file *file), int *count,
                         sp_error *err)
{
    char path[2 * PATH_BYTES];
    json_t *root = NULL;
    sp_scenario scenario = {0};
    sp_result_file file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    sp_status status = sp_json_read_file(path, 0, &root, err);
    if (status != SP_OK) {
        return status;
    }
    const json_t *plan = json_object_get(json_object_get(root, "request"), "plan");
    status =
        sp_scenario_from_json(json_object_get(plan, "scenario"), path, NULL, 0, &scenario, err);
    if (status != SP_OK) {
        json_decref(root);
        return status;
    }
    status = sp_result_json_read(root, path, &scenario.layout, &file, err);
    if (status == SP_OK) {
        *count += look(name, &file);
        sp_result_file_fini(&file);
    }
    sp_scenario_fini(&scenario);
    return status;
}

static int look_at_all(int argc, char **argv,
                       bool (*look)(const char *name, const sp_result_file *file))
{
    struct dirent **entries;
    int count = 0;
    bool failed = false;
    if (argc != 2) {
        fprintf(stderr, "gpu_check %s FOLDER\n", argv[0]);
        return 2;
    }
    int files = scandir(argv[1], &entries, is_result, alphasort);
    if (files < 0) {
        fprintf(stderr, "%s: %s: %s\n", argv[0], argv[1], strerror(errno));
        return 2;
    }
    for (int i = 0; i < files; i++) {
        sp_error err = {0};
        if (look_at(argv[1], entries[i]->d_name, look, &count, &err) != SP_OK) {
            fprintf(stderr, "%s: %s\n", argv[0], err.message[0]);
            failed = true;
        }
        free(entries[i]);
    }
    free(entries);
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

// ---- a profile ----

// gpu_check calibrate FOLDER [PARTITIONS]: measures the first GPU, or one of as many partitions of
// it beside busy others, and writes FOLDER/NAME.json, a profile named after it; the same as
// `slimpack calibrate --backend cuda`, from the backend alone. Started as several processes with a
// GPU each (torchrun --no-python --nproc-per-node 8 gpu_check calibrate FOLDER) it times NCCL's
// collectives too, and the first process writes. Exit status: 0 written, 1 failed, 2 wrong usage,
// 77 no GPU. Of a partition less is measured: what it is beside the whole.
#define LIMIT_S 40.0
#define PARTITION_LIMIT_S 20.0

typedef struct output {
    char file[SP_PROFILE_PATH];
    int written;
} output;

// What is cut off leaves what it has measured.
static void write_file(void *context, const json_t *document)
{
    output *o = context;
    o->written = json_dump_file(document, o->file, JSON_INDENT(2) | JSON_REAL_PRECISION(5));
}

int gpu_calibrate(int argc, char **argv)
{
    gpu_test t;
    sp_error err = {0};
    char *end = "";
    long partitions = argc == 3 ? strtol(argv[2], &end, 10) : 1;
    if (argc < 2 || argc > 3 || *end != '\0' || partitions < 1 ||
        partitions > SP_I_CUDA_MOST_PLACES) {
        fprintf(stderr, "gpu_check calibrate FOLDER [PARTITIONS]\n");
        return 2;
    }
    const int missing = gpu_start_command(&t);
    if (missing != 0) {
        return missing;
    }
    json_t *document;
    sp_profile profile;
    sp_i_place place;
    char name[64];
    output o = {.written = 0};
    const sp_calibration_request request = {.part = write_file,
                                            .part_context = &o,
                                            .precision = SP_BF16,
                                            .seed = 1,
                                            .limit_s = partitions > 1 ? PARTITION_LIMIT_S : LIMIT_S,
                                            .partitions = (int)partitions};
    if (sp_i_place_read(getenv, &place, &err) != SP_OK) {
        return fail("calibrate", "", &err);
    }
    sp_i_cuda_profile_name(t.info.name, (int)partitions, name, sizeof name);
    snprintf(o.file, sizeof o.file, "%s/%s.json", argv[1], name);
    if (sp_i_cuda_calibrate(0, &request, &document, &err) != SP_OK) {
        return fail("calibrate", "", &err);
    }
    if (place.rank > 0) {
        json_decref(document);
        return 0;
    }
    // What cannot be read back is no profile.
    sp_status status = sp_profile_from_json(document, "the profile", &profile, &err);
    if (status == SP_OK) {
        sp_profile_fini(&profile);
    }
    write_file(&o, document);
    json_decref(document);
    if (o.written != 0) {
        fprintf(stderr, "calibrate: cannot write %s\n", o.file);
        return 1;
    }
    printf("%s\n", o.file);
    return status == SP_OK ? 0 : fail("calibrate", "", &err);
}

// ---- products ----

// gpu_check products PLAN...: executes six steps of each plan (one batch, one rank) on the first
// GPU and times every product where it stands, between the executor's other kernels, and then
// cuBLASLt alone at the same shapes. Prints a line for each shape; `ratio` is alone over in the
// executor: the share of the library's own rate that the executor reaches. Exit status: 0 timed, 1
// failed, 2 wrong usage, 77 no GPU.
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

static void print_shapes(const char *path, int count)
{
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
    }
    fflush(stdout);
}

int gpu_products(int argc, char **argv)
{
    gpu_test t;
    sp_i_cublas_api cublas;
    sp_error err = {0};
    char reason[SP_I_CUDA_TEXT];
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
        print_shapes(argv[i], count);
    }
    return 0;
}

// ---- kernels bound by memory ----

// gpu_check kernels_bench: a layer's kernels that are bound by memory, as a calibration times them,
// on larger tensors. Prints a line for each; `ratio` is the time of a copy that moves as many bytes
// over the kernel's. Exit status: 0 timed, 1 failed, 77 no GPU.
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
    (void)argc;
    (void)argv;
    gpu_test t;
    sp_error err = {0};
    size_t i;
    const json_t *note;
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
            printf("{\"bench\": \"cuda_kernels\", \"device\": \"%s\", \"kernel\": \"%s\", "
                   "\"median_us\": %.3f, \"rate\": %.2f, \"unit\": \"GB/s\", \"limit\": "
                   "\"copy\", \"ratio\": %.3f}\n",
                   t.info.name, json_string_value(json_object_get(note, "name")),
                   json_number_value(json_object_get(note, "us")),
                   json_number_value(json_object_get(note, "gb_per_s")),
                   json_number_value(json_object_get(note, "copy_ratio")));
        }
    }
    json_decref(c.document);
    json_decref(c.extra);
    return status == SP_OK ? 0 : fail("kernels_bench", "", &err);
}
