#include "backends/api/capabilities.h"

const char *sp_capability_text(sp_capability capability)
{
    static const char *const texts[] = {
#define X(name, text) text,
        SP_CAPABILITY_LIST(X)
#undef X
    };
    return texts[capability];
}
