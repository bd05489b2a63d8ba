// Files of a command line: standard streams by the name "-", and outputs that would write over each
// other, or over what the command reads.
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/cli/report.h"
#include "sim/base/alloc.h"
#include "sim/base/files.h"

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
    bool known = stat(folder != NULL ? folder : ".", &found) == 0;
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

bool cli_is_file(cli_kind kind)
{
    return kind == CLI_FILE || kind == CLI_OUTPUT || kind == CLI_KEPT || kind == CLI_FOLDER ||
           kind == CLI_FILES;
}

static bool is_output(const cli_option *option)
{
    return option->kind == CLI_OUTPUT || option->kind == CLI_KEPT;
}

static const char *file_of(const cli_option *option, const void *args)
{
    const char *path = NULL;
    if (option->kind == CLI_FILE || is_output(option)) {
        memcpy(&path, (const char *)args + option->at, sizeof path);
    }
    return path;
}

// ---- standard streams ----

static int count_stream(const char *path, int descriptor)
{
    return path != NULL && sp_descriptor_of(path) == descriptor;
}

// One file, or several, of an option that was given; returns the exit status.
static int name_stream(const cli_command *command, const cli_option *option, void *args)
{
    static const char *const input = SP_STANDARD_INPUT;
    static const char *const output = SP_STANDARD_OUTPUT;
    char *place = (char *)args + option->at;
    const char *path = NULL;
    cli_list list = {0};
    if (option->kind == CLI_FILES) {
        memcpy(&list, place, sizeof list);
    }
    for (int i = 0; i < list.count; i++) {
        list.items[i] = strcmp(list.items[i], "-") == 0 ? input : list.items[i];
    }
    if (!cli_is_file(option->kind) || option->kind == CLI_FILES) {
        return CLI_PROCEED;
    }
    memcpy(&path, place, sizeof path);
    bool standard = path != NULL && strcmp(path, "-") == 0;
    bool named = option->kind == CLI_KEPT || option->kind == CLI_FOLDER;
    if (named && (standard || count_stream(path, STDOUT_FILENO) > 0)) {
        return cli_usage_error(command,
                               "--%s cannot be '%s': it needs a %s with a name (such as "
                               "./-)",
                               option->name, path, option->kind == CLI_KEPT ? "file" : "folder");
    }
    if (!standard) {
        return CLI_PROCEED;
    }
    memcpy(place, option->kind == CLI_FILE ? &input : &output, sizeof path);
    return CLI_PROCEED;
}

static int name_streams(const cli_command *command, void *args, const cli_operands *operands)
{
    static char input[] = SP_STANDARD_INPUT;
    // Topics of the help are no files.
    for (int i = 0; command != &cli_cmd_help && i < operands->count; i++) {
        if (strcmp(operands->items[i], "-") == 0) {
            operands->items[i] = input;
        }
    }
    int result = CLI_PROCEED;
    for (const cli_option *option = command->options; option->name != NULL && result == CLI_PROCEED;
         option++) {
        result = name_stream(command, option, args);
    }
    return result;
}

// Standard input can be read once.
static int check_input(const cli_command *command, const void *args, const cli_operands *operands)
{
    int readers = 0;
    for (int i = 0; i < operands->count; i++) {
        readers += count_stream(operands->items[i], STDIN_FILENO);
    }
    for (const cli_option *option = command->options; option->name != NULL; option++) {
        cli_list list = {0};
        if (option->kind == CLI_FILE) {
            readers += count_stream(file_of(option, args), STDIN_FILENO);
        } else if (option->kind == CLI_FILES) {
            memcpy(&list, (const char *)args + option->at, sizeof list);
        } else if (option->kind == CLI_FLAG && strcmp(option->name, "stream") == 0) {
            readers += *((const char *)args + option->at) != 0;
        }
        for (int i = 0; i < list.count; i++) {
            readers += count_stream(list.items[i], STDIN_FILENO);
        }
    }
    return readers > 1
               ? cli_usage_error(command, "standard input can be read once, not %d times", readers)
               : CLI_PROCEED;
}

// Where an output is standard output, people are told things on standard error.
static int give_standard_output(const cli_command *command, const cli_option *output, bool json,
                                bool *given)
{
    if (json || *given) {
        return cli_usage_error(command, "--%s and %s would both write to standard output",
                               output->name, json ? "--json" : "another output");
    }
    int descriptor = dup(STDOUT_FILENO);
    if (descriptor < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        sp_error err = {0};
        sp_error_set(&err, SP_ERR_IO, "cannot use standard output");
        return cli_fail(&err);
    }
    sp_output_use_standard(descriptor);
    *given = true;
    return CLI_PROCEED;
}

// ---- outputs ----

static int check_output(const cli_command *command, const void *args, const cli_operands *operands,
                        const cli_option *output)
{
    static const char *const streams[] = {SP_STANDARD_OUTPUT, "/dev/stderr"};
    const char *path = file_of(output, args);
    for (int i = 0; i < operands->count; i++) {
        if (is_same_file(path, operands->items[i])) {
            return cli_usage_error(command, "--%s would write over '%s'", output->name,
                                   operands->items[i]);
        }
    }
    for (size_t s = 0; s < sizeof streams / sizeof streams[0]; s++) {
        if (sp_descriptor_of(path) < 0 && is_same_file(path, streams[s])) {
            return cli_usage_error(command, "--%s and %s are the same file '%s'", output->name,
                                   s == 0 ? "standard output" : "standard error", path);
        }
    }
    for (const cli_option *other = command->options; other->name != NULL; other++) {
        // Two outputs are compared once.
        bool compared = other == output || (is_output(other) && other < output);
        const char *file = compared ? NULL : file_of(other, args);
        // give_standard_output() tells of standard output.
        if (file != NULL && sp_descriptor_of(path) < 0 && is_same_file(path, file)) {
            return cli_usage_error(command, "--%s and --%s are the same file '%s'", output->name,
                                   other->name, path);
        }
    }
    return CLI_PROCEED;
}

int cli_prepare_files(const cli_command *command, void *args, const cli_operands *operands)
{
    bool json = false;
    bool given = false;
    int result = name_streams(command, args, operands);
    if (result == CLI_PROCEED) {
        result = check_input(command, args, operands);
    }
    for (const cli_option *option = command->options; option->name != NULL; option++) {
        json = json || (option->kind == CLI_FLAG && strcmp(option->name, "json") == 0 &&
                        *((const char *)args + option->at) != 0);
    }
    for (const cli_option *option = command->options; option->name != NULL && result == CLI_PROCEED;
         option++) {
        const char *path = is_output(option) ? file_of(option, args) : NULL;
        if (path != NULL) {
            result = check_output(command, args, operands, option);
        }
        bool standard =
            option->kind == CLI_OUTPUT && path != NULL && sp_descriptor_of(path) == STDOUT_FILENO;
        if (standard && result == CLI_PROCEED) {
            result = give_standard_output(command, option, json, &given);
        }
    }
    return result;
}
