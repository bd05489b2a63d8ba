#include "sim/cost/pack_time.h"

#include "sim/base/alloc.h"
#include "sim/cost/attention_load.h"
#include "sim/cost/op_time.h"
#include "sim/cost/time_private.h"

enum { MEMO = 4096 }; // token counts kept: candidates of a search repeat them

// Where times are interpolated: tokens on one rank between two whose times are computed. A multiple
// of a GEMM's tile, so that no step of the tiles falls between the two.
enum { CELL = 64 };

// One part in one pass.
typedef struct pass_ops {
    sp_inventory inventory;
    int attentions;              // attention cores; their slices are priced one by one
    int attention_kernels;       // of the flash attention
    int kernels;                 // all
    double pair_bytes;           // score traffic of the unfused attention, per full pair
    double unfused_pair_bytes;   // more where its softmax is unfused
    double ring_bytes_per_token; // keys and values around the CP ring
    bool attends;                // any of these
} pass_ops;

// Inventories and groups for packs of `dp_count` merged data-parallel ranks.
typedef struct variant {
    sp_layout layout;
    sp_group tp, cp;
    pass_ops ops[SP_I_PARTS][SP_I_PASSES];
    double *rank_s; // [2 * layout.cp], as attention_load.h has it
} variant;

// Times of the operators that depend on the token count alone.
typedef struct memo {
    double compute_s[SP_I_PARTS][SP_I_PASSES];
    double tp_s[SP_I_PARTS][SP_I_PASSES];
    double qkv_s[SP_I_PASSES]; // of the QKV projection, which a CP gather may hide behind
} memo;

// What a memo holds. Apart from the memos, so that a cost model that prices a few packs touches
// little memory.
typedef struct memo_key {
    int64_t tokens;
    int dp_count; // 0: nothing yet
} memo_key;

struct sp_i_pack_timer {
    const sp_model *model;
    const sp_layout *layout;
    const sp_cluster *cluster;
    sp_memory_options memory;
    variant **variants; // by dp_count, [1..dp]; made when first asked for
    memo_key *keys;     // [MEMO], by a hash of the token count
    memo *memos;        // [MEMO]
    bool interpolates;
    sp_i_attention_memo *attention; // NULL unless it interpolates
    memo between;                   // interpolated last
};

static variant *variant_new(const sp_i_pack_timer *packs, int dp_count);
static void variant_free(variant *v);
static void pass_ops_build(const sp_i_pack_timer *packs, const sp_layout *layout, sp_part part,
                           sp_pass pass, pass_ops *ops);
static const memo *token_times(sp_i_pack_timer *packs, const sp_op_timer *timer, const variant *v,
                               int dp_count, int64_t tokens);
static const memo *interpolated_times(sp_i_pack_timer *packs, const sp_op_timer *timer,
                                      const variant *v, int dp_count, int64_t tokens);
static sp_i_attention attention_of(const sp_i_pack_timer *packs, const variant *v,
                                   const sp_op_timer *timer);
static sp_i_time pass_time(const sp_i_attention *attention, sp_group cp_group, const pass_ops *ops,
                           const sp_i_attention_load *load, double qkv_s, sp_pass pass);

sp_status sp_i_pack_timer_new(const sp_model *model, const sp_layout *layout,
                              const sp_cluster *cluster, const sp_memory_options *memory,
                              sp_i_pack_timer **out, sp_error *err)
{
    *out = NULL;
    sp_i_pack_timer *packs = sp_calloc(1, sizeof *packs);
    if (packs == NULL) {
        return sp_error_no_memory(err, "the cost model");
    }
    packs->model = model;
    packs->layout = layout;
    packs->cluster = cluster;
    packs->memory = *memory;
    packs->variants = sp_calloc((size_t)layout->dp + 1, sizeof(variant *));
    packs->keys = sp_calloc(MEMO, sizeof *packs->keys);
    packs->memos = sp_malloc(MEMO * sizeof *packs->memos);
    if (packs->variants != NULL && packs->keys != NULL && packs->memos != NULL) {
        packs->variants[1] = variant_new(packs, 1);
        if (packs->variants[1] != NULL) {
            *out = packs;
            return SP_OK;
        }
    }
    sp_i_pack_timer_free(packs);
    return sp_error_no_memory(err, "the cost model");
}

void sp_i_pack_timer_free(sp_i_pack_timer *packs)
{
    if (packs == NULL) {
        return;
    }
    for (int i = 0; packs->variants != NULL && i <= packs->layout->dp; i++) {
        variant_free(packs->variants[i]);
    }
    sp_free(packs->variants);
    sp_free(packs->attention);
    sp_free(packs->keys);
    sp_free(packs->memos);
    sp_free(packs);
}

sp_status sp_i_pack_timer_interpolate(sp_i_pack_timer *packs, sp_error *err)
{
    packs->interpolates = true;
    packs->attention = sp_calloc(SP_I_ATTENTION_MEMOS, sizeof *packs->attention);
    return packs->attention != NULL ? SP_OK : sp_error_no_memory(err, "the cost model");
}

static int ring_steps(const sp_i_pack_timer *packs, const sp_layout *layout)
{
    bool ring = layout->cp > 1 && packs->memory.stack.cp_overlap == SP_CP_ATTENTION;
    return ring ? layout->cp : 0;
}

sp_status sp_i_pack_time_of(sp_i_pack_timer *packs, const sp_op_timer *timer,
                            const sp_pack_list *list, const sp_pack *pack, bool backward,
                            sp_i_pack_time *time, sp_error *err)
{
    SP_ASSERT(pack->dp_count >= 1 && pack->dp_count <= packs->layout->dp);
    variant **v = &packs->variants[pack->dp_count];
    if (*v == NULL) {
        *v = variant_new(packs, pack->dp_count);
        if (*v == NULL) {
            return sp_error_no_memory(err, "the cost model");
        }
    }
    const memo *tokens = packs->interpolates
                             ? interpolated_times(packs, timer, *v, pack->dp_count, pack->computed)
                             : token_times(packs, timer, *v, pack->dp_count, pack->computed);
    const pass_ops *layer = (*v)->ops[SP_PART_LAYER];
    sp_i_attention attention = attention_of(packs, *v, timer);
    bool recomputes = attention.recomputes;
    sp_i_attention_load load =
        sp_i_attention_load_of(&attention, list, pack, !backward || recomputes, backward);
    *time = (sp_i_pack_time){.layout = &(*v)->layout,
                             .recompute_share = (double)layer[SP_PASS_RECOMPUTE].kernels /
                                                (double)layer[SP_PASS_F].kernels,
                             .recomputes_attention = recomputes,
                             .ring_steps = ring_steps(packs, &(*v)->layout),
                             .unfused_softmax =
                                 load.calls > 0.0 ? load.unfused_calls / load.calls : 0.0};
    for (int part = 0; part < SP_I_PARTS; part++) {
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            if ((pass != SP_PASS_F) != backward) {
                continue;
            }
            sp_i_time *of = &time->of[part][pass];
            const pass_ops *ops = &(*v)->ops[part][pass];
            if (ops->attends) {
                *of =
                    pass_time(&attention, (*v)->cp, ops, &load, tokens->qkv_s[pass], (sp_pass)pass);
            }
            of->compute_s += tokens->compute_s[part][pass];
            of->tp_s += tokens->tp_s[part][pass];
        }
    }
    return SP_OK;
}

// A sample of n tokens has at least n*n/2 full pairs, so many with the finest slices: no fewer
// scores are read and written.
void sp_i_pack_least_work(const sp_i_pack_timer *packs, const sp_op_timer *timer,
                          sp_i_least_work *least)
{
    const variant *v = packs->variants[1];
    sp_i_attention attention = attention_of(packs, v, timer);
    double cp = v->layout.cp;
    double forward_s;
    double backward_s;
    sp_i_attention_least_s(&attention, &forward_s, &backward_s);
    *least = (sp_i_least_work){0};
    for (int part = 0; part < SP_I_PARTS; part++) {
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            const pass_ops *ops = &v->ops[part][pass];
            least->token_s[part][pass] = sp_i_token_least_s(timer, &packs->memory.stack, v->tp,
                                                            &ops->inventory, (sp_pass)pass) /
                                         cp;
            least->square_s[pass] +=
                (ops->attentions * (pass == SP_PASS_I ? backward_s : forward_s) +
                 (timer->profile->scores.factor > 0.0
                      ? 0.0
                      : sp_time_memory(timer, 0.5 * ops->pair_bytes, 0))) /
                cp;
        }
    }
}

static bool has_part(const sp_stage *stage, sp_part part)
{
    return part == SP_PART_LAYER       ? stage->layers > 0
           : part == SP_PART_EMBEDDING ? stage->embedding
                                       : stage->head;
}

void sp_i_pack_token_time(const sp_i_pack_timer *packs, const sp_op_timer *timer, double tokens,
                          const sp_stage *stage, double token_s[SP_I_PARTS][SP_I_PASSES])
{
    const variant *v = packs->variants[1];
    for (int part = 0; part < SP_I_PARTS; part++) {
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            double tp_s;
            token_s[part][pass] = 0.0;
            if (stage != NULL && !has_part(stage, (sp_part)part)) {
                continue;
            }
            sp_i_token_time(timer, &packs->memory.stack, v->tp, &v->ops[part][pass].inventory,
                            (sp_pass)pass, tokens / v->layout.cp, &token_s[part][pass], &tp_s);
            token_s[part][pass] += tp_s;
        }
    }
}

// Merged data-parallel ranks are neighbours, so together they make a context-parallel group.
static variant *variant_new(const sp_i_pack_timer *packs, int dp_count)
{
    variant *v = sp_calloc(1, sizeof *v);
    if (v == NULL) {
        return NULL;
    }
    v->layout = *packs->layout;
    v->layout.cp = packs->layout->cp * dp_count;
    v->layout.dp = packs->layout->dp / dp_count;
    v->tp = sp_cluster_group(packs->cluster, packs->layout, SP_DIM_TP);
    v->cp = sp_cluster_merged_group(packs->cluster, packs->layout, dp_count);
    if (v->layout.cp_sharding != SP_SHARD_EVEN && v->layout.cp > 1) {
        v->rank_s = sp_calloc(2 * (size_t)v->layout.cp, sizeof *v->rank_s);
        if (v->rank_s == NULL) {
            variant_free(v);
            return NULL;
        }
    }
    for (int part = 0; part < SP_I_PARTS; part++) {
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            pass_ops_build(packs, &v->layout, (sp_part)part, (sp_pass)pass, &v->ops[part][pass]);
        }
    }
    return v;
}

static void variant_free(variant *v)
{
    if (v != NULL) {
        sp_free(v->rank_s);
        sp_free(v);
    }
}

static void pass_ops_build(const sp_i_pack_timer *packs, const sp_layout *layout, sp_part part,
                           sp_pass pass, pass_ops *ops)
{
    bool flash = packs->memory.attention == SP_ATTENTION_FLASH;
    sp_inventory_build(packs->model, layout, &packs->memory.stack, packs->memory.attention,
                       packs->memory.recompute, part, pass, &ops->inventory);
    for (int i = 0; i < ops->inventory.count; i++) {
        const sp_op *op = &ops->inventory.ops[i];
        ops->kernels += op->kernels * op->repeat;
        if (op->kind == SP_OP_ATTENTION) {
            ops->attentions += op->repeat;
            ops->attention_kernels += flash ? op->kernels * op->repeat : 0;
        }
        if (op->kind == SP_OP_MEMORY) {
            ops->pair_bytes += op->bytes_per_pair * op->repeat;
            ops->unfused_pair_bytes += op->unfused_bytes_per_pair * op->repeat;
        }
        if (op->kind == SP_OP_CP_KV) {
            ops->ring_bytes_per_token += op->bytes_per_token * op->repeat;
        }
    }
    ops->attends = ops->attentions > 0 || ops->pair_bytes + ops->unfused_pair_bytes > 0.0 ||
                   ops->ring_bytes_per_token > 0.0;
}

static const memo *token_times(sp_i_pack_timer *packs, const sp_op_timer *timer, const variant *v,
                               int dp_count, int64_t tokens)
{
    // Counts at the ends of cells keep apart, too.
    size_t at = ((uint64_t)tokens * 0x9E3779B97F4A7C15u >> 40) % MEMO;
    memo_key *key = &packs->keys[at];
    memo *entry = &packs->memos[at];
    if (key->dp_count == dp_count && key->tokens == tokens) {
        return entry;
    }
    *key = (memo_key){.tokens = tokens, .dp_count = dp_count};
    double local_tokens = (double)tokens / v->layout.cp;
    for (int part = 0; part < SP_I_PARTS; part++) {
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            sp_i_token_time(timer, &packs->memory.stack, v->tp, &v->ops[part][pass].inventory,
                            (sp_pass)pass, local_tokens, &entry->compute_s[part][pass],
                            &entry->tp_s[part][pass]);
        }
    }
    for (int pass = 0; pass < SP_I_PASSES; pass++) {
        entry->qkv_s[pass] =
            sp_i_qkv_s(timer, &v->ops[SP_PART_LAYER][pass].inventory, local_tokens);
    }
    return entry;
}

// Between the first and the last token count of a cell, which has CELL tokens a rank.
static const memo *interpolated_times(sp_i_pack_timer *packs, const sp_op_timer *timer,
                                      const variant *v, int dp_count, int64_t tokens)
{
    int64_t cell = (int64_t)CELL * v->layout.cp;
    int64_t first = (tokens - 1) / cell * cell + 1;
    if (tokens <= cell || tokens == first || tokens == first + cell - 1) {
        return token_times(packs, timer, v, dp_count, tokens);
    }
    const memo a = *token_times(packs, timer, v, dp_count, first);
    const memo *b = token_times(packs, timer, v, dp_count, first + cell - 1);
    memo *m = &packs->between;
    double w = (double)(tokens - first) / (double)(cell - 1);
    for (int pass = 0; pass < SP_I_PASSES; pass++) {
        for (int part = 0; part < SP_I_PARTS; part++) {
            m->compute_s[part][pass] =
                a.compute_s[part][pass] + w * (b->compute_s[part][pass] - a.compute_s[part][pass]);
            m->tp_s[part][pass] =
                a.tp_s[part][pass] + w * (b->tp_s[part][pass] - a.tp_s[part][pass]);
        }
        m->qkv_s[pass] = a.qkv_s[pass] + w * (b->qkv_s[pass] - a.qkv_s[pass]);
    }
    return m;
}

static sp_i_attention attention_of(const sp_i_pack_timer *packs, const variant *v,
                                   const sp_op_timer *timer)
{
    return (sp_i_attention){.model = packs->model,
                            .layout = &v->layout,
                            .memory = &packs->memory,
                            .timer = timer,
                            .recomputes = v->ops[SP_PART_LAYER][SP_PASS_RECOMPUTE].attentions > 0,
                            .rank_s = v->rank_s,
                            .memo = packs->attention};
}

static sp_i_time pass_time(const sp_i_attention *attention, sp_group cp_group, const pass_ops *ops,
                           const sp_i_attention_load *load, double qkv_s, sp_pass pass)
{
    const sp_op_timer *timer = attention->timer;
    int cp = attention->layout->cp;
    double attention_s = ops->attentions * (pass == SP_PASS_I ? load->backward_s : load->forward_s);
    double cp_s = sp_i_cp_exchange_s(
        attention, cp_group, load, ops->ring_bytes_per_token * load->keys / cp, pass == SP_PASS_I);
    // A ring cuts an attention call into one for each block; after a gather it runs on the two
    // halves of a rank's zig-zag share, unless one launch takes both, or all of the pack.
    sp_cp_overlap overlap = attention->memory->stack.cp_overlap;
    bool whole = overlap == SP_CP_GATHERED || overlap == SP_CP_A2A;
    bool halves = cp > 1 && overlap != SP_CP_ATTENTION && !whole;
    int calls = halves ? 2 : overlap == SP_CP_ATTENTION ? cp : 1;
    double score_bytes =
        ops->pair_bytes * load->pairs + ops->unfused_pair_bytes * load->unfused_pairs;
    double exposed_s = sp_i_exposed_cp_s(attention, cp_s, attention_s, qkv_s);
    double slowed_s = timer->profile->interference.overlap_share * (cp_s - exposed_s);
    return (sp_i_time){.compute_s = attention_s + slowed_s +
                                    sp_time_launch(timer, ops->attention_kernels * calls) +
                                    sp_time_memory(timer, score_bytes, 0),
                       .cp_s = exposed_s,
                       .attention_s = attention_s};
}
