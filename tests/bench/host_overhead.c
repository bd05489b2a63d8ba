// What the CPU executor takes beside its kernels, over the cases of a set of scenarios
// (experiments/validate_host.json). The program counter is sampled by processor time: what lies in
// the kernels, in OpenBLAS or in libm, or in libc on a kernel's behalf, is a kernel's; all else is
// the executor's, its copies by libc and the virtual clock's replay included. Each case runs once
// with one step and once with more, and the difference counts, so that no start of a run is in it.
// The kernels are a shared library here, which tells them from the program by address.
// host_overhead [SET [STEPS [CASES]]]; one JSON line a case, one for all, then the executor's
// largest functions. CASES: only those whose name has this in it. Cases that the backend cannot
// execute are listed as such.
#define _GNU_SOURCE
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

#include "backends/api/device.h"
#include "experiments/execution/execution.h"
#include "kernels/kernels.h"
#include "sim/base/json.h"
#include "solver/evaluate/evaluate.h"
#include "tests/bench/bench.h"

// Where a process spends its processor time: samples of the program counter, by the loaded object
// and by the function of the program itself.

// Before any header: the program counter of a signal's context and the list of loaded objects are
// not POSIX.
#if !defined(_GNU_SOURCE)
#error "sampling.h needs _GNU_SOURCE"
#endif

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

enum { LISTED = 12, MOST_STEPS = 1000 };

typedef enum place { IN_KERNELS, IN_LIBC, IN_PROGRAM, ELSEWHERE, PLACES } place;

typedef struct tally {
    long of[PLACES];
} tally;

typedef struct bench {
    const sp_backend *backend;
    const sp_scenario *scenario;
    int steps;
    function *functions;
    size_t function_count;
    tally tally; // of the current case
} bench;

// ---- one case ----

static bool is_kernel(const located *at)
{
    return strstr(at->object, "bench_kernels") != NULL || strstr(at->object, "openblas") != NULL ||
           strncmp(at->object, "libm.", 5) == 0;
}

static void count_function(bench *b, const located *at, long weight)
{
    function *f = function_at(b->functions, b->function_count, at->pc - at->base);
    if (f != NULL) {
        f->samples += weight;
    }
}

// A copy by libc belongs to whoever called it.
static place place_of(bench *b, const sample *taken, long weight)
{
    located at, caller;
    if (!locate(taken->pc, &at)) {
        return ELSEWHERE;
    }
    if (is_kernel(&at)) {
        return IN_KERNELS;
    }
    if (at.object[0] == '\0') {
        count_function(b, &at, weight);
        return IN_PROGRAM;
    }
    if (strncmp(at.object, "libc.", 5) != 0) {
        return ELSEWHERE;
    }
    if (locate(taken->caller, &caller) && is_kernel(&caller)) {
        return IN_KERNELS;
    }
    if (caller.object[0] == '\0' && caller.base != 0) {
        count_function(b, &caller, weight);
    }
    return IN_LIBC;
}

static sp_status run_sampled(bench *b, const sp_step_view *view, int steps, long weight,
                             sp_error *err)
{
    sp_run *run = NULL;
    const sp_run_request request = {.plan = view->plan,
                                    .model = &b->scenario->model,
                                    .memory = &b->scenario->memory,
                                    .precision = SP_FP32,
                                    .seed = 1,
                                    .steps = steps};
    sample_count = 0;
    if (!start_sampling()) {
        return sp_error_set(err, SP_ERR_INTERNAL, "the processor time cannot be sampled");
    }
    sp_status status = sp_backend_run(b->backend, 0, &request, &run, err);
    stop_sampling();
    sp_run_free(run);
    for (long i = 0; status == SP_OK && i < sample_count; i++) {
        b->tally.of[place_of(b, &samples[i], weight)] += weight;
    }
    return status;
}

static sp_status observe(void *context, const sp_step_view *view, sp_error *err)
{
    bench *b = context;
    sp_status status = run_sampled(b, view, 1 + b->steps, 1, err);
    return status == SP_OK ? run_sampled(b, view, 1, -1, err) : status;
}

static sp_status run_case(bench *b, sp_error *err)
{
    const sp_evaluate_options options = {
        .no_bounds = true, .observer = observe, .observer_context = b};
    sp_batches batches = {0};
    sp_result result = {0};
    b->tally = (tally){{0}};
    sp_status status = sp_evaluate_batches(b->scenario, &batches, err);
    if (status == SP_OK) {
        status = sp_evaluate(b->scenario, &batches, &options, &result, err);
        sp_result_fini(&result);
    }
    sp_batches_fini(&batches);
    return status;
}

// ---- reports ----

static long all_of(const tally *t)
{
    long all = 0;
    for (int p = 0; p < PLACES; p++) {
        all += t->of[p];
    }
    return all;
}

static void print_tally(const char *group, const char *name, const bench *b, const tally *t)
{
    double all = (double)all_of(t);
    printf("{\"bench\": \"host_overhead\", \"version\": \"%s\", \"blas_core\": \"%s\", \"group\": "
           "\"%s\", \"case\": \"%s\", \"steps\": %d, \"samples\": %ld, \"kernels\": %.4f, "
           "\"libc\": %.4f, \"program\": %.4f, \"elsewhere\": %.4f, \"overhead\": %.4f}\n",
           SP_VERSION, sp_kernels_blas_core(), group, name, b->steps, all_of(t),
           (double)t->of[IN_KERNELS] / all, (double)t->of[IN_LIBC] / all,
           (double)t->of[IN_PROGRAM] / all, (double)t->of[ELSEWHERE] / all,
           1.0 - (double)t->of[IN_KERNELS] / all);
    fflush(stdout);
}

static int by_samples(const void *x, const void *y)
{
    const function *p = x;
    const function *q = y;
    return (p->samples < q->samples) - (p->samples > q->samples);
}

static void print_functions(bench *b, long all)
{
    qsort(b->functions, b->function_count, sizeof *b->functions, by_samples);
    for (size_t i = 0; i < b->function_count && i < LISTED && b->functions[i].samples > 0; i++) {
        printf("{\"bench\": \"host_overhead\", \"function\": \"%s\", \"share\": %.4f}\n",
               b->functions[i].name, (double)b->functions[i].samples / (double)all);
    }
}

static void run_set(bench *b, const sp_scenario_set *set, const char *wanted)
{
    tally sum = {{0}};
    for (size_t i = 0; i < set->count; i++) {
        const sp_scenario_case *of = &set->cases[i];
        sp_error err = {0};
        if (strstr(of->name, wanted) == NULL) {
            continue;
        }
        b->scenario = &of->scenario;
        if (run_case(b, &err) != SP_OK) {
            printf("{\"bench\": \"host_overhead\", \"group\": \"%s\", \"case\": \"%s\", "
                   "\"reason\": \"%s\"}\n",
                   of->group, of->name, err.count > 0 ? err.message[0] : "");
            continue;
        }
        print_tally(of->group, of->name, b, &b->tally);
        for (int p = 0; p < PLACES; p++) {
            sum.of[p] += b->tally.of[p];
        }
    }
    print_tally("all", "all", b, &sum);
    print_functions(b, all_of(&sum));
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "experiments/validate_host.json";
    // The executor's time does not depend on the profile, and the set's own need not be there.
    const char *const overrides[] = {"profile=host"};
    bench b = {.steps = argc > 2 ? atoi(argv[2]) : 4};
    sp_error err = {0};
    sp_registry *registry;
    sp_scenario_set set;
    json_t *document = NULL;
    if (b.steps < 1 || b.steps > MOST_STEPS) {
        fprintf(stderr, "steps: expected 1 to %d\n", MOST_STEPS);
        return 2;
    }
    require(sp_json_read_file(path, 0, &document, &err), &err);
    require(sp_scenario_set_from_json(document, path, overrides, 1, &set, &err), &err);
    require(sp_registry_new(&registry, &err), &err);
    require(sp_registry_find(registry, "host", &b.backend, &err), &err);
    b.functions = read_functions(&b.function_count);
    run_set(&b, &set, argc > 3 ? argv[3] : "");
    free(b.functions);
    sp_registry_free(registry);
    sp_scenario_set_fini(&set);
    return 0;
}
