// Kernels by their names, as CUDA, ROCm and the libraries above them call them.
#include <string.h>

#include "experiments/measure/kineto.h"

const char *const sp_kernel_class_names[] = {"products",
                                             "attention forward",
                                             "attention backward",
                                             "norms",
                                             "elementwise",
                                             "optimizer",
                                             "other kernels",
                                             "memcpy",
                                             "memset",
                                             "all-reduce",
                                             "all-gather",
                                             "reduce-scatter",
                                             "all-to-all",
                                             "broadcast and reduce",
                                             "send and receive",
                                             "expert exchange",
                                             "other communication",
                                             NULL};
_Static_assert(sizeof sp_kernel_class_names / sizeof sp_kernel_class_names[0] ==
                   SP_KERNEL_CLASSES + 1,
               "a name for each class");

// A kernel is of the first row with a word that its name holds, whatever its case: "a|b" is either.
// Of a template the arguments are part of the name, so that words for what is called by many
// (elementwise functors) stand behind words for what is one thing.
typedef struct name_rule {
    sp_kernel_class of;
    const char *words;
    const char *but; // a word behind this does not count; NULL: all do
} name_rule;

static const name_rule rules[] = {
    {SP_KERNEL_EXPERT_EXCHANGE, "::ep::|deep_ep|fused_dispatch|fused_combine", NULL},
    // NCCL and RCCL, of 2.18 and before "ncclKernel_", since then "ncclDevKernel_".
    {SP_KERNEL_ALL_REDUCE,
     "kernel_allreduce|all_reduce_kernel|allreduce_fusion|multimem_all_reduce"
     "|cross_device_reduce|one_shot_all_reduce|two_shot_all_reduce",
     NULL},
    {SP_KERNEL_ALL_GATHER, "kernel_allgather|all_gather_kernel|multimem_all_gather", NULL},
    {SP_KERNEL_REDUCE_SCATTER, "kernel_reducescatter|reduce_scatter_kernel", NULL},
    {SP_KERNEL_ROOTED,
     "ncclkernel_broadcast|nccldevkernel_broadcast|ncclkernel_reduce_"
     "|nccldevkernel_reduce_",
     NULL},
    {SP_KERNEL_SEND_RECEIVE, "kernel_sendrecv|userbuffers_pushsend|userbuffers_pushrecv", NULL},
    {SP_KERNEL_OTHER_COMMUNICATION, "nccl|rccl|nvshmem|userbuffers|mscclpp", NULL},
    // CUTLASS names FlashAttention's kernels by its own templates, so that attention stands before
    // products; cuDNN's are "..._sdpa_..._fprop_..." and "..._bprop_...".
    {SP_KERNEL_ATTENTION_BACKWARD,
     "flashattnbwd|flash_bwd|fmha_bwd|fmhabwd|fmha_cutlassb|attn_bwd|attention_backward|bwd_attn"
     "|attn_backward",
     NULL},
    {SP_KERNEL_ATTENTION_FORWARD,
     "flash_fwd|flash::|fmha|flashattn|flash_attn|sdpa|attn_fwd"
     "|attention_kernel|attention_forward|fwd_attn|compute_attn",
     NULL},
    {SP_KERNEL_PRODUCT, "gemm|splitkreduce|cijk_|nvjet|gemv|matmul|cublaslt", "fb"},
    {SP_KERNEL_OPTIMIZER,
     "multi_tensor_apply|multitensorapply|adamw|adamfunctor|fused_adam|fusedadam|_lamb_", NULL},
    {SP_KERNEL_OTHER, "conv|dgrad|wgrad|winograd", NULL},
    {SP_KERNEL_ELEMENTWISE, "distribution_elementwise",
     NULL}, // random numbers, "DistributionNormal.cu"
    {SP_KERNEL_NORM, "norm|ln_fwd|ln_bwd|bn_fw|bn_bw|gammabeta|rowwisemoments", NULL},
    {SP_KERNEL_ELEMENTWISE,
     "elementwise|reduce_kernel|softmax|triton_|copy|cast|transpose|rotary|rope|swiglu|silu|gelu"
     "|relu|dropout|cross_entropy|nll_loss|embedding|index|gather|scatter|catarray|fill|permute"
     "|nchw|nhwc|quantize|expand|reduce_fused|mask|sigmoid|add_kernel|mul_kernel|cub::",
     NULL},
};

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool holds(const char *name, const char *word, size_t length, const char *but)
{
    size_t before = but != NULL ? strlen(but) : 0;
    const char *begin = name;
    for (; *name != '\0'; name++) {
        size_t i = 0;
        while (i < length && name[i] != '\0' && lower(name[i]) == word[i]) {
            i++;
        }
        bool counts = before == 0 || (size_t)(name - begin) < before ||
                      strncmp(name - before, but, before) != 0;
        if (i == length && counts) {
            return true;
        }
    }
    return false;
}

static bool holds_one_of(const char *name, const char *words, const char *but)
{
    for (;;) {
        size_t length = strcspn(words, "|");
        if (holds(name, words, length, but)) {
            return true;
        }
        if (words[length] == '\0') {
            return false;
        }
        words += length + 1;
    }
}

sp_kernel_class sp_kernel_class_of(const char *name)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (!holds_one_of(name, rules[i].words, rules[i].but)) {
            continue;
        }
        // The one word for both passes of cuDNN's and Transformer Engine's attention.
        bool backward = rules[i].of == SP_KERNEL_ATTENTION_FORWARD &&
                        holds_one_of(name, "bprop|bwd|backward", NULL);
        return backward ? SP_KERNEL_ATTENTION_BACKWARD : rules[i].of;
    }
    return SP_KERNEL_OTHER;
}
