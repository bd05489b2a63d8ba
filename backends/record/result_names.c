#include "backends/record/result_names.h"

const char *const sp_i_status_names[] = {
    [SP_OK] = "ok",
    [SP_ERR_INFEASIBLE] = "infeasible",
    [SP_ERR_USAGE] = "usage",
    [SP_ERR_IO] = "io",
    [SP_ERR_SYNTAX] = "syntax",
    [SP_ERR_CONTENT] = "content",
    [SP_ERR_DEADLOCK] = "deadlock",
    [SP_ERR_LIMIT] = "limit",
    [SP_ERR_NO_MEMORY] = "no-memory",
    [SP_ERR_INTERNAL] = "internal",
    NULL,
};

const char *const sp_i_share_names[] = {
    [SP_SHARE_HEAD] = "head",
    [SP_SHARE_EMBEDDING_BACKWARD] = "embedding-backward",
    [SP_SHARE_EMBEDDING] = "embedding",
    [SP_SHARE_HEAD_BACKWARD] = "head-backward",
    NULL,
};

void sp_i_span_times(const sp_span *span, int64_t times[SP_I_SPAN_TIMES])
{
    times[0] = span->start_ns;
    times[1] = span->end_ns;
    times[2] = span->tp_ns;
    times[3] = span->cp_ns;
    times[4] = span->dp_ns;
    times[5] = span->launch_ns;
    times[6] = span->wait_p2p_ns;
}

void sp_i_span_set_times(sp_span *span, const int64_t times[SP_I_SPAN_TIMES])
{
    span->start_ns = times[0];
    span->end_ns = times[1];
    span->tp_ns = times[2];
    span->cp_ns = times[3];
    span->dp_ns = times[4];
    span->launch_ns = times[5];
    span->wait_p2p_ns = times[6];
}
