// The operators of one transformer layer (and of embedding and head) on one rank, pass by pass,
// with their FLOPs and bytes under TP, CP and sequence parallelism. The cost model turns them into
// time.
#ifndef SLIMPACK_SIM_MODEL_INVENTORY_H
#define SLIMPACK_SIM_MODEL_INVENTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/model/layer.h"
#include "sim/model/layout.h"
#include "sim/model/model.h"
#include "sim/model/recompute.h"
#include "sim/model/stack.h"

extern const char *const sp_attention_names[]; // NULL-terminated

// I is the gradient of the inputs, W of the weights that are trained; a full backward is both.
typedef enum sp_pass { SP_PASS_F, SP_PASS_I, SP_PASS_W, SP_PASS_RECOMPUTE } sp_pass;

typedef enum sp_op_kind {
    SP_OP_GEMM,
    SP_OP_ATTENTION,      // cost by (query, key) pairs; m is the number of matmuls: forward 2,
                          // backward 5 (flash) or 4 (unfused)
    SP_OP_MEMORY,         // bound by bytes
    SP_OP_ALL_GATHER,     // over TP
    SP_OP_REDUCE_SCATTER, // over TP
    SP_OP_ALL_REDUCE,     // over TP
    SP_OP_CP_KV,          // keys and values (or their gradients) over CP ranks
    SP_OP_CP_HEADS,       // all-to-all over CP ranks: all heads of some tokens, or the reverse
    // Of experts on several ranks.
    SP_OP_EXPERT_ALL_TO_ALL, // over EP
    SP_OP_EXPERT_GATHER,     // over ETP of the rows that a rank received
    SP_OP_EXPERT_SCATTER,    // its reverse: sums of what the parts of an expert gave
    SP_OP_TOKENS_GATHER,     // over ETP x EP of the tokens of all
    SP_OP_TOKENS_SCATTER,    // its reverse
    SP_OP_ROUTED_TOKENS,     // over ETP x EP, once to each node and rank with an expert of a token
    SP_OP_EXPERT_COUNTS      // all-gather of bytes_fixed over ETP x EP, for which the host waits
} sp_op_kind;

// Where the experts of a token are: `active` of `experts`, in `active_groups` of `groups` at most
// where there are groups.
typedef struct sp_routing {
    int experts, active, groups, active_groups;
} sp_routing;

// The exchange of routed experts beside which an operator of shared ones may run: rows go to
// experts, or come back.
typedef enum sp_beside { SP_BESIDE_NOTHING, SP_BESIDE_FIRST, SP_BESIDE_RETURN } sp_beside;

// One operator on one rank for S local tokens (S = tokens of the pack / cp).
typedef struct sp_op {
    const char *name;
    sp_op_kind kind;
    // GEMM: m x n x k, where the dimension that counts tokens is 0 and stands for token_share * S.
    int64_t m, n, k;
    double token_share; // 1; experts_per_token/experts for an expert's GEMM
    int repeat;         // equal launches (experts); at least 1
    bool blocks;        // a collective that nothing hides, whatever the stack does
    bool of_experts;    // runs for each expert: repeat or kernels are multiples of their number
    bool routed;        // works on the rows that this rank's experts receive
    // Memory operator: bytes read and written = bytes_per_token*S + bytes_per_pair*pairs(full, on
    // this rank) + bytes_fixed. Collectives: bytes_per_token*S is the size of the full (gathered)
    // tensor, or of a rank's part before an all-to-all.
    double bytes_per_token;
    double bytes_per_pair;
    double bytes_fixed;
    // Beyond bytes_per_pair where the softmax runs as separate kernels (stack.h).
    double unfused_bytes_per_pair;
    double flops_per_token;  // of a state, whose time is that of its bytes
    double logits_per_token; // of the loss: a profile may give bytes per logit in place of these
    bool loss_in_place;      // of the loss: it writes its gradient over the logits
    double top_ks_per_token; // of a router: times that the best of a token's scores are found
    bool fp8;                // a GEMM of two FP8 matrices
    int pad_rows;            // its rows are filled up to a multiple of so many; 0: as they are
    bool even_rows;          // each expert has as many rows as the next, by its capacity
    bool is_qkv;             // the QKV projection, which a CP gather may hide behind
    int kernels;             // kernel launches of one run of the operator (0 for collectives)
    bool of_mlp;             // between a dispatch and its combination, or of shared experts
    bool returns;            // of exchanges: rows come back from experts, else they go there
    sp_beside beside;        // SP_BESIDE_NOTHING but for shared experts
    sp_routing routing;      // SP_OP_ROUTED_TOKENS: token_share of the bytes of a token's row
} sp_op;

enum { SP_INVENTORY_OPS = 136 };

typedef struct sp_inventory {
    sp_op ops[SP_INVENTORY_OPS];
    int count;
} sp_inventory;

// Operators of one part in one pass, with the kernels that the stack runs. For SP_PASS_RECOMPUTE
// the forward operators that `recompute` runs again before the backward (none for
// SP_RECOMPUTE_NONE).
void sp_inventory_build(const sp_model *model, const sp_layout *layout, const sp_stack *stack,
                        sp_attention attention, sp_recompute recompute, sp_part part, sp_pass pass,
                        sp_inventory *inventory);

// FLOPs of an inventory on one rank: local_tokens = S; pairs2 = twice the (query, key) pairs that
// this rank's share of the attention covers, before the division by TP (heads).
double sp_inventory_flops(const sp_inventory *inventory, const sp_model *model,
                          const sp_layout *layout, sp_pass pass, double local_tokens,
                          double pairs2);

#endif
