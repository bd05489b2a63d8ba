#include "sim/base/alloc.h"
#include "sim/plan/regroup.h"
#include "sim/verify/structure_edges.h"

sp_status sp_i_igraph_failed(sp_error *err, const char *what, igraph_error_t code)
{
    return sp_error_set(err, code == IGRAPH_ENOMEM ? SP_ERR_NO_MEMORY : SP_ERR_INTERNAL,
                        "igraph: %s: %s", what, igraph_strerror(code));
}

static sp_status build_graph(sp_structure *s, sp_error *err)
{
    igraph_vector_int_t edges = {0};
    igraph_vector_int_view(&edges, s->ends, (igraph_integer_t)(2 * s->edge_count));
    igraph_error_t code =
        igraph_create(&s->graph, &edges, (igraph_integer_t)s->vertex_count, IGRAPH_DIRECTED);
    if (code != IGRAPH_SUCCESS) {
        return sp_i_igraph_failed(err, "building the graph", code);
    }
    s->has_graph = true;
    return SP_OK;
}

sp_status sp_structure_new(const sp_plan *plan, const sp_step_costs *costs,
                           sp_structure **structure, sp_error *err)
{
    sp_i_vertex_map map = {0};
    sp_structure *s = sp_i_calloc(1, sizeof *s);
    sp_status status = s == NULL ? sp_error_no_memory(err, "the dependency graph")
                                 : sp_regroup(plan->packing, &map.forward_pack, err);
    if (status == SP_OK) {
        s->plan = plan;
        if (costs->share_class > 0) {
            status = sp_shares_make(plan, &map.shares, err);
        }
    }
    if (status == SP_OK) {
        // igraph aborts the process on errors unless told to return them.
        igraph_error_handler_t *previous = igraph_set_error_handler(igraph_error_handler_ignore);
        status = sp_i_structure_number(s, costs, &map) && sp_i_structure_connect(s, costs, &map)
                     ? build_graph(s, err)
                     : sp_error_no_memory(err, "the dependency graph");
        igraph_set_error_handler(previous);
    }
    sp_i_vertex_map_fini(&map);
    if (status != SP_OK) {
        sp_structure_free(s);
        s = NULL;
    }
    *structure = s;
    return status;
}

void sp_structure_free(sp_structure *s)
{
    if (s == NULL) {
        return;
    }
    if (s->has_graph) {
        igraph_destroy(&s->graph);
    }
    sp_i_free(s->vertices);
    sp_i_free(s->ends);
    sp_i_free(s->lag_ns);
    sp_i_free(s->reason);
    sp_i_free(s);
}
