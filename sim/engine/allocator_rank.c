#include "sim/engine/allocator_private.h"

enum { NONE = -1 };

static bool is_backward(sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
}

// Where the next forward and backward stand, from each position on.
static void find_next(sp_i_rank_replay *l)
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

sp_status sp_i_rank_replay_init(sp_i_rank_replay *l, const sp_plan *plan,
                                const sp_rank_timeline *rank, const sp_model *model,
                                const sp_memory_options *options, const int32_t *forward_pack,
                                const int32_t *unit_row, sp_error *err)
{
    const sp_layout *layout = &plan->layout;
    const sp_stage_plan *stage = sp_plan_stage(plan, rank->dp, rank->pp);
    *l = (sp_i_rank_replay){.plan = plan,
                            .model = model,
                            .options = options,
                            .rank = rank,
                            .unit_row = unit_row,
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
    }
    l->next_forward[l->action_count] = NONE;
    l->next_backward[l->action_count] = NONE;
    find_next(l);
    sp_status status = sp_layout_stages(layout, model->layers, "plan", l->vstages, err);
    for (int c = 0; status == SP_OK && c < layout->chunks; c++) {
        l->stages[c] = l->vstages[sp_layout_vstage(layout, rank->pp, c)];
    }
    return status;
}

void sp_i_rank_replay_fini(sp_i_rank_replay *l)
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

static size_t unit_index(const sp_i_rank_replay *l, sp_action action)
{
    return (size_t)action.pack * (size_t)l->plan->layout.chunks + action.chunk;
}

static sp_i_unit_shape *make_shape(sp_i_rank_replay *l, const sp_pack *pack, int chunk)
{
    sp_error *err = l->memory.err;
    sp_i_unit_shape *shape = sp_arena_take(&l->work, 1, sizeof *shape);
    shape->before = l->last_shape;
    l->last_shape = shape;
    // Merged ranks share the tokens by context parallelism.
    sp_layout layout = l->plan->layout;
    layout.cp *= pack->dp_count;
    layout.dp /= pack->dp_count;
    l->memory.status =
        sp_tensor_program_build(l->model, &layout, &l->stages[chunk], l->options, pack->computed,
                                pack->kv_tokens, pack->full_pairs, &shape->program, err);
    if (l->memory.status == SP_OK) {
        sp_i_unit_shape_init(shape, l->options->offload_ratio);
    }
    return shape;
}

// Of no use where l->memory fails.
static const sp_i_unit_shape *shape_for(sp_i_rank_replay *l, sp_action action)
{
    sp_action row = action;
    row.pack = l->unit_row != NULL ? l->unit_row[action.pack] : action.pack;
    sp_i_unit_shape **known = &l->shape_of[unit_index(l, row)];
    if (*known == NULL) {
        *known = make_shape(l, &l->plan->packing->forward.packs[action.pack], action.chunk);
    }
    return *known;
}

static void release(sp_i_rank_replay *l, int32_t *block)
{
    sp_block_release(l->memory.blocks, *block);
    *block = SP_NO_BLOCK;
}

// The tensor that comes in from the neighbour for the action at `a`, if it needs one.
static void receive(sp_i_rank_replay *l, int32_t a)
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

static void run_unit(sp_i_rank_replay *l, sp_i_unit *unit, sp_program_pass pass)
{
    l->events += (int64_t)unit->shape->program.pass[pass].count;
    sp_i_unit_run(&l->memory, unit, pass);
}

static void run_forward(sp_i_rank_replay *l, size_t a)
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
    // What the last forward gave is on its way until this one ends.
    release(l, &l->sent);
    if (program->output != SP_NO_TENSOR) {
        l->sent = sp_i_unit_hand_over(unit, program->output);
    }
    receive(l, l->next_forward[a + 1]);
}

static void run_backward(sp_i_rank_replay *l, size_t a)
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
static void finish_copies(sp_i_rank_replay *l)
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

static void start_copy(sp_i_rank_replay *l, size_t a)
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

static void run_action(sp_i_rank_replay *l, size_t a)
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
static bool first_gradient_comes(const sp_i_rank_replay *l, size_t a)
{
    size_t next = a + 1;
    while (next < l->action_count && sp_action_is_copy(l->actions[next])) {
        next++;
    }
    return l->next_backward[a] == (int32_t)a || l->next_backward[a] == (int32_t)next;
}

// All but the load buffers, which come with the first step and stay.
static int64_t held_between_steps(const sp_i_rank_replay *l)
{
    int64_t bytes = sp_block_allocator_allocated(l->memory.blocks);
    for (int b = 0; b < SP_I_BUFFERS; b++) {
        const sp_i_load_buffer *buffer = &l->memory.buffers[b];
        bytes -= buffer->bytes > 0 ? sp_block_bytes(l->memory.blocks, buffer->block) : 0;
    }
    return bytes;
}

sp_status sp_i_rank_replay_step(sp_i_rank_replay *l)
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
