#include "tests/support/make_timeline.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

made_spec made_default(void)
{
    return (made_spec){
        .pp = 3,
        .microbatches = 4,
        .chunks = 1,
        .forward_ns = 2000000,
        .backward_ns = 4000000,
        .alike = 1,
        .reduce_ns = 1000000,
        .optimizer_ns = 2000000,
        .gather_ns = 1000000,
        .unit_bytes = (int64_t)512 << 20,
        .workspace_bytes = (int64_t)64 << 20,
    };
}

// 1F1B: p - 1 - r forwards, then one forward and one backward in turn, then the backwards left.
static void order_actions(const made_spec *spec, int rank, sp_span *spans)
{
    int m = spec->microbatches;
    int warmup = spec->pp - 1 - rank < m ? spec->pp - 1 - rank : m;
    int forwards = 0, backwards = 0;
    for (int i = 0; i < 2 * m; i++) {
        bool forward = forwards < m && (forwards < warmup || forwards - warmup == backwards);
        spans[i].action.kind = forward ? SP_ACTION_F : SP_ACTION_B;
        spans[i].action.pack = forward ? forwards++ : backwards++;
    }
}

// Where order_actions() puts an action.
static const sp_span *find(const made_spec *spec, const sp_timeline *timeline, int rank,
                           sp_action_kind kind, int pack)
{
    int m = spec->microbatches;
    int warmup = spec->pp - 1 - rank < m ? spec->pp - 1 - rank : m;
    int forward_at = pack < warmup ? pack : 2 * pack - warmup;
    int backward_at = pack < m - warmup ? warmup + 2 * pack + 1 : m + pack;
    const sp_span *span =
        &timeline->ranks[rank].spans[kind == SP_ACTION_F ? forward_at : backward_at];
    if (span->action.kind != kind || span->action.pack != pack) {
        abort();
    }
    return span;
}

// The action of the neighbouring rank that an action waits for, or NULL.
static const sp_span *source_of(const made_spec *spec, const sp_timeline *timeline, int rank,
                                const sp_span *span)
{
    if (span->action.kind == SP_ACTION_F) {
        return rank > 0 ? find(spec, timeline, rank - 1, SP_ACTION_F, span->action.pack) : NULL;
    }
    return rank < spec->pp - 1 ? find(spec, timeline, rank + 1, SP_ACTION_B, span->action.pack)
                               : NULL;
}

// Places the next actions of a rank until one waits for an action that has no time yet; `done` is
// the number placed.
static size_t place_actions(const made_spec *spec, sp_timeline *timeline, int rank, size_t done)
{
    sp_rank_timeline *row = &timeline->ranks[rank];
    for (; done < row->count; done++) {
        sp_span *span = &row->spans[done];
        const sp_span *source = source_of(spec, timeline, rank, span);
        if (source != NULL && source->end_ns == 0) {
            break;
        }
        int64_t free_ns = done > 0 ? row->spans[done - 1].end_ns : 0;
        int64_t sent_ns = source == NULL ? 0 : source->end_ns;
        int64_t arrived_ns = source == NULL ? 0 : sent_ns + spec->p2p_ns;
        bool forward = span->action.kind == SP_ACTION_F;
        span->start_ns = arrived_ns > free_ns ? arrived_ns : free_ns;
        span->end_ns = span->start_ns + (forward ? spec->forward_ns : spec->backward_ns);
        span->wait_p2p_ns = span->start_ns - (sent_ns > free_ns ? sent_ns : free_ns);
        span->tp_ns = spec->tp_ns;
        span->cp_ns = spec->cp_ns;
        if (span->end_ns > timeline->makespan_ns) {
            timeline->makespan_ns = span->end_ns;
        }
    }
    return done;
}

static void place_all(const made_spec *spec, sp_timeline *timeline)
{
    size_t *done = sp_calloc((size_t)spec->pp, sizeof(*done));
    for (bool more = true; more;) {
        more = false;
        for (int r = 0; r < spec->pp; r++) {
            size_t before = done[r];
            done[r] = place_actions(spec, timeline, r, before);
            more = more || done[r] > before;
        }
    }
    free(done);
}

static void add_epilogue(const made_spec *spec, sp_timeline *timeline)
{
    timeline->iteration_ns = timeline->makespan_ns;
    for (size_t r = 0; r < timeline->rank_count; r++) {
        sp_rank_timeline *row = &timeline->ranks[r];
        row->reduce_start_ns = row->spans[row->count - 1].end_ns;
        row->reduce_end_ns = row->reduce_start_ns + spec->reduce_ns;
        row->optimizer_end_ns = row->reduce_end_ns + spec->optimizer_ns;
        row->gather_end_ns = row->optimizer_end_ns + spec->gather_ns;
        if (row->gather_end_ns > timeline->iteration_ns) {
            timeline->iteration_ns = row->gather_end_ns;
        }
    }
}

// Points of equal time stay apart, as the engine leaves them: an action frees, the next allocates.
static void hold(sp_rank_memory *memory, int64_t time_ns, sp_bytes bytes)
{
    memory->points[memory->point_count++] = (sp_memory_point){.time_ns = time_ns, .bytes = bytes};
}

static void fill_memory(const made_spec *spec, const sp_rank_timeline *row, sp_rank_memory *memory)
{
    memory->point_capacity = 2 * row->count + 1;
    memory->points = sp_calloc(memory->point_capacity, sizeof(*memory->points));
    sp_bytes bytes = {{0}};
    bytes.of[SP_MEM_PARAMETERS] = MADE_STATE_BYTES;
    bytes.of[SP_MEM_GRADIENTS] = (int64_t)MADE_STATE_BYTES * 2;
    bytes.of[SP_MEM_OPTIMIZER] = (int64_t)MADE_STATE_BYTES * 3;
    hold(memory, 0, bytes);
    for (size_t i = 0; i < row->count; i++) {
        const sp_span *span = &row->spans[i];
        if (span->action.kind == SP_ACTION_F) {
            bytes.of[SP_MEM_ACTIVATIONS] += spec->unit_bytes;
            hold(memory, span->start_ns, bytes);
        } else {
            bytes.of[SP_MEM_WORKSPACE] += spec->workspace_bytes;
            hold(memory, span->start_ns, bytes);
            bytes.of[SP_MEM_WORKSPACE] -= spec->workspace_bytes;
            bytes.of[SP_MEM_ACTIVATIONS] -= spec->unit_bytes;
            hold(memory, span->end_ns, bytes);
        }
    }
}

void make_timeline(made_timeline *made, const made_spec *given)
{
    const made_spec whole = made_default();
    const made_spec *spec = given != NULL ? given : &whole;
    memset(made, 0, sizeof(*made));
    sp_packing_init(&made->packing, NULL, spec->alike);
    for (int k = 0; k < spec->microbatches; k++) {
        sp_pack_list_begin(&made->packing.forward, 0, 1);
    }
    const sp_layout layout = {
        .tp = 1, .cp = 1, .pp = spec->pp, .dp = spec->alike, .chunks = spec->chunks};
    sp_plan_init(&made->plan, &layout, &made->packing);
    sp_timeline *timeline = &made->timeline;
    timeline->plan = &made->plan;
    timeline->rank_count = (size_t)spec->pp;
    timeline->ranks = sp_calloc(timeline->rank_count, sizeof(*timeline->ranks));
    size_t actions = (size_t)spec->microbatches * 2;
    timeline->span_store = sp_calloc(timeline->rank_count * actions, sizeof(sp_span));
    timeline->alike_store = sp_calloc((size_t)spec->alike, sizeof(int));
    for (int d = 0; d < spec->alike; d++) {
        timeline->alike_store[d] = d;
    }
    for (int r = 0; r < spec->pp; r++) {
        sp_rank_timeline *row = &timeline->ranks[r];
        row->pp = r;
        row->alike = spec->alike;
        row->dp_alike = timeline->alike_store;
        row->spans = timeline->span_store + (size_t)r * actions;
        row->count = actions;
        order_actions(spec, r, row->spans);
        for (size_t a = 0; a < actions; a++) {
            sp_action action = row->spans[a].action;
            sp_stage_plan_add(sp_plan_stage(&made->plan, 0, r), (sp_action_kind)action.kind,
                              action.chunk, action.pack);
        }
    }
    place_all(spec, timeline);
    add_epilogue(spec, timeline);
    made->memory.rank_count = timeline->rank_count;
    made->memory.ranks = sp_calloc(timeline->rank_count, sizeof(*made->memory.ranks));
    for (size_t r = 0; r < timeline->rank_count; r++) {
        fill_memory(spec, &timeline->ranks[r], &made->memory.ranks[r]);
    }
}

void made_timeline_fini(made_timeline *made)
{
    for (size_t r = 0; r < made->memory.rank_count; r++) {
        free(made->memory.ranks[r].points);
    }
    free(made->memory.ranks);
    sp_plan_fini(&made->plan);
    sp_packing_fini(&made->packing);
    free(made->timeline.span_store);
    free(made->timeline.alike_store);
    free(made->timeline.ranks);
    memset(made, 0, sizeof(*made));
}

char *made_read_all(FILE *file, size_t *bytes)
{
    if (fseek(file, 0, SEEK_END) != 0) {
        abort();
    }
    long length = ftell(file);
    if (length < 0) {
        abort();
    }
    rewind(file);
    char *text = sp_calloc((size_t)length + 1, 1);
    if (fread(text, 1, (size_t)length, file) != (size_t)length) {
        abort();
    }
    if (bytes != NULL) {
        *bytes = (size_t)length;
    }
    return text;
}
