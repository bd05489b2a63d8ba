#include "solver/step/step.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "solver/rows.h"
#include "solver/slicing.h"
#include "solver/strategy.h"

// A sample as the packing has it.
typedef struct candidate {
    int32_t sample;
    int dp_count;
    int64_t computed; // with padding
} candidate;

static candidate *list_candidates(const sp_packing *packing, size_t *count);
static bool run_alone(sp_i_steps *steps, const sp_packing *packing, const candidate *c);
static void look_wider(sp_i_steps *steps, const sp_packing *packing, candidate c,
                       sp_oom_diagnosis *oom);

static int fullest_rank(const sp_result *result)
{
    int pp = 0;
    for (int64_t i = 0; i < (int64_t)result->layout.dp * result->layout.pp; i++) {
        if (result->ranks[i].peak_bytes == result->peak_bytes) {
            pp = result->ranks[i].pp;
            break;
        }
    }
    return pp;
}

static void note(const sp_i_steps *steps, const sp_batch *batch, const candidate *c,
                 sp_oom_diagnosis *oom)
{
    oom->need = steps->result->peak;
    oom->pp = fullest_rank(steps->result);
    oom->dp_count = c->dp_count;
    oom->id = batch->ids != NULL ? batch->ids[c->sample] : c->sample;
    oom->tokens = batch->tokens[c->sample];
    oom->computed = c->computed;
}

sp_status sp_oom_diagnosis_find(const sp_scenario *scenario, const sp_packing *packing,
                                int64_t plan_bytes, sp_oom_diagnosis *oom, sp_error *err)
{
    static const sp_evaluate_options options = {.no_bounds = true};
    // Costs of its own, so that nothing it asks for shows among the uses of the result's tables.
    sp_result alone = {0};
    sp_i_steps steps = {.scenario = scenario, .options = &options, .result = &alone};
    size_t count;
    size_t most = 0;
    candidate *list = list_candidates(packing, &count);
    *oom =
        (sp_oom_diagnosis){.limit_bytes = scenario->memory_limit_bytes, .plan_bytes = plan_bytes};
    sp_status status = sp_i_steps_init(&steps, err);
    for (size_t i = 0; status == SP_OK && i < count; i++) {
        if (run_alone(&steps, packing, &list[i]) && alone.peak_bytes > sp_bytes_total(&oom->need)) {
            note(&steps, packing->batch, &list[i], oom);
            most = i;
        }
    }
    if (status == SP_OK && sp_oom_diagnosis_is_of_sample(oom)) {
        look_wider(&steps, packing, list[most], oom);
    }
    sp_result_fini(&alone);
    sp_i_steps_fini(&steps);
    sp_free(list);
    return status;
}

bool sp_oom_diagnosis_is_of_sample(const sp_oom_diagnosis *oom)
{
    return sp_bytes_total(&oom->need) > oom->limit_bytes;
}

bool sp_oom_diagnosis_is_worse(const sp_oom_diagnosis *a, const sp_oom_diagnosis *b)
{
    bool of_sample = sp_oom_diagnosis_is_of_sample(a);
    if (of_sample != sp_oom_diagnosis_is_of_sample(b)) {
        return of_sample;
    }
    return of_sample ? sp_bytes_total(&a->need) > sp_bytes_total(&b->need)
                     : a->plan_bytes > b->plan_bytes;
}

// ---- which samples ----

static bool is_longer(const sp_batch *batch, const candidate *a, const candidate *b)
{
    return a->computed != b->computed ? a->computed > b->computed
                                      : batch->tokens[a->sample] > batch->tokens[b->sample];
}

// Keeps for each number of ranks the longest, the first of equals; in place, behind each other.
static size_t keep_longest(const sp_packing *packing, candidate *all)
{
    size_t kept = 0;
    for (size_t s = 0; s < packing->batch->count; s++) {
        candidate c = all[s];
        size_t i = 0;
        while (i < kept && all[i].dp_count != c.dp_count) {
            i++;
        }
        if (c.dp_count > 0 && i == kept) {
            all[kept++] = c;
        } else if (c.dp_count > 0 && is_longer(packing->batch, &c, &all[i])) {
            all[i] = c;
        }
    }
    return kept;
}

static candidate *list_candidates(const sp_packing *packing, size_t *count)
{
    const sp_pack_list *forward = &packing->forward;
    candidate *all = sp_calloc(packing->batch->count, sizeof *all);
    for (size_t k = 0; k < forward->count; k++) {
        const sp_pack *pack = &forward->packs[k];
        for (size_t i = pack->first_slice; i < pack->first_slice + pack->slice_count; i++) {
            candidate *c = &all[forward->slices[i].sample];
            c->sample = forward->slices[i].sample;
            c->dp_count = pack->dp_count;
            c->computed += forward->slices[i].computed_tokens;
        }
    }
    *count = keep_longest(packing, all);
    return all;
}

// ---- a step of one sample ----

// The slices of one sample, in packs that hold nothing else.
static void add_own_slices(const sp_packing *from, const sp_pack_list *list, const candidate *c,
                           sp_pack_list *to)
{
    int32_t first = 0;
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        bool begun = false;
        for (size_t i = pack->first_slice; i < pack->first_slice + pack->slice_count; i++) {
            const sp_slice *slice = &list->slices[i];
            if (slice->sample != c->sample) {
                continue;
            }
            if (!begun) {
                first = to->count == 0 ? pack->microbatch : first;
                begun = true;
                sp_pack_list_begin(to, 0, c->dp_count);
                to->packs[to->count - 1].microbatch = pack->microbatch - first;
                to->packs[to->count - 1].runs_again = pack->runs_again;
                to->packs[to->count - 1].gathers = pack->gathers;
            }
            sp_slice alone = *slice;
            alone.zone = 0; // its ranks are others now
            sp_i_add_slice(from->batch, alone, to);
        }
    }
}

// Slices that a strategy cuts by rules that look at the whole batch or at no row stay.
static bool keeps_slices(const sp_scenario *scenario)
{
    const sp_strategy *strategy = sp_strategy_find(scenario->strategy.kind);
    return strategy->sliced && !strategy->cuts_rows;
}

// A row of its own, cut as the schedule or the strategy cuts rows.
static sp_status add_row(sp_i_steps *steps, const candidate *c, sp_packing *one, sp_error *err)
{
    const sp_scenario *scenario = steps->scenario;
    bool cuts = sp_strategy_find(scenario->strategy.kind)->cuts_rows;
    int64_t tokens = cuts ? scenario->strategy.slice_tokens : 0;
    sp_slice whole = {.sample = c->sample,
                      .tokens = one->batch->tokens[c->sample],
                      .computed_tokens = c->computed};
    sp_pack_list_begin(&one->forward, 0, c->dp_count);
    sp_pack_list_add(&one->forward, whole, true);
    return tokens > 0 ? sp_slice_rows_every(one, tokens, err) : sp_i_step_cut(steps, one, err);
}

static sp_status pack_alone(sp_i_steps *steps, const sp_packing *packing, const candidate *c,
                            sp_packing *one, sp_error *err)
{
    sp_packing_init(one, packing->batch, packing->dp);
    // Batches that are read with a plan are no views with a padding.
    one->forward.padding = one->backward.padding = sp_strategy_padding(steps->scenario);
    sp_status status = SP_OK;
    if (!keeps_slices(steps->scenario)) {
        status = add_row(steps, c, one, err);
    } else {
        add_own_slices(packing, &packing->forward, c, &one->forward);
        add_own_slices(packing, &packing->backward, c, &one->backward);
    }
    if (status != SP_OK) {
        sp_packing_fini(one);
    }
    return status;
}

// Runs one sample; the peak is then that of steps->result. False where the schedule has no order
// for it, which is no error here.
static bool run_alone(sp_i_steps *steps, const sp_packing *packing, const candidate *c)
{
    sp_packing one;
    sp_status status = pack_alone(steps, packing, c, &one, NULL);
    if (status == SP_OK) {
        status = sp_i_step_alone(steps, &one, NULL);
        sp_packing_fini(&one);
    }
    return status == SP_OK;
}

static void look_wider(sp_i_steps *steps, const sp_packing *packing, candidate c,
                       sp_oom_diagnosis *oom)
{
    bool fits = false;
    while (!fits && c.dp_count < packing->dp) {
        c.dp_count = sp_i_merged_next(c.dp_count, packing->dp);
        if (!run_alone(steps, packing, &c)) {
            return;
        }
        oom->wider = c.dp_count;
        oom->wider_bytes = steps->result->peak_bytes;
        fits = steps->result->peak_bytes <= oom->limit_bytes;
    }
}

// ---- the words for what was missing ----

const char *const sp_i_oom_degree_names[SP_OOM_DEGREES] = {"ep", "tp", "cp", "pp"};

enum { FIGURE = 32, LARGEST = 2, PARTS = LARGEST + 2, MOST_PLACES = 9 };

static int64_t needed_bytes(const sp_oom_diagnosis *s)
{
    return sp_oom_diagnosis_is_of_sample(s) ? sp_bytes_total(&s->need) : s->plan_bytes;
}

static double units_of(int64_t bytes, int places)
{
    return (double)bytes / SP_GIB * pow(10.0, places);
}

// Rounded up, so that a limit of the figure is enough.
static int64_t units_above(int64_t bytes, int places)
{
    return (int64_t)ceil(units_of(bytes, places));
}

// All figures of a text have as many places, at least so many that what is needed is seen to be
// more than the limit.
static int places_of(int64_t needed_bytes, int64_t limit_bytes)
{
    const double least_gib =
        sp_gib_from_bytes(needed_bytes < limit_bytes ? needed_bytes : limit_bytes);
    int places = least_gib >= 10.0 ? 2 : least_gib >= 1.0 ? 3 : least_gib >= 0.099 ? 4 : 6;
    while (places < MOST_PLACES && needed_bytes > limit_bytes &&
           units_above(needed_bytes, places) <= llround(units_of(limit_bytes, places))) {
        places++;
    }
    return places;
}

static int places_in(const sp_oom_diagnosis *s)
{
    return places_of(needed_bytes(s), s->limit_bytes);
}

static const char *figure(int64_t units, int places, char text[FIGURE])
{
    snprintf(text, FIGURE, "%.*f", places, (double)units * pow(10.0, -places));
    return text;
}

static const char *gib(const sp_oom_diagnosis *s, int64_t bytes, char text[FIGURE])
{
    const int places = places_in(s);
    return figure(units_above(bytes, places), places, text);
}

static int64_t states_bytes(const sp_bytes *bytes)
{
    return bytes->of[SP_MEM_PARAMETERS] + bytes->of[SP_MEM_GRADIENTS] + bytes->of[SP_MEM_OPTIMIZER];
}

// The figures add up as they are read.
void sp_oom_need_text(int64_t needed_bytes, int64_t limit_bytes, const char *where,
                      char text[SP_WARNING_TEXT])
{
    char number[FIGURE];
    const int places = places_of(needed_bytes, limit_bytes);
    const int64_t needed = units_above(needed_bytes, places);
    const int64_t limit = llround(units_of(limit_bytes, places));
    snprintf(text, SP_WARNING_TEXT, "%s GiB on %s", figure(needed, places, number), where);
    sp_append(text, SP_WARNING_TEXT, ", %s more", figure(needed - limit, places, number));
    sp_append(text, SP_WARNING_TEXT, " than the limit of %s", figure(limit, places, number));
}

static void say_need(const sp_oom_diagnosis *s, const char *where, char text[SP_WARNING_TEXT])
{
    char need[SP_WARNING_TEXT];
    sp_oom_need_text(needed_bytes(s), s->limit_bytes, where, need);
    sp_append(text, SP_WARNING_TEXT, "%s", need);
}

// States, the largest of what else there is, and the rest; what rounding leaves is of the largest.
static void name_parts(const sp_oom_diagnosis *s, char text[SP_WARNING_TEXT])
{
    struct {
        const char *name;
        int64_t bytes, units;
    } part[PARTS] = {{"states", states_bytes(&s->need), 0}};
    char number[FIGURE];
    const int places = places_in(s);
    sp_bytes left = s->need;
    int count = 1;
    int most = 0;
    left.of[SP_MEM_PARAMETERS] = 0;
    left.of[SP_MEM_GRADIENTS] = 0;
    left.of[SP_MEM_OPTIMIZER] = 0;
    left.of[SP_MEM_OFFLOADED] = 0;
    for (int i = 0; i < LARGEST; i++) {
        int largest = 0;
        for (int c = 1; c < SP_MEM_CATEGORIES; c++) {
            largest = left.of[c] > left.of[largest] ? c : largest;
        }
        if (left.of[largest] > 0) {
            part[count].name = sp_memory_category_names[largest];
            part[count++].bytes = left.of[largest];
            left.of[largest] = 0;
        }
    }
    if (sp_bytes_total(&left) > 0) {
        part[count].name = "other";
        part[count++].bytes = sp_bytes_total(&left);
    }
    int64_t rest = units_above(sp_bytes_total(&s->need), places);
    for (int i = 0; i < count; i++) {
        part[i].units = llround(units_of(part[i].bytes, places));
        rest -= part[i].units;
        most = part[i].bytes > part[most].bytes ? i : most;
    }
    part[most].units += rest;
    for (int i = 0; i < count; i++) {
        sp_append(text, SP_WARNING_TEXT, "%s%s %s", i == 0 ? " (" : ", ", part[i].name,
                  figure(part[i].units, places, number));
    }
    sp_append(text, SP_WARNING_TEXT, ")");
}

static void name_sample(const sp_oom_diagnosis *s, char text[SP_WARNING_TEXT])
{
    sp_append(text, SP_WARNING_TEXT, "sample %lld of %lld tokens", (long long)s->id,
              (long long)s->tokens);
    if (s->computed > s->tokens) {
        sp_append(text, SP_WARNING_TEXT, ", padded to %lld,", (long long)s->computed);
    }
}

// Names what was tried, where nothing of it fits.
static void say_tried(const sp_oom_diagnosis *s, char text[SP_WARNING_TEXT])
{
    const char *before = "; the step does not fit either with ";
    if (s->recompute_tried) {
        sp_append(text, SP_WARNING_TEXT, "%smemory.recompute full", before);
        before = ", ";
    }
    for (int i = 0; i < SP_OOM_DEGREES; i++) {
        if (s->degree[i].degree > 0) {
            sp_append(text, SP_WARNING_TEXT, "%sparallel.%s up to %d%s", before,
                      sp_i_oom_degree_names[i], s->degree[i].degree,
                      s->both ? " with or without that" : "");
            before = ", ";
        }
    }
}

static void say_settings(const sp_oom_diagnosis *s, char text[SP_WARNING_TEXT])
{
    char number[FIGURE];
    const char *before = "; the peak fits with ";
    if (s->settings != NULL) {
        sp_append(text, SP_WARNING_TEXT, "; %s", s->settings);
        return;
    }
    if (s->recompute_bytes > 0) {
        sp_append(text, SP_WARNING_TEXT, "%smemory.recompute full (%s)", before,
                  gib(s, s->recompute_bytes, number));
        before = ", ";
    }
    for (int i = 0; i < SP_OOM_DEGREES; i++) {
        if (s->degree[i].bytes > 0) {
            char ranks[FIGURE] = "";
            if (s->degree[i].dp > 0) {
                snprintf(ranks, sizeof ranks, " and parallel.dp %d", s->degree[i].dp);
            }
            sp_append(text, SP_WARNING_TEXT, "%s%sparallel.%s %d%s (%s)", before,
                      s->both ? "memory.recompute full and " : "", sp_i_oom_degree_names[i],
                      s->degree[i].degree,
                      s->degree[i].dp > 0 ? ranks
                      : i > 0             ? " on more GPUs"
                                          : "",
                      gib(s, s->degree[i].bytes, number));
            before = ", ";
        }
    }
    if (*before == ';') {
        say_tried(s, text);
    }
}

static void say_of_plan(const sp_oom_diagnosis *s, char text[SP_WARNING_TEXT])
{
    char number[FIGURE];
    sp_append(text, SP_WARNING_TEXT, "the plan needs ");
    say_need(s, "a rank", text);
    say_settings(s, text);
    if (s->tokens > 0) {
        sp_append(text, SP_WARNING_TEXT, "; alone every sample fits: ");
        name_sample(s, text);
        sp_append(text, SP_WARNING_TEXT, " needs the most, %s",
                  gib(s, sp_bytes_total(&s->need), number));
    }
}

static void say_of_sample(const sp_oom_diagnosis *s, char text[SP_WARNING_TEXT])
{
    char number[FIGURE];
    char where[SP_WARNING_TEXT] = "a rank";
    if (s->dp_count > 1) {
        snprintf(where, sizeof where, "each of %d data-parallel ranks", s->dp_count);
    }
    name_parts(s, where);
    name_sample(s, text);
    sp_append(text, SP_WARNING_TEXT, " alone needs ");
    say_need(s, where, text);
    say_settings(s, text);
    if (states_bytes(&s->need) > s->limit_bytes) {
        sp_append(text, SP_WARNING_TEXT,
                  "; parameters, gradients and optimizer states alone are more");
    } else if (s->wider > 0) {
        sp_append(text, SP_WARNING_TEXT,
                  "; context parallelism over %d data-parallel ranks would need %s", s->wider,
                  gib(s, s->wider_bytes, number));
    }
}

void sp_oom_diagnosis_text(const sp_oom_diagnosis *oom, char text[SP_WARNING_TEXT])
{
    text[0] = '\0';
    if (sp_oom_diagnosis_is_of_sample(oom)) {
        say_of_sample(oom, text);
    } else {
        say_of_plan(oom, text);
    }
}

void sp_oom_diagnosis_settings(const sp_oom_diagnosis *oom, char text[SP_WARNING_TEXT])
{
    static const char before[] = "; ";
    const size_t skipped = sizeof before - 1;
    text[0] = '\0';
    say_settings(oom, text);
    if (text[0] != '\0') {
        memmove(text, text + skipped, strlen(text + skipped) + 1);
    }
}
