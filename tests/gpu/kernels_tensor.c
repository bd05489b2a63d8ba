#include "tests/gpu/kernels_tensor.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const tensor_layout tensor_layouts[TENSOR_LAYOUTS] = {{0, 0}, {0, 16}, {1, 3}};

enum { MARGIN_BYTES = 256 };

static void *need(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

// What lives until tensor_free_all.
enum { MOST_OWNED = 4096 };
static struct owned {
    void *host, *device;
} owned[MOST_OWNED];
static int owned_count;

static void own(void *host, void *device)
{
    if (owned_count == MOST_OWNED) {
        fprintf(stderr, "a test with too many tensors\n");
        exit(1);
    }
    owned[owned_count++] = (struct owned){host, device};
}

void tensor_free_all(void)
{
    for (; owned_count > 0; owned_count--) {
        free(owned[owned_count - 1].host);
        if (owned[owned_count - 1].device != NULL) {
            device_free(owned[owned_count - 1].device);
        }
    }
}

static size_t size_of(tensor_type type)
{
    static const size_t size[] = {[TENSOR_BF16] = sizeof(sp_bf16),
                                  [TENSOR_FP32] = sizeof(float),
                                  [TENSOR_FP64] = sizeof(double),
                                  [TENSOR_INT64] = sizeof(int64_t)};
    return size[type];
}

static uint64_t draw_state;

void tensor_start_draws(void)
{
    draw_state = 1;
}

// splitmix64 (Steele, Lea, Flood, 2014).
static uint64_t draw(void)
{
    uint64_t z = draw_state += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
}

double tensor_random(void)
{
    return (double)(draw() >> 11) * 0x1p-53;
}

int64_t tensor_below(int64_t n)
{
    return (int64_t)(tensor_random() * (double)n);
}

static size_t bytes_of(const tensor *t)
{
    size_t elements = (size_t)(t->offset + t->rows * t->stride);
    return elements * size_of(t->type) + 2 * (size_t)MARGIN_BYTES;
}

static void encode(tensor_type type, double value, unsigned char *to)
{
    if (type == TENSOR_BF16) {
        sp_bf16 x = sp_bf16_from_float((float)value);
        memcpy(to, &x, sizeof x);
    } else if (type == TENSOR_FP32) {
        float x = (float)value;
        memcpy(to, &x, sizeof x);
    } else if (type == TENSOR_FP64) {
        memcpy(to, &value, sizeof value);
    } else {
        int64_t x = (int64_t)value;
        memcpy(to, &x, sizeof x);
    }
}

static double decode(tensor_type type, const unsigned char *from)
{
    if (type == TENSOR_BF16) {
        sp_bf16 x;
        memcpy(&x, from, sizeof x);
        return (double)sp_bf16_to_float(x);
    }
    if (type == TENSOR_FP32) {
        float x;
        memcpy(&x, from, sizeof x);
        return (double)x;
    }
    if (type == TENSOR_FP64) {
        double x;
        memcpy(&x, from, sizeof x);
        return x;
    }
    int64_t x;
    memcpy(&x, from, sizeof x);
    return (double)x;
}

// All bits set is a NaN in every type, and an index that nobody may use.
static void start(tensor *t)
{
    int64_t n = t->rows * t->stride;
    t->value = need((size_t)n * sizeof *t->value);
    for (int64_t i = 0; i < n; i++) {
        t->value[i] = (double)NAN;
    }
    t->memory = device_new(bytes_of(t));
    own(t->value, t->memory);
    t->device = (unsigned char *)t->memory + MARGIN_BYTES + (size_t)t->offset * size_of(t->type);
    unsigned char *room = need(bytes_of(t));
    memset(room, 0xff, bytes_of(t));
    device_put(t->memory, room, bytes_of(t));
    free(room);
}

tensor tensor_blank(tensor_type type, int64_t rows, int64_t columns, tensor_layout layout)
{
    tensor t = {.type = type,
                .rows = rows,
                .columns = columns,
                .stride = columns + layout.gap,
                .offset = layout.offset};
    start(&t);
    return t;
}

tensor tensor_drawn(tensor_type type, int64_t rows, int64_t columns, tensor_layout layout,
                    double size)
{
    tensor t = tensor_blank(type, rows, columns, layout);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            t.value[r * t.stride + c] = size * (2.0 * tensor_random() - 1.0);
        }
    }
    tensor_put(&t);
    return t;
}

void tensor_put(tensor *t)
{
    size_t size = size_of(t->type);
    unsigned char *room = need(bytes_of(t));
    memset(room, 0xff, bytes_of(t));
    unsigned char *first = room + MARGIN_BYTES + (size_t)t->offset * size;
    for (int64_t r = 0; r < t->rows; r++) {
        for (int64_t i = r * t->stride; i < r * t->stride + t->columns; i++) {
            encode(t->type, t->value[i], first + (size_t)i * size);
            t->value[i] = decode(t->type, first + (size_t)i * size);
        }
    }
    device_put(t->memory, room, bytes_of(t));
    free(room);
}

static void check_untouched(const unsigned char *from, const unsigned char *end, const char *where)
{
    for (; from < end; from++) {
        if (*from != 0xff) {
            fprintf(stderr, "a kernel wrote %s\n", where);
            exit(1);
        }
    }
}

void tensor_get(tensor *t)
{
    size_t size = size_of(t->type);
    unsigned char *room = need(bytes_of(t));
    device_get(room, t->memory, bytes_of(t));
    unsigned char *first = room + MARGIN_BYTES + (size_t)t->offset * size;
    unsigned char *end = first + (size_t)(t->rows * t->stride) * size;
    check_untouched(room, first, "before its tensor");
    check_untouched(end, room + bytes_of(t), "behind its tensor");
    for (int64_t r = 0; r < t->rows; r++) {
        unsigned char *row = first + (size_t)(r * t->stride) * size;
        check_untouched(row + (size_t)t->columns * size, row + (size_t)t->stride * size,
                        "between the rows of its tensor");
        for (int64_t c = 0; c < t->columns; c++) {
            t->value[r * t->stride + c] = decode(t->type, row + (size_t)c * size);
        }
    }
    free(room);
}

double *tensor_values(const tensor *t)
{
    size_t bytes = (size_t)(t->rows * t->stride) * sizeof *t->value;
    double *copy = need(bytes);
    own(copy, NULL);
    memcpy(copy, t->value, bytes);
    return copy;
}

double *tensor_zeros(int64_t n)
{
    double *zeros = need((size_t)n * sizeof *zeros);
    own(zeros, NULL);
    for (int64_t i = 0; i < n; i++) {
        zeros[i] = 0;
    }
    return zeros;
}

static bool near(double value, double expected, double bound)
{
    return value == expected || fabs(value - expected) <= bound;
}

void tensor_check(const char *what, tensor *t, const double *expected, double relative,
                  double absolute)
{
    tensor_get(t);
    for (int64_t r = 0; r < t->rows; r++) {
        for (int64_t c = 0; c < t->columns; c++) {
            int64_t i = r * t->stride + c;
            double bound = relative * fabs(expected[i]) + absolute;
            if (!near(t->value[i], expected[i], bound)) {
                fprintf(stderr,
                        "%s: [%lld, %lld] of [%lld, %lld] is %.9g, expected %.9g within %.3g\n",
                        what, (long long)r, (long long)c, (long long)t->rows, (long long)t->columns,
                        t->value[i], expected[i], bound);
                exit(1);
            }
        }
    }
}

void tensor_check_share(const char *what, tensor *t, const double *expected, double relative,
                        double share)
{
    double largest = 0;
    for (int64_t r = 0; r < t->rows; r++) {
        for (int64_t c = 0; c < t->columns; c++) {
            largest = fmax(largest, fabs(expected[r * t->stride + c]));
        }
    }
    tensor_check(what, t, expected, relative, share * largest);
}
