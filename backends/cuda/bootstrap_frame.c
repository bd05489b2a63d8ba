#include "backends/cuda/bootstrap_frame.h"

#include <string.h>

static const unsigned char hello_magic[8] = {'s', 'l', 'i', 'm', 'p', 'a', 'c', 'k'};
static const uint32_t head_magic = 0x73706b66u; // "spkf"

uint32_t sp_i_bootstrap_u32(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
           (uint32_t)bytes[3];
}

void sp_i_bootstrap_put_u32(unsigned char *bytes, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        bytes[i] = (unsigned char)(value >> (24 - 8 * i) & 0xffu);
    }
}

static uint64_t u64(const unsigned char *bytes)
{
    return (uint64_t)sp_i_bootstrap_u32(bytes) << 32 | sp_i_bootstrap_u32(bytes + 4);
}

static void put_u64(unsigned char *bytes, uint64_t value)
{
    sp_i_bootstrap_put_u32(bytes, (uint32_t)(value >> 32));
    sp_i_bootstrap_put_u32(bytes + 4, (uint32_t)(value & 0xffffffffu));
}

void sp_i_bootstrap_hello_write(const sp_i_bootstrap_hello *hello,
                                unsigned char bytes[SP_I_BOOTSTRAP_HELLO])
{
    memcpy(bytes, hello_magic, sizeof hello_magic);
    unsigned char *at = bytes + sizeof hello_magic;
    sp_i_bootstrap_put_u32(at, hello->version);
    memcpy(at + 4, hello->run, SP_I_BOOTSTRAP_RUN);
    at += 4 + SP_I_BOOTSTRAP_RUN;
    sp_i_bootstrap_put_u32(at, hello->ranks);
    sp_i_bootstrap_put_u32(at + 4, hello->rank);
    sp_i_bootstrap_put_u32(at + 8, hello->plan_hash);
}

bool sp_i_bootstrap_hello_read(const unsigned char bytes[SP_I_BOOTSTRAP_HELLO],
                               sp_i_bootstrap_hello *hello)
{
    const unsigned char *at = bytes + sizeof hello_magic;
    hello->version = sp_i_bootstrap_u32(at);
    memcpy(hello->run, at + 4, SP_I_BOOTSTRAP_RUN);
    at += 4 + SP_I_BOOTSTRAP_RUN;
    hello->ranks = sp_i_bootstrap_u32(at);
    hello->rank = sp_i_bootstrap_u32(at + 4);
    hello->plan_hash = sp_i_bootstrap_u32(at + 8);
    return memcmp(bytes, hello_magic, sizeof hello_magic) == 0 &&
           hello->run[SP_I_BOOTSTRAP_RUN - 1] == '\0';
}

const char *sp_i_bootstrap_kind_name(sp_i_bootstrap_kind kind)
{
    static const char *const names[SP_I_BOOTSTRAP_KINDS] = {
        [SP_I_BOOTSTRAP_WELCOME] = "joining", [SP_I_BOOTSTRAP_BROADCAST] = "a broadcast",
        [SP_I_BOOTSTRAP_GATHER] = "a gather", [SP_I_BOOTSTRAP_ARRIVE] = "a barrier",
        [SP_I_BOOTSTRAP_LEAVE] = "a barrier", [SP_I_BOOTSTRAP_ABORT] = "an abort",
        [SP_I_BOOTSTRAP_BYE] = "its end",
    };
    return names[kind];
}

void sp_i_bootstrap_head_write(const sp_i_bootstrap_head *head,
                               unsigned char bytes[SP_I_BOOTSTRAP_HEAD])
{
    sp_i_bootstrap_put_u32(bytes, head_magic);
    sp_i_bootstrap_put_u32(bytes + 4, (uint32_t)head->kind);
    put_u64(bytes + 8, head->call);
    put_u64(bytes + 16, head->bytes);
}

bool sp_i_bootstrap_head_read(const unsigned char bytes[SP_I_BOOTSTRAP_HEAD],
                              sp_i_bootstrap_head *head)
{
    uint32_t kind = sp_i_bootstrap_u32(bytes + 4);
    if (sp_i_bootstrap_u32(bytes) != head_magic || kind < SP_I_BOOTSTRAP_WELCOME ||
        kind >= SP_I_BOOTSTRAP_KINDS) {
        return false;
    }
    *head = (sp_i_bootstrap_head){(sp_i_bootstrap_kind)kind, u64(bytes + 8), u64(bytes + 16)};
    switch (head->kind) {
    case SP_I_BOOTSTRAP_BROADCAST:
    case SP_I_BOOTSTRAP_GATHER:
        return head->bytes <= SP_I_BOOTSTRAP_BYTES;
    case SP_I_BOOTSTRAP_ABORT:
        return head->bytes >= 4 && head->bytes <= 4 + SP_ERROR_TEXT;
    default:
        return head->bytes == 0;
    }
}

uint32_t sp_i_bootstrap_hash(const void *text, size_t bytes)
{
    const unsigned char *at = text;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1u)));
        }
    }
    return ~crc;
}
