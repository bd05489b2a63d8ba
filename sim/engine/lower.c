#include "sim/engine/lower.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/schedule/regroup.h"

enum { NONE = -1 };

// The state of a lowering. Tables of lowered tasks are indexed by slot, one per pack and simulated
// data-parallel rank that runs it, and virtual stage.
typedef struct lowering {
    const sp_plan *plan;
    const sp_step_costs *costs;
    const sp_i_folding *folding;
    sp_i_task_graph *graph;
    const sp_pack_list *backward;
    size_t vstages;
    size_t *forward_slot;  // [packs]: slot of the pack on its first rank
    size_t *backward_slot; // [backward packs]
    int32_t *forward_task; // [slots * vstages]: task or NONE
    int32_t *backward_task;
    uint8_t *recomputed; // [forward slots * vstages]: an explicit R ran
    bool copies;         // some rank has an O or L
    int32_t *out_task;   // [forward slots * vstages]: its O; NULL without copies
    int32_t *back_task;  // its L
    int32_t *last_out;   // [lanes]: the lane's last O, or NONE; NULL without copies
    int32_t *last_back;  // its last L
    int *kind_of_dp;     // [dp]: simulated rank, or NONE
    size_t *done;        // [lanes]: actions lowered
    uint32_t *last;      // [lanes]: the lane's last task other than a copy
    uint8_t *computed;   // [lanes]: it has one
    size_t *queue;       // ring of lanes to visit
    uint8_t *queued;     // [lanes]
    size_t queue_begin, queue_count;
    int32_t *needs; // regrouped backward packs: the forward pack of each backward slice
} lowering;

static size_t lane_of(const lowering *low, int kind, int pp_rank)
{
    return (size_t)kind * (size_t)low->plan->layout.pp + (size_t)pp_rank;
}

static const sp_stage_plan *lane_stage(const lowering *low, size_t lane)
{
    size_t pp = (size_t)low->plan->layout.pp;
    return sp_plan_stage(low->plan, low->folding->rank[lane / pp], (int)(lane % pp));
}

static void enqueue(lowering *low, size_t lane)
{
    if (!low->queued[lane]) {
        low->queued[lane] = 1;
        low->queue[(low->queue_begin + low->queue_count) % low->graph->lanes] = lane;
        low->queue_count++;
    }
}

static bool is_backward(sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_I || action.kind == SP_ACTION_W;
}

bool sp_i_is_copy(sp_action action)
{
    return action.kind == SP_ACTION_O || action.kind == SP_ACTION_L;
}

static const sp_pack *pack_of(const lowering *low, sp_action action)
{
    return is_backward(action) ? &low->backward->packs[action.pack]
                               : &low->plan->packing->forward.packs[action.pack];
}

static size_t table_index(const lowering *low, sp_action action, int dp, int vstage)
{
    const sp_pack *pack = pack_of(low, action);
    size_t slot =
        is_backward(action) ? low->backward_slot[action.pack] : low->forward_slot[action.pack];
    return (slot + (size_t)(dp - pack->dp_first)) * low->vstages + (size_t)vstage;
}

sp_action_cost sp_i_action_cost(const sp_plan *plan, const sp_step_costs *costs, sp_action action,
                                int vstage, bool recomputed)
{
    size_t at =
        (size_t)action.pack * (size_t)costs->classes + (size_t)costs->class_of_vstage[vstage];
    switch ((sp_action_kind)action.kind) {
    case SP_ACTION_F:
        return costs->f[at];
    case SP_ACTION_W:
        return costs->w[at];
    case SP_ACTION_R:
        return plan->packing->backward.count > 0 ? costs->f[at] : costs->r[at];
    case SP_ACTION_B:
    case SP_ACTION_I: {
        sp_action_cost cost = action.kind == SP_ACTION_B ? costs->b[at] : costs->i[at];
        if (recomputed) {
            cost.compute_ns -= costs->r[at].compute_ns;
            cost.tp_ns -= costs->r[at].tp_ns;
            cost.cp_ns -= costs->r[at].cp_ns;
        }
        return cost;
    }
    case SP_ACTION_O:
        return (sp_action_cost){.compute_ns = costs->o_ns != NULL ? costs->o_ns[at] : 0};
    case SP_ACTION_L:
        return (sp_action_cost){.compute_ns = costs->l_ns != NULL ? costs->l_ns[at] : 0};
    case SP_ACTION_KINDS:
        break;
    }
    return (sp_action_cost){0};
}

// The neighbour whose task this action waits for: its task table, index and lag. Returns false when
// it waits for none.
static bool remote_source(const lowering *low, sp_action action, int dp, int pp_rank, int vstage,
                          int32_t *task, int64_t *lag_ns)
{
    const sp_layout *layout = &low->plan->layout;
    int source = action.kind == SP_ACTION_F ? vstage - 1 : vstage + 1;
    if ((action.kind != SP_ACTION_F && action.kind != SP_ACTION_B && action.kind != SP_ACTION_I) ||
        source < 0 || source >= (int)low->vstages) {
        return false;
    }
    const int32_t *table = action.kind == SP_ACTION_F ? low->forward_task : low->backward_task;
    *task = table[table_index(low, action, dp, source)];
    int source_rank;
    int source_chunk;
    sp_layout_locate(layout, source, &source_rank, &source_chunk);
    *lag_ns = source_rank == pp_rank
                  ? 0
                  : sp_step_costs_p2p_ns(low->costs, action.kind != SP_ACTION_F,
                                         (size_t)action.pack, source_rank, pp_rank, layout->pp);
    return true;
}

// Has this lane lowered everything of its own that the action reads?
static bool local_ready(const lowering *low, sp_action action, int dp, int vstage)
{
    if (action.kind == SP_ACTION_B || action.kind == SP_ACTION_I) {
        if (low->needs == NULL) {
            return low->forward_task[table_index(low, action, dp, vstage)] != NONE;
        }
        const sp_pack *pack = &low->backward->packs[action.pack];
        for (size_t s = 0; s < pack->slice_count; s++) {
            sp_action forward = {.kind = SP_ACTION_F, .pack = low->needs[pack->first_slice + s]};
            if (low->forward_task[table_index(low, forward, dp, vstage)] == NONE) {
                return false;
            }
        }
        return true;
    }
    if (action.kind == SP_ACTION_W) {
        return low->backward_task[table_index(low, action, dp, vstage)] != NONE;
    }
    if (action.kind == SP_ACTION_F) {
        return true;
    }
    if (action.kind == SP_ACTION_L) {
        return low->out_task[table_index(low, action, dp, vstage)] != NONE;
    }
    return low->forward_task[table_index(low, action, dp, vstage)] != NONE;
}

// Can the lane run its next action, as far as its own rank and its neighbour are concerned?
static bool ready_on(const lowering *low, sp_action action, int dp, int pp_rank)
{
    int vstage = sp_layout_vstage(&low->plan->layout, pp_rank, action.chunk);
    int32_t task = 0;
    int64_t lag_ns;
    return local_ready(low, action, dp, vstage) &&
           (!remote_source(low, action, dp, pp_rank, vstage, &task, &lag_ns) || task != NONE);
}

// A merged pack runs on its data-parallel ranks together: every one must have come to the action.
static bool group_ready(const lowering *low, sp_action action, int pp_rank)
{
    const sp_pack *pack = pack_of(low, action);
    for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
        size_t lane = lane_of(low, low->kind_of_dp[d], pp_rank);
        const sp_stage_plan *stage = lane_stage(low, lane);
        if (low->done[lane] == stage->count) {
            return false;
        }
        sp_action next = stage->actions[low->done[lane]];
        if (next.kind != action.kind || next.chunk != action.chunk || next.pack != action.pack ||
            !ready_on(low, action, d, pp_rank)) {
            return false;
        }
    }
    return true;
}

static void add_edge(sp_i_task_graph *graph, uint32_t from, int64_t lag_ns)
{
    graph->edge_from[graph->edges] = from;
    graph->edge_lag_ns[graph->edges] = lag_ns;
    graph->edges++;
}

// Did the lane recompute everything that this backward reads?
static bool was_recomputed(const lowering *low, sp_action action, int dp, int vstage)
{
    if (action.kind != SP_ACTION_B && action.kind != SP_ACTION_I) {
        return false;
    }
    if (low->needs == NULL) {
        return low->recomputed[table_index(low, action, dp, vstage)] != 0;
    }
    const sp_pack *pack = &low->backward->packs[action.pack];
    for (size_t s = 0; s < pack->slice_count; s++) {
        sp_action forward = {.kind = SP_ACTION_F, .pack = low->needs[pack->first_slice + s]};
        if (low->recomputed[table_index(low, forward, dp, vstage)] == 0) {
            return false;
        }
    }
    return true;
}

// The last copy back among those that bring what this action reads, or NONE. One rank's copies end
// in the order of their tasks, so none of the others ends later.
static int32_t awaited_copy(const lowering *low, sp_action action, int dp, int vstage)
{
    bool backward = action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
    if (!low->copies || (!backward && action.kind != SP_ACTION_R)) {
        return NONE;
    }
    if (!backward || low->needs == NULL) {
        return low->back_task[table_index(low, action, dp, vstage)];
    }
    int32_t last = NONE;
    const sp_pack *pack = &low->backward->packs[action.pack];
    for (size_t s = pack->first_slice; s < pack->first_slice + pack->slice_count; s++) {
        sp_action forward = {.kind = SP_ACTION_F, .pack = low->needs[s]};
        int32_t task = low->back_task[table_index(low, forward, dp, vstage)];
        last = task > last ? task : last;
    }
    return last;
}

// What a copy waits for: the one before it in its direction; to the host what it copies; from the
// host that it is there, and the action after which it stands, when it is issued.
static void add_copy_edges(lowering *low, size_t lane, sp_action action, size_t index,
                           uint32_t task)
{
    sp_i_task_graph *graph = low->graph;
    bool out = action.kind == SP_ACTION_O;
    int32_t *previous = out ? low->last_out : low->last_back;
    if (previous[lane] != NONE) {
        add_edge(graph, (uint32_t)previous[lane], 0);
    }
    add_edge(graph, (uint32_t)(out ? low->forward_task : low->out_task)[index], 0);
    if (!out && low->computed[lane]) {
        add_edge(graph, low->last[lane], 0);
    }
    previous[lane] = (int32_t)task;
    (out ? low->out_task : low->back_task)[index] = (int32_t)task;
}

// Adds the task of one lane; `peers` are the lanes of a merged pack, whose last tasks and copies it
// also waits for.
static uint32_t add_task(lowering *low, sp_action action, int dp, int pp_rank,
                         const uint32_t *peer_last, int peers)
{
    sp_i_task_graph *graph = low->graph;
    size_t lane = lane_of(low, low->kind_of_dp[dp], pp_rank);
    int vstage = sp_layout_vstage(&low->plan->layout, pp_rank, action.chunk);
    size_t index = table_index(low, action, dp, vstage);
    bool recomputed = was_recomputed(low, action, dp, vstage);
    sp_action_cost cost = sp_i_action_cost(low->plan, low->costs, action, vstage, recomputed);
    uint32_t task = (uint32_t)graph->tasks++;
    graph->action[task] = action;
    graph->lane[task] = (uint32_t)lane;
    graph->duration_ns[task] = cost.compute_ns + cost.tp_ns + cost.cp_ns;
    graph->edge_begin[task] = (uint32_t)graph->edges;
    if (sp_i_is_copy(action)) {
        add_copy_edges(low, lane, action, index, task);
        return task;
    }
    if (low->computed[lane]) {
        add_edge(graph, low->last[lane], 0);
    }
    int32_t copy = awaited_copy(low, action, dp, vstage);
    if (copy != NONE) {
        add_edge(graph, (uint32_t)copy, 0);
    }
    int32_t source = NONE;
    int64_t lag_ns = 0;
    if (remote_source(low, action, dp, pp_rank, vstage, &source, &lag_ns)) {
        add_edge(graph, (uint32_t)source, lag_ns);
    }
    bool backward = action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
    for (int i = 0; i < peers && low->copies && backward; i++) {
        int member = pack_of(low, action)->dp_first + i;
        int32_t theirs = awaited_copy(low, action, member, vstage);
        if (theirs != NONE && member != dp) {
            add_edge(graph, (uint32_t)theirs, 0);
        }
    }
    for (int i = 0; i < peers; i++) {
        bool own = low->computed[lane] && peer_last[i] == low->last[lane];
        if (peer_last[i] != UINT32_MAX && !own) {
            add_edge(graph, peer_last[i], 0);
        }
    }
    if (action.kind == SP_ACTION_F) {
        low->forward_task[index] = (int32_t)task;
    } else if (action.kind == SP_ACTION_B || action.kind == SP_ACTION_I) {
        low->backward_task[index] = (int32_t)task;
    } else if (action.kind == SP_ACTION_R) {
        low->recomputed[index] = 1;
    }
    return task;
}

static void advance_lane(lowering *low, size_t lane, uint32_t task)
{
    if (!sp_i_is_copy(low->graph->action[task])) {
        low->last[lane] = task;
        low->computed[lane] = 1;
    }
    low->done[lane]++;
}

// Lowers the next action of a merged pack on all its ranks.
static bool lower_merged(lowering *low, sp_action action, int pp_rank, sp_error *err)
{
    const sp_pack *pack = pack_of(low, action);
    size_t members = (size_t)pack->dp_count;
    uint32_t *before = sp_i_malloc(2 * members * sizeof *before);
    if (before == NULL) {
        sp_error_no_memory(err, "tasks of a merged pack");
        return false;
    }
    uint32_t *after = before + members;
    for (size_t i = 0; i < members; i++) {
        size_t lane = lane_of(low, low->kind_of_dp[pack->dp_first + (int)i], pp_rank);
        before[i] = low->computed[lane] ? low->last[lane] : UINT32_MAX;
    }
    for (size_t i = 0; i < members; i++) {
        after[i] = add_task(low, action, pack->dp_first + (int)i, pp_rank, before, pack->dp_count);
    }
    for (size_t i = 0; i < members; i++) {
        size_t lane = lane_of(low, low->kind_of_dp[pack->dp_first + (int)i], pp_rank);
        advance_lane(low, lane, after[i]);
        enqueue(low, lane);
    }
    sp_i_free(before);
    return true;
}

// Lowers an action and the next as a pair: the first also waits for the input of the second, and
// what the first gives is there at the end of the second.
static bool lower_pair(lowering *low, size_t lane, sp_action first, int dp, int pp_rank)
{
    sp_action second = lane_stage(low, lane)->actions[low->done[lane] + 1];
    int vstage = sp_layout_vstage(&low->plan->layout, pp_rank, second.chunk);
    int32_t source = NONE;
    int64_t lag_ns = 0;
    if (!ready_on(low, second, dp, pp_rank)) {
        return false;
    }
    advance_lane(low, lane, add_task(low, first, dp, pp_rank, NULL, 0));
    if (remote_source(low, second, dp, pp_rank, vstage, &source, &lag_ns)) {
        add_edge(low->graph, (uint32_t)source, lag_ns);
    }
    uint32_t task = add_task(low, second, dp, pp_rank, NULL, 0);
    advance_lane(low, lane, task);
    size_t index =
        table_index(low, first, dp, sp_layout_vstage(&low->plan->layout, pp_rank, first.chunk));
    (first.kind == SP_ACTION_F ? low->forward_task : low->backward_task)[index] = (int32_t)task;
    return true;
}

// Lowers as many actions of a lane as can run, then wakes the lanes that may wait for them.
static bool visit(lowering *low, size_t lane, sp_error *err)
{
    int pp = low->plan->layout.pp;
    int kind = (int)(lane / (size_t)pp);
    int pp_rank = (int)(lane % (size_t)pp);
    int dp = low->folding->rank[kind];
    const sp_stage_plan *stage = lane_stage(low, lane);
    size_t before = low->done[lane];
    while (low->done[lane] < stage->count) {
        sp_action action = stage->actions[low->done[lane]];
        const sp_pack *pack = pack_of(low, action);
        // The ranks of a merged pack copy their shares each by itself.
        if (pack->dp_count == 1 || sp_i_is_copy(action)) {
            if (!ready_on(low, action, dp, pp_rank)) {
                break;
            }
            if (!action.with_next) {
                advance_lane(low, lane, add_task(low, action, dp, pp_rank, NULL, 0));
            } else if (!lower_pair(low, lane, action, dp, pp_rank)) {
                break;
            }
            continue;
        }
        if (!group_ready(low, action, pp_rank)) {
            // Another member may be the last to arrive; it lowers the pack for all.
            break;
        }
        if (!lower_merged(low, action, pp_rank, err)) {
            return false;
        }
    }
    if (low->done[lane] > before) {
        enqueue(low, lane_of(low, kind, (pp_rank + 1) % pp));
        enqueue(low, lane_of(low, kind, (pp_rank + pp - 1) % pp));
    }
    return true;
}

// Slots of one side: a pack gets one for each of its simulated ranks (folded ranks have none).
static size_t number_slots(const lowering *low, const sp_pack_list *list, size_t *slot)
{
    size_t slots = 0;
    for (size_t k = 0; k < list->count; k++) {
        slot[k] = slots;
        if (low->kind_of_dp[list->packs[k].dp_first] != NONE) {
            slots += (size_t)list->packs[k].dp_count;
        }
    }
    return slots;
}

static bool has_copies(const sp_stage_plan *stage)
{
    for (size_t a = 0; a < stage->count; a++) {
        if (sp_i_is_copy(stage->actions[a])) {
            return true;
        }
    }
    return false;
}

static bool prepare_copies(lowering *low, size_t forward)
{
    size_t lanes = low->graph->lanes;
    low->out_task = sp_i_malloc(forward * sizeof *low->out_task);
    low->back_task = sp_i_malloc(forward * sizeof *low->back_task);
    low->last_out = sp_i_malloc(lanes * sizeof *low->last_out);
    low->last_back = sp_i_malloc(lanes * sizeof *low->last_back);
    if (low->out_task == NULL || low->back_task == NULL || low->last_out == NULL ||
        low->last_back == NULL) {
        return false;
    }
    memset(low->out_task, 0xff, forward * sizeof *low->out_task);
    memset(low->back_task, 0xff, forward * sizeof *low->back_task);
    memset(low->last_out, 0xff, lanes * sizeof *low->last_out);
    memset(low->last_back, 0xff, lanes * sizeof *low->last_back);
    return true;
}

static bool prepare(lowering *low)
{
    const sp_plan *plan = low->plan;
    const sp_packing *packing = plan->packing;
    sp_i_task_graph *graph = low->graph;
    size_t dp = (size_t)plan->layout.dp;
    graph->lanes = (size_t)low->folding->simulated * (size_t)plan->layout.pp;
    size_t tasks = 0;
    size_t extra_edges = 0;
    low->kind_of_dp = sp_i_malloc(dp * sizeof *low->kind_of_dp);
    low->forward_slot = sp_i_malloc(packing->forward.count * sizeof *low->forward_slot);
    low->backward_slot = sp_i_malloc(low->backward->count * sizeof *low->backward_slot);
    if (low->kind_of_dp == NULL || low->forward_slot == NULL || low->backward_slot == NULL) {
        return false;
    }
    for (size_t d = 0; d < dp; d++) {
        low->kind_of_dp[d] = NONE;
    }
    for (int k = 0; k < low->folding->simulated; k++) {
        low->kind_of_dp[low->folding->rank[k]] = k;
    }
    for (size_t lane = 0; lane < graph->lanes; lane++) {
        const sp_stage_plan *stage = lane_stage(low, lane);
        bool copies = has_copies(stage);
        low->copies = low->copies || copies;
        tasks += stage->count;
        for (size_t a = 0; a < stage->count; a++) {
            extra_edges += (size_t)pack_of(low, stage->actions[a])->dp_count - 1;
            extra_edges += stage->actions[a].with_next;
        }
        // A third edge: of a copy back, and of what waits for it.
        extra_edges += copies ? stage->count : 0;
    }
    size_t forward = number_slots(low, &packing->forward, low->forward_slot) * low->vstages;
    size_t backward = number_slots(low, low->backward, low->backward_slot) * low->vstages;
    // Merged packs also wait for each other's copies.
    size_t edges = 2 * tasks + extra_edges * (low->copies ? 2 : 1);
    if (edges >= UINT32_MAX) {
        return false;
    }
    low->forward_task = sp_i_malloc(forward * sizeof *low->forward_task);
    low->backward_task = sp_i_malloc(backward * sizeof *low->backward_task);
    low->recomputed = sp_i_calloc(forward, 1);
    low->done = sp_i_calloc(graph->lanes, sizeof *low->done);
    low->last = sp_i_calloc(graph->lanes, sizeof *low->last);
    low->computed = sp_i_calloc(graph->lanes, 1);
    low->queue = sp_i_calloc(graph->lanes, sizeof *low->queue);
    low->queued = sp_i_calloc(graph->lanes, 1);
    graph->action = sp_i_malloc(tasks * sizeof *graph->action);
    graph->lane = sp_i_malloc(tasks * sizeof *graph->lane);
    graph->duration_ns = sp_i_malloc(tasks * sizeof *graph->duration_ns);
    graph->edge_begin = sp_i_malloc((tasks + 1) * sizeof *graph->edge_begin);
    graph->edge_from = sp_i_malloc(edges * sizeof *graph->edge_from);
    graph->edge_lag_ns = sp_i_malloc(edges * sizeof *graph->edge_lag_ns);
    if (low->forward_task == NULL || low->backward_task == NULL || low->recomputed == NULL ||
        low->done == NULL || low->last == NULL || low->computed == NULL || low->queue == NULL ||
        low->queued == NULL || (low->copies && !prepare_copies(low, forward)) ||
        graph->action == NULL || graph->lane == NULL || graph->duration_ns == NULL ||
        graph->edge_begin == NULL || graph->edge_from == NULL || graph->edge_lag_ns == NULL) {
        return false;
    }
    memset(low->forward_task, 0xff, forward * sizeof *low->forward_task);
    memset(low->backward_task, 0xff, backward * sizeof *low->backward_task);
    return true;
}

static void release(lowering *low)
{
    sp_i_free(low->forward_slot);
    sp_i_free(low->backward_slot);
    sp_i_free(low->forward_task);
    sp_i_free(low->backward_task);
    sp_i_free(low->recomputed);
    sp_i_free(low->kind_of_dp);
    sp_i_free(low->done);
    sp_i_free(low->last);
    sp_i_free(low->computed);
    sp_i_free(low->out_task);
    sp_i_free(low->back_task);
    sp_i_free(low->last_out);
    sp_i_free(low->last_back);
    sp_i_free(low->queue);
    sp_i_free(low->queued);
    sp_i_free(low->needs);
}

static bool finished(const lowering *low)
{
    for (size_t lane = 0; lane < low->graph->lanes; lane++) {
        if (low->done[lane] < lane_stage(low, lane)->count) {
            return false;
        }
    }
    return true;
}

sp_status sp_i_lower(const sp_plan *plan, const sp_step_costs *costs, const sp_i_folding *folding,
                     sp_i_task_graph *graph, sp_error *err)
{
    *graph = (sp_i_task_graph){0};
    lowering low = {.plan = plan,
                    .costs = costs,
                    .folding = folding,
                    .graph = graph,
                    .backward = sp_packing_backward(plan->packing),
                    .vstages = (size_t)sp_layout_vstages(&plan->layout)};
    sp_status status = SP_OK;
    status = sp_i_regroup(plan->packing, &low.needs, err);
    if (status != SP_OK) {
        goto out;
    }
    if (!prepare(&low)) {
        status = sp_error_no_memory(err, "the task graph");
        goto out;
    }
    for (size_t lane = 0; lane < graph->lanes; lane++) {
        enqueue(&low, lane);
    }
    while (low.queue_count > 0) {
        size_t lane = low.queue[low.queue_begin];
        low.queue_begin = (low.queue_begin + 1) % graph->lanes;
        low.queue_count--;
        low.queued[lane] = 0;
        if (!visit(&low, lane, err)) {
            status = SP_ERR_NO_MEMORY;
            goto out;
        }
    }
    graph->edge_begin[graph->tasks] = (uint32_t)graph->edges;
    if (!finished(&low)) {
        status = SP_ERR_DEADLOCK;
    }
out:
    release(&low);
    if (status != SP_OK) {
        sp_i_task_graph_fini(graph);
    }
    return status;
}

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
