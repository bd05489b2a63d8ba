// Memory over time: the copies that an O makes and an L brings back, and the memory timeline of a
// step.
#include "backends/executor/run.h"

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/memory/saved_tensors.h"
#include "sim/schedule/schedule.h"
#include "sim/simulate/memory.h"

// ---- Copies ----

// One tensor, or the keys and values of one slice, that leave.
typedef struct leaving {
    void **place; // where the stage holds it
    int64_t elements;
    sp_i_exec_width width;
    sp_i_exec_width away; // bytes that leave, from its beginning on
    bool in_part;         // it belongs to the one of the predictor's tensors that leaves in part
    void *host;           // what has left, in host memory
    void *resident;       // what stays meanwhile
} leaving;

// The tensors that offloading takes away from a unit, which is a forward pack on one virtual stage.
struct sp_i_exec_copies {
    leaving *items;
    size_t count, capacity;
    int32_t forward; // its place among the rank's forwards
    size_t out;      // number of its O among the rank's actions
};

// ---- What leaves of a unit ----

typedef struct lister {
    const sp_i_exec_stage *stage;
    const sp_i_exec_pack *rows;
    int32_t pack;
    sp_i_exec_copies *copies;
    bool in_part; // the tensor at hand
} lister;

// Lists a block, up to `bytes` of the table's; returns how many.
static int64_t add(const lister *l, void **place, int64_t elements, sp_i_exec_width width,
                   int64_t bytes)
{
    sp_i_exec_copies *to = l->copies;
    int64_t away = sp_smaller(bytes, elements * width.table_bytes);
    if (away > 0) {
        *SP_ADDED(to->items, to->capacity, to->count) =
            (leaving){.place = place,
                      .elements = elements,
                      .width = width,
                      .away = {sp_ceil_div(away, width.table_bytes) * width.real_bytes, away},
                      .in_part = l->in_part};
    }
    return away;
}

// Keys and values stand slice by slice; those of slices that later ones read stay in the cache.
static void add_kv(const lister *l, int layer, int64_t bytes)
{
    const sp_i_exec_job *job = l->stage->job;
    const sp_i_exec_spec *spec =
        &sp_i_exec_kind_of(l->stage, layer)->specs.of[SP_TENSOR_KEYS_VALUES];
    for (int32_t i = 0; i < l->rows->count; i++) {
        int32_t number = l->rows->slice[i];
        const sp_i_exec_slice *slice = &job->slices.slice[number];
        if (slice->later == SP_I_EXEC_NONE) {
            bytes -= add(l, sp_i_exec_kv(l->stage, number, layer), slice->rows * spec->columns,
                         job->width.value, bytes);
        }
    }
}

static void add_tensor(const lister *l, sp_layer_tensor_id id, int layer, int64_t bytes)
{
    bool of_head = sp_layer_tensors[id].part == SP_PART_HEAD;
    layer = of_head ? l->stage->model_part.layers : layer;
    const sp_i_exec_spec *spec = &sp_i_exec_kind_of(l->stage, layer)->specs.of[id];
    if (id == SP_TENSOR_KEYS_VALUES) {
        add_kv(l, layer, bytes);
        return;
    }
    int64_t rows = spec->own ? l->rows->own_rows : l->rows->rows;
    add(l, sp_i_exec_saved(l->stage, l->pack, layer, id), rows * spec->columns, spec->width, bytes);
}

// The n-th layer of a kind in the stage.
static int layer_of_kind(const sp_i_exec_stage *stage, int kind, int n)
{
    int layer = 0;
    while (sp_i_exec_kind_of(stage, layer) != &stage->job->kind[kind] || n-- > 0) {
        layer++;
    }
    return layer;
}

// Lists what leaves with an offload of `ratio`: the tensors, and the part of the last one, that the
// predictor names (sim/memory/saved_tensors.h). `shape` is the forward pack, `layout` the plan's.
// O(tensors of the unit).
static void list_leaving(const sp_i_exec_stage *stage, int32_t pack, const sp_pack *shape,
                         const sp_layout *layout, sp_recompute recompute, double ratio,
                         sp_i_exec_copies *copies)
{
    lister l = {stage, &stage->job->slices.forward[pack], pack, copies, false};
    const sp_memory_options options = {
        .recompute = recompute, .offload_ratio = ratio, .stack = {.fused_swiglu = true}};
    sp_layout shared = *layout;
    sp_unit_tensor tensors[SP_UNIT_TENSORS];
    shared.cp *= shape->dp_count;
    const sp_unit_load load = {
        .tokens = shape->computed, .kv_tokens = shape->kv_tokens, .pairs = shape->full_pairs};
    int count =
        sp_unit_tensors(stage->job->model, &shared, &stage->model_part, &options, &load, tensors);
    sp_unit_offload(tensors, count, ratio);
    for (int k = 0; k < count; k++) {
        // Tensors of one kind leave layer by layer, above a ratio of a half from the last one on.
        int64_t left = tensors[k].away_bytes;
        for (int i = 0; left > 0; i++) {
            int nth = ratio > 0.5 ? tensors[k].count - 1 - i : i;
            bool of_layer = sp_layer_tensors[tensors[k].id].part == SP_PART_LAYER;
            int layer = of_layer ? layer_of_kind(stage, tensors[k].kind, nth) : nth;
            l.in_part = left < tensors[k].bytes;
            add_tensor(&l, tensors[k].id, layer, sp_smaller(left, tensors[k].bytes));
            left -= sp_smaller(left, tensors[k].bytes);
        }
    }
}

// ---- The actions ----

static sp_i_exec_copies *copies_of(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                                   sp_action action)
{
    size_t chunks = (size_t)sp_i_exec_layout(run)->chunks;
    return &rank->offload.units[(size_t)action.pack * chunks + action.chunk];
}

static void raise(int64_t *to, int64_t value)
{
    *to = value > *to ? value : *to;
}

// A forward that runs again leaves nothing to take.
static void list_unit(const sp_i_exec_run *run, sp_i_exec_rank *rank, size_t number,
                      sp_action action)
{
    const sp_memory_options *memory = run->request->memory;
    sp_i_exec_offload *offload = &rank->offload;
    sp_i_exec_copies *copies = copies_of(run, rank, action);
    const sp_pack *shape = &run->request->plan->packing->forward.packs[action.pack];
    const int vstage = sp_layout_vstage(sp_i_exec_layout(run), rank->pp, action.chunk);
    sp_i_exec_width bytes = {0};
    copies->out = number;
    if (memory == NULL || sp_i_exec_runs_again(run, vstage, action.pack)) {
        return;
    }
    list_leaving(sp_i_exec_stage_of(run, rank, action.chunk), action.pack, shape,
                 sp_i_exec_layout(run), memory->recompute, memory->offload_ratio, copies);
    for (size_t i = 0; i < copies->count; i++) {
        bytes.real_bytes +=
            sp_i_exec_view_room(copies->items[i].elements * copies->items[i].width.real_bytes);
        bytes.table_bytes += copies->items[i].away.table_bytes;
    }
    raise(&offload->largest.real_bytes, bytes.real_bytes);
    raise(&offload->largest.table_bytes, bytes.table_bytes);
}

void sp_i_exec_offload_make(const sp_i_exec_run *run, sp_i_exec_rank *rank)
{
    sp_i_exec_offload *offload = &rank->offload;
    const sp_plan *plan = run->request->plan;
    const sp_stage_plan *stage = sp_plan_stage(plan, rank->dp, rank->pp);
    offload->unit_count = plan->packing->forward.count * (size_t)plan->layout.chunks;
    offload->units = sp_calloc(offload->unit_count, sizeof *offload->units);
    offload->host = sp_i_exec_arena_new_host(run->runtime);
    for (size_t a = 0; a < stage->count; a++) {
        sp_action action = stage->actions[a];
        if (action.kind == SP_ACTION_F) {
            copies_of(run, rank, action)->forward = offload->forwards++;
        } else if (action.kind == SP_ACTION_O) {
            list_unit(run, rank, a, action);
        }
    }
}

void sp_i_exec_offload_fini(sp_i_exec_offload *offload)
{
    for (size_t u = 0; offload->units != NULL && u < offload->unit_count; u++) {
        sp_free(offload->units[u].items);
    }
    sp_free(offload->units);
    sp_free(offload->buffers);
    sp_i_exec_arena_free(offload->host);
}

void sp_i_exec_offload_end(sp_i_exec_rank *rank)
{
    sp_i_exec_offload *offload = &rank->offload;
    for (size_t b = 0; b < offload->buffer_count; b++) {
        sp_i_exec_give(rank->arena, offload->buffers[b]);
    }
    offload->buffer_count = 0;
    offload->loads = 0;
    offload->forwards_done = 0;
    offload->moved = (sp_bytes){{0}};
}

sp_bytes sp_i_exec_rank_held(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    sp_i_exec_measure measure = run->options.measure;
    sp_bytes held = *sp_i_exec_held(rank->arena, measure);
    held.of[SP_MEM_OFFLOADED] = sp_i_exec_held(rank->offload.host, measure)->of[SP_MEM_OFFLOADED];
    return held;
}

// Puts what changed since `before` down to a copy.
static void note_change(const sp_i_exec_run *run, sp_i_exec_rank *rank, size_t number,
                        const sp_bytes *before)
{
    sp_bytes now = sp_i_exec_rank_held(run, rank);
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        int64_t change = now.of[c] - before->of[c];
        rank->log[number].after.of[c] += change;
        rank->offload.moved.of[c] += change;
    }
}

static sp_i_exec_width resident_of(const leaving *item)
{
    return (sp_i_exec_width){item->elements * item->width.real_bytes - item->away.real_bytes,
                             item->elements * item->width.table_bytes - item->away.table_bytes};
}

// Gives back what was copied; of a tensor that left in part the resident part moves into a block of
// its own.
static bool let_go(const sp_i_exec_run *run, sp_i_exec_rank *rank)
{
    sp_i_exec_copies *copies = rank->offload.leaving;
    sp_bytes before = sp_i_exec_rank_held(run, rank);
    rank->offload.leaving = NULL;
    for (size_t i = 0; copies != NULL && i < copies->count; i++) {
        leaving *item = &copies->items[i];
        const sp_i_exec_width resident = resident_of(item);
        if (item->host != NULL && resident.table_bytes > 0) {
            item->resident = sp_i_exec_take(rank->arena, SP_MEM_ACTIVATIONS, 1, resident);
            if (item->resident == NULL) {
                return false;
            }
            run->runtime->ops->copy(run->runtime, item->resident,
                                    (char *)*item->place + item->away.real_bytes,
                                    resident.real_bytes);
        }
        if (item->host != NULL) {
            sp_i_exec_give(rank->arena, *item->place);
            *item->place = NULL;
        }
    }
    if (copies != NULL) {
        note_change(run, rank, copies->out, &before);
    }
    return true;
}

bool sp_i_exec_forward_ended(const sp_i_exec_run *run, sp_i_exec_rank *rank)
{
    rank->offload.forwards_done++;
    return let_go(run, rank);
}

bool sp_i_exec_copy_out(const sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action)
{
    sp_i_exec_offload *offload = &rank->offload;
    sp_i_exec_copies *copies = copies_of(run, rank, action);
    sp_bytes before = sp_i_exec_rank_held(run, rank);
    for (size_t i = 0; i < copies->count; i++) {
        leaving *item = &copies->items[i];
        if (*item->place == NULL) {
            continue; // this rank has no row of it
        }
        item->host = sp_i_exec_take(offload->host, SP_MEM_OFFLOADED, 1, item->away);
        if (item->host == NULL) {
            return false;
        }
        run->runtime->ops->copy(run->runtime, item->host, *item->place, item->away.real_bytes);
    }
    note_change(run, rank, rank->logged, &before);
    offload->leaving = copies;
    // The forward after its own, or all there are.
    int32_t needed = copies->forward + 2;
    needed = needed < offload->forwards ? needed : offload->forwards;
    rank->log[rank->logged].forwards = needed;
    return offload->forwards_done < needed || let_go(run, rank);
}

static void *free_buffer(sp_i_exec_rank *rank)
{
    sp_i_exec_offload *offload = &rank->offload;
    for (size_t b = 0; offload->loads >= SP_COPY_BUFFERS && b < offload->buffer_count; b++) {
        if (sp_i_exec_views(rank->arena, offload->buffers[b]) == 0) {
            return offload->buffers[b];
        }
    }
    SP_RESERVE(offload->buffers, offload->buffer_capacity, offload->buffer_count + 1);
    void *made = sp_i_exec_take(rank->arena, SP_MEM_WORKSPACE, 1, offload->largest);
    if (made != NULL) {
        offload->buffers[offload->buffer_count++] = made;
    }
    return made;
}

// A tensor that left whole becomes a view of the buffer, one that left in part is put together
// again beside it.
static bool bring_back(const sp_i_exec_run *run, sp_i_exec_rank *rank, leaving *item, void *buffer,
                       int64_t *at)
{
    const sp_runtime_ops *ops = run->runtime->ops;
    if (!item->in_part) {
        *item->place = sp_i_exec_view(rank->arena, buffer, *at, item->elements, item->width);
        *at += sp_i_exec_view_room(item->elements * item->width.real_bytes);
    } else {
        *item->place = sp_i_exec_take(rank->arena, SP_MEM_ACTIVATIONS, item->elements, item->width);
    }
    if (*item->place == NULL) {
        return false;
    }
    ops->copy(run->runtime, *item->place, item->host, item->away.real_bytes);
    if (item->resident != NULL) {
        ops->copy(run->runtime, (char *)*item->place + item->away.real_bytes, item->resident,
                  resident_of(item).real_bytes);
    }
    sp_i_exec_give(rank->arena, item->resident);
    sp_i_exec_give(rank->offload.host, item->host);
    item->resident = NULL;
    item->host = NULL;
    return true;
}

bool sp_i_exec_copy_back(const sp_i_exec_run *run, sp_i_exec_rank *rank, sp_action action)
{
    sp_i_exec_copies *copies = copies_of(run, rank, action);
    rank->log[rank->logged].out = copies->out;
    if (copies->count == 0) {
        return true;
    }
    if (rank->offload.leaving == copies && !let_go(run, rank)) {
        return false;
    }
    sp_bytes before = sp_i_exec_rank_held(run, rank);
    void *buffer = free_buffer(rank);
    bool ok = buffer != NULL;
    int64_t at = 0;
    for (size_t i = 0; ok && i < copies->count; i++) {
        ok = copies->items[i].host == NULL || bring_back(run, rank, &copies->items[i], buffer, &at);
    }
    rank->offload.loads++;
    note_change(run, rank, rank->logged, &before);
    return ok;
}

// ---- The memory timeline of a step ----

// The memory of a step over time, put together from what each action noted: what the rank held but
// for its copies, and what each copy changed, at the copy's own time.

typedef struct course {
    sp_i_exec_rank *rank;
    const sp_rank_timeline *line;
    size_t *spans, *copies; // of the line: their places among the plan's actions
    sp_rank_memory *memory;
    bool points;
    sp_bytes held;  // but for copies
    sp_bytes moved; // by them
    int64_t time_ns;
    sp_action action; // the last that began
    bool acted, running;
    int32_t forwards_ended;
    size_t shares_logged; // those of the rank's own actions have no log
} course;

static void place_actions(const course *c, const sp_stage_plan *stage)
{
    size_t spans = 0;
    size_t copies[2] = {0, 0};
    for (size_t a = 0; a < stage->count; a++) {
        sp_action action = stage->actions[a];
        if (!sp_action_is_copy(action)) {
            c->spans[spans++] = a;
            continue;
        }
        size_t *at = &copies[action.kind == SP_ACTION_L];
        while (c->line->copies[*at].action.kind != action.kind) {
            ++*at;
        }
        c->copies[(*at)++] = a;
    }
}

static void note(course *c, int64_t time_ns)
{
    sp_bytes now;
    for (int k = 0; k < SP_MEM_CATEGORIES; k++) {
        now.of[k] = c->held.of[k] + c->moved.of[k];
    }
    c->time_ns = time_ns;
    sp_rank_memory_note(c->memory, time_ns, &now, c->acted ? &c->action : NULL, c->points);
}

static void note_work(course *c, const sp_span *span, const sp_i_exec_log *log, bool ends)
{
    c->running = !ends;
    c->held = ends ? log->after : log->during;
    c->action = span->action;
    c->acted = true;
    note(c, ends ? span->end_ns : span->start_ns);
}

static void note_span(void *context, size_t span, bool ends)
{
    course *c = context;
    c->forwards_ended += ends && c->line->spans[span].action.kind == SP_ACTION_F;
    note_work(c, &c->line->spans[span], &c->rank->log[c->spans[span]], ends);
}

static void note_share(void *context, size_t share, bool ends)
{
    course *c = context;
    const sp_share_span *span = &c->line->shares[share];
    if (!span->own) {
        note_work(c, &span->span, &c->rank->share_log[c->shares_logged], ends);
        c->shares_logged += ends;
    }
}

static void note_copy(course *c, sp_action action, sp_i_exec_log *log, int64_t time_ns)
{
    if (log->counted) {
        return;
    }
    log->counted = true;
    for (int k = 0; k < SP_MEM_CATEGORIES; k++) {
        c->moved.of[k] += log->after.of[k];
    }
    if (!c->running) {
        c->action = action;
        c->acted = true;
    }
    note(c, time_ns);
}

// When what a copy took goes; INT64_MAX: not yet known.
static int64_t gone_ns(const void *context, size_t copy)
{
    const course *c = context;
    int64_t end_ns = c->line->copies[copy].end_ns;
    return c->forwards_ended < c->rank->log[c->copies[copy]].forwards ? INT64_MAX
           : end_ns > c->time_ns                                      ? end_ns
                                                                      : c->time_ns;
}

static void note_gone(void *context, size_t copy, int64_t at_ns)
{
    course *c = context;
    note_copy(c, c->line->copies[copy].action, &c->rank->log[c->copies[copy]], at_ns);
}

static void note_back(void *context, size_t copy, int64_t at_ns)
{
    course *c = context;
    sp_i_exec_log *log = &c->rank->log[c->copies[copy]];
    note_copy(c, c->line->copies[copy].action, &c->rank->log[log->out], at_ns);
    note_copy(c, c->line->copies[copy].action, log, at_ns);
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

// The fullest of the ranks of one (dp, pp), whose rows may differ by a few, stands for all.
static sp_i_exec_rank *fullest(const sp_i_exec_run *run, int dp, int pp)
{
    sp_i_exec_rank *full = sp_i_exec_rank_at(run, dp, pp, 0);
    for (int m = 1; m < sp_i_exec_members(run); m++) {
        sp_i_exec_rank *rank = sp_i_exec_rank_at(run, dp, pp, m);
        full = most_held(rank) > most_held(full) ? rank : full;
    }
    return full;
}

void sp_i_exec_fill_memory(const sp_i_exec_run *run, sp_measured_step *measured)
{
    sp_memory_timeline_init(&measured->memory, &measured->timeline);
    for (size_t r = 0; r < measured->timeline.rank_count; r++) {
        const sp_rank_timeline *line = &measured->timeline.ranks[r];
        course c = {.rank = fullest(run, line->dp, line->pp),
                    .line = line,
                    .spans = sp_calloc(line->count, sizeof *c.spans),
                    .copies = sp_calloc(line->copy_count, sizeof *c.copies),
                    .memory = &measured->memory.ranks[r],
                    .points = run->request->memory_points};
        SP_ASSERT(c.rank->logged == line->count + line->copy_count);
        place_actions(&c, sp_plan_stage(run->request->plan, line->dp, line->pp));
        c.held = c.rank->held;
        note(&c, 0);
        sp_memory_in_order(line, &(sp_memory_order){.context = &c,
                                                    .span = note_span,
                                                    .share = note_share,
                                                    .gone_ns = gone_ns,
                                                    .gone = note_gone,
                                                    .back = note_back});
        sp_free(c.spans);
        sp_free(c.copies);
    }
}
