// execute REQUESTS OUT [SECONDS [SECONDS-OF-ONE]]: executes every request (slimpack validate SET
// --export) of the folder REQUESTS on the first GPU, in the order of their names, and writes
// OUT/NAME.result.json for each. A case runs in a process of its own: one that fails, crashes or
// takes too long (default: all together 3600 s, one of them 120 s) leaves its reason as its result,
// and those behind it run. Prints one line for each. Exit status: 0 all executed, 1 some were not,
// 2 wrong usage, 77 no GPU.
//
// A launcher (torchrun --no-python ...) can start it several times, as the ranks of every case: all
// read the same requests, the first prints and writes, and the processes of a case meet by its
// number, so that one that is late or early is told that it belongs elsewhere.
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/record/execute.h"
#include "sim/base/units.h"

// The backend that is tried; tests have another than the GPU's.
#ifndef SP_EXECUTE_TABLE
#define SP_EXECUTE_TABLE sp_backend_plugin
#endif
extern const sp_backend_ops SP_EXECUTE_TABLE;

enum { PATH_BYTES = 1024, NO_GPU = 77, CANNOT = 3, POLL_NS = 5000000 };

typedef struct settings {
    const char *requests, *out;
    double end_s;           // of everything, by the clock of now_s
    double case_s;          // one case at most
    int process, processes; // of those that a launcher started
} settings;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / SP_NS_PER_S;
}

// ---- in the process of one case: nothing of the GPU is touched outside ----

static int fail(int process, const sp_error *err)
{
    char who[32] = "";
    if (process > 0) {
        snprintf(who, sizeof who, "process %d: ", process);
    }
    fprintf(stderr, "execute: %s%s\n", who, err->message[0]);
    return CANNOT;
}

// A case's processes meet as a run of their own.
static void name_case(const settings *s, int number)
{
    static const char *const names[] = {"SLIMPACK_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"};
    char run[64];
    const char *own = NULL;
    for (int i = 0; i < 3 && (own == NULL || own[0] == '\0'); i++) {
        own = getenv(names[i]);
    }
    snprintf(run, sizeof run, "%.40s case %d", own != NULL ? own : "", number);
    if (s->processes > 1) {
        (void)setenv(names[0], run, 1);
    }
}

static int look_for_gpu(void)
{
    sp_error err = {0};
    sp_backend *backend;
    int count = 0;
    if (sp_i_backend_new(&SP_EXECUTE_TABLE, "execute", &backend, &err) != SP_OK ||
        sp_backend_device_count(backend, &count, &err) != SP_OK) {
        return fail(0, &err);
    }
    sp_i_backend_free(backend);
    return count > 0 ? 0 : NO_GPU;
}

static int execute_case(const settings *s, const char *name, const char *request,
                        const char *result)
{
    sp_error err = {0};
    sp_backend *backend;
    char line[SP_ERROR_TEXT] = "";
    double begin_s = now_s();
    sp_status status = sp_i_backend_new(&SP_EXECUTE_TABLE, "execute", &backend, &err);
    if (status == SP_OK) {
        status = sp_request_execute_file(backend, 0, request, s->process == 0 ? result : NULL, line,
                                         &err);
        sp_i_backend_free(backend);
    }
    if (status != SP_OK) {
        return fail(s->process, &err);
    }
    if (s->process == 0) {
        printf("%s: %s (%.1f s)\n", name, line, now_s() - begin_s);
        fflush(stdout);
    }
    return strncmp(line, "ok", 2) == 0 ? 0 : 1;
}

// ---- around them ----

// Waits for the process until its time is over and ends it then; how it ended, or -1 for that.
static int wait_for(pid_t child, double end_s)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    int how = 0;
    for (;;) {
        pid_t ended = waitpid(child, &how, WNOHANG);
        if (ended == child) {
            return how;
        }
        if (now_s() > end_s) {
            kill(child, SIGKILL);
            waitpid(child, &how, 0);
            return -1;
        }
        nanosleep(&pause, NULL);
    }
}

static int refuse(const settings *s, const char *name, const char *request, const char *result,
                  sp_status status, const char *reason)
{
    sp_error err = {0};
    if (s->process > 0) {
        fprintf(stderr, "execute: process %d: %s: %s\n", s->process, name, reason);
        return 1;
    }
    printf("%s: %s\n", name, reason);
    fflush(stdout);
    return sp_request_refuse_file(request, result, status, reason, &err) == SP_OK ? 1
                                                                                  : fail(0, &err);
}

static int run_case(const settings *s, const char *file, int number)
{
    char name[PATH_BYTES];
    char request[2 * PATH_BYTES];
    char result[3 * PATH_BYTES];
    char reason[SP_ERROR_TEXT];
    snprintf(name, sizeof name, "%.*s", (int)(strlen(file) - strlen(".json")), file);
    snprintf(request, sizeof request, "%s/%s", s->requests, file);
    snprintf(result, sizeof result, "%s/%s.result.json", s->out, name);
    double begin_s = now_s();
    if (begin_s >= s->end_s) {
        return refuse(s, name, request, result, SP_ERR_LIMIT, "not executed: the time is spent");
    }
    double end_s = begin_s + s->case_s < s->end_s ? begin_s + s->case_s : s->end_s;
    pid_t child = fork();
    if (child == 0) {
        name_case(s, number);
        _exit(execute_case(s, name, request, result));
    }
    int how = child > 0 ? wait_for(child, end_s) : 0;
    if (child < 0) {
        snprintf(reason, sizeof reason, "no process: %s", strerror(errno));
        return refuse(s, name, request, result, SP_ERR_INTERNAL, reason);
    }
    if (how == -1) {
        snprintf(reason, sizeof reason, "ended after %.0f s", now_s() - begin_s);
        return refuse(s, name, request, result, SP_ERR_LIMIT, reason);
    }
    if (WIFSIGNALED(how)) {
        snprintf(reason, sizeof reason, "crashed: signal %d", WTERMSIG(how));
        return refuse(s, name, request, result, SP_ERR_INTERNAL, reason);
    }
    return WEXITSTATUS(how);
}

static int is_request(const struct dirent *entry)
{
    static const char *const endings[] = {".result.json", ".json"};
    size_t length = strlen(entry->d_name);
    bool ends[2];
    for (int i = 0; i < 2; i++) {
        size_t own = strlen(endings[i]);
        ends[i] = length > own && strcmp(entry->d_name + length - own, endings[i]) == 0;
    }
    return ends[1] && !ends[0];
}

static int run_all(const settings *s)
{
    struct dirent **entries;
    int count = scandir(s->requests, &entries, is_request, alphasort);
    int good = 0;
    if (count <= 0) {
        fprintf(stderr, "execute: %s: %s\n", s->requests,
                count < 0 ? strerror(errno) : "there are no requests");
        free(count == 0 ? entries : NULL);
        return 2;
    }
    for (int i = 0; i < count; i++) {
        good += run_case(s, entries[i]->d_name, i) == 0;
        free(entries[i]);
    }
    free(entries);
    if (s->process == 0) {
        printf("%d of %d cases executed\n", good, count);
    }
    return good == count ? 0 : 1;
}

// Nothing of a GPU is touched: the backend looks at the environment alone.
static bool find_process(settings *s)
{
    sp_error err = {0};
    sp_backend *backend;
    if (sp_i_backend_new(&SP_EXECUTE_TABLE, "execute", &backend, &err) != SP_OK) {
        (void)fail(0, &err);
        return false;
    }
    bool found = sp_backend_process(backend, &s->process, &s->processes, &err) == SP_OK;
    sp_i_backend_free(backend);
    if (!found) {
        (void)fail(0, &err);
    }
    return found;
}

static bool read_seconds(int argc, char **argv, int at, double *seconds)
{
    char *end = NULL;
    if (at >= argc) {
        return true;
    }
    *seconds = strtod(argv[at], &end);
    return *end == '\0' && *seconds > 0.0;
}

int main(int argc, char **argv)
{
    double all_s = 3600.0;
    settings s = {.case_s = 120.0};
    if (argc < 3 || argc > 5 || !read_seconds(argc, argv, 3, &all_s) ||
        !read_seconds(argc, argv, 4, &s.case_s)) {
        fprintf(stderr, "execute REQUESTS OUT [SECONDS [SECONDS-OF-ONE]]\n");
        return 2;
    }
    s.requests = argv[1];
    s.out = argv[2];
    s.end_s = now_s() + all_s;
    if (!find_process(&s)) {
        return 2;
    }
    if (mkdir(s.out, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "execute: %s: %s\n", s.out, strerror(errno));
        return 2;
    }
    pid_t child = fork();
    if (child == 0) {
        _exit(look_for_gpu());
    }
    int how = child > 0 ? wait_for(child, s.end_s) : 0;
    if (child > 0 && how != -1 && WIFEXITED(how) && WEXITSTATUS(how) == NO_GPU) {
        if (s.process == 0) {
            printf("no GPU\n");
        }
        return NO_GPU;
    }
    return run_all(&s);
}
