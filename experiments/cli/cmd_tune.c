// `tune`: what is asked, the search, and what is said where no point fits.
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "experiments/frameworks/frameworks.h"
#include "sim/base/alloc.h"
#include "sim/base/files.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "solver/step/step.h"
#include "solver/strategy.h"

typedef struct tune_args {
    cli_common common;
    cli_list set, current, emit;
    int64_t gpus, context, tokens_per_batch, jobs, top;
    const char *cluster, *lengths, *strategies, *output;
    int64_t time_limit_s;
    const char *train_tokens;
    const char *schedules;
    bool exhaustive, any_schedule;
} tune_args;

enum {
    MOST_STRATEGIES = 32,
    TOP = 10,
    SURVIVORS = 24,
    TOKENS = 4 << 20,   // of a batch, as Llama 3 trained with (arXiv 2407.21783, section 3.4.1) ...
    LEAST_SAMPLES = 16, // ... or so many of the context
    // Rows of a step of fine-tuning, taken to be full: as many as the samples of a batch of Tulu 3
    // (arXiv 2411.15124, supervised fine-tuning) and, with adapters, of QLoRA up to 33B (arXiv
    // 2305.14314, appendix B).
    TUNED_ROWS = 128,
    ADAPTED_ROWS = 16,
};

typedef struct tuning {
    const char *model;
    json_t *work;    // the scenario that stands in the place of a model; owned, NULL: there is none
    json_t *base;    // with the overrides; owned
    json_t *current; // the base with what --current states; owned, NULL: not asked for
    json_t *of_file; // all that the last file of --current says; owned, NULL: there is none
    json_t *kept;    // object, owned: numerics of --current that are not the stack's, by their keys
    sp_scenario scenario;
    sp_batches batches;
    char names[MOST_STRATEGIES][SP_STRATEGY_NAME];
    const char *strategies[MOST_STRATEGIES];
    int count;
    const char *schedules[SP_SCHEDULE_KINDS]; // of --schedules
    int schedule_count;                       // 0: those that are searched without it
    const char *step;                         // why it has so many tokens; NULL: it is stated
    char stack[64];    // that is searched within where --set states none; "": the usual one
    cli_launch launch; // the files that the answer is to be run by
} tuning;

static const char default_cluster[] = "h100-8";

static bool is_set(const tune_args *args, const char *path)
{
    return sp_scenario_stated(args->set.items, args->set.count, path) != NULL;
}

static bool states_strategies(const tune_args *args)
{
    return args->strategies != NULL || is_set(args, "strategy.kind");
}

// N: it is not known.
static void add_number(FILE *out, const char *option, int64_t number)
{
    if (number > 0) {
        fprintf(out, " --%s %lld", option, (long long)number);
    } else {
        fprintf(out, " --%s N", option);
    }
}

static void add_question(FILE *out, const tune_args *args, const char *model, const char *stack)
{
    fputs("slimpack tune ", out);
    sp_print_word(out, model);
    add_number(out, "gpus", args->gpus);
    add_number(out, "context", args->context);
    if (!is_set(args, "cluster") && args->cluster != default_cluster) {
        fputs(" --cluster ", out);
        sp_print_word(out, args->cluster);
    }
    if (args->lengths != NULL) {
        fputs(" --lengths ", out);
        sp_print_word(out, args->lengths);
    }
    if (args->tokens_per_batch > 0) {
        fprintf(out, " --tokens-per-batch %lld", (long long)args->tokens_per_batch);
    }
    if (args->any_schedule) {
        fputs(" --any-schedule", out);
    }
    if (stack[0] != '\0' && !is_set(args, "stack") && !is_set(args, "stack.name")) {
        fprintf(out, " --set stack.name=%s", stack);
    }
    for (int i = 0; i < args->set.count; i++) {
        fputs(" --set ", out);
        sp_print_word(out, args->set.items[i]);
    }
}

enum { VALUE = 64 };

static const char *stated_text(const json_t *value, char text[VALUE])
{
    if (json_is_real(value)) {
        snprintf(text, VALUE, "%.6g", json_real_value(value));
    } else if (json_is_string(value)) {
        snprintf(text, VALUE, "%s", json_string_value(value));
    } else {
        sp_json_quote(value, text, VALUE);
    }
    return text;
}

static const char *assignment_of(const char *path, const json_t *value, char text[VALUE * 2])
{
    char stated[VALUE];
    snprintf(text, VALUE * 2, "%s=%s", path, stated_text(value, stated));
    return text;
}

static void add_settings(FILE *out, const tune_args *args, const json_t *settings)
{
    const char *path;
    json_t *value;
    json_object_foreach ((json_t *)settings, path, value) {
        char assignment[VALUE * 2];
        if (!is_set(args, path)) {
            fputs(" --set ", out);
            sp_print_word(out, assignment_of(path, value, assignment));
        }
    }
}

// Is there a file of the answer to go on with? A pipe or a screen is read once.
static bool is_written(const tune_args *args)
{
    return args->output != NULL && !cli_is_stream(args->output);
}

// The same search again, which writes its answer, and then the simulation of that. The caller frees
// it with sp_free().
static char *search_again(const tune_args *args, const tuning *t)
{
    sp_text text;
    FILE *out = sp_text_begin(&text);
    add_question(out, args, t->model, t->stack);
    add_settings(out, args, t->kept);
    if (args->strategies != NULL) {
        fprintf(out, " --strategies %s", args->strategies);
    }
    if (args->schedules != NULL) {
        fprintf(out, " --schedules %s", args->schedules);
    }
    if (args->exhaustive) {
        fputs(" --exhaustive", out);
    }
    if (args->time_limit_s > 0) {
        fprintf(out, " --time-limit %lld", (long long)args->time_limit_s);
    }
    fputs(" -o best.json && slimpack simulate best.json --timeline", out);
    return sp_text_end(&text);
}

// The command for a shell that simulates a point: that of the file that holds it, else the same
// question with every setting of the point stated, which evaluates this one alone, and then that.
// The caller frees it with sp_free().
static char *command_for(const tune_args *args, const tuning *t, const sweep_layouts *layouts,
                         const sweep_layout *point, const char *strategy)
{
    sp_text text;
    const char *file = is_written(args) ? args->output : "best.json";
    json_t *settings = sweep_layouts_settings(layouts, point);
    FILE *out = sp_text_begin(&text);
    if (!is_written(args)) {
        add_question(out, args, t->model, t->stack);
        add_settings(out, args, t->kept);
        if (!is_set(args, "strategy.kind")) {
            fprintf(out, " --strategies %s", strategy);
        }
        add_settings(out, args, settings);
        fprintf(out, " -o %s && ", file);
    }
    fputs("slimpack simulate ", out);
    sp_print_word(out, file);
    fputs(" --timeline", out);
    json_decref(settings);
    return sp_text_end(&text);
}

// ---- what is asked ----

static sp_status check_conflicts(const tune_args *args, sp_error *err)
{
    const struct {
        const char *option, *path;
        bool given;
    } pairs[] = {
        {"MODEL", "model", true},
        {"--cluster", "cluster", args->cluster != default_cluster},
        {"--context", "workload.context", true},
        {"--tokens-per-batch", "workload.samples_per_batch", args->tokens_per_batch > 0},
        {"--tokens-per-batch", "workload.tokens_per_batch", args->tokens_per_batch > 0},
        {"--strategies", "strategy.kind", args->strategies != NULL},
        {"--schedules", "schedule.kind", args->schedules != NULL},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (pairs[i].given && is_set(args, pairs[i].path)) {
            return sp_error_set(err, SP_ERR_USAGE, "%s and --set %s exclude each other",
                                pairs[i].option, pairs[i].path);
        }
    }
    if (args->tokens_per_batch > 0 && args->tokens_per_batch < args->context &&
        args->lengths == NULL) {
        return sp_error_set(
            err, SP_ERR_USAGE,
            "--tokens-per-batch %lld holds no sample of the %lld tokens of --context",
            (long long)args->tokens_per_batch, (long long)args->context);
    }
    return SP_OK;
}

// Without what need not go together with the degrees before these are searched: points tell. The
// caller owns it.
static json_t *open_base(const json_t *base)
{
    json_t *document = json_deep_copy(base);
    json_t *parallel = json_object_get(document, "parallel");
    json_object_del(parallel, "chunks_per_rank");
    json_object_del(parallel, "layers_per_chunk");
    json_object_del(parallel, "stage_layers");
    json_object_del(json_object_get(document, "schedule"), "kind");
    return document;
}

static sp_status read_base(const json_t *base, sp_scenario *scenario, sp_error *err)
{
    json_t *document = open_base(base);
    sp_status status = sp_scenario_from_json(document, "tune", NULL, 0, scenario, err);
    json_decref(document);
    return status;
}

static bool states_step(const tune_args *args)
{
    return args->tokens_per_batch > 0 || is_set(args, "workload.samples_per_batch") ||
           is_set(args, "workload.tokens_per_batch");
}

// Without its step where nobody states it. What --set states comes later.
static json_t *workload_of(const tune_args *args, const json_t *work)
{
    json_t *workload = json_deep_copy(json_object_get(work, "workload"));
    workload = workload != NULL ? workload : json_object();
    // Without lengths samples are as long as the context.
    bool drawn = args->lengths != NULL || is_set(args, "workload.lengths") ||
                 json_object_get(workload, "lengths") != NULL;
    json_object_del(workload, "uniform");
    if (states_step(args)) {
        json_object_del(workload, "samples_per_batch");
        json_object_del(workload, "tokens_per_batch");
    }
    if (drawn && args->tokens_per_batch > 0) {
        sp_json_put(workload, "tokens_per_batch", json_integer(args->tokens_per_batch));
    } else if (args->tokens_per_batch > 0) {
        sp_json_put(workload, "samples_per_batch",
                    json_integer(args->tokens_per_batch / args->context));
    }
    sp_json_put(workload, "context", json_integer(args->context));
    return workload;
}

// The step that is taken where nobody states it: what the work mostly takes, as far as a list of
// lengths goes, but a row for each GPU at least where that is no more than pretraining takes.
// Fine-tuning is what a stack for it does, what trains adapters, and what has so few lengths.
static int64_t choose_step(const tune_args *args, const sp_scenario *scenario, const char **reason)
{
    const int64_t context = args->context;
    const int64_t pretrained = LEAST_SAMPLES * context > TOKENS ? LEAST_SAMPLES * context : TOKENS;
    const int64_t listed = sp_workload_tokens(&scenario->workload); // 0: no list
    const bool adapts = scenario->model.lora_rank > 0;
    const int64_t rows = adapts ? ADAPTED_ROWS : TUNED_ROWS;
    const bool few = listed > 0 && listed < pretrained;
    int64_t tokens = rows * context;
    *reason = "assumed";
    if (!adapts && !few && !sp_stack_fine_tunes(&scenario->memory.stack)) {
        return pretrained;
    }
    *reason = adapts ? "assumed for adapters: 16 rows" : "assumed for fine-tuning: 128 rows";
    if (listed > 0 && listed < tokens) {
        tokens = listed;
        *reason = "all lengths once";
    }
    if (tokens < args->gpus * context) {
        tokens = args->gpus * context;
        *reason = "assumed: a row for each GPU";
    }
    if (tokens > pretrained) {
        tokens = pretrained;
        *reason = "assumed";
    }
    return tokens;
}

// NAN: it follows from the lengths.
static double tokens_of_step(const sp_workload_spec *workload)
{
    return workload->uniform_tokens > 0
               ? (double)workload->uniform_tokens * (double)workload->samples_per_batch
           : workload->tokens_per_batch > 0 ? (double)workload->tokens_per_batch
                                            : (double)NAN;
}

// Of the last file of --current; 0: there is none, or it says nothing of it.
static int64_t step_of_file(const tune_args *args)
{
    double tokens = 0.0;
    for (int i = 0; i < args->current.count; i++) {
        sp_error own = {0};
        sp_scenario scenario = {0};
        json_t *layout = json_object();
        json_t *whole = NULL;
        if (strchr(args->current.items[i], '=') == NULL &&
            cli_import_layout(args->current.items[i], true, layout, &whole, &own) == SP_OK &&
            sp_scenario_from_json(whole, "current", NULL, 0, &scenario, &own) == SP_OK) {
            tokens = tokens_of_step(&scenario.workload);
        }
        sp_scenario_fini(&scenario);
        json_decref(whole);
        json_decref(layout);
    }
    return tokens > 0.0 ? (int64_t)tokens : 0; // nor of lengths alone
}

// Puts it into the base, which is read for it.
static void put_step(const tune_args *args, tuning *t)
{
    sp_error own = {0};
    sp_scenario scenario = {0};
    t->step = NULL;
    json_t *workload = json_object_get(t->base, "workload");
    const bool stated = json_object_get(workload, "samples_per_batch") != NULL ||
                        json_object_get(workload, "tokens_per_batch") != NULL;
    // The reader of the base tells of what it cannot read.
    if (!stated && read_base(t->base, &scenario, &own) == SP_OK) {
        const int64_t of_file = step_of_file(args);
        const int64_t tokens = of_file > 0 ? of_file : choose_step(args, &scenario, &t->step);
        t->step = of_file > 0 ? "as --current has it" : t->step;
        if (json_object_get(workload, "lengths") != NULL) {
            sp_json_put(workload, "tokens_per_batch", json_integer(tokens));
        } else {
            sp_json_put(workload, "samples_per_batch",
                        json_integer(cli_tune_shared(args->gpus, tokens / args->context)));
        }
    }
    sp_scenario_fini(&scenario);
}

// Degrees that are stated must divide the GPUs. *left: those that the stated ones leave to the
// others.
static sp_status divide(const json_t *document, int64_t gpus, const char *option, int64_t *left,
                        sp_error *err)
{
    static const char *const degrees[] = {"tp", "cp", "pp", "dp"};
    const json_t *parallel = json_object_get(document, "parallel");
    *left = gpus;
    for (size_t i = 0; i < sizeof degrees / sizeof degrees[0]; i++) {
        // The reader of the scenario tells of what is no degree.
        double number = json_number_value(json_object_get(parallel, degrees[i]));
        int64_t degree = number >= 1.0 && number <= CLI_TUNE_MOST_GPUS ? (int64_t)number : 0;
        if (degree > 0 && *left % degree != 0) {
            return sp_error_set(
                err, SP_ERR_USAGE,
                "%s parallel.%s=%lld: the degrees stated do not divide the %lld GPUs of --gpus",
                option, degrees[i], (long long)degree, (long long)gpus);
        }
        *left /= degree > 0 ? degree : 1;
    }
    return SP_OK;
}

// Data-parallel ranks follow from the other degrees where nobody states them.
static void put_dp(json_t *document, int64_t left)
{
    json_t *parallel = json_object_get(document, "parallel");
    // The reader of the scenario tells of what is no object.
    if (json_is_object(parallel) && json_object_get(parallel, "dp") == NULL) {
        sp_json_put(parallel, "dp", json_integer(left));
    }
}

// Where none is stated, by its name or beside settings of its own. "": nothing.
static void put_stack(json_t *document, const char *name)
{
    json_t *stated = json_object_get(document, "stack");
    if (name[0] != '\0' && stated == NULL) {
        sp_json_put(document, "stack", json_string(name));
    } else if (name[0] != '\0' && json_is_object(stated) &&
               json_object_get(stated, "name") == NULL) {
        sp_json_put(stated, "name", json_string(name));
    }
}

// What of a scenario is no choice of the search, where the command line does not state it.
static void take_work(const tune_args *args, const json_t *work, json_t *base)
{
    static const char *const keys[] = {"model", "precision", "profile", "cluster"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *value = json_object_get(work, keys[i]);
        if (value != NULL &&
            (strcmp(keys[i], "cluster") != 0 || args->cluster == default_cluster)) {
            sp_json_put(base, keys[i], json_deep_copy(value));
        }
    }
}

static sp_status make_base(const tune_args *args, tuning *t, sp_error *err)
{
    int64_t left = 0;
    t->base = sp_json_object(SP_JSON("schema", "slimpack/scenario/1"), SP_JSON("model", t->model),
                             SP_JSON("cluster", args->cluster), SP_JSON("parallel", json_object()),
                             SP_JSON("workload", workload_of(args, t->work)));
    take_work(args, t->work, t->base);
    sp_status status = cli_change_document(t->base, &args->set, args->lengths, err);
    if (status == SP_OK) {
        put_stack(t->base, t->stack);
        status = divide(t->base, args->gpus, "--set", &left, err);
    }
    if (status == SP_OK) {
        put_dp(t->base, left);
        put_step(args, t);
    }
    return status;
}

static const char *const of_layout[] = {"parallel.", "schedule.", "memory.", "strategy.", "stack"};

enum { LAYOUT_SECTIONS = sizeof of_layout / sizeof of_layout[0] };

// The setting of a layout whose name an assignment has without its section; NULL: none.
static const char *layout_key_of(const char *assignment)
{
    char name[VALUE];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(assignment, "="), assignment);
    const sp_setting *setting = sp_setting_find(name);
    for (int s = 0; s < LAYOUT_SECTIONS && setting != NULL; s++) {
        if (strncmp(setting->key, of_layout[s], strlen(of_layout[s])) == 0) {
            return setting->key;
        }
    }
    return NULL;
}

// Another model, cluster or workload would be other work.
static sp_status check_current(const cli_list *current, sp_error *err)
{
    for (int i = 0; i < current->count; i++) {
        bool is = strchr(current->items[i], '=') == NULL; // a file
        for (int s = 0; s < LAYOUT_SECTIONS; s++) {
            is = is || strncmp(current->items[i], of_layout[s], strlen(of_layout[s])) == 0;
        }
        if (!is && layout_key_of(current->items[i]) != NULL) {
            return sp_error_set(err, SP_ERR_USAGE, "--current: did you mean '%s%s'?",
                                layout_key_of(current->items[i]), strchr(current->items[i], '='));
        }
        if (!is) {
            return sp_error_set(err, SP_ERR_USAGE,
                                "--current: '%s' is no setting of a layout (parallel.*, "
                                "schedule.*, memory.*, strategy.*, stack.*): what holds for all "
                                "layouts is stated with --set",
                                current->items[i]);
        }
    }
    return SP_OK;
}

// The layout that is compared with, on as many GPUs.
static sp_status make_current(const tune_args *args, tuning *t, sp_error *err)
{
    int64_t left = 0;
    t->current = json_deep_copy(t->base);
    json_object_del(json_object_get(t->current, "parallel"), "dp");
    sp_status status = check_current(&args->current, err);
    for (int i = 0; status == SP_OK && i < args->current.count; i++) {
        const char *item = args->current.items[i];
        if (strchr(item, '=') != NULL) {
            status = sp_scenario_override(t->current, item, err);
        } else if (sp_setting_find(item) != NULL && access(item, F_OK) != 0) {
            status = sp_error_set(err, SP_ERR_USAGE, "--current %s: expected %s=VALUE, or a file",
                                  item, sp_setting_find(item)->key);
        } else {
            json_decref(t->of_file);
            status = cli_import_layout(item, args->common.quiet, t->current, &t->of_file, err);
        }
    }
    if (status == SP_OK) {
        status = divide(t->current, args->gpus, "--current", &left, err);
    }
    const json_t *parallel = json_object_get(t->current, "parallel");
    if (status == SP_OK && left > 1 && json_is_number(json_object_get(parallel, "dp"))) {
        status =
            sp_error_set(err, SP_ERR_USAGE, "--current: its degrees make %lld GPUs, --gpus is %lld",
                         (long long)(args->gpus / left), (long long)args->gpus);
    }
    if (status == SP_OK) {
        put_dp(t->current, left);
        // What is no scenario is told before the search.
        sp_scenario scenario = {0};
        json_t *document = json_deep_copy(t->current);
        status = sp_scenario_from_json(document, "--current", NULL, 0, &scenario, err);
        sp_scenario_fini(&scenario);
        json_decref(document);
    }
    return status;
}

static void put_kept(const tune_args *args, const json_t *kept, json_t *base)
{
    sp_error err = {0};
    const char *path;
    json_t *value;
    json_object_foreach ((json_t *)kept, path, value) {
        char assignment[VALUE * 2];
        if (!is_set(args, path)) {
            sp_scenario_override(base, assignment_of(path, value, assignment), &err);
        }
    }
}

// In which numbers gradients and optimizer states are is no choice of speed: the answer keeps those
// that --current states, or the scenario that is tuned, but where --set states others.
static void keep_numerics(const tune_args *args, tuning *t)
{
    static const char *const keys[] = {"stack.gradient_reduce_dtype", "stack.moment_bytes",
                                       "stack.no_master_weights"};
    const json_t *current = json_object_get(t->current != NULL ? t->current : t->work, "stack");
    sp_scenario own = {0};
    sp_error err = {0};
    json_t *document = json_deep_copy(t->base);
    if (sp_scenario_from_json(document, "tune", NULL, 0, &own, &err) == SP_OK) {
        const json_t *stack = json_object_get(own.resolved, "stack");
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
            json_t *value = json_object_get(current, sp_setting_leaf(keys[i]));
            const json_t *usual = json_object_get(stack, sp_setting_leaf(keys[i]));
            if (value != NULL && !json_equal(value, usual) && !is_set(args, keys[i])) {
                sp_json_put(t->kept, keys[i], json_incref(value));
            }
        }
    }
    sp_scenario_fini(&own);
    json_decref(document);
    put_kept(args, t->kept, t->base);
}

static sp_status add_strategies(tuning *t, const char *list, const char *option, sp_error *err)
{
    while (list != NULL) {
        size_t length = strcspn(list, ",");
        if (t->count == MOST_STRATEGIES || length >= SP_STRATEGY_NAME) {
            return sp_error_set(err, SP_ERR_USAGE, "%s: cannot use '%.*s'", option, (int)length,
                                list);
        }
        char *name = t->names[t->count];
        memcpy(name, list, length);
        name[length] = '\0';
        const char *known = sp_listed_name(name, sp_strategy_names);
        if (known == NULL) {
            return sp_strategy_check(name, option, err);
        }
        snprintf(name, sizeof t->names[0], "%s", known);
        t->strategies[t->count++] = name;
        list = list[length] == ',' ? list + length + 1 : NULL;
    }
    return SP_OK;
}

// What is tried where no strategy is stated: packed rows, what the stack runs of those that follow,
// and SlimPack, which tells what others would add; of a stack that runs all, a choice of them.
// Samples that fill their rows leave strategies nothing to choose.
static void add_usual_strategies(const tune_args *args, tuning *t)
{
    static const struct {
        const char *name;
        bool always, of_all;
    } usual[] = {{"packed", true, true},     {"bfd", false, true},      {"hybrid-cp", false, false},
                 {"bytescale", false, true}, {"slimpipe", false, true}, {"slimpack", true, true},
                 {"slimpack-zb", true, true}};
    const char *runs = sp_stack_abilities_of(&t->scenario.memory.stack).strategies;
    const bool all = runs == NULL || args->any_schedule;
    const size_t count = t->scenario.workload.uniform_tokens > 0 ? 1 : sizeof usual / sizeof *usual;
    for (size_t i = 0; i < count; i++) {
        if (all ? usual[i].of_all : usual[i].always || sp_stack_lists(runs, usual[i].name)) {
            t->strategies[t->count++] = usual[i].name;
        }
    }
}

static sp_status choose_strategies(const tune_args *args, tuning *t, sp_error *err)
{
    if (args->strategies != NULL) {
        return add_strategies(t, args->strategies, "--strategies", err);
    }
    if (is_set(args, "strategy.kind")) {
        return add_strategies(t, t->scenario.strategy.kind, "--set", err);
    }
    add_usual_strategies(args, t);
    return SP_OK;
}

// A file of ours that holds a scenario; NULL: it holds none.
static json_t *scenario_of(const char *file)
{
    sp_error own = {0};
    json_t *root = NULL;
    const char *kind = NULL;
    if (sp_is_file(file) && sp_json_read_file(file, 0, &root, &own) == SP_OK) {
        kind = sp_json_kind(root);
    }
    if (kind != NULL && strcmp(kind, "a scenario") == 0) {
        return root;
    }
    json_decref(root);
    return NULL;
}

static void take_stack(const json_t *work, tuning *t)
{
    const json_t *stack = json_object_get(work, "stack");
    const char *name =
        json_string_value(json_is_object(stack) ? json_object_get(stack, "name") : stack);
    if (name != NULL) {
        snprintf(t->stack, sizeof t->stack, "%s", name);
    }
}

// What is written for a framework, or compared with a launch file, is searched within the
// framework's stack, what is compared with a scenario, or asked by one, within that one's. Adapters
// are Hugging Face's where nothing says otherwise: the usual stack is not known to train any.
static void choose_stack(const tune_args *args, tuning *t)
{
    const char *launched = cli_emit_stack(&t->launch.files);
    snprintf(t->stack, sizeof t->stack, "%s", launched != NULL ? launched : "");
    if (launched == NULL) {
        take_stack(t->work, t);
    }
    for (int i = 0; launched == NULL && i < args->current.count; i++) {
        json_t *root = scenario_of(args->current.items[i]);
        take_stack(root, t);
        json_decref(root);
    }
    if (t->stack[0] == '\0' &&
        (is_set(args, "model.lora_rank") || framework_get(t->work, "model.lora_rank") != NULL)) {
        snprintf(t->stack, sizeof t->stack, "trl-2025");
    }
}

// Keeps the search within what the launch files can ask for. What is done with documents above the
// context is what the framework, or the stack's own, does where nobody states it.
static sp_status keep_to_launch(const tune_args *args, tuning *t, sp_error *err)
{
    static const char over[] = "workload.over_length";
    cli_launch *launch = &t->launch;
    const bool states = states_strategies(args);
    json_t *open = open_base(t->base);
    const char *strategy = t->strategies[0];
    if (!args->any_schedule && !states) {
        strategy = cli_launch_strategies(launch, open, &t->scenario, t->strategies, t->count);
    }
    json_t *own =
        framework_get(t->base, over) == NULL ? cli_launch_own(launch, open, strategy, over) : NULL;
    if (own != NULL) {
        sp_json_put(t->kept, over, own);
        put_kept(args, t->kept, t->base);
    }
    json_decref(open);
    open = open_base(t->base);
    sp_status status = SP_OK;
    if (!is_set(args, "workload.samples_per_batch") && !is_set(args, "workload.tokens_per_batch")) {
        status = cli_launch_count(launch, open, &t->scenario, strategy, args->gpus, err);
    }
    if (launch->rows > 0) {
        t->step = launch->step;
        framework_put_at(t->base, "workload.tokens_per_batch", json_integer(launch->row_tokens));
    }
    if (status == SP_OK && (own != NULL || launch->rows > 0)) {
        sp_scenario_fini(&t->scenario);
        t->scenario = (sp_scenario){0};
        status = read_base(t->base, &t->scenario, err);
    }
    json_decref(open);
    return status;
}

static sp_status begin(const tune_args *args, tuning *t, sp_error *err)
{
    sp_status status = check_conflicts(args, err);
    cli_launch_find(&args->emit, &args->current, &t->launch);
    choose_stack(args, t);
    if (status == SP_OK) {
        status = make_base(args, t, err);
    }
    if (status == SP_OK && args->current.count > 0) {
        status = make_current(args, t, err);
    }
    if (status == SP_OK && (args->current.count > 0 || t->work != NULL)) {
        keep_numerics(args, t);
    }
    if (status == SP_OK) {
        status = read_base(t->base, &t->scenario, err);
    }
    if (status == SP_OK && t->scenario.uniform) {
        status = sp_error_set(err, SP_ERR_USAGE, "'tune' needs a model, not uniform_costs");
    }
    if (status == SP_OK) {
        status = choose_strategies(args, t, err);
    }
    if (status == SP_OK) {
        status = keep_to_launch(args, t, err);
    }
    return status == SP_OK ? cli_form_batches(args->common.quiet, &t->scenario, &t->batches, err)
                           : status;
}

// ---- the answer ----

static sp_status evaluate(const tuning *t, json_t *document, const char *source, int threads,
                          sp_scenario *scenario, sp_result *result, sp_error *err)
{
    const sp_evaluate_options options = {.threads = threads, .allocator_peak = true};
    sp_status status = sp_scenario_from_json(document, source, NULL, 0, scenario, err);
    return status == SP_OK ? sp_evaluate(scenario, &t->batches, &options, result, err) : status;
}

static bool differ(double a, double b)
{
    return fabs(a - b) > 0.01 * b;
}

static const char *precision_of(const sp_scenario *scenario)
{
    const char *name = json_string_value(json_object_get(scenario->resolved, "precision"));
    return name != NULL ? name : "bf16";
}

// The file's layout trains what the answer trains, for only steps of the same work can be compared.
// Adds what of the file's own work is another.
static void add_other_work(const tuning *t, sp_warnings *warnings)
{
    sp_scenario own = {0};
    const sp_model *model = &t->scenario.model;
    const sp_workload_spec *workload = &t->scenario.workload;
    sp_error err = {0};
    json_t *document = json_deep_copy(t->of_file);
    if (document == NULL) {
        return;
    }
    if (sp_scenario_from_json(document, "current", NULL, 0, &own, &err) != SP_OK) {
        sp_warnings_add(warnings,
                        "whether the file's steps are of the same work is not known, only its "
                        "layout is taken: %s",
                        err.message[0]);
    } else {
        char number[2][CLI_SHORT_NUMBER];
        double tokens = tokens_of_step(&own.workload);
        // Full rows of the file, as what it counts.
        const double rows = (double)t->launch.rows;
        double asked = rows > 0.0 && own.workload.uniform_tokens > 0
                           ? rows * (double)workload->context
                           : tokens_of_step(workload);
        if (own.model.layers != model->layers || own.model.hidden != model->hidden ||
            differ((double)sp_model_parameters(&own.model), (double)sp_model_parameters(model))) {
            sp_warnings_add(warnings,
                            "the file's model of %d layers, %s parameters is not trained: its "
                            "layout is timed with %s",
                            (int)own.model.layers,
                            cli_short_number((double)sp_model_parameters(&own.model), number[0]),
                            cli_model_name(&t->scenario));
        }
        if (own.workload.context != workload->context) {
            sp_warnings_add(warnings, "the file's context is %lld, its layout is timed with %lld",
                            (long long)own.workload.context, (long long)workload->context);
        }
        if (differ(tokens, asked)) {
            sp_warnings_add(warnings,
                            "the file's steps have %s tokens, its layout is timed with %s as the "
                            "answer is (--tokens-per-batch %.0f asks for its own)",
                            cli_short_number(tokens, number[0]), cli_short_number(asked, number[1]),
                            tokens);
        }
        const char *precision = precision_of(&own);
        if (strcmp(precision, precision_of(&t->scenario)) != 0) {
            sp_warnings_add(warnings,
                            "the file's steps are in %s, its layout is timed in %s as the answer "
                            "is (--set precision=%s asks for its own)",
                            precision, precision_of(&t->scenario), precision);
        }
    }
    sp_scenario_fini(&own);
    json_decref(document);
}

// ---- what else than the layout makes the current one slower ----

enum { DIFFERENCES = 320, MOST_NAMED = 8 };

// The settings of kernels and exchanges, but for those that follow from the layout; owned by the
// caller.
static json_t *kernels_of(const sp_scenario *scenario)
{
    static const char section[] = "stack.";
    const json_t *memory = json_object_get(scenario->resolved, "memory");
    json_t *kernels =
        sp_json_object(SP_JSON("attention", json_incref(json_object_get(memory, "attention"))));
    json_object_update(kernels, json_object_get(scenario->resolved, "stack"));
    const char *key;
    json_t *value;
    json_object_foreach (json_object_get(scenario->resolved, "chosen"), key, value) {
        if (strncmp(key, section, sizeof section - 1) == 0) {
            json_object_del(kernels, key + sizeof section - 1);
        }
    }
    return kernels;
}

static void name_difference(const char *key, const json_t *own, const json_t *answer,
                            char text[DIFFERENCES])
{
    char value[2][VALUE];
    if (json_is_boolean(own)) {
        sp_append(text, DIFFERENCES, "%s%s", json_is_true(own) ? "" : "no ", key);
        return;
    }
    sp_append(text, DIFFERENCES, "%s %s instead of %s", key, stated_text(own, value[0]),
              stated_text(answer, value[1]));
}

// Names the first of what differs; returns how many do. What only one of them states is no matter
// where the layouts differ.
static int name_differences(const sp_scenario *own, const sp_scenario *answer,
                            char text[DIFFERENCES])
{
    json_t *kernels = kernels_of(own);
    json_t *others = kernels_of(answer);
    const char *key;
    json_t *value;
    int count = 0;
    text[0] = '\0';
    json_object_foreach (kernels, key, value) {
        const json_t *other = json_object_get(others, key);
        const bool idle = own->layout.cp == 1 && strncmp(key, "cp_", 3) == 0;
        if (other != NULL && !idle && !json_equal(value, other) && count++ < MOST_NAMED) {
            sp_append(text, DIFFERENCES, "%s", count > 1 ? ", " : "");
            name_difference(key, value, other, text);
        }
    }
    if (count > MOST_NAMED) {
        sp_append(text, DIFFERENCES, " and %d more", count - MOST_NAMED);
    }
    json_decref(kernels);
    json_decref(others);
    return count;
}

// The current layout with the stack that the answer is for.
static json_t *with_stack_of_answer(const tuning *t)
{
    json_t *document = json_deep_copy(t->current);
    json_t *memory = json_object_get(document, "memory");
    json_t *stack = json_object_get(t->base, "stack");
    json_t *attention = json_object_get(json_object_get(t->base, "memory"), "attention");
    json_object_del(document, "stack");
    json_object_del(memory, "attention");
    if (stack != NULL) {
        sp_json_put(document, "stack", json_deep_copy(stack));
    }
    if (attention != NULL) {
        sp_json_put(memory, "attention", json_incref(attention));
    }
    return document;
}

// Adds the numerics that the answer has from --current.
static void add_kept(const tuning *t, sp_warnings *warnings)
{
    const char *key;
    json_t *value;
    json_object_foreach (t->kept, key, value) {
        char text[VALUE];
        if (strncmp(key, "stack.", strlen("stack.")) != 0) {
            continue;
        }
        sp_warnings_add(warnings,
                        "the answer keeps its %s %s, where the stack's is another (--set %s=VALUE "
                        "asks for it)",
                        key, stated_text(value, text), key);
    }
}

// Adds which kernels and exchanges of the current layout are not the answer's, and what they take
// of its step.
static void add_other_stack(const tuning *t, cli_tuned *tuned, const sp_scenario *own,
                            const sp_result *result, int threads, sp_warnings *warnings)
{
    char differences[DIFFERENCES];
    sp_error err = {0};
    sp_scenario scenario = {0};
    sp_result same = {0};
    if (name_differences(own, tuned->scenario, differences) == 0) {
        return;
    }
    json_t *document = with_stack_of_answer(t);
    sp_status status = evaluate(t, document, "--current", threads, &scenario, &same, &err);
    const double ms = sp_result_iteration_ms(result);
    const double same_ms = sp_result_iteration_ms(&same);
    if (status != SP_OK || sp_result_is_oom(&same)) {
        sp_warnings_add(warnings,
                        "its stack is not the answer's (%s): what that costs is not timed, with "
                        "the answer's it %s",
                        differences,
                        status == SP_OK ? "runs out of memory" : "has no plan at its layout");
    } else if (sp_result_is_oom(result)) {
        sp_warnings_add(warnings,
                        "its stack is not the answer's (%s): with the answer's its layout fits and "
                        "takes %.1f ms",
                        differences, same_ms);
    } else {
        tuned->switched_ms = same_ms;
        sp_warnings_add(warnings,
                        "its stack is not the answer's (%s): with the answer's its layout takes "
                        "%.1f ms, %.1f %% %s than the %.1f ms with its own",
                        differences, same_ms, 100.0 * fabs(1.0 - same_ms / ms),
                        same_ms <= ms ? "less" : "more", ms);
    }
    json_decref(document);
    sp_result_fini(&same);
    sp_scenario_fini(&scenario);
}

// A scenario that is tuned with a layout and a stack of its own may come of a launch file.
static void add_changes_of_work(const tuning *t, cli_tuned *tuned)
{
    static const cli_list none = {0};
    sp_scenario own = {0};
    sp_error err = {0};
    json_t *document = json_deep_copy(t->work);
    if (json_object_get(document, "parallel") != NULL &&
        json_object_get(document, "stack") != NULL &&
        sp_scenario_from_json(document, "tune", NULL, 0, &own, &err) == SP_OK) {
        cli_launch_changes(&none, &own, true, tuned);
    }
    sp_scenario_fini(&own);
    json_decref(document);
}

// What it warns of is said beside the answer, in a document among the answer's warnings. A layout
// that has no plan leaves the answer: its reason stands in `err`.
static sp_status evaluate_current(const tune_args *args, const tuning *t, cli_tuned *tuned,
                                  sp_warnings *warnings, sp_error *err)
{
    sp_scenario scenario = {0};
    sp_result result = {0};
    sp_status status =
        evaluate(t, t->current, "--current", cli_threads(args->jobs), &scenario, &result, err);
    sp_warnings told = {.count = 0};
    add_other_work(t, &told);
    add_kept(t, &told);
    if (status == SP_OK) {
        add_other_stack(t, tuned, &scenario, &result, cli_threads(args->jobs), &told);
        cli_launch_changes(&args->current, &scenario, t->of_file != NULL, tuned);
    }
    sp_warnings_add_all(&told, &result.warnings, "");
    for (int w = 0; status == SP_OK && w < told.count; w++) {
        cli_warn(args->common.quiet || args->common.json, "--current: %s", told.text[w]);
        if (args->common.json) {
            sp_warnings_add(warnings, "--current: %s", told.text[w]);
        }
    }
    if (status != SP_OK && !sp_status_is_fatal(status)) {
        tuned->current = err->message[0];
        status = SP_OK;
    } else if (status == SP_OK && sp_result_is_oom(&result)) {
        tuned->current = "out of memory";
    } else if (status == SP_OK) {
        tuned->current_ms = sp_result_iteration_ms(&result);
        tuned->current_left_out = sp_result_left_out_share(&result);
    }
    sp_result_fini(&result);
    sp_scenario_fini(&scenario);
    return status;
}

static int print_tuned(const tune_args *args, const cli_tuned *tuned)
{
    sp_error err = {0};
    json_t *answer = args->common.json ? cli_tuned_json(tuned) : NULL;
    if (answer == NULL) {
        cli_print_tuned(tuned);
    }
    bool quiet = args->common.quiet || args->common.json;
    sp_status status = cli_emit(&args->emit, tuned->scenario, answer, quiet, &err);
    // Behind what the framework cannot say: a screen cuts long lists of warnings.
    if (answer == NULL) {
        cli_print_notes(args->common.quiet, NULL, tuned->result);
    }
    const int printed = answer != NULL ? cli_print_json(answer) : 0;
    return status != SP_OK ? cli_fail(&err) : printed;
}

// Prints the answer before a file is written that may turn out not to take it.
static sp_status answer(const tune_args *args, const tuning *t, cli_tuned *tuned, int *exit_status,
                        sp_error *err)
{
    sp_error of_current = {0};
    sp_scenario scenario = {0};
    sp_result result = {0};
    const sweep_layout *first = tuned->layouts->ranked[0];
    json_t *document = sweep_layouts_document(tuned->layouts, first);
    cli_launch_answer(&t->launch, document);
    char *command = command_for(args, t, tuned->layouts, first, t->strategies[first->strategy]);
    sp_status status =
        evaluate(t, document, "tune", cli_threads(args->jobs), &scenario, &result, err);
    // For people it stands beside the answer.
    if (status == SP_OK && args->common.json && sp_model_most_experts(&scenario.model) > 0 &&
        scenario.layout.etp == 0) {
        sp_warnings_add(&result.warnings, "%s", CLI_TUNE_EXPERTS);
    }
    tuned->scenario = &scenario;
    tuned->result = &result;
    char *again = search_again(args, t);
    tuned->go_on = command;
    tuned->again = again;
    tuned->written = is_written(args);
    tuned->changes = json_array();
    if (status == SP_OK && args->current.count > 0) {
        status = evaluate_current(args, t, tuned, &result.warnings, &of_current);
        if (status != SP_OK) {
            sp_error_set(err, status, "%s", of_current.message[0]);
        }
    } else if (status == SP_OK) {
        add_changes_of_work(t, tuned);
    }
    cli_outlive_pipe(true);
    if (status == SP_OK) {
        *exit_status = print_tuned(args, tuned);
        fflush(stdout);
    }
    if (status == SP_OK && args->output != NULL) {
        status = sp_scenario_place_in(document, args->output, err);
    }
    if (status == SP_OK && args->output != NULL) {
        status = cli_write_json(args->output, json_incref(document), err);
    }
    cli_outlive_pipe(false);
    json_decref(tuned->changes);
    json_decref(document);
    sp_free(command);
    sp_free(again);
    sp_result_fini(&result);
    sp_scenario_fini(&scenario);
    return status;
}

static sp_status add_schedules(tuning *t, const char *list, sp_error *err)
{
    while (list != NULL) {
        char name[32];
        char hint[SP_NAME_HINT];
        size_t length = strcspn(list, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1),
                 list);
        const char *known = sp_listed_name(name, sp_schedule_names);
        if (known == NULL || t->schedule_count == SP_SCHEDULE_KINDS) {
            return sp_error_set(err, SP_ERR_USAGE, "--schedules: unknown schedule '%s'%s", name,
                                sp_name_hint(name, sp_schedule_names, SP_SCHEDULE_KINDS, hint));
        }
        t->schedules[t->schedule_count++] = known;
        list = list[length] == ',' ? list + length + 1 : NULL;
    }
    return SP_OK;
}

typedef struct asked_question {
    const tuning *tuning;
    const tune_args *args;
} asked_question;

// What would be asked if somebody typed the question with so many GPUs and more --set.
static sp_status base_of(const void *asked, int64_t gpus, const char *const *more, int more_count,
                         json_t **base, sp_scenario *scenario, sp_error *err)
{
    const asked_question *q = asked;
    const int own = q->args->set.count;
    tune_args args = *q->args;
    tuning other = {.model = q->tuning->model, .work = q->tuning->work};
    memcpy(other.stack, q->tuning->stack, sizeof other.stack);
    args.gpus = gpus;
    args.set.count = own + more_count;
    args.set.items = (const char **)sp_calloc((size_t)args.set.count + 1, sizeof *args.set.items);
    for (int i = 0; i < args.set.count; i++) {
        args.set.items[i] = i < own ? q->args->set.items[i] : more[i - own];
    }
    sp_status status = make_base(&args, &other, err);
    if (status == SP_OK) {
        put_kept(&args, q->tuning->kept, other.base);
        status = read_base(other.base, scenario, err);
    }
    sp_free((void *)args.set.items);
    *base = other.base;
    return status;
}

// ---- a file in the place of the question ----

// A scenario of ours or what `import` reads, with paths from the working directory; NULL: neither.
static json_t *work_of_file(const char *file)
{
    sp_error own = {0};
    json_t *work = scenario_of(file);
    json_t *unread = NULL;
    json_t *notes = NULL;
    if (work != NULL) {
        sp_scenario_place(work, file, &own);
        return work;
    }
    framework_import_files(&file, 1, NULL, NULL, 0, &work, &unread, &notes, &own);
    json_decref(unread);
    json_decref(notes);
    return work;
}

// Is it the built-in one of its shape, so that this may be named in its place?
static const char *builtin_of(const sp_scenario *scenario)
{
    const sp_model *own = &scenario->model;
    const char *name = framework_model_of_shape(scenario->resolved);
    sp_model model;
    const bool same = name != NULL && sp_model_builtin(name, &model, NULL) == SP_OK &&
                      sp_model_parameters(&model) == sp_model_parameters(own) &&
                      model.vocab == own->vocab && model.dropout == own->dropout;
    return same ? name : NULL;
}

// Fills in what the command line leaves open and the work states; leaves the rest as it is.
static void ask_of_work(const json_t *work, const sp_scenario *scenario, tune_args *args)
{
    const sp_workload_spec *workload = &scenario->workload;
    const double tokens = tokens_of_step(workload);
    const bool open = sp_scenario_assumes_replica(scenario, work);
    // Micro-batches that are stated make a batch of as many replicas as there are.
    const bool batch = !open || framework_get(work, "workload.samples_per_batch") != NULL ||
                       framework_get(work, "workload.tokens_per_batch") != NULL;
    if (args->gpus == 0 && !open) {
        args->gpus = sp_layout_ranks(&scenario->layout);
    }
    if (args->context == 0) {
        args->context = workload->uniform_tokens > 0 ? workload->uniform_tokens : workload->context;
    }
    if (batch && isfinite(tokens) && !states_step(args)) {
        args->tokens_per_batch = (int64_t)tokens;
    }
}

// The whole question of a file's own work, with its layout as the one to compare with; what the
// file does not say is left as N or MODEL. The caller frees it with sp_free().
static char *question_of_file(const tune_args *args, const char *file)
{
    static const char imported[] = "scenario.json";
    sp_text text;
    sp_error own = {0};
    sp_scenario scenario = {0};
    tune_args asked = *args;
    const char *model = "MODEL";
    json_t *of_file = scenario_of(file);
    json_t *work = work_of_file(file);
    json_t *document = json_deep_copy(work);
    const json_t *stated = json_object_get(work, "model");
    if (document != NULL && stated == NULL) {
        sp_json_put(document, "model", json_string("llama-3-8b")); // of which nothing is told
    }
    if (document != NULL &&
        sp_scenario_from_json(document, file, NULL, 0, &scenario, &own) == SP_OK) {
        const char *cluster = json_string_value(json_object_get(work, "cluster"));
        ask_of_work(work, &scenario, &asked);
        if (args->cluster == default_cluster && cluster != NULL &&
            strcmp(cluster, default_cluster) != 0) {
            asked.cluster = cluster;
        }
        if (args->lengths == NULL) {
            asked.lengths = json_string_value(framework_get(work, "workload.lengths"));
        }
        if (json_is_string(stated)) {
            model = json_string_value(stated);
        } else if (stated != NULL && builtin_of(&scenario) != NULL) {
            model = builtin_of(&scenario);
        } else if (stated != NULL) {
            model = of_file != NULL ? file : imported;
        }
    }
    FILE *out = sp_text_begin(&text);
    if (model == imported) {
        fputs("slimpack import ", out);
        sp_print_word(out, file);
        fprintf(out, " -o %s && ", imported);
    }
    const char *stack = cli_emit_stack(&args->emit);
    add_question(out, &asked, model, stack != NULL ? stack : "");
    bool named = false;
    for (int i = 0; i < args->current.count; i++) {
        named = named || strcmp(args->current.items[i], file) == 0;
        fputs(" --current ", out);
        sp_print_word(out, args->current.items[i]);
    }
    if (!named) {
        fputs(" --current ", out);
        sp_print_word(out, file);
    }
    sp_scenario_fini(&scenario);
    json_decref(document);
    json_decref(of_file);
    json_decref(work);
    return sp_text_end(&text);
}

// The question is not asked whole: says what is missing.
static int tell_missing(const tune_args *args, const cli_operands *operands)
{
    const char *file = NULL;
    for (int i = 0; i < args->current.count && file == NULL; i++) {
        const char *item = args->current.items[i];
        file = strchr(item, '=') == NULL && access(item, F_OK) == 0 ? item : NULL;
    }
    if (operands->count > 0 && args->gpus > 0 && args->context > 0) {
        return CLI_PROCEED;
    }
    if (file == NULL && operands->count > 0 && args->gpus > 0 && args->lengths != NULL) {
        return cli_usage_error(&cli_cmd_tune,
                               "'tune' needs --context N also with --lengths: the longest sample "
                               "that is trained, which 'slimpack lengths %s' tells",
                               args->lengths);
    }
    if (file == NULL) {
        return cli_usage_error(&cli_cmd_tune, operands->count == 0 ? "'tune' needs MODEL"
                                              : args->context > 0  ? "'tune' needs --gpus N"
                                              : args->gpus > 0
                                                  ? "'tune' needs --context N"
                                                  : "'tune' needs --gpus N and --context N");
    }
    char *question = question_of_file(args, file);
    const int status = cli_usage_error(&cli_cmd_tune,
                                       "'tune' needs MODEL, --gpus N and --context N: '%s' asks "
                                       "for the work of %s",
                                       question, file);
    sp_free(question);
    return status;
}

// A scenario in the place of the model: takes its work.
static sp_status take_scenario(const char *file, tune_args *args, tuning *t, sp_error *err)
{
    sp_scenario scenario = {0};
    t->work = scenario_of(file);
    sp_status status = t->work != NULL ? sp_scenario_place(t->work, file, err) : SP_OK;
    if (status == SP_OK && t->work != NULL && json_object_get(t->work, "uniform_costs") != NULL) {
        return sp_error_set(err, SP_ERR_USAGE, "'tune' needs a model, not uniform_costs");
    }
    if (status == SP_OK && t->work != NULL) {
        json_t *document = json_deep_copy(t->work);
        status = sp_scenario_from_json(document, file, NULL, 0, &scenario, err);
        json_decref(document);
    }
    if (status == SP_OK && t->work != NULL) {
        ask_of_work(t->work, &scenario, args);
    }
    sp_scenario_fini(&scenario);
    return status;
}

static int run(const void *given, const cli_operands *operands)
{
    tune_args asked_args = *(const tune_args *)given;
    const tune_args *args = &asked_args;
    sp_error err = {0};
    tuning t = {.model = operands->count > 0 ? operands->items[0] : NULL};
    sp_status taken = t.model != NULL ? take_scenario(t.model, &asked_args, &t, &err) : SP_OK;
    const int missing = taken == SP_OK ? tell_missing(args, operands) : cli_fail(&err);
    if (missing != CLI_PROCEED) {
        json_decref(t.work);
        return missing;
    }
    t.kept = json_object();
    sweep_layouts layouts = {0};
    json_t *remedies = NULL;
    int exit_status = 0;
    double train_tokens = 0.0;
    sp_status status = args->output != NULL ? sp_output_check(args->output, &err) : SP_OK;
    status = status == SP_OK ? cli_emit_check(&args->emit, &err) : status;
    if (status == SP_OK) {
        status = cli_read_train_tokens(args->train_tokens, &train_tokens, &err);
    }
    if (status == SP_OK) {
        status = begin(args, &t, &err);
    }
    if (status == SP_OK) {
        status = add_schedules(&t, args->schedules, &err);
    }
    if (t.launch.rows > 0) { // further questions are of the same batch
        asked_args.tokens_per_batch = t.launch.row_tokens;
    }
    int shown = args->top > CLI_FRONT_SHOWN ? (int)args->top : CLI_FRONT_SHOWN;
    const sweep_layouts_options options = {.strategies = t.strategies,
                                           .strategy_count = t.count,
                                           .wide = true,
                                           .stated = args->set.items,
                                           .stated_count = args->set.count,
                                           .gpus = args->gpus,
                                           .within_stack = !args->any_schedule,
                                           .strategies_stated = states_strategies(args),
                                           .unsaid = t.launch.unsaid,
                                           .rows = t.launch.rows,
                                           .schedules = t.schedule_count > 0 ? t.schedules : NULL,
                                           .schedule_count = t.schedule_count,
                                           .exhaustive = args->exhaustive,
                                           .survivors = SURVIVORS,
                                           .shown = shown,
                                           .threads = cli_threads(args->jobs),
                                           .quiet = args->common.quiet};
    cli_catch_stop(args->time_limit_s);
    if (status == SP_OK) {
        status = sweep_layouts_find(t.base, &t.scenario, &options, &layouts, &err);
    }
    // The best so far is evaluated and printed all the same.
    bool late = !sp_stop_by_request();
    sp_stop_forget();
    cli_tuned tuned = {.options = &options,
                       .layouts = &layouts,
                       .current_ms = (double)NAN,
                       .switched_ms = (double)NAN,
                       .scenario = &t.scenario,
                       .batches = &t.batches,
                       .step = t.step,
                       .stopped = layouts.stopped,
                       .late = layouts.stopped && late,
                       .train_tokens = train_tokens,
                       .top = (int)args->top};
    const asked_question asked = {&t, args};
    const cli_shortage shortage = {.asked = &asked,
                                   .base_of = base_of,
                                   .scenario = &t.scenario,
                                   .options = &options,
                                   .layouts = &layouts,
                                   .stack_stated = json_object_get(t.base, "stack") != NULL};
    if (status == SP_OK && layouts.stopped && layouts.ranked_count == 0) {
        char need[CLI_TUNE_NEED];
        status = sp_error_set(
            &err, SP_ERR_STOPPED,
            "%s before a point that fits was found; %lld of %lld point%s were not tried",
            tuned.late ? "the time of --time-limit is up" : "stopped by a signal",
            (long long)layouts.untried, (long long)layouts.count, sp_plural(layouts.count));
        if (cli_tune_need(&shortage, need)[0] != '\0') {
            sp_error_set(&err, SP_ERR_STOPPED, "the nearest that was tried %s", need);
        }
    } else if (status == SP_OK && layouts.count == 0) {
        status = sp_error_set(&err, SP_ERR_INFEASIBLE,
                              "no layout of %lld GPU%s that is searched has what --set states",
                              (long long)args->gpus, sp_plural(args->gpus));
    } else if (status == SP_OK && layouts.ranked_count == 0) {
        status = cli_tune_shortage(&shortage, &remedies, &err);
    }
    if (status == SP_OK) {
        status = answer(args, &t, &tuned, &exit_status, &err);
    }
    if (status != SP_OK) {
        tuned.scenario = &t.scenario;
        json_t *nothing = t.batches.count > 0 ? cli_tuned_json_empty(&tuned) : NULL;
        if (nothing != NULL && remedies != NULL) {
            json_object_update(nothing, remedies);
        }
        exit_status = cli_fail_json(args->common.json, "slimpack/tune/1", nothing, 0, &err);
    } else if (exit_status == 0 && layouts.stopped) {
        exit_status = cli_exit_of_stop(true);
    }
    sweep_layouts_fini(&layouts);
    sp_batches_fini(&t.batches);
    sp_scenario_fini(&t.scenario);
    json_decref(remedies);
    json_decref(t.current);
    json_decref(t.of_file);
    json_decref(t.kept);
    json_decref(t.work);
    json_decref(t.base);
    return exit_status;
}

// ---- the command ----

static const tune_args defaults = {.cluster = default_cluster, .top = TOP};

static const cli_option options[] = {
    CLI_INT_OPTION("gpus", "N", tune_args, gpus, 1, CLI_TUNE_MOST_GPUS, "GPUs to train on"),
    CLI_TEXT_OPTION(CLI_STRING, 0, "cluster", "NAME", tune_args, cluster,
                    "cluster preset (default: h100-8)"),
    CLI_TOKENS_OPTION("context", tune_args, context, "longest sample in tokens, such as 32K"),
    CLI_LENGTHS_OPTION(tune_args, "every sample as long as the context"),
    CLI_TOKENS_OPTION("tokens-per-batch", tune_args, tokens_per_batch,
                      "tokens of a step (default: 4M, or 16 samples of the context; of fine-tuning "
                      "128 rows of the context, with adapters 16, of own lengths all once)"),
    CLI_NAMES_OPTION("strategies", "LIST", tune_args, strategies, sp_strategy_names,
                     "packing strategies to choose from, as if the stack had them (default: "
                     "packed; with --lengths what else the stack runs, and what SlimPack adds)"),
    CLI_NAMES_OPTION("schedules", "LIST", tune_args, schedules, sp_schedule_names,
                     "pipeline schedules to choose from, as if the stack had them (default: its "
                     "own)"),
    CLI_FLAG_OPTION("any-schedule", tune_args, any_schedule,
                    "as if the stack ran every schedule, strategy, recomputation, ZeRO stage and "
                    "exchange of keys and values"),
    CLI_TIME_LIMIT_OPTION(tune_args, "the best so far is the answer"),
    CLI_TRAIN_TOKENS_OPTION(tune_args),
    CLI_TEXT_OPTION(
        CLI_LIST, 0, "current", "KEY=VALUE|FILE", tune_args, current,
        "a setting of the layout to compare with, such as parallel.tp=8, or a file that 'import' "
        "reads, of which the layout is taken (other work in it is told, not timed); of a launch "
        "file what to change in it is said, and the search keeps to its framework as under --emit; "
        "may be repeated"),
    CLI_INT_OPTION("top", "N", tune_args, top, 1, 1000, "layouts to list (default: 10)"),
    CLI_FLAG_OPTION("exhaustive", tune_args, exhaustive,
                    "evaluate every point, also those that cannot be the fastest"),
    CLI_TEXT_OPTION(CLI_OUTPUT, 'o', "output", "FILE", tune_args, output,
                    "write the answer as a scenario"),
    CLI_EMIT_OPTION(tune_args,
                    "the answer, searched within that framework's stack unless one is stated,"),
    CLI_SET_OPTION(tune_args),
    CLI_JOBS_OPTION(tune_args),
    CLI_TABLE_OPTIONS(tune_args),
    CLI_COMMON_OPTIONS(tune_args),
    {0},
};

static const char *const examples[] = {
    "slimpack tune llama-3-70b --gpus 256 --context 32K",
    "slimpack tune llama-3-8b --gpus 64 --context 32K --lengths longmix -o best.json",
    "slimpack tune llama-13b --gpus 128 --cluster h800-8 --context 256K --current parallel.tp=8 "
    "--current parallel.pp=8",
    NULL,
};

const cli_command cli_cmd_tune = {
    .name = "tune",
    .summary = "find the fastest layout, schedule and strategy that fit",
    CLI_TAKES("MODEL", 0, 1),
    .description =
        "Finds how a model trains fastest on so many GPUs: tensor, context, pipeline and data "
        "parallelism, schedule, packing strategy, recomputation and ZeRO stage. MODEL is a "
        "built-in name, a Hugging Face config.json or the folder that holds one. Of a scenario "
        "model, precision, profile and the stack's name are taken, and cluster, GPUs and workload "
        "where no option states them.\n\nThe first line "
        "is the answer, with the error of its profile on logged steps like it and how many points "
        "lie within it, or that no logged step is like it. Then come the fastest points, with "
        "--wide "
        "the front of time against peak memory, what to pack, the command to go on with, what "
        "limits the step and what other points that were evaluated save of it or cost, and with "
        "--wide what each other choice would cost if all others could still be chosen freely. A "
        "point is left out where "
        "pure work alone (no bubble, no fixed cost, no imbalance) takes longer than a point that "
        "was evaluated and fits well, or where points like it leave it no chance "
        "(experiments/README.md). Of such choices only the least cost is known, and what lies on "
        "the front is of what was evaluated; --exhaustive tries all. Strategies that search are "
        "tried at the 24 combinations of degrees, recomputation and ZeRO stage at which the others "
        "are fastest, as are schedules other than 1f1b under a budget of tokens: with a tenth of "
        "their effort, and with all of it where that may make them the fastest. Where all "
        "strategies search, packed is tried to find the combinations, and not "
        "listed.\n\nStrategies that leave tokens out are compared by the tokens that they train: "
        "costs and savings are for as many tokens, and the share that is left out (or cut off from "
        "the beginning of its document) stands beside each that does not lose as much as the "
        "answer.\n\nOf every point that would be the answer, and of those that are listed, the "
        "blocks of PyTorch's allocator are counted. Points come in the order of the time that is "
        "to be expected: the predicted one over the chance that the step runs (" CLI_CHANCE
        ": by logged steps that filled as much of their memory); what others cost is of that time, "
        "too. What points that lack memory save is of predicted times, as with more memory both "
        "run. So is the front, whatever the chance, as that of sweep --pareto "
        "iteration_ms,peak_memory_gib; points that fit tightly are not on it. Points that fit "
        "tightly come last: those for which it would reserve more than 97 % of the limit or, where "
        "blocks are not counted, those within a tenth of it. The fastest that only lacks "
        "expandable_segments:True is listed by itself.\n\nTensor parallelism stays inside a node; "
        "context parallelism goes up to 16; the schedules are 1f1b, interleaved (2 and 4 chunks), "
        "zb-h1, zb-h2, zb-v and v-half for strategies that bring none; recomputation is none, "
        "attention or full; ZeRO stages 1 to 3 (2 and 3 with the stacks of FSDP); a micro-batch is "
        "one row of the context, or of short rows also 2 or 4. The experts of a layer are spread "
        "over powers of two of GPUs, each expert split over parallel.tp ranks unless --set "
        "parallel.etp says otherwise.\n\nWhat --set states is not searched: --set parallel.tp=2 "
        "leaves the layouts of so many GPUs whose tp is 2, --set strategy.kind=packed that "
        "strategy.\n\nPacked rows give a first "
        "answer within seconds, searches refine it; stderr shows the best so far (no terminal: a "
        "line every 10 s). --time-limit ends the search with it, and so does Ctrl-C (exit status "
        "130; a second one at once). A search that ends by itself has one answer for any "
        "-j.\n\nWhat the stack cannot run ('slimpack help stacks') is no answer; what another "
        "schedule or SlimPack would add is told behind it. --any-schedule, --schedules, "
        "--strategies and --set leave the stack's limits aside.\n\nThe exit status is 1 when no "
        "point fits; the point that lacks the least memory is told then, which switches that the "
        "stack has spare how much of it on these GPUs and whether one or two are enough (--json: "
        "switches), and the fewest GPUs of 1, 2, 4 and so on in a node, and of whole nodes, that "
        "are (fewest_gpus).",
    .defaults = &defaults,
    CLI_RUNS(run, tune_args, options, examples),
};
