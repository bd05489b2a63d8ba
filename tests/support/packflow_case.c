#include "tests/support/packflow_case.h"
#include "tests/support/initializers.h"

static int64_t below(sp_prng *prng, int64_t bound)
{
    return (int64_t)sp_prng_below(prng, (uint64_t)bound);
}

static void forget_again(packflow_case *c)
{
    c->job.again = NULL;
    c->job.again_bytes = NULL;
}

// Split backwards hold what forwards that run again would save.
void packflow_case_split(packflow_case *c, bool split)
{
    c->job.w_ns = split ? c->w_ns : NULL;
    if (split) {
        forget_again(c);
    }
}

void packflow_case_transfer(packflow_case *c, int64_t p2p_ns)
{
    for (int k = 0; k < PACKFLOW_PACKS; k++) {
        c->p2p_f_ns[k] = p2p_ns;
        c->p2p_b_ns[k] = p2p_ns;
    }
}

void packflow_case_room(packflow_case *c, int64_t bytes)
{
    c->job.room_bytes = bytes >= 0 ? c->room_bytes : NULL;
    for (int r = 0; r < PACKFLOW_RANKS; r++) {
        c->room_bytes[r] = bytes;
    }
}

static void begin(packflow_case *c, int pp, int chunks, int64_t forward, int64_t backward)
{
    c->layout = (sp_layout){LAYOUT(1, 1, pp, 1, chunks),
                            .placement = chunks == 2 ? SP_PLACE_V : SP_PLACE_LINEAR, .zero = 1};
    c->job = (sp_packflow_job){.layout = &c->layout,
                               .forward = (size_t)forward,
                               .backward = (size_t)backward,
                               .f_ns = c->f_ns,
                               .b_ns = c->b_ns,
                               .p2p_f_ns = c->p2p_f_ns,
                               .p2p_b_ns = c->p2p_b_ns,
                               .need = c->need,
                               .tokens = c->tokens,
                               .freed = c->freed,
                               .token_bytes = c->token_bytes};
}

// Needs never fall and end at the last forward pack; what goes at a backward was held by then.
static void draw_lists(packflow_case *c, sp_prng *prng)
{
    int64_t last = (int64_t)c->job.forward - 1;
    int64_t held = 0;
    for (size_t k = 0; k < c->job.forward; k++) {
        c->tokens[k] = 1 + below(prng, 100);
    }
    size_t seen = 0;
    for (size_t k = 0; k < c->job.backward; k++) {
        bool final = k + 1 == c->job.backward;
        int64_t before = k == 0 ? 0 : c->need[k - 1];
        int64_t step = below(prng, 2) == 0 ? below(prng, 4) : below(prng, last - before + 1);
        c->need[k] = (int32_t)(final || before + step > last ? last : before + step);
        for (; seen <= (size_t)c->need[k]; seen++) {
            held += c->tokens[seen];
        }
        c->freed[k] = final ? held : below(prng, held + 1);
        held -= c->freed[k];
    }
}

// Room for a part of what all packs hold, for some packs of a virtual stage, for one token, for
// none.
static void draw_room(packflow_case *c, sp_prng *prng)
{
    int64_t kind = below(prng, 4);
    c->job.room_bytes = kind > 0 ? c->room_bytes : NULL;
    for (int s = 0; s < PACKFLOW_STAGES; s++) {
        c->token_bytes[s] = 1 + below(prng, 9);
    }
    for (int r = 0; r < PACKFLOW_RANKS; r++) {
        c->room_bytes[r] = kind == 1   ? below(prng, 12000)
                           : kind == 2 ? below(prng, 3000)
                                       : below(prng, 3) * c->token_bytes[r] - 1;
    }
}

// Activations of some packs that are there again while they run back.
static void draw_again(packflow_case *c, sp_prng *prng)
{
    int64_t most = 0;
    int64_t token_bytes = 0;
    for (size_t k = 0; k < c->job.backward; k++) {
        c->again[k] = below(prng, 2) * below(prng, 200);
        most = c->again[k] > most ? c->again[k] : most;
    }
    for (int s = 0; s < PACKFLOW_STAGES; s++) {
        token_bytes = c->token_bytes[s] > token_bytes ? c->token_bytes[s] : token_bytes;
    }
    for (int r = 0; r < PACKFLOW_RANKS; r++) {
        c->again_bytes[r] = most * token_bytes;
    }
    c->job.again = c->again;
    c->job.again_bytes = c->again_bytes;
}

void packflow_case_draw(packflow_case *c, sp_prng *prng, int chunks)
{
    int pp = 1 + (int)below(prng, PACKFLOW_RANKS);
    begin(c, pp, chunks, 1 + below(prng, PACKFLOW_PACKS), 1 + below(prng, PACKFLOW_PACKS));
    draw_lists(c, prng);
    for (size_t i = 0; i < (size_t)PACKFLOW_PACKS * PACKFLOW_STAGES; i++) {
        c->f_ns[i] = 1 + below(prng, 50);
        c->b_ns[i] = 1 + below(prng, 100);
        c->w_ns[i] = 1 + below(prng, 50);
    }
    int64_t slowest = below(prng, 3) * 10;
    for (int k = 0; k < PACKFLOW_PACKS; k++) {
        c->p2p_f_ns[k] = below(prng, slowest + 1);
        c->p2p_b_ns[k] = below(prng, slowest + 1);
    }
    draw_room(c, prng);
    draw_again(c, prng);
    if (below(prng, 2) == 0) {
        forget_again(c);
    }
    packflow_case_split(c, below(prng, 2) == 0);
}

void packflow_case_uniform(packflow_case *c, int pp, int chunks, int packs, int64_t f, int64_t b,
                           int64_t w)
{
    begin(c, pp, chunks, packs, packs);
    for (int i = 0; i < packs * pp * chunks; i++) {
        c->f_ns[i] = f;
        c->b_ns[i] = b;
        c->w_ns[i] = w;
    }
    for (int k = 0; k < packs; k++) {
        c->need[k] = k;
        c->tokens[k] = 10;
        c->freed[k] = 10;
    }
    for (int s = 0; s < PACKFLOW_STAGES; s++) {
        c->token_bytes[s] = 1;
    }
    packflow_case_transfer(c, 0);
    packflow_case_room(c, -1);
    packflow_case_split(c, w > 0);
}
