// What NCCL's calls do, between threads.
#include "tests/gpu/support/fake_nccl_calls.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/status.h"

// ---- arithmetic ----

static size_t bytes_of(ncclDataType_t type)
{
    return type == ncclUint8 ? 1 : type == ncclBfloat16 ? 2 : type == ncclFloat32 ? 4 : 8;
}

static double load(const void *from, ncclDataType_t type, size_t i)
{
    const char *at = (const char *)from + i * bytes_of(type);
    uint16_t half;
    uint32_t bits;
    float f;
    double d;
    switch (type) {
    case ncclFloat64:
        memcpy(&d, at, sizeof d);
        return d;
    case ncclFloat32:
        memcpy(&f, at, sizeof f);
        return (double)f;
    default:
        memcpy(&half, at, sizeof half);
        bits = (uint32_t)half << 16;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    }
}

// The test's numbers are small and whole: bf16 holds them.
static void store(void *to, ncclDataType_t type, size_t i, double value)
{
    char *at = (char *)to + i * bytes_of(type);
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t half = (uint16_t)(bits >> 16);
    switch (type) {
    case ncclFloat64:
        memcpy(at, &value, sizeof value);
        break;
    case ncclFloat32:
        memcpy(at, &f, sizeof f);
        break;
    default:
        memcpy(at, &half, sizeof half);
    }
}

// ---- calls ----

// Adds up what all members send this one.
static ncclResult_t receive_sum(const fake_call *c)
{
    const size_t bytes = c->count * bytes_of(c->type);
    unsigned char *part = malloc(bytes);
    SP_ASSERT(part != NULL && c->type != ncclUint8);
    ncclResult_t code = ncclSuccess;
    for (int i = 0; i < c->of->size && code == ncclSuccess; i++) {
        if (!mail_receive(c->of->members, MAIL_COLLECTIVES, i, c->of->rank, part, bytes)) {
            code = ncclInvalidArgument;
        }
        for (size_t j = 0; code == ncclSuccess && j < c->count; j++) {
            double a = load(c->out, c->type, j);
            double b = load(part, c->type, j);
            double both = c->operation == ncclSum ? a + b : a > b ? a : b;
            store(c->out, c->type, j, i == 0 ? b : both);
        }
    }
    free(part);
    return code;
}

static void send_to(const fake_call *c, int to, size_t offset_parts)
{
    const size_t bytes = c->count * bytes_of(c->type);
    mail_send(c->of->members, MAIL_COLLECTIVES, c->of->rank, to,
              (const char *)c->in + offset_parts * bytes, bytes);
}

static bool receive_into(const fake_call *c, int from, size_t offset_parts)
{
    const size_t bytes = c->count * bytes_of(c->type);
    return mail_receive(c->of->members, MAIL_COLLECTIVES, from, c->of->rank,
                        (char *)c->out + offset_parts * bytes, bytes);
}

static ncclResult_t collect(const fake_call *c)
{
    const int size = c->of->size;
    const bool root = c->of->rank == c->peer;
    bool fits = true;
    switch (c->kind) {
    case ALL_REDUCE:
    case REDUCE_SCATTER:
        for (int i = 0; i < size; i++) {
            send_to(c, i, c->kind == REDUCE_SCATTER ? (size_t)i : 0);
        }
        return receive_sum(c);
    case REDUCE:
        send_to(c, c->peer, 0);
        return root ? receive_sum(c) : ncclSuccess;
    case BROADCAST:
        for (int i = 0; i < size && root; i++) {
            send_to(c, i, 0);
        }
        fits = receive_into(c, c->peer, 0);
        break;
    case ALL_GATHER:
        for (int i = 0; i < size; i++) {
            send_to(c, i, 0);
        }
        for (int i = 0; i < size; i++) {
            fits = receive_into(c, i, (size_t)i) && fits;
        }
        break;
    default:
        break;
    }
    return fits ? ncclSuccess : ncclInvalidArgument;
}

bool fake_call_done(const fake_call *c, int pass)
{
    static const bool in_pass[FAKE_PASSES][2] = {{true, false}, {false, false}, {false, true}};
    const size_t bytes = c->count * bytes_of(c->type);
    if (c->kind == SEND && in_pass[pass][0]) {
        mail_send(c->of->members, MAIL_PAIRS, c->of->rank, c->peer, c->in, bytes);
    } else if (c->kind == RECV && in_pass[pass][1]) {
        return mail_receive(c->of->members, MAIL_PAIRS, c->peer, c->of->rank, c->out, bytes);
    } else if (c->kind != SEND && c->kind != RECV && pass == 1) {
        return collect(c) == ncclSuccess;
    }
    return true;
}
