#include <stdio.h>
#include <string.h>

#include "backends/comm/comm.h"
#include "backends/executor/run.h"
#include "kernels/bf16.h"
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
    // With a transport: what this rank has and what each rank gave, of which the bytes of one rank
    // that were taken.
    sp_transport_part mine, *of;
    const sp_i_exec_rank *taking;
    size_t taken;
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

// What a rank has of a tensor, to their places in the whole, or with `part` one after the other.
static sp_status read_part(reader *r, const sp_i_exec_rank *rank, const sp_i_exec_weight *weight,
                           double *part, sp_error *err)
{
    const sp_i_exec_run *run = r->run;
    sp_element element = r->gradient ? sp_i_exec_exact_element(run) : sp_i_exec_value_element(run);
    int64_t count;
    sp_i_exec_enter(run, rank);
    for (int64_t from = 0; from < weight->elements; from += count) {
        const void *at = element_at(r, rank, weight->offset + from, &count);
        count = least(least(count, weight->elements - from), PIECE);
        run->runtime->ops->download(run->runtime, r->real, at, count * sp_element_bytes(element));
        sp_i_exec_elements_to(element, count, r->real, r->piece);
        for (int64_t i = 0; i < count; i++) {
            int64_t place = part == NULL ? sp_i_exec_weight_index(weight, from + i) : -1;
            if (part != NULL) {
                part[from + i] = r->piece[i];
            } else if (place >= 0) {
                r->values[place] = r->piece[i];
            }
        }
    }
    return sp_i_exec_synchronize_rank(run, rank, err);
}

typedef sp_status visit_part(reader *r, const sp_i_exec_rank *rank, const sp_i_exec_weight *weight,
                             sp_error *err);

// Each rank's part of a tensor, of the ranks that stand for all with the same parameters.
static sp_status each_part(reader *r, const char *name, int pp, visit_part *visit, sp_error *err)
{
    const sp_layout *layout = sp_i_exec_layout(r->run);
    sp_status status = SP_OK;
    for (; status == SP_OK && pp < layout->pp; pp++) {
        for (int t = 0; status == SP_OK && t < layout->tp; t++) {
            const sp_i_exec_rank *rank = sp_i_exec_rank_at(r->run, 0, pp, t);
            for (size_t w = 0; status == SP_OK && w < rank->weights->count; w++) {
                const sp_i_exec_weight *weight = &rank->weights->items[w];
                if (strcmp(weight->name, name) == 0) {
                    status = visit(r, rank, weight, err);
                }
            }
        }
    }
    return status;
}

static sp_status place_part(reader *r, const sp_i_exec_rank *rank, const sp_i_exec_weight *weight,
                            sp_error *err)
{
    return read_part(r, rank, weight, NULL, err);
}

// ---- of ranks in processes of their own ----

// Adds a part of the rank here to what it gives.
static sp_status give_part(reader *r, const sp_i_exec_rank *rank, const sp_i_exec_weight *weight,
                           sp_error *err)
{
    if (!sp_i_exec_is_here(r->run, rank)) {
        return SP_OK;
    }
    size_t bytes = (size_t)weight->elements * sizeof(double);
    char *more = sp_realloc(r->mine.data, r->mine.bytes + bytes + 1);
    r->mine.data = more;
    double *part = (double *)(void *)(more + r->mine.bytes);
    r->mine.bytes += bytes;
    return read_part(r, rank, weight, part, err);
}

// The next part of what a rank gave; parts of one rank follow one another.
static sp_status take_part(reader *r, const sp_i_exec_rank *rank, const sp_i_exec_weight *weight,
                           sp_error *err)
{
    const sp_transport_part *from = &r->of[rank - r->run->ranks];
    size_t bytes = (size_t)weight->elements * sizeof(double);
    r->taken = rank == r->taking ? r->taken : 0;
    r->taking = rank;
    if (from->bytes < r->taken + bytes) {
        return sp_error_set(err, SP_ERR_INTERNAL, "dp %d pp %d cp %d tp %d gave no part of %s",
                            rank->dp, rank->pp, rank->cp, rank->tp, weight->name);
    }
    const double *part = (const double *)(const void *)((const char *)from->data + r->taken);
    r->taken += bytes;
    for (int64_t i = 0; i < weight->elements; i++) {
        int64_t place = sp_i_exec_weight_index(weight, i);
        if (place >= 0) {
            r->values[place] = part[i];
        }
    }
    return SP_OK;
}

static sp_status read_remote(reader *r, const char *name, int pp, sp_error *err)
{
    const sp_i_exec_run *run = r->run;
    size_t ranks = sp_i_exec_rank_count(run);
    r->of = sp_calloc(ranks, sizeof *r->of);
    sp_status status = r->of != NULL ? SP_OK : sp_error_no_memory(err, "a tensor");
    status = status == SP_OK ? each_part(r, name, pp, give_part, err) : status;
    if (status == SP_OK) {
        status =
            run->transport->ops->exchange(run->transport, r->mine.data, r->mine.bytes, r->of, err);
    }
    status = status == SP_OK ? each_part(r, name, pp, take_part, err) : status;
    for (size_t i = 0; r->of != NULL && i < ranks; i++) {
        sp_free(r->of[i].data);
    }
    sp_free(r->of);
    sp_free(r->mine.data);
    return status;
}

sp_status sp_i_exec_tensor_read(const sp_i_exec_run *run, size_t index, double *values,
                                sp_error *err)
{
    int pp;
    size_t count = weight_count(run);
    bool gradient = index >= count;
    size_t w = weight_at(run, gradient ? index - count : index, &pp);
    const char *name = sp_i_exec_rank_at(run, 0, pp, 0)->weights->items[w].name;
    reader *r = sp_malloc(sizeof *r);
    sp_status status = r != NULL ? SP_OK : sp_error_no_memory(err, "a tensor");
    if (status == SP_OK) {
        r->run = run;
        r->gradient = gradient;
        r->values = values;
        r->mine = (sp_transport_part){0};
        r->taking = NULL;
        status = run->transport != NULL ? read_remote(r, name, pp, err)
                                        : each_part(r, name, pp, place_part, err);
    }
    sp_free(r);
    return status;
}

// ---- Numbers of elements ----

void sp_i_exec_elements_from(sp_element element, int64_t n, const double *from, void *to)
{
    SP_ASSERT(element != SP_ELEMENT_BYTE);
    for (int64_t i = 0; i < n; i++) {
        if (element == SP_ELEMENT_F64) {
            ((double *)to)[i] = from[i];
        } else if (element == SP_ELEMENT_F32) {
            ((float *)to)[i] = (float)from[i];
        } else {
            ((sp_bf16 *)to)[i] = sp_bf16_from_float((float)from[i]);
        }
    }
}

void sp_i_exec_elements_to(sp_element element, int64_t n, const void *from, double *to)
{
    SP_ASSERT(element != SP_ELEMENT_BYTE);
    for (int64_t i = 0; i < n; i++) {
        if (element == SP_ELEMENT_F64) {
            to[i] = ((const double *)from)[i];
        } else if (element == SP_ELEMENT_F32) {
            to[i] = (double)((const float *)from)[i];
        } else {
            to[i] = (double)sp_bf16_to_float(((const sp_bf16 *)from)[i]);
        }
    }
}
