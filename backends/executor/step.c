#include "backends/executor/run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/files.h"

// ---- Ranks in processes of their own ----

// ---- what a rank noted in a step ----

// Behind it stand the losses of a rank with the head, the logs of actions and those of shares.
typedef struct record {
    size_t logged, shares_logged;
    sp_bytes held;
    sp_rank_timeline epilogue; // without tables
} record;

static size_t losses_of(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    int last = run->depends.rank_of[sp_i_exec_vstages(run) - 1];
    return rank->pp == last ? run->request->plan->packing->forward.count : 0;
}

static double *loss_of(const sp_i_exec_run *run, const sp_i_exec_rank *rank)
{
    size_t packs = run->request->plan->packing->forward.count;
    return run->loss + (size_t)sp_i_exec_pipeline(run, rank) * packs;
}

static size_t record_bytes(const sp_i_exec_run *run, const sp_i_exec_rank *rank, const record *r)
{
    return sizeof *r + losses_of(run, rank) * sizeof *run->loss +
           (r->logged + r->shares_logged) * sizeof *rank->log;
}

static char *put(char *at, const void *from, size_t bytes)
{
    if (bytes > 0) {
        memcpy(at, from, bytes);
    }
    return at + bytes;
}

static const char *get(const char *from, void *to, size_t bytes)
{
    if (bytes > 0) {
        memcpy(to, from, bytes);
    }
    return from + bytes;
}

static void *write_record(const sp_i_exec_run *run, const sp_i_exec_rank *rank, size_t *bytes)
{
    const record r = {.logged = rank->logged,
                      .shares_logged = rank->shares_logged,
                      .held = rank->held,
                      .epilogue = run->epilogues[rank - run->ranks]};
    *bytes = record_bytes(run, rank, &r);
    char *made = sp_malloc(*bytes);
    char *next = put(made, &r, sizeof r);
    next = put(next, loss_of(run, rank), losses_of(run, rank) * sizeof *run->loss);
    next = put(next, rank->log, r.logged * sizeof *rank->log);
    put(next, rank->share_log, r.shares_logged * sizeof *rank->share_log);
    return made;
}

static sp_status read_record(sp_i_exec_run *run, sp_i_exec_rank *rank,
                             const sp_transport_part *part, sp_error *err)
{
    size_t shares;
    record r = {0};
    sp_shares_of(&run->shares, sp_i_exec_layout(run), rank->dp, rank->pp, &shares);
    bool whole = part->bytes >= sizeof r;
    if (whole) {
        memcpy(&r, part->data, sizeof r);
    }
    if (!whole || r.logged != sp_plan_stage(run->request->plan, rank->dp, rank->pp)->count ||
        r.shares_logged > shares || part->bytes != record_bytes(run, rank, &r)) {
        return sp_error_set(err, SP_ERR_INTERNAL,
                            "dp %d pp %d cp %d tp %d noted %zu bytes in a step, which cannot be",
                            rank->dp, rank->pp, rank->cp, rank->tp, part->bytes);
    }
    rank->logged = r.logged;
    rank->shares_logged = r.shares_logged;
    rank->held = r.held;
    run->epilogues[rank - run->ranks] = r.epilogue;
    const char *from = (const char *)part->data + sizeof r;
    from = get(from, loss_of(run, rank), losses_of(run, rank) * sizeof *run->loss);
    from = get(from, rank->log, r.logged * sizeof *rank->log);
    get(from, rank->share_log, r.shares_logged * sizeof *rank->share_log);
    return SP_OK;
}

static sp_status share_step(sp_comm *me, void *data, sp_error *err)
{
    sp_i_exec_run *run = data;
    size_t ranks = sp_i_exec_rank_count(run);
    size_t bytes;
    void *mine = write_record(run, sp_i_exec_local_rank(run), &bytes);
    sp_transport_part *parts = sp_calloc(ranks, sizeof *parts);
    sp_comm_set_action(me, "results");
    sp_status status = run->transport->ops->exchange(run->transport, mine, bytes, parts, err);
    for (size_t r = 0; status == SP_OK && r < ranks; r++) {
        status = read_record(run, &run->ranks[r], &parts[r], err);
    }
    for (size_t r = 0; r < ranks; r++) {
        sp_free(parts[r].data);
    }
    sp_free(parts);
    sp_free(mine);
    return status;
}

// ---- Clocks ----

// Times of ranks in processes of their own. Each rank's stamps count from its own begin of the step
// behind a barrier of all ranks: that sets the clocks of different devices, as exactly as ranks
// leave a barrier together, and they may drift from there. What one rank sends another cannot have
// read before: where the times say so, the reader's clock is slow, and it is put forward from that
// action on. Nothing else is changed, so every action takes as long as it took.

typedef struct rank_clock {
    sp_i_exec_rank *rank; // the one that stands for the others of its (dp, pp)
    const sp_stage_plan *stage;
    const sp_share *shares;
    size_t share_count;
    size_t done, shares_done, shares_logged;
    int64_t forward_ns; // how far its clock is put forward
} rank_clock;

static void move(sp_i_exec_log *log, int64_t ns)
{
    log->start_ns += ns;
    log->end_ns += ns;
}

static void move_shares(rank_clock *l, size_t place)
{
    for (; l->shares_done < l->share_count && l->shares[l->shares_done].before <= place;
         l->shares_done++) {
        if (!l->shares[l->shares_done].own) {
            move(&l->rank->share_log[l->shares_logged++], l->forward_ns);
        }
    }
}

typedef struct end_times {
    const sp_depends *depends;
    int64_t *end_ns[2]; // of F; of B or I
} end_times;

static int64_t *end_of(const end_times *e, const sp_plan_place *place)
{
    int vstage = sp_depends_vstage(e->depends, place->pp, place->action);
    return &e->end_ns[sp_action_is_backward(place->action)]
                     [sp_depends_entry(e->depends, place->action, place->dp, vstage)];
}

// Both of a pair are over when the second is.
static void note_end(const end_times *e, const rank_clock *l, size_t action, int64_t end_ns)
{
    sp_plan_place place = {
        .dp = l->rank->dp, .pp = l->rank->pp, .action = l->stage->actions[action]};
    if (sp_depends_passes(place.action)) {
        *end_of(e, &place) = end_ns;
    }
}

// False where what the next action reads is not yet known.
static bool move_action(const end_times *e, rank_clock *l)
{
    sp_i_exec_log *log = &l->rank->log[l->done];
    const sp_plan_place place = {
        .dp = l->rank->dp, .pp = l->rank->pp, .action = l->stage->actions[l->done]};
    sp_plan_place from;
    int64_t sent_ns = INT64_MIN;
    if (sp_depends_from(e->depends, &place, &from)) {
        sent_ns = *end_of(e, &from);
        if (sent_ns == SP_NOT_YET) {
            return false;
        }
    }
    move_shares(l, l->done);
    if (log->start_ns + l->forward_ns < sent_ns) {
        l->forward_ns = sent_ns - log->start_ns;
    }
    move(log, l->forward_ns);
    if (!place.action.with_next) {
        note_end(e, l, l->done, log->end_ns);
    }
    if (l->done > 0 && l->stage->actions[l->done - 1].with_next) {
        note_end(e, l, l->done - 1, log->end_ns);
    }
    l->done++;
    return true;
}

static void move_epilogues(sp_i_exec_run *run, const rank_clock *l)
{
    for (int m = 0; m < sp_i_exec_members(run); m++) {
        sp_rank_timeline *epilogue =
            &run->epilogues[sp_i_exec_rank_number(run, l->rank->dp, l->rank->pp, m)];
        epilogue->reduce_start_ns += l->forward_ns;
        epilogue->reduce_end_ns += l->forward_ns;
        epilogue->optimizer_end_ns += l->forward_ns;
        epilogue->gather_end_ns += l->forward_ns;
    }
}

static void make_clocks(const sp_i_exec_run *run, rank_clock *clocks)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    for (int i = 0; i < layout->dp * layout->pp; i++) {
        int dp = i / layout->pp;
        int pp = i % layout->pp;
        clocks[i].rank = sp_i_exec_rank_at(run, dp, pp, 0);
        clocks[i].stage = sp_plan_stage(run->request->plan, dp, pp);
        clocks[i].shares = sp_shares_of(&run->shares, layout, dp, pp, &clocks[i].share_count);
    }
}

// Goes from clock to clock until all are done. The plan ran, so this comes to an end.
static void set_clocks(sp_i_exec_run *run)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    size_t count = (size_t)layout->dp * (size_t)layout->pp;
    end_times e = {.depends = &run->depends,
                   .end_ns = {sp_depends_timestamps(&run->depends, 0),
                              sp_depends_timestamps(&run->depends, 1)}};
    rank_clock *clocks = sp_calloc(count, sizeof *clocks);
    make_clocks(run, clocks);
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < count; i++) {
            while (clocks[i].done < clocks[i].stage->count && move_action(&e, &clocks[i])) {
                moved = true;
            }
        }
    }
    for (size_t i = 0; i < count; i++) {
        SP_ASSERT(clocks[i].done == clocks[i].stage->count);
        move_shares(&clocks[i], clocks[i].stage->count);
        move_epilogues(run, &clocks[i]);
    }
    sp_free(e.end_ns[0]);
    sp_free(e.end_ns[1]);
    sp_free(clocks);
}

// ---- One step ----

// Tokens and targets of one run of positions. Padding gets a token but no target, and the last
// position of its slice, for which a position table has a row.
static void fill_run(const sp_i_exec_run *run, sp_i_exec_job *job, const sp_i_exec_slice *slice,
                     const sp_token_run *positions, int64_t at)
{
    int64_t id = job->ids[slice->sample];
    int64_t vocab = job->model->vocab;
    uint64_t seed = run->request->seed;
    int step = (int)run->steps_done;
    int64_t end = slice->begin + slice->tokens;
    for (int64_t i = 0; i < positions->tokens; i++, at++) {
        int64_t position = positions->begin + i;
        bool trained = position < end;
        job->position[at] = trained ? position : end - 1;
        job->token[at] = trained ? sp_i_exec_token(&run->text, seed, step, id, position, vocab) : 0;
        job->target[at] =
            trained ? sp_i_exec_token(&run->text, seed, step, id, position + 1, vocab) : -1;
    }
}

static void fill_tokens(const sp_i_exec_run *run, sp_i_exec_job *job)
{
    for (size_t s = 0; s < job->slices.count; s++) {
        const sp_i_exec_slice *slice = &job->slices.slice[s];
        sp_token_run runs[SP_ZIGZAG_RUNS];
        int64_t at = job->token_at[s];
        int count = slice->shard >= 0 ? sp_i_exec_shard_runs(slice, slice->shard, runs) : 0;
        for (int r = 0; r < count; r++) {
            fill_run(run, job, slice, &runs[r], at);
            at += runs[r].tokens;
        }
    }
}

static void forget_actions(const sp_i_exec_run *run, sp_i_exec_rank *rank)
{
    memset(rank->log, 0,
           sp_plan_stage(run->request->plan, rank->dp, rank->pp)->count * sizeof *rank->log);
    rank->logged = 0;
    rank->shares_logged = 0;
    rank->links.exchange_count = 0;
}

// Other ranks may add to the gradients of one: they must be zero before any begins.
static sp_status begin_rank(const sp_i_exec_run *run, sp_i_exec_rank *rank, sp_error *err)
{
    const sp_runtime_ops *ops = run->runtime->ops;
    sp_i_exec_enter(run, rank);
    ops->zero(run->runtime, rank->states.gradients,
              rank->states.held_gradients.count * run->math->exact_bytes);
    for (int c = 0; c < sp_i_exec_layout(run)->chunks; c++) {
        ops->zero(run->runtime, sp_i_exec_stage_of(run, rank, c)->loss,
                  (int64_t)(rank->job->slices.forward_count * sizeof(double)));
    }
    forget_actions(run, rank);
    return sp_i_exec_synchronize_rank(run, rank, err);
}

static sp_status begin_step(sp_i_exec_run *run, sp_error *err)
{
    const sp_layout *layout = sp_i_exec_layout(run);
    sp_status status = SP_OK;
    uint64_t dropout_seed = sp_i_exec_draw(sp_i_exec_draw_name(run->request->seed, "dropout"),
                                           (uint64_t)run->steps_done);
    for (int j = 0; j < layout->dp * sp_i_exec_members(run); j++) {
        if (run->transport == NULL || &run->jobs[j] == sp_i_exec_local_rank(run)->job) {
            fill_tokens(run, &run->jobs[j]);
            sp_i_exec_pack_numbers(&run->jobs[j]);
        }
        run->jobs[j].dropout_seed = dropout_seed;
    }
    for (int i = 0; run->replicas != NULL && i < layout->pp * layout->tp; i++) {
        sp_i_exec_scatter_begin(&run->replicas[i]);
    }
    for (size_t r = run->first_local; status == SP_OK && r < run->end_local; r++) {
        status = begin_rank(run, &run->ranks[r], err);
    }
    return status;
}

// Nothing may still run when the time is over; steps follow one another.
static sp_status check_timeout(const sp_i_exec_run *run, const sp_timeline *timeline, sp_error *err)
{
    int64_t limit_ns = run->request->timeout_ns - run->elapsed_ns;
    for (size_t r = 0; run->request->timeout_ns > 0 && r < timeline->rank_count; r++) {
        const sp_rank_timeline *rank = &timeline->ranks[r];
        for (size_t i = 0; i < rank->count; i++) {
            if (rank->spans[i].end_ns > limit_ns) {
                sp_plan_place place = {rank->dp, rank->pp, rank->spans[i].action};
                return sp_error_at_action(err, SP_ERR_LIMIT, run->request->plan, &place,
                                          "it is not done at the timeout of %lld ns",
                                          (long long)run->request->timeout_ns);
            }
        }
    }
    return SP_OK;
}

static sp_status check_drained(const sp_i_exec_run *run, sp_error *err)
{
    for (size_t r = run->first_local; r < run->end_local; r++) {
        sp_i_exec_rank *rank = &run->ranks[r];
        sp_i_exec_offload_end(rank);
        int64_t expected = 4 + (rank->states.masters != NULL) + (rank->states.cosine != NULL) +
                           (rank->states.sine != NULL);
        if (sp_i_exec_blocks(rank->arena) != expected) {
            return sp_error_set(err, SP_ERR_INTERNAL,
                                "dp %d pp %d cp %d tp %d: %lld blocks remain after the step",
                                rank->dp, rank->pp, rank->cp, rank->tp,
                                (long long)(sp_i_exec_blocks(rank->arena) - expected));
        }
    }
    if (sp_i_exec_p2p_in_flight(&run->p2p) != 0) {
        return sp_error_set(err, SP_ERR_INTERNAL, "%lld hidden states were sent but not read",
                            (long long)sp_i_exec_p2p_in_flight(&run->p2p));
    }
    return SP_OK;
}

// Notes what a rank holds when the step is over, and the loss of one with the head.
static sp_status end_rank(const sp_i_exec_run *run, sp_i_exec_rank *rank, sp_error *err)
{
    size_t packs = run->request->plan->packing->forward.count;
    size_t last = sp_i_exec_vstages(run) - 1;
    rank->held = sp_i_exec_rank_held(run, rank);
    if (rank->pp != run->depends.rank_of[last]) {
        return SP_OK;
    }
    sp_i_exec_enter(run, rank);
    run->runtime->ops->download(run->runtime,
                                run->loss + (size_t)sp_i_exec_pipeline(run, rank) * packs,
                                sp_i_exec_stage_of(run, rank, run->depends.chunk_of[last])->loss,
                                (int64_t)(packs * sizeof *run->loss));
    return sp_i_exec_synchronize_rank(run, rank, err);
}

static sp_status end_ranks(const sp_i_exec_run *run, sp_error *err)
{
    for (size_t r = run->first_local; r < run->end_local; r++) {
        SP_TRY(end_rank(run, &run->ranks[r], err));
    }
    return SP_OK;
}

// Over the packs and their ranks in order, so that the sum does not depend on who ran when.
static double sum_loss(const sp_i_exec_run *run)
{
    const sp_pack_list *packs = &run->request->plan->packing->forward;
    int members = sp_i_exec_members(run);
    double sum = 0.0;
    for (size_t p = 0; p < packs->count; p++) {
        const sp_pack *pack = &packs->packs[p];
        for (int i = pack->dp_first * members; i < (pack->dp_first + pack->dp_count) * members;
             i++) {
            sum += run->loss[(size_t)i * packs->count + p];
        }
    }
    return sum;
}

// Makes one timeline of what all ranks noted, the same in every process.
static sp_status merge_step(sp_i_exec_run *run, sp_timeline *timeline, sp_error *err)
{
    SP_TRY(sp_i_exec_on_ranks(run, &run->transport->rank, 1, share_step, run, err));
    set_clocks(run);
    sp_i_exec_fill_spans(run, timeline);
    sp_i_exec_fill_epilogues(run, timeline);
    return check_timeout(run, timeline, err);
}

sp_status sp_i_exec_run_step(sp_i_exec_run *run, sp_measured_step *step, sp_error *err)
{
    bool multi_process = run->transport != NULL;
    sp_status status = begin_step(run, err);
    if (status == SP_OK) {
        sp_timeline_init(&step->timeline, run->request->plan);
        status = sp_i_exec_run_actions(run, &step->timeline, err);
    }
    status = status == SP_OK && !multi_process ? check_timeout(run, &step->timeline, err) : status;
    status = status == SP_OK ? check_drained(run, err) : status;
    status = status == SP_OK ? sp_i_exec_run_epilogue(run, &step->timeline, err) : status;
    status = status == SP_OK ? end_ranks(run, err) : status;
    SP_TRY(status == SP_OK && multi_process ? merge_step(run, &step->timeline, err) : status);
    sp_timeline_finish(&step->timeline);
    run->elapsed_ns += step->timeline.iteration_ns;
    step->has_loss = run->jobs[0].slices.trained > 0;
    step->loss = sum_loss(run);
    step->learning_rate = sp_i_exec_learning_rate(&run->options, run->steps_done);
    sp_i_exec_fill_memory(run, step);
    return SP_OK;
}

// ---- Tokens of samples ----

enum { PIECE = 1 << 16 };

static sp_status read_all(FILE *file, const char *path, sp_i_exec_text *text, sp_error *err)
{
    size_t capacity = 0;
    size_t got = 1;
    while (got > 0) {
        SP_RESERVE(text->bytes, capacity, text->count + PIECE);
        got = fread(text->bytes + text->count, 1, PIECE, file);
        text->count += got;
    }
    return ferror(file) ? sp_error_system(err, path, errno) : SP_OK;
}

static sp_status check_bytes(const sp_i_exec_text *text, const char *path, int64_t vocab,
                             sp_error *err)
{
    for (size_t i = 0; i < text->count; i++) {
        if (text->bytes[i] >= vocab) {
            return sp_error_set(err, SP_ERR_CONTENT,
                                "%s: byte %zu is %d, but the vocabulary has %lld tokens", path, i,
                                (int)text->bytes[i], (long long)vocab);
        }
    }
    return text->count > 0 ? SP_OK : sp_error_set(err, SP_ERR_CONTENT, "%s: no text", path);
}

sp_status sp_i_exec_text_read(const char *path, int64_t vocab, sp_i_exec_text *text, sp_error *err)
{
    *text = (sp_i_exec_text){0};
    FILE *file;
    SP_TRY(sp_input_open(path, &file, err));
    sp_status status = read_all(file, path, text, err);
    fclose(file);
    status = status == SP_OK ? check_bytes(text, path, vocab, err) : status;
    if (status != SP_OK) {
        sp_i_exec_text_fini(text);
    }
    return status;
}

void sp_i_exec_text_fini(sp_i_exec_text *text)
{
    sp_free(text->bytes);
    *text = (sp_i_exec_text){0};
}

int64_t sp_i_exec_token(const sp_i_exec_text *text, uint64_t seed, int step, int64_t id,
                        int64_t position, int64_t vocab)
{
    uint64_t of_step = sp_i_exec_draw(sp_i_exec_draw_name(seed, "tokens"), (uint64_t)step);
    uint64_t of_sample = sp_i_exec_draw(of_step, (uint64_t)id);
    if (text->bytes != NULL) {
        uint64_t start = of_sample % text->count;
        return text->bytes[(start + (uint64_t)position) % text->count];
    }
    return (int64_t)(sp_i_exec_draw(of_sample, (uint64_t)position) % (uint64_t)vocab);
}
