// The plain step's gradient against central differences of its loss, in fp64, and its loss against
// its definition.
#include "backends/executor/run.h"
#include "backends/host/host.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/test_main.h"

static int64_t ids[] = {3, 8, 5};
static int64_t tokens[] = {7, 12, 1};
static const sp_batch batch = {.ids = ids, .tokens = tokens, .count = 3, .total_tokens = 20};

// A run that can be taken anywhere: its parameters are set, its loss is read.
typedef struct probe {
    sp_layout layout;
    sp_packing packing;
    sp_plan plan;
    sp_backend_option options[2];
    sp_run_request request;
    host_plain plain;
    sp_i_exec_run *run;
} probe;

// A loss with experts jumps where a token changes one of its own: so small a step does not get
// there.
static double step_of(const sp_model *model)
{
    return sp_model_most_experts(model) > 0 ? 2e-6 : 2e-4;
}

static void probe_make(const sp_model *model, const char *dropout, probe *p)
{
    *p = (probe){.layout = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .chunks = 1},
                 .options = {{"learning_rate", "0"}, {"dropout", dropout}}};
    sp_packing_init(&p->packing, &batch, 1);
    sp_plan_init(&p->plan, &p->layout, &p->packing);
    p->request = (sp_run_request){RUN_OF(&p->plan, model, NULL), RUN_STEPS(SP_FP64, 11, 1),
                                  RUN_OPTIONS(p->options, 2)};
    host_plain_make(&p->request, &p->plain);
    assert_int_equal(sp_i_host_run_new_cpu(&p->plain.request, &p->run, NULL), SP_OK);
}

static void probe_fini(probe *p)
{
    sp_i_exec_run_free(p->run);
    host_plain_fini(&p->plain);
    sp_plan_fini(&p->plan);
    sp_packing_fini(&p->packing);
}

static double loss(const probe *p)
{
    sp_measured_step step = {0};
    // The same tokens every time.
    p->run->steps_done = 0;
    must_succeed(sp_i_exec_run_step(p->run, &step, ERR));
    sp_timeline_fini(&step.timeline);
    sp_memory_timeline_fini(&step.memory);
    assert_true(step.has_loss);
    return step.loss;
}

// The five-point difference, whose error is of the order of step^4, and of the loss's rounding over
// the step.
static double difference(const probe *p, double step, double *at)
{
    const double move[4] = {-2.0, -1.0, 1.0, 2.0};
    const double share[4] = {1.0, -8.0, 8.0, -1.0};
    double here = *at;
    double sum = 0.0;
    for (int i = 0; i < 4; i++) {
        *at = here + move[i] * step;
        sum += share[i] * loss(p);
    }
    *at = here;
    return sum / (12.0 * step);
}

enum { PLACES = 5 };

static void follows_differences(sp_model model, const char *dropout)
{
    AUTO(probe) p;
    probe_make(&model, dropout, &p);
    const sp_i_exec_weights *weights = &p.run->weights[0];
    double *values = p.run->ranks[0].states.values;
    double *gradients = p.run->ranks[0].states.gradients;
    // Away from the start, where biases are zero and norms one.
    for (int64_t i = 0; i < weights->elements; i++) {
        values[i] += 0.05 * sin(1.7 * (double)i);
    }
    double first = loss(&p);
    assert_within(first, log((double)model.vocab), 2.0);
    AUTO_FREE double *expected = sp_calloc((size_t)weights->elements, sizeof *expected);
    memcpy(expected, gradients, (size_t)weights->elements * sizeof *expected);
    for (size_t w = 0; w < weights->count; w++) {
        const sp_i_exec_weight *weight = &weights->items[w];
        double error = 0.0, size = 0.0;
        for (int k = 0; k < PLACES; k++) {
            int64_t at = weight->offset + weight->elements * k / PLACES + k % 3;
            at = at < weight->offset + weight->elements ? at : weight->offset;
            double measured = difference(&p, step_of(&model), &values[at]);
            error += (measured - expected[at]) * (measured - expected[at]);
            size += expected[at] * expected[at];
        }
        must_hold(sqrt(error) <= 1e-6 * sqrt(size) + 1e-9,
                  "%s: differences are off by %.3g of %.3g", weight->name, sqrt(error), sqrt(size));
    }
}

TEST_CALL(llama_follows_differences, follows_differences(host_llama(), "0"))

TEST(tied_llama_follows_differences)
{
    sp_model model = host_llama();
    model.tied_embeddings = true;
    model.qkv_bias = true;
    model.kv_heads = 1;
    follows_differences(model, "0");
}

TEST_CALL(gpt_follows_differences, follows_differences(host_gpt(), "0"))

TEST_CALL(dropout_follows_differences, follows_differences(host_gpt(), "0.3"))

// Samples of 7, 12 and 1 tokens: windows and chunks cut the first two.
TEST(windows_and_chunks_follow_differences)
{
    sp_model model = host_llama();
    model.window_tokens = 4;
    follows_differences(model, "0");
    model = host_llama();
    model.chunk_tokens = 5;
    follows_differences(model, "0");
}

TEST_CALL(kinds_of_layers_follow_differences, follows_differences(host_kinds(), "0"))

TEST_CALL(routed_layers_follow_differences, follows_differences(host_routed(), "0"))

// Biases everywhere, dropout, and a token in all experts of two.
TEST(biased_routed_layers_follow_differences)
{
    sp_model model = host_gpt();
    model.layers = 2;
    model.router_bias = true;
    model.experts = 3;
    model.experts_per_token = 3;
    model.shared_ffn = 20;
    model.shared_gate = true;
    follows_differences(model, "0.3");
    model.experts_per_token = 1;
    follows_differences(model, "0");
}

// The weight of a name without its expert's number in a list; NULL: none.
static const sp_i_exec_weight *weight_of(const sp_i_exec_weights *weights, const char *name)
{
    for (size_t w = 0; w < weights->count; w++) {
        if (strcmp(weights->items[w].name, name) == 0) {
            return &weights->items[w];
        }
    }
    return NULL;
}

// "layers.0.experts.3.fc1.weight" is "layers.0.fc1.weight".
static void name_dense(const char *name, char *dense)
{
    const char *part = strstr(name, ".experts.");
    size_t before = part != NULL ? (size_t)(part - name) : strlen(name);
    const char *rest = part != NULL ? strchr(part + strlen(".experts."), '.') : "";
    sprintf(dense, "%.*s%s", (int)before, name, rest);
}

// The number of a weight's expert, of names as above; 0: of none.
static int expert_of(const char *name)
{
    const char *part = strstr(name, ".experts.");
    return part != NULL ? atoi(part + strlen(".experts.")) : 0;
}

// What an expert gives, of what the dense MLP does.
static double share_of(int expert)
{
    return 1.0 + 0.75 * expert;
}

// Experts are copies of one dense MLP, each of which gives its own share of what that gives. Where
// nothing but the router's bias chooses, all tokens go to the same experts with the same weights,
// so that the layer is the dense one with the weighed mean of their shares.
static void experts_are_shares(const double *bias, int experts, int active, double mean)
{
    AUTO(probe) dense, routed;
    sp_model model = host_llama();
    sp_model mixture = model;
    mixture.experts = experts;
    mixture.experts_per_token = active;
    mixture.router_bias = true;
    probe_make(&model, "0", &dense);
    probe_make(&mixture, "0", &routed);
    const sp_i_exec_weights *to = &routed.run->weights[0];
    double *values = routed.run->ranks[0].states.values;
    double *from = dense.run->ranks[0].states.values;
    for (size_t w = 0; w < to->count; w++) {
        const sp_i_exec_weight *weight = &to->items[w];
        char name[SP_I_EXEC_WEIGHT_NAME];
        name_dense(weight->name, name);
        const sp_i_exec_weight *one = weight_of(&dense.run->weights[0], name);
        bool is_last = strstr(name, ".fc2.weight") != NULL;
        for (int64_t i = 0; i < weight->elements; i++) {
            values[weight->offset + i] =
                one != NULL
                    ? from[one->offset + i] * (is_last ? share_of(expert_of(weight->name)) : 1.0)
                : strstr(name, "bias") != NULL ? bias[i]
                                               : 0.0;
        }
    }
    for (size_t w = 0; w < dense.run->weights[0].count; w++) {
        const sp_i_exec_weight *weight = &dense.run->weights[0].items[w];
        bool is_last = strstr(weight->name, ".fc2.weight") != NULL;
        for (int64_t i = 0; i < weight->elements; i++) {
            from[weight->offset + i] *= is_last ? mean : 1.0;
        }
    }
    assert_within(loss(&routed), loss(&dense), 1e-13);
}

// By the definition: the largest logits, and the softmax over these.
TEST(weighed_experts_are_one_mlp)
{
    static const double bias[] = {0.3, -0.5, 1.2, 0.9, -1.0};
    static const int by_size[] = {2, 3, 0, 1, 4};
    for (int active = 1; active <= 5; active++) {
        double sum = 0.0, mean = 0.0;
        for (int i = 0; i < active; i++) {
            sum += exp(bias[by_size[i]]);
            mean += exp(bias[by_size[i]]) * share_of(by_size[i]);
        }
        experts_are_shares(bias, 5, active, mean / sum);
    }
}

TEST(latent_attention_follows_differences)
{
    for (int of_queries = 0; of_queries < 2; of_queries++) {
        sp_model model = host_latent(of_queries != 0);
        model.runs = model.kinds = 0;
        model.layers = 2;
        follows_differences(model, "0");
        model.norm = SP_LAYERNORM;
        model.bias = true;
        model.window_tokens = 4;
        follows_differences(model, "0");
    }
}

// With all parameters zero every token is equally likely.
TEST(loss_of_equal_logits)
{
    AUTO(probe) p;
    sp_model model = host_llama();
    probe_make(&model, "0", &p);
    memset(p.run->ranks[0].states.values, 0, (size_t)p.run->weights[0].elements * sizeof(double));
    assert_within(loss(&p), log(61.0), 1e-14);
}
