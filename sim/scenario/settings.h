// Every setting of a scenario: reading and the resolved document, help, the manual page, completion
// and experiments/SCENARIO.md come from these rows, and hints for unknown keys.
#ifndef SLIMPACK_SIM_SCENARIO_SETTINGS_H
#define SLIMPACK_SIM_SCENARIO_SETTINGS_H

#include "sim/base/setting.h"
#include "sim/base/status.h"

// In the order of the pages, the keys of one section together; NULL past the last.
SP_API const sp_setting *sp_setting_at(int index);

// Finds a setting by its dotted key, its last part where only one setting has it, or one of its
// other names, in any case and with hyphens for underscores; NULL: none.
SP_API const sp_setting *sp_setting_find(const char *name);

// The key that is spelt most like a misspelt one, or most like its last part; NULL: none is near.
SP_API const char *sp_setting_near(const char *name);

// Why there is no setting of that name: what others call so is not modelled, or has no one name
// here; NULL: nothing is known of it.
SP_API const char *sp_setting_missing(const char *name);

// For sp_key_watch: the dotted key that is meant by a name of others, or by a key that stands in
// the wrong section; NULL: none.
const char *sp_setting_meant(const char *key);

// For sp_key_watch: the dotted key of a section that has the text among its values, else the one
// that says of which kind the section is, or what it is called; NULL: none.
const char *sp_setting_held(const char *section, const char *text);

#endif
