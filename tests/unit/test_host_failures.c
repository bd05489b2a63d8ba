// Actions that fail, stall or find no memory on demand: with pipeline stages alone, with ranks that
// share a layer or a pack, in either clock, in the first step and in the second. The run ends by
// itself with the rank, the action and the first reason. Limits of memory and of time do the same.
#include "tests/support/failing_run.h"
#include "tests/support/test_main.h"

typedef struct demand {
    const char *key;
    sp_status status;
    const char *reason[SP_CLOCKS];
} demand;

static void fail_on_demand(const failing_run *f, const demand *d, const char *action, int dp,
                           int pp, const char *step, sp_error *err)
{
    char value[FAILING_PLACE];
    snprintf(value, sizeof value, "%s@%d.%d", action, dp, pp);
    const sp_backend_option options[] = {{d->key, value}, {"fault_step", step}};
    sp_run_request request = f->request;
    request.options = options;
    request.option_count = 2;
    failing_run_must(f, &request, d->status, err);
}

// The first message is that of the rank and the action in question, whatever became of the others.
static void demand_everywhere(const demand *d, sp_clock clock)
{
    for (int s = 0; s < FAILING_SHAPES; s++) {
        AUTO(failing_run) f;
        failing_run_make(&f, &failing_shapes[s], clock);
        int stages = f.layout.dp * f.layout.pp;
        for (int r = 0; r < stages; r++) {
            const sp_stage_plan *stage = sp_plan_stage(&f.plan, r / 2, r % 2);
            size_t stride = stages > 2 ? 3 : 1;
            for (size_t a = (size_t)r % stride; a < stage->count; a += stride) {
                char name[32], place[FAILING_PLACE];
                char expected[2 * FAILING_PLACE];
                sp_action_name(stage->actions[a], 1, name);
                fail_on_demand(&f, d, name, r / 2, r % 2, a % 2 == 0 ? "1" : "2", ERR);
                snprintf(place, sizeof place, "dp %d pp %d: %s: ", r / 2, r % 2, name);
                snprintf(expected, sizeof expected, "%s%s", place, d->reason[clock]);
                must_hold(strstr(ERR->message[0], expected) != NULL, "expected \"%s\", got \"%s\"",
                          expected, ERR->message[0]);
            }
        }
    }
}

static const demand fails = {"fail", SP_ERR_INTERNAL, {"it fails on demand", "it fails on demand"}};
static const demand stalls = {"stall", SP_ERR_LIMIT, {"", "waits for ever for its own end"}};
static const demand exhausts = {
    "exhaust", SP_ERR_INFEASIBLE, {"it finds no memory, on demand", "it finds no memory"}};

TEST_CALL(failing_action, demand_everywhere(&fails, SP_CLOCK_VIRTUAL))
TEST_CALL(failing_action_on_the_wall_clock, demand_everywhere(&fails, SP_CLOCK_WALL))
TEST_CALL(stalled_action, demand_everywhere(&stalls, SP_CLOCK_VIRTUAL))
TEST_CALL(stalled_action_on_the_wall_clock, demand_everywhere(&stalls, SP_CLOCK_WALL))
TEST_CALL(exhausted_action, demand_everywhere(&exhausts, SP_CLOCK_VIRTUAL))
TEST_CALL(exhausted_action_on_the_wall_clock, demand_everywhere(&exhausts, SP_CLOCK_WALL))

// Ranks that wait say for what: another stage's action, or the peers of an exchange.
TEST(who_waits_for_what)
{
    static const char *const lines[FAILING_SHAPES] = {
        "dp 0 pp 1: F0: waits for F0 of dp 0 pp 0",
        "tp 1 of dp 0 pp 0: F0: waits for tp 0 of dp 0 pp 0 (",
        "cp 1 of dp 0 pp 0: F0: waits for cp 0 of dp 0 pp 0 (barrier, group 'CP')",
        "dp 1 pp 0: F0: waits for dp 0 pp 0 (barrier, group 'CP')",
        "cp 0 tp 1 of dp 0 pp 1: F0: waits for F0 of dp 0 pp 0"};
    for (int s = 0; s < FAILING_SHAPES; s++) {
        AUTO(failing_run) f;
        failing_run_make(&f, &failing_shapes[s], SP_CLOCK_WALL);
        fail_on_demand(&f, &stalls, "F0", 0, 0, "2", ERR);
        // A record has room for ten messages; the last shape has sixteen ranks.
        assert_true(failing_run_says(ERR, lines[s]));
    }
}

TEST(step_of_a_fault)
{
    AUTO(failing_run) f;
    const demand wrong = {.key = "fail", .status = SP_ERR_USAGE};
    failing_run_make(&f, &failing_shapes[0], SP_CLOCK_WALL);
    fail_on_demand(&f, &wrong, "F0", 0, 0, "3", ERR);
    assert_string_equal(ERR->message[0],
                        "backend 'host': fault_step: expected a step from 1 to 2, got \"3\"");
    fail_on_demand(&f, &wrong, "F0", 0, 0, "0", ERR);
}

// ---- limits of memory and of time ----

// Does it name an action of the plan? Its rank.
static int rank_named(const failing_run *f, const char *message)
{
    for (int r = 0; r < f->layout.dp * f->layout.pp; r++) {
        const sp_stage_plan *stage = sp_plan_stage(&f->plan, r / 2, r % 2);
        for (size_t a = 0; a < stage->count; a++) {
            char name[32], place[FAILING_PLACE];
            sp_action_name(stage->actions[a], 1, name);
            snprintf(place, sizeof place, "dp %d pp %d: %s: ", r / 2, r % 2, name);
            if (strstr(message, place) != NULL) {
                return r;
            }
        }
    }
    fail_msg("no action of the plan in \"%s\"", message);
    return -1;
}

// What the fullest rank needs is enough; with a byte less it is the one that fails.
TEST(memory_limit)
{
    for (int i = 0; i < 2 * FAILING_SHAPES; i++) {
        AUTO(failing_run) f;
        int64_t most = 0;
        failing_run_make(&f, &failing_shapes[i / 2], i % 2 == 0 ? SP_CLOCK_VIRTUAL : SP_CLOCK_WALL);
        sp_run *run = host_run(&f.device, &f.request);
        const sp_memory_timeline *memory = &sp_run_step(run, 0)->memory;
        for (size_t r = 0; r < memory->rank_count; r++) {
            int64_t peak = sp_bytes_total(&memory->ranks[r].peak);
            most = peak > most ? peak : most;
        }
        sp_run_request request = f.request;
        request.memory_limit_bytes = most;
        sp_run_free(host_run(&f.device, &request));
        request.memory_limit_bytes = most - 1;
        failing_run_must(&f, &request, SP_ERR_INFEASIBLE, ERR);
        int named = rank_named(&f, ERR->message[0]);
        assert_int_equal(sp_bytes_total(&memory->ranks[named].peak), most);
        sp_run_free(run);
    }
}

TEST(timeout_in_virtual_time)
{
    for (int s = 0; s < FAILING_SHAPES; s++) {
        AUTO(failing_run) f;
        failing_run_make(&f, &failing_shapes[s], SP_CLOCK_VIRTUAL);
        sp_run_request request = f.request;
        request.timeout_ns = 1;
        failing_run_must(&f, &request, SP_ERR_LIMIT, ERR);
        rank_named(&f, ERR->message[0]);
        assert_true(failing_run_says(ERR, "not done at the timeout"));
    }
}

// So many steps that the deadline falls somewhere into one of them.
TEST(timeout_on_the_wall_clock)
{
    for (int i = 0; i < 4 * FAILING_SHAPES; i++) {
        AUTO(failing_run) f;
        failing_run_make(&f, &failing_shapes[i / 4], SP_CLOCK_WALL);
        sp_run_request request = f.request;
        request.steps = 50000;
        request.timeout_ns = 1 + (int64_t)(i % 4) * 13000000;
        failing_run_must(&f, &request, SP_ERR_LIMIT, ERR);
        const char *text = ERR->message[0];
        must_hold(strstr(text, "dp ") != NULL && strstr(text, "not done at the timeout") != NULL,
                  "got \"%s\"", text);
    }
}
