// `tune` where no point fits: what the nearest lacks, which switches spare it on these GPUs, and
// the fewest GPUs at which something fits.
#include <math.h>
#include <stdio.h>

#include "experiments/cli/cli.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "solver/step/step.h"
#include "solver/strategy.h"

// ---- the least memory of a question ----

enum { MOST_SET = 3 }; // of a switch, and of two that are tried together

// The point that needs the least memory, of the first strategy.
typedef struct least {
    bool known, fits, stopped;
    double lacks_gib; // negative where it fits
    sp_fits how;      // with PyTorch's blocks, and ...
    double fit_probability;
    double host_gib; // ... what a GPU has in host memory; all three where they are asked for
    char point[CLI_TUNE_POINT];
} least;

// A point that is to need little states these beside what --set states: they take the least
// memory, and leave no choice that spares none. Each where the stack runs it. ZeRO stays a choice:
// where it has no ranks to shard over, stage 3 gathers in vain.
static const struct {
    const char *path, *setting;
    const char *value; // among those of the stack's list; NULL: of all stacks
} spare[] = {
    {"memory.recompute", "memory.recompute=full", "full"},
    {"schedule.kind", "schedule.kind=1f1b", "1f1b"},
    {"parallel.chunks_per_rank", "parallel.chunks_per_rank=1", NULL},
    {"schedule.microbatch_samples", "schedule.microbatch_samples=1", NULL}, // of rows
};

enum { SPARE = sizeof spare / sizeof spare[0], ROWS_AT = SPARE - 1 };

static bool stack_runs(const sp_scenario *scenario, int i)
{
    const sp_stack_abilities can = sp_stack_abilities_of(&scenario->memory.stack);
    const char *const lists[SPARE] = {can.recomputes, can.schedules, NULL, NULL};
    return spare[i].value == NULL || sp_stack_lists(lists[i], spare[i].value);
}

// Takes what spares memory into the base and among what is stated; the caller frees the list.
static const char **spare_memory(const sweep_layouts_options *options, const sp_scenario *scenario,
                                 const char *const *more, int more_count, json_t *base, int *count)
{
    sp_error own = {0};
    const int asked = options->stated_count;
    const char **stated =
        (const char **)sp_calloc((size_t)(asked + more_count) + SPARE, sizeof *stated);
    bool rows = sp_strategy_find(options->strategies[0])->kind == SP_STRATEGY_ROWS;
    *count = 0;
    for (int i = 0; i < asked + more_count; i++) {
        stated[(*count)++] = i < asked ? options->stated[i] : more[i - asked];
    }
    for (int i = 0; i < SPARE; i++) {
        bool runs = !options->within_stack || stack_runs(scenario, i);
        if ((i != ROWS_AT || rows) && runs &&
            sp_scenario_stated(stated, *count, spare[i].path) == NULL &&
            sp_scenario_override(base, spare[i].setting, &own) == SP_OK) {
            stated[(*count)++] = spare[i].setting;
        }
    }
    return stated;
}

static sp_status count_blocks(const sweep_layouts *layouts, least *found, sp_error *err)
{
    sweep_evaluator evaluator;
    sweep_status kind = SWEEP_OK;
    sp_result result = {0};
    json_t *document = sweep_layouts_document(layouts, layouts->nearest);
    sweep_evaluator_init(&evaluator, NULL, 1);
    evaluator.options.allocator_peak = found->fits;
    sp_status status = sweep_evaluate_document(&evaluator, document, &kind, &result, err);
    if (status == SP_OK) {
        found->how = sp_result_fits(&result);
        found->fit_probability = sp_result_fit_probability(&result);
        found->host_gib = sp_gib_from_bytes(result.peak.of[SP_MEM_OFFLOADED]);
    }
    sp_result_fini(&result);
    sweep_evaluator_fini(&evaluator);
    json_decref(document);
    return status;
}

// How much is asked about a point: the first that fits is enough, or that which needs the least, or
// that with its blocks.
typedef enum least_care { UNTIL_FITS, LEAST, WITH_BLOCKS } least_care;

// On so many GPUs, with more settings. A question that cannot be asked is not known; what is fatal
// is returned.
static sp_status find_least(const cli_shortage *shortage, int64_t gpus, const char *const *more,
                            int more_count, least_care care, least *found, sp_error *err)
{
    const sweep_layouts_options *asked = shortage->options;
    sp_error own = {0};
    json_t *base = NULL;
    sp_scenario scenario = {0};
    sweep_layouts layouts = {0};
    int count = 0;
    *found = (least){.lacks_gib = (double)NAN};
    sp_status status =
        shortage->base_of(shortage->asked, gpus, more, more_count, &base, &scenario, &own);
    if (status == SP_OK) {
        const char **stated = spare_memory(asked, &scenario, more, more_count, base, &count);
        const sweep_layouts_options options = {.strategies = asked->strategies,
                                               .strategy_count = 1,
                                               .wide = true,
                                               .stated = stated,
                                               .stated_count = count,
                                               .gpus = gpus,
                                               .within_stack = asked->within_stack,
                                               .strategies_stated = asked->strategies_stated,
                                               .schedules = asked->schedules,
                                               .schedule_count = asked->schedule_count,
                                               .least_memory = true,
                                               .until_fits = care == UNTIL_FITS,
                                               .threads = asked->threads,
                                               .quiet = true};
        status = sweep_layouts_find(base, &scenario, &options, &layouts, &own);
        const sweep_layout *nearest = layouts.nearest;
        found->stopped = layouts.stopped;
        if (status == SP_OK && nearest != NULL &&
            (nearest->trial.status == SWEEP_OK || nearest->trial.status == SWEEP_OOM)) {
            found->known = true;
            found->fits = nearest->trial.status == SWEEP_OK;
            found->lacks_gib = -nearest->trial.figure[SWEEP_MEMORY_MARGIN_GIB];
            cli_tune_point(&options, &layouts, nearest, found->point);
        }
        if (found->known && care == WITH_BLOCKS) {
            status = count_blocks(&layouts, found, &own);
        }
        sweep_layouts_fini(&layouts);
        sp_free((void *)stated);
    }
    sp_scenario_fini(&scenario);
    json_decref(base);
    found->stopped = found->stopped || status == SP_ERR_STOPPED;
    if (found->stopped || !sp_status_is_fatal(status)) {
        return SP_OK; // what is known by then is told
    }
    return sp_error_set(err, status, "%s", own.message[0]);
}

// ---- the fewest GPUs ----

enum { DOUBLINGS = 8 };

// Numbers of GPUs that are asked for: powers of two within a node, and whole nodes.
static int64_t next_gpus(int64_t gpus, int64_t of_node)
{
    int64_t power = 1;
    while (power <= gpus) {
        power *= 2;
    }
    return power < of_node ? power : (gpus / of_node + 1) * of_node;
}

// Doubles the GPUs until something fits, then looks for fewer, from the least on: fewer may fit
// where more do not, as where layers or heads do not divide. *gpus: 0 where nothing fits, else the
// fewest; *most: the last that was tried.
static sp_status find_gpus(const cli_shortage *shortage, int64_t *gpus, int64_t *most, least *found,
                           sp_error *err)
{
    const int64_t asked = shortage->options->gpus;
    const int64_t of_node = shortage->scenario->cluster.gpus_per_node;
    int64_t tried = asked;
    sp_status status = SP_OK;
    *gpus = 0;
    *found = (least){0};
    for (int i = 0; status == SP_OK && !found->fits && !found->stopped && i < DOUBLINGS &&
                    tried <= CLI_TUNE_MOST_GPUS / 2;
         i++) {
        tried = next_gpus(2 * tried - 1, of_node);
        status = find_least(shortage, tried, NULL, 0, UNTIL_FITS, found, err);
    }
    *most = tried;
    if (status != SP_OK || !found->fits) {
        return status;
    }
    *gpus = tried;
    for (int64_t fewer = 1; status == SP_OK && fewer < *gpus; fewer = next_gpus(fewer, of_node)) {
        least own = {0};
        if (fewer != asked) {
            status = find_least(shortage, fewer, NULL, 0, UNTIL_FITS, &own, err);
        }
        found->stopped = found->stopped || own.stopped;
        if (status == SP_OK && own.fits) {
            *found = own;
            *gpus = fewer;
        }
        if (own.stopped) {
            break;
        }
    }
    return status;
}

// Where the fewest fit tightly, at the point that needs the least: *well, the fewest at which that
// fits well; 0: none of as many as are tried. *found is the point of the fewest then, with its
// blocks; where these fit well, it is left as it is, and *well is the fewest.
static sp_status find_well(const cli_shortage *shortage, int64_t gpus, int64_t *well, least *found,
                           sp_error *err)
{
    const int64_t of_node = shortage->scenario->cluster.gpus_per_node;
    int64_t tried = gpus;
    sp_status status = SP_OK;
    least own = {0};
    *well = 0;
    for (int i = 0; status == SP_OK && *well == 0 && !own.stopped && i < DOUBLINGS; i++) {
        status = find_least(shortage, tried, NULL, 0, WITH_BLOCKS, &own, err);
        *well = own.known && own.fits && own.how == SP_FITS_YES ? tried : 0;
        if (i == 0 && *well == 0 && own.known && own.fits && !own.stopped) {
            *found = own;
        } else if (i == 0 && *well == 0) {
            *well = gpus; // the first that fits is another, of which this is not asked
        }
        tried = next_gpus(tried, of_node);
    }
    found->stopped = found->stopped || own.stopped;
    return status;
}

static void tell_gpus(const cli_shortage *shortage, int64_t gpus, int64_t well, int64_t most,
                      const least *found, sp_error *err)
{
    const int of_node = shortage->scenario->cluster.gpus_per_node;
    char within[64] = "";
    for (int power = 1; power < of_node; power *= 2) {
        sp_append(within, sizeof within, "%d%s", power, 2 * power < of_node ? ", " : " or ");
    }
    if (gpus > 0 && found->stopped) {
        sp_error_set(err, SP_ERR_INFEASIBLE,
                     "%lld GPU%s enough (--gpus %lld; fewer were not all tried: stopped by a "
                     "signal): %s",
                     (long long)gpus, gpus == 1 ? " is" : "s are", (long long)gpus, found->point);
    } else if (gpus > 0 && well != gpus) {
        char other[96] = "no more that were tried do well";
        if (well > 0) {
            snprintf(other, sizeof other, "%lld do well (--gpus %lld)", (long long)well,
                     (long long)well);
        }
        sp_error_set(err, SP_ERR_INFEASIBLE,
                     "%lld GPU%s enough (--gpus %lld) but tightly (fit_probability %.2f); %s; the "
                     "fewest of %swhole nodes of %d: %s",
                     (long long)gpus, gpus == 1 ? " is" : "s are", (long long)gpus,
                     found->fit_probability, other, within, of_node, found->point);
    } else if (gpus > 0) {
        sp_error_set(err, SP_ERR_INFEASIBLE,
                     "%lld GPU%s enough (--gpus %lld), the fewest of %swhole nodes of %d: %s",
                     (long long)gpus, gpus == 1 ? " is" : "s are", (long long)gpus, within, of_node,
                     found->point);
    } else if (found->stopped) {
        sp_error_set(err, SP_ERR_INFEASIBLE, "more GPUs were not tried: stopped by a signal");
    } else {
        sp_error_set(err, SP_ERR_INFEASIBLE, "on up to %lld GPUs none fits either",
                     (long long)most);
    }
}

// ---- switches on the GPUs at hand ----

typedef enum group { ALONE, OF_LOSS, OF_LAYERS, OF_ADAM, OF_ADAPTERS } group;

static bool lists_spare(const sp_scenario *scenario, const char *name)
{
    return scenario->memory.stack.tensors == SP_TENSORS_AUTOGRAD &&
           sp_stack_lists(sp_stack_abilities_of(&scenario->memory.stack).spares, name);
}

static bool can_chunk(const sp_scenario *scenario)
{
    return sp_stack_loss_chunks(&scenario->memory.stack) == 0 &&
           lists_spare(scenario, "loss_chunks");
}

static bool can_recompute(const sp_scenario *scenario)
{
    const sp_stack_abilities can = sp_stack_abilities_of(&scenario->memory.stack);
    return scenario->memory.recompute != SP_RECOMPUTE_FULL &&
           sp_stack_lists(can.recomputes, "full");
}

static bool can_offload(const sp_scenario *scenario)
{
    return !(scenario->memory.stack.offload_states > 0.0) &&
           lists_spare(scenario, "offload_states");
}

static bool can_shrink(const sp_scenario *scenario)
{
    return sp_stack_moment_bytes(&scenario->memory.stack) > 1 &&
           !(scenario->memory.stack.offload_states > 0.0) && lists_spare(scenario, "moment_bytes");
}

static bool can_adapt(const sp_scenario *scenario)
{
    return scenario->model.lora_rank == 0 && !sp_stack_lacks_adapters(&scenario->memory.stack);
}

static bool can_adapt_in_4bit(const sp_scenario *scenario)
{
    return can_adapt(scenario) && !sp_stack_lacks_4bit(&scenario->memory.stack);
}

static bool can_freeze_in_4bit(const sp_scenario *scenario)
{
    return scenario->model.lora_rank > 0 && scenario->model.frozen_weights == SP_FROZEN_BF16 &&
           !sp_stack_lacks_4bit(&scenario->memory.stack);
}

static bool needs_other_stack(const sp_scenario *scenario)
{
    return scenario->model.lora_rank == 0 && sp_stack_lacks_adapters(&scenario->memory.stack);
}

// What changes nothing of the training comes first. 8 chunks are torchtune's default
// (num_output_chunks), rank 16 is assumed.
static const struct {
    const char *set[MOST_SET];
    const char *what;
    group group;       // no two of one group together
    const char *unset; // is told where nobody states this
    bool (*can)(const sp_scenario *scenario);
} switches[] = {
    {{"stack.loss_chunks=8"}, "the loss by chunks", OF_LOSS, NULL, can_chunk},
    {{"memory.recompute=full"}, "all layers run again", OF_LAYERS, NULL, can_recompute},
    {{"memory.offload_states=1"}, "Adam on the host", OF_ADAM, NULL, can_offload},
    {{"stack.moment_bytes=1"}, "8-bit Adam", OF_ADAM, NULL, can_shrink},
    {{"model.lora_rank=16"}, "LoRA trains adapters alone", OF_ADAPTERS, NULL, can_adapt},
    {{"model.frozen_weights=4bit-double"},
     "QLoRA trains adapters alone",
     OF_ADAPTERS,
     NULL,
     can_freeze_in_4bit},
    {{"model.lora_rank=16", "model.frozen_weights=4bit-double"},
     "QLoRA trains adapters alone",
     OF_ADAPTERS,
     NULL,
     can_adapt_in_4bit},
    {{"stack=megatron-bridge-2025", "model.lora_rank=16"},
     "LoRA trains adapters alone",
     ALONE,
     "stack",
     needs_other_stack},
    {{"stack=trl-2025", "model.lora_rank=16", "model.frozen_weights=4bit-double"},
     "QLoRA trains adapters alone",
     ALONE,
     "stack",
     needs_other_stack},
};

enum { SWITCHES = sizeof switches / sizeof switches[0], TOGETHER = 2 * MOST_SET };

// One that was tried, or two.
typedef struct remedy {
    int first, second; // the latter -1: one
    least least;
    double saves_gib;
} remedy;

enum { MOST_REMEDIES = SWITCHES + 1 };

static int list_sets(const remedy *r, const char *set[TOGETHER])
{
    int count = 0;
    for (int i = 0; i < TOGETHER; i++) {
        int of = i < MOST_SET ? r->first : r->second;
        const char *one = of >= 0 ? switches[of].set[i % MOST_SET] : NULL;
        if (one != NULL) {
            set[count++] = one;
        }
    }
    return count;
}

// Tries them on the GPUs at hand; says whether they are known to go together.
static sp_status try_remedy(const cli_shortage *shortage, remedy *r, sp_error *err)
{
    const char *set[TOGETHER];
    int count = list_sets(r, set);
    const double lacks_gib = -shortage->layouts->nearest->trial.figure[SWEEP_MEMORY_MARGIN_GIB];
    const bool offloads = switches[r->first].can == can_offload ||
                          (r->second >= 0 && switches[r->second].can == can_offload);
    sp_status status = find_least(shortage, shortage->options->gpus, set, count,
                                  offloads ? WITH_BLOCKS : LEAST, &r->least, err);
    r->saves_gib = lacks_gib - r->least.lacks_gib;
    return status;
}

static bool may_pair(const remedy *a, const remedy *b)
{
    group one = switches[a->first].group;
    group two = switches[b->first].group;
    return one != two && one != ALONE && two != ALONE && !a->least.fits && !b->least.fits;
}

static const double told_gib = 0.005; // what is less is no saving

// Each switch that spares memory, and the first two that are enough together where neither is.
static sp_status find_remedies(const cli_shortage *shortage, remedy list[MOST_REMEDIES], int *count,
                               sp_error *err)
{
    const sweep_layouts_options *asked = shortage->options;
    sp_status status = SP_OK;
    bool stopped = false;
    *count = 0;
    for (int i = 0; status == SP_OK && !stopped && i < SWITCHES; i++) {
        remedy r = {.first = i, .second = -1};
        bool open = switches[i].unset == NULL || (asked->within_stack && !shortage->stack_stated);
        // What the search chooses spares it already.
        bool chosen =
            switches[i].group == OF_LAYERS &&
            sp_scenario_stated(asked->stated, asked->stated_count, "memory.recompute") == NULL;
        if (!open || chosen || !switches[i].can(shortage->scenario)) {
            continue;
        }
        status = try_remedy(shortage, &r, err);
        stopped = r.least.stopped;
        if (status == SP_OK && r.least.known && r.saves_gib > told_gib) {
            list[(*count)++] = r;
        }
    }
    const int single = *count;
    for (int i = 0; status == SP_OK && !stopped && i < single; i++) {
        for (int j = i + 1; status == SP_OK && !stopped && *count == single && j < single; j++) {
            remedy both = {.first = list[i].first, .second = list[j].first};
            if (may_pair(&list[i], &list[j])) {
                status = try_remedy(shortage, &both, err);
                stopped = both.least.stopped;
                list[*count] = both;
                *count += both.least.known && both.least.fits;
            }
        }
    }
    return status;
}

// What the GPUs of a node have in its host memory.
static double host_of_node(const cli_shortage *shortage, const remedy *r)
{
    const int64_t of_node = shortage->scenario->cluster.gpus_per_node;
    const int64_t gpus = shortage->options->gpus;
    return r->least.host_gib * (double)(gpus < of_node ? gpus : of_node);
}

static void name_remedy(const cli_shortage *shortage, const remedy *r, char text[SP_ERROR_TEXT])
{
    const char *set[TOGETHER];
    char gib[CLI_TUNE_VALUE];
    int count = list_sets(r, set);
    sp_append(text, SP_ERROR_TEXT, "%s", text[0] != '\0' ? "; " : "");
    for (int i = 0; i < count; i++) {
        sp_append(text, SP_ERROR_TEXT, "%s--set %s", i > 0 ? " " : "", set[i]);
    }
    sp_append(text, SP_ERROR_TEXT, " (%s", switches[r->first].what);
    if (r->second >= 0) {
        sp_append(text, SP_ERROR_TEXT, ", %s", switches[r->second].what);
    }
    if (r->least.host_gib > 0.0) {
        char of_node[CLI_TUNE_VALUE];
        sp_append(text, SP_ERROR_TEXT, ": the host holds %s for a GPU, %s a node",
                  cli_tune_gib(r->least.host_gib, gib),
                  cli_tune_gib(host_of_node(shortage, r), of_node));
    }
    sp_append(text, SP_ERROR_TEXT, ") frees %s a GPU", cli_tune_gib(r->saves_gib, gib));
}

static void tell_remedies(const cli_shortage *shortage, const remedy *list, int count,
                          sp_error *err)
{
    const int64_t gpus = shortage->options->gpus;
    for (int fits = 1; fits >= 0; fits--) {
        char text[SP_ERROR_TEXT] = "";
        for (int i = 0; i < count; i++) {
            if (list[i].least.fits == (fits == 1)) {
                name_remedy(shortage, &list[i], text);
            }
        }
        if (text[0] != '\0') {
            sp_error_set(err, SP_ERR_INFEASIBLE, "%s %lld GPU%s: %s",
                         fits ? "it fits on" : "not enough alone on", (long long)gpus,
                         sp_plural(gpus), text);
        }
    }
}

static json_t *remedies_json(const cli_shortage *shortage, const remedy *list, int count)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++) {
        const char *set[TOGETHER];
        int sets = list_sets(&list[i], set);
        json_t *names = json_array();
        for (int s = 0; s < sets; s++) {
            json_array_append_new(names, json_string(set[s]));
        }
        json_t *switched =
            sp_json_object(SP_JSON("set", names), SP_JSON("saves_gib", list[i].saves_gib),
                           SP_JSON("lacks_gib", fmax(list[i].least.lacks_gib, 0.0)),
                           SP_JSON("fits", list[i].least.fits));
        if (list[i].least.host_gib > 0.0) {
            sp_json_put(switched, "host_gib", json_real(host_of_node(shortage, &list[i])));
        }
        json_array_append_new(array, switched);
    }
    return array;
}

// ---- what is said ----

int64_t cli_tune_shared(int64_t gpus, int64_t samples)
{
    int64_t each = gpus;
    while (each > samples && each % 2 == 0) {
        each /= 2;
    }
    return each > samples ? each : (samples + each / 2) / each * each;
}

// Says of points that the stack cannot run, or lacks, that there are some.
static void tell_of_stack(const cli_shortage *shortage, sp_error *err)
{
    const sweep_layouts *all = shortage->layouts;
    const char *stack = shortage->scenario->memory.stack.name;
    const int64_t lacking = all->beyond_count + all->cannot_run;
    if (lacking > 0) {
        sp_error_set(err, SP_ERR_INFEASIBLE,
                     "stack %s does not run %lld point%s ('slimpack help %s'); --any-schedule "
                     "tries %s",
                     stack, (long long)lacking, sp_plural(lacking), stack,
                     lacking == 1 ? "it" : "them");
    }
    const sp_workload_spec *workload = &shortage->scenario->workload;
    const int64_t samples = workload->samples_per_batch;
    const int64_t gpus = sp_layout_ranks(&shortage->scenario->layout);
    const int64_t shared = cli_tune_shared(gpus, samples);
    if (lacking > 0 && workload->uniform_tokens > 0 && shared != samples &&
        sp_stack_abilities_of(&shortage->scenario->memory.stack).whole_batches) {
        sp_error_set(err, SP_ERR_INFEASIBLE,
                     "it wants as many rows for each data-parallel rank, and few numbers of ranks "
                     "on %lld GPUs divide %lld rows: --tokens-per-batch %lld (%lld rows)",
                     (long long)gpus, (long long)samples,
                     (long long)(shared * workload->uniform_tokens), (long long)shared);
    }
}

const char *cli_tune_need(const cli_shortage *shortage, char text[CLI_TUNE_NEED])
{
    char layout[CLI_TUNE_POINT];
    char need[SP_WARNING_TEXT];
    const int64_t limit_bytes = shortage->scenario->memory_limit_bytes;
    const sweep_layout *nearest = shortage->layouts->nearest;
    text[0] = '\0';
    if (nearest != NULL && nearest->trial.status == SWEEP_OOM &&
        isfinite(nearest->trial.figure[SWEEP_MEMORY_MARGIN_GIB])) {
        const double lacks_gib = -nearest->trial.figure[SWEEP_MEMORY_MARGIN_GIB];
        sp_oom_need_text(limit_bytes + (int64_t)(lacks_gib * SP_GIB), limit_bytes, "a GPU", need);
        snprintf(text, CLI_TUNE_NEED, "needs %s: %s", need,
                 cli_tune_point(shortage->options, shortage->layouts, nearest, layout));
    }
    return text;
}

sp_status cli_tune_shortage(const cli_shortage *shortage, json_t **remedies, sp_error *err)
{
    char need[CLI_TUNE_NEED];
    const sweep_layouts *all = shortage->layouts;
    const sweep_layout *nearest = all->nearest;
    remedy list[MOST_REMEDIES];
    least found = {0};
    int64_t gpus = 0;
    int64_t well = 0;
    int64_t most = 0;
    int count = 0;
    sp_error own = {0};
    if (nearest == NULL || nearest->trial.status != SWEEP_OOM) {
        sp_error_set(err, SP_ERR_INFEASIBLE, "none of %lld point%s fits: %s", (long long)all->count,
                     sp_plural(all->count),
                     nearest != NULL ? all->reason : "the stack runs none of them");
        tell_of_stack(shortage, err);
        return SP_ERR_INFEASIBLE;
    }
    sp_error_set(err, SP_ERR_INFEASIBLE, "none of %lld point%s fits; the nearest %s",
                 (long long)all->count, sp_plural(all->count), cli_tune_need(shortage, need));
    sp_error_set(err, SP_ERR_INFEASIBLE, "there, %s", all->reason);
    tell_of_stack(shortage, err);
    sp_status status = find_remedies(shortage, list, &count, &own);
    if (status == SP_OK) {
        tell_remedies(shortage, list, count, err);
        status = find_gpus(shortage, &gpus, &most, &found, &own);
    }
    if (status == SP_OK && gpus > 0 && !found.stopped) {
        status = find_well(shortage, gpus, &well, &found, &own);
    }
    if (status != SP_OK) {
        sp_error_clear(err);
        return sp_error_set(err, status, "%s", own.message[0]);
    }
    tell_gpus(shortage, gpus, well, most, &found, err);
    *remedies = sp_json_object(
        SP_JSON("fewest_gpus", gpus > 0 ? json_integer(gpus) : json_null()),
        SP_JSON("fewest_gpus_well", well > 0 ? json_integer(well) : json_null()),
        SP_JSON("fewest_gpus_point", sp_json_text_or_null(gpus > 0 ? found.point : NULL)),
        SP_JSON("switches", remedies_json(shortage, list, count)));
    if (sp_model_most_experts(&shortage->scenario->model) > 0 &&
        shortage->scenario->layout.etp == 0) {
        sp_error_set(err, SP_ERR_INFEASIBLE, "%s", CLI_TUNE_EXPERTS);
    }
    return SP_ERR_INFEASIBLE;
}
