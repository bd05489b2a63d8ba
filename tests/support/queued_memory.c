#include "tests/support/queued_memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/api/device_runtime.h"
#include "sim/base/alloc.h"

// All bits set: NaN in every type.
enum { NOT_WRITTEN = 0xff };

static size_t rounded(int64_t bytes)
{
    size_t unit = SP_RUNTIME_ALIGNMENT;
    return ((size_t)bytes + unit) / unit * unit;
}

// Addresses that nothing can be read from or written to.
static char *closed_addresses(size_t bytes)
{
    int zeros = open("/dev/zero", O_RDWR);
    if (zeros < 0) {
        return NULL;
    }
    void *address = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE, zeros, 0);
    close(zeros);
    return address != MAP_FAILED ? address : NULL;
}

void *queued_memory_allocate(queued_memory *all, int64_t bytes)
{
    sp_reserve((void **)&all->blocks, &all->capacity, all->count + 1, sizeof *all->blocks);
    queued_block made = {.memory = aligned_alloc(SP_RUNTIME_ALIGNMENT, rounded(bytes)),
                         .bytes = bytes};
    if (made.memory == NULL) {
        return NULL;
    }
    made.address = all->guarded ? closed_addresses(rounded(bytes)) : made.memory;
    if (made.address == NULL) {
        free(made.memory);
        return NULL;
    }
    memset(made.memory, NOT_WRITTEN, rounded(bytes));
    all->blocks[all->count++] = made;
    return made.address;
}

static size_t index_of(const queued_memory *all, const void *address)
{
    size_t i = 0;
    while (i < all->count && all->blocks[i].address != address) {
        i++;
    }
    SP_ASSERT(i < all->count);
    return i;
}

queued_block queued_memory_block(const queued_memory *all, const void *address)
{
    return all->blocks[index_of(all, address)];
}

void queued_memory_release(queued_memory *all, const void *address)
{
    size_t i = index_of(all, address);
    queued_block gone = all->blocks[i];
    all->blocks[i] = all->blocks[--all->count];
    if (all->guarded) {
        munmap(gone.address, rounded(gone.bytes));
    }
    free(gone.memory);
    if (all->count == 0) {
        sp_free(all->blocks);
        *all = (queued_memory){.guarded = all->guarded};
    }
}

void *queued_memory_behind(const queued_memory *all, const void *address, int64_t bytes)
{
    uintptr_t at = (uintptr_t)address;
    for (size_t i = 0; i < all->count; i++) {
        const queued_block *block = &all->blocks[i];
        uintptr_t begin = (uintptr_t)block->address;
        if (at >= begin && bytes >= 0 && at + (uintptr_t)bytes <= begin + (uintptr_t)block->bytes) {
            return block->memory + (at - begin);
        }
    }
    SP_UNREACHABLE("an address that is not the machine's");
}
