// Status codes, the error record and its construction. Everyone may use this file.
#ifndef SLIMPACK_SIM_BASE_STATUS_H
#define SLIMPACK_SIM_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

#if defined(__GNUC__)
#define SP_PRINTF(fmt_index, first_arg) __attribute__((format(printf, fmt_index, first_arg)))
#define SP_NORETURN __attribute__((noreturn))
#define SP_UNUSED __attribute__((unused)) // behind an argument that all of a kind of function have
#define SP_EXPORT __attribute__((visibility("default")))
#else
#define SP_PRINTF(fmt_index, first_arg)
#define SP_NORETURN
#define SP_UNUSED
#define SP_EXPORT
#endif

// Marks the functions and the data that the installed library exports (slimpack.h). All others are
// hidden. Both have C linkage, also where C++ reads the headers.
#ifdef __cplusplus
#define SP_API extern "C" SP_EXPORT
#define SP_API_DATA extern "C" SP_EXPORT
#else
#define SP_API SP_EXPORT
#define SP_API_DATA extern SP_EXPORT
#endif

// X(name, exit status of the command line for it, text)
#define SP_STATUS_LIST(X)                           \
    X(SP_OK, 0, "ok")                               \
    X(SP_ERR_INFEASIBLE, 1, "no feasible answer")   \
    X(SP_ERR_USAGE, 2, "wrong usage")               \
    X(SP_ERR_IO, 3, "cannot read or write")         \
    X(SP_ERR_ACCESS, 3, "access is refused")        \
    X(SP_ERR_SYNTAX, 3, "malformed input")          \
    X(SP_ERR_CONTENT, 3, "invalid input")           \
    X(SP_ERR_DEADLOCK, 3, "the plan cannot finish") \
    X(SP_ERR_LIMIT, 4, "a limit was hit")           \
    X(SP_ERR_SYSTEM, 4, "a limit of the system")    \
    X(SP_ERR_NO_MEMORY, 4, "out of memory")         \
    X(SP_ERR_STOPPED, 130, "stopped by a signal")   \
    X(SP_ERR_INTERNAL, 70, "internal defect")

typedef enum sp_status {
#define X(name, exit_status, text) name,
    SP_STATUS_LIST(X)
#undef X
} sp_status;

// One line of English for a status; never NULL.
SP_API const char *sp_status_text(sp_status status);

// The exit status that the command line gives for a status (0, 1, 2, 3, 4, 70 or 130).
SP_API int sp_status_exit(sp_status status);

// Does it end whatever goes on, as memory or file handles that ran out, a file that may not be
// read, a signal or a defect of ours? All others are answers about what was asked: where several
// things are tried, a row or a candidate with its reason.
bool sp_status_is_fatal(sp_status status);

enum {
    SP_ERROR_MESSAGES = 10, // content errors kept of one file
    SP_ERROR_TEXT = 640,    // bytes of one message, terminator included
};

// Errors, filled by the failing function. The first error decides `status`; readers that
// can go on collect up to SP_ERROR_MESSAGES messages of the same kind. Each message is complete:
// `source:line:column: text` for syntax, `source: path: text` for content.
typedef struct sp_error {
    sp_status status;
    int count;   // messages held
    int dropped; // further messages that did not fit
    char message[SP_ERROR_MESSAGES][SP_ERROR_TEXT];
} sp_error;

// Empties the record. An sp_error must be cleared (or zeroed) before its first use.
SP_API void sp_error_clear(sp_error *err);

// Adds a message and returns `status`. With an earlier error of another status in the record
// nothing is added (the first error wins) and the earlier status is returned. `err` may be NULL.
sp_status sp_error_set(sp_error *err, sp_status status, const char *format, ...) SP_PRINTF(3, 4);

// As sp_error_set with `source:line:column: ` before the text; line and column count from 1, and a
// column or a line of 0 is left out.
sp_status sp_error_at(sp_error *err, sp_status status, const char *source, long line, long column,
                      const char *format, ...) SP_PRINTF(6, 7);

// As sp_error_set with `source: path: ` before the text (path: JSON path such as `parallel.pp`;
// empty or NULL for the document itself).
sp_status sp_error_in(sp_error *err, sp_status status, const char *source, const char *path,
                      const char *format, ...) SP_PRINTF(5, 6);

// Adds the messages of another record and returns the status of that record.
sp_status sp_error_add(sp_error *err, const sp_error *from);

// Ends the function that it stands in with the status of the call, unless that is SP_OK.
#define SP_TRY(call)              \
    do {                          \
        sp_status tried = (call); \
        if (tried != SP_OK) {     \
            return tried;         \
        }                         \
    } while (0)

// Shorthand for SP_ERR_NO_MEMORY with what was being allocated.
sp_status sp_error_no_memory(sp_error *err, const char *what);

// "source: text" of an error number of the system: SP_ERR_NO_MEMORY or SP_ERR_SYSTEM where it ran
// out of something, so that another time may go well, SP_ERR_ACCESS where it refuses a file that is
// there, else SP_ERR_IO.
sp_status sp_error_system(sp_error *err, const char *source, int error);

// A check on our own code, kept in release builds: prints file, line and condition, then aborts.
#define SP_ASSERT(condition) \
    ((condition) ? (void)0 : sp_i_assert_failed(#condition, __FILE__, __LINE__))

// A place that no value of ours leads to.
#define SP_UNREACHABLE(what) sp_i_assert_failed(what, __FILE__, __LINE__)

SP_NORETURN void sp_i_assert_failed(const char *condition, const char *file, int line);

#endif
