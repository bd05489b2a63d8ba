// Every set of modules that can run again, executed on the CPU: gradients and loss are those of the
// plain step.
#include "tests/support/host_random.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/test_main.h"

// Layers with latent attention, a dense MLP, experts, and shared experts with and without a gate.
TEST(all_sets_have_the_plain_gradients)
{
    const sp_model model = host_latent(true);
    sp_prng prng = prng_seeded(3);
    AUTO(random_plan) r;
    int layers[HOST_STAGES];
    while (!host_random_plan(&prng, model.layers, layers, &r)) {
        random_plan_fini(&r);
    }
    AUTO(host_device) device = host_opened();
    for (unsigned bits = 0; bits < 1u << SP_MODULES; bits++) {
        const sp_memory_options memory = {.recompute = sp_recompute_of_modules(bits << 3)};
        const sp_run_request request = {RUN_OF(&r.plan, &model, &memory), RUN_STEPS(SP_FP64, 3, 1)};
        assert_null(sp_recompute_lacks(memory.recompute, &model, NULL));
        host_must_agree(&device, &request);
    }
}
