#include <string.h>

#include "backends/host/calibrate/calibration.h"
#include "sim/base/alloc.h"

enum { COPIED_BYTES = 64 << 20 };

typedef struct copy {
    char *from, *to;
} copy;

static void run(void *context)
{
    const copy *c = context;
    memcpy(c->to, c->from, COPIED_BYTES);
}

sp_status sp_i_host_copy_rate(const sp_i_host_calibration *c, double *bytes_per_s, sp_error *err)
{
    copy made = {sp_i_malloc(COPIED_BYTES), sp_i_malloc(COPIED_BYTES)};
    bool ok = made.from != NULL && made.to != NULL;
    if (ok) {
        memset(made.from, 1, COPIED_BYTES);
        *bytes_per_s = COPIED_BYTES / sp_i_host_time(run, &made, 0.01 * c->limit_s).quartile_s;
    }
    sp_i_free(made.from);
    sp_i_free(made.to);
    return ok ? SP_OK : sp_error_no_memory(err, "the copies");
}
