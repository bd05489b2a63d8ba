// A committed set of scenarios (slimpack/validation-set/1): one base, and named cases that differ
// from it in some settings. Cases stand in groups that share settings of their own, such as a model
// and the profile that was measured for it. Groups and cases may state a "clock" beside "set".
#ifndef SLIMPACK_EXPERIMENTS_EXECUTION_SCENARIO_SET_H
#define SLIMPACK_EXPERIMENTS_EXECUTION_SCENARIO_SET_H

#include <jansson.h>

#include "backends/api/backend.h"
#include "sim/scenario/scenario.h"

#define SP_SCENARIO_SET_SCHEMA "slimpack/validation-set/1"

typedef struct sp_scenario_case {
    const char *group, *name; // belong to the set's document
    const char *clock;        // that it is to be executed by; NULL: not stated
    sp_scenario scenario;
} sp_scenario_case;

// The largest that errors of a set may be; negative: not stated.
typedef struct sp_scenario_set_bounds {
    double iteration_time_mape; // fraction
    double bubble_ratio_abs;    // of any case
    double peak_memory_mape;    // fraction
} sp_scenario_set_bounds;

typedef struct sp_scenario_set {
    json_t *document; // owned
    sp_scenario_set_bounds bounds;
    sp_scenario_case *cases; // owned, in the order of the file
    size_t count;
} sp_scenario_set;

// Does the document say that it is a set?
bool sp_is_scenario_set(const json_t *document);

// Reads every scenario of a set; takes over `document`. Settings count in the order base, group,
// case, overrides (`path=value`, as --set gives them). Errors are content errors that name the
// case.
sp_status sp_scenario_set_from_json(json_t *document, const char *source,
                                    const char *const *overrides, int override_count,
                                    sp_scenario_set *set, sp_error *err);
void sp_scenario_set_fini(sp_scenario_set *set);

#endif
