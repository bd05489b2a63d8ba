#include "sim/inference/decode.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"
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
    sp_draft_tree_init(&tree, how.top_k, how.depth);
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
    if (sp_layout_dispatches(machine->layout)) {
        *result = (sp_decode_result){.fits = false};
        return sp_error_set(err, SP_ERR_CONTENT,
                            "parallel.ep: generated text has its experts on every rank, expected "
                            "parallel.ep 1 and parallel.etp 0");
    }
    if (sp_precision_is_fp8(&machine->stack->precision)) {
        *result = (sp_decode_result){.fits = false};
        return sp_error_set(err, SP_ERR_CONTENT,
                            "precision: \"fp8\" is of training steps, generated text is priced in "
                            "BF16 alone");
    }
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
    // Nobody measures what a draft's text is like.
    result->level = drafts ? SP_LEVEL_ASSUMED : sp_profile_level(machine->profile);
    if (status == SP_OK && drafts) {
        status = resolve_text(spec, result, err);
    }
    if (status == SP_OK) {
        run_methods(&pricer, result);
    }
    return status;
}

// ---- the calls of a batch of sequences, one step after the other ----

// A place of the batch. A sequence that is done leaves it to the next one.
typedef struct slot {
    sp_drafted_sequence sequence;
    int64_t produced;
    bool active;
    sp_i_step_sequence step;
} slot;

// The shapes whose graphs are kept, those used last in front.
typedef struct shape {
    int depth;
    int64_t nodes;
} shape;

typedef struct steps {
    sp_i_call_pricer *pricer;
    const sp_decode_spec *spec;
    const sp_speculation *how;
    const sp_acceptance *text;
    sp_decode_counts *counts;
    slot *slots;                   // [batch], owned
    sp_i_step_sequence *sequences; // [batch], owned: those of one forward
    int graphs;
    shape *kept; // [graphs], owned
    int kept_count;
    int64_t begun; // sequences
    sp_draft_tree tree;
    double seconds;
} steps;

static void fill_slots(steps *s);
static int speculate(steps *s);
static void run_step(steps *s, int active);
static void advance(steps *s);
static void steps_fini(steps *s);

static void steps_init(steps *s)
{
    size_t batch = (size_t)s->spec->batch;
    s->slots = sp_calloc(batch, sizeof *s->slots);
    s->sequences = sp_calloc(batch, sizeof *s->sequences);
    s->kept = sp_calloc((size_t)s->graphs, sizeof *s->kept);
    sp_draft_tree_init(&s->tree, s->how->top_k, sp_speculation_most_depth(s->how));
}

void sp_i_decode_steps(sp_i_call_pricer *pricer, const sp_speculation *how, int graphs,
                       const sp_acceptance *text, sp_decode_counts *counts, double *seconds)
{
    steps s = {.pricer = pricer,
               .spec = pricer->spec,
               .how = how,
               .text = text,
               .counts = counts,
               .graphs = graphs};
    *counts = (sp_decode_counts){0};
    steps_init(&s);
    fill_slots(&s);
    for (int active = speculate(&s); active > 0; active = speculate(&s)) {
        run_step(&s, active);
        advance(&s);
        fill_slots(&s);
    }
    *seconds = s.seconds;
    steps_fini(&s);
}

static void steps_fini(steps *s)
{
    sp_free(s->slots);
    sp_free(s->sequences);
    sp_free(s->kept);
    sp_draft_tree_fini(&s->tree);
}

static void fill_slots(steps *s)
{
    for (int i = 0; i < s->spec->batch; i++) {
        slot *place = &s->slots[i];
        if (!place->active && s->begun < s->spec->sequences) {
            *place = (slot){.active = true};
            // The draft has read the prompt together with the target; what is left is its end.
            place->step.fresh = 1;
            sp_drafted_sequence_begin(&place->sequence, s->spec->seed, (uint64_t)s->begun++);
        }
    }
}

static int speculate(steps *s)
{
    int active = 0;
    for (int i = 0; i < s->spec->batch; i++) {
        slot *place = &s->slots[i];
        sp_i_step_sequence *step = &place->step;
        if (!place->active) {
            continue;
        }
        step->context = (double)(s->spec->prompt_tokens + place->produced);
        step->call = (sp_speculated){.nodes = 1};
        if (s->how->method != SP_DECODE_PLAIN) {
            sp_speculate(s->how, s->text, &place->sequence, &s->tree, &step->call);
        }
        active++;
    }
    return active;
}

// ---- the time of a step ----

static bool has_graph(steps *s, shape wanted)
{
    int place = 0;
    while (place < s->kept_count &&
           (s->kept[place].depth != wanted.depth || s->kept[place].nodes != wanted.nodes)) {
        place++;
    }
    bool found = place < s->kept_count;
    if (s->graphs == 0) {
        return false;
    }
    s->kept_count += !found && s->kept_count < s->graphs;
    place = found ? place : s->kept_count - 1;
    for (; place > 0; place--) {
        s->kept[place] = s->kept[place - 1];
    }
    s->kept[0] = wanted;
    return found;
}

// A draft on GPUs of its own works for one half of the batch while the target verifies the other.
static double hidden_s(steps *s, int count, bool padded, const sp_i_call_time *whole)
{
    if (!s->spec->draft_apart || count < 2 || s->how->method == SP_DECODE_PLAIN) {
        return 0.0;
    }
    sp_i_call_time half[2];
    sp_i_call_price(s->pricer, s->sequences, count / 2, padded, &half[0]);
    sp_i_call_price(s->pricer, s->sequences + count / 2, count - count / 2, padded, &half[1]);
    double together = 0.0;
    for (int i = 0; i < 2; i++) {
        const sp_i_call_time *other = &half[1 - i];
        together += fmax(half[i].draft_s + half[i].transfer_s, other->verify_s + other->host_s);
    }
    double apart = whole->draft_s + whole->transfer_s + whole->verify_s + whole->host_s;
    return fmax(0.0, apart - together);
}

// One forward of the target, for the sequences in turns[0 .. count).
static void run_forward(steps *s, int count)
{
    sp_decode_counts *counts = s->counts;
    sp_i_call_time time;
    bool padded = s->spec->policy == SP_BATCH_PAD;
    bool drafts = s->how->method != SP_DECODE_PLAIN;
    sp_i_call_price(s->pricer, s->sequences, count, padded, &time);
    bool miss = drafts && !has_graph(s, (shape){time.depth, time.nodes});
    double miss_s = miss ? s->pricer->miss_s : 0.0;
    double hidden = hidden_s(s, count, padded, &time);
    counts->steps++;
    counts->verified += time.nodes;
    counts->draft_forwards += time.depth;
    counts->graph_misses += miss;
    counts->draft_s += time.draft_s;
    counts->transfer_s += time.transfer_s;
    counts->verify_s += time.verify_s;
    counts->host_s += time.host_s;
    counts->miss_s += miss_s;
    counts->hidden_s += hidden;
    s->seconds += time.draft_s + time.transfer_s + time.verify_s + time.host_s - hidden + miss_s;
}

static void run_bin(steps *s, int bin)
{
    int count = 0;
    for (int i = 0; i < s->spec->batch; i++) {
        const slot *place = &s->slots[i];
        int own = place->step.call.bin;
        own = sp_speculation_is_low(s->how, own) ? own : SP_LOW_BINS;
        if (place->active && (bin < 0 || own == bin)) {
            s->sequences[count++] = place->step;
        }
    }
    if (count > 0) {
        run_forward(s, count);
    }
}

static void run_step(steps *s, int active)
{
    s->counts->calls += active;
    if (s->spec->policy != SP_BATCH_BUCKET) {
        run_bin(s, -1);
        return;
    }
    for (int bin = 0; bin <= SP_LOW_BINS; bin++) {
        run_bin(s, bin);
    }
}

static void advance(steps *s)
{
    for (int i = 0; i < s->spec->batch; i++) {
        slot *place = &s->slots[i];
        if (!place->active) {
            continue;
        }
        int yielded = place->step.call.accepted + 1;
        place->produced += yielded;
        place->step.fresh = yielded;
        place->active = place->produced < s->spec->output_tokens;
        s->counts->tokens += yielded;
        s->counts->in_bin[place->step.call.bin]++;
    }
}

// ---- what one call takes of draft, target and host ----

static sp_model eagle_draft(const sp_model *target)
{
    sp_model draft = *target;
    draft.layers = 1;
    draft.experts = 0;
    draft.experts_per_token = 0;
    draft.expert_latent = 0;
    draft.shared_ffn = 0;
    draft.shared_gate = false;
    draft.runs = 0;
    draft.vocab = target->vocab < SP_I_EAGLE_VOCAB ? target->vocab : SP_I_EAGLE_VOCAB;
    return draft;
}

void sp_i_call_pricer_init(sp_i_call_pricer *pricer, const sp_decode_spec *spec,
                           const sp_decode_machine *machine)
{
    const sp_decode_model *host = &machine->profile->decode;
    sp_model draft = spec->draft_kind == SP_DRAFT_EAGLE ? eagle_draft(machine->model) : spec->draft;
    sp_layout alone = *machine->layout;
    alone.tp = spec->draft_tp;
    alone.pp = 1;
    alone.chunks = 1;
    alone.stage_layers = NULL;
    pricer->spec = spec;
    pricer->machine = machine;
    pricer->host_s = spec->call_ms >= 0.0 ? 1e-3 * spec->call_ms : host->call_s;
    pricer->miss_s = spec->graph_miss_ms >= 0.0 ? 1e-3 * spec->graph_miss_ms : host->graph_miss_s;
    sp_forward_pricer_init(&pricer->target, machine->profile, machine->cluster, machine->stack,
                           machine->model, machine->layout);
    sp_forward_pricer_init(&pricer->draft, machine->profile, machine->cluster, machine->stack,
                           &draft, &alone);
    pricer->target.timer.graphed = spec->graphs > 0;
    pricer->draft.timer.graphed = spec->graphs > 0;
    pricer->uncalibrated = (sp_uncalibrated){0};
    pricer->target.timer.uncalibrated = &pricer->uncalibrated;
    pricer->draft.timer.uncalibrated = &pricer->uncalibrated;
}

static double eagle_extra_s(const sp_i_call_pricer *pricer, double rows, bool first)
{
    const sp_forward_pricer *draft = &pricer->draft;
    double hidden = (double)draft->model.hidden;
    const sp_shard shard = sp_shard_of(&draft->model, &draft->layout);
    double qkv = (double)(shard.q + shard.k + shard.v);
    double both = sp_time_gemm(&draft->timer, SP_GEMM_TOKENS_OUT, rows, qkv, 2.0 * hidden);
    double one = sp_time_gemm(&draft->timer, SP_GEMM_TOKENS_OUT, rows, qkv, hidden);
    double joined =
        sp_time_gemm(&draft->timer, SP_GEMM_TOKENS_OUT, rows, hidden, SP_I_EAGLE_FEATURES * hidden);
    return both - one + (first ? joined : 0.0);
}

static double draft_forward_s(sp_i_call_pricer *pricer, const sp_forward *forward, bool first)
{
    double extra_s = pricer->spec->draft_kind == SP_DRAFT_EAGLE
                         ? eagle_extra_s(pricer, forward->rows, first)
                         : 0.0;
    return sp_forward_s(&pricer->draft, forward) + extra_s;
}

// The first forward is over what the target has accepted, the others over the K nodes of a layer.
static double draft_s(sp_i_call_pricer *pricer, const sp_i_step_sequence *sequences, int count,
                      int deepest, bool padded)
{
    double sum = 0.0;
    for (int layer = 0; layer < deepest; layer++) {
        sp_forward forward = {0};
        for (int i = 0; i < count; i++) {
            if (layer < sequences[i].call.depth || padded) {
                int rows = layer == 0 ? sequences[i].fresh : pricer->spec->how.top_k;
                forward.rows += rows;
                forward.kv_tokens += sequences[i].context;
                forward.pairs += rows * sequences[i].context;
            }
        }
        sum += draft_forward_s(pricer, &forward, layer == 0);
    }
    return sum;
}

// The features of the accepted tokens go to the draft, its tokens come back.
static double transfer_s(const sp_i_call_pricer *pricer, const sp_i_step_sequence *sequences,
                         int count)
{
    double rows = 0.0;
    for (int i = 0; i < count; i++) {
        rows += sequences[i].fresh;
    }
    double features = pricer->spec->draft_kind == SP_DRAFT_EAGLE ? SP_I_EAGLE_FEATURES : 0;
    double bytes = SP_I_BF16_BYTES * rows * features * (double)pricer->machine->model->hidden;
    return sp_time_p2p(&pricer->target.timer, bytes, 0) +
           sp_time_p2p(&pricer->target.timer, 0.0, 0);
}

void sp_i_call_price(sp_i_call_pricer *pricer, const sp_i_step_sequence *sequences, int count,
                     bool padded, sp_i_call_time *time)
{
    int depth = 0;
    int widest = 0;
    sp_forward verified = {0};
    for (int i = 0; i < count; i++) {
        depth = sequences[i].call.depth > depth ? sequences[i].call.depth : depth;
        widest = sequences[i].call.nodes > widest ? sequences[i].call.nodes : widest;
    }
    for (int i = 0; i < count; i++) {
        int rows = padded ? widest : sequences[i].call.nodes;
        verified.rows += rows;
        verified.kv_tokens += sequences[i].context;
        verified.pairs += rows * (sequences[i].context + 0.5 * rows);
    }
    *time = (sp_i_call_time){.depth = depth,
                             .nodes = (int64_t)verified.rows,
                             .verify_s = sp_forward_s(&pricer->target, &verified)};
    if (depth > 0) {
        time->draft_s = draft_s(pricer, sequences, count, depth, padded);
        time->transfer_s = pricer->spec->draft_apart ? transfer_s(pricer, sequences, count) : 0.0;
        time->host_s = pricer->host_s;
    }
}

// ---- what the GPUs of draft and target hold ----

// Beyond those of a layer with embedding and head: queries, keys and values of a second hidden
// state, and the projection, which every rank has whole, as it computes it.
static int64_t eagle_extra_parameters(const sp_forward_pricer *draft)
{
    const sp_shard shard = sp_shard_of(&draft->model, &draft->layout);
    int64_t hidden = draft->model.hidden;
    return hidden * (shard.q + shard.k + shard.v) + SP_I_EAGLE_FEATURES * hidden * hidden;
}

static sp_i_held held_by_draft(const sp_i_call_pricer *pricer, int64_t tokens)
{
    const sp_forward_pricer *draft = &pricer->draft;
    sp_stage whole = {.layers = draft->model.layers, .embedding = true, .head = true};
    sp_model_count_kinds(&draft->model, 0, whole.layers, whole.count);
    sp_i_held held = sp_i_held_by(&draft->model, &draft->layout, &whole, 0, tokens);
    bool eagle = pricer->spec->draft_kind == SP_DRAFT_EAGLE;
    held.parameters += eagle ? SP_I_BF16_BYTES * eagle_extra_parameters(draft) : 0;
    return held;
}

// Of a tree, and no more than are verified.
static int most_nodes(const sp_speculation *how)
{
    int all = sp_draft_tree_nodes(how->top_k, sp_speculation_most_depth(how));
    return all < how->nodes ? all : how->nodes;
}

// The draft is where the target's last layer is (SafeAILab/EAGLE, eagle/model/ea_model.py).
static void find_fullest(const sp_i_call_pricer *pricer, const sp_stage *stages, int64_t tokens,
                         const sp_i_held *draft, sp_decode_memory *fullest)
{
    const sp_layout *layout = &pricer->target.layout;
    int last = 0;
    int chunk = 0;
    sp_layout_locate(layout, sp_layout_vstages(layout) - 1, &last, &chunk);
    *fullest = (sp_decode_memory){0};
    for (int pp = 0; pp < layout->pp; pp++) {
        sp_i_held own = sp_i_held_by(&pricer->target.model, layout, stages, pp, tokens);
        sp_decode_memory memory = {.target = own.parameters, .kv_cache = own.kv_cache};
        if (pp == last) {
            memory.draft = draft->parameters;
            memory.kv_cache += draft->kv_cache;
        }
        bool fuller = sp_decode_memory_bytes(&memory) > sp_decode_memory_bytes(fullest);
        *fullest = fuller ? memory : *fullest;
    }
}

sp_status sp_i_decode_memory(const sp_i_call_pricer *pricer, const sp_speculation *how,
                             sp_decode_memory *memory, sp_error *err)
{
    const sp_decode_spec *spec = pricer->spec;
    const sp_layout *layout = &pricer->target.layout;
    bool drafts = how->method != SP_DECODE_PLAIN;
    int64_t longest = spec->prompt_tokens + spec->output_tokens + (drafts ? most_nodes(how) : 0);
    int64_t tokens = (spec->batch < spec->sequences ? spec->batch : spec->sequences) * longest;
    const sp_i_held none = {0};
    const sp_i_held draft = drafts ? held_by_draft(pricer, tokens) : none;
    sp_stage *stages = sp_calloc((size_t)sp_layout_vstages(layout), sizeof *stages);
    sp_status status = sp_layout_stages(layout, &pricer->target.model, "decode", stages, err);
    if (status == SP_OK) {
        find_fullest(pricer, stages, tokens, spec->draft_apart ? &none : &draft, memory);
        memory->apart = spec->draft_apart ? sp_i_held_bytes(&draft) : 0;
    }
    sp_free(stages);
    return status;
}

// ---- Figures and the document ----

#define SCHEMA "slimpack/decode/1"

const char *const sp_decode_not_modelled[] = {
    "sampling at a temperature above 0: the target takes its most probable token",
    "the prefill of prompts, and prompts that arrive while others generate",
    "the time in which the draft's entropy is computed",
    "sequences that end before output_tokens, and prompts of different lengths",
    "pipeline ranks that work on several batches at once: each waits for the others",
    "routing to some experts more than to others: a forward reads those that its tokens are "
    "expected "
    "to touch if all are as likely",
    NULL};

bool sp_decode_extrapolates(const sp_decode_spec *spec)
{
    const sp_speculation *how = &spec->how;
    return how->method != SP_DECODE_PLAIN &&
           (how->depth != SP_FITTED_DEPTH || how->top_k != SP_FITTED_TOP_K ||
            how->nodes < SP_FITTED_LEAST_NODES || how->nodes > SP_FITTED_MOST_NODES);
}

void sp_decode_warnings(const sp_decode_spec *spec, const sp_decode_machine *machine,
                        const sp_decode_result *result, sp_warnings *warnings)
{
    int dp = machine->layout->dp;
    if (spec->sequences < dp) {
        sp_warnings_add(warnings,
                        "decode.sequences %lld leave %lld of %d data-parallel replicas idle",
                        (long long)spec->sequences, (long long)(dp - spec->sequences), dp);
    }
    if (result->replica_sequences < spec->batch) {
        sp_warnings_add(warnings,
                        "decode.batch %d is more than a replica has sequences: no step has more "
                        "than %lld",
                        spec->batch, (long long)result->replica_sequences);
    }
    if (result->host_unknown) {
        sp_warnings_add(warnings, "the profile does not say what the host adds to a call with "
                                  "drafted tokens: 0 is taken, decode.call_ms states it");
    }
    if (result->host_of_profile) {
        sp_warnings_add(warnings,
                        "what the host adds to a call is the profile's, of one model under one "
                        "server: between models of one machine it differs by more than ten, "
                        "decode.call_ms states yours");
    }
    if (sp_decode_extrapolates(spec)) {
        sp_warnings_add(warnings,
                        "extrapolated: acceptance is fitted to trees of decode.depth 8, top_k 10 "
                        "and 48 to 60 draft_tokens%s",
                        spec->how.top_k < SP_FITTED_TOP_K
                            ? "; of a lower top_k calls come out too long, even longer than those "
                              "of trees that hold its own"
                            : "");
    }
    if (spec->how.method != SP_DECODE_PLAIN && spec->how.nodes > most_nodes(&spec->how)) {
        sp_warnings_add(warnings,
                        "decode.draft_tokens %d: a tree of decode.depth %d and top_k %d has %d at "
                        "most, which are verified",
                        spec->how.nodes, spec->how.depth, spec->how.top_k, most_nodes(&spec->how));
    }
    sp_warn_of_positions(machine->model, spec->prompt_tokens + spec->output_tokens, warnings);
    if (spec->how.method != SP_DECODE_PLAIN && spec->draft_kind == SP_DRAFT_MODEL) {
        sp_warnings_add(warnings,
                        "acceptance is fitted to EAGLE-3's draft, not to a model of its own: "
                        "decode.text.tokens_per_call states what it reaches");
    }
}

double sp_decode_step_ms(const sp_decode_result *result)
{
    return 1e3 * result->seconds / (double)result->counts.steps;
}

double sp_decode_verify_share(const sp_decode_result *result)
{
    return result->counts.verify_s / result->seconds;
}

double sp_decode_host_share(const sp_decode_result *result)
{
    return (result->counts.host_s + result->counts.miss_s) / result->seconds;
}

double sp_decode_low_share(const sp_decode_result *result)
{
    int64_t low = 0;
    for (int b = 0; b < result->how.bins.count; b++) {
        low += sp_speculation_is_low(&result->how, b) ? result->counts.in_bin[b] : 0;
    }
    return (double)low / (double)result->counts.calls;
}

double sp_decode_tokens_per_s(const sp_decode_result *result)
{
    return (double)result->output_tokens / result->seconds;
}

static json_t *times_json(const sp_decode_result *result)
{
    const sp_decode_counts *counts = &result->counts;
    double per_step_ms = 1e3 / (double)counts->steps;
    return sp_json_object(SP_JSON("draft", counts->draft_s * per_step_ms),
                          SP_JSON("transfer", counts->transfer_s * per_step_ms),
                          SP_JSON("verify", counts->verify_s * per_step_ms),
                          SP_JSON("host", counts->host_s * per_step_ms),
                          SP_JSON("graph_miss", counts->miss_s * per_step_ms),
                          SP_JSON("hidden", counts->hidden_s * per_step_ms));
}

static json_t *bin_json(const sp_decode_result *result, int bin)
{
    int depth = 0;
    int nodes = 0;
    json_t *b = json_object();
    sp_speculation_shape(&result->how, bin, &depth, &nodes);
    bool last = bin == result->how.bins.count - 1;
    sp_json_add(b,
                SP_JSON("entropy_to", last ? json_null() : json_real(result->how.bins.above[bin])),
                SP_JSON("share", (double)result->counts.in_bin[bin] / (double)result->counts.calls),
                SP_JSON("depth", depth), SP_JSON("draft_tokens", nodes));
    return b;
}

static json_t *bins_json(const sp_decode_result *result)
{
    json_t *bins = json_array();
    int count = result->how.method == SP_DECODE_HETEROSPEC ? result->how.bins.count : 0;
    for (int i = 0; i < count; i++) {
        json_array_append_new(bins, bin_json(result, i));
    }
    return bins;
}

static json_t *memory_json(const sp_decode_memory *memory, int64_t limit_bytes, bool fits)
{
    return sp_json_object(SP_JSON("parameters", sp_gib_from_bytes(memory->target)),
                          SP_JSON("draft", sp_gib_from_bytes(memory->draft)),
                          SP_JSON("kv_cache", sp_gib_from_bytes(memory->kv_cache)),
                          SP_JSON("draft_gpu", sp_gib_from_bytes(memory->apart)),
                          SP_JSON("limit", sp_gib_from_bytes(limit_bytes)), SP_JSON("fits", fits));
}

static json_t *text_json(const sp_decode_result *result)
{
    const sp_acceptance *text = &result->text;
    return sp_json_object(SP_JSON("ease", text->ease), SP_JSON("spread", text->spread),
                          SP_JSON("noise", text->noise), SP_JSON("persistence", text->persistence),
                          SP_JSON("agreement", text->agreement), SP_JSON("blind", text->blind),
                          SP_JSON("training_ease", result->training_ease));
}

static void add_counts(json_t *b, const sp_decode_result *result)
{
    const sp_decode_counts *counts = &result->counts;
    sp_json_add(
        b, SP_JSON("calls", counts->calls), SP_JSON("steps", counts->steps),
        SP_JSON("tokens", counts->tokens), SP_JSON("output_tokens", result->output_tokens),
        SP_JSON("replica_sequences", result->replica_sequences),
        SP_JSON("tokens_per_call", sp_decode_tokens_per_call(counts)),
        SP_JSON("verified_tokens", counts->verified),
        SP_JSON("verified_per_call", (double)counts->verified / (double)counts->calls),
        SP_JSON("draft_forwards_per_step", (double)counts->draft_forwards / (double)counts->steps),
        SP_JSON("graph_misses", counts->graph_misses),
        SP_JSON("low_entropy_share", sp_decode_low_share(result)));
}

static void add_times(json_t *b, const sp_decode_result *result)
{
    bool drafts = result->how.method != SP_DECODE_PLAIN;
    sp_json_add(
        b, SP_JSON("tokens_per_s", sp_decode_tokens_per_s(result)),
        SP_JSON("step_ms", sp_decode_step_ms(result)), SP_JSON("step_time_ms", times_json(result)),
        SP_JSON("verify_share", sp_decode_verify_share(result)),
        SP_JSON("draft_share", result->counts.draft_s / result->seconds),
        SP_JSON("host_share", sp_decode_host_share(result)),
        SP_JSON("speedup_over_plain", result->plain_s / result->seconds),
        SP_JSON("speedup_over_eagle",
                drafts ? json_real(result->eagle_s / result->seconds) : json_null()),
        SP_JSON("eagle_speedup_over_plain",
                drafts ? json_real(result->plain_s / result->eagle_s) : json_null()),
        SP_JSON("eagle_tokens_per_call",
                drafts ? json_real(sp_decode_tokens_per_call(&result->eagle)) : json_null()),
        SP_JSON("eagle_draft_share",
                drafts ? json_real(result->eagle.draft_s / result->eagle_s) : json_null()),
        SP_JSON("eagle_tokens", drafts ? json_integer(result->eagle.tokens) : json_null()));
}

static json_t *warnings_json(const sp_decode_spec *spec, const sp_decode_machine *machine,
                             const sp_decode_result *result)
{
    sp_warnings all = {.count = 0};
    char lines[SP_PROFILE_LINES][SP_PROFILE_LINE];
    int count = sp_profile_lines(machine->profile, machine->cluster, machine->stack, lines);
    sp_decode_warnings(spec, machine, result, &all);
    for (int i = 0; i < count; i++) {
        sp_warnings_add(&all, "%s", lines[i]);
    }
    return sp_json_lines(all.text[0], sizeof all.text[0], all.count);
}

// Names the source of the time that the host takes; null: there is none, or no draft.
static json_t *host_source_json(const sp_decode_spec *spec, const sp_decode_machine *machine,
                                const sp_decode_result *result)
{
    if (result->host_of_profile) {
        return json_string(machine->profile->decode.source);
    }
    return result->how.method != SP_DECODE_PLAIN && spec->call_ms >= 0.0
               ? json_string("decode.call_ms")
               : json_null();
}

json_t *sp_decode_result_json(const sp_decode_spec *spec, const sp_decode_machine *machine,
                              const sp_decode_result *result)
{
    const sp_decode_memory *memory = &result->memory;
    json_t *b = sp_json_object(SP_JSON("schema", SCHEMA),
                               SP_JSON("method", sp_decode_method_names[result->how.method]),
                               SP_JSON("model", machine->model->name));
    add_times(b, result);
    add_counts(b, result);
    sp_json_add(
        b, SP_JSON("bins", bins_json(result)),
        SP_JSON("text", result->how.method != SP_DECODE_PLAIN ? text_json(result) : json_null()),
        SP_JSON("peak_memory_gib", sp_gib_from_bytes(sp_decode_memory_bytes(memory))),
        SP_JSON("memory_gib", memory_json(memory, machine->memory_limit_bytes, result->fits)),
        SP_JSON("oom", json_boolean(!result->fits)),
        SP_JSON("provenance", sp_json_object(SP_JSON("profile", machine->profile->name),
                                             SP_JSON("level", sp_level_names[result->level]))),
        SP_JSON("host_source", host_source_json(spec, machine, result)),
        SP_JSON("extrapolated", sp_decode_extrapolates(spec)),
        SP_JSON("uncalibrated", sp_uncalibrated_json(&result->uncalibrated)),
        SP_JSON("warnings", warnings_json(spec, machine, result)),
        SP_JSON("not_modelled", sp_json_texts(sp_decode_not_modelled)), SP_JSON("seed", spec->seed),
        SP_JSON("version", SP_VERSION));
    return b;
}
