#include "experiments/cli/report.h"
#include "sim/base/json.h"

typedef struct help_args {
    bool manual;
    bool completion;
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

static int run(const void *given, const cli_operands *operands)
{
    const help_args *args = given;
    if (args->manual || args->completion) {
        if (operands->count > 0 || args->common.json || (args->manual && args->completion)) {
            return cli_usage_error(&cli_cmd_help, "--man and --completion stand alone");
        }
        (args->manual ? cli_print_manual : cli_print_completion)(stdout);
        return 0;
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
        return cli_unknown_command(operands->items[0]);
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
    CLI_COMMON_OPTIONS(help_args),
    {0},
};

static const char *const examples[] = {
    "slimpack help lengths",
    ". <(slimpack help --completion)",
    NULL,
};

const cli_command cli_cmd_help = {
    .name = "help",
    .summary = "explain a command, or list the commands",
    .operands = "[COMMAND]",
    .max_operands = 1,
    .description = "Prints what a command does and the options it takes. With --json the same "
                   "comes as data, for tools that offer the commands.",
    .examples = examples,
    .options = options,
    .args_bytes = sizeof(help_args),
    .run = run,
};
