#include "tests/support/element_numbers.h"

#include <math.h>
#include <string.h>

#include "kernels/bf16.h"

void store_element(sp_element element, char *at, int64_t i, double x)
{
    sp_bf16 half = sp_bf16_from_float((float)x);
    float narrow = (float)x;
    unsigned char byte = (unsigned char)(int)fmod(fabs(x), 256);
    const void *bits[] = {&narrow, &x, &half, &byte};
    size_t bytes = (size_t)sp_element_bytes(element);
    memcpy(at + (size_t)i * bytes, bits[element], bytes);
}

double load_element(sp_element element, const char *at, int64_t i)
{
    char bits[WIDEST_ELEMENT];
    float narrow;
    double wide;
    sp_bf16 half;
    size_t bytes = (size_t)sp_element_bytes(element);
    memcpy(bits, at + (size_t)i * bytes, bytes);
    switch (element) {
    case SP_ELEMENT_F32:
        memcpy(&narrow, bits, sizeof narrow);
        return (double)narrow;
    case SP_ELEMENT_F64:
        memcpy(&wide, bits, sizeof wide);
        return wide;
    case SP_ELEMENT_BF16:
        memcpy(&half, bits, sizeof half);
        return (double)sp_bf16_to_float(half);
    case SP_ELEMENT_BYTE:
        break;
    }
    return (unsigned char)bits[0];
}

double as_element(sp_element element, double x)
{
    char bits[WIDEST_ELEMENT];
    store_element(element, bits, 0, x);
    return load_element(element, bits, 0);
}
