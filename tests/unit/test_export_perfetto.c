// The trace is read back by a decoder of its own, of the wire format alone
// (protobuf.dev/programming-guides/encoding), in the order in which Perfetto's trace processor
// takes packets: by time, equal times as they stand in the file.
#include "sim/metrics/export.h"

#include "sim/metrics/predecessors.h"
#include "tests/support/make_timeline.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// ---- the wire format ----

typedef struct field {
    unsigned number, type;
    uint64_t value;
    const uint8_t *bytes; // of type 2, `value` of them
} field;

typedef struct reader {
    const uint8_t *at, *end;
} reader;

static uint64_t varint(reader *r)
{
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        assert_true(r->at < r->end && shift < 64);
        value |= (uint64_t)(*r->at & 0x7f) << shift;
        if ((*r->at++ & 0x80) == 0) {
            return value;
        }
    }
}

static bool next_field(reader *r, field *f)
{
    if (r->at == r->end) {
        return false;
    }
    uint64_t tag = varint(r);
    *f = (field){.number = (unsigned)(tag >> 3), .type = (unsigned)tag & 7};
    assert_true(f->type <= 2);
    if (f->type == 1) {
        assert_true(r->end - r->at >= 8);
        for (int b = 7; b >= 0; b--) {
            f->value = f->value << 8 | r->at[b];
        }
        r->at += 8;
        return true;
    }
    f->value = varint(r);
    if (f->type == 2) {
        assert_true(f->value <= (uint64_t)(r->end - r->at));
        f->bytes = r->at;
        r->at += f->value;
    }
    return true;
}

static reader inside(const field *f)
{
    assert_int_equal(f->type, 2);
    return (reader){f->bytes, f->bytes + f->value};
}

// The field of that number; the last one counts. False: there is none.
static bool find_field(reader r, unsigned number, field *found)
{
    bool any = false;
    for (field f; next_field(&r, &f);) {
        if (f.number == number) {
            *found = f;
            any = true;
        }
    }
    return any;
}

static uint64_t number_in(reader r, unsigned number)
{
    field f = {0};
    return find_field(r, number, &f) ? f.value : 0;
}

static void text_in(reader r, unsigned number, char text[80])
{
    field f = {0};
    find_field(r, number, &f);
    assert_true(f.value < 80);
    memcpy(text, f.bytes != NULL ? f.bytes : (const uint8_t *)"", f.value);
    text[f.value] = '\0';
}

// ---- the trace ----

enum { MOST_TRACKS = 1024, MOST_NAMES = 4096, MOST_EVENTS = 40000 };

typedef struct track {
    uint64_t uuid, parent;
    char name[80];
    uint64_t pid, tid;
    bool process, counter;
    int open; // slice, or -1
    int64_t value;
    int64_t time_ns;
} track;

typedef struct event {
    int64_t time_ns;
    size_t order;
    reader body;
} event;

typedef struct slice {
    const track *on;
    const char *name, *category;
    int64_t start_ns, end_ns;
    bool flow, flow_ends;
    char waited_for[80];
    bool seen;
} slice;

typedef struct trace {
    track tracks[MOST_TRACKS];
    size_t track_count;
    char names[MOST_NAMES][80], categories[32][80], annotations[4][80];
    event events[MOST_EVENTS];
    size_t event_count;
    slice slices[MOST_EVENTS];
    size_t slice_count;
} trace;

static void read_track(trace *t, reader r)
{
    assert_true(t->track_count < MOST_TRACKS);
    track *made = &t->tracks[t->track_count++];
    field f;
    *made = (track){.uuid = number_in(r, 1), .parent = number_in(r, 5), .open = -1};
    text_in(r, 2, made->name);
    if (find_field(r, 3, &f)) {
        made->process = true;
        made->pid = number_in(inside(&f), 1);
        text_in(inside(&f), 6, made->name);
    }
    if (find_field(r, 4, &f)) {
        made->pid = number_in(inside(&f), 1);
        made->tid = number_in(inside(&f), 2);
        text_in(inside(&f), 5, made->name);
    }
    if (find_field(r, 8, &f)) {
        made->counter = true;
        assert_int_equal(number_in(inside(&f), 3), 3); // bytes
    }
    for (track *other = t->tracks; other < made; other++) {
        assert_int_not_equal(other->uuid, made->uuid);
        assert_true(made->tid == 0 || (other->tid != made->tid && other->pid != made->tid));
    }
}

static void read_interned(trace *t, reader r)
{
    for (field f; next_field(&r, &f);) {
        uint64_t iid = number_in(inside(&f), 1);
        char(*table)[80] = f.number == 1   ? t->categories
                           : f.number == 2 ? t->names
                                           : t->annotations;
        assert_in_range(f.number, 1, 3);
        assert_in_range(iid, 1, f.number == 1 ? 31 : f.number == 2 ? MOST_NAMES - 1 : 3);
        assert_string_equal(table[iid], ""); // no number is given twice
        text_in(inside(&f), 2, table[iid]);
    }
}

static void read_packet(trace *t, reader r, bool first)
{
    field f = {0};
    assert_int_equal(number_in(r, 10), 1); // one sequence
    assert_int_equal((number_in(r, 13) & 1) != 0, first);
    if (find_field(r, 12, &f)) {
        read_interned(t, inside(&f));
    }
    if (find_field(r, 60, &f)) {
        read_track(t, inside(&f));
    }
    if (find_field(r, 11, &f)) {
        assert_int_equal(number_in(r, 13), 2); // needs what is interned
        assert_true(t->event_count < MOST_EVENTS);
        t->events[t->event_count] = (event){
            .time_ns = (int64_t)number_in(r, 8), .order = t->event_count, .body = inside(&f)};
        t->event_count++;
    }
}

static int compare_events(const void *a, const void *b)
{
    const event *x = a;
    const event *y = b;
    return x->time_ns != y->time_ns ? (x->time_ns > y->time_ns) - (x->time_ns < y->time_ns)
                                    : (x->order > y->order) - (x->order < y->order);
}

static track *track_of(trace *t, uint64_t uuid)
{
    for (size_t i = 0; i < t->track_count; i++) {
        if (t->tracks[i].uuid == uuid) {
            return &t->tracks[i];
        }
    }
    fail_msg("no track %llu", (unsigned long long)uuid);
    return NULL;
}

// Nothing here nests: a slice begins where none is open.
static void begin_slice(trace *t, const event *e, track *on)
{
    field f;
    assert_false(on->counter || on->process);
    assert_int_equal(on->open, -1);
    on->open = (int)t->slice_count;
    slice *made = &t->slices[t->slice_count++];
    *made = (slice){.on = on,
                    .start_ns = e->time_ns,
                    .name = t->names[number_in(e->body, 10)],
                    .category = t->categories[number_in(e->body, 3)]};
    if (find_field(e->body, 47, &f) || find_field(e->body, 48, &f)) {
        assert_int_equal(f.type, 1);
        assert_int_equal(f.value, 1);
        made->flow = true;
        made->flow_ends = f.number == 48;
    }
    if (find_field(e->body, 4, &f)) {
        assert_string_equal(t->annotations[number_in(inside(&f), 1)], "waited for");
        text_in(inside(&f), 6, made->waited_for);
    }
}

static void take_event(trace *t, const event *e)
{
    track *on = track_of(t, number_in(e->body, 11));
    switch (number_in(e->body, 9)) {
    case 1:
        begin_slice(t, e, on);
        break;
    case 2:
        assert_true(on->open >= 0);
        t->slices[on->open].end_ns = e->time_ns;
        on->open = -1;
        break;
    case 4:
        assert_true(on->counter);
        break;
    default:
        fail_msg("an event of no type");
    }
}

static trace *read_trace(const void *bytes, size_t count)
{
    static trace t;
    memset(&t, 0, sizeof t);
    reader r = {bytes, (const uint8_t *)bytes + count};
    bool first = true;
    for (field f; next_field(&r, &f); first = false) {
        assert_int_equal(f.number, 1);
        read_packet(&t, inside(&f), first);
    }
    qsort(t.events, t.event_count, sizeof *t.events, compare_events);
    for (size_t i = 0; i < t.event_count; i++) {
        take_event(&t, &t.events[i]);
    }
    for (size_t i = 0; i < t.track_count; i++) {
        assert_int_equal(t.tracks[i].open, -1);
    }
    return &t;
}

// ---- what it must hold ----

static void expect_slice(trace *t, const sp_rank_timeline *rank, const char *thread,
                         const char *name, int64_t start_ns, int64_t end_ns)
{
    char label[32];
    snprintf(label, sizeof label, rank->alike > 1 ? "dp%d pp%d x%d" : "dp%d pp%d", rank->dp,
             rank->pp, rank->alike);
    for (size_t i = 0; i < t->slice_count; i++) {
        slice *s = &t->slices[i];
        if (!s->seen && s->start_ns == start_ns && s->end_ns == end_ns &&
            strcmp(s->name, name) == 0 && strcmp(s->on->name, thread) == 0 &&
            strcmp(track_of(t, s->on->parent)->name, label) == 0) {
            s->seen = true;
            return;
        }
    }
    fail_msg("no slice %s of %s, %s, from %lld", name, label, thread, (long long)start_ns);
}

static void expect_part(trace *t, const sp_rank_timeline *rank, const char *name, int64_t start_ns,
                        int64_t end_ns)
{
    if (end_ns > start_ns) {
        expect_slice(t, rank, strcmp(name, "optimizer") == 0 ? "compute" : "communication", name,
                     start_ns, end_ns);
    }
}

static void expect_rank(trace *t, const sp_rank_timeline *rank, int chunks)
{
    char name[64];
    for (size_t i = 0; i < rank->count; i++) {
        const sp_span *span = &rank->spans[i];
        int64_t tp_ns = span->end_ns - span->tp_ns;
        sp_action_name(span->action, chunks, name);
        expect_slice(t, rank, "compute", name, span->start_ns, span->end_ns);
        expect_part(t, rank, "p2p wait", span->start_ns - span->wait_p2p_ns, span->start_ns);
        expect_part(t, rank, "tp", tp_ns, span->end_ns);
        expect_part(t, rank, "cp", tp_ns - span->cp_ns, tp_ns);
        expect_part(t, rank, "dp", tp_ns - span->cp_ns - span->dp_ns, tp_ns - span->cp_ns);
    }
    for (size_t i = 0; i < rank->share_count; i++) {
        const sp_share_span *share = &rank->shares[i];
        sp_action_name(share->span.action, chunks, name);
        bool head = share->part == SP_SHARE_HEAD || share->part == SP_SHARE_HEAD_BACKWARD;
        strcat(name, head ? " head" : " embedding");
        expect_slice(t, rank, "compute", name, share->span.start_ns, share->span.end_ns);
    }
    for (size_t i = 0; i < rank->copy_count; i++) {
        const sp_span *copy = &rank->copies[i];
        sp_action_name(copy->action, chunks, name);
        expect_slice(t, rank, copy->action.kind == SP_ACTION_O ? "copy" : "copy back", name,
                     copy->start_ns, copy->end_ns);
    }
    expect_part(t, rank, "gradient reduce", rank->reduce_start_ns, rank->reduce_end_ns);
    expect_part(t, rank, "optimizer", rank->reduce_end_ns, rank->optimizer_end_ns);
    expect_part(t, rank, "parameter gather", rank->optimizer_end_ns, rank->gather_end_ns);
}

// The flow goes along the critical path: its slices are that of the path in the order of time.
static void expect_flow(const trace *t, const sp_step_view *view, const sp_predecessors *p)
{
    sp_timeline_item *items;
    size_t count;
    size_t next = 0;
    must_succeed(sp_critical_path(p, &items, &count, ERR));
    for (size_t i = 0; i < t->slice_count; i++) {
        const slice *s = &t->slices[i];
        if (s->flow) {
            assert_true(next < count);
            const sp_span *span = sp_timeline_item_span(view->timeline, items[next++]);
            assert_int_equal(s->start_ns, span->start_ns);
            assert_int_equal(s->end_ns, span->end_ns);
            assert_int_equal(s->name[0], sp_action_letters[span->action.kind]);
            assert_int_equal(s->flow_ends, next == count);
        }
    }
    assert_int_equal(next, count);
    sp_free(items);
}

// A counter holds at each point what the rank holds.
static void expect_counters(trace *t, const sp_step_view *view)
{
    size_t next = 0;
    size_t counters = 0;
    for (size_t i = 0; i < t->track_count; i++) {
        counters += t->tracks[i].counter;
    }
    assert_true(counters > 0);
    for (size_t r = 0; r < view->memory->rank_count; r++) {
        const sp_rank_memory *memory = &view->memory->ranks[r];
        uint64_t pid = r + 1;
        next = 0;
        for (size_t i = 0; i < t->track_count; i++) {
            t->tracks[i].value = 0;
        }
        for (size_t p = 0; p < memory->point_count; p++) {
            int64_t time_ns = memory->points[p].time_ns;
            for (; next < t->event_count && t->events[next].time_ns <= time_ns; next++) {
                track *on = track_of(t, number_in(t->events[next].body, 11));
                if (on->counter && track_of(t, on->parent)->pid == pid) {
                    on->value = (int64_t)number_in(t->events[next].body, 30);
                }
            }
            bool last = p + 1 == memory->point_count || memory->points[p + 1].time_ns > time_ns;
            for (size_t i = 0; last && i < t->track_count; i++) {
                const track *on = &t->tracks[i];
                for (int c = 0; on->counter && c < SP_MEM_CATEGORIES; c++) {
                    const char *category = strstr(on->name, "memory ");
                    if (track_of(t, on->parent)->pid == pid &&
                        strcmp(category + strlen("memory "), sp_memory_category_names[c]) == 0) {
                        assert_int_equal(on->value, memory->points[p].bytes.of[c]);
                    }
                }
            }
        }
    }
}

static sp_status check_step(void *context, const sp_step_view *view, sp_error *err)
{
    sp_predecessors *predecessors;
    size_t bytes;
    size_t waiting = 0;
    FILE *file = tmpfile();
    assert_non_null(file);
    must_succeed(sp_predecessors_new(view->timeline, view->costs, &predecessors, err));
    must_succeed(sp_export_perfetto(file, view->timeline, view->memory, NULL, predecessors, err));
    char *text = made_read_all(file, &bytes);
    trace *t = read_trace(text, bytes);
    for (size_t r = 0; r < view->timeline->rank_count; r++) {
        expect_rank(t, &view->timeline->ranks[r], view->plan->layout.chunks);
    }
    for (size_t i = 0; i < t->slice_count; i++) {
        assert_true(t->slices[i].seen);
        waiting += t->slices[i].waited_for[0] != '\0';
    }
    assert_true(waiting > 0);
    expect_flow(t, view, predecessors);
    expect_counters(t, view);
    fclose(file);
    free(text);
    sp_predecessors_free(predecessors);
    *(size_t *)context = t->slice_count;
    return SP_OK;
}

static void look(const char *layout, const char *more)
{
    size_t slices = 0;
    scenario_run r;
    const sp_evaluate_options options = {
        .engine = {.memory_points = true}, .observer = check_step, .observer_context = &slices};
    run_good(json_text("{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': "
                       "32000}, 'cluster': 'h100-8', 'profile': 'h100', 'workload': {'lengths': "
                       "[5000, 300, 7000, 64, 900, 8000, 2500], 'context': 8192, 'order': 'file', "
                       "'samples_per_batch': 7}, 'parallel': {'pp': 4%s}%s}",
                       layout, more),
             &options, &r);
    run_fini(&r);
    assert_true(slices > 40);
}

TEST(every_slice_is_that_of_the_timeline)
{
    look(", 'tp': 2, 'dp': 2", "");
    look(", 'vocab_parallel': true", ", 'schedule': {'kind': 'zb-h1'}");
    look(", 'chunks_per_rank': 2", ", 'schedule': {'kind': 'interleaved'}");
    look("", ", 'memory': {'offload_ratio': 1.0}");
}

// In [0, 2 ms) of 1F1B only F0 of rank 0 runs (make_timeline.h); without predecessors there is
// neither a flow nor what was waited for.
TEST(a_window_keeps_what_overlaps)
{
    made_timeline made;
    made_spec spec = made_default();
    make_timeline(&made, &spec);
    const sp_export_window window = {.from_ns = 0, .to_ns = 2000000};
    FILE *file = tmpfile();
    size_t bytes;
    must_succeed(sp_export_perfetto(file, &made.timeline, NULL, &window, NULL, ERR));
    char *text = made_read_all(file, &bytes);
    const trace *t = read_trace(text, bytes);
    assert_int_equal(t->slice_count, 1);
    assert_string_equal(t->slices[0].name, "F0");
    assert_string_equal(t->slices[0].category, "forward");
    assert_false(t->slices[0].flow);
    assert_string_equal(t->slices[0].waited_for, "");
    fclose(file);
    free(text);
    made_timeline_free(&made);
}

TEST(a_full_disk_is_an_error)
{
    FILE *file = fopen("/dev/full", "wb");
    if (file == NULL) {
        skip();
    }
    made_timeline made;
    made_spec spec = made_default();
    make_timeline(&made, &spec);
    sp_error_clear(ERR);
    assert_int_equal(sp_export_perfetto(file, &made.timeline, &made.memory, NULL, NULL, ERR),
                     SP_ERR_IO);
    assert_int_equal(ERR->count, 1);
    fclose(file);
    made_timeline_free(&made);
}
