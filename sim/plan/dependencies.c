#include "sim/plan/dependencies.h"

#include "sim/plan/walk.h"

// ---- numbering ----

static void allocate(sp_plan_items *p, const uint8_t *runs)
{
    const sp_layout *layout = &p->plan->layout;
    const size_t *slots = p->index.slots;
    size_t pp = (size_t)layout->pp;
    size_t ranks = (size_t)layout->dp * pp;
    for (int kind = 0; kind < SP_ACTION_KINDS; kind++) {
        bool backward = sp_action_is_backward((sp_action){.kind = (uint8_t)kind});
        p->of[kind] = sp_arena_take(&p->work, slots[backward] * (size_t)p->index.vstages,
                                    sizeof *p->of[kind]);
    }
    for (int i = 0; p->shares.items != NULL && i < 2 * SP_SHARE_PARTS; i++) {
        size_t count = slots[0] + slots[1];
        size_t **share = &p->share[i / 2][i % 2];
        size_t **stage = &p->stage[i / 2][i % 2];
        *share = sp_arena_take(&p->work, count * pp, sizeof **share);
        *stage = sp_arena_take(&p->work, count, sizeof **stage);
    }
    p->first = sp_arena_take(&p->work, ranks + 1, sizeof *p->first);
    for (size_t r = 0; r < ranks; r++) {
        size_t shares = p->shares.items != NULL ? p->shares.first[r + 1] - p->shares.first[r] : 0;
        bool is_there = runs == NULL || runs[r / pp] != 0;
        p->first[r + 1] = p->first[r] + (is_there ? p->plan->stages[r].count + shares : 0);
    }
    p->count = p->first[ranks];
    p->items = sp_malloc(p->count * sizeof *p->items);
}

// A rank's shares that stand before its action `before`, beyond the `done` first.
static size_t shares_between(const sp_plan_items *p, int dp, int pp, size_t done, size_t before)
{
    size_t count;
    size_t between = 0;
    const sp_share *shares = sp_shares_of(&p->shares, &p->plan->layout, dp, pp, &count);
    while (done + between < count && shares[done + between].before <= before) {
        between++;
    }
    return between;
}

// Numbers those shares from v on.
static size_t number_shares(sp_plan_items *p, int dp, int pp, size_t before, size_t v, size_t *done)
{
    size_t count;
    const sp_share *shares = sp_shares_of(&p->shares, &p->plan->layout, dp, pp, &count);
    for (size_t left = shares_between(p, dp, pp, *done, before); left > 0; left--, v++) {
        const sp_share *share = &shares[(*done)++];
        size_t slot = sp_depends_slot(&p->index, share->action, dp);
        p->share[share->part][share->action.kind == SP_ACTION_R]
                [slot * (size_t)p->plan->layout.pp + (size_t)pp] = v + 1;
        p->items[v] = (sp_plan_item){
            .action = share->action, .share = (uint8_t)(1 + share->part), .dp = dp, .pp = pp};
    }
    return v;
}

// Numbers an action; `shares` of its rank stand before it.
static void number_action(sp_plan_items *p, int dp, int pp, size_t a, size_t v, size_t shares)
{
    sp_action action = sp_plan_stage(p->plan, dp, pp)->actions[a];
    int vstage = sp_depends_vstage(&p->index, pp, action);
    int kind = action.kind == SP_ACTION_I ? SP_ACTION_B : action.kind;
    // The output of the first of a pair is there when the second is over.
    size_t pair = action.with_next ? 1 + shares_between(p, dp, pp, shares, a + 1) : 0;
    sp_share_part part;
    p->of[kind][sp_depends_entry(&p->index, action, dp, vstage)] = v + 1 + pair;
    p->copies = p->copies || action.kind == SP_ACTION_O;
    p->items[v] = (sp_plan_item){.action = action, .dp = dp, .pp = pp};
    if (p->shares.items != NULL && sp_share_part_of(&p->plan->layout, vstage, action, &part)) {
        p->stage[part][kind == SP_ACTION_R][sp_depends_slot(&p->index, action, dp)] = v + 1;
    }
}

sp_status sp_plan_items_init(sp_plan_items *p, const sp_plan *plan, const uint8_t *runs,
                             bool shared, sp_error *err)
{
    const sp_layout *layout = &plan->layout;
    sp_status status = SP_OK;
    *p = (sp_plan_items){.plan = plan};
    sp_depends_init(&p->index, plan, runs);
    if (shared) {
        status = sp_shares_make(plan, &p->shares, err);
    }
    if (status != SP_OK) {
        return status;
    }
    allocate(p, runs);
    for (int i = 0; i < layout->dp * layout->pp; i++) {
        int dp = i / layout->pp;
        int pp = i % layout->pp;
        size_t count = p->first[i + 1] > p->first[i] ? plan->stages[i].count : 0;
        size_t shares = 0;
        size_t v = p->first[i];
        for (size_t a = 0; a < count; a++, v++) {
            v = number_shares(p, dp, pp, a, v, &shares);
            number_action(p, dp, pp, a, v, shares);
        }
        if (v < p->first[i + 1]) {
            number_shares(p, dp, pp, count, v, &shares);
        }
    }
    return SP_OK;
}

void sp_plan_items_fini(sp_plan_items *p)
{
    sp_free(p->items);
    sp_shares_fini(&p->shares);
    sp_depends_fini(&p->index);
    sp_arena_free(&p->work);
    *p = (sp_plan_items){0};
}

// The item of an action of `kind` for a pack, + 1.
static size_t find(const sp_plan_items *p, sp_action_kind kind, int32_t pack, int dp, int vstage)
{
    return sp_plan_items_find(p, (sp_action){.kind = (uint8_t)kind, .pack = pack}, dp, vstage);
}

bool sp_plan_item_recomputed(const sp_plan_items *p, size_t v)
{
    const sp_plan_item *plan_item = &p->items[v];
    bool all = plan_item->action.kind == SP_ACTION_B || plan_item->action.kind == SP_ACTION_I;
    for (size_t i = 0; all && i < sp_depends_reads(&p->index, plan_item->action); i++) {
        size_t again = find(p, SP_ACTION_R, sp_depends_read(&p->index, plan_item->action, i),
                            plan_item->dp, sp_plan_item_vstage(p, plan_item));
        all = again != 0 && again <= v;
    }
    return all;
}

// ---- places in a rank's list ----

// The action behind item v, and the one before it; v itself where there is none.
static size_t next_action(const sp_plan_items *p, size_t v)
{
    size_t u = v + 1;
    while (u < p->count && p->items[u].share > 0) {
        u++;
    }
    return u < p->count ? u : v;
}

static size_t previous_action(const sp_plan_items *p, size_t v)
{
    size_t u = v;
    while (u > 0 && p->items[u - 1].share > 0) {
        u--;
    }
    return u > 0 ? u - 1 : v;
}

static bool is_first_of_pair(const sp_plan_items *p, size_t v, size_t second)
{
    return v < second && p->items[v].share == 0 && p->items[v].action.with_next;
}

// The item last before v in its rank's list that computes, or, with `alike`, that is a copy in v's
// direction; plus 1, 0 for none.
static size_t item_before(const sp_plan_items *p, size_t v, bool alike)
{
    const sp_plan_item *plan_item = &p->items[v];
    for (size_t u = v; u > 0; u--) {
        const sp_plan_item *before = &p->items[u - 1];
        if (before->dp != plan_item->dp || before->pp != plan_item->pp) {
            return 0;
        }
        if (alike ? before->action.kind == plan_item->action.kind
                  : !sp_action_is_copy(before->action)) {
            return u;
        }
    }
    return 0;
}

// The copy out that a rank is done with before it goes on after item v: of a forward, the last one
// that stands before it; plus 1, 0 for none.
static size_t leaving_before(const sp_plan_items *p, size_t v)
{
    const sp_plan_item *plan_item = &p->items[v];
    bool forward = plan_item->action.kind == SP_ACTION_F && plan_item->share == 0;
    for (size_t u = p->copies && forward ? v : 0; u > 0; u--) {
        const sp_plan_item *before = &p->items[u - 1];
        if (before->dp != plan_item->dp || before->pp != plan_item->pp) {
            return 0;
        }
        if (before->action.kind == SP_ACTION_O) {
            return u;
        }
    }
    return 0;
}

// ---- what an item waits for ----

typedef struct teller {
    const sp_plan_items *p;
    size_t item;
    void (*tell)(void *context, size_t item, const sp_dependency *dependency);
    void *context;
} teller;

// Waits for `from` - 1; 0: for nothing.
static void wait_for(const teller *t, size_t from, sp_wait reason, sp_wait_lag lag)
{
    if (from > 0) {
        const sp_dependency dependency = {
            .item = from - 1, .gave = from - 1, .reason = reason, .lag = lag};
        t->tell(t->context, t->item, &dependency);
    }
}

// An action waits for what it reads from the neighbouring virtual stage.
static void wait_transfer(const teller *t, size_t reader)
{
    const sp_plan_item *plan_item = &t->p->items[reader];
    int source =
        sp_depends_source(&t->p->index, plan_item->action, sp_plan_item_vstage(t->p, plan_item));
    size_t from =
        source >= 0 ? sp_plan_items_find(t->p, plan_item->action, plan_item->dp, source) : 0;
    if (from > 0) {
        size_t first = previous_action(t->p, from - 1);
        const sp_plan_item *ends = &t->p->items[from - 1];
        bool gave =
            ends->action.pack == plan_item->action.pack &&
            sp_action_is_backward(ends->action) == sp_action_is_backward(plan_item->action) &&
            sp_plan_item_vstage(t->p, ends) == source;
        const sp_dependency dependency = {
            .item = from - 1,
            .gave = gave || !is_first_of_pair(t->p, first, from - 1) ? from - 1 : first,
            .reason = plan_item->action.kind == SP_ACTION_F ? SP_WAIT_INPUT : SP_WAIT_GRADIENT,
            .lag = SP_LAG_TRANSFER};
        t->tell(t->context, t->item, &dependency);
    }
}

// A backward or a recomputation waits for the copies back of what it reads on rank `dp`; a
// recomputation only for one that stands before it.
static void wait_copies_back(const teller *t, int dp)
{
    const sp_plan_item *plan_item = &t->p->items[t->item];
    for (size_t i = 0; i < sp_depends_reads(&t->p->index, plan_item->action); i++) {
        size_t from = find(t->p, SP_ACTION_L, sp_depends_read(&t->p->index, plan_item->action, i),
                           dp, sp_plan_item_vstage(t->p, plan_item));
        bool waits = sp_action_is_backward(plan_item->action) || from <= t->item;
        wait_for(t, waits ? from : 0, dp == plan_item->dp ? SP_WAIT_COPY_BACK : SP_WAIT_MEMBER,
                 SP_LAG_NONE);
    }
}

// An action waits for what it reads on its own rank.
static void wait_local(const teller *t)
{
    const sp_plan_item *plan_item = &t->p->items[t->item];
    sp_action action = plan_item->action;
    int vstage = sp_plan_item_vstage(t->p, plan_item);
    if (action.kind == SP_ACTION_W) {
        wait_for(t, find(t->p, SP_ACTION_B, action.pack, plan_item->dp, vstage),
                 SP_WAIT_ACTIVATIONS, SP_LAG_NONE);
        return;
    }
    if (action.kind == SP_ACTION_L) {
        wait_for(t, find(t->p, SP_ACTION_O, action.pack, plan_item->dp, vstage), SP_WAIT_COPY_OUT,
                 SP_LAG_NONE);
        return;
    }
    // A single forward pack stands before its copy, in the order of dependencies.
    bool regrouped = t->p->index.forward_pack != NULL && sp_action_is_backward(action);
    if (regrouped) {
        wait_copies_back(t, plan_item->dp);
    }
    for (size_t i = 0; i < sp_depends_reads(&t->p->index, action); i++) {
        wait_for(t,
                 find(t->p, SP_ACTION_F, sp_depends_read(&t->p->index, action, i), plan_item->dp,
                      vstage),
                 SP_WAIT_ACTIVATIONS, SP_LAG_NONE);
    }
    if (action.kind != SP_ACTION_O && !regrouped) {
        wait_copies_back(t, plan_item->dp);
    }
}

// Some rank goes on when `before` - 1 is over, sent and, if it is a forward, the copy out that
// stands before it is done.
static void wait_passed(const teller *t, size_t before, sp_wait order, sp_wait copy)
{
    if (before > 0) {
        wait_for(t, before, order, SP_LAG_SENDING);
        wait_for(t, leaving_before(t->p, before - 1), copy, SP_LAG_NONE);
    }
}

// Computation in the order of the list, copies in it among those of their direction. A copy back is
// issued when the computation before it is over.
static void wait_order(const teller *t)
{
    sp_action action = t->p->items[t->item].action;
    if (!sp_action_is_copy(action)) {
        wait_passed(t, item_before(t->p, t->item, false), SP_WAIT_ORDER, SP_WAIT_COPY_OUT);
        return;
    }
    wait_for(t, item_before(t->p, t->item, true), SP_WAIT_ORDER, SP_LAG_NONE);
    if (action.kind == SP_ACTION_L) {
        wait_for(t, item_before(t->p, t->item, false), SP_WAIT_ORDER, SP_LAG_NONE);
    }
}

// A merged pack starts on all its ranks at once: each waits for what stands before it on the
// others. Its weight gradient is each rank's own affair.
static void wait_members(const teller *t)
{
    const sp_plan_item *plan_item = &t->p->items[t->item];
    const sp_pack *pack = sp_depends_pack(&t->p->index, plan_item->action);
    int vstage = sp_plan_item_vstage(t->p, plan_item);
    for (int d = pack->dp_first; d < pack->dp_first + pack->dp_count; d++) {
        if (d == plan_item->dp || sp_depends_alone(pack, plan_item->action)) {
            continue;
        }
        size_t peer = sp_plan_items_find(t->p, plan_item->action, d, vstage);
        wait_passed(t, peer > 0 ? item_before(t->p, peer - 1, false) : 0, SP_WAIT_MEMBER,
                    SP_WAIT_MEMBER);
        if (t->p->joint_inputs && peer > 0 && sp_depends_passes(plan_item->action)) {
            wait_transfer(t, peer - 1);
        }
        if (sp_action_is_backward(plan_item->action)) {
            wait_copies_back(t, d);
        }
    }
}

// From a rank's share, or from the stage's action, unless that is the item itself.
static void wait_share(const teller *t, size_t from)
{
    wait_for(t, from == t->item + 1 ? 0 : from, SP_WAIT_SHARE, SP_LAG_NONE);
}

// From the shares of all ranks of embedding or LM head, of the pack of a forward, a repeat or both.
static void wait_part(const teller *t, sp_share_part part, bool first, bool again, sp_action action)
{
    size_t pp = (size_t)t->p->plan->layout.pp;
    size_t entry = sp_depends_slot(&t->p->index, action, t->p->items[t->item].dp) * pp;
    for (size_t r = 0; r < pp; r++) {
        wait_share(t, first ? t->p->share[part][0][entry + r] : 0);
        wait_share(t, again ? t->p->share[part][1][entry + r] : 0);
    }
}

// A share waits for what it reads, beside its rank's order. A backward of the head reads the shares
// of the head of all ranks.
static void wait_share_inputs(const teller *t)
{
    const sp_plan_item *plan_item = &t->p->items[t->item];
    sp_share_part part = (sp_share_part)(plan_item->share - 1);
    if (!sp_share_comes_first(part)) {
        bool again = plan_item->action.kind == SP_ACTION_R;
        wait_share(t, t->p->stage[part][again]
                                 [sp_depends_slot(&t->p->index, plan_item->action, plan_item->dp)]);
    }
    size_t heads =
        part == SP_SHARE_HEAD_BACKWARD ? sp_depends_reads(&t->p->index, plan_item->action) : 0;
    for (size_t i = 0; i < heads; i++) {
        const sp_action forward = {.kind = SP_ACTION_F,
                                   .pack = sp_depends_read(&t->p->index, plan_item->action, i)};
        wait_part(t, SP_SHARE_HEAD, true, true, forward);
    }
}

// The shares that the stage's action needs.
static void wait_shares(const teller *t)
{
    const sp_plan_item *plan_item = &t->p->items[t->item];
    sp_share_part part;
    if (t->p->shares.items != NULL &&
        sp_share_part_of(&t->p->plan->layout, sp_plan_item_vstage(t->p, plan_item),
                         plan_item->action, &part) &&
        sp_share_comes_first(part)) {
        bool again = plan_item->action.kind == SP_ACTION_R;
        wait_part(t, part, !again, again, plan_item->action);
    }
}

void sp_dependencies(const sp_plan_items *p, size_t item,
                     void (*tell)(void *context, size_t item, const sp_dependency *dependency),
                     void *context)
{
    const teller t = {.p = p, .item = item, .tell = tell, .context = context};
    const sp_plan_item *plan_item = &p->items[item];
    wait_order(&t);
    if (plan_item->share > 0) {
        wait_share_inputs(&t);
        return;
    }
    wait_shares(&t);
    wait_transfer(&t, item);
    // The first of a pair waits for the input of the second too.
    if (plan_item->action.with_next) {
        wait_transfer(&t, next_action(p, item));
    }
    if (plan_item->action.kind != SP_ACTION_F) {
        wait_local(&t);
    }
    if (!sp_action_is_copy(plan_item->action)) {
        wait_members(&t);
    }
}

// ---- lags ----

// The time of what an item gives to another virtual stage; 0 where it gives nothing.
static int64_t given_ns(const sp_plan_items *p, size_t v, sp_transfer_time transfer_ns,
                        const void *context)
{
    const sp_plan_item *plan_item = &p->items[v];
    int target = plan_item->share > 0 ? -1
                                      : sp_depends_target(&p->index, plan_item->action,
                                                          sp_plan_item_vstage(p, plan_item));
    return target >= 0 ? transfer_ns(context, v, p->index.rank_of[target]) : 0;
}

int64_t sp_dependency_lag_ns(const sp_plan_items *p, size_t item, const sp_dependency *dependency,
                             sp_transfer_time transfer_ns, const void *context)
{
    size_t v = dependency->item;
    if (dependency->lag == SP_LAG_TRANSFER) {
        return transfer_ns(context, dependency->gave, p->items[item].pp);
    }
    // The first of a pair goes on to the second at once; then both are sent together.
    if (dependency->lag == SP_LAG_NONE || p->items[v].action.with_next || p->items[v].share > 0) {
        return 0;
    }
    size_t first = previous_action(p, v);
    int64_t own_ns = given_ns(p, v, transfer_ns, context);
    int64_t first_ns = is_first_of_pair(p, first, v) ? given_ns(p, first, transfer_ns, context) : 0;
    return first_ns > own_ns ? first_ns : own_ns;
}
