// A rank's way to those that compute the same layers, and the time that it spends on it.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_LINKS_H
#define SLIMPACK_BACKENDS_EXECUTOR_LINKS_H

#include "backends/api/device_runtime.h"
#include "backends/comm/comm.h"

typedef enum sp_i_exec_exchange_kind {
    SP_I_EXEC_TP, // with ranks that share the layers' widths, or the vocabulary
    SP_I_EXEC_DP, // with those that have the same parameters
    SP_I_EXEC_EXCHANGE_KINDS
} sp_i_exec_exchange_kind;

// From one moment to another: of the rank's own computing, which leaves out what others do on the
// same machine while it waits for them, or of the machine's stamps.
typedef struct sp_i_exec_exchange {
    sp_i_exec_exchange_kind kind;
    uint64_t begin, end;
} sp_i_exec_exchange;

// Its first failed exchange is kept here: what computes only says that it failed.
typedef struct sp_i_exec_links {
    sp_comm *me;
    sp_machine *machine;
    bool stamps;                   // moments are stamps: of runs on the wall clock
    int tp_group;                  // ranks that share the layers' widths
    int vocab_group;               // pipeline ranks that share the vocabulary, in order; or -1
    int vocab_root[2];             // of them: those with the model's first and last layers
    const int *token_group;        // [forward packs]: ranks that share the pack's tokens
    sp_i_exec_exchange *exchanges; // of the step
    size_t exchange_count, exchange_capacity;
    int64_t end_ns; // computed in a head that pipeline ranks share, since somebody set it to 0
    sp_status status;
    sp_error err;
} sp_i_exec_links;

void sp_i_exec_links_fini(sp_i_exec_links *links);

// Around an exchange of the calling thread's rank: gives its beginning; takes it and how the
// exchange ended. False where it failed, or where memory ran out.
uint64_t sp_i_exec_exchange_begin(const sp_i_exec_links *links);
bool sp_i_exec_exchange_end(sp_i_exec_links *links, sp_i_exec_exchange_kind kind, uint64_t begin,
                            sp_status status);

#endif
