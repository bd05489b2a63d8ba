// Operators of PyTorch by the shapes, types and values of their inputs, as record_shapes=True
// writes them to a trace. Positions of inputs are those of native_functions.yaml.
#include "experiments/measure/traced_op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- values ----

enum { DIMS, TYPES, CONCRETE, COLLECTIVE, IN_NUMBERS, OUT_NUMBERS, DTYPE, GROUP_SIZE, GROUP_RANKS };

static const char *const keys[SP_TRACED_ARGS] = {
    "Input Dims",     "Input type", "Concrete Inputs", "Collective name",    "In msg nelems",
    "Out msg nelems", "dtype",      "Group size",      "Process Group Ranks"};

char *sp_traced_args_slot(sp_traced_args *args, const char *key)
{
    for (int i = 0; i < SP_TRACED_ARGS; i++) {
        if (key[0] == keys[i][0] && strcmp(key, keys[i]) == 0) {
            return args->value[i];
        }
    }
    return NULL;
}

void sp_traced_args_clear(sp_traced_args *args)
{
    for (int i = 0; i < SP_TRACED_ARGS; i++) {
        args->value[i][0] = '\0';
    }
}

enum { INPUTS = 20, MOST_RANK = 6 };
static const int64_t most_size = INT64_C(1) << 40;

typedef struct shapes {
    int count;
    int rank[INPUTS]; // negative: of a list of tensors, or too many dimensions
    int64_t size[INPUTS][MOST_RANK];
} shapes;

// "[[4096,4096],[],[[2,3],[2,3]]]"; inputs that are no tensors have [].
static bool read_shapes(const char *text, shapes *s)
{
    int depth = 0;
    s->count = 0;
    for (const char *c = text; *c != '\0';) {
        if (*c == '[') {
            depth++;
            if (depth == 2 && s->count < INPUTS) {
                s->rank[s->count++] = 0;
            } else if (depth == 2) {
                return true; // the first inputs are enough
            } else if (depth == 3) {
                s->rank[s->count - 1] = -1;
            }
            c++;
        } else if (*c == ']') {
            depth--;
            c++;
        } else if (*c >= '0' && *c <= '9') {
            char *end;
            long long size = strtoll(c, &end, 10);
            c = end;
            if (depth < 2 || size > most_size) {
                return false;
            }
            int *rank = &s->rank[s->count - 1];
            if (depth == 2 && *rank >= 0 && *rank < MOST_RANK) {
                s->size[s->count - 1][(*rank)++] = size;
            } else {
                *rank = -1;
            }
        } else {
            c++;
        }
    }
    return depth == 0 && s->count > 0;
}

// Item `index` of "["c10::BFloat16","False",""]", into to[bytes]; "" where there is none.
static void item_of(const char *text, int index, char *to, size_t bytes)
{
    to[0] = '\0';
    for (int i = 0; (text = strchr(text, '"')) != NULL; i++) {
        const char *end = strchr(text + 1, '"');
        if (end == NULL) {
            return;
        }
        if (i == index) {
            size_t length = (size_t)(end - text - 1);
            length = length < bytes - 1 ? length : bytes - 1;
            memcpy(to, text + 1, length);
            to[length] = '\0';
            return;
        }
        text = end + 1;
    }
}

// By the names of tensors' types and of c10::ScalarType.
static int bytes_of_type(const char *type, bool *is_bf16)
{
    static const struct {
        const char *name;
        int bytes;
    } known[] = {
        {"c10::BFloat16", 2}, {"BFloat16", 2}, {"c10::Half", 2},   {"Half", 2}, {"float", 4},
        {"Float", 4},         {"double", 8},   {"Double", 8},      {"int", 4},  {"Int", 4},
        {"long int", 8},      {"long", 8},     {"Long", 8},        {"bool", 1}, {"Bool", 1},
        {"unsigned char", 1}, {"Byte", 1},     {"signed char", 1}, {"Char", 1},
    };
    *is_bf16 = strstr(type, "BFloat16") != NULL || strstr(type, "Half") != NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(type, known[i].name) == 0) {
            return known[i].bytes;
        }
    }
    return strstr(type, "Float8") != NULL ? 1 : 0;
}

static int type_of(const sp_traced_args *args, int input, bool *is_bf16)
{
    char type[48];
    item_of(args->value[TYPES], input, type, sizeof type);
    return bytes_of_type(type, is_bf16);
}

static double numbers_of(const shapes *s, int input)
{
    double numbers = 1.0;
    for (int d = 0; d < s->rank[input]; d++) {
        numbers *= (double)s->size[input][d];
    }
    return s->rank[input] > 0 ? numbers : 0.0;
}

// ---- products ----

typedef struct product_op {
    const char *name;
    int a; // input of the left matrix; the right one is next
    int rank;
} product_op;

static const product_op products[] = {
    {"aten::mm", 0, 2},       {"aten::addmm", 1, 2},      {"aten::_addmm_activation", 1, 2},
    {"aten::addmm_", 1, 2},   {"aten::bmm", 0, 3},        {"aten::baddbmm", 1, 3},
    {"aten::baddbmm_", 1, 3}, {"aten::_scaled_mm", 0, 2},
};

static bool read_product(const product_op *p, const shapes *s, sp_traced_op *op)
{
    int a = p->a;
    if (s->count <= a + 1 || s->rank[a] != p->rank || s->rank[a + 1] != p->rank) {
        return false;
    }
    const int64_t *left = &s->size[a][p->rank - 2];
    const int64_t *right = &s->size[a + 1][p->rank - 2];
    int64_t batch = p->rank == 3 ? s->size[a][0] : 1;
    if (left[1] != right[0] || left[0] < 1 || left[1] < 1 || right[1] < 1 || batch < 1) {
        return false;
    }
    op->kind = SP_TRACED_PRODUCT;
    op->of.product.batch = batch;
    op->of.product.m = left[0];
    op->of.product.n = right[1];
    op->of.product.k = left[1];
    return true;
}

// ---- attention ----

typedef struct attention_op {
    const char *name;
    int q;            // input of the queries; keys and values are next
    int causal;       // the value that says so
    bool heads_first; // [batch, heads, tokens, head dimension], else tokens before heads
    bool backward;
    bool by_number; // the value is a kind of mask: 0 none, others causal
} attention_op;

static const attention_op attentions[] = {
    {"aten::_scaled_dot_product_flash_attention", 0, 4, true, false, false},
    {"aten::_scaled_dot_product_flash_attention_backward", 1, 11, true, true, false},
    {"aten::_scaled_dot_product_cudnn_attention", 0, 6, true, false, false},
    {"aten::_scaled_dot_product_cudnn_attention_backward", 1, 14, true, true, false},
    {"aten::_scaled_dot_product_efficient_attention", 0, 6, true, false, false},
    {"aten::_scaled_dot_product_efficient_attention_backward", 1, 11, true, true, false},
    {"aten::_flash_attention_forward", 0, 8, false, false, false},
    {"aten::_flash_attention_backward", 1, 11, false, true, false},
    {"aten::_efficient_attention_forward", 0, 9, false, false, true},
    {"flash_attn::_flash_attn_forward", 0, 5, false, false, false},
    {"flash_attn::_flash_attn_backward", 1, 11, false, true, false},
};

static int causal_of(const sp_traced_args *args, const attention_op *a)
{
    char value[16];
    item_of(args->value[CONCRETE], a->causal, value, sizeof value);
    if (a->by_number) {
        return value[0] == '\0' ? -1 : strcmp(value, "0") != 0;
    }
    return strcmp(value, "True") == 0 ? 1 : strcmp(value, "False") == 0 ? 0 : -1;
}

// Of variable-length calls (three dimensions) the lengths are not recorded.
static bool read_attention(const attention_op *a, const sp_traced_args *args, const shapes *s,
                           sp_traced_op *op)
{
    if (s->count <= a->q + 2 || s->rank[a->q] != 4 || s->rank[a->q + 1] != 4 ||
        s->rank[a->q + 2] != 4) {
        return false;
    }
    const int64_t *q = s->size[a->q];
    const int64_t *k = s->size[a->q + 1];
    const int64_t *v = s->size[a->q + 2];
    int tokens = a->heads_first ? 2 : 1;
    int heads = a->heads_first ? 1 : 2;
    if (q[0] < 1 || q[tokens] < 1 || k[tokens] < 1 || q[heads] < 1 || q[3] < 1 || v[3] < 1) {
        return false;
    }
    op->kind = SP_TRACED_ATTENTION;
    op->of.attention.batch = q[0];
    op->of.attention.heads = q[heads];
    op->of.attention.queries = q[tokens];
    op->of.attention.keys = k[tokens];
    op->of.attention.head_dim = ((double)q[3] + (double)v[3]) / 2.0;
    op->of.attention.backward = a->backward;
    op->of.attention.causal = causal_of(args, a);
    return true;
}

// ---- kernels bound by memory ----

typedef struct element_op {
    const char *name;
    int inputs;    // tensors
    bool in_place; // copies read the second input alone and write the first
} element_op;

static const element_op elements[] = {
    {"aten::add", 2, false},  {"aten::add_", 2, false}, {"aten::mul", 2, false},
    {"aten::mul_", 2, false}, {"aten::sub", 2, false},  {"aten::div", 2, false},
    {"aten::silu", 1, false}, {"aten::gelu", 1, false}, {"aten::silu_backward", 2, false},
    {"aten::copy_", 2, true},
};

// Each input is read once, and as many numbers as the largest has are written in its type; the
// result's own type is not recorded, which is another one where types are mixed: left out then.
static bool read_elements(const element_op *e, const sp_traced_args *args, const shapes *s,
                          sp_traced_op *op)
{
    double bytes = 0.0;
    double most = 0.0;
    int first = 0;
    for (int i = 0; i < e->inputs; i++) {
        bool is_bf16;
        if (i >= s->count || s->rank[i] < 0) {
            return false;
        }
        int size = type_of(args, i, &is_bf16);
        double numbers = numbers_of(s, i);
        if (numbers > 0.0 && (size == 0 || (!e->in_place && first > 0 && size != first))) {
            return false;
        }
        first = numbers > 0.0 && first == 0 ? size : first;
        bytes += numbers * size;
        most = fmax(most, numbers * size);
    }
    op->kind = SP_TRACED_ELEMENTS;
    op->of.bytes = bytes + (e->in_place ? 0.0 : most);
    return op->of.bytes > 0.0;
}

// ---- collectives ----

static sp_kernel_class collective_of(const char *name)
{
    static const struct {
        const char *begins;
        sp_kernel_class of;
    } known[] = {
        {"allreduce", SP_KERNEL_ALL_REDUCE},
        {"all_reduce", SP_KERNEL_ALL_REDUCE},
        {"allgather", SP_KERNEL_ALL_GATHER},
        {"_allgather", SP_KERNEL_ALL_GATHER},
        {"all_gather", SP_KERNEL_ALL_GATHER},
        {"reduce_scatter", SP_KERNEL_REDUCE_SCATTER},
        {"_reduce_scatter", SP_KERNEL_REDUCE_SCATTER},
        {"all_to_all", SP_KERNEL_ALL_TO_ALL},
        {"alltoall", SP_KERNEL_ALL_TO_ALL},
        {"broadcast", SP_KERNEL_ROOTED},
        {"_broadcast", SP_KERNEL_ROOTED},
        {"reduce", SP_KERNEL_ROOTED},
        {"_reduce", SP_KERNEL_ROOTED},
        {"gather", SP_KERNEL_ROOTED},
        {"scatter", SP_KERNEL_ROOTED},
        {"send", SP_KERNEL_SEND_RECEIVE},
        {"recv", SP_KERNEL_SEND_RECEIVE},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strncmp(name, known[i].begins, strlen(known[i].begins)) == 0) {
            return known[i].of;
        }
    }
    return SP_KERNEL_OTHER_COMMUNICATION;
}

static double number_of(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    return end == text || *end != '\0' || !(value >= 0.0 && value < 1e15) ? 0.0 : value;
}

// "[0,1,2,3]"; long lists are written with dots for what is left out.
static void read_members(const char *text, sp_traced_op *op)
{
    int64_t least = INT64_MAX;
    int64_t most = -1;
    int64_t count = 0;
    uint64_t hash = UINT64_C(14695981039346656037);
    bool whole = text[0] != '\0' && strstr(text, "..") == NULL;
    for (const char *c = text; *c != '\0';) {
        if (*c < '0' || *c > '9') {
            c++;
            continue;
        }
        char *end;
        int64_t rank = strtoll(c, &end, 10);
        c = end;
        least = rank < least ? rank : least;
        most = rank > most ? rank : most;
        hash = (hash ^ (uint64_t)rank) * UINT64_C(1099511628211);
        count++;
    }
    bool known = whole && count > 0 && count == op->of.collective.ranks;
    op->of.collective.span = known ? most - least : -1;
    op->of.collective.first = known ? least : -1;
    op->of.collective.members = known ? hash | 1 : 0;
}

bool sp_traced_collective(const sp_traced_args *args, sp_traced_op *op)
{
    char name[64];
    if (args->value[COLLECTIVE][0] == '\0') {
        return false;
    }
    item_of(args->value[COLLECTIVE], 0, name, sizeof name);
    char type[48];
    item_of(args->value[DTYPE], 0, type, sizeof type);
    memset(op, 0, sizeof *op);
    op->kind = SP_TRACED_COLLECTIVE;
    op->element_bytes = bytes_of_type(type, &op->is_bf16);
    sp_kernel_class of = collective_of(name);
    // The whole tensor is what ranks have in the end, or before a scatter.
    double in = number_of(args->value[IN_NUMBERS]);
    double numbers = of == SP_KERNEL_ALL_GATHER ? number_of(args->value[OUT_NUMBERS]) : in;
    op->of.collective.of = of;
    op->of.collective.bytes = numbers * op->element_bytes;
    op->of.collective.ranks = (int64_t)number_of(args->value[GROUP_SIZE]);
    read_members(args->value[GROUP_RANKS], op);
    return true;
}

// ---- all of them ----

#define ROW_OF(rows, text) \
    row_of(&(rows)[0].name, sizeof(rows) / sizeof(rows)[0], sizeof(rows)[0], text)

// The row of a table whose rows begin with a name; negative: there is none.
static int row_of(const char *const *first, size_t count, size_t bytes, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        const char *const *row = (const char *const *)((const char *)first + i * bytes);
        if (strcmp(*row, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

bool sp_traced_op_of(const char *name, const sp_traced_args *args, sp_traced_op *op)
{
    shapes s;
    if (args->value[COLLECTIVE][0] != '\0') {
        return sp_traced_collective(args, op);
    }
    int product = ROW_OF(products, name);
    int attention = product < 0 ? ROW_OF(attentions, name) : -1;
    int element = product < 0 && attention < 0 ? ROW_OF(elements, name) : -1;
    memset(op, 0, sizeof *op);
    if ((product < 0 && attention < 0 && element < 0) || !read_shapes(args->value[DIMS], &s)) {
        return false;
    }
    int first = product >= 0 ? products[product].a : attention >= 0 ? attentions[attention].q : 0;
    op->element_bytes = type_of(args, first, &op->is_bf16);
    return product >= 0     ? read_product(&products[product], &s, op)
           : attention >= 0 ? read_attention(&attentions[attention], args, &s, op)
                            : read_elements(&elements[element], args, &s, op);
}
