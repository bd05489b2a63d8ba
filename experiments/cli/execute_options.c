#include "experiments/cli/execute_options.h"

#include <errno.h>
#include <string.h>

#include "sim/base/alloc.h"

static sp_status read_name(const char *option, const char *text, const char *const *names,
                           int *index, sp_error *err)
{
    char list[128] = "";
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], text) == 0) {
            *index = i;
            return SP_OK;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", names[i]);
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
    sp_status status = sp_backend_process(backend, process, processes, err);
    if (status == SP_OK && *process > 0 && freopen("/dev/null", "w", stdout) == NULL) {
        return sp_error_set(err, SP_ERR_IO, "/dev/null: %s", strerror(errno));
    }
    return status;
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

// "KEY=VALUE" texts belong to argv: they are copied to be parted.
static sp_status part_settings(const cli_list *list, cli_executor *executor, sp_error *err)
{
    size_t bytes = 1;
    for (int i = 0; i < list->count; i++) {
        bytes += strlen(list->items[i]) + 1;
    }
    executor->settings = sp_calloc((size_t)list->count + 1, sizeof *executor->settings);
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
    return SP_OK;
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
    return status == SP_OK ? part_settings(&args->options, executor, err) : status;
}

void cli_executor_end(cli_executor *executor)
{
    sp_free(executor->settings);
    sp_free(executor->texts);
    sp_backend_free(executor->absent);
    sp_registry_free(executor->registry);
    *executor = (cli_executor){0};
}
