// Help, the manual page and shell completion, written out from the tables of the commands.
#include <string.h>

#include "experiments/cli/report.h"
#include "experiments/cli/settings_help.h"
#include "sim/base/json.h"
#include "sim/scenario/settings.h"

static const char streams[] =
    "A file named - is standard input, or standard output where it is written; what people are "
    "told goes to standard error then. A file that is written is whole or as it was.";

void cli_print_overview(FILE *out)
{
    fputs("usage: slimpack <command> [options] [arguments]\n"
          "       slimpack help <command>|<setting>\n"
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
    fputc('\n', out);
    cli_print_wrapped(out, streams, 0, 0);
}

enum { HELP_COLUMN = 26, TOPIC = 256 };

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
    if (command->list != NULL) {
        command->list(out);
    }
    if (command->examples == NULL) {
        return;
    }
    fputs("\nexamples:\n", out);
    for (int i = 0; command->examples[i] != NULL; i++) {
        fprintf(out, "  %s\n", command->examples[i]);
    }
}

// ---- the manual page, in the macros of man(7) ----

static void section(FILE *out, const char *title)
{
    fprintf(out, ".SH %s\n", title);
}

// One line of text, with what troff would take for itself escaped.
static void put_escaped(FILE *out, const char *text, size_t length)
{
    static const char special[] = "\\-^~";
    static const char *const escapes[] = {"\\e", "\\-", "\\(ha", "\\(ti"};
    if (length > 0 && (*text == '.' || *text == '\'')) {
        fputs("\\&", out);
    }
    for (size_t i = 0; i < length; i++) {
        const char *found = strchr(special, text[i]);
        if (found != NULL) {
            fputs(escapes[found - special], out);
        } else {
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

static void put_settings(FILE *out)
{
    section(out, "SETTINGS OF A SCENARIO");
    put_text(out,
             "Keys of the scenario's JSON file, which --set KEY=VALUE overrides. A number of "
             "tokens may also be written as 128K or 1M (times 1024 and 1048576).",
             ".PP");
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        char type[SP_SETTING_TYPE];
        fputs(".TP\n\\fB", out);
        put_escaped(out, setting->key, strlen(setting->key));
        fputs("\\fR\n", out);
        put_text(out, setting->text, ".IP");
        sp_setting_type(setting, type);
        fputc('(', out);
        put_escaped(out, type, strlen(type));
        fputs("; default: ", out);
        sp_setting_default(setting, type);
        put_escaped(out, type, strlen(type));
        fputs(").\n", out);
    }
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
        {"130",
         "stopped by Ctrl-C (143: by SIGTERM); tune, compare and sweep print what they know"},
    };
    fprintf(out, ".TH SLIMPACK 1 \"\" \"slimpack %s\"\n", SP_VERSION);
    section(out, "NAME");
    fputs("slimpack \\- simulate training steps of language models on data of variable length\n",
          out);
    section(out, "SYNOPSIS");
    fputs(".B slimpack\n.I command\n[options] [arguments]\n.br\n", out);
    fputs(".B slimpack help\n[\\fIcommand\\fR|\\fIkey\\fR|\\fIlist\\fR]\n.br\n.B slimpack "
          "\\-\\-version\n",
          out);
    section(out, "COMMANDS");
    for (int i = 0; cli_commands[i] != NULL; i++) {
        put_command(out, cli_commands[i]);
    }
    put_settings(out);
    put_examples(out);
    section(out, "FILES");
    put_text(out, streams, ".PP");
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

// ---- completion for bash: a function whose cases are written out ----

static void put_words(FILE *out, const cli_command *command)
{
    for (const cli_option *option = command->options; option->name != NULL; option++) {
        fprintf(out, " --%s", option->name);
        if (option->letter != '\0') {
            fprintf(out, " -%c", option->letter);
        }
    }
}

// Patterns "command --name" (and "command -n") of the options of one kind, or of several.
static void put_patterns(FILE *out, bool files)
{
    bool first = true;
    for (int i = 0; cli_commands[i] != NULL; i++) {
        for (const cli_option *option = cli_commands[i]->options; option->name != NULL; option++) {
            if (option->kind == CLI_FLAG || cli_is_file(option->kind) != files) {
                continue;
            }
            fprintf(out, "%s\"%s --%s\"", first ? "" : " | ", cli_commands[i]->name, option->name);
            if (option->letter != '\0') {
                fprintf(out, " | \"%s -%c\"", cli_commands[i]->name, option->letter);
            }
            first = false;
        }
    }
    // A case needs a pattern even where no option has the kind; no command has this name.
    fputs(first ? "\"- -\")\n" : ")\n", out);
}

// Cases of the options whose values have names: the part after the last comma is completed.
static void put_names(FILE *out)
{
    for (int i = 0; cli_commands[i] != NULL; i++) {
        for (const cli_option *option = cli_commands[i]->options; option->name != NULL; option++) {
            if (option->names == NULL) {
                continue;
            }
            fprintf(out, "        \"%s --%s\")\n            words=\"", cli_commands[i]->name,
                    option->name);
            for (int n = 0; option->names[n] != NULL; n++) {
                fprintf(out, "%s%s", n > 0 ? " " : "", option->names[n]);
            }
            fputs("\"\n"
                  "            mapfile -t COMPREPLY < <(compgen -P \"${word%\"${word##*,}\"}\" \\\n"
                  "                -W \"$words\" -- \"${word##*,}\")\n"
                  "            return\n"
                  "            ;;\n",
                  out);
        }
    }
}

// Cases of the options that state a setting, as --cluster does: what is built in, and files.
static void put_stated(FILE *out)
{
    for (int i = 0; cli_commands[i] != NULL; i++) {
        for (const cli_option *option = cli_commands[i]->options; option->name != NULL; option++) {
            const sp_setting *setting = sp_setting_find(option->name);
            if (option->kind == CLI_FLAG || option->names != NULL || setting == NULL ||
                cli_setting_value(setting, 0) == NULL) {
                continue;
            }
            fprintf(out,
                    "        \"%s --%s\")\n"
                    "            mapfile -t COMPREPLY < \\\n"
                    "                <(compgen -f -W \"$(_slimpack_values %s)\" -- \"$word\")\n"
                    "            return\n"
                    "            ;;\n",
                    cli_commands[i]->name, option->name, setting->key);
        }
    }
}

// A function that prints the values of a setting with names.
static void put_setting_values(FILE *out)
{
    fputs("_slimpack_values() # KEY\n{\n    case \"$1\" in\n", out);
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        const char *value = cli_setting_value(setting, 0);
        if (value == NULL) {
            continue;
        }
        fprintf(out, "    %s) echo \"", setting->key);
        for (int v = 1; value != NULL; value = cli_setting_value(setting, v++)) {
            fprintf(out, "%s%s", v > 1 ? " " : "", value);
        }
        fputs("\" ;;\n", out);
    }
    fputs("    esac\n}\n", out);
}

static void put_setting_keys(FILE *out)
{
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        fprintf(out, "%s%s", i > 0 ? " " : "", setting->key);
    }
}

// Keys after --set, and values after KEY=. Bash makes a word of its own of an equals sign, unless
// COMP_WORDBREAKS is without it.
static void put_set(FILE *out)
{
    put_setting_values(out);
    fputs("_slimpack_set() # WORD\n"
          "{\n"
          "    if [ \"${1#*=}\" != \"$1\" ]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -P \"${1%%=*}=\" \\\n"
          "            -W \"$(_slimpack_values \"${1%%=*}\")\" -- \"${1#*=}\")\n"
          "        return\n"
          "    fi\n"
          "    compopt -o nospace +o filenames 2>/dev/null\n"
          "    mapfile -t COMPREPLY < <(compgen -S = -W \"",
          out);
    put_setting_keys(out);
    fputs("\" -- \"$1\")\n"
          "}\n",
          out);
}

static void put_split_set(FILE *out)
{
    fputs("    if [ \"${COMP_WORDS[COMP_CWORD - 2]}\" = --set ] && [ \"$word\" = \"=\" ]; then\n"
          "        mapfile -t COMPREPLY < \\\n"
          "            <(compgen -W \"$(_slimpack_values \"${COMP_WORDS[COMP_CWORD - 1]}\")\")\n"
          "        return\n"
          "    elif [ \"$COMP_CWORD\" -gt 3 ] && [ \"${COMP_WORDS[COMP_CWORD - 3]}\" = --set ] &&\n"
          "        [ \"${COMP_WORDS[COMP_CWORD - 1]}\" = \"=\" ]; then\n"
          "        mapfile -t COMPREPLY < \\\n"
          "            <(compgen -W \"$(_slimpack_values \"${COMP_WORDS[COMP_CWORD - 2]}\")\" -- "
          "\"$word\")\n"
          "        return\n"
          "    fi\n",
          out);
}

// The case of the commands that have --set.
static void put_set_case(FILE *out)
{
    bool first = true;
    for (int i = 0; cli_commands[i] != NULL; i++) {
        for (const cli_option *option = cli_commands[i]->options; option->name != NULL; option++) {
            if (option->kind == CLI_LIST && strcmp(option->name, "set") == 0) {
                fprintf(out, "%s\"%s --set\"", first ? "        " : " | ", cli_commands[i]->name);
                first = false;
            }
        }
    }
    fputs(first ? ""
                : ")\n            _slimpack_set \"$word\"\n            return\n            ;;\n",
          out);
}

// Options of each command, and what `help` explains.
static void put_words_of_commands(FILE *out)
{
    for (int i = 0; cli_commands[i] != NULL; i++) {
        fprintf(out, "        %s)\n            words=\"--help", cli_commands[i]->name);
        put_words(out, cli_commands[i]);
        fputs("\"\n            ;;\n", out);
    }
    fputs("        esac\n"
          "        if [ \"$command\" = help ] && [ \"${word#-}\" = \"$word\" ]; then\n"
          "            words=\"",
          out);
    for (int i = 0; cli_commands[i] != NULL; i++) {
        fprintf(out, "%s%s", i > 0 ? " " : "", cli_commands[i]->name);
    }
    for (int i = 0; cli_help_topic_at(i) != NULL; i++) {
        fprintf(out, " %s", cli_help_topic_at(i));
    }
    fputc(' ', out);
    put_setting_keys(out);
}

void cli_print_completion(FILE *out)
{
    fputs("# bash completion for slimpack, written by 'slimpack help --completion'\n", out);
    put_set(out);
    fputs("_slimpack()\n"
          "{\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        words=\"--version --help",
          out);
    for (int i = 0; cli_commands[i] != NULL; i++) {
        fprintf(out, " %s", cli_commands[i]->name);
    }
    fputs("\"\n"
          "    else\n",
          out);
    put_split_set(out);
    fputs("        case \"$command ${COMP_WORDS[COMP_CWORD - 1]}\" in\n", out);
    put_names(out);
    put_stated(out);
    put_set_case(out);
    fputs("        ", out);
    put_patterns(out, true);
    fputs("            mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
          "            return\n"
          "            ;;\n"
          "        ",
          out);
    put_patterns(out, false);
    fputs("            return\n"
          "            ;;\n"
          "        esac\n"
          "        case \"$command\" in\n",
          out);
    put_words_of_commands(out);
    fputs("\"\n"
          "        elif [ \"${word#-}\" = \"$word\" ]; then\n"
          "            case \"$command\" in\n"
          "            tune) words=$(_slimpack_values model) ;;\n"
          "            lengths) words=$(_slimpack_values workload.lengths) ;;\n"
          "            reproduce) words=$(\"${COMP_WORDS[0]}\" reproduce 2>/dev/null | sed 's/ "
          ".*//') ;;\n"
          "            *) words= ;;\n"
          "            esac\n"
          "            mapfile -t COMPREPLY < <(compgen -f -W \"$words\" -- \"$word\")\n"
          "            return\n"
          "        fi\n"
          "    fi\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
          "}\n"
          "complete -o filenames -F _slimpack slimpack\n",
          out);
}

typedef struct help_args {
    bool manual;
    bool completion;
    bool markdown;
    cli_common common;
} help_args;

static json_t *option_json(const cli_option *option)
{
    static const char *const kinds[] = {
        [CLI_FLAG] = "flag",     [CLI_INT] = "integer", [CLI_STRING] = "string",
        [CLI_FILE] = "file",     [CLI_OUTPUT] = "file", [CLI_KEPT] = "file",
        [CLI_FOLDER] = "folder", [CLI_LIST] = "list",   [CLI_FILES] = "list"};
    char letter[2] = {option->letter, '\0'};
    json_t *json = json_pack("{s:s, s:s?, s:s, s:s?, s:s}", "name", option->name, "letter",
                             letter[0] != '\0' ? letter : NULL, "kind", kinds[option->kind],
                             "value", option->value, "help", option->help);
    if (option->kind == CLI_INT) {
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
    for (int i = 0; near == NULL && cli_commands[i] != NULL; i++) {
        near = sp_nearest_name(word, &cli_commands[i]->name, 1);
    }
    return cli_usage_error(&cli_cmd_help,
                           "no command, no setting and no word '%s'%s%s%s: 'slimpack help words' "
                           "lists those of outputs, 'help settings' keys of scenarios, 'help "
                           "results' of results",
                           word, near != NULL ? " (did you mean '" : "", near != NULL ? near : "",
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
    // Words of an output may be several ("longest stage").
    char topic[TOPIC] = "";
    for (int i = 0; i < operands->count; i++) {
        sp_append(topic, sizeof topic, "%s%s", i > 0 ? " " : "", operands->items[i]);
    }
    const cli_command *command = cli_find_command(topic);
    if (command == NULL) {
        int exit_status = cli_help_topic(topic, args->common.json);
        return exit_status != CLI_PROCEED ? exit_status : unknown_topic(topic);
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
    CLI_TAKES("[COMMAND|KEY|LIST|WORD...]", 0, 8),
    .description = "Prints what a command does and the options it takes, or what a setting of a "
                   "scenario is for: by its key (parallel.pp), its last part (pp), what others "
                   "call it (vpp, micro_batch_size), or a whole section (memory); or what a key of "
                   "a result (mfu) or a word of an output (margin, longest stage) says. The lists "
                   "settings, models, "
                   "clusters, strategies, schedules, stacks, profiles, distributions, results and "
                   "words have a line for each of what there is. With --json the same comes as "
                   "data, for tools that offer it.",
    CLI_RUNS(run, help_args, options, examples),
};
