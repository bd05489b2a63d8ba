#include "backends/host/options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const sp_backend_option_info sp_i_host_option_list[] = {
    {"learning_rate", "of AdamW, 0 or more (default 0.001)"},
    {"weight_decay", "of AdamW, for matrices, 0 or more (default 0.1)"},
    {"clip",
     "largest norm of all gradients together, above which they are scaled down to it; 0: any "
     "(default 0)"},
    {"dropout",
     "share of the outputs of embedding and blocks that GELU models drop, 0 or more and below 1 "
     "(default 0)"},
    {"text", "a file whose bytes are the tokens (default: random tokens)"},
    {"attention",
     "of packs that several ranks share: \"gathered\" (default), keys and values of all "
     "ranks at once, or \"ring\", one rank's after the other's"},
    {"bytes", "that memory is counted and limited in: \"table\", as the saved-tensor table counts "
              "mixed-precision training (default), or \"real\""},
    {"fail", "ACTION@DP.PP, such as F3.1@0.2: the action fails"},
    {"stall", "ACTION@DP.PP: the action never ends"},
    {"exhaust", "ACTION@DP.PP: the action finds no memory"},
    {"fault_step", "in which of the three above happen, from 1 (default 1)"},
    {NULL, NULL},
};

static sp_status read_number(const char *key, const char *text, double *number, sp_error *err)
{
    char *end;
    *number = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(*number) || *number < 0.0) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend 'host': %s: expected a number of 0 or more, got \"%.64s\"",
                            key, text);
    }
    return SP_OK;
}

static sp_status read_share(const char *key, const char *text, double *share, sp_error *err)
{
    sp_status status = read_number(key, text, share, err);
    if (status == SP_OK && *share >= 1.0) {
        status =
            sp_error_set(err, SP_ERR_USAGE,
                         "backend 'host': %s: expected a number below 1, got \"%.64s\"", key, text);
    }
    return status;
}

static sp_status read_step(const char *key, const char *text, int steps, int64_t *step,
                           sp_error *err)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || number < 1 || number > steps) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend 'host': %s: expected a step from 1 to %d, got \"%.64s\"", key,
                            steps, text);
    }
    *step = number;
    return SP_OK;
}

static sp_status read_measure(const char *text, sp_i_host_measure *measure, sp_error *err)
{
    bool real = strcmp(text, "real") == 0;
    if (!real && strcmp(text, "table") != 0) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "backend 'host': bytes: expected \"table\" or \"real\", got \"%.64s\"",
                            text);
    }
    *measure = real ? SP_I_HOST_REAL : SP_I_HOST_TABLE;
    return SP_OK;
}

static sp_status read_way(const char *text, sp_comm_attention_way *way, sp_error *err)
{
    bool ring = strcmp(text, "ring") == 0;
    if (!ring && strcmp(text, "gathered") != 0) {
        return sp_error_set(
            err, SP_ERR_USAGE,
            "backend 'host': attention: expected \"gathered\" or \"ring\", got \"%.64s\"", text);
    }
    *way = ring ? SP_COMM_RING : SP_COMM_GATHERED;
    return SP_OK;
}

bool sp_i_host_names(const char *option, const sp_plan *plan, const sp_plan_place *place)
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

static sp_status read_action(const sp_plan *plan, const char *key, const char *text,
                             const char **option, sp_error *err)
{
    for (int d = 0; d < plan->layout.dp; d++) {
        for (int p = 0; p < plan->layout.pp; p++) {
            const sp_stage_plan *stage = sp_plan_stage(plan, d, p);
            for (size_t a = 0; a < stage->count; a++) {
                sp_plan_place place = {.dp = d, .pp = p, .action = stage->actions[a]};
                if (sp_i_host_names(text, plan, &place)) {
                    *option = text;
                    return SP_OK;
                }
            }
        }
    }
    return sp_error_set(err, SP_ERR_USAGE,
                        "backend 'host': %s: expected an action of the plan, got \"%.64s\"", key,
                        text);
}

sp_status sp_i_host_options_read(const sp_run_request *request, sp_i_host_options *options,
                                 sp_error *err)
{
    *options = (sp_i_host_options){.learning_rate = 1e-3,
                                   .weight_decay = 0.1,
                                   .fault_step = 1,
                                   .attention_way = SP_COMM_GATHERED};
    sp_status status = SP_OK;
    for (size_t o = 0; status == SP_OK && o < request->option_count; o++) {
        const char *key = request->options[o].key;
        const char *value = request->options[o].value;
        if (strcmp(key, "learning_rate") == 0) {
            status = read_number(key, value, &options->learning_rate, err);
        } else if (strcmp(key, "weight_decay") == 0) {
            status = read_number(key, value, &options->weight_decay, err);
        } else if (strcmp(key, "clip") == 0) {
            status = read_number(key, value, &options->clip, err);
        } else if (strcmp(key, "dropout") == 0) {
            status = read_share(key, value, &options->dropout, err);
        } else if (strcmp(key, "text") == 0) {
            options->text = value;
        } else if (strcmp(key, "fail") == 0) {
            status = read_action(request->plan, key, value, &options->fail, err);
        } else if (strcmp(key, "stall") == 0) {
            status = read_action(request->plan, key, value, &options->stall, err);
        } else if (strcmp(key, "exhaust") == 0) {
            status = read_action(request->plan, key, value, &options->exhaust, err);
        } else if (strcmp(key, "fault_step") == 0) {
            status = read_step(key, value, request->steps, &options->fault_step, err);
        } else if (strcmp(key, "attention") == 0) {
            status = read_way(value, &options->attention_way, err);
        } else if (strcmp(key, "bytes") == 0) {
            status = read_measure(value, &options->measure, err);
        }
    }
    return status;
}
