// Memory as the device sees it, on the emulated one: what is reported of a run, and how far what
// the executor counts is from it.

#include "backends/cuda/gemm.h"
#include "backends/record/result.h"
#include "tests/gpu/device_memory.h"
#include "tests/gpu/plan_request.h"
#include "tests/gpu/support/emulated_backend.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/host_run.h"
#include "tests/support/test_main.h"

enum { MIB = 1 << 20, CASES = 2 };

// The report of one of the committed plans, counted by what the device gives (option "bytes").
static json_t *reported(const char *name, sp_clock clock, const char *bytes, device_memory *memory)
{
    AUTO(sp_plan_input) in;
    char path[256];
    const sp_backend_option options[] = {{"cudnn", "off"}, {"bytes", bytes}};
    snprintf(path, sizeof path, "%s/gpu/thresholds/gradients/%s.json", SP_TEST_SOURCE_DIR, name);
    must_succeed(sp_plan_input_read(path, &in, ERR));
    sp_run_request request = plan_request(&in, clock, 2);
    request.options = options;
    request.option_count = 2;
    OWNED(emulated_backend) backend = emulated_backend_new();
    fake.counts_memory = true;
    fake.total_bytes = (size_t)8 << 30;
    fake.context_bytes = 3 * MIB;
    const host_device device = {.backend = backend};
    OWNED(sp_run) run = host_run(&device, &request);
    json_t *report = sp_run_report(run);
    assert_non_null(report);
    assert_true(device_memory_of(report, sp_run_step(run, 1), memory));
    // The record of the run has it.
    json_auto_t *record = sp_result_document("cuda", &request, json_null(), NULL, SP_OK, NULL);
    sp_result_document_add(record, run);
    const json_t *batch = json_array_get(json_object_get(record, "batches"), 0);
    assert_true(json_equal(json_object_get(batch, "report"), report));
    return report;
}

// What the ranks count by the device's measure is what the block gave them, but for scratch memory
// and what passes between them: less than 4 MiB.
TEST(the_block_is_what_ranks_count)
{
    static const sp_clock clocks[CASES] = {SP_CLOCK_VIRTUAL, SP_CLOCK_WALL};
    device_memory cases[CASES];
    for (int i = 0; i < CASES; i++) {
        device_memory *m = &cases[i];
        json_auto_t *report = reported("01-packed-pp2", clocks[i], "taken", m);
        const int streams = clocks[i] == SP_CLOCK_WALL ? 2 : 1;
        assert_int_equal(json_integer_value(json_object_get(report, "streams")), streams);
        assert_int_equal(m->workspaces, (int64_t)streams * SP_I_CUDA_GEMM_WORKSPACE);
        // Two green contexts, or a plain stream.
        assert_int_equal(m->libraries, streams == 2 ? 2 * 3 * MIB : 0);
        const int64_t taken = m->block_peak - m->workspaces;
        assert_true(m->counted <= taken && m->counted > taken - 4 * MIB);
        assert_true(m->device >= m->block_peak + m->libraries);
    }
    const double mape = device_memory_mape(cases, CASES);
    assert_close(mape, 0.5 * (fabs(cases[0].error) + fabs(cases[1].error)), 1e-12);
}

// Who computed attention is counted: two packs, two layers, a forward and a backward of each, in
// two steps, by the reference kernels.
TEST(launches_of_attention_are_counted)
{
    device_memory memory;
    json_auto_t *report = reported("01-packed-pp2", SP_CLOCK_VIRTUAL, "real", &memory);
    const json_t *attention = json_object_get(report, "attention");
    assert_int_equal(json_integer_value(json_object_get(attention, "cudnn")), 0);
    assert_int_equal(json_integer_value(json_object_get(attention, "reference")), 2 * 2 * 2 * 2);
}

TEST(a_report_without_memory_is_refused)
{
    device_memory memory;
    const sp_measured_step step = {0};
    json_auto_t *report = json_pack("{s:{s:i}}", "memory", "context", 1);
    assert_false(device_memory_of(report, &step, &memory));
    assert_false(device_memory_of(NULL, &step, &memory));
}
