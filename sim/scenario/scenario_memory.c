// The memory section of a scenario: what is kept, recomputed and copied away, and how much of a GPU
// a step may take.
#include "sim/base/units.h"
#include "sim/scenario/scenario_private.h"

static const double most_gib = 1e6;

static void read_limit(sp_object *memory, sp_scenario *scenario);

void sp_i_scenario_read_memory(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    sp_object memory;
    sp_object_member(&reader->root, "memory", &memory);
    scenario->memory.recompute =
        (sp_recompute)sp_object_enum(&memory, "recompute", sp_recompute_names, SP_RECOMPUTE_NONE);
    scenario->memory.attention =
        (sp_attention)sp_object_enum(&memory, "attention", sp_attention_names, SP_ATTENTION_FLASH);
    scenario->memory_model = (sp_memory_model)sp_object_enum(
        &memory, "model", sp_i_memory_model_names, (int)SP_MEMORY_TENSORS);
    scenario->memory.offload_ratio = sp_object_real(&memory, "offload_ratio", 0.0, 0.0, 1.0);
    read_limit(&memory, scenario);
    sp_object_end(&memory);
}

// A stated limit goes before what the reserve leaves.
static void read_limit(sp_object *memory, sp_scenario *scenario)
{
    const sp_cluster *cluster = &scenario->cluster;
    double reserve_gib = sp_object_real(memory, "reserve_gib",
                                        sp_gib_from_bytes(cluster->reserve_bytes), 0.0, most_gib);
    scenario->memory_reserve_bytes = (int64_t)(reserve_gib * SP_GIB + 0.5);
    scenario->memory_limit_bytes = cluster->memory_bytes - scenario->memory_reserve_bytes;
    if (sp_object_has(memory, "limit_gib")) {
        double gib = sp_object_real(memory, "limit_gib", 1.0, 0.001, most_gib);
        scenario->memory_limit_bytes = (int64_t)(gib * SP_GIB + 0.5);
    } else if (cluster->memory_bytes > 0 && scenario->memory_limit_bytes <= 0) {
        sp_object_error(memory, "reserve_gib",
                        "expected less than the %.4g GiB that a GPU has, got %.4g",
                        sp_gib_from_bytes(cluster->memory_bytes), reserve_gib);
    }
}
