#include "backends/cuda/calibrate/random_data.h"

#include <math.h>
#include <string.h>

#include "backends/cuda/device/transfer.h"
#include "sim/base/alloc.h"
#include "sim/base/prng.h"

enum { DRAWN = 4 << 20 };

uint16_t sp_i_bf16(double value)
{
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1);
    return (uint16_t)(bits >> 16);
}

double sp_i_bf16_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float single;
    memcpy(&single, &wide, sizeof single);
    return (double)single;
}

// Box and Muller's two normal numbers of two uniform ones.
static void draw(uint16_t *values, int64_t count, double deviation, uint64_t seed)
{
    sp_prng prng;
    sp_prng_seed(&prng, seed);
    for (int64_t i = 0; i < count; i += 2) {
        double radius = deviation * sqrt(-2.0 * log(1.0 - sp_prng_uniform(&prng)));
        double angle = 6.283185307179586 * sp_prng_uniform(&prng);
        values[i] = sp_i_bf16(radius * cos(angle));
        if (i + 1 < count) {
            values[i + 1] = sp_i_bf16(radius * sin(angle));
        }
    }
}

sp_status sp_i_cuda_fill_normal(const sp_i_cuda_device *device, void *data, int64_t elements,
                                double deviation, uint64_t seed, cudaStream_t stream, sp_error *err)
{
    int64_t drawn = elements < DRAWN ? elements : DRAWN;
    uint16_t *values = sp_i_malloc((size_t)drawn * sizeof *values);
    if (values == NULL) {
        return sp_error_no_memory(err, "random numbers");
    }
    draw(values, drawn, deviation, seed);
    sp_status status = sp_i_cuda_upload(device, data, values, 2 * drawn, stream, err);
    sp_i_free(values);
    for (int64_t done = drawn; status == SP_OK && done < elements; done += drawn) {
        int64_t part = elements - done < drawn ? elements - done : drawn;
        status = SP_I_CUDA(device, err, MemcpyAsync, (char *)data + 2 * done, data,
                           (size_t)(2 * part), cudaMemcpyDeviceToDevice, stream);
    }
    return status == SP_OK ? SP_I_CUDA(device, err, StreamSynchronize, stream) : status;
}
