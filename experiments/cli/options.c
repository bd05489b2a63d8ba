// Options of a command line, and its files: standard streams by the name "-", and outputs that
// would write over each other, or over what the command reads.
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/model/model.h"
#include "sim/scenario/scenario.h"

enum { MOST_OPTIONS = 64, ENTRY = 64 };

// One run over argv.
typedef struct parser {
    const cli_command *command;
    int argc;
    char **argv;
    int next; // index of the next word
    void *args;
    int given[MOST_OPTIONS]; // how often each row of the table was
} parser;

// ---- help of one command ----

enum { HELP_COLUMN = 26 };

static void print_option(FILE *out, const cli_option *option)
{
    int used = option->letter != '\0' ? fprintf(out, "  -%c, --%s", option->letter, option->name)
                                      : fprintf(out, "      --%s", option->name);
    if (option->value != NULL) {
        used += fprintf(out, " %s", option->value);
    }
    if (used + 2 > HELP_COLUMN) {
        fputc('\n', out);
        used = 0;
    }
    cli_print_wrapped(out, option->help, used, HELP_COLUMN);
}

void cli_print_help(FILE *out, const cli_command *command)
{
    fprintf(out, "usage: slimpack %s [options]%s%s\n\n", command->name,
            command->operands != NULL ? " " : "",
            command->operands != NULL ? command->operands : "");
    cli_print_wrapped(out, command->description, 0, 0);
    fputs("\noptions:\n", out);
    for (const cli_option *option = command->options; option->name != NULL; option++) {
        print_option(out, option);
    }
    print_option(out, &(cli_option){.letter = 'h', .name = "help", .help = "print this help"});
    if (command->list != NULL) {
        command->list(out);
    }
    if (command->examples == NULL) {
        return;
    }
    fputs("\nexamples:\n", out);
    for (int i = 0; command->examples[i] != NULL; i++) {
        cli_print_command(out, command->examples[i], fprintf(out, "  "), 6);
    }
}

// ---- reading ----

static int show_help(const parser *in)
{
    cli_print_help(stdout, in->command);
    return 0;
}

static int store_int(parser *in, const cli_option *option, const char *value)
{
    char *end = NULL;
    errno = 0;
    int64_t checked = (int64_t)strtoll(value, &end, 10);
    bool digits = (value[0] >= '0' && value[0] <= '9') ||
                  (value[0] == '-' && value[1] >= '0' && value[1] <= '9');
    bool read = digits && *end == '\0' && errno == 0;
    if (option->counts_tokens) {
        read = sp_tokens_from_text(value, &checked);
    }
    if (!read || checked < option->min || checked > option->max) {
        return cli_usage_error(
            in->command,
            "option '--%s': expected an integer from %" PRId64 " to %" PRId64 "%s, got '%s'",
            option->name, option->min, option->max,
            option->counts_tokens ? ", or such as 32K (of 1024) or 1M" : "", value);
    }
    memcpy((char *)in->args + option->at, &checked, sizeof checked);
    return CLI_PROCEED;
}

static int store_in_list(parser *in, const cli_option *option, const char *value)
{
    cli_list list;
    char *place = (char *)in->args + option->at;
    memcpy(&list, place, sizeof list);
    if (list.items == NULL) {
        // No option can be given more often than there are words.
        list.items = sp_calloc((size_t)in->argc, sizeof *list.items);
    }
    list.items[list.count++] = value;
    memcpy(place, &list, sizeof list);
    return CLI_PROCEED;
}

// An entry of a list of names, `length` characters.
static bool is_entry(const char *entry, size_t length, const char *name, size_t name_length)
{
    char words[2][ENTRY];
    snprintf(words[0], ENTRY, "%.*s", (int)length, entry);
    snprintf(words[1], ENTRY, "%.*s", (int)name_length, name);
    return sp_same_name(words[0], words[1]);
}

// A name that stands twice, or is missing between commas, was meant otherwise.
static int check_names(const parser *in, const cli_option *option, const char *list)
{
    for (const char *name = list; name != NULL;) {
        size_t length = strcspn(name, ",");
        if (length == 0) {
            return cli_usage_error(in->command, "option '--%s': a name is missing in '%s'",
                                   option->name, list);
        }
        for (const char *other = list; other < name; other += strcspn(other, ",") + 1) {
            if (is_entry(name, length, other, strcspn(other, ","))) {
                return cli_usage_error(in->command, "option '--%s' names '%.*s' twice",
                                       option->name, (int)length, name);
            }
        }
        name = name[length] == ',' ? name + length + 1 : NULL;
    }
    return CLI_PROCEED;
}

static int store(parser *in, const cli_option *option, const char *value)
{
    static const bool yes = true;
    char *place = (char *)in->args + option->at;
    in->given[option - in->command->options]++;
    switch (option->kind) {
    case CLI_FLAG:
        memcpy(place, &yes, sizeof yes);
        break;
    case CLI_STRING:
    case CLI_FILE:
    case CLI_OUTPUT:
    case CLI_KEPT:
    case CLI_FOLDER:
        if (value[0] == '\0') {
            return cli_usage_error(in->command, "option '--%s' needs a value: --%s %s",
                                   option->name, option->name, option->value);
        }
        memcpy(place, &value, sizeof value);
        return option->names != NULL ? check_names(in, option, value) : CLI_PROCEED;
    case CLI_INT:
        return store_int(in, option, value);
    case CLI_LIST:
    case CLI_FILES:
    case CLI_NAMED:
        return store_in_list(in, option, value);
    }
    return CLI_PROCEED;
}

static int store_next(parser *in, const cli_option *option)
{
    if (in->next == in->argc) {
        return cli_usage_error(in->command, "option '--%s' needs a value: --%s %s", option->name,
                               option->name, option->value);
    }
    return store(in, option, in->argv[in->next++]);
}

static int parse_letters(parser *in, const char *letters)
{
    while (*letters != '\0') {
        const cli_option *option = in->command->options;
        while (option->name != NULL && option->letter != *letters) {
            option++;
        }
        if (option->name == NULL && *letters == 'h') {
            return show_help(in);
        }
        if (option->name == NULL) {
            return cli_usage_error(in->command, "unknown option '-%.1s'", letters);
        }
        letters++;
        bool attached = option->kind != CLI_FLAG && *letters != '\0';
        int result = option->kind == CLI_FLAG || attached ? store(in, option, letters)
                                                          : store_next(in, option);
        if (attached || result != CLI_PROCEED) {
            return result;
        }
    }
    return CLI_PROCEED;
}

static bool takes_settings(const cli_command *command)
{
    const cli_option *option = command->options;
    while (option->name != NULL && strcmp(option->name, "set") != 0) {
        option++;
    }
    return option->name != NULL;
}

static int unknown_option(const parser *in, const char *word, size_t length)
{
    const char *names[MOST_OPTIONS];
    char name[MOST_OPTIONS];
    int n = 0;
    for (const cli_option *option = in->command->options; option->name != NULL; option++) {
        SP_ASSERT(n < MOST_OPTIONS - 1);
        names[n++] = option->name;
    }
    names[n++] = "help";
    const char *near = NULL;
    const sp_setting *setting = NULL;
    if (length < sizeof name) {
        memcpy(name, word, length);
        name[length] = '\0';
        setting = takes_settings(in->command) ? sp_setting_find(name) : NULL;
        near = sp_nearest_name(name, names, n);
    }
    // "strategy" of "strategies": all but the last letter, where no name is near.
    for (int i = 0; near == NULL && length > 4 && i < n; i++) {
        near = strncmp(names[i], word, length - 1) == 0 ? names[i] : NULL;
    }
    // The beginning of an option (--gpu) rather means it than a setting of that name.
    bool begun = near != NULL && strncmp(near, word, length) == 0;
    if (setting != NULL && !begun) {
        return cli_usage_error(in->command,
                               "unknown option '--%s' (did you mean '--set %s=VALUE'?)", name,
                               setting->key);
    }
    const char *why =
        length < sizeof name && takes_settings(in->command) ? sp_setting_missing(name) : NULL;
    if (why != NULL) {
        return cli_usage_error(in->command, "unknown option '--%s': %s", name, why);
    }
    if (near != NULL) {
        return cli_usage_error(in->command, "unknown option '--%.*s' (did you mean '--%s'?)",
                               (int)length, word, near);
    }
    return cli_usage_error(in->command, "unknown option '--%.*s'", (int)length, word);
}

static int parse_long(parser *in, const char *word)
{
    size_t length = strcspn(word, "=");
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    if (strcmp(word, "help") == 0) {
        return show_help(in);
    }
    for (const cli_option *option = in->command->options; option->name != NULL; option++) {
        if (strlen(option->name) != length || strncmp(option->name, word, length) != 0) {
            continue;
        }
        if (option->kind == CLI_FLAG && value != NULL) {
            return cli_usage_error(in->command, "option '--%s' takes no value, got '%s'",
                                   option->name, value);
        }
        return option->kind == CLI_FLAG || value != NULL ? store(in, option, value)
                                                         : store_next(in, option);
    }
    return unknown_option(in, word, length);
}

static bool flag_of(const cli_command *command, const void *args, const char *name)
{
    const cli_option *option = command->options;
    while (option->name != NULL && strcmp(option->name, name) != 0) {
        option++;
    }
    return option->name != NULL && option->kind == CLI_FLAG &&
           *((const char *)args + option->at) != 0;
}

// Of KEY=VALUE twice, the last one holds as well.
static void warn_of_keys(bool quiet, const cli_option *option, const cli_list *list)
{
    for (int i = 1; i < list->count; i++) {
        size_t length = strcspn(list->items[i], "=");
        bool before = false;
        for (int k = 0; k < i && !before; k++) {
            before = strncmp(list->items[k], list->items[i], length + 1) == 0;
        }
        if (before && list->items[i][length] == '=') {
            cli_warn(quiet, "--%s %.*s is given twice: the last holds", option->name, (int)length,
                     list->items[i]);
        }
    }
}

// What was given and gives way is told.
static void warn_of_repeated(const parser *in)
{
    bool quiet = flag_of(in->command, in->args, "quiet");
    for (const cli_option *option = in->command->options; option->name != NULL; option++) {
        cli_list list;
        if (option->kind == CLI_LIST) {
            memcpy(&list, (const char *)in->args + option->at, sizeof list);
            warn_of_keys(quiet, option, &list);
        } else if (option->kind != CLI_FLAG && option->kind != CLI_FILES &&
                   option->kind != CLI_NAMED && in->given[option - in->command->options] > 1) {
            cli_warn(quiet, "--%s is given twice: the last holds", option->name);
        }
    }
}

static int parse_words(parser *in, cli_operands *operands)
{
    bool options_ended = false;
    while (in->next < in->argc) {
        char *word = in->argv[in->next++];
        int result = CLI_PROCEED;
        if (options_ended || word[0] != '-' || word[1] == '\0') {
            operands->items[operands->count++] = word;
        } else if (strcmp(word, "--") == 0) {
            options_ended = true;
        } else if (word[1] == '-') {
            result = parse_long(in, word + 2);
        } else {
            result = parse_letters(in, word + 1);
        }
        if (result != CLI_PROCEED) {
            return result;
        }
    }
    return CLI_PROCEED;
}

// A model in the place of a scenario, which says more.
static const char *model_for_scenario(const cli_command *command, const cli_operands *operands)
{
    bool takes = command->operands != NULL && strstr(command->operands, "SCENARIO") != NULL;
    const char *first = takes && operands->count > 0 ? operands->items[0] : "";
    return access(first, F_OK) == 0 ? NULL : sp_model_builtin_meant(first);
}

static bool is_given(const parser *in, const char *name)
{
    const cli_option *option = in->command->options;
    while (option->name != NULL && strcmp(option->name, name) != 0) {
        option++;
    }
    return option->name != NULL && in->given[option - in->command->options] > 0;
}

// Beside --set and --lengths it is one of which they say all that is not usual.
static void warn_of_model(const parser *in, const cli_operands *operands)
{
    const char *model = model_for_scenario(in->command, operands);
    if (model != NULL) {
        cli_warn(flag_of(in->command, in->args, "quiet"),
                 "'%s' is a model: what --set and --lengths do not state is assumed",
                 operands->items[0]);
    }
}

static int check_operands(const parser *in, const cli_operands *operands)
{
    const cli_command *command = in->command;
    const char *model = model_for_scenario(command, operands);
    if (model != NULL && !is_given(in, "set") && !is_given(in, "lengths")) {
        return cli_usage_error(command,
                               "'%s' is a model, a scenario says GPUs and lengths as well: "
                               "'slimpack tune %s --gpus 8 --context 8K -o scenario.json' writes "
                               "one for 'slimpack %s scenario.json'; or state them beside it "
                               "(--set, --lengths)",
                               operands->items[0], model, command->name);
    }
    if (operands->count < command->min_operands) {
        return cli_usage_error(
            command, "'%s' needs %s%s", command->name, command->operands,
            strncmp(command->operands, "SCENARIO", 8) == 0 ? " ('-' is standard input)" : "");
    }
    if (command->max_operands >= 0 && operands->count > command->max_operands) {
        for (int i = 2; i + 2 < in->argc; i++) { // those before may be operands by now
            if (strcmp(in->argv[i], "--set") == 0 && strchr(in->argv[i + 1], '=') == NULL) {
                return cli_usage_error(
                    command, "expected --set KEY=VALUE, got '%s %s': --set %s=%s", in->argv[i + 1],
                    in->argv[i + 2], in->argv[i + 1], in->argv[i + 2]);
            }
        }
        return cli_usage_error(command, "'%s' has no use for the argument '%s'", command->name,
                               operands->items[command->max_operands]);
    }
    for (int i = 0; i < operands->count && !command->tells_repeated; i++) {
        for (int k = 0; k < i && strcmp(operands->items[i], "-") != 0; k++) {
            if (strcmp(operands->items[k], operands->items[i]) == 0) {
                return cli_usage_error(command, "the argument '%s' stands twice",
                                       operands->items[i]);
            }
        }
    }
    return CLI_PROCEED;
}

// ---- files of a command line ----

// A file, or the place of one that is not there yet: its folder and name.
typedef struct file_id {
    bool known;
    dev_t device;
    ino_t inode;
    char *name; // owned; NULL: the file is there
} file_id;

// Devices and pipes can be written by several. A link to nothing stands for what it leads to.
static file_id id_of(const char *path)
{
    struct stat found;
    if (stat(path, &found) == 0) {
        return (file_id){
            .known = S_ISREG(found.st_mode), .device = found.st_dev, .inode = found.st_ino};
    }
    char *folder = sp_link_target(path);
    char *slash = strrchr(folder, '/');
    char *name = sp_strdup(slash != NULL ? slash + 1 : folder);
    if (slash != NULL) {
        slash[1] = '\0';
    }
    bool known = stat(slash != NULL ? folder : ".", &found) == 0;
    sp_free(folder);
    return (file_id){.known = known, .device = found.st_dev, .inode = found.st_ino, .name = name};
}

static bool is_same_file(const char *a, const char *b)
{
    file_id x = id_of(a);
    file_id y = id_of(b);
    bool named = x.name != NULL && y.name != NULL;
    bool same = x.known && y.known && x.device == y.device && x.inode == y.inode &&
                (named ? strcmp(x.name, y.name) == 0 : x.name == y.name);
    sp_free(x.name);
    sp_free(y.name);
    return same;
}

bool cli_is_file(cli_kind kind)
{
    return kind == CLI_FILE || kind == CLI_OUTPUT || kind == CLI_KEPT || kind == CLI_FOLDER ||
           kind == CLI_FILES;
}

static bool is_output(const cli_option *option)
{
    return option->kind == CLI_OUTPUT || option->kind == CLI_KEPT || option->kind == CLI_NAMED;
}

// The texts of an option that may be given several times; none of another one.
static cli_list list_of(const cli_option *option, const void *args)
{
    cli_list list = {0};
    if (option->kind == CLI_FILES || option->kind == CLI_NAMED) {
        memcpy(&list, (const char *)args + option->at, sizeof list);
    }
    return list;
}

// Files of an option that is read or written once, or of one that writes several.
static int files_of(const cli_option *option, const void *args)
{
    return option->kind == CLI_NAMED                       ? list_of(option, args).count
           : option->kind == CLI_FILE || is_output(option) ? 1
                                                           : 0;
}

// NULL: none is named.
static const char *file_of(const cli_option *option, const void *args, int i)
{
    const char *path = NULL;
    if (option->kind != CLI_NAMED) {
        memcpy(&path, (const char *)args + option->at, sizeof path);
        return path;
    }
    path = strchr(list_of(option, args).items[i], '=');
    return path == NULL ? NULL : strcmp(path, "=-") == 0 ? SP_STANDARD_OUTPUT : path + 1;
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
    const cli_list list = list_of(option, args);
    for (int i = 0; option->kind == CLI_FILES && i < list.count; i++) {
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
                               "--%s cannot be '%s': it needs a %s with a name (such as ./-)",
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
    for (int i = 0; !command->operands_are_words && i < operands->count; i++) {
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
    readers += flag_of(command, args, "stream");
    for (const cli_option *option = command->options; option->name != NULL; option++) {
        const cli_list list = list_of(option, args);
        if (option->kind == CLI_FILE) {
            readers += count_stream(file_of(option, args, 0), STDIN_FILENO);
        }
        for (int i = 0; option->kind == CLI_FILES && i < list.count; i++) {
            readers += count_stream(list.items[i], STDIN_FILENO);
        }
    }
    return readers > 1
               ? cli_usage_error(command, "standard input can be read once, not %d times", readers)
               : CLI_PROCEED;
}

// One option alone can have standard output.
static int take_standard_output(const cli_command *command, const char *option, const char **stated)
{
    if (*stated != NULL) {
        return cli_usage_error(command, "--%s and --%s would both write to standard output", option,
                               *stated);
    }
    *stated = option;
    return CLI_PROCEED;
}

// Where an output is standard output, people are told things on standard error.
static int give_standard_output(void)
{
    int descriptor = dup(STDOUT_FILENO);
    if (descriptor < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        sp_error err = {0};
        sp_error_set(&err, SP_ERR_IO, "cannot use standard output");
        return cli_fail(&err);
    }
    sp_output_use_standard(descriptor);
    return CLI_PROCEED;
}

// ---- outputs ----

static int check_output(const cli_command *command, const void *args, const cli_operands *operands,
                        const cli_option *output, int file)
{
    static const char *const streams[] = {SP_STANDARD_OUTPUT, "/dev/stderr"};
    const char *path = file_of(output, args, file);
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
        int first = other == output ? file + 1 : is_output(other) && other < output ? INT_MAX : 0;
        for (int i = first; i < files_of(other, args); i++) {
            const char *name = file_of(other, args, i);
            // give_standard_output() tells of standard output.
            if (name != NULL && sp_descriptor_of(path) < 0 && is_same_file(path, name)) {
                return cli_usage_error(command, "--%s and --%s are the same file '%s'",
                                       output->name, other->name, path);
            }
        }
    }
    return CLI_PROCEED;
}

// `stated`: the option that has standard output, or has it now.
static int prepare_output(const cli_command *command, const void *args,
                          const cli_operands *operands, const cli_option *option, int file,
                          const char **stated)
{
    const char *path = file_of(option, args, file);
    int result = path != NULL ? check_output(command, args, operands, option, file) : CLI_PROCEED;
    bool standard =
        option->kind != CLI_KEPT && path != NULL && sp_descriptor_of(path) == STDOUT_FILENO;
    if (standard && result == CLI_PROCEED) {
        result = take_standard_output(command, option->name, stated);
        result = result == CLI_PROCEED ? give_standard_output() : result;
    }
    return result;
}

// Puts the names of the standard streams in the place of "-". CLI_PROCEED where no output of the
// command is another of its files, by device and inode, or by folder and name where neither is
// there, and no stream is used twice; else that is reported, and the exit status returned.
static int prepare_files(const cli_command *command, void *args, const cli_operands *operands)
{
    static const char *const alone[] = {"json", "csv", "markdown"};
    const char *stated = NULL; // the option that has standard output
    int result = name_streams(command, args, operands);
    for (size_t i = 0; i < sizeof alone / sizeof alone[0] && result == CLI_PROCEED; i++) {
        if (!command->prints_pages && flag_of(command, args, alone[i])) {
            result = take_standard_output(command, alone[i], &stated);
        }
    }
    if (result == CLI_PROCEED) {
        result = check_input(command, args, operands);
    }
    for (const cli_option *option = command->options; option->name != NULL; option++) {
        const int files = is_output(option) ? files_of(option, args) : 0;
        for (int i = 0; i < files && result == CLI_PROCEED; i++) {
            result = prepare_output(command, args, operands, option, i, &stated);
        }
    }
    return result;
}

// ---- scenarios ----

int64_t cli_tokens_in(const json_t *value)
{
    int64_t tokens = json_integer_value(value);
    if (json_is_string(value) && !sp_tokens_from_text(json_string_value(value), &tokens)) {
        tokens = 0;
    }
    return tokens > 0 && tokens <= SP_MAX_LENGTH_TOKENS ? tokens : 0;
}

// Rows that equal samples fill are so many tokens, which documents of other lengths are as well.
static void keep_tokens(json_t *workload)
{
    enum { MOST_ROWS = 1 << 30 };
    int64_t uniform = cli_tokens_in(json_object_get(workload, "uniform"));
    int64_t context = cli_tokens_in(json_object_get(workload, "context"));
    json_int_t rows = json_integer_value(json_object_get(workload, "samples_per_batch"));
    if (uniform > 0 && rows > 0 && rows < MOST_ROWS) {
        json_object_del(workload, "samples_per_batch");
        sp_json_put(workload, "tokens_per_batch", json_integer(rows * uniform));
    }
    if (uniform > 0 && context == 0) {
        sp_json_put(workload, "context", json_incref(json_object_get(workload, "uniform")));
    }
}

static bool states_batch(const cli_list *set)
{
    static const char *const keys[] = {"workload.samples_per_batch", "workload.tokens_per_batch",
                                       "schedule.microbatches"};
    bool states = false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        states = states || sp_scenario_stated(set->items, set->count, keys[i]) != NULL;
    }
    return states;
}

static sp_status take_lengths(json_t *document, const cli_list *set, const char *lengths,
                              sp_error *err)
{
    static const char *const others[] = {"workload.lengths", "workload.uniform"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (sp_scenario_stated(set->items, set->count, others[i]) != NULL) {
            return sp_error_set(err, SP_ERR_USAGE, "--lengths and --set %s exclude each other",
                                others[i]);
        }
    }
    json_t *workload = json_object_get(document, "workload");
    if (workload == NULL && json_is_object(document)) {
        workload = json_object();
        sp_json_put(document, "workload", workload);
    }
    if (!json_is_object(workload)) { // which the reader of the scenario tells
        return SP_OK;
    }
    if (json_object_get(workload, "lengths") == NULL && !states_batch(set)) {
        keep_tokens(workload);
    }
    json_object_del(workload, "uniform");
    json_object_del(workload, "column");
    json_t *name = json_string(lengths);
    if (name == NULL) {
        return sp_error_set(err, SP_ERR_USAGE, "--lengths: the name of the file is not UTF-8");
    }
    sp_json_put(workload, "lengths", name);
    return SP_OK;
}

sp_status cli_change_document(json_t *document, const cli_list *set, const char *lengths,
                              sp_error *err)
{
    const bool of_rows = sp_scenario_counts_rows(document) && !states_batch(set);
    sp_status status = lengths != NULL ? take_lengths(document, set, lengths, err) : SP_OK;
    for (int i = 0; status == SP_OK && i < set->count; i++) {
        status = sp_scenario_override(document, set->items[i], err);
    }
    if (of_rows && json_object_get(json_object_get(document, "workload"), "lengths") != NULL) {
        sp_scenario_fill_rows(document);
    }
    return status;
}

sp_status cli_read_document(const char *path, const cli_list *set, const char *lengths,
                            json_t **document, sp_error *err)
{
    sp_status status = cli_read_root(path, document, err);
    if (status == SP_OK) {
        status = sp_scenario_place(*document, path, err);
    }
    return status == SP_OK ? cli_change_document(*document, set, lengths, err) : status;
}

// ---- running ----

static void free_lists(const cli_command *command, void *args)
{
    for (const cli_option *option = command->options; option->name != NULL; option++) {
        if (option->kind == CLI_LIST || option->kind == CLI_FILES || option->kind == CLI_NAMED) {
            cli_list list;
            memcpy(&list, (const char *)args + option->at, sizeof list);
            sp_free((void *)list.items);
        }
    }
}

int cli_run(const cli_command *command, int argc, char **argv)
{
    void *args = sp_calloc(1, command->args_bytes);
    if (command->defaults != NULL) {
        memcpy(args, command->defaults, command->args_bytes);
    }
    parser in = {.command = command, .argc = argc, .argv = argv, .next = 1, .args = args};
    cli_operands operands = {.items = argv, .count = 0};
    cli_errors_begin(argc, argv);
    int result = parse_words(&in, &operands);
    if (result == CLI_PROCEED) {
        result = check_operands(&in, &operands);
    }
    if (result == CLI_PROCEED) {
        result = prepare_files(command, args, &operands);
    }
    if (result == CLI_PROCEED) {
        // A stream is for programs.
        bool page = command->prints_pages;
        const cli_common common = {.json = flag_of(command, args, "json"),
                                   .quiet = flag_of(command, args, "quiet"),
                                   .wide = flag_of(command, args, "wide") ||
                                           flag_of(command, args, "stream"),
                                   .csv = flag_of(command, args, "csv"),
                                   .markdown = !page && flag_of(command, args, "markdown")};
        cli_screen_begin(&common, page);
        warn_of_repeated(&in);
        warn_of_model(&in, &operands);
        result = command->run(args, &operands);
        cli_screen_end();
    }
    free_lists(command, args);
    sp_free(args);
    return result;
}

int cli_threads(int64_t jobs)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t threads = jobs > 0 ? jobs : cores;
    if (threads < 1) {
        return 1;
    }
    return threads < CLI_MOST_THREADS ? (int)threads : CLI_MOST_THREADS;
}
