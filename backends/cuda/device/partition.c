#include "backends/cuda/device/partition.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/alloc.h"

bool sp_i_cuda_plan_partitions(int total, int smallest, int alignment, int partitions,
                               sp_i_cuda_partition_plan *plan, char *text, size_t text_bytes)
{
    int step = alignment > 0 ? alignment : 1;
    *plan = (sp_i_cuda_partition_plan){0};
    if (partitions < 1) {
        snprintf(text, text_bytes, "%d partitions", partitions);
        return false;
    }
    int sms = total / partitions / step * step;
    if (sms == 0 || sms < smallest) {
        int least = (smallest + step - 1) / step * step;
        snprintf(text, text_bytes,
                 "%d SMs do not make %d partitions of at least %d SMs in steps of %d", total,
                 partitions, least > 0 ? least : step, step);
        return false;
    }
    *plan = (sp_i_cuda_partition_plan){
        .partitions = partitions, .sms = sms, .rest = total - partitions * sms};
    return true;
}

typedef struct place {
    CUgreenCtx context; // NULL: the whole device
    int sms;
    cudaStream_t *streams;
} place;

struct sp_i_cuda_partitions {
    sp_i_cuda_device device;
    int count, streams;
    bool disjoint;
    char reason[SP_I_CUDA_TEXT];
    place *of;
};

static void split_device(sp_i_cuda_partitions *p);
static sp_status make_streams(sp_i_cuda_partitions *p, sp_error *err);
static sp_status whole_device(sp_i_cuda_partitions *p, sp_error *err);

sp_status sp_i_cuda_partitions_new(const sp_i_cuda_device *device, int partitions, int streams,
                                   sp_i_cuda_partitions **made, sp_error *err)
{
    *made = NULL;
    SP_ASSERT(partitions > 0 && streams > 0);
    sp_i_cuda_partitions *p = sp_calloc(1, sizeof *p);
    place *of = sp_calloc((size_t)partitions, sizeof *of);
    if (p == NULL || of == NULL) {
        sp_free(p);
        sp_free(of);
        return sp_error_no_memory(err, "the partitions of a GPU");
    }
    *p = (sp_i_cuda_partitions){
        .device = *device, .count = partitions, .streams = streams, .of = of};
    sp_status status = SP_OK;
    for (int i = 0; status == SP_OK && i < partitions; i++) {
        of[i].streams = sp_calloc((size_t)streams, sizeof(cudaStream_t));
        status = of[i].streams != NULL ? SP_OK : sp_error_no_memory(err, "streams");
    }
    if (status == SP_OK) {
        // One partition is the whole device: a split would leave SMs out, and a green context may
        // launch more slowly than a plain stream.
        p->disjoint = partitions == 1;
        if (partitions > 1) {
            split_device(p);
        }
        status = p->disjoint && partitions > 1 ? SP_OK : whole_device(p, err);
    }
    if (status == SP_OK) {
        status = make_streams(p, err);
    }
    if (status != SP_OK) {
        sp_i_cuda_partitions_free(p);
        return status;
    }
    *made = p;
    return SP_OK;
}

static void destroy_contexts(sp_i_cuda_partitions *p)
{
    for (int i = 0; i < p->count; i++) {
        if (p->of[i].context != NULL) {
            (void)p->device.api->GreenCtxDestroy(p->of[i].context);
            p->of[i].context = NULL;
        }
    }
}

void sp_i_cuda_partitions_free(sp_i_cuda_partitions *p)
{
    if (p == NULL) {
        return;
    }
    for (int i = 0; i < p->count; i++) {
        for (int s = 0; p->of[i].streams != NULL && s < p->streams; s++) {
            if (p->of[i].streams[s] != NULL) {
                (void)p->device.api->StreamDestroy(p->of[i].streams[s]);
            }
        }
        sp_free(p->of[i].streams);
    }
    destroy_contexts(p);
    sp_free(p->of);
    sp_free(p);
}

sp_status sp_i_cuda_sms(const sp_i_cuda_device *device, sp_i_cuda_sm_resource *resource,
                        sp_error *err)
{
    CUdevResource all;
    memset(&all, 0, sizeof all);
    if (!device->api->partitions) {
        return sp_error_set(err, SP_ERR_USAGE, "GPU %d: %s", device->index,
                            device->api->no_partitions);
    }
    // The driver's ordinals are the runtime's.
    sp_status status =
        SP_I_CU(device, err, DeviceGetDevResource, device->index, &all, CU_DEV_RESOURCE_TYPE_SM);
    *resource = (sp_i_cuda_sm_resource){.count = (int)all.sm.smCount,
                                        .smallest = (int)all.sm.minSmPartitionSize,
                                        .alignment = (int)all.sm.smCoscheduledAlignment};
    return status;
}

// ---- green contexts ----

static sp_status make_context(const sp_i_cuda_partitions *p, CUdevResource *group,
                              CUgreenCtx *context, sp_error *err)
{
    CUdevResourceDesc description = NULL;
    sp_status status = SP_I_CU(&p->device, err, DevResourceGenerateDesc, &description, group, 1);
    return status != SP_OK ? status
                           : SP_I_CU(&p->device, err, GreenCtxCreate, context, description,
                                     p->device.index, CU_GREEN_CTX_DEFAULT_STREAM);
}

// The groups of one split.
static sp_status split_sms(const sp_i_cuda_partitions *p, const sp_i_cuda_partition_plan *plan,
                           CUdevResource *groups, sp_error *err)
{
    const sp_i_cuda_device *device = &p->device;
    CUdevResource all;
    CUdevResource rest;
    unsigned count = (unsigned)plan->partitions;
    memset(&all, 0, sizeof all);
    sp_status status =
        SP_I_CU(device, err, DeviceGetDevResource, device->index, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (status == SP_OK) {
        status = SP_I_CU(device, err, DevSmResourceSplitByCount, groups, &count, &all, &rest, 0,
                         (unsigned)plan->sms);
    }
    if (status == SP_OK && count < (unsigned)plan->partitions) {
        status =
            sp_error_set(err, SP_ERR_INFEASIBLE, "GPU %d: a split into %d groups of %d SMs gave %u",
                         device->index, plan->partitions, plan->sms, count);
    }
    return status;
}

static sp_status try_split(sp_i_cuda_partitions *p, CUdevResource *groups, sp_error *err)
{
    sp_i_cuda_sm_resource all;
    sp_i_cuda_partition_plan plan;
    char text[SP_I_CUDA_TEXT];
    sp_status status = sp_i_cuda_sms(&p->device, &all, err);
    if (status != SP_OK) {
        return status;
    }
    if (!sp_i_cuda_plan_partitions(all.count, all.smallest, all.alignment, p->count, &plan, text,
                                   sizeof text)) {
        return sp_error_set(err, SP_ERR_INFEASIBLE, "GPU %d: %s", p->device.index, text);
    }
    status = split_sms(p, &plan, groups, err);
    for (int i = 0; status == SP_OK && i < p->count; i++) {
        p->of[i].sms = (int)groups[i].sm.smCount;
        status = make_context(p, &groups[i], &p->of[i].context, err);
    }
    return status;
}

// A device that cannot be split is no failure of the run: the reason is kept.
static void split_device(sp_i_cuda_partitions *p)
{
    sp_error why;
    sp_error_clear(&why);
    CUdevResource *groups = sp_calloc((size_t)p->count, sizeof *groups);
    sp_status status = groups != NULL ? try_split(p, groups, &why)
                                      : sp_error_no_memory(&why, "the partitions of a GPU");
    sp_free(groups);
    p->disjoint = status == SP_OK;
    if (!p->disjoint) {
        snprintf(p->reason, sizeof p->reason, "%.*s", SP_I_CUDA_TEXT - 1, why.message[0]);
        destroy_contexts(p);
    }
}

static sp_status whole_device(sp_i_cuda_partitions *p, sp_error *err)
{
    int sms = 0;
    sp_status status = SP_I_CUDA(&p->device, err, DeviceGetAttribute, &sms,
                                 cudaDevAttrMultiProcessorCount, p->device.index);
    for (int i = 0; i < p->count; i++) {
        p->of[i].sms = sms;
    }
    return status;
}

static sp_status make_stream(const sp_i_cuda_partitions *p, int partition, cudaStream_t *stream,
                             sp_error *err)
{
    const sp_i_cuda_device *device = &p->device;
    return p->of[partition].context != NULL
               ? SP_I_CU(device, err, GreenCtxStreamCreate, stream, p->of[partition].context,
                         CU_STREAM_NON_BLOCKING, 0)
               : SP_I_CUDA(device, err, StreamCreateWithPriority, stream, cudaStreamNonBlocking, 0);
}

static sp_status make_streams(sp_i_cuda_partitions *p, sp_error *err)
{
    sp_status status = SP_OK;
    for (int i = 0; i < p->count; i++) {
        for (int s = 0; status == SP_OK && s < p->streams; s++) {
            status = make_stream(p, i, &p->of[i].streams[s], err);
        }
    }
    return status;
}

// ---- what there is ----

bool sp_i_cuda_are_partitioned(const sp_i_cuda_partitions *p, const char **reason)
{
    if (reason != NULL) {
        *reason = p->reason;
    }
    return p->disjoint;
}

int sp_i_cuda_partition_sms(const sp_i_cuda_partitions *p, int partition)
{
    SP_ASSERT(partition >= 0 && partition < p->count);
    return p->of[partition].sms;
}

cudaStream_t sp_i_cuda_partition_stream(const sp_i_cuda_partitions *p, int partition, int stream)
{
    SP_ASSERT(partition >= 0 && partition < p->count && stream >= 0 && stream < p->streams);
    return p->of[partition].streams[stream];
}
