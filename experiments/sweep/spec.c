// The specification of a sweep, its condition, and the walk over its points.
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/sweep/sweep.h"
#include "sim/base/alloc.h"
#include "sim/base/data_folder.h"
#include "sim/base/files.h"
#include "sim/base/json.h"
#include "sim/base/order.h"

// ---- the tree of a condition ----

// X(operator, its text, how tightly it binds; 0: unary)
#define SWEEP_OPERATORS(X) \
    X(OP_OR, "||", 1)      \
    X(OP_AND, "&&", 2)     \
    X(OP_EQ, "==", 3)      \
    X(OP_NE, "!=", 3)      \
    X(OP_LE, "<=", 3)      \
    X(OP_GE, ">=", 3)      \
    X(OP_LT, "<", 3)       \
    X(OP_GT, ">", 3)       \
    X(OP_ADD, "+", 4)      \
    X(OP_SUB, "-", 4)      \
    X(OP_MUL, "*", 5)      \
    X(OP_DIV, "/", 5)      \
    X(OP_MOD, "%", 5)      \
    X(OP_NOT, "!", 0)      \
    X(OP_NEG, "-", 0)

typedef enum sweep_op {
#define X(name, text, binds) name,
    SWEEP_OPERATORS(X)
#undef X
        OP_VALUE,
    OP_SYMBOL
} sweep_op;

typedef struct sweep_node {
    sweep_op op;
    int left, right;            // nodes; right alone of a unary operator
    int position;               // character, from 1
    sweep_value value;          // OP_VALUE; what stands for null of OP_SYMBOL
    const sweep_symbol *symbol; // OP_SYMBOL
} sweep_node;

struct sweep_where {
    const char *source, *path; // of errors; not owned
    char *texts;               // the string literals; owned
    sweep_node *nodes;         // operands before their operator; owned
    size_t count, capacity;
    int root;
};

static const struct {
    const char *text;
    int binds;
} operators[] = {
#define X(name, text, binds) {text, binds},
    SWEEP_OPERATORS(X)
#undef X
};

void sweep_symbols_fini(sweep_symbols *symbols)
{
    for (size_t i = 0; i < symbols->count; i++) {
        sp_free(symbols->items[i].path);
        sp_free(symbols->items[i].values);
    }
    sp_free(symbols->items);
    *symbols = (sweep_symbols){0};
}

void sweep_where_free(sweep_where *where)
{
    if (where != NULL) {
        sp_free(where->texts);
        sp_free(where->nodes);
        sp_free(where);
    }
}

// ---- evaluation ----

typedef struct evaluation {
    const sweep_where *where;
    const int64_t *digit;
    sp_error *err;
    sp_status status;
} evaluation;

static const char *kind_text(sweep_value value)
{
    static const char *const texts[] = {"null", "true or false", "a number", "a string"};
    return texts[value.kind];
}

static sweep_value failed(evaluation *ev, const sweep_node *node, const char *wanted,
                          sweep_value got)
{
    if (ev->status == SP_OK) {
        ev->status = SP_ERR_CONTENT;
        const char *what = node->op < OP_VALUE ? operators[node->op].text : "where";
        sp_error_in(ev->err, SP_ERR_CONTENT, ev->where->source, ev->where->path,
                    "character %d: '%s' needs %s, got %s", node->position, what, wanted,
                    kind_text(got));
    }
    return (sweep_value){.kind = SWEEP_BOOL};
}

static sweep_value boolean(bool value)
{
    return (sweep_value){.kind = SWEEP_BOOL, .number = value ? 1.0 : 0.0};
}

// Numbers are true where they are not 0, as in C.
static bool truth(evaluation *ev, const sweep_node *node, sweep_value value)
{
    if (value.kind != SWEEP_BOOL && value.kind != SWEEP_NUMBER) {
        failed(ev, node, "true, false or a number", value);
        return false;
    }
    return value.number != 0.0;
}

// A text that is a number of tokens, as settings may be written ("8K"), is that number beside a
// number and beside another such text.
static sweep_value as_number(sweep_value value)
{
    int64_t tokens = 0;
    bool read = value.kind == SWEEP_STRING && sp_tokens_from_text(value.text, &tokens);
    return read ? (sweep_value){.kind = SWEEP_NUMBER, .number = (double)tokens} : value;
}

static void read_tokens(sweep_value *a, sweep_value *b)
{
    sweep_value x = as_number(*a);
    sweep_value y = as_number(*b);
    if (x.kind == SWEEP_NUMBER && y.kind == SWEEP_NUMBER) {
        *a = x;
        *b = y;
    }
}

static bool equal(sweep_value a, sweep_value b)
{
    read_tokens(&a, &b);
    if (a.kind != b.kind) {
        return false;
    }
    return a.kind == SWEEP_STRING ? strcmp(a.text, b.text) == 0 : !(a.number != b.number);
}

static sweep_value compare(evaluation *ev, const sweep_node *node, sweep_value a, sweep_value b)
{
    double difference = 0.0;
    read_tokens(&a, &b);
    if (a.kind == SWEEP_NUMBER && b.kind == SWEEP_NUMBER) {
        difference = a.number < b.number ? -1.0 : a.number > b.number ? 1.0 : 0.0;
    } else if (a.kind == SWEEP_STRING && b.kind == SWEEP_STRING) {
        difference = strcmp(a.text, b.text);
    } else {
        return failed(ev, node, "two numbers or two strings", a.kind < b.kind ? a : b);
    }
    bool less = node->op == OP_LT || node->op == OP_LE;
    bool or_equal = node->op == OP_LE || node->op == OP_GE;
    return boolean(difference == 0.0 ? or_equal : (difference < 0.0) == less);
}

static sweep_value calculate(evaluation *ev, const sweep_node *node, sweep_value a, sweep_value b)
{
    sweep_value result = {.kind = SWEEP_NUMBER};
    read_tokens(&a, &b);
    if (a.kind != SWEEP_NUMBER || b.kind != SWEEP_NUMBER) {
        return failed(ev, node, "numbers", a.kind != SWEEP_NUMBER ? a : b);
    }
    bool divides = node->op == OP_DIV || node->op == OP_MOD;
    if (divides && !(b.number > 0.0 || b.number < 0.0)) {
        if (ev->status == SP_OK) {
            ev->status = sp_error_in(ev->err, SP_ERR_CONTENT, ev->where->source, ev->where->path,
                                     "character %d: division by zero", node->position);
        }
        return result;
    }
    result.number = node->op == OP_ADD   ? a.number + b.number
                    : node->op == OP_SUB ? a.number - b.number
                    : node->op == OP_MUL ? a.number * b.number
                    : node->op == OP_DIV ? a.number / b.number
                                         : fmod(a.number, b.number);
    return result;
}

static sweep_value symbol_value(const evaluation *ev, const sweep_node *node)
{
    const sweep_symbol *symbol = node->symbol;
    sweep_value value = symbol->values[symbol->axis < 0 ? 0 : ev->digit[symbol->axis]];
    return value.kind == SWEEP_NULL ? node->value : value;
}

// Depth: nesting is bounded by the parser, a chain of one operator by the length of the text.
static sweep_value evaluate(evaluation *ev, int index)
{
    const sweep_node *node = &ev->where->nodes[index];
    sweep_value left = {0};
    if (node->op == OP_VALUE) {
        return node->value;
    }
    if (node->op == OP_SYMBOL) {
        return symbol_value(ev, node);
    }
    if (node->op != OP_NOT && node->op != OP_NEG) {
        left = evaluate(ev, node->left);
    }
    if (node->op == OP_AND || node->op == OP_OR) {
        bool decides = truth(ev, node, left) == (node->op == OP_OR);
        return decides || ev->status != SP_OK ? boolean(node->op == OP_OR)
                                              : boolean(truth(ev, node, evaluate(ev, node->right)));
    }
    sweep_value right = evaluate(ev, node->right);
    right = node->op == OP_NEG ? as_number(right) : right;
    switch (node->op) {
    case OP_NOT:
        return boolean(!truth(ev, node, right));
    case OP_NEG:
        return right.kind == SWEEP_NUMBER
                   ? (sweep_value){.kind = SWEEP_NUMBER, .number = -right.number}
                   : failed(ev, node, "a number", right);
    case OP_EQ:
        return boolean(equal(left, right));
    case OP_NE:
        return boolean(!equal(left, right));
    case OP_LT:
    case OP_LE:
    case OP_GT:
    case OP_GE:
        return compare(ev, node, left, right);
    default:
        return calculate(ev, node, left, right);
    }
}

sp_status sweep_where_holds(const sweep_where *where, const int64_t *digit, bool *holds,
                            sp_error *err)
{
    evaluation ev = {.where = where, .digit = digit, .err = err};
    sweep_value value = evaluate(&ev, where->root);
    *holds = truth(&ev, &where->nodes[where->root], value);
    return ev.status;
}

static uint32_t axes_of(const sweep_where *where, int index)
{
    const sweep_node *node = &where->nodes[index];
    if (node->op >= OP_VALUE) {
        bool reads = node->op == OP_SYMBOL && node->symbol->axis >= 0;
        return reads ? (uint32_t)1 << node->symbol->axis : 0;
    }
    bool unary = node->op == OP_NOT || node->op == OP_NEG;
    return axes_of(where, node->right) | (unary ? 0 : axes_of(where, node->left));
}

// Writes the parts and returns their number; what is beyond `most` is one part with the last.
static int write_parts(const sweep_where *where, sweep_where_part *parts, int most)
{
    // A chain of && leans to the left: its last part is the right side of the root.
    int count = 0;
    for (int position = where->root; count < most; count++) {
        const sweep_node *node = &where->nodes[position];
        bool joined = node->op == OP_AND && count + 1 < most;
        int part = joined ? node->right : position;
        parts[count] = (sweep_where_part){.node = part, .axes = axes_of(where, part)};
        if (!joined) {
            return count + 1;
        }
        position = node->left;
    }
    return count;
}

// Can the condition not hold whatever the axes that the part does not read? False also where the
// part cannot be evaluated: sweep_where_holds() tells why.
static bool part_excludes(const sweep_where *where, const sweep_where_part *part,
                          const int64_t *digit)
{
    evaluation ev = {.where = where, .digit = digit};
    sp_error ignored = {0};
    ev.err = &ignored;
    sweep_value value = evaluate(&ev, part->node);
    bool holds = truth(&ev, &where->nodes[part->node], value);
    return ev.status == SP_OK && !holds;
}

// ---- reading: recursive descent over the text of a condition ----

enum {
    TIGHTEST = 5, // of the binary operators
    COMPARISON = 3,
    HINTS = 1024,
    NAME = 160,
    NUMBER = 32,
};

typedef struct parser {
    const char *text, *next;
    const sweep_symbols *symbols;
    sweep_where *where;
    size_t texts_used;
    int depth;
    sp_error *err;
} parser;

static int parse_binary(parser *in, int binds);

// ---- errors; each returns the node number that stands for one ----

static int character(const parser *in)
{
    return (int)(in->next - in->text) + 1;
}

SP_PRINTF(3, 4)
static int fail(parser *in, int position, const char *format, ...)
{
    char text[SP_ERROR_TEXT / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sp_error_in(in->err, SP_ERR_CONTENT, in->where->source, in->where->path, "character %d: %s",
                position, text);
    return -1;
}

static int add_node(parser *in, sweep_node node)
{
    sweep_where *where = in->where;
    sp_reserve((void **)&where->nodes, &where->capacity, where->count + 1, sizeof *where->nodes);
    where->nodes[where->count] = node;
    return (int)where->count++;
}

// ---- operators ----

static void skip_blanks(parser *in)
{
    in->next += strspn(in->next, " \t\r\n");
}

static int unexpected(parser *in, const char *wanted)
{
    skip_blanks(in);
    int position = character(in);
    if (*in->next == '\0') {
        return fail(in, position, "expected %s, got the end", wanted);
    }
    if (in->next[0] == '=' && in->next[1] != '=') {
        return fail(in, position, "expected %s, got '=' (did you mean '=='?)", wanted);
    }
    return isprint((unsigned char)*in->next)
               ? fail(in, position, "expected %s, got '%c'", wanted, *in->next)
               : fail(in, position, "expected %s, got byte 0x%02x", wanted,
                      (unsigned)(unsigned char)*in->next);
}

// The binary operator that comes next, if it binds as said; else OP_VALUE.
static sweep_op take_operator(parser *in, int binds)
{
    skip_blanks(in);
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        size_t length = strlen(operators[i].text);
        if (operators[i].binds > 0 && strncmp(in->next, operators[i].text, length) == 0) {
            if (operators[i].binds != binds) {
                return OP_VALUE;
            }
            in->next += length;
            return (sweep_op)i;
        }
    }
    return OP_VALUE;
}

// ---- operands ----

static int add_value(parser *in, int position, sweep_value value)
{
    return add_node(in, (sweep_node){.op = OP_VALUE, .position = position, .value = value});
}

// Does the text begin with a number of tokens such as 128K? Takes it.
static bool take_tokens(parser *in, int64_t *tokens)
{
    char text[NUMBER];
    size_t length = strspn(in->next, "0123456789");
    bool unit = length + 1 < sizeof text && in->next[length] != '\0' &&
                strchr("KkMm", in->next[length]) != NULL;
    char after = unit ? in->next[length + 1] : '\0';
    if (!unit || isalnum((unsigned char)after) || after == '_' || after == '.') {
        return false;
    }
    memcpy(text, in->next, length + 1);
    text[length + 1] = '\0';
    bool read = sp_tokens_from_text(text, tokens);
    in->next += read ? length + 1 : 0;
    return read;
}

// Decimal only: strtod would also read hexadecimal digits.
static int parse_number(parser *in)
{
    int position = character(in);
    int64_t tokens = 0;
    if (take_tokens(in, &tokens)) {
        return add_value(in, position,
                         (sweep_value){.kind = SWEEP_NUMBER, .number = (double)tokens});
    }
    size_t length = strspn(in->next, "0123456789.");
    if (in->next[length] == 'e' || in->next[length] == 'E') {
        size_t sign = in->next[length + 1] == '+' || in->next[length + 1] == '-';
        length += 1 + sign + strspn(in->next + length + 1 + sign, "0123456789");
    }
    char *end = NULL;
    double number = strtod(in->next, &end);
    if (end != in->next + length || isalpha((unsigned char)*end) || *end == '_' ||
        !isfinite(number)) {
        return fail(in, position, "expected a decimal number, got '%.*s'",
                    (int)(length < 40 ? length + 1 : 40), in->next);
    }
    in->next = end;
    return add_value(in, position, (sweep_value){.kind = SWEEP_NUMBER, .number = number});
}

static int parse_string(parser *in)
{
    int position = character(in);
    char quote = *in->next++;
    const char *end = strchr(in->next, quote);
    if (end == NULL) {
        in->next += strlen(in->next);
        return unexpected(in, "the closing quote");
    }
    size_t length = (size_t)(end - in->next);
    char *text = in->where->texts + in->texts_used;
    memcpy(text, in->next, length);
    text[length] = '\0';
    in->texts_used += length + 1;
    in->next = end + 1;
    return add_value(in, position, (sweep_value){.kind = SWEEP_STRING, .text = text});
}

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot == NULL ? path : dot + 1;
}

// The part of a layout that a name stands for, with its full path; NULL: none.
static const char *layout_path(const char *word)
{
    static const char *const paths[] = {"parallel.tp", "parallel.cp", "parallel.pp", "parallel.dp"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (strcmp(word, paths[i]) == 0 || strcmp(word, last_part(paths[i])) == 0) {
            return paths[i];
        }
    }
    return NULL;
}

// A word behind == or != is rather a text without its quotes than the name of something.
static bool is_compared(const parser *in, int position)
{
    const char *before = in->text + position - 1;
    while (before > in->text && isspace((unsigned char)before[-1])) {
        before--;
    }
    return before > in->text && before[-1] == '=';
}

static int unknown_name(parser *in, int position, const char *word)
{
    const char *names[HINTS] = {"tp", "cp", "pp", "dp"};
    int n = 4;
    bool full = strchr(word, '.') != NULL;
    for (size_t i = 0; i < in->symbols->count && n < HINTS; i++) {
        const char *path = in->symbols->items[i].path;
        names[n++] = full ? path : last_part(path);
    }
    const char *near = sp_nearest_name(word, names, n);
    for (int i = 0; near == NULL && i < n; i++) {
        near = strncmp(names[i], word, strlen(word)) == 0 ? names[i] : NULL; // without its unit
    }
    return near != NULL ? fail(in, position, "unknown name '%s' (did you mean '%s'?)", word, near)
                        : fail(in, position, "'%s' is %s%s", word, in->symbols->unknown,
                               is_compared(in, position) ? "; a text stands in quotes" : "");
}

static int parse_word(parser *in, int position, const char *word)
{
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0) {
        double truth = word[0] == 't' ? 1.0 : 0.0;
        return add_value(in, position, (sweep_value){.kind = SWEEP_BOOL, .number = truth});
    }
    if (strcmp(word, "null") == 0) {
        return add_value(in, position, (sweep_value){.kind = SWEEP_NULL});
    }
    const char *layout = layout_path(word);
    sweep_value one = {.kind = SWEEP_NUMBER, .number = 1.0};
    sweep_value none = layout != NULL ? one : (sweep_value){.kind = SWEEP_NULL};
    const char *wanted = layout != NULL ? layout : word;
    const sweep_symbol *found = NULL;
    for (size_t i = 0; i < in->symbols->count; i++) {
        const sweep_symbol *symbol = &in->symbols->items[i];
        if (strcmp(symbol->path, wanted) == 0) {
            found = symbol;
            break;
        }
        if (layout != NULL || strcmp(last_part(symbol->path), wanted) != 0) {
            continue;
        }
        if (found != NULL) {
            return fail(in, position, "'%s' may be '%s' or '%s'", word, found->path, symbol->path);
        }
        found = symbol;
    }
    if (found != NULL) {
        return add_node(
            in,
            (sweep_node){.op = OP_SYMBOL, .position = position, .symbol = found, .value = none});
    }
    return layout == NULL ? unknown_name(in, position, word) : add_value(in, position, one);
}

static int parse_name(parser *in)
{
    int position = character(in);
    size_t length = 0;
    while (isalnum((unsigned char)in->next[length]) || in->next[length] == '_' ||
           in->next[length] == '.') {
        length++;
    }
    char word[NAME];
    if (length >= sizeof word) {
        return unexpected(in, "a shorter name");
    }
    memcpy(word, in->next, length);
    word[length] = '\0';
    in->next += length;
    return parse_word(in, position, word);
}

static int parse_operand(parser *in)
{
    char first = in->next[0];
    if (isdigit((unsigned char)first) || first == '.') {
        return parse_number(in);
    }
    if (first == '\'' || first == '"') {
        return parse_string(in);
    }
    if (isalpha((unsigned char)first) || first == '_') {
        return parse_name(in);
    }
    if (first != '(') {
        return unexpected(in, "a number, a string, a name or '('");
    }
    if (++in->depth > SWEEP_WHERE_DEPTH) {
        return unexpected(in, "less nesting");
    }
    in->next++;
    int inside = parse_binary(in, 1);
    in->depth--;
    if (inside < 0) {
        return -1;
    }
    skip_blanks(in);
    if (*in->next != ')') {
        return unexpected(in, "an operator or ')'");
    }
    in->next++;
    return inside;
}

static int parse_unary(parser *in)
{
    skip_blanks(in);
    int position = character(in);
    bool negates = in->next[0] == '-';
    if (!negates && (in->next[0] != '!' || in->next[1] == '=')) {
        return parse_operand(in);
    }
    if (++in->depth > SWEEP_WHERE_DEPTH) {
        return unexpected(in, "less nesting");
    }
    in->next++;
    int right = parse_unary(in);
    in->depth--;
    return right < 0 ? -1
                     : add_node(in, (sweep_node){.op = negates ? OP_NEG : OP_NOT,
                                                 .right = right,
                                                 .position = position});
}

static int parse_binary(parser *in, int binds)
{
    if (binds > TIGHTEST) {
        return parse_unary(in);
    }
    int left = parse_binary(in, binds + 1);
    for (int chained = 0; left >= 0; chained++) {
        skip_blanks(in);
        const char *start = in->next;
        int position = character(in);
        sweep_op op = take_operator(in, binds);
        if (op == OP_VALUE) {
            break;
        }
        if (binds == COMPARISON && chained > 0) {
            in->next = start;
            return unexpected(in, "'&&' or '||' (comparisons do not chain)");
        }
        int right = parse_binary(in, binds + 1);
        left =
            right < 0
                ? -1
                : add_node(in, (sweep_node){
                                   .op = op, .left = left, .right = right, .position = position});
    }
    return left;
}

// ---- the condition ----

sp_status sweep_where_parse(const char *text, const char *source, const char *path,
                            const sweep_symbols *symbols, sweep_where **where, sp_error *err)
{
    sp_error own = {0};
    parser in = {.text = text, .next = text, .symbols = symbols, .err = err != NULL ? err : &own};
    size_t length = strlen(text);
    *where = NULL;
    if (length > SWEEP_WHERE_BYTES) {
        return sp_error_in(in.err, SP_ERR_CONTENT, source, path,
                           "%zu characters are more than the %d that are read", length,
                           (int)SWEEP_WHERE_BYTES);
    }
    in.where = sp_calloc(1, sizeof *in.where);
    in.where->source = source;
    in.where->path = path;
    in.where->texts = sp_malloc(length + 1);
    in.where->root = parse_binary(&in, 1);
    if (in.where->root >= 0 && (skip_blanks(&in), *in.next != '\0')) {
        in.where->root = unexpected(&in, "an operator or the end");
    }
    if (in.where->root < 0) {
        sweep_where_free(in.where);
        return in.err->status;
    }
    *where = in.where;
    return SP_OK;
}

enum {
    DOCUMENT_LIMIT_BYTES = 64 << 20,
    DEPTH = 16,     // of objects in which settings are looked for
    SYMBOLS = 4096, // settings that a condition can name
};

void sweep_spec_fini(sweep_spec *spec)
{
    sweep_where_free(spec->where);
    sweep_symbols_fini(&spec->symbols);
    json_decref(spec->stated);
    json_decref(spec->document);
    *spec = (sweep_spec){0};
}

// ---- reading ----

// A setting inside something that the base has as a scalar or an array has no place.
static bool has_place(const json_t *base, const char *path)
{
    char part[SP_JSON_PATH];
    const json_t *holder = base;
    while (sp_json_path_next(&path, part)) {
        holder = json_object_get(holder, part);
        if (holder == NULL || json_is_null(holder)) {
            return true;
        }
        if (!json_is_object(holder)) {
            return false;
        }
    }
    return true;
}

// The cluster that a base does not state is that of its profile.
static bool depends_on_profile(const sweep_spec *spec, const sp_object *grid, const char *path)
{
    return strncmp(path, "cluster.", strlen("cluster.")) == 0 &&
           !json_is_string(json_object_get(spec->base, "cluster")) &&
           !json_is_object(json_object_get(spec->base, "cluster")) &&
           json_object_get(grid->json, "profile") != NULL;
}

// Makes room for an axis in the base, once for all points. False, with an error, where there is
// none.
static bool make_place(sweep_spec *spec, sp_object *grid, const char *path)
{
    sp_error own = {0};
    sp_status status = sp_scenario_open_name(json_object_get(spec->document, "base"), path, &own);
    if (sp_status_is_fatal(status)) {
        sp_error_set(grid->err, status, "%s", own.message[0]);
    } else if (status != SP_OK) {
        sp_error_in(grid->err, status, grid->source, "base", "%s", own.message[0]);
    } else if (!has_place(spec->base, path)) {
        sp_object_error(grid, path, "lies inside a value of the base that is not an object");
    } else {
        return true;
    }
    return false;
}

// False, with an error, where another axis replaces what this one changes.
static bool stands_alone(const sweep_spec *spec, sp_object *grid, const char *path)
{
    for (int a = 0; a < spec->axis_count; a++) {
        const char *other = spec->axes[a].path;
        bool inside = strlen(path) > strlen(other);
        if (sp_json_paths_overlap(other, path)) {
            sp_object_error(grid, inside ? path : other,
                            "lies inside '%s', which the grid replaces as a whole (its values may "
                            "be objects that state both)",
                            inside ? other : path);
            return false;
        }
    }
    return true;
}

static void read_axis(sweep_spec *spec, sp_object *grid, const char *path, const json_t *values)
{
    size_t count = json_array_size(values);
    if (!sp_json_path_is_valid(path, SP_JSON_PATH)) {
        sp_error_in(grid->err, SP_ERR_CONTENT, grid->source, "grid",
                    "expected a dotted path such as parallel.tp, got '%.64s'", path);
    } else if (count == 0 || count > SWEEP_AXIS_VALUES) {
        sp_object_expected(grid, path, values, "an array of 1 to %d values",
                           (int)SWEEP_AXIS_VALUES);
    } else if (spec->axis_count == SWEEP_AXES) {
        sp_object_error(grid, path, "is more than the %d axes that a grid may have",
                        (int)SWEEP_AXES);
    } else if ((int64_t)count > SWEEP_COMBINATIONS / spec->combinations) {
        sp_error_in(grid->err, SP_ERR_LIMIT, grid->source, "grid",
                    "more than %lld combinations, from '%s' on", (long long)SWEEP_COMBINATIONS,
                    path);
    } else if (strcmp(path, "model.name") == 0) {
        // Unlike that of a cluster or a stack.
        sp_object_error(grid, path, "is only what a model is called: 'model' takes names");
    } else if (depends_on_profile(spec, grid, path)) {
        sp_object_error(grid, path,
                        "lies inside the cluster of a profile, which the grid replaces: the base "
                        "must name a cluster");
    } else if (stands_alone(spec, grid, path) && make_place(spec, grid, path)) {
        spec->axes[spec->axis_count++] =
            (sweep_axis){.path = path, .values = values, .count = (int64_t)count};
        spec->combinations *= (int64_t)count;
    }
}

static void read_document(sweep_spec *spec, sp_error *err)
{
    sp_object root;
    sp_object base;
    sp_object grid;
    sp_object_begin(&root, spec->document, spec->source, "", err);
    const char *kind = sp_json_kind(spec->document);
    if (kind != NULL && json_object_get(spec->document, "base") == NULL &&
        json_object_get(spec->document, "grid") == NULL) {
        sp_error_in(err, SP_ERR_CONTENT, spec->source, NULL,
                    "expected a sweep's specification with 'base' and 'grid', got %s", kind);
        return;
    }
    sp_object_schema(&root, SWEEP_SCHEMA);
    sp_object_require(&root, "base");
    sp_object_member(&root, "base", &base);
    spec->base = base.json;
    spec->combinations = 1;
    sp_object_require(&root, "grid");
    sp_object_member(&root, "grid", &grid);
    sp_object_string(&root, "where", NULL);
    sp_object_end(&root);
    if (err->status != SP_OK) {
        return;
    }
    const char *path;
    json_t *values;
    json_object_foreach ((json_t *)grid.json, path, values) {
        read_axis(spec, &grid, path, values);
    }
}

static const uint64_t hash_start = 14695981039346656037u; // FNV-1a

static uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ (unsigned char)bytes[i]) * 1099511628211u;
    }
    return hash;
}

static void write_tag(uint64_t hash, char tag[SWEEP_TAG])
{
    snprintf(tag, SWEEP_TAG, "%016llx", (unsigned long long)hash);
}

void sweep_tag(const char *text, size_t bytes, char tag[SWEEP_TAG])
{
    write_tag(hash_bytes(hash_start, text, bytes), tag);
}

// The bytes of a file of this name, where there is one; a pipe is another one at each run.
static sp_status hash_file(const char *name, uint64_t *hash, sp_error *err)
{
    static const char *const endings[] = {"", "/config.json", ".idx"};
    char path[SP_DATA_PATH];
    bool found = false;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0] && !found; i++) {
        int bytes = snprintf(path, sizeof path, "%s%s", name, endings[i]);
        found = bytes < SP_DATA_PATH && sp_is_file(path) && !sp_is_stream(path);
    }
    FILE *file = NULL;
    sp_status status = found ? sp_input_open(path, &file, err) : SP_OK;
    if (status != SP_OK || !found) {
        return status;
    }
    char bytes[16384];
    size_t count;
    errno = 0;
    while ((count = fread(bytes, 1, sizeof bytes, file)) > 0) {
        *hash = hash_bytes(*hash, bytes, count);
    }
    status = ferror(file) != 0 ? sp_error_system(err, path, errno) : SP_OK;
    fclose(file);
    return status;
}

static const json_t *base_value(const sweep_spec *spec, const char *path)
{
    char part[SP_JSON_PATH];
    const json_t *value = spec->base;
    bool more = true;
    while (value != NULL && more) {
        more = sp_json_path_next(&path, part);
        value = json_object_get(value, part);
    }
    return value;
}

// A name, or an array of names.
static sp_status hash_files(const json_t *names, uint64_t *hash, sp_error *err)
{
    sp_status status = SP_OK;
    if (json_is_string(names)) {
        return hash_file(json_string_value(names), hash, err);
    }
    for (size_t i = 0; i < json_array_size(names) && status == SP_OK; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        status = name != NULL ? hash_file(name, hash, err) : SP_OK;
    }
    return status;
}

// The tag is of the base's text and of the files that the spec names.
static sp_status tag_base(sweep_spec *spec, const char *base, sp_error *err)
{
    uint64_t hash = hash_bytes(hash_start, base, strlen(base));
    sp_status status = SP_OK;
    const char *path;
    for (int i = 0; status == SP_OK && (path = sp_scenario_path_setting(i)) != NULL; i++) {
        status = hash_files(base_value(spec, path), &hash, err);
        for (int a = 0; a < spec->axis_count && status == SP_OK; a++) {
            status = strcmp(spec->axes[a].path, path) == 0
                         ? hash_files(spec->axes[a].values, &hash, err)
                         : SP_OK;
        }
    }
    write_tag(hash, spec->base_tag);
    return status;
}

// ---- settings that a condition can name ----

typedef struct lister {
    sweep_spec *spec;
    char path[SP_JSON_PATH];
} lister;

static sweep_value value_of(const json_t *json)
{
    if (json_is_boolean(json)) {
        return (sweep_value){.kind = SWEEP_BOOL, .number = json_is_true(json) ? 1.0 : 0.0};
    }
    if (json_is_number(json)) {
        return (sweep_value){.kind = SWEEP_NUMBER, .number = json_number_value(json)};
    }
    return json_is_string(json)
               ? (sweep_value){.kind = SWEEP_STRING, .text = json_string_value(json)}
               : (sweep_value){.kind = SWEEP_NULL};
}

// The symbol at the lister's path, made where it is new, with `count` values that are null; NULL
// when there is no room.
static sweep_symbol *symbol_at(lister *list, int axis, int64_t count)
{
    sweep_symbols *symbols = &list->spec->symbols;
    for (size_t i = 0; i < symbols->count; i++) {
        if (strcmp(symbols->items[i].path, list->path) == 0) {
            return &symbols->items[i];
        }
    }
    if (symbols->count == SYMBOLS) {
        return NULL;
    }
    sweep_symbol symbol = {.axis = axis};
    symbol.path = sp_strdup(list->path);
    symbol.values = sp_calloc((size_t)count, sizeof *symbol.values);
    sp_reserve((void **)&symbols->items, &symbols->capacity, symbols->count + 1,
               sizeof *symbols->items);
    symbols->items[symbols->count] = symbol;
    return &symbols->items[symbols->count++];
}

// Appends ".key" to the path of `used` bytes; 0 where it would be too long.
static size_t extend(lister *list, size_t used, const char *key)
{
    int more =
        snprintf(list->path + used, sizeof list->path - used, "%s%s", used > 0 ? "." : "", key);
    return more > 0 && used + (size_t)more < sizeof list->path ? used + (size_t)more : 0;
}

static bool is_axis(const sweep_spec *spec, const char *path)
{
    for (int a = 0; a < spec->axis_count; a++) {
        if (strcmp(spec->axes[a].path, path) == 0) {
            return true;
        }
    }
    return false;
}

// Scalars at and below a value of an axis, or (axis -1) of the base, where no axis replaces them.
static void list_value(lister *list, int axis, int64_t index, const json_t *json, size_t used,
                       int depth)
{
    if (!json_is_object(json)) {
        int64_t count = axis >= 0 ? list->spec->axes[axis].count : 1;
        sweep_symbol *symbol = json_is_array(json) ? NULL : symbol_at(list, axis, count);
        if (symbol != NULL && symbol->axis == axis) {
            symbol->values[index] = value_of(json);
        }
        return;
    }
    const char *key;
    json_t *member;
    json_object_foreach ((json_t *)json, key, member) {
        size_t longer = depth < DEPTH ? extend(list, used, key) : 0;
        if (longer > 0 && !is_axis(list->spec, list->path)) {
            list_value(list, axis, index, member, longer, depth + 1);
        }
        list->path[used] = '\0';
    }
}

static void list_axis(lister *list, int axis)
{
    const sweep_axis *a = &list->spec->axes[axis];
    size_t used = (size_t)snprintf(list->path, sizeof list->path, "%s", a->path);
    for (int64_t i = 0; i < a->count; i++) {
        list_value(list, axis, i, json_array_get(a->values, (size_t)i), used, 0);
    }
}

// Lists every scalar of the base that no axis replaces, every axis, and the scalars inside the
// objects that an axis takes as values (null where one of them has no such key).
static void list_symbols(sweep_spec *spec)
{
    lister list = {.spec = spec};
    spec->symbols.unknown = "set neither by the grid nor by the base";
    for (int a = 0; a < spec->axis_count; a++) {
        list_axis(&list, a);
    }
    list_value(&list, -1, 0, spec->base, 0, 0);
}

static sp_status place_paths(json_t *document, const char *file, sp_error *err)
{
    const char *path;
    json_t *values;
    sp_status status = sp_scenario_place(json_object_get(document, "base"), file, err);
    json_object_foreach (json_object_get(document, "grid"), path, values) {
        status = status == SP_OK ? sp_scenario_place_values(values, path, file, err) : status;
    }
    return status;
}

// Paths are as from where `file` lies; NULL: they stay as they are.
static sp_status read_spec(json_t *document, const char *source, const char *file, sweep_spec *spec,
                           sp_error *err)
{
    sp_error own = {0};
    err = err != NULL ? err : &own;
    *spec = (sweep_spec){.document = document};
    snprintf(spec->source, sizeof spec->source, "%s", source);
    // Before paths are placed: results go on from any working directory.
    char *base = json_dumps(json_object_get(document, "base"), JSON_COMPACT | JSON_SORT_KEYS);
    spec->stated = file != NULL ? json_deep_copy(json_object_get(document, "grid")) : NULL;
    sp_status status = file != NULL ? place_paths(document, file, err) : SP_OK;
    if (status == SP_OK) {
        read_document(spec, err);
        status = err->status;
    }
    if (status == SP_OK) {
        list_symbols(spec);
    }
    const json_t *where = json_object_get(document, "where");
    if (status == SP_OK && json_is_string(where)) {
        status = sweep_where_parse(json_string_value(where), spec->source, "where", &spec->symbols,
                                   &spec->where, err);
    }
    if (status == SP_OK) {
        status = tag_base(spec, base, err);
    }
    free(base);
    if (status != SP_OK) {
        sweep_spec_fini(spec);
    }
    return status;
}

sp_status sweep_spec_from_json(json_t *document, const char *source, sweep_spec *spec,
                               sp_error *err)
{
    return read_spec(document, source, NULL, spec, err);
}

// Unknown keys alone: all else that is wrong with a combination is a matter of its point.
static sp_status check_keys_of(const sweep_spec *spec, const int64_t digit[SWEEP_AXES],
                               sp_error *err)
{
    sp_scenario scenario;
    sp_error own = {0};
    json_t *document = sweep_spec_scenario(spec, spec->document, digit);
    sp_status found = sp_scenario_from_json(document, spec->source, NULL, 0, &scenario, &own);
    json_decref(document);
    if (found == SP_OK) {
        sp_scenario_fini(&scenario);
    }
    sp_status status = sp_status_is_fatal(found) ? found : SP_OK;
    for (int i = 0; i < own.count; i++) {
        bool unknown = strstr(own.message[i], ": " SP_UNKNOWN_KEY) != NULL;
        if (unknown || sp_status_is_fatal(found)) {
            status = sp_error_set(err, found, "%s", own.message[i]);
        }
    }
    return status;
}

// A key that no scenario has would make points invalid: it is told before the first one is
// evaluated. Keys stand in the first combination, and in further objects that an axis has as
// values.
static sp_status check_keys(const sweep_spec *spec, sp_error *err)
{
    int64_t digit[SWEEP_AXES] = {0};
    sp_status status = check_keys_of(spec, digit, err);
    for (int a = 0; status == SP_OK && a < spec->axis_count; a++) {
        for (digit[a] = 1; status == SP_OK && digit[a] < spec->axes[a].count; digit[a]++) {
            if (json_is_object(json_array_get(spec->axes[a].values, (size_t)digit[a]))) {
                status = check_keys_of(spec, digit, err);
            }
        }
        digit[a] = 0;
    }
    return status;
}

sp_status sweep_spec_read(const char *path, sweep_spec *spec, sp_error *err)
{
    *spec = (sweep_spec){0};
    json_t *document = NULL;
    sp_status status = sp_json_read_file(path, DOCUMENT_LIMIT_BYTES, &document, err);
    if (status == SP_OK) {
        status = read_spec(document, path, path, spec, err);
    }
    if (status == SP_OK) {
        status = check_keys(spec, err);
        if (status != SP_OK) {
            sweep_spec_fini(spec);
        }
    }
    return status;
}

// ---- the documents of a point ----

const json_t *sweep_spec_stated(const sweep_spec *spec, int axis)
{
    return spec->stated != NULL ? json_object_get(spec->stated, spec->axes[axis].path)
                                : spec->axes[axis].values;
}

json_t *sweep_spec_point(const sweep_spec *spec, const int64_t digit[SWEEP_AXES])
{
    json_t *point = json_object();
    for (int a = 0; a < spec->axis_count; a++) {
        const json_t *value = json_array_get(sweep_spec_stated(spec, a), (size_t)digit[a]);
        sp_json_put(point, spec->axes[a].path, json_deep_copy(value));
    }
    return point;
}

// Puts `value` at `path` below `object`. The objects on the way are replaced by copies, so that
// what they came from stays as it was.
static void put_at(json_t *object, const char *path, json_t *value)
{
    char part[SP_JSON_PATH];
    while (sp_json_path_next(&path, part)) {
        json_t *child = json_object_get(object, part);
        child = json_is_object(child) ? json_copy(child) : json_object();
        sp_json_put(object, part, child);
        object = child;
    }
    json_object_set(object, part, value);
}

json_t *sweep_spec_scenario(const sweep_spec *spec, const json_t *document,
                            const int64_t digit[SWEEP_AXES])
{
    const json_t *grid = json_object_get(document, "grid");
    json_t *scenario = json_copy(json_object_get(document, "base"));
    for (int a = 0; a < spec->axis_count; a++) {
        const json_t *values = json_object_get(grid, spec->axes[a].path);
        put_at(scenario, spec->axes[a].path, json_array_get(values, (size_t)digit[a]));
    }
    return scenario;
}

// ---- combinations ----

void sweep_spec_digits(const sweep_spec *spec, int64_t combination, int64_t digit[SWEEP_AXES])
{
    for (int a = spec->axis_count - 1; a >= 0; a--) {
        digit[a] = combination % spec->axes[a].count;
        combination /= spec->axes[a].count;
    }
}

int64_t sweep_spec_combination(const sweep_spec *spec, const int64_t digit[SWEEP_AXES])
{
    int64_t combination = 0;
    for (int a = 0; a < spec->axis_count; a++) {
        combination = combination * spec->axes[a].count + digit[a];
    }
    return combination;
}

// ---- the walk ----

void sweep_cursor_begin(sweep_cursor *cursor, const sweep_spec *spec)
{
    *cursor = (sweep_cursor){.spec = spec, .combination = -1};
    if (spec->where != NULL) {
        cursor->part_count = write_parts(spec->where, cursor->parts, SWEEP_PARTS);
    }
}

// Does a part rule out the digits up to this axis? Parts are asked at the last axis that they read.
static bool excluded(const sweep_cursor *cursor, int axis)
{
    for (int p = 0; p < cursor->part_count; p++) {
        const sweep_where_part *part = &cursor->parts[p];
        bool decided = part->axes >> axis == 1 || (axis == 0 && part->axes == 0);
        if (decided && part_excludes(cursor->spec->where, part, cursor->digit)) {
            return true;
        }
    }
    return false;
}

// To the next combination that no part of the condition rules out; false, also from then on, where
// there is none.
static bool advance(sweep_cursor *cursor, int64_t *looked_at)
{
    const sweep_spec *spec = cursor->spec;
    int axes = spec->axis_count;
    if (axes == 0) {
        bool first = !cursor->begun;
        cursor->begun = true;
        return first;
    }
    int axis = !cursor->begun ? 0 : cursor->ended ? -1 : axes - 1;
    if (axis >= 0) {
        cursor->digit[axis] = cursor->begun ? cursor->digit[axis] + 1 : 0;
    }
    cursor->begun = true;
    while (axis >= 0) {
        if (cursor->digit[axis] == spec->axes[axis].count) {
            if (--axis >= 0) {
                cursor->digit[axis]++;
            }
        } else if (++*looked_at, excluded(cursor, axis)) {
            cursor->digit[axis]++;
        } else if (axis + 1 == axes) {
            return true;
        } else {
            cursor->digit[++axis] = 0;
        }
    }
    cursor->ended = true;
    return false;
}

static sp_status next_of(sweep_cursor *cursor, int64_t *looked_at, bool *found, sp_error *err)
{
    const sweep_spec *spec = cursor->spec;
    sp_status status = SP_OK;
    *found = false;
    while (status == SP_OK && !*found && *looked_at <= SWEEP_LOOKED_AT &&
           advance(cursor, looked_at)) {
        *found = spec->where == NULL;
        if (spec->where != NULL) {
            status = sweep_where_holds(spec->where, cursor->digit, found, err);
        }
    }
    return status == SP_OK && *looked_at > SWEEP_LOOKED_AT
               ? sp_error_in(err, SP_ERR_LIMIT, spec->source, "where",
                             "more than %d combinations of the axes that it reads would have to be "
                             "looked at: give these fewer values, or join conditions on few axes "
                             "each with &&",
                             (int)SWEEP_LOOKED_AT)
               : status;
}

sp_status sweep_cursor_next(sweep_cursor *cursor, bool *found, sp_error *err)
{
    int64_t looked_at = 0;
    sp_status status = next_of(cursor, &looked_at, found, err);
    cursor->combination =
        *found ? sweep_spec_combination(cursor->spec, cursor->digit) : cursor->combination;
    return status;
}

// ---- the axes that the condition reads, apart from the others ----

typedef struct apart {
    sweep_spec read; // the spec with one value on every axis that the condition does not read
    sweep_cursor cursor;
    int64_t others; // combinations of those axes
    int64_t looked_at;
} apart;

static void apart_begin(apart *walk, const sweep_spec *spec)
{
    uint32_t read = 0;
    walk->read = *spec;
    walk->others = 1;
    walk->looked_at = 0;
    sweep_cursor_begin(&walk->cursor, &walk->read);
    for (int p = 0; p < walk->cursor.part_count; p++) {
        read |= walk->cursor.parts[p].axes;
    }
    for (int a = 0; a < spec->axis_count; a++) {
        if ((read >> a & 1u) == 0) {
            walk->others *= spec->axes[a].count;
            walk->read.axes[a].count = 1;
        }
    }
}

static sp_status apart_next(apart *walk, bool *found, sp_error *err)
{
    return next_of(&walk->cursor, &walk->looked_at, found, err);
}

sp_status sweep_spec_count(const sweep_spec *spec, int64_t *points, sp_error *err)
{
    apart walk;
    apart_begin(&walk, spec);
    bool found = true;
    sp_status status = SP_OK;
    *points = 0;
    while (status == SP_OK && found) {
        status = apart_next(&walk, &found, err);
        *points += status == SP_OK && found ? walk.others : 0;
    }
    return status;
}

// ---- drawing ----

// `count` different numbers below `bound`, ascending.
static void draw_numbers(sp_prng *prng, int64_t bound, int64_t count, int64_t *numbers)
{
    int64_t have = 0;
    if (count > bound / 2) {
        // Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S.
        for (int64_t number = 0; have < count; number++) {
            uint64_t left = (uint64_t)(bound - number);
            if (sp_prng_below(prng, left) < (uint64_t)(count - have)) {
                numbers[have++] = number;
            }
        }
        return;
    }
    while (have < count) {
        for (int64_t i = have; i < count; i++) {
            numbers[i] = (int64_t)sp_prng_below(prng, (uint64_t)bound);
        }
        qsort(numbers, (size_t)count, sizeof *numbers, sp_ascending_int64s);
        have = 0;
        for (int64_t i = 0; i < count; i++) {
            if (i == 0 || numbers[i] != numbers[i - 1]) {
                numbers[have++] = numbers[i];
            }
        }
    }
}

// The combination with the digits of the walk and number `other` of those that it leaves out.
static int64_t with_other(const sweep_spec *spec, const apart *walk, int64_t other)
{
    int64_t digit[SWEEP_AXES];
    for (int a = spec->axis_count - 1; a >= 0; a--) {
        int64_t count = walk->read.axes[a].count == 1 ? spec->axes[a].count : 1;
        digit[a] = walk->cursor.digit[a] + other % count;
        other /= count;
    }
    return sweep_spec_combination(spec, digit);
}

sp_status sweep_spec_draw(const sweep_spec *spec, int64_t points, int64_t count, sp_prng *prng,
                          int64_t *combinations, sp_error *err)
{
    apart walk;
    int64_t walked = -1;
    bool found = true;
    sp_status status = SP_OK;
    count = count < points ? count : points;
    draw_numbers(prng, points, count, combinations);
    apart_begin(&walk, spec);
    for (int64_t i = 0; status == SP_OK && i < count; i++) {
        int64_t wanted = combinations[i] / walk.others;
        while (status == SP_OK && found && walked < wanted) {
            status = apart_next(&walk, &found, err);
            walked++;
        }
        if (status == SP_OK) {
            combinations[i] = with_other(spec, &walk, combinations[i] % walk.others);
        }
    }
    qsort(combinations, (size_t)count, sizeof *combinations, sp_ascending_int64s);
    return status;
}
