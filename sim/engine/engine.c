#include "sim/engine/engine.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/engine/action_cost.h"
#include "sim/engine/fold.h"
#include "sim/engine/lower.h"
#include "sim/engine/memory.h"
#include "sim/engine/replay.h"
#include "sim/engine/tail.h"
#include "sim/verify/structure.h"

// Uniform costs have no time for copies to and from host memory.
static sp_status refuse_unknown_costs(const sp_plan *plan, const sp_step_costs *costs,
                                      sp_error *err)
{
    if (costs->o_ns != NULL && costs->l_ns != NULL) {
        return SP_OK;
    }
    size_t stages = (size_t)plan->layout.dp * (size_t)plan->layout.pp;
    for (size_t s = 0; s < stages; s++) {
        for (size_t a = 0; a < plan->stages[s].count; a++) {
            sp_action action = plan->stages[s].actions[a];
            if (sp_i_is_copy(action)) {
                char name[32];
                sp_action_name(action, plan->layout.chunks, name);
                return sp_error_set(err, SP_ERR_CONTENT,
                                    "action %s: the simulator has no cost for offload and load",
                                    name);
            }
        }
    }
    return SP_OK;
}

// Ends, and sums over all data-parallel ranks, must fit int64_t.
static sp_status check_range(const sp_plan *plan, const sp_i_task_graph *graph, sp_error *err)
{
    double total_ns = 0.0;
    for (size_t t = 0; t < graph->tasks; t++) {
        total_ns += (double)graph->duration_ns[t];
    }
    for (size_t e = 0; e < graph->edges; e++) {
        total_ns += (double)graph->edge_lag_ns[e];
    }
    return total_ns * plan->layout.dp < 9e18
               ? SP_OK
               : sp_error_set(err, SP_ERR_LIMIT, "the actions of a step add up to over 285 years");
}

static size_t shares_of(const sp_i_task_graph *graph)
{
    size_t shares = 0;
    for (size_t t = 0; t < graph->tasks; t++) {
        shares += graph->share[t] > 0;
    }
    return shares;
}

static sp_status allocate(const sp_plan *plan, const sp_i_task_graph *graph, sp_timeline *timeline,
                          sp_error *err)
{
    timeline->plan = plan;
    timeline->rank_count = graph->lanes;
    timeline->ranks = sp_i_calloc(graph->lanes, sizeof *timeline->ranks);
    timeline->span_store = sp_i_malloc(graph->tasks * sizeof *timeline->span_store);
    timeline->share_store = sp_i_calloc(shares_of(graph) + 1, sizeof *timeline->share_store);
    timeline->alike_store = sp_i_malloc((size_t)plan->layout.dp * sizeof *timeline->alike_store);
    return timeline->ranks != NULL && timeline->span_store != NULL &&
                   timeline->share_store != NULL && timeline->alike_store != NULL
               ? SP_OK
               : sp_error_no_memory(err, "the timeline");
}

// The idle time before a task that transfers explain: its rank's own send, and one in flight that
// decided the start.
static int64_t transfer_wait_ns(const sp_i_task_graph *graph, const int64_t *end_ns, size_t task,
                                int64_t start_ns)
{
    int64_t sent_ns = 0;
    int64_t awaited_ns = 0;
    for (uint32_t e = graph->edge_begin[task]; e < graph->edge_begin[task + 1]; e++) {
        int64_t lag_ns = graph->edge_lag_ns[e];
        uint32_t from = graph->edge_from[e];
        if (graph->lane[from] == graph->lane[task]) {
            sent_ns = lag_ns > sent_ns ? lag_ns : sent_ns;
        } else if (end_ns[from] + lag_ns == start_ns && lag_ns > awaited_ns) {
            awaited_ns = lag_ns;
        }
    }
    return sent_ns + awaited_ns;
}

// Where the shares of each lane begin in their store.
static void place_shares(const sp_i_task_graph *graph, sp_timeline *timeline)
{
    for (size_t t = 0; t < graph->tasks; t++) {
        timeline->ranks[graph->lane[t]].share_count += graph->share[t] > 0;
    }
    sp_share_span *next = timeline->share_store;
    for (size_t lane = 0; lane < graph->lanes; lane++) {
        timeline->ranks[lane].shares = next;
        next += timeline->ranks[lane].share_count;
        timeline->ranks[lane].share_count = 0;
    }
}

static void add_share(const sp_step_costs *costs, const sp_i_task_graph *graph, size_t task,
                      int64_t end_ns, sp_timeline *timeline)
{
    sp_rank_timeline *rank = &timeline->ranks[graph->lane[task]];
    sp_share share = {.end = (sp_share_end)(graph->share[task] - 1), .action = graph->action[task]};
    sp_action_cost cost = sp_i_share_cost(timeline->plan, costs, &share);
    int pp;
    int chunk;
    sp_layout_locate(&timeline->plan->layout, sp_share_stage(&timeline->plan->layout, share.end),
                     &pp, &chunk);
    rank->shares[rank->share_count++] =
        (sp_share_span){.span = {.start_ns = end_ns - graph->duration_ns[task],
                                 .end_ns = end_ns,
                                 .tp_ns = cost.tp_ns,
                                 .cp_ns = cost.cp_ns,
                                 .action = share.action},
                        .end = share.end,
                        .own = rank->pp == pp};
}

// Turns the ends of all tasks into the spans of each lane.
static void fill_spans(const sp_step_costs *costs, const sp_i_folding *folding,
                       const sp_i_task_graph *graph, const int64_t *end_ns, sp_timeline *timeline)
{
    const sp_plan *plan = timeline->plan;
    int pp = plan->layout.pp;
    memcpy(timeline->alike_store, folding->members,
           (size_t)plan->layout.dp * sizeof *timeline->alike_store);
    sp_span *next = timeline->span_store;
    for (size_t lane = 0; lane < graph->lanes; lane++) {
        size_t kind = lane / (size_t)pp;
        sp_rank_timeline *rank = &timeline->ranks[lane];
        rank->dp = folding->rank[kind];
        rank->pp = (int)(lane % (size_t)pp);
        rank->alike = folding->first[kind + 1] - folding->first[kind];
        rank->dp_alike = timeline->alike_store + folding->first[kind];
        const sp_stage_plan *stage = sp_plan_stage(plan, rank->dp, rank->pp);
        size_t copies = 0;
        for (size_t a = 0; a < stage->count; a++) {
            copies += sp_i_is_copy(stage->actions[a]);
        }
        rank->spans = next;
        rank->copies = next + (stage->count - copies);
        next += stage->count;
    }
    place_shares(graph, timeline);
    for (size_t t = 0; t < graph->tasks; t++) {
        sp_rank_timeline *rank = &timeline->ranks[graph->lane[t]];
        sp_action action = graph->action[t];
        if (graph->share[t] > 0) {
            add_share(costs, graph, t, end_ns[t], timeline);
            continue;
        }
        if (sp_i_is_copy(action)) {
            rank->copies[rank->copy_count++] =
                (sp_span){.start_ns = end_ns[t] - graph->duration_ns[t],
                          .end_ns = end_ns[t],
                          .action = action};
            continue;
        }
        int vstage = sp_layout_vstage(&plan->layout, rank->pp, action.chunk);
        sp_action_cost cost = sp_i_action_cost(plan, costs, action, vstage, false);
        if (sp_action_cost_ns(&cost) != graph->duration_ns[t]) {
            // Its recomputation ran as an action of its own.
            cost = sp_i_action_cost(plan, costs, action, vstage, true);
        }
        int64_t start_ns = end_ns[t] - graph->duration_ns[t];
        int64_t idle_ns = start_ns - sp_i_rank_last_ns(rank);
        int64_t wait_ns = transfer_wait_ns(graph, end_ns, t, start_ns);
        rank->spans[rank->count++] = (sp_span){.start_ns = start_ns,
                                               .end_ns = end_ns[t],
                                               .tp_ns = cost.tp_ns,
                                               .cp_ns = cost.cp_ns,
                                               .dp_ns = cost.dp_ns,
                                               .launch_ns = cost.launch_ns,
                                               .wait_p2p_ns = wait_ns < idle_ns ? wait_ns : idle_ns,
                                               .action = action};
    }
}

static sp_status verify(const sp_plan *plan, const sp_step_costs *costs, int64_t makespan_ns,
                        sp_error *err)
{
    sp_structure *structure = NULL;
    int64_t expected_ns = 0;
    sp_status status = sp_structure_new(plan, costs, &structure, err);
    if (status == SP_OK) {
        status = sp_structure_makespan(structure, &expected_ns, err);
    }
    if (status == SP_OK && expected_ns != makespan_ns) {
        status =
            sp_error_set(err, SP_ERR_INTERNAL,
                         "verification: the engine ends at %lld ns, the longest path at %lld ns",
                         (long long)makespan_ns, (long long)expected_ns);
    }
    sp_structure_free(structure);
    return status;
}

static sp_status name_cycle(const sp_plan *plan, const sp_step_costs *costs, const char *source,
                            sp_error *err)
{
    sp_structure *structure = NULL;
    sp_status status = sp_structure_new(plan, costs, &structure, err);
    if (status == SP_OK) {
        status = sp_structure_cycle(structure, source, err);
    }
    sp_structure_free(structure);
    return status != SP_OK ? status
                           : sp_error_set(err, SP_ERR_DEADLOCK,
                                          "%s: an action waits for one that no rank runs", source);
}

sp_status sp_simulate(const sp_plan *plan, const sp_step_costs *costs,
                      const sp_engine_options *options, sp_timeline *timeline,
                      sp_memory_timeline *memory, sp_engine_counts *counts, sp_error *err)
{
    sp_i_folding folding = {0};
    sp_i_task_graph graph = {0};
    int64_t *end_ns = NULL;
    *timeline = (sp_timeline){0};
    *memory = (sp_memory_timeline){0};
    sp_status status = refuse_unknown_costs(plan, costs, err);
    if (status == SP_OK) {
        status = sp_i_fold(plan, costs, options->unfold, &folding, err);
    }
    if (status == SP_OK) {
        status = sp_i_lower(plan, costs, &folding, &graph, err);
        if (status == SP_ERR_DEADLOCK) {
            status =
                name_cycle(plan, costs, options->source != NULL ? options->source : "plan", err);
        }
    }
    if (status == SP_OK) {
        status = check_range(plan, &graph, err);
    }
    if (status != SP_OK) {
        goto out;
    }
    end_ns = sp_i_malloc(graph.tasks * sizeof *end_ns);
    status = end_ns == NULL ? sp_error_no_memory(err, "the replay")
                            : allocate(plan, &graph, timeline, err);
    if (status != SP_OK) {
        goto out;
    }
    sp_i_replay(&graph, end_ns);
    fill_spans(costs, &folding, &graph, end_ns, timeline);
    sp_i_timeline_order_copies(timeline);
    status = sp_i_fill_tail(costs, timeline, err);
    if (status != SP_OK) {
        goto out;
    }
    counts->tasks = graph.tasks;
    counts->edges = graph.edges;
    sp_i_task_graph_fini(&graph);
    status = sp_i_memory_replay(timeline, costs, options->memory_points, memory, err);
    if (status == SP_OK && options->verify) {
        status = verify(plan, costs, timeline->makespan_ns, err);
    }
out:
    sp_i_free(end_ns);
    sp_i_task_graph_fini(&graph);
    sp_i_folding_fini(&folding);
    if (status != SP_OK) {
        sp_timeline_fini(timeline);
        sp_memory_timeline_fini(memory);
    }
    return status;
}
