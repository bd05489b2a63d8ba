#include "solver/evaluate/plan_batch.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/plan/plan_json.h"
#include "solver/evaluate/evaluation.h"

struct sp_planner {
    const sp_scenario *scenario;
    sp_scenario *own;     // of sp_planner_open
    sp_scenario streamed; // as resolved, but that batches have lengths of their own; borrows all
    sp_evaluate_options options;
    sp_result result; // of the batch in work
    sp_i_evaluation evaluation;
    char *head; // of a plan's text, up to the first batch
    size_t head_bytes;
    bool tried_settings; // for a batch that is out of memory
};

static sp_status make_head(sp_planner *planner, sp_error *err);
static sp_status make_batch(const sp_scenario *scenario, const int64_t *tokens, size_t count,
                            sp_batches *batches, sp_error *err);
static sp_status evaluate(sp_planner *planner, const sp_batches *batches, sp_batch_plan *plan,
                          sp_error *err);

sp_status sp_planner_new(const sp_scenario *scenario, sp_planner **planner, sp_error *err)
{
    *planner = NULL;
    if (scenario->uniform) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "uniform_costs",
                           "have no samples that could be planned");
    }
    sp_planner *made = sp_calloc(1, sizeof *made);
    sp_status status =
        sp_i_evaluate_begin(&made->evaluation, scenario, &made->options, &made->result, err);
    made->streamed = *made->evaluation.steps.scenario;
    made->streamed.workload.uniform_tokens = 0;
    made->scenario = made->evaluation.steps.scenario = &made->streamed;
    // All that the job keeps has been chosen before any batch came.
    made->evaluation.spent_s = 0.0;
    if (status == SP_OK) {
        status = make_head(made, err);
    }
    if (status != SP_OK) {
        sp_planner_free(made);
        return status;
    }
    *planner = made;
    return SP_OK;
}

static sp_status read_scenario(const char *source, const char *text, const char *const *overrides,
                               int override_count, sp_scenario *scenario, sp_error *err)
{
    if (text == NULL) {
        return sp_scenario_read(source, overrides, override_count, scenario, err);
    }
    json_t *root = NULL;
    sp_status status = sp_json_read_text(text, strlen(text), source, &root, err);
    if (status == SP_OK) {
        status = sp_scenario_place(root, source, err);
    }
    if (status == SP_OK) {
        status = sp_scenario_from_json(root, source, overrides, override_count, scenario, err);
    }
    json_decref(root);
    return status;
}

sp_status sp_planner_open(const char *source, const char *text, const char *const *overrides,
                          int override_count, sp_planner **planner, sp_error *err)
{
    *planner = NULL;
    sp_scenario *own = sp_calloc(1, sizeof *own);
    sp_status status = read_scenario(source, text, overrides, override_count, own, err);
    if (status == SP_OK) {
        status = sp_planner_new(own, planner, err);
    }
    if (status != SP_OK) {
        sp_scenario_fini(own);
        sp_free(own);
        return status;
    }
    (*planner)->own = own;
    return SP_OK;
}

char *sp_planner_scenario_text(const sp_planner *planner)
{
    return json_dumps(planner->scenario->resolved, JSON_COMPACT);
}

void sp_planner_free(sp_planner *planner)
{
    if (planner == NULL) {
        return;
    }
    sp_i_evaluate_end(&planner->evaluation, SP_OK);
    sp_result_fini(&planner->result);
    free(planner->head);
    if (planner->own != NULL) {
        sp_scenario_fini(planner->own);
        sp_free(planner->own);
    }
    sp_free(planner);
}

bool sp_planner_refused_for_memory(const sp_planner *planner)
{
    return planner->evaluation.refused;
}

void sp_planner_skip_settings(sp_planner *planner)
{
    planner->tried_settings = true;
}

sp_status sp_plan_batch(sp_planner *planner, const int64_t *tokens, size_t count,
                        sp_batch_plan **plan, sp_error *err)
{
    sp_batches batches = {0};
    *plan = NULL;
    sp_batch_plan *made = sp_calloc(1, sizeof *made);
    sp_status status = make_batch(planner->scenario, tokens, count, &batches, err);
    if (status == SP_OK) {
        made->batch = batches.batch[0];
        made->dropped = batches.dropped;
        made->truncated = batches.truncated;
        made->split = batches.split;
        made->lost_tokens = batches.lost_tokens;
        made->source_tokens = batches.source_tokens;
        batches.batch[0] = (sp_batch){0};
        status = evaluate(planner, &batches, made, err);
    }
    sp_batches_fini(&batches);
    if (status != SP_OK) {
        sp_batch_plan_free(made);
        return status;
    }
    *plan = made;
    return SP_OK;
}

void sp_batch_plan_free(sp_batch_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    sp_plan_fini(&plan->plan);
    sp_packing_fini(&plan->packing);
    sp_batch_fini(&plan->batch);
    sp_free(plan);
}

const char *sp_batch_plan_warning(const sp_batch_plan *plan, int i)
{
    return i >= 0 && i < plan->warnings.count ? plan->warnings.text[i] : NULL;
}

static sp_status check_lengths(const int64_t *tokens, size_t count, sp_error *err)
{
    if (count > INT32_MAX) {
        return sp_error_set(err, SP_ERR_LIMIT, "batch: %zu samples are more than %ld", count,
                            (long)INT32_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 1 || tokens[i] > SP_MAX_LENGTH_TOKENS) {
            char where[40];
            snprintf(where, sizeof where, "sample %zu", i);
            return sp_error_in(err, SP_ERR_CONTENT, "batch", where,
                               "expected a length from 1 to %d, got %lld", SP_MAX_LENGTH_TOKENS,
                               (long long)tokens[i]);
        }
    }
    return SP_OK;
}

// The lengths as a workload of one batch, in their order.
static sp_status make_batch(const sp_scenario *scenario, const int64_t *tokens, size_t count,
                            sp_batches *batches, sp_error *err)
{
    const sp_workload_spec *workload = &scenario->workload;
    sp_status status = check_lengths(tokens, count, err);
    if (status != SP_OK) {
        return status;
    }
    // The list is only read, but owned where it usually comes from.
    const sp_lengths list = {.tokens = (int64_t *)tokens, .count = count};
    sp_workload_spec spec = {.lengths = &list,
                             .context = workload->context,
                             .over_length = workload->over_length,
                             .batches = 1,
                             .order = SP_ORDER_FILE,
                             .source = "batch"};
    int64_t samples = sp_workload_samples(&spec);
    spec.samples_per_batch = samples > 0 ? samples : 1;
    return sp_batches_make(&spec, batches, err);
}

// Each of the settings is a whole step, and what fits one batch mostly fits the others.
static sp_status try_settings(sp_planner *planner, int64_t context, sp_batch_plan *plan,
                              sp_error *err)
{
    const sp_batches batches = {.batch = &plan->batch, .count = 1, .context = context};
    sp_i_evaluation *ev = &planner->evaluation;
    if (planner->tried_settings) {
        return ev->refused ? SP_ERR_INFEASIBLE : SP_OK;
    }
    planner->tried_settings = true;
    if (ev->refused) {
        return sp_i_oom_settings_of_refused(ev, &batches, err);
    }
    sp_status status = sp_i_oom_settings_find(ev, &batches, err);
    if (status == SP_OK) {
        sp_oom_diagnosis_settings(&ev->oom, plan->settings);
        sp_oom_diagnosis_text(&ev->oom, plan->reason);
    }
    return status;
}

static sp_status evaluate(sp_planner *planner, const sp_batches *batches, sp_batch_plan *plan,
                          sp_error *err)
{
    sp_result *result = &planner->result;
    sp_result_fini(result);
    sp_i_evaluate_describe(&planner->evaluation);
    sp_i_step step;
    sp_status status =
        sp_i_evaluate_batch(&planner->evaluation, 0, &plan->batch, batches->context, &step, err);
    if (status == SP_OK) {
        plan->packing = step.packing;
        plan->plan = step.plan;
        plan->plan.packing = &plan->packing;
        step.packing = (sp_packing){0};
        step.plan = (sp_plan){0};
        plan->predicted_ms = sp_ms_from_ns(result->batches[0].iteration_ns);
        plan->lower_bound_ms = result->batches[0].facts.lower_bound_ns / SP_NS_PER_MS;
        plan->peak_bytes = result->peak_bytes;
        plan->memory_limit_bytes = result->memory_limit_bytes;
        plan->oom = sp_result_is_oom(result);
        sp_i_evaluate_note(&planner->evaluation, status);
        plan->curtailed = result->curtailed;
        sp_warn_of_uneven_rows(planner->evaluation.steps.scenario, result, &result->warnings);
        plan->warnings = result->warnings;
        snprintf(plan->reason, sizeof plan->reason, "%s", result->oom_diagnosis);
    }
    bool refused = status == SP_ERR_INFEASIBLE && planner->evaluation.refused;
    if (refused || (status == SP_OK && plan->oom)) {
        status = try_settings(planner, batches->context, plan, err);
    }
    if (plan->packing.batch != NULL) {
        if (step.own.count > 0) { // joined and cut
            sp_batch_fini(&plan->batch);
            plan->batch = step.own;
            step.own = (sp_batch){0};
        }
        plan->packing.batch = &plan->batch;
    }
    sp_i_step_fini(&step);
    return status;
}

// ---- text ----

// Takes the blanks between the tokens of a JSON text away; returns what is left.
static size_t squeeze(char *text, size_t bytes)
{
    size_t used = 0;
    bool in_string = false;
    bool escaped = false;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (in_string) {
            in_string = c != '"' || escaped;
            escaped = c == '\\' && !escaped;
        } else if (c == ' ' || c == '\n') {
            continue;
        } else {
            in_string = c == '"';
        }
        text[used++] = c;
    }
    text[used] = '\0';
    return used;
}

// Ends a stream of open_memstream(); with an error nothing of its text is left.
static sp_status close_text(FILE *file, char **text, size_t *bytes, sp_status status, sp_error *err)
{
    if (fclose(file) != 0 && status == SP_OK) {
        status = sp_error_no_memory(err, "the text of a plan");
    }
    if (status != SP_OK) {
        free(*text);
        *text = NULL;
        return status;
    }
    *bytes = squeeze(*text, *bytes);
    return SP_OK;
}

static sp_status make_head(sp_planner *planner, sp_error *err)
{
    FILE *file = open_memstream(&planner->head, &planner->head_bytes);
    if (file == NULL) {
        return sp_error_no_memory(err, "the text of a plan");
    }
    sp_status status = sp_plan_json_begin(file, planner->scenario->resolved, err);
    return close_text(file, &planner->head, &planner->head_bytes, status, err);
}

sp_status sp_batch_plan_text(const sp_planner *planner, const sp_batch_plan *plan, char **text,
                             size_t *bytes, sp_error *err)
{
    *text = NULL;
    FILE *file = open_memstream(text, bytes);
    if (file == NULL) {
        return sp_error_no_memory(err, "the text of a plan");
    }
    const sp_plan_predictions predictions = {.lower_bound_ms = plan->lower_bound_ms,
                                             .predicted_ms = plan->predicted_ms};
    fwrite(planner->head, 1, planner->head_bytes, file);
    sp_status status = sp_plan_json_batch(file, 0, &plan->plan, predictions, err);
    if (status == SP_OK) {
        const sp_batches formed = {.dropped = plan->dropped,
                                   .truncated = plan->truncated,
                                   .split = plan->split,
                                   .lost_tokens = plan->lost_tokens,
                                   .source_tokens = plan->source_tokens};
        const sp_plan_notes notes = {
            .reason = plan->reason, .settings = plan->settings, .curtailed = plan->curtailed};
        status = sp_plan_json_end(file, &formed, &notes, err);
    }
    return close_text(file, text, bytes, status, err);
}

void sp_batch_plan_text_free(char *text)
{
    free(text);
}
