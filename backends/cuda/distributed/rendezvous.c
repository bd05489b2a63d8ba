#include "backends/cuda/distributed/rendezvous.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

int64_t sp_i_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void sp_pause(int *polls)
{
    enum { FIRST_MS = 1, LONGEST_MS = 50, NS_PER_MS = 1000000 };
    const int ms = *polls < 6 ? FIRST_MS << *polls : LONGEST_MS;
    ++*polls;
    (void)nanosleep(&(struct timespec){.tv_nsec = (ms < LONGEST_MS ? ms : LONGEST_MS) * NS_PER_MS},
                    NULL);
}

int sp_i_rendezvous_rank(const sp_i_rendezvous *r)
{
    return r->rank;
}

int sp_i_rendezvous_ranks(const sp_i_rendezvous *r)
{
    return r->ranks;
}

void sp_i_rendezvous_free(sp_i_rendezvous *r)
{
    if (r != NULL) {
        r->ops->free(r);
    }
}

// ---- failure ----

void sp_i_rendezvous_note(sp_i_rendezvous *r, sp_status status, const char *format, ...)
{
    if (r->failure.status == SP_OK) {
        char text[SP_ERROR_TEXT];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        (void)sp_error_set(&r->failure, status, "%s", text);
    }
}

void sp_i_rendezvous_card_text(int rank, const char *card, const char *own, char *text,
                               size_t bytes)
{
    snprintf(text, bytes, "rank %d has %s, rank 0 has %s", rank, card, own);
}

static void fail_all(sp_i_rendezvous *r, sp_status status, const char *text)
{
    if (r->failure.status == SP_OK) {
        r->ops->tell(r, status, text);
        sp_i_rendezvous_note(r, status, "%s", text);
    }
}

static sp_status give_failure(const sp_i_rendezvous *r, sp_error *err)
{
    return r->failure.status == SP_OK
               ? SP_OK
               : sp_error_set(err, r->failure.status, "%s", r->failure.message[0]);
}

sp_status sp_i_rendezvous_check(sp_i_rendezvous *r, sp_error *err)
{
    if (r->failure.status == SP_OK) {
        r->ops->look(r);
    }
    if (sp_i_rendezvous_is_asked(r)) {
        fail_all(r, r->asked.status, r->asked.message[0]);
    }
    return give_failure(r, err);
}

sp_status sp_i_rendezvous_abort_with(sp_i_rendezvous *r, sp_status status, const char *text)
{
    // What came before and has another cause is first.
    (void)sp_i_rendezvous_check(r, NULL);
    fail_all(r, status, text);
    return r->failure.status;
}

sp_status sp_i_rendezvous_ask(sp_i_rendezvous *r, sp_status status, const char *text)
{
    int nobody = 0;
    if (atomic_compare_exchange_strong(&r->asking, &nobody, 1)) {
        (void)sp_error_set(&r->asked, status, "%s", text);
        atomic_store(&r->asking, 2);
    }
    while (!sp_i_rendezvous_is_asked(r)) {
    }
    return r->asked.status;
}

bool sp_i_rendezvous_is_asked(const sp_i_rendezvous *r)
{
    return atomic_load(&r->asking) == 2;
}

sp_status sp_i_rendezvous_abort(sp_i_rendezvous *r, sp_status status, const char *format, ...)
{
    char text[SP_ERROR_TEXT - 40];
    char with_rank[SP_ERROR_TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(with_rank, sizeof with_rank, "rank %d: %s", r->rank, text);
    return sp_i_rendezvous_abort_with(r, status, with_rank);
}

// ---- broadcast ----

sp_status sp_i_rendezvous_broadcast(sp_i_rendezvous *r, void *data, size_t bytes, sp_error *err)
{
    if (sp_i_rendezvous_check(r, NULL) == SP_OK && r->ranks > 1) {
        r->ops->broadcast(r, data, bytes, sp_i_now_ms() + r->timeout_ms);
    }
    return give_failure(r, err);
}
