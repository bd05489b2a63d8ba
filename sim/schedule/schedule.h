// Schedules: from a packing to a plan. one_f_one_b.c has those whose backward follows its forward
// at a fixed lag (GPipe, 1F1B, interleaved, by slices), the other files those laid by hand or found
// by search.
#ifndef SLIMPACK_SIM_SCHEDULE_SCHEDULE_H
#define SLIMPACK_SIM_SCHEDULE_SCHEDULE_H

#include <stdbool.h>

#include "sim/plan/plan.h"

// Every schedule in one row: X(KIND, "name", generator, traits...). The generator is
// sp_i_schedule_<generator> (schedule_family.h); the traits are those of
// sp_schedule_traits, with one line for help first.
// clang-format off
#define SP_SCHEDULE_LIST(X)                                                                        \
    X(GPIPE, "gpipe", gpipe,                                                                       \
      .summary = "all forwards, then all backwards",                                               \
      .chunks = 1)                                                                                 \
    X(1F1B, "1f1b", 1f1b,                                                                          \
      .summary = "one forward, one backward in turn; at most pp micro-batches in flight",          \
      .chunks = 1, .tried = SP_TRIED)                                                              \
    X(INTERLEAVED, "interleaved", interleaved,                                                     \
      .summary = "1F1B over several model chunks a rank (Megatron-LM's virtual pipeline)",         \
      .chunks = 0, .tried = SP_TRIED)                                                              \
    X(ZB_H1, "zb-h1", zb_h1,                                                                       \
      .summary = "zero bubble with the memory of 1F1B: weight gradients fill the gaps",            \
      .chunks = 1, .split = true, .tried = SP_TRIED)                                               \
    X(ZB_H2, "zb-h2", zb_h2,                                                                       \
      .summary = "zero bubble with about twice the memory of 1F1B",                                \
      .chunks = 1, .split = true, .tried = SP_TRIED_WIDE)                                          \
    X(ZB_AUTO, "zb-auto", zb_auto,                                                                 \
      .summary = "zero bubble by the costs, within schedule.memory_limit_microbatches",            \
      .chunks = 1, .split = true, .timed = true)                                                   \
    X(ZB_V, "zb-v", zb_v,                                                                          \
      .summary = "zero bubble on two chunks laid as a V, with the memory of 1F1B",                 \
      .placement = SP_PLACE_V, .chunks = 2, .split = true, .timed = true, .tried = SP_TRIED)       \
    X(V_HALF, "v-half", v_half,                                                                    \
      .summary = "two chunks laid as a V, with half the memory of 1F1B",                           \
      .placement = SP_PLACE_V, .chunks = 2, .split = true, .tried = SP_TRIED_WIDE)                 \
    X(V_MIN, "v-min", v_min,                                                                       \
      .summary = "two chunks laid as a V, with a third of the memory of 1F1B",                     \
      .placement = SP_PLACE_V, .chunks = 2, .split = true)                                         \
    X(DUALPIPE_V, "dualpipe-v", dualpipe_v,                                                        \
      .summary = "two chunks laid as a V, forward and backward side by side (DualPipe)",           \
      .placement = SP_PLACE_V, .chunks = 2, .split = true)                                         \
    X(TERAPIPE, "terapipe", terapipe,                                                              \
      .summary = "all forwards of slices of each row, then all backwards",                         \
      .chunks = 1, .sliced = true)                                                                 \
    X(SEQ1F1B, "seq1f1b", seq1f1b,                                                                 \
      .summary = "1F1B over slices of each row",                                                   \
      .sliced = true)                                                                              \
    X(SLIMPIPE, "slimpipe", slimpipe,                                                              \
      .summary = "1F1B over equal slices; schedule.exchange evens out their attention",            \
      .sliced = true)                                                                              \
    X(CHUNKFLOW, "chunkflow", chunkflow,                                                           \
      .summary = "1F1B over chunks of samples, of which few keep their activations",               \
      .chunks = 1, .sliced = true)                                                                 \
    X(PACKFLOW, "packflow", packflow,                                                              \
      .summary = "packs of all ranks ordered by their costs (SlimPack)",                           \
      .sliced = true, .timed = true, .by_pack = true, .v_of_two = true)
// clang-format on

typedef enum sp_schedule_kind {
#define X(kind, name, generator, ...) SP_SCHEDULE_##kind,
    SP_SCHEDULE_LIST(X)
#undef X
        SP_SCHEDULE_KINDS
} sp_schedule_kind;

extern const char *const sp_schedule_names[]; // "gpipe", "1f1b", ..., in order of the enum, NULL

// Where sliced schedules cut a row: into equal tokens; into equal FLOPs (attention grows with the
// context, so later slices are shorter; Seq1F1B, arXiv 2406.03488); or into the number and lengths
// of slices that make the forward pass over all stages shortest (TeraPipe, arXiv 2102.07988).
typedef enum sp_slice_rule { SP_SLICE_TOKENS, SP_SLICE_FLOPS, SP_SLICE_SHORTEST } sp_slice_rule;

extern const char *const sp_slice_rule_names[]; // "tokens", "flops", "shortest", NULL

enum { SP_GROUP_EVEN = -1 };

typedef struct sp_schedule_spec {
    sp_schedule_kind kind;
    // interleaved: micro-batches of one chunk in a row; 0: pp; SP_GROUP_EVEN: spread evenly over as
    // many groups of at least pp as there can be, which any number of micro-batches allows
    int group;
    int slices; // sliced schedules: packs that a row is cut into; 0: one
    sp_slice_rule slice_rule;
    bool exchange;       // slimpipe: ranks even out their attention at every step
    bool split_backward; // packflow: input and weight gradients as actions of their own
    bool pairs;          // interleaved, 1f1b: a backward beside the forward that follows it
    int retained;        // chunkflow: chunks of a long sample that keep their activations (K); 0: 1
    // zb-auto: activations a rank may hold, in units of one rank stage and micro-batch; 0: pp
    double memory_limit_microbatches;
} sp_schedule_spec;

// Does `tune` try a schedule that nobody asked for: no, yes, or in a wide search alone?
typedef enum sp_tried { SP_NOT_TRIED, SP_TRIED, SP_TRIED_WIDE } sp_tried;

// The demands of a schedule on the layout and on its packs.
typedef struct sp_schedule_traits {
    const char *summary; // one line for help
    sp_placement placement;
    int chunks;    // that it needs per rank; 0: any number
    bool sliced;   // runs micro-batches of several slices
    bool split;    // runs input and weight gradients as actions of their own
    bool timed;    // orders actions by their costs
    bool by_pack;  // by those of every pack, over all data-parallel ranks at once
    bool v_of_two; // two chunks lie as a V
    sp_tried tried;
} sp_schedule_traits;

sp_schedule_traits sp_schedule_traits_of(sp_schedule_kind kind);

// Where so many chunks lie.
sp_placement sp_schedule_placement(sp_schedule_kind kind, int chunks);

// The costs that timed schedules look at: the mean costs of one micro-batch's pack on each virtual
// stage, and the activation units it holds there.
typedef struct sp_schedule_costs {
    const int64_t *f_ns, *i_ns, *w_ns; // [pp * chunks]
    int64_t p2p_ns;                    // between neighbouring ranks
    double unit_f, unit_b, unit_w;     // change at F, at I, at W
    // The costs of every pack, where the schedule orders by pack: [pack * pp * chunks + virtual
    // stage], forward packs for f and backward packs for b (whole), i and w; NULL otherwise.
    const int64_t *pack_f_ns, *pack_b_ns, *pack_i_ns, *pack_w_ns;
    const int64_t *pack_p2p_f_ns, *pack_p2p_b_ns; // [pack], between ranks
    // Memory for schedules that look at it, not owned: activations of a token, [data-parallel rank
    // * pp * chunks + virtual stage], and what each rank has for them, [data-parallel rank * pp +
    // rank]. NULL: any amount.
    const int64_t *token_bytes, *room_bytes;
    const int64_t *again_bytes; // as room_bytes: of it, for forwards that run again; NULL: nothing
    double kept_share;          // of activations, what packs keep whose forward runs again
    // [data-parallel rank]: what PackFlow runs, where that is known (packflow.h); NULL: it is
    // found.
    struct sp_packflow_step **orders;
} sp_schedule_costs;

// SP_ERR_LIMIT where plans of the packing, by any schedule, would have too many actions. O(packs).
sp_status sp_schedule_check_size(const sp_layout *layout, const sp_packing *packing, sp_error *err);

// Fills the plan (initialised, empty) from its packing and layout. `costs` may be NULL unless the
// schedule is timed. A schedule that does not fit the layout (1F1B with several chunks, ...) is a
// content error at `source`: schedule.kind.
sp_status sp_schedule_generate(const sp_schedule_spec *spec, const sp_schedule_costs *costs,
                               const char *source, sp_plan *plan, sp_error *err);

// ---- Offloading: copies of activations to host memory and back ----

// An L brings its copy back into one of so many buffers of the rank.
enum { SP_COPY_BUFFERS = 2 };

// Adds to every rank of a plan that sp_plan_check accepts an O after each F and, before the B or I
// (or R) that first reads the forward pack, its L: the unit leaves while the next one runs and
// starts to come back with the backward before its own, as in kwai/Megatron-Kwai, branch atc24ae
// (megatron/core/pipeline_parallel/schedules.py). Where there is no such backward between, the L
// stands one action before the reader. A unit whose reader is the next action stays; so does one of
// a regrouped packing that R runs again, since its forward keeps nothing. A plan with copies of its
// own is left as it is. O(actions + slices).
void sp_schedule_add_offload(sp_plan *plan);

#endif
