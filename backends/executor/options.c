#include "backends/executor/options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// One option of a request.
typedef struct setting {
    const char *backend, *key, *text;
} setting;

static sp_status read_number(const setting *s, double *number, sp_error *err)
{
    char *end;
    *number = strtod(s->text, &end);
    if (end == s->text || *end != '\0' || !isfinite(*number) || *number < 0.0) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': %s: expected a number of 0 or more, got \"%.64s\"",
                            s->backend, s->key, s->text);
    }
    return SP_OK;
}

static sp_status read_share(const setting *s, double *share, sp_error *err)
{
    sp_status status = read_number(s, share, err);
    if (status == SP_OK && *share >= 1.0) {
        status = sp_error_set(err, SP_ERR_USAGE,
                              "backend '%s': %s: expected a number below 1, got \"%.64s\"",
                              s->backend, s->key, s->text);
    }
    return status;
}

static sp_status read_step(const setting *s, int steps, int64_t *step, sp_error *err)
{
    char *end;
    long number = strtol(s->text, &end, 10);
    if (end == s->text || *end != '\0' || number < 1 || number > steps) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': %s: expected a step from 1 to %d, got \"%.64s\"",
                            s->backend, s->key, steps, s->text);
    }
    *step = number;
    return SP_OK;
}

static sp_status read_flag(const setting *s, bool *flag, sp_error *err)
{
    *flag = strcmp(s->text, "true") == 0;
    if (!*flag && strcmp(s->text, "false") != 0) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': %s: expected \"true\" or \"false\", got \"%.64s\"",
                            s->backend, s->key, s->text);
    }
    return SP_OK;
}

static sp_status read_measure(const setting *s, sp_i_exec_measure *measure, sp_error *err)
{
    bool real = strcmp(s->text, "real") == 0;
    if (!real && strcmp(s->text, "table") != 0) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': bytes: expected \"table\" or \"real\", got \"%.64s\"",
                            s->backend, s->text);
    }
    *measure = real ? SP_I_EXEC_REAL : SP_I_EXEC_TABLE;
    return SP_OK;
}

static sp_status read_way(const setting *s, sp_comm_attention_way *way, sp_error *err)
{
    bool ring = strcmp(s->text, "ring") == 0;
    if (!ring && strcmp(s->text, "gathered") != 0) {
        return sp_error_set(
            err, SP_ERR_USAGE,
            "backend '%s': attention: expected \"gathered\" or \"ring\", got \"%.64s\"", s->backend,
            s->text);
    }
    *way = ring ? SP_COMM_RING : SP_COMM_GATHERED;
    return SP_OK;
}

static sp_status read_links(const setting *s, bool *emulated, sp_error *err)
{
    *emulated = strcmp(s->text, "emulated") == 0;
    if (!*emulated && strcmp(s->text, "off") != 0) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend '%s': links: expected \"off\" or \"emulated\", got \"%.64s\"",
                            s->backend, s->text);
    }
    return SP_OK;
}

bool sp_i_exec_names(const char *option, const sp_plan *plan, const sp_plan_place *place)
{
    char action[32];
    char name[64];
    if (option == NULL) {
        return false;
    }
    sp_action_name(place->action, plan->layout.chunks, action);
    snprintf(name, sizeof name, "%s@%d.%d", action, place->dp, place->pp);
    return strcmp(option, name) == 0;
}

static sp_status read_action(const sp_plan *plan, const setting *s, const char **option,
                             sp_error *err)
{
    for (int d = 0; d < plan->layout.dp; d++) {
        for (int p = 0; p < plan->layout.pp; p++) {
            const sp_stage_plan *stage = sp_plan_stage(plan, d, p);
            for (size_t a = 0; a < stage->count; a++) {
                sp_plan_place place = {.dp = d, .pp = p, .action = stage->actions[a]};
                if (sp_i_exec_names(s->text, plan, &place)) {
                    *option = s->text;
                    return SP_OK;
                }
            }
        }
    }
    return sp_error_set(
        err, SP_ERR_USAGE,
        "backend '%s': %s: expected ACTION@DP.PP, an action of the plan, got \"%.64s\"", s->backend,
        s->key, s->text);
}

// That of the request's stack, for a measurement beside its prediction.
static sp_i_exec_measure measure_of(const sp_run_request *request)
{
    bool real = request->precision == SP_BF16 && request->memory != NULL &&
                sp_stack_counts_device(&request->memory->stack);
    return real ? SP_I_EXEC_REAL : SP_I_EXEC_TABLE;
}

sp_status sp_i_exec_options_read(const sp_run_request *request, const char *backend,
                                 sp_i_exec_options *options, sp_error *err)
{
    *options = (sp_i_exec_options){.measure = measure_of(request),
                                   .learning_rate = 1e-3,
                                   .weight_decay = 0.1,
                                   .fault_step = 1,
                                   .attention_way = SP_COMM_GATHERED};
    sp_status status = SP_OK;
    for (size_t o = 0; status == SP_OK && o < request->option_count; o++) {
        const char *key = request->options[o].key;
        const char *value = request->options[o].value;
        const setting s = {backend, key, value};
        if (strcmp(key, "learning_rate") == 0) {
            status = read_number(&s, &options->learning_rate, err);
        } else if (strcmp(key, "weight_decay") == 0) {
            status = read_number(&s, &options->weight_decay, err);
        } else if (strcmp(key, "clip") == 0) {
            status = read_number(&s, &options->clip, err);
        } else if (strcmp(key, "dropout") == 0) {
            status = read_share(&s, &options->dropout, err);
        } else if (strcmp(key, "rounded") == 0) {
            status = read_flag(&s, &options->rounded, err);
        } else if (strcmp(key, "text") == 0) {
            options->text = value;
        } else if (strcmp(key, "fail") == 0) {
            status = read_action(request->plan, &s, &options->fail, err);
        } else if (strcmp(key, "stall") == 0) {
            status = read_action(request->plan, &s, &options->stall, err);
        } else if (strcmp(key, "exhaust") == 0) {
            status = read_action(request->plan, &s, &options->exhaust, err);
        } else if (strcmp(key, "fault_step") == 0) {
            status = read_step(&s, request->steps, &options->fault_step, err);
        } else if (strcmp(key, "attention") == 0) {
            status = read_way(&s, &options->attention_way, err);
        } else if (strcmp(key, "links") == 0) {
            status = read_links(&s, &options->emulated_links, err);
        } else if (strcmp(key, "bytes") == 0) {
            status = read_measure(&s, &options->measure, err);
        }
    }
    return status;
}
