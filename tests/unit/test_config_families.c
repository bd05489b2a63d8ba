// Hugging Face config.json of families beside those of test_model.c and test_routed_configs.c: the
// exact numbers of parameters of published models, from their sizes by hand, and of small models.
#include "sim/model/model.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static void refuses(const char *quoted, const char *message)
{
    sp_model model;
    json_auto_t *root = json_document(quoted);
    must_fail_with(sp_model_from_hf(root, "config.json", &model, ERR), SP_ERR_CONTENT, message);
    sp_error_clear(ERR);
}

#define CONFIG(type, hidden, layers, heads, kv, ffn, vocab, more)                                 \
    "{'model_type':'" type "','hidden_size':" #hidden ",'num_hidden_layers':" #layers             \
    ",'num_attention_heads':" #heads ",'num_key_value_heads':" #kv ",'intermediate_size':" #ffn   \
    ",'vocab_size':" #vocab ",'rms_norm_eps':1e-6,'rope_theta':10000,'torch_dtype':'bfloat16',"   \
    "'max_position_embeddings':4096,'initializer_range':0.02,'attention_dropout':0.0,'use_cache'" \
    ":true" more "}"

#define CWM_4 "'full_attention','sliding_attention','sliding_attention','sliding_attention'"
#define CWM_16 CWM_4 "," CWM_4 "," CWM_4 "," CWM_4

typedef struct published {
    const char *config;
    int64_t parameters;
} published;

// The sizes in the published files, and the sum of their matrices, norms and biases by hand.
static const published models[] = {
    // microsoft/Phi-3-mini-4k-instruct, microsoft/phi-4
    {CONFIG("phi3", 3072, 32, 32, 32, 8192, 32064,
            ",'hidden_act':'silu','resid_pdrop':0.0,'embd_pdrop':0.0,'sliding_window':2047,"
            "'original_max_position_embeddings':4096,'tie_word_embeddings':false,"
            "'attention_bias':false,'rope_scaling':null"),
     3821079552},
    {CONFIG("phi3", 5120, 40, 40, 10, 17920, 100352, ",'hidden_act':'silu','sliding_window':null"),
     14659507200},
    // allenai/OLMo-2-1124-7B: tables 2*100352*4096; 32 layers of 4*4096^2 + 3*4096*11008 and norms
    // of 4 x 4096; a norm of 4096. Olmo-3-1025-7B: the same with 100278 rows, three layers of four
    // with a window.
    {CONFIG("olmo2", 4096, 32, 32, 32, 11008, 100352,
            ",'attention_bias':false,'hidden_act':'silu','tie_word_embeddings':false"),
     7298617344},
    {CONFIG("olmo3", 4096, 32, 32, 32, 11008, 100278,
            ",'attention_bias':false,'sliding_window':4096,'tie_word_embeddings':false"),
     7298011136},
    // LGAI-EXAONE/EXAONE-4.0-1.2B: a table of 102400*2048; 30 layers of 2*2048*2048 + 2*2048*512 +
    // 3*2048*4096 and norms of 2*2048 + 2*64; a norm of 2048. EXAONE-4.0-32B: 2*102400*5120; 64
    // layers of 2*5120^2 + 2*5120*1024 + 3*5120*27392 and norms of 2*5120 + 2*128; 5120.
    {CONFIG("exaone4", 2048, 30, 32, 8, 4096, 102400,
            ",'head_dim':64,'sliding_window':null,'tie_word_embeddings':true"),
     1279391488},
    {CONFIG("exaone4", 5120, 64, 40, 8, 27392, 102400,
            ",'head_dim':128,'sliding_window':4096,'sliding_window_pattern':'LLLG'"),
     32003216384},
    // allenai/FlexOlmo-7x7B-1T: OLMo 2's attention and tables of 100352 rows; in a layer 7 experts
    // of 3*4096*11008 and a router of 7*4096.
    {CONFIG("flex_olmo", 4096, 32, 32, 32, 11008, 100352,
            ",'num_experts':7,'num_experts_per_tok':5,'tie_word_embeddings':false"),
     33270665216},
    // EleutherAI/gpt-j-6b: tables 2*50400*4096 and a bias of 50400; 28 layers of 4*4096^2 +
    // 2*4096*16384, biases of 16384 + 4096 and one norm of 2*4096; 2*4096.
    {"{'model_type':'gptj','n_embd':4096,'n_layer':28,'n_head':16,'n_inner':null,'n_positions':2048"
     ",'vocab_size':50400,'rotary':true,'rotary_dim':64,'activation_function':'gelu_new',"
     "'attn_pdrop':0.0,'embd_pdrop':0.0,'resid_pdrop':0.0,'tie_word_embeddings':false}",
     6050882784},
    // EleutherAI/gpt-neox-20b: 2*50432*6144; 44 layers of 4*6144^2 + 2*6144*24576, biases of 3*6144
    // + 6144 + 24576 + 6144, two norms of 2*6144; 2*6144.
    {CONFIG("gpt_neox", 6144, 44, 64, 64, 24576, 50432,
            ",'use_parallel_residual':true,'rotary_pct':0.25,'hidden_act':'gelu_fast',"
            "'tie_word_embeddings':false"),
     20554567680},
    // tiiuae/falcon-7b: a table of 65024*4544; 32 layers of 4544*(4544 + 2*64) + 4544^2 + 8*4544^2
    // and a norm of 2*4544; 2*4544. falcon-40b: 65024*8192; 60 layers of 8192*(8192 + 2*8*64) +
    // 8192^2 + 8*8192^2 and two norms of 2*8192; 2*8192.
    {"{'model_type':'falcon','hidden_size':4544,'num_hidden_layers':32,'num_attention_heads':71,"
     "'num_kv_heads':71,'vocab_size':65024,'multi_query':true,'parallel_attn':true,'bias':false,"
     "'alibi':false,'new_decoder_architecture':false,'hidden_dropout':0.0,'attention_dropout':0.0}",
     6921720704},
    {"{'model_type':'falcon','hidden_size':8192,'num_hidden_layers':60,'num_attention_heads':128,"
     "'num_kv_heads':8,'vocab_size':65024,'multi_query':true,'parallel_attn':true,'bias':false,"
     "'alibi':false,'new_decoder_architecture':true,'hidden_dropout':0.0}",
     41303293952},
    // CohereLabs/c4ai-command-r-v01: a table of 256000*8192; 40 layers of 4*8192^2 + 3*8192*22528
    // and a norm of 8192; 8192. c4ai-command-r7b-12-2024: 256000*4096; 32 layers of 2*4096^2 +
    // 2*4096*1024 + 3*4096*14336 and a norm of 4096; 4096.
    {CONFIG("cohere", 8192, 40, 64, 64, 22528, 256000,
            ",'hidden_act':'silu','logit_scale':0.0625,'use_qk_norm':false"),
     34980831232},
    {CONFIG("cohere2", 4096, 32, 32, 8, 14336, 256000,
            ",'head_dim':128,'hidden_act':'silu','sliding_window':4096,'sliding_window_pattern':4,"
            "'logit_scale':0.25,'use_parallel_block':true"),
     8028033024},
    // microsoft/phi-1, phi-2: 2*51200*h and a bias of 51200; layers of 12 h^2, biases of 9 h and a
    // norm of 2 h; 2 h.
    {CONFIG("phi", 2048, 24, 32, 32, 8192, 51200,
            ",'hidden_act':'gelu_new','partial_rotary_factor':0.5,'qk_layernorm':false"),
     1418270720},
    {CONFIG("phi", 2560, 32, 32, 32, 10240, 51200, ",'hidden_act':'gelu_new'"), 2779683840},
    // zai-org/GLM-4-9B-0414, glm-4-9b-chat-hf
    {CONFIG("glm4", 4096, 40, 32, 2, 13696, 151552,
            ",'head_dim':128,'attention_bias':true,'partial_rotary_factor':0.5,"
            "'tie_word_embeddings':false"),
     9400279040},
    {CONFIG("glm", 4096, 40, 32, 2, 13696, 151552, ",'head_dim':128,'attention_bias':true"),
     9399951360},
    // zai-org/chatglm3-6b
    {"{'model_type':'chatglm','hidden_size':4096,'num_layers':28,'num_attention_heads':32,"
     "'multi_query_attention':true,'multi_query_group_num':2,'kv_channels':128,"
     "'ffn_hidden_size':13696,'padded_vocab_size':65024,'add_bias_linear':false,"
     "'add_qkv_bias':true,'rmsnorm':true,'post_layer_norm':true,'seq_length':8192,"
     "'apply_residual_connection_post_layernorm':false,'layernorm_epsilon':1e-05,"
     "'bias_dropout_fusion':true,'attention_softmax_in_fp32':true,'original_rope':true,"
     "'apply_query_key_layer_scaling':true,'fp32_residual_connection':false,"
     "'quantization_bit':0,'pre_seq_len':null,'prefix_projection':false,"
     "'hidden_dropout':0.0,'tie_word_embeddings':false}",
     6243584000},
    // baidu/ERNIE-4.5-0.3B-PT
    {CONFIG("ernie4_5", 1024, 18, 16, 2, 3072, 103424,
            ",'head_dim':128,'use_bias':false,'tie_word_embeddings':true"),
     360748032},
    // ByteDance-Seed/Seed-OSS-36B-Instruct
    {CONFIG("seed_oss", 5120, 64, 80, 8, 27648, 155136,
            ",'head_dim':128,'attention_bias':true,'attention_out_bias':false,'mlp_bias':false,"
            "'residual_dropout':0.0,'tie_word_embeddings':false"),
     36151104512},
    // HuggingFaceTB/SmolLM3-3B
    {CONFIG("smollm3", 2048, 36, 16, 4, 11008, 128256,
            ",'no_rope_layers':[1,1,1,0],'no_rope_layer_interval':4,'use_sliding_window':false,"
            "'sliding_window':null,'max_window_layers':28,'mlp_bias':false"),
     3075098624},
    // stabilityai/stablelm-3b-4e1t
    {CONFIG("stablelm", 2560, 32, 32, 32, 6912, 50304,
            ",'use_qkv_bias':false,'use_parallel_residual':false,'qk_layernorm':false,"
            "'partial_rotary_factor':0.25,'tie_word_embeddings':false"),
     2795443200},
    // bigcode/starcoder2-3b
    {CONFIG("starcoder2", 3072, 30, 24, 2, 12288, 49152,
            ",'hidden_act':'gelu_pytorch_tanh','use_bias':true,'sliding_window':4096,"
            "'embedding_dropout':0.0,'residual_dropout':0.0,'norm_type':'layer_norm',"
            "'mlp_type':'default'"),
     3030371328},
    // bigcode/starcoder
    {"{'model_type':'gpt_bigcode','n_embd':6144,'n_layer':40,'n_head':48,'n_inner':24576,"
     "'n_positions':8192,'vocab_size':49152,'multi_query':true,'activation_function':'gelu',"
     "'resid_pdrop':0.1,'attn_pdrop':0.1,'embd_pdrop':0.1}",
     15517456384},
    // internlm/internlm2-7b
    {CONFIG("internlm2", 4096, 32, 32, 8, 14336, 92544,
            ",'bias':false,'hidden_act':'silu','tie_word_embeddings':false"),
     7737708544},
    // LGAI-EXAONE/EXAONE-3.0-7.8B-Instruct
    {"{'model_type':'exaone','hidden_size':4096,'num_layers':32,'num_attention_heads':32,"
     "'num_key_value_heads':8,'intermediate_size':14336,'vocab_size':102400,"
     "'activation_function':'silu','embed_dropout':0.0,'tie_word_embeddings':false}",
     7818448896},
    // openbmb/MiniCPM-2B-sft-bf16
    {CONFIG("minicpm", 2304, 40, 36, 36, 5760, 122753,
            ",'scale_emb':12,'dim_model_base':256,'scale_depth':1.4,'hidden_act':'silu'"),
     2724880896},
    // Qwen/Qwen-7B
    {"{'model_type':'qwen','hidden_size':4096,'num_hidden_layers':32,'num_attention_heads':32,"
     "'intermediate_size':22016,'vocab_size':151936,'kv_channels':128,'no_bias':true,"
     "'use_dynamic_ntk':true,'use_logn_attn':true,'seq_length':8192,'scale_attn_weights':true,"
     "'emb_dropout_prob':0.0,'attn_dropout_prob':0.0,'rotary_pct':1.0,'bf16':false,"
     "'use_flash_attn':'auto','tie_word_embeddings':false}",
     7721324544},
    // deepseek-ai/deepseek-moe-16b-base
    {CONFIG("deepseek", 2048, 28, 16, 16, 10944, 102400,
            ",'n_routed_experts':64,'num_experts_per_tok':6,'moe_intermediate_size':1408,"
            "'n_shared_experts':2,'first_k_dense_replace':1,'moe_layer_freq':1,"
            "'scoring_func':'softmax','aux_loss_alpha':0.001,'seq_aux':true,"
            "'norm_topk_prob':false,'tie_word_embeddings':false"),
     16375728128},
    // databricks/dbrx-base
    {"{'model_type':'dbrx','d_model':6144,'n_layers':40,'n_heads':48,'vocab_size':100352,"
     "'max_seq_len':32768,'resid_pdrop':0.0,'emb_pdrop':0.0,'tie_word_embeddings':false,"
     "'attn_config':{'clip_qkv':8,'kv_n_heads':8,'rope_theta':500000},"
     "'ffn_config':{'ffn_hidden_size':10752,'moe_jitter_eps':0.01,'moe_loss_weight':0.05,"
     "'moe_num_experts':16,'moe_top_k':4,'ffn_act_fn':{'name':'silu'}}}",
     131596523520},
    // Qwen/Qwen2.5-VL-7B-Instruct: its text model is that of Qwen2.5-7B, of 7,615,616,512
    {CONFIG("qwen2_5_vl", 3584, 28, 28, 4, 18944, 152064,
            ",'hidden_act':'silu','use_sliding_window':false,'sliding_window':32768,"
            "'max_window_layers':28,'image_token_id':151655,'tie_word_embeddings':false,"
            "'rope_scaling':{'type':'mrope','mrope_section':[16,24,24]},"
            "'vision_config':{'depth':32,'hidden_size':1280}"),
     7615616512},
    // XiaomiMiMo/MiMo-7B-Base, with the layer that predicts a further token: by hand
    {CONFIG("mimo", 4096, 36, 32, 8, 11008, 151680,
            ",'attention_bias':true,'num_nextn_predict_layers':1,'hidden_act':'silu',"
            "'use_sliding_window':false,'tie_word_embeddings':false"),
     7833409536},
    // tencent/Hunyuan-1.8B-Instruct: by hand
    {CONFIG("hunyuan_v1_dense", 2048, 32, 16, 4, 6144, 120818,
            ",'head_dim':128,'attention_head_dim':128,'use_qk_norm':true,'attention_bias':false,"
            "'use_cla':false,'cla_share_factor':2,'norm_type':'rms','mlp_bias':false,"
            "'num_experts':1,'hidden_act':'silu','q_lora_rank':null,'tie_word_embeddings':true"),
     1791080448},
    // facebook/cwm
    {CONFIG("cwm", 6144, 64, 48, 8, 21504, 128256,
            ",'head_dim':128,'mlp_bias':false,'tie_word_embeddings':false,'sliding_window':8192,"
            "'layer_types':[" CWM_16 "," CWM_16 "," CWM_16 "," CWM_16 "]"),
     32581097472},
    // tencent/Youtu-LLM-2B
    {CONFIG("youtu", 2048, 32, 16, 16, 6144, 128256,
            ",'kv_lora_rank':512,'q_lora_rank':1536,'qk_nope_head_dim':128,'qk_rope_head_dim':64,"
            "'v_head_dim':128,'rope_interleave':true,'attention_bias':false,"
            "'rope_parameters':{'rope_theta':1600000},'tie_word_embeddings':true"),
     1961560064},
    // Grok-1: 4 norms in a layer, embedding and head tied (the count is that of its matrices)
    {CONFIG("grok-1", 6144, 64, 48, 8, 32768, 131072,
            ",'hidden_act':'gelu','num_experts':8,'num_experts_per_tok':2,'max_attn_value':30.0,"
            "'attn_output_multiplier':0.08838834764831845,'output_router_logits':false,"
            "'embedding_multiplier_scale':78.38367176906169,"
            "'output_multiplier_scale':0.5773502691896257"),
     315684820992},
};

TEST(parameters_of_published_models)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        sp_model model = read_config(models[i].config);
        assert_int_equal(sp_model_parameters(&model), models[i].parameters);
        bool has_length = strstr(models[i].config, "max_seq_len") != NULL;
        assert_string_equal(model.ignored_keys, has_length ? "max_seq_len" : "");
    }
}

// Of attention, of a norm of h features, and of an MLP with so many matrices.
static int64_t attention(int64_t h, int64_t a, int64_t g, int64_t d)
{
    return 2 * h * a * d + 2 * h * g * d;
}

static int64_t mlp(int64_t matrices, int64_t h, int64_t f)
{
    return matrices * h * f;
}

enum { H = 64, L = 6, A = 8, G = 2, D = 8, F = 96, V = 1000, E = 8, K = 2, W = 24 };

#define SMALL(type, more) CONFIG(type, 64, 6, 8, 2, 96, 1000, more)
#define EXPERTS(count, active)                                               \
    ",'" count "':8,'" active "':2,'moe_intermediate_size':24,'n_group':1,'" \
    "topk_group':1,'norm_topk_prob':true"

// Small models in the form of each family, and the parameters of their matrices, norms and biases.
TEST(parameters_of_small_models)
{
    const int64_t core = attention(H, A, G, D);
    const int64_t layer = core + mlp(3, H, F) + 2 * H;
    const int64_t tables = 2 * V * H + H;
    const int64_t qkv = (A + 2 * G) * D;
    const int64_t routed = H * E + E * mlp(3, H, W);
    const published small[] = {
        {SMALL("phi3", ""), L * layer + tables},
        {SMALL("granite", ",'embedding_multiplier':12.0,'residual_multiplier':0.22,"
                          "'attention_multiplier':0.0078125,'logits_scaling':16.0,"
                          "'tie_word_embeddings':true,'attention_bias':true,'mlp_bias':true"),
         L * (layer + qkv + H + 2 * F + H) + V * H + H},
        {SMALL("granitemoe", ",'num_local_experts':8,'num_experts_per_tok':2,"
                             "'logits_scaling':6.0,'tie_word_embeddings':true"),
         L * (core + 2 * H + H * E + E * mlp(3, H, F)) + V * H + H},
        {SMALL("granitemoeshared", ",'num_local_experts':8,'num_experts_per_tok':2,"
                                   "'shared_intermediate_size':24"),
         L * (core + 2 * H + H * E + E * mlp(3, H, F) + mlp(3, H, W)) + tables},
        {SMALL("glm", ",'head_dim':8"), L * (layer + qkv) + tables},
        {SMALL("glm4", ",'head_dim':8,'attention_bias':false"), L * (layer + 2 * H) + tables},
        {SMALL("glm4v_text", ",'head_dim':8"), L * (layer + 2 * H + qkv) + tables},
        {"{'model_type':'chatglm','hidden_size':64,'num_layers':6,'num_attention_heads':8,"
         "'kv_channels':8,'ffn_hidden_size':96,'padded_vocab_size':1000,'rmsnorm':false,"
         "'add_bias_linear':true}",
         L * (attention(H, A, A, D) + mlp(3, H, F) + 4 * H + 3 * A * D + H + 2 * F + H) +
             2 * V * H + 2 * H},
        {SMALL("ernie4_5", ",'head_dim':8,'use_bias':true"),
         L * (layer + qkv + H + 2 * F + H) + V * H + H},
        {SMALL("ernie4_5_moe", ",'moe_num_experts':8,'moe_k':2,'moe_intermediate_size':24,"
                               "'moe_num_shared_experts':2,'moe_layer_start_index':1,"
                               "'moe_layer_end_index':4,'moe_layer_interval':1,"
                               "'moe_use_aux_free':true,'moe_gate':'topk'"),
         2 * layer + 4 * (core + 2 * H + routed + mlp(3, H, 2 * W)) + V * H + H},
        {SMALL("seed_oss", ",'head_dim':8,'attention_out_bias':true"),
         L * (layer + qkv + H) + tables},
        {SMALL("smollm3", ",'tie_word_embeddings':false,'no_rope_layers':[1,1,1,0,1,1]"),
         L * layer + tables},
        {SMALL("nemotron", ",'hidden_act':'relu2','partial_rotary_factor':0.5"),
         L * (core + mlp(2, H, F) + 4 * H) + 2 * V * H + 2 * H},
        {SMALL("arcee", ",'hidden_act':'relu2'"), L * (core + mlp(2, H, F) + 2 * H) + tables},
        {SMALL("internlm2", ""), L * (layer + qkv + H) + tables},
        {SMALL("internlm3", ",'qkv_bias':false,'bias':true,'tie_word_embeddings':false"),
         L * (layer + H + 2 * F + H) + tables},
        {SMALL("stablelm", ",'use_qkv_bias':true"), L * (layer + 2 * H + qkv) + tables + H},
        {SMALL("starcoder2", ",'use_bias':false"),
         L * (core + mlp(2, H, F) + 4 * H) + V * H + 2 * H},
        {"{'model_type':'gpt_bigcode','n_embd':64,'n_layer':6,'n_head':8,'n_positions':32,"
         "'vocab_size':1000}",
         L * (attention(H, A, 1, D) + (A + 2) * D + H + mlp(2, H, 4 * H) + 5 * H + 4 * H) +
             (V + 32) * H + 2 * H},
        {SMALL("ministral", ""), L * layer + tables},
        {SMALL("ministral3", ",'head_dim':8,'sliding_window':null"), L * layer + tables},
        {SMALL("qwen2_5_vl_text", ",'use_sliding_window':false"), L * (layer + qkv) + tables},
        {SMALL("qwen2_vl_text", ",'use_sliding_window':false"), L * (layer + qkv) + tables},
        {SMALL("qwen3_vl_text", ",'head_dim':8"), L * (layer + 2 * D) + tables},
        {SMALL("qwen3_vl_moe_text", ",'head_dim':8" EXPERTS("num_experts", "num_experts_per_tok")),
         L * (core + 2 * H + 2 * D + routed) + tables},
        {SMALL("minicpm", ""), L * layer + V * H + H},
        {SMALL("qwen", ",'kv_channels':8,'no_bias':false"),
         L * (attention(H, A, G, D) + mlp(3, H, F / 2) + 2 * H + qkv + H + F + H) + tables},
        {SMALL("deepseek", ",'first_k_dense_replace':2,'n_shared_experts':2" EXPERTS(
                               "n_routed_experts", "num_experts_per_tok")),
         2 * layer + 4 * (core + 2 * H + routed + mlp(3, H, 2 * W)) + tables},
        {SMALL("dots1", ",'head_dim':8,'first_k_dense_replace':1,'n_shared_experts':2" EXPERTS(
                            "n_routed_experts", "num_experts_per_tok")),
         layer + 2 * D + 5 * (core + 2 * D + 2 * H + routed + mlp(3, H, 2 * W)) + tables},
        {SMALL("minimax_m2", ",'head_dim':8,'num_local_experts':8,'num_experts_per_tok':2,"
                             "'attn_type_list':[1,1,1,1,1,1],'qk_norm_type':'per_layer',"
                             "'use_routing_bias':true,'shared_intermediate_size':0"),
         L * (core + (A + G) * D + 2 * H + H * E + E * mlp(3, H, F)) + tables},
        {SMALL("bailing_moe", ",'head_dim':8,'first_k_dense_replace':0,'num_shared_experts':2,"
                              "'use_bias':false,'norm_softmax':false" EXPERTS(
                                  "num_experts", "num_experts_per_tok")),
         L * (core + 2 * H + routed + mlp(3, H, 2 * W)) + tables},
        {SMALL("bailing_moe_v2",
               ",'head_dim':8,'first_k_dense_replace':1,'num_shared_experts':1,'use_qk_norm':true,'"
               "use_bias':false,"
               "'moe_shared_expert_intermediate_size':24,'moe_router_enable_expert_bias':true,"
               "'score_function':'sigmoid'" EXPERTS("num_experts", "num_experts_per_tok")),
         layer + 2 * D + 5 * (core + 2 * D + 2 * H + routed + mlp(3, H, W)) + tables},
        {SMALL("qwen2_vl", ",'vision_config':{}"), L * (layer + qkv) + tables},
        {SMALL("mimo", ""), L * (layer + qkv) + tables},
        {SMALL("hunyuan_v1_dense", ",'use_qk_norm':false"), L * layer + tables},
        {SMALL("hunyuan_v1_moe", ",'num_experts':8,'moe_topk':[2,2,2,2,2,2],'head_dim':8"),
         L * (core + 2 * D + 2 * H + H * E + (E + 1) * mlp(3, H, F)) + tables},
        {SMALL("cwm", ",'head_dim':8,'mlp_bias':true,'layer_types':[" CWM_4
                      ",'full_attention','sliding_attention'],'sliding_window':16"),
         L * (layer + 2 * F + H) + tables},
        {SMALL("solar_open", ",'head_dim':8,'n_shared_experts':2" EXPERTS("n_routed_experts",
                                                                          "num_experts_per_tok")),
         L * (core + 2 * H + routed + mlp(3, H, 2 * W)) + tables},
        {SMALL("qwen3_5_text", ",'head_dim':8,'full_attention_interval':1"),
         L * (core + H * A * D + 2 * D + mlp(3, H, F) + 2 * H) + tables},
        {SMALL("afmoe", ",'head_dim':8,'num_experts':8,'num_experts_per_tok':2,"
                        "'moe_intermediate_size':24,'num_shared_experts':2"),
         L * (core + H * A * D + 2 * D + 4 * H) + mlp(3, H, F) + 5 * (routed + mlp(3, H, 2 * W)) +
             tables},
        {SMALL("grok-1", ",'tie_word_embeddings':false"),
         L * (core + 4 * H + H * E + E * mlp(3, H, F)) + tables},
        {"{'model_type':'dbrx','d_model':64,'n_layers':6,'n_heads':8,'vocab_size':1000,"
         "'attn_config':{'kv_n_heads':2},'ffn_config':{'ffn_hidden_size':24,'moe_num_experts':8,"
         "'moe_top_k':2}}",
         L * (core + 2 * H + routed) + tables},
    };
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        sp_model model = read_config(small[i].config);
        must_hold(sp_model_parameters(&model) == small[i].parameters, "%.40s: %lld, expected %lld",
                  small[i].config, (long long)sp_model_parameters(&model),
                  (long long)small[i].parameters);
        assert_string_equal(model.ignored_keys, "");
        // The document of the model says all of it.
        json_auto_t *document = sp_model_to_json(&model);
        sp_object object;
        sp_model again;
        sp_object_begin(&object, document, "s.json", "model", ERR);
        sp_model_from_object(&object, &again);
        assert_int_equal(ERR->count, 0);
        assert_int_equal(sp_model_parameters(&again), small[i].parameters);
    }
}

// Qwen/Qwen3-Next-80B-A3B: the weight files hold a layer that predicts a further token as well.
static const char qwen3_next[] =
    CONFIG("qwen3_next", 2048, 48, 16, 2, 5120, 151936,
           ",'head_dim':256,'num_experts':512,'num_experts_per_tok':10,'moe_intermediate_size':512,"
           "'shared_expert_intermediate_size':512,'decoder_sparse_step':1,'mlp_only_layers':[],"
           "'full_attention_interval':4,'linear_num_value_heads':32,'linear_num_key_heads':16,"
           "'linear_value_head_dim':128,'linear_key_head_dim':128,'linear_conv_kernel_dim':4,"
           "'attention_bias':false,'norm_topk_prob':true,'tie_word_embeddings':false,"
           "'partial_rotary_factor':0.25,'hidden_act':'silu'");

TEST(qwen3_next_by_its_file)
{
    sp_model model = read_config(qwen3_next);
    model.mtp_layers = 1;
    assert_int_equal(sp_model_parameters(&model), 81324862720);
    assert_string_equal(model.ignored_keys, "");
    for (int i = 0; i < 49; i++) {
        sp_model space;
        const sp_model *alike = sp_model_of_kind(&model, sp_model_kind_of(&model, i), &space);
        bool attends = i % 4 == 3 || i == 48;
        assert_int_equal(alike->mixer, attends ? SP_MIXER_ATTENTION : SP_MIXER_GATED_DELTA);
        assert_true(alike->experts == 512 && alike->shared_gate);
    }
    model = read_config(SMALL("qwen3_next", ",'head_dim':8,'moe_intermediate_size':24,"
                                            "'num_experts':8,'num_experts_per_tok':2,"
                                            "'layer_types':['linear_attention','full_attention',"
                                            "'linear_attention','full_attention',"
                                            "'linear_attention','full_attention']"));
    assert_close(sp_model_attending_share(&model), 0.5, 1e-12);
    refuses(SMALL("qwen3_next", ",'moe_intermediate_size':24,'layer_types':['full_attention',"
                                "'sliding_attention','full_attention','full_attention',"
                                "'full_attention','full_attention']"),
            "config.json: layer_types: expected \"full_attention\" or \"linear_attention\"");
}

// nvidia/Nemotron-H-8B-Base-8K by the sizes in its file: 24 layers of Mamba-2, 4 of attention, 24
// MLPs, each with one norm.
#define NEMOTRON_H(layers, pattern, more)                                                       \
    "{'model_type':'nemotron_h','hidden_size':4096,'num_hidden_layers':" #layers                \
    ",'num_attention_heads':32,'num_key_value_heads':8,'attention_head_dim':128,"               \
    "'intermediate_size':21504,'vocab_size':131072,'mamba_num_heads':128,'mamba_head_dim':64,"  \
    "'n_groups':8,'ssm_state_size':128,'conv_kernel':4,'expand':2,'chunk_size':128,"            \
    "'mlp_hidden_act':'relu2','mamba_hidden_act':'silu','use_conv_bias':true,'use_bias':false," \
    "'mlp_bias':false,'attention_bias':false,'mamba_proj_bias':false,'residual_in_fp32':false," \
    "'tie_word_embeddings':false,'hybrid_override_pattern':'" pattern "'" more "}"

TEST(nemotron_h_by_its_file)
{
    static const char pattern[] = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";
    sp_model model =
        read_config(NEMOTRON_H(52, "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", ""));
    const int64_t h = 4096;
    const int64_t inner = 128 * 64;
    const int64_t conv = inner + 2 * 8 * 128;
    const int64_t mamba = h * (inner + conv + 128) + 5 * conv + 3 * 128 + inner + inner * h + h;
    const int64_t full = attention(h, 32, 8, 128) + h;
    const int64_t dense = mlp(2, h, 21504) + h;
    assert_int_equal(sp_model_parameters(&model),
                     24 * mamba + 4 * full + 24 * dense + 2 * 131072 * h + h);
    assert_string_equal(model.ignored_keys, "");
    for (int i = 0; i < 52; i++) {
        sp_model space;
        const sp_model *alike = sp_model_of_kind(&model, sp_model_kind_of(&model, i), &space);
        assert_int_equal(alike->mixer, pattern[i] == 'M'   ? SP_MIXER_MAMBA2
                                       : pattern[i] == '*' ? SP_MIXER_ATTENTION
                                                           : SP_MIXER_NONE);
        assert_int_equal(alike->without_mlp, pattern[i] != '-');
    }
    refuses(NEMOTRON_H(4, "M-M", ""), "config.json: hybrid_override_pattern: expected a letter");
    refuses(NEMOTRON_H(4, "MX*-", ""), "config.json: hybrid_override_pattern: layers other than");
    refuses(NEMOTRON_H(2, "M-", ",'mamba_proj_bias2':0,'n_routed_experts':8"),
            "config.json: n_routed_experts: ");
}

// nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B: 31,577,940,288 in its weight files, of which 2,944 are
// numbers that choose experts evenly.
TEST(nemotron_3_nano_by_its_file)
{
    static const char rest[] =
        "'model_type':'nemotron_h','hidden_size':2688,'num_hidden_layers':52,"
        "'num_attention_heads':32,'num_key_value_heads':2,'head_dim':128,'intermediate_size':1856,"
        "'vocab_size':131072,'mamba_num_heads':64,'mamba_head_dim':64,'n_groups':8,"
        "'ssm_state_size':128,'conv_kernel':4,'expand':2,'chunk_size':128,'mlp_hidden_act':'relu2',"
        "'mamba_hidden_act':'silu','use_conv_bias':true,'use_bias':false,'mlp_bias':false,"
        "'attention_bias':false,'mamba_proj_bias':false,'residual_in_fp32':false,"
        "'tie_word_embeddings':false,'n_routed_experts':128,'n_shared_experts':1,"
        "'num_experts_per_tok':6,'moe_intermediate_size':1856,'n_group':1,'topk_group':1,"
        "'moe_shared_expert_intermediate_size':3712,'norm_topk_prob':true,"
        "'routed_scaling_factor':2.5,'rescale_prenorm_residual':true,'time_step_min':0.001,"
        "'time_step_max':0.1,'time_step_floor':0.0001,'num_logits_to_keep':1,"
        "'layer_norm_epsilon':1e-05,'norm_eps':1e-05,'rope_theta':10000,'sliding_window':null,"
        "'hidden_dropout':0.0,'attention_dropout':0.0";
    static const char pattern[] = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";
    char text[2500];
    snprintf(text, sizeof text, "{%s,'hybrid_override_pattern':'%s'}", rest, pattern);
    sp_model model = read_config(text);
    assert_int_equal(sp_model_parameters(&model), 31577940288 - 2944);
    assert_string_equal(model.ignored_keys, "");
    // Newer files have a name for each layer.
    snprintf(text, sizeof text, "{%s}", rest);
    json_auto_t *root = json_document(text);
    json_t *names = json_array();
    for (int i = 0; i < 52; i++) {
        sp_model space;
        const sp_model *alike = sp_model_of_kind(&model, sp_model_kind_of(&model, i), &space);
        assert_int_equal(alike->experts, pattern[i] == 'E' ? 128 : 0);
        assert_int_equal(alike->shared_ffn, pattern[i] == 'E' ? 3712 : 0);
        json_array_append_new(names, json_string(pattern[i] == 'M'   ? "mamba"
                                                 : pattern[i] == 'E' ? "moe"
                                                                     : "attention"));
    }
    json_object_set_new(root, "layers_block_type", names);
    sp_model again;
    must_succeed(sp_model_from_hf(root, "config.json", &again, ERR));
    assert_int_equal(sp_model_parameters(&again), sp_model_parameters(&model));
}

// Qwen/Qwen3.5-27B and Qwen3.5-35B-A3B: text model and the layer that predicts a further token.
TEST(qwen3_5_by_its_file)
{
#define QWEN3_5(type, hidden, layers, heads, kv, values, more)                                  \
    "{'model_type':'qwen3_5','vision_config':{'depth':27},'text_config':{'model_type':'" type   \
    "','hidden_size':" #hidden ",'num_hidden_layers':" #layers ",'num_attention_heads':" #heads \
    ",'num_key_value_heads':" #kv ",'linear_num_value_heads':" #values ",'vocab_size':248320,"  \
    "'head_dim':256,'linear_num_key_heads':16,'linear_value_head_dim':128,"                     \
    "'linear_key_head_dim':128,'linear_conv_kernel_dim':4,'full_attention_interval':4,"         \
    "'attn_output_gate':true,'attention_bias':false,'hidden_act':'silu','mlp_only_layers':[],"  \
    "'mamba_ssm_dtype':'float32','mtp_num_hidden_layers':1,'partial_rotary_factor':0.25,"       \
    "'mtp_use_dedicated_embeddings':false,'dtype':'bfloat16','tie_word_embeddings':false" more  \
    "}}"
    static const char dense[] =
        QWEN3_5("qwen3_5_text", 5120, 64, 24, 4, 48, ",'intermediate_size':17408");
    sp_model model = read_config(dense);
    assert_int_equal(sp_model_parameters(&model), 27320697856);
    assert_string_equal(model.ignored_keys, "");
    assert_string_equal(model.ignored_parts, "vision_config");
    model.mtp_layers = 0;
    assert_close(sp_model_attending_share(&model), 16.0 / 64.0, 1e-12);
    assert_int_equal(sp_model_parameters(&model), 26895998464);
    model = read_config(QWEN3_5("qwen3_5_moe_text", 2048, 40, 16, 2, 32,
                                ",'num_experts':256,'num_experts_per_tok':8,"
                                "'moe_intermediate_size':512,"
                                "'shared_expert_intermediate_size':512"));
    assert_int_equal(sp_model_parameters(&model), 35505251456);
    assert_true(model.attention_gate && model.kind[0].shared_gate);
    refuses(SMALL("qwen3_5_text", ",'mtp_num_hidden_layers':1,'full_attention_interval':4"),
            "config.json: mtp_num_hidden_layers: ");
    refuses(SMALL("qwen3_5_text", ",'attn_output_gate':false"), "config.json: attn_output_gate: ");
}

// ibm-granite/granite-4.0-h-tiny: 36 layers of Mamba-2 and 4 of attention, all with experts.
static const char granite_tiny[] = CONFIG(
    "granitemoehybrid", 1536, 40, 12, 4, 512, 100352,
    ",'num_local_experts':64,'num_experts_per_tok':6,'shared_intermediate_size':1024,"
    "'mamba_n_heads':48,'mamba_d_head':64,'mamba_n_groups':1,'mamba_d_state':128,'mamba_d_conv':4,"
    "'mamba_expand':2,'mamba_chunk_size':256,'mamba_conv_bias':true,'mamba_proj_bias':false,"
    "'position_embedding_type':'nope','tie_word_embeddings':true,'logits_scaling':6,"
    "'embedding_multiplier':12,'residual_multiplier':0.22,'attention_multiplier':0.0078125,"
    "'normalization_function':'rmsnorm'");

static json_t *with_types(const char *config, int layers, int every)
{
    json_t *root = json_document(config);
    json_t *types = json_array();
    for (int i = 0; i < layers; i++) {
        json_array_append_new(types, json_string(i % every == 5 ? "attention" : "mamba"));
    }
    json_object_set_new(root, "layer_types", types);
    return root;
}

TEST(granite_4_by_its_file)
{
    sp_model model;
    json_auto_t *root = with_types(granite_tiny, 40, 10);
    must_succeed(sp_model_from_hf(root, "config.json", &model, ERR));
    assert_int_equal(sp_model_parameters(&model), 6939037248);
    assert_string_equal(model.ignored_keys, "normalization_function");
    assert_int_equal(model.positional, SP_NO_POSITIONS);
    assert_close(sp_model_attending_share(&model), 0.1, 1e-12);
    // Without experts what would be shared is the MLP.
    json_object_set_new(root, "num_local_experts", json_integer(0));
    must_succeed(sp_model_from_hf(root, "config.json", &model, ERR));
    assert_int_equal(sp_model_parameters(&model),
                     6939037248 - 40 * (64 * mlp(3, 1536, 512) + 64 * 1536));
    refuses(SMALL("granitemoehybrid", ",'num_local_experts':0,'shared_intermediate_size':24"),
            "config.json: key 'layer_types' is missing");
}

TEST(bamba_by_its_form)
{
    static const char more[] =
        ",'attn_layer_indices':[2,5],'mamba_n_heads':16,'mamba_d_head':'auto','mamba_n_groups':2,"
        "'mamba_d_state':32,'mamba_d_conv':4,'mamba_expand':2,'mamba_conv_bias':true,"
        "'mamba_proj_bias':false,'mamba_chunk_size':256,'hidden_act':'silu'";
    char text[1000];
    snprintf(text, sizeof text, "%.*s%s}", (int)sizeof SMALL("bamba", "") - 2, SMALL("bamba", ""),
             more);
    sp_model model = read_config(text);
    const int64_t inner = 2 * H;
    const int64_t conv = inner + 2 * 2 * 32;
    const int64_t mamba = H * (inner + conv + 16) + 5 * conv + 3 * 16 + inner + inner * H;
    assert_int_equal(sp_model_parameters(&model), 4 * mamba + 2 * attention(H, A, G, D) +
                                                      L * (mlp(3, H, F) + 2 * H) + 2 * V * H + H);
    assert_string_equal(model.ignored_keys, "");
    refuses(SMALL("bamba", ",'mamba_d_head':64"), "config.json: mamba_d_head: 128 heads of 64");
    refuses(SMALL("bamba", ",'mamba_n_heads':16,'attn_layer_indices':[2,6]"),
            "config.json: attn_layer_indices: expected a list of layers");
    refuses(SMALL("bamba", ",'mamba_n_heads':16,'mamba_proj_bias':true"),
            "config.json: mamba_proj_bias: ");
}

// What is beside the sizes: activation, norms, windows, caps and dropout.
TEST(habits_of_families)
{
    sp_model model = read_config(models[0].config);
    assert_int_equal(model.window_tokens, 2047);
    model = read_config(SMALL("nemotron", ""));
    assert_true(model.activation == SP_SQUARED_RELU && model.norm == SP_LAYERNORM);
    model = read_config("{'model_type':'starcoder2','hidden_size':64,'num_hidden_layers':6,"
                        "'num_attention_heads':8,'intermediate_size':96,'vocab_size':1000,"
                        "'residual_dropout':0.1,'embedding_dropout':0.1,'attention_dropout':0.1}");
    assert_true(model.dropout == SP_DROPOUT_ON && model.window_tokens == 0);
    assert_true(model.activation == SP_GELU && model.kv_heads == 2 && model.tied_embeddings);
    model = read_config(SMALL("grok-1", ""));
    assert_true(model.soft_caps && model.post_norms && model.activation == SP_GEGLU);
    model = read_config(SMALL("grok-1", ",'max_attn_value':0"));
    assert_false(model.soft_caps);
    model = read_config(SMALL("minimax_m2", ",'num_local_experts':8,'num_experts_per_tok':2"));
    assert_true(model.qk_norm && model.qk_norm_whole);
    model = read_config(SMALL("smollm3", ",'layer_types':['full_attention','full_attention',"
                                         "'full_attention','full_attention','full_attention',"
                                         "'full_attention']"));
    assert_int_equal(model.runs, 0);
}

// Values of keys that a file leaves out, as the configuration classes of transformers 4.57.1 and of
// the models' repositories have them.
TEST(absent_keys)
{
#define BARE(type, layers, more)                                              \
    "{'model_type':'" type "','hidden_size':4096,'num_hidden_layers':" layers \
    ",'num_attention_heads':64,'intermediate_size':96,'vocab_size':1000" more "}"
    static const char routed[] = ",'moe_intermediate_size':24,'n_routed_experts':8,"
                                 "'num_experts_per_tok':2";
    static const struct {
        const char *config;
        int kv_heads;
        int64_t head_dim;
        int experts, active;
        bool tied;
    } files[] = {
        {BARE("qwen2", "2", ""), 32, 64, 0, 0, false},
        {BARE("qwen2_vl_text", "2", ""), 8, 64, 0, 0, false},
        {BARE("qwen2_5_vl_text", "2", ""), 8, 64, 0, 0, false},
        {BARE("qwen3_moe", "2", ",'moe_intermediate_size':24"), 4, 64, 128, 8, false},
        {BARE("qwen3_vl_moe_text", "2", ",'moe_intermediate_size':24"), 16, 64, 60, 4, false},
        {BARE("glm4", "2", ""), 2, 128, 0, 0, false},
        {BARE("glm4v_text", "2", ""), 2, 64, 0, 0, false},
        {BARE("stablelm", "2", ""), 32, 64, 0, 0, false},
        {BARE("qwen", "2", ""), 64, 128, 0, 0, false},
        {BARE("starcoder2", "2", ""), 2, 64, 0, 0, true},
        {BARE("smollm3", "2", ""), 4, 64, 0, 0, true},
        {BARE("seed_oss", "2", ""), 8, 128, 0, 0, false},
        {BARE("ernie4_5", "2", ""), 2, 128, 0, 0, true},
        {"{'model_type':'exaone','hidden_size':4096,'num_layers':2,'num_attention_heads':64,"
         "'intermediate_size':96,'vocab_size':1000}",
         64, 64, 0, 0, true},
        {"{'model_type':'chatglm','hidden_size':4096,'num_layers':2,'num_attention_heads':64,"
         "'multi_query_attention':true,'ffn_hidden_size':96,'padded_vocab_size':1000}",
         1, 128, 0, 0, false},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        sp_model model = read_config(files[i].config);
        assert_int_equal(model.kv_heads, files[i].kv_heads);
        assert_int_equal(model.head_dim, files[i].head_dim);
        assert_int_equal(model.experts, files[i].experts);
        assert_int_equal(model.experts_per_token, files[i].active);
        assert_int_equal(model.tied_embeddings, files[i].tied);
    }
    char text[500];
    snprintf(text, sizeof text, BARE("dots1", "2", "%s"), routed);
    assert_int_equal(read_config(text).kv_heads, 32);
    // Windows begin behind so many layers.
    sp_model model = read_config(BARE("qwen2", "29", ",'use_sliding_window':true"));
    sp_model space;
    assert_int_equal(model.kinds, 2);
    assert_int_equal(sp_model_of_kind(&model, sp_model_kind_of(&model, 28), &space)->window_tokens,
                     4096);
    model = read_config(BARE("qwen2_vl_text", "29", ",'use_sliding_window':true"));
    assert_true(model.kinds == 0 && model.window_tokens == 0);
}

// The LM head of ERNIE 4.5 with experts has a bias where the layers have, without experts none
// (transformers, modeling_ernie4_5_moe.py and modeling_ernie4_5.py).
TEST(biases_of_ernie)
{
    const char *bias[] = {",'head_dim':8,'moe_intermediate_size':24,'use_bias':false",
                          ",'head_dim':8,'moe_intermediate_size':24,'use_bias':true"};
    char text[2][500];
    for (int i = 0; i < 2; i++) {
        snprintf(text[i], sizeof text[i], SMALL("ernie4_5_moe", "%s,'moe_num_experts':8"), bias[i]);
    }
    const int64_t routed = 8 * (2 * W + H) + 2 * 2 * W + H;
    const int64_t dense = 2 * F + H;
    sp_model without = read_config(text[0]);
    sp_model with = read_config(text[1]);
    assert_int_equal(sp_model_parameters(&with) - sp_model_parameters(&without),
                     L * ((A + 2 * G) * D + H) + dense + (L - 1) * routed + V);
}

// Where published classes of one name differ, a file must say it.
TEST(what_must_be_stated)
{
    static const char *const keys[] = {
        "num_key_value_heads", "head_dim", "use_qk_norm", "num_shared_experts", "n_group",
        "topk_group",          "use_bias", "num_experts"};
    static const char whole[] = SMALL(
        "bailing_moe_v2",
        ",'head_dim':8,'use_qk_norm':true,'num_shared_experts':1,"
        "'first_k_dense_replace':0,'use_bias':false" EXPERTS("num_experts", "num_experts_per_tok"));
    sp_model model = read_config(whole);
    assert_true(model.qk_norm && model.experts == 8);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        json_auto_t *root = json_document(whole);
        char message[100];
        assert_int_equal(json_object_del(root, keys[i]), 0);
        snprintf(message, sizeof message, "config.json: key '%s' is missing", keys[i]);
        must_fail_with(sp_model_from_hf(root, "config.json", &model, ERR), SP_ERR_CONTENT, message);
        sp_error_clear(ERR);
    }
    // Files of the second kind may carry the name of the first, whose class has no such norms.
    static const char first[] =
        SMALL("bailing_moe",
              ",'head_dim':8,'use_bias':false%s" EXPERTS("num_experts", "num_experts_per_tok"));
    static const char *const norms[] = {"", ",'use_qk_norm':true"};
    for (int i = 0; i < 2; i++) {
        char text[600];
        snprintf(text, sizeof text, first, norms[i]);
        model = read_config(text);
        assert_int_equal(model.qk_norm, i);
        assert_string_equal(model.ignored_keys, "");
    }
    refuses(SMALL("bailing_moe", ",'num_experts':8,'num_experts_per_tok':2,"
                                 "'moe_intermediate_size':24,'use_bias':true"),
            "config.json: use_bias: ");
    refuses(SMALL("internlm3", ""), "config.json: key 'tie_word_embeddings' is missing");
}

TEST(dropout_in_one_place_is_refused)
{
    refuses(CONFIG("starcoder2", 64, 6, 8, 2, 96, 1000, ",'residual_dropout':0.1"),
            "config.json: embedding_dropout: dropout in one place and none");
}

TEST(what_a_family_cannot_have_is_refused)
{
    refuses(SMALL("nemotron", ",'hidden_act':'silu'"),
            "config.json: hidden_act: expected \"relu2\", got \"silu\"");
    refuses(SMALL("stablelm", ",'use_parallel_residual':true"),
            "config.json: use_parallel_residual: ");
    refuses(SMALL("stablelm", ",'qk_layernorm':true"), "config.json: qk_layernorm: ");
    refuses(SMALL("bailing_moe", ",'num_experts':8,'num_experts_per_tok':2,"
                                 "'moe_intermediate_size':24,'use_bias':false,'use_qkv_bias':true"),
            "config.json: use_qkv_bias: ");
    refuses(SMALL("minimax_m2", ",'num_local_experts':8,'num_experts_per_tok':2,"
                                "'attn_type_list':[1,1,0,1,1,1]"),
            "config.json: attn_type_list: expected 1 (softmax attention)");
    refuses(SMALL("minimax_m2", ",'num_local_experts':8"),
            "config.json: key 'num_experts_per_tok' is missing");
    refuses(SMALL("minicpm", ",'num_experts':8"), "config.json: num_experts: ");
    refuses(SMALL("hunyuan_v1_dense", ",'use_cla':true"), "config.json: use_cla: ");
    refuses(SMALL("hunyuan_v1_dense", ",'attention_head_dim':16"),
            "config.json: attention_head_dim: is 16, and the size of a head 8");
    refuses(SMALL("hunyuan_v1_moe", ",'num_experts':8,'moe_topk':[2,2,2,2,2,1]"),
            "config.json: moe_topk: expected an integer from 1 to");
    refuses(SMALL("hunyuan_v1_moe", ",'num_experts':8,'moe_topk':2,'moe_intermediate_size':24"),
            "config.json: moe_intermediate_size: is 24, and intermediate_size 96");
    refuses(SMALL("afmoe", ",'moe_intermediate_size':24,'num_expert_groups':4"),
            "config.json: num_expert_groups: is 4, and modelled is 1");
    refuses(SMALL("cwm", ""), "config.json: key 'layer_types' is missing");
    refuses(SMALL("solar_open", ",'moe_intermediate_size':24,'first_k_dense_replace':1"),
            "config.json: first_k_dense_replace: ");
    refuses(SMALL("glm4_moe_lite", ",'moe_intermediate_size':24"),
            "config.json: key 'q_lora_rank' is missing");
    refuses(CONFIG("qwen", 64, 6, 8, 8, 95, 1000, ",'kv_channels':16"),
            "config.json: intermediate_size: expected an even number, got 95");
    refuses("{'model_type':'chatglm','hidden_size':64,'num_layers':6,'num_attention_heads':8,"
            "'kv_channels':8,'ffn_hidden_size':96,'padded_vocab_size':1000,"
            "'post_layer_norm':false}",
            "config.json: post_layer_norm: ");
    refuses("{'model_type':'dbrx','d_model':64,'n_layers':6,'n_heads':8,'vocab_size':1000,"
            "'attn_config':{'kv_n_heads':2},'ffn_config':{'moe_num_experts':8,"
            "'n_shared_experts':1}}",
            "config.json: ffn_config.n_shared_experts: ");
    refuses("{'model_type':'dbrx','d_model':64,'n_layers':6,'n_heads':8,'vocab_size':1000,"
            "'ffn_config':{}}",
            "config.json: key 'attn_config' is missing");
    refuses(SMALL("bailing_moe_v2",
                  ",'num_shared_experts':1,'moe_shared_expert_intermediate_size'"
                  ":48,'use_bias':false,'use_qk_norm':true,'head_dim':8,'first_k_dense_replace':"
                  "0" EXPERTS("num_experts", "num_experts_per_tok")),
            "config.json: moe_shared_expert_intermediate_size: is not the width");
}

// Where the weight files leave something out, or Megatron-LM alone trains it, the key is named.
TEST(what_is_left_out_is_named)
{
    sp_model model = read_config(
        SMALL("minimax_m2", ",'num_local_experts':8,'num_experts_per_tok':2,'use_mtp':true,"
                            "'num_mtp_modules':3,'mtp_transformer_layers':1"));
    assert_string_equal(model.ignored_keys, "use_mtp, num_mtp_modules, mtp_transformer_layers");
    model = read_config(SMALL("ernie4_5_moe", ",'moe_intermediate_size':24,'moe_capacity':[64,64],"
                                              "'num_nextn_predict_layers':1"));
    assert_string_equal(model.ignored_keys, "moe_capacity, num_nextn_predict_layers");
}

// The text model may have one of several names, and sizes may stand beside what sees.
TEST(text_models_of_others)
{
    static const char *const around[] = {"text_config", "llm_config", "language_config"};
    for (size_t i = 0; i < sizeof around / sizeof around[0]; i++) {
        const char *text = json_text("{'model_type':'seeing','%s':%s,'vision_config':{'a':1}}",
                                     around[i], SMALL("qwen2", ""));
        sp_model model = read_config(text);
        assert_string_equal(model.name, "qwen2 (text)");
        assert_string_equal(model.ignored_parts, "vision_config");
    }
    sp_model model = read_config(SMALL("qwen2_vl", ",'vision_config':{'depth':32}"));
    assert_string_equal(model.ignored_parts, "vision_config");
    assert_string_equal(model.ignored_keys, "");
    // Newer files say the sizes twice.
    model = read_config(SMALL("qwen2_vl", ",'text_config':{'model_type':'qwen2_vl_text',"
                                          "'hidden_size':32,'num_hidden_layers':2,"
                                          "'num_attention_heads':4,'num_key_value_heads':2,"
                                          "'intermediate_size':48,'vocab_size':100}"));
    assert_int_equal(model.hidden, 32);
}

// layer_types say what a layer sees, no_rope_layers which have rotary positions: as they stand in
// published files both say the same.
TEST(contradictions_are_named)
{
    static const char agrees[] =
        "'no_rope_layers':[1,0],'layer_types':['chunked_attention','full_attention']";
    static const char differs[] =
        "'no_rope_layers':[0,1],'layer_types':['chunked_attention','full_attention']";
    for (int i = 0; i < 2; i++) {
        const char *text =
            json_text("{'model_type':'llama4_text','hidden_size':64,'num_hidden_layers':2,"
                      "'num_attention_heads':4,'num_key_value_heads':4,'vocab_size':100,"
                      "'intermediate_size':128,'use_qk_norm':false,%s}",
                      i == 0 ? agrees : differs);
        sp_model model = read_config(text);
        assert_string_equal(model.ignored_keys, i == 0 ? "" : "no_rope_layers");
        sp_model space;
        assert_int_equal(
            sp_model_of_kind(&model, sp_model_kind_of(&model, 0), &space)->chunk_tokens, 8192);
    }
}

// Kinds that no layer here can be are refused with what they have and what is read in their place.
TEST(kinds_that_are_not_read)
{
    refuses(SMALL("codegen", ""), "config.json: model_type: expected one of the ");
    static const char *const others[][2] = {
        {"codegen", ", got \"codegen\", which has attention and MLP side by side"},
        {"deepseek_v32",
         ", got \"deepseek_v32\", which has attention to tokens that an index chooses"},
        {"bloom", ", got \"bloom\", which has positions that are added to scores (ALiBi)"},
        {"unheard", "an object with the shape of the model (model.layers, model.hidden, ...), got "
                    "\"unheard\""},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char text[200];
        sp_model model;
        snprintf(text, sizeof text, "{'model_type':'%s'}", others[i][0]);
        json_auto_t *root = json_document(text);
        assert_int_equal(sp_model_from_hf(root, "config.json", &model, ERR), SP_ERR_CONTENT);
        size_t length = strlen(ERR->message[0]);
        size_t end = strlen(others[i][1]);
        assert_true(length > end);
        assert_string_equal(ERR->message[0] + length - end, others[i][1]);
        sp_error_clear(ERR);
    }
}

// Every kind that help lists is read, and no other.
TEST(kinds_are_listed)
{
    int kinds = 0;
    for (const char *kind; (kind = sp_model_hf_kind(kinds)) != NULL; kinds++) {
        char text[100];
        sp_model model;
        snprintf(text, sizeof text, "{'model_type':'%s'}", kind);
        json_auto_t *root = json_document(text);
        assert_int_equal(sp_model_from_hf(root, "config.json", &model, ERR), SP_ERR_CONTENT);
        assert_null(strstr(ERR->message[0], "model_type: expected"));
        sp_error_clear(ERR);
    }
    assert_true(kinds > 50);
    assert_null(sp_model_hf_kind(-1));
}
