#include "experiments/cli/plot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "experiments/calibrate/fit_report.h"
#include "experiments/cli/validate_report.h"

enum {
    PATH_BYTES = 1024,
    NOT_STARTED = 127, // exit status of the child when gnuplot could not be started
};

// A script beside the source or build tree, else the installed one.
typedef struct script {
    const char *source, *installed;
} script;

static const script timeline_script = {SP_PLOT_SOURCE_DIR "/timeline.gp",
                                       SP_PLOT_INSTALL_DIR "/timeline.gp"};
static const script residuals_script = {SP_PLOT_SOURCE_DIR "/residuals.gp",
                                        SP_PLOT_INSTALL_DIR "/residuals.gp"};

static const script validation_script = {SP_PLOT_SOURCE_DIR "/validation.gp",
                                         SP_PLOT_INSTALL_DIR "/validation.gp"};

static const script comparison_script = {SP_PLOT_SOURCE_DIR "/comparison.gp",
                                         SP_PLOT_INSTALL_DIR "/comparison.gp"};

static const char *script_path(const script *which)
{
    return access(which->source, R_OK) == 0 ? which->source : which->installed;
}

static sp_status write_data(const char *path, const sp_timeline *timeline,
                            const sp_memory_timeline *memory, const sp_export_window *window,
                            sp_error *err)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return sp_error_set(err, SP_ERR_IO, "%s: %s", path, strerror(errno));
    }
    sp_status status = sp_export_gnuplot(file, timeline, memory, window, err);
    if (fclose(file) != 0 && status == SP_OK) {
        status = sp_error_set(err, SP_ERR_IO, "%s: %s", path, strerror(errno));
    }
    return status;
}

static sp_status run_gnuplot(const script *which, const char *settings, const char *path,
                             sp_error *err)
{
    const char *file = script_path(which);
    pid_t child = fork();
    if (child == 0) {
        // gnuplot remarks on empty panels; what it says of real faults, the command that the error
        // names repeats.
        int nowhere = open("/dev/null", O_WRONLY);
        if (nowhere >= 0) {
            dup2(nowhere, STDOUT_FILENO);
            dup2(nowhere, STDERR_FILENO);
        }
        execlp("gnuplot", "gnuplot", "-e", settings, file, (char *)NULL);
        _exit(NOT_STARTED);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0) {
        return sp_error_set(err, SP_ERR_IO, "%s: cannot start gnuplot: %s", path, strerror(errno));
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_STARTED) {
        return sp_error_set(err, SP_ERR_IO, "%s: gnuplot is not installed (Debian: gnuplot-nox)",
                            path);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return sp_error_set(err, SP_ERR_IO,
                            "%s: gnuplot could not draw it; try: gnuplot -e \"%s\" %s", path,
                            settings, file);
    }
    return SP_OK;
}

sp_status cli_plot_check(const char *path, sp_error *err)
{
    const char *dot = strrchr(path, '.');
    if (dot == NULL || (strcmp(dot, ".png") != 0 && strcmp(dot, ".svg") != 0)) {
        return sp_error_set(err, SP_ERR_USAGE, "--plot expects a .png or .svg file, got '%s'",
                            path);
    }
    // The names go into a quoted gnuplot string.
    if (strlen(path) > PATH_BYTES - 8 || strchr(path, '\'') != NULL || strchr(path, '\n') != NULL) {
        return sp_error_set(err, SP_ERR_USAGE, "--plot: cannot use the file name '%s'", path);
    }
    return SP_OK;
}

sp_status cli_plot_timeline(const char *path, const sp_timeline *timeline,
                            const sp_memory_timeline *memory, const sp_export_window *window,
                            sp_error *err)
{
    char data[PATH_BYTES];
    char settings[2 * PATH_BYTES + 64];
    sp_status status = cli_plot_check(path, err);
    if (status != SP_OK) {
        return status;
    }
    snprintf(data, sizeof data, "%s.dat", path);
    snprintf(settings, sizeof settings, "datafile='%s'; outfile='%s'", data, path);
    status = write_data(data, timeline, memory, window, err);
    return status == SP_OK ? run_gnuplot(&timeline_script, settings, path, err) : status;
}

// Writes the data of a figure beside it, then draws it.
static sp_status plot(const script *which, const char *path,
                      void (*write)(FILE *file, const void *what), const void *what, sp_error *err)
{
    char data[PATH_BYTES];
    char settings[2 * PATH_BYTES + 64];
    sp_status status = cli_plot_check(path, err);
    if (status != SP_OK) {
        return status;
    }
    snprintf(data, sizeof data, "%s.dat", path);
    snprintf(settings, sizeof settings, "datafile='%s'; outfile='%s'", data, path);
    FILE *file = fopen(data, "w");
    if (file == NULL) {
        return sp_error_set(err, SP_ERR_IO, "%s: %s", data, strerror(errno));
    }
    write(file, what);
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        return sp_error_set(err, SP_ERR_IO, "%s: cannot write", data);
    }
    return run_gnuplot(which, settings, path, err);
}

static void write_residuals(FILE *file, const void *what)
{
    fit_report_data(file, what);
}

sp_status cli_plot_residuals(const char *path, const fit_outcome *outcome, sp_error *err)
{
    return plot(&residuals_script, path, write_residuals, outcome, err);
}

typedef struct validation_list {
    const sp_validation *items;
    int count;
} validation_list;

static void write_validations(FILE *file, const void *what)
{
    const validation_list *list = what;
    cli_write_validations(file, list->items, list->count);
}

sp_status cli_plot_validations(const char *path, const sp_validation *validations, int count,
                               sp_error *err)
{
    const validation_list list = {.items = validations, .count = count};
    return plot(&validation_script, path, write_validations, &list, err);
}

typedef struct comparison {
    const sp_timeline *predicted, *measured;
} comparison;

// A stream that fails is found by its error flag.
static void write_comparison(FILE *file, const void *what)
{
    const comparison *both = what;
    sp_export_gnuplot(file, both->predicted, NULL, NULL, NULL);
    fputs("\n\n# index 2 and 3: the same of what was measured\n", file);
    sp_export_gnuplot(file, both->measured, NULL, NULL, NULL);
}

sp_status cli_plot_comparison(const char *path, const sp_timeline *predicted,
                              const sp_timeline *measured, sp_error *err)
{
    const comparison both = {.predicted = predicted, .measured = measured};
    return plot(&comparison_script, path, write_comparison, &both, err);
}
