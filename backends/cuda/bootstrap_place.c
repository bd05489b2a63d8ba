// Who am I: what launchers leave in the environment.
#include "backends/cuda/bootstrap.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOCALS = 3 };

typedef struct launcher {
    const char *rank, *ranks;
    const char *local[LOCALS];
    const char *only_with; // NULL: no more is needed
} launcher;

// Slurm sets rank 0 of all tasks in a batch script too, where there is no step: a program that the
// script itself starts would wait for ranks that nobody starts.
static const launcher launchers[] = {
    {"RANK", "WORLD_SIZE", {"LOCAL_RANK"}, NULL},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {"OMPI_COMM_WORLD_LOCAL_RANK"}, NULL},
    {"PMI_RANK", "PMI_SIZE", {"MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"}, NULL},
    {"SLURM_PROCID", "SLURM_NTASKS", {"SLURM_LOCALID"}, "SLURM_STEP_ID"},
};

typedef char *(*lookup_call)(const char *name);

static const char *get(lookup_call lookup, const char *name)
{
    const char *value = lookup(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static sp_status get_number(lookup_call lookup, const char *name, int from, int to, int *number,
                            sp_error *err)
{
    const char *text = get(lookup, name);
    if (text == NULL) {
        return sp_error_set(err, SP_ERR_USAGE, "environment: %s is not set", name);
    }
    char *end = NULL;
    long value = isdigit((unsigned char)text[0]) ? strtol(text, &end, 10) : -1;
    if (end == NULL || *end != '\0' || value < from || value > to) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "environment: %s: expected an integer from %d to %d, got \"%.40s\"",
                            name, from, to, text);
    }
    *number = (int)value;
    return SP_OK;
}

static const launcher *find_launcher(lookup_call lookup)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const launcher *l = &launchers[i];
        if ((get(lookup, l->rank) != NULL || get(lookup, l->ranks) != NULL) &&
            (l->only_with == NULL || get(lookup, l->only_with) != NULL)) {
            return l;
        }
    }
    return NULL;
}

static sp_status read_port(lookup_call lookup, sp_i_bootstrap_place *place, sp_error *err)
{
    if (get(lookup, "SLIMPACK_PORT") != NULL) {
        return get_number(lookup, "SLIMPACK_PORT", 1, 65535, &place->port, err);
    }
    sp_status status = get_number(lookup, "MASTER_PORT", 1, 65535, &place->port, err);
    const char *agent = get(lookup, "TORCHELASTIC_USE_AGENT_STORE");
    if (status == SP_OK && agent != NULL && strcmp(agent, "True") == 0) {
        place->port += place->port < 65535 ? 1 : -1;
    }
    return status;
}

static sp_status read_meeting(lookup_call lookup, sp_i_bootstrap_place *place, sp_error *err)
{
    static const char *const runs[] = {"SLIMPACK_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"};
    const char *run = NULL;
    for (size_t i = 0; i < sizeof runs / sizeof *runs && run == NULL; i++) {
        run = get(lookup, runs[i]);
    }
    snprintf(place->run, sizeof place->run, "%s", run != NULL ? run : "");
    const char *address = get(lookup, "MASTER_ADDR");
    if (address == NULL) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "environment: MASTER_ADDR is not set: %d ranks need the address of "
                            "rank 0's machine, and MASTER_PORT",
                            place->ranks);
    }
    if (strlen(address) >= sizeof place->address) {
        return sp_error_set(err, SP_ERR_USAGE, "environment: MASTER_ADDR is longer than %d bytes",
                            SP_I_BOOTSTRAP_ADDRESS - 1);
    }
    snprintf(place->address, sizeof place->address, "%s", address);
    return read_port(lookup, place, err);
}

sp_status sp_i_bootstrap_place_read(char *(*lookup)(const char *name), sp_i_bootstrap_place *place,
                                    sp_error *err)
{
    *place = (sp_i_bootstrap_place){.ranks = 1, .local_rank = -1};
    const launcher *l = find_launcher(lookup);
    if (l == NULL) {
        place->local_rank = 0;
        return SP_OK;
    }
    place->variable = l->rank;
    sp_status status = get_number(lookup, l->ranks, 1, SP_I_BOOTSTRAP_RANKS, &place->ranks, err);
    if (status == SP_OK) {
        status = get_number(lookup, l->rank, 0, place->ranks - 1, &place->rank, err);
    }
    for (int i = 0; status == SP_OK && place->local_rank < 0 && i < LOCALS; i++) {
        if (l->local[i] != NULL && get(lookup, l->local[i]) != NULL) {
            status = get_number(lookup, l->local[i], 0, place->ranks - 1, &place->local_rank, err);
        }
    }
    if (status == SP_OK && place->ranks > 1) {
        status = read_meeting(lookup, place, err);
    }
    return status;
}
