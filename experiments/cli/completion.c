// Completion for bash: a function whose cases are written out from the option tables.
#include "experiments/cli/command.h"

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
            if (option->kind == CLI_FLAG || (option->kind == CLI_FILE) != files) {
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

void cli_print_completion(FILE *out)
{
    fputs("# bash completion for slimpack, written by 'slimpack help --completion'\n"
          "_slimpack()\n"
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
          "    else\n"
          "        case \"$command ${COMP_WORDS[COMP_CWORD - 1]}\" in\n"
          "        ",
          out);
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
    fputs("\"\n"
          "        elif [ \"${word#-}\" = \"$word\" ]; then\n"
          "            mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
          "            return\n"
          "        fi\n"
          "    fi\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
          "}\n"
          "complete -o filenames -F _slimpack slimpack\n",
          out);
}
