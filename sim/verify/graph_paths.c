#include <stdio.h>

#include "sim/verify/graph_private.h"

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

// Of each vertex, the first in the order of `mode` first, the longest time through all that comes
// before it, and its own.
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
        time_ns[v] = before_ns + s->vertices[v].duration_ns;
    }
    return code;
}

static sp_status longest_paths(sp_structure *s, path_times *times, sp_error *err)
{
    size_t n = s->vertex_count;
    *times = (path_times){.end_ns = sp_calloc(n, sizeof *times->end_ns),
                          .to_finish_ns = sp_calloc(n, sizeof *times->to_finish_ns)};
    sp_i_igraph_begin();
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
    sp_i_igraph_end();
    for (size_t v = 0; v < n; v++) {
        times->makespan_ns =
            times->end_ns[v] > times->makespan_ns ? times->end_ns[v] : times->makespan_ns;
    }
    if (code != IGRAPH_SUCCESS) {
        path_times_fini(times);
        return sp_i_igraph_failed(err, "longest paths", code);
    }
    return SP_OK;
}

sp_status sp_structure_makespan(sp_structure *s, int64_t *makespan_ns, sp_error *err)
{
    path_times times;
    sp_status status = longest_paths(s, &times, err);
    if (status == SP_OK) {
        *makespan_ns = times.makespan_ns;
        path_times_fini(&times);
    }
    return status;
}

sp_status sp_structure_critical_path(sp_structure *s, sp_critical_step **steps, size_t *count,
                                     sp_error *err)
{
    path_times times;
    *steps = NULL;
    *count = 0;
    sp_status status = longest_paths(s, &times, err);
    if (status != SP_OK) {
        return status;
    }
    // Critical: earliest start plus the longest way to the end is the makespan. In order of
    // vertices the steps of one path are picked by their times.
    size_t capacity = 0;
    int64_t now_ns = -1;
    size_t at = s->vertex_count;
    for (size_t v = 0; v < s->vertex_count; v++) {
        if (times.end_ns[v] - s->vertices[v].duration_ns == 0 &&
            times.to_finish_ns[v] == times.makespan_ns) {
            at = v;
            break;
        }
    }
    sp_i_igraph_begin();
    igraph_vector_int_t incident = {0};
    bool ok = igraph_vector_int_init(&incident, 0) == IGRAPH_SUCCESS;
    while (ok && at < s->vertex_count) {
        const sp_i_vertex *v = &s->vertices[at];
        sp_reserve((void **)steps, &capacity, *count + 1, sizeof **steps);
        now_ns = times.end_ns[at];
        (*steps)[(*count)++] = (sp_critical_step){.dp = v->dp,
                                                  .pp = v->pp,
                                                  .action = v->action,
                                                  .start_ns = now_ns - v->duration_ns,
                                                  .end_ns = now_ns};
        ok = igraph_incident(&s->graph, &incident, (igraph_integer_t)at, IGRAPH_OUT) ==
             IGRAPH_SUCCESS;
        size_t next = s->vertex_count;
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
    sp_i_igraph_end();
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
    igraph_integer_t n = (igraph_integer_t)s->vertex_count;
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
        const sp_i_vertex *at = &s->vertices[v];
        char action[32];
        char name[48];
        sp_action_name(at->action, s->plan->layout.chunks, action);
        snprintf(name, sizeof name, "%s%s", at->share > 0 ? "share of " : "", action);
        code = igraph_strvector_set(&labels, v, name);
        VECTOR(values[0])[v] = at->dp;
        VECTOR(values[1])[v] = at->pp;
        VECTOR(values[2])[v] = (igraph_real_t)at->duration_ns;
        VECTOR(values[3])
        [v] = (igraph_real_t)(times->makespan_ns - times->to_finish_ns[v] -
                              (times->end_ns[v] - at->duration_ns));
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
    return code == IGRAPH_SUCCESS ? SP_OK : sp_i_igraph_failed(err, "graph attributes", code);
}

// Attributes live in a graph that was made under the attribute table, so the graph is made again.
sp_status sp_structure_graphml(sp_structure *s, FILE *file, sp_error *err)
{
    path_times times;
    sp_status status = longest_paths(s, &times, err);
    if (status != SP_OK) {
        return status;
    }
    sp_i_igraph_begin();
    igraph_attribute_table_t *table = igraph_set_attribute_table(&igraph_cattribute_table);
    sp_structure with = *s;
    igraph_error_t code = sp_i_structure_create(s, &with.graph);
    if (code == IGRAPH_SUCCESS) {
        status = set_attributes(&with, &times, err);
        if (status == SP_OK) {
            code = igraph_write_graph_graphml(&with.graph, file, 0);
        }
        igraph_destroy(&with.graph);
    }
    if (code != IGRAPH_SUCCESS) {
        status = sp_i_igraph_failed(err, "writing GraphML", code);
    }
    igraph_set_attribute_table(table);
    sp_i_igraph_end();
    path_times_fini(&times);
    return status;
}
