#include "backends/host/replicas.h"

#include <string.h>

#include "sim/base/alloc.h"

enum { GIFT_LINE = 64 };

// Stands before its gradients.
struct sp_i_host_gift {
    sp_i_host_gift *next;
    int64_t begin, count;
};

_Static_assert(sizeof(sp_i_host_gift) <= GIFT_LINE, "a gift's header fits its line");

sp_status sp_i_host_replicas_init(sp_i_host_replicas *replicas, int count, int64_t real_bytes,
                                  void (*add)(int64_t n, const void *x, void *y), sp_error *err)
{
    *replicas = (sp_i_host_replicas){.real_bytes = real_bytes, .add = add};
    replicas->arena = sp_i_host_arena_new(SP_I_HOST_TABLE, 0);
    if (replicas->arena != NULL) {
        pthread_mutex_init(&replicas->lock, NULL);
    }
    replicas->shares = sp_i_calloc((size_t)count, sizeof *replicas->shares);
    replicas->givers = sp_i_calloc((size_t)count, sizeof *replicas->givers);
    replicas->count = count;
    return replicas->arena != NULL && replicas->shares != NULL && replicas->givers != NULL
               ? SP_OK
               : sp_error_no_memory(err, "shares of parameters");
}

void sp_i_host_replicas_fini(sp_i_host_replicas *replicas)
{
    if (replicas->arena != NULL) {
        pthread_mutex_destroy(&replicas->lock);
    }
    sp_i_host_arena_free(replicas->arena);
    sp_i_free(replicas->shares);
    sp_i_free(replicas->givers);
    *replicas = (sp_i_host_replicas){0};
}

const sp_i_host_share *sp_i_host_share_of(const sp_i_host_replicas *replicas, int64_t element)
{
    int64_t each = replicas->shares[0].end - replicas->shares[0].begin;
    return &replicas->shares[element / each];
}

// The first run of [begin, end) that one member keeps.
static int64_t run_end(const sp_i_host_share *share, int64_t end)
{
    return share->end < end ? share->end : end;
}

void sp_i_host_gather(const sp_i_host_replicas *replicas, int64_t begin, int64_t count, void *to)
{
    int64_t bytes = replicas->real_bytes;
    int64_t end = begin + count;
    char *next = to;
    while (begin < end) {
        const sp_i_host_share *share = sp_i_host_share_of(replicas, begin);
        int64_t until = run_end(share, end);
        memcpy(next, (const char *)share->values + (begin - share->begin) * bytes,
               (size_t)((until - begin) * bytes));
        next += (until - begin) * bytes;
        begin = until;
    }
}

static void add_up(const sp_i_host_replicas *r, int64_t begin, int64_t count, const void *gradient)
{
    int64_t end = begin + count;
    const char *next = gradient;
    while (begin < end) {
        const sp_i_host_share *share = sp_i_host_share_of(r, begin);
        int64_t until = run_end(share, end);
        r->add(until - begin, next,
               (char *)share->gradients + (begin - share->begin) * r->real_bytes);
        next += (until - begin) * r->real_bytes;
        begin = until;
    }
}

static void pass_turn(sp_i_host_replicas *r)
{
    r->turn = (r->turn + 1) % r->count;
    r->round += r->turn == 0;
}

// Passes over members that give nothing more. False where all of them are done.
static bool find_turn(sp_i_host_replicas *r)
{
    for (int i = 0; i < r->count; i++) {
        const sp_i_host_giver *giver = &r->givers[r->turn];
        if (!giver->finished || r->round < giver->given) {
            return true;
        }
        pass_turn(r);
    }
    return false;
}

// Adds what is on its way, as far as it is its turn.
static void add_waiting(sp_i_host_replicas *r)
{
    while (find_turn(r) && r->givers[r->turn].first != NULL) {
        sp_i_host_giver *giver = &r->givers[r->turn];
        sp_i_host_gift *gift = giver->first;
        add_up(r, gift->begin, gift->count, (const char *)gift + GIFT_LINE);
        giver->first = gift->next;
        sp_i_host_give(r->arena, gift);
        pass_turn(r);
    }
}

static bool send(sp_i_host_replicas *r, sp_i_host_giver *giver, int64_t begin, int64_t count,
                 const void *gradient)
{
    const sp_i_host_width bytes = {GIFT_LINE + count * r->real_bytes, 0};
    sp_i_host_gift *gift = sp_i_host_take(r->arena, SP_MEM_COMMUNICATION, 1, bytes);
    if (gift == NULL) {
        return false;
    }
    *gift = (sp_i_host_gift){.begin = begin, .count = count};
    memcpy((char *)gift + GIFT_LINE, gradient, (size_t)(count * r->real_bytes));
    if (giver->first == NULL) {
        giver->first = gift;
    } else {
        giver->last->next = gift;
    }
    giver->last = gift;
    return true;
}

bool sp_i_host_scatter(sp_i_host_replicas *replicas, int member, int64_t begin, int64_t count,
                       const void *gradient)
{
    sp_i_host_giver *giver = &replicas->givers[member];
    bool ok = true;
    pthread_mutex_lock(&replicas->lock);
    bool now = find_turn(replicas) && replicas->turn == member && replicas->round == giver->given;
    giver->given++;
    if (now) {
        add_up(replicas, begin, count, gradient);
        pass_turn(replicas);
        add_waiting(replicas);
    } else {
        ok = send(replicas, giver, begin, count, gradient);
    }
    pthread_mutex_unlock(&replicas->lock);
    return ok;
}

void sp_i_host_scatter_end(sp_i_host_replicas *replicas, int member)
{
    pthread_mutex_lock(&replicas->lock);
    replicas->givers[member].finished = true;
    add_waiting(replicas);
    pthread_mutex_unlock(&replicas->lock);
}

void sp_i_host_scatter_begin(sp_i_host_replicas *replicas)
{
    for (int m = 0; m < replicas->count; m++) {
        SP_ASSERT(replicas->givers[m].first == NULL);
        replicas->givers[m] = (sp_i_host_giver){0};
    }
    replicas->round = 0;
    replicas->turn = 0;
}
