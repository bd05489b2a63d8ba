// The end of a step: gradients are summed and the optimizer steps. Ranks work one after another; a
// collective's time is divided by the ranks that would share it.
#include <string.h>

#include "backends/host/run.h"

static const sp_layout *layout_of(const sp_i_host_run *run)
{
    return &run->request->plan->layout;
}

// Sums the same n gradients of several places into the first and gives all of them the sum.
static void sum_into_all(const sp_i_host_run *run, int64_t n, void *const *places, int count)
{
    for (int i = 1; i < count; i++) {
        run->math->add(n, places[i], places[0]);
    }
    for (int i = 1; i < count; i++) {
        memcpy(places[i], places[0], (size_t)(n * run->math->real_bytes));
    }
}

static void reduce_rank(const sp_i_host_run *run, int pp)
{
    void *first = sp_i_host_rank_at(run, 0, pp)->gradients;
    int64_t n = run->weights[pp].elements;
    for (int d = 1; d < layout_of(run)->dp; d++) {
        run->math->add(n, sp_i_host_rank_at(run, d, pp)->gradients, first);
    }
    for (int d = 1; d < layout_of(run)->dp; d++) {
        memcpy(sp_i_host_rank_at(run, d, pp)->gradients, first,
               (size_t)(n * run->math->real_bytes));
    }
}

static const sp_i_host_weight *find_table(const sp_i_host_run *run, bool copy, int *pp)
{
    for (int p = 0; p < layout_of(run)->pp; p++) {
        const sp_i_host_weights *weights = &run->weights[p];
        for (size_t w = 0; w < weights->count; w++) {
            const sp_i_host_weight *weight = &weights->items[w];
            if (weight->copy == copy && strcmp(weight->name, "embedding.tokens") == 0) {
                *pp = p;
                return weight;
            }
        }
    }
    return NULL;
}

// A tied table with its ends on two ranks has the sum of both gradients on both.
static void sum_tied(const sp_i_host_run *run)
{
    int pp[2] = {0, 0};
    const sp_i_host_weight *copy = find_table(run, true, &pp[1]);
    const sp_i_host_weight *table = find_table(run, false, &pp[0]);
    for (int d = 0; copy != NULL && d < layout_of(run)->dp; d++) {
        int64_t real_bytes = run->math->real_bytes;
        void *places[2] = {
            (char *)sp_i_host_rank_at(run, d, pp[0])->gradients + table->offset * real_bytes,
            (char *)sp_i_host_rank_at(run, d, pp[1])->gradients + copy->offset * real_bytes};
        sum_into_all(run, table->elements, places, 2);
    }
}

// The part of a tensor that lies in the rank's share.
static void update_tensor(const sp_i_host_run *run, sp_i_host_rank *rank,
                          const sp_i_host_weight *weight)
{
    int64_t end = weight->offset + weight->elements;
    int64_t from = weight->offset > rank->share_begin ? weight->offset : rank->share_begin;
    int64_t to = end < rank->share_end ? end : rank->share_end;
    const sp_i_host_update update = {.step = run->steps_done + 1,
                                     .learning_rate = run->options.learning_rate,
                                     .weight_decay =
                                         weight->decays ? run->options.weight_decay : 0.0};
    if (from < to) {
        int64_t at = from * run->math->real_bytes;
        int64_t in_share = (from - rank->share_begin) * run->math->real_bytes;
        run->math->update(&update, to - from, (char *)rank->gradients + at,
                          (char *)rank->values + at, (char *)rank->first + in_share,
                          (char *)rank->second + in_share);
    }
}

// Every rank's share of the new parameters goes to all the others.
static void gather_parameters(const sp_i_host_run *run, int pp)
{
    for (int d = 0; layout_of(run)->zero >= 1 && d < layout_of(run)->dp; d++) {
        const sp_i_host_rank *from = sp_i_host_rank_at(run, d, pp);
        size_t at = (size_t)(from->share_begin * run->math->real_bytes);
        size_t bytes = (size_t)((from->share_end - from->share_begin) * run->math->real_bytes);
        for (int e = 0; e < layout_of(run)->dp; e++) {
            if (e != d) {
                memcpy((char *)sp_i_host_rank_at(run, e, pp)->values + at,
                       (char *)from->values + at, bytes);
            }
        }
    }
}

static int64_t last_end_ns(const sp_rank_timeline *rank)
{
    return rank->count > 0 ? rank->spans[rank->count - 1].end_ns : 0;
}

void sp_i_host_update_all(sp_i_host_run *run, sp_timeline *timeline)
{
    int dp = layout_of(run)->dp;
    int pp = layout_of(run)->pp;
    for (int p = 0; p < pp; p++) {
        int64_t ready_ns = 0;
        for (int d = 0; d < dp; d++) {
            int64_t end_ns = last_end_ns(&timeline->ranks[d * pp + p]);
            ready_ns = end_ns > ready_ns ? end_ns : ready_ns;
        }
        int64_t start_ns = sp_i_host_now_ns();
        reduce_rank(run, p);
        int64_t took_ns = (sp_i_host_now_ns() - start_ns) / dp;
        for (int d = 0; d < dp; d++) {
            timeline->ranks[d * pp + p].reduce_start_ns = ready_ns;
            timeline->ranks[d * pp + p].reduce_end_ns = ready_ns + (dp > 1 ? took_ns : 0);
        }
    }
    sum_tied(run);
    for (int p = 0; p < pp; p++) {
        for (int d = 0; d < dp; d++) {
            sp_rank_timeline *line = &timeline->ranks[d * pp + p];
            int64_t start_ns = sp_i_host_now_ns();
            for (size_t w = 0; w < run->weights[p].count; w++) {
                update_tensor(run, sp_i_host_rank_at(run, d, p), &run->weights[p].items[w]);
            }
            line->optimizer_end_ns = line->reduce_end_ns + sp_i_host_now_ns() - start_ns;
        }
        int64_t start_ns = sp_i_host_now_ns();
        gather_parameters(run, p);
        int64_t took_ns = (sp_i_host_now_ns() - start_ns) / dp;
        int64_t ready_ns = 0;
        for (int d = 0; d < dp; d++) {
            int64_t end_ns = timeline->ranks[d * pp + p].optimizer_end_ns;
            ready_ns = end_ns > ready_ns ? end_ns : ready_ns;
        }
        for (int d = 0; d < dp; d++) {
            sp_rank_timeline *line = &timeline->ranks[d * pp + p];
            bool gathers = dp > 1 && layout_of(run)->zero >= 1;
            line->gather_end_ns = gathers ? ready_ns + took_ns : line->optimizer_end_ns;
        }
    }
    run->steps_done++;
}
