// Published peaks of PyTorch's allocator: kwai/Megatron-Kwai, branch atc24ae, README, table
// "Reproduce Figure 7" (max_memory_allocated, largest rank, after the second iteration). Llama-65B,
// sequence 8192, 256 H800 GPUs, global batch 256, TP 2, CP 2, PP 8, two layers a virtual stage;
// max_split_size_mb 21 (examples/atc24/pretrain_llama.sh). Nothing is fitted to them.
#include "solver/evaluate/evaluate.h"
#include "tests/support/test_main.h"

static const struct {
    const char *recompute; // "ours" of the table is activation
    double offload_ratio, bytes;
} rows[] = {
    {"none", 0.3, 72762730496.0},       {"none", 0.5, 61136119808.0},
    {"none", 0.7, 50331592704.0},       {"none", 0.9, 39527328256.0},
    {"activation", 0.0, 65330982400.0}, {"activation", 0.2, 58907405824.0},
    {"activation", 0.4, 52089073152.0}, {"activation", 0.6, 45722611200.0},
    {"activation", 0.8, 38925740032.0}, {"activation", 1.0, 32462145024.0},
};

enum { ROWS = sizeof rows / sizeof rows[0] };

static const char scenario_text[] =
    "{\"model\": {\"layers\": 80, \"hidden\": 8192, \"ffn\": 22016, \"heads\": 64, "
    "\"kv_heads\": 64, \"vocab\": 32256, \"activation\": \"swiglu\", \"norm\": \"rmsnorm\", "
    "\"positional\": \"rope\", \"tied_embeddings\": false, \"bias\": false}, "
    "\"cluster\": \"h800-8x100g\", \"profile\": \"h800\", "
    "\"stack\": {\"name\": \"megatron-core-2024\", \"split_limit_mib\": 21}, "
    "\"parallel\": {\"tp\": 2, \"cp\": 2, \"pp\": 8, \"dp\": 8, \"layers_per_chunk\": 2, "
    "\"sequence_parallel\": true, \"zero\": 1}, \"schedule\": {\"kind\": \"interleaved\"}, "
    "\"memory\": {\"recompute\": \"%s\", \"offload_ratio\": %.1f}, "
    "\"workload\": {\"uniform\": 8192, \"context\": 8192, \"samples_per_batch\": 256}, "
    "\"strategy\": {\"kind\": \"packed\"}}";

// As a share of the published peak.
static double error_of(int row)
{
    char text[2000];
    AUTO(sp_scenario) scenario;
    AUTO(sp_batches) batches;
    AUTO(sp_result) result;
    snprintf(text, sizeof text, scenario_text, rows[row].recompute, rows[row].offload_ratio);
    json_auto_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    must_succeed(sp_scenario_from_json(root, "h800.json", NULL, 0, &scenario, ERR));
    must_succeed(sp_evaluate_batches(&scenario, &batches, ERR));
    sp_evaluate_options options = {.allocator_peak = true};
    must_succeed(sp_evaluate(&scenario, &batches, &options, &result, ERR));
    return (double)result.allocator_peak_bytes / rows[row].bytes - 1.0;
}

TEST(published_peaks)
{
    double sum = 0.0;
    for (int row = 0; row < ROWS; row++) {
        double error = error_of(row);
        print_message("%-10s %.1f %+.3f %%\n", rows[row].recompute, rows[row].offload_ratio,
                      100.0 * error);
        assert_true(fabs(error) <= 0.002);
        sum += fabs(error);
    }
    assert_true(sum / ROWS <= 0.001);
}
