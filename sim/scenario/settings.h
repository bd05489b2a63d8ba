// Every setting of a scenario: what it may be, what it is where it is not stated, and what it does.
// Help, the manual page, completion and experiments/SCENARIO.md come from this table, and hints for
// unknown keys; tests/unit/test_settings.c holds it against what the reader accepts.
#ifndef SLIMPACK_SIM_SCENARIO_SETTINGS_H
#define SLIMPACK_SIM_SCENARIO_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/status.h"

typedef struct sp_setting {
    const char *key;  // dotted: "parallel.pp"
    const char *type; // in the words of the reader's errors; NULL: one of the values below
    // Names that it may have, NULL-terminated, or one after the other until NULL. With a type they
    // are those that are built in.
    const char *const *names;
    const char *(*name_at)(int index);
    const char *fallback; // what holds where the key is not stated
    const char *text;     // what it does, with its unit
    const char *aliases;  // how others call it, separated by single spaces; NULL: no other name
    bool tokens;          // "128K" stands for 131072
} sp_setting;

// In the order of the pages, the keys of one section together; NULL past the last.
SP_API const sp_setting *sp_setting_at(int index);

// Value number `index` of those with names; NULL past the last, and where values have no names.
SP_API const char *sp_setting_value(const sp_setting *setting, int index);

enum { SP_SETTING_TYPE = 512 };

// "an integer from 1 to 4096", or the names: "one of \"flash\", \"unfused\""; returns text.
SP_API const char *sp_setting_type(const sp_setting *setting, char text[SP_SETTING_TYPE]);

// By its dotted key, its last part where only one setting has it, or one of its other names, in any
// case and with hyphens for underscores; NULL: none.
SP_API const sp_setting *sp_setting_find(const char *name);

// The key that is spelt most like a misspelt one, or most like its last part; NULL: none is near.
SP_API const char *sp_setting_near(const char *name);

// Why there is no setting of that name: what others call so is not modelled, or has no one name
// here; NULL: nothing is known of it.
SP_API const char *sp_setting_missing(const char *name);

// The bytes of a key that name its section, 0 for a key of the document itself.
SP_API size_t sp_setting_section(const char *key);

// For sp_key_watch: the dotted key that is meant by a name of others, or by a key that stands in
// the wrong section; NULL: none.
const char *sp_setting_meant(const char *key);

// For sp_key_watch: the dotted key of a section that has the text among its values, else the one
// that says of which kind the section is, or what it is called; NULL: none.
const char *sp_setting_held(const char *section, const char *text);

#endif
