#include "sim/scenario/settings.h"

#include <stdio.h>
#include <string.h>

#include "sim/inference/decode.h"
#include "sim/scenario/scenario_private.h"

static const char *const switch_names[] = {"false", "true", NULL};
static const char *const spread_names[] = {"auto", "nanotron", NULL};

static const char *distribution_name(int index)
{
    return index < sp_distribution_count() ? sp_distribution_at(index)->name : NULL;
}

// clang-format off
#define TEXT_OF(number) TEXT(number)
#define TEXT(number) #number
#define COUNT(least, most) .type = "an integer from " least " to " most
#define TOKENS(least, most) COUNT(least, most), .tokens = true
#define REAL(least, most) .type = "a number from " least " to " most
#define RATE REAL("0.001", "1e+09")
#define SWITCH .type = "true or false", .names = switch_names
#define ONE_OF(list) .names = list
#define LENGTH "2147483647"

#define STACK_SWITCH(name, ...) \
    {.key = "stack." name, SWITCH, .fallback = "as in the named stack", .text = __VA_ARGS__}

static const sp_setting settings[] = {
    {.key = "schema", .type = "\"slimpack/scenario/1\"", .fallback = "\"slimpack/scenario/1\"",
     .text = "Kind and version of the document."},
    {.key = "chosen", .type = "an object", .fallback = "{}",
     .text = "In a resolved document the settings that the scenario does not state, by key: the value "
             "that follows or that a strategy chose, and what was stated in its place. A document "
             "that still has that value is read as one that does not state it; a plan keeps it."},

    {.key = "nodes", COUNT("1", "10000000"),
     .fallback = "as many as the ranks need, the last one part filled",
     .text = "Nodes of the cluster. The ranks must fill all their GPUs; parallel.dp follows from "
             "that where it is not stated.",
     .aliases = "num_nodes nnodes"},
    {.key = "profile", .type = "a name or a path", .fallback = "that of the cluster",
     .text = "Measured or fitted rates of the GPU and its links, by which actions are priced; "
             "`slimpack help profiles` lists them. A stated one is used whatever the stack is; that of "
             "a cluster gives way to the one it names for a stated stack (for_stack)."},

    // ---- what runs, and where ----
    {.key = "model", .type = "a name, a path or an object", .name_at = sp_model_builtin_name,
     .fallback = "none, it must be given unless uniform_costs stand in its place",
     .text = "The transformer: a built-in name, the path of a Hugging Face config.json or of the "
             "folder that holds one, or an object with its shape (model.*). What exists, beside the "
             "scenario or in the working directory, goes before a built-in name. Case, hyphens and underscores of a name do not count."},
    {.key = "model.name", .type = "a string", .fallback = "\"custom\"",
     .text = "What the model is called in reports."},
    {.key = "model.layers", COUNT("1", "4096"), .fallback = "none, it must be given",
     .text = "Transformer layers.", .aliases = "num_layers num_hidden_layers n_layer n_layers"},
    {.key = "model.hidden", COUNT("1", "262144"), .fallback = "none, it must be given",
     .text = "Width of the hidden states.", .aliases = "hidden_size d_model n_embd dim"},
    {.key = "model.ffn", COUNT("1", "2097152"),
     .fallback = "4 times hidden; required with \"swiglu\"",
     .text = "Width of the MLP, of one expert where there are experts.",
     .aliases = "ffn_hidden_size intermediate_size n_inner"},
    {.key = "model.heads", COUNT("1", "4096"), .fallback = "none, it must be given",
     .text = "Attention heads of the queries.",
     .aliases = "num_attention_heads num_heads n_head n_heads"},
    {.key = "model.kv_heads", COUNT("1", "4096"), .fallback = "as many as heads",
     .text = "Heads of keys and values; fewer than heads is grouped-query attention.",
     .aliases = "num_key_value_heads num_query_groups n_kv_heads"},
    {.key = "model.head_dim", COUNT("1", "4096"), .fallback = "hidden / heads",
     .text = "Features of a head.", .aliases = "kv_channels"},
    {.key = "model.vocab", COUNT("1", "134217728"), .fallback = "none, it must be given",
     .text = "Entries of the vocabulary. It is taken as given and never padded.",
     .aliases = "vocab_size padded_vocab_size"},
    {.key = "model.activation", ONE_OF(sp_activation_names), .fallback = "\"swiglu\"",
     .text = "Activation function of the MLP; swiglu has a third projection.",
     .aliases = "hidden_act activation_function"},
    {.key = "model.experts", COUNT("0", "1024"), .fallback = "0, a dense MLP",
     .text = "Experts of each MLP. They are not spread over ranks: expert parallelism is 1.",
     .aliases = "num_experts num_local_experts n_routed_experts"},
    {.key = "model.experts_per_token", COUNT("0", "1024"),
     .fallback = "0; required with experts",
     .text = "Experts that each token is routed to.",
     .aliases = "moe_router_topk num_experts_per_tok topk"},
    {.key = "model.norm", ONE_OF(sp_norm_names), .fallback = "\"rmsnorm\"",
     .text = "Normalisation before attention, before the MLP and before the head.",
     .aliases = "normalization"},
    {.key = "model.positional", ONE_OF(sp_positional_names), .fallback = "\"rope\"",
     .text = "Positions: rotary embeddings, or a learned table.",
     .aliases = "position_embedding_type"},
    {.key = "model.max_positions", COUNT("0", "134217728"), .fallback = "0, not counted",
     .text = "Rows of a learned table of positions, in tokens.",
     .aliases = "max_position_embeddings n_positions"},
    {.key = "model.window_tokens", TOKENS("1", "134217728"), .fallback = "none, all tokens before it",
     .text = "Tokens that a token attends to, itself among them (sliding_window of a config.json). "
             "Attention reads all tokens here: samples longer than the window are refused."},
    {.key = "model.stored_dtype", ONE_OF(sp_stored_dtype_names), .fallback = "\"bfloat16\"",
     .text = "Type that the weights are stored in (torch_dtype of a config.json). Steps compute in "
             "BF16 all the same, with a warning."},
    {.key = "model.tied_embeddings", SWITCH, .fallback = "false",
     .text = "Embedding and LM head share one matrix.",
     .aliases = "tie_word_embeddings"},
    {.key = "model.bias", SWITCH, .fallback = "false", .text = "Every linear layer has a bias.",
     .aliases = "add_bias_linear"},
    {.key = "model.qkv_bias", SWITCH, .fallback = "as model.bias",
     .text = "The QKV projection has a bias (Qwen2).", .aliases = "add_qkv_bias"},
    {.key = "model.qk_norm", SWITCH, .fallback = "false",
     .text = "Queries and keys of each head are normalised (Qwen3).",
     .aliases = "qk_layernorm"},
    {.key = "model.dropout", SWITCH, .fallback = "true with \"gelu\" alone",
     .text = "Dropout of hidden states and attention, whose masks are kept for the backward.",
     .aliases = "hidden_dropout attention_dropout"},
    {.key = "model.ignored_dropout", .type = "a string", .fallback = "none",
     .text = "Key of a config.json, as attention_dropout of a Llama, that asks for dropout which is not "
             "modelled. A warning says so; nothing else changes."},

    {.key = "uniform_costs", .type = "an object", .fallback = "absent",
     .text = "Times of a micro-batch on a rank's stage, in place of model, cluster and profile: "
             "schedules are then compared on equal work."},
    {.key = "uniform_costs.f_ms", REAL("1e-06", "1e+06"), .fallback = "none, it must be given",
     .text = "Milliseconds of a forward."},
    {.key = "uniform_costs.b_ms", REAL("0", "1e+06"), .fallback = "none, it must be given",
     .text = "Milliseconds of the part of a backward that makes the gradient of the input."},
    {.key = "uniform_costs.w_ms", REAL("0", "1e+06"), .fallback = "0",
     .text = "Milliseconds of the part of a backward that makes the gradients of the weights. "
             "Schedules that do not split the backward run b_ms and w_ms as one."},
    {.key = "uniform_costs.p2p_ms", REAL("0", "1e+06"), .fallback = "0",
     .text = "Milliseconds from one pipeline rank to another. The sender does not wait."},
    {.key = "uniform_costs.per_chunk", SWITCH, .fallback = "false: they hold for a rank's stage",
     .text = "f_ms, b_ms and w_ms hold for one model chunk."},
    {.key = "uniform_costs.attention_share", REAL("0", "1"), .fallback = "0",
     .text = "Share of the times that is attention, which grows with the position of a slice in its row."},
    {.key = "uniform_costs.memory_units", .type = "an object",
     .fallback = "f 1, b -1, w 0; with a split backward f 1, b 0, w -1",
     .text = "Activation units that the actions of a micro-batch take and free. They add up to 0."},
    {.key = "uniform_costs.memory_units.f", REAL("-1e+06", "1e+06"),
     .fallback = "none, it must be given", .text = "Units more at the start of a forward."},
    {.key = "uniform_costs.memory_units.b", REAL("-1e+06", "1e+06"),
     .fallback = "none, it must be given",
     .text = "Units more at the end of a backward, or of its part for the input."},
    {.key = "uniform_costs.memory_units.w", REAL("-1e+06", "1e+06"),
     .fallback = "none, it must be given",
     .text = "Units more at the end of the part for the weights."},

    {.key = "cluster", .type = "a name, a path or an object", .name_at = sp_cluster_builtin_name,
     .fallback = "that of the profile, else \"h100-8\"",
     .text = "GPUs and links: a built-in name, or an object (cluster.*), or the path of a file with "
             "one, that changes the built-in cluster of its name or describes another one."},
    {.key = "cluster.name", .type = "a string", .fallback = "\"custom\"",
     .text = "Name; that of a built-in cluster gives what the object does not state."},
    {.key = "cluster.gpu", .type = "a string", .fallback = "\"GPU\"",
     .text = "What the GPU is called in reports."},
    {.key = "cluster.profile", .type = "a string", .fallback = "none",
     .text = "The profile that is taken where the scenario names none."},
    {.key = "cluster.source", .type = "a string", .fallback = "none",
     .text = "Where the figures come from, for reports."},
    {.key = "cluster.peak_tflops", RATE,
     .fallback = "that of the built-in cluster, else it must be given",
     .text = "Peak of one GPU with dense bf16 products, in TFLOP/s. MFU refers to it, and the profile's "
             "rates of products and attention go with it: on a GPU of half the peak of the one that "
             "the profile is of they take twice as long."},
    {.key = "cluster.memory_gib", RATE,
     .fallback = "that of the built-in cluster, else it must be given",
     .text = "Memory of one GPU, in GiB."},
    {.key = "cluster.hbm_gb_per_s", RATE,
     .fallback = "that of the built-in cluster, else it must be given",
     .text = "Bandwidth of that memory, in GB/s. Memory-bound work of the profile goes with it as "
             "products go with peak_tflops."},
    {.key = "cluster.nvlink_gb_per_s", RATE,
     .fallback = "that of the built-in cluster, else it must be given",
     .text = "NVLink bandwidth of one GPU in one direction, in GB/s. The profile's rates inside a node "
             "(NVLink's, sends between stages, collectives) go with it: on a cluster that has half "
             "of what it had where they were measured, what is beyond the latency takes twice as "
             "long."},
    {.key = "cluster.nvls", SWITCH, .fallback = "that of the built-in cluster, else false",
     .text = "The NVSwitches of a node add up and copy what passes them (NVLink SHARP, NCCL's NVLS): "
             "those of H100, H800, H200, B200 and GB200, not of A100 and A800. For "
             "network.collectives nvls and auto.",
     .aliases = "nvlink_sharp"},
    {.key = "cluster.nic_gbit_per_s", RATE,
     .fallback = "that of the built-in cluster, else it must be given",
     .text = "Line rate of one network card, in Gbit/s."},
    {.key = "cluster.host_link_gb_per_s", RATE,
     .fallback = "that of the built-in cluster, else 25 (PCIe 4.0 x16)",
     .text = "Copies between one GPU and its host in one direction, in GB/s; offloading uses it, "
             "and with network.detail flows what goes to other nodes."},
    {.key = "cluster.nvlink_latency_us", REAL("0", "1e+06"), .fallback = "the profile's",
     .text = "Latency of NVLink, in microseconds: of a send inside a node, of a step of a ring. "
             "Collectives with times in the profile keep theirs."},
    {.key = "cluster.nic_latency_us", REAL("0", "1e+06"), .fallback = "the profile's",
     .text = "Latency of a way from node to node over one leaf switch, in microseconds: of a send, "
             "of a step of a ring or a level of a tree."},
    {.key = "cluster.host_link_latency_us", REAL("0", "1e+06"), .fallback = "0",
     .text = "Latency of a copy between a GPU and its host, in microseconds; with network.detail "
             "flows also of each end of a way to another node, beyond nic_latency_us."},
    {.key = "cluster.gpus_per_node", COUNT("1", "1024"),
     .fallback = "that of the built-in cluster, else 8", .text = "GPUs of a node.",
     .aliases = "num_gpus_per_node nproc_per_node"},
    {.key = "cluster.nics_per_node", COUNT("1", "1024"),
     .fallback = "that of the built-in cluster, else one for each GPU",
     .text = "Network cards of a node, which its GPUs share: evenly by the formulas; with flows each GPU "
             "uses one card, of which GPUs have less where the cards do not divide them."},
    {.key = "cluster.fabric", .type = "an object", .fallback = "that of the built-in cluster",
     .text = "How the network cards of the nodes are joined (cluster.fabric.*). Transfers that share "
             "links as flows need it (network.detail), and the times of data-parallel ranks by "
             "network.collectives; other closed formulas do not."},
    {.key = "cluster.fabric.rails", COUNT("1", "1024"),
     .fallback = "that of the built-in cluster, else one for each network card",
     .text = "Rails of the network: card i of every node is on rail i modulo rails, and a leaf switch "
             "joins cards of one rail. With 1 all cards of a node are at one leaf switch."},
    {.key = "cluster.fabric.nodes_per_leaf", COUNT("0", "16777216"),
     .fallback = "that of the built-in cluster, else 0: all",
     .text = "Nodes that a leaf switch joins; the way to other nodes goes over the spine."},
    {.key = "cluster.fabric.oversubscription", REAL("0.001", "1000"),
     .fallback = "that of the built-in cluster, else 1",
     .text = "Rate of a leaf switch's network cards over that of its links to the spine."},
    {.key = "cluster.fabric.spine_latency_us", REAL("0", "1e+06"), .fallback = "0",
     .text = "Latency of a way over the spine beyond that of one over a leaf switch, in microseconds."},
    {.key = "cluster.fabric.nic_affinity", ONE_OF(sp_nic_affinity_names), .fallback = "\"block\"",
     .text = "Which GPUs share a network card, where there are fewer cards: neighbours, or every n-th."},
    {.key = "cluster.fabric.pxn", SWITCH, .fallback = "true",
     .text = "Whether a GPU that sends to another rail does so by NVLink and the card of a GPU of its "
             "node on that rail, as NCCL's PXN does, in place of the spine."},
    {.key = "cluster.nodes", COUNT("0", "16777216"), .fallback = "0: as many as the ranks need",
     .text = "Nodes, as the setting nodes of the scenario."},

    // ---- the software ----
    {.key = "stack", .type = "the name of a stack or an object", .name_at = sp_stack_builtin_name,
     .fallback = "that of the profile, else \"ours\"",
     .text = "The training software: what it fuses, what it hides behind computation and what it "
             "keeps in memory. An object changes switches (stack.*) of the stack that it names."},
    {.key = "stack.name", .type = "a string", .name_at = sp_stack_builtin_name,
     .fallback = "that of the profile, else \"ours\"",
     .text = "The stack whose switches hold where they are not stated."},
    STACK_SWITCH("fused_swiglu", "SwiGLU is one kernel, its backward from the first projection's "
                                 "output."),
    STACK_SWITCH("unfused_norms", "Norms are separate element-wise kernels in fp32."),
    STACK_SWITCH("fused_softmax_limited",
                 "Softmax of unfused attention is one kernel only up to 2048 keys (Megatron-LM of "
                 "2022)."),
    STACK_SWITCH("unfused_softmax",
                 "Softmax of unfused attention is several kernels and its result is kept in fp32."),
    STACK_SWITCH("unfused_weight_gradient",
                 "A weight gradient is a tensor of its own that is then added to its buffer."),
    STACK_SWITCH("timed_accumulation",
                 "The profile's times of products hold the addition to the gradient buffer."),
    STACK_SWITCH("in_place_lookup_gradient",
                 "Rows of the embedding's gradient are added to its buffer; otherwise a dense table "
                 "is zeroed before and added afterwards."),
    STACK_SWITCH("hide_forward_gather",
                 "The TP gather of a forward hides behind the product beside it."),
    STACK_SWITCH("hide_forward_reduce",
                 "The TP reduction of a forward hides behind the product beside it."),
    STACK_SWITCH("hide_backward_gather",
                 "The TP gather of a backward hides behind the product beside it."),
    STACK_SWITCH("hide_backward_reduce",
                 "The TP reduction of a backward hides behind the product beside it."),
    STACK_SWITCH("hide_gradient_reduce",
                 "Gradients are reduced over data-parallel ranks behind the last backward of each "
                 "model chunk.", .aliases = "overlap_grad_reduce"),
    STACK_SWITCH("hide_gradient_all_reduce",
                 "As hide_gradient_reduce, with ZeRO 0 alone."),
    STACK_SWITCH("hide_parameter_gather",
                 "Parameters are gathered behind the first forward of the next step.",
                 .aliases = "overlap_param_gather"),
    STACK_SWITCH("bucketed_tail",
                 "What is left after the backward goes bucket by bucket, not at once."),
    STACK_SWITCH("sharded_step",
                 "Each replica steps its share of the weights though ZeRO is 0."),
    STACK_SWITCH("blocking_transfers", "A pipeline rank waits for each of its sends."),
    STACK_SWITCH("whole_transfers",
                 "Each TP rank sends a whole hidden state between stages, not 1/tp of it."),
    STACK_SWITCH("fused_cross_entropy",
                 "The loss writes its gradient into the bf16 logits and keeps no fp32 softmax."),
    STACK_SWITCH("copied_logits",
                 "The loss copies the bf16 logits to fp32 and makes the softmax beside the copy: 10 "
                 "bytes a logit. Off: in place of the copy, 6 bytes. No use with "
                 "fused_cross_entropy."),
    STACK_SWITCH("dummy_weight_gradients",
                 "A bf16 tensor of each weight's shape is kept for autograd beside the gradient "
                 "buffer (Transformer Engine)."),
    STACK_SWITCH("keep_gathered_inputs",
                 "Column-parallel layers keep their input as gathered over TP."),
    STACK_SWITCH("lingering_inputs",
                 "Blocks of gathered inputs count as reserved while another stream may read them."),
    STACK_SWITCH("transposed_output",
                 "The attention's output is kept in both orders of its axes."),
    STACK_SWITCH("attention_mask", "The ends of the model get a mask, a byte for each pair of tokens."),
    STACK_SWITCH("score_buffer", "Unfused attention keeps a buffer for its scores."),
    STACK_SWITCH("gradient_buckets",
                 "Data-parallel ranks keep bf16 buckets of all gradients beside the fp32 sums. Where "
                 "it is not stated on with ZeRO 2, as in DeepSpeed, but not with FSDP and explicit "
                 "tensors."),
    STACK_SWITCH("device_bytes",
                 "Explicit tensors are counted as the cuda backend holds them."),
    STACK_SWITCH("cudnn_attention",
                 "cuDNN computes attention of heads of a multiple of 16 features, with its work "
                 "spaces."),
    {.key = "stack.cp_overlap", ONE_OF(sp_cp_overlap_names),
     .fallback = "the strategy's own or what it chooses, else as in the named stack",
     .text = "How keys and values of a CP group come together: a ring behind the attention (p2p), a "
             "gather behind the QKV projection, a blocking gather (all_gather), one for each slice, "
             "one for the whole pack, all-to-all over heads (Ulysses), or all-to-all among "
             "stack.cp_a2a_ranks neighbours and rings of their peers (hierarchical). Transformer "
             "Engine's p2p and all_gather are read, too. The SlimPack strategies choose for the job.",
     .aliases = "cp_comm_type"},
    {.key = "stack.cp_a2a_ranks", COUNT("0", "4096"),
     .fallback = "0",
     .text = "Of a CP group with stack.cp_overlap a2a+p2p: neighbours that exchange heads, the first "
             "of Megatron-LM's hierarchical_context_parallel_sizes; the second is parallel.cp over "
             "it. Groups of merged data-parallel ranks take the greatest common divisor. 0: as many "
             "as share a node and have each whole heads and key heads.",
     .aliases = "hierarchical_context_parallel_sizes ulysses_degree cp_size_a2a"},
    {.key = "stack.cp_ring_nics", COUNT("0", TEXT_OF(SP_MOST_RING_NICS)),
     .fallback = "the strategy's own, else 0",
     .text = "NICs that a hop of a ring (attention, a2a+p2p) from node to node uses at most: 1 is a "
             "plain send, more are reached over other GPUs of the node (Zeppelin's routing); 0: all "
             "that the group shares, as a collective. Where stated, hybrid-cp and bytescale "
             "exchange in rings unless stack.cp_overlap says otherwise."},
    {.key = "stack.cp_lone_rings", SWITCH, .fallback = "false",
     .text = "Of a pack whose samples have their attention in zones of its ranks: a ring hides behind "
             "the attention of its own zone alone, not of all (off: Zeppelin's attention engine)."},
    {.key = "stack.gradient_reduce_dtype", ONE_OF(sp_reduce_dtype_names),
     .fallback = "as in the named stack",
     .text = "Precision in which data-parallel ranks add up gradients.",
     .aliases = "grad_reduce_in_fp32 grad_reduce_in_bf16"},
    {.key = "stack.tensors", ONE_OF(sp_tensor_names), .fallback = "as in the named stack",
     .text = "Who frees tensors: PyTorch's autograd, or hand-written passes after the last use."},
    {.key = "stack.bucket_mib", REAL("0", "1.04858e+06"), .fallback = "as in the named stack",
     .text = "Size of a bucket of gradients, in MiB; 0: one bucket for each layer."},
    {.key = "stack.split_limit_mib", REAL("0", "1.04858e+06"), .fallback = "as in the named stack",
     .text = "PyTorch's max_split_size_mb; 0: none.", .aliases = "max_split_size_mb"},
    {.key = "stack.work_spaces", COUNT("0", "64"), .fallback = "as in the named stack",
     .text = "cuBLAS work spaces that stay in memory; 0: 3, and none with explicit tensors."},
    {.key = "stack.work_space_mib", REAL("0", "1.04858e+06"), .fallback = "as in the named stack",
     .text = "Size of each of them, in MiB; 0: 32."},

    // ---- the layout ----
    {.key = "parallel.tp", COUNT("1", "4096"), .fallback = "1",
     .text = "Tensor-parallel ranks: each layer's matrices are split over so many GPUs.",
     .aliases = "tensor_model_parallel_size tensor_parallel_size tp_size tensor_parallel "
                "tensor_parallel_degree"},
    {.key = "parallel.cp", COUNT("1", "4096"), .fallback = "1",
     .text = "Context-parallel ranks: the tokens of each pack are split over so many GPUs.",
     .aliases = "context_parallel_size context_parallel cp_size sequence_parallel_size ulysses ring_attention "
                "context_parallel_degree ulysses_sequence_parallel_size"},
    {.key = "parallel.pp", COUNT("1", "4096"), .fallback = "1",
     .text = "Pipeline ranks: the layers are split over so many GPUs.",
     .aliases = "pipeline_model_parallel_size pipeline_parallel_size pp_size pipeline_parallel pipeline_parallel_degree "
                "num_stages"},
    {.key = "parallel.dp", COUNT("1", "1000000"),
     .fallback = "what fills the nodes where they are stated, else 1",
     .text = "Data-parallel ranks: so many replicas share the batch. The GPUs are tp x cp x pp x dp.",
     .aliases = "data_parallel_size dp_size data_parallel replicas"},
    {.key = "parallel.chunks_per_rank", COUNT("1", "1024"),
     .fallback = "what the schedule runs: 2 for V schedules and interleaved, else 1",
     .text = "Model chunks of each pipeline rank (virtual pipeline stages).",
     .aliases = "vpp vp vpp_size virtual_pipeline_model_parallel_size num_model_chunks v "
                "num_virtual_stages_per_pipeline_rank virtual_pipeline"},
    {.key = "parallel.layers_per_chunk", COUNT("1", "100000"), .fallback = "follows from the chunks",
     .text = "Layers of a model chunk; may stand in place of chunks_per_rank.",
     .aliases = "num_layers_per_virtual_pipeline_stage"},
    {.key = "parallel.stage_layers", .type = "an array, \"auto\" or \"nanotron\"",
     .names = spread_names, .fallback = "equal shares",
     .text = "Layers of every virtual stage in the order of the model; \"auto\" takes, of equal "
             "shares, cuts by predicted time, embedding and head counted, and SlimPack's own "
             "choice, the one with which the strategy is predicted to run the first batch fastest "
             "within memory, \"nanotron\" spreads them as nanotron does. Where neither layers nor "
             "chunks are stated and equal shares do not divide the layers, the SlimPack strategies "
             "cut as with \"auto\", and all else refuses them.",
     .aliases = "pipeline_model_parallel_layout num_layers_in_first_pipeline_stage "
                "num_layers_in_last_pipeline_stage decoder_first_pipeline_num_layers "
                "decoder_last_pipeline_num_layers"},
    {.key = "parallel.sequence_parallel", SWITCH, .fallback = "true where tp is above 1",
     .text = "What lies between tensor-parallel parts is split by tokens over the TP ranks."},
    {.key = "parallel.vocab_parallel", SWITCH, .fallback = "false",
     .text = "Embedding and head are spread over the pipeline ranks."},
    {.key = "parallel.zero", COUNT("0", "3"), .fallback = "1",
     .text = "ZeRO stage: optimizer states (1), gradients (2) and parameters (3) are split over the "
             "dp x cp ranks; 0: none is.",
     .aliases = "zero_stage zero_optimization distributed_optimizer use_distributed_optimizer fsdp"},
    {.key = "parallel.order", .type = "a string", .fallback = "\"tp-cp-dp-pp\"",
     .text = "Which ranks lie next to each other in a node, fastest first. Megatron-LM's \"ep\" may "
             "stand among them: expert parallelism is 1. With network.detail flows it says which "
             "transfers meet.",
     .aliases = "rank_order"},

    {.key = "network", .type = "an object", .fallback = "detail \"closed\", collectives \"profile\"",
     .text = "How transfers over the links of the cluster are predicted (network.*)."},
    {.key = "network.detail", ONE_OF(sp_network_detail_names), .fallback = "\"closed\"",
     .text = "closed: each transfer and each collective takes what its formula says, as if it were "
             "alone. flows: they share links by max-min fairness, and each takes what its formula "
             "says where it meets no other, but with all of a NIC that GPUs share, and what the "
             "spine's rate and latency (cluster.fabric) and PCIe add. Flows are sends between stages, gradient reductions, parameter gathers, "
             "what ZeRO 2 and 3 exchange inside actions and what context-parallel ranks and zones "
             "exchange. Tensor parallelism keeps to its formulas: others do not slow it, nor it "
             "them. auto: the same times, by the formulas where nothing can meet, which is faster; "
             "with parallel.vocab_parallel closed."},
    {.key = "network.collectives", ONE_OF(sp_collective_algorithm_names), .fallback = "\"profile\"",
     .text = "By which algorithm all-reduces, all-gathers and reduce-scatters take their time. "
             "profile: measured times where the profile has them, whatever NCCL chose there; else a "
             "ring, or a tree over nodes where that is faster. The others are models by rates and "
             "latencies of links alone, inside nodes too, without what a launch takes: compare them "
             "with each other. ring. tree: NCCL's double binary tree over nodes, for all-reduces. "
             "nvls: NVSwitches add up and copy (cluster.nvls), at 0.85 of NVLink's rate as NCCL "
             "assumes; over nodes with trees, for all-reduces. hierarchical: rings inside nodes and, "
             "for each GPU of a node, between them. auto: the fastest of these four for each size, "
             "as NCCL's tuner chooses. Where one does not serve the ring does. All-to-alls, sends "
             "and rings of keys and values stay as they are. Where a spine (cluster.fabric) or PCIe "
             "beside it slows data-parallel ranks, they take what flows alone do; others know of "
             "NVLink and NICs only. With network.detail flows, reductions "
             "and gathers of data-parallel ranks go the algorithm's own ways, and what context-"
             "parallel ranks gather goes along a ring's in the algorithm's time.",
     .aliases = "nccl_algo allreduce_algorithm collective_algorithm"},

    {.key = "jitter", .type = "an object", .fallback = "gpu_cv 0: all GPUs are alike",
     .text = "How differently fast GPUs of one kind compute (jitter.*). A rank takes as long as the "
             "slowest of its tensor- and context-parallel GPUs, and a step waits for the slowest rank; "
             "the profile's own growth with nodes is then left out, and no bound is told: GPUs may be "
             "faster than the profile's."},
    {.key = "jitter.gpu_cv", REAL("0", "0.2"), .fallback = "0",
     .text = "Standard deviation of a GPU's time to compute over the mean, which is normal. Measured "
             "in five clusters: GPUs vary by 8 % (Sinha et al., SC 2022, arXiv 2208.11035), which is "
             "0.015 if that is 5.4 standard deviations. simulate tells how many times the mean the "
             "slowest GPU takes, with this seed and expected: the integral of 1 - F^n, F being the "
             "distribution function of a GPU's time and n the GPUs (David and Nagaraja, Order "
             "Statistics, 2003)."},
    {.key = "jitter.seed", .type = "an integer of at least 0", .fallback = "1",
     .text = "Seed of the GPUs' times."},

    // ---- the schedule ----
    {.key = "schedule.kind", ONE_OF(sp_schedule_names),
     .fallback = "\"1f1b\", \"interleaved\" with several chunks, or what the strategy brings",
     .text = "The pipeline schedule; `slimpack help schedules` says a line of each.",
     .aliases = "pipeline_schedule pipeline_parallel_schedule"},
    {.key = "schedule.group", COUNT("1", "1000000") " or \"" SP_I_GROUP_EVEN "\"", .fallback = "pp",
     .text = "Interleaved: micro-batches of one chunk in a row. Each group needs as many as there are pipeline "
             "ranks, the last one too, as Megatron-LM asks; \"" SP_I_GROUP_EVEN "\" spreads any number over groups "
             "whose sizes differ by one, which no framework does.",
     .aliases = "microbatch_group_size_per_vp_stage"},
    {.key = "schedule.slices", COUNT("1", "65536"), .fallback = "pp with sliced schedules, else 1",
     .text = "Slices that each row is cut into, with sliced schedules (terapipe, seq1f1b, slimpipe)."},
    {.key = "schedule.slice_rule", ONE_OF(sp_slice_rule_names), .fallback = "\"tokens\"",
     .text = "Where a row is cut: into equal tokens, equal FLOPs, or the slices with the shortest "
             "forward pass."},
    {.key = "schedule.exchange", SWITCH, .fallback = "false",
     .text = "Slimpipe: pipeline ranks even out the attention of their slices at every step."},
    {.key = "schedule.retained_chunks", COUNT("1", "65536"), .fallback = "1",
     .text = "Chunkflow: chunks of a long sample that keep their activations (K)."},
    {.key = "schedule.memory_limit_microbatches", REAL("1", "1e+06"), .fallback = "pp",
     .text = "Zb-auto: what a rank may hold, in activations of one micro-batch on one rank's stage."},
    {.key = "schedule.microbatches", COUNT("1", "1000000"),
     .fallback = "what the batch makes; 2 x pp where there is no batch",
     .text = "Micro-batches of each data-parallel rank in a step. Beside a workload it must be what "
             "comes of it.",
     .aliases = "num_microbatches gradient_accumulation_steps grad_accum "
                "batch_accumulation_per_replica"},
    {.key = "schedule.microbatch_samples", COUNT("1", "10000000"), .fallback = "1",
     .text = "Rows of a micro-batch.",
     .aliases = "mbs micro_batch_size microbatch_size pipeline_parallel_microbatch_size per_device_train_batch_size "
                "train_micro_batch_size_per_gpu"},

    // ---- memory ----
    {.key = "memory.recompute", ONE_OF(sp_recompute_names), .fallback = "\"none\"",
     .text = "What the backward computes again in place of keeping it: activation functions and norms, "
             "also the first MLP projection, the attention core (Megatron's \"selective\"), or whole "
             "layers.",
     .aliases = "recompute_granularity activation_checkpointing activation_checkpoint gradient_checkpointing "
                "recompute_activations"},
    {.key = "memory.attention", ONE_OF(sp_attention_names), .fallback = "\"flash\"",
     .text = "Flash attention, or scores that are kept.",
     .aliases = "use_flash_attn attention_backend flash_attention attn_implementation"},
    {.key = "memory.model", ONE_OF(sp_i_memory_model_names), .fallback = "\"tensors\"",
     .text = "How the peak is predicted: from the tensors of every action, or by the formulas of "
             "SlimPipe's planner, which know ZeRO 1, fp32 gradients and sequence parallelism alone."},
    {.key = "memory.offload_ratio", REAL("0", "1"), .fallback = "0",
     .text = "Share of the activations that is copied to the host after the forward and back before "
             "the backward. Where no backward leaves time for it (with one pipeline rank most "
             "schedules run each behind its forward) there is none, and with full recomputation it is "
             "refused.",
     .aliases = "cpu_offloading activation_offload"},
    {.key = "memory.reserve_gib", REAL("0", "1e+06"), .fallback = "that of the cluster, 3 on GPUs",
     .text = "GiB of a GPU that CUDA's context, NCCL, cuBLAS and fragmentation take. No use beside "
             "limit_gib."},
    {.key = "memory.limit_gib", REAL("0.001", "1e+06"),
     .fallback = "the GPU's memory less reserve_gib",
     .text = "GiB that a step may hold on one GPU."},

    // ---- the data ----
    {.key = "workload.lengths", .type = "a name, a path or an array", .name_at = distribution_name,
     .fallback = "uniform samples",
     .text = "Lengths of the documents in tokens: a built-in distribution, an array, or a file (text, "
             "CSV, JSON, JSONL, NumPy .npy, Megatron-LM .idx or the common name of .idx and .bin), "
             "which goes before a distribution of its name.",
     .aliases = "dataset data_path length_distribution"},
    {.key = "workload.column", .type = "a string", .fallback = "the only one, or one with a usual name such as length or tokens",
     .text = "Column of a CSV file or key of JSON objects that holds the lengths; of an array of token ids (input_ids) the number counts."},
    {.key = "workload.uniform", TOKENS("1", LENGTH), .fallback = "the context, else 4096",
     .text = "Tokens of every sample, where lengths are not stated."},
    {.key = "workload.context", TOKENS("1", LENGTH), .fallback = "the longest sample",
     .text = "Tokens of a row at most (context window, sequence length).",
     .aliases = "seq_length seq_len sequence_len cutoff_len model_max_length sequence_length max_seq_len max_seq_length context_length "
                "block_size max_length"},
    {.key = "workload.over_length", ONE_OF(sp_i_over_length_names), .fallback = "\"drop\"",
     .text = "What becomes of samples longer than the context; each piece of a split one is a sample."},
    {.key = "workload.order", ONE_OF(sp_i_order_names), .fallback = "\"shuffled\"",
     .text = "Samples in an order drawn by the seed, or as in the file.", .aliases = "shuffle"},
    {.key = "workload.samples_per_batch", COUNT("1", "10000000"),
     .fallback = "512; an array's samples or their pieces; of uniform ones what fills the micro-batches, or one prompt",
     .text = "Samples of a batch, over all data-parallel ranks.",
     .aliases = "gbs global_batch_size batch_size train_batch_size"},
    {.key = "workload.tokens_per_batch", TOKENS("1", "10000000000"), .fallback = "samples_per_batch holds",
     .text = "Tokens of a batch at most, in place of samples_per_batch; a batch has at least one sample.",
     .aliases = "global_batch_tokens batch_tokens"},
    {.key = "workload.batches", COUNT("1", "100000"), .fallback = "1",
     .text = "Batches, each a step; the result is their mean.",
     .aliases = "train_iters steps iterations num_steps"},
    {.key = "workload.seed", .type = "an integer of at least 0", .fallback = "1",
     .text = "Seed of what is drawn: lengths of a distribution, and their order.",
     .aliases = "random_seed"},

    // ---- the strategy ----
    {.key = "strategy.kind", .type = "the name of a strategy", .fallback = "\"packed\"",
     .text = "How samples become packs; `slimpack help strategies` says a line of each.",
     .aliases = "packing packing_strategy"},
    {.key = "strategy.pad_to", ONE_OF(sp_i_pad_to_names), .fallback = "\"context\"",
     .text = "Padded: rows are as long as the context, or as their micro-batch's longest sample."},
    {.key = "strategy.cp_sharding", ONE_OF(sp_cp_sharding_names), .fallback = "\"even\"",
     .text = "How a pack is cut over its context-parallel ranks: shares of equal work, the row in "
             "2 x cp chunks, every document so, or for each pack the faster of the two."},
    {.key = "strategy.cp_ring_steps", SWITCH, .fallback = "false",
     .text = "Ranks whose shares of a pack are uneven (strategy.cp_sharding) wait for each other at "
             "each step of a ring behind the attention (stack.cp_overlap); off: the ring waits for the "
             "rank with most work in all."},
    {.key = "strategy.outlier_queues", COUNT("0", "16"), .fallback = "2",
     .text = "Balanced: queues in which long samples wait for later batches; 0: none waits."},
    {.key = "strategy.outlier_tokens", TOKENS("1", LENGTH), .fallback = "an eighth of the context",
     .text = "Balanced: tokens from which on a sample waits."},
    {.key = "strategy.pack_tokens", TOKENS("1", "1099511627776"),
     .fallback = "5/4 of the context for each row",
     .text = "Balanced: tokens of a pack at most."},
    {.key = "strategy.max_per_pack", COUNT("1", "10000000"), .fallback = "any number",
     .text = "Lpfhp: samples of a row at most."},
    {.key = "strategy.rank_tokens", TOKENS("1", LENGTH), .fallback = "context / dp",
     .text = "Hybrid-cp, bytescale, flexsp, te-cp, llama-cp, hybrid-dp, zeppelin: tokens that one "
             "data-parallel rank takes of a sample at most. Dp-balanced: of a pack.",
     .aliases = "max_seqlen_per_dp_cp_rank"},
    {.key = "strategy.group_start_ms", REAL("0", "1e+06"), .fallback = "0",
     .text = "Milliseconds in which a group of data-parallel ranks connects, at the first pack of the "
             "job that they share or whose attention they share. A rank joins its groups one after "
             "the other; groups without a common rank connect at the same time. Strategies that try "
             "whole steps (zeppelin, slimpack, packed-tuned) count it, all others choose without."},
    {.key = "strategy.pack_rounds", SWITCH, .fallback = "false",
     .text = "Hybrid-cp: samples that a round gives to one group are one pack."},
    {.key = "strategy.attention_across", SWITCH, .fallback = "false",
     .text = "Concat: a row attends as one sample, over the ends of its documents."},
    {.key = "strategy.chunk_tokens", TOKENS("1", LENGTH), .fallback = "8192",
     .text = "Chunkflow: tokens of a chunk.", .aliases = "chunk_size"},
    {.key = "strategy.slice_tokens", TOKENS("1", LENGTH),
     .fallback = "slimpipe: each row in schedule.slices; slimpack: searched",
     .text = "Slimpipe: tokens of a slice. Slimpack: long samples are cut at multiples of so many "
             "tokens."},
    {.key = "strategy.time_limit_ms", COUNT("1", "2147483647"),
     .fallback = "none: an amount of work ends the search",
     .text = "Milliseconds for solving one batch, of the first with what the job keeps, such as model "
             "chunks. With a limit plans may differ between machines."},
    {.key = "strategy.mip_gap", REAL("0", "1"), .fallback = "the strategy's own",
     .text = "Relative gap at which an integer program counts as solved."},
    {.key = "strategy.slices", SWITCH, .fallback = "true", .text = "Slimpack: long samples are cut."},
    {.key = "strategy.asymmetric", SWITCH, .fallback = "true",
     .text = "Slimpack: the backward has packs of its own."},
    {.key = "strategy.taper", SWITCH, .fallback = "true",
     .text = "Slimpack: packs grow while the pipeline fills and shrink while it drains."},
    {.key = "strategy.dp_merge", SWITCH, .fallback = "true",
     .text = "Slimpack: data-parallel ranks are merged for samples too long for one."},
    {.key = "strategy.milp", SWITCH, .fallback = "true",
     .text = "Slimpack: integer programs prove or improve small assignments."},
    {.key = "strategy.zones", SWITCH, .fallback = "true",
     .text = "Zeppelin: samples that a node or a rank holds stay there. Off: every sample goes over all "
             "ranks in a ring, as te-cp's, and nothing else is tried, neither remapping nor gathers: "
             "llama-cp and hybrid-dp may then be faster. Slimpack-zones: off, packs of all ranks are "
             "not tried."},
    {.key = "strategy.remap", SWITCH, .fallback = "true",
     .text = "Zeppelin: all modules but the attention run on equal shares of the tokens, which are "
             "sent to the ranks of their attention and back, where that is faster."},
    {.key = "strategy.gathers", SWITCH, .fallback = "true",
     .text = "Zeppelin: packs gather keys and values before the attention, as llama-cp's do, where "
             "that is faster than a ring. Off: rings alone, as published; llama-cp may then be "
             "faster."},

    // ---- prompts that are read, for `slimpack prefill` ----
    {.key = "prefill.attention", ONE_OF(sp_i_prefill_names), .fallback = "\"dense\"",
     .text = "Attention of `slimpack prefill`: every key, SampleAttention, MInference, or FlexPrefill "
             "and XAttention by the speed-ups that XAttention's authors plot."},
    {.key = "prefill.alpha", REAL("0", "1"), .fallback = "0.95",
     .text = "SampleAttention: share of the sampled probability that the kept keys hold; 1 is dense "
             "attention.",
     .aliases = "cra cra_threshold"},
    {.key = "prefill.window_share", REAL("0", "1"), .fallback = "0.08",
     .text = "SampleAttention: the local window as a share of the keys."},
    {.key = "prefill.row_share", REAL("0", "1"), .fallback = "0.05",
     .text = "SampleAttention: share of the queries that are sampled."},
    {.key = "prefill.stripe_share", REAL("0", "1"), .fallback = "by alpha and length, fitted",
     .text = "SampleAttention: share of the causal pairs that stripes keep, the mean over heads."},
    {.key = "prefill.fixed_us", REAL("0", "1e+06"), .fallback = "fitted",
     .text = "SampleAttention: microseconds of each head in each layer that do not depend on the "
             "length (launches, choosing keys, gathering); 190 were fitted."},
    {.key = "prefill.deal", ONE_OF(sp_i_deal_names), .fallback = "\"cost\"",
     .text = "SampleAttention: a rank's heads are dealt by cost in tiles, or head by head, so that "
             "the densest sets the time."},
    {.key = "prefill.chunk_tokens", TOKENS("1", LENGTH), .fallback = "the whole prompt",
     .text = "Tokens of a chunk of a prompt; pipeline ranks work on several chunks at once."},
    {.key = "prefill.together", SWITCH, .fallback = "false",
     .text = "The prompts of a batch run as one pack, each over its own keys, and give their first "
             "tokens together; off: one prompt after the other."},
    {.key = "prefill.dense_below", TOKENS("0", LENGTH), .fallback = "0: none",
     .text = "Prompts, or chunks with what is before them, of fewer tokens are read with dense "
             "attention."},
    // ---- text that is generated (slimpack decode) ----
    {.key = "decode.method", ONE_OF(sp_decode_method_names), .fallback = "\"heterospec\"",
     .text = "Decode: token by token, with trees of drafted tokens (EAGLE-2, EAGLE-3), or with trees "
             "whose depth and width follow from the draft's entropy (HeteroSpec)."},
    {.key = "decode.depth", COUNT("1", "32"), .fallback = "8",
     .text = "Layers of a tree of drafted tokens.", .aliases = "speculative_num_steps"},
    {.key = "decode.top_k", COUNT("1", "32"), .fallback = "10",
     .text = "Children of a drafted token, and tokens of a layer that are drafted on from.",
     .aliases = "speculative_eagle_topk"},
    {.key = "decode.draft_tokens", COUNT("2", "1024"), .fallback = "60",
     .text = "Tokens of a tree that one call of the target verifies, the root among them (N).",
     .aliases = "total_token speculative_num_draft_tokens"},
    {.key = "decode.alpha", COUNT("0", "32"), .fallback = "half of depth, rounded up",
     .text = "Heterospec: layers more at the lowest entropy, one less in each of the next two bins."},
    {.key = "decode.extend", SWITCH, .fallback = "true",
     .text = "Heterospec: trees of low entropy are drafted deeper (DED)."},
    {.key = "decode.prune", SWITCH, .fallback = "true",
     .text = "Heterospec: fewer tokens of trees of low entropy are verified (TNP)."},
    {.key = "decode.keep", .type = "an array of 3 numbers from 0 to 1",
     .fallback = "[0.3, 0.6, 1.0]",
     .text = "Heterospec: share of draft_tokens that is verified in the three bins of low entropy "
             "(gamma); the layers that alpha adds in a bin are as many tokens more."},
    {.key = "decode.text.ease", REAL("-12", "12"), .fallback = "0.57",
     .text = "How sure the draft is of its first token: mean logit of its probability."},
    {.key = "decode.text.spread", REAL("0", "10"), .fallback = "0.75",
     .text = "Deviation of that logit between calls of the target."},
    {.key = "decode.text.noise", REAL("0", "10"), .fallback = "0.99",
     .text = "Deviation of that logit between tokens."},
    {.key = "decode.text.persistence", REAL("0", "1"), .fallback = "0.5",
     .text = "Correlation of a sequence's difficulty from one call to the next."},
    {.key = "decode.text.agreement", REAL("0.1", "100"), .fallback = "6.7",
     .text = "How much more often than the draft's probability says the target takes the draft's "
             "first token: the power of that probability; 1 says it as it is."},
    {.key = "decode.text.blind", REAL("0", "1"), .fallback = "0.023",
     .text = "Share of tokens that the draft does not have among its top_k, whatever its entropy."},
    {.key = "decode.text.tokens_per_call", REAL("1", "33"), .fallback = "what follows from ease",
     .text = "Tokens that a call yields with EAGLE's trees; the ease follows from it.",
     .aliases = "acceptance_length tau"},
    {.key = "decode.text.training_ease", REAL("-12", "12"), .fallback = "as the text itself",
     .text = "Heterospec: the ease of the text that the bins of entropy are fitted to."},
    {.key = "decode.text.training_tokens_per_call", REAL("1", "33"),
     .fallback = "what follows from training_ease",
     .text = "Heterospec: tokens that a call yields with EAGLE's trees on that text."},
    {.key = "decode.draft", .type = "\"eagle\" or the name of a model", .fallback = "\"eagle\"",
     .text = "What drafts: EAGLE-3's layer over the target's features, or a model of its own.",
     .aliases = "draft_model speculative_model"},
    {.key = "decode.draft_tp", COUNT("1", "4096"), .fallback = "1",
     .text = "GPUs that share the draft's tensors.",
     .aliases = "draft_tensor_parallel_size speculative_draft_tensor_parallel_size"},
    {.key = "decode.draft_gpus", ONE_OF(sp_i_draft_gpus_names), .fallback = "\"shared\"",
     .text = "The draft is on the target's GPUs, or on draft_tp GPUs of its own for each replica, where it drafts for one half "
             "of a batch while the target verifies the other."},
    {.key = "decode.sequences", COUNT("1", "100000"), .fallback = "100",
     .text = "Sequences that are generated, in all: data-parallel replicas share them out, and are "
             "idle where there are fewer than replicas."},
    {.key = "decode.prompt_tokens", TOKENS("0", "16777216"), .fallback = "512",
     .text = "Tokens of a prompt. Its prefill is not part of the time.", .aliases = "input_len"},
    {.key = "decode.output_tokens", TOKENS("1", "1048576"), .fallback = "256",
     .text = "Tokens that are generated of each sequence.",
     .aliases = "max_new_tokens output_len"},
    {.key = "decode.batch", COUNT("1", "4096"), .fallback = "1",
     .text = "Sequences that a replica generates at a time.",
     .aliases = "max_num_seqs max_running_requests"},
    {.key = "decode.batch_policy", ONE_OF(sp_batch_policy_names), .fallback = "\"pad\"",
     .text = "Sequences whose trees differ: all as deep and wide as the largest of the batch, each as "
             "it is in one forward, or a forward for each bin of entropy."},
    {.key = "decode.graphs", COUNT("0", "1024"), .fallback = "64",
     .text = "Shapes of steps (forwards of the target for a batch, with their drafts) whose captured "
             "graphs are kept, those used last (DGO); with 0 they are launched kernel by kernel."},
    {.key = "decode.eagle_graphs", COUNT("0", "1024"), .fallback = "as graphs",
     .text = "The same of EAGLE's trees, over which a speed-up is told."},
    {.key = "decode.call_ms", REAL("0", "1e+06"), .fallback = "that of the profile, else 0",
     .text = "Milliseconds that the host adds to a step with drafted tokens. The profile's is of one "
             "model under one server."},
    {.key = "decode.graph_miss_ms", REAL("0", "1e+06"), .fallback = "that of the profile, else 0",
     .text = "Milliseconds more of a step whose shape has no captured graph: it is launched kernel by "
             "kernel, or captured."},
};
// clang-format on

enum { SETTINGS = sizeof settings / sizeof settings[0] };
_Static_assert((int)SETTINGS <= (int)SP_I_MOST_SETTINGS, "sp_setting_near() looks at all");

const sp_setting *sp_setting_at(int index)
{
    return index >= 0 && index < SETTINGS ? &settings[index] : NULL;
}

const char *sp_setting_value(const sp_setting *setting, int index)
{
    if (setting->name_at != NULL) {
        return setting->name_at(index);
    }
    for (int i = 0; setting->names != NULL && setting->names[i] != NULL; i++) {
        if (i == index) {
            return setting->names[i];
        }
    }
    return NULL;
}

const char *sp_setting_type(const sp_setting *setting, char text[SP_SETTING_TYPE])
{
    if (setting->type != NULL) {
        snprintf(text, SP_SETTING_TYPE, "%s", setting->type);
        return text;
    }
    size_t used = (size_t)snprintf(text, SP_SETTING_TYPE, "one of");
    const char *name = NULL;
    for (int i = 0; (name = sp_setting_value(setting, i)) != NULL && used < SP_SETTING_TYPE; i++) {
        used += (size_t)snprintf(text + used, SP_SETTING_TYPE - used, "%s \"%s\"", i > 0 ? "," : "",
                                 name);
    }
    return text;
}

size_t sp_setting_section(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot != NULL ? (size_t)(dot - key) : 0;
}
