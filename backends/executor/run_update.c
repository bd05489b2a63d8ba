// The end of a step: gradients are summed over the ranks that hold the same parameters and the
// optimizer steps, all ranks side by side or, in virtual time, one at a time.
#include "backends/comm/comm.h"
#include "backends/executor/run.h"
#include "sim/base/alloc.h"

typedef struct tail {
    sp_i_exec_run *run;
    const sp_timeline *spans; // of the actions before
} tail;

// The part of a tensor that lies in the rank's share.
static void update_tensor(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                          const sp_i_exec_weight *weight, double gradient_scale)
{
    int64_t end = weight->offset + weight->elements;
    int64_t from = weight->offset > rank->share_begin ? weight->offset : rank->share_begin;
    int64_t to = end < rank->share_end ? end : rank->share_end;
    const sp_i_exec_update update = {.step = run->steps_done + 1,
                                     .learning_rate = run->options.learning_rate,
                                     .weight_decay =
                                         weight->decays ? run->options.weight_decay : 0.0,
                                     .gradient_scale = gradient_scale};
    if (from < to) {
        int64_t in_share = (from - rank->share_begin) * run->math->exact_bytes;
        run->math->update(&update, to - from, sp_i_exec_gradient_at(run, rank, from),
                          sp_i_exec_master_at(run, rank, from), (char *)rank->first + in_share,
                          (char *)rank->second + in_share, sp_i_exec_value_at(run, rank, from));
    }
}

// Every rank's share of the new parameters goes to all the others, unless they are gathered when
// they are needed.
static sp_status gather_parameters(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                                   sp_error *err)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    int count = layout->dp * layout->cp;
    if (layout->zero < 1 || rank->data_group < 0 || sp_i_exec_shards_values(run)) {
        return SP_OK;
    }
    int64_t *shares = sp_i_calloc((size_t)count, sizeof *shares);
    if (shares == NULL) {
        return sp_error_no_memory(err, "shares of parameters");
    }
    for (int i = 0; i < count; i++) {
        const sp_i_exec_rank *other = sp_i_exec_rank_at(run, i / layout->cp, rank->pp,
                                                        i % layout->cp * layout->tp + rank->tp);
        shares[i] = other->share_end - other->share_begin;
    }
    sp_status status = sp_comm_all_gather_rows(
        rank->links.me, rank->data_group, sp_i_exec_value_element(run),
        sp_i_exec_value_at(run, rank, rank->share_begin), rank->values, shares, 1, err);
    sp_i_free(shares);
    return status;
}

static int64_t last_end_ns(const sp_timeline *timeline, const sp_i_exec_run *run,
                           const sp_i_exec_rank *rank)
{
    const sp_rank_timeline *line =
        &timeline->ranks[rank->dp * sp_i_exec_layout(run)->pp + rank->pp];
    return sp_i_rank_last_ns(line);
}

static sp_status end_step(sp_comm *me, void *data, sp_error *err)
{
    const tail *t = data;
    sp_i_exec_run *run = t->run;
    sp_i_exec_rank *rank = &run->ranks[sp_comm_rank(me)];
    sp_rank_timeline *of = &run->tails[sp_comm_rank(me)];
    sp_comm_set_action(me, "optimizer");
    sp_comm_clock_start(me, last_end_ns(t->spans, run, rank));
    sp_status status = rank->data_group < 0 ? SP_OK : sp_comm_barrier(me, rank->data_group, err);
    uint64_t reduce_start = sp_i_exec_moment(run, rank);
    double gradient_scale = 1.0;
    status = status == SP_OK ? sp_i_exec_reduce(run, rank, err) : status;
    status = status == SP_OK ? sp_i_exec_clip_scale(run, rank, &gradient_scale, err) : status;
    uint64_t reduce_end = sp_i_exec_moment(run, rank);
    for (size_t w = 0; status == SP_OK && w < rank->weights->count; w++) {
        update_tensor(run, rank, &rank->weights->items[w], gradient_scale);
    }
    uint64_t optimizer_end = sp_i_exec_moment(run, rank);
    status = status == SP_OK ? gather_parameters(run, rank, err) : status;
    uint64_t gather_end = sp_i_exec_moment(run, rank);
    status = status == SP_OK ? sp_i_exec_settle(run, NULL, err) : status;
    if (status == SP_OK) {
        of->reduce_start_ns = sp_i_exec_moment_ns(run, reduce_start);
        of->reduce_end_ns = sp_i_exec_moment_ns(run, reduce_end);
        of->optimizer_end_ns = sp_i_exec_moment_ns(run, optimizer_end);
        of->gather_end_ns = sp_i_exec_moment_ns(run, gather_end);
    }
    return status;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// The last of its members decides for a rank of the timeline. Without other ranks there is nothing
// to reduce or to gather, and reading the clock took no time.
static void fill_line(const sp_i_exec_run *run, sp_rank_timeline *line)
{
    line->reduce_start_ns = 0;
    for (int m = 0; m < sp_i_exec_members(run); m++) {
        const sp_rank_timeline *of = &run->tails[sp_i_exec_rank_number(run, line->dp, line->pp, m)];
        line->reduce_start_ns = later(line->reduce_start_ns, of->reduce_start_ns);
        line->reduce_end_ns = later(line->reduce_end_ns, of->reduce_end_ns);
        line->optimizer_end_ns = later(line->optimizer_end_ns, of->optimizer_end_ns);
        line->gather_end_ns = later(line->gather_end_ns, of->gather_end_ns);
    }
}

void sp_i_exec_fill_tails(const sp_i_exec_run *run, sp_timeline *timeline)
{
    for (size_t r = 0; r < timeline->rank_count; r++) {
        fill_line(run, &timeline->ranks[r]);
    }
}

sp_status sp_i_exec_update_all(sp_i_exec_run *run, sp_timeline *timeline, sp_error *err)
{
    size_t count = sp_i_exec_rank_count(run);
    tail t = {.run = run, .spans = timeline};
    int *ranks = sp_i_calloc(count, sizeof *ranks);
    sp_status status = ranks != NULL ? SP_OK : sp_error_no_memory(err, "the end of a step");
    for (size_t r = 0; status == SP_OK && r < count; r++) {
        ranks[r] = (int)r;
    }
    if (status == SP_OK) {
        status = sp_i_exec_on_ranks(run, ranks, (int)count, end_step, &t, err);
    }
    if (status == SP_OK && run->transport == NULL) {
        sp_i_exec_fill_tails(run, timeline);
    }
    run->steps_done++;
    sp_i_free(ranks);
    return status;
}
