// The parts that compute need: memory of a rank, the rows of its slices, its tensors and
// parameters, and a virtual stage of one rank with all that its actions hold for each other.
// Tensors are of the run's precision; the functions that compute with them (typed/) are compiled
// for each.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_STAGE_H
#define SLIMPACK_BACKENDS_EXECUTOR_STAGE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/api/device_runtime.h"
#include "backends/ranks/attention.h"
#include "backends/ranks/comm.h"
#include "backends/ranks/zigzag.h"
#include "sim/base/alloc.h"
#include "sim/base/status.h"
#include "sim/memory/footprint.h"
#include "sim/model/layout.h"
#include "sim/model/model.h"
#include "sim/model/parameter_list.h"
#include "sim/plan/packing.h"

// ---- Memory (arena.c) ----

// The memory of one rank: every buffer of the executor is taken from here, so that what is held is
// known to the byte at any moment, by category. Blocks are memory of a device, which none but the
// device may be able to read: all that is known of them stands beside them.
//
// Each block is counted in three ways. Its real bytes are those of the run's own precision (2, 4 or
// 8 a number). Its table bytes are those that the saved-tensor table (sim/memory/footprint.h) gives
// the same tensor, whose elements are mostly bf16: elements times the table's width. This count is
// what a prediction is compared with; ratios between tensors are those of mixed-precision training.
// Its taken bytes are those that the arena has from the device for it, rounded up to a size of
// which blocks are kept for use again; the blocks that are kept count as workspace, so that the
// peak is what the device must have.

// Size of one element, both ways.
typedef struct sp_i_exec_width {
    int64_t real_bytes, table_bytes;
} sp_i_exec_width;

typedef enum sp_i_exec_measure {
    SP_I_EXEC_TABLE,
    SP_I_EXEC_REAL,
    SP_I_EXEC_TAKEN,
    SP_I_EXEC_MEASURES
} sp_i_exec_measure;

typedef struct sp_i_exec_arena sp_i_exec_arena;

// Makes that of a rank alone. `limit_bytes`: most that may be held at once, by `measure`; 0: no
// limit.
sp_i_exec_arena *sp_i_exec_arena_new(sp_runtime *runtime, sp_i_exec_measure measure,
                                     int64_t limit_bytes);
// Makes one of several ranks, whose threads call under a lock of theirs: who takes a block that
// another rank gave back works on it after what that one did until then. No limit.
sp_i_exec_arena *sp_i_exec_arena_new_shared(sp_runtime *runtime);
// Makes that of a rank alone in the memory beside the device's (allocate_host), for copies. No
// limit.
sp_i_exec_arena *sp_i_exec_arena_new_host(sp_runtime *runtime);
// With all blocks, given back or not. The ranks' work on them is over.
void sp_i_exec_arena_free(sp_i_exec_arena *arena);

// A block of `elements`, at least one byte, aligned to SP_RUNTIME_ALIGNMENT, its content undefined.
// Blocks that were given back are used again before new memory is asked for. NULL over the limit or
// when memory ran out: sp_i_exec_arena_failure says which. O(1) but for new memory.
void *sp_i_exec_take(sp_i_exec_arena *arena, sp_memory_category category, int64_t elements,
                     sp_i_exec_width width);
void *sp_i_exec_take_zeroed(sp_i_exec_arena *arena, sp_memory_category category, int64_t elements,
                            sp_i_exec_width width);
// Gives a block back; NULL is nothing.
void sp_i_exec_give(sp_i_exec_arena *arena, void *block);
// Stops counting a part of a block that nobody reads any more; with its last byte the block itself
// goes, and true is returned. The memory of a part stays until then.
bool sp_i_exec_give_part(sp_i_exec_arena *arena, void *block, int64_t elements,
                         sp_i_exec_width width);
// Counts a whole block under another category and width from now on, and returns it. A view moves
// into a block of its own: NULL where there is none.
void *sp_i_exec_recount(sp_i_exec_arena *arena, void *block, sp_memory_category category,
                        int64_t elements, sp_i_exec_width width);

// A view: a tensor inside another block, from byte `at` of it on, a multiple of 64. It is used and
// given back like a block, but the other one counts for both. It takes sp_i_exec_view_room of its
// real bytes there, with a gap that keeps its address from being the block's.
void *sp_i_exec_view(sp_i_exec_arena *arena, void *holder, int64_t at, int64_t elements,
                     sp_i_exec_width width);
int64_t sp_i_exec_view_room(int64_t real_bytes);
// Views of a block that are not given back; until then the block may not be.
int64_t sp_i_exec_views(const sp_i_exec_arena *arena, const void *holder);

const sp_bytes *sp_i_exec_held(const sp_i_exec_arena *arena, sp_i_exec_measure measure);
// Starts a new high-water mark at what is held now.
void sp_i_exec_mark(sp_i_exec_arena *arena);
// Returns what was held at the moment of the largest total since the mark.
const sp_bytes *sp_i_exec_high(const sp_i_exec_arena *arena, sp_i_exec_measure measure);
// Blocks that are not given back.
int64_t sp_i_exec_blocks(const sp_i_exec_arena *arena);
// Writes the reason of the last take that failed: SP_ERR_INFEASIBLE at the limit and where memory
// of a device ran out, SP_ERR_NO_MEMORY where the host's did.
sp_status sp_i_exec_arena_failure(const sp_i_exec_arena *arena, char *text, size_t text_bytes);

// ---- Slices (slices.c) ----

// The slices of a packing as one rank holds them: how many rows of each are its own, where they
// stand in its forward pack and in its backward pack, and each slice's neighbours in its sample.
//
// The tokens of a slice are cut into zig-zag shards (backends/ranks/zigzag.h) over the ranks that
// share its pack: those of context parallelism, times the data-parallel ranks of a merged pack. A
// rank's shard are its rows of the slice. Sequence parallelism cuts the rows of every slice once
// more, into parts, one for each tensor-parallel rank. The rows of a pack stand part by part, in
// each part slice by slice: so a rank's own part of a pack is one run of rows, and what all parts
// gather is the pack.

enum { SP_I_EXEC_NONE = -1, SP_I_EXEC_MOST_PARTS = 64 };

// Which of the ranks that compute the same layers this one is.
typedef struct sp_i_exec_place {
    int dp;
    int cp, cp_rank;
    int parts, part; // parts 1 without sequence parallelism
    int tp, tp_rank;
    int32_t empty_packs; // without rows, behind the packing's forward and backward packs
} sp_i_exec_place;

typedef struct sp_i_exec_slice {
    int32_t sample;
    int64_t begin, tokens, computed; // positions in the sample; computed with padding
    int32_t earlier, later;          // the slices next to it in its sample, or SP_I_EXEC_NONE
    int32_t forward_pack;
    int shards, shard; // ranks that share its tokens, and which of them this one is
    // The shards that run its attention begin with zone_shard; zone_shards 0: all do.
    int zone_shard, zone_shards;
    int64_t rows; // this rank's
} sp_i_exec_slice;

// Rows of a pack that are tokens of one slice at positions one after another.
typedef struct sp_i_exec_piece {
    int32_t slice;
    int part;
    int64_t at;    // its first row among this rank's rows of the slice
    int64_t begin; // its first position in the sample
    int64_t rows;
    int64_t row; // its first row in the pack
} sp_i_exec_piece;

// One pack: `count` slices by their numbers, and the pieces of the i-th, part after part:
// piece[first_piece[i]] to piece[first_piece[i + 1] - 1].
typedef struct sp_i_exec_pack {
    const int32_t *slice;
    int32_t count;
    int64_t all_rows; // of all ranks that share it
    int64_t rows;     // this rank's
    int64_t own_rows; // of its part
    int64_t own_row;  // the first of them
    const sp_i_exec_piece *piece;
    const size_t *first_piece; // [count + 1]
    int32_t same_as;   // the forward pack with the same slices in the same order, or SP_I_EXEC_NONE
    int64_t packed_at; // where its numbers begin in tables of all packs' rows
} sp_i_exec_pack;

typedef struct sp_i_exec_slices {
    sp_i_exec_place place;
    sp_i_exec_slice *slice; // in the order of the forward packs
    size_t count;
    sp_i_exec_pack *forward, *backward;   // as the packing's lists
    size_t forward_count, backward_count; // without the empty ones
    int32_t *store;                       // numbers, forward then backward
    sp_i_exec_piece *pieces;              // of all packs
    size_t *first_pieces;
    int64_t *forward_row; // [slices][parts]: in its forward pack, of each part's first row
    int64_t positions;    // beyond the last position of any slice
    int64_t trained;      // tokens of all slices, padding left out
    sp_arena work;        // holds all of these
} sp_i_exec_slices;

// The packing must hold every slice on both sides (sp_plan_check). O(slices * (parts + log
// slices)).
void sp_i_exec_slices_init(sp_i_exec_slices *slices, const sp_packing *packing,
                           const sp_i_exec_place *place);
void sp_i_exec_slices_fini(sp_i_exec_slices *slices);

// The positions in its sample that a shard of a slice is made of, in the order of its rows: two
// runs, of which either may be empty, or one where nobody shares the slice. Returns how many.
int sp_i_exec_shard_runs(const sp_i_exec_slice *slice, int shard,
                         sp_token_run runs[SP_ZIGZAG_RUNS]);

// Rows of part `part` of this rank's rows of a slice, and where the part begins among them.
int64_t sp_i_exec_part_rows(const sp_i_exec_slices *slices, int32_t slice, int part);
// Where the rows of a part begin in the slice's forward pack.
int64_t sp_i_exec_forward_row(const sp_i_exec_slices *slices, int32_t slice, int part);

static inline const sp_i_exec_pack *sp_i_exec_pack_at(const sp_i_exec_slices *slices, bool backward,
                                                      int32_t pack)
{
    return (backward ? slices->backward : slices->forward) + pack;
}

// ---- Tensors and parameters (tensors.c) ----

// A tensor of sim/model/layer.h as the executor holds it, sized and kept as the table says. It has
// a row for each of the pack's rows, or of the rank's own part of them.
typedef struct sp_i_exec_spec {
    int64_t columns; // 0: there is no such tensor
    int arrays;      // of equal columns, one behind the other: statistics of norms have two
    sp_i_exec_width width;
    sp_memory_category category; // where it is kept
    bool kept;                   // from the forward to the backward
    bool own; // has the rows of the rank's part alone, where sequence parallelism splits packs
    // Has a row for each row that the rank's experts have; its columns are those of a token whose
    // rows all stay.
    bool routed;
} sp_i_exec_spec;

typedef struct sp_i_exec_specs {
    sp_i_exec_spec of[SP_ALL_TENSORS];
    unsigned repeated; // operations, in a backward
    bool drops;        // the model trains with dropout
} sp_i_exec_specs;

// Widths of elements of a run.
typedef struct sp_i_exec_widths {
    sp_i_exec_width value;     // of hidden states, queries and the like: bf16 in the table
    sp_i_exec_width statistic; // of statistics and sums over tokens: fp32 in the table
    sp_i_exec_width scratch;   // of the kernels' own work spaces, which no table has
} sp_i_exec_widths;

// Those for values of `real_bytes` and statistics of `exact_bytes`.
sp_i_exec_widths sp_i_exec_widths_of(int64_t real_bytes, int64_t exact_bytes);

enum { SP_I_EXEC_EXPERT_PARAMETERS = 4, SP_I_EXEC_MOST_EXPERT_RANKS = 64 };

// Layers of one kind (sim/model/model.h) as a rank computes them: a model of such layers alone,
// the rank's share of their widths, and their tensors.
typedef struct sp_i_exec_kind {
    sp_model model;
    sp_shard shard;
    sp_i_exec_specs specs;
    // Parameters of the rank's experts stand one behind the other: how many an expert has, and
    // where weight and bias of the first product and of the second stand among them; -1: it has
    // none.
    int64_t expert_elements, expert_at[SP_I_EXEC_EXPERT_PARAMETERS];
} sp_i_exec_kind;

// Rows that a rank's experts have, and the expert of each among the rank's own.
typedef struct sp_i_exec_routed {
    int64_t count;
    int32_t *expert; // [count], a block; NULL: of a dense MLP
} sp_i_exec_routed;

// SwiGLU is one kernel whatever the stack says. Keys, then values stand slice by slice
// (sp_i_exec_kv); the mode says whether those are kept that no later slice reads.
void sp_i_exec_kind_make(const sp_model *model, int number, const sp_layout *layout,
                         sp_recompute recompute, const sp_i_exec_widths *widths,
                         sp_i_exec_kind *kind);

// The parameters of one rank, tensor by tensor: names, places in the rank and in the whole model,
// and starting values. Tensor-parallel ranks hold rows of the column-parallel matrices (queries,
// keys and values, gate and up each cut by itself) and of the vocabulary tables, columns of the
// row-parallel ones, and all of the rest.

// Random numbers that belong to a place and not to the order of drawing: each is a hash of its seed
// and its index, so that any part of a tensor or of a text can be drawn by itself.

// The output function of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators", 2014, figure 17) at the index-th state after `seed`.
static inline uint64_t sp_i_exec_draw(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// A seed for what has a name.
static inline uint64_t sp_i_exec_draw_name(uint64_t seed, const char *name)
{
    uint64_t hash = sp_i_exec_draw(seed, 0);
    for (; *name != '\0'; name++) {
        hash = sp_i_exec_draw(hash, (unsigned char)*name);
    }
    return hash;
}

// Even over [0, 1), 53 bits.
static inline double sp_i_exec_uniform(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

// Slots of a virtual stage: those of each layer, then embedding and LM head, whose `layer` is the
// number of layers.
static inline int sp_i_exec_slot(int layer, sp_parameter_kind kind)
{
    return layer * SP_PARAMETER_LAYER_KINDS + (int)kind -
           (kind < SP_PARAMETER_LAYER_KINDS ? 0 : SP_PARAMETER_LAYER_KINDS);
}

static inline int sp_i_exec_slots(int layers)
{
    return sp_i_exec_slot(layers, SP_PARAMETER_KINDS);
}

enum { SP_I_EXEC_WEIGHT_NAME = 64 };

// Rows that are neighbours in the whole tensor too.
typedef struct sp_i_exec_row_run {
    int64_t rows, from;
} sp_i_exec_row_run;

enum { SP_I_EXEC_ROW_RUNS = 3 }; // queries, keys, values

typedef struct sp_i_exec_weight {
    char name[SP_I_EXEC_WEIGHT_NAME]; // in the whole model: "layers.3.qkv.weight"
    int chunk, slot;
    int expert;     // of its layer in the whole model; -1: of none
    int64_t offset; // among the rank's parameters
    int64_t elements, rows, columns;
    // The whole tensor, and what of it these are. Rows behind the last run are padding, always 0.
    int64_t all_rows, all_columns;
    sp_i_exec_row_run run[SP_I_EXEC_ROW_RUNS];
    int64_t first_column;
    // Elements whose gradient each tensor-parallel rank has a part of, and how many neighbouring
    // ranks have the same elements; 0 where gradients are complete or alike.
    int64_t shared_first, shared_elements;
    int shared_by;
    bool decays;
    bool copy;      // an earlier pipeline rank holds the same elements under the same name
    bool continued; // an earlier pipeline rank holds other rows of it
    double centre;  // starting values are spread evenly around it
    double spread;  // standard deviation
} sp_i_exec_weight;

typedef struct sp_i_exec_weights {
    sp_i_exec_weight *items;
    size_t count, capacity;
    int64_t elements; // of all
} sp_i_exec_weights;

// All chunks of a rank, in the order of sim/model/parameter_list; `stages` are all
// virtual stages. Experts have the slot of the first one's first product, one behind the other.
// Owned by the caller.
void sp_i_exec_weights_make(const sp_model *model, const sp_layout *layout, const sp_stage *stages,
                            int pp, int tp_rank, int ep_rank, sp_i_exec_weights *weights);
void sp_i_exec_weights_fini(sp_i_exec_weights *weights);

// Where a rank's element stands in the whole tensor; -1: padding.
int64_t sp_i_exec_weight_index(const sp_i_exec_weight *weight, int64_t element);

// Starting value of a rank's element: by the run's seed, the tensor's name and the place in the
// whole tensor alone, so that every layout starts from the same model. `tensor_seed` is
// sp_i_exec_weight_seed's.
uint64_t sp_i_exec_weight_seed(const sp_i_exec_weight *weight, uint64_t seed);
double sp_i_exec_weight_start(const sp_i_exec_weight *weight, uint64_t tensor_seed,
                              int64_t element);

// ---- Ranks that compute together (stage.c) ----

// A rank's way to those that compute the same layers, and the time that it spends on it.

typedef enum sp_i_exec_exchange_kind {
    SP_I_EXEC_TP, // with ranks that share the layers' widths, or the vocabulary
    SP_I_EXEC_CP, // with those that share a pack's tokens: keys, values and their gradients
    SP_I_EXEC_DP, // with those that have the same parameters
    SP_I_EXEC_EXCHANGE_KINDS
} sp_i_exec_exchange_kind;

// From one timestamp to another. Virtual time counts the rank's own computing, which leaves out
// what others do on the same device while the rank waits for them; the wall clock takes the
// device's stamps.
typedef struct sp_i_exec_exchange {
    sp_i_exec_exchange_kind kind;
    uint64_t begin, end;
} sp_i_exec_exchange;

// Its first failed exchange is kept here: what computes only says that it failed.
typedef struct sp_i_exec_links {
    sp_comm *me;
    sp_runtime *runtime;
    bool stamps;                   // moments are stamps: of runs on the wall clock
    int tp_group;                  // ranks that share the layers' widths
    int vocab_group;               // pipeline ranks that share the vocabulary, in order; or -1
    int vocab_root[2];             // of them: those with the model's first and last layers
    int expert_group;              // data-parallel ranks that share the experts, in order; or -1
    const int *token_group;        // [forward packs]: ranks that share the pack's tokens
    sp_i_exec_exchange *exchanges; // of the step
    size_t exchange_count, exchange_capacity;
    int64_t end_ns; // computed in a head that pipeline ranks share, since somebody set it to 0
    sp_status status;
    sp_error err;
} sp_i_exec_links;

void sp_i_exec_links_fini(sp_i_exec_links *links);

// Around an exchange of the calling thread's rank: gives its beginning; takes it and how the
// exchange ended. False where it failed.
uint64_t sp_i_exec_exchange_begin(const sp_i_exec_links *links);
bool sp_i_exec_exchange_end(sp_i_exec_links *links, sp_i_exec_exchange_kind kind, uint64_t begin,
                            sp_status status);

#define SP_I_EXEC_NORM_EPSILON 1e-5
#define SP_I_EXEC_ROPE_BASE 10000.0

// A number that each row of a pack has.
typedef enum sp_i_exec_number {
    SP_I_EXEC_TOKENS,
    SP_I_EXEC_TARGETS,       // negative: padding
    SP_I_EXEC_POSITIONS,     // where the model has a table of them
    SP_I_EXEC_OWN_POSITIONS, // of the rank's part, in its order
    SP_I_EXEC_NUMBERS
} sp_i_exec_number;

// Shared by all stages of a rank in a step.
typedef struct sp_i_exec_job {
    sp_runtime *runtime; // that the run's ranks work on
    const sp_model *model;
    sp_i_exec_widths width;
    // Kinds of layers differ in their layers alone, so that the first one's stand for embedding and
    // head.
    sp_i_exec_kind kind[SP_LAYER_KINDS];
    sp_i_exec_slices slices;
    // Each of the rank's rows, slice after slice in the order of the forward packs, has a token, a
    // token to be predicted (negative: padding) and position. token_at[slice] is the place of its
    // first.
    int64_t *token, *target, *position;
    int64_t *token_at;
    // These numbers row by row of every pack, from `packed_at` on.
    int64_t *packed[SP_I_EXEC_NUMBERS];
    const int64_t *ids;                  // of the batch's samples
    sp_comm_attention_way attention_way; // of packs that several ranks share
    int attention_node;                  // routed: neighbours among them that are one node
    double dropout;                      // probability that an output of a block is dropped
    uint64_t dropout_seed;               // of the step
} sp_i_exec_job;

// The weight gradients of a layer's products read their inputs and the gradients of their outputs,
// in this order; the head has one product.
enum { SP_I_EXEC_DEFERRED = 20 };

// Among the rank's flat parameters.
typedef struct sp_i_exec_range {
    int64_t begin, count;
} sp_i_exec_range;

// ---- Shares of gradients and parameters ----

// Ranks that hold the same parameters (dp * cp of them), where each keeps only its share of the
// summed gradients (ZeRO 2), and of the parameters too (ZeRO 3; Rajbhandari and others, arXiv
// 1910.02054, section 5).
//
// They run different packs at different times, so nothing here waits for another rank, as in the
// cost model (sim/cost/data_parallel.c). All live in one memory: parameters do not change within a
// step, so whoever needs some reads them where their owners keep them. Gradients are given away
// tensor by tensor, as soon as an action has finished them, and added up in the owners' shares
// under a lock, in an order that no timing changes: the first that each member gave, member after
// member, then the second of each, and so on. What comes before its turn is copied and waits on its
// way, where it is, like hidden states between stages, in nobody's memory. Whoever adds does so
// after what the one before added, by the device's fences.

// Elements [begin, end) of the flat parameters, as one member keeps them.
typedef struct sp_i_exec_share {
    int64_t begin, end;
    void *values, *gradients; // of these elements alone; NULL where they are not sharded
} sp_i_exec_share;

typedef struct sp_i_exec_contribution sp_i_exec_contribution;

// The contributions of a member to this step.
typedef struct sp_i_exec_contributor {
    sp_i_exec_contribution *first, *last; // on their way
    int64_t given;
    bool finished;
} sp_i_exec_contributor;

typedef struct sp_i_exec_replicas {
    sp_i_exec_share *shares;             // [count], one behind the other
    sp_i_exec_contributor *contributors; // [count]
    int count;
    sp_runtime *runtime;
    int64_t value_bytes, gradient_bytes;            // of an element
    void (*add)(int64_t n, const void *x, void *y); // y += x, gradients
    pthread_mutex_t lock;                           // of all below, and of the shared gradients
    sp_i_exec_arena *arena;                         // of what is on its way
    int64_t round; // the next to be added: contribution `round` of member `turn`
    int turn;
    sp_fence added; // the last addition
} sp_i_exec_replicas;

// Shares all empty: the caller's to fill in.
void sp_i_exec_replicas_init(sp_i_exec_replicas *replicas, sp_runtime *runtime, int count,
                             int64_t value_bytes, int64_t gradient_bytes,
                             void (*add)(int64_t n, const void *x, void *y));
void sp_i_exec_replicas_fini(sp_i_exec_replicas *replicas);

// The member that keeps an element.
const sp_i_exec_share *sp_i_exec_share_of(const sp_i_exec_replicas *replicas, int64_t element);

// Adds to the gradients of these elements, now or later; `gradient` may change afterwards. False
// where memory ran out.
bool sp_i_exec_scatter(sp_i_exec_replicas *replicas, int member, int64_t begin, int64_t count,
                       const void *gradient);
// The member gives nothing more in this step.
void sp_i_exec_scatter_end(sp_i_exec_replicas *replicas, int member);
// When all have said so: what the calling thread's rank does from now on finds the gradients
// complete.
void sp_i_exec_scatter_wait(sp_i_exec_replicas *replicas);
// Begins the next step, when all work of the one before is over.
void sp_i_exec_scatter_begin(sp_i_exec_replicas *replicas);

// ---- A virtual stage ----

// Tables hold blocks of the arena, NULL where there is none. The head's tensors stand behind those
// of the last layer.
typedef struct sp_i_exec_stage {
    const sp_i_exec_job *job;
    sp_i_exec_arena *arena; // of its rank
    sp_i_exec_links *links; // of its rank
    sp_stage model_part;
    bool first, last;         // of all virtual stages
    int vocab_rank;           // which share of the vocabulary it has, if any
    void **value, **gradient; // by slot; borrowed from the rank, or of an open unit
    sp_i_exec_range *range;   // by slot; count 0: there is none
    bool gathers, scatters;   // parameters, gradients: the rank has its share of them alone
    sp_i_exec_replicas *replicas;
    int member;                      // of them, this rank
    const void *cosine, *sine;       // [positions, head_dim / 2]; borrowed from the rank
    void **saved;                    // [forward packs][layers + 1][SP_ALL_TENSORS]
    void **input;                    // [forward packs]: of a forward that runs again
    void **kv;                       // [slices][layers]: keys | values, turned by their positions
    void **kv_gradient;              // [slices][layers]: sum so far over later slices
    void **deferred;                 // [backward packs][layers + 1][SP_I_EXEC_DEFERRED]
    sp_i_exec_routed *deferred_rows; // [backward packs][layers]: of experts whose products wait
    // [forward packs][layers][SP_I_EXEC_MOST_EXPERT_RANKS]: rows from each rank that shares them;
    // NULL: none
    int64_t *arrived;
    double *loss;  // [forward packs], in the device's memory
    sp_arena work; // holds the tables
} sp_i_exec_stage;

// Tables, all empty, and a loss that is not yet set. Places, value, gradient, range and what
// follows, cosine and sine are the caller's to fill in.
sp_status sp_i_exec_stage_init(sp_i_exec_stage *stage, const sp_i_exec_job *job,
                               sp_i_exec_arena *arena, sp_i_exec_links *links, sp_stage model_part,
                               sp_error *err);
void sp_i_exec_stage_fini(sp_i_exec_stage *stage);

// The kind of a layer of the stage; behind the last one stands the head.
const sp_i_exec_kind *sp_i_exec_kind_of(const sp_i_exec_stage *stage, int layer);

void **sp_i_exec_saved(const sp_i_exec_stage *stage, int32_t forward_pack, int layer,
                       sp_layer_tensor_id tensor);
void **sp_i_exec_kv(const sp_i_exec_stage *stage, int32_t slice, int layer);
void **sp_i_exec_kv_gradient(const sp_i_exec_stage *stage, int32_t slice, int layer);
sp_i_exec_routed *sp_i_exec_deferred_rows(const sp_i_exec_stage *stage, int32_t backward_pack,
                                          int layer);
int64_t *sp_i_exec_arrived(const sp_i_exec_stage *stage, int32_t forward_pack, int layer);
// SP_I_EXEC_DEFERRED entries.
void **sp_i_exec_deferred_of(const sp_i_exec_stage *stage, int32_t backward_pack, int layer);

// The rows of a backward pack of a tensor that forwards saved, as a block of the caller's: the
// saved one itself where the pack is a forward pack, else a copy, whose rows are given back where
// they came from. False when memory ran out.
bool sp_i_exec_fetch(const sp_i_exec_stage *stage, const sp_i_exec_pack *pack, int layer,
                     sp_layer_tensor_id tensor, void **block);

// Fills in the numbers of all packs from token, target and position.
void sp_i_exec_pack_numbers(sp_i_exec_job *job);

// Parameters and gradients of a layer or of one end of the model while an action works on it. Where
// ZeRO leaves a rank with its share of them alone, opening a unit gathers its
// parameters and makes room for its gradients, and closing it gives the gradients away.

typedef enum sp_i_exec_unit_use {
    SP_I_EXEC_FORWARD,  // parameters
    SP_I_EXEC_BACKWARD, // parameters and all gradients
    SP_I_EXEC_INPUTS,   // parameters, and gradients of norms and of tables that are looked up
    SP_I_EXEC_WEIGHTS   // gradients of the others
} sp_i_exec_unit_use;

typedef struct sp_i_exec_unit {
    int slot, count; // slots one behind the other
    sp_i_exec_unit_use use;
} sp_i_exec_unit;

sp_i_exec_unit sp_i_exec_layer_unit(int layer, sp_i_exec_unit_use use);
sp_i_exec_unit sp_i_exec_embedding_unit(const sp_i_exec_stage *stage, sp_i_exec_unit_use use);
sp_i_exec_unit sp_i_exec_head_unit(const sp_i_exec_stage *stage, sp_i_exec_unit_use use);

// False where memory ran out.
bool sp_i_exec_open(sp_i_exec_stage *stage, sp_i_exec_unit unit);
bool sp_i_exec_close(sp_i_exec_stage *stage, sp_i_exec_unit unit);

// The functions that compute, for each precision. Hidden states have the rows of the rank's own
// part of the pack (above). False: an exchange with other ranks failed (links), or memory ran
// out (sp_i_exec_arena_failure); what was held stays in the arena.

typedef struct sp_i_exec_update {
    int64_t step; // from 1 on
    double learning_rate, weight_decay;
    double gradient_scale;
} sp_i_exec_update;

typedef enum sp_i_exec_vocab_work {
    SP_I_EXEC_EMBED,
    SP_I_EXEC_EMBED_BACKWARD,
    SP_I_EXEC_HEAD,
    SP_I_EXEC_HEAD_BACKWARD
} sp_i_exec_vocab_work;

typedef struct sp_i_exec_math {
    // Bytes of values and hidden states; of statistics, gradients, optimizer states and masters.
    int64_t real_bytes, exact_bytes;
    // Runs a forward pack. `input` [own rows, hidden] comes from the stage before, NULL where the
    // stage embeds; `output` goes to the stage behind, NULL where it has the head, which adds to
    // the pack's loss. Where not `keep` it will run again: only its input stays, and the keys and
    // values that later slices read.
    bool (*forward)(sp_i_exec_stage *stage, int32_t pack, const void *input, void *output,
                    bool keep);
    // Runs it again and keeps what a forward keeps.
    bool (*again)(sp_i_exec_stage *stage, int32_t pack);
    // Runs a backward pack. `gradient` is that of the stage's output, NULL for the head; writes
    // `input_gradient`, NULL where the stage embeds. With `split` the products of the weight
    // gradients are left to `weights`.
    bool (*backward)(sp_i_exec_stage *stage, int32_t pack, const void *gradient,
                     void *input_gradient, bool split);
    bool (*weights)(sp_i_exec_stage *stage, int32_t pack);
    // A share of the vocabulary's work at a pipeline rank other than the one that runs the action,
    // while that one does. `flag`: what the forward keeps stays; of a backward: split.
    bool (*share)(sp_i_exec_stage *stage, sp_i_exec_vocab_work what, int32_t pack, bool flag);
    // cosine and sine, exact [positions, head_dim / 2] of the positions 0, 1, ...
    void (*rope_table)(int64_t positions, int64_t head_dim, void *cosine, void *sine);
    void (*add_exact)(int64_t n, const void *x, void *y); // y += x, of gradients
    // All exact but `value`, which becomes master rounded. Where the two widths
    // are one, value and master are one array.
    void (*update)(const sp_i_exec_update *update, int64_t n, const void *gradient, void *master,
                   void *first, void *second, void *value);
} sp_i_exec_math;

extern const sp_i_exec_math sp_i_exec_math_f32, sp_i_exec_math_f64;
// Values are bf16 there and all else fp32; a GPU's, in the CUDA backend.
extern const sp_i_exec_math sp_i_exec_math_bf16;

#endif
