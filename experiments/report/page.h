// A self-contained HTML page of result documents. The template is page.html; what it shows stands
// in a block of JSON.
#ifndef SLIMPACK_EXPERIMENTS_REPORT_PAGE_H
#define SLIMPACK_EXPERIMENTS_REPORT_PAGE_H

#include <stdio.h>

#include "experiments/report/timeline.h"

typedef struct report_page {
    report_inputs *inputs;
    report_timeline **timelines; // owned
    char (*titles)[48];          // of the timelines
    const char **paths;          // of their documents
    size_t timeline_count;
    int64_t action_count;
} report_page;

// Takes the timelines out of the documents. `inputs` must outlive
// the page. After an error, too, the caller frees with report_page_fini().
sp_status report_page_init(report_page *page, report_inputs *inputs, sp_error *err);
void report_page_fini(report_page *page);

// Writes the page. SP_ERR_IO where the stream fails.
sp_status report_page_write(FILE *file, const report_page *page, sp_error *err);

enum { REPORT_ANSWER = 512 };

// The first line of a page, with the error of what it says: the answer of the first document that
// has one, else of the first timeline; returns text.
const char *report_answer(const report_page *page, char text[REPORT_ANSWER]);

#endif
