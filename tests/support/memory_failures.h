// A call whose first allocation fails, then its second, and so on until the call succeeds:
//
//     for (memory_failures failing = {0}; memory_fails(&failing);) {
//         sp_error_clear(ERR);
//         memory_try(&failing, sp_thing_make(&thing, ERR), ERR);
//         sp_thing_fini(&thing);
//     }
//
// A call without memory must return SP_ERR_NO_MEMORY and say so in the error where that is not
// NULL; a round must give back the blocks that it takes.
#ifndef SLIMPACK_TESTS_SUPPORT_MEMORY_FAILURES_H
#define SLIMPACK_TESTS_SUPPORT_MEMORY_FAILURES_H

#include <stdbool.h>

#include "sim/base/status.h"
typedef struct memory_failures {
    // Where a call takes very many blocks: each round lets 1/fewer more allocations pass than the
    // round before, and at least one more. 0 for each allocation in turn. Half as many unless all
    // is to be run (SP_TEST_FULL=1), and from the first 48 on ever fewer where all were to fail.
    int fewer;
    sp_status or_ends_with; // a call with memory enough may also return this
    bool keeps_blocks;      // a round may keep blocks, in an object that outlives the rounds
    sp_status status;       // of the round's call
    long allowed;           // allocations that succeed in this round
    int rounds; // rounds begun: 1 more than the allocations that failed, where fewer is 0
    long live;  // blocks in use when the round began
} memory_failures;

// Begins a round; false once a call has succeeded.
bool memory_fails(memory_failures *m);

// Evaluates `call`, an sp_status, with this round's allocations; also for code between the two
// functions. Returns the status.
#define memory_try(m, call, err) (memory_begin(m), memory_end(m, (call), err))
void memory_begin(const memory_failures *m);
sp_status memory_end(memory_failures *m, sp_status status, const sp_error *err);

#endif
