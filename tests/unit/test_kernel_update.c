// The optimizer step and the small loops around it.
#include "kernels/kernels.h"
#include "tests/support/initializers.h"
#include "tests/support/kernels/tensors.h"
#include "tests/support/test_main.h"

enum { N = 43, STEPS = 5 };
static const sp_kernel_adamw_step settings = {ADAMW_SETTINGS, .gradient_scale = 0.5};

// Algorithm 2 of the paper line by line, with moments as sums over all gradients so far.
static double after_steps(double parameter, const double *gradient)
{
    for (int step = 1; step <= STEPS; step++) {
        double first = 0, second = 0;
        for (int s = 1; s <= step; s++) {
            double g = settings.gradient_scale * gradient[s - 1];
            first += (1 - settings.beta1) * pow(settings.beta1, step - s) * g;
            second += (1 - settings.beta2) * pow(settings.beta2, step - s) * g * g;
        }
        first /= 1 - pow(settings.beta1, step);
        second /= 1 - pow(settings.beta2, step);
        parameter -= settings.learning_rate * (first / (sqrt(second) + settings.epsilon) +
                                               settings.weight_decay * parameter);
    }
    return parameter;
}

TEST(adamw_definition)
{
    AUTO(tensors) all;
    tensors_init(&all, 43);
    tensor parameter = tensor_random(&all, N);
    tensor first = tensor_zero(&all, N);
    tensor second = tensor_zero(&all, N);
    tensor expected = tensor_zero(&all, N);
    tensor gradient[STEPS];
    for (int s = 0; s < STEPS; s++) {
        gradient[s] = tensor_random(&all, N);
    }
    for (int i = 0; i < N; i++) {
        double of_parameter[STEPS];
        for (int s = 0; s < STEPS; s++) {
            of_parameter[s] = gradient[s].d[i];
        }
        expected.d[i] = after_steps(parameter.d[i], of_parameter);
    }
    for (int s = 0; s < STEPS; s++) {
        sp_kernel_adamw_step step = settings;
        step.step = s + 1;
        sp_kernel_adamw_f64(&step, N, gradient[s].d, parameter.d, first.d, second.d);
        sp_kernel_adamw_f32(&step, N, gradient[s].f, parameter.f, first.f, second.f);
    }
    assert_near_rows(parameter.d, expected.d, N, 1e-14);
    assert_types_agree(parameter, 1e-6);
}

// In the first step the corrected moments are g and g^2: every parameter moves by the learning
// rate.
TEST(adamw_first_step)
{
    sp_kernel_adamw_step step = settings;
    step.step = 1;
    step.weight_decay = 0;
    step.epsilon = 0;
    double gradient[3] = {1e-9, -3.0, 1e6};
    double parameter[3] = {1.0, 1.0, 1.0};
    double first[3] = {0};
    double second[3] = {0};
    static const double expected[3] = {0.99, 1.01, 0.99};
    sp_kernel_adamw_f64(&step, 3, gradient, parameter, first, second);
    assert_near_rows(parameter, expected, 3, 1e-15);
}

TEST(squares)
{
    AUTO(tensors) all;
    tensors_init(&all, 47);
    for (int64_t n = 0; n < 70; n++) {
        double x[70];
        float x_f32[70];
        for (int64_t i = 0; i < n; i++) {
            x[i] = (double)(i + 1);
            x_f32[i] = (float)(i + 1);
        }
        // Sum of the first squares.
        double expected = (double)(n * (n + 1) * (2 * n + 1)) / 6.0;
        assert_true(sp_kernel_sum_of_squares_f64(n, x) == expected);
        assert_true(sp_kernel_sum_of_squares_f32(n, x_f32) == expected);
    }
}

TEST(rows_between_strides)
{
    AUTO(tensors) all;
    tensors_init(&all, 53);
    tensor from = tensor_random(&all, 4 * 6);
    tensor to = tensor_zero(&all, 4 * 9);
    sp_kernel_copy_rows_f64(4, 5, from.d, 6, to.d, 9);
    sp_kernel_copy_rows_f32(4, 5, from.f, 6, to.f, 9);
    for (int r = 0; r < 4; r++) {
        for (int c = 0; c < 9; c++) {
            assert_true(to.d[r * 9 + c] == (c < 5 ? from.d[r * 6 + c] : 0.0));
        }
    }
    assert_types_agree(to, 0.0);
    sp_kernel_add_f64(from.n, from.d, to.d);
    assert_true(to.d[0] == 2.0 * from.d[0]);
}
