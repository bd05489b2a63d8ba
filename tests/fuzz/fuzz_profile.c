// A profile from arbitrary bytes: it is refused with a message, or every time it gives is finite
// and not negative.
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/cost/cost_private.h"
#include "sim/cost/op_time.h"
#include "sim/cost/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Launches of every pass on a stage with both ends, and what a pass waits for them.
static double host_time(const sp_profile *profile, double gpu_s)
{
    static const sp_layout layout = {.tp = 8, .cp = 1, .pp = 1, .dp = 1, .chunks = 1};
    const sp_i_pack_time time = {.layout = &layout,
                                 .recompute_share = 0.5,
                                 .recomputes_attention = true,
                                 .unfused_softmax = 0.25};
    const sp_stage stage = {.layers = 2, .embedding = true, .head = true};
    double total = 0.0;
    for (int i = 0; i < 2 * SP_I_PASSES; i++) {
        bool crosses_nodes = i % 2 == 1;
        double host_s = sp_i_exec_s(&profile->host, &time, &stage, (sp_pass)(i / 2), crosses_nodes);
        double wait_s = sp_i_launch_wait_s(&profile->host, gpu_s, host_s);
        SP_ASSERT(host_s >= 0.0 && wait_s >= 0.0);
        SP_ASSERT(wait_s <= host_s * (1.0 + 1e-9) + gpu_s * 1e-9);
        total += host_s + wait_s;
    }
    return total;
}

// The stack's document reads back as the same stack.
static void use_stack(const sp_stack *stack)
{
    sp_error err;
    sp_error_clear(&err);
    sp_stack back = {.name = "ours"};
    json_t *first = json_pack("{s:o}", "stack", sp_stack_to_json(stack));
    sp_object parent;
    sp_object_begin(&parent, first, "fuzz", "", &err);
    sp_stack_from_member(&parent, "stack", &back);
    json_t *second = sp_stack_to_json(&back);
    SP_ASSERT(err.count == 0 && json_equal(json_object_get(first, "stack"), second));
    json_decref(first);
    json_decref(second);
}

// A step either has an error or a reason why it has none.
static void use_errors(const sp_profile *profile)
{
    sp_step_kind kind = {.figure = {7e9, 0, 64, 8, 1, 1, 2, 1, 4096}};
    for (int i = 0; i <= profile->errors.count; i++) {
        sp_step_error found;
        sp_step_error_find(&profile->errors, &kind, profile->name, &found);
        SP_ASSERT(found.known == (found.not_validated[0] == '\0'));
        SP_ASSERT(isfinite(found.median) && found.median <= found.p90);
        SP_ASSERT(strlen(found.not_validated) < sizeof found.not_validated);
        if (i == profile->errors.count) {
            break;
        }
        // The next step is of this record's kind, so that a record holds.
        const sp_error_record *record = &profile->errors.record[i];
        for (int f = 0; f < SP_STEP_FIGURES; f++) {
            kind.figure[f] = isfinite(record->least[f]) ? record->least[f] : 1.0;
        }
        for (int w = 0; w < SP_STEP_WORDS; w++) {
            size_t length = strcspn(record->words[w], "\n");
            snprintf(kind.word[w], SP_STEP_WORD, "%.*s", (int)length, record->words[w]);
        }
    }
}

static void use(const sp_profile *profile)
{
    static const double sizes[] = {1.0, 100.0, 5000.0, 1e7};
    static const sp_cluster cluster = {
        .gpus_per_node = 8, .nodes = 4, .nics_per_node = 4, .nic_bytes_per_s = 25e9};
    sp_uncalibrated uncalibrated = {{0}, {0}, {0}, {0}};
    sp_op_timer timer = {.cluster = &cluster, .profile = profile, .uncalibrated = &uncalibrated};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        double total = sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, sizes[i], 4096.0, 1024.0);
        total += sp_time_gemm(&timer, SP_GEMM_TOKENS_IN, sizes[i], 4096.0, 1024.0);
        total += sp_time_batched_gemm(&timer, 12.0, sizes[i], sizes[3 - i], 128.0, 128.0);
        total += sp_time_memory(&timer, sizes[i], 1);
        total += sp_time_p2p(&timer, sizes[i], 0) + sp_time_p2p(&timer, sizes[i], 1);
        total += host_time(profile, total);
        total += sp_time_attention_slice(&timer, 0, sizes[i], sizes[3 - i], HUGE_VAL, 8.0, 128.0);
        total += sp_time_attention_slice(&timer, 1, sizes[i], 0.0, HUGE_VAL, 8.0, 128.0);
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
    use_errors(profile);
    SP_ASSERT(sp_profile_level(profile) <= SP_LEVEL_ASSUMED);
    double most = sp_gemm_most_rate(profile);
    SP_ASSERT(isfinite(most) && most > 0.0);
    if (profile->stack.name[0] != '\0') {
        use_stack(&profile->stack);
    }
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
