// Times of single packs, as a search asks for them, against the tables of a whole packing.
#include "sim/cost/cost_model.h"
#include "tests/support/flat_profile.h"
#include "tests/support/initializers.h"
#include "tests/support/test_main.h"

static const sp_model model = {.name = "small", LLAMA_SHAPE(8, 1024, 2816, 8, 8, 32000)};

enum { MOST_CLASSES = 8 };

typedef struct fixture {
    sp_layout layout;
    sp_cluster cluster;
    sp_profile profile;
    sp_memory_options memory;
    sp_cost_model cost;
    sp_packing packing;
} fixture;

static sp_layout draw_layout(sp_prng *prng)
{
    sp_layout layout = {.tp = 1 << prng_below(prng, 3),
                        .cp = 1 << prng_below(prng, 2),
                        .pp = 1 << prng_below(prng, 3),
                        .dp = 1 + prng_below(prng, 3),
                        .chunks = 1 + prng_below(prng, 2),
                        .sequence_parallel = prng_below(prng, 2) == 0,
                        .vocab_parallel = prng_below(prng, 3) == 0,
                        .zero = prng_below(prng, 4)};
    layout.placement = layout.chunks == 2 ? SP_PLACE_V : SP_PLACE_LINEAR;
    // Of the ways of cutting only those that do not depend on the rest of a pack take any packs.
    layout.cp_sharding = prng_below(prng, 2) == 0 ? SP_SHARD_DOCUMENT : SP_SHARD_EVEN;
    return layout;
}

static void draw_pack(sp_prng *prng, int dp, sp_pack_list *list)
{
    int first = prng_below(prng, dp);
    sp_pack_list_begin(list, first, 1 + prng_below(prng, dp - first));
    for (int slices = 1 + prng_below(prng, 5); slices > 0; slices--) {
        int64_t begin = prng_below(prng, 2) * (int64_t)exp(10.0 * sp_prng_uniform(prng));
        int64_t tokens = 1 + (int64_t)exp(10.0 * sp_prng_uniform(prng));
        sp_slice slice = {slices, 0, begin, tokens,
                          tokens + prng_below(prng, 2) * prng_below(prng, 100)};
        sp_pack_list_add(list, slice, prng_below(prng, 2) == 0);
    }
}

static void begin_fixture(fixture *f, sp_prng *prng)
{
    static const char *const names[] = {"a100", "h100", "h800", "h200", "host", NULL};
    sp_error_clear(ERR);
    *f = (fixture){.layout = draw_layout(prng),
                   .cluster = {.gpus_per_node = 8,
                               .nics_per_node = 8,
                               .nic_bytes_per_s = 50e9,
                               .peak_flops_per_s = 1e15},
                   .memory = {.recompute = (sp_recompute)prng_below(prng, SP_RECOMPUTE_MODES),
                              .attention = prng_below(prng, 3) == 0 ? SP_ATTENTION_UNFUSED
                                                                    : SP_ATTENTION_FLASH,
                              .stack = {.fused_softmax_limited = prng_below(prng, 2) == 0,
                                        .hide_forward_gather = prng_below(prng, 2) == 0,
                                        .hide_backward_reduce = prng_below(prng, 2) == 0,
                                        .cp_overlap = (sp_cp_overlap)prng_below(prng, 4)}}};
    if (f->layout.cp_sharding != SP_SHARD_EVEN) {
        f->memory.attention = SP_ATTENTION_FLASH; // which alone is known uneven
    }
    must_succeed(sp_cluster_fit(&f->cluster, sp_layout_ranks(&f->layout), "test", ERR));
    const char *name = names[prng_below(prng, 6)];
    const char *const host[] = {
        "host={\"layer_us\":100,\"overlap_power\":4,\"level\":\"fitted\",\"source\":\"s\"}", NULL};
    must_succeed(name != NULL ? sp_profile_load(name, &f->profile, ERR)
                              : flat_profile(host, &f->profile, ERR));
    must_succeed(sp_cost_model_init(&f->cost, &model, &f->layout, &f->cluster, &f->profile,
                                    f->memory, "test", ERR));
    sp_packing_init(&f->packing, NULL, f->layout.dp);
    for (int k = 1 + prng_below(prng, 8); k > 0; k--) {
        draw_pack(prng, f->layout.dp, &f->packing.forward);
    }
    for (int k = prng_below(prng, 2) * prng_below(prng, 8); k > 0; k--) {
        draw_pack(prng, f->layout.dp, &f->packing.backward);
    }
}

static void fixture_fini(fixture *f)
{
    sp_packing_fini(&f->packing);
    sp_cost_model_fini(&f->cost);
    sp_profile_fini(&f->profile);
}

// Without what it waits for other ranks' packs.
static int64_t total_ns(const sp_action_cost *cost)
{
    return sp_action_cost_ns(cost) - cost->dp_wait_ns - cost->ep_wait_ns;
}

static void check_pack(sp_cost_model *cost, const sp_pack_list *list, size_t k, bool backward,
                       const sp_step_costs *costs)
{
    int64_t first_ns[MOST_CLASSES], second_ns[MOST_CLASSES];
    size_t at = k * (size_t)costs->classes;
    for (int split = 0; backward && split < 2; split++) {
        sp_cost_model_pack_ns(cost, list, &list->packs[k], split == 1, NULL, first_ns, second_ns);
        for (int c = 0; c < cost->stage_classes; c++) {
            const sp_action_cost *first =
                &(split ? costs->action[SP_ACTION_I] : costs->action[SP_ACTION_B])[at + (size_t)c];
            assert_int_equal(first_ns[c], total_ns(first));
            assert_int_equal(second_ns[c],
                             split ? total_ns(&costs->action[SP_ACTION_W][at + (size_t)c]) : 0);
        }
    }
    if (!backward) {
        sp_cost_model_pack_ns(cost, list, &list->packs[k], false, first_ns, NULL, NULL);
        for (int c = 0; c < cost->stage_classes; c++) {
            assert_int_equal(first_ns[c], total_ns(&costs->action[SP_ACTION_F][at + (size_t)c]));
        }
    }
}

// Forward and backward of one pack, asked at once.
static void check_both(sp_cost_model *cost, const sp_pack_list *list, size_t k)
{
    for (int split = 0; split < 2; split++) {
        int64_t ns[3][MOST_CLASSES] = {{0}};
        int64_t apart_ns[3][MOST_CLASSES] = {{0}};
        const sp_pack *pack = &list->packs[k];
        sp_cost_model_pack_ns(cost, list, pack, split == 1, ns[0], ns[1], ns[2]);
        sp_cost_model_pack_ns(cost, list, pack, false, apart_ns[0], NULL, NULL);
        sp_cost_model_pack_ns(cost, list, pack, split == 1, NULL, apart_ns[1], apart_ns[2]);
        assert_memory_equal(ns, apart_ns, sizeof ns);
    }
}

// Asked in another order, of a cost model of its own, as whole and as split backwards.
TEST(packs_cost_what_the_tables_say)
{
    sp_prng prng = prng_seeded(19);
    int classes = 0;
    for (int round = 0; round < 400; round++) {
        AUTO(fixture) f;
        AUTO(sp_step_costs) costs;
        AUTO(sp_cost_model) asked;
        begin_fixture(&f, &prng);
        must_succeed(sp_cost_model_build(&f.cost, &f.packing, &costs, ERR));
        must_succeed(sp_cost_model_init(&asked, &model, &f.layout, &f.cluster, &f.profile, f.memory,
                                        "test", ERR));
        assert_in_range(asked.classes, 1, MOST_CLASSES);
        classes = asked.classes > classes ? asked.classes : classes;
        const sp_pack_list *backward = sp_packing_backward(&f.packing);
        for (size_t k = backward->count; k-- > 0;) {
            check_pack(&asked, backward, k, true, &costs);
        }
        for (size_t k = f.packing.forward.count; k-- > 0;) {
            check_pack(&asked, &f.packing.forward, k, false, &costs);
            check_both(&asked, &f.packing.forward, k);
        }
    }
    assert_true(classes >= 3);
}
