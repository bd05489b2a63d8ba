// What holds a GPU's gradients against fp64 on a machine with a GPU (tests/gpu/gradients.h), on the
// emulated device: the committed plans agree, and a step that computes something else does not.
#include "tests/gpu/gradients.h"
#include "tests/gpu/support/emulated_backend.h"
#include "tests/support/host_run.h"
#include "tests/support/test_main.h"

static const char folder[] = SP_TEST_SOURCE_DIR "/gpu/thresholds/gradients";
// Of the GPU alone.
static const sp_backend_option on_gpu[] = {{"cudnn", "off"}, {"dropout", "0.25"}};

static gradients_report compare(const char *name, size_t options)
{
    char path[1024];
    host_device cpu;
    sp_error_clear(ERR);
    gradients_report report;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    sp_backend *gpu = emulated_backend_new();
    host_open(&cpu);
    if (gradients_compare_file(gpu, cpu.backend, path, on_gpu, options, &report, ERR) != SP_OK) {
        fail_msg("%s: %s", name, ERR->message[0]);
    }
    host_close(&cpu);
    emulated_backend_free(gpu);
    return report;
}

TEST(committed_plans_agree)
{
    static const char *const names[] = {"01-packed-pp2.json", "02-slices-tp2-pp2.json",
                                        "03-packed-pp2-wall.json", "04-packed-cp2.json",
                                        "05-zb-h1-dp2-pp2-wall.json"};
    // Tables, parameters of two layers (norms, QKV, output, gate and up in one, down) and the last
    // norm: 2 + 2 * 6 + 1 of a Llama; of a GPT each with a bias: 2 + 2 * 12 + 2.
    static const int tensors[] = {15, 15, 15, 28, 28};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        gradients_report report = compare(names[i], 1);
        printf("%s: %.2f of the bound, %s\n", names[i], report.worst, report.tensor);
        assert_true(report.worst <= 1.0);
        assert_true(report.worst > 0.0);
        assert_int_equal(report.tensors, tensors[i]);
        assert_within(report.loss, log(61.0), 0.1);
    }
}

// Dropout, which a Llama has not, that the plain step knows nothing of.
TEST(another_step_does_not)
{
    gradients_report report = compare("04-packed-cp2.json", 2);
    assert_true(report.worst > 1.0);
    assert_true(report.distance > report.bound);
}
