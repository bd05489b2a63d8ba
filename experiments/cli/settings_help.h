// Help on the settings of a scenario and on what is built in: for people, the manual page,
// completion and Markdown, from sim/scenario/settings.h and the lists of the program.
#ifndef SLIMPACK_EXPERIMENTS_CLI_SETTINGS_HELP_H
#define SLIMPACK_EXPERIMENTS_CLI_SETTINGS_HELP_H

#include <stdbool.h>
#include <stdio.h>

#include "sim/scenario/settings.h"

// Prints the page of a setting, of a section of settings ("parallel") or of a list ("models"); with
// `json` as data. CLI_PROCEED where `topic` is none of these, else the exit status.
int cli_help_topic(const char *topic, bool json);

// The topic nearest to a misspelt one; NULL: none is near.
const char *cli_nearest_topic(const char *topic);

// Topics beside the settings themselves, lists and sections; NULL past the last.
const char *cli_help_topic_at(int index);

// As sp_setting_value(), with the strategies, which the scenario's reader does not know.
const char *cli_setting_value(const sp_setting *setting, int index);

// All settings as a page in Markdown.
void cli_print_settings_markdown(FILE *out);

#endif
