// Requests as documents: what is written is read, and nothing else is.
#include <stdlib.h>

#include "sim/base/json.h"
#include "tests/support/host_random.h"
#include "tests/support/host_run.h"
#include "tests/support/record_text.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static const sp_backend_option options[] = {{"clip", "0.5"}, {"dropout", "0.25"}};

// Times of links, the caller's.
static sp_link_times draw_links(const sp_plan *plan, sp_prng *prng)
{
    sp_link_times links;
    size_t forward = plan->packing->forward.count;
    size_t backward = sp_packing_backward(plan->packing)->count;
    assert_int_equal(sp_link_times_init(&links, forward, backward, plan->layout.pp, NULL), SP_OK);
    for (size_t k = 0; k < forward; k++) {
        links.f_ns[k] = (int64_t)sp_prng_below(prng, 1000000000000001);
        links.f_internode_ns[k] = (int64_t)sp_prng_below(prng, 1000);
    }
    for (size_t k = 0; k < backward; k++) {
        links.b_ns[k] = (int64_t)sp_prng_below(prng, 1000);
        links.b_internode_ns[k] = (int64_t)sp_prng_below(prng, 1000);
    }
    for (int p = 0; p < plan->layout.pp; p++) {
        links.crosses_nodes[p] = sp_prng_below(prng, 2) == 1;
    }
    return links;
}

static void links_must_equal(const sp_link_times *a, const sp_link_times *b, int pp)
{
    assert_int_equal(a == NULL, b == NULL);
    if (a != NULL) {
        assert_int_equal(a->forward_packs, b->forward_packs);
        assert_int_equal(a->backward_packs, b->backward_packs);
        assert_memory_equal(a->f_ns, b->f_ns, a->forward_packs * sizeof *a->f_ns);
        assert_memory_equal(a->f_internode_ns, b->f_internode_ns,
                            a->forward_packs * sizeof *a->f_ns);
        assert_memory_equal(a->b_ns, b->b_ns, a->backward_packs * sizeof *a->b_ns);
        assert_memory_equal(a->b_internode_ns, b->b_internode_ns,
                            a->backward_packs * sizeof *a->b_ns);
        assert_memory_equal(a->crosses_nodes, b->crosses_nodes, (size_t)pp);
    }
}

// A request with no member at its default.
static sp_run_request request_of(const sp_plan *plan, const sp_model *model,
                                 const sp_memory_options *memory)
{
    return (sp_run_request){.plan = plan,
                            .model = model,
                            .memory = memory,
                            .clock = SP_CLOCK_WALL,
                            .precision = SP_BF16,
                            .seed = INT64_MAX,
                            .steps = 3,
                            .memory_limit_bytes = (INT64_C(1) << 53) + 1,
                            .timeout_ns = 12345678901,
                            .memory_points = true,
                            .options = options,
                            .option_count = 2};
}

static void must_equal(const sp_run_request *a, const sp_request_file *file)
{
    const sp_run_request b = sp_request_of_batch(file, 0);
    assert_string_equal(file->backend, "cuda");
    assert_int_equal(a->clock, b.clock);
    assert_int_equal(a->precision, b.precision);
    assert_true(a->seed == b.seed);
    assert_int_equal(a->steps, b.steps);
    assert_true(a->memory_limit_bytes == b.memory_limit_bytes);
    assert_true(a->timeout_ns == b.timeout_ns);
    assert_true(a->memory_points == b.memory_points);
    assert_int_equal(a->option_count, b.option_count);
    for (size_t o = 0; o < a->option_count; o++) {
        assert_string_equal(a->options[o].key, b.options[o].key);
        assert_string_equal(a->options[o].value, b.options[o].value);
    }
    assert_string_equal(a->model->name, b.model->name);
    assert_int_equal(sp_model_parameters(a->model), sp_model_parameters(b.model));
    assert_int_equal(a->memory->recompute, b.memory->recompute);
    assert_int_equal(a->memory->attention, b.memory->attention);
    assert_true(a->memory->offload_ratio == b.memory->offload_ratio);
    assert_string_equal(a->memory->stack.name, b.memory->stack.name);
    const sp_layout *from = &a->plan->layout;
    const sp_layout *to = &b.plan->layout;
    links_must_equal(a->links, b.links, from->pp);
    const int numbers[][2] = {{from->tp, to->tp},
                              {from->cp, to->cp},
                              {from->pp, to->pp},
                              {from->dp, to->dp},
                              {from->chunks, to->chunks},
                              {from->zero, to->zero},
                              {(int)from->placement, (int)to->placement},
                              {(int)from->cp_sharding, (int)to->cp_sharding},
                              {from->sequence_parallel, to->sequence_parallel},
                              {from->vocab_parallel, to->vocab_parallel}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        assert_int_equal(numbers[i][0], numbers[i][1]);
    }
    for (int s = 0; s < sp_layout_vstages(from); s++) {
        assert_int_equal(from->stage_layers[s], to->stage_layers[s]);
    }
    for (int r = 0; r < from->dp * from->pp; r++) {
        assert_int_equal(a->plan->stages[r].count, b.plan->stages[r].count);
        assert_memory_equal(a->plan->stages[r].actions, b.plan->stages[r].actions,
                            a->plan->stages[r].count * sizeof(sp_action));
    }
}

static void random_plans_come_back(void **state)
{
    (void)state;
    sp_prng prng;
    sp_model models[] = {host_llama(), host_gpt()};
    sp_prng_seed(&prng, 11);
    for (int round = 0; round < 200; round++) {
        random_plan r;
        int layers[HOST_STAGES];
        sp_request_file file;
        sp_memory_options memory = {.recompute = (sp_recompute)(round % SP_RECOMPUTE_MODES),
                                    .offload_ratio = 1.0 / 3.0};
        assert_true(sp_stack_builtin(round % 2 == 0 ? "reference" : "ours", &memory.stack));
        bool wanted = host_random_plan(&prng, 4, layers, &r);
        r.plan.layout.sequence_parallel = round % 3 == 0;
        r.plan.layout.cp_sharding = (sp_cp_sharding)(round % 4);
        if (wanted) {
            sp_run_request run = request_of(&r.plan, &models[round % 2], &memory);
            sp_link_times links = draw_links(&r.plan, &prng);
            run.links = round % 3 > 0 ? &links : NULL;
            record_request_file("cuda", &run, &file);
            must_equal(&run, &file);
            // What was read is written as it was.
            const sp_run_request read = sp_request_of_batch(&file, 0);
            char *first = record_request_text("cuda", &run);
            char *again = record_request_text("cuda", &read);
            assert_string_equal(first, again);
            free(first);
            free(again);
            sp_link_times_fini(&links);
            sp_request_file_fini(&file);
        }
        random_plan_fini(&r);
    }
}

typedef struct wrong {
    const char *path, *value; // of the edit; NULL: taken out
    const char *says;
} wrong;

static void random_request(random_plan *r, int layers[HOST_STAGES], sp_model *model,
                           sp_memory_options *memory, sp_run_request *run)
{
    sp_prng prng;
    sp_prng_seed(&prng, 5);
    while (!host_random_plan(&prng, 4, layers, r) || r->layout.pp < 2 || r->layout.dp < 2 ||
           r->plan.stages[0].count == 0) {
        random_plan_fini(r);
    }
    *model = host_llama();
    *memory = (sp_memory_options){.recompute = SP_RECOMPUTE_NONE};
    assert_true(sp_stack_builtin("reference", &memory->stack));
    *run = request_of(&r->plan, model, memory);
}

static void wrong_documents_are_refused(void **state)
{
    (void)state;
    static const wrong cases[] = {
        {"schema", "\"slimpack/plan/1\"", "request: schema: expected "},
        {"backend", NULL, "request: key 'backend' is missing"},
        {"clock", "\"sundial\"", "request: clock: "},
        {"precision", "32", "request: precision: "},
        {"steps", "0", "request: steps: expected an integer from 1"},
        {"seed", "-1", "request: seed: "},
        {"stepps", "1", "unknown key 'stepps' (did you mean 'steps'?)"},
        {"options", "[]", "request: options: expected an object"},
        {"options.clip", "1", "request: options: clip: expected text, got 1"},
        {"model.heads", "0", "request: model.heads: "},
        {"model", NULL, "key 'model' is missing"},
        {"memory.recompute", "\"some\"", "request: memory.recompute: "},
        {"memory.stack", NULL, "key 'stack' is missing"},
        {"memory.stack.bucket_gib", "1", "unknown key"},
        {"parallel.pp", NULL, "key 'pp' is missing"},
        {"parallel.order", "\"tp-tp-dp-pp\"",
         "request: parallel.order: expected tp, cp, dp and pp"},
        {"parallel.tp", "3", "request: parallel.tp: 4 attention heads cannot be split over 3"},
        {"parallel.stage_layers", "[1]", "request: parallel.stage_layers: expected "},
        {"parallel.stage_layers.0", "-1", "request: parallel.stage_layers[0]: "},
        {"parallel.stage_layers.0", "9", "request: parallel.stage_layers: "},
        {"plan", NULL, "key 'plan' is missing"},
        {"plan.batches.0.stages.0.actions.0", "\"X0\"", "request: plan: batches[0].stages[0]"},
        {"plan.batches.0.stages.0.actions.0", NULL, "request: plan: batches[0]"},
        {"links", "7", "request: links: expected one object for each of 1 batches, got 7"},
        {"links", "[]", "request: links: expected one object for each of 1 batches, got []"},
        {"links.0", "[]", "request: links[0]: expected an object"},
        {"links.0.forward_ns", NULL, "request: links[0]: key 'forward_ns' is missing"},
        {"links.0.backward_far_ns", "[]", "request: links[0].backward_far_ns: expected "},
        {"links.0.backward_ns", "3", "request: links[0].backward_ns: expected "},
        {"links.0.forward_ns.0", "-1",
         "request: links[0].forward_ns[0]: expected nanoseconds from 0 to 10^15, got -1"},
        {"links.0.forward_far_ns.0", "0.5", "request: links[0].forward_far_ns[0]: expected "},
        {"links.0.backward_ns.0", "1000000000000001", "request: links[0].backward_ns[0]: "},
        {"links.0.far.1", "1", "request: links[0].far[1]: expected true or false, got 1"},
        {"links.0.far", "[true]", "request: links[0].far: expected 2 values, got [true]"},
        {"links.0.fair", "[]", "unknown key 'fair' (did you mean 'far'?)"},
    };
    random_plan r;
    int layers[HOST_STAGES];
    sp_model model;
    sp_memory_options memory;
    sp_run_request run;
    random_request(&r, layers, &model, &memory, &run);
    assert_int_equal(r.layout.pp, 2);
    sp_prng prng;
    sp_prng_seed(&prng, 3);
    sp_link_times links = draw_links(&r.plan, &prng);
    run.links = &links;
    char *text = record_request_text("cuda", &run);
    sp_link_times_fini(&links);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_request_file file;
        sp_error err = {0};
        json_t *root = json_loads(text, 0, NULL);
        record_edit(root, cases[i].path, cases[i].value);
        assert_int_equal(sp_request_json_read(root, "request", &file, &err), SP_ERR_CONTENT);
        record_must_say(&err, cases[i].says);
        assert_null(file.document);
    }
    free(text);
    random_plan_fini(&r);
}

static void what_a_document_cannot_hold(void **state)
{
    (void)state;
    random_plan r;
    int layers[HOST_STAGES];
    sp_model model;
    sp_memory_options memory;
    sp_run_request run;
    random_request(&r, layers, &model, &memory, &run);
    const sp_backend_option twice[] = {{"clip", "1"}, {"clip", "2"}};
    sp_run_request uniform = run;
    sp_run_request seed = run;
    sp_run_request repeated = run;
    uniform.model = NULL;
    seed.seed = (uint64_t)INT64_MAX + 1;
    repeated.options = twice;
    const sp_run_request *const cases[] = {&uniform, &seed, &repeated};
    FILE *file = tmpfile();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_error err = {0};
        assert_int_equal(sp_request_json_begin(file, "cuda", cases[i], NULL, &err), SP_ERR_CONTENT);
        assert_int_equal(ftell(file), 0);
    }
    fclose(file);
    random_plan_fini(&r);
}

static void other_models_layouts_and_memory_are_told(void **state)
{
    (void)state;
    random_plan r;
    int layers[HOST_STAGES];
    sp_model model;
    sp_memory_options memory;
    sp_run_request run;
    sp_request_file file;
    sp_error err = {0};
    random_request(&r, layers, &model, &memory, &run);
    record_request_file("cuda", &run, &file);
    sp_layout layout = r.plan.layout;
    must_succeed("same", sp_request_compare(&file, &model, &layout, &memory, "x", &err), &err);
    model.ffn = 96;
    assert_int_equal(sp_request_compare(&file, &model, &layout, &memory, "x", &err),
                     SP_ERR_CONTENT);
    assert_string_equal(err.message[0], "x: model.ffn: executed with 48, the scenario has 96");
    model.ffn = 48;
    layout.stage_layers = NULL;
    sp_error_clear(&err);
    assert_int_equal(sp_request_compare(&file, &model, &layout, &memory, "x", &err),
                     SP_ERR_CONTENT);
    record_must_say(&err, "x: parallel.stage_layers: ");
    memory.stack.work_spaces = 9;
    layout = r.plan.layout;
    sp_error_clear(&err);
    assert_int_equal(sp_request_compare(&file, &model, &layout, &memory, "x", &err),
                     SP_ERR_CONTENT);
    record_must_say(&err, "x: memory.stack: ");
    sp_request_file_fini(&file);
    random_plan_fini(&r);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_plans_come_back),
    cmocka_unit_test(wrong_documents_are_refused),
    cmocka_unit_test(what_a_document_cannot_hold),
    cmocka_unit_test(other_models_layouts_and_memory_are_told),
};

SP_TEST_MAIN(tests)
