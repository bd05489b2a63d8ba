// Commands print steps, predicted or executed, for people by these.
#include <math.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/sweep/sweep.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "solver/strategy.h"

enum {
    RANKS_SHOWN = 4, // that people see
    BOTH_SHOWN = 8,
    STEPS_SHOWN = 6,
};

double cli_figure_of_trial(const void *trial, const char *key)
{
    sweep_figure figure = SWEEP_ITERATION_MS;
    const sweep_trial *of = trial;
    for (int c = 0; c < SWEEP_CHOICES; c++) {
        if (strcmp(sweep_choice_names[c], key) == 0) {
            return of->choice[c];
        }
    }
    SP_ASSERT(sweep_figure_find(key, &figure));
    return of->figure[figure];
}

void cli_put_figures(json_t *object, const sweep_trial *trial)
{
    for (int f = 0; f < SWEEP_FIGURE_COUNT; f++) {
        sp_json_put(object, sweep_figure_names[f], sp_json_figure(trial->figure[f]));
    }
}

void cli_add_choices(const cli_table *table, const sweep_trial *trial, char text[CLI_NOTES])
{
    const char *comma = text[0] != '\0' ? ", " : "";
    if (trial->choice[SWEEP_CHUNKS] > 1.0 && !cli_table_shows(table, "chunks")) {
        sp_append(text, CLI_NOTES, "%s%.0f chunks", comma, trial->choice[SWEEP_CHUNKS]);
        comma = ", ";
    }
    if (isfinite(trial->choice[SWEEP_ROW_TOKENS]) && !cli_table_shows(table, "row_tokens")) {
        sp_append(text, CLI_NOTES, "%srows of %.0f", comma, trial->choice[SWEEP_ROW_TOKENS]);
        comma = ", ";
    }
    if (trial->lacks[0] != '\0') {
        sp_append(text, CLI_NOTES, "%sstack lacks %s", comma, trial->lacks);
    }
}

void cli_put_choices(json_t *object, const sweep_trial *trial)
{
    for (int c = 0; c < SWEEP_CHOICES; c++) {
        sp_json_put(object, sweep_choice_names[c], sweep_choice_json(trial, c));
    }
    if (trial->lacks[0] != '\0') {
        sp_json_put(object, "lacks", json_string(trial->lacks));
    }
}

json_t *cli_statuses_json(const int64_t of_status[SWEEP_STATUSES])
{
    json_t *object = json_object();
    for (int s = 0; s < SWEEP_STATUSES; s++) {
        if (s != SWEEP_CANNOT_RUN || of_status[s] > 0) {
            sp_json_put(object, sweep_status_names[s], json_integer(of_status[s]));
        }
    }
    return object;
}

cli_loss cli_loss_of_trial(const sweep_trial *trial)
{
    return (cli_loss){.left_out = trial->figure[SWEEP_LEFT_OUT_SHARE],
                      .cut = trial->figure[SWEEP_CUT_SHARE],
                      .lossy = trial->lossy};
}

const char *cli_step_error(const sp_step_error *error, char text[CLI_STEP_ERROR])
{
    if (error->known) {
        snprintf(
            text, CLI_STEP_ERROR,
            "±%.1f %% in the median, %.1f %% for nine in ten, on %lld logged step%s like this (%s)",
            100.0 * error->median, 100.0 * error->p90, (long long)error->steps,
            sp_plural((int64_t)error->steps), error->scope);
    } else {
        const sp_error_range *range = &error->range;
        snprintf(text, CLI_STEP_ERROR, "not validated: %s", error->not_validated);
        if (range->steps > 0) {
            sp_append(text, CLI_STEP_ERROR,
                      ". By %d other logged steps, of %d sources, that %s, 8 in 10 take %.2f to "
                      "%.2f times the predicted time",
                      range->steps, range->sources,
                      error->differing < 0
                          ? "were predicted without such a record"
                          : "differed as much from those that their profile was fitted to",
                      range->least, range->most);
        }
        if (range->launch_ms > 0.0) {
            sp_append(text, CLI_STEP_ERROR,
                      " (layers are so short that launches may decide: those of a layer's "
                      "micro-batch may take up to %.0f ms)",
                      range->launch_ms);
        }
        const sp_waiting_steps *waiting = &error->waiting;
        if (range->steps > 0 && waiting->steps > 0) {
            sp_append(text, CLI_STEP_ERROR,
                      "; besides, %.0f %% of the %d steps on %d node%s of one source waited long",
                      100.0 * waiting->waited / waiting->steps, waiting->steps, waiting->nodes,
                      sp_plural(waiting->nodes));
            if (waiting->step_nodes != waiting->nodes) {
                sp_append(text, CLI_STEP_ERROR, " (none logged on %d)", waiting->step_nodes);
            }
        }
    }
    return text;
}

const char *cli_memory_word(const sp_result *result)
{
    sp_fits fits = sp_result_fits(result);
    return fits == SP_FITS_NO ? "oom" : fits == SP_FITS_TIGHT ? "tight" : "ok";
}

cli_loss cli_loss_over_length(const sp_scenario *scenario, double share)
{
    const bool truncates = scenario->workload.over_length == SP_OVER_TRUNCATE;
    return (cli_loss){.over_length = share, .fate = truncates ? "truncated" : "dropped"};
}

const char *cli_loss_text(cli_loss loss, char text[CLI_LOSS])
{
    const struct {
        double share;
        const char *what;
    } parts[] = {{loss.left_out, "left out"},
                 {loss.cut, "cut from their beginning"},
                 {loss.over_length, "over the context"}};
    bool shown = loss.left_out > 0.0 || loss.cut > 0.0;
    snprintf(text, CLI_LOSS, "%s", loss.lossy && !shown ? "not lossless" : "");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].share > 0.0) {
            sp_append(text, CLI_LOSS, "%s%.1f %% of tokens %s", text[0] != '\0' ? ", " : "",
                      100.0 * parts[i].share, parts[i].what);
        }
    }
    if (loss.over_length > 0.0 && loss.fate != NULL) {
        sp_append(text, CLI_LOSS, ", %s", loss.fate);
    }
    return text;
}

const char *cli_memory_risk(double fit_probability, double margin_gib, char text[CLI_RISK])
{
    text[0] = '\0';
    if (fit_probability < SP_FITS_SURELY && margin_gib < 0.0) {
        snprintf(text, CLI_RISK, "may run out of memory");
    } else if (fit_probability < SP_FITS_SURELY) {
        snprintf(text, CLI_RISK, "runs with probability %.2f", fit_probability);
    }
    return text;
}

const char *cli_tight_text(double margin_gib)
{
    return margin_gib < 0.0 ? "may not fit" : "fits TIGHTLY";
}

const char *cli_row_notes(cli_loss loss, double fit_probability, double margin_gib,
                          char text[CLI_NOTES])
{
    char lost[CLI_LOSS];
    char risk[CLI_RISK];
    cli_loss_text(loss, lost);
    cli_memory_risk(fit_probability, margin_gib, risk);
    snprintf(text, CLI_NOTES, "%s%s%s", lost, lost[0] != '\0' && risk[0] != '\0' ? ", " : "", risk);
    return text;
}

// Adds groups, slices and chunks of a schedule that are not as usual.
static void add_slices(const sp_scenario *scenario, char text[CLI_LAYOUT])
{
    const sp_schedule_spec *schedule = &scenario->schedule;
    bool sliced = sp_schedule_traits_of(schedule->kind).sliced;
    if (sliced && schedule->slices != scenario->layout.pp) {
        sp_append(text, CLI_LAYOUT, ", %d slices", schedule->slices);
    }
    if (schedule->group == SP_GROUP_EVEN && schedule->kind == SP_SCHEDULE_INTERLEAVED) {
        sp_append(text, CLI_LAYOUT, ", even groups");
    } else if (schedule->group != 0 && schedule->kind == SP_SCHEDULE_INTERLEAVED) {
        sp_append(text, CLI_LAYOUT, ", groups of %d", schedule->group);
    }
    if (schedule->exchange && schedule->kind == SP_SCHEDULE_SLIMPIPE) {
        sp_append(text, CLI_LAYOUT, ", exchange");
    }
    if (schedule->retained > 1 && schedule->kind == SP_SCHEDULE_CHUNKFLOW) {
        sp_append(text, CLI_LAYOUT, ", %d retained", schedule->retained);
    }
}

// Where experts are on several ranks.
static void add_experts(const sp_layout *layout, char text[CLI_LAYOUT])
{
    if (sp_layout_dispatches(layout)) {
        sp_append(text, CLI_LAYOUT, ", ep %d, etp %d", sp_layout_ep(layout), sp_layout_etp(layout));
    }
}

const char *cli_layout_text(const sp_result *result, const sp_scenario *scenario,
                            char text[CLI_LAYOUT])
{
    const sp_layout *layout = &result->layout;
    const json_t *strategy = json_object_get(scenario->resolved, "strategy");
    snprintf(text, CLI_LAYOUT, "tp %d, cp %d, pp %d, dp %d", layout->tp, layout->cp, layout->pp,
             layout->dp);
    add_experts(layout, text);
    if (layout->chunks > 1) {
        sp_append(text, CLI_LAYOUT, ", %d chunks", layout->chunks);
    }
    sp_append(text, CLI_LAYOUT, ", %s", result->schedule);
    add_slices(scenario, text);
    if (layout->zero != 1 && sp_layout_ranks(layout) > layout->tp * layout->pp) {
        sp_append(text, CLI_LAYOUT, ", zero %d", layout->zero);
    }
    char recompute[SP_RECOMPUTE_TEXT];
    sp_append(text, CLI_LAYOUT, ", recompute %s",
              sp_recompute_text(scenario->memory.recompute, recompute));
    const sp_stack *stack = &scenario->memory.stack;
    sp_stack usual;
    if (sp_stack_builtin(stack->name, &usual) && usual.cp_overlap != stack->cp_overlap) {
        sp_append(text, CLI_LAYOUT, ", cp_overlap %s", sp_cp_overlap_names[stack->cp_overlap]);
    }
    static const char *const budgets[] = {"rank_tokens", "chunk_tokens"};
    for (int i = 0; i < 2; i++) {
        json_int_t tokens = json_integer_value(json_object_get(strategy, budgets[i]));
        if (tokens > 0) {
            sp_append(text, CLI_LAYOUT, ", %s %lld", budgets[i], (long long)tokens);
        }
    }
    if (isfinite(sp_result_row_tokens(result))) {
        sp_append(text, CLI_LAYOUT, ", row_tokens %.0f", sp_result_row_tokens(result));
    }
    return text;
}

const char *cli_model_name(const sp_scenario *scenario)
{
    const char *stated = json_string_value(json_object_get(scenario->stated, "model"));
    return stated != NULL ? stated : scenario->model.name;
}

const char *cli_model_comma(const sp_scenario *scenario)
{
    return strstr(cli_model_name(scenario), " with ") != NULL ? "," : "";
}

void cli_print_place(FILE *out, const sp_scenario *scenario)
{
    const sp_layout *layout = &scenario->layout;
    if (scenario->uniform) {
        fprintf(out, "uniform costs on pp %d, dp %d", layout->pp, layout->dp);
    } else {
        fprintf(out, "%s%s on %lld %s (%s, %d node%s): tp %d, cp %d, pp %d, dp %d",
                cli_model_name(scenario), cli_model_comma(scenario),
                (long long)sp_layout_ranks(layout), scenario->cluster.gpu, scenario->cluster.name,
                scenario->cluster.nodes, sp_plural((int64_t)scenario->cluster.nodes), layout->tp,
                layout->cp, layout->pp, layout->dp);
        char experts[CLI_LAYOUT] = "";
        add_experts(layout, experts);
        fputs(experts, out);
    }
}

// Those that were chosen.
static void print_layers(FILE *out, const sp_layout *layout)
{
    fputs(layout->stage_layers == NULL ? ", equal layers" : ", layers", out);
    for (int s = 0; layout->stage_layers != NULL && s < sp_layout_vstages(layout); s++) {
        fprintf(out, "%c%d", s > 0 ? '-' : ' ', layout->stage_layers[s]);
    }
}

void cli_print_headline(FILE *out, const sp_scenario *scenario)
{
    cli_print_place(out, scenario);
    if (scenario->layout.chunks > 1) {
        fprintf(out, ", %d chunks per rank", scenario->layout.chunks);
    }
    if (scenario->cuts_layers && scenario->order_resolved && scenario->layout.pp > 1) {
        print_layers(out, &scenario->layout);
    }
    fprintf(out, ", schedule %s", sp_schedule_names[scenario->schedule.kind]);
    if (scenario->workload.samples_assumed) {
        fprintf(out,
                "; a batch has %lld samples (assumed; --set workload.tokens_per_batch=4M, or "
                "workload.samples_per_batch)",
                (long long)scenario->workload.samples_per_batch);
    }
    fputc('\n', out);
}

static void print_percent(FILE *out, const char *label, double share)
{
    char text[CLI_PERCENT];
    fprintf(out, "%s%s", label, cli_percent(share, "%.2f %%", text));
}

// Only predictions have an error: not measured steps, nor steps of given costs.
static void print_error(FILE *out, const sp_result *result)
{
    char text[CLI_STEP_ERROR];
    if (result->parameters > 0 &&
        (result->step_error.known || result->step_error.not_validated[0] != '\0')) {
        int column = fprintf(out, "  error          ");
        cli_print_wrapped(out, cli_step_error(&result->step_error, text), column, column);
    }
}

static void print_flops(FILE *out, const sp_result *result, sp_flops_count count, const char *what)
{
    double tflops = sp_result_tflops_per_gpu(result, count);
    if (isfinite(tflops)) {
        fprintf(out, "                 %.1f TFLOP/s/GPU", tflops);
        print_percent(out, ", MFU ", sp_result_mfu(result, count));
        fprintf(out, "  (%s)\n", what);
    }
}

void cli_print_loss(FILE *out, cli_loss loss)
{
    char text[CLI_LOSS];
    if (cli_loss_text(loss, text)[0] != '\0') {
        fprintf(out, "  lossy          %s\n", text);
    }
}

static void print_loss(FILE *out, const sp_scenario *scenario, const sp_result *result)
{
    cli_loss loss = cli_loss_over_length(scenario, result->over_length_share);
    loss.left_out = sp_result_left_out_share(result);
    loss.cut = sp_result_cut_share(result);
    loss.lossy = !result->lossless;
    cli_print_loss(out, loss);
}

static void print_throughput(FILE *out, const sp_result *result)
{
    char number[CLI_SHORT_NUMBER];
    double tokens_per_s = sp_result_tokens_per_s(result);
    if (!isfinite(tokens_per_s)) {
        return;
    }
    fprintf(out, "  throughput     %s tokens/s/GPU",
            cli_short_number(sp_result_tokens_per_gpu_s(result), number));
    fprintf(out, "  (%s tokens/s)\n", cli_short_number(tokens_per_s, number));
    if (sp_result_is_frozen(result)) {
        print_flops(out, result, SP_FLOPS_MEGATRON,
                    "of all pairs, without frozen weights' gradients");
        print_flops(out, result, SP_FLOPS_CAUSAL,
                    "of causal pairs, without frozen weights' gradients");
        fprintf(out, "  parameters     %lld of %lld trained (adapters)\n",
                (long long)result->trained_parameters, (long long)result->parameters);
        return;
    }
    print_flops(out, result, SP_FLOPS_MEGATRON, "of all pairs, as Megatron-LM counted before 2026");
    print_flops(out, result, SP_FLOPS_CAUSAL, "of causal pairs, as Megatron-LM counts since");
}

static void print_gap_parts(FILE *out, const sp_result *result)
{
    const sp_batch_facts *sum = &result->sum;
    double per_ms = 1.0 / ((double)result->batch_count * SP_NS_PER_MS);
    if (!sp_result_knows_gap(result)) {
        return;
    }
    fprintf(out,
            "  gap            %.3f ms over pure work: packs' costs %.3f, uneven ranks %.3f, idle "
            "stages %.3f",
            (sum->gap_packs_ns + sum->gap_uneven_ns + sum->gap_idle_ns) * per_ms,
            sum->gap_packs_ns * per_ms, sum->gap_uneven_ns * per_ms, sum->gap_idle_ns * per_ms);
    double unavoidable_ms = (sum->lower_bound_ns - sum->work_bound_ns) * per_ms;
    if (unavoidable_ms >= 0.0005) { // not 0.000
        fprintf(out, "; no plan avoids %.3f of it", unavoidable_ms);
    }
    if (sum->bound_memory_ns * per_ms >= 0.0005) {
        fprintf(out, ", %.3f of that for lack of memory", sum->bound_memory_ns * per_ms);
    }
    fputc('\n', out);
}

enum { LIMIT = 400 };

// The shares of the step that causes add to the limit, the largest first.
static void add_causes(const sp_result *result, char text[LIMIT])
{
    const double shown = 0.005;
    double ms[SP_LIMIT_PARTS];
    double step_ms = sp_result_iteration_ms(result);
    const char *separator = "; added: ";
    sp_result_limit_parts(result, ms);
    for (int told = 0; told < SP_LIMIT_PARTS; told++) {
        int most = 0;
        for (int i = 1; i < SP_LIMIT_PARTS; i++) {
            most = ms[i] > ms[most] ? i : most;
        }
        if (!(ms[most] >= shown * step_ms)) {
            break;
        }
        sp_append(text, LIMIT, "%s%s %.1f %%", separator, sp_limit_names[most],
                  100.0 * ms[most] / step_ms);
        ms[most] = 0.0;
        separator = ", ";
    }
}

void cli_print_limit(FILE *out, const sp_result *result, const char *label, int indent)
{
    char text[LIMIT];
    double share = sp_result_limit_share(result);
    if (!isfinite(share)) {
        return; // measured, or GPUs differ
    }
    double limit_ms = sp_result_limit_ms(result);
    bool seconds = limit_ms >= 1e4;
    snprintf(text, sizeof text, "%.1f %% of the step (%.1f %s %s)", 100.0 * share,
             seconds ? limit_ms / 1e3 : limit_ms, seconds ? "s" : "ms",
             result->parameters > 0 ? "at the best rates" : "of work, were no rank idle");
    add_causes(result, text);
    cli_print_wrapped(out, text, fprintf(out, "%s", label), indent);
}

bool cli_waits_for_peers(const sp_result *result)
{
    const double shown = 0.00005; // as 0.01 %
    return result->layout.pp == 1 && sp_result_bubble_ratio(result) >= shown;
}

static void print_speed(FILE *out, const sp_result *result)
{
    fprintf(out, "  iteration      %.3f ms", sp_result_iteration_ms(result));
    double gap = sp_result_gap(result);
    if (isfinite(gap)) {
        fprintf(out, "  (%.1f %% above the bound of %.3f ms)", 100.0 * gap,
                sp_result_lower_bound_ms(result));
    }
    fputc('\n', out);
    cli_print_limit(out, result, "  limit          ", 17);
    print_gap_parts(out, result);
    print_error(out, result);
    if (cli_waits_for_peers(result)) {
        print_percent(out, "  waiting        ", sp_result_bubble_ratio(result));
        fputs("  for data-parallel ranks with more work: there is no pipeline\n", out);
        print_throughput(out, result);
        return;
    }
    print_percent(out, "  bubble         ", sp_result_bubble_ratio(result));
    print_percent(out, "  (longest stage ", sp_result_bubble_ratio_longest_stage(result));
    if (result->published_bubble_ratio >= 0.0) {
        print_percent(out, ", published form ", result->published_bubble_ratio);
    }
    fputs(")\n", out);
    print_throughput(out, result);
}

const char *const cli_time_part_names[] = {"compute", "tp",        "cp",     "pp wait", "dp",
                                           "experts", "optimizer", "bubble", NULL};

static void print_time(FILE *out, const sp_result *result)
{
    double ms[SP_TIME_PARTS];
    double launch_ms = sp_result_launch_ms(result);
    sp_result_time_parts(result, ms);
    fprintf(out, "  time           ");
    const char *separator = "";
    for (int i = 0; i < SP_TIME_PARTS; i++) {
        if (ms[i] >= 0.0005) {
            bool waits = i == SP_TIME_BUBBLE && cli_waits_for_peers(result);
            fprintf(out, "%s%s %.3f", separator, waits ? "waiting" : cli_time_part_names[i], ms[i]);
            if (i == SP_TIME_COMPUTE && launch_ms >= 0.0005) {
                fprintf(out, " (launches %.3f)", launch_ms);
            }
            if (i == SP_TIME_EP && sp_result_expert_wait_ms(result) >= 0.0005) {
                const sp_overload *overload = &result->sum.overload;
                fprintf(out, " (waiting %.3f", sp_result_expert_wait_ms(result));
                if (overload->mean > 0.0) {
                    fprintf(out, ", fullest rank %.2f times the mean rows, at most %.2f",
                            overload->mean / (double)result->batch_count, overload->most);
                }
                fputc(')', out);
            }
            if (i == SP_TIME_EP && sp_result_expert_hidden_ms(result) >= 0.0005) {
                fprintf(out, " (%.3f more hidden)", sp_result_expert_hidden_ms(result));
            }
            if (i == SP_TIME_BUBBLE && sp_result_zero_wait_ms(result) >= 0.0005) {
                fprintf(out, " (in layers %.3f)", sp_result_zero_wait_ms(result));
            }
            separator = ", ";
        }
    }
    fputs(" ms (mean over ranks)\n", out);
}

// The limit leaves a part of the GPU to others; this says to whom.
static void print_reserve(FILE *out, const sp_result *result)
{
    double reserve_gib = sp_gib_from_bytes(result->memory_reserve_bytes);
    if (reserve_gib <= 0.0 || !cli_is_wide()) {
        return;
    }
    fprintf(out, "\n                 of %.2f GiB, %.2f are kept for",
            sp_gib_from_bytes(result->memory_limit_bytes) + reserve_gib, reserve_gib);
    if (result->memory_reserve_bytes == SP_GPU_RESERVE_BYTES) {
        fprintf(out, " the CUDA context (%.1f), NCCL (%.1f), cuBLAS and fragmentation (%.1f)",
                sp_gib_from_bytes(SP_RESERVE_CONTEXT_BYTES),
                sp_gib_from_bytes(SP_RESERVE_NCCL_BYTES),
                sp_gib_from_bytes(SP_RESERVE_LIBRARIES_BYTES));
    } else {
        fputs(" the CUDA context, NCCL, cuBLAS and fragmentation", out);
    }
}

static void print_allocator(FILE *out, const sp_result *result)
{
    if (result->allocator_peak_bytes > 0) {
        fprintf(out,
                "\n                 PyTorch's allocator: allocated %.2f GiB, reserved %.2f GiB",
                sp_gib_from_bytes(result->allocator_peak_bytes),
                sp_gib_from_bytes(result->reserved_peak_bytes));
    }
}

static void print_memory(FILE *out, const sp_result *result)
{
    if (result->parameters == 0) {
        return;
    }
    fprintf(out, "  peak memory    %.2f GiB", sp_gib_from_bytes(result->peak_bytes));
    if (result->memory_limit_bytes > 0) {
        const double margin_gib = sp_gib_from_bytes(sp_result_margin_bytes(result));
        const char *const words[] = {", fits", ", ", ": OUT OF MEMORY", ""};
        const sp_fits fits = sp_result_fits(result);
        fprintf(out, " of %.2f%s%s (margin %.2f%s)", sp_gib_from_bytes(result->memory_limit_bytes),
                words[fits], fits == SP_FITS_TIGHT ? cli_tight_text(margin_gib) : "", margin_gib,
                result->reserved_peak_bytes > 0 ? " by what PyTorch reserves" : "");
        char risk[CLI_RISK] = "";
        if (!sp_result_is_oom(result) && margin_gib >= 0.0) {
            cli_memory_risk(sp_result_fit_probability(result), margin_gib, risk);
        }
        fprintf(out, "%s%s", risk[0] != '\0' ? "; " : "", risk);
    }
    print_reserve(out, result);
    print_allocator(out, result);
    fputs("\n                 ", out);
    const char *separator = "";
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        if (result->peak.of[c] > 0) {
            fprintf(out, "%s%s %.2f", separator, sp_memory_category_names[c],
                    sp_gib_from_bytes(result->peak.of[c]));
            separator = ", ";
        }
    }
    fputc('\n', out);
}

// Where and when the peak is, and the first of what fills it.
static void print_peak(FILE *out, const sp_result *result)
{
    const sp_peak_memory *peak = &result->peak_memory;
    if (!peak->known || peak->count == 0) {
        return;
    }
    fprintf(out, "                 on dp %d, pp %d", peak->dp, peak->pp);
    if (peak->action[0] != '\0') {
        fprintf(out, " during %s at %.3f ms", peak->action, sp_ms_from_ns(peak->at_ns));
    }
    fprintf(out, "; largest: %s %.2f GiB\n", peak->holders[0].name,
            sp_gib_from_bytes(peak->holders[0].bytes));
}

// The slowest data-parallel rank of each pipeline rank.
static sp_rank_metrics worst_of(const sp_result *result, int pp_rank)
{
    int pp = result->layout.pp;
    sp_rank_metrics worst = result->ranks[pp_rank];
    for (int d = 1; d < result->layout.dp; d++) {
        const sp_rank_metrics *rank = &result->ranks[(size_t)d * (size_t)pp + (size_t)pp_rank];
        worst.busy_ns = rank->busy_ns > worst.busy_ns ? rank->busy_ns : worst.busy_ns;
        worst.span_ns = rank->span_ns > worst.span_ns ? rank->span_ns : worst.span_ns;
        worst.units_peak =
            rank->units_peak > worst.units_peak ? rank->units_peak : worst.units_peak;
        worst.peak_bytes =
            rank->peak_bytes > worst.peak_bytes ? rank->peak_bytes : worst.peak_bytes;
    }
    return worst;
}

static void print_ranks(const sp_result *result)
{
    int pp = result->layout.pp;
    double batches = (double)result->batch_count;
    bool with_memory = result->parameters > 0;
    char columns[128];
    cli_table table;
    snprintf(columns, sizeof columns, "5 pp|12 busy ms|12 span ms|9 %s|7 units%s",
             cli_waits_for_peers(result) ? "waiting" : "bubble", with_memory ? "|11 peak GiB" : "");
    putchar('\n');
    cli_table_begin(&table, columns, "ranks", RANKS_SHOWN);
    for (int r = 0; r < pp; r++) {
        const sp_rank_metrics worst = worst_of(result, r);
        double room_ns = result->makespan_ns;
        cli_row_begin(&table);
        cli_cell(&table, "%d", r);
        cli_number_cell(&table, "%.3f", sp_ms_from_ns(worst.busy_ns) / batches);
        cli_number_cell(&table, "%.3f", sp_ms_from_ns(worst.span_ns) / batches);
        cli_number_cell(&table, "%.2f %%",
                        room_ns > 0.0 ? 100.0 * (1.0 - (double)worst.busy_ns / room_ns) : 0.0);
        cli_number_cell(&table, "%.4g", worst.units_peak);
        if (with_memory) {
            cli_number_cell(&table, "%.2f", sp_gib_from_bytes(worst.peak_bytes));
        }
        cli_row_end(&table);
    }
    cli_table_end(&table);
    if (result->layout.dp > 1) {
        puts("  (largest over the data-parallel ranks)");
    }
}

// A step waits for its slowest GPU; the average, and that of other scales, stand beside it.
static void print_slowest(FILE *out, const sp_result *result)
{
    const sp_slowest_gpu *slowest = &result->slowest;
    if (!(result->jitter.gpu_cv > 0.0)) {
        return;
    }
    fprintf(out, "slowest of %lld GPUs %.4fx the mean, %.4fx expected\n  expected of",
            (long long)slowest->gpus, slowest->drawn, slowest->expected);
    for (int i = 0; i < SP_JITTER_SCALES; i++) {
        fprintf(out, "%s %lld %.4fx", i == 0 ? "" : ",", (long long)sp_jitter_scales[i],
                slowest->expected_of[i]);
    }
    fputc('\n', out);
}

void cli_print_padding(FILE *out, const sp_scenario *scenario, const char *strategy)
{
    const sp_strategy *packs = sp_strategy_find(strategy);
    if (packs == NULL || !packs->pads) {
        return;
    }
    if (scenario->strategy.pad_to == SP_PAD_LONGEST) {
        fprintf(out, "%s: rows as long as the longest sample of their micro-batch", strategy);
    } else if (scenario->workload.context > 0) {
        fprintf(out, "%s: rows of %lld tokens, the context", strategy,
                (long long)scenario->workload.context);
    } else {
        fprintf(out, "%s: rows as long as the longest sample of all", strategy);
    }
    fprintf(out, " (strategy.pad_to %s)\n",
            scenario->strategy.pad_to == SP_PAD_LONGEST ? "longest" : "context");
}

static bool splits_sequences(const sp_scenario *scenario)
{
    return scenario->layout.sequence_parallel && scenario->layout.tp > 2;
}

void cli_print_result(FILE *out, const sp_scenario *scenario, const sp_result *result,
                      bool with_ranks)
{
    cli_print_headline(out, scenario);
    if (!scenario->uniform) {
        char tokens[CLI_SHORT_NUMBER];
        double sum = 0.0;
        double samples = 0.0;
        for (size_t b = 0; b < result->batch_count; b++) {
            sum += (double)result->batches[b].facts.tokens;
            samples += (double)result->batches[b].facts.samples;
        }
        double n = (double)result->batch_count;
        fprintf(out, "%s: %zu batch%s of %.0f sample%s, %s tokens in %.4g micro-batch%s",
                result->strategy, result->batch_count, result->batch_count == 1 ? "" : "es",
                samples / n, samples == n ? "" : "s", cli_short_number(sum / n, tokens),
                sp_result_microbatches(result), sp_result_microbatches(result) == 1.0 ? "" : "es");
        if (isfinite(sp_result_row_tokens(result))) {
            fprintf(out, ", rows of %.0f", sp_result_row_tokens(result));
        }
        fputs(" (mean)\n", out);
        cli_print_padding(out, scenario, result->strategy);
        if (sp_result_padding_share(result) > 0.0) {
            fprintf(out,
                    "padding of samples to a multiple of %s for the GPUs that share them: "
                    "%.1f %%\n",
                    splits_sequences(scenario) ? "lcm(2 cp, cp tp)" : "2 cp",
                    100.0 * sp_result_padding_share(result));
        }
    }
    fputc('\n', out);
    print_speed(out, result);
    print_loss(out, scenario, result);
    print_time(out, result);
    print_memory(out, result);
    print_peak(out, result);
    if (with_ranks) {
        print_ranks(result);
    }
    if (!scenario->uniform) {
        char profile[CLI_PROFILE];
        fprintf(out, "\nprofile %s, seed %llu", cli_profile_text(scenario, result->level, profile),
                (unsigned long long)result->seed);
        if (result->network != SP_NETWORK_CLOSED) {
            fprintf(out, ", network %s", sp_network_detail_names[result->network]);
        }
        if (result->collectives != SP_ALGORITHM_PROFILE) {
            fprintf(out, ", collectives %s", sp_collective_algorithm_names[result->collectives]);
        }
        if (result->jitter.gpu_cv > 0.0) {
            fprintf(out, ", jitter %g (seed %llu)", result->jitter.gpu_cv,
                    (unsigned long long)result->jitter.seed);
        }
        fputc('\n', out);
        print_slowest(out, result);
    }
}

const char *cli_profile_text(const sp_scenario *scenario, sp_level level, char text[CLI_PROFILE])
{
    const sp_profile *profile = &scenario->profile;
    const struct {
        double by;
        const char *with;
    } scales[] = {{profile->compute_scale, "peak"}, {profile->memory_scale, "HBM"}};
    const char *separator = ", scaled by";
    snprintf(text, CLI_PROFILE, "%s", profile->name);
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        if (scales[i].by > 0.0) {
            sp_append(text, CLI_PROFILE, "%s %.3g (%s)", separator, scales[i].by, scales[i].with);
            separator = " and";
        }
    }
    sp_append(text, CLI_PROFILE, " (%s)", sp_level_names[level]);
    return text;
}

// One replica that takes a part of a node is rarely meant where neither dp nor nodes are stated.
void cli_print_idle_gpus(bool quiet, const sp_scenario *scenario)
{
    int64_t ranks = sp_layout_ranks(&scenario->layout);
    int gpus = scenario->cluster.gpus_per_node;
    if (scenario->stated == NULL || gpus % ranks != 0 ||
        !sp_scenario_assumes_replica(scenario, scenario->stated)) {
        return;
    }
    cli_warn(quiet,
             "parallel.dp is not stated: one replica on %lld of a node's %d GPUs; nodes=1 fills "
             "them, with dp %lld",
             (long long)ranks, gpus, (long long)(gpus / ranks));
}

void cli_print_profile_notes(bool quiet, const sp_scenario *scenario)
{
    char lines[SP_PROFILE_LINES][SP_PROFILE_LINE];
    int count =
        sp_profile_lines(&scenario->profile, &scenario->cluster, &scenario->memory.stack, lines);
    for (int i = 0; i < count; i++) {
        cli_warn(quiet, "%s", lines[i]);
    }
}

sp_status cli_form_batches(bool quiet, const sp_scenario *scenario, sp_batches *batches,
                           sp_error *err)
{
    const sp_workload_spec *workload = &scenario->workload;
    const struct {
        const char *key;
        int64_t stated, usual; // more takes a minute or gigabytes
    } sizes[] = {
        {"samples_per_batch", workload->samples_per_batch, 250000},
        {"tokens_per_batch", workload->tokens_per_batch, 1000000000},
        {"batches", workload->batches, 10000},
    };
    cli_hint_context(quiet, workload->context);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && !scenario->uniform; i++) {
        char number[CLI_GROUPED];
        if (sizes[i].stated > sizes[i].usual) {
            cli_warn(quiet,
                     "workload.%s %s: this may take minutes and gigabytes, of which nothing is "
                     "heard until all is done",
                     sizes[i].key, cli_grouped(sizes[i].stated, number));
        }
    }
    return sp_evaluate_batches(scenario, batches, err);
}

void cli_hint_context(bool quiet, int64_t tokens)
{
    enum { USUAL_LEAST = 64 }; // assumed: nobody trains on shorter rows
    if (tokens > 0 && tokens < USUAL_LEAST) {
        cli_warn(quiet, "the context is %lld token%s; did you mean %lldK?", (long long)tokens,
                 sp_plural(tokens), (long long)tokens);
    }
}

void cli_print_warnings(bool quiet, const sp_warnings *warnings)
{
    for (int i = 0; i < warnings->count; i++) {
        cli_warn(quiet, "%s", warnings->text[i]);
    }
}

void cli_add_warnings_json(json_t *result, const sp_warnings *warnings)
{
    for (int i = 0; i < warnings->count; i++) {
        json_array_append_new(json_object_get(result, "warnings"), json_string(warnings->text[i]));
    }
}

void cli_print_unused(bool quiet, const sp_scenario *scenario, sp_run_kind run,
                      const sp_uncalibrated *uncalibrated)
{
    char lines[SP_RANGES][160];
    sp_warnings unused = {.count = 0};
    sp_warn_of_unused(scenario, run, &unused);
    cli_print_warnings(quiet, &unused);
    int count = sp_uncalibrated_lines(uncalibrated, lines);
    for (int i = 0; i < count; i++) {
        cli_warn(quiet, "outside the profile's tables: %s", lines[i]);
    }
}

void cli_add_unused(json_t *result, const sp_scenario *scenario, sp_run_kind run)
{
    sp_warnings unused = {.count = 0};
    sp_warn_of_unused(scenario, run, &unused);
    cli_add_warnings_json(result, &unused);
}

void cli_note_row(const sp_result *result, sp_warnings *warnings)
{
    sp_warnings_add_all(warnings, &result->warnings, result->oom_diagnosis);
    for (int i = 0; i < result->uncalibrated_count; i++) {
        sp_warnings_add(warnings, CLI_UNCALIBRATED "%s", result->uncalibrated[i]);
    }
}

json_t *cli_row_warnings(sp_warning_kinds *kinds, int count)
{
    json_t *texts = json_array();
    for (size_t k = 0; k < kinds->count; k++) {
        const sp_warning_kind *kind = &kinds->kind[k];
        json_array_append_new(
            texts, sp_warning_kind_json(kind, count, kind->results < count ? "rows" : NULL));
    }
    sp_free(kinds->kind);
    return texts;
}

void cli_print_notes(bool quiet, const sp_scenario *scenario, const sp_result *result)
{
    sp_warnings others = {.count = 0};
    if (result->oom_diagnosis[0] != '\0') {
        cli_warn_whole(quiet, "%s", result->oom_diagnosis);
    }
    if (scenario != NULL) {
        cli_print_idle_gpus(quiet, scenario);
    }
    sp_warnings_add_all(&others, &result->warnings, result->oom_diagnosis);
    cli_print_warnings(quiet, &others);
    for (int i = 0; i < result->uncalibrated_count; i++) {
        cli_warn(quiet, CLI_UNCALIBRATED "%s", result->uncalibrated[i]);
    }
}

// ---- what was executed ----

static void print_how(FILE *out, const sp_execution *execution)
{
    const sp_execution_options *options = execution->options;
    fprintf(out, "executed by backend %s on %s: %s clock, %s, seed %llu, %d step%s a batch\n",
            sp_backend_name(options->backend), execution->device.name,
            sp_clock_names[options->clock], sp_precision_names[options->precision],
            (unsigned long long)options->seed, options->steps, sp_plural((int64_t)options->steps));
}

static void print_step(cli_table *table, size_t batch, int step, const sp_executed_batch *run,
                       bool learning_rate)
{
    const sp_executed_step *executed = &run->steps[step];
    cli_row_begin(table);
    cli_cell(table, "%zu", batch);
    cli_cell(table, "%d", step);
    cli_number_cell(table, "%.3f", sp_ms_from_ns(executed->iteration_ns));
    cli_number_cell(table, "%.6f", executed->has_loss ? executed->loss : (double)NAN);
    if (learning_rate) {
        cli_number_cell(table, "%.6g", executed->learning_rate);
    }
    cli_cell(table, "%s", run->step_count > 1 && step == run->shown ? "shown" : "");
    cli_row_end(table);
}

static void print_steps(const sp_execution *execution)
{
    cli_table table;
    putchar('\n');
    bool rates = execution->options->learning_rates;
    cli_table_begin(&table,
                    rates ? "7 batch|6 step|14 @iteration_ms|12 loss|14 learning rate|0 note"
                          : "7 batch|6 step|14 @iteration_ms|12 loss|0 note",
                    "steps", STEPS_SHOWN);
    for (size_t b = 0; b < execution->batch_count; b++) {
        const sp_executed_batch *batch = &execution->batches[b];
        for (int s = 0; s < batch->step_count; s++) {
            print_step(&table, b, s, batch, rates);
        }
    }
    cli_table_end(&table);
}

void cli_print_execution(FILE *out, const sp_scenario *scenario, const sp_execution *execution)
{
    print_how(out, execution);
    cli_print_result(out, scenario, &execution->measured, true);
    print_steps(execution);
}

// ---- gradients ----

static void print_tensors(const sp_proof *proof)
{
    cli_table table;
    putchar('\n');
    cli_table_begin(&table, "-42 tensor|12 elements|12 error|12 largest|10 bound|0~6 ", NULL,
                    STEPS_SHOWN);
    for (size_t t = 0; t < proof->count; t++) {
        const sp_proven_tensor *tensor = &proof->tensors[t];
        const char *slash = strchr(tensor->name, '/'); // "gradients/NAME"
        cli_row_begin(&table);
        cli_cell(&table, "%s", slash != NULL ? slash + 1 : tensor->name);
        cli_cell(&table, "%lld", (long long)tensor->elements);
        cli_number_cell(&table, "%.2e", tensor->error);
        cli_number_cell(&table, "%.2e", tensor->largest);
        cli_number_cell(&table, "%.1e", tensor->bound);
        cli_cell(&table, "%s", tensor->error <= tensor->bound ? "" : "BEYOND");
        cli_row_end(&table);
    }
    cli_table_end(&table);
}

static double share_of_bound(const sp_proof *proof)
{
    const sp_proven_tensor *worst = &proof->tensors[proof->worst];
    return worst->error > 0.0 ? worst->error / worst->bound : 0.0;
}

void cli_print_proofs(FILE *out, const sp_scenario *scenario, const sp_execution *execution)
{
    const sp_execution_options *options = execution->options;
    const sp_proofs *proofs = options->proofs;
    size_t shown = 0;
    cli_print_headline(out, scenario);
    fprintf(out,
            "gradients by backend %s on %s in %s, seed %llu, beside each sample by itself on one "
            "rank by backend %s\n",
            sp_backend_name(options->backend), execution->device.name,
            sp_precision_names[options->precision], (unsigned long long)options->seed,
            sp_backend_name(proofs->plain));
    for (size_t b = 1; b < proofs->count; b++) {
        shown =
            share_of_bound(&proofs->items[b]) > share_of_bound(&proofs->items[shown]) ? b : shown;
    }
    print_tensors(&proofs->items[shown]);
    fputs("\nerror: size of the difference over that of the plain step's tensor; largest: of one "
          "element, over the largest\n",
          out);
    for (size_t b = 0; b < proofs->count; b++) {
        const sp_proof *proof = &proofs->items[b];
        fprintf(out, "batch %zu: loss %.9g, plain %.9g; the worst is %s, %.3g of its bound: %s%s\n",
                b, proof->loss, proof->plain_loss, proof->tensors[proof->worst].name,
                share_of_bound(proof), proof->holds ? "holds" : "DOES NOT HOLD",
                b == shown && proofs->count > 1 ? " (shown above)" : "");
    }
}

// ---- predicted beside measured ----

static void print_both(cli_table *table, const char *figure, const char *format, double predicted,
                       double measured, double error, const char *error_format)
{
    cli_row_begin(table);
    cli_cell(table, "%s", figure);
    cli_number_cell(table, format, predicted);
    cli_number_cell(table, format, measured);
    cli_number_cell(table, error_format, error);
    cli_row_end(table);
}

static void print_figures(const sp_execution *execution)
{
    const sp_result *predicted = &execution->predicted;
    const sp_result *measured = &execution->measured;
    const sp_execution_error error = sp_execution_compare(execution);
    cli_table table;
    putchar('\n');
    cli_table_begin(&table, "-20   figure|14 predicted|14 measured|12 error", NULL, 0);
    print_both(&table, "  iteration ms", "%.3f", sp_result_iteration_ms(predicted),
               sp_result_iteration_ms(measured), 100.0 * error.iteration_time, "%+.2f %%");
    print_both(&table, "  bubble ratio", "%.4f", sp_result_bubble_ratio(predicted),
               sp_result_bubble_ratio(measured), error.bubble_ratio, "%+.4f");
    if (measured->parameters > 0) {
        print_both(
            &table, "  peak memory GiB", "%.4f", sp_gib_from_bytes(predicted->peak_bytes),
            sp_gib_from_bytes(measured->peak_bytes),
            100.0 * sp_relative_error((double)predicted->peak_bytes, (double)measured->peak_bytes),
            "%+.2f %%");
    }
    cli_table_end(&table);
    if (measured->parameters > 0) {
        printf("  peak memory, mean absolute error over ranks %15.2f %%\n",
               100.0 * error.peak_memory_mape);
    }
}

static void print_both_ranks(const sp_execution *execution)
{
    const sp_result *predicted = &execution->predicted;
    const sp_result *measured = &execution->measured;
    int ranks = measured->layout.dp * measured->layout.pp;
    double batches = (double)measured->batch_count;
    bool memory = measured->parameters > 0;
    char columns[160];
    cli_table table;
    snprintf(columns, sizeof columns, "5 dp|4 pp|20 busy ms: predicted|14 measured%s",
             memory ? "|21 peak MiB: predicted|14 measured" : "");
    putchar('\n');
    cli_table_begin(&table, columns, NULL, BOTH_SHOWN);
    for (int r = 0; r < ranks; r++) {
        const sp_rank_metrics *left = &predicted->ranks[r];
        const sp_rank_metrics *right = &measured->ranks[r];
        cli_row_begin(&table);
        cli_cell(&table, "%d", right->dp);
        cli_cell(&table, "%d", right->pp);
        cli_number_cell(&table, "%.3f", sp_ms_from_ns(left->busy_ns) / batches);
        cli_number_cell(&table, "%.3f", sp_ms_from_ns(right->busy_ns) / batches);
        if (memory) {
            cli_number_cell(&table, "%.3f", 1024.0 * sp_gib_from_bytes(left->peak_bytes));
            cli_number_cell(&table, "%.3f", 1024.0 * sp_gib_from_bytes(right->peak_bytes));
        }
        cli_row_end(&table);
    }
    cli_table_end(&table);
}

// The figures are sums over ranks of the most that is held between actions.
static void print_category(cli_table *table, const sp_execution *execution, int category)
{
    int ranks = execution->measured.layout.dp * execution->measured.layout.pp;
    int64_t predicted = 0;
    int64_t measured = 0;
    int differ = 0;
    for (int r = 0; r < ranks; r++) {
        const sp_held_memory *held = &execution->held[r];
        predicted += held->predicted.of[category];
        measured += held->measured.of[category];
        differ += held->predicted.of[category] != held->measured.of[category];
    }
    if (predicted == 0 && measured == 0) {
        return;
    }
    cli_row_begin(table);
    cli_cell(table, "  %s", sp_memory_category_names[category]);
    cli_count_cell(table, predicted);
    cli_count_cell(table, measured);
    if (differ == 0) {
        cli_cell(table, "equal on every rank");
    } else {
        cli_cell(table, "differs on %d of %d ranks", differ, ranks);
    }
    cli_row_end(table);
}

static void print_held(const sp_execution *execution)
{
    cli_table table;
    puts("\n  held between actions, bytes of all ranks");
    cli_table_begin(&table, "-16   held|18 predicted|18 measured|0 ranks", NULL, 0);
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        print_category(&table, execution, c);
    }
    cli_table_end(&table);
}

void cli_print_validation(FILE *out, const sp_scenario *scenario, const sp_execution *execution)
{
    cli_print_headline(out, scenario);
    print_how(out, execution);
    print_figures(execution);
    print_loss(out, scenario, &execution->predicted);
    print_both_ranks(execution);
    if (execution->held != NULL) {
        print_held(execution);
    }
    if (execution->options->learning_rates) {
        print_steps(execution);
    }
    fprintf(out, "\npredicted with profile %s (%s)%s%s\n",
            execution->predicted.profile[0] != '\0' ? execution->predicted.profile : "-",
            sp_level_names[execution->predicted.level],
            execution->measured.parameters > 0 ? ", stack " : "",
            execution->measured.parameters > 0 ? execution->stack.name : "");
}
