#include "sim/engine/task_graph.h"

#include "sim/base/alloc.h"

void sp_i_task_graph_fini(sp_i_task_graph *graph)
{
    sp_i_free(graph->action);
    sp_i_free(graph->lane);
    sp_i_free(graph->duration_ns);
    sp_i_free(graph->edge_begin);
    sp_i_free(graph->edge_from);
    sp_i_free(graph->edge_lag_ns);
    *graph = (sp_i_task_graph){0};
}
