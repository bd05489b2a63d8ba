// A program outside the repository: the installed header, and a scenario simulated through it.
#include <slimpack/slimpack.h>
#include <stdio.h>
#include <string.h>

static const char text[] =
    "{\"uniform_costs\": {\"f_ms\": 1, \"b_ms\": 2}, \"parallel\": {\"pp\": 4},"
    " \"schedule\": {\"microbatches\": 8}}";

int main(void)
{
    static sp_scenario scenario;
    static sp_result result;
    sp_error err = {0};
    sp_evaluate_options options = {0};
    sp_batches batches = {0};
    json_t *root = NULL;
    sp_status status = sp_json_read_text(text, strlen(text), "text", &root, &err);
    if (status == SP_OK) {
        status = sp_scenario_from_json(root, "text", NULL, 0, &scenario, &err);
    }
    if (status == SP_OK) {
        status = sp_evaluate(&scenario, &batches, &options, &result, &err);
    }
    // 1F1B: the first micro-batch goes down the pipeline and back, the others follow in 3 ms each.
    double iteration_ms = status == SP_OK ? sp_result_iteration_ms(&result) : 0.0;
    if (status != SP_OK) {
        fprintf(stderr, "%s\n", err.message[0]);
    }
    puts(iteration_ms == (4 + 8 - 1) * 3.0 ? "consumer works" : "consumer fails");
    sp_result_fini(&result);
    sp_scenario_fini(&scenario);
    json_decref(root);
    return 0;
}
