// The first line of a report: what the documents answer, with its error.
#ifndef SLIMPACK_EXPERIMENTS_REPORT_ANSWER_H
#define SLIMPACK_EXPERIMENTS_REPORT_ANSWER_H

#include "experiments/report/page.h"

enum { REPORT_ANSWER = 512 };

// Of the first document that has an answer, else of the first timeline; returns text.
const char *report_answer(const report_page *page, char text[REPORT_ANSWER]);

#endif
