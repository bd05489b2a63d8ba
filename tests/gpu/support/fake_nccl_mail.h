// Messages between the members of a fake communicator, each kept until it is received.
#ifndef SLIMPACK_TESTS_GPU_SUPPORT_FAKE_NCCL_MAIL_H
#define SLIMPACK_TESTS_GPU_SUPPORT_FAKE_NCCL_MAIL_H

#include <stdbool.h>
#include <stddef.h>

typedef struct clique clique; // what the members share

typedef enum mail_kind { MAIL_PAIRS, MAIL_COLLECTIVES, MAIL_KINDS } mail_kind;

// The clique of this key, made by the first member that comes.
clique *clique_join(const char *key, int size);
bool clique_is_full(clique *c);
void clique_leave(clique *c);
// A member has aborted: nobody waits for messages that have not come.
void clique_break(clique *c);
bool clique_is_broken(clique *c);
// Frees those that some members never came to. No member is left.
void cliques_free(void);

void mail_send(clique *c, mail_kind kind, int from, int to, const void *data, size_t bytes);
// Waits for it. False for a message of another size, or none where the clique is broken.
bool mail_receive(clique *c, mail_kind kind, int from, int to, void *data, size_t bytes);

#endif
