#include "backends/machine/machine.h"

int64_t sp_element_bytes(sp_element element)
{
    static const int64_t bytes[] = {4, 8, 2, 1};
    return bytes[element];
}
