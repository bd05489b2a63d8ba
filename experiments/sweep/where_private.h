// The tree of a condition, which where_parse.c builds and where.c evaluates.
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_WHERE_PRIVATE_H
#define SLIMPACK_EXPERIMENTS_SWEEP_WHERE_PRIVATE_H

#include "experiments/sweep/where.h"

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
    int at;                     // character, from 1
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

#endif
