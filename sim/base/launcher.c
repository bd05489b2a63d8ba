#include "sim/base/launcher.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 3 };

typedef struct launcher {
    const char *rank;
    const char *ranks[NAMES]; // the first that is set counts
    const char *local[NAMES];
    const char *here;     // how many ranks this machine has; NULL: it does not say
    const char *machines; // how many machines there are; NULL: it does not say
    bool slurm;
} launcher;

static const launcher launchers[] = {
    {"RANK", {"WORLD_SIZE"}, {"LOCAL_RANK"}, "LOCAL_WORLD_SIZE", NULL, false},
    {"OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_RANK"},
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     NULL,
     false},
    {"PMI_RANK",
     {"PMI_SIZE"},
     {"MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"},
     "MPI_LOCALNRANKS",
     "SLURM_STEP_NUM_NODES",
     false},
    // The shell of salloc is a step of one task that keeps the allocation's SLURM_NTASKS.
    {"SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     {"SLURM_LOCALID"},
     NULL,
     "SLURM_STEP_NUM_NODES",
     true},
};
enum { TORCHRUN, OPEN_MPI, PMI, LAUNCHERS = sizeof launchers / sizeof *launchers };

const char sp_launcher_variables[] =
    "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE (Open MPI), PMI_RANK and PMI_SIZE (MPICH, PMI), "
    "SLURM_PROCID and SLURM_NTASKS (srun; a batch script itself is no rank)";

typedef char *(*lookup_call)(const char *name);

const char *sp_launcher_get(lookup_call lookup, const char *name)
{
    const char *value = lookup(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static sp_status get_number(lookup_call lookup, const char *name, int from, int to, int *number,
                            sp_error *err)
{
    const char *text = sp_launcher_get(lookup, name);
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

// The first name that is set, else the last one.
static const char *first_set(lookup_call lookup, const char *const names[NAMES])
{
    const char *name = names[0];
    for (int i = 0; i < NAMES && names[i] != NULL; i++) {
        name = names[i];
        if (sp_launcher_get(lookup, name) != NULL) {
            break;
        }
    }
    return name;
}

// SLURM_NTASKS alone is also what a user tells srun, and Slurm sets rank 0 of all tasks in a batch
// script too, where there is no step: what the script itself starts would wait for ranks that
// nobody starts.
static bool is_started_by(lookup_call lookup, const launcher *l)
{
    bool has_rank = sp_launcher_get(lookup, l->rank) != NULL;
    if (l->slurm) {
        return has_rank && (sp_launcher_get(lookup, "SLURM_JOB_ID") == NULL ||
                            sp_launcher_get(lookup, "SLURM_STEP_ID") != NULL);
    }
    return has_rank || sp_launcher_get(lookup, l->ranks[0]) != NULL;
}

static sp_status read_place(lookup_call lookup, const launcher *l, sp_launcher_place *place,
                            sp_error *err)
{
    *place = (sp_launcher_place){.local_rank = -1, .variable = l->rank};
    SP_TRY(
        get_number(lookup, first_set(lookup, l->ranks), 1, SP_LAUNCHER_RANKS, &place->ranks, err));
    SP_TRY(get_number(lookup, l->rank, 0, place->ranks - 1, &place->rank, err));
    const char *local = first_set(lookup, l->local);
    if (sp_launcher_get(lookup, local) != NULL) {
        SP_TRY(get_number(lookup, local, 0, place->ranks - 1, &place->local_rank, err));
    }
    const char *here = l->here != NULL ? sp_launcher_get(lookup, l->here) : NULL;
    const char *machines = l->machines != NULL ? sp_launcher_get(lookup, l->machines) : NULL;
    long local_ranks = here != NULL ? strtol(here, NULL, 10) : 0;
    place->local_ranks = local_ranks > 0 && local_ranks <= place->ranks ? (int)local_ranks : 0;
    place->one_machine =
        place->local_ranks == place->ranks || (machines != NULL && strcmp(machines, "1") == 0);
    return SP_OK;
}

// One that was started inside the other has the variables of both, and either may be meant.
static sp_status check_agreement(lookup_call lookup, const sp_launcher_place *place, sp_error *err)
{
    sp_launcher_place other;
    if (place->variable != launchers[OPEN_MPI].rank || !is_started_by(lookup, &launchers[PMI])) {
        return SP_OK;
    }
    SP_TRY(read_place(lookup, &launchers[PMI], &other, err));
    if (other.rank != place->rank || other.ranks != place->ranks) {
        return sp_error_set(
            err, SP_ERR_USAGE, "environment: %s says rank %d of %d, but %s says rank %d of %d",
            place->variable, place->rank, place->ranks, other.variable, other.rank, other.ranks);
    }
    return SP_OK;
}

sp_status sp_launcher_read(lookup_call lookup, bool torchrun, sp_launcher_place *place,
                           sp_error *err)
{
    *place = (sp_launcher_place){.ranks = 1, .local_ranks = 1, .one_machine = true};
    for (int i = torchrun ? TORCHRUN : OPEN_MPI; i < LAUNCHERS; i++) {
        if (is_started_by(lookup, &launchers[i])) {
            sp_status status = read_place(lookup, &launchers[i], place, err);
            return status == SP_OK ? check_agreement(lookup, place, err) : status;
        }
    }
    return SP_OK;
}
