#include "solver/token_limit.h"

// Bytes that a token holds at most, and the most that a pack needs beyond what units hold.
typedef struct needs {
    double held_bytes;
    int64_t transient_bytes;
} needs;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static needs needs_of(const sp_step_costs *costs, const sp_packing *packing, bool split, int class)
{
    needs n = {0};
    for (size_t k = 0; k < packing->forward.count; k++) {
        const sp_unit_bytes *unit = &costs->unit[k * (size_t)costs->classes + (size_t) class];
        int64_t tokens = packing->forward.packs[k].computed;
        int64_t held = sp_bytes_total(&unit->held);
        held = split ? larger(held, sp_bytes_total(&unit->weights)) : held;
        // Merged ranks hold a share each.
        double per_token =
            (double)held * packing->forward.packs[k].dp_count / (double)larger(tokens, 1);
        n.held_bytes = per_token > n.held_bytes ? per_token : n.held_bytes;
        n.transient_bytes = larger(n.transient_bytes, sp_bytes_total(&unit->forward));
        n.transient_bytes = larger(n.transient_bytes, sp_bytes_total(&unit->backward));
    }
    for (size_t k = 0; costs->backward_unit != NULL && k < packing->backward.count; k++) {
        const sp_unit_bytes *unit =
            &costs->backward_unit[k * (size_t)costs->classes + (size_t) class];
        n.transient_bytes = larger(n.transient_bytes, sp_bytes_total(&unit->backward));
    }
    return n;
}

int64_t sp_i_token_limit(const sp_step_costs *costs, const sp_packing *packing,
                         const sp_layout *layout, bool split, int64_t limit_bytes)
{
    if (costs->unit == NULL || costs->states == NULL) {
        return 0;
    }
    double least = 1e15;
    for (int r = 0; r < layout->pp; r++) {
        needs n = needs_of(costs, packing, split, costs->class_of_vstage[r]);
        int64_t room = limit_bytes - sp_bytes_total(&costs->states[r]) - n.transient_bytes;
        if (n.held_bytes > 0.0 && (double)room / n.held_bytes < least) {
            least = (double)room / n.held_bytes;
        }
    }
    return least < 1.0 ? 1 : (int64_t)least;
}
