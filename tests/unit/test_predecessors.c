// Every start on a simulated timeline is explained by the predecessor that is told of it: by its
// end, and the transfer from there. The chain from the last end back is the critical path.
#include "sim/metrics/predecessors.h"

#include "sim/verify/dependency_graph.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// How long what a rank's action gives is under way between pipeline ranks; over links that others
// use, as it was.
static int64_t transfer_ns(const sp_step_view *view, const sp_rank_timeline *rank,
                           const sp_span *span, int from, int to)
{
    size_t i = (size_t)(span - rank->spans);
    if (rank->there_ns != NULL && from != to) {
        return rank->there_ns[i] == -1 ? 0
                                       : rank->there_ns[i] - span[span->action.with_next].end_ns;
    }
    return sp_step_costs_p2p_ns(view->costs, sp_action_is_backward(span->action),
                                (size_t)span->action.pack, from, to, view->plan->layout.pp);
}

// Is an item this late because of what one before it gave? Of a pair both give at the end of the
// second.
static bool is_transfer(const sp_step_view *view, sp_timeline_item from, sp_timeline_item to,
                        int64_t late_ns)
{
    const sp_rank_timeline *a = &view->timeline->ranks[from.rank];
    const sp_rank_timeline *b = &view->timeline->ranks[to.rank];
    const sp_span *span = sp_timeline_item_span(view->timeline, from);
    if (from.list != SP_LIST_ACTIONS || to.list != SP_LIST_ACTIONS || a->pp == b->pp) {
        return late_ns == 0;
    }
    bool second = from.index > 0 && span[-1].action.with_next;
    return late_ns == transfer_ns(view, a, span, a->pp, b->pp) ||
           (second && late_ns == transfer_ns(view, a, &span[-1], a->pp, b->pp));
}

// Where sends block, a rank's own work goes on at most as much later as its transfers need.
static int64_t most_sending_ns(const sp_step_view *view, sp_timeline_item from, sp_timeline_item to)
{
    const sp_rank_timeline *of = &view->timeline->ranks[from.rank];
    const sp_span *span = sp_timeline_item_span(view->timeline, from);
    int pp = view->plan->layout.pp;
    int rank = of->pp;
    bool waits = from.rank == to.rank && view->costs->blocking_transfers;
    int64_t most_ns = 0;
    for (size_t i = 0; i < 2 && i <= from.index && waits; i++) {
        int64_t up_ns = transfer_ns(view, of, span - i, rank, (rank + 1) % pp);
        int64_t down_ns = transfer_ns(view, of, span - i, rank, (rank + pp - 1) % pp);
        most_ns = up_ns > most_ns ? up_ns : most_ns;
        most_ns = down_ns > most_ns ? down_ns : most_ns;
    }
    return most_ns;
}

typedef struct seen {
    size_t items, waiting, copies, shares, merged;
    int64_t path_ns;
    size_t path;
} seen;

static void check_item(const sp_step_view *view, const sp_predecessors *predecessors,
                       sp_timeline_item item, seen *s)
{
    sp_timeline_item before;
    int64_t start_ns = sp_timeline_item_span(view->timeline, item)->start_ns;
    s->items++;
    if (!sp_predecessor(predecessors, item, &before)) {
        assert_int_equal(start_ns, 0);
        return;
    }
    int64_t late_ns = start_ns - sp_timeline_item_span(view->timeline, before)->end_ns;
    if (!is_transfer(view, before, item, late_ns)) {
        assert_in_range(late_ns, 1, most_sending_ns(view, before, item));
    }
    s->waiting += before.rank != item.rank;
    s->copies += before.list == SP_LIST_COPIES && item.list == SP_LIST_ACTIONS;
    s->shares += before.list == SP_LIST_SHARES && before.rank != item.rank;
    s->merged += view->timeline->ranks[before.rank].dp != view->timeline->ranks[item.rank].dp;
}

// From 0 to the makespan without a gap that no transfer fills, through predecessors.
static void check_path(const sp_step_view *view, const sp_predecessors *predecessors, seen *s)
{
    AUTO_FREE sp_timeline_item *items;
    size_t count;
    sp_critical_path(predecessors, &items, &count);
    assert_true(count > 0);
    assert_int_equal(sp_timeline_item_span(view->timeline, items[0])->start_ns, 0);
    assert_int_equal(sp_timeline_item_span(view->timeline, items[count - 1])->end_ns,
                     view->timeline->makespan_ns);
    for (size_t i = 1; i < count; i++) {
        sp_timeline_item before;
        assert_true(sp_predecessor(predecessors, items[i], &before));
        assert_ptr_equal(sp_timeline_item_span(view->timeline, before),
                         sp_timeline_item_span(view->timeline, items[i - 1]));
    }
    s->path = count;
}

static sp_status check_step(void *context, const sp_step_view *view, sp_error *err)
{
    static const sp_timeline_list lists[] = {SP_LIST_ACTIONS, SP_LIST_COPIES, SP_LIST_SHARES};
    sp_predecessors *predecessors = sp_predecessors_new(view->timeline, view->costs);
    for (size_t r = 0; r < view->timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &view->timeline->ranks[r];
        const size_t counts[] = {rank->count, rank->copy_count, rank->share_count};
        for (size_t l = 0; l < SP_LISTS; l++) {
            for (size_t i = 0; i < counts[l]; i++) {
                check_item(view, predecessors,
                           (sp_timeline_item){.rank = r, .index = i, .list = lists[l]}, context);
            }
        }
    }
    check_path(view, predecessors, context);
    sp_predecessors_free(predecessors);
    return SP_OK;
}

// A step of 20 samples of different lengths on 4 pipeline ranks.
static seen look(const char *layout, const char *order, const char *more)
{
    seen s = {0};
    const sp_evaluate_options options = {
        .engine = {.verify = true}, .observer = check_step, .observer_context = &s};
    SCENARIO_RUN(
        r,
        json_text("{'model': {'layers': 16, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': "
                  "32000}, 'cluster': 'h100-8', 'profile': 'h100', 'workload': {'lengths': "
                  "[5000, 300, 1200, 7000, 64, 900, 8000, 2500, 4000, 4100, 16, 3000, 6000, "
                  "7500, 5100, 7200, 8100, 6300, 5800, 12], 'context': 8192, 'order': "
                  "'file', 'samples_per_batch': 20}, 'parallel': "
                  "{'pp': 4%s}, %s%s}",
                  layout, order, more),
        &options);
    assert_true(s.items > 30 && s.waiting > 0 && s.path > 10);
    return s;
}

TEST(schedules_are_explained)
{
    static const char *const kinds[] = {"gpipe",  "1f1b",  "zb-h1",      "zb-h2",   "zb-v",
                                        "v-half", "v-min", "dualpipe-v", "seq1f1b", "terapipe"};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        look("",
             json_text("'strategy': {'kind': 'packed'}, 'schedule': {'kind': '%s'%s}", kinds[k],
                       k >= 8 ? ", 'slices': 4" : ""),
             "");
    }
    look(", 'chunks_per_rank': 2", "'schedule': {'kind': 'interleaved'}", "");
}

TEST(packs_of_several_ranks_are_explained)
{
    const char *groups = "'schedule': {'kind': 'gpipe'}, 'strategy': {'kind': 'hybrid-cp', "
                         "'rank_tokens': 4096}";
    assert_true(look(", 'dp': 4", groups, "").merged > 0);
    look(", 'dp': 2", "'strategy': {'kind': 'slimpack', 'slice_tokens': 1024}", "");
    look(", 'dp': 2", "'strategy': {'kind': 'chunkflow', 'chunk_tokens': 1000}", "");
}

TEST(copies_are_explained)
{
    seen s = look("", "'schedule': {'kind': '1f1b'}", ", 'memory': {'offload_ratio': 1.0}");
    assert_true(s.copies > 0);
}

TEST(shared_vocabularies_are_explained)
{
    const char *more = ", 'memory': {'recompute': 'full'}";
    assert_true(look(", 'vocab_parallel': true", "'schedule': {'kind': '1f1b'}", "").shares > 0);
    look(", 'vocab_parallel': true", "'schedule': {'kind': 'zb-h1'}", "");
    look(", 'vocab_parallel': true, 'dp': 4",
         "'schedule': {'kind': 'gpipe'}, 'strategy': {'kind': 'hybrid-cp', 'rank_tokens': 4096}",
         more);
    look(", 'vocab_parallel': true",
         "'schedule': {'kind': 'slimpipe', 'slices': 8}, 'strategy': {'kind': 'slimpipe'}", more);
}

TEST(blocking_transfers_are_explained)
{
    look("", "'schedule': {'kind': '1f1b'}", ", 'stack': 'megatron-deepspeed-2022'");
    look("", "'schedule': {'kind': 'dualpipe-v'}", ", 'stack': 'megatron-deepspeed-2022'");
}

// What came late over links that others used.
TEST(flows_are_explained)
{
    static const char *const kinds[] = {"1f1b", "zb-h1", "v-min", "gpipe"};
    static const char *const shared[] = {"te-cp", "flexsp", "zeppelin", "hybrid-cp"};
    for (int k = 0; k < COUNT_OF(kinds); k++) {
        for (int zero = 1; zero <= 3; zero++) {
            const char *layout = json_text(", 'dp': 2, 'zero': %d, 'order': 'pp-tp-cp-dp'", zero);
            const char *flows =
                json_text(", 'network': {'detail': '%s'}%s", zero == 2 ? "auto" : "flows",
                          zero == 3 ? ", 'jitter': {'gpu_cv': 0.02}" : "");
            look(layout,
                 json_text("'strategy': {'kind': '%s', 'rank_tokens': 4096}, 'schedule': {'kind': "
                           "'%s'}",
                           shared[k], kinds[k]),
                 flows);
        }
    }
    look("", "'strategy': {'kind': 'packed'}, 'schedule': {'kind': 'dualpipe-v'}",
         ", 'network': {'detail': 'flows'}");
}

// Packs of different lengths leave one path alone.
static sp_status compare_with_graph(void *context, const sp_step_view *view, sp_error *err)
{
    sp_structure *structure;
    AUTO_FREE sp_critical_step *steps;
    sp_predecessors *predecessors;
    AUTO_FREE sp_timeline_item *items;
    size_t step_count;
    size_t count;
    must_succeed(sp_structure_new(view->plan, view->costs, NULL, &structure, err));
    must_succeed(sp_structure_critical_path(structure, &steps, &step_count, err));
    predecessors = sp_predecessors_new(view->timeline, view->costs);
    sp_critical_path(predecessors, &items, &count);
    assert_int_equal(count, step_count);
    for (size_t i = 0; i < count; i++) {
        const sp_span *span = sp_timeline_item_span(view->timeline, items[i]);
        const sp_rank_timeline *rank = &view->timeline->ranks[items[i].rank];
        assert_int_equal(rank->pp, steps[i].pp);
        assert_int_equal(span->action.kind, steps[i].action.kind);
        assert_int_equal(span->action.pack, steps[i].action.pack);
        assert_int_equal(span->start_ns, steps[i].start_ns);
        assert_int_equal(span->end_ns, steps[i].end_ns);
    }
    sp_predecessors_free(predecessors);
    sp_structure_free(structure);
    return SP_OK;
}

TEST(the_path_is_that_of_the_graph)
{
    const sp_evaluate_options options = {.observer = compare_with_graph};
    SCENARIO_RUN(
        r,
        "{'model': {'layers': 16, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 32000}, "
        "'cluster': 'h100-8', 'profile': 'h100', 'workload': {'lengths': [5000, 300, 1200, "
        "7000, 64, 900, 8000, 2500], 'context': 8192, 'order': 'file', 'samples_per_batch': "
        "8}, 'parallel': {'pp': 4}, 'strategy': {'kind': 'packed'}}",
        &options);
}
