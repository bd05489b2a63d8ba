#include "sim/schedule/zb_order.h"

#include "sim/base/alloc.h"

bool sp_i_zb_order_init(sp_i_zb_order *order, int pp, int microbatches)
{
    *order = (sp_i_zb_order){.pp = pp, .microbatches = microbatches};
    order->kinds = sp_i_calloc((size_t)pp * 3 * (size_t)microbatches, sizeof *order->kinds);
    return order->kinds != NULL;
}

void sp_i_zb_order_fini(sp_i_zb_order *order)
{
    sp_i_free(order->kinds);
    *order = (sp_i_zb_order){0};
}

uint8_t *sp_i_zb_order_rank(const sp_i_zb_order *order, int pp_rank)
{
    return order->kinds + (size_t)pp_rank * 3 * (size_t)order->microbatches;
}

void sp_i_zb_order_static(const sp_i_zb_order *order, int steepness)
{
    int m = order->microbatches;
    for (int r = 0; r < order->pp; r++) {
        uint8_t *next = sp_i_zb_order_rank(order, r);
        int64_t warmup = (int64_t)steepness * (order->pp - 1 - r) + 1;
        int64_t lag = (int64_t)steepness * r;
        for (int64_t k = 0; k < warmup && k < m; k++) {
            *next++ = SP_ACTION_F;
        }
        for (int64_t k = 0; k < m; k++) {
            *next++ = SP_ACTION_I;
            if (k >= lag) {
                *next++ = SP_ACTION_W;
            }
            if (warmup + k < m) {
                *next++ = SP_ACTION_F;
            }
        }
        for (int64_t k = m > lag ? m - lag : 0; k < m; k++) {
            *next++ = SP_ACTION_W;
        }
    }
}

bool sp_i_zb_order_emit(const sp_i_zb_order *order, const sp_i_schedule_job *job)
{
    bool ok = true;
    for (int r = 0; ok && r < order->pp; r++) {
        const uint8_t *kinds = sp_i_zb_order_rank(order, r);
        int done[SP_ACTION_KINDS] = {0};
        for (int a = 0; ok && a < 3 * order->microbatches; a++) {
            ok = sp_i_schedule_add(job, r, (sp_action_kind)kinds[a], 0, done[kinds[a]]++, 0);
        }
    }
    return ok;
}
