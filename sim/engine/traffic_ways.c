// The routes of a step's traffic, and which of them need flows.
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/cost/step_costs.h"
#include "sim/engine/traffic_private.h"

static void find_used(sp_i_traffic *t);
static void make_routes(sp_i_traffic *t);
static void find_flows(sp_i_traffic *t);
static void note_sharded(sp_i_traffic *t);

static size_t count_sends(const sp_i_traffic *t)
{
    return 2 * (size_t)t->plan->layout.dp * (size_t)t->plan->layout.pp;
}

void sp_i_ways_make(sp_i_traffic *t, const sp_network *network)
{
    t->sends = sp_calloc(count_sends(t), sizeof *t->sends);
    sp_i_reductions_make(t);
    sp_i_exchanges_make(t);
    sp_i_zones_make(t);
    sp_i_sharded_make(t);
    find_used(t);
    make_routes(t);
    if (network->detail == SP_NETWORK_AUTO) {
        find_flows(t);
    }
    note_sharded(t);
}

void sp_i_ways_free(sp_i_traffic *t)
{
    for (sp_i_way *way = t->ways; way != NULL; way = way->next) {
        sp_route_fini(&way->route);
    }
    sp_free(t->sends);
}

bool sp_i_ways_any_flow(const sp_i_traffic *t)
{
    const sp_i_way *way = t->ways;
    while (way != NULL && !way->is_flow) {
        way = way->next;
    }
    return way != NULL;
}

// ---- which ranks send to which ----

// The pipeline rank to which an action sends; -1: none.
static int sends_to(const sp_i_traffic *t, int pp, sp_action action)
{
    const sp_layout *layout = &t->plan->layout;
    int vstage = sp_layout_vstage(layout, pp, action.chunk);
    int target = vstage + (action.kind == SP_ACTION_F ? 1 : -1);
    int to = pp;
    int chunk;
    if (!sp_depends_passes(action) || target < 0 || target >= sp_layout_vstages(layout)) {
        return -1;
    }
    sp_layout_locate(layout, target, &to, &chunk);
    return to != pp ? to : -1;
}

static void find_used(sp_i_traffic *t)
{
    const sp_layout *layout = &t->plan->layout;
    for (int i = 0; i < layout->dp * layout->pp; i++) {
        int dp = i / layout->pp;
        int pp = i % layout->pp;
        const sp_stage_plan *stage = sp_plan_stage(t->plan, dp, pp);
        for (size_t a = 0; a < stage->count; a++) {
            int to = sends_to(t, pp, stage->actions[a]);
            if (to >= 0) {
                sp_i_use_way(t, sp_i_way_of(t, dp, pp, to));
            }
        }
    }
}

// ---- routes ----

static void make_sends(sp_i_traffic *t, int64_t *gpus)
{
    const sp_layout *layout = &t->plan->layout;
    int pairs = layout->tp * layout->cp;
    int64_t *to = gpus + pairs;
    for (size_t i = 0; i < count_sends(t); i++) {
        int dp = (int)(i / 2) / layout->pp;
        int pp = (int)(i / 2) % layout->pp;
        int step = i % 2 == 0 ? 1 : layout->pp - 1;
        if (t->sends[i].is_used) {
            sp_i_list_gpus(layout, dp, pp, gpus, 1);
            sp_i_list_gpus(layout, dp, (pp + step) % layout->pp, to, 1);
            sp_route_pairs(t->topology, gpus, to, pairs, &t->sends[i].route);
        }
    }
}

// Neighbours exchange heads, and those at one place of all of them keys and values.
static void make_group(sp_i_traffic *t, int dp_first, int pp, sp_i_group *group, int64_t *gpus)
{
    const sp_layout *layout = &t->plan->layout;
    int heads = group->head_ranks;
    int all = layout->tp * layout->cp * group->dp_count;
    int peers = layout->cp * group->dp_count / heads;
    int64_t *by_place = gpus + all;
    sp_layout_list_joint(layout, dp_first, group->dp_count, pp, gpus);
    for (int i = 0; i < all; i++) {
        int tp = i / (heads * peers);
        by_place[(tp * heads + i % heads) * peers + i / heads % peers] = gpus[i];
    }
    if (group->heads.is_used) {
        sp_route_all_to_alls(t->topology, gpus, layout->tp * peers, heads, &group->heads.route);
    }
    sp_route *route = &group->keys.route;
    int rings = layout->tp * heads;
    if (group->keys.is_used && group->ring_nics > 0) {
        sp_route_routed_rings(t->topology, by_place, rings, peers, group->ring_nics, route);
    } else if (group->keys.is_used) {
        sp_route_rings(t->topology, by_place, rings, peers, route);
    }
}

// The ways of what context-parallel ranks exchange.
static void make_groups(sp_i_traffic *t, int64_t *gpus)
{
    int pp = t->plan->layout.pp;
    for (int i = 0; i < t->plan->layout.dp * pp; i++) {
        for (sp_i_group *group = t->groups[i]; group != NULL; group = group->next) {
            make_group(t, i / pp, i % pp, group, gpus);
        }
        sp_i_move_way *move = t->moves != NULL ? t->moves[i] : NULL;
        for (; move != NULL; move = move->next) {
            sp_i_zones_route(t, i, move);
        }
    }
}

static void make_routes(sp_i_traffic *t)
{
    const sp_layout *layout = &t->plan->layout;
    // All data-parallel ranks of a pipeline rank in two orders, or two pipeline ranks of one.
    size_t ranks = 2 * (size_t)layout->dp;
    int64_t *gpus = sp_malloc(ranks * (size_t)(layout->tp * layout->cp) * sizeof *gpus);
    make_sends(t, gpus);
    sp_i_passages_make(t, gpus);
    make_groups(t, gpus);
    sp_free(gpus);
}

// ---- where nothing can meet ----

static void join_sharded(sp_i_traffic *t, int pp, int32_t *users);
static void note_owner(const sp_i_way *way, int32_t *owners);
static bool is_apart(const sp_i_way *way, const int32_t *owners);
static bool meets_itself(const sp_i_traffic *t, int dp, int pp, bool repeats);

// Transfers of a route take their closed times where the spine and PCIe do not slow them, they get
// no more of a NIC than a GPU's share, no other's route uses its links and none of them begins
// before the one before it has ended: exchanges and reductions of a rank follow each other.
static void find_flows(sp_i_traffic *t)
{
    int pp = t->plan->layout.pp;
    bool repeats = sp_plan_find(t->plan, SP_ACTION_R) != NULL;
    int32_t *owners = sp_calloc((size_t)sp_topology_links(t->topology), sizeof *owners);
    for (int p = 0; t->sharded != NULL && p < pp; p++) {
        join_sharded(t, p, owners);
    }
    memset(owners, 0, (size_t)sp_topology_links(t->topology) * sizeof *owners);
    for (const sp_i_way *way = t->ways; way != NULL; way = way->next) {
        note_owner(way, owners);
    }
    for (sp_i_way *way = t->ways; way != NULL; way = way->next) {
        way->is_flow = sp_route_is_slowed(&way->route) || sp_route_is_quickened(&way->route) ||
                       !is_apart(way, owners);
    }
    for (size_t i = 0; i < count_sends(t); i++) {
        sp_i_way *way = &t->sends[i];
        int rank = (int)(i / 2);
        way->is_flow =
            way->is_flow || (way->is_used && meets_itself(t, rank / pp, rank % pp, repeats));
    }
    sp_free(owners);
}

// Notes a rank as the last user of each link on the ways of its exchanges in actions; false: one
// had another data-parallel rank of the same pipeline rank before.
static bool note_user(const sp_i_sharded *s, int32_t rank, int pp, int32_t *users)
{
    bool alone = true;
    for (const sp_i_passage *passage = s->passages; passage != NULL; passage = passage->next) {
        for (int i = 0; i < passage->of.count; i++) {
            const sp_route *route = &passage->ways[i].route;
            for (int32_t h = 0; h < route->hops; h++) {
                int32_t *user = &users[route->path[h].link];
                alone = alone && (*user == 0 || *user == rank + 1 || (*user - 1 - rank) % pp != 0);
                *user = rank + 1;
            }
        }
    }
    return alone;
}

// What the data-parallel ranks of a pipeline rank exchange in actions and what they reduce and
// gather behind those follow each other as well, where none of them uses another's links. `users`
// has room for the links.
static void join_sharded(sp_i_traffic *t, int pp, int32_t *users)
{
    const sp_layout *layout = &t->plan->layout;
    const sp_i_passage *behind = t->reductions[pp].passages;
    bool apart = t->costs->buckets == NULL;
    int32_t owner = behind != NULL ? behind->ways[0].owner : ++t->owners;
    for (int d = 0; d < layout->dp; d++) {
        int rank = sp_i_rank_of(t, d, pp);
        bool alone = note_user(&t->sharded[rank], rank, layout->pp, users);
        apart = apart && alone;
    }
    for (int d = 0; apart && d < layout->dp; d++) {
        sp_i_passage *passage = t->sharded[sp_i_rank_of(t, d, pp)].passages;
        for (; passage != NULL; passage = passage->next) {
            for (int i = 0; i < passage->of.count; i++) {
                passage->ways[i].owner = owner;
            }
        }
    }
}

// Of each link the owner of the ways over it, above 0; SEVERAL.
enum { SEVERAL = -1 };

static void note_owner(const sp_i_way *way, int32_t *owners)
{
    for (int32_t h = 0; h < way->route.hops; h++) {
        int32_t *of = &owners[way->route.path[h].link];
        *of = *of == 0 || *of == way->owner ? way->owner : SEVERAL;
    }
}

static bool is_apart(const sp_i_way *way, const int32_t *owners)
{
    bool apart = true;
    for (int32_t h = 0; apart && h < way->route.hops; h++) {
        apart = owners[way->route.path[h].link] == way->owner;
    }
    return apart;
}

// May a rank begin to send before what it sent last is there? Between two sends lies at least the
// action that gives the second. `repeats`: the plan's recomputation may be an action of its own.
static bool meets_itself(const sp_i_traffic *t, int dp, int pp, bool repeats)
{
    const sp_layout *layout = &t->plan->layout;
    const sp_stage_plan *stage = sp_plan_stage(t->plan, dp, pp);
    int64_t least_ns = INT64_MAX;
    int64_t most_ns = 0;
    for (size_t a = 0; a < stage->count; a++) {
        sp_action action = stage->actions[a];
        int to = sends_to(t, pp, action);
        if (to < 0) {
            continue;
        }
        int vstage = sp_layout_vstage(layout, pp, action.chunk);
        sp_action_cost took = sp_action_cost_of(t->plan, t->costs, action, vstage, repeats);
        int64_t took_ns = action.with_next ? 0 : sp_action_cost_ns(&took);
        bool backward = sp_action_is_backward(action);
        int64_t sent_ns =
            sp_step_costs_p2p_ns(t->costs, backward, (size_t)action.pack, pp, to, layout->pp);
        least_ns = took_ns < least_ns ? took_ns : least_ns;
        most_ns = sp_larger(most_ns, sent_ns);
    }
    return most_ns > least_ns;
}

// ---- where exchanges in actions need flows ----

static void note_sharded(sp_i_traffic *t)
{
    const sp_layout *layout = &t->plan->layout;
    for (int rank = 0; t->sharded != NULL && rank < layout->dp * layout->pp; rank++) {
        const sp_i_passage *passage = t->sharded[rank].passages;
        for (; passage != NULL; passage = passage->next) {
            for (int i = 0; i < passage->of.count; i++) {
                t->shards[rank % layout->pp] |= passage->ways[i].is_flow;
            }
        }
    }
}
