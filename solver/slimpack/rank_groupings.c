#include "solver/slimpack/rank_split.h"

// The lengths of slices that groups are priced for: a sample of one slice, then each so many times
// shorter, down to those that are about the shortest of use.
enum { SHORTER = 8, SHORTEST = 8192 };

// Groups that hold samples, of any index from *at on; NULL: there is no more.
static const sp_i_rank_group *next_in_use(const sp_i_rank_split *split, int *at)
{
    while (*at < split->count && split->groups[*at].count == 0) {
        (*at)++;
    }
    return *at < split->count ? &split->groups[(*at)++] : NULL;
}

static bool are_same_groups(const sp_i_rank_split *a, const sp_i_rank_split *b)
{
    int at_a = 0;
    int at_b = 0;
    for (;;) {
        const sp_i_rank_group *group_a = next_in_use(a, &at_a);
        const sp_i_rank_group *group_b = next_in_use(b, &at_b);
        if (group_a == NULL || group_b == NULL) {
            return group_a == group_b;
        }
        if (group_a->dp_count != group_b->dp_count) {
            return false;
        }
    }
}

// Keeps the order of their largest groups; takes the split, or ends it where it is none other.
static void add(sp_i_groupings *all, const sp_i_rank_split *first, sp_i_rank_split *split)
{
    bool other = all->count < SP_I_GROUPINGS && !are_same_groups(split, first);
    for (int i = 0; other && i < all->count; i++) {
        other = !are_same_groups(split, &all->split[i]);
    }
    if (!other) {
        sp_i_rank_split_fini(split);
        return;
    }
    double largest_s = sp_i_rank_split_largest_s(split);
    int at = all->count++;
    for (; at > 0 && largest_s < sp_i_rank_split_largest_s(&all->split[at - 1]); at--) {
        all->split[at] = all->split[at - 1];
    }
    all->split[at] = *split;
}

sp_status sp_i_groupings_make(sp_cost_model *cost, const sp_i_work *work, const sp_batch *batch,
                              double merge_share, int64_t token_limit, const sp_i_rank_split *first,
                              sp_i_groupings *groupings, sp_error *err)
{
    int64_t longest = sp_batch_longest(batch);
    sp_status status = SP_OK;
    *groupings = (sp_i_groupings){.count = 0};
    for (int64_t slice = longest; status == SP_OK && slice > SHORTEST / SHORTER; slice /= SHORTER) {
        sp_i_merge_costs costs;
        status = sp_i_merge_costs_measure(cost, longest, slice, &costs, err);
        for (int most = costs.levels; status == SP_OK && most > 0; most--) {
            sp_i_rank_split split;
            costs.levels = most;
            sp_i_rank_split_priced(work, batch, cost->layout->dp, &costs, merge_share, token_limit,
                                   &split);
            add(groupings, first, &split);
        }
    }
    if (status != SP_OK) {
        sp_i_groupings_fini(groupings);
    }
    return status;
}

void sp_i_groupings_fini(sp_i_groupings *groupings)
{
    for (int i = 0; i < groupings->count; i++) {
        sp_i_rank_split_fini(&groupings->split[i]);
    }
    groupings->count = 0;
}
