#include "backends/cuda/kept.h"

#include <string.h>

#include "kernels/cuda_kernels.h"
#include "sim/base/alloc.h"

enum { ALIGNMENT = 256 };

int64_t sp_i_cuda_kept_size(int64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

sp_status sp_i_cuda_kept_begin(sp_i_cuda_kept *kept, const sp_i_cuda_device *device, sp_error *err)
{
    void *room = NULL;
    sp_status status = SP_OK;
    if (kept->counted > 0) {
        status =
            SP_I_CUDA(device, err, HostAlloc, &room, (size_t)kept->counted, cudaHostAllocDefault);
    }
    if (status == SP_OK) {
        kept->room = room;
        kept->bytes = kept->counted;
        kept->capturing = kept->fixed = true;
    }
    return status;
}

void sp_i_cuda_kept_end(sp_i_cuda_kept *kept)
{
    kept->capturing = false;
}

void sp_i_cuda_kept_fini(sp_i_cuda_kept *kept, const sp_i_cuda_device *device)
{
    if (kept->room != NULL) {
        (void)device->api->FreeHost(kept->room);
    }
    sp_i_free(kept->numbers);
    *kept = (sp_i_cuda_kept){0};
}

void *sp_i_cuda_kept_take(sp_i_cuda_kept *kept, int64_t bytes)
{
    int64_t size = sp_i_cuda_kept_size(bytes);
    if (size > kept->bytes - kept->used) {
        return NULL;
    }
    void *taken = kept->room + kept->used;
    kept->used += size;
    return taken;
}

static void fill(const sp_i_cuda_kept_numbers *n)
{
    if (n->ordered) {
        sp_cuda_embedding_order(n->count, n->from, n->to, n->to + n->count);
    } else {
        memcpy(n->to, n->from, (size_t)n->count * sizeof *n->to);
    }
}

void *sp_i_cuda_kept_add(sp_i_cuda_kept *kept, const int64_t *numbers, int64_t count, bool ordered)
{
    const int64_t bytes = count * (int64_t)sizeof *numbers;
    if (!sp_i_reserve((void **)&kept->numbers, &kept->capacity, kept->count + 1,
                      sizeof *kept->numbers)) {
        return NULL;
    }
    void *to = sp_i_cuda_kept_take(kept, ordered ? 2 * bytes : bytes);
    if (to != NULL) {
        const sp_i_cuda_kept_numbers added = {numbers, to, count, ordered};
        kept->numbers[kept->count++] = added;
        fill(&added);
    }
    return to;
}

void sp_i_cuda_kept_refill(const sp_i_cuda_kept *kept)
{
    for (size_t i = 0; i < kept->count; i++) {
        fill(&kept->numbers[i]);
    }
}
