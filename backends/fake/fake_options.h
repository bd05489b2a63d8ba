// The options of the fake backend.
#ifndef SLIMPACK_BACKENDS_FAKE_FAKE_OPTIONS_H
#define SLIMPACK_BACKENDS_FAKE_FAKE_OPTIONS_H

#include "backends/api/backend.h"
#include "sim/plan/plan.h"

enum { SP_I_ANY = -1 };

// Largest time in an option; sums of a few fit int64_t.
#define SP_I_FAKE_MOST_NS (INT64_MAX / 8)

typedef struct sp_i_selector {
    bool given;
    uint8_t kind;
    int32_t pack; // or SP_I_ANY, as those below
    int chunk, dp, pp;
} sp_i_selector;

typedef struct sp_i_scripted {
    sp_i_selector selector;
    int64_t ns;
} sp_i_scripted;

typedef enum sp_i_damage {
    SP_I_DAMAGE_NONE,
    SP_I_DAMAGE_ORDER,
    SP_I_DAMAGE_OVERLAP,
    SP_I_DAMAGE_EARLY,
    SP_I_DAMAGE_MISSING,
    SP_I_DAMAGE_LEAK
} sp_i_damage;

typedef struct sp_i_fake_options {
    sp_i_scripted *scripted; // owned
    size_t scripted_count, scripted_capacity;
    int64_t p2p_ns;
    double jitter;
    sp_i_selector fail, stall, exhaust, damaged;
    sp_i_damage damage;
    bool has_loss;
    double loss;
    const char *tensor; // NAME=V;V;..., or NULL
} sp_i_fake_options;

extern const sp_backend_option_info sp_i_fake_option_list[];

// Reads the options of a request. Errors name the option, what was found and what was expected.
sp_status sp_i_fake_options_read(const sp_run_request *request, sp_i_fake_options *options,
                                 sp_error *err);
void sp_i_fake_options_fini(sp_i_fake_options *options);

bool sp_i_selects(const sp_i_selector *selector, const sp_plan_place *place);

#endif
