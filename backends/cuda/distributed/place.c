#include "backends/cuda/distributed/place.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/cuda/distributed/rendezvous_mpi.h"
#include "sim/base/launcher.h"

typedef char *(*lookup_call)(const char *name);

// Letters, digits and '-' of a text, as a part of a file's name.
static void add_to_name(char *name, size_t bytes, const char *text)
{
    size_t end = strlen(name);
    for (; *text != '\0' && end + 1 < bytes; text++) {
        name[end++] = (char)(isalnum((unsigned char)*text) ? *text : '-');
    }
    name[end] = '\0';
}

// Two runs at a time on one machine have another port, or another id.
static sp_status read_rendezvous(lookup_call lookup, bool one_machine, sp_i_place *place,
                                 sp_error *err)
{
    static const char *const runs[] = {"SLIMPACK_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"};
    const char *folder = sp_i_launcher_get(lookup, "SLIMPACK_RENDEZVOUS");
    const char *run = NULL;
    for (size_t i = 0; i < sizeof runs / sizeof *runs && run == NULL; i++) {
        run = sp_i_launcher_get(lookup, runs[i]);
    }
    add_to_name(place->run, sizeof place->run, run != NULL ? run : "run");
    if (sp_i_launcher_get(lookup, "MASTER_PORT") != NULL) {
        add_to_name(place->run, sizeof place->run, "-");
        add_to_name(place->run, sizeof place->run, sp_i_launcher_get(lookup, "MASTER_PORT"));
    }
    if (folder == NULL && one_machine) {
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

static sp_status read_ranks(lookup_call lookup, sp_i_launcher_place *launched, sp_i_place *place,
                            sp_error *err)
{
    sp_status status = sp_i_launcher_read(lookup, true, launched, err);
    *place = (sp_i_place){.rank = launched->rank,
                          .ranks = launched->ranks,
                          .local_rank = launched->local_rank,
                          .variable = launched->variable};
    return status;
}

sp_status sp_i_place_read(char *(*lookup)(const char *name), sp_i_place *place, sp_error *err)
{
    sp_i_launcher_place launched;
    sp_status status = read_ranks(lookup, &launched, place, err);
    return status == SP_OK && place->ranks > 1
               ? read_rendezvous(lookup, launched.one_machine, place, err)
               : status;
}

sp_status sp_i_place_of_process(sp_i_place *place, sp_error *err)
{
    sp_i_launcher_place launched;
    sp_status status = read_ranks(getenv, &launched, place, err);
    // torchrun's processes are none of MPI's.
    bool torchrun = place->variable != NULL && strcmp(place->variable, "RANK") == 0;
    if (status != SP_OK || place->ranks == 1 || torchrun || !sp_i_mpi_place(place)) {
        return status == SP_OK && place->ranks > 1
                   ? read_rendezvous(getenv, launched.one_machine, place, err)
                   : status;
    }
    return SP_OK;
}
