// Completion scripts for shells, written from the tables of commands, options and settings.
#include <string.h>

#include "experiments/cli/cli.h"
#include "sim/scenario/scenario.h"

// ---- what the shells share ----

// What words are there is the help's to say, which prints these scripts.
static cli_known known;

static void put_setting_keys(FILE *out)
{
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        fprintf(out, "%s%s", i > 0 ? " " : "", setting->key);
    }
}

static void put_names_of(FILE *out, const cli_option *option)
{
    for (int n = 0; option->names[n] != NULL; n++) {
        fprintf(out, "%s%s", n > 0 ? " " : "", option->names[n]);
    }
}

// The setting that an option states, as --cluster does, where its values have names; else NULL.
static const sp_setting *stated_by(const cli_option *option)
{
    const sp_setting *setting = option->kind == CLI_FLAG ? NULL : sp_setting_find(option->name);
    bool named = setting != NULL && known.setting_value(setting, 0) != NULL;
    return option->names == NULL && named ? setting : NULL;
}

static bool is_set(const cli_option *option)
{
    return option->kind == CLI_LIST && strcmp(option->name, "set") == 0;
}

// What `help` explains.
static void put_help_words(FILE *out)
{
    for (int i = 0; known.command_at(i) != NULL; i++) {
        fprintf(out, "%s%s", i > 0 ? " " : "", known.command_at(i)->name);
    }
    for (int i = 0; known.list_at(i) != NULL; i++) {
        fprintf(out, " %s", known.list_at(i));
    }
    fputc(' ', out);
    put_setting_keys(out);
}

// Cases of a shell's function that prints the values of a setting.
static void put_cases(FILE *out, const char *before, const char *between, const char *after)
{
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        const char *value = known.setting_value(setting, 0);
        if (value == NULL) {
            continue;
        }
        fprintf(out, "%s%s%s", before, setting->key, between);
        for (int v = 1; value != NULL; value = known.setting_value(setting, v++)) {
            fprintf(out, "%s%s", v > 1 ? " " : "", value);
        }
        fputs(after, out);
    }
}

// That function in bash and in zsh.
static void put_setting_values(FILE *out)
{
    fputs("_slimpack_values() # KEY\n{\n    case \"$1\" in\n", out);
    put_cases(out, "    ", ") echo \"", "\" ;;\n");
    fputs("    esac\n}\n", out);
}

enum { OPERANDS = 128 };

// What prints the words that operands of the command may be beside files, for a shell in which
// `program` is this one; NULL: there are none.
static const char *operand_words(const cli_command *command, const char *program,
                                 char text[OPERANDS])
{
    const char *setting = command == &cli_cmd_tune      ? "model"
                          : command == &cli_cmd_lengths ? "workload.lengths"
                                                        : NULL;
    if (command == &cli_cmd_reproduce) {
        snprintf(text, OPERANDS, "%s reproduce --csv 2>/dev/null | sed \"1d;s/,.*//\"", program);
        return text;
    }
    snprintf(text, OPERANDS, "_slimpack_values %s", setting != NULL ? setting : "");
    return setting != NULL ? text : NULL;
}

// ---- bash: a function whose cases are written out ----

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
    for (int i = 0; known.command_at(i) != NULL; i++) {
        for (const cli_option *option = known.command_at(i)->options; option->name != NULL;
             option++) {
            if (option->kind == CLI_FLAG || cli_is_file(option->kind) != files) {
                continue;
            }
            fprintf(out, "%s\"%s --%s\"", first ? "" : " | ", known.command_at(i)->name,
                    option->name);
            if (option->letter != '\0') {
                fprintf(out, " | \"%s -%c\"", known.command_at(i)->name, option->letter);
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
    for (int i = 0; known.command_at(i) != NULL; i++) {
        for (const cli_option *option = known.command_at(i)->options; option->name != NULL;
             option++) {
            if (option->names == NULL) {
                continue;
            }
            fprintf(out, "        \"%s --%s\")\n            words=\"", known.command_at(i)->name,
                    option->name);
            put_names_of(out, option);
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
    for (int i = 0; known.command_at(i) != NULL; i++) {
        for (const cli_option *option = known.command_at(i)->options; option->name != NULL;
             option++) {
            const sp_setting *setting = stated_by(option);
            if (setting == NULL) {
                continue;
            }
            fprintf(out,
                    "        \"%s --%s\")\n"
                    "            mapfile -t COMPREPLY < \\\n"
                    "                <(compgen -f -W \"$(_slimpack_values %s)\" -- \"$word\")\n"
                    "            return\n"
                    "            ;;\n",
                    known.command_at(i)->name, option->name, setting->key);
        }
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
    for (int i = 0; known.command_at(i) != NULL; i++) {
        for (const cli_option *option = known.command_at(i)->options; option->name != NULL;
             option++) {
            if (is_set(option)) {
                fprintf(out, "%s\"%s --set\"", first ? "        " : " | ",
                        known.command_at(i)->name);
                first = false;
            }
        }
    }
    fputs(first ? ""
                : ")\n            _slimpack_set \"$word\"\n            return\n            ;;\n",
          out);
}

// Options of each command, what `help` explains, and what else operands may be.
static void put_words_of_commands(FILE *out)
{
    for (int i = 0; known.command_at(i) != NULL; i++) {
        fprintf(out, "        %s)\n            words=\"--help", known.command_at(i)->name);
        put_words(out, known.command_at(i));
        fputs("\"\n            ;;\n", out);
    }
    fputs("        esac\n"
          "        if [ \"$command\" = help ] && [ \"${word#-}\" = \"$word\" ]; then\n"
          "            words=\"",
          out);
    put_help_words(out);
    fputs("\"\n"
          "        elif [ \"${word#-}\" = \"$word\" ]; then\n"
          "            case \"$command\" in\n",
          out);
    for (int i = 0; known.command_at(i) != NULL; i++) {
        char text[OPERANDS];
        const char *words = operand_words(known.command_at(i), "\"${COMP_WORDS[0]}\"", text);
        if (words != NULL) {
            fprintf(out, "            %s) words=$(%s) ;;\n", known.command_at(i)->name, words);
        }
    }
}

static void print_bash(FILE *out)
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
    for (int i = 0; known.command_at(i) != NULL; i++) {
        fprintf(out, " %s", known.command_at(i)->name);
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
    fputs("            *) words= ;;\n"
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

// ---- what zsh and fish share ----

// Text between single quotes of a shell; what is in `escaped` gets a backslash.
static void put_quoted(FILE *out, const char *text, const char *escaped)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            fputs("'\\''", out);
        } else {
            fputs(strchr(escaped, *text) != NULL ? "\\" : "", out);
            fputc(*text, out);
        }
    }
}

// ---- zsh: specifications of _arguments ----

static void put_zsh_action(FILE *out, const cli_option *option)
{
    const sp_setting *setting = stated_by(option);
    if (option->kind == CLI_FLAG) {
        return;
    }
    fputc(':', out);
    put_quoted(out, option->value, ":[]\\");
    fputc(':', out);
    if (option->names != NULL) {
        fputs("_sequence compadd - ", out);
        put_names_of(out, option);
    } else if (is_set(option)) {
        fputs("_slimpack_set", out);
    } else if (setting != NULL) {
        fprintf(out, "{ compadd - $(_slimpack_values %s); _files }", setting->key);
    } else if (cli_is_file(option->kind)) {
        fputs(option->kind == CLI_FOLDER ? "_files -/" : "_files", out);
    }
}

static void put_zsh_form(FILE *out, const cli_option *option, const char *name, const char *sign)
{
    bool many = option->kind == CLI_LIST || option->kind == CLI_FILES || option->kind == CLI_NAMED;
    fprintf(out, "'%s%s%s[", many ? "*" : "", name, option->kind == CLI_FLAG ? "" : sign);
    put_quoted(out, option->help, "[]:\\");
    fputc(']', out);
    put_zsh_action(out, option);
    fputc('\'', out);
}

static void put_zsh_option(FILE *out, const cli_option *option)
{
    char name[64];
    fputs(" \\\n            ", out);
    if (option->letter != '\0') {
        put_zsh_form(out, option, (const char[]){'-', option->letter, '\0'}, "+");
        fputc(' ', out);
    }
    snprintf(name, sizeof name, "--%s", option->name);
    put_zsh_form(out, option, name, "=");
}

static void put_zsh_operands(FILE *out, const cli_command *command)
{
    char text[OPERANDS];
    const char *words = operand_words(command, "slimpack", text);
    if (command->operands == NULL) {
        return;
    }
    fputs(" \\\n            '*:", out);
    put_quoted(out, command->operands, ":[]\\");
    fputc(':', out);
    if (command->prints_pages) {
        fputs("{ compadd - ", out);
        put_help_words(out);
        fputs(" }'", out);
    } else if (words != NULL) {
        fprintf(out, "{ compadd - $(%s); _files }'", words);
    } else {
        fputs("_files'", out);
    }
}

static void print_zsh(FILE *out)
{
    fputs("#compdef slimpack\n"
          "# zsh completion for slimpack, written by 'slimpack help --completion zsh'\n",
          out);
    put_setting_values(out);
    fputs("_slimpack_set()\n"
          "{\n"
          "    if compset -P '*='; then\n"
          "        compadd - $(_slimpack_values ${IPREFIX%=})\n"
          "    else\n"
          "        compadd -S = - ",
          out);
    put_setting_keys(out);
    fputs("\n    fi\n"
          "}\n"
          "_slimpack()\n"
          "{\n"
          "    local context state state_descr line\n"
          "    local -a commands\n"
          "    typeset -A opt_args\n"
          "    _arguments -C '--version[print the version]' '--help[print the commands]' \\\n"
          "        '1:command:->command' '*::argument:->rest'\n"
          "    case $state in\n"
          "    command)\n"
          "        commands=(",
          out);
    for (int i = 0; known.command_at(i) != NULL; i++) {
        fprintf(out, "\n            '%s:", known.command_at(i)->name);
        put_quoted(out, known.command_at(i)->summary, ":\\");
        fputc('\'', out);
    }
    fputs(")\n"
          "        _describe command commands\n"
          "        ;;\n"
          "    rest)\n"
          "        case $words[1] in\n",
          out);
    for (int i = 0; known.command_at(i) != NULL; i++) {
        const cli_command *command = known.command_at(i);
        fprintf(out, "        %s) _arguments -s : '--help[print this help]'", command->name);
        for (const cli_option *option = command->options; option->name != NULL; option++) {
            put_zsh_option(out, option);
        }
        put_zsh_operands(out, command);
        fputs(" ;;\n", out);
    }
    fputs("        esac\n"
          "        ;;\n"
          "    esac\n"
          "}\n"
          "if [ \"${funcstack[1]}\" = _slimpack ]; then\n"
          "    _slimpack \"$@\"\n"
          "else\n"
          "    compdef _slimpack slimpack\n"
          "fi\n",
          out);
}

// ---- fish: a line for each option ----

static void put_fish_option(FILE *out, const cli_command *command, const cli_option *option)
{
    const sp_setting *setting = stated_by(option);
    fprintf(out, "complete -c slimpack -n '__fish_seen_subcommand_from %s' -l %s", command->name,
            option->name);
    if (option->letter != '\0') {
        fprintf(out, " -s %c", option->letter);
    }
    if (option->names != NULL) {
        fputs(" -x -a '(_slimpack_list ", out);
        put_names_of(out, option);
        fputs(")'", out);
    } else if (is_set(option)) {
        fputs(" -x -a '(_slimpack_set)'", out);
    } else if (setting != NULL) {
        fprintf(out, " -r -F -a '(_slimpack_values %s)'", setting->key);
    } else if (option->kind != CLI_FLAG) {
        fputs(cli_is_file(option->kind) ? " -r -F" : " -x", out);
    }
    fputs(" -d '", out);
    // fish takes a backslash between single quotes for one before a quote or a backslash.
    for (const char *c = option->help; *c != '\0'; c++) {
        fputs(*c == '\'' || *c == '\\' ? "\\" : "", out);
        fputc(*c, out);
    }
    fputs("'\n", out);
}

static void put_fish_operands(FILE *out, const cli_command *command)
{
    char text[OPERANDS];
    const char *words = operand_words(command, "slimpack", text);
    if (command->operands == NULL) {
        return;
    }
    fprintf(out, "complete -c slimpack -n '__fish_seen_subcommand_from %s'", command->name);
    if (command->prints_pages) {
        fputs(" -a '", out);
        put_help_words(out);
        fputs("'\n", out);
    } else if (words != NULL) {
        fprintf(out, " -F -a '(%s)'\n", words);
    } else {
        fputs(" -F\n", out);
    }
}

static void print_fish(FILE *out)
{
    fputs("# fish completion for slimpack, written by 'slimpack help --completion fish'\n"
          "function _slimpack_values # KEY\n    switch $argv[1]\n",
          out);
    put_cases(out, "        case ", "; printf '%s\\n' ", "\n");
    fputs("    end\n"
          "end\n"
          "function _slimpack_token\n"
          "    commandline -ct | string replace -r '^--[^=]*=' ''\n"
          "end\n"
          "function _slimpack_list # WORD...\n"
          "    set -l before (_slimpack_token | string match -r '.*,')\n"
          "    for word in $argv\n"
          "        echo \"$before$word\"\n"
          "    end\n"
          "end\n"
          "function _slimpack_set\n"
          "    set -l key (_slimpack_token | string match -r '.*=')\n"
          "    if test -n \"$key\"\n"
          "        for value in (_slimpack_values (string trim -r -c = -- $key))\n"
          "            echo $key$value\n"
          "        end\n"
          "        return\n"
          "    end\n"
          "    printf '%s=\\n' ",
          out);
    put_setting_keys(out);
    fputs("\nend\n"
          "complete -c slimpack -f\n"
          "complete -c slimpack -n __fish_use_subcommand -l version -d 'print the version'\n"
          "complete -c slimpack -l help -s h -d 'print help'\n",
          out);
    for (int i = 0; known.command_at(i) != NULL; i++) {
        const cli_command *command = known.command_at(i);
        fprintf(out, "complete -c slimpack -n __fish_use_subcommand -a %s -d '", command->name);
        put_quoted(out, command->summary, "");
        fputs("'\n", out);
        for (const cli_option *option = command->options; option->name != NULL; option++) {
            put_fish_option(out, command, option);
        }
        put_fish_operands(out, command);
    }
}

bool cli_print_completion(FILE *out, const char *shell, const cli_known *what)
{
    known = *what;
    static const struct {
        const char *name;
        void (*print)(FILE *out);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].print(out);
            return true;
        }
    }
    return false;
}
