// Traces of PyTorch's profiler: what is read of them, kernels by their names, operators by their
// shapes, and what a GPU did at each moment. Expected times are sums by hand or by a count of every
// microsecond.
#include "tests/support/test_main.h"

#include <zlib.h>

#include "experiments/measure/kineto.h"
#include "tests/support/trace_text.h"

static void read_text(const char *text, sp_kineto *trace)
{
    must_succeed(sp_kineto_from_text(text, strlen(text), "t.json", trace, ERR));
}

static void must_refuse(const char *text, sp_status status, const char *message)
{
    sp_kineto trace;
    must_fail_with(sp_kineto_from_text(text, strlen(text), "t.json", &trace, ERR), status, message);
}

#define KERNEL(ts, dur) \
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"ts\": " ts ", \"dur\": " dur "}"

// ---- times and forms ----

// 2^53 ns are 104 days: times since 1970 keep their nanoseconds only as integers.
TEST(times_are_exact)
{
    static const struct {
        const char *ts, *dur;
        int64_t start_ns, duration_ns;
        bool whole;
    } cases[] = {
        {"1740461679479712", "52", INT64_C(1740461679479712000), 52000, true},
        {"1712195495508685.2", "50.363", INT64_C(1712195495508685200), 50363, false},
        {"4203669604595.407", "0.001", INT64_C(4203669604595407), 1, false},
        {"17.1234567", "2.0", 17123, 2000, false},
        {"\"12.5\"", "3", 12500, 3000, false},
        {"1.5e3", "1e1", 1500000, 10000, true},
        {"-3", "1", -3000, 1000, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        AUTO(sp_kineto) trace;
        snprintf(text, sizeof text,
                 "[{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"ts\": %s, \"dur\": %s}]",
                 cases[i].ts, cases[i].dur);
        read_text(text, &trace);
        assert_int_equal(trace.span_count, 1);
        assert_int_equal(trace.spans[0].start_ns, cases[i].start_ns);
        assert_int_equal(trace.spans[0].duration_ns, cases[i].duration_ns);
        assert_int_equal(trace.is_whole_us, cases[i].whole);
    }
}

// The header may stand before the events or behind, keys in any order, values of any form.
TEST(members_in_any_order)
{
    static const char text[] =
        "\xef\xbb\xbf{\"x\": [{\"y\": [NaN, -Infinity, true, \"a]}\\\"\"]}, ...],\n"
        "\"traceEvents\": [\n"
        "{\"args\": {\"stream\": 23, \"device\": 2, \"grid\": [1, 1, {}], \"External id\": null},\n"
        "\"name\": \"void gemm<1>(\\\"x\\\")\", \"dur\": 4, \"ts\": 10, \"tid\": 5, \"pid\": "
        "\"GPU 2\", \"cat\": \"Kernel\", \"ph\": \"X\"},\n"
        "{\"ph\": \"X\", \"cat\": \"Memcpy\", \"name\": \"Memcpy DtoD\", \"pid\": 3, \"tid\": 7, "
        "\"ts\": 2, \"dur\": 1, \"args\": {\"bytes\": 4096}},\n"
        "{\"ph\": \"X\", \"cat\": \"gpu_memset\", \"name\": \"Memset\", \"pid\": 3, \"tid\": 7, "
        "\"ts\": 5},\n"
        "{\"ph\": \"X\", \"cat\": \"gpu_memset\", \"name\": \"Memset\", \"pid\": 3, \"tid\": 7, "
        "\"ts\": 6, \"dur\": -3.5},\n"
        "{\"ph\": \"M\", \"cat\": \"kernel\", \"name\": \"no span\", \"ts\": 1},\n"
        "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#7\", \"ts\": 1},\n"
        "{\"ph\": \"X\", \"cat\": \"gpu_user_annotation\", \"name\": \"ProfilerStep#8\", \"ts\": "
        "1}],\n"
        "\"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA H800\", \"numSms\": 132}, {\"id\": "
        "1, \"name\": \"NVIDIA H800\"}],\n"
        "\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 5, \"world_size\": 64, \"pg\": "
        "[{}]}}\n \n";
    AUTO(sp_kineto) trace;
    read_text(text, &trace);
    assert_int_equal(trace.events, 7);
    assert_int_equal(trace.span_count, 4);
    assert_int_equal(trace.undated, 2);
    assert_int_equal(trace.rank, 5);
    assert_int_equal(trace.world, 64);
    assert_int_equal(trace.steps, 1);
    assert_string_equal(trace.gpu, "NVIDIA H800");
    assert_int_equal(trace.node_gpus, 2);
    assert_int_equal(trace.sms, 132);
    assert_false(trace.is_cut);
    const sp_traced_span *s = trace.spans; // by start
    assert_int_equal(s[0].of, SP_KERNEL_MEMCPY);
    assert_int_equal(s[0].bytes, 4096);
    assert_int_equal(s[0].device, 3); // of pid, where no argument says it
    assert_int_equal(s[0].stream, 7); // of tid
    assert_int_equal(s[1].of, SP_KERNEL_MEMSET);
    assert_int_equal(s[1].duration_ns, 0);
    assert_int_equal(s[2].duration_ns, 0);
    assert_int_equal(s[3].of, SP_KERNEL_PRODUCT);
    assert_int_equal(s[3].device, 2);
    assert_int_equal(s[3].stream, 23);
    assert_string_equal(trace.names[s[3].name], "void gemm<1>(\"x\")");
}

// ---- files that are none ----

TEST(other_files_are_refused)
{
    must_refuse("", SP_ERR_CONTENT, "t.json: is empty");
    must_refuse("  \n", SP_ERR_CONTENT, "t.json: is empty");
    must_refuse("iteration 1", SP_ERR_SYNTAX, "t.json:1:1: expected '{' or '['");
    must_refuse("{\"schema\": \"slimpack/result/1\"}", SP_ERR_CONTENT,
                "of schema 'slimpack/result/1'");
    must_refuse("{\"rows\": [1, 2]}", SP_ERR_CONTENT, "has no 'traceEvents'");
    must_refuse("{\"traceEvents\": []}", SP_ERR_CONTENT, "none of its 0 events");
    must_refuse("[{\"ph\": \"X\", \"cat\": \"compute\", \"ts\": 1, \"dur\": 2}]", SP_ERR_CONTENT,
                "none of its 1 events is of PyTorch's profiler");
    must_refuse("[{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"ts\": 1, \"dur\": "
                "2}]",
                SP_ERR_CONTENT, "1 operators ran on the CPU and nothing on a GPU");
}

TEST(faults_name_their_place)
{
    must_refuse("[" KERNEL("1", "2") ",\n {]", SP_ERR_SYNTAX, "t.json:2:3: expected a text");
    must_refuse("[" KERNEL("1", "2") "\n" KERNEL("1", "2") "]", SP_ERR_SYNTAX,
                "t.json:2:1: expected ',' or ']'");
    must_refuse("[" KERNEL("1", "2") ",\n" KERNEL("\"noon\"", "2") "]", SP_ERR_SYNTAX,
                "no 'ts' in microseconds");
    must_refuse("[" KERNEL("1", "\"long\"") "]", SP_ERR_SYNTAX, "no 'dur' in microseconds");
    must_refuse("[" KERNEL("1e300", "2") "]", SP_ERR_SYNTAX, "no 'ts' in microseconds");
    must_refuse("[" KERNEL("1", "2") "] []", SP_ERR_SYNTAX, "more text behind the end");
    must_refuse("[{\"args\": {\"grid\": [1}}]", SP_ERR_SYNTAX, "closes what is not open");
}

// ---- files that end in the middle ----

// Of every beginning: what stands whole before its end is read, or it is refused with a message.
TEST(every_beginning_is_read_or_refused)
{
    trace_text text;
    trace_begin(&text, "\"distributedInfo\": {\"rank\": 1, \"world_size\": 2},");
    trace_span(&text, "kernel", "gemm", 7, "10", "5", "");
    trace_span(&text, "kernel", "ncclDevKernel_AllReduce_Sum", 9, "12.5", "5.25",
               ", \"Collective name\": \"allreduce\", \"In msg nelems\": 64, \"dtype\": \"Float\"");
    trace_end(&text);
    const char *first_end = strchr(text.bytes, '}');
    for (int i = 0; i < 2; i++) { // past the header and the first span
        first_end = strstr(first_end + 1, "}}") + 1;
    }
    for (size_t bytes = 0; bytes < text.count; bytes++) {
        sp_kineto trace;
        sp_error_clear(ERR);
        sp_status status = sp_kineto_from_text(text.bytes, bytes, "t.json", &trace, ERR);
        if (status != SP_OK) {
            assert_int_equal(status, SP_ERR_CONTENT);
            assert_int_equal(ERR->count, 1);
            continue;
        }
        bool whole = strspn(text.bytes + bytes, "\n ") == text.count - bytes;
        assert_int_equal(trace.is_cut, !whole);
        assert_true(trace.span_count >= 1 && trace.span_count <= 2);
        assert_int_equal(trace.cut_line > 0, !whole);
        sp_kineto_fini(&trace);
    }
    trace_text_fini(&text);
}

TEST(gzip_is_read_and_its_cut_is_told)
{
    enum { EVENTS = 2000 };
    AUTO(trace_text) text;
    AUTO(sp_kineto) plain, packed, cut;
    sp_prng prng = prng_seeded(3);
    trace_begin(&text, "");
    for (int i = 0; i < EVENTS; i++) {
        char start[32], duration[32];
        snprintf(start, sizeof start, "%d.%03d", i, (int)sp_prng_below(&prng, 1000));
        snprintf(duration, sizeof duration, "%d", (int)sp_prng_below(&prng, 100000));
        trace_span(&text, "kernel", "k", 7, start, duration, "");
    }
    trace_end(&text);
    gzFile file = gzopen("t.json.gz", "wb");
    assert_int_equal(gzwrite(file, text.bytes, (unsigned)text.count), (int)text.count);
    assert_int_equal(gzclose(file), Z_OK);
    read_text(text.bytes, &plain);
    must_succeed(sp_kineto_read("t.json.gz", &packed, ERR));
    assert_int_equal(packed.span_count, EVENTS);
    for (int i = 0; i < EVENTS; i++) {
        assert_int_equal(packed.spans[i].start_ns, plain.spans[i].start_ns);
        assert_int_equal(packed.spans[i].duration_ns, plain.spans[i].duration_ns);
    }
    // Half of the bytes.
    FILE *from = fopen("t.json.gz", "rb");
    AUTO_FREE char *bytes = sp_malloc(text.count);
    size_t count = fread(bytes, 1, text.count, from);
    fclose(from);
    put_file_bytes("cut.json.gz", bytes, count / 2);
    must_succeed(sp_kineto_read("cut.json.gz", &cut, ERR));
    assert_true(cut.is_cut && cut.span_count > 0 && cut.span_count < EVENTS);
    for (size_t i = 0; i < cut.span_count; i++) {
        assert_int_equal(cut.spans[i].start_ns, plain.spans[i].start_ns);
    }
    // A block that is another one.
    memset(bytes + count / 2, 0xff, 64);
    put_file_bytes("damaged.json.gz", bytes, count);
    sp_kineto damaged;
    must_fail_with(sp_kineto_read("damaged.json.gz", &damaged, ERR), SP_ERR_CONTENT,
                   "damaged.json.gz: damaged gzip file, from line ");
}

// ---- kernels by name ----

// Names as traces of PyTorch 1.13 to 2.6 on NVIDIA and AMD GPUs have them.
TEST(kernels_have_a_class)
{
    static const struct {
        sp_kernel_class of;
        const char *name;
    } cases[] = {
        {SP_KERNEL_PRODUCT, "ampere_sgemm_128x64_nn"},
        {SP_KERNEL_PRODUCT, "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNN"},
        {SP_KERNEL_PRODUCT, "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32"},
        {SP_KERNEL_PRODUCT, "void cublasLt::splitKreduce_kernel<32, 16, int, float>(int)"},
        {SP_KERNEL_PRODUCT, "void cutlass::device_kernel<GemmUniversal<fbgemm_gpu::X>>(int)"},
        {SP_KERNEL_ELEMENTWISE, "void fbgemm_gpu::permute_2D_data_kernel<false>(int)"},
        {SP_KERNEL_ATTENTION_FORWARD, "void pytorch_flash::flash_fwd_kernel<Kernel_traits<128>>()"},
        {SP_KERNEL_ATTENTION_FORWARD,
         "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128"},
        {SP_KERNEL_ATTENTION_BACKWARD,
         "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_3_64x128x128"},
        {SP_KERNEL_ATTENTION_BACKWARD,
         "void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<cute::C<64>>>>()"},
        {SP_KERNEL_ATTENTION_BACKWARD, "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<1>()"},
        {SP_KERNEL_NORM, "void layer_norm::ln_bwd_kernel<layer_norm::Kernel_traits<1>>()"},
        {SP_KERNEL_NORM,
         "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<1>()"},
        {SP_KERNEL_ELEMENTWISE,
         "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>()"},
        {SP_KERNEL_ELEMENTWISE,
         "_ZN2at6native_DistributionNormal_cu_distribution_elementwise_grid"},
        {SP_KERNEL_ELEMENTWISE, "triton_poi_fused_add_mul_silu_3"},
        {SP_KERNEL_OPTIMIZER,
         "void at::native::multi_tensor_apply_kernel<TensorListMetadata<2>, lambda()#1>()"},
        {SP_KERNEL_OTHER, "spin_kernel(long)"},
        {SP_KERNEL_ALL_REDUCE, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)"},
        {SP_KERNEL_ALL_REDUCE,
         "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage)"},
        {SP_KERNEL_ALL_GATHER, "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096>)"},
        {SP_KERNEL_REDUCE_SCATTER, "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL()"},
        {SP_KERNEL_ROOTED, "ncclDevKernel_Broadcast_RING_LL()"},
        {SP_KERNEL_ROOTED, "ncclDevKernel_Reduce_Sum_f32_RING_LL()"},
        {SP_KERNEL_SEND_RECEIVE, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)"},
        {SP_KERNEL_OTHER_COMMUNICATION, "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096>)"},
        {SP_KERNEL_EXPERT_EXCHANGE, "void deep_ep::internode::dispatch<false, 8>(int4*)"},
        {SP_KERNEL_EXPERT_EXCHANGE, "void dpsk::ep::internode::cached_notify<false>(int)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(sp_kernel_class_names[sp_kernel_class_of(cases[i].name)],
                            sp_kernel_class_names[cases[i].of]);
    }
}

// ---- operators and their kernels ----

#define MM_ARGS(id, m, k, n)                                                      \
    "\"External id\": " id ", \"Input Dims\": [[" m ", " k "], [" k ", " n "]], " \
    "\"Input type\": [\"c10::BFloat16\", \"c10::BFloat16\"]"

static const sp_traced_op *op_of(const sp_kineto *trace, size_t span)
{
    return trace->spans[span].op >= 0 ? &trace->ops[trace->spans[span].op] : NULL;
}

TEST(kernels_find_their_operators)
{
    AUTO(trace_text) text;
    AUTO(sp_kineto) trace;
    trace_begin(&text, "");
    trace_host(&text, "cpu_op", "aten::mm", 1, 0, 10, MM_ARGS("11", "32", "64", "128"));
    trace_host(&text, "cuda_runtime", "cudaLaunchKernel", 1, 4, 1, "\"correlation\": 501");
    // By the external id.
    trace_span(&text, "kernel", "gemm", 7, "100", "5",
               ", \"External id\": 11, \"correlation\": 501");
    // By the thread of its launch: in older releases the external id is the correlation.
    trace_host(&text, "cpu_op", "aten::mm", 1, 20, 10, MM_ARGS("12", "8", "16", "24"));
    trace_host(&text, "cpu_op", "aten::mm", 2, 20, 10, MM_ARGS("502", "9", "9", "9"));
    trace_host(&text, "cuda_runtime", "cudaLaunchKernel", 1, 24, 1.5, "\"correlation\": 502");
    trace_span(&text, "kernel", "gemm", 7, "200", "5",
               ", \"External id\": 502, \"correlation\": 502");
    // Launched when no operator ran; and of another class than the operator.
    trace_host(&text, "cuda_runtime", "cudaLaunchKernel", 1, 40, 1, "\"correlation\": 11");
    trace_span(&text, "kernel", "gemm", 7, "300", "5",
               ", \"External id\": 11, \"correlation\": 11");
    trace_span(&text, "kernel", "elementwise", 7, "400", "5",
               ", \"External id\": 12, \"correlation\": 502");
    trace_end(&text);
    read_text(text.bytes, &trace);
    assert_int_equal(trace.span_count, 4);
    assert_int_equal(op_of(&trace, 0)->of.product.m, 32);
    assert_int_equal(op_of(&trace, 0)->of.product.k, 64);
    assert_int_equal(op_of(&trace, 0)->of.product.n, 128);
    assert_true(op_of(&trace, 0)->is_bf16);
    assert_int_equal(trace.spans[0].launched_ns, 5000);
    assert_int_equal(op_of(&trace, 1)->of.product.m, 8);
    assert_null(op_of(&trace, 2));
    assert_null(op_of(&trace, 3));
}

// The inputs of native_functions.yaml, and what follows of them.
TEST(work_of_operators)
{
    AUTO(trace_text) text;
    AUTO(sp_kineto) trace;
    trace_begin(&text, "");
    trace_host(&text, "cpu_op", "aten::addmm", 1, 0, 1,
               "\"Input Dims\": [[128], [32, 64], [64, 128], [], []], \"Input type\": [\"float\", "
               "\"c10::Half\", \"c10::Half\", \"Scalar\", \"Scalar\"]");
    trace_host(&text, "cpu_op", "aten::bmm", 1, 2, 1,
               "\"Input Dims\": [[4, 2, 3], [4, 3, 5]], \"Input type\": [\"float\", \"float\"]");
    trace_host(&text, "cpu_op", "aten::_scaled_dot_product_flash_attention", 1, 4, 1,
               "\"Input Dims\": [[2, 8, 512, 64], [2, 2, 512, 64], [2, 2, 512, 32], [], [], [], "
               "[]], \"Input type\": [\"c10::BFloat16\"], \"Concrete Inputs\": [\"\", \"\", \"\", "
               "\"0.\", \"True\", \"False\", \"\"]");
    trace_host(&text, "cpu_op", "aten::_flash_attention_backward", 1, 6, 1,
               "\"Input Dims\": [[2, 512, 8, 64], [2, 512, 8, 64], [2, 256, 8, 64], [2, 256, 8, "
               "64]], \"Input type\": [\"c10::BFloat16\", \"c10::BFloat16\"]");
    // 24 floats and 4 of them read, 24 written; then one read and one written.
    trace_host(&text, "cpu_op", "aten::mul", 1, 8, 1,
               "\"Input Dims\": [[2, 3, 4], [4]], \"Input type\": [\"float\", \"float\"]");
    trace_host(
        &text, "cpu_op", "aten::copy_", 1, 10, 1,
        "\"Input Dims\": [[100], [100], []], \"Input type\": [\"c10::BFloat16\", \"float\"]");
    // Inner sizes that differ, variable lengths, types that differ: no work is known.
    trace_host(&text, "cpu_op", "aten::mm", 1, 12, 1,
               "\"Input Dims\": [[4, 2], [3, 5]], \"Input type\": [\"float\", \"float\"]");
    trace_host(&text, "cpu_op", "aten::_flash_attention_forward", 1, 14, 1,
               "\"Input Dims\": [[512, 8, 64], [512, 8, 64], [512, 8, 64], [3], [3]], \"Input "
               "type\": [\"c10::BFloat16\"]");
    trace_host(&text, "cpu_op", "aten::add", 1, 16, 1,
               "\"Input Dims\": [[4], [4]], \"Input type\": [\"float\", \"c10::BFloat16\"]");
    // A text in place of an array.
    trace_host(&text, "cpu_op", "aten::mm", 1, 18, 1,
               "\"Input Dims\": \"]]]7[[[\", \"Input type\": 5");
    trace_span(&text, "kernel", "k", 7, "1", "1", "");
    trace_end(&text);
    read_text(text.bytes, &trace);
    assert_int_equal(trace.op_count, 6);
    const sp_traced_op *op = trace.ops;
    assert_int_equal(op[0].of.product.m, 32);
    assert_int_equal(op[0].of.product.n, 128);
    assert_int_equal(op[0].of.product.k, 64);
    assert_int_equal(op[0].element_bytes, 2);
    assert_true(op[0].is_bf16);
    assert_int_equal(op[1].of.product.batch, 4);
    assert_int_equal(op[1].of.product.n, 5);
    assert_false(op[1].is_bf16);
    assert_int_equal(op[2].of.attention.heads, 8);
    assert_int_equal(op[2].of.attention.queries, 512);
    assert_int_equal(op[2].of.attention.causal, 1);
    assert_close(op[2].of.attention.head_dim, 48.0, 1e-15);
    assert_true(op[3].of.attention.backward);
    assert_int_equal(op[3].of.attention.keys, 256);
    assert_int_equal(op[3].of.attention.causal, -1);
    assert_close(op[4].of.bytes, 4.0 * (24 + 4 + 24), 1e-15);
    assert_close(op[5].of.bytes, 100.0 * 2 + 100.0 * 4, 1e-15);
}

// The record stands at the kernel, or at the operator that launched it. The bytes are those of the
// whole tensor: an all-gather's result, a reduce-scatter's input.
TEST(collectives_have_kind_and_bytes)
{
    AUTO(trace_text) text;
    AUTO(sp_kineto) trace;
    trace_begin(&text, "");
    trace_span(&text, "kernel", "ncclDevKernel_AllGather_RING_LL", 9, "1", "5",
               ", \"Collective name\": \"_allgather_base\", \"In msg nelems\": 10, \"Out msg "
               "nelems\": 80, \"dtype\": \"BFloat16\", \"Group size\": 8, \"Process Group Ranks\": "
               "\"[8, 9, 10, 11, 12, 13, 14, 15]\"");
    trace_span(&text, "kernel", "ncclDevKernel_SendRecv", 9, "11", "5",
               ", \"Collective name\": \"all_to_allv\", \"In msg nelems\": 10, \"Out msg nelems\": "
               "12, \"dtype\": \"Float\", \"Group size\": 8, \"Process Group Ranks\": [0, 1, ...]");
    trace_host(&text, "cpu_op", "record_param_comms", 1, 0, 10,
               "\"External id\": 4, \"Collective name\": \"reduce_scatter\", \"In msg nelems\": "
               "64, \"Out msg nelems\": 8, \"dtype\": \"Long\", \"Group size\": 8");
    trace_span(&text, "kernel", "ncclDevKernel_ReduceScatter_Sum", 9, "21", "5",
               ", \"External id\": 4");
    trace_span(&text, "kernel", "ncclDevKernel_SendRecv", 9, "31", "5", "");
    trace_end(&text);
    read_text(text.bytes, &trace);
    assert_int_equal(trace.spans[0].of, SP_KERNEL_ALL_GATHER);
    assert_close(op_of(&trace, 0)->of.collective.bytes, 160.0, 1e-15);
    assert_int_equal(op_of(&trace, 0)->of.collective.ranks, 8);
    assert_int_equal(op_of(&trace, 0)->of.collective.first, 8);
    assert_int_equal(op_of(&trace, 0)->of.collective.span, 7);
    assert_int_equal(trace.spans[1].of, SP_KERNEL_ALL_TO_ALL);
    assert_close(op_of(&trace, 1)->of.collective.bytes, 40.0, 1e-15);
    assert_int_equal(op_of(&trace, 1)->of.collective.span, -1);
    assert_int_equal(trace.spans[2].of, SP_KERNEL_REDUCE_SCATTER);
    assert_close(op_of(&trace, 2)->of.collective.bytes, 512.0, 1e-15);
    assert_int_equal(trace.spans[3].of, SP_KERNEL_SEND_RECEIVE);
    assert_null(op_of(&trace, 3));
}

// ---- what a GPU does ----

enum { MOMENTS = 400 };

typedef struct drawn_span {
    int start, duration, wait;
    bool communicates;
} drawn_span;

// Microseconds in which something else runs, communication alone, waiting alone, nothing.
static void count_moments(const drawn_span *spans, int count, int of[4], int *first, int *last)
{
    *first = MOMENTS;
    *last = 0;
    for (int i = 0; i < count; i++) {
        *first = spans[i].start < *first ? spans[i].start : *first;
        int end = spans[i].start + spans[i].duration;
        *last = end > *last ? end : *last;
    }
    for (int us = *first; us < *last; us++) {
        bool works = false;
        bool communicates = false;
        bool waits = false;
        for (int i = 0; i < count; i++) {
            int at = us - spans[i].start;
            bool runs = at >= 0 && at < spans[i].duration;
            works = works || (runs && !spans[i].communicates);
            waits = waits || (runs && spans[i].communicates && at < spans[i].wait);
            communicates = communicates || (runs && spans[i].communicates && at >= spans[i].wait);
        }
        of[works ? 0 : communicates ? 1 : waits ? 2 : 3]++;
    }
}

TEST_ROUNDS(moments_of_random_traces, 11, 200)
{
    drawn_span spans[30];
    int64_t waits[30];
    int of[4] = {0};
    int first, last;
    int64_t products_ns = 0;
    int count = 1 + (int)sp_prng_below(prng, 30);
    AUTO(trace_text) text;
    AUTO(sp_kineto) trace;
    sp_trace_times times;
    trace_begin(&text, "");
    for (int i = 0; i < count; i++) {
        char start[16], duration[16];
        // One after another, so that the order of the file is that of the starts.
        spans[i].start = i == 0 ? 0 : spans[i - 1].start + 1 + (int)sp_prng_below(prng, 9);
        spans[i].duration = 1 + (int)sp_prng_below(prng, 15);
        spans[i].communicates = sp_prng_below(prng, 2) == 0;
        spans[i].wait =
            spans[i].communicates ? (int)sp_prng_below(prng, (uint64_t)spans[i].duration) : 0;
        waits[i] = 1000 * spans[i].wait;
        products_ns += spans[i].communicates ? 0 : 1000 * spans[i].duration;
        snprintf(start, sizeof start, "%d", spans[i].start);
        snprintf(duration, sizeof duration, "%d", spans[i].duration);
        trace_span(&text, "kernel", spans[i].communicates ? "ncclDevKernel_SendRecv" : "gemm",
                   (int)sp_prng_below(prng, 4), start, duration, "");
    }
    trace_end(&text);
    read_text(text.bytes, &trace);
    sp_trace_times_of(&trace, waits, &times);
    count_moments(spans, count, of, &first, &last);
    assert_int_equal(times.extent_ns, 1000 * (last - first));
    assert_int_equal(times.busy_ns, 1000 * of[0]);
    assert_int_equal(times.exposed_ns, 1000 * (of[1] + of[2]));
    assert_int_equal(times.exposed_wait_ns, 1000 * of[2]);
    assert_int_equal(times.idle_ns, 1000 * of[3]);
    assert_int_equal(times.of[SP_KERNEL_PRODUCT].ns, products_ns);
}

// The device with the most spans counts, not the one that a copy touches.
TEST(one_device_counts)
{
    AUTO(sp_kineto) trace;
    sp_trace_times times;
    read_text("[{\"ph\": \"X\", \"cat\": \"gpu_memcpy\", \"name\": \"m\", \"pid\": 3, \"ts\": 0, "
              "\"dur\": 9000},"
              "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"pid\": 1, \"ts\": 5, "
              "\"dur\": 2},"
              "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"pid\": 1, \"ts\": 9, "
              "\"dur\": 3}]",
              &trace);
    sp_trace_times_of(&trace, NULL, &times);
    assert_int_equal(times.device, 1);
    assert_int_equal(times.extent_ns, 7000);
    assert_int_equal(times.idle_ns, 2000);
    assert_false(times.knows_waits);
    sp_kineto_fini(&trace);
    // A span without a duration may be the last.
    read_text("[" KERNEL("5", "2") ", {\"ph\": \"X\", \"cat\": \"gpu_memset\", \"ts\": 9}]",
              &trace);
    sp_trace_times_of(&trace, NULL, &times);
    assert_int_equal(times.extent_ns, 4000);
    assert_int_equal(times.idle_ns, 2000);
}

// ---- waiting for other ranks ----

static void read_rank(sp_kineto *trace, int rank, const int (*rounds)[2], int count,
                      const char *group)
{
    AUTO(trace_text) text;
    char header[64], more[256];
    snprintf(header, sizeof header, "\"distributedInfo\": {\"rank\": %d, \"world_size\": 4},",
             rank);
    snprintf(more, sizeof more,
             group[0] != '\0' ? ", \"Collective name\": \"allreduce\", \"In msg nelems\": 8, "
                                "\"dtype\": \"Float\", \"Group size\": 2, \"Process Group Ranks\": "
                                "\"%s\""
                              : "%s",
             group);
    trace_begin(&text, header);
    for (int i = 0; i < count; i++) {
        char start[16], duration[16];
        snprintf(start, sizeof start, "%d", rounds[i][0]);
        snprintf(duration, sizeof duration, "%d", rounds[i][1]);
        trace_span(&text, "kernel", "ncclDevKernel_AllReduce_Sum", 9, start, duration, more);
    }
    trace_end(&text);
    read_text(text.bytes, trace);
}

// Clocks that differ by an hour: the shortest of each round is its transfer.
TEST(waiting_is_told_apart)
{
    static const int early[][2] = {{0, 30}, {100, 7}, {200, 9}};
    static const int late[][2] = {{3600020, 10}, {3600100, 7}, {3600190, 19}};
    static const int other[][2] = {{5, 100}, {300, 100}};
    char reason[SP_TRACE_REASON];
    int64_t of_early[3], of_late[3], of_other[2];
    int64_t *waits[] = {of_early, of_late, of_other};
    sp_kineto a, b, c;
    const sp_kineto *traces[] = {&a, &b, &c};
    read_rank(&a, 0, early, 3, "[0, 1]");
    read_rank(&b, 1, late, 3, "[0, 1]");
    read_rank(&c, 2, other, 2, "[2, 3]"); // of a group of its own, whose other rank is not there
    assert_true(sp_trace_waits(traces, 3, waits, reason));
    assert_int_equal(of_early[0], 20000);
    assert_int_equal(of_early[1] + of_early[2], 0);
    assert_int_equal(of_late[0] + of_late[1], 0);
    assert_int_equal(of_late[2], 10000);
    assert_int_equal(of_other[0] + of_other[1], 0);
    assert_string_equal(reason, "");
    assert_false(sp_trace_waits(traces, 1, waits, reason));
    sp_kineto_fini(&a);
    sp_kineto_fini(&b);
    sp_kineto_fini(&c);
    // Without groups all are one, and then other numbers of rounds are not told apart.
    read_rank(&a, 0, early, 3, "");
    read_rank(&c, 2, other, 2, "");
    const sp_kineto *unlike[] = {&a, &c};
    int64_t *two[] = {of_early, of_other};
    assert_false(sp_trace_waits(unlike, 2, two, reason));
    assert_non_null(strstr(reason, "3 spans of all-reduce"));
    sp_kineto_fini(&a);
    sp_kineto_fini(&c);
}

TEST(traces_of_other_runs_are_refused)
{
    static const char format[] = "{\"deviceProperties\": [{\"name\": \"%s\"}], "
                                 "\"distributedInfo\": {\"rank\": %d, \"world_size\": %d}, "
                                 "\"traceEvents\": [" KERNEL("1", "2") "]}";
    static const struct {
        const char *gpu;
        int rank, world;
    } of[] = {{"NVIDIA H800", 0, 8},
              {"NVIDIA H800", 1, 8},
              {"NVIDIA A100", 2, 8},
              {"NVIDIA H800", 3, 16},
              {"NVIDIA H800", 0, 8}};
    sp_kineto traces[5];
    for (int i = 0; i < 5; i++) {
        char text[512];
        snprintf(text, sizeof text, format, of[i].gpu, of[i].rank, of[i].world);
        read_text(text, &traces[i]);
    }
    must_succeed(sp_traces_check((const sp_kineto *[]){&traces[0], &traces[1]}, 2, true, ERR));
    must_succeed(sp_traces_check((const sp_kineto *[]){&traces[0], &traces[4]}, 2, false, ERR));
    must_fail_with(sp_traces_check((const sp_kineto *[]){&traces[0], &traces[4]}, 2, true, ERR),
                   SP_ERR_CONTENT, "are both of rank 0");
    must_fail_with(sp_traces_check((const sp_kineto *[]){&traces[0], &traces[2]}, 2, true, ERR),
                   SP_ERR_CONTENT, "is of a NVIDIA H800, t.json of a NVIDIA A100");
    must_fail_with(sp_traces_check((const sp_kineto *[]){&traces[0], &traces[3]}, 2, true, ERR),
                   SP_ERR_CONTENT, "on 8 GPUs, t.json on 16");
    for (int i = 0; i < 5; i++) {
        sp_kineto_fini(&traces[i]);
    }
}
