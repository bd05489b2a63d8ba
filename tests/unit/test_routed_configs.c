// Published config.json files of models with experts: their exact numbers of parameters (those of
// the weight files on their model pages), which layers have experts and what each attends to.
#include "sim/model/model.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

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
#define QWEN3(hidden, layers, heads, dense, width)                                       \
    "{'model_type':'qwen3_moe'," SHAPE(                                                  \
        hidden, layers, heads, 4,                                                        \
        151936) ",'head_dim':128,'attention_bias':false,'intermediate_size':" #dense     \
                ",'moe_intermediate_size':" #width                                       \
                ",'num_experts':128,'num_experts_per_tok':8,'decoder_sparse_step':1,"    \
                "'mlp_only_layers':[],'norm_topk_prob':true,'use_sliding_window':false," \
                "'sliding_window':null,'max_window_layers':" #layers "}"
static const char qwen3_30b[] = QWEN3(2048, 48, 32, 6144, 768);
static const char qwen3_235b[] = QWEN3(4096, 94, 64, 12288, 1536);
#define GLM_45(hidden, layers, norms, dense, width, experts, first)                             \
    "{'model_type':'glm4_moe'," SHAPE(                                                          \
        hidden, layers, 96, 8,                                                                  \
        151552) ",'head_dim':128,'attention_bias':true,'use_qk_norm':" #norms                   \
                ",'partial_rotary_factor':0.5,'intermediate_size':" #dense                      \
                ",'moe_intermediate_size':" #width ",'n_routed_experts':" #experts              \
                ",'n_shared_experts':1,'num_experts_per_tok':8,'first_k_dense_replace':" #first \
                ",'n_group':1,'topk_group':1,'norm_topk_prob':true,"                            \
                "'num_nextn_predict_layers':1}"
static const char glm_45[] = GLM_45(5120, 92, true, 12288, 1536, 160, 3);
static const char glm_45_air[] = GLM_45(4096, 46, false, 10944, 1408, 128, 1);
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

#define LATENT                                                                              \
    ",'kv_lora_rank':512,'qk_nope_head_dim':128,'qk_rope_head_dim':64,'v_head_dim':128,"    \
    "'attention_bias':false,'norm_topk_prob':true,'routed_scaling_factor':2.5,'ep_size':1," \
    "'seq_aux':true,'aux_loss_alpha':0.001,'moe_layer_freq':1,'rope_scaling':null,"         \
    "'scoring_func':'sigmoid','pretraining_tp':1,'max_position_embeddings':4096,"
static const char deepseek_v2_lite[] =
    "{'model_type':'deepseek_v2'," SHAPE(2048, 27, 16, 16, 102400) LATENT
    "'q_lora_rank':null,'intermediate_size':10944,'moe_intermediate_size':1408,"
    "'n_routed_experts':64,'n_shared_experts':2,'num_experts_per_tok':6,"
    "'first_k_dense_replace':1,'n_group':1,'topk_group':1,'topk_method':'greedy'}";
static const char deepseek_v2[] = "{'model_type':'deepseek_v2'," SHAPE(5120, 60, 128, 128, 102400)
    LATENT "'q_lora_rank':1536,'intermediate_size':12288,'moe_intermediate_size':1536,"
           "'n_routed_experts':160,'n_shared_experts':2,'num_experts_per_tok':6,"
           "'first_k_dense_replace':1,'n_group':8,'topk_group':3,"
           "'topk_method':'group_limited_greedy'}";
static const char deepseek_v3[] = "{'model_type':'deepseek_v3'," SHAPE(7168, 61, 128, 128, 129280)
    LATENT "'q_lora_rank':1536,'intermediate_size':18432,'moe_intermediate_size':2048,"
           "'n_routed_experts':256,'n_shared_experts':1,'num_experts_per_tok':8,"
           "'first_k_dense_replace':3,'n_group':8,'topk_group':4,'topk_method':'noaux_tc',"
           "'num_nextn_predict_layers':1}";
static const char kimi_k2[] = "{'model_type':'kimi_k2'," SHAPE(7168, 61, 64, 64, 163840) LATENT
    "'q_lora_rank':1536,'intermediate_size':18432,'moe_intermediate_size':2048,"
    "'n_routed_experts':384,'n_shared_experts':1,'num_experts_per_tok':8,"
    "'first_k_dense_replace':1,'n_group':1,'topk_group':1,'topk_method':'noaux_tc',"
    "'num_nextn_predict_layers':0}";
static const char moonlight[] = "{'model_type':'deepseek_v3'," SHAPE(2048, 27, 16, 16, 163840)
    LATENT "'q_lora_rank':null,'intermediate_size':11264,'moe_intermediate_size':1408,"
           "'n_routed_experts':64,'n_shared_experts':2,'num_experts_per_tok':6,"
           "'first_k_dense_replace':1,'n_group':1,'topk_group':1,'topk_method':'noaux_tc',"
           "'num_nextn_predict_layers':0}";

// zai-org/GLM-4.5V, whose text model is GLM-4.5-Air's. zai-org/GLM-4.7-Flash: 29,943,393,920 in
// files without the layer that predicts a further token, of which 46*64 choose experts evenly.
static const char glm_45v[] =
    "{'model_type':'glm4v_moe','vision_config':{'depth':24},'text_config':{'model_type':"
    "'glm4v_moe_text'," SHAPE(4096, 46, 96, 8, 151552) //
    ",'head_dim':128,'attention_bias':true,'use_qk_norm':false,'partial_rotary_factor':0.5,"
    "'intermediate_size':10944,'moe_intermediate_size':1408,'n_routed_experts':128,"
    "'n_shared_experts':1,'num_experts_per_tok':8,'first_k_dense_replace':1,'n_group':1,"
    "'topk_group':1,'norm_topk_prob':true}}";
static const char glm_47_flash[] = "{'model_type':'glm4_moe_lite'," SHAPE(
    2048, 47, 20, 20,
    154880) ",'q_lora_rank':768,'kv_lora_rank':512,'qk_nope_head_dim':192,'qk_rope_head_dim':64,"
            "'v_head_dim':256,'attention_bias':false,'intermediate_size':10240,"
            "'moe_intermediate_size':1536,'n_routed_experts':64,'n_shared_experts':1,"
            "'num_experts_per_tok':4,'first_k_dense_replace':1,'n_group':1,'topk_group':1,"
            "'topk_method':'noaux_tc','norm_topk_prob':true,'routed_scaling_factor':1.8,"
            "'num_nextn_predict_layers':1}";
// tencent/Hunyuan-A13B-Instruct, by hand; it says numbers of each layer.
#define FOUR(number) #number "," #number "," #number "," #number
#define SIXTEEN(number) FOUR(number) "," FOUR(number) "," FOUR(number) "," FOUR(number)
#define LIST(number) "[" SIXTEEN(number) "," SIXTEEN(number) "]"
static const char hunyuan_a13b[] =
    "{'model_type':'hunyuan_v1_moe','hidden_size':4096,'num_hidden_layers':32,"
    "'num_attention_heads':32,'num_key_value_heads':8,'head_dim':128,'attention_head_dim':128,"
    "'vocab_size':128167,'intermediate_size':3072,'num_experts':64,"
    "'moe_intermediate_size':" LIST(3072) ",'moe_topk':" LIST(8) ",'num_shared_expert':" LIST(
        1) ",'moe_layer_num_skipped':0,'use_mixed_mlp_moe':true,'moe_drop_tokens':false,"
           "'use_qk_norm':true,'use_cla':false,'cla_share_factor':2,'norm_type':'rms',"
           "'group_limited_greedy':false,'attention_bias':false,'mlp_bias':false,'hidden_act':'"
           "silu',"
           "'norm_topk_prob':true,'routed_scaling_factor':1.0,'tie_word_embeddings':true}";
// arcee-ai/Trinity-Nano-Preview: 6,120,003,328, of which 54*128 choose experts evenly.
static const char trinity_nano[] = "{'model_type':'afmoe'," SHAPE(
    1024, 56, 8, 2,
    200192) ",'head_dim':128,'intermediate_size':3072,'moe_intermediate_size':256,"
            "'num_dense_layers':2,'num_experts':128,'num_experts_per_tok':8,"
            "'num_shared_experts':1,'global_attn_every_n_layers':4,'sliding_window':2048,"
            "'num_expert_groups':1,'num_limited_groups':1,'n_group':1,'topk_group':1,"
            "'route_norm':true,'route_scale':2.826,'score_func':'sigmoid','mup_enabled':true,"
            "'use_grouped_mm':true}";
// mistralai/Mistral-Small-4-119B-2603 and upstage/Solar-Open-100B, by their sizes.
static const char mistral_small_4[] = "{'model_type':'mistral4'," SHAPE(
    4096, 36, 32, 32,
    131072) ",'q_lora_rank':1024,'kv_lora_rank':256,'qk_nope_head_dim':64,'qk_rope_head_dim':64,"
            "'v_head_dim':128,'intermediate_size':12288,'moe_intermediate_size':2048,"
            "'n_routed_experts':128,'n_shared_experts':1,'num_experts_per_tok':4,"
            "'first_k_dense_replace':0,'n_group':1,'topk_group':1,'norm_topk_prob':true}";
static const char solar_open[] = "{'model_type':'solar_open'," SHAPE(
    4096, 48, 64, 8,
    196608) ",'head_dim':128,'intermediate_size':10240,'moe_intermediate_size':1280,"
            "'n_routed_experts':128,'n_shared_experts':1,'num_experts_per_tok':8,"
            "'first_k_dense_replace':0,'norm_topk_prob':true,'routed_scaling_factor':1.0}";

static const struct {
    const char *config;
    int64_t parameters;
    const char *keys; // that a warning names
} published[] = {
    {mixtral_8x7b, 46702792704, ""},     {mixtral_8x22b, 140630071296, ""},
    {qwen2_57b, 57408658944, ""},        {qwen3_30b, 30532122624, ""},
    {qwen3_235b, 235093634560, ""},      {glm_45, 352797814784, ""},
    {glm_45_air, 106852245504, ""},      {gpt_oss_20b, 20914757184, ""},
    {gpt_oss_120b, 116829156672, ""},    {scout, 107769861120, "use_qk_norm"},
    {maverick, 400711848960, ""},        {olmoe, 6919161856, ""},
    {phi_35, 41873153344, ""},           {deepseek_v2_lite, 15706484224, ""},
    {deepseek_v2, 235741434880, ""},     {deepseek_v3, 671026404352, ""},
    {kimi_k2, 1026408209408, ""},        {moonlight, 15960108544, ""},
    {glm_45v, 106852245504, ""},         {glm_47_flash, 29943393920 - 2944, ""},
    {hunyuan_a13b, 80393183232, ""},     {trinity_nano, 6120003328 - 6912, ""},
    {mistral_small_4, 118972826624, ""}, {solar_open, 102651793408, ""},
};

TEST(parameters_of_published_models)
{
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        sp_model model = read_config(published[i].config);
        model.mtp_layers = 0; // as the library's classes
        assert_int_equal(sp_model_parameters(&model), published[i].parameters);
        assert_string_equal(model.ignored_keys, published[i].keys);
        assert_string_equal(model.ignored_dropout, "");
        // The document of the model says all of it.
        json_auto_t *document = sp_model_to_json(&model);
        sp_object object;
        sp_model again;
        sp_error_clear(ERR);
        sp_object_begin(&object, document, "s.json", "model", ERR);
        sp_model_from_object(&object, &again);
        assert_int_equal(ERR->count, 0);
        assert_int_equal(sp_model_parameters(&again), published[i].parameters);
    }
}

// The files' n_group and topk_group where they limit where a token goes; DeepSeek-V2 greedily, or
// with one group, does not.
TEST(groups_of_published_models)
{
    static const struct {
        const char *config;
        int groups, top_k;
    } grouped[] = {{deepseek_v3, 8, 4}, {deepseek_v2, 8, 3}, {deepseek_v2_lite, 0, 0},
                   {kimi_k2, 0, 0},     {moonlight, 0, 0},   {glm_45, 0, 0},
                   {qwen3_30b, 0, 0}};
    for (size_t i = 0; i < sizeof grouped / sizeof grouped[0]; i++) {
        sp_model model = read_config(grouped[i].config);
        assert_int_equal(model.expert_groups, grouped[i].groups);
        assert_int_equal(model.expert_group_top_k, grouped[i].top_k);
        json_auto_t *document = sp_model_to_json(&model);
        assert_int_equal(json_integer_value(json_object_get(document, "expert_groups")),
                         grouped[i].groups);
    }
}

// Megatron-LM counts 23.0 GFLOP for a token of 4096 of Qwen3-30B, forward and backward.
TEST(flops_of_a_published_model)
{
    sp_model model = read_config(qwen3_30b);
    double flops = 3.0 * sp_model_forward_flops(&model, 4096.0, 4096.0 * 4096.0) / 4096.0;
    assert_within(flops / 1e9, 23.0, 0.05);
}

// Of DeepSeek-V3's files 11,610,067,968 are of the layer that predicts a further token, beside
// copies of embedding and head. Megatron-LM's formula (num_floating_point_operations of its
// training/training.py, routers and embedding left out, causal pairs) written out for a token of
// 4096.
TEST(deepseek_v3_with_further_tokens)
{
    sp_model model = read_config(deepseek_v3);
    assert_int_equal(model.mtp_layers, 1);
    assert_int_equal(sp_model_parameters(&model), 671026404352 + 11610067968);
    double h = 7168.0;
    double attention = 1536.0 * (h + 128.0 * 192.0) + 512.0 * (h + 128.0 * 256.0) + 64.0 * h +
                       128.0 * 128.0 * h + 2048.0 * 128.0 * (192.0 + 128.0);
    double routed = 3.0 * h * 2048.0 * 9.0;
    double weights = 61.0 * attention + 3.0 * 3.0 * h * 18432.0 + 58.0 * routed + h * 129280.0;
    double further = attention + routed + 2.0 * h * h + h * 129280.0;
    double pairs2 = 4096.0 * 4096.0;
    assert_close(3.0 * sp_model_forward_flops(&model, 4096.0, pairs2) / 4096.0,
                 6.0 * (weights + further), 1e-12);
    model.mtp_layers = 0;
    assert_close(3.0 * sp_model_forward_flops(&model, 4096.0, pairs2) / 4096.0, 6.0 * weights,
                 1e-12);
}

TEST(latents_of_published_models)
{
    sp_model model = read_config(deepseek_v3);
    assert_true(model.q_lora_rank == 1536 && model.kv_lora_rank == 512 && model.head_dim == 192 &&
                model.v_head_dim == 128 && model.kv_heads == 128);
    assert_int_equal(model.kind[0].ffn, 18432);
    assert_int_equal(model.kind[1].shared_ffn, 2048);
    model = read_config(deepseek_v2_lite);
    assert_true(model.q_lora_rank == 0 && model.kv_lora_rank == 512);
    json_auto_t *root = json_document("{'model_type':'deepseek_v3'," SHAPE(
        7168, 61, 128, 128, 129280) ",'intermediate_size':18432,'moe_intermediate_size':2048,"
                                    "'attention_bias':true}");
    must_fail_with(sp_model_from_hf(root, "config.json", &model, ERR), SP_ERR_CONTENT,
                   "attention_bias");
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

#define GLM_LITE(types)                                                                 \
    SMALL("glm4_moe_lite",                                                              \
          "'q_lora_rank':8,'kv_lora_rank':8,'qk_nope_head_dim':8,'qk_rope_head_dim':8," \
          "'v_head_dim':8,'moe_intermediate_size':32,'first_k_dense_replace':1,"        \
          "'mlp_layer_types':" types)

TEST(layers_of_models)
{
    has_layers(glm_45, 0, "dadadaEaEaEa");
    has_layers(glm_45, 88, "EaEaEaEa");
    has_layers(glm_45_air, 0, "daEaEa");
    has_layers(deepseek_v3, 0, "dadadaEaEa");
    has_layers(deepseek_v3, 57, "EaEaEaEaEa"); // the last predicts further tokens
    has_layers(deepseek_v2, 0, "daEaEa");
    has_layers(gpt_oss_20b, 0, "EwEaEwEa");
    has_layers(gpt_oss_20b, 20, "EwEaEwEa");
    has_layers(scout, 0, "EcEcEcEaEcEcEcEa");
    has_layers(maverick, 0, "dcEcdcEadcEcdcEa");
    has_layers(phi_35, 0, "EwEw");
    has_layers(glm_47_flash, 0, "daEaEa");
    has_layers(trinity_nano, 0, "dwdwEwEaEwEwEwEa");
    has_layers(GLM_LITE("['dense','dense','sparse','sparse','dense','sparse','sparse',"
                        "'sparse']"),
               0, "dadaEaEadaEaEaEa");
    has_layers(SMALL("qwen3_moe", "'moe_intermediate_size':32,'decoder_sparse_step':2,"
                                  "'mlp_only_layers':[1,5]"),
               0, "dadadaEadadadaEa");
    has_layers(SMALL("qwen2_moe", "'moe_intermediate_size':32,'mlp_only_layers':[0],"
                                  "'use_sliding_window':true,'max_window_layers':6"),
               0, "daEaEaEaEaEaEwEw");
    has_layers(SMALL("llama4_text", "'intermediate_size_mlp':256,'moe_layers':[2,3],"
                                    "'no_rope_layers':[0,1,1,0,1,1,1,1],'attention_chunk_size':16"),
               0, "dadcEcEadcdcdcdc");
    has_layers(SMALL("llama4_text", "'no_rope_layer_interval':2"), 0, "EcEaEcEaEcEaEcEa");
    has_layers(SMALL("llama4_text", "'no_rope_layer_interval':2,'no_rope_layers':[]"), 0,
               "EcEaEcEaEcEaEcEa");
    has_layers(SMALL("llama4_text", "'attention_chunk_size':null"), 0, "EaEaEaEaEaEaEaEa");
    has_layers(SMALL("llama4_text", "'moe_layers':[]"), 0, "dcdcdcdadcdcdcda");
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
    assert_int_equal(model.mtp_layers, 1);
    model = read_config(SMALL("glm4_moe", "'moe_intermediate_size':32,'n_shared_experts':3,"
                                          "'first_k_dense_replace':0"));
    assert_int_equal(model.runs, 0);
    assert_int_equal(model.shared_ffn, 96);
    model = read_config(SMALL("deepseek_v2", "'moe_intermediate_size':32,'n_shared_experts':null"));
    assert_true(model.experts == 64 && model.shared_ffn == 0);
    model = read_config(SMALL("llama4_text", "'interleave_moe_layer_step':2"));
    assert_true(model.kind[0].ffn == 16384 && model.kind[1].ffn == 128);
    model = read_config(SMALL("llama4_text", "'head_dim':null"));
    assert_int_equal(model.head_dim, 16); // as the library's class has it, 128 where it is absent
    model = read_config(SMALL("qwen2_moe", "'moe_intermediate_size':32,"
                                           "'shared_expert_intermediate_size':0"));
    assert_true(!model.shared_gate && model.experts == 60 && model.experts_per_token == 4);
}

// What a file says beside layer_types, and what the family's model does not have, is named.
TEST(keys_that_others_overrule_are_named)
{
    sp_model model =
        read_config(SMALL("llama4_text", "'use_qk_norm':false,'no_rope_layers':[0,1,0,1,0,1,0,1],"
                                         "'no_rope_layer_interval':4"));
    assert_string_equal(model.ignored_keys, "no_rope_layer_interval");
    model = read_config(SMALL("qwen3_moe", "'moe_intermediate_size':32,'add_router_bias':true"));
    assert_string_equal(model.ignored_keys, "add_router_bias");
    model = read_config(GLM_LITE("['dense','dense','sparse','sparse','dense','sparse','sparse',"
                                 "'sparse']"));
    assert_string_equal(model.ignored_keys, "first_k_dense_replace");
    model = read_config(GLM_LITE("['dense','sparse','sparse','sparse','sparse','sparse','sparse',"
                                 "'sparse']"));
    assert_string_equal(model.ignored_keys, "");
    json_auto_t *root = json_document(GLM_LITE("['dense','sparse','sparse']"));
    must_fail_with(sp_model_from_hf(root, "config.json", &model, ERR), SP_ERR_CONTENT,
                   "config.json: mlp_layer_types[3]: expected \"dense\" or \"sparse\"");
    sp_error_clear(ERR);
}

// The key that makes an order of layers that does not repeat is blamed for it: of layers that
// differ in turn, but for the first two, there are too many runs.
TEST(orders_that_do_not_repeat)
{
    enum { LAYERS = 2 * SP_LAYER_RUNS + 1 };
    const char *routed =
        json_text("{'model_type':'deepseek_v2','hidden_size':64,'num_hidden_layers':%d,"
                  "'num_attention_heads':4,'num_key_value_heads':4,'vocab_size':100,"
                  "'intermediate_size':128,'moe_intermediate_size':32,'first_k_dense_replace':1,"
                  "'moe_layer_freq':2}",
                  LAYERS);
    json_t *roots[] = {
        json_document(routed),
        json_document("{'model_type':'qwen2','hidden_size':64,'num_hidden_layers':1,"
                      "'num_attention_heads':4,'num_key_value_heads':4,"
                      "'vocab_size':100,'intermediate_size':128,'sliding_window':8}")};
    static const char *const told[] = {"config.json: moe_layer_freq: no order",
                                       "config.json: layer_types: no order"};
    json_t *types = json_array();
    for (int i = 0; i < LAYERS; i++) {
        json_array_append_new(
            types, json_string(i % 2 == 1 || i == 0 ? "full_attention" : "sliding_attention"));
    }
    json_object_set_new(roots[1], "layer_types", types);
    json_object_set_new(roots[1], "num_hidden_layers", json_integer(LAYERS));
    for (int i = 0; i < 2; i++) {
        sp_model model;
        must_fail_with(sp_model_from_hf(roots[i], "config.json", &model, ERR), SP_ERR_CONTENT,
                       told[i]);
        sp_error_clear(ERR);
        json_decref(roots[i]);
    }
}

// A built-in model is what the file of it says, without layers that predict further tokens.
TEST(built_in_models_are_those_of_their_files)
{
    const struct {
        const char *name, *config;
    } both[] = {{"mixtral-8x7b", mixtral_8x7b},  {"qwen3-30b-a3b", qwen3_30b},
                {"qwen3-235b-a22b", qwen3_235b}, {"glm-4.5", glm_45},
                {"glm-4.5-air", glm_45_air},     {"gpt-oss-20b", gpt_oss_20b},
                {"gpt-oss-120b", gpt_oss_120b}};
    for (size_t i = 0; i < sizeof both / sizeof both[0]; i++) {
        sp_model model;
        sp_model read = read_config(both[i].config);
        must_succeed(sp_model_builtin(both[i].name, &model, ERR));
        snprintf(read.name, sizeof read.name, "%s", model.name);
        read.ignored_parts[0] = '\0';
        read.mtp_layers = 0;
        json_auto_t *a = sp_model_to_json(&model);
        json_auto_t *b = sp_model_to_json(&read);
        assert_true(json_equal(a, b));
    }
}
