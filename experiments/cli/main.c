// slimpack: the command line over the library.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "sim/base/json.h"

#ifdef SP_PREPARES_OPENBLAS
#include "kernels/kernels.h"
#endif

// ---- before the libraries begin ----

#ifdef SP_PREPARES_OPENBLAS
// OpenBLAS, which igraph brings along as well, maps 128 MiB for each of its threads when it is
// loaded and tries again for ever where there is no address space. We never use its threads. The C
// library is not ready here: system calls alone.
enum { MOST_VARIABLES = 4096 };

static bool begins_with(const char *text, const char *start)
{
    while (*start != '\0' && *text == *start) {
        text++;
        start++;
    }
    return *start == '\0';
}

static void prepare_openblas(int argc SP_UNUSED, char **argv, char **environment)
{
    static char one_thread[] = "OPENBLAS_NUM_THREADS=1";
    static char failed[] =
        "error: too little address space to begin (see ulimit -v, OPENBLAS_NUM_THREADS)\n";
    static char *variables[MOST_VARIABLES];
    int count = 0;
    for (char **entry = environment; *entry != NULL && count < MOST_VARIABLES - 2; entry++) {
        if (begins_with(*entry, one_thread) && (*entry)[sizeof one_thread - 1] == '\0') {
            return;
        }
        if (!begins_with(*entry, "OPENBLAS_NUM_THREADS=")) {
            variables[count++] = *entry;
        }
    }
    struct rlimit space;
    bool limited = getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
    // Where the space is limited, its threads would take what our own need later.
    if (!limited && sp_kernels_have_room((int)sysconf(_SC_NPROCESSORS_ONLN))) {
        return;
    }
    variables[count] = one_thread;
    execve("/proc/self/exe", argv, variables);
    ssize_t written = write(STDERR_FILENO, failed, sizeof failed - 1);
    (void)written;
    _exit(sp_status_exit(SP_ERR_NO_MEMORY));
}

__attribute__((section(".preinit_array"),
               used)) static void (*const before_libraries)(int, char **,
                                                            char **) = prepare_openblas;
#endif

// A failed SP_ASSERT ends in SIGABRT; the command line promises 70 for a defect of ours.
static void on_abort(int signal_number SP_UNUSED)
{
    cli_abandon_outputs();
    _Exit(sp_status_exit(SP_ERR_INTERNAL));
}

static void on_out_of_memory(size_t bytes SP_UNUSED)
{
    static const char told[] = "error: out of memory\n";
    cli_abandon_outputs();
    ssize_t written = write(STDERR_FILENO, told, sizeof told - 1);
    (void)written;
    _Exit(sp_status_exit(SP_ERR_NO_MEMORY));
}

static void prepare_streams(void)
{
    // A closed standard stream would give its number to the next file opened, and output meant for
    // a person would land in it. Opened the wrong way round, its use still fails as it should.
    static const int modes[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF && open("/dev/null", modes[fd]) != fd) {
            _Exit(sp_status_exit(SP_ERR_IO));
        }
    }
    // Some parents leave SIGPIPE ignored; `slimpack ... | head` must end quietly all the same.
    static const int ends[] = {SIGPIPE, SIGINT,  SIGTERM, SIGHUP, SIGQUIT,
                               SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU};
    struct sigaction action = {.sa_handler = cli_end, .sa_flags = (int)SA_RESETHAND};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct sigaction before;
        bool ignored = sigaction(ends[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN;
        if (ends[i] == SIGPIPE || !ignored) {
            sigaction(ends[i], &action, NULL);
        }
    }
    action = (struct sigaction){.sa_handler = on_abort};
    sigaction(SIGABRT, &action, NULL);
    // A write beyond the limit of a file's size fails then, as one on a full disk does.
    action = (struct sigaction){.sa_handler = SIG_IGN};
    sigaction(SIGXFSZ, &action, NULL);
}

// The C library gives freed blocks of some megabytes back to the kernel, which clears them anew for
// the next point of a search. So it keeps them, but where the address space is limited. (tune for a
// million GPUs on two cores: 18 s in place of 47, of the kernel's own 6 in place of 62.)
static void keep_freed_memory(void)
{
#ifdef __GLIBC__
    struct rlimit space;
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur == RLIM_INFINITY) {
        mallopt(M_MMAP_THRESHOLD, 32 << 20); // the most that it takes
        mallopt(M_TRIM_THRESHOLD, INT_MAX);
        mallopt(M_TOP_PAD, 64 << 20);
    }
#endif
}

static int close_output(int exit_status)
{
    bool failed = ferror(stdout) != 0;
    errno = 0;
    failed = fclose(stdout) != 0 || failed;
    if (!failed || exit_status > 1) {
        return exit_status;
    }
    fprintf(stderr, "error: cannot write to standard output%s%s\n", errno != 0 ? ": " : "",
            errno != 0 ? strerror(errno) : "");
    return sp_status_exit(SP_ERR_IO);
}

// A stack that overflows is a crash without a word. Threads get as much as the limit says.
static bool has_stack(void)
{
    const rlim_t least_bytes = (rlim_t)1 << 20;
    struct rlimit stack;
    if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= least_bytes) {
        return true;
    }
    fprintf(
        stderr,
        "error: a stack of %llu KiB is too small: set the limit to %llu at least (see ulimit -s)\n",
        (unsigned long long)(stack.rlim_cur >> 10), (unsigned long long)(least_bytes >> 10));
    return false;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        cli_print_overview(stderr);
        return sp_status_exit(SP_ERR_USAGE);
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0) {
        printf("slimpack %s\n", SP_VERSION);
        return 0;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        cli_print_overview(stdout);
        return 0;
    }
    if (word[0] == '-') {
        return cli_usage_error(NULL, "unknown option '%s' (those of a command follow its name)",
                               word);
    }
    const cli_command *command = cli_find_command(word);
    if (command == NULL) {
        return cli_unknown_command(word);
    }
    return command == &cli_cmd_help || has_stack() ? cli_run(command, argc - 1, argv + 1)
                                                   : sp_status_exit(SP_ERR_LIMIT);
}

int main(int argc, char **argv)
{
    prepare_streams();
    keep_freed_memory();
    sp_set_memory_handler(on_out_of_memory);
    return close_output(dispatch(argc, argv));
}
