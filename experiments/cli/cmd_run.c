// `run` executes plans; the options of all commands that execute stand before it.
#include <errno.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/execution/execution.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/scenario/scenario.h"

// ---- backend, device, clock and precision ----

static sp_status read_name(const char *option, const char *text, const char *const *names,
                           int *index, sp_error *err)
{
    char list[128] = "";
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], text) == 0) {
            *index = i;
            return SP_OK;
        }
        sp_append(list, sizeof list, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    return sp_error_set(err, SP_ERR_USAGE, "--%s: expected one of %s, got '%.64s'", option, list,
                        text);
}

// Wall time is honest only where every rank has a core of its own.
static sp_status choose_clock(const char *text, const sp_device_info *device,
                              const sp_scenario *scenario, sp_clock *clock, sp_error *err)
{
    int index = 0;
    if (text != NULL) {
        sp_status status = read_name("clock", text, sp_clock_names, &index, err);
        *clock = (sp_clock)index;
        return status;
    }
    bool wall = (device->capabilities & SP_CAN(CLOCK_WALL)) != 0;
    bool cores = device->cores == 0 || sp_layout_ranks(&scenario->layout) <= device->cores;
    bool only_wall = (device->capabilities & SP_CAN(CLOCK_VIRTUAL)) == 0;
    *clock = wall && (cores || only_wall) ? SP_CLOCK_WALL : SP_CLOCK_VIRTUAL;
    return SP_OK;
}

sp_status cli_choose_precision(const char *text, const sp_device_info *device,
                               sp_precision *precision, sp_error *err)
{
    int index = 0;
    if (text != NULL) {
        sp_status status = read_name("precision", text, sp_precision_names, &index, err);
        *precision = (sp_precision)index;
        return status;
    }
    uint64_t can = device->capabilities;
    *precision = (can & SP_CAN(FP32)) != 0   ? SP_FP32
                 : (can & SP_CAN(BF16)) != 0 ? SP_BF16
                                             : SP_FP64;
    return SP_OK;
}

// A backend that only another machine has is known by its name.
static sp_status find_backend(const cli_execute *args, cli_executor *executor, sp_error *err)
{
    sp_error unknown = {0};
    const sp_backend **backend = &executor->options.backend;
    if (!args->remote || strchr(args->backend, '/') != NULL) {
        return sp_registry_find(executor->registry, args->backend, backend, err);
    }
    sp_status status = sp_registry_find(executor->registry, args->backend, backend, &unknown);
    if (status == SP_ERR_CONTENT) {
        status = sp_backend_absent_new(args->backend, &executor->absent, err);
        *backend = executor->absent;
    } else if (status != SP_OK) {
        *err = unknown;
    }
    return status;
}

sp_status cli_find_process(const sp_backend *backend, int *process, int *processes, sp_error *err)
{
    SP_TRY(sp_backend_process(backend, process, processes, err));
    if (*process > 0 && freopen("/dev/null", "w", stdout) == NULL) {
        return sp_error_set(err, SP_ERR_IO, "/dev/null: %s", strerror(errno));
    }
    return SP_OK;
}

// Another machine's clock and precision, which nothing here decides.
static sp_status choose_remote(const cli_execute *args, cli_executor *executor, sp_error *err)
{
    sp_execution_options *options = &executor->options;
    sp_device_info device = {0};
    sp_error no_device = {0};
    int clock = SP_CLOCK_VIRTUAL;
    executor->capabilities = UINT64_MAX;
    sp_status status = SP_OK;
    if (args->clock != NULL) {
        status = read_name("clock", args->clock, sp_clock_names, &clock, err);
    }
    options->clock = (sp_clock)clock;
    if (status == SP_OK && args->precision == NULL &&
        sp_backend_device_info(options->backend, options->device, &device, &no_device) != SP_OK) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s' has no device %d here: its --precision must be given",
                            sp_backend_name(options->backend), options->device);
    }
    return status == SP_OK
               ? cli_choose_precision(args->precision, &device, &options->precision, err)
               : status;
}

static sp_status choose_local(const cli_execute *args, const sp_scenario *scenario,
                              cli_executor *executor, sp_error *err)
{
    sp_execution_options *options = &executor->options;
    sp_device_info device = {0};
    sp_status status = sp_backend_device_info(options->backend, options->device, &device, err);
    if (status == SP_OK) {
        status = choose_clock(args->clock, &device, scenario, &options->clock, err);
    }
    if (status == SP_OK) {
        status = cli_choose_precision(args->precision, &device, &options->precision, err);
    }
    if (status == SP_OK && args->steps == 0 && (device.capabilities & SP_CAN(STEPS)) == 0) {
        options->steps = 1;
    }
    executor->capabilities = device.capabilities;
    return status;
}

static sp_status add_setting(const char *option, const char *key, const char *value,
                             cli_executor *executor, sp_error *err)
{
    sp_execution_options *options = &executor->options;
    for (size_t i = 0; i < options->option_count; i++) {
        if (strcmp(executor->settings[i].key, key) == 0) {
            return sp_error_set(err, SP_ERR_USAGE, "%s and --option %s exclude each other", option,
                                key);
        }
    }
    executor->settings[options->option_count++] = (sp_backend_option){.key = key, .value = value};
    return SP_OK;
}

// Options of the command that are the backend's have no second meaning.
static sp_status add_own_settings(const cli_execute *args, cli_executor *executor, sp_error *err)
{
    sp_status status = SP_OK;
    executor->options.learning_rates = args->learning_rate != NULL || args->warmup > 0;
    if (args->learning_rate != NULL) {
        status = add_setting("--lr", "learning_rate", args->learning_rate, executor, err);
    }
    if (status == SP_OK && args->warmup > 0) {
        snprintf(executor->warmup, sizeof executor->warmup, "%lld", (long long)args->warmup);
        status = add_setting("--warmup", "warmup", executor->warmup, executor, err);
    }
    return status;
}

// "KEY=VALUE" texts belong to argv: they are copied to be parted.
static sp_status part_settings(const cli_execute *args, cli_executor *executor, sp_error *err)
{
    const cli_list *list = &args->options;
    size_t bytes = 1;
    for (int i = 0; i < list->count; i++) {
        bytes += strlen(list->items[i]) + 1;
    }
    executor->settings = sp_calloc((size_t)list->count + 2, sizeof *executor->settings);
    executor->texts = sp_malloc(bytes);
    char *text = executor->texts;
    for (int i = 0; i < list->count; i++) {
        size_t length = strlen(list->items[i]);
        memcpy(text, list->items[i], length + 1);
        char *equals = strchr(text, '=');
        if (equals == NULL || equals == text) {
            return sp_error_set(err, SP_ERR_USAGE, "--option expects KEY=VALUE, got '%.64s'", text);
        }
        *equals = '\0';
        executor->settings[i] = (sp_backend_option){.key = text, .value = equals + 1};
        text += length + 1;
    }
    executor->options.options = executor->settings;
    executor->options.option_count = (size_t)list->count;
    return add_own_settings(args, executor, err);
}

sp_status cli_executor_begin(const cli_execute *args, const sp_scenario *scenario,
                             int default_steps, cli_executor *executor, sp_error *err)
{
    *executor = (cli_executor){0};
    sp_execution_options *options = &executor->options;
    options->device = (int)args->device;
    options->seed = args->seed > 0 ? (uint64_t)args->seed : 1;
    options->steps = args->steps > 0 ? (int)args->steps : default_steps;
    sp_status status = sp_registry_new(&executor->registry, err);
    if (status == SP_OK) {
        status = find_backend(args, executor, err);
    }
    executor->processes = 1;
    if (status == SP_OK && !args->remote) {
        status = cli_find_process(options->backend, &executor->process, &executor->processes, err);
    }
    if (status == SP_OK) {
        status = args->remote ? choose_remote(args, executor, err)
                              : choose_local(args, scenario, executor, err);
    }
    return status == SP_OK ? part_settings(args, executor, err) : status;
}

void cli_executor_end(cli_executor *executor)
{
    sp_free(executor->settings);
    sp_free(executor->texts);
    sp_backend_free(executor->absent);
    sp_registry_free(executor->registry);
    *executor = (cli_executor){0};
}

// ---- running a plan ----

typedef struct run_args {
    cli_common common;
    cli_execute execute;
    cli_exports exports;
    const char *output, *record;
    bool prove;
} run_args;

typedef struct measured {
    cli_exports exports;
    json_t *timelines; // of every batch an array of ranks; NULL: not asked for
} measured;

static sp_status observe(void *context, const sp_step_view *predicted SP_UNUSED,
                         const sp_step_view *view, sp_error *err)
{
    measured *m = context;
    if (m->timelines != NULL) {
        json_t *ranks = json_array();
        sp_execution_put_timeline(ranks, view);
        json_array_append_new(m->timelines, ranks);
    }
    return cli_exports_observe(&m->exports, view, err);
}

static sp_status write_measured(const char *path, const sp_execution *execution, json_t *timelines,
                                sp_error *err)
{
    json_t *root = sp_execution_result_json(execution);
    json_t *batches = json_object_get(json_object_get(root, "execution"), "batches");
    for (size_t b = 0; b < json_array_size(batches); b++) {
        sp_json_put(json_array_get(batches, b), "ranks", json_incref(json_array_get(timelines, b)));
    }
    return cli_write_json(path, root, err);
}

static sp_status execute(const run_args *args, const sp_plan_input *in, cli_executor *executor,
                         sp_execution *execution, sp_error *err)
{
    measured m = {.exports = args->exports};
    sp_warnings shown = {.count = 0};
    m.exports.warnings = &shown;
    // With --json standard output belongs to the result alone.
    m.exports.text = args->common.json ? stderr : stdout;
    if (m.exports.batch >= in->plans.count) {
        return sp_error_set(err, SP_ERR_USAGE, "--batch %lld: the last of %d is %d",
                            (long long)m.exports.batch, in->plans.count, in->plans.count - 1);
    }
    sp_status status = cli_executor_begin(&args->execute, &in->scenario, 1, executor, err);
    executor->options.memory_points =
        (cli_exports_need_memory(&m.exports) || args->record != NULL) && !in->scenario.uniform &&
        (executor->capabilities & SP_CAN(MEMORY_POINTS)) != 0;
    executor->options.observer = observe;
    executor->options.observer_context = &m;
    const char *output = args->output;
    const char *record = args->record;
    if (executor->process > 0) {
        m.exports.trace = m.exports.plot = output = record = NULL;
        m.exports.timeline = false;
    }
    if (status == SP_OK && output != NULL) {
        m.timelines = json_array();
    }
    if (status == SP_OK) {
        status = cli_exports_begin(&m.exports, in->scenario.layout.pp, err);
    }
    if (status == SP_OK) {
        status = sp_execution_run_recorded(in, &executor->options, record, execution, err);
    }
    sp_warnings_add_all(&execution->measured.warnings, &shown, NULL);
    if (status == SP_OK && output != NULL) {
        status = write_measured(output, execution, m.timelines, err);
    }
    json_decref(m.timelines);
    sp_status closed = cli_exports_end(&m.exports, err);
    return status != SP_OK ? status : closed;
}

static int run_plan(const run_args *args, const char *path)
{
    sp_plan_input in;
    cli_executor executor = {0};
    sp_execution execution = {0};
    sp_error err = {0};
    int exit_status = 0;
    sp_status status = sp_plan_input_read(path, &in, &err);
    if (status == SP_OK) {
        status = execute(args, &in, &executor, &execution, &err);
    }
    if (status != SP_OK) {
        exit_status = cli_fail_json(args->common.json, "slimpack/result/1", sp_result_json_empty(),
                                    executor.process, &err);
    } else if (args->common.json) {
        exit_status = cli_print_json(sp_execution_result_json(&execution));
    } else {
        if (cli_prints_tables_alone()) {
            cli_print_figures(NULL, sp_execution_result_json(&execution));
        }
        cli_print_execution(stdout, &in.scenario, &execution);
        cli_print_notes(args->common.quiet || executor.process > 0, NULL, &execution.measured);
    }
    sp_execution_fini(&execution);
    cli_executor_end(&executor);
    sp_plan_input_fini(&in);
    return exit_status;
}

// ---- its gradients ----

static sp_status prove(const run_args *args, const sp_plan_input *in, cli_executor *executor,
                       sp_proofs *proofs, sp_execution *execution, sp_error *err)
{
    sp_status status = cli_executor_begin(&args->execute, &in->scenario, 1, executor, err);
    if (status == SP_OK) {
        status = sp_registry_find(executor->registry, "host", &proofs->plain, err);
    }
    executor->options.proofs = proofs;
    executor->options.plans = &in->plans;
    return status == SP_OK ? sp_execution_run(&in->scenario, &executor->options, execution, err)
                           : status;
}

static int prove_plan(const run_args *args, const char *path)
{
    sp_plan_input in;
    cli_executor executor = {0};
    sp_execution execution = {0};
    sp_proofs proofs = {0};
    sp_error err = {0};
    int exit_status = 0;
    sp_status status = sp_plan_input_read(path, &in, &err);
    if (status == SP_OK) {
        status = prove(args, &in, &executor, &proofs, &execution, &err);
    }
    if (status != SP_OK) {
        exit_status = cli_fail_json(
            args->common.json, "slimpack/proof/1",
            sp_json_object(SP_JSON("holds", json_null()), SP_JSON("batches", json_array())),
            executor.process, &err);
    } else {
        if (args->common.json) {
            exit_status = cli_print_json(sp_execution_proofs_json(&execution));
        } else {
            cli_print_proofs(stdout, &in.scenario, &execution);
        }
        exit_status = cli_answer(exit_status, sp_proofs_hold(&proofs));
    }
    sp_execution_fini(&execution);
    sp_proofs_fini(&proofs);
    cli_executor_end(&executor);
    sp_plan_input_fini(&in);
    return exit_status;
}

static const char *wrong_prove_usage(const run_args *args)
{
    const cli_exports *exports = &args->exports;
    if (args->output != NULL || args->record != NULL || exports->trace != NULL ||
        exports->trace_ranks != NULL || exports->trace_window != NULL || exports->timeline ||
        exports->plot != NULL || exports->batch != 0) {
        return "--prove compares gradients of all batches and measures no step: -o, --record, "
               "--trace, --timeline, --plot and --batch have no use with it";
    }
    if (args->execute.steps > 1 || args->execute.learning_rate != NULL ||
        args->execute.warmup != 0) {
        return "--prove is of the gradients of one step, before the optimizer: --steps, --lr and "
               "--warmup have no use with it";
    }
    return NULL;
}

static int run(const void *given, const cli_operands *operands)
{
    const run_args *args = given;
    const char *wrong = args->execute.backend == NULL
                            ? "'run' needs --backend NAME (host: this CPU)"
                        : args->prove ? wrong_prove_usage(args)
                                      : NULL;
    if (wrong != NULL) {
        return cli_usage_error(&cli_cmd_run, "%s", wrong);
    }
    return args->prove ? prove_plan(args, operands->items[0]) : run_plan(args, operands->items[0]);
}

// ---- the command ----

static const cli_option options[] = {
    CLI_EXECUTE_OPTIONS(run_args, "1"),
    CLI_TEXT_OPTION(CLI_OUTPUT, 'o', "output", "FILE", run_args, output,
                    "write the result with the measured timeline of every batch (JSON)"),
    CLI_TEXT_OPTION(
        CLI_KEPT, 0, "record", "FILE", run_args, record,
        "keep what was executed for 'slimpack validate --executed' on any machine (JSON)"),
    CLI_FLAG_OPTION("prove", run_args, prove,
                    "compare the gradients of a step, tensor by tensor, with those of its samples "
                    "one by one on one rank of the CPU, instead of measuring"),
    CLI_STEP_OPTIONS(run_args),
    CLI_BATCH_OPTION(run_args, "trace, timeline and plot"),
    CLI_TABLE_OPTIONS(run_args),
    CLI_COMMON_OPTIONS(run_args),
    {0},
};

static const char *const examples[] = {
    "slimpack plan experiments/host_small.json -o plan.json && slimpack run plan.json --backend "
    "host",
    "slimpack run plan.json --backend host --precision fp64 --steps 10 --timeline",
    "slimpack run plan.json --backend host --clock wall -o measured.json",
    "slimpack run plan.json --backend host --steps 100 --lr 0.003 --warmup 10 --option "
    "text=book.txt",
    "slimpack run plan.json --backend host --precision fp64 --prove",
    NULL,
};

const cli_command cli_cmd_run = {
    .name = "run",
    .summary = "execute a plan and measure it",
    CLI_TAKES("PLAN", 1, 1),
    .description =
        "Executes the steps of a plan on a backend: exactly the plan's actions, each rank's in the "
        "plan's order. Prints what was measured as 'simulate' prints what is predicted, and the "
        "time and the loss of every step. Each batch is trained from the same starting "
        "parameters.\n\nBackends are host (a real transformer on the CPU) and shared libraries "
        "libslimpack-backend-NAME.so, looked up in $SLIMPACK_BACKEND_PATH. A failing rank, a peer "
        "that never answers and memory that runs out end the run with the rank, the action and the "
        "reason.\n\n--prove shows that a plan trains what plain training does, however it packs, "
        "cuts "
        "and orders samples: the relative error of each gradient, and of the loss, against the "
        "step without packing and parallelism may be 1e-10 in fp64, 1e-4 in fp32, and in bf16 what "
        "rounding of the parameters explains (3 times its effect, of biases 5 times; of the loss "
        "2e-4).\n\nA launcher such as torchrun can start the command several times, as the ranks "
        "of one run: the first of these processes prints and writes files.\n\nThe exit status is 1 "
        "when memory runs out on a rank or --prove finds an error beyond its bound, 4 when a limit "
        "is hit or this machine has no memory for "
        "all ranks, 70 when an action fails.",
    CLI_RUNS(run, run_args, options, examples),
};
