#include "tests/support/execution_rules.h"

#include "sim/metrics/metrics.h"
#include "tests/support/step_bubble.h"
#include "tests/support/test_main.h"

static bool is_backward(sp_action a)
{
    return a.kind == SP_ACTION_B || a.kind == SP_ACTION_I || a.kind == SP_ACTION_W;
}

static bool is_copy(sp_action a)
{
    return a.kind == SP_ACTION_O || a.kind == SP_ACTION_L;
}

static bool same(sp_action a, sp_action b)
{
    return a.kind == b.kind && a.chunk == b.chunk && a.pack == b.pack;
}

// ---- every action once, in order ----

static int times_run(const sp_rank_timeline *rank, sp_action action)
{
    int times = 0;
    for (size_t i = 0; i < rank->count; i++) {
        times += same(rank->spans[i].action, action);
    }
    for (size_t i = 0; i < rank->copy_count; i++) {
        times += same(rank->copies[i].action, action);
    }
    return times;
}

static void check_rank(const sp_plan *plan, const sp_rank_timeline *rank)
{
    const sp_stage_plan *stage = sp_plan_stage(plan, rank->dp, rank->pp);
    size_t at = 0;
    assert_int_equal(rank->count + rank->copy_count, stage->count);
    for (size_t a = 0; a < stage->count; a++) {
        assert_int_equal(times_run(rank, stage->actions[a]), 1);
        if (!is_copy(stage->actions[a])) {
            assert_true(same(rank->spans[at++].action, stage->actions[a]));
        }
    }
    for (size_t i = 0; i < rank->count; i++) {
        const sp_span *span = &rank->spans[i];
        assert_true(span->start_ns >= 0 && span->end_ns >= span->start_ns);
        assert_true(i == 0 || span->start_ns >= rank->spans[i - 1].end_ns);
        assert_true(span->tp_ns + span->cp_ns + span->dp_ns <= span->end_ns - span->start_ns);
        assert_true(rank->reduce_end_ns >= span->end_ns);
    }
    assert_true(rank->optimizer_end_ns >= rank->reduce_end_ns);
    assert_true(rank->gather_end_ns >= rank->optimizer_end_ns);
}

// ---- every action after those it reads ----

// When two actions share work: the same pack of the same side, or a slice of both.
static bool shares_slice(const sp_packing *packing, sp_action x, sp_action y)
{
    const sp_pack_list *backward = sp_packing_backward(packing);
    const sp_pack_list *lists[2] = {is_backward(x) ? backward : &packing->forward,
                                    is_backward(y) ? backward : &packing->forward};
    if (lists[0] == lists[1]) {
        return x.pack == y.pack;
    }
    const sp_pack *a = &lists[0]->packs[x.pack];
    const sp_pack *b = &lists[1]->packs[y.pack];
    for (size_t i = a->first_slice; i < a->first_slice + a->slice_count; i++) {
        for (size_t j = b->first_slice; j < b->first_slice + b->slice_count; j++) {
            if (lists[0]->slices[i].sample == lists[1]->slices[j].sample &&
                lists[0]->slices[i].begin == lists[1]->slices[j].begin) {
                return true;
            }
        }
    }
    return false;
}

// Has y a slice of a sample of which x has one further behind?
static bool holds_earlier(const sp_packing *packing, bool backward, int32_t x, int32_t y)
{
    const sp_pack_list *list = backward ? sp_packing_backward(packing) : &packing->forward;
    const sp_pack *a = &list->packs[x];
    const sp_pack *b = &list->packs[y];
    for (size_t i = a->first_slice; i < a->first_slice + a->slice_count && x != y; i++) {
        for (size_t j = b->first_slice; j < b->first_slice + b->slice_count; j++) {
            if (list->slices[i].sample == list->slices[j].sample &&
                list->slices[i].begin > list->slices[j].begin) {
                return true;
            }
        }
    }
    return false;
}

static bool passes_gradients(sp_action a)
{
    return a.kind == SP_ACTION_B || a.kind == SP_ACTION_I;
}

// Must x on virtual stage vx wait for y on vy of the same data-parallel rank?
static bool must_wait(const sp_packing *packing, sp_action x, int vx, sp_action y, int vy)
{
    if (vx != vy) {
        bool forward = x.kind == SP_ACTION_F && y.kind == SP_ACTION_F && vy == vx - 1;
        bool back = passes_gradients(x) && passes_gradients(y) && vy == vx + 1;
        return (forward || back) && x.pack == y.pack;
    }
    switch ((sp_action_kind)x.kind) {
    case SP_ACTION_F:
        return y.kind == SP_ACTION_F && holds_earlier(packing, false, x.pack, y.pack);
    case SP_ACTION_B:
    case SP_ACTION_I:
        return ((y.kind == SP_ACTION_F || y.kind == SP_ACTION_L || y.kind == SP_ACTION_R) &&
                shares_slice(packing, x, y)) ||
               (passes_gradients(y) && holds_earlier(packing, true, y.pack, x.pack));
    case SP_ACTION_W:
        return y.kind == SP_ACTION_I && x.pack == y.pack;
    case SP_ACTION_R:
        return (y.kind == SP_ACTION_F || y.kind == SP_ACTION_L) && x.pack == y.pack;
    case SP_ACTION_O:
        return y.kind == SP_ACTION_F && x.pack == y.pack;
    case SP_ACTION_L:
        return y.kind == SP_ACTION_O && x.pack == y.pack;
    case SP_ACTION_KINDS:
        break;
    }
    return false;
}

static const sp_span *span_at(const sp_rank_timeline *rank, size_t i)
{
    return i < rank->count ? &rank->spans[i] : &rank->copies[i - rank->count];
}

static void check_waits(const sp_plan *plan, const sp_rank_timeline *rank,
                        const sp_rank_timeline *other)
{
    for (size_t i = 0; i < rank->count + rank->copy_count; i++) {
        const sp_span *x = span_at(rank, i);
        int vx = sp_layout_vstage(&plan->layout, rank->pp, x->action.chunk);
        for (size_t j = 0; j < other->count + other->copy_count; j++) {
            const sp_span *y = span_at(other, j);
            int vy = sp_layout_vstage(&plan->layout, other->pp, y->action.chunk);
            if (!must_wait(plan->packing, x->action, vx, y->action, vy)) {
                continue;
            }
            // What is recomputed before its load does not wait for it.
            if (x->action.kind == SP_ACTION_R && y->action.kind == SP_ACTION_L &&
                y->start_ns >= x->end_ns) {
                continue;
            }
            // A pair is done when its second action is; inside the pair the two run side by side.
            bool pair = y->action.with_next && (rank != other || i != j + 1);
            if (x->start_ns < (pair ? y[1].end_ns : y->end_ns)) {
                char names[2][32];
                sp_action_name(x->action, plan->layout.chunks, names[0]);
                sp_action_name(y->action, plan->layout.chunks, names[1]);
                fail_msg("%s of dp %d pp %d starts before %s of pp %d is done", names[0], rank->dp,
                         rank->pp, names[1], other->pp);
            }
        }
    }
}

// ---- memory ----

static void check_memory(const sp_rank_memory *memory, bool points)
{
    int64_t most = 0;
    for (size_t i = 0; points && i < memory->point_count; i++) {
        const sp_memory_point *point = &memory->points[i];
        for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
            assert_true(point->bytes.of[c] >= 0);
        }
        int64_t held = sp_bytes_total(&point->bytes);
        most = held > most ? held : most;
        assert_true(i == 0 || point->time_ns >= point[-1].time_ns);
    }
    if (points && memory->point_count > 0) {
        assert_int_equal(most, sp_bytes_total(&memory->peak));
        const sp_bytes *end = &memory->points[memory->point_count - 1].bytes;
        const sp_bytes *begin = &memory->points[0].bytes;
        assert_int_equal(end->of[SP_MEM_ACTIVATIONS], begin->of[SP_MEM_ACTIVATIONS]);
        assert_int_equal(end->of[SP_MEM_KV_CACHE], begin->of[SP_MEM_KV_CACHE]);
        assert_int_equal(end->of[SP_MEM_KV_GRADIENTS], begin->of[SP_MEM_KV_GRADIENTS]);
        assert_int_equal(end->of[SP_MEM_LOGITS], begin->of[SP_MEM_LOGITS]);
        assert_int_equal(end->of[SP_MEM_RECOMPUTE], begin->of[SP_MEM_RECOMPUTE]);
        assert_int_equal(end->of[SP_MEM_OFFLOADED], begin->of[SP_MEM_OFFLOADED]);
    }
}

static void check_metrics(const sp_measured_step *step)
{
    AUTO(sp_step_metrics) metrics;
    sp_step_metrics_compute(&step->timeline, &step->memory, &metrics);
    int64_t busy_ns = 0;
    for (size_t r = 0; r < step->timeline.rank_count; r++) {
        const sp_rank_timeline *rank = &step->timeline.ranks[r];
        for (size_t i = 0; i < rank->count; i++) {
            busy_ns += rank->spans[i].end_ns - rank->spans[i].start_ns;
        }
        for (size_t i = 0; i < rank->share_count; i++) {
            busy_ns += rank->shares[i].span.end_ns - rank->shares[i].span.start_ns;
        }
        assert_true(metrics.peak_bytes >= sp_bytes_total(&step->memory.ranks[r].peak));
    }
    assert_int_equal(metrics.busy_ns, busy_ns);
    assert_int_equal(metrics.makespan_ns, step->timeline.makespan_ns);
    assert_true(metrics.iteration_ns >= metrics.makespan_ns);
    assert_true(step_bubble(&metrics) >= 0.0 && step_bubble(&metrics) <= 1.0);
}

void execution_must_hold(const sp_plan *plan, const sp_measured_step *step, bool points)
{
    size_t pp = (size_t)plan->layout.pp;
    assert_int_equal(step->timeline.rank_count, (size_t)plan->layout.dp * pp);
    assert_int_equal(step->memory.rank_count, step->timeline.rank_count);
    for (size_t r = 0; r < step->timeline.rank_count; r++) {
        const sp_rank_timeline *rank = &step->timeline.ranks[r];
        assert_int_equal(rank->dp, r / pp);
        assert_int_equal(rank->pp, r % pp);
        assert_int_equal(rank->alike, 1);
        check_rank(plan, rank);
        for (size_t o = r - r % pp; o < r - r % pp + pp; o++) {
            check_waits(plan, rank, &step->timeline.ranks[o]);
        }
        check_memory(&step->memory.ranks[r], points);
    }
    check_metrics(step);
}
