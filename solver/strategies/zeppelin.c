// Zeppelin's partitioner (arXiv 2509.21841): samples in three zones. Those of the local zone stay
// whole on one rank, those of the intra-node zone go over ranks of one node, those of the
// inter-node zone over ranks of several. Packs run in this order from the widest on, as the queues
// of its attention engine do.
//
// Only the abstract is at hand, so the rules are a reconstruction (inference) of its algorithms 1
// and 2:
// - Nodes: samples that no node holds, longest first, go over as many nodes as their share of the
//   inter-node tokens is of all; every other one goes to the node with the least work that has
//   room. Where none has, all samples as long are of the inter-node zone, and it begins anew.
// - Ranks of a node: a sample of more than the mean work of its ranks, or more tokens than one
//   holds, goes over as many ranks as bring it below both; every other one goes to the rank with
//   the least work that has room. Where none has, all samples as long are split, and it begins
//   anew.
// - Work is tokens^2. Where linear modules run with the attention, the time of the whole sample is
//   levelled as well.
// - Remapped (strategy.remap): a round of samples is one pack of all ranks with equal shares of its
//   tokens, and each sample's attention has a zone (sim/plan/packing.h). What a rank saves of a
//   layer is counted as its equal share, also of queries, keys and values. Samples are dealt
//   out to as few rounds as hold them, so that rounds have about as many tokens.
// Blocks of ranks are aligned powers of two (solver/rows.h), where Zeppelin may take any number. A
// rank has room for as many full micro-batches as the batch needs, or one more. Its tokens are
// strategy.rank_tokens, else doubled up to the context: memory then decides.
//
// All of these and its baselines are simulated, and the fastest is taken.
#include <stdlib.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/order.h"
#include "solver/rows.h"
#include "solver/search.h"
#include "solver/step/step.h"
#include "solver/strategy_list.h"

// Which packs of several ranks gather keys and values, as llama-cp does.
typedef enum gathers { GATHERS_NONE, GATHERS_WHERE_FASTER, GATHERS_ALL } gathers;

// One way to partition.
typedef struct way {
    sp_strategy_pack_function baseline; // NULL: zones
    int64_t rank_tokens;
    int spare_rounds;
    bool whole_work; // not tokens^2
    bool remapped;
    gathers gathers;
} way;

// Places of samples are those in `order`.
typedef struct zones {
    const sp_strategy_input *input;
    way way;
    int64_t room;       // tokens of one rank in all micro-batches
    int dp, node_ranks; // data-parallel ranks, in all and of one node
    size_t count;
    int32_t *order;    // samples by descending length
    double *work;      // [count]
    sp_i_block *block; // [count]
    double *load;      // [dp]
    double *held;      // [dp] tokens
} zones;

static int count_baselines(const sp_scenario *scenario);
static int count_partitions(const sp_scenario *scenario);
static sp_status pack(const sp_strategy_input *input, const way *taken, sp_packing *packing,
                      sp_error *err);
static void add_rounds(zones *z, int32_t *order, sp_packing *packing);
static void find_zones(zones *z);

// Those with rings, and llama-cp, whose packs are te-cp's.
static const way baselines[] = {{.baseline = sp_i_pack_te_cp},
                                {.baseline = sp_i_pack_hybrid_dp},
                                {.baseline = sp_i_pack_te_cp, .gathers = GATHERS_ALL},
                                {.baseline = sp_i_pack_hybrid_dp, .gathers = GATHERS_WHERE_FASTER}};

static const way partitions[] = {{0},
                                 {.whole_work = true},
                                 {.spare_rounds = 1},
                                 {.spare_rounds = 1, .whole_work = true},
                                 {.remapped = true},
                                 {.remapped = true, .spare_rounds = 1}};

// The baselines, then all partitions for each number of tokens a rank.
static way nth_way(const sp_strategy_input *input, int i)
{
    const int first = count_baselines(input->scenario);
    const int each = count_partitions(input->scenario);
    if (i < first) {
        return baselines[i];
    }
    way tried = partitions[(i - first) % each];
    tried.rank_tokens = sp_i_merged_rank_tokens(input) << (i - first) / each;
    tried.gathers =
        !tried.remapped && sp_i_may_gather(input->scenario) ? GATHERS_WHERE_FASTER : GATHERS_NONE;
    return tried;
}

static sp_status judge_way(void *context, int i, const sp_packflow_outcome *best,
                           sp_packflow_outcome *outcome, sp_error *err)
{
    const sp_strategy_input *input = context;
    const way tried = nth_way(input, i);
    sp_packing packing;
    sp_status status = pack(input, &tried, &packing, err);
    if (status == SP_OK) {
        if (!sp_step_is_beaten(input, &packing, best)) {
            status = sp_step_judge_rows(input, &packing, outcome, err);
        }
        sp_packing_fini(&packing);
    }
    return status;
}

static bool is_time_over(const void *context)
{
    const sp_strategy_input *input = context;
    return sp_i_is_late(input->scenario, input->deadline_s);
}

sp_status sp_i_pack_zeppelin(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    const sp_scenario *scenario = input->scenario;
    const int64_t first = sp_i_merged_rank_tokens(input);
    const int64_t most = scenario->strategy.rank_tokens > 0 ? first : input->context;
    sp_strategy_input own = *input;
    sp_packflow_outcome outcome = SP_PACKFLOW_WORST;
    int best = 0;
    sp_i_candidates ways = {.judge = judge_way, .is_over = is_time_over, .context = &own};
    sp_status status = sp_i_merged_check(input, err);
    if (status == SP_OK && scenario->strategy.zones) {
        ways.count = count_baselines(scenario);
        for (int64_t tokens = first; tokens <= most; tokens *= 2) {
            ways.count += count_partitions(scenario);
        }
        best = -1;
        status = sp_i_search(&ways, &best, &outcome, err);
        if (status == SP_OK && best < 0 && input->beaten != NULL) {
            return sp_error_set(err, SP_ERR_INFEASIBLE, "no packs are faster than those before");
        }
        best = best < 0 ? 0 : best;
    }
    const way taken = nth_way(input, best);
    status = status == SP_OK ? pack(input, &taken, packing, err) : status;
    if (status == SP_OK && scenario->strategy.rank_tokens == 0) {
        packing->row_tokens = taken.rank_tokens;
    }
    return status;
}

static int count_baselines(const sp_scenario *scenario)
{
    return sp_i_may_gather(scenario) ? 4 : 2;
}

// GPUs run no packs with zones yet, and cuts other than even ones know none.
static int count_partitions(const sp_scenario *scenario)
{
    bool remaps = scenario->strategy.remap && !sp_stack_counts_device(&scenario->memory.stack) &&
                  scenario->layout.cp_sharding == SP_SHARD_EVEN;
    return remaps ? 6 : 4;
}

static void choose_exchange(const sp_strategy_input *input, gathers which, sp_packing *packing)
{
    if (which != GATHERS_NONE) {
        sp_i_gather_packs(input, which == GATHERS_ALL, packing);
    }
}

static double work_of(const zones *z, int32_t sample)
{
    int64_t tokens = z->input->batch->tokens[sample];
    return z->way.whole_work ? sp_cost_model_sample_work_s(z->input->cost, tokens)
                             : (double)tokens * (double)tokens;
}

static sp_status pack(const sp_strategy_input *input, const way *by, sp_packing *packing,
                      sp_error *err)
{
    const sp_batch *batch = input->batch;
    int dp = input->scenario->layout.dp;
    if (by->baseline != NULL) {
        sp_status made = by->baseline(input, packing, err);
        if (made == SP_OK) {
            choose_exchange(input, by->gathers, packing);
        }
        return made;
    }
    int64_t all = by->rank_tokens * dp;
    zones z = {.input = input,
               .way = *by,
               .room = by->rank_tokens * ((batch->total_tokens + all - 1) / all + by->spare_rounds),
               .dp = dp,
               .node_ranks =
                   sp_cluster_node_dp_ranks(&input->scenario->cluster, &input->scenario->layout),
               .count = batch->count};
    sp_arena memory = {0};
    sp_packing_init(packing, sp_batch_unpadded(batch), dp); // zones need no padding
    z.order = sp_i_order_descending(batch);
    z.work = sp_arena_take(&memory, batch->count, sizeof *z.work);
    z.block = sp_arena_take(&memory, batch->count, sizeof *z.block);
    z.load = sp_arena_take(&memory, (size_t)dp, sizeof *z.load);
    z.held = sp_arena_take(&memory, (size_t)dp, sizeof *z.held);
    int32_t *order = z.order;
    if (by->remapped) {
        add_rounds(&z, order, packing);
    } else {
        find_zones(&z);
        sp_i_add_blocks(packing, z.order, z.block, 0, by->rank_tokens);
    }
    choose_exchange(input, by->gathers, packing);
    sp_free(order);
    sp_arena_free(&memory);
    return SP_OK;
}

static int64_t tokens_of(const zones *z, size_t i)
{
    return z->input->batch->tokens[z->order[i]];
}

static void put(zones *z, size_t i, int first, int degree)
{
    z->block[i] = (sp_i_block){first, degree};
    for (int r = first; r < first + degree; r++) {
        z->load[r] += z->work[i] / degree;
        z->held[r] += (double)tokens_of(z, i) / degree;
    }
}

// The block of the ranks [from, end) with the least work where so many more tokens find room; -1:
// none.
static int least_block(const zones *z, int from, int end, int degree, int64_t tokens)
{
    int best = -1;
    double least = 0.0;
    for (int first = from; first + degree <= end; first += degree) {
        double load = 0.0;
        double held = 0.0;
        for (int r = first; r < first + degree; r++) {
            load = z->load[r] > load ? z->load[r] : load;
            held += z->held[r];
        }
        if (held + (double)tokens <= (double)z->room * degree && (best < 0 || load < least)) {
            best = first;
            least = load;
        }
    }
    return best;
}

static int any_block(const zones *z, int from, int end, int degree)
{
    int first = least_block(z, from, end, degree, -z->input->batch->total_tokens);
    return first < 0 ? from : first;
}

// The first place behind all samples as long as that of place i.
static size_t behind(const zones *z, size_t i)
{
    int64_t tokens = tokens_of(z, i);
    while (i < z->count && tokens_of(z, i) == tokens) {
        i++;
    }
    return i;
}

// ---- nodes ----

static int inter_degree(const zones *z, size_t i, int64_t inter_tokens)
{
    int nodes = z->dp / z->node_ranks;
    double share = (double)tokens_of(z, i) * nodes / (double)inter_tokens;
    int degree = sp_i_merged_degree(tokens_of(z, i), z->way.rank_tokens, z->dp);
    while (degree < z->dp && (degree <= z->node_ranks || degree < share * z->node_ranks)) {
        degree = sp_i_merged_next(degree, z->dp);
    }
    return degree;
}

// Puts the first `inter` samples over nodes and every other one into a node; returns the place of
// one for which no node has room, else the number of samples.
static size_t place_nodes(zones *z, size_t inter)
{
    int64_t inter_tokens = 0;
    memset(z->load, 0, (size_t)z->dp * sizeof *z->load);
    memset(z->held, 0, (size_t)z->dp * sizeof *z->held);
    for (size_t i = 0; i < inter; i++) {
        inter_tokens += tokens_of(z, i);
    }
    for (size_t i = 0; i < z->count; i++) {
        int degree = i < inter ? inter_degree(z, i, inter_tokens) : z->node_ranks;
        int first = i < inter ? any_block(z, 0, z->dp, degree)
                              : least_block(z, 0, z->dp, degree, tokens_of(z, i));
        if (first < 0) {
            return i;
        }
        put(z, i, first, degree);
    }
    return z->count;
}

// ---- ranks of a node ----

// Adds what the inter-node zone puts on a node's ranks, in the place of all else.
static void begin_node(zones *z, size_t inter, int node)
{
    for (int r = node; r < node + z->node_ranks; r++) {
        z->load[r] = 0.0;
        z->held[r] = 0.0;
        for (size_t i = 0; i < inter; i++) {
            const sp_i_block *b = &z->block[i];
            if (r >= b->first && r < b->first + b->degree) {
                z->load[r] += z->work[i] / b->degree;
                z->held[r] += (double)tokens_of(z, i) / b->degree;
            }
        }
    }
}

// Puts a node's samples on its ranks, those before `split` on two at least; returns the place of
// one for which no rank has room, else the number of samples.
static size_t place_ranks(zones *z, size_t inter, size_t split, int node, double mean)
{
    int end = node + z->node_ranks;
    begin_node(z, inter, node);
    for (size_t i = inter; i < z->count; i++) {
        if (z->block[i].first < node || z->block[i].first >= end) {
            continue;
        }
        int degree = sp_i_merged_degree(tokens_of(z, i), z->way.rank_tokens, z->dp);
        while (degree < z->node_ranks &&
               (z->work[i] > mean * degree || (degree == 1 && i < split))) {
            degree = sp_i_merged_next(degree, z->dp);
        }
        int first = degree == 1 && i >= split ? least_block(z, node, end, 1, tokens_of(z, i))
                                              : any_block(z, node, end, degree);
        if (first < 0) {
            return i;
        }
        put(z, i, first, degree);
    }
    return z->count;
}

static void find_zones(zones *z)
{
    size_t count = z->count;
    size_t inter = 0;
    for (size_t i = 0; i < count; i++) {
        z->work[i] = work_of(z, z->order[i]);
    }
    while (inter < count &&
           sp_i_merged_degree(tokens_of(z, inter), z->way.rank_tokens, z->dp) > z->node_ranks) {
        inter++;
    }
    for (size_t at = place_nodes(z, inter); at < count; at = place_nodes(z, inter)) {
        inter = behind(z, at);
    }
    for (int node = 0; node < z->dp; node += z->node_ranks) {
        double work = 0.0;
        for (size_t i = inter; i < count; i++) {
            work += z->block[i].first == node ? z->work[i] : 0.0;
        }
        double mean = work / z->node_ranks;
        size_t split = 0;
        for (size_t at = place_ranks(z, inter, split, node, mean); at < count;
             at = place_ranks(z, inter, split, node, mean)) {
            split = behind(z, at);
        }
    }
}

// ---- remapped rounds ----

// A sample at its place in a round, by zone.
typedef struct placed {
    sp_i_block block;
    int32_t sample;
    size_t at;
} placed;

// Wide blocks first, as the queues run.
static int compare_placed(const void *a, const void *b)
{
    const placed *x = a;
    const placed *y = b;
    if (x->block.degree != y->block.degree) {
        return x->block.degree > y->block.degree ? -1 : 1;
    }
    return SP_ORDER_2(x, y, block.first, at);
}

static void add_round(zones *z, placed *round, sp_packing *packing)
{
    int64_t tokens = 0;
    for (size_t i = 0; i < z->count; i++) {
        tokens += tokens_of(z, i);
    }
    int64_t mean = tokens / z->dp + (tokens % z->dp != 0);
    z->room = (mean > z->way.rank_tokens ? mean : z->way.rank_tokens) * (1 + z->way.spare_rounds);
    find_zones(z);
    for (size_t i = 0; i < z->count; i++) {
        round[i] = (placed){z->block[i], z->order[i], i};
    }
    qsort(round, z->count, sizeof *round, compare_placed);
    sp_pack_list_begin(&packing->forward, 0, z->dp);
    for (size_t i = 0; i < z->count; i++) {
        sp_i_block of = round[i].block;
        sp_i_add_sample(packing, round[i].sample);
        if (of.degree < z->dp) {
            packing->forward.slices[packing->forward.slice_count - 1].zone =
                sp_zone_of(of.first, of.degree);
        }
    }
}

// Longest samples first, each to the round with the fewest tokens; false: some round would have
// more than `most`.
static bool deal(const sp_batch *batch, const int32_t *order, int64_t most, size_t count,
                 size_t *round_of, int64_t *tokens)
{
    memset(tokens, 0, count * sizeof *tokens);
    for (size_t i = 0; i < batch->count; i++) {
        size_t least = 0;
        for (size_t r = 1; r < count; r++) {
            least = tokens[r] < tokens[least] ? r : least;
        }
        if (tokens[least] > 0 && tokens[least] + batch->tokens[order[i]] > most) {
            return false;
        }
        round_of[i] = least;
        tokens[least] += batch->tokens[order[i]];
    }
    return true;
}

static void add_rounds(zones *z, int32_t *order, sp_packing *packing)
{
    const sp_batch *batch = z->input->batch;
    int64_t all = z->way.rank_tokens * z->dp;
    size_t rounds = (size_t)((batch->total_tokens + all - 1) / all);
    sp_arena memory = {0};
    sp_i_rows rows;
    rounds = rounds < batch->count ? rounds : batch->count;
    sp_i_rows_init(&rows, batch->count);
    placed *round = sp_arena_take(&memory, batch->count, sizeof *round);
    size_t *round_of = sp_arena_take(&memory, batch->count, sizeof *round_of);
    int64_t *tokens = sp_arena_take(&memory, batch->count, sizeof *tokens);
    while (!deal(batch, order, all, rounds, round_of, tokens)) {
        rounds++;
    }
    sp_i_rows_gather(&rows, order, round_of, batch->count, rounds);
    for (size_t r = 0; r < rows.count; r++) {
        z->order = rows.sample + rows.first[r];
        z->count = rows.first[r + 1] - rows.first[r];
        add_round(z, round, packing);
    }
    sp_i_rows_fini(&rows);
    sp_arena_free(&memory);
}
