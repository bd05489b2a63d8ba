// A trace of PyTorch's profiler from arbitrary bytes: it is refused with a message, or what is
// derived of it holds together. Each byte less may cut it off.
#include <stdint.h>

#include "experiments/measure/kineto.h"
#include "sim/base/alloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_span(const sp_kineto *trace, size_t i)
{
    const sp_traced_span *span = &trace->spans[i];
    SP_ASSERT(span->of < SP_KERNEL_CLASSES && span->duration_ns >= 0 && span->bytes >= 0);
    SP_ASSERT(span->name >= 0 && (size_t)span->name < trace->name_count);
    SP_ASSERT(span->op < 0 || (size_t)span->op < trace->op_count);
    SP_ASSERT(i == 0 || trace->spans[i - 1].start_ns <= span->start_ns);
}

static void check_op(const sp_traced_op *op)
{
    SP_ASSERT(op->end_ns >= op->start_ns);
    if (op->kind == SP_TRACED_PRODUCT) {
        SP_ASSERT(op->of.product.m > 0 && op->of.product.n > 0 && op->of.product.k > 0);
    } else if (op->kind == SP_TRACED_ATTENTION) {
        SP_ASSERT(op->of.attention.queries > 0 && op->of.attention.keys > 0);
    } else if (op->kind == SP_TRACED_ELEMENTS) {
        SP_ASSERT(op->of.bytes > 0.0);
    } else {
        SP_ASSERT(op->of.collective.bytes >= 0.0 && op->of.collective.ranks >= 0);
    }
}

static void check_times(const sp_kineto *trace)
{
    char reason[SP_TRACE_REASON];
    const sp_kineto *both[] = {trace, trace};
    int64_t *waits[] = {sp_calloc(trace->span_count, sizeof **waits),
                        sp_calloc(trace->span_count, sizeof **waits)};
    sp_trace_times times;
    // A run beside itself waits for nobody.
    (void)sp_trace_waits(both, 2, waits, reason);
    SP_ASSERT(reason[0] == '\0');
    for (size_t i = 0; i < trace->span_count; i++) {
        SP_ASSERT(waits[0][i] == 0 && waits[1][i] == 0);
    }
    sp_trace_times_of(trace, waits[0], &times);
    SP_ASSERT(times.extent_ns == times.busy_ns + times.exposed_ns + times.idle_ns);
    SP_ASSERT(times.busy_ns >= 0 && times.exposed_ns >= 0 && times.idle_ns >= 0);
    SP_ASSERT(times.exposed_wait_ns == 0 && times.communication_ns >= times.exposed_ns);
    sp_free(waits[0]);
    sp_free(waits[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sp_kineto trace;
    sp_error err;
    sp_error_clear(&err);
    sp_status status = sp_kineto_from_text((const char *)data, size, "fuzz.json", &trace, &err);
    SP_ASSERT(status == err.status);
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    if (status != SP_OK) {
        SP_ASSERT(trace.spans == NULL && trace.ops == NULL && trace.names == NULL);
        return 0;
    }
    SP_ASSERT(trace.span_count > 0 && trace.span_count <= trace.events);
    for (size_t i = 0; i < trace.span_count; i++) {
        check_span(&trace, i);
    }
    for (size_t i = 0; i < trace.op_count; i++) {
        check_op(&trace.ops[i]);
    }
    check_times(&trace);
    sp_kineto_fini(&trace);
    return 0;
}
