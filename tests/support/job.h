// A job of several ranks: threads of a process of its own that ends with the first rank that fails,
// as a launcher ends all processes. What ranks that fail leave behind, and whom they keep waiting,
// is nobody's matter then.
#ifndef SLIMPACK_TESTS_SUPPORT_JOB_H
#define SLIMPACK_TESTS_SUPPORT_JOB_H

#include "sim/base/status.h"

enum { JOB_RANKS = 16 };

// How a job ended: SP_OK, or what the first rank that failed said.
typedef struct job_end {
    sp_status status;
    int rank;
    char text[SP_ERROR_TEXT]; // first message
} job_end;

// What a rank does; it must not assert.
typedef sp_status job_body(int rank, void *context, sp_error *err);

job_end job_run(int ranks, job_body *body, void *context);

#endif
