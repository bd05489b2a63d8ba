#include "sim/model/explicit_unit.h"

#include "sim/model/explicit_backward.h"
#include "sim/model/explicit_forward.h"

static sp_bytes less(const sp_bytes *a, const sp_bytes *b)
{
    sp_bytes difference;
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        difference.of[c] = a->of[c] - b->of[c];
    }
    return difference;
}

static sp_bytes backward(sp_i_explicit *x, bool splits)
{
    static const sp_bytes nothing;
    sp_i_explicit_begin(x, &nothing);
    x->splits = splits;
    sp_i_explicit_backward(x);
    return x->gauge.high;
}

// What is offloaded is there while a pass runs: forwards start with it.
void sp_i_explicit_unit(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                        const sp_memory_options *options, const sp_unit_load *load,
                        const sp_unit_tensor *tensors, int count, sp_unit_bytes *unit)
{
    static const sp_bytes nothing;
    sp_i_explicit x;
    sp_i_explicit_measure(model, layout, stage, options, load, &x);
    sp_bytes held = unit->held;
    held.of[SP_MEM_ACTIVATIONS] += held.of[SP_MEM_OFFLOADED];
    held.of[SP_MEM_OFFLOADED] = 0;

    sp_bytes start = less(&nothing, &held);
    sp_i_explicit_begin(&x, &start);
    x.keeps = true;
    sp_i_explicit_forward(&x);
    unit->forward = x.gauge.high;

    start = less(&nothing, &unit->repeated);
    sp_i_explicit_begin(&x, &start);
    x.keeps = false;
    sp_i_memory_take(&x.gauge, SP_MEM_RECOMPUTE, unit->repeated.of[SP_MEM_RECOMPUTE]);
    sp_i_explicit_forward(&x);
    unit->first = x.gauge.high;

    start = less(&unit->repeated, &held);
    sp_i_explicit_begin(&x, &start);
    x.keeps = true;
    x.cached = true;
    // Nobody reads the output a second time.
    sp_i_explicit_take(&x, stage->head ? 0 : x.hidden);
    sp_i_explicit_forward(&x);
    unit->repeat = x.gauge.high;

    unit->backward = backward(&x, false);
    unit->input_gradient = backward(&x, true);
    unit->loaded_backward = unit->backward;
    unit->loaded_input_gradient = unit->input_gradient;
    if (options->offload_ratio > 0.0) {
        sp_i_explicit_offload(&x, tensors, count, options->offload_ratio);
        x.loaded = true;
        unit->loaded_backward = backward(&x, false);
        unit->loaded_input_gradient = backward(&x, true);
    }
}
