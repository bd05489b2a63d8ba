// The memory of the device that the kernels under test run on: a CUDA device, or the CPU that
// emulates one. Errors end the program with a message.
#ifndef SLIMPACK_TESTS_GPU_KERNELS_DEVICE_H
#define SLIMPACK_TESTS_GPU_KERNELS_DEVICE_H

#include <stddef.h>

// NULL if there is a device to run on, else what is missing.
const char *device_missing(void);

// 256-byte aligned.
void *device_new(size_t bytes);
void device_free(void *memory);

void device_put(void *to, const void *from, size_t bytes);
void device_get(void *to, const void *from, size_t bytes);

// Takes what a launcher returned, waits for the device, and ends the program if either failed.
void device_wait(int error);

#endif
