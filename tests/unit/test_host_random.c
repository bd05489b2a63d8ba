// Random plans: slices and padding anywhere, backward packs that have nothing to do with the
// forward packs, forwards that run again, split and whole backwards side by side, recompute modes.
// Gradients and loss are those of the plain step.
#include "sim/base/prng.h"
#include "tests/support/host_run.h"
#include "tests/support/plan_sample.h"
#include "tests/support/random_plan.h"
#include "tests/support/test_main.h"

// Takes out what the device cannot execute.
static void remove_copies(const sp_plan *plan)
{
    for (int s = 0; s < plan->layout.dp * plan->layout.pp; s++) {
        sp_stage_plan *stage = &plan->stages[s];
        size_t kept = 0;
        for (size_t a = 0; a < stage->count; a++) {
            bool copy =
                stage->actions[a].kind == SP_ACTION_O || stage->actions[a].kind == SP_ACTION_L;
            stage->actions[kept] = stage->actions[a];
            kept += !copy;
        }
        stage->count = kept;
    }
}

// A layout of at most four stages and its four layers in shares that need not be equal.
static void draw_layers(sp_prng *prng, sp_layout *layout, int *layers, int total)
{
    int stages = sp_layout_vstages(layout);
    for (int s = 0; s < stages; s++) {
        bool end = s == 0 || s + 1 == stages;
        layers[s] = end && stages > 1 ? 0 : 1;
        total -= layers[s];
    }
    while (total > 0) {
        layers[random_below(prng, stages)]++;
        total--;
    }
    layout->stage_layers = layers;
}

// Is there something to train, and no pack on several ranks, which the device refuses?
static bool is_wanted(const random_plan *r)
{
    const sp_pack_list *packs = &r->packing.forward;
    bool merged = false;
    for (size_t p = 0; p < packs->count; p++) {
        merged = merged || packs->packs[p].dp_count > 1;
    }
    return r->batch.count > 0 && packs->slice_count > 0 && !merged;
}

static void agree(const sp_model *model, const char *dropout, uint64_t seed, int count,
                  sp_precision precision)
{
    const sp_backend_option option = {"dropout", dropout};
    sp_prng prng;
    host_device device;
    int ran = 0;
    sp_prng_seed(&prng, seed);
    host_open(&device);
    while (ran < count) {
        random_plan r;
        int layers[6];
        random_plan_make(&prng, 3, 2, &r);
        random_agreed_actions(&prng, &r);
        remove_copies(&r.plan);
        draw_layers(&prng, &r.plan.layout, layers, model->layers);
        const sp_memory_options memory = {
            .recompute = (sp_recompute)random_below(&prng, SP_RECOMPUTE_MODES)};
        const sp_run_request request = {.plan = &r.plan,
                                        .model = model,
                                        .memory = &memory,
                                        .precision = precision,
                                        .seed = seed,
                                        .steps = 1,
                                        .options = &option,
                                        .option_count = 1,
                                        .memory_points = true};
        if (is_wanted(&r)) {
            host_must_agree(&device, &request, precision == SP_FP64 ? 1e-10 : 1e-4);
            ran++;
        }
        random_plan_fini(&r);
    }
    host_close(&device);
}

static void llama_in_fp64(void **state)
{
    (void)state;
    sp_model model = host_llama();
    agree(&model, "0", 1, 40, SP_FP64);
    model.tied_embeddings = true;
    model.qkv_bias = true;
    agree(&model, "0", 2, 20, SP_FP64);
}

static void gpt_in_fp64(void **state)
{
    (void)state;
    sp_model model = host_gpt();
    agree(&model, "0", 3, 40, SP_FP64);
    agree(&model, "0.25", 5, 30, SP_FP64);
}

static void llama_in_fp32(void **state)
{
    (void)state;
    sp_model model = host_llama();
    agree(&model, "0", 4, 40, SP_FP32);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(llama_in_fp64),
    cmocka_unit_test(gpt_in_fp64),
    cmocka_unit_test(llama_in_fp32),
};

SP_TEST_MAIN(tests)
