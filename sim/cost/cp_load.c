#include "sim/cost/cp_load.h"

#include "sim/cost/cp_sharding.h"

// The pieces visited so far, by rank.
typedef struct ranks {
    const sp_op_timer *timer;
    double heads, head_dim;
    double *forward_s, *backward_s; // [cp]; NULL: not asked for
} ranks;

static sp_cp_sharding sharding_of(const sp_i_attention *attention, const sp_pack_list *list,
                                  const sp_pack *pack);
static void slowest(const sp_i_attention *attention, const sp_op_timer *timer, sp_cp_sharding way,
                    const sp_pack_list *list, const sp_pack *pack, bool forward, bool backward,
                    sp_i_attention_load *load);

void sp_i_cp_slowest_s(const sp_i_attention *attention, const sp_pack_list *list,
                       const sp_pack *pack, bool forward, bool backward, sp_i_attention_load *load)
{
    sp_cp_sharding way = sharding_of(attention, list, pack);
    slowest(attention, attention->timer, way, list, pack, forward, backward, load);
}

// What is tried notes no range as used.
static sp_cp_sharding sharding_of(const sp_i_attention *attention, const sp_pack_list *list,
                                  const sp_pack *pack)
{
    static const sp_cp_sharding ways[] = {SP_SHARD_SEQUENCE, SP_SHARD_DOCUMENT};
    double step_s[2];
    sp_op_timer quiet = *attention->timer;
    quiet.uncalibrated = NULL;
    if (attention->layout->cp_sharding != SP_SHARD_ADAPTIVE) {
        return attention->layout->cp_sharding;
    }
    for (int i = 0; i < 2; i++) {
        sp_i_attention_load load;
        slowest(attention, &quiet, ways[i], list, pack, true, true, &load);
        step_s[i] = load.forward_s * (attention->recomputes ? 2.0 : 1.0) + load.backward_s;
    }
    return ways[step_s[1] < step_s[0] ? 1 : 0];
}

static void add_piece(void *state, int rank, int64_t tokens, int64_t context)
{
    const ranks *r = state;
    double l = (double)tokens;
    double o = (double)context;
    if (r->forward_s != NULL) {
        r->forward_s[rank] += sp_time_attention_piece(r->timer, false, l, o, r->heads, r->head_dim);
    }
    if (r->backward_s != NULL) {
        r->backward_s[rank] += sp_time_attention_piece(r->timer, true, l, o, r->heads, r->head_dim);
    }
}

static double most(const double *of, int count)
{
    double most = 0.0;
    for (int i = 0; of != NULL && i < count; i++) {
        most = of[i] > most ? of[i] : most;
    }
    return most;
}

static void slowest(const sp_i_attention *attention, const sp_op_timer *timer, sp_cp_sharding way,
                    const sp_pack_list *list, const sp_pack *pack, bool forward, bool backward,
                    sp_i_attention_load *load)
{
    int cp = attention->layout->cp;
    ranks r = {.timer = timer,
               .heads = (double)attention->model->heads / attention->layout->tp,
               .head_dim = (double)attention->model->head_dim,
               .forward_s = forward ? attention->rank_s : NULL,
               .backward_s = backward ? attention->rank_s + cp : NULL};
    SP_ASSERT(attention->rank_s != NULL);
    for (int i = 0; i < 2 * cp; i++) {
        attention->rank_s[i] = 0.0;
    }
    if (way == SP_SHARD_SEQUENCE) {
        sp_i_cp_by_sequence(list, pack, cp, add_piece, &r);
    } else {
        sp_i_cp_by_document(list, pack, cp, add_piece, &r);
    }
    load->forward_s = most(r.forward_s, cp);
    load->backward_s = most(r.backward_s, cp);
}
