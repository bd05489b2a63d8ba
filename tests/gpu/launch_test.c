// Launches of kernels on a driver that only looks at them: names, sizes and arguments as the
// image's kernels have them. Plain C, as kernels_test.c.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda_kernels.h"
#include "kernels/driver.h"

#define EXPECT(condition)                                                       \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

enum { SMS = 10, RESIDENT = 3 };

static struct {
    char name[64];
    CUlaunchConfig config;
    unsigned char kept[8]; // the first bytes of the first argument
    int loads, found, launches, wide_memory;
} seen;

static CUresult load(CUlibrary *library, const void *code, CUjit_option *options, void **values,
                     unsigned count, CUlibraryOption *library_options, void **library_values,
                     unsigned library_count)
{
    unsigned magic;
    memcpy(&magic, code, sizeof magic);
    EXPECT(magic == 0xba55ed50U); // of a fat binary
    EXPECT(options == NULL && values == NULL && count == 0);
    EXPECT(library_options == NULL && library_values == NULL && library_count == 0);
    seen.loads++;
    *library = (CUlibrary)(void *)&seen;
    return CUDA_SUCCESS;
}

static CUresult get(CUkernel *kernel, CUlibrary library, const char *name)
{
    EXPECT(library == (CUlibrary)(void *)&seen);
    seen.found++;
    if (strcmp(name, "gelu_narrow") == 0) { // as if the image had it not
        return CUDA_ERROR_NOT_FOUND;
    }
    const size_t bytes = strlen(name) + 1;
    char *made = malloc(bytes);
    EXPECT(made != NULL);
    memcpy(made, name, bytes);
    *kernel = (CUkernel)(void *)made;
    return CUDA_SUCCESS;
}

static CUresult device_of(CUdevice *device)
{
    *device = 5;
    return CUDA_SUCCESS;
}

static CUresult attribute(int *value, CUdevice_attribute which, CUdevice device)
{
    EXPECT(which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT && device == 5);
    *value = SMS;
    return CUDA_SUCCESS;
}

static CUresult occupancy(int *blocks, CUfunction function, int threads, size_t shared_bytes)
{
    EXPECT(function != NULL && threads > 0 && shared_bytes == 0);
    *blocks = RESIDENT;
    return CUDA_SUCCESS;
}

static CUresult set(CUfunction_attribute which, int value, CUkernel kernel, CUdevice device)
{
    EXPECT(which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && device == 5);
    EXPECT(kernel != NULL);
    seen.wide_memory = value;
    return CUDA_SUCCESS;
}

static CUresult launch(const CUlaunchConfig *config, CUfunction function, void **arguments,
                       void **extra)
{
    EXPECT(extra == NULL && config->numAttrs == 0);
    snprintf(seen.name, sizeof seen.name, "%s", (const char *)(void *)function);
    seen.config = *config;
    memcpy(seen.kept, arguments[0], sizeof seen.kept);
    seen.launches++;
    return CUDA_SUCCESS;
}

static void expect_launch(const char *name, unsigned x, unsigned y, unsigned threads)
{
    const CUlaunchConfig *c = &seen.config;
    if (strcmp(seen.name, name) != 0) {
        fprintf(stderr, "%s was launched, not %s\n", seen.name, name);
        exit(1);
    }
    EXPECT(c->gridDimX == x && c->gridDimY == y && c->gridDimZ == 1);
    EXPECT(c->blockDimX == threads && c->blockDimY == 1 && c->blockDimZ == 1);
}

int main(void)
{
    static const sp_cuda_api api = {.LibraryLoadData = load,
                                    .LibraryGetKernel = get,
                                    .CtxGetDevice = device_of,
                                    .DeviceGetAttribute = attribute,
                                    .OccupancyMaxActiveBlocksPerMultiprocessor = occupancy,
                                    .KernelSetAttribute = set,
                                    .LaunchKernelEx = launch};
    sp_cuda_stream stream = (sp_cuda_stream)(void *)&seen;
    sp_bf16 *x = (sp_bf16 *)(uintptr_t)4096; // aligned; nobody reads it
    int64_t at = 0;
    int64_t ns = 12345;
    // The image is loaded once.
    EXPECT(sp_cuda_kernels_load(&api) == 0 && sp_cuda_kernels_load(&api) == 0 && seen.loads == 1);

    EXPECT(sp_cuda_delay(ns, stream) == 0);
    expect_launch("delay", 1, 1, 32);
    EXPECT(memcmp(seen.kept, &ns, sizeof ns) == 0 && seen.config.hStream == stream);
    const int64_t *to = &at;
    EXPECT(sp_cuda_stamp(&at, NULL) == 0);
    expect_launch("stamp", 1, 1, 32);
    EXPECT(memcmp(seen.kept, &to, sizeof to) == 0 && seen.config.hStream == NULL);

    // 2 vectors of 8 a thread, in blocks of 256; one element at a time where rows are not aligned;
    // no more blocks than the device holds, 8 of 256 threads on each SM.
    EXPECT(sp_cuda_add(8 * 2 * 256 * 7, x, x, stream) == 0);
    expect_launch("add_wide", 7, 1, 256);
    EXPECT(sp_cuda_add(2 * 256 * 7, x + 1, x, stream) == 0);
    expect_launch("add_narrow", 7, 1, 256);
    EXPECT(sp_cuda_add((int64_t)1 << 30, x, x, stream) == 0);
    expect_launch("add_wide", 8 * SMS, 1, 256);
    // A kernel is looked for once.
    EXPECT(seen.found == 4 && seen.launches == 5);

    // Blocks for the rows that are resident, of as many warps as hold a row by 4 vectors a thread.
    EXPECT(sp_cuda_rms_norm(1000, 4096, x, 4096, x, 1e-5, x, 4096, (float *)x, stream) == 0);
    expect_launch("rms_norm_wide", SMS * RESIDENT, 1, 4096 / 8 / 4);
    int64_t rows;
    memcpy(&rows, seen.kept, sizeof rows);
    EXPECT(rows == 1000);

    // Shared memory of more than 48 KiB is asked for first: q, out and 128 scores in fp32.
    const sp_kernel_attention_shape shape = {.heads = 2, .kv_heads = 1, .head_dim = 8192};
    const sp_cuda_attention_pack pack = {.count = 1, .rows = 6, .gradient_rows = 6};
    EXPECT(sp_cuda_attention(&shape, &pack, false, stream) == 0);
    expect_launch("attention_forward", 6, 2, 128);
    EXPECT(seen.config.sharedMemBytes == 4 * (2 * 8192 + 128));
    EXPECT(seen.wide_memory == 4 * (2 * 8192 + 128));

    // A kernel that is not there, and a shape that is none, are told by code and launch nothing.
    const int before = seen.launches;
    EXPECT(sp_cuda_gelu(3, x, x, stream) == CUDA_ERROR_NOT_FOUND);
    EXPECT(sp_cuda_rope_table(4, 3, 1e4, (float *)x, (float *)x, stream) ==
           CUDA_ERROR_INVALID_VALUE);
    EXPECT(seen.launches == before);
    return 0;
}
