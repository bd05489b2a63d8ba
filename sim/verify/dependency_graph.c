#include "sim/verify/dependency_graph.h"

#include <errno.h>
#include <igraph/igraph.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/cost/action_cost.h"
#include "sim/plan/walk.h"

// Why one action waits for another.
typedef enum wait {
    WAIT_ORDER,
    WAIT_INPUT,
    WAIT_GRADIENT,
    WAIT_ACTIVATIONS,
    WAIT_MEMBER,
    WAIT_COPY_OUT,
    WAIT_COPY_BACK,
    WAIT_SHARE
} wait;

typedef struct graph_vertex {
    sp_action action;
    uint8_t share; // 0, or 1 + the end of which this is its rank's share
    int dp, pp;
    int64_t duration_ns;
} graph_vertex;

// One action waits for another; the second may start `lag_ns` after the end of the first.
typedef struct graph_edge {
    size_t from, to;
    int64_t lag_ns;
    wait reason;
} graph_edge;

struct sp_structure {
    const sp_plan *plan;
    igraph_t graph;
    bool has_graph;
    graph_vertex *vertices;
    size_t vertex_count;
    graph_edge *edges; // by igraph's edge number, which is the order in which edges were given
    size_t edge_count, edge_capacity;
};

enum { SHARE_ENDS = SP_SHARE_HEAD_BACKWARD + 1 };

// A structure in the making. Tables give a vertex + 1, 0 for none.
typedef struct builder {
    sp_structure *s;
    const sp_step_costs *costs;
    sp_depends index; // for the places of packs in the tables, not for its rules
    // By kind, and by slot of the pack and virtual stage: F, B (or I), R, O and L. The first of an
    // overlapped pair has the vertex of the second, when what it gives is there.
    size_t *of[SP_ACTION_KINDS];
    bool copies; // there is an O
    // Of a network that transfers shared: how long what F, or B and I, gave was under way; NULL: as
    // the costs say.
    const sp_timeline *ran;
    int64_t *lag_ns[2];
    // Of a vocabulary that pipeline ranks share. By end, of F or else of R, and [slots * pp]: each
    // rank's share. `stage`, by end and F or R, [slots]: the stage's action itself.
    sp_shares shares;
    size_t *share[SHARE_ENDS][2], *stage[SHARE_ENDS][2];
    sp_arena work; // its tables
} builder;

static inline int vstage_at(const builder *b, const graph_vertex *at)
{
    return sp_layout_vstage(&b->s->plan->layout, at->pp, at->action.chunk);
}

// The forward packs that an action reads on its own rank: how many, and the i-th.
static inline size_t count_reads(const builder *b, sp_action action)
{
    bool regrouped = b->index.forward_pack != NULL && sp_action_is_backward(action);
    return regrouped ? sp_depends_pack(&b->index, action)->slice_count : 1;
}

static inline int32_t read_at(const builder *b, sp_action action, size_t i)
{
    bool regrouped = b->index.forward_pack != NULL && sp_action_is_backward(action);
    size_t slice = regrouped ? sp_depends_pack(&b->index, action)->first_slice + i : 0;
    return regrouped ? b->index.forward_pack[slice] : action.pack;
}

// The vertex of an action of `kind` for a pack, + 1.
static inline size_t find_vertex(const builder *b, sp_action_kind kind, int32_t pack, int dp,
                                 int vstage)
{
    const sp_action action = {.kind = (uint8_t)kind, .pack = pack};
    return b->of[kind][sp_depends_entry(&b->index, action, dp, vstage)];
}

static void allocate(builder *b)
{
    const sp_plan *plan = b->s->plan;
    const size_t *slots = b->index.slots;
    size_t stages = (size_t)plan->layout.dp * (size_t)plan->layout.pp;
    for (int kind = 0; kind < SP_ACTION_KINDS; kind++) {
        bool backward = sp_action_is_backward((sp_action){.kind = (uint8_t)kind});
        b->of[kind] = sp_arena_take(&b->work, slots[backward] * (size_t)b->index.vstages,
                                    sizeof *b->of[kind]);
    }
    for (int i = 0; b->shares.items != NULL && i < 2 * SHARE_ENDS; i++) {
        size_t count = slots[0] + slots[1];
        size_t **share = &b->share[i / 2][i % 2];
        size_t **stage = &b->stage[i / 2][i % 2];
        *share = sp_arena_take(&b->work, count * (size_t)plan->layout.pp, sizeof **share);
        *stage = sp_arena_take(&b->work, count, sizeof **stage);
    }
    for (size_t i = 0; i < stages; i++) {
        b->s->vertex_count += plan->stages[i].count;
    }
    b->s->vertex_count += b->shares.items != NULL ? b->shares.first[stages] : 0;
    for (int side = 0; b->ran != NULL && side < 2; side++) {
        b->lag_ns[side] = sp_arena_take(&b->work, slots[side] * (size_t)b->index.vstages,
                                        sizeof *b->lag_ns[side]);
    }
    b->s->vertices = sp_malloc(b->s->vertex_count * sizeof *b->s->vertices);
}

// A rank's shares that stand before its action `before`, beyond the `done` first.
static size_t shares_between(const builder *b, int dp, int pp, size_t done, size_t before)
{
    size_t count;
    size_t between = 0;
    const sp_share *shares = sp_shares_of(&b->shares, &b->s->plan->layout, dp, pp, &count);
    while (done + between < count && shares[done + between].before <= before) {
        between++;
    }
    return between;
}

// Numbers those shares from v on.
static size_t number_shares(builder *b, int dp, int pp, size_t before, size_t v, size_t *done)
{
    size_t count;
    const sp_plan *plan = b->s->plan;
    const sp_share *shares = sp_shares_of(&b->shares, &plan->layout, dp, pp, &count);
    for (size_t left = shares_between(b, dp, pp, *done, before); left > 0; left--, v++) {
        size_t place = *done;
        const sp_share *share = &shares[(*done)++];
        sp_action_cost cost = sp_share_cost_of(plan, b->costs, share);
        size_t at = sp_depends_slot(&b->index, share->action, dp) * (size_t)plan->layout.pp;
        b->share[share->part][share->action.kind == SP_ACTION_R][at + (size_t)pp] = v + 1;
        b->s->vertices[v] = (graph_vertex){.action = share->action,
                                           .share = (uint8_t)(1 + share->part),
                                           .dp = dp,
                                           .pp = pp,
                                           .duration_ns = sp_action_cost_ns(&cost)};
        if (b->ran != NULL) {
            const sp_span *ran = &b->ran->ranks[dp * plan->layout.pp + pp].shares[place].span;
            b->s->vertices[v].duration_ns = ran->end_ns - ran->start_ns;
        }
    }
    return v;
}

// Has every forward pack of this backward been recomputed by the actions numbered so far?
static bool was_recomputed(const builder *b, sp_action action, int dp, int vstage)
{
    bool all = action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
    for (size_t i = 0; all && i < count_reads(b, action); i++) {
        int32_t pack = read_at(b, action, i);
        all = find_vertex(b, SP_ACTION_R, pack, dp, vstage) != 0;
    }
    return all;
}

// How long the action took in the timeline; *span counts those of its rank. What it gave was under
// way from the end of its pair on.
static int64_t duration_as_run(builder *b, const graph_vertex *at, size_t *span)
{
    const sp_layout *layout = &b->s->plan->layout;
    const sp_rank_timeline *rank = &b->ran->ranks[at->dp * layout->pp + at->pp];
    if (sp_action_is_copy(at->action)) {
        sp_action_cost cost =
            sp_action_cost_of(b->s->plan, b->costs, at->action,
                              sp_layout_vstage(layout, at->pp, at->action.chunk), false);
        return sp_action_cost_ns(&cost);
    }
    const sp_span *ran = &rank->spans[*span];
    if (rank->there_ns != NULL && sp_depends_passes(at->action) &&
        rank->there_ns[*span] != SP_NOT_YET) {
        int vstage = sp_layout_vstage(layout, at->pp, at->action.chunk);
        int64_t sent_ns = ran[at->action.with_next ? 1 : 0].end_ns;
        b->lag_ns[sp_action_is_backward(at->action)]
                 [sp_depends_entry(&b->index, at->action, at->dp, vstage)] =
            rank->there_ns[*span] - sent_ns;
    }
    (*span)++;
    return ran->end_ns - ran->start_ns;
}

// Numbers an action; `shares` of its rank stand before it.
static void number_action(builder *b, int dp, int pp, size_t a, size_t v, size_t shares)
{
    const sp_plan *plan = b->s->plan;
    sp_action action = sp_plan_stage(plan, dp, pp)->actions[a];
    int vstage = sp_layout_vstage(&plan->layout, pp, action.chunk);
    int kind = action.kind == SP_ACTION_I ? SP_ACTION_B : action.kind;
    size_t pair = action.with_next ? 1 + shares_between(b, dp, pp, shares, a + 1) : 0;
    b->of[kind][sp_depends_entry(&b->index, action, dp, vstage)] = v + 1 + pair;
    b->copies = b->copies || action.kind == SP_ACTION_O;
    bool recomputed = was_recomputed(b, action, dp, vstage);
    sp_action_cost cost = sp_action_cost_of(plan, b->costs, action, vstage, recomputed);
    b->s->vertices[v] = (graph_vertex){
        .action = action, .dp = dp, .pp = pp, .duration_ns = sp_action_cost_ns(&cost)};
    sp_share_part part;
    if (b->shares.items != NULL && sp_share_part_of(&plan->layout, vstage, action, &part)) {
        b->stage[part][kind == SP_ACTION_R][sp_depends_slot(&b->index, action, dp)] = v + 1;
    }
}

// Numbers all actions, rank after rank, into s->vertices. Index and shares are
// there already.
static void number_actions(builder *b)
{
    const sp_layout *layout = &b->s->plan->layout;
    size_t v = 0;
    allocate(b);
    for (int i = 0; i < layout->dp * layout->pp; i++) {
        int dp = i / layout->pp;
        int pp = i % layout->pp;
        size_t count = b->s->plan->stages[i].count;
        size_t shares = 0;
        size_t span = 0;
        for (size_t a = 0; a < count; a++, v++) {
            v = number_shares(b, dp, pp, a, v, &shares);
            number_action(b, dp, pp, a, v, shares);
            if (b->ran != NULL) {
                b->s->vertices[v].duration_ns = duration_as_run(b, &b->s->vertices[v], &span);
            }
        }
        v = number_shares(b, dp, pp, count, v, &shares);
    }
}

// Vertex v waits for `from` - 1; 0: for nothing.
static void add_edge(builder *b, size_t from, size_t v, int64_t lag_ns, wait reason)
{
    sp_structure *s = b->s;
    if (from == 0) {
        return;
    }
    sp_reserve((void **)&s->edges, &s->edge_capacity, s->edge_count + 1, sizeof *s->edges);
    s->edges[s->edge_count++] =
        (graph_edge){.from = from - 1, .to = v, .lag_ns = lag_ns, .reason = reason};
}

// From a pack's action on a virtual stage, as `at` has its direction and data-parallel rank.
static int64_t p2p_ns(const builder *b, const graph_vertex *at, int vstage, int to)
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
static void add_transfer(builder *b, size_t reader, size_t v)
{
    const graph_vertex *at = &b->s->vertices[reader];
    bool forward = at->action.kind == SP_ACTION_F;
    int source = vstage_at(b, at) + (forward ? -1 : 1);
    if (source >= 0 && source < b->index.vstages) {
        sp_action_kind kind = forward ? SP_ACTION_F : SP_ACTION_B;
        add_edge(b, find_vertex(b, kind, at->action.pack, at->dp, source), v,
                 p2p_ns(b, at, source, at->pp), forward ? WAIT_INPUT : WAIT_GRADIENT);
    }
}

// A backward or a recomputation at v waits for the copies back of what it reads on rank `dp`; a
// recomputation only for one that stands before it.
static void add_copies_back(builder *b, size_t v, int dp)
{
    const graph_vertex *at = &b->s->vertices[v];
    for (size_t i = 0; i < count_reads(b, at->action); i++) {
        size_t from = find_vertex(b, SP_ACTION_L, read_at(b, at->action, i), dp, vstage_at(b, at));
        bool waits = sp_action_is_backward(at->action) || from <= v;
        add_edge(b, waits ? from : 0, v, 0, dp == at->dp ? WAIT_COPY_BACK : WAIT_MEMBER);
    }
}

// What an action reads on its own rank.
static void add_local(builder *b, size_t v)
{
    const graph_vertex *at = &b->s->vertices[v];
    sp_action action = at->action;
    int vstage = vstage_at(b, at);
    if (action.kind == SP_ACTION_W) {
        add_edge(b, find_vertex(b, SP_ACTION_B, action.pack, at->dp, vstage), v, 0,
                 WAIT_ACTIVATIONS);
        return;
    }
    if (action.kind == SP_ACTION_L) {
        add_edge(b, find_vertex(b, SP_ACTION_O, action.pack, at->dp, vstage), v, 0, WAIT_COPY_OUT);
        return;
    }
    // Of one forward pack its copy stands behind it, in the order of edges.
    bool regrouped = b->index.forward_pack != NULL && sp_action_is_backward(action);
    if (regrouped) {
        add_copies_back(b, v, at->dp);
    }
    for (size_t i = 0; i < count_reads(b, action); i++) {
        int32_t pack = read_at(b, action, i);
        add_edge(b, find_vertex(b, SP_ACTION_F, pack, at->dp, vstage), v, 0, WAIT_ACTIVATIONS);
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
    const graph_vertex *at = &s->vertices[v];
    for (size_t u = v; u > 0; u--) {
        const graph_vertex *before = &s->vertices[u - 1];
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
static size_t leaving_before(const builder *b, size_t v)
{
    const graph_vertex *at = &b->s->vertices[v];
    bool forward = at->action.kind == SP_ACTION_F && at->share == 0;
    for (size_t u = b->copies && forward ? v : 0; u > 0; u--) {
        const graph_vertex *before = &b->s->vertices[u - 1];
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
static int64_t transfer_ns(const builder *b, size_t v)
{
    const graph_vertex *at = &b->s->vertices[v];
    bool up = at->action.kind == SP_ACTION_F;
    bool down = at->action.kind == SP_ACTION_B || at->action.kind == SP_ACTION_I;
    int reader = vstage_at(b, at) + up - down;
    if (at->share > 0 || up == down || reader < 0 || reader == b->index.vstages) {
        return 0;
    }
    return p2p_ns(b, at, vstage_at(b, at), b->index.rank_of[reader]);
}

// What a rank sends after vertex v, before it goes on. The first of a pair goes on to the second at
// once; then both are sent together.
static int64_t sending_ns(const builder *b, size_t v)
{
    const graph_vertex *vertices = b->s->vertices;
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
static void add_passed(builder *b, size_t before, size_t v, wait order, wait copy)
{
    if (before > 0) {
        add_edge(b, before, v, sending_ns(b, before - 1), order);
        add_edge(b, leaving_before(b, before - 1), v, 0, copy);
    }
}

// Computation in the order of the list, copies in it among those of their direction. A copy back is
// issued when the computation before it is over. What follows a forward waits for the copy out that
// stands before that forward.
static void add_order(builder *b, size_t v)
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
static void add_members(builder *b, size_t v)
{
    const graph_vertex *at = &b->s->vertices[v];
    const sp_pack *pack = sp_depends_pack(&b->index, at->action);
    bool backward = sp_action_is_backward(at->action);
    sp_action_kind kind = backward ? SP_ACTION_B : (sp_action_kind)at->action.kind;
    for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
        if (d == at->dp || at->action.kind == SP_ACTION_W) {
            continue;
        }
        size_t peer = find_vertex(b, kind, at->action.pack, d, vstage_at(b, at));
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
static void add_end(builder *b, size_t from, size_t v)
{
    add_edge(b, from == v + 1 ? 0 : from, v, 0, WAIT_SHARE);
}

// From the shares of all ranks of embedding or LM head, of the pack of a forward, a repeat or both.
static void add_part(builder *b, sp_share_part part, bool first, bool again, sp_action of, size_t v)
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
static void add_share_inputs(builder *b, size_t v)
{
    const graph_vertex *at = &b->s->vertices[v];
    sp_share_part part = (sp_share_part)(at->share - 1);
    if (part != SP_SHARE_HEAD_BACKWARD && part != SP_SHARE_EMBEDDING) {
        bool again = at->action.kind == SP_ACTION_R;
        add_end(b, b->stage[part][again][sp_depends_slot(&b->index, at->action, at->dp)], v);
    }
    size_t heads = part == SP_SHARE_HEAD_BACKWARD ? count_reads(b, at->action) : 0;
    for (size_t i = 0; i < heads; i++) {
        const sp_action forward = {.kind = SP_ACTION_F, .pack = read_at(b, at->action, i)};
        add_part(b, SP_SHARE_HEAD, true, true, forward, v);
    }
}

// The shares that the stage's action needs.
static void add_shares(builder *b, size_t v)
{
    const graph_vertex *at = &b->s->vertices[v];
    sp_share_part part;
    if (b->shares.items != NULL &&
        sp_share_part_of(&b->s->plan->layout, vstage_at(b, at), at->action, &part) &&
        (part == SP_SHARE_EMBEDDING || part == SP_SHARE_HEAD_BACKWARD)) {
        bool again = at->action.kind == SP_ACTION_R;
        add_part(b, part, !again, again, at->action, v);
    }
}

// What vertex v waits for, and for how long after.
static void connect(builder *b, size_t v)
{
    const graph_vertex *at = &b->s->vertices[v];
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
    // What a file is written to may be full, or gone.
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
        code = igraph_create(graph, &ends, (igraph_integer_t)s->vertex_count, IGRAPH_DIRECTED);
    }
    igraph_vector_int_destroy(&ends);
    return code;
}

static sp_status build(builder *b, sp_error *err)
{
    sp_structure *s = b->s;
    sp_status status = SP_OK;
    sp_depends_init(&b->index, s->plan, NULL);
    if (b->costs->share_class > 0) {
        status = sp_shares_make(s->plan, &b->shares, err);
    }
    if (status != SP_OK) {
        return status;
    }
    number_actions(b);
    for (size_t v = 0; v < s->vertex_count; v++) {
        connect(b, v);
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
    sp_depends_fini(&b.index);
    sp_shares_fini(&b.shares);
    sp_arena_free(&b.work);
    if (status != SP_OK) {
        sp_structure_free(b.s);
        *structure = NULL;
    }
    return status;
}

const void *sp_structure_graph(const sp_structure *s)
{
    return &s->graph;
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
    sp_free(s->vertices);
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
    const graph_vertex *at = &s->vertices[v];
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
    igraph_begin();
    igraph_vector_int_t incident = {0};
    bool ok = igraph_vector_int_init(&incident, 0) == IGRAPH_SUCCESS;
    while (ok && at < s->vertex_count) {
        const graph_vertex *v = &s->vertices[at];
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
        const graph_vertex *at = &s->vertices[v];
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
    return code == IGRAPH_SUCCESS ? SP_OK : igraph_failed(err, "graph attributes", code);
}

// Attributes live in a graph that was made under the attribute table, so the graph is made again.
sp_status sp_structure_graphml(sp_structure *s, FILE *file, sp_error *err)
{
    path_times times;
    sp_status status = longest_paths(s, &times, err);
    if (status != SP_OK) {
        return status;
    }
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
