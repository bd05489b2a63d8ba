// Kernels as CUPTI records them, by a fake of it that gives records which the test has written; the
// library itself, where there is one, finds the records of a buffer at the same places.
#include "backends/cuda/kernel_record.h"
#include "tests/gpu/support/emulated_backend.h"
#include "tests/support/staged_run.h"
#include "tests/support/test_main.h"

enum { BUFFER = 4096 };

static struct {
    CUpti_BuffersCallbackRequestFunc request;
    CUpti_BuffersCallbackCompleteFunc complete;
    uint8_t ready[BUFFER]; // records that the next flush gives
    size_t bytes;
    bool runs; // behind the next flush kernels run
    size_t dropped;
    uint32_t version;
    const char *fails;
    int enabled;
} cupti;

static CUptiResult answer(const char *call)
{
    return cupti.fails != NULL && strcmp(cupti.fails, call) == 0 ? CUPTI_ERROR_NOT_INITIALIZED
                                                                 : CUPTI_SUCCESS;
}

static CUptiResult version(uint32_t *value)
{
    *value = cupti.version;
    return CUPTI_SUCCESS;
}

static CUptiResult text_of(CUptiResult code, const char **text)
{
    *text = code == CUPTI_ERROR_NOT_INITIALIZED ? "CUPTI_ERROR_NOT_INITIALIZED" : "another";
    return CUPTI_SUCCESS;
}

static CUptiResult keep_callbacks(CUpti_BuffersCallbackRequestFunc request,
                                  CUpti_BuffersCallbackCompleteFunc complete)
{
    cupti.request = request;
    cupti.complete = complete;
    return answer("RegisterCallbacks");
}

// The bits of both kinds.
enum { BOTH = 1 << CUPTI_ACTIVITY_KIND_CONTEXT | 1 << CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL };

static CUptiResult enable(CUpti_ActivityKind kind)
{
    cupti.enabled |= 1 << kind;
    return answer("Enable");
}

static CUptiResult disable(CUpti_ActivityKind kind)
{
    cupti.enabled &= ~(1 << kind);
    return CUPTI_SUCCESS;
}

static void put_run(void);

static CUptiResult flush(uint32_t flag)
{
    uint8_t *buffer = NULL;
    size_t bytes = 0, most = 1;
    assert_int_equal(flag, 0);
    if (cupti.bytes > 0) {
        cupti.request(&buffer, &bytes, &most);
        assert_true(buffer != NULL && (uintptr_t)buffer % 8 == 0 && bytes >= cupti.bytes);
        assert_int_equal(most, 0);
        memcpy(buffer, cupti.ready, cupti.bytes);
        cupti.complete(NULL, 0, buffer, bytes, cupti.bytes);
        cupti.bytes = 0;
    }
    if (cupti.runs) {
        cupti.runs = false;
        put_run();
    }
    return answer("FlushAll");
}

static size_t size_of(const CUpti_Activity *record)
{
    return record->kind == CUPTI_ACTIVITY_KIND_CONTEXT ? sizeof(CUpti_ActivityContext3)
                                                       : sizeof(CUpti_ActivityKernel10);
}

static CUptiResult next(uint8_t *buffer, size_t bytes, CUpti_Activity **record)
{
    uint8_t *at = *record == NULL ? buffer : (uint8_t *)*record + size_of(*record);
    if (at >= buffer + bytes) {
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    }
    *record = (CUpti_Activity *)(void *)at;
    return CUPTI_SUCCESS;
}

static CUptiResult count_dropped(CUcontext context, uint32_t stream, size_t *dropped)
{
    *dropped = cupti.dropped;
    cupti.dropped = 0;
    return CUPTI_SUCCESS;
}

static const sp_i_cupti_api fake_cupti = {.GetVersion = version,
                                          .GetResultString = text_of,
                                          .ActivityRegisterCallbacks = keep_callbacks,
                                          .ActivityEnable = enable,
                                          .ActivityDisable = disable,
                                          .ActivityFlushAll = flush,
                                          .ActivityGetNextRecord = next,
                                          .ActivityGetNumDroppedRecords = count_dropped};

static void put_context(uint32_t id, uint16_t sms, bool green)
{
    CUpti_ActivityContext3 record = {.kind = CUPTI_ACTIVITY_KIND_CONTEXT, .contextId = id};
    record.numMultiprocessors = sms;
    record.isGreenContext = green;
    memcpy(&cupti.ready[cupti.bytes], &record, sizeof record);
    cupti.bytes += sizeof record;
}

static void put_kernel(uint32_t context, uint64_t start, uint64_t end, const char *name)
{
    CUpti_ActivityKernel10 record = {.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL};
    record.contextId = context;
    record.start = start;
    record.end = end;
    record.name = name;
    memcpy(&cupti.ready[cupti.bytes], &record, sizeof record);
    cupti.bytes += sizeof record;
}

// Two partitions of 32 SMs, of which one has two streams, and a context that nothing is known of.
static void put_run(void)
{
    put_kernel(8, 1100, 1200, "norm");
    put_kernel(7, 1050, 1150, "product");
    put_kernel(7, 1000, 1100, "norm");
    put_kernel(7, 1300, 1310, "add");
    put_kernel(9, 1305, 1307, "add");
}

static void begin(void)
{
    memset(&cupti, 0, sizeof cupti);
    cupti.version = 130000;
}

static int64_t number(const json_t *of, const char *key)
{
    assert_true(json_is_integer(json_object_get(of, key)));
    return json_integer_value(json_object_get(of, key));
}

static void check_context(const json_t *of, int sms, int64_t kernels, int64_t busy, int64_t span)
{
    assert_int_equal(number(of, "sms"), sms);
    assert_true(json_is_true(json_object_get(of, "green")) == (sms > 0));
    assert_int_equal(number(of, "kernels"), kernels);
    assert_int_equal(number(of, "busy_ns"), busy);
    assert_int_equal(number(of, "span_ns"), span);
}

static void check_run(const json_t *report)
{
    const json_t *contexts = json_object_get(report, "contexts");
    const json_t *longest = json_object_get(report, "longest");
    assert_int_equal(number(report, "recorded"), 5);
    assert_int_equal(number(report, "dropped"), 3);
    // 1000 to 1200 and 1300 to 1310.
    assert_int_equal(number(report, "any_ns"), 210);
    assert_int_equal(json_array_size(contexts), 3);
    check_context(json_array_get(contexts, 0), 32, 3, 160, 310);
    check_context(json_array_get(contexts, 1), 32, 1, 100, 100);
    check_context(json_array_get(contexts, 2), 0, 1, 2, 2);
    assert_int_equal(json_array_size(longest), 3);
    assert_string_equal(json_string_value(json_object_get(json_array_get(longest, 0), "name")),
                        "norm");
    assert_int_equal(number(json_array_get(longest, 0), "kernels"), 2);
    assert_int_equal(number(json_array_get(longest, 0), "ns"), 200);
    assert_int_equal(number(json_array_get(longest, 2), "ns"), 12);
}

// What ran before the steps is not counted; contexts that were made then are known.
TEST(records_are_summed_up)
{
    sp_i_kernel_records *r, *second;
    begin();
    must_succeed(sp_i_kernel_records_begin(&fake_cupti, &r, ERR));
    assert_int_equal(cupti.enabled, BOTH);
    must_fail(sp_i_kernel_records_begin(&fake_cupti, &second, ERR), SP_ERR_USAGE,
              "CUPTI: kernels of another run are recorded");
    put_context(7, 132, false); // its number comes again
    put_context(7, 32, true);
    put_context(8, 32, true);
    put_kernel(7, 1, 999, "warm-up");
    cupti.dropped = 2;
    must_succeed(sp_i_kernel_records_restart(r, ERR));
    put_run();
    cupti.dropped = 3;
    must_succeed(sp_i_kernel_records_end(r, ERR));
    json_auto_t *report = sp_i_kernel_records_report(r);
    check_run(report);
    sp_i_kernel_records_free(r);
    assert_int_equal(cupti.enabled, 0);
}

TEST(a_recording_of_nothing)
{
    sp_i_kernel_records *r;
    begin();
    must_succeed(sp_i_kernel_records_begin(&fake_cupti, &r, ERR));
    must_succeed(sp_i_kernel_records_end(r, ERR));
    json_auto_t *report = sp_i_kernel_records_report(r);
    assert_int_equal(number(report, "recorded"), 0);
    assert_int_equal(number(report, "any_ns"), 0);
    assert_int_equal(json_array_size(json_object_get(report, "contexts")), 0);
    sp_i_kernel_records_free(r);
}

TEST(calls_that_fail_are_named)
{
    static const char *const calls[] = {"RegisterCallbacks", "Enable"};
    sp_i_kernel_records *r;
    for (int i = 0; i < 2; i++) {
        char message[128];
        begin();
        cupti.fails = calls[i];
        snprintf(message, sizeof message,
                 "CUPTI: cuptiActivity%s failed with %d (CUPTI_ERROR_NOT_INITIALIZED)", calls[i],
                 (int)CUPTI_ERROR_NOT_INITIALIZED);
        must_fail(sp_i_kernel_records_begin(&fake_cupti, &r, ERR), SP_ERR_INTERNAL, message);
    }
    begin();
    must_succeed(sp_i_kernel_records_begin(&fake_cupti, &r, ERR));
    cupti.fails = "FlushAll";
    must_fail_with(sp_i_kernel_records_end(r, ERR), SP_ERR_INTERNAL, "cuptiActivityFlushAll");
    sp_i_kernel_records_free(r);
    begin();
    cupti.version = 24; // of CUDA 12.6
    must_fail(sp_i_kernel_records_begin(&fake_cupti, &r, ERR), SP_ERR_USAGE,
              "CUPTI: its version is 24, expected 130000 (of CUDA 13.0) or later");
}

// The library finds a record of either kind where the fake does: their sizes are its own.
TEST(the_library_finds_the_records)
{
    sp_i_cupti_api api;
    char reason[256];
    if (!sp_i_cupti_api_init(&api, reason, sizeof reason)) {
        print_message("%s\n", reason);
        skip();
    }
    begin();
    put_context(7, 32, true);
    put_run();
    put_context(8, 32, true);
    CUpti_Activity *ours = NULL, *its = NULL;
    int records = 0;
    while (next(cupti.ready, cupti.bytes, &ours) == CUPTI_SUCCESS) {
        assert_int_equal(api.ActivityGetNextRecord(cupti.ready, cupti.bytes, &its), CUPTI_SUCCESS);
        assert_ptr_equal(its, ours);
        records++;
    }
    assert_int_equal(api.ActivityGetNextRecord(cupti.ready, cupti.bytes, &its),
                     CUPTI_ERROR_MAX_LIMIT_REACHED);
    assert_int_equal(records, 7);
}

// ---- of a run ----

static sp_status run(staged_run *f, const char *value, json_t **report)
{
    const sp_backend_option options[] = {{"cudnn", "off"}, {"kernels", value}};
    sp_run *made = NULL;
    f->request.options = options;
    f->request.option_count = 2;
    const sp_status status = sp_backend_run(f->backend, 0, &f->request, &made, ERR);
    *report = made != NULL ? sp_run_report(made) : NULL;
    sp_run_free(made);
    return status;
}

TEST(a_run_reports_them)
{
    AUTO(staged_run) f;
    json_t *report;
    begin();
    emulated_cupti = &fake_cupti;
    staged_run_make(&f, 1, (const int64_t[]){9, 5}, 2, SP_CLOCK_WALL, 1);
    f.backend = emulated_backend_new();
    sp_emulated_skips = true;   // nothing here depends on values
    put_kernel(7, 1, 2, "add"); // before the steps
    cupti.runs = true;
    must_succeed(run(&f, "on", &report));
    assert_int_equal(number(json_object_get(report, "kernels"), "recorded"), 5);
    json_decref(report);
    must_succeed(run(&f, "off", &report));
    assert_null(json_object_get(report, "kernels"));
    json_decref(report);
    must_fail(run(&f, "yes", &report), SP_ERR_USAGE,
              "backend 'cuda': kernels: expected \"on\" or \"off\", got \"yes\"");
    cupti.fails = "Enable";
    must_fail_with(run(&f, "on", &report), SP_ERR_INTERNAL,
                   "backend 'cuda': kernels: CUPTI: cuptiActivityEnable failed with");
    cupti.fails = NULL;
    assert_int_equal(cupti.enabled, 0);
    emulated_backend_free(f.backend);
    emulated_cupti = NULL;
}
