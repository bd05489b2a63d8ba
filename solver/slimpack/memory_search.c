#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/metrics/result.h"
#include "solver/slimpack/search_state.h"

// Share of the memory limit that is left besides where a step came out tight.
#define MORE_SPARE 0.03

// Packs that leave the margin from the start may take so many times what packs without it do.
#define NEAR 1.01

// More packs run again where a step takes longer than so many times the work with all forwards
// twice: packs that have room enough mostly stay below.
#define REPEATS_LOSS 1.1

enum {
    MOST_AGAIN = 3,   // searches with less room
    MOST_RETAINED = 8 // packs of a block that keep their activations while others do not
};

void sp_i_search_set_spare(sp_i_search *s, int64_t spare_bytes)
{
    s->spare_bytes = spare_bytes;
    for (int i = 0; i < s->threads; i++) {
        s->scorers[i].limit_bytes = s->input->scenario->memory_limit_bytes - spare_bytes;
    }
}

static sp_status search_shapes(sp_i_search *s, sp_packing *best, sp_packflow_outcome *judged,
                               sp_error *err)
{
    sp_status status = sp_i_search_begin(s, err);
    return status == SP_OK ? sp_i_search_finish(s, best, judged, err) : status;
}

// The reckoning of the search leaves some memory out: where the whole step needs more than there
// is, the search is done again with so much less room.
static sp_status search_within(sp_i_search *s, sp_packing *best, sp_packflow_outcome *judged,
                               sp_error *err)
{
    sp_status status = sp_i_search_finish(s, best, judged, err);
    for (int again = 0; status == SP_OK && again < MOST_AGAIN && judged->lacking_bytes > 0 &&
                        judged->makespan_ns < INT64_MAX &&
                        sp_i_search_outcome(s).lacking_bytes == 0 && !sp_i_search_is_late(s);
         again++) {
        sp_i_search_set_spare(s,
                              s->spare_bytes + judged->lacking_bytes + judged->lacking_bytes / 8);
        status = search_shapes(s, best, judged, err);
    }
    return status;
}

// A rank's states alone are more than there is.
static bool is_hopeless(const sp_i_search *s)
{
    const sp_scenario *scenario = s->input->scenario;
    bool hopeless = false;
    for (int r = 0; r < scenario->layout.pp; r++) {
        hopeless =
            hopeless || s->scorers[0].memory.states[r] > (double)scenario->memory_limit_bytes;
    }
    return hopeless;
}

static bool is_tight(const sp_packflow_outcome *judged)
{
    return judged->lacking_bytes == 0 && judged->tight;
}

static int64_t share_bytes(const sp_i_search *s, double share)
{
    return (int64_t)(share * (double)s->input->scenario->memory_limit_bytes);
}

// Takes first shapes that leave the margin where they are nearly as fast as `first`.
static sp_status begin_with_margin(sp_i_search *s, const sp_packflow_outcome *first, bool *taken,
                                   sp_error *err)
{
    bool slower;
    *taken = false;
    sp_i_search_set_spare(s, share_bytes(s, SP_MEMORY_TIGHT));
    sp_status status = sp_i_search_is_slower(s, &slower, err);
    if (status != SP_OK || !slower) {
        return status; // there is a margin as it is
    }
    status = sp_i_search_begin(s, err);
    const sp_packflow_outcome with = sp_i_search_outcome(s);
    *taken = status == SP_OK && with.lacking_bytes == 0 &&
             (double)with.makespan_ns <= NEAR * (double)first->makespan_ns;
    return status;
}

// Steps of packs that fill the memory would be tight, which costs more than their margin: those are
// not searched to the end.
static sp_status begin(sp_i_search *s, sp_error *err)
{
    sp_status status = sp_i_search_begin(s, err);
    const sp_packflow_outcome first = sp_i_search_outcome(s);
    if (status != SP_OK || first.lacking_bytes > 0 || sp_i_search_is_late(s)) {
        return status;
    }
    const size_t bytes = (size_t)s->ranks.count * sizeof *s->best;
    const int64_t left = s->left;
    bool taken = false;
    sp_i_best_shape *best = sp_malloc(bytes);
    memcpy(best, s->best, bytes);
    status = begin_with_margin(s, &first, &taken, err);
    if (status == SP_OK && !taken) {
        sp_i_search_set_spare(s, 0);
        memcpy(s->best, best, bytes);
        s->left = left;
    }
    sp_free(best);
    return status;
}

// Packs that leave as much memory as a step has to spare that is not tight, or more, for the
// reckoning of the search leaves some out.
static sp_status search_with_margin(sp_i_search *s, sp_packing *best, sp_packflow_outcome *judged,
                                    sp_error *err)
{
    const int64_t margin_bytes = share_bytes(s, SP_MEMORY_TIGHT);
    sp_status status = SP_OK;
    for (int more = s->spare_bytes >= margin_bytes ? 1 : 0; // that has been searched
         status == SP_OK && more < 2 && is_tight(judged) && !sp_i_search_is_late(s); more++) {
        sp_i_search_set_spare(s, margin_bytes + more * share_bytes(s, MORE_SPARE));
        status = search_shapes(s, best, judged, err);
    }
    return status;
}

// Does what was found take far longer than the work of all samples with every forward twice?
static bool is_far_above_repeats(const sp_i_search *s, const sp_packflow_outcome *judged)
{
    const sp_batch *batch = s->input->batch;
    const sp_layout *layout = &s->input->scenario->layout;
    const double forward_s = s->work.forward.token_s;
    const double again = forward_s / (forward_s + s->work.backward.token_s);
    double work_s = 0.0; // of the mean virtual stage
    for (size_t i = 0; i < batch->count; i++) {
        work_s += sp_i_slice_work_s(&s->work, 0, batch->tokens[i]);
    }
    work_s *= (double)layout->chunks / layout->dp;
    return (double)judged->makespan_ns > REPEATS_LOSS * (1.0 + again) * work_s * SP_NS_PER_S;
}

// More and more packs of a block run again, until they fit and more would not be better.
static sp_status search_with_repeats(sp_i_search *s, sp_packing *best, sp_packflow_outcome *judged,
                                     sp_error *err)
{
    sp_status status = SP_OK;
    int of_best = 0;
    bool better = true;
    for (int retained = MOST_RETAINED;
         status == SP_OK && retained >= 0 && !sp_i_search_is_late(s) &&
         (better || judged->lacking_bytes > 0 || is_far_above_repeats(s, judged));
         retained = retained > 0 ? retained / 2 : -1) {
        const sp_packflow_outcome before = *judged;
        s->retained = retained > 0 ? retained : SP_I_RETAINS_NONE;
        sp_i_search_set_spare(s, 0);
        status = sp_i_search_begin(s, err);
        if (status == SP_OK) {
            status = search_within(s, best, judged, err);
        }
        better = sp_packflow_is_better(judged, &before);
        of_best = better ? s->retained : of_best;
    }
    if (status == SP_OK && of_best != 0 && is_tight(judged)) {
        s->retained = of_best;
        sp_i_search_set_spare(s, 0);
        status = search_with_margin(s, best, judged, err);
    }
    return status;
}

// Where no packs fit, forwards run again, and where memory leaves so little room that the packs
// take far longer than their work twice. Weight gradients of their own would hold what that saves.
sp_status sp_i_search_in_memory(sp_i_search *s, sp_packing *best, sp_packflow_outcome *judged,
                                sp_error *err)
{
    sp_status status = begin(s, err);
    if (status == SP_OK) {
        status = search_within(s, best, judged, err);
    }
    const bool short_of_memory = s->spare_bytes > 0 || sp_packflow_is_short(judged);
    if (status == SP_OK && is_tight(judged)) {
        status = search_with_margin(s, best, judged, err);
    }
    bool may_help = !s->options.split && !is_hopeless(s);
    bool asked = judged->lacking_bytes > 0 || (short_of_memory && is_far_above_repeats(s, judged));
    return status == SP_OK && may_help && asked ? search_with_repeats(s, best, judged, err)
                                                : status;
}
