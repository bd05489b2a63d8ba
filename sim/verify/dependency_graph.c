#include "sim/verify/dependency_graph.h"

#include <errno.h>
#include <igraph/igraph.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/cost/step_costs.h"
#include "sim/plan/dependencies.h"

// One item waits for another; the second may start `lag_ns` after the end of the first.
typedef struct graph_edge {
    size_t from, to;
    int64_t lag_ns;
    sp_wait reason;
} graph_edge;

struct sp_structure {
    const sp_plan *plan;
    sp_plan_items items;
    igraph_t graph;
    bool has_graph;
    int64_t *duration_ns; // [items]
    graph_edge *edges;    // by igraph's edge number, which is the order in which edges were given
    size_t edge_count, edge_capacity;
};

// A structure in the making.
typedef struct builder {
    sp_structure *s;
    const sp_step_costs *costs;
    // Where durations and transfers vary: how long what each item gave was under way, [items];
    // NULL: as the costs say.
    const sp_timeline *ran;
    int64_t *lag_ns;
} builder;

static int64_t transfer_ns(const void *context, size_t v, int to)
{
    const builder *b = context;
    const sp_plan_item *plan_item = &b->s->items.items[v];
    return plan_item->pp == to ? 0
           : b->lag_ns != NULL
               ? b->lag_ns[v]
               : sp_step_costs_p2p_ns(b->costs, sp_action_is_backward(plan_item->action),
                                      (size_t)plan_item->action.pack, plan_item->pp, to,
                                      b->s->plan->layout.pp);
}

static void add_edge(void *context, size_t v, const sp_dependency *dependency)
{
    const builder *b = context;
    sp_structure *s = b->s;
    bool lags = dependency->lag == SP_LAG_TRANSFER ||
                (dependency->lag == SP_LAG_SENDING && b->costs->blocking_transfers);
    *SP_ADDED(s->edges, s->edge_capacity, s->edge_count) = (graph_edge){
        .from = dependency->item,
        .to = v,
        .lag_ns = lags ? sp_dependency_lag_ns(&s->items, v, dependency, transfer_ns, b) : 0,
        .reason = dependency->reason};
}

// ---- durations ----

// The action that item v runs beside, among the neighbours of v without shares of a vocabulary.
static const sp_action *partner_of(const builder *b, size_t v)
{
    const sp_plan_items *p = &b->s->items;
    size_t other = v;
    if (p->items[v].action.with_next) {
        do {
            other++;
        } while (p->items[other].share > 0);
        return &p->items[other].action;
    }
    do {
        if (other == 0) {
            return NULL;
        }
        other--;
    } while (p->items[other].share > 0);
    bool same = p->items[other].dp == p->items[v].dp && p->items[other].pp == p->items[v].pp;
    return same && p->items[other].action.with_next ? &p->items[other].action : NULL;
}

static int64_t duration_by_costs(const builder *b, size_t v, size_t share)
{
    const sp_plan *plan = b->s->plan;
    const sp_plan_item *plan_item = &b->s->items.items[v];
    size_t count;
    const sp_share *shares =
        sp_shares_of(&b->s->items.shares, &plan->layout, plan_item->dp, plan_item->pp, &count);
    sp_action_cost cost = plan_item->share > 0
                              ? sp_share_cost_of(plan, b->costs, &shares[share])
                              : sp_action_cost_of(plan, b->costs, plan_item->action,
                                                  sp_plan_item_vstage(&b->s->items, plan_item),
                                                  sp_plan_item_recomputed(&b->s->items, v));
    const sp_action *partner = plan_item->share > 0 ? NULL : partner_of(b, v);
    if (partner != NULL) {
        sp_hide_experts(plan, &b->costs->overlap, plan_item->pp, plan_item->action, *partner,
                        &cost);
    }
    return sp_action_cost_ns(&cost);
}

// As the item ran; `span` counts those of its rank. What it gave was under way from the end of its
// pair on.
static int64_t duration_as_run(builder *b, size_t v, size_t span)
{
    const sp_plan_item *plan_item = &b->s->items.items[v];
    const sp_rank_timeline *rank =
        &b->ran->ranks[plan_item->dp * b->s->plan->layout.pp + plan_item->pp];
    const sp_span *ran = plan_item->share > 0 ? &rank->shares[span].span : &rank->spans[span];
    if (plan_item->share == 0 && rank->there_ns != NULL && sp_depends_passes(plan_item->action) &&
        rank->there_ns[span] != SP_NOT_YET) {
        b->lag_ns[v] = rank->there_ns[span] - ran[plan_item->action.with_next ? 1 : 0].end_ns;
    }
    return ran->end_ns - ran->start_ns;
}

static void fill_durations(builder *b)
{
    sp_structure *s = b->s;
    size_t ranks = (size_t)s->plan->layout.dp * (size_t)s->plan->layout.pp;
    s->duration_ns = sp_malloc(s->items.count * sizeof *s->duration_ns);
    if (b->ran != NULL && b->ran->there_store != NULL) {
        b->lag_ns = sp_calloc(s->items.count, sizeof *b->lag_ns);
    }
    for (size_t r = 0; r < ranks; r++) {
        size_t spans = 0;
        size_t shares = 0;
        for (size_t v = s->items.first[r]; v < s->items.first[r + 1]; v++) {
            const sp_plan_item *plan_item = &s->items.items[v];
            bool is_copy = plan_item->share == 0 && sp_action_is_copy(plan_item->action);
            s->duration_ns[v] = b->ran == NULL || is_copy
                                    ? duration_by_costs(b, v, shares)
                                    : duration_as_run(b, v, plan_item->share > 0 ? shares : spans);
            shares += plan_item->share > 0;
            spans += plan_item->share == 0 && !is_copy;
        }
    }
}

// The list of what igraph frees on an error is one for all threads (but where it was built with
// IGRAPH_THREAD_SAFE), and so is the handler of errors, without which they abort the process.
static pthread_mutex_t igraph_lock = PTHREAD_MUTEX_INITIALIZER;

static igraph_error_handler_t *igraph_handler;

// Between them igraph is used, by one thread at a time; its errors are returned.
static void igraph_begin(void)
{
    pthread_mutex_lock(&igraph_lock);
    igraph_handler = igraph_set_error_handler(igraph_error_handler_ignore);
}

static void igraph_end(void)
{
    igraph_set_error_handler(igraph_handler);
    pthread_mutex_unlock(&igraph_lock);
}

// A failure inside igraph as an error of ours.
static sp_status igraph_failed(sp_error *err, const char *what, igraph_error_t code)
{
    // The disk of a file may be full, or gone.
    if (code == IGRAPH_EFILE) {
        return sp_error_set(err, SP_ERR_IO, "%s", errno != 0 ? strerror(errno) : "cannot write");
    }
    return sp_error_set(err, code == IGRAPH_ENOMEM ? SP_ERR_NO_MEMORY : SP_ERR_INTERNAL,
                        "igraph: %s: %s", what, igraph_strerror(code));
}

// The bare graph.
static igraph_error_t create_graph(const sp_structure *s, igraph_t *graph)
{
    igraph_vector_int_t ends = {0};
    igraph_error_t code = igraph_vector_int_init(&ends, (igraph_integer_t)(2 * s->edge_count));
    for (size_t e = 0; code == IGRAPH_SUCCESS && e < s->edge_count; e++) {
        VECTOR(ends)[2 * e] = (igraph_integer_t)s->edges[e].from;
        VECTOR(ends)[2 * e + 1] = (igraph_integer_t)s->edges[e].to;
    }
    if (code == IGRAPH_SUCCESS) {
        code = igraph_create(graph, &ends, (igraph_integer_t)s->items.count, IGRAPH_DIRECTED);
    }
    igraph_vector_int_destroy(&ends);
    return code;
}

static sp_status build(builder *b, sp_error *err)
{
    sp_structure *s = b->s;
    SP_TRY(sp_plan_items_init(&s->items, s->plan, NULL, b->costs->share_class > 0, err));
    s->items.joint_inputs = b->ran != NULL;
    fill_durations(b);
    for (size_t v = 0; v < s->items.count; v++) {
        sp_dependencies(&s->items, v, add_edge, b);
    }
    igraph_begin();
    igraph_error_t code = create_graph(s, &s->graph);
    igraph_end();
    s->has_graph = code == IGRAPH_SUCCESS;
    return s->has_graph ? SP_OK : igraph_failed(err, "building the graph", code);
}

sp_status sp_structure_new(const sp_plan *plan, const sp_step_costs *costs, const sp_timeline *ran,
                           sp_structure **structure, sp_error *err)
{
    builder b = {.s = sp_calloc(1, sizeof *b.s), .costs = costs};
    b.ran = ran != NULL && ran->varies ? ran : NULL;
    *structure = b.s;
    b.s->plan = plan;
    sp_status status = build(&b, err);
    sp_free(b.lag_ns);
    if (status != SP_OK) {
        sp_structure_free(b.s);
        *structure = NULL;
    }
    return status;
}

void sp_structure_free(sp_structure *s)
{
    if (s == NULL) {
        return;
    }
    if (s->has_graph) {
        igraph_begin();
        igraph_destroy(&s->graph);
        igraph_end();
    }
    sp_plan_items_fini(&s->items);
    sp_free(s->duration_ns);
    sp_free(s->edges);
    sp_free(s);
}

enum {
    TRIES = 32,      // start vertices tried for a shorter cycle
    STEPS_SHOWN = 6, // actions of a cycle that a message names
};

static const char *const reason_words[] = {"which stands before it in the list of its rank",
                                           "its input",
                                           "its gradient",
                                           "its activations",
                                           "which its pack's other data-parallel rank runs first",
                                           "its copy to the host",
                                           "its copy back",
                                           "its share of a vocabulary"};

// A shortest cycle through some vertex of a strongly connected component; edges in order of the
// path.
static igraph_error_t find_cycle(sp_structure *s, igraph_vector_int_t *cycle)
{
    igraph_vector_int_t vectors[4] = {{0}};
    igraph_vector_int_t *member = &vectors[0];
    igraph_vector_int_t *size = &vectors[1];
    igraph_vector_int_t *path = &vectors[2];
    igraph_vector_int_t *incident = &vectors[3];
    igraph_integer_t components;
    igraph_error_t code = IGRAPH_SUCCESS;
    int tries = 0;
    igraph_vector_int_clear(cycle);
    for (int i = 0; code == IGRAPH_SUCCESS && i < 4; i++) {
        code = igraph_vector_int_init(&vectors[i], 0);
    }
    if (code == IGRAPH_SUCCESS) {
        code = igraph_connected_components(&s->graph, member, size, &components, IGRAPH_STRONG);
    }
    igraph_integer_t n = (igraph_integer_t)s->items.count;
    for (igraph_integer_t v = 0; code == IGRAPH_SUCCESS && v < n && tries < TRIES; v++) {
        if (VECTOR(*size)[VECTOR(*member)[v]] < 2) {
            continue;
        }
        tries++;
        code = igraph_incident(&s->graph, incident, v, IGRAPH_IN);
        for (igraph_integer_t e = 0; code == IGRAPH_SUCCESS && e < igraph_vector_int_size(incident);
             e++) {
            igraph_integer_t edge = VECTOR(*incident)[e];
            igraph_integer_t from = IGRAPH_FROM(&s->graph, edge);
            if (VECTOR(*member)[from] != VECTOR(*member)[v]) {
                continue;
            }
            code = igraph_get_shortest_path(&s->graph, NULL, path, v, from, IGRAPH_OUT);
            igraph_integer_t length = igraph_vector_int_size(path) + 1;
            if (code == IGRAPH_SUCCESS &&
                (igraph_vector_int_empty(cycle) || length < igraph_vector_int_size(cycle))) {
                code = igraph_vector_int_update(cycle, path);
                if (code == IGRAPH_SUCCESS) {
                    code = igraph_vector_int_push_back(cycle, edge);
                }
            }
        }
    }
    for (int i = 0; i < 4; i++) {
        igraph_vector_int_destroy(&vectors[i]);
    }
    return code;
}

static void name_vertex(const sp_structure *s, igraph_integer_t v, char text[80])
{
    char name[32];
    const sp_plan_item *plan_item = &s->items.items[v];
    sp_action_name(plan_item->action, s->plan->layout.chunks, name);
    snprintf(text, 80, "%s%s on dp %d pp %d", plan_item->share > 0 ? "the share of " : "", name,
             plan_item->dp, plan_item->pp);
}

// Walks the cycle against its edges: each action and what it waits for.
static void describe(const sp_structure *s, const igraph_vector_int_t *cycle, char *text,
                     size_t bytes)
{
    igraph_integer_t n = igraph_vector_int_size(cycle);
    size_t used = 0;
    char name[80];
    name_vertex(s, IGRAPH_TO(&s->graph, VECTOR(*cycle)[n - 1]), name);
    used += (size_t)snprintf(text, bytes, "%s", name);
    for (igraph_integer_t i = n; i > 0 && used < bytes; i--) {
        igraph_integer_t edge = VECTOR(*cycle)[i - 1];
        if (n - i == STEPS_SHOWN) {
            snprintf(text + used, bytes - used, ", and so on (%lld actions in a circle)",
                     (long long)n);
            return;
        }
        name_vertex(s, IGRAPH_FROM(&s->graph, edge), name);
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s waits for %s (%s)",
                             i == n ? "" : ", which", name, reason_words[s->edges[edge].reason]);
    }
}

sp_status sp_structure_cycle(sp_structure *s, const char *source, sp_error *err)
{
    igraph_begin();
    igraph_bool_t acyclic = true;
    igraph_vector_int_t cycle;
    char text[SP_ERROR_TEXT - 80] = "";
    igraph_error_t code = igraph_is_dag(&s->graph, &acyclic);
    if (code == IGRAPH_SUCCESS && !acyclic) {
        code = igraph_vector_int_init(&cycle, 0);
        if (code == IGRAPH_SUCCESS) {
            code = find_cycle(s, &cycle);
            if (code == IGRAPH_SUCCESS) {
                describe(s, &cycle, text, sizeof text);
            }
            igraph_vector_int_destroy(&cycle);
        }
    }
    igraph_end();
    if (code != IGRAPH_SUCCESS) {
        return igraph_failed(err, "finding a cycle", code);
    }
    return acyclic
               ? SP_OK
               : sp_error_set(err, SP_ERR_DEADLOCK, "%s: the plan cannot finish: %s", source, text);
}

// Earliest ends, and optionally the longest time from the start of each action to the end of all.
typedef struct path_times {
    int64_t *end_ns;
    int64_t *to_finish_ns; // from the action's start
    int64_t makespan_ns;
} path_times;

static void path_times_fini(path_times *times)
{
    sp_free(times->end_ns);
    sp_free(times->to_finish_ns);
}

// Finds for each vertex, the first in the order of `mode` first, the longest time through all that
// comes before it, and its own.
static igraph_error_t add_up(sp_structure *s, const igraph_vector_int_t *order,
                             igraph_neimode_t mode, igraph_vector_int_t *incident, int64_t *time_ns)
{
    igraph_error_t code = IGRAPH_SUCCESS;
    igraph_integer_t n = igraph_vector_int_size(order);
    for (igraph_integer_t i = 0; code == IGRAPH_SUCCESS && i < n; i++) {
        igraph_integer_t v = VECTOR(*order)[mode == IGRAPH_IN ? i : n - 1 - i];
        int64_t before_ns = 0;
        code = igraph_incident(&s->graph, incident, v, mode);
        for (igraph_integer_t e = 0; e < igraph_vector_int_size(incident); e++) {
            igraph_integer_t edge = VECTOR(*incident)[e];
            int64_t path_ns = time_ns[IGRAPH_OTHER(&s->graph, edge, v)] + s->edges[edge].lag_ns;
            before_ns = path_ns > before_ns ? path_ns : before_ns;
        }
        time_ns[v] = before_ns + s->duration_ns[v];
    }
    return code;
}

static sp_status longest_paths(sp_structure *s, path_times *times, sp_error *err)
{
    size_t n = s->items.count;
    *times = (path_times){.end_ns = sp_calloc(n, sizeof *times->end_ns),
                          .to_finish_ns = sp_calloc(n, sizeof *times->to_finish_ns)};
    igraph_begin();
    igraph_vector_int_t order = {0};
    igraph_vector_int_t incident = {0};
    igraph_error_t code = igraph_vector_int_init(&order, 0);
    if (code == IGRAPH_SUCCESS) {
        code = igraph_vector_int_init(&incident, 0);
    }
    if (code == IGRAPH_SUCCESS) {
        code = igraph_topological_sorting(&s->graph, &order, IGRAPH_OUT);
    }
    if (code == IGRAPH_SUCCESS) {
        code = add_up(s, &order, IGRAPH_IN, &incident, times->end_ns);
    }
    if (code == IGRAPH_SUCCESS) {
        code = add_up(s, &order, IGRAPH_OUT, &incident, times->to_finish_ns);
    }
    igraph_vector_int_destroy(&incident);
    igraph_vector_int_destroy(&order);
    igraph_end();
    for (size_t v = 0; v < n; v++) {
        times->makespan_ns =
            times->end_ns[v] > times->makespan_ns ? times->end_ns[v] : times->makespan_ns;
    }
    if (code != IGRAPH_SUCCESS) {
        path_times_fini(times);
        return igraph_failed(err, "longest paths", code);
    }
    return SP_OK;
}

sp_status sp_structure_makespan(sp_structure *s, int64_t *makespan_ns, sp_error *err)
{
    path_times times;
    SP_TRY(longest_paths(s, &times, err));
    *makespan_ns = times.makespan_ns;
    path_times_fini(&times);
    return SP_OK;
}

sp_status sp_structure_critical_path(sp_structure *s, sp_critical_step **steps, size_t *count,
                                     sp_error *err)
{
    path_times times;
    *steps = NULL;
    *count = 0;
    SP_TRY(longest_paths(s, &times, err));
    // Critical: earliest start plus the longest way to the end is the makespan. In order of
    // vertices the steps of one path are picked by their times.
    size_t capacity = 0;
    int64_t now_ns = -1;
    size_t at = s->items.count;
    for (size_t v = 0; v < s->items.count; v++) {
        if (times.end_ns[v] - s->duration_ns[v] == 0 &&
            times.to_finish_ns[v] == times.makespan_ns) {
            at = v;
            break;
        }
    }
    igraph_begin();
    igraph_vector_int_t incident = {0};
    bool ok = igraph_vector_int_init(&incident, 0) == IGRAPH_SUCCESS;
    while (ok && at < s->items.count) {
        const sp_plan_item *v = &s->items.items[at];
        SP_RESERVE(*steps, capacity, *count + 1);
        now_ns = times.end_ns[at];
        (*steps)[(*count)++] = (sp_critical_step){.dp = v->dp,
                                                  .pp = v->pp,
                                                  .action = v->action,
                                                  .start_ns = now_ns - s->duration_ns[at],
                                                  .end_ns = now_ns};
        ok = igraph_incident(&s->graph, &incident, (igraph_integer_t)at, IGRAPH_OUT) ==
             IGRAPH_SUCCESS;
        size_t next = s->items.count;
        for (igraph_integer_t e = 0; ok && e < igraph_vector_int_size(&incident); e++) {
            igraph_integer_t edge = VECTOR(incident)[e];
            size_t to = (size_t)IGRAPH_TO(&s->graph, edge);
            if (now_ns + s->edges[edge].lag_ns + times.to_finish_ns[to] == times.makespan_ns &&
                to < next) {
                next = to;
            }
        }
        at = next;
    }
    igraph_vector_int_destroy(&incident);
    igraph_end();
    path_times_fini(&times);
    if (!ok) {
        sp_free(*steps);
        *steps = NULL;
        *count = 0;
        return sp_error_no_memory(err, "the critical path");
    }
    return SP_OK;
}

// Slack: how much later an action could end without moving the end of all.
static sp_status set_attributes(sp_structure *s, const path_times *times, sp_error *err)
{
    igraph_integer_t n = (igraph_integer_t)s->items.count;
    igraph_integer_t m = (igraph_integer_t)s->edge_count;
    igraph_vector_t values[4] = {{0}};
    igraph_vector_t lag = {0};
    igraph_strvector_t labels = {0};
    igraph_error_t code = igraph_strvector_init(&labels, n);
    for (int i = 0; code == IGRAPH_SUCCESS && i < 4; i++) {
        code = igraph_vector_init(&values[i], n);
    }
    if (code == IGRAPH_SUCCESS) {
        code = igraph_vector_init(&lag, m);
    }
    for (igraph_integer_t v = 0; code == IGRAPH_SUCCESS && v < n; v++) {
        const sp_plan_item *plan_item = &s->items.items[v];
        char action[32];
        char name[48];
        sp_action_name(plan_item->action, s->plan->layout.chunks, action);
        snprintf(name, sizeof name, "%s%s", plan_item->share > 0 ? "share of " : "", action);
        code = igraph_strvector_set(&labels, v, name);
        VECTOR(values[0])[v] = plan_item->dp;
        VECTOR(values[1])[v] = plan_item->pp;
        VECTOR(values[2])[v] = (igraph_real_t)s->duration_ns[v];
        VECTOR(values[3])
        [v] = (igraph_real_t)(times->makespan_ns - times->to_finish_ns[v] -
                              (times->end_ns[v] - s->duration_ns[v]));
    }
    for (igraph_integer_t e = 0; code == IGRAPH_SUCCESS && e < m; e++) {
        VECTOR(lag)[e] = (igraph_real_t)s->edges[e].lag_ns;
    }
    static const char *const names[4] = {"dp", "pp", "duration_ns", "slack_ns"};
    for (int i = 0; code == IGRAPH_SUCCESS && i < 4; i++) {
        code = igraph_cattribute_VAN_setv(&s->graph, names[i], &values[i]);
    }
    if (code == IGRAPH_SUCCESS) {
        code = igraph_cattribute_VAS_setv(&s->graph, "label", &labels);
    }
    if (code == IGRAPH_SUCCESS) {
        code = igraph_cattribute_EAN_setv(&s->graph, "lag_ns", &lag);
    }
    for (int i = 0; i < 4; i++) {
        igraph_vector_destroy(&values[i]);
    }
    igraph_vector_destroy(&lag);
    igraph_strvector_destroy(&labels);
    return code == IGRAPH_SUCCESS ? SP_OK : igraph_failed(err, "graph attributes", code);
}

// Attributes live in a graph that was made under the attribute table, so the graph is made again.
sp_status sp_structure_graphml(sp_structure *s, FILE *file, sp_error *err)
{
    path_times times;
    SP_TRY(longest_paths(s, &times, err));
    sp_status status = SP_OK;
    igraph_begin();
    igraph_attribute_table_t *table = igraph_set_attribute_table(&igraph_cattribute_table);
    sp_structure with = *s;
    igraph_error_t code = create_graph(s, &with.graph);
    if (code == IGRAPH_SUCCESS) {
        status = set_attributes(&with, &times, err);
        if (status == SP_OK) {
            code = igraph_write_graph_graphml(&with.graph, file, 0);
        }
        igraph_destroy(&with.graph);
    }
    if (code != IGRAPH_SUCCESS) {
        status = igraph_failed(err, "writing GraphML", code);
    }
    igraph_set_attribute_table(table);
    igraph_end();
    path_times_fini(&times);
    return status;
}
