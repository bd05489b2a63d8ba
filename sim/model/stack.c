#include "sim/model/stack.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/model/settings.h"

// ---- settings ----

#define MOST_MIB 1048576.0
#define NAMED "as in the named stack"
// Rows whose field has the key's name.
#define STACK_ROW(name, form, ...)                                                \
    {                                                                             \
        .key = "stack." #name, form, SP_FIELD(sp_stack, name), .fallback = NAMED, \
        .text = __VA_ARGS__                                                       \
    }
#define STACK_SWITCH(name, ...) STACK_ROW(name, SP_SWITCH, __VA_ARGS__)

// Its cp_comm_type has other words for these.
static const sp_setting_word transformer_engine_names[] = {
    {"p2p", SP_CP_ATTENTION}, {"all_gather", SP_CP_BLOCKING}, {NULL, 0}};

// Its flex dispatcher has DeepEP's kernels where no other backend is stated.
static const sp_setting_word megatron_dispatcher_names[] = {{"flex", SP_DISPATCH_DEEPEP},
                                                            {NULL, 0}};

// Switches that are written where they differ from the named stack's, so that documents from before
// they were there stay as they are.
static sp_stack named_for(const sp_stack *stack)
{
    sp_stack named = {0};
    sp_stack_builtin(stack->name, &named);
    return named;
}

static bool states_launches(const void *stack)
{
    return named_for(stack).blocking_launches != ((const sp_stack *)stack)->blocking_launches;
}

static bool states_shares(const void *stack)
{
    return named_for(stack).rooted_shares != ((const sp_stack *)stack)->rooted_shares;
}

static bool states_permutation(const void *stack)
{
    return named_for(stack).memory_efficient_permutation !=
           ((const sp_stack *)stack)->memory_efficient_permutation;
}

static bool states_router(const void *stack)
{
    return named_for(stack).router_kernels != ((const sp_stack *)stack)->router_kernels;
}

static bool states_padding(const void *stack)
{
    return named_for(stack).padded_documents != ((const sp_stack *)stack)->padded_documents;
}

static void read_moment_bytes(sp_object *object, const sp_setting *row, void *owner, void *context)
{
    sp_stack *stack = owner;
    (void)row;
    (void)context;
    sp_setting_read_key(object, sp_stack_settings, "moment_bytes", stack);
    if (stack->moment_bytes == 3) {
        sp_object_error(object, "moment_bytes",
                        "expected 1 (8 bits), 2 (bf16) or 4 (fp32), as optimizers keep moments, "
                        "got 3");
    }
}

// clang-format off
static const sp_setting stack_rows[] = {
    {.key = "stack", .type = "the name of a stack or an object", .name_at = sp_stack_builtin_name,
     .fallback = "that of the profile, else \"ours\"",
     .text = "The training software: what it fuses, what it hides behind computation and what it "
             "keeps in memory. An object changes switches (stack.*) of the stack that it names."},
    {.key = "stack.name", SP_TEXT, SP_FIELD(sp_stack, name), .read_elsewhere = true,
     .name_at = sp_stack_builtin_name, .fallback = "that of the profile, else \"ours\"",
     .text = "The stack whose switches hold where they are not stated."},
    STACK_SWITCH(fused_swiglu,
                 "SwiGLU is one kernel, its backward from the first projection's output."),
    STACK_SWITCH(memory_efficient_permutation,
                 "Probabilities of the router are multiplied in with the experts' activation, so "
                 "that no outputs of experts are kept (Megatron Core from 0.13 on).",
                 .is_written = states_permutation),
    STACK_SWITCH(unfused_permutation,
                 "Rows for experts are sorted and added up by PyTorch (Megatron-LM without "
                 "moe_permute_fusion): sums read and write their results once for each expert.",
                 .if_changed = true),
    STACK_ROW(router_kernels, SP_INT(0, 1024),
              "Small kernels by which a router chooses the experts of tokens and counts their rows "
              "in a forward, beside its product: 72 of Megatron-LM, 31 with moe_router_fusion, of "
              "which flex dispatchers (deepep, hybridep) save 14; above 31 also two top-k by "
              "PyTorch; 0: none are counted.", .is_written = states_router),
    STACK_SWITCH(unfused_norms,
                 "Norms are separate element-wise kernels in fp32, which keep input and result in it."),
    STACK_SWITCH(flash_attention_2,
                 "Attention runs FlashAttention-2's kernels, as PyTorch's own attention does by "
                 "default; off: those of the profile's rates, on Hopper the twice as fast ones of "
                 "FlashAttention-3 and cuDNN. The profile states the share of its rates that they "
                 "reach (flash_attention_2).", .if_changed = true,
                 .aliases = "use_flash_attention_2"),
    STACK_SWITCH(fused_softmax_limited,
                 "Softmax of unfused attention is one kernel only up to 2048 keys (Megatron-LM of "
                 "2022)."),
    STACK_SWITCH(unfused_softmax,
                 "Softmax of unfused attention is several kernels and its result is kept in fp32."),
    STACK_SWITCH(unfused_weight_gradient,
                 "A weight gradient is a tensor of its own that is then added to its buffer."),
    STACK_SWITCH(timed_accumulation,
                 "The profile's times of products hold the addition to the gradient buffer."),
    STACK_SWITCH(in_place_lookup_gradient,
                 "Rows of the embedding's gradient are added to its buffer; otherwise a dense "
                 "table is zeroed before and added afterwards."),
    STACK_SWITCH(blocking_launches,
                 "The host waits for each kernel before it launches the next "
                 "(CUDA_LAUNCH_BLOCKING=1): its time adds to the GPU's, and nothing hides behind "
                 "computation.", .aliases = "CUDA_LAUNCH_BLOCKING", .is_written = states_launches),
    STACK_SWITCH(hide_forward_gather,
                 "The TP gather of a forward hides behind the product beside it."),
    STACK_SWITCH(hide_forward_reduce,
                 "The TP reduction of a forward hides behind the product beside it."),
    STACK_SWITCH(hide_backward_gather,
                 "The TP gather of a backward hides behind the product beside it."),
    STACK_SWITCH(hide_backward_reduce,
                 "The TP reduction of a backward hides behind the product beside it."),
    {.key = "stack.one_sided", SP_SWITCH, SP_FIELD(sp_stack, one_sided), .if_changed = true,
     .fallback = "the strategy's own, else false",
     .text = "With ZeRO 3 ranks read parameters from the ranks that hold them and add gradients "
             "there (ODC, arXiv 2601.19362): none waits for a slower one before the step ends. Off: "
             "collectives, by which ranks wait for the slowest in every layer. Without pipeline and "
             "context parallelism."},
    STACK_SWITCH(hide_gradient_reduce,
                 "Gradients are reduced over data-parallel ranks behind the last backward of each "
                 "model chunk. With ZeRO 2 and 3 in DeepSpeed (its overlap_comm) behind every "
                 "backward, where off each backward waits for all of its reductions; not stated, "
                 "on with ZeRO 3.", .aliases = "overlap_grad_reduce"),
    STACK_SWITCH(hide_gradient_all_reduce, "As hide_gradient_reduce, with ZeRO 0 alone."),
    STACK_SWITCH(hide_parameter_gather,
                 "Parameters are gathered behind the first forward of the next step.",
                 .aliases = "overlap_param_gather"),
    {.key = "stack.bucketed_tail", SP_SWITCH, SP_FIELD(sp_stack, bucketed_epilogue),
     .fallback = NAMED,
     .text = "What is left after the backward goes bucket by bucket, not at once."},
    STACK_SWITCH(host_overlap,
                 "With memory.offload_states: gradients of one matrix go to the host while its CPUs "
                 "step another and weights of a third come back. Off: all gradients, then all "
                 "steps, then all weights.", .aliases = "overlap_cpu_optimizer_d2h_h2d",
                 .if_changed = true),
    STACK_SWITCH(rooted_shares,
                 "ZeRO 1 and 2 give whole tensors to ranks: each bucket is reduced to its owner and "
                 "its parameters are broadcast by it, over rings alone.", .is_written = states_shares),
    STACK_SWITCH(sharded_step, "Each replica steps its share of the weights though ZeRO is 0."),
    STACK_SWITCH(blocking_transfers, "A pipeline rank waits for each of its sends."),
    STACK_SWITCH(whole_transfers,
                 "Each TP rank sends a whole hidden state between stages, not 1/tp of it."),
    STACK_SWITCH(fused_cross_entropy,
                 "The loss writes its gradient into the bf16 logits and keeps no fp32 softmax: "
                 "Megatron-LM's cross_entropy_fusion_impl te, Liger's, compiled ones. Its native "
                 "fusion, the only one before Transformer Engine 2.1, is off, with copied_logits."),
    STACK_SWITCH(copied_logits,
                 "The loss copies the bf16 logits to fp32 and makes the softmax beside the copy: "
                 "10 bytes a logit. Off: in place of the copy, 6 bytes. No use with "
                 "fused_cross_entropy."),
    STACK_ROW(loss_chunks, SP_INT(0, 65536),
              "Head and loss take the rows in so many chunks, each with its gradients at once "
              "(Liger's fused linear cross-entropy): no logits stay for the backward, and its "
              "products are in the forward, where the gradients count to its end; 0: all rows at "
              "once, gradients in the backward.", .if_changed = true),
    STACK_SWITCH(loss_recompute,
                 "With loss_chunks: the forward makes the loss alone, and the backward computes the "
                 "logits and the loss of each chunk again, with its gradients (checkpointed chunks: "
                 "TRL's chunked_nll, NeMo AutoModel's ChunkedCrossEntropy). Off: a chunk's "
                 "gradients are made in the forward.",
                 .if_changed = true),
    STACK_SWITCH(cut_cross_entropy,
                 "Logits are computed in tiles that never leave the chip, in the backward once more "
                 "(Apple's Cut Cross-Entropy): none is in memory or moved, for a third more of the "
                 "head's products. That it skips tiles of negligible probability is not counted.",
                 .if_changed = true),
    STACK_SWITCH(gathered_logits,
                 "Each TP rank gathers the logits of the whole vocabulary, which blocks, and "
                 "computes all of the loss: tp times the bytes of a share. Off: ranks have a share "
                 "of the logits and of the loss.", .aliases = "disable_loss_parallel",
                 .if_changed = true),
    STACK_SWITCH(dummy_weight_gradients,
                 "A bf16 tensor of each weight's shape is kept for autograd beside the gradient "
                 "buffer (Transformer Engine)."),
    STACK_SWITCH(keep_gathered_inputs,
                 "Column-parallel layers keep their input as gathered over TP."),
    STACK_SWITCH(lingering_inputs,
                 "Blocks of gathered inputs count as reserved while another stream may read them."),
    STACK_SWITCH(transposed_output, "The attention's output is kept in both orders of its axes."),
    STACK_SWITCH(attention_mask,
                 "The ends of the model get a mask, a byte for each pair of tokens."),
    STACK_SWITCH(score_buffer, "Unfused attention keeps a buffer for its scores."),
    STACK_SWITCH(gradient_buckets,
                 "Data-parallel ranks keep bf16 buckets of all gradients beside the fp32 sums. "
                 "Where it is not stated on with ZeRO 2, as in DeepSpeed, but not with FSDP and "
                 "explicit tensors."),
    STACK_SWITCH(no_master_weights,
                 "Adam steps the bf16 weights themselves (pure bf16 training); off: an fp32 copy, "
                 "4 bytes a parameter.", .if_changed = true),
    STACK_SWITCH(device_bytes, "Explicit tensors are counted as the cuda backend holds them."),
    STACK_SWITCH(cudnn_attention,
                 "cuDNN computes attention of heads of a multiple of 16 features, with its work "
                 "spaces."),
    {.key = "stack.cp_overlap", SP_ONE_OF(sp_cp_overlap_names), SP_FIELD(sp_stack, cp_overlap),
     .also = transformer_engine_names,
     .fallback = "the strategy's own or what it chooses, else as in the named stack",
     .text = "How keys and values of a CP group come together: a ring behind the attention (p2p), "
             "a gather behind the QKV projection, a blocking gather (all_gather), one for each "
             "slice, one for the whole pack, all-to-all over heads (Ulysses), all-to-all among "
             "stack.cp_a2a_ranks neighbours and rings of their peers (hierarchical), blocks on "
             "any rank whose keys and values go straight to the ranks that need them (FCP), or "
             "tasks for any rank of the whole pipeline, hidden by two half micro-batches (DistCA). "
             "With a2a, merged data-parallel ranks that are more than heads can be dealt to do as with "
             "a2a+p2p. Transformer Engine's p2p and all_gather are read, too. The SlimPack strategies choose for the "
             "job.", .aliases = "cp_comm_type"},
    {.key = "stack.cp_ring_nics", SP_INT(0, SP_MOST_RING_NICS), SP_FIELD(sp_stack, cp_ring_nics),
     .if_changed = true, .fallback = "the strategy's own, else 0",
     .text = "NICs that a hop of a ring (attention, a2a+p2p) from node to node uses at most: 1 is "
             "a plain send, more are reached over other GPUs of the node (Zeppelin's routing); 0: "
             "all that the group shares, as a collective. Where stated, hybrid-cp and bytescale "
             "exchange in rings unless stack.cp_overlap says otherwise."},
    {.key = "stack.cp_a2a_ranks", SP_INT(0, 4096), SP_FIELD(sp_stack, cp_a2a_ranks),
     .if_changed = true,
     .text = "Of a CP group with stack.cp_overlap a2a+p2p: neighbours that exchange heads, the "
             "first of Megatron-LM's hierarchical_context_parallel_sizes; the second is "
             "parallel.cp over it. Groups of merged data-parallel ranks take the greatest common "
             "divisor. 0: as many as share a node and have each whole heads and key heads.",
     .aliases = "hierarchical_context_parallel_sizes ulysses_degree cp_size_a2a"},
    {.key = "stack.cp_block_tokens", SP_INT(0, 1 << 20), SP_FIELD(sp_stack, cp_block_tokens),
     .if_changed = true,
     .text = "With stack.cp_overlap blocks or tasks: tokens of a block, into which samples are cut "
             "for the ranks of a pack; 0: 4096."},
    {.key = "stack.cp_lone_rings", SP_SWITCH, SP_FIELD(sp_stack, cp_lone_rings), .if_changed = true,
     .text = "Of a pack whose samples have their attention in zones of its ranks: a ring hides "
             "behind the attention of its own zone alone, not of all (off: Zeppelin's attention "
             "engine)."},
    STACK_SWITCH(padded_documents,
                 "Under context parallelism samples of packed rows, and slices of them, are padded "
                 "to a multiple of 2 x cp tokens, with parallel.sequence_parallel of cp x tp, too "
                 "(Transformer Engine's packed rows, THD). A pack of merged data-parallel ranks "
                 "has as many times the multiple. Samples that are joined and cut (concat), zones, "
                 "stack.cp_overlap blocks and tasks, and strategy.cp_sharding sequence, document "
                 "and adaptive need none.", .is_written = states_padding),
    {.key = "stack.dispatcher", SP_ONE_OF(sp_dispatcher_names),
     SP_FIELD(sp_stack, dispatcher), .if_changed = true,
     .also = megatron_dispatcher_names,
     .text = "How tokens get to experts on other ranks (parallel.ep): an all-to-all of each token's "
             "row for each of its experts; a gather of all tokens by all ranks that hold the "
             "experts, and a reduction back; or each token once to each node and rank that has an "
             "expert of it, by DeepEP's or HybridEP's kernels. Megatron-LM's flex is read as deepep.",
     .aliases = "moe_token_dispatcher_type token_dispatcher_type moe_flex_dispatcher_backend"},
    {.key = "stack.dispatcher_sms", SP_INT(0, 128), SP_FIELD(sp_stack, dispatcher_sms),
     .if_changed = true,
     .text = "SMs that the dispatcher's kernels hold. With few of them DeepEP's and HybridEP's kernels "
             "take longer; with more of them less is left to products that run beside exchanges "
             "(stack.expert_overlap, shared_expert_overlap). 0: 20 with deepep, 16 with hybridep, "
             "24 with others.",
     .aliases = "moe_deepep_num_sms moe_hybridep_num_sms"},
    STACK_SWITCH(shared_expert_overlap,
                 "Shared experts run beside the all-to-alls of the routed ones (dispatcher "
                 "alltoall): their first projection beside the dispatch, the second beside the "
                 "combination.", .aliases = "moe_shared_expert_overlap", .if_changed = true),
    STACK_SWITCH(expert_overlap,
                 "The forward of one micro-batch runs beside the backward of another, layer by "
                 "layer, so that exchanges of experts hide behind computation. With schedule.kind "
                 "interleaved, which then runs one forward more before the first backward, 1f1b "
                 "with parallel.pp 1, or dualpipe-v.", .aliases = "overlap_moe_expert_parallel_comm", .if_changed = true),
    STACK_SWITCH(delay_wgrad,
                 "With expert_overlap: weight gradients wait until nothing else can run, in place of "
                 "following their input gradients.", .aliases = "delay_wgrad_compute", .if_changed = true),
    STACK_ROW(gradient_reduce_dtype, SP_ONE_OF(sp_reduce_dtype_names),
              "Precision in which data-parallel ranks add up gradients.",
              .aliases = "grad_reduce_in_fp32 grad_reduce_in_bf16 "
                         "accumulate_allreduce_grads_in_fp32"),
    STACK_ROW(tensors, SP_ONE_OF(sp_tensor_names),
              "Who frees tensors: PyTorch's autograd, or hand-written passes after the last use."),
    {.key = "stack.bucket_mib", SP_REAL(0, MOST_MIB), SP_FIELD(sp_stack, bucket_bytes),
     .unit = SP_MIB, .fallback = NAMED,
     .text = "Size of a bucket of gradients, in MiB; 0: one bucket for each layer."},
    {.key = "stack.split_limit_mib", SP_REAL(0, MOST_MIB), SP_FIELD(sp_stack, split_limit_bytes),
     .unit = SP_MIB, .fallback = NAMED, .text = "PyTorch's max_split_size_mb; 0: none.",
     .aliases = "max_split_size_mb"},
    STACK_ROW(moment_bytes, SP_INT(0, 4),
              "Bytes a parameter of each of Adam's two moments, 1, 2 or 4: 1 with 8-bit Adam "
              "(bitsandbytes, torchao; without its scales, 4 bytes for each block of 256), 2 in "
              "bf16, 4 in fp32; 0: 4.", .if_changed = true, .read = read_moment_bytes),
    STACK_ROW(work_spaces, SP_INT(0, 64),
              "cuBLAS work spaces that stay in memory; 0: 3, and none with explicit tensors."),
    {.key = "stack.work_space_mib", SP_REAL(0, MOST_MIB), SP_FIELD(sp_stack, work_space_bytes),
     .unit = SP_MIB, .fallback = NAMED, .text = "Size of each of them, in MiB; 0: 32."},
};
// clang-format on

const sp_setting_table sp_stack_settings = SP_SETTING_TABLE("stack", stack_rows);

// ---- stacks ----

// Of Megatron-Core of 2025, whether TP is overlapped or not.
#define MEGATRON_CORE_2025                                                             \
    .fused_swiglu = true, .hide_gradient_reduce = true, .hide_parameter_gather = true, \
    .bucketed_epilogue = true, .gradient_reduce_dtype = SP_REDUCE_BF16,                \
    .fused_cross_entropy = true, .dummy_weight_gradients = true,                       \
    .memory_efficient_permutation = true, .router_kernels = SP_ROUTER_KERNELS,         \
    .padded_documents = true

// Hugging Face's Trainer with DeepSpeed: layers and loss as transformers writes them in PyTorch
// (models/llama/modeling_llama.py, loss/loss_utils.py), DeepSpeed's defaults
// (docs/_pages/config-json.md: reduce_bucket_size 5e8 numbers, overlap_comm on with ZeRO 3 alone),
// and its exchange of heads (sequence/layer.py, Ulysses; of rings it has none).
#define HF_TRAINER                                                                           \
    .unfused_norms = true, .unfused_weight_gradient = true,                                  \
    .gradient_reduce_dtype = SP_REDUCE_BF16, .bucketed_epilogue = true, .bucket_bytes = 1e9, \
    .copied_logits = true, .cp_overlap = SP_CP_A2A

// What it and TRL's SFTTrainer run; what spares memory by use_liger_kernel, DeepSpeed's
// offload_optimizer and the optimizer adamw_8bit.
#define HF_ABILITIES                                                                             \
    {                                                                                            \
        .schedules = "", .strategies = "padded packed concat sorted ffd bfd", .lacks_tp = true,  \
        .pads_batches = true, /* DataCollatorWithPadding, padding "longest" */                   \
            .row_setting = "max_length of TRL's SFTConfig, with packing on", .exchanges = "a2a", \
        .recomputes = "none full", .zero = "0 1 2 3", .whole_batches = true,                     \
        .spares = "loss_chunks offload_states moment_bytes",                                     \
        .source =                                                                                \
            "transformers, integrations/deepspeed.py (no pipeline); TRL, "                       \
            "trainer/sft_config.py (packing_strategy); DeepSpeed, sequence/layer.py (Ulysses)"   \
    }

// The named stacks. Megatron-DeepSpeed as of 2022: Narayanan et al., arXiv 2104.04473, section 4
// (blocking transfers, scatter and gather over TP). Megatron-Core of 2024 with TP and CP
// overlapped, as kwai/Megatron-Kwai (branch atc24ae) runs it: forward reduce-scatters block
// (core/tensor_parallel/layers.py), gradients are reduced after the backward (training.py).
// "reference" is the passes of backends/executor on the CPU, "cuda" the same on GPUs.
typedef enum framework {
    OWN, // no other's
    MEGATRON,
    BRIDGE,
    INTERNEVO,
    NANOTRON,
    DEEPSPEED,
    FSDP
} framework;

// Megatron-LM has 1F1B and interleaved 1F1B (core/pipeline_parallel/schedules.py); zero bubble is
// of forks. A step's samples must be a multiple of micro-batch size times data-parallel size
// (core/num_microbatches_calculator.py), and of interleaved schedules micro-batches one of pp
// (schedules.py), which the simulation asks for itself. Its samples are joined and cut
// (core/datasets/gpt_dataset.py), padded, or packed before training (NeMo, Bridge: packed SFT).
#define OF_MEGATRON(packs, exchanged, recomputed, modules, stages, spared)                \
    .abilities = {.schedules = "1f1b interleaved",                                        \
                  .strategies = "padded packed concat sorted ffd bfd" packs,              \
                  .exchanges = exchanged,                                                 \
                  .row_setting = "--seq-length",                                          \
                  .recomputes = recomputed,                                               \
                  .recomputes_modules = modules,                                          \
                  .zero = stages,                                                         \
                  .whole_batches = true,                                                  \
                  .spares = spared,                                                       \
                  .source = "Megatron-LM, megatron/core/pipeline_parallel/schedules.py, " \
                            "num_microbatches_calculator.py, training/arguments.py"}
// hybrid_cp_schedule.py, data_schedule.py; recompute_modules (since core 0.12); custom_fsdp (ZeRO 2
// and 3); optimizer_cpu_offload, exp_avg_dtype of the precision-aware optimizer.
#define OF_MEGATRON_2025                                                       \
    OF_MEGATRON(" dp-balanced hybrid-cp", "attention blocking a2a a2a+p2p",    \
                "none activation attention mla-up-proj full", true, "0 1 2 3", \
                "offload_states moment_bytes")

static const struct {
    framework framework;
    const char *summary; // for help
    sp_stack stack;
    sp_stack_abilities abilities;
} builtin[] = {
    {OWN, "nothing fused, nothing hidden behind computation", {.name = "ours"}, {0}},
    {DEEPSPEED,
     "Megatron-DeepSpeed of 2022: every transfer blocks (arXiv 2104.04473)",
     {.name = "megatron-deepspeed-2022",
      .fused_softmax_limited = true,
      .sharded_step = true,
      .blocking_transfers = true,
      .copied_logits = true,
      .work_spaces = 2,
      .work_space_bytes = 8 << 20},
     .abilities = {.schedules = "1f1b",
                   .strategies = "padded packed concat sorted ffd bfd",
                   .row_setting = "--seq-length",
                   .exchanges = "",
                   .recomputes = "none full",
                   .zero = "0 1 2 3",
                   .whole_batches = true,
                   .spares = "offload_states", // ZeRO-Offload
                   .source = "DeepSpeed, runtime/pipe/schedule.py (TrainSchedule), pipe/engine.py "
                             "(no ZeRO 2 and 3 with a pipeline); Megatron-DeepSpeed, "
                             "--no-pipeline-parallel"}},
    {MEGATRON,
     "Megatron-Core of 2024: TP gathers and CP hidden, forward reductions block (Megatron-Kwai)",
     {.name = "megatron-core-2024",
      .hide_forward_gather = true,
      .hide_backward_gather = true,
      .hide_backward_reduce = true,
      .cp_overlap = SP_CP_QKV,
      .copied_logits = true,
      .router_kernels = SP_ROUTER_KERNELS,
      .padded_documents = true},
     OF_MEGATRON("", "attention qkv blocking a2a a2a+p2p", "none attention full", false, "0 1",
                 "")},
    {MEGATRON,
     "Megatron-Core of 2025: fused SwiGLU, TP and DP traffic hidden, bf16 gradients",
     {.name = "megatron-core-2025",
      MEGATRON_CORE_2025,
      .hide_forward_gather = true,
      .hide_forward_reduce = true,
      .hide_backward_gather = true,
      .hide_backward_reduce = true},
     OF_MEGATRON_2025},
    // Megatron-Core of 2025 under Bridge's recipes of fine-tuning: TP is not overlapped
    // (tp_comm_overlap off in its verification cards).
    {BRIDGE,
     "Megatron-Bridge of 2025, fine-tuning: as megatron-core-2025, TP not hidden",
     {.name = "megatron-bridge-2025", MEGATRON_CORE_2025},
     OF_MEGATRON_2025},
    // Before overlap was the rule: TP and DP after one another, a rank waits for its sends.
    // MegaScale (arXiv 2402.15627, section 3 and table 3) measures its overlaps against it.
    {MEGATRON,
     "Megatron-Core of 2023: nothing hidden, transfers block (the baseline of MegaScale)",
     {.name = "megatron-core-2023",
      .blocking_transfers = true,
      .copied_logits = true,
      .router_kernels = SP_ROUTER_KERNELS},
     OF_MEGATRON("", "", "none attention full", false, "0 1", "")},
    // InternLM/InternEvo, doc/en/train_performance.md: flash attention, fused norms; gradients are
    // bf16 tensors that autograd adds up; ZeRO gives whole tensors to ranks, here of 32 million
    // numbers each, the mean of the 7B's matrices. Its loader joins samples and cuts them, pads
    // them each, or (for images) fills rows with whole ones; parallel.sequence_2D has head ranks,
    // ring ranks or both. With parallel.fsdp it runs PyTorch's FSDP, as fsdp-2024 does.
    {INTERNEVO,
     "InternEvo of 2024: bf16 gradients, ZeRO tensor by tensor, nothing hidden",
     {.name = "internevo-2024",
      .fused_swiglu = true,        // torch.jit.script (internlm/model/modules/utils.py)
      .fused_cross_entropy = true, // flash_attn's, its backward in place (internlm/model/loss.py)
      .unfused_weight_gradient = true,
      .gradient_reduce_dtype = SP_REDUCE_BF16,
      .bucketed_epilogue = true,
      .bucket_bytes = 123.0 * SP_MIB,
      .rooted_shares = true},
     .abilities = {.schedules = "1f1b interleaved zb-h1 zb-v",
                   .strategies = "padded packed concat",
                   .row_setting = "data.seq_len of InternEvo",
                   .exchanges = "attention a2a a2a+p2p",
                   .recomputes = "none full",
                   .zero = "0 1",
                   .whole_batches = true,
                   .spares = "",
                   .source = "InternEvo, internlm/initialize/initialize_trainer.py (pipeline "
                             "mode), launch.py (checkpoint, zero1), core/parallel/shard.py "
                             "(sequence_2D), core/scheduler/pipeline_scheduler.py (micro_num), "
                             "data/tokenized/packed_dataset.py"}},
    {NANOTRON,
     "nanotron of 2025, as in the Ultra-Scale Playbook",
     {.name = "nanotron-2025",
      .unfused_weight_gradient = true,
      .hide_gradient_all_reduce = true,
      .bucketed_epilogue = true,
      .cp_overlap = SP_CP_BLOCKING,
      .copied_logits = true,
      .lingering_inputs = true,
      .gradient_buckets = true},
     .abilities = {.schedules = "gpipe 1f1b",
                   .strategies = "packed concat sorted ffd bfd",
                   .row_setting = "tokens.sequence_length of nanotron",
                   .exchanges = "attention blocking",
                   .recomputes = "none full",
                   .zero = "0 1",
                   .whole_batches = true,
                   .spares = "",
                   .source = "nanotron, parallel/pipeline_parallel/engine.py (afab, 1f1b), "
                             "config/config.py (zero_stage, recompute_layer)"}},
    // Its loss is cross_entropy(pred.float(), labels): the copy, and the softmax beside it (github
    // pytorch/torchtitan, torchtitan/components/loss.py).
    {FSDP,
     "PyTorch FSDP of 2024 with bf16 gradient reduction",
     {.name = "fsdp-2024",
      .unfused_weight_gradient = true,
      .gradient_reduce_dtype = SP_REDUCE_BF16,
      .copied_logits = true},
     .abilities = {.schedules = "",
                   .strategies = "padded packed concat sorted ffd bfd kk-flops",
                   .row_setting = "max_seq_len of torchtune's tokenizer, with dataset.packed on",
                   .exchanges = "attention blocking",
                   .recomputes = "none full",
                   .zero = "2 3",
                   .whole_batches = true,
                   .spares = "loss_chunks moment_bytes", // torchtune's losses and optimizers
                   .source = "PyTorch, torch/distributed/fsdp (ShardingStrategy); data of "
                             "torchtune and verl"}},
    {DEEPSPEED,
     "Hugging Face's Trainer of 2025 with DeepSpeed: PyTorch's own kernels, bf16 gradients",
     {.name = "hf-trainer", HF_TRAINER},
     .abilities = HF_ABILITIES},
    // TRL's SFTTrainer is that Trainer; without Liger layers and loss are transformers' own. Its
    // configs default to bf16 (github huggingface/trl, pull request 3515) and to gradient
    // checkpointing of every layer (3510).
    {DEEPSPEED,
     "TRL's SFTTrainer of 2025: as hf-trainer, with all layers recomputed by default",
     {.name = "trl-2025", HF_TRAINER},
     .abilities = HF_ABILITIES},
    // torch.compile makes one kernel of each norm, of SwiGLU and of the loss; gradients are reduced
    // in fp32 (github pytorch/torchtitan, torchtitan/config: compile, mixed_precision_reduce).
    {FSDP,
     "PyTorch FSDP2 of 2025, compiled (torchtitan): fused SwiGLU and loss, fp32 gradient reduction",
     {.name = "fsdp2-2025",
      .fused_swiglu = true,
      .unfused_weight_gradient = true,
      .fused_cross_entropy = true},
     .abilities = {.schedules = "gpipe 1f1b interleaved zb-v dualpipe-v",
                   .strategies = "padded packed concat sorted ffd bfd",
                   .row_setting = "training.seq_len of torchtitan",
                   .exchanges = "attention blocking",
                   .recomputes = "none full",
                   .zero = "2 3",
                   .whole_batches = true,
                   .spares = "",
                   .source = "torchtitan, torchtitan/config (pipeline_parallel_schedule, "
                             "activation_checkpoint), torch/distributed/pipelining/schedules.py"}},
    {OWN,
     "the passes of this program's host backend, on CPU cores",
     {.name = "reference",
      .fused_swiglu = true,
      .timed_accumulation = true,
      .in_place_lookup_gradient = true,
      .cp_overlap = SP_CP_SLICES,
      .tensors = SP_TENSORS_EXPLICIT},
     {0}},
    {OWN,
     "the passes of this program's cuda backend, on GPUs",
     {.name = "cuda",
      .fused_swiglu = true,
      .timed_accumulation = true,
      .in_place_lookup_gradient = true,
      .cp_overlap = SP_CP_GATHERED,
      .tensors = SP_TENSORS_EXPLICIT,
      .device_bytes = true,
      .cudnn_attention = true},
     {0}},
};

const char *const sp_cp_overlap_names[] = {"attention", "qkv",     "blocking", "slices", "gathered",
                                           "a2a",       "a2a+p2p", "blocks",   "tasks",  NULL};
const char *const sp_dispatcher_names[] = {"alltoall", "allgather", "deepep", "hybridep", NULL};
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

static bool takes_all_rows(const sp_stack *stack)
{
    return stack->loss_chunks == 0;
}

static bool cuts_logits(const sp_stack *stack)
{
    return stack->cut_cross_entropy;
}

static bool blocks_launches(const sp_stack *stack)
{
    return stack->blocking_launches;
}

static bool overlaps_no_experts(const sp_stack *stack)
{
    return !stack->expert_overlap;
}

static bool has_no_work_spaces(const sp_stack *stack)
{
    return has_explicit_tensors(stack) && stack->work_spaces == 0;
}

static bool unfuses_softmax(const sp_stack *stack)
{
    return stack->unfused_softmax;
}

static bool keeps_gathered_inputs(const sp_stack *stack)
{
    return stack->keep_gathered_inputs;
}

// Settings that say nothing beside others. A key, when it is idle, and why.
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
    {"no_master_weights", has_explicit_tensors, EXPLICIT "its Adam steps fp32 weights"},
    {"loss_chunks", has_explicit_tensors, EXPLICIT "its loss takes all rows at once"},
    {"cut_cross_entropy", has_explicit_tensors, EXPLICIT "its loss takes all rows at once"},
#define CUT "stack.cut_cross_entropy is on, and no logits are in memory"
    {"fused_cross_entropy", cuts_logits, CUT},
    {"copied_logits", cuts_logits, CUT},
    {"loss_chunks", cuts_logits, CUT},
    {"gathered_logits", cuts_logits, CUT},
    {"loss_recompute", cuts_logits, CUT},
    {"loss_recompute", takes_all_rows,
     "stack.loss_chunks is 0, and the loss takes all rows at once"},
    {"gathered_logits", has_explicit_tensors, EXPLICIT "its ranks have shares of the logits"},
    {"moment_bytes", has_explicit_tensors, EXPLICIT "its Adam has fp32 moments"},
    {"padded_documents", has_explicit_tensors, EXPLICIT "its ranks take shares of any size"},
    {"split_limit_mib", has_explicit_tensors, EXPLICIT "its blocks are not PyTorch's"},
    {"device_bytes", has_autograd_tensors, "stack.tensors is \"autograd\""},
    {"cudnn_attention", has_autograd_tensors, "stack.tensors is \"autograd\""},
    {"cudnn_attention", counts_no_device, "stack.device_bytes is off"},
    {"copied_logits", fuses_cross_entropy,
     "stack.fused_cross_entropy is on, which makes no copy of the logits"},
    {"dummy_weight_gradients", adds_weight_gradients_apart,
     "stack.unfused_weight_gradient is on, and autograd gets the gradients themselves"},
    {"timed_accumulation", adds_weight_gradients_apart,
     "stack.unfused_weight_gradient is on, and the product holds no addition"},
    {"work_space_mib", has_no_work_spaces, EXPLICIT "stack.work_spaces is 0"},
    {"fused_softmax_limited", unfuses_softmax,
     "stack.unfused_softmax is on, for any number of keys"},
#define BLOCKING "stack.blocking_launches is on, and nothing runs beside a kernel"
    {"hide_forward_gather", blocks_launches, BLOCKING},
    {"hide_forward_reduce", blocks_launches, BLOCKING},
    {"hide_backward_gather", blocks_launches, BLOCKING},
    {"hide_backward_reduce", blocks_launches, BLOCKING},
    {"hide_gradient_reduce", blocks_launches, BLOCKING},
    {"hide_gradient_all_reduce", blocks_launches, BLOCKING},
    {"hide_parameter_gather", blocks_launches, BLOCKING},
    {"shared_expert_overlap", blocks_launches, BLOCKING},
    {"expert_overlap", blocks_launches, BLOCKING},
    {"delay_wgrad", overlaps_no_experts, "stack.expert_overlap is off"},
    {"lingering_inputs", keeps_gathered_inputs,
     "stack.keep_gathered_inputs is on, and they stay for good"},
};

enum { BUILTIN = sizeof builtin / sizeof builtin[0] };

const char *sp_stack_builtin_name(int index)
{
    return index >= 0 && index < BUILTIN ? builtin[index].stack.name : NULL;
}

const char *sp_stack_builtin_summary(int index)
{
    return index >= 0 && index < BUILTIN ? builtin[index].summary : NULL;
}

bool sp_stack_builtin(const char *name, sp_stack *stack)
{
    for (int i = 0; i < BUILTIN; i++) {
        if (sp_same_name(builtin[i].stack.name, name)) {
            *stack = builtin[i].stack;
            return true;
        }
    }
    return false;
}

bool sp_stack_has_blocks(const sp_stack *stack)
{
    return stack->cp_overlap == SP_CP_BLOCKS || stack->cp_overlap == SP_CP_TASKS;
}

void sp_stack_without_training(sp_stack *stack)
{
    stack->loss_chunks = 0;
    stack->cut_cross_entropy = false;
    stack->fused_cross_entropy = false;
    stack->router_kernels = 0;
}

int64_t sp_stack_loss_chunks(const sp_stack *stack)
{
    return stack->cut_cross_entropy ? 1 : stack->loss_chunks;
}

bool sp_stack_repeats_loss(const sp_stack *stack)
{
    return stack->cut_cross_entropy || (stack->loss_chunks > 0 && stack->loss_recompute);
}

int64_t sp_stack_block_tokens(const sp_stack *stack)
{
    return stack->cp_block_tokens > 0 ? stack->cp_block_tokens : 4096;
}

double sp_stack_gradient_bytes(const sp_stack *stack)
{
    return stack->gradient_reduce_dtype == SP_REDUCE_BF16 ? 2.0 : 4.0;
}

int64_t sp_stack_master_bytes(const sp_stack *stack)
{
    return stack->no_master_weights ? 0 : 4;
}

int64_t sp_stack_moment_bytes(const sp_stack *stack)
{
    return stack->moment_bytes > 0 ? stack->moment_bytes : 4;
}

static framework framework_of(const sp_stack *stack)
{
    for (int i = 0; i < BUILTIN; i++) {
        if (strcmp(builtin[i].stack.name, stack->name) == 0) {
            return builtin[i].framework;
        }
    }
    return OWN;
}

sp_stack_abilities sp_stack_abilities_of(const sp_stack *stack)
{
    for (int i = 0; i < BUILTIN; i++) {
        if (strcmp(builtin[i].stack.name, stack->name) == 0) {
            return builtin[i].abilities;
        }
    }
    return (sp_stack_abilities){0};
}

bool sp_stack_lists(const char *list, const char *name)
{
    size_t bytes = strlen(name);
    while (list != NULL && *list != '\0') {
        size_t word = strcspn(list, " ");
        if (word == bytes && memcmp(list, name, bytes) == 0) {
            return true;
        }
        list += word + strspn(list + word, " ");
    }
    return list == NULL;
}

bool sp_stack_is_own(const sp_stack *stack)
{
    return framework_of(stack) == OWN;
}

bool sp_stack_shares_framework(const sp_stack *stack, const sp_stack *other)
{
    framework one = framework_of(stack);
    framework two = framework_of(other);
    return one == OWN || two == OWN || one == two;
}

bool sp_stack_buckets_gradients(const sp_stack *stack, const sp_layout *layout)
{
    return layout->zero == 2 && has_autograd_tensors(stack) && !sp_stack_is_fsdp(stack);
}

bool sp_stack_runs_transformer_engine(const sp_stack *stack)
{
    return named_for(stack).padded_documents;
}

bool sp_stack_is_deepspeed(const sp_stack *stack)
{
    return framework_of(stack) == DEEPSPEED;
}

bool sp_stack_hides_gradients(const sp_stack *stack, const sp_layout *layout)
{
    return layout->zero == 3 && sp_stack_is_deepspeed(stack);
}

sp_memory_log sp_stack_memory_log(const sp_stack *stack)
{
    framework of = framework_of(stack);
    // Bridge runs Megatron's layers, and so do this program's own stacks.
    return of == MEGATRON || of == BRIDGE || of == OWN ? SP_LOGGED_BY_MEGATRON : SP_LOGGED_BY_ALL;
}

bool sp_stack_is_fsdp(const sp_stack *stack)
{
    return framework_of(stack) == FSDP;
}

bool sp_stack_lacks_adapters(const sp_stack *stack)
{
    framework of = framework_of(stack);
    return of == MEGATRON || of == INTERNEVO || of == NANOTRON ||
           strcmp(stack->name, "megatron-deepspeed-2022") == 0;
}

bool sp_stack_fine_tunes(const sp_stack *stack)
{
    framework of = framework_of(stack);
    return of == BRIDGE || (of == DEEPSPEED && !sp_stack_lacks_adapters(stack));
}

bool sp_stack_lacks_4bit(const sp_stack *stack)
{
    return sp_stack_lacks_adapters(stack) || framework_of(stack) == BRIDGE;
}

bool sp_stack_lacks_host_overlap(const sp_stack *stack)
{
    framework of = framework_of(stack);
    return of != OWN && of != BRIDGE && strcmp(stack->name, "megatron-core-2025") != 0;
}

bool sp_stack_lacks_sequence_parallel(const sp_stack *stack)
{
    return strcmp(stack->name, "megatron-deepspeed-2022") == 0;
}

bool sp_stack_recomputes(const sp_stack *stack)
{
    return strcmp(stack->name, "trl-2025") == 0;
}

bool sp_stack_passes_keys(const sp_stack *stack, const sp_layout *layout)
{
    return stack->cp_overlap == SP_CP_ATTENTION || stack->cp_overlap == SP_CP_A2A_P2P ||
           (stack->cp_overlap == SP_CP_A2A && sp_stack_head_ranks(stack, layout) < layout->cp);
}

bool sp_stack_gathers_alone(const sp_stack *stack)
{
    return stack->one_sided || stack->tensors == SP_TENSORS_EXPLICIT;
}

int sp_stack_head_ranks(const sp_stack *stack, const sp_layout *layout)
{
    bool some = stack->cp_overlap == SP_CP_A2A || stack->cp_overlap == SP_CP_A2A_P2P;
    return some ? (int)sp_gcd(layout->cp_a2a, layout->cp) : 1;
}

bool sp_stack_counts_device(const sp_stack *stack)
{
    return stack->tensors == SP_TENSORS_EXPLICIT && stack->device_bytes;
}

int sp_stack_logit_ranks(const sp_stack *stack, const sp_layout *layout)
{
    return stack->gathered_logits ? layout->tp : 1;
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
    char choice[SP_NAME_CHOICE];
    for (int i = 0; i < BUILTIN; i++) {
        names[i] = builtin[i].stack.name;
    }
    sp_object_error(object, key, "unknown stack '%.64s'%s", name,
                    sp_name_choice(name, names, BUILTIN, choice));
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
        take_builtin(&object, "name", sp_object_string(&object, "name", builtin[0].stack.name),
                     stack);
    }
    sp_settings_read(&object, sp_stack_settings, stack, NULL);
    sp_object_end(&object);
}

// Takes the setting back to off, or 0. Was it anything else?
static bool takes_back(sp_stack *stack, const char *key)
{
    const sp_setting *row = sp_setting_row(sp_stack_settings, key);
    unsigned char *bytes = (unsigned char *)stack + row->offset;
    bool stated = false;
    for (size_t b = 0; b < row->bytes; b++) {
        stated = stated || bytes[b] != 0;
        bytes[b] = 0;
    }
    return stated;
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
        if (idle[i].is_idle(stack) && takes_back(stack, idle[i].key)) {
            refuse_stated(&object, idle[i].key, idle[i].reason);
        }
    }
}

void sp_stack_clear_idle(sp_stack *stack, const sp_stack *other)
{
    for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++) {
        if (idle[i].is_idle(other)) {
            takes_back(stack, idle[i].key);
        }
    }
}

json_t *sp_stack_to_json(const sp_stack *stack)
{
    return sp_settings_write(sp_stack_settings, stack, NULL);
}
