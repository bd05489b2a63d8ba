// Every setting of the table against what it changes: a key that is read and then ignored changes
// no figure and is found here.
#include <unistd.h>

#include "sim/inference/decode.h"
#include "sim/prefill/prefill.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/scenario_private.h"
#include "solver/setting_uses.h"
#include "solver/strategy.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

typedef enum kind_of_run { TRAIN, UNIFORM, COSTS, PREFILL, DECODE } kind_of_run;

#define MODEL                                                                                    \
    "{'model': {'layers': 8, 'hidden': 1024, 'ffn': 2816, 'heads': 16, 'kv_heads': 8, 'vocab': " \
    "32000}, 'cluster': 'h100-8', 'stack': 'ours'"

static const char *const documents[] = {
    [TRAIN] = MODEL ", 'workload': {'context': 4096, 'order': 'file', 'lengths': [4096, 300, 1500, "
                    "2500, 3900, 100, 700, 3000, 900, 4000, 200, 2048, 1700, 1200, 3500, 600, 800, "
                    "2900]}}",
    [UNIFORM] = MODEL "}",
    [COSTS] = "{'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'w_ms': 1}, 'parallel': {'pp': 4}, "
              "'schedule': {'kind': 'zb-h1', 'microbatches': 8}}",
    [PREFILL] = "{'model': 'llama-3-8b', 'cluster': 'a100-8', 'workload': {'order': 'file', "
                "'lengths': [20000, 3000]}, 'prefill': {'attention': 'sample'}}",
    [DECODE] = "{'model': 'llama-3-8b', 'cluster': 'h100-8', 'decode': {'sequences': 12, "
               "'prompt_tokens': 256, 'output_tokens': 64, 'batch': 2}}",
};

// Two values of a setting that must not give the same figure.
typedef struct effect {
    const char *key;
    kind_of_run kind;
    // Settings beside it, "path=value" with spaces between them and ' for ".
    const char *beside;
    // A value, or such settings; "": it is not stated. "*" stands for each of its values but `one`.
    const char *one, *other;
    // A path into the result; NULL: any of `times_and_memory`. "refused": `other` is.
    const char *figure;
    const char *none; // why no figure can differ, in place of all else but the key
} effect;

static const char *const times_and_memory[] = {"iteration_ms",
                                               "peak_memory_gib",
                                               "peak_memory_allocator_gib",
                                               "peak_memory_reserved_gib",
                                               "ttft_ms",
                                               "tokens_per_s",
                                               NULL};

// clang-format off
// Time or memory must differ, or the figure.
#define TIME_OR_MEMORY(...) {__VA_ARGS__, NULL, NULL}
#define LATENT                                                                                    \
    "model.kv_heads=16 model.kv_lora_rank=256 model.qk_nope_dim=64 model.qk_rope_dim=32 "         \
    "model.v_head_dim=64"
#define STATE                                                                                     \
    "model.mixer='mamba2' model.state_heads=16 model.state_groups=4 model.state_head_dim=64 "     \
    "model.state_dim=64 model.state_conv=4"
#define FIGURE(...) {__VA_ARGS__, NULL}
#define NONE(key_, why) {.key = (key_), .none = (why)}
#define ROUTED "model.experts=4 model.experts_per_token=2"
static const effect effects[] = {
    NONE("schema", "there is one version"),
    NONE("chosen", "says what a resolved document has and nobody stated"),
    TIME_OR_MEMORY("nodes", TRAIN, "parallel.tp=8", "1", "2"),
    TIME_OR_MEMORY("profile", TRAIN, "", "'h100'", "'a100'"),
    TIME_OR_MEMORY("precision", TRAIN, "", "'bf16'", "*"),
    TIME_OR_MEMORY("fp8_recipe", TRAIN, "precision='fp8' cluster='b200-8'", "'delayed'", "*"),
    TIME_OR_MEMORY("fp8_params", TRAIN, "precision='fp8'", "false", "*"),
    TIME_OR_MEMORY("model", TRAIN, "", "'llama-2-7b'", "'llama-3-8b'"),
    FIGURE("model.name", TRAIN, "", "'a'", "'b'", "model.name"),
    TIME_OR_MEMORY("model.layers", TRAIN, "", "8", "4"),
    TIME_OR_MEMORY("model.hidden", TRAIN, "model.head_dim=64", "1024", "2048"),
    TIME_OR_MEMORY("model.ffn", TRAIN, "", "2816", "4096"),
    TIME_OR_MEMORY("model.heads", TRAIN, "model.head_dim=64", "16", "32"),
    TIME_OR_MEMORY("model.kv_heads", TRAIN, "", "8", "16"),
    TIME_OR_MEMORY("model.head_dim", TRAIN, "", "64", "128"),
    TIME_OR_MEMORY("model.vocab", TRAIN, "", "32000", "64000"),
    TIME_OR_MEMORY("model.activation", TRAIN, "", "'swiglu'", "'gelu'"),
    TIME_OR_MEMORY("model.activation", TRAIN, "", "'geglu'", "'squared-relu'"),
    TIME_OR_MEMORY("model.q_lora_rank", TRAIN, LATENT, "0", "384"),
    TIME_OR_MEMORY("model.kv_lora_rank", TRAIN, LATENT, "256", "512"),
    TIME_OR_MEMORY("model.qk_nope_dim", TRAIN, LATENT, "64", "128"),
    TIME_OR_MEMORY("model.qk_rope_dim", TRAIN, LATENT, "32", "64"),
    TIME_OR_MEMORY("model.v_head_dim", TRAIN, LATENT, "64", "128"),
    TIME_OR_MEMORY("model.mtp_layers", TRAIN, "", "0", "1"),
    TIME_OR_MEMORY("model.lora_rank", TRAIN, "", "0", "16"),
    TIME_OR_MEMORY("model.lora_targets", TRAIN, "model.lora_rank=16", "'all-linear'", "*"),
    TIME_OR_MEMORY("model.lora_dropout", TRAIN, "model.lora_rank=16", "false", "*"),
    TIME_OR_MEMORY("model.frozen_weights", TRAIN, "model.lora_rank=16", "'bf16'", "*"),
    TIME_OR_MEMORY("model.experts", TRAIN, "model.experts_per_token=2", "4", "8"),
    TIME_OR_MEMORY("model.experts_per_token", TRAIN, "model.experts=4", "1", "2"),
    FIGURE("model.expert_imbalance", TRAIN, ROUTED " parallel.dp=4 parallel.ep=4", "0", "0.5", "expert_overload.mean"),
    TIME_OR_MEMORY("model.expert_imbalance", TRAIN, ROUTED " parallel.dp=4 parallel.ep=4", "'exact'", "-0.5"),
    TIME_OR_MEMORY("model.expert_imbalance_seed", TRAIN, ROUTED " parallel.dp=4 parallel.ep=4 model.expert_imbalance=0.3", "1", "2"),
    TIME_OR_MEMORY("model.expert_capacity_factor", TRAIN, ROUTED, "0", "1.5"),
    TIME_OR_MEMORY("model.expert_capacity_factor", TRAIN, ROUTED " parallel.dp=4 parallel.ep=4", "1", "1.25"),
    TIME_OR_MEMORY("model.expert_latent", TRAIN, ROUTED, "0", "512"),
    TIME_OR_MEMORY("model.shared_ffn", TRAIN, "model.experts=4 model.experts_per_token=1", "1024", "2048"),
    TIME_OR_MEMORY("model.shared_gate", TRAIN, "model.experts=4 model.experts_per_token=1 model.shared_ffn=1024", "false", "*"),
    TIME_OR_MEMORY("model.layer_kinds", TRAIN, "", "[{'layers':1}]",
                   "[{'layers':1},{'layers':1,'ffn':4096}]"),
    TIME_OR_MEMORY("model.mixer", TRAIN, STATE, "'mamba2'", "'gated-delta'"),
    TIME_OR_MEMORY("model.mixer", TRAIN, "", "'attention'", "'none'"),
    TIME_OR_MEMORY("model.without_mlp", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("model.state_heads", TRAIN, STATE, "16", "32"),
    TIME_OR_MEMORY("model.state_head_dim", TRAIN, STATE, "64", "128"),
    TIME_OR_MEMORY("model.state_groups", TRAIN, STATE, "4", "8"),
    TIME_OR_MEMORY("model.state_dim", TRAIN, STATE, "64", "128"),
    TIME_OR_MEMORY("model.state_conv", TRAIN, STATE, "4", "8"),
    TIME_OR_MEMORY("model.attention_gate", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("model.norm", TRAIN, "", "'rmsnorm'", "*"),
    TIME_OR_MEMORY("model.positional", TRAIN, "model.max_positions=4096", "'rope'", "*"),
    TIME_OR_MEMORY("model.max_positions", TRAIN, "model.positional='learned'", "4096", "8192"),
    FIGURE("model.ignored_parts", TRAIN, "", "", "'vision_config'", "warnings"),
    FIGURE("model.ignored_keys", TRAIN, "", "", "'alibi'", "warnings"),
    TIME_OR_MEMORY("model.window_tokens", TRAIN, "", "0", "128"),
    TIME_OR_MEMORY("model.chunk_tokens", TRAIN, "", "0", "128"),
    FIGURE("model.stored_dtype", TRAIN, "precision='bf16'", "'bfloat16'", "*", "warnings"),
    FIGURE("model.ignored_dropout", TRAIN, "", "", "'attention_dropout'", "warnings"),
    TIME_OR_MEMORY("model.tied_embeddings", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("model.bias", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("model.qkv_bias", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("model.output_bias", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("model.mlp_bias", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("model.router_bias", TRAIN, "model.experts=4 model.experts_per_token=1", "false", "*"),
    TIME_OR_MEMORY("model.head_bias", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("model.attention_sinks", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("model.qk_norm", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("model.qk_norm_whole", TRAIN, "model.qk_norm=true", "false", "*"),
    TIME_OR_MEMORY("model.post_norms", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("model.post_norms_alone", TRAIN, "model.post_norms=true", "false", "*"),
    TIME_OR_MEMORY("model.blocks", TRAIN, "", "'in-turn'", "'one-norm'"),
    TIME_OR_MEMORY("model.blocks", TRAIN, "", "'in-turn'", "'two-norms'"),
    FIGURE("model.soft_caps", TRAIN, "", "false", "*", "warnings"),
    TIME_OR_MEMORY("model.dropout", TRAIN, "", "false", "*"),

    TIME_OR_MEMORY("uniform_costs.f_ms", COSTS, "", "1", "2"),
    TIME_OR_MEMORY("uniform_costs.b_ms", COSTS, "", "1", "2"),
    TIME_OR_MEMORY("uniform_costs.w_ms", COSTS, "", "1", "2"),
    TIME_OR_MEMORY("uniform_costs.p2p_ms", COSTS, "", "0", "1"),
    TIME_OR_MEMORY("uniform_costs.per_chunk", COSTS, "schedule.kind='interleaved'", "false", "*"),
    TIME_OR_MEMORY("uniform_costs.attention_share", COSTS, "schedule.kind='seq1f1b'", "0", "0.5"),
    FIGURE("uniform_costs.memory_units", COSTS, "", "", "{'f':2,'b':-1,'w':-1}", "ranks.0.activation_units_peak"),
    FIGURE("uniform_costs.memory_units.f", COSTS, "", "", "uniform_costs.memory_units={'f':2,'b':0,'w':-2}", "ranks.0.activation_units_peak"),
    FIGURE("uniform_costs.memory_units.b", COSTS, "", "uniform_costs.memory_units={'f':1,'b':0,'w':-1}", "uniform_costs.memory_units={'f':1,'b':-1,'w':0}", "ranks.3.activation_units_peak"),
    FIGURE("uniform_costs.memory_units.w", COSTS, "", "uniform_costs.memory_units={'f':1,'b':0,'w':-1}", "uniform_costs.memory_units={'f':1,'b':-0.5,'w':-0.5}", "ranks.3.activation_units_peak"),

    TIME_OR_MEMORY("cluster", TRAIN, "parallel.tp=2", "'h100-8'", "'a100-8'"),
    TIME_OR_MEMORY("cluster.name", TRAIN, "parallel.tp=2", "'h100-8'", "'a100-8'"),
    FIGURE("cluster.gpu", TRAIN, "profile='a100' cluster.peak_tflops=312", "'A100'", "'H100'", "warnings"),
    TIME_OR_MEMORY("cluster.profile", TRAIN, "", "'h100'", "'a100'"),
    NONE("cluster.source", "a note, for reports"),
    TIME_OR_MEMORY("cluster.peak_tflops", TRAIN, "", "989.5", "1500"),
    FIGURE("cluster.memory_gib", TRAIN, "", "80", "40", "memory_margin_gib"),
    TIME_OR_MEMORY("cluster.hbm_gb_per_s", TRAIN, "", "3350", "2000"),
    TIME_OR_MEMORY("cluster.nvlink_gb_per_s", TRAIN, "parallel.tp=2", "450", "200"),
    TIME_OR_MEMORY("cluster.nvls", TRAIN, "parallel.tp=8 network.collectives='auto'", "false", "*"),
    TIME_OR_MEMORY("cluster.nic_gbit_per_s", TRAIN, "parallel.dp=16", "400", "100"),
    TIME_OR_MEMORY("cluster.host_link_gb_per_s", TRAIN, "parallel.pp=4 memory.offload_ratio=1", "25", "5"),
    TIME_OR_MEMORY("cluster.nvlink_latency_us", TRAIN, "parallel.pp=2", "1", "50"),
    TIME_OR_MEMORY("cluster.nic_latency_us", TRAIN, "parallel.tp=8 parallel.pp=2", "1", "50"),
    TIME_OR_MEMORY("cluster.host_link_latency_us", TRAIN, "parallel.pp=4 memory.offload_ratio=1", "0", "1000"),
    TIME_OR_MEMORY("cluster.host_link_latency_us", TRAIN, "memory.offload_states=1", "0", "1000"),
    TIME_OR_MEMORY("stack.host_overlap", TRAIN, "memory.offload_states=1", "false", "true"),
    TIME_OR_MEMORY("cluster.host_adam_gb_per_s", TRAIN, "memory.offload_states=1", "0", "60"),
    TIME_OR_MEMORY("cluster.gpus_per_node", TRAIN, "parallel.tp=8", "8", "4"),
    TIME_OR_MEMORY("cluster.nics_per_node", TRAIN, "parallel.dp=16", "8", "2"),
    TIME_OR_MEMORY("cluster.fabric.rails", TRAIN, "parallel.dp=16 network.detail='flows' cluster.fabric.pxn=false parallel.zero=3 parallel.cp=2 cluster.fabric.oversubscription=4", "8", "1"),
    TIME_OR_MEMORY("cluster.fabric.nodes_per_leaf", TRAIN, "parallel.dp=32 network.detail='flows' cluster.fabric.oversubscription=8", "0", "1"),
    TIME_OR_MEMORY("cluster.fabric.oversubscription", TRAIN, "parallel.dp=32 network.detail='flows' cluster.fabric.nodes_per_leaf=1", "1", "8"),
    TIME_OR_MEMORY("cluster.fabric.spine_latency_us", TRAIN, "parallel.dp=32 network.detail='flows' cluster.fabric.nodes_per_leaf=1", "0", "500"),
    TIME_OR_MEMORY("cluster.fabric.nic_affinity", TRAIN, "parallel.tp=4 parallel.pp=2 parallel.dp=2 network.detail='flows' cluster.nics_per_node=2 cluster.fabric.rails=2", "'block'", "*"),
    TIME_OR_MEMORY("cluster.fabric.pxn", TRAIN, "parallel.pp=8 parallel.dp=2 parallel.order='pp-tp-cp-dp' cluster.gpus_per_node=3 network.detail='flows' cluster.fabric.oversubscription=8", "false", "*"),
    TIME_OR_MEMORY("cluster.nodes", TRAIN, "parallel.tp=8", "1", "2"),

    TIME_OR_MEMORY("stack", TRAIN, "parallel.tp=2 parallel.pp=2 parallel.dp=2", "'ours'", "*"),
    TIME_OR_MEMORY("stack.name", TRAIN, "parallel.tp=2 parallel.pp=2 parallel.dp=2", "'ours'", "*"),
    TIME_OR_MEMORY("stack.fused_swiglu", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("stack.router_kernels", TRAIN, "model.experts=4 model.experts_per_token=1", "0", "72"),
    TIME_OR_MEMORY("stack.memory_efficient_permutation", TRAIN, "model.experts=4 model.experts_per_token=1", "false", "*"),
    TIME_OR_MEMORY("stack.unfused_permutation", TRAIN, "model.experts=4 model.experts_per_token=1", "false", "*"),
    TIME_OR_MEMORY("stack.unfused_norms", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("stack.flash_attention_2", TRAIN, "profile='h100'", "false", "true"),
    TIME_OR_MEMORY("stack.fused_softmax_limited", TRAIN, "memory.attention='unfused'", "false", "*"),
    TIME_OR_MEMORY("stack.unfused_softmax", TRAIN, "memory.attention='unfused'", "false", "*"),
    TIME_OR_MEMORY("stack.unfused_weight_gradient", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("stack.timed_accumulation", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("stack.in_place_lookup_gradient", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("stack.hide_forward_gather", TRAIN, "parallel.tp=2", "false", "*"),
    TIME_OR_MEMORY("stack.hide_forward_reduce", TRAIN, "parallel.tp=2", "false", "*"),
    TIME_OR_MEMORY("stack.hide_backward_gather", TRAIN, "parallel.tp=2", "false", "*"),
    TIME_OR_MEMORY("stack.hide_backward_reduce", TRAIN, "parallel.tp=2", "false", "*"),
    TIME_OR_MEMORY("stack.hide_gradient_reduce", TRAIN, "parallel.dp=2", "false", "*"),
    TIME_OR_MEMORY("stack.hide_gradient_all_reduce", TRAIN, "parallel.dp=2 parallel.zero=0", "false", "*"),
    TIME_OR_MEMORY("stack.hide_parameter_gather", TRAIN, "parallel.dp=2", "false", "*"),
    TIME_OR_MEMORY("stack.bucketed_tail", TRAIN, "parallel.dp=16 stack.hide_gradient_reduce=true", "false", "*"),
    TIME_OR_MEMORY("stack.sharded_step", TRAIN, "parallel.dp=2 parallel.zero=0", "false", "*"),
    TIME_OR_MEMORY("stack.blocking_transfers", TRAIN, "parallel.pp=2", "false", "*"),
    TIME_OR_MEMORY("stack.blocking_launches", TRAIN, "profile='h100-nanotron' stack.name='nanotron-2025'", "false", "*"),
    TIME_OR_MEMORY("stack.blocking_launches", TRAIN, "profile='h100' stack='megatron-core-2025' parallel.tp=2", "false", "true"),
    TIME_OR_MEMORY("stack.blocking_launches", TRAIN, "profile='h100' stack='megatron-core-2025' parallel.dp=2", "false", "true"),
    TIME_OR_MEMORY("stack.blocking_launches", TRAIN, "stack.name='megatron-core-2025' parallel.tp=2", "false", "*"),
    TIME_OR_MEMORY("stack.rooted_shares", TRAIN, "parallel.dp=16", "false", "*"),
    TIME_OR_MEMORY("stack.one_sided", TRAIN, "parallel.dp=16 parallel.zero=3", "false", "*"),
    TIME_OR_MEMORY("stack.whole_transfers", TRAIN, "parallel.tp=2 parallel.pp=2 parallel.sequence_parallel=false", "false", "*"),
    TIME_OR_MEMORY("stack.fused_cross_entropy", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("stack.copied_logits", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("stack.dummy_weight_gradients", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("stack.keep_gathered_inputs", TRAIN, "parallel.tp=2", "false", "*"),
    FIGURE("stack.lingering_inputs", TRAIN, "parallel.tp=2", "false", "*", "peak_memory_reserved_gib"),
    TIME_OR_MEMORY("stack.transposed_output", TRAIN, "schedule.microbatch_samples=2", "false", "*"),
    TIME_OR_MEMORY("stack.attention_mask", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("stack.score_buffer", TRAIN, "memory.attention='unfused'", "false", "*"),
    TIME_OR_MEMORY("stack.gradient_buckets", TRAIN, "parallel.dp=2", "false", "*"),
    TIME_OR_MEMORY("stack.device_bytes", TRAIN, "stack.tensors='explicit'", "false", "*"),
    TIME_OR_MEMORY("stack.cudnn_attention", TRAIN, "stack.tensors='explicit' stack.device_bytes=true memory.recompute='full' model.vocab=100 model.ffn=64 workload.context=65536 workload.lengths=[65536]", "false", "*"),
    TIME_OR_MEMORY("stack.cp_overlap", TRAIN, "parallel.cp=4 stack.cp_a2a_ranks=2", "'attention'", "*"),
    TIME_OR_MEMORY("stack.cp_a2a_ranks", TRAIN, "parallel.cp=4 stack.cp_overlap='a2a+p2p'", "2", "4"),
    TIME_OR_MEMORY("stack.cp_block_tokens", TRAIN, "parallel.cp=4 stack.cp_overlap='blocks'", "128", "1024"),
    TIME_OR_MEMORY("stack.cp_ring_nics", TRAIN, "parallel.cp=16 stack.cp_overlap='attention'", "1", "8"),
    TIME_OR_MEMORY("stack.cp_lone_rings", TRAIN, "parallel.dp=4 strategy.kind='zeppelin' strategy.rank_tokens=1024", "false", "*"),
    TIME_OR_MEMORY("stack.padded_documents", TRAIN, "parallel.cp=16", "false", "*"),
    TIME_OR_MEMORY("stack.gradient_reduce_dtype", TRAIN, "parallel.dp=2", "'fp32'", "*"),
    TIME_OR_MEMORY("stack.tensors", TRAIN, "", "'autograd'", "*"),
    TIME_OR_MEMORY("stack.tensors", TRAIN, "parallel.zero=2", "'autograd'", "'explicit'"),
    TIME_OR_MEMORY("stack.bucket_mib", TRAIN, "parallel.dp=2 stack.hide_gradient_reduce=true", "0", "100"),
    FIGURE("stack.split_limit_mib", TRAIN, "", "0", "32", "peak_memory_reserved_gib"),
    TIME_OR_MEMORY("stack.no_master_weights", TRAIN, "", "false", "*"),
    TIME_OR_MEMORY("stack.moment_bytes", TRAIN, "", "0", "1"),
    TIME_OR_MEMORY("stack.loss_chunks", TRAIN, "", "0", "8"),
    TIME_OR_MEMORY("stack.loss_recompute", TRAIN, "stack.loss_chunks=8", "false", "true"),
    TIME_OR_MEMORY("stack.cut_cross_entropy", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.gathered_logits", TRAIN, "parallel.tp=2", "false", "*"),
    TIME_OR_MEMORY("stack.work_spaces", TRAIN, "", "0", "8"),
    TIME_OR_MEMORY("stack.work_space_mib", TRAIN, "", "0", "64"),

    TIME_OR_MEMORY("parallel.tp", TRAIN, "", "1", "2"),
    TIME_OR_MEMORY("parallel.cp", TRAIN, "", "1", "2"),
    TIME_OR_MEMORY("parallel.pp", TRAIN, "", "1", "2"),
    TIME_OR_MEMORY("parallel.dp", TRAIN, "", "1", "2"),
    TIME_OR_MEMORY("parallel.chunks_per_rank", UNIFORM, "parallel.pp=2", "1", "2"),
    TIME_OR_MEMORY("parallel.layers_per_chunk", UNIFORM, "parallel.pp=2", "4", "2"),
    TIME_OR_MEMORY("parallel.stage_layers", UNIFORM, "parallel.pp=2", "[4,4]", "[5,3]"),
    TIME_OR_MEMORY("parallel.stage_layers", UNIFORM, "parallel.pp=2 model.layers=9", "[2,7]", "*"),
    TIME_OR_MEMORY("parallel.sequence_parallel", TRAIN, "parallel.tp=2", "false", "*"),
    TIME_OR_MEMORY("parallel.vocab_parallel", TRAIN, "parallel.pp=2", "false", "*"),
    TIME_OR_MEMORY("parallel.zero", TRAIN, "parallel.dp=2", "1", "0"),
    TIME_OR_MEMORY("parallel.zero", TRAIN, "parallel.dp=2", "1", "2"),
    TIME_OR_MEMORY("parallel.zero", TRAIN, "parallel.dp=2", "2", "3"),
    TIME_OR_MEMORY("parallel.ep", TRAIN, ROUTED " parallel.dp=4", "1", "4"),
    TIME_OR_MEMORY("parallel.ep", TRAIN, ROUTED " parallel.dp=4 parallel.zero=3", "2", "4"),
    FIGURE("parallel.ep", TRAIN, ROUTED " parallel.dp=4", "2", "4", "expert_wait_ms"),
    TIME_OR_MEMORY("parallel.etp", TRAIN, ROUTED " parallel.tp=4", "0", "1"),
    TIME_OR_MEMORY("stack.dispatcher", TRAIN, ROUTED " parallel.dp=4 parallel.ep=4", "'alltoall'", "*"),
    TIME_OR_MEMORY("stack.dispatcher_sms", TRAIN, ROUTED " parallel.dp=4 parallel.ep=4 stack.dispatcher='deepep'", "0", "4"),
    TIME_OR_MEMORY("stack.shared_expert_overlap", TRAIN, ROUTED " model.shared_ffn=512 parallel.dp=4 parallel.ep=4", "false", "*"),
    TIME_OR_MEMORY("stack.expert_overlap", TRAIN, ROUTED " parallel.dp=4 parallel.ep=4", "false", "*"),
    TIME_OR_MEMORY("stack.delay_wgrad", TRAIN, ROUTED " parallel.dp=4 parallel.ep=4 stack.expert_overlap=true cluster.gpus_per_node=1 cluster.nics_per_node=1", "false", "*"),
    TIME_OR_MEMORY("model.expert_groups", TRAIN, "model.experts=32 model.experts_per_token=4 parallel.dp=32 parallel.ep=32 stack.dispatcher='deepep' model.expert_group_top_k=2", "4", "8"),
    TIME_OR_MEMORY("model.expert_group_top_k", TRAIN, "model.experts=32 model.experts_per_token=4 parallel.dp=32 parallel.ep=32 stack.dispatcher='deepep' model.expert_groups=4", "1", "2"),
    TIME_OR_MEMORY("parallel.zero_group", TRAIN, "parallel.dp=16", "0", "8"),
    TIME_OR_MEMORY("parallel.zero_group", TRAIN, "parallel.dp=16 parallel.zero=3", "0", "8"),
    TIME_OR_MEMORY("parallel.order", TRAIN, "parallel.tp=8 parallel.pp=2", "'tp-cp-dp-pp'", "'pp-tp-cp-dp'"),

    TIME_OR_MEMORY("network.detail", TRAIN, "parallel.tp=4 parallel.pp=4 parallel.dp=4 parallel.zero=3 cluster.nics_per_node=1", "'closed'", "*"),
    TIME_OR_MEMORY("network.collectives", TRAIN, "parallel.tp=8", "'profile'", "*"),
    TIME_OR_MEMORY("jitter.gpu_cv", TRAIN, "", "0", "0.05"),
    TIME_OR_MEMORY("jitter.seed", TRAIN, "jitter.gpu_cv=0.05", "1", "2"),

    TIME_OR_MEMORY("schedule.kind", UNIFORM, "parallel.pp=2 schedule.microbatches=8", "'1f1b'", "*"),
    TIME_OR_MEMORY("schedule.group", UNIFORM, "parallel.pp=2 parallel.chunks_per_rank=2 schedule.microbatches=8", "2", "4"),
    TIME_OR_MEMORY("schedule.group", UNIFORM, "parallel.pp=2 parallel.chunks_per_rank=2 schedule.microbatches=8", "4", "\"even\""),
    TIME_OR_MEMORY("schedule.slices", UNIFORM, "parallel.pp=2 schedule.kind='seq1f1b'", "2", "4"),
    TIME_OR_MEMORY("schedule.slice_rule", UNIFORM, "parallel.pp=2 schedule.kind='terapipe'", "'tokens'", "*"),
    TIME_OR_MEMORY("schedule.exchange", TRAIN, "parallel.pp=4 schedule.kind='slimpipe'", "false", "*"),
    TIME_OR_MEMORY("schedule.retained_chunks", TRAIN, "parallel.pp=2 strategy.kind='chunkflow' strategy.chunk_tokens=512", "1", "2"),
    TIME_OR_MEMORY("schedule.memory_limit_microbatches", UNIFORM, "parallel.pp=4 schedule.kind='zb-auto' schedule.microbatches=8", "4", "8"),
    TIME_OR_MEMORY("schedule.microbatches", UNIFORM, "", "4", "8"),
    TIME_OR_MEMORY("schedule.microbatch_samples", TRAIN, "", "1", "2"),

    TIME_OR_MEMORY("memory.recompute", TRAIN, LATENT, "'none'", "*"),
    TIME_OR_MEMORY("memory.attention", TRAIN, "", "'flash'", "*"),
    TIME_OR_MEMORY("memory.model", TRAIN, "", "'tensors'", "*"),
    TIME_OR_MEMORY("memory.offload_ratio", TRAIN, "parallel.pp=4", "0", "1"),
    TIME_OR_MEMORY("memory.offload_states", TRAIN, "", "0", "1"),
    FIGURE("memory.reserve_gib", TRAIN, "", "3", "10", "memory_margin_gib"),
    FIGURE("memory.limit_gib", TRAIN, "", "60", "70", "memory_margin_gib"),

    TIME_OR_MEMORY("workload.lengths", TRAIN, "", "[4096]", "[2048]"),
    TIME_OR_MEMORY("workload.lengths", UNIFORM, "workload.context=4096 workload.samples_per_batch=32", "'wikipedia'", "*"),
    TIME_OR_MEMORY("workload.column", UNIFORM, "workload.lengths='test_setting_effects.csv'", "'one'", "'other'"),
    TIME_OR_MEMORY("workload.uniform", UNIFORM, "", "2048", "4096"),
    TIME_OR_MEMORY("workload.context", TRAIN, "", "4096", "8192"),
    TIME_OR_MEMORY("workload.over_length", TRAIN, "workload.context=2048", "'drop'", "'truncate'"),
    TIME_OR_MEMORY("workload.over_length", TRAIN, "workload.context=2048", "'drop'", "'split'"),
    FIGURE("workload.over_length", TRAIN, "workload.context=2048", "'drop'", "'error'", "refused"),
    TIME_OR_MEMORY("workload.order", TRAIN, "", "'file'", "*"),
    TIME_OR_MEMORY("workload.samples_per_batch", TRAIN, "", "4", "8"),
    TIME_OR_MEMORY("workload.tokens_per_batch", TRAIN, "", "8192", "16384"),
    TIME_OR_MEMORY("workload.batches", TRAIN, "workload.samples_per_batch=4", "1", "2"),
    TIME_OR_MEMORY("workload.seed", TRAIN, "workload.order='shuffled' workload.samples_per_batch=4", "1", "2"),

    TIME_OR_MEMORY("strategy.kind", TRAIN, "parallel.dp=3 parallel.pp=2 workload.context=8192", "'packed'", "*"),
    TIME_OR_MEMORY("strategy.kind", TRAIN, "parallel.dp=3 parallel.zero=3 workload.context=8192", "'packed'", "'odc'"),
    TIME_OR_MEMORY("strategy.pad_to", TRAIN, "strategy.kind='padded'", "'context'", "*"),
    TIME_OR_MEMORY("strategy.cp_sharding", TRAIN, "parallel.cp=2", "'even'", "*"),
    TIME_OR_MEMORY("strategy.cp_ring_steps", TRAIN, "parallel.cp=4 strategy.cp_sharding='sequence' stack.cp_overlap='attention'", "false", "*"),
    TIME_OR_MEMORY("strategy.outlier_queues", TRAIN, "strategy.kind='balanced' workload.batches=3 workload.samples_per_batch=6", "2", "0"),
    TIME_OR_MEMORY("strategy.outlier_tokens", TRAIN, "strategy.kind='balanced' workload.batches=3 workload.samples_per_batch=6", "2000", "3950"),
    TIME_OR_MEMORY("strategy.pack_tokens", TRAIN, "strategy.kind='balanced' strategy.outlier_queues=0 workload.lengths=[3000,1096,2000,2096,1500,1500,1096]", "4096", "12000"),
    TIME_OR_MEMORY("strategy.max_per_pack", TRAIN, "strategy.kind='lpfhp'", "1", "4"),
    TIME_OR_MEMORY("strategy.rank_tokens", TRAIN, "parallel.dp=4 strategy.kind='hybrid-cp'", "1024", "4096"),
    TIME_OR_MEMORY("strategy.group_start_ms", TRAIN, "parallel.dp=4 strategy.kind='hybrid-cp' strategy.rank_tokens=1024", "0", "100"),
    TIME_OR_MEMORY("strategy.pack_rounds", TRAIN, "parallel.dp=4 strategy.kind='hybrid-cp' strategy.rank_tokens=1024", "false", "*"),
    TIME_OR_MEMORY("strategy.attention_across", TRAIN, "strategy.kind='concat'", "false", "*"),
    TIME_OR_MEMORY("strategy.chunk_tokens", TRAIN, "strategy.kind='chunkflow'", "1024", "2048"),
    TIME_OR_MEMORY("strategy.slice_tokens", TRAIN, "parallel.pp=2 strategy.kind='slimpipe'", "512", "1024"),
    NONE("strategy.time_limit_ms", "an end of the search by time: plans may stay as they are"),
    NONE("strategy.mip_gap", "integer programs may be solved to the end before the gap ends them"),
    TIME_OR_MEMORY("strategy.slices", TRAIN, "parallel.pp=4 strategy.kind='slimpack'", "true", "*"),
    TIME_OR_MEMORY("strategy.asymmetric", TRAIN, "parallel.pp=4 strategy.kind='slimpack'", "true", "*"),
    TIME_OR_MEMORY("strategy.taper", TRAIN, "parallel.pp=4 strategy.kind='slimpack'", "true", "*"),
    TIME_OR_MEMORY("strategy.dp_merge", TRAIN, "parallel.pp=2 parallel.dp=4 strategy.kind='slimpack' workload.context=16384 workload.lengths=[16384,300,200]", "true", "*"),
    TIME_OR_MEMORY("strategy.milp", TRAIN, "parallel.pp=2 parallel.dp=4 strategy.kind='slimpack'", "true", "*"),
    TIME_OR_MEMORY("strategy.zones", TRAIN, "parallel.dp=4 strategy.kind='zeppelin'", "true", "*"),
    TIME_OR_MEMORY("strategy.remap", TRAIN, "parallel.dp=16 strategy.kind='zeppelin' workload.context=65536 workload.lengths=[65536,9000,5000,300,200]", "true", "*"),
    TIME_OR_MEMORY("strategy.gathers", TRAIN, "parallel.dp=16 strategy.kind='zeppelin' workload.context=65536 workload.lengths=[65536,9000,5000,300,200] strategy.remap=false", "true", "*"),

    TIME_OR_MEMORY("prefill.attention", PREFILL, "", "'dense'", "*"),
    TIME_OR_MEMORY("prefill.alpha", PREFILL, "", "0.95", "0.8"),
    TIME_OR_MEMORY("prefill.window_share", PREFILL, "", "0.08", "0.2"),
    TIME_OR_MEMORY("prefill.row_share", PREFILL, "", "0.05", "0.1"),
    TIME_OR_MEMORY("prefill.stripe_share", PREFILL, "", "0.1", "0.3"),
    TIME_OR_MEMORY("prefill.fixed_us", PREFILL, "", "0", "500"),
    TIME_OR_MEMORY("prefill.deal", PREFILL, "", "'cost'", "*"),
    TIME_OR_MEMORY("prefill.chunk_tokens", PREFILL, "parallel.pp=2", "2048", "8192"),
    TIME_OR_MEMORY("prefill.together", PREFILL, "", "false", "*"),
    TIME_OR_MEMORY("prefill.dense_below", PREFILL, "", "0", "10000"),
    TIME_OR_MEMORY("prefill.dense_below", PREFILL, "", "0", "3001"),
    TIME_OR_MEMORY("prefill.dense_below", PREFILL, "prefill.chunk_tokens=2048", "0", "2049"),

    TIME_OR_MEMORY("decode.method", DECODE, "", "'plain'", "*"),
    TIME_OR_MEMORY("decode.depth", DECODE, "", "6", "8"),
    TIME_OR_MEMORY("decode.top_k", DECODE, "", "4", "10"),
    TIME_OR_MEMORY("decode.draft_tokens", DECODE, "", "30", "60"),
    TIME_OR_MEMORY("decode.alpha", DECODE, "", "1", "4"),
    TIME_OR_MEMORY("decode.extend", DECODE, "", "true", "*"),
    TIME_OR_MEMORY("decode.prune", DECODE, "", "true", "*"),
    TIME_OR_MEMORY("decode.keep", DECODE, "", "[0.3,0.6,1.0]", "[0.1,0.2,0.3]"),
    TIME_OR_MEMORY("decode.text.ease", DECODE, "", "0", "2"),
    TIME_OR_MEMORY("decode.text.spread", DECODE, "", "0.1", "2"),
    TIME_OR_MEMORY("decode.text.noise", DECODE, "", "0.1", "2"),
    TIME_OR_MEMORY("decode.text.persistence", DECODE, "", "0", "1"),
    TIME_OR_MEMORY("decode.text.agreement", DECODE, "", "1", "8"),
    TIME_OR_MEMORY("decode.text.blind", DECODE, "", "0", "0.5"),
    TIME_OR_MEMORY("decode.text.tokens_per_call", DECODE, "", "3", "5"),
    TIME_OR_MEMORY("decode.text.training_ease", DECODE, "", "-2", "3"),
    TIME_OR_MEMORY("decode.text.training_tokens_per_call", DECODE, "", "2", "6"),
    TIME_OR_MEMORY("decode.draft", DECODE, "model='llama-3-70b' parallel.tp=8", "'eagle'", "'llama-3-8b'"),
    TIME_OR_MEMORY("decode.draft_tp", DECODE, "parallel.tp=8 model='llama-3-70b' decode.draft='llama-3-8b'", "1", "2"),
    TIME_OR_MEMORY("decode.draft_gpus", DECODE, "", "'shared'", "*"),
    TIME_OR_MEMORY("decode.sequences", DECODE, "", "12", "13"),
    TIME_OR_MEMORY("decode.prompt_tokens", DECODE, "", "256", "8192"),
    TIME_OR_MEMORY("decode.output_tokens", DECODE, "", "64", "128"),
    TIME_OR_MEMORY("decode.batch", DECODE, "", "1", "2"),
    TIME_OR_MEMORY("decode.batch_policy", DECODE, "decode.batch=4", "'pad'", "*"),
    TIME_OR_MEMORY("decode.graphs", DECODE, "decode.graph_miss_ms=5", "64", "1"),
    TIME_OR_MEMORY("decode.graphs", DECODE, "decode.method='plain'", "64", "0"),
    FIGURE("decode.eagle_graphs", DECODE, "decode.graph_miss_ms=5", "64", "0", "speedup_over_eagle"),
    TIME_OR_MEMORY("decode.call_ms", DECODE, "", "0", "2"),
    TIME_OR_MEMORY("decode.graph_miss_ms", DECODE, "", "0", "5"),
};
// clang-format on

enum { EFFECTS = sizeof effects / sizeof effects[0], MOST_ASSIGNMENTS = 16 };

// Where the command puts them.
static void put_warnings(const sp_scenario *scenario, sp_run_kind run, json_t *result)
{
    sp_warnings warnings = {.count = 0};
    if (result != NULL) {
        sp_warn_of_unused(scenario, run, &warnings);
        sp_json_put(result, "warnings",
                    sp_json_lines(warnings.text[0], SP_WARNING_TEXT, warnings.count));
    }
}

static sp_status result_of(const sp_scenario *scenario, kind_of_run kind, json_t **result,
                           sp_error *err)
{
    AUTO(sp_batches) batches = {0};
    sp_status status = SP_OK;
    if (kind == DECODE) {
        sp_decode_result decoded;
        sp_decode_machine machine = sp_decode_machine_of(scenario);
        status = sp_decode_scenario(scenario, &decoded, err);
        *result =
            status == SP_OK ? sp_decode_result_json(scenario->decode, &machine, &decoded) : NULL;
        put_warnings(scenario, SP_RUN_DECODE, *result);
        return status;
    }
    status = sp_evaluate_batches(scenario, &batches, err);
    if (status == SP_OK && kind == PREFILL) {
        sp_prefill_result read;
        status = sp_prefill(scenario, &batches.batch[0], NULL, NULL, &read, err);
        *result = status == SP_OK ? sp_prefill_json(scenario, &read, 0) : NULL;
        put_warnings(scenario, SP_RUN_PREFILL, *result);
        if (status == SP_OK) {
            sp_prefill_result_fini(&read);
        }
    } else if (status == SP_OK) {
        const sp_evaluate_options options = {.allocator_peak = true, .effort_percent = 10};
        AUTO(sp_result) made;
        status = sp_evaluate(scenario, &batches, &options, &made, err);
        *result = status == SP_OK ? sp_result_json(&made, true) : NULL;
    }
    return status;
}

// Appends the settings of a text, or `key` with the text as its value.
static int add_assignments(const char *key, const char *text, char *space, size_t bytes,
                           const char **assignments, int count)
{
    char *rest = space;
    bool is_value = text[0] != '\0' && strchr(text, '=') == NULL;
    snprintf(space, bytes, "%s%s%s", is_value ? key : "", is_value ? "=" : "", text);
    for (char *c = space; *c != '\0'; c++) {
        *c = *c == '\'' ? '"' : *c;
    }
    for (char *word = strtok_r(space, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        assert_true(count < MOST_ASSIGNMENTS);
        assignments[count++] = word;
    }
    return count;
}

// The result with a value; an error where the scenario is refused.
static json_t *result_with(const effect *e, const char *value)
{
    char beside[512];
    char stated[512];
    const char *assignments[MOST_ASSIGNMENTS];
    int count = add_assignments(e->key, e->beside, beside, sizeof beside, assignments, 0);
    count = add_assignments(e->key, value, stated, sizeof stated, assignments, count);
    json_auto_t *root = json_document(documents[e->kind]);
    json_t *result = NULL;
    AUTO(sp_scenario) scenario;
    sp_error_clear(ERR);
    sp_status status = sp_scenario_from_json(root, "test.json", assignments, count, &scenario, ERR);
    if (status == SP_OK) {
        status = result_of(&scenario, e->kind, &result, ERR);
    }
    if (status != SP_OK) {
        result = json_pack("{s:s}", "refused", ERR->count > 0 ? ERR->message[0] : "");
    }
    return result;
}

static const json_t *figure_of(const json_t *result, const char *path)
{
    char text[128];
    char *rest = text;
    snprintf(text, sizeof text, "%s", path);
    for (char *word = strtok_r(text, ".", &rest); word != NULL; word = strtok_r(NULL, ".", &rest)) {
        result = json_is_array(result) ? json_array_get(result, (size_t)atoi(word))
                                       : json_object_get(result, word);
    }
    return result;
}

static bool differs(const json_t *a, const json_t *b, const char *path)
{
    const json_t *one = figure_of(a, path);
    const json_t *other = figure_of(b, path);
    return one != NULL && other != NULL && !json_equal(one, other);
}

static bool any_differs(const json_t *a, const json_t *b, const char *path)
{
    bool found = path != NULL && differs(a, b, path);
    for (int i = 0; path == NULL && times_and_memory[i] != NULL; i++) {
        found = found || differs(a, b, times_and_memory[i]);
    }
    return found;
}

static const char *refusal_of(const json_t *result)
{
    return json_string_value(json_object_get(result, "refused"));
}

// The values of enumerations, of names that are built in, and of strategies.
static const char *value_at(const sp_setting *setting, int index)
{
    return strcmp(setting->key, "strategy.kind") == 0 ? sp_strategy_names[index]
                                                      : sp_setting_value(setting, index);
}

// As it stands in a document: switches without quotes.
static const char *written(const sp_setting *setting, const char *value)
{
    bool is_switch = setting->kind == SP_SETTING_SWITCH;
    return json_text(is_switch ? "%s" : "\"%s\"", value);
}

static bool is_value(const sp_setting *setting, const char *value, const char *text)
{
    return strcmp(written(setting, value), json_text("%s", text)) == 0;
}

// Is the setting among those that have no effect?
static bool is_said_unused(const json_t *result, const char *key)
{
    const json_t *warnings = json_object_get(result, "warnings");
    size_t bytes = strlen(key);
    for (size_t i = 0; i < json_array_size(warnings); i++) {
        const char *text = json_string_value(json_array_get(warnings, i));
        const char *end = strstr(text, " no effect ");
        const char *at = text;
        while (end != NULL && (at = strstr(at, key)) != NULL && at < end) {
            if (at[bytes] == ' ' || at[bytes] == ',') {
                return true;
            }
            at += bytes;
        }
    }
    return false;
}

// Counts 1 where `other` makes no difference.
static int failures_of(const effect *e, const json_t *one, const char *other)
{
    json_auto_t *two = result_with(e, other);
    bool refusal = e->figure != NULL && strcmp(e->figure, "refused") == 0;
    const char *why = refusal_of(one) != NULL ? refusal_of(one) : refusal ? NULL : refusal_of(two);
    bool good =
        why == NULL && (refusal ? refusal_of(two) != NULL : any_differs(one, two, e->figure));
    if (!good) {
        print_message("%s (%s): %s and %s make no difference to %s%s%s\n", e->key, e->beside,
                      e->one, other, e->figure != NULL ? e->figure : "time and memory",
                      why != NULL ? ": " : "", why != NULL ? why : "");
    }
    if (is_said_unused(one, e->key) || is_said_unused(two, e->key)) {
        print_message("%s (%s): %s or %s is said to have no effect\n", e->key, e->beside, e->one,
                      other);
        good = false;
    }
    return !good;
}

static int failures_of_row(const effect *e)
{
    const sp_setting *setting = sp_setting_find(e->key);
    const char *value = NULL;
    json_auto_t *one = result_with(e, e->one);
    int failures = 0;
    if (strcmp(e->other, "*") != 0) {
        failures = failures_of(e, one, e->other);
    } else {
        for (int v = 0; (value = value_at(setting, v)) != NULL; v++) {
            // What is one-sided has no pipeline, and a row of its own.
            const sp_strategy *strategy = sp_strategy_find(value);
            bool apart = strategy != NULL && strategy->one_sided;
            if (!apart && !is_value(setting, value, e->one)) {
                failures += failures_of(e, one, written(setting, value));
            }
        }
    }
    return failures;
}

#define COLUMNS "test_setting_effects.csv"
enum { FOLDER = 64 };

// In a folder of its own, which becomes the current one: tests run side by side.
static void write_columns(char folder[FOLDER])
{
    snprintf(folder, FOLDER, "/tmp/slimpack-settings-XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    put_file(COLUMNS, "one,other\n4096,100\n4096,200\n");
}

static void remove_columns(const char *folder)
{
    remove(COLUMNS);
    assert_int_equal(chdir("/"), 0);
    rmdir(folder);
}

static void check_rows(kind_of_run first, kind_of_run last)
{
    int failures = 0;
    char folder[FOLDER];
    write_columns(folder);
    for (int i = 0; i < EFFECTS; i += test_step()) {
        bool here = effects[i].kind >= first && effects[i].kind <= last;
        failures += effects[i].none == NULL && here ? failures_of_row(&effects[i]) : 0;
    }
    remove_columns(folder);
    assert_int_equal(failures, 0);
}

TEST(settings_of_a_step_change_a_figure)
{
    check_rows(TRAIN, TRAIN);
}

TEST(settings_of_other_runs_change_a_figure)
{
    check_rows(UNIFORM, DECODE);
}

static bool has_row(const char *key)
{
    for (int i = 0; i < EFFECTS; i++) {
        if (strcmp(effects[i].key, key) == 0) {
            return true;
        }
    }
    return false;
}

// An object has none of its own: the keys in it do.
static bool is_section(const char *key)
{
    const sp_setting *setting = NULL;
    size_t length = strlen(key);
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        if (strncmp(setting->key, key, length) == 0 && setting->key[length] == '.') {
            return true;
        }
    }
    return false;
}

TEST(every_setting_has_a_row)
{
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        must_hold(has_row(setting->key) || is_section(setting->key),
                  "%s has no row here: say what it changes, or why it changes nothing",
                  setting->key);
    }
    for (int i = 0; i < EFFECTS; i++) {
        setting = sp_setting_find(effects[i].key);
        must_hold(setting != NULL && strcmp(setting->key, effects[i].key) == 0,
                  "%s is not in the table of settings", effects[i].key);
    }
}

static bool value_has_row(const sp_setting *setting, const char *value)
{
    for (int i = 0; i < EFFECTS; i++) {
        const effect *e = &effects[i];
        if (strcmp(e->key, setting->key) == 0 &&
            (e->none != NULL || strcmp(e->other, "*") == 0 || is_value(setting, value, e->one) ||
             is_value(setting, value, e->other))) {
            return true;
        }
    }
    return false;
}

// Models and clusters that are built in stand for what their own keys say.
TEST(every_value_of_an_enumeration_has_a_row)
{
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        const char *value = NULL;
        bool is_named = strcmp(setting->key, "model") == 0 || strcmp(setting->key, "cluster") == 0;
        for (int v = 0; !is_named && (value = value_at(setting, v)) != NULL; v++) {
            must_hold(value_has_row(setting, value), "%s \"%s\" has no row here", setting->key,
                      value);
        }
    }
}

// Scenarios in which a setting has no effect: `one` and `other` give one result, and what is stated
// otherwise than by default is said.
// clang-format off
static const effect voids[] = {
    TIME_OR_MEMORY("prefill.alpha", TRAIN, "", "0.95", "0.5"),
    TIME_OR_MEMORY("decode.batch", TRAIN, "", "1", "2"),
    TIME_OR_MEMORY("stack.hide_forward_gather", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.hide_forward_reduce", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.hide_backward_gather", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.hide_backward_reduce", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.keep_gathered_inputs", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.lingering_inputs", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("parallel.sequence_parallel", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.gathered_logits", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("cluster.host_adam_gb_per_s", TRAIN, "", "0", "60"),
    TIME_OR_MEMORY("stack.blocking_transfers", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("parallel.vocab_parallel", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.whole_transfers", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.whole_transfers", TRAIN, "parallel.pp=2", "false", "true"),
    TIME_OR_MEMORY("stack.whole_transfers", TRAIN, "parallel.pp=2 parallel.tp=2", "false", "true"),
    TIME_OR_MEMORY("stack.blocking_launches", TRAIN, "profile='linear'", "false", "true"),
    TIME_OR_MEMORY("stack.blocking_launches", TRAIN, "profile='linear' stack='megatron-core-2025' parallel.pp=2", "false", "true"),
    TIME_OR_MEMORY("model.max_positions", TRAIN, "", "0", "4096"),
    TIME_OR_MEMORY("stack.fused_swiglu", TRAIN, "model.activation='gelu'", "false", "true"),
    TIME_OR_MEMORY("stack.hide_gradient_reduce", TRAIN, "parallel.dp=2 parallel.zero=2", "false", "true"),
    TIME_OR_MEMORY("stack.hide_parameter_gather", TRAIN, "parallel.dp=2 parallel.zero=0", "false", "true"),
    TIME_OR_MEMORY("stack.hide_parameter_gather", TRAIN, "parallel.dp=2 parallel.zero=3", "false", "true"),
    TIME_OR_MEMORY("stack.bucketed_tail", TRAIN, "parallel.dp=2 parallel.zero=3", "false", "true"),
    TIME_OR_MEMORY("stack.bucket_mib", TRAIN, "parallel.dp=2", "0", "100"),
    TIME_OR_MEMORY("stack.hide_gradient_reduce", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.bucketed_tail", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.bucket_mib", TRAIN, "", "0", "100"),
    TIME_OR_MEMORY("stack.hide_parameter_gather", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.gradient_buckets", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("parallel.zero", TRAIN, "parallel.pp=2", "1", "2"),
    TIME_OR_MEMORY("parallel.zero", TRAIN, "stack.tensors='explicit'", "1", "3"),
    TIME_OR_MEMORY("stack.hide_gradient_all_reduce", TRAIN, "parallel.dp=2", "false", "true"),
    TIME_OR_MEMORY("stack.sharded_step", TRAIN, "parallel.dp=2", "false", "true"),
    TIME_OR_MEMORY("stack.fused_softmax_limited", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.unfused_softmax", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.score_buffer", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.rooted_shares", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.cp_ring_nics", TRAIN, "parallel.cp=2 stack.cp_overlap='attention'", "0", "1"),
    TIME_OR_MEMORY("stack.bucketed_tail", TRAIN, "stack.name='megatron-core-2025' parallel.dp=2", "true", "false"),
    TIME_OR_MEMORY("stack.hide_gradient_all_reduce", TRAIN, "parallel.dp=2 parallel.zero=0 stack.hide_gradient_reduce=true", "false", "true"),
    TIME_OR_MEMORY("stack.hide_parameter_gather", TRAIN, "stack.name='hf-trainer' parallel.dp=2", "false", "true"),
    TIME_OR_MEMORY("stack.cudnn_attention", TRAIN, "stack.name='cuda'", "true", "false"),
    TIME_OR_MEMORY("stack.cp_overlap", TRAIN, "parallel.dp=2", "'attention'", "'blocking'"),
    TIME_OR_MEMORY("stack.cp_a2a_ranks", TRAIN, "parallel.cp=2", "0", "2"),
    TIME_OR_MEMORY("stack.cp_ring_nics", TRAIN, "", "0", "1"),
    TIME_OR_MEMORY("stack.cp_ring_nics", TRAIN, "parallel.cp=2 stack.cp_overlap='blocking'", "0", "1"),
    TIME_OR_MEMORY("stack.cp_lone_rings", TRAIN, "parallel.cp=2", "false", "true"),
    TIME_OR_MEMORY("stack.padded_documents", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("stack.padded_documents", TRAIN, "parallel.cp=2 strategy.kind='concat'", "false", "true"),
    TIME_OR_MEMORY("stack.padded_documents", TRAIN, "parallel.cp=2 strategy.cp_sharding='document'", "false", "true"),
    TIME_OR_MEMORY("cluster.nvlink_latency_us", TRAIN, "parallel.tp=8", "", "1000"),
    TIME_OR_MEMORY("parallel.order", TRAIN, "parallel.dp=2", "'tp-cp-dp-pp'", "'pp-tp-cp-dp'"),
    TIME_OR_MEMORY("parallel.order", TRAIN, "parallel.dp=2 parallel.tp=2", "'tp-cp-dp-pp'", "'pp-tp-cp-dp'"),
    TIME_OR_MEMORY("cluster.fabric.spine_latency_us", TRAIN, "parallel.dp=32 cluster.fabric.nodes_per_leaf=1", "0", "500"),
    TIME_OR_MEMORY("cluster.nvls", TRAIN, "parallel.tp=8", "", "false"),
    TIME_OR_MEMORY("workload.over_length", UNIFORM, "", "'drop'", "'truncate'"),
    TIME_OR_MEMORY("network.detail", TRAIN, "parallel.tp=2", "'closed'", "'flows'"),
    TIME_OR_MEMORY("network.collectives", TRAIN, "parallel.pp=2", "'profile'", "'ring'"),
    TIME_OR_MEMORY("jitter.seed", TRAIN, "", "1", "2"),
    TIME_OR_MEMORY("schedule.group", UNIFORM, "parallel.pp=2", "2", "4"),
    TIME_OR_MEMORY("schedule.group", COSTS, "", "4", "8"),
    TIME_OR_MEMORY("uniform_costs.per_chunk", COSTS, "", "false", "true"),
    TIME_OR_MEMORY("uniform_costs.attention_share", COSTS, "", "0", "0.5"),
    TIME_OR_MEMORY("schedule.slices", UNIFORM, "parallel.pp=2", "1", "4"),
    TIME_OR_MEMORY("schedule.slices", COSTS, "", "1", "4"),
    TIME_OR_MEMORY("schedule.slices", TRAIN, "parallel.pp=2 strategy.kind='slimpack'", "", "4"),
    TIME_OR_MEMORY("schedule.slices", TRAIN, "parallel.pp=2 strategy.kind='slimpipe' strategy.slice_tokens=512", "2", "4"),
    TIME_OR_MEMORY("schedule.slices", UNIFORM, "parallel.pp=2 schedule.kind='terapipe' schedule.slice_rule='shortest'", "2", "4"),
    TIME_OR_MEMORY("schedule.slice_rule", UNIFORM, "parallel.pp=2", "'tokens'", "'flops'"),
    TIME_OR_MEMORY("schedule.exchange", UNIFORM, "parallel.pp=2", "false", "true"),
    TIME_OR_MEMORY("schedule.retained_chunks", TRAIN, "parallel.pp=2", "1", "2"),
    TIME_OR_MEMORY("schedule.memory_limit_microbatches", UNIFORM, "parallel.pp=4", "4", "8"),
    TIME_OR_MEMORY("schedule.microbatch_samples", TRAIN, "parallel.dp=2 strategy.kind='hybrid-cp'", "1", "2"),
    TIME_OR_MEMORY("memory.reserve_gib", TRAIN, "memory.limit_gib=40", "3", "10"),
    TIME_OR_MEMORY("workload.order", UNIFORM, "", "'shuffled'", "'file'"),
    TIME_OR_MEMORY("workload.seed", UNIFORM, "", "1", "2"),
    TIME_OR_MEMORY("workload.seed", TRAIN, "", "1", "2"),
    TIME_OR_MEMORY("strategy.cp_sharding", TRAIN, "parallel.dp=2", "'even'", "'document'"),
    TIME_OR_MEMORY("strategy.cp_ring_steps", TRAIN, "parallel.cp=2", "false", "true"),
    TIME_OR_MEMORY("strategy.group_start_ms", TRAIN, "parallel.dp=2", "0", "50"),
    TIME_OR_MEMORY("strategy.pad_to", TRAIN, "", "'context'", "'longest'"),
    TIME_OR_MEMORY("strategy.outlier_queues", TRAIN, "", "2", "0"),
    TIME_OR_MEMORY("strategy.outlier_tokens", TRAIN, "strategy.kind='balanced' strategy.outlier_queues=0", "", "1000"),
    TIME_OR_MEMORY("strategy.pack_tokens", TRAIN, "", "", "5000"),
    TIME_OR_MEMORY("strategy.max_per_pack", TRAIN, "", "", "2"),
    TIME_OR_MEMORY("strategy.rank_tokens", TRAIN, "parallel.dp=2", "", "1000"),
    TIME_OR_MEMORY("strategy.pack_rounds", TRAIN, "parallel.dp=2", "false", "true"),
    TIME_OR_MEMORY("strategy.attention_across", TRAIN, "", "false", "true"),
    TIME_OR_MEMORY("strategy.chunk_tokens", TRAIN, "", "", "1024"),
    TIME_OR_MEMORY("strategy.slice_tokens", TRAIN, "", "", "1024"),
    TIME_OR_MEMORY("strategy.slice_tokens", TRAIN, "parallel.pp=2 strategy.kind='slimpack' strategy.slices=false", "", "1024"),
    TIME_OR_MEMORY("strategy.time_limit_ms", TRAIN, "", "", "1000"),
    TIME_OR_MEMORY("strategy.mip_gap", TRAIN, "", "", "0.1"),
    TIME_OR_MEMORY("strategy.mip_gap", TRAIN, "parallel.dp=2 strategy.kind='slimpack' strategy.milp=false", "", "0.1"),
    TIME_OR_MEMORY("strategy.slices", TRAIN, "", "true", "false"),
    TIME_OR_MEMORY("strategy.asymmetric", TRAIN, "strategy.kind='slimpack-symmetric'", "true", "false"),
    TIME_OR_MEMORY("strategy.taper", TRAIN, "", "true", "false"),
    TIME_OR_MEMORY("strategy.dp_merge", TRAIN, "strategy.kind='slimpack'", "true", "false"),
    TIME_OR_MEMORY("strategy.milp", TRAIN, "", "true", "false"),
    TIME_OR_MEMORY("strategy.zones", TRAIN, "", "true", "false"),
    TIME_OR_MEMORY("strategy.remap", TRAIN, "", "true", "false"),
    TIME_OR_MEMORY("strategy.gathers", TRAIN, "", "true", "false"),
    TIME_OR_MEMORY("strategy.kind", PREFILL, "", "'packed'", "'slimpack'"),
    TIME_OR_MEMORY("strategy.taper", PREFILL, "", "true", "false"),
    TIME_OR_MEMORY("schedule.kind", PREFILL, "", "'1f1b'", "'gpipe'"),
    TIME_OR_MEMORY("memory.recompute", PREFILL, "", "'none'", "'full'"),
    TIME_OR_MEMORY("network.detail", PREFILL, "parallel.pp=2", "'closed'", "'flows'"),
    TIME_OR_MEMORY("decode.batch", PREFILL, "", "1", "2"),
    TIME_OR_MEMORY("parallel.zero", PREFILL, "parallel.cp=2", "1", "0"),
    TIME_OR_MEMORY("stack.cp_overlap", PREFILL, "", "'attention'", "'blocking'"),
    TIME_OR_MEMORY("prefill.alpha", PREFILL, "prefill.attention='dense'", "0.95", "0.5"),
    TIME_OR_MEMORY("prefill.deal", PREFILL, "prefill.attention='xattention'", "'cost'", "'heads'"),
    TIME_OR_MEMORY("prefill.dense_below", PREFILL, "prefill.attention='dense'", "0", "4096"),
    TIME_OR_MEMORY("prefill.dense_below", PREFILL, "", "0", "3000"),
    TIME_OR_MEMORY("prefill.dense_below", PREFILL, "prefill.chunk_tokens=2048", "0", "2048"),
    TIME_OR_MEMORY("workload.batches", PREFILL, "workload.samples_per_batch=1", "1", "2"),
    TIME_OR_MEMORY("stack.score_buffer", PREFILL, "", "false", "true"),
    TIME_OR_MEMORY("stack.unfused_softmax", PREFILL, "", "false", "true"),
    TIME_OR_MEMORY("stack.blocking_transfers", PREFILL, "", "false", "true"),
    TIME_OR_MEMORY("network.collectives", PREFILL, "", "'profile'", "'ring'"),
    TIME_OR_MEMORY("schedule.microbatch_samples", PREFILL, "", "1", "2"),
    TIME_OR_MEMORY("workload.lengths", DECODE, "", "", "[100,200]"),
    TIME_OR_MEMORY("schedule.kind", DECODE, "", "'1f1b'", "'gpipe'"),
    TIME_OR_MEMORY("stack.work_spaces", DECODE, "", "0", "4"),
    TIME_OR_MEMORY("stack.hide_forward_gather", DECODE, "parallel.tp=2", "true", "false"),
    TIME_OR_MEMORY("stack.hide_forward_reduce", DECODE, "", "true", "false"),
    TIME_OR_MEMORY("parallel.vocab_parallel", DECODE, "", "false", "true"),
    TIME_OR_MEMORY("network.collectives", DECODE, "", "'profile'", "'ring'"),
    TIME_OR_MEMORY("schedule.slices", DECODE, "parallel.pp=2", "1", "4"),
    TIME_OR_MEMORY("memory.attention", DECODE, "", "'flash'", "'unfused'"),
    TIME_OR_MEMORY("prefill.alpha", DECODE, "", "0.95", "0.5"),
    TIME_OR_MEMORY("decode.depth", DECODE, "decode.method='plain'", "8", "6"),
    TIME_OR_MEMORY("decode.text.ease", DECODE, "decode.method='plain'", "0.57", "1"),
    TIME_OR_MEMORY("decode.graphs", DECODE, "profile='a100' decode.method='plain'", "64", "0"),
    TIME_OR_MEMORY("decode.alpha", DECODE, "decode.method='eagle'", "4", "2"),
    TIME_OR_MEMORY("decode.alpha", DECODE, "decode.extend=false decode.prune=false", "4", "2"),
    TIME_OR_MEMORY("decode.keep", DECODE, "decode.prune=false", "[0.3,0.6,1.0]", "[0.1,0.2,0.3]"),
    TIME_OR_MEMORY("decode.batch_policy", DECODE, "decode.batch=1", "'pad'", "'ragged'"),
    TIME_OR_MEMORY("decode.batch_policy", DECODE, "decode.batch=4 decode.method='eagle'", "'pad'", "'bucket'"),
    TIME_OR_MEMORY("decode.batch_policy", DECODE, "decode.batch=4 decode.extend=false decode.prune=false", "'pad'", "'ragged'"),
    TIME_OR_MEMORY("stack.blocking_launches", DECODE, "", "false", "true"),
    TIME_OR_MEMORY("stack.blocking_launches", PREFILL, "profile='linear'", "false", "true"),
};
// clang-format on

enum { VOIDS = sizeof voids / sizeof voids[0] };

static int failures_of_void(const effect *e)
{
    json_auto_t *one = result_with(e, e->one);
    json_auto_t *two = result_with(e, e->other);
    bool good = refusal_of(one) == NULL && refusal_of(two) == NULL &&
                !any_differs(one, two, NULL) && !is_said_unused(one, e->key) &&
                is_said_unused(two, e->key);
    if (!good) {
        const char *why = refusal_of(two) != NULL ? refusal_of(two) : "";
        print_message("%s (%s): %s and %s: %s%s%s%s\n", e->key, e->beside, e->one, e->other, why,
                      any_differs(one, two, NULL) ? "there is a difference; " : "",
                      is_said_unused(one, e->key) ? "the first is said to have no effect; " : "",
                      is_said_unused(two, e->key) ? "" : "the second is not said");
    }
    return !good;
}

TEST(settings_without_an_effect_are_said)
{
    int failures = 0;
    for (int i = 0; i < VOIDS; i += test_step()) {
        failures += failures_of_void(&voids[i]);
    }
    assert_int_equal(failures, 0);
}

// Rows that change nothing in a plain document for a reason of their own.
static const struct {
    const char *keys; // with spaces between them
    const char *runs; // digits of kind_of_run
    const char *why;
} silent[] = {
    {"cluster.gpu cluster.memory_gib cluster.nvlink_gb_per_s cluster.nvlink_latency_us "
     "cluster.nic_gbit_per_s cluster.host_link_gb_per_s cluster.gpus_per_node "
     "cluster.nics_per_node",
     "0134", "the machine as it is, of which a layout may use a part"},
    {"model.name model.norm model.ignored_dropout model.tied_embeddings model.qkv_bias "
     "model.output_bias model.mlp_bias model.head_bias model.attention_sinks",
     "34", "the model as it is, of which prompts and text may need a part"},
    {"stack stack.name", "34", "a name stands for switches, of which prompts and text read few"},
    {"parallel.dp", "2", "replicas of the same costs"},
    {"schedule.kind", "01", "one pipeline rank, on which most orders are one"},
    {"schedule.kind", "2", "costs without memory: GPipe takes as long as 1F1B"},
    {"strategy.kind", "01", "a strategy may find the packs of another one"},
    {"memory.offload_ratio", "01", "warned of in words of its own"},
    {"memory.reserve_gib memory.limit_gib", "34", "a limit that nothing comes near"},
    {"workload.context workload.order workload.over_length workload.tokens_per_batch", "3",
     "two prompts, which fit, and of which one stands alone"},
    {"workload.over_length", "0", "no sample is longer than the context"},
    {"workload.samples_per_batch", "4", "follows from the lengths in resolved documents"},
    {"model.blocks", "34", "on one rank two norms of one input take what they take in turn"},
    {"workload.batches", "01", "a batch takes all samples, and uniform ones are one batch again"},
};

static bool may_be_silent(const char *key, kind_of_run kind)
{
    size_t bytes = strlen(key);
    for (size_t i = 0; i < sizeof silent / sizeof silent[0]; i++) {
        const char *at = silent[i].keys;
        bool here = strchr(silent[i].runs, '0' + (int)kind) != NULL;
        for (; here && (at = strstr(at, key)) != NULL; at += bytes) {
            bool begins = at == silent[i].keys || at[-1] == ' ';
            if (begins && (at[bytes] == ' ' || at[bytes] == '\0')) {
                return true;
            }
        }
    }
    return false;
}

static bool is_refused_anywhere(const json_t *one, const json_t *two)
{
    return refusal_of(one) != NULL || refusal_of(two) != NULL;
}

// Counts 1 where a value changes nothing in a plain document and nothing says so, or where it is
// said to change nothing, and does.
static int failures_of_words(const effect *e, const json_t *one, const char *other)
{
    json_auto_t *two = result_with(e, other);
    bool said = is_said_unused(one, e->key) || is_said_unused(two, e->key);
    bool differ = any_differs(one, two, NULL) || any_differs(one, two, e->figure);
    bool may_be = e->beside[0] != '\0' || may_be_silent(e->key, e->kind);
    bool wrong = differ ? is_said_unused(two, e->key) : !said && !may_be;
    bool good = is_refused_anywhere(one, two) || !wrong;
    if (!good) {
        print_message("%s (%s): %s and %s %s in document %d, and %s\n", e->key, e->beside, e->one,
                      other, differ ? "differ" : "change nothing", (int)e->kind,
                      said ? "are said not to" : "nothing says so");
    }
    return !good;
}

// Plain documents, and other layouts and software of prompts and text. check_runs() takes some.
static const struct {
    kind_of_run kind;
    const char *beside;
} layouts[] = {
    {TRAIN, ""},
    {UNIFORM, ""},
    {COSTS, ""},
    {PREFILL, ""},
    {PREFILL, "cluster='h100-8' parallel.tp=2 parallel.pp=2"},
    {PREFILL, "cluster='h100-8' parallel.tp=2 parallel.sequence_parallel=false stack='ours'"},
    {PREFILL, "parallel.cp=2 memory.attention='unfused' prefill.attention='dense'"},
    {PREFILL, "profile='linear' parallel.cp=2 stack.cp_overlap='attention'"},
    {DECODE, ""},
    {DECODE, "parallel.tp=2 parallel.dp=2"},
    {DECODE, "parallel.tp=2 parallel.pp=2 decode.method='plain'"},
    {DECODE, "profile='linear' stack='ours' decode.method='eagle' memory.attention='unfused'"},
};

// Settings change something in these runs or are said not to. Not in full: every eighth of them,
// others in each layout; under a sanitizer every sixteenth.
static void check_runs(int first, int count)
{
    int failures = 0;
    const int step = test_is_full() ? 1 : test_is_sanitized() ? 16 : 8;
    char folder[FOLDER];
    write_columns(folder);
    for (int l = first; l < first + count; l++) {
        for (int i = l % step; i < EFFECTS; i += step) {
            effect e = effects[i];
            const sp_setting *setting = sp_setting_find(e.key);
            const char *value = NULL;
            e.kind = layouts[l].kind;
            e.beside = layouts[l].beside;
            json_auto_t *one = e.none == NULL ? result_with(&e, e.one) : NULL;
            if (e.none == NULL && strcmp(e.other, "*") != 0) {
                failures += failures_of_words(&e, one, e.other);
            }
            for (int v = 0; e.none == NULL && strcmp(e.other, "*") == 0 &&
                            (value = value_at(setting, v)) != NULL;
                 v++) {
                if (!is_value(setting, value, e.one)) {
                    failures += failures_of_words(&e, one, written(setting, value));
                }
            }
        }
    }
    remove_columns(folder);
    assert_int_equal(failures, 0);
}

TEST_CALL(in_training, check_runs(0, 1))
TEST_CALL(in_training_of_uniform_samples, check_runs(1, 1))
TEST_CALL(in_schedules_of_stated_costs, check_runs(2, 1))
TEST_CALL(in_reading_prompts, check_runs(3, 5))
TEST_CALL(in_making_text, check_runs(8, 1))
TEST_CALL(in_making_text_on_replicas, check_runs(9, 1))
TEST_CALL(in_making_text_without_drafts, check_runs(10, 1))
TEST_CALL(in_making_text_with_trees, check_runs(11, 1))

// A resolved document states the context and the length of uniform samples, whichever was stated.
TEST(lengths_that_decoding_does_not_read_are_said)
{
    static const char *const assignments[] = {"workload.uniform=64", "workload.context=8192"};
    for (int i = 0; i < 2; i++) {
        AUTO(sp_scenario) scenario;
        sp_warnings unused = {.count = 0};
        json_auto_t *root = json_document(documents[DECODE]);
        must_succeed(sp_scenario_from_json(root, "test.json", &assignments[i], 1, &scenario, ERR));
        sp_warn_of_unused(&scenario, SP_RUN_DECODE, &unused);
        assert_int_equal(unused.count, 1);
        assert_memory_equal(unused.text[0], assignments[i], strcspn(assignments[i], "="));
    }
}

// Megatron's number of micro-batches is a whole one (num_microbatches_calculator.py: the batch must
// be divisible by micro-batch size times data parallel size); slimpack's own stacks take any batch.
TEST(batches_that_do_not_divide_are_said)
{
    for (int i = 0; i < 3 * 3 * 13 * 2; i++) {
        const int dp = 1 + i % 3;
        const int rows = 1 + i / 3 % 3;
        const int samples = 1 + i / 9 % 13;
        const bool whole = i / 117 == 0;
        AUTO(sp_scenario) scenario;
        sp_warnings told = {.count = 0};
        const char *text = json_text(
            "{'model':'llama-7b','parallel':{'dp':%d},'schedule':{'microbatch_samples':%d},"
            "'workload':{'context':512,'samples_per_batch':%d},'stack':'%s'}",
            dp, rows, samples, whole ? "megatron-core-2025" : "reference");
        json_auto_t *root = json_document(text);
        must_succeed(sp_scenario_from_json(root, "test.json", NULL, 0, &scenario, ERR));
        sp_warn_of_unused(&scenario, SP_RUN_STEP, &told);
        int said = 0;
        for (int w = 0; w < told.count; w++) {
            said += strstr(told.text[w], "is no multiple of") != NULL;
        }
        assert_int_equal(said, whole && samples % (rows * dp) != 0);
    }
}

static sp_run_kind run_of(kind_of_run kind)
{
    return kind == PREFILL ? SP_RUN_PREFILL : kind == DECODE ? SP_RUN_DECODE : SP_RUN_STEP;
}

// What is unused in a document, which becomes the resolved one; false: it is refused.
static bool resolve_unused(json_t **root, const char *const *assignments, int count,
                           kind_of_run kind, sp_warnings *unused)
{
    AUTO(sp_scenario) scenario;
    sp_error_clear(ERR);
    sp_status status =
        sp_scenario_from_json(*root, "test.json", assignments, count, &scenario, ERR);
    if (status == SP_OK && run_of(kind) == SP_RUN_STEP) {
        status = sp_strategy_resolve(&scenario, false, ERR);
    }
    if (status == SP_OK) {
        sp_warn_of_unused(&scenario, run_of(kind), unused);
        json_decref(*root);
        *root = json_incref(scenario.resolved);
    }
    return status == SP_OK;
}

// A resolved document states every setting: what was unused stays so, and nothing else is.
static int failures_as_resolved(const effect *e)
{
    char beside[512];
    char stated[512];
    const char *assignments[MOST_ASSIGNMENTS];
    const char *value = strcmp(e->other, "*") == 0 ? e->one : e->other;
    int count = add_assignments(e->key, e->beside, beside, sizeof beside, assignments, 0);
    count = add_assignments(e->key, value, stated, sizeof stated, assignments, count);
    json_auto_t *root = json_document(documents[e->kind]);
    sp_warnings first = {.count = 0};
    sp_warnings second = {.count = 0};
    bool good = true;
    if (resolve_unused(&root, assignments, count, e->kind, &first)) {
        good = resolve_unused(&root, NULL, 0, e->kind, &second) && first.count == second.count;
        for (int i = 0; good && i < first.count; i++) {
            good = strcmp(first.text[i], second.text[i]) == 0;
        }
    }
    if (!good) {
        print_message("%s (%s): %s: resolved it is unused otherwise: %d and %d: %s; %s\n", e->key,
                      e->beside, value, first.count, second.count, first.text[0], second.text[0]);
    }
    return !good;
}

TEST(resolved_documents_leave_as_much_unused)
{
    int failures = 0;
    char folder[FOLDER];
    write_columns(folder);
    for (int i = 0; i < EFFECTS; i += test_step()) {
        failures += effects[i].none == NULL ? failures_as_resolved(&effects[i]) : 0;
    }
    for (int i = 0; i < VOIDS; i += test_step()) {
        failures += failures_as_resolved(&voids[i]);
    }
    remove_columns(folder);
    assert_int_equal(failures, 0);
}

// ---- stated values that something else takes the place of ----

static const sp_evaluate_options usual = {.no_bounds = true};

#define TWO_STAGES                                                                          \
    MODEL ", 'parallel': {'pp': 2}, 'workload': {'lengths': [4096, 300, 1500, 2500, 900], " \
          "'context': 4096}, "

TEST(an_order_that_a_strategy_replaces_is_said)
{
    static const char *const names[] = {"packed", "slimpack"};
    AUTO(sp_batches) batches = {0};
    sp_comparison_row rows[2];
    SCENARIO_READ(scenario, TWO_STAGES
                  "'schedule': {'kind': 'gpipe'}, 'strategy': {'taper': false, 'pad_to': "
                  "'longest'}}");
    must_succeed(sp_evaluate_batches(&scenario, &batches, ERR));
    must_succeed(sp_compare(&scenario, &batches, names, 2, &usual, rows, ERR));
    assert_false(run_warned(&rows[0].result.warnings, "schedule.kind"));
    assert_true(run_warned(&rows[1].result.warnings, "schedule.kind \"gpipe\" is not for strategy "
                                                     "slimpack, which brings its own order"));
    // One row reads strategy.taper, none strategy.pad_to.
    sp_warnings *const warnings[] = {&rows[0].result.warnings, &rows[1].result.warnings};
    assert_true(run_warned(warnings[0], "strategy.taper has no effect"));
    sp_keep_unused_of_all(warnings, 2);
    assert_false(run_warned(warnings[0], "strategy.taper has no effect"));
    for (int i = 0; i < 2; i++) {
        assert_true(run_warned(warnings[i], "strategy.pad_to has no effect"));
    }
    assert_true(run_warned(warnings[1], "schedule.kind"));
    sp_compare_fini(rows, 2);
}

// The layers make two chunks on each of two ranks, and 10 do not.
TEST(interleaving_of_one_chunk_is_said)
{
    SCENARIO_RUN(r, TWO_STAGES "'schedule': {'kind': 'interleaved'}}", &usual);
    assert_false(run_warned(&r.result.warnings, "one chunk per rank"));
    scenario_run_fini(&r);
    run_good("{'model': {'layers': 10, 'hidden': 512, 'heads': 8, 'vocab': 1000, 'ffn': 1024}, "
             "'parallel': {'pp': 2}, 'schedule': {'kind': 'interleaved'}}",
             &usual, &r);
    assert_true(run_warned(&r.result.warnings, "one chunk per rank"));
}

TEST(a_strategy_that_runs_as_another_is_said)
{
    AUTO(scenario_run) r;
    read_good(TWO_STAGES "'strategy': {'kind': 'te-cp'}}", &r.scenario);
    snprintf(r.scenario.strategy.asked, sizeof r.scenario.strategy.asked, "zeppelin");
    must_succeed(sp_evaluate_batches(&r.scenario, &r.batches, ERR));
    must_succeed(sp_evaluate(&r.scenario, &r.batches, &usual, &r.result, ERR));
    assert_true(run_warned(&r.result.warnings, "zeppelin runs this job as te-cp does"));
}

TEST(nodes_are_stated_once)
{
    sp_scenario scenario;
    must_fail(run_read("{'model': 'llama-13b', 'cluster': {'name': 'h100-8', 'nodes': 2}, "
                       "'nodes': 1, 'parallel': {'tp': 8}}",
                       &scenario, ERR),
              SP_ERR_CONTENT, "test.json: nodes: is 1, cluster.nodes is 2: state one of them");
}
