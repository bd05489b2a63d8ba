// Outputs of a command that would write over each other, or over what it reads.
#include <string.h>
#include <sys/stat.h>

#include "experiments/cli/report.h"
#include "sim/base/alloc.h"

// A file, or the place of one that is not there yet: its folder and name.
typedef struct file_id {
    bool known;
    dev_t device;
    ino_t inode;
    const char *name; // NULL: the file is there
} file_id;

// Devices and pipes can be written by several.
static file_id id_of(const char *path)
{
    struct stat found;
    if (stat(path, &found) == 0) {
        return (file_id){
            .known = S_ISREG(found.st_mode), .device = found.st_dev, .inode = found.st_ino};
    }
    const char *slash = strrchr(path, '/');
    char *folder = slash != NULL ? sp_strdup(path) : NULL;
    if (folder != NULL) {
        folder[slash - path + 1] = '\0';
    }
    bool known =
        (slash == NULL || folder != NULL) && stat(slash != NULL ? folder : ".", &found) == 0;
    sp_free(folder);
    return (file_id){.known = known,
                     .device = found.st_dev,
                     .inode = found.st_ino,
                     .name = slash != NULL ? slash + 1 : path};
}

static bool is_same_file(const char *a, const char *b)
{
    file_id x = id_of(a);
    file_id y = id_of(b);
    bool named = x.name != NULL && y.name != NULL;
    return x.known && y.known && x.device == y.device && x.inode == y.inode &&
           (named ? strcmp(x.name, y.name) == 0 : x.name == y.name);
}

static const char *file_of(const cli_option *option, const void *args)
{
    const char *path = NULL;
    if (option->kind == CLI_FILE || option->kind == CLI_OUTPUT) {
        memcpy(&path, (const char *)args + option->at, sizeof path);
    }
    return path;
}

static int check_output(const cli_command *command, const void *args, const cli_operands *operands,
                        const cli_option *output)
{
    const char *path = file_of(output, args);
    for (int i = 0; i < operands->count; i++) {
        if (is_same_file(path, operands->items[i])) {
            return cli_usage_error(command, "--%s would write over '%s'", output->name,
                                   operands->items[i]);
        }
    }
    for (const cli_option *other = command->options; other->name != NULL; other++) {
        // Two outputs are compared once.
        bool compared = other == output || (other->kind == CLI_OUTPUT && other < output);
        const char *file = compared ? NULL : file_of(other, args);
        if (file != NULL && is_same_file(path, file)) {
            return cli_usage_error(command, "--%s and --%s are the same file '%s'", output->name,
                                   other->name, path);
        }
    }
    return CLI_PROCEED;
}

int cli_check_outputs(const cli_command *command, const void *args, const cli_operands *operands)
{
    int result = CLI_PROCEED;
    for (const cli_option *option = command->options; option->name != NULL && result == CLI_PROCEED;
         option++) {
        if (option->kind == CLI_OUTPUT && file_of(option, args) != NULL) {
            result = check_output(command, args, operands, option);
        }
    }
    return result;
}
