// What the lanes of a warp do together.
#include "tests/support/emulated_cuda/warp.h"

namespace
{

const size_t MATRIX_ROW_BYTES = 16;

template <class T> struct exchanged {
    T mine, other;
    int mask;
};

template <class T> void resolve_exchange(void *const brought[SP_EMULATED_WARP])
{
    for (int context = 0; context < SP_EMULATED_WARP; context++) {
        exchanged<T> *e = static_cast<exchanged<T> *>(brought[context]);
        e->other = static_cast<exchanged<T> *>(brought[context ^ e->mask])->mine;
    }
}

template <class T> T exchange(T x, int mask)
{
    exchanged<T> e = {x, x, mask};
    sp_emulated_warp_collective(resolve_exchange<T>, &e);
    return e.other;
}

struct matrices {
    const void *row;
    uint32_t *m;
};

// PTX ISA, figure "ldmatrix fragment layout".
template <bool TRANSPOSED> void resolve_matrices(void *const brought[SP_EMULATED_WARP])
{
    for (int context = 0; context < SP_EMULATED_WARP; context++) {
        const matrices *mine = static_cast<const matrices *>(brought[context]);
        for (int i = 0; i < 4; i++) {
            uint16_t element[2];
            for (int e = 0; e < 2; e++) {
                int row = TRANSPOSED ? 2 * (context % 4) + e : context / 4;
                int column = TRANSPOSED ? context / 4 : 2 * (context % 4) + e;
                const matrices *giver = static_cast<const matrices *>(brought[8 * i + row]);
                memcpy(&element[e], static_cast<const unsigned char *>(giver->row) + 2 * column,
                       sizeof element[e]);
            }
            mine->m[i] = element[0] | static_cast<uint32_t>(element[1]) << 16;
        }
    }
}

struct product {
    float *c;
    const uint32_t *a;
    uint32_t b[2];
};

// The matrices of a product as the lanes bring them, two bf16 a word: rows of A, columns of B.
struct factors {
    uint32_t a[16][8];
    uint32_t b[8][8];
};

// PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type", from the formulas for row
// and column of each element.
void gather(factors *f, void *const brought[SP_EMULATED_WARP])
{
    for (int context = 0; context < SP_EMULATED_WARP; context++) {
        const product *p = static_cast<const product *>(brought[context]);
        int group = context / 4;
        int in_group = context % 4;
        f->a[group][in_group] = p->a[0];
        f->a[group + 8][in_group] = p->a[1];
        f->a[group][in_group + 4] = p->a[2];
        f->a[group + 8][in_group + 4] = p->a[3];
        f->b[group][in_group] = p->b[0];
        f->b[group][in_group + 4] = p->b[1];
    }
}

bool all_zero(const uint32_t *words, int count)
{
    uint32_t any = 0;
    for (int i = 0; i < count; i++) {
        any |= words[i] & 0x7fff7fffU;
    }
    return any == 0;
}

// Is one of them infinite or no number? Those have the largest exponent, to which 1 carries.
bool has_infinite(const uint32_t *words, int count)
{
    uint32_t any = 0;
    for (int i = 0; i < count; i++) {
        any |= (words[i] & 0x7f807f80U) + 0x00800080U;
    }
    return (any & 0x80008000U) != 0;
}

// Is one of the matrices zero and the other finite, so that the product is zero? Small heads stand
// in tiles of 64 columns: most products of small tests are such.
bool adds_nothing(const factors *f)
{
    return (all_zero(f->a[0], 128) && !has_infinite(f->b[0], 64)) ||
           (all_zero(f->b[0], 64) && !has_infinite(f->a[0], 128));
}

float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void unpack(double *to, const uint32_t *words, int count)
{
    for (int i = 0; i < count; i++) {
        to[2 * i] = static_cast<double>(of_bits(words[i] << 16));
        to[2 * i + 1] = static_cast<double>(of_bits(words[i] & 0xffff0000U));
    }
}

typedef double eight_columns __attribute__((vector_size(64)));

// Products of a row and each column, added from the first on.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx2", "default")))
#endif
void multiply_rows(double sum[16][8], const double a[16][16], const eight_columns b[16])
{
    for (int row = 0; row < 16; row++) {
        eight_columns s = {};
        for (int k = 0; k < 16; k++) {
            s += a[row][k] * b[k];
        }
        memcpy(sum[row], &s, sizeof s);
    }
}

void multiply(double sum[16][8], const factors *f)
{
    double a[16][16];
    double columns[8][16];
    eight_columns b[16];
    unpack(a[0], f->a[0], 128);
    unpack(columns[0], f->b[0], 64);
    for (int k = 0; k < 16; k++) {
        for (int column = 0; column < 8; column++) {
            b[k][column] = columns[column][k];
        }
    }
    multiply_rows(sum, a, b);
}

void resolve_product(void *const brought[SP_EMULATED_WARP])
{
    factors f;
    gather(&f, brought);
    if (adds_nothing(&f)) {
        for (int context = 0; context < SP_EMULATED_WARP; context++) {
            const product *p = static_cast<const product *>(brought[context]);
            for (int i = 0; i < 4; i++) {
                p->c[i] += 0.0F; // a zero becomes positive, as it does by the sum
            }
        }
        return;
    }
    double sum[16][8];
    multiply(sum, &f);
    for (int context = 0; context < SP_EMULATED_WARP; context++) {
        const product *p = static_cast<const product *>(brought[context]);
        for (int i = 0; i < 4; i++) {
            int row = context / 4 + (i < 2 ? 0 : 8);
            int column = context % 4 * 2 + (i & 1);
            p->c[i] = static_cast<float>(static_cast<double>(p->c[i]) + sum[row][column]);
        }
    }
}

} // namespace

float sp_i_exchange(float x, int mask)
{
    return exchange(x, mask);
}

double sp_i_exchange(double x, int mask)
{
    return exchange(x, mask);
}

void sp_i_load_matrices(uint32_t m[4], const void *row)
{
    sp_emulated_check_shared(row, MATRIX_ROW_BYTES);
    matrices mine = {row, m};
    sp_emulated_warp_collective(resolve_matrices<false>, &mine);
}

void sp_i_load_transposed(uint32_t m[4], const void *row)
{
    sp_emulated_check_shared(row, MATRIX_ROW_BYTES);
    matrices mine = {row, m};
    sp_emulated_warp_collective(resolve_matrices<true>, &mine);
}

void sp_i_multiply(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    product mine = {c, a, {b0, b1}};
    sp_emulated_warp_collective(resolve_product, &mine);
}
