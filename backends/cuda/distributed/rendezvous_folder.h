// The folder in which ranks meet (rendezvous_files.c): files that appear whole under their names,
// and the ranks' cards.
#ifndef SLIMPACK_BACKENDS_CUDA_RENDEZVOUS_FOLDER_H
#define SLIMPACK_BACKENDS_CUDA_RENDEZVOUS_FOLDER_H

#include <sys/types.h>

#include "backends/cuda/distributed/rendezvous.h"

enum { SP_I_FOLDER_PATH = SP_I_PLACE_FOLDER + SP_I_PLACE_RUN + 64, SP_I_NUMBER = 17 };

typedef char sp_i_number[SP_I_NUMBER]; // 16 hexadecimal digits
void sp_i_number_draw(sp_i_number drawn);

// A rank's card: the number that its process has drawn, the session that it has taken up ("-":
// none) and what it has in common with the others.
typedef struct sp_i_card {
    sp_i_number own, session;
    char text[SP_I_RENDEZVOUS_CARD];
} sp_i_card;

// The folder as one rank has it.
typedef struct sp_i_folder {
    char path[SP_I_FOLDER_PATH - 64];
    int rank, ranks;
    char card[SP_I_RENDEZVOUS_CARD]; // the text of its card
    int card_file;                   // open and locked; -1: none
    sp_i_number own, session;        // session "": none yet
} sp_i_folder;

void sp_i_folder_path(const sp_i_folder *f, char path[SP_I_FOLDER_PATH], const char *format, ...)
    SP_PRINTF(3, 4);
// Shared file systems show others' files late where a folder was just looked at (NFS): opening the
// folder makes them look again.
void sp_i_folder_look_again(const sp_i_folder *f);
// Puts a whole file under its name; where `first` is set only if there is none of that name.
bool sp_i_folder_put(const sp_i_folder *f, const char *path, const void *data, size_t bytes,
                     bool first);
// Up to `bytes` of a file from an offset on; how many there were, or -1: no such file.
ssize_t sp_i_folder_read(const char *path, off_t from, void *data, size_t bytes);
// Removes all files but cards that are held and this process's own. For one that leaves, nothing is
// removed while a card is held, nor what a rank of a next run is writing.
void sp_i_folder_clear(const sp_i_folder *f, bool leaves);

bool sp_i_card_read(const sp_i_folder *f, int rank, sp_i_card *read);
// Does a process that lives hold this card? `unknown` where the file system has no locks.
bool sp_i_card_is_held(const char *path, bool unknown);
// This rank's card with the session it has taken up. False where another process that lives has it.
bool sp_i_card_put(sp_i_folder *f);
bool sp_i_card_is_own(const sp_i_folder *f);
// Puts the card again where it is not there: rank 0 clears the folder when it comes, and another
// process of this rank may still be at its end.
bool sp_i_card_keep(sp_i_folder *f);

#endif
