// Other programs, and this one once more, as processes that end when this one does. Whoever starts
// one names the folder it works in, where what it says is kept until the next one.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "sim/base/progress.h"

enum {
    PATH_BYTES = 4096,
    LINE_BYTES = 4096,
};

#define WAIT_NS 20000000L

// For a signal handler; 0: none.
static _Atomic pid_t running;

static const char said_file[] = "said.txt";

static void begin_child(const cli_child *child, pid_t parent)
{
    int said = -1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent && chdir(child->folder) == 0) {
        said = open(said_file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    }
    if (said < 0 || (!child->shown && dup2(said, STDOUT_FILENO) < 0) ||
        dup2(said, STDERR_FILENO) < 0) {
        _exit(CLI_NOT_PREPARED);
    }
    if (child->program == NULL) {
        execv("/proc/self/exe", child->argv);
    } else {
        execvp(child->program, child->argv);
    }
    _exit(CLI_NOT_STARTED);
}

static void read_said(const char *folder, char said[SP_ERROR_TEXT])
{
    static const char error[] = "error: ";
    static const char wrapped[] = "       ";
    char path[PATH_BYTES];
    char line[LINE_BYTES];
    bool told = false;
    snprintf(said, SP_ERROR_TEXT, "no message");
    int length = snprintf(path, sizeof path, "%s/%s", folder, said_file);
    FILE *lines = length < (int)sizeof path ? fopen(path, "r") : NULL;
    while (lines != NULL && fgets(line, sizeof line, lines) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        // The first error, with the lines that it is wrapped into.
        bool goes_on = strncmp(line, wrapped, sizeof wrapped - 1) == 0;
        if (told && !goes_on) {
            break;
        }
        if (told) {
            sp_append(said, SP_ERROR_TEXT, " %s", line + sizeof wrapped - 1);
            continue;
        }
        told = strncmp(line, error, sizeof error - 1) == 0;
        if (line[strspn(line, " ^\t")] != '\0') { // gnuplot's mark of a place
            snprintf(said, SP_ERROR_TEXT, "%.*s", SP_ERROR_TEXT - 1,
                     told ? line + sizeof error - 1 : line);
        }
    }
    if (lines != NULL) {
        fclose(lines);
    }
}

// Waits until it ends, or ends it.
static pid_t wait_for(pid_t pid, const cli_child *child, double begin_s, int *status, bool *late)
{
    pid_t ended;
    int how = isfinite(child->limit_s) ? WNOHANG : 0;
    while ((ended = waitpid(pid, status, how)) == 0) {
        const struct timespec wait = {.tv_nsec = WAIT_NS};
        nanosleep(&wait, NULL);
        if (!*late && sp_clock_s() - begin_s > child->limit_s) {
            *late = true;
            kill(pid, SIGKILL);
        }
    }
    return ended;
}

cli_ended cli_run_child(const cli_child *child)
{
    cli_ended e = {.exit_status = -1};
    double begin_s = sp_clock_s();
    int status = 0;
    pid_t parent = getpid();
    cli_screen_flush();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        begin_child(child, parent);
    }
    atomic_store(&running, pid);
    pid_t ended = pid > 0 ? wait_for(pid, child, begin_s, &status, &e.late) : -1;
    atomic_store(&running, 0);
    e.seconds = sp_clock_s() - begin_s;
    if (ended < 0) {
        snprintf(e.said, sizeof e.said, "cannot begin or be waited for: %s", strerror(errno));
    } else if (e.late) {
        snprintf(e.said, sizeof e.said, "ended after %.0f s", e.seconds);
    } else if (WIFEXITED(status)) {
        e.exit_status = WEXITSTATUS(status);
        if (e.exit_status == CLI_NOT_PREPARED) {
            snprintf(e.said, sizeof e.said, "cannot work in %s", child->folder);
        } else {
            read_said(child->folder, e.said);
        }
    } else {
        snprintf(e.said, sizeof e.said, "ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    }
    return e;
}

void cli_abandon_outputs(void)
{
    pid_t child = atomic_load(&running);
    if (child > 0 && kill(child, SIGKILL) == 0) {
        waitpid(child, NULL, 0); // it could make a file that stays
    }
    sp_outputs_abandon();
}
