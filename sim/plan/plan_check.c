#include "sim/plan/plan_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { WHERE = 192, TEXT = 400 }; // bytes of a path and of the text of a finding

static void check_packs(sp_i_plan_check *check, const sp_i_side *side);
static void check_samples(sp_i_plan_check *check);
static void place_slices(sp_i_plan_check *check, sp_i_side *side);

sp_status sp_plan_check(const sp_plan *plan, const char *source, sp_error *err)
{
    return sp_i_plan_check_at(plan, source, "", err);
}

sp_status sp_i_plan_check_at(const sp_plan *plan, const char *source, const char *path,
                             sp_error *err)
{
    const sp_packing *packing = plan->packing;
    sp_i_plan_check check = {
        .plan = plan,
        .source = source,
        .path = path,
        .err = err,
        .samples = packing->batch == NULL ? 0 : packing->batch->count,
        .forward = {.list = &packing->forward, .name = "forward_packs"},
        .backward = {.list = sp_packing_backward(packing), .name = "backward_packs"},
    };
    check.shared = check.backward.list == check.forward.list;

    check_packs(&check, &check.forward);
    if (!check.shared) {
        check_packs(&check, &check.backward);
    }
    // What follows indexes by the samples and ranks checked just now.
    if (check.errors > 0) {
        return SP_ERR_CONTENT;
    }
    place_slices(&check, &check.forward);
    if (check.shared) {
        check.backward.first = check.forward.first;
        check.backward.placed = check.forward.placed;
    } else {
        place_slices(&check, &check.backward);
    }
    check_samples(&check);
    if (check.errors == 0) {
        sp_i_plan_check_actions(&check);
    }
    sp_arena_free(&check.work);
    return check.errors > 0 ? SP_ERR_CONTENT : SP_OK;
}

// A broken rule of a slice: "forward_packs[3]: slice 2 (sample 17, tokens 4096..8191) ...".
SP_PRINTF(4, 5)
static void report_slice(sp_i_plan_check *check, const sp_i_side *side, sp_i_placed placed,
                         const char *format, ...)
{
    char where[WHERE];
    char text[TEXT];
    snprintf(where, sizeof where, "%s[%d]", side->name, (int)placed.pack);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const sp_slice *slice = placed.slice;
    size_t number =
        (size_t)(slice - side->list->slices) - side->list->packs[placed.pack].first_slice;
    sp_i_plan_report(check, where, "slice %zu (sample %d, tokens %lld..%lld) %s", number,
                     (int)slice->sample, (long long)slice->begin,
                     (long long)(slice->begin + slice->tokens - 1), text);
}

static bool is_zone_of(const sp_pack *pack, int32_t zone)
{
    return zone > 0 && sp_zone_first(zone) >= pack->dp_first &&
           sp_zone_first(zone) + sp_zone_ranks(zone) <= pack->dp_first + pack->dp_count;
}

static void check_slice(sp_i_plan_check *check, const sp_i_side *side, size_t pack, size_t number)
{
    const sp_slice *slice = &side->list->slices[side->list->packs[pack].first_slice + number];
    char where[WHERE];
    snprintf(where, sizeof where, "%s[%zu]", side->name, pack);
    if (slice->sample < 0 || (size_t)slice->sample >= check->samples) {
        sp_i_plan_report(check, where, "slice %zu is of sample %d, but there are %zu samples",
                         number, (int)slice->sample, check->samples);
        return;
    }
    int64_t tokens = check->plan->packing->batch->tokens[slice->sample];
    if (slice->begin < 0 || slice->tokens < 1 || slice->begin > tokens - slice->tokens) {
        sp_i_plan_report(check, where,
                         "slice %zu (sample %d) has %lld tokens from %lld on, but the sample has "
                         "%lld",
                         number, (int)slice->sample, (long long)slice->tokens,
                         (long long)slice->begin, (long long)tokens);
    } else if (slice->computed_tokens < slice->tokens) {
        sp_i_plan_report(check, where, "slice %zu (sample %d) computes %lld of its %lld tokens",
                         number, (int)slice->sample, (long long)slice->computed_tokens,
                         (long long)slice->tokens);
    } else if (slice->zone != 0 && !is_zone_of(&side->list->packs[pack], slice->zone)) {
        sp_i_plan_report(check, where,
                         "slice %zu (sample %d) has its attention on ranks %d..%d, which are not "
                         "all of the pack's",
                         number, (int)slice->sample, sp_zone_first(slice->zone),
                         sp_zone_first(slice->zone) + sp_zone_ranks(slice->zone) - 1);
    }
}

static void check_packs(sp_i_plan_check *check, const sp_i_side *side)
{
    int dp = check->plan->layout.dp;
    for (size_t p = 0; p < side->list->count && !sp_i_plan_check_full(check); p++) {
        const sp_pack *pack = &side->list->packs[p];
        if (pack->dp_first < 0 || pack->dp_count < 1 || pack->dp_count > dp - pack->dp_first) {
            char where[WHERE];
            snprintf(where, sizeof where, "%s[%zu].dp", side->name, p);
            sp_i_plan_report(
                check, where, "ranks %d to %lld, but the data-parallel ranks are 0 to %d",
                (int)pack->dp_first, (long long)pack->dp_first + pack->dp_count - 1, dp - 1);
        }
        // Packs of uniform costs hold no slices; other backward packs could not be paired then.
        if (!check->shared && pack->slice_count == 0) {
            char where[WHERE];
            snprintf(where, sizeof where, "%s[%zu]", side->name, p);
            sp_i_plan_report(check, where, "holds no slice");
        }
        for (size_t i = 0; i < pack->slice_count && !sp_i_plan_check_full(check); i++) {
            check_slice(check, side, p, i);
        }
    }
}

static int by_begin(const void *left, const void *right)
{
    const sp_slice *a = ((const sp_i_placed *)left)->slice;
    const sp_slice *b = ((const sp_i_placed *)right)->slice;
    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    return (a > b) - (a < b);
}

// The slices of one sample come in pack order: ascending forward, descending backward, unless
// several share a pack.
static void order_by_begin(sp_i_placed *placed, size_t count)
{
    bool ascending = true;
    bool descending = true;
    for (size_t i = 1; i < count; i++) {
        ascending = ascending && placed[i - 1].slice->begin <= placed[i].slice->begin;
        descending = descending && placed[i - 1].slice->begin > placed[i].slice->begin;
    }
    if (ascending) {
        return;
    }
    if (!descending) {
        qsort(placed, count, sizeof *placed, by_begin);
        return;
    }
    for (size_t i = 0; i < count / 2; i++) {
        sp_i_placed swap = placed[i];
        placed[i] = placed[count - 1 - i];
        placed[count - 1 - i] = swap;
    }
}

static void place_slices(sp_i_plan_check *check, sp_i_side *side)
{
    const sp_pack_list *list = side->list;
    side->first = sp_arena_take(&check->work, check->samples + 2, sizeof *side->first);
    side->placed = sp_arena_take(&check->work, list->slice_count, sizeof *side->placed);
    // first[s + 2] counts sample s, then first[s + 1] is where its next slice goes, and in the end
    // where the next sample begins.
    size_t *next = side->first + 1;
    for (size_t i = 0; i < list->slice_count; i++) {
        next[list->slices[i].sample + 1]++;
    }
    for (size_t s = 0; s < check->samples; s++) {
        next[s + 1] += next[s];
    }
    for (size_t p = 0; p < list->count; p++) {
        size_t begin = list->packs[p].first_slice;
        for (size_t i = begin; i < begin + list->packs[p].slice_count; i++) {
            const sp_slice *slice = &list->slices[i];
            side->placed[next[slice->sample]++] = (sp_i_placed){.slice = slice, .pack = (int32_t)p};
        }
    }
    for (size_t s = 0; s < check->samples; s++) {
        order_by_begin(side->placed + side->first[s], side->first[s + 1] - side->first[s]);
    }
}

static void report_gap(sp_i_plan_check *check, const sp_i_side *side, size_t sample, int64_t from,
                       int64_t to)
{
    char where[WHERE];
    snprintf(where, sizeof where, "samples[%zu]", sample);
    sp_i_plan_report(check, where, "tokens %lld..%lld are in none of the %s", (long long)from,
                     (long long)(to - 1), side->name);
}

// Do the slices of the sample on this side cover each of its tokens once?
static bool check_cover(sp_i_plan_check *check, const sp_i_side *side, size_t sample)
{
    int errors = check->errors;
    int64_t tokens = check->plan->packing->batch->tokens[sample];
    int64_t covered = 0;
    size_t furthest = side->first[sample];
    for (size_t k = side->first[sample]; k < side->first[sample + 1]; k++) {
        const sp_slice *slice = side->placed[k].slice;
        if (slice->begin > covered) {
            report_gap(check, side, sample, covered, slice->begin);
        } else if (slice->begin < covered) {
            const sp_i_placed *other = &side->placed[furthest];
            report_slice(
                check, side, side->placed[k], "overlaps tokens %lld..%lld of the sample in pack %d",
                (long long)other->slice->begin,
                (long long)(other->slice->begin + other->slice->tokens - 1), (int)other->pack);
        }
        if (slice->zone != check->forward.placed[check->forward.first[sample]].slice->zone) {
            report_slice(check, side, side->placed[k],
                         "has its attention on other ranks than the sample's first slice");
        }
        if (check->errors > errors) {
            return false;
        }
        if (slice->begin + slice->tokens > covered) {
            covered = slice->begin + slice->tokens;
            furthest = k;
        }
    }
    if (covered < tokens) {
        report_gap(check, side, sample, covered, tokens);
        return false;
    }
    return true;
}

// Forward and backward packs are two partitions of the same slices, on the same ranks.
static bool check_same_slices(sp_i_plan_check *check, size_t sample)
{
    size_t begin = check->forward.first[sample];
    size_t other = check->backward.first[sample];
    for (size_t k = begin; k < check->forward.first[sample + 1]; k++, other++) {
        sp_i_placed forward = check->forward.placed[k];
        sp_i_placed backward = check->backward.placed[other];
        // Both sides cover the sample and agree so far, hence begin at the same token here.
        if (forward.slice->tokens != backward.slice->tokens ||
            forward.slice->computed_tokens != backward.slice->computed_tokens) {
            report_slice(check, &check->backward, backward,
                         "is cut or padded otherwise than in forward pack %d (tokens %lld..%lld)",
                         (int)forward.pack, (long long)forward.slice->begin,
                         (long long)(forward.slice->begin + forward.slice->tokens - 1));
            return false;
        }
        const sp_pack *f = &check->forward.list->packs[forward.pack];
        const sp_pack *b = &check->backward.list->packs[backward.pack];
        if (f->dp_first != b->dp_first || f->dp_count != b->dp_count) {
            report_slice(check, &check->backward, backward,
                         "runs on data-parallel ranks %d..%d, but forward, in pack %d, on %d..%d",
                         (int)b->dp_first, (int)(b->dp_first + b->dp_count - 1), (int)forward.pack,
                         (int)f->dp_first, (int)(f->dp_first + f->dp_count - 1));
            return false;
        }
    }
    return true;
}

// Late slices read the keys and values of earlier ones; the gradients of those come from the late
// slices first.
static void check_order(sp_i_plan_check *check, size_t sample)
{
    const sp_i_side *sides[] = {&check->forward, &check->backward};
    for (int back = 0; back < 2; back++) {
        const sp_i_side *side = sides[back];
        for (size_t k = side->first[sample] + 1; k < side->first[sample + 1]; k++) {
            int32_t pack = side->placed[k].pack;
            int32_t earlier = side->placed[k - 1].pack;
            if (back ? pack > earlier : pack < earlier) {
                report_slice(check, side, side->placed[k],
                             "comes %s pack %d, which holds an earlier slice of the sample",
                             back ? "after" : "before", (int)earlier);
                return;
            }
        }
    }
}

// Marks the samples of dropped[] or delayed[] with `mark`.
static void mark_left_out(sp_i_plan_check *check, const char *name, const int64_t *list,
                          size_t count, char mark, char *left_out)
{
    for (size_t i = 0; i < count && !sp_i_plan_check_full(check); i++) {
        char where[WHERE];
        snprintf(where, sizeof where, "%s[%zu]", name, i);
        if (list[i] < 0 || (uint64_t)list[i] >= check->samples) {
            sp_i_plan_report(check, where, "sample %lld, but there are %zu samples",
                             (long long)list[i], check->samples);
        } else if (left_out[list[i]] != 0) {
            sp_i_plan_report(check, where, "sample %lld stands twice in dropped and delayed",
                             (long long)list[i]);
        } else {
            left_out[list[i]] = mark;
        }
    }
}

static void check_left_out(sp_i_plan_check *check, const sp_i_side *side, size_t sample,
                           const char *what)
{
    if (side->first[sample] < side->first[sample + 1]) {
        report_slice(check, side, side->placed[side->first[sample]],
                     "belongs to a sample that is %s", what);
    }
}

static void check_samples(sp_i_plan_check *check)
{
    const sp_packing *packing = check->plan->packing;
    char *left_out = sp_arena_take(&check->work, check->samples, 1);
    mark_left_out(check, "dropped", packing->dropped, packing->dropped_count, 1, left_out);
    mark_left_out(check, "delayed", packing->delayed, packing->delayed_count, 2, left_out);
    for (size_t s = 0; s < check->samples && !sp_i_plan_check_full(check); s++) {
        if (left_out[s] != 0) {
            const char *what = left_out[s] == 1 ? "dropped" : "delayed";
            check_left_out(check, &check->forward, s, what);
            check_left_out(check, &check->backward, s, what);
        } else if (check_cover(check, &check->forward, s) &&
                   (check->shared ||
                    (check_cover(check, &check->backward, s) && check_same_slices(check, s)))) {
            check_order(check, s);
        }
    }
}

void sp_i_plan_report(sp_i_plan_check *check, const char *where, const char *format, ...)
{
    char path[WHERE];
    char text[TEXT];
    bool both = check->path[0] != '\0' && where != NULL;
    snprintf(path, sizeof path, "%s%s%s", check->path, both ? "." : "", where == NULL ? "" : where);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    check->errors++;
    sp_error_in(check->err, SP_ERR_CONTENT, check->source, path, "%s", text);
}

bool sp_i_plan_check_full(const sp_i_plan_check *check)
{
    return check->errors >= SP_ERROR_MESSAGES;
}
