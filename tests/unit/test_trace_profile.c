// Profiles from traces: with the profile that a trace gives, operators take what they took in the
// trace. Durations of a kind count up from one; their median and quartiles are worked out by hand.
#include "tests/support/test_main.h"

#include "experiments/fit/fit.h"
#include "experiments/fit/trace_profile.h"
#include "sim/cost/op_time.h"
#include "tests/support/trace_text.h"

// A step in the making: operators, launches and kernels one after another.
typedef struct step {
    trace_text text;
    double at_us;
    int id;
} step;

static void begin(step *s, int rank)
{
    char header[512];
    snprintf(header, sizeof header,
             "\"deviceProperties\": [{\"name\": \"NVIDIA H100 80GB HBM3\"}%s], "
             "\"distributedInfo\": {\"rank\": %d, \"world_size\": 16},",
             ", {\"id\": 1}, {\"id\": 2}, {\"id\": 3}, {\"id\": 4}, {\"id\": 5}, {\"id\": 6}, "
             "{\"id\": 7}",
             rank);
    *s = (step){.at_us = 1000.0};
    trace_begin(&s->text, header);
}

static void kernel(step *s, const char *category, const char *name, double us, const char *more)
{
    char start[32], duration[32];
    snprintf(start, sizeof start, "%.3f", s->at_us);
    snprintf(duration, sizeof duration, "%.3f", us);
    trace_span(&s->text, category, name, 7, start, duration, more);
    s->at_us += us + 100.25;
}

// An operator of the host and its kernel.
static void operate(step *s, const char *name, const char *inputs, const char *kernel_name,
                    double us)
{
    char args[1024], more[64];
    s->id++;
    snprintf(args, sizeof args, "\"External id\": %d, %s", s->id, inputs);
    trace_host(&s->text, "cpu_op", name, 1, s->at_us - 50.0, 20.0, args);
    snprintf(more, sizeof more, ", \"External id\": %d", s->id);
    kernel(s, "kernel", kernel_name, us, more);
}

static void product(step *s, int m, int k, int n, const char *type, double us)
{
    char inputs[256];
    snprintf(inputs, sizeof inputs,
             "\"Input Dims\": [[%d, %d], [%d, %d]], \"Input type\": [\"%s\", \"%s\"]", m, k, k, n,
             type, type);
    operate(s, "aten::mm", inputs, "sm90_xmma_gemm", us);
}

static void attend(step *s, bool backward, double us)
{
    static const char shape[] = "[1, 8, 2048, 128]";
    char inputs[512];
    snprintf(inputs, sizeof inputs,
             "\"Input Dims\": [%s, %s, %s, %s], \"Input type\": [\"c10::BFloat16\", "
             "\"c10::BFloat16\"], \"Concrete Inputs\": [%s]",
             shape, shape, shape, shape,
             backward ? "\"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"0.\", "
                        "\"True\""
                      : "\"\", \"\", \"\", \"0.\", \"True\"");
    operate(s,
            backward ? "aten::_scaled_dot_product_flash_attention_backward"
                     : "aten::_scaled_dot_product_flash_attention",
            inputs, backward ? "flash_bwd_kernel" : "flash_fwd_kernel", us);
}

static void all_reduce(step *s, int numbers, double us)
{
    char more[512];
    snprintf(more, sizeof more,
             ", \"Collective name\": \"allreduce\", \"In msg nelems\": %d, \"Out msg nelems\": %d, "
             "\"dtype\": \"Float\", \"Group size\": 8, \"Process Group Ranks\": \"[0, 1, 2, 3, 4, "
             "5, 6, 7]\"",
             numbers, numbers);
    kernel(s, "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", us, more);
}

// A batch that comes from the host, which says nothing of the GPU's memory.
static void load_batch(step *s, double us)
{
    char args[256], more[64];
    s->id++;
    snprintf(args, sizeof args,
             "\"External id\": %d, \"Input Dims\": [[4096, 4096], [4096, 4096]], \"Input type\": "
             "[\"float\", \"float\"]",
             s->id);
    trace_host(&s->text, "cpu_op", "aten::copy_", 1, s->at_us - 50.0, 20.0, args);
    snprintf(more, sizeof more, ", \"External id\": %d, \"bytes\": 67108864", s->id);
    kernel(s, "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", us, more);
}

// Of 2.5 us from start to start, launched long before they run.
static void short_kernels(step *s, int count)
{
    for (int i = 0; i < count; i++) {
        char start[32], args[64], more[64];
        s->id++;
        snprintf(args, sizeof args, "\"correlation\": %d", 5000 + s->id);
        trace_host(&s->text, "cuda_runtime", "cudaLaunchKernel", 1, 10.0 + i, 0.5, args);
        snprintf(start, sizeof start, "%.3f", s->at_us);
        snprintf(more, sizeof more, ", \"correlation\": %d", 5000 + s->id);
        trace_span(&s->text, "kernel", "tiny", 7, start, "1.500", more);
        s->at_us += 2.5;
    }
    s->at_us += 100.0;
}

static void end(step *s, sp_kineto *trace)
{
    trace_end(&s->text);
    must_succeed(sp_kineto_from_text(s->text.bytes, s->text.count, "t.json", trace, ERR));
    trace_text_fini(&s->text);
}

static void load(const fit_traced *found, sp_profile *profile)
{
    FILE *file = fopen("mine.json", "w");
    fit_document_write(found->document, file);
    assert_int_equal(fclose(file), 0);
    must_succeed(sp_profile_load("./mine.json", profile, ERR));
}

static const fit_trace_value *value_of(const fit_traced *found, const char *path)
{
    for (size_t i = 0; i < found->value_count; i++) {
        if (strcmp(found->values[i].path, path) == 0) {
            return &found->values[i];
        }
    }
    fail_msg("no value of %s", path);
    return NULL;
}

static const char *absence_of(const fit_traced *found, const char *section)
{
    for (size_t i = 0; i < found->absent_count; i++) {
        if (strcmp(found->absent[i].section, section) == 0) {
            return found->absent[i].why;
        }
    }
    return NULL;
}

enum { TOKENS = 4096, N = 1024, K = 512, CALLS = 7 };
#define BF16 "c10::BFloat16"

// Seven calls of each take base, base + 1, ... base + 6 microseconds: their median is base + 3, the
// quartiles base + 1.5 and base + 4.5.
static void full_step(step *s, int rank, double collective_us)
{
    begin(s, rank);
    for (int i = 0; i < CALLS; i++) {
        product(s, TOKENS, K, N, BF16, 100.0 + i);
        product(s, TOKENS, N, K, BF16, 120.0 + i);
        product(s, N, TOKENS, K, BF16, 140.0 + i);
        product(s, TOKENS, K, N, "float", 900.0);
        attend(s, false, 300.0 + i);
        attend(s, true, 800.0 + i);
        operate(s, "aten::add",
                "\"Input Dims\": [[4096, 4096], [4096, 4096]], \"Input type\": [\"" BF16 "\", "
                "\"" BF16 "\"]",
                "vectorized_elementwise_kernel", 60.0 + i);
        kernel(s, "gpu_memcpy", "Memcpy DtoD (Device -> Device)", 40.0 + i,
               ", \"bytes\": 67108864");
        load_batch(s, 1300.0);
        load_batch(s, 1300.0);
        // The first of the two ranks waits 500 us in every second one, the other in the others.
        all_reduce(s, 1 << 20, collective_us + (i % 2 == rank ? 500.0 : 0.0) + i);
    }
    short_kernels(s, 41);
}

TEST(operators_take_what_they_took)
{
    step s;
    sp_kineto of[2];
    fit_traced found;
    sp_profile profile;
    sp_cluster cluster;
    for (int rank = 0; rank < 2; rank++) {
        full_step(&s, rank, 90.0);
        end(&s, &of[rank]);
    }
    must_succeed(
        fit_traces((const sp_kineto *[]){&of[0], &of[1]}, 2, "h100", "mine.json", &found, ERR));
    load(&found, &profile);
    must_succeed(sp_cluster_builtin("h100-8", &cluster, ERR));
    sp_op_timer timer = {.profile = &profile, .cluster = &cluster};
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, TOKENS, N, K), 103e-6, 1e-9);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_OUT, TOKENS, K, N), 123e-6, 1e-9);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_IN, TOKENS, N, K), 143e-6, 1e-9);
    assert_close(sp_time_gemm(&timer, SP_GEMM_TOKENS_IN, TOKENS, K, N), 143e-6, 1e-9);
    assert_close(sp_time_attention_slice(&timer, 0, 2048, 0, HUGE_VAL, 8, 128), 303e-6, 1e-9);
    assert_close(sp_time_attention_slice(&timer, 1, 2048, 0, HUGE_VAL, 8, 128), 803e-6, 1e-9);
    // Read twice, written once; a copy is read and written.
    double add_bytes = 3.0 * 2.0 * 4096.0 * 4096.0;
    assert_close(sp_time_memory(&timer, add_bytes, 0), 63e-6, 1e-3);
    assert_close(value_of(&found, "memory.gb_per_s")->value, 2.0 * 67108864.0 / 43e3, 1e-9);
    assert_close(sp_time_launch(&timer, 1), 2.5e-6, 1e-9);
    sp_group node = {8, 1, 8, 8};
    assert_close(sp_time_collective(&timer, SP_ALL_REDUCE, node, 4.0 * (1 << 20)), 93e-6, 1e-9);
    const fit_trace_value *v = value_of(&found, "gemm 1024x512 at m 4096");
    assert_int_equal(v->kernels, 2 * CALLS);
    assert_close(v->spread, (104.75 - 101.25) / (2.0 * 103.0), 1e-9);
    assert_true(found.knows_waits);
    assert_close(v->rate, 2e-12 * TOKENS * N * K / 103e-6, 1e-9);
    assert_int_equal(found.warnings.count, 1); // of the products of float32
    // What no kernel shows is named.
    assert_non_null(absence_of(&found, "links, host, interference, optimizer, fp8_gemm, decode"));
    assert_null(absence_of(&found, "gemm"));
    assert_int_equal(profile.gemm_tables, 4);
    sp_profile_fini(&profile);
    fit_traced_fini(&found);
    sp_kineto_fini(&of[0]);
    sp_kineto_fini(&of[1]);
}

// Two runs of one rank: their collectives are not one another's.
TEST(two_runs_of_one_rank_tell_no_waits)
{
    step s;
    sp_kineto of[2];
    fit_traced found;
    for (int run = 0; run < 2; run++) {
        full_step(&s, 0, run == 0 ? 90.0 : 290.0);
        end(&s, &of[run]);
    }
    must_succeed(
        fit_traces((const sp_kineto *[]){&of[0], &of[1]}, 2, "h100", "mine.json", &found, ERR));
    assert_false(found.knows_waits);
    // The quartile of 91, 93, 95, 291, 293, 295 and eight that are longer.
    assert_close(value_of(&found, "all_reduce of 8 ranks, 4194304 bytes")->value, 291.5, 1e-9);
    fit_traced_fini(&found);
    sp_kineto_fini(&of[0]);
    sp_kineto_fini(&of[1]);
}

// A profile has place for SP_COLLECTIVE_TABLES; that others were measured is said.
TEST(tables_without_a_place_are_told)
{
    step s = {.at_us = 1000.0};
    AUTO(sp_kineto) trace;
    AUTO(fit_traced) found;
    char members[1024] = "0";
    size_t length = 1;
    trace_begin(&s.text,
                "\"distributedInfo\": {\"rank\": 0, \"world_size\": 64}, "
                "\"deviceProperties\": [{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, "
                "{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, "
                "{}, {}, {}, "
                "{}, {}, {}],");
    for (int ranks = 2; ranks <= SP_COLLECTIVE_TABLES + 3; ranks++) {
        char more[1400];
        length += (size_t)snprintf(members + length, sizeof members - length, ", %d", ranks - 1);
        snprintf(more, sizeof more,
                 ", \"Collective name\": \"allreduce\", \"In msg nelems\": 64, \"dtype\": "
                 "\"Float\", \"Group size\": %d, \"Process Group Ranks\": [%s]",
                 ranks, members);
        for (int i = 0; i < FIT_TRACE_LEAST; i++) {
            kernel(&s, "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 50.25, more);
        }
    }
    end(&s, &trace);
    // A profile without tables of its own.
    must_succeed(fit_traces((const sp_kineto *[]){&trace}, 1, "a100", "mine.json", &found, ERR));
    assert_int_equal(json_array_size(json_object_get(found.document, "collective_times")),
                     SP_COLLECTIVE_TABLES);
    assert_int_equal(found.warnings.count, 1);
    assert_non_null(strstr(found.warnings.text[0], "2 tables of collectives are left out"));
}

// Four calls are no evidence, products of float32 none of bf16, and a group across nodes none of
// the times inside one.
TEST(little_evidence_is_named)
{
    step s;
    AUTO(sp_kineto) trace;
    AUTO(fit_traced) found;
    begin(&s, 0);
    for (int i = 0; i < 8; i++) {
        product(&s, TOKENS, K, N, i < 4 ? BF16 : "float", 100.0);
        kernel(&s, "kernel", "ncclDevKernel_AllGather_RING_LL", 50.0,
               ", \"Collective name\": \"all_gather\", \"Out msg nelems\": 64, \"dtype\": "
               "\"Float\", \"Group size\": 2, \"Process Group Ranks\": [7, 8]");
    }
    end(&s, &trace);
    must_succeed(fit_traces((const sp_kineto *[]){&trace}, 1, "h100", "mine.json", &found, ERR));
    assert_null(found.document);
    assert_int_equal(found.value_count, 0);
    assert_non_null(strstr(absence_of(&found, "gemm"), "8 kernels, 8 with shapes"));
    assert_non_null(absence_of(&found, "attention.forward_causal"));
    assert_non_null(absence_of(&found, "memory.gb_per_s"));
    assert_non_null(absence_of(&found, "kernel.us"));
    assert_non_null(strstr(absence_of(&found, "collective_times"), "8 across nodes"));
}

// Whole microseconds say little of short kernels, and of a trace of one rank the shortest quarter
// of a collective's times is the least mixed with waiting.
TEST(one_rank_and_whole_microseconds)
{
    step s;
    AUTO(sp_kineto) trace;
    AUTO(fit_traced) found;
    begin(&s, 0);
    for (int i = 0; i < 9; i++) {
        s.at_us = 1000.0 * (i + 1);
        product(&s, TOKENS, K, N, BF16, 15.0);
        s.at_us = 1000.0 * (i + 1) + 300.0;
        all_reduce(&s, 256, 20.0 + 10.0 * i);
    }
    end(&s, &trace);
    assert_true(trace.is_whole_us);
    must_succeed(fit_traces((const sp_kineto *[]){&trace}, 1, "a100", "mine.json", &found, ERR));
    assert_non_null(absence_of(&found, "gemm"));
    assert_non_null(strstr(absence_of(&found, "kernel.us"), "whole microseconds"));
    // The quartile of 20, 30, ... 100.
    assert_close(value_of(&found, "all_reduce of 8 ranks, 1024 bytes")->value, 40.0, 1e-12);
    assert_int_equal(found.warnings.count, 1); // another GPU than the profile's
}
