#include "sim/cost/action_cost.h"
#include "sim/engine/allocator_private.h"

#include "sim/base/alloc.h"
#include "sim/model/tensor_program.h"

enum { NONE = -1 };

static bool is_backward(sp_action action)
{
    return action.kind == SP_ACTION_B || action.kind == SP_ACTION_I;
}

// Where the next forward and backward stand, from each position on.
static void find_next(sp_i_lane *l)
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

sp_status sp_i_lane_init(sp_i_lane *l, const sp_plan *plan, const sp_rank_timeline *rank,
                         const sp_model *model, const sp_memory_options *options,
                         const int32_t *forward_pack, sp_error *err)
{
    const sp_layout *layout = &plan->layout;
    const sp_stage_plan *stage = sp_plan_stage(plan, rank->dp, rank->pp);
    *l = (sp_i_lane){.plan = plan,
                     .model = model,
                     .options = options,
                     .rank = rank,
                     .action_count = stage->count};
    size_t chunks = (size_t)layout->chunks;
    size_t units = plan->packing->forward.count * chunks;
    l->vstages = sp_i_calloc((size_t)sp_layout_vstages(layout), sizeof *l->vstages);
    l->stages = sp_i_calloc(chunks, sizeof *l->stages);
    l->shape_of = sp_i_calloc(units, sizeof(*l->shape_of));
    l->shaped_for = sp_i_calloc(chunks, sizeof(*l->shaped_for));
    l->units = sp_i_calloc(units, sizeof *l->units);
    l->actions = sp_i_calloc(stage->count, sizeof *l->actions);
    l->next_forward = sp_i_calloc(l->action_count + 1, sizeof *l->next_forward);
    l->next_backward = sp_i_calloc(l->action_count + 1, sizeof *l->next_backward);
    if (l->vstages == NULL || l->stages == NULL || l->shape_of == NULL || l->shaped_for == NULL ||
        l->units == NULL || l->actions == NULL || l->next_forward == NULL ||
        l->next_backward == NULL) {
        return sp_error_no_memory(err, "the allocator's view");
    }
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

void sp_i_lane_fini(sp_i_lane *l)
{
    for (size_t i = 0; i < l->shape_count; i++) {
        sp_i_unit_shape_fini(l->shapes[i]);
        sp_i_free(l->shapes[i]);
    }
    if (l->units != NULL) {
        size_t units = l->plan->packing->forward.count * (size_t)l->plan->layout.chunks;
        for (size_t i = 0; i < units; i++) {
            sp_i_unit_end(&l->units[i]);
        }
    }
    sp_i_free(l->shapes);
    sp_i_free(l->shape_of);
    sp_i_free(l->shaped_for);
    sp_i_free(l->units);
    sp_i_free(l->actions);
    sp_i_free(l->next_forward);
    sp_i_free(l->next_backward);
    sp_i_free(l->stages);
    sp_i_free(l->vstages);
}

static size_t unit_index(const sp_i_lane *l, sp_action action)
{
    return (size_t)action.pack * (size_t)l->plan->layout.chunks + action.chunk;
}

static bool same_shape(const sp_pack *a, const sp_pack *b)
{
    return a->dp_count == b->dp_count && a->computed == b->computed &&
           a->kv_tokens == b->kv_tokens && a->full_pairs == b->full_pairs;
}

static sp_status make_shape(sp_i_lane *l, const sp_pack *pack, int chunk, sp_i_unit_shape **out,
                            sp_error *err)
{
    if (!sp_i_reserve((void **)&l->shapes, &l->shape_capacity, l->shape_count + 1,
                      sizeof(*l->shapes))) {
        return sp_error_no_memory(err, "the allocator's view");
    }
    sp_i_unit_shape *shape = sp_i_calloc(1, sizeof *shape);
    if (shape == NULL) {
        return sp_error_no_memory(err, "the allocator's view");
    }
    l->shapes[l->shape_count++] = shape;
    // Merged ranks share the tokens by context parallelism.
    sp_layout layout = l->plan->layout;
    layout.cp *= pack->dp_count;
    layout.dp /= pack->dp_count;
    *out = shape;
    sp_status status =
        sp_tensor_program_build(l->model, &layout, &l->stages[chunk], l->options, pack->computed,
                                pack->kv_tokens, pack->full_pairs, &shape->program, err);
    return status == SP_OK ? sp_i_unit_shape_init(shape, l->options->offload_ratio, err) : status;
}

static sp_status shape_for(sp_i_lane *l, sp_action action, const sp_i_unit_shape **shape,
                           sp_error *err)
{
    sp_i_unit_shape **known = &l->shape_of[unit_index(l, action)];
    const sp_pack *packs = l->plan->packing->forward.packs;
    const sp_pack *pack = &packs[action.pack];
    const sp_pack **last = &l->shaped_for[action.chunk];
    sp_status status = SP_OK;
    if (*known == NULL && *last != NULL && same_shape(*last, pack)) {
        sp_action earlier = action;
        earlier.pack = (int32_t)(*last - packs);
        *known = l->shape_of[unit_index(l, earlier)];
    } else if (*known == NULL) {
        status = make_shape(l, pack, action.chunk, known, err);
        *last = pack;
    }
    *shape = *known;
    return status;
}

static sp_status allocate(sp_i_lane *l, int64_t bytes, int32_t *block, sp_error *err)
{
    return sp_block_allocate(l->memory.blocks, bytes, block, err);
}

static void release(sp_i_lane *l, int32_t *block)
{
    sp_block_release(l->memory.blocks, *block);
    *block = SP_NO_BLOCK;
}

// The tensor that comes in from the neighbour for the action at `a`, if it needs one.
static sp_status receive(sp_i_lane *l, int32_t a, sp_error *err)
{
    if (a == NONE) {
        return SP_OK;
    }
    sp_action action = l->actions[a];
    const sp_i_unit_shape *shape;
    sp_status status = shape_for(l, action, &shape, err);
    if (status != SP_OK) {
        return status;
    }
    bool forward = action.kind == SP_ACTION_F;
    int32_t tensor = forward ? shape->program.input : shape->program.output_gradient;
    if (tensor == SP_NO_TENSOR) {
        return SP_OK;
    }
    return allocate(l, shape->program.tensors[tensor].bytes,
                    forward ? &l->received : &l->received_gradient, err);
}

static sp_status run_unit(sp_i_lane *l, sp_i_unit *unit, sp_program_pass pass, sp_error *err)
{
    l->events += (int64_t)unit->shape->program.pass[pass].count;
    return sp_i_unit_run(&l->memory, unit, pass, err);
}

static sp_status run_forward(sp_i_lane *l, size_t a, sp_error *err)
{
    sp_action action = l->actions[a];
    sp_i_unit *unit = &l->units[unit_index(l, action)];
    const sp_i_unit_shape *shape;
    sp_status status = shape_for(l, action, &shape, err);
    if (status == SP_OK) {
        status = sp_i_unit_begin(unit, shape, err);
    }
    if (status != SP_OK) {
        return status;
    }
    const sp_tensor_program *program = &shape->program;
    if (program->input != SP_NO_TENSOR) {
        sp_i_unit_adopt(unit, program->input, l->received);
        l->received = SP_NO_BLOCK;
    }
    status = run_unit(l, unit, SP_PROGRAM_FORWARD, err);
    // What the last forward gave is on its way until this one ends.
    release(l, &l->sent);
    if (status == SP_OK && program->output != SP_NO_TENSOR) {
        l->sent = sp_i_unit_hand_over(unit, program->output);
    }
    return status == SP_OK ? receive(l, l->next_forward[a + 1], err) : status;
}

static sp_status run_backward(sp_i_lane *l, size_t a, sp_error *err)
{
    sp_action action = l->actions[a];
    bool split = action.kind == SP_ACTION_I;
    sp_i_unit *unit = &l->units[unit_index(l, action)];
    const sp_tensor_program *program = &unit->shape->program;
    if (program->output_gradient != SP_NO_TENSOR) {
        sp_i_unit_adopt(unit, program->output_gradient, l->received_gradient);
        l->received_gradient = SP_NO_BLOCK;
    }
    sp_status status = sp_i_unit_run(&l->memory, unit,
                                     split ? SP_PROGRAM_INPUT_GRADIENT : SP_PROGRAM_BACKWARD, err);
    release(l, &l->sent_gradient);
    int32_t gradient = program->input_gradient[split];
    if (status == SP_OK && gradient != SP_NO_TENSOR) {
        l->sent_gradient = sp_i_unit_hand_over(unit, gradient);
    }
    if (!split) {
        sp_i_unit_end(unit);
    }
    if (l->next_forward[a] == NONE) {
        release(l, &l->sent);
    }
    return status == SP_OK ? receive(l, l->next_backward[a + 1], err) : status;
}

// The program waits for copies before it starts others and before a backward.
static sp_status finish_copies(sp_i_lane *l, sp_error *err)
{
    sp_status status = SP_OK;
    if (l->coming != NULL) {
        status = sp_i_load_end(&l->memory, l->coming, err);
    }
    if (l->leaving != NULL) {
        sp_i_offload_end(&l->memory, l->leaving);
    }
    l->coming = NULL;
    l->leaving = NULL;
    return status;
}

static sp_status start_copy(sp_i_lane *l, size_t a, sp_error *err)
{
    sp_action action = l->actions[a];
    sp_i_unit *unit = &l->units[unit_index(l, action)];
    sp_i_unit **under_way = action.kind == SP_ACTION_O ? &l->leaving : &l->coming;
    bool first =
        a == 0 || (l->actions[a - 1].kind != SP_ACTION_O && l->actions[a - 1].kind != SP_ACTION_L);
    sp_status status = SP_OK;
    if (first || *under_way != NULL || l->leaving == unit) {
        status = finish_copies(l, err);
    }
    *under_way = unit;
    if (status == SP_OK) {
        status = action.kind == SP_ACTION_O ? sp_i_offload_begin(&l->memory, unit, err)
                                            : sp_i_load_begin(&l->memory, unit, err);
    }
    return status;
}

static sp_status run_action(sp_i_lane *l, size_t a, sp_error *err)
{
    sp_action action = l->actions[a];
    sp_i_unit *unit = &l->units[unit_index(l, action)];
    sp_status status = SP_OK;
    if (is_backward(action)) {
        bool fresh = a > 0 && sp_action_is_copy(l->actions[a - 1]);
        status = fresh && l->coming != unit ? SP_OK : finish_copies(l, err);
        return status == SP_OK ? run_backward(l, a, err) : status;
    }
    if (sp_action_is_copy(action)) {
        return start_copy(l, a, err);
    }
    if (action.kind == SP_ACTION_F) {
        return run_forward(l, a, err);
    }
    if (action.kind == SP_ACTION_W) {
        status = run_unit(l, unit, SP_PROGRAM_WEIGHT_GRADIENT, err);
        sp_i_unit_end(unit);
    }
    return status;
}

// The gradient for the first backward is asked for one action before it.
static bool first_gradient_comes(const sp_i_lane *l, size_t a)
{
    size_t next = a + 1;
    while (next < l->action_count && sp_action_is_copy(l->actions[next])) {
        next++;
    }
    return l->next_backward[a] == (int32_t)a || l->next_backward[a] == (int32_t)next;
}

// All but the load buffers, which come with the first step and stay.
static int64_t held_between_steps(const sp_i_lane *l)
{
    int64_t bytes = sp_block_allocator_allocated(l->memory.blocks);
    for (int b = 0; b < SP_I_BUFFERS; b++) {
        const sp_i_load_buffer *buffer = &l->memory.buffers[b];
        bytes -= buffer->bytes > 0 ? sp_block_bytes(l->memory.blocks, buffer->block) : 0;
    }
    return bytes;
}

sp_status sp_i_lane_step(sp_i_lane *l, sp_error *err)
{
    l->received = l->received_gradient = l->sent = l->sent_gradient = SP_NO_BLOCK;
    l->leaving = l->coming = NULL;
    bool asked = false;
    int64_t before = held_between_steps(l);
    sp_status status = receive(l, l->next_forward[0], err);
    for (size_t a = 0; status == SP_OK && a < l->action_count; a++) {
        if (!asked && !sp_action_is_copy(l->actions[a]) && first_gradient_comes(l, a)) {
            asked = true;
            status = receive(l, l->next_backward[a], err);
        }
        if (status == SP_OK) {
            status = run_action(l, a, err);
        }
    }
    release(l, &l->sent);
    release(l, &l->sent_gradient);
    int64_t rest = held_between_steps(l) - before;
    if (status == SP_OK && rest != 0) {
        status = sp_error_set(err, SP_ERR_INTERNAL,
                              "allocations of dp %d pp %d do not drain: %lld bytes remain",
                              l->rank->dp, l->rank->pp, (long long)rest);
    }
    return status;
}
