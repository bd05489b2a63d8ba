#include "sim/cost/link_times.h"

#include "sim/base/alloc.h"

sp_status sp_link_times_init(sp_link_times *links, size_t forward_packs, size_t backward_packs,
                             int pp, sp_error *err)
{
    *links = (sp_link_times){.forward_packs = forward_packs,
                             .backward_packs = backward_packs,
                             .f_ns = sp_i_calloc(forward_packs, sizeof *links->f_ns),
                             .b_ns = sp_i_calloc(backward_packs, sizeof *links->b_ns),
                             .f_far_ns = sp_i_calloc(forward_packs, sizeof *links->f_far_ns),
                             .b_far_ns = sp_i_calloc(backward_packs, sizeof *links->b_far_ns),
                             .far = sp_i_calloc((size_t)pp, sizeof *links->far)};
    if (links->f_ns == NULL || links->b_ns == NULL || links->f_far_ns == NULL ||
        links->b_far_ns == NULL || links->far == NULL) {
        sp_link_times_fini(links);
        return sp_error_no_memory(err, "the times of links");
    }
    return SP_OK;
}

void sp_link_times_fini(sp_link_times *links)
{
    sp_i_free(links->f_ns);
    sp_i_free(links->b_ns);
    sp_i_free(links->f_far_ns);
    sp_i_free(links->b_far_ns);
    sp_i_free(links->far);
    *links = (sp_link_times){0};
}
