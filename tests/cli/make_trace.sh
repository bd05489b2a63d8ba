# Sourced by checks: traces in the form of PyTorch's profiler, on standard output.

# Two steps of ten rounds of 1000 us: a product of 400, attention of 100 and 200, a kernel of 50 beside the first, an
# all-reduce that begins with the second and lasts 260 and, where the rank is EARLY, so much more; a copy from 840 to
# 850, a send and receive from 900 to 940. So a round has 700 + 10 us of work, and 60 + EARLY of the all-reduce and the
# 40 of the send that nothing hides.
make_trace() { # RANK WORLD EARLY [GPU]
    awk -v rank="$1" -v world="$2" -v early="$3" -v gpu="${4:-NVIDIA H100 80GB HBM3}" '
    function span(cat, name, tid, ts, dur, more) {
        printf "%s{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": 0, \"tid\": %d, \"ts\": %.1f, \"dur\": %d, \"args\": {\"device\": 0, \"stream\": %d%s}}", sep, cat, name, tid, ts + 0.5, dur, tid, more
        sep = ",\n"
    }
    BEGIN {
        printf "{\"deviceProperties\": [{\"id\": 0, \"name\": \"%s\"}, {\"id\": 1}, {\"id\": 2}, {\"id\": 3}],\n \"distributedInfo\": {\"rank\": %d, \"world_size\": %d},\n \"traceEvents\": [\n", gpu, rank, world
        for (n = 1; n <= 2; n++) {
            printf "%s{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#%d\", \"pid\": 9, \"tid\": 9, \"ts\": %d, \"dur\": 9000}", sep, n, 10000 * n
            sep = ",\n"
        }
        group = ", \"Collective name\": \"allreduce\", \"In msg nelems\": 1048576, \"Out msg nelems\": 1048576, \"dtype\": \"BFloat16\", \"Group size\": 2, \"Process Group Ranks\": \"[0, 1]\""
        for (i = 0; i < 20; i++) {
            t = 1740461679000000 + 1000 * i
            printf "%s{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 9, \"tid\": 9, \"ts\": %.0f, \"dur\": 20, \"args\": {\"External id\": %d, \"Input Dims\": [[4096, 4096], [4096, 14336]], \"Input type\": [\"c10::BFloat16\", \"c10::BFloat16\"]}}", sep, t - 500, i + 1
            span("kernel", "sm90_xmma_gemm_bf16", 7, t, 400, ", \"External id\": " i + 1)
            span("kernel", "void flash_fwd_kernel<128>()", 7, t + 400, 100, "")
            span("kernel", "void flash_bwd_kernel<128>()", 7, t + 500, 200, "")
            span("kernel", "vectorized_elementwise_kernel", 7, t + 450, 50, "")
            span("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 9, t + 500, 260 + early, group)
            span("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 7, t + 840, 10, "")
            span("kernel", "ncclDevKernel_SendRecv", 11, t + 900, 40, "")
        }
        print "\n]}"
    }'
}
