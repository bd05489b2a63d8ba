// Backends by name: built in, as plug-ins, and all the ways in which a plug-in can be wrong.
#include <unistd.h>

#include "backends/api/device.h"
#include "tests/support/plan_sample.h"
#include "tests/support/test_main.h"

OWNS(sp_registry)

static sp_registry *open_registry(const char *path)
{
    sp_registry *registry = NULL;
    if (path != NULL) {
        assert_int_equal(setenv("SLIMPACK_BACKEND_PATH", path, 1), 0);
    } else {
        assert_int_equal(unsetenv("SLIMPACK_BACKEND_PATH"), 0);
    }
    assert_int_equal(sp_registry_new(&registry, NULL), SP_OK);
    return registry;
}

static void must_refuse(const char *name, sp_status expected, const char *text)
{
    sp_error_clear(ERR);
    const sp_backend *backend = NULL;
    OWNED(sp_registry) registry = open_registry(SP_TEST_PLUGIN_DIR);
    assert_int_equal(sp_registry_find(registry, name, &backend, ERR), expected);
    assert_null(backend);
    must_hold(strstr(ERR->message[0], text) != NULL, "expected \"%s\", got \"%s\"", text,
              ERR->message[0]);
}

TEST(built_in_backends)
{
    OWNED(sp_registry) registry = open_registry(NULL);
    const sp_backend *backend = NULL;
    must_succeed(sp_registry_find(registry, "host", &backend, ERR));
    assert_string_equal(sp_backend_name(backend), "host");
    must_fail_with(sp_registry_find(registry, "fake", &backend, ERR), SP_ERR_CONTENT,
                   "unknown backend 'fake' (known: ");
}

TEST(devices_are_counted)
{
    OWNED(sp_registry) registry = open_registry(SP_TEST_PLUGIN_DIR);
    const sp_backend *backend = NULL;
    int count = 0;
    sp_device_info info;
    must_succeed(sp_registry_find(registry, "fake", &backend, ERR));
    assert_string_equal(sp_backend_options(backend)[0].key, "durations");
    must_succeed(sp_backend_device_count(backend, &count, ERR));
    assert_int_equal(count, 2);
    must_succeed(sp_backend_device_info(backend, 1, &info, ERR));
    assert_string_equal(info.name, "plain");
    must_fail_with(sp_backend_device_info(backend, 2, &info, ERR), SP_ERR_USAGE,
                   "backend 'fake' has no device 2 (it has 2)");
    must_fail_with(sp_backend_device_info(backend, -1, &info, ERR), SP_ERR_USAGE, "");
}

static sp_status count_none(int *count, sp_error *err)
{
    *count = 0;
    return SP_OK;
}

static sp_status describe_none(int device, sp_device_info *info, sp_error *err)
{
    *info = (sp_device_info){0};
    return sp_error_set(err, SP_ERR_USAGE, "no GPU was found: look for one");
}

static sp_status execute_none(int device, const sp_run_request *request, sp_measured_step *steps,
                              void **state, sp_error *err)
{
    (void)device, (void)request, (void)steps;
    *state = NULL;
    return sp_error_set(err, SP_ERR_USAGE, "never");
}

// Why a machine has none of its devices the backend says, not that there are 0.
TEST(a_backend_without_devices_says_why)
{
    const sp_backend_ops ops = {.abi = SP_BACKEND_ABI,
                                .size = sizeof(sp_backend_ops),
                                .types = SP_BACKEND_TYPES,
                                .name = "none",
                                .description = "has no devices",
                                .device_count = count_none,
                                .device_info = describe_none,
                                .execute = execute_none};
    sp_backend *backend = NULL;
    sp_device_info info;
    must_succeed(sp_i_backend_new(&ops, "none", &backend, ERR));
    must_fail_with(sp_backend_device_info(backend, 0, &info, ERR), SP_ERR_USAGE,
                   "no GPU was found: look for one");
    sp_backend_free(backend);
}

TEST(a_plugin_is_loaded_once)
{
    OWNED(sp_registry) registry = open_registry("/nowhere:" SP_TEST_PLUGIN_DIR);
    const sp_backend *backend = NULL;
    const sp_backend *again = NULL;
    must_succeed(sp_registry_find(registry, "sample", &backend, ERR));
    assert_null(sp_backend_options(backend)[0].key);
    must_succeed(sp_registry_find(registry, "sample", &again, ERR));
    assert_ptr_equal(backend, again);
    sp_registry_free(registry);
    // By its path, and without any variable.
    registry = open_registry(NULL);
    const char *path = SP_TEST_PLUGIN_DIR "/libslimpack-backend-sample.so";
    must_succeed(sp_registry_find(registry, path, &backend, ERR));
    assert_string_equal(sp_backend_name(backend), "sample");
    must_succeed(sp_registry_find(registry, path, &again, ERR));
    assert_ptr_equal(backend, again);
}

TEST(wrong_plugins)
{
    must_refuse("old_version", SP_ERR_CONTENT,
                "made for version 0 of the backend interface, this is version 2");
    must_refuse("other_headers", SP_ERR_CONTENT, "built from other headers");
    must_refuse("no_symbol", SP_ERR_CONTENT, "symbol 'sp_backend_plugin' is missing");
    must_refuse("misnamed", SP_ERR_CONTENT, "the backend calls itself 'another'");
    must_refuse("no_description", SP_ERR_CONTENT, "a required entry");
    must_refuse("too_short", SP_ERR_CONTENT, "a table of operations of 16 bytes is too short");
    must_refuse("/nowhere/plugin.so", SP_ERR_IO, "/nowhere/plugin.so: cannot load: ");
}

TEST(no_shared_library)
{
    char folder[] = "plugins-XXXXXX";
    char file[64];
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/libslimpack-backend-text.so", folder);
    put_file(file, "text\n");
    sp_registry *registry = open_registry(folder);
    const sp_backend *backend = NULL;
    sp_status status = sp_registry_find(registry, "text", &backend, ERR);
    sp_registry_free(registry);
    remove(file);
    rmdir(folder);
    assert_int_equal(status, SP_ERR_IO);
    assert_non_null(strstr(ERR->message[0], "libslimpack-backend-text.so: cannot load: "));
}

TEST(unknown_names_get_a_hint)
{
    must_refuse("fakc", SP_ERR_CONTENT, "unknown backend 'fakc' (did you mean 'fake'? known: ");
    must_refuse("samples", SP_ERR_CONTENT, "did you mean 'sample'?");
    must_refuse("quantum_tunnel", SP_ERR_CONTENT, "unknown backend 'quantum_tunnel' (known: ");
    must_refuse("", SP_ERR_CONTENT, "unknown backend '' (");
    must_refuse("quantum_tunnel", SP_ERR_CONTENT, ", misnamed, ");
}

TEST(names_are_in_order)
{
    AUTO(sp_backend_names) names;
    bool fake = false, sample = false;
    assert_int_equal(setenv("SLIMPACK_BACKEND_PATH", SP_TEST_PLUGIN_DIR ":" SP_TEST_PLUGIN_DIR, 1),
                     0);
    sp_registry_names(&names);
    for (size_t i = 0; i < names.count; i++) {
        assert_true(i == 0 || strcmp(names.name[i - 1], names.name[i]) < 0);
        fake = fake || strcmp(names.name[i], "fake") == 0;
        sample = sample || strcmp(names.name[i], "sample") == 0;
    }
    assert_true(fake && sample);
}

// What a backend leaves out is an error that says so, and never a call of nothing.
TEST(slots_that_are_left_out)
{
    OWNED(sp_registry) registry = open_registry(SP_TEST_PLUGIN_DIR);
    const sp_backend *fake = NULL;
    const sp_backend *sample = NULL;
    const sp_backend *shorter = NULL;
    json_t *profile = NULL;
    const sp_calibration_request calibration = {.limit_s = 1.5};
    assert_int_equal(sp_registry_find(registry, "fake", &fake, NULL), SP_OK);
    assert_int_equal(sp_registry_find(registry, "sample", &sample, NULL), SP_OK);
    assert_int_equal(sp_registry_find(registry, "shorter", &shorter, NULL), SP_OK);
    must_fail(sp_backend_calibrate(fake, 0, &calibration, &profile, ERR), SP_ERR_USAGE,
              "backend 'fake' cannot calibrate");
    assert_int_equal(sp_backend_calibrate(sample, 0, &calibration, &profile, NULL), SP_OK);
    assert_true(json_number_value(json_object_get(profile, "limit")) == 1.5);
    json_decref(profile);
    // Its table is there up to this slot.
    assert_int_equal(sp_backend_calibrate(shorter, 0, &calibration, &profile, NULL), SP_ERR_USAGE);
    assert_null(profile);
    // No tensors.
    AUTO(plan_sample) s;
    const sp_run_request base = {.precision = SP_FP64, .steps = 1};
    sp_run *run = NULL;
    size_t count = 1;
    plan_sample_make(SP_CAP_PIPELINE, &base, &s);
    assert_int_equal(sp_backend_run(sample, 0, &s.request, &run, NULL), SP_OK);
    assert_false(sp_run_step(run, 0)->has_loss);
    must_fail(sp_run_tensor_count(run, &count, ERR), SP_ERR_USAGE,
              "backend 'sample' gives no tensors to read");
    assert_int_equal(count, 0);
    sp_run_free(run);
}

TEST(processes_of_a_run)
{
    OWNED(sp_registry) registry = NULL;
    const sp_backend *alone = NULL;
    const sp_backend *of_two = NULL;
    int rank = -1, ranks = -1;
    assert_int_equal(setenv("SLIMPACK_BACKEND_PATH", SP_TEST_PLUGIN_DIR, 1), 0);
    assert_int_equal(sp_registry_new(&registry, NULL), SP_OK);
    assert_int_equal(sp_registry_find(registry, "sample", &alone, NULL), SP_OK);
    assert_int_equal(sp_registry_find(registry, "of_two", &of_two, NULL), SP_OK);
    assert_int_equal(sp_backend_process(alone, &rank, &ranks, NULL), SP_OK);
    assert_int_equal(rank, 0);
    assert_int_equal(ranks, 1);
    assert_int_equal(setenv("SAMPLE_RANK", "1", 1), 0);
    assert_int_equal(sp_backend_process(of_two, &rank, &ranks, NULL), SP_OK);
    assert_int_equal(rank, 1);
    assert_int_equal(ranks, 2);
    assert_int_equal(unsetenv("SAMPLE_RANK"), 0);
    must_fail(sp_backend_process(of_two, &rank, &ranks, ERR), SP_ERR_USAGE,
              "environment: SAMPLE_RANK is not set");
}
