#include "backends/fake/fake_damage.h"

#include <string.h>

// Spans of one rank, or its copies.
typedef struct span_list {
    sp_span *spans;
    size_t *count;
} span_list;

static void damage_span(const sp_i_fake_options *options, span_list list, size_t i)
{
    sp_span *span = &list.spans[i];
    sp_span *before = i > 0 ? span - 1 : span;
    sp_action action = span->action;
    switch (options->damage) {
    case SP_I_DAMAGE_ORDER:
        span->action = before->action;
        before->action = action;
        break;
    case SP_I_DAMAGE_OVERLAP:
        span->start_ns = before->end_ns - 1;
        break;
    case SP_I_DAMAGE_EARLY:
        // Everything before it on its rank takes no time.
        for (sp_span *s = list.spans; s < span; s++) {
            s->start_ns = s->end_ns = 0;
        }
        span->start_ns = 0;
        break;
    case SP_I_DAMAGE_MISSING:
        memmove(span, span + 1, (*list.count - i - 1) * sizeof *span);
        (*list.count)--;
        break;
    case SP_I_DAMAGE_NONE:
    case SP_I_DAMAGE_LEAK:
        break;
    }
}

static bool damage_row(const sp_i_fake_options *options, const sp_rank_timeline *rank,
                       span_list list)
{
    for (size_t i = 0; i < *list.count; i++) {
        sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = list.spans[i].action};
        if (sp_i_selects(&options->damaged, &place)) {
            damage_span(options, list, i);
            return true;
        }
    }
    return false;
}

// One byte of activations stays.
static bool leak(sp_rank_memory *memory, const sp_rank_timeline *rank)
{
    const sp_memory_point *last =
        memory->point_count > 0 ? &memory->points[memory->point_count - 1] : NULL;
    sp_bytes held = last != NULL ? last->bytes : (sp_bytes){{0}};
    held.of[SP_MEM_ACTIVATIONS]++;
    return sp_rank_memory_note(memory, last != NULL ? last->time_ns : 0, &held,
                               &rank->spans[0].action, true);
}

bool sp_i_fake_damage(const sp_i_fake_options *options, sp_measured_step *step)
{
    for (size_t r = 0; options->damage != SP_I_DAMAGE_NONE && r < step->timeline.rank_count; r++) {
        sp_rank_timeline *rank = &step->timeline.ranks[r];
        span_list spans = {rank->spans, &rank->count};
        span_list copies = {rank->copies, &rank->copy_count};
        if (damage_row(options, rank, spans) || damage_row(options, rank, copies)) {
            return options->damage != SP_I_DAMAGE_LEAK || leak(&step->memory.ranks[r], rank);
        }
    }
    return true;
}
