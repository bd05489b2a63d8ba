// The condition of a sweep (`where`, --where): its text, its tree, and what it says of a point.
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/sweep/sweep.h"
#include "sim/base/alloc.h"
#include "sim/base/writer.h"
#include "solver/strategy.h"

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
    if (value.kind != SWEEP_BOOL && value.kind != SWEEP_NUMBER && !value.unknown) {
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
    if (a.unknown || b.unknown) {
        return boolean(false);
    }
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
    if (a.unknown || b.unknown) {
        return a.unknown ? a : b;
    }
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
    bool is_figure = symbol->figure != NULL || symbol->names != NULL;
    return value.kind != SWEEP_NULL || value.unknown ? value
           : is_figure                               ? (sweep_value){.unknown = true}
                                                     : node->value;
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
        return right.unknown ? right
               : right.kind == SWEEP_NUMBER
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

static sp_status holds_at(const sweep_where *where, int node, const int64_t *digit, bool *holds,
                          sp_error *err)
{
    evaluation ev = {.where = where, .digit = digit, .err = err};
    sweep_value value = evaluate(&ev, node);
    *holds = truth(&ev, &where->nodes[node], value);
    return ev.status;
}

sp_status sweep_where_holds(const sweep_where *where, const int64_t *digit, bool *holds,
                            sp_error *err)
{
    return holds_at(where, where->root, digit, holds, err);
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

int sweep_where_parts(const sweep_where *where, sweep_where_part *parts, int most)
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

bool sweep_where_excludes(const sweep_where *where, const sweep_where_part *part,
                          const int64_t *digit)
{
    sp_error ignored = {0};
    bool holds = true;
    return holds_at(where, part->node, digit, &holds, &ignored) == SP_OK && !holds;
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

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot == NULL ? path : dot + 1;
}

static int add_node(parser *in, sweep_node node)
{
    sweep_where *where = in->where;
    SP_RESERVE(where->nodes, where->capacity, where->count + 1);
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

// ---- comparisons that a table decides ----

// What a name can be: a number, one of the names, or neither.
typedef struct domain {
    bool number, text, truth; // of which kinds
    double least, most;
    const char *const *names;
    const sp_setting *setting;
} domain;

// False: the tables do not say.
static bool domain_of(const sweep_symbol *symbol, domain *of)
{
    const sp_figure *figure = symbol->figure;
    const sp_setting *setting = sp_setting_find(symbol->path);
    *of = (domain){.number = true, .least = -HUGE_VAL, .most = HUGE_VAL};
    if (figure != NULL) {
        of->least = figure->least;
        of->most = figure->most > 0.0 ? figure->most : HUGE_VAL;
        return true;
    }
    if (symbol->names != NULL || strcmp(symbol->path, "strategy.kind") == 0) {
        *of = (domain){.text = true,
                       .names = symbol->names != NULL ? symbol->names : sp_strategy_names};
        return true;
    }
    if (setting == NULL || strcmp(setting->key, symbol->path) != 0) {
        return false;
    }
    bool number = setting->kind == SP_SETTING_INT || setting->kind == SP_SETTING_TOKENS ||
                  setting->kind == SP_SETTING_REAL;
    bool name = setting->kind == SP_SETTING_NAME;
    *of = (domain){.number = number,
                   .text = name || (number && setting->names != NULL),
                   .truth = setting->kind == SP_SETTING_SWITCH,
                   .least = setting->least,
                   .most = setting->most,
                   .names = setting->names,
                   .setting = setting};
    return number || name || of->truth;
}

typedef enum verdict { OPEN, NEVER, ALWAYS } verdict;

static verdict decide(const domain *of, sweep_op op, double number)
{
    switch (op) {
    case OP_LT:
        return of->least >= number ? NEVER : of->most < number ? ALWAYS : OPEN;
    case OP_LE:
        return of->least > number ? NEVER : of->most < number ? ALWAYS : OPEN;
    case OP_GT:
        return of->most <= number ? NEVER : of->least > number ? ALWAYS : OPEN;
    case OP_GE:
        return of->most < number ? NEVER : of->least > number ? ALWAYS : OPEN;
    default: {
        bool outside = number < of->least || number > of->most;
        return !outside ? OPEN : op == OP_EQ ? NEVER : ALWAYS;
    }
    }
}

static verdict judge(const domain *of, sweep_op op, sweep_value value)
{
    bool equality = op == OP_EQ || op == OP_NE;
    bool possible = value.kind == SWEEP_NUMBER   ? of->number
                    : value.kind == SWEEP_STRING ? of->text
                                                 : of->truth;
    if (value.kind == SWEEP_NULL || (!possible && !equality)) {
        return OPEN; // evaluation tells of kinds that have no order
    }
    if (possible && value.kind == SWEEP_NUMBER) {
        verdict found = decide(of, op, value.number);
        // More is asked of a setting than there is: a harmless condition. A figure has another
        // unit.
        return found == ALWAYS && of->setting != NULL ? OPEN : found;
    }
    possible = possible && (value.kind != SWEEP_STRING || sp_listed_name(value.text, of->names));
    return possible || !equality ? OPEN : op == OP_EQ ? NEVER : ALWAYS;
}

// "a share from 0 to 1 (40 % is 0.4)"
static void describe(const domain *of, const sweep_symbol *symbol, double number,
                     char text[SP_SETTING_TYPE])
{
    const sp_figure *figure = symbol->figure;
    text[0] = '\0';
    if (of->setting != NULL) {
        sp_setting_type(of->setting, text);
    } else if (figure == NULL) {
        for (int i = 0; of->names[i] != NULL; i++) {
            sp_append(text, SP_SETTING_TYPE, "%s \"%s\"", i > 0 ? "," : "one of", of->names[i]);
        }
    } else {
        sp_append(text, SP_SETTING_TYPE, "%s", figure->percent ? "a share" : "a number");
        if (isfinite(of->most)) {
            sp_append(text, SP_SETTING_TYPE, " from %g to %g", of->least, of->most);
        } else if (isfinite(of->least)) {
            sp_append(text, SP_SETTING_TYPE, " of at least %g", of->least);
        }
        if (figure->percent && number > of->most && number <= 100.0 * of->most) {
            sp_append(text, SP_SETTING_TYPE, " (%g %% is %g)", number, number / 100.0);
        }
    }
}

static sweep_op mirrored(sweep_op op)
{
    return op == OP_LT   ? OP_GT
           : op == OP_GT ? OP_LT
           : op == OP_LE ? OP_GE
           : op == OP_GE ? OP_LE
                         : op;
}

// Puts the table's spelling in the place of a text that is compared with a setting, and refuses a
// comparison that no point can change: -1.
static int check_comparison(parser *in, sweep_op op, int name, int constant)
{
    sweep_node *of = &in->where->nodes[name];
    sweep_node *value = &in->where->nodes[constant];
    const sweep_node *negated = value->op == OP_NEG ? &in->where->nodes[value->right] : value;
    domain can;
    if (of->op != OP_SYMBOL || negated->op != OP_VALUE) {
        return 0;
    }
    sweep_value is = negated != value ? as_number(negated->value) : negated->value;
    is.number = negated != value ? -is.number : is.number;
    bool known = domain_of(of->symbol, &can);
    if (is.kind == SWEEP_STRING) {
        const char *meant = sp_setting_name_of(of->symbol->path, is.text);
        meant = meant == NULL && can.names != NULL ? sp_listed_name(is.text, can.names) : meant;
        is.text = meant != NULL ? meant : is.text;
        value->value = is;
    }
    if (!known) {
        return 0;
    }
    is = can.number ? as_number(is) : is;
    verdict found = judge(&can, op, is);
    if (found == OPEN) {
        return 0;
    }
    char type[SP_SETTING_TYPE];
    char hint[SP_NAME_HINT] = "";
    int names = 0;
    while (can.names != NULL && can.names[names] != NULL) {
        names++;
    }
    if (is.kind == SWEEP_STRING && names > 0) {
        sp_name_hint(is.text, can.names, names, hint);
    }
    describe(&can, of->symbol, is.number, type);
    return fail(in, of->position, "this %s holds%s: '%s' is %s",
                found == NEVER ? "never" : "always", hint, last_part(of->symbol->path), type);
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
    for (size_t i = 0; layout != NULL && i < in->symbols->count; i++) {
        bool nodes = strcmp(last_part(in->symbols->items[i].path), "nodes") == 0;
        if (nodes && strcmp(layout, "parallel.dp") == 0) {
            return fail(in, position,
                        "'dp' follows from '%s' where parallel.dp is not stated, and is known of "
                        "results alone (--where)",
                        in->symbols->items[i].path);
        }
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
        if (binds == COMPARISON && right >= 0 &&
            (check_comparison(in, op, left, right) < 0 ||
             check_comparison(in, mirrored(op), right, left) < 0)) {
            return -1;
        }
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
