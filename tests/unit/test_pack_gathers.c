// Packs of a job in rings that gather keys and values: each takes what it takes in a job of that
// exchange, the choice between them is the cheaper one, and slimpack is never slower for it.
#include "sim/plan/plan_json.h"
#include "solver/rows.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { RANKS = 8, MOST = 24 };

typedef struct job {
    sp_scenario scenario;
    sp_cost_model cost;
} job;

// One of a pair of jobs that differ in their exchange alone.
static void job_init(job *j, const char *head, const char *exchange)
{
    const char *text = json_text("%s, 'stack': {'cp_overlap': '%s'}, 'workload': {'lengths': [1], "
                                 "'context': 65536}}",
                                 head, exchange);
    must_succeed_for(text, run_read(text, &j->scenario, ERR));
    must_succeed_for(text, sp_scenario_cost_model(&j->scenario, &j->cost, ERR));
}

static void job_fini(job *j)
{
    sp_cost_model_fini(&j->cost);
    sp_scenario_fini(&j->scenario);
}

static const char *random_head(sp_prng *prng)
{
    static const char *const clusters[] = {"a800-8", "h800-8", "h100-8"};
    static const char *const cuts[] = {"even", "even", "document", "sequence"};
    return json_text("{'model': {'layers': 8, 'hidden': %d, 'ffn': 4096, 'heads': 16, 'kv_heads': "
                     "%d, 'vocab': 1000}, 'cluster': '%s', 'strategy': {'cp_sharding': '%s', "
                     "'kind': 'slimpack'}, 'parallel': {'dp': 8, 'cp': %d, 'pp': %d}",
                     prng_below(prng, 2) == 0 ? 1024 : 4096, 1 << prng_below(prng, 5),
                     ONE_OF(prng, clusters), ONE_OF(prng, cuts), 1 << prng_below(prng, 3),
                     1 + prng_below(prng, 2));
}

// Packs of one to three whole samples on aligned ranks, forward and, in the other order, backward.
typedef struct packs {
    int64_t ids[MOST], tokens[MOST];
    sp_batch batch;
    sp_packing packing;
} packs;

static void add_pack(sp_pack_list *list, const packs *p, int first, int degree, int sample,
                     int count)
{
    sp_pack_list_begin(list, first, degree);
    for (int i = sample; i < sample + count; i++) {
        sp_slice slice = {.sample = i, .tokens = p->tokens[i], .computed_tokens = p->tokens[i]};
        sp_pack_list_add(list, slice, true);
    }
}

static void packs_init(packs *p, sp_prng *prng)
{
    int first[MOST], degree[MOST], sample[MOST], samples[MOST];
    int count = 0;
    *p = (packs){.batch = {.ids = p->ids, .tokens = p->tokens}};
    for (int i = 0; i < MOST; i += samples[count++]) {
        degree[count] = 1 << prng_below(prng, 4);
        first[count] = degree[count] * prng_below(prng, RANKS / degree[count]);
        sample[count] = i;
        samples[count] = 1 + prng_below(prng, MOST - i < 3 ? MOST - i : 3);
    }
    for (int i = 0; i < MOST; i++) {
        p->ids[i] = i;
        p->tokens[i] = 1 + prng_below(prng, prng_below(prng, 3) == 0 ? 40000 : 1500);
        p->batch.total_tokens += p->tokens[i];
    }
    p->batch.count = MOST;
    sp_packing_init(&p->packing, &p->batch, RANKS);
    for (int k = 0; k < count; k++) {
        add_pack(&p->packing.forward, p, first[k], degree[k], sample[k], samples[k]);
    }
    for (int k = count - 1; k >= 0; k--) {
        add_pack(&p->packing.backward, p, first[k], degree[k], sample[k], samples[k]);
    }
}

static bool is_shared(const job *j, const sp_pack *pack)
{
    return pack->dp_count * j->scenario.layout.cp > 1;
}

static void same_costs(const sp_action_cost *a, const sp_action_cost *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(a[i].compute_ns, b[i].compute_ns);
        assert_int_equal(a[i].cp_ns, b[i].cp_ns);
        assert_int_equal(sp_action_cost_ns(&a[i]), sp_action_cost_ns(&b[i]));
    }
}

TEST_ROUNDS(all_gather_as_a_job_that_gathers, 31, test_rounds(40))
{
    const char *head = random_head(prng);
    AUTO(job) ring, gathered;
    packs p;
    sp_step_costs a, b;
    job_init(&ring, head, "attention");
    job_init(&gathered, head, "blocking");
    packs_init(&p, prng);
    const sp_strategy_input input = {.scenario = &ring.scenario, .cost = &ring.cost};
    must_succeed(sp_cost_model_build(&gathered.cost, &p.packing, &b, ERR));
    sp_i_gather_packs(&input, true, &p.packing);
    must_succeed(sp_cost_model_build(&ring.cost, &p.packing, &a, ERR));
    const size_t costs = p.packing.forward.count * (size_t)a.classes;
    assert_int_equal(a.classes, b.classes);
    same_costs(a.action[SP_ACTION_F], b.action[SP_ACTION_F], costs);
    same_costs(a.action[SP_ACTION_B], b.action[SP_ACTION_B], costs);
    sp_step_costs_fini(&a);
    sp_step_costs_fini(&b);
    sp_packing_fini(&p.packing);
}

// Of both jobs' prices the lower one, the same for the two sides; a zone has the exchange of its
// job.
TEST(each_pack_takes_the_cheaper_exchange)
{
    sp_prng prng = prng_seeded(32);
    size_t gathers = 0;
    size_t rings = 0;
    for (int round = 0; round < test_rounds(40); round++) {
        const char *head = random_head(&prng);
        job ring, gathered;
        packs p;
        job_init(&ring, head, "attention");
        job_init(&gathered, head, "blocking");
        packs_init(&p, &prng);
        const sp_strategy_input input = {.scenario = &ring.scenario, .cost = &ring.cost};
        sp_pack_list *list = &p.packing.forward;
        const size_t zoned = (size_t)prng_below(&prng, (int)list->count);
        list->slices[list->packs[zoned].first_slice].zone =
            sp_zone_of(list->packs[zoned].dp_first, 1);
        assert_true(sp_i_may_gather(&ring.scenario) && !sp_i_may_gather(&gathered.scenario));
        size_t found = sp_i_gather_packs(&input, false, &p.packing);
        for (size_t k = 0; k < list->count; k++) {
            const sp_pack *pack = &list->packs[k];
            const sp_pack *backward = &p.packing.backward.packs[list->count - 1 - k];
            found -= (size_t)pack->gathers + backward->gathers;
            if (k == zoned) {
                assert_false(pack->gathers);
                continue;
            }
            sp_pack alone = *pack;
            alone.gathers = false;
            double ring_s = sp_cost_model_pack_s(&ring.cost, list, &alone);
            double gathered_s = sp_cost_model_pack_s(&gathered.cost, list, &alone);
            assert_close(sp_cost_model_pack_s(&ring.cost, list, pack), fmin(ring_s, gathered_s),
                         0.0);
            assert_int_equal(pack->gathers, is_shared(&ring, pack) && gathered_s < ring_s);
            assert_int_equal(pack->gathers, backward->gathers);
            gathers += pack->gathers;
            rings += is_shared(&ring, pack) && !pack->gathers;
        }
        assert_int_equal(found, 0);
        sp_packing_fini(&p.packing);
        job_fini(&ring);
        job_fini(&gathered);
    }
    assert_true(gathers > 0 && rings > 0);
}

// ---- slimpack ----

// A plan as its file has it.
typedef struct written {
    FILE *file;
    size_t gathers; // packs of both sides
} written;

static size_t count_gathers(const sp_packing *packing)
{
    size_t count = 0;
    for (int side = 0; side < 2; side++) {
        const sp_pack_list *list = side == 0 ? &packing->forward : &packing->backward;
        for (size_t k = 0; k < list->count; k++) {
            count += list->packs[k].gathers;
        }
    }
    return count;
}

static sp_status write_plan(void *context, const sp_step_view *view, sp_error *err)
{
    const sp_plan_predictions unknown = {.lower_bound_ms = -1.0, .predicted_ms = -1.0};
    written *w = context;
    w->gathers = count_gathers(view->plan->packing);
    return sp_plan_json_batch(w->file, view->batch, view->plan, unknown, err);
}

// The plan that was written has the packs and the time of the one that was made.
static void round_trip(const scenario_run *r, written *w)
{
    AUTO(sp_plan_file) plans;
    AUTO(sp_result) result;
    rewind(w->file);
    json_auto_t *root = json_loadf(w->file, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    must_succeed(sp_plan_json_read(root, "plan", &r->scenario.layout, &plans, ERR));
    assert_int_equal(count_gathers(&plans.packings[0]), w->gathers);
    must_succeed(sp_evaluate_plans(&r->scenario, &plans, &run_verified, &result, ERR));
    assert_close(sp_result_iteration_ms(&result), sp_result_iteration_ms(&r->result), 0.0);
}

static double slimpack_ms(const char *text, const char *options, size_t *gathers)
{
    written w = {.file = tmpfile()};
    sp_evaluate_options writes = run_verified;
    assert_non_null(w.file);
    writes.observer = write_plan;
    writes.observer_context = &w;
    json_t *no_scenario = json_object();
    must_succeed(sp_plan_json_begin(w.file, no_scenario, ERR));
    json_decref(no_scenario);
    SCENARIO_RUN(r, json_text("%s, 'strategy': {%s}}", text, options), &writes);
    must_succeed(sp_plan_json_end(w.file, NULL, NULL, ERR));
    round_trip(&r, &w);
    assert_int_equal(run_warned(&r.result.warnings, "gather keys and values as llama-cp does"),
                     w.gathers > 0);
    double ms = sp_result_is_oom(&r.result) ? HUGE_VAL : sp_result_iteration_ms(&r.result);
    *gathers = w.gathers;
    fclose(w.file);
    return ms;
}

static void put_random_job(sp_prng *prng, char text[RUN_TEXT])
{
    static const char *const clusters[] = {"a800-8", "h800-8", "h100-8"};
    int count = 4 + prng_below(prng, 30);
    put_json(text,
             "{'model': {'layers': 8, 'hidden': %d, 'ffn': 4096, 'heads': 16, 'kv_heads': %d, "
             "'vocab': 1000}, 'cluster': '%s', 'parallel': {'dp': %d, 'cp': %d, 'pp': %d, "
             "'chunks_per_rank': 1}, 'stack': {'cp_overlap': 'attention', 'cp_ring_nics': %d}, "
             "'workload': {'context': 32768, 'lengths': [",
             prng_below(prng, 2) == 0 ? 1024 : 4096, 1 << prng_below(prng, 5),
             ONE_OF(prng, clusters), 1 << prng_below(prng, 5), 2 << prng_below(prng, 3),
             1 << prng_below(prng, 3), prng_below(prng, 2));
    for (int i = 0; i < count; i++) {
        int most = prng_below(prng, 5) == 0 ? 32768 : 2000;
        put_json(text, "%s%d", i > 0 ? ", " : "", 1 + prng_below(prng, most));
    }
    put_json(text, "]}");
}

TEST(slimpack_is_no_slower_for_gathers)
{
    static const char *const kinds[] = {"slimpack", "slimpack-zb"};
    sp_prng prng = prng_seeded(33);
    int faster = 0;
    for (int round = 0; round < test_rounds(12); round++) {
        char text[RUN_TEXT] = "";
        size_t gathers, none;
        put_random_job(&prng, text);
        const char *kind = ONE_OF(&prng, kinds);
        double with_ms = slimpack_ms(text, json_text("'kind': '%s'", kind), &gathers);
        double without_ms =
            slimpack_ms(text, json_text("'gathers': false, 'kind': '%s'", kind), &none);
        assert_int_equal(none, 0);
        must_hold(with_ms <= without_ms, "%s %.6f ms with gathers, %.6f ms without, %s}", kind,
                  with_ms, without_ms, text);
        faster += gathers > 0 && with_ms < without_ms;
    }
    assert_true(faster > 0);
}
