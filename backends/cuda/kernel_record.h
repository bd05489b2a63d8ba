// Kernels as CUPTI records them while a run's steps are executed: how many, how long each context's
// SMs had one, how long those of any had, and which took longest. A partition is a context of its
// own, so that this says on how many SMs ranks ran and whether they ran side by side. CUPTI is
// loaded when it is first needed.
#ifndef SLIMPACK_BACKENDS_CUDA_KERNEL_RECORD_H
#define SLIMPACK_BACKENDS_CUDA_KERNEL_RECORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "sim/base/status.h"

#ifdef SP_CUPTI
#include <cupti.h>
#endif

// The member is the call without "cupti".
typedef struct sp_i_cupti_api {
#ifdef SP_CUPTI
    CUptiResult (*GetVersion)(uint32_t *version);
    CUptiResult (*GetResultString)(CUptiResult code, const char **text);
    CUptiResult (*ActivityRegisterCallbacks)(CUpti_BuffersCallbackRequestFunc request,
                                             CUpti_BuffersCallbackCompleteFunc complete);
    CUptiResult (*ActivityEnable)(CUpti_ActivityKind kind);
    CUptiResult (*ActivityDisable)(CUpti_ActivityKind kind);
    CUptiResult (*ActivityFlushAll)(uint32_t flag);
    CUptiResult (*ActivityGetNextRecord)(uint8_t *buffer, size_t bytes, CUpti_Activity **record);
    CUptiResult (*ActivityGetNumDroppedRecords)(CUcontext context, uint32_t stream,
                                                size_t *dropped);
#else
    void *none;
#endif
} sp_i_cupti_api;

// The table of this machine's CUPTI, 13.0 or later. False, with the reason, where there is none.
bool sp_i_cupti_api_init(sp_i_cupti_api *api, char *reason, size_t reason_bytes);

// One recording at a time in a process.
typedef struct sp_i_kernel_records sp_i_kernel_records;

// Begins before contexts are made, which are recorded then. `api` (may be NULL: that of this
// machine) is borrowed. SP_ERR_USAGE with the reason where there is no CUPTI, or a recording is
// under way.
sp_status sp_i_kernel_records_begin(const sp_i_cupti_api *api, sp_i_kernel_records **made,
                                    sp_error *err);
// Kernels so far are not counted; the device must be idle.
sp_status sp_i_kernel_records_restart(sp_i_kernel_records *records, sp_error *err);
// Takes all that was recorded; the device must be idle.
sp_status sp_i_kernel_records_end(sp_i_kernel_records *records, sp_error *err);
void sp_i_kernel_records_free(sp_i_kernel_records *records);

// {"recorded", "dropped": kernels; "any_ns": with a kernel of any context; "contexts": of each with
// kernels
// {"sms" (0: not known), "green", "kernels", "busy_ns": with a kernel, "span_ns": from its first to
// the end of its last}; "longest": up to 10 {"name", "kernels", "ns"}}.
json_t *sp_i_kernel_records_report(const sp_i_kernel_records *records);

#endif
