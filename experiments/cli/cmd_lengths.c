#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "experiments/cli/cli.h"
#include "sim/base/alloc.h"
#include "sim/base/json.h"
#include "sim/base/prng.h"
#include "sim/workload/distribution.h"
#include "sim/workload/lengths.h"

enum {
    DEFAULT_SAMPLES = 1000000,
    MOST_SAMPLES = 100000000,
    DEFAULT_SEED = 1,
    BAR_CELLS = 24,
    BINS_SHOWN = 20,
    SOURCES_SHOWN = 30,
    NAMES = 64, // built-in distributions compared for a hint
};

typedef struct lengths_args {
    const char *column;
    int64_t samples; // 0: not given
    int64_t seed;    // negative: not given
    cli_common common;
} lengths_args;

// One source as read: its statistics, and where the lengths came from.
typedef struct source {
    const char *name;
    const sp_distribution *distribution; // NULL: a file
    int64_t seed;                        // of what was drawn
    sp_length_stats stats;
} source;

// A file goes before a built-in distribution of its name.
static const sp_distribution *distribution_of(const char *name)
{
    return sp_lengths_are_there(name) ? NULL : sp_distribution_find(name);
}

// An option that would have no effect is refused, not ignored.
static bool options_apply(const lengths_args *args, const cli_operands *names, int *exit_status)
{
    bool files = false;
    bool built_in = false;
    for (int i = 0; i < names->count; i++) {
        bool known = distribution_of(names->items[i]) != NULL;
        built_in = built_in || known;
        files = files || !known;
    }
    if (args->column != NULL && !files) {
        *exit_status = cli_usage_error(&cli_cmd_lengths, "--column is for files");
        return false;
    }
    if ((args->samples > 0 || args->seed >= 0) && !built_in) {
        *exit_status = cli_usage_error(&cli_cmd_lengths,
                                       "--samples and --seed are for built-in distributions");
        return false;
    }
    return true;
}

static void draw(const sp_distribution *distribution, int64_t samples, int64_t seed,
                 sp_lengths *lengths)
{
    sp_prng prng;
    sp_prng_seed(&prng, (uint64_t)seed);
    for (int64_t i = 0; i < samples; i++) {
        sp_lengths_append(lengths, sp_distribution_sample(distribution, &prng));
    }
}

static sp_status no_such_source(const char *name, sp_error *err)
{
    const char *names[NAMES];
    char hint[SP_NAME_HINT];
    char known[SP_ERROR_TEXT / 2] = "";
    int n = 0;
    for (; n < sp_distribution_count() && n < NAMES; n++) {
        names[n] = sp_distribution_at(n)->name;
        sp_append(known, sizeof known, "%s%s", n > 0 ? ", " : "; built in: ", names[n]);
    }
    return sp_error_set(err, SP_ERR_IO, "%s: no such file or built-in distribution%s%s", name,
                        sp_name_hint(name, names, n, hint), known);
}

static sp_status read_source(const char *name, const lengths_args *args, source *out, sp_error *err)
{
    sp_lengths lengths = {0};
    sp_status status = SP_OK;
    *out = (source){.name = name, .distribution = distribution_of(name)};
    if (out->distribution != NULL) {
        int64_t samples = args->samples > 0 ? args->samples : DEFAULT_SAMPLES;
        out->seed = args->seed >= 0 ? args->seed : DEFAULT_SEED;
        draw(out->distribution, samples, out->seed, &lengths);
    } else if (!sp_lengths_are_there(name) && access(name, F_OK) != 0 && errno == ENOENT) {
        status = no_such_source(name, err);
    } else {
        status = sp_lengths_read(name, args->column, &lengths, err);
    }
    if (status == SP_OK) {
        status = sp_length_stats_compute(&lengths, name, &out->stats, err);
    }
    sp_lengths_fini(&lengths);
    return status;
}

static json_t *distribution_json(const sp_distribution *distribution)
{
    return sp_json_object(SP_JSON("name", distribution->name),
                          SP_JSON("title", distribution->title),
                          SP_JSON("source", distribution->source));
}

static int list_distributions(bool json)
{
    json_t *all = json ? json_array() : NULL;
    cli_table table;
    if (cli_prints_tables_alone()) {
        cli_table_begin(&table, "-16 name|-40 title|0 source", NULL, 0);
    }
    for (int i = 0; i < sp_distribution_count(); i++) {
        const sp_distribution *distribution = sp_distribution_at(i);
        if (json) {
            json_array_append_new(all, distribution_json(distribution));
            continue;
        }
        if (cli_prints_tables_alone()) {
            cli_row_begin(&table);
            cli_cell(&table, "%s", distribution->name);
            cli_cell(&table, "%s", distribution->title);
            cli_cell(&table, "%s", distribution->source);
            cli_row_end(&table);
            continue;
        }
        int used = printf("%s", distribution->name);
        cli_print_wrapped(stdout, distribution->title, used, 16);
        cli_print_wrapped(stdout, distribution->source, 0, 16);
    }
    return json ? cli_print_json(all) : 0;
}

static json_t *quantiles_json(const sp_length_stats *stats)
{
    json_t *json = json_object();
    for (int i = 0; i < SP_LENGTH_QUANTILES; i++) {
        sp_json_put(json, sp_length_quantile_names[i], json_integer(stats->quantiles[i]));
    }
    return json;
}

static json_t *bins_json(const sp_length_stats *stats)
{
    json_t *json = json_array();
    for (int i = 0; i < stats->bin_count; i++) {
        const sp_length_bin *bin = &stats->bins[i];
        json_array_append_new(json, sp_json_object(SP_JSON("upto", bin->upto),
                                                   SP_JSON("samples", bin->samples),
                                                   SP_JSON("tokens", bin->tokens),
                                                   SP_JSON("sum_squares", bin->sum_squares)));
    }
    return json;
}

static json_t *source_json(const source *from)
{
    const sp_length_stats *stats = &from->stats;
    json_t *json = sp_json_object(SP_JSON("lengths", from->name), SP_JSON("count", stats->count),
                                  SP_JSON("tokens", stats->tokens), SP_JSON("mean", stats->mean),
                                  SP_JSON("stddev", stats->stddev),
                                  SP_JSON("token_weighted_mean", stats->token_weighted_mean),
                                  SP_JSON("min", stats->min), SP_JSON("max", stats->max),
                                  SP_JSON("quantiles", quantiles_json(stats)),
                                  SP_JSON("bins", bins_json(stats)));
    if (from->distribution != NULL) {
        sp_json_add(json, SP_JSON("distribution", distribution_json(from->distribution)),
                    SP_JSON("seed", from->seed));
    }
    return json;
}

// People get two a line.
static void print_number(int *printed, const char *name, const char *value)
{
    bool pairs = !cli_is_wide();
    bool second = pairs && *printed % 2 == 1;
    fputs(second ? "   " : "", stdout);
    printf("  %-20s %16s", name, value);
    fputs(pairs && !second ? "" : "\n", stdout);
    (*printed)++;
}

static void print_numbers(const sp_length_stats *stats)
{
    const struct {
        const char *name;
        double value;
    } means[] = {{"mean", stats->mean},
                 {"standard deviation", stats->stddev},
                 {"token-weighted mean", stats->token_weighted_mean}};
    char text[CLI_GROUPED];
    int printed = 0;
    print_number(&printed, "documents", cli_grouped(stats->count, text));
    print_number(&printed, "tokens", cli_grouped(stats->tokens, text));
    for (size_t i = 0; i < sizeof means / sizeof means[0]; i++) {
        snprintf(text, sizeof text, "%.1f", means[i].value);
        print_number(&printed, means[i].name, text);
    }
    print_number(&printed, "min", cli_grouped(stats->min, text));
    for (int i = 0; i < SP_LENGTH_QUANTILES; i++) {
        print_number(&printed, sp_length_quantile_names[i], cli_grouped(stats->quantiles[i], text));
    }
    print_number(&printed, "max", cli_grouped(stats->max, text));
    fputs(!cli_is_wide() && printed % 2 == 1 ? "\n" : "", stdout);
}

static void print_histogram(const source *from)
{
    static const char bar[BAR_CELLS + 1] = "########################";
    const sp_length_stats *stats = &from->stats;
    cli_table table;
    int64_t most = 1;
    for (int i = 0; i < stats->bin_count; i++) {
        most = stats->bins[i].samples > most ? stats->bins[i].samples : most;
    }
    cli_table_begin(&table, "15 up to|15 documents|7 share|7 tokens|8 length^2|0~24 ", from->name,
                    BINS_SHOWN);
    for (int i = 0; i < stats->bin_count; i++) {
        const sp_length_bin *bin = &stats->bins[i];
        // Rounded up, so that no bin with a document looks empty.
        int cells = (int)((bin->samples * BAR_CELLS + most - 1) / most);
        cli_row_begin(&table);
        cli_count_cell(&table, bin->upto);
        cli_count_cell(&table, bin->samples);
        cli_number_cell(&table, "%.2f%%", 100.0 * (double)bin->samples / (double)stats->count);
        cli_number_cell(&table, "%.2f%%", 100.0 * (double)bin->tokens / (double)stats->tokens);
        cli_number_cell(&table, "%.2f%%", 100.0 * bin->sum_squares / stats->sum_squares);
        if (cells > 0) {
            cli_cell(&table, "%.*s", cells, bar);
        }
        cli_row_end(&table);
    }
    cli_table_end(&table);
}

// People see a row for each of several sources.
static void print_rows(const source *from, int count)
{
    static const char columns[] = "-24 lengths|14 documents|16~1 tokens|11 mean|9~3 "
                                  "min|9 p50|9~2 p90|9 p99|11 max";
    static const char *const names[] = {"p50", "p90", "p99"};
    cli_table table;
    cli_table_begin(&table, columns, NULL, SOURCES_SHOWN);
    for (int i = 0; i < count; i++) {
        const sp_length_stats *stats = &from[i].stats;
        cli_row_begin(&table);
        cli_cell(&table, "%s", from[i].name);
        cli_count_cell(&table, stats->count);
        cli_count_cell(&table, stats->tokens);
        cli_number_cell(&table, "%.1f", stats->mean);
        cli_count_cell(&table, stats->min);
        for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
            for (int q = 0; q < SP_LENGTH_QUANTILES; q++) {
                if (strcmp(sp_length_quantile_names[q], names[n]) == 0) {
                    cli_count_cell(&table, stats->quantiles[q]);
                }
            }
        }
        cli_count_cell(&table, stats->max);
        cli_row_end(&table);
    }
    cli_table_end(&table);
    puts("histograms with --wide, or of one source");
}

static void print_source(const source *from)
{
    if (from->distribution != NULL) {
        printf("%s: drawn with seed %" PRId64 "\n", from->name, from->seed);
        cli_print_wrapped(stdout, from->distribution->title, 0, 2);
        cli_print_wrapped(stdout, from->distribution->source, 0, 2);
    } else {
        printf("%s%s\n", from->name,
               sp_distribution_find(from->name) != NULL
                   ? ", a file: not the built-in distribution of that name"
                   : "");
    }
    putchar('\n');
    print_numbers(&from->stats);
    putchar('\n');
    print_histogram(from);
}

static int print_json(const source *from, int count)
{
    json_t *all = json_array();
    for (int i = 0; i < count; i++) {
        json_array_append_new(all, source_json(&from[i]));
    }
    json_t *printed = json_incref(count == 1 ? json_array_get(all, 0) : all);
    json_decref(all);
    return cli_print_json(printed);
}

static int print_sources(const source *from, int count)
{
    if (count > 1 && !cli_is_wide()) {
        print_rows(from, count);
        return 0;
    }
    for (int i = 0; i < count && cli_prints_tables_alone(); i++) {
        cli_print_figures(from[i].name, source_json(&from[i]));
    }
    for (int i = 0; i < count; i++) {
        if (i > 0) {
            putchar('\n');
        }
        print_source(&from[i]);
    }
    return 0;
}

static int run(const void *given, const cli_operands *operands)
{
    const lengths_args *args = given;
    int exit_status = 0;
    if (!options_apply(args, operands, &exit_status)) {
        return exit_status;
    }
    if (operands->count == 0) {
        return list_distributions(args->common.json);
    }
    sp_error err = {0};
    source *from = sp_calloc((size_t)operands->count, sizeof *from);
    // All are read before the first is printed.
    for (int i = 0; i < operands->count; i++) {
        read_source(operands->items[i], args, &from[i], &err);
    }
    exit_status = err.status != SP_OK ? cli_fail(&err)
                  : args->common.json ? print_json(from, operands->count)
                                      : print_sources(from, operands->count);
    sp_free(from);
    return exit_status;
}

// ---- the command ----

static const cli_option options[] = {
    CLI_TEXT_OPTION(CLI_STRING, 0, "column", "NAME", lengths_args, column,
                    "column of a CSV file, or key of a JSONL file, that holds the length"),
    CLI_INT_OPTION("samples", "N", lengths_args, samples, 1, MOST_SAMPLES,
                   "lengths drawn from a built-in distribution (default 1000000)"),
    CLI_INT_OPTION("seed", "N", lengths_args, seed, 0, INT64_MAX,
                   "seed of what is drawn (default 1)"),
    CLI_TABLE_OPTIONS(lengths_args),
    CLI_COMMON_OPTIONS(lengths_args),
    {0},
};

static const char *const examples[] = {
    "slimpack lengths wikipedia",
    "slimpack lengths --json --column num_tokens corpus.csv",
    "slimpack lengths dataset_text_document.idx",
    NULL,
};

const cli_command cli_cmd_lengths = {
    .name = "lengths",
    .summary = "print statistics and a histogram of document lengths",
    CLI_TAKES("[FILE|NAME...]", 0, -1),
    .description =
        "Reads document lengths, in tokens, from text (one per line), CSV or JSONL with a named "
        "column, a JSON array of numbers or objects, NumPy .npy or a Megatron-LM .idx file (by the "
        "common name of .idx and .bin, too), from standard input (-), or draws them from a "
        "built-in distribution, and prints count, mean, quantiles and a histogram with the share "
        "of documents, of tokens and of squared length (which attention costs) in each bin. Of "
        "token ids (input_ids) the number is the length; text is not counted, neither by "
        "characters "
        "nor by tokens. A file goes before a built-in "
        "distribution of its name."
        "\n\nWithout an argument, lists the built-in distributions and where they were published.",
    .defaults = &(const lengths_args){.seed = -1},
    CLI_RUNS(run, lengths_args, options, examples),
};
