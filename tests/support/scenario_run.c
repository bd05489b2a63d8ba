#include "tests/support/scenario_run.h"

#include "tests/support/test_main.h"

const sp_evaluate_options run_verified = {.engine = {.verify = true}};

static void append(char *text, const char *format, va_list args)
{
    size_t used = strlen(text);
    int more = vsnprintf(text + used, RUN_TEXT - used, format, args);
    assert_true(more >= 0 && (size_t)more < RUN_TEXT - used);
    for (char *c = text + used; *c != '\0'; c++) {
        *c = *c == '\'' ? '"' : *c;
    }
}

void put_json(char *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    append(text, format, args);
    va_end(args);
}

enum { TEXTS = 32 };

const char *json_text(const char *format, ...)
{
    static _Thread_local char texts[TEXTS][RUN_TEXT];
    static _Thread_local unsigned made;
    char *text = texts[made++ % TEXTS];
    text[0] = '\0';
    va_list args;
    va_start(args, format);
    append(text, format, args);
    va_end(args);
    return text;
}

sp_model builtin_model(const char *name)
{
    sp_model model;
    must_succeed(sp_model_builtin(name, &model, ERR));
    return model;
}

int64_t json_int(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

json_t *json_document(const char *text)
{
    char json[RUN_TEXT] = "";
    put_json(json, "%s", text);
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    assert_non_null(root);
    return root;
}

sp_model read_config(const char *text)
{
    sp_model model;
    json_auto_t *root = json_document(text);
    must_succeed_for(text, sp_model_from_hf(root, "config.json", &model, ERR));
    return model;
}

sp_status run_read(const char *text, sp_scenario *scenario, sp_error *err)
{
    json_auto_t *root = json_document(text);
    sp_error_clear(err);
    return sp_scenario_from_json(root, "test.json", NULL, 0, scenario, err);
}

void read_good(const char *text, sp_scenario *scenario)
{
    must_succeed_for(text, run_read(text, scenario, ERR));
}

void run_refused(const char *text, const char *told)
{
    AUTO(sp_scenario) scenario;
    must_fail_with(run_read(text, &scenario, ERR), SP_ERR_CONTENT, told);
    sp_error_clear(ERR);
}

sp_status run_text(const char *text, const sp_evaluate_options *options, scenario_run *r,
                   sp_error *err)
{
    read_good(text, &r->scenario);
    must_succeed_for(text, sp_evaluate_batches(&r->scenario, &r->batches, ERR));
    return sp_evaluate(&r->scenario, &r->batches, options, &r->result, err);
}

void run_good(const char *text, const sp_evaluate_options *options, scenario_run *r)
{
    must_succeed_for(text, run_text(text, options, r, ERR));
}

void scenario_run_fini(scenario_run *r)
{
    sp_result_fini(&r->result);
    sp_batches_fini(&r->batches);
    sp_scenario_fini(&r->scenario);
}

bool run_warned(const sp_warnings *warnings, const char *text)
{
    bool found = false;
    for (int i = 0; i < warnings->count; i++) {
        found = found || strstr(warnings->text[i], text) != NULL;
    }
    return found;
}

void limit_holds(const char *text, const sp_result *result)
{
    double ms[SP_LIMIT_PARTS];
    double step_ms = sp_result_iteration_ms(result);
    double limit_ms = sp_result_limit_ms(result);
    double bound_ms = sp_result_lower_bound_ms(result);
    double sum_ms = limit_ms;
    double least_ms = 0.0;
    assert_true(sp_result_limit_parts(result, ms));
    for (int i = 0; i < SP_LIMIT_PARTS; i++) {
        sum_ms += ms[i];
        least_ms = fmin(least_ms, ms[i]);
    }
    // Parts are rounded to nanoseconds, each action's by itself.
    must_hold(limit_ms > 0.0 && limit_ms <= step_ms && fabs(sum_ms - step_ms) <= 1e-9 * step_ms &&
                  least_ms >= -1e-6 * step_ms && limit_ms <= bound_ms * (1.0 + 1e-9),
              "limit %.6f, bound %.6f, sum %.6f of %.6f ms, least part %g: %s", limit_ms, bound_ms,
              sum_ms, step_ms, least_ms, text);
}
