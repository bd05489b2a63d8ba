// libslimpack for programs of your own, in C and in C++: all that the installed library exports.
//
//     cc  program.c   $(pkg-config --cflags --libs slimpack)
//     c++ program.cpp $(pkg-config --cflags --libs slimpack)
//     find_package(slimpack)  target_link_libraries(program PRIVATE slimpack::slimpack)
//
// scenario   sp_scenario_read() from a file, sp_scenario_from_json() from a document; a scenario is
//            resolved once, is only read afterwards, and any number of planners and threads share
//            it
// simulate   sp_evaluate_batches() forms the batches of a scenario's workload, sp_evaluate() packs,
//            schedules and simulates them; sp_result_*() and sp_result_json() say what came out
// compare    sp_compare() evaluates several strategies on the same batches
// plan       sp_planner_new() or sp_planner_open() and sp_plan_batch() plan batches of lengths that
//            the caller brings; sp_plan_json_*() write and read plan.json,
//            sp_evaluate_plans() simulates plans
// export     sp_export_*() write a timeline as a trace, as text or as a memory snapshot, from the
//            observer of sp_evaluate_options; sp_predecessors_new() finds what each action waited
//            for
//
// Functions that can fail return sp_status and fill an sp_error, which must be cleared before its
// first use. What a function hands out is freed by the function beside it: sp_scenario_fini(),
// sp_batches_fini(), sp_result_fini(), sp_compare_fini(), sp_batch_plan_free(),
// sp_batch_plan_text_free(), sp_plan_file_fini(), sp_planner_free(), sp_scenario_cache_free();
// documents (json_t) are jansson's, freed by json_decref(). Functions and data that SP_API and
// SP_API_DATA mark are exported, and no others: the headers show more than that.
#ifndef SLIMPACK_SOLVER_SLIMPACK_H
#define SLIMPACK_SOLVER_SLIMPACK_H

#include "sim/base/json.h"
#include "sim/base/status.h"
#include "sim/metrics/export.h"
#include "sim/metrics/predecessors.h"
#include "sim/metrics/result.h"
#include "sim/plan/plan_json.h"
#include "sim/scenario/scenario.h"
#include "solver/evaluate/evaluate.h"
#include "solver/evaluate/plan_batch.h"
#include "solver/strategy.h"

#endif
