// Who am I: what launchers leave in the environment.
#include "backends/cuda/distributed/place.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/cuda/distributed/rendezvous_mpi.h"

enum { LOCALS = 3 };

typedef struct launcher {
    const char *rank, *ranks;
    const char *local[LOCALS];
    const char *here;      // how many ranks this machine has
    const char *machines;  // or how many machines there are; NULL: it does not say
    const char *only_with; // NULL: no more is needed
} launcher;

// Slurm sets rank 0 of all tasks in a batch script too, where there is no step: a program that the
// script itself starts would wait for ranks that nobody starts.
static const launcher launchers[] = {
    {"RANK", "WORLD_SIZE", {"LOCAL_RANK"}, "LOCAL_WORLD_SIZE", NULL, NULL},
    {"OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     {"OMPI_COMM_WORLD_LOCAL_RANK"},
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     NULL,
     NULL},
    {"PMI_RANK",
     "PMI_SIZE",
     {"MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"},
     "MPI_LOCALNRANKS",
     "SLURM_STEP_NUM_NODES",
     NULL},
    {"SLURM_PROCID",
     "SLURM_NTASKS",
     {"SLURM_LOCALID"},
     NULL,
     "SLURM_STEP_NUM_NODES",
     "SLURM_STEP_ID"},
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

// Letters, digits and '-' of a text, as a part of a file's name.
static void add_to_name(char *name, size_t bytes, const char *text)
{
    size_t end = strlen(name);
    for (; *text != '\0' && end + 1 < bytes; text++) {
        name[end++] = (char)(isalnum((unsigned char)*text) ? *text : '-');
    }
    name[end] = '\0';
}

static bool is_one_machine(lookup_call lookup, const launcher *l, int ranks)
{
    const char *here = l->here != NULL ? get(lookup, l->here) : NULL;
    const char *machines = l->machines != NULL ? get(lookup, l->machines) : NULL;
    return (here != NULL && strtol(here, NULL, 10) == ranks) ||
           (machines != NULL && strcmp(machines, "1") == 0);
}

// Two runs at a time on one machine have another port, or another id.
static sp_status read_rendezvous(lookup_call lookup, const launcher *l, sp_i_place *place,
                                 sp_error *err)
{
    static const char *const runs[] = {"SLIMPACK_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"};
    const char *folder = get(lookup, "SLIMPACK_RENDEZVOUS");
    const char *run = NULL;
    for (size_t i = 0; i < sizeof runs / sizeof *runs && run == NULL; i++) {
        run = get(lookup, runs[i]);
    }
    add_to_name(place->run, sizeof place->run, run != NULL ? run : "run");
    if (get(lookup, "MASTER_PORT") != NULL) {
        add_to_name(place->run, sizeof place->run, "-");
        add_to_name(place->run, sizeof place->run, get(lookup, "MASTER_PORT"));
    }
    if (folder == NULL && is_one_machine(lookup, l, place->ranks)) {
        snprintf(place->folder, sizeof place->folder, "/tmp/slimpack-%lu", (unsigned long)getuid());
        return SP_OK;
    }
    if (folder == NULL) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "environment: SLIMPACK_RENDEZVOUS is not set: %d ranks that may be on "
                            "several machines need a folder that all of them see",
                            place->ranks);
    }
    if (strlen(folder) >= sizeof place->folder) {
        return sp_error_set(err, SP_ERR_USAGE,
                            "environment: SLIMPACK_RENDEZVOUS is longer than %d bytes",
                            SP_I_PLACE_FOLDER - 1);
    }
    snprintf(place->folder, sizeof place->folder, "%s", folder);
    return SP_OK;
}

static sp_status read_ranks(lookup_call lookup, const launcher *l, sp_i_place *place, sp_error *err)
{
    *place = (sp_i_place){.ranks = 1, .local_rank = -1};
    if (l == NULL) {
        place->local_rank = 0;
        return SP_OK;
    }
    place->variable = l->rank;
    sp_status status = get_number(lookup, l->ranks, 1, SP_I_PLACE_RANKS, &place->ranks, err);
    if (status == SP_OK) {
        status = get_number(lookup, l->rank, 0, place->ranks - 1, &place->rank, err);
    }
    for (int i = 0; status == SP_OK && place->local_rank < 0 && i < LOCALS; i++) {
        if (l->local[i] != NULL && get(lookup, l->local[i]) != NULL) {
            status = get_number(lookup, l->local[i], 0, place->ranks - 1, &place->local_rank, err);
        }
    }
    return status;
}

sp_status sp_i_place_read(char *(*lookup)(const char *name), sp_i_place *place, sp_error *err)
{
    const launcher *l = find_launcher(lookup);
    sp_status status = read_ranks(lookup, l, place, err);
    return status == SP_OK && place->ranks > 1 ? read_rendezvous(lookup, l, place, err) : status;
}

sp_status sp_i_place_of_process(sp_i_place *place, sp_error *err)
{
    const launcher *l = find_launcher(getenv);
    sp_status status = read_ranks(getenv, l, place, err);
    // torchrun's processes are none of MPI's.
    if (status != SP_OK || place->ranks == 1 || l == &launchers[0] || !sp_i_mpi_place(place)) {
        return status == SP_OK && place->ranks > 1 ? read_rendezvous(getenv, l, place, err)
                                                   : status;
    }
    return SP_OK;
}
