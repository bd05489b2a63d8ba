#include "experiments/report/pairs.h"

bool report_is_executed(const report_input *input)
{
    return input->kind == REPORT_RESULT && json_object_get(input->json, "execution") != NULL;
}

static bool is_alike(const json_t *a, const json_t *b, const char *const *keys)
{
    bool alike = true;
    for (; *keys != NULL && alike; keys++) {
        const json_t *of_a = json_object_get(a, *keys);
        const json_t *of_b = json_object_get(b, *keys);
        alike = of_a == of_b || json_equal(of_a, of_b) != 0;
    }
    return alike;
}

// Are the objects of two arrays alike one by one?
static bool are_alike(const json_t *a, const json_t *b, const char *const *keys)
{
    bool alike = json_array_size(a) == json_array_size(b);
    for (size_t i = 0; alike && i < json_array_size(a); i++) {
        alike = is_alike(json_array_get(a, i), json_array_get(b, i), keys);
    }
    return alike;
}

static bool is_same_plan(const json_t *a, const json_t *b)
{
    static const char *const of_step[] = {"strategy", "schedule", "model", "tasks", NULL};
    static const char *const of_rank[] = {"dp", "cp", "pp", NULL};
    static const char *const of_batch[] = {"samples", "tokens", "computed_tokens", "microbatches",
                                           NULL};
    return is_alike(a, b, of_step) &&
           are_alike(json_object_get(a, "ranks"), json_object_get(b, "ranks"), of_rank) &&
           are_alike(json_object_get(a, "batches"), json_object_get(b, "batches"), of_batch);
}

int report_prediction_of(const report_inputs *inputs, const report_input *input)
{
    for (int i = 0; report_is_executed(input) && i < inputs->count; i++) {
        const report_input *other = &inputs->items[i];
        if (other->kind == REPORT_RESULT && !report_is_executed(other) &&
            is_same_plan(other->json, input->json)) {
            return i;
        }
    }
    return -1;
}

bool report_pair_of(const report_inputs *inputs, const report_input *input,
                    const json_t **predicted, const json_t **executed)
{
    for (int i = 0; i < inputs->count; i++) {
        int at = report_prediction_of(inputs, &inputs->items[i]);
        if (at >= 0 && (input == &inputs->items[i] || input == &inputs->items[at])) {
            *predicted = inputs->items[at].json;
            *executed = inputs->items[i].json;
            return true;
        }
    }
    return false;
}
