// The calls of a batch of sequences, one step after the other.
#include <math.h>

#include "sim/base/alloc.h"
#include "sim/inference/decode_private.h"

// A place of the batch. A sequence that is done leaves it to the next one.
typedef struct slot {
    sp_drafted_sequence sequence;
    int64_t produced;
    bool active;
    sp_i_turn turn;
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
    slot *slots;      // [batch], owned
    sp_i_turn *turns; // [batch], owned: those of one forward
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
    s->turns = sp_calloc(batch, sizeof *s->turns);
    s->kept = sp_calloc((size_t)s->graphs, sizeof *s->kept);
    sp_draft_tree_init(&s->tree, s->how->top_k, sp_speculation_most_depth(s->how), NULL);
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
    sp_free(s->turns);
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
            place->turn.fresh = 1;
            sp_drafted_sequence_begin(&place->sequence, s->spec->seed, (uint64_t)s->begun++);
        }
    }
}

static int speculate(steps *s)
{
    int active = 0;
    for (int i = 0; i < s->spec->batch; i++) {
        slot *place = &s->slots[i];
        sp_i_turn *turn = &place->turn;
        if (!place->active) {
            continue;
        }
        turn->context = (double)(s->spec->prompt_tokens + place->produced);
        turn->call = (sp_speculated){.nodes = 1};
        if (s->how->method != SP_DECODE_PLAIN) {
            sp_speculate(s->how, s->text, &place->sequence, &s->tree, &turn->call);
        }
        active++;
    }
    return active;
}

// ---- the time of a step ----

static bool has_graph(steps *s, shape wanted)
{
    int at = 0;
    while (at < s->kept_count &&
           (s->kept[at].depth != wanted.depth || s->kept[at].nodes != wanted.nodes)) {
        at++;
    }
    bool found = at < s->kept_count;
    if (s->graphs == 0) {
        return false;
    }
    s->kept_count += !found && s->kept_count < s->graphs;
    at = found ? at : s->kept_count - 1;
    for (; at > 0; at--) {
        s->kept[at] = s->kept[at - 1];
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
    sp_i_call_price(s->pricer, s->turns, count / 2, padded, &half[0]);
    sp_i_call_price(s->pricer, s->turns + count / 2, count - count / 2, padded, &half[1]);
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
    sp_i_call_price(s->pricer, s->turns, count, padded, &time);
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
        int own = place->turn.call.bin;
        own = sp_speculation_is_low(s->how, own) ? own : SP_LOW_BINS;
        if (place->active && (bin < 0 || own == bin)) {
            s->turns[count++] = place->turn;
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
        int yielded = place->turn.call.accepted + 1;
        place->produced += yielded;
        place->turn.fresh = yielded;
        place->active = place->produced < s->spec->output_tokens;
        s->counts->tokens += yielded;
        s->counts->in_bin[place->turn.call.bin]++;
    }
}
