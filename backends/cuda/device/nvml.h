// What the GPU says of its clocks and its power, by NVIDIA's management library where there is one.
// Nothing is set.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_NVML_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_NVML_H

#include <stdbool.h>
#include <stddef.h>

typedef struct sp_i_nvml sp_i_nvml;

// A reading; a member that the GPU does not give is -1.
typedef struct sp_i_nvml_state {
    int sm_mhz, memory_mhz;
    double power_w, power_limit_w;
    int temperature_c;
    long long throttle; // bits of nvmlClocksEventReasons
} sp_i_nvml_state;

// Of the GPU with this PCI bus ("0000:8b:00.0"). NULL, with the reason, where there is no library.
sp_i_nvml *sp_i_nvml_open(const char *pci_bus, char *reason, size_t reason_bytes);
void sp_i_nvml_close(sp_i_nvml *nvml);
sp_i_nvml_state sp_i_nvml_read(const sp_i_nvml *nvml);
// "580.65.06", or "" where it cannot be had.
void sp_i_nvml_driver(const sp_i_nvml *nvml, char *text, size_t text_bytes);

#endif
