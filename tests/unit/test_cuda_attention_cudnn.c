// Attention of packs by cuDNN: what it is given of a pack, and plans on the emulated backend with a
// fake in its place, which reads the tensors by their shapes, lengths and offsets.
#include "backends/cuda/attention.h"
#include "backends/executor/stage.h"
#include "tests/gpu/support/emulated_plans.h"
#include "tests/gpu/support/fake_attention.h"
#include "tests/support/host_random.h"
#include "tests/support/host_run.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// Packs, and their slices of the first rank.
typedef struct packs {
    sp_packing packing;
    sp_i_exec_slices slices;
} packs;

static const sp_kernel_attention_shape heads = {
    .heads = 4, .kv_heads = 2, .head_dim = 16, .q_stride = 64, .kv_stride = 64, .out_stride = 64};

// {sample, begin, tokens, padding}, ...
#define PACK(p, ...)                           \
    pack(p, (const int64_t[][4]){__VA_ARGS__}, \
         sizeof((const int64_t[][4]){__VA_ARGS__}) / sizeof(int64_t[4]))

static void pack(packs *p, const int64_t slices[][4], size_t count)
{
    if (p->packing.dp == 0) {
        sp_packing_init(&p->packing, NULL, 1);
    }
    sp_pack_list_begin(&p->packing.forward, 0, 1);
    for (size_t i = 0; i < count; i++) {
        const int64_t *s = slices[i];
        const sp_slice slice = {
            .sample = (int32_t)s[0], .begin = s[1], .tokens = s[2], .computed_tokens = s[2] + s[3]};
        sp_pack_list_add(&p->packing.forward, slice, false);
    }
}

static void find_slices(packs *p)
{
    const sp_i_exec_place place = {.cp = 1, .parts = 1, .tp = 1};
    sp_i_exec_slices_init(&p->slices, &p->packing, &place);
}

static void packs_fini(packs *p)
{
    sp_i_exec_slices_fini(&p->slices);
    sp_packing_fini(&p->packing);
}

// ---- the tables that cuDNN is given ----

typedef struct given {
    sp_i_cuda_launches launches;
    sp_i_cuda_segments segments;
    sp_i_cuda_attention_shape packed;
    bool serves;
} given;

// Of a turn of the case's pack.
static given given_of(const packs *c, size_t pack, int launch)
{
    given g;
    const sp_i_exec_pack *p = &c->slices.forward[pack];
    sp_i_cuda_launches_init(&g.launches, &c->slices, p);
    sp_i_cuda_segments_init(&g.segments, &g.launches, launch);
    g.serves = sp_i_cuda_packed_shape(&g.segments, p->rows, &heads, &g.packed);
    return g;
}

static void given_fini(given *g)
{
    sp_i_cuda_segments_fini(&g->segments);
    sp_i_cuda_launches_fini(&g->launches);
}

static void is_segment(const given *g, int32_t i, int64_t row, int64_t queries, int64_t keys,
                       int64_t gradient_row)
{
    assert_in_range(i, 0, g->segments.count - 1);
    const sp_i_cuda_segment *s = &g->segments.list[i];
    assert_int_equal(s->row, row);
    assert_int_equal(s->queries, queries);
    assert_int_equal(s->keys, keys);
    assert_int_equal(s->gradient_row, gradient_row);
}

// Sample 1 in a slice of 136 rows, sample 2 in one of 20 and, in the next pack, in one behind it.
TEST(segments_see_their_samples)
{
    AUTO(packs) c = {0};
    PACK(&c, {0, 0, 130, 6}, {1, 0, 20, 0});
    PACK(&c, {1, 20, 30, 0});
    find_slices(&c);
    AUTO(given) g = given_of(&c, 0, 0);
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
    given_fini(&g);
    g = given_of(&c, 1, 0);
    assert_true(g.serves);
    assert_int_equal(g.segments.count, 1);
    is_segment(&g, 0, 0, 30, 50, 0);
    assert_int_equal(g.segments.key_rows, 50);
}

// Slices of one sample that follow each other are one run of queries; what stands between two of
// them makes them two, each with the gradients of all that it sees.
TEST(slices_of_a_sample_are_runs)
{
    AUTO(packs) c = {0};
    PACK(&c, {0, 0, 40, 0}, {0, 40, 30, 0}, {1, 0, 10, 0}, {0, 70, 20, 0});
    find_slices(&c);
    AUTO(given) g = given_of(&c, 0, 0);
    assert_int_equal(g.segments.count, 3);
    is_segment(&g, 0, 0, 70, 70, 0);
    is_segment(&g, 1, 70, 10, 10, 70);
    is_segment(&g, 2, 80, 20, 90, 80);
    assert_int_equal(g.segments.key_rows, 100);
    assert_int_equal(g.segments.gradient_rows, 170);
    assert_int_equal(g.packed.segments, 4);
}

// The keys of sample 0, 40 rows, come before those of sample 1; the fourth segment is none.
TEST(offsets_are_those_of_rows)
{
    AUTO(packs) c = {0};
    PACK(&c, {0, 0, 30, 0}, {1, 0, 20, 0}, {0, 30, 10, 0});
    find_slices(&c);
    AUTO(given) g = given_of(&c, 0, 0);
    int64_t index[64];
    void *t[SP_I_CUDA_ATTENTION_TENSORS];
    assert_in_range(sp_i_cuda_packed_index_bytes(&g.packed), 8 * 5 * 8, sizeof index);
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
        const int64_t *offsets = t[SP_I_CUDA_Q_OFFSETS + k];
        const int32_t *want = k == 1 ? key_rows : k == 5 ? gradient_rows : rows;
        for (int i = 0; i < 5; i++) {
            assert_int_equal(offsets[i], want[i] * strides[k]);
        }
    }
}

// Numbers of segments and lengths are powers of two, so that few plans serve all packs.
TEST(packs_of_much_the_same_size_share_a_shape)
{
    sp_i_cuda_segments s = {.count = 5, .longest_queries = 600, .longest_keys = 3000};
    sp_i_cuda_attention_shape packed;
    assert_true(sp_i_cuda_packed_shape(&s, 2000, &heads, &packed));
    assert_int_equal(packed.segments, 8);
    assert_int_equal(packed.queries, 1024);
    assert_int_equal(packed.keys, 4096);
    // Heads that cuDNN's ragged backward does not take.
    sp_kernel_attention_shape odd = heads;
    odd.head_dim = 24;
    assert_false(sp_i_cuda_cudnn_takes(&odd));
    assert_false(sp_i_cuda_packed_shape(&s, 2000, &odd, &packed));
}

// Elements beyond 32 bits: the second sample's keys begin at element 60 million times 64.
TEST(offsets_go_beyond_32_bits)
{
    enum { LONG = 60000000 };
    AUTO(packs) c = {0};
    PACK(&c, {0, 0, LONG, 0}, {1, 0, 20, 0});
    find_slices(&c);
    AUTO(given) g = given_of(&c, 0, 0);
    int64_t index[64];
    void *t[SP_I_CUDA_ATTENTION_TENSORS];
    assert_true(g.serves);
    assert_in_range(sp_i_cuda_packed_index_bytes(&g.packed), 1, sizeof index);
    sp_i_cuda_packed_index(&g.segments, &g.packed, index);
    sp_i_cuda_packed_tensors(&g.packed, index, t);
    const int64_t *queries = t[SP_I_CUDA_Q_OFFSETS];
    const int64_t *gradients = t[SP_I_CUDA_DKV_OFFSETS];
    assert_true(queries[1] == (int64_t)LONG * 64 && queries[2] == (int64_t)(LONG + 20) * 64);
    assert_true(gradients[1] == (int64_t)LONG * 32);
}

// ---- plans ----

#define MODEL_OF(head_dim)                                                                     \
    "{'layers': 2, 'hidden': 32, 'ffn': 48, 'heads': 2, 'kv_heads': 1, 'head_dim': " #head_dim \
    ", 'vocab': 61}"
#define SLICED "'strategy': {'kind': 'slimpack', 'slice_tokens': 16}"

// Does cuDNN compute some of it?
static void agrees(const char *model, const char *layout, const char *more, bool by_cudnn)
{
    const emulated_plan plan = {model, layout, more, NULL, SP_CLOCK_VIRTUAL, NULL};
    fake_cudnn.runs[0] = fake_cudnn.runs[1] = 0;
    emulated_cudnn = "on";
    emulated_plan_agrees(&plan);
    assert_int_equal(fake_cudnn.runs[0] > 0, by_cudnn);
    assert_int_equal(fake_cudnn.runs[1] > 0, by_cudnn);
}

TEST(plans_agree)
{
    for (int large = 0; large < 2; large++) {
        fake_cudnn.large = large == 1;
        agrees(MODEL_OF(16), "{'pp': 2}", "'schedule': {'kind': '1f1b'}", true);
        agrees(MODEL_OF(16), "{}", SLICED, true);
        agrees(MODEL_OF(16), "{'cp': 2}", SLICED, true);
    }
    fake_cudnn.large = false;
    agrees(MODEL_OF(32), "{'cp': 2, 'pp': 2}", "'strategy': {'kind': 'slimpipe'}", true);
}

// Heads that cuDNN refuses, and large ones.
TEST(heads_of_any_size_agree)
{
    agrees(MODEL_OF(12), "{}", SLICED, false);
    agrees(MODEL_OF(128), "{}", SLICED, true);
    agrees(MODEL_OF(136), "{}", SLICED, false);
}

static void request_agrees(const sp_run_request *request)
{
    emulated_request_agrees(request);
}

// Slices and padding anywhere, in packs of several ranks too.
TEST(random_plans_agree)
{
    sp_model model = host_llama();
    model.layers = 2;
    model.head_dim = 16;
    emulated_cudnn = "on";
    for (uint64_t seed = 41; seed < 49; seed++) {
        fake_cudnn.large = seed % 2 == 0;
        const host_random draw = {.agrees = request_agrees,
                                  .model = &model,
                                  .seed = seed,
                                  .count = 1,
                                  .most_tokens = 48,
                                  .bf16 = true,
                                  .most_tp_bits = 1,
                                  .most_cp = 2,
                                  .merges = true,
                                  .zero = 1};
        host_random_agree(draw);
    }
    assert_true(fake_cudnn.runs[0] > 0 && fake_cudnn.runs[1] > 0);
}

TEST(plans_are_made_before_the_first_step)
{
    struct sp_i_cuda_attention plans = {0};
    AUTO(packs) c = {0};
    PACK(&c, {0, 0, 60, 0});
    PACK(&c, {0, 60, 60, 0});
    find_slices(&c);
    const sp_i_exec_job job = {
        .kind = {{.model = {.head_dim = 16},
                  .shard = {.heads = 4, .q = 64, .k = 32, .v = 32, .context = 64}}},
        .slices = c.slices};
    const sp_i_exec_job *jobs[] = {&job, &job};
    must_succeed(sp_i_cuda_attention_prepare(&plans, jobs, 2, ERR));
    assert_int_equal(plans.plans[0], 1);
    assert_int_equal(plans.plans[1], 1);
    assert_int_equal(plans.plan[0].segments, 1);
    assert_int_equal(plans.plan[0].queries, 512);
    fake_cudnn.fails = SP_ERR_INTERNAL;
    must_fail_with(sp_i_cuda_attention_prepare(&plans, jobs, 2, ERR), SP_ERR_INTERNAL, "no engine");
    fake_cudnn.fails = SP_OK;
}

// 32768 tokens in one sample, 16 samples of 1000, and 100 tokens.
TEST(one_plan_serves_all_packs)
{
    struct sp_i_cuda_attention plans = {0};
    AUTO(packs) c = {0};
    int64_t samples[16][4];
    for (int i = 0; i < 16; i++) {
        memcpy(samples[i], (const int64_t[]){i, 0, 1000, 0}, sizeof samples[i]);
    }
    PACK(&c, {16, 0, 32768, 0});
    pack(&c, (const int64_t(*)[4])samples, 16);
    PACK(&c, {17, 0, 100, 0});
    find_slices(&c);
    const sp_i_exec_job job = {
        .kind = {{.model = {.head_dim = 16},
                  .shard = {.heads = 1, .q = 16, .k = 16, .v = 16, .context = 16}}},
        .slices = c.slices};
    const sp_i_exec_job *jobs[] = {&job};
    must_succeed(sp_i_cuda_attention_prepare(&plans, jobs, 1, ERR));
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(plans.plans[pass], 1);
        assert_int_equal(plans.plan[pass].segments, 16);
        assert_int_equal(plans.plan[pass].queries, 32768);
        assert_int_equal(plans.plan[pass].keys, 32768);
    }
}
