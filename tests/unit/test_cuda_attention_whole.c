// Which packs cuDNN's attention serves, and what it is given of them. What computes in its place
// here reads the tensors by their shapes and offsets; outputs and gradients agree with fp64 within
// 1e-2 in the norm of each tensor, lse within 1e-3.
#include "backends/cuda/attention/attention_packed.h"
#include "tests/gpu/support/attention_case.h"
#include "tests/support/test_main.h"

static attention_case small(void)
{
    return (attention_case){.heads = 4, .kv_heads = 2, .head_dim = 16};
}

// What the decision says of one pack, the first.
static bool serves(attention_case *c, sp_i_cuda_attention_shape *packed)
{
    case_fill(c, 51);
    bool yes = sp_i_cuda_packed_shape(&c->slices, &c->slices.forward[0], &c->shape, packed);
    case_fini(c);
    return yes;
}

static void cudnn_serves_packs_of_first_slices(void **state)
{
    (void)state;
    sp_i_cuda_attention_shape packed;
    attention_case whole = small();
    case_pack(&whole);
    case_slice(&whole, 0, 0, 130, 6);
    case_slice(&whole, 1, 0, 20, 0);
    case_pack(&whole);
    case_slice(&whole, 1, 20, 20, 0);
    assert_true(serves(&whole, &packed));
    assert_int_equal(packed.segments, 2);
    // 136 and 156 rounded up to steps of an eighth of 128.
    assert_int_equal(packed.queries, 144);
    assert_int_equal(packed.keys, 144);
    assert_int_equal(packed.all_queries, 160);
    assert_int_equal(packed.q_stride, 64);
    assert_int_equal(packed.kv_stride, 64);
    assert_int_equal(packed.dkv_stride, 32);
    assert_true(packed.packed && packed.causal);

    attention_case later = small();
    case_pack(&later);
    case_slice(&later, 0, 30, 20, 0);
    case_pack(&later);
    case_slice(&later, 0, 0, 30, 0);
    assert_false(serves(&later, &packed));

    attention_case shared = small();
    shared.cp = 2;
    case_pack(&shared);
    case_slice(&shared, 0, 0, 30, 0);
    assert_false(serves(&shared, &packed));

    static const int64_t head_dims[] = {12, 24};
    for (int i = 0; i < 2; i++) {
        attention_case odd = small();
        odd.head_dim = head_dims[i];
        case_pack(&odd);
        case_slice(&odd, 0, 0, 30, 0);
        assert_false(serves(&odd, &packed));
    }
}

// Lengths and offsets of the second slice of two, 136 rows behind the first one's begin.
static void offsets_are_those_of_rows(void **state)
{
    (void)state;
    sp_i_cuda_attention_shape packed;
    attention_case c = small();
    case_pack(&c);
    case_slice(&c, 0, 0, 130, 6);
    case_slice(&c, 1, 0, 20, 0);
    case_fill(&c, 52);
    const sp_i_exec_pack *pack = &c.slices.forward[0];
    assert_true(sp_i_cuda_packed_shape(&c.slices, pack, &c.shape, &packed));
    int32_t index[64];
    void *t[SP_I_CUDA_ATTENTION_TENSORS];
    assert_in_range(sp_i_cuda_packed_index_count(pack), 22, 64);
    sp_i_cuda_packed_index(&c.slices, pack, &packed, index);
    sp_i_cuda_packed_tensors(pack, index, t);
    const int strides[] = {64, 64, 64, 4, 64, 32};
    for (int id = SP_I_CUDA_QUERY_LENGTHS; id <= SP_I_CUDA_KEY_LENGTHS; id++) {
        assert_int_equal(((int32_t *)t[id])[0], 136);
        assert_int_equal(((int32_t *)t[id])[1], 20);
    }
    for (int i = 0; i < 6; i++) {
        const int32_t *offsets = t[SP_I_CUDA_Q_OFFSETS + i];
        assert_int_equal(offsets[0], 0);
        assert_int_equal(offsets[1], 136 * strides[i]);
        assert_int_equal(offsets[2], 156 * strides[i]);
    }
    case_fini(&c);
}

// Whole samples, a first slice with a later one, and one alone; the others by our kernels.
static void packs_go_to_cudnn_where_it_serves(void **state)
{
    (void)state;
    struct sp_i_cuda_attention plans = {0};
    attention_case c = small();
    c.plans = &plans;
    case_pack(&c);
    case_slice(&c, 0, 0, 60, 0);
    case_slice(&c, 1, 0, 40, 3);
    case_pack(&c);
    case_slice(&c, 2, 0, 30, 2);
    case_pack(&c);
    case_slice(&c, 1, 40, 20, 0);
    case_slice(&c, 3, 0, 20, 0);
    case_fill(&c, 53);
    sp_error err = {0};
    double lse_error;
    if (case_run(&c, &err) != SP_OK) {
        fail_msg("%s", err.message[0]);
    }
    double error = case_error(&c, &lse_error);
    assert_true(error <= 1e-2 && lse_error <= 1e-3);
    assert_int_equal(c.leaked, 0);
    assert_int_equal(c.table_bytes, 0);
    case_fini(&c);
    assert_int_equal(plans.forward, 2);
    assert_int_equal(plans.backward, 2);
}

static void plans_are_made_before_the_first_step(void **state)
{
    (void)state;
    sp_error err = {0};
    struct sp_i_cuda_attention plans = {0};
    attention_case c = small();
    case_pack(&c);
    case_slice(&c, 0, 0, 60, 0);
    case_pack(&c);
    case_slice(&c, 0, 60, 60, 0);
    case_fill(&c, 54);
    const sp_model model = {.head_dim = 16};
    const sp_i_exec_job job = {
        .model = &model, .shard = {.heads = 4, .q = 64, .kv = 32}, .slices = c.slices};
    assert_int_equal(sp_i_cuda_attention_prepare(&plans, &job, &err), SP_OK);
    assert_int_equal(plans.asked, 4); // both ways, forward pack and backward pack
    assert_int_equal(plans.last.queries, 128);
    plans.fails = SP_ERR_INTERNAL;
    assert_int_equal(sp_i_cuda_attention_prepare(&plans, &job, &err), SP_ERR_INTERNAL);
    c.plans = &plans;
    assert_int_equal(case_run(&c, &err), SP_ERR_INTERNAL);
    assert_non_null(strstr(err.message[0], "no engine"));
    case_fini(&c);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(cudnn_serves_packs_of_first_slices),
    cmocka_unit_test(offsets_are_those_of_rows),
    cmocka_unit_test(packs_go_to_cudnn_where_it_serves),
    cmocka_unit_test(plans_are_made_before_the_first_step),
};

SP_TEST_MAIN(tests)
