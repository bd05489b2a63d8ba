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

double half_of(uint32_t packed, int upper)
{
    return static_cast<double>(
        sp_bf16_to_float(static_cast<sp_bf16>(upper ? packed >> 16 : packed)));
}

// GCC 12 makes vectors of neighbouring columns if the loop over them stays one, and slow ones
// across the other loop if not.
void multiply_row(double sum[8], const double a[16], const double b[16][8])
{
    double s[8] = {};
    for (int k = 0; k < 16; k++) {
#pragma GCC unroll 1
        for (int column = 0; column < 8; column++) {
            s[column] += a[k] * b[k][column];
        }
    }
    memcpy(sum, s, sizeof s);
}

// Two packed bf16: are both zero, is one of them infinite or no number?
bool zeros(uint32_t packed)
{
    return (packed & 0x7fff7fffU) == 0;
}

bool infinite(uint32_t packed)
{
    return (packed & 0x7f800000U) == 0x7f800000U || (packed & 0x7f80U) == 0x7f80U;
}

// Is one of the matrices zero and the other finite, so that the product is zero? Small heads stand
// in tiles of 64 columns: most products of small tests are such.
bool adds_nothing(void *const brought[SP_EMULATED_WARP])
{
    bool a_zero = true;
    bool b_zero = true;
    bool a_infinite = false;
    bool b_infinite = false;
    for (int context = 0; context < SP_EMULATED_WARP; context++) {
        const product *p = static_cast<const product *>(brought[context]);
        for (int i = 0; i < 4; i++) {
            a_zero = a_zero && zeros(p->a[i]);
            a_infinite = a_infinite || infinite(p->a[i]);
        }
        for (int i = 0; i < 2; i++) {
            b_zero = b_zero && zeros(p->b[i]);
            b_infinite = b_infinite || infinite(p->b[i]);
        }
    }
    return (a_zero && !b_infinite) || (b_zero && !a_infinite);
}

// PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type", from the formulas for row
// and column of each element.
void resolve_product(void *const brought[SP_EMULATED_WARP])
{
    if (adds_nothing(brought)) {
        for (int context = 0; context < SP_EMULATED_WARP; context++) {
            const product *p = static_cast<const product *>(brought[context]);
            for (int i = 0; i < 4; i++) {
                p->c[i] += 0.0F; // a zero becomes positive, as it does by the sum
            }
        }
        return;
    }
    double a[16][16];
    double b[16][8];
    for (int context = 0; context < SP_EMULATED_WARP; context++) {
        const product *p = static_cast<const product *>(brought[context]);
        int group = context / 4;
        int in_group = context % 4;
        for (int i = 0; i < 8; i++) {
            int row = (i < 2 || (i >= 4 && i < 6)) ? group : group + 8;
            int column = in_group * 2 + (i & 1) + (i < 4 ? 0 : 8);
            a[row][column] = half_of(p->a[i / 2], i & 1);
        }
        for (int i = 0; i < 4; i++) {
            int row = in_group * 2 + (i & 1) + (i < 2 ? 0 : 8);
            b[row][group] = half_of(p->b[i / 2], i & 1);
        }
    }
    double sum[16][8];
    for (int row = 0; row < 16; row++) {
        multiply_row(sum[row], a[row], b);
    }
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
