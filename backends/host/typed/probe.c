#include "backends/executor/typed/layer.h"
#include "backends/host/calibrate.h"
#include "kernels/typed.h"
#include "sim/base/prng.h"

static void fill(uint64_t seed, int64_t n, void *values)
{
    sp_prng prng;
    sp_prng_seed(&prng, seed);
    real *value = values;
    for (int64_t i = 0; i < n; i++) {
        value[i] = (real)(2.0 * sp_prng_uniform(&prng) - 1.0);
    }
}

static void product(sp_i_product kind, int64_t tokens, int64_t in, int64_t out, void *x,
                    void *weight, void *y)
{
    switch (kind) {
    case SP_I_PRODUCT_FORWARD:
        SP_KERNEL(linear)(tokens, in, out, x, in, weight, in, NULL, y, out);
        return;
    case SP_I_PRODUCT_INPUT:
        SP_KERNEL(linear_backward_input)(tokens, in, out, y, out, weight, in, false, x, in);
        return;
    case SP_I_PRODUCT_WEIGHT:
        SP_KERNEL(linear_backward_weight)(tokens, in, out, y, out, x, in, weight, in, NULL);
        return;
    case SP_I_PRODUCTS:
        break;
    }
    SP_UNREACHABLE("a product");
}

static void attention(bool backward, const sp_kernel_attention_shape *shape, int64_t context,
                      int64_t queries, void *const *t)
{
    real *workspace = t[SP_I_HOST_PROBE_WORKSPACE];
    const real *q = t[SP_I_HOST_PROBE_Q];
    const real *k = t[SP_I_HOST_PROBE_K];
    const real *v = t[SP_I_HOST_PROBE_V];
    real *out = t[SP_I_HOST_PROBE_OUT];
    real *lse = t[SP_I_HOST_PROBE_LSE];
    if (!backward) {
        SP_KERNEL(attention)(shape, context, queries, q, k, v, out, lse, workspace);
        return;
    }
    SP_KERNEL(attention_backward_input)
    (shape, context, queries, q, k, v, out, t[SP_I_HOST_PROBE_DOUT], lse, t[SP_I_HOST_PROBE_DQ],
     t[SP_I_HOST_PROBE_DK], t[SP_I_HOST_PROBE_DV], workspace);
}

// Maximum and sum, or lse and delta, of the queries stand one behind the other.
static void attention_block(bool backward, const sp_kernel_attention_shape *shape, int64_t keys,
                            int64_t queries, void *const *t)
{
    const sp_kernel_attention_block block = {keys, queries, 0, keys};
    real *workspace = t[SP_I_HOST_PROBE_WORKSPACE];
    const real *q = t[SP_I_HOST_PROBE_Q];
    const real *k = t[SP_I_HOST_PROBE_K];
    const real *v = t[SP_I_HOST_PROBE_V];
    real *first = t[SP_I_HOST_PROBE_LSE];
    real *second = first + queries * shape->heads;
    if (!backward) {
        SP_KERNEL(attention_block)
        (shape, &block, q, k, v, t[SP_I_HOST_PROBE_OUT], first, second, workspace);
        return;
    }
    SP_KERNEL(attention_block_backward)
    (shape, &block, q, k, v, t[SP_I_HOST_PROBE_DOUT], first, second, t[SP_I_HOST_PROBE_DQ],
     t[SP_I_HOST_PROBE_DK], t[SP_I_HOST_PROBE_DV], workspace);
}

const sp_i_host_probe SP_EXEC(probe) = {.real_bytes = (int64_t)sizeof(real),
                                        .fill = fill,
                                        .product = product,
                                        .attention_workspace = SP_KERNEL(attention_workspace),
                                        .attention = attention,
                                        .attention_block = attention_block};
