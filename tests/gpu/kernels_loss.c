// Cross-entropy: whole, and in parts of the vocabulary that are put together as ranks would.
#include "kernels/cuda_kernels.h"
#include "tests/gpu/kernels_test.h"

static const tensor_layout plain = {0, 0};

enum { TOKENS = 13 };

typedef struct problem {
    int64_t vocab, target_host[TOKENS];
    tensor logits, target, weight;
    double total_weight;
    double *lse, *dlogits;
    double loss;
} problem;

// Some tokens count for nothing; one of those has infinite logits. fp64 reference of it all.
static problem set_up(int64_t vocab, tensor_layout layout, bool weighted)
{
    problem p = {.vocab = vocab, .total_weight = 17};
    p.logits = tensor_drawn(TENSOR_BF16, TOKENS, vocab, layout, 20);
    p.target = tensor_drawn(TENSOR_INT64, 1, TOKENS, plain, 0);
    p.weight = tensor_drawn(TENSOR_FP32, 1, TOKENS, plain, 1);
    for (int64_t t = 0; t < TOKENS; t++) {
        p.target_host[t] = t % 5 == 4 ? -1 : tensor_below(vocab);
        p.target.value[t] = (double)p.target_host[t];
        p.weight.value[t] = fabs(p.weight.value[t]);
    }
    p.logits.value[4 * p.logits.stride] = (double)INFINITY;
    // A maximum that only its own rank knows, and logits that are hidden.
    p.logits.value[1] = 200;
    p.logits.value[p.logits.stride + 2] = (double)-INFINITY;
    p.target_host[1] = 0;
    p.target.value[1] = 0;
    tensor_put(&p.logits);
    tensor_put(&p.target);
    tensor_put(&p.weight);
    p.lse = tensor_zeros(TOKENS);
    p.dlogits = tensor_zeros(TOKENS * p.logits.stride);
    const double *weight = weighted ? p.weight.value : NULL;
    p.loss = sp_kernel_cross_entropy_f64(TOKENS, vocab, p.logits.value, p.logits.stride,
                                         p.target_host, weight, p.total_weight, p.lse);
    sp_kernel_cross_entropy_backward_f64(TOKENS, vocab, 0, p.logits.value, p.logits.stride,
                                         p.target_host, weight, p.total_weight, p.lse, p.dlogits,
                                         p.logits.stride);
    return p;
}

// The row with infinite logits has no lse; what it would be compared with is no number.
static void check_lse(problem *p, tensor *lse)
{
    tensor_get(lse);
    for (int64_t t = 0; t < TOKENS; t++) {
        if (t != 4) {
            EXPECT(fabs(lse->value[t] - p->lse[t]) <= 1e-6 * fabs(p->lse[t]) + 1e-6);
        }
    }
}

static void check_whole(int64_t vocab, tensor_layout layout, bool weighted)
{
    problem p = set_up(vocab, layout, weighted);
    tensor max = tensor_blank(TENSOR_FP32, 1, TOKENS, plain);
    tensor sum = tensor_blank(TENSOR_FP32, 1, TOKENS, plain);
    tensor logit = tensor_blank(TENSOR_FP32, 1, TOKENS, plain);
    tensor lse = tensor_blank(TENSOR_FP32, 1, TOKENS, plain);
    tensor loss = tensor_drawn(TENSOR_FP64, 1, 1, plain, 1);
    const float *weight = weighted ? FP32(p.weight) : NULL;
    double expected_loss = loss.value[0] + p.loss;
    device_wait(sp_cuda_cross_entropy_local(TOKENS, vocab, 0, BF16(p.logits), p.logits.stride,
                                            INT64(p.target), FP32(max), FP32(sum), FP32(logit),
                                            NULL));
    device_wait(sp_cuda_cross_entropy_loss(TOKENS, INT64(p.target), weight, p.total_weight,
                                           FP32(max), FP32(sum), FP32(logit), FP32(lse), FP64(loss),
                                           NULL));
    check_lse(&p, &lse);
    tensor_check("cross_entropy's loss", &loss, &expected_loss, 1e-6, 1e-6);
    tensor apart = tensor_blank(TENSOR_BF16, TOKENS, vocab, layout);
    device_wait(sp_cuda_cross_entropy_backward(TOKENS, vocab, 0, BF16(p.logits), p.logits.stride,
                                               INT64(p.target), weight, p.total_weight, FP32(lse),
                                               BF16(apart), apart.stride, NULL));
    tensor_check("cross_entropy_backward", &apart, p.dlogits, BF16_ROUNDING, 1e-7);
    device_wait(sp_cuda_cross_entropy_backward(TOKENS, vocab, 0, BF16(p.logits), p.logits.stride,
                                               INT64(p.target), weight, p.total_weight, FP32(lse),
                                               BF16(p.logits), p.logits.stride, NULL));
    tensor_check("cross_entropy_backward in place", &p.logits, p.dlogits, BF16_ROUNDING, 1e-7);
}

static void whole_vocabulary(void)
{
    static const int64_t vocabs[] = {3, 8, 40, 1000, 5003, 20000};
    for (int v = 0; v < 6; v++) {
        for (int l = 0; l < TENSOR_LAYOUTS; l++) {
            check_whole(vocabs[v], tensor_layouts[l], l != 0);
        }
    }
}

// The columns of one rank, and what it computes of them.
enum { RANKS = 3 };

typedef struct part {
    int64_t first, columns;
    tensor max, sum, logit, lse, loss;
} part;

// Reduces a tensor of all parts as the ranks' all-reduce would, and gives each the result.
static void reduce(part *parts, tensor *(*of)(part *), bool maximum)
{
    for (int64_t t = 0; t < TOKENS; t++) {
        double result = of(&parts[0])->value[t];
        for (int r = 1; r < RANKS; r++) {
            double value = of(&parts[r])->value[t];
            result = maximum ? fmax(result, value) : result + value;
        }
        for (int r = 0; r < RANKS; r++) {
            of(&parts[r])->value[t] = result;
        }
    }
    for (int r = 0; r < RANKS; r++) {
        tensor_put(of(&parts[r]));
    }
}

static tensor *max_of(part *p)
{
    return &p->max;
}

static tensor *sum_of(part *p)
{
    return &p->sum;
}

static tensor *logit_of(part *p)
{
    return &p->logit;
}

static void check_parts(int64_t vocab, tensor_layout layout)
{
    problem p = set_up(vocab, layout, true);
    part parts[RANKS];
    for (int r = 0; r < RANKS; r++) {
        part *q = &parts[r];
        q->first = vocab * r / RANKS / 8 * 8;
        q->columns = (r + 1 < RANKS ? vocab * (r + 1) / RANKS / 8 * 8 : vocab) - q->first;
        q->max = tensor_blank(TENSOR_FP32, 1, TOKENS, plain);
        q->sum = tensor_blank(TENSOR_FP32, 1, TOKENS, plain);
        q->logit = tensor_blank(TENSOR_FP32, 1, TOKENS, plain);
        q->lse = tensor_blank(TENSOR_FP32, 1, TOKENS, plain);
        q->loss = tensor_drawn(TENSOR_FP64, 1, 1, plain, 0);
        device_wait(sp_cuda_cross_entropy_max(TOKENS, q->columns, BF16(p.logits) + q->first,
                                              p.logits.stride, FP32(q->max), NULL));
        tensor_get(&q->max);
    }
    reduce(parts, max_of, true);
    for (int r = 0; r < RANKS; r++) {
        part *q = &parts[r];
        device_wait(sp_cuda_cross_entropy_sums(
            TOKENS, q->columns, q->first, BF16(p.logits) + q->first, p.logits.stride,
            INT64(p.target), FP32(q->max), FP32(q->sum), FP32(q->logit), NULL));
        tensor_get(&q->sum);
        tensor_get(&q->logit);
    }
    reduce(parts, sum_of, false);
    reduce(parts, logit_of, false);
    for (int r = 0; r < RANKS; r++) {
        part *q = &parts[r];
        device_wait(sp_cuda_cross_entropy_loss(TOKENS, INT64(p.target), FP32(p.weight),
                                               p.total_weight, FP32(q->max), FP32(q->sum),
                                               FP32(q->logit), FP32(q->lse), FP64(q->loss), NULL));
        check_lse(&p, &q->lse);
        tensor_check("a part's loss", &q->loss, &p.loss, 1e-6, 1e-6);
        device_wait(sp_cuda_cross_entropy_backward(
            TOKENS, q->columns, q->first, BF16(p.logits) + q->first, p.logits.stride,
            INT64(p.target), FP32(p.weight), p.total_weight, FP32(q->lse),
            BF16(p.logits) + q->first, p.logits.stride, NULL));
    }
    tensor_check("the parts' gradients", &p.logits, p.dlogits, BF16_ROUNDING, 1e-7);
}

static void vocabulary_in_parts(void)
{
    for (int l = 0; l < TENSOR_LAYOUTS; l++) {
        check_parts(120, tensor_layouts[l]);
        check_parts(3001, tensor_layouts[l]);
    }
}

// Maxima and sums in two passes, of a rank's columns in rows that may be longer: no columns at all,
// and no finite logit, give numbers too.
static void check_two_passes(int64_t columns, int64_t stride, int64_t first)
{
    tensor logits = tensor_drawn(TENSOR_BF16, TOKENS, stride, plain, 20);
    tensor target = tensor_drawn(TENSOR_INT64, 1, TOKENS, plain, 0);
    tensor max = tensor_blank(TENSOR_FP32, 1, TOKENS, plain);
    tensor sum = tensor_blank(TENSOR_FP32, 1, TOKENS, plain);
    tensor logit = tensor_blank(TENSOR_FP32, 1, TOKENS, plain);
    int64_t target_host[TOKENS];
    double *largest = tensor_zeros(TOKENS);
    double *sums = tensor_zeros(TOKENS);
    double *of_target = tensor_zeros(TOKENS);
    for (int64_t t = 0; t < TOKENS; t++) {
        target_host[t] = t % 4 == 0 ? -1 : first + tensor_below(2 * stride) - stride / 2;
        target.value[t] = (double)target_host[t];
        for (int64_t c = columns; c < stride; c++) {
            logits.value[t * stride + c] = c % 2 ? 1000 : (double)NAN;
        }
        for (int64_t c = 0; t == 3 && c < columns; c++) {
            logits.value[t * stride + c] = (double)-INFINITY;
        }
    }
    tensor_put(&logits);
    tensor_put(&target);
    for (int64_t t = 0; t < TOKENS; t++) {
        const double *row = logits.value + t * stride;
        largest[t] = (double)-INFINITY;
        for (int64_t c = 0; c < columns; c++) {
            largest[t] = fmax(largest[t], row[c]);
        }
        for (int64_t c = 0; c < columns && t != 3; c++) {
            sums[t] += exp(row[c] - largest[t]);
        }
        int64_t c = target_host[t] - first;
        of_target[t] = c >= 0 && c < columns ? row[c] : 0;
    }
    device_wait(sp_cuda_cross_entropy_max(TOKENS, columns, BF16(logits), stride, FP32(max), NULL));
    tensor_check("cross_entropy_max", &max, largest, 0, 0);
    device_wait(sp_cuda_cross_entropy_sums(TOKENS, columns, first, BF16(logits), stride,
                                           INT64(target), FP32(max), FP32(sum), FP32(logit), NULL));
    tensor_check("cross_entropy_sums", &sum, sums, 1e-5, 0);
    tensor_check("cross_entropy_sums' targets", &logit, of_target, 0, 0);
    device_wait(sp_cuda_cross_entropy_local(TOKENS, columns, first, BF16(logits), stride,
                                            INT64(target), FP32(max), FP32(sum), FP32(logit),
                                            NULL));
    tensor_check("cross_entropy_local's maxima", &max, largest, 0, 0);
    tensor_check("cross_entropy_local's sums", &sum, sums, 1e-5, 0);
}

static void two_passes(void)
{
    static const int64_t columns[] = {0, 1, 8, 13, 40, 4101};
    for (int c = 0; c < 6; c++) {
        check_two_passes(columns[c], columns[c] + (columns[c] == 0), 5);
        check_two_passes(columns[c], (columns[c] + 15) / 8 * 8, 0);
    }
}

// The last of a table's rows are padding, whose gradients are zero.
static void padded_vocabulary(void)
{
    static const int64_t vocabs[] = {0, 3, 40, 1001};
    for (int v = 0; v < 8; v++) {
        int64_t vocab = vocabs[v / 2];
        int64_t width = v % 2 ? vocab + 3 : (vocab + 15) / 8 * 8;
        tensor logits = tensor_drawn(TENSOR_BF16, TOKENS, width, plain, 5);
        tensor target = tensor_drawn(TENSOR_INT64, 1, TOKENS, plain, 0);
        tensor lse = tensor_drawn(TENSOR_FP32, 1, TOKENS, plain, 1);
        int64_t target_host[TOKENS];
        for (int64_t t = 0; t < TOKENS; t++) {
            target_host[t] = t % 5 == 4 || vocab == 0 ? -1 : 100 + tensor_below(vocab);
            target.value[t] = (double)target_host[t];
            lse.value[t] += 10;
            for (int64_t c = vocab; c < width; c++) {
                logits.value[t * width + c] = (double)NAN;
            }
        }
        tensor_put(&logits);
        tensor_put(&target);
        tensor_put(&lse);
        double *expected = tensor_zeros(TOKENS * width);
        sp_kernel_cross_entropy_backward_f64(TOKENS, vocab, 100, logits.value, width, target_host,
                                             NULL, 17, lse.value, expected, width);
        device_wait(sp_cuda_cross_entropy_backward_in_place(TOKENS, vocab, 100, BF16(logits), width,
                                                            INT64(target), 17, FP32(lse), NULL));
        tensor_check("cross_entropy_backward_in_place", &logits, expected, BF16_ROUNDING, 1e-7);
    }
}

const kernel_case kernels_loss_cases[] = {
    KERNEL_CASE(whole_vocabulary),
    KERNEL_CASE(vocabulary_in_parts),
    KERNEL_CASE(two_passes),
    KERNEL_CASE(padded_vocabulary),
    {NULL, NULL},
};
