// What SM partitions do: groups of a split, products in a partition alone and beside busy
// neighbours.
#include <string.h>

#include "backends/cuda/device.h"
#include "tests/gpu/checklist.h"
#include "tests/gpu/gpu_check.h"

// Groups that a split gives for each size asked for. Each is only asked, no context is made.
sp_status check_splits(checklist *c, sp_error *err)
{
    enum { MOST_GROUPS = 64 };
    static const unsigned sizes[] = {8, 16, 32, 40, 64, 128};
    sp_i_cuda_sm_resource all;
    GPU_TRY(sp_i_cuda_sms(&c->device, &all, err));
    checklist_found("splits", json_pack("{s:i, s:i, s:i}", "sms", all.count, "smallest",
                                        all.smallest, "alignment", all.alignment));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CUdevResource from;
        CUdevResource groups[MOST_GROUPS];
        CUdevResource rest;
        unsigned count = MOST_GROUPS;
        memset(&rest, 0, sizeof rest);
        GPU_TRY(SP_I_CUDA(&c->device, err, DeviceGetDevResource, c->device.index, &from,
                          CU_DEV_RESOURCE_TYPE_SM));
        GPU_TRY(SP_I_CUDA(&c->device, err, DevSmResourceSplitByCount, groups, &count, &from, &rest,
                          0, sizes[i]));
        checklist_found("splits", json_pack("{s:i, s:i, s:i, s:i}", "asked", (int)sizes[i],
                                            "groups", (int)count, "sms_of_each",
                                            count > 0 ? (int)groups[0].sm.smCount : 0, "rest",
                                            (int)rest.sm.smCount));
    }
    return SP_OK;
}

// Partitions with a product in each.
typedef struct partitioned {
    sp_i_cuda_partitions *partitions;
    int count;
    square_product product[16];
} partitioned;

enum { EDGE = 4096 };

static void partitioned_fini(partitioned *p)
{
    for (int i = 0; i < p->count; i++) {
        square_product_fini(&p->product[i]);
    }
    sp_i_cuda_partitions_free(p->partitions);
}

static sp_status partitioned_init(const checklist *c, int count, bool target, partitioned *p,
                                  sp_error *err)
{
    const char *reason;
    memset(p, 0, sizeof *p);
    GPU_TRY(sp_i_cuda_partitions_new(&c->device, count, 1, &p->partitions, err));
    if (!sp_i_cuda_are_partitioned(p->partitions, &reason)) {
        return sp_error_set(err, SP_ERR_INFEASIBLE, "%s", reason);
    }
    for (int i = 0; i < count; i++) {
        int sms = target ? sp_i_cuda_partition_sms(p->partitions, i) : 0;
        p->count = i + 1;
        GPU_TRY(square_product_init(c, EDGE, sms, &p->product[i], err));
    }
    return SP_OK;
}

static double tflops(double seconds)
{
    return 2e-12 * (double)EDGE * EDGE * EDGE / seconds;
}

static sp_status time_first(const checklist *c, partitioned *p, sp_i_cuda_timing *t, sp_error *err)
{
    sp_i_cuda_bench bench = {0};
    CUstream stream = sp_i_cuda_partition_stream(p->partitions, 0, 0);
    GPU_TRY(sp_i_cuda_bench_init(&c->device, stream, 2 * c->info.l2_bytes, &bench, err));
    GPU_TRY(sp_i_cuda_bench_time(&bench, square_product_run, &p->product[0], 0.05, t, err));
    sp_i_cuda_bench_fini(&bench);
    return SP_OK;
}

// A product in one partition, its neighbours idle, with and without telling cuBLASLt its SMs.
sp_status check_sm_target(checklist *c, sp_error *err)
{
    static const int counts[] = {1, 2, 4, 8, 16};
    for (size_t i = 0; i < 2 * sizeof counts / sizeof *counts; i++) {
        partitioned p;
        sp_i_cuda_timing t = {0};
        bool target = i % 2 == 1;
        GPU_TRY(partitioned_init(c, counts[i / 2], target, &p, err));
        GPU_TRY(time_first(c, &p, &t, err));
        checklist_found("sm_target",
                        json_pack("{s:i, s:i, s:b, s:f, s:f, s:f}", "partitions", counts[i / 2],
                                  "sms", sp_i_cuda_partition_sms(p.partitions, 0), "target", target,
                                  "median_us", 1e6 * t.median_s, "spread", t.spread, "tflops",
                                  tflops(t.median_s)));
        partitioned_fini(&p);
    }
    return SP_OK;
}

// `rounds` products in each of the first `busy` partitions, from one start to the last end.
static sp_status time_together(const checklist *c, partitioned *p, int busy, int rounds, double *s,
                               sp_error *err)
{
    sp_i_cuda_events events = {0};
    CUstream first = sp_i_cuda_partition_stream(p->partitions, 0, 0);
    int64_t ns = 0;
    GPU_TRY(sp_i_cuda_events_init(&c->device, busy + 2, true, &events, err));
    GPU_TRY(sp_i_cuda_record(&events, 0, first, err));
    for (int i = 1; i < busy; i++) {
        GPU_TRY(sp_i_cuda_wait(&events, 0, sp_i_cuda_partition_stream(p->partitions, i, 0), err));
    }
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < busy; i++) {
            GPU_TRY(square_product_run(&p->product[i],
                                       sp_i_cuda_partition_stream(p->partitions, i, 0), err));
        }
    }
    for (int i = 1; i < busy; i++) {
        CUstream stream = sp_i_cuda_partition_stream(p->partitions, i, 0);
        GPU_TRY(sp_i_cuda_record(&events, i, stream, err));
        GPU_TRY(sp_i_cuda_wait(&events, i, first, err));
    }
    GPU_TRY(sp_i_cuda_record(&events, busy + 1, first, err));
    GPU_TRY(sp_i_cuda_between(&events, 0, busy + 1, &ns, err));
    *s = 1e-9 * (double)ns;
    sp_i_cuda_events_fini(&events);
    return SP_OK;
}

// 1 where partitions run side by side as if alone; the number of partitions where they take turns.
sp_status check_neighbours(checklist *c, sp_error *err)
{
    static const int counts[] = {2, 4, 8, 16};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        partitioned p;
        double alone_s, all_s;
        const int rounds = 64 / counts[i];
        GPU_TRY(partitioned_init(c, counts[i], true, &p, err));
        GPU_TRY(time_together(c, &p, counts[i], rounds, &all_s, err)); // warms up
        GPU_TRY(time_together(c, &p, 1, rounds, &alone_s, err));
        sp_i_nvml_state one = {0}, all = {0};
        one = c->nvml != NULL ? sp_i_nvml_read(c->nvml) : one;
        GPU_TRY(time_together(c, &p, counts[i], rounds, &all_s, err));
        all = c->nvml != NULL ? sp_i_nvml_read(c->nvml) : all;
        checklist_found(
            "neighbours",
            json_pack("{s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:i, s:i, s:f, s:f}", "partitions",
                      counts[i], "sms", sp_i_cuda_partition_sms(p.partitions, 0), "rounds", rounds,
                      "alone_ms", 1e3 * alone_s, "all_ms", 1e3 * all_s, "all_over_alone",
                      all_s / alone_s, "tflops_of_all", tflops(all_s / (counts[i] * rounds)),
                      "sm_mhz_alone", one.sm_mhz, "sm_mhz_all", all.sm_mhz, "power_w_alone",
                      one.power_w, "power_w_all", all.power_w));
        partitioned_fini(&p);
    }
    return SP_OK;
}
