#include "sim/model/model.h"
#include "sim/model/settings.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static sp_status read_text(const char *text, sp_model *model, sp_error *err)
{
    json_auto_t *root = NULL;
    sp_error_clear(err);
    must_succeed(sp_json_read_text(text, strlen(text), "config.json", &root, ERR));
    return sp_model_from_hf(root, "config.json", model, err);
}

static sp_model from_hf(const char *text)
{
    sp_model model;
    must_succeed(read_text(text, &model, ERR));
    return model;
}

// Totals that the model pages on Hugging Face give (num_parameters of the checkpoints).
TEST(published_parameters_of_builtins)
{
    const struct {
        const char *name;
        int64_t parameters;
    } published[] = {
        {"llama-7b", 6738415616},          {"llama-2-7b", 6738415616},
        {"llama-13b", 13015864320},        {"llama-2-13b", 13015864320},
        {"llama-65b", 65285660672},        {"llama-70b", 68976648192},
        {"llama-2-70b", 68976648192},      {"llama-3-8b", 8030261248},
        {"llama-3-70b", 70553706496},      {"mixtral-8x7b", 46702792704},
        {"mixtral-8x22b", 140620634112},   {"qwen3-30b-a3b", 30532122624},
        {"qwen3-235b-a22b", 235093634560}, {"glm-4.5", 352797814784},
        {"glm-4.5-air", 106852245504},     {"gpt-oss-20b", 20914757184},
        {"gpt-oss-120b", 116829156672},
    };
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        sp_model model = builtin_model(published[i].name);
        assert_int_equal(sp_model_parameters(&model), published[i].parameters);
    }
}

// Megatron-LM, arXiv 2104.04473, equation 2: P = 12*l*h^2*(1 + 13/(12*h) + (V + s)/(12*l*h)), which
// leaves out only the final norm's 2*h; and the rounded sizes of its table 1.
TEST(gpt_parameters_follow_megatron_formula)
{
    const struct {
        const char *name;
        double billions, tolerance;
    } gpt[] = {{"gpt-3.6b", 3.6, 0.06},  {"gpt-18.4b", 18.4, 0.06}, {"gpt-39.1b", 39.1, 0.06},
               {"gpt-175b", 175.0, 0.5}, {"gpt3-6.7b", 6.7, 0.2},   {"gpt3-13b", 13.0, 0.2}};
    for (size_t i = 0; i < sizeof gpt / sizeof gpt[0]; i++) {
        sp_model m = builtin_model(gpt[i].name);
        int64_t h = m.hidden;
        int64_t formula = m.layers * (12 * h * h + 13 * h) + (51200 + 2048) * h;
        assert_int_equal(sp_model_parameters(&m), formula + 2 * h);
        double billions = (double)formula / 1e9;
        assert_true(billions > gpt[i].billions - gpt[i].tolerance);
        assert_true(billions < gpt[i].billions + gpt[i].tolerance);
    }
}

TEST(builtins_are_valid_and_named)
{
    assert_true(sp_model_builtin_count() >= 16);
    assert_null(sp_model_builtin_name(-1));
    assert_null(sp_model_builtin_name(sp_model_builtin_count()));
    for (int i = 0; i < sp_model_builtin_count(); i++) {
        sp_model model = builtin_model(sp_model_builtin_name(i));
        assert_string_equal(model.name, sp_model_builtin_name(i));
        assert_int_equal(sp_model_check(&model, "builtin", "", NULL), SP_OK);
    }
}

TEST(unknown_name_gets_the_nearest)
{
    sp_model model;
    must_fail(sp_model_builtin("lama-13b", &model, ERR), SP_ERR_CONTENT,
              "unknown model 'lama-13b' (did you mean 'llama-13b'?)");
    must_fail(sp_model_builtin("transformer-xl", &model, ERR), SP_ERR_CONTENT,
              "unknown model 'transformer-xl'");
}

#define GEMMA2                                                                                     \
    "{\"model_type\":\"gemma2\",\"attn_logit_softcapping\":50.0,\"final_logit_softcapping\":30.0," \
    "\"hidden_act\":\"gelu_pytorch_tanh\",\"hidden_activation\":\"gelu_pytorch_tanh\","            \
    "\"query_pre_attn_scalar\":256,\"sliding_window\":4096,\"vocab_size\":256000,"

// Contents of the published config.json files and the parameter counts on their model pages.
TEST(huggingface_configs)
{
    const struct {
        const char *text;
        int64_t parameters;
    } configs[] = {
        // meta-llama/Meta-Llama-3-8B
        {"{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,\"hidden_act\":"
         "\"silu\",\"hidden_size\":4096,\"intermediate_size\":14336,\"model_type\":\"llama\","
         "\"num_attention_heads\":32,\"num_hidden_layers\":32,\"num_key_value_heads\":8,"
         "\"rope_scaling\":null,\"tie_word_embeddings\":false,\"vocab_size\":128256}",
         8030261248},
        // mistralai/Mistral-7B-v0.2
        {"{\"model_type\":\"mistral\",\"hidden_size\":4096,\"intermediate_size\":14336,"
         "\"num_attention_heads\":32,\"num_hidden_layers\":32,\"num_key_value_heads\":8,"
         "\"sliding_window\":null,\"vocab_size\":32000}",
         7241732096},
        // Qwen/Qwen2-7B: biases on q, k and v
        {"{\"model_type\":\"qwen2\",\"hidden_size\":3584,\"intermediate_size\":18944,"
         "\"num_attention_heads\":28,\"num_hidden_layers\":28,\"num_key_value_heads\":4,"
         "\"tie_word_embeddings\":false,\"vocab_size\":152064}",
         7615616512},
        // Qwen/Qwen2-0.5B: tied
        {"{\"model_type\":\"qwen2\",\"hidden_size\":896,\"intermediate_size\":4864,"
         "\"num_attention_heads\":14,\"num_hidden_layers\":24,\"num_key_value_heads\":2,"
         "\"tie_word_embeddings\":true,\"vocab_size\":151936}",
         494032768},
        // Qwen/Qwen3-0.6B: 16 heads of 128 on a width of 1024, norms of q and k, tied
        {"{\"model_type\":\"qwen3\",\"attention_bias\":false,\"head_dim\":128,\"hidden_size\":1024,"
         "\"intermediate_size\":3072,\"num_attention_heads\":16,\"num_hidden_layers\":28,"
         "\"num_key_value_heads\":8,\"tie_word_embeddings\":true,\"vocab_size\":151936}",
         596049920},
        // mistralai/Mixtral-8x7B-v0.1
        {"{\"model_type\":\"mixtral\",\"hidden_size\":4096,\"intermediate_size\":14336,"
         "\"num_attention_heads\":32,\"num_experts_per_tok\":2,\"num_hidden_layers\":32,"
         "\"num_key_value_heads\":8,\"num_local_experts\":8,\"vocab_size\":32000}",
         46702792704},
        // openai-community/gpt2
        {"{\"model_type\":\"gpt2\",\"activation_function\":\"gelu_new\",\"n_ctx\":1024,"
         "\"n_embd\":768,\"n_head\":12,\"n_layer\":12,\"n_positions\":1024,\"vocab_size\":50257}",
         124439808},
        // EleutherAI/gpt-neox-20b (arXiv 2204.06745, table 1)
        {"{\"model_type\":\"gpt_neox\",\"hidden_size\":6144,\"intermediate_size\":24576,"
         "\"num_attention_heads\":64,\"num_hidden_layers\":44,\"tie_word_embeddings\":false,"
         "\"vocab_size\":50432}",
         20554567680},
        // EleutherAI/pythia-70m
        {"{\"model_type\":\"gpt_neox\",\"hidden_size\":512,\"intermediate_size\":2048,"
         "\"num_attention_heads\":8,\"num_hidden_layers\":6,\"vocab_size\":50304}",
         70426624},
        // mistralai/Mistral-7B-v0.1
        {"{\"model_type\":\"mistral\",\"hidden_size\":4096,\"intermediate_size\":14336,"
         "\"num_attention_heads\":32,\"num_hidden_layers\":32,\"num_key_value_heads\":8,"
         "\"sliding_window\":4096,\"vocab_size\":32000}",
         7241732096},
        // google/gemma-2b
        {"{\"model_type\":\"gemma\",\"head_dim\":256,\"hidden_act\":\"gelu\",\"hidden_size\":2048,"
         "\"intermediate_size\":16384,\"num_attention_heads\":8,\"num_hidden_layers\":18,"
         "\"num_key_value_heads\":1,\"vocab_size\":256000}",
         2506172416},
        // google/gemma-2-2b, 9b, 27b
        {GEMMA2 "\"head_dim\":256,\"hidden_size\":2304,\"intermediate_size\":9216,"
                "\"num_attention_heads\":8,\"num_hidden_layers\":26,\"num_key_value_heads\":4}",
         2614341888},
        {GEMMA2 "\"head_dim\":256,\"hidden_size\":3584,\"intermediate_size\":14336,"
                "\"num_attention_heads\":16,\"num_hidden_layers\":42,\"num_key_value_heads\":8}",
         9241705984},
        {GEMMA2 "\"head_dim\":128,\"hidden_size\":4608,\"intermediate_size\":36864,"
                "\"num_attention_heads\":32,\"num_hidden_layers\":46,\"num_key_value_heads\":16}",
         27227128320},
        // google/gemma-3-1b-pt
        {"{\"model_type\":\"gemma3_text\",\"attn_logit_softcapping\":null,\"head_dim\":256,"
         "\"hidden_activation\":\"gelu_pytorch_tanh\",\"hidden_size\":1152,"
         "\"intermediate_size\":6912,\"num_attention_heads\":4,\"num_hidden_layers\":26,"
         "\"num_key_value_heads\":1,\"query_pre_attn_scalar\":256,\"sliding_window\":512,"
         "\"sliding_window_pattern\":6,\"vocab_size\":262144}",
         999885952},
        // The text models of google/gemma-3-4b-it and 27b-it, whose files leave out the library's
        // sizes.
        {"{\"model_type\":\"gemma3\",\"text_config\":{\"model_type\":\"gemma3_text\","
         "\"hidden_size\":2560,\"intermediate_size\":10240,\"num_hidden_layers\":34,"
         "\"sliding_window\":1024},\"vision_config\":{\"hidden_size\":1152}}",
         3880263168},
        {"{\"model_type\":\"gemma3\",\"text_config\":{\"model_type\":\"gemma3_text\","
         "\"head_dim\":128,\"hidden_size\":5376,\"intermediate_size\":21504,"
         "\"num_attention_heads\":32,\"num_hidden_layers\":62,\"num_key_value_heads\":16,"
         "\"query_pre_attn_scalar\":168,\"sliding_window\":1024}}",
         27009346304},
    };
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        sp_model model = from_hf(configs[i].text);
        assert_int_equal(sp_model_parameters(&model), configs[i].parameters);
    }
}

// Every second layer of Gemma 2 sees all tokens, every sixth of Gemma 3; scores are capped in Gemma
// 2 alone, and layers have four norms in both. Layers of Qwen see all before max_window_layers.
TEST(huggingface_windows_by_layer)
{
    static const char sizes[] = "'hidden_size':64,'num_attention_heads':8,'vocab_size':10,"
                                "'num_hidden_layers':8,'num_key_value_heads':4,"
                                "'intermediate_size':128";
    static const struct {
        const char *more, *layers; // a layer that sees a window of 1024: w; all: a
        bool post_norms, soft_caps;
    } cases[] = {
        {"'model_type':'gemma2','sliding_window':1024", "wawawawa", true, true},
        {"'model_type':'gemma2','sliding_window':1024,'attn_logit_softcapping':null", "wawawawa",
         true, false},
        {"'model_type':'gemma3_text','sliding_window':1024", "wwwwwaww", true, false},
        {"'model_type':'gemma3_text','sliding_window':1024,'sliding_window_pattern':3", "wwawwaww",
         true, false},
        {"'model_type':'gemma3_text','sliding_window':1024,'sliding_window_pattern':4,"
         "'layer_types':['sliding_attention','sliding_attention','sliding_attention',"
         "'full_attention','sliding_attention','sliding_attention','sliding_attention',"
         "'full_attention']",
         "wwwawwwa", true, false},
        {"'model_type':'gemma2','sliding_window':1024,'sliding_window_size':1024", "wawawawa", true,
         true},
        {"'model_type':'gemma','hidden_activation':null", "aaaaaaaa", false, false},
        {"'model_type':'mistral','sliding_window':1024", "wwwwwwww", false, false},
        {"'model_type':'qwen2','sliding_window':1024,'use_sliding_window':true,"
         "'max_window_layers':6",
         "aaaaaaww", false, false},
        {"'model_type':'qwen3','sliding_window':1024,'use_sliding_window':true", "aaaaaaaa", false,
         false},
        {"'model_type':'qwen3','sliding_window':1024,'layer_types':['sliding_attention',"
         "'full_attention','full_attention','full_attention','sliding_attention','full_attention',"
         "'full_attention','full_attention']",
         "waaawaaa", false, false},
        {"'model_type':'qwen3','sliding_window':1024,'use_sliding_window':false,'layer_types':["
         "'sliding_attention','full_attention','full_attention','full_attention',"
         "'sliding_attention','full_attention','full_attention','full_attention']",
         "aaaaaaaa", false, false},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const char *text = json_text("{%s,%s}", cases[c].more, sizes);
        sp_model model = from_hf(text);
        for (int layer = 0; layer < 8; layer++) {
            sp_model space;
            int kind = sp_model_kind_of(&model, layer);
            const sp_model *alike = sp_model_of_kind(&model, kind, &space);
            assert_int_equal(alike->window_tokens, cases[c].layers[layer] == 'w' ? 1024 : 0);
        }
        assert_string_equal(model.ignored_keys, "");
        assert_int_equal(model.post_norms, cases[c].post_norms);
        assert_int_equal(model.soft_caps, cases[c].soft_caps);
        assert_int_equal(model.activation, strstr(text, "gemma") != NULL ? SP_GEGLU : SP_SWIGLU);
        assert_int_equal(model.tied_embeddings, strstr(text, "gemma") != NULL);
    }
}

// 31 two-byte characters after one byte fill the 63 bytes of a name exactly; the 32nd is left out.
// After two bytes the 31st would be cut in half.
TEST(long_names_are_cut_between_characters)
{
    for (int ascii = 1; ascii <= 2; ascii++) {
        char text[400] = "{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_embd\":8,\"n_head\":1,"
                         "\"vocab_size\":9,\"_name_or_path\":\"";
        strcat(text, ascii == 1 ? "a" : "ab");
        for (int i = 0; i < 32; i++) {
            strcat(text, "\xc3\xa9");
        }
        strcat(text, "\"}");
        sp_model model = from_hf(text);
        assert_int_equal(strlen(model.name), ascii == 1 ? 63 : 62);
        json_auto_t *name = json_string(model.name);
        assert_non_null(name);
    }
}

TEST(huggingface_errors_name_key_and_file)
{
    sp_model model;
    assert_int_equal(read_text("{\"model_type\":\"llama\",\"hidden_size\":64,"
                               "\"num_attention_heads\":4,\"vocab_size\":10}",
                               &model, ERR),
                     SP_ERR_CONTENT);
    assert_int_equal(ERR->count, 2);
    assert_string_equal(ERR->message[0], "config.json: key 'num_hidden_layers' is missing");
    assert_string_equal(ERR->message[1], "config.json: key 'intermediate_size' is missing");

    must_fail(read_text("{}", &model, ERR), SP_ERR_CONTENT,
              "config.json: key 'model_type' is missing");
    assert_int_equal(read_text("[1]", &model, ERR), SP_ERR_CONTENT);

    // Another kind is no misspelt one.
    must_fail(read_text("{\"model_type\":\"llama4\"}", &model, ERR), SP_ERR_CONTENT,
              "config.json: model_type: expected one of the kinds that \"slimpack help "
              "model_types\" lists, or in place of the file an object with the shape of the model "
              "(model.layers, model.hidden, ...), got \"llama4\"");
    must_fail_with(read_text("{\"model_type\":\"gemma3n\",\"text_config\":{\"model_type\":"
                             "\"gemma3n_text\"}}",
                             &model, ERR),
                   SP_ERR_CONTENT, "config.json: text_config.model_type: expected one of");

    const char *bias = "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":4,"
                       "\"vocab_size\":10,\"num_hidden_layers\":2,\"intermediate_size\":128,"
                       "\"attention_bias\":true}";
    must_succeed(read_text(bias, &model, ERR));
    assert_true(model.qkv_bias && model.output_bias && !model.mlp_bias && !model.bias);

    const char *window = "{\"model_type\":\"mistral\",\"hidden_size\":64,\"num_attention_heads\":8,"
                         "\"vocab_size\":10,\"num_hidden_layers\":2,\"intermediate_size\":128,"
                         "\"sliding_window\":4096}";
    must_succeed(read_text(window, &model, ERR));
    assert_int_equal(model.window_tokens, 4096);
    // MistralConfig's default is Mistral 7B 0.1's; a file that says null has no windows, as a
    // Qwen's.
    static const struct {
        const char *more;
        int64_t tokens;
    } windows[] = {
        {"\"model_type\":\"mistral\"", 4096},
        {"\"model_type\":\"mistral\",\"sliding_window\":null", 0},
        {"\"model_type\":\"mixtral\"", 0},
        {"\"model_type\":\"llama\"", 0},
        {"\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"max_window_layers\":1,"
         "\"sliding_window\":null",
         0},
    };
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "{%s,\"hidden_size\":64,\"num_attention_heads\":32,\"vocab_size\":10,"
                 "\"num_hidden_layers\":2,\"intermediate_size\":128}",
                 windows[i].more);
        must_succeed(read_text(text, &model, ERR));
        assert_int_equal(model.window_tokens, windows[i].tokens);
    }
    const char *unused = "{\"model_type\":\"qwen2\",\"hidden_size\":64,\"num_attention_heads\":32,"
                         "\"vocab_size\":10,\"num_hidden_layers\":2,\"intermediate_size\":128,"
                         "\"sliding_window\":4096,\"use_sliding_window\":false}";
    must_succeed(read_text(unused, &model, ERR));
    assert_int_equal(model.window_tokens, 0);
    // A Llama file of another library's model; a Qwen file without the size.
    const char *llama = "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":8,"
                        "\"vocab_size\":10,\"num_hidden_layers\":2,\"intermediate_size\":128,"
                        "\"sliding_window\":2048}";
    must_succeed(read_text(llama, &model, ERR));
    assert_int_equal(model.window_tokens, 2048);
    const char *sizeless =
        "{\"model_type\":\"qwen3\",\"hidden_size\":64,\"num_attention_heads\":32,"
        "\"vocab_size\":10,\"num_hidden_layers\":2,\"intermediate_size\":128,"
        "\"max_window_layers\":1,\"use_sliding_window\":true}";
    must_succeed(read_text(sizeless, &model, ERR));
    assert_int_equal(model.runs, 2); // the second layer alone
    assert_int_equal(model.run[0].layers, 1);
    assert_int_equal(model.kind[0].window_tokens, 0);
    assert_int_equal(model.kind[1].window_tokens, 4096);
    const char *some = "{\"model_type\":\"qwen2\",\"hidden_size\":64,\"num_attention_heads\":32,"
                       "\"vocab_size\":10,\"num_hidden_layers\":2,\"intermediate_size\":128,"
                       "\"layer_types\":[\"full_attention\",\"sliding_attention\"],"
                       "\"sliding_window\":512,\"torch_dtype\":\"float16\"}";
    must_succeed(read_text(some, &model, ERR));
    assert_int_equal(model.runs, 2);
    assert_int_equal(model.kind[0].window_tokens, 0);
    assert_int_equal(model.kind[1].window_tokens, 512);
    assert_int_equal(model.stored_dtype, SP_STORED_FP16);
    // One message of one cause: heads divide no size that was refused.
    const char *none = "{\"model_type\":\"llama\",\"hidden_size\":0,\"num_attention_heads\":32,"
                       "\"vocab_size\":10,\"num_hidden_layers\":2,\"intermediate_size\":128}";
    must_fail_with(read_text(none, &model, ERR), SP_ERR_CONTENT, "config.json: hidden_size: ");
    assert_int_equal(ERR->count, 1);
    sp_error_clear(ERR);

    const char *odd = "{\"model_type\":\"llama\",\"hidden_size\":65,\"num_attention_heads\":4,"
                      "\"vocab_size\":10,\"num_hidden_layers\":2,\"intermediate_size\":128}";
    must_fail_with(read_text(odd, &model, ERR), SP_ERR_CONTENT,
                   "config.json: num_attention_heads: 4 heads");

    must_fail_with(sp_model_read_hf("/nonexistent/config.json", &model, ERR), SP_ERR_IO, "");
}

// Of a published config.json of each family, keys that mean nothing here, and each key that changes
// what is computed.
TEST(huggingface_keys_that_are_not_modelled_are_refused)
{
    static const char llama[] = "'hidden_size':64,'num_attention_heads':32,'vocab_size':10,"
                                "'num_hidden_layers':2,'intermediate_size':128";
    static const char gpt2[] = "'n_embd':64,'n_head':4,'vocab_size':10,'n_layer':2";
    static const struct {
        const char *kind, *more;
        const char *refused; // NULL: read
    } cases[] = {
        {"llama", "'rope_scaling':{'factor':8.0},'pretraining_tp':2,'rms_norm_eps':1e-5", NULL},
        {"llama", "'attention_dropout':0.0,'use_cache':true,'torch_dtype':'float16'", NULL},
        {"llama", "'quantization_config':null,'num_local_experts':0,'kv_lora_rank':null", NULL},
        {"llama", "'layer_types':['full_attention','full_attention'],'clip_qkv':8", NULL},
        {"qwen2", "'use_sliding_window':false,'max_window_layers':1,'sliding_window':4096", NULL},
        {"qwen2", "'use_sliding_window':true,'max_window_layers':2,'sliding_window':4096", NULL},
        {"qwen2", "'use_sliding_window':true,'max_window_layers':1,'sliding_window':4096", NULL},
        {"qwen2", "'qkv_bias':true", NULL},
        {"qwen2", "'use_sliding_window':true,'max_window_layers':2", NULL},
        {"mixtral", "'router_aux_loss_coef':0.02,'router_jitter_noise':0.0", NULL},
        {"qwen3", "'use_qk_norm':true", NULL},
        {"gpt2", "'activation_function':'gelu_new','use_bias':true,'n_ctx':1024", NULL},
        {"gpt_neox", "'use_parallel_residual':true,'rotary_pct':0.25,'hidden_act':'gelu'", NULL},
        {"llama", "'quantization_config':{'quant_method':'fp8','weight_block_size':[128,128]}",
         NULL},
        {"llama", "'quantization_config':{'quant_method':'gptq','bits':4}", "quantization_config"},
        {"llama", "'quantization_config':{'quant_method':'awq'}",
         "quantization_config: quantized weights are not modelled, without this key the model is "
         "simulated as it trains in BF16: expected it to be absent or null"},
        {"llama", "'quantization_config':{'quant_method':'bitsandbytes','load_in_4bit':true}",
         "quantization_config: weights in 4 bits are trained beside adapters alone: leave it out "
         "and state model.lora_rank and model.frozen_weights \"4bit\""},
        {"llama", "'num_local_experts':8", "num_local_experts"},
        {"llama", "'num_experts':64", "num_experts"},
        {"llama", "'n_routed_experts':64", "n_routed_experts"},
        {"qwen3", "'moe_intermediate_size':768", "moe_intermediate_size"},
        {"qwen2", "'shared_expert_intermediate_size':512", "shared_expert_intermediate_size"},
        {"mixtral", "'n_shared_experts':1", "n_shared_experts"},
        {"llama", "'kv_lora_rank':512", "kv_lora_rank"},
        {"llama", "'q_lora_rank':1536", "q_lora_rank"},
        {"llama", "'hidden_act':'relu'", "hidden_act"},
        {"gemma2", "'final_logit_softcapping':30.0,'cache_implementation':'hybrid'", NULL},
        {"gemma2", "'hidden_activation':'silu'", "hidden_activation"},
        {"gemma", "'attention_bias':true", NULL},
        {"gemma", "'sliding_window_pattern':6", "sliding_window_pattern"},
        {"mistral", "'hidden_act':'gelu_pytorch_tanh'", "hidden_act"},
        {"gpt2", "'activation_function':'relu'", "activation_function"},
        {"gpt_neox", "'hidden_act':'silu'", "hidden_act"},
        {"llama", "'attention_chunk_size':8192", "attention_chunk_size"},
        {"qwen3", "'layer_types':['full_attention','chunked_attention'],'sliding_window':8",
         "layer_types"},
        {"mixtral", "'decoder_sparse_step':2,'mlp_only_layers':[0]", "mlp_only_layers"},
        {"qwen2_moe", "'moe_intermediate_size':32,'first_k_dense_replace':1",
         "first_k_dense_replace"},
        {"qwen3_moe", "'moe_intermediate_size':32,'n_shared_experts':1", "n_shared_experts"},
        {"deepseek_v2", "'moe_intermediate_size':32,'kv_lora_rank':null", "kv_lora_rank"},
        {"deepseek_v2", "'moe_intermediate_size':32,'n_routed_experts':null", "n_routed_experts"},
        {"mixtral", "'num_experts_per_tok':null", "num_experts_per_tok"},
        {"olmoe", "'mamba_d_state':16", "mamba_d_state"},
        {"glm4_moe", "'moe_intermediate_size':32,'kv_lora_rank':512", "kv_lora_rank"},
        {"glm4_moe", "'first_k_dense_replace':0", "moe_intermediate_size' is missing"},
        {"gpt_oss", "'experts_per_token':8", "experts_per_token"},
        {"gpt_oss", "'quantization_config':{'quant_method':'mxfp4'}", "quantization_config"},
        {"llama4_text", "'intermediate_size_mlp':256,'no_rope_layers':[1]", "no_rope_layers"},
        {"qwen3", "'layer_types':['sliding_attention','full_attention']", "layer_types"},
        {"qwen3", "'layer_types':['full_attention']", "layer_types"},
        {"mistral", "'sliding_window':-1", "sliding_window"},
        {"qwen2", "'use_sliding_window':true,'max_window_layers':1,'sliding_window':'4K'",
         "sliding_window"},
        {"llama", "'pruned_heads':{'1':[0]}", "pruned_heads"},
        {"llama", "'num_moe_layers':3", "num_moe_layers"},
        {"qwen3", "'mlp_only_layers':[1]", "mlp_only_layers"},
        {"llama", "'quant_method':'gptq'", "quant_method"},
        {"mistral", "'multi_query_group_num':2", "multi_query_group_num"},
        {"llama", "'attention_window_size':2048", "attention_window_size"},
        {"llama", "'use_mla':true", "use_mla"},
        {"gpt2", "'resid_pdrop':0.0,'embd_pdrop':0.0,'attn_pdrop':0.1", "attn_pdrop"},
        {"gpt_neox", "'use_parallel_residual':false,'hidden_dropout':0.1", "attention_dropout"},
        {"llama", "'attn_logit_softcapping':50.0", "attn_logit_softcapping"},
        {"llama", "'use_qk_norm':true", "use_qk_norm"},
        {"mistral", "'mlp_bias':true", "mlp_bias"},
        {"mistral", "'attention_bias':true", "attention_bias"},
        {"llama", "'bias':true", "bias"},
        {"qwen2", "'lm_head_bias':true", "lm_head_bias"},
        {"llama", "'num_nextn_predict_layers':1", "num_nextn_predict_layers"},
        {"llama", "'mamba_d_state':16", "mamba_d_state"},
        {"llama", "'parallel_attn':true", "parallel_attn"},
        {"gpt2", "'multi_query':true", "multi_query"},
        {"gpt2", "'add_cross_attention':true", "add_cross_attention"},
        {"gpt_neox", "'num_key_value_heads':4", "num_key_value_heads"},
        {"mistral", "'vision_config':{'hidden_size':1024}", "vision_config"},
        {"llama", "'is_causal':false", "is_causal"},
        {"llama", "'torch_dtype':'float8_e4m3fn'", "torch_dtype"},
        {"llama", "'architectures':['LlamaForSequenceClassification']", "architectures"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char expected[200];
        sp_model model;
        bool is_gpt2 = strcmp(cases[i].kind, "gpt2") == 0;
        const char *text = json_text("{'model_type':'%s',%s,%s}", cases[i].kind,
                                     is_gpt2 ? gpt2 : llama, cases[i].more);
        if (cases[i].refused == NULL) {
            must_succeed(read_text(text, &model, ERR));
            continue;
        }
        snprintf(expected, sizeof expected, "config.json: %s%s",
                 strstr(cases[i].refused, "' is ") != NULL ? "key '" : "", cases[i].refused);
        must_fail_with(read_text(text, &model, ERR), SP_ERR_CONTENT, expected);
        assert_int_equal(ERR->count, 1);
    }
}

// The library's GPT-2 drops a tenth where the file says nothing, its GPT-NeoX nothing (Pythia).
TEST(dropout_follows_the_file)
{
    static const struct {
        const char *kind, *more;
        sp_dropout dropout;
    } cases[] = {
        {"gpt2", "", SP_DROPOUT_ON},
        {"gpt2", ",'resid_pdrop':0.0,'embd_pdrop':0.0,'attn_pdrop':0", SP_DROPOUT_OFF},
        {"gpt_neox", "", SP_DROPOUT_OFF},
        {"gpt_neox", ",'hidden_dropout':0.1,'attention_dropout':0.1,'use_parallel_residual':false",
         SP_DROPOUT_ON},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text =
            json_text("{'model_type':'%s','n_embd':64,'n_head':4,'n_layer':2,'hidden_size':64,"
                      "'num_attention_heads':4,'num_hidden_layers':2,'intermediate_size':128,"
                      "'vocab_size':10%s}",
                      cases[i].kind, cases[i].more);
        assert_int_equal(from_hf(text).dropout, cases[i].dropout);
        assert_string_equal(from_hf(text).ignored_dropout, "");
    }
}

// A Llama's layers have none here: a file that asks for it is told by its key.
TEST(dropout_that_is_not_modelled_is_named)
{
    static const struct {
        const char *kind, *more, *key;
    } cases[] = {
        {"llama", "\"attention_dropout\":0.0", ""},
        {"llama", "\"attention_dropout\":0.1", "attention_dropout"},
        {"mistral", "\"sliding_window\":null,\"resid_pdrop\":0.1", "resid_pdrop"},
        {"mixtral", "\"hidden_dropout_prob\":1", "hidden_dropout_prob"},
        {"qwen3", "\"layerdrop\":0.2", "layerdrop"},
        {"gpt_neox", "\"hidden_dropout\":0.1", "hidden_dropout"}, // of blocks side by side
        {"llama", "\"classifier_dropout\":0.1,\"attention_dropout\":null", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "{\"model_type\":\"%s\",\"hidden_size\":64,\"num_attention_heads\":32,"
                 "\"vocab_size\":10,\"num_hidden_layers\":2,\"intermediate_size\":128,%s}",
                 cases[i].kind, cases[i].more);
        assert_string_equal(from_hf(text).ignored_dropout, cases[i].key);
    }
}

// What neither is read nor known to change nothing is named, as far as names fit; what asks for
// nothing is not.
TEST(keys_that_are_not_known_are_named)
{
    static const char config[] =
        "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":4,\"vocab_size\":10,"
        "\"num_hidden_layers\":2,\"intermediate_size\":128,\"rope_theta\":500000.0,"
        "\"rms_norm_eps\":1e-05,\"initializer_range\":0.02,\"bos_token_id\":1,"
        "\"pretraining_tp\":1,\"transformers_version\":\"4.57.1\",\"use_cache\":true,%s}";
    static const struct {
        const char *more, *keys;
    } cases[] = {
        {"\"residual_multiplier\":0,\"alibi\":false,\"multiple_of\":null", ""},
        {"\"residual_multiplier\":0.2,\"alibi\":true", "residual_multiplier, alibi"},
        {"\"multi_token_prediction\":2,\"no_rope_layers\":[1,0],\"window_length\":8",
         "multi_token_prediction, no_rope_layers, window_length"},
        {"\"max_sequence_length\":8,\"pad_token_id\":1,\"output_attentions\":true", ""},
    };
    char text[1200];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, config, cases[i].more);
        assert_string_equal(from_hf(text).ignored_keys, cases[i].keys);
    }
    char many[600] = "";
    for (int i = 0; i < 30; i++) {
        snprintf(many + strlen(many), sizeof many - strlen(many), "%s\"unheard_%d\":1",
                 i > 0 ? "," : "", i);
    }
    snprintf(text, sizeof text, config, many);
    sp_model model = from_hf(text);
    assert_memory_equal(model.ignored_keys, "unheard_0, unheard_1, ", 22);
    assert_string_equal(model.ignored_keys + strlen(model.ignored_keys) - 5, ", ...");
    must_fail(
        read_text("{\"peft_type\":\"LORA\",\"r\":8}", &model, ERR), SP_ERR_CONTENT,
        "config.json: peft_type: adapters (LoRA) are asked for by model.lora_rank, beside the "
        "config.json of their base model");
}

// Whatever a setting is called here or elsewhere: a key of that name that no reader of the family
// takes is refused or named, so that no word of harmless keys hides it.
static void no_key_hides(const char *name)
{
    static const char harmless[] = "name max_positions max_position_embeddings n_positions";
    json_auto_t *config = json_pack("{ss, si, si, si, si, si}", "model_type", "llama",
                                    "hidden_size", 64, "num_attention_heads", 32, "vocab_size", 10,
                                    "num_hidden_layers", 2, "intermediate_size", 128);
    sp_model plain;
    sp_model model;
    sp_error_clear(ERR);
    must_succeed(sp_model_from_hf(config, "config.json", &plain, ERR));
    if (json_object_get(config, name) == NULL && !sp_names_hold(harmless, name)) {
        json_object_set_new(config, name, json_integer(3));
        if (sp_model_from_hf(config, "config.json", &model, ERR) == SP_OK) {
            json_auto_t *without = sp_model_to_json(&plain);
            json_auto_t *with = sp_model_to_json(&model);
            must_hold(!json_equal(without, with), "%s changes nothing in silence", name);
        }
    }
    sp_error_clear(ERR);
}

TEST(settings_are_not_hidden_by_harmless_words)
{
    for (int i = 0; i < sp_model_settings.count; i++) {
        const sp_setting *row = &sp_model_settings.rows[i];
        no_key_hides(sp_setting_leaf(row->key));
        char aliases[200];
        snprintf(aliases, sizeof aliases, "%s", row->aliases != NULL ? row->aliases : "");
        char *rest = NULL;
        for (char *word = strtok_r(aliases, " ", &rest); word != NULL;
             word = strtok_r(NULL, " ", &rest)) {
            no_key_hides(word);
        }
    }
}

TEST(mlp_beside_the_attention)
{
    static const char neox[] =
        "{\"model_type\":\"gpt_neox\",\"hidden_size\":64,\"num_attention_heads\":4,"
        "\"vocab_size\":10,\"num_hidden_layers\":2,\"intermediate_size\":128%s}";
    static const struct {
        const char *more;
        sp_blocks blocks;
    } cases[] = {
        {"", SP_BLOCKS_TWO_NORMS},
        {",\"use_parallel_residual\":true", SP_BLOCKS_TWO_NORMS},
        {",\"use_parallel_residual\":false", SP_BLOCKS_IN_TURN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[300];
        snprintf(text, sizeof text, neox, cases[i].more);
        assert_string_equal(from_hf(text).ignored_keys, "");
        assert_int_equal(from_hf(text).blocks, cases[i].blocks);
    }
}

// mistralai/Mistral-Small-3.1-24B: its text model has the parameters of Mistral-Small-24B-2501.
TEST(text_part_of_a_model_that_sees)
{
    sp_model model =
        from_hf("{\"model_type\":\"mistral3\",\"vision_config\":{\"model_type\":\"pixtral\"},"
                "\"text_config\":{\"model_type\":\"mistral\",\"hidden_size\":5120,\"head_dim\":128,"
                "\"intermediate_size\":32768,\"num_attention_heads\":32,\"num_hidden_layers\":40,"
                "\"num_key_value_heads\":8,\"sliding_window\":null,\"vocab_size\":131072}}");
    assert_int_equal(sp_model_parameters(&model), 23572403200);
    assert_string_equal(model.name, "mistral (text)");
    assert_string_equal(model.ignored_parts, "vision_config");
    assert_string_equal(model.ignored_keys, "");
    assert_int_equal(model.stored_dtype, SP_STORED_BF16);
    // One in FP8 says so around its text model.
    model =
        from_hf("{\"model_type\":\"mistral3\",\"quantization_config\":{\"quant_method\":\"fp8\"},"
                "\"text_config\":{\"model_type\":\"mistral\",\"torch_dtype\":\"bfloat16\","
                "\"hidden_size\":512,\"intermediate_size\":1024,\"num_attention_heads\":4,"
                "\"num_hidden_layers\":2,\"num_key_value_heads\":4,\"vocab_size\":1000}}");
    assert_int_equal(model.stored_dtype, SP_STORED_FP8);
    must_fail_with(read_text("{\"model_type\":\"mistral3\",\"quantization_config\":{\"bits\":4},"
                             "\"text_config\":{\"model_type\":\"mistral\"}}",
                             &model, ERR),
                   SP_ERR_CONTENT, "config.json: quantization_config: ");
}

static void object_from(const char *text, sp_model *model, sp_error *err)
{
    json_auto_t *root = NULL;
    sp_error_clear(err);
    must_succeed(sp_json_read_text(text, strlen(text), "scenario.json", &root, ERR));
    sp_object object;
    sp_object_begin(&object, root, "scenario.json", "model", err);
    sp_model_from_object(&object, model);
}

TEST(scenario_object)
{
    sp_model model;
    object_from("{\"layers\":32,\"hidden\":4096,\"ffn\":11008,\"heads\":32,\"vocab\":32000}",
                &model, ERR);
    assert_int_equal(ERR->count, 0);
    assert_int_equal(sp_model_parameters(&model), 6738415616); // Llama-2 7B

    object_from("{\"layers\":12,\"hidden\":768,\"heads\":12,\"vocab\":50257,\"max_positions\":1024,"
                "\"activation\":\"gelu\",\"norm\":\"layernorm\",\"positional\":\"learned\","
                "\"tied_embeddings\":true,\"bias\":true}",
                &model, ERR);
    assert_int_equal(ERR->count, 0);
    assert_int_equal(sp_model_parameters(&model), 124439808); // GPT-2

    // Squared ReLU has one matrix before it, and no dropout unless it is asked for.
    object_from("{\"layers\":2,\"hidden\":64,\"heads\":4,\"vocab\":8,\"activation\":"
                "\"squared-relu\"}",
                &model, ERR);
    assert_int_equal(ERR->count, 0);
    assert_int_equal(model.activation, SP_SQUARED_RELU);
    assert_int_equal(model.dropout, SP_DROPOUT_USUAL);
    assert_int_equal(model.ffn, 256);
    for (int on = 0; on < 2; on++) {
        char text[128];
        sp_model back;
        snprintf(text, sizeof text,
                 "{\"layers\":2,\"hidden\":64,\"heads\":4,\"vocab\":8,\"activation\":\"gelu\","
                 "\"dropout\":%s}",
                 on == 1 ? "true" : "false");
        object_from(text, &model, ERR);
        assert_int_equal(ERR->count, 0);
        assert_int_equal(model.dropout, on == 1 ? SP_DROPOUT_ON : SP_DROPOUT_OFF);
        json_auto_t *json = sp_model_to_json(&model);
        AUTO_FREE char *written = json_dumps(json, 0);
        object_from(written, &back, ERR);
        assert_int_equal(back.dropout, model.dropout);
    }

    object_from("{\"layers\":0,\"hidden\":64,\"heads\":\"four\",\"vocabulary\":1}", &model, ERR);
    assert_int_equal(ERR->status, SP_ERR_CONTENT);
    assert_string_equal(ERR->message[0],
                        "scenario.json: model.layers: expected an integer from 1 to 4096, got 0");
    assert_int_equal(ERR->count, 5);

    object_from("{\"layers\":1,\"hidden\":64,\"heads\":4,\"kv_heads\":3,\"vocab\":8,\"ffn\":8}",
                &model, ERR);
    assert_string_equal(ERR->message[0], "scenario.json: model.kv_heads: 3 key and value heads do "
                                         "not divide 4 query heads");
}

TEST(one_linear_layer_without_a_bias_among_others_is_refused)
{
    sp_model model;
    object_from("{\"layers\":2,\"hidden\":64,\"heads\":4,\"ffn\":128,\"vocab\":8,\"bias\":true,"
                "\"qkv_bias\":false}",
                &model, ERR);
    assert_string_equal(ERR->message[0],
                        "scenario.json: model.qkv_bias: is false, while \"bias\" gives every "
                        "linear layer one, that of QKV too");
}

TEST(oversized_model_is_refused)
{
    sp_model model = builtin_model("mixtral-8x7b");
    model.layers = 4096;
    model.hidden = 1 << 18;
    model.ffn = 1 << 21;
    model.experts = 1024;
    must_fail(sp_model_check(&model, "x.json", "model", ERR), SP_ERR_CONTENT,
              "x.json: model: more than 2^50 parameters");
    model.layers = 1 << 20;
    must_fail_with(sp_model_check(&model, "x.json", "model", ERR), SP_ERR_CONTENT,
                   "x.json: model.layers: expected an integer from 1");
}

// Korthikanti et al., arXiv 2205.05198, appendix A: 24*b*s*h^2 + 4*b*s^2*h forward per layer and
// 2*b*s*h*V for the logits, all pairs counted. (GPT-3 175B at its s = 2048.)
TEST_ROUNDS(forward_flops_follow_the_closed_form, 11, 100)
{
    sp_model model = builtin_model("gpt-175b");
    double h = 12288.0;
    double s = (double)(1 + sp_prng_below(prng, 8192));
    double layer = 24.0 * s * h * h + 4.0 * s * s * h;
    double expected = 96.0 * layer + 2.0 * s * h * 51200.0;
    double counted = sp_model_forward_flops(&model, s, 2.0 * s * s);
    assert_true(counted > expected * (1.0 - 1e-12) && counted < expected * (1.0 + 1e-12));
}

// Mixtral 8x7B runs 12.88e9 parameters per token (arXiv 2401.04088: "13B active"), of which the
// token table (131e6), the norms and the router's share cost no or few FLOPs.
TEST(experts_count_by_use)
{
    sp_model model = builtin_model("mixtral-8x7b");
    double active = sp_model_forward_flops(&model, 1.0, 0.0) / 2.0;
    assert_true(active > 12.7e9 && active < 12.9e9);
}
