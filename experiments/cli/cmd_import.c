// `import`: what people have as a scenario; and --emit of other commands, the way back.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/frameworks/frameworks.h"
#include "sim/base/alloc.h"
#include "sim/base/files.h"
#include "sim/base/json.h"
#include "sim/workload/lengths.h"
#include "solver/setting_uses.h"

typedef struct import_args {
    cli_common common;
    cli_list set;
    const char *output, *from;
} import_args;

// ---- import ----

static void tell_unread(bool quiet, const json_t *unread)
{
    size_t i;
    json_t *item;
    json_array_foreach ((json_t *)unread, i, item) {
        const char *name = json_string_value(json_object_get(item, "name"));
        bool matters = json_is_true(json_object_get(item, "matters"));
        cli_warn(quiet, "%s:%lld: %s %s: %s", json_string_value(json_object_get(item, "file")),
                 (long long)json_integer_value(json_object_get(item, "line")), name,
                 matters ? "may change time or memory" : "is not known",
                 json_string_value(json_object_get(item, "why")));
    }
}

sp_status cli_import_layout(const char *path, bool quiet, json_t *document, json_t **whole,
                            sp_error *err)
{
    static const char *const sections[] = {"parallel", "schedule", "memory", "strategy", "stack"};
    json_t *read = NULL;
    json_t *unread = NULL;
    json_t *notes = NULL;
    sp_error own = {0};
    // A scenario of ours is one document; all else goes through the tables.
    sp_status status = sp_json_read_file(path, 0, &read, &own);
    const char *kind = status == SP_OK ? sp_json_kind(read) : NULL;
    if (kind == NULL || strcmp(kind, "a scenario") != 0) {
        json_decref(read);
        read = NULL;
        status = framework_import_files(&path, 1, NULL, NULL, 0, &read, &unread, &notes, err);
        tell_unread(quiet, unread);
    }
    bool states_layout = false;
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        states_layout = states_layout || json_object_get(read, sections[i]) != NULL;
    }
    if (status == SP_OK && !states_layout) {
        status = sp_error_set(err, SP_ERR_CONTENT,
                              "%s: states no layout (none of parallel, schedule, memory, strategy "
                              "and stack): expected a launch file or a scenario with one",
                              path);
    }
    for (size_t i = 0; status == SP_OK && i < sizeof sections / sizeof sections[0]; i++) {
        json_t *section = json_object_get(read, sections[i]);
        json_t *into = json_object_get(document, sections[i]);
        if (json_is_object(section) && json_is_object(into)) {
            json_object_update(into, section);
        } else if (section != NULL) {
            sp_json_put(document, sections[i], json_incref(section));
        }
    }
    // The work is the document's: so many micro-batches as it makes.
    json_object_del(json_object_get(document, "schedule"), "microbatches");
    *whole = read;
    json_decref(unread);
    json_decref(notes);
    return status;
}

// Is it a scenario? Files of a job often do not say the model.
static sp_status check(const json_t *document, sp_warnings *warnings, sp_error *err)
{
    const json_t *model = json_object_get(document, "model");
    if (model == NULL) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "import: no file says the model: state it with --set model=NAME, a "
                            "built-in one ('slimpack help models') or the path of a config.json");
    }
    sp_scenario scenario = {0};
    json_t *copy = json_deep_copy(document);
    sp_status status = sp_scenario_from_json(copy, "import", NULL, 0, &scenario, err);
    if (status == SP_OK && !scenario.uniform) {
        sp_warn_of_whole_batches(&scenario, warnings);
    }
    sp_scenario_fini(&scenario);
    json_decref(copy);
    return status;
}

static int write_scenario(const import_args *args, json_t *document, json_t *unread, json_t *notes,
                          sp_error *err)
{
    sp_status status = SP_OK;
    if (args->output != NULL) {
        json_t *placed = json_deep_copy(document);
        status = sp_scenario_place_in(placed, args->output, err);
        status = status == SP_OK ? cli_write_json(args->output, json_incref(placed), err) : status;
        json_decref(placed);
    }
    if (status != SP_OK) {
        return cli_fail(err);
    }
    if (args->common.json) {
        return cli_print_json(sp_json_object(
            SP_JSON("schema", "slimpack/import/1"), SP_JSON("scenario", json_incref(document)),
            SP_JSON("unread", json_incref(unread)), SP_JSON("notes", json_incref(notes))));
    }
    if (args->output == NULL) {
        return cli_print_json(json_incref(document));
    }
    if (strcmp(args->output, SP_STANDARD_OUTPUT) != 0) {
        printf("scenario in %s\n", args->output);
    }
    return 0;
}

static int run(const void *given, const cli_operands *operands)
{
    const import_args *args = given;
    sp_error err = {0};
    json_t *document = NULL;
    json_t *unread = NULL;
    json_t *notes = NULL;
    sp_status status = args->output != NULL ? sp_output_check(args->output, &err) : SP_OK;
    if (status == SP_OK) {
        status = framework_import_files((const char *const *)operands->items, operands->count,
                                        args->from, args->set.items, args->set.count, &document,
                                        &unread, &notes, &err);
        tell_unread(args->common.quiet, unread);
    }
    if (status == SP_OK) {
        sp_warnings warnings = {.count = 0};
        status = check(document, &warnings, &err);
        for (int w = 0; w < warnings.count; w++) {
            json_array_append_new(notes, json_string(warnings.text[w]));
        }
    }
    cli_warn_all(args->common.quiet, NULL, notes);
    int exit_status =
        status == SP_OK ? write_scenario(args, document, unread, notes, &err) : cli_fail(&err);
    json_decref(document);
    json_decref(unread);
    json_decref(notes);
    return exit_status;
}

// ---- what is no scenario ----

static bool is_of_ours(const json_t *root)
{
    static const char *const keys[] = {"schema",   "model",    "uniform_costs", "scenario",
                                       "workload", "parallel", "strategy",      "cluster"};
    bool is = false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        is = is || json_object_get(root, keys[i]) != NULL;
    }
    return is;
}

static bool is_list_of_lengths(const char *path)
{
    sp_lengths lengths = {0};
    sp_error own = {0};
    const bool is = strcmp(path, SP_STANDARD_INPUT) != 0 && !sp_is_stream(path) &&
                    sp_lengths_read(path, NULL, &lengths, &own) == SP_OK;
    sp_lengths_fini(&lengths);
    return is;
}

sp_status cli_read_root(const char *path, json_t **root, sp_error *err)
{
    sp_error own = {0};
    bool is_script = false;
    if (access(path, F_OK) != 0 && sp_model_builtin_meant(path) != NULL) {
        *root = sp_json_object(SP_JSON("model", path));
        return SP_OK;
    }
    sp_status status = sp_json_read_file(path, 0, root, &own);
    json_t *base = json_object_get(*root, "grid") != NULL ? json_object_get(*root, "base") : NULL;
    if (json_is_object(base)) { // of a sweep's specification
        json_incref(base);
        json_decref(*root);
        *root = base;
    }
    if (status == SP_OK && is_of_ours(*root)) {
        return SP_OK;
    }
    if (status == SP_ERR_IO) {
        *err = own;
        return status;
    }
    const framework *of = framework_of_file(path, &is_script);
    const bool may_be_lengths = status != SP_OK || json_is_array(*root);
    if (of != NULL) {
        status = sp_error_set(err, SP_ERR_CONTENT,
                              "%s: is a %s of %s: 'slimpack import %s -o scenario.json' makes a "
                              "scenario of it",
                              path, is_script ? "launch script" : "configuration", of->title, path);
    } else if (may_be_lengths && is_list_of_lengths(path)) {
        status =
            sp_error_set(err, SP_ERR_CONTENT,
                         "%s: expected an object, a scenario: a list of lengths goes by --lengths "
                         "%s (or --set workload.lengths=FILE) beside one",
                         path, path);
    } else if (status != SP_OK) {
        *err = own;
    }
    if (status != SP_OK) {
        json_decref(*root);
        *root = NULL;
    }
    return status;
}

// ---- --emit ----

enum { MOST_LOST = 32 }; // of settings that are named

// NAME or NAME=FILE; NULL: no such framework, which is an error.
static const framework *framework_of(const char *emit, const char **file, sp_error *err)
{
    char name[32];
    size_t length = strcspn(emit, "=");
    snprintf(name, sizeof name, "%.*s", (int)length, emit);
    *file = emit[length] != '='                   ? NULL
            : strcmp(emit + length + 1, "-") == 0 ? SP_STANDARD_OUTPUT
                                                  : emit + length + 1;
    const framework *of = framework_find(name);
    if (of == NULL) {
        framework_unknown("--emit: ", name, err);
    }
    return of;
}

sp_status cli_emit_check(const cli_list *emit, sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < emit->count; i++) {
        const char *file = NULL;
        if (framework_of(emit->items[i], &file, err) == NULL) {
            status = SP_ERR_USAGE;
        } else if (file != NULL && file[0] == '\0') {
            status = sp_error_set(err, SP_ERR_USAGE, "--emit %s: the name of a file is missing",
                                  emit->items[i]);
        } else if (file != NULL) {
            status = sp_output_check(file, err);
        }
    }
    return status;
}

const char *cli_emit_stack(const cli_list *emit)
{
    const char *stack = NULL;
    for (int i = 0; stack == NULL && i < emit->count; i++) {
        sp_error own = {0};
        const char *file = NULL;
        const framework *of = framework_of(emit->items[i], &file, &own);
        stack = of != NULL ? of->stack : NULL;
    }
    return stack;
}

// NULL: there is none.
static const framework *framework_of_stack(const sp_stack *stack)
{
    const framework *const *of = framework_table;
    while (*of != NULL && ((*of)->stack == NULL || strcmp((*of)->stack, stack->name) != 0)) {
        of++;
    }
    return *of;
}

json_t *cli_emit_own(const cli_list *emit, const sp_scenario *scenario, const char *key)
{
    json_t *own = NULL;
    for (int i = 0; own == NULL && i < (emit->count > 0 ? emit->count : 1); i++) {
        sp_error err = {0};
        const char *file = NULL;
        char *text = NULL;
        json_t *lost = NULL;
        const framework *of = emit->count > 0 ? framework_of(emit->items[i], &file, &err)
                                              : framework_of_stack(&scenario->memory.stack);
        if (of != NULL && framework_emit(of, scenario, &text, &lost, &err) == SP_OK) {
            own = json_incref(framework_own_value(lost, key));
        }
        json_decref(lost);
        sp_free(text);
    }
    return own;
}

static sp_status write_text(FILE *file, const void *what, sp_error *err)
{
    (void)err;
    fputs(what, file);
    return SP_OK;
}

// In one warning, so that none of it is left out where there are many others. What another of the
// files says is not lost.
static void tell_lost(bool quiet, const framework *of, const json_t *lost,
                      const json_t *const *others, int count)
{
    char all[MOST_LOST * FRAMEWORK_LOST] = "";
    size_t i;
    json_t *item;
    json_array_foreach ((json_t *)lost, i, item) {
        char words[FRAMEWORK_LOST];
        bool said = false;
        for (int k = 0; k < count; k++) {
            said = said ||
                   !framework_is_lost(others[k], json_string_value(json_object_get(item, "key")));
        }
        if (said) {
            continue;
        }
        sp_append(all, sizeof all, "%s%s", all[0] != '\0' ? ", " : "",
                  framework_lost_text(item, words));
    }
    if (all[0] != '\0') {
        cli_warn(quiet, "%s has no argument for %s", of->name, all);
    }
}

// Writes one of them, to its file or to stdout, else adds it to `said`.
static sp_status put_emitted(const framework *of, const char *file, const char *text,
                             const json_t *lost, json_t *said, sp_error *err)
{
    if (said != NULL) {
        json_array_append_new(
            said, sp_json_object(SP_JSON("framework", of->name), SP_JSON("text", text),
                                 SP_JSON("not_expressed", json_incref((json_t *)lost))));
    } else if (file == NULL) {
        cli_put_whole("\n");
        cli_put_whole(text);
    }
    return file != NULL ? cli_write_file(file, write_text, text, err) : SP_OK;
}

sp_status cli_emit(const cli_list *emit, const sp_scenario *scenario, json_t *answer, bool quiet,
                   sp_error *err)
{
    const size_t count = (size_t)emit->count;
    char **texts = sp_calloc(count + 1, sizeof *texts);
    json_t **lost = sp_calloc(count + 1, sizeof *lost);
    json_t *said = answer != NULL ? json_array() : NULL;
    sp_status status = SP_OK;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; status == SP_OK && i < count; i++) {
            const char *file = NULL;
            const framework *of = framework_of(emit->items[i], &file, err);
            if (of == NULL) {
                status = SP_ERR_USAGE;
            } else if (pass == 0) {
                status = framework_emit(of, scenario, &texts[i], &lost[i], err);
            } else {
                tell_lost(quiet, of, lost[i], (const json_t *const *)lost, (int)count);
                json_t *advice = framework_advice(of, scenario);
                cli_warn_all(quiet, NULL, advice);
                json_decref(advice);
                status = put_emitted(of, file, texts[i], lost[i], said, err);
            }
        }
    }
    if (status == SP_OK && json_array_size(said) > 0) {
        sp_json_put(answer, "emit", json_incref(count == 1 ? json_array_get(said, 0) : said));
    }
    for (size_t i = 0; i < count; i++) {
        json_decref(lost[i]);
        sp_free(texts[i]);
    }
    json_decref(said);
    sp_free(texts);
    sp_free(lost);
    return status;
}

// ---- the command ----

static const cli_option options[] = {
    CLI_TEXT_OPTION(CLI_OUTPUT, 'o', "output", "FILE", import_args, output,
                    "where the scenario is written (default: standard output)"),
    CLI_NAMES_OPTION("from", "NAME", import_args, from, framework_names,
                     "the framework (default: that which knows most of the names)"),
    CLI_SET_OPTION(import_args),
    CLI_COMMON_OPTIONS(import_args),
    {0},
};

static const char *const examples[] = {
    "slimpack import train.sh -o scenario.json --set cluster=h800-8",
    "slimpack import config.json ds_zero3.json --set workload.context=8K -o scenario.json",
    "slimpack import - --set model=llama-3-8b < recipe.toml | slimpack simulate -",
    NULL,
};

const cli_command cli_cmd_import = {
    .name = "import",
    .summary = "read launch scripts and recipes of training frameworks as a scenario",
    CLI_TAKES("FILE...", 1, -1),
    .description =
        "Reads what a job is launched with and writes it as a scenario, which every other command "
        "takes: launch scripts of Megatron-LM (shell, with variables, arrays and continued lines) "
        "and its YAML, recipes of Megatron-Bridge, NeMo and nanotron (YAML), of torchtitan (TOML), "
        "DeepSpeed's JSON, the arguments of TRL's SFT trainer with accelerate's YAML, and the "
        "config.json of a Hugging Face model or the folder that holds one. Several files make one "
        "scenario, such as a model and DeepSpeed's file. Numbers of nodes, tasks and GPUs that "
        "Slurm sets as variables are those of #SBATCH lines.\n\nArguments that are not understood "
        "are "
        "listed by file and line on standard error, and in the JSON (unread): matters is true "
        "where they change time or memory, null where their name is not known. Paths, logs, seeds "
        "and learning rates are passed over. What a file does not say (the GPUs, lengths of "
        "documents) is told, too: --set states it.\n\nThe way back is --emit of tune, compare "
        "--best-layout and simulate.",
    CLI_RUNS(run, import_args, options, examples),
};
