#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/kernels_tensor.h"
#include "tests/gpu/kernels_test.h"

const char *device_missing(void)
{
    return NULL;
}

void *device_new(size_t bytes)
{
    void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

void device_free(void *memory)
{
    free(memory);
}

void device_put(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

void device_get(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

void device_wait(int error)
{
    if (error != 0) {
        fprintf(stderr, "a kernel's launcher returned %d\n", error);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    return gpu_kernels_test(argc, argv);
}
