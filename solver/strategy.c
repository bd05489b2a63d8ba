#include "solver/strategy.h"

#include <stdio.h>
#include <string.h>

#include "solver/strategies.h"

#define ANY SP_SCHEDULE_KINDS
#define PACKFLOW SP_SCHEDULE_PACKFLOW

// name, function, lossless, sliced, schedule, split_backward, chooses_chunks
#define STRATEGIES(X)                                                               \
    X("padded", padded, true, false, ANY, false, false)                             \
    X("packed", packed, true, false, ANY, false, false)                             \
    X("packed-tuned", packed_tuned, true, false, ANY, false, false)                 \
    X("sorted", sorted, true, false, ANY, false, false)                             \
    X("ffd", ffd, true, false, ANY, false, false)                                   \
    X("bfd", bfd, true, false, ANY, false, false)                                   \
    X("lpfhp", lpfhp, true, false, ANY, false, false)                               \
    X("hybrid-cp", hybrid_cp, true, false, ANY, false, false)                       \
    X("flexsp", flexsp, true, false, ANY, false, false)                             \
    X("bytescale", bytescale, true, false, ANY, false, false)                       \
    X("slimpack-symmetric", slimpack_symmetric, true, true, PACKFLOW, false, false) \
    X("slimpack", slimpack, true, true, PACKFLOW, false, false)                     \
    X("slimpack-zb", slimpack_zb, true, true, PACKFLOW, true, true)                 \
    X("dynapipe", dynapipe, true, false, ANY, false, false)                         \
    X("chunkflow", chunkflow, true, true, SP_SCHEDULE_CHUNKFLOW, false, false)      \
    X("slimpipe", slimpipe, true, true, SP_SCHEDULE_SLIMPIPE, false, false)         \
    X("balanced", balanced, true, false, ANY, false, false)

#define NAME(text, function, lossless, sliced, schedule, split, chunks) text,
#define ROW(text, function, lossless, sliced, schedule, split, chunks) \
    {text, sp_i_pack_##function, lossless, sliced, schedule, split, chunks},

const char *const sp_strategy_names[] = {STRATEGIES(NAME) NULL};

static const sp_strategy strategies[] = {STRATEGIES(ROW)};

enum { COUNT = sizeof strategies / sizeof strategies[0] };

const sp_strategy *sp_strategy_find(const char *name)
{
    for (int i = 0; i < COUNT; i++) {
        if (strcmp(strategies[i].name, name) == 0) {
            return &strategies[i];
        }
    }
    return NULL;
}

bool sp_strategy_is_lossless(const sp_strategy *strategy, const sp_strategy_spec *spec)
{
    return strategy->lossless &&
           (strategy->pack != sp_i_pack_balanced || spec->outlier_queues == 0);
}

sp_status sp_strategy_check(const char *name, const char *source, sp_error *err)
{
    if (sp_strategy_find(name) != NULL) {
        return SP_OK;
    }
    const char *near = sp_nearest_name(name, sp_strategy_names, COUNT);
    if (near != NULL) {
        return sp_error_in(err, SP_ERR_CONTENT, source, "strategy.kind",
                           "unknown strategy \"%s\" (did you mean \"%s\"?)", name, near);
    }
    char known[SP_ERROR_TEXT / 2] = "";
    for (int i = 0; i < COUNT; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%.40s", i > 0 ? ", " : "",
                 sp_strategy_names[i]);
    }
    return sp_error_in(err, SP_ERR_CONTENT, source, "strategy.kind",
                       "unknown strategy \"%s\" (known: %s)", name, known);
}
