// The settings of what runs, and where: model, cluster and software stack.
#include "sim/model/settings.h"

#include <math.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/model/cluster.h"
#include "sim/model/model.h"
#include "sim/model/stack.h"

// ---- the model ----

// 4h is the width of every GPT; gated MLPs have no common rule (sp_model_from_object).
static double four_times_hidden(const void *owner)
{
    return 4.0 * (double)((const sp_model *)owner)->hidden;
}

static double as_many_as_heads(const void *owner)
{
    return ((const sp_model *)owner)->heads;
}

static double share_of_hidden(const void *owner)
{
    const sp_model *model = owner;
    return fmax(1.0, (double)(model->hidden / model->heads));
}

static double as_bias(const void *owner)
{
    return ((const sp_model *)owner)->bias;
}

static bool has_experts(const void *owner)
{
    return ((const sp_model *)owner)->experts > 0;
}

static double any_expert(const void *owner)
{
    return has_experts(owner);
}

static void read_dropout(sp_object *section, const sp_setting *row, void *owner, void *context)
{
    (void)row;
    (void)context;
    if (sp_object_has(section, "dropout")) {
        ((sp_model *)owner)->dropout =
            sp_object_bool(section, "dropout", false) ? SP_DROPOUT_ON : SP_DROPOUT_OFF;
    }
}

static json_t *write_dropout(const void *owner, const void *context)
{
    const sp_model *model = owner;
    (void)context;
    return model->dropout != SP_DROPOUT_USUAL ? json_boolean(model->dropout == SP_DROPOUT_ON)
                                              : NULL;
}

// clang-format off
static const sp_setting model_rows[] = {
    {.key = "model", .type = "a name, a path or an object", .name_at = sp_model_builtin_name,
     .fallback = "none, it must be given unless uniform_costs stand in its place",
     .text = "The transformer: a built-in name, the path of a Hugging Face config.json or of the "
             "folder that holds one, or an object with its shape (model.*). What exists, beside "
             "the scenario or in the working directory, goes before a built-in name. Case, hyphens "
             "and underscores of a name do not count."},
    {.key = "model.name", SP_TEXT, SP_FIELD(sp_model, name), .fallback = "\"custom\"",
     .text = "What the model is called in reports."},
    {.key = "model.layers", SP_INT(1, SP_I_MAX_LAYERS), SP_FIELD(sp_model, layers),
     .required = true, .usual = 1, .fallback = "none, it must be given",
     .text = "Transformer layers.", .aliases = "num_layers num_hidden_layers n_layer n_layers"},
    {.key = "model.hidden", SP_INT(1, SP_I_MAX_HIDDEN), SP_FIELD(sp_model, hidden),
     .required = true, .usual = 1, .fallback = "none, it must be given",
     .text = "Width of the hidden states.", .aliases = "hidden_size d_model n_embd dim"},
    {.key = "model.ffn", SP_INT(1, SP_I_MAX_FFN), SP_FIELD(sp_model, ffn),
     .derive = four_times_hidden, .fallback = "4 times hidden; required with \"swiglu\"",
     .text = "Width of the MLP, of one expert where there are experts.",
     .aliases = "ffn_hidden_size intermediate_size n_inner"},
    {.key = "model.heads", SP_INT(1, SP_I_MAX_HEADS), SP_FIELD(sp_model, heads), .required = true,
     .usual = 1, .fallback = "none, it must be given", .text = "Attention heads of the queries.",
     .aliases = "num_attention_heads num_heads n_head n_heads"},
    {.key = "model.kv_heads", SP_INT(1, SP_I_MAX_HEADS), SP_FIELD(sp_model, kv_heads),
     .derive = as_many_as_heads, .fallback = "as many as heads",
     .text = "Heads of keys and values; fewer than heads is grouped-query attention.",
     .aliases = "num_key_value_heads num_query_groups n_kv_heads"},
    {.key = "model.head_dim", SP_INT(1, SP_I_MAX_HEAD_DIM), SP_FIELD(sp_model, head_dim),
     .derive = share_of_hidden, .fallback = "hidden / heads", .text = "Features of a head.",
     .aliases = "kv_channels"},
    {.key = "model.vocab", SP_INT(1, SP_I_MAX_VOCAB), SP_FIELD(sp_model, vocab), .required = true,
     .usual = 1, .fallback = "none, it must be given",
     .text = "Entries of the vocabulary. It is taken as given and never padded.",
     .aliases = "vocab_size padded_vocab_size"},
    {.key = "model.activation", SP_ONE_OF(sp_activation_names), SP_FIELD(sp_model, activation),
     .text = "Activation function of the MLP; swiglu has a third projection.",
     .aliases = "hidden_act activation_function"},
    {.key = "model.norm", SP_ONE_OF(sp_norm_names), SP_FIELD(sp_model, norm),
     .text = "Normalisation before attention, before the MLP and before the head.",
     .aliases = "normalization"},
    {.key = "model.positional", SP_ONE_OF(sp_positional_names), SP_FIELD(sp_model, positional),
     .text = "Positions: rotary embeddings, or a learned table.",
     .aliases = "position_embedding_type"},
    {.key = "model.max_positions", SP_INT(0, SP_I_MAX_POSITIONS), SP_FIELD(sp_model, max_positions),
     .if_changed = true, .fallback = "0, not counted",
     .text = "Rows of a learned table of positions, in tokens.",
     .aliases = "max_position_embeddings n_positions"},
    {.key = "model.window_tokens", SP_TOKENS(1, SP_I_MAX_POSITIONS),
     SP_FIELD(sp_model, window_tokens), .if_changed = true,
     .fallback = "none, all tokens before it",
     .text = "Tokens that a token attends to, itself among them (sliding_window of a config.json). "
             "Attention reads all tokens here: samples longer than the window are refused."},
    {.key = "model.stored_dtype", SP_ONE_OF(sp_stored_dtype_names),
     SP_FIELD(sp_model, stored_dtype), .if_changed = true,
     .text = "Type that the weights are stored in (torch_dtype of a config.json). Steps compute in "
             "BF16 all the same, with a warning."},
    {.key = "model.tied_embeddings", SP_SWITCH, SP_FIELD(sp_model, tied_embeddings),
     .text = "Embedding and LM head share one matrix.", .aliases = "tie_word_embeddings"},
    {.key = "model.bias", SP_SWITCH, SP_FIELD(sp_model, bias),
     .text = "Every linear layer has a bias.", .aliases = "add_bias_linear"},
    {.key = "model.qkv_bias", SP_SWITCH, SP_FIELD(sp_model, qkv_bias), .derive = as_bias,
     .fallback = "as model.bias", .text = "The QKV projection has a bias (Qwen2).",
     .aliases = "add_qkv_bias"},
    {.key = "model.qk_norm", SP_SWITCH, SP_FIELD(sp_model, qk_norm),
     .text = "Queries and keys of each head are normalised (Qwen3).", .aliases = "qk_layernorm"},
    {.key = "model.dropout", SP_SWITCH, .read = read_dropout, .write = write_dropout,
     .fallback = "true with \"gelu\" alone",
     .text = "Dropout of hidden states and attention, whose masks are kept for the backward.",
     .aliases = "hidden_dropout attention_dropout"},
    {.key = "model.ignored_dropout", SP_TEXT, SP_FIELD(sp_model, ignored_dropout),
     .if_changed = true, .fallback = "none",
     .text = "Key of a config.json, as attention_dropout of a Llama, that asks for dropout which "
             "is not modelled. A warning says so; nothing else changes."},
    {.key = "model.experts", SP_INT(0, SP_I_MAX_EXPERTS), SP_FIELD(sp_model, experts),
     .if_changed = true, .fallback = "0, a dense MLP",
     .text = "Experts of each MLP. They are not spread over ranks: expert parallelism is 1.",
     .aliases = "num_experts num_local_experts n_routed_experts"},
    {.key = "model.experts_per_token", SP_INT(0, SP_I_MAX_EXPERTS),
     SP_FIELD(sp_model, experts_per_token), .derive = any_expert, .is_written = has_experts,
     .fallback = "0; required with experts", .text = "Experts that each token is routed to.",
     .aliases = "moe_router_topk num_experts_per_tok topk"},
};
// clang-format on

const sp_setting_table sp_model_settings = SP_SETTING_TABLE("model", model_rows);

// ---- the cluster ----

static double nic_for_each_gpu(const void *owner)
{
    const sp_cluster *cluster = owner;
    return cluster->nics_per_node > 0 ? cluster->nics_per_node : cluster->gpus_per_node;
}

static double rail_for_each_nic(const void *owner)
{
    const sp_cluster *cluster = owner;
    return cluster->fabric.rails > 0 ? cluster->fabric.rails : cluster->nics_per_node;
}

// The built-in cluster of the name has NVLS as this one does, or there is none of the name.
static bool has_unusual_nvls(const void *owner)
{
    const sp_cluster *cluster = owner;
    sp_cluster named;
    bool usual = sp_cluster_builtin(cluster->name, &named, NULL) == SP_OK && named.nvls;
    return cluster->nvls != usual;
}

// No built-in cluster states a latency. The row's field is `s` of an sp_stated_latency.
static void read_latency(sp_object *section, const sp_setting *row, void *owner, void *context)
{
    const char *key = sp_setting_leaf(row->key);
    sp_stated_latency *latency =
        (sp_stated_latency *)((char *)owner + row->offset - offsetof(sp_stated_latency, s));
    (void)context;
    latency->given = sp_object_has(section, key);
    sp_setting_read_key(section, sp_cluster_settings, key, owner);
}

static bool states_nvlink_latency(const void *owner)
{
    return ((const sp_cluster *)owner)->nvlink_latency.given;
}

static bool states_nic_latency(const void *owner)
{
    return ((const sp_cluster *)owner)->nic_latency.given;
}

// clang-format off
static const sp_setting cluster_rows[] = {
    {.key = "cluster", .type = "a name, a path or an object", .name_at = sp_cluster_builtin_name,
     .fallback = "that of the profile, else \"h100-8\"",
     .text = "GPUs and links: a built-in name, or an object (cluster.*), or the path of a file "
             "with one, that changes the built-in cluster of its name or describes another one."},
    {.key = "cluster.name", SP_TEXT, SP_FIELD(sp_cluster, name), .read = sp_setting_read_elsewhere,
     .fallback = "\"custom\"",
     .text = "Name; that of a built-in cluster gives what the object does not state."},
    {.key = "cluster.gpu", SP_TEXT, SP_FIELD(sp_cluster, gpu), .fallback = "\"GPU\"",
     .text = "What the GPU is called in reports."},
    {.key = "cluster.profile", SP_TEXT, SP_FIELD(sp_cluster, profile), .fallback = "none",
     .text = "The profile that is taken where the scenario names none."},
    {.key = "cluster.peak_tflops", SP_REAL(1e-3, 1e9), SP_FIELD(sp_cluster, peak_flops_per_s),
     .unit = 1e12, .required = true,
     .fallback = "that of the built-in cluster, else it must be given",
     .text = "Peak of one GPU with dense bf16 products, in TFLOP/s. MFU refers to it, and the "
             "profile's rates of products and attention go with it: on a GPU of half the peak of "
             "the one that the profile is of they take twice as long."},
    {.key = "cluster.memory_gib", SP_REAL(1e-3, 1e9), SP_FIELD(sp_cluster, memory_bytes),
     .unit = SP_GIB, .required = true,
     .fallback = "that of the built-in cluster, else it must be given",
     .text = "Memory of one GPU, in GiB."},
    {.key = "cluster.hbm_gb_per_s", SP_REAL(1e-3, 1e9), SP_FIELD(sp_cluster, hbm_bytes_per_s),
     .unit = 1e9, .required = true,
     .fallback = "that of the built-in cluster, else it must be given",
     .text = "Bandwidth of that memory, in GB/s. Memory-bound work of the profile goes with it as "
             "products go with peak_tflops."},
    {.key = "cluster.gpus_per_node", SP_INT(1, SP_I_MAX_GPUS_PER_NODE),
     SP_FIELD(sp_cluster, gpus_per_node), .usual = 8,
     .fallback = "that of the built-in cluster, else 8", .text = "GPUs of a node.",
     .aliases = "num_gpus_per_node nproc_per_node"},
    {.key = "cluster.nvlink_gb_per_s", SP_REAL(1e-3, 1e9), SP_FIELD(sp_cluster, nvlink_bytes_per_s),
     .unit = 1e9, .required = true,
     .fallback = "that of the built-in cluster, else it must be given",
     .text = "NVLink bandwidth of one GPU in one direction, in GB/s. The profile's rates inside a "
             "node (NVLink's, sends between stages, collectives) go with it: on a cluster that has "
             "half of what it had where they were measured, what is beyond the latency takes twice "
             "as long."},
    {.key = "cluster.nvls", SP_SWITCH, SP_FIELD(sp_cluster, nvls), .is_written = has_unusual_nvls,
     .fallback = "that of the built-in cluster, else false",
     .text = "The NVSwitches of a node add up and copy what passes them (NVLink SHARP, NCCL's "
             "NVLS): those of H100, H800, H200, B200 and GB200, not of A100 and A800. For "
             "network.collectives nvls and auto.", .aliases = "nvlink_sharp"},
    {.key = "cluster.nics_per_node", SP_INT(1, SP_I_MAX_GPUS_PER_NODE),
     SP_FIELD(sp_cluster, nics_per_node), .derive = nic_for_each_gpu,
     .fallback = "that of the built-in cluster, else one for each GPU",
     .text = "Network cards of a node, which its GPUs share: evenly by the formulas; with flows "
             "each GPU uses one card, of which GPUs have less where the cards do not divide "
             "them."},
    {.key = "cluster.nic_gbit_per_s", SP_REAL(1e-3, 1e9), SP_FIELD(sp_cluster, nic_bytes_per_s),
     .unit = 1e9 / 8.0, .required = true,
     .fallback = "that of the built-in cluster, else it must be given",
     .text = "Line rate of one network card, in Gbit/s."},
    {.key = "cluster.host_link_gb_per_s", SP_REAL(1e-3, 1e9),
     SP_FIELD(sp_cluster, host_link_bytes_per_s), .unit = 1e9, .usual = 25,
     .fallback = "that of the built-in cluster, else 25 (PCIe 4.0 x16)",
     .text = "Copies between one GPU and its host in one direction, in GB/s; offloading uses it, "
             "and with network.detail flows what goes to other nodes."},
    {.key = "cluster.host_link_latency_us", SP_REAL(0, 1e6),
     SP_FIELD(sp_cluster, host_link_latency_s), .unit = 1e-6, .if_changed = true,
     .text = "Latency of a copy between a GPU and its host, in microseconds; with network.detail "
             "flows also of each end of a way to another node, beyond nic_latency_us."},
    {.key = "cluster.nvlink_latency_us", SP_REAL(0, 1e6), SP_FIELD(sp_cluster, nvlink_latency.s),
     .unit = 1e-6, .read = read_latency, .is_written = states_nvlink_latency,
     .fallback = "the profile's",
     .text = "Latency of NVLink, in microseconds: of a send inside a node, of a step of a ring. "
             "Collectives with times in the profile keep theirs."},
    {.key = "cluster.nic_latency_us", SP_REAL(0, 1e6), SP_FIELD(sp_cluster, nic_latency.s),
     .unit = 1e-6, .read = read_latency, .is_written = states_nic_latency,
     .fallback = "the profile's",
     .text = "Latency of a way from node to node over one leaf switch, in microseconds: of a send, "
             "of a step of a ring or a level of a tree."},
    {.key = "cluster.source", SP_TEXT, SP_FIELD(sp_cluster, source), .fallback = "none",
     .text = "Where the figures come from, for reports."},
    {.key = "cluster.fabric", .kind = SP_SETTING_OBJECT, SP_FIELD(sp_cluster, fabric.given),
     .fallback = "that of the built-in cluster",
     .text = "How the network cards of the nodes are joined (cluster.fabric.*). Transfers that "
             "share links as flows need it (network.detail), and the times of data-parallel ranks "
             "by network.collectives; other closed formulas do not."},
    {.key = "cluster.fabric.rails", SP_INT(1, SP_I_MAX_GPUS_PER_NODE),
     SP_FIELD(sp_cluster, fabric.rails), .derive = rail_for_each_nic,
     .fallback = "that of the built-in cluster, else one for each network card",
     .text = "Rails of the network: card i of every node is on rail i modulo rails, and a leaf "
             "switch joins cards of one rail. With 1 all cards of a node are at one leaf switch."},
    {.key = "cluster.fabric.nodes_per_leaf", SP_INT(0, SP_I_MAX_NODES),
     SP_FIELD(sp_cluster, fabric.nodes_per_leaf),
     .fallback = "that of the built-in cluster, else 0: all",
     .text = "Nodes that a leaf switch joins; the way to other nodes goes over the spine."},
    {.key = "cluster.fabric.oversubscription", SP_REAL(0.001, 1000),
     SP_FIELD(sp_cluster, fabric.oversubscription), .usual = 1,
     .fallback = "that of the built-in cluster, else 1",
     .text = "Rate of a leaf switch's network cards over that of its links to the spine."},
    {.key = "cluster.fabric.spine_latency_us", SP_REAL(0, 1e6),
     SP_FIELD(sp_cluster, fabric.spine_latency_s), .unit = 1e-6,
     .text = "Latency of a way over the spine beyond that of one over a leaf switch, in "
             "microseconds."},
    {.key = "cluster.fabric.nic_affinity", SP_ONE_OF(sp_nic_affinity_names),
     SP_FIELD(sp_cluster, fabric.nic_affinity),
     .text = "Which GPUs share a network card, where there are fewer cards: neighbours, or every "
             "n-th."},
    {.key = "cluster.fabric.pxn", SP_SWITCH, SP_FIELD(sp_cluster, fabric.pxn), .usual = true,
     .text = "Whether a GPU that sends to another rail does so by NVLink and the card of a GPU of "
             "its node on that rail, as NCCL's PXN does, in place of the spine."},
    {.key = "cluster.nodes", SP_INT(0, SP_I_MAX_NODES), SP_FIELD(sp_cluster, nodes),
     .is_written = sp_setting_is_never_written, .fallback = "0: as many as the ranks need",
     .text = "Nodes, as the setting nodes of the scenario."},
};
// clang-format on

const sp_setting_table sp_cluster_settings = SP_SETTING_TABLE("cluster", cluster_rows);

// ---- the software stack ----

#define MOST_MIB 1048576.0
#define NAMED "as in the named stack"
#define STACK_SWITCH(name, ...)                                                        \
    {                                                                                  \
        .key = "stack." #name, SP_SWITCH, SP_FIELD(sp_stack, name), .fallback = NAMED, \
        .text = __VA_ARGS__                                                            \
    }

// Its cp_comm_type has other words for these.
static const sp_setting_word transformer_engine_names[] = {
    {"p2p", SP_CP_ATTENTION}, {"all_gather", SP_CP_BLOCKING}, {NULL, 0}};

// clang-format off
static const sp_setting stack_rows[] = {
    {.key = "stack", .type = "the name of a stack or an object", .name_at = sp_stack_builtin_name,
     .fallback = "that of the profile, else \"ours\"",
     .text = "The training software: what it fuses, what it hides behind computation and what it "
             "keeps in memory. An object changes switches (stack.*) of the stack that it names."},
    {.key = "stack.name", SP_TEXT, SP_FIELD(sp_stack, name), .read = sp_setting_read_elsewhere,
     .name_at = sp_stack_builtin_name, .fallback = "that of the profile, else \"ours\"",
     .text = "The stack whose switches hold where they are not stated."},
    STACK_SWITCH(fused_swiglu,
                 "SwiGLU is one kernel, its backward from the first projection's output."),
    STACK_SWITCH(unfused_norms, "Norms are separate element-wise kernels in fp32."),
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
    STACK_SWITCH(hide_forward_gather,
                 "The TP gather of a forward hides behind the product beside it."),
    STACK_SWITCH(hide_forward_reduce,
                 "The TP reduction of a forward hides behind the product beside it."),
    STACK_SWITCH(hide_backward_gather,
                 "The TP gather of a backward hides behind the product beside it."),
    STACK_SWITCH(hide_backward_reduce,
                 "The TP reduction of a backward hides behind the product beside it."),
    STACK_SWITCH(hide_gradient_reduce,
                 "Gradients are reduced over data-parallel ranks behind the last backward of each "
                 "model chunk.", .aliases = "overlap_grad_reduce"),
    STACK_SWITCH(hide_gradient_all_reduce, "As hide_gradient_reduce, with ZeRO 0 alone."),
    STACK_SWITCH(hide_parameter_gather,
                 "Parameters are gathered behind the first forward of the next step.",
                 .aliases = "overlap_param_gather"),
    {.key = "stack.bucketed_tail", SP_SWITCH, SP_FIELD(sp_stack, bucketed_epilogue),
     .fallback = NAMED,
     .text = "What is left after the backward goes bucket by bucket, not at once."},
    STACK_SWITCH(sharded_step, "Each replica steps its share of the weights though ZeRO is 0."),
    STACK_SWITCH(blocking_transfers, "A pipeline rank waits for each of its sends."),
    STACK_SWITCH(whole_transfers,
                 "Each TP rank sends a whole hidden state between stages, not 1/tp of it."),
    STACK_SWITCH(fused_cross_entropy,
                 "The loss writes its gradient into the bf16 logits and keeps no fp32 softmax."),
    STACK_SWITCH(copied_logits,
                 "The loss copies the bf16 logits to fp32 and makes the softmax beside the copy: "
                 "10 bytes a logit. Off: in place of the copy, 6 bytes. No use with "
                 "fused_cross_entropy."),
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
    STACK_SWITCH(device_bytes, "Explicit tensors are counted as the cuda backend holds them."),
    STACK_SWITCH(cudnn_attention,
                 "cuDNN computes attention of heads of a multiple of 16 features, with its work "
                 "spaces."),
    {.key = "stack.cp_overlap", SP_ONE_OF(sp_cp_overlap_names), SP_FIELD(sp_stack, cp_overlap),
     .also = transformer_engine_names,
     .fallback = "the strategy's own or what it chooses, else as in the named stack",
     .text = "How keys and values of a CP group come together: a ring behind the attention (p2p), "
             "a gather behind the QKV projection, a blocking gather (all_gather), one for each "
             "slice, one for the whole pack, all-to-all over heads (Ulysses), or all-to-all among "
             "stack.cp_a2a_ranks neighbours and rings of their peers (hierarchical). Transformer "
             "Engine's p2p and all_gather are read, too. The SlimPack strategies choose for the "
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
    {.key = "stack.cp_lone_rings", SP_SWITCH, SP_FIELD(sp_stack, cp_lone_rings), .if_changed = true,
     .text = "Of a pack whose samples have their attention in zones of its ranks: a ring hides "
             "behind the attention of its own zone alone, not of all (off: Zeppelin's attention "
             "engine)."},
    {.key = "stack.gradient_reduce_dtype", SP_ONE_OF(sp_reduce_dtype_names),
     SP_FIELD(sp_stack, gradient_reduce_dtype), .fallback = NAMED,
     .text = "Precision in which data-parallel ranks add up gradients.",
     .aliases = "grad_reduce_in_fp32 grad_reduce_in_bf16"},
    {.key = "stack.tensors", SP_ONE_OF(sp_tensor_names), SP_FIELD(sp_stack, tensors),
     .fallback = NAMED,
     .text = "Who frees tensors: PyTorch's autograd, or hand-written passes after the last use."},
    {.key = "stack.bucket_mib", SP_REAL(0, MOST_MIB), SP_FIELD(sp_stack, bucket_bytes),
     .unit = SP_MIB, .fallback = NAMED,
     .text = "Size of a bucket of gradients, in MiB; 0: one bucket for each layer."},
    {.key = "stack.split_limit_mib", SP_REAL(0, MOST_MIB), SP_FIELD(sp_stack, split_limit_bytes),
     .unit = SP_MIB, .fallback = NAMED, .text = "PyTorch's max_split_size_mb; 0: none.",
     .aliases = "max_split_size_mb"},
    {.key = "stack.work_spaces", SP_INT(0, 64), SP_FIELD(sp_stack, work_spaces), .fallback = NAMED,
     .text = "cuBLAS work spaces that stay in memory; 0: 3, and none with explicit tensors."},
    {.key = "stack.work_space_mib", SP_REAL(0, MOST_MIB), SP_FIELD(sp_stack, work_space_bytes),
     .unit = SP_MIB, .fallback = NAMED, .text = "Size of each of them, in MiB; 0: 32."},
};
// clang-format on

const sp_setting_table sp_stack_settings = SP_SETTING_TABLE("stack", stack_rows);
