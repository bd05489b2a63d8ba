// Which backward packs can keep the cut of their forward packs over the CP ranks.
#include "sim/cost/cost_private.h"
#include "tests/support/test_main.h"

static const sp_layout two_ranks = {.tp = 1, .cp = 2, .pp = 1, .dp = 1, .chunks = 1};

// Three samples in two forward packs. Backward `regrouped` in another two, else the same in
// reverse.
static void two_packs(sp_packing *packing, const sp_batch *batch, bool regrouped)
{
    const sp_slice a = {0, 0, 0, 400, 400};
    const sp_slice b = {1, 0, 0, 96, 96};
    const sp_slice c = {2, 0, 0, 900, 900};
    sp_packing_init(packing, batch, 1);
    sp_pack_list *forward = &packing->forward;
    sp_pack_list *backward = &packing->backward;
    sp_pack_list_begin(forward, 0, 1);
    sp_pack_list_add(forward, a, true);
    sp_pack_list_add(forward, b, true);
    sp_pack_list_begin(forward, 0, 1);
    sp_pack_list_add(forward, c, true);
    sp_pack_list_begin(backward, 0, 1);
    sp_pack_list_add(backward, c, true);
    if (regrouped) {
        sp_pack_list_add(backward, b, true);
    }
    sp_pack_list_begin(backward, 0, 1);
    if (!regrouped) {
        sp_pack_list_add(backward, b, true);
    }
    sp_pack_list_add(backward, a, true);
}

// A backward pack runs on the cut of the forward pack with its slices, in whatever order it names
// them; documents are cut alike in any pack.
TEST(backward_keeps_the_cut)
{
    int64_t tokens[] = {400, 96, 900};
    const sp_batch batch = {.tokens = tokens, .count = 3};
    sp_layout layout = two_ranks;
    for (int i = 0; i < 2 * 4; i++) {
        AUTO(sp_packing) packing;
        AUTO_FREE int32_t *forward_pack;
        bool regrouped = i >= 4;
        layout.cp_sharding = (sp_cp_sharding)(i % 4);
        bool by_pack = i % 4 == SP_SHARD_SEQUENCE || i % 4 == SP_SHARD_ADAPTIVE;
        two_packs(&packing, &batch, regrouped);
        sp_error_clear(ERR);
        sp_status status = sp_i_cp_regroup(&layout, &packing, "test", &forward_pack, ERR);
        assert_int_equal(status, by_pack && regrouped ? SP_ERR_CONTENT : SP_OK);
        assert_true((forward_pack != NULL) == (by_pack && !regrouped));
        for (int k = 0; status == SP_OK && k < 2; k++) {
            const sp_pack *pack = &packing.backward.packs[k];
            sp_i_cp_row row = sp_i_cp_row_of(&layout, &packing, forward_pack, pack);
            assert_ptr_equal(row.pack, by_pack ? &packing.forward.packs[1 - k] : pack);
            assert_ptr_equal(row.list, by_pack ? &packing.forward : &packing.backward);
        }
        sp_free(forward_pack);
        // One CP rank holds all of any pack.
        layout.cp = 1;
        must_succeed(sp_i_cp_regroup(&layout, &packing, "test", &forward_pack, ERR));
        layout.cp = 2;
    }
}
