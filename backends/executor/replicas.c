#include "backends/executor/replicas.h"

#include "sim/base/alloc.h"

struct sp_i_exec_contribution {
    sp_i_exec_contribution *next;
    int64_t begin, count;
    void *gradient;
    sp_fence copied;
};

void sp_i_exec_replicas_init(sp_i_exec_replicas *replicas, sp_runtime *runtime, int count,
                             int64_t value_bytes, int64_t gradient_bytes,
                             void (*add)(int64_t n, const void *x, void *y))
{
    *replicas = (sp_i_exec_replicas){.runtime = runtime,
                                     .value_bytes = value_bytes,
                                     .gradient_bytes = gradient_bytes,
                                     .add = add};
    replicas->arena = sp_i_exec_arena_new_shared(runtime);
    pthread_mutex_init(&replicas->lock, NULL);
    replicas->shares = sp_calloc((size_t)count, sizeof *replicas->shares);
    replicas->contributors = sp_calloc((size_t)count, sizeof *replicas->contributors);
    replicas->count = count;
}

// A step that failed leaves some on their way.
static void drop_contributions(sp_i_exec_contributor *contributor)
{
    while (contributor->first != NULL) {
        sp_i_exec_contribution *contribution = contributor->first;
        contributor->first = contribution->next;
        sp_free(contribution);
    }
}

void sp_i_exec_replicas_fini(sp_i_exec_replicas *replicas)
{
    for (int m = 0; replicas->contributors != NULL && m < replicas->count; m++) {
        drop_contributions(&replicas->contributors[m]);
    }
    if (replicas->arena != NULL) {
        pthread_mutex_destroy(&replicas->lock);
    }
    sp_i_exec_arena_free(replicas->arena);
    sp_free(replicas->shares);
    sp_free(replicas->contributors);
    *replicas = (sp_i_exec_replicas){0};
}

const sp_i_exec_share *sp_i_exec_share_of(const sp_i_exec_replicas *replicas, int64_t element)
{
    int64_t each = replicas->shares[0].end - replicas->shares[0].begin;
    return &replicas->shares[element / each];
}

// The first run of [begin, end) that one member keeps.
static int64_t run_end(const sp_i_exec_share *share, int64_t end)
{
    return share->end < end ? share->end : end;
}

void sp_i_exec_gather(const sp_i_exec_replicas *replicas, int64_t begin, int64_t count, void *to)
{
    int64_t bytes = replicas->value_bytes;
    int64_t end = begin + count;
    char *next = to;
    while (begin < end) {
        const sp_i_exec_share *share = sp_i_exec_share_of(replicas, begin);
        int64_t until = run_end(share, end);
        replicas->runtime->ops->copy(replicas->runtime, next,
                                     (const char *)share->values + (begin - share->begin) * bytes,
                                     (until - begin) * bytes);
        next += (until - begin) * bytes;
        begin = until;
    }
}

static void add_up(sp_i_exec_replicas *r, int64_t begin, int64_t count, const void *gradient)
{
    int64_t end = begin + count;
    const char *next = gradient;
    r->runtime->ops->wait(r->runtime, r->added);
    while (begin < end) {
        const sp_i_exec_share *share = sp_i_exec_share_of(r, begin);
        int64_t until = run_end(share, end);
        r->add(until - begin, next,
               (char *)share->gradients + (begin - share->begin) * r->gradient_bytes);
        next += (until - begin) * r->gradient_bytes;
        begin = until;
    }
    r->added = r->runtime->ops->mark(r->runtime);
}

static void pass_turn(sp_i_exec_replicas *r)
{
    r->turn = (r->turn + 1) % r->count;
    r->round += r->turn == 0;
}

// Passes over members that give nothing more. False where all of them are done.
static bool find_turn(sp_i_exec_replicas *r)
{
    for (int i = 0; i < r->count; i++) {
        const sp_i_exec_contributor *contributor = &r->contributors[r->turn];
        if (!contributor->finished || r->round < contributor->given) {
            return true;
        }
        pass_turn(r);
    }
    return false;
}

// Adds what is on its way, as far as it is its turn.
static void add_waiting(sp_i_exec_replicas *r)
{
    while (find_turn(r) && r->contributors[r->turn].first != NULL) {
        sp_i_exec_contributor *contributor = &r->contributors[r->turn];
        sp_i_exec_contribution *contribution = contributor->first;
        r->runtime->ops->wait(r->runtime, contribution->copied);
        add_up(r, contribution->begin, contribution->count, contribution->gradient);
        contributor->first = contribution->next;
        sp_i_exec_give(r->arena, contribution->gradient);
        sp_free(contribution);
        pass_turn(r);
    }
}

static bool send(sp_i_exec_replicas *r, sp_i_exec_contributor *contributor, int64_t begin,
                 int64_t count, const void *gradient)
{
    const sp_i_exec_width width = {r->gradient_bytes, 0};
    sp_i_exec_contribution *contribution = sp_malloc(sizeof *contribution);
    void *copy =
        contribution != NULL ? sp_i_exec_take(r->arena, SP_MEM_COMMUNICATION, count, width) : NULL;
    if (copy == NULL) {
        sp_free(contribution);
        return false;
    }
    r->runtime->ops->copy(r->runtime, copy, gradient, count * r->gradient_bytes);
    *contribution = (sp_i_exec_contribution){.begin = begin,
                                             .count = count,
                                             .gradient = copy,
                                             .copied = r->runtime->ops->mark(r->runtime)};
    if (contributor->first == NULL) {
        contributor->first = contribution;
    } else {
        contributor->last->next = contribution;
    }
    contributor->last = contribution;
    return true;
}

bool sp_i_exec_scatter(sp_i_exec_replicas *replicas, int member, int64_t begin, int64_t count,
                       const void *gradient)
{
    sp_i_exec_contributor *contributor = &replicas->contributors[member];
    bool ok = true;
    pthread_mutex_lock(&replicas->lock);
    bool now =
        find_turn(replicas) && replicas->turn == member && replicas->round == contributor->given;
    contributor->given++;
    if (now) {
        add_up(replicas, begin, count, gradient);
        pass_turn(replicas);
        add_waiting(replicas);
    } else {
        ok = send(replicas, contributor, begin, count, gradient);
    }
    pthread_mutex_unlock(&replicas->lock);
    return ok;
}

void sp_i_exec_scatter_end(sp_i_exec_replicas *replicas, int member)
{
    pthread_mutex_lock(&replicas->lock);
    replicas->contributors[member].finished = true;
    add_waiting(replicas);
    pthread_mutex_unlock(&replicas->lock);
}

void sp_i_exec_scatter_wait(sp_i_exec_replicas *replicas)
{
    pthread_mutex_lock(&replicas->lock);
    sp_fence added = replicas->added;
    pthread_mutex_unlock(&replicas->lock);
    replicas->runtime->ops->wait(replicas->runtime, added);
}

void sp_i_exec_scatter_begin(sp_i_exec_replicas *replicas)
{
    for (int m = 0; m < replicas->count; m++) {
        SP_ASSERT(replicas->contributors[m].first == NULL);
        replicas->contributors[m] = (sp_i_exec_contributor){0};
    }
    replicas->round = 0;
    replicas->turn = 0;
    replicas->added = (sp_fence){0};
}
