// Delays end when they should, on the device's own timer.
#include "kernels/cuda_kernels.h"
#include "tests/gpu/kernels_test.h"

static int64_t between_stamps(int64_t delay_ns)
{
    int64_t *stamps = device_new(2 * sizeof *stamps);
    int64_t at[2];
    device_wait(sp_cuda_stamp(&stamps[0], NULL));
    device_wait(sp_cuda_delay(delay_ns, NULL));
    device_wait(sp_cuda_stamp(&stamps[1], NULL));
    device_get(at, stamps, sizeof at);
    device_free(stamps);
    return at[1] - at[0];
}

static void delay(void)
{
    static const int64_t delays_ns[] = {1, 1000, 50 * 1000, 20 * 1000 * 1000};
    for (size_t i = 0; i < sizeof delays_ns / sizeof *delays_ns; i++) {
        int64_t ns = between_stamps(delays_ns[i]);
        EXPECT(ns >= delays_ns[i]);
        // A unit that is wrong is off by a factor of a thousand.
        EXPECT(ns < 20 * delays_ns[i] + 100 * 1000 * 1000);
    }
}

static void no_delay(void)
{
    static const int64_t none_ns[] = {0, -1, INT64_MIN};
    for (size_t i = 0; i < sizeof none_ns / sizeof *none_ns; i++) {
        int64_t ns = between_stamps(none_ns[i]);
        EXPECT(ns >= 0 && ns < 100 * 1000 * 1000);
    }
}

const kernel_case kernels_delay_cases[] = {
    KERNEL_CASE(delay),
    KERNEL_CASE(no_delay),
    {NULL, NULL},
};
