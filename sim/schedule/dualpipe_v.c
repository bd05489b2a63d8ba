// DualPipeV (DeepSeek, github.com/deepseek-ai/DualPipe, dualpipe/dualpipev.py): two chunks per rank
// in V placement, in the steady phase a forward of one chunk beside a backward of the other. With p
// ranks (PP = 2p virtual stages) and costs per chunk the largest idle time of a rank is
// (PP/2-1)(FB + B - 3W) for F = I, where B = I + W and FB is the time of the pair; here a pair
// takes the sum of its parts, FB = F + B. A rank holds 2p+1 chunks. Packs that data-parallel ranks
// share are in no pair (schedule.c).
#include "sim/schedule/schedule_family.h"

typedef struct put_off {
    int chunk, microbatch;
} put_off;

// One rank's list in the making.
typedef struct rank_list {
    sp_i_schedule_job *job;
    int rank;
    int forwards[2], backwards[2]; // micro-batches so far, by chunk
    put_off *weights;              // gradients put off, in order; 2p-1-r in all
    int queued, run;
} rank_list;

static void add(rank_list *list, sp_action_kind kind, int chunk, int microbatch)
{
    sp_i_schedule_add(list->job, list->rank, kind, chunk, microbatch, 0);
}

static void forward(rank_list *list, int chunk)
{
    add(list, SP_ACTION_F, chunk, list->forwards[chunk]++);
}

static void backward(rank_list *list, int chunk)
{
    add(list, SP_ACTION_B, chunk, list->backwards[chunk]++);
}

// A forward beside a full backward: one operation that needs the inputs of both.
static void pair(rank_list *list, int forward_chunk, int backward_chunk)
{
    forward(list, forward_chunk);
    sp_i_schedule_pair(list->job, list->rank);
    backward(list, backward_chunk);
}

static void input_gradient(rank_list *list, int chunk)
{
    put_off weight = {chunk, list->backwards[chunk]++};
    add(list, SP_ACTION_I, chunk, weight.microbatch);
    list->weights[list->queued++] = weight;
}

static void weight_gradient(rank_list *list)
{
    put_off weight = list->weights[list->run++];
    add(list, SP_ACTION_W, weight.chunk, weight.microbatch);
}

// Forwards until the first backward reaches the rank, then chunk 1 alone with the split backward.
static void fill(rank_list *list, int after)
{
    for (int k = 0; k < 2 * after; k++) {
        forward(list, 0);
    }
    for (int k = 0; k <= list->rank; k++) {
        forward(list, 0);
        forward(list, 1);
    }
    for (int k = 0; k < after; k++) {
        input_gradient(list, 1);
        weight_gradient(list);
        forward(list, 1);
    }
}

static void steady(rank_list *list, int after, int rounds)
{
    for (int k = 0; k < rounds; k++) {
        if (k == 0 && after == 0) {
            // The last rank's first backward is of the micro-batch it has just run forward.
            forward(list, 0);
            backward(list, 1);
        } else {
            pair(list, 0, 1);
        }
        pair(list, 1, 0);
    }
    for (int k = 0; k < after; k++) {
        backward(list, 1);
        pair(list, 1, 0);
    }
}

// Backwards only. From the middle on they are split, so that what the earlier ranks wait for comes
// sooner.
static void drain(rank_list *list, int after)
{
    int units = 2 * (list->rank + 1);
    for (int k = 0; k < units; k++) {
        int chunk = k % 2 == 0 ? 1 : 0;
        if (k < units / 2) {
            backward(list, chunk);
        } else {
            input_gradient(list, chunk);
        }
    }
    for (int k = 0; k < after; k++) {
        weight_gradient(list);
        input_gradient(list, 0);
    }
    while (list->run < list->queued) {
        weight_gradient(list);
    }
}

void sp_i_schedule_dualpipe_v(sp_i_schedule_job *job)
{
    int pp = job->pp;
    if (job->microbatches < 2 * pp) {
        job->status =
            sp_error_in(job->err, SP_ERR_CONTENT, job->source, "schedule.microbatches",
                        "\"dualpipe-v\" needs at least %d micro-batches on %d pipeline ranks, "
                        "there are %d",
                        2 * pp, pp, job->microbatches);
        return;
    }
    put_off *weights = sp_arena_take(&job->work, 2 * (size_t)pp, sizeof *weights);
    for (int r = 0; r < pp; r++) {
        rank_list list = {.job = job, .rank = r, .weights = weights};
        int after = pp - 1 - r;
        fill(&list, after);
        steady(&list, after, job->microbatches - 2 * pp + r + 1);
        drain(&list, after);
    }
}
