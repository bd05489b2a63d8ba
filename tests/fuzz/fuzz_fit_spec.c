// A fit specification from arbitrary bytes: it is refused with a message, or what it sets can be
// put on a profile document and the document keeps what was put there.
#include <stddef.h>
#include <stdint.h>

#include "experiments/fit/fit.h"
#include "sim/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_spec(const fit_spec *spec)
{
    SP_ASSERT(spec->constant_count >= 1 && spec->constant_count <= FIT_CONSTANTS);
    SP_ASSERT(spec->table_count >= 1 && spec->table_count <= FIT_TABLES);
    json_t *document = json_object();
    fit_document_apply(document, spec->start);
    for (int c = 0; c < spec->constant_count; c++) {
        const fit_constant *constant = &spec->constants[c];
        SP_ASSERT(constant->least > 0.0 && constant->least < constant->most);
        fit_document_set(document, constant->path, json_real(constant->least));
    }
    // No constant lies in the way of another one.
    for (int c = 0; c < spec->constant_count; c++) {
        const json_t *value = fit_document_get(document, spec->constants[c].path);
        SP_ASSERT(json_is_real(value) && json_real_value(value) == spec->constants[c].least);
    }
    for (int t = 0; t < spec->table_count; t++) {
        SP_ASSERT(fit_spec_table(spec, spec->tables[t].name) == t);
    }
    for (int a = 0; a < spec->ablation_count; a++) {
        fit_document_apply(document, spec->ablations[a].set);
    }
    json_decref(document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *document = NULL;
    fit_spec spec;
    sp_error err;
    sp_error_clear(&err);
    if (sp_json_read_text((const char *)data, size, "fuzz", &document, NULL) != SP_OK) {
        return 0;
    }
    sp_status status = fit_spec_from_json(document, "fuzz", &spec, &err);
    SP_ASSERT((status == SP_OK) == (err.count == 0));
    if (status == SP_OK) {
        check_spec(&spec);
        fit_spec_fini(&spec);
    }
    return 0;
}
