// What the zones of a pack exchange, as flows: alone it takes the time of its closed formula
// (cost/pack_time.c) to the nanosecond, and where it meets others on a link all take longer.
#include "sim/simulate/engine.h"
#include "tests/support/flow_run.h"
#include "tests/support/random_step.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

enum { F_NS = 10000, MOVES_NS = 1000, MOST_ZONES = 8 };

// `packs` packs, each of all data-parallel ranks.
static void make_merged(flow_step *s, int packs)
{
    sp_packing_init(&s->packing, NULL, s->layout.dp);
    for (int k = 0; k < packs; k++) {
        sp_pack_list_begin(&s->packing.forward, 0, s->layout.dp);
    }
}

static void set_zones(flow_step *s, const sp_pack_zones *zones)
{
    sp_step_costs *costs = &s->costs;
    costs->zoned = true;
    for (size_t k = 0; k < costs->side[0].count; k++) {
        costs->side[0].pack[k].zones = costs->side[1].pack[k].zones = zones;
        costs->side[0].pack[k].cp = costs->side[1].pack[k].cp = costs->side[1].pack[k].cp_again =
            (sp_cp_exchange){0};
    }
}

// ---- two stages of each of two nodes ----

// Both stages of two merged data-parallel ranks share the NIC of each node, 10 bytes a nanosecond,
// by a zone's ring that carries half of `bytes` and by tokens of moved_bytes. The forward of the
// second pack on the first stage begins with that of the first on the second stage.
typedef struct two_stages {
    sp_zone_exchange zone;
    sp_zone_move move;
    sp_pack_zones zones;
} two_stages;

static void make_stages(double bytes, double moved_bytes, int64_t shown_ns, two_stages *of,
                        flow_step *s)
{
    *s = (flow_step){.layout = {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .chunks = 1}};
    assert_true(sp_rank_order_read("pp-tp-cp-dp", &s->layout.order));
    make_merged(s, 2);
    sp_i_step_costs_init(&s->costs, &s->layout, &s->packing, 1, false);
    flow_step_set_bytes(&s->costs, 0.0, 0.0);
    flow_step_set_exchanges(s, 0.0);
    *of = (two_stages){.zone = {0, 2, {{.s = 1e-6, .bytes = bytes}}}, .move = {0, 1, moved_bytes}};
    of->zones = (sp_pack_zones){.zones = &of->zone,
                                .moves = &of->move,
                                .zone_count = 1,
                                .move_count = moved_bytes > 0.0,
                                .node_ranks = 1,
                                .token_bytes = 1.0,
                                .moves_s = {moved_bytes > 0.0 ? MOVES_NS * 1e-9 : 0.0}};
    set_zones(s, &of->zones);
    s->costs.stages[0].layers = s->costs.stages[1].layers = 1;
    s->costs.side[1].pack[0].zones = s->costs.side[1].pack[1].zones = NULL;
    for (int k = 0; k < 2; k++) {
        int64_t moves_ns = moved_bytes > 0.0 ? MOVES_NS : 0;
        s->costs.action[SP_ACTION_F][k] =
            (sp_action_cost){.compute_ns = F_NS, .cp_ns = shown_ns + moves_ns};
        s->costs.action[SP_ACTION_B][k] = (sp_action_cost){.compute_ns = F_NS};
    }
    sp_plan_init(&s->plan, &s->layout, &s->packing);
    for (int r = 0; r < 4; r++) {
        static const sp_action_kind kinds[] = {SP_ACTION_F, SP_ACTION_F, SP_ACTION_B, SP_ACTION_B};
        for (int a = 0; a < 4; a++) {
            sp_stage_plan *stage = sp_plan_stage(&s->plan, r / 2, r % 2);
            sp_stage_plan_add(stage, kinds[a], 0, a < 2 ? a : 3 - a);
        }
    }
    must_succeed(sp_plan_check(&s->plan, "test", ERR));
    flow_step_set_cluster(s, SP_NETWORK_CLOSED);
    s->network.rates.nic_latency_s = 0.0;
}

// Forwards of both stages at a time take met_ns longer.
static void assert_forwards(double bytes, double moved_bytes, int64_t shown_ns, int64_t met_ns)
{
    for (int detail = 0; detail < 3; detail++) {
        AUTO(flow_step) s;
        two_stages of;
        AUTO(sp_timeline) timeline;
        make_stages(bytes, moved_bytes, shown_ns, &of, &s);
        s.network.detail = (sp_network_detail)detail;
        flow_run(&s, &s.network, &timeline);
        int64_t alone_ns = s.costs.action[SP_ACTION_F][0].cp_ns;
        for (size_t i = 0; i < 2 * timeline.rank_count; i++) {
            const sp_rank_timeline *rank = &timeline.ranks[i / 2];
            const sp_span *span = &rank->spans[i % 2];
            bool meets = detail != SP_NETWORK_CLOSED && rank->pp != (int)(i % 2);
            assert_int_equal(span->cp_ns, alone_ns + (meets ? met_ns : 0));
            assert_int_equal(span->end_ns - span->start_ns, F_NS + span->cp_ns);
        }
    }
}

TEST(zones_of_two_stages_share_a_nic)
{
    // Behind the work, at a tenth of the NIC each, and at three quarters.
    assert_forwards(20000.0, 0.0, 0, 0);
    assert_forwards(150000.0, 0.0, 0, 5000);
    // With the NIC full, of which a fifth of the time is shown.
    assert_forwards(250000.0, 0.0, 2500, 12500);
    // Moves fill the NIC for 500 ns before and behind, or half of it.
    assert_forwards(20000.0, 5000.0, 0, 1000);
    assert_forwards(20000.0, 2500.0, 0, 0);
}

TEST(bytes_of_zones)
{
    AUTO(flow_step) s;
    two_stages of;
    double sums[SP_LINK_KINDS][2];
    make_stages(20000.0, 3000.0, 0, &of, &s);
    flow_link_bytes(&s, sums);
    // Two stages and two packs: half of a ring's bytes leaves each node, tokens one and back.
    for (int inward = 0; inward < 2; inward++) {
        assert_close(sums[SP_LINK_NIC][inward], 4 * (20000.0 + 2 * 3000.0), 1e-12);
    }
}

// ---- random zones ----

typedef struct random_zones {
    sp_zone_exchange zones[MOST_ZONES];
    sp_zone_move moves[MOST_ZONES];
    sp_pack_zones of;
} random_zones;

// Zones of a power of two of neighbours each, and moves of all lengths.
static void draw_zones(sp_prng *prng, const sp_layout *layout, double bytes, random_zones *r)
{
    r->of = (sp_pack_zones){.zones = r->zones,
                            .moves = r->moves,
                            .zone_count = (size_t)(1 + prng_below(prng, MOST_ZONES)),
                            .move_count = (size_t)prng_below(prng, MOST_ZONES),
                            .node_ranks = 1 << prng_below(prng, 2),
                            .token_bytes = 2.0};
    for (size_t z = 0; z < r->of.zone_count; z++) {
        int ranks = 1 << prng_below(prng, 3);
        ranks = ranks < layout->dp ? ranks : layout->dp;
        sp_zone_exchange *zone = &r->zones[z];
        *zone =
            (sp_zone_exchange){prng_below(prng, layout->dp / ranks) * ranks, ranks, {{.s = 0.0}}};
        for (int i = 0; i < 2; i++) {
            zone->of[i] = (sp_cp_exchange){.s = 1e-6, .bytes = bytes * sp_prng_uniform(prng)};
        }
    }
    for (size_t m = 0; m < r->of.move_count; m++) {
        int from = prng_below(prng, layout->dp);
        int to = (from + 1 + prng_below(prng, layout->dp - 1)) % layout->dp;
        r->moves[m] = (sp_zone_move){from, to, 0.1 * bytes * sp_prng_uniform(prng)};
    }
    for (int i = 0; i < 2 && r->of.move_count > 0; i++) {
        r->of.moves_s[i] = prng_below(prng, 2) * 0.4e-6;
    }
}

static void draw_step(sp_prng *prng, bool busy, random_zones *zones, flow_step *s)
{
    *s = (flow_step){.layout = {.tp = 1 + prng_below(prng, 2), .cp = 1, .chunks = 1}};
    s->layout.pp = 1 + prng_below(prng, 3);
    s->layout.dp = 2 << prng_below(prng, 2);
    make_merged(s, 3);
    random_costs(prng, &s->layout, &s->packing, 0, &s->costs);
    flow_step_lengthen(&s->costs);
    flow_step_set_bytes(&s->costs, busy ? 20000.0 : 20.0, busy ? 20000.0 : 20.0);
    flow_step_set_exchanges(s, 0.0);
    draw_zones(prng, &s->layout, busy ? 2000.0 : 2.0, zones);
    set_zones(s, &zones->of);
    flow_step_schedule(s, SP_SCHEDULE_1F1B, SP_NETWORK_FLOWS);
    s->cluster.nics_per_node = busy ? 1 : 2;
}

TEST_ROUNDS(zones_alone_take_their_closed_times, 31, test_rounds(100))
{
    AUTO(flow_step) s;
    random_zones zones;
    AUTO(sp_timeline) closed, flows;
    draw_step(prng, false, &zones, &s);
    flow_run(&s, NULL, &closed);
    flow_run(&s, &s.network, &flows);
    flow_assert_same(&closed, &flows);
}

// Nor does any take less where links are full; and auto gives the same.
TEST(zones_that_meet_take_no_less)
{
    sp_prng prng = prng_seeded(32);
    int longer = 0;
    for (int round = 0; round < test_rounds(100); round++) {
        AUTO(flow_step) s;
        random_zones zones;
        AUTO(sp_timeline) closed, flows, quick;
        draw_step(&prng, true, &zones, &s);
        flow_run(&s, NULL, &closed);
        flow_run(&s, &s.network, &flows);
        s.network.detail = SP_NETWORK_AUTO;
        flow_run(&s, &s.network, &quick);
        flow_assert_same(&flows, &quick);
        for (size_t r = 0; r < flows.rank_count; r++) {
            for (size_t a = 0; a < flows.ranks[r].count; a++) {
                const sp_span *of = &flows.ranks[r].spans[a];
                const sp_span *alone = &closed.ranks[r].spans[a];
                assert_true(of->end_ns - of->start_ns >= alone->end_ns - alone->start_ns);
                longer += of->end_ns - of->start_ns > alone->end_ns - alone->start_ns;
            }
        }
    }
    assert_true(longer > 0);
}
