#include "tests/support/host_run.h"
#include "tests/support/initializers.h"

#include "tests/support/test_main.h"

sp_model host_llama(void)
{
    return (sp_model){.name = "llama", LLAMA_SHAPE(4, 32, 48, 4, 2, 61)};
}

sp_model host_gpt(void)
{
    return (sp_model){.name = "gpt",
                      GPT_SHAPE(4, 32, 64, 4, 61),
                      .max_positions = 1024,
                      .tied_embeddings = true,
                      .bias = true};
}

sp_model host_kinds(void)
{
    sp_model model = host_llama();
    const sp_layer_mlp window = {.ffn = 48, .window_tokens = 5};
    const sp_layer_mlp chunk = {.ffn = 64, .chunk_tokens = 7};
    const sp_layer_mlp all = {.ffn = 48};
    const sp_layer_mlp of_layer[] = {window, chunk, window, all};
    assert_true(sp_model_set_kinds(&model, of_layer));
    return model;
}

sp_model host_routed(void)
{
    sp_model model = host_llama();
    sp_layer_mlp of_layer[] = {
        {.ffn = 48},
        {.ffn = 24, .experts = 4, .experts_per_token = 2},
        {.ffn = 16, .experts = 6, .experts_per_token = 3, .shared_ffn = 24},
        {.ffn = 16, .experts = 6, .experts_per_token = 3, .shared_ffn = 24, .shared_gate = true}};
    assert_true(sp_model_set_kinds(&model, of_layer));
    return model;
}

sp_model host_latent(bool of_queries)
{
    sp_model model = host_routed();
    model.kv_heads = model.heads;
    model.qk_nope_dim = 5;
    model.qk_rope_dim = 4;
    model.head_dim = 9;
    model.v_head_dim = 6;
    model.kv_lora_rank = 10;
    model.q_lora_rank = of_queries ? 12 : 0;
    return model;
}

void host_open(host_device *device)
{
    assert_int_equal(sp_registry_new(&device->registry, NULL), SP_OK);
    assert_int_equal(sp_registry_find(device->registry, "host", &device->backend, NULL), SP_OK);
}

host_device host_opened(void)
{
    host_device device;
    host_open(&device);
    return device;
}

void host_device_fini(host_device *device)
{
    sp_registry_free(device->registry);
}

sp_run *host_run(const host_device *device, const sp_run_request *request)
{
    sp_run *run = NULL;
    must_succeed(sp_backend_run(device->backend, 0, request, &run, ERR));
    return run;
}

// ---- the plain step ----

void host_plain_make(const sp_run_request *request, host_plain *plain)
{
    must_succeed(sp_plain_step_make(request, plain, ERR));
}

void host_plain_fini(host_plain *plain)
{
    sp_plain_step_fini(plain);
}

// ---- comparison ----

double *host_tensor(const sp_run *run, const sp_tensor_info *info)
{
    double *values = sp_calloc((size_t)info->elements, sizeof *values);
    assert_int_equal(sp_run_tensor_read(run, info->name, values, info->elements, NULL), SP_OK);
    return values;
}

double *host_tensor_of(const sp_run *run, const char *folder, const sp_tensor_info *info)
{
    sp_tensor_info other = *info;
    snprintf(other.name, sizeof other.name, "%s/%s", folder, strchr(info->name, '/') + 1);
    return host_tensor(run, &other);
}

double host_distance(const sp_run *a, const sp_run *b, const char *prefix)
{
    size_t counts[2];
    double worst = 0.0;
    int compared = 0;
    assert_int_equal(sp_run_tensor_count(a, &counts[0], NULL), SP_OK);
    assert_int_equal(sp_run_tensor_count(b, &counts[1], NULL), SP_OK);
    assert_int_equal(counts[0], counts[1]);
    for (size_t i = 0; i < counts[1]; i++) {
        sp_tensor_info info;
        assert_int_equal(sp_run_tensor_at(b, i, &info, NULL), SP_OK);
        if (strncmp(info.name, prefix, strlen(prefix)) == 0) {
            sp_proven_tensor tensor;
            assert_int_equal(sp_proof_tensor(a, b, &info, &tensor, NULL), SP_OK);
            worst = fmax(worst, tensor.error);
            compared++;
        }
    }
    assert_true(compared > 0);
    return worst;
}

void host_must_agree(const host_device *device, const sp_run_request *request)
{
    AUTO(sp_proof) proof;
    must_succeed(sp_proof_run(device->backend, 0, device->backend, request, &proof, ERR));
    const sp_proven_tensor *worst = &proof.tensors[proof.worst];
    must_hold(proof.holds, "%s is off by %.3g, over the bound of %.0e", worst->name, worst->error,
              worst->bound);
}
