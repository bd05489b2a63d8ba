// Files in the form of each framework: what they mean as a scenario, and what is not understood.
// The expected values are what the frameworks' own sources say the arguments do.
#include "experiments/frameworks/frameworks.h"
#include "sim/base/json.h"
#include "sim/base/writer.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// Of a document that `source` made: {key: value}, null for what is not there.
static void check_settings(const char *source, const json_t *scenario, const char *settings)
{
    json_auto_t *expected = json_loads(settings, 0, NULL);
    assert_non_null(expected);
    const char *key;
    json_t *value;
    json_object_foreach (expected, key, value) {
        const json_t *found = framework_get(scenario, key);
        bool same = json_is_null(value) ? found == NULL
                    : json_is_number(value) && json_is_number(found)
                        ? fabs(json_number_value(value) - json_number_value(found)) < 1e-6
                        : json_equal(value, found) != 0;
        must_hold(same, "%s: %s is %s", source, key,
                  found != NULL ? json_dumps(found, JSON_ENCODE_ANY) : "not there");
    }
}

// Reads `text` under a file name and checks settings ({key: value}) and the names of what is listed
// as not understood, with their lines ("name:line").
static void check(const char *source, const char *text, const char *settings, const char *unread)
{
    json_auto_t *scenario = NULL;
    json_auto_t *listed = NULL;
    json_auto_t *notes = NULL;
    sp_error err = {0};
    sp_status status =
        framework_import_text(source, text, strlen(text), NULL, &scenario, &listed, &notes, &err);
    must_hold(status == SP_OK, "%s: %s", source, err.message[0]);
    check_settings(source, scenario, settings);
    char all[512] = "";
    size_t i;
    json_t *item;
    json_array_foreach (listed, i, item) {
        size_t length = strlen(all);
        snprintf(all + length, sizeof all - length, "%s%s:%lld", i > 0 ? " " : "",
                 json_string_value(json_object_get(item, "name")),
                 (long long)json_integer_value(json_object_get(item, "line")));
    }
    assert_string_equal(all, unread);
}

static void check_error(const char *source, const char *text, const char *message)
{
    json_t *scenario = NULL;
    json_auto_t *listed = NULL;
    json_auto_t *notes = NULL;
    sp_error err = {0};
    assert_int_not_equal(
        framework_import_text(source, text, strlen(text), NULL, &scenario, &listed, &notes, &err),
        SP_OK);
    assert_string_equal(err.message[0], message);
    assert_null(scenario);
}

TEST(megatron_script_with_arrays)
{
    check("train.sh",
          "#!/bin/bash\n"
          "GPUS=8\n"
          "NODES=${SLURM_NNODES:-4}\n"
          "TP=4; PP=2\n"
          "DIST=(--nproc_per_node $GPUS --nnodes $NODES --master_addr $ADDR)\n"
          "MODEL=(\n"
          "    --num-layers 32 --hidden-size 4096 # a comment\n"
          "    --num-attention-heads 32 --group-query-attention --num-query-groups 8\n"
          "    --ffn-hidden-size 14336 --seq-length 8192 --max-position-embeddings 8192\n"
          "    --swiglu --normalization RMSNorm --disable-bias-linear\n"
          "    --position-embedding-type rope --untie-embeddings-and-output-weights\n"
          ")\n"
          "TRAIN=\"--micro-batch-size 1 --global-batch-size $((GPUS * NODES * 2)) \\\n"
          "   --bf16 --lr 1e-4 --vocab-size 128000\"\n"
          "torchrun \"${DIST[@]}\" pretrain_gpt.py ${MODEL[@]} $TRAIN \\\n"
          "    --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} \\\n"
          "    --sequence-parallel --use-distributed-optimizer --recompute-activations \\\n"
          "    --save /tmp/x 2>&1 | tee log\n",
          "{\"model.layers\":32,\"model.hidden\":4096,\"model.heads\":32,\"model.kv_heads\":8,"
          "\"model.ffn\":14336,\"model.activation\":\"swiglu\",\"model.norm\":\"rmsnorm\","
          "\"model.bias\":false,\"model.tied_embeddings\":false,\"model.positional\":\"rope\","
          "\"model.vocab\":128000,\"model.dropout\":true,\"parallel.tp\":4,\"parallel.pp\":2,"
          "\"parallel.dp\":4,\"parallel.zero\":1,\"parallel.sequence_parallel\":true,"
          "\"workload.context\":8192,\"workload.samples_per_batch\":64,"
          "\"schedule.microbatch_samples\":1,\"memory.recompute\":\"attention\","
          "\"stack.hide_gradient_reduce\":false}",
          "");
}

// Defaults of arguments.py where nothing is stated: GELU, LayerNorm, biases, tied embeddings, a
// vocabulary padded to 128 times tp, a feed-forward of 4 times hidden, batches of one micro-batch.
TEST(megatron_defaults)
{
    check(
        "a.sh",
        "torchrun --nproc_per_node=2 p.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
        "--seq-length 128 --micro-batch-size 3 --vocab-size 1000 --bf16",
        "{\"model.activation\":\"gelu\",\"model.norm\":\"layernorm\",\"model.bias\":true,"
        "\"model.tied_embeddings\":true,\"model.vocab\":1024,\"model.ffn\":256,"
        "\"model.kv_heads\":4,\"model.positional\":\"learned\",\"parallel.zero\":0,"
        "\"parallel.dp\":2,\"schedule.microbatches\":1,\"memory.recompute\":\"none\"}",
        "");
}

// int((4 * 4096 * 2 / 3) / 64) * 64 of validate_args.
TEST(megatron_swiglu_width)
{
    check("a.sh", "python pretrain_gpt.py --num-layers 2 --hidden-size 4096 --swiglu --bf16",
          "{\"model.ffn\":10880}", "");
}

// --transformer-impl local has scores that are kept, unless --use-flash-attn.
TEST(megatron_local_attention)
{
    check("a.sh", "python p.py --num-layers 2 --transformer-impl local --bf16 --no-rope-fusion",
          "{\"memory.attention\":\"unfused\"}", "no-rope-fusion:1");
    check("a.sh", "python p.py --num-layers 2 --transformer-impl local --use-flash-attn --bf16",
          "{\"memory.attention\":\"flash\"}", "");
}

// --cross-entropy-fusion-impl is "native" by default, which copies the logits to fp32.
TEST(megatron_losses)
{
#define LOSS "python p.py --num-layers 2 --bf16 --cross-entropy-loss-fusion"
    check("a.sh", LOSS, "{\"stack.fused_cross_entropy\":false,\"stack.copied_logits\":true}", "");
    check("a.sh", LOSS " --cross-entropy-fusion-impl te",
          "{\"stack.fused_cross_entropy\":true,\"stack.copied_logits\":false}", "");
    check("a.sh", "python p.py --num-layers 2 --bf16 --cross-entropy-fusion-impl te",
          "{\"stack.fused_cross_entropy\":false,\"stack.copied_logits\":false}", "");
#undef LOSS
}

TEST(megatron_experts)
{
    check("moe.sh",
          "#!/bin/sh\n"
          "ARGS=\"--num-layers 4 --hidden-size 64 --num-attention-heads 4 --bf16 --swiglu\"\n"
          "ARGS+=\" --ffn-hidden-size 256 --moe-ffn-hidden-size 32 --num-experts 16\"\n"
          "ARGS=\"$ARGS --moe-router-topk 4 --moe-layer-freq [0]+[1]*3 "
          "--expert-model-parallel-size 8\"\n"
          "python -m torch.distributed.launch --nproc_per_node 8 pretrain_gpt.py $ARGS \\\n"
          "  --moe-token-dispatcher-type flex --moe-enable-deepep --expert-tensor-parallel-size 1 "
          "\\\n"
          "  --moe-shared-expert-intermediate-size 48 --moe-grouped-gemm --moe-router-fusion "
          "--vocab-size 128 --moe-latent-size 24\n",
          "{\"model.ffn\":32,\"model.experts\":16,\"model.experts_per_token\":4,"
          "\"model.shared_ffn\":48,\"model.expert_latent\":24,\"parallel.ep\":8,\"parallel.etp\":1,"
          "\"stack.dispatcher\":\"deepep\",\"stack.router_kernels\":31,"
          "\"model.layer_kinds\":[{\"layers\":1,\"ffn\":256,\"experts\":0,\"experts_per_token\":0,"
          "\"shared_ffn\":0},{\"layers\":3}],\"parallel.dp\":"
          "8}",
          "");
}

// Of a whole configuration's SMs those of the backend that runs count, and none of another type's.
TEST(megatron_flex_backends)
{
    static const char common[] =
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 "
        "--num-attention-heads 4 --bf16 --swiglu --ffn-hidden-size 256 --num-experts 8 "
        "--moe-router-topk 2 --expert-model-parallel-size 8 --moe-grouped-gemm --vocab-size 128 "
        "--moe-deepep-num-sms 20 --moe-hybridep-num-sms 32 ";
    static const struct {
        const char *said, *wanted;
    } cases[] = {
        {"--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep",
         "{\"stack.dispatcher\":\"hybridep\",\"stack.dispatcher_sms\":32}"},
        {"--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep",
         "{\"stack.dispatcher\":\"deepep\",\"stack.dispatcher_sms\":20}"},
        {"--moe-token-dispatcher-type flex",
         "{\"stack.dispatcher\":\"deepep\",\"stack.dispatcher_sms\":20}"},
        {"--moe-token-dispatcher-type alltoall --moe-flex-dispatcher-backend hybridep",
         "{\"stack.dispatcher\":\"alltoall\",\"stack.dispatcher_sms\":null}"},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s%s\n", common, cases[i].said);
        check("flex.sh", text, cases[i].wanted, "");
    }
}

TEST(megatron_latents_and_stages)
{
    check("mla.sh",
          "torchrun --nproc_per_node 8 --nnodes 1 pretrain.py --num-layers 8 --hidden-size 64 "
          "--num-attention-heads 4 --multi-latent-attention --kv-lora-rank 16 --qk-head-dim 8 "
          "--qk-pos-emb-head-dim 4 --v-head-dim 8 --bf16 --pipeline-model-parallel-size 2 "
          "--pipeline-model-parallel-layout 'Et*3|t*2|(t|)*1ttL' --recompute-granularity full "
          "--recompute-method uniform --recompute-num-layers 1 --cp-comm-type a2a "
          "--context-parallel-size 2 --vocab-size 128",
          "{\"model.kv_lora_rank\":16,\"model.qk_nope_dim\":8,\"model.qk_rope_dim\":4,"
          "\"model.v_head_dim\":8,\"parallel.stage_layers\":[3,2,1,2],"
          "\"parallel.chunks_per_rank\":2,\"memory.recompute\":\"full\","
          "\"stack.cp_overlap\":\"a2a\",\"parallel.dp\":2}",
          "");
}

TEST(megatron_lists_by_line)
{
    check("typo.sh",
          "ARGS=(\n"
          "  --num-layers 2\n"
          "  --tensor-modle-parallel-size 4\n"
          "  --enable-cuda-graph\n"
          "  --rampup-batch-size 16 16 1000\n"
          ")\n"
          "torchrun pretrain_gpt.py ${ARGS[@]} --micro-batch-size $MBS $MORE --bf16 \\\n"
          "  --optimizer sgd\n",
          "{\"model.layers\":2,\"parallel.tp\":1}",
          "micro-batch-size:7 tensor-modle-parallel-size:3 enable-cuda-graph:4 "
          "rampup-batch-size:5 optimizer:8");
}

TEST(script_conditions_and_functions)
{
    // Both branches assign TP otherwise: which holds is not known.
    check("if.sh",
          "run() {\n"
          "  if [ \"$1\" = big ]; then TP=8; else TP=4; fi\n"
          "  [ -n \"$X\" ] && PP=2\n"
          "  local CP=2\n"
          "  cat <<EOF > conf\n"
          "--tensor-model-parallel-size 16\n"
          "EOF\n"
          "  torchrun p.py --num-layers 2 --tensor-model-parallel-size $TP "
          "--pipeline-model-parallel-size $PP --context-parallel-size $CP --bf16\n"
          "}\n"
          "run big\n",
          "{\"parallel.pp\":2,\"parallel.cp\":2,\"parallel.tp\":1}",
          "tensor-model-parallel-size:8");
}

TEST(script_in_quotes_and_slurm)
{
    check("job.sh",
          "#!/bin/bash\n"
          "#SBATCH --job-name=x\n"
          "#SBATCH --nodes=2 --gpus-per-node=4\n"
          "cmd=\"python -u pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 "
          "--tensor-model-parallel-size 2 --bf16\"\n"
          "srun -l bash -c \"cd /x && ${cmd}\"\n",
          "{\"model.layers\":4,\"parallel.tp\":2,\"parallel.dp\":4,\"cluster.gpus_per_node\":4}",
          "");
}

// As sbatch's page writes them: --gres=gpu:KIND:NUMBER, several with commas, --gpus-per-node alike.
TEST(slurm_names_kinds_of_gpus)
{
    static const char *const lines[] = {"--gres=gpu:4", "--gres gpu:h100:4,nvme:1",
                                        "--gpus-per-node=h100:4", "--gpus-per-node=4"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "#SBATCH --nodes=2 %s\n"
                 "srun python p.py --num-layers 2 --tensor-model-parallel-size 2 --bf16\n",
                 lines[i]);
        check("job.sh", text, "{\"parallel.dp\":4,\"cluster.gpus_per_node\":4}", "");
    }
    check_error("job.sh", "#SBATCH --gres=gpu\nsrun python p.py --num-layers 2 --bf16\n",
                "job.sh:1: launch.gres: expected a number of GPUs such as 8 or gpu:8, got "
                "\"gpu\"");
}

// Slurm sets these as the job's own lines say (sbatch's manual): 8 nodes of 4 GPUs over tp 2.
TEST(slurm_sets_variables)
{
    static const char *const nodes[] = {"${SLURM_NNODES}", "$SLURM_JOB_NUM_NODES",
                                        "${SLURM_NNODES:-1}", "$((SLURM_NNODES * 1))",
                                        "$(scontrol show hostnames | wc -l)"};
    static const char *const gpus[] = {"$SLURM_GPUS_ON_NODE", "${SLURM_GPUS_PER_NODE}",
                                       "$((SLURM_NTASKS_PER_NODE))", "4", "${GPUS:-4}"};
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "#SBATCH --nodes=8 --gpus-per-node=h100:4\n#SBATCH --ntasks-per-node 4\nN=%s\n"
                 "torchrun --nproc_per_node %s --nnodes $N p.py --num-layers 2 "
                 "--tensor-model-parallel-size 2 --bf16\n",
                 nodes[i], gpus[i]);
        check("job.sh", text, "{\"parallel.dp\":16,\"cluster.gpus_per_node\":4}", "");
    }
    // Where no line states it the ranks are open.
    check("job.sh",
          "torchrun --nproc_per_node 4 --nnodes $SLURM_NNODES p.py --num-layers 2 --bf16\n",
          "{\"parallel.dp\":null,\"cluster.gpus_per_node\":4}", "launch.nnodes:1");
}

// Lines as an editor of Windows ends them, of continued commands, arrays and quotes.
TEST(scripts_with_lines_of_windows)
{
    check("job.sh",
          "#!/bin/bash\r\n#SBATCH --nodes=2\r\nTP=2\r\nA=(\r\n --num-layers 4\r\n --bf16\r\n)\r\n"
          "torchrun --nproc_per_node 8 p.py \\\r\n --tensor-model-parallel-size $TP \\\r\n"
          " ${A[@]}\r\n",
          "{\"parallel.tp\":2,\"parallel.dp\":8,\"model.layers\":4}", "");
}

TEST(megatron_yaml)
{
    check("gpt.yaml",
          "language_model:\n"
          "  num_layers: 24\n"
          "  hidden_size: 1024\n"
          "  num_attention_heads: 16\n"
          "  num_query_groups: 4\n"
          "  activation_func: swiglu\n"
          "  add_bias_linear: False\n"
          "  hidden_dropout: 0.0\n"
          "  attention_dropout: 0.0\n"
          "  normalization: \"RMSNorm\"\n"
          "model_parallel:\n"
          "  tensor_model_parallel_size: 2\n"
          "  virtual_pipeline_model_parallel_size: null\n"
          "  sequence_parallel: True\n"
          "  bf16: True\n"
          "micro_batch_size: 2\n"
          "global_batch_size: 128\n"
          "position_embedding_type: rope\n"
          "seq_length: 4096\n"
          "untie_embeddings_and_output_weights: True\n"
          "lr: 2.5e-4\n"
          "data_path: null\n",
          "{\"model.layers\":24,\"model.kv_heads\":4,\"model.activation\":\"swiglu\","
          "\"model.ffn\":2688,\"model.bias\":false,\"model.dropout\":false,"
          "\"model.norm\":\"rmsnorm\",\"parallel.tp\":2,\"parallel.sequence_parallel\":true,"
          "\"schedule.microbatch_samples\":2,\"workload.samples_per_batch\":128,"
          "\"model.tied_embeddings\":false,\"workload.context\":4096}",
          "");
}

TEST(bridge_recipe)
{
    check("bridge.yaml",
          "ConfigContainer:\n"
          "  model:\n"
          "    tensor_model_parallel_size: 4\n"
          "    pipeline_model_parallel_size: 2\n"
          "    virtual_pipeline_model_parallel_size: 2\n"
          "    seq_length: 4096\n"
          "    sequence_parallel: true\n"
          "    expert_model_parallel_size: 4\n"
          "    recompute_granularity: selective\n"
          "    recompute_modules: [core_attn]\n"
          "    cuda_graph_impl: local\n"
          "  train:\n"
          "    train_iters: 10\n"
          "    global_batch_size: 256\n"
          "    micro_batch_size: 2\n"
          "  ddp:\n"
          "    grad_reduce_in_fp32: true\n"
          "    overlap_grad_reduce: true\n"
          "  logger:\n"
          "    log_interval: 10\n",
          "{\"parallel.tp\":4,\"parallel.pp\":2,\"parallel.chunks_per_rank\":2,\"parallel.ep\":4,"
          "\"workload.context\":4096,\"workload.samples_per_batch\":256,"
          "\"schedule.microbatch_samples\":2,\"stack.gradient_reduce_dtype\":\"fp32\","
          "\"stack.hide_gradient_reduce\":true,\"memory.recompute\":\"attention\",\"model\":null,"
          "\"stack.name\":\"megatron-bridge-2025\"}",
          "ConfigContainer.model.cuda_graph_impl:11");
}

TEST(nemo_recipe)
{
    check(
        "nemo.yaml",
        "trainer:\n  devices: 8\n  num_nodes: 2\n  precision: bf16\n"
        "model:\n"
        "  micro_batch_size: 4\n  global_batch_size: 64\n  tensor_model_parallel_size: 2\n"
        "  encoder_seq_length: 2048\n  max_position_embeddings: ${.encoder_seq_length}\n"
        "  num_layers: 12\n  hidden_size: 768\n  num_attention_heads: 12\n  ffn_hidden_size: 3072\n"
        "  activation: fast-swiglu\n  normalization: rmsnorm\n  bias: False\n"
        "  override_vocab_size: 32000\n  position_embedding_type: rope\n"
        "  activations_checkpoint_granularity: full\n"
        "  data:\n    seq_length: ${model.encoder_seq_length}\n    data_prefix: ???\n"
        "  optim:\n    name: distributed_fused_adam\n    lr: 2e-4\n",
        "{\"model.layers\":12,\"model.vocab\":32000,\"model.activation\":\"swiglu\","
        "\"model.norm\":\"rmsnorm\",\"parallel.dp\":8,\"parallel.zero\":1,"
        "\"memory.recompute\":\"full\",\"workload.context\":2048,"
        "\"workload.samples_per_batch\":64}",
        "");
}

TEST(torchtitan_recipe)
{
    check("titan.toml",
          "[job]\ndescription = \"x\"\n"
          "[model]\nname = \"llama3\"\nflavor = \"70B\"\nconverters = [\"float8\"]\n"
          "[optimizer]\nname = \"AdamW\"\nlr = 1.5e-4\n"
          "[training]\nlocal_batch_size = 8\nseq_len = 8192\ncompile = true\n"
          "[parallelism]\ndata_parallel_replicate_degree = 1\ndata_parallel_shard_degree = 16\n"
          "tensor_parallel_degree = 8\nenable_async_tensor_parallel = true\n"
          "pipeline_parallel_split_points = [\"layers.1\"]\n"
          "[activation_checkpoint]\nmode = \"full\"\n"
          "[float8]\nrecipe_name = \"tensorwise\"\n",
          "{\"model\":\"llama-3-70b\",\"precision\":\"fp8\",\"fp8_recipe\":\"current\","
          "\"parallel.tp\":8,\"parallel.dp\":16,\"parallel.zero\":3,"
          "\"schedule.microbatch_samples\":8,\"schedule.microbatches\":1,"
          "\"workload.context\":8192,\"memory.recompute\":\"full\","
          "\"stack.hide_forward_gather\":true,\"stack.name\":\"fsdp2-2025\"}",
          "parallelism.pipeline_parallel_split_points:19");
}

// Its converters were called float8 and mx first, and by what they convert later.
TEST(torchtitan_converters)
{
    static const char later[] = "[quantize.linear.float8]\nrecipe_name = \"tensorwise\"\n"
                                "enable_fsdp_float8_all_gather = true\nfilter_fqns = [\"output\"]\n"
                                "[model]\nconverters = [\"quantize.linear.float8\"]\n";
    check("a.toml", later, "{\"precision\":\"fp8\",\"fp8_recipe\":\"current\",\"fp8_params\":true}",
          "");
    check("a.toml", "[model]\nconverters = [\"mx\"]\n", "{\"precision\":\"bf16\"}",
          "model.converters:2");
    check("a.sh", "torchrun -m torchtitan.train --model.converters float8,eco",
          "{\"precision\":\"fp8\"}", "model.converters:1");
}

// Hybrid sharding: two copies of states that 4 ranks share; a pipeline keeps parameters.
TEST(torchtitan_hybrid_pipeline)
{
    check("hsdp.toml",
          "[training]\nlocal_batch_size = 8\nglobal_batch_size = 128\nseq_len = 4096\n"
          "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 4\n"
          "pipeline_parallel_degree = 4\npipeline_parallel_schedule = \"Interleaved1F1B\"\n"
          "pipeline_parallel_microbatch_size = 2\npipeline_parallel_layers_per_stage = 4\n"
          "[activation_checkpoint]\nmode = \"selective\"\n",
          "{\"parallel.dp\":8,\"parallel.zero\":2,\"parallel.zero_group\":4,"
          "\"schedule.kind\":\"interleaved\",\"schedule.microbatch_samples\":2,"
          "\"parallel.layers_per_chunk\":4,\"workload.samples_per_batch\":128}",
          "activation_checkpoint.mode:13");
}

TEST(deepspeed_file)
{
    // 1e8 numbers of 2 bytes are 190.73... MiB; 256 = 4 x 8 x replicas.
    check("ds.json",
          "{\n  \"train_batch_size\": 256,\n  \"train_micro_batch_size_per_gpu\": 4,\n"
          "  \"gradient_accumulation_steps\": 8,\n  \"bf16\": {\"enabled\": true},\n"
          "  \"zero_optimization\": {\n    \"stage\": 2,\n    \"overlap_comm\": true,\n"
          "    \"reduce_bucket_size\": 1e8,\n"
          "    \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}\n  },\n"
          "  \"steps_per_print\": 10\n}\n",
          "{\"parallel.zero\":2,\"parallel.dp\":8,\"schedule.microbatch_samples\":4,"
          "\"workload.samples_per_batch\":256,\"stack.hide_gradient_reduce\":true,"
          "\"stack.bucket_mib\":190.7348632,\"stack.name\":\"hf-trainer\","
          "\"memory.offload_states\":1.0}",
          "");
}

// deepspeed/runtime/zero/offload_config.py: a share of the states with ZeRO 3 alone, on the CPU or
// on NVMe, which is not modelled.
TEST(deepspeed_states_on_the_host)
{
    static const struct {
        const char *stage, *offload, *settings, *unread;
    } cases[] = {
        {"3", "\"device\": \"cpu\", \"ratio\": 0.25", "{\"memory.offload_states\":0.25}", ""},
        {"2", "\"device\": \"cpu\", \"ratio\": 0.25", "{\"memory.offload_states\":1.0}", ""},
        {"1", "\"device\": \"none\"", "{\"memory\":null}", ""},
        {"3", "\"device\": \"nvme\"", "{\"memory\":null}",
         "zero_optimization.offload_optimizer.device:1"},
        {"0", "\"device\": \"cpu\"", "{\"memory\":null}",
         "zero_optimization.offload_optimizer.device:1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check("ds.json",
              json_text("{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": %s, "
                        "\"offload_optimizer\": {%s}}}",
                        cases[i].stage, cases[i].offload),
              cases[i].settings, cases[i].unread);
    }
    check("acc.yaml",
          "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 2\n"
          "  offload_optimizer_device: cpu\n  offload_param_device: none\n",
          "{\"memory.offload_states\":1.0,\"parallel.zero\":2}", "");
}

// deepspeed/__init__.py: the mesh of data-parallel ranks and of those that exchange heads.
TEST(deepspeed_ranks_that_exchange_heads)
{
    check("ds.json",
          "{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 1, "
          "\"sequence_parallel_size\": 4, \"data_parallel_size\": 2}",
          "{\"parallel.cp\":4,\"parallel.dp\":2,\"stack.cp_overlap\":\"a2a\"}", "");
    check("ds.json", "{\"train_batch_size\": 8, \"sequence_parallel_size\": 1}",
          "{\"parallel.cp\":null,\"stack.cp_overlap\":null}", "");
}

// trl/accelerate_configs, and the arguments of accelerate that TRL takes beside its own.
TEST(trl_launches)
{
    static const struct {
        const char *arguments, *settings;
    } cases[] = {
        {"--num_processes 4 --accelerate_config zero3",
         "{\"parallel.dp\":4,\"parallel.zero\":3,\"stack.name\":\"trl-2025\"}"},
        {"--accelerate_config zero1", "{\"parallel.dp\":8,\"parallel.zero\":1}"},
        {"--accelerate_config zero2 --num_processes 16 --num_machines 2",
         "{\"parallel.dp\":16,\"parallel.zero\":2,\"cluster\":null}"},
        {"--accelerate_config fsdp2 --num_processes 2",
         "{\"parallel.dp\":2,\"parallel.zero\":3,\"stack.name\":\"fsdp-2024\"}"},
        {"--accelerate_config single_gpu", "{\"parallel.dp\":1,\"parallel.zero\":0}"},
        {"--num_processes 8", "{\"parallel.dp\":8,\"parallel.zero\":0}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check("sft.sh", json_text("trl sft --max_length 512 %s\n", cases[i].arguments),
              cases[i].settings, "");
    }
    check("sft.yaml", "max_length: 512\nnum_processes: 4\naccelerate_config: fsdp1\n",
          "{\"parallel.dp\":4,\"parallel.zero\":3}", "");
}

TEST(deepspeed_auto)
{
    check("auto.json",
          "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\", "
          "\"gradient_accumulation_steps\": \"auto\", \"zero_optimization\": {\"stage\": 3, "
          "\"stage3_prefetch_bucket_size\": \"auto\"}}",
          "{\"parallel.zero\":3,\"workload.samples_per_batch\":null,\"stack.hide_gradient_reduce\":"
          "true}",
          "");
    check("blocking.json",
          "{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 1, "
          "\"zero_optimization\": {\"stage\": 3, \"overlap_comm\": false}}",
          "{\"parallel.zero\":3,\"stack.hide_gradient_reduce\":false}", "");
    check("default.json",
          "{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 1, "
          "\"zero_optimization\": {\"stage\": 2}}",
          "{\"parallel.zero\":2,\"stack.hide_gradient_reduce\":false}", "");
}

TEST(trl_recipe)
{
    check("sft.yaml",
          "model_name_or_path: meta-llama/Llama-3.1-8B\n"
          "max_length: 4096\npacking: true\npacking_strategy: bfd\n"
          "per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n"
          "gradient_checkpointing: false\nbf16: true\nlearning_rate: 2.0e-5\n"
          "use_peft: true\nlora_r: 8\nlora_dropout: 0.0\nlora_target_modules: [q_proj, v_proj]\n"
          "use_liger_kernel: true\nload_in_4bit: false\n",
          "{\"workload.context\":4096,\"strategy.kind\":\"bfd\","
          "\"schedule.microbatch_samples\":2,\"memory.recompute\":\"none\",\"model.lora_rank\":8,"
          "\"model.lora_targets\":\"query-value\",\"model.lora_dropout\":false,"
          "\"model.layers\":32,\"parallel.zero\":0,\"stack.loss_chunks\":32,"
          "\"stack.fused_swiglu\":true,\"stack.unfused_norms\":false}",
          "");
}

// Chunks of Liger's loss by its own rule: V / h rounded up is 32 for Llama-3-8B (128256 and 4096)
// and 8 for LLaMA-7B (32000 and 4096), of whose shares of the rows the next power of two is taken.
TEST(trl_with_ligers_kernels)
{
    static const struct {
        const char *lines, *settings, *unread;
    } cases[] = {
        {"model_name_or_path: llama-7b\nmax_length: 2048\nuse_liger_kernel: true\n",
         "{\"stack.loss_chunks\":8,\"stack.fused_cross_entropy\":true,"
         "\"stack.unfused_norms\":false}",
         ""},
        // 3000 / 32 is 93.75: chunks of 128, of which 24 hold 3000.
        {"model_name_or_path: llama-3-8b\nmax_length: 3000\nuse_liger_kernel: true\n"
         "liger_kernel_config:\n  rms_norm: false\n",
         "{\"stack.loss_chunks\":24,\"stack.unfused_norms\":true,\"stack.fused_swiglu\":true}", ""},
        {"model_name_or_path: llama-3-8b\nuse_liger_kernel: true\n"
         "liger_kernel_config:\n  fused_linear_cross_entropy: false\n",
         "{\"stack.loss_chunks\":null,\"stack.fused_cross_entropy\":null}", ""},
        {"model_name_or_path: llama-3-8b\nloss_type: nll\nuse_liger_kernel: false\n",
         "{\"stack.loss_chunks\":null,\"stack.fused_swiglu\":null}", ""},
        {"model_name_or_path: llama-3-8b\nloss_type: chunked_nll\n", "{\"stack.loss_chunks\":null}",
         "loss_type:4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "per_device_train_batch_size: 1\npacking: true\n%s",
                 cases[i].lines);
        check("sft.yaml", text, cases[i].settings, cases[i].unread);
    }
}

// padding_free joins the samples of a micro-batch, however short: rows of max_length are others.
TEST(trl_without_padding)
{
    check("sft.yaml",
          "model_name_or_path: llama-3-8b\nmax_length: 4096\npacking: false\n"
          "padding_free: true\nper_device_train_batch_size: 2\n",
          "{\"strategy.kind\":\"packed\",\"schedule.microbatch_samples\":2}", "padding_free:4");
    check("sft.yaml",
          "model_name_or_path: llama-3-8b\nmax_length: 4096\npacking: true\npadding_free: true\n",
          "{\"strategy.kind\":\"bfd\"}", "");
}

// Megatron-LM's optimizer on the host: all of it where no fraction is stated.
TEST(megatron_states_on_the_host)
{
    static const char model[] = "--num-layers 4 --hidden-size 512 --num-attention-heads 8 "
                                "--seq-length 1024 --max-position-embeddings 1024 ";
    static const struct {
        const char *arguments, *settings;
    } cases[] = {
        {"--optimizer-cpu-offload", "{\"memory.offload_states\":1.0,\"stack.host_overlap\":null}"},
        {"--optimizer-cpu-offload --optimizer-offload-fraction 0.5 --overlap-cpu-optimizer-d2h-h2d",
         "{\"memory.offload_states\":0.5,\"stack.host_overlap\":true}"},
        {"--overlap-cpu-optimizer-d2h-h2d --optimizer-offload-fraction 0.5",
         "{\"memory.offload_states\":null,\"stack.host_overlap\":null}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "torchrun pretrain_gpt.py %s%s\n", model, cases[i].arguments);
        check("train.sh", text, cases[i].settings, "");
    }
}

// Bridge fills Megatron-Core's own configuration, of which a fraction that is not stated is 0.
TEST(bridge_states_on_the_host)
{
    static const char recipe[] = "ConfigContainer:\n  model:\n    num_layers: 4\n"
                                 "    tensor_model_parallel_size: 2\n"
                                 "  train:\n    micro_batch_size: 2\n  ddp:\n"
                                 "    grad_reduce_in_fp32: true\n  optimizer:\n"
                                 "    optimizer_cpu_offload: true\n"
                                 "    overlap_cpu_optimizer_d2h_h2d: true\n";
    char text[512];
    check("bridge.yaml", recipe, "{\"memory.offload_states\":null,\"stack.host_overlap\":null}",
          "");
    snprintf(text, sizeof text, "%s    optimizer_offload_fraction: 0.75\n", recipe);
    check("bridge.yaml", text, "{\"memory.offload_states\":0.75,\"stack.host_overlap\":true}", "");
}

// QLoRA: the names of trl/trainer/model_config.py and of transformers' BitsAndBytesConfig.
TEST(trl_in_4_bits)
{
    static const struct {
        const char *lines, *frozen;
    } cases[] = {
        {"load_in_4bit: true\n", "\"4bit\""},
        {"load_in_4bit: true\nbnb_4bit_quant_type: fp4\n", "\"4bit\""},
        {"load_in_4bit: true\nuse_bnb_nested_quant: true\nbnb_4bit_quant_type: nf4\n",
         "\"4bit-double\""},
        {"load_in_4bit: true\nbnb_4bit_use_double_quant: true\n", "\"4bit-double\""},
        {"load_in_4bit: false\nuse_bnb_nested_quant: true\n", "null"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        char settings[128];
        snprintf(text, sizeof text, "max_length: 512\nuse_peft: true\nlora_r: 8\n%s",
                 cases[i].lines);
        snprintf(settings, sizeof settings, "{\"model.frozen_weights\":%s}", cases[i].frozen);
        check("sft.yaml", text, settings, "");
    }
}

TEST(accelerate_and_trl_script)
{
    check("sft.sh",
          "accelerate launch --num_processes 8 trl/scripts/sft.py --model_name_or_path gpt2 "
          "--max_length 2048 --per_device_train_batch_size 1 --fsdp 'full_shard auto_wrap' "
          "--bf16 True --packing True --packing_strategy wrapped --report_to none",
          "{\"parallel.dp\":8,\"parallel.zero\":3,\"strategy.kind\":\"concat\","
          "\"memory.recompute\":\"full\",\"schedule.microbatches\":1,"
          "\"stack.name\":\"fsdp-2024\"}",
          "");
}

TEST(accelerate_file)
{
    check("acc.yaml",
          "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_machines: 2\n"
          "num_processes: 16\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\n"
          "  fsdp_reshard_after_forward: false\n  fsdp_offload_params: false\n"
          "  fsdp_backward_prefetch: BACKWARD_PRE\n"
          "parallelism_config:\n  parallelism_config_cp_size: 2\n",
          "{\"parallel.zero\":2,\"parallel.cp\":2,\"parallel.dp\":8,\"workload.context\":null,"
          "\"stack.cp_overlap\":\"blocking\",\"strategy\":null}",
          "fsdp_config.fsdp_backward_prefetch:10");
    // Ranks that exchange heads (DeepSpeed's Ulysses); without ranks that share a sequence there is
    // no exchange.
    check("acc.yaml",
          "distributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\n"
          "deepspeed_config:\n  zero_stage: 3\n"
          "parallelism_config:\n  parallelism_config_sp_size: 4\n"
          "  parallelism_config_sp_backend: deepspeed\n",
          "{\"parallel.zero\":3,\"parallel.cp\":4,\"parallel.dp\":2,\"stack.cp_overlap\":\"a2a\"}",
          "");
    check("acc.yaml", "distributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\n",
          "{\"parallel.dp\":8,\"stack.cp_overlap\":null}", "");
}

// torch.distributed.fsdp.ShardingStrategy: what is cut by which, and what each node has whole.
TEST(fsdp_strategies)
{
    static const struct {
        const char *strategy, *settings, *unread;
    } all[] = {
        {"FULL_SHARD", "{\"parallel.zero\":3}", ""},
        {"SHARD_GRAD_OP", "{\"parallel.zero\":2}", ""},
        {"NO_SHARD", "{\"parallel.zero\":0}", ""},
        {"HYBRID_SHARD", "{\"parallel.zero\":3}", "fsdp_config.fsdp_sharding_strategy:3"},
        {"HYBRID_SHARD_ZERO2", "{\"parallel.zero\":2}", "fsdp_config.fsdp_sharding_strategy:3"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: %s\n",
                 all[i].strategy);
        check("acc.yaml", text, all[i].settings, all[i].unread);
    }
    check("sft.yaml", "max_length: 128\nfsdp: no_shard auto_wrap\n", "{\"parallel.zero\":0}", "");
    check("sft.yaml",
          "max_length: 128\nfsdp: full_shard\ngradient_checkpointing: false\n"
          "fsdp_config: {activation_checkpointing: true}\n",
          "{\"memory.recompute\":\"full\"}", "");
    check("sft.yaml", "max_length: 128\nfsdp: hybrid_shard auto_wrap\n", "{\"parallel.zero\":3}",
          "fsdp:2");
}

TEST(nanotron_recipe)
{
    check("nano.yaml",
          "general: {project: debug, seed: 42}\n"
          "model:\n  ddp_bucket_cap_mb: 25\n  dtype: bfloat16\n  model_config:\n"
          "    hidden_act: silu\n    hidden_size: 64\n    intermediate_size: 256\n"
          "    num_attention_heads: 4\n    num_hidden_layers: 4\n    num_key_value_heads: 2\n"
          "    tie_word_embeddings: true\n    vocab_size: 256\n    is_llama_config: true\n"
          "    sliding_window_size: 128\n"
          "optimizer:\n  zero_stage: 1\n  accumulate_grad_in_fp32: true\n"
          "  optimizer_factory: {name: adamW, adam_eps: 1.0e-08}\n"
          "parallelism:\n  dp: 2\n  pp: 2\n  tp: 2\n  pp_engine: 1f1b\n  tp_mode: REDUCE_SCATTER\n"
          "  recompute_layer: true\n"
          "tokens:\n  batch_accumulation_per_replica: 4\n  micro_batch_size: 2\n"
          "  sequence_length: 256\n  train_steps: 15\n",
          "{\"model.layers\":4,\"model.kv_heads\":2,\"model.tied_embeddings\":true,"
          "\"parallel.dp\":2,\"parallel.pp\":2,\"parallel.tp\":2,\"parallel.zero\":1,"
          "\"parallel.sequence_parallel\":true,\"schedule.kind\":\"1f1b\","
          "\"schedule.microbatches\":4,\"memory.recompute\":\"full\","
          "\"stack.gradient_reduce_dtype\":\"fp32\",\"parallel.stage_layers\":\"nanotron\"}",
          "model.model_config.sliding_window_size:15");
}

TEST(tells_other_precisions)
{
    check("acc.yaml", "num_machines: 1\nnum_processes: 8\nmixed_precision: fp8\n", "{}",
          "mixed_precision:3");
    check("acc.yaml", "num_machines: 1\nnum_processes: 8\nmixed_precision: 'no'\n", "{}",
          "mixed_precision:3");
    check("nemo.yaml", "model:\n  encoder_seq_length: 128\ntrainer:\n  precision: 16\n", "{}",
          "trainer.precision:4");
    check("nemo.yaml", "model:\n  encoder_seq_length: 128\ntrainer:\n  precision: bf16-mixed\n",
          "{}", "");
    check("a.toml", "[training]\nmixed_precision_param = \"float32\"\n", "{}",
          "training.mixed_precision_param:2");
    check("nano.yaml", "model: {dtype: float32}\ntokens: {sequence_length: 128}\n", "{}",
          "model.dtype:1");
}

TEST(yaml_merges_and_refers)
{
    check("merge.yaml",
          "base: &base\n  tp: 4\n  pp: 1\n"
          "parallelism:\n  <<: *base\n  dp: 2\n  pp: 2\n"
          "tokens: {micro_batch_size: 1, sequence_length: 128}\n",
          "{\"parallel.tp\":4,\"parallel.pp\":2,\"parallel.dp\":2}", "base.tp:2 base.pp:3");
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

// A model, DeepSpeed's file, the trainer's and accelerate's make one scenario, whichever comes
// first: 128 samples are 2 x 4 for each of 16 processes.
TEST(several_files_in_any_order)
{
    static const char *const orders[][4] = {
        {"config.json", "ds.json", "sft.yaml", "acc.yaml"},
        {"acc.yaml", "sft.yaml", "ds.json", "config.json"},
        {"sft.yaml", "config.json", "acc.yaml", "ds.json"},
    };
    write_file("config.json", "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, "
                              "\"hidden_size\": 64, \"intermediate_size\": 128, "
                              "\"num_attention_heads\": 4, \"vocab_size\": 128}");
    write_file("ds.json", "{\"train_micro_batch_size_per_gpu\": \"auto\", "
                          "\"zero_optimization\": {\"stage\": 3}}");
    write_file("sft.yaml", "max_length: 2048\npacking: true\nper_device_train_batch_size: 2\n"
                           "gradient_accumulation_steps: 4\n");
    write_file("acc.yaml", "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 16\n");
    for (size_t i = 0; i < 3; i++) {
        json_auto_t *scenario = NULL;
        json_auto_t *unread = NULL;
        json_auto_t *notes = NULL;
        sp_error err = {0};
        assert_int_equal(
            framework_import_files(orders[i], 4, NULL, NULL, 0, &scenario, &unread, &notes, &err),
            SP_OK);
        assert_int_equal(json_array_size(unread), 0);
        assert_int_equal(framework_get_int(scenario, "parallel.zero", 0), 3);
        assert_int_equal(framework_get_int(scenario, "parallel.dp", 0), 16);
        assert_int_equal(framework_get_int(scenario, "workload.context", 0), 2048);
        assert_int_equal(framework_get_int(scenario, "schedule.microbatches", 0), 4);
        assert_int_equal(framework_get_int(scenario, "schedule.microbatch_samples", 0), 2);
        assert_string_equal(json_string_value(framework_get(scenario, "strategy.kind")), "bfd");
        assert_string_equal(json_string_value(json_object_get(scenario, "model")), "config.json");
    }
}

// Reads files without more and checks settings, and "file:line" of what is not understood with the
// notes that begin with a file's name.
static void check_files(const char *const *files, int count, const char *settings, const char *told)
{
    json_auto_t *scenario = NULL;
    json_auto_t *listed = NULL;
    json_auto_t *notes = NULL;
    sp_error err = {0};
    if (framework_import_files(files, count, NULL, NULL, 0, &scenario, &listed, &notes, &err) !=
        SP_OK) {
        fail_msg("%s: %s", files[0], err.message[0]);
    }
    check_settings(files[0], scenario, settings);
    char all[1024] = "";
    size_t i;
    json_t *item;
    json_array_foreach (listed, i, item) {
        sp_append(all, sizeof all, "%s%s:%lld", all[0] != '\0' ? " " : "",
                  json_string_value(json_object_get(item, "file")),
                  (long long)json_integer_value(json_object_get(item, "line")));
    }
    json_array_foreach (notes, i, item) {
        const char *note = json_string_value(item);
        for (int f = 0; f < count; f++) {
            if (strncmp(note, files[f], strlen(files[f])) == 0) {
                sp_append(all, sizeof all, "%s%s", all[0] != '\0' ? " " : "", note);
            }
        }
    }
    assert_string_equal(all, told);
}

// Files of one framework, in both orders: what one states holds whatever the other has by default,
// and of what both state the arguments of the script whose --config names the file do (TrlParser of
// trl/scripts/utils.py takes the file's as defaults of the arguments).
TEST(a_script_and_the_file_of_its_config)
{
    static const struct {
        const char *script, *recipe, *settings;
    } cases[] = {
        {"trl sft --config a.yaml --packing --max_length 16384\n",
         "gradient_accumulation_steps: 4\nmax_length: 8192\n",
         "{\"schedule.microbatches\":4,\"strategy.kind\":\"bfd\",\"workload.context\":16384}"},
        {"trl sft --config recipes/a.yaml --gradient_accumulation_steps 2 --max_length 512\n",
         "gradient_accumulation_steps: 4\npacking: true\n",
         "{\"schedule.microbatches\":2,\"strategy.kind\":\"bfd\",\"workload.context\":512}"},
        {"trl sft --config a.yaml --packing_strategy wrapped --lora_r 32\n",
         "packing: true\nuse_peft: true\nlora_r: 8\ngradient_checkpointing: false\n",
         "{\"strategy.kind\":\"concat\",\"model.lora_rank\":32,\"memory.recompute\":\"none\","
         "\"workload.context\":1024,\"schedule.microbatches\":1}"},
        {"accelerate launch --num_processes 4 sft.py --config a.yaml --fsdp full_shard\n",
         "per_device_train_batch_size: 2\nmax_length: 2048\npacking: false\n",
         "{\"parallel.dp\":4,\"parallel.zero\":3,\"schedule.microbatch_samples\":2,"
         "\"workload.context\":2048,\"strategy.kind\":\"padded\"}"},
    };
    static const char *const orders[][2] = {{"a.sh", "a.yaml"}, {"a.yaml", "a.sh"}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        write_file("a.sh", cases[c].script);
        write_file("a.yaml", cases[c].recipe);
        for (int o = 0; o < 2; o++) {
            check_files(orders[o], 2, cases[c].settings, "");
        }
    }
}

// accelerate's flags are stronger than its file, which is another framework's.
TEST(a_launcher_and_the_file_of_its_config)
{
    static const char *const orders[][2] = {{"b.sh", "b.yaml"}, {"b.yaml", "b.sh"}};
    write_file("b.sh", "accelerate launch --config_file b.yaml --num_processes 4 sft.py "
                       "--max_length 512\n");
    write_file("b.yaml", "distributed_type: FSDP\nnum_machines: 1\nnum_processes: 8\n"
                         "fsdp_config:\n  fsdp_version: 2\n");
    for (int o = 0; o < 2; o++) {
        check_files(orders[o], 2,
                    "{\"parallel.dp\":4,\"parallel.zero\":3,\"stack.name\":\"fsdp-2024\"}", "");
    }
}

// A line that is not known is told with the file that has it.
TEST(files_of_one_framework_keep_their_names)
{
    static const char *const files[] = {"c.yaml", "c.sh"};
    write_file("c.yaml", "max_length: 512\nmax_lenght: 1\n");
    write_file("c.sh", "trl sft --config d.yaml \\\n --max_lenght 2 --packing\n");
    check_files(files, 2, "{\"strategy.kind\":\"bfd\"}",
                "c.yaml:2 c.sh:2 c.sh:1: config: the file that it names is read where it is given, "
                "too");
}

// What DeepSpeed takes is the product alone; what is not stated it makes of the others.
TEST(batches_that_deepspeed_refuses)
{
    static const char *const files[] = {"ds.json"};
    static const struct {
        const char *batch, *more, *dp, *wrong, *settings;
    } cases[] = {
        {"256", "\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 8", "4",
         "is not train_micro_batch_size_per_gpu 4 x gradient_accumulation_steps 8 x data-parallel "
         "ranks 4, which is 128",
         NULL},
        {"256", "\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 8", "8",
         NULL, "{\"workload.samples_per_batch\":256,\"schedule.microbatch_samples\":4}"},
        {"256", "\"train_micro_batch_size_per_gpu\": 3", "8",
         "is no multiple of train_micro_batch_size_per_gpu 3 x data-parallel ranks 8, which is 24",
         NULL},
        {"256", "\"gradient_accumulation_steps\": 8", "8", NULL,
         "{\"schedule.microbatch_samples\":4}"},
        {"null", "\"train_micro_batch_size_per_gpu\": 3", "8", NULL,
         "{\"schedule.microbatch_samples\":3,\"schedule.microbatches\":1}"},
        {"\"auto\"", "\"train_micro_batch_size_per_gpu\": 3", "8", NULL,
         "{\"schedule.microbatch_samples\":3,\"schedule.microbatches\":1}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char dp[32];
        const char *overrides[] = {dp};
        json_auto_t *scenario = NULL;
        json_auto_t *unread = NULL;
        json_auto_t *notes = NULL;
        sp_error err = {0};
        snprintf(dp, sizeof dp, "parallel.dp=%s", cases[i].dp);
        write_file("ds.json",
                   json_text("{\"train_batch_size\": %s, %s}", cases[i].batch, cases[i].more));
        sp_status status =
            framework_import_files(files, 1, NULL, overrides, 1, &scenario, &unread, &notes, &err);
        if (cases[i].wrong != NULL) {
            assert_string_equal(err.message[0],
                                json_text("ds.json: train_batch_size %s %s: DeepSpeed refuses it",
                                          cases[i].batch, cases[i].wrong));
        } else {
            assert_int_equal(status, SP_OK);
            check_settings("ds.json", scenario, cases[i].settings);
        }
    }
}

// "auto" is what the trainer's file says, and where there is none what TrainingArguments have by
// default (8 rows, 1 micro-batch). A bucket is hidden x hidden numbers of 2 bytes: 4096 x 4096 x 2
// are 32 MiB.
TEST(deepspeed_auto_is_the_trainers)
{
    static const char *const files[] = {"auto.json", "auto.yaml"};
    write_file("auto.json", "{\"train_batch_size\": \"auto\", "
                            "\"train_micro_batch_size_per_gpu\": \"auto\", "
                            "\"gradient_accumulation_steps\": \"auto\", \"zero_optimization\": "
                            "{\"stage\": 2, \"reduce_bucket_size\": \"auto\"}}");
    write_file("auto.yaml", "model_name_or_path: llama-3-8b\nper_device_train_batch_size: 2\n"
                            "gradient_accumulation_steps: 4\n");
    check_files(
        files, 1, "{\"schedule.microbatch_samples\":8,\"schedule.microbatches\":1}",
        "auto.json: \"auto\" of train_batch_size, train_micro_batch_size_per_gpu, "
        "gradient_accumulation_steps is in the trainer's arguments: "
        "per_device_train_batch_size 8 and gradient_accumulation_steps 1 are assumed, as by "
        "default (--set schedule.microbatch_samples=N, --set schedule.microbatches=N)");
    check_files(files, 2,
                "{\"schedule.microbatch_samples\":2,\"stack.bucket_mib\":32.0,"
                "\"schedule.microbatches\":4}",
                "");
}

// A sentence with file and line for each.
TEST(errors_say_where)
{
    check_error("a.sh", "torchrun p.py \\\n --tensor-model-parallel-size four --bf16\n",
                "a.sh:2: tensor-model-parallel-size: expected a whole number of at least 0, got "
                "\"four\"");
    check_error("a.sh", "A=\"--num-layers 2\n", "a.sh:1: a double quote that is not closed");
    check_error("a.sh", "\nA=(--num-layers 2\n", "a.sh:2: an array whose ')' is missing");
    check_error("a.sh", "X=1\ncat <<EOF\nx\n", "a.sh:2: lines after '<<' whose end is missing");
    check_error("a.sh", "echo $(date\n", "a.sh:1: '$(' without ')'");
    check_error("a.sh", "ls -l\n", "a.sh: no command with arguments of a framework that is read");
    check_error("a.toml", "[training]\nseq_len = 12x\n",
                "a.toml:2:11: expected a number, a date, true, false or a string in quotes");
    check_error("a.toml", "[training]\nseq_len = \"long\"\n",
                "a.toml:2: training.seq_len: expected a whole number of at least 0, got \"long\"");
    check_error("a.yaml", "tokens:\n  micro_batch_size: [1\n",
                "a.yaml:3:1: did not find expected ',' or ']'");
    check_error("a.yaml", "- a\n- b\n",
                "a.yaml:1: expected keys with values, as a recipe has them");
    check_error("a.yaml", "colour: red\n", "a.yaml: no key of a framework that is read");
    check_error("a.json", "{\n  \"train_batch_size\": 3,\n}",
                "a.json:3:1: string or '}' expected "
                "near '}'");
    check_error("a.sh",
                "torchrun t.py --num-layers 2 --hidden-size 8 --num-attention-heads 1 --bf16 "
                "--num-experts 8 --moe-token-dispatcher-type flex "
                "--moe-flex-dispatcher-backend uccl_ep",
                "a.sh:1: moe-flex-dispatcher-backend: expected deepep or hybridep, got "
                "\"uccl_ep\"");
    check_error("a.sh",
                "torchrun p.py --bf16 --num-layers 2 --use-megatron-fsdp "
                "--data-parallel-sharding-strategy optim_gradients",
                "a.sh:1: data-parallel-sharding-strategy: expected no_shard, optim, optim_grads or "
                "optim_grads_params, got \"optim_gradients\"");
    check_error("a.sh", "torchrun p.py --bf16 --num-layers 2 --recompute-granularity",
                "a.sh:1: recompute-granularity: expected a text, got true");
    check_error("a.sh",
                "torchrun --nproc_per_node 8 p.py --num-layers 2 --tensor-model-parallel-size 3 "
                "--bf16",
                "a.sh: 8 GPUs are no multiple of tp x cp x pp, which is 3");
    check_error("a.sh",
                "torchrun p.py --bf16 --num-layers 3 --num-experts 4 --moe-layer-freq "
                "[1]*2",
                "a.sh:1: moe-layer-freq: expected N, or a list such as [0]*3+[1]*58 of as many as "
                "layers, 3");
}

// A list of one that has a name of its own is that; what is no module is said, and nothing is read.
TEST(modules_of_recomputation)
{
    check("a.sh",
          "torchrun p.py --num-layers 2 --bf16 --recompute-granularity selective "
          "--recompute-modules mlp layernorm",
          "{\"memory.recompute\":[\"layernorm\",\"mlp\"]}", "");
    check("a.sh",
          "torchrun p.py --num-layers 2 --bf16 --recompute-granularity selective "
          "--recompute-modules core_attn",
          "{\"memory.recompute\":\"attention\"}", "");
    check("a.yaml",
          "model:\n  _target_: megatron.bridge.GPTModelProvider\n  num_layers: 2\n"
          "  recompute_granularity: selective\n  recompute_modules: [moe_act, shared_experts]\n",
          "{\"memory.recompute\":[\"moe_act\",\"shared_experts\"]}", "");
    check("a.sh",
          "torchrun p.py --num-layers 2 --bf16 --recompute-granularity selective "
          "--recompute-modules mlp gdn",
          "{\"memory.recompute\":null}", "recompute-modules:1");
}

// Modules that no layer of a dense model has run nothing again: they go where the whole model is
// known.
TEST(modules_that_no_layer_has)
{
    static const char script[] =
        "torchrun --nproc_per_node 8 p.py --num-layers 2 --hidden-size 512 --ffn-hidden-size 1024 "
        "--num-attention-heads 8 --seq-length 1024 --max-position-embeddings 1024 --bf16 "
        "--swiglu --micro-batch-size 1 --global-batch-size 8 --vocab-size 1024 "
        "--make-vocab-size-divisible-by 1 --recompute-granularity selective --recompute-modules ";
    check("a.sh", json_text("%s%s", script, "core_attn mlp layernorm moe_act"),
          "{\"memory.recompute\":[\"core_attn\",\"mlp\"]}", "");
    check("a.sh", json_text("%s%s", script, "core_attn layernorm"),
          "{\"memory.recompute\":\"attention\"}", "");
    check("a.sh", json_text("%s%s", script, "layernorm"), "{\"memory.recompute\":\"none\"}", "");
}

// Numbers that no job has are refused by name later; until then nothing is divided by them, and no
// product of them is more than an integer holds.
TEST(numbers_of_no_job)
{
    check("a.sh",
          "torchrun p.py --num-layers 2 --bf16 --pipeline-model-parallel-size 0 "
          "--recompute-granularity full --recompute-method block",
          "{\"parallel.pp\":0,\"memory.recompute\":\"full\"}", "recompute-method:1");
    check("a.sh",
          "torchrun --nproc_per_node 8 --nnodes 1000000000000000 p.py --num-layers 2 --bf16 "
          "--tensor-model-parallel-size 1000000000000 --context-parallel-size 1000000000000 "
          "--micro-batch-size 1000000000000 --vocab-size 100 "
          "--make-vocab-size-divisible-by 1000000000000",
          "{\"parallel.tp\":1000000000000,\"parallel.dp\":null,\"model.vocab\":null}", "");
    check_error("a.toml", "[training]\nglobal_batch_size = 2.5\n",
                "a.toml:2: training.global_batch_size: expected a whole number of at least -1, got "
                "2.5");
    check_error("a.toml", "[parallelism]\ndata_parallel_shard_degree = 1e300\n",
                "a.toml:2: parallelism.data_parallel_shard_degree: expected a whole number of at "
                "least -1, got 1e300");
    check_error("a.json", "{\"zero_optimization\": {\"mics_shard_size\": 2.5}}",
                "a.json:1: zero_optimization.mics_shard_size: expected a whole number of at least "
                "-1, got 2.5");
}

// Megatron-LM pads a tokenizer's entries to a multiple of make-vocab-size-divisible-by, 128, times
// tp (training/tokenizer). GPT-2 has 50257 of them, Llama 2 32000 (its config.json), and a name
// that is not known states nothing.
TEST(tokenizers_that_are_known_by_name_state_the_vocabulary)
{
#define LAUNCHED "torchrun p.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --bf16 "
    check("a.sh", LAUNCHED "--tokenizer-type GPT2BPETokenizer", "{\"model.vocab\": 50304}", "");
    check("a.sh", LAUNCHED "--tokenizer-type GPT2BPETokenizer --tensor-model-parallel-size 2",
          "{\"model.vocab\": 50432}", "");
    check("a.sh", LAUNCHED "--tokenizer-model /models/Llama-2-7B/tokenizer.model",
          "{\"model.vocab\": 32000}", "");
    check("a.sh", LAUNCHED "--tokenizer-type Llama2Tokenizer --tokenizer-model /m/t.model",
          "{\"model.vocab\": 32000}", "");
    check("a.sh", LAUNCHED "--tokenizer-type GPT2BPETokenizer --vocab-size 1024",
          "{\"model.vocab\": 1024}", "");
    check("a.sh", LAUNCHED "--tokenizer-model /m/t.model", "{\"model.vocab\": null}", "");
}

static const char *note_of(const json_t *notes, const char *begin)
{
    size_t i;
    json_t *note;
    json_array_foreach ((json_t *)notes, i, note) {
        if (strncmp(json_string_value(note), begin, strlen(begin)) == 0) {
            return json_string_value(note);
        }
    }
    return NULL;
}

// A script without a vocabulary is read all the same: that of a built-in model of the shape, of
// GPT-2 (GELU) or of Llama 3, padded once to a multiple of 128 x tp, is assumed and told with the
// weights of 10,000 entries: embedding and head of hidden x 2 bytes each.
TEST(a_vocabulary_that_no_file_states_is_assumed)
{
#define SHAPED(layers, hidden, heads, ffn, more)                                     \
    "torchrun --nproc_per_node 8 p.py --bf16 --seq-length 4096 --num-layers " layers \
    " --hidden-size " hidden " --num-attention-heads " heads " --ffn-hidden-size " ffn " " more
    static const char gated[] = "--swiglu --untie-embeddings-and-output-weights "
                                "--tokenizer-type HuggingFaceTokenizer --tokenizer-model $T";
    static const struct {
        const char *text, *more, *set, *told;
        int vocab;
    } cases[] = {
        {SHAPED("32", "4096", "32", "14336", "--group-query-attention --num-query-groups 8 "),
         gated, NULL, "128256 entries are assumed, as of llama-3-8b, which has this shape", 128256},
        {SHAPED("32", "4096", "32", "14336",
                "--group-query-attention --num-query-groups 8 --tensor-model-parallel-size 4 "),
         gated, NULL, "each 10000 more are 156 MiB", 128512},
        {SHAPED("96", "12288", "96", "49152", ""), "", NULL, "50304 entries are assumed", 50304},
        {SHAPED("4", "1024", "8", "4096", ""), "", NULL, "as of GPT-2 (", 50304},
        {SHAPED("4", "1024", "8", "4096", ""), gated, NULL, "as of Llama 3 (", 128256},
        {SHAPED("4", "1024", "8", "4096", ""), gated, "model.vocab=777", NULL, 777},
        {SHAPED("4", "1024", "8", "4096", ""), "--tokenizer-type NullTokenizer --vocab-size 512",
         NULL, NULL, 640},
        {SHAPED("4", "1024", "8", "4096", ""), "--tokenizer-model /gpt-175b/merges", NULL, NULL,
         50304},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static const char *const files[] = {"a.sh"};
        char text[512];
        json_auto_t *scenario = NULL;
        json_auto_t *unread = NULL;
        json_auto_t *notes = NULL;
        sp_error err = {0};
        snprintf(text, sizeof text, "%s%s\n", cases[i].text, cases[i].more);
        write_file("a.sh", text);
        assert_int_equal(framework_import_files(files, 1, NULL, &cases[i].set, cases[i].set != NULL,
                                                &scenario, &unread, &notes, &err),
                         SP_OK);
        assert_int_equal(framework_get_int(scenario, "model.vocab", 0), cases[i].vocab);
        const char *note = note_of(notes, "no file says the vocabulary");
        assert_int_equal(note != NULL, cases[i].told != NULL);
        must_hold(note == NULL || strstr(note, cases[i].told) != NULL, "%s: %s", cases[i].told,
                  note);
    }
}

// Nodes that are stated beside a script are its nodes: 8 of 8 GPUs over tp 2 are 32 replicas.
TEST(nodes_beside_a_script)
{
    static const char *const nnodes[] = {"", "--nnodes 1", "--nnodes $UNKNOWN"};
    for (size_t i = 0; i < sizeof nnodes / sizeof nnodes[0]; i++) {
        static const char *const files[] = {"a.sh"};
        static const char *const set[] = {"nodes=8"};
        char text[256];
        json_auto_t *scenario = NULL;
        json_auto_t *unread = NULL;
        json_auto_t *notes = NULL;
        sp_error err = {0};
        snprintf(text, sizeof text,
                 "torchrun --nproc_per_node 8 %s p.py --bf16 --num-layers 2 "
                 "--tensor-model-parallel-size 2\n",
                 nnodes[i]);
        write_file("a.sh", text);
        assert_int_equal(
            framework_import_files(files, 1, NULL, set, 1, &scenario, &unread, &notes, &err),
            SP_OK);
        assert_int_equal(framework_get_int(scenario, "parallel.dp", 0), 32);
        assert_null(note_of(notes, "how many GPUs"));
    }
}

// A model that is stated beside files is the shape: their adapters stay, unless it is stated
// otherwise.
TEST(adapters_of_a_file_stay_beside_a_stated_model)
{
    static const char *const files[] = {"q_sft.yaml", "q_acc.yaml"};
    static const struct {
        const char *set[2], *settings;
    } cases[] = {
        {{"model=llama-3-8b"},
         "{\"model.layers\":32,\"model.lora_rank\":8,\"model.lora_targets\":\"attention\","
         "\"model.lora_dropout\":false,\"model.frozen_weights\":\"4bit-double\"}"},
        {{"model=llama-3-8b", "model.lora_rank=32"},
         "{\"model.lora_rank\":32,\"model.frozen_weights\":\"4bit-double\"}"},
        {{"model={\"layers\": 2, \"lora_rank\": 4}"},
         "{\"model.layers\":2,\"model.lora_rank\":4,\"model.frozen_weights\":\"4bit-double\"}"},
        {{"cluster=h100-8"}, "{\"model.layers\":null,\"model.lora_rank\":8}"},
    };
    write_file("q_sft.yaml",
               "model_name_or_path: own/model\nmax_length: 512\nuse_peft: true\nlora_r: 8\n"
               "lora_dropout: 0.0\nlora_target_modules: [q_proj, k_proj, v_proj, o_proj]\n"
               "load_in_4bit: true\nuse_bnb_nested_quant: true\n");
    write_file("q_acc.yaml", "distributed_type: MULTI_GPU\nnum_processes: 8\n");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_auto_t *scenario = NULL;
        json_auto_t *unread = NULL;
        json_auto_t *notes = NULL;
        sp_error err = {0};
        assert_int_equal(framework_import_files(files, 2, NULL, cases[i].set,
                                                cases[i].set[1] != NULL ? 2 : 1, &scenario, &unread,
                                                &notes, &err),
                         SP_OK);
        check_settings(cases[i].set[0], scenario, cases[i].settings);
    }
}

// Rows that ranks share are multiples of 4 for 4 that exchange heads, of 8 in a ring; rows that are
// whole are multiples anyway, and more padding than is needed is told.
TEST(multiples_of_rows_are_held_against_the_ranks)
{
    static const char *const files[] = {"m_sft.yaml", "m_acc.yaml"};
    static const struct {
        const char *sft, *ranks, *told; // NULL: nothing
    } cases[] = {
        {"pad_to_multiple_of: 4\n", "sp_size: 4", NULL},
        {"", "sp_size: 4", "ranks that share a row need multiples of 4"},
        {"pad_to_multiple_of: 4\n", "cp_size: 4", "ranks that share a row need multiples of 8"},
        {"pad_to_multiple_of: 8\n", "cp_size: 4", NULL},
        {"packing_strategy: wrapped\n", "cp_size: 4", NULL},
        {"pad_to_multiple_of: 64\n", "cp_size: 1", "up to 63 tokens of padding"},
        {"", "cp_size: 1", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        json_auto_t *scenario = NULL;
        json_auto_t *unread = NULL;
        json_auto_t *notes = NULL;
        sp_error err = {0};
        snprintf(text, sizeof text, "max_length: 512\npacking: true\n%s", cases[i].sft);
        write_file("m_sft.yaml", text);
        snprintf(text, sizeof text,
                 "distributed_type: DEEPSPEED\nnum_processes: 8\nparallelism_config:\n"
                 "  parallelism_config_%s\n",
                 cases[i].ranks);
        write_file("m_acc.yaml", text);
        assert_int_equal(
            framework_import_files(files, 2, NULL, NULL, 0, &scenario, &unread, &notes, &err),
            SP_OK);
        assert_int_equal(json_array_size(unread), 0);
        const char *note = note_of(notes, "pad_to_multiple_of is ");
        assert_int_equal(note != NULL, cases[i].told != NULL);
        assert_true(note == NULL || strstr(note, cases[i].told) != NULL);
    }
}

// A text that grows by itself ends.
TEST(bounds_what_files_make)
{
    char script[1024] = "A=xxxxxxxxxxxxxxxx\n";
    for (int i = 0; i < 20; i++) {
        strcat(script, "A=\"$A$A\"\n");
    }
    // After line k they are 16 (2^k - 1) in all: more than 2^20 from k = 17 on.
    check_error("a.sh", script, "a.sh:17: variables make more than a million characters of it");
    char yaml[1024] = "a0: &a0 [x, x]\n";
    for (int i = 1; i < 30; i++) {
        char line[64];
        snprintf(line, sizeof line, "a%d: &a%d [*a%d, *a%d]\n", i, i, i - 1, i - 1);
        strcat(yaml, line);
    }
    json_t *scenario = NULL;
    json_auto_t *listed = NULL;
    json_auto_t *notes = NULL;
    sp_error err = {0};
    assert_int_equal(
        framework_import_text("a.yaml", yaml, strlen(yaml), NULL, &scenario, &listed, &notes, &err),
        SP_ERR_LIMIT);
}
