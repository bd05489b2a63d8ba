// What processes of one run have in common, as text and as a number.
#include <stdio.h>
#include <stdlib.h>

#include "backends/cuda/distributed/multi_process.h"
#include "sim/plan/plan_json.h"

uint32_t sp_i_cuda_hash(const void *text, size_t bytes)
{
    const unsigned char *at = text;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1u)));
        }
    }
    return ~crc;
}

static void put_layout(FILE *file, const sp_layout *l)
{
    fprintf(file, "\nlayout %d %d %d %d %d %d %d %d %d %d", l->tp, l->cp, l->pp, l->dp,
            (int)l->cp_sharding, l->chunks, (int)l->placement, l->sequence_parallel,
            l->vocab_parallel, l->zero);
    for (int i = 0; l->stage_layers != NULL && i < l->pp * l->chunks; i++) {
        fprintf(file, " %d", l->stage_layers[i]);
    }
}

static sp_status put_model(FILE *file, const sp_model *model, sp_error *err)
{
    json_t *document = model != NULL ? sp_model_to_json(model) : json_null();
    bool good = document != NULL &&
                json_dumpf(document, file, JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_COMPACT) == 0;
    json_decref(document);
    return good ? SP_OK : sp_error_no_memory(err, "the text of a model");
}

static void put_settings(FILE *file, const sp_run_request *request)
{
    const sp_memory_options *memory = request->memory;
    fprintf(file, "\nrun %d %d %llu %d %lld %lld %d", (int)request->clock, (int)request->precision,
            (unsigned long long)request->seed, request->steps,
            (long long)request->memory_limit_bytes, (long long)request->timeout_ns,
            request->memory_points);
    if (memory != NULL) {
        fprintf(file, "\nmemory %d %d %.17g %s", (int)memory->recompute, (int)memory->attention,
                memory->offload_ratio, memory->stack.name);
    }
    for (size_t o = 0; o < request->option_count; o++) {
        fprintf(file, "\n%s=%s", request->options[o].key, request->options[o].value);
    }
}

sp_status sp_i_cuda_request_hash(const sp_run_request *request, uint32_t *hash, sp_error *err)
{
    static const sp_plan_predictions unknown = {-1.0, -1.0};
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (file == NULL) {
        return sp_error_no_memory(err, "the text of a plan");
    }
    sp_status status = sp_plan_json_batch(file, 0, request->plan, unknown, err);
    if (status == SP_OK) {
        put_layout(file, &request->plan->layout);
        status = put_model(file, request->model, err);
    }
    if (status == SP_OK) {
        put_settings(file, request);
    }
    if (fclose(file) != 0 && status == SP_OK) {
        status = sp_error_no_memory(err, "the text of a plan");
    }
    *hash = status == SP_OK ? sp_i_cuda_hash(text, bytes) : 0;
    free(text);
    return status;
}
