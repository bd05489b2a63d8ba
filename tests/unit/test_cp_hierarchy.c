// Hierarchical context parallelism, all-to-all among neighbours and rings of their peers: who is in
// which group, by a search over all ranks; times and bytes by hand; with one rank in the all-to-all
// it is the ring, with one in the ring the all-to-all, in everything that a step reports.

#include "sim/base/units.h"
#include "sim/memory/footprint.h"
#include "sim/memory/tensor_program.h"
#include "tests/support/flat_profile.h"
#include "tests/support/initializers.h"
#include "tests/support/pack_times.h"
#include "tests/support/scenario_run.h"

// ---- groups ----

enum { MOST_MEMBERS = 64, MOST_RANKS = 256 };

static int compare(const void *a, const void *b)
{
    return *(const int *)a < *(const int *)b ? -1 : *(const int *)a > *(const int *)b;
}

// GPUs of the group of dp_count merged ranks that a GPU is in, in ascending order.
static int members_of(const sp_layout *layout, int dp_count, int gpu, int *members)
{
    int ranks = (int)sp_layout_ranks(layout);
    int at[2][SP_AXES];
    int count = 0;
    for (int g = 0; g < ranks; g++) {
        for (int a = 0; a < SP_AXES; a++) {
            int stride = (int)sp_layout_stride(layout, (sp_axis)a);
            int size = sp_layout_size(layout, (sp_axis)a);
            at[0][a] = gpu / stride % size;
            at[1][a] = g / stride % size;
        }
        if (at[0][SP_AXIS_TP] == at[1][SP_AXIS_TP] && at[0][SP_AXIS_PP] == at[1][SP_AXIS_PP] &&
            at[0][SP_AXIS_DP] / dp_count == at[1][SP_AXIS_DP] / dp_count) {
            assert_true(count < MOST_MEMBERS);
            members[count++] = g;
        }
    }
    qsort(members, (size_t)count, sizeof *members, compare);
    return count;
}

static sp_group lies(const int *members, int step, int count, int per_node)
{
    sp_group group = {.size = count, .least_per_node = count};
    int in_node[MOST_RANKS] = {0};
    for (int k = 0; k < count; k++) {
        in_node[members[k * step] / per_node]++;
    }
    for (int n = 0; n < MOST_RANKS; n++) {
        if (in_node[n] > 0) {
            group.nodes++;
            group.least_per_node =
                in_node[n] < group.least_per_node ? in_node[n] : group.least_per_node;
            group.most_per_node =
                in_node[n] > group.most_per_node ? in_node[n] : group.most_per_node;
        }
    }
    return group;
}

static bool is_slower(const sp_group *a, const sp_group *b)
{
    if ((a->nodes > 1) != (b->nodes > 1)) {
        return a->nodes > 1;
    }
    if (a->least_per_node != b->least_per_node) {
        return a->least_per_node < b->least_per_node;
    }
    return a->nodes != b->nodes ? a->nodes > b->nodes : a->most_per_node > b->most_per_node;
}

static sp_nested_groups searched(const sp_layout *layout, int per_node, int dp_count, int inner)
{
    sp_nested_groups worst = {{0}, {0}};
    for (int gpu = 0; gpu < (int)sp_layout_ranks(layout); gpu++) {
        int members[MOST_MEMBERS];
        int count = members_of(layout, dp_count, gpu, members);
        // Ranks that are too few for a block at the end merge with no others.
        bool is_block = count == layout->cp * dp_count;
        for (int i = 0; is_block && i < count; i++) {
            sp_group in = lies(members + i / inner * inner, 1, inner, per_node);
            sp_group out = lies(members + i % inner, inner, count / inner, per_node);
            worst.inner = worst.inner.size == 0 || is_slower(&in, &worst.inner) ? in : worst.inner;
            worst.outer =
                worst.outer.size == 0 || is_slower(&out, &worst.outer) ? out : worst.outer;
        }
    }
    return worst;
}

static void assert_group(sp_group a, sp_group b)
{
    assert_int_equal(a.size, b.size);
    if (a.size > 1) {
        assert_int_equal(a.nodes, b.nodes);
        assert_int_equal(a.least_per_node, b.least_per_node);
        assert_int_equal(a.most_per_node, b.most_per_node);
    }
}

static sp_layout draw_layout(sp_prng *prng)
{
    static const char *const orders[] = {"tp-cp-dp-pp", "cp-tp-dp-pp", "dp-pp-cp-tp",
                                         "pp-dp-tp-cp", "cp-pp-dp-tp", "dp-tp-cp-pp"};
    sp_layout layout = {.tp = 1 + prng_below(prng, 3),
                        .cp = 1 + prng_below(prng, 6),
                        .pp = 1 + prng_below(prng, 2),
                        .dp = 1 + prng_below(prng, 6),
                        .chunks = 1};
    assert_true(sp_rank_order_read(orders[prng_below(prng, 6)], &layout.order));
    return layout;
}

TEST_ROUNDS(groups_of_both_levels, 1, test_rounds(150))
{
    sp_layout layout = draw_layout(prng);
    sp_cluster cluster = {.gpus_per_node = 1 << prng_below(prng, 5)};
    for (int dp_count = 1; dp_count <= layout.dp; dp_count *= 2) {
        int all = layout.cp * dp_count;
        for (int inner = 1; inner <= all; inner++) {
            if (all % inner == 0) {
                sp_nested_groups found =
                    sp_cluster_nested_groups(&cluster, &layout, dp_count, inner);
                sp_nested_groups expected =
                    searched(&layout, cluster.gpus_per_node, dp_count, inner);
                assert_group(found.inner, expected.inner);
                assert_group(found.outer, expected.outer);
            }
        }
    }
}

TEST_ROUNDS(neighbours_in_a_node, 2, test_rounds(100))
{
    sp_layout layout = draw_layout(prng);
    sp_cluster cluster = {.gpus_per_node = 1 + prng_below(prng, 16)};
    int of = 1 + prng_below(prng, 24);
    int found = sp_cluster_node_cp_ranks(&cluster, &layout, of);
    assert_int_equal(layout.cp * layout.dp % found, 0);
    assert_int_equal(of % found, 0);
    for (int inner = 1; inner <= layout.cp * layout.dp; inner++) {
        if (layout.cp * layout.dp % inner == 0 && of % inner == 0) {
            sp_nested_groups groups = searched(&layout, cluster.gpus_per_node, layout.dp, inner);
            assert_true((groups.inner.nodes == 1) == (found % inner == 0));
        }
    }
}

// ---- time and bytes ----

static const sp_model grouped = {.name = "grouped", LLAMA_SHAPE(4, 2048, 5632, 16, 8, 32000)};

enum { TOKENS = 16384 };

// Bandwidth alone.
#define BARE "memory.gb_per_s=1e12", "links.nvlink_latency_us=0", "links.nic_latency_us=0"

static void time_of(const sp_profile *profile, int cp, int inner, int nics, double nic_bytes_per_s,
                    sp_i_pack_time *time)
{
    const sp_cluster cluster = {.gpus_per_node = 4,
                                .nodes = (int)sp_ceil_div(cp, 4),
                                .nics_per_node = 4,
                                .nic_bytes_per_s = nic_bytes_per_s};
    pack_times_case of = {
        .model = &grouped,
        .cluster = &cluster,
        .profile = profile,
        .layout = {.tp = 1, .cp = cp, .pp = 1, .dp = 1, .chunks = 1, .cp_a2a = inner},
        .memory = {.recompute = SP_RECOMPUTE_ATTENTION,
                   .stack = {.cp_overlap = SP_CP_A2A_P2P, .cp_ring_nics = nics}}};
    pack_times_of_samples(&of, 1, TOKENS, time);
}

// A rank's queries, keys, values and results are (2 q + 2 kv) * 2 B a token, of which it sends all
// to others but its own share. A ring of p hands on p - 1 blocks of what a rank then has of keys
// and values, and in the backward their gradients too; it hides behind the attention on all blocks
// but one. Neighbours are in a node of four, their peers in another each.
TEST(time_by_hand)
{
    static const char *const rates[] = {"links.nvlink_gb_per_s=20", "links.nvlink_gb_per_s=2000"};
    const double q = 2048.0;
    const double kv = 1024.0;
    bool shown = false;
    bool hidden = false;
    for (int r = 0; r < 2; r++) {
        for (int cp = 4; cp <= 16; cp *= 2) {
            for (int inner = 1; inner <= 4; inner *= 2) {
                sp_i_pack_time time;
                double nic = r == 0 ? 1e9 : 400e9;
                AUTO(sp_profile) profile = flat_profile_of((const char *[]){BARE, rates[r], NULL});
                time_of(&profile, cp, inner, 1, nic, &time);
                double tokens = (double)TOKENS / cp;
                double heads_bytes = tokens * 2.0 * (2.0 * q + 2.0 * kv);
                double block_bytes = tokens * 2.0 * 2.0 * kv;
                int p = cp / inner;
                double heads_s = heads_bytes * (inner - 1) / inner / profile.nvlink_bytes_per_s;
                double hop_rate = cp > 4
                                      ? fmin(nic * FLAT_NIC_EFFICIENCY, profile.nvlink_bytes_per_s)
                                      : profile.nvlink_bytes_per_s;
                for (int backward = 0; backward < 2; backward++) {
                    sp_pass pass = backward == 1 ? SP_PASS_I : SP_PASS_F;
                    const sp_i_time *layer = &time.of[SP_PART_LAYER][pass];
                    double attention_s = (backward == 1 ? 10.0 / FLAT_BACKWARD_FLOPS_PER_S
                                                        : 4.0 / FLAT_FORWARD_FLOPS_PER_S) *
                                         0.5 * TOKENS * TOKENS / cp * q;
                    double keys_s = (1 + backward) * (p - 1) * block_bytes / hop_rate;
                    double left_s = fmax(0.0, keys_s - attention_s * (p - 1) / p);
                    assert_close(layer->attention_s, attention_s, 1e-9);
                    assert_near(layer->cp_s, heads_s + left_s, 1e-9, 1e-15);
                    assert_near(time.cp[pass].heads_bytes, inner > 1 ? heads_bytes : 0.0, 1e-12,
                                0.0);
                    assert_near(time.cp[pass].bytes, p > 1 ? (1 + backward) * p * block_bytes : 0.0,
                                1e-12, 0.0);
                    shown = shown || left_s > 0.0;
                    hidden = hidden || (keys_s > 0.0 && !(left_s > 0.0));
                }
                const sp_i_time *again = &time.of[SP_PART_LAYER][SP_PASS_RECOMPUTE];
                assert_near(again->cp_s, time.of[SP_PART_LAYER][SP_PASS_F].cp_s, 1e-12, 0.0);
                assert_int_equal(time.ring_steps, p > 1 ? p : 0);
            }
        }
    }
    assert_true(shown && hidden);
}

// A ring calls the attention for each of its blocks, forward one kernel, backward three.
TEST(attention_calls)
{
    sp_i_pack_time whole;
    AUTO(sp_profile) profile = flat_profile_of((const char *[]){BARE, "kernel.us=3", NULL});
    time_of(&profile, 8, 8, 0, 1e9, &whole);
    for (int inner = 1; inner <= 4; inner *= 2) {
        sp_i_pack_time time;
        time_of(&profile, 8, inner, 0, 1e9, &time);
        double more_s = 3e-6 * (8.0 / inner - 1.0);
        const sp_i_time *layer = time.of[SP_PART_LAYER];
        assert_near(layer[SP_PASS_F].compute_s - whole.of[SP_PART_LAYER][SP_PASS_F].compute_s,
                    more_s, 1e-9, 1e-15);
        assert_near(layer[SP_PASS_I].compute_s - whole.of[SP_PART_LAYER][SP_PASS_I].compute_s,
                    3.0 * more_s, 1e-9, 1e-15);
    }
}

TEST(faster_links_make_nothing_slower)
{
    for (int inner = 1; inner <= 4; inner *= 2) {
        double last_s = HUGE_VAL;
        for (int step = 0; step < 8; step++) {
            sp_i_pack_time time;
            char rate[64];
            snprintf(rate, sizeof rate, "links.nvlink_gb_per_s=%d", 10 << step);
            AUTO(sp_profile) profile =
                flat_profile_of((const char *[]){"memory.gb_per_s=1e12", rate, NULL});
            time_of(&profile, 16, inner, 0, 1e8 * (1 << step), &time);
            double cp_s = time.of[SP_PART_LAYER][SP_PASS_F].cp_s;
            assert_true(cp_s <= last_s);
            last_s = cp_s;
        }
    }
}

// Four merged ranks with three neighbours at most that exchange heads have none; six have three.
TEST(merged_groups_take_a_common_divisor)
{
    sp_stack stack = {.cp_overlap = SP_CP_A2A_P2P};
    static const int cases[][3] = {{4, 3, 1},  {6, 3, 3}, {8, 4, 4},
                                   {12, 8, 4}, {1, 8, 1}, {8, 0, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_layout layout = {.cp = cases[i][0], .cp_a2a = cases[i][1]};
        assert_int_equal(sp_stack_head_ranks(&stack, &layout), cases[i][2]);
    }
}

// Heads are dealt to as many neighbours as divide them; more ranks than that are in rings behind
// it.
TEST(all_to_alls_beyond_the_heads_are_rings_of_them)
{
    const sp_stack all = {.cp_overlap = SP_CP_A2A};
    for (int cp = 1; cp <= 16; cp *= 2) {
        sp_layout layout = {.cp = cp, .cp_a2a = 10}; // heads of a TP rank
        assert_int_equal(sp_stack_head_ranks(&all, &layout), cp < 2 ? cp : 2);
        assert_true(sp_stack_passes_keys(&all, &layout) == (cp > 2));
    }
    for (int dp = 2; dp <= 8; dp *= 2) {
        const sp_cluster cluster = {
            .gpus_per_node = 8, .nodes = 1, .nics_per_node = 8, .nic_bytes_per_s = 1e9};
        const sp_slice slice = {0, 0, 0, TOKENS, TOKENS};
        sp_i_pack_time time[2];
        AUTO(sp_profile) profile =
            flat_profile_of((const char *[]){BARE, "links.nvlink_gb_per_s=10", NULL});
        for (int nested = 0; nested < 2; nested++) {
            pack_times_case of = {
                .model = &grouped,
                .cluster = &cluster,
                .profile = &profile,
                .layout = {.tp = 1, .cp = 1, .pp = 1, .dp = dp, .chunks = 1, .cp_a2a = 2},
                .memory = {.stack = {.cp_overlap = nested == 1 ? SP_CP_A2A_P2P : SP_CP_A2A}}};
            pack_times(&of, &slice, 1, dp, &time[nested]);
        }
        for (int pass = SP_PASS_F; pass <= SP_PASS_I; pass++) {
            assert_true(time[0].of[SP_PART_LAYER][pass].cp_s > 0.0);
            assert_close(time[0].of[SP_PART_LAYER][pass].cp_s, time[1].of[SP_PART_LAYER][pass].cp_s,
                         1e-12);
        }
    }
}

// A zone of all four merged ranks is a pack without zones: its ring hides behind the attention on
// all blocks but one, and with Zeppelin's engine on all but the last; nothing hides the heads.
TEST(zones_pay_for_heads)
{
    const sp_cluster cluster = {
        .gpus_per_node = 4, .nodes = 1, .nics_per_node = 4, .nic_bytes_per_s = 1e9};
    const sp_slice slices[] = {{0, 0, 0, TOKENS, TOKENS}, {0, sp_zone_of(0, 4), 0, TOKENS, TOKENS}};
    for (int lone = 0; lone < 2; lone++) {
        sp_i_pack_time plain, zoned;
        AUTO(sp_profile) profile =
            flat_profile_of((const char *[]){BARE, "links.nvlink_gb_per_s=10", NULL});
        pack_times_case of = {
            .model = &grouped,
            .cluster = &cluster,
            .profile = &profile,
            .layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 4, .chunks = 1, .cp_a2a = 2},
            .memory = {.stack = {.cp_overlap = SP_CP_A2A_P2P, .cp_lone_rings = lone == 1}}};
        pack_times(&of, &slices[0], 1, 4, &plain);
        pack_times(&of, &slices[1], 1, 4, &zoned);
        for (int pass = SP_PASS_F; pass <= SP_PASS_I; pass++) {
            const sp_i_time *a = &plain.of[SP_PART_LAYER][pass];
            const sp_i_time *b = &zoned.of[SP_PART_LAYER][pass];
            const sp_cp_exchange *exchange = &plain.cp[pass];
            double ring_s = a->cp_s - exchange->heads_s;
            double beside_s = fmax(0.0, exchange->s + a->attention_s / 2 - a->attention_s);
            assert_true(exchange->heads_s > 0.0 && ring_s > 0.0);
            assert_close(b->cp_s, exchange->heads_s + (lone == 1 ? ring_s : fmin(ring_s, beside_s)),
                         1e-9);
        }
    }
}

// ---- memory ----

// p blocks of keys and values are there in the forward, each 2 tensors * 2 B * width for the tokens
// of a rank, whoever has the others (Transformer Engine's list of buffers).
TEST(blocks_held)
{
    const int64_t tokens = 8192;
    sp_stage stage = {.layers = 1};
    for (int inner = 1; inner <= 8; inner *= 2) {
        sp_memory_options options = {.stack = {.cp_overlap = SP_CP_A2A_P2P}};
        sp_layout layout = {
            .tp = 1, .cp = 8, .pp = 4, .dp = 1, .chunks = 1, .zero = 1, .cp_a2a = inner};
        AUTO(sp_tensor_program) program;
        int64_t gathered = 0;
        int64_t output = 0;
        sp_tensor_program_build(&grouped, &layout, &stage, &options,
                                &(sp_unit_load){.tokens = tokens, .pairs = tokens * tokens},
                                &program);
        sp_tensor_events *forward = &program.pass[SP_PROGRAM_FORWARD];
        for (size_t e = 0; e < forward->count; e++) {
            const sp_program_tensor *t = &program.tensors[forward->items[e].tensor];
            bool made = !forward->items[e].gone;
            gathered += made && strcmp(t->name, "gathered keys and values") == 0 ? t->bytes : 0;
            output +=
                made && strcmp(t->name, "attention output in its own order") == 0 ? t->bytes : 0;
        }
        assert_int_equal(gathered, inner < 8 ? 8 / inner * (tokens / 8) * 2 * 2 * 1024 : 0);
        assert_int_equal(output, inner > 1 ? tokens / 8 * 2 * 2048 : 0);
    }
}

// In plain bytes a forward needs most where it adds to the residual path, beside all blocks; a
// backward with a narrow MLP in the attention, which has gradients of them.
TEST(blocks_beside_a_pass)
{
    const int64_t tokens = 8192;
    const int64_t block = tokens / 8 * 2 * 2 * 1024;
    sp_model narrow = grouped;
    narrow.ffn = 512;
    sp_stage stage = {.layers = 1};
    sp_unit_load load = {.tokens = tokens, .pairs = tokens * tokens};
    sp_unit_bytes before;
    for (int inner = 1; inner <= 4; inner *= 2) {
        sp_memory_options options = {.stack = {.cp_overlap = SP_CP_A2A_P2P}};
        sp_layout layout = {
            .tp = 1, .cp = 8, .pp = 4, .dp = 1, .chunks = 1, .zero = 1, .cp_a2a = inner};
        sp_unit_bytes unit;
        sp_footprint_unit(&narrow, &layout, &stage, &options, &load, &unit);
        if (inner > 1) {
            assert_int_equal(sp_bytes_total(&before.forward) - sp_bytes_total(&unit.forward),
                             8 / inner * block);
            assert_int_equal(sp_bytes_total(&before.backward) - sp_bytes_total(&unit.backward),
                             2 * 8 / inner * block);
        }
        before = unit;
    }
}

// ---- whole steps ----

typedef struct step {
    const char *cp_overlap;
    int cp, inner; // 0: not stated
} step;

typedef struct outcome {
    double iteration_ns;
    int64_t peak_bytes, allocator_bytes;
    double cp_ns;
} outcome;

typedef struct setting {
    const char *parallel; // but for cp
    const char *more;
} setting;

static const setting settings[] = {
    {"'tp': 1, 'dp': 2", "'schedule': {'kind': '1f1b'}, 'strategy': {'kind': 'packed'}"},
    {"'tp': 2, 'pp': 2, 'dp': 1, 'chunks_per_rank': 2",
     "'schedule': {'kind': 'interleaved'}, 'memory': {'recompute': 'attention'}, 'strategy': "
     "{'kind': 'padded'}"},
    {"'tp': 1, 'pp': 2, 'dp': 2, 'zero': 2",
     "'schedule': {'kind': 'zb-h1'}, 'memory': {'recompute': 'none', 'attention': 'unfused'}, "
     "'strategy': {'kind': 'ffd'}"},
    {"'tp': 1, 'pp': 2, 'dp': 2, 'order': 'dp-tp-cp-pp'",
     "'memory': {'recompute': 'full'}, 'strategy': {'kind': 'slimpack'}"},
    {"'tp': 1, 'pp': 1, 'dp': 4", "'strategy': {'kind': 'hybrid-cp', 'rank_tokens': 9000}"},
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

static outcome run_step(const setting *s, const step *of, int nics, const char *detail)
{
    char stated[48] = "";
    const sp_evaluate_options options = {.engine = {.verify = true}, .allocator_peak = true};
    if (of->inner > 0) {
        snprintf(stated, sizeof stated, ", 'cp_a2a_ranks': %d", of->inner);
    }
    const char *text = json_text(
        "{'model': {'layers': 4, 'hidden': 1024, 'ffn': 2048, 'heads': 16, 'kv_heads': 8, "
        "'vocab': 1000}, 'cluster': {'name': 'h100-8', 'gpus_per_node': 4, 'nics_per_node': "
        "4}, 'parallel': {%s, 'cp': %d}, 'stack': {'name': 'megatron-core-2025', "
        "'cp_overlap': '%s', 'cp_ring_nics': %d%s}, 'network': {'detail': '%s'}, 'workload': "
        "{'lengths': [9000, 4000, 3000, 8000, 100, 700, 6000, 9000], 'context': 16384, "
        "'samples_per_batch': 8}, %s}",
        s->parallel, of->cp, of->cp_overlap, nics, stated, detail, s->more);
    SCENARIO_RUN(r, text, &options);
    outcome out = {r.result.iteration_ns, r.result.peak_bytes, r.result.allocator_peak_bytes,
                   r.result.cp_ns};
    return out;
}

static void assert_alike(const outcome *a, const outcome *b)
{
    assert_true(a->iteration_ns == b->iteration_ns);
    assert_int_equal(a->peak_bytes, b->peak_bytes);
    assert_int_equal(a->allocator_bytes, b->allocator_bytes);
}

TEST_OF_VALUES(one_head_rank_is_the_ring)
{
    static const char *const details[] = {"closed", "auto", "flows"};
    for (int s = 0; s < SETTINGS; s++) {
        for (int d = 0; d < 3; d++) {
            for (int nics = 0; nics <= 1; nics++) {
                step ring = {"attention", 4, 0};
                step nested = {"a2a+p2p", 4, 1};
                outcome a = run_step(&settings[s], &ring, nics, details[d]);
                outcome b = run_step(&settings[s], &nested, nics, details[d]);
                assert_alike(&a, &b);
            }
        }
    }
}

// Merged groups are larger than what exchanges heads, so hybrid-cp's are rings of them.
TEST_OF_VALUES(one_ring_rank_is_the_all_to_all)
{
    static const char *const details[] = {"closed", "auto", "flows"};
    for (int s = 0; s < SETTINGS - 1; s++) {
        for (int d = 0; d < 3; d++) {
            step all = {"a2a", 4, 0};
            step nested = {"a2a+p2p", 4, 4};
            outcome a = run_step(&settings[s], &all, 0, details[d]);
            outcome b = run_step(&settings[s], &nested, 0, details[d]);
            assert_alike(&a, &b);
            assert_true(a.cp_ns > 0.0);
        }
    }
}

// A group alone on two nodes meets nobody: its flows take their closed times, to the nanosecond.
TEST(flows_alone_take_closed_times)
{
    static const setting alone = {"'tp': 1, 'dp': 1", "'strategy': {'kind': 'packed'}"};
    for (int inner = 1; inner <= 8; inner *= 2) {
        for (int nics = 0; nics <= 1; nics++) {
            step nested = {"a2a+p2p", 8, inner};
            outcome closed = run_step(&alone, &nested, nics, "closed");
            outcome flows = run_step(&alone, &nested, nics, "flows");
            assert_alike(&closed, &flows);
            assert_true(closed.cp_ns > 0.0 && closed.cp_ns == flows.cp_ns);
        }
    }
}

// Without a stated number 4 of 8 ranks are in a node, each with two of the 8 key heads.
TEST(a_step_by_default)
{
    static const setting alone = {"'tp': 1, 'dp': 1", "'strategy': {'kind': 'packed'}"};
    step by_default = {"a2a+p2p", 8, 0};
    step stated = {"a2a+p2p", 8, 4};
    step other = {"a2a+p2p", 8, 2};
    outcome a = run_step(&alone, &by_default, 0, "closed");
    outcome b = run_step(&alone, &stated, 0, "closed");
    outcome c = run_step(&alone, &other, 0, "closed");
    assert_alike(&a, &b);
    assert_true(a.iteration_ns != c.iteration_ns && a.peak_bytes < c.peak_bytes);
}
