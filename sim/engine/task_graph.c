#include "sim/engine/task_graph.h"

#include "sim/base/alloc.h"

void sp_i_task_graph_fini(sp_i_task_graph *graph)
{
    sp_i_free(graph->action);
    sp_i_free(graph->share);
    sp_i_free(graph->lane);
    sp_i_free(graph->duration_ns);
    sp_i_free(graph->edge_begin);
    sp_i_free(graph->edge_from);
    sp_i_free(graph->edge_lag_ns);
    *graph = (sp_i_task_graph){0};
}

void sp_i_lower_add_edge(sp_i_task_graph *graph, uint32_t from, int64_t lag_ns)
{
    graph->edge_from[graph->edges] = from;
    graph->edge_lag_ns[graph->edges] = lag_ns;
    graph->edges++;
}
