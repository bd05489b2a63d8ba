#include "experiments/cli/simulate_export.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "experiments/cli/report.h"
#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/metrics/predecessors.h"
#include "sim/plan/plan_json.h"
#include "sim/verify/dependency_graph.h"

enum {
    TRACE_RANKS = 4096,     // pipeline ranks a selection can name
    TRACE_EVENTS = 1000000, // viewers die above about this many (google/trace-viewer#298)
    CRITICAL_SHOWN = 12,
    DEFAULT_COLUMNS = 100,
};

bool cli_exports_need_memory(const cli_exports *exports)
{
    return exports->trace != NULL || exports->plot != NULL || exports->snapshot != NULL;
}

// A plan that could not be written: the file's name before the cause.
static sp_status named(const cli_exports *exports, sp_status status, sp_error *err)
{
    return status == SP_ERR_IO ? cli_name_file(exports->plan, err) : status;
}

sp_status cli_exports_end(cli_exports *exports, sp_error *err)
{
    sp_free(exports->ranks);
    exports->ranks = NULL;
    sp_status status = err->status;
    if (status == SP_OK && exports->plan_file.file != NULL) {
        const sp_plan_notes notes = {.settings = exports->result->settings,
                                     .curtailed = exports->result->curtailed};
        status = named(
            exports, sp_plan_json_end_noted(exports->plan_file.file, exports->formed, &notes, err),
            err);
    }
    return sp_output_close(&exports->plan_file, status, err);
}

// Reads "FROM-TO" (milliseconds) into the window.
static sp_status parse_window(const char *text, sp_export_window *window, sp_error *err)
{
    char *end = NULL;
    double from_ms = strtod(text, &end);
    double to_ms = *end == '-' && end != text ? strtod(end + 1, &end) : -1.0;
    if (*end != '\0' || !(from_ms >= 0.0) || !(to_ms > from_ms) || to_ms > 1e12) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "--trace-window expects FROM-TO in milliseconds, got '%s'", text);
    }
    window->from_ns = sp_ns_from_ms(from_ms);
    window->to_ns = sp_ns_from_ms(to_ms);
    return SP_OK;
}

// A selection of nothing would have no effect.
static sp_status check_selection(const cli_exports *exports, sp_error *err)
{
    bool draws = exports->trace != NULL || exports->plot != NULL || exports->timeline;
    bool shows = draws || exports->snapshot != NULL || exports->graphml != NULL ||
                 exports->topology != NULL || exports->critical_path;
    if ((exports->trace_ranks != NULL || exports->trace_window != NULL) && !draws) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "%s selects from --trace, --timeline or --plot, and none is asked for",
                            exports->trace_ranks != NULL ? "--trace-ranks" : "--trace-window");
    }
    if (exports->batch > 0 && !shows) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "--batch %lld: nothing that shows one batch is asked for, such as "
                            "--trace or --timeline",
                            (long long)exports->batch);
    }
    return SP_OK;
}

static sp_status read_selection(cli_exports *exports, int pp, sp_error *err)
{
    sp_status status = check_selection(exports, err);
    if (status != SP_OK) {
        return status;
    }
    if (exports->trace_window != NULL) {
        status = parse_window(exports->trace_window, &exports->window, err);
    }
    if (status != SP_OK || exports->trace_ranks == NULL) {
        return status;
    }
    exports->ranks = sp_malloc(TRACE_RANKS * sizeof *exports->ranks);
    sp_error found = {0};
    int count =
        sp_export_parse_ranks(exports->trace_ranks, pp, exports->ranks, TRACE_RANKS, &found);
    if (count < 0) {
        return sp_error_set(err, SP_ERR_USAGE, "--trace-ranks: %s", found.message[0]);
    }
    exports->window.pp_ranks = exports->ranks;
    exports->window.pp_rank_count = count;
    return SP_OK;
}

// Files of this ending were protocol buffers once.
static sp_status check_trace_name(const char *path, sp_error *err)
{
    static const char ending[] = ".pftrace";
    return !cli_ends_in(path, ending)
               ? SP_OK
               : sp_error_set(err, SP_ERR_USAGE,
                              "--trace: '%s': a trace is JSON, which Perfetto opens as well: "
                              "'%.*s.json.gz' is written compressed",
                              path, (int)(strlen(path) - strlen(ending)), path);
}

sp_status cli_exports_begin(cli_exports *exports, int pp, sp_error *err)
{
    sp_status status = read_selection(exports, pp, err);
    if (status == SP_OK && exports->trace != NULL) {
        status = check_trace_name(exports->trace, err);
    }
    if (status == SP_OK && exports->plot != NULL) {
        status = cli_plot_check(exports->plot, err);
    }
    if (status != SP_OK || exports->plan == NULL) {
        return status;
    }
    status = sp_output_open(&exports->plan_file, exports->plan, err);
    if (status != SP_OK) {
        return status;
    }
    json_t *scenario = json_deep_copy(exports->scenario);
    status = sp_scenario_place_in(scenario, exports->plan, err);
    status = status == SP_OK ? sp_plan_json_begin(exports->plan_file.file, scenario, err) : status;
    json_decref(scenario);
    return named(exports, status, err);
}

// Every writer of a file takes this.
typedef struct shown {
    const cli_exports *exports;
    const sp_step_view *view;
    sp_structure *structure;
    sp_predecessors *predecessors;
    sp_topology *topology;
    double *link_bytes;
    size_t rank;
} shown;

// There is no memory to show where uniform costs hold no bytes, or a planner's formulas say a
// figure that the tensors of the step do not add up to.
static const sp_memory_timeline *memory_of(const shown *s)
{
    bool known = s->view->costs->unit != NULL && !s->exports->planner_memory;
    return known ? s->view->memory : NULL;
}

static sp_status write_trace(FILE *file, const void *what, sp_error *err)
{
    const shown *s = what;
    return sp_export_trace(file, s->view->timeline, memory_of(s), &s->exports->window,
                           s->predecessors, cli_ends_in(s->exports->trace, ".gz"), NULL, err);
}

// Viewers read a trace whole.
static void warn_of_events(const shown *s)
{
    int64_t events =
        sp_export_trace_events(s->view->timeline, &s->exports->window, memory_of(s) != NULL);
    if (events > TRACE_EVENTS) {
        char grouped[CLI_GROUPED];
        sp_warnings_add(s->exports->warnings,
                        "%s: %s events may be more than a trace viewer can open; --trace-ranks and "
                        "--trace-window select a part",
                        s->exports->trace, cli_grouped(events, grouped));
    }
}

static sp_status show_trace(shown *s, sp_error *err)
{
    warn_of_events(s);
    s->predecessors = sp_predecessors_new(s->view->timeline, s->view->costs);
    sp_status status = cli_write_file(s->exports->trace, write_trace, s, err);
    sp_predecessors_free(s->predecessors);
    return status;
}

static sp_status write_plot_data(FILE *file, const void *what, sp_error *err)
{
    const shown *s = what;
    return sp_export_gnuplot(file, s->view->timeline, memory_of(s), &s->exports->window, err);
}

static sp_status write_memory_snapshot(FILE *file, const void *what, sp_error *err)
{
    const shown *s = what;
    return sp_export_memory_snapshot(file, s->view->timeline, s->view->memory, s->rank, err);
}

// The rank whose peak is the largest.
static sp_status write_snapshot(shown *s, sp_error *err)
{
    const sp_memory_timeline *memory = memory_of(s);
    if (memory == NULL) {
        return sp_error_set(
            err, SP_ERR_USAGE, "--memory-snapshot: %s",
            s->exports->planner_memory
                ? "memory.model \"slimpipe-planner\" knows no tensors to show; \"tensors\" does"
                : "uniform costs have no memory to show");
    }
    for (size_t r = 1; r < memory->rank_count; r++) {
        if (sp_bytes_total(&memory->ranks[r].peak) > sp_bytes_total(&memory->ranks[s->rank].peak)) {
            s->rank = r;
        }
    }
    return cli_write_file(s->exports->snapshot, write_memory_snapshot, s, err);
}

static sp_status print_critical_path(const cli_exports *exports, const sp_step_view *view,
                                     sp_structure *structure, sp_error *err)
{
    sp_critical_step *steps = NULL;
    size_t count = 0;
    sp_status status = sp_structure_critical_path(structure, &steps, &count, err);
    if (status != SP_OK) {
        return status;
    }
    int64_t busy_ns = 0;
    for (size_t i = 0; i < count; i++) {
        busy_ns += steps[i].end_ns - steps[i].start_ns;
    }
    fprintf(exports->text, "\ncritical path: %zu actions, %.3f ms of work, %.3f ms in transfers\n",
            count, sp_ms_from_ns(busy_ns),
            sp_ms_from_ns((count > 0 ? steps[count - 1].end_ns : 0) - busy_ns));
    for (size_t i = 0; i < count; i++) {
        if (i == CRITICAL_SHOWN / 2 && count > CRITICAL_SHOWN) {
            fprintf(exports->text, "  ... %zu more\n", count - CRITICAL_SHOWN);
            i = count - CRITICAL_SHOWN / 2;
        }
        char name[32];
        sp_action_name(steps[i].action, view->plan->layout.chunks, name);
        fprintf(exports->text, "  %12.3f ms  dp %d pp %d  %s\n", sp_ms_from_ns(steps[i].start_ns),
                steps[i].dp, steps[i].pp, name);
    }
    sp_free(steps);
    return SP_OK;
}

static sp_status write_graphml(FILE *file, const void *what, sp_error *err)
{
    const shown *s = what;
    return sp_structure_graphml(s->structure, file, err);
}

static sp_status show_structure(shown *s, sp_error *err)
{
    sp_status status =
        sp_structure_new(s->view->plan, s->view->costs, s->view->timeline, &s->structure, err);
    if (status == SP_OK && s->exports->critical_path) {
        status = print_critical_path(s->exports, s->view, s->structure, err);
    }
    if (status == SP_OK && s->exports->graphml != NULL) {
        status = cli_write_file(s->exports->graphml, write_graphml, s, err);
    }
    sp_structure_free(s->structure);
    return status;
}

static sp_status write_topology(FILE *file, const void *what, sp_error *err)
{
    const shown *s = what;
    return sp_export_topology(file, s->topology, s->link_bytes, s->view->timeline->iteration_ns,
                              err);
}

static sp_status show_topology(shown *s, sp_error *err)
{
    if (s->exports->network.cluster == NULL) {
        return sp_error_set(err, SP_ERR_USAGE, "--topology: uniform costs have no cluster to show");
    }
    sp_status status = sp_step_traffic(s->view->plan, s->view->costs, &s->exports->network,
                                       &s->topology, &s->link_bytes, err);
    if (status == SP_OK) {
        status = cli_write_file(s->exports->topology, write_topology, s, err);
    }
    sp_topology_free(s->topology);
    sp_free(s->link_bytes);
    return status;
}

// Width of the terminal, if there is one.
static int columns_of(FILE *file)
{
    struct winsize size;
    if (isatty(fileno(file)) == 1 && ioctl(fileno(file), TIOCGWINSZ, &size) == 0 &&
        size.ws_col >= 40) {
        return size.ws_col;
    }
    return DEFAULT_COLUMNS;
}

static sp_status observe_one(const cli_exports *exports, const sp_step_view *view, sp_error *err)
{
    shown s = {.exports = exports, .view = view};
    sp_status status = SP_OK;
    if (exports->timeline) {
        fputc('\n', exports->text);
        status = sp_export_text(exports->text, view->timeline, &exports->window,
                                columns_of(exports->text), isatty(fileno(exports->text)) == 1, err);
        fputc('\n', exports->text);
    }
    if (status == SP_OK && exports->trace != NULL) {
        status = show_trace(&s, err);
    }
    if (status == SP_OK && exports->plot != NULL) {
        status = cli_plot("timeline.gp", exports->plot, write_plot_data, &s, err);
    }
    if (status == SP_OK && exports->snapshot != NULL) {
        status = write_snapshot(&s, err);
    }
    if (status == SP_OK && exports->topology != NULL) {
        status = show_topology(&s, err);
    }
    if (status == SP_OK && (exports->graphml != NULL || exports->critical_path)) {
        status = show_structure(&s, err);
    }
    return status;
}

sp_status cli_exports_observe(void *context, const sp_step_view *view, sp_error *err)
{
    cli_exports *exports = context;
    sp_status status = SP_OK;
    if (exports->plan_file.file != NULL) {
        sp_plan_predictions predictions = {.lower_bound_ms = view->lower_bound_ms,
                                           .predicted_ms =
                                               sp_ms_from_ns(view->timeline->iteration_ns)};
        status = named(
            exports,
            sp_plan_json_batch(exports->plan_file.file, view->batch, view->plan, predictions, err),
            err);
    }
    if (status != SP_OK || view->batch != exports->batch) {
        return status;
    }
    return observe_one(exports, view, err);
}
