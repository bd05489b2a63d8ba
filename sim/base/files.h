// Files as every command opens them: inputs that may be pipes, and outputs that are whole or not
// there.
#ifndef SLIMPACK_SIM_BASE_FILES_H
#define SLIMPACK_SIM_BASE_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/status.h"

// The standard streams by name, also where they are no files that could be opened again.
#define SP_STANDARD_INPUT "/dev/stdin"
#define SP_STANDARD_OUTPUT "/dev/stdout"

// Is something there, and no folder?
bool sp_is_file(const char *path);

// Is it a pipe, a socket or a device, where a second writing does not replace the first?
bool sp_is_stream(const char *path);

// The path behind the symbolic links that it names, also where they lead to nothing yet. The caller
// frees it with sp_free().
char *sp_link_target(const char *path);

// Opens a file for reading. It may be a pipe, a socket or a terminal, which is read to its end,
// once, and can be sought in and opened again. No output of this process writes over a regular file
// that was opened so. SP_ERR_IO names the path; a folder is no file.
sp_status sp_input_open(const char *path, FILE **file, sp_error *err);

// An output being written. A regular file is written beside its place and put there at the end:
// what stood there stays until then, keeps its mode, and a symbolic link to it stays one. A device,
// a pipe and standard output are written to as they are, and so is a file whose folder takes no
// other.
typedef struct sp_output {
    FILE *file;       // NULL: not open
    const char *path; // as given, not owned
    char *target;     // the file that `part` becomes; both NULL: `file` is the file itself
    char *part;
} sp_output;

// SP_ERR_IO names the path. A file that was read is refused (SP_ERR_USAGE).
sp_status sp_output_open(sp_output *out, const char *path, sp_error *err);

// Ends it; `written` says how the writing went. Unless it is SP_OK and every byte could be written,
// nothing new stays at the path. Returns `written`, or SP_ERR_IO.
sp_status sp_output_close(sp_output *out, sp_status written, sp_error *err);

// A command may take minutes: says before what sp_output_open() would, and changes nothing.
sp_status sp_output_check(const char *path, sp_error *err);

// Takes away what unfinished outputs have left, and folders; safe in a signal handler that ends the
// program.
void sp_outputs_abandon(void);

// Makes a folder for this process to work in, which sp_outputs_abandon() takes away with its files.
// Folders in it are made by calls of their own.
sp_status sp_folder_make(const char *folder, sp_error *err);
// One under $TMPDIR, or /tmp, of a new name, which it writes to folder[bytes].
sp_status sp_folder_make_temporary(char *folder, size_t bytes, sp_error *err);
// Removes a folder, made by these or not, with its files; folders in it stay, and then it does.
void sp_folder_remove(const char *folder);

// Standard output as an output is this descriptor from now on (1 at first).
void sp_output_use_standard(int descriptor);

// The descriptor that a path names, such as 1 for "/dev/stdout" and 3 for "/dev/fd/3", or -1.
int sp_descriptor_of(const char *path);

// The path, from the folder of `file`, of what is called `name` from the working directory. False
// where the name stays as it is: it is absolute and of no place in that folder or below, or `file`
// has no folder in its name. Of a stream, which may end anywhere, absolute.
bool sp_path_from(const char *file, const char *name, char *path, size_t path_bytes);

#endif
