// How well a calibrated profile predicts the CPU executor: measures a profile for a small Llama and
// a small GPT (fp32, one core), then plans, simulates and runs scenarios of several schedules and
// strategies on the virtual clock. validate_host [SECONDS [STEPS]]: time of each calibration
// (default 30) and steps of each run (default 9), of which the first does not count. A table, and
// below it the mean absolute error of the iteration time and the largest error of the bubble ratio.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/device.h"
#include "backends/registry.h"
#include "solver/evaluate.h"

#define PROFILE "validate_host.profile.json"

enum { MOST_STEPS = 101, TEXT = 2048 };

static const char *const models[] = {
    "{'name': 'llama', 'layers': 8, 'hidden': 256, 'ffn': 704, 'heads': 4, 'kv_heads': 2, "
    "'vocab': 1024, 'activation': 'swiglu', 'norm': 'rmsnorm', 'positional': 'rope'}",
    "{'name': 'gpt', 'layers': 8, 'hidden': 192, 'ffn': 768, 'heads': 3, 'vocab': 1024, "
    "'activation': 'gelu', 'norm': 'layernorm', 'positional': 'learned', 'max_positions': 1024, "
    "'tied_embeddings': true, 'bias': true}"};

static const struct {
    const char *name, *settings;
} cases[] = {
    {"packed 1f1b pp2", "'parallel': {'pp': 2}, 'schedule': {'kind': '1f1b'}"},
    {"packed 1f1b pp4", "'parallel': {'pp': 4}, 'schedule': {'kind': '1f1b'}"},
    {"packed 1f1b pp2 dp2", "'parallel': {'pp': 2, 'dp': 2}, 'schedule': {'kind': '1f1b'}"},
    {"packed zb-h1 pp4", "'parallel': {'pp': 4}, 'schedule': {'kind': 'zb-h1'}"},
    {"slimpipe pp4", "'parallel': {'pp': 4}, 'schedule': {'kind': 'slimpipe', 'slices': 4}, "
                     "'strategy': {'kind': 'slimpipe'}"},
    {"chunkflow pp2", "'parallel': {'pp': 2}, 'strategy': {'kind': 'chunkflow', "
                      "'chunk_tokens': 256}"},
    {"slimpack pp4", "'parallel': {'pp': 4}, 'strategy': {'kind': 'slimpack'}"},
};

enum { MODELS = sizeof models / sizeof models[0], CASES = sizeof cases / sizeof cases[0] };

static void require(sp_status status, const sp_error *err)
{
    if (status != SP_OK) {
        fprintf(stderr, "%s\n", err->count > 0 ? err->message[0] : sp_status_text(status));
        remove(PROFILE);
        exit(1);
    }
}

static json_t *parse(const char *text)
{
    char json[TEXT];
    snprintf(json, sizeof json, "%s", text);
    for (char *c = json; *c != '\0'; c++) {
        *c = *c == '\'' ? '"' : *c;
    }
    return json_loads(json, JSON_REJECT_DUPLICATES, NULL);
}

static void read_scenario(int model, int number, const char *profile, sp_scenario *scenario)
{
    char text[TEXT];
    sp_error err = {0};
    snprintf(text, sizeof text,
             "{'schema': 'slimpack/scenario/1', 'model': %s, 'cluster': 'host', 'profile': '%s', "
             "'workload': {'lengths': [512, 40, 200, 90, 30, 310, 64, 150, 480, 25, 75, 260, 130, "
             "55, 20, 400, 110, 35, 180, 70, 350, 45, 95, 240], 'order': 'file', "
             "'samples_per_batch': 24, 'context': 512}, %s}",
             models[model], profile, cases[number].settings);
    json_t *root = parse(text);
    require(sp_scenario_from_json(root, "validate_host", NULL, 0, scenario, &err), &err);
    json_decref(root);
}

// ---- measured ----

typedef struct comparison {
    const sp_backend *backend;
    const sp_scenario *scenario;
    int steps;
    double predicted_ms, measured_ms;
    double predicted_bubble, measured_bubble;
    double predicted_busy_ms, measured_busy_ms;
} comparison;

static int compare(const void *x, const void *y)
{
    double a = *(const double *)x;
    double b = *(const double *)y;
    return (a > b) - (a < b);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

static void metrics_of(const sp_timeline *timeline, const sp_memory_timeline *memory, double *ms,
                       double *bubble, double *busy_ms)
{
    sp_error err = {0};
    sp_step_metrics metrics;
    require(sp_step_metrics_compute(timeline, memory, &metrics, &err), &err);
    *ms = 1e-6 * (double)metrics.iteration_ns;
    *bubble = sp_bubble_ratio(&metrics);
    *busy_ms = 1e-6 * (double)metrics.busy_ns;
    sp_step_metrics_fini(&metrics);
}

static sp_status observe(void *context, const sp_step_view *view, sp_error *err)
{
    comparison *c = context;
    double ms[MOST_STEPS];
    double bubble[MOST_STEPS];
    double busy_ms[MOST_STEPS];
    sp_run *run;
    const sp_run_request request = {.plan = view->plan,
                                    .model = &c->scenario->model,
                                    .memory = &c->scenario->memory,
                                    .precision = SP_FP32,
                                    .seed = 1,
                                    .steps = c->steps};
    metrics_of(view->timeline, view->memory, &c->predicted_ms, &c->predicted_bubble,
               &c->predicted_busy_ms);
    sp_status status = sp_backend_run(c->backend, 0, &request, &run, err);
    if (status != SP_OK) {
        return status;
    }
    for (int i = 1; i < c->steps; i++) {
        const sp_measured_step *step = sp_run_step(run, i);
        metrics_of(&step->timeline, &step->memory, &ms[i - 1], &bubble[i - 1], &busy_ms[i - 1]);
    }
    c->measured_ms = median(ms, c->steps - 1);
    c->measured_bubble = median(bubble, c->steps - 1);
    c->measured_busy_ms = median(busy_ms, c->steps - 1);
    sp_run_free(run);
    return SP_OK;
}

// ---- both ----

static void calibrate(const sp_backend *backend, int model, double limit_s)
{
    sp_scenario scenario;
    sp_error err = {0};
    json_t *profile;
    read_scenario(model, 0, "host", &scenario);
    const sp_calibration_request request = {
        .precision = SP_FP32, .seed = 1, .limit_s = limit_s, .model = &scenario.model};
    require(sp_backend_calibrate(backend, 0, &request, &profile, &err), &err);
    if (json_dump_file(profile, PROFILE, JSON_INDENT(2)) != 0) {
        fprintf(stderr, "%s: cannot write\n", PROFILE);
        exit(1);
    }
    json_decref(profile);
    sp_scenario_fini(&scenario);
}

static comparison run_case(const sp_backend *backend, int model, int number, int steps)
{
    sp_scenario scenario;
    sp_batches batches;
    sp_result result;
    sp_error err = {0};
    read_scenario(model, number, "./" PROFILE, &scenario);
    comparison c = {.backend = backend, .scenario = &scenario, .steps = steps};
    const sp_evaluate_options options = {
        .no_bounds = true, .observer = observe, .observer_context = &c};
    require(sp_evaluate_batches(&scenario, &batches, &err), &err);
    require(sp_evaluate(&scenario, &batches, &options, &result, &err), &err);
    sp_result_fini(&result);
    sp_batches_fini(&batches);
    sp_scenario_fini(&scenario);
    return c;
}

int main(int argc, char **argv)
{
    double limit_s = argc > 1 ? atof(argv[1]) : 30.0;
    int steps = argc > 2 ? atoi(argv[2]) : 9;
    if (!(limit_s > 0.0) || steps < 2 || steps > MOST_STEPS) {
        fprintf(stderr, "usage: validate_host [SECONDS [STEPS]], steps from 2 to %d\n", MOST_STEPS);
        return 2;
    }
    sp_error err = {0};
    sp_registry *registry;
    const sp_backend *backend;
    double error_sum = 0.0;
    double worst_bubble = 0.0;
    require(sp_registry_new(&registry, &err), &err);
    require(sp_registry_find(registry, "host", &backend, &err), &err);
    printf("%-6s %-20s %10s %10s %7s %7s %7s %8s %7s\n", "model", "case", "pred ms", "meas ms",
           "error", "bubble", "meas", "delta", "busy");
    for (int m = 0; m < (int)MODELS; m++) {

        calibrate(backend, m, limit_s);
        for (int i = 0; i < (int)CASES; i++) {
            comparison c = run_case(backend, m, i, steps);
            double error = c.predicted_ms / c.measured_ms - 1.0;
            double delta = c.predicted_bubble - c.measured_bubble;
            error_sum += fabs(error);
            worst_bubble = fmax(worst_bubble, fabs(delta));
            printf("%-6s %-20s %10.2f %10.2f %+6.1f%% %7.3f %7.3f %+8.4f %+6.1f%%\n",
                   m == 0 ? "llama" : "gpt", cases[i].name, c.predicted_ms, c.measured_ms,
                   100.0 * error, c.predicted_bubble, c.measured_bubble, delta,
                   100.0 * (c.predicted_busy_ms / c.measured_busy_ms - 1.0));
            fflush(stdout);
        }
    }
    remove(PROFILE);
    printf("iteration time MAPE %.1f %%, largest |delta bubble| %.3f, %d cases\n",
           100.0 * error_sum / (MODELS * CASES), worst_bubble, (int)(MODELS * CASES));
    sp_registry_free(registry);
    return 0;
}
