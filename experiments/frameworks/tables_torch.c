// torchtitan, DeepSpeed, TRL (with accelerate) and nanotron.
#include <string.h>

#include "experiments/frameworks/frameworks.h"
#include "experiments/frameworks/private.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/model/model.h"

static json_int_t replicas_of(const json_t *scenario)
{
    return framework_get_int(scenario, "parallel.dp", 1);
}

// Samples of a batch for each replica and micro-batch row; 0: they do not divide.
static json_int_t accumulated(const json_t *s)
{
    json_int_t batch = framework_get_int(s, "workload.samples_per_batch", 0);
    json_int_t each = replicas_of(s) * framework_get_int(s, "schedule.microbatch_samples", 1);
    return each > 0 && batch % each == 0 ? batch / each : 0; // 0 where no batch is stated
}

// A schedule of a single stage is none.
static void drop_lone_pipeline(framework_import *import)
{
    if (framework_get_int(import->scenario, "parallel.pp", 1) == 1) {
        json_object_del(json_object_get(import->scenario, "schedule"), "kind");
        json_object_del(json_object_get(import->scenario, "parallel"), "stage_layers");
        json_object_del(json_object_get(import->scenario, "parallel"), "layers_per_chunk");
    }
    if (framework_get_int(import->scenario, "parallel.tp", 1) == 1) {
        json_object_del(json_object_get(import->scenario, "parallel"), "sequence_parallel");
    }
    if (framework_get_int(import->scenario, "parallel.cp", 1) == 1) {
        json_object_del(json_object_get(import->scenario, "stack"), "cp_overlap");
    }
}

static void put_moments(framework_import *import, const char *argument)
{
    const framework_entry *entry = framework_take(import, argument);
    const char *name = framework_take_text(import, argument);
    static const char adams[] =
        "adam adamw fusedadam cpuadam adamw_torch adamw_torch_fused adamw_apex_fused adamw_hf";
    if (name == NULL || sp_names_hold(adams, name)) {
        return;
    }
    if (strstr(name, "8bit") != NULL && strncmp(name, "adamw", 5) == 0) {
        framework_put(import, "stack.moment_bytes", json_integer(1));
    } else {
        framework_unread(import, entry, sp_setting_missing("optimizer"));
    }
}

// ---- torchtitan (torchtitan/config/job_config.py) ----

// clang-format off
static const framework_row torchtitan_rows[] = {
    {"parallel.tp", FRAMEWORK_INT, NULL, "1", {"parallelism.tensor_parallel_degree"}, NULL},
    {"parallel.cp", FRAMEWORK_INT, NULL, "1", {"parallelism.context_parallel_degree"}, NULL},
    {"parallel.pp", FRAMEWORK_INT, NULL, "1", {"parallelism.pipeline_parallel_degree"}, NULL},
    {"parallel.ep", FRAMEWORK_INT, NULL, "1", {"parallelism.expert_parallel_degree"}, NULL},
    {"parallel.sequence_parallel", FRAMEWORK_IMPLIED, NULL, "true", {NULL}, NULL},
    {"schedule.kind", FRAMEWORK_NAME,
     "1F1B=1f1b Interleaved1F1B=interleaved GPipe=gpipe ZBVZeroBubble=zb-v DualPipeV=dualpipe-v",
     "\"1f1b\"", {"parallelism.pipeline_parallel_schedule"}, NULL},
    {"stack.cp_overlap", FRAMEWORK_NAME, "allgather=blocking alltoall=attention", "\"blocking\"",
     {"parallelism.context_parallel_rotate_method"}, NULL},
    {"stack.hide_forward_gather", FRAMEWORK_SWITCH, NULL, "false",
     {"parallelism.enable_async_tensor_parallel"}, NULL},
    {"stack.hide_forward_reduce", FRAMEWORK_SWITCH, NULL, "false",
     {"parallelism.enable_async_tensor_parallel"}, NULL},
    {"stack.hide_backward_gather", FRAMEWORK_SWITCH, NULL, "false",
     {"parallelism.enable_async_tensor_parallel"}, NULL},
    {"stack.hide_backward_reduce", FRAMEWORK_SWITCH, NULL, "false",
     {"parallelism.enable_async_tensor_parallel"}, NULL},
    {"stack.gradient_reduce_dtype", FRAMEWORK_NAME, "float32=fp32 bfloat16=bf16", "\"fp32\"",
     {"training.mixed_precision_reduce"}, NULL},
    {"workload.context", FRAMEWORK_INT, NULL, "2048", {"training.seq_len"}, NULL},
    {"fp8_recipe", FRAMEWORK_NAME, "tensorwise=current", NULL, {"float8.recipe_name"},
     "quantize.linear.float8.recipe_name"},
    {"fp8_params", FRAMEWORK_SWITCH, NULL, "false", {"float8.enable_fsdp_float8_all_gather"},
     "quantize.linear.float8.enable_fsdp_float8_all_gather"},
    {NULL, FRAMEWORK_INT, NULL, NULL, {NULL}, NULL},
};

static const char torchtitan_own[] =
    "model.name model.flavor model.converters training.local_batch_size training.global_batch_size "
    "training.compile compile.enable parallelism.data_parallel_replicate_degree "
    "parallelism.data_parallel_shard_degree parallelism.fsdp_reshard_after_forward "
    "parallelism.pipeline_parallel_microbatch_size parallelism.pipeline_parallel_layers_per_stage "
    "activation_checkpoint.mode activation_checkpoint.selective_ac_option "
    "training.mixed_precision_param optimizer.name";
static const char torchtitan_free[] =
    "job.* profiling.* metrics.* optimizer.lr optimizer.beta1 optimizer.beta2 optimizer.eps "
    "optimizer.weight_decay optimizer.implementation lr_scheduler.* checkpoint.* comm.* "
    "memory_estimation.* validation.* experimental.* fault_tolerance.enable "
    "fault_tolerance.process_group* fault_tolerance.replica_id fault_tolerance.group_size "
    "fault_tolerance.min_replica_size model.tokenizer_path model.hf_assets_path "
    "model.print_after_conversion training.dataset training.dataset_path training.max_norm "
    "training.steps training.gc_freq training.gc_debug training.seed training.deterministic "
    "float8.filter_fqns float8.emulate float8.precompute_float8_dynamic_scale_for_fsdp "
    "float8.moe_fqns_prototype quantize.* mx.* activation_checkpoint.per_op_* compile.components "
    "debug.*";
static const char torchtitan_noted[] =
    "optimizer.early_step_in_backward training.enable_cpu_offload "
    "parallelism.disable_loss_parallel parallelism.pipeline_parallel_split_points "
    "parallelism.pipeline_parallel_schedule_csv parallelism.enable_compiled_autograd "
    "float8.force_recompute_fp8_weight_in_bwd fault_tolerance.semi_sync_method "
    "parallelism.expert_tensor_parallel_degree parallelism.module_fqns_per_model_part";
// clang-format on

// Models of torchtitan that have a name here.
static const char *const torchtitan_models[][3] = {
    {"llama3", "8B", "llama-3-8b"},
    {"llama3", "70B", "llama-3-70b"},
    {"llama3", "405B", "llama-3-405b"},
};

static void read_torchtitan_model(framework_import *import)
{
    const framework_entry *flavor = framework_take(import, "model.flavor");
    const char *name = framework_take_text(import, "model.name");
    const char *size = framework_take_text(import, "model.flavor");
    name = name != NULL ? name : "llama3";
    for (size_t i = 0; size != NULL && i < sizeof torchtitan_models / sizeof torchtitan_models[0];
         i++) {
        if (strcmp(torchtitan_models[i][0], name) == 0 &&
            strcmp(torchtitan_models[i][1], size) == 0) {
            framework_put(import, "model", json_string(torchtitan_models[i][2]));
            return;
        }
    }
    if (size != NULL && json_object_get(import->scenario, "model") == NULL) {
        framework_unread(import, flavor,
                         "the shape of this flavor is not known: state it (--set model=NAME|FILE)");
    }
}

static void read_torchtitan_shards(framework_import *import)
{
    const char *reshard = framework_take_text(import, "parallelism.fsdp_reshard_after_forward");
    json_int_t copies =
        framework_take_int(import, "parallelism.data_parallel_replicate_degree", 1, 1);
    // -1: all ranks that are left.
    json_int_t degree =
        framework_take_int(import, "parallelism.data_parallel_shard_degree", -1, -1);
    json_int_t pp = framework_get_int(import->scenario, "parallel.pp", 1);
    bool keeps = reshard != NULL && strcmp(reshard, "never") == 0;
    // "default" keeps parameters where there are several micro-batches of a pipeline.
    keeps = keeps || ((reshard == NULL || strcmp(reshard, "default") == 0) && pp > 1);
    framework_put(import, "parallel.zero",
                  json_integer(degree == 1 && copies > 1 ? 0
                               : keeps                   ? 2
                                                         : 3));
    if (degree > 0) {
        framework_put(import, "parallel.dp", json_integer(framework_product(copies, degree, 1)));
    }
    if (copies > 1 && degree > 1) {
        json_object_set_new(import->facts, "zero_instances", json_integer(copies));
    }
}

static void read_torchtitan_batch(framework_import *import)
{
    json_int_t local = framework_take_int(import, "training.local_batch_size", 1, 8);
    json_int_t whole = framework_take_int(import, "training.global_batch_size", -1, -1);
    json_int_t each =
        framework_take_int(import, "parallelism.pipeline_parallel_microbatch_size", 1, 1);
    json_int_t pp = framework_get_int(import->scenario, "parallel.pp", 1);
    framework_put(import, "schedule.microbatch_samples", json_integer(pp > 1 ? each : local));
    if (whole > 0) {
        framework_put(import, "workload.samples_per_batch", json_integer(whole));
    } else {
        json_object_set_new(import->facts, "microbatches", json_integer(pp > 1 ? local / each : 1));
    }
}

static void read_torchtitan_recompute(framework_import *import)
{
    const framework_entry *mode = framework_take(import, "activation_checkpoint.mode");
    const char *said = framework_take_text(import, "activation_checkpoint.mode");
    framework_take(import, "activation_checkpoint.selective_ac_option");
    said = said != NULL ? said : "selective";
    if (strcmp(said, "full") == 0 || strcmp(said, "none") == 0) {
        framework_put(import, "memory.recompute", json_string(said));
        return;
    }
    framework_put(import, "memory.recompute", json_string("none"));
    if (mode != NULL) {
        framework_unread(import, mode,
                         "recomputation of some layers or some operations is not "
                         "modelled: none is taken");
    } else {
        framework_note(import,
                       "%s: activation_checkpoint.mode is selective where it is not "
                       "stated, which is not modelled: none is taken",
                       import->source);
    }
}

// Of an array, or of a script's words with commas. Converters of something else are told.
static bool takes_float8(framework_import *import)
{
    const framework_entry *converters = framework_take(import, "model.converters");
    const json_t *list = converters != NULL ? converters->value : NULL;
    size_t count = json_is_array(list) ? json_array_size(list) : 1;
    bool fp8 = false;
    for (size_t i = 0; i < count; i++) {
        const char *at = json_string_value(json_is_array(list) ? json_array_get(list, i) : list);
        while (at != NULL && *at != '\0') {
            char name[64];
            size_t length = strcspn(at, ", ");
            snprintf(name, sizeof name, "%.*s", (int)length, at);
            if (sp_names_hold("float8 quantize.linear.float8", name)) {
                fp8 = true;
            } else if (length > 0) {
                framework_unread(import, converters, "converters but float8 are not modelled");
            }
            at += length + (at[length] != '\0');
        }
    }
    return fp8;
}

static void read_torchtitan(framework_import *import)
{
    framework_read_launch(import);
    read_torchtitan_model(import);
    read_torchtitan_shards(import);
    read_torchtitan_batch(import);
    read_torchtitan_recompute(import);
    json_int_t each =
        framework_take_int(import, "parallelism.pipeline_parallel_layers_per_stage", 1, 0);
    if (each > 0) {
        framework_put(import, "parallel.layers_per_chunk", json_integer(each));
    }
    bool fp8 = takes_float8(import);
    framework_put(import, "precision", json_string(fp8 ? "fp8" : "bf16"));
    if (fp8 && framework_get(import->scenario, "fp8_recipe") == NULL) {
        framework_put(import, "fp8_recipe", json_string("current"));
    } else if (!fp8) {
        json_object_del(import->scenario, "fp8_recipe");
    }
    if (!framework_take_switch(import, "training.compile compile.enable", false)) {
        framework_put(import, "stack.fused_swiglu", json_false());
        framework_put(import, "stack.fused_cross_entropy", json_false());
        framework_put(import, "stack.unfused_norms", json_true());
        framework_put(import, "stack.copied_logits", json_true());
    }
    framework_tell_precision(import, "training.mixed_precision_param");
    put_moments(import, "optimizer.name");
    drop_lone_pipeline(import);
}

static void write_torchtitan(framework_output *output)
{
    const json_t *s = output->scenario;
    const char *model = json_string_value(framework_get(s, "model.name"));
    json_int_t pp = framework_get_int(s, "parallel.pp", 1);
    json_int_t cp = framework_get_int(s, "parallel.cp", 1);
    json_int_t dp = replicas_of(s);
    json_int_t zero = framework_get_int(s, "parallel.zero", 0);
    json_int_t group = framework_get_int(s, "parallel.zero_group", 0);
    json_int_t rows = framework_get_int(s, "schedule.microbatch_samples", 1);
    json_int_t batch = framework_get_int(s, "workload.samples_per_batch", 0);
    for (size_t i = 0; model != NULL && i < sizeof torchtitan_models / sizeof torchtitan_models[0];
         i++) {
        if (strcmp(torchtitan_models[i][2], model) == 0) {
            framework_say(output, "model.name", json_string(torchtitan_models[i][0]));
            framework_say(output, "model.flavor", json_string(torchtitan_models[i][1]));
        }
    }
    const char *precision = json_string_value(framework_get(s, "precision"));
    if (precision != NULL && strcmp(precision, "fp8") == 0) {
        json_t *list = json_array();
        json_array_append_new(list, json_string("float8"));
        framework_say(output, "model.converters", list);
    }
    json_int_t copies = zero == 0 ? dp
                        : group > 0 && dp * cp % group == 0 && dp % (dp * cp / group) == 0
                            ? dp * cp / group
                            : 1;
    framework_say(output, "parallelism.data_parallel_replicate_degree", json_integer(copies));
    framework_say(output, "parallelism.data_parallel_shard_degree", json_integer(dp / copies));
    framework_say(output, "parallelism.fsdp_reshard_after_forward",
                  json_string(zero == 2 ? "never" : "always"));
    framework_say(output, "training.local_batch_size",
                  json_integer(pp > 1 && batch >= dp && batch % dp == 0 ? batch / dp : rows));
    if (batch > 0) {
        framework_say(output, "training.global_batch_size", json_integer(batch));
    }
    if (pp > 1) {
        framework_say(output, "parallelism.pipeline_parallel_microbatch_size", json_integer(rows));
        json_int_t stages = pp * framework_get_int(s, "parallel.chunks_per_rank", 1);
        json_int_t layers = framework_get_int(s, "model.layers", 0);
        if (layers % stages == 0 && framework_get(s, "parallel.stage_layers") == NULL) {
            framework_say(output, "parallelism.pipeline_parallel_layers_per_stage",
                          json_integer(layers / stages));
        }
    }
    const char *mode = json_string_value(framework_get(s, "memory.recompute"));
    framework_say(output, "activation_checkpoint.mode",
                  json_string(mode != NULL && strcmp(mode, "full") == 0 ? "full" : "none"));
    framework_say(output, "training.compile",
                  json_boolean(json_is_true(framework_get(s, "stack.fused_swiglu"))));
}

const framework framework_torchtitan = {FRAMEWORK_CALLED(torchtitan, "torchtitan"),
                                        .stack = "fsdp2-2025",
                                        .syntax = FRAMEWORK_TOML,
                                        .reads = 1U << FRAMEWORK_TOML | 1U << FRAMEWORK_SHELL,
                                        .rows = torchtitan_rows,
                                        .read = read_torchtitan,
                                        .write = write_torchtitan};

// ---- DeepSpeed (deepspeed/runtime/constants.py, deepspeed/runtime/zero/config.py) ----

// clang-format off
static const framework_row deepspeed_rows[] = {
    {"parallel.zero", FRAMEWORK_INT, NULL, "0", {"zero_optimization.stage"}, NULL},
    {"workload.samples_per_batch", FRAMEWORK_INT, NULL, NULL, {"train_batch_size"}, NULL},
    {"schedule.microbatch_samples", FRAMEWORK_INT, NULL, NULL, {"train_micro_batch_size_per_gpu"},
     NULL},
    {"stack.gradient_reduce_dtype", FRAMEWORK_NAME, "bf16=bf16 bfp16=bf16 fp32=fp32", "\"bf16\"",
     {"communication_data_type"}, NULL},
    {"stack.gradient_reduce_dtype", FRAMEWORK_FLAG, "\"fp32\"", NULL, {NULL}, "fp32_allreduce"},
    {NULL, FRAMEWORK_INT, NULL, NULL, {NULL}, NULL},
};

static const char deepspeed_own[] =
    "gradient_accumulation_steps zero_optimization.reduce_bucket_size zero_optimization.overlap_comm "
    "zero_optimization.mics_shard_size zero_optimization.zero_hpz_partition_size bf16.enabled "
    "bfloat16.enabled fp16.enabled zero_optimization.offload_optimizer.device "
    "zero_optimization.offload_optimizer.ratio zero_optimization.offload_param.device "
    "optimizer.type sequence_parallel_size data_parallel_size";
static const char deepspeed_free[] =
    "optimizer.params.* scheduler.* gradient_clipping steps_per_print wall_clock_breakdown "
    "memory_breakdown dump_state tensorboard.* wandb.* csv_monitor.* flops_profiler.* comms_logger.* "
    "fp16.* bf16.* bfloat16.* prescale_gradients gradient_predivide_factor "
    "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer checkpoint.* "
    "zero_optimization.contiguous_gradients zero_optimization.reduce_scatter "
    "zero_optimization.allgather_partitions zero_optimization.allgather_bucket_size "
    "zero_optimization.sub_group_size zero_optimization.stage3_* "
    "zero_optimization.round_robin_gradients zero_optimization.ignore_unused_parameters "
    "zero_optimization.elastic_checkpoint zero_optimization.load_from_fp32_weights "
    "zero_optimization.mics_hierarchical_params_gather zero_optimization.offload_optimizer.* "
    "zero_optimization.offload_param.* zero_optimization.use_multi_rank_bucket_allreduce "
    "zero_optimization.override_module_apply zero_optimization.memory_efficient_linear "
    "dataloader_drop_last seed vocabulary_size not_expressed.* not_expressed";
static const char deepspeed_noted[] =
    "amp.* sparse_attention.* compression_training.* curriculum_learning.* progressive_layer_drop.* "
    "eigenvalue.* activation_checkpointing.* zero_optimization.cpu_offload* sparse_gradients "
    "data_types.* zero_optimization.zero_quantized_* "
    "zero_optimization.zeropp_loco_param.* autotuning.* elasticity.* hybrid_engine.* pipeline.* "
    "tensor_parallel.* aio.*";
// clang-format on

// Parameters on a device that is not "none".
static void tell_offload(framework_import *import, const char *name)
{
    const framework_entry *entry = framework_take(import, name);
    const char *device = entry != NULL ? json_string_value(entry->value) : NULL;
    if (entry != NULL && (device == NULL || strcmp(device, "none") != 0)) {
        framework_unread(import, entry, sp_setting_missing("offload_param"));
    }
}

// States of the optimizer on the host, a share of them with ZeRO 3 alone (deepspeed/runtime/zero/
// offload_config.py, ratio: "Only valid with ZeRO Stage 3"). Without ZeRO there is nothing that
// leaves.
static void put_host_states(framework_import *import, const char *device, const char *share)
{
    const framework_entry *entry = framework_take(import, device);
    const char *name = entry != NULL ? json_string_value(entry->value) : NULL;
    const json_int_t stage = framework_get_int(import->scenario, "parallel.zero", 0);
    const double ratio = share != NULL ? framework_take_real(import, share, 1.0) : 1.0;
    if (entry == NULL || (name != NULL && strcmp(name, "none") == 0)) {
        return;
    }
    if (name != NULL && strcmp(name, "cpu") == 0 && stage > 0) {
        framework_put(import, "memory.offload_states", json_real(stage == 3 ? ratio : 1.0));
    } else {
        framework_unread(import, entry,
                         stage > 0 ? "states of the optimizer are modelled on the GPU and on the "
                                     "host: the GPU is taken (--set memory.offload_states=1)"
                                   : "without ZeRO no states leave the GPU");
    }
}

// Ranks that exchange heads (Ulysses).
static void put_heads_ranks(framework_import *import, json_int_t ranks)
{
    if (ranks > 1) {
        framework_put(import, "parallel.cp", json_integer(ranks));
        framework_put(import, "stack.cp_overlap", json_string("a2a"));
    }
}

static bool exchanges_heads(const json_t *scenario)
{
    const char *exchange = json_string_value(framework_get(scenario, "stack.cp_overlap"));
    return framework_get_int(scenario, "parallel.cp", 1) > 1 && exchange != NULL &&
           strcmp(exchange, "a2a") == 0;
}

json_int_t framework_row_multiple(const json_t *scenario)
{
    return framework_get_int(scenario, "parallel.cp", 1) * (exchanges_heads(scenario) ? 1 : 2);
}

// FSDP shards what ZeRO 2 and 3 share; the stacks of Hugging Face have DeepSpeed for it.
static bool shards(const json_t *scenario)
{
    const char *stack = json_string_value(framework_get(scenario, "stack.name"));
    return framework_get_int(scenario, "parallel.zero", 0) > 1 && !exchanges_heads(scenario) &&
           !(stack != NULL && sp_names_hold("hf-trainer trl-2025", stack));
}

static void tell_fp16(framework_import *import, const char *name)
{
    const framework_entry *entry = framework_take(import, name);
    if (entry != NULL && framework_take_switch(import, name, false)) {
        framework_unread(import, entry,
                         "products in FP16 are not modelled: BF16 is taken, as fast and as large");
    }
}

static bool is_auto(const framework_import *import, const char *name)
{
    for (size_t i = 0; i < import->entries->count; i++) {
        const framework_entry *entry = &import->entries->items[i];
        const char *text = json_string_value(entry->value);
        if (strcmp(entry->name, name) == 0 && text != NULL && strcmp(text, "auto") == 0) {
            return true;
        }
    }
    return false;
}

// What the file states of a batch, and what it leaves to the trainer's arguments, as a fact.
static void read_deepspeed_batch(framework_import *import, json_int_t count)
{
    static const char *const names[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                        "gradient_accumulation_steps"};
    char open[128] = "";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (is_auto(import, names[i])) {
            sp_append(open, sizeof open, "%s%s", open[0] != '\0' ? ", " : "", names[i]);
        }
    }
    json_object_set_new(
        import->facts, "deepspeed",
        sp_json_object(
            SP_JSON("source", import->source),
            SP_JSON("batch", (int64_t)framework_take_int(import, names[0], 0, 0)),
            SP_JSON("rows", (int64_t)framework_take_int(import, names[1], 0, 0)),
            SP_JSON("count", (int64_t)count),
            SP_JSON("auto", open[0] != '\0' ? json_string(open) : json_null()),
            SP_JSON("bucket", (int)is_auto(import, "zero_optimization.reduce_bucket_size"))));
    json_object_set_new(import->facts, "trainer", json_true());
}

static void read_deepspeed(framework_import *import)
{
    json_int_t count = framework_take_int(import, "gradient_accumulation_steps", 1, 0);
    if (count > 0) {
        json_object_set_new(import->facts, "microbatches", json_integer(count));
    }
    read_deepspeed_batch(import, count);
    json_int_t stage = framework_get_int(import->scenario, "parallel.zero", 0);
    bool overlaps = framework_take_switch(import, "zero_optimization.overlap_comm", stage == 3);
    framework_put(import, "stack.hide_gradient_reduce", json_boolean(overlaps));
    // Numbers of 2 bytes.
    double numbers = framework_take_real(import, "zero_optimization.reduce_bucket_size", 5e8);
    framework_put(import, "stack.bucket_mib", json_real(numbers * 2.0 / (1 << 20)));
    json_int_t shard = framework_take_int(import, "zero_optimization.mics_shard_size", -1, -1);
    if (shard > 1) {
        framework_put(import, "parallel.zero_group", json_integer(shard));
    }
    const framework_entry *second =
        framework_take(import, "zero_optimization.zero_hpz_partition_size");
    if (second != NULL && json_integer_value(second->value) > 1) {
        framework_unread(import, second, "a second copy of the parameters (hpZ) is not modelled");
    }
    put_host_states(import, "zero_optimization.offload_optimizer.device",
                    "zero_optimization.offload_optimizer.ratio");
    tell_offload(import, "zero_optimization.offload_param.device");
    put_heads_ranks(import, framework_take_int(import, "sequence_parallel_size", 1, 1));
    json_int_t replicas = framework_take_int(import, "data_parallel_size", 1, 0);
    if (replicas > 0) {
        framework_put(import, "parallel.dp", json_integer(replicas));
    }
    tell_fp16(import, "fp16.enabled");
    framework_take(import, "bf16.enabled bfloat16.enabled");
    put_moments(import, "optimizer.type");
}

static void write_deepspeed(framework_output *output)
{
    const json_t *s = output->scenario;
    json_int_t count = accumulated(s);
    if (count > 0) {
        framework_say(output, "gradient_accumulation_steps", json_integer(count));
    }
    framework_say(output, "bf16.enabled", json_true());
    if (framework_get_int(s, "parallel.zero", 0) > 0) {
        double mib = json_number_value(framework_get(s, "stack.bucket_mib"));
        framework_say(output, "zero_optimization.overlap_comm",
                      json_boolean(json_is_true(framework_get(s, "stack.hide_gradient_reduce"))));
        if (mib > 0.0) {
            framework_say(output, "zero_optimization.reduce_bucket_size",
                          json_integer((json_int_t)(mib * (1 << 20) / 2.0 + 0.5)));
        }
        json_int_t group = framework_get_int(s, "parallel.zero_group", 0);
        if (group > 0) {
            framework_say(output, "zero_optimization.mics_shard_size", json_integer(group));
        }
        double share = json_number_value(framework_get(s, "memory.offload_states"));
        if (share > 0.0) {
            framework_say(output, "zero_optimization.offload_optimizer.device", json_string("cpu"));
        }
        if (share > 0.0 && share < 1.0 && framework_get_int(s, "parallel.zero", 0) == 3) {
            framework_say(output, "zero_optimization.offload_optimizer.ratio", json_real(share));
        }
    }
}

// Its own activation_checkpointing configures calls of deepspeed.checkpointing, which transformers'
// models do not make (deepspeed/runtime/activation_checkpointing). From the second row on it is
// what accelerate's file does not say either.
static const framework_elsewhere deepspeed_elsewhere[] = {
    {"parallel.cp", "parallelism_config_sp_size of accelerate's file"},
    {"model", "model_name_or_path of the trainer's arguments"},
    {"memory.recompute", "gradient_checkpointing of the trainer's arguments"},
    {"workload.context", "max_length of the trainer's arguments"},
    {"strategy.kind", "packing and packing_strategy of TRL's arguments"},
    {"workload.over_length", "packing_strategy and max_length of TRL's arguments"},
    {"stack", "the trainer that reads it"},
    {"stack.moment_bytes", "optim of the trainer's arguments"},
    {NULL, NULL},
};

const framework framework_deepspeed = {FRAMEWORK_CALLED(deepspeed, "DeepSpeed"),
                                       .stack = "hf-trainer",
                                       .syntax = FRAMEWORK_JSON,
                                       .reads = 1U << FRAMEWORK_JSON,
                                       .rows = deepspeed_rows,
                                       .read = read_deepspeed,
                                       .write = write_deepspeed,
                                       .elsewhere = deepspeed_elsewhere};

// ---- TRL (trl/trainer/sft_config.py, transformers' TrainingArguments) ----

// clang-format off
#define ATTENTION_KERNELS                                                                          \
    "sdpa=flash flash_attention_2=flash flash_attention_3=flash "                                  \
    "kernels-community/flash-attn2=flash kernels-community/flash-attn3=flash"
static const framework_row trl_rows[] = {
    {"workload.context", FRAMEWORK_INT, NULL, "1024", {"max_length"}, "max_seq_length"},
    {"schedule.microbatch_samples", FRAMEWORK_INT, NULL, "8", {"per_device_train_batch_size"}, NULL},
    {"memory.recompute", FRAMEWORK_NAME, "true=full false=none", "\"full\"",
     {"gradient_checkpointing"}, NULL},
    {"memory.attention", FRAMEWORK_NAME, ATTENTION_KERNELS " eager=unfused", "\"flash\"", {NULL},
     "attn_implementation"},
    {NULL, FRAMEWORK_INT, NULL, NULL, {NULL}, NULL},
};

static const char trl_own[] =
    "model_name_or_path gradient_accumulation_steps packing packing_strategy padding_free optim "
    "fsdp fsdp_config.activation_checkpointing deepspeed use_peft lora_r lora_target_modules lora_dropout bf16 fp16 "
    "load_in_4bit use_bnb_nested_quant bnb_4bit_use_double_quant bnb_4bit_quant_type num_processes "
    "pad_to_multiple_of num_machines accelerate_config mixed_precision use_liger_kernel loss_type";
static const char trl_free[] =
    "output_dir overwrite_output_dir num_train_epochs max_steps learning_rate lr_scheduler_* warmup_* "
    "weight_decay adam_* max_grad_norm logging_* log_* report_to run_name save_* eval_* "
    "per_device_eval_batch_size do_eval do_train seed data_seed dataset_* dataloader_* hub_* push_to_hub "
    "load_best_model_at_end metric_for_best_model greater_is_better resume_from_checkpoint "
    "gradient_checkpointing_kwargs* model_revision trust_remote_code torch_dtype dtype chat_template* "
    "system_prompt completion_only_loss assistant_only_loss eos_token pad_token truncation_mode "
    "shuffle_dataset remove_unused_columns ddp_timeout tf32 disable_tqdm config "
    "lora_alpha lora_task_type lora_modules_to_save use_rslora "
    "use_cpu fsdp_config.* dataset_name eval_packing use_cache model_init_kwargs* "
    "average_tokens_across_devices ddp_find_unused_parameters preprocessing_* "
    "machine_rank main_process_ip main_process_port wandb_* trackio_* include_* bf16_full_eval label_smoothing_factor "
    "bnb_4bit_quant_storage bnb_4bit_compute_dtype liger_kernel_config.*";
static const char trl_noted[] =
    "liger_kernel_config load_in_8bit torch_compile torch_compile_* "
    "activation_offloading optim_target_modules neftune_noise_alpha auto_find_batch_size "
    "group_by_length torch_empty_cache_steps use_dora "
    "fsdp_transformer_layer_cls_to_wrap use_unsloth";
// clang-format on

static void read_trl_packing(framework_import *import)
{
    const framework_entry *how = framework_take(import, "packing_strategy");
    bool packs = framework_take_switch(import, "packing", false);
    bool free_of_padding = framework_take_switch(import, "padding_free", false);
    const char *name = framework_take_text(import, "packing_strategy");
    json_object_set_new(import->facts, "row_multiple",
                        json_integer(framework_take_int(import, "pad_to_multiple_of", 1, 1)));
    bool wraps = packs && name != NULL && strcmp(name, "wrapped") == 0;
    bool splits = packs && name != NULL && strcmp(name, "bfd_split") == 0;
    framework_put(import, "workload.over_length",
                  json_string(wraps || splits ? "split" : "truncate"));
    if (!packs) {
        framework_put(import, "strategy.kind", json_string(free_of_padding ? "packed" : "padded"));
        if (!free_of_padding) {
            framework_put(import, "strategy.pad_to", json_string("longest"));
        } else {
            framework_unread(import, framework_take(import, "padding_free"),
                             "TRL's micro-batches have per_device_train_batch_size samples, here "
                             "rows of max_length are filled: packed is taken");
        }
        return;
    }
    framework_put(import, "strategy.kind", json_string(wraps ? "concat" : "bfd"));
    if (name != NULL && !wraps && !splits && strcmp(name, "bfd") != 0) {
        framework_wrong(import, how, "expected bfd, bfd_split or wrapped, got \"%s\"", name);
    }
}

// FSDP's sharding strategy among the words of an entry, NULL: full_shard. `keeps`: parameters stay.
static void put_shards(framework_import *import, const framework_entry *entry, bool keeps)
{
    const char *words = entry != NULL ? json_string_value(entry->value) : "";
    words = words != NULL ? words : "";
    bool hybrid =
        sp_names_hold(words, "hybrid_shard") || sp_names_hold(words, "hybrid_shard_zero2");
    keeps = keeps || sp_names_hold(words, "shard_grad_op") ||
            sp_names_hold(words, "hybrid_shard_zero2");
    framework_put(import, "parallel.zero",
                  json_integer(sp_names_hold(words, "no_shard") ? 0
                               : keeps                          ? 2
                                                                : 3));
    framework_put(import, "stack.name", json_string("fsdp-2024"));
    if (hybrid) {
        framework_unread(import, entry,
                         "a copy in each node is not read from it: all ranks are taken to share "
                         "(--set parallel.zero_group=GPUS)");
    }
}

// Of the files that TRL comes with (trl/accelerate_configs), which are of one node of 8 ranks
// (zero1, zero3 and fsdp2 read; of the others assumed: a release has had multi_gpu of 3), and
// the arguments of `accelerate launch` that it takes beside its own.
static bool read_trl_launch(framework_import *import)
{
    static const struct {
        const char *name;
        int zero;
        bool is_fsdp;
    } shipped[] = {{"zero1", 1, false},     {"zero2", 2, false}, {"zero3", 3, false},
                   {"fsdp1", 3, true},      {"fsdp2", 3, true},  {"multi_gpu", 0, false},
                   {"single_gpu", 0, false}};
    enum { RANKS = 8 };
    const framework_entry *entry = framework_take(import, "accelerate_config");
    const char *name = framework_take_text(import, "accelerate_config");
    json_int_t ranks = framework_take_int(import, "num_processes", 1, 0);
    json_int_t machines = framework_take_int(import, "num_machines", 1, 0);
    size_t found = 0;
    while (found < sizeof shipped / sizeof shipped[0] &&
           (name == NULL || strcmp(shipped[found].name, name) != 0)) {
        found++;
    }
    const bool is_shipped = found < sizeof shipped / sizeof shipped[0];
    framework_tell_precision(import, "mixed_precision");
    if (is_shipped && ranks == 0 && json_object_get(import->facts, "gpus") == NULL) {
        ranks = strcmp(name, "single_gpu") == 0 ? 1 : RANKS;
        framework_note(import, "%s:%d: accelerate_config %s is of %lld rank%s (--num_processes)",
                       entry->source, entry->line, name, (long long)ranks, sp_plural(ranks));
    }
    if (ranks > 0) {
        json_object_set_new(import->facts, "gpus", json_integer(ranks));
    }
    if (ranks > 0 && machines > 0) {
        json_object_set_new(import->facts, "gpus_per_node", json_integer(ranks / machines));
    }
    if (is_shipped) {
        framework_put(import, "parallel.zero", json_integer(shipped[found].zero));
        framework_put(import, "stack.name",
                      json_string(shipped[found].is_fsdp ? "fsdp-2024" : import->of->stack));
    } else {
        framework_other_file(import, entry);
    }
    return is_shipped;
}

static void read_trl_shards(framework_import *import)
{
    const framework_entry *entry = framework_take(import, "fsdp");
    const char *fsdp = framework_take_text(import, "fsdp");
    const bool is_shipped = read_trl_launch(import);
    if (fsdp != NULL && fsdp[0] != '\0') {
        put_shards(import, entry, false);
    } else if (!is_shipped) {
        if (framework_get(import->scenario, "parallel.zero") == NULL) {
            framework_put(import, "parallel.zero", json_integer(0));
        }
        const char *stack = json_string_value(framework_get(import->scenario, "stack.name"));
        if (stack == NULL || strcmp(stack, "hf-trainer") == 0) { // also over DeepSpeed's
            framework_put(import, "stack.name", json_string(import->of->stack));
        }
    }
    framework_other_file(import, framework_take(import, "deepspeed"));
    framework_other_file(import, framework_take(import, "config launch.config_file"));
}

// trl/trainer/model_config.py; the name in BitsAndBytesConfig is read, too. FP4 takes what NF4
// does.
static void read_trl_frozen(framework_import *import, bool has_adapters)
{
    const framework_entry *packed = framework_take(import, "load_in_4bit");
    bool in_4bit = framework_take_switch(import, "load_in_4bit", false);
    bool nested = framework_take_switch(import, "use_bnb_nested_quant", false);
    nested = framework_take_switch(import, "bnb_4bit_use_double_quant", false) || nested;
    const framework_entry *type = framework_take(import, "bnb_4bit_quant_type");
    const char *name = framework_take_text(import, "bnb_4bit_quant_type");
    if (name != NULL && strcmp(name, "nf4") != 0 && strcmp(name, "fp4") != 0) {
        framework_wrong(import, type, "expected nf4 or fp4, got \"%s\"", name);
    }
    if (in_4bit && !has_adapters) {
        framework_wrong(import, packed,
                        "weights in 4 bits are not trained: expected use_peft true");
    } else if (in_4bit) {
        framework_put(import, "model.frozen_weights", json_string(nested ? "4bit-double" : "4bit"));
    }
}

static void read_trl_adapters(framework_import *import)
{
    bool has = framework_take_switch(import, "use_peft", false);
    json_int_t rank = framework_take_int(import, "lora_r", 1, 16);
    double dropout = framework_take_real(import, "lora_dropout", 0.05);
    const framework_entry *targets = framework_take(import, "lora_target_modules");
    read_trl_frozen(import, has);
    if (!has) {
        return;
    }
    const json_t *value = targets != NULL ? targets->value : NULL;
    const json_t *first = json_is_array(value) ? json_array_get(value, 0) : value;
    const char *word = json_string_value(first);
    framework_put(import, "model.lora_rank", json_integer(rank));
    framework_put(import, "model.lora_dropout", json_boolean(dropout > 0.0));
    if (word != NULL && strcmp(word, "all-linear") == 0) {
        framework_put(import, "model.lora_targets", json_string("all-linear"));
        return;
    }
    bool queries = false;
    bool outputs = false;
    bool gates = false;
    size_t i;
    json_t *module;
    json_array_foreach ((json_t *)value, i, module) {
        const char *name = json_is_string(module) ? json_string_value(module) : "";
        queries = queries || strcmp(name, "q_proj") == 0;
        outputs = outputs || strcmp(name, "o_proj") == 0;
        gates = gates || strcmp(name, "gate_proj") == 0;
    }
    size_t count = json_array_size(value);
    const char *kind = targets == NULL || (queries && !outputs && count == 2) ? "query-value"
                       : queries && outputs && gates && count == 7            ? "all-linear"
                       : queries && outputs && count == 4                     ? "attention"
                       : gates && !queries && count == 3                      ? "mlp"
                                                                              : NULL;
    framework_put(import, "model.lora_targets", json_string(kind != NULL ? kind : "all-linear"));
    if (kind == NULL) {
        framework_unread(import, targets,
                         "model.lora_targets has no such set: all-linear is taken");
    }
}

// Chunks of Liger's fused linear cross-entropy, which no argument sets: as many tokens as hold
// about as many logits as the rows have features, in a power of two (liger_kernel/ops/
// fused_linear_cross_entropy.py). 0: the model or the rows are not known.
static json_int_t liger_chunks(const json_t *scenario)
{
    enum { MOST = 65536 };
    sp_model model;
    bool known = false;
    json_int_t hidden = framework_get_int(scenario, "model.hidden", 0);
    json_int_t vocab = framework_get_int(scenario, "model.vocab", 0);
    const json_int_t tokens =
        framework_product(framework_get_int(scenario, "workload.context", 0),
                          framework_get_int(scenario, "schedule.microbatch_samples", 1), 1);
    const char *name = json_string_value(json_object_get(scenario, "model"));
    if (name != NULL && sp_model_named(name, &model, &known, NULL) == SP_OK && known) {
        hidden = model.hidden;
        vocab = model.vocab;
    }
    if (hidden <= 0 || vocab <= 0 || tokens <= 0) {
        return 0;
    }
    const int64_t least = sp_ceil_div(tokens, sp_ceil_div(vocab, hidden));
    int64_t chunk = 1;
    while (chunk < least) {
        chunk *= 2;
    }
    const int64_t chunks = sp_ceil_div(tokens, chunk);
    return chunks < MOST ? chunks : MOST;
}

// Liger's kernels, all of them where liger_kernel_config names none (transformers,
// integrations/liger.py), and the loss.
static void read_trl_loss(framework_import *import)
{
    enum { ASSUMED_CHUNKS = 8 }; // as tune advises
    static const char config[] = "liger_kernel_config.";
    const framework_entry *loss = framework_take(import, "loss_type");
    const char *type = framework_take_text(import, "loss_type");
    const bool on = framework_take_switch(import, "use_liger_kernel", false);
    bool has[3];
    static const char *const kernels[] = {"fused_linear_cross_entropy", "rms_norm", "swiglu"};
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", config, kernels[i]);
        has[i] = framework_take_switch(import, name, true) && on;
    }
    if (type != NULL && strcmp(type, "nll") != 0) {
        framework_unread(import, loss,
                         strcmp(type, "chunked_nll") == 0
                             ? "a loss by checkpointed chunks is stack.loss_chunks with "
                               "stack.loss_recompute"
                             : "other losses than the cross-entropy are not modelled");
    }
    if (!on) {
        return;
    }
    framework_put(import, "stack.unfused_norms", json_boolean(!has[1]));
    framework_put(import, "stack.fused_swiglu", json_boolean(has[2]));
    if (has[0]) {
        const json_int_t chunks = liger_chunks(import->scenario);
        framework_put(import, "stack.fused_cross_entropy", json_true());
        framework_put(import, "stack.loss_chunks",
                      json_integer(chunks > 0 ? chunks : ASSUMED_CHUNKS));
        if (chunks == 0) {
            framework_note(import,
                           "%s: how many chunks Liger's loss has follows from the model, which is "
                           "not known here: %d are assumed (--set stack.loss_chunks=N)",
                           import->source, ASSUMED_CHUNKS);
        }
    }
}

static void read_trl(framework_import *import)
{
    // FSDP's own, whatever gradient_checkpointing says.
    if (framework_take_switch(import, "fsdp_config.activation_checkpointing", false)) {
        framework_put(import, "memory.recompute", json_string("full"));
    }
    framework_read_launch(import);
    const char *model = framework_take_text(import, "model_name_or_path");
    if (model != NULL && json_object_get(import->scenario, "model") == NULL) {
        framework_put(import, "model", json_string(model));
    }
    json_int_t count = framework_take_int(import, "gradient_accumulation_steps", 1, 0);
    if (count > 0 || json_object_get(import->facts, "microbatches") == NULL) {
        json_object_set_new(import->facts, "microbatches", json_integer(count > 0 ? count : 1));
    }
    read_trl_packing(import);
    read_trl_shards(import);
    read_trl_adapters(import);
    read_trl_loss(import);
    put_moments(import, "optim");
    tell_fp16(import, "fp16");
    framework_take(import, "bf16");
}

static void write_trl_frozen(framework_output *output)
{
    const char *frozen = json_string_value(framework_get(output->scenario, "model.frozen_weights"));
    if (frozen != NULL && strcmp(frozen, "bf16") != 0) {
        framework_say(output, "load_in_4bit", json_true());
        framework_say(output, "bnb_4bit_quant_type", json_string("nf4"));
        framework_say(output, "use_bnb_nested_quant",
                      json_boolean(strcmp(frozen, "4bit-double") == 0));
    }
}

// Masters of BF16 weights are DeepSpeed's or FSDP's: without shards the weights that Adam steps are
// those that are loaded, FP32 under autocast. Frozen ones are as they are loaded.
static void write_trl_precision(framework_output *output)
{
    const json_t *s = output->scenario;
    const bool loads_bf16 = framework_get_int(s, "model.lora_rank", 0) > 0 ||
                            framework_get_int(s, "parallel.zero", 0) > 0 ||
                            json_is_true(framework_get(s, "stack.no_master_weights"));
    framework_say(output, "bf16", json_true());
    framework_say(output, "dtype", json_string(loads_bf16 ? "bfloat16" : "float32"));
}

// A loss by chunks is Liger's, of whose other kernels those are named that the scenario has or has
// not. Releases of TRL differ in the loss that holds where none is stated; one by checkpointed
// chunks has a size of chunks that no argument sets.
static void write_trl_loss(framework_output *output)
{
    const json_t *s = output->scenario;
    char comment[96];
    const bool repeats = json_is_true(framework_get(s, "stack.loss_recompute"));
    const bool chunked = framework_get_int(s, "stack.loss_chunks", 0) > 0;
    if (chunked && repeats) {
        return;
    }
    framework_say(output, "loss_type", json_string("nll"));
    if (chunked) {
        snprintf(comment, sizeof comment, "it cuts the loss into %lld chunks here",
                 (long long)liger_chunks(s));
        framework_say(output, "use_liger_kernel", json_true());
        framework_comment(output, "use_liger_kernel", comment);
        framework_say(output, "liger_kernel_config.fused_linear_cross_entropy", json_true());
        framework_say(output, "liger_kernel_config.cross_entropy", json_false());
        framework_say(output, "liger_kernel_config.rms_norm",
                      json_boolean(!json_is_true(framework_get(s, "stack.unfused_norms"))));
        framework_say(output, "liger_kernel_config.swiglu",
                      json_boolean(json_is_true(framework_get(s, "stack.fused_swiglu"))));
    }
}

static void write_trl(framework_output *output)
{
    const json_t *s = output->scenario;
    json_int_t count = accumulated(s);
    json_int_t zero = framework_get_int(s, "parallel.zero", 0);
    const char *kind = json_string_value(framework_get(s, "strategy.kind"));
    const char *over = json_string_value(framework_get(s, "workload.over_length"));
    json_int_t rank = framework_get_int(s, "model.lora_rank", 0);
    const char *model = json_string_value(framework_get(s, "model.name"));
    if (model != NULL && sp_model_builtin_meant(model) != NULL) {
        framework_say(output, "model_name_or_path", json_string(model));
        framework_comment(output, "model_name_or_path",
                          "replace it by the model's id on the Hub, or by a path");
    }
    framework_say(output, "gradient_accumulation_steps", json_integer(count > 0 ? count : 1));
    write_trl_precision(output);
    // Releases differ in what they do where it is not stated.
    const char *recompute = json_string_value(framework_get(s, "memory.recompute"));
    if (recompute != NULL && strcmp(recompute, "full") == 0) {
        framework_say(output, "gradient_checkpointing", json_true());
    }
    // Its rows of several samples are packed best fit first, whatever the scenario's strategy: what
    // is read back says where that is another. Without packing it pads (padding_free leaves the
    // number of samples of a micro-batch as it is, and makes no rows).
    bool wraps = kind != NULL && strcmp(kind, "concat") == 0;
    bool packs = kind != NULL && strcmp(kind, "padded") != 0;
    framework_say(output, "packing", json_boolean(packs));
    if (packs) {
        framework_say(output, "packing_strategy",
                      json_string(wraps                                        ? "wrapped"
                                  : over != NULL && strcmp(over, "split") == 0 ? "bfd_split"
                                                                               : "bfd"));
    }
    if (framework_get_int(s, "parallel.cp", 1) > 1) {
        framework_say(output, "pad_to_multiple_of", json_integer(framework_row_multiple(s)));
    }
    // Without FlashAttention's kernels the documents that bfd packs attend to each other
    // (trl/trainer/sft_trainer.py warns of it), whatever the scenario's attention; ranks that
    // exchange heads take no scores that are kept (accelerate's guide to sequence parallelism).
    const char *attention = json_string_value(framework_get(s, "memory.attention"));
    const bool scores = attention != NULL && strcmp(attention, "unfused") == 0;
    framework_say(output, "attn_implementation",
                  json_string(scores && (wraps || !packs) && !exchanges_heads(s)
                                  ? "eager"
                                  : "flash_attention_2"));
    write_trl_loss(output);
    if (shards(s)) {
        framework_say(output, "fsdp",
                      json_string(zero == 2 ? "shard_grad_op auto_wrap" : "full_shard auto_wrap"));
    }
    if (framework_get_int(s, "stack.moment_bytes", 0) == 1) {
        framework_say(output, "optim", json_string("adamw_8bit"));
    }
    if (rank > 0) {
        const char *targets = json_string_value(framework_get(s, "model.lora_targets"));
        static const char *const modules[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                              "gate_proj", "up_proj", "down_proj"};
        json_t *list = json_array();
        bool value = targets != NULL && strcmp(targets, "query-value") == 0;
        int begin = targets != NULL && strcmp(targets, "mlp") == 0 ? 4 : 0;
        int end = targets != NULL && (value || strcmp(targets, "attention") == 0) ? 4 : 7;
        for (int i = begin; i < end; i++) {
            if (!value || i == 0 || i == 2) {
                json_array_append_new(list, json_string(modules[i]));
            }
        }
        framework_say(output, "use_peft", json_true());
        framework_say(output, "lora_r", json_integer(rank));
        framework_say(output, "lora_dropout",
                      json_real(json_is_true(framework_get(s, "model.lora_dropout")) ? 0.05 : 0.0));
        framework_say(output, "lora_target_modules", list);
        write_trl_frozen(output);
    }
}

static const framework_elsewhere trl_elsewhere[] = {
    {"model", "model_name_or_path: the model's id on the Hub, or a path"},
    {"parallel.tp", "parallelism_config_tp_size of accelerate's file"},
    {"parallel.cp", "parallelism_config_sp_size (DeepSpeed) or _cp_size (FSDP2) of accelerate's "
                    "file"},
    {"stack.cp_overlap", "parallelism_config_sp_size or _cp_comm_strategy of accelerate's file"},
    {"parallel.zero", "zero_stage of accelerate's file or zero_optimization.stage of DeepSpeed's"},
    {"memory.offload_states", "offload_optimizer_device of accelerate's file or "
                              "offload_optimizer.device of DeepSpeed's"},
    {"stack.hide_gradient_reduce", "zero_stage 3 of accelerate's file or overlap_comm of "
                                   "DeepSpeed's"},
    {NULL, NULL},
};

const framework framework_trl = {FRAMEWORK_CALLED(trl, "TRL"),
                                 .elsewhere = trl_elsewhere,
                                 .stack = "trl-2025",
                                 .syntax = FRAMEWORK_YAML,
                                 .reads = 1U << FRAMEWORK_YAML | 1U << FRAMEWORK_SHELL |
                                          1U << FRAMEWORK_JSON,
                                 .rows = trl_rows,
                                 .read = read_trl,
                                 .write = write_trl};

// ---- accelerate: what a launch with --config_file reads ----

// clang-format off
static const framework_row accelerate_rows[] = {
    {"parallel.tp", FRAMEWORK_INT, NULL, NULL,
     {"parallelism_config.parallelism_config_tp_size"}, NULL},
    {"parallel.cp", FRAMEWORK_INT, NULL, NULL,
     {"parallelism_config.parallelism_config_cp_size"}, NULL},
    {"stack.cp_overlap", FRAMEWORK_NAME, "allgather=blocking alltoall=attention", "\"blocking\"",
     {"parallelism_config.parallelism_config_cp_comm_strategy"}, NULL},
    {"memory.attention", FRAMEWORK_NAME, ATTENTION_KERNELS, NULL, {NULL},
     "parallelism_config.parallelism_config_sp_attn_implementation"},
    {NULL, FRAMEWORK_INT, NULL, NULL, {NULL}, NULL},
};

static const char accelerate_own[] =
    "num_processes num_machines distributed_type mixed_precision fsdp_config.fsdp_version "
    "fsdp_config.fsdp_sharding_strategy fsdp_config.fsdp_reshard_after_forward "
    "fsdp_config.fsdp_activation_checkpointing deepspeed_config.zero_stage "
    "deepspeed_config.gradient_accumulation_steps deepspeed_config.offload_optimizer_device "
    "deepspeed_config.offload_param_device deepspeed_config.deepspeed_config_file parallelism_config.parallelism_config_dp_replicate_size "
    "parallelism_config.parallelism_config_sp_size";
static const char accelerate_free[] =
    "compute_environment debug downcast_bf16 main_training_function main_process_ip "
    "main_process_port machine_rank rdzv_* same_network tpu_* use_cpu enable_cpu_affinity gpu_ids "
    "fsdp_config.fsdp_auto_wrap_policy fsdp_config.fsdp_state_dict_type "
    "fsdp_config.fsdp_cpu_ram_efficient_loading fsdp_config.fsdp_sync_module_states "
    "fsdp_config.fsdp_use_orig_params fsdp_config.fsdp_transformer_layer_cls_to_wrap "
    "deepspeed_config.deepspeed_multinode_launcher deepspeed_config.gradient_clipping "
    "deepspeed_config.zero3_init_flag deepspeed_config.zero3_save_16bit_model "
    "parallelism_config.parallelism_config_dp_shard_size "
    "parallelism_config.parallelism_config_sp_* use_parallelism_config";
static const char accelerate_noted[] =
    "dynamo_config.* fsdp_config.fsdp_offload_params fsdp_config.fsdp_backward_prefetch "
    "fsdp_config.fsdp_forward_prefetch fp8_config.*";
// clang-format on

static void read_accelerate(framework_import *import)
{
    const framework_entry *sharding = framework_take(import, "fsdp_config.fsdp_sharding_strategy");
    framework_take_text(import, "fsdp_config.fsdp_sharding_strategy");
    const char *type = framework_take_text(import, "distributed_type");
    const framework_entry *keeps = framework_take(import, "fsdp_config.fsdp_reshard_after_forward");
    framework_take(import, "fsdp_config.fsdp_version");
    framework_tell_precision(import, "mixed_precision");
    json_int_t stage = framework_take_int(import, "deepspeed_config.zero_stage", 0, -1);
    json_int_t count =
        framework_take_int(import, "deepspeed_config.gradient_accumulation_steps", 1, 0);
    json_int_t processes = framework_take_int(import, "num_processes", 1, 0);
    json_int_t machines = framework_take_int(import, "num_machines", 1, 1);
    json_int_t copies =
        framework_take_int(import, "parallelism_config.parallelism_config_dp_replicate_size", 1, 1);
    if (processes > 0 && machines > 0) {
        json_object_set_new(import->facts, "gpus", json_integer(processes));
        json_object_set_new(import->facts, "gpus_per_node", json_integer(processes / machines));
    }
    if (framework_take_switch(import, "fsdp_config.fsdp_activation_checkpointing", false)) {
        framework_put(import, "memory.recompute", json_string("full"));
    }
    // DeepSpeed's Ulysses: ranks exchange heads (accelerate, utils/dataclasses.py: sp_backend).
    put_heads_ranks(
        import, framework_take_int(import, "parallelism_config.parallelism_config_sp_size", 1, 1));
    if (framework_get_int(import->scenario, "parallel.cp", 1) == 1) {
        json_object_del(json_object_get(import->scenario, "stack"), "cp_overlap");
    }
    tell_offload(import, "deepspeed_config.offload_param_device");
    framework_other_file(import, framework_take(import, "deepspeed_config.deepspeed_config_file"));
    json_object_set_new(import->facts, "trainer", json_true());
    if (type != NULL && strcmp(type, "FSDP") == 0) {
        put_shards(import, sharding, keeps != NULL && json_is_false(keeps->value));
        json_object_set_new(import->facts, "zero_instances", json_integer(copies));
    } else if (type != NULL && sp_names_hold("MULTI_GPU NO", type) &&
               framework_get(import->scenario, "parallel.zero") == NULL) {
        framework_put(import, "parallel.zero", json_integer(0));
    } else if (stage >= 0) {
        framework_put(import, "parallel.zero", json_integer(stage));
        if (framework_get(import->scenario, "stack.name") == NULL) { // TRL's stays
            framework_put(import, "stack.name", json_string("hf-trainer"));
        }
    }
    put_host_states(import, "deepspeed_config.offload_optimizer_device", NULL);
    if (count > 0) {
        json_object_set_new(import->facts, "microbatches", json_integer(count));
    }
}

// Ranks beside those of data: those that share a sequence in rings are FSDP2's, those that exchange
// heads DeepSpeed's.
static void write_accelerate_ranks(framework_output *output)
{
    static const char section[] = "parallelism_config.parallelism_config_";
    const json_t *s = output->scenario;
    const json_int_t tp = framework_get_int(s, "parallel.tp", 1);
    const json_int_t cp = framework_get_int(s, "parallel.cp", 1);
    char name[6][96];
    static const char *const names[] = {"tp_size",
                                        "cp_size",
                                        "sp_size",
                                        "sp_backend",
                                        "sp_seq_length_is_variable",
                                        "sp_attn_implementation"};
    for (int i = 0; i < 6; i++) {
        snprintf(name[i], sizeof name[i], "%s%s", section, names[i]);
    }
    if (tp == 1) {
        json_object_del(output->arguments, name[0]);
    }
    if (cp == 1 || exchanges_heads(s)) {
        json_object_del(output->arguments, name[1]);
    }
    if (exchanges_heads(s)) {
        framework_say(output, name[2], json_integer(cp));
        framework_say(output, name[3], json_string("deepspeed"));
        framework_say(output, name[4], json_true());
        // As TRL's file has it, which DeepSpeed asks for; sdpa sees no bounds of documents.
        framework_say(output, name[5], json_string("flash_attention_2"));
    }
    if (tp > 1 || cp > 1) {
        snprintf(name[0], sizeof name[0], "%sdp_%s_size", section,
                 framework_get_int(s, "parallel.zero", 0) > 0 ? "shard" : "replicate");
        framework_say(output, name[0], json_incref(framework_get(s, "parallel.dp")));
    }
}

// Values that change no time are those of trl/accelerate_configs.
static void write_accelerate(framework_output *output)
{
    const json_t *s = output->scenario;
    const json_int_t zero = framework_get_int(s, "parallel.zero", 0);
    const json_int_t ranks = framework_replica(s) * framework_get_int(s, "parallel.dp", 1);
    const json_int_t each = framework_get_int(s, "cluster.gpus_per_node", 8);
    const bool deepspeed = !shards(s) && (zero > 0 || exchanges_heads(s));
    framework_say(output, "compute_environment", json_string("LOCAL_MACHINE"));
    framework_say(output, "distributed_type",
                  json_string(shards(s)   ? "FSDP"
                              : deepspeed ? "DEEPSPEED"
                              : ranks > 1 ? "MULTI_GPU"
                                          : "NO"));
    framework_comment(output, "distributed_type",
                      "accelerate launch --config_file THIS_FILE trl/scripts/sft.py --config "
                      "FILE_OF_TRL");
    framework_say(output, "mixed_precision", json_string("bf16"));
    framework_say(output, "num_machines", json_integer(sp_ceil_div(ranks, each)));
    framework_say(output, "num_processes", json_integer(ranks));
    if (ranks > each) {
        framework_say(output, "machine_rank", json_integer(0));
        framework_comment(output, "machine_rank",
                          "of this machine, beside main_process_ip and main_process_port");
    }
    if (shards(s)) {
        framework_say(output, "fsdp_config.fsdp_version", json_integer(2));
        framework_say(output, "fsdp_config.fsdp_reshard_after_forward", json_boolean(zero == 3));
        framework_say(output, "fsdp_config.fsdp_auto_wrap_policy",
                      json_string("TRANSFORMER_BASED_WRAP"));
        framework_say(output, "fsdp_config.fsdp_state_dict_type", json_string("FULL_STATE_DICT"));
    }
    if (deepspeed) {
        const bool host = json_number_value(framework_get(s, "memory.offload_states")) > 0.0;
        const json_int_t count = accumulated(s);
        framework_say(output, "deepspeed_config.zero_stage", json_integer(zero));
        framework_say(output, "deepspeed_config.gradient_accumulation_steps",
                      json_integer(count > 0 ? count : 1));
        framework_say(output, "deepspeed_config.offload_optimizer_device",
                      json_string(host ? "cpu" : "none"));
        framework_say(output, "deepspeed_config.deepspeed_multinode_launcher",
                      json_string("standard"));
    }
    write_accelerate_ranks(output);
}

const framework framework_accelerate = {FRAMEWORK_CALLED(accelerate, "accelerate"),
                                        .syntax = FRAMEWORK_YAML,
                                        .reads = 1U << FRAMEWORK_YAML,
                                        .rows = accelerate_rows,
                                        .read = read_accelerate,
                                        .write = write_accelerate,
                                        .elsewhere = deepspeed_elsewhere + 1};

// ---- nanotron (src/nanotron/config) ----

// clang-format off
static const framework_row nanotron_rows[] = {
    {"model.layers", FRAMEWORK_INT, NULL, NULL, {"model.model_config.num_hidden_layers"}, NULL},
    {"model.hidden", FRAMEWORK_INT, NULL, NULL, {"model.model_config.hidden_size"}, NULL},
    {"model.ffn", FRAMEWORK_INT, NULL, NULL, {"model.model_config.intermediate_size"}, NULL},
    {"model.heads", FRAMEWORK_INT, NULL, NULL, {"model.model_config.num_attention_heads"}, NULL},
    {"model.kv_heads", FRAMEWORK_INT, NULL, "@model.heads",
     {"model.model_config.num_key_value_heads"}, NULL},
    {"model.vocab", FRAMEWORK_INT, NULL, NULL, {"model.model_config.vocab_size"}, NULL},
    {"model.activation", FRAMEWORK_NAME, "silu=swiglu gelu=geglu", "\"swiglu\"",
     {"model.model_config.hidden_act"}, NULL},
    {"model.tied_embeddings", FRAMEWORK_SWITCH, NULL, "false",
     {"model.model_config.tie_word_embeddings"}, NULL},
    {"model.qkv_bias", FRAMEWORK_SWITCH, NULL, "false", {"model.model_config.attention_bias"}, NULL},
    {"model.norm", FRAMEWORK_IMPLIED, NULL, "\"rmsnorm\"", {NULL}, NULL},
    {"model.positional", FRAMEWORK_IMPLIED, NULL, "\"rope\"", {NULL}, NULL},
    {"model.bias", FRAMEWORK_IMPLIED, NULL, "false", {NULL}, NULL},
    {"model.dropout", FRAMEWORK_IMPLIED, NULL, "false", {NULL}, NULL},
    {"parallel.dp", FRAMEWORK_INT, NULL, "1", {"parallelism.dp"}, NULL},
    {"parallel.pp", FRAMEWORK_INT, NULL, "1", {"parallelism.pp"}, NULL},
    {"parallel.tp", FRAMEWORK_INT, NULL, "1", {"parallelism.tp"}, NULL},
    {"parallel.cp", FRAMEWORK_INT, NULL, "1", {"parallelism.context_parallel_size"}, NULL},
    {"parallel.ep", FRAMEWORK_INT, NULL, "1", {"parallelism.expert_parallel_size"}, NULL},
    {"parallel.sequence_parallel", FRAMEWORK_NAME, "REDUCE_SCATTER=true ALL_REDUCE=false", "false",
     {"parallelism.tp_mode"}, NULL},
    {"parallel.zero", FRAMEWORK_INT, NULL, "0", {"optimizer.zero_stage"}, NULL},
    {"parallel.stage_layers", FRAMEWORK_IMPLIED, NULL, "\"nanotron\"", {NULL}, NULL},
    {"schedule.kind", FRAMEWORK_NAME, "1f1b=1f1b afab=gpipe", "\"gpipe\"",
     {"parallelism.pp_engine"}, NULL},
    {"schedule.microbatch_samples", FRAMEWORK_INT, NULL, NULL, {"tokens.micro_batch_size"}, NULL},
    {"workload.context", FRAMEWORK_INT, NULL, NULL, {"tokens.sequence_length"}, NULL},
    {"memory.recompute", FRAMEWORK_NAME, "true=full false=none", "\"none\"",
     {"parallelism.recompute_layer"}, NULL},
    {"stack.gradient_reduce_dtype", FRAMEWORK_NAME, "true=fp32 false=bf16", "\"fp32\"",
     {"optimizer.accumulate_grad_in_fp32"}, NULL},
    {NULL, FRAMEWORK_INT, NULL, NULL, {NULL}, NULL},
};

static const char nanotron_own[] =
    "tokens.batch_accumulation_per_replica model.model_config.max_position_embeddings model.dtype "
    "optimizer.optimizer_factory.name";
static const char nanotron_free[] =
    "checkpoints.* data_stages.* general.* lighteval* logging.* model.init_method.* "
    "model.make_vocab_size_divisible_by model.ddp_bucket_cap_mb model.model_config.bos_token_id "
    "model.model_config.eos_token_id model.model_config.pad_token_id "
    "model.model_config.initializer_range model.model_config.is_* model.model_config.pretraining_tp "
    "model.model_config.rms_norm_eps model.model_config.rope_* model.model_config.use_cache "
    "model.model_config.z_loss_* model.model_config._attn_implementation "
    "model.model_config._fused_* model.model_config._use_* optimizer.clip_grad "
    "optimizer.learning_rate_scheduler.* optimizer.optimizer_factory.* optimizer.weight_decay* "
    "profiler* s3_upload* tokenizer.* tokens.limit_* tokens.train_steps tokens.val_check_interval "
    "parallelism.tp_linear_async_communication parallelism.tp_recompute_allgather metrics_logging*";
static const char nanotron_noted[] =
    "model.model_config.moe_config.* model.model_config.sliding_window_size "
    "model.model_config.no_rope_layer model.model_config.flex_attention_mask "
    "parallelism.moe_layer_recompute";
// clang-format on

static void read_nanotron(framework_import *import)
{
    json_object_set_new(
        import->facts, "microbatches",
        json_integer(framework_take_int(import, "tokens.batch_accumulation_per_replica", 1, 1)));
    framework_take(import, "model.model_config.max_position_embeddings");
    framework_tell_precision(import, "model.dtype");
    put_moments(import, "optimizer.optimizer_factory.name");
    drop_lone_pipeline(import);
}

static void write_nanotron(framework_output *output)
{
    // Degrees of 1, too, have no default (config/parallelism_config.py: ParallelismArgs).
    static const char *const degrees[] = {"dp", "pp", "tp"};
    const json_t *s = output->scenario;
    json_int_t count = accumulated(s);
    for (size_t i = 0; i < sizeof degrees / sizeof degrees[0]; i++) {
        char key[32];
        char name[32];
        snprintf(key, sizeof key, "parallel.%s", degrees[i]);
        snprintf(name, sizeof name, "parallelism.%s", degrees[i]);
        framework_say(output, name, json_integer(framework_get_int(s, key, 1)));
    }
    if (count > 0) {
        framework_say(output, "tokens.batch_accumulation_per_replica", json_integer(count));
    }
    framework_say(output, "model.dtype", json_string("bfloat16"));
    framework_say(output, "model.model_config.max_position_embeddings",
                  json_incref(framework_get(s, "workload.context")));
}

const framework framework_nanotron = {FRAMEWORK_CALLED(nanotron, "nanotron"),
                                      .stack = "nanotron-2025",
                                      .syntax = FRAMEWORK_YAML,
                                      .reads = 1U << FRAMEWORK_YAML,
                                      .rows = nanotron_rows,
                                      .read = read_nanotron,
                                      .write = write_nanotron,
                                      .rotary_base = "model.model_config.rope_theta"};
