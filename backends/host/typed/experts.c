// Layers with experts on the CPU: a router that chooses experts for each token, rows that go to
// their experts and come back, and products of each expert with its rows (Shazeer and others:
// "Outrageously Large Neural Networks", arXiv 1701.06538, section 2; dropless: no expert refuses a
// row).
//
// A token goes to the experts_per_token experts with the largest logits, of equal ones the first,
// with the softmax over these as their weights (Jiang and others: "Mixtral of Experts", arXiv
// 2401.04088, equation 2). Its rows stand one behind the other by the numbers of their experts, so
// that where a row stands does not depend on packs. Rows of experts on other ranks go there in this
// order, rank after rank, and those of all ranks stand at the experts by the rank that they came
// from. Each expert takes its own out of them for a product and puts the results back.
#include <math.h>
#include <string.h>

#include "backends/executor/typed/layer.h"
#include "backends/ranks/comm.h"
#include "kernels/typed.h"
#include "sim/base/alloc.h"

enum { TAG_ROWS = 7 }; // those before it are attention's

// A row's weight and the number of its expert among those of the rank.
enum { ROUTE_WEIGHT, ROUTE_EXPERT, ROUTE_NUMBERS };

static int64_t hidden_of(const layer *l)
{
    return l->kind->model.hidden;
}

// ---- Router ----

static bool choose(layer *l)
{
    const sp_shard *shard = &l->kind->shard;
    int64_t h = hidden_of(l);
    if (!SP_EXEC(make)(l, SP_TENSOR_ROUTER) || !SP_EXEC(make)(l, SP_TENSOR_ROUTING_MAP)) {
        return false;
    }
    real *weights = l->t[SP_TENSOR_ROUTER];
    uint8_t *chosen = l->t[SP_TENSOR_ROUTING_MAP];
    SP_KERNEL(linear)
    (l->rows, h, shard->experts, l->t[SP_TENSOR_NORM2], h,
     SP_EXEC(value)(l, SP_PARAMETER_ROUTER_WEIGHT), h, SP_EXEC(value)(l, SP_PARAMETER_ROUTER_BIAS),
     weights, shard->experts);
    SP_KERNEL(choose_experts)(l->rows, shard->experts, shard->active, weights, chosen);
    return true;
}

// Of a product of the norm's output: the gradients of weight and bias (NULL: none) from dy
// [rows, outputs]; adds to dx [rows, hidden].
static void small_backward(const layer *l, sp_parameter_kind weight, real *dbias, int64_t outputs,
                           const real *dy, real *dx)
{
    int64_t h = hidden_of(l);
    real *dweight = l->stage->gradient[sp_i_exec_slot(l->index, weight)];
    SP_KERNEL(linear_backward_weight)
    (l->rows, h, outputs, dy, outputs, l->t[SP_TENSOR_NORM2], h, dweight, h, dbias);
    SP_KERNEL(linear_backward_input)
    (l->rows, h, outputs, dy, outputs, SP_EXEC(value)(l, weight), h, true, dx, h);
}

static void choose_backward(const layer *l, const real *dlogits, real *dx)
{
    real *dbias = l->stage->gradient[sp_i_exec_slot(l->index, SP_PARAMETER_ROUTER_BIAS)];
    small_backward(l, SP_PARAMETER_ROUTER_WEIGHT, dbias, l->kind->shard.experts, dlogits, dx);
}

// ---- Rows to experts and back ----

// Ranks that have the experts, and which of them this one is.
static int ranks_of(const layer *l)
{
    const sp_i_exec_links *links = l->stage->links;
    return links->expert_group < 0
               ? 1
               : sp_comm_group_size(sp_comm_world_of(links->me), links->expert_group);
}

static int member_of(const layer *l)
{
    const sp_i_exec_links *links = l->stage->links;
    return links->expert_group < 0 ? 0 : sp_comm_member(links->me, links->expert_group);
}

static bool send(const layer *l, int to, const void *data, size_t bytes)
{
    sp_i_exec_links *links = l->stage->links;
    int rank = sp_comm_group_rank(sp_comm_world_of(links->me), links->expert_group, to);
    links->status = sp_comm_send(links->me, rank, TAG_ROWS, data, bytes, &links->err);
    return links->status == SP_OK;
}

static bool receive(const layer *l, int from, void *data, size_t bytes)
{
    sp_i_exec_links *links = l->stage->links;
    int rank = sp_comm_group_rank(sp_comm_world_of(links->me), links->expert_group, from);
    links->status = sp_comm_receive(links->me, rank, TAG_ROWS, data, bytes, &links->err);
    return links->status == SP_OK;
}

// The first of the rows that go to, or came from, a rank.
static int64_t first_of(const int64_t *rows, int rank)
{
    int64_t first = 0;
    for (int r = 0; r < rank; r++) {
        first += rows[r];
    }
    return first;
}

// Rows of `width` numbers go to all ranks, those[r] to rank r, and come from all, these[r].
static bool exchange(const layer *l, int64_t width, const int64_t *those, const real *from,
                     const int64_t *these, real *to)
{
    const int ranks = ranks_of(l);
    const int me = member_of(l);
    bool ok = true;
    for (int r = 0; ok && r < ranks; r++) {
        if (r != me && those[r] > 0) {
            ok = send(l, r, from + first_of(those, r) * width,
                      (size_t)(those[r] * width) * sizeof *from);
        }
    }
    memcpy(to + first_of(these, me) * width, from + first_of(those, me) * width,
           (size_t)(these[me] * width) * sizeof *to);
    for (int r = 0; ok && r < ranks; r++) {
        if (r != me && these[r] > 0) {
            ok = receive(l, r, to + first_of(these, r) * width,
                         (size_t)(these[r] * width) * sizeof *to);
        }
    }
    return ok;
}

static bool exchange_counts(layer *l)
{
    const int ranks = ranks_of(l);
    const int me = member_of(l);
    bool ok = true;
    l->arrived[me] = l->sent[me];
    for (int r = 0; ok && r < ranks; r++) {
        ok = r == me || send(l, r, &l->sent[r], sizeof l->sent[r]);
    }
    for (int r = 0; ok && r < ranks; r++) {
        ok = r == me || receive(l, r, &l->arrived[r], sizeof l->arrived[r]);
    }
    return ok;
}

// How many of the rank's rows go to each rank.
static void count_sent(layer *l)
{
    const sp_shard *shard = &l->kind->shard;
    const uint8_t *chosen = l->t[SP_TENSOR_ROUTING_MAP];
    memset(l->sent, 0, sizeof l->sent);
    for (int64_t i = 0; i < l->rows * shard->experts; i++) {
        l->sent[i % shard->experts / shard->held] += chosen[i];
    }
}

// One of a token's rows, and where it is among the rows as they go out.
typedef struct route {
    int64_t token, expert, at;
} route;

typedef void visit_route(const layer *l, const route *r, void *data);

// All of the pack's rows, token by token.
static void for_routes(const layer *l, visit_route *visit, void *data)
{
    int64_t active = l->kind->shard.active;
    for (int64_t i = 0; i < l->rows * active; i++) {
        const route r = {i / active, l->own_rows[2 * i], l->own_rows[2 * i + 1]};
        visit(l, &r, data);
    }
}

// The map does not outlive the backward of the outputs' sum, and the rows' places are read behind
// it.
static bool place_rows(layer *l)
{
    const sp_shard *shard = &l->kind->shard;
    const uint8_t *chosen = l->t[SP_TENSOR_ROUTING_MAP];
    const sp_i_exec_width number = {sizeof *l->own_rows, 0};
    int64_t next[SP_I_EXEC_MOST_EXPERT_RANKS];
    for (int rank = 0; rank < ranks_of(l); rank++) {
        next[rank] = first_of(l->sent, rank);
    }
    sp_i_exec_give(l->stage->arena, l->own_rows);
    l->own_rows =
        sp_i_exec_take(l->stage->arena, SP_MEM_WORKSPACE, 2 * l->rows * shard->active, number);
    int32_t *to = l->own_rows;
    for (int64_t i = 0; to != NULL && i < l->rows * shard->experts; i++) {
        if (chosen[i]) {
            int64_t expert = i % shard->experts;
            *to++ = (int32_t)expert;
            *to++ = (int32_t)next[expert / shard->held]++;
        }
    }
    return l->own_rows != NULL;
}

static void write_route(const layer *l, const route *r, void *data)
{
    const sp_shard *shard = &l->kind->shard;
    const real *weights = l->t[SP_TENSOR_ROUTER];
    real *to = (real *)data + r->at * ROUTE_NUMBERS;
    to[ROUTE_WEIGHT] = weights[r->token * shard->experts + r->expert];
    to[ROUTE_EXPERT] = (real)(r->expert % shard->held);
}

// From and to rows of hidden states, of tokens and as they go out.
typedef struct rows_pass {
    const real *from;
    real *to;
} rows_pass;

static void copy_out(const layer *l, const route *r, void *data)
{
    const rows_pass *p = data;
    int64_t h = hidden_of(l);
    memcpy(p->to + r->at * h, p->from + r->token * h, (size_t)h * sizeof *p->to);
}

static bool read_experts(layer *l)
{
    const real *routes = l->t[SP_TENSOR_ROUTES];
    const sp_i_exec_width number = {sizeof *l->routed.expert, 0};
    sp_i_exec_give(l->stage->arena, l->routed.expert);
    l->routed.expert = sp_i_exec_take(l->stage->arena, SP_MEM_WORKSPACE, l->routed.count, number);
    for (int64_t r = 0; l->routed.expert != NULL && r < l->routed.count; r++) {
        l->routed.expert[r] = (int32_t)routes[r * ROUTE_NUMBERS + ROUTE_EXPERT];
    }
    return l->routed.expert != NULL;
}

static bool recall(layer *l)
{
    count_sent(l);
    memcpy(l->arrived, l->sent, sizeof l->arrived);
    if (ranks_of(l) > 1) {
        memcpy(l->arrived, sp_i_exec_arrived(l->stage, l->pack->same_as, l->index),
               (size_t)ranks_of(l) * sizeof *l->arrived);
    }
    l->routed.count = first_of(l->arrived, ranks_of(l));
    return read_experts(l) && place_rows(l);
}

// Rows as they go out: at once where they stay, or in a matrix that is exchanged.
static real *outgoing(const layer *l, int64_t width, real *stays)
{
    return ranks_of(l) == 1 ? stays
                            : sp_i_exec_take(l->stage->arena, SP_MEM_WORKSPACE,
                                             l->rows * l->kind->shard.active * width,
                                             l->stage->job->width.value);
}

static bool bring(const layer *l, int64_t width, real *out, real *to)
{
    bool ok = out == to || exchange(l, width, l->sent, out, l->arrived, to);
    sp_i_exec_give(l->stage->arena, out == to ? NULL : out);
    return ok;
}

static bool dispatch(layer *l)
{
    count_sent(l);
    if (ranks_of(l) > 1 && !exchange_counts(l)) {
        return false;
    }
    if (ranks_of(l) == 1) {
        memcpy(l->arrived, l->sent, sizeof l->arrived);
    }
    l->routed.count = first_of(l->arrived, ranks_of(l));
    if (ranks_of(l) > 1 && !l->rebuilds && l->keep) {
        memcpy(sp_i_exec_arrived(l->stage, (int32_t)(l->pack - l->stage->job->slices.forward),
                                 l->index),
               l->arrived, (size_t)ranks_of(l) * sizeof *l->arrived);
    }
    if (!SP_EXEC(make)(l, SP_TENSOR_ROUTES) || !SP_EXEC(make)(l, SP_TENSOR_EXPERT_INPUT)) {
        return false;
    }
    real *routes = outgoing(l, ROUTE_NUMBERS, l->t[SP_TENSOR_ROUTES]);
    rows_pass rows = {l->t[SP_TENSOR_NORM2],
                      outgoing(l, hidden_of(l), l->t[SP_TENSOR_EXPERT_INPUT])};
    if (routes == NULL || rows.to == NULL || !place_rows(l)) {
        return false;
    }
    for_routes(l, write_route, routes);
    for_routes(l, copy_out, &rows);
    if (!bring(l, ROUTE_NUMBERS, routes, l->t[SP_TENSOR_ROUTES]) ||
        !bring(l, hidden_of(l), rows.to, l->t[SP_TENSOR_EXPERT_INPUT])) {
        return false;
    }
    return read_experts(l);
}

static void add_out(const layer *l, const route *r, void *data)
{
    const rows_pass *p = data;
    int64_t h = hidden_of(l);
    SP_KERNEL(add)(h, p->from + r->at * h, p->to + r->token * h);
}

static void add_weighted(const layer *l, const route *r, void *data)
{
    const rows_pass *p = data;
    int64_t h = hidden_of(l);
    const real *weights = l->t[SP_TENSOR_ROUTER];
    SP_KERNEL(add_weighted)
    (h, weights[r->token * l->kind->shard.experts + r->expert], p->from + r->at * h,
     p->to + r->token * h);
}

// Rows at experts go back to their tokens, where they are added.
static bool give_back(const layer *l, const real *rows, visit_route *take, real *to)
{
    int64_t h = hidden_of(l);
    real *back = NULL;
    if (ranks_of(l) > 1) {
        back = outgoing(l, h, NULL);
        if (back == NULL || !exchange(l, h, l->arrived, rows, l->sent, back)) {
            return false;
        }
    }
    rows_pass p = {back != NULL ? back : rows, to};
    memset(to, 0, (size_t)(l->rows * h) * sizeof *to);
    for_routes(l, take, &p);
    sp_i_exec_give(l->stage->arena, back);
    return true;
}

static bool combine(const layer *l, real *y)
{
    return give_back(l, l->t[SP_TENSOR_EXPERT_OUTPUT], add_weighted, y);
}

static bool dispatch_backward(const layer *l, const real *drows, real *dx)
{
    return give_back(l, drows, add_out, dx);
}

// From the gradients of a token's weights to those of its logits: of a softmax over its experts.
typedef struct logits_pass {
    const real *dweights; // of rows as they go out
    real *dlogits;        // [rows, experts], zero
} logits_pass;

static void place_weight(const layer *l, const route *r, void *data)
{
    const logits_pass *p = data;
    p->dlogits[r->token * l->kind->shard.experts + r->expert] = p->dweights[r->at];
}

// A row's weight has the product of its output and the output's gradient, which it multiplies.
static void weigh_rows(const layer *l, real *drows, real *dweights)
{
    int64_t h = hidden_of(l);
    const real *output = l->t[SP_TENSOR_EXPERT_OUTPUT];
    const real *routes = l->t[SP_TENSOR_ROUTES];
    for (int64_t r = 0; r < l->routed.count; r++) {
        dweights[r] = SP_KERNEL(add_weighted_backward)(h, routes[r * ROUTE_NUMBERS + ROUTE_WEIGHT],
                                                       output + r * h, drows + r * h);
    }
}

static bool combine_backward(const layer *l, const real *dy, real *drows, real *dlogits)
{
    const bool stays = ranks_of(l) == 1;
    int64_t all = l->routed.count + (stays ? 0 : l->rows * l->kind->shard.active);
    rows_pass rows = {dy, outgoing(l, hidden_of(l), drows)};
    real *dweights =
        sp_i_exec_take(l->stage->arena, SP_MEM_WORKSPACE, all, l->stage->job->width.scratch);
    if (rows.to == NULL || dweights == NULL) {
        return false;
    }
    for_routes(l, copy_out, &rows);
    if (!bring(l, hidden_of(l), rows.to, drows)) {
        return false;
    }
    weigh_rows(l, drows, dweights);
    real *own = stays ? dweights : dweights + l->routed.count;
    if (!stays && !exchange(l, 1, l->arrived, dweights, l->sent, own)) {
        return false;
    }
    logits_pass p = {own, dlogits};
    memset(dlogits, 0, (size_t)(l->rows * l->kind->shard.experts) * sizeof *dlogits);
    for_routes(l, place_weight, &p);
    SP_KERNEL(choose_experts_backward)
    (l->rows, l->kind->shard.experts, l->t[SP_TENSOR_ROUTER], dlogits);
    sp_i_exec_give(l->stage->arena, dweights);
    return true;
}

// ---- Products of experts ----

static int64_t rows_of(const sp_i_exec_routed *routed, int64_t expert)
{
    int64_t count = 0;
    for (int64_t r = 0; r < routed->count; r++) {
        count += routed->expert[r] == expert;
    }
    return count;
}

// Room for the rows of one expert, of so many numbers each.
static real *take_rows(const layer *l, const sp_i_exec_routed *routed, int64_t width)
{
    int64_t most = 0;
    for (int64_t e = 0; e < l->kind->shard.held; e++) {
        int64_t count = rows_of(routed, e);
        most = count > most ? count : most;
    }
    return sp_i_exec_take(l->stage->arena, SP_MEM_WORKSPACE, most * width,
                          l->stage->job->width.scratch);
}

static void collect(const sp_i_exec_routed *routed, int64_t expert, int64_t width, const real *from,
                    real *to)
{
    for (int64_t r = 0; r < routed->count; r++) {
        if (routed->expert[r] == expert) {
            memcpy(to, from + r * width, (size_t)width * sizeof *to);
            to += width;
        }
    }
}

static void put_back(const sp_i_exec_routed *routed, int64_t expert, int64_t width,
                     const real *from, real *to)
{
    for (int64_t r = 0; r < routed->count; r++) {
        if (routed->expert[r] == expert) {
            memcpy(to + r * width, from, (size_t)width * sizeof *to);
            from += width;
        }
    }
}

// A parameter of an expert, or its gradient; NULL where there is none.
static real *of_expert(const layer *l, void *const *slots, int kind, int64_t expert)
{
    const sp_i_exec_kind *of = l->kind;
    real *all = slots[sp_i_exec_slot(l->index, SP_PARAMETER_FC1_WEIGHT)];
    int64_t at = of->expert_at[kind - SP_PARAMETER_FC1_WEIGHT];
    return at < 0 ? NULL : all + expert * of->expert_elements + at;
}

static bool multiply(const layer *l, const expert_product *p, const real *x, real *y)
{
    real *rows = take_rows(l, &l->routed, p->inputs + p->outputs);
    if (rows == NULL) {
        return false;
    }
    for (int64_t e = 0; e < l->kind->shard.held; e++) {
        int64_t count = rows_of(&l->routed, e);
        real *out = rows + count * p->inputs;
        if (count > 0) {
            collect(&l->routed, e, p->inputs, x, rows);
            SP_KERNEL(linear)
            (count, p->inputs, p->outputs, rows, p->inputs,
             of_expert(l, l->stage->value, p->weight, e), p->inputs,
             of_expert(l, l->stage->value, p->weight + 1, e), out, p->outputs);
            put_back(&l->routed, e, p->outputs, out, y);
        }
    }
    sp_i_exec_give(l->stage->arena, rows);
    return true;
}

static bool multiply_backward(const layer *l, const expert_product *p, const real *dy, real *dx)
{
    real *rows = take_rows(l, &l->routed, p->inputs + p->outputs);
    if (rows == NULL) {
        return false;
    }
    for (int64_t e = 0; e < l->kind->shard.held; e++) {
        int64_t count = rows_of(&l->routed, e);
        real *in = rows + count * p->outputs;
        if (count > 0) {
            collect(&l->routed, e, p->outputs, dy, rows);
            SP_KERNEL(linear_backward_input)
            (count, p->inputs, p->outputs, rows, p->outputs,
             of_expert(l, l->stage->value, p->weight, e), p->inputs, false, in, p->inputs);
            put_back(&l->routed, e, p->inputs, in, dx);
        }
    }
    sp_i_exec_give(l->stage->arena, rows);
    return true;
}

static bool weight_gradient(const layer *l, const expert_product *p, const sp_i_exec_routed *routed,
                            const real *x, const real *dy)
{
    real *rows = take_rows(l, routed, p->inputs + p->outputs);
    if (rows == NULL) {
        return false;
    }
    for (int64_t e = 0; e < l->kind->shard.held; e++) {
        int64_t count = rows_of(routed, e);
        real *out = rows + count * p->inputs;
        if (count > 0) {
            collect(routed, e, p->inputs, x, rows);
            collect(routed, e, p->outputs, dy, out);
            SP_KERNEL(linear_backward_weight)
            (count, p->inputs, p->outputs, out, p->outputs, rows, p->inputs,
             of_expert(l, l->stage->gradient, p->weight, e), p->inputs,
             of_expert(l, l->stage->gradient, p->weight + 1, e));
        }
    }
    sp_i_exec_give(l->stage->arena, rows);
    return true;
}

// ---- The gate of shared experts: their output times the sigmoid of a number for each token ----

static bool gate(layer *l)
{
    int64_t h = hidden_of(l);
    if (!SP_EXEC(make)(l, SP_TENSOR_SHARED_SCORE)) {
        return false;
    }
    real *score = l->t[SP_TENSOR_SHARED_SCORE];
    SP_KERNEL(linear)
    (l->rows, h, 1, l->t[SP_TENSOR_NORM2], h, SP_EXEC(value)(l, SP_PARAMETER_SHARED_GATE_WEIGHT), h,
     NULL, score, 1);
    for (int64_t t = 0; t < l->rows; t++) {
        score[t] = (real)(1.0 / (1.0 + exp(-(double)score[t])));
    }
    return true;
}

static void add_gated(const layer *l, const real *shared, real *y)
{
    int64_t h = hidden_of(l);
    const real *score = l->t[SP_TENSOR_SHARED_SCORE];
    for (int64_t t = 0; t < l->rows; t++) {
        SP_KERNEL(add_weighted)(h, score[t], shared + t * h, y + t * h);
    }
}

static void add_gated_backward(const layer *l, const real *dy, real *dshared, real *dscore)
{
    int64_t h = hidden_of(l);
    const real *score = l->t[SP_TENSOR_SHARED_SCORE];
    const real *output = l->t[SP_TENSOR_SHARED_OUTPUT];
    memcpy(dshared, dy, (size_t)(l->rows * h) * sizeof *dshared);
    for (int64_t t = 0; t < l->rows; t++) {
        dscore[t] = SP_KERNEL(add_weighted_backward)(h, score[t], output + t * h, dshared + t * h) *
                    score[t] * (1 - score[t]);
    }
}

static void gate_backward(const layer *l, const real *dscore, real *dx)
{
    small_backward(l, SP_PARAMETER_SHARED_GATE_WEIGHT, NULL, 1, dscore, dx);
}

static const expert_operations operations = {.choose = choose,
                                             .choose_backward = choose_backward,
                                             .dispatch = dispatch,
                                             .dispatch_backward = dispatch_backward,
                                             .recall = recall,
                                             .combine = combine,
                                             .combine_backward = combine_backward,
                                             .multiply = multiply,
                                             .multiply_backward = multiply_backward,
                                             .weight_gradient = weight_gradient,
                                             .gate = gate,
                                             .gate_backward = gate_backward,
                                             .add_gated = add_gated,
                                             .add_gated_backward = add_gated_backward};
const expert_operations *const SP_EXEC(experts) = &operations;
