#include "experiments/cli/help_text.h"

#include "experiments/cli/report.h"

void cli_print_overview(FILE *out)
{
    fputs("usage: slimpack <command> [options] [arguments]\n"
          "       slimpack help <command>\n"
          "       slimpack --version\n\n",
          out);
    cli_print_wrapped(out,
                      "Simulates training steps of language models on data of variable length: "
                      "packing, pipeline schedule, time and memory.",
                      0, 0);
    fputs("\ncommands:\n", out);
    for (int i = 0; cli_commands[i] != NULL; i++) {
        fprintf(out, "  %-10s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    }
}

enum { HELP_COLUMN = 26 };

static void print_option(FILE *out, const cli_option *option)
{
    int used = option->letter != '\0' ? fprintf(out, "  -%c, --%s", option->letter, option->name)
                                      : fprintf(out, "      --%s", option->name);
    if (option->value != NULL) {
        used += fprintf(out, " %s", option->value);
    }
    if (used + 2 > HELP_COLUMN) {
        fputc('\n', out);
        used = 0;
    }
    cli_print_wrapped(out, option->help, used, HELP_COLUMN);
}

void cli_print_help(FILE *out, const cli_command *command)
{
    fprintf(out, "usage: slimpack %s [options]%s%s\n\n", command->name,
            command->operands != NULL ? " " : "",
            command->operands != NULL ? command->operands : "");
    cli_print_wrapped(out, command->description, 0, 0);
    fputs("\noptions:\n", out);
    for (const cli_option *option = command->options; option->name != NULL; option++) {
        print_option(out, option);
    }
    print_option(out, &(cli_option){.letter = 'h', .name = "help", .help = "print this help"});
    if (command->examples == NULL) {
        return;
    }
    fputs("\nexamples:\n", out);
    for (int i = 0; command->examples[i] != NULL; i++) {
        fprintf(out, "  %s\n", command->examples[i]);
    }
}
