// Tensors of a test: values on the host as fp64 numbers that their type holds exactly, and the same
// on the device, between margins that nobody may write to. Elements between rows are NaN on the
// device and must stay so.
#ifndef SLIMPACK_TESTS_GPU_KERNELS_TENSOR_H
#define SLIMPACK_TESTS_GPU_KERNELS_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/bf16.h"

// The memory of the device that the kernels under test run on: a CUDA device, or the CPU that
// emulates one. Errors end the program with a message.

// NULL if there is a device to run on, else what is missing.
const char *device_missing(void);

// 256-byte aligned.
void *device_new(size_t bytes);
void device_free(void *memory);

void device_put(void *to, const void *from, size_t bytes);
void device_get(void *to, const void *from, size_t bytes);

// Takes what a launcher returned, waits for the device, and ends the program if either failed.
void device_wait(int error);

typedef enum tensor_type { TENSOR_BF16, TENSOR_FP32, TENSOR_FP64, TENSOR_INT64 } tensor_type;

// How a tensor lies in memory: elements before the first row, and between rows.
typedef struct tensor_layout {
    int64_t offset, gap;
} tensor_layout;

// 16-byte aligned rows; the same with gaps; nothing aligned.
enum { TENSOR_LAYOUTS = 3 };
extern const tensor_layout tensor_layouts[TENSOR_LAYOUTS];

typedef struct tensor {
    tensor_type type;
    int64_t rows, columns, stride;
    double *value; // [rows, stride], NaN between rows
    void *device;  // of the first element
    void *memory;
    int64_t offset;
} tensor;

// Numbers in [-size, size), or an output that is NaN before it is written. All that these functions
// make lives until tensor_free_all.
tensor tensor_drawn(tensor_type type, int64_t rows, int64_t columns, tensor_layout layout,
                    double size);
tensor tensor_blank(tensor_type type, int64_t rows, int64_t columns, tensor_layout layout);

// Copies the values to the device, rounded to the type, and the rounded ones back into `value`.
void tensor_put(tensor *t);

// Copies the device's values into `value`; ends the program if a margin or a gap was written to.
void tensor_get(tensor *t);

// A copy of the values, to compute what is expected.
double *tensor_values(const tensor *t);
double *tensor_zeros(int64_t n);

void tensor_free_all(void);

// A case draws the same numbers alone and after others.
void tensor_start_draws(void);

// Fetches the tensor and ends the program with a message where an element differs from `expected`
// [rows, stride] by more than relative |expected| + absolute.
void tensor_check(const char *what, tensor *t, const double *expected, double relative,
                  double absolute);

// The same with the absolute bound as a share of the largest expected element.
void tensor_check_share(const char *what, tensor *t, const double *expected, double relative,
                        double share);

// From a fixed seed.
double tensor_random(void); // in [0, 1)
int64_t tensor_below(int64_t n);

#define BF16(t) ((sp_bf16 *)(t).device)
#define FP32(t) ((float *)(t).device)
#define FP64(t) ((double *)(t).device)
#define INT64(t) ((int64_t *)(t).device)

// Half a unit in the last place of bf16, and a little for what fp32 rounded before.
#define BF16_ROUNDING (1.02 / 256)

#endif
