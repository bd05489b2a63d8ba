#include <string.h>

#include "experiments/cli/report.h"
#include "experiments/cli/settings_help.h"
#include "sim/base/json.h"
#include "sim/scenario/settings.h"

typedef struct help_args {
    bool manual;
    bool completion;
    bool markdown;
    cli_common common;
} help_args;

static json_t *option_json(const cli_option *option)
{
    static const char *const kinds[] = {"flag", "integer", "string", "file", "list"};
    char letter[2] = {option->letter, '\0'};
    json_t *json = json_pack("{s:s, s:s?, s:s, s:s?, s:s}", "name", option->name, "letter",
                             letter[0] != '\0' ? letter : NULL, "kind", kinds[option->kind],
                             "value", option->value, "help", option->help);
    if (json != NULL && option->kind == CLI_INT) {
        sp_json_put(json, "min", json_integer(option->min));
        sp_json_put(json, "max", json_integer(option->max));
    }
    return json;
}

static json_t *command_json(const cli_command *command)
{
    json_t *list = json_array();
    for (const cli_option *option = command->options; option->name != NULL; option++) {
        json_array_append_new(list, option_json(option));
    }
    return json_pack("{s:s, s:s, s:s?, s:o}", "name", command->name, "summary", command->summary,
                     "arguments", command->operands, "options", list);
}

static json_t *overview_json(void)
{
    json_t *list = json_array();
    for (int i = 0; cli_commands[i] != NULL; i++) {
        json_array_append_new(list, command_json(cli_commands[i]));
    }
    return json_pack("{s:s, s:o}", "version", SP_VERSION, "commands", list);
}

static int unknown_topic(const char *word)
{
    const char *near = cli_nearest_topic(word);
    const char *why = sp_setting_missing(word);
    if (why != NULL) {
        return cli_usage_error(&cli_cmd_help, "no setting '%s': %s", word, why);
    }
    if (strchr(word, '.') == NULL && near == NULL) {
        return cli_unknown_command(word);
    }
    return cli_usage_error(&cli_cmd_help, "no command and no setting '%s'%s%s%s", word,
                           near != NULL ? " (did you mean '" : "", near != NULL ? near : "",
                           near != NULL ? "'?)" : "");
}

static int print_whole(const help_args *args, const cli_operands *operands)
{
    if (operands->count > 0 || args->common.json ||
        args->manual + args->completion + args->markdown > 1) {
        return cli_usage_error(&cli_cmd_help, "--man, --completion and --markdown stand alone");
    }
    (args->manual       ? cli_print_manual
     : args->completion ? cli_print_completion
                        : cli_print_settings_markdown)(stdout);
    return 0;
}

static int run(const void *given, const cli_operands *operands)
{
    const help_args *args = given;
    if (args->manual || args->completion || args->markdown) {
        return print_whole(args, operands);
    }
    if (operands->count == 0) {
        if (args->common.json) {
            return cli_print_json(overview_json());
        }
        cli_print_overview(stdout);
        return 0;
    }
    const cli_command *command = cli_find_command(operands->items[0]);
    if (command == NULL) {
        int exit_status = cli_help_topic(operands->items[0], args->common.json);
        return exit_status != CLI_PROCEED ? exit_status : unknown_topic(operands->items[0]);
    }
    if (args->common.json) {
        return cli_print_json(command_json(command));
    }
    cli_print_help(stdout, command);
    return 0;
}

// ---- the command ----

static const cli_option options[] = {
    CLI_FLAG_OPTION("man", help_args, manual, "print the manual page, as source for man(1)"),
    CLI_FLAG_OPTION("completion", help_args, completion, "print the completion script for bash"),
    CLI_FLAG_OPTION("markdown", help_args, markdown,
                    "print the page of all settings of a scenario, as Markdown"),
    CLI_COMMON_OPTIONS(help_args),
    {0},
};

static const char *const examples[] = {
    "slimpack help lengths",
    "slimpack help memory.recompute",
    "slimpack help models",
    ". <(slimpack help --completion)",
    NULL,
};

const cli_command cli_cmd_help = {
    .name = "help",
    .summary = "explain a command or a setting of a scenario",
    .operands = "[COMMAND|KEY|LIST]",
    .max_operands = 1,
    .description =
        "Prints what a command does and the options it takes, or what a setting of a scenario is "
        "for: by its key (parallel.pp), its last part (pp), what others call it (vpp, "
        "micro_batch_size), or a whole section (memory); or what a key of a result (mfu) or a word "
        "of a table (margin) says. The lists settings, models, clusters, strategies, schedules, "
        "stacks, profiles, distributions, results and words have a line for each of what there is. "
        "With --json the same comes as data, "
        "for tools that offer it.",
    .examples = examples,
    .options = options,
    .args_bytes = sizeof(help_args),
    .run = run,
};
