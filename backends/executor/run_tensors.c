#include <stdio.h>
#include <string.h>

#include "backends/executor/elements.h"
#include "backends/executor/run.h"
#include "sim/base/alloc.h"

static bool is_named_before(const sp_i_exec_weight *weight)
{
    return weight->copy || weight->continued;
}

// The i-th tensor, in the order of the pipeline ranks.
static size_t weight_at(const sp_i_exec_run *run, size_t index, int *pp)
{
    for (int p = 0; p < sp_i_exec_layout(run)->pp; p++) {
        const sp_i_exec_weights *weights = sp_i_exec_rank_at(run, 0, p, 0)->weights;
        for (size_t w = 0; w < weights->count; w++) {
            if (is_named_before(&weights->items[w])) {
                continue;
            }
            if (index == 0) {
                *pp = p;
                return w;
            }
            index--;
        }
    }
    SP_UNREACHABLE("a tensor beyond the last");
}

static size_t weight_count(const sp_i_exec_run *run)
{
    size_t count = 0;
    for (int p = 0; p < sp_i_exec_layout(run)->pp; p++) {
        const sp_i_exec_weights *weights = sp_i_exec_rank_at(run, 0, p, 0)->weights;
        for (size_t w = 0; w < weights->count; w++) {
            count += !is_named_before(&weights->items[w]);
        }
    }
    return count;
}

size_t sp_i_exec_tensor_count(const sp_i_exec_run *run)
{
    return 2 * weight_count(run);
}

static sp_precision precision_of(sp_element element)
{
    return element == SP_ELEMENT_F64 ? SP_FP64 : element == SP_ELEMENT_F32 ? SP_FP32 : SP_BF16;
}

void sp_i_exec_tensor_info(const sp_i_exec_run *run, size_t index, sp_tensor_info *info)
{
    int pp;
    size_t count = weight_count(run);
    bool gradient = index >= count;
    size_t w = weight_at(run, gradient ? index - count : index, &pp);
    const sp_i_exec_weight *weight = &sp_i_exec_rank_at(run, 0, pp, 0)->weights->items[w];
    *info = (sp_tensor_info){.precision = precision_of(gradient ? sp_i_exec_exact_element(run)
                                                                : sp_i_exec_value_element(run)),
                             .dims = weight->all_rows > 1 && weight->all_columns > 1 ? 2 : 1,
                             .elements = weight->all_rows * weight->all_columns};
    snprintf(info->name, sizeof info->name, "%s/%s", gradient ? "gradients" : "parameters",
             weight->name);
    info->size[0] = info->dims == 2 ? weight->all_rows : info->elements;
    info->size[1] = info->dims == 2 ? weight->all_columns : 0;
}

enum { PIECE = 1 << 14 }; // elements that are read at a time

typedef struct reader {
    const sp_i_exec_run *run;
    bool gradient;
    double *values;
    char real[PIECE * sizeof(double)];
    double piece[PIECE];
} reader;

// Where an element is, at the rank itself or where its replicas keep it, and how many stand there
// one behind the other.
static const void *element_at(const reader *r, const sp_i_exec_rank *rank, int64_t element,
                              int64_t *count)
{
    const sp_i_exec_run *run = r->run;
    bool sharded = r->gradient ? sp_i_exec_shards_gradients(run) : sp_i_exec_shards_values(run);
    if (!sharded) {
        *count = rank->weights->elements - element;
        return r->gradient ? sp_i_exec_gradient_at(run, rank, element)
                           : sp_i_exec_value_at(run, rank, element);
    }
    const sp_i_exec_share *share = sp_i_exec_share_of(sp_i_exec_replicas_of(run, rank), element);
    int64_t bytes = r->gradient ? run->math->exact_bytes : run->math->real_bytes;
    *count = share->end - element;
    return (const char *)(r->gradient ? share->gradients : share->values) +
           (element - share->begin) * bytes;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// Copies what a rank has of a tensor to its places in the whole.
static sp_status read_part(reader *r, const sp_i_exec_rank *rank, const sp_i_exec_weight *weight,
                           sp_error *err)
{
    const sp_i_exec_run *run = r->run;
    sp_element element = r->gradient ? sp_i_exec_exact_element(run) : sp_i_exec_value_element(run);
    int64_t count;
    sp_i_exec_enter(run, rank);
    for (int64_t from = 0; from < weight->elements; from += count) {
        const void *at = element_at(r, rank, weight->offset + from, &count);
        count = least(least(count, weight->elements - from), PIECE);
        run->machine->ops->download(run->machine, r->real, at, count * sp_element_bytes(element));
        sp_i_exec_elements_to(element, count, r->real, r->piece);
        for (int64_t i = 0; i < count; i++) {
            int64_t place = sp_i_exec_weight_index(weight, from + i);
            if (place >= 0) {
                r->values[place] = r->piece[i];
            }
        }
    }
    return sp_i_exec_settle_rank(run, rank, err);
}

static sp_status read_parts(reader *r, const char *name, int pp, sp_error *err)
{
    const sp_layout *layout = sp_i_exec_layout(r->run);
    sp_status status = SP_OK;
    for (; status == SP_OK && pp < layout->pp; pp++) {
        for (int t = 0; status == SP_OK && t < layout->tp; t++) {
            const sp_i_exec_rank *rank = sp_i_exec_rank_at(r->run, 0, pp, t);
            for (size_t w = 0; status == SP_OK && w < rank->weights->count; w++) {
                const sp_i_exec_weight *weight = &rank->weights->items[w];
                if (strcmp(weight->name, name) == 0) {
                    status = read_part(r, rank, weight, err);
                }
            }
        }
    }
    return status;
}

sp_status sp_i_exec_tensor_read(const sp_i_exec_run *run, size_t index, double *values,
                                sp_error *err)
{
    int pp;
    size_t count = weight_count(run);
    reader *r = sp_i_malloc(sizeof *r);
    if (r == NULL) {
        return sp_error_no_memory(err, "a tensor");
    }
    r->run = run;
    r->gradient = index >= count;
    r->values = values;
    size_t w = weight_at(run, r->gradient ? index - count : index, &pp);
    sp_status status =
        read_parts(r, sp_i_exec_rank_at(run, 0, pp, 0)->weights->items[w].name, pp, err);
    sp_i_free(r);
    return status;
}
