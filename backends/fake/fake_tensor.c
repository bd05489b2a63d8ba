#include "backends/fake/fake_tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"

static sp_status wrong(const char *text, sp_error *err)
{
    return sp_error_set(err, SP_ERR_USAGE,
                        "backend 'fake': tensor: expected NAME=V;V;..., got \"%.100s\"", text);
}

sp_status sp_i_fake_tensor_read(const char *text, sp_i_fake_tensor *tensor, sp_error *err)
{
    size_t name = strcspn(text, "=");
    *tensor = (sp_i_fake_tensor){.info = {.precision = SP_FP64, .dims = 1}};
    if (name == 0 || name >= SP_TENSOR_NAME || text[name] == '\0') {
        return wrong(text, err);
    }
    memcpy(tensor->info.name, text, name);
    const char *rest = text + name + 1;
    // No value is shorter than one character and a semicolon.
    tensor->values = sp_malloc((strlen(rest) / 2 + 1) * sizeof *tensor->values);
    if (tensor->values == NULL) {
        return sp_error_no_memory(err, "a tensor");
    }
    bool more = true;
    while (more) {
        char *end;
        double value = strtod(rest, &end);
        if (end == rest || !isfinite(value) || (*end != ';' && *end != '\0')) {
            sp_free(tensor->values);
            tensor->values = NULL;
            return wrong(text, err);
        }
        tensor->values[tensor->info.elements++] = value;
        more = *end == ';';
        rest = end + 1;
    }
    tensor->info.size[0] = tensor->info.elements;
    return SP_OK;
}
