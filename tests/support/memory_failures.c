#include "sim/base/alloc.h"
#include "tests/support/test_main.h"

enum { MOST_ROUNDS = 100000 };

// Allocations that no round lets fail, after those so far.
static long skipped(const memory_failures *m)
{
    int fewer = m->fewer;
    if (!test_is_full()) {
        fewer = fewer > 0 ? (fewer + 1) / 2 : 48;
    }
    return fewer > 0 ? m->allowed / fewer : 0;
}

bool memory_fails(memory_failures *m)
{
    bool first = m->rounds == 0;
    if (!first && m->status != SP_ERR_NO_MEMORY) {
        return false;
    }
    if (!first && !m->keeps_blocks && sp_i_alloc_live() != m->live) {
        fail_msg("%ld blocks are left when allocation %ld fails", sp_i_alloc_live() - m->live,
                 m->allowed + 1);
    }
    assert_true(m->rounds < MOST_ROUNDS);
    m->allowed += first ? 0 : 1 + skipped(m);
    m->rounds++;
    m->live = sp_i_alloc_live();
    return true;
}

void memory_begin(const memory_failures *m)
{
    sp_i_alloc_fail_after(m->allowed);
}

sp_status memory_end(memory_failures *m, sp_status status, const sp_error *err)
{
    sp_i_alloc_fail_after(-1);
    if (status != SP_OK && status != m->or_ends_with) {
        assert_int_equal(status, SP_ERR_NO_MEMORY);
        assert_true(err == NULL || (err->status == status && err->count > 0));
    }
    m->status = status;
    return status;
}
