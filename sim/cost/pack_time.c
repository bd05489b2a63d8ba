// The time of one pack in a layer, the embedding and the head, zones of its attention included.
#include "sim/cost/cost_private.h"

#include <math.h>

#include "sim/base/alloc.h"
#include "sim/cost/op_time.h"

#define BYTES_BF16 2.0

enum { MEMO = 4096 }; // token counts kept: candidates of a search repeat them

// Where times are interpolated: tokens on one rank between two whose times are computed. A multiple
// of a GEMM's tile, so that no step of the tiles falls between the two.
enum { CELL = 64 };

// Layers whose attention sees the same tokens.
typedef struct view {
    const sp_model *model; // with such layers alone
    sp_model space;
    sp_i_attention_memo *memo; // NULL unless times are interpolated
} view;

// One part in one pass.
typedef struct pass_ops {
    sp_inventory inventory;
    int attentions;               // attention cores; their slices are priced one by one
    int attention_kernels;        // of the flash attention
    int kernels;                  // all
    double pair_bytes;            // score traffic of the unfused attention, per full pair
    double unfused_pair_bytes;    // more where its softmax is unfused
    double keys_bytes_per_token;  // keys and values that CP ranks exchange
    double heads_bytes_per_token; // before and after an all-to-all of them
    bool attends;                 // any of these
} pass_ops;

// Inventories and groups for packs of `dp_count` merged data-parallel ranks.
typedef struct variant {
    sp_layout layout;
    sp_i_block_groups groups;
    int head_ranks;      // of the CP group, among which heads are exchanged
    sp_nested_groups cp; // those; their peers, which exchange keys and values
    pass_ops ops[SP_I_PARTS][SP_I_PASSES];
    double recompute_share; // kernels of all layers' recomputation over those of their forwards
    double *rank_s;         // [2 * layout.cp], forward and backward
    sp_i_cp_ring *ring;     // as there
} variant;

// Times of the operators that depend on the token count alone.
typedef struct memo {
    sp_i_token_times of[SP_I_PARTS][SP_I_PASSES];
    double qkv_s[SP_I_PASSES]; // of the QKV projection, which a CP gather may hide behind
} memo;

// A memo is known by this. It lies apart from the memos, so that a cost model that prices a few
// packs touches little memory.
typedef struct memo_key {
    int64_t tokens, expert_tokens;
    int dp_count; // 0: nothing yet
} memo_key;

struct sp_i_pack_timer {
    const sp_model *model;
    int parts; // of the model
    view view[SP_LAYER_KINDS];
    int views, view_of_part[SP_I_PARTS]; // of parts other than layers the first
    const sp_layout *layout;
    const sp_cluster *cluster;
    const sp_expert_load *load;
    sp_memory_options memory, gathered; // the second of packs that gather keys and values
    variant **variants;                 // by dp_count, [1..dp]; made when first asked for
    memo_key *keys;                     // [MEMO], by a hash of the token count
    memo *memos;                        // [MEMO]
    bool interpolates;
    memo between;                    // interpolated last
    double kept_share, kept_fixed_s; // of a forward's attention: sp_i_pack_timer_keep
    sp_i_zones zones;                // of the pack that is priced; its tables are made when needed
    sp_i_blocks *blocks;             // of the pack that is priced
};

static bool has_zones(const sp_pack_list *list, const sp_pack *pack);
static void fill_zones(sp_i_pack_timer *packs, const view *of, const sp_op_timer *timer,
                       const sp_pack_list *list, const sp_pack *pack, bool backward);
static double remapped_bytes(const sp_i_pack_timer *packs);

static void find_views(sp_i_pack_timer *packs)
{
    int view_of_kind[SP_LAYER_KINDS];
    for (int k = 0; k < sp_model_kinds(packs->model); k++) {
        int like = 0;
        while (!sp_model_sees_alike(packs->model, k, like)) {
            like++;
        }
        view_of_kind[k] = like < k ? view_of_kind[like] : packs->views;
        packs->view_of_part[sp_i_part_of_kind(k)] = view_of_kind[k];
        if (like == k) {
            view *made = &packs->view[packs->views++];
            made->model = sp_model_of_kind(packs->model, k, &made->space);
        }
    }
}

static void pass_ops_build(const sp_i_pack_timer *packs, const sp_layout *layout, int part,
                           sp_pass pass, pass_ops *ops)
{
    bool flash = packs->memory.attention == SP_ATTENTION_FLASH;
    sp_model space;
    sp_inventory_build(sp_i_model_of_part(packs->model, part, &space), layout, &packs->memory.stack,
                       packs->memory.attention, packs->memory.recompute,
                       part < SP_PARTS ? (sp_part)part : SP_PART_LAYER, pass, &ops->inventory);
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
            ops->keys_bytes_per_token += op->bytes_per_token * op->repeat;
        }
        if (op->kind == SP_OP_CP_HEADS) {
            ops->heads_bytes_per_token += op->bytes_per_token * op->repeat;
        }
    }
    ops->attends = ops->attentions > 0 || ops->pair_bytes + ops->unfused_pair_bytes > 0.0 ||
                   ops->keys_bytes_per_token + ops->heads_bytes_per_token > 0.0;
}

static double recompute_share(const sp_model *model, const variant *v)
{
    int count[SP_LAYER_KINDS] = {0};
    double kernels[SP_I_PASSES] = {0.0};
    sp_model_count_kinds(model, 0, sp_model_all_layers(model), count);
    for (int k = 0; k < sp_model_kinds(model); k++) {
        const pass_ops *layer = v->ops[sp_i_part_of_kind(k)];
        kernels[SP_PASS_F] += (double)count[k] * layer[SP_PASS_F].kernels;
        kernels[SP_PASS_RECOMPUTE] += (double)count[k] * layer[SP_PASS_RECOMPUTE].kernels;
    }
    return kernels[SP_PASS_RECOMPUTE] / kernels[SP_PASS_F];
}

// Merged data-parallel ranks are neighbours, so together they make a context-parallel group.
static variant *variant_new(const sp_i_pack_timer *packs, int dp_count)
{
    variant *v = sp_calloc(1, sizeof *v);
    v->layout = *packs->layout;
    v->layout.cp = packs->layout->cp * dp_count;
    v->layout.dp = packs->layout->dp / dp_count;
    v->groups = sp_i_block_groups_of(packs->cluster, packs->layout);
    v->head_ranks = sp_stack_head_ranks(&packs->memory.stack, &v->layout);
    v->cp = sp_cluster_nested_groups(packs->cluster, packs->layout, dp_count, v->head_ranks);
    // A rank that exchanges heads with all others has all tokens of them: equal work, however the
    // rows are cut.
    bool uneven = v->layout.cp_sharding != SP_SHARD_EVEN && v->head_ranks < v->layout.cp;
    if (uneven) {
        v->rank_s = sp_calloc(2 * (size_t)v->layout.cp, sizeof *v->rank_s);
        bool follows = v->layout.cp_ring_steps && v->head_ranks == 1;
        v->ring = follows ? sp_i_cp_ring_new(v->layout.cp) : NULL;
    }
    for (int part = 0; part < packs->parts; part++) {
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            pass_ops_build(packs, &v->layout, part, (sp_pass)pass, &v->ops[part][pass]);
        }
    }
    v->recompute_share = recompute_share(packs->model, v);
    return v;
}

sp_i_pack_timer *sp_i_pack_timer_new(const sp_model *model, const sp_layout *layout,
                                     const sp_cluster *cluster, const sp_memory_options *memory,
                                     const sp_expert_load *load)
{
    sp_i_pack_timer *packs = sp_calloc(1, sizeof *packs);
    packs->model = model;
    packs->parts = sp_i_parts(model);
    find_views(packs);
    packs->layout = layout;
    packs->cluster = cluster;
    packs->load = load;
    packs->memory = *memory;
    packs->kept_share = 1.0;
    packs->gathered = *memory;
    packs->gathered.stack.cp_overlap = SP_CP_BLOCKING;
    packs->variants = sp_calloc((size_t)layout->dp + 1, sizeof(variant *));
    packs->keys = sp_calloc(MEMO, sizeof *packs->keys);
    packs->memos = sp_malloc(MEMO * sizeof *packs->memos);
    packs->blocks = sp_calloc(1, sizeof *packs->blocks);
    packs->variants[1] = variant_new(packs, 1);
    return packs;
}

sp_status sp_i_beyond_limit(const sp_pack *pack, sp_error *err)
{
    return sp_error_set(
        err, SP_ERR_LIMIT,
        "a pack of %lld tokens takes longer, or holds more, than is simulated (lower "
        "workload.context, or raise parallel.cp, tp or pp)",
        (long long)pack->computed);
}

static void variant_free(variant *v)
{
    if (v != NULL) {
        sp_free(v->rank_s);
        sp_i_cp_ring_free(v->ring);
        sp_free(v);
    }
}

void sp_i_pack_timer_free(sp_i_pack_timer *packs)
{
    if (packs == NULL) {
        return;
    }
    for (int i = 0; i <= packs->layout->dp; i++) {
        variant_free(packs->variants[i]);
    }
    sp_free(packs->variants);
    sp_i_blocks_free(packs->blocks);
    sp_free(packs->blocks);
    sp_free(packs->zones.part);
    sp_free(packs->zones.work);
    sp_free(packs->zones.move);
    sp_free(packs->zones.rank);
    for (int i = 0; i < packs->views; i++) {
        sp_free(packs->view[i].memo);
    }
    sp_free(packs->keys);
    sp_free(packs->memos);
    sp_free(packs);
}

void sp_i_pack_timer_interpolate(sp_i_pack_timer *packs)
{
    packs->interpolates = true;
    for (int i = 0; i < packs->views; i++) {
        packs->view[i].memo = sp_calloc(SP_I_ATTENTION_MEMOS, sizeof *packs->view[i].memo);
    }
}

void sp_i_pack_timer_keep(sp_i_pack_timer *packs, double share, double fixed_s)
{
    packs->kept_share = share;
    packs->kept_fixed_s = fixed_s;
}

static const variant *variant_of(sp_i_pack_timer *packs, int dp_count)
{
    SP_ASSERT(dp_count >= 1 && dp_count <= packs->layout->dp);
    if (packs->variants[dp_count] == NULL) {
        packs->variants[dp_count] = variant_new(packs, dp_count);
    }
    return packs->variants[dp_count];
}

static int ring_steps(const sp_memory_options *memory, const sp_layout *layout)
{
    int blocks = layout->cp / sp_stack_head_ranks(&memory->stack, layout);
    return blocks > 1 && sp_stack_passes_keys(&memory->stack, layout) ? blocks : 0;
}

// Queries, keys, values and results move between the ranks of the linear layers and those of the
// attention, piece by piece behind the products of the layer (arXiv 2605.08524: hidden from 22 GB/s
// of a GPU on).
static double exposed_reshuffle_s(const sp_i_pack_timer *packs, const sp_op_timer *timer,
                                  const sp_i_attention_load *load, double linear_s)
{
    double gpu_bytes = remapped_bytes(packs) * packs->layout->cp;
    return fmax(0.0, sp_i_blocks_reshuffle_s(timer, load->moved_tokens, gpu_bytes) - linear_s);
}

// The first kind of layers with attention, of one view or (NULL) of any: others have neither
// attention nor queries, keys and values. The first kind where none has.
static int attending_part(const sp_i_pack_timer *packs, const variant *v, const view *of)
{
    for (int k = 0; k < sp_model_kinds(packs->model); k++) {
        int part = sp_i_part_of_kind(k);
        bool seen = of == NULL || &packs->view[packs->view_of_part[part]] == of;
        if (seen && v->ops[part][SP_PASS_F].attends) {
            return part;
        }
    }
    return SP_PART_LAYER;
}

static bool has_blocks(const sp_memory_options *memory, const variant *v)
{
    return v->layout.cp > 1 && sp_stack_has_blocks(&memory->stack);
}

static sp_i_attention attention_of(const sp_i_pack_timer *packs, const variant *v, const view *of,
                                   const sp_op_timer *timer)
{
    int part = attending_part(packs, v, of);
    return (sp_i_attention){.model = of->model,
                            .is_mixed = packs->views > 1,
                            .layout = &v->layout,
                            .memory = &packs->memory,
                            .timer = timer,
                            .recomputes = v->ops[part][SP_PASS_RECOMPUTE].attentions > 0,
                            .rank_s = v->rank_s,
                            .ring = v->ring,
                            .memo = of->memo,
                            .blocks = has_blocks(&packs->memory, v) ? packs->blocks : NULL,
                            .node_ranks = v->cp.outer.most_per_node};
}

// A ring cuts an attention call into one for each block; after a gather it runs on the two halves
// of a rank's zig-zag share, unless one launch takes both, or all of the pack.
static int attention_calls(const sp_i_attention *attention)
{
    const sp_layout *layout = attention->layout;
    const sp_stack *stack = &attention->memory->stack;
    int steps = ring_steps(attention->memory, layout);
    bool whole =
        stack->cp_overlap == SP_CP_GATHERED || sp_stack_head_ranks(stack, layout) == layout->cp;
    return steps > 0 ? steps : whole ? 1 : 2;
}

// NICs of a hop of its ring (sp_i_cp_exchange_s).
static int ring_nics(const sp_i_attention *attention, sp_group cp)
{
    const sp_stack *stack = &attention->memory->stack;
    bool routed =
        sp_stack_passes_keys(stack, attention->layout) && stack->cp_ring_nics > 0 && cp.nodes > 1;
    return routed ? sp_ring_nics(attention->timer, cp, stack->cp_ring_nics) : 0;
}

// All-to-alls block: keys and values go on around a ring once their heads have come in.
static sp_i_time pass_time(const sp_i_attention *attention, const variant *v, const pass_ops *ops,
                           const sp_i_attention_load *load, double qkv_s, sp_pass pass,
                           sp_cp_exchange *exchange)
{
    const sp_op_timer *timer = attention->timer;
    int cp = attention->layout->cp;
    double attention_s = ops->attentions * (pass == SP_PASS_I ? load->backward_s : load->forward_s);
    double bytes = ops->keys_bytes_per_token * load->keys / cp;
    double cp_s = sp_i_cp_exchange_s(attention, v->cp.outer, load, bytes, pass == SP_PASS_I);
    double heads_bytes = ops->heads_bytes_per_token * load->keys / cp;
    double heads_s = sp_time_collective(timer, SP_ALL_TO_ALL, v->cp.inner, heads_bytes);
    *exchange = (sp_cp_exchange){.s = cp_s,
                                 .bytes = bytes,
                                 .heads_s = heads_s,
                                 .heads_bytes = heads_bytes,
                                 .head_ranks = v->head_ranks,
                                 .ring_nics = ring_nics(attention, v->cp.outer)};
    int calls = attention->blocks != NULL ? 1 + (int)sp_i_blocks_launches(load->rounds)
                                          : attention_calls(attention);
    if (attention->blocks != NULL && attention->memory->stack.cp_overlap == SP_CP_TASKS) {
        calls = 2; // of the two halves of a pack
    }
    double score_bytes =
        ops->pair_bytes * load->pairs + ops->unfused_pair_bytes * load->unfused_pairs;
    double exposed_s =
        sp_i_exposed_cp_s(attention, load, cp_s, attention_s, qkv_s, pass == SP_PASS_I);
    double slowed_s = timer->profile->interference.overlap_share * (cp_s - exposed_s);
    return (sp_i_time){.compute_s = attention_s + slowed_s +
                                    sp_time_launch(timer, ops->attention_kernels * calls) +
                                    sp_time_memory(timer, score_bytes, 0),
                       .cp_s = exposed_s + heads_s,
                       .attention_s = attention_s};
}

// What attention adds to the layers of one view.
static void add_attention(sp_i_pack_timer *packs, const variant *v, const view *of,
                          const sp_op_timer *timer, const sp_pack_list *list, const sp_pack *pack,
                          const memo *tokens, bool forward, bool backward, sp_i_pack_time *time)
{
    bool zones = time->zones != NULL;
    sp_i_attention attention = attention_of(packs, v, of, timer);
    bool gathers = pack->gathers && !zones && v->head_ranks == 1;
    bool tasks = packs->memory.stack.cp_overlap == SP_CP_TASKS;
    attention.memory = gathers ? &packs->gathered : &packs->memory;
    attention.blocks = gathers ? NULL : attention.blocks;
    sp_i_attention_load load =
        sp_i_attention_load_of(&attention, list, pack, forward || attention.recomputes, backward);
    load.forward_s = load.forward_s * packs->kept_share + packs->kept_fixed_s;
    time->recomputes_attention = time->recomputes_attention || attention.recomputes;
    time->ring_steps = ring_steps(attention.memory, &v->layout);
    time->unfused_softmax = load.calls > 0.0 ? load.unfused_calls / load.calls : 0.0;
    for (int pass = 0; pass < SP_I_PASSES; pass++) {
        bool of_forward = pass == SP_PASS_F;
        if (!(of_forward ? forward : backward)) {
            continue;
        }
        if (zones && (of_forward || pass == SP_PASS_I)) { // for all backward passes
            fill_zones(packs, of, timer, list, pack, !of_forward);
        }
        for (int part = 0; part < packs->parts; part++) {
            const pass_ops *ops = &v->ops[part][pass];
            if (!ops->attends || &packs->view[packs->view_of_part[part]] != of) {
                continue;
            }
            double behind_s = tasks ? tokens->of[part][pass].compute_s : tokens->qkv_s[pass];
            time->of[part][pass] =
                zones ? sp_i_zones_time(&packs->zones, timer, (sp_pass)pass, remapped_bytes(packs))
                      : pass_time(&attention, v, ops, &load, behind_s, (sp_pass)pass,
                                  &time->cp[pass]);
            if (attention.blocks != NULL && !zones && !tasks) {
                time->of[part][pass].cp_s +=
                    exposed_reshuffle_s(packs, timer, &load, tokens->of[part][pass].compute_s);
            }
        }
    }
}

void sp_i_pack_time_of(sp_i_pack_timer *packs, const sp_op_timer *timer, const sp_pack_list *list,
                       const sp_pack *pack, bool forward, bool backward, sp_i_pack_time *time)
{
    sp_i_pack_time_in_round(packs, timer, list, pack, forward, backward, pack->computed, 0.0, time);
}

double sp_i_group_tokens(const sp_model *model, const sp_layout *layout, const sp_pack *pack,
                         int64_t expert_tokens)
{
    sp_shard shard = sp_shard_of(model, layout);
    return (double)expert_tokens / pack->dp_count / layout->cp * sp_layout_ep(layout) *
           (double)shard.rows_of / (double)shard.rows_over;
}

// The expected overload of a pack, 1 where ranks are loaded evenly.
static double expected_overload(const sp_i_pack_timer *packs, int dp_count, int64_t expert_tokens)
{
    const sp_pack pack = {.dp_count = dp_count};
    return packs->load == NULL
               ? 1.0
               : sp_expert_load_expected(packs->load, sp_i_group_tokens(packs->model, packs->layout,
                                                                        &pack, expert_tokens));
}

static const memo *token_times(sp_i_pack_timer *packs, const sp_op_timer *timer, const variant *v,
                               int dp_count, int64_t tokens, int64_t expert_tokens)
{
    // Counts at the ends of cells keep apart, too.
    uint64_t counts = (uint64_t)tokens + ((uint64_t)(expert_tokens - tokens) << 20);
    size_t at = (counts * 0x9E3779B97F4A7C15u >> 40) % MEMO;
    memo_key *key = &packs->keys[at];
    memo *entry = &packs->memos[at];
    if (key->dp_count == dp_count && key->tokens == tokens && key->expert_tokens == expert_tokens) {
        return entry;
    }
    *key = (memo_key){.tokens = tokens, .expert_tokens = expert_tokens, .dp_count = dp_count};
    double local_tokens = (double)tokens / v->layout.cp;
    double rows_of = (double)expert_tokens / v->layout.cp;
    // Of so many rows more than the mean's as are beyond the steps in which products take longer.
    double overload = fmax(1.25, expected_overload(packs, dp_count, expert_tokens));
    sp_i_timed_collectives timed = {.op = {NULL}};
    for (int part = 0; part < packs->parts; part++) {
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            const sp_inventory *ops = &v->ops[part][pass].inventory;
            sp_i_token_times *times = &entry->of[part][pass];
            sp_i_token_time(timer, &packs->memory.stack, &v->groups, ops, (sp_pass)pass,
                            local_tokens, rows_of, 1.0, &timed, times);
            if (packs->load != NULL) {
                sp_i_token_times fullest;
                sp_i_token_time(timer, &packs->memory.stack, &v->groups, ops, (sp_pass)pass,
                                local_tokens, rows_of, overload, &timed, &fullest);
                double longer_s = fullest.compute_s + fullest.ep_s - times->compute_s - times->ep_s;
                times->wait_s = fmax(0.0, longer_s) / (overload - 1.0);
            }
        }
    }
    const int attends = attending_part(packs, v, NULL);
    for (int pass = 0; pass < SP_I_PASSES; pass++) {
        entry->qkv_s[pass] = sp_i_qkv_s(timer, &v->ops[attends][pass].inventory, local_tokens);
    }
    return entry;
}

// Between the first and the last token count of a cell, which has CELL tokens a rank.
static const memo *interpolated_times(sp_i_pack_timer *packs, const sp_op_timer *timer,
                                      const variant *v, int dp_count, int64_t tokens)
{
    int64_t cell = (int64_t)CELL * v->layout.cp;
    int64_t first = (tokens - 1) / cell * cell + 1;
    int64_t last = first + cell - 1;
    if (tokens <= cell || tokens == first || tokens == last) {
        return token_times(packs, timer, v, dp_count, tokens, tokens);
    }
    const memo a = *token_times(packs, timer, v, dp_count, first, first);
    const memo *b = token_times(packs, timer, v, dp_count, last, last);
    memo *m = &packs->between;
    double w = (double)(tokens - first) / (double)(cell - 1);
    for (int pass = 0; pass < SP_I_PASSES; pass++) {
        for (int part = 0; part < packs->parts; part++) {
            const sp_i_token_times *x = &a.of[part][pass];
            const sp_i_token_times *y = &b->of[part][pass];
            m->of[part][pass] =
                (sp_i_token_times){.compute_s = x->compute_s + w * (y->compute_s - x->compute_s),
                                   .tp_s = x->tp_s + w * (y->tp_s - x->tp_s),
                                   .ep_s = x->ep_s + w * (y->ep_s - x->ep_s),
                                   .mlp_s = x->mlp_s + w * (y->mlp_s - x->mlp_s),
                                   .returns_s = x->returns_s + w * (y->returns_s - x->returns_s),
                                   .beside_s = x->beside_s + w * (y->beside_s - x->beside_s),
                                   .wait_s = x->wait_s + w * (y->wait_s - x->wait_s)};
        }
        m->qkv_s[pass] = a.qkv_s[pass] + w * (b->qkv_s[pass] - a.qkv_s[pass]);
    }
    return m;
}

void sp_i_pack_time_in_round(sp_i_pack_timer *packs, const sp_op_timer *timer,
                             const sp_pack_list *list, const sp_pack *pack, bool forward,
                             bool backward, int64_t expert_tokens, double overload,
                             sp_i_pack_time *time)
{
    const variant *v = variant_of(packs, pack->dp_count);
    const memo *tokens =
        packs->interpolates && expert_tokens == pack->computed
            ? interpolated_times(packs, timer, v, pack->dp_count, pack->computed)
            : token_times(packs, timer, v, pack->dp_count, pack->computed, expert_tokens);
    double most =
        overload > 0.0 ? overload : expected_overload(packs, pack->dp_count, expert_tokens);
    time->layout = &v->layout;
    time->recompute_share = v->recompute_share;
    time->recomputes_attention = false;
    time->zones = has_zones(list, pack) ? &packs->zones : NULL;
    for (int pass = 0; pass < SP_I_PASSES; pass++) {
        time->cp[pass] = (sp_cp_exchange){0};
        for (int part = 0; part < packs->parts; part++) {
            time->of[part][pass] = (sp_i_time){0};
        }
    }
    for (int i = 0; i < packs->views; i++) {
        add_attention(packs, v, &packs->view[i], timer, list, pack, tokens, forward, backward,
                      time);
    }
    for (int pass = 0; pass < SP_I_PASSES; pass++) {
        for (int part = 0; (pass == SP_PASS_F ? forward : backward) && part < packs->parts;
             part++) {
            time->of[part][pass].compute_s += tokens->of[part][pass].compute_s;
            time->of[part][pass].tp_s += tokens->of[part][pass].tp_s;
            time->of[part][pass].ep_wait_s = (most - 1.0) * tokens->of[part][pass].wait_s;
            time->of[part][pass].ep_beside_s = tokens->of[part][pass].beside_s;
            time->of[part][pass].ep_s +=
                tokens->of[part][pass].ep_s + time->of[part][pass].ep_wait_s;
            time->experts[part][pass] =
                (sp_i_expert_parts){tokens->of[part][pass].mlp_s, tokens->of[part][pass].returns_s};
        }
    }
}

sp_expert_exchange sp_i_expert_exchange_of(const sp_i_pack_timer *packs, const sp_op_timer *timer,
                                           const sp_stage *stage, sp_pass pass)
{
    const variant *v = packs->variants[1];
    sp_expert_exchange exchange = {.fixed_s = 0.0};
    for (int part = 0; part < packs->parts; part++) {
        double layers = part == SP_PART_EMBEDDING ? stage->embedding
                        : part == SP_PART_HEAD    ? stage->head
                                                  : 0.0;
        for (int k = 0; k < sp_model_kinds(packs->model); k++) {
            layers += sp_i_part_of_kind(k) == part ? sp_stage_count(stage, packs->model, k) : 0;
        }
        sp_i_add_expert_exchange(timer, &packs->memory.stack, &v->groups,
                                 &v->ops[part][pass].inventory, layers, &exchange);
    }
    return exchange;
}

// A sample of n tokens has at least n*n/2 full pairs, so many with the finest slices: no fewer
// scores are read and written. Unfused attention computes what windows and chunks mask.
void sp_i_pack_least_work(const sp_i_pack_timer *packs, const sp_op_timer *timer, bool whole,
                          sp_i_least_work *least)
{
    const variant *v = packs->variants[1];
    double expert_share = whole ? 1.0 : 1.0 / v->groups.ranks;
    sp_i_attention attention = attention_of(packs, v, &packs->view[0], timer);
    double cp = v->layout.cp;
    double least_s[2];
    sp_i_attention_least_s(&attention, least_s);
    *least = (sp_i_least_work){0};
    for (int part = 0; part < packs->parts; part++) {
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            const pass_ops *ops = &v->ops[part][pass];
            least->token_s[part][pass] =
                sp_i_token_least_s(timer, &packs->memory.stack, &v->groups, &ops->inventory,
                                   (sp_pass)pass, expert_share) /
                cp;
            least->square_s[part][pass] =
                (ops->attentions * least_s[pass == SP_PASS_I] +
                 (timer->profile->scores.factor > 0.0
                      ? 0.0
                      : sp_time_memory(timer, 0.5 * ops->pair_bytes, 0))) /
                cp;
        }
    }
    for (int k = 0; k < sp_model_kinds(packs->model); k++) {
        int part = sp_i_part_of_kind(k);
        const sp_model *model = packs->view[packs->view_of_part[part]].model;
        bool masks = packs->memory.attention == SP_ATTENTION_UNFUSED;
        for (int pass = 0; sp_model_least_seen(model) > 0 && !masks && pass < SP_I_PASSES; pass++) {
            least->seen_s[k][pass] = least->square_s[part][pass];
            least->square_s[part][pass] = 0.0;
        }
    }
}

void sp_i_pack_token_time(const sp_i_pack_timer *packs, const sp_op_timer *timer, double tokens,
                          double token_s[SP_I_PARTS][SP_I_PASSES])
{
    const variant *v = packs->variants[1];
    sp_i_timed_collectives timed = {.op = {NULL}};
    for (int part = 0; part < packs->parts; part++) {
        for (int pass = 0; pass < SP_I_PASSES; pass++) {
            sp_i_token_times times;
            double local_tokens = tokens / v->layout.cp;
            sp_i_token_time(timer, &packs->memory.stack, &v->groups, &v->ops[part][pass].inventory,
                            (sp_pass)pass, local_tokens, local_tokens / v->groups.ranks, 1.0,
                            &timed, &times);
            token_s[part][pass] = times.compute_s + times.tp_s + times.ep_s;
        }
    }
}

// ---- zones ----

static bool has_zones(const sp_pack_list *list, const sp_pack *pack)
{
    bool zones = false;
    for (size_t s = 0; !zones && s < pack->slice_count; s++) {
        zones = list->slices[pack->first_slice + s].zone != 0;
    }
    return zones;
}

// Bytes of a token on each GPU of its rank: queries, keys and values in, results out; their
// gradients the other way round in the backward.
static double remapped_bytes(const sp_i_pack_timer *packs)
{
    sp_shard shard = sp_shard_of(packs->model, packs->layout);
    return BYTES_BF16 * (double)(shard.q + shard.k + shard.v + shard.context) / packs->layout->cp;
}

static void begin_zones(sp_i_pack_timer *packs, const sp_pack *pack)
{
    sp_i_zones *z = &packs->zones;
    size_t dp = (size_t)packs->layout->dp;
    z->work = z->work != NULL ? z->work : sp_calloc(4 * dp, sizeof *z->work);
    z->move = z->move != NULL ? z->move : sp_calloc(dp, sizeof *z->move);
    z->rank = z->rank != NULL ? z->rank : sp_calloc(dp, sizeof *z->rank);
    z->dp = packs->layout->dp;
    z->node_ranks = sp_cluster_node_dp_ranks(packs->cluster, packs->layout);
    z->one_nic = packs->memory.stack.cp_ring_nics == 1;
    z->lone_rings = packs->memory.stack.cp_lone_rings;
    z->first = pack->dp_first;
    z->ranks = pack->dp_count;
    z->count = 0;
}

// The slices of `pack` have one zone.
static void add_zone(sp_i_pack_timer *packs, const view *of, const sp_op_timer *timer,
                     const sp_pack_list *list, const sp_pack *pack, bool backward)
{
    sp_i_zones *z = &packs->zones;
    int32_t zone = list->slices[pack->first_slice].zone;
    int ranks = zone != 0 ? sp_zone_ranks(zone) : pack->dp_count;
    const variant *v = variant_of(packs, ranks);
    SP_RESERVE(z->part, z->capacity, z->count + 1);
    sp_i_attention attention = attention_of(packs, v, of, timer);
    sp_i_attention_load load =
        sp_i_attention_load_of(&attention, list, pack, !backward || attention.recomputes, backward);
    bool ring = sp_stack_passes_keys(&packs->memory.stack, &v->layout);
    const int attends = attending_part(packs, v, of);
    sp_i_zone_part *part = &z->part[z->count++];
    *part = (sp_i_zone_part){.first = zone != 0 ? sp_zone_first(zone) : pack->dp_first,
                             .ranks = ranks,
                             .blocks = v->cp.outer.size,
                             .crosses = v->cp.outer.nodes > 1};
    for (size_t s = 0; s < pack->slice_count; s++) {
        part->tokens += (double)list->slices[pack->first_slice + s].computed_tokens;
    }
    for (int pass = 0; pass < SP_I_PASSES; pass++) {
        const pass_ops *ops = &v->ops[attends][pass];
        if ((pass != SP_PASS_F) == backward && ops->attends) {
            sp_cp_exchange *exchange = &part->exchange[pass];
            part->of[pass] = pass_time(&attention, v, ops, &load, 0.0, (sp_pass)pass, exchange);
            part->ring_s[pass] = ring ? exchange->s : 0.0;
            part->blocking_s[pass] = ring ? exchange->heads_s : part->of[pass].cp_s;
        }
    }
}

static void fill_zones(sp_i_pack_timer *packs, const view *of, const sp_op_timer *timer,
                       const sp_pack_list *list, const sp_pack *pack, bool backward)
{
    size_t end = pack->first_slice + pack->slice_count;
    sp_pack run = *pack;
    begin_zones(packs, pack);
    while (run.first_slice < end) {
        int32_t zone = list->slices[run.first_slice].zone;
        run.slice_count = 1;
        while (run.first_slice + run.slice_count < end &&
               list->slices[run.first_slice + run.slice_count].zone == zone) {
            run.slice_count++;
        }
        add_zone(packs, of, timer, list, &run, backward);
        run.first_slice += run.slice_count;
    }
}

// ---- the attention of zones on the slowest rank ----

static void add(const sp_i_zone_part *part, sp_pass pass, sp_i_zone_rank *rank)
{
    const sp_i_time *of = &part->of[pass];
    rank->sum.compute_s += of->compute_s;
    rank->sum.cp_s += of->cp_s;
    rank->sum.attention_s += of->attention_s;
    rank->blocking_s += part->blocking_s[pass];
    if (part->ring_s[pass] > 0.0) {
        double last_s = of->attention_s / part->blocks;
        double *least_s = &rank->last_s[part->crosses];
        *least_s = rank->ring_s[part->crosses] > 0.0 ? fmin(*least_s, last_s) : last_s;
        rank->ring_s[part->crosses] += part->ring_s[pass];
    }
}

static void add_parts(const sp_i_zones *zones, sp_pass pass)
{
    for (int r = 0; r < zones->dp; r++) {
        zones->rank[r] = (sp_i_zone_rank){0};
    }
    for (size_t i = 0; i < zones->count; i++) {
        const sp_i_zone_part *part = &zones->part[i];
        for (int r = part->first; r < part->first + part->ranks; r++) {
            add(part, pass, &zones->rank[r]);
        }
    }
}

// The part of the rings that no attention hides, and the part that nothing hides.
static double exposed_s(const sp_i_zone_rank *t)
{
    double longest_s = t->sum.compute_s;
    for (int kind = 0; kind < 2; kind++) {
        if (t->ring_s[kind] > 0.0) {
            longest_s = fmax(longest_s, t->ring_s[kind] + t->last_s[kind]);
        }
    }
    return fmin(t->sum.cp_s - t->blocking_s, longest_s - t->sum.compute_s) + t->blocking_s;
}

static double remap_s(sp_i_zones *zones, const sp_op_timer *timer, double gpu_bytes)
{
    double *surplus = zones->work;
    double tokens = 0.0;
    for (int r = 0; r < zones->dp; r++) {
        surplus[r] = 0.0;
    }
    for (size_t i = 0; i < zones->count; i++) {
        const sp_i_zone_part *part = &zones->part[i];
        for (int r = part->first; r < part->first + part->ranks; r++) {
            surplus[r] += part->tokens / part->ranks;
        }
        tokens += part->tokens;
    }
    for (int r = zones->first; r < zones->first + zones->ranks; r++) {
        surplus[r] -= tokens / zones->ranks;
    }
    zones->moves = sp_i_remap(surplus, zones->dp, zones->node_ranks, zones->move);
    zones->gpu_bytes = gpu_bytes;
    sp_i_remap_links links = {zones->dp, zones->node_ranks, zones->one_nic, zones->work};
    zones->moves_s = 2.0 * sp_i_remap_s(timer, &links, zones->move, zones->moves, gpu_bytes / 2.0);
    return zones->moves_s;
}

sp_i_time sp_i_zones_time(sp_i_zones *zones, const sp_op_timer *timer, sp_pass pass,
                          double gpu_bytes)
{
    sp_i_time slowest = {0};
    add_parts(zones, pass);
    for (int r = zones->first; r < zones->first + zones->ranks; r++) {
        sp_i_time time = zones->rank[r].sum;
        time.cp_s = zones->lone_rings ? time.cp_s : exposed_s(&zones->rank[r]);
        if (time.compute_s + time.cp_s > slowest.compute_s + slowest.cp_s) {
            slowest = time;
        }
    }
    slowest.cp_s += remap_s(zones, timer, gpu_bytes);
    return slowest;
}

// ---- tokens that move between the ranks of zones ----

// The next rank from *at on, before `end`, with a surplus of this sign; `end`: none.
static int next_of(const double *surplus, int at, int end, double sign)
{
    while (at < end && !(sign * surplus[at] > 0.0)) {
        at++;
    }
    return at;
}

// Moves what it can among the ranks [from, end).
static int settle(double *surplus, int from, int end, sp_i_move *moves)
{
    int count = 0;
    int rich = next_of(surplus, from, end, 1.0);
    int poor = next_of(surplus, from, end, -1.0);
    while (rich < end && poor < end) {
        double tokens = fmin(surplus[rich], -surplus[poor]);
        moves[count++] = (sp_i_move){rich, poor, tokens};
        surplus[rich] -= tokens;
        surplus[poor] += tokens;
        rich = next_of(surplus, rich, end, 1.0);
        poor = next_of(surplus, poor, end, -1.0);
    }
    return count;
}

int sp_i_remap(double *surplus, int ranks, int node_ranks, sp_i_move *moves)
{
    int count = 0;
    for (int node = 0; node < ranks; node += node_ranks) {
        int end = node + node_ranks < ranks ? node + node_ranks : ranks;
        count += settle(surplus, node, end, moves + count);
    }
    return count + settle(surplus, 0, ranks, moves + count);
}

static double most(const double *of, int count)
{
    double most = 0.0;
    for (int i = 0; i < count; i++) {
        most = fmax(most, of[i]);
    }
    return most;
}

double sp_i_remap_s(const sp_op_timer *timer, const sp_i_remap_links *links, const sp_i_move *moves,
                    int count, double gpu_bytes)
{
    int ranks = links->ranks;
    int nic_ranks = links->one_nic ? 1 : links->node_ranks;
    double nvlink = timer->profile->nvlink_bytes_per_s;
    double nic = sp_i_nic_share_bytes_per_s(timer);
    double *traffic = links->traffic;
    double *network = traffic + 2 * ranks;
    if (count == 0) {
        return 0.0;
    }
    for (int i = 0; i < 4 * ranks; i++) {
        traffic[i] = 0.0;
    }
    for (int i = 0; i < count; i++) {
        const sp_i_move *m = &moves[i];
        bool inside = m->from / links->node_ranks == m->to / links->node_ranks;
        int group = inside ? 1 : nic_ranks;
        double *of = inside ? traffic : network;
        of[m->from / group] += m->tokens * gpu_bytes;
        of[ranks + m->to / group] += m->tokens * gpu_bytes;
    }
    double bytes = most(network, 2 * ranks);
    double network_s = bytes / (nic_ranks * (nic > 0.0 ? fmin(nic, nvlink) : nvlink));
    return fmax(most(traffic, 2 * ranks) / nvlink, network_s) +
           (bytes > 0.0 ? timer->profile->nic_latency_s : timer->profile->p2p_latency_s);
}

// ---- zones as flows over links ----

const sp_pack_zones *sp_i_pack_zones_of(sp_step_costs *costs, const sp_i_pack_time *time,
                                        bool backward)
{
    const sp_i_zones *zones = time->zones;
    if (zones == NULL) {
        return NULL;
    }
    sp_pack_zones *made = sp_arena_take(&costs->zone_work, 1, sizeof *made);
    sp_zone_exchange *exchanges = sp_arena_take(&costs->zone_work, zones->count, sizeof *exchanges);
    sp_zone_move *moves = sp_arena_take(&costs->zone_work, (size_t)zones->moves + 1, sizeof *moves);
    for (size_t z = 0; z < zones->count; z++) {
        const sp_i_zone_part *part = &zones->part[z];
        exchanges[z] = (sp_zone_exchange){
            part->first,
            part->ranks,
            {part->exchange[backward ? SP_PASS_I : SP_PASS_F], part->exchange[SP_PASS_RECOMPUTE]}};
    }
    for (int m = 0; m < zones->moves; m++) {
        moves[m] = (sp_zone_move){zones->move[m].from, zones->move[m].to, zones->move[m].tokens};
    }
    bool again = backward && time->recomputes_attention;
    *made = (sp_pack_zones){.zones = exchanges,
                            .moves = moves,
                            .zone_count = zones->count,
                            .move_count = (size_t)zones->moves,
                            .node_ranks = zones->one_nic ? 1 : zones->node_ranks,
                            .token_bytes = 0.5 * zones->gpu_bytes,
                            .moves_s = {zones->moves_s, again ? zones->moves_s : 0.0}};
    costs->zoned = true;
    return made;
}
