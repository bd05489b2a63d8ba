// A log of training from arbitrary bytes: it is refused with a message, or its figures are those of
// steps that it has. The first byte says how many steps are left out.
#include <math.h>
#include <stdint.h>

#include "experiments/measure/training_log.h"
#include "sim/base/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_figure(const sp_logged_figure *f, size_t kept)
{
    SP_ASSERT(f->steps <= kept);
    SP_ASSERT((f->steps > 0) == isfinite(f->median));
    if (f->steps > 0) {
        SP_ASSERT(f->median > 0.0 && f->p10 > 0.0 && f->p10 <= f->median && f->median <= f->p90);
        SP_ASSERT(isfinite(f->mean) && f->mean > 0.0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    sp_error err;
    sp_error_clear(&err);
    sp_training_log log;
    sp_status status = sp_training_log_from_text((const char *)data + 1, size - 1, "fuzz.log",
                                                 (int)(data[0] % 8) - 1, &log, &err);
    SP_ASSERT(status == err.status);
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    if (status != SP_OK) {
        SP_ASSERT(log.files == NULL);
        return 0;
    }
    SP_ASSERT(log.steps == log.warm_up + log.slow + log.kept);
    SP_ASSERT(log.files[0].known > 0 && log.files[0].known <= log.files[0].lines);
    SP_ASSERT(log.form >= -1 && log.form < SP_LOG_FORMS);
    SP_ASSERT((log.steps > 0) == (log.kept > 0) && log.steps <= log.files[0].steps);
    for (int f = 0; f < SP_LOGGED_FIGURES; f++) {
        check_figure(&log.figures[f], log.kept);
    }
    if (log.kept > 0) {
        SP_ASSERT(log.figures[log.basis].steps == log.kept);
        double ms = sp_training_log_ms(&log, 4096.0, 2.0, 8);
        SP_ASSERT(isfinite(ms) && ms > 0.0);
    }
    for (int m = 0; m < SP_LOGGED_MEMORIES; m++) {
        SP_ASSERT(!log.memory[m].known ||
                  (isfinite(log.memory[m].bytes) && log.memory[m].bytes > 0));
    }
    sp_training_log_fini(&log);
    return 0;
}
