#include "backends/executor/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backends/executor/draw.h"
#include "sim/base/alloc.h"

enum { PIECE = 1 << 16 };

static sp_status read_all(FILE *file, const char *path, sp_i_exec_text *text, sp_error *err)
{
    size_t capacity = 0;
    size_t got = 1;
    while (got > 0) {
        void *bytes = text->bytes;
        if (!sp_i_reserve(&bytes, &capacity, text->count + PIECE, 1)) {
            return sp_error_no_memory(err, "a text");
        }
        text->bytes = bytes;
        got = fread(text->bytes + text->count, 1, PIECE, file);
        text->count += got;
    }
    return ferror(file) ? sp_error_set(err, SP_ERR_IO, "%s: %s", path, strerror(errno)) : SP_OK;
}

static sp_status check_bytes(const sp_i_exec_text *text, const char *path, int64_t vocab,
                             sp_error *err)
{
    for (size_t i = 0; i < text->count; i++) {
        if (text->bytes[i] >= vocab) {
            return sp_error_set(err, SP_ERR_CONTENT,
                                "%s: byte %zu is %d, but the vocabulary has %lld tokens", path, i,
                                (int)text->bytes[i], (long long)vocab);
        }
    }
    return text->count > 0 ? SP_OK : sp_error_set(err, SP_ERR_CONTENT, "%s: no text", path);
}

sp_status sp_i_exec_text_read(const char *path, int64_t vocab, sp_i_exec_text *text, sp_error *err)
{
    *text = (sp_i_exec_text){0};
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return sp_error_set(err, SP_ERR_IO, "%s: %s", path, strerror(errno));
    }
    sp_status status = read_all(file, path, text, err);
    fclose(file);
    status = status == SP_OK ? check_bytes(text, path, vocab, err) : status;
    if (status != SP_OK) {
        sp_i_exec_text_fini(text);
    }
    return status;
}

void sp_i_exec_text_fini(sp_i_exec_text *text)
{
    sp_i_free(text->bytes);
    *text = (sp_i_exec_text){0};
}

int64_t sp_i_exec_token(const sp_i_exec_text *text, uint64_t seed, int step, int64_t id,
                        int64_t position, int64_t vocab)
{
    uint64_t of_step = sp_i_exec_draw(sp_i_exec_draw_name(seed, "tokens"), (uint64_t)step);
    uint64_t of_sample = sp_i_exec_draw(of_step, (uint64_t)id);
    if (text->bytes != NULL) {
        uint64_t start = of_sample % text->count;
        return text->bytes[(start + (uint64_t)position) % text->count];
    }
    return (int64_t)(sp_i_exec_draw(of_sample, (uint64_t)position) % (uint64_t)vocab);
}
