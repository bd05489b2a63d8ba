// Numbers as elements of any type, for tests of what moves and adds them.
#ifndef SLIMPACK_TESTS_SUPPORT_ELEMENT_NUMBERS_H
#define SLIMPACK_TESTS_SUPPORT_ELEMENT_NUMBERS_H

#include "backends/api/device_runtime.h"

enum { WIDEST_ELEMENT = 8 };

// Element i of an array that need not be aligned. A byte holds |x| without what is behind the
// point, modulo 256.
void store_element(sp_element element, char *at, int64_t i, double x);
double load_element(sp_element element, const char *at, int64_t i);
// x as it comes back.
double as_element(sp_element element, double x);

#endif
