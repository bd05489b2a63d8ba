// Any bytes as a Hugging Face config.json: refused with a message or read as a model that the rest
// of the library can count with.
#include <stddef.h>
#include <stdint.h>

#include "sim/base/alloc.h"
#include "sim/memory/footprint.h"
#include "sim/model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *root = NULL;
    sp_error err;
    sp_error_clear(&err);
    size_t bytes = 0;
    char *text = sp_json_from_python((const char *)data, size, &bytes);
    SP_ASSERT(text != NULL);
    sp_status read = sp_json_read_text(text, bytes, "config.json", &root, &err);
    sp_free(text);
    if (read != SP_OK) {
        SP_ASSERT(err.count > 0);
        return 0;
    }
    sp_model model;
    sp_status status = sp_model_from_hf(root, "config.json", &model, &err);
    json_decref(root);
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    if (status == SP_OK) {
        SP_ASSERT(sp_model_parameters(&model) > 0);
        sp_layout layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1, .zero = 1};
        SP_ASSERT(sp_layout_check(&layout, &model, "config.json", &err) == SP_OK);
        sp_stage stage;
        SP_ASSERT(sp_layout_stages(&layout, &model, "config.json", &stage, &err) == SP_OK);
        sp_bytes states;
        sp_memory_options options = {.recompute = SP_RECOMPUTE_NONE};
        sp_footprint_states(&model, &layout, &options.stack, &stage, 1, &states);
        SP_ASSERT(states.of[SP_MEM_PARAMETERS] == 2 * sp_model_parameters(&model));
        sp_unit_bytes unit;
        sp_footprint_unit(&model, &layout, &stage, &options,
                          &(sp_unit_load){.tokens = 1 << 20, .pairs = INT64_C(1) << 40}, &unit);
        SP_ASSERT(sp_bytes_total(&unit.held) > 0);
    }
    return 0;
}
