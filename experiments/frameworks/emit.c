// A scenario as the arguments of a framework. What is written is read back: where that gives
// another scenario, the framework cannot say it, and the text says so.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/frameworks/private.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"

enum { PATH = 512, NUMBER = 40 };

// ---- every setting of a scenario ----

// The value that a field holds, as a document would say it.
static json_t *field_value(const sp_setting *setting, const void *owner)
{
    const char *at = (const char *)owner + setting->offset;
    double unit = setting->unit != 0.0 ? setting->unit : 1.0;
    switch (setting->store) {
    case SP_STORE_BOOL:
        return json_boolean(*(const bool *)at);
    case SP_STORE_DOUBLE:
        return json_real(*(const double *)at / unit);
    case SP_STORE_TEXT:
        return json_string(at);
    case SP_STORE_NOTHING:
        return NULL;
    case SP_STORE_INT:
    case SP_STORE_INT64:
        break;
    }
    int64_t whole = sp_setting_int(setting, owner);
    if (setting->kind == SP_SETTING_NAME) {
        const char *name = sp_setting_value(setting, (int)whole);
        return name != NULL ? json_string(name) : NULL;
    }
    return setting->kind == SP_SETTING_REAL ? json_real((double)whole / unit)
           : whole < 0                      ? NULL
                                            : json_integer(whole);
}

// Settings of the model, the stack, the ranks, schedule and memory that the document leaves out,
// because they are as they are anyway.
static json_t *whole_document(const sp_scenario *scenario)
{
    static const char read_otherwise[] = "schedule.kind strategy.kind strategy.pad_to";
    json_t *all = json_deep_copy(scenario->resolved);
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        char section[32];
        snprintf(section, sizeof section, "%.*s", (int)sp_setting_section(setting->key),
                 setting->key);
        json_t *object = json_object_get(all, section);
        if (object == NULL ||
            !sp_names_hold("model stack parallel schedule memory strategy", section) ||
            sp_names_hold(read_otherwise, setting->key) || setting->kind == SP_SETTING_OTHER ||
            setting->kind == SP_SETTING_OBJECT || framework_get(all, setting->key) != NULL) {
            continue;
        }
        const void *owner = strcmp(section, "model") == 0   ? (const void *)&scenario->model
                            : strcmp(section, "stack") == 0 ? (const void *)&scenario->memory.stack
                                                            : (const void *)scenario;
        sp_json_put(object, sp_setting_leaf(setting->key), field_value(setting, owner));
    }
    // A rule for stages is no argument of any framework: the layers that it makes are.
    if (json_is_string(framework_get(all, "parallel.stage_layers"))) {
        json_t *stages = json_array();
        for (int s = 0; s < sp_layout_vstages(&scenario->layout); s++) {
            json_array_append_new(stages, json_integer(scenario->layout.stage_layers[s]));
        }
        framework_put_at(all, "parallel.stage_layers", stages);
    }
    if (framework_get(all, "model.dropout") == NULL) {
        sp_json_put(json_object_get(all, "model"), "dropout",
                    json_boolean(scenario->model.activation == SP_GELU));
    }
    // Routing that nobody forces.
    if (!scenario->model.forced_routing) {
        sp_json_put(json_object_get(all, "model"), "expert_imbalance", json_string("exact"));
    }
    return all;
}

// The built-in model that a name is, or begins with ("llama-3-8b with model.dropout changed");
// NULL: none.
static const char *changed_builtin(const char *name)
{
    char begin[SP_MODEL_NAME];
    const char *with = strstr(name, " with ");
    snprintf(begin, sizeof begin, "%.*s", with != NULL ? (int)(with - name) : SP_MODEL_NAME, name);
    return sp_model_builtin_meant(begin);
}

// Adapters and the type of frozen weights leave a model the built-in one whose name it begins with,
// where all else of it is that one's. NULL: they do not, or its name is no such name.
static const char *adapted_builtin(const sp_model *model)
{
    sp_model plain;
    const char *name = changed_builtin(model->name);
    if (name == NULL || sp_model_builtin(name, &plain, NULL) != SP_OK) {
        return NULL;
    }
    json_t *shapes[2] = {sp_model_to_json(&plain), sp_model_to_json(model)};
    for (int i = 0; i < 2; i++) {
        json_object_del(shapes[i], "name");
        for (const char *const *key = framework_adapters; *key != NULL; key++) {
            json_object_del(shapes[i], *key);
        }
    }
    const bool same = json_equal(shapes[0], shapes[1]) != 0;
    json_decref(shapes[0]);
    json_decref(shapes[1]);
    return same ? name : NULL;
}

// ---- rows ----

static const char *theirs_of(const char *words, const json_t *value, char name[PATH])
{
    char plain[PATH];
    const char *ours = json_string_value(value);
    if (ours == NULL) {
        sp_json_quote(value, plain, sizeof plain);
        ours = plain;
    }
    for (const char *at = words; *at != '\0'; at += strspn(at, " ")) {
        const char *equals = strchr(at, '=');
        size_t whole = strcspn(at, " ");
        size_t length = whole - (size_t)(equals - at) - 1;
        if (strlen(ours) == length && strncmp(equals + 1, ours, length) == 0) {
            snprintf(name, PATH, "%.*s", (int)(equals - at), at);
            return name;
        }
        at += whole;
    }
    return NULL;
}

static bool is_absent(const framework_output *output, const framework_row *row, const json_t *value)
{
    if (row->absent == NULL || output->of->overrides) {
        return false;
    }
    json_t *absent = row->absent[0] == '@'
                         ? json_incref(framework_get(output->scenario, row->absent + 1))
                         : json_loads(row->absent, JSON_DECODE_ANY, NULL);
    bool same = json_equal(absent, value) != 0;
    json_decref(absent);
    return same;
}

// The value that stands for nothing of the key's other rows.
static const framework_row *first_row_of(const framework *of, const char *key)
{
    const framework_row *row = of->rows;
    while (row->key != NULL && strcmp(row->key, key) != 0) {
        row++;
    }
    return row;
}

static void write_row(framework_output *output, const framework_row *row)
{
    const char *name = row->names[output->of->dialect];
    const json_t *value = framework_get(output->scenario, row->key);
    char theirs[PATH];
    if (name == NULL || value == NULL ||
        is_absent(output, first_row_of(output->of, row->key), value)) {
        return;
    }
    switch (row->kind) {
    case FRAMEWORK_INT:
    case FRAMEWORK_REAL:
        if (json_is_number(value) && json_number_value(value) > 0.0) {
            framework_say(output, name, json_incref((json_t *)value));
        }
        break;
    case FRAMEWORK_SWITCH:
        framework_say(output, name, json_boolean(json_is_true(value)));
        break;
    case FRAMEWORK_INVERT:
        framework_say(output, name, json_boolean(!json_is_true(value)));
        break;
    case FRAMEWORK_FLAG: {
        json_t *flagged = json_loads(row->words, JSON_DECODE_ANY, NULL);
        if (json_equal(flagged, value)) {
            framework_say(output, name, json_true());
        }
        json_decref(flagged);
        break;
    }
    case FRAMEWORK_NAME:
        if (theirs_of(row->words, value, theirs) != NULL) {
            json_t *plain = sp_names_hold("true false", theirs) ? json_boolean(theirs[0] == 't')
                                                                : json_string(theirs);
            framework_say(output, name, plain);
        }
        break;
    case FRAMEWORK_IMPLIED:
        break;
    }
}

// Of a model without experts, without context-parallel ranks and so on there is nothing to say.
static bool has_effect(const framework_output *output, const char *key)
{
    static const struct {
        const char *keys, *of;
        int least;
    } parts[] = {
        {"model.expert_imbalance stack.dispatcher stack.dispatcher_sms stack.expert_overlap "
         "stack.shared_expert_overlap stack.delay_wgrad parallel.ep parallel.etp",
         "model.experts", 1},
        {"stack.cp_overlap", "parallel.cp", 2},
        {"schedule.group", "parallel.chunks_per_rank", 2},
        {"schedule.kind", "parallel.pp", 2},
        {"parallel.sequence_parallel stack.hide_forward_gather stack.hide_forward_reduce "
         "stack.hide_backward_gather stack.hide_backward_reduce",
         "parallel.tp", 2},
    };
    const char *precision = json_string_value(framework_get(output->scenario, "precision"));
    if (precision != NULL && strcmp(precision, "fp8") != 0 && strncmp(key, "fp8_", 4) == 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (sp_names_hold(parts[i].keys, key)) {
            return framework_get_int(output->scenario, parts[i].of, 1) >= parts[i].least &&
                   !(parts[i].least == 1 &&
                     framework_get_int(output->scenario, parts[i].of, 0) == 0);
        }
    }
    return true;
}

static void write_rows(framework_output *output)
{
    for (const framework_row *row = output->of->rows; row->key != NULL; row++) {
        if (has_effect(output, row->key)) {
            write_row(output, row);
        }
    }
}

// ---- rotary positions ----

static bool is_rotary(const framework_output *output)
{
    const char *positions = json_string_value(framework_get(output->scenario, "model.positional"));
    return positions != NULL && strcmp(positions, "rope") == 0;
}

// The base changes no time, so no scenario states it, and other changes of a model leave it; those
// of built-in models are rope_theta of their published config.json, and LLaMA's that of RoFormer,
// which it names (arXiv 2104.09864).
static void say_rotary_base(framework_output *output)
{
    static const struct {
        const char *models;
        json_int_t base;
    } known[] = {
        {"llama-7b llama-13b llama-65b llama-70b llama-2-7b llama-2-13b llama-2-70b", 10000},
        {"llama-3-8b llama-3-70b", 500000},
        {"mixtral-8x7b mixtral-8x22b qwen3-30b-a3b qwen3-235b-a22b glm-4.5 glm-4.5-air", 1000000},
        {"gpt-oss-20b gpt-oss-120b", 150000},
    };
    const char *name = json_string_value(framework_get(output->scenario, "model.name"));
    const char *model = name != NULL ? changed_builtin(name) : NULL;
    const char *argument = output->of->rotary_base;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (argument != NULL && model != NULL && is_rotary(output) &&
            sp_names_hold(known[i].models, model)) {
            framework_say(output, argument, json_integer(known[i].base));
        }
    }
}

// ---- texts ----

static void add_number(FILE *to, const json_t *value)
{
    char number[NUMBER];
    double real = json_number_value(value);
    if (json_is_integer(value)) {
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    } else {
        snprintf(number, sizeof number, "%.15g", real);
        if (strpbrk(number, ".en") == NULL) {
            strcat(number, ".0");
        }
    }
    fputs(number, to);
}

// Of a list its words.
static void add_shell_value(FILE *to, const json_t *value)
{
    size_t i;
    json_t *item;
    json_array_foreach ((json_t *)value, i, item) {
        fputs(i > 0 ? " " : "", to);
        add_shell_value(to, item);
    }
    if (json_is_string(value)) {
        sp_print_word(to, json_string_value(value));
    } else if (json_is_number(value)) {
        add_number(to, value);
    }
}

static void add_shell_option(FILE *to, const char *name, const json_t *value)
{
    if (json_is_false(value) || json_is_null(value)) {
        return;
    }
    fprintf(to, " \\\n    --%s%s", name, json_is_true(value) ? "" : " ");
    add_shell_value(to, value);
}

// Megatron-LM stops otherwise (training/arguments.py): tensor and context parallelism before
// Blackwell need one connection, FSDP does not go with it.
static void write_connections(const framework_output *output, FILE *to)
{
    const json_t *s = output->scenario;
    const json_t *cluster = framework_get(s, "cluster");
    const char *name =
        json_string_value(json_is_object(cluster) ? json_object_get(cluster, "name") : cluster);
    const bool blackwell = name != NULL && strstr(name, "b200") != NULL;
    if (framework_get_int(s, "parallel.zero", 0) > 1) {
        fputs("unset CUDA_DEVICE_MAX_CONNECTIONS\n", to);
    } else if (!blackwell && (framework_get_int(s, "parallel.tp", 1) > 1 ||
                              framework_get_int(s, "parallel.cp", 1) > 1)) {
        fputs("export CUDA_DEVICE_MAX_CONNECTIONS=1\n", to);
    }
}

static void write_shell(const framework_output *output, FILE *to)
{
    const char *name;
    json_t *value;
    write_connections(output, to);
    fputs("torchrun", to);
    json_object_foreach (output->launch, name, value) {
        fprintf(to, " --%s ", name);
        add_shell_value(to, value);
    }
    // Nodes that nothing tells apart each run a job of their own (torchrun's static rendezvous).
    if (json_integer_value(json_object_get(output->launch, "nnodes")) > 1) {
        fputs(" --node-rank \"${NODE_RANK:?}\" --master-addr \"${MASTER_ADDR:?}\"", to);
    }
    fputs(" pretrain_gpt.py", to);
    json_object_foreach (output->arguments, name, value) {
        add_shell_option(to, name, value);
    }
    fputs("\n", to);
}

// The objects that dotted names stand for.
static json_t *nested(const json_t *arguments)
{
    json_t *root = json_object();
    const char *path;
    json_t *value;
    json_object_foreach ((json_t *)arguments, path, value) {
        framework_put_at(root, path, json_incref(value));
    }
    return root;
}

// In double quotes, as YAML, TOML and JSON read them.
static void add_quoted(FILE *to, const char *said)
{
    json_t *string = json_string(said);
    char *quoted = string != NULL ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    fputs(quoted != NULL ? quoted : "\"\"", to);
    free(quoted);
    json_decref(string);
}

static void add_scalar(FILE *to, const json_t *value, const char *null)
{
    size_t i;
    json_t *item;
    if (json_is_array(value)) {
        fputs("[", to);
        json_array_foreach ((json_t *)value, i, item) {
            fputs(i > 0 ? ", " : "", to);
            add_scalar(to, item, null);
        }
        fputs("]", to);
    } else if (json_is_string(value)) {
        add_quoted(to, json_string_value(value));
    } else if (json_is_number(value)) {
        add_number(to, value);
    } else {
        fputs(json_is_true(value) ? "true" : json_is_false(value) ? "false" : null, to);
    }
}

void framework_print_value(FILE *out, framework_syntax syntax, const json_t *value)
{
    if (syntax == FRAMEWORK_SHELL) {
        add_shell_value(out, value);
    } else {
        add_scalar(out, value, "null");
    }
}

// Comments are of names that are not within others.
static void write_yaml(const json_t *object, int indent, const json_t *comments, FILE *to)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)object, name, value) {
        fprintf(to, "%*s%s:", indent, "", name);
        if (json_is_object(value)) {
            fputs("\n", to);
            write_yaml(value, indent + 2, NULL, to);
        } else {
            const char *comment = json_string_value(json_object_get(comments, name));
            fputs(" ", to);
            add_scalar(to, value, "null");
            fprintf(to, "%s%s\n", comment != NULL ? "  # " : "", comment != NULL ? comment : "");
        }
    }
}

static void write_toml(const json_t *object, FILE *to)
{
    const char *name;
    json_t *value;
    const char *inner;
    json_t *member;
    json_object_foreach ((json_t *)object, name, value) {
        fprintf(to, "\n[%s]\n", name);
        json_object_foreach (value, inner, member) {
            if (!json_is_null(member)) {
                fprintf(to, "%s = ", inner);
                add_scalar(to, member, "");
                fputs("\n", to);
            }
        }
    }
}

const char *framework_lost_text(const json_t *lost, char words[FRAMEWORK_LOST])
{
    char value[96];
    const json_t *said = json_object_get(lost, "value");
    const json_t *read = json_object_get(lost, "read");
    snprintf(words, FRAMEWORK_LOST, "%s", json_string_value(json_object_get(lost, "key")));
    if (!json_is_null(said)) {
        sp_json_quote(said, value, sizeof value);
        sp_append(words, FRAMEWORK_LOST, " %s", value);
    }
    const char *where = json_string_value(json_object_get(lost, "elsewhere"));
    if (where != NULL) {
        sp_append(words, FRAMEWORK_LOST, " (set by %s)", where);
    } else if (!json_is_null(read)) {
        sp_json_quote(read, value, sizeof value);
        sp_append(words, FRAMEWORK_LOST, " (it becomes %s)", value);
    }
    for (char *c = words; *c != '\0'; c++) {
        *c = (char)((unsigned char)*c < ' ' ? ' ' : *c);
    }
    return words;
}

static void add_lost(FILE *to, const json_t *lost)
{
    size_t i;
    json_t *item;
    char words[FRAMEWORK_LOST];
    json_array_foreach ((json_t *)lost, i, item) {
        fputs(framework_lost_text(item, words), to);
        fputs(i + 1 < json_array_size(lost) ? ", " : "", to);
    }
}

// Where else of the job a setting is; NULL: nowhere.
static const char *elsewhere_of(const framework *of, const char *key)
{
    const framework_elsewhere *row = of->elsewhere;
    while (row != NULL && row->key != NULL && strcmp(row->key, key) != 0) {
        row++;
    }
    return row != NULL ? row->where : NULL;
}

json_t *framework_advice(const framework *of, const sp_scenario *scenario)
{
    static const char sums[] = "stack.gradient_reduce_dtype";
    json_t *advice = json_array();
    char text[256];
    if (scenario->workload.uniform_tokens == 0 && !framework_list_holds(of->own, "packing") &&
        elsewhere_of(of, "strategy.kind") == NULL) {
        snprintf(text, sizeof text,
                 "%s needs a data set that packs documents and tells where they end (cu_seqlens): "
                 "else attention crosses them",
                 of->title);
        json_array_append_new(advice, json_string(text));
    }
    const framework_row *row = first_row_of(of, sums);
    bool stated = row->absent == NULL || strcmp(row->absent, "\"fp32\"") != 0 ||
                  scenario->memory.stack.gradient_reduce_dtype != SP_REDUCE_BF16;
    const sp_setting *setting = NULL;
    for (int s = 0; !stated && (setting = sp_setting_at(s)) != NULL; s++) {
        stated = strcmp(setting->key, sums) == 0 && sp_scenario_states(scenario, s);
    }
    if (!stated) {
        snprintf(text, sizeof text,
                 "gradients are reduced in BF16, as stack %s does (FP32: --set %s=fp32)",
                 scenario->memory.stack.name, sums);
        json_array_append_new(advice, json_string(text));
    }
    return advice;
}

static void add_comments(const framework_output *output, const json_t *lost, FILE *to)
{
    size_t i;
    json_t *item;
    const char *cluster = json_string_value(framework_get(output->scenario, "cluster.name"));
    json_int_t ranks =
        framework_replica(output->scenario) * framework_get_int(output->scenario, "parallel.dp", 1);
    fprintf(to, "# slimpack, for %s: %lld GPUs of %s.\n", output->of->name, (long long)ranks,
            cluster != NULL ? cluster : "the cluster");
    if (json_array_size(lost) > 0) {
        fprintf(to, "# Of the scenario %s has no argument for:\n", output->of->name);
    }
    json_array_foreach ((json_t *)lost, i, item) {
        char words[FRAMEWORK_LOST];
        fprintf(to, "#   %s\n", framework_lost_text(item, words));
    }
    json_array_foreach ((json_t *)output->advice, i, item) {
        fprintf(to, "# %s.\n", json_string_value(item));
    }
    fputs("# No part of a scenario: data, tokenizer, learning rate, number of steps, and what "
          "changes no time,\n# as the scaling of rotary positions and the epsilon of norms.\n",
          to);
    if (output->of->rotary_base != NULL && is_rotary(output) &&
        json_object_get(output->arguments, output->of->rotary_base) == NULL) {
        fprintf(to,
                "# Fill in the base of rotary positions (rope_theta of the model's config.json): "
                "%s%s\n",
                output->of->syntax == FRAMEWORK_SHELL ? "--" : "", output->of->rotary_base);
    }
}

static char *text_of(const framework_output *output, const json_t *lost)
{
    sp_text text;
    FILE *out = sp_text_begin(&text);
    json_t *objects = nested(output->arguments);
    switch (output->of->syntax) {
    case FRAMEWORK_SHELL:
        add_comments(output, lost, out);
        write_shell(output, out);
        break;
    case FRAMEWORK_YAML:
        add_comments(output, lost, out);
        write_yaml(objects, 0, output->comments, out);
        break;
    case FRAMEWORK_TOML:
        add_comments(output, lost, out);
        write_toml(objects, out);
        break;
    case FRAMEWORK_JSON: {
        // JSON has no comments; DeepSpeed passes over keys that it does not know.
        if (json_array_size(lost) > 0) {
            sp_text said;
            add_lost(sp_text_begin(&said), lost);
            char *words = sp_text_end(&said);
            sp_json_put(objects, "not_expressed", json_string(words));
            sp_free(words);
        }
        char *dumped = json_dumps(objects, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        fputs(dumped != NULL ? dumped : "{}", out);
        fputc('\n', out);
        free(dumped);
        break;
    }
    }
    json_decref(objects);
    return sp_text_end(&text);
}

// ---- what it cannot say ----

static bool is_ours(const char *key)
{
    static const char names[] = "schema nodes model.name stack.name profile";
    return sp_names_hold(names, key) || strncmp(key, "cluster", 7) == 0 ||
           strncmp(key, "chosen", 6) == 0;
}

static void compare(const json_t *said, const json_t *read, const char *path, const char *skipped,
                    json_t *lost)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)said, name, value) {
        char key[PATH];
        snprintf(key, sizeof key, "%s%s%s", path, path[0] != '\0' ? "." : "", name);
        const json_t *other = json_object_get(read, name);
        if (is_ours(key) || json_equal(value, other) ||
            (skipped != NULL && framework_list_holds(skipped, key))) {
            continue;
        }
        if (json_is_object(value)) {
            compare(value, other, key, skipped, lost);
            continue;
        }
        bool near = json_is_number(value) && json_is_number(other) &&
                    fabs(json_number_value(value) - json_number_value(other)) <=
                        1e-9 * fabs(json_number_value(value));
        if (!near) {
            json_array_append_new(
                lost,
                sp_json_object(
                    SP_JSON("key", (const char *)key), SP_JSON("value", json_incref(value)),
                    SP_JSON("read", other != NULL ? json_incref((json_t *)other) : json_null())));
        }
    }
}

// Its entry of *lost; NULL: it can be said.
static const json_t *find_lost(const json_t *lost, const char *key)
{
    size_t i;
    json_t *item;
    json_array_foreach ((json_t *)lost, i, item) {
        if (strcmp(json_string_value(json_object_get(item, "key")), key) == 0) {
            return item;
        }
    }
    return NULL;
}

bool framework_is_lost(const json_t *lost, const char *key)
{
    return find_lost(lost, key) != NULL;
}

json_t *framework_own_value(const json_t *lost, const char *key)
{
    const json_t *item = find_lost(lost, key);
    json_t *read = json_object_get(item, "read");
    return json_object_get(item, "elsewhere") != NULL || json_is_null(read) ? NULL : read;
}

// Settings that what is read back has, and the scenario has not: a cut of layers that the framework
// makes by itself, say.
static void compare_more(const json_t *said, const json_t *read, const char *path,
                         const char *skipped, json_t *lost)
{
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)read, name, value) {
        char key[PATH];
        snprintf(key, sizeof key, "%s%s%s", path, path[0] != '\0' ? "." : "", name);
        const json_t *other = json_object_get(said, name);
        if (is_ours(key) || framework_list_holds(skipped, key)) {
            continue;
        }
        if (json_is_object(value) && json_is_object(other)) {
            compare_more(other, value, key, skipped, lost);
        } else if (other == NULL && !framework_is_lost(lost, key)) {
            json_array_append_new(lost, sp_json_object(SP_JSON("key", (const char *)key),
                                                       SP_JSON("value", json_null()),
                                                       SP_JSON("read", json_incref(value))));
        }
    }
}

// How a step is simulated, on which machine and from which lengths is no matter of arguments: they
// are the scenario's own again.
static void borrow(json_t *read, const json_t *from)
{
    static const char *const whole[] = {"cluster", "profile", "network",
                                        "jitter",  "prefill", "decode"};
    static const char *const parts[] = {"memory.model",       "memory.limit_gib",
                                        "memory.reserve_gib", "workload.batches",
                                        "workload.seed",      "workload.order"};
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        json_object_del(read, whole[i]);
        if (json_object_get(from, whole[i]) != NULL) {
            sp_json_put(read, whole[i], json_deep_copy(json_object_get(from, whole[i])));
        }
    }
    json_object_del(read, "nodes");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        json_t *value = framework_get(from, parts[i]);
        if (value != NULL) {
            framework_put_at(read, parts[i], json_deep_copy(value));
        }
    }
}

static void lose(json_t *lost, const char *key, const json_t *value)
{
    json_array_append_new(lost, sp_json_object(SP_JSON("key", key),
                                               SP_JSON("value", json_incref((json_t *)value)),
                                               SP_JSON("read", json_null())));
}

// Of all replicas.
static json_int_t rows_of_microbatch(const json_t *scenario)
{
    json_int_t rows =
        framework_product(framework_get_int(scenario, "parallel.dp", 1),
                          framework_get_int(scenario, "schedule.microbatch_samples", 1), 1);
    return rows > 0 ? rows : 1;
}

// Rows are samples of the context where no file has lengths. The number of micro-batches is none of
// the scenario beside their batch.
static void count_samples(json_t *read)
{
    json_int_t count = framework_get_int(read, "schedule.microbatches", 0);
    json_t *workload = json_object_get(read, "workload");
    const json_t *context = json_object_get(workload, "context");
    if (count > 0 && workload != NULL && framework_get(read, "parallel.dp") != NULL) {
        sp_json_put(workload, "samples_per_batch", json_integer(count * rows_of_microbatch(read)));
        json_object_del(json_object_get(read, "schedule"), "microbatches");
    }
    if (context != NULL) {
        sp_json_put(workload, "uniform", json_incref((json_t *)context));
    }
}

// Parts that the framework says nothing of at all are told once, and taken as they are. `filled`: a
// batch is what micro-batches hold, by their number alone.
static void fill(json_t *read, const json_t *from, bool filled, json_t *lost)
{
    json_t *model = json_object_get(read, "model");
    if (model == NULL) {
        model = json_object();
        sp_json_put(read, "model", model);
    }
    // Arguments of adapters are of a model that is not said.
    if (json_is_object(model) && json_object_get(model, "layers") == NULL) {
        json_t *own = json_deep_copy(json_object_get(from, "model"));
        lose(lost, "model", framework_get(from, "model.name"));
        json_object_update_missing(model, own);
        json_decref(own);
    }
    json_t *vocab = framework_get(from, "model.vocab");
    if (json_is_object(model) && json_object_get(model, "vocab") == NULL && vocab != NULL) {
        lose(lost, "model.vocab", vocab);
        sp_json_put(model, "vocab", json_incref(vocab));
    }
    // Replicas, the last, follow from the number of GPUs, which a comment says.
    static const char *const ranks[] = {"parallel.tp", "parallel.cp", "parallel.pp", "parallel.dp"};
    for (size_t i = 0; i < 4; i++) {
        json_t *value = framework_get(from, ranks[i]);
        // A batch is one of all replicas, of a single one, too.
        if (framework_get(read, ranks[i]) == NULL && json_integer_value(value) > (i < 3)) {
            if (i < 3) {
                lose(lost, ranks[i], value);
            }
            framework_put_at(read, ranks[i], json_incref(value));
        }
    }
    count_samples(read);
    // Micro-batches follow from the batch that is compared.
    json_int_t held = framework_get_int(from, "schedule.microbatches", 0);
    bool is_sized = false;
    // Lengths come with the data.
    json_t *workload = json_object_get(read, "workload");
    const json_t *lengths = framework_get(from, "workload.lengths");
    const json_t *context = framework_get(from, "workload.context");
    if (workload == NULL) {
        workload = json_object();
        sp_json_put(read, "workload", workload);
    }
    if (lengths != NULL) {
        lose(lost, "workload.lengths", lengths);
        json_object_del(workload, "uniform");
        sp_json_put(workload, "lengths", json_deep_copy((json_t *)lengths));
        // A batch of documents is no number of rows, unless it is what micro-batches hold.
        static const char *const sizes[] = {"workload.samples_per_batch",
                                            "workload.tokens_per_batch"};
        const json_int_t rows = framework_get_int(read, sizes[0], 0);
        for (size_t i = 0; i < 2; i++) {
            json_t *size = framework_get(from, sizes[i]);
            json_object_del(workload, sp_setting_leaf(sizes[i]));
            if (size != NULL && !filled) {
                lose(lost, sizes[i], size);
                framework_put_at(read, sizes[i], json_incref(size));
                is_sized = true;
            }
        }
        held = is_sized ? held : rows / rows_of_microbatch(read);
        const json_t *column = framework_get(from, "workload.column");
        if (column != NULL) {
            sp_json_put(workload, "column", json_incref((json_t *)column));
        }
    }
    if (json_object_get(workload, "context") == NULL && context != NULL) {
        lose(lost, "workload.context", context);
        sp_json_put(workload, "context", json_incref((json_t *)context));
    }
    json_object_del(json_object_get(read, "schedule"), "microbatches");
    if (held > 0) {
        framework_put_at(read, "schedule.microbatches", json_integer(held));
    }
}

// Is the switch one that the framework has an argument for?
static bool has_argument(const framework_output *output, const char *key)
{
    for (const framework_row *row = output->of->rows; row->key != NULL; row++) {
        if (strcmp(row->key, key) == 0 && row->names[output->of->dialect] != NULL &&
            has_effect(output, key)) {
            return true;
        }
    }
    return false;
}

static bool has_value(const json_t *document, const char *key, const char *value)
{
    const char *text = json_string_value(framework_get(document, key));
    return text != NULL && strcmp(text, value) == 0;
}

// Is a document longer than the context? What is done with those that are is no matter else.
static bool has_longer(const sp_scenario *scenario)
{
    const sp_workload_spec *workload = &scenario->workload;
    int64_t longest = workload->distribution != NULL
                          ? sp_distribution_quantile(workload->distribution, 1.0)
                          : workload->uniform_tokens;
    for (size_t i = 0; workload->lengths != NULL && i < workload->lengths->count; i++) {
        longest = sp_larger(longest, workload->lengths->tokens[i]);
    }
    return workload->context > 0 && longest > workload->context;
}

// Another stack is told as one, beside the switches of it that the framework has arguments for.
static void compare_all(const framework_output *output, const sp_scenario *from, const json_t *read,
                        json_t *lost)
{
    char skipped[4096] = "";
    json_t *stack = framework_get(output->scenario, "stack.name");
    const char *name;
    json_t *value;
    bool differs = false;
    bool renamed = !json_equal(stack, framework_get(read, "stack.name"));
    json_object_foreach (json_object_get(output->scenario, "stack"), name, value) {
        char key[PATH];
        snprintf(key, sizeof key, "stack.%s", name);
        const bool idle = !has_effect(output, key);
        const bool of_stack =
            !idle && renamed && strcmp(name, "name") != 0 && !has_argument(output, key);
        if (idle || of_stack) {
            sp_append(skipped, sizeof skipped, "%s ", key);
        }
        differs = differs || (of_stack && !json_equal(value, framework_get(read, key)));
    }
    if (differs) {
        json_array_append_new(
            lost, sp_json_object(SP_JSON("key", "stack"), SP_JSON("value", json_incref(stack)),
                                 SP_JSON("read", json_incref(framework_get(read, "stack.name")))));
    }
    if (json_is_string(framework_get(output->scenario, "model.expert_imbalance"))) {
        sp_append(skipped, sizeof skipped, "model.expert_imbalance_seed ");
    }
    if (!has_value(output->scenario, "strategy.kind", "padded")) {
        sp_append(skipped, sizeof skipped, "strategy.pad_to ");
    }
    if (from->fills_microbatches) {
        sp_append(skipped, sizeof skipped, "workload.samples_per_batch workload.tokens_per_batch ");
    }
    if (!has_longer(from)) {
        sp_append(skipped, sizeof skipped, "workload.over_length ");
    }
    // Of samples that are equally long best fit makes the rows that their order makes.
    if (framework_get(output->scenario, "workload.lengths") == NULL &&
        has_value(output->scenario, "strategy.kind", "packed") &&
        has_value(read, "strategy.kind", "bfd")) {
        sp_append(skipped, sizeof skipped, "strategy.kind ");
    }
    compare(output->scenario, read, "", skipped, lost);
    compare_more(output->scenario, read, "", skipped, lost);
}

// Where what is read back is no scenario: what it states otherwise, and what the scenario states
// and it does not. All else is as it is anyway, in both.
static void compare_stated(const sp_scenario *scenario, const json_t *read, const char *skipped,
                           json_t *lost)
{
    json_t *all = json_array();
    size_t i;
    json_t *item;
    compare(scenario->resolved, read, "", skipped, all);
    json_array_foreach (all, i, item) {
        const char *key = json_string_value(json_object_get(item, "key"));
        bool stated = !json_is_null(json_object_get(item, "read"));
        const sp_setting *setting = NULL;
        for (int s = 0; !stated && (setting = sp_setting_at(s)) != NULL; s++) {
            stated = strcmp(setting->key, key) == 0 && sp_scenario_states(scenario, s);
        }
        if (stated) {
            json_array_append(lost, item);
        }
    }
    json_decref(all);
}

// Where else of the job a setting is, which this file cannot say.
static void tell_elsewhere(const framework *of, json_t *lost)
{
    size_t i;
    json_t *item;
    json_array_foreach (lost, i, item) {
        const char *key = json_string_value(json_object_get(item, "key"));
        const char *where = elsewhere_of(of, key);
        if (where != NULL) {
            sp_json_put(item, "elsewhere", json_string(where));
        }
    }
}

json_t *framework_lost(const framework_output *output, const sp_scenario *from, json_t *document)
{
    json_t *lost = json_array();
    sp_error own = {0};
    sp_scenario scenario = {0};
    count_samples(document);
    json_t *plain = json_deep_copy(document);
    borrow(document, output->resolved);
    fill(document, output->resolved, from->fills_microbatches, lost);
    if (sp_scenario_from_json(document, "written", NULL, 0, &scenario, &own) == SP_OK) {
        json_t *whole = whole_document(&scenario);
        compare_all(output, from, whole, lost);
        json_decref(whole);
    } else {
        // What is read back is no scenario: all counts that it does not state.
        const json_t *model = json_object_get(plain, "model");
        bool has_model = json_is_object(model);
        json_array_clear(lost);
        if (model == NULL) {
            lose(lost, "model", framework_get(output->resolved, "model.name"));
        }
        lose(lost, "stack", framework_get(output->resolved, "stack.name"));
        char skipped[64];
        snprintf(skipped, sizeof skipped, "stack.*%s%s", has_model ? "" : " model.*",
                 has_longer(from) ? "" : " workload.over_length");
        compare_stated(from, plain, skipped, lost);
        compare_more(output->scenario, plain, "", skipped, lost);
    }
    tell_elsewhere(output->of, lost);
    sp_scenario_fini(&scenario);
    json_decref(plain);
    return lost;
}

// A batch of documents is one of rows here: those that its micro-batches hold, or as many as its
// tokens fill, where it states them, in whole micro-batches of all replicas.
static void count_rows(json_t *scenario)
{
    json_t *workload = json_object_get(scenario, "workload");
    const json_int_t context = framework_get_int(scenario, "workload.context", 0);
    const json_int_t tokens = framework_get_int(scenario, "workload.tokens_per_batch", 0);
    const json_int_t each = rows_of_microbatch(scenario);
    json_int_t filled = framework_get_int(scenario, "schedule.microbatches", 0);
    json_object_del(workload, "samples_per_batch");
    json_object_del(workload, "tokens_per_batch");
    if (filled == 0 && tokens > 0 && context > 0) {
        filled = (tokens + context * each / 2) / (context * each);
        filled = filled > 0 ? filled : 1;
    }
    if (filled > 0) {
        sp_json_put(workload, "samples_per_batch", json_integer(each * filled));
    }
}

void framework_output_begin(framework_output *output, const framework *of,
                            const sp_scenario *scenario)
{
    json_t *whole = whole_document(scenario);
    const char *builtin = adapted_builtin(&scenario->model);
    const bool documents = framework_get(whole, "workload.lengths") != NULL;
    if (builtin != NULL) {
        framework_put_at(whole, "model.name", json_string(builtin));
    }
    if (documents) {
        count_rows(whole);
    }
    *output = (framework_output){.of = of,
                                 .scenario = whole,
                                 .resolved = scenario->resolved,
                                 .arguments = json_object(),
                                 .comments = json_object(),
                                 .launch = json_object()};
    write_rows(output);
    say_rotary_base(output);
    of->write(output);
    if (documents) { // rows are the framework's alone
        json_object_del(json_object_get(whole, "workload"), "samples_per_batch");
    }
}

void framework_output_fini(framework_output *output)
{
    json_decref(output->arguments);
    json_decref(output->comments);
    json_decref(output->launch);
    json_decref(output->advice);
    json_decref((json_t *)output->scenario);
}

sp_status framework_emit(const framework *of, const sp_scenario *scenario, char **text,
                         json_t **lost, sp_error *err)
{
    framework_output output;
    json_t *document = NULL;
    json_t *unread = NULL;
    json_t *notes = NULL;
    sp_error own = {0};
    *text = NULL;
    *lost = NULL;
    if (scenario->uniform) {
        return sp_error_set(err, SP_ERR_USAGE, "--emit needs a model, not uniform_costs");
    }
    framework_output_begin(&output, of, scenario);
    output.advice = framework_advice(of, scenario);
    char *said = text_of(&output, NULL);
    sp_status status =
        framework_import_text("written", said, strlen(said), of, &document, &unread, &notes, &own);
    sp_free(said);
    if (status == SP_OK) {
        *lost = framework_lost(&output, scenario, document);
        *text = text_of(&output, *lost);
    } else {
        sp_error_set(err, SP_ERR_INTERNAL, "--emit %s: what was written cannot be read: %s",
                     of->name, own.message[0]);
    }
    json_decref(document);
    json_decref(unread);
    json_decref(notes);
    framework_output_fini(&output);
    return status;
}
