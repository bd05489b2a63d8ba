// Scenarios written as arguments and read back: with what --emit says that it cannot say they are
// the same again, and all names are the framework's own.
#include "experiments/frameworks/frameworks.h"
#include "sim/base/alloc.h"
#include "tests/support/scenario_fixture.h"

// Names of arguments of training frameworks, as their own sources have them (repository, commit and
// file above each list): what --emit writes is held against these.

// NVIDIA/Megatron-LM@000c4ac24f61159c138b0975def722c65245983c, megatron/training/arguments.py;
// backends of flex and HybridEP's SMs as in the dev branch @d48bd6be, examples/moe_recipes;
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
    "tp-comm-overlap no-bias-swiglu-fusion cross-entropy-loss-fusion disable-bias-linear "
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
    "moe-shared-expert-intermediate-size moe-shared-expert-overlap moe-router-topk "
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
    "model.cross_entropy_loss_fusion model.overlap_moe_expert_parallel_comm "
    "model.delay_wgrad_compute model.microbatch_group_size_per_vp_stage model.num_layers "
    "model.mtp_num_layers model.pipeline_model_parallel_layout model.hidden_size "
    "model.num_attention_heads model.attention_backend model.softmax_type model.num_query_groups "
    "model.ffn_hidden_size model.kv_channels model.hidden_dropout model.attention_dropout "
    "model.add_bias_linear model.add_qkv_bias model.num_moe_experts model.window_size "
    "model.normalization model.qk_layernorm model.multi_latent_attention "
    "model.recompute_granularity model.recompute_method model.recompute_num_layers "
    "model.recompute_modules model.moe_shared_expert_intermediate_size "
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

enum { DRAWS = 300, TEXT = 4096 };

static int one_of(sp_prng *prng, const int *values, int count)
{
    return values[prng_below(prng, count)];
}

static const char *word_of(sp_prng *prng, const char *const *words, int count)
{
    return words[prng_below(prng, count)];
}

static bool coin(sp_prng *prng)
{
    return prng_below(prng, 2) == 1;
}

// A mode that Megatron-LM has, or modules that the model may have.
static json_t *recomputed(sp_prng *prng, bool experts)
{
    static const char *const modes[] = {"none", "attention", "full"};
    static const char *const dense[] = {"core_attn", "mlp"};
    static const char *const routed[] = {"core_attn", "layernorm", "mlp",
                                         "moe",       "moe_act",   "shared_experts"};
    json_t *modules = json_array();
    for (int m = 0; m < (experts ? 6 : 2); m++) {
        if (coin(prng)) {
            json_array_append_new(modules, json_string(experts ? routed[m] : dense[m]));
        }
    }
    if (json_array_size(modules) > 0 && coin(prng)) {
        return modules;
    }
    json_decref(modules);
    return json_string(word_of(prng, modes, 3));
}

// A model, ranks and a stack of Megatron-LM's; perhaps not a possible scenario.
static json_t *draw(sp_prng *prng)
{
    static const int few[] = {1, 2, 4};
    static const char *const activations[] = {"swiglu", "gelu", "squared-relu", "geglu"};
    static const char *const norms[] = {"rmsnorm", "layernorm"};
    static const char *const positions[] = {"rope", "learned", "none"};
    static const char *const exchanges[] = {"attention", "a2a", "blocking"};
    static const char *const dispatchers[] = {"alltoall", "allgather", "deepep", "hybridep"};
    int tp = one_of(prng, few, 3);
    int cp = one_of(prng, few, 2);
    int pp = one_of(prng, few, 3);
    int dp = one_of(prng, few, 3);
    int chunks = pp > 1 && coin(prng) ? 2 : 1;
    int heads = 8 * one_of(prng, few, 2);
    int each = 1 + prng_below(prng, 3);
    int experts = prng_below(prng, 3) == 0 ? 8 : 0;
    int context = 1024 * one_of(prng, few, 3);
    int rows = one_of(prng, few, 2);
    bool hides = tp > 1 && coin(prng);
    json_t *model = sp_json_object(
        SP_JSON("layers", pp * chunks * each), SP_JSON("hidden", heads * 64),
        SP_JSON("ffn", 256 * (1 + prng_below(prng, 8))), SP_JSON("heads", heads),
        SP_JSON("kv_heads", coin(prng) ? heads : 4),
        SP_JSON("vocab", 512 * (1 + prng_below(prng, 9))),
        SP_JSON("activation", word_of(prng, activations, 4)),
        SP_JSON("norm", word_of(prng, norms, 2)),
        SP_JSON("positional", word_of(prng, positions, 3)),
        SP_JSON("tied_embeddings", json_boolean(coin(prng))),
        SP_JSON("bias", json_boolean(coin(prng))), SP_JSON("qk_norm", json_boolean(coin(prng))),
        SP_JSON("dropout", json_boolean(coin(prng))));
    if (strcmp(json_string_value(json_object_get(model, "positional")), "learned") == 0) {
        sp_json_put(model, "max_positions", json_integer(context));
    }
    if (experts > 0) {
        sp_json_add(model, SP_JSON("experts", experts), SP_JSON("experts_per_token", 2));
        if (coin(prng)) {
            sp_json_put(model, "shared_ffn", json_integer(512));
        }
        if (coin(prng) && pp * chunks * each > 2) {
            json_t *kinds = json_array();
            json_array_append_new(kinds, sp_json_object(SP_JSON("layers", 1), SP_JSON("ffn", 1024),
                                                        SP_JSON("experts", 0),
                                                        SP_JSON("experts_per_token", 0),
                                                        SP_JSON("shared_ffn", 0)));
            json_array_append_new(kinds, sp_json_object(SP_JSON("layers", pp * chunks * each - 1)));
            sp_json_put(model, "layer_kinds", kinds);
        }
    }
    json_t *stack = sp_json_object(
        SP_JSON("name", "megatron-core-2025"), SP_JSON("hide_forward_gather", hides),
        SP_JSON("hide_forward_reduce", hides), SP_JSON("hide_backward_gather", hides),
        SP_JSON("hide_backward_reduce", hides),
        SP_JSON("hide_gradient_reduce", json_boolean(coin(prng))),
        SP_JSON("hide_parameter_gather", json_boolean(coin(prng))),
        SP_JSON("fused_cross_entropy", json_boolean(coin(prng))),
        SP_JSON("fused_swiglu", json_boolean(coin(prng))),
        SP_JSON("unfused_weight_gradient", json_boolean(coin(prng))),
        SP_JSON("gradient_reduce_dtype", coin(prng) ? "bf16" : "fp32"));
    if (cp > 1) {
        sp_json_put(stack, "cp_overlap", json_string(word_of(prng, exchanges, 3)));
    }
    if (experts > 0) {
        const char *dispatcher = word_of(prng, dispatchers, 4);
        sp_json_put(stack, "dispatcher", json_string(dispatcher));
        // Those of collectives are NCCL's, which no argument states.
        if (strstr(dispatcher, "ep") != NULL && coin(prng)) {
            sp_json_put(stack, "dispatcher_sms", json_integer(8));
        }
    }
    json_t *parallel = sp_json_object(SP_JSON("tp", tp), SP_JSON("cp", cp), SP_JSON("pp", pp),
                                      SP_JSON("dp", dp), SP_JSON("zero", prng_below(prng, 4)));
    if (chunks > 1) {
        sp_json_put(parallel, "chunks_per_rank", json_integer(chunks));
    }
    if (tp > 1) {
        sp_json_put(parallel, "sequence_parallel", json_boolean(coin(prng)));
    }
    if (experts > 0 && coin(prng)) {
        sp_json_put(parallel, "ep", json_integer(2));
    }
    if (chunks == 1 && pp > 1 && experts == 0 && coin(prng)) {
        json_t *stages = json_array();
        for (int i = 0; i < pp; i++) {
            int more = i == 0 ? -1 : i == pp - 1 ? 1 : 0;
            json_array_append_new(stages, json_integer(each + (each > 1 ? more : 0)));
        }
        sp_json_put(parallel, "stage_layers", stages);
    }
    return sp_json_object(
        SP_JSON("model", model), SP_JSON("stack", stack), SP_JSON("parallel", parallel),
        SP_JSON("memory", sp_json_object(SP_JSON("recompute", recomputed(prng, experts > 0)))),
        SP_JSON("schedule", sp_json_object(SP_JSON("microbatch_samples", rows))),
        SP_JSON("workload", sp_json_object(SP_JSON("uniform", context), SP_JSON("context", context),
                                           SP_JSON("samples_per_batch", rows * dp * pp * 2))));
}

// A scenario that can be, and its document.
static bool make(sp_prng *prng, sp_scenario *scenario)
{
    sp_error err = {0};
    json_auto_t *document = draw(prng);
    char *text = json_dumps(document, JSON_COMPACT);
    bool good = fixture_read(text, scenario, &err) == SP_OK;
    free(text);
    if (!good) {
        sp_scenario_fini(scenario);
    }
    return good;
}

static json_t *without_names(const json_t *resolved)
{
    json_t *copy = json_deep_copy(resolved);
    json_object_del(copy, "chosen");
    json_object_del(copy, "nodes");
    json_object_del(json_object_get(copy, "model"), "name");
    json_object_del(json_object_get(copy, "stack"), "name");
    // TRL packs best fit first, which makes the rows that samples of one length fill in order, and
    // truncates, which no sample needs.
    json_object_del(json_object_get(copy, "workload"), "over_length");
    json_t *strategy = json_object_get(copy, "strategy");
    const char *kind = json_string_value(json_object_get(strategy, "kind"));
    if (kind != NULL && strcmp(kind, "bfd") == 0) {
        sp_json_put(strategy, "kind", json_string("packed"));
    }
    // Where it is not stated, models with GELU alone have dropout.
    json_t *model = json_object_get(copy, "model");
    if (json_object_get(model, "dropout") == NULL) {
        const char *activation = json_string_value(json_object_get(model, "activation"));
        sp_json_put(model, "dropout", json_boolean(strcmp(activation, "gelu") == 0));
    }
    return copy;
}

// The scenario as arguments, and what they cannot say; the caller owns both.
static char *write_text(const framework *of, const sp_scenario *scenario, json_t **lost)
{
    char *text = NULL;
    *lost = NULL;
    must_succeed(framework_emit(of, scenario, &text, lost, ERR));
    return text;
}

static json_t *read_text(const framework *of, const char *text)
{
    json_t *document = NULL;
    json_auto_t *unread = NULL;
    json_auto_t *notes = NULL;
    sp_error err = {0};
    sp_status status =
        framework_import_text("written", text, strlen(text), of, &document, &unread, &notes, &err);
    if (status != SP_OK) {
        fail_msg("%s: %s\n%s", of->name, err.message[0], text);
    }
    if (json_array_size(unread) != 0) {
        fail_msg("%s: does not understand what it wrote: %s\n%s", of->name,
                 json_dumps(unread, JSON_COMPACT), text);
    }
    return document;
}

// What was read, with what was said to be lost, is the scenario. The machine is the scenario's own.
static void check_same(const framework *of, const sp_scenario *scenario, const char *text,
                       const json_t *lost)
{
    static const char *const taken[] = {"cluster", "profile"};
    json_auto_t *document = read_text(of, text);
    const json_t *from = scenario->resolved;
    size_t i;
    json_t *item;
    for (size_t t = 0; t < 2; t++) {
        sp_json_put(document, taken[t], json_deep_copy(json_object_get(from, taken[t])));
    }
    json_array_foreach ((json_t *)lost, i, item) {
        const char *key = json_string_value(json_object_get(item, "key"));
        json_t *value = framework_get(from, key);
        // Null: the scenario does not have it.
        framework_put_at(document, key,
                         value != NULL ? json_deep_copy(value)
                                       : json_incref(json_object_get(item, "value")));
    }
    if (framework_get(document, "parallel.dp") == NULL) {
        framework_put_at(document, "parallel.dp",
                         json_deep_copy(framework_get(from, "parallel.dp")));
    }
    // A batch that is lost has been put back.
    const json_int_t count = framework_is_lost(lost, "workload.samples_per_batch")
                                 ? 0
                                 : framework_get_int(document, "schedule.microbatches", 0);
    if (count > 0) {
        framework_put_at(
            document, "workload.samples_per_batch",
            json_integer(count * framework_get_int(document, "parallel.dp", 1) *
                         framework_get_int(document, "schedule.microbatch_samples", 1)));
    }
    json_object_del(json_object_get(document, "schedule"), "microbatches");
    if (framework_get(document, "workload.samples_per_batch") == NULL) {
        framework_put_at(document, "workload.samples_per_batch",
                         json_deep_copy(framework_get(from, "workload.samples_per_batch")));
    }
    sp_error err = {0};
    AUTO(sp_scenario) again = {0};
    if (sp_scenario_from_json(document, "again", NULL, 0, &again, &err) != SP_OK) {
        fail_msg("%s: %s\n%s", of->name, err.message[0], text);
    }
    json_auto_t *first = without_names(from);
    json_auto_t *second = without_names(again.resolved);
    if (!json_equal(first, second)) {
        const char *section;
        json_t *value;
        json_object_foreach (first, section, value) {
            const json_t *other = json_object_get(second, section);
            if (!json_equal(value, other)) {
                fail_msg("%s: %s differs: %s, read back %s\n%s", of->name, section,
                         json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT),
                         other != NULL ? json_dumps(other, JSON_ENCODE_ANY | JSON_COMPACT) : "-",
                         text);
            }
        }
        fail_msg("%s: more is read back than was there\n%s", of->name, text);
    }
}

// Every drawn scenario that can be is all said by Megatron-LM's arguments.
TEST(megatron_says_all)
{
    fixture_begin();
    sp_prng prng = prng_seeded(1);
    const framework *megatron = framework_find("megatron");
    int checked = 0;
    for (int i = 0; i < DRAWS; i++) {
        sp_scenario scenario = {0};
        if (!make(&prng, &scenario)) {
            continue;
        }
        json_auto_t *lost;
        AUTO_FREE char *text = write_text(megatron, &scenario, &lost);
        if (json_array_size(lost) != 0) {
            fail_msg("not said: %s\n%s", json_dumps(lost, JSON_COMPACT), text);
        }
        check_same(megatron, &scenario, text, lost);
        checked++;
        sp_scenario_fini(&scenario);
    }
    assert_true(checked >= 100);
}

TEST(others_name_what_they_cannot_say)
{
    fixture_begin();
    sp_prng prng = prng_seeded(2);
    int checked = 0;
    for (int i = 0; i < DRAWS / 3; i++) {
        sp_scenario scenario = {0};
        if (!make(&prng, &scenario)) {
            continue;
        }
        for (int f = 1; framework_names[f] != NULL; f++) {
            json_auto_t *lost;
            const framework *of = framework_find(framework_names[f]);
            AUTO_FREE char *text = write_text(of, &scenario, &lost);
            check_same(of, &scenario, text, lost);
        }
        checked++;
        sp_scenario_fini(&scenario);
    }
    assert_true(checked >= 30);
}

// What the arguments say of the scenario of a text; the caller owns it and what they cannot say.
static json_t *read_back(const framework *of, const char *text, json_t **lost)
{
    AUTO(sp_scenario) scenario = {0};
    fixture_good(text, &scenario);
    AUTO_FREE char *written = write_text(of, &scenario, lost);
    return read_text(of, written);
}

// Optimizer states on the host are said by Megatron-LM and by Bridge, their overlap too.
TEST(states_on_the_host_are_said)
{
    fixture_begin();
    static const char *const says[] = {"megatron", "bridge"};
    for (int overlaps = 0; overlaps < 2; overlaps++) {
        for (int f = 0; f < 2; f++) {
            const char *text = json_text(
                "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1024}, "
                "'cluster': 'h100-8', 'stack': {'name': 'megatron-core-2025', 'host_overlap': %s}, "
                "'memory': {'offload_states': 0.5}, 'workload': {'uniform': 512, 'context': 512}}",
                overlaps == 1 ? "true" : "false");
            json_auto_t *lost;
            json_auto_t *document = read_back(framework_find(says[f]), text, &lost);
            assert_close(json_number_value(framework_get(document, "memory.offload_states")), 0.5,
                         1e-12);
            assert_int_equal(json_is_true(framework_get(document, "stack.host_overlap")),
                             overlaps == 1);
        }
    }
}

// DeepSpeed has a share of them with ZeRO 3 alone: else all go.
TEST(deepspeed_says_states_on_the_host)
{
    fixture_begin();
    static const struct {
        int stage;
        double share;
    } cases[] = {{3, 0.5}, {3, 1.0}, {2, 1.0}, {2, 0.5}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_auto_t *lost;
        json_auto_t *document = read_back(
            framework_find("deepspeed"),
            json_text("{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': 'hf-trainer', "
                      "'parallel': {'dp': 8, 'zero': %d}, 'memory': {'offload_states': %g}, "
                      "'workload': {'uniform': 512, 'context': 512}}",
                      cases[i].stage, cases[i].share),
            &lost);
        const bool is_said = cases[i].stage == 3 || cases[i].share == 1.0;
        assert_close(json_number_value(framework_get(document, "memory.offload_states")),
                     is_said ? cases[i].share : 1.0, 1e-12);
        assert_int_equal(framework_is_lost(lost, "memory.offload_states"), !is_said);
    }
}

// TRL packs best fit first, joins and cuts, or pads (trl/trainer/sft_config.py). What packs
// otherwise is said to become best fit, but where all samples are equally long.
TEST(trl_says_what_it_packs)
{
    fixture_begin();
    static const char drawn[] = "'lengths': [100, 300, 200, 400], 'order': 'file', "
                                "'samples_per_batch': 4";
    static const struct {
        const char *kind, *workload, *becomes;
        bool lost;
    } cases[] = {{"packed", drawn, "bfd", true},
                 {"packed", "'uniform': 512", "bfd", false},
                 {"packed", "'uniform': 100, 'samples_per_batch': 8", "bfd", false},
                 {"sorted", drawn, "bfd", true},
                 {"ffd", drawn, "bfd", true},
                 {"bfd", drawn, "bfd", false},
                 {"concat", drawn, "concat", false},
                 {"padded", drawn, "padded", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_auto_t *lost;
        const char *text = json_text(
            "{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': 'trl-2025', 'strategy': "
            "{'kind': '%s'}, 'workload': {%s, 'context': 512, 'over_length': 'truncate'}}",
            cases[i].kind, cases[i].workload);
        json_auto_t *document = read_back(framework_find("trl"), json_text("%s", text), &lost);
        const char *kind = json_string_value(framework_get(document, "strategy.kind"));
        assert_string_equal(kind, cases[i].becomes);
        if (framework_is_lost(lost, "strategy.kind") != cases[i].lost) {
            fail_msg("%s: %s", text, json_dumps(lost, JSON_COMPACT));
        }
    }
}

// DeepSpeed's file has no switch for what the Trainer recomputes: the loss says whose arguments
// have it, in the document and in the text. Such rows are of settings that the framework does not
// write.
TEST(what_another_file_has_is_said)
{
    fixture_begin();
    static const char whose[] = "gradient_checkpointing of the trainer's arguments";
    for (int recomputes = 0; recomputes < 2; recomputes++) {
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(
            json_text("{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': 'hf-trainer', "
                      "'parallel': {'dp': 8, 'zero': 3}, 'memory': {'recompute': '%s'}, "
                      "'workload': {'uniform': 512, 'context': 512}}",
                      recomputes == 1 ? "full" : "none"),
            &scenario);
        AUTO_FREE char *text = write_text(framework_find("deepspeed"), &scenario, &lost);
        assert_int_equal(framework_is_lost(lost, "memory.recompute"), recomputes == 1);
        assert_int_equal(strstr(text, whose) != NULL, recomputes == 1);
    }
    for (int f = 0; framework_names[f] != NULL; f++) {
        const framework *of = framework_find(framework_names[f]);
        for (const framework_elsewhere *row = of->elsewhere; row != NULL && row->key != NULL;
             row++) {
            assert_non_null(sp_setting_find(row->key));
            for (const framework_row *own = of->rows; own->key != NULL; own++) {
                assert_false(strcmp(own->key, row->key) == 0 && own->names[of->dialect] != NULL);
            }
        }
    }
}

// TRL pads to the longest of a micro-batch, which is no matter of rows that are not padded.
TEST(what_rows_are_padded_to_is_lost_where_they_are)
{
    static const char *const kinds[] = {"packed", "bfd", "padded"};
    fixture_begin();
    for (int i = 0; i < COUNT_OF(kinds); i++) {
        json_auto_t *lost;
        json_decref(read_back(framework_find("trl"),
                              json_text("{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': "
                                        "'megatron-core-2025', 'strategy': {'kind': '%s'}, "
                                        "'workload': {'uniform': 512, 'context': 512}}",
                                        kinds[i]),
                              &lost));
        assert_int_equal(framework_is_lost(lost, "strategy.pad_to"),
                         strcmp(kinds[i], "padded") == 0);
    }
}

// TRL's distributing_training.md: rows are padded to multiples of sp_size where ranks exchange
// heads, else of 2 x cp_size. Its accelerate file for the former states lengths that vary and the
// attention, which DeepSpeed takes as the model has it alone and never "eager" (ulysses_sp.py).
TEST(rows_of_ranks_that_share_them_are_multiples)
{
    fixture_begin();
    static const char varies[] = "  parallelism_config_sp_seq_length_is_variable: true\n";
    static const struct {
        int cp;
        const char *exchange, *attention, *multiple; // NULL: not said
        bool heads;
    } cases[] = {
        {1, "a2a", "flash", NULL, false},
        {4, "a2a", "flash", "\npad_to_multiple_of: 4\n", true},
        {4, "a2a", "unfused", "\npad_to_multiple_of: 4\n", true},
        {2, "blocking", "flash", "\npad_to_multiple_of: 4\n", false},
        {4, "attention", "flash", "\npad_to_multiple_of: 8\n", false},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        static const char *const names[] = {"trl", "accelerate"};
        static const char *const attentions[] = {
            "\nattn_implementation: \"flash_attention_2\"\n",
            "  parallelism_config_sp_attn_implementation: \"flash_attention_2\"\n"};
        for (int f = 0; f < 2; f++) {
            AUTO(sp_scenario) scenario = {0};
            json_auto_t *lost;
            fixture_good(
                json_text("{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': {'name': "
                          "'trl-2025', 'cp_overlap': '%s'}, 'strategy': {'kind': 'concat'}, "
                          "'parallel': {'cp': %d, 'dp': 2, 'zero': 3}, 'memory': {'attention': "
                          "'%s'}, 'workload': {'uniform': 512, 'context': 512}}",
                          cases[i].exchange, cases[i].cp, cases[i].attention),
                &scenario);
            AUTO_FREE char *text = write_text(framework_find(names[f]), &scenario, &lost);
            assert_int_equal(strstr(text, cases[i].multiple != NULL ? cases[i].multiple
                                                                    : "pad_to_multiple_of") != NULL,
                             f == 0 && cases[i].multiple != NULL);
            assert_int_equal(strstr(text, varies) != NULL, f == 1 && cases[i].heads);
            assert_int_equal(strstr(text, attentions[f]) != NULL, f == 0 || cases[i].heads);
            check_same(framework_find(names[f]), &scenario, text, lost);
        }
    }
}

// What accelerate's file of the same job states is said to be set there, not to become another.
// What is done with long documents is told where there are such.
TEST(trl_tells_what_its_own_file_changes_alone)
{
    fixture_begin();
    for (int longer = 0; longer < 2; longer++) {
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(
            json_text("{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': {'name': 'trl-2025', "
                      "'cp_overlap': 'blocking'}, 'strategy': {'kind': 'bfd'}, 'parallel': {'cp': "
                      "2, 'dp': 2, 'zero': 3}, 'memory': {'offload_states': 1}, 'workload': "
                      "{'lengths': [100, %d, 300], 'context': 512, 'over_length': 'drop', "
                      "'order': 'file', 'samples_per_batch': 4}}",
                      longer == 1 ? 513 : 512),
            &scenario);
        AUTO_FREE char *text = write_text(framework_find("trl"), &scenario, &lost);
        assert_int_equal(framework_is_lost(lost, "workload.over_length"), longer == 1);
        assert_true(framework_is_lost(lost, "memory.offload_states"));
        assert_true(framework_is_lost(lost, "stack.hide_gradient_reduce"));
        assert_int_equal(strstr(text, "it becomes") != NULL, longer == 1);
    }
}

// torchrun's nodes find each other where there are several, and their number is read back.
TEST(megatron_says_where_nodes_meet)
{
    fixture_begin();
    for (int nodes = 1; nodes <= 2; nodes++) {
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(json_text("{'model': 'llama-3-8b', 'cluster': 'h100-8', 'parallel': {'tp': 4, "
                               "'dp': %d}, 'workload': {'uniform': 512, 'context': 512}}",
                               2 * nodes),
                     &scenario);
        const framework *megatron = framework_find("megatron");
        AUTO_FREE char *text = write_text(megatron, &scenario, &lost);
        assert_int_equal(strstr(text, " --node-rank \"${NODE_RANK:?}\" --master-addr "
                                      "\"${MASTER_ADDR:?}\" pretrain_gpt.py") != NULL,
                         nodes > 1);
        assert_int_equal(strstr(text, "master-addr") != NULL, nodes > 1);
        json_auto_t *document = read_text(megatron, text);
        assert_int_equal(framework_get_int(document, "parallel.dp", 0), 2 * nodes);
    }
}

// The base of rotary positions: rope_theta of the published config.json of built-in models; of
// another model a comment asks for it, and of learned positions nothing is said.
TEST(the_base_of_rotary_positions_is_said)
{
    fixture_begin();
    static const char own[] =
        "{'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1024, "
        "'positional': 'rope'}";
    static const char changed[] =
        "{'layers': 80, 'hidden': 8192, 'ffn': 28672, 'heads': 64, 'kv_heads': 8, 'vocab': 128256, "
        "'dropout': true, 'name': 'llama-3-70b with model.dropout changed'}";
    static const struct {
        const char *framework, *model, *said;
    } cases[] = {
        {"megatron", "'llama-3-8b'", " --rotary-base 500000 "},
        {"megatron", "'llama-2-7b'", " --rotary-base 10000 "},
        {"bridge", "'mixtral-8x7b'", "  rotary_base: 1000000\n"},
        {"nemo", "'llama-3-70b'", "  rotary_base: 500000\n"},
        {"nanotron", "'llama-3-8b'", "    rope_theta: 500000\n"},
        // As --set model.dropout=true leaves it: a changed model is called after the other.
        {"megatron", changed, " --rotary-base 500000 "},
        {"megatron", own, "config.json): --rotary-base\n"},
        {"bridge", own, "config.json): model.rotary_base\n"},
        {"nanotron", own, "config.json): model.model_config.rope_theta\n"},
        {"megatron", "'gpt3-6.7b'", NULL},
        {"trl", "'llama-3-8b'", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(json_text("{'model': %s, 'cluster': 'h100-8', 'workload': {'uniform': 512, "
                               "'context': 512}}",
                               cases[i].model),
                     &scenario);
        AUTO_FREE char *text = write_text(framework_find(cases[i].framework), &scenario, &lost);
        const char *said = cases[i].said;
        if (said != NULL
                ? strstr(text, said) == NULL
                : strstr(text, "otary-base") != NULL || strstr(text, "rope_theta") != NULL) {
            fail_msg("%s of %s: %s", cases[i].framework, cases[i].model, text);
        }
    }
}

// All but two shapes that SlimPipe's authors made, of which no config.json is published.
TEST(built_in_models_have_a_base)
{
    fixture_begin();
    for (int i = 0; i < sp_model_builtin_count(); i++) {
        const char *name = sp_model_builtin_name(i);
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(json_text("{'model': '%s', 'cluster': 'h100-8', 'workload': {'uniform': 512, "
                               "'context': 512}}",
                               name),
                     &scenario);
        const bool has =
            scenario.model.positional == SP_ROPE && !sp_names_hold("llama-149b llama-175b", name);
        AUTO_FREE char *text = write_text(framework_find("megatron"), &scenario, &lost);
        if (has != (strstr(text, " --rotary-base ") != NULL)) {
            fail_msg("%s: %s", name, text);
        }
    }
}

// TRL has arguments for adapters beside weights in 4 bits; others name what they have none for.
TEST(trl_says_frozen_weights)
{
    fixture_begin();
    static const char *const frozen[] = {"bf16", "4bit", "4bit-double"};
    for (int i = 0; i < 3; i++) {
        for (int f = 0; framework_names[f] != NULL; f++) {
            const char *text = json_text(
                "{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000, "
                "'lora_rank': 8, 'frozen_weights': '%s'}, 'cluster': 'h100-8', 'stack': "
                "'trl-2025', 'strategy': {'kind': 'bfd'}, 'workload': {'uniform': 512, 'context': "
                "512, 'samples_per_batch': 8}}",
                frozen[i]);
            const framework *of = framework_find(framework_names[f]);
            json_auto_t *lost;
            json_auto_t *document = read_back(of, text, &lost);
            const char *read = json_string_value(framework_get(document, "model.frozen_weights"));
            if (strcmp(of->name, "trl") == 0 && i > 0) {
                assert_string_equal(read, frozen[i]);
            } else {
                assert_null(read);
            }
            bool is_lost =
                framework_is_lost(lost, "model.frozen_weights") || framework_is_lost(lost, "model");
            assert_true(is_lost || i == 0 || strcmp(of->name, "trl") == 0);
        }
    }
}

// Adapters and the type of frozen weights leave a model the one that it is called after, and what
// is read back has its shape; another shape is none that TRL has arguments for, which one name
// says.
TEST(trl_names_the_model_beside_adapters)
{
    fixture_begin();
    static const struct {
        const char *more, *name; // NULL: not said
    } cases[] = {{NULL, "model_name_or_path: \"llama-3-70b\"  # replace it"},
                 {"model.lora_rank=16", "model_name_or_path: \"llama-3-70b\"  # replace it"},
                 {"model.layers=40", NULL}};
    static const char *const stated[] = {"model.lora_rank=16", "model.frozen_weights=4bit-double"};
    const framework *trl = framework_find("trl");
    for (int i = 0; i < COUNT_OF(cases); i++) {
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        json_auto_t *document = json_loads(
            "{\"model\": \"llama-3-70b\", \"cluster\": \"h100-8\", \"stack\": \"trl-2025\", "
            "\"strategy\": {\"kind\": \"bfd\"}, \"parallel\": {\"dp\": 1, \"zero\": 0}, "
            "\"workload\": "
            "{\"uniform\": 4096, \"context\": 4096, \"samples_per_batch\": 16}}",
            0, NULL);
        for (int k = 0; cases[i].more != NULL && k < 2; k++) {
            must_succeed(sp_scenario_override(document, stated[k], ERR));
        }
        if (cases[i].more != NULL) {
            must_succeed(sp_scenario_override(document, cases[i].more, ERR));
        }
        must_succeed(sp_scenario_from_json(document, "asked", NULL, 0, &scenario, ERR));
        AUTO_FREE char *text = write_text(trl, &scenario, &lost);
        check_same(trl, &scenario, text, lost);
        if (cases[i].name != NULL) {
            assert_non_null(strstr(text, cases[i].name));
            assert_int_equal(json_array_size(lost), 0);
        } else {
            assert_null(strstr(text, "\nmodel_name_or_path: "));
            assert_int_equal(json_array_size(lost), 1);
            assert_true(framework_is_lost(lost, "model"));
        }
    }
}

// Switches that the prediction rests on are stated, whatever a release does without them: kernels
// that keep packed documents apart, recomputation, and the type of the weights that are loaded. The
// weights that Adam steps are FP32 where neither ZeRO nor FSDP keeps masters, and frozen ones BF16.
TEST(trl_states_what_a_prediction_rests_on)
{
    fixture_begin();
    static const struct {
        const char *recompute, *attention, *kind, *rank, *zero;
        const char *checkpoints, *kernels, *dtype;
    } cases[] = {
        {"full", "flash", "bfd", "0", "3", "true", "flash_attention_2", "bfloat16"},
        {"none", "flash", "bfd", "0", "0", "false", "flash_attention_2", "float32"},
        {"full", "flash", "padded", "8", "0", "true", "flash_attention_2", "bfloat16"},
        {"none", "unfused", "padded", "0", "0", "false", "eager", "float32"},
        {"none", "unfused", "concat", "0", "2", "false", "eager", "bfloat16"},
        // Packed documents need them, which is said to be another attention.
        {"none", "unfused", "bfd", "0", "0", "false", "flash_attention_2", "float32"},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        char wanted[3][64];
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(
            json_text("{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': "
                      "1024, 'lora_rank': %s}, 'cluster': 'h100-8', 'stack': 'trl-2025', "
                      "'strategy': {'kind': '%s'}, 'parallel': {'dp': 2, 'zero': %s}, 'memory': "
                      "{'recompute': '%s', 'attention': '%s'}, 'workload': {'uniform': 512, "
                      "'context': 512}}",
                      cases[i].rank, cases[i].kind, cases[i].zero, cases[i].recompute,
                      cases[i].attention),
            &scenario);
        AUTO_FREE char *text = write_text(framework_find("trl"), &scenario, &lost);
        snprintf(wanted[0], sizeof wanted[0], "\ngradient_checkpointing: %s\n",
                 cases[i].checkpoints);
        snprintf(wanted[1], sizeof wanted[1], "\nattn_implementation: \"%s\"\n", cases[i].kernels);
        snprintf(wanted[2], sizeof wanted[2], "\nbf16: true\ndtype: \"%s\"\n", cases[i].dtype);
        for (int w = 0; w < 3; w++) {
            if (strstr(text, wanted[w]) == NULL) {
                fail_msg("case %d: not there: %s\n%s", i, wanted[w], text);
            }
        }
        const bool keeps_scores =
            strcmp(cases[i].attention, "unfused") == 0 && strcmp(cases[i].kernels, "eager") != 0;
        assert_int_equal(framework_is_lost(lost, "memory.attention"), keeps_scores);
        check_same(framework_find("trl"), &scenario, text, lost);
    }
}

static void check_names(const framework *of, const char *names, const char *text)
{
    framework_entries entries = {0};
    framework_commands commands = {0};
    sp_error err = {0};
    size_t bytes = strlen(text);
    sp_status status =
        of->syntax == FRAMEWORK_SHELL  ? framework_read_shell("x", text, bytes, &commands, &err)
        : of->syntax == FRAMEWORK_YAML ? framework_read_yaml("x", text, bytes, &entries, &err)
        : of->syntax == FRAMEWORK_TOML ? framework_read_toml("x", text, bytes, &entries, &err)
                                       : framework_read_json("x", text, bytes, &entries, &err);
    assert_int_equal(status, SP_OK);
    const framework_entries *all = of->syntax == FRAMEWORK_SHELL ? &commands.items[0] : &entries;
    assert_true(all->count > 0);
    for (size_t i = 0; i < all->count; i++) {
        const char *name = all->items[i].name;
        const char *found = names;
        size_t length = strlen(name);
        while ((found = strstr(found, name)) != NULL &&
               !((found == names || found[-1] == ' ') &&
                 (found[length] == ' ' || found[length] == '\0'))) {
            found++;
        }
        if (found == NULL) {
            fail_msg("%s has no argument %s", of->name, name);
        }
    }
    framework_entries_free(&entries);
    framework_commands_free(&commands);
}

// A loss by chunks is Liger's, whose kernels are those that the scenario has, and whose number of
// chunks is its own: of Llama-3-8B 32 (128256 entries and 4096 features) for rows of 8192 tokens.
TEST(trl_says_a_loss_by_chunks)
{
    fixture_begin();
    static const struct {
        int chunks;
        bool norms;
    } cases[] = {{0, false}, {32, false}, {32, true}, {8, true}};
    const framework *trl = framework_find("trl");
    for (int i = 0; i < COUNT_OF(cases); i++) {
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(
            json_text("{'model': 'llama-3-8b', 'cluster': 'h100-8', 'stack': {'name': 'trl-2025', "
                      "'fused_cross_entropy': true, 'loss_chunks': %d, 'unfused_norms': %s}, "
                      "'strategy': {'kind': 'bfd'}, 'parallel': {'dp': 2, 'zero': 0}, 'workload': "
                      "{'uniform': 8192, 'context': 8192, 'samples_per_batch': 8}}",
                      cases[i].chunks, cases[i].norms ? "false" : "true"),
            &scenario);
        AUTO_FREE char *text = write_text(trl, &scenario, &lost);
        const bool is_written = strstr(text, "\nuse_liger_kernel: true  # it cuts the loss into 32 "
                                             "chunks here\n") != NULL;
        assert_int_equal(is_written, cases[i].chunks > 0);
        assert_int_equal(strstr(text, "use_liger_kernel") != NULL, is_written);
        assert_int_equal(framework_is_lost(lost, "stack.loss_chunks"), cases[i].chunks == 8);
        assert_false(is_written && framework_is_lost(lost, "stack.unfused_norms"));
        check_names(trl, framework_sources[5].names, text);
        check_same(trl, &scenario, text, lost);
    }
}

// Spelt as the framework's own source spells it.
TEST(names_are_the_frameworks_own)
{
    fixture_begin();
    sp_prng prng = prng_seeded(3);
    for (int i = 0; i < DRAWS / 3; i++) {
        sp_scenario scenario = {0};
        if (!make(&prng, &scenario)) {
            continue;
        }
        for (size_t f = 0; f < sizeof framework_sources / sizeof framework_sources[0]; f++) {
            json_auto_t *lost;
            const framework *of = framework_find(framework_sources[f].framework);
            AUTO_FREE char *text = write_text(of, &scenario, &lost);
            check_names(of, framework_sources[f].names, text);
        }
        sp_scenario_fini(&scenario);
    }
    for (size_t f = 0; f < sizeof framework_sources / sizeof framework_sources[0]; f++) {
        const framework *of = framework_find(framework_sources[f].framework);
        for (const framework_row *row = of->rows; row->key != NULL; row++) {
            const char *name = row->names[of->dialect];
            if (name != NULL && !sp_names_hold(framework_sources[f].names, name)) {
                fail_msg("%s has no argument %s", of->name, name);
            }
        }
    }
}

// Frameworks count rows: as many as the tokens of a batch of documents fill, in whole micro-batches
// of all replicas. Where a batch is one of documents the number of rows is not known.
TEST(a_batch_of_documents_is_written_as_rows)
{
    static const struct {
        const char *batch;
        int rows; // 0: not said
    } cases[] = {{"'tokens_per_batch': 65536", 16},
                 {"'tokens_per_batch': 61440", 16}, // 15 rows for 2 replicas
                 {"'tokens_per_batch': 100", 2},
                 {"'samples_per_batch': 64", 0}};
    fixture_begin();
    for (int i = 0; i < COUNT_OF(cases); i++) {
        char said[64];
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(
            json_text("{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': "
                      "1024}, 'cluster': 'h100-8', 'parallel': {'dp': 2}, 'workload': {'lengths': "
                      "'wikipedia', 'context': 4096, %s}}",
                      cases[i].batch),
            &scenario);
        AUTO_FREE char *written = write_text(framework_find("megatron"), &scenario, &lost);
        snprintf(said, sizeof said, "--global-batch-size %d ", cases[i].rows);
        assert_int_equal(strstr(written, "--global-batch-size") != NULL, cases[i].rows > 0);
        assert_int_equal(strstr(written, said) != NULL, cases[i].rows > 0);
        // Rows are nothing that the scenario says.
        assert_true(cases[i].rows == 0 || !framework_is_lost(lost, "workload.samples_per_batch"));
    }
}

// Megatron-LM's own checks (training/arguments.py): tensor and context parallelism before Blackwell
// take CUDA_DEVICE_MAX_CONNECTIONS of 1, which its FSDP does not; that saves as fsdp_dtensor, and
// an optimizer on the host is the precision-aware one.
TEST(megatron_takes_what_is_written)
{
    static const char one[] = "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
    static const char any[] = "unset CUDA_DEVICE_MAX_CONNECTIONS\n";
    static const char fsdp[] = "--ckpt-format fsdp_dtensor";
    static const char aware[] = "--use-precision-aware-optimizer";
    static const struct {
        const char *cluster, *said;
        bool one, any, fsdp, aware;
    } cases[] = {
        {"h100-8", "'parallel': {'dp': 2}", false, false, false, false},
        {"h100-8", "'parallel': {'tp': 2}", true, false, false, false},
        {"a100-8", "'parallel': {'cp': 2}", true, false, false, false},
        {"b200-8", "'parallel': {'tp': 2}", false, false, false, false},
        {"h100-8", "'parallel': {'tp': 2, 'dp': 2, 'zero': 3}", false, true, true, false},
        {"h100-8", "'memory': {'offload_states': 0.5}", false, false, false, true},
    };
    fixture_begin();
    for (int i = 0; i < COUNT_OF(cases); i++) {
        AUTO(sp_scenario) scenario = {0};
        json_auto_t *lost;
        fixture_good(json_text("{'model': {'layers': 4, 'hidden': 512, 'ffn': 1024, 'heads': 8, "
                               "'vocab': 1024}, 'cluster': '%s', %s, 'workload': {'context': 512}}",
                               cases[i].cluster, cases[i].said),
                     &scenario);
        AUTO_FREE char *written = write_text(framework_find("megatron"), &scenario, &lost);
        assert_int_equal(strstr(written, one) != NULL, cases[i].one);
        assert_int_equal(strstr(written, any) != NULL, cases[i].any);
        assert_int_equal(strstr(written, fsdp) != NULL, cases[i].fsdp);
        assert_int_equal(strstr(written, aware) != NULL, cases[i].aware);
    }
}
