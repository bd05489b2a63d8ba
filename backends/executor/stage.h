// One virtual stage of one data-parallel rank: its parameters, and what its actions hold for each
// other. Tensors are of the run's precision; what computes with them (typed/) is compiled for each.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_STAGE_H
#define SLIMPACK_BACKENDS_EXECUTOR_STAGE_H

#include <pthread.h>

#include "backends/api/device_runtime.h"
#include "backends/executor/arena.h"
#include "backends/executor/slices.h"
#include "backends/executor/tensors.h"
#include "backends/ranks/attention.h"
#include "backends/ranks/comm.h"
#include "sim/model/layout.h"

// A rank's way to those that compute the same layers, and the time that it spends on it.

typedef enum sp_i_exec_exchange_kind {
    SP_I_EXEC_TP, // with ranks that share the layers' widths, or the vocabulary
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
    const int *token_group;        // [forward packs]: ranks that share the pack's tokens
    sp_i_exec_exchange *exchanges; // of the step
    size_t exchange_count, exchange_capacity;
    int64_t end_ns; // computed in a head that pipeline ranks share, since somebody set it to 0
    sp_status status;
    sp_error err;
} sp_i_exec_links;

void sp_i_exec_links_fini(sp_i_exec_links *links);

// Around an exchange of the calling thread's rank: gives its beginning; takes it and how the
// exchange ended. False where it failed, or where memory ran out.
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
    sp_shard shard;
    sp_i_exec_specs specs;
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

// The weight gradients of a layer's four products read their inputs and the gradients of their
// outputs, in this order; the head has one product.
enum { SP_I_EXEC_DEFERRED = 8 };

// Among the rank's flat parameters.
typedef struct sp_i_exec_range {
    int64_t begin, count;
} sp_i_exec_range;

// Elements of a range that lie in [begin, end).
static inline sp_i_exec_range sp_i_exec_overlap(sp_i_exec_range range, int64_t begin, int64_t end)
{
    int64_t from = range.begin > begin ? range.begin : begin;
    int64_t to = range.begin + range.count < end ? range.begin + range.count : end;
    return (sp_i_exec_range){from, from < to ? to - from : 0};
}

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
// Copies elements [begin, begin + count) of the parameters. O(count + members).
void sp_i_exec_gather(const sp_i_exec_replicas *replicas, int64_t begin, int64_t count, void *to);

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
    sp_stage part;
    int first_layer;          // in the model
    bool first, last;         // of all virtual stages
    int vocab_rank;           // which share of the vocabulary it has, if any
    void **value, **gradient; // by slot; borrowed from the rank, or of an open unit (stage.h)
    sp_i_exec_range *range;   // by slot; count 0: there is none
    bool gathers, scatters;   // parameters, gradients: the rank has its share of them alone
    sp_i_exec_replicas *replicas;
    int member;                // of them, this rank
    const void *cosine, *sine; // [positions, head_dim / 2]; borrowed from the rank
    void **saved;              // [forward packs][layers + 1][SP_I_EXEC_TENSORS]
    void **input;              // [forward packs]: of a forward that runs again
    void **kv;                 // [slices][layers]: keys | values, turned by their positions
    void **kv_gradient;        // [slices][layers]: sum so far over later slices
    void **deferred;           // [backward packs][layers + 1][SP_I_EXEC_DEFERRED]
    double *loss;              // [forward packs], in the device's memory
} sp_i_exec_stage;

// Tables, all empty, and a loss that is not yet set. Places, value, gradient, range and what
// follows, cosine and sine are the caller's to fill in.
sp_status sp_i_exec_stage_init(sp_i_exec_stage *stage, const sp_i_exec_job *job,
                               sp_i_exec_arena *arena, sp_i_exec_links *links, sp_stage part,
                               sp_error *err);
void sp_i_exec_stage_fini(sp_i_exec_stage *stage);

void **sp_i_exec_saved(const sp_i_exec_stage *stage, int32_t forward_pack, int layer,
                       sp_i_exec_tensor tensor);
void **sp_i_exec_kv(const sp_i_exec_stage *stage, int32_t slice, int layer);
void **sp_i_exec_kv_gradient(const sp_i_exec_stage *stage, int32_t slice, int layer);
// SP_I_EXEC_DEFERRED entries.
void **sp_i_exec_deferred_of(const sp_i_exec_stage *stage, int32_t backward_pack, int layer);

// The rows of a backward pack of a tensor that forwards saved, as a block of the caller's: the
// saved one itself where the pack is a forward pack, else a copy, whose rows are given back where
// they came from. False when memory ran out.
bool sp_i_exec_fetch(const sp_i_exec_stage *stage, const sp_i_exec_pack *pack, int layer,
                     sp_i_exec_tensor tensor, void **block);

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
// part of the pack (slices.h). False: an exchange with other ranks failed (links), or memory ran
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
