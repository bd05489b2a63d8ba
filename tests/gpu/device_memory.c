#include "tests/gpu/device_memory.h"

#include <math.h>
#include <stddef.h>

bool device_memory_of(const json_t *report, const sp_measured_step *step, device_memory *memory)
{
    const struct {
        const char *key;
        int64_t *value;
    } members[] = {{"context", &memory->context},       {"libraries", &memory->libraries},
                   {"workspaces", &memory->workspaces}, {"beside", &memory->beside},
                   {"block_peak", &memory->block_peak}, {"device", &memory->device}};
    const json_t *found = json_object_get(report, "memory");
    *memory = (device_memory){0};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const json_t *value = json_object_get(found, members[i].key);
        if (!json_is_integer(value)) {
            return false;
        }
        *members[i].value = json_integer_value(value);
    }
    for (size_t r = 0; r < step->memory.rank_count; r++) {
        memory->counted += sp_bytes_total(&step->memory.ranks[r].peak);
    }
    const double taken = (double)(memory->block_peak - memory->workspaces);
    memory->error = taken > 0.0 ? (double)memory->counted / taken - 1.0 : 0.0;
    return taken > 0.0;
}

double device_memory_mape(const device_memory *cases, int count)
{
    double sum = 0.0;
    for (int i = 0; i < count; i++) {
        sum += fabs(cases[i].error);
    }
    return sum / count;
}
