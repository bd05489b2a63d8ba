// `measure`: what a stranger runs once on a machine with a GPU. Calibrations and plans are
// processes of this program, so that one that crashes or hangs costs itself alone.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/execution/measurement.h"
#include "sim/base/alloc.h"
#include "sim/base/data_folder.h"
#include "sim/base/json.h"
#include "sim/base/progress.h"

enum {
    PATH_BYTES = 4096,
    LINE_BYTES = 4096,
    MOST_ARGUMENTS = 64,
    DEFAULT_MINUTES = 10,
    WHOLE_MINUTES = 5,    // with less a calibration is a quick one
    MOST_BYTES = 1 << 28, // of a document
    STEPS = 4             // one to warm up, and the median of three
};

// The most seconds of one part: about twice what backends/cuda/README.md estimates. No figure of a
// GPU stands behind them yet.
#define CALIBRATION_S 150.0
#define CASE_S 60.0
#define LEAST_S 2.0 // no part begins with less

typedef struct measure_args {
    cli_common common;
    const char *backend, *precision, *output;
    int64_t device, minutes, steps;
    cli_list parts; // none: all
} measure_args;

typedef struct kit {
    const measure_args *args;
    const char *backend, *precision;
    const char *set; // path
    char work[PATH_BYTES];
    json_t *measurement; // owned
    sp_set_profile profiles[SP_SET_PROFILES];
    int profile_count;
    double begin_s;
    int missing;  // parts that are not there
    int left_out; // of --part
    bool *met;    // [texts of --part]: a part has it
} kit;

static double left_s(const kit *k)
{
    return 60.0 * (double)k->args->minutes - (sp_clock_s() - k->begin_s);
}

// A file that is written again, which sp_input_open() would guard.
static sp_status read_own(const char *path, json_t **document, sp_error *err)
{
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return sp_error_system(err, path, errno);
    }
    sp_status status = sp_json_read_stream(file, MOST_BYTES, path, document, err);
    fclose(file);
    return status;
}

// Splits words between spaces in place, behind `count` that are there.
static void split_words(char *text, char *words[MOST_ARGUMENTS], int count)
{
    char *rest = NULL;
    for (char *word = strtok_r(text, " \n", &rest); word != NULL && count < MOST_ARGUMENTS - 1;
         word = strtok_r(NULL, " \n", &rest)) {
        words[count++] = word;
    }
    words[count] = NULL;
}

// ---- parts ----

static void tell_part(const kit *k, const sp_measured_part *part)
{
    if (!k->args->common.quiet) {
        fprintf(stderr, "%-40s %-11s %6.1f s%s%s\n", part->name, part->status, part->seconds,
                part->reason != NULL ? "  " : "", part->reason != NULL ? part->reason : "");
    }
}

// The words of a part's command, and what it leaves.
typedef struct part_command {
    const char *name, *key, *entry; // of the part, and of its document
    char **argv;
    double limit_s;
    bool quick;
    bool negative; // exit status 1 is an answer, and so is a record of what failed
    char kept[PATH_BYTES + 96];
} part_command;

// Takes in what a part has left, also the record of why a case failed, and writes all that there is
// by now.
static sp_status end_part(kit *k, const sp_measured_part *part, const part_command *command,
                          sp_error *err)
{
    json_t *document = NULL;
    bool good = strcmp(part->status, "ok") == 0;
    if (good || (command->negative && sp_is_file(command->kept))) {
        SP_TRY(read_own(command->kept, &document, err));
        sp_json_put(json_object_get(k->measurement, command->key), command->entry, document);
    }
    k->missing += !good;
    sp_measurement_note(k->measurement, part);
    tell_part(k, part);
    return sp_measurement_write(k->measurement, k->args->output, err);
}

// Has the part's name, or one of the words of its command, one of the texts of --part? Notes which.
static bool is_wanted(kit *k, const part_command *command)
{
    const cli_list *parts = &k->args->parts;
    bool wanted = parts->count == 0;
    for (int p = 0; p < parts->count; p++) {
        bool has = strstr(command->name, parts->items[p]) != NULL;
        for (int w = 1; command->argv[w] != NULL && !has; w++) {
            has = strstr(command->argv[w], parts->items[p]) != NULL;
        }
        k->met[p] = k->met[p] || has;
        wanted = wanted || has;
    }
    return wanted;
}

static sp_status refuse_parts(const kit *k, sp_error *err)
{
    const cli_list *parts = &k->args->parts;
    for (int p = 0; p < parts->count; p++) {
        if (!k->met[p]) {
            return sp_error_set(err, SP_ERR_USAGE,
                                "--part: no part has '%s' in its name or command", parts->items[p]);
        }
    }
    return SP_OK;
}

static sp_status run_part(kit *k, const part_command *command, sp_error *err)
{
    sp_measured_part part = {.name = command->name, .quick = command->quick};
    bool wanted = is_wanted(k, command);
    if (sp_measurement_has(k->measurement, command->name, command->quick)) {
        return SP_OK;
    }
    if (!wanted) {
        k->left_out++;
        return SP_OK;
    }
    double left = left_s(k);
    if (left < LEAST_S) {
        part.status = "not reached";
        return end_part(k, &part, command, err);
    }
    const cli_child child = {
        .folder = k->work, .argv = command->argv, .limit_s = fmin(left, command->limit_s)};
    cli_ended c = cli_run_child(&child);
    bool good = c.exit_status == 0 || (command->negative && c.exit_status == 1);
    part.status = good ? "ok" : c.late ? "over time" : "failed";
    part.seconds = c.seconds;
    part.reason = good ? NULL : c.said;
    return end_part(k, &part, command, err);
}

// ---- calibrations ----

static sp_status calibrate(kit *k, const sp_set_profile *profile, sp_error *err)
{
    char name[96];
    char partitions[16];
    char device[24];
    char file[PATH_BYTES];
    bool quick = k->args->minutes < WHOLE_MINUTES;
    snprintf(name, sizeof name, "profile %.64s", profile->name);
    snprintf(partitions, sizeof partitions, "%d", profile->partitions);
    snprintf(device, sizeof device, "%lld", (long long)k->args->device);
    snprintf(file, sizeof file, "%.64s.profile.json", profile->name);
    char *words[] = {"slimpack",    "calibrate",
                     "--backend",   (char *)(uintptr_t)k->backend,
                     "--precision", (char *)(uintptr_t)k->precision,
                     "--device",    device,
                     "--quiet",     "-o",
                     file,          NULL,
                     NULL,          NULL,
                     NULL};
    int count = 11;
    if (quick) {
        words[count++] = "--quick";
    }
    if (profile->partitions > 1) {
        words[count++] = "--partitions";
        words[count++] = partitions;
    }
    part_command command = {.name = name,
                            .key = "profiles",
                            .entry = profile->name,
                            .argv = words,
                            .limit_s = CALIBRATION_S,
                            .quick = quick};
    snprintf(command.kept, sizeof command.kept, "%s/%.80s", k->work, file);
    return run_part(k, &command, err);
}

// ---- cases ----

// Plans are made by the profiles that the program has, so that every machine executes the same; a
// partition's, which it may not have, by that of the whole device.
static sp_status make_plans(kit *k, sp_error *err)
{
    for (int p = 0; p < k->profile_count; p++) {
        const sp_set_profile *profile = &k->profiles[p];
        char path[PATH_BYTES + 96];
        json_t *document = NULL;
        sp_status status = sp_set_stand_in(profile, &document, err);
        if (status == SP_OK && document != NULL) {
            snprintf(path, sizeof path, "%s/profiles/%s.json", k->work, profile->name);
            status = sp_measurement_write(document, path, err);
        }
        json_decref(document);
        if (status != SP_OK) {
            return status;
        }
    }
    char device[24];
    char steps[24];
    snprintf(device, sizeof device, "%lld", (long long)k->args->device);
    snprintf(steps, sizeof steps, "%lld", (long long)k->args->steps);
    char *words[] = {"slimpack",
                     "validate",
                     "set.json",
                     "--backend",
                     (char *)(uintptr_t)k->backend,
                     "--precision",
                     (char *)(uintptr_t)k->precision,
                     "--device",
                     device,
                     "--steps",
                     steps,
                     "--export",
                     ".",
                     "--quiet",
                     NULL};
    const cli_child child = {.folder = k->work, .argv = words, .limit_s = left_s(k)};
    cli_ended c = cli_run_child(&child);
    // 1: a case has no plan, or runs out of memory.
    if (c.exit_status != 0 && c.exit_status != 1) {
        return sp_error_set(err, SP_ERR_CONTENT, "%s: no plans: %s", k->set, c.said);
    }
    return SP_OK;
}

static sp_status execute(kit *k, char *line, sp_error *err)
{
    char *words[MOST_ARGUMENTS] = {"slimpack"};
    char name[96];
    char entry[SP_CASE_FILE];
    split_words(line, words, 1);
    if (words[1] == NULL || words[2] == NULL) {
        return SP_OK;
    }
    snprintf(entry, sizeof entry, "%.*s", (int)strcspn(words[2], "."), words[2]);
    snprintf(name, sizeof name, "case %s", entry);
    part_command command = {.name = name,
                            .key = "results",
                            .entry = entry,
                            .argv = words,
                            .limit_s = CASE_S,
                            .negative = true};
    snprintf(command.kept, sizeof command.kept, "%s/%s.result.json", k->work, entry);
    return run_part(k, &command, err);
}

// Those by the wall clock, or the others.
static sp_status execute_all(kit *k, bool wall, sp_error *err)
{
    char path[PATH_BYTES + 16];
    char line[LINE_BYTES];
    FILE *runs;
    snprintf(path, sizeof path, "%s/runs.txt", k->work);
    sp_status status = sp_input_open(path, &runs, err);
    while (status == SP_OK && fgets(line, sizeof line, runs) != NULL) {
        if ((strstr(line, "--clock wall") != NULL) == wall) {
            status = execute(k, line, err);
        }
    }
    if (runs != NULL) {
        fclose(runs);
    }
    return status;
}

// ---- all of it ----

static sp_status measure_all(kit *k, sp_error *err)
{
    sp_status status = SP_OK;
    for (int partitioned = 0; partitioned < 2; partitioned++) {
        for (int p = 0; status == SP_OK && p < k->profile_count; p++) {
            if ((k->profiles[p].partitions > 1) == partitioned) {
                status = calibrate(k, &k->profiles[p], err);
            }
        }
        status = status == SP_OK ? execute_all(k, partitioned, err) : status;
    }
    return status;
}

// Prints the table of what is predicted beside what was executed, and keeps the report.
static int compare(kit *k, sp_error *err)
{
    char path[PATH_BYTES + 24];
    json_t *report = NULL;
    char *words[] = {"slimpack",
                     "validate",
                     "set.json",
                     "--backend",
                     (char *)(uintptr_t)k->backend,
                     "--executed",
                     ".",
                     "-o",
                     "validation.json",
                     k->args->common.wide ? "--wide" : NULL,
                     NULL};
    sp_warnings warnings = {0};
    if (sp_measurement_unpack(k->measurement, k->args->output, k->work, &warnings, err) != SP_OK) {
        return cli_fail(err);
    }
    cli_print_warnings(k->args->common.quiet, &warnings);
    const cli_child child = {.folder = k->work,
                             .argv = words,
                             .shown = !k->args->common.json,
                             .limit_s = (double)INFINITY};
    cli_ended c = cli_run_child(&child);
    if (c.exit_status != 0 && c.exit_status != 1) {
        sp_error_set(err, SP_ERR_CONTENT, "%s: not compared: %s", k->args->output, c.said);
        return cli_fail(err);
    }
    snprintf(path, sizeof path, "%s/validation.json", k->work);
    sp_status status = read_own(path, &report, err);
    if (status == SP_OK) {
        sp_json_put(k->measurement, "validation", report);
        status = sp_measurement_write(k->measurement, k->args->output, err);
    }
    return status == SP_OK ? c.exit_status : cli_fail(err);
}

// The set as a file that is given, or the one that travels with the program.
static sp_status read_set(kit *k, const cli_operands *operands, char path[SP_DATA_PATH],
                          json_t **set, sp_error *err)
{
    path[0] = '\0';
    if (operands->count > 0) {
        snprintf(path, SP_DATA_PATH, "%s", operands->items[0]);
    }
    char folder[SP_DATA_PATH];
    for (int n = 0; path[0] == '\0' && sp_data_folder("experiments", n, folder); n++) {
        static const char own[] = "/validate_gpu.json";
        if (strlen(folder) + sizeof own <= SP_DATA_PATH) {
            snprintf(path, SP_DATA_PATH, "%.*s%s", SP_DATA_PATH - (int)sizeof own, folder, own);
            path[sp_is_file(path) ? strlen(path) : 0] = '\0';
        }
    }
    if (path[0] == '\0') {
        return sp_error_set(err, SP_ERR_IO, "validate_gpu.json is not among the program's files");
    }
    k->set = path;
    SP_TRY(sp_json_read_file(path, 0, set, err));
    if (!sp_is_scenario_set(*set)) {
        SP_TRY(sp_error_in(err, SP_ERR_CONTENT, path, "schema",
                           "expected a set of scenarios (\"" SP_SCENARIO_SET_SCHEMA "\")"));
    }
    return SP_OK;
}

// The measurement that is there, or a new one.
static sp_status begin(kit *k, const json_t *set, const sp_device_info *device, sp_error *err)
{
    json_t *expected =
        sp_measurement_new(set, k->backend, k->precision, (int)k->args->steps, device);
    k->measurement = expected;
    if (!sp_is_file(k->args->output)) {
        return sp_output_check(k->args->output, err);
    }
    sp_status status = read_own(k->args->output, &k->measurement, err);
    if (status != SP_OK) {
        k->measurement = expected;
        return status;
    }
    status = sp_measurement_check(k->measurement, k->args->output, expected, err);
    json_decref(expected);
    return status;
}

static sp_status find_device(const measure_args *args, const char *backend, sp_device_info *device,
                             sp_precision *precision, sp_error *err)
{
    sp_registry *registry;
    const sp_backend *found;
    SP_TRY(sp_registry_new(&registry, err));
    sp_status status = sp_registry_find(registry, backend, &found, err);
    if (status == SP_OK) {
        status = sp_backend_device_info(found, (int)args->device, device, err);
    }
    if (status == SP_OK) {
        status = cli_choose_precision(args->precision, device, precision, err);
    }
    sp_registry_free(registry);
    return status;
}

// Held until the process ends, however it does: no other call may work there. A folder that is not
// there is nobody's.
static sp_status hold(const char *work, sp_error *err)
{
    int folder = open(work, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0 && flock(folder, LOCK_EX | LOCK_NB) != 0) {
        close(folder);
        return sp_error_set(err, SP_ERR_IO, "%s: another 'slimpack measure' works there", work);
    }
    return SP_OK;
}

static sp_status prepare(kit *k, const json_t *set, sp_error *err)
{
    char path[PATH_BYTES + 16];
    snprintf(path, sizeof path, "%s/set.json", k->work);
    SP_TRY(sp_measurement_write(set, path, err));
    SP_TRY(sp_work_folder_use(k->work, err));
    return make_plans(k, err);
}

static int run(const void *given, const cli_operands *operands)
{
    const measure_args *args = given;
    sp_error err = {0};
    sp_device_info device;
    sp_precision precision;
    json_t *set = NULL;
    char path[SP_DATA_PATH];
    kit k = {.args = args, .backend = args->backend, .begin_s = sp_clock_s()};
    if (args->output == NULL) {
        return cli_usage_error(&cli_cmd_measure, "'measure' needs -o FILE");
    }
    // Several streams share no queue (backends/cuda/README.md).
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    snprintf(k.work, sizeof k.work, "%.*s.work", PATH_BYTES - 8, args->output);
    sp_status status = read_set(&k, operands, path, &set, &err);
    status =
        status == SP_OK ? sp_set_profiles(set, path, k.profiles, &k.profile_count, &err) : status;
    status = status == SP_OK ? find_device(args, k.backend, &device, &precision, &err) : status;
    if (status == SP_OK) {
        k.precision = sp_precision_names[precision];
        status = begin(&k, set, &device, &err);
    }
    status = status == SP_OK ? hold(k.work, &err) : status;
    status = status == SP_OK ? sp_work_folder_make(k.work, &err) : status;
    bool made = status == SP_OK;
    status = status == SP_OK ? hold(k.work, &err) : status;
    status = status == SP_OK ? prepare(&k, set, &err) : status;
    k.met = sp_calloc((size_t)args->parts.count + 1, sizeof *k.met);
    status = status == SP_OK ? measure_all(&k, &err) : status;
    status = status == SP_OK ? refuse_parts(&k, &err) : status;
    sp_free(k.met);
    int exit_status = status == SP_OK ? compare(&k, &err) : cli_fail(&err);
    if (made) {
        sp_work_folder_remove(k.work);
    }
    if (status == SP_OK && k.missing > 0) {
        cli_warn(args->common.quiet,
                 "parts that failed or were not reached: %d; the same call tries them again",
                 k.missing);
    }
    if (status == SP_OK && k.left_out > 0) {
        cli_warn(args->common.quiet, "parts that --part leaves out: %d", k.left_out);
    }
    if (exit_status <= 1 && args->common.json) {
        json_incref(k.measurement);
        int printed = cli_print_json(k.measurement);
        exit_status = printed != 0 ? printed : exit_status;
    }
    json_decref(k.measurement);
    json_decref(set);
    return exit_status;
}

static const measure_args measure_defaults = {
    .backend = "cuda", .minutes = DEFAULT_MINUTES, .steps = STEPS};

static const cli_option measure_options[] = {
    CLI_TEXT_OPTION(CLI_KEPT, 'o', "output", "FILE", measure_args, output,
                    "the measurement; one that is there is gone on with"),
    CLI_TEXT_OPTION(CLI_STRING, 0, "backend", "NAME", measure_args, backend,
                    "what is measured: cuda (default), host, or another plug-in by name or path"),
    CLI_INT_OPTION("device", "N", measure_args, device, 0, CLI_MOST_DEVICES,
                   "device of the backend (default 0)"),
    CLI_TEXT_OPTION(CLI_STRING, 0, "precision", "P", measure_args, precision,
                    "fp64, fp32 or bf16 (default: fp32 where the device has it, else bf16)"),
    CLI_INT_OPTION("minutes", "N", measure_args, minutes, 1, 600,
                   "time for all parts (default 10); with less than 5 calibrations are quick ones"),
    CLI_TEXT_OPTION(CLI_LIST, 0, "part", "TEXT", measure_args, parts,
                    "only parts with TEXT in their name or command, such as calibrate, virtual, "
                    "wall or 03-zb; may be repeated"),
    CLI_INT_OPTION("steps", "N", measure_args, steps, 1, CLI_MOST_STEPS,
                   "steps of each case; of several the first warms up (default 4)"),
    CLI_COMMON_OPTIONS(measure_args),
    {0},
};

static const char *const measure_examples[] = {
    "slimpack measure -o h200.measured.json",
    "slimpack measure -o h200.measured.json --minutes 2",
    "slimpack measure -o h200.measured.json --part 1of4 --part wall",
    "slimpack measure experiments/validate_host.json --backend host -o host.measured.json",
    NULL,
};

const cli_command cli_cmd_measure = {
    .name = "measure",
    .summary = "measure a GPU: its profile, and plans beside their prediction",
    CLI_TAKES("[SET]", 0, 1),
    .description =
        "Measures everything that a profile of this GPU needs and how well it predicts, in one "
        "file that can be sent to others: operators and collectives ('slimpack calibrate "
        "--backend'), then every plan of SET, executed, and its prediction by the profiles just "
        "measured, as 'slimpack validate --executed' prints it. No file names the machine or its "
        "user. SET (slimpack/validation-set/1) is experiments/validate_gpu.json unless another is "
        "given; a profile that it names NAME-1ofN is measured on one of N partitions of the "
        "GPU.\n\nEvery part is a process with a time limit, and FILE is written after each: what "
        "fails or is cut off costs itself alone, and the same call, with the same SET and options "
        "but for --minutes and --part, goes on with what is missing. Parts run in the folder "
        "FILE.work, which "
        "goes at the end. The exit "
        "status is 1 where a part is missing or a bound of SET is missed.\n\n'slimpack validate "
        "SET --backend NAME --executed FILE' compares a file again, "
        "with what the program predicts now by the profiles in it; 'slimpack calibrate --measured "
        "FILE' takes the profiles out.",
    CLI_RUNS(run, measure_args, measure_options, measure_examples),
    .defaults = &measure_defaults,
};
