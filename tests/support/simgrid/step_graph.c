#include "tests/support/simgrid/step_graph.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "sim/cost/step_costs.h"
#include "tests/bench/bench.h"

// SimGrid sends whole bytes: it gets more of them, over as much faster links.
#define FINER 1048576.0

// An action of one rank.
typedef struct acting {
    int work;     // its computation
    int exchange; // the last of its exchanges; -1: none
    int send;     // what it sends to another rank; -1: nothing
} acting;

typedef struct builder {
    const sp_plan *plan;
    const sp_step_costs *costs;
    const sp_layout *layout;
    step_graph *g;
    acting *actings;   // rank by rank
    acting **given_by; // [forward and backward][pack][virtual stage]
    int ranks;
} builder;

// ---- tasks ----

static int add_task(step_graph *g, double ns, int flow)
{
    SP_RESERVE(g->tasks, g->task_capacity, (size_t)(g->graph.count + 1));
    g->tasks[g->graph.count] = (simgrid_task){ns, flow};
    return g->graph.count++;
}

static void add_edge(step_graph *g, int from, int to)
{
    SP_RESERVE(g->edges, g->edge_capacity, (size_t)(g->graph.edge_count + 1));
    g->edges[g->graph.edge_count][0] = from;
    g->edges[g->graph.edge_count++][1] = to;
}

// SimGrid forgets the rate of a flow between hosts: a link of its own keeps it.
static void limit(step_graph *g, sp_flow *flow)
{
    simgrid_problem *network = &g->graph.network;
    sp_flow_hop *path = sp_calloc((size_t)flow->hops + 1, sizeof *path);
    for (int32_t i = 0; i < flow->hops; i++) {
        path[i] = flow->path[i];
    }
    path[flow->hops] = (sp_flow_hop){network->links, 1};
    SP_RESERVE(g->link_bytes_per_s, g->link_capacity, (size_t)(network->links + 1));
    g->link_bytes_per_s[network->links++] = FINER * flow->most_bytes_per_s;
    flow->path = path;
    flow->hops++;
}

// One with nothing on its way takes its time alone.
static int add_transfer(step_graph *g, int path, double bytes, int rounds, int64_t alone_ns)
{
    const sp_route *route = &g->routes[path];
    if (route->hops == 0) {
        return add_task(g, (double)alone_ns, -1);
    }
    sp_flow flow = sp_route_flow_of(route, 0, bytes, rounds, (double)alone_ns * 1e-9);
    double latency_ns = flow.latency_s * 1e9;
    if (!(flow.bytes > 0.0)) {
        return add_task(g, latency_ns, -1);
    }
    int index = g->graph.network.count++;
    SP_RESERVE(g->flows, g->flow_capacity, (size_t)(index + 1));
    SP_RESERVE(g->path_of, g->path_capacity, (size_t)(index + 1));
    if (flow.most_bytes_per_s > 0.0) {
        limit(g, &flow);
        path = g->graph.network.paths++;
    }
    g->flows[index] = flow;
    g->flows[index].bytes *= FINER;
    g->path_of[index] = path;
    return add_task(g, latency_ns, index);
}

// ---- paths: sends of each rank to the one behind and the one before, its exchange; then the rings
// of each pipeline rank ----

static int send_path(int rank, bool backward)
{
    return 2 * rank + backward;
}

static int exchange_path(const builder *b, int rank)
{
    return 2 * b->ranks + rank;
}

static int ring_path(const builder *b, int pp)
{
    return 3 * b->ranks + pp;
}

static int64_t gpu_of(const sp_layout *layout, int tp, int cp, int dp, int pp)
{
    return tp * sp_layout_stride(layout, SP_AXIS_TP) + cp * sp_layout_stride(layout, SP_AXIS_CP) +
           dp * sp_layout_stride(layout, SP_AXIS_DP) + pp * sp_layout_stride(layout, SP_AXIS_PP);
}

// Over the context-parallel ranks of `count` data-parallel ranks, a ring for each TP rank.
static void make_rings(const builder *b, int pp, int dp, int count, sp_route *route)
{
    const sp_layout *l = b->layout;
    int members = count * l->cp;
    if (members == 1) {
        return;
    }
    int64_t *gpus = sp_calloc((size_t)(l->tp * members), sizeof *gpus);
    for (int i = 0; i < l->tp * members; i++) {
        int m = i % members;
        gpus[i] = gpu_of(l, i / members, m % l->cp, dp + m / l->cp, pp);
    }
    for (int tp = 0; tp < l->tp; tp++) {
        qsort(&gpus[tp * members], (size_t)members, sizeof *gpus, sp_ascending_int64s);
    }
    sp_route_rings(b->g->topology, gpus, l->tp, members, route);
    free(gpus);
}

static void make_send(const builder *b, int rank, bool backward, sp_route *route)
{
    const sp_layout *l = b->layout;
    int pairs = l->tp * l->cp;
    int64_t *gpus = sp_calloc((size_t)(2 * pairs), sizeof *gpus);
    int to = (rank % l->pp + (backward ? l->pp - 1 : 1)) % l->pp;
    for (int i = 0; i < pairs; i++) {
        int tp = i % l->tp;
        gpus[i] = gpu_of(l, tp, i / l->tp, rank / l->pp, rank % l->pp);
        gpus[pairs + i] = gpu_of(l, tp, i / l->tp, rank / l->pp, to);
    }
    sp_route_pairs(b->g->topology, gpus, gpus + pairs, pairs, route);
    free(gpus);
}

static void make_routes(const builder *b, const sp_network *network)
{
    const sp_layout *l = b->layout;
    step_graph *g = b->g;
    sp_error err = {0};
    require(sp_topology_new(network->cluster, &network->rates, &g->topology, &err), &err);
    g->graph.network.links = sp_topology_links(g->topology);
    SP_RESERVE(g->link_bytes_per_s, g->link_capacity, (size_t)g->graph.network.links);
    for (int i = 0; i < g->graph.network.links; i++) {
        g->link_bytes_per_s[i] = FINER * sp_topology_bytes_per_s(g->topology)[i];
    }
    g->graph.network.paths = ring_path(b, l->pp);
    g->route_count = g->graph.network.paths;
    g->routes = sp_calloc((size_t)g->route_count, sizeof *g->routes);
    for (int r = 0; r < b->ranks; r++) {
        for (int backward = 0; l->pp > 1 && backward < 2; backward++) {
            make_send(b, r, backward != 0, &g->routes[send_path(r, backward != 0)]);
        }
        make_rings(b, r % l->pp, r / l->pp, 1, &g->routes[exchange_path(b, r)]);
    }
    for (int p = 0; p < l->pp; p++) {
        make_rings(b, p, 0, l->dp, &g->routes[ring_path(b, p)]);
    }
}

// ---- actions ----

static acting **given_at(const builder *b, bool backward, int pack, int vstage)
{
    size_t row = (backward ? b->costs->side[0].count : 0) + (size_t)pack;
    return &b->given_by[row * (size_t)sp_layout_vstages(b->layout) + (size_t)vstage];
}

// What it computes, and of its exchange first what that hides, beside it, then the rest.
static void add_action(const builder *b, int rank, sp_action action, acting *a)
{
    const sp_step_costs *costs = b->costs;
    int vstage = sp_layout_vstage(b->layout, rank % b->layout->pp, action.chunk);
    bool backward = sp_action_is_backward(action);
    sp_action_cost took = sp_action_cost_of(b->plan, costs, action, vstage, false);
    int64_t work_ns = sp_action_cost_ns(&took) - took.cp_ns;
    sp_cp_exchange each = {0};
    if (b->layout->cp > 1 && costs->has_bytes && action.kind != SP_ACTION_W) {
        each = backward ? costs->side[1].pack[action.pack].cp : costs->side[0].pack[action.pack].cp;
        each.s += backward ? costs->side[1].pack[action.pack].cp_again.s : 0.0;
        each.bytes += backward ? costs->side[1].pack[action.pack].cp_again.bytes : 0.0;
    }
    *a = (acting){add_task(b->g, (double)work_ns, -1), -1, -1};
    if (each.s > 0.0) {
        double layers = costs->stages[vstage].layers;
        double shown = fmin(1.0, (double)took.cp_ns * 1e-9 / (layers * each.s));
        double bytes = layers * each.bytes;
        int path = exchange_path(b, rank);
        int hidden = add_transfer(b->g, path, bytes * (1.0 - shown), 1, work_ns);
        a->exchange = add_transfer(b->g, path, bytes * shown, 1, took.cp_ns);
        add_edge(b->g, hidden, a->exchange);
    }
    if (action.kind != SP_ACTION_W) {
        *given_at(b, backward, action.pack, vstage) = a;
    }
}

static void add_edges_from(const builder *b, const acting *from, int to)
{
    add_edge(b->g, from->work, to);
    if (from->exchange >= 0) {
        add_edge(b->g, from->exchange, to);
    }
}

// A hidden exchange begins with the computation: it stands before the last one.
static void add_start(const builder *b, const acting *from, const acting *to)
{
    add_edges_from(b, from, to->work);
    if (to->exchange >= 0) {
        add_edges_from(b, from, to->exchange - 1);
    }
}

static void add_input(const builder *b, int rank, sp_action action, const acting *a)
{
    const sp_layout *l = b->layout;
    const sp_step_costs *costs = b->costs;
    bool backward = sp_action_is_backward(action);
    int vstage = sp_layout_vstage(l, rank % l->pp, action.chunk);
    int source = vstage + (backward ? 1 : -1);
    if (action.kind == SP_ACTION_W || source < 0 || source >= sp_layout_vstages(l)) {
        return;
    }
    acting *from = *given_at(b, backward, action.pack, source);
    int pp, chunk;
    sp_layout_locate(l, source, &pp, &chunk);
    if (pp == rank % l->pp) {
        add_start(b, from, a);
        return;
    }
    double bytes = (backward ? costs->side[1].pack : costs->side[0].pack)[action.pack].p2p_bytes;
    int64_t ns =
        sp_step_costs_p2p_ns(costs, backward, (size_t)action.pack, pp, rank % l->pp, l->pp);
    bool back = (pp + 1) % l->pp != rank % l->pp;
    int path = send_path(rank / l->pp * l->pp + pp, back);
    from->send = add_transfer(b->g, path, bytes * l->tp * l->cp, 1, ns);
    add_edges_from(b, from, from->send);
    add_start(b, &(acting){from->send, -1, -1}, a);
}

static void add_rank(const builder *b, int rank, acting *actings)
{
    const sp_stage_plan *stage = &b->plan->stages[rank];
    for (size_t i = 0; i < stage->count; i++) {
        add_input(b, rank, stage->actions[i], &actings[i]);
        if (i > 0) {
            add_start(b, &actings[i - 1], &actings[i]);
        }
    }
}

static void add_epilogue(const builder *b, int pp)
{
    const sp_layout *l = b->layout;
    const sp_epilogue_cost *e = &b->costs->ranks[pp].epilogue;
    int path = ring_path(b, pp);
    int reduce = add_transfer(b->g, path, e->reduce_bytes, l->zero == 0 ? 2 : 1,
                              e->grad_reduce_ns - e->tied_reduce_ns);
    int optimizer = add_task(b->g, (double)(e->tied_reduce_ns + e->optimizer_ns), -1);
    int gather = add_transfer(b->g, path, e->gather_bytes, 1, e->param_gather_ns);
    const acting *last = b->actings;
    for (int r = 0; r < b->ranks; r++) {
        last += b->plan->stages[r].count;
        if (r % l->pp == pp) {
            add_edges_from(b, last - 1, reduce);
        }
    }
    add_edge(b->g, reduce, optimizer);
    add_edge(b->g, optimizer, gather);
    b->g->step_ends[pp] = gather;
}

void step_graph_make(const sp_plan *plan, const sp_step_costs *costs, const sp_network *network,
                     step_graph *g)
{
    const sp_layout *l = &plan->layout;
    builder b = {.plan = plan, .costs = costs, .layout = l, .g = g, .ranks = l->dp * l->pp};
    size_t actions = 0;
    *g = (step_graph){0};
    for (int r = 0; r < b.ranks; r++) {
        actions += plan->stages[r].count;
    }
    size_t given = (costs->side[0].count + costs->side[1].count) * (size_t)sp_layout_vstages(l);
    b.actings = sp_calloc(actions, sizeof *b.actings);
    b.given_by = sp_calloc(given, sizeof(acting *));
    g->action_ends = sp_calloc(2 * actions, sizeof *g->action_ends);
    g->step_ends = sp_calloc((size_t)l->pp, sizeof *g->step_ends);
    make_routes(&b, network);
    acting *next = b.actings;
    for (int r = 0; r < b.ranks; r++) {
        for (size_t i = 0; i < plan->stages[r].count; i++, next++) {
            add_action(&b, r, plan->stages[r].actions[i], next);
        }
    }
    next = b.actings;
    for (int r = 0; r < b.ranks; next += plan->stages[r++].count) {
        add_rank(&b, r, next);
    }
    for (int p = 0; p < l->pp; p++) {
        add_epilogue(&b, p);
    }
    for (size_t i = 0; i < actions; i++) {
        g->action_ends[2 * i] = b.actings[i].work;
        g->action_ends[2 * i + 1] = b.actings[i].exchange;
    }
    g->graph.network.link_bytes_per_s = g->link_bytes_per_s;
    g->graph.network.flows = g->flows;
    g->graph.network.path_of = g->path_of;
    g->graph.tasks = g->tasks;
    g->graph.edges = (const int(*)[2])g->edges;
    free(b.actings);
    free(b.given_by);
}

void step_graph_fini(step_graph *g)
{
    for (int i = 0; i < g->graph.network.count; i++) {
        if (g->flows[i].most_bytes_per_s > 0.0) {
            free((sp_flow_hop *)g->flows[i].path);
        }
    }
    for (int i = 0; i < g->route_count; i++) {
        sp_route_fini(&g->routes[i]);
    }
    sp_topology_free(g->topology);
    sp_free(g->link_bytes_per_s);
    sp_free(g->flows);
    sp_free(g->path_of);
    sp_free(g->tasks);
    sp_free(g->edges);
    free(g->routes);
    free(g->action_ends);
    free(g->step_ends);
}
