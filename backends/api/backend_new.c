#include <stddef.h>
#include <string.h>

#include "backends/api/backend_private.h"
#include "sim/base/alloc.h"

static bool is_name(const char *name)
{
    return name != NULL && name[0] != '\0' &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

// The slots up to `execute`, the last required one, must lie inside the table.
static bool is_complete(const sp_backend_ops *ops)
{
    return is_name(ops->name) && ops->description != NULL && ops->device_count != NULL &&
           ops->device_info != NULL && ops->execute != NULL;
}

static sp_status check_table(const sp_backend_ops *table, const char *source, sp_error *err)
{
    if (table->abi != SP_BACKEND_ABI) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: made for version %u of the backend interface, this is version %d",
                            source, (unsigned)table->abi, SP_BACKEND_ABI);
    }
    if (table->types != SP_BACKEND_TYPES) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: built from other headers than this program (plans, models or "
                            "timelines differ in size)",
                            source);
    }
    if (table->size < offsetof(sp_backend_ops, free_state)) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: a table of operations of %u bytes is too short", source,
                            (unsigned)table->size);
    }
    return SP_OK;
}

sp_status sp_i_backend_new(const sp_backend_ops *table, const char *source, sp_backend **backend,
                           sp_error *err)
{
    static const sp_backend_option_info no_options[] = {{NULL, NULL}};
    *backend = NULL;
    sp_status status = check_table(table, source, err);
    if (status != SP_OK) {
        return status;
    }
    sp_backend *made = sp_i_calloc(1, sizeof *made);
    if (made == NULL) {
        return sp_error_no_memory(err, "a backend");
    }
    memcpy(&made->ops, table, table->size < sizeof made->ops ? table->size : sizeof made->ops);
    if (!is_complete(&made->ops)) {
        sp_i_free(made);
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: a required entry of the table of operations is missing (name of "
                            "lower-case letters, digits and '_', description, device_count, "
                            "device_info, execute)",
                            source);
    }
    sp_stack stack;
    if (made->ops.stack != NULL && !sp_stack_builtin(made->ops.stack, &stack)) {
        status = sp_error_set(err, SP_ERR_CONTENT, "%s: names a stack '%.64s' that is not known",
                              source, made->ops.stack);
        sp_i_free(made);
        return status;
    }
    if (made->ops.options == NULL) {
        made->ops.options = no_options;
    }
    *backend = made;
    return SP_OK;
}

void sp_i_backend_free(sp_backend *backend)
{
    sp_i_free(backend);
}
