// Names of arguments of training frameworks, as their own sources have them (repository, commit and
// file above each list): what --emit writes is held against these.
#ifndef SLIMPACK_TESTS_SUPPORT_FRAMEWORK_NAMES_H
#define SLIMPACK_TESTS_SUPPORT_FRAMEWORK_NAMES_H

// NVIDIA/Megatron-LM@000c4ac24f61159c138b0975def722c65245983c, megatron/training/arguments.py;
// backends of flex and HybridEP's SMs as in the dev branch @d48bd6be, examples/moe_recipes;
// moe-latent-size is the config's moe_latent_size, @00119989, megatron/core/transformer/moe;
// nproc-per-node, nnodes, node-rank and master-addr are torchrun's.
static const char names_of_megatron[] =
    "num-layers hidden-size ffn-hidden-size num-attention-heads attention-backend kv-channels "
    "group-query-attention num-query-groups softmax-type window-size max-position-embeddings "
    "position-embedding-type normalization squared-relu swiglu quick-geglu "
    "untie-embeddings-and-output-weights multi-latent-attention mtp-num-layers attention-dropout "
    "hidden-dropout micro-batch-size global-batch-size recompute-activations recompute-granularity "
    "recompute-method recompute-num-layers recompute-modules cpu-offloading-num-layers "
    "optimizer-cpu-offload ckpt-format "
    "optimizer-offload-fraction overlap-cpu-optimizer-d2h-h2d "
    "tp-comm-overlap no-bias-swiglu-fusion cross-entropy-loss-fusion cross-entropy-fusion-impl "
    "disable-bias-linear "
    "add-qkv-bias sequence-parallel no-gradient-accumulation-fusion fp16 bf16 grad-reduce-in-bf16 "
    "accumulate-allreduce-grads-in-fp32 tensor-model-parallel-size pipeline-model-parallel-size "
    "decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers "
    "pipeline-model-parallel-layout num-layers-per-virtual-pipeline-stage "
    "num-virtual-stages-per-pipeline-rank microbatch-group-size-per-virtual-pipeline-stage "
    "overlap-grad-reduce overlap-param-gather use-distributed-optimizer use-megatron-fsdp "
    "data-parallel-sharding-strategy num-distributed-optimizer-instances use-torch-fsdp2 "
    "context-parallel-size cp-comm-type hierarchical-context-parallel-sizes use-tp-pp-dp-mapping "
    "vocab-size padded-vocab-size seq-length qk-layernorm expert-model-parallel-size "
    "expert-tensor-parallel-size num-experts moe-layer-freq moe-ffn-hidden-size "
    "moe-shared-expert-intermediate-size moe-shared-expert-overlap moe-router-topk moe-latent-size "
    "moe-router-num-groups moe-router-group-topk moe-router-force-load-balancing "
    "moe-token-dispatcher-type moe-enable-deepep moe-deepep-num-sms moe-expert-capacity-factor "
    "moe-flex-dispatcher-backend moe-hybridep-num-sms moe-permute-fusion "
    "overlap-moe-expert-parallel-comm delay-wgrad-compute q-lora-rank kv-lora-rank qk-head-dim "
    "qk-pos-emb-head-dim v-head-dim use-precision-aware-optimizer exp-avg-dtype exp-avg-sq-dtype "
    "fp8-format fp8-recipe fp8-param-gather "
    "launch.nproc-per-node launch.nnodes launch.node-rank launch.master-addr";

// Fields of the classes whose objects Megatron-Bridge's configuration holds: `model` of
// NVIDIA/Megatron-LM@02aa3ee454b5ff16b1bf356ec36fa0cc1c26858f,
// megatron/core/model_parallel_config.py,
// @002526d81b81f6ab534e93844f9a228709887494, megatron/core/transformer/transformer_config.py, and
// NVIDIA-NeMo/Megatron-Bridge@0254ddd4418307d47f3d5fab32cdfdb29926b4d6,
// src/megatron/bridge/models/gpt_provider.py; `ddp` of
// NVIDIA/Megatron-LM@001199898c4badd01eaf0785c212d8ed7ce83042,
// megatron/core/distributed/distributed_data_parallel_config.py; `mixed_precision` of
// Megatron-Bridge@05097809102de3cbe888267e7d701868165153d8,
// src/megatron/bridge/training/mixed_precision.py; `train` and `dataset` as in
// Megatron-Bridge@87107da262f13358402626dec6aa24a609aef3e2,
// examples/recipes/kimi/conf/kimi_k2_pretrain_l8.yaml; `optimizer` has arguments.py's.
static const char names_of_bridge[] =
    "optimizer.optimizer_cpu_offload optimizer.optimizer_offload_fraction checkpoint.ckpt_format "
    "optimizer.overlap_cpu_optimizer_d2h_h2d "
    "model.tensor_model_parallel_size model.pipeline_model_parallel_size "
    "model.virtual_pipeline_model_parallel_size model.sequence_parallel "
    "model.context_parallel_size "
    "model.hierarchical_context_parallel_sizes model.expert_model_parallel_size "
    "model.expert_tensor_parallel_size model.gradient_accumulation_fusion model.tp_comm_overlap "
    "model.cross_entropy_loss_fusion model.cross_entropy_fusion_impl "
    "model.overlap_moe_expert_parallel_comm "
    "model.delay_wgrad_compute model.microbatch_group_size_per_vp_stage model.num_layers "
    "model.mtp_num_layers model.pipeline_model_parallel_layout model.hidden_size "
    "model.num_attention_heads model.attention_backend model.softmax_type model.num_query_groups "
    "model.ffn_hidden_size model.kv_channels model.hidden_dropout model.attention_dropout "
    "model.add_bias_linear model.add_qkv_bias model.num_moe_experts model.window_size "
    "model.normalization model.qk_layernorm model.multi_latent_attention "
    "model.recompute_granularity model.recompute_method model.recompute_num_layers "
    "model.recompute_modules model.moe_shared_expert_intermediate_size model.moe_latent_size "
    "model.moe_shared_expert_overlap model.moe_layer_freq model.moe_ffn_hidden_size "
    "model.moe_router_topk model.moe_router_num_groups model.moe_router_group_topk "
    "model.moe_router_force_load_balancing model.moe_token_dispatcher_type model.moe_enable_deepep "
    "model.moe_expert_capacity_factor model.moe_deepep_num_sms model.cp_comm_type "
    "model.moe_flex_dispatcher_backend model.moe_hybridep_num_sms model.moe_permute_fusion "
    "model.share_embeddings_and_output_weights model.position_embedding_type model.seq_length "
    "model.vocab_size ddp.grad_reduce_in_fp32 ddp.overlap_grad_reduce ddp.overlap_param_gather "
    "ddp.use_distributed_optimizer ddp.num_distributed_optimizer_instances ddp.use_megatron_fsdp "
    "ddp.data_parallel_sharding_strategy mixed_precision.fp8 mixed_precision.fp8_recipe "
    "mixed_precision.fp8_param_gather train.global_batch_size train.micro_batch_size "
    "dataset.sequence_length optimizer.use_precision_aware_optimizer optimizer.exp_avg_dtype "
    "optimizer.exp_avg_sq_dtype model.q_lora_rank model.kv_lora_rank model.qk_head_dim "
    "model.qk_pos_emb_head_dim model.v_head_dim";

// NVIDIA/NeMo@31ed549cbf38b14185a7264d7a4d3c8fad84a175,
// examples/nlp/language_modeling/conf/megatron_qwen2_config.yaml, and of experts
// @08790d90f4504f524c5ef111ba0758c1768f8628, megatron_mamba_config.yaml beside it.
static const char names_of_nemo[] =
    "trainer.devices trainer.num_nodes trainer.precision model.micro_batch_size "
    "model.global_batch_size model.tensor_model_parallel_size model.pipeline_model_parallel_size "
    "model.virtual_pipeline_model_parallel_size model.encoder_seq_length "
    "model.max_position_embeddings model.num_layers model.hidden_size model.ffn_hidden_size "
    "model.num_attention_heads model.hidden_dropout model.attention_dropout model.kv_channels "
    "model.normalization model.bias model.qkv_bias model.activation model.position_embedding_type "
    "model.share_embeddings_and_output_weights model.num_query_groups model.override_vocab_size "
    "model.gradient_accumulation_fusion model.activations_checkpoint_granularity "
    "model.activations_checkpoint_method model.activations_checkpoint_num_layers "
    "model.sequence_parallel model.fp8 model.fp8_hybrid model.optim.name "
    "model.expert_model_parallel_size model.num_moe_experts model.moe_router_topk";

// pytorch/torchtitan@000204a4a8bf3d0f31adc44fc29855fbb6ea13d8, torchtitan/config/job_config.py.
static const char names_of_torchtitan[] =
    "model.name model.flavor model.converters training.local_batch_size "
    "training.global_batch_size training.seq_len training.mixed_precision_param "
    "training.mixed_precision_reduce training.compile parallelism.data_parallel_replicate_degree "
    "parallelism.data_parallel_shard_degree parallelism.fsdp_reshard_after_forward "
    "parallelism.tensor_parallel_degree parallelism.enable_async_tensor_parallel "
    "parallelism.pipeline_parallel_degree parallelism.pipeline_parallel_layers_per_stage "
    "parallelism.pipeline_parallel_schedule parallelism.pipeline_parallel_microbatch_size "
    "parallelism.context_parallel_degree parallelism.context_parallel_rotate_method "
    "parallelism.expert_parallel_degree activation_checkpoint.mode float8.recipe_name "
    "float8.enable_fsdp_float8_all_gather";

// deepspeedai/DeepSpeed@ac2f3a347d5c7467879ff60f3324718eef881dc6, deepspeed/runtime/constants.py,
// and microsoft/DeepSpeed@03dc2b92f3d31a79ddb99caa7180d06b3379082c,
// deepspeed/runtime/zero/config.py; not_expressed is ours, which DeepSpeed passes over.
static const char names_of_deepspeed[] =
    "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps bf16.enabled "
    "communication_data_type zero_optimization.stage zero_optimization.overlap_comm "
    "zero_optimization.reduce_bucket_size zero_optimization.mics_shard_size "
    "zero_optimization.offload_optimizer.device "
    "zero_optimization.offload_optimizer.ratio not_expressed";

// huggingface/trl@016013e88acec9257c7476fdcdb12e5479938a5f, trl/trainer/sft_config.py,
// @040e32d68f430e201a6333b07758295df4157e14 and @bc13ae6d91667d42f5ad74e211b5db703dc4377e
// (attn_implementation; its torch_dtype is deprecated for dtype later),
// trl/trainer/model_config.py, and
// huggingface/transformers@00349ae87eddc872ffa21a8a54f264375a0056a8,
// src/transformers/training_args.py; kernels of liger_kernel_config are those of
// linkedin/Liger-Kernel v0.8.2, src/liger_kernel/transformers/monkey_patch.py.
static const char names_of_trl[] =
    "model_name_or_path max_length packing packing_strategy padding_free use_peft lora_r "
    "pad_to_multiple_of lora_dropout lora_target_modules per_device_train_batch_size "
    "gradient_accumulation_steps "
    "gradient_checkpointing bf16 dtype attn_implementation optim fsdp load_in_4bit "
    "bnb_4bit_quant_type use_bnb_nested_quant "
    "loss_type use_liger_kernel liger_kernel_config.fused_linear_cross_entropy "
    "liger_kernel_config.cross_entropy liger_kernel_config.rms_norm liger_kernel_config.swiglu";

// huggingface/accelerate@002dd35a68fd5d11953d1749dbd3e50a88db3062,
// src/accelerate/commands/config/config_args.py; keys of deepspeed_config and fsdp_config are those
// of huggingface/trl, trl/accelerate_configs/zero1.yaml @6b012dc157b7aa880d41ab1c2714d31453072594,
// zero3.yaml @11321994634037fda6240df21ac6c5711aa33a55 and fsdp2.yaml
// @9ce14f855ba4aaf1d6b34a7154c19350920f5b5f; of parallelism_config they are in
// src/accelerate/utils/launch.py and, of sp_*, in
// @047f7e8d692527703c13defda879bfa4e669fe7c, docs/source/concept_guides/sequence_parallelism.md.
static const char names_of_accelerate[] =
    "compute_environment distributed_type mixed_precision num_machines num_processes machine_rank "
    "deepspeed_config.zero_stage deepspeed_config.gradient_accumulation_steps "
    "deepspeed_config.offload_optimizer_device deepspeed_config.deepspeed_multinode_launcher "
    "fsdp_config.fsdp_version fsdp_config.fsdp_reshard_after_forward "
    "fsdp_config.fsdp_auto_wrap_policy fsdp_config.fsdp_state_dict_type "
    "parallelism_config.parallelism_config_tp_size parallelism_config.parallelism_config_cp_size "
    "parallelism_config.parallelism_config_cp_comm_strategy "
    "parallelism_config.parallelism_config_sp_size "
    "parallelism_config.parallelism_config_sp_backend "
    "parallelism_config.parallelism_config_sp_seq_length_is_variable "
    "parallelism_config.parallelism_config_sp_attn_implementation "
    "parallelism_config.parallelism_config_dp_shard_size "
    "parallelism_config.parallelism_config_dp_replicate_size";

// huggingface/nanotron@00708b80c88ee7c05c89502e80c3201df916d774, src/nanotron/config/config.py,
// @19f88fbe454691f9bfcf98d6e3433dd7bcb82389, src/nanotron/config/parallelism_config.py, and
// @025f31413c6ea6a0fb6a5e35063b780ee91aba79, src/nanotron/config/models_config.py.
static const char names_of_nanotron[] =
    "model.model_config.num_hidden_layers model.model_config.hidden_size "
    "model.model_config.intermediate_size model.model_config.num_attention_heads "
    "model.model_config.num_key_value_heads model.model_config.vocab_size "
    "model.model_config.hidden_act model.model_config.tie_word_embeddings "
    "model.model_config.attention_bias model.model_config.max_position_embeddings model.dtype "
    "parallelism.dp parallelism.pp parallelism.tp parallelism.context_parallel_size "
    "parallelism.expert_parallel_size parallelism.tp_mode parallelism.pp_engine "
    "parallelism.recompute_layer optimizer.zero_stage optimizer.accumulate_grad_in_fp32 "
    "tokens.micro_batch_size tokens.sequence_length tokens.batch_accumulation_per_replica";

static const struct {
    const char *framework, *names;
} framework_sources[] = {
    {"megatron", names_of_megatron},   {"bridge", names_of_bridge},
    {"nemo", names_of_nemo},           {"torchtitan", names_of_torchtitan},
    {"deepspeed", names_of_deepspeed}, {"trl", names_of_trl},
    {"nanotron", names_of_nanotron},   {"accelerate", names_of_accelerate},
};

#endif
