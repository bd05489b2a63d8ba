// Launch scripts: as much of the shell as stands in them. Variables, arrays, defaults and whole
// numbers are worked out; commands are not run, so that what they would print is not known.
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/frameworks/frameworks.h"
#include "experiments/frameworks/private.h"
#include "sim/base/alloc.h"

enum {
    MOST_GLYPHS = 1 << 20, // of one text, and of all that expansions made
    MOST_NESTED = 32,
    MOST_WORDS = 1 << 16,
    NAME = 128,
};

// A character with where it stood and how: quoted, at the end of an element of an array, or part of
// an expansion whose value nobody knows.
enum { QUOTED = 1, BREAK = 2, UNKNOWN = 4, EXPANDED = 8 };

typedef struct glyph {
    int line;
    char c;
    unsigned char flags;
} glyph;

typedef struct glyphs {
    glyph *items;
    size_t count, capacity;
} glyphs;

typedef struct variable {
    char *name;
    glyphs value;
    int line;         // of the assignment
    bool conditional; // it stands under a condition
    bool undecided;   // several do, and differ
    bool told;
} variable;

typedef struct field {
    char *text;
    int line;
    bool unknown;
} field;

typedef struct parser {
    const char *source, *text;
    size_t bytes, at;
    int line, last_line; // of the file; a text that variables made has no lines of its own
    int conditions;      // how many are open
    bool chained;        // behind && or ||
    int nested;
    size_t made;
    variable *variables;
    size_t variable_count, variable_capacity;
    field *fields; // of the command at hand
    size_t field_count, field_capacity;
    framework_commands *out;
    framework_entries batch; // of #SBATCH lines
    sp_error *err;
    bool failed;
    sp_status status;
} parser;

static void parse(parser *p);
static void expand(parser *p, bool quoted, glyphs *out);

void framework_commands_free(framework_commands *commands)
{
    for (size_t i = 0; i < commands->count; i++) {
        framework_entries_free(&commands->items[i]);
    }
    sp_free(commands->items);
    json_decref(commands->notes);
    *commands = (framework_commands){0};
}

// ---- texts ----

static void fail(parser *p, sp_status status, int line, const char *what)
{
    if (!p->failed) {
        sp_error_at(p->err, status, p->source, line, 0, "%s", what);
        p->failed = true;
        p->status = status;
        p->at = p->bytes;
    }
}

static void push(parser *p, glyphs *to, glyph added)
{
    if (p->failed) {
        return;
    }
    if (++p->made > MOST_GLYPHS) {
        fail(p, SP_ERR_LIMIT, p->line, "variables make more than a million characters of it");
        return;
    }
    void *items = to->items;
    sp_reserve(&items, &to->capacity, to->count + 1, sizeof *to->items);
    to->items = items;
    to->items[to->count++] = added;
}

static void push_char(parser *p, glyphs *to, char c, unsigned char flags)
{
    push(p, to, (glyph){.line = p->line, .c = c, .flags = flags});
}

static void glyphs_free(glyphs *of)
{
    sp_free(of->items);
    *of = (glyphs){0};
}

// What an expansion stands for is not known: its own text, marked.
static void push_unknown(parser *p, glyphs *to, size_t from)
{
    for (size_t i = from; i < p->at && i < p->bytes; i++) {
        push_char(p, to, p->text[i] == '\n' ? ' ' : p->text[i], UNKNOWN | QUOTED);
    }
}

// Puts a value in the place of an expansion; within quotes blanks do not part words.
static void push_value(parser *p, glyphs *to, const glyphs *value, bool quoted)
{
    size_t count = value->count; // a text may be added to itself
    for (size_t i = 0; i < count && !p->failed; i++) {
        glyph g = value->items[i];
        unsigned char kept = g.flags & (BREAK | UNKNOWN);
        g.flags = (unsigned char)(kept | EXPANDED | (quoted || (g.flags & UNKNOWN) ? QUOTED : 0));
        push(p, to, g);
    }
}

static char *text_of(const glyphs *from, size_t begin, size_t end, bool *unknown)
{
    char *text = sp_malloc(end - begin + 1);
    size_t length = 0;
    for (size_t i = begin; i < end; i++) {
        *unknown = *unknown || (from->items[i].flags & UNKNOWN) != 0;
        if (!(from->items[i].flags & BREAK)) {
            text[length++] = from->items[i].c;
        }
    }
    text[length] = '\0';
    return text;
}

// ---- variables ----

static variable *find_variable(parser *p, const char *name)
{
    for (size_t i = 0; i < p->variable_count; i++) {
        if (strcmp(p->variables[i].name, name) == 0) {
            return &p->variables[i];
        }
    }
    return NULL;
}

static variable *make_variable(parser *p, const char *name)
{
    variable *found = find_variable(p, name);
    if (found == NULL) {
        void *items = p->variables;
        sp_reserve(&items, &p->variable_capacity, p->variable_count + 1, sizeof *p->variables);
        p->variables = items;
        found = &p->variables[p->variable_count++];
        *found = (variable){.name = sp_strdup(name)};
    }
    return found;
}

static bool same_glyphs(const glyphs *a, const glyphs *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++) {
        same = a->items[i].c == b->items[i].c &&
               (a->items[i].flags & (BREAK | UNKNOWN)) == (b->items[i].flags & (BREAK | UNKNOWN));
    }
    return same;
}

// Takes over the value. Under a condition another value than the one before leaves open which.
static void assign(parser *p, const char *name, glyphs *value, bool adds, int line)
{
    bool conditional = p->conditions > 0 || p->chained;
    variable *before = find_variable(p, name);
    if (adds && before != NULL) {
        size_t added = value->count;
        before->conditional = before->conditional || conditional;
        before->line = conditional ? line : before->line;
        for (size_t i = 0; i < added && !p->failed; i++) {
            push(p, &before->value, value->items[i]);
        }
        glyphs_free(value);
        return;
    }
    if (before != NULL && conditional && !same_glyphs(&before->value, value)) {
        before->undecided = true;
        glyphs_free(value);
        return;
    }
    variable *to = before != NULL ? before : make_variable(p, name);
    glyphs_free(&to->value);
    to->value = *value;
    to->line = line;
    to->undecided = false;
    to->conditional = conditional;
    *value = (glyphs){0};
}

static void use_variable(parser *p, variable *from, size_t began, bool quoted, glyphs *out)
{
    if (from->undecided) {
        push_unknown(p, out, began);
        return;
    }
    if (from->conditional && !from->told) {
        char note[256];
        snprintf(note, sizeof note, "%s:%d: %s is taken although it stands under a condition",
                 p->source, from->line, from->name);
        json_array_append_new(p->out->notes, json_string(note));
        from->told = true;
    }
    push_value(p, out, &from->value, quoted);
}

// ---- variables that Slurm sets ----

long framework_slurm_gpus(const char *text)
{
    size_t begin = strcspn(text, ",");
    char *end = NULL;
    while (begin > 0 && text[begin - 1] != ':') {
        begin--;
    }
    const long gpus = isdigit((unsigned char)text[begin]) ? strtol(text + begin, &end, 10) : 0;
    return gpus >= 1 && gpus <= INT_MAX && (*end == '\0' || *end == ',') ? gpus : 0;
}

// The number that the last #SBATCH line with one of the options states; 0: none does.
static long batch_number(const parser *p, const char *options)
{
    long number = 0;
    for (size_t i = 0; i < p->batch.count; i++) {
        const framework_entry *entry = &p->batch.items[i];
        const char *text = json_string_value(entry->value);
        if (sp_names_hold(options, entry->name)) {
            number = text != NULL && entry->unknown == NULL ? framework_slurm_gpus(text) : 0;
        }
    }
    return number;
}

// A variable of the script, or one that Slurm sets as #SBATCH lines say (sbatch's manual, "Output
// environment variables"); NULL: its value is not known.
static variable *known_variable(parser *p, const char *name)
{
    static const char *const rows[][2] = {
        {"SLURM_NNODES SLURM_JOB_NUM_NODES", "launch.nodes launch.N"},
        {"SLURM_GPUS_ON_NODE SLURM_GPUS_PER_NODE", "launch.gpus-per-node launch.gres"},
        {"SLURM_NTASKS_PER_NODE", "launch.ntasks-per-node"},
        {"SLURM_NTASKS SLURM_NPROCS", "launch.ntasks launch.n"},
    };
    variable *found = find_variable(p, name);
    for (size_t i = 0; found == NULL && i < sizeof rows / sizeof rows[0]; i++) {
        const long number = sp_names_hold(rows[i][0], name) ? batch_number(p, rows[i][1]) : 0;
        if (number > 0) {
            char digits[32];
            snprintf(digits, sizeof digits, "%ld", number);
            found = make_variable(p, name);
            for (const char *d = digits; *d != '\0'; d++) {
                push_char(p, &found->value, *d, 0);
            }
        }
    }
    return found;
}

// ---- whole numbers ----

typedef struct sum {
    parser *p;
    const char *at;
    int nested;
    bool known;
} sum;

static long long add_up(sum *s);

static void skip_blanks(sum *s)
{
    s->at += strspn(s->at, " \t\n");
}

static long long read_number(sum *s)
{
    skip_blanks(s);
    if (*s->at == '(' && s->nested < MOST_NESTED) {
        s->at++;
        s->nested++;
        long long value = add_up(s);
        skip_blanks(s);
        s->known = s->known && *s->at == ')';
        s->at += *s->at == ')';
        s->nested--;
        return value;
    }
    if (isdigit((unsigned char)*s->at)) {
        char *end = NULL;
        long long value = strtoll(s->at, &end, 10);
        s->at = end;
        s->known = s->known && value < (1LL << 40);
        return value;
    }
    s->at += *s->at == '$';
    bool braced = *s->at == '{';
    s->at += braced;
    char name[NAME];
    size_t length = 0;
    while ((isalnum((unsigned char)*s->at) || *s->at == '_') && length + 1 < sizeof name) {
        name[length++] = *s->at++;
    }
    name[length] = '\0';
    if (braced) {
        s->known = s->known && *s->at == '}';
        s->at += *s->at == '}';
    }
    const variable *from = length > 0 ? known_variable(s->p, name) : NULL;
    if (from == NULL || from->undecided || from->value.count == 0 || from->value.count > 15) {
        s->known = false;
        return 1;
    }
    bool unknown = false;
    char *text = text_of(&from->value, 0, from->value.count, &unknown);
    char *end = NULL;
    long long value = strtoll(text, &end, 10);
    s->known = s->known && !unknown && *end == '\0' && value < (1LL << 40) && value > -(1LL << 40);
    sp_free(text);
    return value;
}

static long long bounded(sum *s, long long value)
{
    if (value > (1LL << 40) || value < -(1LL << 40)) {
        s->known = false;
        return 1;
    }
    return value;
}

static long long multiply(sum *s)
{
    long long value = read_number(s);
    for (;;) {
        skip_blanks(s);
        char with = *s->at;
        if (with != '*' && with != '/' && with != '%') {
            return value;
        }
        s->at++;
        long long other = read_number(s);
        if (!s->known || (with != '*' && other == 0)) {
            s->known = false;
            return 1;
        }
        if (with == '*' && other != 0 &&
            (value > (1LL << 40) / (other < 0 ? -other : other) ||
             -value > (1LL << 40) / (other < 0 ? -other : other))) {
            s->known = false;
            return 1;
        }
        value = with == '*' ? value * other : with == '/' ? value / other : value % other;
    }
}

static long long add_up(sum *s)
{
    long long value = multiply(s);
    for (;;) {
        skip_blanks(s);
        char with = *s->at;
        if (with != '+' && with != '-') {
            return value;
        }
        s->at++;
        long long other = multiply(s);
        value = bounded(s, with == '+' ? value + other : value - other);
    }
}

// ---- expansions ----

static char here(const parser *p)
{
    return p->at < p->bytes ? p->text[p->at] : '\0';
}

static char next(const parser *p, size_t ahead)
{
    return p->at + ahead < p->bytes ? p->text[p->at + ahead] : '\0';
}

static void step(parser *p)
{
    if (p->at < p->bytes) {
        p->line += p->text[p->at] == '\n' && p->line < p->last_line;
        p->at++;
    }
}

static size_t read_name(parser *p, char name[NAME])
{
    size_t length = 0;
    while (p->at < p->bytes && length + 1 < NAME &&
           (isalnum((unsigned char)here(p)) || here(p) == '_')) {
        name[length++] = here(p);
        step(p);
    }
    name[length] = '\0';
    return length;
}

// Past the bracket that closes one that was just passed.
static void skip_brackets(parser *p, char open, char close)
{
    int depth = 1;
    int began = p->line;
    while (p->at < p->bytes && depth > 0) {
        char c = here(p);
        if (c == '\\') {
            step(p);
        } else if (c == '\'' && open == '(') {
            step(p);
            while (p->at < p->bytes && here(p) != '\'') {
                step(p);
            }
        } else {
            depth += c == open ? 1 : c == close ? -1 : 0;
        }
        step(p);
    }
    if (depth > 0) {
        fail(p, SP_ERR_SYNTAX, began, open == '(' ? "'$(' without ')'" : "'${' without '}'");
    }
}

static void read_double_quoted(parser *p, glyphs *out)
{
    int began = p->line;
    step(p);
    while (p->at < p->bytes && here(p) != '"') {
        if (here(p) == '\\' && next(p, 1) == '\n') {
            step(p);
            step(p);
        } else if (here(p) == '\\' && strchr("$`\"\\", next(p, 1)) != NULL && next(p, 1) != '\0') {
            step(p);
            push_char(p, out, here(p), QUOTED);
            step(p);
        } else if (here(p) == '$' || here(p) == '`') {
            expand(p, true, out);
        } else {
            push_char(p, out, here(p), QUOTED);
            step(p);
        }
    }
    if (p->at >= p->bytes) {
        fail(p, SP_ERR_SYNTAX, began, "a double quote that is not closed");
    }
    step(p);
}

static void read_single_quoted(parser *p, glyphs *out)
{
    int began = p->line;
    step(p);
    while (p->at < p->bytes && here(p) != '\'') {
        push_char(p, out, here(p), QUOTED);
        step(p);
    }
    if (p->at >= p->bytes) {
        fail(p, SP_ERR_SYNTAX, began, "a single quote that is not closed");
    }
    step(p);
}

// One character of a word, or what stands for some.
static void read_part(parser *p, bool quoted, glyphs *out)
{
    char c = here(p);
    if (c == '\\') {
        step(p);
        if (here(p) != '\n' && p->at < p->bytes) {
            push_char(p, out, here(p), QUOTED);
        }
        step(p);
    } else if (c == '"') {
        read_double_quoted(p, out);
    } else if (c == '\'' && !quoted) {
        read_single_quoted(p, out);
    } else if (c == '$' || c == '`') {
        expand(p, quoted, out);
    } else {
        push_char(p, out, c, quoted ? QUOTED : EXPANDED);
        step(p);
    }
}

static void expand_sum(parser *p, size_t began, bool quoted, glyphs *out)
{
    p->at += 3;
    size_t from = p->at;
    skip_brackets(p, '(', ')');
    if (p->failed) {
        return;
    }
    size_t bytes = p->at - 1 - from;
    if (here(p) == ')') {
        step(p);
    }
    char *text = sp_malloc(bytes + 1);
    memcpy(text, p->text + from, bytes);
    text[bytes] = '\0';
    sum s = {.p = p, .at = text, .known = true};
    long long value = add_up(&s);
    skip_blanks(&s);
    if (s.known && *s.at == '\0') {
        char digits[32];
        snprintf(digits, sizeof digits, "%lld", value);
        for (const char *d = digits; *d != '\0'; d++) {
            push_char(p, out, *d, (unsigned char)(EXPANDED | (quoted ? QUOTED : 0)));
        }
    } else {
        push_unknown(p, out, began);
    }
    sp_free(text);
}

// ${NAME}, ${NAME[@]} and ${NAME:-default}; other forms are not known.
static void expand_braced(parser *p, size_t began, bool quoted, glyphs *out)
{
    char name[NAME];
    int line = p->line;
    p->at += 2;
    read_name(p, name);
    variable *from = known_variable(p, name);
    if (here(p) == '[' && (next(p, 1) == '@' || next(p, 1) == '*') && next(p, 2) == ']') {
        p->at += 3;
    }
    if (name[0] != '\0' && here(p) == '}') {
        step(p);
        if (from != NULL) {
            use_variable(p, from, began, quoted, out);
        } else {
            push_unknown(p, out, began);
        }
        return;
    }
    bool empty_counts = here(p) == ':';
    size_t sign = empty_counts ? 1 : 0;
    if (name[0] != '\0' && (next(p, sign) == '-' || next(p, sign) == '=')) {
        glyphs fallback = {0};
        p->at += sign + 1;
        p->nested++;
        while (p->at < p->bytes && here(p) != '}' && p->nested < MOST_NESTED) {
            read_part(p, quoted, &fallback);
        }
        p->nested--;
        if (here(p) != '}') {
            fail(p, SP_ERR_SYNTAX, line, "'${' without '}'");
        }
        step(p);
        if (from != NULL && (from->value.count > 0 || !empty_counts)) {
            use_variable(p, from, began, quoted, out);
        } else {
            push_value(p, out, &fallback, quoted);
        }
        glyphs_free(&fallback);
        return;
    }
    skip_brackets(p, '{', '}');
    push_unknown(p, out, began);
}

static void expand(parser *p, bool quoted, glyphs *out)
{
    size_t began = p->at;
    char name[NAME];
    if (here(p) == '`') {
        int line = p->line;
        step(p);
        while (p->at < p->bytes && here(p) != '`') {
            step(p);
        }
        if (p->at >= p->bytes) {
            fail(p, SP_ERR_SYNTAX, line, "a backquote that is not closed");
        }
        step(p);
        push_unknown(p, out, began);
    } else if (next(p, 1) == '(' && next(p, 2) == '(') {
        expand_sum(p, began, quoted, out);
    } else if (next(p, 1) == '(') {
        p->at += 2;
        skip_brackets(p, '(', ')');
        push_unknown(p, out, began);
    } else if (next(p, 1) == '{') {
        expand_braced(p, began, quoted, out);
    } else if (isalpha((unsigned char)next(p, 1)) || next(p, 1) == '_') {
        p->at++;
        read_name(p, name);
        variable *from = known_variable(p, name);
        if (from != NULL) {
            use_variable(p, from, began, quoted, out);
        } else {
            push_unknown(p, out, began);
        }
    } else if (next(p, 1) != '\0' && strchr("0123456789@*#?$!-", next(p, 1)) != NULL) {
        p->at += 2;
        push_unknown(p, out, began);
    } else {
        push_char(p, out, '$', QUOTED);
        step(p);
    }
}

// ---- words ----

static void add_field(parser *p, const glyphs *word, size_t begin, size_t end)
{
    if (p->field_count >= MOST_WORDS) {
        fail(p, SP_ERR_LIMIT, p->line, "a command of too many words");
        return;
    }
    void *items = p->fields;
    sp_reserve(&items, &p->field_capacity, p->field_count + 1, sizeof *p->fields);
    p->fields = items;
    bool unknown = false;
    char *text = text_of(word, begin, end, &unknown);
    p->fields[p->field_count++] =
        (field){.text = text,
                .line = begin < word->count ? word->items[begin].line : p->line,
                .unknown = unknown};
}

static bool parts_words(const glyph *g)
{
    return (g->flags & BREAK) || (!(g->flags & QUOTED) && strchr(" \t\n", g->c) != NULL);
}

// The words that became of one: blanks of what was put in part it, quoted ones do not.
static void add_fields(parser *p, const glyphs *word, bool quotes)
{
    size_t begin = 0;
    size_t before = p->field_count;
    for (size_t i = 0; i <= word->count && !p->failed; i++) {
        if (i == word->count || parts_words(&word->items[i])) {
            if (i > begin) {
                add_field(p, word, begin, i);
            }
            begin = i + 1;
        }
    }
    if (p->field_count == before && quotes && word->count == 0) {
        add_field(p, word, 0, 0);
    }
}

static bool ends_word(char c)
{
    return c == '\0' || strchr(" \t\n;&|()<>", c) != NULL;
}

// Reads a word; *quotes: it has some.
static void read_word(parser *p, glyphs *word, bool *quotes)
{
    while (p->at < p->bytes && !ends_word(here(p))) {
        *quotes = *quotes || here(p) == '"' || here(p) == '\'';
        read_part(p, false, word);
    }
}

static void skip_comment(parser *p)
{
    while (p->at < p->bytes && here(p) != '\n') {
        step(p);
    }
}

static void skip_space(parser *p)
{
    for (;;) {
        if (here(p) == '\\' && next(p, 1) == '\n') {
            step(p);
            step(p);
        } else if (p->at < p->bytes && (here(p) == ' ' || here(p) == '\t' || here(p) == '\r')) {
            step(p);
        } else {
            return;
        }
    }
}

// The words in brackets that an array is made of.
static void read_array(parser *p, glyphs *value)
{
    int began = p->line;
    step(p);
    while (p->at < p->bytes && here(p) != ')') {
        skip_space(p);
        if (here(p) == '#') {
            skip_comment(p);
        } else if (here(p) == '\n' || here(p) == ' ') {
            step(p);
        } else if (here(p) != ')' && p->at < p->bytes) {
            glyphs word = {0};
            bool quotes = false;
            size_t before = p->at;
            read_word(p, &word, &quotes);
            for (size_t i = 0; i < word.count && !p->failed; i++) {
                glyph g = word.items[i];
                if (parts_words(&g)) {
                    g.flags = BREAK;
                }
                push(p, value, g);
            }
            push_char(p, value, ' ', BREAK);
            glyphs_free(&word);
            if (p->at == before) {
                step(p);
            }
        }
    }
    if (p->at >= p->bytes) {
        fail(p, SP_ERR_SYNTAX, began, "an array whose ')' is missing");
    }
    step(p);
}

// NAME= or NAME+= where a word begins.
static bool at_assignment(const parser *p)
{
    size_t i = p->at;
    if (i >= p->bytes || !(isalpha((unsigned char)p->text[i]) || p->text[i] == '_')) {
        return false;
    }
    while (i < p->bytes && (isalnum((unsigned char)p->text[i]) || p->text[i] == '_')) {
        i++;
    }
    i += i < p->bytes && p->text[i] == '+';
    return i < p->bytes && p->text[i] == '=';
}

static void read_assignment(parser *p)
{
    char name[NAME];
    glyphs value = {0};
    bool quotes = false;
    int line = p->line;
    read_name(p, name);
    while (p->at < p->bytes && here(p) != '=' && here(p) != '+') {
        step(p); // of a longer name
    }
    bool adds = here(p) == '+';
    p->at += adds ? 2 : 1;
    if (here(p) == '(') {
        read_array(p, &value);
    } else {
        read_word(p, &value, &quotes);
    }
    assign(p, name, &value, adds, line);
    glyphs_free(&value);
}

// ---- commands ----

static bool is_one_of(const char *word, const char *const *words)
{
    while (*words != NULL && strcmp(*words, word) != 0) {
        words++;
    }
    return *words != NULL;
}

// The index of the program that a launcher runs, or -1: the first word that is a Python file, or
// the module of the last -m that is no launcher itself.
static int program_at(const parser *p)
{
    for (size_t i = 1; i < p->field_count; i++) {
        const char *text = p->fields[i].text;
        size_t length = strlen(text);
        if (length > 3 && strcmp(text + length - 3, ".py") == 0) {
            return (int)i;
        }
    }
    for (size_t i = 2; i < p->field_count; i++) {
        if (strcmp(p->fields[i - 1].text, "-m") == 0 &&
            strncmp(p->fields[i].text, "torch.distributed", 17) != 0 &&
            strncmp(p->fields[i].text, "deepspeed", 9) != 0 &&
            strncmp(p->fields[i].text, "accelerate", 10) != 0) {
            return (int)i;
        }
    }
    return -1;
}

static bool is_option(const char *text)
{
    return text[0] == '-' && (text[1] == '-' ? text[2] != '\0' : isalpha((unsigned char)text[1]));
}

static json_t *text_or_null(const char *text)
{
    json_t *value = json_string(text);
    return value != NULL ? value : json_null();
}

// One option with the words up to the next.
static size_t add_option(const parser *p, size_t at, const char *prefix, size_t end,
                         framework_entries *to)
{
    const field *option = &p->fields[at];
    char name[2 * NAME];
    const char *from = option->text + strspn(option->text, "-");
    const char *equals = strchr(from, '=');
    int length = equals != NULL ? (int)(equals - from) : (int)strlen(from);
    snprintf(name, sizeof name, "%s%.*s", prefix, length, from);
    bool unknown = option->unknown;
    const char *said = equals != NULL ? equals + 1 : NULL;
    json_t *values = json_array();
    if (equals != NULL) {
        json_array_append_new(values, text_or_null(equals + 1));
    }
    size_t i = at + 1;
    // Launchers' options have one value; "--" ends options.
    while (equals == NULL && i < end && !is_option(p->fields[i].text) &&
           strcmp(p->fields[i].text, "--") != 0 && (prefix[0] == '\0' || i == at + 1)) {
        unknown = unknown || p->fields[i].unknown;
        said = p->fields[i].unknown || said == NULL ? p->fields[i].text : said;
        json_array_append_new(values, text_or_null(p->fields[i].text));
        i++;
    }
    json_t *value = json_array_size(values) == 0   ? json_true()
                    : json_array_size(values) == 1 ? json_incref(json_array_get(values, 0))
                                                   : json_incref(values);
    framework_add(to, name, value, unknown ? sp_strdup(said != NULL ? said : from) : NULL,
                  option->line);
    json_decref(values);
    return i;
}

static void add_options(const parser *p, size_t begin, size_t end, const char *prefix,
                        framework_entries *to)
{
    for (size_t i = begin; i < end;) {
        if (is_option(p->fields[i].text)) {
            i = add_option(p, i, prefix, end, to);
        } else {
            // What is not known may have held options.
            if (p->fields[i].unknown && prefix[0] == '\0') {
                framework_add(to, p->fields[i].text, json_null(), sp_strdup(p->fields[i].text),
                              p->fields[i].line);
            }
            i++;
        }
    }
}

// A word with blanks and options in it is a command of its own, as of bash -c.
static void run_words(parser *p)
{
    for (size_t i = 0; i < p->field_count && p->nested < MOST_NESTED && !p->failed; i++) {
        const char *text = p->fields[i].text;
        if (strpbrk(text, " \n") == NULL || strstr(text, " --") == NULL) {
            continue;
        }
        parser inner = *p;
        char *copy = sp_strdup(text);
        inner.text = copy;
        inner.bytes = strlen(copy);
        inner.at = 0;
        inner.line = p->fields[i].line;
        inner.nested++;
        inner.fields = NULL;
        inner.field_count = inner.field_capacity = 0;
        parse(&inner);
        p->made = inner.made;
        p->variables = inner.variables;
        p->variable_count = inner.variable_count;
        p->variable_capacity = inner.variable_capacity;
        p->batch = inner.batch;
        p->failed = inner.failed;
        p->status = inner.status;
        sp_free(inner.fields);
        sp_free(copy);
    }
}

static void drop_fields(parser *p)
{
    for (size_t i = 0; i < p->field_count; i++) {
        sp_free(p->fields[i].text);
    }
    p->field_count = 0;
}

static void end_command(parser *p)
{
    if (p->field_count > 0 && !p->failed) {
        framework_entries entries = {0};
        int program = program_at(p);
        size_t begin = program >= 0 ? (size_t)program + 1 : 0;
        add_options(p, 0, program >= 0 ? (size_t)program : 0, "launch.", &entries);
        add_options(p, begin, p->field_count, "", &entries);
        if (entries.count > 0) {
            void *items = p->out->items;
            sp_reserve(&items, &p->out->capacity, p->out->count + 1, sizeof *p->out->items);
            p->out->items = items;
            p->out->items[p->out->count++] = entries;
        }
        run_words(p);
    }
    drop_fields(p);
}

// #SBATCH lines say how many nodes there are.
static void read_batch_line(parser *p)
{
    static const char mark[] = "#SBATCH";
    size_t length = sizeof mark - 1;
    bool is = p->bytes - p->at > length && strncmp(p->text + p->at, mark, length) == 0;
    if (is && p->field_count == 0) {
        p->at += length;
        while (p->at < p->bytes && here(p) != '\n' && !p->failed) {
            glyphs word = {0};
            bool quotes = false;
            size_t before = p->at;
            skip_space(p);
            if (here(p) == '#') {
                break;
            }
            read_word(p, &word, &quotes);
            add_fields(p, &word, quotes);
            glyphs_free(&word);
            if (p->at == before) {
                step(p);
            }
        }
        add_options(p, 0, p->field_count, "launch.", &p->batch);
        drop_fields(p);
    }
    skip_comment(p);
}

// Past the lines up to the word that ends them.
static void skip_here_document(parser *p)
{
    glyphs word = {0};
    bool quotes = false;
    bool unknown = false;
    int began = p->line;
    p->at += 2;
    p->at += here(p) == '-';
    skip_space(p);
    read_word(p, &word, &quotes);
    char *end = text_of(&word, 0, word.count, &unknown);
    glyphs_free(&word);
    size_t length = strlen(end);
    skip_comment(p);
    while (p->at < p->bytes && length > 0) {
        step(p);
        size_t from = p->at;
        while (from < p->bytes && p->text[from] == '\t') {
            from++;
        }
        skip_comment(p);
        if (p->at >= from && p->at - from == length && strncmp(p->text + from, end, length) == 0) {
            length = 0;
        }
    }
    if (length > 0) {
        fail(p, SP_ERR_SYNTAX, began, "lines after '<<' whose end is missing");
    }
    sp_free(end);
}

static void skip_redirection(parser *p)
{
    if (here(p) == '<' && next(p, 1) == '<' && next(p, 2) != '<') {
        skip_here_document(p);
        return;
    }
    while (here(p) == '<' || here(p) == '>' || here(p) == '&') {
        step(p);
    }
    glyphs word = {0};
    bool quotes = false;
    skip_space(p);
    read_word(p, &word, &quotes);
    glyphs_free(&word);
}

// Words of the shell itself at the beginning of a command; true: the command begins behind it.
static bool take_keyword(parser *p)
{
    static const char *const opens[] = {"if", "while", "until", "for", "case", "select", NULL};
    static const char *const closes[] = {"fi", "done", "esac", NULL};
    static const char *const passes[] = {"then", "else", "elif", "do",      "!",    "{",
                                         "}",    "time", "exec", "command", "eval", NULL};
    const char *word = p->fields[0].text;
    bool opened = is_one_of(word, opens);
    bool closed = is_one_of(word, closes);
    if (!opened && !closed && !is_one_of(word, passes)) {
        return false;
    }
    p->conditions += opened ? 1 : closed && p->conditions > 0 ? -1 : 0;
    drop_fields(p);
    return true;
}

static bool declares(const parser *p)
{
    static const char *const words[] = {"export", "local", "declare", "typeset", "readonly", NULL};
    return p->field_count > 0 && is_one_of(p->fields[0].text, words);
}

static void take_word(parser *p)
{
    glyphs word = {0};
    bool quotes = false;
    size_t before = p->at;
    if ((p->field_count == 0 || declares(p)) && at_assignment(p)) {
        read_assignment(p);
        return;
    }
    read_word(p, &word, &quotes);
    // A number before a redirection names a descriptor.
    bool descriptor = word.count == 1 && isdigit((unsigned char)word.items[0].c) &&
                      (here(p) == '<' || here(p) == '>');
    if (!descriptor) {
        add_fields(p, &word, quotes);
    }
    glyphs_free(&word);
    if (p->at == before) {
        step(p);
    }
    if (p->field_count == 1 && !quotes) {
        take_keyword(p);
    }
}

static void parse(parser *p)
{
    while (p->at < p->bytes && !p->failed) {
        skip_space(p);
        char c = here(p);
        if (p->at >= p->bytes) {
            break;
        }
        if (c == '#') {
            read_batch_line(p);
        } else if (c == '\n' || c == ';' || c == '(' || c == ')') {
            end_command(p);
            p->chained = false;
            step(p);
        } else if (c == '&' && next(p, 1) == '>') {
            step(p);
            skip_redirection(p);
        } else if (c == '&' || c == '|') {
            end_command(p);
            p->chained = next(p, 1) == c;
            step(p);
            p->at += p->chained;
        } else if (c == '<' || c == '>') {
            skip_redirection(p);
        } else {
            take_word(p);
        }
    }
    end_command(p);
}

// A copy whose lines end as those of Unix do, without what an editor of Windows puts before.
static char *unix_lines(const char *text, size_t *bytes)
{
    char *lines = sp_malloc(*bytes + 1);
    size_t count = 0;
    for (size_t i = 0; i < *bytes; i++) {
        if (text[i] != '\r' || (i + 1 < *bytes && text[i + 1] != '\n')) {
            lines[count++] = text[i];
        }
    }
    *bytes = count;
    return lines;
}

sp_status framework_read_shell(const char *source, const char *text, size_t bytes,
                               framework_commands *out, sp_error *err)
{
    *out = (framework_commands){.notes = json_array()};
    const char *nul = memchr(text, '\0', bytes);
    if (nul != NULL) {
        return sp_error_set(err, SP_ERR_SYNTAX, "%s: is no text: it has a byte 0", source);
    }
    char *own = unix_lines(text, &bytes);
    text = own;
    parser p = {.source = source, .text = text, .bytes = bytes, .line = 1, .out = out, .err = err};
    p.last_line = 1;
    for (size_t i = 0; i < bytes; i++) {
        p.last_line += text[i] == '\n';
    }
    parse(&p);
    // Nodes that the job has hold for every command of it.
    for (size_t c = 0; c < out->count && p.batch.count > 0; c++) {
        framework_entries all = {0};
        for (size_t i = 0; i < p.batch.count + out->items[c].count; i++) {
            const framework_entry *from =
                i < p.batch.count ? &p.batch.items[i] : &out->items[c].items[i - p.batch.count];
            framework_add(&all, from->name, json_incref(from->value),
                          from->unknown != NULL ? sp_strdup(from->unknown) : NULL, from->line);
        }
        framework_entries_free(&out->items[c]);
        out->items[c] = all;
    }
    framework_entries_free(&p.batch);
    for (size_t i = 0; i < p.variable_count; i++) {
        sp_free(p.variables[i].name);
        glyphs_free(&p.variables[i].value);
    }
    sp_free(p.variables);
    sp_free(p.fields);
    sp_free(own);
    return p.status;
}
