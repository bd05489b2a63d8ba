// What a trace shows of a timeline, in one order for all its forms.
#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/metrics/export_private.h"
#include "sim/metrics/predecessors.h"

const char *const sp_i_category_names[SP_I_CATEGORIES] = {
    "forward", "backward", "input gradient", "weight gradient", "recompute",
    "offload", "load",     "wait",           "communication",   "tail",
};

static const char *const part_names[SP_I_PARTS] = {
    "p2p wait", "dp", "cp", "tp", "gradient reduce", "optimizer", "parameter gather",
};

enum { NAME_KINDS = 3 * SP_ACTION_KINDS }; // actions; their shares of embedding and head

// An item of the critical path.
typedef struct mark {
    sp_timeline_item item;
    size_t place; // on the path
    sp_i_on_path on_path;
} mark;

typedef struct walk {
    const sp_i_trace_content *content;
    const sp_i_trace_writer *writer;
    int chunks;
    size_t packs; // most of a side
    mark *marks;  // in the order of the walk
    size_t mark_count, next_mark;
} walk;

// ---- names ----

static size_t packs_of(const sp_plan *plan)
{
    size_t forward = plan->packing->forward.count;
    size_t backward = sp_packing_backward(plan->packing)->count;
    return forward > backward ? forward : backward;
}

size_t sp_i_trace_names(const sp_plan *plan)
{
    return SP_I_PARTS + NAME_KINDS * packs_of(plan) * (size_t)plan->layout.chunks;
}

static size_t number_of(const walk *w, size_t kind, sp_action action)
{
    return SP_I_PARTS + (kind * w->packs + (size_t)action.pack) * (size_t)w->chunks + action.chunk;
}

// ---- the critical path ----

static int compare_marks(const void *a, const void *b)
{
    const mark *x = a;
    const mark *y = b;
    int copies = (x->item.list == SP_LIST_COPIES) - (y->item.list == SP_LIST_COPIES);
    return x->item.rank != y->item.rank ? (x->item.rank > y->item.rank ? 1 : -1)
           : copies != 0                ? copies
                                        : (x->place > y->place) - (x->place < y->place);
}

static bool is_shown(const walk *w, sp_timeline_item item)
{
    const sp_timeline *timeline = w->content->timeline;
    const sp_span *span = sp_timeline_item_span(timeline, item);
    return sp_i_export_has_rank(w->content->window, &timeline->ranks[item.rank]) &&
           sp_i_export_overlaps(w->content->window, span->start_ns, span->end_ns);
}

// Marks the part of the path that is shown, unless that is a single item.
static void find_path(walk *w)
{
    sp_timeline_item *items = NULL;
    size_t count = 0;
    if (w->content->predecessors != NULL) {
        sp_critical_path(w->content->predecessors, &items, &count);
    }
    w->marks = sp_calloc(count, sizeof *w->marks);
    for (size_t i = 0; i < count; i++) {
        if (is_shown(w, items[i])) {
            w->marks[w->mark_count++] =
                (mark){.item = items[i], .place = i, .on_path = SP_I_PATH_GOES_ON};
        }
    }
    if (w->mark_count > 1) {
        w->marks[0].on_path = SP_I_PATH_BEGINS;
        w->marks[w->mark_count - 1].on_path = SP_I_PATH_ENDS;
        qsort(w->marks, w->mark_count, sizeof *w->marks, compare_marks);
    } else {
        w->mark_count = 0;
    }
    sp_free(items);
}

static sp_i_on_path take_mark(walk *w, sp_timeline_item item)
{
    const mark *next = &w->marks[w->next_mark];
    bool marked = w->next_mark < w->mark_count && next->item.rank == item.rank &&
                  next->item.list == item.list && next->item.index == item.index;
    w->next_mark += marked;
    return marked ? next->on_path : SP_I_OFF_PATH;
}

// ---- slices ----

static void show_item(walk *w, sp_timeline_item item, int thread)
{
    const sp_span *span = sp_timeline_item_span(w->content->timeline, item);
    if (!sp_i_export_overlaps(w->content->window, span->start_ns, span->end_ns)) {
        return;
    }
    char name[SP_ITEM_NAME];
    char told[SP_WAITED_FOR];
    bool share = item.list == SP_LIST_SHARES;
    bool head = share &&
                sp_share_is_of_head(w->content->timeline->ranks[item.rank].shares[item.index].part);
    size_t kind = span->action.kind + (share ? SP_ACTION_KINDS * (size_t)(1 + head) : 0);
    sp_i_slice slice = {.process = item.rank,
                        .thread = thread,
                        .name = name,
                        .number = number_of(w, kind, span->action),
                        .category = span->action.kind,
                        .start_ns = span->start_ns,
                        .end_ns = span->end_ns,
                        .action = share ? NULL : &span->action,
                        .waited_for = w->content->predecessors != NULL
                                          ? sp_waited_for(w->content->predecessors, item, told)
                                          : NULL,
                        .on_path = take_mark(w, item)};
    sp_timeline_item_name(w->content->timeline, item, name);
    w->writer->slice(w->writer->context, &slice);
}

static void show_part(const walk *w, sp_i_part part, int category, size_t process, int64_t start_ns,
                      int64_t end_ns)
{
    if (end_ns <= start_ns || !sp_i_export_overlaps(w->content->window, start_ns, end_ns)) {
        return;
    }
    sp_i_slice slice = {.process = process,
                        .thread = part == SP_I_PART_OPTIMIZER ? SP_I_THREAD_COMPUTE
                                                              : SP_I_THREAD_COMMUNICATION,
                        .name = part_names[part],
                        .number = part,
                        .category = category,
                        .start_ns = start_ns,
                        .end_ns = end_ns};
    w->writer->slice(w->writer->context, &slice);
}

static void show_action(walk *w, size_t process, size_t index)
{
    const sp_span *span = &w->content->timeline->ranks[process].spans[index];
    show_part(w, SP_I_PART_P2P_WAIT, SP_I_CATEGORY_WAIT, process,
              span->start_ns - span->wait_p2p_ns, span->start_ns);
    show_item(w, (sp_timeline_item){.rank = process, .index = index, .list = SP_LIST_ACTIONS},
              SP_I_THREAD_COMPUTE);
    // A span knows how long communication blocked it, not when: the sums are drawn at its end.
    int64_t tp_start_ns = span->end_ns - span->tp_ns;
    int64_t cp_start_ns = tp_start_ns - span->cp_ns;
    show_part(w, SP_I_PART_DP, SP_I_CATEGORY_COMMUNICATION, process, cp_start_ns - span->dp_ns,
              cp_start_ns);
    show_part(w, SP_I_PART_CP, SP_I_CATEGORY_COMMUNICATION, process, cp_start_ns, tp_start_ns);
    show_part(w, SP_I_PART_TP, SP_I_CATEGORY_COMMUNICATION, process, tp_start_ns, span->end_ns);
}

// Actions and shares of one rank, in the order of time.
static void show_compute(walk *w, size_t process)
{
    const sp_rank_timeline *rank = &w->content->timeline->ranks[process];
    size_t share = 0;
    for (size_t s = 0; s <= rank->count; s++) {
        while (share < rank->share_count &&
               (s == rank->count || rank->shares[share].span.start_ns <= rank->spans[s].start_ns)) {
            show_item(w,
                      (sp_timeline_item){.rank = process, .index = share++, .list = SP_LIST_SHARES},
                      SP_I_THREAD_COMPUTE);
        }
        if (s < rank->count) {
            show_action(w, process, s);
        }
    }
}

static void show_rank(walk *w, size_t process)
{
    const sp_rank_timeline *rank = &w->content->timeline->ranks[process];
    w->writer->process(w->writer->context, rank, process);
    show_compute(w, process);
    for (size_t c = 0; c < rank->copy_count; c++) {
        bool out = rank->copies[c].action.kind == SP_ACTION_O;
        show_item(w, (sp_timeline_item){.rank = process, .index = c, .list = SP_LIST_COPIES},
                  out ? SP_I_THREAD_COPY : SP_I_THREAD_COPY_BACK);
    }
    show_part(w, SP_I_PART_REDUCE, SP_I_CATEGORY_TAIL, process, rank->reduce_start_ns,
              rank->reduce_end_ns);
    show_part(w, SP_I_PART_OPTIMIZER, SP_I_CATEGORY_TAIL, process, rank->reduce_end_ns,
              rank->optimizer_end_ns);
    show_part(w, SP_I_PART_GATHER, SP_I_CATEGORY_TAIL, process, rank->optimizer_end_ns,
              rank->gather_end_ns);
    if (w->content->memory != NULL) {
        w->writer->memory(w->writer->context, &w->content->memory->ranks[process], process);
    }
}

void sp_i_trace_walk(const sp_i_trace_content *content, const sp_i_trace_writer *writer)
{
    const sp_timeline *timeline = content->timeline;
    SP_ASSERT(content->memory == NULL || content->memory->rank_count == timeline->rank_count);
    walk w = {.content = content,
              .writer = writer,
              .chunks = timeline->plan->layout.chunks,
              .packs = packs_of(timeline->plan)};
    find_path(&w);
    for (size_t r = 0; r < timeline->rank_count; r++) {
        if (sp_i_export_has_rank(content->window, &timeline->ranks[r])) {
            show_rank(&w, r);
        }
    }
    sp_free(w.marks);
}

void sp_i_trace_series(const sp_rank_memory *memory, bool used[SP_MEM_CATEGORIES])
{
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        used[c] = false;
        for (size_t i = 0; i < memory->point_count && !used[c]; i++) {
            used[c] = memory->points[i].bytes.of[c] != 0;
        }
    }
}
