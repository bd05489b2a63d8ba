// `validate` of a scenario beside the logs of its run.
#include <math.h>
#include <string.h>

#include "experiments/cli/validate.h"
#include "experiments/measure/training_log.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "solver/strategy.h"

// Beyond these a log is probably of another job than the scenario. Of 655 published peaks 22 are
// further off than the memory's.
static const double most_memory_off = 0.25;
static const double most_tokens_off = 0.02;
static const double most_flops_off = 0.1;

typedef struct peak {
    bool known;
    sp_world_rank which;      // SP_NO_RANK: the largest of all
    double predicted, logged; // bytes; predicted 0: not known
} peak;

typedef struct comparison {
    sp_training_log log;
    sp_scenario scenario;
    sp_batches batches;
    sp_result result;
    double tokens, samples; // of a step, mean
    int64_t gpus;
    double ms; // of the logged step; NAN: there is none
    peak peaks[SP_LOGGED_MEMORIES];
    sp_warnings warnings; // of the log beside the scenario
} comparison;

// ---- logged figures ----

static double logged(const comparison *c, sp_logged figure)
{
    return c->log.figures[figure].median;
}

static double logged_tokens_per_gpu_s(const comparison *c)
{
    double own = logged(c, SP_LOGGED_TOKENS_PER_GPU_S);
    double all = logged(c, SP_LOGGED_TOKENS_PER_S) / (double)c->gpus;
    return isfinite(own) ? own : isfinite(all) ? all : 1e3 * c->tokens / (c->ms * (double)c->gpus);
}

// What the log counts as the FLOPs of a step comes nearer to one of the two counts.
static sp_flops_count count_of(const comparison *c)
{
    double per_ms = logged(c, SP_LOGGED_TFLOPS_PER_GPU) * c->ms;
    double ms = sp_result_iteration_ms(&c->result);
    double all = sp_result_tflops_per_gpu(&c->result, SP_FLOPS_MEGATRON) * ms;
    double causal = sp_result_tflops_per_gpu(&c->result, SP_FLOPS_CAUSAL) * ms;
    return fabs(log(per_ms / causal)) < fabs(log(per_ms / all)) ? SP_FLOPS_CAUSAL
                                                                : SP_FLOPS_MEGATRON;
}

// ---- does the log belong to the scenario? ----

static bool is_far(double said, double own)
{
    return fabs(said / own - 1.0) > 0.02; // vocabularies are padded
}

// A log that says how the job was laid out, and of which model, is held against the scenario's.
// False: it is of another number of GPUs.
static bool check_facts(comparison *c)
{
    const sp_layout *layout = &c->scenario.layout;
    const sp_model *model = &c->scenario.model;
    const struct {
        sp_logged_fact fact;
        const char *name;
        int own;
    } degrees[] = {{SP_LOGGED_TP, "tp", layout->tp},
                   {SP_LOGGED_CP, "cp", layout->cp},
                   {SP_LOGGED_PP, "pp", layout->pp},
                   {SP_LOGGED_DP, "dp", layout->dp}};
    char others[2][64] = {"", ""};
    for (size_t i = 0; i < sizeof degrees / sizeof degrees[0]; i++) {
        const double said = c->log.facts[degrees[i].fact];
        if (isfinite(said) && said != (double)degrees[i].own) {
            const char *between = others[0][0] != '\0' ? ", " : "";
            sp_append(others[0], sizeof others[0], "%s%s %.0f", between, degrees[i].name, said);
            sp_append(others[1], sizeof others[1], "%s%s %d", between, degrees[i].name,
                      degrees[i].own);
        }
    }
    const double world = c->log.facts[SP_LOGGED_WORLD];
    const bool same_gpus = !isfinite(world) || world == (double)c->gpus;
    if (!same_gpus) {
        sp_warnings_add(&c->warnings,
                        "the log says that it is of %.0f GPUs, the scenario has %lld: errors are "
                        "those of another job",
                        world, (long long)c->gpus);
    }
    if (others[0][0] != '\0') {
        sp_warnings_add(&c->warnings,
                        "the log says %s, the scenario has %s: errors are those of another layout",
                        others[0], others[1]);
    }
    const double said = c->log.facts[SP_LOGGED_PARAMETERS];
    if (isfinite(said) && !c->scenario.uniform &&
        is_far(said, (double)sp_model_parameters(model)) &&
        is_far(said, (double)sp_model_trained_parameters(model))) {
        sp_warnings_add(&c->warnings,
                        "the log says %.4g billion parameters, the scenario's model has %.4g: "
                        "errors are those of another model",
                        1e-9 * said, 1e-9 * (double)sp_model_parameters(model));
    }
    return same_gpus;
}

static void check_tokens(comparison *c)
{
    double all = logged(c, SP_LOGGED_TOKENS_PER_S);
    double own = logged(c, SP_LOGGED_TOKENS_PER_GPU_S);
    double gpus = all / own;
    if (isfinite(gpus) && fabs(gpus / (double)c->gpus - 1.0) > 0.05) {
        sp_warnings_add(&c->warnings, "the log is of about %.0f GPUs, the scenario has %lld", gpus,
                        (long long)c->gpus);
        return;
    }
    double ms = logged(c, SP_LOGGED_MS);
    double tokens = 1e-3 * ms * (isfinite(all) ? all : own * (double)c->gpus);
    if (isfinite(tokens) && fabs(tokens / c->tokens - 1.0) > most_tokens_off) {
        sp_warnings_add(&c->warnings,
                        "a logged step has about %.0f tokens, one of the scenario %.0f: is it "
                        "another workload, or on another number of GPUs?",
                        tokens, c->tokens);
    }
}

// Samples are rows of a log where each has the whole context.
static void check_samples(comparison *c)
{
    double rows = logged(c, SP_LOGGED_SAMPLES);
    bool whole = true;
    for (int b = 0; b < c->batches.count; b++) {
        const sp_batch *batch = &c->batches.batch[b];
        whole = whole && sp_batch_longest(batch) * (int64_t)batch->count == batch->total_tokens;
    }
    if (isfinite(rows) && whole && c->samples > 0.0 && rows != c->samples) {
        sp_warnings_add(&c->warnings,
                        "a logged step has %.0f samples, one of the scenario %.0f "
                        "(workload.samples_per_batch)",
                        rows, c->samples);
    }
}

// Of a step, by GPU; logged over counted - 1 by size.
static double flops_off(const comparison *c)
{
    const double counted =
        sp_result_tflops_per_gpu(&c->result, count_of(c)) * sp_result_iteration_ms(&c->result);
    return fabs(logged(c, SP_LOGGED_TFLOPS_PER_GPU) * c->ms / counted - 1.0);
}

static void check_flops(comparison *c)
{
    double ms = sp_result_iteration_ms(&c->result);
    double counted = sp_result_tflops_per_gpu(&c->result, count_of(c)) * ms;
    double logs = logged(c, SP_LOGGED_TFLOPS_PER_GPU) * c->ms;
    if (isfinite(flops_off(c)) && flops_off(c) > most_flops_off) {
        sp_warnings_add(&c->warnings,
                        "the log counts %.4g TFLOP a GPU and step, the scenario's model %.4g: is "
                        "it another model or batch, or are FLOPs counted in another way?",
                        1e-3 * logs, 1e-3 * counted);
    }
}

static void check_log(comparison *c)
{
    const sp_training_log *log = &c->log;
    if (log->form >= 0 && log->kept < 5) {
        sp_warnings_add(&c->warnings, log->whole_run
                                          ? "the log's time is the mean of a whole run, with its "
                                            "warm-up, evaluations and checkpoints"
                                          : "few steps were logged: the median may be that of "
                                            "warm-up");
    }
    const bool same_gpus = check_facts(c);
    if (!c->scenario.uniform && log->form >= 0) {
        if (same_gpus) {
            check_tokens(c);
        }
        check_samples(c);
        check_flops(c);
    }
}

// ---- the prediction ----

static sp_world_rank rank_of(const comparison *c, const sp_logged_memory *memory)
{
    return !memory->known                ? SP_NO_RANK
           : memory->rank == 0           ? SP_FIRST_RANK
           : memory->rank == c->gpus - 1 ? SP_LAST_RANK
                                         : SP_NO_RANK;
}

// The largest rank's peaks, and those of one rank where the log is of that one.
static void plan_peaks(comparison *c, sp_evaluate_options *options)
{
    for (int m = 0; m < SP_LOGGED_MEMORIES; m++) {
        const sp_logged_memory *memory = &c->log.memory[m];
        sp_world_rank which = rank_of(c, memory);
        bool other = options->rank_peak != SP_NO_RANK && options->rank_peak != which;
        c->peaks[m] = (peak){.known = memory->known && !c->scenario.uniform,
                             .which = other ? SP_NO_RANK : which,
                             .logged = memory->bytes};
        options->allocator_peak =
            options->allocator_peak || (c->peaks[m].known && c->peaks[m].which == SP_NO_RANK);
        options->rank_peak = c->peaks[m].known && !other ? which : options->rank_peak;
    }
}

static void note_peaks(comparison *c)
{
    const sp_result *r = &c->result;
    const int64_t of_rank[] = {r->rank_peak_bytes, r->rank_reserved_bytes};
    const int64_t largest[] = {r->allocator_peak_bytes, r->reserved_peak_bytes};
    for (int m = 0; m < SP_LOGGED_MEMORIES; m++) {
        c->peaks[m].predicted = (double)(c->peaks[m].which == SP_NO_RANK ? largest[m] : of_rank[m]);
    }
}

sp_status cli_validate_scenario(const validate_args *args, const char *of, sp_scenario *scenario,
                                sp_error *err)
{
    json_t *document = NULL;
    char profile[VALIDATE_OVERRIDE];
    const char *overrides[VALIDATE_OVERRIDES];
    int count = 0;
    sp_status status = cli_validate_overrides(args, profile, overrides, &count, err);
    if (status == SP_OK) {
        status = cli_read_root(args->scenario, &document, err);
    }
    if (status == SP_OK && sp_is_scenario_set(document)) {
        status =
            sp_error_set(err, SP_ERR_CONTENT, "%s: is a set of scenarios, a %s is of one scenario",
                         args->scenario, of);
    }
    if (status == SP_OK) {
        status = sp_scenario_place(document, args->scenario, err);
    }
    if (status == SP_OK) {
        status = sp_scenario_from_json(document, args->scenario, overrides, count, scenario, err);
    }
    json_decref(document);
    return status == SP_OK ? sp_strategy_resolve(scenario, false, err) : status;
}

static sp_status compare(const validate_args *args, comparison *c, sp_error *err)
{
    sp_evaluate_options options = {.no_bounds = true, .threads = cli_threads(args->jobs)};
    int skip = args->skip == VALIDATE_NO_SKIP ? -1 : (int)args->skip;
    SP_TRY(sp_training_log_read(args->logs.items, args->logs.count, skip, &c->log, err));
    SP_TRY(cli_validate_scenario(args, "log", &c->scenario, err));
    SP_TRY(cli_form_batches(args->common.quiet, &c->scenario, &c->batches, err));
    SP_TRY(sp_training_log_check(&c->log, &c->scenario, err));
    sp_mean_step(&c->batches, &c->tokens, &c->samples);
    c->gpus = sp_layout_ranks(&c->scenario.layout);
    c->ms = c->log.form >= 0 ? sp_training_log_ms(&c->log, c->tokens, c->samples, c->gpus)
                             : (double)NAN;
    plan_peaks(c, &options);
    SP_TRY(sp_evaluate(&c->scenario, &c->batches, &options, &c->result, err));
    note_peaks(c);
    check_log(c);
    return SP_OK;
}

// ---- errors ----

static double share(double predicted, double measured)
{
    return predicted > 0.0 ? predicted / measured - 1.0 : (double)NAN;
}

static double time_error(const comparison *c)
{
    return share(sp_result_iteration_ms(&c->result), c->ms);
}

// ---- what logs and traces share ----

bool cli_validate_holds(const validate_args *args, double time_error)
{
    return args->bound_percent == 0 || !isfinite(time_error) ||
           fabs(time_error) <= (double)args->bound_percent / 100.0;
}

json_t *cli_validate_put_bound(const validate_args *args, double time_error, json_t *document)
{
    bool stated = args->bound_percent != 0;
    double bound = stated ? (double)args->bound_percent / 100.0 : (double)NAN;
    bool holds = cli_validate_holds(args, time_error);
    return sp_json_add(document, SP_JSON("bound", bound),
                       SP_JSON("within_bound", stated ? json_boolean(holds) : json_null()));
}

int cli_validate_end(const validate_args *args, const sp_result *predicted, double time_error,
                     json_t *document)
{
    sp_error err = {0};
    int exit_status = 0;
    if (args->output != NULL) {
        json_incref(document);
        exit_status =
            cli_write_json(args->output, document, &err) != SP_OK ? cli_fail(&err) : exit_status;
    }
    if (args->common.json && exit_status == 0) {
        exit_status = cli_print_json(document);
    } else {
        json_decref(document);
    }
    if (exit_status == 0 && sp_result_is_oom(predicted)) {
        return sp_status_exit(SP_ERR_INFEASIBLE);
    }
    return cli_answer(exit_status, cli_validate_holds(args, time_error));
}

// ---- for people ----

static void print_row(cli_table *table, const char *name, double predicted, double measured,
                      const char *note)
{
    bool known = predicted > 0.0;
    if (!isfinite(measured)) {
        return;
    }
    cli_row_begin(table);
    cli_cell(table, "  %s", name);
    cli_number_cell(table, "%.3f", known ? predicted : (double)NAN);
    cli_number_cell(table, "%.3f", measured);
    cli_number_cell(table, "%+.2f %%", 100.0 * share(predicted, measured));
    cli_cell(table, "%s", note);
    cli_row_end(table);
}

static void print_file(const sp_log_file *file)
{
    printf("  %s: %zu step%s in %zu line%s", file->path, file->steps,
           sp_plural((int64_t)file->steps), file->lines, sp_plural((int64_t)file->lines));
    if (file->restarts > 0) {
        printf(", %d restart%s", file->restarts, sp_plural((int64_t)file->restarts));
    }
    fputc('\n', stdout);
}

static void print_log(const sp_training_log *log)
{
    if (log->form < 0) {
        fputs("log: memory alone, no line is of a step\n", stdout);
    } else {
        printf("log of %s: %zu step%s read, %zu left out to warm up, %zu as outliers",
               sp_log_form_names[log->form], log->steps, sp_plural((int64_t)log->steps),
               log->warm_up, log->slow);
        if (log->slow > 0) {
            printf(" (from %.2f times the median on)", log->slow_from);
        }
        printf(", %zu kept\n", log->kept);
    }
    for (int f = 0; f < log->file_count; f++) {
        print_file(&log->files[f]);
    }
}

static void print_spread(const comparison *c)
{
    static const char *const names[] = {"ms", "tokens/s", "tokens/s/GPU", "samples/s"};
    const sp_logged_figure *f = &c->log.figures[c->log.basis];
    if (c->log.form < 0) {
        return;
    }
    printf("\n  logged %s: %.6g in the median, %.6g in the mean, %.6g to %.6g in 8 of 10 steps",
           names[c->log.basis], f->median, f->mean, f->p10, f->p90);
    if (c->log.resolution > 0.0005) {
        printf(", written to ±%.1f %%", 100.0 * c->log.resolution);
    }
    fputc('\n', stdout);
}

static const char *rank_text(const peak *p)
{
    return p->which == SP_FIRST_RANK  ? "first rank"
           : p->which == SP_LAST_RANK ? "last rank"
                                      : "largest rank";
}

static void print_rows(const comparison *c)
{
    const sp_result *r = &c->result;
    cli_table table;
    putchar('\n');
    cli_table_begin(&table, "-20 figure= |14 predicted|14 logged|12 error|0 note=", NULL, 0);
    print_row(&table, "iteration ms", sp_result_iteration_ms(r), c->ms, "");
    if (!c->scenario.uniform) {
        bool causal = count_of(c) == SP_FLOPS_CAUSAL;
        print_row(&table, "tokens/s/GPU", sp_result_tokens_per_gpu_s(r), logged_tokens_per_gpu_s(c),
                  "");
        print_row(&table, "TFLOP/s/GPU", sp_result_tflops_per_gpu(r, count_of(c)),
                  logged(c, SP_LOGGED_TFLOPS_PER_GPU), causal ? "of causal pairs" : "of all pairs");
    }
    static const char *const names[] = {"allocated GiB", "reserved GiB"};
    for (int m = 0; m < SP_LOGGED_MEMORIES; m++) {
        const peak *p = &c->peaks[m];
        if (p->known) {
            print_row(&table, names[m], p->predicted / SP_GIB, p->logged / SP_GIB, rank_text(p));
        }
    }
    cli_table_end(&table);
}

// Of both counts of FLOPs the log has the nearer one; where they differ the other is told.
static void print_flops(const comparison *c)
{
    const double all = sp_result_tflops_per_gpu(&c->result, SP_FLOPS_MEGATRON);
    const double causal = sp_result_tflops_per_gpu(&c->result, SP_FLOPS_CAUSAL);
    const double own = logged(c, SP_LOGGED_TFLOPS_PER_GPU);
    const bool is_causal = count_of(c) == SP_FLOPS_CAUSAL;
    if (c->scenario.uniform || !isfinite(own) || fabs(all / causal - 1.0) < 0.01 ||
        flops_off(c) > most_flops_off) {
        return;
    }
    char text[CLI_STEP_ERROR];
    snprintf(text, sizeof text,
             is_causal
                 ? "the log seems to count causal pairs of attention, as Megatron-LM does since "
                   "January 2026; of all pairs, as before, its step has %.1f TFLOP/s/GPU"
                 : "the log seems to count all pairs of attention, as Megatron-LM did before "
                   "January 2026; of causal pairs, as since, its step has %.1f TFLOP/s/GPU",
             own * (is_causal ? all / causal : causal / all));
    cli_print_wrapped(stdout, text, printf("  FLOPs: "), 9);
}

static void print_go_on(const validate_args *args, const comparison *c, int expected)
{
    sp_text memory;
    bool streams = cli_is_stream(args->scenario);
    FILE *out = sp_text_begin(&memory);
    fputs(expected == 0 ? "slimpack validate " : " --from-measurements ", out);
    sp_print_word(out, args->scenario);
    fputs(expected == 0 ? " --trace FILE" : " --log ", out);
    for (int f = 0; f < c->log.file_count && expected != 0; f++) {
        fputs(f > 0 ? "," : "", out);
        sp_print_word(out, c->log.files[f].path);
        streams = streams || cli_is_stream(c->log.files[f].path);
    }
    char *command = sp_text_end(&memory);
    if (expected == 0) {
        cli_print_command(stdout, command, printf("go on with: "), 4);
        puts("  FILE is a trace of PyTorch's profiler: it tells which part differs");
    } else if (!streams) {
        char name[SP_MEASUREMENTS_NAME];
        sp_measurements_name(args->scenario, name);
        cli_validate_print_fit(command, name);
    }
    sp_free(command);
}

// Logged over predicted, by one of the two kinds of peak: a log of both says the same twice. NAN:
// none is known.
static double peak_times(const comparison *c)
{
    for (int m = 0; m < SP_LOGGED_MEMORIES; m++) {
        if (c->peaks[m].known && c->peaks[m].predicted > 0.0) {
            return c->peaks[m].logged / c->peaks[m].predicted;
        }
    }
    return (double)NAN;
}

// Tells how far off the prediction is, and whether that was to be expected.
static void print_verdict(const validate_args *args, const comparison *c)
{
    const sp_step_error *error = &c->result.step_error;
    const double times = c->ms / sp_result_iteration_ms(&c->result);
    const int expected = c->scenario.uniform ? -1 : cli_validate_expected(error, times);
    char text[CLI_STEP_ERROR];
    if (!isfinite(times)) {
        return;
    }
    snprintf(text, sizeof text, "the logged step takes %.1f %% %s than predicted",
             100.0 * fabs(times - 1.0), times > 1.0 ? "longer" : "less");
    const char *lies = expected == 1 ? "within" : "outside";
    if (expected >= 0 && error->known) {
        sp_append(text, sizeof text, ", %s the ±%.1f %% of nine in ten steps like it", lies,
                  100.0 * error->p90);
    } else if (expected >= 0) {
        sp_append(text, sizeof text, ", %s the range of others (%.2f to %.2f times)", lies,
                  error->range.least, error->range.most);
    }
    const double memory = peak_times(c);
    const bool other_memory = fabs(memory - 1.0) > most_memory_off;
    if (other_memory) {
        sp_append(text, sizeof text, "; its peak memory is %.0f %% %s", 100.0 * fabs(memory - 1.0),
                  memory > 1.0 ? "higher" : "lower");
    }
    if (expected == 0 || other_memory) {
        sp_append(text, sizeof text,
                  ": check recompute, attention, batch and GPUs of the scenario");
    }
    putchar('\n');
    cli_print_wrapped(stdout, text, printf("verdict: "), 2);
    if (!c->scenario.uniform) {
        print_go_on(args, c, other_memory ? 0 : expected);
    }
}

static void print_comparison(const validate_args *args, const comparison *c)
{
    char profile[CLI_PROFILE];
    char text[CLI_STEP_ERROR];
    cli_print_headline(stdout, &c->scenario);
    print_log(&c->log);
    print_rows(c);
    print_spread(c);
    if (args->bound_percent != 0 && isfinite(c->ms)) {
        printf("  bound of the time's error %lld %%: %s\n", (long long)args->bound_percent,
               cli_validate_holds(args, time_error(c)) ? "kept" : "MISSED");
    }
    if (c->result.parameters > 0 &&
        (c->result.step_error.known || c->result.step_error.not_validated[0] != '\0')) {
        int column = printf("  expected error: ");
        cli_print_wrapped(stdout, cli_step_error(&c->result.step_error, text), column, column);
    }
    print_flops(c);
    if (!c->scenario.uniform) {
        printf("\npredicted with profile %s\n",
               cli_profile_text(&c->scenario, c->result.level, profile));
    }
    print_verdict(args, c);
}

// ---- for programs ----

static json_t *figure_json(const sp_logged_figure *f)
{
    return sp_json_object(SP_JSON("steps", f->steps), SP_JSON("median", f->median),
                          SP_JSON("mean", f->mean), SP_JSON("p10", f->p10), SP_JSON("p90", f->p90));
}

static json_t *log_json(const sp_training_log *log)
{
    static const char *const names[] = {"iteration_ms",  "tokens_per_s",   "tokens_per_gpu_s",
                                        "samples_per_s", "tflops_per_gpu", "samples_per_step"};
    json_t *files = json_array();
    for (int f = 0; f < log->file_count; f++) {
        const sp_log_file *file = &log->files[f];
        json_array_append_new(files, sp_json_object(SP_JSON("path", file->path),
                                                    SP_JSON("lines", file->lines),
                                                    SP_JSON("known_lines", file->known),
                                                    SP_JSON("steps", file->steps),
                                                    SP_JSON("restarts", file->restarts)));
    }
    json_t *figures = json_object();
    for (int f = 0; f < SP_LOGGED_FIGURES; f++) {
        if (log->figures[f].steps > 0) {
            sp_json_put(figures, names[f], figure_json(&log->figures[f]));
        }
    }
    const char *form = log->form >= 0 ? sp_log_form_names[log->form] : NULL;
    return sp_json_object(SP_JSON("form", sp_json_text_or_null(form)), SP_JSON("files", files),
                          SP_JSON("steps", log->steps), SP_JSON("warm_up_steps", log->warm_up),
                          SP_JSON("outliers", log->slow), SP_JSON("outliers_from", log->slow_from),
                          SP_JSON("kept_steps", log->kept), SP_JSON("resolution", log->resolution),
                          SP_JSON("figures", figures));
}

static json_t *memory_json(const comparison *c)
{
    static const char *const names[] = {"allocated", "reserved"};
    json_t *array = json_array();
    for (int m = 0; m < SP_LOGGED_MEMORIES; m++) {
        const peak *p = &c->peaks[m];
        if (p->known) {
            double predicted = p->predicted > 0.0 ? p->predicted / SP_GIB : (double)NAN;
            json_array_append_new(
                array, sp_json_object(SP_JSON("kind", names[m]), SP_JSON("rank", rank_text(p)),
                                      SP_JSON("predicted_gib", predicted),
                                      SP_JSON("measured_gib", p->logged / SP_GIB),
                                      SP_JSON("error", share(p->predicted, p->logged))));
        }
    }
    return array;
}

static json_t *comparison_json(const validate_args *args, const comparison *c)
{
    const sp_result *r = &c->result;
    sp_warnings warnings = r->warnings;
    sp_warnings_add_all(&warnings, &c->warnings, NULL);
    bool model = !c->scenario.uniform;
    double tokens = model ? logged_tokens_per_gpu_s(c) : (double)NAN;
    double tflops = model ? logged(c, SP_LOGGED_TFLOPS_PER_GPU) : (double)NAN;
    double predicted_tflops =
        isfinite(tflops) ? sp_result_tflops_per_gpu(r, count_of(c)) : (double)NAN;
    json_t *measured =
        sp_json_object(SP_JSON("iteration_ms", c->ms), SP_JSON("tokens_per_gpu_s", tokens),
                       SP_JSON("tflops_per_gpu", tflops));
    json_t *error = sp_json_object(
        SP_JSON("iteration_time", time_error(c)), SP_JSON("bubble_ratio_abs", json_null()),
        SP_JSON("peak_memory_mape", fabs(1.0 / peak_times(c) - 1.0)),
        SP_JSON("tokens_per_gpu_s", share(sp_result_tokens_per_gpu_s(r), tokens)),
        SP_JSON("tflops_per_gpu", share(predicted_tflops, tflops)));
    json_t *document = sp_json_object(
        SP_JSON("schema", "slimpack/validation/1"), SP_JSON("clock", json_null()),
        SP_JSON("log", log_json(&c->log)), SP_JSON("predicted", sp_result_json(r, false)),
        SP_JSON("measured", measured), SP_JSON("error", error), SP_JSON("memory", memory_json(c)));
    const int expected =
        model ? cli_validate_expected(&r->step_error, c->ms / sp_result_iteration_ms(r)) : -1;
    sp_json_add(document,
                SP_JSON("as_expected", expected < 0 ? json_null() : json_boolean(expected)),
                SP_JSON("flops_count", !isfinite(tflops)                ? json_null()
                                       : count_of(c) == SP_FLOPS_CAUSAL ? json_string("causal")
                                                                        : json_string("all")));
    return sp_json_add(
        cli_validate_put_bound(args, time_error(c), document), SP_JSON("ranks", json_array()),
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
    return cli_validate_end(args, &c->result, time_error(c), comparison_json(args, c));
}

int cli_validate_log(const validate_args *args)
{
    sp_error err = {0};
    comparison *c = sp_calloc(1, sizeof *c);
    c->log.form = -1;
    sp_status status = compare(args, c, &err);
    int exit_status =
        status == SP_OK
            ? report(args, c)
            : cli_fail_json(
                  args->common.json, "slimpack/validation/1",
                  sp_json_object(SP_JSON("clock", json_null()), SP_JSON("log", json_null()),
                                 SP_JSON("predicted", json_null()),
                                 SP_JSON("measured", json_null()), SP_JSON("error", json_null()),
                                 SP_JSON("memory", json_array()), SP_JSON("ranks", json_array())),
                  0, &err);
    sp_result_fini(&c->result);
    sp_batches_fini(&c->batches);
    sp_scenario_fini(&c->scenario);
    sp_training_log_fini(&c->log);
    sp_free(c);
    return exit_status;
}
