#include <math.h>

#include "backends/host/speculation.h"
#include "experiments/cli/cli.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/inference/decode.h"

// ---- text that a model generates ----

typedef struct decode_args {
    cli_common common;
    cli_list set;
    bool explain, execute;
} decode_args;

// Small models were executed on this machine; the model of acceptance was told their first line.
typedef struct executed {
    sp_small_measure measured;
    sp_decode_result predicted; // from EAGLE's tokens a call on the same text
} executed;

enum { EXECUTED_SEQUENCES = 16, EXECUTED_TOKENS = 64 };

static int64_t gpus_of(const sp_scenario *scenario)
{
    const sp_decode_spec *spec = scenario->decode;
    bool apart = spec->draft_apart && spec->how.method != SP_DECODE_PLAIN;
    return sp_layout_ranks(&scenario->layout) +
           (apart ? (int64_t)scenario->layout.dp * spec->draft_tp : 0);
}

// How much of the time is the host's, and what says so.
static void print_host_share(FILE *out, const sp_scenario *scenario, const sp_decode_result *r)
{
    const sp_profile *profile = &scenario->profile;
    bool graphed = profile->decode.kernel_s > 0.0 && scenario->decode->graphs > 0;
    char from[SP_PROFILE_NAME + 32];
    snprintf(from, sizeof from, "%s by profile %s", sp_level_names[profile->decode.level],
             profile->name);
    if (r->how.method == SP_DECODE_PLAIN) {
        fprintf(out, ", no host time but %s%.2f us a kernel (%s)",
                graphed ? "in a graph " : "launches of ",
                1e6 * (graphed ? profile->decode.kernel_s : profile->kernel_s),
                graphed ? from : "as in training");
    } else {
        fprintf(out, ", host %.1f %% of the time (%s)", 100.0 * sp_decode_host_share(r),
                r->host_of_profile ? from
                : r->host_unknown  ? "a call's is not known, 0 is taken"
                                   : "decode.call_ms");
    }
}

static void print_first_lines(FILE *out, const sp_scenario *scenario, const sp_decode_result *r)
{
    const sp_decode_spec *spec = scenario->decode;
    const char *method = sp_decode_method_names[r->how.method];
    fprintf(out, "%s: ", method);
    if (r->how.method == SP_DECODE_PLAIN) {
        fputs("a token a call", out);
    } else {
        fprintf(out, "%.2fx over plain decoding", r->plain_s / r->seconds);
    }
    if (r->how.method == SP_DECODE_HETEROSPEC) {
        fprintf(out, ", %.2fx over EAGLE's trees (depth %d, %d tokens)", r->eagle_s / r->seconds,
                spec->how.depth, spec->how.nodes);
    }
    print_host_share(out, scenario, r);
    fprintf(out, "\n%s%s on %lld %s (%s): tp %d, pp %d, dp %d, draft %s, batch %d\n\n",
            cli_model_name(scenario), cli_model_comma(scenario), (long long)gpus_of(scenario),
            scenario->cluster.gpu, scenario->cluster.name, scenario->layout.tp, scenario->layout.pp,
            scenario->layout.dp,
            r->how.method == SP_DECODE_PLAIN     ? "none"
            : spec->draft_kind == SP_DRAFT_EAGLE ? "eagle"
                                                 : spec->draft.name,
            spec->batch);
}

static void print_times(FILE *out, const sp_scenario *scenario, const sp_decode_result *r)
{
    const sp_decode_spec *spec = scenario->decode;
    const sp_decode_counts *counts = &r->counts;
    double ms = 1e3 / (double)counts->steps;
    char number[CLI_SHORT_NUMBER];
    double tokens_per_s = sp_decode_tokens_per_s(r);
    if (tokens_per_s < 100.0) {
        snprintf(number, sizeof number, "%.3g", tokens_per_s);
    } else {
        cli_short_number(tokens_per_s, number);
    }
    fprintf(out, "  throughput     %s tokens/s of %lld sequence%s\n", number,
            (long long)scenario->decode->sequences,
            sp_plural((int64_t)scenario->decode->sequences));
    if (scenario->layout.dp > 1) {
        fprintf(out, "                 %lld on the replica with most, of which all below tells\n",
                (long long)r->replica_sequences);
    }
    fprintf(out, "  step           %.3f ms: draft %.3f, verification %.3f, host %.3f",
            sp_decode_step_ms(r), counts->draft_s * ms, counts->verify_s * ms, counts->host_s * ms);
    fprintf(out, ", graphs %.3f", counts->miss_s * ms);
    if (counts->transfer_s > 0.0) {
        fprintf(out, ", transfer %.3f, hidden %.3f", counts->transfer_s * ms,
                counts->hidden_s * ms);
    }
    if (r->how.method != SP_DECODE_PLAIN) {
        fprintf(out, "\n                 verification is %.1f %% of it",
                100.0 * sp_decode_verify_share(r));
    }
    putc('\n', out);
    if (scenario->profile.decode.source[0] != '\0' &&
        (r->host_of_profile || (scenario->profile.decode.kernel_s > 0.0 && spec->graphs > 0))) {
        int column = fputs("                 host and graphs by: ", out) >= 0 ? 17 : 0;
        cli_print_wrapped(out, scenario->profile.decode.source, column + 20, column);
    }
}

static void print_calls(FILE *out, const sp_decode_spec *spec, const sp_decode_result *r)
{
    const sp_decode_counts *counts = &r->counts;
    fprintf(out, "  calls          %lld in %lld step%s, %.3f tokens a call of %.2f verified%s\n",
            (long long)counts->calls, (long long)counts->steps, sp_plural(counts->steps),
            sp_decode_tokens_per_call(counts), (double)counts->verified / (double)counts->calls,
            sp_decode_extrapolates(spec) ? ", extrapolated" : "");
    if (r->how.method != SP_DECODE_HETEROSPEC) {
        return;
    }
    fprintf(out, "  entropy        %.1f %% of the calls low", 100.0 * sp_decode_low_share(r));
    for (int b = 0; sp_speculation_is_low(&r->how, b); b++) {
        int depth = 0;
        int nodes = 0;
        sp_speculation_shape(&r->how, b, &depth, &nodes);
        fprintf(out, "%s to %.2f %.1f %% (depth %d, %d tokens)", b == 0 ? ":" : ",",
                r->how.bins.above[b], 100.0 * (double)counts->in_bin[b] / (double)counts->calls,
                depth, nodes);
    }
    fprintf(out, "\n  graphs         %lld step%s without one (%d kept)\n",
            (long long)counts->graph_misses, sp_plural(counts->graph_misses), spec->graphs);
}

static void print_rest(FILE *out, const sp_scenario *scenario, const sp_decode_result *r)
{
    const sp_decode_memory *m = &r->memory;
    fprintf(out,
            "  peak memory    %.2f GiB of %.2f, %s: parameters %.2f, draft %.2f, keys and values "
            "%.2f\n",
            sp_gib_from_bytes(sp_decode_memory_bytes(m)),
            sp_gib_from_bytes(scenario->memory_limit_bytes), r->fits ? "fits" : "oom",
            sp_gib_from_bytes(m->target), sp_gib_from_bytes(m->draft),
            sp_gib_from_bytes(m->kv_cache));
    if (m->apart > 0) {
        fprintf(out, "                 %.2f GiB on a GPU of the draft%s\n",
                sp_gib_from_bytes(m->apart),
                m->apart > scenario->memory_limit_bytes ? ", oom" : "");
    }
    fprintf(out, "  provenance     profile %s, %s; seed %llu; not validated on logged calls\n",
            scenario->profile.name, sp_level_names[r->level],
            (unsigned long long)scenario->decode->seed);
    for (int i = 0; sp_decode_not_modelled[i] != NULL; i++) {
        fputs("  not modelled   ", out);
        cli_print_wrapped(out, sp_decode_not_modelled[i], 17, 17);
    }
}

// Errors are those of what is predicted of HeteroSpec against what was executed.
static double yield_error(const executed *e)
{
    return sp_decode_tokens_per_call(&e->predicted.counts) /
               sp_small_tokens_per_call(&e->measured.heterospec) -
           1.0;
}

static double verified_error(const executed *e)
{
    const sp_decode_counts *p = &e->predicted.counts;
    const sp_small_tally *m = &e->measured.heterospec;
    return (double)p->verified / (double)p->calls / ((double)m->verified / (double)m->calls) - 1.0;
}

static void print_tally(cli_table *table, const char *trees, double tokens, double verified,
                        double low)
{
    cli_row_begin(table);
    cli_cell(table, "                 %s", trees);
    cli_number_cell(table, "%.3f", tokens);
    cli_number_cell(table, "%.2f", verified);
    cli_number_cell(table, "%.1f %%", 100.0 * low);
    cli_row_end(table);
}

static void print_executed(FILE *out, const executed *e)
{
    const sp_small_measure *m = &e->measured;
    const sp_decode_counts *p = &e->predicted.counts;
    fprintf(out,
            "\n  executed       %d sequences of %d tokens by small models on the CPU, with EAGLE's "
            "trees and\n                 HeteroSpec's whatever the method: %s\n",
            (int)EXECUTED_SEQUENCES, (int)EXECUTED_TOKENS,
            m->lossless ? "token for token as without a draft" : "NOT as without a draft");
    cli_table table;
    cli_table_begin_in(
        &table, out,
        "-27                  trees|14 tokens a call|16 verified a call|12 low entropy", NULL, 0);
    print_tally(&table, "eagle", sp_small_tokens_per_call(&m->eagle),
                (double)m->eagle.verified / (double)m->eagle.calls, (double)NAN);
    print_tally(&table, "heterospec", sp_small_tokens_per_call(&m->heterospec),
                (double)m->heterospec.verified / (double)m->heterospec.calls,
                (double)m->heterospec.low / (double)m->heterospec.calls);
    print_tally(&table, "  predicted", sp_decode_tokens_per_call(p),
                (double)p->verified / (double)p->calls, sp_decode_low_share(&e->predicted));
    cli_row_begin(&table);
    cli_cell(&table, "                   error");
    cli_number_cell(&table, "%+.1f%%", 100.0 * yield_error(e));
    cli_number_cell(&table, "%+.1f%%", 100.0 * verified_error(e));
    cli_row_end(&table);
    cli_table_end(&table);
}

static json_t *executed_json(const executed *e)
{
    const sp_small_measure *m = &e->measured;
    const sp_decode_counts *p = &e->predicted.counts;
    return sp_json_object(
        SP_JSON("lossless", m->lossless),
        SP_JSON("eagle_tokens_per_call", sp_small_tokens_per_call(&m->eagle)),
        SP_JSON("tokens_per_call", sp_small_tokens_per_call(&m->heterospec)),
        SP_JSON("verified_per_call", (double)m->heterospec.verified / (double)m->heterospec.calls),
        SP_JSON("predicted_tokens_per_call", sp_decode_tokens_per_call(p)),
        SP_JSON("predicted_verified_per_call", (double)p->verified / (double)p->calls),
        SP_JSON("sequences", EXECUTED_SEQUENCES), SP_JSON("output_tokens", EXECUTED_TOKENS),
        SP_JSON("tokens_per_call_error", yield_error(e)),
        SP_JSON("verified_per_call_error", verified_error(e)));
}

// The model of acceptance is told EAGLE's tokens a call and nothing else of the small models.
static sp_status execute(const sp_scenario *scenario, executed *e, sp_error *err)
{
    sp_decode_machine machine = sp_decode_machine_of(scenario);
    sp_decode_spec spec = *scenario->decode;
    spec.how.method = SP_DECODE_HETEROSPEC;
    spec.sequences = (int64_t)EXECUTED_SEQUENCES * scenario->layout.dp; // a replica's as many
    spec.output_tokens = EXECUTED_TOKENS;
    spec.batch = 1;
    sp_status status = sp_small_measure_run(&spec.how, EXECUTED_SEQUENCES, EXECUTED_TOKENS,
                                            spec.seed, &e->measured, err);
    spec.training_tokens_per_call = 0.0;
    spec.training_ease = (double)NAN;
    if (status == SP_OK) {
        spec.tokens_per_call = sp_small_tokens_per_call(&e->measured.eagle);
        status = sp_decode_run(&spec, &machine, &e->predicted, err);
    }
    return status;
}

static void print_notes(bool quiet, const sp_scenario *scenario, const sp_decode_result *r)
{
    sp_warnings warnings = {.count = 0};
    sp_decode_machine machine = sp_decode_machine_of(scenario);
    cli_print_profile_notes(quiet, scenario);
    sp_decode_warnings(scenario->decode, &machine, r, &warnings);
    cli_print_warnings(quiet, &warnings);
    cli_print_unused(quiet, scenario, SP_RUN_DECODE, &r->uncalibrated);
}

// `explained` are the settings (NULL: not asked for), `e` is NULL where nothing was executed.
static json_t *answer_json(json_t *explained, const sp_scenario *scenario,
                           const sp_decode_result *r, const executed *e)
{
    sp_decode_machine machine = sp_decode_machine_of(scenario);
    json_t *object = sp_decode_result_json(scenario->decode, &machine, r);
    cli_add_unused(object, scenario, SP_RUN_DECODE);
    return sp_json_add(object, SP_JSON("scenario", json_incref(explained)),
                       SP_JSON("executed", e != NULL ? executed_json(e) : NULL));
}

static int print(const decode_args *args, const sp_scenario *scenario, const sp_decode_result *r,
                 const executed *e)
{
    if (args->common.json) {
        return cli_print_json(
            answer_json(args->explain ? scenario->resolved : NULL, scenario, r, e));
    }
    if (cli_prints_tables_alone()) {
        cli_print_figures(NULL, answer_json(NULL, scenario, r, e));
    }
    if (args->explain) {
        cli_print_json(json_incref(scenario->resolved));
    }
    print_first_lines(stdout, scenario, r);
    print_times(stdout, scenario, r);
    print_calls(stdout, scenario->decode, r);
    print_rest(stdout, scenario, r);
    if (e != NULL) {
        print_executed(stdout, e);
    }
    print_notes(args->common.quiet, scenario, r);
    return 0;
}

static int run(const void *given, const cli_operands *operands)
{
    const decode_args *args = given;
    sp_error err = {0};
    sp_scenario scenario = {0};
    sp_decode_result result;
    executed small;
    json_t *root = NULL;
    const char *path = operands->items[0];
    sp_status status = cli_read_root(path, &root, &err);
    if (status == SP_OK) {
        status = sp_scenario_place(root, path, &err);
    }
    if (status == SP_OK) {
        status =
            sp_scenario_from_json(root, path, args->set.items, args->set.count, &scenario, &err);
    }
    json_decref(root);
    if (status == SP_OK) {
        status = sp_decode_scenario(&scenario, &result, &err);
    }
    if (status == SP_OK && args->execute) {
        status = execute(&scenario, &small, &err);
    }
    int exit_status = status == SP_OK
                          ? print(args, &scenario, &result, args->execute ? &small : NULL)
                          : cli_fail(&err);
    sp_scenario_fini(&scenario);
    bool positive = status == SP_OK && result.fits && !(args->execute && !small.measured.lossless);
    return status == SP_OK ? cli_answer(exit_status, positive) : exit_status;
}

// ---- the command ----

static const cli_option options[] = {
    CLI_SET_OPTION(decode_args),
    CLI_FLAG_OPTION("explain", decode_args, explain, "print every setting as resolved first"),
    CLI_FLAG_OPTION("execute", decode_args, execute,
                    "draft and verify with small models on the CPU too: is the text that of plain "
                    "decoding, and how near is the model of acceptance?"),
    CLI_TABLE_OPTIONS(decode_args),
    CLI_COMMON_OPTIONS(decode_args),
    {0},
};

static const char *const examples[] = {
    "slimpack decode scenario.json",
    "slimpack decode scenario.json --set decode.method=eagle --set decode.batch=8 --json",
    "slimpack decode scenario.json --execute --set decode.depth=4 --set decode.top_k=4",
    NULL,
};

const cli_command cli_cmd_decode = {
    .name = "decode",
    .summary = "predict how fast a model generates text, with a draft that it verifies",
    CLI_TAKES("SCENARIO", 1, 1),
    .description =
        "Generates sequences by a model of a draft and its target, and prices every call by the "
        "scenario's profile: token by token (decode.method plain), with trees of drafted tokens "
        "that one call of the target verifies (eagle), or with trees that are deeper and narrower "
        "where the draft's entropy is low (heterospec). The first line says by how much that is "
        "faster than plain decoding, and than EAGLE's trees: the two are different claims.\n\nHow "
        "often the target accepts what is drafted is a model of text (decode.text), fitted to "
        "published tokens a call; decode.text.tokens_per_call fits it to yours. 'slimpack "
        "reproduce heterospec' puts published figures beside what it computes.\n\nWith --execute "
        "small models with random weights draft and verify on the CPU, with the scenario's trees "
        "and with EAGLE's. Their tokens are compared with those of plain decoding, and the model "
        "of acceptance, told EAGLE's tokens a call, predicts the rest.\n\nSequences are of all "
        "data-parallel replicas, and tokens per second those that were asked for, until the last "
        "replica is done. A call is one of the target for one sequence, a step one forward of the "
        "target for all sequences of a batch: calls are counted of the replica with most "
        "sequences.\n\nThe exit status is 1 when models and keys and values do not fit, or when a "
        "text was not that of plain decoding.",
    CLI_RUNS(run, decode_args, options, examples),
};
