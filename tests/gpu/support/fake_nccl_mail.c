#include "tests/gpu/support/fake_nccl_mail.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/status.h"
#include "tests/gpu/support/fake_nccl.h"

typedef struct message {
    struct message *next;
    size_t bytes;
    unsigned char data[];
} message;

struct clique {
    char key[160];
    int size, joined, left;
    bool broken;
    message *first[MAIL_KINDS][FAKE_NCCL_RANKS][FAKE_NCCL_RANKS];
    clique *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static clique *cliques;

clique *clique_join(const char *key, int size)
{
    pthread_mutex_lock(&lock);
    clique *c = cliques;
    while (c != NULL && strcmp(c->key, key) != 0) {
        c = c->next;
    }
    if (c == NULL) {
        c = calloc(1, sizeof *c);
        SP_ASSERT(c != NULL && size <= FAKE_NCCL_RANKS);
        snprintf(c->key, sizeof c->key, "%s", key);
        c->size = size;
        c->next = cliques;
        cliques = c;
    }
    SP_ASSERT(c->size == size && c->joined < size);
    c->joined++;
    pthread_mutex_unlock(&lock);
    return c;
}

bool clique_is_full(clique *c)
{
    pthread_mutex_lock(&lock);
    bool full = c->joined == c->size;
    pthread_mutex_unlock(&lock);
    return full;
}

static void free_messages(message *m)
{
    while (m != NULL) {
        message *next = m->next;
        free(m);
        m = next;
    }
}

static void free_clique(clique *c)
{
    for (int kind = 0; kind < MAIL_KINDS; kind++) {
        for (int i = 0; i < FAKE_NCCL_RANKS * FAKE_NCCL_RANKS; i++) {
            free_messages(c->first[kind][i / FAKE_NCCL_RANKS][i % FAKE_NCCL_RANKS]);
        }
    }
    free(c);
}

void clique_leave(clique *c)
{
    pthread_mutex_lock(&lock);
    if (++c->left == c->size) {
        clique **at = &cliques;
        while (*at != c) {
            at = &(*at)->next;
        }
        *at = c->next;
        free_clique(c);
    }
    pthread_mutex_unlock(&lock);
}

bool clique_is_broken(clique *c)
{
    pthread_mutex_lock(&lock);
    bool broken = c->broken;
    pthread_mutex_unlock(&lock);
    return broken;
}

void clique_break(clique *c)
{
    pthread_mutex_lock(&lock);
    c->broken = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void cliques_free(void)
{
    while (cliques != NULL) {
        clique *next = cliques->next;
        free_clique(cliques);
        cliques = next;
    }
}

void mail_send(clique *c, mail_kind kind, int from, int to, const void *data, size_t bytes)
{
    message *m = malloc(sizeof *m + bytes);
    SP_ASSERT(m != NULL);
    m->next = NULL;
    m->bytes = bytes;
    memcpy(m->data, data, bytes);
    pthread_mutex_lock(&lock);
    message **at = &c->first[kind][from][to];
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = m;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

bool mail_receive(clique *c, mail_kind kind, int from, int to, void *data, size_t bytes)
{
    pthread_mutex_lock(&lock);
    message **first = &c->first[kind][from][to];
    while (*first == NULL && !c->broken) {
        pthread_cond_wait(&changed, &lock);
    }
    if (*first == NULL) {
        pthread_mutex_unlock(&lock);
        return false;
    }
    message *m = *first;
    *first = m->next;
    pthread_mutex_unlock(&lock);
    bool fits = m->bytes == bytes;
    if (fits) {
        memcpy(data, m->data, bytes);
    }
    free(m);
    return fits;
}
