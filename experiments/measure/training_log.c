// Logs are read line by line. A row of `forms` says what the lines of a framework look like; what
// steps come to is found once for all of them.
//
// The lines are those of
//     Megatron-LM      megatron/training/training.py, training_log(); utils.py, report_memory()
//     nanotron         src/nanotron/trainer.py, train_step_logs(); logging/base.py, log_memory()
//     torchtitan       torchtitan/components/metrics.py, MetricsProcessor.log()
//     NeMo             nemo/lightning/pytorch/callbacks/progress_printer.py, and the progress bar
//     of
//                      Lightning before it
//     Megatron-Bridge  src/megatron/bridge/training/utils/train_utils.py, training_log()
//     DeepSpeed        deepspeed/utils/timer.py, ThroughputTimer.stop()
//     Transformers     src/transformers/trainer_utils.py, speed_metrics()
#include "experiments/measure/training_log.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/files.h"
#include "sim/base/json.h"
#include "sim/base/order.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "solver/evaluate/evaluate.h"

enum {
    LINE = 16384, // bytes of a line that are looked at
    LANES = 4096, // of a file: ranks whose lines say so
    NO_RANK = -1,
    MOST_WARM_UP = 10,
};

static const double most_number = 1e18;
static const double deviations = 5.0;
static const double least_slow = 0.2;

// ---- numbers ----

typedef struct number {
    double value;
    double half; // of the last digit that is written
} number;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

// Reads digits, with commas between groups of three, as "%,d" writes them.
static const char *skip_digits(const char *at, double *value, int *count)
{
    while (is_digit(*at) ||
           (*at == ',' && *count > 0 && is_digit(at[1]) && is_digit(at[2]) && is_digit(at[3]))) {
        if (*at != ',') {
            *value = *value * 10.0 + (*at - '0');
            ++*count;
        }
        at++;
    }
    return at;
}

// K, M, B, T, P, E of nanotron's human_format(): thousands, millions and so on.
static double size_of_suffix(char c)
{
    static const char suffixes[] = "KMBTPE";
    const char *at = c != '\0' ? strchr(suffixes, c) : NULL;
    return at != NULL ? pow(1000.0, (double)(at - suffixes) + 1.0) : 1.0;
}

// Reads a number of 0 or more. NULL: there is none.
static const char *read_number(const char *at, bool suffix, number *n)
{
    int digits = 0;
    int decimals = 0;
    double value = 0.0;
    double fraction = 0.0;
    at = skip_digits(at, &value, &digits);
    if (*at == '.') {
        at++;
        while (is_digit(*at)) {
            fraction = fraction * 10.0 + (*at++ - '0');
            decimals++;
        }
    }
    if (digits + decimals == 0 || digits + decimals > 40) {
        return NULL;
    }
    int exponent = 0;
    if ((*at == 'e' || *at == 'E') &&
        (is_digit(at[1]) || ((at[1] == '+' || at[1] == '-') && is_digit(at[2])))) {
        char *end;
        long written = strtol(at + 1, &end, 10);
        exponent = written > 99 ? 99 : written < -99 ? -99 : (int)written;
        at = end;
    }
    double scale = pow(10.0, exponent) * (suffix ? size_of_suffix(*at) : 1.0);
    double step = pow(10.0, -decimals);
    n->value = (value + fraction * step) * scale;
    n->half = 0.5 * step * scale;
    return isfinite(n->value) && n->value <= most_number ? at : NULL;
}

// What stands behind the key, with spaces and quotes between; NULL: the line has no such key.
static const char *behind(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    if (at == NULL) {
        return NULL;
    }
    at += strlen(key);
    return at + strspn(at, " \t'\"");
}

// The number behind a key, with what follows on it (NULL: anything).
static bool find_number(const char *line, const char *key, bool suffix, const char *unit, number *n)
{
    const char *at = behind(line, key);
    at = at != NULL ? read_number(at, suffix, n) : NULL;
    return at != NULL && (unit == NULL || strncmp(at, unit, strlen(unit)) == 0);
}

// ---- forms ----

// A figure of a line: value = factor * number, of `inverse` ones factor / number.
typedef struct figure_key {
    const char *key;
    sp_logged figure;
    double factor;
    bool inverse;
} figure_key;

typedef struct memory_key {
    const char *key, *unit; // unit NULL: any
    sp_logged_memory_kind kind;
    double factor;
} memory_key;

enum { FIGURES = 8, MEMORIES = 4 };

typedef struct form_row {
    const char *name;
    const char *example;   // what stands in its lines, for messages
    const char *needs[2];  // texts that a line of a step has; NULL: no more
    const char *must_lack; // text of lines that only look so; NULL: none
    const char *number[2]; // keys of the step's number; NULL: steps have none
    bool suffix;           // numbers are written as 1.23K
    figure_key figures[FIGURES];
    // Lines of memory have this text, and so may lines of steps where it is NULL.
    const char *memory_needs;
    memory_key memories[MEMORIES];
    int64_t memory_rank; // whose memory it is where lines do not say
    unsigned companions; // forms whose lines may stand in the same run, as bits
} form_row;

#define BIT(form) (1u << (form))

static const form_row forms[SP_LOG_FORMS] = {
    [SP_LOG_MEGATRON] =
        {.name = "Megatron-LM",
         .example = "iteration 10/ 100 | ... elapsed time per iteration (ms): 812.4 |",
         .needs = {"elapsed time per iteration (ms):", NULL},
         .number = {"iteration ", NULL},
         .figures = {{"elapsed time per iteration (ms):", SP_LOGGED_MS, 1.0, false},
                     {"throughput per GPU (TFLOP/s/GPU):", SP_LOGGED_TFLOPS_PER_GPU, 1.0, false},
                     {"| TFLOPs:", SP_LOGGED_TFLOPS_PER_GPU, 1.0, false},
                     {"tokens per GPU (tokens/s/GPU):", SP_LOGGED_TOKENS_PER_GPU_S, 1.0, false},
                     {"global batch size:", SP_LOGGED_SAMPLES, 1.0, false}},
         .memory_needs = "memory (MB)",
         .memories = {{"| max allocated:", NULL, SP_LOGGED_ALLOCATED, SP_MIB},
                      {"| max reserved:", NULL, SP_LOGGED_RESERVED, SP_MIB}},
         .memory_rank = NO_RANK,
         .companions = BIT(SP_LOG_BRIDGE) | BIT(SP_LOG_DEEPSPEED)},
    [SP_LOG_NANOTRON] =
        {.name = "nanotron",
         .example = "iteration: 10 / 100 | ... elapsed_time_per_iteration_ms: 1.23K |",
         .needs = {"iteration: ", "time_per_iteration_ms: "},
         .number = {"iteration: ", NULL},
         .suffix = true,
         .figures = {{"time_per_iteration_ms: ", SP_LOGGED_MS, 1.0, false},
                     {"tokens_per_sec: ", SP_LOGGED_TOKENS_PER_S, 1.0, false},
                     {"tokens_per_sec_per_gpu: ", SP_LOGGED_TOKENS_PER_GPU_S, 1.0, false},
                     {"model_tflops_per_gpu: ", SP_LOGGED_TFLOPS_PER_GPU, 1.0, false}},
         .memory_needs = "Peak reserved:",
         .memories = {{"Peak allocated:", "MiB", SP_LOGGED_ALLOCATED, SP_MIB},
                      {"Peak allocated ", "MiB", SP_LOGGED_ALLOCATED, SP_MIB},
                      {"Peak reserved:", "MiB", SP_LOGGED_RESERVED, SP_MIB}},
         .memory_rank = 0},
    [SP_LOG_TORCHTITAN] =
        {.name = "torchtitan",
         .example = "step: 10  loss: 7.0  memory: 45.20GiB(47.54%)  tps: 5,812  mfu: 30.2%",
         .needs = {"step: ", "tps: "},
         .must_lack = "validate step: ",
         .number = {"step: ", NULL},
         .figures = {{"tps: ", SP_LOGGED_TOKENS_PER_GPU_S, 1.0, false},
                     {"tflops: ", SP_LOGGED_TFLOPS_PER_GPU, 1.0, false}},
         .memories = {{"memory: ", "GiB(", SP_LOGGED_RESERVED, SP_GIB}},
         .memory_rank = NO_RANK},
    [SP_LOG_NEMO] =
        {.name = "NeMo",
         .example = "global_step: 10 | ... train_step_timing in s: 12.39",
         .needs = {"train_step_timing in s", NULL},
         .number = {"global_step: ", "global_step="},
         .figures = {{"train_step_timing in s:", SP_LOGGED_MS, 1e3, false},
                     {"train_step_timing in s=", SP_LOGGED_MS, 1e3, false},
                     {"tokens_per_sec_per_gpu:", SP_LOGGED_TOKENS_PER_GPU_S, 1.0, false},
                     {"TFLOPS_per_GPU:", SP_LOGGED_TFLOPS_PER_GPU, 1.0, false},
                     {"global_batch_size:", SP_LOGGED_SAMPLES, 1.0, false}},
         // A multiple of 2 MiB in published logs (NVIDIA/dgxc-benchmarking): of segments.
         .memories = {{"peak_memory_usage:", NULL, SP_LOGGED_RESERVED, 1.0}},
         .memory_rank = NO_RANK},
    [SP_LOG_BRIDGE] = {.name = "Megatron-Bridge",
                       .example = "Step Time : 12.78s GPU utilization: 528.1MODEL_TFLOP/s/GPU",
                       .needs = {"Step Time :", "GPU utilization:"},
                       .figures = {{"Step Time :", SP_LOGGED_MS, 1e3, false},
                                   {"GPU utilization:", SP_LOGGED_TFLOPS_PER_GPU, 1.0, false}},
                       .memory_needs = "memory (GB)",
                       .memories = {{"mem-max-allocated-gigabytes:", NULL, SP_LOGGED_ALLOCATED,
                                     1e9},
                                    {"mem-max-reserved-gigabytes:", NULL, SP_LOGGED_RESERVED, 1e9}},
                       .memory_rank = NO_RANK,
                       .companions = BIT(SP_LOG_MEGATRON)},
    [SP_LOG_DEEPSPEED] =
        {.name = "DeepSpeed",
         .example = "global_step=10, ... CurrSamplesPerSec=61.35, ... MaxMemAllocated=19.52GB",
         .needs = {"CurrSamplesPerSec=", NULL},
         .number = {"global_step=", NULL},
         .figures = {{"CurrSamplesPerSec=", SP_LOGGED_SAMPLES_PER_S, 1.0, false}},
         .memories = {{"MaxMemAllocated=", "GB", SP_LOGGED_ALLOCATED, SP_GIB}},
         .memory_rank = NO_RANK,
         .companions = BIT(SP_LOG_MEGATRON) | BIT(SP_LOG_TRAINER)},
    [SP_LOG_TRAINER] =
        {.name = "Hugging Face Trainer",
         .example = "{'train_runtime': 331.7, ... 'train_steps_per_second': 0.181, ...}",
         .needs = {"'train_runtime':", "'train_steps_per_second':"},
         .figures = {{"'train_steps_per_second':", SP_LOGGED_MS, 1e3, true},
                     {"'train_tokens_per_second':", SP_LOGGED_TOKENS_PER_S, 1.0, false},
                     {"'train_samples_per_second':", SP_LOGGED_SAMPLES_PER_S, 1.0, false}},
         .memory_rank = NO_RANK,
         .companions = BIT(SP_LOG_DEEPSPEED)},
};

const char *const sp_log_form_names[] = {
    "Megatron-LM",     "nanotron",  "torchtitan",           "NeMo",
    "Megatron-Bridge", "DeepSpeed", "Hugging Face Trainer", NULL};

void sp_log_forms_text(char *text, size_t bytes)
{
    text[0] = '\0';
    for (int f = 0; f < SP_LOG_FORMS; f++) {
        sp_append(text, bytes, "%s'%s' (%s)", f > 0 ? ", " : "", forms[f].example, forms[f].name);
    }
}

// ---- lines ----

// Figures of one line; NAN: not said.
typedef struct step {
    int file;
    int64_t lane;   // rank, or NO_RANK
    int64_t part;   // how often its lane has restarted
    int64_t number; // negative: none
    sp_log_form form;
    double value[SP_LOGGED_FIGURES];
    double resolution; // of the first figure of its form
    bool dropped;
} step;

// Of one rank in one file.
typedef struct lane {
    int64_t rank;
    int64_t last; // number of the last step
    size_t index; // of the last step
    int64_t part;
} lane;

typedef struct reader {
    sp_training_log *log;
    int file;
    char line[LINE];
    size_t length;
    lane *lanes; // of this file
    size_t lane_count, lane_capacity;
    step *steps;
    size_t step_count, step_capacity;
    size_t of_form[SP_LOG_FORMS];
    int first_file[SP_LOG_FORMS]; // that has steps of the form
    bool several_ranks[SP_LOGGED_MEMORIES];
} reader;

// "[rank3]:" and "[default3]:" of torchrun, "[Rank 3] " of Megatron.
static int64_t rank_of(const char *line)
{
    static const char *const keys[] = {"[rank", "[default", "[Rank "};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        const char *at = strstr(line, keys[k]);
        at = at != NULL ? at + strlen(keys[k]) : NULL;
        if (at != NULL && is_digit(*at)) {
            char *end;
            long rank = strtol(at, &end, 10);
            return rank < 100000000 && (*end == ']' || *end == ' ') ? rank : NO_RANK;
        }
    }
    return NO_RANK;
}

// The local rank of torchrun is no rank of the run, on several nodes.
static bool says_rank(const char *line)
{
    return strstr(line, "[default") == NULL;
}

static bool has_step(const form_row *form, const char *line)
{
    for (int i = 0; i < 2 && form->needs[i] != NULL; i++) {
        if (strstr(line, form->needs[i]) == NULL) {
            return false;
        }
    }
    return form->must_lack == NULL || strstr(line, form->must_lack) == NULL;
}

// A step has a time or a rate above 0.
static bool read_figures(const form_row *form, const char *line, step *s)
{
    bool timed = false;
    for (int v = 0; v < SP_LOGGED_FIGURES; v++) {
        s->value[v] = (double)NAN;
    }
    for (int f = 0; f < FIGURES && form->figures[f].key != NULL; f++) {
        const figure_key *key = &form->figures[f];
        number n;
        if (!find_number(line, key->key, form->suffix, NULL, &n) || !(n.value > 0.0)) {
            continue;
        }
        s->value[key->figure] = key->inverse ? key->factor / n.value : key->factor * n.value;
        if (!timed && key->figure <= SP_LOGGED_SAMPLES_PER_S) {
            s->resolution = n.half / n.value;
            timed = true;
        }
    }
    return timed;
}

static int64_t number_of(const form_row *form, const char *line)
{
    for (int i = 0; i < 2 && form->number[i] != NULL; i++) {
        number n;
        if (find_number(line, form->number[i], false, NULL, &n)) {
            return sp_whole(n.value);
        }
    }
    return -1;
}

static lane *lane_of(reader *r, int64_t rank)
{
    for (size_t i = 0; i < r->lane_count; i++) {
        if (r->lanes[i].rank == rank) {
            return &r->lanes[i];
        }
    }
    if (r->lane_count == LANES) {
        return &r->lanes[0];
    }
    SP_RESERVE(r->lanes, r->lane_capacity, r->lane_count + 1);
    r->lanes[r->lane_count] = (lane){.rank = rank, .last = -1};
    return &r->lanes[r->lane_count++];
}

// A lane has the steps of one form, so that lines of two forms on one step do not look like a step
// that is told twice.
static void add_step(reader *r, sp_log_form form, step *s)
{
    lane *l = lane_of(r, s->lane * SP_LOG_FORMS + (int)form);
    bool again = s->number >= 0 && s->number == l->last;
    if (s->number >= 0 && s->number < l->last) {
        l->part++;
        r->log->files[r->file].restarts++;
    }
    l->last = s->number;
    s->part = l->part;
    if (again) {
        r->steps[l->index] = *s;
        return;
    }
    SP_RESERVE(r->steps, r->step_capacity, r->step_count + 1);
    l->index = r->step_count;
    r->steps[r->step_count++] = *s;
    if (r->of_form[form]++ == 0) {
        r->first_file[form] = r->file;
    }
}

static void note_memory(reader *r, const memory_key *key, double bytes, int64_t rank)
{
    sp_logged_memory *memory = &r->log->memory[key->kind];
    if (memory->known && memory->rank != rank) {
        r->several_ranks[key->kind] = true;
    }
    memory->rank = r->several_ranks[key->kind] ? NO_RANK : rank;
    memory->bytes = memory->known ? fmax(memory->bytes, bytes) : bytes;
    memory->known = true;
}

static bool read_memory(reader *r, const form_row *form, const char *line, int64_t rank)
{
    bool found = false;
    for (int m = 0; m < MEMORIES && form->memories[m].key != NULL; m++) {
        const memory_key *key = &form->memories[m];
        number n;
        if (find_number(line, key->key, false, key->unit, &n) && n.value > 0.0) {
            bool said = rank >= 0 && says_rank(line);
            note_memory(r, key, key->factor * n.value, said ? rank : form->memory_rank);
            found = true;
        }
    }
    return found;
}

static bool read_form(reader *r, sp_log_form f, const char *line)
{
    const form_row *form = &forms[f];
    step s = {.file = r->file, .lane = rank_of(line), .form = f};
    bool of_step = has_step(form, line) && read_figures(form, line, &s);
    if (of_step) {
        s.number = number_of(form, line);
        add_step(r, f, &s);
    }
    bool may_have_memory =
        form->memory_needs != NULL ? strstr(line, form->memory_needs) != NULL : of_step;
    return (may_have_memory && read_memory(r, form, line, s.lane)) || of_step;
}

// The job as Megatron-LM prints it (training/initialize.py; arguments with dots behind their names;
// theoretical_memory_usage.py), DeepSpeed's arguments, torchtitan (train.py) and the Trainer of
// transformers, whose parameters are those that are trained.
static void read_facts(reader *r, const char *line)
{
    static const struct {
        const char *key, *unit; // unit NULL: any
        sp_logged_fact fact;
        double factor;
    } keys[] = {{"world size: ", NULL, SP_LOGGED_WORLD, 1.0},
                {"world_size .", NULL, SP_LOGGED_WORLD, 1.0},
                {"tensor-model-parallel size: ", NULL, SP_LOGGED_TP, 1.0},
                {"tensor_model_parallel_size .", NULL, SP_LOGGED_TP, 1.0},
                {"context-parallel size: ", NULL, SP_LOGGED_CP, 1.0},
                {"context_parallel_size .", NULL, SP_LOGGED_CP, 1.0},
                {"pipeline-model-parallel size: ", NULL, SP_LOGGED_PP, 1.0},
                {"pipeline_model_parallel_size .", NULL, SP_LOGGED_PP, 1.0},
                {"data-parallel size: ", NULL, SP_LOGGED_DP, 1.0},
                {"data-parallel-size: ", NULL, SP_LOGGED_DP, 1.0},
                {"data_parallel_size .", NULL, SP_LOGGED_DP, 1.0},
                {"Number of parameters in billions: ", NULL, SP_LOGGED_PARAMETERS, 1e9},
                {"Number of trainable parameters = ", NULL, SP_LOGGED_PARAMETERS, 1.0},
                {" size: ", " total parameters", SP_LOGGED_PARAMETERS, 1.0}};
    if (strstr(line, "size") == NULL && strstr(line, "parameters") == NULL) {
        return;
    }
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        number n;
        const char *at = strstr(line, keys[k].key);
        // The end of a longer name, as of decoder_world_size, is none.
        if (at == NULL || (keys[k].key[0] != ' ' && at > line &&
                           (isalnum((unsigned char)at[-1]) || strchr("_-", at[-1]) != NULL))) {
            continue;
        }
        at += strlen(keys[k].key);
        at = read_number(at + strspn(at, ". "), false, &n);
        if (at != NULL && n.value > 0.0 &&
            (keys[k].unit == NULL || strncmp(at, keys[k].unit, strlen(keys[k].unit)) == 0)) {
            r->log->facts[keys[k].fact] = keys[k].factor * n.value;
        }
    }
}

static void end_line(reader *r)
{
    sp_log_file *file = &r->log->files[r->file];
    r->line[r->length] = '\0';
    bool known = false;
    for (int f = 0; f < SP_LOG_FORMS && r->length > 0; f++) {
        known = read_form(r, (sp_log_form)f, r->line) || known;
    }
    if (!known) {
        read_facts(r, r->line);
    }
    file->lines += r->length > 0;
    file->known += known;
    r->length = 0;
}

// Colours (ESC [ ... letter) are left out; a progress bar goes back to the begin of its line.
typedef enum colour { NO_COLOUR, ESCAPED, IN_COLOUR } colour;

static void take_byte(reader *r, colour *state, int c)
{
    if (c == '\n' || c == '\r') {
        end_line(r);
        *state = NO_COLOUR;
    } else if (*state == IN_COLOUR) {
        *state = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ? NO_COLOUR : IN_COLOUR;
    } else if (*state == ESCAPED) {
        *state = c == '[' ? IN_COLOUR : NO_COLOUR;
    } else if (c == 0x1b) {
        *state = ESCAPED;
    } else if (r->length + 1 < LINE) {
        r->line[r->length++] = c == '\0' ? ' ' : (char)c;
    }
}

static sp_status end_file(reader *r, sp_error *err)
{
    end_line(r);
    const sp_log_file *file = &r->log->files[r->file];
    r->file++;
    r->lane_count = 0;
    if (file->known > 0) {
        return SP_OK;
    }
    char known[SP_ERROR_TEXT];
    sp_log_forms_text(known, sizeof known);
    sp_status status = sp_error_set(err, SP_ERR_CONTENT, "%s: none of %zu lines is of a known form",
                                    file->path, file->lines);
    for (int f = 0; f < SP_LOG_FORMS; f++) {
        sp_error_set(err, SP_ERR_CONTENT, "known of %s: '%s'", forms[f].name, forms[f].example);
    }
    return status;
}

static sp_status read_file(reader *r, const char *path, sp_error *err)
{
    FILE *file;
    colour state = NO_COLOUR;
    SP_TRY(sp_input_open(path, &file, err));
    sp_status status = SP_OK;
    int c;
    while ((c = getc(file)) != EOF) {
        take_byte(r, &state, c);
    }
    if (ferror(file)) {
        status = sp_error_set(err, SP_ERR_IO, "%s: %s", path, strerror(errno));
    }
    fclose(file);
    return status == SP_OK ? end_file(r, err) : status;
}

// ---- the steps of all files ----

// The form that counts is the first one; others must be its companions.
static sp_status choose_form(reader *r, sp_error *err)
{
    sp_training_log *log = r->log;
    log->form = -1;
    for (int f = 0; f < SP_LOG_FORMS; f++) {
        if (r->of_form[f] > 0 && log->form < 0) {
            log->form = f;
        } else if (r->of_form[f] > 0 && (forms[log->form].companions & BIT(f)) == 0) {
            return sp_error_set(
                err, SP_ERR_CONTENT,
                "%s has lines of %s, %s of %s: logs of one run are of one framework",
                log->files[r->first_file[log->form]].path, forms[log->form].name,
                log->files[r->first_file[f]].path, forms[f].name);
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < r->step_count; i++) {
        if ((int)r->steps[i].form == log->form) {
            log->files[r->steps[i].file].steps++;
            r->steps[kept++] = r->steps[i];
        }
    }
    r->step_count = kept;
    log->steps = kept;
    return SP_OK;
}

static int in_order(const void *a, const void *b)
{
    const step *x = a;
    const step *y = b;
    return x->file != y->file ? SP_ORDER(x->file, y->file) : SP_ORDER_3(x, y, lane, part, number);
}

static bool same_part(const step *a, const step *b)
{
    return a->file == b->file && a->lane == b->lane && a->part == b->part;
}

static size_t warm_up_of(size_t steps, int skip)
{
    if (skip >= 0) {
        return (size_t)skip < steps ? (size_t)skip : steps;
    }
    size_t tenth = (steps + 9) / 10;
    size_t most = tenth < MOST_WARM_UP ? tenth : MOST_WARM_UP;
    return steps < 2 ? 0 : most;
}

// Steps without numbers stand in the order of their lines: the sort must not move them.
static void number_steps(reader *r)
{
    int64_t next = 0;
    for (size_t i = 0; i < r->step_count; i++) {
        if (r->steps[i].number < 0) {
            r->steps[i].number = next++;
        }
    }
}

static void drop_warm_up(reader *r, int skip)
{
    number_steps(r);
    if (r->step_count > 0) {
        qsort(r->steps, r->step_count, sizeof *r->steps, in_order);
    }
    for (size_t first = 0; first < r->step_count;) {
        size_t end = first;
        while (end < r->step_count && same_part(&r->steps[first], &r->steps[end])) {
            end++;
        }
        size_t count = warm_up_of(end - first, skip);
        for (size_t i = 0; i < count; i++) {
            r->steps[first + i].dropped = true;
        }
        r->log->warm_up += count;
        first = end;
    }
}

// A rate is a time for the same work.
static double time_of(const step *s, sp_logged basis)
{
    return basis == SP_LOGGED_MS ? s->value[basis] : 1.0 / s->value[basis];
}

static double median_of(const double *sorted, size_t count)
{
    return 0.5 * (sorted[(count - 1) / 2] + sorted[count / 2]);
}

static size_t collect(const reader *r, sp_logged figure, double *values)
{
    size_t count = 0;
    for (size_t i = 0; i < r->step_count; i++) {
        double value = r->steps[i].value[figure];
        if (!r->steps[i].dropped && isfinite(value)) {
            values[count++] = value;
        }
    }
    qsort(values, count, sizeof *values, sp_ascending_doubles);
    return count;
}

// From how long on a step is an outlier.
static double limit_of(const reader *r, double *values, double *median)
{
    size_t count = 0;
    for (size_t i = 0; i < r->step_count; i++) {
        if (!r->steps[i].dropped) {
            values[count++] = time_of(&r->steps[i], r->log->basis);
        }
    }
    if (count == 0) {
        return HUGE_VAL;
    }
    qsort(values, count, sizeof *values, sp_ascending_doubles);
    *median = median_of(values, count);
    for (size_t i = 0; i < count; i++) {
        values[i] = fabs(values[i] - *median);
    }
    qsort(values, count, sizeof *values, sp_ascending_doubles);
    return *median + fmax(least_slow * *median, deviations * 1.4826 * median_of(values, count));
}

static void drop_slow(reader *r, double *values)
{
    size_t dropped;
    double median = 0.0;
    double least = HUGE_VAL;
    do {
        double limit = limit_of(r, values, &median);
        dropped = 0;
        for (size_t i = 0; i < r->step_count; i++) {
            double time = time_of(&r->steps[i], r->log->basis);
            if (!r->steps[i].dropped && time > limit) {
                r->steps[i].dropped = true;
                least = fmin(least, time);
                dropped++;
            }
        }
        r->log->slow += dropped;
    } while (dropped > 0);
    r->log->slow_from = isfinite(least) ? least / median : (double)NAN;
}

static void sum_up(reader *r, double *values)
{
    sp_training_log *log = r->log;
    log->kept = log->steps - log->warm_up - log->slow;
    log->resolution = HUGE_VAL;
    for (size_t i = 0; i < r->step_count; i++) {
        if (!r->steps[i].dropped) {
            log->resolution = fmin(log->resolution, r->steps[i].resolution);
        }
    }
    for (int f = 0; f < SP_LOGGED_FIGURES; f++) {
        sp_logged_figure *figure = &log->figures[f];
        size_t count = collect(r, (sp_logged)f, values);
        *figure = (sp_logged_figure){.steps = count,
                                     .median = (double)NAN,
                                     .mean = count > 0 ? 0.0 : (double)NAN,
                                     .p10 = (double)NAN,
                                     .p90 = (double)NAN};
        for (size_t i = 0; i < count; i++) {
            figure->mean += values[i] / (double)count;
        }
        if (count > 0) {
            figure->median = median_of(values, count);
            figure->p10 = values[(count - 1) / 10];
            figure->p90 = values[count - 1 - (count - 1) / 10];
        }
    }
}

// By the first of these that all steps say.
static sp_logged basis_of(const reader *r)
{
    static const sp_logged order[] = {SP_LOGGED_MS, SP_LOGGED_TOKENS_PER_GPU_S,
                                      SP_LOGGED_TOKENS_PER_S, SP_LOGGED_SAMPLES_PER_S};
    for (size_t o = 0; o < sizeof order / sizeof order[0]; o++) {
        bool all = true;
        for (size_t i = 0; i < r->step_count && all; i++) {
            all = isfinite(r->steps[i].value[order[o]]);
        }
        if (all) {
            return order[o];
        }
    }
    return SP_LOGGED_MS;
}

static void without_time(reader *r)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->step_count; i++) {
        if (isfinite(r->steps[i].value[r->log->basis])) {
            r->steps[kept++] = r->steps[i];
        }
    }
    r->step_count = r->log->steps = kept;
}

static sp_status finish(reader *r, int skip, sp_error *err)
{
    sp_training_log *log = r->log;
    SP_TRY(choose_form(r, err));
    log->basis = basis_of(r);
    log->slow_from = (double)NAN;
    log->whole_run = log->form == SP_LOG_TRAINER;
    without_time(r);
    drop_warm_up(r, log->whole_run && skip < 0 ? 0 : skip);
    double *values = sp_malloc((r->step_count + 1) * sizeof *values);
    drop_slow(r, values);
    sum_up(r, values);
    sp_free(values);
    return log->steps > 0 && log->kept == 0
               ? sp_error_set(err, SP_ERR_CONTENT,
                              "%s: %zu logged step%s, of which the first %zu %s left out: none is "
                              "left",
                              log->files[0].path, log->steps, sp_plural((int64_t)log->steps),
                              log->warm_up, log->warm_up == 1 ? "is" : "are")
               : SP_OK;
}

static void begin(reader *r, sp_training_log *log, int count)
{
    *log = (sp_training_log){.form = -1};
    log->files = sp_calloc((size_t)count, sizeof *log->files);
    log->file_count = count;
    for (int m = 0; m < SP_LOGGED_MEMORIES; m++) {
        log->memory[m].rank = NO_RANK;
    }
    for (int f = 0; f < SP_LOGGED_FACTS; f++) {
        log->facts[f] = (double)NAN;
    }
    r->log = log;
}

static sp_status end(reader *r, int skip, sp_status status, sp_error *err)
{
    status = status == SP_OK ? finish(r, skip, err) : status;
    if (status != SP_OK) {
        sp_training_log_fini(r->log);
    }
    sp_free(r->lanes);
    sp_free(r->steps);
    sp_free(r);
    return status;
}

sp_status sp_training_log_read(const char *const *paths, int count, int skip, sp_training_log *log,
                               sp_error *err)
{
    if (count < 1 || count > SP_LOG_FILES) {
        *log = (sp_training_log){.form = -1};
        return sp_error_set(err, SP_ERR_USAGE, "--log takes 1 to %d files", (int)SP_LOG_FILES);
    }
    reader *r = sp_calloc(1, sizeof *r);
    begin(r, log, count);
    sp_status status = SP_OK;
    for (int i = 0; i < count; i++) {
        log->files[i].path = paths[i];
    }
    for (int i = 0; status == SP_OK && i < count; i++) {
        status = read_file(r, paths[i], err);
    }
    return end(r, skip, status, err);
}

sp_status sp_training_log_from_text(const char *text, size_t bytes, const char *source, int skip,
                                    sp_training_log *log, sp_error *err)
{
    reader *r = sp_calloc(1, sizeof *r);
    colour state = NO_COLOUR;
    begin(r, log, 1);
    log->files[0].path = source;
    for (size_t i = 0; i < bytes; i++) {
        take_byte(r, &state, (unsigned char)text[i]);
    }
    return end(r, skip, end_file(r, err), err);
}

void sp_training_log_fini(sp_training_log *log)
{
    sp_free(log->files);
    *log = (sp_training_log){.form = -1};
}

double sp_training_log_ms(const sp_training_log *log, double tokens, double samples, int64_t gpus)
{
    double median = log->figures[log->basis].median;
    switch (log->basis) {
    case SP_LOGGED_MS:
        return median;
    case SP_LOGGED_TOKENS_PER_S:
        return 1e3 * tokens / median;
    case SP_LOGGED_TOKENS_PER_GPU_S:
        return 1e3 * tokens / (median * (double)gpus);
    case SP_LOGGED_SAMPLES_PER_S:
        return 1e3 * samples / median;
    case SP_LOGGED_TFLOPS_PER_GPU:
    case SP_LOGGED_SAMPLES:
    case SP_LOGGED_FIGURES:
        break;
    }
    SP_UNREACHABLE("a basis of steps");
}

// ---- a table of one row ----

void sp_mean_step(const sp_batches *batches, double *tokens, double *samples)
{
    *tokens = *samples = 0.0;
    for (int b = 0; b < batches->count; b++) {
        *tokens += (double)batches->batch[b].total_tokens / batches->count;
        *samples += (double)batches->batch[b].count / batches->count;
    }
}

sp_status sp_training_log_check(const sp_training_log *log, const sp_scenario *scenario,
                                sp_error *err)
{
    return scenario->uniform && log->form >= 0 && log->basis != SP_LOGGED_MS
               ? sp_error_in(err, SP_ERR_CONTENT, scenario->source, "uniform_costs",
                             "a log of %s says rates, which need a model",
                             sp_log_form_names[log->form])
               : SP_OK;
}

static sp_status logged_ms(const sp_training_log *log, const sp_scenario *scenario, double *ms,
                           sp_error *err)
{
    sp_batches batches = {0};
    double tokens, samples;
    if (log->form < 0) {
        return sp_error_set(err, SP_ERR_CONTENT, "%s: no line is of a step", log->files[0].path);
    }
    SP_TRY(sp_training_log_check(log, scenario, err));
    sp_status status = sp_evaluate_batches(scenario, &batches, err);
    if (status == SP_OK) {
        sp_mean_step(&batches, &tokens, &samples);
        *ms = sp_training_log_ms(log, tokens, samples, sp_layout_ranks(&scenario->layout));
    }
    sp_batches_fini(&batches);
    return status;
}

static sp_status table_of(json_t *scenario, const char *scenario_path, double ms,
                          const char *const *overrides, int override_count,
                          sp_measurements *measurements, sp_error *err)
{
    char csv[64];
    int bytes = snprintf(csv, sizeof csv, "iteration_ms\n%.9g\n", ms);
    json_t *measured = sp_json_object(SP_JSON("column", "iteration_ms"),
                                      SP_JSON("is", sp_measured_names[SP_MEASURED_ITERATION_MS]));
    json_t *map = sp_json_object(SP_JSON("measured", measured), SP_JSON("base", scenario),
                                 SP_JSON("columns", json_object()));
    return sp_measurements_from_text(csv, (size_t)bytes, scenario_path, map, scenario_path,
                                     overrides, override_count, measurements, err);
}

sp_status sp_measurements_of_log(const char *scenario_path, const char *const *logs, int log_count,
                                 const char *const *overrides, int override_count,
                                 sp_measurements *measurements, sp_error *err)
{
    json_t *document = NULL;
    json_t *placed = NULL;
    sp_training_log log = {.form = -1};
    sp_scenario scenario = {0};
    double ms = 0.0;
    *measurements = (sp_measurements){0};
    sp_status status = sp_training_log_read(logs, log_count, -1, &log, err);
    if (status == SP_OK) {
        status = sp_json_read_file(scenario_path, 0, &document, err);
    }
    if (status == SP_OK) {
        placed = json_deep_copy(document);
        status = sp_scenario_place(placed, scenario_path, err);
    }
    if (status == SP_OK) {
        status =
            sp_scenario_from_json(placed, scenario_path, overrides, override_count, &scenario, err);
    }
    if (status == SP_OK) {
        status = logged_ms(&log, &scenario, &ms, err);
    }
    if (status == SP_OK) {
        status = table_of(json_incref(document), scenario_path, ms, overrides, override_count,
                          measurements, err);
    }
    sp_scenario_fini(&scenario);
    sp_training_log_fini(&log);
    json_decref(placed);
    json_decref(document);
    return status;
}
