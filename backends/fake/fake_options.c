#include "backends/fake/fake_options.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"

const sp_backend_option_info sp_i_fake_option_list[] = {
    {"durations", "SELECTOR=NS,...: what actions take, in place of the costs"},
    {"p2p_ns", "NS: what a transfer between ranks takes, where there are no costs"},
    {"jitter", "J in [0, 1): actions take 1 +- up to J of their time"},
    {"fail", "SELECTOR: this action fails"},
    {"stall", "SELECTOR: this action never ends"},
    {"exhaust", "SELECTOR: this action allocates over the limit"},
    {"damage", "order|overlap|early|missing|leak:SELECTOR: the timeline is wrong there"},
    {"loss", "NUMBER: the loss of every step"},
    {"tensor", "NAME=V;V;...: a tensor that can be read"},
    {NULL, NULL}};

static sp_status read_option(const sp_backend_option *option, sp_i_fake_options *options,
                             sp_error *err);

sp_status sp_i_fake_options_read(const sp_run_request *request, sp_i_fake_options *options,
                                 sp_error *err)
{
    *options = (sp_i_fake_options){0};
    sp_status status = SP_OK;
    for (size_t o = 0; status == SP_OK && o < request->option_count; o++) {
        status = read_option(&request->options[o], options, err);
    }
    if (status != SP_OK) {
        sp_i_fake_options_fini(options);
    }
    return status;
}

void sp_i_fake_options_fini(sp_i_fake_options *options)
{
    sp_free(options->scripted);
    *options = (sp_i_fake_options){0};
}

bool sp_i_selects(const sp_i_selector *s, const sp_plan_place *place)
{
    return s->given && s->kind == place->action.kind &&
           (s->pack == SP_I_ANY || s->pack == place->action.pack) &&
           (s->chunk == SP_I_ANY || s->chunk == place->action.chunk) &&
           (s->dp == SP_I_ANY || s->dp == place->dp) && (s->pp == SP_I_ANY || s->pp == place->pp);
}

static sp_status wrong(const sp_backend_option *option, const char *expected, sp_error *err)
{
    return sp_error_set(err, SP_ERR_USAGE, "backend 'fake': %s: expected %s, got \"%.100s\"",
                        option->key, expected, option->value);
}

// ---- pieces: each moves *text behind what it read, false where nothing fits ----

static bool read_integer(const char **text, int64_t most, int64_t *value)
{
    char *end;
    if (**text < '0' || **text > '9') {
        return false;
    }
    errno = 0;
    long long read = strtoll(*text, &end, 10);
    *text = end;
    *value = read;
    return errno == 0 && read <= most;
}

// `lead`, then an integer, if `lead` is what comes next.
static bool read_after(const char **text, char lead, int *value)
{
    int64_t read = SP_I_ANY;
    bool ok = true;
    if (**text == lead) {
        (*text)++;
        ok = read_integer(text, INT_MAX, &read);
    }
    *value = (int)read;
    return ok;
}

static bool read_selector(const char **text, sp_i_selector *selector)
{
    const char *letter = **text != '\0' ? strchr(sp_action_letters, **text) : NULL;
    int64_t pack = SP_I_ANY;
    if (letter == NULL) {
        return false;
    }
    *selector = (sp_i_selector){
        .given = true, .kind = (uint8_t)(letter - sp_action_letters), .pp = SP_I_ANY};
    (*text)++;
    bool ok = **text < '0' || **text > '9' || read_integer(text, INT_MAX, &pack);
    selector->pack = (int32_t)pack;
    ok = ok && read_after(text, '.', &selector->chunk) && read_after(text, '@', &selector->dp);
    if (ok && selector->dp != SP_I_ANY) {
        ok = read_after(text, '.', &selector->pp) && selector->pp != SP_I_ANY;
    }
    return ok;
}

static bool read_whole_selector(const char *text, sp_i_selector *selector)
{
    return read_selector(&text, selector) && *text == '\0';
}

static bool read_number(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value);
}

// ---- options ----

static sp_status read_durations(const sp_backend_option *option, sp_i_fake_options *options,
                                sp_error *err)
{
    const char *text = option->value;
    do {
        sp_i_scripted scripted;
        if (!read_selector(&text, &scripted.selector) || *text++ != '=' ||
            !read_integer(&text, SP_I_FAKE_MOST_NS, &scripted.ns) ||
            (*text != ',' && *text != '\0')) {
            return wrong(option, "SELECTOR=NS,... such as F=2000,B3@0.1=5000", err);
        }
        if (!sp_reserve((void **)&options->scripted, &options->scripted_capacity,
                        options->scripted_count + 1, sizeof *options->scripted)) {
            return sp_error_no_memory(err, "scripted durations");
        }
        options->scripted[options->scripted_count++] = scripted;
    } while (*text++ == ',');
    return SP_OK;
}

static sp_status read_damage(const sp_backend_option *option, sp_i_fake_options *options,
                             sp_error *err)
{
    static const char *const names[] = {[SP_I_DAMAGE_ORDER] = "order:",
                                        [SP_I_DAMAGE_OVERLAP] = "overlap:",
                                        [SP_I_DAMAGE_EARLY] = "early:",
                                        [SP_I_DAMAGE_MISSING] = "missing:",
                                        [SP_I_DAMAGE_LEAK] = "leak:"};
    for (size_t d = SP_I_DAMAGE_ORDER; d < sizeof names / sizeof names[0]; d++) {
        size_t length = strlen(names[d]);
        if (strncmp(option->value, names[d], length) == 0 &&
            read_whole_selector(option->value + length, &options->damaged)) {
            options->damage = (sp_i_damage)d;
            return SP_OK;
        }
    }
    return wrong(option, "order, overlap, early, missing or leak, a colon and an action", err);
}

static sp_status read_selected(const sp_backend_option *option, sp_i_selector *selector,
                               sp_error *err)
{
    return read_whole_selector(option->value, selector)
               ? SP_OK
               : wrong(option, "an action such as F, B3 or F3.1@0.2", err);
}

static sp_status read_option(const sp_backend_option *option, sp_i_fake_options *options,
                             sp_error *err)
{
    const char *key = option->key;
    if (strcmp(key, "durations") == 0) {
        return read_durations(option, options, err);
    }
    if (strcmp(key, "fail") == 0) {
        return read_selected(option, &options->fail, err);
    }
    if (strcmp(key, "stall") == 0) {
        return read_selected(option, &options->stall, err);
    }
    if (strcmp(key, "exhaust") == 0) {
        return read_selected(option, &options->exhaust, err);
    }
    if (strcmp(key, "damage") == 0) {
        return read_damage(option, options, err);
    }
    if (strcmp(key, "p2p_ns") == 0) {
        const char *text = option->value;
        return read_integer(&text, SP_I_FAKE_MOST_NS, &options->p2p_ns) && *text == '\0'
                   ? SP_OK
                   : wrong(option, "nanoseconds", err);
    }
    if (strcmp(key, "jitter") == 0) {
        return read_number(option->value, &options->jitter) && options->jitter >= 0.0 &&
                       options->jitter < 1.0
                   ? SP_OK
                   : wrong(option, "a number in [0, 1)", err);
    }
    if (strcmp(key, "loss") == 0) {
        options->has_loss = true;
        return read_number(option->value, &options->loss) ? SP_OK : wrong(option, "a number", err);
    }
    options->tensor = option->value;
    return SP_OK;
}
