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
#ifndef SLIMPACK_BACKENDS_EXECUTOR_REPLICAS_H
#define SLIMPACK_BACKENDS_EXECUTOR_REPLICAS_H

#include <pthread.h>

#include "backends/executor/arena.h"

// Elements [begin, end) of the flat parameters, as one member keeps them.
typedef struct sp_i_exec_share {
    int64_t begin, end;
    void *values, *gradients; // of these elements alone; NULL where they are not sharded
} sp_i_exec_share;

typedef struct sp_i_exec_contribution sp_i_exec_contribution;

// What a member has given in this step.
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

#endif
