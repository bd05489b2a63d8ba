// The end of a step: gradients are summed over the ranks that hold the same parameters and the
// optimizer steps, all ranks side by side or, in virtual time, one at a time.
#include <math.h>
#include <string.h>

#include "backends/comm/comm.h"
#include "backends/executor/run.h"
#include "sim/base/alloc.h"

// ---- Clipping ----

// Clipping by the global norm of the gradients (Pascanu, Mikolov, Bengio, "On the difficulty of
// training recurrent neural networks", arXiv 1211.5063, algorithm 1), over all ranks.

// Ranks that step the same element: without shares all replicas do, and the first one counts.
static bool counts(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    return sp_i_exec_layout(run)->zero >= 1 || sp_i_exec_replica(run, rank) == 0;
}

// Elements of a tensor that other tensor-parallel ranks have too.
static sp_i_exec_range repeated(const sp_i_exec_weight *weight)
{
    bool all = weight->rows == weight->all_rows && weight->columns == weight->all_columns;
    return all ? (sp_i_exec_range){0, weight->elements}
               : (sp_i_exec_range){weight->shared_first, weight->shared_elements};
}

// Of those the first of the ranks counts.
static bool is_first(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                     const sp_i_exec_weight *weight)
{
    bool all = weight->rows == weight->all_rows && weight->columns == weight->all_columns;
    int same = all ? sp_i_exec_layout(run)->tp : weight->shared_by;
    return same < 2 || rank->tp % same == 0;
}

// Of the rank's share.
static double sum_range(const sp_i_exec_run *run, const sp_i_exec_rank *rank, int64_t begin,
                        int64_t end)
{
    double sum = 0.0;
    sp_i_exec_range own = sp_i_exec_overlap((sp_i_exec_range){begin, end - begin},
                                            rank->share_begin, rank->share_end);
    if (own.count > 0) {
        run->runtime->ops->sum_of_squares(run->runtime, sp_i_exec_exact_element(run), own.count,
                                          sp_i_exec_gradient_at(run, rank, own.begin), &sum);
    }
    return sum;
}

// The second end of a tied table has the gradients of the first.
static double sum_squares(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                          const sp_i_exec_weight *weight)
{
    sp_i_exec_range twice = repeated(weight);
    if (weight->copy) {
        return 0.0;
    }
    if (is_first(run, rank, weight)) {
        return sum_range(run, rank, weight->offset, weight->offset + weight->elements);
    }
    int64_t from = weight->offset + twice.begin;
    return sum_range(run, rank, weight->offset, from) +
           sum_range(run, rank, from + twice.count, weight->offset + weight->elements);
}

// Of one number at each rank.
static sp_status sum_ranks(const sp_i_exec_run *run, const sp_i_exec_rank *rank, double *x,
                           sp_error *err)
{
    const sp_runtime_ops *ops = run->runtime->ops;
    void *at = sp_i_exec_take(rank->arena, SP_MEM_WORKSPACE, 1, (sp_i_exec_width){sizeof *x, 0});
    if (at == NULL) {
        return sp_error_no_memory(err, "the norm of gradients");
    }
    ops->upload(run->runtime, at, x, sizeof *x);
    sp_status status = sp_comm_all_reduce(rank->links.me, run->all_group, SP_ELEMENT_F64,
                                          SP_COMM_SUM, at, at, 1, err);
    if (status == SP_OK && run->transport != NULL) {
        status = sp_i_exec_synchronize(run, NULL, err);
    }
    if (status == SP_OK) {
        ops->download(run->runtime, x, at, sizeof *x);
    }
    sp_i_exec_give(rank->arena, at);
    return status;
}

// What clipping multiplies all gradients with: 1, or what brings their norm down to the option's.
static sp_status clip_scale(const sp_i_exec_run *run, const sp_i_exec_rank *rank, double *scale,
                            sp_error *err)
{
    double squares = 0.0;
    sp_status status = SP_OK;
    *scale = 1.0;
    if (run->options.clip <= 0.0) {
        return SP_OK;
    }
    // The sums wait for work of the rank that may wait for others.
    if (run->transport != NULL) {
        status = sp_i_exec_synchronize(run, NULL, err);
    }
    for (size_t w = 0; status == SP_OK && counts(run, rank) && w < rank->weights->count; w++) {
        squares += sum_squares(run, rank, &rank->weights->items[w]);
    }
    if (status == SP_OK && run->all_group >= 0) {
        status = sum_ranks(run, rank, &squares, err);
    }
    double norm = sqrt(squares);
    *scale = norm > run->options.clip ? run->options.clip / norm : 1.0;
    return status;
}

// ---- Sums of gradients ----

// Gradients at the end of a step: sums over the ranks that hold the same parameters. Where ZeRO
// shards them the actions have given each share what it sums (replicas.h).

// Those of which this rank holds the gradients.
static sp_i_exec_range held(const sp_i_exec_rank *rank, int64_t first, int64_t count)
{
    return sp_i_exec_overlap((sp_i_exec_range){first, count}, rank->gradients_at.begin,
                             rank->gradients_at.begin + rank->gradients_at.count);
}

static sp_status sum(const sp_i_exec_run *run, const sp_i_exec_rank *rank, int group,
                     sp_i_exec_range of, sp_error *err)
{
    void *at = sp_i_exec_gradient_at(run, rank, of.begin);
    return group < 0 || of.count == 0
               ? SP_OK
               : sp_comm_all_reduce(rank->links.me, group, sp_i_exec_exact_element(run),
                                    SP_COMM_SUM, at, at, of.count, err);
}

// Where tensor-parallel ranks hold the same elements and each has seen a part of what they did.
// Their shares of the same replica are the same.
static sp_status sum_shared(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_error *err)
{
    sp_status status = SP_OK;
    for (size_t w = 0; status == SP_OK && w < rank->weights->count; w++) {
        const sp_i_exec_weight *weight = &rank->weights->items[w];
        bool all = weight->shared_by == sp_i_exec_layout(run)->tp;
        if (weight->shared_by > 1) {
            status = sum(run, rank, all ? rank->links.tp_group : rank->kv_group,
                         held(rank, weight->offset + weight->shared_first, weight->shared_elements),
                         err);
        }
    }
    return status;
}

// Embedding and LM head cut a tied table into other shares: both put it together, sum it and keep
// their own.
static sp_status sum_tied_shares(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                                 const sp_i_exec_weight *table, sp_error *err)
{
    const sp_i_exec_replicas *replicas = sp_i_exec_replicas_of(run, rank);
    const sp_i_exec_range all = {table->offset, table->elements};
    sp_i_exec_range own = held(rank, table->offset, table->elements);
    void *sums =
        sp_i_exec_take(rank->arena, SP_MEM_WORKSPACE, table->elements, rank->job->specs.statistic);
    int64_t *rows = sp_calloc((size_t)replicas->count, sizeof *rows);
    sp_status status =
        sums != NULL && rows != NULL ? SP_OK : sp_error_no_memory(err, "a tied table");
    for (int m = 0; status == SP_OK && m < replicas->count; m++) {
        rows[m] = sp_i_exec_overlap(all, replicas->shares[m].begin, replicas->shares[m].end).count;
    }
    void *at = own.count > 0 ? sp_i_exec_gradient_at(run, rank, own.begin) : rank->gradients;
    if (status == SP_OK) {
        status = sp_comm_all_gather(rank->links.me, rank->data_group, sp_i_exec_exact_element(run),
                                    at, sums, rows, 1, err);
    }
    if (status == SP_OK) {
        status = sp_comm_all_reduce(rank->links.me, rank->tied_group, sp_i_exec_exact_element(run),
                                    SP_COMM_SUM, sums, sums, table->elements, err);
    }
    if (status == SP_OK && own.count > 0) {
        run->runtime->ops->copy(run->runtime, at,
                                (char *)sums + (own.begin - all.begin) * run->math->exact_bytes,
                                own.count * run->math->exact_bytes);
    }
    sp_i_exec_give(rank->arena, sums);
    sp_free(rows);
    return status;
}

// A tied table whose embedding and LM head are on two ranks has the sum of both gradients on both.
static sp_status sum_tied(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_error *err)
{
    for (size_t w = 0; rank->tied_group >= 0 && w < rank->weights->count; w++) {
        const sp_i_exec_weight *weight = &rank->weights->items[w];
        if (strcmp(weight->name, "embedding.tokens") == 0) {
            return sp_i_exec_shards_gradients(run)
                       ? sum_tied_shares(run, rank, weight, err)
                       : sum(run, rank, rank->tied_group,
                             (sp_i_exec_range){weight->offset, weight->elements}, err);
        }
    }
    return SP_OK;
}

static sp_status sum_replicas(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_error *err)
{
    if (!sp_i_exec_shards_gradients(run)) {
        return sum(run, rank, rank->data_group, (sp_i_exec_range){0, rank->weights->elements}, err);
    }
    sp_i_exec_scatter_end(sp_i_exec_replicas_of(run, rank), sp_i_exec_replica(run, rank));
    sp_status status = sp_comm_barrier(rank->links.me, rank->data_group, err);
    sp_i_exec_scatter_wait(sp_i_exec_replicas_of(run, rank));
    return status;
}

// Sums gradients over the ranks with the same parameters.
static sp_status reduce(const sp_i_exec_run *run, const sp_i_exec_rank *rank, sp_error *err)
{
    sp_status status = sum_replicas(run, rank, err);
    status = status == SP_OK ? sum_shared(run, rank, err) : status;
    return status == SP_OK ? sum_tied(run, rank, err) : status;
}

// ---- The epilogue of a step ----

typedef struct epilogue {
    sp_i_exec_run *run;
    const sp_timeline *spans; // of the actions before
} epilogue;

// The part of a tensor that lies in the rank's share.
static void update_tensor(const sp_i_exec_run *run, const sp_i_exec_rank *rank,
                          const sp_i_exec_weight *weight, double gradient_scale)
{
    const sp_i_exec_range own = sp_i_exec_overlap(
        (sp_i_exec_range){weight->offset, weight->elements}, rank->share_begin, rank->share_end);
    const int64_t from = own.begin;
    const sp_i_exec_update update = {.step = run->steps_done + 1,
                                     .learning_rate = run->options.learning_rate,
                                     .weight_decay =
                                         weight->decays ? run->options.weight_decay : 0.0,
                                     .gradient_scale = gradient_scale};
    if (own.count > 0) {
        int64_t in_share = (from - rank->share_begin) * run->math->exact_bytes;
        run->math->update(&update, own.count, sp_i_exec_gradient_at(run, rank, from),
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
    int64_t *shares = sp_calloc((size_t)count, sizeof *shares);
    for (int i = 0; i < count; i++) {
        const sp_i_exec_rank *other = sp_i_exec_rank_at(run, i / layout->cp, rank->pp,
                                                        i % layout->cp * layout->tp + rank->tp);
        shares[i] = other->share_end - other->share_begin;
    }
    sp_status status = sp_comm_all_gather(
        rank->links.me, rank->data_group, sp_i_exec_value_element(run),
        sp_i_exec_value_at(run, rank, rank->share_begin), rank->values, shares, 1, err);
    sp_free(shares);
    return status;
}

static int64_t last_end_ns(const sp_timeline *timeline, const sp_i_exec_run *run,
                           const sp_i_exec_rank *rank)
{
    const sp_rank_timeline *line =
        &timeline->ranks[rank->dp * sp_i_exec_layout(run)->pp + rank->pp];
    return sp_rank_last_ns(line);
}

static sp_status end_step(sp_comm *me, void *data, sp_error *err)
{
    const epilogue *t = data;
    sp_i_exec_run *run = t->run;
    sp_i_exec_rank *rank = &run->ranks[sp_comm_rank(me)];
    sp_rank_timeline *of = &run->epilogues[sp_comm_rank(me)];
    sp_comm_set_action(me, "optimizer");
    sp_comm_clock_start(me, last_end_ns(t->spans, run, rank));
    sp_status status = rank->data_group < 0 ? SP_OK : sp_comm_barrier(me, rank->data_group, err);
    uint64_t reduce_start = sp_i_exec_timestamp(run, rank);
    double gradient_scale = 1.0;
    status = status == SP_OK ? reduce(run, rank, err) : status;
    status = status == SP_OK ? clip_scale(run, rank, &gradient_scale, err) : status;
    uint64_t reduce_end = sp_i_exec_timestamp(run, rank);
    for (size_t w = 0; status == SP_OK && w < rank->weights->count; w++) {
        update_tensor(run, rank, &rank->weights->items[w], gradient_scale);
    }
    uint64_t optimizer_end = sp_i_exec_timestamp(run, rank);
    status = status == SP_OK ? gather_parameters(run, rank, err) : status;
    uint64_t gather_end = sp_i_exec_timestamp(run, rank);
    status = status == SP_OK ? sp_i_exec_synchronize(run, NULL, err) : status;
    if (status == SP_OK) {
        of->reduce_start_ns = sp_i_exec_timestamp_ns(run, reduce_start);
        of->reduce_end_ns = sp_i_exec_timestamp_ns(run, reduce_end);
        of->optimizer_end_ns = sp_i_exec_timestamp_ns(run, optimizer_end);
        of->gather_end_ns = sp_i_exec_timestamp_ns(run, gather_end);
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
        const sp_rank_timeline *of =
            &run->epilogues[sp_i_exec_rank_number(run, line->dp, line->pp, m)];
        line->reduce_start_ns = later(line->reduce_start_ns, of->reduce_start_ns);
        line->reduce_end_ns = later(line->reduce_end_ns, of->reduce_end_ns);
        line->optimizer_end_ns = later(line->optimizer_end_ns, of->optimizer_end_ns);
        line->gather_end_ns = later(line->gather_end_ns, of->gather_end_ns);
    }
}

void sp_i_exec_fill_epilogues(const sp_i_exec_run *run, sp_timeline *timeline)
{
    for (size_t r = 0; r < timeline->rank_count; r++) {
        fill_line(run, &timeline->ranks[r]);
    }
}

sp_status sp_i_exec_run_epilogue(sp_i_exec_run *run, sp_timeline *timeline, sp_error *err)
{
    size_t count = sp_i_exec_rank_count(run);
    epilogue t = {.run = run, .spans = timeline};
    int *ranks = sp_calloc(count, sizeof *ranks);
    sp_status status = ranks != NULL ? SP_OK : sp_error_no_memory(err, "the end of a step");
    for (size_t r = 0; status == SP_OK && r < count; r++) {
        ranks[r] = (int)r;
    }
    if (status == SP_OK) {
        status = sp_i_exec_on_ranks(run, ranks, (int)count, end_step, &t, err);
    }
    if (status == SP_OK && run->transport == NULL) {
        sp_i_exec_fill_epilogues(run, timeline);
    }
    run->steps_done++;
    sp_free(ranks);
    return status;
}
