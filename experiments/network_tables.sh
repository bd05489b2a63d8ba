#!/bin/sh
# network_tables.sh: makes tables of the JSON lines of build/bench/network, network_step and network_graph on stdin.
set -eu
exec awk '
    # Every value has its key before it; a problem may have a comma in its name.
    {
        delete of
        gsub(/[{}"]/, "")
        gsub(/, busy/, " and busy")
        fields = split($0, field, ", ")
        for (i = 1; i <= fields; i++) { split(field[i], pair, ": "); of[pair[1]] = pair[2] }
    }
    of["bench"] != last { if (last != "") { print "" }; heading() }
    { last = of["bench"]; row() }
    function heading() {
        if (of["bench"] == "network") {
            print "problem              at a time  hops/event  M events/s   least  over limit  SimGrid M/s  times SimGrid  apart"
        } else if (of["bench"] == "network_graph") {
            print "GPUs   tasks   flows  ours ms  SimGrid ms  times SimGrid  apart"
        } else if (of["bench"] == "network_step") {
            print "flows     GPUs     actions    events  hops/event  build s  flows s  M events/s  peak MiB"
        } else {
            print "simulated GPUs     actions  ZeRO   tasks  simulate s  peak MiB"
        }
    }
    function actions() { return of["uneven"] == "true" ? "uneven" : "even" }
    function row() {
        if (of["bench"] == "network") {
            peer = "simgrid_over_ours" in of
            printf "%-20s %9.0f  %10.1f  %10.2f  %6.2f  %10.1f  %11s  %13s  %5s\n", of["problem"], of["flows_at_a_time"], of["hops_per_event"],
                of["events_per_s"] / 1e6, of["events_per_s_least"] / 1e6, of["over_limit"],
                peer ? sprintf("%.4f", of["simgrid_events_per_s"] / 1e6) : "-", peer ? sprintf("%.0f", of["simgrid_over_ours"]) : "-",
                peer ? sprintf("%.1f ns", of["largest_difference_ns"]) : "-"
        } else if (of["bench"] == "network_graph") {
            printf "%4d  %6d  %6d  %7.2f  %10.1f  %13.0f  %.0e\n", of["gpus"], of["tasks"], of["flows"], of["simulate_s"] * 1e3,
                of["simgrid_s"] * 1e3, of["simgrid_over_ours"], of["relative_difference"]
        } else if (of["bench"] == "network_step") {
            printf "%14d  %10s  %8d  %10.1f  %7.3f  %7.3f  %10.2f  %8d\n", of["gpus"], actions(), of["events"], of["hops_per_event"],
                of["build_s"], of["flows_s"], of["events_per_s"] / 1e6, of["peak_mib"]
        } else {
            printf "%14d  %10s  %4d  %6d  %10.3f  %8d\n", of["gpus"], actions(), of["zero"], of["tasks"], of["simulate_s"], of["peak_mib"]
        }
    }'
