#include "sim/simulate/allocator_replay.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/simulate/allocator_units.h"
#include "sim/simulate/engine.h"

// One rank of a timeline as an allocator sees it: its units, what passes between them, its copies,
// and what their replays need.
typedef struct rank_replay {
    const sp_plan *plan;
    const sp_model *model;
    const sp_memory_options *options;
    const sp_rank_timeline *rank;
    // The rank's actions; backward packs by the number of their forward pack.
    sp_action *actions;
    size_t action_count;
    bool splits;       // some backwards, into gradients apart
    sp_stage *vstages; // [pp * chunks]
    sp_stage *stages;  // [chunks]: of this rank
    // Shapes of units, at [row * chunks + chunk], made when first asked for: packs of one row of
    // the costs (sp_step_costs.unit_row) share them.
    sp_i_unit_shape **shape_of;
    sp_i_unit_shape *last_shape; // and by it all others; owned
    const sp_step_costs *costs;
    sp_i_unit *units;       // [packs * chunks]
    int32_t *next_forward;  // [actions]: the first forward at or behind it, or -1
    int32_t *next_backward; // [actions]: the first B or I at or behind it, or -1
    sp_i_unit_memory memory;
    // Memory between units.
    int32_t received, received_gradient; // for the next forward and backward
    int32_t sent, sent_gradient;         // by the last ones
    // Copies under way, by unit, or NULL.
    sp_i_unit *leaving, *coming;
    int64_t events;       // replayed so far
    int64_t enough_bytes; // reserved beyond them end a step: no more is asked
    sp_arena work;        // holds the arrays
} rank_replay;

enum { NONE = -1 };

static bool is_backward(sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
}

// Where the next forward and backward stand, from each position on.
static void find_next(rank_replay *l)
{
    int32_t forward = NONE;
    int32_t backward = NONE;
    for (size_t a = l->action_count; a-- > 0;) {
        sp_action action = l->actions[a];
        forward = action.kind == SP_ACTION_F ? (int32_t)a : forward;
        backward = is_backward(action) ? (int32_t)a : backward;
        l->next_forward[a] = forward;
        l->next_backward[a] = backward;
    }
}

// forward_pack: the forward pack of each backward pack; NULL where they are the same list.
// To be freed with rank_replay_fini whatever comes back.
static sp_status rank_replay_init(rank_replay *l, const sp_plan *plan, const sp_rank_timeline *rank,
                                  const sp_model *model, const sp_memory_options *options,
                                  const int32_t *forward_pack, const sp_step_costs *costs,
                                  sp_error *err)
{
    const sp_layout *layout = &plan->layout;
    const sp_stage_plan *stage = sp_plan_stage(plan, rank->dp, rank->pp);
    *l = (rank_replay){.plan = plan,
                       .model = model,
                       .options = options,
                       .rank = rank,
                       .costs = costs,
                       .action_count = stage->count};
    size_t chunks = (size_t)layout->chunks;
    size_t units = plan->packing->forward.count * chunks;
    size_t vstages = (size_t)sp_layout_vstages(layout);
    l->vstages = sp_arena_take(&l->work, vstages, sizeof *l->vstages);
    l->stages = sp_arena_take(&l->work, chunks, sizeof *l->stages);
    l->shape_of = sp_arena_take(&l->work, units, sizeof(*l->shape_of));
    l->units = sp_arena_take(&l->work, units, sizeof *l->units);
    l->actions = sp_arena_take(&l->work, stage->count, sizeof *l->actions);
    l->next_forward = sp_arena_take(&l->work, stage->count + 1, sizeof *l->next_forward);
    l->next_backward = sp_arena_take(&l->work, stage->count + 1, sizeof *l->next_backward);
    for (size_t a = 0; a < stage->count; a++) {
        sp_action action = stage->actions[a];
        bool of_backward = is_backward(action) || action.kind == SP_ACTION_W;
        action.pack = of_backward && forward_pack != NULL ? forward_pack[action.pack] : action.pack;
        l->actions[a] = action;
        l->splits = l->splits || (is_backward(action) && sp_depends_splits(action));
    }
    l->next_forward[l->action_count] = NONE;
    l->next_backward[l->action_count] = NONE;
    find_next(l);
    SP_TRY(sp_layout_stages(layout, model, "plan", l->vstages, err));
    for (int c = 0; c < layout->chunks; c++) {
        l->stages[c] = l->vstages[sp_layout_vstage(layout, rank->pp, c)];
    }
    return SP_OK;
}

static void rank_replay_fini(rank_replay *l)
{
    size_t units = l->plan->packing->forward.count * (size_t)l->plan->layout.chunks;
    for (sp_i_unit_shape *shape = l->last_shape; shape != NULL; shape = shape->before) {
        sp_i_unit_shape_fini(shape);
    }
    for (size_t i = 0; i < units; i++) {
        sp_i_unit_end(&l->units[i]);
    }
    sp_arena_free(&l->work);
}

static size_t unit_index(const rank_replay *l, sp_action action)
{
    return (size_t)action.pack * (size_t)l->plan->layout.chunks + action.chunk;
}

static sp_i_unit_shape *make_shape(rank_replay *l, int32_t index, int chunk)
{
    const sp_pack *pack = &l->plan->packing->forward.packs[index];
    sp_i_unit_shape *shape = sp_arena_take(&l->work, 1, sizeof *shape);
    shape->before = l->last_shape;
    l->last_shape = shape;
    // Merged ranks share the tokens by context parallelism.
    sp_layout layout = l->plan->layout;
    layout.cp *= pack->dp_count;
    layout.dp /= pack->dp_count;
    const sp_unit_load load = {.tokens = pack->computed,
                               .kv_tokens = pack->kv_tokens,
                               .pairs = pack->full_pairs,
                               .expert_tokens = l->costs->side[0].pack[index].expert_tokens,
                               .whole = !l->splits};
    sp_tensor_program_build(l->model, &layout, &l->stages[chunk], l->options, &load,
                            &shape->program);
    sp_i_unit_shape_init(shape, l->options->offload_ratio);
    return shape;
}

static const sp_i_unit_shape *shape_for(rank_replay *l, sp_action action)
{
    sp_action row = action;
    const int32_t *row_of = l->costs->side[0].unit_row;
    row.pack = row_of != NULL ? row_of[action.pack] : action.pack;
    sp_i_unit_shape **known = &l->shape_of[unit_index(l, row)];
    if (*known == NULL) {
        *known = make_shape(l, action.pack, action.chunk);
    }
    return *known;
}

static void release(rank_replay *l, int32_t *block)
{
    sp_block_release(l->memory.blocks, *block);
    *block = SP_NO_BLOCK;
}

// The tensor that comes in from the neighbour for the action at `a`, if it needs one.
static void receive(rank_replay *l, int32_t a)
{
    if (a == NONE || l->memory.status != SP_OK) {
        return;
    }
    bool forward = l->actions[a].kind == SP_ACTION_F;
    const sp_i_unit_shape *shape = shape_for(l, l->actions[a]);
    if (l->memory.status != SP_OK) {
        return;
    }
    int32_t tensor = forward ? shape->program.input : shape->program.output_gradient;
    if (tensor != SP_NO_TENSOR) {
        *(forward ? &l->received : &l->received_gradient) =
            sp_i_take(&l->memory, shape->program.tensors[tensor].bytes);
    }
}

static void run_unit(rank_replay *l, sp_i_unit *unit, sp_program_pass pass)
{
    l->events += (int64_t)unit->shape->program.pass[pass].count;
    sp_i_unit_run(&l->memory, unit, pass);
}

static void run_forward(rank_replay *l, size_t a)
{
    sp_i_unit *unit = &l->units[unit_index(l, l->actions[a])];
    const sp_i_unit_shape *shape = shape_for(l, l->actions[a]);
    if (l->memory.status != SP_OK) {
        return;
    }
    sp_i_unit_begin(unit, shape);
    const sp_tensor_program *program = &shape->program;
    if (program->input != SP_NO_TENSOR) {
        sp_i_unit_adopt(unit, program->input, l->received);
        l->received = SP_NO_BLOCK;
    }
    run_unit(l, unit, SP_PROGRAM_FORWARD);
    // The output of the last forward is being sent until this one ends.
    release(l, &l->sent);
    if (program->output != SP_NO_TENSOR) {
        l->sent = sp_i_unit_hand_over(unit, program->output);
    }
    receive(l, l->next_forward[a + 1]);
}

static void run_backward(rank_replay *l, size_t a)
{
    sp_action action = l->actions[a];
    bool split = sp_depends_splits(action);
    sp_i_unit *unit = &l->units[unit_index(l, action)];
    const sp_tensor_program *program = &unit->shape->program;
    if (program->output_gradient != SP_NO_TENSOR) {
        sp_i_unit_adopt(unit, program->output_gradient, l->received_gradient);
        l->received_gradient = SP_NO_BLOCK;
    }
    run_unit(l, unit, split ? SP_PROGRAM_INPUT_GRADIENT : SP_PROGRAM_BACKWARD);
    release(l, &l->sent_gradient);
    int32_t gradient = program->input_gradient[split];
    if (gradient != SP_NO_TENSOR) {
        l->sent_gradient = sp_i_unit_hand_over(unit, gradient);
    }
    if (!split) {
        sp_i_unit_end(unit);
    }
    if (l->next_forward[a] == NONE) {
        release(l, &l->sent);
    }
    receive(l, l->next_backward[a + 1]);
}

// The program waits for copies before it starts others and before a backward.
static void finish_copies(rank_replay *l)
{
    if (l->coming != NULL) {
        sp_i_load_end(&l->memory, l->coming);
    }
    if (l->leaving != NULL) {
        sp_i_offload_end(&l->memory, l->leaving);
    }
    l->coming = NULL;
    l->leaving = NULL;
}

static void start_copy(rank_replay *l, size_t a)
{
    sp_action action = l->actions[a];
    sp_i_unit *unit = &l->units[unit_index(l, action)];
    sp_i_unit **under_way = action.kind == SP_ACTION_O ? &l->leaving : &l->coming;
    bool first = a == 0 || !sp_action_is_copy(l->actions[a - 1]);
    if (first || *under_way != NULL || l->leaving == unit) {
        finish_copies(l);
    }
    *under_way = unit;
    if (action.kind == SP_ACTION_O) {
        sp_i_offload_begin(&l->memory, unit);
    } else {
        sp_i_load_begin(&l->memory, unit);
    }
}

static void run_action(rank_replay *l, size_t a)
{
    sp_action action = l->actions[a];
    sp_i_unit *unit = &l->units[unit_index(l, action)];
    if (is_backward(action)) {
        bool fresh = a > 0 && sp_action_is_copy(l->actions[a - 1]);
        if (!fresh || l->coming == unit) {
            finish_copies(l);
        }
        run_backward(l, a);
    } else if (sp_action_is_copy(action)) {
        start_copy(l, a);
    } else if (action.kind == SP_ACTION_F) {
        run_forward(l, a);
    } else if (action.kind == SP_ACTION_W) {
        run_unit(l, unit, SP_PROGRAM_WEIGHT_GRADIENT);
        sp_i_unit_end(unit);
    }
}

// The gradient for the first backward is asked for one action before it.
static bool first_gradient_comes(const rank_replay *l, size_t a)
{
    size_t next = a + 1;
    while (next < l->action_count && sp_action_is_copy(l->actions[next])) {
        next++;
    }
    return l->next_backward[a] == (int32_t)a || l->next_backward[a] == (int32_t)next;
}

static bool is_enough(const rank_replay *l)
{
    return sp_block_allocator_reserved(l->memory.blocks) > l->enough_bytes;
}

// All but the load buffers, which come with the first step and stay.
static int64_t held_between_steps(const rank_replay *l)
{
    int64_t bytes = sp_block_allocator_allocated(l->memory.blocks);
    for (int b = 0; b < SP_I_BUFFERS; b++) {
        const sp_i_load_buffer *buffer = &l->memory.buffers[b];
        bytes -= buffer->bytes > 0 ? sp_block_bytes(l->memory.blocks, buffer->block) : 0;
    }
    return bytes;
}

// One step on l->memory, which afterwards holds what it held before, and the load buffers; nothing
// where that failed before. Where it reserves more than enough, it ends there, and holds what it
// held then.
static sp_status rank_replay_step(rank_replay *l)
{
    sp_i_unit_memory *memory = &l->memory;
    if (memory->status != SP_OK) {
        return memory->status;
    }
    l->received = l->received_gradient = l->sent = l->sent_gradient = SP_NO_BLOCK;
    l->leaving = l->coming = NULL;
    bool asked = false;
    int64_t before = held_between_steps(l);
    receive(l, l->next_forward[0]);
    for (size_t a = 0; memory->status == SP_OK && a < l->action_count; a++) {
        if (is_enough(l)) {
            return SP_OK;
        }
        if (!asked && !sp_action_is_copy(l->actions[a]) && first_gradient_comes(l, a)) {
            asked = true;
            receive(l, l->next_backward[a]);
        }
        if (memory->status == SP_OK) {
            run_action(l, a);
        }
    }
    release(l, &l->sent);
    release(l, &l->sent_gradient);
    int64_t rest = held_between_steps(l) - before;
    if (memory->status == SP_OK && rest != 0) {
        memory->status = sp_error_set(memory->err, SP_ERR_INTERNAL,
                                      "allocations of dp %d pp %d do not drain: %lld bytes remain",
                                      l->rank->dp, l->rank->pp, (long long)rest);
    }
    return memory->status;
}

// Ranks whose plain peak would have to grow by more than this are not replayed. In the measured
// configurations of kwai/Megatron-Kwai (branch atc24ae) blocks add up to 3 %.
#define MOST_OVER_PLAIN 1.05

enum {
    RANKS = 8,           // replayed at most
    RANKS_PER_STAGE = 2, // of one pipeline rank
    EXACT = 3,           // of the data-parallel ranks that a replayed one stands for
    EVENTS = 13000000,   // after so many allocations and releases nothing more is begun
    // Forwards and backwards of a layer that one rank runs. Beyond, its replay alone would take
    // over 5 s (about 5 us for each of them).
    MOST_LAYER_PASSES = 1 << 20
};

const char SP_REPLAY_TOO_LONG[] = "a rank runs more than 1048576 forwards and backwards of layers";

static sp_status rank_peak(rank_replay *l, int64_t enough_bytes, sp_allocator_peak *peak,
                           sp_error *err);

size_t sp_layer_passes(const sp_timeline *timeline, const sp_model *model)
{
    size_t most = 0;
    for (size_t r = 0; r < timeline->rank_count; r++) {
        size_t count = timeline->ranks[r].count;
        most = count > most ? count : most;
    }
    return most * (size_t)model->layers / (size_t)sp_layout_vstages(&timeline->plan->layout);
}

// Finds the forward pack of every backward pack; *packs stays NULL where they are the same list.
static void match_packs(const sp_plan *plan, int32_t **packs, const char **obstacle)
{
    const sp_pack_list *backward = &plan->packing->backward;
    const sp_pack_list *forward = &plan->packing->forward;
    int32_t *of_slice = NULL;
    sp_regroup(plan->packing, &of_slice);
    if (of_slice == NULL) {
        return;
    }
    *packs = sp_malloc(backward->count * sizeof(**packs));
    for (size_t k = 0; k < backward->count; k++) {
        const sp_pack *pack = &backward->packs[k];
        (*packs)[k] = pack->slice_count > 0 ? of_slice[pack->first_slice] : 0;
        bool same =
            pack->slice_count > 0 && forward->packs[(*packs)[k]].slice_count == pack->slice_count;
        for (size_t s = 0; s < pack->slice_count; s++) {
            same = same && of_slice[pack->first_slice + s] == (*packs)[k];
        }
        if (!same) {
            *obstacle = "backward packs free parts of what several forward packs hold";
        }
    }
    sp_free(of_slice);
}

// The forward pack of every backward pack (match_packs), or why the step has no such view.
static void prepare(const sp_timeline *timeline, const sp_step_costs *costs, const sp_model *model,
                    const sp_memory_options *options, int32_t **forward_pack, const char **obstacle)
{
    *forward_pack = NULL;
    *obstacle = NULL;
    if (sp_layer_passes(timeline, model) > MOST_LAYER_PASSES) {
        *obstacle = SP_REPLAY_TOO_LONG;
        return;
    }
    if (costs->side[0].unit == NULL) {
        *obstacle = "uniform costs know no bytes";
        return;
    }
    match_packs(timeline->plan, forward_pack, obstacle);
    if (options->stack.tensors == SP_TENSORS_EXPLICIT) {
        *obstacle = "tensors of the stack are not PyTorch's";
    }
    if (*forward_pack != NULL && sp_plan_find(timeline->plan, SP_ACTION_R) != NULL) {
        *obstacle = "forwards run again";
    }
}

static sp_status replay_fullest(const sp_timeline *timeline, const sp_step_costs *costs,
                                const sp_memory_timeline *memory, const sp_model *model,
                                const sp_memory_options *options, const int32_t *forward_pack,
                                int64_t enough_bytes, sp_allocator_peak *peak, sp_error *err);

static sp_status replay_one(const sp_timeline *timeline, const sp_model *model,
                            const sp_memory_options *options, const int32_t *forward_pack,
                            const sp_step_costs *costs, sp_world_rank which,
                            sp_allocator_peak *peak, sp_error *err);

static sp_status replay(const sp_timeline *timeline, const sp_step_costs *costs,
                        const sp_memory_timeline *memory, const sp_model *model,
                        const sp_memory_options *options, const int32_t *forward_pack,
                        sp_world_rank which, sp_allocator_peak *peak, sp_error *err)
{
    return which == SP_NO_RANK
               ? replay_fullest(timeline, costs, memory, model, options, forward_pack, INT64_MAX,
                                peak, err)
               : replay_one(timeline, model, options, forward_pack, costs, which, peak, err);
}

// Reserved are also inputs that another stream may still read, where the stack has such.
static sp_memory_options with_lingering(const sp_memory_options *options)
{
    sp_memory_options kept = *options;
    kept.stack.keep_gathered_inputs =
        kept.stack.keep_gathered_inputs || kept.stack.lingering_inputs;
    return kept;
}

sp_status sp_allocator_replay(const sp_timeline *timeline, const sp_step_costs *costs,
                              const sp_memory_timeline *memory, const sp_model *model,
                              const sp_memory_options *options, sp_world_rank which,
                              sp_allocator_peak *peak, const char **obstacle, sp_error *err)
{
    int32_t *forward_pack;
    *peak = (sp_allocator_peak){0};
    sp_status status = SP_OK;
    prepare(timeline, costs, model, options, &forward_pack, obstacle);
    bool known = *obstacle == NULL;
    if (known) {
        status = replay(timeline, costs, memory, model, options, forward_pack, which, peak, err);
    }
    if (known && status == SP_OK && options->stack.lingering_inputs) {
        sp_allocator_peak with = {0};
        const sp_memory_options kept = with_lingering(options);
        status = replay(timeline, costs, memory, model, &kept, forward_pack, which, &with, err);
        peak->reserved_bytes = sp_larger(peak->reserved_bytes, with.reserved_bytes);
        peak->least_bytes = sp_larger(peak->least_bytes, with.least_bytes);
    }
    sp_free(forward_pack);
    return status;
}

sp_status sp_allocator_reserved(const sp_timeline *timeline, const sp_step_costs *costs,
                                const sp_memory_timeline *memory, const sp_model *model,
                                const sp_memory_options *options, int64_t enough_bytes,
                                int64_t *reserved_bytes, const char **obstacle, sp_error *err)
{
    int32_t *forward_pack;
    sp_allocator_peak peak = {0};
    const sp_memory_options kept = with_lingering(options);
    sp_status status = SP_OK;
    prepare(timeline, costs, model, options, &forward_pack, obstacle);
    if (*obstacle == NULL) {
        status = replay_fullest(timeline, costs, memory, model, &kept, forward_pack, enough_bytes,
                                &peak, err);
    }
    *reserved_bytes = peak.reserved_bytes;
    sp_free(forward_pack);
    return status;
}

// Ranks of one pipeline rank whose lists are alike, and the largest plain peak of them.
typedef struct alike_rank {
    sp_rank_timeline rank;
    int64_t plain_bytes;
} alike_rank;

// May a rank be replayed after those chosen? Data-parallel ranks of one pipeline rank are too much
// alike to fill all places.
static bool is_open(const alike_rank *ranks, const size_t *chosen, size_t count, size_t rank)
{
    int alike = 0;
    for (size_t i = 0; i < count; i++) {
        if (chosen[i] == rank) {
            return false;
        }
        alike += ranks[chosen[i]].rank.pp == ranks[rank].rank.pp;
    }
    return alike < RANKS_PER_STAGE;
}

// The rank of the largest plain peak that comes next; false: none does.
static bool choose_rank(const alike_rank *ranks, size_t rank_count, size_t chosen[RANKS],
                        size_t count)
{
    bool found = false;
    for (size_t r = 0; r < rank_count; r++) {
        bool larger = !found || ranks[r].plain_bytes > ranks[chosen[count]].plain_bytes;
        if (larger && is_open(ranks, chosen, count, r)) {
            chosen[count] = r;
            found = true;
        }
    }
    return found;
}

static sp_status replay_ranks(const alike_rank *ranks, size_t rank_count, const sp_plan *plan,
                              const sp_model *model, const sp_memory_options *options,
                              const int32_t *forward_pack, const sp_step_costs *costs,
                              int64_t enough_bytes, sp_allocator_peak *peak, sp_error *err)
{
    size_t chosen[RANKS];
    int64_t events = 0;
    sp_status status = SP_OK;
    for (size_t i = 0; status == SP_OK && i < RANKS && events <= EVENTS; i++) {
        if (peak->reserved_bytes > enough_bytes || !choose_rank(ranks, rank_count, chosen, i) ||
            MOST_OVER_PLAIN * (double)ranks[chosen[i]].plain_bytes <
                (double)peak->allocated_bytes) {
            break;
        }
        rank_replay l;
        status = rank_replay_init(&l, plan, &ranks[chosen[i]].rank, model, options, forward_pack,
                                  costs, err);
        l.events = events;
        if (status == SP_OK) {
            status = rank_peak(&l, enough_bytes, peak, err);
        }
        events = l.events;
        rank_replay_fini(&l);
    }
    return status;
}

static void list_ranks(const sp_timeline *timeline, const sp_memory_timeline *memory,
                       const sp_alike_ranks *alike, alike_rank *ranks)
{
    size_t pp = (size_t)timeline->plan->layout.pp;
    for (size_t r = 0; r < (size_t)alike->kinds * pp; r++) {
        const int *dp = alike->members + alike->first[r / pp];
        int count = alike->first[r / pp + 1] - alike->first[r / pp];
        ranks[r].rank = timeline->ranks[(size_t)dp[0] * pp + r % pp];
        ranks[r].rank.alike = count;
        ranks[r].rank.dp_alike = dp;
        ranks[r].plain_bytes = 0;
        for (int i = 0; i < count; i++) {
            const sp_bytes *plain = &memory->ranks[(size_t)dp[i] * pp + r % pp].peak;
            ranks[r].plain_bytes = sp_larger(ranks[r].plain_bytes, sp_bytes_total(plain));
        }
    }
}

// Allocations of ranks follow from their lists: those that are alike are replayed as such also
// where each of them ran for itself.
static sp_status replay_fullest(const sp_timeline *timeline, const sp_step_costs *costs,
                                const sp_memory_timeline *memory, const sp_model *model,
                                const sp_memory_options *options, const int32_t *forward_pack,
                                int64_t enough_bytes, sp_allocator_peak *peak, sp_error *err)
{
    const sp_plan *plan = timeline->plan;
    size_t count = timeline->rank_count;
    sp_alike_ranks alike = {0};
    alike_rank *ranks = sp_calloc(count, sizeof *ranks);
    if (count == (size_t)plan->layout.dp * (size_t)plan->layout.pp) {
        sp_i_fold(plan, costs, false, &alike);
        list_ranks(timeline, memory, &alike, ranks);
        count = (size_t)alike.kinds * (size_t)plan->layout.pp;
    }
    for (size_t r = 0; alike.members == NULL && r < count; r++) {
        ranks[r] = (alike_rank){timeline->ranks[r], sp_bytes_total(&memory->ranks[r].peak)};
    }
    sp_status status = replay_ranks(ranks, count, plan, model, options, forward_pack, costs,
                                    enough_bytes, peak, err);
    sp_i_alike_fini(&alike);
    sp_free(ranks);
    return status;
}

static bool same_pieces(const sp_i_pieces *a, const sp_i_pieces *b)
{
    return a->count == b->count &&
           (a->count == 0 || memcmp(a->elements, b->elements, a->count * sizeof *a->elements) == 0);
}

// The first step of a data-parallel rank with these pieces; makes l->memory.blocks.
static void first_step(rank_replay *l, const sp_i_pieces *pieces, const sp_i_largest *largest,
                       int64_t enough_bytes, sp_error *err)
{
    l->enough_bytes = enough_bytes;
    const sp_stack *stack = &l->options->stack;
    l->memory =
        (sp_i_unit_memory){.blocks = sp_block_allocator_new(stack->split_limit_bytes), .err = err};
    sp_i_allocate_states(&l->memory, l->model, &l->plan->layout, l->stages, pieces, stack, largest);
    rank_replay_step(l);
}

static void free_blocks(rank_replay *l)
{
    sp_block_allocator_free(l->memory.blocks);
    l->memory.blocks = NULL;
}

static sp_status two_steps(rank_replay *l, const sp_i_pieces *pieces, const sp_i_largest *largest,
                           int64_t enough_bytes, sp_allocator_peak *peak, sp_error *err)
{
    first_step(l, pieces, largest, enough_bytes, err);
    if (!is_enough(l)) {
        sp_i_allocate_moments(&l->memory, pieces, &l->options->stack);
        rank_replay_step(l);
    }
    if (l->memory.status == SP_OK) {
        int64_t allocated = sp_block_allocator_peak(l->memory.blocks);
        int64_t reserved = sp_block_allocator_reserved(l->memory.blocks);
        peak->allocated_bytes =
            allocated > peak->allocated_bytes ? allocated : peak->allocated_bytes;
        peak->reserved_bytes = reserved > peak->reserved_bytes ? reserved : peak->reserved_bytes;
        peak->least_bytes =
            sp_larger(peak->least_bytes, sp_block_allocator_least(l->memory.blocks));
    }
    free_blocks(l);
    return l->memory.status;
}

static sp_i_largest largest_of(const rank_replay *l)
{
    const sp_pack_list *list = &l->plan->packing->forward;
    bool scored = l->options->attention == SP_ATTENTION_UNFUSED;
    sp_i_largest largest = {0};
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        int64_t tokens = pack->computed / pack->dp_count;
        int64_t pairs = scored ? pack->full_pairs / pack->dp_count : 0;
        largest.tokens = tokens > largest.tokens ? tokens : largest.tokens;
        largest.pairs = pairs > largest.pairs ? pairs : largest.pairs;
    }
    return largest;
}

// Data-parallel ranks that a replayed rank stands for and that have equal pieces: their replays are
// equal.
typedef struct candidate {
    sp_i_pieces pieces;
    int64_t state_bytes; // of its optimizer, in blocks
    bool done;           // replayed
} candidate;

// Bytes that the optimizer of each rank takes when its moments come out of what a first step left.
static sp_status weigh(const rank_replay *l, candidate *ranks, size_t count)
{
    sp_error *err = l->memory.err;
    sp_status status = l->memory.status;
    for (size_t r = 0; status == SP_OK && r < count; r++) {
        sp_i_unit_memory copy = {.blocks = sp_block_allocator_copy(l->memory.blocks), .err = err};
        copy.status =
            sp_i_master_bytes(&ranks[r].pieces, &l->options->stack, &ranks[r].state_bytes, err);
        sp_i_allocate_moments(&copy, &ranks[r].pieces, &l->options->stack);
        if (copy.status == SP_OK) {
            ranks[r].state_bytes += sp_block_allocator_allocated(copy.blocks);
        }
        sp_block_allocator_free(copy.blocks);
        status = copy.status;
    }
    return status;
}

static sp_status replay_alike(rank_replay *l, candidate *ranks, size_t count, int64_t enough_bytes,
                              sp_allocator_peak *peak, sp_error *err)
{
    sp_i_largest largest = largest_of(l);
    sp_status status = SP_OK;
    if (count > 1) {
        first_step(l, &ranks[0].pieces, &largest, INT64_MAX, err);
        status = weigh(l, ranks, count);
        free_blocks(l);
    }
    for (int n = 0; status == SP_OK && n < EXACT && (n == 0 || l->events <= EVENTS); n++) {
        candidate *next = NULL;
        for (size_t r = 0; r < count; r++) {
            if (!ranks[r].done && (next == NULL || ranks[r].state_bytes > next->state_bytes)) {
                next = &ranks[r];
            }
        }
        if (next == NULL || peak->reserved_bytes > enough_bytes) {
            break;
        }
        status = two_steps(l, &next->pieces, &largest, enough_bytes, peak, err);
        next->done = true;
    }
    return status;
}

static bool is_among(const candidate *ranks, size_t count, const sp_i_pieces *pieces)
{
    for (size_t r = count; r-- > 0;) {
        if (same_pieces(&ranks[r].pieces, pieces)) {
            return true;
        }
    }
    return false;
}

// Each of the first `count` data-parallel ranks that the rank stands for, but for those that have
// the pieces of an earlier one; returns how many.
static size_t find_candidates(const rank_replay *l, size_t count, candidate *ranks)
{
    const sp_layout *layout = &l->plan->layout;
    size_t found = 0;
    for (size_t r = 0; r < count; r++) {
        sp_i_pieces pieces = {0};
        int64_t rank = (int64_t)l->rank->dp_alike[r / (size_t)layout->cp] * layout->cp +
                       (int64_t)(r % (size_t)layout->cp);
        sp_i_optimizer_pieces(l->model, layout, l->stages, rank, &pieces);
        sp_i_pieces_leave(&pieces, l->options->stack.offload_states);
        if (!is_among(ranks, found, &pieces)) {
            ranks[found++].pieces = pieces;
        } else {
            sp_free(pieces.elements);
        }
    }
    return found;
}

// The data-parallel ranks that the rank stands for differ in their pieces alone, and not at all
// where each has all of them.
static sp_status rank_peak(rank_replay *l, int64_t enough_bytes, sp_allocator_peak *peak,
                           sp_error *err)
{
    const sp_layout *layout = &l->plan->layout;
    size_t count = layout->zero >= 1 ? (size_t)l->rank->alike * (size_t)layout->cp : 1;
    candidate *ranks = sp_calloc(count, sizeof *ranks);
    size_t found = find_candidates(l, count, ranks);
    sp_status status = replay_alike(l, ranks, found, enough_bytes, peak, err);
    for (size_t r = 0; r < found; r++) {
        sp_free(ranks[r].pieces.elements);
    }
    sp_free(ranks);
    return status;
}

static bool stands_for(const sp_rank_timeline *rank, int pp, int dp)
{
    bool found = false;
    for (int i = 0; i < rank->alike; i++) {
        found = found || rank->dp_alike[i] == dp;
    }
    return found && rank->pp == pp;
}

static sp_status replay_one(const sp_timeline *timeline, const sp_model *model,
                            const sp_memory_options *options, const int32_t *forward_pack,
                            const sp_step_costs *costs, sp_world_rank which,
                            sp_allocator_peak *peak, sp_error *err)
{
    const sp_layout *layout = &timeline->plan->layout;
    bool last = which == SP_LAST_RANK;
    int pp = last ? layout->pp - 1 : 0;
    int dp = last ? layout->dp - 1 : 0;
    size_t r = 0;
    while (r < timeline->rank_count && !stands_for(&timeline->ranks[r], pp, dp)) {
        r++;
    }
    SP_ASSERT(r < timeline->rank_count);
    rank_replay l;
    sp_i_pieces pieces = {0};
    sp_status status = rank_replay_init(&l, timeline->plan, &timeline->ranks[r], model, options,
                                        forward_pack, costs, err);
    if (status == SP_OK) {
        int64_t share = last ? (int64_t)layout->dp * layout->cp - 1 : 0;
        sp_i_optimizer_pieces(model, layout, l.stages, share, &pieces);
        sp_i_pieces_leave(&pieces, options->stack.offload_states);
        sp_i_largest largest = largest_of(&l);
        status = two_steps(&l, &pieces, &largest, INT64_MAX, peak, err);
    }
    sp_free(pieces.elements);
    rank_replay_fini(&l);
    return status;
}
