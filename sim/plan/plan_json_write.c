#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/plan/plan_json.h"

enum { LINE = 192 }; // bytes of one slice or action as text

// Plans have millions of slices and actions: the text is put together without stdio formatting and
// never held as a whole. Errors of the stream stick, so they are asked for once per call.
static void write_slices(FILE *file, const sp_pack_list *list, const sp_pack *pack);
static void write_packs(FILE *file, const char *key, const sp_pack_list *list);
static void write_stages(FILE *file, const sp_plan *plan);
static sp_status write_value(FILE *file, const json_t *value, sp_error *err);
static sp_status write_prediction(FILE *file, const char *key, double ms, sp_error *err);
static char *put_number(char *out, int64_t number);

static void write_text(FILE *file, const char *text)
{
    fwrite(text, 1, strlen(text), file);
}

static void write_number(FILE *file, int64_t number)
{
    char text[LINE];
    fwrite(text, 1, (size_t)(put_number(text, number) - text), file);
}

static sp_status check_written(FILE *file, sp_error *err)
{
    return ferror(file) == 0
               ? SP_OK
               : sp_error_set(err, SP_ERR_IO, "cannot write the plan: %s", strerror(errno));
}

sp_status sp_plan_json_begin(FILE *file, const json_t *scenario, sp_error *err)
{
    SP_ASSERT(scenario != NULL);
    write_text(file, "{\"schema\": \"slimpack/plan/1\", \"scenario\": ");
    sp_status status = write_value(file, scenario, err);
    if (status != SP_OK) {
        return status;
    }
    write_text(file, ", \"batches\": [");
    return check_written(file, err);
}

static void write_samples(FILE *file, const sp_batch *batch)
{
    write_text(file, "{\"samples\": [");
    for (size_t i = 0; batch != NULL && i < batch->count; i++) {
        write_text(file, i > 0 ? ", {\"id\": " : "{\"id\": ");
        write_number(file, batch->ids[i]);
        write_text(file, ", \"tokens\": ");
        write_number(file, batch->tokens[i]);
        write_text(file, "}");
    }
    write_text(file, "]");
}

// A loader knows its samples by their ids.
static void write_ids(FILE *file, const char *key, const sp_batch *batch, const int64_t *list,
                      size_t count)
{
    write_text(file, key);
    for (size_t i = 0; i < count; i++) {
        write_text(file, i > 0 ? ", " : "");
        write_number(file, batch->ids[list[i]]);
    }
    write_text(file, "]");
}

sp_status sp_plan_json_batch(FILE *file, int index, const sp_plan *plan,
                             sp_plan_predictions predictions, sp_error *err)
{
    const sp_packing *packing = plan->packing;
    write_text(file, index > 0 ? ",\n" : "\n");
    write_samples(file, packing->batch);
    write_packs(file, ",\n\"forward_packs\": [", &packing->forward);
    write_packs(file, ",\n\"backward_packs\": [", sp_packing_backward(packing));
    write_stages(file, plan);
    write_ids(file, ",\n\"dropped\": [", packing->batch, packing->dropped, packing->dropped_count);
    write_ids(file, ", \"delayed\": [", packing->batch, packing->delayed, packing->delayed_count);
    sp_status status =
        write_prediction(file, ", \"lower_bound_ms\": ", predictions.lower_bound_ms, err);
    if (status == SP_OK) {
        status = write_prediction(file, ", \"predicted_ms\": ", predictions.predicted_ms, err);
    }
    if (status != SP_OK) {
        return status;
    }
    write_text(file, "}");
    return check_written(file, err);
}

sp_status sp_plan_json_end(FILE *file, sp_error *err)
{
    return sp_plan_json_end_formed(file, &(sp_batches){0}, err);
}

sp_status sp_plan_json_end_formed(FILE *file, const sp_batches *formed, sp_error *err)
{
    write_text(file, "\n]");
    if (formed->dropped + formed->truncated > 0) {
        write_text(file, ", \"over_length\": {\"dropped\": ");
        write_number(file, formed->dropped);
        write_text(file, ", \"truncated\": ");
        write_number(file, formed->truncated);
        write_text(file, "}");
    }
    if (formed->wrapped) {
        write_text(file, ", \"lengths_started_again\": true");
    }
    write_text(file, "}\n");
    fflush(file);
    return check_written(file, err);
}

// At most 20 characters; returns their end.
static char *put_number(char *out, int64_t number)
{
    char digits[24];
    size_t n = 0;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do {
        digits[n++] = (char)('0' + (int)(rest % 10));
        rest /= 10;
    } while (rest > 0);
    if (number < 0) {
        *out++ = '-';
    }
    while (n > 0) {
        *out++ = digits[--n];
    }
    return out;
}

static char *put_text(char *out, const char *text)
{
    size_t bytes = strlen(text);
    memcpy(out, text, bytes);
    return out + bytes;
}

static void write_packs(FILE *file, const char *key, const sp_pack_list *list)
{
    write_text(file, key);
    for (size_t p = 0; p < list->count; p++) {
        const sp_pack *pack = &list->packs[p];
        write_text(file, p > 0 ? ",\n {\"dp\": [" : "\n {\"dp\": [");
        for (int32_t i = 0; i < pack->dp_count; i++) {
            write_text(file, i > 0 ? ", " : "");
            write_number(file, (int64_t)pack->dp_first + i);
        }
        if (pack->microbatch != (int32_t)p) {
            write_text(file, "], \"microbatch\": ");
            write_number(file, pack->microbatch);
            write_text(file, ", \"slices\": [");
        } else {
            write_text(file, "], \"slices\": [");
        }
        write_slices(file, list, pack);
        write_text(file, "]}");
    }
    write_text(file, "]");
}

static void write_slices(FILE *file, const sp_pack_list *list, const sp_pack *pack)
{
    for (size_t i = 0; i < pack->slice_count; i++) {
        const sp_slice *slice = &list->slices[pack->first_slice + i];
        char text[LINE];
        char *out = put_text(text, i > 0 ? ", {\"sample\": " : "{\"sample\": ");
        out = put_number(out, slice->sample);
        out = put_text(out, ", \"begin\": ");
        out = put_number(out, slice->begin);
        out = put_text(out, ", \"tokens\": ");
        out = put_number(out, slice->tokens);
        if (slice->computed_tokens != slice->tokens) {
            out = put_text(out, ", \"computed\": ");
            out = put_number(out, slice->computed_tokens);
        }
        *out++ = '}';
        fwrite(text, 1, (size_t)(out - text), file);
    }
}

static void write_actions(FILE *file, const sp_stage_plan *stage, int chunks)
{
    for (size_t i = 0; i < stage->count; i++) {
        sp_action action = stage->actions[i];
        SP_ASSERT(action.kind < SP_ACTION_KINDS);
        char text[LINE];
        char *out = put_text(text, i > 0 ? ", \"" : "\"");
        *out++ = sp_action_letters[action.kind];
        out = put_number(out, action.pack);
        if (chunks > 1) {
            *out++ = '.';
            out = put_number(out, action.chunk);
        }
        if (action.with_next) {
            *out++ = '&';
        }
        *out++ = '"';
        fwrite(text, 1, (size_t)(out - text), file);
    }
}

static void write_stages(FILE *file, const sp_plan *plan)
{
    write_text(file, ",\n\"stages\": [");
    for (int d = 0; d < plan->layout.dp; d++) {
        for (int p = 0; p < plan->layout.pp; p++) {
            write_text(file, d + p > 0 ? ",\n {\"dp\": " : "\n {\"dp\": ");
            write_number(file, d);
            write_text(file, ", \"pp\": ");
            write_number(file, p);
            write_text(file, ", \"actions\": [");
            write_actions(file, sp_plan_stage(plan, d, p), plan->layout.chunks);
            write_text(file, "]}");
        }
    }
    write_text(file, "]");
}

// A JSON value with as few digits as give the same numbers again: 15 where they do (0.1), else the
// 17 that always do.
static sp_status write_value(FILE *file, const json_t *value, sp_error *err)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    json_t *again = text == NULL ? NULL : json_loads(text, JSON_DECODE_ANY, NULL);
    if (again == NULL || !json_equal(again, value)) {
        free(text);
        text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    }
    json_decref(again);
    if (text == NULL) {
        return sp_error_no_memory(err, "plan.json");
    }
    write_text(file, text);
    free(text);
    return SP_OK;
}

static sp_status write_prediction(FILE *file, const char *key, double ms, sp_error *err)
{
    if (!(ms >= 0 && ms < HUGE_VAL)) {
        return SP_OK;
    }
    json_t *value = json_real(ms);
    if (value == NULL) {
        return sp_error_no_memory(err, "plan.json");
    }
    write_text(file, key);
    sp_status status = write_value(file, value, err);
    json_decref(value);
    return status;
}
