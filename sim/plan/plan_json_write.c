#include <math.h>
#include <stdlib.h>

#include "sim/base/writer.h"
#include "sim/plan/plan_json.h"

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
    write_value(&out, "{\"schema\": \"slimpack/plan/1\", \"scenario\": ", scenario);
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

sp_status sp_plan_json_end(FILE *file, sp_error *err)
{
    return sp_plan_json_end_formed(file, &(sp_batches){0}, err);
}

sp_status sp_plan_json_end_formed(FILE *file, const sp_batches *formed, sp_error *err)
{
    return sp_plan_json_end_noted(file, formed, &(sp_plan_notes){.reason = NULL}, err);
}

static void write_text(sp_writer *out, const char *key, const char *text)
{
    write_new(out, key, text != NULL && text[0] != '\0' ? json_string(text) : NULL);
}

sp_status sp_plan_json_end_noted(FILE *file, const sp_batches *formed, const sp_plan_notes *notes,
                                 sp_error *err)
{
    sp_writer out;
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
