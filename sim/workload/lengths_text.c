// Plain text: one integer per line; blank lines and lines that begin with '#' are passed over.
#include <string.h>

#include "sim/workload/length_reader_internal.h"

static bool is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] != ' ' && text[i] != '\t') {
            return false;
        }
    }
    return true;
}

sp_status sp_i_lengths_read_text(sp_i_reader *reader)
{
    for (;;) {
        const char *line = NULL;
        size_t n = 0;
        sp_status status = sp_i_reader_line(reader, '\0', &line, &n);
        if (status != SP_OK || line == NULL) {
            return status;
        }
        int64_t tokens = 0;
        if (sp_i_parse_length(line, n, &tokens)) {
            status = sp_lengths_append(reader->lengths, tokens, reader->err);
        } else if (!is_blank(line, n) && line[0] != '#') {
            char quoted[SP_I_QUOTE];
            char found[SP_I_QUOTE + 2];
            sp_i_quote(line, n, quoted);
            snprintf(found, sizeof found, "\"%s\"", quoted);
            status = sp_i_refuse(reader, NULL, found);
        }
        if (status != SP_OK) {
            return status;
        }
    }
}
