// The pickle is read back by a reader of its own, below, that knows the opcodes which PyTorch's
// viewer knows (torch/utils/viz/MemoryViz.js), and once more by Python.
#include "tests/support/test_main.h"

#include <jansson.h>

#include "sim/metrics/export.h"
#include "tests/support/make_timeline.h"
#include "tests/support/scenario_run.h"

enum { STACK = 4096, MEMO = 1 << 16 };

typedef struct unpickler {
    const unsigned char *at, *end;
    json_t *stack[STACK];
    int depth, marks[64], mark_count;
    json_t *memo[MEMO];
} unpickler;

static uint64_t take(unpickler *u, int bytes)
{
    assert_true(u->end - u->at >= bytes);
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) {
        value |= (uint64_t)*u->at++ << (8 * i);
    }
    return value;
}

static void push(unpickler *u, json_t *value)
{
    assert_non_null(value);
    assert_true(u->depth < STACK);
    u->stack[u->depth++] = value;
}

static void set_items(unpickler *u)
{
    int mark = u->marks[--u->mark_count];
    assert_int_equal((u->depth - mark) % 2, 0);
    for (int i = mark; i < u->depth; i += 2) {
        const char *key = json_string_value(u->stack[i]);
        assert_non_null(key);
        assert_null(json_object_get(u->stack[mark - 1], key));
        json_object_set_new(u->stack[mark - 1], key, u->stack[i + 1]);
        json_decref(u->stack[i]);
    }
    u->depth = mark;
}

static void append_items(unpickler *u)
{
    int mark = u->marks[--u->mark_count];
    for (int i = mark; i < u->depth; i++) {
        json_array_append_new(u->stack[mark - 1], u->stack[i]);
    }
    u->depth = mark;
}

static json_t *unpickle(const char *bytes, size_t count)
{
    AUTO_FREE unpickler *u = sp_calloc(1, sizeof(*u));
    u->at = (const unsigned char *)bytes;
    u->end = u->at + count;
    for (;;) {
        int code = (int)take(u, 1);
        if (code == '.') {
            break;
        }
        switch (code) {
        case 0x80:
            assert_int_equal(take(u, 1), 2);
            break;
        case '(':
            u->marks[u->mark_count++] = u->depth;
            break;
        case '}':
            push(u, json_object());
            break;
        case ']':
            push(u, json_array());
            break;
        case 'u':
            set_items(u);
            break;
        case 'e':
            append_items(u);
            break;
        case 'J':
            push(u, json_integer((int32_t)take(u, 4)));
            break;
        case 0x8a:
            assert_int_equal(take(u, 1), 8);
            push(u, json_integer((int64_t)take(u, 8)));
            break;
        case 'X': {
            size_t length = take(u, 4);
            assert_true((size_t)(u->end - u->at) >= length);
            push(u, json_stringn((const char *)u->at, length));
            u->at += length;
            break;
        }
        case 'r': {
            uint64_t slot = take(u, 4);
            assert_true(slot < MEMO);
            assert_null(u->memo[slot]);
            u->memo[slot] = json_incref(u->stack[u->depth - 1]);
            break;
        }
        case 'j': {
            uint64_t slot = take(u, 4);
            assert_true(slot < MEMO);
            push(u, json_incref(u->memo[slot]));
            break;
        }
        default:
            fail_msg("opcode %d", code);
        }
    }
    assert_true(u->at == u->end);
    assert_int_equal(u->depth, 1);
    assert_int_equal(u->mark_count, 0);
    json_t *root = u->stack[0];
    for (int slot = 0; slot < MEMO; slot++) {
        json_decref(u->memo[slot]);
    }
    return root;
}

static json_t *export_snapshot(const made_timeline *made, size_t rank)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    must_succeed(sp_export_memory_snapshot(file, &made->timeline, &made->memory, rank, ERR));
    size_t bytes = 0;
    AUTO_FREE char *text = made_read_all(file, &bytes);
    fclose(file);
    return unpickle(text, bytes);
}

static const char *text_of(const json_t *entry, const char *key)
{
    const char *text = json_string_value(json_object_get(entry, key));
    assert_non_null(text);
    return text;
}

static int category_of(const json_t *entry)
{
    for (int c = 0; c < SP_MEM_OFFLOADED; c++) {
        if (strcmp(text_of(entry, "category"), sp_memory_category_names[c]) == 0) {
            return c;
        }
    }
    fail_msg("category %s", text_of(entry, "category"));
    return 0;
}

typedef struct live_block {
    int64_t address, bytes;
    int category;
} live_block;

typedef struct replay {
    live_block blocks[512];
    size_t count;
    int64_t held[SP_MEM_CATEGORIES];
} replay;

// An allocation lies in one of the segments and on none of the blocks held.
static void replay_alloc(replay *r, const json_t *entry, const json_t *segments)
{
    live_block block = {json_int(entry, "addr"), json_int(entry, "size"), category_of(entry)};
    assert_true(block.bytes > 0);
    for (size_t i = 0; i < r->count; i++) {
        const live_block *other = &r->blocks[i];
        assert_true(block.address + block.bytes <= other->address ||
                    other->address + other->bytes <= block.address);
    }
    bool inside = false;
    for (size_t i = 0; i < json_array_size(segments); i++) {
        const json_t *segment = json_array_get(segments, i);
        int64_t base = json_int(segment, "address");
        inside = inside || (block.address >= base &&
                            block.address + block.bytes <= base + json_int(segment, "total_size"));
    }
    assert_true(inside);
    assert_true(r->count < 512);
    r->blocks[r->count++] = block;
    r->held[block.category] += block.bytes;
}

// A free names a block held, with its size.
static void replay_free(replay *r, const json_t *entry)
{
    for (size_t i = 0; i < r->count; i++) {
        if (r->blocks[i].address == json_int(entry, "addr")) {
            assert_int_equal(r->blocks[i].bytes, json_int(entry, "size"));
            assert_int_equal(r->blocks[i].category, category_of(entry));
            r->held[r->blocks[i].category] -= r->blocks[i].bytes;
            r->blocks[i] = r->blocks[--r->count];
            return;
        }
    }
    fail_msg("free of a block that is not held");
}

static int64_t total(const int64_t held[SP_MEM_CATEGORIES])
{
    int64_t sum = 0;
    for (int c = 0; c < SP_MEM_OFFLOADED; c++) {
        sum += held[c];
    }
    return sum;
}

static void check_held(const replay *r, const sp_memory_point *point)
{
    for (int c = 0; c < SP_MEM_OFFLOADED; c++) {
        assert_int_equal(r->held[c], point->bytes.of[c]);
    }
}

// The segments show what is held after the last event, without a hole.
static void check_segments(const replay *r, const json_t *segments)
{
    size_t active = 0;
    for (size_t i = 0; i < json_array_size(segments); i++) {
        const json_t *segment = json_array_get(segments, i);
        const json_t *blocks = json_object_get(segment, "blocks");
        int64_t address = json_int(segment, "address");
        int64_t held = 0;
        for (size_t b = 0; b < json_array_size(blocks); b++) {
            const json_t *block = json_array_get(blocks, b);
            assert_int_equal(json_int(block, "address"), address);
            address += json_int(block, "size");
            if (strcmp(text_of(block, "state"), "active_allocated") == 0) {
                active++;
                held += json_int(block, "size");
                assert_int_equal(json_int(block, "requested_size"), json_int(block, "size"));
            } else {
                assert_string_equal(text_of(block, "state"), "inactive");
            }
        }
        assert_int_equal(address, json_int(segment, "address") + json_int(segment, "total_size"));
        assert_int_equal(held, json_int(segment, "allocated_size"));
    }
    assert_int_equal(active, r->count);
}

// The first point after those that share the time of `point`.
static size_t end_of_time(const sp_rank_memory *memory, size_t point)
{
    int64_t time_ns = memory->points[point].time_ns;
    while (point < memory->point_count && memory->points[point].time_ns == time_ns) {
        point++;
    }
    return point;
}

// At each point's time the blocks held sum to the point's bytes, by category; on the way from one
// point to the next the total stays below the larger of the two. Times must be whole microseconds.
static void check_snapshot(const json_t *root, const sp_rank_memory *memory)
{
    const json_t *traces = json_object_get(root, "device_traces");
    const json_t *segments = json_object_get(root, "segments");
    assert_true(json_is_object(json_object_get(root, "allocator_settings")));
    assert_int_equal(json_array_size(traces), 1);
    const json_t *trace = json_array_get(traces, 0);
    AUTO_FREE replay *r = sp_calloc(1, sizeof(*r));
    size_t point = 0;
    bool unknown = json_array_size(trace) == 0;
    for (size_t i = 0; i < json_array_size(trace); i++) {
        const json_t *entry = json_array_get(trace, i);
        assert_true(json_array_size(json_object_get(entry, "frames")) > 0);
        const char *action = text_of(entry, "action");
        if (strcmp(action, "segment_alloc") == 0) {
            unknown = unknown || strcmp(text_of(entry, "category"), "unknown") == 0;
            continue;
        }
        while (point < memory->point_count &&
               json_int(entry, "time_us") > memory->points[point].time_ns / 1000) {
            point = end_of_time(memory, point);
            check_held(r, &memory->points[point - 1]);
        }
        assert_true(point < memory->point_count);
        int64_t limit = point > 0 ? total(memory->points[point - 1].bytes.of) : 0;
        for (size_t p = point; p < end_of_time(memory, point); p++) {
            int64_t bytes = total(memory->points[p].bytes.of);
            limit = bytes > limit ? bytes : limit;
        }
        if (strcmp(action, "alloc") == 0) {
            replay_alloc(r, entry, segments);
        } else if (strcmp(action, "free_completed") == 0) {
            replay_free(r, entry);
        } else {
            assert_string_equal(action, "free_requested");
            const json_t *next = json_array_get(trace, i + 1);
            assert_string_equal(text_of(next, "action"), "free_completed");
            assert_int_equal(json_int(next, "addr"), json_int(entry, "addr"));
        }
        assert_true(total(r->held) <= limit);
    }
    while (point < memory->point_count) {
        point = end_of_time(memory, point);
        check_held(r, &memory->points[point - 1]);
    }
    assert_true(unknown);
    check_segments(r, segments);
}

TEST(blocks_sum_to_the_points)
{
    MADE_TIMELINE(made, NULL);
    for (size_t r = 0; r < 3; r++) {
        json_auto_t *root = export_snapshot(&made, r);
        check_snapshot(root, &made.memory.ranks[r]);
    }
}

// The activations that F k makes are those that B k frees, so each of the m blocks of rank 0 lives
// from the start of its F to the end of its B.
TEST(backward_frees_what_its_forward_made)
{
    made_timeline made;
    made_spec spec = made_default();
    make_timeline(&made, &spec);
    json_auto_t *root = export_snapshot(&made, 0);
    const json_t *trace = json_array_get(json_object_get(root, "device_traces"), 0);
    const sp_rank_timeline *rank = &made.timeline.ranks[0];
    int frees = 0;
    for (size_t i = 0; i < json_array_size(trace); i++) {
        const json_t *entry = json_array_get(trace, i);
        if (strcmp(text_of(entry, "action"), "free_completed") != 0 ||
            strcmp(text_of(entry, "category"), sp_memory_category_names[SP_MEM_ACTIVATIONS]) != 0) {
            continue;
        }
        const json_t *frame = json_array_get(json_object_get(entry, "frames"), 0);
        assert_int_equal(text_of(frame, "name")[0], 'F');
        int pack = atoi(text_of(frame, "name") + 1);
        bool found = false;
        for (size_t s = 0; s < rank->count; s++) {
            found = found || (rank->spans[s].action.kind == SP_ACTION_B &&
                              rank->spans[s].action.pack == pack &&
                              rank->spans[s].end_ns / 1000 == json_int(entry, "time_us"));
        }
        assert_true(found);
        frees++;
    }
    assert_int_equal(frees, spec.microbatches);
    made_timeline_fini(&made);
}

// Any bytes at any time, in all categories: blocks are split and gaps reused.
TEST_ROUNDS(random_points_are_followed, 3, 60)
{
    AUTO(made_timeline) made;
    made_spec spec = made_default();
    spec.microbatches = 8;
    make_timeline(&made, &spec);
    sp_rank_memory *memory = &made.memory.ranks[1];
    int64_t time_us = 0;
    for (size_t i = 0; i < memory->point_count; i++) {
        memory->points[i].time_ns = time_us * 1000;
        time_us += (int64_t)sp_prng_below(prng, 3) * 700;
        for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
            uint64_t range = round % 2 == 0 ? 5 : (uint64_t)1 << 40;
            if (sp_prng_below(prng, 2) == 0 || i == 0) {
                memory->points[i].bytes.of[c] = (int64_t)sp_prng_below(prng, range);
            } else {
                memory->points[i].bytes.of[c] = memory->points[i - 1].bytes.of[c];
            }
        }
    }
    json_auto_t *root = export_snapshot(&made, 1);
    check_snapshot(root, memory);
}

TEST(wrong_use_is_refused)
{
    MADE_TIMELINE(made, NULL);
    FILE *file = tmpfile();
    must_fail_with(sp_export_memory_snapshot(file, &made.timeline, &made.memory, 3, ERR),
                   SP_ERR_USAGE, "");
    sp_error_clear(ERR);
    made.memory.ranks[1].point_count = 0;
    assert_int_equal(sp_export_memory_snapshot(file, &made.timeline, &made.memory, 1, ERR),
                     SP_ERR_USAGE);
    sp_error_clear(ERR);
    made.memory.ranks[0].points[2].bytes.of[SP_MEM_LOGITS] = -1;
    assert_int_equal(sp_export_memory_snapshot(file, &made.timeline, &made.memory, 0, ERR),
                     SP_ERR_INTERNAL);
    fclose(file);
}

// Rank 0 of p=3: at most 3 units of 512 MiB beside 6 GiB of states, and 64 MiB of workspace.
static const char python_check[] =
    "import pickle,sys\n"
    "d=pickle.load(open(sys.argv[1],'rb'))\n"
    "held=peak=0\n"
    "for e in d['device_traces'][0]:\n"
    "    held+={'alloc':e['size'],'free_completed':-e['size']}.get(e['action'],0)\n"
    "    peak=max(peak,held)\n"
    "assert peak==6*2**30+3*2**29+2**26, peak\n"
    "assert held==6*2**30, held\n"
    "assert sum(s['allocated_size'] for s in d['segments'])==held\n";

TEST(python_reads_the_pickle)
{
    if (system("python3 -c 'import pickle' > /dev/null 2>&1") != 0) {
        printf("skipped: there is no python3\n");
        exit(77);
    }
    MADE_TIMELINE(made, NULL);
    char name[] = "/tmp/slimpack-snapshot-XXXXXX";
    int descriptor = mkstemp(name);
    assert_true(descriptor >= 0);
    FILE *file = fdopen(descriptor, "wb");
    assert_non_null(file);
    must_succeed(sp_export_memory_snapshot(file, &made.timeline, &made.memory, 0, ERR));
    fclose(file);
    char command[1024];
    snprintf(command, sizeof(command), "python3 -c \"%s\" '%s'", python_check, name);
    assert_int_equal(system(command), 0);
    remove(name);
}
