// Attention of packs on a GPU that the CPU emulates, and what cuDNN's is given of a pack. A fake in
// cuDNN's place reads the tensors by their shapes, lengths and offsets, by the reference kernels,
// which compute where there is none, too; outputs and gradients agree with those of the CPU's
// kernels, slice by slice, within 1e-2 in the norm of each tensor, lse within 1e-3.
#include "backends/cuda/attention.h"
#include "backends/executor/stage.h"
#include "sim/model/explicit_state.h"
#include "tests/gpu/support/attention_case.h"
#include "tests/support/test_main.h"

static attention_case small(void)
{
    return (attention_case){.heads = 4, .kv_heads = 2, .head_dim = 16};
}

// ---- the tables that cuDNN is given ----

typedef struct given {
    sp_i_cuda_launches launches;
    sp_i_cuda_segments segments;
    sp_i_cuda_attention_shape packed;
    bool serves;
} given;

// Of a turn of the case's pack.
static given given_of(const attention_case *c, size_t pack, int launch)
{
    given g;
    const sp_i_exec_pack *p = &c->slices.forward[pack];
    sp_i_cuda_launches_init(&g.launches, &c->slices, p);
    sp_i_cuda_segments_init(&g.segments, &g.launches, launch);
    g.serves = sp_i_cuda_packed_shape(&g.segments, p->rows, &c->shape, &g.packed);
    return g;
}

static void forget(given *g)
{
    sp_i_cuda_segments_fini(&g->segments);
    sp_i_cuda_launches_fini(&g->launches);
}

static void is_segment(const given *g, int32_t i, int64_t row, int64_t queries, int64_t keys,
                       int64_t gradient_row)
{
    assert_in_range(i, 0, g->segments.count - 1);
    const sp_i_cuda_segment *s = &g->segments.of[i];
    assert_int_equal(s->row, row);
    assert_int_equal(s->queries, queries);
    assert_int_equal(s->keys, keys);
    assert_int_equal(s->gradient_row, gradient_row);
}

// Sample 1 in a slice of 136 rows, sample 2 in one of 20 and, in the next pack, in one behind it.
TEST(segments_see_their_samples)
{
    attention_case c = small();
    CASE_PACK(&c, {0, 0, 130, 6}, {1, 0, 20, 0});
    CASE_PACK(&c, {1, 20, 30, 0});
    case_fill(&c, 51);
    given g = given_of(&c, 0, 0);
    assert_true(g.serves);
    assert_int_equal(g.segments.count, 2);
    is_segment(&g, 0, 0, 136, 136, 0);
    is_segment(&g, 1, 136, 20, 20, 136);
    assert_int_equal(g.segments.key_rows, 156);
    assert_int_equal(g.packed.segments, 2);
    assert_int_equal(g.packed.queries, 512);
    assert_int_equal(g.packed.keys, 512);
    // 156 rounded up to steps of an eighth of 128.
    assert_int_equal(g.packed.all_queries, 160);
    assert_int_equal(g.packed.q_stride, 64);
    assert_int_equal(g.packed.kv_stride, 64);
    assert_int_equal(g.packed.dkv_stride, 32);
    forget(&g);
    g = given_of(&c, 1, 0);
    assert_true(g.serves);
    assert_int_equal(g.segments.count, 1);
    is_segment(&g, 0, 0, 30, 50, 0);
    assert_int_equal(g.segments.key_rows, 50);
    forget(&g);
    case_fini(&c);
}

// Slices of one sample that follow each other are one run of queries; what stands between two of
// them makes them two, each with the gradients of all that it sees.
TEST(slices_of_a_sample_are_runs)
{
    attention_case c = small();
    CASE_PACK(&c, {0, 0, 40, 0}, {0, 40, 30, 0}, {1, 0, 10, 0}, {0, 70, 20, 0});
    case_fill(&c, 52);
    given g = given_of(&c, 0, 0);
    assert_int_equal(g.segments.count, 3);
    is_segment(&g, 0, 0, 70, 70, 0);
    is_segment(&g, 1, 70, 10, 10, 70);
    is_segment(&g, 2, 80, 20, 90, 80);
    assert_int_equal(g.segments.key_rows, 100);
    assert_int_equal(g.segments.gradient_rows, 170);
    assert_int_equal(g.packed.segments, 4);
    forget(&g);
    case_fini(&c);
}

// The keys of sample 0, 40 rows, come before those of sample 1; the fourth segment is none.
TEST(offsets_are_those_of_rows)
{
    attention_case c = small();
    CASE_PACK(&c, {0, 0, 30, 0}, {1, 0, 20, 0}, {0, 30, 10, 0});
    case_fill(&c, 53);
    given g = given_of(&c, 0, 0);
    int32_t index[96];
    void *t[SP_I_CUDA_ATTENTION_TENSORS];
    assert_in_range(sp_i_cuda_packed_index_count(&g.packed), 8 * 5, 96);
    sp_i_cuda_packed_index(&g.segments, &g.packed, index);
    sp_i_cuda_packed_tensors(&g.packed, index, t);
    const int32_t queries[] = {30, 20, 10, 0};
    const int32_t keys[] = {30, 20, 40, 0};
    assert_memory_equal(t[SP_I_CUDA_QUERY_LENGTHS], queries, sizeof queries);
    assert_memory_equal(t[SP_I_CUDA_KEY_LENGTHS], keys, sizeof keys);
    const int strides[] = {64, 64, 64, 4, 64, 32};
    const int32_t rows[] = {0, 30, 50, 60, 60};
    const int32_t key_rows[] = {0, 40, 0, 40, 40};
    const int32_t gradient_rows[] = {0, 30, 50, 90, 90};
    for (int k = 0; k < 6; k++) {
        const int32_t *offsets = t[SP_I_CUDA_Q_OFFSETS + k];
        const int32_t *want = k == 1 ? key_rows : k == 5 ? gradient_rows : rows;
        for (int i = 0; i < 5; i++) {
            assert_int_equal(offsets[i], want[i] * strides[k]);
        }
    }
    forget(&g);
    case_fini(&c);
}

// Numbers of segments and lengths are powers of two, so that few plans serve all packs.
TEST(packs_of_much_the_same_size_share_a_shape)
{
    const sp_kernel_attention_shape shape = {.heads = 4,
                                             .kv_heads = 2,
                                             .head_dim = 16,
                                             .q_stride = 64,
                                             .kv_stride = 64,
                                             .out_stride = 64};
    sp_i_cuda_segments s = {.count = 5, .longest_queries = 600, .longest_keys = 3000};
    sp_i_cuda_attention_shape packed;
    assert_true(sp_i_cuda_packed_shape(&s, 2000, &shape, &packed));
    assert_int_equal(packed.segments, 8);
    assert_int_equal(packed.queries, 1024);
    assert_int_equal(packed.keys, 4096);
    // Beyond 32 bits, and heads that cuDNN's ragged backward does not take.
    s.key_rows = INT32_MAX / 64 + 1;
    assert_false(sp_i_cuda_packed_shape(&s, 2000, &shape, &packed));
    s.key_rows = 0;
    sp_kernel_attention_shape odd = shape;
    odd.head_dim = 24;
    assert_false(sp_i_cuda_cudnn_takes(&odd));
    assert_false(sp_i_cuda_packed_shape(&s, 2000, &odd, &packed));
}

// ---- outputs and gradients ----

static void agrees(attention_case *c)
{
    double lse_error;
    must_succeed(case_run(c, ERR));
    double error = case_error(c, &lse_error);
    if (!(error <= 1e-2 && lse_error <= 1e-3)) {
        fail_msg("errors of %g, and of %g of lse", error, lse_error);
    }
    assert_int_equal(c->leaked, 0);
    assert_int_equal(c->table_bytes, 0);
    case_fini(c);
}

// Three segments and one of length 0; a late slice; and a slice with padding before the next one of
// its sample, in launches of their own.
TEST(packs_agree_with_the_cpu)
{
    struct sp_i_cuda_attention plans = {0};
    attention_case c = small();
    c.plans = &plans;
    CASE_PACK(&c, {0, 0, 60, 0}, {1, 0, 40, 3}, {2, 0, 7, 0});
    CASE_PACK(&c, {1, 40, 20, 0}, {3, 0, 20, 0});
    CASE_PACK(&c, {0, 60, 9, 5}, {0, 69, 30, 0});
    CASE_PACK(&c, {4, 0, 30, 2});
    case_fill(&c, 54);
    agrees(&c);
    assert_int_equal(plans.forward, 5);
    assert_int_equal(plans.backward, 5);
    // The plan of the first pack, of 4 segments, serves all.
    assert_int_equal(plans.segments, 2 * 5 * 4);
}

enum { SAMPLES = 3, SLICES = 4, PACKS = 3 };

// Slices of up to 50 tokens in any pack, in drawn orders.
TEST(drawn_packs_agree)
{
    static const int shares[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 1, 2},
                                    {2, 1, 2}, {1, 2, 1}, {3, 1, 1}};
    for (uint64_t seed = 0; seed < 18; seed++) {
        struct sp_i_cuda_attention plans = {0};
        attention_case c = small();
        sp_prng prng;
        bool cudnn = seed % 3 < 2;
        c.plans = cudnn ? &plans : NULL;
        plans.large = seed % 3 == 1;
        c.cp = shares[seed / 3][0];
        c.dp = shares[seed / 3][1];
        c.parts = shares[seed / 3][2];
        sp_prng_seed(&prng, seed);
        int64_t begin[SAMPLES] = {0};
        for (int p = 0; p < PACKS; p++) {
            case_pack(&c);
            for (int i = 0; i < SLICES; i++) {
                int32_t sample = (int32_t)sp_prng_below(&prng, SAMPLES);
                int64_t tokens = 1 + (int64_t)sp_prng_below(&prng, 50);
                bool pads = sp_prng_below(&prng, 4) == 0;
                case_slice(&c, sample, begin[sample], tokens,
                           pads ? (int64_t)sp_prng_below(&prng, 9) : 0);
                begin[sample] += tokens;
            }
        }
        case_fill(&c, seed);
        agrees(&c);
        assert_true((plans.forward > 0 && plans.backward > 0) == cudnn);
    }
}

// Heads that cuDNN refuses, and large ones.
TEST(heads_of_any_size_agree)
{
    static const int64_t dims[] = {12, 128, 136};
    for (int i = 0; i < 3; i++) {
        attention_case c = {.heads = 3, .kv_heads = 1, .head_dim = dims[i]};
        CASE_PACK(&c, {0, 0, 20, 2});
        CASE_PACK(&c, {0, 20, 30, 0}, {1, 0, 1, 0});
        case_fill(&c, 42);
        agrees(&c);
    }
}

TEST(a_ring_is_refused)
{
    attention_case c = small();
    c.cp = 2;
    c.ring = true;
    CASE_PACK(&c, {0, 0, 20, 0});
    case_fill(&c, 41);
    must_fail_with(case_run(&c, ERR), SP_ERR_USAGE, "\"ring\"");
    case_fini(&c);
}

// From less than the tensors need to what the passes need, of two launches of tiny slices.
TEST(memory_over_the_limit_is_an_error)
{
    for (int cp = 1; cp <= 2; cp++) {
        sp_status status = SP_ERR_INFEASIBLE;
        attention_case c = {.heads = 1, .kv_heads = 1, .head_dim = 16, .cp = cp};
        CASE_PACK(&c, {0, 0, 5, 1}, {0, 5, 4, 0});
        case_fill(&c, 43);
        for (c.limit_bytes = 256; status != SP_OK; c.limit_bytes += 256) {
            sp_error_clear(ERR);
            status = case_run(&c, ERR);
            assert_true(status == SP_OK || status == SP_ERR_INFEASIBLE);
        }
        assert_true(c.limit_bytes > 1024);
        case_fini(&c);
    }
}

// What the passes take beside their tensors is what the stack "cuda" predicts, but for the lengths
// and offsets.
static void takes_what_is_predicted(attention_case *c, int64_t tokens, int64_t seen, int64_t slices)
{
    struct sp_i_cuda_attention plans = {0};
    const sp_model model = {.layers = 1,
                            .hidden = 64,
                            .ffn = 64,
                            .heads = (int)c->heads,
                            .kv_heads = (int)c->kv_heads,
                            .head_dim = (int)c->head_dim,
                            .vocab = 64};
    const sp_layout layout = {.tp = 1, .cp = c->cp, .pp = 1, .dp = 1, .chunks = 1};
    const sp_stage stage = {.layers = 1};
    sp_memory_options options = {.recompute = SP_RECOMPUTE_NONE};
    assert_true(sp_stack_builtin("cuda", &options.stack));
    const sp_unit_load load = {.tokens = tokens, .seen_tokens = seen, .slices = slices};
    sp_i_explicit x;
    sp_i_explicit_measure(&model, &layout, &stage, &options, &load, &x);
    c->plans = &plans;
    case_fill(c, 57);
    agrees(c);
    assert_in_range(c->real_bytes - x.attend_backward, 1, 8 * 20 * 4);
}

TEST(work_spaces_are_predicted)
{
    attention_case whole = small();
    case_pack(&whole);
    case_slice(&whole, 0, 0, 200, 0);
    takes_what_is_predicted(&whole, 200, 200, 1);
    attention_case several = small();
    case_pack(&several);
    case_slice(&several, 0, 0, 200, 0);
    case_slice(&several, 1, 0, 40, 0);
    takes_what_is_predicted(&several, 240, 240, 2);
    attention_case late = small();
    case_pack(&late);
    case_slice(&late, 0, 0, 8, 0);
    case_pack(&late);
    case_slice(&late, 0, 8, 192, 0);
    takes_what_is_predicted(&late, 192, 200, 1);
    attention_case shared = small();
    shared.cp = 2;
    case_pack(&shared);
    case_slice(&shared, 0, 0, 8, 0);
    case_pack(&shared);
    case_slice(&shared, 0, 8, 192, 0);
    case_slice(&shared, 1, 0, 80, 0);
    takes_what_is_predicted(&shared, 272, 280, 2);
}

TEST(plans_are_made_before_the_first_step)
{
    struct sp_i_cuda_attention plans = {0};
    attention_case c = small();
    CASE_PACK(&c, {0, 0, 60, 0});
    CASE_PACK(&c, {0, 60, 60, 0});
    case_fill(&c, 55);
    const sp_model model = {.head_dim = 16};
    const sp_i_exec_job job = {
        .model = &model, .shard = {.heads = 4, .q = 64, .kv = 32}, .slices = c.slices};
    const sp_i_exec_job *jobs[] = {&job, &job};
    must_succeed(sp_i_cuda_attention_prepare(&plans, jobs, 2, ERR));
    assert_int_equal(plans.plans[0], 1);
    assert_int_equal(plans.plans[1], 1);
    assert_int_equal(plans.plan[0].segments, 1);
    assert_int_equal(plans.plan[0].queries, 512);
    plans.fails = SP_ERR_INTERNAL;
    assert_int_equal(sp_i_cuda_attention_prepare(&plans, jobs, 2, ERR), SP_ERR_INTERNAL);
    c.plans = &plans;
    must_fail_with(case_run(&c, ERR), SP_ERR_INTERNAL, "no engine");
    case_fini(&c);
}

static void need(attention_case *c, int samples, int64_t tokens)
{
    static int32_t sample = 0;
    case_pack(c);
    for (int i = 0; i < samples; i++) {
        case_slice(c, sample++, 0, tokens, 0);
    }
}

// 32768 tokens in one sample, 16 samples of 1000, and 100 tokens.
TEST(one_plan_serves_all_packs)
{
    struct sp_i_cuda_attention plans = {0};
    attention_case c = {.heads = 1, .kv_heads = 1, .head_dim = 16};
    need(&c, 1, 32768);
    need(&c, 16, 1000);
    need(&c, 1, 100);
    const sp_i_exec_place place = {.cp = 1, .parts = 1, .tp = 1};
    sp_i_exec_job job = {.model = &(sp_model){.head_dim = 16},
                         .shard = {.heads = 1, .q = 16, .kv = 16}};
    sp_i_exec_slices_init(&job.slices, &c.packing, &place);
    const sp_i_exec_job *jobs[] = {&job};
    must_succeed(sp_i_cuda_attention_prepare(&plans, jobs, 1, ERR));
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(plans.plans[pass], 1);
        assert_int_equal(plans.plan[pass].segments, 16);
        assert_int_equal(plans.plan[pass].queries, 32768);
        assert_int_equal(plans.plan[pass].keys, 32768);
    }
    sp_i_exec_slices_fini(&job.slices);
    sp_packing_fini(&c.packing);
}
