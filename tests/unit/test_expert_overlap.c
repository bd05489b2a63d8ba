// Dispatchers that send a token once to each rank, exchanges of experts behind other work, and what
// does not go with them.

#include "sim/cost/cost_private.h"
#include "sim/cost/expert_overlap.h"
#include "sim/schedule/schedule.h"
#include "tests/support/flat_profile.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

// ---- where tokens go ----

static int bits_of(unsigned set)
{
    int count = 0;
    for (; set != 0; set &= set - 1) {
        count++;
    }
    return count;
}

// Over all choices of groups and of experts among them, each as likely: the mean number of bins
// that hold one.
static double listed_distinct(const sp_routing *routing, int ranks, int of_each)
{
    int groups = routing->groups > 0 ? routing->groups : 1;
    int active = routing->groups > 0 ? routing->active_groups : 1;
    int size = routing->experts / groups;
    int held = routing->experts / ranks * of_each;
    double sum = 0.0;
    double choices = 0.0;
    for (unsigned of_groups = 0; of_groups < 1u << groups; of_groups++) {
        unsigned allowed = 0;
        for (int g = 0; g < groups; g++) {
            allowed |= (of_groups >> g & 1u) != 0 ? ((1u << size) - 1u) << (g * size) : 0u;
        }
        for (unsigned set = 0; bits_of(of_groups) == active && set < 1u << routing->experts;
             set++) {
            if ((set & ~allowed) == 0 && bits_of(set) == routing->active) {
                unsigned seen = 0;
                for (int e = 0; e < routing->experts; e++) {
                    seen |= (set >> e & 1u) << (e / held);
                }
                sum += bits_of(seen);
                choices += 1.0;
            }
        }
    }
    return sum / choices;
}

TEST(distinct_destinations_by_enumeration)
{
    static const struct {
        sp_routing routing;
        int ranks, of_each;
    } cases[] = {{{8, 2, 0, 0}, 8, 1},  {{8, 2, 0, 0}, 4, 1},   {{8, 3, 0, 0}, 4, 2},
                 {{12, 4, 0, 0}, 6, 1}, {{12, 4, 0, 0}, 6, 4},  {{12, 3, 4, 2}, 12, 1},
                 {{12, 3, 4, 2}, 6, 1}, {{12, 3, 4, 2}, 4, 1},  {{12, 3, 4, 2}, 12, 2},
                 {{12, 3, 4, 2}, 2, 1}, {{12, 4, 3, 2}, 6, 3},  {{12, 4, 6, 3}, 4, 1},
                 {{12, 2, 4, 1}, 3, 1}, {{12, 4, 2, 2}, 12, 5}, {{12, 5, 4, 3}, 12, 4},
                 {{12, 1, 3, 1}, 1, 1}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        assert_close(sp_i_distinct(&cases[i].routing, cases[i].ranks, cases[i].of_each),
                     listed_distinct(&cases[i].routing, cases[i].ranks, cases[i].of_each), 1e-12);
    }
}

// n (1 - C(E - E/n, k) / C(E, k)): 256 experts, 8 of them, over 8, 32 and 64 ranks 5.29, 7.27 and
// 7.68; 128 over 16 ranks 6.60. With groups on nodes no token goes to more nodes than groups.
TEST(distinct_destinations_in_closed_form)
{
    const sp_routing v3 = {256, 8, 0, 0};
    const sp_routing qwen = {128, 8, 0, 0};
    assert_close(sp_i_distinct(&v3, 8, 1), 5.29, 0.005 / 5.29);
    assert_close(sp_i_distinct(&v3, 32, 1), 7.27, 0.005 / 7.27);
    assert_close(sp_i_distinct(&v3, 64, 1), 7.68, 0.005 / 7.68);
    assert_close(sp_i_distinct(&qwen, 16, 1), 6.60, 0.005 / 6.60);
    assert_close(sp_i_distinct(&v3, 64, 8), sp_i_distinct(&v3, 8, 1), 1e-12);
    sp_prng prng = prng_seeded(7);
    for (int i = 0; i < 200; i++) {
        int groups = 2 << prng_below(&prng, 3);
        int top = 1 + prng_below(&prng, groups);
        int most = 64 / groups * top;
        const sp_routing limited = {64, 1 + prng_below(&prng, most < 8 ? most : 8), groups, top};
        double nodes = sp_i_distinct(&limited, groups, 1);
        assert_true(nodes <= top + 1e-9 && nodes <= limited.active + 1e-9 && nodes >= 1.0 - 1e-9);
        assert_true(sp_i_distinct(&limited, 64, 1) <= limited.active + 1e-9);
        assert_true(sp_i_distinct(&limited, 64, 1) >= nodes - 1e-9);
    }
}

// ---- bytes and times ----

enum { HIDDEN = 512, WIDTH = 768, EXPERTS = 16, TOP = 4 };

static const sp_model routed = {.name = "routed",
                                LLAMA_SHAPE(4, HIDDEN, WIDTH, 8, 4, 1024),
                                .experts = EXPERTS,
                                .experts_per_token = TOP};

static const sp_op *exchange_of(const sp_inventory *ops, bool returns)
{
    const sp_op *found = NULL;
    for (int i = 0; i < ops->count; i++) {
        if (ops->ops[i].kind == SP_OP_ROUTED_TOKENS && ops->ops[i].returns == returns) {
            assert_null(found);
            found = &ops->ops[i];
        }
    }
    assert_non_null(found);
    return found;
}

static void build(const sp_layout *layout, sp_pass pass, sp_inventory *ops)
{
    const sp_stack stack = {.dispatcher = SP_DISPATCH_DEEPEP};
    sp_inventory_build(&routed, layout, &stack, SP_ATTENTION_FLASH, SP_RECOMPUTE_NONE,
                       SP_PART_LAYER, pass, ops);
}

// A row of 2h bytes with k probabilities of 4 bytes there, a row back; backward the rows of
// gradients there, and back those with probabilities' gradients. With tensor parallelism each rank
// sends its share of the tokens.
TEST(bytes_by_hand)
{
    const sp_layout layout = {LAYOUT(2, 1, 1, 8, 1), .ep = 16, .etp = 1, .sequence_parallel = true};
    sp_inventory ops;
    build(&layout, SP_PASS_F, &ops);
    assert_close(exchange_of(&ops, false)->bytes_per_token, 0.5 * (2.0 * HIDDEN + 4.0 * TOP),
                 1e-12);
    assert_close(exchange_of(&ops, true)->bytes_per_token, 0.5 * 2.0 * HIDDEN, 1e-12);
    build(&layout, SP_PASS_I, &ops);
    assert_close(exchange_of(&ops, false)->bytes_per_token, 0.5 * 2.0 * HIDDEN, 1e-12);
    assert_close(exchange_of(&ops, true)->bytes_per_token, 0.5 * (2.0 * HIDDEN + 4.0 * TOP), 1e-12);
    // Two nodes of 8: to the other one goes a token with an expert there, and 7 of 8 rows over
    // NVLink.
    const sp_routing uniform = {EXPERTS, TOP, 0, 0};
    const sp_op *op = exchange_of(&ops, false);
    const sp_group two_nodes = {16, 2, 8, 8};
    sp_i_routed_bytes bytes = sp_i_routed_bytes_of(op, two_nodes, 1);
    double node = 1.0 - (8.0 * 7 * 6 * 5) / (16.0 * 15 * 14 * 13);
    assert_close(bytes.network, node * op->bytes_per_token, 1e-12);
    assert_close(bytes.nvlink, sp_i_distinct(&uniform, 16, 1) * 7.0 / 8.0 * op->bytes_per_token,
                 1e-12);
    // All in one NVLink domain: nothing goes over the network. Each of two ranks of an expert gets
    // its rows.
    const sp_group domain = {16, 1, 16, 16};
    assert_true(sp_i_routed_bytes_of(op, domain, 1).network == 0.0);
    assert_close(sp_i_routed_bytes_of(op, domain, 2).nvlink,
                 2.0 * sp_i_distinct(&uniform, 8, 1) * 15.0 / 16.0 * op->bytes_per_token, 1e-12);
}

// More SMs, faster links and fewer nodes make no exchange longer; a time is in proportion to the
// tokens behind its latency.
TEST(times_follow_links_and_sms)
{
    const sp_layout layout = {LAYOUT(1, 1, 1, 16, 1), .ep = 16, .etp = 1};
    static const sp_profile profile = {
        .nvlink_latency_s = 3e-6, .nic_latency_s = 10e-6, .nic_efficiency = 0.9};
    sp_inventory ops;
    build(&layout, SP_PASS_F, &ops);
    const sp_op *op = exchange_of(&ops, false);
    for (int by = SP_DISPATCH_DEEPEP; by < SP_DISPATCHERS; by++) {
        sp_cluster cluster = {.gpus_per_node = 8,
                              .nics_per_node = 8,
                              .nic_bytes_per_s = 50e9,
                              .nvlink_bytes_per_s = 200e9};
        const sp_op_timer timer = {.cluster = &cluster, .profile = &profile};
        sp_stack stack = {.dispatcher = (sp_dispatcher)by, .dispatcher_sms = 4};
        const sp_group nodes = {16, 2, 8, 8};
        const sp_group node = {16, 1, 16, 16};
        double few_s = sp_i_routed_s_per_token(&timer, &stack, nodes, 1, op);
        stack.dispatcher_sms = 32;
        double many_s = sp_i_routed_s_per_token(&timer, &stack, nodes, 1, op);
        assert_true(many_s < few_s);
        cluster.nic_bytes_per_s = 100e9;
        double fast_s = sp_i_routed_s_per_token(&timer, &stack, nodes, 1, op);
        assert_true(fast_s < many_s);
        assert_true(sp_i_routed_s_per_token(&timer, &stack, node, 1, op) < fast_s * 1.2);
    }
    const sp_group nodes = {16, 2, 8, 8};
    const sp_op_timer timer = {.profile = &profile};
    assert_close(sp_i_routed_latency_s(&timer, nodes), 13e-6, 1e-12);
}

// ---- the makespan of a pair ----

static sp_layer_tasks tasks_drawn(sp_prng *prng, bool backward)
{
    bool dense = prng_below(prng, 4) == 0;
    int most = 1 + prng_below(prng, 1000);
    return (sp_layer_tasks){.attention_ns = prng_below(prng, 1000),
                            .first_ns = dense ? 0 : prng_below(prng, most),
                            .mlp_ns = dense ? 0 : prng_below(prng, 1000),
                            .return_ns = dense ? 0 : prng_below(prng, most),
                            .attention_weights_ns = backward ? prng_below(prng, 500) : 0,
                            .mlp_weights_ns = backward && !dense ? prng_below(prng, 500) : 0};
}

static int64_t chain_ns(const sp_task_chain *chain, bool weights)
{
    int64_t sum_ns = 0;
    for (int l = 0; l < chain->layers; l++) {
        const sp_layer_tasks *t = &chain->tasks[chain->kind[l]];
        sum_ns += t->attention_ns + t->first_ns + t->mlp_ns + t->return_ns +
                  (weights ? t->attention_weights_ns + t->mlp_weights_ns : 0);
    }
    return sum_ns;
}

static int64_t exchanges_ns(const sp_task_chain *chain)
{
    int64_t sum_ns = 0;
    for (int l = 0; l < chain->layers; l++) {
        sum_ns += chain->tasks[chain->kind[l]].first_ns + chain->tasks[chain->kind[l]].return_ns;
    }
    return sum_ns;
}

TEST_ROUNDS(makespans_are_possible, 11, 5000)
{
    sp_layer_tasks tasks[2][3];
    uint8_t kind[2][8];
    sp_task_chain chain[2];
    for (int side = 0; side < 2; side++) {
        for (int k = 0; k < 3; k++) {
            tasks[side][k] = tasks_drawn(prng, side == 1);
        }
        for (int l = 0; l < 8; l++) {
            kind[side][l] = (uint8_t)prng_below(prng, 3);
        }
        chain[side] = (sp_task_chain){tasks[side], kind[side], prng_below(prng, 9)};
    }
    const sp_overlap_rates rates = {.compute_slows = prng_below(prng, 3) * 0.2,
                                    .exchange_slows = prng_below(prng, 3) * 0.3,
                                    .delays_weights = prng_below(prng, 2) == 0};
    sp_pair_times t = sp_time_pair(&rates, &chain[0], &chain[1]);
    int64_t all_ns = chain_ns(&chain[0], true) + chain_ns(&chain[1], true);
    assert_int_equal(t.compute_ns + t.exchange_ns, all_ns);
    assert_int_equal(t.exchange_ns, exchanges_ns(&chain[0]) + exchanges_ns(&chain[1]));
    assert_int_equal(t.forward_exchange_ns, exchanges_ns(&chain[0]));
    assert_true(t.makespan_ns <= all_ns);
    assert_true(t.makespan_ns >= t.compute_ns && t.makespan_ns >= t.exchange_ns);
    assert_true(t.makespan_ns >= chain_ns(&chain[0], true));
    assert_true(t.makespan_ns >= chain_ns(&chain[1], !rates.delays_weights));
    assert_true(all_ns - t.makespan_ns <= t.exchange_ns); // no more is hidden than there is
    if (chain[0].layers == 0 || chain[1].layers == 0) {
        assert_true(rates.delays_weights || t.makespan_ns == all_ns); // nothing to hide behind
    }
}

// One layer each. The backward's rows are on their way for 4 while the forward's attention runs for
// 3, then the experts' gradients for 5 beside the forward's dispatch of 4, the forward's experts
// for 5 beside the gradients' return of 4, and attention's gradients for 6 beside the forward's
// return of 4: 4 + 5 + 5 + 6.
TEST(a_pair_by_hand)
{
    static const uint8_t kind[] = {0};
    const sp_layer_tasks f = {.attention_ns = 3, .first_ns = 4, .mlp_ns = 5, .return_ns = 4};
    sp_layer_tasks b = {.attention_ns = 6, .first_ns = 4, .mlp_ns = 5, .return_ns = 4};
    const sp_task_chain forward = {&f, kind, 1};
    const sp_task_chain backward = {&b, kind, 1};
    sp_overlap_rates rates = {0};
    assert_int_equal(sp_time_pair(&rates, &forward, &backward).makespan_ns, 20);
    // Weight gradients of 2 and 3: behind their input gradients, where nothing waits but the end;
    // put off, in the one unit in which nothing else computed is none of them ready.
    b.mlp_weights_ns = 2;
    b.attention_weights_ns = 3;
    assert_int_equal(sp_time_pair(&rates, &forward, &backward).makespan_ns, 25);
    rates.delays_weights = true;
    assert_int_equal(sp_time_pair(&rates, &forward, &backward).makespan_ns, 25);
    // Both wait where an exchange is long, unless weight gradients are left for it.
    b.return_ns = 12;
    rates.delays_weights = false;
    int64_t at_once_ns = sp_time_pair(&rates, &forward, &backward).makespan_ns;
    rates.delays_weights = true;
    assert_true(sp_time_pair(&rates, &forward, &backward).makespan_ns < at_once_ns);
}

// ---- the order of pairs ----

// Interleaved: every backward but those at the end has a forward beside it, never its own, which
// stands behind it, and each rank runs one forward more before or beside its first backward than
// without pairs. The plan is one that plans may be.
TEST_ROUNDS(pairs_of_an_interleaved_plan, 3, 60)
{
    const bool one_rank = round % 6 == 0;
    const sp_layout layout = {.tp = 1,
                              .cp = 1,
                              .pp = one_rank ? 1 : 2 + prng_below(prng, 4),
                              .dp = 1,
                              .chunks = one_rank ? 1 : 2 + prng_below(prng, 3)};
    int microbatches = layout.pp * (2 + prng_below(prng, 4));
    size_t first[2][8];
    for (int pairs = 0; pairs < 2; pairs++) {
        AUTO(sp_packing) packing;
        AUTO(sp_plan) plan;
        const sp_schedule_spec spec = {.kind = SP_SCHEDULE_INTERLEAVED, .pairs = pairs != 0};
        uniform_packing(&packing, 1, microbatches);
        sp_plan_init(&plan, &layout, &packing);
        must_succeed(sp_schedule_generate(&spec, NULL, "test", &plan, ERR));
        must_succeed(sp_plan_check(&plan, "test", ERR));
        for (int r = 0; r < layout.pp; r++) {
            const sp_stage_plan *stage = sp_plan_stage(&plan, 0, r);
            size_t a = 0;
            while (stage->actions[a].kind == SP_ACTION_F) {
                a++;
            }
            a += stage->actions[a].with_next;
            first[pairs][r] = a;
            size_t beside = 0;
            for (size_t at = 0; at < stage->count; at++) {
                const sp_action *partner = sp_stage_partner(stage, at);
                if (partner != NULL && stage->actions[at].kind == SP_ACTION_F) {
                    beside++;
                    assert_int_equal(partner->kind, SP_ACTION_B);
                    assert_true(partner == &stage->actions[at - 1]);
                    assert_true(partner->pack != stage->actions[at].pack ||
                                partner->chunk != stage->actions[at].chunk);
                }
            }
            size_t units = (size_t)microbatches * (size_t)layout.chunks;
            assert_int_equal(beside, pairs != 0 ? units + 1 - a : 0);
            size_t all = units < first[0][r] + 1 ? units : first[0][r] + 1;
            assert_true(pairs == 0 || a == all);
        }
    }
}

// ---- steps ----

#define STEP                                                                                     \
    "{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000, 'experts': " \
    "8, 'experts_per_token': 2%s}, 'cluster': 'h100-8', 'profile': 'h100-burst', 'workload': "   \
    "{'lengths': %s, 'context': "                                                                \
    "4096, 'order': 'file', 'samples_per_batch': 32}, 'parallel': {'dp': 4, 'ep': 4, 'pp': %d, " \
    "'chunks_per_rank': %d}, 'stack': {'name': 'megatron-core-2025'%s}, 'schedule': {'kind': "   \
    "'%s'}, 'memory': {'recompute': '%s'}}"

static const char uneven[] =
    "[4096, 300, 1500, 2500, 3900, 100, 700, 3000, 900, 4000, 200, 2048, 1700, 1200, 3500, 600, "
    "800, 2900, 4096, 4096, 4096, 3000, 3100, 3200, 2222, 1111, 4000, 3999, 50, 4096, 4096, 77]";

// The walk agrees with the longest path, no bound is above the step, and no more is hidden than the
// same plan exchanges without hiding.
TEST(overlapped_steps)
{
    static const struct {
        int pp, chunks;
        const char *schedule;
    } plans[] = {{2, 2, "interleaved"},
                 {2, 4, "interleaved"},
                 {2, 2, "dualpipe-v"},
                 {1, 1, "1f1b"},
                 {1, 1, "interleaved"}};
    static const char *const dispatchers[] = {"alltoall", "allgather", "deepep", "hybridep"};
    static const char *const modes[] = {"none", "activation", "partial-fc1", "attention"};
    sp_prng prng = prng_seeded(5);
    for (int i = 0; i < COUNT_OF(plans) * 4; i++) {
        char on[160];
        bool delays = prng_below(&prng, 2) == 0;
        const char *mode = ONE_OF(&prng, modes);
        snprintf(on, sizeof on, ", 'dispatcher': '%s', 'expert_overlap': true%s",
                 dispatchers[i % 4], delays ? ", 'delay_wgrad': true" : "");
        SCENARIO_RUN(r,
                     json_text(STEP, "", uneven, plans[i / 4].pp, plans[i / 4].chunks, on,
                               plans[i / 4].schedule, mode),
                     &run_verified);
        double hidden_ms = sp_result_expert_hidden_ms(&r.result);
        assert_true(hidden_ms > 0.0 && r.result.ep_ns >= 0.0);
        for (size_t b = 0; b < r.result.batch_count; b++) {
            assert_true(r.result.batches[b].facts.lower_bound_ns <=
                        (double)r.result.batches[b].iteration_ns);
        }
        double all_ns = r.result.ep_ns + r.result.ep_hidden_ns;
        double busy_ns = r.result.busy_ns;
        scenario_run_fini(&r);
        snprintf(on, sizeof on, ", 'dispatcher': '%s'", dispatchers[i % 4]);
        run_good(json_text(STEP, "", uneven, plans[i / 4].pp, plans[i / 4].chunks, on,
                           plans[i / 4].schedule, mode),
                 &run_verified, &r);
        assert_true(sp_result_expert_hidden_ms(&r.result) == 0.0);
        assert_true(busy_ns < r.result.busy_ns);
        // Packs that wait for the slowest of a round hide as it does.
        assert_true(all_ns <= r.result.ep_ns * (1.0 + 1e-9));
    }
}

// The same where other work stands between the actions of a pair, or GPUs differ.
TEST(overlapped_steps_beside_other_work)
{
    static const char *const beside[] = {"'parallel': {'vocab_parallel': true, ",
                                         "'parallel': {'zero': 3, ",
                                         "'jitter': {'gpu_cv': 0.05}, 'parallel': {",
                                         "'network': {'detail': 'auto'}, 'parallel': {"};
    for (int i = 0; i < COUNT_OF(beside); i++) {
        SCENARIO_RUN(
            r,
            json_text("{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, "
                      "'vocab': 1000, 'experts': 8, 'experts_per_token': 2}, 'cluster': "
                      "'h100-8', 'workload': {'lengths': %s, 'context': 4096}, %s'dp': 4, "
                      "'ep': 4, 'pp': 2, 'chunks_per_rank': 2}, 'stack': {'name': "
                      "'megatron-core-2025', 'dispatcher': 'deepep', 'expert_overlap': true}}",
                      uneven, beside[i]),
            &run_verified);
        assert_true(sp_result_expert_hidden_ms(&r.result) > 0.0);
        assert_true(r.result.ep_ns >= r.result.ep_wait_ns);
    }
}

TEST(shared_experts_beside_exchanges)
{
    AUTO(scenario_run) beside;
    SCENARIO_RUN(apart, json_text(STEP, ", 'shared_ffn': 1024", uneven, 1, 1, "", "1f1b", "none"),
                 &run_verified);
    run_good(json_text(STEP, ", 'shared_ffn': 1024", uneven, 1, 1,
                       ", 'shared_expert_overlap': true", "1f1b", "none"),
             &run_verified, &beside);
    assert_true(beside.result.iteration_ns < apart.result.iteration_ns);
    assert_true(beside.result.ep_ns < apart.result.ep_ns);
    // Slower products, and no more hidden than the exchanges take.
    assert_true(beside.result.busy_ns - beside.result.ep_ns >=
                apart.result.busy_ns - apart.result.ep_ns);
    assert_true(beside.result.batches[0].facts.lower_bound_ns <=
                (double)beside.result.batches[0].iteration_ns);
}

// Refused where it is read or resolved, in words that name the setting.
static void refuses(const char *text, const char *word)
{
    AUTO(sp_scenario) scenario;
    sp_status status = run_read(text, &scenario, ERR);
    if (status == SP_OK) {
        AUTO(scenario_run) r;
        status = run_text(text, &run_verified, &r, ERR);
    }
    assert_int_equal(status, SP_ERR_CONTENT);
    must_hold(strstr(ERR->message[0], word) != NULL, "%s: %s", word, ERR->message[0]);
    sp_error_clear(ERR);
}

static void refuses_step(const char *model, int pp, int chunks, const char *on,
                         const char *schedule, const char *mode, const char *word)
{
    refuses(json_text(STEP, model, "[4096, 4096]", pp, chunks, on, schedule, mode), word);
}

TEST(what_does_not_go_with_an_overlap)
{
    static const char on[] = ", 'expert_overlap': true";
    refuses_step("", 2, 2, on, "interleaved", "full", "stack.expert_overlap");
    refuses_step("", 2, 1, on, "1f1b", "none", "stack.expert_overlap");
    refuses(json_text("{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': "
                      "1000, 'experts': 8, 'experts_per_token': 2}, 'cluster': 'h100-8', "
                      "'workload': {'uniform': 4096}, 'parallel': {'dp': 4, 'ep': 4, 'pp': 2, "
                      "'chunks_per_rank': 2}, 'stack': {'expert_overlap': true}, 'memory': "
                      "{'offload_ratio': 0.5}}"),
            "stack.expert_overlap");
    refuses_step("", 2, 1, on, "zb-h1", "none", "stack.expert_overlap");
    refuses_step("", 2, 1, on, "gpipe", "none", "stack.expert_overlap");
    refuses_step(", 'shared_ffn': 512", 2, 2,
                 ", 'expert_overlap': true, 'shared_expert_overlap': true", "interleaved", "none",
                 "stack.shared_expert_overlap");
    refuses_step(", 'shared_ffn': 512", 1, 1,
                 ", 'dispatcher': 'deepep', 'shared_expert_overlap': true", "1f1b", "none",
                 "stack.shared_expert_overlap");
    refuses_step("", 1, 1, ", 'delay_wgrad': true", "1f1b", "none", "stack.delay_wgrad");
    refuses_step(", 'expert_groups': 3, 'expert_group_top_k': 2", 1, 1, "", "1f1b", "none",
                 "model.expert_groups");
    refuses_step(", 'expert_groups': 8, 'expert_group_top_k': 1", 1, 1, "", "1f1b", "none",
                 "model.expert_group_top_k");
    refuses_step(", 'expert_groups': 4", 1, 1, "", "1f1b", "none", "model.expert_group_top_k");
}
