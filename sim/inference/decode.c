#include "sim/inference/decode.h"

#include <math.h>

#include "sim/base/units.h"
#include "sim/inference/decode_private.h"

const char *const sp_batch_policy_names[] = {"pad", "ragged", "bucket", NULL};

enum {
    FIT_CALLS = 4000,    // that bins are fitted to
    SEARCH_CALLS = 4000, // most of each step of the search for an ease
    FEWEST_CALLS = 1000, // and fewest
    HALVINGS = 5,        // of the range of eases,
    INTERPOLATIONS = 4,  // and steps of the rule of false position in what is left
};

static const double most_off = 0.02; // from the tokens a call that an ease is sought for
static const uint64_t fit_stream = 0x73706c6974; // bins are fitted to other draws than the run's

// The run's own sequences, as many as SEARCH_CALLS allow; further ones where they are few.
static double eagle_tokens(const sp_decode_spec *spec, const sp_speculation *how,
                           const sp_acceptance *text, sp_draft_tree *tree)
{
    int64_t calls = 0;
    int64_t tokens = 0;
    for (int64_t i = 0; calls < (i < spec->sequences ? SEARCH_CALLS : FEWEST_CALLS); i++) {
        sp_drafted_sequence sequence;
        sp_drafted_sequence_begin(&sequence, spec->seed, (uint64_t)i);
        int64_t end = tokens + spec->output_tokens;
        for (; tokens < end && calls < SEARCH_CALLS; calls++) {
            sp_speculated call;
            sp_speculate(how, text, &sequence, tree, &call);
            tokens += call.accepted + 1;
        }
    }
    return (double)tokens / (double)calls;
}

static sp_status refuse_yield(const sp_decode_spec *spec, const sp_speculation *how,
                              double tokens_per_call, sp_acceptance *text, sp_draft_tree *tree,
                              sp_error *err)
{
    text->ease = SP_DECODE_MOST_EASE;
    return sp_error_set(err, SP_ERR_CONTENT,
                        "decode.text: no ease makes a call yield %.4g tokens: too many are blind, "
                        "or differ by spread and noise; %.4g are the most",
                        tokens_per_call, eagle_tokens(spec, how, text, tree));
}

// The ease at which EAGLE's trees yield so many tokens a call. Equal draws at every ease make the
// yield rise with it but for single calls. What is met on the way is what counts: the ends of the
// range are none that any text need reach.
static sp_status find_ease(const sp_decode_spec *spec, double tokens_per_call, sp_acceptance *text,
                           sp_error *err)
{
    sp_speculation how = sp_speculation_of_eagle(&spec->how);
    sp_draft_tree tree;
    sp_status status = SP_OK;
    sp_draft_tree_init(&tree, how.top_k, how.depth, NULL);
    double low = -SP_DECODE_MOST_EASE;
    double high = SP_DECODE_MOST_EASE;
    double below = 1.0 - tokens_per_call; // of the yield at `low` and `high`
    double above = how.depth + 1.0 - tokens_per_call;
    double off = (double)INFINITY;
    for (int i = 0; i < HALVINGS + INTERPOLATIONS; i++) {
        double share = i < HALVINGS ? 0.5 : below / (below - above);
        text->ease = low + share * (high - low);
        off = eagle_tokens(spec, &how, text, &tree) - tokens_per_call;
        *(off < 0.0 ? &low : &high) = text->ease;
        *(off < 0.0 ? &below : &above) = off;
    }
    if (fabs(off) > most_off * tokens_per_call) {
        status = refuse_yield(spec, &how, tokens_per_call, text, &tree, err);
    }
    sp_draft_tree_fini(&tree);
    return status;
}

static sp_status resolve_text(const sp_decode_spec *spec, sp_decode_result *result, sp_error *err)
{
    sp_speculation *how = &result->how;
    sp_status status = SP_OK;
    result->text = spec->text;
    if (spec->tokens_per_call > 0.0) {
        status = find_ease(spec, spec->tokens_per_call, &result->text, err);
    }
    sp_acceptance training = result->text;
    training.ease = isnan(spec->training_ease) ? training.ease : spec->training_ease;
    if (status == SP_OK && spec->training_tokens_per_call > 0.0) {
        status = find_ease(spec, spec->training_tokens_per_call, &training, err);
    }
    result->training_ease = training.ease;
    how->bins = (sp_bins){.count = 1};
    if (status == SP_OK && how->method == SP_DECODE_HETEROSPEC) {
        sp_speculation_fit_bins(how, &training, spec->seed + fit_stream, FIT_CALLS);
    }
    return status;
}

// The method, and what it is compared with: each method that differs from it runs by itself.
static void run_methods(sp_i_call_pricer *pricer, sp_decode_result *result)
{
    const sp_decode_spec *spec = pricer->spec;
    const sp_speculation *how = &result->how;
    sp_decode_counts one_by_one;
    sp_speculation plain = *how;
    sp_speculation eagle = sp_speculation_of_eagle(how);
    plain.method = SP_DECODE_PLAIN;
    sp_i_decode_steps(pricer, how, spec->graphs, &result->text, &result->counts, &result->seconds);
    result->uncalibrated = pricer->uncalibrated;
    result->plain_s = result->seconds;
    if (how->method != SP_DECODE_PLAIN) {
        sp_i_decode_steps(pricer, &plain, 0, &result->text, &one_by_one, &result->plain_s);
        result->eagle = result->counts;
        result->eagle_s = result->seconds;
    }
    bool own = how->method == SP_DECODE_EAGLE && spec->eagle_graphs == spec->graphs;
    if (how->method != SP_DECODE_PLAIN && !own) {
        sp_i_decode_steps(pricer, &eagle, spec->eagle_graphs, &result->text, &result->eagle,
                          &result->eagle_s);
    }
}

// Replicas differ by one sequence at most: the one with most of them is generated.
sp_status sp_decode_run(const sp_decode_spec *job, const sp_decode_machine *machine,
                        sp_decode_result *result, sp_error *err)
{
    sp_i_call_pricer pricer;
    sp_decode_spec own = *job;
    const sp_decode_spec *spec = &own;
    own.sequences = sp_ceil_div(job->sequences, machine->layout->dp);
    *result = (sp_decode_result){.how = spec->how,
                                 .output_tokens = job->sequences * job->output_tokens,
                                 .replica_sequences = own.sequences};
    sp_i_call_pricer_init(&pricer, spec, machine);
    sp_status status = sp_i_decode_memory(&pricer, &spec->how, &result->memory, err);
    result->fits = sp_decode_memory_bytes(&result->memory) <= machine->memory_limit_bytes &&
                   result->memory.apart <= machine->memory_limit_bytes;
    bool drafts = spec->how.method != SP_DECODE_PLAIN;
    result->host_unknown = drafts && spec->call_ms < 0.0 && pricer.host_s <= 0.0;
    result->host_of_profile = drafts && spec->call_ms < 0.0 && pricer.host_s > 0.0;
    // What a draft's text is like is never measured.
    result->level = drafts ? SP_LEVEL_ASSUMED : sp_profile_level(machine->profile);
    if (status == SP_OK && drafts) {
        status = resolve_text(spec, result, err);
    }
    if (status == SP_OK) {
        run_methods(&pricer, result);
    }
    return status;
}
