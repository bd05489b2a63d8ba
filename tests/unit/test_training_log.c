// Logs of training runs: lines of each framework, which steps count, and what they come to.
#include "tests/support/scenario_fixture.h"

#include "experiments/measure/training_log.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "solver/evaluate/evaluate.h"

#define LOGS SP_TEST_SOURCE_DIR "/cli/logs/"

static void read_text(const char *text, int skip, sp_training_log *log)
{
    must_succeed(sp_training_log_from_text(text, strlen(text), "t.log", skip, log, ERR));
}

// ---- the logs of tests/cli/logs ----

// What they hold was counted and sorted by hand with awk and sort.
typedef struct expectation {
    const char *file;
    sp_log_form form;
    size_t steps, warm_up, slow;
    sp_logged basis;
    double median;
    double allocated, reserved; // bytes; 0: not told
    int64_t rank;               // of memory
} expectation;

static const expectation expected[] = {
    {"megatron.log", SP_LOG_MEGATRON, 30, 3, 2, SP_LOGGED_MS, 4994.6, 41984.25 * SP_MIB,
     45056.0 * SP_MIB, -1},
    {"megatron_deepspeed.log", SP_LOG_MEGATRON, 24, 4, 0, SP_LOGGED_MS, 8002.35, 19.52 * SP_GIB,
     0.0, -1},
    {"bridge.log", SP_LOG_BRIDGE, 20, 2, 0, SP_LOGGED_MS, 13365.0, 53.4e9, 62.2e9, 0},
    {"nanotron.log", SP_LOG_NANOTRON, 15, 2, 0, SP_LOGGED_MS, 4480.0, 30921.29 * SP_MIB,
     34816.0 * SP_MIB, 0},
    {"torchtitan.log", SP_LOG_TORCHTITAN, 21, 3, 1, SP_LOGGED_TOKENS_PER_GPU_S, 5863.0, 0.0,
     49.66 * SP_GIB, 0},
    {"nemo.log", SP_LOG_NEMO, 50, 5, 0, SP_LOGGED_MS, 12390.0, 0.0, 70833405952.0, -1},
    {"nemo_bar.log", SP_LOG_NEMO, 20, 2, 0, SP_LOGGED_MS, 3125.0, 0.0, 0.0, -1},
    {"deepspeed.log", SP_LOG_DEEPSPEED, 12, 2, 1, SP_LOGGED_SAMPLES_PER_S, 61.156914173524164,
     36.12 * SP_GIB, 0.0, -1},
    {"trainer.log", SP_LOG_TRAINER, 1, 0, 0, SP_LOGGED_MS, 1e3 / 0.165, 0.0, 0.0, -1},
};

static void must_have_memory(const sp_logged_memory *memory, double bytes, int64_t rank)
{
    assert_true(memory->known == (bytes > 0.0));
    if (bytes > 0.0) {
        assert_close(memory->bytes, bytes, 1e-12);
        assert_int_equal(memory->rank, rank);
    }
}

static void reads_file(const expectation *e)
{
    char path[1024];
    const char *paths[] = {path};
    AUTO(sp_training_log) log;
    snprintf(path, sizeof path, LOGS "%s", e->file);
    must_succeed_for(e->file, sp_training_log_read(paths, 1, -1, &log, ERR));
    assert_int_equal(log.form, e->form);
    assert_int_equal(log.steps, e->steps);
    assert_int_equal(log.warm_up, e->warm_up);
    assert_int_equal(log.slow, e->slow);
    assert_int_equal(log.kept, e->steps - e->warm_up - e->slow);
    assert_int_equal(log.basis, e->basis);
    assert_close(log.figures[e->basis].median, e->median, 1e-12);
    must_have_memory(&log.memory[SP_LOGGED_ALLOCATED], e->allocated, e->rank);
    must_have_memory(&log.memory[SP_LOGGED_RESERVED], e->reserved, e->rank);
}

TEST(logs_of_all_frameworks)
{
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        reads_file(&expected[i]);
    }
}

TEST(form_names_are_those_of_messages)
{
    char text[SP_ERROR_TEXT * 2];
    sp_log_forms_text(text, sizeof text);
    for (int f = 0; f < SP_LOG_FORMS; f++) {
        assert_non_null(strstr(text, sp_log_form_names[f]));
    }
    assert_null(sp_log_form_names[SP_LOG_FORMS]);
}

// A rank that logs memory alone beside the one that logs steps.
TEST(files_of_several_ranks)
{
    const char *const paths[] = {LOGS "megatron.log", LOGS "megatron_rank4.log"};
    sp_training_log both, memory;
    must_succeed(sp_training_log_read(paths, 2, -1, &both, ERR));
    assert_int_equal(both.steps, 30);
    assert_int_equal(both.files[1].steps, 0);
    assert_int_equal(both.files[1].known, 1);
    sp_training_log_fini(&both);
    must_succeed(sp_training_log_read(&paths[1], 1, -1, &memory, ERR));
    assert_int_equal(memory.form, -1);
    must_have_memory(&memory.memory[SP_LOGGED_ALLOCATED], 38912.5 * SP_MIB, 4);
    sp_training_log_fini(&memory);
}

// ---- lines ----

static const char megatron_step[] = " iteration %8d/     100 | consumed samples: %12d | elapsed "
                                    "time per iteration (ms): %.1f | global batch size:    64 |\n";

// Later releases of Primus add the mean of recent steps behind a slash.
TEST(figures_of_a_line)
{
    AUTO(sp_training_log) log;
    read_text("[default7]: iteration        5/     100 | elapsed time per iteration (ms): "
              "812.4/799.0 | throughput per GPU (TFLOP/s/GPU): 1,412.5/1,400.0 | tokens per GPU "
              "(tokens/s/GPU): 5321.5/5300.0 | global batch size:   128 |\n",
              -1, &log);
    assert_close(log.figures[SP_LOGGED_MS].median, 812.4, 1e-12);
    assert_close(log.figures[SP_LOGGED_TFLOPS_PER_GPU].median, 1412.5, 1e-12);
    assert_close(log.figures[SP_LOGGED_TOKENS_PER_GPU_S].median, 5321.5, 1e-12);
    assert_close(log.figures[SP_LOGGED_SAMPLES].median, 128.0, 1e-12);
    assert_close(log.resolution, 0.05 / 812.4, 1e-9);
}

// As nanotron writes a number: three digits, and the thousands as a letter.
static void write_human(double number, char text[32])
{
    static const char *const sizes[] = {"", "K", "M", "B", "T"};
    int i = 0;
    snprintf(text, 32, "%.3g", number);
    number = strtod(text, NULL);
    while (number >= 1000.0 && i < 4) {
        number /= 1000.0;
        i++;
    }
    snprintf(text, 32, "%g%s", number, sizes[i]);
}

TEST_ROUNDS(numbers_with_letters, 5, 200)
{
    char text[256], number[32];
    double ms = pow(10.0, 7.0 * sp_prng_uniform(prng));
    AUTO(sp_training_log) log;
    write_human(ms, number);
    snprintf(text, sizeof text, "iteration: 3 / 9 | elapsed_time_per_iteration_ms: %s | x\n",
             number);
    read_text(text, -1, &log);
    assert_close(log.figures[SP_LOGGED_MS].median, ms, 0.005);
}

TEST(lines_of_unknown_form)
{
    AUTO(sp_training_log) log;
    static const char text[] =
        "step: 3  loss:  7.0  memory:  9.46GiB(64.99%)  tps: 7,282  tflops: 0.52  mfu: 0.17%\n"
        "validate step: 3  loss:  7.0  memory: 19.46GiB(64.99%)  tps: 99,999\n"
        "step: x  loss: nan  memory: 1GiB  tps: nan\n"
        "\x1b[31mstep:  4  \x1b[32mloss: 6.9  \x1b[38;5;80mmemory: 10.00GiB(1.0%)  \x1b[34mtps: "
        "7,284\x1b[39m\r\nno end of a line";
    read_text(text, 0, &log);
    assert_int_equal(log.files[0].lines, 5);
    assert_int_equal(log.files[0].known, 2);
    assert_int_equal(log.steps, 2);
    assert_close(log.figures[SP_LOGGED_TOKENS_PER_GPU_S].median, 7283.0, 1e-12);
    assert_close(log.memory[SP_LOGGED_RESERVED].bytes, 10.0 * SP_GIB, 1e-12);
}

// All ranks of a node print the same step into one file, with their number or without.
TEST(a_step_that_is_told_twice)
{
    char text[8192] = "";
    AUTO(sp_training_log) log;
    for (int step = 1; step <= 4; step++) {
        for (int rank = 0; rank < 5; rank++) {
            sp_append(text, sizeof text,
                      "[titan] - INFO - step: %2d  memory: 1.00GiB(1%%)  tps: %d\n", step,
                      1000 + step);
        }
    }
    read_text(text, 1, &log);
    assert_int_equal(log.steps, 4);
    assert_int_equal(log.files[0].restarts, 0);
    assert_close(log.figures[SP_LOGGED_TOKENS_PER_GPU_S].median, 1003.0, 1e-12);
    sp_training_log_fini(&log);
    text[0] = '\0';
    for (int rank = 0; rank < 2; rank++) {
        for (int step = 1; step <= 4; step++) {
            sp_append(text, sizeof text,
                      "[rank%d]:[titan] - INFO - step: %2d  memory: %d.00GiB(1%%)  tps: %d\n", rank,
                      step, 1 + rank, 1000 + step);
        }
    }
    read_text(text, 1, &log);
    assert_int_equal(log.steps, 8); // of both ranks, none of which started again
    assert_int_equal(log.warm_up, 2);
    assert_int_equal(log.files[0].restarts, 0);
    must_have_memory(&log.memory[SP_LOGGED_RESERVED], 2.0 * SP_GIB, -1);
}

// ---- which steps count ----

enum { STEPS = 60, OUTLIERS = 12, TEXT = 65536 };

static void write_steps(const double *ms, int count, int first, char text[TEXT])
{
    text[0] = '\0';
    for (int i = 0; i < count; i++) {
        sp_append(text, TEXT, megatron_step, first + i, 64 * (first + i), ms[i]);
    }
}

static double median_of_text(const char *text, size_t *kept)
{
    AUTO(sp_training_log) log;
    read_text(text, 0, &log);
    double median = log.figures[SP_LOGGED_MS].median;
    *kept = log.kept;
    return median;
}

// Checkpoints and evaluations, of any length from a half more on, change neither the median nor the
// number of steps that are kept.
TEST_ROUNDS(outliers_do_not_move_the_median, 11, 200)
{
    static char with[TEXT], without[TEXT];
    double ms[STEPS + OUTLIERS], plain[STEPS];
    int count = 0;
    size_t kept_with, kept_without;
    int outliers = (int)sp_prng_below(prng, OUTLIERS + 1);
    double spread = 0.02 * sp_prng_uniform(prng);
    for (int i = 0; i < STEPS; i++) {
        plain[i] = 1000.0 * (1.0 + spread * sp_prng_uniform(prng));
        ms[count++] = plain[i];
        if (i % 5 == 2 && i / 5 < outliers) {
            ms[count++] = 1500.0 + 40000.0 * sp_prng_uniform(prng);
        }
    }
    write_steps(ms, count, 1, with);
    write_steps(plain, STEPS, 1, without);
    assert_close(median_of_text(with, &kept_with), median_of_text(without, &kept_without), 0.0);
    assert_int_equal(kept_with, STEPS);
    assert_int_equal(kept_without, STEPS);
}

// Steps of batches of different lengths differ by their nature: none is dropped.
TEST(uneven_steps_are_kept)
{
    static char text[TEXT];
    sp_prng prng = prng_seeded(3);
    double ms[STEPS];
    size_t kept;
    for (int i = 0; i < STEPS; i++) {
        ms[i] = 500.0 + 1500.0 * sp_prng_uniform(&prng);
    }
    write_steps(ms, STEPS, 1, text);
    median_of_text(text, &kept);
    assert_int_equal(kept, STEPS);
}

// A tenth, at least one of two and at most ten, of each start.
TEST(warm_up)
{
    static char text[TEXT], again[TEXT];
    static const struct {
        int steps;
        size_t warm_up;
    } cases[] = {{1, 0}, {2, 1}, {10, 1}, {11, 2}, {60, 6}, {150, 10}};
    double ms[150];
    for (int i = 0; i < 150; i++) {
        ms[i] = 100.0;
    }
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        AUTO(sp_training_log) log;
        write_steps(ms, cases[c].steps, 1, text);
        read_text(text, -1, &log);
        assert_int_equal(log.warm_up, cases[c].warm_up);
    }
    write_steps(ms, 30, 1, text);
    write_steps(ms, 20, 25, again);
    sp_append(text, TEXT, "%s", again);
    AUTO(sp_training_log) log;
    read_text(text, -1, &log);
    assert_int_equal(log.files[0].restarts, 1);
    assert_int_equal(log.warm_up, 3 + 2);
    sp_training_log_fini(&log);
    read_text(text, 7, &log);
    assert_int_equal(log.warm_up, 14);
}

// ---- what is refused ----

static void must_refuse(const char *text, int skip, const char *message)
{
    sp_training_log log;
    must_fail_with(sp_training_log_from_text(text, strlen(text), "t.log", skip, &log, ERR),
                   SP_ERR_CONTENT, message);
    assert_null(log.files);
}

TEST(refused_logs)
{
    must_refuse("", -1, "t.log: none of 0 lines is of a known form");
    must_refuse("a\nb\n\n", -1, "t.log: none of 2 lines is of a known form");
    assert_int_equal(ERR->count, 1 + SP_LOG_FORMS);
    must_refuse(
        "step: 3  memory: 1GiB(1%)  tps: 7,282\nglobal_step: 1 | train_step_timing in s: 3\n", -1,
        "t.log has lines of torchtitan, t.log of NeMo");
    must_refuse("global_step: 1 | train_step_timing in s: 3\n", 1, "none is left");
    must_refuse("global_step: 1 | train_step_timing in s: -3\n", -1, "known form");
    must_refuse("global_step: 1 | train_step_timing in s: 0\n", -1, "known form");
    must_refuse("global_step: 1 | train_step_timing in s: 1e99\n", -1, "known form");
    const char *const absent[] = {"/nowhere/t.log"};
    sp_training_log log;
    must_fail_with(sp_training_log_read(absent, 1, -1, &log, ERR), SP_ERR_IO, "/nowhere/t.log");
}

// ---- a row of a table ----

static double measured_ms(const char *scenario, const char *log)
{
    const char *const logs[] = {log};
    AUTO(sp_measurements) m;
    put_file("job.json", json_text("%s", scenario));
    must_succeed(sp_measurements_of_log("job.json", logs, 1, NULL, 0, &m, ERR));
    assert_int_equal(m.count, 1);
    assert_int_equal(m.kind, SP_MEASURED_ITERATION_MS);
    assert_string_equal(m.name, "job");
    double ms = m.cases[0].measured;
    remove("job.json");
    return ms;
}

// Rates become times by the scenario's own tokens, samples and GPUs: 64 samples of 4096 tokens
// on 8.
TEST(rows_of_logs)
{
    static const char job[] = "{'model': 'llama-13b', 'cluster': 'h100-8', 'parallel': {'tp': 8}, "
                              "'workload': {'uniform': "
                              "4096, 'context': 4096, 'samples_per_batch': 64}}";
    sp_scenario scenario;
    sp_batches batches;
    double step_tokens, step_samples;
    must_succeed(fixture_read(job, &scenario, ERR));
    must_succeed(sp_evaluate_batches(&scenario, &batches, ERR));
    sp_mean_step(&batches, &step_tokens, &step_samples);
    assert_true(step_tokens == 64 * 4096 && step_samples == 64);
    sp_batches_fini(&batches);
    sp_scenario_fini(&scenario);
    assert_close(measured_ms(job, LOGS "megatron.log"), 4994.6, 1e-8);
    assert_close(measured_ms(job, LOGS "torchtitan.log"), 1e3 * 64 * 4096 / (5863.0 * 8), 1e-8);
    assert_close(measured_ms(job, LOGS "deepspeed.log"), 1e3 * 64 / 61.156914173524164, 1e-8);
    const char *const memory[] = {LOGS "megatron_rank4.log"};
    const char *const rates[] = {LOGS "torchtitan.log"};
    sp_measurements m;
    must_fail_with(sp_measurements_of_log("scenario.json", memory, 1, NULL, 0, &m, ERR),
                   SP_ERR_CONTENT, "no line is of a step");
    put_file(
        "uniform.json",
        json_text("{'uniform_costs': {'f_ms': 1, 'b_ms': 1, 'w_ms': 1}, 'parallel': {'pp': 2}, "
                  "'schedule': {'microbatches': 4}}"));
    must_fail_with(sp_measurements_of_log("uniform.json", rates, 1, NULL, 0, &m, ERR),
                   SP_ERR_CONTENT, "says rates, which need a model");
    remove("uniform.json");
}
