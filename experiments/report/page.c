#include "experiments/report/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/sweep/sweep.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"

enum { SAMPLES_LISTED = 8 };

// page.html, as the build embeds it.
extern const char report_template[];
extern const size_t report_template_bytes;

static size_t count_timelines(const report_input *input)
{
    return input->kind == REPORT_TRACE    ? 1
           : input->kind == REPORT_RESULT ? report_executed_batches(input->json)
                                          : 0;
}

static sp_status take_timeline(report_page *page, report_input *input, size_t batch, sp_error *err)
{
    size_t index = page->timeline_count++;
    sp_status status = SP_OK;
    page->paths[index] = input->path;
    if (input->kind == REPORT_TRACE) {
        snprintf(page->titles[index], sizeof page->titles[index], "trace");
        page->timelines[index] = input->timeline;
        input->timeline = NULL;
    } else {
        snprintf(page->titles[index], sizeof page->titles[index], "executed batch %zu", batch);
        page->timelines[index] = report_timeline_new();
        status = report_timeline_from_executed(input, batch, page->timelines[index], err);
    }
    page->action_count +=
        status == SP_OK ? report_timeline_extent(page->timelines[index]).actions : 0;
    return status;
}

// A page shows the ranks of an executed step as timelines alone.
static void drop_ranks(report_input *input)
{
    json_t *batches = json_object_get(json_object_get(input->json, "execution"), "batches");
    for (size_t b = 0; b < json_array_size(batches); b++) {
        json_object_del(json_array_get(batches, b), "ranks");
    }
}

// Puts beside each predicted time the parts that it has, the time to be expected, by which the page
// ranks, and the risk.
static void add_figures(json_t *value)
{
    const char *key;
    json_t *member;
    size_t i;
    json_array_foreach (value, i, member) {
        add_figures(member);
    }
    json_object_foreach (value, key, member) {
        add_figures(member);
    }
    report_add_parts(value);
    sweep_trial trial;
    sweep_trial_take(value, &trial);
    if (isfinite(sweep_expected_ms(&trial))) {
        char risk[REPORT_RISK];
        sp_json_put(value, "expected_ms", json_real(sweep_expected_ms(&trial)));
        sp_json_put(value, "risk", json_string(report_risk(value, risk)));
    }
}

// Sliders that begin elsewhere than the step shown would tell of another step.
static sp_status check_sliders(const report_page *page, sp_error *err)
{
    const report_input *first = report_first_answer(page);
    if (page->sliders == NULL || first == NULL) {
        return SP_OK;
    }
    const char *path = report_sliders_path(page->sliders);
    const char *model = report_sliders_scenario(page->sliders)->model.name;
    const char *told = report_model(page);
    if (told != NULL && strcmp(told, model) != 0) {
        return sp_error_in(
            err, SP_ERR_CONTENT, path, NULL,
            "its model is %s, that of %s is %s: the sliders would be of another step", model,
            first->path, told);
    }
    double told_ms = report_number(first->json, "iteration_ms");
    double base_ms = report_sliders_base_ms(page->sliders);
    if (first->kind != REPORT_RESULT || report_is_executed(first) ||
        fabs(told_ms - base_ms) <= 1e-9 * told_ms) {
        return SP_OK;
    }
    if (!isfinite(base_ms)) {
        return sp_error_in(err, SP_ERR_CONTENT, path, NULL,
                           "its step cannot run, that of %s does: the sliders would begin at "
                           "another step (--set what the result was simulated with)",
                           first->path);
    }
    return sp_error_in(err, SP_ERR_CONTENT, path, NULL,
                       "its step takes %.15g ms, that of %s %.15g ms: the sliders would begin at "
                       "another step (--set what the result was simulated with)",
                       base_ms, first->path, told_ms);
}

sp_status report_page_init(report_page *page, report_inputs *inputs, const report_sliders *sliders,
                           sp_error *err)
{
    size_t count = 0;
    *page = (report_page){.inputs = inputs, .sliders = sliders};
    for (int i = 0; i < inputs->count; i++) {
        count += count_timelines(&inputs->items[i]);
    }
    page->timelines = (report_timeline **)sp_calloc(count, sizeof *page->timelines);
    page->titles = sp_calloc(count, sizeof *page->titles);
    page->paths = sp_calloc(count, sizeof *page->paths);
    for (int i = 0; i < inputs->count; i++) {
        size_t batches = count_timelines(&inputs->items[i]);
        for (size_t b = 0; b < batches; b++) {
            SP_TRY(take_timeline(page, &inputs->items[i], b, err));
        }
        drop_ranks(&inputs->items[i]);
        if (inputs->items[i].kind != REPORT_PLAN) {
            add_figures(inputs->items[i].json);
        }
    }
    return check_sliders(page, err);
}

void report_page_fini(report_page *page)
{
    for (size_t i = 0; i < page->timeline_count; i++) {
        report_timeline_free(page->timelines[i]);
    }
    sp_free((void *)page->timelines);
    sp_free(page->titles);
    sp_free((void *)page->paths);
    *page = (report_page){0};
}

// ---- text in HTML ----

static void write_escaped(sp_writer *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            sp_write(out, "&lt;");
            break;
        case '>':
            sp_write(out, "&gt;");
            break;
        case '&':
            sp_write(out, "&amp;");
            break;
        case '"':
            sp_write(out, "&quot;");
            break;
        default:
            if (*text == 0x7f || (*text > 0 && *text < 0x20)) {
                sp_write(out, "&#xfffd;"); // HTML has no control characters
            } else {
                sp_write(out, "%c", *text);
            }
        }
    }
}

static void write_answer(sp_writer *out, const report_page *page)
{
    char text[REPORT_ANSWER];
    write_escaped(out, report_answer(page, text));
}

static void write_title(sp_writer *out, const report_page *page)
{
    char text[REPORT_TITLE];
    write_escaped(out, report_title(page, text));
}

static void write_swept(sp_writer *out, const report_page *page)
{
    char text[REPORT_SWEPT];
    if (report_swept(page, text)[0] != '\0') {
        sp_write(out, "\n<p id=\"swept\">");
        write_escaped(out, text);
        sp_write(out, "</p>");
    }
}

static void write_version(sp_writer *out, const report_page *page SP_UNUSED)
{
    sp_write(out, "slimpack %s", SP_VERSION);
}

// ---- the block of data ----

// A pack's slices, tokens, and the ids of its first samples.
static json_t *pack_json(const json_t *pack, const json_t *samples)
{
    const json_t *slices = json_object_get(pack, "slices");
    size_t count = json_array_size(slices);
    json_t *row = json_array();
    json_int_t tokens = 0;
    for (size_t i = 0; i < count; i++) {
        tokens += json_integer_value(json_object_get(json_array_get(slices, i), "tokens"));
    }
    json_array_append_new(row, json_integer((json_int_t)count));
    json_array_append_new(row, json_integer(tokens));
    for (size_t i = 0; i < count && i < SAMPLES_LISTED; i++) {
        json_int_t at = json_integer_value(json_object_get(json_array_get(slices, i), "sample"));
        const json_t *sample = at >= 0 ? json_array_get(samples, (size_t)at) : NULL;
        json_array_append(row, json_object_get(sample, "id"));
    }
    return row;
}

static json_t *packs_json(const json_t *batch, const char *key)
{
    const json_t *packs = json_object_get(batch, key);
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(packs); i++) {
        json_array_append_new(
            list, pack_json(json_array_get(packs, i), json_object_get(batch, "samples")));
    }
    return list;
}

static json_t *plan_json(const json_t *plan)
{
    const json_t *batches = json_object_get(plan, "batches");
    const json_t *batch = json_array_get(batches, 0); // that of the trace
    json_t *list = json_array();
    if (batch != NULL) {
        json_array_append_new(
            list, sp_json_object(SP_JSON("forward", packs_json(batch, "forward_packs")),
                                 SP_JSON("backward", packs_json(batch, "backward_packs"))));
    }
    return sp_json_object(SP_JSON("batches", list));
}

static void write_input(sp_writer *out, const report_input *input)
{
    json_t *path = json_string(input->path); // NULL where it is not UTF-8
    json_t *plan = input->kind == REPORT_PLAN ? plan_json(input->json) : NULL;
    sp_write(out, "{\"kind\":\"%s\",\"path\":", report_kind_names[input->kind]);
    if (path != NULL) {
        report_write_json(out, path);
    } else {
        sp_write(out, "\"?\"");
    }
    if (input->kind == REPORT_SWEEP) {
        sp_write(out, ",\"points\":%lld", (long long)input->points);
    }
    sp_write(out, ",\"document\":");
    if (plan != NULL || input->json != NULL) {
        report_write_json(out, plan != NULL ? plan : input->json);
    } else {
        sp_write(out, "null");
    }
    sp_write(out, "}");
    json_decref(path);
    json_decref(plan);
}

// Writes the places among the inputs of every executed result and its prediction; one that is given
// twice, by two commands, counts once.
static void write_pairs(sp_writer *out, const report_inputs *inputs)
{
    const char *separator = "";
    const json_t *last = NULL;
    for (int i = 0; i < inputs->count; i++) {
        int prediction = report_prediction_of(inputs, &inputs->items[i]);
        const json_t *time = json_object_get(inputs->items[i].json, "iteration_ms");
        if (prediction >= 0 && (last == NULL || !json_equal(last, time))) {
            sp_write(out, "%s[%d,%d]", separator, prediction, i);
            separator = ",";
            last = time;
        }
    }
}

static void write_data(sp_writer *out, const report_page *page)
{
    sp_write(out, "{\"inputs\":[");
    for (int i = 0; i < page->inputs->count; i++) {
        sp_write(out, i > 0 ? ",\n" : "\n");
        write_input(out, &page->inputs->items[i]);
    }
    json_t *head = report_head_json(page);
    sp_write(out, "],\n\"head\":");
    report_write_json(out, head);
    json_decref(head);
    sp_write(out, ",\n\"sliders\":");
    report_sliders_write(out, page->sliders);
    sp_write(out, ",\n\"pairs\":[");
    write_pairs(out, page->inputs);
    sp_write(out, "],\n\"timelines\":[");
    for (size_t i = 0; i < page->timeline_count; i++) {
        sp_write(out, i > 0 ? ",\n" : "\n");
        report_timeline_write(out, page->timelines[i], page->paths[i], page->titles[i]);
    }
    sp_write(out, "]}");
}

// ---- the template ----

static const struct {
    const char *mark; // in the template
    void (*write)(sp_writer *out, const report_page *page);
} slots[] = {
    {"@ANSWER@", write_answer}, {"@DATA@", write_data},       {"@SWEPT@", write_swept},
    {"@TITLE@", write_title},   {"@VERSION@", write_version},
};

enum { SLOTS = sizeof slots / sizeof slots[0] };

// The slot that begins here; SLOTS: none.
static size_t slot_at(const char *text, size_t bytes)
{
    size_t s = 0;
    while (s < SLOTS && (strlen(slots[s].mark) > bytes ||
                         memcmp(text, slots[s].mark, strlen(slots[s].mark)) != 0)) {
        s++;
    }
    return s;
}

sp_status report_page_write(FILE *file, const report_page *page, sp_error *err)
{
    sp_writer out;
    sp_writer_init(&out, file);
    for (size_t at = 0; at < report_template_bytes;) {
        size_t s = report_template[at] == '@'
                       ? slot_at(report_template + at, report_template_bytes - at)
                       : SLOTS;
        if (s < SLOTS) {
            slots[s].write(&out, page);
            at += strlen(slots[s].mark);
        } else {
            sp_write(&out, "%c", report_template[at++]);
        }
    }
    return sp_writer_finish(&out, "page", err);
}
