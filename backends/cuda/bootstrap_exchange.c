// What all ranks give to all: through rank 0, in parts that one message can carry.
#include <string.h>

#include "backends/cuda/bootstrap.h"
#include "sim/base/alloc.h"

enum { PART_BYTES = 1 << 26 };

static size_t part_of(size_t bytes, size_t done)
{
    return bytes - done < PART_BYTES ? bytes - done : PART_BYTES;
}

// Every rank's number of bytes, at every rank, and the most.
static sp_status share_sizes(sp_i_bootstrap *b, size_t bytes, uint64_t *sizes, size_t *most,
                             sp_error *err)
{
    const int ranks = sp_i_bootstrap_ranks(b);
    const uint64_t own = bytes;
    sp_i_bootstrap_part *parts = sp_i_calloc((size_t)ranks, sizeof *parts);
    if (parts == NULL) {
        return sp_error_no_memory(err, "an exchange");
    }
    sp_status status = sp_i_bootstrap_gather(b, &own, sizeof own, parts, err);
    for (int i = 0; status == SP_OK && sp_i_bootstrap_rank(b) == 0 && i < ranks; i++) {
        sizes[i] = 0;
        memcpy(&sizes[i], parts[i].data,
               parts[i].bytes < sizeof sizes[i] ? parts[i].bytes : sizeof sizes[i]);
    }
    sp_i_bootstrap_parts_fini(parts, ranks);
    sp_i_free(parts);
    if (status == SP_OK) {
        status = sp_i_bootstrap_broadcast(b, sizes, (size_t)ranks * sizeof *sizes, err);
    }
    *most = 0;
    for (int i = 0; status == SP_OK && i < ranks; i++) {
        *most = sizes[i] > *most ? (size_t)sizes[i] : *most;
    }
    return status;
}

static sp_status make_room(sp_i_bootstrap *b, const uint64_t *sizes, sp_i_bootstrap_part *all,
                           sp_error *err)
{
    for (int i = 0; i < sp_i_bootstrap_ranks(b); i++) {
        all[i].bytes = (size_t)sizes[i];
        all[i].data = sp_i_malloc(all[i].bytes);
        if (all[i].data == NULL) {
            return sp_error_no_memory(err, "an exchange");
        }
    }
    return SP_OK;
}

// To rank 0, in turns: a part of each rank that has more.
static sp_status collect(sp_i_bootstrap *b, const void *mine, size_t bytes, size_t most,
                         sp_i_bootstrap_part *all, sp_error *err)
{
    const int ranks = sp_i_bootstrap_ranks(b);
    sp_status status = SP_OK;
    sp_i_bootstrap_part *parts = sp_i_calloc((size_t)ranks, sizeof *parts);
    if (parts == NULL) {
        return sp_error_no_memory(err, "an exchange");
    }
    for (size_t done = 0; status == SP_OK && done < most; done += PART_BYTES) {
        const char *part = done < bytes ? (const char *)mine + done : NULL;
        status =
            sp_i_bootstrap_gather(b, part, part != NULL ? part_of(bytes, done) : 0, parts, err);
        for (int i = 0; status == SP_OK && sp_i_bootstrap_rank(b) == 0 && i < ranks; i++) {
            if (parts[i].bytes > 0 && done + parts[i].bytes <= all[i].bytes) {
                memcpy(all[i].data + done, parts[i].data, parts[i].bytes);
            }
        }
        sp_i_bootstrap_parts_fini(parts, ranks);
    }
    sp_i_free(parts);
    return status;
}

static sp_status spread(sp_i_bootstrap *b, sp_i_bootstrap_part *all, sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < sp_i_bootstrap_ranks(b); i++) {
        for (size_t done = 0; status == SP_OK && done < all[i].bytes; done += PART_BYTES) {
            status =
                sp_i_bootstrap_broadcast(b, all[i].data + done, part_of(all[i].bytes, done), err);
        }
    }
    return status;
}

sp_status sp_i_bootstrap_exchange(sp_i_bootstrap *b, const void *mine, size_t bytes,
                                  sp_i_bootstrap_part *all, sp_error *err)
{
    const int ranks = sp_i_bootstrap_ranks(b);
    size_t most = 0;
    memset(all, 0, (size_t)ranks * sizeof *all);
    uint64_t *sizes = sp_i_calloc((size_t)ranks, sizeof *sizes);
    sp_error found = {0};
    sp_status status = sizes != NULL ? share_sizes(b, bytes, sizes, &most, &found)
                                     : sp_error_no_memory(&found, "an exchange");
    if (status == SP_OK) {
        status = make_room(b, sizes, all, &found);
    }
    if (status == SP_OK) {
        status = collect(b, mine, bytes, most, all, &found);
    }
    if (status == SP_OK) {
        status = spread(b, all, &found);
    }
    sp_i_free(sizes);
    if (status != SP_OK) {
        sp_i_bootstrap_parts_fini(all, ranks);
        // Nobody else knows of memory that ran out here; another failure is final already.
        (void)sp_i_bootstrap_abort(b, status, "%s", found.message[0]);
        return sp_i_bootstrap_check(b, err);
    }
    return SP_OK;
}
