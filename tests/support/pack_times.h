// Times of one pack of whole samples, part by part and pass by pass, before anything is rounded.
#ifndef SLIMPACK_TESTS_SUPPORT_PACK_TIMES_H
#define SLIMPACK_TESTS_SUPPORT_PACK_TIMES_H

#include "sim/cost/cost_private.h"
#include "tests/support/test_main.h"

typedef struct pack_times_case {
    const sp_model *model;
    const sp_cluster *cluster;
    const sp_profile *profile;
    sp_layout layout;
    sp_memory_options memory;
} pack_times_case;

// All passes, of a pack of `slices` on dp_count merged data-parallel ranks. times->layout is the
// case's own.
static inline void pack_times(const pack_times_case *of, const sp_slice *slices, int count,
                              int dp_count, sp_i_pack_time *times)
{
    sp_i_pack_timer *timer =
        sp_i_pack_timer_new(of->model, &of->layout, of->cluster, &of->memory, NULL);
    AUTO(sp_packing) packing;
    sp_op_timer op_timer = {.cluster = of->cluster, .profile = of->profile};
    sp_packing_init(&packing, NULL, of->layout.dp);
    sp_pack_list_begin(&packing.forward, 0, dp_count);
    for (int i = 0; i < count; i++) {
        sp_pack_list_add(&packing.forward, slices[i], true);
    }
    const sp_pack *pack = &packing.forward.packs[0];
    sp_i_pack_time_of(timer, &op_timer, &packing.forward, pack, true, true, times);
    times->layout = &of->layout;
    sp_i_pack_timer_free(timer);
}

// The same of `count` samples of `tokens` tokens each.
static inline void pack_times_of_samples(const pack_times_case *of, int count, int64_t tokens,
                                         sp_i_pack_time *times)
{
    sp_slice slices[64];
    assert_true(count <= 64);
    for (int i = 0; i < count; i++) {
        slices[i] = (sp_slice){i, 0, 0, tokens, tokens};
    }
    pack_times(of, slices, count, 1, times);
}

#endif
