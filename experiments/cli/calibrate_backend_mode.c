// slimpack calibrate --backend
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/api/device.h"
#include "experiments/calibrate/profile_document.h"
#include "experiments/cli/calibrate_modes.h"
#include "experiments/cli/execute_options.h"
#include "experiments/cli/report.h"
#include "experiments/execution/steady_case.h"
#include "sim/cost/profile.h"

#define LIMIT_S 40.0
#define QUICK_LIMIT_S 3.0

static sp_status read_model(const char *name, sp_model *model, sp_error *err)
{
    size_t length = strlen(name);
    bool is_path =
        strchr(name, '/') != NULL || (length > 5 && strcmp(name + length - 5, ".json") == 0);
    return is_path ? sp_model_read_hf(name, model, err) : sp_model_builtin(name, model, err);
}

static sp_status measure(const cli_calibrate_backend_args *args, json_t **profile, int *process,
                         sp_error *err)
{
    int processes = 1;
    sp_registry *registry;
    const sp_backend *backend;
    sp_model model;
    sp_calibration_request request = {.seed = 1,
                                      .limit_s = args->quick ? QUICK_LIMIT_S : LIMIT_S,
                                      .partitions = args->partitions};
    sp_device_info device;
    sp_status status = SP_OK;
    if (args->model != NULL) {
        status = read_model(args->model, &model, err);
        request.model = &model;
    }
    if (status != SP_OK) {
        return status;
    }
    status = sp_registry_new(&registry, err);
    if (status != SP_OK) {
        return status;
    }
    status = sp_registry_find(registry, args->backend, &backend, err);
    if (status == SP_OK) {
        status = cli_settle_process(backend, process, &processes, err);
    }
    // The others may be on computers that have no such folder.
    if (status == SP_OK && args->output != NULL && *process == 0) {
        status = cli_check_writable(args->output, err);
    }
    if (status == SP_OK) {
        status = sp_backend_device_info(backend, 0, &device, err);
    }
    if (status == SP_OK) {
        status = cli_choose_precision(args->precision, &device, &request.precision, err);
    }
    if (status == SP_OK) {
        status = sp_backend_calibrate(backend, 0, &request, profile, err);
    }
    sp_registry_free(registry);
    return status;
}

static sp_status write_profile(const char *path, const json_t *profile, sp_error *err)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return sp_error_set(err, SP_ERR_IO, "%s: %s", path, strerror(errno));
    }
    sp_status status = fit_document_write(profile, file, path, err);
    if (fclose(file) != 0 && status == SP_OK) {
        status = sp_error_set(err, SP_ERR_IO, "%s: %s", path, strerror(errno));
    }
    return status;
}

// What was measured must read as a profile before anybody gets it.
static sp_status check_profile(const json_t *profile, sp_error *err)
{
    sp_profile read;
    sp_status status = sp_profile_from_json(profile, "calibration", &read, err);
    if (status == SP_OK) {
        sp_profile_fini(&read);
    }
    return status;
}

// What a machine that changes its speed makes of a profile no later step can tell.
static void warn_of_drift(const json_t *profile)
{
    double drift = json_real_value(json_object_get(json_object_get(profile, "reference"), "drift"));
    if (drift > SP_STEADY_SPEED) {
        fprintf(stderr,
                "warning: the machine's speed changed by %.0f %% during the calibration (more than "
                "%.0f %%): its parts do not fit together, repeat it\n",
                100.0 * drift, 100.0 * SP_STEADY_SPEED);
    }
}

int cli_calibrate_backend(const cli_calibrate_backend_args *args)
{
    sp_error err = {0};
    json_t *profile = NULL;
    int process = 0;
    sp_status status = measure(args, &profile, &process, &err);
    if (status == SP_OK) {
        status = check_profile(profile, &err);
    }
    if (status == SP_OK && args->output != NULL && process == 0) {
        status = write_profile(args->output, profile, &err);
    }
    if (status != SP_OK) {
        json_decref(profile);
        return cli_fail_of(process, &err);
    }
    if (process == 0) {
        warn_of_drift(profile);
    }
    if (args->json) {
        return cli_print_json(profile);
    }
    printf("%s: memory %.3g GB/s, layer %.3g us\n", args->output,
           json_real_value(json_object_get(json_object_get(profile, "memory"), "gb_per_s")),
           json_real_value(json_object_get(json_object_get(profile, "host"), "layer_us")));
    json_decref(profile);
    return 0;
}
