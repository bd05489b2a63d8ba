// Bytes a rank holds. The table of tensors in sim/model/layer.h is the single source: the predictor
// sums it, the executors allocate from it.
#ifndef SLIMPACK_SIM_MEMORY_FOOTPRINT_H
#define SLIMPACK_SIM_MEMORY_FOOTPRINT_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/model/inventory.h"
#include "sim/model/layout.h"
#include "sim/model/model.h"
#include "sim/model/stack.h"

typedef enum sp_memory_category {
    SP_MEM_PARAMETERS,
    SP_MEM_GRADIENTS,
    SP_MEM_OPTIMIZER,
    SP_MEM_ACTIVATIONS,
    SP_MEM_KV_CACHE,
    SP_MEM_KV_GRADIENTS,
    SP_MEM_LOGITS,
    SP_MEM_RECOMPUTE,
    SP_MEM_WORKSPACE,
    SP_MEM_COMMUNICATION,
    SP_MEM_OFFLOADED, // in host memory, not part of the peak
    SP_MEM_CATEGORIES
} sp_memory_category;

extern const char *const sp_memory_category_names[]; // "parameters", ...; in the order of the enum

typedef struct sp_bytes {
    int64_t of[SP_MEM_CATEGORIES];
} sp_bytes;

// On-GPU total: all categories but SP_MEM_OFFLOADED.
static inline int64_t sp_bytes_total(const sp_bytes *bytes)
{
    int64_t total = 0;
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        total += c == SP_MEM_OFFLOADED ? 0 : bytes->of[c];
    }
    return total;
}

typedef struct sp_memory_options {
    sp_recompute recompute;
    sp_attention attention;
    double offload_ratio;
    sp_stack stack;
} sp_memory_options;

// Parameters of one TP rank that holds `stages[0..n)`, before ZeRO shards them.
int64_t sp_footprint_parameters(const sp_model *model, const sp_layout *layout,
                                const sp_stage *stages, int n);

// Of these those that are trained: all, or adapters alone.
int64_t sp_footprint_trained_parameters(const sp_model *model, const sp_layout *layout,
                                        const sp_stage *stages, int n);

// Of these those of experts.
int64_t sp_footprint_expert_parameters(const sp_model *model, const sp_layout *layout,
                                       const sp_stage *stages, int n);

// Of these the weights of products that run in FP8 where the step computes so; of all, or of
// experts alone.
int64_t sp_footprint_product_weights(const sp_model *model, const sp_layout *layout,
                                     const sp_stage *stages, int n, bool experts_alone);

// Bytes of parameters that ranks which split them (ZeRO 3) have from each other, before ZeRO shards
// them: 2 of each, of weights in 4 bits half a byte. Their scales are no parameters, which every
// rank has whole (bitsandbytes, QuantState).
int64_t sp_footprint_gathered(const sp_model *model, const sp_layout *layout,
                              const sp_stage *stages, int n);

// Parameters, gradients and optimizer states of a rank that holds `stages[0..n)`: 2 B per parameter
// (bf16; of FP8 products also their copies, or these alone, of frozen ones in 4 bits less:
// precision.h), and of those that are trained 4 B per gradient (fp32; 2 where the stack adds up in
// bf16, 2 more where it keeps buckets), 12 B optimizer (fp32 master, two moments; fewer where the
// stack says so); ZeRO 1 divides the optimizer, 2 also the gradients, 3 also the parameters by
// dp*cp, those of experts by the ranks that hold the same ones. Also the stack's persistent work
// spaces. What stack.offload_states takes to the host counts there (SP_MEM_OFFLOADED).
void sp_footprint_states(const sp_model *model, const sp_layout *layout, const sp_stack *stack,
                         const sp_stage *stages, int n, sp_bytes *bytes);

// Bytes of a projection's weight on one rank, of one expert, in bf16; 0: no projection.
int64_t sp_footprint_weight(const sp_model *model, const sp_layout *layout, sp_layer_place step);

enum { SP_DUMMY_GRADIENTS = 11 * SP_LAYER_KINDS + 1 }; // of at most 11 projections and the head
// The tensors that a rank with `stages[0..n)` keeps in place of weight gradients: bf16, one for
// each shape of a weight, the head's among them. Returns their number, 0 where the stack has none
// or weights are frozen (those of adapters are not counted).
int sp_footprint_dummy_gradients(const sp_model *model, const sp_layout *layout,
                                 const sp_stack *stack, const sp_stage *stages, int n,
                                 int64_t bytes[SP_DUMMY_GRADIENTS]);

// Bytes of a number of the sums of gradients of keys and values.
int64_t sp_footprint_kv_gradient_bytes(const sp_stack *stack);
// The sums of so many tokens, on one rank and all layers of a virtual stage.
int64_t sp_footprint_gradient_sums(const sp_model *model, const sp_layout *layout,
                                   const sp_stage *stage, const sp_stack *stack, int64_t tokens);

// Rotary tables of a rank that last from step to step, for samples of up to `positions` tokens; 0
// where each pass makes its own.
int64_t sp_footprint_rotary(const sp_model *model, const sp_stack *stack, int64_t positions);

// The work of a unit (one pack on one virtual stage). For slices: the gradients of a slice's keys
// and values are summed from the backward of its sample's last slice to its own, over all packs in
// between.
typedef struct sp_unit_load {
    int64_t tokens;    // computed, padding included
    int64_t kv_tokens; // of them those of slices with later slices; 0 without slices
    int64_t pairs;     // full (query, key) pairs: sum of l*(o+l) over slices
    // Tokens of each sample up to the end of its last slice here; 0: `tokens`. A stack that counts
    // what is gathered of them asks for it (stack.h, device_bytes).
    int64_t seen_tokens;
    int64_t slices; // here; 0: not asked for
    // Whose rows the experts of its ranks have (sim/plan/rounds.h); 0: `tokens`.
    int64_t expert_tokens;
    // Tokens, each slice's rounded up to whole rows of every CP rank: of earlier slices in other
    // packs whose sums this backward begins, and of own slices whose sums others began.
    int64_t begun_tokens, found_tokens;
    bool collects; // a backward pack that is no forward pack: its rows come from several
    bool whole;    // its backward is: a program of tensors has none with gradients apart
} sp_unit_load;

// The bytes that one unit holds and needs. As sp_footprint_unit gives them, the offloaded part of
// its activations is away: held.of[SP_MEM_OFFLOADED] (saved_tensors.h).
typedef struct sp_unit_bytes {
    sp_bytes held; // from the start of its forward to the end of its backward (or input gradient)
    sp_bytes weights; // then, where the backward is split, to the end of the weight gradient:
                      // inputs of the GEMMs and gradients of their outputs
    // In place of `held` from a forward that runs again to its repeat: keys and values that later
    // slices read, and the stage's input.
    sp_bytes repeated;
    // Beyond what is held, while an action runs: beyond `held` the forward, the repeat of a
    // forward, the whole backward and the input gradient; beyond `repeated` a forward that runs
    // again. A category is negative where something held is not there at the peak.
    sp_bytes forward, repeat, backward, input_gradient, first;
    // The whole backward and the input gradient beyond what is held of a unit that was offloaded
    // and came back: views of the copy's buffer stay with the buffer.
    sp_bytes loaded_backward, loaded_input_gradient;
    // Sums of gradients of keys and values that are there after the backward (or input gradient)
    // and were not before, and the other way round.
    int64_t gradients_begun, gradients_found;
    int64_t kv_activations; // keys and values among the activations of `held`
    // Bytes that are offloaded of the tensor that leaves in part: when they come back it is put
    // together again beside the copy's buffer.
    int64_t rebuilt;
} sp_unit_bytes;

// Without slices keys and values count as activations. O(1), with explicit tensors O(layers).
void sp_footprint_unit(const sp_model *model, const sp_layout *layout, const sp_stage *stage,
                       const sp_memory_options *options, const sp_unit_load *load,
                       sp_unit_bytes *unit);
// What the parts of a model save whatever the load (saved_tensors.h).
typedef struct sp_saved_parts sp_saved_parts;

// Computes the units of n stages [n] in less time than each by itself. `parts` are those of the
// same model, layout and options.
void sp_footprint_units(const sp_saved_parts *parts, const sp_model *model, const sp_layout *layout,
                        const sp_stage *stages, int n, const sp_memory_options *options,
                        const sp_unit_load *load, sp_unit_bytes *units);

#endif
