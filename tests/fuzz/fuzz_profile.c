// A profile from arbitrary bytes: it is refused with a message, or every time it gives is finite
// and not negative.
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/json.h"
#include "sim/cost/collective.h"
#include "sim/cost/op_time.h"
#include "sim/cost/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const sp_profile *profile)
{
    static const double sizes[] = {1.0, 100.0, 5000.0, 1e7};
    static const sp_cluster cluster = {
        .gpus_per_node = 8, .nodes = 4, .nics_per_node = 4, .nic_bytes_per_s = 25e9};
    sp_uncalibrated uncalibrated = {{0}, {0}, {0}, {0}};
    sp_op_timer timer = {.cluster = &cluster, .profile = profile, .uncalibrated = &uncalibrated};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        double total = sp_time_gemm(&timer, sizes[i], 4096.0, 1024.0);
        total += sp_time_memory(&timer, sizes[i], 1);
        total += sp_time_attention_slice(&timer, 0, sizes[i], sizes[3 - i], 8.0, 128.0);
        total += sp_time_attention_slice(&timer, 1, sizes[i], 0.0, 8.0, 128.0);
        for (int kind = 0; kind < SP_COLLECTIVES; kind++) {
            sp_group near = {8, 1, 8, 8};
            sp_group wide = {20, 3, 4, 8};
            total += sp_time_collective(&timer, (sp_collective)kind, near, sizes[i]);
            total += sp_time_collective(&timer, (sp_collective)kind, wide, sizes[i]);
        }
        SP_ASSERT(isfinite(total) && total >= 0.0);
    }
    char lines[SP_RANGES][160];
    SP_ASSERT(sp_uncalibrated_lines(&uncalibrated, lines) <= SP_RANGES);
    SP_ASSERT(sp_profile_level(profile) <= SP_LEVEL_ASSUMED);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *root = NULL;
    sp_profile profile;
    sp_error err;
    sp_error_clear(&err);
    if (sp_json_read_text((const char *)data, size, "fuzz", &root, &err) == SP_OK) {
        sp_status status = sp_profile_from_json(root, "fuzz", &profile, &err);
        SP_ASSERT((status == SP_OK) == (err.count == 0));
        if (status == SP_OK) {
            use(&profile);
        }
        sp_profile_fini(&profile);
    }
    json_decref(root);
    return 0;
}
