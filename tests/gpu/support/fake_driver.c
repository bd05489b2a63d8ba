// A CUDA driver that holds no device and loads every kernel without looking at it, built under the
// driver's own name: with it in the process, cuDNN finishes plans for the properties of a device
// that is not here. Calls that would need a device fail.

enum { SUCCESS = 0, NO_DEVICE = 100, VERSION = 13000 };

static char anything[64];

int cuInit(unsigned flags)
{
    return NO_DEVICE;
}

int cuDriverGetVersion(int *version)
{
    *version = VERSION;
    return SUCCESS;
}

int cuLibraryLoadData(void **library, const void *code, void *options, void *values, unsigned count,
                      void *library_options, void *library_values, unsigned library_count)
{
    *library = anything;
    return SUCCESS;
}

int cuLibraryUnload(void *library)
{
    return SUCCESS;
}

int cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
    *kernel = anything;
    return SUCCESS;
}

int cuKernelSetAttribute(int attribute, int value, void *kernel, int device)
{
    return SUCCESS;
}

int cuKernelGetAttribute(int *value, int attribute, void *kernel, int device)
{
    *value = 0;
    return SUCCESS;
}

int cuGetErrorString(int code, const char **text)
{
    *text = "no device";
    return SUCCESS;
}

int cuGetErrorName(int code, const char **text)
{
    return cuGetErrorString(code, text);
}

// Looked up when cuDNN starts, called only where there is a device.
#define NEEDS_DEVICE(name) \
    int name(void)         \
    {                      \
        return NO_DEVICE;  \
    }

NEEDS_DEVICE(cuCtxGetCurrent)
NEEDS_DEVICE(cuCtxGetLimit)
NEEDS_DEVICE(cuCtxPopCurrent)
NEEDS_DEVICE(cuCtxPushCurrent)
NEEDS_DEVICE(cuDeviceGet)
NEEDS_DEVICE(cuDeviceGetCount)
NEEDS_DEVICE(cuKernelGetFunction)
NEEDS_DEVICE(cuLaunchCooperativeKernel)
NEEDS_DEVICE(cuLaunchKernel)
NEEDS_DEVICE(cuLaunchKernelEx)
NEEDS_DEVICE(cuLibraryLoadFromFile)
NEEDS_DEVICE(cuLinkAddData)
NEEDS_DEVICE(cuLinkComplete)
NEEDS_DEVICE(cuLinkCreate)
NEEDS_DEVICE(cuLinkDestroy)
NEEDS_DEVICE(cuModuleGetFunction)
NEEDS_DEVICE(cuModuleLoadData)
NEEDS_DEVICE(cuModuleUnload)
NEEDS_DEVICE(cuOccupancyMaxPotentialClusterSize)
NEEDS_DEVICE(cuStreamGetCtx)
NEEDS_DEVICE(cuTensorMapEncodeIm2col)
NEEDS_DEVICE(cuTensorMapEncodeTiled)
