#include "sim/workload/batch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/base/prng.h"
#include "sim/base/units.h"
#include "sim/workload/best_fit.h"

// At least this share of the samples drawn from a distribution must fit into the context.
#define LEAST_SHARE_KEPT 1e-4

// A sample on its way into a batch.
typedef struct sample {
    int64_t id;
    int64_t tokens;
    bool truncated;
    bool split;       // first piece of a longer sample
    bool goes_on;     // a later piece of it
    bool second_pass; // or a later one
    int64_t dropped;  // samples dropped so far, of a distribution
    int64_t lost;     // tokens dropped so far, of a distribution, or truncated
} sample;

typedef struct sampler {
    const sp_workload_spec *spec;
    sp_prng prng;
    uint32_t *order; // permutation of a shuffled list
    size_t position; // in the list or the permutation
    bool second_pass;
    int64_t drawn; // running number of drawn samples
    int64_t dropped;
    int64_t lost;     // tokens
    sample remainder; // of a sample in pieces; no tokens: none
    // Drawn, but not taken by the batch that they were drawn for; owned.
    sample *ahead;
    size_t ahead_at, ahead_count;
} sampler;

// Rows that a batch has begun, each as long as the context at most.
typedef struct filled_rows {
    int64_t length; // of a row
    int64_t begun;
    int64_t used; // tokens of the last
} filled_rows;

void sp_batch_fini(sp_batch *batch)
{
    sp_free(batch->ids);
    sp_free(batch->tokens);
    sp_free(batch->goes_on);
    *batch = (sp_batch){0};
}

int64_t sp_padded_tokens(const sp_padding *padding, int64_t tokens, int dp_count)
{
    int64_t gpus = (int64_t)padding->cp * dp_count;
    int64_t multiple = gpus * padding->each;
    return gpus > 1 && multiple > 0 ? sp_ceil_div(tokens, multiple) * multiple : tokens;
}

sp_batch sp_batch_view(const sp_batch *batch, sp_padding padding)
{
    sp_batch view = *batch;
    view.padding = padding;
    view.unpadded = batch;
    return view;
}

const sp_batch *sp_batch_unpadded(const sp_batch *batch)
{
    return batch->unpadded != NULL ? batch->unpadded : batch;
}

int64_t sp_batch_longest(const sp_batch *batch)
{
    int64_t longest = 0;
    for (size_t i = 0; i < batch->count; i++) {
        longest = batch->tokens[i] > longest ? batch->tokens[i] : longest;
    }
    return longest;
}

static void batch_of(size_t count, bool in_pieces, sp_batch *batch)
{
    *batch = (sp_batch){.count = count};
    if (count > 0) {
        batch->ids = sp_calloc(count, sizeof *batch->ids);
        batch->tokens = sp_calloc(count, sizeof *batch->tokens);
        batch->goes_on = in_pieces ? sp_calloc(count, sizeof *batch->goes_on) : NULL;
    }
}

static void put_sample(sp_batch *batch, size_t place, const sp_batch *from, size_t i)
{
    batch->ids[place] = from->ids[i];
    batch->tokens[place] = from->tokens[i];
    batch->total_tokens += from->tokens[i];
    if (from->goes_on != NULL) {
        batch->goes_on[place] = from->goes_on[i];
        batch->cut_tokens += from->goes_on[i] ? from->tokens[i] : 0;
    }
}

void sp_batch_join(const sp_batch *front, const sp_batch *back, sp_batch *joined)
{
    bool in_pieces = front->goes_on != NULL || back->goes_on != NULL;
    batch_of(front->count + back->count, in_pieces, joined);
    for (size_t i = 0; i < joined->count; i++) {
        bool of_front = i < front->count;
        put_sample(joined, i, of_front ? front : back, of_front ? i : i - front->count);
    }
}

void sp_batch_pick(const sp_batch *batch, const int64_t *index, size_t count, sp_batch *picked)
{
    batch_of(count, batch->goes_on != NULL, picked);
    for (size_t i = 0; i < count; i++) {
        put_sample(picked, i, batch, (size_t)index[i]);
    }
}

void sp_batch_concatenate(const sp_batch *batch, int64_t context, bool across, sp_batch *cut)
{
    // Every row may cut one sample.
    size_t rows = (size_t)(batch->total_tokens / context) + 1;
    batch_of(batch->count + rows, false, cut);
    cut->count = 0;
    cut->total_tokens = batch->total_tokens;
    cut->documents = batch->count;
    int64_t room = 0; // in the row
    for (size_t i = 0; i < batch->count; i++) {
        for (int64_t left = batch->tokens[i]; left > 0;) {
            bool begins = room == 0;
            room = begins ? context : room;
            int64_t tokens = left < room ? left : room;
            bool begins_sample = begins || !across;
            cut->count += begins_sample;
            cut->ids[cut->count - 1] = begins_sample ? batch->ids[i] : cut->ids[cut->count - 1];
            cut->tokens[cut->count - 1] += tokens;
            bool goes_on = batch->goes_on != NULL && batch->goes_on[i];
            cut->cut_tokens += goes_on || left < batch->tokens[i] ? tokens : 0;
            left -= tokens;
            room -= tokens;
        }
    }
}

void sp_batches_fini(sp_batches *batches)
{
    for (int i = 0; i < batches->count; i++) {
        sp_batch_fini(&batches->batch[i]);
    }
    sp_free(batches->batch);
    *batches = (sp_batches){0};
}

static const char *source_of(const sp_workload_spec *spec)
{
    return spec->source != NULL ? spec->source : "workload";
}

static sp_status check_spec(const sp_workload_spec *spec, sp_error *err)
{
    int sources =
        (spec->lengths != NULL) + (spec->distribution != NULL) + (spec->uniform_tokens > 0);
    if (sources != 1) {
        return sp_error_set(err, SP_ERR_USAGE, "%s: expected one source of lengths, got %d",
                            source_of(spec), sources);
    }
    if ((spec->samples_per_batch > 0) + (spec->tokens_per_batch > 0) + (spec->rows_per_batch > 0) !=
        1) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "%s: expected one of samples_per_batch, tokens_per_batch and "
                            "rows_per_batch",
                            source_of(spec));
    }
    if (spec->batches < 1) {
        return sp_error_set(err, SP_ERR_USAGE, "%s: expected at least 1 batch, got %d",
                            source_of(spec), spec->batches);
    }
    return SP_OK;
}

static bool takes_any_length(const sp_workload_spec *spec)
{
    return spec->context <= 0 || spec->over_length == SP_OVER_TRUNCATE ||
           spec->over_length == SP_OVER_SPLIT;
}

static sp_status too_long(const sp_workload_spec *spec, const char *where, int64_t tokens,
                          sp_error *err)
{
    return sp_error_in(err, SP_ERR_CONTENT, source_of(spec), where,
                       "%lld tokens are more than the context of %lld", (long long)tokens,
                       (long long)spec->context);
}

static sp_status check_list(const sp_workload_spec *spec, int64_t *dropped, sp_error *err)
{
    const sp_lengths *lengths = spec->lengths;
    if (lengths->count == 0) {
        return sp_error_set(err, SP_ERR_CONTENT, "%s: holds no lengths", source_of(spec));
    }
    if (takes_any_length(spec)) {
        return SP_OK;
    }
    for (size_t i = 0; i < lengths->count; i++) {
        if (lengths->tokens[i] <= spec->context) {
            continue;
        }
        if (spec->over_length == SP_OVER_ERROR) {
            char where[40];
            snprintf(where, sizeof where, "sample %zu", i);
            return too_long(spec, where, lengths->tokens[i], err);
        }
        (*dropped)++;
    }
    if ((size_t)*dropped == lengths->count) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: no sample is left: all %zu are longer than the context of %lld",
                            source_of(spec), lengths->count, (long long)spec->context);
    }
    return SP_OK;
}

// Share of a distribution's samples that fit into the context.
static double share_kept(const sp_distribution *distribution, int64_t context)
{
    double kept = 0;
    double over = 1;
    for (int i = 0; i < 53; i++) {
        double middle = kept + (over - kept) / 2;
        if (sp_distribution_quantile(distribution, middle) <= context) {
            kept = middle;
        } else {
            over = middle;
        }
    }
    return kept;
}

static sp_status check_distribution(const sp_workload_spec *spec, sp_error *err)
{
    if (takes_any_length(spec)) {
        return SP_OK;
    }
    int64_t longest = sp_distribution_quantile(spec->distribution, nextafter(1, 0));
    if (spec->over_length == SP_OVER_ERROR && longest > spec->context) {
        return too_long(spec, "the longest sample", longest, err);
    }
    if (longest > spec->context &&
        share_kept(spec->distribution, spec->context) < LEAST_SHARE_KEPT) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: no sample is left: fewer than one in %.0f fits into the context "
                            "of %lld",
                            source_of(spec), 1 / LEAST_SHARE_KEPT, (long long)spec->context);
    }
    return SP_OK;
}

// Settles, before anything is drawn, that samples are left; *dropped counts those of a list that
// are not.
static sp_status check_context(const sp_workload_spec *spec, int64_t *dropped, sp_error *err)
{
    if (spec->lengths != NULL) {
        return check_list(spec, dropped, err);
    }
    if (spec->distribution != NULL) {
        return check_distribution(spec, err);
    }
    if (!takes_any_length(spec) && spec->uniform_tokens > spec->context) {
        return sp_error_in(err, SP_ERR_CONTENT, source_of(spec), "workload.uniform",
                           "%lld tokens are more than the context of %lld; without "
                           "workload.uniform (or with null) samples are as long as the context",
                           (long long)spec->uniform_tokens, (long long)spec->context);
    }
    return SP_OK;
}

static sp_status sampler_init(sampler *from, const sp_workload_spec *spec, sp_error *err)
{
    *from = (sampler){.spec = spec};
    sp_prng_seed(&from->prng, spec->seed);
    if (spec->lengths == NULL || spec->order == SP_ORDER_FILE) {
        return SP_OK;
    }
    size_t count = spec->lengths->count;
    if (count > UINT32_MAX) {
        return sp_error_set(err, SP_ERR_LIMIT, "%s: %zu lengths are more than the %lu shuffled",
                            source_of(spec), count, (unsigned long)UINT32_MAX);
    }
    // Half the size of the list; only as much of it is shuffled as is drawn.
    from->order = sp_malloc(count * sizeof *from->order);
    for (size_t i = 0; i < count; i++) {
        from->order[i] = (uint32_t)i;
    }
    return SP_OK;
}

// The next position in the list. A shuffle goes on from one pass to the next: each pass is a
// Fisher-Yates shuffle, and any starting order serves that.
static size_t next_position(sampler *from)
{
    size_t count = from->spec->lengths->count;
    if (from->position == count) {
        from->position = 0;
        from->second_pass = true;
    }
    size_t position = from->position++;
    if (from->order == NULL) {
        return position;
    }
    size_t other = position + (size_t)sp_prng_below(&from->prng, count - position);
    uint32_t chosen = from->order[other];
    from->order[other] = from->order[position];
    from->order[position] = chosen;
    return chosen;
}

// One sample before the context is looked at.
static sample draw(sampler *from)
{
    const sp_workload_spec *spec = from->spec;
    if (spec->lengths != NULL) {
        size_t position = next_position(from);
        return (sample){.id = (int64_t)position, .tokens = spec->lengths->tokens[position]};
    }
    if (spec->distribution != NULL) {
        return (sample){.id = from->drawn,
                        .tokens = sp_distribution_sample(spec->distribution, &from->prng)};
    }
    return (sample){.id = from->drawn, .tokens = spec->uniform_tokens};
}

static sample draw_sample(sampler *from)
{
    const sp_workload_spec *spec = from->spec;
    sample drawn = from->remainder.tokens > 0 ? from->remainder : draw(from);
    if (spec->context > 0 && spec->over_length == SP_OVER_DROP) {
        while (drawn.tokens > spec->context) {
            from->dropped += spec->distribution != NULL;
            from->lost += spec->distribution != NULL ? drawn.tokens : 0;
            drawn = draw(from);
        }
    }
    bool over = spec->context > 0 && drawn.tokens > spec->context;
    bool splits = spec->over_length == SP_OVER_SPLIT;
    bool goes_on = from->remainder.tokens > 0;
    from->remainder = drawn;
    from->remainder.tokens = over && splits ? drawn.tokens - spec->context : 0;
    drawn.truncated = over && !splits;
    drawn.split = over && splits && !goes_on;
    drawn.goes_on = goes_on;
    from->lost += drawn.truncated ? drawn.tokens - spec->context : 0;
    drawn.tokens = over ? spec->context : drawn.tokens;
    drawn.second_pass = from->second_pass;
    drawn.dropped = from->dropped;
    drawn.lost = from->lost;
    from->drawn++;
    return drawn;
}

static sample next_sample(sampler *from)
{
    return from->ahead_at < from->ahead_count ? from->ahead[from->ahead_at++] : draw_sample(from);
}

static void count_source(const sp_workload_spec *spec, sp_batches *batches)
{
    if (spec->lengths != NULL && batches->dropped > 0) {
        for (size_t i = 0; i < spec->lengths->count; i++) {
            int64_t tokens = spec->lengths->tokens[i];
            batches->source_tokens += tokens;
            batches->lost_tokens += tokens > spec->context ? tokens : 0;
        }
        return;
    }
    batches->source_tokens = batches->lost_tokens;
    for (int b = 0; b < batches->count; b++) {
        batches->source_tokens += batches->batch[b].total_tokens;
    }
}

// The documents of the list that are not dropped, and their tokens, less what the batches took.
static void count_left_of_list(const sp_workload_spec *spec, sp_batches *batches)
{
    bool drops = spec->context > 0 && spec->over_length == SP_OVER_DROP;
    for (size_t i = 0; i < spec->lengths->count; i++) {
        int64_t tokens = spec->lengths->tokens[i];
        bool kept = !drops || tokens <= spec->context;
        batches->left_samples += kept;
        batches->left_tokens += kept ? tokens : 0;
    }
    for (int b = 0; b < batches->count; b++) {
        const sp_batch *batch = &batches->batch[b];
        for (size_t i = 0; i < batch->count; i++) {
            batches->left_samples -= batch->goes_on == NULL || !batch->goes_on[i];
        }
        batches->left_tokens -= batch->total_tokens;
    }
    batches->left_tokens -= batches->truncated > 0 ? batches->lost_tokens : 0;
}

static void count_left(const sampler *from, const sample *pending, sp_batches *batches)
{
    const sp_workload_spec *spec = from->spec;
    if (spec->lengths != NULL && !batches->wrapped) {
        count_left_of_list(spec, batches);
        batches->left_samples += pending->goes_on;
    } else if (pending->goes_on) {
        size_t next = from->ahead_at;
        batches->left_samples = 1;
        batches->left_tokens = pending->tokens;
        for (; next < from->ahead_count && from->ahead[next].goes_on; next++) {
            batches->left_tokens += from->ahead[next].tokens;
        }
        batches->left_tokens += next == from->ahead_count ? from->remainder.tokens : 0;
    }
}

static void reserve(sp_batch *batch, bool in_pieces, size_t *capacity, size_t needed)
{
    size_t ids_capacity = *capacity;
    size_t tokens_capacity = *capacity;
    size_t flags_capacity = batch->goes_on != NULL ? *capacity : 0;
    SP_RESERVE(batch->ids, ids_capacity, needed);
    SP_RESERVE(batch->tokens, tokens_capacity, needed);
    if (in_pieces) {
        SP_RESERVE(batch->goes_on, flags_capacity, needed);
    }
    *capacity = tokens_capacity;
}

static bool needs_row(const filled_rows *rows, const sample *next)
{
    return rows->begun == 0 || next->tokens > rows->length - rows->used;
}

static void put_in_row(filled_rows *rows, const sample *next)
{
    const bool begins = needs_row(rows, next);
    rows->begun += begins;
    rows->used = next->tokens + (begins ? 0 : rows->used);
}

static int64_t row_length(const sp_workload_spec *spec)
{
    int64_t longest = spec->uniform_tokens;
    for (size_t i = 0; spec->lengths != NULL && i < spec->lengths->count; i++) {
        longest = spec->lengths->tokens[i] > longest ? spec->lengths->tokens[i] : longest;
    }
    return spec->context > 0 ? spec->context : longest;
}

static bool has_room(const sp_workload_spec *spec, const sp_batch *batch, const filled_rows *rows,
                     const sample *next)
{
    if (spec->samples_per_batch > 0) {
        return batch->count < (uint64_t)spec->samples_per_batch;
    }
    if (spec->rows_per_batch > 0) {
        return !needs_row(rows, next) || rows->begun < spec->rows_per_batch;
    }
    return batch->count == 0 || next->tokens <= spec->tokens_per_batch - batch->total_tokens;
}

// A batch in the making.
typedef struct filling {
    sp_batches *batches;
    sp_batch *batch;
    size_t capacity;
    bool in_pieces;
    bool count_dropped; // as samples are drawn: those of a list are counted once
} filling;

static void take_sample(filling *to, size_t wanted, const sample *taken)
{
    sp_batches *batches = to->batches;
    sp_batch *batch = to->batch;
    if (batch->count == to->capacity) {
        reserve(batch, to->in_pieces, &to->capacity, wanted);
    }
    if (to->in_pieces) {
        batch->goes_on[batch->count] = taken->goes_on;
        batch->cut_tokens += taken->goes_on ? taken->tokens : 0;
    }
    batch->ids[batch->count] = taken->id;
    batch->tokens[batch->count++] = taken->tokens;
    batch->total_tokens += taken->tokens;
    batches->context = taken->tokens > batches->context ? taken->tokens : batches->context;
    batches->truncated += taken->truncated;
    batches->split += taken->split;
    batches->wrapped = batches->wrapped || taken->second_pass;
    batches->dropped = to->count_dropped ? taken->dropped : batches->dropped;
    batches->lost_tokens = taken->lost;
}

static int longer_first(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a;
    const int64_t right = *(const int64_t *)b;
    return (left < right) - (left > right);
}

static void add_sample(sample **samples, size_t *capacity, size_t *count, const sample *added)
{
    *SP_ADDED(*samples, *capacity, *count) = *added;
}

// Rows that so many samples fill by best fit, the longest first.
static int64_t best_fit_rows(const sample *samples, size_t count, int64_t length)
{
    int64_t *tokens = sp_malloc(count * sizeof *tokens);
    int64_t *room = sp_malloc(count * sizeof *room);
    sp_best_fit open = {0};
    int64_t rows = 0;
    for (size_t i = 0; i < count; i++) {
        tokens[i] = samples[i].tokens;
    }
    qsort(tokens, count, sizeof *tokens, longer_first);
    for (size_t i = 0; i < count; i++) {
        uint32_t row = 0;
        if (!sp_best_fit_take(&open, tokens[i], &row)) {
            row = (uint32_t)rows++;
            room[row] = length;
        }
        room[row] -= tokens[i];
        if (room[row] > 0) {
            sp_best_fit_open(&open, room[row], row);
        }
    }
    sp_best_fit_fini(&open);
    sp_free(tokens);
    sp_free(room);
    return rows;
}

// The longest beginning of what is drawn that best fit puts into the rows; one sample fits a row.
static size_t count_fitting(const sample *drawn, size_t count, int64_t rows, int64_t length)
{
    size_t fit = 1;
    for (size_t over = count + 1; over - fit > 1;) {
        const size_t middle = fit + (over - fit) / 2;
        if (best_fit_rows(drawn, middle, length) <= rows) {
            fit = middle;
        } else {
            over = middle;
        }
    }
    return fit;
}

// Fills the rows by best fit. What is drawn beyond that comes again.
static void fill_best_fit(sampler *from, sample *pending, filling *to)
{
    const int64_t rows = from->spec->rows_per_batch;
    const int64_t length = row_length(from->spec);
    sample *drawn = NULL;
    size_t capacity = 0;
    size_t count = 0;
    for (int64_t tokens = pending->tokens; tokens <= rows * length; tokens += pending->tokens) {
        add_sample(&drawn, &capacity, &count, pending);
        *pending = next_sample(from);
    }
    const size_t fit = count_fitting(drawn, count, rows, length);
    for (size_t i = 0; i < fit; i++) {
        take_sample(to, fit, &drawn[i]);
    }
    if (fit == count) {
        sp_free(drawn);
        return;
    }
    add_sample(&drawn, &capacity, &count, pending);
    while (from->ahead_at < from->ahead_count) {
        add_sample(&drawn, &capacity, &count, &from->ahead[from->ahead_at++]);
    }
    *pending = drawn[fit];
    sp_free(from->ahead);
    from->ahead = drawn;
    from->ahead_at = fit + 1;
    from->ahead_count = count;
}

// Puts samples into the batch while they fit; `pending` is the one that comes next.
static void fill_batch(sampler *from, sample *pending, sp_batches *batches, sp_batch *batch)
{
    const sp_workload_spec *spec = from->spec;
    filling to = {.batches = batches,
                  .batch = batch,
                  .in_pieces = spec->context > 0 && spec->over_length == SP_OVER_SPLIT,
                  .count_dropped = spec->distribution != NULL};
    filled_rows rows = {.length = spec->rows_per_batch > 0 ? row_length(spec) : 0};
    if (spec->rows_per_batch > 0 && spec->best_fit) {
        fill_best_fit(from, pending, &to);
        return;
    }
    while (has_room(spec, batch, &rows, pending)) {
        take_sample(
            &to, spec->samples_per_batch > 0 ? (size_t)spec->samples_per_batch : batch->count + 1,
            pending);
        put_in_row(&rows, pending);
        *pending = next_sample(from);
    }
}

sp_status sp_batches_make(const sp_workload_spec *spec, sp_batches *batches, sp_error *err)
{
    *batches = (sp_batches){0};
    sampler from = {0};
    sp_status status = check_spec(spec, err);
    if (status == SP_OK) {
        status = check_context(spec, &batches->dropped, err);
    }
    if (status == SP_OK) {
        status = sampler_init(&from, spec, err);
    }
    if (status != SP_OK) {
        goto out;
    }
    batches->batch = sp_calloc((size_t)spec->batches, sizeof *batches->batch);
    batches->count = spec->batches;
    sample pending = next_sample(&from);
    for (int i = 0; i < spec->batches; i++) {
        fill_batch(&from, &pending, batches, &batches->batch[i]);
    }
    count_source(spec, batches);
    count_left(&from, &pending, batches);
    if (spec->context > 0) {
        batches->context = spec->context;
    }
out:
    sp_free(from.order);
    sp_free(from.ahead);
    if (status != SP_OK) {
        sp_batches_fini(batches);
    }
    return status;
}

bool sp_workload_fills_alike(const sp_workload_spec *a, const sp_workload_spec *b)
{
    return a->samples_per_batch == b->samples_per_batch &&
           a->tokens_per_batch == b->tokens_per_batch && a->rows_per_batch == b->rows_per_batch &&
           a->best_fit == b->best_fit;
}

int64_t sp_workload_samples(const sp_workload_spec *spec)
{
    int64_t samples = 0;
    for (size_t i = 0; i < spec->lengths->count; i++) {
        int64_t tokens = spec->lengths->tokens[i];
        bool over = spec->context > 0 && tokens > spec->context;
        int64_t pieces = over && spec->over_length == SP_OVER_SPLIT
                             ? (tokens + spec->context - 1) / spec->context
                             : 1;
        samples += over && spec->over_length == SP_OVER_DROP ? 0 : pieces;
    }
    return samples;
}

int64_t sp_workload_tokens(const sp_workload_spec *spec)
{
    int64_t total = 0;
    for (size_t i = 0; spec->lengths != NULL && i < spec->lengths->count; i++) {
        int64_t tokens = spec->lengths->tokens[i];
        bool over = spec->context > 0 && tokens > spec->context;
        total += over && spec->over_length == SP_OVER_DROP       ? 0
                 : over && spec->over_length == SP_OVER_TRUNCATE ? spec->context
                                                                 : tokens;
    }
    return total;
}

double sp_batches_over_length_share(const sp_batches *batches)
{
    if (batches->dropped + batches->truncated == 0) {
        return 0.0;
    }
    return batches->source_tokens > 0
               ? (double)batches->lost_tokens / (double)batches->source_tokens
               : (double)NAN;
}
