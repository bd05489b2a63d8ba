// Orders of micro-batches, whole or sliced, in which two lists of units and a lag give the actions
// of a rank: GPipe, TeraPipe, 1F1B, ChunkFlow, Seq1F1B, interleaved 1F1B and SlimPipe.
#include <limits.h>
#include <stdio.h>

#include "sim/schedule/schedule_family.h"

// A slice of a micro-batch on one chunk of every rank.
typedef struct slice_unit {
    int32_t microbatch, chunk, slice;
} slice_unit;

// All units of a job once in forward and once in backward order, the same on every rank.
typedef struct unit_order {
    sp_i_schedule_job *job;
    slice_unit *forward, *backward;
    size_t forwards, backwards; // added so far
    int64_t *place;             // [chunk * slices of all micro-batches + slice]: among the forwards
    size_t slices;              // of all micro-batches
} unit_order;

// Empty lists with room for all units of the job.
static unit_order order_begin(sp_i_schedule_job *job)
{
    size_t slices = (size_t)job->first[job->microbatches];
    size_t units = slices * (size_t)job->plan->layout.chunks;
    return (unit_order){.job = job,
                        .forward = sp_arena_take(&job->work, units, sizeof(slice_unit)),
                        .backward = sp_arena_take(&job->work, units, sizeof(slice_unit)),
                        .place = sp_arena_take(&job->work, units, sizeof(int64_t)),
                        .slices = slices};
}

static size_t place_index(const unit_order *order, slice_unit unit)
{
    return (size_t)unit.chunk * order->slices + (size_t)order->job->first[unit.microbatch] +
           (size_t)unit.slice;
}

// Adds a unit to the forward order.
static void add_forward(unit_order *order, slice_unit unit)
{
    order->place[place_index(order, unit)] = (int64_t)order->forwards;
    order->forward[order->forwards++] = unit;
}

// Adds micro-batches [begin, end), chunk after chunk, to the forward order; to the backward order
// in the same shape, with chunks and slices mirrored.
static void add_group(unit_order *order, int begin, int end)
{
    int chunks = order->job->plan->layout.chunks;
    for (int c = 0; c < chunks; c++) {
        for (int m = begin; m < end; m++) {
            int slices = sp_i_slices_of(order->job, m);
            for (int s = 0; s < slices; s++) {
                add_forward(order, (slice_unit){m, c, s});
                order->backward[order->backwards++] =
                    (slice_unit){m, chunks - 1 - c, slices - 1 - s};
            }
        }
    }
}

// Adds what stands in the forward order from place `from` on to the backward order, in reverse.
static void add_reverse(unit_order *order, size_t from)
{
    for (size_t k = order->forwards; k > from; k--) {
        order->backward[order->backwards++] = order->forward[k - 1];
    }
}

static bool is_same(slice_unit a, slice_unit b)
{
    return a.microbatch == b.microbatch && a.chunk == b.chunk && a.slice == b.slice;
}

static void add_forward_unit(const unit_order *order, int pp_rank, int64_t at)
{
    slice_unit unit = order->forward[at];
    sp_i_schedule_add(order->job, pp_rank, SP_ACTION_F, unit.chunk, unit.microbatch, unit.slice);
}

// The backward of a pair stands first: layer by layer it frees what the forward beside it fills
// (Megatron-LM, core/models/common/model_chunk_schedule_plan.py), so that memory holds no more than
// the larger of the two and a layer, which is not counted.
static void emit_rank(const unit_order *order, int pp_rank, int64_t lag, int64_t ahead,
                      int retained)
{
    sp_i_schedule_job *job = order->job;
    int64_t units = (int64_t)order->forwards;
    int64_t done = 0;
    int64_t target = lag + ahead;
    for (size_t k = 0; k < order->backwards; k++) {
        slice_unit unit = order->backward[k];
        int64_t needed = order->place[place_index(order, unit)] + 1 + lag;
        target = target + 1 > needed ? target + 1 : needed;
        target = target < units ? target : units;
        bool pairs =
            job->spec->pairs && target > done && !is_same(order->forward[target - 1], unit);
        for (; done < target - pairs; done++) {
            add_forward_unit(order, pp_rank, done);
        }
        if (unit.slice < sp_i_slices_of(job, unit.microbatch) - retained) {
            sp_i_schedule_add(job, pp_rank, SP_ACTION_R, unit.chunk, unit.microbatch, unit.slice);
        }
        sp_i_schedule_add(job, pp_rank, SP_ACTION_B, unit.chunk, unit.microbatch, unit.slice);
        if (pairs) {
            sp_i_schedule_pair(job, pp_rank);
            add_forward_unit(order, pp_rank, done++);
        }
    }
}

// Appends the actions of all ranks. Behind rank r come p-1-r others, and its lag is `slope` times
// that. Before its first backward stand its own forward and `lag` more, or lag + `ahead` forwards
// and one more where those are not fewer; then comes one forward for each backward; where
// micro-batches have different numbers of slices, as many more as it takes for a backward to find
// its own forward `lag` units behind. Of the slices of a micro-batch all but the last `retained`
// are recomputed before their backward. Pairs need one forward more ahead: each backward then has
// a forward beside it that is not its own (schedule.h).
static void emit_order(const unit_order *order, int slope, int64_t ahead, int retained)
{
    int pp = order->job->pp;
    SP_ASSERT(order->forwards == order->backwards);
    for (int r = 0; r < pp; r++) {
        emit_rank(order, r, slope * (int64_t)(pp - 1 - r), ahead + order->job->spec->pairs,
                  retained);
    }
}

// ---- GPipe and TeraPipe ----

// GPipe (Huang et al., arXiv 1811.06965, figure 2c): all forwards, then all backwards in reverse
// order. Bubble (p-1)(F+B); all m micro-batches in flight.
void sp_i_schedule_gpipe(sp_i_schedule_job *job)
{
    unit_order order = order_begin(job);
    for (int m = 0; m < job->microbatches; m++) {
        for (int s = 0; s < sp_i_slices_of(job, m); s++) {
            add_forward(&order, (slice_unit){m, 0, s});
        }
    }
    add_reverse(&order, 0);
    emit_order(&order, 0, 0, INT_MAX);
}

// TeraPipe (Li et al., arXiv 2102.07988, section 3.2): the slices of a micro-batch follow each
// other through the pipeline as micro-batches do in GPipe, then everything runs backward in
// reverse. Forward of one micro-batch over K ranks: sum t_i + (K-1) max t_j; with equal slices the
// bubble is (p-1)(f+b) in times of a slice. All slices of all micro-batches are in flight.
void sp_i_schedule_terapipe(sp_i_schedule_job *job)
{
    sp_i_schedule_gpipe(job);
}

// ---- 1F1B, ChunkFlow and Seq1F1B ----

// 1F1B, PipeDream-flush (Narayanan et al., arXiv 2006.09503, section 2.2): rank r runs min(p-1-r,
// m) forwards, then one forward and one backward in turn, then the remaining backwards. Bubble
// (p-1)(F+B); min(p-r, m) micro-batches in flight.
void sp_i_schedule_1f1b(sp_i_schedule_job *job)
{
    unit_order order = order_begin(job);
    add_group(&order, 0, job->microbatches);
    emit_order(&order, 1, 0, INT_MAX);
}

// ChunkFlow (Yuan et al., arXiv 2503.02356, section 4): the chunks of a long sample are the slices
// of its micro-batch. Of N chunks the last K keep their activations and run backward first, in
// reverse; each earlier one, descending because the gradients of its keys and values come from the
// later ones, runs forward again (R) just before its backward. Over ranks this is 1F1B in chunks
// that waits for all chunks of a micro-batch before its first backward.
void sp_i_schedule_chunkflow(sp_i_schedule_job *job)
{
    unit_order order = order_begin(job);
    add_group(&order, 0, job->microbatches);
    emit_order(&order, 1, 0, job->spec->retained > 0 ? job->spec->retained : 1);
}

static int slices_between(const sp_i_schedule_job *job, int begin, int end)
{
    return job->first[end] - job->first[begin];
}

// A rest of fewer than p slices would leave bubbles of its own: it joins the last group.
static int group_end(const sp_i_schedule_job *job, int begin)
{
    int pp = job->pp;
    int end = begin + 1;
    while (end < job->microbatches && slices_between(job, begin, end) < pp) {
        end++;
    }
    return slices_between(job, end, job->microbatches) < pp ? job->microbatches : end;
}

// Seq1F1B (Sun et al., arXiv 2406.03488, section 3; thunlp/Seq1F1B, schedules.py): 1F1B over
// slices. Micro-batches run backward in order, the slices of each last first. Rank r runs p-2-r+n
// forwards first; bubble (p-1)(F+B)/n, at most n+p-1-r slices in flight.
//
// Interleaved: chunk after chunk in groups of p slices, (v-1)p + 2(p-1-r) + n-1 forwards first.
// That order finds the last slice of each micro-batch where n divides p; otherwise a group is here
// as many whole micro-batches as have p slices.
void sp_i_schedule_seq1f1b(sp_i_schedule_job *job)
{
    unit_order order = order_begin(job);
    for (int m = 0; m < job->microbatches;) {
        int end = group_end(job, m);
        add_group(&order, m, end);
        m = end;
    }
    emit_order(&order, job->plan->layout.chunks == 1 ? 1 : 2, 0, INT_MAX);
}

// ---- Interleaved 1F1B ----

// Interleaved 1F1B (Narayanan et al., arXiv 2104.04473, section 2.2). The units (micro-batch,
// chunk) run in groups of g >= p micro-batches: inside a group chunk 0 of all g, then chunk 1, ...;
// backwards take the same list with the chunks mirrored. Rank r runs 2(p-1-r) + (v-1)g forwards
// first. Bubble (p-1)(F+B)/v for g = p; (v-1)g + 2(p-1-r) + 1 chunks in flight.

// Sizes of groups that are spread evenly differ by one. The last of groups of a given size takes
// the remainder.
static int group_begin(const sp_i_schedule_job *job, int size, int index)
{
    int m = job->microbatches;
    if (size == SP_GROUP_EVEN) {
        int groups = m >= job->pp ? m / job->pp : 1;
        return (int)((int64_t)m * index / groups);
    }
    return index <= m / size ? index * size : m;
}

// A group smaller than the pipeline would wait for its own backwards, so Megatron-LM asks for at
// least p micro-batches in each, the last one too (microbatch_group_size_per_vp_stage; p by
// default).
static bool fits(int pp, int m, int size)
{
    return m == 0 || (size >= pp && size <= m && (m % size == 0 || m % size >= pp));
}

// The smallest size of groups that all data-parallel ranks can have; 0 where there is none.
// O(micro-batches * dp).
static int common_size(const sp_i_schedule_job *job)
{
    int dp = job->plan->layout.dp;
    for (int size = job->pp; size <= job->microbatches; size++) {
        int fitting = 0;
        while (fitting < dp && fits(job->pp, job->counts[fitting], size)) {
            fitting++;
        }
        if (fitting == dp) {
            return size;
        }
    }
    return 0;
}

static sp_status check_group(const sp_i_schedule_job *job, int size)
{
    int m = job->microbatches;
    if (size == SP_GROUP_EVEN || fits(job->pp, m, size)) {
        return SP_OK;
    }
    char text[96];
    int common = common_size(job);
    if (common > 0) {
        snprintf(text, sizeof text, "; %d or \"even\" would do", common);
    } else if (m >= job->pp) {
        snprintf(text, sizeof text, "; \"even\" would do");
    } else {
        snprintf(text, sizeof text,
                 "; expected at least %d micro-batches, or parallel.chunks_per_rank 1 (1f1b)",
                 job->pp);
    }
    return sp_error_in(job->err, SP_ERR_CONTENT, job->source, "schedule.group",
                       "%d micro-batches cannot be cut into groups of %d%s of which each has at "
                       "least the %d of parallel.pp%s",
                       m, size, job->spec->group == 0 ? " (parallel.pp by default)" : "", job->pp,
                       text);
}

void sp_i_schedule_interleaved(sp_i_schedule_job *job)
{
    int m = job->microbatches;
    int chunks = job->plan->layout.chunks;
    int size = job->spec->group != 0 ? job->spec->group : job->pp;
    if (chunks == 1) {
        size = m; // 1F1B, whatever the groups
    } else if (job->pp == 1) {
        job->status =
            sp_error_in(job->err, SP_ERR_CONTENT, job->source, "schedule.kind",
                        "\"interleaved\" with several chunks needs parallel.pp of at least 2");
    } else {
        job->status = check_group(job, size);
    }
    if (job->status != SP_OK) {
        return;
    }
    unit_order order = order_begin(job);
    int largest = 0;
    for (int g = 0, begin = 0; begin < m; g++) {
        int end = group_begin(job, size, g + 1);
        largest = end - begin > largest ? end - begin : largest;
        add_group(&order, begin, end);
        begin = end;
    }
    emit_order(&order, chunks == 1 ? 1 : 2, (chunks - 1) * (int64_t)largest, INT_MAX);
}

// ---- SlimPipe ----

// SlimPipe (arXiv 2504.14519; kwai/Megatron-Kwai): a micro-batch of n slices runs in groups of g
// slices, inside a group chunk after chunk, and backward in the exact reverse of its forward order.
// Rank r runs a forward while fewer than K_r = nv + 2(p-1-r) units are in flight, otherwise a
// backward. With balanced slices the bubble is (p-1)(f+b) in times of a unit, (p-1)/(nvm+p-1) of
// the step. The runtime of the authors asks for at least K_r units; fewer (one micro-batch) run
// here all forward, then all backward.

// The smallest divisor of the slices that is at least p, so that a group comes back to rank 0 just
// when its next chunk is due; 0: there is none. One chunk needs no groups.
static int group_size(const sp_i_schedule_job *job, int slices)
{
    if (job->plan->layout.chunks == 1) {
        return slices;
    }
    int group = job->pp;
    while (group <= slices && slices % group != 0) {
        group++;
    }
    return group <= slices ? group : 0;
}

static void order_microbatch(unit_order *order, int m, int group)
{
    size_t begin = order->forwards;
    for (int s0 = 0; s0 < sp_i_slices_of(order->job, m); s0 += group) {
        for (int c = 0; c < order->job->plan->layout.chunks; c++) {
            for (int s = s0; s < s0 + group; s++) {
                add_forward(order, (slice_unit){m, c, s});
            }
        }
    }
    add_reverse(order, begin);
}

void sp_i_schedule_slimpipe(sp_i_schedule_job *job)
{
    unit_order order = order_begin(job);
    for (int m = 0; m < job->microbatches; m++) {
        int slices = sp_i_slices_of(job, m);
        int group = group_size(job, slices);
        if (group == 0) {
            job->status =
                sp_error_in(job->err, SP_ERR_CONTENT, job->source, "schedule.slices",
                            "\"slimpipe\" with several chunks needs at least as many slices as "
                            "pipeline ranks (%d), a micro-batch has %d",
                            job->pp, slices);
            return;
        }
        order_microbatch(&order, m, group);
    }
    emit_order(&order, 2, 0, INT_MAX);
}
