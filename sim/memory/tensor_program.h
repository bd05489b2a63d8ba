// The tensors that one unit (one pack on one virtual stage) allocates and frees while its passes
// run, one by one and in order: the footprint (footprint.h) seen by an allocator. Tensors that the
// forward leaves for the backward are those of the saved-tensor table; the others live to the end
// of the function that makes them, as Python keeps them (kwai/Megatron-Kwai, branch atc24ae,
// megatron/model/transformer.py and core/tensor_parallel/layers.py).
#ifndef SLIMPACK_SIM_MEMORY_TENSOR_PROGRAM_H
#define SLIMPACK_SIM_MEMORY_TENSOR_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/memory/footprint.h"
#include "sim/model/layout.h"
#include "sim/model/model.h"

enum { SP_NO_TENSOR = -1 };

typedef struct sp_program_tensor {
    const char *name;
    int64_t bytes;
    int32_t storage; // the tensor whose memory it is: itself, or what it is a view of
} sp_program_tensor;

// A tensor comes into being (a storage is allocated, a view holds its storage) or goes. Memory is
// free when its storage and all views of it are gone.
typedef struct sp_tensor_event {
    int32_t tensor;
    bool gone;
} sp_tensor_event;

typedef struct sp_tensor_events {
    sp_tensor_event *items;
    size_t count, capacity;
} sp_tensor_events;

// A tensor that the forward leaves for the backward.
typedef struct sp_saved_item {
    int32_t tensor;
    int64_t elements;
    bool contiguous;
    bool leaves; // may be offloaded
} sp_saved_item;

typedef enum sp_program_pass {
    SP_PROGRAM_FORWARD,
    SP_PROGRAM_BACKWARD,       // whole
    SP_PROGRAM_INPUT_GRADIENT, // of a split backward
    SP_PROGRAM_WEIGHT_GRADIENT,
    SP_PROGRAM_PASSES
} sp_program_pass;

// Memory that crosses the border of the unit is made on one side and freed on the other: `input`
// and `output_gradient` are there before the forward and the backward and freed by the unit;
// `output` and `input_gradient[whole or split]` are made by it and left. SP_NO_TENSOR where the
// stage has none.
typedef struct sp_tensor_program {
    sp_program_tensor *tensors;
    size_t tensor_count, tensor_capacity;
    sp_tensor_events pass[SP_PROGRAM_PASSES];
    sp_saved_item *saved; // in the order of saving
    size_t saved_count, saved_capacity;
    int32_t input, output, output_gradient;
    int32_t input_gradient[2]; // of the whole backward, of the input gradient
} sp_tensor_program;

void sp_tensor_program_fini(sp_tensor_program *program);

// Writes the tensor program of a unit, as sp_footprint_unit takes it. O(layers).
void sp_tensor_program_build(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                             const sp_memory_options *options, const sp_unit_load *load,
                             sp_tensor_program *program);

#endif
