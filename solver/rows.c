// Rows of whole samples, blocks of ranks that share samples, and the work of samples.
#include "solver/rows.h"

#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"

void sp_i_add_sample(sp_packing *packing, int32_t sample)
{
    int64_t tokens = packing->batch->tokens[sample];
    sp_slice slice = {.sample = sample, .tokens = tokens, .computed_tokens = tokens};
    sp_pack_list_add(&packing->forward, slice, true);
}

void sp_i_add_row(sp_packing *packing, int dp_first, int dp_count, const int32_t *samples,
                  size_t count)
{
    sp_pack_list_begin(&packing->forward, dp_first, dp_count);
    for (size_t i = 0; i < count; i++) {
        sp_i_add_sample(packing, samples[i]);
    }
}

void sp_i_add_slice(const sp_batch *batch, sp_slice slice, sp_pack_list *list)
{
    sp_pack_list_add(list, slice, slice.begin + slice.tokens == batch->tokens[slice.sample]);
}

void sp_i_add_pack(const sp_pack_list *from, const sp_pack *pack, sp_pack_list *list)
{
    sp_pack_list_begin(list, pack->dp_first, pack->dp_count);
    SP_RESERVE(list->slices, list->slice_capacity, list->slice_count + pack->slice_count);
    sp_pack *added = &list->packs[list->count - 1];
    const sp_pack begun = *added;
    *added = *pack;
    added->microbatch = begun.microbatch;
    added->first_slice = begun.first_slice;
    added->runs_again = false;
    memcpy(list->slices + list->slice_count, from->slices + pack->first_slice,
           pack->slice_count * sizeof *list->slices);
    list->slice_count += pack->slice_count;
}

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

// Sorts by one digit of the lengths, the largest first; those with equal ones stay in their order.
static void sort_by_digit(const sp_batch *batch, int shift, const int32_t *from, int32_t *to)
{
    size_t place[DIGITS + 1] = {0};
    for (size_t i = 0; i < batch->count; i++) {
        place[DIGITS - (batch->tokens[i] >> shift) % DIGITS]++;
    }
    for (size_t d = 1; d < DIGITS; d++) {
        place[d + 1] += place[d];
    }
    for (size_t i = 0; i < batch->count; i++) {
        to[place[DIGITS - 1 - (batch->tokens[from[i]] >> shift) % DIGITS]++] = from[i];
    }
}

// Sorts by the last digit of the lengths first, so that the order of equal ones holds.
int32_t *sp_i_order_descending(const sp_batch *batch)
{
    int32_t *order = sp_malloc(batch->count * sizeof *order);
    int32_t *sorted = sp_malloc(batch->count * sizeof *sorted);
    const int64_t longest = sp_batch_longest(batch);
    for (size_t i = 0; i < batch->count; i++) {
        order[i] = (int32_t)i;
    }
    for (int shift = 0; longest >> shift > 0; shift += DIGIT_BITS) {
        sort_by_digit(batch, shift, order, sorted);
        int32_t *was = order;
        order = sorted;
        sorted = was;
    }
    sp_free(sorted);
    return order;
}

int64_t sp_i_row_tokens(const sp_strategy_input *input)
{
    int64_t stated = input->scenario->strategy.rank_tokens;
    return stated > 0 ? stated * input->scenario->layout.cp : input->context;
}

int64_t sp_i_row_share(const sp_batch *batch, int32_t sample)
{
    return sp_padded_tokens(&batch->padding, batch->tokens[sample], 1);
}

int64_t sp_i_row_room(const sp_batch *batch, int64_t tokens)
{
    return sp_padded_tokens(&batch->padding, tokens, 1);
}

void sp_i_rows_init(sp_i_rows *rows, size_t samples)
{
    *rows = (sp_i_rows){.sample = sp_calloc(samples, sizeof *rows->sample),
                        .first = sp_calloc(samples + 1, sizeof *rows->first)};
}

void sp_i_rows_fini(sp_i_rows *rows)
{
    sp_free(rows->sample);
    sp_free(rows->first);
    *rows = (sp_i_rows){0};
}

void sp_i_rows_fill_in_order(sp_i_rows *rows, const sp_batch *batch, const int32_t *order,
                             int64_t context)
{
    int64_t room = 0;
    for (size_t i = 0; i < batch->count; i++) {
        int32_t sample = order != NULL ? order[i] : (int32_t)i;
        int64_t tokens = sp_i_row_share(batch, sample);
        if (i == 0 || tokens > room) {
            rows->first[rows->count++] = i;
            room = sp_i_row_room(batch, context);
        }
        rows->sample[i] = sample;
        room -= tokens;
    }
    rows->first[rows->count] = batch->count;
}

void sp_i_rows_gather(sp_i_rows *rows, const int32_t *order, const size_t *row_of, size_t samples,
                      size_t count)
{
    rows->count = count;
    memset(rows->first, 0, (samples + 1) * sizeof *rows->first);
    for (size_t i = 0; i < samples; i++) {
        rows->first[row_of[i]]++;
    }
    size_t begin = 0;
    for (size_t r = 0; r <= count; r++) {
        size_t size = r < count ? rows->first[r] : 0;
        rows->first[r] = begin;
        begin += size;
    }
    for (size_t i = 0; i < samples; i++) {
        rows->sample[rows->first[row_of[i]]++] = order[i];
    }
    for (size_t r = count; r > 0; r--) {
        rows->first[r] = rows->first[r - 1];
    }
    rows->first[0] = 0;
}

void sp_i_pack_rows(const sp_strategy_input *input, sp_i_make_rows make, sp_packing *packing)
{
    const sp_batch *batch = input->batch;
    size_t dp = (size_t)input->scenario->layout.dp;
    size_t step = (size_t)input->scenario->strategy.microbatch_samples;
    sp_i_rows rows;
    sp_packing_init(packing, batch, (int)dp);
    sp_i_rows_init(&rows, batch->count);
    if (make == NULL) {
        sp_i_rows_fill_in_order(&rows, batch, NULL, input->context);
    } else {
        int32_t *order = sp_i_order_descending(batch);
        make(&rows, input, order);
        sp_free(order);
    }
    size_t k = 0;
    for (size_t row = 0; row < rows.count; row += step, k++) {
        size_t first = rows.first[row];
        size_t end = rows.first[rows.count - row < step ? rows.count : row + step];
        sp_i_add_row(packing, (int)(k % dp), 1, &rows.sample[first], end - first);
    }
    sp_i_rows_fini(&rows);
}

// ---- DP-Merge ----

int64_t sp_i_merged_rank_tokens(const sp_strategy_input *input)
{
    int64_t dp = input->scenario->layout.dp;
    int64_t stated = input->scenario->strategy.rank_tokens;
    return stated > 0 ? stated : input->context / dp + (input->context % dp != 0);
}

int sp_i_merged_next(int degree, int dp)
{
    return degree <= dp / 2 ? 2 * degree : dp;
}

int sp_i_merged_degree(int64_t tokens, int64_t rank_tokens, int dp)
{
    int64_t ranks = tokens / rank_tokens + (tokens % rank_tokens != 0);
    int degree = 1;
    while (degree < ranks && degree < dp) {
        degree = sp_i_merged_next(degree, dp);
    }
    return degree >= ranks ? degree : 0;
}

sp_status sp_i_merged_check(const sp_strategy_input *input, sp_error *err)
{
    const sp_batch *batch = input->batch;
    int dp = input->scenario->layout.dp;
    int64_t rank_tokens = sp_i_merged_rank_tokens(input);
    size_t longest = 0;
    for (size_t i = 1; i < batch->count; i++) {
        longest = batch->tokens[i] > batch->tokens[longest] ? i : longest;
    }
    if (batch->count == 0 || sp_i_merged_degree(batch->tokens[longest], rank_tokens, dp) > 0) {
        return SP_OK;
    }
    int64_t tokens = batch->tokens[longest];
    return sp_error_set(err, SP_ERR_INFEASIBLE,
                        "sample %lld of %lld tokens does not fit %d data-parallel rank%s of %lld "
                        "tokens each (strategy.rank_tokens): it would take %lld",
                        (long long)batch->ids[longest], (long long)tokens, dp,
                        sp_plural((int64_t)dp), (long long)rank_tokens,
                        (long long)(tokens / dp + (tokens % dp != 0)));
}

// The next smaller degree; 0 below that of one rank.
static int merged_previous(int degree, int dp)
{
    int smaller = 1;
    while (2 * smaller < dp) {
        smaller *= 2;
    }
    return degree < dp ? degree / 2 : dp > 1 ? smaller : 0;
}

static void add_block(sp_packing *packing, const int32_t *order, const sp_i_block *block,
                      size_t from, sp_i_block of, int64_t room_tokens)
{
    int64_t room = -1;
    for (size_t i = from; i < packing->batch->count; i++) {
        if (block[i].first != of.first || block[i].degree != of.degree) {
            continue;
        }
        int64_t tokens =
            sp_padded_tokens(&packing->batch->padding, packing->batch->tokens[order[i]], of.degree);
        if (tokens > room) {
            sp_pack_list_begin(&packing->forward, of.first, of.degree);
            room = room_tokens;
        }
        sp_i_add_sample(packing, order[i]);
        room -= tokens;
    }
}

void sp_i_add_blocks(sp_packing *packing, const int32_t *order, const sp_i_block *block,
                     size_t from, int64_t rank_tokens)
{
    for (int degree = packing->dp; degree > 0; degree = merged_previous(degree, packing->dp)) {
        for (int first = 0; first + degree <= packing->dp; first += degree) {
            add_block(packing, order, block, from, (sp_i_block){first, degree},
                      rank_tokens * degree);
        }
    }
}

static void copy_degree(const sp_pack_list *from, int degree, sp_packing *to)
{
    for (size_t k = 0; k < from->count; k++) {
        if (from->packs[k].dp_count == degree) {
            sp_i_add_pack(from, &from->packs[k], &to->forward);
        }
    }
}

void sp_i_merged_order(const sp_strategy_input *input, sp_packing *packing)
{
    int dp = input->scenario->layout.dp;
    if (input->scenario->layout.pp == 1) {
        return;
    }
    sp_packing ordered;
    sp_packing_init(&ordered, packing->batch, dp);
    for (int degree = dp; degree > 0; degree = merged_previous(degree, dp)) {
        copy_degree(&packing->forward, degree, &ordered);
    }
    sp_packing_fini(packing);
    *packing = ordered;
}

// ---- keys and values gathered pack by pack ----

bool sp_i_may_gather(const sp_scenario *scenario)
{
    const sp_cp_overlap overlap = scenario->memory.stack.cp_overlap;
    bool ring = overlap == SP_CP_ATTENTION ||
                (overlap == SP_CP_A2A_P2P && scenario->layout.cp_a2a <= 1); // a ring alone
    return scenario->strategy.gathers && ring;
}

static bool has_zone(const sp_pack_list *list, const sp_pack *pack)
{
    bool zone = false;
    for (size_t s = 0; !zone && s < pack->slice_count; s++) {
        zone = list->slices[pack->first_slice + s].zone != 0;
    }
    return zone;
}

static bool is_faster_gathered(sp_cost_model *cost, const sp_pack_list *list, const sp_pack *pack)
{
    sp_pack ring = *pack;
    sp_pack gathered = *pack;
    ring.gathers = false;
    gathered.gathers = true;
    return sp_cost_model_pack_s(cost, list, &gathered) < sp_cost_model_pack_s(cost, list, &ring);
}

static size_t gather_in_list(const sp_strategy_input *input, bool all, sp_pack_list *list)
{
    size_t gathers = 0;
    for (size_t k = 0; k < list->count; k++) {
        sp_pack *pack = &list->packs[k];
        pack->gathers = pack->dp_count * input->scenario->layout.cp > 1 && !has_zone(list, pack) &&
                        (all || is_faster_gathered(input->cost, list, pack));
        gathers += pack->gathers;
    }
    return gathers;
}

size_t sp_i_gather_packs(const sp_strategy_input *input, bool all, sp_packing *packing)
{
    return gather_in_list(input, all, &packing->forward) +
           gather_in_list(input, all, &packing->backward);
}

// ---- the work of samples ----

// The three packs: { samples of equal length, tokens of each, context of each }.
typedef struct probe {
    int samples;
    int64_t tokens, context;
} probe;

enum { PROBES = 3, SHORT = 256, CONTEXTS = 16 };

static void add_probe(sp_pack_list *list, const probe *p, int32_t first_sample)
{
    sp_pack_list_begin(list, 0, 1);
    for (int i = 0; i < p->samples; i++) {
        sp_slice slice = {.sample = first_sample + i,
                          .begin = p->context,
                          .tokens = p->tokens,
                          .computed_tokens = p->tokens};
        sp_pack_list_add(list, slice, true);
    }
}

// Mean over the virtual stages.
static double stage_s(const sp_step_costs *costs, const sp_action_cost *table, int pack,
                      int vstages)
{
    double sum_s = 0.0;
    for (int s = 0; s < vstages; s++) {
        size_t at = (size_t)pack * (size_t)costs->classes + (size_t)costs->stages[s].cost_class;
        sum_s += 1e-9 * (double)sp_action_cost_ns(&table[at]);
    }
    return sum_s / vstages;
}

// Solves the three equations; what rounding and curvature make negative is nothing.
static sp_i_pass_work solve(const sp_model *model, const double t[PROBES], const probe p[PROBES])
{
    double tokens[PROBES];
    double pairs[PROBES];
    for (int i = 0; i < PROBES; i++) {
        double l = (double)p[i].tokens;
        tokens[i] = p[i].samples * l;
        pairs[i] = p[i].samples * 0.5 * sp_model_pairs2(model, (double)p[i].context, l);
    }
    // The second and third pack have equal tokens: their difference is pairs alone. With short
    // chunks there is none: a token has as many pairs in either, and what they take is its own.
    double pair_s = pairs[2] > pairs[1] ? fmax(0.0, (t[2] - t[1]) / (pairs[2] - pairs[1])) : 0.0;
    double token_s =
        fmax(1e-15, (t[1] - t[0] - pair_s * (pairs[1] - pairs[0])) / (tokens[1] - tokens[0]));
    double pack_s = fmax(0.0, t[0] - token_s * tokens[0] - pair_s * pairs[0]);
    return (sp_i_pass_work){pack_s, token_s, pair_s};
}

sp_status sp_i_work_measure(sp_cost_model *cost, int64_t tokens, sp_i_work *work, sp_error *err)
{
    int64_t many = tokens < 4 * SHORT ? 4 * SHORT : tokens / SHORT * SHORT;
    const probe probes[PROBES] = {
        {1, SHORT, 0}, {(int)(many / SHORT), SHORT, 0}, {1, many, CONTEXTS * many}};
    sp_packing packing;
    sp_packing_init(&packing, NULL, cost->layout->dp);
    int32_t samples = 0;
    for (int i = 0; i < PROBES; i++) {
        add_probe(&packing.forward, &probes[i], samples);
        samples += probes[i].samples;
    }
    sp_step_costs costs = {0};
    sp_status status = sp_cost_model_build(cost, &packing, &costs, err);
    if (status == SP_OK) {
        double f_s[PROBES];
        double b_s[PROBES];
        int vstages = sp_layout_vstages(cost->layout);
        for (int i = 0; i < PROBES; i++) {
            f_s[i] = stage_s(&costs, costs.action[SP_ACTION_F], i, vstages);
            b_s[i] = stage_s(&costs, costs.action[SP_ACTION_B], i, vstages);
        }
        *work = (sp_i_work){solve(cost->model, f_s, probes), solve(cost->model, b_s, probes),
                            sp_model_sees_all(cost->model) ? NULL : cost->model};
    }
    sp_step_costs_fini(&costs);
    sp_packing_fini(&packing);
    return status;
}

static double token_s(const sp_i_work *work)
{
    return work->forward.token_s + work->backward.token_s;
}

static double pair_s(const sp_i_work *work)
{
    return work->forward.pair_s + work->backward.pair_s;
}

static double pairs_of(const sp_i_work *work, int64_t begin, int64_t tokens)
{
    double l = (double)tokens;
    return work->model != NULL ? 0.5 * sp_model_pairs2(work->model, (double)begin, l)
                               : l * (double)begin + 0.5 * l * l;
}

double sp_i_slice_work_s(const sp_i_work *work, int64_t begin, int64_t tokens)
{
    return token_s(work) * (double)tokens + pair_s(work) * pairs_of(work, begin, tokens);
}

double sp_i_slice_pass_s(const sp_i_work *work, bool backward, int64_t begin, int64_t tokens)
{
    const sp_i_pass_work *pass = backward ? &work->backward : &work->forward;
    return pass->token_s * (double)tokens + pass->pair_s * pairs_of(work, begin, tokens);
}

// No fewer than `low`, whose work fits.
static int64_t most_tokens(const sp_i_work *work, int64_t begin, double work_s, int64_t low)
{
    int64_t high = sp_whole(work_s / token_s(work));
    while (low < high) {
        int64_t middle = high - (high - low) / 2;
        if (sp_i_slice_work_s(work, begin, middle) <= work_s) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

int64_t sp_i_slice_tokens(const sp_i_work *work, int64_t begin, double work_s)
{
    if (!(work_s > 0.0)) {
        return 0;
    }
    // 0.5 q l^2 + (t + q o) l = w, in the form without cancellation.
    double q = pair_s(work);
    double linear = token_s(work) + q * (double)begin;
    int64_t tokens = sp_whole(2.0 * work_s / (linear + sqrt(linear * linear + 2.0 * q * work_s)));
    return work->model != NULL ? most_tokens(work, begin, work_s, tokens) : tokens;
}
