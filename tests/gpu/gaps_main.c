// gaps FOLDER: of every result in FOLDER (NAME.result.json of slimpack run --record) of a step in
// pipeline stages side by side (the wall clock, two ranks or more, no other parallelism): how long
// ranks were idle between two of their own actions although what the second reads was there
// (sp_measured_step_idle), by the stamps around their kernels. Prints a line for each; `share` is
// that of the idlest rank in the time of the step. What is idle inside an action is part of its
// time. Exit status: 0 some were looked at, 1 a result cannot be read, 2 wrong usage, 77 there are
// none.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/api/device.h"
#include "backends/record/result.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/scenario/scenario.h"

enum { PATH_BYTES = 1024, NONE = 77 };

static int is_result(const struct dirent *entry)
{
    static const char ending[] = ".result.json";
    size_t length = strlen(entry->d_name);
    return length > sizeof ending &&
           strcmp(entry->d_name + length - (sizeof ending - 1), ending) == 0;
}

static bool is_looked_at(const sp_result_file *file)
{
    const sp_layout *l = &file->plans.plans[0].layout;
    return file->status == SP_OK && file->run.clock == SP_CLOCK_WALL && l->pp > 1 &&
           l->tp * l->cp * l->dp == 1 && !l->vocab_parallel;
}

static sp_status print_gaps(const char *name, const sp_result_file *file, sp_error *err)
{
    const sp_measured_step *step = &file->batches[0].step;
    int64_t *idle_ns = sp_calloc(step->timeline.rank_count, sizeof *idle_ns);
    if (idle_ns == NULL) {
        return sp_error_no_memory(err, "gaps");
    }
    size_t worst = 0;
    sp_status status = sp_measured_step_idle(step->timeline.plan, step, idle_ns, err);
    for (size_t r = 1; r < step->timeline.rank_count; r++) {
        worst = idle_ns[r] > idle_ns[worst] ? r : worst;
    }
    if (status == SP_OK) {
        double step_ns = (double)step->timeline.iteration_ns;
        printf("{\"gaps\":\"%s\",\"pp\":%d,\"rank\":%zu,\"actions\":%zu,\"idle_us\":%.3f,"
               "\"step_us\":%.3f,\"share\":%.6f}\n",
               name, file->plans.plans[0].layout.pp, worst, step->timeline.ranks[worst].count,
               1e-3 * (double)idle_ns[worst], 1e-3 * step_ns, (double)idle_ns[worst] / step_ns);
    }
    sp_free(idle_ns);
    return status;
}

// Counts what was looked at.
static sp_status look_at(const char *folder, const char *name, int *count, sp_error *err)
{
    char path[2 * PATH_BYTES];
    json_t *root = NULL;
    sp_scenario scenario = {0};
    sp_result_file file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    sp_status status = sp_json_read_file(path, 0, &root, err);
    if (status != SP_OK) {
        return status;
    }
    const json_t *plan = json_object_get(json_object_get(root, "request"), "plan");
    status =
        sp_scenario_from_json(json_object_get(plan, "scenario"), path, NULL, 0, &scenario, err);
    if (status != SP_OK) {
        json_decref(root);
        return status;
    }
    status = sp_result_json_read(root, path, &scenario.layout, &file, err);
    if (status == SP_OK && is_looked_at(&file)) {
        status = print_gaps(name, &file, err);
        (*count)++;
    }
    if (status == SP_OK) {
        sp_result_file_fini(&file);
    }
    sp_scenario_fini(&scenario);
    return status;
}

int main(int argc, char **argv)
{
    struct dirent **entries;
    int count = 0;
    bool failed = false;
    if (argc != 2) {
        fprintf(stderr, "gaps FOLDER\n");
        return 2;
    }
    int files = scandir(argv[1], &entries, is_result, alphasort);
    if (files < 0) {
        fprintf(stderr, "gaps: %s: %s\n", argv[1], strerror(errno));
        return 2;
    }
    for (int i = 0; i < files; i++) {
        sp_error err = {0};
        if (look_at(argv[1], entries[i]->d_name, &count, &err) != SP_OK) {
            fprintf(stderr, "gaps: %s\n", err.message[0]);
            failed = true;
        }
        free(entries[i]);
    }
    free(entries);
    return failed ? 1 : count == 0 ? NONE : 0;
}
