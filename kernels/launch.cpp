// The image of all kernels, and their launches.
#include "kernels/launch.h"

#include <pthread.h>

// A fat binary (image.S): code of each architecture that the build names, and PTX, which the driver
// compiles for devices that are newer.
extern "C" const unsigned char sp_cuda_image[];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sp_cuda_api driver;
static CUlibrary library; // for the life of the process

int sp_cuda_kernels_load(const struct sp_cuda_api *api)
{
    CUresult code = CUDA_SUCCESS;
    (void)pthread_mutex_lock(&lock);
    if (library == NULL) {
        driver = *api;
        code = driver.LibraryLoadData(&library, sp_cuda_image, NULL, NULL, 0, NULL, NULL, 0);
    }
    (void)pthread_mutex_unlock(&lock);
    return code;
}

static CUresult find(sp_i_entry *entry, CUkernel *kernel)
{
    CUresult code = CUDA_SUCCESS;
    *kernel = entry->found.load(std::memory_order_relaxed);
    if (*kernel == NULL) {
        code = driver.LibraryGetKernel(kernel, library, entry->name);
        entry->found.store(*kernel, std::memory_order_relaxed);
    }
    return code;
}

// A kernel stands for itself in every context, where the driver wants a function of one.
static CUfunction function_of(CUkernel kernel)
{
    return reinterpret_cast<CUfunction>(kernel);
}

int sp_i_multiprocessors()
{
    CUdevice device = 0;
    int count = 0;
    bool known = driver.CtxGetDevice(&device) == CUDA_SUCCESS &&
                 driver.DeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                           device) == CUDA_SUCCESS;
    return known ? count : 0;
}

int sp_i_resident(sp_i_entry *entry, int threads)
{
    CUkernel kernel;
    int blocks = 0;
    bool known = find(entry, &kernel) == CUDA_SUCCESS &&
                 driver.OccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function_of(kernel),
                                                                  threads, 0) == CUDA_SUCCESS;
    return known && blocks > 0 ? blocks : 1;
}

int sp_i_put(sp_i_entry *entry, dim3 grid, int threads, size_t shared_bytes, sp_cuda_stream stream,
             void **arguments)
{
    const size_t without_asking = 48 * 1024;
    CUkernel kernel;
    CUdevice device = 0;
    CUresult code = find(entry, &kernel);
    if (code == CUDA_SUCCESS && shared_bytes > without_asking) {
        code = driver.CtxGetDevice(&device);
        code = code != CUDA_SUCCESS
                   ? code
                   : driver.KernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                               static_cast<int>(shared_bytes), kernel, device);
    }
    if (code != CUDA_SUCCESS) {
        return code;
    }
    CUlaunchConfig config = {};
    config.gridDimX = grid.x;
    config.gridDimY = grid.y;
    config.gridDimZ = grid.z;
    config.blockDimX = static_cast<unsigned>(threads);
    config.blockDimY = 1;
    config.blockDimZ = 1;
    config.sharedMemBytes = static_cast<unsigned>(shared_bytes);
    config.hStream = stream;
    return driver.LaunchKernelEx(&config, function_of(kernel), arguments, NULL);
}
