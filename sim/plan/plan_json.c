#include "sim/plan/plan_json.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/writer.h"

static const char schema[] = "slimpack/plan/1";

// One batch being read. Reading functions note content errors in err and go on.
typedef struct reader {
    const char *source;
    const sp_layout *layout;
    sp_error *err;
    sp_batch *batch;
    sp_packing *packing;
    sp_plan *plan;
    bool *accounted; // [samples] has slices, or stands in dropped or delayed
} reader;

bool sp_plan_json_is_plan(const json_t *root)
{
    const char *text = json_string_value(json_object_get(root, "schema"));
    return text != NULL && strcmp(text, schema) == 0;
}

static void too_many(sp_object *object, const char *key, const char *most)
{
    sp_object_error(object, key, "more than %s", most);
}

static int64_t required_int(sp_object *object, const char *key, int64_t min, int64_t max)
{
    sp_object_require(object, key);
    return sp_object_int(object, key, min, min, max);
}

// The text behind the batches that says how they were formed.
static void read_formed(sp_object *root, sp_batches *formed)
{
    sp_object object;
    formed->wrapped = sp_object_bool(root, "lengths_started_again", false);
    if (sp_object_member(root, "over_length", &object)) {
        formed->dropped = required_int(&object, "dropped", 0, INT64_MAX);
        formed->truncated = required_int(&object, "truncated", 0, INT64_MAX);
        formed->split = sp_object_int(&object, "split", 0, 0, INT64_MAX);
        formed->lost_tokens = sp_object_int(&object, "lost_tokens", 0, 0, INT64_MAX);
        formed->source_tokens = sp_object_int(&object, "source_tokens", 0, 0, INT64_MAX);
        // Each of the samples lost a token.
        if (formed->lost_tokens > formed->source_tokens) {
            too_many(&object, "lost_tokens", "source_tokens");
        } else if (formed->source_tokens > 0 &&
                   (formed->dropped > formed->lost_tokens ||
                    formed->truncated > formed->lost_tokens - formed->dropped)) {
            too_many(&object, "dropped", "lost_tokens");
        }
        sp_object_end(&object);
    }
    if (sp_object_member(root, "left_over", &object)) {
        formed->left_samples = required_int(&object, "samples", 0, INT64_MAX);
        formed->left_tokens = required_int(&object, "tokens", 0, INT64_MAX);
        if (formed->left_samples > formed->left_tokens) {
            too_many(&object, "samples", "tokens");
        }
        sp_object_end(&object);
    }
}

static const json_t *array_member(sp_object *object, const char *key)
{
    sp_object_require(object, key);
    return sp_object_array(object, key);
}

// The document around the batches; its batches array.
static const json_t *read_head(sp_object *root, sp_plan_file *file)
{
    if (root->json == NULL) {
        return NULL;
    }
    const char *const schemas[] = {schema, NULL};
    sp_object_require_all(root, "schema", "scenario");
    sp_object_enum(root, "schema", schemas, 0);
    const json_t *stored = sp_object_get(root, "scenario");
    if (stored != NULL && !json_is_object(stored)) {
        sp_object_error(root, "scenario", "expected an object");
    }
    const json_t *batches = array_member(root, "batches");
    if (batches != NULL && json_array_size(batches) == 0) {
        sp_object_error(root, "batches", "expected at least one batch");
    }
    read_formed(root, &file->formed);
    file->curtailed = sp_object_bool(root, "curtailed", false);
    sp_object_string(root, "reason", ""); // is found again where the plan is simulated
    if (sp_object_string(root, "settings", NULL) != NULL) {
        file->settings = json_incref(json_object_get(root->json, "settings"));
    }
    sp_object_end(root);
    file->scenario = json_incref((json_t *)stored);
    return batches;
}

static void read_samples(reader *r, sp_object *batch, const json_t *array)
{
    size_t count = json_array_size(array);
    r->batch->ids = sp_calloc(count, sizeof *r->batch->ids);
    r->batch->tokens = sp_calloc(count, sizeof *r->batch->tokens);
    r->batch->count = count;
    for (size_t i = 0; i < count; i++) {
        sp_object object;
        sp_object_item(batch, "samples", i, &object);
        if (object.json != NULL) {
            r->batch->ids[i] = required_int(&object, "id", 0, INT64_MAX);
            r->batch->tokens[i] = required_int(&object, "tokens", 1, SP_MAX_LENGTH_TOKENS);
            r->batch->total_tokens += r->batch->tokens[i];
        }
        sp_object_end(&object);
    }
}

// The data-parallel ranks of a pack: consecutive ones, in order.
static void read_ranks(reader *r, sp_object *pack, const json_t *array, int *first, int *count)
{
    size_t size = json_array_size(array);
    json_int_t begin = json_integer_value(json_array_get(array, 0));
    bool good = size > 0 && size <= (size_t)r->layout->dp && begin >= 0 &&
                begin <= r->layout->dp - (int)size;
    for (size_t i = 0; i < size && good; i++) {
        const json_t *rank = json_array_get(array, i);
        good = json_is_integer(rank) && json_integer_value(rank) == begin + (json_int_t)i;
    }
    *first = good ? (int)begin : 0;
    *count = good ? (int)size : 1;
    if (!good && array != NULL) {
        sp_object_expected(pack, "dp", array, "consecutive data-parallel ranks from 0 to %d",
                           r->layout->dp - 1);
    }
}

// [first rank, ranks]; 0 where there is none, or a wrong one.
static int32_t read_zone(reader *r, sp_object *object)
{
    const json_t *zone = sp_object_get(object, "zone");
    bool numbers =
        json_is_integer(json_array_get(zone, 0)) && json_is_integer(json_array_get(zone, 1));
    int64_t first = json_integer_value(json_array_get(zone, 0));
    int64_t ranks = json_integer_value(json_array_get(zone, 1));
    if (zone == NULL) {
        return 0;
    }
    if (!numbers || json_array_size(zone) != 2 || ranks < 1 || ranks > r->layout->dp || first < 0 ||
        first > r->layout->dp - ranks || (ranks & (ranks - 1)) != 0 || first % ranks != 0) {
        sp_object_expected(object, "zone", zone,
                           "[first, ranks] with ranks a power of two and first a multiple of it");
        return 0;
    }
    return sp_zone_of((int)first, (int)ranks);
}

static void read_slice(reader *r, sp_object *object, sp_pack_list *list)
{
    const sp_batch *batch = r->batch;
    if (batch->count == 0) {
        sp_object_error(object, "sample", "there are no samples");
        return;
    }
    int64_t samples = batch->count > INT32_MAX ? INT32_MAX : (int64_t)batch->count;
    sp_slice slice = {
        .sample = (int32_t)required_int(object, "sample", 0, samples - 1),
        .begin = required_int(object, "begin", 0, SP_MAX_LENGTH_TOKENS),
        .tokens = required_int(object, "tokens", 1, SP_MAX_LENGTH_TOKENS),
        .zone = read_zone(r, object),
    };
    slice.computed_tokens =
        sp_object_int(object, "computed", slice.tokens, slice.tokens, SP_MAX_LENGTH_TOKENS);
    sp_object_end(object);
    bool last = slice.begin + slice.tokens >= batch->tokens[slice.sample];
    sp_pack_list_add(list, slice, last);
}

static void read_packs(reader *r, sp_object *batch, const json_t *array, const char *side,
                       sp_pack_list *list)
{
    size_t count = json_array_size(array);
    for (size_t p = 0; p < count; p++) {
        sp_object pack;
        sp_object_item(batch, side, p, &pack);
        const json_t *ranks = NULL;
        const json_t *slices = NULL;
        int64_t microbatch = (int64_t)p;
        bool gathers = false;
        if (pack.json != NULL) {
            ranks = array_member(&pack, "dp");
            microbatch = sp_object_int(&pack, "microbatch", microbatch, 0, INT32_MAX);
            gathers = sp_object_bool(&pack, "gathers", false);
            slices = array_member(&pack, "slices");
            sp_object_end(&pack);
        }
        int dp_first;
        int dp_count;
        read_ranks(r, &pack, ranks, &dp_first, &dp_count);
        sp_pack_list_begin(list, dp_first, dp_count);
        list->packs[list->count - 1].microbatch = (int32_t)microbatch;
        list->packs[list->count - 1].gathers = gathers;
        size_t slice_count = json_array_size(slices);
        for (size_t i = 0; i < slice_count; i++) {
            sp_object object;
            sp_object_item(&pack, "slices", i, &object);
            if (object.json != NULL) {
                read_slice(r, &object, list);
            }
        }
    }
}

static void merge_sides(reader *r, sp_object *batch, const json_t *backward, bool regrouped)
{
    sp_packing *packing = r->packing;
    if (backward != NULL && packing->backward.count == 0 && packing->forward.count > 0) {
        sp_object_error(batch, "backward_packs", "there are none, but %zu forward packs",
                        packing->forward.count);
    } else if (!regrouped) {
        sp_packing_merge_sides(packing);
    }
}

// The sample with an id; where several have it (a list of lengths that was started again), one that
// is not accounted for yet. -1: there is none.
static int64_t sample_of(const reader *r, const json_t *id)
{
    int64_t found = -1;
    for (size_t i = 0; json_is_integer(id) && i < r->batch->count; i++) {
        if (r->batch->ids[i] == json_integer_value(id) && (found < 0 || !r->accounted[i])) {
            found = (int64_t)i;
            if (!r->accounted[i]) {
                break;
            }
        }
    }
    return found;
}

static void read_ids(reader *r, sp_object *batch, const json_t *array, const char *key,
                     int64_t **list, size_t *count)
{
    size_t size = json_array_size(array);
    if (size == 0) {
        return;
    }
    *list = sp_calloc(size, sizeof **list);
    *count = size;
    for (size_t i = 0; i < size; i++) {
        const json_t *value = json_array_get(array, i);
        int64_t sample = sample_of(r, value);
        if (sample < 0) {
            char expected[64];
            snprintf(expected, sizeof expected, "the id of one of the %zu samples",
                     r->batch->count);
            sp_object_expected_item(batch, key, i, value, expected);
        } else {
            (*list)[i] = sample;
            r->accounted[sample] = true;
        }
    }
}

static void read_left_out(reader *r, sp_object *batch, const json_t *dropped, const json_t *delayed)
{
    sp_packing *packing = r->packing;
    r->accounted = sp_calloc(r->batch->count + 1, sizeof *r->accounted);
    for (size_t i = 0; i < packing->forward.slice_count; i++) {
        r->accounted[packing->forward.slices[i].sample] = true;
    }
    read_ids(r, batch, dropped, "dropped", &packing->dropped, &packing->dropped_count);
    read_ids(r, batch, delayed, "delayed", &packing->delayed, &packing->delayed_count);
    sp_free(r->accounted);
}

// Digits without sign or leading zeros, at most `max`; moves *text behind them.
static bool parse_number(const char **text, int64_t max, int64_t *number)
{
    const char *digits = *text;
    int64_t value = 0;
    while (**text >= '0' && **text <= '9' && value <= max) {
        value = value * 10 + (**text - '0');
        (*text)++;
    }
    *number = value;
    return *text > digits && value <= max && (*digits != '0' || *text == digits + 1);
}

// "F3", or "F3.1" where a rank has several chunks.
static bool parse_action(const json_t *json, int chunks, sp_action *action)
{
    int64_t chunk = 0;
    int64_t pack;
    const char *text = json_string_value(json);
    const char *letter = text == NULL || *text == '\0' ? NULL : strchr(sp_action_letters, *text);
    if (letter == NULL) {
        return false;
    }
    text++;
    if (!parse_number(&text, INT32_MAX, &pack)) {
        return false;
    }
    bool dot = *text == '.';
    if (dot) {
        text++;
        if (!parse_number(&text, UINT16_MAX, &chunk)) {
            return false;
        }
    }
    bool pair = *text == '&';
    text += pair;
    *action = (sp_action){.kind = (uint8_t)(letter - sp_action_letters),
                          .with_next = pair,
                          .chunk = (uint16_t)chunk,
                          .pack = (int32_t)pack};
    return (dot || chunks == 1) && text == json_string_value(json) + json_string_length(json);
}

static void read_actions(reader *r, sp_object *object, const json_t *array, sp_stage_plan *stage)
{
    size_t count = json_array_size(array);
    for (size_t i = 0; i < count; i++) {
        const json_t *json = json_array_get(array, i);
        sp_action action;
        if (!parse_action(json, r->layout->chunks, &action)) {
            sp_object_expected_item(
                object, "actions", i, json,
                r->layout->chunks > 1 ? "one of F, B, I, W, R, O, L with pack and chunk (\"F3.1\")"
                                      : "one of F, B, I, W, R, O, L with a pack (\"F3\")");
        } else {
            sp_stage_plan_add(stage, (sp_action_kind)action.kind, action.chunk, action.pack);
            stage->actions[stage->count - 1].with_next = action.with_next;
        }
    }
}

static void read_stage(reader *r, sp_object *batch, size_t number, char *seen)
{
    const sp_layout *layout = r->layout;
    sp_object object;
    sp_object_item(batch, "stages", number, &object);
    if (object.json == NULL) {
        return;
    }
    int messages = r->err->count + r->err->dropped;
    int64_t dp = required_int(&object, "dp", 0, layout->dp - 1);
    int64_t pp = required_int(&object, "pp", 0, layout->pp - 1);
    const json_t *actions = array_member(&object, "actions");
    sp_object_end(&object);
    if (r->err->count + r->err->dropped > messages) {
        return;
    }
    char *mark = &seen[(size_t)dp * (size_t)layout->pp + (size_t)pp];
    if (*mark != 0) {
        sp_error_in(r->err, SP_ERR_CONTENT, r->source, object.path, "dp %d pp %d stands twice",
                    (int)dp, (int)pp);
        return;
    }
    *mark = 1;
    read_actions(r, &object, actions, sp_plan_stage(r->plan, (int)dp, (int)pp));
}

static void read_stages(reader *r, sp_object *batch, const json_t *array)
{
    size_t pp = (size_t)r->layout->pp;
    size_t stages = (size_t)r->layout->dp * pp;
    char *seen = sp_calloc(stages, 1);
    size_t count = json_array_size(array);
    for (size_t i = 0; i < count; i++) {
        read_stage(r, batch, i, seen);
    }
    for (size_t i = 0; i < stages && r->err->status == SP_OK; i++) {
        if (seen[i] == 0) {
            sp_object_error(batch, "stages", "dp %zu pp %zu is missing", i / pp, i % pp);
        }
    }
    sp_free(seen);
}

// Actions say which forwards run again.
static void mark_repeats(const sp_plan *plan, sp_packing *packing)
{
    const size_t stages = (size_t)plan->layout.dp * (size_t)plan->layout.pp;
    for (size_t s = 0; s < stages; s++) {
        for (size_t a = 0; a < plan->stages[s].count; a++) {
            const sp_action action = plan->stages[s].actions[a];
            if (action.kind == SP_ACTION_R) {
                packing->forward.packs[action.pack].runs_again = true;
            }
        }
    }
}

static void read_batch(reader *r, sp_object *root, size_t index)
{
    sp_object object;
    sp_object_item(root, "batches", index, &object);
    if (object.json == NULL) {
        return;
    }
    const json_t *samples = array_member(&object, "samples");
    read_samples(r, &object, samples);
    r->batch->documents = (size_t)sp_object_int(&object, "documents", 0, 1, r->batch->total_tokens);
    r->batch->cut_tokens = sp_object_int(&object, "cut_tokens", 0, 0, r->batch->total_tokens);
    bool whole_backwards = sp_object_bool(&object, "whole_backwards", false);
    bool regrouped = sp_object_bool(&object, "regrouped", false);
    int64_t row_tokens = sp_object_int(&object, "row_tokens", 0, 1, INT64_MAX);
    const json_t *forward = array_member(&object, "forward_packs");
    const json_t *backward = array_member(&object, "backward_packs");
    const json_t *stages = array_member(&object, "stages");
    const json_t *dropped = array_member(&object, "dropped");
    const json_t *delayed = array_member(&object, "delayed");
    sp_object_real(&object, "lower_bound_ms", 0, 0, HUGE_VAL);
    sp_object_real(&object, "predicted_ms", 0, 0, HUGE_VAL);
    sp_object_end(&object);

    sp_packing *packing = r->packing;
    sp_packing_init(packing, json_array_size(samples) > 0 ? r->batch : NULL, r->layout->dp);
    read_packs(r, &object, forward, "forward_packs", &packing->forward);
    read_packs(r, &object, backward, "backward_packs", &packing->backward);
    packing->whole_backwards = whole_backwards;
    packing->row_tokens = row_tokens;
    merge_sides(r, &object, backward, regrouped);
    read_left_out(r, &object, dropped, delayed);
    sp_plan_init(r->plan, r->layout, packing);
    read_stages(r, &object, stages);
    if (r->err->status == SP_OK) {
        sp_i_plan_check_at(r->plan, r->source, object.path, r->err);
    }
    if (r->err->status == SP_OK) {
        mark_repeats(r->plan, packing);
    }
}

sp_status sp_plan_json_read(const json_t *root, const char *source, const sp_layout *layout,
                            sp_plan_file *file, sp_error *err)
{
    sp_error own;
    if (err == NULL) {
        sp_error_clear(&own);
        err = &own;
    }
    *file = (sp_plan_file){0};
    sp_object object;
    sp_object_begin(&object, root, source, "", err);
    const json_t *batches = read_head(&object, file);
    if (err->status != SP_OK) {
        goto out;
    }
    size_t count = json_array_size(batches);
    if (count > INT_MAX) {
        sp_error_in(err, SP_ERR_CONTENT, source, "batches", "more than %d batches", INT_MAX);
        goto out;
    }
    file->batches = sp_calloc(count, sizeof *file->batches);
    file->packings = sp_calloc(count, sizeof *file->packings);
    file->plans = sp_calloc(count, sizeof *file->plans);
    file->count = (int)count;
    for (int i = 0; i < file->count && err->count < SP_ERROR_MESSAGES; i++) {
        reader r = {
            .source = source,
            .layout = layout,
            .err = err,
            .batch = &file->batches[i],
            .packing = &file->packings[i],
            .plan = &file->plans[i],
        };
        read_batch(&r, &object, (size_t)i);
    }
out:
    if (err->status != SP_OK) {
        sp_plan_file_fini(file);
    }
    return err->status;
}

void sp_plan_file_fini(sp_plan_file *file)
{
    for (int i = 0; i < file->count; i++) {
        sp_plan_fini(&file->plans[i]);
        sp_packing_fini(&file->packings[i]);
        sp_batch_fini(&file->batches[i]);
    }
    sp_free(file->plans);
    sp_free(file->packings);
    sp_free(file->batches);
    json_decref(file->scenario);
    json_decref(file->settings);
    *file = (sp_plan_file){0};
}

// Plans have millions of slices and actions: the text is never held as a whole. Errors of the
// writer stick, so they are asked for once per call.

// A JSON value with as few digits as give the same numbers again: 15 where they do (0.1), else the
// 17 that always do.
static void write_value(sp_writer *out, const char *key, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    json_t *again = json_loads(text, JSON_DECODE_ANY, NULL);
    if (again == NULL || !json_equal(again, value)) {
        free(text);
        text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    }
    json_decref(again);
    sp_write(out, "%s%s", key, text);
    free(text);
}

// Takes over the value; of none nothing is written.
static void write_new(sp_writer *out, const char *key, json_t *value)
{
    if (value != NULL) {
        write_value(out, key, value);
    }
    json_decref(value);
}

static void write_prediction(sp_writer *out, const char *key, double ms)
{
    write_new(out, key, ms >= 0 && ms < HUGE_VAL ? json_real(ms) : NULL);
}

sp_status sp_plan_json_begin(FILE *file, const json_t *scenario, sp_error *err)
{
    SP_ASSERT(scenario != NULL);
    sp_writer out;
    sp_writer_init(&out, file);
    sp_write(&out, "{\"schema\": \"%s\", \"scenario\": ", schema);
    write_value(&out, "", scenario);
    sp_write(&out, ", \"batches\": [");
    return sp_writer_finish(&out, "plan", err);
}

static void write_samples(sp_writer *out, const sp_packing *packing)
{
    const sp_batch *batch = packing->batch;
    sp_write(out, "{\"samples\": [");
    for (size_t i = 0; batch != NULL && i < batch->count; i++) {
        sp_write(out, "%s{\"id\": %lld, \"tokens\": %lld}", i > 0 ? ", " : "",
                 (long long)batch->ids[i], (long long)batch->tokens[i]);
    }
    sp_write(out, "]");
    if (batch != NULL && batch->documents > 0) {
        sp_write(out, ", \"documents\": %zu", batch->documents);
    }
    int64_t cut_tokens = batch != NULL ? sp_packing_cut_tokens(packing) : 0;
    if (cut_tokens > 0) {
        sp_write(out, ", \"cut_tokens\": %lld", (long long)cut_tokens);
    }
    if (sp_packing_repeats_sides(packing)) {
        sp_write(out, ", \"regrouped\": true");
    }
    if (packing->whole_backwards) {
        sp_write(out, ", \"whole_backwards\": true");
    }
    if (packing->row_tokens > 0) {
        sp_write(out, ", \"row_tokens\": %lld", (long long)packing->row_tokens);
    }
}

static void write_slices(sp_writer *out, const sp_pack_list *list, const sp_pack *pack)
{
    for (size_t i = 0; i < pack->slice_count; i++) {
        const sp_slice *slice = &list->slices[pack->first_slice + i];
        sp_write(out, "%s{\"sample\": %d, \"begin\": %lld, \"tokens\": %lld", i > 0 ? ", " : "",
                 (int)slice->sample, (long long)slice->begin, (long long)slice->tokens);
        if (slice->computed_tokens != slice->tokens) {
            sp_write(out, ", \"computed\": %lld", (long long)slice->computed_tokens);
        }
        if (slice->zone != 0) {
            sp_write(out, ", \"zone\": [%d, %d]", sp_zone_first(slice->zone),
                     sp_zone_ranks(slice->zone));
        }
        sp_write(out, "}");
    }
}

static void write_packs(sp_writer *out, const char *key, const sp_pack_list *list)
{
    sp_write(out, ",\n\"%s\": [", key);
    for (size_t p = 0; p < list->count; p++) {
        const sp_pack *pack = &list->packs[p];
        sp_write(out, "%s\n {\"dp\": [", p > 0 ? "," : "");
        for (int32_t i = 0; i < pack->dp_count; i++) {
            sp_write(out, "%s%d", i > 0 ? ", " : "", (int)(pack->dp_first + i));
        }
        sp_write(out, "]");
        if (pack->microbatch != (int32_t)p) {
            sp_write(out, ", \"microbatch\": %d", (int)pack->microbatch);
        }
        if (pack->gathers) {
            sp_write(out, ", \"gathers\": true");
        }
        sp_write(out, ", \"slices\": [");
        write_slices(out, list, pack);
        sp_write(out, "]}");
    }
    sp_write(out, "]");
}

static void write_actions(sp_writer *out, const sp_stage_plan *stage, int chunks)
{
    for (size_t i = 0; i < stage->count; i++) {
        sp_action action = stage->actions[i];
        SP_ASSERT(action.kind < SP_ACTION_KINDS);
        sp_write(out, "%s\"%c%d", i > 0 ? ", " : "", sp_action_letters[action.kind],
                 (int)action.pack);
        if (chunks > 1) {
            sp_write(out, ".%d", (int)action.chunk);
        }
        sp_write(out, "%s\"", action.with_next ? "&" : "");
    }
}

static void write_stages(sp_writer *out, const sp_plan *plan)
{
    sp_write(out, ",\n\"stages\": [");
    for (int d = 0; d < plan->layout.dp; d++) {
        for (int p = 0; p < plan->layout.pp; p++) {
            sp_write(out, "%s\n {\"dp\": %d, \"pp\": %d, \"actions\": [", d + p > 0 ? "," : "", d,
                     p);
            write_actions(out, sp_plan_stage(plan, d, p), plan->layout.chunks);
            sp_write(out, "]}");
        }
    }
    sp_write(out, "]");
}

// A loader knows its samples by their ids.
static void write_ids(sp_writer *out, const char *key, const sp_batch *batch, const int64_t *list,
                      size_t count)
{
    sp_write(out, "%s: [", key);
    for (size_t i = 0; i < count; i++) {
        sp_write(out, "%s%lld", i > 0 ? ", " : "", (long long)batch->ids[list[i]]);
    }
    sp_write(out, "]");
}

sp_status sp_plan_json_batch(FILE *file, int index, const sp_plan *plan,
                             sp_plan_predictions predictions, sp_error *err)
{
    const sp_packing *packing = plan->packing;
    sp_writer out;
    sp_writer_init(&out, file);
    sp_write(&out, "%s", index > 0 ? ",\n" : "\n");
    write_samples(&out, packing);
    write_packs(&out, "forward_packs", &packing->forward);
    write_packs(&out, "backward_packs", sp_packing_backward(packing));
    write_stages(&out, plan);
    write_ids(&out, ",\n\"dropped\"", packing->batch, packing->dropped, packing->dropped_count);
    write_ids(&out, ", \"delayed\"", packing->batch, packing->delayed, packing->delayed_count);
    write_prediction(&out, ", \"lower_bound_ms\": ", predictions.lower_bound_ms);
    write_prediction(&out, ", \"predicted_ms\": ", predictions.predicted_ms);
    sp_write(&out, "}");
    return sp_writer_finish(&out, "plan", err);
}

static void write_text(sp_writer *out, const char *key, const char *text)
{
    write_new(out, key, text != NULL && text[0] != '\0' ? json_string(text) : NULL);
}

sp_status sp_plan_json_end(FILE *file, const sp_batches *formed, const sp_plan_notes *notes,
                           sp_error *err)
{
    sp_writer out;
    formed = formed != NULL ? formed : &(sp_batches){0};
    notes = notes != NULL ? notes : &(sp_plan_notes){.reason = NULL};
    sp_writer_init(&out, file);
    sp_write(&out, "\n]");
    if (formed->dropped + formed->truncated + formed->split > 0) {
        sp_write(&out,
                 ", \"over_length\": {\"dropped\": %lld, \"truncated\": %lld, \"split\": %lld, "
                 "\"lost_tokens\": %lld, \"source_tokens\": %lld}",
                 (long long)formed->dropped, (long long)formed->truncated, (long long)formed->split,
                 (long long)formed->lost_tokens, (long long)formed->source_tokens);
    }
    if (formed->left_samples > 0) {
        sp_write(&out, ", \"left_over\": {\"samples\": %lld, \"tokens\": %lld}",
                 (long long)formed->left_samples, (long long)formed->left_tokens);
    }
    write_text(&out, ", \"reason\": ", notes->reason);
    write_text(&out, ", \"settings\": ", notes->settings);
    sp_write(&out, "%s%s}\n", notes->curtailed ? ", \"curtailed\": true" : "",
             formed->wrapped ? ", \"lengths_started_again\": true" : "");
    return sp_writer_finish(&out, "plan", err);
}
