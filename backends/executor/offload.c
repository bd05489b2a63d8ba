// The actions O and L. An O copies at once; what it copied goes when the rank's next forward is
// over (sim/engine/memory.h). On the virtual clock copies run on streams of their own, beside the
// actions that they stand between here: what each changes in the rank's memory is therefore kept
// apart (sp_i_exec_log) and counted at its own time (run_memory.c).
#include <string.h>

#include "backends/executor/run.h"
#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/model/unit_tensors.h"
#include "sim/schedule/schedule.h"

// ---- What leaves of a unit ----

typedef struct lister {
    const sp_i_exec_stage *stage;
    const sp_i_exec_pack *rows;
    int32_t pack;
    sp_i_exec_copies *copies;
    bool in_part; // the tensor at hand
} lister;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// Of a block up to `bytes` of the table's; returns how many.
static int64_t add(const lister *l, void **place, int64_t elements, sp_i_exec_width width,
                   int64_t bytes)
{
    sp_i_exec_copies *to = l->copies;
    int64_t away = least(bytes, elements * width.table_bytes);
    if (away > 0) {
        sp_reserve((void **)&to->items, &to->capacity, to->count + 1, sizeof *to->items);
        to->items[to->count++] = (sp_i_exec_leaving){
            .place = place,
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
    for (int32_t i = 0; i < l->rows->count; i++) {
        int32_t number = l->rows->slice[i];
        const sp_i_exec_slice *slice = &job->slices.slice[number];
        if (slice->later == SP_I_EXEC_NONE) {
            bytes -= add(l, sp_i_exec_kv(l->stage, number, layer),
                         slice->rows * job->specs.kv_columns, job->specs.value, bytes);
        }
    }
}

static void add_tensor(const lister *l, const char *name, int layer, int64_t bytes)
{
    const sp_i_exec_specs *specs = &l->stage->job->specs;
    int t = 0;
    while (t < SP_I_EXEC_TENSORS &&
           (specs->of[t].name == NULL || strcmp(specs->of[t].name, name) != 0)) {
        t++;
    }
    if (t == SP_I_EXEC_TENSORS) {
        add_kv(l, layer, bytes);
        return;
    }
    bool of_head = t >= SP_I_EXEC_FINAL_INPUT && t <= SP_I_EXEC_FINAL_LSE;
    int64_t rows = specs->of[t].own ? l->rows->own_rows : l->rows->rows;
    add(l,
        sp_i_exec_saved(l->stage, l->pack, of_head ? l->stage->part.layers : layer,
                        (sp_i_exec_tensor)t),
        rows * specs->of[t].columns, specs->of[t].width, bytes);
}

// Lists what leaves with an offload of `ratio`: the tensors, and the part of the last one, that the
// predictor names (sim/model/unit_tensors.h). `shape` is the forward pack, `layout` the plan's.
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
    int count = sp_unit_tensors(stage->job->model, &shared, &stage->part, &options, shape->computed,
                                shape->kv_tokens, shape->full_pairs, tensors);
    sp_unit_offload(tensors, count, ratio);
    for (int k = 0; k < count; k++) {
        // Of one kind they leave layer by layer, above a ratio of a half from the last one on.
        int64_t left = tensors[k].away_bytes;
        for (int i = 0; left > 0; i++) {
            int layer = ratio > 0.5 ? tensors[k].count - 1 - i : i;
            l.in_part = left < tensors[k].bytes;
            add_tensor(&l, tensors[k].name, layer, least(left, tensors[k].bytes));
            left -= least(left, tensors[k].bytes);
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

static bool runs_again(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_action action)
{
    size_t vstage = (size_t)sp_layout_vstage(sp_i_exec_layout(run), rank->pp, action.chunk);
    return run->runs_again[vstage * rank->job->slices.forward_count + (size_t)action.pack] != 0;
}

static void raise(int64_t *to, int64_t value)
{
    *to = value > *to ? value : *to;
}

// Of a forward that runs again nothing is left to take.
static void list_unit(const sp_i_exec_run *run, sp_i_exec_rank *rank, size_t number,
                      sp_action action)
{
    const sp_memory_options *memory = run->request->memory;
    sp_i_exec_offload *offload = &rank->offload;
    sp_i_exec_copies *copies = copies_of(run, rank, action);
    const sp_pack *shape = &run->request->plan->packing->forward.packs[action.pack];
    sp_i_exec_width bytes = {0};
    copies->out = number;
    if (memory == NULL || runs_again(run, rank, action)) {
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

static sp_i_exec_width resident_of(const sp_i_exec_leaving *item)
{
    return (sp_i_exec_width){item->elements * item->width.real_bytes - item->away.real_bytes,
                             item->elements * item->width.table_bytes - item->away.table_bytes};
}

// What was copied goes; of a tensor that left in part the resident part moves into a block of its
// own.
static bool let_go(const sp_i_exec_run *run, sp_i_exec_rank *rank)
{
    sp_i_exec_copies *copies = rank->offload.leaving;
    sp_bytes before = sp_i_exec_rank_held(run, rank);
    rank->offload.leaving = NULL;
    for (size_t i = 0; copies != NULL && i < copies->count; i++) {
        sp_i_exec_leaving *item = &copies->items[i];
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
        sp_i_exec_leaving *item = &copies->items[i];
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
    sp_reserve((void **)&offload->buffers, &offload->buffer_capacity, offload->buffer_count + 1,
               sizeof *offload->buffers);
    void *made = sp_i_exec_take(rank->arena, SP_MEM_WORKSPACE, 1, offload->largest);
    if (made != NULL) {
        offload->buffers[offload->buffer_count++] = made;
    }
    return made;
}

// A tensor that left whole becomes a view of the buffer, one that left in part is put together
// again beside it.
static bool bring_back(const sp_i_exec_run *run, sp_i_exec_rank *rank, sp_i_exec_leaving *item,
                       void *buffer, int64_t *at)
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
