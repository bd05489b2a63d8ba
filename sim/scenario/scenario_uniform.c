// Reads uniform_costs, and refuses what has no use beside them.
#include "sim/scenario/scenario_private.h"

// Bounds of uniform costs: 1 ns to 1000 s for one action, and a whole step within half of what an
// int64_t of nanoseconds holds.
static const double least_ms = 1e-6;
static const double most_ms = 1e6;
static const double most_step_ms = 4e12;

static const double most_units = 1e6;

static void read_memory_units(sp_object *parent, sp_uniform_costs *costs)
{
    sp_object units;
    costs->has_units = sp_object_member(parent, "memory_units", &units);
    if (!costs->has_units || units.json == NULL) {
        return;
    }
    sp_object_require(&units, "f");
    sp_object_require(&units, "b");
    sp_object_require(&units, "w");
    costs->unit_f = sp_object_real(&units, "f", 0.0, -most_units, most_units);
    costs->unit_b = sp_object_real(&units, "b", 0.0, -most_units, most_units);
    costs->unit_w = sp_object_real(&units, "w", 0.0, -most_units, most_units);
    double sum = costs->unit_f + costs->unit_b + costs->unit_w;
    if (sum > 1e-9 || sum < -1e-9) {
        sp_object_error(parent, "memory_units", "f + b + w must be 0, is %g", sum);
    }
    sp_object_end(&units);
}

static void read_costs(sp_i_scenario_reader *reader)
{
    sp_uniform_costs *costs = &reader->scenario->uniform_costs;
    sp_object object;
    if (!sp_object_member(&reader->root, "uniform_costs", &object) || object.json == NULL) {
        return;
    }
    sp_object_require(&object, "f_ms");
    sp_object_require(&object, "b_ms");
    costs->f_ms = sp_object_real(&object, "f_ms", 1.0, least_ms, most_ms);
    costs->b_ms = sp_object_real(&object, "b_ms", 1.0, 0.0, most_ms);
    costs->w_ms = sp_object_real(&object, "w_ms", 0.0, 0.0, most_ms);
    costs->p2p_ms = sp_object_real(&object, "p2p_ms", 0.0, 0.0, most_ms);
    costs->per_chunk = sp_object_bool(&object, "per_chunk", false);
    costs->attention_share = sp_object_real(&object, "attention_share", 0.0, 0.0, 1.0);
    read_memory_units(&object, costs);
    sp_object_end(&object);
}

// Keys without a use beside uniform costs, and why.
static void refuse_beside_uniform(sp_i_scenario_reader *reader)
{
    static const char *const refused[][2] = {
        {"model", "uniform_costs stand in place of a model"},
        {"cluster", "uniform_costs give every time, no cluster is asked"},
        {"nodes", "uniform_costs give every time, no cluster is asked"},
        {"profile", "uniform_costs give every time, no profile is asked"},
        {"stack", "uniform_costs give every time, no stack is asked"},
        {"network", "uniform_costs give every time, no network is asked"},
        {"jitter", "uniform_costs give every time, no GPU is asked"},
        {"memory", "uniform_costs count activation units, see uniform_costs.memory_units"},
        {"workload", "uniform_costs have no samples, see schedule.microbatches"},
        {"strategy", "uniform_costs have no samples to pack"},
        {"prefill", "uniform_costs have no prompts to read"},
        {"decode", "uniform_costs are those of a training step"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (sp_object_has(&reader->root, refused[i][0])) {
            sp_object_error(&reader->root, refused[i][0], "has no use here: %s", refused[i][1]);
        }
    }
}

void sp_i_scenario_read_uniform(sp_i_scenario_reader *reader)
{
    read_costs(reader);
    refuse_beside_uniform(reader);
}

// Uniform costs know pipeline ranks, chunks and data-parallel ranks; all else must stay at what has
// no effect.
void sp_i_scenario_refuse_parallel(const sp_i_scenario_reader *reader, sp_object *parallel)
{
    static const char reason[] = "has no use beside uniform_costs, got %s";
    static const char *const keys[] = {
        "tp",           "cp",   "zero", "sequence_parallel", "vocab_parallel", "layers_per_chunk",
        "stage_layers", "order"};
    const sp_layout *layout = &reader->scenario->layout;
    bool neutral[] = {layout->tp == 1,
                      layout->cp == 1,
                      layout->zero == 1,
                      !layout->sequence_parallel,
                      !layout->vocab_parallel,
                      !sp_object_has(parallel, "layers_per_chunk"),
                      !sp_object_has(parallel, "stage_layers"),
                      !layout->order.given};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!neutral[i]) {
            char found[80];
            sp_json_quote(sp_object_get(parallel, keys[i]), found, sizeof found);
            sp_object_error(parallel, keys[i], reason, found);
        }
    }
}

void sp_i_scenario_resolve_uniform(sp_i_scenario_reader *reader)
{
    sp_scenario *scenario = reader->scenario;
    const sp_uniform_costs *costs = &scenario->uniform_costs;
    if (scenario->microbatches == 0) {
        scenario->microbatches = 2 * scenario->layout.pp;
    }
    // All actions and transfers one after the other.
    double units = (double)scenario->microbatches * scenario->layout.pp * scenario->layout.chunks;
    double step_ms = units * (costs->f_ms + costs->b_ms + costs->w_ms + 2.0 * costs->p2p_ms);
    if (step_ms > most_step_ms) {
        sp_object_error(&reader->root, "uniform_costs",
                        "the actions of a step add up to %g ms, more than the %g that are timed",
                        step_ms, most_step_ms);
    }
}
