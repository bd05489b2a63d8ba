#include "experiments/sweep/where.h"

#include <math.h>
#include <string.h>

#include "experiments/sweep/where_private.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"

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

typedef struct evaluation {
    const sweep_where *where;
    const int64_t *digit;
    sp_error *err;
    sp_status status;
} evaluation;

static const char *const operator_texts[] = {
#define X(name, text, binds) text,
    SWEEP_OPERATORS(X)
#undef X
};

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
        const char *what = node->op < OP_VALUE ? operator_texts[node->op] : "where";
        sp_error_in(ev->err, SP_ERR_CONTENT, ev->where->source, ev->where->path,
                    "character %d: '%s' needs %s, got %s", node->at, what, wanted, kind_text(got));
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
                                     "character %d: division by zero", node->at);
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

int sweep_where_parts(const sweep_where *where, sweep_where_part *parts, int most)
{
    // A chain of && leans to the left: its last part is the right side of the root.
    int count = 0;
    for (int at = where->root; count < most; count++) {
        const sweep_node *node = &where->nodes[at];
        bool joined = node->op == OP_AND && count + 1 < most;
        int part = joined ? node->right : at;
        parts[count] = (sweep_where_part){.node = part, .axes = axes_of(where, part)};
        if (!joined) {
            return count + 1;
        }
        at = node->left;
    }
    return count;
}

bool sweep_where_excludes(const sweep_where *where, const sweep_where_part *part,
                          const int64_t *digit)
{
    evaluation ev = {.where = where, .digit = digit};
    sp_error ignored = {0};
    ev.err = &ignored;
    sweep_value value = evaluate(&ev, part->node);
    bool holds = truth(&ev, &where->nodes[part->node], value);
    return ev.status == SP_OK && !holds;
}
