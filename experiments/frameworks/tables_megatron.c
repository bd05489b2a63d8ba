// The list of frameworks, and Megatron-LM with what has its names: Megatron-Bridge and NeMo.
#include <stdlib.h>
#include <string.h>

#include "experiments/frameworks/frameworks.h"
#include "experiments/frameworks/private.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/model/model.h"
#include "sim/model/stack.h"

enum { MEGATRON, BRIDGE, NEMO };
enum { MOST_LAYERS = 4096, NAME = 96 };

// clang-format off
// Arguments of Megatron-LM (megatron/training/arguments.py), keys of Megatron-Bridge's
// configuration (megatron/bridge/training/config.py and the classes in it) and of NeMo's
// megatron_gpt_config.yaml. tests/support/framework_names.h has the lists that they are held
// against.
static const framework_row megatron_rows[] = {
    // the model
    {"model.layers", FRAMEWORK_INT, NULL, NULL,
     {"num-layers", "model.num_layers", "model.num_layers"}, NULL},
    {"model.hidden", FRAMEWORK_INT, NULL, NULL,
     {"hidden-size", "model.hidden_size", "model.hidden_size"}, NULL},
    {"model.heads", FRAMEWORK_INT, NULL, NULL,
     {"num-attention-heads", "model.num_attention_heads", "model.num_attention_heads"}, NULL},
    {"model.kv_heads", FRAMEWORK_INT, NULL, "@model.heads",
     {"num-query-groups", "model.num_query_groups", "model.num_query_groups"}, NULL},
    {"model.head_dim", FRAMEWORK_INT, NULL, NULL,
     {"kv-channels", "model.kv_channels", "model.kv_channels"}, NULL},
    {"model.positional", FRAMEWORK_NAME, "rope=rope learned_absolute=learned none=none", "\"learned\"",
     {"position-embedding-type", "model.position_embedding_type", "model.position_embedding_type"},
     NULL},
    {"model.positional", FRAMEWORK_FLAG, "\"rope\"", NULL, {NULL, NULL, NULL},
     "use-rotary-position-embeddings"},
    {"model.norm", FRAMEWORK_NAME, "RMSNorm=rmsnorm LayerNorm=layernorm", "\"layernorm\"",
     {"normalization", "model.normalization", NULL}, NULL},
    {"model.norm", FRAMEWORK_NAME, "rmsnorm=rmsnorm layernorm=layernorm layernorm1p=layernorm", NULL,
     {NULL, NULL, "model.normalization"}, NULL},
    {"model.activation", FRAMEWORK_FLAG, "\"swiglu\"", "\"gelu\"", {"swiglu", NULL, NULL}, NULL},
    {"model.activation", FRAMEWORK_FLAG, "\"squared-relu\"", NULL, {"squared-relu", NULL, NULL}, NULL},
    {"model.activation", FRAMEWORK_FLAG, "\"geglu\"", NULL, {"quick-geglu", NULL, NULL}, NULL},
    {"model.activation", FRAMEWORK_NAME,
     "fast-swiglu=swiglu swiglu=swiglu gelu=gelu geglu=geglu fast-geglu=geglu squared-relu=squared-relu",
     NULL, {NULL, NULL, "model.activation"}, NULL},
    // Of Megatron-LM's YAML (megatron/training/yaml_arguments.py), which has no --swiglu.
    {"model.activation", FRAMEWORK_NAME, "swiglu=swiglu squaredrelu=squared-relu gelu=gelu", NULL,
     {NULL, NULL, NULL}, "activation_func"},
    {"model.tied_embeddings", FRAMEWORK_INVERT, NULL, "true",
     {"untie-embeddings-and-output-weights", NULL, NULL}, NULL},
    {"model.tied_embeddings", FRAMEWORK_SWITCH, NULL, NULL,
     {NULL, "model.share_embeddings_and_output_weights", "model.share_embeddings_and_output_weights"},
     NULL},
    {"model.bias", FRAMEWORK_INVERT, NULL, "true", {"disable-bias-linear", NULL, NULL}, NULL},
    {"model.bias", FRAMEWORK_SWITCH, NULL, NULL, {NULL, "model.add_bias_linear", "model.bias"},
     "add_bias_linear"},
    {"model.qkv_bias", FRAMEWORK_SWITCH, NULL, "@model.bias",
     {"add-qkv-bias", "model.add_qkv_bias", "model.qkv_bias"}, NULL},
    {"model.vocab", FRAMEWORK_INT, NULL, NULL, {NULL, NULL, "model.override_vocab_size"}, NULL},
    {"model.output_bias", FRAMEWORK_IMPLIED, NULL, "@model.bias", {NULL}, NULL},
    {"model.mlp_bias", FRAMEWORK_IMPLIED, NULL, "@model.bias", {NULL}, NULL},
    {"model.qk_norm", FRAMEWORK_SWITCH, NULL, "false",
     {"qk-layernorm", "model.qk_layernorm", NULL}, NULL},
    {"model.attention_sinks", FRAMEWORK_NAME, "learnable=true vanilla=false", "false",
     {"softmax-type", "model.softmax_type", NULL}, NULL},
    {"model.mtp_layers", FRAMEWORK_INT, NULL, "0",
     {"mtp-num-layers", "model.mtp_num_layers", NULL}, NULL},
    {"model.experts", FRAMEWORK_INT, NULL, "0",
     {"num-experts", "model.num_moe_experts", "model.num_moe_experts"}, "num_moe_experts"},
    {"model.shared_ffn", FRAMEWORK_INT, NULL, "0",
     {"moe-shared-expert-intermediate-size", "model.moe_shared_expert_intermediate_size", NULL},
     NULL},
    {"model.expert_latent", FRAMEWORK_INT, NULL, "0",
     {"moe-latent-size", "model.moe_latent_size", NULL}, NULL},
    {"model.expert_groups", FRAMEWORK_INT, NULL, "0",
     {"moe-router-num-groups", "model.moe_router_num_groups", NULL}, NULL},
    {"model.expert_group_top_k", FRAMEWORK_INT, NULL, "0",
     {"moe-router-group-topk", "model.moe_router_group_topk", NULL}, NULL},
    {"model.expert_capacity_factor", FRAMEWORK_REAL, NULL, "0.0",
     {"moe-expert-capacity-factor", "model.moe_expert_capacity_factor", NULL}, NULL},
    {"model.expert_imbalance", FRAMEWORK_FLAG, "0.0", "\"exact\"",
     {"moe-router-force-load-balancing", "model.moe_router_force_load_balancing", NULL}, NULL},
    // ranks
    {"parallel.tp", FRAMEWORK_INT, NULL, "1",
     {"tensor-model-parallel-size", "model.tensor_model_parallel_size",
      "model.tensor_model_parallel_size"}, NULL},
    {"parallel.cp", FRAMEWORK_INT, NULL, "1",
     {"context-parallel-size", "model.context_parallel_size", NULL}, NULL},
    {"parallel.pp", FRAMEWORK_INT, NULL, "1",
     {"pipeline-model-parallel-size", "model.pipeline_model_parallel_size",
      "model.pipeline_model_parallel_size"}, NULL},
    {"parallel.ep", FRAMEWORK_INT, NULL, "1",
     {"expert-model-parallel-size", "model.expert_model_parallel_size",
      "model.expert_model_parallel_size"}, NULL},
    {"parallel.etp", FRAMEWORK_INT, NULL, "0",
     {"expert-tensor-parallel-size", "model.expert_tensor_parallel_size", NULL}, NULL},
    {"parallel.sequence_parallel", FRAMEWORK_SWITCH, NULL, "false",
     {"sequence-parallel", "model.sequence_parallel", "model.sequence_parallel"}, NULL},
    {"parallel.chunks_per_rank", FRAMEWORK_INT, NULL, "1",
     {"num-virtual-stages-per-pipeline-rank", "model.virtual_pipeline_model_parallel_size",
      "model.virtual_pipeline_model_parallel_size"}, "virtual_pipeline_model_parallel_size"},
    {"parallel.order", FRAMEWORK_FLAG, "\"tp-cp-pp-dp\"", "\"tp-cp-dp-pp\"",
     {"use-tp-pp-dp-mapping", NULL, NULL}, NULL},
    {"schedule.group", FRAMEWORK_INT, NULL, NULL,
     {"microbatch-group-size-per-virtual-pipeline-stage",
      "model.microbatch_group_size_per_vp_stage", NULL}, NULL},
    // the step
    {"workload.context", FRAMEWORK_INT, NULL, NULL,
     {"seq-length", "model.seq_length", "model.encoder_seq_length"},
     "dataset.sequence_length dataset.seq_length model.data.seq_length"},
    {"schedule.microbatch_samples", FRAMEWORK_INT, NULL, NULL,
     {"micro-batch-size", "train.micro_batch_size", "model.micro_batch_size"}, NULL},
    {"workload.samples_per_batch", FRAMEWORK_INT, NULL, NULL,
     {"global-batch-size", "train.global_batch_size", "model.global_batch_size"}, NULL},
    {"precision", FRAMEWORK_NAME, "hybrid=fp8 e4m3=fp8", "\"bf16\"",
     {"fp8-format", "mixed_precision.fp8", NULL}, "fp8"},
    {"fp8_recipe", FRAMEWORK_NAME,
     "delayed=delayed tensorwise=current blockwise=blockwise mxfp8=mxfp8", "\"delayed\"",
     {"fp8-recipe", "mixed_precision.fp8_recipe", NULL}, NULL},
    {"fp8_params", FRAMEWORK_SWITCH, NULL, "false",
     {"fp8-param-gather", "mixed_precision.fp8_param_gather", NULL}, NULL},
    {"memory.attention", FRAMEWORK_NAME,
     "auto=flash flash=flash fused=flash unfused=unfused local=unfused", "\"flash\"",
     {"attention-backend", "model.attention_backend", NULL}, NULL},
    // what is fused and hidden
    {"stack.hide_forward_gather", FRAMEWORK_SWITCH, NULL, "false",
     {"tp-comm-overlap", "model.tp_comm_overlap", NULL}, "comm_overlap.tp_comm_overlap"},
    {"stack.hide_forward_reduce", FRAMEWORK_SWITCH, NULL, "false",
     {"tp-comm-overlap", "model.tp_comm_overlap", NULL}, "comm_overlap.tp_comm_overlap"},
    {"stack.hide_backward_gather", FRAMEWORK_SWITCH, NULL, "false",
     {"tp-comm-overlap", "model.tp_comm_overlap", NULL}, "comm_overlap.tp_comm_overlap"},
    {"stack.hide_backward_reduce", FRAMEWORK_SWITCH, NULL, "false",
     {"tp-comm-overlap", "model.tp_comm_overlap", NULL}, "comm_overlap.tp_comm_overlap"},
    {"stack.hide_gradient_reduce", FRAMEWORK_SWITCH, NULL, "false",
     {"overlap-grad-reduce", "ddp.overlap_grad_reduce", NULL}, NULL},
    {"stack.hide_parameter_gather", FRAMEWORK_SWITCH, NULL, "false",
     {"overlap-param-gather", "ddp.overlap_param_gather", NULL}, NULL},
    {"stack.gradient_reduce_dtype", FRAMEWORK_FLAG, "\"bf16\"", "\"fp32\"",
     {"grad-reduce-in-bf16", NULL, NULL}, NULL},
    {"stack.gradient_reduce_dtype", FRAMEWORK_NAME, "true=fp32 false=bf16", NULL,
     {NULL, "ddp.grad_reduce_in_fp32", NULL}, NULL},
    {"stack.unfused_weight_gradient", FRAMEWORK_SWITCH, NULL, "false",
     {"no-gradient-accumulation-fusion", NULL, NULL}, NULL},
    {"stack.unfused_weight_gradient", FRAMEWORK_INVERT, NULL, NULL,
     {NULL, "model.gradient_accumulation_fusion", "model.gradient_accumulation_fusion"},
     "gradient_accumulation_fusion"},
    {"stack.fused_swiglu", FRAMEWORK_INVERT, NULL, "true",
     {"no-bias-swiglu-fusion", NULL, NULL}, NULL},
    {"stack.fused_swiglu", FRAMEWORK_SWITCH, NULL, NULL, {NULL, NULL, NULL}, "bias_swiglu_fusion"},
    {"stack.cp_overlap", FRAMEWORK_NAME,
     "p2p=attention a2a=a2a a2a+p2p=a2a+p2p allgather=blocking all_gather=blocking", NULL,
     {"cp-comm-type", "model.cp_comm_type", NULL}, NULL},
    {"stack.shared_expert_overlap", FRAMEWORK_SWITCH, NULL, "false",
     {"moe-shared-expert-overlap", "model.moe_shared_expert_overlap", NULL}, NULL},
    {"stack.expert_overlap", FRAMEWORK_SWITCH, NULL, "false",
     {"overlap-moe-expert-parallel-comm", "model.overlap_moe_expert_parallel_comm", NULL}, NULL},
    {"stack.delay_wgrad", FRAMEWORK_SWITCH, NULL, "false",
     {"delay-wgrad-compute", "model.delay_wgrad_compute", NULL}, NULL},
    {NULL, FRAMEWORK_INT, NULL, NULL, {NULL}, NULL},
};

static const char megatron_own[] =
    "group-query-attention ffn-hidden-size moe-ffn-hidden-size vocab-size padded-vocab-size "
    "make-vocab-size-divisible-by hidden-dropout attention-dropout multi-latent-attention "
    "q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim v-head-dim moe-layer-freq "
    "moe-router-topk max-position-embeddings window-size recompute-granularity recompute-method "
    "recompute-num-layers recompute-modules recompute-activations "
    "num-layers-per-virtual-pipeline-stage decoder-first-pipeline-num-layers "
    "decoder-last-pipeline-num-layers pipeline-model-parallel-layout use-distributed-optimizer "
    "data-parallel-sharding-strategy use-megatron-fsdp use-torch-fsdp2 "
    "num-distributed-optimizer-instances moe-token-dispatcher-type moe-enable-deepep moe-permute-fusion "
    "moe-flex-dispatcher-backend moe-deepep-num-sms moe-hybridep-num-sms "
    "exp-avg-dtype exp-avg-sq-dtype use-precision-aware-optimizer bf16 fp16 "
    "cpu-offloading-num-layers hierarchical-context-parallel-sizes transformer-impl use-flash-attn "
    "optimizer-cpu-offload optimizer-offload-fraction overlap-cpu-optimizer-d2h-h2d "
    "cross-entropy-loss-fusion cross-entropy-fusion-impl";

static const char megatron_switches[] =
    "group-query-attention multi-latent-attention use-distributed-optimizer use-megatron-fsdp "
    "use-torch-fsdp2 moe-enable-deepep use-precision-aware-optimizer bf16 fp16 "
    "recompute-activations use-flash-attn optimizer-cpu-offload overlap-cpu-optimizer-d2h-h2d "
    "cross-entropy-loss-fusion";

// Neither time nor memory of a step: paths, logs, seeds, numbers that train.
static const char megatron_free[] =
    "lr lr-* min-lr warmup decoupled-* weight-decay start-weight-decay end-weight-decay "
    "weight-decay-incr-style clip-grad adam-* sgd-momentum init-method* "
    "output-layer-init-method embedding-init-method-std norm-epsilon layernorm-epsilon seed "
    "data-parallel-random-init save save-* load load-* finetune pretrained-checkpoint ckpt-* "
    "dist-ckpt-* distrib-optim-* no-save-* no-load-* no-ckpt-* no-strict-* non-persistent-* "
    "auto-detect-ckpt-format async-save use-dist-ckpt use-persistent-ckpt-worker "
    "use-checkpoint-* override-opt* exit-* perform-initialization no-initialization "
    "use-mp-args-* use-cpu-initialization log-* logging-level timing-log-* tensorboard-* "
    "wandb-* no-log-* no-barrier-with-level-1-timing barrier-with-L1-time one-logger-* "
    "no-one-logger enable-one-logger app-tag-* enable-ft-package calc-ft-timeouts "
    "config-logger-dir profile profile-* use-pytorch-profiler record-memory-history "
    "memory-snapshot-path train-iters train-samples eval-* full-validation "
    "multiple-validation-sets test-mode skip-train iterations-to-skip data-path "
    "train-data-path valid-data-path test-data-path data-args-path per-split-data-args-path "
    "data-cache-path split mock-data num-workers dataloader-type no-mmap-bin-files "
    "num-dataset-builder-threads object-storage-cache-path mid-level-dataset-surplus "
    "allow-ambiguous-pad-tokens no-create-attention-mask-in-dataloader tokenizer-* "
    "vocab-file merge-file vocab-extra-ids tiktoken-* legacy-tokenizer rotary-* "
    "use-rope-scaling rope-scaling-factor rope-type no-rope-freq mscale mscale-all-dim "
    "cache-mla-latents apply-rope-fusion distributed-backend distributed-timeout-* "
    "local-rank lazy-mpu-init loss-scale initial-loss-scale min-loss-scale loss-scale-window "
    "hysteresis check-* no-check-for-nan-in-loss-and-grad rerun-mode error-injection-* "
    "manual-gc manual-gc-* no-manual-gc-eval adlr-* enable-experimental use-mcore-models "
    "accumulate-allreduce-grads-in-fp32 apply-layernorm-1p layernorm-zero-centered-gamma "
    "apply-query-key-layer-scaling attention-softmax-in-fp32 calculate-per-token-loss "
    "moe-router-load-balancing-type moe-router-dtype moe-router-score-function "
    "moe-router-pre-softmax moe-router-topk-scaling-factor moe-router-enable-expert-bias "
    "moe-router-bias-update-rate moe-aux-loss-coeff moe-z-loss-coeff moe-input-jitter-eps "
    "moe-per-layer-logging moe-token-drop-policy moe-token-dropping moe-grouped-gemm "
    "fp8-margin fp8-interval fp8-amax-* fp8-wgrad "
    "mtp-loss-scaling-factor eod-mask-loss reset-position-ids sft sft-* trust-* "
    "persist-layer-norm memory-efficient-layer-norm masked-softmax-fusion "
    "bias-dropout-fusion bias-gelu-fusion bias-activation-fusion "
    "openai-gelu onnx-safe bert-* biencoder-* ict-* retriever-* mask-prob short-seq-prob "
    "sample-rate encoder-seq-length decoder-seq-length yaml-cfg te-rng-tracker inference-* "
    "spec ddp-average-in-collective ddp-pad-buckets-for-high-nccl-busbw no-align-* align-* "
    "delay-grad-reduce delay-param-gather tp-comm-overlap-cfg tp-comm-bootstrap-backend "
    "disable-bf16-reduced-precision-matmul nccl-communicator-config-path "
    "disable-gloo-process-groups high-priority-stream-groups "
    "no-async-tensor-model-parallel-allreduce async-tensor-model-parallel-allreduce "
    "straggler-* disable-straggler-on-startup dump-* result-rejected-tracker-filename "
    "clone-scatter-output-in-embedding params-dtype timers pipeline-dtype autocast-dtype "
    "enable-autocast grad-scale-func no-sync-func grad-sync-func param-sync-func "
    "finalize-model-grads-func _cpu_offloading_context cpu-offloading-* "
    "deallocate-pipeline-outputs batch-p2p-* tp-comm-split-* tp-comm-atomic-* tp-comm-bulk-* "
    "encoder-num-layers decoder-num-layers add-position-embedding "
    "gated-linear-unit scatter-gather-tensors-in-pipeline variable-seq-lengths "
    "standalone-embedding-stage";

// They change what a step takes, and nothing here stands for them.
static const char megatron_noted[] =
    "no-masked-softmax-fusion no-bias-dropout-fusion no-bias-gelu-fusion no-rope-fusion "
    "distribute-saved-activations use-ring-exchange-p2p no-persist-layer-norm "
    "rampup-batch-size decrease-batch-size-if-needed use-torch-optimizer-for-cpu-offload "
    "fp32-residual-connection deterministic-mode empty-unused-memory-level enable-cuda-graph "
    "cuda-graph-impl cuda-graph-scope external-cuda-graph defer-embedding-wgrad-compute "
    "wgrad-deferral-limit ddp-num-buckets ddp-bucket-size ddp-reduce-scatter-with-fp32-accumulation "
    "overlap-param-gather-with-optimizer-step use-nccl-ub use-sharp no-overlap-p2p-communication "
    "overlap-p2p-communication-warmup-flush fp4-format fp4-recipe fp4-param-gather "
    "first-last-layers-bf16 no-fp8-wgrad hybrid-override-pattern hybrid-attention-ratio "
    "hybrid-mlp-ratio is-hybrid-model mamba-state-dim mamba-head-dim mamba-num-groups "
    "mamba-num-heads window-attn-skip-freq heterogeneous-layers-config-path "
    "account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split main-grads-dtype "
    "main-params-dtype moe-extended-tp moe-layer-recompute moe-use-upcycling moe-router-padding-for-fp8 "
    "moe-apply-probs-on-input moe-pad-expert-input-to-capacity disable-tp-comm-* "
    "tp-comm-overlap-rs-dgrad use-legacy-models fsdp-double-buffer suggested-communication-unit-size "
    "init-model-with-meta-device fp16-lm-cross-entropy reset-attention-mask qk-l2-norm "
    "apply-residual-connection-post-layernorm no-scatter-gather-tensors-in-pipeline "
    "optimizer checkpoint-activations untie-embeddings fp8-quantizer-factory "
    "no-position-embedding moe-use-legacy-grouped-gemm perform-rl-step retro-* "
    "torch-fsdp2-no-reshard-after-forward cpu_offloading pipeline_model_parallel_split_rank";

static const char bridge_own[] =
    "model.ffn_hidden_size model.moe_ffn_hidden_size model.vocab_size model.hidden_dropout "
    "model.attention_dropout model.q_lora_rank model.kv_lora_rank model.qk_head_dim "
    "model.qk_pos_emb_head_dim model.v_head_dim model.multi_latent_attention model.moe_layer_freq "
    "model.moe_router_topk model.window_size model.recompute_granularity model.recompute_method "
    "model.recompute_num_layers model.recompute_modules model.num_layers_in_first_pipeline_stage "
    "model.num_layers_in_last_pipeline_stage model.pipeline_model_parallel_layout "
    "ddp.use_distributed_optimizer ddp.data_parallel_sharding_strategy ddp.use_megatron_fsdp "
    "dist.use_megatron_fsdp dist.use_torch_fsdp2 ddp.num_distributed_optimizer_instances "
    "model.moe_token_dispatcher_type model.moe_enable_deepep model.moe_permute_fusion "
    "model.moe_flex_dispatcher_backend "
    "model.moe_deepep_num_sms model.moe_hybridep_num_sms optimizer.exp_avg_dtype "
    "optimizer.exp_avg_sq_dtype optimizer.use_precision_aware_optimizer model.bf16 model.fp16 "
    "mixed_precision.bf16 mixed_precision.fp16 model.cpu_offloading_num_layers "
    "model.hierarchical_context_parallel_sizes model.max_position_embeddings "
    "mixed_precision.grad_reduce_in_fp32 model.make_vocab_size_divisible_by "
    "optimizer.optimizer_cpu_offload optimizer.optimizer_offload_fraction "
    "optimizer.overlap_cpu_optimizer_d2h_h2d model.cross_entropy_loss_fusion "
    "model.cross_entropy_fusion_impl";
static const char bridge_free[] =
    "optimizer.lr optimizer.min_lr optimizer.weight_decay optimizer.adam_* optimizer.clip_grad "
    "scheduler.* logger.* checkpoint.* tokenizer.* rng.* profiling.* rerun_state_machine.* "
    "straggler.* dataset.* train.train_iters train.eval_* train.exit_* train.manual_gc* "
    "validation.* model.apply_rope_fusion model.rotary_* "
    "ddp.check_for_* ddp.average_in_collective mixed_precision.dtype model.qk_clip "
    "model.init_method_std model.layernorm_epsilon model.moe_grouped_gemm "
    "model.moe_aux_loss_coeff model.moe_router_* model.bias_activation_fusion "
    "model.masked_softmax_fusion model.persist_layer_norm model.bias_dropout_fusion perf_matrix.* "
    "model._target_ model.use_transformer_engine_op_fuser";
static const char bridge_noted[] =
    "model.enable_cuda_graph model.cuda_graph_impl model.cuda_graph_scope train.rampup_batch_size "
    "optimizer.optimizer ddp.bucket_size peft.* model.cpu_offloading "
    "model.fp32_residual_connection model.deterministic_mode model.fp4 ddp.nccl_ub "
    "ddp.fsdp_double_buffer model.defer_embedding_wgrad_compute comm_overlap.* model.activation_func "
    "model.gated_linear_unit mixed_precision.*";

static const char nemo_own[] =
    "model.ffn_hidden_size model.hidden_dropout model.attention_dropout "
    "model.activations_checkpoint_granularity model.activations_checkpoint_method "
    "model.activations_checkpoint_num_layers model.max_position_embeddings "
    "trainer.num_nodes trainer.devices model.make_vocab_size_divisible_by model.fp8 model.fp8_hybrid "
    "model.optim.name trainer.precision model.moe_router_topk "
    "model.megatron_amp_O2";
static const char nemo_free[] =
    "name restore_from_path trainer.* exp_manager.* model.tokenizer.* model.data.* model.optim.* "
    "model.nsys_profile.* model.seed model.init_method_std model.layernorm_epsilon "
    "model.native_amp_* model.hysteresis model.onnx_safe model.apex_transformer_log_level "
    "model.resume_from_checkpoint model.persist_layer_norm model.pre_process model.post_process "
    "model.apply_query_key_layer_scaling model.use_cpu_initialization "
    "model.grad_allreduce_chunk_size_mb model.grad_div_ar_fusion model.gradient_as_bucket_view "
    "model.fp16_lm_cross_entropy run.* model.rotary_* model.fp8_margin model.fp8_interval "
    "model.fp8_amax_* model.mcore_gpt model.transformer_engine model.use_flash_attention";
static const char nemo_noted[] =
    "model.ub_tp_comm_overlap model.context_parallel_size model.vocab_size "
    "model.fp32_residual_connection model.rampup_batch_size model.fp8_e4m3 "
    "model.num_micro_batches_with_partial_activation_checkpoints "
    "model.activations_checkpoint_layers_per_pipeline model.cpu_offloading model.peft.*";
// clang-format on

// The most processes of a node that divide the ranks.
static json_int_t processes_of_node(const json_t *s, json_int_t *nodes)
{
    json_int_t ranks = framework_replica(s) * framework_get_int(s, "parallel.dp", 1);
    json_int_t each = framework_get_int(s, "cluster.gpus_per_node", 8);
    while (each > 1 && ranks % each != 0) {
        each--;
    }
    *nodes = ranks / each;
    return each;
}

// ---- names of the three dialects ----

typedef struct dialect_name {
    char text[NAME];
} dialect_name;

// Of an argument that no row has: "model.NAME" with underscores in documents.
static dialect_name called(const framework *of, const char *section, const char *argument)
{
    dialect_name name;
    if (of->dialect == MEGATRON) {
        snprintf(name.text, sizeof name.text, "%s", argument);
        return name;
    }
    snprintf(name.text, sizeof name.text, "%s.%s", section, argument);
    for (char *c = name.text; *c != '\0'; c++) {
        *c = *c == '-' ? '_' : *c;
    }
    return name;
}

static json_int_t take_int(framework_import *import, const char *argument, json_int_t fallback)
{
    return framework_take_int(import, called(import->of, "model", argument).text, 0, fallback);
}

// ---- Megatron: parts that are repeated ----

enum { MOST_REPEATED = 1 << 16 };

// Written out: (tt|)*2 of a layout of stages, each symbol a byte, or [0]*3+[1]*58 of lists, each
// number one: '0' or '1'.
typedef struct repeats {
    const char *at, *symbols; // NULL: lists
    char *out;                // of MOST_REPEATED
    size_t count;
    int nested;
    bool good;
} repeats;

static void expand_parts(repeats *r);

static void skip(repeats *r)
{
    r->at += strspn(r->at, r->symbols != NULL ? ", " : " ");
}

static void add_symbol(repeats *r, char symbol)
{
    r->good = r->good && r->count < MOST_REPEATED;
    if (r->good) {
        r->out[r->count++] = symbol;
    }
}

static void expand_list(repeats *r)
{
    r->at++;
    while (r->good && *r->at != ']') {
        char *end = NULL;
        bool is = strtol(r->at, &end, 10) != 0;
        r->good = end != r->at;
        add_symbol(r, is ? '1' : '0');
        r->at = end + strspn(end, ", ");
    }
    r->at += *r->at == ']';
}

static void expand_part(repeats *r)
{
    size_t begin = r->count;
    skip(r);
    if (*r->at == '(' && r->nested < 16) {
        r->at++;
        r->nested++;
        expand_parts(r);
        r->nested--;
        r->good = r->good && *r->at == ')';
        r->at += *r->at == ')';
    } else if (r->symbols == NULL && *r->at == '[') {
        expand_list(r);
    } else if (r->symbols != NULL && *r->at != '\0' && strchr(r->symbols, *r->at) != NULL) {
        add_symbol(r, *r->at++);
    } else {
        r->good = false;
    }
    skip(r);
    while (r->good && *r->at == '*') {
        char *end = NULL;
        long times = strtol(r->at + 1, &end, 10);
        size_t length = r->count - begin;
        r->good = end != r->at + 1 && times >= 0 && times <= MOST_REPEATED &&
                  begin + length * (size_t)times <= MOST_REPEATED;
        r->at = end;
        for (long t = 1; r->good && t < times; t++) {
            memcpy(r->out + r->count, r->out + begin, length);
            r->count += length;
        }
        r->count = r->good && times == 0 ? begin : r->count;
        skip(r);
    }
}

static void expand_parts(repeats *r)
{
    expand_part(r);
    while (r->good && (r->symbols != NULL ? *r->at != '\0' && *r->at != ')' : *r->at == '+')) {
        r->at += r->symbols == NULL;
        expand_part(r);
    }
}

// The whole of a text; the caller frees `out`.
static repeats expanded(const char *text, const char *symbols)
{
    repeats r = {.at = text, .symbols = symbols, .out = sp_malloc(MOST_REPEATED), .good = true};
    expand_parts(&r);
    r.good = r.good && *r.at == '\0';
    return r;
}

// ---- Megatron: the model ----

// Which layers have experts; false: it cannot be read. `all`: every layer has.
static bool read_frequency(framework_import *import, int layers, int *has, bool *all)
{
    const framework_entry *entry =
        framework_take(import, called(import->of, "model", "moe-layer-freq").text);
    *all = entry == NULL;
    if (entry == NULL) {
        return true;
    }
    const char *text = json_string_value(entry->value);
    char *end = NULL;
    long every = json_is_integer(entry->value) ? (long)json_integer_value(entry->value)
                 : text != NULL                ? strtol(text, &end, 10)
                                               : 0;
    if (every > 0 && (text == NULL || *end == '\0')) {
        *all = every == 1;
        for (int i = 0; i < layers; i++) {
            has[i] = i % every == 0;
        }
        return true;
    }
    repeats list = expanded(text != NULL ? text : "[]", NULL);
    bool good =
        list.good && (text != NULL ? list.count : json_array_size(entry->value)) == (size_t)layers;
    for (int i = 0; good && i < layers; i++) {
        const json_t *item = json_array_get(entry->value, (size_t)i);
        good = text != NULL || json_is_integer(item);
        has[i] = text != NULL ? list.out[i] == '1' : json_integer_value(item) != 0;
    }
    sp_free(list.out);
    if (!good) {
        framework_wrong(import, entry,
                        "expected N, or a list such as [0]*3+[1]*58 of as many as layers, %d",
                        layers);
        return false;
    }
    return true;
}

static void put_kinds(framework_import *import, const int *has, int layers, json_int_t dense_ffn)
{
    json_t *kinds = json_array();
    for (int i = 0; i < layers;) {
        int run = 1;
        while (i + run < layers && has[i + run] == has[i]) {
            run++;
        }
        json_t *kind = sp_json_object(SP_JSON("layers", run));
        if (!has[i]) {
            sp_json_add(kind, SP_JSON("ffn", json_integer(dense_ffn)), SP_JSON("experts", 0),
                        SP_JSON("experts_per_token", 0), SP_JSON("shared_ffn", 0));
        }
        json_array_append_new(kinds, kind);
        i += run;
    }
    framework_put(import, "model.layer_kinds", kinds);
}

static void read_mlp(framework_import *import)
{
    const json_t *s = import->scenario;
    bool has_model = json_object_get(import->stated, "model.layers") != NULL;
    json_int_t hidden = framework_get_int(s, "model.hidden", 0);
    json_int_t layers = framework_get_int(s, "model.layers", 0);
    const char *activation = json_string_value(framework_get(s, "model.activation"));
    bool gated = activation != NULL && strcmp(activation, "swiglu") == 0;
    // Megatron-LM's own rule for SwiGLU: as many parameters as without, in multiples of 64.
    json_int_t usual =
        gated && import->of->dialect == MEGATRON ? hidden * 8 / 3 / 64 * 64 : 4 * hidden;
    json_int_t ffn = take_int(import, "ffn-hidden-size", has_model ? usual : 0);
    json_int_t expert_ffn = take_int(import, "moe-ffn-hidden-size", ffn);
    json_int_t experts = framework_get_int(s, "model.experts", 0);
    json_int_t each = take_int(import, "moe-router-topk", experts > 0 && has_model ? 2 : 0);
    json_int_t width = experts > 0 ? expert_ffn : ffn;
    if (width > 0) {
        framework_put(import, "model.ffn", json_integer(width));
    }
    int has[MOST_LAYERS];
    bool all = true;
    if (layers > MOST_LAYERS || !read_frequency(import, (int)layers, has, &all) || experts == 0) {
        return;
    }
    if (each > 0) {
        framework_put(import, "model.experts_per_token", json_integer(each));
    }
    if (!all) {
        put_kinds(import, has, (int)layers, ffn);
    }
}

static void read_latents(framework_import *import)
{
    static const struct {
        const char *argument, *key;
        int usual;
    } parts[] = {{"q-lora-rank", "model.q_lora_rank", 0},
                 {"kv-lora-rank", "model.kv_lora_rank", 32},
                 {"qk-head-dim", "model.qk_nope_dim", 128},
                 {"qk-pos-emb-head-dim", "model.qk_rope_dim", 64},
                 {"v-head-dim", "model.v_head_dim", 128}};
    bool has = framework_take_switch(
        import, called(import->of, "model", "multi-latent-attention").text, false);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        json_int_t value = take_int(import, parts[i].argument, -1);
        // A recipe's own are open, and stated ones ask for latents by themselves.
        bool stated = value >= 0 && import->of->dialect != MEGATRON;
        if (has || stated) {
            framework_put(import, parts[i].key, json_integer(value >= 0 ? value : parts[i].usual));
        }
    }
    if (has) {
        json_object_del(json_object_get(import->scenario, "model"), "head_dim");
        json_object_del(json_object_get(import->scenario, "model"), "kv_heads");
    }
}

// GPT-2's merges, which built-in models of GPT have padded.
enum { GPT2_ENTRIES = 50257, GPT2_PADDED = 51200 };

static json_int_t entries_of_model(const char *built_in)
{
    sp_model model;
    json_int_t entries = sp_model_builtin(built_in, &model, NULL) == SP_OK ? model.vocab : 0;
    return entries >= GPT2_ENTRIES && entries <= GPT2_PADDED ? GPT2_ENTRIES : entries;
}

// Entries of a tokenizer that is known by its name: of a built-in model, whose name is that of a
// folder on the way to it, too, or of a type that has one vocabulary (Megatron-LM,
// training/tokenizer: GPT-2's merges, Llama 2's SentencePiece model and the 2^17 entries that a
// file of tiktoken is cut to). 0: not known.
static json_int_t entries_of_tokenizer(const char *name)
{
    static const struct {
        const char *type;
        json_int_t entries;
    } types[] = {
        {"GPT2BPETokenizer", GPT2_ENTRIES}, {"Llama2Tokenizer", 32000}, {"TikTokenizer", 131072}};
    char path[256];
    char *rest = NULL;
    const char *built_in = sp_model_builtin_meant(name);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(name, types[i].type) == 0) {
            return types[i].entries;
        }
    }
    snprintf(path, sizeof path, "%s", name);
    for (char *part = strtok_r(path, "/", &rest); part != NULL && built_in == NULL;
         part = strtok_r(NULL, "/", &rest)) {
        built_in = sp_model_builtin_meant(part);
    }
    return built_in != NULL ? entries_of_model(built_in) : 0;
}

const char *framework_model_of_shape(const json_t *scenario)
{
    const char *name = NULL;
    for (int i = 0; (name = sp_model_builtin_name(i)) != NULL; i++) {
        sp_model model;
        if (sp_model_builtin(name, &model, NULL) == SP_OK &&
            framework_get_int(scenario, "model.layers", 0) == model.layers &&
            framework_get_int(scenario, "model.hidden", 0) == model.hidden &&
            framework_get_int(scenario, "model.ffn", 0) == model.ffn &&
            framework_get_int(scenario, "model.heads", 0) == model.heads &&
            framework_get_int(scenario, "model.kv_heads", 0) == model.kv_heads &&
            framework_get_int(scenario, "model.experts", 0) == model.experts) {
            break;
        }
    }
    return name;
}

json_int_t framework_assumed_entries(const json_t *scenario, char whose[FRAMEWORK_WHOSE])
{
    const char *shape = framework_model_of_shape(scenario);
    const char *activation = json_string_value(framework_get(scenario, "model.activation"));
    const bool is_gpt = activation != NULL && strcmp(activation, "gelu") == 0;
    snprintf(whose, FRAMEWORK_WHOSE, "%s%s",
             shape != NULL ? shape
             : is_gpt      ? "GPT-2"
                           : "Llama 3",
             shape != NULL ? ", which has this shape" : "");
    return shape != NULL ? entries_of_model(shape) : is_gpt ? GPT2_ENTRIES : 128256;
}

// The vocabulary of the tokenizer that a file names, which is told; 0: it is not known.
static json_int_t vocabulary_by_name(framework_import *import)
{
    static const char *const names[] = {"tokenizer-model tokenizer-name-or-path "
                                        "tokenizer.tokenizer_model model.tokenizer.model",
                                        "tokenizer-type tokenizer.tokenizer_type "
                                        "model.tokenizer.type"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *name = framework_take_text(import, names[i]);
        json_int_t entries = name != NULL ? entries_of_tokenizer(name) : 0;
        if (entries > 0) {
            framework_note(import,
                           "%s: the vocabulary is taken by the tokenizer's name, %s: %lld entries "
                           "before padding (--set model.vocab=N)",
                           import->source, name, (long long)entries);
            return entries;
        }
    }
    return 0;
}

static void read_vocabulary(framework_import *import)
{
    json_int_t padded =
        import->of->dialect == MEGATRON ? framework_take_int(import, "padded-vocab-size", 1, 0) : 0;
    json_int_t plain = import->of->dialect == NEMO ? 0 : take_int(import, "vocab-size", 0);
    json_int_t multiple =
        framework_product(take_int(import, "make-vocab-size-divisible-by", 128),
                          framework_get_int(import->scenario, "parallel.tp", 1), 1);
    const char *type = framework_take_text(import, "tokenizer-type");
    if (plain > 0 && type != NULL && strcmp(type, "NullTokenizer") == 0) {
        plain++; // the end of a document (core/tokenizers/text/libraries/null_tokenizer.py)
    }
    if (import->of->dialect == BRIDGE) {
        padded = plain;
    }
    json_object_set_new(import->facts, "vocabulary_multiple", json_integer(multiple));
    bool lacks = padded == 0 && plain == 0 && json_object_get(import->stated, "model.layers");
    plain = lacks ? vocabulary_by_name(import) : plain;
    if (padded > 0) {
        framework_put(import, "model.vocab", json_integer(padded));
    } else if (plain > 0 && multiple > 0 && plain < 1 << 30) {
        framework_put(import, "model.vocab", json_integer(sp_ceil_div(plain, multiple) * multiple));
    }
}

static void read_model_rest(framework_import *import)
{
    const framework *of = import->of;
    bool has_model = json_object_get(import->stated, "model.layers") != NULL;
    if (of->dialect == MEGATRON) {
        // Its own attention keeps scores, unless it is asked for FlashAttention.
        const char *layers = framework_take_text(import, "transformer-impl");
        bool flash = framework_take_switch(import, "use-flash-attn", false);
        if (layers != NULL && strcmp(layers, "local") == 0 && !flash &&
            framework_take(import, "attention-backend") == NULL) {
            framework_put(import, "memory.attention", json_string("unfused"));
        }
        bool grouped = framework_take_switch(import, "group-query-attention", false);
        const framework_entry *groups = framework_take(import, "num-query-groups");
        // Its YAML has the number alone.
        if (has_model && !grouped && (groups == NULL || json_is_string(groups->value))) {
            framework_put(import, "model.kv_heads",
                          json_incref(framework_get(import->scenario, "model.heads")));
            if (groups != NULL && framework_get_int(import->scenario, "model.heads", 0) !=
                                      atoll(json_string_value(groups->value))) {
                framework_unread(import, groups,
                                 "Megatron-LM reads it with --group-query-attention alone");
            }
        }
    }
    dialect_name hidden = called(of, "model", "hidden-dropout");
    dialect_name attention = called(of, "model", "attention-dropout");
    double usual = of->dialect == MEGATRON ? 0.1 : -1.0;
    double of_hidden = framework_take_real(import, hidden.text, usual);
    double of_attention = framework_take_real(import, attention.text, usual);
    if ((has_model && of->dialect == MEGATRON) || of_hidden >= 0.0 || of_attention >= 0.0) {
        bool drops = of_hidden > 0.0 || of_attention > 0.0;
        if (has_model) {
            framework_put(import, "model.dropout", json_boolean(drops));
        }
    }
    json_int_t positions = take_int(import, "max-position-embeddings", 0);
    const char *kind = json_string_value(framework_get(import->scenario, "model.positional"));
    if (positions > 0 && has_model && kind != NULL && strcmp(kind, "learned") == 0) {
        framework_put(import, "model.max_positions", json_integer(positions));
    }
    // (left, right): the token itself is one more.
    const framework_entry *window = framework_take(import, called(of, "model", "window-size").text);
    if (window != NULL) {
        char text[64] = "";
        const json_t *first = json_array_get(window->value, 0);
        if (json_is_string(window->value)) {
            snprintf(text, sizeof text, "%s", json_string_value(window->value));
        } else if (json_is_integer(first)) {
            snprintf(text, sizeof text, "%lld", (long long)json_integer_value(first));
        }
        long left = strtol(text + strspn(text, "( "), NULL, 10);
        if (left > 0) {
            framework_put(import, "model.window_tokens", json_integer(left + 1));
        } else {
            framework_wrong(import, window, "expected two numbers such as 127,0");
        }
    }
}

// ---- layouts of stages ----

// As parallel.stage_layers: E(tt|)*3tL.
static void read_layout(framework_import *import, const framework_entry *entry, const char *text)
{
    repeats l = expanded(text, "ELtm|");
    json_int_t pp = framework_get_int(import->scenario, "parallel.pp", 1);
    json_t *stages = json_array();
    json_int_t layers = 0;
    for (size_t i = 0; i <= l.count; i++) {
        if (i == l.count || l.out[i] == '|') {
            json_array_append_new(stages, json_integer(layers));
            layers = 0;
        } else {
            layers += l.out[i] == 't';
        }
    }
    sp_free(l.out);
    json_int_t count = (json_int_t)json_array_size(stages);
    if (!l.good || pp <= 0 || count % pp != 0) {
        framework_wrong(import, entry,
                        "expected stages such as E(tt|)*3ttL, of a multiple of pp, which is %lld",
                        (long long)pp);
        json_decref(stages);
        return;
    }
    framework_put(import, "parallel.chunks_per_rank", json_integer(count / pp));
    framework_put(import, "parallel.stage_layers", stages);
}

// ---- Megatron: ranks and memory ----

// Stages by '|', each with as many t as it has layers: E(tt|)*3tL, or a list of lists of names.
static void read_stages(framework_import *import)
{
    const framework *of = import->of;
    json_int_t layers = framework_get_int(import->scenario, "model.layers", 0);
    json_int_t pp = framework_get_int(import->scenario, "parallel.pp", 1);
    bool cli = of->dialect == MEGATRON;
    json_int_t first = take_int(
        import, cli ? "decoder-first-pipeline-num-layers" : "num-layers-in-first-pipeline-stage",
        0);
    json_int_t last = take_int(
        import, cli ? "decoder-last-pipeline-num-layers" : "num-layers-in-last-pipeline-stage", 0);
    const framework_entry *layout =
        framework_take(import, called(of, "model", "pipeline-model-parallel-layout").text);
    json_int_t chunks = framework_get_int(import->scenario, "parallel.chunks_per_rank", 1);
    if ((first > 0 || last > 0) && layers > 0 && pp > 1 && pp < 4096) {
        json_int_t others = pp - (first > 0) - (last > 0);
        json_int_t rest = layers - first - last;
        if (chunks > 1 || rest < 0 || (others > 0 ? rest % others != 0 : rest != 0)) {
            framework_note(import,
                           "%s: layers of the first and the last stage are not read: the "
                           "others cannot have equal shares of what is left",
                           import->source);
            return;
        }
        json_t *stages = json_array();
        for (json_int_t i = 0; i < pp; i++) {
            bool begins = i == 0 && first > 0;
            bool ends = i == pp - 1 && last > 0;
            json_array_append_new(stages, json_integer(begins ? first
                                                       : ends ? last
                                                              : rest / others));
        }
        framework_put(import, "parallel.stage_layers", stages);
    }
    const char *text = layout != NULL ? json_string_value(layout->value) : NULL;
    if (layout != NULL && text == NULL) {
        framework_unread(import, layout, "only a layout as text (Et*4|...|t*4L) is read");
        return;
    }
    if (text != NULL) {
        read_layout(import, layout, text);
    }
}

static void read_recompute(framework_import *import)
{
    const framework *of = import->of;
    bool nemo = of->dialect == NEMO;
    dialect_name granularity =
        called(of, "model", nemo ? "activations-checkpoint-granularity" : "recompute-granularity");
    dialect_name method =
        called(of, "model", nemo ? "activations-checkpoint-method" : "recompute-method");
    dialect_name count =
        called(of, "model", nemo ? "activations-checkpoint-num-layers" : "recompute-num-layers");
    const framework_entry *kind = framework_take(import, granularity.text);
    const framework_entry *how = framework_take(import, method.text);
    const framework_entry *number = framework_take(import, count.text);
    const framework_entry *modules =
        nemo ? NULL : framework_take(import, called(of, "model", "recompute-modules").text);
    bool activations =
        of->dialect == MEGATRON && framework_take_switch(import, "recompute-activations", false);
    const char *said = framework_take_text(import, granularity.text);
    said = said == NULL && activations ? "selective" : said;
    if (said == NULL) {
        if (!of->overrides) {
            framework_put(import, "memory.recompute", json_string("none"));
        }
        return;
    }
    if (strcmp(said, "full") == 0) {
        const char *by = how != NULL ? json_string_value(how->value) : NULL;
        json_int_t each = number != NULL ? framework_take_int(import, count.text, 0, 1) : 1;
        json_int_t layers = framework_get_int(import->scenario, "model.layers", 0);
        json_int_t pp = framework_get_int(import->scenario, "parallel.pp", 1);
        layers = pp > 0 ? layers / pp : 0;
        framework_put(import, "memory.recompute", json_string("full"));
        if (by != NULL && strcmp(by, "block") == 0 && (layers == 0 || each < layers)) {
            framework_unread(import, how,
                             "recomputation of some layers alone is not modelled: all are taken");
        } else if (by != NULL && strcmp(by, "uniform") == 0 && each > 1) {
            framework_unread(import, number,
                             "layers recomputed in groups are not modelled: each is by itself");
        }
        return;
    }
    if (strcmp(said, "selective") != 0) {
        framework_wrong(import, kind, "expected full or selective, got \"%s\"", said);
        return;
    }
    sp_recompute recompute = SP_RECOMPUTE_ATTENTION;
    char wrong[SP_RECOMPUTE_TEXT];
    if (modules == NULL || sp_recompute_read(modules->value, &recompute, wrong)) {
        framework_put(import, "memory.recompute", sp_recompute_json(recompute));
        return;
    }
    char known[160] = "memory.recompute has";
    for (int m = 0; sp_module_name(m) != NULL; m++) {
        sp_append(known, sizeof known, "%s %s", m > 0 ? "," : "", sp_module_name(m));
    }
    framework_unread(import, modules, known);
}

// What Megatron-FSDP's strategies share, by stages of ZeRO.
static const char *const strategies[] = {"no_shard", "optim", "optim_grads", "optim_grads_params",
                                         NULL};

static void read_sharding(framework_import *import)
{
    const framework *of = import->of;
    if (of->dialect == NEMO) {
        const char *name = framework_take_text(import, "model.optim.name");
        if (name != NULL) {
            framework_put(import, "parallel.zero",
                          json_integer(strcmp(name, "distributed_fused_adam") == 0 ||
                                       strcmp(name, "mcore_distributed_optim") == 0));
        }
        return;
    }
    bool cli = of->dialect == MEGATRON;
    dialect_name optimizer = called(of, "ddp", "use-distributed-optimizer");
    const framework_entry *stated = framework_take(import, optimizer.text);
    bool shards = framework_take_switch(import, optimizer.text, false);
    bool fsdp = framework_take_switch(
        import, cli ? "use-megatron-fsdp" : "ddp.use_megatron_fsdp dist.use_megatron_fsdp", false);
    bool fsdp2 =
        framework_take_switch(import, cli ? "use-torch-fsdp2" : "dist.use_torch_fsdp2", false);
    dialect_name strategy = called(of, "ddp", "data-parallel-sharding-strategy");
    const framework_entry *how = framework_take(import, strategy.text);
    const char *name = framework_take_text(import, strategy.text);
    int stage = fsdp2 ? 3 : shards ? 1 : 0;
    if (fsdp && name != NULL) {
        for (stage = 0; strategies[stage] != NULL && strcmp(strategies[stage], name) != 0;) {
            stage++;
        }
        if (strategies[stage] == NULL) {
            framework_wrong(import, how,
                            "expected no_shard, optim, optim_grads or optim_grads_params, got "
                            "\"%s\"",
                            name);
        }
    }
    if (cli || stated != NULL || fsdp || fsdp2) {
        framework_put(import, "parallel.zero", json_integer(stage));
    }
    json_int_t instances = framework_take_int(
        import, called(of, "ddp", "num-distributed-optimizer-instances").text, 1, 1);
    json_object_set_new(import->facts, "zero_instances", json_integer(instances));
}

// Kernels of Megatron-LM's flex dispatcher: its backend, and the argument that states their SMs.
static const struct {
    const char *backend, *sms;
} flex_backends[] = {{"deepep", "moe-deepep-num-sms"}, {"hybridep", "moe-hybridep-num-sms"}};

// A configuration that is written whole states SMs of the backend that does not run, too.
static bool read_flex(framework_import *import, const char *name)
{
    bool known = false;
    for (size_t i = 0; i < sizeof flex_backends / sizeof flex_backends[0]; i++) {
        json_int_t sms = framework_take_int(
            import, called(import->of, "model", flex_backends[i].sms).text, 0, 0);
        if (name != NULL && strcmp(flex_backends[i].backend, name) == 0) {
            known = true;
            framework_put(import, "stack.dispatcher", json_string(name));
            if (sms > 0) {
                framework_put(import, "stack.dispatcher_sms", json_integer(sms));
            }
        }
    }
    return known;
}

static void read_dispatcher(framework_import *import)
{
    const framework *of = import->of;
    const char *type =
        framework_take_text(import, called(of, "model", "moe-token-dispatcher-type").text);
    bool experts = framework_get_int(import->scenario, "model.experts", 0) > 0;
    if (experts && (type != NULL || !of->overrides)) {
        framework_put(import, "stack.dispatcher", json_string(type != NULL ? type : "allgather"));
    }
    if (of->dialect == NEMO) {
        return;
    }
    if (framework_take_switch(import, called(of, "model", "moe-router-fusion").text, false) &&
        experts) {
        framework_put(import, "stack.router_kernels", json_integer(SP_FUSED_ROUTER_KERNELS));
    }
    // What a recipe has, whose values are overridden, is as the stack's.
    const bool fused = framework_take_switch(import, called(of, "model", "moe-permute-fusion").text,
                                             of->overrides);
    bool deepep =
        framework_take_switch(import, called(of, "model", "moe-enable-deepep").text, false);
    dialect_name argument = called(of, "model", "moe-flex-dispatcher-backend");
    const framework_entry *stated = framework_take(import, argument.text);
    const char *backend = framework_take_text(import, argument.text);
    bool flex = experts && (deepep || (type != NULL && strcmp(type, "flex") == 0));
    if (experts && !fused && !flex) { // those kernels sort rows themselves
        framework_put(import, "stack.unfused_permutation", json_true());
    }
    if (!read_flex(import, !flex ? NULL : deepep || backend == NULL ? "deepep" : backend) && flex) {
        framework_wrong(import, stated, "expected deepep or hybridep, got \"%s\"", backend);
    }
}

// Transformer Engine's fused loss works in the logits' place, the native one on an fp32 copy of
// them. Recipes of Megatron-Bridge take Transformer Engine's.
static void read_loss(framework_import *import)
{
    const framework *of = import->of;
    const bool of_bridge = of->dialect == BRIDGE;
    if (of->dialect == NEMO) {
        return;
    }
    dialect_name fusion = called(of, "model", "cross-entropy-loss-fusion");
    dialect_name by = called(of, "model", "cross-entropy-fusion-impl");
    const framework_entry *stated = framework_take(import, fusion.text);
    const framework_entry *by_stated = framework_take(import, by.text);
    const char *impl = framework_take_text(import, by.text);
    if (of->overrides && stated == NULL && by_stated == NULL) {
        return;
    }
    bool fused = framework_take_switch(import, fusion.text, of_bridge);
    bool in_place = impl == NULL ? of_bridge : strcmp(impl, "native") != 0;
    framework_put(import, "stack.fused_cross_entropy", json_boolean(fused && in_place));
    framework_put(import, "stack.copied_logits", json_boolean(fused && !in_place));
    if (fused && in_place && impl != NULL && strcmp(impl, "te") != 0) {
        framework_unread(import, by_stated, "this loss is not modelled: te is taken");
    }
}

static int bytes_of(const char *dtype)
{
    return dtype == NULL                   ? 0
           : strstr(dtype, "fp32") != NULL ? 4
           : strstr(dtype, "16") != NULL   ? 2
           : strstr(dtype, "fp8") != NULL  ? 1
                                           : 0;
}

static void read_optimizer(framework_import *import)
{
    const framework *of = import->of;
    if (of->dialect == NEMO) {
        return;
    }
    const char *first = framework_take_text(import, called(of, "optimizer", "exp-avg-dtype").text);
    const char *second =
        framework_take_text(import, called(of, "optimizer", "exp-avg-sq-dtype").text);
    framework_take(import, called(of, "optimizer", "use-precision-aware-optimizer").text);
    int a = bytes_of(first != NULL ? first : "fp32");
    int b = bytes_of(second != NULL ? second : "fp32");
    if (first == NULL && second == NULL) {
        return;
    }
    if (a == b && a > 0) {
        framework_put(import, "stack.moment_bytes", json_integer(a));
    } else {
        framework_note(import,
                       "%s: Adam's moments of different types are not modelled: they are "
                       "taken as fp32",
                       import->source);
    }
}

static void read_precision(framework_import *import)
{
    const framework *of = import->of;
    if (of->dialect == NEMO) {
        framework_take(import, "model.fp8_hybrid model.megatron_amp_O2");
        framework_tell_precision(import, "trainer.precision");
        if (framework_take_switch(import, "model.fp8", false)) {
            framework_put(import, "precision", json_string("fp8"));
        }
        return;
    }
    const char *bf16 = of->dialect == MEGATRON ? "bf16" : "model.bf16 mixed_precision.bf16";
    const char *fp16 = of->dialect == MEGATRON ? "fp16" : "model.fp16 mixed_precision.fp16";
    const framework_entry *half = framework_take(import, fp16);
    bool is_half = framework_take_switch(import, fp16, false);
    bool is_bf16 = framework_take_switch(import, bf16, of->dialect != MEGATRON);
    if (is_half && half != NULL) {
        framework_unread(import, half,
                         "products in FP16 are not modelled: BF16 is taken, as fast "
                         "and as large");
    } else if (!is_bf16) {
        framework_note(import,
                       "%s: without --bf16 Megatron-LM computes in FP32, which is not "
                       "modelled: BF16 is taken",
                       import->source);
    }
}

// Where no fraction is stated all states go by Megatron-LM's arguments (training/arguments.py),
// none by the configuration that Bridge fills (core/optimizer/optimizer_config.py).
static void read_host_states(framework_import *import)
{
    const framework *of = import->of;
    double fallback = of->dialect == MEGATRON ? 1.0 : 0.0;
    bool away =
        framework_take_switch(import, called(of, "optimizer", "optimizer-cpu-offload").text, false);
    double share = framework_take_real(
        import, called(of, "optimizer", "optimizer-offload-fraction").text, fallback);
    bool overlaps = framework_take_switch(
        import, called(of, "optimizer", "overlap-cpu-optimizer-d2h-h2d").text, false);
    if (away && share > 0.0) {
        framework_put(import, "memory.offload_states", json_real(share));
        if (overlaps) {
            framework_put(import, "stack.host_overlap", json_true());
        }
    }
}

static void read_megatron(framework_import *import)
{
    const framework *of = import->of;
    if (of->dialect == MEGATRON) {
        framework_read_launch(import);
        read_host_states(import);
    } else if (of->dialect == NEMO) {
        json_int_t nodes = framework_take_int(import, "trainer.num_nodes", 1, 0);
        json_int_t devices = framework_take_int(import, "trainer.devices", 1, 0);
        json_int_t gpus = framework_product(nodes, devices, 1);
        if (gpus > 0) {
            json_object_set_new(import->facts, "gpus", json_integer(gpus));
            json_object_set_new(import->facts, "gpus_per_node", json_integer(devices));
        }
    } else {
        const framework_entry *reduce =
            framework_take(import, "mixed_precision.grad_reduce_in_fp32");
        if (reduce != NULL) {
            framework_put(import, "stack.gradient_reduce_dtype",
                          json_string(json_is_true(reduce->value) ? "fp32" : "bf16"));
        }
        read_host_states(import);
    }
    json_int_t each =
        of->dialect == MEGATRON
            ? framework_take_int(import, "num-layers-per-virtual-pipeline-stage", 1, 0)
            : 0;
    if (each > 0) {
        framework_put(import, "parallel.layers_per_chunk", json_integer(each));
        json_object_del(json_object_get(import->scenario, "parallel"), "chunks_per_rank");
    }
    read_mlp(import);
    read_model_rest(import);
    if (of->dialect != NEMO) {
        read_latents(import);
        read_stages(import);
        json_int_t offloaded = take_int(import, "cpu-offloading-num-layers", 0);
        json_int_t layers = framework_get_int(import->scenario, "model.layers", 0);
        if (offloaded > 0 && layers > 0 && offloaded <= layers) {
            framework_put(import, "memory.offload_ratio",
                          json_real((double)offloaded / (double)layers));
        }
        const framework_entry *sizes =
            framework_take(import, called(of, "model", "hierarchical-context-parallel-sizes").text);
        const json_t *inner = sizes != NULL ? json_array_get(sizes->value, 0) : NULL;
        if (inner != NULL) {
            framework_put(import, "stack.cp_a2a_ranks",
                          json_is_string(inner) ? json_integer(atoll(json_string_value(inner)))
                                                : json_incref((json_t *)inner));
        }
    }
    read_vocabulary(import);
    read_recompute(import);
    read_sharding(import);
    read_dispatcher(import);
    read_optimizer(import);
    read_loss(import);
    read_precision(import);
    // Without a ring there is nothing to choose.
    if (of->dialect == MEGATRON && framework_get_int(import->scenario, "parallel.cp", 1) > 1 &&
        json_object_get(import->stated, "stack.cp_overlap") == NULL) {
        framework_put(import, "stack.cp_overlap", json_string("attention"));
    }
    if (framework_get_int(import->scenario, "parallel.tp", 1) == 1) {
        json_object_del(json_object_get(import->scenario, "parallel"), "sequence_parallel");
    }
}

// ---- Megatron: written ----

static void say(framework_output *output, const char *section, const char *argument, json_t *value)
{
    framework_say(output, called(output->of, section, argument).text, value);
}

static void write_mlp(framework_output *output)
{
    const json_t *s = output->scenario;
    json_int_t ffn = framework_get_int(s, "model.ffn", 0);
    json_int_t experts = framework_get_int(s, "model.experts", 0);
    const json_t *kinds = framework_get(s, "model.layer_kinds");
    if (experts > 0) {
        say(output, "model", "moe-router-topk",
            json_integer(framework_get_int(s, "model.experts_per_token", 2)));
    }
    if (experts == 0 || output->of->dialect == NEMO) {
        say(output, "model", "ffn-hidden-size", json_integer(ffn));
        return;
    }
    say(output, "model", "moe-ffn-hidden-size", json_integer(ffn));
    json_int_t dense = ffn;
    json_int_t layers = framework_get_int(s, "model.layers", 0);
    char text[4096] = "";
    size_t length = 0;
    json_int_t done = 0;
    size_t count = json_array_size(kinds);
    for (size_t i = 0; count > 0 && done < layers; i = (i + 1) % count) {
        const json_t *kind = json_array_get(kinds, i);
        json_int_t run = framework_get_int(kind, "layers", 1);
        bool has = framework_get_int(kind, "experts", experts) > 0;
        run = run > layers - done ? layers - done : run;
        dense = has ? dense : framework_get_int(kind, "ffn", ffn);
        int written = snprintf(text + length, sizeof text - length, "%s[%d]*%lld",
                               length > 0 ? "+" : "", has, (long long)run);
        if (run <= 0 || written < 0 || (size_t)written >= sizeof text - length) {
            return; // the comparison of what is read back says so
        }
        length += (size_t)written;
        done += run;
    }
    say(output, "model", "ffn-hidden-size", json_integer(dense));
    if (count > 0) {
        say(output, "model", "moe-layer-freq", json_string(text));
    }
}

static void write_latents(framework_output *output)
{
    const json_t *s = output->scenario;
    if (framework_get_int(s, "model.kv_lora_rank", 0) == 0) {
        return;
    }
    say(output, "model", "multi-latent-attention", json_true());
    if (framework_get_int(s, "model.q_lora_rank", 0) > 0) {
        say(output, "model", "q-lora-rank", json_incref(framework_get(s, "model.q_lora_rank")));
    }
    say(output, "model", "kv-lora-rank", json_incref(framework_get(s, "model.kv_lora_rank")));
    say(output, "model", "qk-head-dim", json_incref(framework_get(s, "model.qk_nope_dim")));
    say(output, "model", "qk-pos-emb-head-dim", json_incref(framework_get(s, "model.qk_rope_dim")));
    say(output, "model", "v-head-dim", json_incref(framework_get(s, "model.v_head_dim")));
}

static void write_recompute(framework_output *output)
{
    sp_recompute recompute = SP_RECOMPUTE_NONE;
    char wrong[SP_RECOMPUTE_TEXT];
    bool nemo = output->of->dialect == NEMO;
    const char *granularity = nemo ? "activations-checkpoint-granularity" : "recompute-granularity";
    sp_recompute_read(framework_get(output->scenario, "memory.recompute"), &recompute, wrong);
    if (recompute == SP_RECOMPUTE_NONE) {
        if (output->of->overrides) {
            say(output, "model", granularity, json_null());
        }
        return;
    }
    if (recompute == SP_RECOMPUTE_FULL) {
        say(output, "model", granularity, json_string("full"));
        say(output, "model", nemo ? "activations-checkpoint-method" : "recompute-method",
            json_string("uniform"));
        say(output, "model", nemo ? "activations-checkpoint-num-layers" : "recompute-num-layers",
            json_integer(1));
        return;
    }
    unsigned modules = sp_recompute_modules(recompute);
    if (modules == 0 || (nemo && recompute != SP_RECOMPUTE_ATTENTION)) {
        return;
    }
    say(output, "model", granularity, json_string("selective"));
    if (!nemo) {
        json_t *names = json_array();
        for (int m = 0; sp_module_name(m) != NULL; m++) {
            if ((modules & sp_module_find(sp_module_name(m))) != 0) {
                json_array_append_new(names, json_string(sp_module_name(m)));
            }
        }
        say(output, "model", "recompute-modules", names);
    }
}

static void write_sharding(framework_output *output)
{
    const json_t *s = output->scenario;
    json_int_t stage = framework_get_int(s, "parallel.zero", 0);
    json_int_t group = framework_get_int(s, "parallel.zero_group", 0);
    json_int_t ranks =
        framework_get_int(s, "parallel.dp", 1) * framework_get_int(s, "parallel.cp", 1);
    if (output->of->dialect == NEMO) {
        framework_say(output, "model.optim.name",
                      json_string(stage > 0 ? "distributed_fused_adam" : "fused_adam"));
        return;
    }
    if (stage > 0 || output->of->overrides) {
        say(output, "ddp", "use-distributed-optimizer", json_boolean(stage > 0));
    }
    if (stage > 1) {
        say(output, "ddp", "use-megatron-fsdp", json_true());
        say(output, "ddp", "data-parallel-sharding-strategy", json_string(strategies[stage]));
        // The only one it saves in (training/arguments.py).
        say(output, "checkpoint", "ckpt-format", json_string("fsdp_dtensor"));
    }
    if (stage > 0 && group > 0 && group < ranks && ranks % group == 0) {
        say(output, "ddp", "num-distributed-optimizer-instances", json_integer(ranks / group));
    }
}

static void write_stages(framework_output *output)
{
    const json_t *stages = framework_get(output->scenario, "parallel.stage_layers");
    size_t i;
    json_t *layers;
    char text[4096] = "E";
    size_t length = 1;
    if (!json_is_array(stages) || output->of->dialect == NEMO) {
        return;
    }
    json_int_t further = framework_get_int(output->scenario, "model.mtp_layers", 0);
    json_array_foreach ((json_t *)stages, i, layers) {
        int written = snprintf(text + length, sizeof text - length, "%st*%lld", i > 0 ? "|" : "",
                               (long long)json_integer_value(layers));
        if (written < 0 || (size_t)written >= sizeof text - length) {
            return;
        }
        length += (size_t)written;
    }
    char end[16];
    snprintf(end, sizeof end, further > 0 ? "m*%lldL" : "L", (long long)further);
    if (length + strlen(end) < sizeof text) {
        memcpy(text + length, end, strlen(end) + 1);
        say(output, "model", "pipeline-model-parallel-layout", json_string(text));
    }
}

static void write_loss(framework_output *output)
{
    const bool in_place =
        json_is_true(framework_get(output->scenario, "stack.fused_cross_entropy"));
    const bool fused =
        in_place || json_is_true(framework_get(output->scenario, "stack.copied_logits"));
    if (output->of->dialect == NEMO) {
        return;
    }
    if (fused || output->of->overrides) {
        say(output, "model", "cross-entropy-loss-fusion", json_boolean(fused));
    }
    if (fused) {
        say(output, "model", "cross-entropy-fusion-impl", json_string(in_place ? "te" : "native"));
    }
}

static void write_host_states(framework_output *output)
{
    double share = json_number_value(framework_get(output->scenario, "memory.offload_states"));
    if (share > 0.0) {
        say(output, "optimizer", "optimizer-cpu-offload", json_true());
        // Which it needs (training/arguments.py).
        say(output, "optimizer", "use-precision-aware-optimizer", json_true());
        say(output, "optimizer", "optimizer-offload-fraction", json_real(share));
        if (json_is_true(framework_get(output->scenario, "stack.host_overlap"))) {
            say(output, "optimizer", "overlap-cpu-optimizer-d2h-h2d", json_true());
        }
    }
}

static void write_megatron(framework_output *output)
{
    const json_t *s = output->scenario;
    const framework *of = output->of;
    bool cli = of->dialect == MEGATRON;
    json_int_t context = framework_get_int(s, "workload.context", 0);
    json_int_t positions = framework_get_int(s, "model.max_positions", 0);
    json_int_t nodes = 0;
    json_int_t each = processes_of_node(s, &nodes);
    if (cli) {
        framework_say_launch(output, "nproc-per-node", json_integer(each));
        framework_say_launch(output, "nnodes", json_integer(nodes));
        framework_say(output, "bf16", json_true());
        if (framework_get_int(s, "model.kv_heads", 0) != framework_get_int(s, "model.heads", 0)) {
            framework_say(output, "group-query-attention", json_true());
        }
        framework_say(output, "padded-vocab-size", json_incref(framework_get(s, "model.vocab")));
        // As it is anyway beside BF16 (training/arguments.py), where --grad-reduce-in-bf16 is not.
        const char *sums = json_string_value(framework_get(s, "stack.gradient_reduce_dtype"));
        if (sums != NULL && strcmp(sums, "fp32") == 0) {
            framework_say(output, "accumulate-allreduce-grads-in-fp32", json_true());
        }
        write_host_states(output);
    } else if (of->dialect == BRIDGE) {
        framework_say(output, "model.vocab_size", json_incref(framework_get(s, "model.vocab")));
        framework_say(output, "dataset.sequence_length", json_integer(context));
        write_host_states(output);
    } else {
        framework_say(output, "trainer.devices", json_integer(each));
        framework_say(output, "trainer.num_nodes", json_integer(nodes));
        framework_say(output, "trainer.precision", json_string("bf16"));
    }
    if (of->dialect != BRIDGE) {
        say(output, "model", "max-position-embeddings",
            json_integer(positions > 0 ? positions : context));
    }
    write_mlp(output);
    if (!json_is_true(framework_get(s, "model.dropout"))) {
        say(output, "model", "hidden-dropout", json_real(0.0));
        say(output, "model", "attention-dropout", json_real(0.0));
    }
    json_int_t window = framework_get_int(s, "model.window_tokens", 0);
    if (window > 1 && of->dialect != NEMO) {
        char text[64];
        snprintf(text, sizeof text, "%lld,0", (long long)window - 1);
        say(output, "model", "window-size", json_string(text));
    }
    if (of->dialect != NEMO) {
        write_latents(output);
    }
    write_recompute(output);
    write_loss(output);
    write_sharding(output);
    write_stages(output);
    const char *dispatcher = json_string_value(framework_get(s, "stack.dispatcher"));
    if (framework_get_int(s, "model.experts", 0) > 0 && of->dialect != NEMO) {
        const char *type = dispatcher != NULL ? dispatcher : "alltoall";
        json_int_t sms = framework_get_int(s, "stack.dispatcher_sms", 0);
        for (size_t i = 0; i < sizeof flex_backends / sizeof flex_backends[0]; i++) {
            if (strcmp(type, flex_backends[i].backend) == 0) {
                type = "flex";
                if (sms > 0) {
                    say(output, "model", flex_backends[i].sms, json_integer(sms));
                }
            }
        }
        if (dispatcher != NULL && strcmp(dispatcher, "deepep") == 0) {
            // Older releases know no other argument for it.
            say(output, "model", "moe-enable-deepep", json_true());
        } else if (strcmp(type, "flex") == 0) {
            say(output, "model", "moe-flex-dispatcher-backend", json_string(dispatcher));
        }
        say(output, "model", "moe-token-dispatcher-type", json_string(type));
        if (framework_get_int(s, "stack.router_kernels", 0) == SP_FUSED_ROUTER_KERNELS) {
            say(output, "model", "moe-router-fusion", json_true());
        }
        const bool fused = !json_is_true(framework_get(s, "stack.unfused_permutation"));
        if (fused || of->overrides) {
            say(output, "model", "moe-permute-fusion", json_boolean(fused));
        }
    }
    json_int_t moments = framework_get_int(s, "stack.moment_bytes", 0);
    if ((moments == 1 || moments == 2) && of->dialect != NEMO) {
        const char *type = moments == 1 ? "fp8" : "bf16";
        say(output, "optimizer", "use-precision-aware-optimizer", json_true());
        say(output, "optimizer", "exp-avg-dtype", json_string(type));
        say(output, "optimizer", "exp-avg-sq-dtype", json_string(type));
    }
    json_int_t inner = framework_get_int(s, "stack.cp_a2a_ranks", 0);
    if (inner > 0 && of->dialect != NEMO) {
        json_t *sizes = json_array();
        json_array_append_new(sizes, json_integer(inner));
        json_array_append_new(sizes, json_integer(framework_get_int(s, "parallel.cp", 1) / inner));
        say(output, "model", "hierarchical-context-parallel-sizes", sizes);
    }
    double ratio = json_number_value(framework_get(s, "memory.offload_ratio"));
    double layers = (double)framework_get_int(s, "model.layers", 0) * ratio;
    if (ratio > 0.0 && layers == (double)(json_int_t)layers && of->dialect != NEMO) {
        say(output, "model", "cpu-offloading-num-layers", json_integer((json_int_t)layers));
    }
}

// ---- the list ----

const framework framework_megatron = {FRAMEWORK_CALLED(megatron, "Megatron-LM"),
                                      .stack = "megatron-core-2025",
                                      .syntax = FRAMEWORK_SHELL,
                                      .reads = 1U << FRAMEWORK_SHELL | 1U << FRAMEWORK_YAML,
                                      .dialect = MEGATRON,
                                      .switches = megatron_switches,
                                      .rotary_base = "rotary-base",
                                      .by_leaf = true,
                                      .rows = megatron_rows,
                                      .read = read_megatron,
                                      .write = write_megatron};

const framework framework_bridge = {FRAMEWORK_CALLED(bridge, "Megatron-Bridge"),
                                    .stack = "megatron-bridge-2025",
                                    .syntax = FRAMEWORK_YAML,
                                    .reads = 1U << FRAMEWORK_YAML,
                                    .dialect = BRIDGE,
                                    .overrides = true,
                                    .rows = megatron_rows,
                                    .read = read_megatron,
                                    .write = write_megatron,
                                    .rotary_base = "model.rotary_base"};

const framework framework_nemo = {FRAMEWORK_CALLED(nemo, "NeMo"),
                                  .syntax = FRAMEWORK_YAML,
                                  .reads = 1U << FRAMEWORK_YAML,
                                  .dialect = NEMO,
                                  .overrides = true,
                                  .rows = megatron_rows,
                                  .read = read_megatron,
                                  .write = write_megatron,
                                  .rotary_base = "model.rotary_base"};
