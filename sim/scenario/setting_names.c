// What a name means: a key, its last part, or what others call it.
#include <ctype.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/scenario/scenario_private.h"
#include "sim/scenario/settings.h"

static const char *last_part(const char *key)
{
    size_t section = sp_setting_section(key);
    return section > 0 ? key + section + 1 : key;
}

// The first `length` bytes of a as b, in any case and with hyphens for underscores.
static bool alike(const char *a, size_t length, const char *b)
{
    for (size_t i = 0; i < length; i++) {
        int x = a[i] == '-' ? '_' : tolower((unsigned char)a[i]);
        int y = b[i] == '-' ? '_' : tolower((unsigned char)b[i]);
        if (x != y) {
            return false;
        }
    }
    return b[length] == '\0';
}

static bool has_alias(const sp_setting *setting, const char *name)
{
    const char *alias = setting->aliases;
    while (alias != NULL && *alias != '\0') {
        size_t length = strcspn(alias, " ");
        if (alike(alias, length, name)) {
            return true;
        }
        alias += length + (alias[length] == ' ');
    }
    return false;
}

static const sp_setting *by_alias(const char *name)
{
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        if (has_alias(setting, name)) {
            return setting;
        }
    }
    return NULL;
}

// The only setting whose key ends so; NULL where none or several do.
static const sp_setting *by_last_part(const char *name)
{
    const sp_setting *found = NULL;
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        const char *last = last_part(setting->key);
        if (alike(last, strlen(last), name)) {
            if (found != NULL) {
                return NULL;
            }
            found = setting;
        }
    }
    return found;
}

const sp_setting *sp_setting_find(const char *name)
{
    name += strncmp(name, "--", 2) == 0 ? 2 : 0;
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        if (strcmp(setting->key, name) == 0) {
            return setting;
        }
    }
    const sp_setting *found = by_last_part(name);
    return found != NULL ? found : by_alias(name);
}

const char *sp_setting_near(const char *name)
{
    const char *keys[SP_I_MOST_SETTINGS];
    bool whole = strchr(name, '.') != NULL;
    int count = 0;
    for (const sp_setting *setting; (setting = sp_setting_at(count)) != NULL; count++) {
        keys[count] = whole ? setting->key : last_part(setting->key);
    }
    const char *near = sp_nearest_name(name, keys, count);
    for (int i = 0; near != NULL && i < count; i++) {
        if (keys[i] == near) {
            return sp_setting_at(i)->key;
        }
    }
    return NULL;
}

const char *sp_setting_meant(const char *key)
{
    const sp_setting *found = by_alias(key);
    found = found != NULL ? found : by_last_part(key);
    return found != NULL ? found->key : NULL;
}

static bool has_value(const sp_setting *setting, const char *text)
{
    const char *value = NULL;
    for (int i = 0; (value = sp_setting_value(setting, i)) != NULL; i++) {
        if (strcmp(value, text) == 0) {
            return true;
        }
    }
    return false;
}

const char *sp_setting_held(const char *section, const char *text)
{
    const char *held = NULL;
    size_t length = strlen(section);
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        const char *last = last_part(setting->key);
        if (sp_setting_section(setting->key) != length ||
            strncmp(setting->key, section, length) != 0) {
            continue;
        }
        if (has_value(setting, text)) {
            return setting->key;
        }
        if (strcmp(last, "kind") == 0 || strcmp(last, "name") == 0) {
            held = setting->key;
        }
    }
    return held;
}
