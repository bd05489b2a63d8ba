// Reads any bytes as a measurement. One that is accepted names no file outside of its folder, its
// set names profiles, and a part that is noted is there.
#include <stdint.h>
#include <string.h>

#include "experiments/execution/measurement.h"
#include "sim/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_names(const json_t *documents)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)documents, name, value) {
        SP_ASSERT(strchr(name, '/') == NULL && name[0] != '.' && name[0] != '\0');
    }
}

static void note(json_t *measurement)
{
    const sp_measured_part part = {.name = "case x", .status = "ok", .quick = true};
    if (json_is_array(json_object_get(measurement, "parts"))) {
        sp_measurement_note(measurement, &part);
        SP_ASSERT(sp_measurement_has(measurement, part.name, true));
        SP_ASSERT(!sp_measurement_has(measurement, part.name, false));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sp_error err = {0};
    json_t *root = NULL;
    if (sp_json_read_text((const char *)data, size, "fuzz", &root, &err) != SP_OK) {
        return 0;
    }
    sp_set_profile profiles[SP_SET_PROFILES];
    int count = 0;
    if (sp_measurement_check(root, "fuzz", root, &err) == SP_OK) {
        check_names(json_object_get(root, "profiles"));
        check_names(json_object_get(root, "results"));
        note(root);
    }
    sp_error_clear(&err);
    json_t *taken = NULL;
    if (sp_measurement_profiles(root, "fuzz", &taken, &err) == SP_OK) {
        const char *key;
        json_t *profile;
        json_object_foreach (taken, key, profile) {
            SP_ASSERT(strchr(json_string_value(json_object_get(profile, "name")), '/') == NULL);
        }
    }
    sp_error_clear(&err);
    if (sp_set_profiles(json_object_get(root, "set"), "fuzz", profiles, &count, &err) == SP_OK) {
        SP_ASSERT(count > 0 && count <= SP_SET_PROFILES);
        for (int p = 0; p < count; p++) {
            SP_ASSERT(profiles[p].partitions >= 1 && strchr(profiles[p].name, '/') == NULL);
            SP_ASSERT(p == 0 || profiles[p - 1].partitions <= profiles[p].partitions);
        }
    }
    json_decref(root);
    return 0;
}
