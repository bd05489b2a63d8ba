// One program per tested file; each case is a CTest entry of its own, named on the command line.
#ifndef SLIMPACK_TESTS_SUPPORT_TEST_MAIN_H
#define SLIMPACK_TESTS_SUPPORT_TEST_MAIN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct test_case {
    const char *name;
    void (*run)(void);
    struct test_case *next;
} test_case;

// Puts a case at the end of the list of this program's cases.
void test_case_add(test_case *added);

// TEST(name) { ... } defines a case and lists it before main() of test_main.c runs. CMake reads the
// names from lines that begin with TEST(.
#define TEST(case_name)                                                     \
    static void case_name(void);                                            \
    __attribute__((constructor)) static void case_name##_is_listed(void)    \
    {                                                                       \
        static test_case listed = {.name = #case_name, .run = (case_name)}; \
        test_case_add(&listed);                                             \
    }                                                                       \
    static void case_name(void)

#endif
