// Settings as rows of tables: a row says the key, the kind, the bounds, the default, the words of
// the help and the field that holds the value. Reading and writing documents, help and hints come
// from the rows alone, so that a setting is one row (and the code that uses its value).
#ifndef SLIMPACK_SIM_BASE_SETTING_H
#define SLIMPACK_SIM_BASE_SETTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/json.h"

typedef enum sp_setting_kind {
    SP_SETTING_OTHER,  // a value of its own, described by `type` and read by `read`
    SP_SETTING_INT,    // or the first of `names`, for which the field holds -1
    SP_SETTING_TOKENS, // an integer, which "128K" may stand for
    SP_SETTING_REAL,
    SP_SETTING_SWITCH,
    SP_SETTING_NAME, // one of `names`; the field holds the index
    SP_SETTING_TEXT,
    SP_SETTING_OBJECT, // the keys below follow in the table; the field says whether it is stated
} sp_setting_kind;

// How the field holds the value.
typedef enum sp_setting_store {
    SP_STORE_NOTHING,
    SP_STORE_BOOL,
    SP_STORE_INT,   // enums too
    SP_STORE_INT64, // uint64_t too
    SP_STORE_DOUBLE,
    SP_STORE_TEXT,
} sp_setting_store;

typedef struct sp_setting_word {
    const char *word;
    int index; // of the name that it stands for
} sp_setting_word;

typedef struct sp_setting {
    const char *key; // dotted: "parallel.pp"
    sp_setting_kind kind;
    double least, most; // the bounds of a number; `most` HUGE_VAL: no upper bound
    double usual;       // the default: the number, the index of the name, or 1 for true
    double unit;        // the field holds the number times this; 0 stands for 1
    // The names that the value may have: an array that NULL ends, or a function that is asked for
    // index 0, 1, ... until it returns NULL. Kinds other than SP_SETTING_NAME have names where
    // something is built in.
    const char *const *names;
    const char *(*name_at)(int index);
    const sp_setting_word *also; // other words for names; one of NULL ends them
    // Words that stand for no one name, each with what to say of it; NULL ends them.
    const char *const *explained;
    const char *type;     // of SP_SETTING_OTHER, in the words of errors
    const char *fallback; // what holds where nothing is stated, where `usual` does not say it
    const char *text;     // what it does, with its unit
    const char *aliases;  // how others call it, separated by single spaces; NULL: no other name
    size_t offset, bytes;
    sp_setting_store store;
    bool required;       // an error where it is absent and the field holds no number above 0 yet
    bool read_elsewhere; // by sp_setting_read_key(), not with the others
    bool if_changed;     // a resolved document states it where it differs from `usual` alone
    bool unwritten;      // no resolved document states it
    // The default where it follows from what has been read before, in the unit of the document.
    double (*derive)(const void *owner);
    bool (*is_written)(const void *owner); // NULL: a resolved document states it
    // Reading and writing in the place of the kind's own. `context` is that of sp_settings_read()
    // and sp_settings_write(). A writer that returns NULL leaves the key out.
    void (*read)(sp_object *section, const struct sp_setting *row, void *owner, void *context);
    json_t *(*write)(const void *owner, const void *context);
} sp_setting;

// The rows of one section: perhaps that of the section itself, its keys, and behind a row of
// SP_SETTING_OBJECT those of the object.
typedef struct sp_setting_table {
    const char *section;
    const sp_setting *rows;
    int count;
} sp_setting_table;

#define SP_SETTING_TABLE(section_, rows_)                                                        \
    {                                                                                            \
        .section = (section_), .rows = (rows_), .count = (int)(sizeof(rows_) / sizeof(rows_)[0]) \
    }

#define SP_STORE_OF(field) \
    _Generic((field),              \
        bool: SP_STORE_BOOL,       \
        int: SP_STORE_INT,         \
        unsigned: SP_STORE_INT,    \
        int64_t: SP_STORE_INT64,   \
        uint64_t: SP_STORE_INT64, \
        double: SP_STORE_DOUBLE,   \
        char *: SP_STORE_TEXT)

// The field of a row: a member of the struct that the section is read into.
#define SP_FIELD(type_, member)                                               \
    .offset = offsetof(type_, member), .bytes = sizeof(((type_ *)0)->member), \
    .store = SP_STORE_OF(((type_ *)0)->member)

// The kinds of rows, with bounds where there are any.
#define SP_INT(least_, most_) .kind = SP_SETTING_INT, .least = (least_), .most = (most_)
#define SP_TOKENS(least_, most_) .kind = SP_SETTING_TOKENS, .least = (least_), .most = (most_)
#define SP_REAL(least_, most_) .kind = SP_SETTING_REAL, .least = (least_), .most = (most_)
#define SP_SWITCH .kind = SP_SETTING_SWITCH, .names = sp_setting_switch_names
#define SP_ONE_OF(names_) .kind = SP_SETTING_NAME, .names = (names_)
#define SP_TEXT .kind = SP_SETTING_TEXT

extern const char *const sp_setting_switch_names[];

// The row of a key of the section, by the last part of the key, which there must be.
const sp_setting *sp_setting_row(sp_setting_table table, const char *key);

// Gives every field of the rows its usual value, but for required ones.
void sp_settings_init(sp_setting_table table, void *owner);

// Reads the keys of the section, in the order of the rows, and those of objects in it. What is
// absent stays as it is in the owner, or is derived; errors go to object->err. O(rows of the
// table).
void sp_settings_read(sp_object *object, sp_setting_table table, void *owner, void *context);

// Reads one key of the section in the way of its kind, even where its row says otherwise.
void sp_setting_read_key(sp_object *object, sp_setting_table table, const char *key, void *owner);

// A number without a field, within the bounds of its row.
int64_t sp_setting_read_int(sp_object *object, sp_setting_table table, const char *key,
                            int64_t fallback);

// The integer in the field of a row.
int64_t sp_setting_int(const sp_setting *row, const void *owner);

// Has every row of the section with a field its usual value?
bool sp_settings_are_usual(sp_setting_table table, const void *owner);

// The object of a section as resolved, which the caller owns.
json_t *sp_settings_write(sp_setting_table table, const void *owner, const void *context);

// Value number `index` of those with names; NULL past the last, and where values have no names.
SP_API const char *sp_setting_value(const sp_setting *setting, int index);

// The name among those of the setting that a word stands for, in the row's own spelling; NULL:
// none.
const char *sp_setting_listed(const sp_setting *setting, const char *word);

enum { SP_SETTING_TYPE = 512 };

// "an integer from 1 to 4096", or the names: "one of \"flash\", \"unfused\""; returns text.
SP_API const char *sp_setting_type(const sp_setting *setting, char text[SP_SETTING_TYPE]);

// The default, as a document would say it or in words; returns text.
SP_API const char *sp_setting_default(const sp_setting *setting, char text[SP_SETTING_TYPE]);

// The bytes of a key that name its section, 0 for a key of the document itself.
SP_API size_t sp_setting_section(const char *key);

// The last part of a key.
const char *sp_setting_leaf(const char *key);

#endif
