// A profile with the same rate for every size and no launch floors, so that times have closed
// forms, and helpers to make profiles in tests from text.
#ifndef SLIMPACK_TESTS_SUPPORT_FLAT_PROFILE_H
#define SLIMPACK_TESTS_SUPPORT_FLAT_PROFILE_H

#include "sim/base/json.h"
#include "sim/cost/profile.h"
#include "tests/support/test_main.h"

#define FLAT_GEMM_FLOPS_PER_S 5e14
#define FLAT_FORWARD_FLOPS_PER_S 4e14
#define FLAT_BACKWARD_FLOPS_PER_S 3.2e14
#define FLAT_MEMORY_BYTES_PER_S 2e12
#define FLAT_NVLINK_BYTES_PER_S 2e11
#define FLAT_NVLINK_LATENCY_S 4e-6
#define FLAT_NIC_EFFICIENCY 0.8
#define FLAT_NIC_LATENCY_S 1e-5
#define FLAT_OPTIMIZER_BYTES 30.0

#define FLAT_TABLE(rate) \
    "{\"level\": \"assumed\", \"source\": \"test\", \"points\": [[1e-6, " rate "]]}"

static const char flat_profile_text[] =
    "{\"schema\": \"slimpack/profile/1\", \"name\": \"flat\", \"gpu\": \"test\","
    " \"gemm_rate\": " FLAT_TABLE(
        "500") ","
               " \"attention\": {\"forward_causal\": " FLAT_TABLE(
                   "400") ","
                          "   \"backward_causal\": " FLAT_TABLE(
                              "320") "},"
                                     " \"memory\": {\"gb_per_s\": 2000, \"level\": \"assumed\", "
                                     "\"source\": \"test\"},"
                                     " \"kernel\": {\"us\": 0, \"level\": \"assumed\", \"source\": "
                                     "\"test\"},"
                                     " \"links\": {\"nvlink_gb_per_s\": 200, "
                                     "\"nvlink_latency_us\": 4, \"nic_efficiency\": 0.8,"
                                     "   \"nic_latency_us\": 10, \"level\": \"assumed\", "
                                     "\"source\": \"test\"},"
                                     " \"optimizer\": {\"bytes_per_parameter\": 30, \"level\": "
                                     "\"assumed\", \"source\": \"test\"}}";

// The flat profile with `overrides` ("memory.gb_per_s=1000", NULL-terminated) applied.
static inline sp_status flat_profile(const char *const *overrides, sp_profile *profile,
                                     sp_error *err)
{
    json_auto_t *root = NULL;
    sp_status status =
        sp_json_read_text(flat_profile_text, strlen(flat_profile_text), "flat", &root, err);
    for (int i = 0; status == SP_OK && overrides != NULL && overrides[i] != NULL; i++) {
        status = sp_json_override(root, overrides[i], err);
    }
    if (status == SP_OK) {
        status = sp_profile_from_json(root, "flat", profile, err);
    }
    return status;
}

// The flat profile with overrides that must be good.
static inline void flat_profile_load(const char *const *overrides, sp_profile *profile)
{
    must_succeed(flat_profile(overrides, profile, ERR));
}

static inline sp_profile flat_profile_of(const char *const *overrides)
{
    sp_profile profile;
    flat_profile_load(overrides, &profile);
    return profile;
}

#endif
