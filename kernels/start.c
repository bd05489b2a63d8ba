#define _DEFAULT_SOURCE // MAP_ANONYMOUS

#include <cblas.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/kernels.h"

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

// OpenBLAS keeps what it has mapped: with so many pieces taken at once, no thread needs more later,
// when there may be none.
static bool map_work_memory(int count)
{
    static int mapped;
    void *memory[MOST_THREADS];
    if (count <= mapped) {
        return true;
    }
    if (!sp_kernels_have_room(count - mapped)) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        memory[i] = blas_memory_alloc(0);
    }
    for (int i = 0; i < count; i++) {
        blas_memory_free(memory[i]);
    }
    mapped = count;
    return true;
}

bool sp_kernels_start_threads(int threads)
{
    bool started = true;
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static int own = -1;
    pthread_mutex_lock(&mutex);
    // Each of its own threads takes a piece when it first runs, which may be after this.
    own = own < 0 ? openblas_get_num_threads() - 1 : own;
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int count = (threads > cores ? threads : cores) + own;
    started = map_work_memory(count < MOST_THREADS ? count : MOST_THREADS);
    openblas_set_num_threads(1);
    pthread_mutex_unlock(&mutex);
    return started;
}

const char *sp_kernels_blas_core(void)
{
    return openblas_get_corename();
}
