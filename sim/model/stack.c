#include "sim/model/stack.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/model/settings.h"

// The named stacks. Megatron-DeepSpeed as of 2022: Narayanan et al., arXiv 2104.04473, section 4
// (blocking transfers, scatter and gather over TP). Megatron-Core of 2024 with TP and CP
// overlapped, as kwai/Megatron-Kwai (branch atc24ae) runs it: forward reduce-scatters block
// (core/tensor_parallel/layers.py), gradients are reduced after the backward (training.py).
// "reference" is the passes of backends/executor on the CPU, "cuda" the same on GPUs.
static const sp_stack builtin[] = {
    {.name = "ours"},
    {.name = "megatron-deepspeed-2022",
     .fused_softmax_limited = true,
     .sharded_step = true,
     .blocking_transfers = true,
     .copied_logits = true,
     .work_spaces = 2,
     .work_space_bytes = 8 << 20},
    {.name = "megatron-core-2024",
     .hide_forward_gather = true,
     .hide_backward_gather = true,
     .hide_backward_reduce = true,
     .cp_overlap = SP_CP_QKV,
     .copied_logits = true},
    {.name = "megatron-core-2025",
     .fused_swiglu = true,
     .hide_forward_gather = true,
     .hide_forward_reduce = true,
     .hide_backward_gather = true,
     .hide_backward_reduce = true,
     .hide_gradient_reduce = true,
     .hide_parameter_gather = true,
     .bucketed_epilogue = true,
     .gradient_reduce_dtype = SP_REDUCE_BF16,
     .fused_cross_entropy = true,
     .dummy_weight_gradients = true},
    {.name = "nanotron-2025",
     .unfused_weight_gradient = true,
     .hide_gradient_all_reduce = true,
     .bucketed_epilogue = true,
     .cp_overlap = SP_CP_BLOCKING,
     .copied_logits = true,
     .lingering_inputs = true,
     .gradient_buckets = true},
    // Its loss is cross_entropy(pred.float(), labels): the copy, and the softmax beside it (github
    // pytorch/torchtitan, torchtitan/components/loss.py).
    {.name = "fsdp-2024",
     .unfused_weight_gradient = true,
     .gradient_reduce_dtype = SP_REDUCE_BF16,
     .copied_logits = true},
    {.name = "reference",
     .fused_swiglu = true,
     .timed_accumulation = true,
     .in_place_lookup_gradient = true,
     .cp_overlap = SP_CP_SLICES,
     .tensors = SP_TENSORS_EXPLICIT},
    {.name = "cuda",
     .fused_swiglu = true,
     .timed_accumulation = true,
     .in_place_lookup_gradient = true,
     .cp_overlap = SP_CP_GATHERED,
     .tensors = SP_TENSORS_EXPLICIT,
     .device_bytes = true,
     .cudnn_attention = true},
};

const char *const sp_cp_overlap_names[] = {"attention", "qkv", "blocking", "slices",
                                           "gathered",  "a2a", "a2a+p2p",  NULL};
const char *const sp_reduce_dtype_names[] = {"fp32", "bf16", NULL};
const char *const sp_tensor_names[] = {"autograd", "explicit", NULL};

static bool has_explicit_tensors(const sp_stack *stack)
{
    return stack->tensors == SP_TENSORS_EXPLICIT;
}

static bool has_autograd_tensors(const sp_stack *stack)
{
    return stack->tensors == SP_TENSORS_AUTOGRAD;
}

static bool counts_no_device(const sp_stack *stack)
{
    return !stack->device_bytes;
}

static bool fuses_cross_entropy(const sp_stack *stack)
{
    return stack->fused_cross_entropy;
}

static bool adds_weight_gradients_apart(const sp_stack *stack)
{
    return stack->unfused_weight_gradient;
}

static bool unfuses_softmax(const sp_stack *stack)
{
    return stack->unfused_softmax;
}

static bool keeps_gathered_inputs(const sp_stack *stack)
{
    return stack->keep_gathered_inputs;
}

// Switches that say nothing beside others. A key, when it is idle, and why.
static const struct {
    const char *key;
    bool (*is_idle)(const sp_stack *stack);
    const char *reason;
} idle[] = {
#define EXPLICIT "stack.tensors is \"explicit\", and "
    {"fused_cross_entropy", has_explicit_tensors,
     EXPLICIT "the gradient of the logits takes their place anyway"},
    {"copied_logits", has_explicit_tensors,
     EXPLICIT "the gradient of the logits takes their place"},
    {"lingering_inputs", has_explicit_tensors, EXPLICIT "its blocks are not PyTorch's"},
    {"transposed_output", has_explicit_tensors, EXPLICIT "attention gives its output by tokens"},
    {"attention_mask", has_explicit_tensors, EXPLICIT "attention follows from the lengths"},
    {"score_buffer", has_explicit_tensors, EXPLICIT "scores go when they were read"},
    {"device_bytes", has_autograd_tensors, "stack.tensors is \"autograd\""},
    {"cudnn_attention", has_autograd_tensors, "stack.tensors is \"autograd\""},
    {"cudnn_attention", counts_no_device, "stack.device_bytes is off"},
    {"copied_logits", fuses_cross_entropy,
     "stack.fused_cross_entropy is on, which makes no copy of the logits"},
    {"dummy_weight_gradients", adds_weight_gradients_apart,
     "stack.unfused_weight_gradient is on, and autograd gets the gradients themselves"},
    {"fused_softmax_limited", unfuses_softmax,
     "stack.unfused_softmax is on, for any number of keys"},
    {"lingering_inputs", keeps_gathered_inputs,
     "stack.keep_gathered_inputs is on, and they stay for good"},
};

enum { BUILTIN = sizeof builtin / sizeof builtin[0] };

// In the order of `builtin`.
static const char *const summaries[] = {
    "nothing fused, nothing hidden behind computation",
    "Megatron-DeepSpeed of 2022: every transfer blocks (arXiv 2104.04473)",
    "Megatron-Core of 2024: TP gathers and CP hidden, forward reductions block (Megatron-Kwai)",
    "Megatron-Core of 2025: fused SwiGLU, TP and DP traffic hidden, bf16 gradients",
    "nanotron of 2025, as in the Ultra-Scale Playbook",
    "PyTorch FSDP of 2024 with bf16 gradient reduction",
    "the passes of this program's host backend, on CPU cores",
    "the passes of this program's cuda backend, on GPUs",
};
_Static_assert(sizeof summaries / sizeof summaries[0] == BUILTIN, "a line for each stack");

const char *sp_stack_builtin_name(int index)
{
    return index >= 0 && index < BUILTIN ? builtin[index].name : NULL;
}

const char *sp_stack_builtin_summary(int index)
{
    return index >= 0 && index < BUILTIN ? summaries[index] : NULL;
}

bool sp_stack_builtin(const char *name, sp_stack *stack)
{
    for (int i = 0; i < BUILTIN; i++) {
        if (sp_same_name(builtin[i].name, name)) {
            *stack = builtin[i];
            return true;
        }
    }
    return false;
}

double sp_stack_gradient_bytes(const sp_stack *stack)
{
    return stack->gradient_reduce_dtype == SP_REDUCE_BF16 ? 2.0 : 4.0;
}

bool sp_stack_buckets_gradients(const sp_stack *stack, const sp_layout *layout)
{
    return layout->zero == 2 && has_autograd_tensors(stack) && !sp_stack_is_fsdp(stack);
}

bool sp_stack_is_deepspeed(const sp_stack *stack)
{
    return strcmp(stack->name, "megatron-deepspeed-2022") == 0;
}

bool sp_stack_is_fsdp(const sp_stack *stack)
{
    return strcmp(stack->name, "fsdp-2024") == 0;
}

bool sp_stack_passes_keys(const sp_stack *stack)
{
    return stack->cp_overlap == SP_CP_ATTENTION || stack->cp_overlap == SP_CP_A2A_P2P;
}

int sp_stack_head_ranks(const sp_stack *stack, const sp_layout *layout)
{
    return stack->cp_overlap == SP_CP_A2A       ? layout->cp
           : stack->cp_overlap == SP_CP_A2A_P2P ? (int)sp_gcd(layout->cp_a2a, layout->cp)
                                                : 1;
}

bool sp_stack_counts_device(const sp_stack *stack)
{
    return stack->tensors == SP_TENSORS_EXPLICIT && stack->device_bytes;
}

bool sp_stack_keeps_bf16_logits(const sp_stack *stack)
{
    return stack->tensors == SP_TENSORS_EXPLICIT ? stack->device_bytes : stack->fused_cross_entropy;
}

static void take_builtin(sp_object *object, const char *key, const char *name, sp_stack *stack)
{
    if (sp_stack_builtin(name, stack)) {
        return;
    }
    const char *names[BUILTIN];
    char known[SP_ERROR_TEXT / 4] = "";
    for (int i = 0; i < BUILTIN; i++) {
        names[i] = builtin[i].name;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%.40s", i > 0 ? ", " : "", names[i]);
    }
    const char *near = sp_nearest_name(name, names, BUILTIN);
    if (near != NULL) {
        sp_object_error(object, key, "unknown stack '%.64s' (did you mean '%s'? known: %s)", name,
                        near, known);
    } else {
        sp_object_error(object, key, "unknown stack '%.64s' (known: %s)", name, known);
    }
}

void sp_stack_from_member(sp_object *parent, const char *key, sp_stack *stack)
{
    const json_t *value = sp_object_get(parent, key);
    if (value == NULL) {
        return;
    }
    if (json_is_string(value)) {
        take_builtin(parent, key, json_string_value(value), stack);
        return;
    }
    if (!json_is_object(value)) {
        sp_object_expected(parent, key, value, "the name of a stack or an object");
        return;
    }
    sp_object object;
    sp_object_member(parent, key, &object);
    if (sp_object_has(&object, "name") || stack->name[0] == '\0') {
        take_builtin(&object, "name", sp_object_string(&object, "name", builtin[0].name), stack);
    }
    sp_settings_read(&object, sp_stack_settings, stack, NULL);
    sp_object_end(&object);
}

static bool *switch_of(sp_stack *stack, const char *key)
{
    return (bool *)((char *)stack + sp_setting_row(sp_stack_settings, key)->offset);
}

static void refuse_stated(sp_object *object, const char *key, const char *reason)
{
    if (object->json != NULL && sp_object_has(object, key)) {
        sp_object_error(object, key, "changes nothing: %s", reason);
    }
}

void sp_stack_drop_idle(sp_object *parent, const char *key, sp_stack *stack)
{
    sp_object object = {0};
    if (json_is_object(sp_object_get(parent, key))) {
        sp_object_member(parent, key, &object);
    }
    for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++) {
        bool *on = switch_of(stack, idle[i].key);
        if (*on && idle[i].is_idle(stack)) {
            refuse_stated(&object, idle[i].key, idle[i].reason);
            *on = false;
        }
    }
    if (has_explicit_tensors(stack) && stack->split_limit_bytes > 0) {
        refuse_stated(&object, "split_limit_mib", EXPLICIT "its blocks are not PyTorch's");
        stack->split_limit_bytes = 0;
    }
}

json_t *sp_stack_to_json(const sp_stack *stack)
{
    return sp_settings_write(sp_stack_settings, stack, NULL);
}
