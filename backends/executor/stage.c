#include "backends/executor/stage.h"

#include <string.h>

#include "backends/ranks/comm.h"
#include "sim/base/alloc.h"

static size_t layers_of(const sp_i_exec_stage *stage)
{
    return (size_t)stage->model_part.layers;
}

sp_status sp_i_exec_stage_init(sp_i_exec_stage *stage, const sp_i_exec_job *job,
                               sp_i_exec_arena *arena, sp_i_exec_links *links, sp_stage model_part,
                               sp_error *err)
{
    *stage =
        (sp_i_exec_stage){.job = job, .arena = arena, .links = links, .model_part = model_part};
    const sp_i_exec_slices *slices = &job->slices;
    size_t layers = layers_of(stage);
    size_t slots = (size_t)sp_i_exec_slots(model_part.layers);
    size_t pack = (layers + 1) * SP_ALL_TENSORS;
    size_t deferred = (layers + 1) * SP_I_EXEC_DEFERRED;
    sp_arena *work = &stage->work;
    stage->value = sp_arena_take(work, slots, sizeof *stage->value);
    stage->gradient = sp_arena_take(work, slots, sizeof *stage->gradient);
    stage->range = sp_arena_take(work, slots, sizeof *stage->range);
    size_t forwards = slices->forward_count + (size_t)slices->place.empty_packs;
    size_t backwards = slices->backward_count + (size_t)slices->place.empty_packs;
    stage->saved = sp_arena_take(work, forwards * pack, sizeof *stage->saved);
    stage->input = sp_arena_take(work, forwards, sizeof *stage->input);
    stage->kv = sp_arena_take(work, slices->count * layers, sizeof *stage->kv);
    stage->kv_gradient = sp_arena_take(work, slices->count * layers, sizeof *stage->kv_gradient);
    stage->deferred = sp_arena_take(work, backwards * deferred, sizeof *stage->deferred);
    stage->deferred_rows = sp_arena_take(work, backwards * layers, sizeof *stage->deferred_rows);
    if (slices->place.empty_packs > 0) { // ranks share experts
        stage->arrived = sp_arena_take(work, forwards * layers * SP_I_EXEC_MOST_EXPERT_RANKS,
                                       sizeof *stage->arrived);
    }
    stage->loss =
        job->runtime->ops->allocate(job->runtime, (int64_t)(forwards * sizeof *stage->loss));
    if (stage->loss == NULL) {
        sp_i_exec_stage_fini(stage);
        return sp_error_no_memory(err, "a stage"); // the device's
    }
    return SP_OK;
}

void sp_i_exec_stage_fini(sp_i_exec_stage *stage)
{
    sp_arena_free(&stage->work);
    if (stage->loss != NULL) {
        stage->job->runtime->ops->release(stage->job->runtime, stage->loss);
    }
    *stage = (sp_i_exec_stage){0};
}

const sp_i_exec_kind *sp_i_exec_kind_of(const sp_i_exec_stage *stage, int layer)
{
    bool of_layer = layer < stage->model_part.layers;
    int number = stage->model_part.first + layer;
    return &stage->job->kind[of_layer ? sp_model_kind_of(stage->job->model, number) : 0];
}

void **sp_i_exec_saved(const sp_i_exec_stage *stage, int32_t forward_pack, int layer,
                       sp_layer_tensor_id tensor)
{
    size_t unit = (size_t)forward_pack * (layers_of(stage) + 1) + (size_t)layer;
    return &stage->saved[unit * SP_ALL_TENSORS + (size_t)tensor];
}

void **sp_i_exec_kv(const sp_i_exec_stage *stage, int32_t slice, int layer)
{
    return &stage->kv[(size_t)slice * layers_of(stage) + (size_t)layer];
}

void **sp_i_exec_kv_gradient(const sp_i_exec_stage *stage, int32_t slice, int layer)
{
    return &stage->kv_gradient[(size_t)slice * layers_of(stage) + (size_t)layer];
}

sp_i_exec_routed *sp_i_exec_deferred_rows(const sp_i_exec_stage *stage, int32_t backward_pack,
                                          int layer)
{
    return &stage->deferred_rows[(size_t)backward_pack * layers_of(stage) + (size_t)layer];
}

int64_t *sp_i_exec_arrived(const sp_i_exec_stage *stage, int32_t forward_pack, int layer)
{
    size_t unit = (size_t)forward_pack * layers_of(stage) + (size_t)layer;
    return &stage->arrived[unit * SP_I_EXEC_MOST_EXPERT_RANKS];
}

void **sp_i_exec_deferred_of(const sp_i_exec_stage *stage, int32_t backward_pack, int layer)
{
    size_t unit = (size_t)backward_pack * (layers_of(stage) + 1) + (size_t)layer;
    return &stage->deferred[unit * SP_I_EXEC_DEFERRED];
}

// Copies one part of a slice out of the block that its forward pack saved, to row `to_row` of a
// block of `rows`.
static void fetch_part(const sp_i_exec_stage *stage, const sp_i_exec_spec *spec, int32_t number,
                       int part, const char *saved, char *block, int64_t rows, int64_t to_row)
{
    const sp_i_exec_slices *slices = &stage->job->slices;
    const sp_i_exec_pack *from = &slices->forward[slices->slice[number].forward_pack];
    int64_t row = sp_i_exec_forward_row(slices, number, part) - (spec->own ? from->own_row : 0);
    int64_t row_bytes = spec->columns / spec->arrays * spec->width.real_bytes;
    for (int a = 0; a < spec->arrays; a++) {
        stage->job->runtime->ops->copy(stage->job->runtime, block + (a * rows + to_row) * row_bytes,
                                       saved + row * row_bytes,
                                       sp_i_exec_part_rows(slices, number, part) * row_bytes);
        row += spec->own ? from->own_rows : from->rows;
    }
}

static void fetch_slice(const sp_i_exec_stage *stage, const sp_i_exec_pack *pack, int layer,
                        sp_layer_tensor_id tensor, int32_t place, char *block, int64_t *part_row)
{
    const sp_i_exec_slices *slices = &stage->job->slices;
    const sp_i_exec_spec *spec = &sp_i_exec_kind_of(stage, layer)->specs.of[tensor];
    int32_t number = pack->slice[place];
    int64_t block_rows = spec->own ? pack->own_rows : pack->rows;
    void **saved = sp_i_exec_saved(stage, slices->slice[number].forward_pack, layer, tensor);
    int64_t rows = 0;
    if (*saved == NULL) {
        return; // this rank has no row of the slice, and the others' are gone
    }
    for (int part = 0; part < slices->place.parts; part++) {
        if (!spec->own || part == slices->place.part) {
            fetch_part(stage, spec, number, part, *saved, block, block_rows, part_row[part]);
            part_row[part] += sp_i_exec_part_rows(slices, number, part);
            rows += sp_i_exec_part_rows(slices, number, part);
        }
    }
    if (sp_i_exec_give_part(stage->arena, *saved, rows * spec->columns, spec->width)) {
        *saved = NULL;
    }
}

// Where each part begins in a block of all rows, or of the own part alone.
static void begin_parts(const sp_i_exec_slices *slices, const sp_i_exec_pack *pack, bool own,
                        int64_t *part_row)
{
    int64_t row = 0;
    for (int part = 0; part < slices->place.parts; part++) {
        part_row[part] = own ? 0 : row;
        for (int32_t i = 0; i < pack->count; i++) {
            row += sp_i_exec_part_rows(slices, pack->slice[i], part);
        }
    }
}

bool sp_i_exec_fetch(const sp_i_exec_stage *stage, const sp_i_exec_pack *pack, int layer,
                     sp_layer_tensor_id tensor, void **block)
{
    const sp_i_exec_slices *slices = &stage->job->slices;
    const sp_i_exec_spec *spec = &sp_i_exec_kind_of(stage, layer)->specs.of[tensor];
    if (pack->same_as != SP_I_EXEC_NONE) {
        void **saved = sp_i_exec_saved(stage, pack->same_as, layer, tensor);
        *block = *saved;
        *saved = NULL;
        return true;
    }
    int64_t part_row[SP_I_EXEC_MOST_PARTS];
    int64_t rows = spec->own ? pack->own_rows : pack->rows;
    *block = sp_i_exec_take(stage->arena, spec->category, rows * spec->columns, spec->width);
    if (*block == NULL) {
        return false;
    }
    begin_parts(slices, pack, spec->own, part_row);
    for (int32_t i = 0; i < pack->count; i++) {
        fetch_slice(stage, pack, layer, tensor, i, *block, part_row);
    }
    return true;
}

// Fills in one number of a pack's rows, or of those of the rank's own part.
static void pack_number(const sp_i_exec_job *job, const sp_i_exec_pack *pack, bool own,
                        const int64_t *from, int64_t *to)
{
    for (size_t p = 0; p < pack->first_piece[pack->count]; p++) {
        const sp_i_exec_piece *piece = &pack->piece[p];
        if (!own || piece->part == job->slices.place.part) {
            memcpy(to + piece->row - (own ? pack->own_row : 0),
                   from + job->token_at[piece->slice] + piece->at,
                   (size_t)piece->rows * sizeof *to);
        }
    }
}

static void pack_numbers(sp_i_exec_job *job, const sp_i_exec_pack *packs, size_t count)
{
    for (size_t p = 0; p < count; p++) {
        const int64_t at = packs[p].packed_at;
        pack_number(job, &packs[p], false, job->token, job->packed[SP_I_EXEC_TOKENS] + at);
        pack_number(job, &packs[p], false, job->target, job->packed[SP_I_EXEC_TARGETS] + at);
        if (job->model->positional == SP_LEARNED) {
            pack_number(job, &packs[p], false, job->position,
                        job->packed[SP_I_EXEC_POSITIONS] + at);
            pack_number(job, &packs[p], true, job->position,
                        job->packed[SP_I_EXEC_OWN_POSITIONS] + at);
        }
    }
}

void sp_i_exec_pack_numbers(sp_i_exec_job *job)
{
    pack_numbers(job, job->slices.forward, job->slices.forward_count);
    pack_numbers(job, job->slices.backward, job->slices.backward_count);
}

// ---- Exchanges of a stage's rank ----

void sp_i_exec_links_fini(sp_i_exec_links *links)
{
    sp_free(links->exchanges);
}

uint64_t sp_i_exec_exchange_begin(const sp_i_exec_links *links)
{
    return links->stamps ? links->runtime->ops->stamp(links->runtime)
                         : (uint64_t)sp_comm_clock_own(links->me);
}

bool sp_i_exec_exchange_end(sp_i_exec_links *links, sp_i_exec_exchange_kind kind, uint64_t begin,
                            sp_status status)
{
    uint64_t end = sp_i_exec_exchange_begin(links);
    links->status = status;
    if (status != SP_OK) {
        return false;
    }
    *SP_ADDED(links->exchanges, links->exchange_capacity, links->exchange_count) =
        (sp_i_exec_exchange){kind, begin, end};
    return true;
}

// ---- Units: a layer, embedding or LM head while an action works on it ----

sp_i_exec_unit sp_i_exec_layer_unit(int layer, sp_i_exec_unit_use use)
{
    return (sp_i_exec_unit){sp_i_exec_slot(layer, SP_PARAMETER_NORM1_WEIGHT),
                            SP_PARAMETER_LAYER_KINDS, use};
}

sp_i_exec_unit sp_i_exec_embedding_unit(const sp_i_exec_stage *stage, sp_i_exec_unit_use use)
{
    return (sp_i_exec_unit){sp_i_exec_slot(stage->model_part.layers, SP_PARAMETER_TOKEN_TABLE),
                            SP_PARAMETER_FINAL_WEIGHT - SP_PARAMETER_TOKEN_TABLE, use};
}

sp_i_exec_unit sp_i_exec_head_unit(const sp_i_exec_stage *stage, sp_i_exec_unit_use use)
{
    return (sp_i_exec_unit){sp_i_exec_slot(stage->model_part.layers, SP_PARAMETER_FINAL_WEIGHT),
                            SP_PARAMETER_KINDS - SP_PARAMETER_FINAL_WEIGHT, use};
}

// Does a split backward leave the slot's gradient to the weight gradients?
static bool is_product(const sp_i_exec_stage *stage, int slot)
{
    if (slot >= sp_i_exec_slot(stage->model_part.layers, SP_PARAMETER_TOKEN_TABLE)) {
        return slot == sp_i_exec_slot(stage->model_part.layers, SP_PARAMETER_HEAD_TABLE);
    }
    switch (slot % SP_PARAMETER_LAYER_KINDS) {
    case SP_PARAMETER_NORM1_WEIGHT:
    case SP_PARAMETER_NORM1_BIAS:
    case SP_PARAMETER_NORM2_WEIGHT:
    case SP_PARAMETER_NORM2_BIAS:
    case SP_PARAMETER_ROUTER_WEIGHT:
    case SP_PARAMETER_ROUTER_BIAS:
    case SP_PARAMETER_SHARED_GATE_WEIGHT:
    case SP_PARAMETER_Q_LATENT_NORM_WEIGHT:
    case SP_PARAMETER_Q_LATENT_NORM_BIAS:
    case SP_PARAMETER_KV_LATENT_NORM_WEIGHT:
    case SP_PARAMETER_KV_LATENT_NORM_BIAS:
        return false;
    default:
        return true;
    }
}

static bool writes(const sp_i_exec_stage *stage, int slot, sp_i_exec_unit_use use)
{
    return use == SP_I_EXEC_BACKWARD ||
           (use != SP_I_EXEC_FORWARD && is_product(stage, slot) == (use == SP_I_EXEC_WEIGHTS));
}

const sp_i_exec_share *sp_i_exec_share_of(const sp_i_exec_replicas *replicas, int64_t element)
{
    int64_t each = replicas->shares[0].end - replicas->shares[0].begin;
    return &replicas->shares[element / each];
}

// The first run of [begin, end) that one member keeps.
static int64_t run_end(const sp_i_exec_share *share, int64_t end)
{
    return share->end < end ? share->end : end;
}

// Copies elements [begin, begin + count) of the parameters. O(count + members).
static void gather_values(const sp_i_exec_replicas *replicas, int64_t begin, int64_t count,
                          void *to)
{
    int64_t bytes = replicas->value_bytes;
    int64_t end = begin + count;
    char *next = to;
    while (begin < end) {
        const sp_i_exec_share *share = sp_i_exec_share_of(replicas, begin);
        int64_t until = run_end(share, end);
        replicas->runtime->ops->copy(replicas->runtime, next,
                                     (const char *)share->values + (begin - share->begin) * bytes,
                                     (until - begin) * bytes);
        next += (until - begin) * bytes;
        begin = until;
    }
}

static bool open_slot(sp_i_exec_stage *stage, int slot, sp_i_exec_unit_use use)
{
    const sp_i_exec_range *range = &stage->range[slot];
    bool ok = true;
    if (stage->gathers && use != SP_I_EXEC_WEIGHTS) {
        stage->value[slot] =
            sp_i_exec_take(stage->arena, SP_MEM_WORKSPACE, range->count, stage->job->width.value);
        ok = stage->value[slot] != NULL;
        if (ok) {
            gather_values(stage->replicas, range->begin, range->count, stage->value[slot]);
        }
    }
    if (ok && stage->scatters && writes(stage, slot, use)) {
        stage->gradient[slot] = sp_i_exec_take_zeroed(stage->arena, SP_MEM_WORKSPACE, range->count,
                                                      stage->job->width.statistic);
        ok = stage->gradient[slot] != NULL;
    }
    return ok;
}

static bool close_slot(sp_i_exec_stage *stage, int slot, sp_i_exec_unit_use use)
{
    const sp_i_exec_range *range = &stage->range[slot];
    bool ok = true;
    if (stage->gathers && use != SP_I_EXEC_WEIGHTS) {
        sp_i_exec_give(stage->arena, stage->value[slot]);
        stage->value[slot] = NULL;
    }
    if (stage->scatters && writes(stage, slot, use)) {
        ok = sp_i_exec_scatter(stage->replicas, stage->member, range->begin, range->count,
                               stage->gradient[slot]);
        sp_i_exec_give(stage->arena, stage->gradient[slot]);
        stage->gradient[slot] = NULL;
    }
    return ok;
}

static bool for_slots(sp_i_exec_stage *stage, sp_i_exec_unit unit,
                      bool (*of_slot)(sp_i_exec_stage *stage, int slot, sp_i_exec_unit_use use))
{
    uint64_t begin = sp_i_exec_exchange_begin(stage->links);
    bool ok = true;
    for (int s = unit.slot; ok && s < unit.slot + unit.count; s++) {
        ok = stage->range[s].count == 0 || of_slot(stage, s, unit.use);
    }
    return ok && sp_i_exec_exchange_end(stage->links, SP_I_EXEC_DP, begin, SP_OK);
}

bool sp_i_exec_open(sp_i_exec_stage *stage, sp_i_exec_unit unit)
{
    return (!stage->gathers && !stage->scatters) || for_slots(stage, unit, open_slot);
}

bool sp_i_exec_close(sp_i_exec_stage *stage, sp_i_exec_unit unit)
{
    return (!stage->gathers && !stage->scatters) || for_slots(stage, unit, close_slot);
}

// ---- Shares of gradients and parameters ----

struct sp_i_exec_contribution {
    sp_i_exec_contribution *next;
    int64_t begin, count;
    void *gradient;
    sp_fence copied;
};

void sp_i_exec_replicas_init(sp_i_exec_replicas *replicas, sp_runtime *runtime, int count,
                             int64_t value_bytes, int64_t gradient_bytes,
                             void (*add)(int64_t n, const void *x, void *y))
{
    *replicas = (sp_i_exec_replicas){.runtime = runtime,
                                     .value_bytes = value_bytes,
                                     .gradient_bytes = gradient_bytes,
                                     .add = add};
    replicas->arena = sp_i_exec_arena_new_shared(runtime);
    pthread_mutex_init(&replicas->lock, NULL);
    replicas->shares = sp_calloc((size_t)count, sizeof *replicas->shares);
    replicas->contributors = sp_calloc((size_t)count, sizeof *replicas->contributors);
    replicas->count = count;
}

// A step that failed leaves some on their way.
static void drop_contributions(sp_i_exec_contributor *contributor)
{
    while (contributor->first != NULL) {
        sp_i_exec_contribution *contribution = contributor->first;
        contributor->first = contribution->next;
        sp_free(contribution);
    }
}

void sp_i_exec_replicas_fini(sp_i_exec_replicas *replicas)
{
    for (int m = 0; m < replicas->count; m++) {
        drop_contributions(&replicas->contributors[m]);
    }
    if (replicas->arena != NULL) {
        pthread_mutex_destroy(&replicas->lock);
    }
    sp_i_exec_arena_free(replicas->arena);
    sp_free(replicas->shares);
    sp_free(replicas->contributors);
    *replicas = (sp_i_exec_replicas){0};
}

static void add_up(sp_i_exec_replicas *r, int64_t begin, int64_t count, const void *gradient)
{
    int64_t end = begin + count;
    const char *next = gradient;
    r->runtime->ops->wait(r->runtime, r->added);
    while (begin < end) {
        const sp_i_exec_share *share = sp_i_exec_share_of(r, begin);
        int64_t until = run_end(share, end);
        r->add(until - begin, next,
               (char *)share->gradients + (begin - share->begin) * r->gradient_bytes);
        next += (until - begin) * r->gradient_bytes;
        begin = until;
    }
    r->added = r->runtime->ops->mark(r->runtime);
}

static void pass_turn(sp_i_exec_replicas *r)
{
    r->turn = (r->turn + 1) % r->count;
    r->round += r->turn == 0;
}

// Passes over members that give nothing more. False where all of them are done.
static bool find_turn(sp_i_exec_replicas *r)
{
    for (int i = 0; i < r->count; i++) {
        const sp_i_exec_contributor *contributor = &r->contributors[r->turn];
        if (!contributor->finished || r->round < contributor->given) {
            return true;
        }
        pass_turn(r);
    }
    return false;
}

// Adds what is on its way, as far as it is its turn.
static void add_waiting(sp_i_exec_replicas *r)
{
    while (find_turn(r) && r->contributors[r->turn].first != NULL) {
        sp_i_exec_contributor *contributor = &r->contributors[r->turn];
        sp_i_exec_contribution *contribution = contributor->first;
        r->runtime->ops->wait(r->runtime, contribution->copied);
        add_up(r, contribution->begin, contribution->count, contribution->gradient);
        contributor->first = contribution->next;
        sp_i_exec_give(r->arena, contribution->gradient);
        sp_free(contribution);
        pass_turn(r);
    }
}

static bool send(sp_i_exec_replicas *r, sp_i_exec_contributor *contributor, int64_t begin,
                 int64_t count, const void *gradient)
{
    const sp_i_exec_width width = {r->gradient_bytes, 0};
    void *copy = sp_i_exec_take(r->arena, SP_MEM_COMMUNICATION, count, width);
    if (copy == NULL) {
        return false;
    }
    sp_i_exec_contribution *contribution = sp_malloc(sizeof *contribution);
    r->runtime->ops->copy(r->runtime, copy, gradient, count * r->gradient_bytes);
    *contribution = (sp_i_exec_contribution){.begin = begin,
                                             .count = count,
                                             .gradient = copy,
                                             .copied = r->runtime->ops->mark(r->runtime)};
    if (contributor->first == NULL) {
        contributor->first = contribution;
    } else {
        contributor->last->next = contribution;
    }
    contributor->last = contribution;
    return true;
}

bool sp_i_exec_scatter(sp_i_exec_replicas *replicas, int member, int64_t begin, int64_t count,
                       const void *gradient)
{
    sp_i_exec_contributor *contributor = &replicas->contributors[member];
    bool ok = true;
    pthread_mutex_lock(&replicas->lock);
    bool now =
        find_turn(replicas) && replicas->turn == member && replicas->round == contributor->given;
    contributor->given++;
    if (now) {
        add_up(replicas, begin, count, gradient);
        pass_turn(replicas);
        add_waiting(replicas);
    } else {
        ok = send(replicas, contributor, begin, count, gradient);
    }
    pthread_mutex_unlock(&replicas->lock);
    return ok;
}

void sp_i_exec_scatter_end(sp_i_exec_replicas *replicas, int member)
{
    pthread_mutex_lock(&replicas->lock);
    replicas->contributors[member].finished = true;
    add_waiting(replicas);
    pthread_mutex_unlock(&replicas->lock);
}

void sp_i_exec_scatter_wait(sp_i_exec_replicas *replicas)
{
    pthread_mutex_lock(&replicas->lock);
    sp_fence added = replicas->added;
    pthread_mutex_unlock(&replicas->lock);
    replicas->runtime->ops->wait(replicas->runtime, added);
}

void sp_i_exec_scatter_begin(sp_i_exec_replicas *replicas)
{
    for (int m = 0; m < replicas->count; m++) {
        SP_ASSERT(replicas->contributors[m].first == NULL);
        replicas->contributors[m] = (sp_i_exec_contributor){0};
    }
    replicas->round = 0;
    replicas->turn = 0;
    replicas->added = (sp_fence){0};
}
