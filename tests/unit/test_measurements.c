// Tables of measured steps: maps, rows as scenarios, predictions and what is said of mistakes.
#include "experiments/measure/published.h"
#include "experiments/measure/validation.h"
#include "tests/support/scenario_fixture.h"

#include <sys/stat.h>

#include "experiments/fit/fit.h"
#include "experiments/measure/measurements.h"
#include "solver/evaluate/evaluate.h"

// ---- rows as scenarios ----

static sp_status read_table(const char *csv, const char *map, const char *const *overrides,
                            int override_count, sp_measurements *measurements, sp_error *err)
{
    fixture_begin();
    sp_error_clear(err);
    return sp_measurements_from_text(csv, strlen(csv), "t.csv",
                                     map != NULL ? json_document(map) : NULL, "t.json", overrides,
                                     override_count, measurements, err);
}

static void must_read(const char *csv, const char *map, sp_measurements *measurements)
{
    must_succeed(read_table(csv, map, NULL, 0, measurements, ERR));
}

static void assert_same_scenario(const sp_scenario *found, const char *expected)
{
    AUTO(sp_scenario) scenario;
    must_succeed(fixture_read(expected, &scenario, ERR));
    if (!json_equal(found->resolved, scenario.resolved)) {
        char *text = json_dumps(found->resolved, JSON_COMPACT);
        fail_msg("%s", text);
    }
}

static const char rules_map[] =
    "{'schema': 'slimpack/measurements/1', 'source': 'here', 'licence': 'none', 'measured': "
    "{'column': 'seconds', 'is': 'iteration_ms', 'scale': 1000}, 'bound_percent': 12.5, "
    "'published': {'error_percent': 8, 'by': 'others'}, 'base': {'cluster': 'a100-8', 'model': "
    "{'vocab': 51200, 'activation': 'gelu'}, 'schedule': {'microbatch_samples': 2}}, 'columns': "
    "{'tp': 'parallel.tp', 'dp': 'parallel.dp', 'gpus': {'check': 'ranks'}, 'seq': "
    "['workload.uniform', 'workload.context'], 'hidden': {'model.hidden': 1, 'model.ffn': 4}, "
    "'batch': {'path': 'workload.samples_per_batch', 'check': 'whole_microbatches'}, 'alpha': "
    "{'path': 'memory.offload_ratio', 'scale': 0.01}, 'recompute': {'path': 'memory.recompute', "
    "'values': {'no': 'none', 'yes': 'full'}}, 'shape': {'values': {'S': {'model.layers': 4, "
    "'model.heads': 8, 'model.kv_heads': 8}, 'L': {'model.layers': 8, 'model.heads': 16, "
    "'model.kv_heads': 2}}}, 'split': 'parallel.sequence_parallel', 'note': null}}";

static const char rules_csv[] =
    "shape,hidden,seq,tp,dp,gpus,batch,alpha,recompute,split,note,seconds\n"
    "S,1024,512,2,2,4,8,0,no,true,first,0.25\n"
    "L,2048,1024,4,1,4,6,25,yes,False,\"a, b\",0.5\n";

TEST(map_rules)
{
    AUTO(sp_measurements) m;
    must_read(rules_csv, rules_map, &m);
    assert_int_equal(m.count, 2);
    assert_string_equal(m.name, "t");
    assert_string_equal(m.source, "here");
    assert_string_equal(m.licence, "none");
    assert_int_equal(m.kind, SP_MEASURED_ITERATION_MS);
    assert_true(m.bound == 0.125);
    assert_true(m.published_error == 0.08);
    assert_string_equal(m.published_by, "others");
    assert_true(m.cases[0].measured == 250.0);
    assert_true(m.cases[1].measured == 500.0);
    assert_int_equal(m.cases[1].line, 3);
    assert_string_equal(m.cases[0].measured_column, "seconds");
    assert_string_equal(
        m.cases[0].label,
        "shape=S hidden=1024 seq=512 tp=2 dp=2 batch=8 alpha=0 recompute=no split=true");
    assert_same_scenario(
        &m.cases[0].scenario,
        "{'cluster': 'a100-8', 'model': {'layers': 4, 'hidden': 1024, 'ffn': 4096, 'heads': 8, "
        "'kv_heads': 8, 'vocab': 51200, 'activation': 'gelu'}, 'parallel': {'tp': 2, 'dp': 2, "
        "'sequence_parallel': true}, 'schedule': {'microbatch_samples': 2}, 'memory': "
        "{'offload_ratio': 0.0, 'recompute': 'none'}, 'workload': {'uniform': 512, 'context': 512, "
        "'samples_per_batch': 8}}");
    assert_same_scenario(
        &m.cases[1].scenario,
        "{'cluster': 'a100-8', 'model': {'layers': 8, 'hidden': 2048, 'ffn': 8192, 'heads': 16, "
        "'kv_heads': 2, 'vocab': 51200, 'activation': 'gelu'}, 'parallel': {'tp': 4, 'dp': 1, "
        "'sequence_parallel': false}, 'schedule': {'microbatch_samples': 2}, 'memory': "
        "{'offload_ratio': 0.25, 'recompute': 'full'}, 'workload': {'uniform': 1024, 'context': "
        "1024, 'samples_per_batch': 6}}");
}

// Several measured columns are as many cases of a row, each with settings of its own.
TEST(measured_columns)
{
    AUTO(sp_measurements) m;
    must_read(
        "pp,f,gpipe,zb\n4,2,0.3,0.2\n2,2,0.1,0.05\n",
        "{'measured': {'is': 'bubble_ratio', 'columns': {'gpipe': {'with': {'schedule.kind': "
        "'gpipe'}}, 'zb': {'with': {'schedule.kind': 'zb-h1'}, 'at_most': true}}}, 'base': "
        "{'uniform_costs': {'b_ms': 1, 'w_ms': 1}, 'schedule': {'microbatches': 8}}, 'columns': "
        "{'pp': 'parallel.pp', 'f': {'path': 'uniform_costs.f_ms', 'scale': 0.5}}}",
        &m);
    assert_int_equal(m.count, 4);
    assert_int_equal(m.cases[2].scenario.schedule.kind, SP_SCHEDULE_GPIPE);
    assert_int_equal(m.cases[3].scenario.schedule.kind, SP_SCHEDULE_ZB_H1);
    assert_int_equal(m.cases[1].scenario.layout.pp, 4);
    assert_true(m.cases[0].scenario.uniform_costs.f_ms == 1.0);
    assert_false(m.cases[0].at_most);
    assert_true(m.cases[1].at_most);
    assert_string_equal(m.cases[3].label, "pp=2 zb");
    // GPipe (Huang et al., arXiv 1811.06965): bubble (p-1)/(m+p-1), of the longest stage as well.
    double found = 0.0;
    must_succeed(sp_measured_case_predict(&m.cases[0], m.kind, NULL, &found, ERR));
    assert_within(found, 3.0 / 11.0, 1e-12);
}

TEST(without_map)
{
    static const char *const overrides[] = {"parallel.pp=2", "workload.uniform=256"};
    AUTO(sp_measurements) m;
    const char csv[] = "model,cluster,parallel.tp,tokens_per_s,schedule.microbatches\n"
                       "llama-13b,h800-8,8,1e5,4\n";
    must_succeed(read_table(csv, NULL, overrides, 2, &m, ERR));
    assert_int_equal(m.kind, SP_MEASURED_TOKENS_PER_S);
    assert_true(m.bound < 0.0);
    assert_true(m.published_error < 0.0);
    assert_true(m.cases[0].measured == 1e5);
    assert_same_scenario(&m.cases[0].scenario,
                         "{'model': 'llama-13b', 'cluster': 'h800-8', 'parallel': {'tp': 8, 'pp': "
                         "2}, 'workload': {'uniform': 256}, 'schedule': {'microbatches': 4}}");
}

static void assert_same_rows(const char *csv, const char *without, const char *const *overrides,
                             int count)
{
    AUTO(sp_measurements) m;
    AUTO(sp_measurements) set;
    must_read(csv, NULL, &m);
    must_succeed(read_table(without, NULL, overrides, count, &set, ERR));
    assert_true(json_equal(m.cases[0].scenario.resolved, set.cases[0].scenario.resolved));
}

// A part of a named model, cluster or stack changes as with --set, in whatever order the columns
// stand; GPUs of a node without a cluster are those of the default one.
TEST(parts_of_what_is_named)
{
    static const char *const parts[] = {"model.layers=16", "cluster.gpus_per_node=4",
                                        "stack.blocking_transfers=true"};
    assert_same_rows("stack.blocking_transfers,model.layers,nproc_per_node,model,cluster,stack,"
                     "workload.uniform,iteration_ms\n"
                     "true,16,4,llama-3-8b,a100-8,fsdp-2024,512,9\n",
                     "model,cluster,stack,workload.uniform,iteration_ms\n"
                     "llama-3-8b,a100-8,fsdp-2024,512,9\n",
                     parts, 3);
    assert_same_rows("model,nproc_per_node,workload.uniform,iteration_ms\nllama-3-8b,4,512,9\n",
                     "model,workload.uniform,iteration_ms\nllama-3-8b,512,9\n", &parts[1], 1);
}

// Columns of others have the values of others.
TEST(values_of_others)
{
    static const char *const cases[][3] = {
        {"gradient_checkpointing", "True", "memory.recompute=full"},
        {"gradient_checkpointing", "false", "memory.recompute=none"},
        {"gradient_checkpointing", "selective", "memory.recompute=attention"},
        {"recompute_activations", "1", "memory.recompute=attention"},
        {"use_distributed_optimizer", "True", "parallel.zero=1"},
        {"use_distributed_optimizer", "0.0", "parallel.zero=0"},
        {"grad_reduce_in_fp32", "true", "stack.gradient_reduce_dtype=fp32"},
        {"accumulate_allreduce_grads_in_fp32", "False", "stack.gradient_reduce_dtype=bf16"},
        {"grad_reduce_in_bf16", "true", "stack.gradient_reduce_dtype=bf16"},
        {"grad_reduce_in_bf16", "false", "stack.gradient_reduce_dtype=fp32"},
        {"use_flash_attn", "true", "memory.attention=flash"},
        {"attn_implementation", "flash_attention_2", "memory.attention=flash"},
        {"attn_implementation", "sdpa", "memory.attention=flash"},
        {"attn_implementation", "eager", "memory.attention=unfused"},
        {"attention_backend", "fused", "memory.attention=flash"},
        {"shuffle", "false", "workload.order=file"},
        {"shuffle", "True", "workload.order=shuffled"},
        {"packing_strategy", "wrapped", "strategy.kind=concat"},
        {"CUDA_LAUNCH_BLOCKING", "1", "stack.blocking_launches=true"},
        {"overlap_grad_reduce", "0", "stack.hide_gradient_reduce=false"},
        {"cpu_offloading", "False", "memory.offload_ratio=0"},
        {"attention_dropout", "0.1", "model.dropout=true"},
        {"hidden_dropout", "0.0", "model.dropout=false"},
        {"position_embedding_type", "learned_absolute", "model.positional=learned"},
        {"hidden_act", "silu", "model.activation=swiglu"},
        {"vpp", "None", "parallel.tp=1"},
        {"pipeline_model_parallel_layout", "None", "parallel.tp=1"},
        {"expert_model_parallel_size", "1", "parallel.tp=1"},
        {"precision", "bf16-mixed", "parallel.tp=1"},
        {"fp16", "False", "parallel.tp=1"},
        {"optimizer", "AdamW", "parallel.tp=1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char csv[256];
        snprintf(csv, sizeof csv, "model,workload.uniform,%s,iteration_ms\nllama-3-8b,512,%s,9\n",
                 cases[i][0], cases[i][1]);
        assert_same_rows(csv, "model,workload.uniform,iteration_ms\nllama-3-8b,512,9\n",
                         &cases[i][2], 1);
    }
}

// A column is what the help knows a setting by, and an empty cell leaves it as it is by default.
TEST(columns_by_other_names)
{
    AUTO(sp_measurements) m;
    const char csv[] = "model,cluster,tensor_model_parallel_size,DP,seq_length,global_batch_size,"
                       "recompute,iteration_ms\n"
                       "llama-3-8b,H100-8,2,4,8192,16,,1200.5\n"
                       "llama-3-8b,,,,8K,,full,900\n";
    must_succeed(read_table(csv, NULL, NULL, 0, &m, ERR));
    assert_int_equal(m.count, 2);
    assert_same_scenario(&m.cases[0].scenario,
                         "{'model': 'llama-3-8b', 'cluster': 'h100-8', 'parallel': {'tp': 2, 'dp': "
                         "4}, 'workload': {'context': 8192, 'samples_per_batch': 16}}");
    assert_same_scenario(
        &m.cases[1].scenario,
        "{'model': 'llama-3-8b', 'workload': {'context': 8192}, 'memory': {'recompute': 'full'}}");
}

// ---- mistakes ----

static const char small_map[] =
    "{'measured': {'column': 'ms', 'is': 'iteration_ms'}, 'base': {'model': 'llama-13b', "
    "'cluster': 'a100-8', 'workload': {'uniform': 128}}, 'columns': {'tp': 'parallel.tp', 'dp': "
    "'parallel.dp', 'gpus': {'check': 'ranks'}, 'batch': {'path': 'workload.samples_per_batch', "
    "'check': 'whole_microbatches'}, 'rc': {'path': 'memory.recompute', 'values': {'a': 'none', "
    "'b': 'full'}}}}";
#define SMALL_HEADER "tp,dp,gpus,batch,rc,ms\n"
#define MAP(columns) \
    "{'measured': {'column': 'ms', 'is': 'iteration_ms'}, 'base': {}, 'columns': " columns "}"
#define IN_NAME(path)                                                         \
    "{'measured': {'column': 'ms', 'is': 'iteration_ms'}, 'base': {'model': " \
    "'llama-13b'}, 'columns': {'a': '" path "'}}"
#define SPEEDUP(rest) \
    "{'measured': {'column': 'ms', 'is': " rest "}, 'base': {}, 'columns': {'a': null}}"
#define CHOICE(choice)                                                           \
    "{'measured': {'column': 'ms', 'is': 'iteration_ms'}, 'base': {'workload': " \
    "{'uniform': 512}}, 'columns': {'model': 'model', 'status': null}, " choice "}"

// The place of a mistake: file, and line and column of the cell or the path in the map. Where
// several are told of, the first three.
TEST(mistakes_are_told_with_their_place)
{
    static const char csv[] = "a,ms\n1,2\n";
    static const char states[] = "model,status,ms\nllama-7b,ran,10\n";
    const char *const cases[][6] = {
        // Cells.
        {SMALL_HEADER "2,2,4,8,a,1\nx,2,4,8,a,1\n2,-1,4,8,a,1\n", small_map,
         "t.csv:3:1: column 'tp'", "t.csv:4:3: column 'dp'"},
        {SMALL_HEADER "2,2,4,8,a,nan\n2,2,4,8,a,1e999\n", small_map, "t.csv:2:11: column 'ms'",
         "t.csv:3:11: column 'ms'"},
        {SMALL_HEADER "2,2,4,8,a,0\n2,2,4,8,a,-3\n", small_map, "t.csv:2:11: column 'ms'",
         "t.csv:3:11: column 'ms'"},
        // An empty cell is as the default has it: dp 1.
        {SMALL_HEADER "2,,4,8,a,1\ninf,2,4,8,a,1\n", small_map, "t.csv:2:4: column 'gpus'",
         "t.csv:3:1: column 'tp'"},
        {SMALL_HEADER "2,2,8,8,a,1\n2,2,4,7,a,1\n", small_map, "t.csv:2:5: column 'gpus'",
         "t.csv:3:7: column 'batch'"},
        {SMALL_HEADER "2,2,4,8,c,1\n", small_map, "t.csv:2:9: column 'rc'"},
        // 40 heads of Llama 13B.
        {SMALL_HEADER "3,1,3,8,a,1\n", small_map, "t.csv:2:1: column 'tp': 40 attention heads",
         "t.csv:2:1: column 'tp': 40 key and"},
        // Columns.
        {"tp,dp,gpu,batch,rc,ms\n2,2,4,8,a,1\n", small_map, "t.csv:1: column 'gpus'",
         "t.csv:1:7: unknown column 'gpu'"},
        {"tp,dp,gpus,batch,rc\n2,2,4,8,a\n", small_map, "t.csv:1: column 'ms'"},
        {"tp,dp,gpus,batch,rc,ms,comment\n2,2,4,8,a,1,x\n", small_map,
         "t.csv:1:24: unknown column 'comment'"},
        {SMALL_HEADER, small_map, "t.csv: has a header and no rows"},
        {"model,tp,tp_size,iteration_ms\nllama-13b,1,1,2\n", NULL, "t.csv:1:10: column 'tp_size'"},
        {"model,ep,iteration_ms\nllama-13b,2,2\n", NULL,
         "t.csv:2:11: column 'ep': the model has no experts (model.experts)"},
        {"parallel.tp,time\n1,2\n", NULL, "t.csv:1:13: unknown column 'time'",
         "t.csv:1: no measured column", "t.csv: a column that"},
        {"model,paralel.tp,iteration_ms\nllama-13b,1,2\nllama-13b,1,2\n", NULL,
         "t.csv:1:7: unknown column 'paralel.tp'", "t.csv: a column that"},
        // What no cell is to blame for is told once.
        {"parallel.tp,iteration_ms\n1,2\n1,2\n", NULL, "t.csv:2: model: is missing"},
        // Maps.
        {csv, MAP("{'a': 'x..y'}"), "t.json: columns.a: "},
        {csv, MAP("{'a': 3}"), "t.json: columns.a: "},
        {csv, MAP("{'a': {'parallel.tp': 'x'}}"), "t.json: columns.a: "},
        {csv, MAP("{'a': {}}"), "t.json: columns.a: sets nothing"},
        {csv, MAP("{'a': {'path': 'x', 'sacle': 2}}"), "t.json: columns.a: unknown key 'sacle'"},
        {csv, MAP("{'a': {'values': {'1': 2}}}"), "t.json: columns.a.values: "},
        {csv, MAP("{'a': null, 'ms': null}"), "t.json: columns.ms: "},
        {csv, "{'measured': {'is': 'iteration_ms'}, 'base': {}, 'columns': {'a': null}}",
         "t.json: measured: ", "t.csv:1:3: unknown column 'ms'"},
        {csv,
         "{'schema': 'x', 'measured': {'column': 'ms', 'is': 'iteration_ms'}, 'base': {}, "
         "'columns': {'a': null}}",
         "t.json: schema: "},
        {csv, IN_NAME("model.layers.first.count"), "t.csv:2:1: column 'a'"},
        {"model.layers,model.hidden,model,iteration_ms\n1,2,none,3\n", NULL,
         "t.csv:2:5: column 'model': unknown model 'none'"},
        {csv,
         "{'measured': {'column': 'ms', 'is': 'tokens_per_s'}, 'base': {'uniform_costs': {'f_ms': "
         "1, 'b_ms': 2}}, 'columns': {'a': 'parallel.pp'}}",
         "t.csv:2: uniform_costs: "},
        // A speed-up, and nothing else, has a baseline.
        {csv, SPEEDUP("'speedup'"), "t.json: measured.baseline: "},
        {csv, SPEEDUP("'iteration_ms', 'baseline': {}"), "t.json: measured.baseline: "},
        {csv, SPEEDUP("'speedup', 'baseline': {'wiht': {}}"),
         "t.json: measured.baseline: unknown key 'wiht'"},
        {csv, SPEEDUP("'speedup', 'baseline': {'with': {'x..y': 1}}"),
         "t.json: measured.baseline.with: "},
        {csv, SPEEDUP("'speedup', 'baseline': {'columns': {'b': 'parallel.pp'}}"),
         "t.csv:1: column 'b'"},
        // What ran: 1 or 0, or a word that the map turns into them.
        {csv, SPEEDUP("'fits', 'values': {'ran': 1, 'failed': 0}"), "t.csv:2:3: column 'ms'"},
        {csv, SPEEDUP("'fits'"), "t.csv:2:3: column 'ms'"},
        {csv, SPEEDUP("'fits', 'values': {'ran': 'yes'}"), "t.json: measured.values.ran: "},
        // Choices of rows.
        {states, CHOICE("'rows': {'state': ['ran']}"), "t.json: rows.state: "},
        {states, CHOICE("'rows': {'status': 'ran'}"), "t.json: rows.status: "},
        {states, CHOICE("'rows': {'status': ['gone']}"), "t.csv: has no row"},
        {states, CHOICE("'cells': ['modell']"), "t.json: cells: "},
        {states, CHOICE("'cells': 'model'"), "t.json: cells: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_measurements m;
        const char *const *places = &cases[i][2];
        int count = 0;
        while (places[count] != NULL) {
            count++;
        }
        assert_int_equal(read_table(cases[i][0], cases[i][1], NULL, 0, &m, ERR), SP_ERR_CONTENT);
        for (int p = 0; p < count; p++) {
            must_hold(strncmp(ERR->message[p], places[p], strlen(places[p])) == 0,
                      "expected \"%s\", got \"%s\"", places[p], ERR->message[p]);
        }
        assert_int_equal(ERR->count, count);
        assert_int_equal(m.count, 0);
    }
}

// ---- predictions ----

// m micro-batches of one rank take m (f + b), those of a pipeline of p ranks under 1F1B
// (m + p - 1) (f + b): the first is (m + p - 1) / m times as fast.
TEST(speedup_over_a_baseline)
{
    static const char map[] =
        "{'measured': {'column': 'times', 'is': 'speedup', 'baseline': {'with': {'schedule.kind': "
        "'1f1b'}, 'columns': {'p': 'parallel.pp'}}}, 'base': {'uniform_costs': {'f_ms': 1, 'b_ms': "
        "2}, 'schedule': {'kind': 'gpipe'}}, 'columns': {'m': 'schedule.microbatches', 'p': null}}";
    AUTO(sp_measurements) m;
    AUTO(sp_validation) validation;
    must_read("m,p,times\n8,4,1.375\n2,1,1\n4,8,5.5\n", map, &m);
    assert_int_equal(m.kind, SP_MEASURED_SPEEDUP);
    assert_int_equal(m.cases[0].scenario.layout.pp, 1);
    assert_int_equal(m.cases[0].scenario.schedule.kind, SP_SCHEDULE_GPIPE);
    assert_int_equal(m.cases[0].baseline->scenario.layout.pp, 4);
    assert_int_equal(m.cases[0].baseline->scenario.schedule.kind, SP_SCHEDULE_1F1B);
    must_succeed(sp_validation_run(&m, 2, &validation, ERR));
    static const double expected[] = {11.0 / 8.0, 1.0, 11.0 / 4.0};
    for (size_t i = 0; i < 3; i++) {
        assert_within(validation.cases[i].computed, expected[i], 1e-12);
    }
    assert_true(fabs(validation.cases[2].error + 0.5) < 1e-12);
}

TEST(predictions)
{
    static const sp_evaluate_options plain;
    AUTO(sp_measurements) m;
    AUTO(sp_profile) slow;
    must_read(SMALL_HEADER "2,2,4,8,a,100\n4,1,4,8,b,200\n", small_map, &m);
    sp_profile_copy(&m.cases[0].scenario.profile, &slow);
    slow.memory_bytes_per_s /= 2.0;
    for (size_t i = 0; i < m.count; i++) {
        AUTO(sp_result) result;
        double own = 0.0, other = 0.0, again = 0.0;
        must_succeed(sp_evaluate(&m.cases[i].scenario, &m.cases[i].batches, &plain, &result, ERR));
        must_succeed(sp_measured_case_predict(&m.cases[i], m.kind, NULL, &own, ERR));
        must_succeed(sp_measured_case_predict(&m.cases[i], m.kind, &slow, &other, ERR));
        must_succeed(sp_measured_case_predict(&m.cases[i], m.kind, NULL, &again, ERR));
        assert_true(own == sp_result_iteration_ms(&result));
        assert_true(again == own);
        assert_true(other > own);
        double tokens_per_s = 0.0;
        sp_result_fini(&result);
        must_succeed(sp_measured_case_evaluate(&m.cases[i], SP_MEASURED_TOKENS_PER_S, NULL,
                                               &tokens_per_s, &result, ERR));
        assert_true(tokens_per_s == sp_result_tokens_per_s(&result));
        // 8 samples of 128 tokens.
        assert_within(tokens_per_s * own / 1024e3, 1.0, 1e-9);
    }
}

TEST(wrong_units)
{
    AUTO(sp_measurements) m;
    must_read(SMALL_HEADER "2,2,4,8,a,100\n4,1,4,8,b,200\n", small_map, &m);
    const double within[] = {100.0 * 99.0, 200.0 / 99.0};
    const double one[] = {100.0, 200.0 * 1000.0};
    const double beyond[] = {100.0 * 1000.0, 200.0 * 1000.0};
    const double below[] = {100.0 / 1000.0, 200.0 / 1000.0};
    must_succeed(sp_measurements_check_units(&m, within, ERR));
    // A single step may have gone wrong.
    must_succeed(sp_measurements_check_units(&m, one, ERR));
    must_fail_with(sp_measurements_check_units(&m, beyond, ERR), SP_ERR_CONTENT,
                   "is it in seconds?");
    must_fail_with(sp_measurements_check_units(&m, below, ERR), SP_ERR_CONTENT,
                   "is it in microseconds?");
}

// Mean, bias and worst from the cases' own figures, the same on any number of threads.
TEST(validation_figures)
{
    AUTO(sp_measurements) m;
    must_read(SMALL_HEADER "2,2,4,8,a,100\n4,1,4,8,b,200\n1,4,4,16,a,300\n1,1,1,3,b,400\n",
              small_map, &m);
    // Measured values in a known ratio to what is computed.
    static const double ratio[] = {0.8, 1.25, 0.5, 1.0};
    for (size_t i = 0; i < m.count; i++) {
        double predicted = 0.0;
        must_succeed(sp_measured_case_predict(&m.cases[i], m.kind, NULL, &predicted, ERR));
        m.cases[i].measured = predicted * ratio[i];
    }
    for (int bound = 0; bound < 2; bound++) {
        // Errors +25 %, -20 %, +100 %, 0.
        m.bound = bound == 0 ? 0.36 : 0.37;
        for (int threads = 1; threads <= 4; threads++) {
            AUTO(sp_validation) v;
            must_succeed(sp_validation_run(&m, threads, &v, ERR));
            assert_within(v.errors.mean, (0.25 + 0.2 + 1.0) / 4.0, 1e-12);
            assert_within(v.errors.bias, (0.25 - 0.2 + 1.0) / 4.0, 1e-12);
            assert_int_equal(v.errors.worst_row, 2);
            assert_int_equal(v.within_bound, bound);
        }
    }
}

// ---- the published tables ----

static void must_read_published(const char *name, sp_measurements *m)
{
    sp_published published;
    char path[SP_PUBLISHED_PATH];
    fixture_begin();
    sp_error_clear(ERR);
    must_hold(sp_published_list(&sp_published_tables, &published, ERR) == SP_OK &&
                  sp_published_file(&published, name, path, ERR) == SP_OK &&
                  sp_measurements_read(path, NULL, NULL, 0, m, ERR) == SP_OK,
              "%s", ERR->message[0]);
}

// As many rows as the README of the tables says, five schedules in each row of the last two.
TEST(published_tables)
{
    static const struct {
        const char *name;
        size_t cases;
        sp_measured kind;
    } tables[] = {
        {"a100_single_node", 360, SP_MEASURED_ITERATION_MS},
        {"a100_multi_node", 37, SP_MEASURED_ITERATION_MS},
        {"a100_selene", 4, SP_MEASURED_ITERATION_MS},
        {"h800_throughput", 21, SP_MEASURED_TOKENS_PER_S},
        {"h800_memory", 10, SP_MEASURED_ALLOCATOR_PEAK_BYTES},
        {"megatron_memory", 231, SP_MEASURED_LAST_RANK_BYTES},
        {"megatron_memory_experts", 64, SP_MEASURED_LAST_RANK_BYTES},
        {"h100_nanotron_fits", 1140, SP_MEASURED_FITS},
        {"zb_table5", 20, SP_MEASURED_BUBBLE_RATE},
        {"zb_v", 15, SP_MEASURED_BUBBLE_RATE},
        {"dynamic_cp", 2, SP_MEASURED_SPEEDUP},
    };
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        AUTO(sp_measurements) m;
        must_read_published(tables[t].name, &m);
        assert_int_equal(m.count, tables[t].cases);
        assert_int_equal(m.kind, tables[t].kind);
        assert_true(m.source[0] != '\0' && m.licence[0] != '\0');
        assert_true(m.bound > 0.0 || m.kind == SP_MEASURED_FITS);
    }
    sp_published published;
    char path[SP_PUBLISHED_PATH];
    must_succeed(sp_published_list(&sp_published_tables, &published, ERR));
    assert_int_equal(sp_published_file(&published, "zb_w", path, ERR), SP_ERR_USAGE);
}

// Two rows by hand: the first of each table, by settings of the resolved scenario.
TEST(published_rows)
{
    static const struct {
        const char *table;
        double measured;
        const char *settings;
    } rows[] = {
        {"a100_multi_node", 3566.5,
         "{'model.layers': 30, 'model.hidden': 3072, 'model.ffn': 12288, 'model.heads': 32, "
         "'model.kv_heads': 32, 'model.vocab': 51200, 'model.tied_embeddings': true, "
         "'parallel.tp': 1, 'parallel.dp': 64, 'parallel.pp': 1, 'parallel.zero': 0, "
         "'parallel.sequence_parallel': false, 'schedule.microbatch_samples': 8, "
         "'workload.samples_per_batch': 512, 'workload.uniform': 2048, 'workload.context': 2048, "
         "'memory.recompute': 'full', 'memory.attention': 'unfused', 'cluster.name': 'a100-8', "
         "'nodes': 8}"},
        {"h800_throughput", 97577.0,
         "{'model.layers': 96, 'model.ffn': 32768, 'model.vocab': 32256, 'parallel.cp': 2, "
         "'parallel.chunks_per_rank': 6, 'parallel.zero': 1, 'parallel.sequence_parallel': true, "
         "'schedule.kind': 'interleaved', 'memory.recompute': 'none', 'memory.offload_ratio': "
         "0.522, 'cluster.name': 'h800-8x100g'}"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        AUTO(sp_measurements) m;
        json_auto_t *settings = json_document(rows[r].settings);
        const char *path;
        json_t *expected;
        must_read_published(rows[r].table, &m);
        assert_true(m.cases[0].measured == rows[r].measured);
        json_object_foreach (settings, path, expected) {
            const json_t *found = fit_document_get(m.cases[0].scenario.resolved, path);
            must_hold(json_equal(found, expected), "%s: %s", rows[r].table, path);
        }
    }
}

// Bubble ratios as published, to the four decimals that are printed; automatic schedules at most.
TEST(published_bubbles)
{
    static const char *const names[] = {"zb_table5", "zb_v"};
    for (int t = 0; t < 2; t++) {
        AUTO(sp_measurements) m;
        AUTO(sp_validation) v;
        sp_error_clear(ERR);
        must_read_published(names[t], &m);
        must_succeed(sp_validation_run(&m, 2, &v, ERR));
        for (size_t i = 0; i < m.count; i++) {
            assert_true(fabs(v.cases[i].error) < 0.5e-4 + 1e-9);
        }
        assert_true(v.within_bound);
    }
}

// ---- which rows, and how they are ranked ----

TEST(rows_are_chosen)
{
    static const char csv[] = "model,gpus,parallel.dp,status,ms\nllama-7b,1,1,ran,10\nllama-7b,1,1,"
                              "failed,\nllama-7b,2,2,ran,20\nllama-13b,4,4,ran,30\n";
    static const char map[] =
        "{'schema': 'slimpack/measurements/1', 'measured': {'column': 'ms', 'is': 'iteration_ms'}, "
        "'base': {'cluster': 'h100-8', 'workload': {'uniform': 512, 'samples_per_batch': 8}}, "
        "'columns': {'model': 'model', 'gpus': null, 'parallel.dp': 'parallel.dp', 'status': "
        "null}, 'rows': {'status': ['ran'], 'gpus': [1, 2]}, 'cells': ['model', 'gpus']}";
    AUTO(sp_measurements) m;
    must_read(csv, map, &m);
    assert_int_equal(m.count, 2);
    assert_int_equal(m.cases[0].line, 2);
    assert_int_equal(m.cases[1].line, 4);
    assert_string_equal(m.cases[0].cell, "model=llama-7b gpus=1");
    assert_string_equal(m.cases[1].cell, "model=llama-7b gpus=2");
}

// Weights, gradients and moments of 13 billion parameters are some 230 GB: they fit on eight GPUs
// of 80 GB and not on one, whatever the last row says.
static const char fits_map[] =
    "{'measured': {'column': 'ms', 'is': 'fits', 'values': {'ran': 1, 'failed': 0}}, 'base': "
    "{'model': 'llama-13b', 'cluster': 'a100-8', 'workload': {'uniform': 128}}, 'columns': {'tp': "
    "'parallel.tp', 'dp': 'parallel.dp', 'gpus': null, 'batch': 'workload.samples_per_batch', "
    "'rc': null}}";

// Messages cut a long path at its front; files beside the table are found all the same.
TEST(files_beside_a_table_with_a_long_path)
{
    char folder[241];
    char table[256];
    char lengths[256];
    AUTO(sp_measurements) m;
    fixture_begin();
    memset(folder, 'd', sizeof folder);
    folder[240] = '\0';
    snprintf(table, sizeof table, "%s/t.csv", folder);
    snprintf(lengths, sizeof lengths, "%s/far.txt", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    put_file(table, "model,workload.lengths,iteration_ms\nllama-3-8b,far.txt,9\n");
    put_file(lengths, "300\n");
    must_succeed(sp_measurements_read(table, NULL, NULL, 0, &m, ERR));
    assert_int_equal(m.cases[0].scenario.lengths.tokens[0], 300);
    remove(table);
    remove(lengths);
    rmdir(folder);
}

TEST(what_fits)
{
    AUTO(sp_measurements) m;
    AUTO(sp_validation) v;
    must_read(SMALL_HEADER "8,1,8,8,a,ran\n1,1,1,8,a,failed\n1,1,1,8,a,ran\n", fits_map, &m);
    assert_int_equal(m.kind, SP_MEASURED_FITS);
    must_succeed(sp_validation_run(&m, 1, &v, ERR));
    assert_int_equal(v.cases[0].fits, SP_FITS_YES);
    assert_int_equal(v.cases[1].fits, SP_FITS_NO);
    assert_true(v.cases[0].error == 0.0 && v.cases[1].error == 0.0 && v.cases[2].error == -1.0);
    assert_int_equal(v.errors.worst_row, 2);
    assert_within(v.errors.mean, 1.0 / 3.0, 1e-12);
}

// A measured step's share of the peak is the predicted one's times predicted over measured; twice
// the throughput in half the time.
TEST(measured_share_of_peak)
{
    AUTO(sp_measurements) m;
    AUTO(sp_validation) v;
    double mfu = 0.0;
    must_read(SMALL_HEADER "2,2,4,8,a,100\n2,2,4,8,a,200\n", small_map, &m);
    must_succeed(sp_validation_run(&m, 1, &v, ERR));
    mfu = v.cases[0].measured_mfu;
    // 8 samples of 128 tokens, 6 flops a token and parameter, 4 A100 of 312 TFLOP/s, 100 ms;
    // attention and the embedding table, which is no product, are a few percent.
    assert_within(mfu / (6.0 * 13.0e9 * 8.0 * 128.0 / (4.0 * 312e12 * 0.1)), 1.0, 0.05);
    assert_within(v.cases[1].measured_mfu / mfu, 0.5, 1e-9);
}

// ---- labels and names ----

// Columns that differ between rows, by the last part of the path that names them.
TEST(paths_are_shortened)
{
    AUTO(sp_measurements) m;
    must_read("model,cluster,parallel.tp,parallel.pp,workload.uniform,iteration_ms\n"
              "llama-13b,a100-8,8,1,2048,1\n"
              "llama-13b,a100-8,4,2,2048,1\n",
              NULL, &m);
    assert_string_equal(m.cases[0].label, "tp=8 pp=1");
    assert_string_equal(m.cases[1].label, "tp=4 pp=2");
}

// A label that is cut stays UTF-8, whatever the byte at which it ends.
TEST(long_labels_end_in_dots)
{
    for (int before = 0; before < 4; before++) {
        char csv[512];
        AUTO(sp_measurements) m;
        int used = snprintf(csv, sizeof csv, "tp,note,s\n8,%.*s", before, "xxxx");
        for (int i = 0; i < 60; i++) {
            used += snprintf(csv + used, sizeof csv - (size_t)used, "\xe2\x82\xac");
        }
        snprintf(csv + used, sizeof csv - (size_t)used, ",1\n8,,1\n");
        must_read(csv,
                  "{'schema': 'slimpack/measurements/1', 'measured': {'column': 's', 'is': "
                  "'iteration_ms'}, 'base': {'model': 'llama-13b', 'cluster': 'a100-8', "
                  "'workload': {'uniform': 2048}}, 'columns': {'tp': 'parallel.tp', 'note': null}, "
                  "'label': ['note']}",
                  &m);
        const char *label = m.cases[0].label;
        json_auto_t *text = json_string(label);
        assert_non_null(text);
        assert_string_equal(label + strlen(label) - 3, "...");
        assert_true(strlen(label) > sizeof m.cases[0].label - 1 - 3);
        assert_string_equal(m.cases[1].label, "note=");
    }
}

TEST(names_of_tables)
{
    static const char *const paths[][2] = {{"tables/a100.csv", "a100"},
                                           {"a100.v2.txt", "a100.v2"},
                                           {"/x.y/steps", "steps"},
                                           {".csv", ".csv"}};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char name[SP_MEASUREMENTS_NAME];
        sp_measurements_name(paths[i][0], name);
        assert_string_equal(name, paths[i][1]);
    }
}
