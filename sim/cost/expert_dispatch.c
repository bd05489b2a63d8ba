// Dispatchers that send a token once to each node that has an expert of it, over the network, and
// there once to each rank that has, over NVLink (DeepEP, HybridEP).
#include <math.h>

#include "sim/cost/cost_private.h"

// A dispatch or combination takes its latency and (a^3 + b^3 + c^3)^(1/3) of what three bottlenecks
// need, which work side by side but for their starts: NICs, NVLink, and SMs that copy rows.
//
// The constants are fitted to bandwidths that deepseek-ai/DeepEP publishes (README.md of V1; branch
// hybrid-ep, docs/README_Hybrid-EP.md): 4096 tokens of 7168 features, 8 of 256 experts, on H800,
// H100, B200 and GB200 with 8 to 64 ranks and 8 to 48 SMs, every second configuration. On the
// others the mean error is 3 % (DeepEP, 10 times, worst 6 %) and 5 % (HybridEP, 15 times, worst 15
// %; tests/oracle/test_expert_dispatch.c). HybridEP with 4 SMs is up to 44 % slower than this, and
// so are its FP8 rows over NVL72 from 24 ranks on, which take longer than rows in bf16 there; both
// were left out. Over AWS's EFA in place of InfiniBand DeepEP takes a third longer.
static const struct {
    double nic_share;      // of what NICs reach by the profile: 92 % of the line rate
    double nvlink_share;   // of the line rate
    double sm_bytes_per_s; // that an SM copies
    double row_bytes;      // that an SM could copy in the time a row takes beside its own
    double combine_share;  // of an SM's rate, where rows are added up on their way
    int sms;               // unless a stack states them
} dispatchers[SP_DISPATCHERS] = {
    [SP_DISPATCH_ALLTOALL] = {.sms = 24}, // NCCL runs 16 to 32 blocks
    [SP_DISPATCH_ALLGATHER] = {.sms = 24},
    [SP_DISPATCH_DEEPEP] = {1.087, 0.662, 45.9e9, 17500.0, 0.822, 20},
    [SP_DISPATCH_HYBRIDEP] = {0.904, 0.701, 80e9, 0.0, 0.723, 16},
};

// An H100's and H800's, where a profile does not say how many SMs its GPU has.
#define USUAL_SMS 132

// SMs that the kernels of a stack's dispatcher hold.
static int dispatcher_sms(const sp_stack *stack)
{
    return stack->dispatcher_sms > 0 ? (int)stack->dispatcher_sms
                                     : dispatchers[stack->dispatcher].sms;
}

double sp_i_dispatcher_slows(const sp_op_timer *timer, const sp_stack *stack)
{
    int all = timer->profile->gemm_model.sms > 0 ? timer->profile->gemm_model.sms : USUAL_SMS;
    int taken = dispatcher_sms(stack);
    return (double)taken / (taken < all ? all - taken : 1);
}

// ---- where tokens go ----

static double choose(int n, int k)
{
    double ways = k >= 0 && k <= n ? 1.0 : 0.0;
    for (int i = 1; i <= k && ways > 0.0; i++) {
        ways *= (double)(n - k + i) / i;
    }
    return ways;
}

// The chance that none of `active` of `experts` lies in `held` of them.
static double misses(int experts, int held, int active)
{
    double share = 1.0;
    for (int i = 0; i < active; i++) {
        share *= fmax(0.0, (double)(experts - held - i)) / (experts - i);
    }
    return share;
}

// A bin holds all experts of `whole` groups and `first` and `last` of two others.
typedef struct bin {
    int whole, first, last;
} bin;

static bin bin_of(const sp_routing *routing, int begin, int end)
{
    int groups = routing->groups > 0 ? routing->groups : 1;
    int size = routing->experts / groups;
    int ahead = (begin + size - 1) / size * size; // the first whole group
    return ahead >= end ? (bin){0, end - begin, 0}
                        : (bin){(end - ahead) / size, ahead - begin, (end - ahead) % size};
}

// The chance that a token has an expert in the bin, over all choices of groups.
static double reached(const sp_routing *routing, bin b)
{
    int groups = routing->groups > 0 ? routing->groups : 1;
    int active = routing->groups > 0 ? routing->active_groups : 1;
    int size = routing->experts / groups;
    int others = groups - b.whole - (b.first > 0) - (b.last > 0);
    double missed = 0.0;
    for (int with_first = 0; with_first <= (b.first > 0); with_first++) {
        for (int with_last = 0; with_last <= (b.last > 0); with_last++) {
            for (int whole = 0; whole <= b.whole; whole++) {
                double ways = choose(b.whole, whole) *
                              choose(others, active - whole - with_first - with_last);
                int held = whole * size + with_first * b.first + with_last * b.last;
                missed += ways * misses(active * size, held, routing->active);
            }
        }
    }
    return 1.0 - missed / choose(groups, active);
}

double sp_i_distinct(const sp_routing *routing, int ranks, int of_each)
{
    int held = routing->experts / ranks;
    double sum = 0.0;
    double one = 0.0;
    bin last = {-1, -1, -1};
    for (int first = 0; first < ranks; first += of_each) {
        int end = first + of_each < ranks ? first + of_each : ranks;
        bin b = bin_of(routing, first * held, end * held);
        if (b.whole != last.whole || b.first != last.first || b.last != last.last) {
            one = reached(routing, b);
            last = b;
        }
        sum += one;
    }
    return sum;
}

// ---- bytes and times ----

// NVLink carries what goes to other ranks of a node; every GPU sends to those at its own place in
// other nodes. An expert's etp ranks get the rows each.
sp_i_routed_bytes sp_i_routed_bytes_of(const sp_op *op, sp_group group, int etp)
{
    int ep = group.size / etp;
    int per_node = group.nodes > 1 ? group.most_per_node : group.size;
    int ep_per_node = per_node / etp > 0 ? per_node / etp : 1;
    double nodes = (double)sp_ceil_div(ep, ep_per_node);
    double ranks = etp * sp_i_distinct(&op->routing, ep, 1);
    double network = nodes > 1.0 ? sp_i_distinct(&op->routing, ep, ep_per_node) : 0.0;
    return (sp_i_routed_bytes){.network =
                                   network * (nodes - 1.0) / fmax(nodes, 1.0) * op->bytes_per_token,
                               .nvlink = ranks * (per_node - 1.0) / per_node * op->bytes_per_token};
}

static double cube(double x)
{
    return x * x * x;
}

double sp_i_routed_s_per_token(const sp_op_timer *timer, const sp_stack *stack, sp_group group,
                               int etp, const sp_op *op)
{
    sp_dispatcher by = stack->dispatcher;
    sp_i_routed_bytes bytes = sp_i_routed_bytes_of(op, group, etp);
    double row = op->bytes_per_token / op->token_share;
    double sms_per_s = dispatcher_sms(stack) * dispatchers[by].sm_bytes_per_s *
                       (op->returns ? dispatchers[by].combine_share : 1.0);
    double nvlink_per_s = dispatchers[by].nvlink_share * timer->cluster->nvlink_bytes_per_s;
    double nics = sp_i_nic_share_bytes_per_s(timer);
    double nics_per_s = nics > 0.0 ? dispatchers[by].nic_share * nics : nvlink_per_s;
    return cbrt(cube(bytes.nvlink / nvlink_per_s) + cube(bytes.network / nics_per_s) +
                cube(bytes.nvlink * (1.0 + dispatchers[by].row_bytes / row) / sms_per_s));
}

double sp_i_routed_latency_s(const sp_op_timer *timer, sp_group group)
{
    return timer->profile->nvlink_latency_s +
           (group.nodes > 1 ? timer->profile->nic_latency_s : 0.0);
}
