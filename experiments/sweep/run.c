#include "experiments/sweep/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/base/alloc.h"
#include "sim/base/files.h"
#include "sim/base/parallel.h"
#include "sim/base/progress.h"

static const double sync_every_s = 1.0;

enum {
    GENERATION = 64, // points of a search between two looks at the front
    FIRST_SHARE = 4, // of a search's points one in so many is drawn at random first, at most ...
    FIRST_MOST = 1024,
    TRIES = 20000, // for the children of a generation
    MOST_CHANGES = 3,
};

// ---- points: what is chosen at the beginning ----

static sp_status draw(sweep_choice *choice, int64_t count, int64_t room, sp_error *err)
{
    choice->chosen = sp_calloc((size_t)room + 1, sizeof *choice->chosen);
    choice->chosen_count = count < choice->in_grid ? count : choice->in_grid;
    return sweep_spec_draw(choice->spec, choice->in_grid, choice->chosen_count, &choice->prng,
                           choice->chosen, err);
}

static sp_status begin_search(sweep_choice *choice, sp_error *err)
{
    int64_t first = (choice->points + FIRST_SHARE - 1) / FIRST_SHARE;
    sp_status status = draw(choice, first < FIRST_MOST ? first : FIRST_MOST, choice->points, err);
    choice->sorted = sp_calloc((size_t)choice->points + 1, sizeof *choice->sorted);
    memcpy(choice->sorted, choice->chosen, (size_t)choice->chosen_count * sizeof *choice->sorted);
    return status;
}

sp_status sweep_choice_begin(sweep_choice *choice, const sweep_spec *spec,
                             const sweep_choice_options *options, sp_error *err)
{
    *choice = (sweep_choice){.spec = spec, .options = *options};
    int64_t wanted = options->search > 0 ? options->search : options->sample;
    sweep_cursor_begin(&choice->cursor, spec);
    sp_prng_seed(&choice->prng, (uint64_t)options->seed);
    sp_status status = sweep_spec_count(spec, &choice->in_grid, err);
    choice->points = wanted > 0 && wanted < choice->in_grid ? wanted : choice->in_grid;
    if (status == SP_OK && choice->in_grid == 0) {
        return sp_error_in(err, SP_ERR_CONTENT, spec->source, "where",
                           "holds for none of the %lld combinations",
                           (long long)spec->combinations);
    }
    if (status == SP_OK && options->search > 0) {
        status = begin_search(choice, err);
    } else if (status == SP_OK && options->sample > 0) {
        status = draw(choice, choice->points, choice->points, err);
    }
    if (options->shards > 1) {
        choice->points = (choice->points - options->shard + options->shards) / options->shards;
    }
    return status;
}

void sweep_choice_end(sweep_choice *choice)
{
    sp_free(choice->chosen);
    sp_free(choice->sorted);
    *choice = (sweep_choice){0};
}

// ---- points: the walk ----

static sp_status next_of_all(sweep_choice *choice, int64_t *combination, bool *found, sp_error *err)
{
    if (choice->chosen != NULL) {
        *found = choice->passed < choice->chosen_count;
        *combination = *found ? choice->chosen[choice->passed] : -1;
        return SP_OK;
    }
    sp_status status = sweep_cursor_next(&choice->cursor, found, err);
    *combination = choice->cursor.combination;
    return status;
}

sp_status sweep_choice_next(sweep_choice *choice, int64_t *combination, bool *found, sp_error *err)
{
    int64_t shards = choice->options.shards;
    bool own = false;
    sp_status status = SP_OK;
    *found = true;
    while (status == SP_OK && *found && !own) {
        status = next_of_all(choice, combination, found, err);
        own = shards <= 1 || choice->passed % shards == choice->options.shard - 1;
        choice->passed += status == SP_OK && *found;
    }
    return status;
}

// ---- points: the search ----

// Puts a combination among the sorted ones; false where it is there.
static bool insert(sweep_choice *choice, int64_t combination)
{
    int64_t low = 0;
    int64_t high = choice->chosen_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (choice->sorted[middle] < combination) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < choice->chosen_count && choice->sorted[low] == combination) {
        return false;
    }
    memmove(&choice->sorted[low + 1], &choice->sorted[low],
            (size_t)(choice->chosen_count - low) * sizeof *choice->sorted);
    choice->sorted[low] = combination;
    choice->chosen[choice->chosen_count++] = combination;
    return true;
}

static void change(sweep_choice *choice, int64_t digit[SWEEP_AXES])
{
    const sweep_spec *spec = choice->spec;
    int a = (int)sp_prng_below(&choice->prng, (uint64_t)spec->axis_count);
    int64_t count = spec->axes[a].count;
    // Neighbours are tried as often as values anywhere on the axis.
    if (sp_prng_below(&choice->prng, 2) == 0) {
        digit[a] = (int64_t)sp_prng_below(&choice->prng, (uint64_t)count);
    } else {
        int64_t to = digit[a] + (sp_prng_below(&choice->prng, 2) == 0 ? 1 : -1);
        digit[a] = to >= 0 && to < count ? to : digit[a];
    }
}

static void make_child(sweep_choice *choice, const sweep_summary *summary,
                       int64_t digit[SWEEP_AXES])
{
    uint64_t parents = (uint64_t)summary->front_count;
    int64_t other[SWEEP_AXES];
    sweep_spec_digits(choice->spec,
                      summary->front[sp_prng_below(&choice->prng, parents)].combination, digit);
    if (sp_prng_below(&choice->prng, 3) == 0) {
        sweep_spec_digits(choice->spec,
                          summary->front[sp_prng_below(&choice->prng, parents)].combination, other);
        for (int a = 0; a < choice->spec->axis_count; a++) {
            digit[a] = sp_prng_below(&choice->prng, 2) == 0 ? other[a] : digit[a];
        }
    }
    for (int changes = 1 + (int)sp_prng_below(&choice->prng, MOST_CHANGES); changes > 0;
         changes--) {
        change(choice, digit);
    }
}

// Chooses points that are not chosen yet, with equal chance.
static sp_status draw_more(sweep_choice *choice, int64_t goal, sp_error *err)
{
    // Of so many different points enough are new.
    int64_t *drawn = sp_calloc((size_t)goal + 1, sizeof *drawn);
    sp_status status =
        sweep_spec_draw(choice->spec, choice->in_grid, goal, &choice->prng, drawn, err);
    for (int64_t left = goal; status == SP_OK && choice->chosen_count < goal; left--) {
        int64_t at = (int64_t)sp_prng_below(&choice->prng, (uint64_t)left);
        insert(choice, drawn[at]);
        drawn[at] = drawn[left - 1];
    }
    sp_free(drawn);
    return status;
}

sp_status sweep_choice_extend(sweep_choice *choice, const sweep_summary *summary, sp_error *err)
{
    int64_t before = choice->chosen_count;
    int64_t goal = before + GENERATION;
    goal = goal < choice->points ? goal : choice->points;
    sp_status status = SP_OK;
    bool breeds = choice->sorted != NULL && summary->front_count > 0;
    for (int t = 0; breeds && status == SP_OK && t < TRIES && choice->chosen_count < goal; t++) {
        int64_t digit[SWEEP_AXES];
        bool holds = true;
        make_child(choice, summary, digit);
        if (choice->spec->where != NULL) {
            status = sweep_where_holds(choice->spec->where, digit, &holds, err);
        }
        if (status == SP_OK && holds) {
            insert(choice, sweep_spec_combination(choice->spec, digit));
        }
    }
    // Where nothing fits yet, or all around the front is known, chance goes on.
    bool stuck = choice->sorted != NULL && choice->chosen_count == before && before < goal;
    int64_t further = before + before / FIRST_SHARE; // a draw looks at all that are chosen
    further = further < choice->points ? further : choice->points;
    return status == SP_OK && stuck ? draw_more(choice, goal > further ? goal : further, err)
                                    : status;
}

// ---- the results file: whole lines, kept through a kill ----

typedef struct results_file {
    const char *path; // not owned
    int fd;           // -1: not open
    FILE *in;         // that lines are read by, on the same descriptor; NULL: none
    bool regular;     // else a pipe or a device: nothing to lock, read or sync
    bool dirty;       // written since the last sync
    double synced_s;
} results_file;

static sp_status fail_by_errno(const results_file *file, sp_error *err)
{
    return sp_error_system(err, file->path, errno);
}

// Two sweeps on one file would mix their lines. The lock goes with the process, however it ends; a
// file system without locks is no reason to refuse.
static sp_status lock(const results_file *file, sp_error *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(file->fd, F_SETLK, &whole) == 0 || (errno != EACCES && errno != EAGAIN)) {
        return SP_OK;
    }
    return sp_error_set(err, SP_ERR_IO, "%s: another sweep is writing to it", file->path);
}

// Puts what was written onto the disk.
static sp_status sync_file(results_file *file, sp_error *err)
{
    if (file->dirty && file->regular && fsync(file->fd) != 0) {
        return fail_by_errno(file, err);
    }
    file->dirty = false;
    file->synced_s = sp_clock_s();
    return SP_OK;
}

// Does nothing with a file that is not open.
static sp_status close_file(results_file *file, sp_error *err)
{
    sp_status status = SP_OK;
    if (file->fd >= 0) {
        status = sync_file(file, err);
        // Closing any other descriptor of the file would give up its lock.
        int closed = file->in != NULL ? fclose(file->in) : close(file->fd);
        if (closed != 0 && status == SP_OK) {
            status = fail_by_errno(file, err);
        }
    }
    file->fd = -1;
    file->in = NULL;
    return status;
}

// SP_ERR_IO with the advice where a file is there that holds something.
static sp_status refuse_filled(const char *path, const char *advice, sp_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) {
        return SP_OK;
    }
    return sp_error_set(err, SP_ERR_IO, "%s: exists and holds %lld bytes (%s)", path,
                        (long long)info.st_size, advice);
}

// Opens or makes the file for this process alone. One that holds something is refused with the
// advice that is given; NULL: it is gone on with.
static sp_status open_file(results_file *file, const char *path, const char *advice, sp_error *err)
{
    *file = (results_file){.path = path};
    file->fd = open(path, O_RDWR | O_CREAT, 0666);
    if (file->fd < 0 && errno == EACCES) {
        // Some files can only be written to, such as another's terminal.
        file->fd = open(path, O_WRONLY);
    }
    struct stat info;
    if (file->fd < 0 || fstat(file->fd, &info) != 0) {
        sp_status status = fail_by_errno(file, err);
        close_file(file, NULL);
        return status;
    }
    file->regular = S_ISREG(info.st_mode);
    file->synced_s = sp_clock_s();
    sp_status status = file->regular ? lock(file, err) : SP_OK;
    if (status == SP_OK && advice != NULL) {
        status = refuse_filled(path, advice, err);
    }
    if (status != SP_OK) {
        close_file(file, NULL);
    }
    return status;
}

// A full disk takes a part of a line: it is cut off again.
static sp_status cut_off(results_file *file, size_t written, sp_error *err)
{
    sp_status status = fail_by_errno(file, err);
    off_t end = file->regular ? lseek(file->fd, 0, SEEK_CUR) : -1;
    if (end >= 0 && ftruncate(file->fd, end - (off_t)written) != 0) {
        status = fail_by_errno(file, err);
    }
    return status;
}

// Appends text that ends with a newline, and syncs where the last time is a second ago.
static sp_status append(results_file *file, const char *text, size_t bytes, sp_error *err)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t written = write(file->fd, text + done, bytes - done);
        if (written < 0 && errno != EINTR) {
            return cut_off(file, done, err);
        }
        done += written > 0 ? (size_t)written : 0;
        file->dirty = true;
    }
    return sp_clock_s() - file->synced_s < sync_every_s ? SP_OK : sync_file(file, err);
}

// ---- running ----

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
    results_file file;
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
    SP_TRY(sweep_choice_next(&run->choice, combination, found, err));
    if (!*found && run->summary->written == run->choice.chosen_count) {
        SP_TRY(sweep_choice_extend(&run->choice, run->summary, err));
        SP_TRY(sweep_choice_next(&run->choice, combination, found, err));
    }
    return SP_OK;
}

// ---- running: lines of an earlier run ----

// Points beyond the stack are evaluated in all of a file's lines, or in none.
static sp_status same_stack_rule(bool within_stack, const sweep_row *row,
                                 const sweep_line_place *place, sp_error *err)
{
    bool left = row->trial.status == SWEEP_CANNOT_RUN;
    bool beyond = row->trial.lacks[0] != '\0' && !left;
    return (within_stack && beyond) || (!within_stack && left)
               ? sp_error_at(
                     err, SP_ERR_CONTENT, place->path, place->number, 0,
                     "the file was written %s --any-schedule: ask so again, or write another",
                     beyond ? "with" : "without")
               : SP_OK;
}

static sp_status take_line(runner *run, const char *line, size_t bytes, long number, sp_error *err)
{
    int64_t combination = 0;
    bool found = false;
    SP_TRY(next_combination(run, &combination, &found, err));
    const sweep_line_place place = {.path = run->file.path, .number = number};
    sweep_row row = {.combination = combination};
    sp_status status = found
                           ? sweep_line_read(run->spec, line, bytes, &place, &row, err)
                           : sweep_line_of_other(run->spec, &place, "is past the last point", err);
    status =
        status == SP_OK ? same_stack_rule(run->options->within_stack, &row, &place, err) : status;
    status = status == SP_OK ? sweep_summary_add(run->summary, &row, err) : status;
    sweep_row_fini(&row);
    return status;
}

// Takes every whole line; *whole is the bytes of these.
static sp_status take_lines(runner *run, off_t *whole, sp_error *err)
{
    char *line = NULL;
    size_t room = 0;
    long number = 0;
    sp_status status = SP_OK;
    while (status == SP_OK) {
        errno = 0;
        ssize_t bytes = getline(&line, &room, run->file.in);
        if (bytes < 0 && ferror(run->file.in) != 0) {
            status = fail_by_errno(&run->file, err);
        } else if (bytes < 0 && errno == ENOMEM) { // of getline(), which is no end of the file
            status = sp_error_no_memory(err, "the results of a sweep");
        }
        if (bytes < 0 || line[bytes - 1] != '\n') {
            break;
        }
        status = take_line(run, line, (size_t)bytes - 1, ++number, err);
        *whole += bytes;
    }
    free(line);
    return status;
}

// A last line that was cut short by a kill is cut off the file; what is appended follows the last
// whole one.
static sp_status read_back(runner *run, sp_error *err)
{
    results_file *file = &run->file;
    off_t whole = 0;
    struct stat info;
    if (!file->regular) {
        return SP_OK;
    }
    file->in = fdopen(file->fd, "r");
    sp_status status = file->in != NULL ? take_lines(run, &whole, err) : fail_by_errno(file, err);
    bool cut = status == SP_OK && fstat(file->fd, &info) == 0 && info.st_size > whole;
    if ((cut && ftruncate(file->fd, whole) != 0) ||
        (status == SP_OK && lseek(file->fd, whole, SEEK_SET) < 0)) {
        status = fail_by_errno(file, err);
    }
    run->summary->resumed = run->summary->written;
    return status;
}

// ---- running: points ----

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
    sp_status status = SP_OK;
    *more = true;
    while (status == SP_OK && *more && block->count < most) {
        sweep_row *row = &block->row[block->count];
        status = sweep_choice_next(&run->choice, &row->combination, more, err);
        row->first = run->choice.passed == 1; // of all shards
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
        status = append(&run->file, row->line, strlen(row->line), err);
        if (status == SP_OK) {
            status = sweep_summary_add(run->summary, row, err);
        }
    }
    sp_progress_update(&run->progress, run->summary->written - run->summary->resumed);
    return status;
}

static void drop_block(void *item)
{
    swept_block *block = item;
    for (int i = 0; i < block->count; i++) {
        sweep_row_fini(&block->row[i]);
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
        sweep_evaluator_init(&run.evaluator, spec, options->threads);
        run.evaluator.asks_stack = true;
        run.evaluator.within_stack = options->within_stack;
        const char *advice = "go on with it by --resume, or remove it";
        status = open_file(&run.file, path, options->resume ? NULL : advice, err);
    }
    if (status == SP_OK) {
        status = read_back(&run, err);
    }
    if (status == SP_OK && summary->written < summary->points) {
        status = run_points(&run, err);
    }
    sp_status closed = close_file(&run.file, err);
    sweep_evaluator_fini(&run.evaluator);
    sweep_choice_end(&run.choice);
    return status != SP_OK ? status : closed;
}

// A shard's file, and the line of it that comes next.
typedef struct shard_file {
    const char *path;
    FILE *lines;
    long number; // of the line, from 1
    char *line;
    size_t room;
    ssize_t bytes; // without the newline; negative: none
    bool taken;    // it is known whose shard the file is
} shard_file;

// ---- merging: the files ----

static void next_line(shard_file *s)
{
    s->bytes = getline(&s->line, &s->room, s->lines) - 1;
    s->number++;
    if (s->bytes >= 0 && s->line[s->bytes] != '\n') {
        s->bytes = -1; // cut short by a kill
    }
}

static sp_status open_shards(const char *const *files, int count, shard_file *shards, sp_error *err)
{
    for (int i = 0; i < count; i++) {
        shards[i].path = files[i];
        SP_TRY(sp_input_open(files[i], &shards[i].lines, err));
        next_line(&shards[i]);
    }
    return SP_OK;
}

static void close_shards(shard_file *shards, int count)
{
    for (int i = 0; i < count; i++) {
        if (shards[i].lines != NULL) {
            fclose(shards[i].lines);
        }
        free(shards[i].line);
    }
    sp_free(shards);
}

// ---- merging: the points ----

static sp_status read_point(const sweep_spec *spec, const shard_file *s, int64_t combination,
                            sweep_row *row, sp_error *err)
{
    const sweep_line_place place = {.path = s->path, .number = s->number};
    *row = (sweep_row){.combination = combination};
    return sweep_line_read(spec, s->line, (size_t)s->bytes, &place, row, err);
}

// The file whose first line is that of the point; a file without lines where none is.
static sp_status find_shard(const sweep_spec *spec, shard_file *shards, int count,
                            int64_t combination, shard_file **found, sp_error *err)
{
    shard_file *empty = NULL;
    sp_error reason = {0};
    *found = NULL;
    for (int i = 0; i < count && *found == NULL; i++) {
        if (shards[i].taken || shards[i].bytes < 0) {
            empty = shards[i].taken ? empty : &shards[i];
            continue;
        }
        sweep_row row;
        if (read_point(spec, &shards[i], combination, &row, &reason) == SP_OK) {
            *found = &shards[i];
        }
        sweep_row_fini(&row);
    }
    *found = *found != NULL ? *found : empty;
    if (*found == NULL) {
        return sp_error_set(err, SP_ERR_CONTENT, "%s",
                            reason.count > 0 ? reason.message[0] : "a shard is there twice");
    }
    (*found)->taken = true;
    return SP_OK;
}

static sp_status merge_point(const sweep_spec *spec, shard_file *s, int64_t combination, FILE *out,
                             sweep_summary *summary, sp_error *err)
{
    sweep_row row;
    if (s->bytes < 0) {
        return sp_error_at(err, SP_ERR_CONTENT, s->path, s->number, 0,
                           "a point is missing: the shard is not finished (--resume goes on)");
    }
    sp_status status = read_point(spec, s, combination, &row, err);
    if (status == SP_OK && summary->beyond + summary->of_status[SWEEP_CANNOT_RUN] > 0) {
        const sweep_line_place place = {.path = s->path, .number = s->number};
        status = same_stack_rule(summary->beyond == 0, &row, &place, err);
    }
    if (status == SP_OK) {
        fwrite(s->line, 1, (size_t)s->bytes + 1, out);
        status = sweep_summary_add(summary, &row, err);
    }
    sweep_row_fini(&row);
    next_line(s);
    return status;
}

static sp_status merge_all(const sweep_spec *spec, sweep_choice *choice, shard_file *shards,
                           int count, FILE *out, sweep_summary *summary, sp_error *err)
{
    shard_file **numbered = (shard_file **)sp_calloc((size_t)count, sizeof *numbered);
    bool found = true;
    sp_status status = SP_OK;
    for (int64_t i = 0; status == SP_OK && found; i++) {
        int64_t combination = 0;
        status = sweep_choice_next(choice, &combination, &found, err);
        if (status == SP_OK && found && i < count) {
            status = find_shard(spec, shards, count, combination, &numbered[i], err);
        }
        if (status == SP_OK && found) {
            status = merge_point(spec, numbered[i % count], combination, out, summary, err);
        }
    }
    for (int i = 0; status == SP_OK && i < count; i++) {
        if (shards[i].bytes >= 0) {
            const sweep_line_place place = {.path = shards[i].path, .number = shards[i].number};
            status = sweep_line_of_other(spec, &place, "is past the last point", err);
        }
    }
    sp_free((void *)numbered);
    return status;
}

// ---- merging: what does not fit together ----

enum {
    TOLD_LINES = 2,
    MOST_TOLD = 8192, // points that a line is compared with, which takes a second or so
};

// Tells which shard a file is: of every `shards`th point, from number `shard` on.
typedef struct told_shard {
    const char *path;
    char *line[TOLD_LINES];     // owned
    ssize_t bytes[TOLD_LINES];  // 0: there is no such line
    int64_t number[TOLD_LINES]; // of the line's point among all, from 0; negative: not found
    int64_t shard, shards;      // 0: not known
} told_shard;

static void read_told(told_shard *told)
{
    FILE *file = NULL;
    sp_input_open(told->path, &file, NULL); // what is wrong with it was told
    for (int i = 0; i < TOLD_LINES; i++) {
        size_t room = 0;
        told->number[i] = -1;
        told->bytes[i] = file != NULL ? getline(&told->line[i], &room, file) - 1 : 0;
    }
    if (file != NULL) {
        fclose(file);
    }
}

static void find_number(const sweep_spec *spec, told_shard *told, int64_t combination,
                        int64_t number)
{
    for (int i = 0; i < TOLD_LINES; i++) {
        const sweep_line_place place = {.path = told->path, .number = i + 1};
        sweep_row row = {.combination = combination};
        sp_error ignored = {0};
        bool is_point = told->number[i] < 0 && told->bytes[i] > 0 &&
                        sweep_line_read(spec, told->line[i], (size_t)told->bytes[i], &place, &row,
                                        &ignored) == SP_OK;
        sweep_row_fini(&row);
        if (is_point) {
            told->number[i] = number;
            break;
        }
    }
}

// Two points of a shard are as far apart as there are shards.
static sp_status find_shards(const sweep_spec *spec, const sweep_choice_options *options,
                             told_shard *told, int count, sp_error *err)
{
    sweep_choice choice;
    bool found = true;
    sp_status status = sweep_choice_begin(&choice, spec, options, err);
    for (int64_t n = 0; status == SP_OK && found && n < MOST_TOLD; n++) {
        int64_t combination = 0;
        status = sweep_choice_next(&choice, &combination, &found, err);
        for (int i = 0; status == SP_OK && found && i < count; i++) {
            find_number(spec, &told[i], combination, n);
        }
    }
    sweep_choice_end(&choice);
    for (int i = 0; i < count; i++) {
        int64_t apart = told[i].number[1] - told[i].number[0];
        if (told[i].number[0] >= 0 && told[i].number[0] < apart) {
            told[i].shards = apart;
            told[i].shard = told[i].number[0] + 1;
        }
    }
    return status;
}

// Tells what is wrong with them; false: nothing that shows.
static bool explain(const told_shard *told, int count, char text[SP_ERROR_TEXT])
{
    for (int i = 1; i < count; i++) {
        for (int k = 0; k < i; k++) {
            if (told[i].shards != told[k].shards) {
                snprintf(text, SP_ERROR_TEXT,
                         "%.160s is shard %lld of %lld, but %.160s is shard %lld of %lld",
                         told[k].path, (long long)told[k].shard, (long long)told[k].shards,
                         told[i].path, (long long)told[i].shard, (long long)told[i].shards);
                return true;
            }
            if (told[i].shard == told[k].shard) {
                snprintf(text, SP_ERROR_TEXT,
                         "shard %lld of %lld is there twice: %.160s and %.160s",
                         (long long)told[i].shard, (long long)told[i].shards, told[k].path,
                         told[i].path);
                return true;
            }
        }
    }
    for (int64_t shard = 1; shard <= told[0].shards; shard++) {
        bool there = false;
        for (int i = 0; i < count; i++) {
            there = there || told[i].shard == shard;
        }
        if (!there) {
            snprintf(text, SP_ERROR_TEXT, "shard %lld of %lld is missing", (long long)shard,
                     (long long)told[0].shards);
            return true;
        }
    }
    return false;
}

// Where files do not fit together because a shard is missing or there twice, or they are shards of
// different divisions: says so in place of the error in `err`, and returns its status. Reads the
// first two lines of each file, which tell what shard it is.
static sp_status explain_shards(const sweep_spec *spec, const sweep_choice_options *options,
                                const char *const *files, int count, sp_error *err)
{
    char text[SP_ERROR_TEXT];
    sp_error ignored = {0};
    sp_status status = err->status;
    told_shard *told = sp_calloc((size_t)count, sizeof *told);
    for (int i = 0; i < count; i++) {
        told[i].path = files[i];
        read_told(&told[i]);
    }
    bool known = count > 0 && find_shards(spec, options, told, count, &ignored) == SP_OK;
    for (int i = 0; known && i < count; i++) {
        known = told[i].shards > 0;
    }
    if (known && explain(told, count, text)) {
        sp_error_clear(err);
        sp_error_set(err, status, "%s", text);
    }
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < TOLD_LINES; k++) {
            free(told[i].line[k]);
        }
    }
    sp_free(told);
    return status;
}

sp_status sweep_merge(const sweep_spec *spec, const sweep_choice_options *options,
                      const char *const *files, int count, const char *path, sweep_summary *summary,
                      sp_error *err)
{
    sweep_choice choice;
    sp_output out = {0};
    shard_file *shards = sp_calloc((size_t)count, sizeof *shards);
    sp_status status = sweep_choice_begin(&choice, spec, options, err);
    summary->points = choice.points;
    if (status == SP_OK) {
        status = open_shards(files, count, shards, err);
    }
    status = status == SP_OK ? refuse_filled(path, "remove it first", err) : status;
    status = status == SP_OK ? sp_output_open(&out, path, err) : status;
    if (status == SP_OK) {
        status = merge_all(spec, &choice, shards, count, out.file, summary, err);
    }
    if (status == SP_ERR_CONTENT) {
        status = explain_shards(spec, options, files, count, err);
    }
    status = sp_output_close(&out, status, err);
    close_shards(shards, count);
    sweep_choice_end(&choice);
    return status;
}
