// The frameworks that launch files are read and written of.
#include <string.h>

#include "experiments/frameworks/private.h"
#include "sim/base/json.h"
#include "sim/base/writer.h"

const framework *const framework_table[] = {
    &framework_megatron,   &framework_bridge,    &framework_nemo,
    &framework_torchtitan, &framework_deepspeed, &framework_trl,
    &framework_accelerate, &framework_nanotron,  NULL,
};

const char *const framework_names[] = {
    "megatron", "bridge", "nemo", "torchtitan", "deepspeed", "trl", "accelerate", "nanotron", NULL};

const framework *framework_find(const char *name)
{
    const framework *const *of = framework_table;
    while (*of != NULL && !sp_same_name((*of)->name, name)) {
        of++;
    }
    return *of;
}

const framework *framework_find_stack(const char *stack)
{
    const framework *const *of = framework_table;
    while (*of != NULL && ((*of)->stack == NULL || strcmp((*of)->stack, stack) != 0)) {
        of++;
    }
    return *of;
}

sp_status framework_unknown(const char *option, const char *name, sp_error *err)
{
    char hint[SP_NAME_HINT];
    char known[128] = "; known: ";
    int count = 0;
    for (; framework_names[count] != NULL; count++) {
        sp_append(known, sizeof known, "%s%s", count > 0 ? ", " : "", framework_names[count]);
    }
    sp_name_hint(name, framework_names, count, hint);
    return sp_error_set(err, SP_ERR_USAGE, "%sno framework is called '%s'%s", option, name,
                        hint[0] != '\0' ? hint : known);
}
