#include "tests/support/kernels/tensors.h"

#include "tests/support/test_main.h"

static void *hold(tensors *all, int64_t n, size_t bytes)
{
    assert_true(all->count < (int)(sizeof all->held / sizeof all->held[0]));
    void *pointer = sp_calloc(n > 0 ? (size_t)n : 1, bytes);
    all->held[all->count++] = pointer;
    return pointer;
}

void tensors_init(tensors *all, uint64_t seed)
{
    sp_prng_seed(&all->prng, seed);
    all->count = 0;
}

void tensors_fini(tensors *all)
{
    for (int i = 0; i < all->count; i++) {
        sp_free(all->held[i]);
    }
}

void problem_tensors_fini(void *problem)
{
    tensors_fini(problem);
}

tensor tensor_zero(tensors *all, int64_t n)
{
    double *d = hold(all, n, sizeof *d);
    float *f = hold(all, n, sizeof *f);
    return (tensor){.d = d, .f = f, .n = n};
}

tensor tensor_random(tensors *all, int64_t n)
{
    tensor t = tensor_zero(all, n);
    for (int64_t i = 0; i < n; i++) {
        t.f[i] = (float)(2.0 * sp_prng_uniform(&all->prng) - 1.0);
        t.d[i] = (double)t.f[i];
    }
    return t;
}

tensor tensor_copy(tensors *all, tensor from)
{
    tensor t = tensor_zero(all, from.n);
    memcpy(t.d, from.d, (size_t)from.n * sizeof *t.d);
    memcpy(t.f, from.f, (size_t)from.n * sizeof *t.f);
    return t;
}

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(x[i]));
    }
    return most;
}

void assert_near_rows(const double *values, const double *expected, int64_t n, double tolerance)
{
    double allowed = tolerance * largest(expected, n);
    for (int64_t i = 0; i < n; i++) {
        must_hold(fabs(values[i] - expected[i]) <= allowed,
                  "element %lld of %lld: %.17g, expected %.17g +- %g", (long long)i, (long long)n,
                  values[i], expected[i], allowed);
    }
}

void assert_types_agree(tensor t, double tolerance)
{
    double allowed = tolerance * largest(t.d, t.n);
    for (int64_t i = 0; i < t.n; i++) {
        must_hold(fabs((double)t.f[i] - t.d[i]) <= allowed,
                  "element %lld of %lld: fp32 %.9g, fp64 %.17g +- %g", (long long)i, (long long)t.n,
                  (double)t.f[i], t.d[i], allowed);
    }
}

double dot_of(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

void assert_gradient(double (*loss)(void *problem), void *problem, double *x, int64_t n,
                     const double *gradient)
{
    const double step = 1e-5;
    double allowed = 1e-7 * largest(gradient, n);
    assert_true(allowed > 0);
    for (int64_t i = 0; i < n; i++) {
        double kept = x[i];
        x[i] = kept + step;
        double above = loss(problem);
        x[i] = kept - step;
        double below = loss(problem);
        x[i] = kept;
        double difference = (above - below) / (2 * step);
        must_hold(fabs(difference - gradient[i]) <= allowed,
                  "element %lld of %lld: gradient %.12g, finite difference %.12g +- %g",
                  (long long)i, (long long)n, gradient[i], difference, allowed);
    }
}
