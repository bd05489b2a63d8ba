// A backend that does no work, as a plug-in: actions take the simulator's times, or scripted ones,
// in virtual time. It is for tests of whoever calls a backend, with failures on demand.
//
// Device 0 can do everything but keep the wall clock; device 1, "plain", runs whole samples,
// forward and full backward, one model chunk per rank, at most 16 ranks, in fp64.
//
// Times and memory come from request->costs. Without costs every kind of action of the plan needs
// a scripted duration, and nothing is held. With jitter 0 and costs alone timeline and memory are
// the simulator's.
//
// A SELECTOR is a letter, then if wanted the pack, the chunk after a dot and the rank (dp.pp) after
// '@': "F", "B3", "F3.1@0.2"; what is left out matches all. For failures the first action run that
// matches counts, of durations the last match; a selector that no action matches is an error.
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/api/backend.h"
#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "sim/cost/step_costs.h"
#include "sim/plan/walk.h"
#include "sim/simulate/engine.h"
#include "sim/simulate/memory.h"

// ---- options ----

enum { ANY = -1 };

// Largest time in an option; sums of a few fit int64_t.
#define MOST_NS (INT64_MAX / 8)

typedef struct action_selector {
    bool given;
    uint8_t kind;
    int32_t pack; // or ANY, as those below
    int chunk, dp, pp;
} action_selector;

typedef struct scripted_time {
    action_selector selector;
    int64_t ns;
} scripted_time;

typedef enum damage_kind {
    DAMAGE_NONE,
    DAMAGE_ORDER,
    DAMAGE_OVERLAP,
    DAMAGE_EARLY,
    DAMAGE_MISSING,
    DAMAGE_LEAK
} damage_kind;

typedef struct fake_options {
    scripted_time *scripted; // owned
    size_t scripted_count, scripted_capacity;
    int64_t p2p_ns;
    double jitter;
    action_selector fail, stall, exhaust, damaged;
    damage_kind damage;
    bool has_loss;
    double loss;
    const char *tensor; // NAME=V;V;..., or NULL
} fake_options;

static const sp_backend_option_info fake_option_list[] = {
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

static sp_status wrong(const sp_backend_option *option, const char *expected, sp_error *err)
{
    return sp_error_set(err, SP_ERR_USAGE, "backend 'fake': %s: expected %s, got \"%.100s\"",
                        option->key, expected, option->value);
}

// Pieces: each moves *text behind what it read, false where nothing fits.

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
    int64_t read = ANY;
    bool ok = true;
    if (**text == lead) {
        (*text)++;
        ok = read_integer(text, INT_MAX, &read);
    }
    *value = (int)read;
    return ok;
}

static bool read_selector(const char **text, action_selector *selector)
{
    const char *letter = **text != '\0' ? strchr(sp_action_letters, **text) : NULL;
    int64_t pack = ANY;
    if (letter == NULL) {
        return false;
    }
    *selector =
        (action_selector){.given = true, .kind = (uint8_t)(letter - sp_action_letters), .pp = ANY};
    (*text)++;
    bool ok = **text < '0' || **text > '9' || read_integer(text, INT_MAX, &pack);
    selector->pack = (int32_t)pack;
    ok = ok && read_after(text, '.', &selector->chunk) && read_after(text, '@', &selector->dp);
    if (ok && selector->dp != ANY) {
        ok = read_after(text, '.', &selector->pp) && selector->pp != ANY;
    }
    return ok;
}

static bool read_whole_selector(const char *text, action_selector *selector)
{
    return read_selector(&text, selector) && *text == '\0';
}

static bool read_number(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value);
}

static sp_status read_durations(const sp_backend_option *option, fake_options *options,
                                sp_error *err)
{
    const char *text = option->value;
    do {
        scripted_time scripted;
        if (!read_selector(&text, &scripted.selector) || *text++ != '=' ||
            !read_integer(&text, MOST_NS, &scripted.ns) || (*text != ',' && *text != '\0')) {
            return wrong(option, "SELECTOR=NS,... such as F=2000,B3@0.1=5000", err);
        }
        SP_RESERVE(options->scripted, options->scripted_capacity, options->scripted_count + 1);
        options->scripted[options->scripted_count++] = scripted;
    } while (*text++ == ',');
    return SP_OK;
}

static sp_status read_damage(const sp_backend_option *option, fake_options *options, sp_error *err)
{
    static const char *const names[] = {[DAMAGE_ORDER] = "order:",
                                        [DAMAGE_OVERLAP] = "overlap:",
                                        [DAMAGE_EARLY] = "early:",
                                        [DAMAGE_MISSING] = "missing:",
                                        [DAMAGE_LEAK] = "leak:"};
    for (size_t d = DAMAGE_ORDER; d < sizeof names / sizeof names[0]; d++) {
        size_t length = strlen(names[d]);
        if (strncmp(option->value, names[d], length) == 0 &&
            read_whole_selector(option->value + length, &options->damaged)) {
            options->damage = (damage_kind)d;
            return SP_OK;
        }
    }
    return wrong(option, "order, overlap, early, missing or leak, a colon and an action", err);
}

static sp_status read_selected(const sp_backend_option *option, action_selector *selector,
                               sp_error *err)
{
    return read_whole_selector(option->value, selector)
               ? SP_OK
               : wrong(option, "an action such as F, B3 or F3.1@0.2", err);
}

static sp_status read_option(const sp_backend_option *option, fake_options *options, sp_error *err)
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
        return read_integer(&text, MOST_NS, &options->p2p_ns) && *text == '\0'
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

static void fake_options_fini(fake_options *options)
{
    sp_free(options->scripted);
    *options = (fake_options){0};
}

static sp_status fake_options_read(const sp_run_request *request, fake_options *options,
                                   sp_error *err)
{
    *options = (fake_options){0};
    sp_status status = SP_OK;
    for (size_t o = 0; status == SP_OK && o < request->option_count; o++) {
        status = read_option(&request->options[o], options, err);
    }
    if (status != SP_OK) {
        fake_options_fini(options);
    }
    return status;
}

static bool selects(const action_selector *s, const sp_plan_place *place)
{
    return s->given && s->kind == place->action.kind &&
           (s->pack == ANY || s->pack == place->action.pack) &&
           (s->chunk == ANY || s->chunk == place->action.chunk) &&
           (s->dp == ANY || s->dp == place->dp) && (s->pp == ANY || s->pp == place->pp);
}

// ---- what actions take, and which of them fail ----

typedef struct fake_time {
    const sp_run_request *request;
    const fake_options *options;
    int step;
} fake_time;

static const scripted_time *script_of(const fake_options *options, const sp_plan_place *place)
{
    for (size_t i = options->scripted_count; i > 0; i--) {
        if (selects(&options->scripted[i - 1].selector, place)) {
            return &options->scripted[i - 1];
        }
    }
    return NULL;
}

// A draw in [-1, 1) that belongs to the action and not to the order in which actions run.
static double draw(const fake_time *t, const sp_plan_place *place)
{
    const int64_t parts[] = {
        t->step, place->dp, place->pp, place->action.kind, place->action.chunk, place->action.pack};
    sp_prng prng;
    uint64_t seed = t->request->seed;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        sp_prng_seed(&prng, seed ^ (uint64_t)parts[i]);
        seed = sp_prng_u64(&prng);
    }
    return 2.0 * sp_prng_uniform(&prng) - 1.0;
}

static int64_t scale(int64_t ns, double factor)
{
    double scaled = floor((double)ns * factor + 0.5);
    return scaled < (double)MOST_NS ? (int64_t)scaled : MOST_NS;
}

static void add_jitter(const fake_time *t, const sp_plan_place *place, sp_action_cost *cost)
{
    double factor = 1.0 + t->options->jitter * draw(t, place);
    cost->compute_ns = scale(cost->compute_ns, factor);
    cost->tp_ns = scale(cost->tp_ns, factor);
    cost->cp_ns = scale(cost->cp_ns, factor);
    cost->dp_ns = scale(cost->dp_ns, factor);
    cost->launch_ns = scale(cost->launch_ns, factor);
}

// Drives a run in virtual time; `context` of both is an fake_time.
static sp_status run_action(void *context, const sp_walk_action *action, sp_walk_outcome *outcome,
                            sp_error *err)
{
    const fake_time *t = context;
    const sp_plan_place *place = &action->place;
    const sp_plan *plan = t->request->plan;
    if (selects(&t->options->fail, place)) {
        return sp_error_at_action(err, SP_ERR_INTERNAL, plan, place, "it failed, as asked for");
    }
    if (selects(&t->options->exhaust, place)) {
        return sp_error_at_action(err, SP_ERR_INFEASIBLE, plan, place,
                                  "no memory left under the limit of %lld bytes, as asked for",
                                  (long long)t->request->memory_limit_bytes);
    }
    outcome->stalls = selects(&t->options->stall, place);
    const scripted_time *scripted = script_of(t->options, place);
    if (scripted != NULL) {
        outcome->took = (sp_action_cost){.compute_ns = scripted->ns};
    } else if (t->request->costs != NULL) {
        outcome->took = sp_action_cost_of(plan, t->request->costs, place->action, action->vstage,
                                          action->recomputed);
    }
    if (t->options->jitter > 0.0) {
        add_jitter(t, place, &outcome->took);
    }
    for (int p = 0; action->shares != NULL && p < plan->layout.pp; p++) {
        if (action->shares[p] != NULL) {
            outcome->shares[p] = sp_share_cost_of(plan, t->request->costs, action->shares[p]);
        }
    }
    return SP_OK;
}

static int64_t transfer_ns(void *context, const sp_plan_place *from, int to)
{
    const fake_time *t = context;
    const sp_run_request *request = t->request;
    return request->costs != NULL
               ? sp_step_costs_p2p_ns(request->costs, from->action.kind != SP_ACTION_F,
                                      (size_t)from->action.pack, from->pp, to,
                                      request->plan->layout.pp)
               : t->options->p2p_ns;
}

static bool has_cost(const sp_step_costs *costs, sp_action action)
{
    return costs != NULL &&
           (!sp_action_is_copy(action) || (costs->o_ns != NULL && costs->l_ns != NULL));
}

// Is there a time for every action of the plan?
static sp_status check_times(const sp_run_request *request, const fake_options *options,
                             sp_error *err)
{
    const sp_plan *plan = request->plan;
    const sp_step_costs *costs = request->costs;
    if (costs != NULL && (costs->side[0].count != plan->packing->forward.count ||
                          costs->side[1].count != sp_packing_backward(plan->packing)->count)) {
        return sp_error_set(err, SP_ERR_USAGE, "the costs are those of another plan");
    }
    for (int d = 0; d < plan->layout.dp; d++) {
        for (int p = 0; p < plan->layout.pp; p++) {
            const sp_stage_plan *stage = sp_plan_stage(plan, d, p);
            for (size_t a = 0; a < stage->count; a++) {
                sp_plan_place place = {.dp = d, .pp = p, .action = stage->actions[a]};
                if (!has_cost(costs, place.action) && script_of(options, &place) == NULL) {
                    return sp_error_at_action(err, SP_ERR_CONTENT, plan, &place,
                                              "backend 'fake' has neither a cost nor a scripted "
                                              "duration for it");
                }
            }
        }
    }
    return SP_OK;
}

// ---- the tensor that it is told to have ----

typedef struct fake_tensor {
    sp_tensor_info info;
    double *values; // owned
} fake_tensor;

static sp_status wrong_tensor(const char *text, sp_error *err)
{
    return sp_error_set(err, SP_ERR_USAGE,
                        "backend 'fake': tensor: expected NAME=V;V;..., got \"%.100s\"", text);
}

// From NAME=V;V;...
static sp_status read_tensor(const char *text, fake_tensor *tensor, sp_error *err)
{
    size_t name = strcspn(text, "=");
    *tensor = (fake_tensor){.info = {.precision = SP_FP64, .dims = 1}};
    if (name == 0 || name >= SP_TENSOR_NAME || text[name] == '\0') {
        return wrong_tensor(text, err);
    }
    memcpy(tensor->info.name, text, name);
    const char *rest = text + name + 1;
    // No value is shorter than one character and a semicolon.
    tensor->values = sp_malloc((strlen(rest) / 2 + 1) * sizeof *tensor->values);
    bool more = true;
    while (more) {
        char *end;
        double value = strtod(rest, &end);
        if (end == rest || !isfinite(value) || (*end != ';' && *end != '\0')) {
            sp_free(tensor->values);
            tensor->values = NULL;
            return wrong_tensor(text, err);
        }
        tensor->values[tensor->info.elements++] = value;
        more = *end == ';';
        rest = end + 1;
    }
    tensor->info.size[0] = tensor->info.elements;
    return SP_OK;
}

// ---- wrong timelines on demand ----

// Spans of one rank, or its copies.
typedef struct span_list {
    sp_span *spans;
    size_t *count;
} span_list;

static void damage_span(const fake_options *options, span_list list, size_t i)
{
    sp_span *span = &list.spans[i];
    sp_span *before = i > 0 ? span - 1 : span;
    sp_action action = span->action;
    switch (options->damage) {
    case DAMAGE_ORDER:
        span->action = before->action;
        before->action = action;
        break;
    case DAMAGE_OVERLAP:
        span->start_ns = before->end_ns - 1;
        break;
    case DAMAGE_EARLY:
        // Everything before it on its rank takes no time.
        for (sp_span *s = list.spans; s < span; s++) {
            s->start_ns = s->end_ns = 0;
        }
        span->start_ns = 0;
        break;
    case DAMAGE_MISSING:
        memmove(span, span + 1, (*list.count - i - 1) * sizeof *span);
        (*list.count)--;
        break;
    case DAMAGE_NONE:
    case DAMAGE_LEAK:
        break;
    }
}

static bool damage_row(const fake_options *options, const sp_rank_timeline *rank, span_list list)
{
    for (size_t i = 0; i < *list.count; i++) {
        sp_plan_place place = {.dp = rank->dp, .pp = rank->pp, .action = list.spans[i].action};
        if (selects(&options->damaged, &place)) {
            damage_span(options, list, i);
            return true;
        }
    }
    return false;
}

// One byte of activations stays.
static void leak(sp_rank_memory *memory, const sp_rank_timeline *rank)
{
    const sp_memory_point *last =
        memory->point_count > 0 ? &memory->points[memory->point_count - 1] : NULL;
    sp_bytes held = last != NULL ? last->bytes : (sp_bytes){{0}};
    held.of[SP_MEM_ACTIVATIONS]++;
    sp_rank_memory_note(memory, last != NULL ? last->time_ns : 0, &held, &rank->spans[0].action,
                        true);
}

// Damages a step as the options ask.
static void damage_step(const fake_options *options, sp_measured_step *step)
{
    for (size_t r = 0; options->damage != DAMAGE_NONE && r < step->timeline.rank_count; r++) {
        sp_rank_timeline *rank = &step->timeline.ranks[r];
        span_list spans = {rank->spans, &rank->count};
        span_list copies = {rank->copies, &rank->copy_count};
        if (damage_row(options, rank, spans) || damage_row(options, rank, copies)) {
            if (options->damage == DAMAGE_LEAK) {
                leak(&step->memory.ranks[r], rank);
            }
            return;
        }
    }
}

static sp_status device_count(int *count, sp_error *err)
{
    *count = 2;
    return SP_OK;
}

static sp_status device_info(int device, sp_device_info *info, sp_error *err)
{
    static const sp_device_info devices[2] = {
        {.name = "scripted", .capabilities = SP_CAN_EVERYTHING & ~SP_CAN(CLOCK_WALL)},
        {.name = "plain",
         .capabilities = SP_CAN(PIPELINE) | SP_CAN(DATA_PARALLEL) | SP_CAN(NO_MODEL) |
                         SP_CAN(FP64) | SP_CAN(CLOCK_VIRTUAL),
         .ranks = 16}};
    *info = devices[device];
    return SP_OK;
}

// ---- checks ----

static bool selects_any(const sp_plan *plan, const action_selector *selector)
{
    for (int d = 0; d < plan->layout.dp; d++) {
        for (int p = 0; p < plan->layout.pp; p++) {
            const sp_stage_plan *stage = sp_plan_stage(plan, d, p);
            for (size_t a = 0; a < stage->count; a++) {
                sp_plan_place place = {.dp = d, .pp = p, .action = stage->actions[a]};
                if (selects(selector, &place)) {
                    return true;
                }
            }
        }
    }
    return false;
}

static sp_status check_selectors(const sp_plan *plan, const fake_options *o, sp_error *err)
{
    const struct {
        const char *key;
        const action_selector *selector;
    } all[] = {{"fail", &o->fail},
               {"stall", &o->stall},
               {"exhaust", &o->exhaust},
               {"damage", &o->damaged}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].selector->given && !selects_any(plan, all[i].selector)) {
            return sp_error_set(err, SP_ERR_USAGE,
                                "backend 'fake': %s: the plan has no such action", all[i].key);
        }
    }
    return SP_OK;
}

static sp_status check(int device, const sp_run_request *request, sp_error *err)
{
    fake_options options;
    sp_status status = fake_options_read(request, &options, err);
    if (status == SP_OK) {
        status = check_selectors(request->plan, &options, err);
    }
    if (status == SP_OK) {
        status = check_times(request, &options, err);
    }
    fake_options_fini(&options);
    return status;
}

// ---- execution ----

// Nothing may still run when the time is over; `before_ns` is what earlier steps took.
static sp_status check_timeout(const sp_run_request *request, const sp_timeline *timeline,
                               int64_t before_ns, sp_error *err)
{
    for (size_t r = 0; request->timeout_ns > 0 && r < timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &timeline->ranks[r];
        for (size_t i = 0; i < rank->count; i++) {
            if (rank->spans[i].end_ns > request->timeout_ns - before_ns) {
                sp_plan_place place = {rank->dp, rank->pp, rank->spans[i].action};
                return sp_error_at_action(err, SP_ERR_LIMIT, request->plan, &place,
                                          "it is not done at the timeout of %lld ns",
                                          (long long)request->timeout_ns);
            }
        }
    }
    return SP_OK;
}

static sp_status check_limit(const sp_run_request *request, const sp_measured_step *step,
                             sp_error *err)
{
    int64_t limit = request->memory_limit_bytes;
    for (size_t r = 0; limit > 0 && r < step->memory.rank_count; r++) {
        const sp_rank_memory *memory = &step->memory.ranks[r];
        const sp_rank_timeline *rank = &step->timeline.ranks[r];
        long long peak = (long long)sp_bytes_total(&memory->peak);
        if (peak > limit && memory->has_peak_action) {
            sp_plan_place place = {rank->dp, rank->pp, memory->peak_action};
            return sp_error_at_action(err, SP_ERR_INFEASIBLE, request->plan, &place,
                                      "it holds %lld bytes, over the limit of %lld", peak,
                                      (long long)limit);
        }
        if (peak > limit) {
            return sp_error_set(err, SP_ERR_INFEASIBLE,
                                "dp %d pp %d: parameters, gradients and optimizer hold %lld "
                                "bytes, over the limit of %lld",
                                rank->dp, rank->pp, peak, (long long)limit);
        }
    }
    return SP_OK;
}

static sp_status run_step(const sp_run_request *request, const fake_options *options, int number,
                          sp_measured_step *step, sp_error *err)
{
    fake_time time = {.request = request, .options = options, .step = number};
    const sp_step_costs *costs = request->costs;
    sp_shares shares = {0};
    sp_walk_driver driver = {.context = &time,
                             .run = run_action,
                             .transfer_ns = transfer_ns,
                             .blocking_transfers = costs != NULL && costs->blocking_transfers,
                             .shares = &shares};
    sp_status status = SP_OK;
    sp_timeline_init(&step->timeline, request->plan);
    if (costs != NULL && costs->share_class > 0) {
        status = sp_shares_make(request->plan, &shares, err);
    }
    if (status == SP_OK) {
        status = sp_walk(request->plan, &driver, &step->timeline, NULL, err);
    }
    sp_shares_fini(&shares);
    if (status == SP_OK && costs != NULL) {
        sp_epilogue_fill(costs, &step->timeline);
    }
    if (status != SP_OK) {
        return status;
    }
    sp_timeline_finish(&step->timeline);
    if (costs != NULL) {
        status =
            sp_memory_replay(&step->timeline, costs, request->memory_points, &step->memory, err);
    } else {
        sp_memory_timeline_init(&step->memory, &step->timeline);
    }
    step->has_loss = options->has_loss;
    step->loss = options->loss;
    return status;
}

static sp_status new_state(const fake_options *options, void **state, sp_error *err)
{
    if (options->tensor == NULL) {
        return SP_OK;
    }
    fake_tensor *tensor = sp_malloc(sizeof *tensor);
    sp_status status = read_tensor(options->tensor, tensor, err);
    if (status != SP_OK) {
        sp_free(tensor);
        return status;
    }
    *state = tensor;
    return SP_OK;
}

static sp_status execute(int device, const sp_run_request *request, sp_measured_step *steps,
                         void **state, sp_error *err)
{
    fake_options options;
    sp_status status = fake_options_read(request, &options, err);
    if (status == SP_OK) {
        status = new_state(&options, state, err);
    }
    int64_t before_ns = 0;
    for (int i = 0; status == SP_OK && i < request->steps; i++) {
        status = run_step(request, &options, i, &steps[i], err);
        status =
            status == SP_OK ? check_timeout(request, &steps[i].timeline, before_ns, err) : status;
        status = status == SP_OK ? check_limit(request, &steps[i], err) : status;
        // No further than the timeout, so that no sum overflows.
        before_ns += request->timeout_ns > 0 ? steps[i].timeline.iteration_ns : 0;
        if (status == SP_OK) {
            damage_step(&options, &steps[i]);
        }
    }
    fake_options_fini(&options);
    return status;
}

// ---- tensors ----

static void free_state(void *state)
{
    fake_tensor *tensor = state;
    sp_free(tensor->values);
    sp_free(tensor);
}

static sp_status tensor_count(void *state, size_t *count, sp_error *err)
{
    *count = state != NULL;
    return SP_OK;
}

static sp_status tensor_info(void *state, size_t index, sp_tensor_info *info, sp_error *err)
{
    *info = ((fake_tensor *)state)[index].info;
    return SP_OK;
}

static sp_status tensor_read(void *state, size_t index, double *values, sp_error *err)
{
    const fake_tensor *tensor = &((fake_tensor *)state)[index];
    memcpy(values, tensor->values, (size_t)tensor->info.elements * sizeof *values);
    return SP_OK;
}

extern const sp_backend_ops sp_backend_plugin;
const sp_backend_ops sp_backend_plugin = {
    .abi = SP_BACKEND_ABI,
    .size = sizeof(sp_backend_ops),
    .types = SP_BACKEND_TYPES,
    .name = "fake",
    .description = "no work: simulated or scripted durations in virtual time, failures on demand",
    .options = fake_option_list,
    .device_count = device_count,
    .device_info = device_info,
    .execute = execute,
    .free_state = free_state,
    .check = check,
    .tensor_count = tensor_count,
    .tensor_info = tensor_info,
    .tensor_read = tensor_read,
};
