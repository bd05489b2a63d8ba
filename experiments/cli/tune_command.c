// The command that goes on with what `tune` found.
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>

#include "experiments/cli/tune_args.h"
#include "sim/base/alloc.h"

bool cli_tune_states(const char *const *overrides, int count, const char *path)
{
    for (int i = 0; i < count; i++) {
        size_t bytes = strcspn(overrides[i], "=");
        if (strncmp(overrides[i], path, bytes) == 0 &&
            (path[bytes] == '\0' || path[bytes] == '.')) {
            return true;
        }
    }
    return false;
}

bool cli_tune_is_set(const cli_tune_args *args, const char *path)
{
    return cli_tune_states(args->set.items, args->set.count, path);
}

// As one word of a shell.
static void add_word(FILE *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=,:+@%";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        fprintf(out, " %s", word);
        return;
    }
    fputs(" '", out);
    for (; *word != '\0'; word++) {
        fputs(*word == '\'' ? "'\\''" : (const char[]){*word, '\0'}, out);
    }
    putc('\'', out);
}

static void add_question(FILE *out, const cli_tune_args *args, const char *model)
{
    fputs("slimpack tune", out);
    add_word(out, model);
    fprintf(out, " --gpus %lld --context %lld", (long long)args->gpus, (long long)args->context);
    if (!cli_tune_is_set(args, "cluster")) {
        fputs(" --cluster", out);
        add_word(out, args->cluster);
    }
    if (args->lengths != NULL) {
        fputs(" --lengths", out);
        add_word(out, args->lengths);
    }
    if (args->tokens_per_batch > 0) {
        fprintf(out, " --tokens-per-batch %lld", (long long)args->tokens_per_batch);
    }
    for (int i = 0; i < args->set.count; i++) {
        fputs(" --set", out);
        add_word(out, args->set.items[i]);
    }
}

static void add_point(FILE *out, const cli_tune_args *args, const json_t *settings,
                      const char *strategy)
{
    const char *path;
    json_t *value;
    if (!cli_tune_is_set(args, "strategy.kind")) {
        fprintf(out, " --strategies %s", strategy);
    }
    json_object_foreach ((json_t *)settings, path, value) {
        if (cli_tune_is_set(args, path)) {
            continue;
        }
        if (json_is_string(value)) {
            fprintf(out, " --set %s=%s", path, json_string_value(value));
        } else {
            fprintf(out, " --set %s=%lld", path, (long long)json_integer_value(value));
        }
    }
}

char *cli_tune_command(const cli_tune_args *args, const char *model, const sweep_layouts *layouts,
                       const sweep_layout *point, const char *strategy)
{
    char *text = NULL;
    size_t bytes = 0;
    const char *file = args->output != NULL ? args->output : "best.json";
    json_t *settings = sweep_layouts_settings(layouts, point);
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) {
        sp_out_of_memory(bytes);
    }
    if (args->output == NULL) {
        add_question(out, args, model);
        add_point(out, args, settings, strategy);
        fprintf(out, " -o %s && ", file);
    }
    fputs("slimpack simulate", out);
    add_word(out, file);
    fputs(" --timeline", out);
    json_decref(settings);
    if (fclose(out) != 0) {
        sp_out_of_memory(bytes);
    }
    return text;
}
