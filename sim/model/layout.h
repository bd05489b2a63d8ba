// The hybrid parallel layout: how many ranks of each kind, and which rank holds which layers.
#ifndef SLIMPACK_SIM_MODEL_LAYOUT_H
#define SLIMPACK_SIM_MODEL_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/status.h"
#include "sim/model/model.h"

// The virtual stage that chunk c of pipeline rank r is, with p ranks:
// linear: c*p + r; V (two chunks): r and 2p-1-r.
typedef enum sp_placement { SP_PLACE_LINEAR, SP_PLACE_V } sp_placement;

// The dimensions of a rank's place, and the order in which they count ranks, fastest first.
typedef enum sp_axis { SP_AXIS_TP, SP_AXIS_CP, SP_AXIS_DP, SP_AXIS_PP, SP_AXES } sp_axis;

typedef struct sp_rank_order {
    bool given; // false: TP, CP, DP, PP, stated or not
    sp_axis axis[SP_AXES];
} sp_rank_order;

// How the tokens of a pack are cut over the ranks of its CP group (sim/cost/attention_load.c). Even
// is what no cut does better than: every rank holds an equal share of each slice's causal pairs, at
// the rates of the whole slice.
typedef enum sp_cp_sharding {
    SP_SHARD_EVEN,
    SP_SHARD_SEQUENCE,
    SP_SHARD_DOCUMENT,
    SP_SHARD_ADAPTIVE // for each pack the faster of sequence and document
} sp_cp_sharding;

extern const char *const sp_cp_sharding_names[]; // "even", ..., NULL; in the order of the enum

typedef struct sp_layout {
    int tp, cp, pp, dp;
    // Experts have a grid of their own over the ranks of a pipeline rank (Liu et al., MoE Parallel
    // Folding, arXiv 2504.14960): rank = etp + ETP*(ep + EP*edp). 0 of ep: 1; of etp: tp.
    int ep, etp;
    sp_cp_sharding cp_sharding;
    bool cp_ring_steps; // uneven shares wait for each other at each step of a ring
    // A CP group that exchanges by all-to-all and ring (stack.h): as many neighbours exchange heads
    // as is the greatest common divisor of this and of the group's ranks. 0: all of them.
    int cp_a2a;
    sp_rank_order order;
    int chunks; // model chunks per pipeline rank (v)
    sp_placement placement;
    bool sequence_parallel;
    bool vocab_parallel; // vocabulary layers spread over the pipeline ranks
    int zero;            // 0..3
    int zero_group;      // ranks over which ZeRO splits; 0: all dp*cp (sp_layout_zero_ranks)
    // With ZeRO 3 a rank reads parameters where they lie and waits for no other in its layers, by
    // the stack (sp_stack_gathers_alone).
    bool lone_gathers;
    // With ZeRO 2 and 3 gradients and parameters stay whole between the micro-batches of a step, by
    // the stack (FSDP under a pipeline): shares are gathered and reduced once a step, as with 1.
    bool whole_in_step;
    // Layers of every virtual stage, in the order of the model: [pp*chunks]. NULL: equal shares.
    // Whoever makes the layout owns them; copies of the layout borrow them.
    const int *stage_layers;
} sp_layout;

// The parts of the model that one virtual stage holds.
typedef struct sp_stage {
    int layers;
    int first;                 // its first layer's place in the model
    int count[SP_LAYER_KINDS]; // of the layers, by kind
    bool embedding;
    bool head; // final norm, logits and loss
} sp_stage;

// Its layers of a kind. A stage of a model whose layers are all alike need not count them.
static inline int sp_stage_count(const sp_stage *stage, const sp_model *model, int kind)
{
    return model->runs > 0 ? stage->count[kind] : stage->layers;
}

// Its layers with attention, which alone have keys and values.
int sp_stage_attending_layers(const sp_stage *stage, const sp_model *model);

// The same layers without embedding and head.
static inline sp_stage sp_stage_layers(const sp_stage *stage)
{
    sp_stage layers = *stage;
    layers.embedding = layers.head = false;
    return layers;
}

// Does the stage hold nothing, and hand on what it receives?
static inline bool sp_stage_is_empty(const sp_stage *stage)
{
    return stage->layers == 0 && !stage->embedding && !stage->head;
}

int64_t sp_layout_ranks(const sp_layout *layout); // tp*cp*pp*dp
// Ranks among which ZeRO splits states; their peers in other such groups hold the same shares.
int sp_layout_zero_ranks(const sp_layout *layout);

// ---- Experts ----

// Ranks over which the experts of a layer are spread, and among which each of them is split.
static inline int sp_layout_ep(const sp_layout *layout)
{
    return layout->ep > 0 ? layout->ep : 1;
}

static inline int sp_layout_etp(const sp_layout *layout)
{
    return layout->etp > 0 ? layout->etp : layout->tp;
}

// Do tokens go to other ranks for their experts? Else every rank holds a share of all experts, as
// of all other weights.
static inline bool sp_layout_dispatches(const sp_layout *layout)
{
    return sp_layout_ep(layout) > 1 || sp_layout_etp(layout) != layout->tp;
}

// Ranks that hold the same experts, tp*cp*dp/(etp*ep), among which ZeRO splits their states.
int sp_layout_expert_replicas(const sp_layout *layout);
// Neighbouring data-parallel ranks that meet in the layers with experts, since groups of experts
// span them: 1 where each keeps to itself.
int sp_layout_expert_ranks(const sp_layout *layout);

// ---- Data-parallel ranks that meet ----

// Neighbouring data-parallel ranks that meet in every layer of each micro-batch, since ZeRO 3
// gathers its parameters from all of them by collectives: 1 where each keeps to itself.
int sp_layout_parameter_ranks(const sp_layout *layout);
// The stage of ZeRO by which parameters and gradients are held and exchanged within a step.
int sp_layout_zero_in_step(const sp_layout *layout);
// Are parameters or gradients exchanged within a step, where experts over several ranks have groups
// of their own for it? Flows (sim/network/flows.h) do not follow both.
bool sp_layout_shards_experts(const sp_layout *layout);
// The same for either reason, experts or parameters: groups of the one are in those of the other.
int sp_layout_round_ranks(const sp_layout *layout);

int sp_layout_size(const sp_layout *layout, sp_axis axis);
// Ranks between two neighbours along an axis: the product of the faster sizes.
int64_t sp_layout_stride(const sp_layout *layout, sp_axis axis);
// The context-parallel ranks of dp_count data-parallel ranks of a pipeline rank, from one on:
// [tp * cp * dp_count], for each TP rank by itself in ascending order.
void sp_layout_list_joint(const sp_layout *layout, int dp_first, int dp_count, int pp,
                          int64_t *ranks);

// "tp-cp-dp-pp" and the like, fastest first, as Megatron-LM's order of its rank generator. Reading
// is false where `text` does not name each axis once; "ep" may stand among them and says nothing:
// experts count the ranks of a pipeline rank in the order of the others.
enum { SP_RANK_ORDER_TEXT = 12 };
bool sp_rank_order_read(const char *text, sp_rank_order *order);
void sp_rank_order_write(const sp_rank_order *order, char text[SP_RANK_ORDER_TEXT]);
int sp_layout_vstages(const sp_layout *layout); // pp * chunks

int sp_layout_vstage(const sp_layout *layout, int pp_rank, int chunk);
void sp_layout_locate(const sp_layout *layout, int vstage, int *pp_rank, int *chunk);

// Does every virtual stage hold equally many layers?
bool sp_layout_is_even(const sp_layout *layout);

// The layers of every virtual stage, [pp*chunks], by a rule. A layer counts 1, the head its
// parameters over a layer's (as in nanotron's get_block_compute_costs and Megatron-LM's
// account_for_loss_in_pipeline_split), the embedding nothing.
// The largest load is the least possible; of equal loads the later stage, which holds fewer
// micro-batches, gets the layer. O(layers * pp * chunks).
void sp_layout_spread(const sp_layout *layout, const sp_model *model, int *stage_layers);
// As nanotron: layers in order; a stage is full with the layer that takes all loads up to it beyond
// its share of the whole (nanotron, src/nanotron/models/base.py, build_model). Early stages come
// out larger, and where the head alone is more than a share, stages at the end hold nothing.
void sp_layout_fill(const sp_layout *layout, const sp_model *model, int *stage_layers);

// Do these layers fit the rank?
typedef bool sp_layout_fits(void *context, int pp_rank, const int *stage_layers);

// The layers of every virtual stage, [pp*chunks], such that the largest load of a rank is the least
// possible, and then that of its chunks. A layer is 1; the first virtual stage has a load of
// `first` besides, the last one of `last`. Of equal loads the later rank, which holds fewer
// micro-batches, and the later chunk get the layer. A rank gets none with which it does not fit
// (NULL: all fit); false where a layer finds no rank then. O(layers * pp * chunks), up to pp times
// as long where layers do not fit.
bool sp_layout_level(const sp_layout *layout, int layers, double first, double last,
                     sp_layout_fits *fits, void *context, int *stage_layers);

// As sp_layout_level, of layers that differ: layer i has the load layer[i]. With one chunk a rank
// the largest load is the least possible, and of such cuts the sum of squares of the loads, O(pp *
// layers^2); `fits` is then asked O(pp * layers) times, with all layers before a rank in
// stage_layers[0], and must allow a rank any part that lies in a range that it allows. With several
// chunks these are the least that moving one layer at a time finds, and false says that these moves
// found no cut that fits, not that there is none.
bool sp_layout_level_unlike(const sp_layout *layout, const double *layer, int layers, double first,
                            double last, sp_layout_fits *fits, void *context, int *stage_layers);

// Fills stages[0 .. pp*chunks) with the layers of stage_layers, or with equal shares of all,
// embedding first, head last. With vocabulary parallelism every pipeline rank has a share of both:
// of the embedding in its first chunk, of the head in its last. Content errors naming `source`: a
// layer count that pp*chunks does not divide; stage_layers that do not add up to those of the
// model.
sp_status sp_layout_stages(const sp_layout *layout, const sp_model *model, const char *source,
                           sp_stage *stages, sp_error *err);

// Checks the layout against the model: tp divides heads, kv_heads (or the reverse), ffn; cp, pp,
// dp, chunks positive; V placement has two chunks; sequence parallelism needs nothing more. All
// findings are content errors at `source`, path parallel.*.
sp_status sp_layout_check(const sp_layout *layout, const sp_model *model, const char *source,
                          sp_error *err);

#endif
