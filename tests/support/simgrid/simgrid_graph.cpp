#include <cmath>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

extern "C" {
#include "tests/bench/bench.h"
#include "tests/support/simgrid/simgrid_graph.h"
}

namespace sg4 = simgrid::s4u;

namespace
{

// One of them or both, the flow behind the time that passes.
struct activities {
    sg4::ExecPtr exec;
    sg4::CommPtr comm;

    sg4::ActivityPtr first() const
    {
        return exec ? sg4::ActivityPtr(exec) : sg4::ActivityPtr(comm);
    }

    void add_successor(const sg4::ActivityPtr &next) const
    {
        comm ? static_cast<void>(comm->add_successor(next))
             : static_cast<void>(exec->add_successor(next));
    }
};

sg4::Host *host_of(char side, int path)
{
    return sg4::Host::by_name(side + std::to_string(path));
}

activities made(const simgrid_problem &network, const simgrid_task &task)
{
    activities a;
    if (task.ns > 0.0 || task.flow < 0) {
        a.exec = sg4::Exec::init();
        a.exec->set_flops_amount(task.ns);
    }
    if (task.flow >= 0) {
        const sp_flow &flow = network.flows[task.flow];
        a.comm = sg4::Comm::sendto_init();
        a.comm->set_payload_size(static_cast<uint64_t>(std::llround(flow.bytes)));
        if (a.exec) {
            a.exec->add_successor(a.comm);
        }
    }
    return a;
}

// An activity may begin by itself once it has its hosts. Started again, it would run twice.
template <class activity> void start(activity &a)
{
    if (a->get_state() == sg4::Activity::State::INITED) {
        a->vetoable_start();
    }
}

void place(const simgrid_problem &network, const simgrid_task &task, const activities &a)
{
    if (a.exec) {
        a.exec->set_host(sg4::Host::by_name(simgrid_worker));
        start(a.exec);
    }
    if (a.comm) {
        const int path = network.path_of[task.flow];
        a.comm->set_source(host_of('a', path));
        a.comm->set_destination(host_of('b', path));
        start(a.comm);
    }
}

} // namespace

double simgrid_run_graph(const simgrid_graph *graph, double *ends_s)
{
    simgrid_load(&graph->network);
    std::vector<activities> tasks;
    for (int i = 0; i < graph->count; i++) {
        tasks.push_back(made(graph->network, graph->tasks[i]));
    }
    for (int i = 0; i < graph->edge_count; i++) {
        tasks[graph->edges[i][0]].add_successor(tasks[graph->edges[i][1]].first());
    }
    for (int i = 0; i < graph->count; i++) {
        place(graph->network, graph->tasks[i], tasks[i]);
    }
    const double started = thread_clock_s();
    sg4::Engine::get_instance()->run();
    const double seconds = thread_clock_s() - started;
    for (int i = 0; i < graph->count; i++) {
        const activities &task = tasks[i];
        ends_s[i] = task.comm ? task.comm->get_finish_time() : task.exec->get_finish_time();
    }
    return seconds;
}
