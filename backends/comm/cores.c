// The C library declares affinity and names of threads as extensions of its own alone.
#define _GNU_SOURCE

#include "backends/comm/cores.h"

#ifdef __linux__

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

int sp_i_cores(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return 1;
    }
    return CPU_COUNT(&allowed);
}

bool sp_i_pin_to_core(int index)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return false;
    }
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &allowed) && index-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(core, &one);
            return pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0;
        }
    }
    return false;
}

void sp_i_name_thread(const char *name)
{
    char cut[16];
    snprintf(cut, sizeof cut, "%.15s", name);
    (void)pthread_setname_np(pthread_self(), cut);
}

#else

int sp_i_cores(void)
{
    return 1;
}

bool sp_i_pin_to_core(int index)
{
    (void)index;
    return false;
}

void sp_i_name_thread(const char *name)
{
    (void)name;
}

#endif
