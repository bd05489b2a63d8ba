#include "tests/gpu/support/emulated_plans.h"

#include "tests/gpu/support/emulated_backend.h"
#include "tests/support/execution_rules.h"
#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// ---- gradients ----

// `plain` has started from the same parameters, `unrounded` from those before they were rounded.
static void must_be_near(const sp_run *run, const sp_run *plain, const sp_run *unrounded)
{
    AUTO(sp_proof) proof;
    must_succeed(sp_proof_compare(run, plain, unrounded, SP_BF16, &proof, ERR));
    const sp_proven_tensor *worst = &proof.tensors[proof.worst];
    must_hold(proof.holds, "%s: off by %.3g, over the bound of %.3g", worst->name, worst->error,
              worst->bound);
}

// ---- memory ----

// The next point at which something else is held; point_count behind the last.
static size_t next_change(const sp_rank_memory *memory, size_t i)
{
    const sp_bytes *now = &memory->points[i].bytes;
    while (i < memory->point_count && memcmp(&memory->points[i].bytes, now, sizeof *now) == 0) {
        i++;
    }
    return i;
}

// The same one after the other, whatever the times.
static void must_hold_alike(const sp_rank_memory *a, const sp_rank_memory *b)
{
    for (int k = 0; k < SP_MEM_CATEGORIES; k++) {
        must_hold(a->peak.of[k] == b->peak.of[k], "peak: %s %lld, on the CPU %lld",
                  sp_memory_category_names[k], (long long)a->peak.of[k], (long long)b->peak.of[k]);
    }
    size_t i = 0, j = 0;
    while (i < a->point_count && j < b->point_count) {
        assert_memory_equal(&a->points[i].bytes, &b->points[j].bytes, sizeof a->points[i].bytes);
        i = next_change(a, i);
        j = next_change(b, j);
    }
    assert_true(i == a->point_count && j == b->point_count);
}

// Where copies or shares of a vocabulary go beside actions, times decide what is held with what.
static void memory_must_be_alike(const sp_measured_step *step, const sp_measured_step *cpu)
{
    for (size_t r = 0; r < step->timeline.rank_count; r++) {
        const sp_rank_timeline *line = &step->timeline.ranks[r];
        if (line->copy_count == 0 && line->share_count == 0) {
            must_hold_alike(&step->memory.ranks[r], &cpu->memory.ranks[r]);
        }
    }
}

static int64_t most_offloaded(const sp_measured_step *step)
{
    int64_t most = 0;
    for (size_t r = 0; r < step->timeline.rank_count; r++) {
        const sp_rank_memory *memory = &step->memory.ranks[r];
        for (size_t i = 0; i < memory->point_count; i++) {
            int64_t away = memory->points[i].bytes.of[SP_MEM_OFFLOADED];
            most = away > most ? away : most;
        }
    }
    return most;
}

// ---- one plan ----

const char *emulated_cudnn = "off";

enum { OPTIONS = 8 };

// Runs of one plan: on the emulated device, on the CPU, and the plain step from rounded parameters
// and from the others. They read their requests as long as they are there.
typedef struct runs {
    sp_backend_option options[OPTIONS];
    sp_run_request of_own, of_cpu, of_plain;
    host_plain whole;
    sp_run *own, *cpu, *plain, *unrounded;
} runs;

static void run_all(const sp_backend *backend, const host_device *cpu,
                    const sp_run_request *request, runs *r)
{
    const host_device device = {.backend = backend};
    *r = (runs){.options = {{"stale", "on"}, {"cudnn", emulated_cudnn}, {"rounded", "true"}},
                .of_own = *request};
    assert_true(request->option_count + 3 <= OPTIONS);
    for (size_t o = 0; o < request->option_count; o++) {
        r->options[o + 3] = request->options[o];
    }
    host_plain_make(request, &r->whole);
    r->of_own.options = r->options;
    r->of_own.option_count = request->option_count + 3;
    r->of_cpu = r->of_own;
    r->of_cpu.precision = SP_FP32;
    r->of_plain = r->whole.request;
    r->of_cpu.options = r->of_plain.options = r->options + 2;
    r->of_cpu.option_count = r->of_plain.option_count = request->option_count + 1;
    r->own = host_run(&device, &r->of_own);
    r->cpu = host_run(cpu, &r->of_cpu);
    r->plain = host_run(cpu, &r->of_plain);
    r->unrounded = host_run(cpu, &r->whole.request);
}

static void free_all(runs *r)
{
    sp_run_free(r->own);
    sp_run_free(r->cpu);
    sp_run_free(r->plain);
    sp_run_free(r->unrounded);
    host_plain_fini(&r->whole);
}

int64_t emulated_request_agrees(const sp_run_request *request)
{
    static const emulated_device one_gpu = {emulated_backend_new, emulated_backend_free};
    return emulated_request_agrees_on(&one_gpu, request);
}

int64_t emulated_request_agrees_on(const emulated_device *device, const sp_run_request *request)
{
    runs r;
    host_device cpu;
    sp_backend *backend = device->make();
    host_open(&cpu);
    run_all(backend, &cpu, request, &r);
    const sp_measured_step *step = sp_run_step(r.own, 0);
    must_be_near(r.own, r.plain, r.unrounded);
    memory_must_be_alike(step, sp_run_step(r.cpu, 0));
    execution_must_hold(request->plan, step, true);
    int64_t most = most_offloaded(step);
    free_all(&r);
    host_device_fini(&cpu);
    device->end(backend);
    return most;
}

typedef struct running {
    const emulated_plan *plan;
    scenario_run run;
    int64_t most_offloaded;
} running;

static sp_status run_plan(void *context, const sp_step_view *view, sp_error *err)
{
    running *r = context;
    const char *dropout = r->plan->dropout != NULL ? r->plan->dropout : "0";
    const sp_backend_option options[] = {{"dropout", dropout}};
    const sp_run_request request = {
        RUN_OF(view->plan, &r->run.scenario.model, &r->run.scenario.memory),
        .clock = r->plan->clock, RUN_STEPS(SP_BF16, 5, 1), RUN_OPTIONS(options, 1),
        .memory_points = true};
    r->most_offloaded = r->plan->device == NULL
                            ? emulated_request_agrees(&request)
                            : emulated_request_agrees_on(r->plan->device, &request);
    return SP_OK;
}

int64_t emulated_plan_agrees(const emulated_plan *plan)
{
    running r = {.plan = plan};
    const sp_evaluate_options options = {
        .no_bounds = true, .observer = run_plan, .observer_context = &r};
    char text[RUN_TEXT] = "";
    put_json(text,
             "{'model': %s, 'cluster': 'h800-8', 'stack': {'fused_swiglu': true}, 'parallel': %s, "
             "'workload': {'lengths': [38, 11, 24, 7], 'order': 'file', "
             "'samples_per_batch': 4, 'context': 64}, %s}",
             plan->model, plan->layout, plan->more);
    run_good(text, &options, &r.run);
    scenario_run_fini(&r.run);
    return r.most_offloaded;
}
