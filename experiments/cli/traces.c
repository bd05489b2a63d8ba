// `calibrate` from traces of PyTorch's profiler, and how commands find such traces.
#include "experiments/cli/traces.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "experiments/fit/fit.h"
#include "experiments/fit/trace_profile.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"

// ---- files and folders ----

const char **cli_trace_paths(const cli_list *list, const cli_operands *operands, int first,
                             int *count)
{
    int more = operands->count > first ? operands->count - first : 0;
    const char **paths = sp_calloc((size_t)(list->count + more), sizeof *paths);
    *count = 0;
    for (int i = 0; i < list->count; i++) {
        paths[(*count)++] = list->items[i];
    }
    for (int i = 0; i < more; i++) {
        paths[(*count)++] = operands->items[first + i];
    }
    return paths;
}

static sp_status read_one(const char *path, bool whole, cli_traces *traces, sp_error *err)
{
    if (traces->count == SP_TRACED_FILES) {
        return sp_error_set(err, SP_ERR_LIMIT, "%s: more than %d traces", path,
                            (int)SP_TRACED_FILES);
    }
    sp_kineto *trace = &traces->own[traces->count];
    sp_status status = sp_kineto_read(path, trace, err);
    if (status == SP_OK && whole && trace->is_cut) {
        status = sp_error_at(err, SP_ERR_CONTENT, path, trace->cut_line, trace->cut_column,
                             "the file ends in the middle: events of a trace are in no order of "
                             "time, so that a step lacks nobody knows what ('calibrate "
                             "--from-trace' can use what is there)");
        sp_kineto_fini(trace);
    }
    if (status == SP_OK) {
        traces->items[traces->count++] = trace;
    }
    return status;
}

static bool is_trace(const char *name)
{
    static const char *const endings[] = {".json", ".json.gz"};
    size_t length = strlen(name);
    for (int i = 0; i < 2; i++) {
        size_t end = strlen(endings[i]);
        if (length > end && strcmp(name + length - end, endings[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static sp_status read_folder(const char *path, bool whole, cli_traces *traces, sp_error *err)
{
    char **names = NULL;
    size_t count = 0;
    size_t capacity = 0;
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return sp_error_system(err, path, errno);
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (is_trace(entry->d_name)) {
            *SP_ADDED(names, capacity, count) = sp_strdup(entry->d_name);
        }
    }
    (void)closedir(folder);
    sp_status status = count > 0
                           ? SP_OK
                           : sp_error_set(err, SP_ERR_CONTENT,
                                          "%s: no .json and no .json.gz in this folder", path);
    if (count > 0) {
        qsort(names, count, sizeof *names, by_name);
    }
    for (size_t i = 0; i < count; i++) {
        size_t bytes = strlen(path) + strlen(names[i]) + 2;
        char *file = sp_malloc(bytes);
        snprintf(file, bytes, "%s/%s", path, names[i]);
        status = status == SP_OK ? read_one(file, whole, traces, err) : status;
        sp_free(file);
        sp_free(names[i]);
    }
    sp_free(names);
    return status;
}

sp_status cli_traces_read(const char *const *paths, int count, bool whole, cli_traces *traces,
                          sp_error *err)
{
    sp_status status = SP_OK;
    *traces = (cli_traces){.own = sp_calloc(SP_TRACED_FILES, sizeof *traces->own),
                           .items = sp_calloc(SP_TRACED_FILES, sizeof(sp_kineto *))};
    for (int i = 0; status == SP_OK && i < count; i++) {
        struct stat about;
        bool folder = stat(paths[i], &about) == 0 && S_ISDIR(about.st_mode);
        status = folder ? read_folder(paths[i], whole, traces, err)
                        : read_one(paths[i], whole, traces, err);
    }
    return status;
}

void cli_traces_fini(cli_traces *traces)
{
    for (int i = 0; i < traces->count; i++) {
        sp_kineto_fini(&traces->own[i]);
    }
    sp_free(traces->own);
    sp_free(traces->items);
    *traces = (cli_traces){0};
}

// ---- for people ----

static void print_classes(const fit_traced *found)
{
    cli_table table;
    int64_t all_ns = 0;
    for (int c = 0; c < SP_KERNEL_CLASSES; c++) {
        all_ns += found->of[c].ns;
    }
    cli_table_begin(&table, "-22 kernels|9 number|12 with shapes|14 ms|8 share", "kernels", 0);
    for (int c = 0; c < SP_KERNEL_CLASSES; c++) {
        if (found->of[c].spans == 0 || !cli_row_begin(&table)) {
            continue;
        }
        cli_cell(&table, "%s", sp_kernel_class_names[c]);
        cli_count_cell(&table, (int64_t)found->of[c].spans);
        cli_count_cell(&table, (int64_t)found->with_shapes[c]);
        cli_number_cell(&table, "%.3f", 1e-6 * (double)found->of[c].ns);
        cli_number_cell(&table, "%.1f %%", 100.0 * (double)found->of[c].ns / (double)all_ns);
        cli_row_end(&table);
    }
    cli_table_end(&table);
}

enum { VALUES_SHOWN = 12 };

static void print_values(const fit_traced *found)
{
    cli_table table;
    if (found->value_count == 0) {
        return;
    }
    printf("\n");
    cli_table_begin(&table,
                    "-40 value of the profile|10 median|-15 unit|13 rate|8 spread|8 kernels",
                    "values", VALUES_SHOWN);
    for (size_t i = 0; i < found->value_count; i++) {
        const fit_trace_value *v = &found->values[i];
        if (!cli_row_begin(&table)) {
            continue;
        }
        cli_cell(&table, "%s", v->path);
        cli_number_cell(&table, "%.5g", v->value);
        cli_cell(&table, "%s", v->unit);
        if (v->rate > 0.0) {
            cli_cell(&table, "%.4g %s", v->rate, v->rate_unit);
        } else {
            cli_cell(&table, "-");
        }
        cli_number_cell(&table, "%.1f %%", 100.0 * v->spread);
        cli_count_cell(&table, (int64_t)v->kernels);
        cli_row_end(&table);
    }
    cli_table_end(&table);
}

static void print_absent(const fit_traced *found, const char *base)
{
    printf("\nof profile %s, for lack of evidence:\n", base);
    for (size_t i = 0; i < found->absent_count; i++) {
        int column = printf("  %s: ", found->absent[i].section);
        cli_print_wrapped(stdout, found->absent[i].why, column, 4);
    }
}

static void print_traces(const cli_traces *traces)
{
    for (int i = 0; i < traces->count; i++) {
        const sp_kineto *trace = traces->items[i];
        printf("%s: %zu spans of %s in %zu events", trace->path, trace->span_count,
               trace->gpu[0] != '\0' ? trace->gpu : "a GPU without a name", trace->events);
        if (trace->rank >= 0) {
            printf(", rank %lld", (long long)trace->rank);
        }
        if (trace->world > 0) {
            printf(" of %lld", (long long)trace->world);
        }
        printf("\n");
    }
    printf("\n");
}

// ---- the command ----

static sp_status write_profile(FILE *file, const void *what, sp_error *err SP_UNUSED)
{
    fit_document_write(what, file);
    return SP_OK;
}

static sp_status calibrate(const char *const *paths, int count, const char *base,
                           const char *output, cli_traces *traces, fit_traced *found, sp_error *err)
{
    SP_TRY(sp_output_check(output, err));
    SP_TRY(cli_traces_read(paths, count, false, traces, err));
    SP_TRY(fit_traces(traces->items, traces->count, base, output, found, err));
    if (found->document != NULL) {
        SP_TRY(cli_write_file(output, write_profile, found->document, err));
    }
    return SP_OK;
}

int cli_calibrate_traces(const cli_list *list, const cli_operands *operands, const char *base,
                         const char *output, const cli_common *common)
{
    int count;
    int exit_status = 0;
    sp_error err = {0};
    cli_traces traces = {0};
    fit_traced found = {0};
    const char **paths = cli_trace_paths(list, operands, 0, &count);
    if (calibrate(paths, count, base, output, &traces, &found, &err) != SP_OK) {
        exit_status = cli_fail(&err);
    } else if (common->json) {
        exit_status = cli_print_json(fit_traced_json(traces.items, traces.count, &found));
    } else {
        print_traces(&traces);
        print_classes(&found);
        print_values(&found);
        print_absent(&found, base);
    }
    if (exit_status == 0) {
        for (int i = 0; i < found.warnings.count; i++) {
            cli_warn(common->quiet || common->json, "%s", found.warnings.text[i]);
        }
    }
    if (exit_status == 0 && found.document == NULL) {
        (void)sp_error_set(&err, SP_ERR_CONTENT,
                           "%s: no value has the evidence of %d kernels: there is no profile to "
                           "write",
                           paths[0], (int)FIT_TRACE_LEAST);
        exit_status = cli_fail(&err);
    }
    fit_traced_fini(&found);
    cli_traces_fini(&traces);
    sp_free(paths);
    return exit_status;
}
