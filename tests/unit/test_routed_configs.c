// Published config.json files of models with experts: their exact numbers of parameters (those of
// the weight files on their model pages), which layers have experts and what each attends to.
#include "sim/model/model.h"
#include "tests/support/test_main.h"

static json_t *config_of(const char *quoted)
{
    char text[1600];
    json_t *root = NULL;
    snprintf(text, sizeof text, "%s", quoted);
    for (char *at = text; *at != '\0'; at++) {
        *at = *at == '\'' ? '"' : *at;
    }
    must_succeed(sp_json_read_text(text, strlen(text), "config.json", &root, ERR));
    return root;
}

static sp_model read_config(const char *quoted)
{
    sp_model model;
    json_t *root = config_of(quoted);
    must_succeed(sp_model_from_hf(root, "config.json", &model, ERR));
    json_decref(root);
    return model;
}

#define SHAPE(hidden, layers, heads, kv, vocab)                                               \
    "'hidden_size':" #hidden ",'num_hidden_layers':" #layers ",'num_attention_heads':" #heads \
    ",'num_key_value_heads':" #kv ",'vocab_size':" #vocab                                     \
    ",'tie_word_embeddings':false,'rms_norm_eps':1e-6"                                        \
    ",'rope_theta':10000,'torch_dtype':'bfloat16','router_aux_loss_coef':0.001"               \
    ",'hidden_act':'silu','attention_dropout':0.0,'initializer_range':0.02"

static const char mixtral_8x7b[] = "{'model_type':'mixtral'," SHAPE(
    4096, 32, 32, 8,
    32000) ",'intermediate_size':14336,'num_local_experts':8,'num_experts_per_tok':2,"
           "'output_router_logits':false,'sliding_window':null}";
static const char mixtral_8x22b[] = "{'model_type':'mixtral'," SHAPE(
    6144, 56, 48, 8,
    32768) ",'intermediate_size':16384,'num_local_experts':8,'num_experts_per_tok':2}";
static const char qwen2_57b[] = "{'model_type':'qwen2_moe'," SHAPE(
    3584, 28, 28, 4,
    151936) ",'intermediate_size':18944,'moe_intermediate_size':2560,"
            "'shared_expert_intermediate_size':20480,'num_experts':64,'num_experts_per_tok':8,"
            "'decoder_sparse_step':1,'norm_topk_prob':false,'use_sliding_window':false,"
            "'sliding_window':65536,'max_window_layers':28}";
static const char qwen3_30b[] = "{'model_type':'qwen3_moe'," SHAPE(
    2048, 48, 32, 4,
    151936) ",'head_dim':128,'attention_bias':false,'intermediate_size':6144,"
            "'moe_intermediate_size':768,'num_experts':128,'num_experts_per_tok':8,"
            "'decoder_sparse_step':1,'mlp_only_layers':[],'norm_topk_prob':true,"
            "'use_sliding_window':false,'sliding_window':null,'max_window_layers':48}";
static const char qwen3_235b[] = "{'model_type':'qwen3_moe'," SHAPE(
    4096, 94, 64, 4,
    151936) ",'head_dim':128,'attention_bias':false,'intermediate_size':12288,"
            "'moe_intermediate_size':1536,'num_experts':128,'num_experts_per_tok':8,"
            "'decoder_sparse_step':1,'mlp_only_layers':[],'norm_topk_prob':true}";
static const char glm_45[] = "{'model_type':'glm4_moe'," SHAPE(
    5120, 92, 96, 8,
    151552) ",'head_dim':128,'attention_bias':true,'use_qk_norm':true,'partial_rotary_factor':0.5,"
            "'intermediate_size':12288,'moe_intermediate_size':1536,'n_routed_experts':160,"
            "'n_shared_experts':1,'num_experts_per_tok':8,'first_k_dense_replace':3,'n_group':1,"
            "'topk_group':1,'norm_topk_prob':true,'routed_scaling_factor':2.5,"
            "'num_nextn_predict_layers':1}";
static const char glm_45_air[] = "{'model_type':'glm4_moe'," SHAPE(
    4096, 46, 96, 8,
    151552) ",'head_dim':128,'attention_bias':true,'use_qk_norm':false,'partial_rotary_factor':0.5,"
            "'intermediate_size':10944,'moe_intermediate_size':1408,'n_routed_experts':128,"
            "'n_shared_experts':1,'num_experts_per_tok':8,'first_k_dense_replace':1,"
            "'num_nextn_predict_layers':1}";
#define GPT_OSS(layers, experts)                                                            \
    "{'model_type':'gpt_oss'," SHAPE(                                                       \
        2880, layers, 64, 8,                                                                \
        201088) ",'head_dim':64,'attention_bias':true,'intermediate_size':2880,'num_local_" \
                "experts':" #experts                                                        \
                ",'num_experts_per_tok':4,'experts_per_token':4,'sliding_window':128,"      \
                "'swiglu_limit':7.0,'initial_context_length':4096}"
static const char gpt_oss_20b[] = GPT_OSS(24, 32);
static const char gpt_oss_120b[] = GPT_OSS(36, 128);
#define LLAMA4(experts, step, norms)                                                       \
    "{'model_type':'llama4','vision_config':{'model_type':'llama4_vision_model'},"         \
    "'text_config':{'model_type':'llama4_text'," SHAPE(                                    \
        5120, 48, 40, 8,                                                                   \
        202048) ",'head_dim':128,'attention_bias':false,'intermediate_size':8192,"         \
                "'intermediate_size_mlp':16384,'num_local_experts':" #experts              \
                ",'num_experts_per_tok':1,"                                                \
                "'interleave_moe_layer_step':" #step                                       \
                ",'attention_chunk_size':8192,'no_rope_layers':[],"                        \
                "'use_qk_norm':" #norms ",'attn_temperature_tuning':4,'floor_scale':8192," \
                "'attn_scale':0.1,'for_llm_compression':false,'router_jitter_noise':0.0}}"
static const char scout[] = LLAMA4(16, 1, true);
static const char maverick[] = LLAMA4(128, 2, false);
static const char olmoe[] = "{'model_type':'olmoe'," SHAPE(
    2048, 16, 16, 16, 50304) ",'attention_bias':false,'intermediate_size':1024,'num_experts':64,'"
                             "num_experts_per_tok':8,"
                             "'norm_topk_prob':false,'clip_qkv':null}";
static const char phi_35[] = "{'model_type':'phimoe'," SHAPE(
    4096, 32, 32, 8,
    32064) ",'attention_bias':true,'lm_head_bias':true,'intermediate_size':6400,"
           "'num_local_experts':16,'num_experts_per_tok':2,'sliding_window':131072,"
           "'input_jitter_noise':0.01,'router_jitter_noise':0.01,'hidden_dropout':0.0,"
           "'original_max_position_embeddings':4096}";

static const struct {
    const char *config;
    int64_t parameters;
    const char *keys; // that a warning names
} published[] = {
    {mixtral_8x7b, 46702792704, ""},
    {mixtral_8x22b, 140630071296, ""},
    {qwen2_57b, 57408658944, ""},
    {qwen3_30b, 30532122624, ""},
    {qwen3_235b, 235093634560, ""},
    {glm_45, 352797814784, ""}, // 358,337,791,296 with the layer that predicts a further token
    {glm_45_air, 106852245504, ""},
    {gpt_oss_20b, 20914757184, ""},
    {gpt_oss_120b, 116829156672, ""},
    {scout, 107769861120, "use_qk_norm"},
    {maverick, 400711848960, ""},
    {olmoe, 6919161856, ""},
    {phi_35, 41873153344, ""},
};

TEST(parameters_of_published_models)
{
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        sp_model model = read_config(published[i].config);
        assert_int_equal(sp_model_parameters(&model), published[i].parameters);
        assert_string_equal(model.ignored_keys, published[i].keys);
        assert_string_equal(model.ignored_dropout, "");
        // The document of the model says all of it.
        json_t *document = sp_model_to_json(&model);
        sp_object object;
        sp_model again;
        sp_error_clear(ERR);
        sp_object_begin(&object, document, "s.json", "model", ERR);
        sp_model_from_object(&object, &again);
        json_decref(document);
        assert_int_equal(ERR->count, 0);
        assert_int_equal(sp_model_parameters(&again), published[i].parameters);
    }
}

// Megatron-LM counts 23.0 GFLOP for a token of 4096 of Qwen3-30B, forward and backward.
TEST(flops_of_a_published_model)
{
    sp_model model = read_config(qwen3_30b);
    double flops = 3.0 * sp_model_forward_flops(&model, 4096.0, 4096.0 * 4096.0) / 4096.0;
    assert_within(flops / 1e9, 23.0, 0.05);
}

// One letter a layer: experts (E) or a dense MLP (d), and behind it what it attends to: all tokens
// (a), a window (w) or its chunk (c).
static void has_layers(const char *config, int first, const char *layers)
{
    sp_model model = read_config(config);
    for (int i = 0; layers[2 * i] != '\0'; i++) {
        sp_model space;
        const sp_model *alike =
            sp_model_of_kind(&model, sp_model_kind_of(&model, first + i), &space);
        assert_int_equal(alike->experts > 0, layers[2 * i] == 'E');
        assert_int_equal(alike->window_tokens > 0, layers[2 * i + 1] == 'w');
        assert_int_equal(alike->chunk_tokens > 0, layers[2 * i + 1] == 'c');
        assert_true(alike->experts > 0 || alike->shared_ffn == 0);
    }
}

#define SMALL(type, more)                                                                      \
    "{'model_type':'" type "','hidden_size':64,'num_hidden_layers':8,'num_attention_heads':4," \
    "'num_key_value_heads':4,'vocab_size':100,'intermediate_size':128," more "}"

TEST(layers_of_models)
{
    has_layers(glm_45, 0, "dadadaEaEaEa");
    has_layers(glm_45, 88, "EaEaEaEa");
    has_layers(glm_45_air, 0, "daEaEa");
    has_layers(gpt_oss_20b, 0, "EwEaEwEa");
    has_layers(gpt_oss_20b, 20, "EwEaEwEa");
    has_layers(scout, 0, "EcEcEcEaEcEcEcEa");
    has_layers(maverick, 0, "dcEcdcEadcEcdcEa");
    has_layers(phi_35, 0, "EwEw");
    has_layers(SMALL("qwen3_moe", "'moe_intermediate_size':32,'decoder_sparse_step':2,"
                                  "'mlp_only_layers':[1,5]"),
               0, "dadadaEadadadaEa");
    has_layers(SMALL("qwen2_moe", "'moe_intermediate_size':32,'mlp_only_layers':[0],"
                                  "'use_sliding_window':true,'max_window_layers':6"),
               0, "daEaEaEaEaEaEwEw");
    has_layers(SMALL("llama4_text", "'intermediate_size_mlp':256,'moe_layers':[2,3],"
                                    "'no_rope_layers':[0,1,1,0,1,1,1,1],'attention_chunk_size':16"),
               0, "dadcEcEadcdcdcdc");
    has_layers(SMALL("gpt_oss", "'layer_types':['full_attention','full_attention',"
                                "'full_attention','sliding_attention','full_attention',"
                                "'full_attention','full_attention','sliding_attention'],"
                                "'sliding_window':64"),
               0, "EaEaEaEwEaEaEaEw");
}

TEST(shapes_of_experts)
{
    sp_model model = read_config(qwen2_57b);
    assert_int_equal(model.ffn, 2560);
    assert_int_equal(model.shared_ffn, 20480);
    assert_true(model.shared_gate && model.qkv_bias && !model.output_bias);
    model = read_config(gpt_oss_20b);
    assert_true(model.attention_sinks && model.router_bias && model.mlp_bias && model.output_bias);
    model = read_config(olmoe);
    assert_true(model.qk_norm && model.qk_norm_whole);
    model = read_config(glm_45);
    assert_int_equal(model.kind[1].shared_ffn, 1536);
    assert_int_equal(model.kind[0].ffn, 12288);
    assert_string_equal(model.ignored_parts, "num_nextn_predict_layers");
    model = read_config(SMALL("glm4_moe", "'moe_intermediate_size':32,'n_shared_experts':3,"
                                          "'first_k_dense_replace':0"));
    assert_int_equal(model.runs, 0);
    assert_int_equal(model.shared_ffn, 96);
    model = read_config(SMALL("qwen2_moe", "'moe_intermediate_size':32,"
                                           "'shared_expert_intermediate_size':0"));
    assert_true(!model.shared_gate && model.experts == 60 && model.experts_per_token == 4);
}
