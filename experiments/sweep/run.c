#include "experiments/sweep/run.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/sweep/line.h"
#include "experiments/sweep/results_file.h"
#include "sim/base/alloc.h"
#include "sim/base/parallel.h"
#include "sim/base/progress.h"

// Blocks of one thread that are made and not yet written. Points of sweep_layouts.json take 15 us
// to 5 ms, and whatever is ready waits for the slow ones before it.
enum { BLOCKS_AHEAD = 8, MOST_TOGETHER = SWEEP_WINDOW / BLOCKS_AHEAD };

static const double block_s = 0.02; // of one block, beside which handing it out is nothing

// Blocks that each worker would get of the points that are left: all end at the same time.
enum { SHARES_OF_REST = 4 };

// Points that a thread takes at once.
typedef struct swept_block {
    int count;
    bool cut;       // the points behind `count` were stopped
    sweep_row *row; // owned
} swept_block;

typedef struct runner {
    const sweep_spec *spec;
    const sweep_run_options *options;
    sweep_summary *summary;
    sweep_file file;
    sweep_evaluator evaluator;
    sweep_choice choice;
    int64_t made;        // points that are in blocks
    bool cut;            // a block was, so that no later line has its place
    atomic_int together; // points of a block that takes block_s
    sp_progress progress;
} runner;

// The next of the points that are known, or, in a search that knows all before, of more.
static sp_status next_combination(runner *run, int64_t *combination, bool *found, sp_error *err)
{
    sp_status status = sweep_choice_next(&run->choice, combination, found, err);
    if (status == SP_OK && !*found && run->summary->written == run->choice.chosen_count) {
        status = sweep_choice_extend(&run->choice, run->summary, err);
        if (status == SP_OK) {
            status = sweep_choice_next(&run->choice, combination, found, err);
        }
    }
    return status;
}

// ---- lines of an earlier run ----

static sp_status read_line(void *context, const char *line, size_t bytes, long number,
                           sp_error *err)
{
    runner *run = context;
    int64_t combination = 0;
    bool found = false;
    sweep_digest digest;
    sp_status status = next_combination(run, &combination, &found, err);
    if (status != SP_OK) {
        return status;
    }
    const sweep_line_at at = {.path = run->file.path, .number = number};
    status = found ? sweep_line_read(run->spec, combination, line, bytes, &at, &digest, err)
                   : sweep_line_of_other(run->spec, &at, "is past the last point", err);
    return status == SP_OK ? sweep_summary_add(run->summary, combination, &digest, err) : status;
}

static sp_status read_back(runner *run, sp_error *err)
{
    sp_status status = sweep_file_read(&run->file, read_line, run, err);
    run->summary->resumed = run->summary->written;
    return status;
}

// ---- points ----

static int points_together(runner *run)
{
    int64_t known = run->choice.chosen != NULL ? run->choice.chosen_count : run->summary->points;
    int64_t share = (known - run->made) / run->options->threads / SHARES_OF_REST;
    int together = atomic_load(&run->together);
    return share < 1 ? 1 : share < together ? (int)share : together;
}

static sp_status next_block(void *context, void *item, bool *more, sp_error *err)
{
    runner *run = context;
    swept_block *block = item;
    int most = points_together(run);
    block->row = sp_calloc((size_t)most, sizeof *block->row);
    sp_status status = block->row != NULL ? SP_OK : sp_error_no_memory(err, "points");
    *more = true;
    while (status == SP_OK && *more && block->count < most) {
        status = sweep_choice_next(&run->choice, &block->row[block->count].combination, more, err);
        block->count += status == SP_OK && *more;
    }
    run->made += block->count;
    *more = block->count > 0;
    if (!*more || status != SP_OK) {
        sp_free(block->row);
    }
    return status;
}

static void learn_speed(runner *run, const swept_block *block, double seconds)
{
    int together = atomic_load(&run->together);
    double fit = seconds > 0.0 ? (double)block->count * block_s / seconds : MOST_TOGETHER;
    int most = 2 * together < MOST_TOGETHER ? 2 * together : MOST_TOGETHER;
    atomic_store(&run->together, fit < 1.0 ? 1 : fit < most ? (int)fit : most);
}

static sp_status evaluate_block(void *context, int worker, void *item, sp_error *err)
{
    runner *run = context;
    swept_block *block = item;
    sp_status status = SP_OK;
    double started_s = sp_clock_s();
    for (int i = 0; status == SP_OK && i < block->count; i++) {
        status = sweep_row_evaluate(&run->evaluator, worker, &block->row[i], err);
        if (status == SP_ERR_STOPPED) {
            block->count = i;
            block->cut = true;
        }
    }
    if (block->cut) {
        sp_error_clear(err);
        return SP_OK;
    }
    learn_speed(run, block, sp_clock_s() - started_s);
    return status;
}

static sp_status write_block(void *context, void *item, sp_error *err)
{
    runner *run = context;
    const swept_block *block = item;
    sp_status status = SP_OK;
    if (run->cut) {
        return SP_OK; // a point before it is missing
    }
    run->cut = block->cut;
    for (int i = 0; status == SP_OK && i < block->count; i++) {
        const sweep_row *row = &block->row[i];
        status = sweep_file_append(&run->file, row->line, strlen(row->line), err);
        if (status == SP_OK) {
            status = sweep_summary_add(run->summary, row->combination, &row->digest, err);
        }
    }
    sp_progress_update(&run->progress, run->summary->written - run->summary->resumed);
    return status;
}

static void drop_block(void *item)
{
    swept_block *block = item;
    for (int i = 0; i < block->count; i++) {
        free(block->row[i].line);
    }
    sp_free(block->row);
}

static bool stops(void *context)
{
    const runner *run = context;
    run->summary->stopped = run->cut || sp_stop_requested();
    return run->summary->stopped;
}

static sp_status run_points(runner *run, sp_error *err)
{
    const sp_ordered how = {.threads = run->options->threads,
                            .ahead = run->options->threads * BLOCKS_AHEAD,
                            .item_bytes = sizeof(swept_block),
                            .context = run,
                            .make = next_block,
                            .work = evaluate_block,
                            .take = write_block,
                            .drop = drop_block,
                            .stops = stops};
    run->made = run->summary->resumed;
    atomic_init(&run->together, 1);
    sp_progress_begin(&run->progress, "sweeping", run->summary->points - run->summary->resumed,
                      run->options->quiet);
    sp_status status = SP_OK;
    int64_t chosen = -1;
    while (status == SP_OK && !run->summary->stopped && run->choice.chosen_count > chosen) {
        chosen = run->choice.chosen_count;
        status = sp_ordered_run(&how, err);
        run->summary->stopped = run->summary->stopped || run->cut;
        if (status == SP_OK && !run->summary->stopped) {
            status = sweep_choice_extend(&run->choice, run->summary, err);
        }
    }
    sp_progress_end(&run->progress);
    return status;
}

// Points that are not chosen are walked, those of all shards.
static sp_status check_count(const sweep_spec *spec, const sweep_choice *choice, sp_error *err)
{
    return choice->chosen != NULL || choice->in_grid <= SWEEP_MOST_POINTS
               ? SP_OK
               : sp_error_in(err, SP_ERR_LIMIT, spec->source, "grid",
                             "%lld points are more than the %d that are evaluated; --sample N "
                             "draws some, --search N looks for the best",
                             (long long)choice->in_grid, (int)SWEEP_MOST_POINTS);
}

sp_status sweep_run(const sweep_spec *spec, const char *path, const sweep_run_options *options,
                    sweep_summary *summary, sp_error *err)
{
    runner run = {.spec = spec, .options = options, .summary = summary, .file = {.fd = -1}};
    sp_status status = sweep_choice_begin(&run.choice, spec, &options->choice, err);
    summary->points = run.choice.points;
    if (status == SP_OK) {
        status = check_count(spec, &run.choice, err);
    }
    if (options->choice.search > 0 && !summary->options.front) {
        summary->options.front = true;
        summary->options.x = SWEEP_TOKENS_PER_S;
        summary->options.y = SWEEP_PEAK_MEMORY_GIB;
    }
    if (status == SP_OK) {
        status = sweep_evaluator_init(&run.evaluator, spec, options->threads, err);
    }
    if (status == SP_OK) {
        const char *advice = "go on with it by --resume, or remove it";
        status = sweep_file_open(&run.file, path, options->resume ? NULL : advice, err);
    }
    if (status == SP_OK) {
        status = read_back(&run, err);
    }
    if (status == SP_OK && summary->written < summary->points) {
        status = run_points(&run, err);
    }
    sp_status closed = sweep_file_close(&run.file, err);
    sweep_evaluator_fini(&run.evaluator);
    sweep_choice_end(&run.choice);
    return status != SP_OK ? status : closed;
}
