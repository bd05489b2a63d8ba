// The manual page, in the macros of man(7).
#include <string.h>

#include "experiments/cli/command.h"

static void section(FILE *out, const char *title)
{
    fprintf(out, ".SH %s\n", title);
}

// One line of text, with what troff would take for itself escaped.
static void put_escaped(FILE *out, const char *text, size_t length)
{
    if (length > 0 && (*text == '.' || *text == '\'')) {
        fputs("\\&", out);
    }
    for (size_t i = 0; i < length; i++) {
        switch (text[i]) {
        case '\\':
            fputs("\\e", out);
            break;
        case '-':
            fputs("\\-", out);
            break;
        case '^':
            fputs("\\(ha", out);
            break;
        case '~':
            fputs("\\(ti", out);
            break;
        default:
            fputc(text[i], out);
        }
    }
}

// Text whose paragraphs are separated by an empty line; troff fills the lines itself.
static void put_text(FILE *out, const char *text, const char *paragraph)
{
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        if (length > 0) {
            put_escaped(out, text, length);
        } else {
            fputs(paragraph, out);
        }
        fputc('\n', out);
        text += length;
        text += *text == '\n';
    }
}

static void put_option(FILE *out, const cli_option *option)
{
    fputs(".TP\n", out);
    if (option->letter != '\0') {
        fprintf(out, "\\fB\\-%c\\fR, ", option->letter);
    }
    fputs("\\fB\\-\\-", out);
    put_escaped(out, option->name, strlen(option->name));
    fputs("\\fR", out);
    if (option->value != NULL) {
        fprintf(out, " \\fI%s\\fR", option->value);
    }
    fputc('\n', out);
    put_text(out, option->help, ".IP");
}

static void put_command(FILE *out, const cli_command *command)
{
    fprintf(out, ".SS \"slimpack %s [options]%s%s\"\n", command->name,
            command->operands != NULL ? " " : "",
            command->operands != NULL ? command->operands : "");
    put_text(out, command->description, ".PP");
    for (const cli_option *option = command->options; option->name != NULL; option++) {
        put_option(out, option);
    }
}

static void put_examples(FILE *out)
{
    section(out, "EXAMPLES");
    fputs(".nf\n", out);
    for (int i = 0; cli_commands[i] != NULL; i++) {
        const char *const *examples = cli_commands[i]->examples;
        for (; examples != NULL && *examples != NULL; examples++) {
            put_text(out, *examples, ".PP");
        }
    }
    fputs(".fi\n", out);
}

void cli_print_manual(FILE *out)
{
    static const struct {
        const char *status, *meaning;
    } exits[] = {
        {"0", "done"},
        {"1", "done, and the answer is negative: out of memory, infeasible, or outside a bound; "
              "the complete result is printed all the same"},
        {"2", "wrong usage"},
        {"3", "bad input, or a file that cannot be read or written"},
        {"4", "a limit was hit"},
        {"70", "a defect of the program"},
    };
    fprintf(out, ".TH SLIMPACK 1 \"\" \"slimpack %s\"\n", SP_VERSION);
    section(out, "NAME");
    fputs("slimpack \\- simulate training steps of language models on data of variable length\n",
          out);
    section(out, "SYNOPSIS");
    fputs(".B slimpack\n.I command\n[options] [arguments]\n.br\n", out);
    fputs(".B slimpack help\n[\\fIcommand\\fR]\n.br\n.B slimpack \\-\\-version\n", out);
    section(out, "COMMANDS");
    for (int i = 0; cli_commands[i] != NULL; i++) {
        put_command(out, cli_commands[i]);
    }
    put_examples(out);
    section(out, "EXIT STATUS");
    for (size_t i = 0; i < sizeof exits / sizeof exits[0]; i++) {
        fprintf(out, ".TP\n.B %s\n", exits[i].status);
        put_text(out, exits[i].meaning, ".IP");
    }
    section(out, "ENVIRONMENT");
    fputs(".TP\n.B SLIMPACK_PROFILE_PATH\n", out);
    put_text(out, "Folders, separated by colons, that are searched for operator profiles first.",
             ".IP");
}
