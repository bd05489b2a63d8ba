// Perfetto's own trace: protocol buffers (protobuf.dev/programming-guides/encoding) of the messages
// in github.com/google/perfetto, protos/perfetto/trace: trace.proto, trace_packet.proto,
// track_event/{track_event,track_descriptor,process_descriptor,thread_descriptor,
// counter_descriptor,debug_annotation}.proto, interned_data/interned_data.proto. A slice is two
// packets; its name and category stand in the trace once and are numbers from then on.
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/metrics/export_private.h"

enum { TRACE_PACKET = 1 }; // of Trace

enum { // of TracePacket
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE = 10, // trusted_packet_sequence_id
    PACKET_EVENT = 11,
    PACKET_INTERNED = 12,
    PACKET_FLAGS = 13, // sequence_flags
    PACKET_TRACK = 60,
    SEQUENCE = 1,
    STATE_CLEARED = 1,
    NEEDS_STATE = 2,
};

enum { // of TrackEvent
    EVENT_CATEGORY = 3,
    EVENT_ANNOTATION = 4,
    EVENT_TYPE = 9,
    EVENT_NAME = 10, // name_iid
    EVENT_TRACK = 11,
    EVENT_COUNTER = 30,
    EVENT_FLOW = 47,
    EVENT_FLOW_END = 48, // terminating_flow_ids
    TYPE_BEGIN = 1,
    TYPE_END = 2,
    TYPE_COUNTER = 4,
};

enum { // of TrackDescriptor and what it holds
    TRACK_UUID = 1,
    TRACK_NAME = 2,
    TRACK_PROCESS = 3,
    TRACK_THREAD = 4,
    TRACK_PARENT = 5,
    TRACK_COUNTER = 8,
    PROCESS_PID = 1,
    PROCESS_SORT = 3, // legacy_sort_index
    PROCESS_NAME = 6,
    THREAD_PID = 1,
    THREAD_TID = 2,
    THREAD_NAME = 5,
    COUNTER_UNIT = 3,
    UNIT_BYTES = 3,
};

enum { // of InternedData, its entries and DebugAnnotation
    INTERNED_CATEGORY = 1,
    INTERNED_NAME = 2,
    INTERNED_ANNOTATION = 3,
    ENTRY_IID = 1,
    ENTRY_NAME = 2,
    ANNOTATION_NAME = 1, // name_iid
    ANNOTATION_TEXT = 6,
};

enum {
    MESSAGE_BYTES = 1024, // of the largest packet, and more
    THREADS = 4,
    TRACKS = 1 + THREADS + SP_MEM_CATEGORIES, // of a process: its own, threads, counters
    WAITED_FOR = 1,                           // interned annotation
    CRITICAL_PATH = 1,                        // flow
};

// ---- the wire format ----

typedef struct message {
    unsigned char bytes[MESSAGE_BYTES];
    size_t used;
} message;

// To clear the bytes would take longer than to write them.
static void begin(message *m)
{
    m->used = 0;
}

static void put_byte(message *m, unsigned byte)
{
    SP_ASSERT(m->used < MESSAGE_BYTES);
    m->bytes[m->used++] = (unsigned char)byte;
}

static void put_varint(message *m, uint64_t value)
{
    while (value >= 0x80) {
        put_byte(m, (unsigned)(value & 0x7f) | 0x80);
        value >>= 7;
    }
    put_byte(m, (unsigned)value);
}

static void put_number(message *m, unsigned field, uint64_t value)
{
    put_varint(m, field << 3);
    put_varint(m, value);
}

static void put_fixed(message *m, unsigned field, uint64_t value)
{
    put_varint(m, field << 3 | 1);
    for (int shift = 0; shift < 64; shift += 8) {
        put_byte(m, (unsigned)(value >> shift) & 0xff);
    }
}

static void put_bytes(message *m, unsigned field, const void *bytes, size_t count)
{
    put_varint(m, field << 3 | 2);
    put_varint(m, count);
    SP_ASSERT(count <= MESSAGE_BYTES - m->used);
    memcpy(m->bytes + m->used, bytes, count);
    m->used += count;
}

static void put_text(message *m, unsigned field, const char *text)
{
    put_bytes(m, field, text, strlen(text));
}

static void put_message(message *m, unsigned field, const message *inner)
{
    put_bytes(m, field, inner->bytes, inner->used);
}

// ---- packets ----

typedef struct perfetto {
    sp_writer out;
    const sp_export_window *window;
    size_t processes;
    uint32_t *name_iid; // by number of the name; 0: not written yet
    uint32_t names;     // written
} perfetto;

static uint64_t track_of(size_t process, int track)
{
    return 1 + (uint64_t)process * TRACKS + (uint64_t)track; // 0 is the trace's own
}

static void write_packet(perfetto *p, message *packet)
{
    message head;
    begin(&head);
    put_number(packet, PACKET_SEQUENCE, SEQUENCE);
    put_varint(&head, TRACE_PACKET << 3 | 2);
    put_varint(&head, packet->used);
    sp_write_bytes(&p->out, head.bytes, head.used);
    sp_write_bytes(&p->out, packet->bytes, packet->used);
}

static void put_entry(message *interned, unsigned field, uint64_t iid, const char *name)
{
    message entry;
    begin(&entry);
    put_number(&entry, ENTRY_IID, iid);
    put_text(&entry, ENTRY_NAME, name);
    put_message(interned, field, &entry);
}

static void write_first_packet(perfetto *p)
{
    message packet;
    message interned;
    begin(&packet);
    begin(&interned);
    for (int c = 0; c < SP_I_CATEGORIES; c++) {
        put_entry(&interned, INTERNED_CATEGORY, (uint64_t)c + 1, sp_i_category_names[c]);
    }
    put_entry(&interned, INTERNED_ANNOTATION, WAITED_FOR, "waited for");
    put_message(&packet, PACKET_INTERNED, &interned);
    put_number(&packet, PACKET_FLAGS, STATE_CLEARED);
    write_packet(p, &packet);
}

static void write_track(perfetto *p, const message *track)
{
    message packet;
    begin(&packet);
    put_message(&packet, PACKET_TRACK, track);
    write_packet(p, &packet);
}

// Numbers of threads are not those of processes.
static void write_thread(perfetto *p, size_t process, int thread, const char *name)
{
    message track;
    message of;
    begin(&track);
    begin(&of);
    put_number(&of, THREAD_PID, process + 1);
    put_number(&of, THREAD_TID, p->processes + process * THREADS + (size_t)thread);
    put_text(&of, THREAD_NAME, name);
    put_number(&track, TRACK_UUID, track_of(process, thread));
    put_number(&track, TRACK_PARENT, track_of(process, 0));
    put_message(&track, TRACK_THREAD, &of);
    write_track(p, &track);
}

static void write_process(void *context, const sp_rank_timeline *rank, size_t process)
{
    perfetto *p = context;
    message track;
    message of;
    begin(&track);
    begin(&of);
    char label[SP_I_LABEL];
    sp_i_export_label(rank, label);
    put_number(&of, PROCESS_PID, process + 1);
    put_number(&of, PROCESS_SORT, process);
    put_text(&of, PROCESS_NAME, label);
    put_number(&track, TRACK_UUID, track_of(process, 0));
    put_message(&track, TRACK_PROCESS, &of);
    write_track(p, &track);
    write_thread(p, process, SP_I_THREAD_COMPUTE, "compute");
    write_thread(p, process, SP_I_THREAD_COMMUNICATION, "communication");
    if (rank->copy_count > 0) {
        write_thread(p, process, SP_I_THREAD_COPY, "copy");
        write_thread(p, process, SP_I_THREAD_COPY_BACK, "copy back");
    }
}

static void write_event(perfetto *p, message *packet, const message *event, int64_t time_ns)
{
    put_number(packet, PACKET_TIMESTAMP, (uint64_t)time_ns);
    put_message(packet, PACKET_EVENT, event);
    put_number(packet, PACKET_FLAGS, NEEDS_STATE);
    write_packet(p, packet);
}

// The number of a name, which the packet brings where the trace does not have it yet.
static uint32_t intern(perfetto *p, message *packet, const sp_i_slice *slice)
{
    if (p->name_iid[slice->number] == 0) {
        message interned;
        begin(&interned);
        p->name_iid[slice->number] = ++p->names;
        put_entry(&interned, INTERNED_NAME, p->names, slice->name);
        put_message(packet, PACKET_INTERNED, &interned);
    }
    return p->name_iid[slice->number];
}

static void put_wait(message *event, const char *waited_for)
{
    message annotation;
    begin(&annotation);
    put_number(&annotation, ANNOTATION_NAME, WAITED_FOR);
    put_text(&annotation, ANNOTATION_TEXT, waited_for);
    put_message(event, EVENT_ANNOTATION, &annotation);
}

static void write_slice(void *context, const sp_i_slice *slice)
{
    perfetto *p = context;
    uint64_t track = track_of(slice->process, slice->thread);
    message packet;
    message event;
    begin(&packet);
    begin(&event);
    put_number(&event, EVENT_TYPE, TYPE_BEGIN);
    put_number(&event, EVENT_TRACK, track);
    put_number(&event, EVENT_CATEGORY, (uint64_t)slice->category + 1);
    put_number(&event, EVENT_NAME, intern(p, &packet, slice));
    if (slice->waited_for != NULL) {
        put_wait(&event, slice->waited_for);
    }
    if (slice->on_path != SP_I_OFF_PATH) {
        put_fixed(&event, slice->on_path == SP_I_PATH_ENDS ? EVENT_FLOW_END : EVENT_FLOW,
                  CRITICAL_PATH);
    }
    write_event(p, &packet, &event, slice->start_ns);
    begin(&packet);
    begin(&event);
    put_number(&event, EVENT_TYPE, TYPE_END);
    put_number(&event, EVENT_TRACK, track);
    write_event(p, &packet, &event, slice->end_ns);
}

// ---- memory ----

static void write_counter_track(perfetto *p, size_t process, int category)
{
    message track;
    message counter;
    begin(&track);
    begin(&counter);
    char name[64];
    snprintf(name, sizeof name, "%s %s", category < SP_MEM_OFFLOADED ? "memory" : "host memory",
             sp_memory_category_names[category]);
    put_number(&counter, COUNTER_UNIT, UNIT_BYTES);
    put_number(&track, TRACK_UUID, track_of(process, 1 + THREADS + category));
    put_number(&track, TRACK_PARENT, track_of(process, 0));
    put_text(&track, TRACK_NAME, name);
    put_message(&track, TRACK_COUNTER, &counter);
    write_track(p, &track);
}

static void write_counter(perfetto *p, size_t process, int category, int64_t time_ns, int64_t bytes)
{
    message packet;
    message event;
    begin(&packet);
    begin(&event);
    put_number(&event, EVENT_TYPE, TYPE_COUNTER);
    put_number(&event, EVENT_TRACK, track_of(process, 1 + THREADS + category));
    put_number(&event, EVENT_COUNTER, (uint64_t)bytes);
    write_event(p, &packet, &event, time_ns);
}

// A counter holds its value until the next, so only changes are written.
static void write_memory(void *context, const sp_rank_memory *memory, size_t process)
{
    perfetto *p = context;
    bool used[SP_MEM_CATEGORIES];
    const sp_bytes *before = NULL;
    sp_i_trace_series(memory, used);
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        if (used[c]) {
            write_counter_track(p, process, c);
        }
    }
    for (size_t i = 0; i < memory->point_count; i++) {
        const sp_memory_point *point = &memory->points[i];
        if (!sp_i_export_point_holds(memory, i) ||
            !sp_i_export_overlaps(p->window, point->time_ns, sp_i_export_point_end(memory, i))) {
            continue;
        }
        for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
            if (used[c] && (before == NULL || before->of[c] != point->bytes.of[c])) {
                write_counter(p, process, c, point->time_ns, point->bytes.of[c]);
            }
        }
        before = &point->bytes;
    }
}

sp_status sp_export_perfetto(FILE *file, const sp_timeline *timeline,
                             const sp_memory_timeline *memory, const sp_export_window *window,
                             const sp_predecessors *predecessors, sp_error *err)
{
    const sp_i_trace_content content = {timeline, memory, window, predecessors};
    perfetto p = {.window = window,
                  .processes = timeline->rank_count,
                  .name_iid = sp_calloc(sp_i_trace_names(timeline->plan), sizeof *p.name_iid)};
    const sp_i_trace_writer writer = {
        .context = &p, .process = write_process, .slice = write_slice, .memory = write_memory};
    sp_writer_init(&p.out, file);
    write_first_packet(&p);
    sp_i_trace_walk(&content, &writer);
    sp_free(p.name_iid);
    return sp_writer_finish(&p.out, "trace", err);
}
