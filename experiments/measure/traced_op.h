// What the recorded inputs of an operator say of its work: of kineto.c alone.
#ifndef SLIMPACK_EXPERIMENTS_MEASURE_TRACED_OP_H
#define SLIMPACK_EXPERIMENTS_MEASURE_TRACED_OP_H

#include "experiments/measure/kineto.h"

enum { SP_TRACED_ARG = 1536, SP_TRACED_ARGS = 9 };

// Values as they stand in the trace, without blanks; "" where they are not there, or are longer.
typedef struct sp_traced_args {
    char value[SP_TRACED_ARGS][SP_TRACED_ARG];
} sp_traced_args;

// Where the value of a key goes; NULL: of no use.
char *sp_traced_args_slot(sp_traced_args *args, const char *key);
void sp_traced_args_clear(sp_traced_args *args);

// Fills kind, element_bytes, is_bf16 and of. False: another operator, or inputs that are not
// recorded or not of a form that is known.
bool sp_traced_op_of(const char *name, const sp_traced_args *args, sp_traced_op *op);
// Of a collective, by its record (param_comms.hpp of PyTorch), which an operator or a kernel has.
bool sp_traced_collective(const sp_traced_args *args, sp_traced_op *op);

#endif
