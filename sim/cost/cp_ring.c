#include <math.h>

#include "sim/base/alloc.h"
#include "sim/cost/attention_load.h"

// Tokens of the sample that is visited, and who holds their keys.
typedef struct piece {
    int64_t begin, end;
    int rank;
} piece;

struct sp_i_cp_ring {
    int cp;
    double *pairs;                     // [rank * cp + step]
    double *sums;                      // [rank]
    double *start_s, *there_s, *end_s; // [cp]: of the step that is run
    piece *pieces;
    int count, most;
};

sp_i_cp_ring *sp_i_cp_ring_new(int cp)
{
    size_t n = (size_t)cp;
    sp_i_cp_ring *ring = sp_calloc(1, sizeof *ring);
    double *table = sp_calloc(n * (n + 4), sizeof *table);
    piece *pieces = sp_calloc(4 * n, sizeof *pieces);
    *ring = (sp_i_cp_ring){.cp = cp,
                           .pairs = table,
                           .sums = table + n * n,
                           .start_s = table + n * (n + 1),
                           .there_s = table + n * (n + 2),
                           .end_s = table + n * (n + 3),
                           .pieces = pieces,
                           .most = 4 * cp};
    return ring;
}

void sp_i_cp_ring_free(sp_i_cp_ring *ring)
{
    if (ring != NULL) {
        sp_free(ring->pairs);
        sp_free(ring->pieces);
        sp_free(ring);
    }
}

void sp_i_cp_ring_clear(sp_i_cp_ring *ring)
{
    ring->count = 0;
    for (int i = 0; i < ring->cp * (ring->cp + 1); i++) {
        ring->pairs[i] = 0.0; // and sums
    }
}

// At step s a rank has the keys of the one s places before it.
static void add_pairs(sp_i_cp_ring *ring, int rank, int keys_of, double pairs)
{
    int step = (rank - keys_of + ring->cp) % ring->cp;
    ring->pairs[rank * ring->cp + step] += pairs;
    ring->sums[rank] += pairs;
}

void sp_i_cp_ring_add(sp_i_cp_ring *ring, int rank, int64_t tokens, int64_t context)
{
    double l = (double)tokens;
    bool follows =
        ring->count > 0 && ring->count < ring->most && ring->pieces[ring->count - 1].end == context;
    ring->count = follows ? ring->count : 0;
    for (int i = 0; i < ring->count; i++) {
        const piece *p = &ring->pieces[i];
        add_pairs(ring, rank, p->rank, l * (double)(p->end - p->begin));
    }
    int64_t unknown = follows ? ring->pieces[0].begin : context;
    for (int k = 0; k < ring->cp; k++) {
        add_pairs(ring, rank, k, l * (double)unknown / ring->cp);
    }
    add_pairs(ring, rank, rank, 0.5 * l * l);
    ring->pieces[ring->count++] = (piece){context, context + tokens, rank};
}

double sp_i_cp_ring_pairs(const sp_i_cp_ring *ring, int rank, int step)
{
    return ring->pairs[rank * ring->cp + step];
}

static double step_s(const sp_i_cp_ring *ring, const double *rank_s, int rank, int step)
{
    double sum = ring->sums[rank];
    return sum > 0.0 ? rank_s[rank] * ring->pairs[rank * ring->cp + step] / sum : 0.0;
}

// A rank hands a block on as soon as it begins to work on it, one block after another, and works on
// the next one when that is there and its work on this one is done.
double sp_i_cp_ring_s(sp_i_cp_ring *ring, const double *rank_s, double transfer_s)
{
    int cp = ring->cp;
    double last_s = 0.0;
    for (int r = 0; r < cp; r++) {
        ring->start_s[r] = ring->there_s[r] = 0.0;
        ring->end_s[r] = step_s(ring, rank_s, r, 0);
    }
    for (int s = 1; s < cp; s++) {
        for (int r = 0; r < cp; r++) {
            double sent_s = ring->start_s[(r + cp - 1) % cp];
            ring->there_s[r] = fmax(sent_s, ring->there_s[r]) + transfer_s;
        }
        for (int r = 0; r < cp; r++) {
            ring->start_s[r] = fmax(ring->end_s[r], ring->there_s[r]);
            ring->end_s[r] = ring->start_s[r] + step_s(ring, rank_s, r, s);
        }
    }
    for (int r = 0; r < cp; r++) {
        last_s = fmax(last_s, ring->end_s[r]);
    }
    return last_s;
}
