#include "backends/cuda/distributed/nccl_transport.h"

#include <pthread.h>
#include <string.h>

#include "backends/cuda/device/rank.h"
#include "backends/cuda/distributed/nccl_messages.h"
#include "sim/base/alloc.h"

// Calls come from one thread at a time, but for `abort`: where another thread is in a call, that
// one finds what is asked for (sp_i_rendezvous_ask) while it waits and when it ends.
typedef struct nccl_transport {
    sp_transport base; // first
    sp_runtime *runtime;
    sp_i_rendezvous *rendezvous;
    sp_i_nccl *n;
    cudaStream_t stream; // the rank's
    int timeout_ms;
    int *groups; // of n, those that are no channels
    size_t group_count, group_capacity;
    sp_i_nccl_messages messages;
    pthread_mutex_t calls; // of everything above
    bool locks;
} nccl_transport;

static nccl_transport *of(sp_transport *transport)
{
    return (nccl_transport *)(void *)transport;
}

// ---- calls ----

static sp_status enter(nccl_transport *t, sp_error *err)
{
    (void)pthread_mutex_lock(&t->calls);
    return sp_i_rendezvous_is_asked(t->rendezvous) ? sp_i_nccl_check(t->n, err) : SP_OK;
}

static sp_status leave(nccl_transport *t, sp_status status)
{
    (void)pthread_mutex_unlock(&t->calls);
    if (status == SP_OK && sp_i_rendezvous_is_asked(t->rendezvous) &&
        pthread_mutex_trylock(&t->calls) == 0) {
        (void)sp_i_nccl_check(t->n, NULL);
        (void)pthread_mutex_unlock(&t->calls);
    }
    return status;
}

// ---- groups ----

static int group_at(const nccl_transport *t, int group)
{
    SP_ASSERT(group >= 0 && (size_t)group < t->group_count);
    return t->groups[group];
}

static sp_status group_new(sp_transport *transport, const char *name, const int *ranks, int size,
                           sp_error *err)
{
    nccl_transport *t = of(transport);
    int group = -1;
    sp_status status = enter(t, err);
    if (status == SP_OK && !sp_reserve((void **)&t->groups, &t->group_capacity, t->group_count + 1,
                                       sizeof *t->groups)) {
        sp_error found = {0};
        status = sp_i_nccl_give_up(t->n, sp_error_no_memory(&found, "groups"), &found, err);
    }
    status = status == SP_OK ? sp_i_nccl_group_new(t->n, name, ranks, size, &group, err) : status;
    if (status == SP_OK) {
        t->groups[t->group_count++] = group;
    }
    return leave(t, status);
}

static sp_status all_reduce(sp_transport *transport, int group, sp_element element, bool maximum,
                            const void *in, void *out, int64_t count, sp_error *err)
{
    nccl_transport *t = of(transport);
    sp_status status = enter(t, err);
    return leave(t, status == SP_OK ? sp_i_nccl_all_reduce(t->n, group_at(t, group), element,
                                                           maximum, in, out, count, t->stream, err)
                                    : status);
}

// A sum that nobody needs: its end is after every member's begin.
static sp_status barrier(sp_transport *transport, int group, sp_error *err)
{
    void *token = of(transport)->messages.token;
    return all_reduce(transport, group, SP_ELEMENT_F32, false, token, token, 1, err);
}

static sp_status all_gather(sp_transport *transport, int group, sp_element element, const void *in,
                            void *out, const int64_t *rows, int64_t width, sp_error *err)
{
    nccl_transport *t = of(transport);
    sp_status status = enter(t, err);
    return leave(t, status == SP_OK
                        ? sp_i_nccl_all_gather_rows(t->n, group_at(t, group), element, in, out,
                                                    rows, width, t->stream, err)
                        : status);
}

static sp_status reduce_scatter(sp_transport *transport, int group, sp_element element,
                                bool maximum, const void *in, void *out, const int64_t *rows,
                                int64_t width, sp_error *err)
{
    nccl_transport *t = of(transport);
    sp_status status = enter(t, err);
    return leave(t, status == SP_OK
                        ? sp_i_nccl_reduce_scatter_rows(t->n, group_at(t, group), element, maximum,
                                                        in, out, rows, width, t->stream, err)
                        : status);
}

static sp_status broadcast(sp_transport *transport, int group, sp_element element, const void *in,
                           void *out, int64_t count, int root, sp_error *err)
{
    nccl_transport *t = of(transport);
    sp_status status = enter(t, err);
    return leave(t, status == SP_OK ? sp_i_nccl_broadcast(t->n, group_at(t, group), element, in,
                                                          out, count, root, t->stream, err)
                                    : status);
}

// ---- messages ----

static sp_status channel_new(sp_transport *transport, int from, int to, sp_error *err)
{
    nccl_transport *t = of(transport);
    sp_status status = enter(t, err);
    return leave(t, status == SP_OK ? sp_i_nccl_messages_channel(&t->messages, from, to, err)
                                    : status);
}

static sp_status put(sp_transport *transport, int channel, bool sends, void *data, int64_t bytes,
                     uint64_t *message, sp_error *err)
{
    nccl_transport *t = of(transport);
    sp_status status = enter(t, err);
    return leave(t, status == SP_OK ? sp_i_nccl_messages_put(&t->messages, channel, sends, data,
                                                             bytes, message, err)
                                    : status);
}

static sp_status send_message(sp_transport *transport, int channel, const void *data, int64_t bytes,
                              uint64_t *message, sp_error *err)
{
    return put(transport, channel, true, (void *)(uintptr_t)data, bytes, message, err);
}

static sp_status receive_message(sp_transport *transport, int channel, void *data, int64_t bytes,
                                 uint64_t *message, sp_error *err)
{
    return put(transport, channel, false, data, bytes, message, err);
}

static sp_status wait_message(sp_transport *transport, uint64_t message, sp_error *err)
{
    nccl_transport *t = of(transport);
    sp_status status = enter(t, err);
    return leave(t, status == SP_OK ? sp_i_nccl_messages_wait(&t->messages, message, err) : status);
}

// ---- beside the device runtime ----

// Memory for it is taken when nothing of this GPU waits for another.
static sp_status exchange_parts(nccl_transport *t, const void *mine, size_t bytes,
                                sp_transport_part *parts, sp_error *err)
{
    sp_status status = sp_i_nccl_synchronize(t->n, t->stream, err);
    status = status == SP_OK ? sp_i_nccl_messages_synchronize(&t->messages, err) : status;
    return status == SP_OK ? sp_i_nccl_exchange_bytes(t->n, mine, bytes, parts, t->stream, err)
                           : status;
}

static sp_status exchange(sp_transport *transport, const void *mine, size_t bytes,
                          sp_transport_part *parts, sp_error *err)
{
    nccl_transport *t = of(transport);
    memset(parts, 0, (size_t)t->base.ranks * sizeof *parts);
    sp_status status = enter(t, err);
    return leave(t, status == SP_OK ? exchange_parts(t, mine, bytes, parts, err) : status);
}

// What went wrong in the rank's own work is found last, for its caller to name and to pass on.
static sp_status synchronize(sp_transport *transport, sp_error *err)
{
    nccl_transport *t = of(transport);
    sp_status status = enter(t, err);
    status = status == SP_OK ? sp_i_nccl_synchronize(t->n, t->stream, err) : status;
    status = status == SP_OK ? sp_i_nccl_messages_synchronize(&t->messages, err) : status;
    if (status != SP_OK) {
        sp_i_nccl_messages_end(&t->messages);
    }
    status = leave(t, status);
    return status == SP_OK ? t->runtime->ops->synchronize(t->runtime, err) : status;
}

static sp_status check(sp_transport *transport, sp_error *err)
{
    nccl_transport *t = of(transport);
    (void)pthread_mutex_lock(&t->calls);
    return leave(t, sp_i_nccl_check(t->n, err));
}

static sp_status give_up(sp_transport *transport, sp_status status, const char *text)
{
    nccl_transport *t = of(transport);
    SP_ASSERT(status != SP_OK);
    status = sp_i_rendezvous_ask(t->rendezvous, status, text);
    if (pthread_mutex_trylock(&t->calls) == 0) {
        status = sp_i_nccl_check(t->n, NULL);
        (void)pthread_mutex_unlock(&t->calls);
    }
    return status;
}

static const sp_transport_ops transport_ops = {.group_new = group_new,
                                               .barrier = barrier,
                                               .all_reduce = all_reduce,
                                               .all_gather = all_gather,
                                               .reduce_scatter = reduce_scatter,
                                               .broadcast = broadcast,
                                               .channel_new = channel_new,
                                               .send = send_message,
                                               .receive = receive_message,
                                               .wait = wait_message,
                                               .exchange = exchange,
                                               .synchronize = synchronize,
                                               .check = check,
                                               .abort = give_up};

// ---- begin and end ----

// While the rank's thread waits for its stream outside of these calls.
static sp_status look(void *context, int64_t waited_ms)
{
    nccl_transport *t = context;
    (void)pthread_mutex_lock(&t->calls);
    sp_status status = sp_i_nccl_check(t->n, NULL);
    if (status == SP_OK && waited_ms > t->timeout_ms) {
        status = sp_i_nccl_abort(t->n, SP_ERR_LIMIT, "the work of a stream was not over in %d ms",
                                 t->timeout_ms);
    }
    return leave(t, status);
}

static sp_status make(nccl_transport *t, const sp_i_nccl_transport_options *options, sp_error *err)
{
    sp_runtime *runtime = t->runtime;
    runtime->ops->enter(runtime, t->base.rank);
    t->stream = sp_i_cuda_rank_now()->stream;
    void *token = runtime->ops->allocate(runtime, SP_I_NCCL_TOKEN);
    if (token == NULL) {
        return sp_error_set(err, SP_ERR_INFEASIBLE, "GPU %d: no %d bytes for messages",
                            options->device.index, SP_I_NCCL_TOKEN);
    }
    t->messages.token = token;
    runtime->ops->zero(runtime, token, SP_I_NCCL_TOKEN);
    const sp_i_nccl_options world = {
        .device = options->device,
        .rendezvous = options->rendezvous,
        .timeout_ms = options->timeout_ms,
        .api = options->api,
    };
    sp_status status = runtime->ops->synchronize(runtime, err);
    status = status == SP_OK ? sp_i_nccl_new(&world, &t->n, err) : status;
    t->timeout_ms = options->timeout_ms;
    if (status == SP_OK) {
        sp_i_cuda_rank_now()->lookout = (sp_i_cuda_lookout){look, t};
    }
    t->messages.n = t->n;
    t->messages.device = options->device;
    t->messages.rank = t->base.rank;
    t->messages.work = t->stream;
    return status;
}

sp_status sp_i_nccl_transport_new(const sp_i_nccl_transport_options *options, sp_transport **made,
                                  sp_error *err)
{
    nccl_transport *t = sp_calloc(1, sizeof *t);
    sp_error found = {0};
    sp_status status = SP_ERR_NO_MEMORY;
    *made = NULL;
    if (t != NULL) {
        t->base = (sp_transport){&transport_ops, sp_i_rendezvous_rank(options->rendezvous),
                                 sp_i_rendezvous_ranks(options->rendezvous)};
        t->runtime = options->runtime;
        t->rendezvous = options->rendezvous;
        t->locks = pthread_mutex_init(&t->calls, NULL) == 0;
    }
    status = t != NULL && t->locks ? make(t, options, &found)
                                   : sp_error_no_memory(&found, "a transport");
    if (status != SP_OK) {
        // Others wait for this rank; what failed with them is known to them.
        (void)sp_i_rendezvous_abort(options->rendezvous, status, "%s", found.message[0]);
        if (t != NULL) {
            sp_i_nccl_transport_free(&t->base);
        }
        return sp_i_rendezvous_check(options->rendezvous, err);
    }
    *made = &t->base;
    return SP_OK;
}

void sp_i_nccl_transport_free(sp_transport *transport)
{
    if (transport == NULL) {
        return;
    }
    nccl_transport *t = of(transport);
    if (t->n != NULL) {
        t->runtime->ops->enter(t->runtime, t->base.rank);
        (void)synchronize(transport, NULL);
        sp_i_cuda_rank_now()->lookout = (sp_i_cuda_lookout){0};
        sp_i_nccl_free(t->n);
    }
    sp_i_nccl_messages_fini(&t->messages);
    if (t->messages.token != NULL) {
        t->runtime->ops->release(t->runtime, t->messages.token);
    }
    if (t->locks) {
        (void)pthread_mutex_destroy(&t->calls);
    }
    sp_free(t->groups);
    sp_free(t);
}
