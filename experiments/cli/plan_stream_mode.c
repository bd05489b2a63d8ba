// slimpack plan --stream
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/plan_modes.h"
#include "experiments/cli/report.h"
#include "experiments/stream/plan_stream.h"
#include "sim/base/units.h"

typedef struct answers {
    bool quiet;
    int64_t count, infeasible, oom, dropped, truncated;
    sp_warnings seen;
} answers;

// Each text once: what holds for one batch mostly holds for all.
static void warn_of(answers *a, const stream_answer *answer)
{
    long long line = (long long)answer->line;
    if (answer->infeasible && a->infeasible++ == 0) {
        cli_warn(a->quiet, "line %lld: no plan: %s", line, answer->reason);
    }
    if (answer->oom && a->oom++ == 0) {
        cli_warn(a->quiet, "line %lld: the plan needs %.2f GiB, a rank has %.2f", line,
                 sp_gib_from_bytes(answer->peak_bytes),
                 sp_gib_from_bytes(answer->memory_limit_bytes));
    }
    for (int i = 0; i < answer->warnings.count; i++) {
        int before = a->seen.count;
        sp_warnings_add(&a->seen, "%s", answer->warnings.text[i]);
        if (a->seen.count > before) {
            cli_warn(a->quiet, "line %lld: %s", line, answer->warnings.text[i]);
        }
    }
    a->dropped += answer->dropped;
    a->truncated += answer->truncated;
}

// An answer is on its way before the next one is waited for.
static sp_status put_answer(void *context, const stream_answer *answer, sp_error *err)
{
    answers *a = context;
    errno = 0;
    fwrite(answer->text, 1, answer->bytes, stdout);
    putchar('\n');
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        return sp_error_set(err, SP_ERR_IO, "cannot write to standard output: %s", strerror(errno));
    }
    a->count++;
    warn_of(a, answer);
    return SP_OK;
}

static void print_totals(const answers *a)
{
    long long count = (long long)a->count;
    if (a->dropped > 0) {
        cli_warn(a->quiet, "samples longer than the context, dropped: %lld", (long long)a->dropped);
    }
    if (a->truncated > 0) {
        cli_warn(a->quiet, "samples longer than the context, truncated: %lld",
                 (long long)a->truncated);
    }
    if (a->oom > 0) {
        cli_warn(a->quiet, "out of memory: %lld of %lld plans", (long long)a->oom, count);
    }
    if (a->infeasible > 0) {
        cli_warn(a->quiet, "without a plan: %lld of %lld batches", (long long)a->infeasible, count);
    }
}

static int threads_for(int64_t jobs)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t threads = jobs > 0 ? jobs : cores;
    if (threads < 1) {
        return 1;
    }
    return threads < STREAM_MOST_THREADS ? (int)threads : STREAM_MOST_THREADS;
}

int cli_plan_stream(const sp_scenario *scenario, int64_t jobs, int64_t ahead, bool quiet)
{
    answers a = {.quiet = quiet};
    sp_error err = {0};
    const stream_options options = {.threads = threads_for(jobs),
                                    .ahead = ahead > 0 ? (int)ahead : CLI_PLAN_AHEAD,
                                    .name = "standard input"};
    sp_status status = stream_plans(scenario, STDIN_FILENO, &options, put_answer, &a, &err);
    print_totals(&a);
    if (status != SP_OK) {
        return cli_fail(&err);
    }
    return a.oom + a.infeasible > 0 ? sp_status_exit(SP_ERR_INFEASIBLE) : 0;
}
