// Data-parallel ranks that share experts, or gather parameters from each other (ZeRO 3), meet in
// every layer, so that all of them are as slow as the slowest of a round. Each action is taken to
// last as long on all of them as on the one where it is longest: within it they meet several times,
// and their shares of it are alike where it is attention that differs, which is in every layer. A
// gather is there a layer before its layer needs it, so that a rank may be a layer ahead, which
// changes nothing of that. A weight gradient meets nobody for experts, but the action behind it
// does.
#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/cost/cost_private.h"

static void wait_action(const sp_rounds *rounds, sp_i_wait wait, sp_action_cost *table,
                        size_t packs, int classes, int64_t *most_ns)
{
    for (int c = 0; c < classes; c++) {
        for (int32_t i = 0; i < rounds->count; i++) {
            most_ns[i] = 0;
        }
        for (size_t k = 0; k < packs; k++) {
            int64_t *most = &most_ns[rounds->together[k]];
            *most = sp_larger(*most, sp_action_cost_ns(&table[k * (size_t)classes + (size_t)c]));
        }
        for (size_t k = 0; k < packs; k++) {
            sp_action_cost *cost = &table[k * (size_t)classes + (size_t)c];
            int64_t wait_ns = most_ns[rounds->together[k]] - sp_action_cost_ns(cost);
            if (wait == SP_I_WAIT_EXPERTS) {
                cost->ep_wait_ns = wait_ns;
                cost->ep_ns += wait_ns;
            } else {
                cost->dp_wait_ns = wait_ns;
                cost->dp_ns += wait_ns;
            }
        }
    }
}

static void wait_transfers(const sp_rounds *rounds, sp_p2p_times *times, size_t packs)
{
    sp_p2p_times *most = sp_calloc((size_t)rounds->count + 1, sizeof *most);
    for (size_t k = 0; k < packs; k++) {
        sp_p2p_times *of = &most[rounds->together[k]];
        of->ns = sp_larger(of->ns, times[k].ns);
        of->internode_ns = sp_larger(of->internode_ns, times[k].internode_ns);
    }
    for (size_t k = 0; k < packs; k++) {
        times[k] = most[rounds->together[k]];
    }
    sp_free(most);
}

void sp_i_wait_in_rounds(const sp_rounds *rounds, sp_i_wait wait, bool backward, size_t packs,
                         sp_step_costs *costs)
{
    int64_t *most_ns = sp_calloc((size_t)rounds->count + 1, sizeof *most_ns);
    int first = backward ? SP_ACTION_B : SP_ACTION_F;
    int last = backward ? SP_ACTION_R : SP_ACTION_F;
    for (int kind = first; kind <= last; kind++) {
        wait_action(rounds, wait, costs->action[kind], packs, costs->classes, most_ns);
    }
    wait_transfers(rounds, backward ? costs->backward_p2p : costs->forward_p2p, packs);
    sp_free(most_ns);
}
