// The times of links in a request (request.h), as documents.
#ifndef SLIMPACK_BACKENDS_RECORD_REQUEST_LINKS_H
#define SLIMPACK_BACKENDS_RECORD_REQUEST_LINKS_H

#include "backends/record/request.h"

// Of one batch. NULL when memory runs out.
json_t *sp_i_links_json(const sp_link_times *links, int pp);

// Reads the member "links" of a request whose plans are there into file->links; `member` may be
// NULL, which is none. Content errors at `source`.
sp_status sp_i_links_read(const json_t *member, const char *source, sp_request_file *file,
                          sp_error *err);

#endif
