// Ranks that hold the same parameters (dp * cp of them), where each keeps only its share of the
// summed gradients (ZeRO 2), and of the parameters too (ZeRO 3; Rajbhandari and others, arXiv
// 1910.02054, section 5).
//
// They run different packs at different times, so nothing here waits for another rank, as in the
// cost model (sim/cost/zero.h). All live in one memory: parameters do not change within a step, so
// whoever needs some reads them where their owners keep them. Gradients are given away tensor by
// tensor, as soon as an action has finished them, and added up in the owners' shares under a lock,
// in an order that no timing changes: the first that each member gave, member after member, then
// the second of each, and so on. What comes before its turn is copied and waits on its way, where
// it is, like hidden states between stages, in nobody's memory.
#ifndef SLIMPACK_BACKENDS_HOST_REPLICAS_H
#define SLIMPACK_BACKENDS_HOST_REPLICAS_H

#include <pthread.h>

#include "backends/host/arena.h"

// Elements [begin, end) of the flat parameters, as one member keeps them.
typedef struct sp_i_host_share {
    int64_t begin, end;
    void *values, *gradients; // of these elements alone; NULL where they are not sharded
} sp_i_host_share;

typedef struct sp_i_host_gift sp_i_host_gift;

// What a member has given in this step.
typedef struct sp_i_host_giver {
    sp_i_host_gift *first, *last; // on their way
    int64_t given;
    bool finished;
} sp_i_host_giver;

typedef struct sp_i_host_replicas {
    sp_i_host_share *shares; // [count], one behind the other
    sp_i_host_giver *givers; // [count]
    int count;
    int64_t real_bytes;
    void (*add)(int64_t n, const void *x, void *y); // y += x
    pthread_mutex_t lock;                           // of all below, and of the shared gradients
    sp_i_host_arena *arena;                         // of what is on its way
    int64_t round; // whose turn it is: the gift `round` of member `turn`
    int turn;
} sp_i_host_replicas;

// Shares all empty: the caller's to fill in.
sp_status sp_i_host_replicas_init(sp_i_host_replicas *replicas, int count, int64_t real_bytes,
                                  void (*add)(int64_t n, const void *x, void *y), sp_error *err);
void sp_i_host_replicas_fini(sp_i_host_replicas *replicas);

// The member that keeps an element.
const sp_i_host_share *sp_i_host_share_of(const sp_i_host_replicas *replicas, int64_t element);
// Copies elements [begin, begin + count) of the parameters. O(count + members).
void sp_i_host_gather(const sp_i_host_replicas *replicas, int64_t begin, int64_t count, void *to);

// Adds to the gradients of these elements, now or later; `gradient` may change afterwards. False
// where memory ran out.
bool sp_i_host_scatter(sp_i_host_replicas *replicas, int member, int64_t begin, int64_t count,
                       const void *gradient);
// The member gives nothing more in this step. When all have said so, the gradients are complete.
void sp_i_host_scatter_end(sp_i_host_replicas *replicas, int member);
// Begins the next step.
void sp_i_host_scatter_begin(sp_i_host_replicas *replicas);

#endif
