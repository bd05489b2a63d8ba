#include <stdio.h>

#include "sim/verify/graph_private.h"

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
    igraph_integer_t n = (igraph_integer_t)s->vertex_count;
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
    const sp_i_vertex *at = &s->vertices[v];
    sp_action_name(at->action, s->plan->layout.chunks, name);
    snprintf(text, 80, "%s%s on dp %d pp %d", at->share > 0 ? "the share of " : "", name, at->dp,
             at->pp);
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
    sp_i_igraph_begin();
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
    sp_i_igraph_end();
    if (code != IGRAPH_SUCCESS) {
        return sp_i_igraph_failed(err, "finding a cycle", code);
    }
    return acyclic
               ? SP_OK
               : sp_error_set(err, SP_ERR_DEADLOCK, "%s: the plan cannot finish: %s", source, text);
}
