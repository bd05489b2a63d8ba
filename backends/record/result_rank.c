#include "backends/record/result_private.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"

enum { NAME = 32, FOUND = 80 };

// Sums of what is read stay within 64 bits.
#define MOST (INT64_C(1) << 53)

typedef struct rank_reader {
    const sp_plan *plan;
    const sp_stage_plan *stage;
    sp_object object; // of the rank
} rank_reader;

const json_t *sp_i_result_array(sp_object *object, const char *key, size_t count)
{
    sp_object_require(object, key);
    const json_t *array = sp_object_get(object, key);
    if (array != NULL && (!json_is_array(array) || json_array_size(array) != count)) {
        sp_object_error(object, key, "expected %zu elements, got %zu", count,
                        json_array_size(array));
        return NULL;
    }
    return array;
}

// What stands at index `i` of the array `key` is not what was expected.
static void wrong(rank_reader *r, const char *key, size_t i, const char *expected,
                  const json_t *value)
{
    char place[NAME + 32];
    char found[FOUND];
    snprintf(place, sizeof place, "%s[%zu]", key, i);
    sp_json_quote(value, found, sizeof found);
    sp_object_error(&r->object, place, "expected %s, got %s", expected, found);
}

// `count` times or numbers of bytes from element `first` of an array on.
static bool read_numbers(const json_t *array, size_t first, size_t count, int64_t *numbers)
{
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(array, first + i);
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) > MOST) {
            return false;
        }
        numbers[i] = json_integer_value(value);
    }
    return true;
}

// A span as the writer puts it, `size` elements long.
static bool read_span(const json_t *json, size_t size, const char **name, sp_span *span)
{
    int64_t times[SP_I_SPAN_TIMES];
    *name = json_string_value(json_array_get(json, 0));
    if (json_array_size(json) != size || *name == NULL ||
        !read_numbers(json, 1, SP_I_SPAN_TIMES, times)) {
        return false;
    }
    sp_i_span_set_times(span, times);
    return true;
}

static const char span_form[] = "[name, start, end, tp, cp, dp, launch, wait] in ns";

static bool is_copy(sp_action action)
{
    return action.kind == SP_ACTION_O || action.kind == SP_ACTION_L;
}

static bool is_named(const rank_reader *r, sp_action action, const char *name)
{
    char own[NAME];
    sp_action_name(action, r->plan->layout.chunks, own);
    return strcmp(own, name) == 0;
}

static void wrong_action(rank_reader *r, const char *key, size_t i, sp_action expected,
                         const json_t *value)
{
    char name[NAME];
    char text[NAME + 2];
    sp_action_name(expected, r->plan->layout.chunks, name);
    snprintf(text, sizeof text, "\"%s\"", name);
    wrong(r, key, i, text, json_array_get(value, 0));
}

static void read_actions(rank_reader *r, size_t copies, sp_rank_timeline *rank)
{
    const json_t *array = sp_i_result_array(&r->object, "actions", r->stage->count - copies);
    for (size_t a = 0; array != NULL && a < r->stage->count; a++) {
        sp_action action = r->stage->actions[a];
        if (is_copy(action)) {
            continue;
        }
        size_t i = rank->count;
        const char *name;
        const json_t *json = json_array_get(array, i);
        sp_span *span = &rank->spans[rank->count++];
        span->action = action;
        if (!read_span(json, 1 + SP_I_SPAN_TIMES, &name, span)) {
            wrong(r, "actions", i, span_form, json);
        } else if (!is_named(r, action, name)) {
            wrong_action(r, "actions", i, action, json);
        }
    }
}

// The next copy of a kind in the plan; false where there is none left.
static bool next_copy(const sp_stage_plan *stage, sp_action_kind kind, size_t *at,
                      sp_action *action)
{
    while (*at < stage->count && stage->actions[*at].kind != kind) {
        (*at)++;
    }
    *action = *at < stage->count ? stage->actions[*at] : (sp_action){0};
    return *at < stage->count;
}

// Copies out and copies in are each in the plan's order, one direction beside the other.
static void read_copies(rank_reader *r, size_t count, sp_rank_timeline *rank)
{
    const json_t *array = sp_i_result_array(&r->object, "copies", count);
    size_t at[2] = {0, 0};
    for (size_t i = 0; array != NULL && i < count; i++) {
        const char *name;
        const json_t *json = json_array_get(array, i);
        sp_span *span = &rank->copies[rank->copy_count++];
        if (!read_span(json, 1 + SP_I_SPAN_TIMES, &name, span)) {
            wrong(r, "copies", i, span_form, json);
            continue;
        }
        int direction = name[0] == sp_action_letters[SP_ACTION_L];
        sp_action action;
        bool left =
            next_copy(r->stage, direction ? SP_ACTION_L : SP_ACTION_O, &at[direction], &action);
        span->action = action;
        if (!left || !is_named(r, action, name)) {
            wrong(r, "copies", i, "the next copy of the plan", json_array_get(json, 0));
        }
        at[direction]++;
    }
}

static void read_shares(rank_reader *r, const sp_share *shares, size_t count,
                        sp_rank_timeline *rank)
{
    const size_t size = 1 + SP_I_SPAN_TIMES + 2;
    const json_t *array = sp_i_result_array(&r->object, "shares", count);
    for (size_t i = 0; array != NULL && i < count; i++) {
        const char *name;
        const json_t *json = json_array_get(array, i);
        sp_share_span *share = &rank->shares[rank->share_count++];
        *share = (sp_share_span){
            .span = {.action = shares[i].action}, .part = shares[i].part, .own = shares[i].own};
        const char *end = json_string_value(json_array_get(json, size - 2));
        const json_t *own = json_array_get(json, size - 1);
        if (!read_span(json, size, &name, &share->span) || end == NULL || !json_is_boolean(own)) {
            wrong(r, "shares", i, "[name, seven times in ns, end of the vocabulary, own]", json);
        } else if (!is_named(r, share->span.action, name)) {
            wrong_action(r, "shares", i, share->span.action, json);
        } else if (strcmp(end, sp_i_share_names[share->part]) != 0 ||
                   json_is_true(own) != share->own) {
            wrong(r, "shares", i, "the next share of the plan", json);
        }
    }
}

static void read_epilogue(rank_reader *r, sp_rank_timeline *rank)
{
    int64_t times[4] = {0};
    const json_t *array = sp_i_result_array(&r->object, "tail_ns", 4);
    if (array != NULL && !read_numbers(array, 0, 4, times)) {
        wrong(r, "tail_ns", 0, "times in ns", json_array_get(array, 0));
    }
    rank->reduce_start_ns = times[0];
    rank->reduce_end_ns = times[1];
    rank->optimizer_end_ns = times[2];
    rank->gather_end_ns = times[3];
}

// ---- memory ----

static void read_peak(rank_reader *r, sp_object *object, sp_rank_memory *memory)
{
    sp_object peak;
    sp_object_require(object, "peak");
    sp_object_member(object, "peak", &peak);
    for (int c = 0; peak.json != NULL && c < SP_MEM_CATEGORIES; c++) {
        const char *key = sp_memory_category_names[c];
        sp_object_require(&peak, key);
        memory->peak.of[c] = sp_object_int(&peak, key, 0, 0, MOST);
    }
    if (peak.json != NULL) {
        sp_object_end(&peak);
    }
    const char *name = sp_object_string(object, "peak_action", NULL);
    for (size_t a = 0; name != NULL && !memory->has_peak_action && a < r->stage->count; a++) {
        memory->peak_action = r->stage->actions[a];
        memory->has_peak_action = is_named(r, memory->peak_action, name);
    }
    if (name != NULL && !memory->has_peak_action) {
        sp_object_error(object, "peak_action", "the rank has no action \"%.40s\"", name);
    }
}

static bool read_points(sp_object *object, sp_rank_memory *memory)
{
    sp_object_require(object, "points");
    const json_t *array = sp_object_get(object, "points");
    size_t count = json_array_size(array);
    memory->points = sp_calloc(count + 1, sizeof *memory->points);
    if (memory->points == NULL) {
        return false;
    }
    memory->point_capacity = count + 1;
    if (array != NULL && !json_is_array(array)) {
        sp_object_error(object, "points", "expected an array");
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *json = json_array_get(array, i);
        int64_t numbers[1 + SP_MEM_CATEGORIES];
        sp_memory_point *point = &memory->points[memory->point_count++];
        if (json_array_size(json) != 1 + SP_MEM_CATEGORIES ||
            !read_numbers(json, 0, 1 + SP_MEM_CATEGORIES, numbers)) {
            char key[NAME];
            char found[FOUND];
            snprintf(key, sizeof key, "points[%zu]", i);
            sp_json_quote(json, found, sizeof found);
            sp_object_error(object, key, "expected a time and the bytes of %d categories, got %s",
                            SP_MEM_CATEGORIES, found);
            continue;
        }
        point->time_ns = numbers[0];
        memcpy(point->bytes.of, &numbers[1], sizeof point->bytes.of);
    }
    return true;
}

static bool read_memory(rank_reader *r, sp_rank_memory *memory)
{
    sp_object object;
    sp_object_require(&r->object, "memory");
    sp_object_member(&r->object, "memory", &object);
    if (object.json == NULL) {
        return true;
    }
    read_peak(r, &object, memory);
    sp_object_require(&object, "peak_ns");
    memory->peak_ns = sp_object_int(&object, "peak_ns", 0, 0, MOST);
    sp_object_require(&object, "units_peak");
    memory->units_peak = sp_object_real(&object, "units_peak", 0.0, 0.0, HUGE_VAL);
    bool good = read_points(&object, memory);
    sp_object_end(&object);
    return good;
}

bool sp_i_result_rank(const json_t *json, const char *source, const char *path, const sp_plan *plan,
                      const sp_share *shares, size_t share_count, sp_rank_timeline *rank,
                      sp_rank_memory *memory, sp_error *err)
{
    rank_reader r = {.plan = plan, .stage = sp_plan_stage(plan, rank->dp, rank->pp)};
    size_t copies = 0;
    for (size_t a = 0; a < r.stage->count; a++) {
        copies += is_copy(r.stage->actions[a]);
    }
    sp_object_begin(&r.object, json, source, path, err);
    if (r.object.json == NULL) {
        return true;
    }
    sp_object_require(&r.object, "dp");
    sp_object_require(&r.object, "pp");
    sp_object_int(&r.object, "dp", rank->dp, rank->dp, rank->dp);
    sp_object_int(&r.object, "pp", rank->pp, rank->pp, rank->pp);
    read_actions(&r, copies, rank);
    read_copies(&r, copies, rank);
    read_shares(&r, shares, share_count, rank);
    read_epilogue(&r, rank);
    bool good = read_memory(&r, memory);
    sp_object_end(&r.object);
    return good;
}
