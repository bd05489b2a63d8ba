#include "solver/slicing.h"

#include <stdlib.h>

#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "sim/base/units.h"
#include "solver/rows.h"
#include "solver/search.h"

enum { POSITIONS = 64 }; // of a row, at which its shortest slices can be cut

// Cost of the first x tokens of a sample: per_token * x + per_pair * x*x/2.
typedef struct prefix_cost {
    double per_token, per_pair;
    const sp_model *model; // of layers that do not all see all tokens; NULL: they do
} prefix_cost;

// A row and its cuts, counted in tokens of the row without padding.
typedef struct row {
    const sp_slice *samples;
    size_t count;
    int64_t tokens;
    double cost;   // with padding
    int64_t *cuts; // [slices + 1]: 0 .. tokens
} row;

static prefix_cost cost_of(sp_slice_rule rule, const sp_model *model);
static row measure(const sp_packing *packing, const sp_pack *pack, prefix_cost cost, int64_t *cuts);
static void find_cuts(row *r, prefix_cost cost, int slices);
static void add_slices(const sp_packing *from, size_t index, const row *r, int slices,
                       sp_packing *to);

// Actions name packs by 32-bit indices.
static sp_status check_count(const sp_packing *made, int64_t slices, sp_error *err)
{
    return slices <= INT32_MAX - (int64_t)made->forward.count ? SP_OK
                                                              : sp_error_no_memory(err, "slices");
}

// On success the packs of `made` take the place of the rows; `made` is freed.
static void replace_packs(sp_packing *packing, sp_packing *made, sp_status status)
{
    if (status == SP_OK) {
        sp_pack_list rows = packing->forward;
        packing->forward = made->forward;
        packing->backward = made->backward;
        made->forward = rows;
        made->backward = (sp_pack_list){0};
    }
    sp_packing_fini(made);
}

sp_status sp_slice_rows(sp_packing *packing, int slices, sp_slice_rule rule, const sp_model *model,
                        const char *source, sp_error *err)
{
    SP_ASSERT(slices >= 1 && packing->backward.count == 0);
    if (slices == 1) {
        return SP_OK;
    }
    prefix_cost cost = cost_of(rule, model);
    sp_packing made;
    sp_packing_init(&made, packing->batch, packing->dp);
    int64_t *cuts = sp_calloc((size_t)slices + 1, sizeof *cuts);
    sp_status status = SP_OK;
    for (size_t k = 0; status == SP_OK && k < packing->forward.count; k++) {
        row r = measure(packing, &packing->forward.packs[k], cost, cuts);
        if (r.tokens < slices) {
            status = sp_error_in(err, SP_ERR_INFEASIBLE, source, "schedule.slices",
                                 "micro-batch %zu has %lld tokens, fewer than the %d slices", k,
                                 (long long)r.tokens, slices);
            break;
        }
        status = check_count(&made, slices, err);
        if (status == SP_OK) {
            find_cuts(&r, cost, slices);
            add_slices(packing, k, &r, slices, &made);
        }
    }
    replace_packs(packing, &made, status);
    sp_free(cuts);
    return status;
}

sp_status sp_slice_rows_every(sp_packing *packing, int64_t tokens, sp_error *err)
{
    SP_ASSERT(tokens >= 1 && packing->backward.count == 0);
    sp_packing made;
    sp_packing_init(&made, packing->batch, packing->dp);
    sp_status status = SP_OK;
    for (size_t k = 0; status == SP_OK && k < packing->forward.count; k++) {
        row r = measure(packing, &packing->forward.packs[k], cost_of(SP_SLICE_TOKENS, NULL), NULL);
        int64_t slices = sp_ceil_div(r.tokens, tokens);
        status = check_count(&made, slices, err);
        if (status == SP_OK) {
            r.cuts = sp_calloc((size_t)slices + 1, sizeof *r.cuts);
            for (int64_t i = 1; i <= slices; i++) {
                r.cuts[i] = i < slices ? i * tokens : r.tokens;
            }
            add_slices(packing, k, &r, (int)slices, &made);
            sp_free(r.cuts);
        }
    }
    replace_packs(packing, &made, status);
    return status;
}

static prefix_cost cost_of(sp_slice_rule rule, const sp_model *model)
{
    if (rule == SP_SLICE_TOKENS) {
        return (prefix_cost){.per_token = 1.0};
    }
    return (prefix_cost){.per_token = sp_model_layer_linear_flops_per_token(model),
                         .per_pair = sp_model_attention_flops_per_pair(model),
                         .model = sp_model_sees_all(model) ? NULL : model};
}

static double until(prefix_cost cost, int64_t tokens)
{
    double x = (double)tokens;
    if (cost.model != NULL) {
        return cost.per_token * x + 0.5 * cost.per_pair * sp_model_pairs2(cost.model, 0.0, x);
    }
    return cost.per_token * x + 0.5 * cost.per_pair * x * x;
}

static row measure(const sp_packing *packing, const sp_pack *pack, prefix_cost cost, int64_t *cuts)
{
    row r = {.count = pack->slice_count, .cuts = cuts};
    if (pack->slice_count == 0) {
        return r;
    }
    r.samples = &packing->forward.slices[pack->first_slice];
    for (size_t i = 0; i < r.count; i++) {
        SP_ASSERT(r.samples[i].begin == 0);
        r.tokens += r.samples[i].tokens;
        r.cost += until(cost, r.samples[i].computed_tokens);
    }
    return r;
}

// The most tokens of a sample that stay within share k of the slices of the row; `before` is the
// cost of the samples before it. Counts of tokens are exact here: products below 2^53.
static int64_t fitting(const row *r, prefix_cost cost, int slices, int k, double before,
                       int64_t tokens)
{
    int64_t low = 0;
    int64_t high = tokens;
    while (low < high) {
        int64_t middle = high - (high - low) / 2;
        if ((before + until(cost, middle)) * slices <= r->cost * k) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

static void find_cuts(row *r, prefix_cost cost, int slices)
{
    size_t i = 0;
    double cost_before = 0.0;
    int64_t tokens_before = 0;
    r->cuts[0] = 0;
    for (int k = 1; k < slices; k++) {
        int64_t inside = 0;
        while (i < r->count) {
            int64_t computed = r->samples[i].computed_tokens;
            inside = fitting(r, cost, slices, k, cost_before, computed);
            if (inside < computed) {
                break;
            }
            cost_before += until(cost, computed);
            tokens_before += r->samples[i].tokens;
            inside = 0;
            i++;
        }
        int64_t own = i < r->count ? r->samples[i].tokens : 0;
        int64_t cut = tokens_before + (inside < own ? inside : own);
        int64_t least = r->cuts[k - 1] + 1;
        int64_t most = r->tokens - (slices - k);
        cut = cut > least ? cut : least;
        r->cuts[k] = cut < most ? cut : most;
    }
    r->cuts[slices] = r->tokens;
}

static void begin_slice_pack(sp_pack_list *list, const sp_pack *like, size_t index)
{
    sp_pack_list_begin(list, like->dp_first, like->dp_count);
    list->packs[list->count - 1].microbatch = (int32_t)index;
    list->packs[list->count - 1].gathers = like->gathers;
}

// Part of a sample; its padding to the length of a row stays with its last token, and the list pads
// each part as the stack does.
static void add_piece(const sp_slice *sample, int64_t begin, int64_t tokens, sp_pack_list *list)
{
    bool last = begin + tokens == sample->tokens;
    int64_t stack_padded =
        sp_padded_tokens(&list->padding, sample->tokens, list->packs[list->count - 1].dp_count);
    bool of_row = last && sample->computed_tokens > stack_padded;
    int64_t padding = of_row ? sample->computed_tokens - sample->tokens : 0;
    sp_slice slice = {.sample = sample->sample,
                      .zone = sample->zone,
                      .begin = begin,
                      .tokens = tokens,
                      .computed_tokens = tokens + padding};
    sp_pack_list_add(list, slice, last);
}

static void add_forward(const sp_packing *from, size_t index, const row *r, int slices,
                        sp_packing *to)
{
    size_t i = 0;
    int64_t offset = 0;
    for (int k = 0; k < slices; k++) {
        begin_slice_pack(&to->forward, &from->forward.packs[index], index);
        for (int64_t left = r->cuts[k + 1] - r->cuts[k]; left > 0;) {
            const sp_slice *sample = &r->samples[i];
            int64_t rest = sample->tokens - offset;
            bool last = rest <= left;
            int64_t tokens = last ? rest : left;
            add_piece(sample, offset, tokens, &to->forward);
            left -= tokens;
            offset = last ? 0 : offset + tokens;
            i += last;
        }
    }
}

// The packs of the row added last again, last first.
static void add_backward(sp_packing *to, size_t index, int slices)
{
    size_t first = to->forward.count - (size_t)slices;
    for (int k = slices - 1; k >= 0; k--) {
        const sp_pack *pack = &to->forward.packs[first + (size_t)k];
        begin_slice_pack(&to->backward, pack, index);
        for (size_t s = 0; s < pack->slice_count; s++) {
            sp_i_add_slice(to->batch, to->forward.slices[pack->first_slice + s], &to->backward);
        }
    }
}

static void add_slices(const sp_packing *from, size_t index, const row *r, int slices,
                       sp_packing *to)
{
    add_forward(from, index, r, slices, to);
    add_backward(to, index, slices);
}

// A row whose slices are being searched.
typedef struct search {
    const row *row;
    sp_pack_list pack; // the slice asked for, as the only pack
    sp_pack_time time_ns;
    void *context;
} search;

// Fills the search's pack with the tokens [prefix, prefix + tokens) of the row.
static void fill_pack(search *find, int64_t tokens, int64_t prefix)
{
    find->pack.count = 0;
    find->pack.slice_count = 0;
    sp_pack_list_begin(&find->pack, 0, 1);
    int64_t begin = 0;
    for (size_t i = 0; i < find->row->count && begin < prefix + tokens; i++) {
        const sp_slice *sample = &find->row->samples[i];
        int64_t from = prefix > begin ? prefix - begin : 0;
        int64_t to = prefix + tokens - begin;
        to = to < sample->tokens ? to : sample->tokens;
        if (from < to) {
            add_piece(sample, from, to - from, &find->pack);
        }
        begin += sample->tokens;
    }
}

static int64_t slice_time(const void *context, int64_t tokens, int64_t prefix)
{
    // The programme hands its context on as it got it: this search, which is not constant.
    search *find = (search *)(uintptr_t)context;
    fill_pack(find, tokens, prefix);
    return find->time_ns(find->context, &find->pack);
}

static sp_status add_shortest(const sp_packing *packing, size_t k, int stages, search *find,
                              sp_packing *made, sp_error *err)
{
    row r = measure(packing, &packing->forward.packs[k], cost_of(SP_SLICE_TOKENS, NULL), NULL);
    sp_terapipe_slices slices;
    find->row = &r;
    sp_terapipe_problem problem = {.tokens = r.tokens,
                                   .granularity = r.tokens / POSITIONS + 1,
                                   .stages = stages,
                                   .time = slice_time,
                                   .context = find};
    // A thousandth of the row on one stage.
    problem.tolerance_ns = slice_time(find, r.tokens, 0) / 1000;
    sp_terapipe_slices_find(&problem, &slices);
    sp_status status = check_count(made, (int64_t)slices.count, err);
    if (status == SP_OK) {
        r.cuts = sp_calloc(slices.count + 1, sizeof *r.cuts);
        for (size_t i = 0; i < slices.count; i++) {
            r.cuts[i + 1] = r.cuts[i] + slices.tokens[i];
        }
        add_slices(packing, k, &r, (int)slices.count, made);
        sp_free(r.cuts);
    }
    sp_terapipe_slices_fini(&slices);
    return status;
}

sp_status sp_slice_rows_shortest(sp_packing *packing, int stages, sp_pack_time time_ns,
                                 void *context, sp_error *err)
{
    SP_ASSERT(packing->backward.count == 0);
    search find = {
        .pack = {.padding = packing->forward.padding}, .time_ns = time_ns, .context = context};
    sp_packing made;
    sp_packing_init(&made, packing->batch, packing->dp);
    sp_status status = SP_OK;
    for (size_t k = 0; status == SP_OK && k < packing->forward.count; k++) {
        status = add_shortest(packing, k, stages, &find, &made, err);
    }
    replace_packs(packing, &made, status);
    sp_free(find.pack.packs);
    sp_free(find.pack.slices);
    return status;
}

// ---- slices of TeraPipe ----

// Positions 0 .. count are where slices may begin and end.
typedef struct terapipe {
    const sp_terapipe_problem *problem;
    sp_arena memory; // of the tables
    size_t count;
    size_t most;      // positions of a slice
    int64_t *time;    // of the slice from position i to j, i < j <= i + most: [(j-1) most + j-1-i]
    int64_t *longest; // of the slices that there may be, sp_ascending_int64s
    size_t times;
    int64_t *sum; // [count + 1]: least sum up to a position, -1 for none
    size_t *from; // [count + 1]: where its last slice begins
} terapipe;

static void prepare(terapipe *s);
static bool solve(terapipe *s, int64_t longest_ns);
static int64_t total_time(const terapipe *s);
static void read_slices(const terapipe *s, sp_terapipe_slices *slices);

void sp_terapipe_slices_find(const sp_terapipe_problem *problem, sp_terapipe_slices *slices)
{
    SP_ASSERT(problem->tokens > 0 && problem->granularity > 0 && problem->stages > 0);
    *slices = (sp_terapipe_slices){0};
    terapipe s = {.problem = problem,
                  .count = (size_t)((problem->tokens - 1) / problem->granularity + 1)};
    int64_t most = problem->most_tokens / problem->granularity;
    s.most = most > 0 && (size_t)most < s.count ? (size_t)most : s.count;
    prepare(&s);
    // Without a limit the sum is least: a bound for every longest slice.
    int64_t least_ns = 0;
    bool any = s.times > 0 && solve(&s, s.longest[s.times - 1]);
    if (any) {
        least_ns = s.sum[s.count];
        read_slices(&s, slices);
    }
    for (size_t i = 0; any && i < s.times && !sp_i_deadline_is_past(problem->deadline_s);) {
        int64_t low_ns = s.longest[i];
        if (least_ns + (problem->stages - 1) * low_ns >= slices->total_ns) {
            break;
        }
        while (i + 1 < s.times && s.longest[i + 1] - low_ns <= problem->tolerance_ns) {
            i++;
        }
        if (solve(&s, s.longest[i]) && total_time(&s) < slices->total_ns) {
            sp_terapipe_slices_fini(slices);
            read_slices(&s, slices);
        }
        i++;
    }
    sp_arena_free(&s.memory);
}

void sp_terapipe_slices_fini(sp_terapipe_slices *slices)
{
    sp_free(slices->tokens);
    *slices = (sp_terapipe_slices){0};
}

static int64_t position(const terapipe *s, size_t i)
{
    return i == s->count ? s->problem->tokens : (int64_t)i * s->problem->granularity;
}

static size_t first_begin(const terapipe *s, size_t end)
{
    return end > s->most ? end - s->most : 0;
}

static int64_t slice_ns(const terapipe *s, size_t begin, size_t end)
{
    return s->time[(end - 1) * s->most + (end - 1 - begin)];
}

static void prepare(terapipe *s)
{
    size_t n = s->count;
    SP_ASSERT(n <= UINT32_MAX / s->most);
    s->time = sp_arena_take(&s->memory, n * s->most, sizeof *s->time);
    s->longest = sp_arena_take(&s->memory, n * s->most, sizeof *s->longest);
    s->sum = sp_arena_take(&s->memory, n + 1, sizeof *s->sum);
    s->from = sp_arena_take(&s->memory, n + 1, sizeof *s->from);
    for (size_t end = 1; end <= n; end++) {
        for (size_t begin = first_begin(s, end); begin < end; begin++) {
            int64_t prefix = position(s, begin);
            int64_t tokens = position(s, end) - prefix;
            int64_t ns = s->problem->time(s->problem->context, tokens, prefix);
            s->time[(end - 1) * s->most + (end - 1 - begin)] = ns;
            if (ns >= 0) {
                s->longest[s->times++] = ns;
            }
        }
    }
    qsort(s->longest, s->times, sizeof *s->longest, sp_ascending_int64s);
}

// S*(L; t_max) of the paper: the least sum of slices none of which is longer. False: there is none.
static bool solve(terapipe *s, int64_t longest_ns)
{
    s->sum[0] = 0;
    for (size_t end = 1; end <= s->count; end++) {
        s->sum[end] = -1;
        for (size_t begin = first_begin(s, end); begin < end; begin++) {
            int64_t ns = slice_ns(s, begin, end);
            if (s->sum[begin] >= 0 && ns >= 0 && ns <= longest_ns &&
                (s->sum[end] < 0 || s->sum[begin] + ns < s->sum[end])) {
                s->sum[end] = s->sum[begin] + ns;
                s->from[end] = begin;
            }
        }
    }
    return s->sum[s->count] >= 0;
}

static int64_t total_time(const terapipe *s)
{
    int64_t longest_ns = 0;
    for (size_t end = s->count; end > 0; end = s->from[end]) {
        int64_t ns = slice_ns(s, s->from[end], end);
        longest_ns = ns > longest_ns ? ns : longest_ns;
    }
    return s->sum[s->count] + (s->problem->stages - 1) * longest_ns;
}

static void read_slices(const terapipe *s, sp_terapipe_slices *slices)
{
    for (size_t end = s->count; end > 0; end = s->from[end]) {
        slices->count++;
    }
    slices->tokens = sp_calloc(slices->count, sizeof *slices->tokens);
    size_t k = slices->count;
    for (size_t end = s->count; end > 0; end = s->from[end]) {
        slices->tokens[--k] = position(s, end) - position(s, s->from[end]);
    }
    slices->total_ns = total_time(s);
}
