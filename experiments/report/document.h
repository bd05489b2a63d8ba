// A document read member by member, so that the events of a trace are never all in memory.
#ifndef SLIMPACK_EXPERIMENTS_REPORT_DOCUMENT_H
#define SLIMPACK_EXPERIMENTS_REPORT_DOCUMENT_H

#include "experiments/report/inputs.h"

// Reads a JSON document from a file that can be rewound into input->json. Where it has the member
// "traceEvents", and no "schema" before it, the events go to input->timeline instead.
sp_status report_document_read(report_input *input, FILE *file, sp_error *err);

#endif
