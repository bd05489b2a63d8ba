// What one machine came to, in one file (slimpack/measurement/1): profiles that were measured on it
// and the cases of a set that it executed. `slimpack measure` adds to it part by part, on a machine
// whose owner need not know what for; `slimpack validate --executed` compares it anywhere.
//
// {"schema", "version": of the program, "backend", "precision", "steps": of a case, "device":
// {"name", "ranks",
//  "cores"}, "system": kernel and machine type, never a host's name, "set": {validation set},
//  "parts": [{"name", "status": "ok", "failed", "over time" or "not reached", "quick": of a
//  profile, "seconds", "reason": text or null}, ...], "profiles": {name: {slimpack/profile/1}},
//  "results": {case's file name: {slimpack/execution/1}}, "validation": {slimpack/validation/1} or
//  null}
#ifndef SLIMPACK_EXPERIMENTS_EXECUTION_MEASUREMENT_H
#define SLIMPACK_EXPERIMENTS_EXECUTION_MEASUREMENT_H

#include <jansson.h>

#include "backends/api/device.h"
#include "sim/metrics/result.h"

#define SP_MEASUREMENT_SCHEMA "slimpack/measurement/1"

// A profile that a set names, which "NAME-1ofN" asks to be measured on one of N partitions.
enum { SP_SET_PROFILES = 16, SP_MOST_PARTITIONS = 64 };

typedef struct sp_set_profile {
    const char *name; // belongs to the set's document
    int partitions;   // 1: the whole device
    char whole[64];   // the profile of the whole device; `name` where it is that itself
} sp_set_profile;

// The profiles that base, groups and cases name, each once, whole devices first; their count.
// Content errors: none is named, or more than SP_SET_PROFILES, or one by a path.
sp_status sp_set_profiles(const json_t *set, const char *source,
                          sp_set_profile profiles[SP_SET_PROFILES], int *count, sp_error *err);

// Where the program has no profile of that name: its profile of the whole device, which the caller
// owns, else NULL. Errors: those of sp_profile_document().
sp_status sp_set_stand_in(const sp_set_profile *profile, json_t **document, sp_error *err);

// A measurement of a set without parts. `precision` is one of sp_precision_names.
json_t *sp_measurement_new(const json_t *set, const char *backend, const char *precision, int steps,
                           const sp_device_info *device);

// Is it one of this set, backend, precision, device, number of steps and version of the program, to
// which parts may be added? Content errors name what differs.
sp_status sp_measurement_check(const json_t *measurement, const char *source,
                               const json_t *expected, sp_error *err);

// Notes what became of a part, in place of what was noted before.
typedef struct sp_measured_part {
    const char *name, *status;
    bool quick;
    double seconds;
    const char *reason; // NULL: none
} sp_measured_part;

void sp_measurement_note(json_t *measurement, const sp_measured_part *part);
// Is the part there, as a quick one or as a whole one?
bool sp_measurement_has(const json_t *measurement, const char *name, bool quick);

// Writes it, or a document of it, so that each number comes back. SP_ERR_IO names the file.
sp_status sp_measurement_write(const json_t *document, const char *path, sp_error *err);

// Writes each profile to folder/profiles/NAME.json and each result to folder/NAME.result.json; both
// folders are there. A profile of a partition that was not measured is that of the whole device; a
// warning says so, and which other one was not. Content errors: it is no measurement.
sp_status sp_measurement_unpack(const json_t *measurement, const char *source, const char *folder,
                                sp_warnings *warnings, sp_error *err);

// Its profiles by the names that its set has for them, which belong to it; each has a name of its
// own that a file may have. Content errors: it is no measurement, or two profiles have one name.
sp_status sp_measurement_profiles(const json_t *measurement, const char *source, json_t **profiles,
                                  sp_error *err);

// Makes a folder with a folder `profiles` in it, in place of an empty one or of one like it that
// was left there; a signal that ends the program takes it away. SP_ERR_IO: a folder with other
// files is there, which stays.
sp_status sp_work_folder_make(const char *folder, sp_error *err);
// One under $TMPDIR, or /tmp, of a new name, which it writes to folder[bytes].
sp_status sp_work_folder_make_temporary(char *folder, size_t bytes, sp_error *err);
// Removes it with its files, and theirs in `profiles`.
void sp_work_folder_remove(const char *folder);

// Names folder/profiles before all others as a place for profiles ($SLIMPACK_PROFILE_PATH).
sp_status sp_work_folder_use(const char *folder, sp_error *err);

#endif
