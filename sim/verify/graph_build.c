#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "sim/verify/graph_private.h"

// Vertex v waits for `from` - 1; 0: for nothing.
static void add_edge(sp_i_builder *b, size_t from, size_t v, int64_t lag_ns, sp_i_wait reason)
{
    sp_structure *s = b->s;
    if (from == 0) {
        return;
    }
    sp_reserve((void **)&s->edges, &s->edge_capacity, s->edge_count + 1, sizeof *s->edges);
    s->edges[s->edge_count++] =
        (sp_i_edge){.from = from - 1, .to = v, .lag_ns = lag_ns, .reason = reason};
}

// From a pack's action on a virtual stage, as `at` has its direction and data-parallel rank.
static int64_t p2p_ns(const sp_i_builder *b, const sp_i_vertex *at, int vstage, int to)
{
    int from = b->index.rank_of[vstage];
    if (from != to && b->ran != NULL && b->ran->there_store != NULL) {
        return b->lag_ns[sp_action_is_backward(at->action)]
                        [sp_depends_entry(&b->index, at->action, at->dp, vstage)];
    }
    return from == to
               ? 0
               : sp_step_costs_p2p_ns(b->costs, at->action.kind != SP_ACTION_F,
                                      (size_t)at->action.pack, from, to, b->s->plan->layout.pp);
}

// What an action reads from the neighbouring virtual stage.
static void add_transfer(sp_i_builder *b, size_t reader, size_t v)
{
    const sp_i_vertex *at = &b->s->vertices[reader];
    bool forward = at->action.kind == SP_ACTION_F;
    int source = sp_i_structure_vstage(b, at) + (forward ? -1 : 1);
    if (source >= 0 && source < b->index.vstages) {
        sp_action_kind kind = forward ? SP_ACTION_F : SP_ACTION_B;
        add_edge(b, sp_i_structure_find(b, kind, at->action.pack, at->dp, source), v,
                 p2p_ns(b, at, source, at->pp), forward ? WAIT_INPUT : WAIT_GRADIENT);
    }
}

// A backward or a recomputation at v waits for the copies back of what it reads on rank `dp`; a
// recomputation only for one that stands before it.
static void add_copies_back(sp_i_builder *b, size_t v, int dp)
{
    const sp_i_vertex *at = &b->s->vertices[v];
    for (size_t i = 0; i < sp_i_structure_reads(b, at->action); i++) {
        size_t from = sp_i_structure_find(b, SP_ACTION_L, sp_i_structure_read(b, at->action, i), dp,
                                          sp_i_structure_vstage(b, at));
        bool waits = sp_action_is_backward(at->action) || from <= v;
        add_edge(b, waits ? from : 0, v, 0, dp == at->dp ? WAIT_COPY_BACK : WAIT_MEMBER);
    }
}

// What an action reads on its own rank.
static void add_local(sp_i_builder *b, size_t v)
{
    const sp_i_vertex *at = &b->s->vertices[v];
    sp_action action = at->action;
    int vstage = sp_i_structure_vstage(b, at);
    if (action.kind == SP_ACTION_W) {
        add_edge(b, sp_i_structure_find(b, SP_ACTION_B, action.pack, at->dp, vstage), v, 0,
                 WAIT_ACTIVATIONS);
        return;
    }
    if (action.kind == SP_ACTION_L) {
        add_edge(b, sp_i_structure_find(b, SP_ACTION_O, action.pack, at->dp, vstage), v, 0,
                 WAIT_COPY_OUT);
        return;
    }
    // Of one forward pack its copy stands behind it, in the order of edges.
    bool regrouped = b->index.forward_pack != NULL && sp_action_is_backward(action);
    if (regrouped) {
        add_copies_back(b, v, at->dp);
    }
    for (size_t i = 0; i < sp_i_structure_reads(b, action); i++) {
        int32_t pack = sp_i_structure_read(b, action, i);
        add_edge(b, sp_i_structure_find(b, SP_ACTION_F, pack, at->dp, vstage), v, 0,
                 WAIT_ACTIVATIONS);
    }
    if (action.kind != SP_ACTION_O && !regrouped) {
        add_copies_back(b, v, at->dp);
    }
}

// The action behind vertex v, and the one before it; v itself where there is none.
static size_t next_action(const sp_structure *s, size_t v)
{
    size_t u = v + 1;
    while (u < s->vertex_count && s->vertices[u].share > 0) {
        u++;
    }
    return u < s->vertex_count ? u : v;
}

static size_t previous_action(const sp_structure *s, size_t v)
{
    size_t u = v;
    while (u > 0 && s->vertices[u - 1].share > 0) {
        u--;
    }
    return u > 0 ? u - 1 : v;
}

// The vertex last before v in its rank's list that computes, or, with `alike`, that is a copy in
// v's direction; plus 1, 0 for none.
static size_t vertex_before(const sp_structure *s, size_t v, bool alike)
{
    const sp_i_vertex *at = &s->vertices[v];
    for (size_t u = v; u > 0; u--) {
        const sp_i_vertex *before = &s->vertices[u - 1];
        if (before->dp != at->dp || before->pp != at->pp) {
            return 0;
        }
        if (alike ? before->action.kind == at->action.kind : !sp_action_is_copy(before->action)) {
            return u;
        }
    }
    return 0;
}

// The copy out that a rank is done with before it goes on after vertex v: of a forward, the last
// one that stands before it; plus 1, 0 for none.
static size_t leaving_before(const sp_i_builder *b, size_t v)
{
    const sp_i_vertex *at = &b->s->vertices[v];
    bool forward = at->action.kind == SP_ACTION_F && at->share == 0;
    for (size_t u = b->copies && forward ? v : 0; u > 0; u--) {
        const sp_i_vertex *before = &b->s->vertices[u - 1];
        if (before->dp != at->dp || before->pp != at->pp) {
            return 0;
        }
        if (before->action.kind == SP_ACTION_O) {
            return u;
        }
    }
    return 0;
}

// With blocking transfers: the time that vertex v's rank spends on sending what v gives to another
// rank. A transfer to the vertex's own rank costs nothing.
static int64_t transfer_ns(const sp_i_builder *b, size_t v)
{
    const sp_i_vertex *at = &b->s->vertices[v];
    bool up = at->action.kind == SP_ACTION_F;
    bool down = at->action.kind == SP_ACTION_B || at->action.kind == SP_ACTION_I;
    int reader = sp_i_structure_vstage(b, at) + up - down;
    if (at->share > 0 || up == down || reader < 0 || reader == b->index.vstages) {
        return 0;
    }
    return p2p_ns(b, at, sp_i_structure_vstage(b, at), b->index.rank_of[reader]);
}

// What a rank sends after vertex v, before it goes on. The first of a pair goes on to the second at
// once; then both are sent together.
static int64_t sending_ns(const sp_i_builder *b, size_t v)
{
    const sp_i_vertex *vertices = b->s->vertices;
    if (!b->costs->blocking_transfers || vertices[v].action.with_next || vertices[v].share > 0) {
        return 0;
    }
    int64_t second_ns = transfer_ns(b, v);
    size_t first = previous_action(b->s, v);
    bool pair = first < v && vertices[first].action.with_next;
    int64_t first_ns = pair ? transfer_ns(b, first) : 0;
    return first_ns > second_ns ? first_ns : second_ns;
}

// Vertex v goes on when `before` - 1 of some rank is over, sent and, if it is a forward, the copy
// out that stands before it is done.
static void add_passed(sp_i_builder *b, size_t before, size_t v, sp_i_wait order, sp_i_wait copy)
{
    if (before > 0) {
        add_edge(b, before, v, sending_ns(b, before - 1), order);
        add_edge(b, leaving_before(b, before - 1), v, 0, copy);
    }
}

// Computation in the order of the list, copies in it among those of their direction. A copy back is
// issued when the computation before it is over. What follows a forward waits for the copy out that
// stands before that forward.
static void add_order(sp_i_builder *b, size_t v)
{
    sp_action action = b->s->vertices[v].action;
    if (!sp_action_is_copy(action)) {
        add_passed(b, vertex_before(b->s, v, false), v, WAIT_ORDER, WAIT_COPY_OUT);
        return;
    }
    add_edge(b, vertex_before(b->s, v, true), v, 0, WAIT_ORDER);
    if (action.kind == SP_ACTION_L) {
        add_edge(b, vertex_before(b->s, v, false), v, 0, WAIT_ORDER);
    }
}

// A merged pack starts on all its ranks at once: each waits for what stands before it on the
// others. Its weight gradient is each rank's own affair.
static void add_members(sp_i_builder *b, size_t v)
{
    const sp_i_vertex *at = &b->s->vertices[v];
    const sp_pack *pack = sp_depends_pack(&b->index, at->action);
    bool backward = sp_action_is_backward(at->action);
    sp_action_kind kind = backward ? SP_ACTION_B : (sp_action_kind)at->action.kind;
    for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
        if (d == at->dp || at->action.kind == SP_ACTION_W) {
            continue;
        }
        size_t peer =
            sp_i_structure_find(b, kind, at->action.pack, d, sp_i_structure_vstage(b, at));
        size_t before = peer > 0 ? vertex_before(b->s, peer - 1, false) : 0;
        add_passed(b, before, v, WAIT_MEMBER, WAIT_MEMBER);
        if (b->ran != NULL && peer > 0 && sp_depends_passes(at->action)) {
            add_transfer(b, peer - 1, v);
        }
        if (backward) {
            add_copies_back(b, v, d);
        }
    }
}

// From a rank's share, or from the stage's action, unless that is v itself.
static void add_end(sp_i_builder *b, size_t from, size_t v)
{
    add_edge(b, from == v + 1 ? 0 : from, v, 0, WAIT_SHARE);
}

// From the shares of all ranks of embedding or LM head, of the pack of a forward, a repeat or both.
static void add_part(sp_i_builder *b, sp_share_part part, bool first, bool again, sp_action of,
                     size_t v)
{
    size_t pp = (size_t)b->s->plan->layout.pp;
    size_t entry = sp_depends_slot(&b->index, of, b->s->vertices[v].dp) * pp;
    for (size_t p = 0; p < pp; p++) {
        add_end(b, first ? b->share[part][0][entry + p] : 0, v);
        add_end(b, again ? b->share[part][1][entry + p] : 0, v);
    }
}

// What a share reads but for its rank's order. A backward of the head reads the shares of the head
// of all ranks.
static void add_share_inputs(sp_i_builder *b, size_t v)
{
    const sp_i_vertex *at = &b->s->vertices[v];
    sp_share_part part = (sp_share_part)(at->share - 1);
    if (part != SP_SHARE_HEAD_BACKWARD && part != SP_SHARE_EMBEDDING) {
        bool again = at->action.kind == SP_ACTION_R;
        add_end(b, b->stage[part][again][sp_depends_slot(&b->index, at->action, at->dp)], v);
    }
    size_t heads = part == SP_SHARE_HEAD_BACKWARD ? sp_i_structure_reads(b, at->action) : 0;
    for (size_t i = 0; i < heads; i++) {
        const sp_action forward = {.kind = SP_ACTION_F,
                                   .pack = sp_i_structure_read(b, at->action, i)};
        add_part(b, SP_SHARE_HEAD, true, true, forward, v);
    }
}

// The shares that the stage's action needs.
static void add_shares(sp_i_builder *b, size_t v)
{
    const sp_i_vertex *at = &b->s->vertices[v];
    sp_share_part part;
    if (b->shares.items != NULL &&
        sp_share_part_of(&b->s->plan->layout, sp_i_structure_vstage(b, at), at->action, &part) &&
        (part == SP_SHARE_EMBEDDING || part == SP_SHARE_HEAD_BACKWARD)) {
        bool again = at->action.kind == SP_ACTION_R;
        add_part(b, part, !again, again, at->action, v);
    }
}

// What vertex v waits for, and for how long after.
static void connect(sp_i_builder *b, size_t v)
{
    const sp_i_vertex *at = &b->s->vertices[v];
    add_order(b, v);
    if (at->share > 0) {
        add_share_inputs(b, v);
        return;
    }
    add_shares(b, v);
    if (at->action.kind == SP_ACTION_F || at->action.kind == SP_ACTION_B ||
        at->action.kind == SP_ACTION_I) {
        add_transfer(b, v, v);
    }
    // The first of a pair waits for the input of the second too.
    if (at->action.with_next) {
        add_transfer(b, next_action(b->s, v), v);
    }
    if (at->action.kind != SP_ACTION_F) {
        add_local(b, v);
    }
    if (!sp_action_is_copy(at->action)) {
        add_members(b, v);
    }
}

// The list of what igraph frees on an error is one for all threads (but where it was built with
// IGRAPH_THREAD_SAFE), and so is the handler of errors, without which they abort the process.
static pthread_mutex_t igraph_lock = PTHREAD_MUTEX_INITIALIZER;
static igraph_error_handler_t *igraph_handler;

void sp_i_igraph_begin(void)
{
    pthread_mutex_lock(&igraph_lock);
    igraph_handler = igraph_set_error_handler(igraph_error_handler_ignore);
}

void sp_i_igraph_end(void)
{
    igraph_set_error_handler(igraph_handler);
    pthread_mutex_unlock(&igraph_lock);
}

sp_status sp_i_igraph_failed(sp_error *err, const char *what, igraph_error_t code)
{
    // What a file is written to may be full, or gone.
    if (code == IGRAPH_EFILE) {
        return sp_error_set(err, SP_ERR_IO, "%s", errno != 0 ? strerror(errno) : "cannot write");
    }
    return sp_error_set(err, code == IGRAPH_ENOMEM ? SP_ERR_NO_MEMORY : SP_ERR_INTERNAL,
                        "igraph: %s: %s", what, igraph_strerror(code));
}

igraph_error_t sp_i_structure_create(const sp_structure *s, igraph_t *graph)
{
    igraph_vector_int_t ends = {0};
    igraph_error_t code = igraph_vector_int_init(&ends, (igraph_integer_t)(2 * s->edge_count));
    for (size_t e = 0; code == IGRAPH_SUCCESS && e < s->edge_count; e++) {
        VECTOR(ends)[2 * e] = (igraph_integer_t)s->edges[e].from;
        VECTOR(ends)[2 * e + 1] = (igraph_integer_t)s->edges[e].to;
    }
    if (code == IGRAPH_SUCCESS) {
        code = igraph_create(graph, &ends, (igraph_integer_t)s->vertex_count, IGRAPH_DIRECTED);
    }
    igraph_vector_int_destroy(&ends);
    return code;
}

static sp_status build(sp_i_builder *b, sp_error *err)
{
    sp_structure *s = b->s;
    sp_status status = SP_OK;
    sp_depends_init(&b->index, s->plan, NULL, NULL);
    if (b->costs->share_class > 0) {
        status = sp_shares_make(s->plan, &b->shares, err);
    }
    if (status != SP_OK) {
        return status;
    }
    sp_i_structure_number(b);
    for (size_t v = 0; v < s->vertex_count; v++) {
        connect(b, v);
    }
    sp_i_igraph_begin();
    igraph_error_t code = sp_i_structure_create(s, &s->graph);
    sp_i_igraph_end();
    s->has_graph = code == IGRAPH_SUCCESS;
    return s->has_graph ? SP_OK : sp_i_igraph_failed(err, "building the graph", code);
}

sp_status sp_structure_new(const sp_plan *plan, const sp_step_costs *costs, const sp_timeline *ran,
                           sp_structure **structure, sp_error *err)
{
    sp_i_builder b = {.s = sp_calloc(1, sizeof *b.s), .costs = costs};
    b.ran = ran != NULL && ran->varies ? ran : NULL;
    *structure = b.s;
    b.s->plan = plan;
    sp_status status = build(&b, err);
    sp_depends_fini(&b.index);
    sp_shares_fini(&b.shares);
    sp_arena_free(&b.work);
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
        sp_i_igraph_begin();
        igraph_destroy(&s->graph);
        sp_i_igraph_end();
    }
    sp_free(s->vertices);
    sp_free(s->edges);
    sp_free(s);
}
