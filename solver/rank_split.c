#include "solver/rank_split.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "solver/rows.h"

// Context parallelism over merged ranks costs about this much more work.
#define MERGE_COST 1.05

static double sample_s(const sp_i_work *work, const sp_batch *batch, int32_t sample)
{
    return sp_i_slice_work_s(work, 0, batch->tokens[sample]);
}

// Ranks that a sample needs so that its group is no longer at work than the others: the least power
// of two.
static int ranks_for(double work_s, int64_t tokens, double share_s, double merge_share,
                     int64_t token_limit, int most)
{
    int ranks = 1;
    while (2 * ranks <= most && merge_share > 0.0 &&
           (work_s / ranks > merge_share * share_s ||
            (token_limit > 0 && tokens / ranks > token_limit))) {
        ranks *= 2;
    }
    return ranks;
}

// Groups for the longest samples from the first rank on, then single ranks.
static void form_groups(const sp_i_work *work, const sp_batch *batch, const int32_t *order, int dp,
                        int most_merged, double merge_share, int64_t token_limit,
                        sp_i_rank_split *split)
{
    double total_s = 0.0;
    for (size_t i = 0; i < batch->count; i++) {
        total_s += sample_s(work, batch, (int32_t)i);
    }
    int first = 0;
    for (size_t i = 0; i < batch->count && first < dp; i++) {
        double work_s = sample_s(work, batch, order[i]);
        int ranks = ranks_for(work_s, batch->tokens[order[i]], total_s / dp, merge_share,
                              token_limit, most_merged);
        while (ranks > 1 && (first % ranks != 0 || first + ranks > dp)) {
            ranks /= 2;
        }
        if (ranks == 1) {
            break;
        }
        split->groups[split->count++] = (sp_i_rank_group){.dp_first = first, .dp_count = ranks};
        first += ranks;
    }
    for (; first < dp; first++) {
        split->groups[split->count++] = (sp_i_rank_group){.dp_first = first, .dp_count = 1};
    }
}

static double speed_of(const sp_i_rank_group *group)
{
    return group->dp_count > 1 ? group->dp_count / MERGE_COST : 1.0;
}

// The group that would end first with the sample; of equal ones the first.
static int earliest(const sp_i_rank_split *split, double work_s)
{
    int best = 0;
    double best_s = 0.0;
    for (int g = 0; g < split->count; g++) {
        double end_s = split->groups[g].work_s + work_s / speed_of(&split->groups[g]);
        if (g == 0 || end_s < best_s) {
            best = g;
            best_s = end_s;
        }
    }
    return best;
}

sp_status sp_i_rank_split_make(const sp_i_work *work, const sp_batch *batch, int dp,
                               int most_merged, double merge_share, int64_t token_limit,
                               sp_i_rank_split *split, sp_error *err)
{
    int32_t *order = NULL;
    int *group_of = sp_i_malloc((batch->count + 1) * sizeof *group_of);
    *split = (sp_i_rank_split){.groups = sp_i_calloc((size_t)dp, sizeof *split->groups)};
    sp_status status = group_of != NULL && split->groups != NULL
                           ? sp_i_order_descending(batch, &order, err)
                           : sp_error_no_memory(err, "samples of the ranks");
    if (status != SP_OK) {
        goto out;
    }
    form_groups(work, batch, order, dp, most_merged, merge_share, token_limit, split);
    for (size_t i = 0; i < batch->count; i++) {
        double work_s = sample_s(work, batch, order[i]);
        int g = earliest(split, work_s);
        group_of[i] = g;
        split->groups[g].work_s += work_s / speed_of(&split->groups[g]);
        split->groups[g].count++;
    }
    for (int g = 0; g < split->count; g++) {
        split->groups[g].sample =
            sp_i_malloc((split->groups[g].count + 1) * sizeof *split->groups[g].sample);
        split->groups[g].count = 0;
        if (split->groups[g].sample == NULL) {
            status = sp_error_no_memory(err, "samples of the ranks");
            goto out;
        }
    }
    for (size_t i = 0; i < batch->count; i++) {
        sp_i_rank_group *group = &split->groups[group_of[i]];
        group->sample[group->count++] = order[i];
    }
out:
    sp_i_free(order);
    sp_i_free(group_of);
    if (status != SP_OK) {
        sp_i_rank_split_fini(split);
    }
    return status;
}

void sp_i_rank_split_fini(sp_i_rank_split *split)
{
    for (int g = 0; split->groups != NULL && g < split->count; g++) {
        sp_i_free(split->groups[g].sample);
    }
    sp_i_free(split->groups);
    *split = (sp_i_rank_split){0};
}

sp_status sp_i_rank_split_copy(const sp_i_rank_split *from, sp_i_rank_split *to, sp_error *err)
{
    *to = (sp_i_rank_split){.groups = sp_i_calloc((size_t)from->count + 1, sizeof *to->groups)};
    bool ok = to->groups != NULL;
    for (int g = 0; ok && g < from->count; g++) {
        sp_i_rank_group *group = &to->groups[to->count++];
        *group = from->groups[g];
        group->sample = sp_i_malloc((group->count + 1) * sizeof *group->sample);
        ok = group->sample != NULL;
        if (ok) {
            memcpy(group->sample, from->groups[g].sample, group->count * sizeof *group->sample);
        }
    }
    if (!ok) {
        sp_i_rank_split_fini(to);
        return sp_error_no_memory(err, "samples of the ranks");
    }
    return SP_OK;
}

// Descending length, then batch order, as sp_i_order_descending.
static bool comes_before(const sp_batch *batch, int32_t a, int32_t b)
{
    return batch->tokens[a] != batch->tokens[b] ? batch->tokens[a] > batch->tokens[b] : a < b;
}

sp_status sp_i_rank_split_move(const sp_i_work *work, const sp_batch *batch, sp_i_rank_split *split,
                               int from, int to, double work_s, bool *moved, sp_error *err)
{
    sp_i_rank_group *source = &split->groups[from];
    sp_i_rank_group *target = &split->groups[to];
    int32_t *merged = sp_i_malloc((source->count + target->count + 1) * sizeof *merged);
    *moved = false;
    if (merged == NULL) {
        return sp_error_no_memory(err, "samples of the ranks");
    }
    double left_s = work_s * speed_of(source);
    size_t kept = 0;
    size_t count = 0;
    // The moved ones stay in order; the two ordered lists are then merged.
    int32_t *going = merged + target->count;
    for (size_t i = 0; i < source->count; i++) {
        double s = sample_s(work, batch, source->sample[i]);
        if (s <= left_s && (kept > 0 || i + 1 < source->count)) {
            left_s -= s;
            source->work_s -= s / speed_of(source);
            target->work_s += s / speed_of(target);
            going[count++] = source->sample[i];
        } else {
            source->sample[kept++] = source->sample[i];
        }
    }
    source->count = kept;
    size_t a = 0;
    size_t b = 0;
    for (size_t i = 0; i < target->count + count; i++) {
        bool own =
            b == count || (a < target->count && comes_before(batch, target->sample[a], going[b]));
        merged[i] = own ? target->sample[a++] : going[b++];
    }
    target->count += count;
    sp_i_free(target->sample);
    target->sample = merged;
    *moved = count > 0;
    return SP_OK;
}
