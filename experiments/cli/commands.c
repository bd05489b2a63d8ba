#include <string.h>

#include "experiments/cli/command.h"
#include "experiments/cli/report.h"
#include "sim/base/json.h"

enum { MOST_COMMANDS = 32 };

const cli_command *const cli_commands[] = {
    &cli_cmd_simulate, &cli_cmd_compare,   &cli_cmd_plan,    &cli_cmd_sweep, &cli_cmd_run,
    &cli_cmd_validate, &cli_cmd_calibrate, &cli_cmd_lengths, &cli_cmd_help,  NULL,
};

const cli_command *cli_find_command(const char *name)
{
    for (int i = 0; cli_commands[i] != NULL; i++) {
        if (strcmp(cli_commands[i]->name, name) == 0) {
            return cli_commands[i];
        }
    }
    return NULL;
}

int cli_unknown_command(const char *name)
{
    const char *names[MOST_COMMANDS];
    char hint[SP_NAME_HINT];
    int n = 0;
    for (int i = 0; cli_commands[i] != NULL; i++) {
        SP_ASSERT(n < MOST_COMMANDS);
        names[n++] = cli_commands[i]->name;
    }
    return cli_usage_error(NULL, "unknown command '%s'%s", name,
                           sp_name_hint(name, names, n, hint));
}
