// Where a process spends its processor time: samples of the program counter, by the loaded object
// and by the function of the program itself.
#ifndef SLIMPACK_TESTS_BENCH_SAMPLING_H
#define SLIMPACK_TESTS_BENCH_SAMPLING_H

// Before any header: the program counter of a signal's context and the list of loaded objects are
// not POSIX.
#if !defined(_GNU_SOURCE)
#error "sampling.h needs _GNU_SOURCE"
#endif

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

enum { SAMPLES = 1 << 20, SAMPLE_US = 1000 };

// `caller` is where a function without a frame, such as libc's copies, returns to; of others it is
// any word.
typedef struct sample {
    uintptr_t pc, caller;
} sample;

static sample samples[SAMPLES];
static volatile sig_atomic_t sample_count;

static void take_sample(int signal_number, siginfo_t *info, void *context)
{
    const ucontext_t *at = context;
    if (sample_count < SAMPLES) {
#if defined(__x86_64__)
        const uintptr_t *top = (const void *)at->uc_mcontext.gregs[REG_RSP];
        samples[sample_count] =
            (sample){.pc = (uintptr_t)at->uc_mcontext.gregs[REG_RIP], .caller = *top};
#elif defined(__aarch64__)
        samples[sample_count] = (sample){.pc = (uintptr_t)at->uc_mcontext.pc,
                                         .caller = (uintptr_t)at->uc_mcontext.regs[30]};
#else
#error "no program counter for this machine"
#endif
        sample_count = sample_count + 1;
    }
}

// Samples every SAMPLE_US of processor time, or as often as the system's clock ticks. From here on
// `sample_count` grows.
static bool start_sampling(void)
{
    struct sigaction action = {.sa_sigaction = take_sample, .sa_flags = SA_SIGINFO | SA_RESTART};
    const struct itimerval every = {{0, SAMPLE_US}, {0, SAMPLE_US}};
    return sigaction(SIGPROF, &action, NULL) == 0 && setitimer(ITIMER_PROF, &every, NULL) == 0;
}

static void stop_sampling(void)
{
    const struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_PROF, &never, NULL);
}

// ---- objects ----

enum { OBJECT_NAME = 64 };

typedef struct located {
    uintptr_t pc, base;
    char object[OBJECT_NAME]; // file name without folders; "" for the program itself
} located;

static int find_in_object(struct dl_phdr_info *info, size_t size, void *context)
{
    located *found = context;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = (uintptr_t)info->dlpi_addr + (uintptr_t)part->p_vaddr;
        if (part->p_type == PT_LOAD && found->pc - begin < (uintptr_t)part->p_memsz) {
            const char *slash = strrchr(info->dlpi_name, '/');
            snprintf(found->object, sizeof found->object, "%s",
                     slash != NULL ? slash + 1 : info->dlpi_name);
            found->base = (uintptr_t)info->dlpi_addr;
            return 1;
        }
    }
    return 0;
}

// False for an address outside every object.
static bool locate(uintptr_t pc, located *found)
{
    *found = (located){.pc = pc};
    return dl_iterate_phdr(find_in_object, found) == 1;
}

// ---- functions of the program ----

typedef struct function {
    uintptr_t begin;
    const char *name;
    long samples;
} function;

static int by_begin(const void *x, const void *y)
{
    const function *p = x;
    const function *q = y;
    return (p->begin > q->begin) - (p->begin < q->begin);
}

// The program's own symbol table, local functions too, sorted by address. NULL where it was
// stripped; the file stays mapped.
static function *read_functions(size_t *count)
{
    struct stat info;
    int fd = open("/proc/self/exe", O_RDONLY);
    *count = 0;
    if (fd < 0 || fstat(fd, &info) != 0) {
        return NULL;
    }
    const unsigned char *file = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED) {
        return NULL;
    }
    const ElfW(Ehdr) *header = (const void *)file;
    const ElfW(Shdr) *sections = (const void *)(file + header->e_shoff);
    function *functions = NULL;
    for (int s = 0; s < header->e_shnum; s++) {
        if (sections[s].sh_type != SHT_SYMTAB) {
            continue;
        }
        const ElfW(Sym) *symbols = (const void *)(file + sections[s].sh_offset);
        const char *names = (const char *)file + sections[sections[s].sh_link].sh_offset;
        size_t all = sections[s].sh_size / sizeof *symbols;
        functions = calloc(all + 1, sizeof *functions);
        for (size_t i = 0; functions != NULL && i < all; i++) {
            if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && symbols[i].st_value != 0) {
                functions[(*count)++] = (function){.begin = (uintptr_t)symbols[i].st_value,
                                                   .name = names + symbols[i].st_name};
            }
        }
    }
    if (functions != NULL) {
        qsort(functions, *count, sizeof *functions, by_begin);
    }
    return functions;
}

// The function that `offset`, counted from the program's base, lies in; NULL before the first.
static function *function_at(function *functions, size_t count, uintptr_t offset)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (functions[middle].begin <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 ? &functions[low - 1] : NULL;
}

#endif
