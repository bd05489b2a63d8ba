// Plans of small models, simulated and executed on the CPU, and the memory of both beside each
// other for the very same timeline.
#ifndef SLIMPACK_TESTS_SUPPORT_HOST_MEMORY_H
#define SLIMPACK_TESTS_SUPPORT_HOST_MEMORY_H

#include "sim/model/model.h"
#include "sim/plan/timeline.h"
#include "tests/support/host_run.h"

// Four layers; Llama style, the same with a tied table, GPT style with one, the same without.
enum { HOST_MODELS = 4 };
extern const char *const host_models[HOST_MODELS];

// One rank: its actions, and the course of memory through them.
typedef struct host_memory {
    const sp_plan *plan;
    const sp_rank_timeline *rank;
    const sp_rank_memory *measured, *predicted;
} host_memory;

typedef void (*host_memory_check)(const host_memory *memory);

// Plans eight samples of one batch with a scenario's "parallel" and more keys (' for "), under the
// executor's own stack, runs the plan and shows each rank to `check`. Returns the mean over ranks
// of the absolute relative error of the predicted peak.
double host_memory_compare(const char *model, const char *layout, const char *more,
                           host_memory_check check);

// The same with `count` random plans (host_random.h), under random recomputation and ZeRO 1, with
// or without a vocabulary that pipeline ranks share.
void host_memory_compare_random(const sp_model *model, uint64_t seed, int count, bool vocab,
                                host_memory_check check);

// 180 of them, half of a Llama and half of a GPT, each with its tables tied and apart; a quarter
// under a sanitizer.
void host_memory_compare_random_plans(host_memory_check check);

// Executes two steps of the plans of a scenario (' for ") and fails the test case unless
// parameters, gradients, optimizer states, activations, keys and values, logits and what is
// offloaded are equal to the byte after every action, and what is offloaded also when each copy
// begins and ends. Returns the most that was offloaded at once on any rank.
int64_t host_memory_must_hold(const host_device *device, const char *scenario, sp_clock clock);

// Fails the test case unless these categories are equal to the byte after every action.
void host_memory_equal_after_actions(const host_memory *memory, const sp_memory_category *category,
                                     size_t count);

// Fails the test case, naming rank and action.
void host_memory_differs(const host_memory *memory, sp_action action, const char *what,
                         int64_t measured, int64_t predicted);

#endif
