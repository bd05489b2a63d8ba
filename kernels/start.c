#define _DEFAULT_SOURCE // MAP_ANONYMOUS

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/kernels.h"

#include <cblas.h>

// Exported, but in no header.
void *blas_memory_alloc(int where);
void blas_memory_free(void *memory);

enum {
    MOST_THREADS = 128,          // of OpenBLAS
    THREAD_BYTES = 136 * 1048576 // 128 MiB of work memory (0.3.21, x86-64) and a stack
};

bool sp_kernels_have_room(int threads)
{
    void *taken[MOST_THREADS];
    int wanted = threads < MOST_THREADS ? threads : MOST_THREADS;
    int count = 0;
    while (count < wanted) {
        taken[count] =
            mmap(NULL, THREAD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (taken[count] == MAP_FAILED) {
            break;
        }
        count++;
    }
    for (int i = 0; i < count; i++) {
        munmap(taken[i], THREAD_BYTES);
    }
    return count == wanted;
}

bool sp_kernels_start(void)
{
    static atomic_bool started;
    if (!atomic_exchange(&started, true)) {
        void *memory[MOST_THREADS];
        int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
        int count = cores < MOST_THREADS ? cores : MOST_THREADS;
        if (!sp_kernels_have_room(count)) {
            atomic_store(&started, false);
            return false;
        }
        // It keeps what it has mapped: no thread needs more later, when there may be none.
        for (int i = 0; i < count; i++) {
            memory[i] = blas_memory_alloc(0);
        }
        for (int i = 0; i < count; i++) {
            blas_memory_free(memory[i]);
        }
    }
    openblas_set_num_threads(1);
    return true;
}

const char *sp_kernels_blas_core(void)
{
    return openblas_get_corename();
}
