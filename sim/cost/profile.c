#include "sim/cost/profile.h"

#include <string.h>

#include "sim/base/alloc.h"
#include "sim/cost/profile_private.h"

const char *const sp_level_names[] = {"measured", "published", "fitted", "assumed", NULL};

enum { CURVES = 8 + SP_GEMM_TABLES + SP_COLLECTIVES + SP_COLLECTIVE_TABLES };

static void curves_of(sp_profile *profile, sp_curve *curves[CURVES])
{
    int n = 0;
    curves[n++] = &profile->gemm_rate;
    curves[n++] = &profile->attention_forward_causal;
    curves[n++] = &profile->attention_forward_full;
    curves[n++] = &profile->attention_backward_causal;
    curves[n++] = &profile->attention_backward_full;
    curves[n++] = &profile->attention_forward_block;
    curves[n++] = &profile->attention_backward_block;
    curves[n++] = &profile->groups.bytes_per_s;
    for (int i = 0; i < SP_GEMM_TABLES; i++) {
        curves[n++] = &profile->gemm[i].time_s;
    }
    for (int i = 0; i < SP_COLLECTIVES; i++) {
        curves[n++] = &profile->collective[i];
    }
    for (int i = 0; i < SP_COLLECTIVE_TABLES; i++) {
        curves[n++] = &profile->collective_times[i].time_s;
    }
}

void sp_profile_fini(sp_profile *profile)
{
    sp_curve *curves[CURVES];
    curves_of(profile, curves);
    for (int i = 0; i < CURVES; i++) {
        sp_free(curves[i]->x);
    }
    sp_i_error_records_fini(&profile->errors);
    memset(profile, 0, sizeof *profile);
}

sp_status sp_profile_copy(const sp_profile *from, sp_profile *to, sp_error *err)
{
    sp_curve *curves[CURVES];
    *to = *from;
    curves_of(to, curves);
    for (int i = 0; i < CURVES; i++) {
        const double *shared = curves[i]->x;
        if (shared != NULL) {
            sp_i_curve_allocate(curves[i], (size_t)curves[i]->points);
            memcpy(curves[i]->x, shared, 3 * (size_t)curves[i]->points * sizeof *shared);
        }
    }
    sp_i_error_records_copy(&from->errors, &to->errors);
    (void)err;
    return SP_OK;
}

static sp_level weaker(sp_level a, sp_level b, bool used)
{
    return used && b > a ? b : a;
}

sp_level sp_profile_level(const sp_profile *profile)
{
    sp_profile shared = *profile; // curves_of gives no const pointers
    sp_curve *curves[CURVES];
    curves_of(&shared, curves);
    sp_level weakest = profile->memory_level;
    weakest = weaker(weakest, profile->kernel_level, true);
    weakest = weaker(weakest, profile->link_level, true);
    for (int i = 0; i < CURVES; i++) {
        weakest = weaker(weakest, curves[i]->level, curves[i]->points > 0);
    }
    weakest = weaker(weakest, profile->gemm_model.level, profile->gemm_model.flops_per_s > 0.0);
    weakest = weaker(weakest, profile->host.level, true);
    weakest = weaker(weakest, profile->interference.level, true);
    weakest = weaker(weakest, profile->scores.level, profile->scores.factor > 0.0);
    return weaker(weakest, profile->loss_level, profile->loss_bytes_per_logit > 0.0);
}

void sp_i_curve_allocate(sp_curve *curve, size_t points)
{
    curve->x = sp_calloc(3 * points, sizeof *curve->x);
    curve->y = curve->x + points;
    curve->slope = curve->y + points;
    curve->points = (int)points;
}

sp_link_rates sp_profile_link_rates(const sp_profile *profile)
{
    return (sp_link_rates){.nvlink_bytes_per_s = profile->nvlink_bytes_per_s,
                           .nvlink_latency_s = profile->nvlink_latency_s,
                           .nic_efficiency = profile->nic_efficiency,
                           .nic_latency_s = profile->nic_latency_s};
}
