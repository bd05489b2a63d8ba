// GLPK's ends without an answer, made to happen: the program is never refused for them, and what is
// planned with integer programs goes on without.
#include <glpk.h>

#include "solver/mip.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

// The linker puts these in the place of GLPK's (tests/CMakeLists.txt).
int __real_glp_simplex(glp_prob *problem, const glp_smcp *control);
int __wrap_glp_simplex(glp_prob *problem, const glp_smcp *control);
int __real_glp_intopt(glp_prob *problem, const glp_iocp *control);
int __wrap_glp_intopt(glp_prob *problem, const glp_iocp *control);

static struct {
    int dual, primal, branch; // codes returned in place of the answer; 0: GLPK's own
    int asked;
} made;

int __wrap_glp_simplex(glp_prob *problem, const glp_smcp *control)
{
    int code = control->meth == GLP_PRIMAL ? made.primal : made.dual;
    made.asked += code != 0;
    return code != 0 ? code : __real_glp_simplex(problem, control);
}

int __wrap_glp_intopt(glp_prob *problem, const glp_iocp *control)
{
    made.asked += made.branch != 0;
    return made.branch != 0 ? made.branch : __real_glp_intopt(problem, control);
}

// The codes of the manual (GLPK 5.0, sections 2.8.1 and 2.10.5) that a limit or numbers cause.
static const int ends[] = {GLP_EBADB,  GLP_ESING,  GLP_ECOND,  GLP_EFAIL,  GLP_EOBJLL,
                           GLP_EITLIM, GLP_ETMLIM, GLP_ENOPFS, GLP_ENODFS, GLP_EOBJUL};

enum { ENDS = sizeof ends / sizeof ends[0] };

// At most three of four ones, of which the last is worth two.
static sp_i_mip_result solve_four(double value[4])
{
    AUTO(sp_i_mip) mip;
    sp_i_mip_result result;
    const sp_i_mip_options options = {.time_limit_ms = 30000};
    sp_i_mip_init(&mip);
    sp_i_mip_add_row(&mip, -HUGE_VAL, 3.0);
    for (int i = 0; i < 4; i++) {
        sp_i_mip_add_term(&mip, sp_i_mip_add_column(&mip, 0.0, 1.0, i == 3 ? -2.0 : -1.0, true),
                          1.0);
    }
    must_succeed(sp_i_mip_solve(&mip, &options, &result, value, ERR));
    return result;
}

TEST(no_end_is_an_error)
{
    double value[4];
    for (int i = 0; i < ENDS; i++) {
        made.dual = made.primal = ends[i];
        assert_int_equal(solve_four(value).outcome, SP_I_MIP_UNKNOWN);
        made.dual = made.primal = 0;
        made.branch = ends[i];
        assert_int_equal(solve_four(value).outcome, SP_I_MIP_UNKNOWN);
        made.branch = 0;
    }
}

// Where the dual simplex method fails, the primal one is asked.
TEST(the_other_method_is_tried)
{
    static const int numbers[] = {GLP_EBADB, GLP_ESING, GLP_ECOND, GLP_EFAIL};
    for (int i = 0; i < 4; i++) {
        double value[4];
        made.dual = numbers[i];
        sp_i_mip_result result = solve_four(value);
        made.dual = 0;
        assert_int_equal(result.outcome, SP_I_MIP_OPTIMAL);
        assert_within(result.objective, -4.0, 1e-9);
    }
}

// FlexSP and SlimPack keep the plan that they have without the program.
TEST(plans_go_on)
{
    static const char *const kinds[] = {"flexsp", "slimpack"};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < ENDS; i++) {
            const char *text = json_text(
                "{'model': {'layers': 8, 'hidden': 512, 'ffn': 1024, 'heads': 8, 'vocab': 1000}, "
                "'cluster': 'h800-8', 'parallel': {'dp': 4}, 'strategy': {'kind': '%s'}, "
                "'workload': {'lengths': [9000, 4000, 3000, 3000, 700, 600, 500, 20, 10], "
                "'order': 'file'}}",
                kinds[k]);
            made.asked = 0;
            made.dual = made.primal = ends[i];
            SCENARIO_RUN(r, text, &run_verified);
            made.dual = made.primal = 0;
            assert_true(k > 0 || made.asked > 0);
        }
    }
}
