#include "sim/engine/memory_copies.h"

#include "sim/engine/memory_spans.h"
#include "sim/schedule/offload.h"

static int64_t copied_bytes(const sp_i_memory_walk *w, sp_action action)
{
    if (sp_i_walk_state(w, action.pack, action.chunk)->copied == 0) {
        return 0;
    }
    return w->shared->costs->offloaded_bytes[sp_i_walk_unit(w, action.pack, action.chunk)];
}

static void begin_copy(sp_i_memory_walk *w, sp_action action)
{
    if (!w->running) {
        w->action = action;
        w->acted = true;
    }
}

// What an O has copied goes.
static bool end_copy_out(sp_i_memory_walk *w, sp_action action, int64_t time_ns)
{
    begin_copy(w, action);
    if (copied_bytes(w, action) == 0 ||
        sp_i_walk_state(w, action.pack, action.chunk)->holds != SP_I_HOLDS_ALL) {
        return true;
    }
    sp_i_walk_hold(w, action, SP_I_HOLDS_REST);
    w->now.of[SP_MEM_OFFLOADED] += copied_bytes(w, action);
    return sp_i_walk_note(w, time_ns);
}

static bool begin_copy_back(sp_i_memory_walk *w, sp_action action, int64_t time_ns)
{
    int64_t bytes = copied_bytes(w, action);
    if (bytes == 0) {
        return true;
    }
    bool ok = end_copy_out(w, action, time_ns);
    begin_copy(w, action);
    sp_i_walk_hold(w, action, SP_I_HOLDS_LOADED);
    w->now.of[SP_MEM_OFFLOADED] -= bytes;
    if (w->buffers < SP_COPY_BUFFERS) {
        w->buffers++;
        w->now.of[SP_MEM_WORKSPACE] += w->buffer_bytes;
    }
    return ok && sp_i_walk_note(w, time_ns);
}

static size_t next_copy(const sp_rank_timeline *rank, size_t from, sp_action_kind kind)
{
    while (from < rank->copy_count && rank->copies[from].action.kind != kind) {
        from++;
    }
    return from;
}

// When the copy is done and the forward after the copied one is over; INT64_MAX: not yet known.
static int64_t copied_out_ns(const sp_i_memory_walk *w, const sp_span *copy)
{
    int32_t forward = sp_i_walk_state(w, copy->action.pack, copy->action.chunk)->forward;
    int32_t needed = forward + 1 < w->forwards ? forward + 2 : w->forwards;
    if (w->forwards_ended < needed) {
        return INT64_MAX;
    }
    return copy->end_ns > w->time_ns ? copy->end_ns : w->time_ns;
}

// Both copy lanes run their copies one after another, so that starts order ends as well.
bool sp_i_walk_spans_and_copies(sp_i_memory_walk *w)
{
    const sp_rank_timeline *rank = w->rank;
    size_t out = next_copy(rank, 0, SP_ACTION_O);
    size_t back = next_copy(rank, 0, SP_ACTION_L);
    bool ok = true;
    bool running = false;
    size_t i = 0;
    while (ok && (i < rank->count || out < rank->copy_count || back < rank->copy_count ||
                  w->share_runs)) {
        // A share counts as a span of its own.
        const sp_span *span = i == rank->count ? NULL : &rank->spans[i];
        const sp_share_span *share = w->share_runs ? &rank->shares[w->share]
                                     : running     ? NULL
                                                   : sp_i_walk_share_before(w, span);
        span = share != NULL ? &share->span : span;
        int64_t span_ns = span == NULL ? INT64_MAX : running ? span->end_ns : span->start_ns;
        int64_t out_ns = out < rank->copy_count ? copied_out_ns(w, &rank->copies[out]) : INT64_MAX;
        int64_t back_ns = back < rank->copy_count ? rank->copies[back].start_ns : INT64_MAX;
        int64_t copy_ns = out_ns < back_ns ? out_ns : back_ns;
        if (span_ns < copy_ns || (running && span_ns == copy_ns)) {
            if (share != NULL) {
                ok = running ? sp_i_walk_end_share(w, share) : sp_i_walk_begin_share(w, share);
                w->share += running;
                w->share_runs = !running;
            } else {
                ok = running ? sp_i_walk_end_span(w, span) : sp_i_walk_begin_span(w, span);
                i += running;
            }
            running = !running;
        } else if (out_ns <= back_ns) {
            ok = end_copy_out(w, rank->copies[out].action, out_ns);
            out = next_copy(rank, out + 1, SP_ACTION_O);
        } else {
            ok = begin_copy_back(w, rank->copies[back].action, back_ns);
            back = next_copy(rank, back + 1, SP_ACTION_L);
        }
    }
    return ok;
}
