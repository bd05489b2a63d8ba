// `validate` of a scenario beside traces of its run by PyTorch's profiler.
#include <math.h>
#include <string.h>

#include "experiments/cli/traces.h"
#include "experiments/cli/validate.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/cost/cost_model.h"

// Times of a step on one rank, in nanoseconds; NAN: not known.
enum {
    OF_STEP,
    OF_PRODUCTS,
    OF_ATTENTION,
    OF_MEMORY,
    OF_OPTIMIZER,
    OF_EXPOSED,
    OF_IDLE,
    OF_EXPOSED_OR_IDLE,
    COMPARED
};

static const char *const compared_names[COMPARED] = {
    "step",      "products",
    "attention", "bound by memory",
    "optimizer", "communication that nothing hides",
    "idle",      "idle or that nothing hides"};
static const char *const compared_keys[COMPARED] = {
    "step_ms",      "products_ms", "attention_ms", "memory_bound_ms",
    "optimizer_ms", "exposed_ms",  "idle_ms",      "exposed_or_idle_ms"};

typedef struct traced_rank {
    const sp_kineto *trace;
    int64_t rank;
    int dp, pp;
    double predicted[COMPARED]; // sums over batches, then means
    double traced[COMPARED];    // of a step
    sp_trace_times times;
    int steps; // that the trace has; one where none is marked
    int64_t *waits;
} traced_rank;

typedef struct comparison {
    cli_traces traces;
    traced_rank *ranks; // [traces.count]
    sp_scenario scenario;
    sp_batches batches;
    sp_result result;
    int batch_count; // that were observed
    bool knows_waits;
    sp_warnings warnings; // of the traces beside the scenario
} comparison;

// ---- the prediction ----

static const sp_rank_timeline *timeline_of(const sp_timeline *timeline, int dp, int pp)
{
    for (size_t i = 0; i < timeline->rank_count; i++) {
        const sp_rank_timeline *r = &timeline->ranks[i];
        if (r->pp != pp) {
            continue;
        }
        for (int a = 0; a < r->alike; a++) {
            if (r->dp_alike[a] == dp) {
                return r;
            }
        }
    }
    return NULL;
}

// The costs of the plan where what memory bounds takes no time: what a rank computes less by these
// is what kernels bound by memory take, launches included.
static bool without_memory(const comparison *c, const sp_plan *plan, sp_step_costs *costs)
{
    sp_profile profile = c->scenario.profile; // borrows its tables
    sp_cost_model cost;
    profile.memory_bytes_per_s *= 1e9;
    profile.kernel_s = 0.0;
    if (sp_cost_model_init(&cost, &c->scenario.model, &plan->layout, &c->scenario.cluster, &profile,
                           c->scenario.memory, c->scenario.source, NULL) != SP_OK) {
        return false;
    }
    sp_status status = sp_cost_model_build(&cost, plan->packing, costs, NULL);
    sp_cost_model_fini(&cost);
    return status == SP_OK;
}

static double blocked_ns(const sp_span *span)
{
    return (double)(span->tp_ns + span->cp_ns + span->dp_ns + span->ep_ns);
}

static void add_batch(const sp_step_view *view, const sp_step_costs *lean, traced_rank *rank)
{
    const sp_rank_timeline *r = timeline_of(view->timeline, rank->dp, rank->pp);
    bool recomputed = sp_plan_find(view->plan, SP_ACTION_R) != NULL;
    double computed = 0.0;
    double attention = 0.0;
    double memory = 0.0;
    double exposed = 0.0;
    SP_ASSERT(r != NULL);
    for (size_t i = 0; i < r->count; i++) {
        const sp_span *span = &r->spans[i];
        int vstage = sp_layout_vstage(&view->plan->layout, rank->pp, span->action.chunk);
        sp_action_cost cost =
            sp_action_cost_of(view->plan, view->costs, span->action, vstage, recomputed);
        computed += (double)(span->end_ns - span->start_ns - span->launch_ns) - blocked_ns(span);
        attention += (double)cost.attention_ns;
        exposed += blocked_ns(span) + (double)span->wait_p2p_ns;
        if (lean != NULL) {
            sp_action_cost less =
                sp_action_cost_of(view->plan, lean, span->action, vstage, recomputed);
            memory += (double)(cost.compute_ns - cost.launch_ns) -
                      (double)(less.compute_ns - less.launch_ns);
        }
    }
    for (size_t i = 0; i < r->share_count; i++) {
        const sp_span *span = &r->shares[i].span;
        computed += (double)(span->end_ns - span->start_ns) - blocked_ns(span);
        exposed += blocked_ns(span);
    }
    double optimizer = (double)(r->optimizer_end_ns - r->reduce_end_ns);
    exposed += (double)(r->reduce_end_ns - r->reduce_start_ns) +
               (double)(r->gather_end_ns - r->optimizer_end_ns);
    double step = (double)view->timeline->iteration_ns;
    rank->predicted[OF_STEP] += step;
    rank->predicted[OF_PRODUCTS] += lean != NULL ? computed - attention - memory : (double)NAN;
    rank->predicted[OF_ATTENTION] += attention;
    rank->predicted[OF_MEMORY] += lean != NULL ? memory : (double)NAN;
    rank->predicted[OF_OPTIMIZER] += optimizer;
    rank->predicted[OF_EXPOSED] += exposed;
    rank->predicted[OF_IDLE] += step - computed - optimizer - exposed;
    rank->predicted[OF_EXPOSED_OR_IDLE] += step - computed - optimizer;
}

static sp_status observe(void *context, const sp_step_view *view, sp_error *err SP_UNUSED)
{
    comparison *c = context;
    sp_step_costs lean = {0};
    bool known = without_memory(c, view->plan, &lean);
    for (int i = 0; i < c->traces.count; i++) {
        add_batch(view, known ? &lean : NULL, &c->ranks[i]);
    }
    if (known) {
        sp_step_costs_fini(&lean);
    }
    c->batch_count++;
    return SP_OK;
}

// ---- the traces ----

static void measure(traced_rank *rank, bool knows_waits)
{
    const sp_class_time *of = rank->times.of;
    sp_trace_times_of(rank->trace, knows_waits ? rank->waits : NULL, &rank->times);
    rank->steps = rank->trace->steps > 0 ? rank->trace->steps : 1;
    int64_t ns[COMPARED] = {rank->times.extent_ns,
                            of[SP_KERNEL_PRODUCT].ns,
                            of[SP_KERNEL_ATTENTION_FORWARD].ns +
                                of[SP_KERNEL_ATTENTION_BACKWARD].ns,
                            of[SP_KERNEL_NORM].ns + of[SP_KERNEL_ELEMENTWISE].ns,
                            of[SP_KERNEL_OPTIMIZER].ns,
                            rank->times.exposed_ns,
                            rank->times.idle_ns,
                            rank->times.exposed_ns + rank->times.idle_ns};
    for (int i = 0; i < COMPARED; i++) {
        rank->traced[i] = (double)ns[i] / rank->steps;
    }
}

static int place_along(const sp_layout *layout, sp_axis axis, int64_t rank)
{
    return (int)(rank / sp_layout_stride(layout, axis) % sp_layout_size(layout, axis));
}

static sp_status place_rank(comparison *c, traced_rank *rank, sp_error *err)
{
    int64_t gpus = sp_layout_ranks(&c->scenario.layout);
    rank->rank = rank->trace->rank;
    if (rank->rank < 0) {
        rank->rank = 0;
        sp_warnings_add(&c->warnings, "%s does not say its rank: it is compared with rank 0",
                        rank->trace->path);
    }
    if (rank->rank >= gpus) {
        return sp_error_set(err, SP_ERR_CONTENT, "%s: is of rank %lld, %s has %lld GPUs",
                            rank->trace->path, (long long)rank->rank, c->scenario.source,
                            (long long)gpus);
    }
    if (rank->trace->world >= 0 && rank->trace->world != gpus) {
        sp_warnings_add(&c->warnings, "the trace is of a run on %lld GPUs, the scenario has %lld",
                        (long long)rank->trace->world, (long long)gpus);
    }
    rank->dp = place_along(&c->scenario.layout, SP_AXIS_DP, rank->rank);
    rank->pp = place_along(&c->scenario.layout, SP_AXIS_PP, rank->rank);
    return SP_OK;
}

static void warn_of_trace(comparison *c, const traced_rank *rank)
{
    const sp_kineto *trace = rank->trace;
    char first[SP_CLUSTER_NAME];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(c->scenario.cluster.gpu, " "),
             c->scenario.cluster.gpu);
    if (trace->gpu[0] != '\0' && first[0] != '\0' && strstr(trace->gpu, first) == NULL) {
        sp_warnings_add(&c->warnings, "the trace is of a %s, the scenario's cluster has %s",
                        trace->gpu, c->scenario.cluster.gpu);
    }
    if (trace->steps == 0) {
        sp_warnings_add(&c->warnings,
                        "%s marks no step (profiler.step()): all of it is taken as one",
                        trace->path);
    }
    if (trace->undated > 0) {
        sp_warnings_add(&c->warnings, "%s: %zu spans have no duration and count as nothing",
                        trace->path, trace->undated);
    }
    if (rank->times.of[SP_KERNEL_SEND_RECEIVE].ns > 0 && c->scenario.layout.pp > 1) {
        sp_warnings_add(&c->warnings,
                        "a rank that waits for a pipeline stage runs NCCL's receive: traced, a "
                        "bubble is communication; compare the sum with idle time");
    }
}

static sp_status read_all(const validate_args *args, comparison *c, sp_error *err)
{
    sp_status status =
        cli_traces_read(args->traces.items, args->traces.count, true, &c->traces, err);
    if (status == SP_OK) {
        status = sp_traces_check(c->traces.items, c->traces.count, true, err);
    }
    if (status == SP_OK) {
        status = cli_validate_scenario(args, "trace", &c->scenario, err);
    }
    if (status == SP_OK && c->scenario.uniform) {
        status = sp_error_set(err, SP_ERR_CONTENT,
                              "%s: uniform_costs know no kernels: a trace is compared with a model",
                              args->scenario);
    }
    c->ranks = sp_calloc((size_t)c->traces.count, sizeof *c->ranks);
    for (int i = 0; status == SP_OK && i < c->traces.count; i++) {
        c->ranks[i].trace = c->traces.items[i];
        status = place_rank(c, &c->ranks[i], err);
    }
    return status;
}

static void measure_all(comparison *c)
{
    char reason[SP_TRACE_REASON];
    int64_t **waits = sp_calloc((size_t)c->traces.count, sizeof *waits);
    for (int i = 0; i < c->traces.count; i++) {
        waits[i] = c->ranks[i].waits = sp_calloc(c->traces.items[i]->span_count, sizeof *waits[i]);
    }
    c->knows_waits = sp_trace_waits(c->traces.items, c->traces.count, waits, reason);
    if (reason[0] != '\0') {
        sp_warnings_add(&c->warnings, "how long %scollectives wait for other ranks is not told: %s",
                        c->knows_waits ? "some " : "", reason);
    }
    for (int i = 0; i < c->traces.count; i++) {
        measure(&c->ranks[i], c->knows_waits);
        warn_of_trace(c, &c->ranks[i]);
    }
    sp_free(waits);
}

static sp_status compare(const validate_args *args, comparison *c, sp_error *err)
{
    sp_evaluate_options options = {.no_bounds = true,
                                   .threads = cli_threads(args->jobs),
                                   .observer = observe,
                                   .observer_context = c};
    SP_TRY(read_all(args, c, err));
    SP_TRY(cli_form_batches(args->common.quiet, &c->scenario, &c->batches, err));
    SP_TRY(sp_evaluate(&c->scenario, &c->batches, &options, &c->result, err));
    for (int i = 0; i < c->traces.count; i++) {
        for (int t = 0; t < COMPARED; t++) {
            c->ranks[i].predicted[t] /= c->batch_count;
        }
    }
    measure_all(c);
    return SP_OK;
}

// ---- errors ----

static double error_of(const traced_rank *rank, int time)
{
    double predicted = rank->predicted[time];
    double traced = rank->traced[time];
    return predicted > 0.0 && traced > 0.0 ? predicted / traced - 1.0 : (double)NAN;
}

static double step_error(const comparison *c)
{
    double predicted = 0.0;
    double traced = 0.0;
    for (int i = 0; i < c->traces.count; i++) {
        predicted += c->ranks[i].predicted[OF_STEP];
        traced += c->ranks[i].traced[OF_STEP];
    }
    return traced > 0.0 ? predicted / traced - 1.0 : (double)NAN;
}

// ---- what is traced alone ----

enum { ALONE = 5 + SP_KERNEL_CLASSES };

typedef struct traced_alone {
    const char *name;
    double ns; // of a step
} traced_alone;

// Times that the prediction does not have by these names.
static int alone_of(const traced_rank *rank, traced_alone *alone)
{
    const sp_class_time *of = rank->times.of;
    static const sp_kernel_class parts[] = {SP_KERNEL_ATTENTION_FORWARD,
                                            SP_KERNEL_ATTENTION_BACKWARD, SP_KERNEL_OTHER};
    int count = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        alone[count++] = (traced_alone){sp_kernel_class_names[parts[i]], (double)of[parts[i]].ns};
    }
    alone[count++] = (traced_alone){"copies and memset",
                                    (double)(of[SP_KERNEL_MEMCPY].ns + of[SP_KERNEL_MEMSET].ns)};
    for (int c = SP_KERNEL_ALL_REDUCE; c < SP_KERNEL_CLASSES; c++) {
        alone[count++] = (traced_alone){sp_kernel_class_names[c], (double)of[c].ns};
    }
    if (rank->times.knows_waits) {
        alone[count++] = (traced_alone){"waiting in collectives", (double)rank->times.wait_ns};
        alone[count++] =
            (traced_alone){"waiting that nothing hides", (double)rank->times.exposed_wait_ns};
    }
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (alone[i].ns > 0.0) {
            alone[kept++] = (traced_alone){alone[i].name, alone[i].ns / rank->steps};
        }
    }
    return kept;
}

// ---- for people ----

static void print_row(cli_table *table, const traced_rank *rank, const char *name, double predicted,
                      double traced, double error)
{
    if (!cli_row_begin(table)) {
        return;
    }
    cli_cell(table, "%lld", (long long)rank->rank);
    cli_cell(table, "%s", name);
    cli_number_cell(table, "%.3f", predicted / SP_NS_PER_MS);
    cli_number_cell(table, "%.3f", traced / SP_NS_PER_MS);
    cli_number_cell(table, "%+.1f %%", 100.0 * error);
    cli_row_end(table);
}

static void print_comparison(const validate_args *args, const comparison *c)
{
    char profile[CLI_PROFILE];
    char percent[CLI_PERCENT];
    cli_table table;
    cli_print_headline(stdout, &c->scenario);
    for (int i = 0; i < c->traces.count; i++) {
        const traced_rank *r = &c->ranks[i];
        printf("%s: rank %lld (dp %d, pp %d), %zu spans in %d step%s\n", r->trace->path,
               (long long)r->rank, r->dp, r->pp, r->trace->span_count, r->steps,
               sp_plural((int64_t)r->steps));
    }
    printf("\n");
    cli_table_begin(&table, "5 rank|-33 ms of a step|14 predicted|14 traced|0 error", NULL, 0);
    for (int i = 0; i < c->traces.count; i++) {
        const traced_rank *r = &c->ranks[i];
        traced_alone alone[ALONE];
        int count = alone_of(r, alone);
        for (int t = 0; t < COMPARED; t++) {
            print_row(&table, r, compared_names[t], r->predicted[t], r->traced[t], error_of(r, t));
        }
        for (int a = 0; a < count; a++) {
            print_row(&table, r, alone[a].name, (double)NAN, alone[a].ns, (double)NAN);
        }
    }
    cli_table_end(&table);
    printf("\nnot compared, the prediction has none by these names: ");
    cli_print_wrapped(stdout,
                      "forward and backward of attention apart, other kernels, copies, "
                      "communication that work hides, waiting for slower ranks",
                      56, 2);
    if (args->bound_percent != 0) {
        printf("step error %s, bound %lld %%: %s\n",
               cli_percent(step_error(c), "%+.1f %%", percent), (long long)args->bound_percent,
               cli_validate_holds(args, step_error(c)) ? "kept" : "MISSED");
    }
    printf("predicted with profile %s\n", cli_profile_text(&c->scenario, c->result.level, profile));
}

// ---- for programs ----

static json_t *rank_json(const traced_rank *rank)
{
    json_t *times = json_object();
    json_t *classes = json_object();
    for (int t = 0; t < COMPARED; t++) {
        sp_json_put(times, compared_keys[t],
                    sp_json_object(SP_JSON("predicted", rank->predicted[t] / SP_NS_PER_MS),
                                   SP_JSON("traced", rank->traced[t] / SP_NS_PER_MS),
                                   SP_JSON("error", error_of(rank, t))));
    }
    for (int c = 0; c < SP_KERNEL_CLASSES; c++) {
        const sp_class_time *of = &rank->times.of[c];
        if (of->spans > 0) {
            double ms = (double)of->ns / rank->steps / SP_NS_PER_MS;
            sp_json_put(classes, sp_kernel_class_names[c],
                        sp_json_object(SP_JSON("kernels", of->spans), SP_JSON("step_ms", ms)));
        }
    }
    bool known = rank->times.knows_waits;
    double step = SP_NS_PER_MS * rank->steps;
    double wait = known ? (double)rank->times.wait_ns / step : (double)NAN;
    double exposed_wait = known ? (double)rank->times.exposed_wait_ns / step : (double)NAN;
    return sp_json_object(SP_JSON("file", (const char *)rank->trace->path),
                          SP_JSON("rank", rank->rank), SP_JSON("dp", rank->dp),
                          SP_JSON("pp", rank->pp), SP_JSON("steps", rank->steps),
                          SP_JSON("times", times), SP_JSON("classes", classes),
                          SP_JSON("communication_ms", (double)rank->times.communication_ns / step),
                          SP_JSON("wait_ms", wait), SP_JSON("exposed_wait_ms", exposed_wait));
}

static json_t *comparison_json(const validate_args *args, const comparison *c)
{
    json_t *ranks = json_array();
    double traced = 0.0;
    sp_warnings warnings = c->result.warnings;
    sp_warnings_add_all(&warnings, &c->warnings, NULL);
    for (int i = 0; i < c->traces.count; i++) {
        json_array_append_new(ranks, rank_json(&c->ranks[i]));
        traced += c->ranks[i].traced[OF_STEP] / SP_NS_PER_MS / c->traces.count;
    }
    json_t *error = sp_json_object(SP_JSON("iteration_time", step_error(c)),
                                   SP_JSON("bubble_ratio_abs", json_null()),
                                   SP_JSON("peak_memory_mape", json_null()));
    json_t *document =
        sp_json_object(SP_JSON("schema", "slimpack/validation/1"), SP_JSON("clock", json_null()),
                       SP_JSON("predicted", sp_result_json(&c->result, false)),
                       SP_JSON("measured", sp_json_object(SP_JSON("iteration_ms", traced))),
                       SP_JSON("error", error));
    return sp_json_add(
        cli_validate_put_bound(args, step_error(c), document), SP_JSON("ranks", ranks),
        SP_JSON("warnings", sp_json_lines(warnings.text[0], SP_WARNING_TEXT, warnings.count)));
}

// ---- the command ----

static int report(const validate_args *args, const comparison *c)
{
    if (cli_prints_tables_alone()) {
        cli_print_figures(NULL, comparison_json(args, c));
    }
    if (!args->common.json) {
        print_comparison(args, c);
        cli_print_notes(args->common.quiet, NULL, &c->result);
        cli_print_warnings(args->common.quiet, &c->warnings);
    }
    return cli_validate_end(args, &c->result, step_error(c), comparison_json(args, c));
}

int cli_validate_traces(const validate_args *args)
{
    sp_error err = {0};
    comparison *c = sp_calloc(1, sizeof *c);
    sp_status status = compare(args, c, &err);
    int exit_status =
        status == SP_OK
            ? report(args, c)
            : cli_fail_json(
                  args->common.json, "slimpack/validation/1",
                  sp_json_object(SP_JSON("clock", json_null()), SP_JSON("predicted", json_null()),
                                 SP_JSON("measured", json_null()), SP_JSON("error", json_null()),
                                 SP_JSON("ranks", json_array())),
                  0, &err);
    for (int i = 0; c->ranks != NULL && i < c->traces.count; i++) {
        sp_free(c->ranks[i].waits);
    }
    sp_free(c->ranks);
    sp_result_fini(&c->result);
    sp_batches_fini(&c->batches);
    sp_scenario_fini(&c->scenario);
    cli_traces_fini(&c->traces);
    sp_free(c);
    return exit_status;
}
