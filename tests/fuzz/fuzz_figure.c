// A published figure from arbitrary bytes: it is refused, or every point has its scenarios.
#include <stdint.h>

#include "experiments/figures/figure.h"
#include "sim/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *document = NULL;
    figure_spec spec;
    sp_error err;
    sp_error_clear(&err);
    if (sp_json_read_text((const char *)data, size, "fuzz", &document, NULL) != SP_OK) {
        return 0;
    }
    sp_status status = figure_spec_from_json(document, "fuzz", &spec, &err);
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    for (size_t i = 0; status == SP_OK && i < spec.count; i++) {
        const figure_point *point = &spec.points[i];
        SP_ASSERT(point->combinations > 0);
        for (int c = 0; c < point->combinations; c++) {
            SP_ASSERT(point->scenarios[c] >= 0 &&
                      (size_t)point->scenarios[c] < spec.scenario_count);
            SP_ASSERT(point->baselines == NULL ||
                      (size_t)point->baselines[c] < spec.scenario_count);
        }
    }
    if (status == SP_OK) {
        figure_spec_fini(&spec);
    }
    return 0;
}
