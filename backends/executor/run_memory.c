// The memory of a step over time, put together from what each action noted: what the rank held but
// for its copies, and what each copy changed, at the copy's own time. The order of things that
// happen at one moment is that of sim/engine/memory.c.
#include "backends/executor/run.h"

// The spans or copies of one kind, with their place among the plan's actions.
typedef struct cursor {
    const sp_span *spans;
    size_t count, at;
    size_t action; // of spans[at]
} cursor;

typedef struct course {
    sp_i_exec_rank *rank;
    const sp_stage_plan *stage;
    sp_rank_memory *memory;
    bool points;
    sp_bytes held;  // but for copies
    sp_bytes moved; // by them
    int64_t time_ns;
    sp_action action; // the last that began
    bool acted, running;
    int32_t forwards_ended;
    size_t share, shares_logged; // of the timeline's, and of the log's: those of its own have none
    bool share_runs;
} course;

static bool is_of(sp_action action, int kind)
{
    return kind == SP_ACTION_KINDS ? !sp_action_is_copy(action) : action.kind == kind;
}

// Moves to the next of its kind, or of all that are no copies (SP_ACTION_KINDS).
static void skip(cursor *c, const sp_stage_plan *stage, int kind)
{
    while (c->at < c->count && !is_of(c->spans[c->at].action, kind)) {
        c->at++;
    }
    while (c->action < stage->count && !is_of(stage->actions[c->action], kind)) {
        c->action++;
    }
}

static void step(cursor *c, const sp_stage_plan *stage, int kind)
{
    c->at++;
    c->action++;
    skip(c, stage, kind);
}

static bool note(course *c, int64_t time_ns)
{
    sp_bytes now;
    for (int k = 0; k < SP_MEM_CATEGORIES; k++) {
        now.of[k] = c->held.of[k] + c->moved.of[k];
    }
    c->time_ns = time_ns;
    return sp_rank_memory_note(c->memory, time_ns, &now, c->acted ? &c->action : NULL, c->points);
}

static bool note_span(course *c, const sp_span *span, const sp_i_exec_log *log)
{
    c->running = !c->running;
    c->held = c->running ? log->during : log->after;
    c->action = span->action;
    c->acted = true;
    c->forwards_ended += !c->running && span->action.kind == SP_ACTION_F;
    return note(c, c->running ? span->start_ns : span->end_ns);
}

static bool note_share(course *c, const sp_share_span *share)
{
    const sp_i_exec_log *log = &c->rank->share_log[c->shares_logged];
    c->running = !c->running;
    c->share_runs = c->running;
    c->held = c->running ? log->during : log->after;
    c->action = share->span.action;
    c->acted = true;
    c->share += !c->running;
    c->shares_logged += !c->running;
    return note(c, c->running ? share->span.start_ns : share->span.end_ns);
}

// The share of another rank's action that runs, or that comes before a span, or with NULL the next.
static const sp_share_span *share_before(course *c, const sp_rank_timeline *line,
                                         const sp_span *span)
{
    while (c->share < line->share_count && line->shares[c->share].own) {
        c->share++;
    }
    const sp_share_span *share = &line->shares[c->share];
    bool is_next = c->share < line->share_count && !c->running &&
                   (span == NULL || share->span.start_ns < span->start_ns ||
                    share->span.end_ns <= span->start_ns);
    return c->share_runs || is_next ? share : NULL;
}

static bool note_copy(course *c, const sp_span *span, sp_i_exec_log *log, int64_t time_ns)
{
    if (log->counted) {
        return true;
    }
    log->counted = true;
    for (int k = 0; k < SP_MEM_CATEGORIES; k++) {
        c->moved.of[k] += log->after.of[k];
    }
    if (!c->running) {
        c->action = span->action;
        c->acted = true;
    }
    return note(c, time_ns);
}

// When what a copy took goes; INT64_MAX: not yet known.
static int64_t gone_ns(const course *c, const cursor *out)
{
    if (out->at == out->count || c->forwards_ended < c->rank->log[out->action].forwards) {
        return INT64_MAX;
    }
    int64_t end_ns = out->spans[out->at].end_ns;
    return end_ns > c->time_ns ? end_ns : c->time_ns;
}

static bool walk(course *c, const sp_rank_timeline *line)
{
    sp_i_exec_log *log = c->rank->log;
    cursor of = {.spans = line->spans, .count = line->count};
    cursor out = {.spans = line->copies, .count = line->copy_count};
    cursor back = out;
    skip(&of, c->stage, SP_ACTION_KINDS);
    skip(&out, c->stage, SP_ACTION_O);
    skip(&back, c->stage, SP_ACTION_L);
    bool ok = true;
    while (ok) {
        const sp_span *span = of.at < of.count ? &of.spans[of.at] : NULL;
        const sp_share_span *share = share_before(c, line, span);
        span = share != NULL ? &share->span : span;
        if (span == NULL && out.at == out.count && back.at == back.count) {
            break;
        }
        int64_t span_ns = span == NULL ? INT64_MAX : c->running ? span->end_ns : span->start_ns;
        int64_t out_ns = gone_ns(c, &out);
        int64_t back_ns = back.at < back.count ? back.spans[back.at].start_ns : INT64_MAX;
        int64_t copy_ns = out_ns < back_ns ? out_ns : back_ns;
        if (span_ns < copy_ns || (c->running && span_ns == copy_ns)) {
            ok = share != NULL ? note_share(c, share) : note_span(c, span, &log[of.action]);
            if (!c->running && share == NULL) {
                step(&of, c->stage, SP_ACTION_KINDS);
            }
        } else if (out_ns <= back_ns) {
            ok = note_copy(c, &out.spans[out.at], &log[out.action], out_ns);
            step(&out, c->stage, SP_ACTION_O);
        } else {
            const sp_span *copy = &back.spans[back.at];
            ok = note_copy(c, copy, &log[log[back.action].out], back_ns) &&
                 note_copy(c, copy, &log[back.action], back_ns);
            step(&back, c->stage, SP_ACTION_L);
        }
    }
    return ok;
}

static int64_t most_held(const sp_i_exec_rank *rank)
{
    int64_t most = 0;
    for (size_t i = 0; i < rank->logged; i++) {
        int64_t total = sp_bytes_total(&rank->log[i].during);
        most = total > most ? total : most;
    }
    for (size_t i = 0; i < rank->shares_logged; i++) {
        int64_t total = sp_bytes_total(&rank->share_log[i].during);
        most = total > most ? total : most;
    }
    return most;
}

// Of the ranks of one (dp, pp), whose rows may differ by a few, the fullest stands for all.
static sp_i_exec_rank *fullest(const sp_i_exec_run *run, int dp, int pp)
{
    sp_i_exec_rank *full = sp_i_exec_rank_at(run, dp, pp, 0);
    for (int m = 1; m < sp_i_exec_members(run); m++) {
        sp_i_exec_rank *rank = sp_i_exec_rank_at(run, dp, pp, m);
        full = most_held(rank) > most_held(full) ? rank : full;
    }
    return full;
}

sp_status sp_i_exec_fill_memory(const sp_i_exec_run *run, sp_measured_step *step_of, sp_error *err)
{
    bool ok = true;
    sp_memory_timeline_init(&step_of->memory, &step_of->timeline);
    for (size_t r = 0; ok && r < step_of->timeline.rank_count; r++) {
        const sp_rank_timeline *line = &step_of->timeline.ranks[r];
        course c = {.rank = fullest(run, line->dp, line->pp),
                    .stage = sp_plan_stage(run->request->plan, line->dp, line->pp),
                    .memory = &step_of->memory.ranks[r],
                    .points = run->request->memory_points};
        SP_ASSERT(c.rank->logged == line->count + line->copy_count);
        c.held = c.rank->held;
        ok = note(&c, 0) && walk(&c, line);
    }
    return ok ? SP_OK : sp_error_no_memory(err, "the memory timeline");
}
