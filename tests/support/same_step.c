#include "tests/support/same_step.h"

#include "tests/support/test_main.h"

static void same_spans(const sp_span *a, const sp_span *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_memory_equal(&a[i].action, &b[i].action, sizeof a[i].action);
        assert_int_equal(a[i].start_ns, b[i].start_ns);
        assert_int_equal(a[i].end_ns, b[i].end_ns);
        assert_int_equal(a[i].tp_ns, b[i].tp_ns);
        assert_int_equal(a[i].cp_ns, b[i].cp_ns);
        assert_int_equal(a[i].dp_ns, b[i].dp_ns);
        assert_int_equal(a[i].launch_ns, b[i].launch_ns);
        assert_int_equal(a[i].again_ns, b[i].again_ns);
        assert_int_equal(a[i].wait_p2p_ns, b[i].wait_p2p_ns);
    }
}

void must_be_same_timeline(const sp_timeline *a, const sp_timeline *b)
{
    assert_int_equal(a->rank_count, b->rank_count);
    assert_int_equal(a->makespan_ns, b->makespan_ns);
    assert_int_equal(a->iteration_ns, b->iteration_ns);
    for (size_t r = 0; r < a->rank_count; r++) {
        const sp_rank_timeline *x = &a->ranks[r];
        const sp_rank_timeline *y = &b->ranks[r];
        assert_int_equal(x->dp, y->dp);
        assert_int_equal(x->pp, y->pp);
        assert_int_equal(x->count, y->count);
        assert_int_equal(x->copy_count, y->copy_count);
        assert_int_equal(x->share_count, y->share_count);
        same_spans(x->spans, y->spans, x->count);
        same_spans(x->copies, y->copies, x->copy_count);
        for (size_t i = 0; i < x->share_count; i++) {
            same_spans(&x->shares[i].span, &y->shares[i].span, 1);
            assert_int_equal(x->shares[i].part, y->shares[i].part);
            assert_int_equal(x->shares[i].own, y->shares[i].own);
        }
        assert_int_equal(x->reduce_start_ns, y->reduce_start_ns);
        assert_int_equal(x->reduce_end_ns, y->reduce_end_ns);
        assert_int_equal(x->optimizer_end_ns, y->optimizer_end_ns);
        assert_int_equal(x->gather_end_ns, y->gather_end_ns);
    }
}

void must_be_same_memory(const sp_memory_timeline *a, const sp_memory_timeline *b)
{
    assert_int_equal(a->rank_count, b->rank_count);
    for (size_t r = 0; r < a->rank_count; r++) {
        const sp_rank_memory *x = &a->ranks[r];
        const sp_rank_memory *y = &b->ranks[r];
        assert_memory_equal(&x->peak, &y->peak, sizeof x->peak);
        assert_int_equal(x->peak_ns, y->peak_ns);
        assert_int_equal(x->point_count, y->point_count);
        for (size_t i = 0; i < x->point_count; i++) {
            assert_int_equal(x->points[i].time_ns, y->points[i].time_ns);
            assert_memory_equal(&x->points[i].bytes, &y->points[i].bytes, sizeof(sp_bytes));
        }
    }
}
