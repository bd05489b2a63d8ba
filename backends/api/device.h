// The calls that users of a backend make. Every operation is there for every backend: one that it
// leaves out is answered here, with an error that says so.
#ifndef SLIMPACK_BACKENDS_API_DEVICE_H
#define SLIMPACK_BACKENDS_API_DEVICE_H

#include "backends/api/backend.h"

// A backend that passed the checks of sp_i_backend_new; a registry (backend.h) makes and owns it.
typedef struct sp_backend sp_backend;

// A run that ended well. The backend's registry must outlive it.
typedef struct sp_run sp_run;

const char *sp_backend_name(const sp_backend *backend);
// Name of the software stack that describes its memory; NULL: it names none.
const char *sp_backend_stack(const sp_backend *backend);
// Ends with a NULL key.
const sp_backend_option_info *sp_backend_options(const sp_backend *backend);

// Says which of the processes of one run this is (backend.h); *rank 0 of *ranks 1 where it is
// alone.
// Only process 0 prints and writes files.
sp_status sp_backend_process(const sp_backend *backend, int *rank, int *ranks, sp_error *err);

sp_status sp_backend_device_count(const sp_backend *backend, int *count, sp_error *err);
// SP_ERR_USAGE for a device that is not there, with what is.
sp_status sp_backend_device_info(const sp_backend *backend, int device, sp_device_info *info,
                                 sp_error *err);
sp_status sp_backend_calibrate(const sp_backend *backend, int device,
                               const sp_calibration_request *request, json_t **profile,
                               sp_error *err);

// Seconds of the backend's reference work (backend.h); 0 where it has none.
sp_status sp_backend_reference(const sp_backend *backend, int device, int ranks, double *seconds,
                               sp_error *err);

// The capabilities that a run asks of a device.
typedef struct sp_requirements {
    uint64_t needed;    // SP_CAN(...) | ...
    uint64_t at_action; // those of them that an action needs, the first one of which stands below
    sp_plan_place first[SP_CAPABILITIES];
} sp_requirements;

// O(actions + slices).
void sp_requirements_find(const sp_run_request *request, sp_requirements *requirements);

// Can the device execute this? In this order: the request and its options (unknown keys get the
// nearest known one), the rules of the plan (sp_plan_check), that no ranks wait for each other for
// ever (SP_ERR_DEADLOCK), then all capabilities that are missing, each a content error that names
// it and the first action that needs it, and what the backend checks itself. O(actions + slices),
// up to sorting.
sp_status sp_backend_check(const sp_backend *backend, int device, const sp_run_request *request,
                           sp_error *err);

// Checks, executes, and checks what came back (sp_measured_step_check): a timeline that is not one
// of the plan is SP_ERR_INTERNAL. *run is freed with sp_run_free; NULL on failure.
sp_status sp_backend_run(const sp_backend *backend, int device, const sp_run_request *request,
                         sp_run **run, sp_error *err);
void sp_run_free(sp_run *run);

int sp_run_steps(const sp_run *run);
const sp_measured_step *sp_run_step(const sp_run *run, int step);

// How the run was executed, in the backend's own keys (backend.h); NULL where it does not say. The
// caller's.
json_t *sp_run_report(const sp_run *run);

// Tensors of a run by name. An unknown name is SP_ERR_USAGE with the nearest one. Each call
// O(tensors).
sp_status sp_run_tensor_count(const sp_run *run, size_t *count, sp_error *err);
sp_status sp_run_tensor_at(const sp_run *run, size_t index, sp_tensor_info *info, sp_error *err);
sp_status sp_run_tensor_find(const sp_run *run, const char *name, sp_tensor_info *info,
                             sp_error *err);
// Its elements, row-major; `count` must be info.elements.
sp_status sp_run_tensor_read(const sp_run *run, const char *name, double *values, int64_t count,
                             sp_error *err);

// Makes a backend for a registry: checks version, size and types of a table and resolves its slots.
// `table` is only read as far as it says that it goes, and must outlive the backend; `source` names
// it.
sp_status sp_i_backend_new(const sp_backend_ops *table, const char *source, sp_backend **backend,
                           sp_error *err);
void sp_backend_free(sp_backend *backend);

// A backend that is known by name alone: it is not built on this machine, and another executes.

// One without devices, options and a stack of its own. `name`, which must outlive it, is that of a
// backend (backend.h), else a content error. The caller frees it with sp_backend_free.
sp_status sp_backend_absent_new(const char *name, sp_backend **backend, sp_error *err);

// ---- Checks of what came back ----

// Is a measured timeline one of the plan?

// Checks one step: an entry for every rank; on each rank exactly the plan's actions in its order,
// the copies of each direction likewise; no span ends before it starts, or starts before the one
// before it ended; no action starts before what it reads was done (the stage before or behind, O
// after its F, L after its O, what reads a copy after its L; both of an overlapped pair are done
// when the second is); memory whose points are in order, whose largest total is the peak, and that
// ends with nothing held of activations, keys and values, their gradients, logits, recomputation
// and offloaded bytes beyond what was held at the start. A finding is SP_ERR_INTERNAL with rank and
// action. O(actions + slices + points).
sp_status sp_measured_step_check(const sp_plan *plan, const sp_measured_step *step, sp_error *err);

// ---- Backends by name ----

// Backends by name: those built in, then plug-ins.

// Not for use by several threads at once.
typedef struct sp_registry sp_registry;

sp_status sp_registry_new(sp_registry **registry, sp_error *err);
// Closes the plug-ins; all runs of their backends must be freed before.
void sp_registry_free(sp_registry *registry);

// The backend of this name; loads the plug-in libslimpack-backend-NAME.so once. Folders, in this
// order: those of $SLIMPACK_BACKEND_PATH (separated by ':'), slimpack/ of the library folder beside
// the program's, wherever its prefix has been moved, backends/ of the program's build tree,
// slimpack/ of the library folder of the configured prefix. The first file that is there is taken,
// or the error says what is wrong with it: no shared library, no table of operations, another
// version of the interface, other headers, another name. A name with '/' is the path of a plug-in.
// An unknown name is a content error with the nearest known name and all of them. O(files in the
// folders).
sp_status sp_registry_find(sp_registry *registry, const char *name, const sp_backend **backend,
                           sp_error *err);

// Names of all that can be found, in alphabetical order, without loading any.
enum { SP_BACKEND_NAME = 64 };
typedef struct sp_backend_names {
    char (*name)[SP_BACKEND_NAME]; // owned
    size_t count, capacity;
} sp_backend_names;

void sp_registry_names(sp_backend_names *names);
void sp_backend_names_fini(sp_backend_names *names);

#endif
