// Names of measured columns, as logs write them.
#include "experiments/measure/measurement_map.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

const char *const sp_measured_names[] = {
    [SP_MEASURED_ITERATION_MS] = "iteration_ms",
    [SP_MEASURED_TOKENS_PER_S] = "tokens_per_s",
    [SP_MEASURED_TOKENS_PER_GPU_S] = "tokens_per_gpu_s",
    [SP_MEASURED_ALLOCATOR_PEAK_BYTES] = "peak_memory_allocator_bytes",
    [SP_MEASURED_FIRST_RANK_RESERVED_BYTES] = "peak_memory_first_rank_reserved_bytes",
    [SP_MEASURED_LAST_RANK_BYTES] = "peak_memory_last_rank_bytes",
    [SP_MEASURED_BUBBLE_RATE] = "bubble_ratio",
    [SP_MEASURED_SPEEDUP] = "speedup",
    [SP_MEASURED_FITS] = "fits",
    [SP_MEASURED_FITS + 1] = NULL,
};

void sp_plain_name(const char *text, char plain[SP_JSON_PATH])
{
    size_t used = 0;
    char last = ' ';
    for (; *text != '\0' && used + 3 < SP_JSON_PATH; text++) {
        bool word = isalnum((unsigned char)*text) != 0 || (unsigned char)*text >= 0x80;
        bool begins = islower((unsigned char)last) && isupper((unsigned char)*text) &&
                      islower((unsigned char)text[1]);
        last = *text;
        if (*text == '/' && used > 0 && used + 6 < SP_JSON_PATH) {
            used -= plain[used - 1] == '_';
            memcpy(plain + used, "_per_", 5);
            used += 5;
        } else if (word) {
            if (begins) {
                plain[used++] = '_';
            }
            plain[used++] = (char)tolower((unsigned char)*text);
        } else if (used > 0 && plain[used - 1] != '_') {
            plain[used++] = '_';
        }
    }
    plain[used - (used > 0 && plain[used - 1] == '_')] = '\0';
}

// The words that logs make such names of: "Step time (ms)", tokens_per_sec_per_gpu.
typedef enum word_kind {
    WORD_STEP,
    WORD_STEPS,
    WORD_TOKENS,
    WORD_SAMPLES,
    WORD_TIME,
    WORD_RATE,
    WORD_FLOPS,
    WORD_MEMORY,
    WORD_MOST, // which memory, of what
    WORD_GPU,
    WORD_PER,
    WORD_FILLER,
    WORD_SECONDS, // the units
    WORD_BYTES,
    WORD_KINDS,
} word_kind;

static const struct {
    const char *words;
    word_kind kind;
    double size; // of a unit in seconds or bytes, of a multiple in tokens
} name_words[] = {
    {"step iteration iter it", WORD_STEP, 1.0},
    {"steps iterations iters its", WORD_STEPS, 1.0},
    {"token tokens tok toks", WORD_TOKENS, 1.0},
    {"ktoken ktokens ktok", WORD_TOKENS, 1e3},
    {"mtoken mtokens mtok", WORD_TOKENS, 1e6},
    {"sample samples sequence sequences seq seqs", WORD_SAMPLES, 1.0},
    {"time elapsed duration latency", WORD_TIME, 1.0},
    {"throughput tps", WORD_RATE, 1.0},
    {"mfu hfu flop flops gflop gflops tflop tflops pflop pflops", WORD_FLOPS, 1.0},
    {"memory mem vram", WORD_MEMORY, 1.0},
    {"max peak allocated reserved allocator usage used", WORD_MOST, 1.0},
    {"gpu device rank", WORD_GPU, 1.0},
    {"per", WORD_PER, 1.0},
    {"avg average mean median train training wall model hardware tgs", WORD_FILLER, 1.0},
    {"ns nsec", WORD_SECONDS, 1e-9},
    {"us usec microseconds", WORD_SECONDS, 1e-6},
    {"ms msec millis milliseconds", WORD_SECONDS, 1e-3},
    {"s sec secs second seconds", WORD_SECONDS, 1.0},
    {"min mins minute minutes", WORD_SECONDS, 60.0},
    {"h hr hour hours", WORD_SECONDS, 3600.0},
    {"b byte bytes", WORD_BYTES, 1.0},
    {"kb", WORD_BYTES, 1e3},
    {"kib", WORD_BYTES, 0x1p10},
    {"mb", WORD_BYTES, 1e6},
    {"mib", WORD_BYTES, 0x1p20},
    {"gb", WORD_BYTES, 1e9},
    {"gib", WORD_BYTES, 0x1p30},
};

// The words of a name by kind; each kind stands once at most.
typedef struct name_parts {
    int place[WORD_KINDS]; // from 1; 0: no such word
    double size[WORD_KINDS];
    int count;
} name_parts;

static bool add_word(name_parts *parts, const char *word)
{
    for (size_t i = 0; i < sizeof name_words / sizeof name_words[0]; i++) {
        word_kind kind = name_words[i].kind;
        if (sp_names_hold(name_words[i].words, word)) {
            bool again = parts->place[kind] != 0 && kind != WORD_PER && kind != WORD_FILLER &&
                         kind != WORD_MOST && kind != WORD_TIME;
            parts->place[kind] = ++parts->count;
            parts->size[kind] = name_words[i].size;
            return !again;
        }
    }
    return false;
}

// False where a word is none of these.
static bool split_name(const char *plain, name_parts *parts)
{
    bool known = plain[0] != '\0';
    *parts = (name_parts){.count = 0};
    while (known && *plain != '\0') {
        char word[SP_JSON_PATH];
        size_t bytes = strcspn(plain, "_");
        snprintf(word, sizeof word, "%.*s", (int)bytes, plain);
        known = add_word(parts, word);
        plain += bytes + (plain[bytes] == '_');
    }
    return known;
}

static void hint(sp_measured_name *name, const char *text)
{
    snprintf(name->hint, sizeof name->hint, "%s", text);
}

// `factor` is from the cell, or from one over it, to the kind's unit.
static void take_unit(sp_measured_name *name, sp_measured kind, double factor, bool inverse,
                      bool read)
{
    name->kind = kind;
    name->scale = factor;
    if (inverse) {
        snprintf(name->hint, sizeof name->hint, "expected %s: %.10g divided by the cells",
                 sp_measured_names[kind], factor);
    } else if (!read) {
        snprintf(name->hint, sizeof name->hint, "expected %s: the cells %s by %.10g",
                 sp_measured_names[kind], factor < 1.0 ? "divided" : "multiplied",
                 factor < 1.0 ? 1.0 / factor : factor);
    }
}

// The memories that are measured, with their units behind them.
static bool read_memory(const char *plain, sp_measured_name *name)
{
    for (int k = 0; sp_measured_names[k] != NULL; k++) {
        size_t stem = strlen(sp_measured_names[k]) - strlen("_bytes");
        name_parts parts;
        if (!sp_measured_is_memory((sp_measured)k) ||
            strncmp(plain, sp_measured_names[k], stem) != 0 ||
            (plain[stem] != '\0' && plain[stem] != '_')) {
            continue;
        }
        bool unit = plain[stem] == '_' && split_name(plain + stem + 1, &parts) &&
                    parts.count == 1 && parts.place[WORD_BYTES] != 0;
        if (!unit && plain[stem] == '_') {
            return false;
        }
        double bytes = unit ? parts.size[WORD_BYTES] : 1.0;
        take_unit(name, (sp_measured)k, bytes, false, bytes == 1.0 || bytes == 0x1p30);
        if (!unit) {
            snprintf(name->hint, sizeof name->hint, "its unit is not said: call it %.*s_gib or %s",
                     (int)stem, sp_measured_names[k], sp_measured_names[k]);
        }
        return true;
    }
    return false;
}

static void read_throughput(const name_parts *p, sp_measured_name *name)
{
    // Milliseconds per token.
    bool inverse = p->place[WORD_TIME] != 0 || (p->place[WORD_SECONDS] < p->place[WORD_PER] &&
                                                p->place[WORD_PER] < p->place[WORD_TOKENS]);
    double factor = inverse ? 1.0 / p->size[WORD_SECONDS] * p->size[WORD_TOKENS]
                            : p->size[WORD_TOKENS] / p->size[WORD_SECONDS];
    take_unit(name,
              p->place[WORD_GPU] != 0 ? SP_MEASURED_TOKENS_PER_GPU_S : SP_MEASURED_TOKENS_PER_S,
              factor, inverse, factor == 1.0);
}

static void read_time(const name_parts *p, sp_measured_name *name)
{
    int step = p->place[WORD_STEP] + p->place[WORD_STEPS];
    bool per = step < p->place[WORD_PER] && p->place[WORD_PER] < p->place[WORD_SECONDS];
    double unit = p->size[WORD_SECONDS];
    bool inverse = per && p->place[WORD_TIME] == 0;
    // ms are read, and s as other logs have them.
    take_unit(name, SP_MEASURED_ITERATION_MS, inverse ? 1e3 * unit : unit / 1e-3, inverse,
              unit == 1e-3 || unit == 1.0);
}

bool sp_measured_name_read(const char *plain, sp_measured_name *name)
{
    name_parts p;
    *name = (sp_measured_name){.scale = 1.0};
    for (int k = 0; sp_measured_names[k] != NULL; k++) {
        if (strcmp(sp_measured_names[k], plain) == 0) {
            name->kind = (sp_measured)k;
            return true;
        }
    }
    if (strcmp(plain, "tgs") == 0) {
        name->kind = SP_MEASURED_TOKENS_PER_GPU_S;
        return true;
    }
    if (read_memory(plain, name)) {
        return true;
    }
    if (!split_name(plain, &p)) {
        return false;
    }
    bool step = p.place[WORD_STEP] != 0;
    bool unit = p.place[WORD_SECONDS] != 0;
    bool most = p.place[WORD_MOST] != 0;
    if (p.place[WORD_MEMORY] != 0 || (most && p.place[WORD_BYTES] != 0)) {
        hint(name, "it does not say which memory: peak_memory_allocator_gib is "
                   "max_memory_allocated of the largest rank, peak_memory_last_rank_gib of the "
                   "last one, peak_memory_first_rank_reserved_gib is max_memory_reserved of rank "
                   "0; cluster.memory_gib is what a GPU has");
    } else if (p.place[WORD_FLOPS] != 0 && !most) {
        hint(name, "the work is counted in several ways: expected what it was computed from, "
                   "iteration_ms, tokens_per_s or tokens_per_gpu_s");
    } else if (p.place[WORD_TOKENS] != 0 && unit && !step && !most) {
        read_throughput(&p, name);
    } else if (p.place[WORD_RATE] != 0 || (p.place[WORD_SAMPLES] != 0 && unit)) {
        hint(name, "expected tokens a second, of all GPUs (tokens_per_s) or of one "
                   "(tokens_per_gpu_s)");
    } else if (unit && !most && (step || (p.place[WORD_STEPS] != 0 && p.place[WORD_PER] != 0))) {
        read_time(&p, name);
    } else if (p.place[WORD_STEPS] != 0 && unit) {
        hint(name, "is it the time of a step, or steps of a time? the first is step_time_ms or "
                   "step_time_s");
    } else if (p.place[WORD_TIME] != 0 && unit) {
        hint(name, "is it of one step? then call it step_time_ms or step_time_s");
    } else if (p.place[WORD_TIME] != 0) {
        hint(name, "its unit is not said: call it step_time_ms or step_time_s");
    } else {
        return false;
    }
    return true;
}
