// The condition of a sweep: a small expression over the settings of a point, such as
// "tp * pp * dp == 512 && recompute != 'full'".
#ifndef SLIMPACK_EXPERIMENTS_SWEEP_WHERE_H
#define SLIMPACK_EXPERIMENTS_SWEEP_WHERE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"

typedef enum sweep_kind { SWEEP_NULL, SWEEP_BOOL, SWEEP_NUMBER, SWEEP_STRING } sweep_kind;

typedef struct sweep_value {
    sweep_kind kind;
    double number;    // of a number; 0 or 1 of a bool
    const char *text; // of a string; not owned
} sweep_value;

// A setting that a condition can name: a scalar of the base (axis -1, one value) or an axis of the
// grid, with one value per value of the axis.
typedef struct sweep_symbol {
    char *path; // "parallel.tp"; owned
    int axis;
    sweep_value *values; // owned
} sweep_symbol;

typedef struct sweep_symbols {
    sweep_symbol *items; // owned
    size_t count, capacity;
    const char *unknown; // what a name is that none of them has
} sweep_symbols;

void sweep_symbols_fini(sweep_symbols *symbols);

typedef struct sweep_where sweep_where;

enum {
    SWEEP_WHERE_BYTES = 4096, // longest condition
    SWEEP_WHERE_DEPTH = 100,  // deepest nesting
};

// Reads a condition. Grammar, from loosest to tightest: || ; && ; == != < <= > >= (which do not
// chain); + - ; * / % ; unary ! - ; number, 'string' or "string", true, false, null, name, ( ).
// A number of tokens may be written 128K or 1M; a text that is one, as a setting may have it, is
// that number beside a number. A name is the full path of a setting or its last part where no other
// setting shares it; tp, cp, pp and dp are those of `parallel`, and 1 where nothing sets them.
// Errors name source, path and the character. All of these are referred to and must outlive the
// condition.
sp_status sweep_where_parse(const char *text, const char *source, const char *path,
                            const sweep_symbols *symbols, sweep_where **where, sp_error *err);
void sweep_where_free(sweep_where *where);

// Does the condition hold where axis a takes its value number digit[a]? Wrong types and division by
// zero are content errors with the character. O(length of the condition); thread-safe.
sp_status sweep_where_holds(const sweep_where *where, const int64_t *digit, bool *holds,
                            sp_error *err);

// A part of the condition that must hold by itself: the condition is parts joined by &&.
typedef struct sweep_where_part {
    int node;
    uint32_t axes; // bit a: it reads axis a
} sweep_where_part;

// Writes the parts and returns their number; what is beyond `most` is one part with the last.
int sweep_where_parts(const sweep_where *where, sweep_where_part *parts, int most);

// Can the condition not hold whatever the axes that the part does not read? False also where the
// part cannot be evaluated: sweep_where_holds() tells why.
bool sweep_where_excludes(const sweep_where *where, const sweep_where_part *part,
                          const int64_t *digit);

#endif
