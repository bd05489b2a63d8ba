// Runs that meet a limit: of memory, of time, or an allocation that the machine refuses. With
// pipeline stages alone and with ranks that share a layer or a pack, in either clock.
#include "tests/support/failing_run.h"
#include "tests/support/test_main.h"

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
        failing_run f;
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
        failing_run_fini(&f);
    }
}

TEST(timeout_in_virtual_time)
{
    for (int s = 0; s < FAILING_SHAPES; s++) {
        failing_run f;
        failing_run_make(&f, &failing_shapes[s], SP_CLOCK_VIRTUAL);
        sp_run_request request = f.request;
        request.timeout_ns = 1;
        failing_run_must(&f, &request, SP_ERR_LIMIT, ERR);
        rank_named(&f, ERR->message[0]);
        assert_true(failing_run_says(ERR, "not done at the timeout"));
        failing_run_fini(&f);
    }
}

// So many steps that the deadline falls somewhere into one of them.
TEST(timeout_on_the_wall_clock)
{
    for (int i = 0; i < 4 * FAILING_SHAPES; i++) {
        failing_run f;
        failing_run_make(&f, &failing_shapes[i / 4], SP_CLOCK_WALL);
        sp_run_request request = f.request;
        request.steps = 50000;
        request.timeout_ns = 1 + (int64_t)(i % 4) * 13000000;
        failing_run_must(&f, &request, SP_ERR_LIMIT, ERR);
        const char *text = ERR->message[0];
        if (strstr(text, "dp ") == NULL || strstr(text, "not done at the timeout") == NULL) {
            fail_msg("got \"%s\"", text);
        }
        failing_run_fini(&f);
    }
}

// ---- allocations ----
