// A plan whose ranks are processes, or threads, with a GPU each: which of them this one is, which
// options say so, which GPU it takes, what all must have in common, and the file by which they meet
// before NCCL connects them. The executor on it is that of one GPU (execute.c), with a transport.
//
// A rank that fails returns its error, and its process ends; the launcher then ends the others,
// which may wait for it for ever.
#ifndef SLIMPACK_BACKENDS_CUDA_DISTRIBUTED_MULTI_PROCESS_H
#define SLIMPACK_BACKENDS_CUDA_DISTRIBUTED_MULTI_PROCESS_H

#include "backends/api/backend.h"
#include "backends/cuda/device.h"

// ---- which process this is ----

enum { SP_I_PLACE_PATH = 768 };

typedef struct sp_i_place {
    int rank, ranks;
    int local_rank;       // among the ranks of this machine; -1: the launcher does not say
    const char *variable; // that gave the rank, such as "RANK"; NULL: started alone, rank 0 of 1
    // By which the ranks meet: a file where all of them see it, of a name that is equal at the
    // ranks of a run and another elsewhere.
    char file[SP_I_PLACE_PATH];
} sp_i_place;

// Reads it from the environment, rank and ranks as sim/base/launcher.h says; `lookup` is getenv or
// a test's. The file's folder is SLIMPACK_RENDEZVOUS; ranks that are all on this machine need none.
// Its name is SLIMPACK_RUN_ID, TORCHELASTIC_RUN_ID, PMIX_NAMESPACE or SLURM_JOB_ID with
// SLURM_STEP_ID, the first that is set, and MASTER_PORT. SP_ERR_USAGE with the variable's name.
sp_status sp_i_place_read(char *(*lookup)(const char *name), sp_i_place *place, sp_error *err);

// How this process is one of several, for programs that ask (backends/api/backend.h). Sets
// variables of CUDA and NCCL that such a process needs, unless they are set; before anything calls
// CUDA.
sp_status sp_i_cuda_process(int *rank, int *ranks, sp_error *err);

// The GPU of a process: `device`, which the caller named, is that of the machine's first one; its
// others take those behind it. A process that sees a single GPU takes that one.
sp_status sp_i_cuda_process_device(const sp_cuda_api *api, const sp_i_place *place, int device,
                                   int *own, sp_error *err);

// ---- meeting ----

enum { SP_I_MEETING_CARD = 400 }; // bytes of a card

// Rank 0 gives all others `id` [bytes] by the place's file, which appears whole; they wait for it.
// `card` is one line of less than SP_I_MEETING_CARD bytes with what all of them must have alike,
// such as "plan 0badcafe". SP_ERR_LIMIT: time is over; SP_ERR_USAGE: a rank that does not fit;
// SP_ERR_IO. A file that is older than timeout_ms when a rank comes is an earlier run's.
sp_status sp_i_meeting_give_id(const sp_i_place *place, const char *card, void *id, size_t bytes,
                               int timeout_ms, sp_error *err);
// Rank 0 takes the file away: when all have read it, and before the run, where a rank that was
// ended has left one.
void sp_i_meeting_clear(const sp_i_place *place);

// ---- requests ----

// The value of the request's first option of this name; NULL where there is none.
const char *sp_i_cuda_option(const sp_run_request *request, const char *key);

// The choices that a request makes by the options "transport" and "nccl_mib".
typedef enum sp_i_cuda_ranks {
    SP_I_CUDA_AUTO,
    SP_I_CUDA_ONE_PROCESS,
    SP_I_CUDA_NCCL
} sp_i_cuda_ranks;
typedef struct sp_i_cuda_process_options {
    sp_i_cuda_ranks ranks;
    int64_t spare_bytes; // of the GPU, left to NCCL
} sp_i_cuda_process_options;
// SP_ERR_USAGE.
sp_status sp_i_cuda_process_options_read(const sp_run_request *request,
                                         sp_i_cuda_process_options *chosen, sp_error *err);

// Returns whether the ranks of the request are the processes of the place's run. SP_ERR_USAGE where
// they are to be and do not fit: other numbers, the virtual clock.
sp_status sp_i_cuda_is_multi_process(const sp_run_request *request,
                                     const sp_i_cuda_process_options *chosen,
                                     const sp_i_place *place, bool *multi_process, sp_error *err);

// CRC-32 (ISO-HDLC, as in zlib and Ethernet) of a text, such as that of a plan.
uint32_t sp_i_cuda_hash(const void *text, size_t bytes);

// A number of everything that processes of one run have in common: plan, model and settings.
sp_status sp_i_cuda_request_hash(const sp_run_request *request, uint32_t *hash, sp_error *err);

// Milliseconds for the meeting of the processes, and for work that is waited for: the request's
// timeout, or 10 minutes.
int sp_i_cuda_timeout_ms(const sp_run_request *request);

#endif
