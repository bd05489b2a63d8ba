// What a captured step uploads from the host (machine.h, capture_begin): in pinned memory of its
// own, because every repetition copies it again. Behind a lane (lane.h) alone.
#ifndef SLIMPACK_BACKENDS_CUDA_DEVICE_KEPT_H
#define SLIMPACK_BACKENDS_CUDA_DEVICE_KEPT_H

#include "backends/cuda/device/device.h"

// Numbers that are read again before each repetition, or their order.
typedef struct sp_i_cuda_kept_numbers {
    const int64_t *from; // [count], the caller's
    int64_t *to;         // [count]; of an order [2 * count], the second half for its making
    int64_t count;
    bool ordered;
} sp_i_cuda_kept_numbers;

typedef struct sp_i_cuda_kept {
    bool capturing;  // what is uploaded now is kept
    bool fixed;      // a captured step knows the lane's addresses
    int64_t counted; // bytes that the uploads since the rehearsal's begin would keep
    char *room;
    int64_t bytes, used;
    sp_i_cuda_kept_numbers *numbers;
    size_t count, capacity;
} sp_i_cuda_kept;

// What so many bytes take of the room.
int64_t sp_i_cuda_kept_size(int64_t bytes);

// Makes room for what was counted; uploads are kept from here to _end.
sp_status sp_i_cuda_kept_begin(sp_i_cuda_kept *kept, const sp_i_cuda_device *device, sp_error *err);
void sp_i_cuda_kept_end(sp_i_cuda_kept *kept);
void sp_i_cuda_kept_fini(sp_i_cuda_kept *kept, const sp_i_cuda_device *device);

// Room for bytes; NULL where it does not suffice.
void *sp_i_cuda_kept_take(sp_i_cuda_kept *kept, int64_t bytes);
// Takes over numbers that stay where they are and may change. NULL where room or memory of the host
// does not suffice.
void *sp_i_cuda_kept_add(sp_i_cuda_kept *kept, const int64_t *numbers, int64_t count, bool ordered);
// Reads all numbers again.
void sp_i_cuda_kept_refill(const sp_i_cuda_kept *kept);

#endif
