// The training software: what it fuses, what it overlaps and what it keeps in memory. A profile or
// a scenario names one; every prediction follows from its switches.
#ifndef SLIMPACK_SIM_MODEL_STACK_H
#define SLIMPACK_SIM_MODEL_STACK_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/json.h"
#include "sim/model/layout.h"
#include "sim/model/precision.h"

enum { SP_STACK_NAME = 96 };

// Kernels of Megatron-LM's router in a forward, as its guide for DeepSeek-V3 on GB200 counts them
// (examples/moe_recipes of the dev branch at d48bd6be: 72, 31 with the fused router, 17 with a flex
// dispatcher besides).
enum { SP_ROUTER_KERNELS = 72, SP_FUSED_ROUTER_KERNELS = 31, SP_FLEX_SAVES_KERNELS = 14 };

// sp_stack.cp_ring_nics at most, more than a node has.
#define SP_MOST_RING_NICS 64

// How keys and values of a context-parallel group come together.
typedef enum sp_cp_overlap {
    SP_CP_ATTENTION, // a ring, behind the attention on the blocks that are already there
    SP_CP_QKV,       // a gather behind the QKV projection; blocking with grouped queries
    SP_CP_BLOCKING,  // a gather before the attention
    SP_CP_SLICES,    // a blocking gather for each slice, its attention shard of keys by shard
    SP_CP_GATHERED,  // a blocking gather for each slice, one attention over all keys of the pack
    // All-to-all: each rank attends over the whole pack with its share of heads. Merged ranks that
    // are more than heads can be dealt to do as with SP_CP_A2A_P2P.
    SP_CP_A2A,
    // Hierarchical (Transformer Engine's AttnFuncWithCPAndKVP2P over two groups): all-to-all among
    // neighbours, after which a rank has their tokens with its share of heads, and rings of the
    // ranks at one place among them.
    SP_CP_A2A_P2P,
    // Blocks of stack.cp_block_tokens on any rank, level by attention work and tokens; keys and
    // values go straight to the ranks that need them, behind the attention (FCP, arXiv 2605.08524).
    SP_CP_BLOCKS,
    // Blocks of queries as tasks for any rank, level by attention alone; what a task needs moves
    // behind the work of the other half of a micro-batch (DistCA, arXiv 2510.18121).
    SP_CP_TASKS,
} sp_cp_overlap;

// How tokens get to the ranks that hold their experts (Megatron-LM,
// core/transformer/moe/token_dispatcher.py).
typedef enum sp_dispatcher {
    SP_DISPATCH_ALLTOALL,  // each token's row to each of its experts, then over the ranks of an
                           // expert
    SP_DISPATCH_ALLGATHER, // all tokens to all ranks that hold the experts together
    // Each token once to each node that has an expert of it, and there once to each rank that has
    // (DeepSeek's DeepEP; NVIDIA's HybridEP), which then sorts rows by expert.
    SP_DISPATCH_DEEPEP,
    SP_DISPATCH_HYBRIDEP,
    SP_DISPATCHERS
} sp_dispatcher;

// Does the dispatcher send a token once to each rank, however many experts of it are there?
static inline bool sp_dispatches_once(sp_dispatcher dispatcher)
{
    return dispatcher == SP_DISPATCH_DEEPEP || dispatcher == SP_DISPATCH_HYBRIDEP;
}

// Who frees tensors.
typedef enum sp_tensor_lives {
    // PyTorch: what the forward saved lives to its function in the backward, all else to the end of
    // the function that made it; cuBLAS has work spaces, the loss an fp32 copy of the logits, and
    // hidden states have buffers at the borders of stages.
    SP_TENSORS_AUTOGRAD,
    // Hand-written passes: a tensor goes when its last reader is done, the gradient of the logits
    // takes their place, one table of rotary positions serves all chunks, statistics of norms and
    // loss count (as workspace), and what is on its way between stages is nobody's
    // (explicit_unit.h).
    SP_TENSORS_EXPLICIT,
} sp_tensor_lives;

// In which precision data-parallel ranks add up gradients.
typedef enum sp_reduce_dtype { SP_REDUCE_FP32, SP_REDUCE_BF16 } sp_reduce_dtype;

// All switches off (a zeroed struct with a name) is the stack "ours".
typedef struct sp_stack {
    char name[SP_STACK_NAME];
    // Kernels.
    bool fused_swiglu; // SwiGLU in one kernel, its backward from the first projection's output
    bool memory_efficient_permutation; // experts' outputs are not kept
    bool unfused_permutation;          // rows for experts by PyTorch's index_select and scatter_add
    // By which a router chooses experts in a forward and counts their rows, beside its product;
    // flex dispatchers run SP_FLEX_SAVES_KERNELS fewer.
    int64_t router_kernels;
    bool unfused_norms;     // norms as separate element-wise kernels in fp32
    bool flash_attention_2; // attention by FlashAttention-2's kernels, where the profile has others
    // Softmax of unfused attention in one kernel only where heads * sequences of a rank are a
    // multiple of 4 and at most 2048 keys are attended to (Megatron-LM, fused_softmax.py, 2022).
    bool fused_softmax_limited;
    bool unfused_softmax; // softmax in several kernels everywhere; its result is kept in fp32
    bool unfused_weight_gradient; // the weight gradient is a tensor of its own, then added
    bool timed_accumulation;      // products' times hold the addition to the gradient buffer
    // Rows of the lookup's gradient are added to the table's gradient buffer; off: to a dense table
    // that is zeroed before and added to the buffer afterwards.
    bool in_place_lookup_gradient;

    // The host waits for each kernel before it launches the next (CUDA_LAUNCH_BLOCKING=1), so that
    // its time adds to the GPU's.
    bool blocking_launches;

    // Tensor parallelism: hidden behind the GEMM that stands next to it, else blocking.
    bool hide_forward_gather, hide_forward_reduce;
    bool hide_backward_gather, hide_backward_reduce; // all-reduces count as reductions
    sp_cp_overlap cp_overlap;
    // NICs that a hop of a ring (SP_CP_ATTENTION, SP_CP_A2A_P2P) from node to node uses at most; 0:
    // all that the group shares, as a collective does.
    int64_t cp_ring_nics;
    // Neighbours that exchange heads with SP_CP_A2A_P2P; 0: as many as a node, heads and key heads
    // allow (sp_scenario_resolve_layout).
    int64_t cp_a2a_ranks;
    int64_t cp_block_tokens; // of a block with SP_CP_BLOCKS, a task with SP_CP_TASKS; 0: 4096
    // With zones in a pack (sim/plan/packing.h) a ring hides behind the attention of its own zone
    // alone, else behind that of all zones of its ranks.
    bool cp_lone_rings;
    // Samples of packed rows, and slices of them, are padded to a multiple of two tokens for each
    // GPU of their context-parallel group, which has two chunks of each (Transformer Engine's THD:
    // github NVIDIA/TransformerEngine, issue 1368), and where sequences are split over TP ranks of
    // as many as these (lcm(2 cp, cp tp): Megatron-Bridge, skills/perf-sequence-packing).
    bool padded_documents;
    sp_dispatcher dispatcher;
    int64_t dispatcher_sms; // that its kernels hold; 0: the dispatcher's own (expert_dispatch.c)
    bool shared_expert_overlap; // shared experts run beside the all-to-alls of the routed ones
    // A forward and the backward of another micro-batch run beside each other, layer by layer: the
    // exchanges of one hide behind the computation of the other (Megatron-LM's
    // combined_1f1b.py, DualPipe).
    bool expert_overlap;
    bool delay_wgrad; // then weight gradients run when nothing else can
    // Data parallelism.
    // With ZeRO 3 a rank reads parameters from the ranks that hold them, and adds its gradients
    // there, in place of collectives of all (ODC, arXiv 2601.19362).
    bool one_sided;
    bool hide_gradient_reduce;     // by buckets, behind the last backward of each model chunk
    bool hide_gradient_all_reduce; // of ZeRO 0 alone
    sp_reduce_dtype gradient_reduce_dtype;
    bool hide_parameter_gather; // behind the first forward of the next step
    bool sharded_step;          // each replica steps its share of the weights though ZeRO is 0
    bool bucketed_epilogue; // what is left after the backward goes bucket by bucket, not at once
    double bucket_bytes;    // 0: one bucket for each layer
    // Of weights whose states are on the host each matrix is an optimizer of its own: gradients of
    // one go there while the CPUs step another and the weights of a third come back (Megatron-LM,
    // core/optimizer/cpu_offloading/hybrid_optimizer.py, overlap_cpu_optimizer_d2h_h2d).
    bool host_overlap;
    // ZeRO 1 and 2 give whole tensors to ranks: a bucket is reduced to its owner, and its
    // parameters are broadcast by it, for which NCCL has rings alone.
    bool rooted_shares;
    // Pipeline transfers.
    bool blocking_transfers; // the sending rank waits for each of its sends
    bool whole_transfers;    // each TP rank sends all of a tensor that all of them hold, not 1/tp

    // Memory.
    // The loss writes its gradient into the bf16 logits; off: it keeps an fp32 softmax, made in
    // place of an fp32 copy of them.
    bool fused_cross_entropy;
    bool copied_logits; // it makes the softmax beside that copy
    // Head and loss take the rows in so many chunks, one after another, each with its gradients at
    // once: no logits are left for the backward (fused linear cross-entropy). 0: in one, without.
    int64_t loss_chunks;
    // Then the forward makes the loss alone, and the backward runs each chunk again with its
    // gradients (activation checkpointing of a chunk): of T tokens 2 T V h FLOPs and a whole loss
    // more, and between forward and backward 2 T h bytes of the head's input, as with gradients at
    // once, whose place the input takes.
    bool loss_recompute;
    // So does Cut Cross-Entropy (arXiv 2411.09009, sections 4.1 and 4.2), whose tiles of logits
    // never leave the chip: no memory holds a logit or moves one.
    bool cut_cross_entropy;
    // Each TP rank gathers the logits of the whole vocabulary and computes all of the loss, in
    // place of its share of both (torchtitan's disable_loss_parallel: the head's output is
    // replicated).
    bool gathered_logits;
    // Where the GEMM adds a weight gradient to its buffer, autograd still gets a bf16 tensor of the
    // weight's shape: one for each shape is made in the first backward and kept (get_dummy_wgrad of
    // Transformer Engine, which Megatron-LM's core/tensor_parallel/layers.py uses for the head).
    bool dummy_weight_gradients;
    // Column-parallel layers keep their input as gathered over TP, in place of this rank's share.
    bool keep_gathered_inputs;
    // They go at once, but while another stream may still read them PyTorch does not hand out their
    // blocks again (record_stream): reserved memory counts them as kept.
    bool lingering_inputs;
    // Attention works on other axes than the layers: its output is kept in both orders (Transformer
    // Engine with FlashAttention, micro-batches of more than one sample).
    bool transposed_output;
    bool attention_mask;   // embedding and LM head get a mask, a byte for each pair of tokens
    bool score_buffer;     // unfused attention keeps a buffer as input of the GEMM for the scores
    bool gradient_buckets; // several data-parallel ranks keep bf16 buckets of all gradients beside
                           // fp32 sums (DistributedDataParallel)
    // Adam steps the bf16 weights themselves; off: fp32 copies of them.
    bool no_master_weights;
    int64_t moment_bytes;      // of a number of each of Adam's two moments; 0: 4 (fp32)
    int64_t split_limit_bytes; // PyTorch's max_split_size_mb; 0: none
    sp_tensor_lives tensors;   // explicit ones leave SwiGLU fused in memory, whatever its kernels
    // With explicit tensors: as backends/cuda holds them. Logits are bf16; rotary tables and sums
    // of gradients of keys and values are fp32; attention has a number for each query and head in
    // its backward, and where ranks share a pack the keys of all of them, gathered, with gradients.
    bool device_bytes;
    // Then: cuDNN computes attention of heads of a multiple of 16 features, for which it has work
    // spaces (backends/cuda/attention.c).
    bool cudnn_attention;
    int64_t work_spaces;      // persistent cuBLAS work spaces; 0: 3, with explicit tensors none
    int64_t work_space_bytes; // of each; 0: 32 MiB (Hopper)

    // A scenario's choices beside the named stack; no switches of it.
    sp_step_precision precision;
    // Share of the weights whose masters and moments are on the host, whose CPUs step them
    // (DeepSpeed's ZeRO-Offload, arXiv 2101.06840, and its ratio; Megatron-Core's
    // HybridDeviceOptimizer).
    double offload_states;
} sp_stack;

// For prompts and text that is generated: they have no loss, but what picks a token from the logits
// moves about as much as the forward of an eager one; and kernels of their own choose experts.
void sp_stack_without_training(sp_stack *stack);

int64_t sp_stack_block_tokens(const sp_stack *stack);

// Whether attention runs in blocks on any rank: SP_CP_BLOCKS, SP_CP_TASKS.
bool sp_stack_has_blocks(const sp_stack *stack);

// Bytes of one gradient on its way between data-parallel ranks.
double sp_stack_gradient_bytes(const sp_stack *stack);

// Bytes a parameter of fp32 weights that the optimizer steps, and of one of its two moments.
int64_t sp_stack_master_bytes(const sp_stack *stack);
int64_t sp_stack_moment_bytes(const sp_stack *stack);

// False: no stack has this name.
bool sp_stack_builtin(const char *name, sp_stack *stack);

// Name and one line for help of each built-in stack; NULL past the last.
const char *sp_stack_builtin_name(int index);
const char *sp_stack_builtin_summary(int index);

// The software behind a named stack can run this much; names are separated by spaces, NULL: all
// that there are. This program's own stacks run everything.
typedef struct sp_stack_abilities {
    const char *schedules;   // "": it has no pipeline
    const char *strategies;  // of packing, in its data pipeline
    const char *exchanges;   // of keys and values; "": it has no context parallelism
    const char *recomputes;  // modes
    bool recomputes_modules; // sets of modules beside them
    const char *zero;        // stages
    bool lacks_tp;           // it has no tensor parallelism
    bool pads_batches;       // its data collator pads each micro-batch to its longest sample
    const char *row_setting; // what it calls the length of a row; NULL: not known
    bool whole_batches;      // samples of a step divide by rows of a micro-batch times dp
    const char *spares; // switches that spare memory: loss_chunks, offload_states, moment_bytes
    const char *source; // NULL: its own stacks
} sp_stack_abilities;

// Those of the stack with this one's name.
sp_stack_abilities sp_stack_abilities_of(const sp_stack *stack);

// Is a name one of a list of abilities?
bool sp_stack_lists(const char *list, const char *name);

// NULL-terminated, in the order of the enums.
extern const char *const sp_cp_overlap_names[];
extern const char *const sp_dispatcher_names[];
extern const char *const sp_reduce_dtype_names[];
extern const char *const sp_tensor_names[];

// Chunks of rows that head and loss take; 0: all rows at once, and their gradients in the backward.
int64_t sp_stack_loss_chunks(const sp_stack *stack);
// Do they run again in the backward?
bool sp_stack_repeats_loss(const sp_stack *stack);

// Are tensors explicit and counted as a GPU holds them?
bool sp_stack_counts_device(const sp_stack *stack);

// Has its framework buckets of all gradients with the layout's ZeRO, whatever the named stack says?
// DeepSpeed's, by whose name ZeRO 2 goes: gradients are bf16 tensors of the whole model until they
// are reduced. FSDP reduces and frees those of a unit within its backward, and so do explicit
// tensors.
bool sp_stack_buckets_gradients(const sp_stack *stack, const sp_layout *layout);
bool sp_stack_is_deepspeed(const sp_stack *stack);

// Attention is Transformer Engine's, which cuDNN may compute: stacks of Megatron-LM since 2024.
bool sp_stack_runs_transformer_engine(const sp_stack *stack);
// Does it hide reductions of gradients with the layout's ZeRO unless a switch says otherwise?
// DeepSpeed's overlap_comm is on with ZeRO 3 and off below (deepspeed/runtime/zero/config.py).
bool sp_stack_hides_gradients(const sp_stack *stack, const sp_layout *layout);

// Whose logs of memory say how surely a step of the stack fits (experiments/evidence.sh).
typedef enum sp_memory_log {
    SP_LOGGED_BY_ALL,
    SP_LOGGED_BY_MEGATRON,
    SP_MEMORY_LOGS
} sp_memory_log;

sp_memory_log sp_stack_memory_log(const sp_stack *stack);
bool sp_stack_is_fsdp(const sp_stack *stack);
// Is it of a framework that is not known to train adapters? Those of Hugging Face, Megatron-Bridge
// and FSDP (torchtune, PEFT) do, and none is named by this program's own stacks.
bool sp_stack_lacks_adapters(const sp_stack *stack);
// Is it of a framework, or its recipes, that fine-tunes: Hugging Face's Trainer, TRL's, or
// Megatron-Bridge's recipes of fine-tuning?
bool sp_stack_fine_tunes(const sp_stack *stack);
// Is it of a framework without frozen weights in 4 bits beside them? Hugging Face's (PEFT with
// bitsandbytes, with DeepSpeed or FSDP) has them; Megatron-Bridge has adapters beside bf16 alone.
bool sp_stack_lacks_4bit(const sp_stack *stack);
// Is it of a framework without host_overlap? Megatron-Core of 2025 has it, and with it
// Megatron-Bridge.
bool sp_stack_lacks_host_overlap(const sp_stack *stack);

// Is it older than sequence parallelism (Korthikanti et al., arXiv 2205.05198, May 2022)?
bool sp_stack_lacks_sequence_parallel(const sp_stack *stack);

// Does it recompute whole layers where a scenario does not say what (memory.recompute)?
bool sp_stack_recomputes(const sp_stack *stack);

// Is it this program's own, of no training framework (or without a name)?
bool sp_stack_is_own(const sp_stack *stack);
// Are both of one framework, or one of them of none (this program's own stacks, and no name)?
bool sp_stack_shares_framework(const sp_stack *stack, const sp_stack *other);

// Do keys and values pass the ranks of a CP group, layout->cp of them, in turn, behind the
// attention?
bool sp_stack_passes_keys(const sp_stack *stack, const sp_layout *layout);

// With ZeRO 3, does a rank get parameters without the ranks that hold them taking part? With
// one_sided, and so do the executors, which read the memory of other ranks.
bool sp_stack_gathers_alone(const sp_stack *stack);

// Ranks of a CP group, all of layout->cp, among which heads are exchanged by all-to-all: all of
// them, some neighbours, or 1. Their peers in the group, cp over that, exchange keys and values.
int sp_stack_head_ranks(const sp_stack *stack, const sp_layout *layout);

// Ranks of TP whose logits one rank has: all of them with gathered_logits, else its own alone.
int sp_stack_logit_ranks(const sp_stack *stack, const sp_layout *layout);

// Is what the loss keeps for the backward the bf16 logits' own memory, not an fp32 softmax?
bool sp_stack_keeps_bf16_logits(const sp_stack *stack);

// Reads `key` of `parent`: a name, or an object with a name (default: what *stack holds) and with
// switches (settings.c); absent: *stack stays. Errors are collected in parent->err.
void sp_stack_from_member(sp_object *parent, const char *key, sp_stack *stack);

// Switches that say nothing beside others: an error where `key` of `parent` states one that is on,
// off where the named stack brings it.
void sp_stack_drop_idle(sp_object *parent, const char *key, sp_stack *stack);

// Takes from *stack what says nothing beside the settings of another stack.
void sp_stack_clear_idle(sp_stack *stack, const sp_stack *other);

// A stack as a document, every switch stated.
json_t *sp_stack_to_json(const sp_stack *stack);

#endif
