// What every test file uses. A program holds the files that link the same; each case is a CTest
// entry of its own, FILE.CASE on the command line.
#ifndef SLIMPACK_TESTS_SUPPORT_TEST_MAIN_H
#define SLIMPACK_TESTS_SUPPORT_TEST_MAIN_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "sim/base/status.h"

typedef struct test_case {
    const char *file; // as the compiler names it
    const char *name;
    void (*run)(void);
    struct test_case *next;
} test_case;

// Puts a case at the end of the list of this program's cases.
void test_case_add(test_case *added);

// TEST(name) { ... } defines a case and lists it before main() of test_main.c runs. CMake reads the
// names from lines that begin with TEST(, TEST_CALL(, TEST_ROUNDS( or TEST_OF_VALUES(.
#define TEST(case_name)                                                                       \
    static void case_name(void);                                                              \
    __attribute__((constructor)) static void case_name##_is_listed(void)                      \
    {                                                                                         \
        static test_case listed = {.file = __FILE__, .name = #case_name, .run = (case_name)}; \
        test_case_add(&listed);                                                               \
    }                                                                                         \
    static void case_name(void)

// TEST_CALL(name, call) is a case that makes one call.
#define TEST_CALL(case_name, call) \
    TEST(case_name)                \
    {                              \
        call;                      \
    }

// TEST_ROUNDS(name, seed, rounds) { ... } is a case that runs its block so many times, on draws of
// one prng, a pointer; `round` counts from 0.
#define TEST_ROUNDS(case_name, seed, rounds)                 \
    static void case_name##_round(sp_prng *prng, int round); \
    TEST(case_name)                                          \
    {                                                        \
        sp_prng prng = prng_seeded(seed);                    \
        for (int round = 0; round < (rounds); round++) {     \
            case_name##_round(&prng, round);                 \
        }                                                    \
    }                                                        \
    static void case_name##_round(sp_prng *prng, int round)

// TEST_OF_VALUES(name) { ... } is a case that compares values of long runs, whose code other cases
// run as well: sanitizers, which find no wrong values, leave it out (label `figures`, preset dev).
#define TEST_OF_VALUES(case_name) TEST(case_name)

static inline sp_prng prng_seeded(uint64_t seed)
{
    sp_prng prng;
    sp_prng_seed(&prng, seed);
    return prng;
}

// From 0 to bound - 1.
static inline int prng_below(sp_prng *prng, int bound)
{
    return (int)sp_prng_below(prng, (uint64_t)bound);
}

// Entries of an array, and one of them that is drawn.
#define COUNT_OF(array) (int)(sizeof(array) / sizeof *(array))
#define ONE_OF(prng, array) (array)[prng_below(prng, COUNT_OF(array))]

// AUTO(type) name; type_fini(&name) at the end of its block, by which it must be made. AUTO_FREE:
// what a pointer points to is freed there. OWNED(type) name is a pointer, freed by type_free()
// there, where OWNS(type) stands above; OWNS_AS(name, type) does where another function frees it,
// name_free(). json_auto_t is jansson's.
#define AUTO(type) __attribute__((cleanup(type##_fini))) type
#define AUTO_FREE __attribute__((cleanup(auto_free)))
static inline void auto_free(void *pointer)
{
    free(*(void **)pointer);
}
#define OWNED(type) __attribute__((cleanup(type##_end))) type##_owned
#define OWNS(type) OWNS_AS(type, type)
#define OWNS_AS(name, type)                     \
    typedef type *name##_owned;                 \
    static inline void name##_end(type **owned) \
    {                                           \
        name##_free(*owned);                    \
    }

// Makes a file of a text, or of bytes.
void put_file(const char *path, const char *text);
void put_file_bytes(const char *path, const void *bytes, size_t count);

// How many rounds of random draws a test makes: all, or a quarter of them under a sanitizer, which
// takes many times as long and finds other faults than wrong values.
int test_rounds(int all);
// The step through a table each of whose rows runs code that others run, too, on other values: 4
// under a sanitizer.
int test_step(void);
bool test_is_sanitized(void);

// How many rounds that take long in any build a test makes: an eighth of them, or all in a full
// run, where the environment has SP_TEST_FULL=1 (ctest --preset full).
int test_draws(int all);
bool test_is_full(void);
// Leaves the case out but in a full run: it takes tens of seconds, and others run the same code.
void test_in_full_run_alone(void);

// The error of the calls that a case makes, each thread's own.
extern _Thread_local sp_error test_error;
#define ERR (&test_error)

// Fails the case, with the call and the first message of ERR, unless `call` returns SP_OK;
// must_succeed_for says besides on what input.
#define must_succeed(call) must_succeed_for("", call)
#define must_succeed_for(input, call) \
    (sp_error_clear(ERR), check_call(input, (call), #call, __FILE__, __LINE__))
void check_call(const char *input, sp_status status, const char *call, const char *file, int line);

// Fails the case unless `call` returns the status and the first message of ERR is `message`;
// must_fail_with: contains it.
#define must_fail(call, status, message) \
    (sp_error_clear(ERR), check_refusal((call), status, message, true, #call, __FILE__, __LINE__))
#define must_fail_with(call, status, message) \
    (sp_error_clear(ERR), check_refusal((call), status, message, false, #call, __FILE__, __LINE__))
void check_refusal(sp_status status, sp_status expected, const char *message, bool whole,
                   const char *call, const char *file, int line);

// Fails the case, with a message of its own, unless the condition holds.
#define must_hold(condition, ...)  \
    do {                           \
        if (!(condition)) {        \
            fail_msg(__VA_ARGS__); \
        }                          \
    } while (0)

// Fails the case unless the value is as near to the expected one as said: relative to the expected
// one, within a distance, or within the sum of both.
#define assert_close(value, expected, relative) assert_near(value, expected, relative, 0.0)
#define assert_within(value, expected, distance) assert_near(value, expected, 0.0, distance)
#define assert_near(value, expected, relative, distance) \
    check_near(value, expected, relative, distance, __FILE__, __LINE__)
void check_near(double value, double expected, double relative, double distance, const char *file,
                int line);

#endif
