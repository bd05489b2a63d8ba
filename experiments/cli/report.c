// Errors, results as JSON and numbers are printed here; files and pictures are written, and an end
// of the program by a signal leaves no part of them behind.
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "sim/base/alloc.h"
#include "sim/base/data_folder.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/base/progress.h"

enum {
    // Enough for every digit that can be told from rounding; the same on every compiler.
    JSON_DIGITS = 15,
};

// One of several processes that execute together says who it is, but for the first.
static int fail_of(int process, const sp_error *err)
{
    char head[32] = "error: ";
    cli_screen_flush();
    if (process > 0) {
        snprintf(head, sizeof head, "process %d: error: ", process);
    }
    for (int i = 0; i < err->count; i++) {
        cli_print_error(head, err->message[i]);
    }
    if (err->dropped > 0) {
        fprintf(stderr, "%sand %d more\n", head, err->dropped);
    }
    if (err->count == 0) {
        cli_print_error(head, sp_status_text(err->status));
    }
    return err->status == SP_ERR_STOPPED ? cli_exit_of_stop(false) : sp_status_exit(err->status);
}

int cli_fail(const sp_error *err)
{
    return fail_of(0, err);
}

static json_t *reason_json(const sp_error *err)
{
    char text[SP_ERROR_MESSAGES * SP_ERROR_TEXT];
    snprintf(text, sizeof text, "%s", err->count > 0 ? "" : sp_status_text(err->status));
    for (int i = 0; i < err->count; i++) {
        sp_append(text, sizeof text, "%s%s", i > 0 ? "; " : "", err->message[i]);
    }
    return json_string(text);
}

int cli_fail_json(bool json, const char *schema, json_t *nothing, int process, const sp_error *err)
{
    bool stopped = err->status == SP_ERR_STOPPED;
    if (!json || process > 0 || nothing == NULL || (err->status != SP_ERR_INFEASIBLE && !stopped)) {
        json_decref(nothing);
        return fail_of(process, err);
    }
    sp_json_add(nothing, SP_JSON("schema", schema),
                SP_JSON("status", stopped ? "stopped" : "infeasible"),
                SP_JSON("reason", reason_json(err)));
    int printed = cli_print_json(nothing);
    int failed = fail_of(process, err);
    return printed != 0 ? printed : failed;
}

int cli_answer(int exit_status, bool positive)
{
    return exit_status == 0 && !positive ? sp_status_exit(SP_ERR_INFEASIBLE) : exit_status;
}

int cli_usage_error(const cli_command *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = sp_malloc((size_t)bytes + 1);
    va_start(args, format);
    vsnprintf(text, (size_t)bytes + 1, format, args);
    va_end(args);
    cli_screen_flush();
    cli_print_error("error: ", text);
    sp_free(text);
    fprintf(stderr, "run 'slimpack help%s%s' for the usage\n", command == NULL ? "" : " ",
            command == NULL ? "" : command->name);
    return sp_status_exit(SP_ERR_USAGE);
}

static int print_json_text(const char *text, size_t bytes, void *out)
{
    sp_print_json_text(out, text, bytes);
    return ferror((FILE *)out) != 0 ? -1 : 0;
}

// jansson makes nothing of a text that is not UTF-8.
static sp_status check_json(const json_t *root, sp_error *err)
{
    return root != NULL
               ? SP_OK
               : sp_error_set(err, SP_ERR_CONTENT, "a name that is not UTF-8 has no place in JSON");
}

int cli_print_json(json_t *root)
{
    sp_error err = {0};
    if (check_json(root, &err) != SP_OK) {
        return cli_fail(&err);
    }
    // main() reports what could not be written, by the error flag of the stream.
    (void)json_dump_callback(root, print_json_text, stdout,
                             JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(JSON_DIGITS));
    json_decref(root);
    (putchar)('\n');
    return sp_status_exit(SP_OK);
}

// The error flag of the stream shows what could not be written.
static sp_status dump_json(FILE *file, const void *root, sp_error *err SP_UNUSED)
{
    (void)json_dumpf(root, file, JSON_INDENT(2) | JSON_REAL_PRECISION(JSON_DIGITS));
    fputc('\n', file);
    return SP_OK;
}

sp_status cli_write_json(const char *path, json_t *root, sp_error *err)
{
    sp_status status = check_json(root, err);
    status = status == SP_OK ? cli_write_file(path, dump_json, root, err) : status;
    json_decref(root);
    return status;
}

// ---- files ----

bool cli_ends_in(const char *path, const char *ending)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL && strcmp(dot, ending) == 0;
}

sp_status cli_name_file(const char *path, sp_error *err)
{
    char text[SP_ERROR_TEXT];
    memcpy(text, err->message[0], sizeof text);
    sp_error_clear(err);
    return sp_error_set(err, SP_ERR_IO, "%s: %s", path, text);
}

sp_status cli_write_file(const char *path, cli_writer write, const void *what, sp_error *err)
{
    sp_output out;
    SP_TRY(sp_output_open(&out, path, err));
    errno = 0;
    sp_status status = write(out.file, what, err);
    int error = errno; // by which sp_output_close() names the cause
    status = status == SP_ERR_IO ? cli_name_file(path, err) : status;
    errno = error;
    return sp_output_close(&out, status, err);
}

// ---- pictures ----

enum {
    FOLDER_BYTES = 1024,
    FILE_BYTES = FOLDER_BYTES + 16,
};

// gnuplot runs shell commands that file names and the data hold ("| command", "< command"). It
// works in a folder of our own, on files of these names.
static const char data_name[] = "data";

// The script in the first folder of the program that has it; the last one's name where none has.
static void script_path(const char *name, char path[SP_DATA_PATH])
{
    char folder[SP_DATA_PATH];
    bool found = false;
    for (int f = 0; !found && sp_data_folder("plots", f, folder); f++) {
        int length = snprintf(path, SP_DATA_PATH, "%s/%s", folder, name);
        found = length < SP_DATA_PATH && access(path, R_OK) == 0;
    }
}

static const char *picture_name(const char *path)
{
    return cli_ends_in(path, ".svg")   ? "picture.svg"
           : cli_ends_in(path, ".pdf") ? "picture.pdf"
                                       : "picture.png";
}

static const char *name_file(const char *folder, const char *name, char file[FILE_BYTES])
{
    snprintf(file, FILE_BYTES, "%s/%s", folder, name);
    return file;
}

static sp_status run_gnuplot(const char *folder, const char *name, const char *path, sp_error *err)
{
    char script[SP_DATA_PATH];
    char settings[64];
    script_path(name, script);
    snprintf(settings, sizeof settings, "datafile='%s'; outfile='%s'", data_name,
             picture_name(path));
    char *words[] = {"gnuplot", "-e", settings, script, NULL};
    const cli_child child = {
        .folder = folder, .program = words[0], .argv = words, .limit_s = (double)INFINITY};
    cli_ended ended = cli_run_child(&child);
    if (ended.exit_status == CLI_NOT_STARTED) {
        return sp_error_set(err, SP_ERR_IO, "%s: gnuplot is not installed (Debian: gnuplot-nox)",
                            path);
    }
    return ended.exit_status == 0
               ? SP_OK
               : sp_error_set(err, SP_ERR_IO, "%s: gnuplot could not draw it with %s: %s", path,
                              script, ended.said);
}

// gnuplot (5.4) does not say that a disk was full: what begins as PNG, SVG or PDF must end as that
// does.
static bool is_whole(FILE *file)
{
    enum { END = 16 };
    char text[END + 1] = "";
    int first = getc(file);
    size_t bytes = fseek(file, -END, SEEK_END) == 0 ? fread(text, 1, END, file) : 0;
    rewind(file);
    return first == '<'    ? strstr(text, "</svg>") != NULL
           : first == '%'  ? strstr(text, "%%EOF") != NULL
           : first == 0x89 ? bytes == END && memcmp(text + END - 8, "IEND", 4) == 0
                           : first != EOF;
}

static sp_status copy_picture(FILE *to, const void *what, sp_error *err SP_UNUSED)
{
    FILE *from = (FILE *)(uintptr_t)what;
    char bytes[4096];
    size_t count;
    while ((count = fread(bytes, 1, sizeof bytes, from)) > 0) {
        fwrite(bytes, 1, count, to);
    }
    return SP_OK;
}

static sp_status take_picture(const char *folder, const char *path, sp_error *err)
{
    char file[FILE_BYTES];
    FILE *picture = fopen(name_file(folder, picture_name(path), file), "rb");
    sp_status status = SP_OK;
    if (picture == NULL || !is_whole(picture)) {
        status = sp_error_set(err, SP_ERR_IO, "%s: not the whole picture could be written", path);
    }
    if (status == SP_OK) {
        status = cli_write_file(path, copy_picture, picture, err);
    }
    if (picture != NULL) {
        fclose(picture);
    }
    return status;
}

sp_status cli_plot_check(const char *path, sp_error *err)
{
    if (!cli_ends_in(path, ".png") && !cli_ends_in(path, ".svg") && !cli_ends_in(path, ".pdf") &&
        !cli_ends_in(path, ".dat")) {
        return sp_error_set(
            err, SP_ERR_USAGE,
            "--plot expects a .png, .svg or .pdf file, or .dat for the data, got '%s'", path);
    }
    return sp_output_check(path, err);
}

bool cli_is_stream(const char *path)
{
    return sp_descriptor_of(path) >= 0 || sp_is_stream(path);
}

void cli_plot_text(FILE *file, const char *before, const char *text)
{
    fprintf(file, "\"%s", before);
    for (; *text != '\0'; text++) {
        fputc(*text == '"' ? '\'' : *text == '\n' ? ' ' : *text, file);
    }
    fputc('"', file);
}

void cli_plot_number(FILE *file, double value)
{
    if (isfinite(value)) {
        fprintf(file, " %.15g", value);
    } else {
        fputs(" NaN", file);
    }
}

sp_status cli_plot(const char *script, const char *path, cli_writer write, const void *what,
                   sp_error *err)
{
    char folder[FOLDER_BYTES];
    char data[FILE_BYTES];
    sp_status status = cli_plot_check(path, err);
    if (status == SP_OK && cli_ends_in(path, ".dat")) {
        return cli_write_file(path, write, what, err);
    }
    SP_TRY(status == SP_OK ? sp_folder_make_temporary(folder, sizeof folder, err) : status);
    status = cli_write_file(name_file(folder, data_name, data), write, what, err);
    status = status == SP_OK ? run_gnuplot(folder, script, path, err) : status;
    status = status == SP_OK ? take_picture(folder, path, err) : status;
    sp_folder_remove(folder);
    return status;
}

typedef struct comparison {
    const sp_timeline *predicted, *measured;
} comparison;

static sp_status write_comparison(FILE *file, const void *what, sp_error *err)
{
    const comparison *both = what;
    sp_status status = sp_export_gnuplot(file, both->predicted, NULL, NULL, err);
    fputs("\n\n# index 2 and 3: the same of what was measured\n", file);
    return status == SP_OK ? sp_export_gnuplot(file, both->measured, NULL, NULL, err) : status;
}

sp_status cli_plot_comparison(const char *path, const sp_timeline *predicted,
                              const sp_timeline *measured, sp_error *err)
{
    const comparison both = {.predicted = predicted, .measured = measured};
    return cli_plot("comparison.gp", path, write_comparison, &both, err);
}

// ---- ends by signals ----

void cli_end(int signal_number)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    cli_abandon_outputs();
    sigaction(signal_number, &action, NULL);
    raise(signal_number);
}

static volatile sig_atomic_t pipe_closed;

static void note_closed_pipe(int signal_number SP_UNUSED)
{
    pipe_closed = 1;
}

void cli_outlive_pipe(bool outlives)
{
    struct sigaction action = {.sa_handler = outlives ? note_closed_pipe : cli_end,
                               .sa_flags = outlives ? 0 : (int)SA_RESETHAND};
    if (!outlives) {
        fflush(stdout);
    }
    sigaction(SIGPIPE, &action, NULL);
    if (!outlives && pipe_closed != 0) {
        raise(SIGPIPE);
    }
}

sp_status cli_read_train_tokens(const char *text, double *tokens, sp_error *err)
{
    static const char units[] = "KMBT";
    *tokens = 0.0;
    if (text == NULL) {
        return SP_OK;
    }
    char *end = NULL;
    double number = strtod(text, &end);
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    for (const char *u = units; unit != NULL && u <= unit; u++) {
        number *= 1e3;
    }
    bool digits = text[0] >= '0' && text[0] <= '9' && strpbrk(text, "xXeEpP") == NULL;
    bool read = digits && end != text && (*end == '\0' || (unit != NULL && end[1] == '\0'));
    if (!read || !(number >= 1.0 && number <= 1e18)) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "--train-tokens: expected a number of tokens such as 300B or 15T, got "
                            "'%s'",
                            text);
    }
    *tokens = number;
    return SP_OK;
}

static double days_of(double tokens, const sp_result *result)
{
    return tokens / sp_result_tokens_per_s(result) / 86400.0;
}

static double gpu_hours_of(double tokens, const sp_result *result)
{
    return 24.0 * days_of(tokens, result) * (double)sp_layout_ranks(&result->layout);
}

// No error of a prediction is below a thousandth.
static int64_t three_digits(double number)
{
    const double unit = pow(10.0, fmax(0.0, floor(log10(fmax(number, 1.0))) - 2.0));
    return (int64_t)llround(round(number / unit) * unit);
}

const char *cli_training_text(double tokens, const sp_result *result, char text[CLI_TRAINING])
{
    static const char *const units[] = {"", "K", "M", "B", "T"};
    char hours[CLI_GROUPED];
    const double days = days_of(tokens, result);
    const bool short_run = days < 2.0;
    double number = tokens;
    int unit = 0;
    while (number >= 1e3 && unit < 4) {
        number /= 1e3;
        unit++;
    }
    snprintf(text, CLI_TRAINING, "%.6g%s tokens: %.*f %s, %s GPU-hours", number, units[unit],
             days < 100.0, short_run ? 24.0 * days : days, short_run ? "hours" : "days",
             cli_grouped(three_digits(gpu_hours_of(tokens, result)), hours));
    return text;
}

json_t *cli_training_json(double tokens, const sp_result *result)
{
    return tokens > 0.0
               ? sp_json_object(SP_JSON("tokens", tokens), SP_JSON("days", days_of(tokens, result)),
                                SP_JSON("gpu_hours", gpu_hours_of(tokens, result)))
               : NULL;
}

static volatile sig_atomic_t stop_signal; // 0: none has come

// The second signal ends the program at once.
static void on_stop(int signal_number)
{
    if (stop_signal != 0) {
        cli_end(signal_number);
    }
    stop_signal = signal_number;
    sp_stop_request();
}

// A signal that the parent ignores, as a shell does for a background job, stays so. A call that
// reads goes on.
static void catch_signal(int signal_number)
{
    struct sigaction action = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    struct sigaction before;
    sigemptyset(&action.sa_mask);
    if (sigaction(signal_number, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        sigaction(signal_number, &action, NULL);
    }
}

void cli_catch_stop(int64_t time_limit_s)
{
    catch_signal(SIGINT);
    catch_signal(SIGTERM);
    sp_stop_at(time_limit_s > 0 ? sp_clock_s() + (double)time_limit_s : 0.0);
}

bool cli_stopped_by_signal(void)
{
    return stop_signal != 0;
}

int cli_exit_of_stop(bool known)
{
    const int by_signal = 128;
    return stop_signal != 0 ? by_signal + (int)stop_signal
                            : sp_status_exit(known ? SP_OK : SP_ERR_LIMIT);
}
