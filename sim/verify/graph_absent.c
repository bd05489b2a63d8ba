// In place of the files that use igraph where it was not found when this was built.
#include "sim/verify/dependency_graph.h"

struct sp_structure {
    int unused;
};

static sp_structure none;

static sp_status refuse(sp_error *err, const char *what)
{
    return sp_error_set(err, SP_ERR_USAGE, "%s needs igraph, which this build does not have", what);
}

sp_status sp_structure_new(const sp_plan *plan, const sp_step_costs *costs, const sp_timeline *ran,
                           sp_structure **structure, sp_error *err)
{
    (void)plan;
    (void)costs;
    (void)ran;
    (void)err;
    *structure = &none;
    return SP_OK;
}

void sp_structure_free(sp_structure *structure)
{
    (void)structure;
}

sp_status sp_structure_makespan(sp_structure *structure, int64_t *makespan_ns, sp_error *err)
{
    (void)structure;
    *makespan_ns = 0;
    return refuse(err, "--verify");
}

sp_status sp_structure_cycle(sp_structure *structure, const char *source, sp_error *err)
{
    (void)structure;
    (void)source;
    (void)err;
    return SP_OK;
}

sp_status sp_structure_critical_path(sp_structure *structure, sp_critical_step **steps,
                                     size_t *count, sp_error *err)
{
    (void)structure;
    *steps = NULL;
    *count = 0;
    return refuse(err, "--critical-path");
}

sp_status sp_structure_graphml(sp_structure *structure, FILE *file, sp_error *err)
{
    (void)structure;
    (void)file;
    return refuse(err, "--graphml");
}
