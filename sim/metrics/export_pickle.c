#include "sim/metrics/export_pickle.h"

#include <string.h>

enum {
    OP_PROTO = 0x80,
    OP_STOP = '.',
    OP_MARK = '(',
    OP_EMPTY_DICT = '}',
    OP_SETITEMS = 'u',
    OP_EMPTY_LIST = ']',
    OP_APPENDS = 'e',
    OP_BININT = 'J',
    OP_LONG1 = 0x8a,
    OP_BINUNICODE = 'X',
    OP_LONG_BINPUT = 'r',
    OP_LONG_BINGET = 'j',
    PROTOCOL = 2,
    LONG_BYTES = 8,
};

static void opcode(sp_i_writer *out, int code)
{
    sp_i_write_char(out, (char)code);
}

static void little_endian(sp_i_writer *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        sp_i_write_char(out, (char)(value >> (8 * i) & 0xff));
    }
}

void sp_i_pickle_begin(sp_i_writer *out)
{
    opcode(out, OP_PROTO);
    opcode(out, PROTOCOL);
}

void sp_i_pickle_end(sp_i_writer *out)
{
    opcode(out, OP_STOP);
}

void sp_i_pickle_dict_begin(sp_i_writer *out)
{
    opcode(out, OP_EMPTY_DICT);
    opcode(out, OP_MARK);
}

void sp_i_pickle_dict_end(sp_i_writer *out)
{
    opcode(out, OP_SETITEMS);
}

void sp_i_pickle_list(sp_i_writer *out)
{
    opcode(out, OP_EMPTY_LIST);
}

void sp_i_pickle_batch_begin(sp_i_writer *out)
{
    opcode(out, OP_MARK);
}

void sp_i_pickle_batch_end(sp_i_writer *out)
{
    opcode(out, OP_APPENDS);
}

void sp_i_pickle_int(sp_i_writer *out, int64_t value)
{
    if (value >= INT32_MIN && value <= INT32_MAX) {
        opcode(out, OP_BININT);
        little_endian(out, (uint64_t)value, 4);
    } else {
        opcode(out, OP_LONG1);
        opcode(out, LONG_BYTES);
        little_endian(out, (uint64_t)value, LONG_BYTES);
    }
}

void sp_i_pickle_text(sp_i_writer *out, const char *text)
{
    size_t length = strlen(text);
    opcode(out, OP_BINUNICODE);
    little_endian(out, length, 4);
    sp_i_write_bytes(out, text, length);
}

void sp_i_pickle_store(sp_i_writer *out, uint32_t slot)
{
    opcode(out, OP_LONG_BINPUT);
    little_endian(out, slot, 4);
}

void sp_i_pickle_recall(sp_i_writer *out, uint32_t slot)
{
    opcode(out, OP_LONG_BINGET);
    little_endian(out, slot, 4);
}
