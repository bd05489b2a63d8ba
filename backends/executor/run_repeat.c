// Steps that the machine repeats, on the wall clock: the first one runs as ever, the second's work
// is captured, and from there on the machine does it again, step after step, while no rank's code
// runs. What the captured step takes from the arenas it gives back before its end: nothing else
// holds these blocks when it is repeated.
#include "backends/executor/run.h"

// An action that fails on demand is not repeated, nor what comes before it.
static bool is_repeated(const sp_i_exec_run *run)
{
    const sp_i_exec_options *o = &run->options;
    bool faults = o->fail != NULL || o->stall != NULL || o->exhaust != NULL;
    return run->repeats && !(faults && run->steps_done < o->fault_step);
}

sp_status sp_i_exec_capture(sp_i_exec_run *run, const int *ranks, int count, sp_comm_body *body,
                            sp_error *err)
{
    const sp_machine_ops *ops = run->machine->ops;
    if (!is_repeated(run) || run->captured) {
        return SP_OK;
    }
    if (!run->rehearsed) {
        ops->rehearse(run->machine);
        run->rehearsed = true;
        return SP_OK;
    }
    sp_i_exec_enter(run, &run->ranks[0]);
    sp_status status = ops->capture_begin(run->machine, err);
    if (status != SP_OK) {
        return status;
    }
    run->wall_began_ns = sp_i_exec_wall_ns();
    run->capturing = true;
    sp_comm_take_turns(run->world, true);
    status = sp_i_exec_on_ranks(run, ranks, count, body, run, err);
    sp_comm_take_turns(run->world, false);
    if (run->capturing) {
        bool keep = status == SP_OK;
        run->capturing = false;
        sp_status ended = ops->capture_end(run->machine, keep, keep ? err : NULL);
        status = keep ? ended : status;
    }
    run->captured = status == SP_OK;
    return status;
}

sp_status sp_i_exec_end_captured(sp_i_exec_run *run, sp_i_exec_rank *rank, sp_status status)
{
    // What is still to be added to shares of gradients is a part of the step.
    if (status == SP_OK && sp_i_exec_shards_gradients(run)) {
        sp_i_exec_scatter_end(sp_i_exec_replicas_of(run, rank), sp_i_exec_replica(run, rank));
    }
    if (status == SP_OK) {
        status = sp_i_exec_settle_last(run, rank, &rank->err);
    }
    // The first that fails gives up the capture, and then lets the world fail.
    if (status != SP_OK && sp_comm_world_failure(run->world, NULL) == SP_OK) {
        run->capturing = false;
        (void)run->machine->ops->capture_end(run->machine, false, NULL);
    }
    return status;
}

sp_status sp_i_exec_repeat(sp_i_exec_run *run, sp_error *err)
{
    for (size_t r = 0; r < sp_i_exec_rank_count(run); r++) {
        for (size_t a = 0; a < run->ranks[r].logged; a++) {
            run->ranks[r].log[a].counted = false;
        }
    }
    return run->machine->ops->replay(run->machine, err);
}
