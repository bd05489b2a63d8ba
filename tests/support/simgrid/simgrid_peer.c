#include "tests/support/simgrid/simgrid_peer.h"

#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

// A zone keeps a table of all pairs of its hosts, so that many small ones take less.
enum { PATHS_OF_ZONE = 50, TEXT = 32 };

static const char *const platform_file = "simgrid_platform.xml";
static const simgrid_problem *current;
static double *current_ends_s;

const char *const simgrid_worker = "worker";

static void add_actors(void);
static void send_flow(int argc, char **argv);

double simgrid_run_flows(const simgrid_problem *problem, double *ends_s)
{
    simgrid_load(problem);
    current_ends_s = ends_s;
    add_actors();
    double started = thread_clock_s();
    simgrid_run();
    return thread_clock_s() - started;
}

static void write_platform(void);

void simgrid_load(const simgrid_problem *problem)
{
    char *arguments[] = {"simgrid",
                         "--cfg=network/crosstraffic:0",
                         "--cfg=network/TCP-gamma:0",
                         "--cfg=network/latency-factor:1",
                         "--cfg=network/bandwidth-factor:1",
                         "--cfg=network/weight-S:0",
                         "--cfg=maxmin/precision:1e-9",
                         "--cfg=surf/precision:1e-12",
                         "--cfg=contexts/factory:raw",
                         "--cfg=contexts/stack-size:16",
                         "--cfg=contexts/guard-size:0",
                         "--log=root.thresh:error",
                         NULL};
    int count = (int)(sizeof arguments / sizeof arguments[0]) - 1;
    current = problem;
    write_platform();
    simgrid_init(&count, arguments);
    simgrid_load_platform(platform_file);
    remove(platform_file);
}

static void write_zone(FILE *file, int first, const sp_flow *const *flow_of);

static void write_platform(void)
{
    FILE *file = fopen(platform_file, "w");
    const sp_flow **flow_of = calloc((size_t)current->paths, sizeof(const sp_flow *));
    if (file == NULL || flow_of == NULL) {
        fprintf(stderr, "cannot write '%s'\n", platform_file);
        exit(1);
    }
    for (int i = 0; i < current->count; i++) {
        flow_of[current->path_of[i]] = &current->flows[i];
    }
    fprintf(file, "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM "
                  "\"https://simgrid.org/simgrid.dtd\">\n<platform version=\"4.1\">\n"
                  "<zone id=\"all\" routing=\"None\">\n<zone id=\"links\" routing=\"Full\">\n");
    for (int i = 0; i < current->links; i++) {
        fprintf(file, "<link id=\"%d\" bandwidth=\"%.17gBps\" latency=\"0s\"/>\n", i,
                current->link_bytes_per_s[i]);
    }
    fprintf(file, "<host id=\"%s\" speed=\"1Gf\" core=\"1000000\"/>\n</zone>\n", simgrid_worker);
    for (int i = 0; i < current->paths; i += PATHS_OF_ZONE) {
        write_zone(file, i, flow_of);
    }
    fprintf(file, "</zone>\n</platform>\n");
    fclose(file);
    free(flow_of);
}

static void write_zone(FILE *file, int first, const sp_flow *const *flow_of)
{
    int last = first + PATHS_OF_ZONE < current->paths ? first + PATHS_OF_ZONE : current->paths;
    fprintf(file, "<zone id=\"zone%d\" routing=\"Full\">\n", first);
    for (int i = first; i < last; i++) {
        fprintf(file, "<host id=\"a%d\" speed=\"1f\"/><host id=\"b%d\" speed=\"1f\"/>\n", i, i);
    }
    for (int i = first; i < last; i++) {
        if (flow_of[i] == NULL) {
            continue;
        }
        fprintf(file, "<route src=\"a%d\" dst=\"b%d\" symmetrical=\"NO\">", i, i);
        for (int h = 0; h < flow_of[i]->hops; h++) {
            for (int k = 0; k < flow_of[i]->path[h].times; k++) {
                fprintf(file, "<link_ctn id=\"%d\"/>", (int)flow_of[i]->path[h].link);
            }
        }
        fprintf(file, "</route>\n");
    }
    fprintf(file, "</zone>\n");
}

static sg_host_t host_of(char side, int path)
{
    char name[TEXT];
    snprintf(name, sizeof name, "%c%d", side, path);
    return sg_host_by_name(name);
}

static void add_actors(void)
{
    for (int i = 0; i < current->count; i++) {
        char number[TEXT];
        snprintf(number, sizeof number, "%d", i);
        const char *arguments[] = {"flow", number, NULL};
        sg_actor_create_("flow", host_of('a', current->path_of[i]), send_flow, 2, arguments);
    }
}

// SimGrid weighs flows by latencies of links, so they pass before the flow begins.
static void send_flow(int argc, char **argv)
{
    int flow = argc > 1 ? atoi(argv[1]) : 0;
    const sp_flow *given = &current->flows[flow];
    sg_actor_sleep_for((double)given->start_ns * 1e-9 + given->latency_s);
    sg_host_sendto(host_of('a', current->path_of[flow]), host_of('b', current->path_of[flow]),
                   given->bytes);
    current_ends_s[flow] = simgrid_get_clock();
}

// ---- a process of its own ----

static void die(const char *what)
{
    perror(what);
    exit(1);
}

void simgrid_apart(void (*run)(const void *of, double *results), const void *of, double *results,
                   int count)
{
    int ends[2];
    int status = 0;
    size_t bytes = (size_t)count * sizeof *results;
    if (pipe(ends) != 0) {
        die("pipe");
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        run(of, results);
        _exit(write(ends[1], results, bytes) == (ssize_t)bytes ? 0 : 1);
    }
    close(ends[1]);
    for (size_t done = 0; done < bytes;) {
        ssize_t got = read(ends[0], (char *)results + done, bytes - done);
        if (got <= 0) {
            die("SimGrid ended early");
        }
        done += (size_t)got;
    }
    close(ends[0]);
    if (waitpid(child, &status, 0) != child || status != 0) {
        die("SimGrid failed");
    }
}
