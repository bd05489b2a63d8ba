// A fake GPU (fake_cuda.h) whose clock goes on as its products, kernels and copies say, and a
// calibration of it, with attention by kernels if it is asked for. One of four partitions takes
// four times as long as the whole device, and five times beside busy neighbours.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_CLOCKED_CUDA_H
#define SLIMPACK_TESTS_GPU_SUPPORT_CLOCKED_CUDA_H

#include "backends/cuda/calibration.h"
#include "tests/gpu/support/fake_cuda.h"
#include "tests/support/test_main.h"

#define FLOPS_PER_NS 250000.0 // 250 TFLOP/s
#define BYTES_PER_NS 1000.0   // written, of copies: 2000 GB/s read and written
#define MOVED_PER_NS 1600.0   // of kernels: 1600 GB/s
#define ATTEND_FLOPS_PER_NS 200000.0
#define ATTEND_BACKWARD_FLOPS_PER_NS 150000.0
enum { PRODUCT_NS = 4000, WEIGHT_NS = 9000, SMALL_NS = 2000, LAUNCH_NS = 3000 };
enum { PLACES = 4, ALONE = 4, LOADED = 5 };
// Of a logit forward and backward, of a parameter: at the rate of kernels.
enum { LOSS_BYTES = 12, LOSS_BACKWARD_BYTES = 24, STEP_BYTES = 40 };

typedef struct clocked_cuda {
    sp_cuda_api api;
    int delays;   // so far
    int told_sms; // products that were told the 32 SMs of one of four partitions
    bool partitioned, busy;
    const sp_calibration_request *request; // set by the test; NULL: none
    bool attends;                          // set by the test: attention's kernels are timed
} clocked_cuda;

extern clocked_cuda clocked;

// A product of the whole device.
double product_ns(double m, double n, double k, bool weight);

// What is known of this GPU from elsewhere; the caller's.
json_t *known(void);

// Calibrates with what is known; checks that nothing is left but the document, which stands for
// what was written when a call failed. fake_cuda_reset(&clocked.api) goes before.
sp_status clocked_calibrate(int places, json_t **document, sp_error *err);
// The document of a calibration that must not fail.
json_t *calibrated_in(int places);

// Tables of all products of the model, `times` as long as on the whole device.
void check_tables(const json_t *document, int times);

#endif
