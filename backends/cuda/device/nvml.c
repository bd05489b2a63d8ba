#include "backends/cuda/device/nvml.h"

#include <stdio.h>

#include "backends/cuda/device/api.h"
#include "sim/base/alloc.h"

// The toolkit does not always bring nvml.h. These are the calls and numbers that it documents; the
// library keeps them for good.
typedef struct nvml_device *nvml_device;

enum { NVML_OK = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2, NVML_TEMPERATURE_GPU = 0 };

struct sp_i_nvml {
    int (*Init)(void);
    int (*Shutdown)(void);
    const char *(*ErrorString)(int code);
    int (*HandleByPci)(const char *bus, nvml_device *device);
    int (*ClockInfo)(nvml_device device, int which, unsigned *mhz);
    int (*PowerUsage)(nvml_device device, unsigned *mw);
    int (*PowerLimit)(nvml_device device, unsigned *mw);
    int (*Temperature)(nvml_device device, int sensor, unsigned *celsius);
    int (*Throttle)(nvml_device device, unsigned long long *reasons);
    int (*DriverVersion)(char *text, unsigned bytes);
    nvml_device device;
};

sp_i_nvml *sp_i_nvml_open(const char *pci_bus, char *reason, size_t reason_bytes)
{
    static const char *const names[] = {"libnvidia-ml.so.1", NULL};
    static const sp_i_library_symbol symbols[] = {
        {"nvmlInit_v2", offsetof(sp_i_nvml, Init)},
        {"nvmlShutdown", offsetof(sp_i_nvml, Shutdown)},
        {"nvmlErrorString", offsetof(sp_i_nvml, ErrorString)},
        {"nvmlDeviceGetHandleByPciBusId_v2", offsetof(sp_i_nvml, HandleByPci)},
        {"nvmlDeviceGetClockInfo", offsetof(sp_i_nvml, ClockInfo)},
        {"nvmlDeviceGetPowerUsage", offsetof(sp_i_nvml, PowerUsage)},
        {"nvmlDeviceGetEnforcedPowerLimit", offsetof(sp_i_nvml, PowerLimit)},
        {"nvmlDeviceGetTemperature", offsetof(sp_i_nvml, Temperature)},
        {"nvmlDeviceGetCurrentClocksThrottleReasons", offsetof(sp_i_nvml, Throttle)},
        {"nvmlSystemGetDriverVersion", offsetof(sp_i_nvml, DriverVersion)},
    };
    sp_i_nvml *nvml = sp_calloc(1, sizeof *nvml);
    if (nvml == NULL) {
        snprintf(reason, reason_bytes, "out of memory");
        return NULL;
    }
    if (!sp_i_library_open(names, symbols, sizeof symbols / sizeof *symbols, nvml, reason,
                           reason_bytes)) {
        sp_free(nvml);
        return NULL;
    }
    int code = nvml->Init();
    if (code == NVML_OK) {
        code = nvml->HandleByPci(pci_bus, &nvml->device);
        if (code != NVML_OK) {
            (void)nvml->Shutdown();
        }
    }
    if (code != NVML_OK) {
        snprintf(reason, reason_bytes, "NVML: %s", nvml->ErrorString(code));
        sp_free(nvml);
        return NULL;
    }
    return nvml;
}

void sp_i_nvml_close(sp_i_nvml *nvml)
{
    if (nvml != NULL) {
        (void)nvml->Shutdown();
        sp_free(nvml);
    }
}

sp_i_nvml_state sp_i_nvml_read(const sp_i_nvml *nvml)
{
    unsigned value;
    unsigned long long reasons;
    nvml_device device = nvml->device;
    sp_i_nvml_state s = {-1, -1, -1.0, -1.0, -1, -1};
    if (nvml->ClockInfo(device, NVML_CLOCK_SM, &value) == NVML_OK) {
        s.sm_mhz = (int)value;
    }
    if (nvml->ClockInfo(device, NVML_CLOCK_MEMORY, &value) == NVML_OK) {
        s.memory_mhz = (int)value;
    }
    if (nvml->PowerUsage(device, &value) == NVML_OK) {
        s.power_w = 1e-3 * value;
    }
    if (nvml->PowerLimit(device, &value) == NVML_OK) {
        s.power_limit_w = 1e-3 * value;
    }
    if (nvml->Temperature(device, NVML_TEMPERATURE_GPU, &value) == NVML_OK) {
        s.temperature_c = (int)value;
    }
    if (nvml->Throttle(device, &reasons) == NVML_OK) {
        s.throttle = (long long)reasons;
    }
    return s;
}

void sp_i_nvml_driver(const sp_i_nvml *nvml, char *text, size_t text_bytes)
{
    if (nvml->DriverVersion(text, (unsigned)text_bytes) != NVML_OK) {
        text[0] = '\0';
    }
}
