// Reads any bytes as a document of a report. One that is accepted gives a page: its answer is told
// in the head, its block of data is JSON with a timeline for each that was read, and no text of the
// document ends the script; the title and what is to be run next are texts, and the settings are no
// more than a page has place for. What is refused as no JSON is none for a parser of whole
// documents either.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/report/report.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t count(const char *text, const char *word)
{
    size_t times = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        times++;
    }
    return times;
}

static bool is_text_pair(const json_t *pair)
{
    return json_array_size(pair) == 2 && json_is_string(json_array_get(pair, 0)) &&
           json_is_string(json_array_get(pair, 1));
}

static void check_head(const json_t *head)
{
    const json_t *next = json_object_get(head, "next");
    const json_t *settings = json_object_get(head, "settings");
    SP_ASSERT(json_is_array(next) && json_is_array(settings) && json_array_size(settings) <= 64);
    for (size_t i = 0; i < json_array_size(next); i++) {
        const json_t *row = json_array_get(next, i);
        SP_ASSERT(json_string_length(json_object_get(row, "command")) > 0);
        SP_ASSERT(json_string_length(json_object_get(row, "why")) > 0);
    }
    for (size_t i = 0; i < json_array_size(settings); i++) {
        SP_ASSERT(is_text_pair(json_array_get(settings, i)));
    }
}

static void check_title(const report_page *page)
{
    char title[REPORT_TITLE];
    SP_ASSERT(report_title(page, title) == title && title[0] != '\0');
    json_t *text = json_string(title); // NULL where it is no UTF-8
    SP_ASSERT(text != NULL);
    json_decref(text);
}

static void check_page(const report_page *page, const char *text)
{
    static const char opens[] = "<script type=\"application/json\" id=\"data\">";
    const char *from = strstr(text, opens);
    SP_ASSERT(from != NULL);
    from += strlen(opens);
    const char *to = strstr(from, "</script>");
    json_t *block = NULL;
    SP_ASSERT(to != NULL);
    SP_ASSERT(sp_json_read_text(from, (size_t)(to - from), "page", &block, NULL) == SP_OK);
    SP_ASSERT(json_array_size(json_object_get(block, "timelines")) == page->timeline_count);
    check_head(json_object_get(block, "head"));
    json_decref(block);
    // That of the data and that of the page itself.
    SP_ASSERT(count(text, "</script") == 2);
}

static void make_page(report_inputs *inputs)
{
    report_page page;
    sp_error err = {0};
    if (report_page_init(&page, inputs, NULL, &err) == SP_OK) {
        char *text = NULL;
        size_t bytes;
        char answer[REPORT_ANSWER];
        FILE *file = open_memstream(&text, &bytes);
        SP_ASSERT(file != NULL && report_page_write(file, &page, NULL) == SP_OK);
        SP_ASSERT(fclose(file) == 0);
        SP_ASSERT(report_answer(&page, answer) == answer && answer[0] != '\0');
        check_title(&page);
        check_page(&page, text);
        free(text);
    } else {
        SP_ASSERT(err.status == SP_ERR_CONTENT && err.count > 0);
    }
    report_page_fini(&page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    sp_error err = {0};
    report_inputs inputs = {.items = sp_calloc(1, sizeof *inputs.items), .count = 1};
    FILE *file = fmemopen((void *)data, size, "r");
    SP_ASSERT(file != NULL && inputs.items != NULL);
    inputs.items[0].path = "fuzz";
    sp_status status = report_input_read(&inputs.items[0], file, &err);
    fclose(file);
    json_t *whole =
        json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    SP_ASSERT(status != SP_OK || whole != NULL || inputs.items[0].kind == REPORT_SWEEP);
    // jansson overlooks a zero byte behind a number or a word.
    SP_ASSERT(status != SP_ERR_SYNTAX || whole == NULL || memchr(data, '\0', size) != NULL);
    json_decref(whole);
    if (status == SP_OK) {
        make_page(&inputs);
    }
    report_inputs_fini(&inputs);
    return 0;
}
