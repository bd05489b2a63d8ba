#include "solver/mip.h"

#include <glpk.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "sim/base/alloc.h"

void sp_i_mip_init(sp_i_mip *mip)
{
    *mip = (sp_i_mip){0};
}

void sp_i_mip_fini(sp_i_mip *mip)
{
    sp_free(mip->columns);
    sp_free(mip->rows);
    sp_free(mip->terms);
    *mip = (sp_i_mip){0};
}

int sp_i_mip_add_column(sp_i_mip *mip, double lower, double upper, double cost, bool integer)
{
    SP_RESERVE(mip->columns, mip->column_capacity, mip->column_count + 1);
    mip->columns[mip->column_count] =
        (sp_i_mip_column){.lower = lower, .upper = upper, .cost = cost, .integer = integer};
    return (int)mip->column_count++;
}

void sp_i_mip_add_row(sp_i_mip *mip, double lower, double upper)
{
    *SP_ADDED(mip->rows, mip->row_capacity, mip->row_count) =
        (sp_i_mip_row){.lower = lower, .upper = upper};
}

void sp_i_mip_add_term(sp_i_mip *mip, int column, double coefficient)
{
    if (coefficient != 0.0) {
        *SP_ADDED(mip->terms, mip->term_capacity, mip->term_count) = (sp_i_mip_term){
            .row = (int)mip->row_count - 1, .column = column, .coefficient = coefficient};
    }
}

enum {
    SAID = 200, // bytes kept of what GLPK said last
    // In some thousandth program GLPK's simplex method goes round without an iteration, and its
    // clock alone ends that. This is for nothing else: it is hundreds of times what the relaxation
    // of a node takes.
    STUCK_MS = 10000,
};

// ---- in the solving thread ----

typedef struct solve_job {
    const sp_i_mip *mip;
    const sp_i_mip_options *options;
    struct timespec begin;
    int64_t branching_ms; // when branch and bound began
    glp_iocp control;     // of branch and bound, which reads it as it goes
    int *row, *column;    // triplets as GLPK wants them, [terms + 1], from 1
    double *coefficient;
    double *value;
    sp_i_mip_result result;
    int64_t nodes;
    bool solving; // the program was accepted
    bool failed;
    char said[SAID];
    jmp_buf escape;
} solve_job;

static int64_t time_spent_ms(const solve_job *job)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)(now.tv_sec - job->begin.tv_sec) * 1000 +
           (now.tv_nsec - job->begin.tv_nsec) / 1000000;
}

static int64_t time_left_ms(const solve_job *job)
{
    return job->options->time_limit_ms - time_spent_ms(job);
}

// GLPK takes the largest int for no limit.
static int limit_of(int64_t left)
{
    return left < INT32_MAX ? (int)left : INT32_MAX;
}

// Keeps GLPK silent, and its first words for the error message (the last name its source file).
static int keep_words(void *info, const char *text)
{
    solve_job *job = info;
    size_t length = strcspn(text, "\n");
    if (job->said[0] == '\0' && length > 0 && length < SAID) {
        memcpy(job->said, text, length);
        job->said[length] = '\0';
    }
    return 1;
}

// GLPK aborts the process when this returns.
static void escape(void *info)
{
    solve_job *job = info;
    longjmp(job->escape, 1);
}

// Of GLPK's time in branch and bound, until the relaxation that comes next is solved.
static int branching_limit(const solve_job *job)
{
    int64_t left_ms = time_left_ms(job);
    int64_t from_begin_ms = time_spent_ms(job) - job->branching_ms;
    return limit_of(from_begin_ms + (left_ms < STUCK_MS ? left_ms : STUCK_MS));
}

static void watch(glp_tree *tree, void *info)
{
    solve_job *job = info;
    int best = glp_ios_best_node(tree);
    if (best != 0) {
        double bound = glp_ios_node_bound(tree, best);
        job->result.bound = bound > job->result.bound ? bound : job->result.bound;
    }
    const sp_i_mip_options *options = job->options;
    job->nodes += glp_ios_reason(tree) == GLP_ISELECT;
    job->result.iterations = glp_get_it_cnt(glp_ios_get_prob(tree));
    if ((options->node_limit > 0 && job->nodes > options->node_limit) ||
        (options->iteration_limit > 0 && job->result.iterations > options->iteration_limit)) {
        glp_ios_terminate(tree);
    }
    if (glp_ios_reason(tree) == GLP_IPREPRO) {
        job->control.tm_lim = branching_limit(job);
    }
    if (time_left_ms(job) <= 0) {
        job->result.timed_out = true;
        glp_ios_terminate(tree);
    }
}

static int bounds_kind(double lower, double upper)
{
    bool below = lower > -HUGE_VAL;
    bool above = upper < HUGE_VAL;
    if (below && above) {
        return lower < upper ? GLP_DB : GLP_FX;
    }
    return below ? GLP_LO : above ? GLP_UP : GLP_FR;
}

static void build(const solve_job *job, glp_prob *problem)
{
    const sp_i_mip *mip = job->mip;
    glp_set_obj_dir(problem, GLP_MIN);
    if (mip->row_count > 0) {
        glp_add_rows(problem, (int)mip->row_count);
    }
    for (size_t i = 0; i < mip->row_count; i++) {
        const sp_i_mip_row *row = &mip->rows[i];
        glp_set_row_bnds(problem, (int)i + 1, bounds_kind(row->lower, row->upper), row->lower,
                         row->upper);
    }
    if (mip->column_count > 0) {
        glp_add_cols(problem, (int)mip->column_count);
    }
    for (size_t j = 0; j < mip->column_count; j++) {
        const sp_i_mip_column *column = &mip->columns[j];
        // First the kind: GLPK rounds the bounds of nothing, and a binary kind would set its own.
        glp_set_col_kind(problem, (int)j + 1, column->integer ? GLP_IV : GLP_CV);
        glp_set_col_bnds(problem, (int)j + 1, bounds_kind(column->lower, column->upper),
                         column->lower, column->upper);
        glp_set_obj_coef(problem, (int)j + 1, column->cost);
    }
    glp_load_matrix(problem, (int)mip->term_count, job->row, job->column, job->coefficient);
}

// Ends of GLPK that are no answer: a limit, or numbers that defeat its arithmetic. Neither is a
// defect of the program, whose shape the calls that build it have checked by then.
static bool is_no_answer(int code)
{
    return code != 0 && code != GLP_EMIPGAP && code != GLP_EBOUND;
}

static int run_simplex(solve_job *job, glp_prob *problem, int method)
{
    glp_smcp control;
    glp_init_smcp(&control);
    control.msg_lev = GLP_MSG_OFF;
    control.meth = method;
    int64_t left_ms = time_left_ms(job);
    control.tm_lim = limit_of(left_ms < STUCK_MS ? left_ms : STUCK_MS);
    if (job->options->iteration_limit > 0) {
        int64_t left = job->options->iteration_limit - job->result.iterations;
        control.it_lim = limit_of(left > 0 ? left : 0);
    }
    int code = control.tm_lim > 0 ? glp_simplex(problem, &control) : GLP_ETMLIM;
    job->result.iterations = glp_get_it_cnt(problem);
    return code;
}

// Can the objective fall for ever? Where every column with a cost has a bound on the side that is
// cheap, a simplex method that says so has been misled by rounding.
static bool may_be_unbounded(const sp_i_mip *mip)
{
    for (size_t j = 0; j < mip->column_count; j++) {
        const sp_i_mip_column *c = &mip->columns[j];
        if ((c->cost > 0.0 && c->lower == -HUGE_VAL) || (c->cost < 0.0 && c->upper == HUGE_VAL)) {
            return true;
        }
    }
    return false;
}

static void refuse(solve_job *job, const char *why)
{
    snprintf(job->said, SAID, "%s", why);
    job->failed = true;
}

// The relaxation, which branch and bound needs solved; true: it is.
static bool solve_relaxation(solve_job *job, glp_prob *problem)
{
    int code = run_simplex(job, problem, GLP_DUALP);
    if (is_no_answer(code) && code != GLP_ETMLIM && code != GLP_EITLIM) {
        // The dual method loses itself in a few of 10,000 programs that the primal one solves.
        glp_adv_basis(problem, 0);
        code = run_simplex(job, problem, GLP_PRIMAL);
    }
    job->result.timed_out = code == GLP_ETMLIM;
    int status = glp_get_status(problem);
    if (code == GLP_EBOUND) {
        refuse(job, "bounds that exclude every value");
    } else if (code != 0) {
        job->result.outcome = SP_I_MIP_UNKNOWN;
    } else if (status == GLP_UNBND && may_be_unbounded(job->mip)) {
        refuse(job, "the program is unbounded");
    } else if (status == GLP_OPT) {
        job->result.bound = glp_get_obj_val(problem);
        return true;
    } else if (glp_get_prim_stat(problem) == GLP_NOFEAS) {
        job->result.outcome = SP_I_MIP_INFEASIBLE;
    }
    return false;
}

static void branch(solve_job *job, glp_prob *problem)
{
    glp_iocp *control = &job->control;
    glp_init_iocp(control);
    control->msg_lev = GLP_MSG_OFF;
    control->mip_gap = job->options->gap;
    // GLPK's own choice solves rows of the tableau for every candidate and looks at no clock
    // meanwhile: a second over the limit at 2,000 columns.
    control->br_tech = GLP_BR_MFV;
    control->cb_func = watch;
    control->cb_info = job;
    job->branching_ms = time_spent_ms(job);
    control->tm_lim = branching_limit(job);
    int code = control->tm_lim > 0 ? glp_intopt(problem, control) : GLP_ETMLIM;
    bool limited = is_no_answer(code);
    job->result.timed_out = job->result.timed_out || code == GLP_ETMLIM;
    if (code == GLP_EBOUND) {
        refuse(job, "bounds of an integer column that are not whole");
        return;
    }
    int status = glp_mip_status(problem);
    if (status != GLP_OPT && status != GLP_FEAS) {
        job->result.outcome = limited ? SP_I_MIP_UNKNOWN : SP_I_MIP_INFEASIBLE;
        return;
    }
    job->result.outcome = limited ? SP_I_MIP_FEASIBLE : SP_I_MIP_OPTIMAL;
    job->result.objective = glp_mip_obj_val(problem);
    if (code == 0 || job->result.bound > job->result.objective) {
        job->result.bound = job->result.objective;
    }
    for (size_t j = 0; j < job->mip->column_count; j++) {
        double x = glp_mip_col_val(problem, (int)j + 1);
        job->value[j] = job->mip->columns[j].integer ? round(x) : x;
    }
}

static void *solve_here(void *argument)
{
    solve_job *job = argument;
    if (setjmp(job->escape) != 0) {
        // A program that was accepted and then defeats GLPK's arithmetic is no defect of it.
        job->failed = !job->solving;
        job->result = (sp_i_mip_result){.outcome = SP_I_MIP_UNKNOWN, .bound = -HUGE_VAL};
    } else {
        glp_term_hook(keep_words, job);
        glp_error_hook(escape, job);
        glp_prob *problem = glp_create_prob();
        build(job, problem);
        job->solving = true;
        glp_scale_prob(problem, GLP_SF_AUTO);
        if (solve_relaxation(job, problem)) {
            branch(job, problem);
        }
        glp_delete_prob(problem);
    }
    // Everything of this thread, with what an error left half made.
    glp_free_env();
    return NULL;
}

// ---- in the caller's ----

static void make_triplets(solve_job *job)
{
    const sp_i_mip *mip = job->mip;
    job->row = sp_malloc((mip->term_count + 1) * sizeof *job->row);
    job->column = sp_malloc((mip->term_count + 1) * sizeof *job->column);
    job->coefficient = sp_malloc((mip->term_count + 1) * sizeof *job->coefficient);
    for (size_t i = 0; i < mip->term_count; i++) {
        job->row[i + 1] = mip->terms[i].row + 1;
        job->column[i + 1] = mip->terms[i].column + 1;
        job->coefficient[i + 1] = mip->terms[i].coefficient;
    }
}

sp_status sp_i_mip_solve(const sp_i_mip *mip, const sp_i_mip_options *options,
                         sp_i_mip_result *result, double *value, sp_error *err)
{
    solve_job job = {.mip = mip, .options = options, .value = value};
    job.result.outcome = SP_I_MIP_UNKNOWN;
    job.result.bound = -HUGE_VAL;
    clock_gettime(CLOCK_MONOTONIC, &job.begin);
    sp_status status = SP_OK;
    pthread_t thread;
    make_triplets(&job);
    if (pthread_create(&thread, NULL, solve_here, &job) != 0) {
        status = sp_error_set(err, SP_ERR_LIMIT, "no thread to solve an integer program in");
    } else {
        pthread_join(thread, NULL);
        if (job.failed) {
            status = sp_error_set(err, SP_ERR_INTERNAL,
                                  "an integer program of %zu rows and %zu "
                                  "columns: %s",
                                  mip->row_count, mip->column_count, job.said);
        }
    }
    *result = job.result;
    sp_free(job.row);
    sp_free(job.column);
    sp_free(job.coefficient);
    return status;
}
