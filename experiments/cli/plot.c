#include "experiments/cli/report.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/base/data_folder.h"
#include "sim/metrics/export.h"

enum {
    PATH_BYTES = 1024,
    NOT_STARTED = 127, // exit status of the child when gnuplot could not be started
};

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

static sp_status run_gnuplot(const char *script, const char *settings, const char *path,
                             sp_error *err)
{
    char file[SP_DATA_PATH];
    script_path(script, file);
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

// gnuplot (5.4) does not say that a disk was full: what begins as PNG or SVG must end as that does.
static bool is_whole(const char *path)
{
    enum { END = 16 };
    char text[END + 1] = "";
    struct stat found;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return false;
    }
    bool regular = fstat(fileno(file), &found) == 0 && S_ISREG(found.st_mode);
    int first = getc(file);
    size_t bytes = fseek(file, -END, SEEK_END) == 0 ? fread(text, 1, END, file) : 0;
    fclose(file);
    bool ends = first == '<'    ? strstr(text, "</svg>") != NULL
                : first == 0x89 ? bytes == END && memcmp(text + END - 8, "IEND", 4) == 0
                                : first != EOF;
    return !regular || ends;
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
    return cli_check_writable(path, err);
}

sp_status cli_plot(const char *script, const char *path, cli_writer write, const void *what,
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
    status = cli_write_file(data, write, what, err);
    status = status == SP_OK ? run_gnuplot(script, settings, path, err) : status;
    return status != SP_OK || is_whole(path)
               ? status
               : sp_error_set(err, SP_ERR_IO, "%s: not the whole picture could be written", path);
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
