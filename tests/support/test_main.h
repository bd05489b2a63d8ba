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

// main() of a test program: runs the case named by the first argument (an unknown name fails), or
// all.
#define SP_TEST_MAIN(tests)                                                   \
    int main(int argc, char **argv)                                           \
    {                                                                         \
        if (argc > 1) {                                                       \
            int found = 0;                                                    \
            for (size_t i = 0; i < sizeof(tests) / sizeof((tests)[0]); i++) { \
                found |= strcmp((tests)[i].name, argv[1]) == 0;               \
            }                                                                 \
            if (!found) {                                                     \
                fprintf(stderr, "no test case '%s'\n", argv[1]);              \
                return 1;                                                     \
            }                                                                 \
            cmocka_set_test_filter(argv[1]);                                  \
        }                                                                     \
        return cmocka_run_group_tests((tests), NULL, NULL);                   \
    }

#endif
