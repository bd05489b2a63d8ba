// The bound of a step in limited memory against closed forms, and against every packing and every
// order of tiny cases.
#include "solver/bounds/bounds.h"
#include "tests/support/test_main.h"

enum { UNITS = 3, STAGES = 3, ACTIONS = 3 * UNITS, ORDERS = 90 };

// One chunk a rank; samples of n tokens are n slices of one.
typedef struct tiny {
    sp_bound_stage stage[STAGES];
    double room_bytes[STAGES], tail_s[STAGES];
    double p2p_s;
    int stages, count, units;
    int64_t samples[UNITS];
    int sample_of[UNITS], place_of[UNITS];
    bool whole, repeats; // with repeats no more than two units
} tiny;

static double bound_of(const tiny *t, const double *room_bytes)
{
    double endless_s = -1.0;
    const sp_bound_memory memory = {.stage = t->stage,
                                    .stages = t->stages,
                                    .ranks = t->stages,
                                    .room_bytes = room_bytes,
                                    .tail_s = t->tail_s,
                                    .p2p_s = t->p2p_s,
                                    .whole = t->whole,
                                    .repeats = t->repeats,
                                    .endless_s = &endless_s};
    const sp_bound_batch batch = {.tokens = t->samples, .count = (size_t)t->count, .ranks = 1};
    const double bound_s = sp_bound_memory_s(&memory, &batch);
    assert_true(room_bytes != NULL ? endless_s == bound_of(t, NULL) : endless_s == bound_s);
    return bound_s;
}

// ---- every packing, every order ----

// Packs of one pass: the units of each as bits.
typedef struct packs {
    unsigned of[UNITS];
    int count;
} packs;

// Actions of one stage: forward packs, then backward packs, then repeats of forward packs.
typedef struct orders {
    int action[ORDERS][ACTIONS];
    int count, actions;
    unsigned repeats; // forward packs that run again
} orders;

typedef struct search {
    const tiny *t;
    packs forward, backward;
    double time_s[STAGES][ACTIONS];
    orders of[STAGES];
    int order[ACTIONS]; // that is being made
    double least_s;
} search;

static int tokens_of(unsigned units)
{
    int tokens = 0;
    for (; units != 0; units &= units - 1) {
        tokens++;
    }
    return tokens;
}

// Has the unit a later (or earlier) one of its sample among `units`?
static bool waits(const tiny *t, int unit, bool later, unsigned units)
{
    for (int u = 0; u < t->units; u++) {
        bool beyond = later ? u > unit : u < unit;
        if (beyond && t->sample_of[u] == t->sample_of[unit] && (units >> u & 1u) != 0) {
            return true;
        }
    }
    return false;
}

// What ran on a stage so far, as units.
typedef struct done {
    unsigned forward, backward, again;
} done;

static bool may_run(const search *s, int stage, int action, done ran)
{
    const tiny *t = s->t;
    const sp_bound_stage *of = &t->stage[stage];
    int forwards = s->forward.count;
    bool repeat = action >= forwards + s->backward.count;
    bool backward = !repeat && action >= forwards;
    unsigned units = repeat     ? s->forward.of[action - forwards - s->backward.count]
                     : backward ? s->backward.of[action - forwards]
                                : s->forward.of[action];
    unsigned repeated = 0; // and have not yet been
    for (int k = 0; k < forwards; k++) {
        repeated |= (s->of[stage].repeats >> k & 1u) != 0 ? s->forward.of[k] : 0u;
    }
    repeated &= ~ran.again & ~(repeat ? units : 0u);
    unsigned there = (ran.forward | (backward ? 0u : units)) & ~ran.backward;
    double bytes = tokens_of(there & ~repeated) * of->held_bytes +
                   tokens_of(there & repeated) * of->repeated_bytes;
    double own = tokens_of(units);
    bool first = !backward && (units & repeated) != 0;
    bytes += own * (backward ? of->i_bytes : first ? 0.0 : of->f_bytes);
    unsigned needs = repeat || backward ? units & ~ran.forward : 0u;
    if (needs != 0 || (backward && (units & repeated) != 0) || bytes > t->room_bytes[stage]) {
        return false;
    }
    unsigned all = (1u << t->units) - 1u;
    unsigned left = repeat ? 0u : all & ~units & ~(backward ? ran.backward : ran.forward);
    for (int u = 0; u < t->units; u++) {
        if ((units >> u & 1u) != 0 && waits(t, u, backward, left)) {
            return false;
        }
    }
    return true;
}

static void make_orders(search *s, int stage, int made, unsigned ran, done so_far)
{
    orders *to = &s->of[stage];
    int forwards = s->forward.count;
    int passes = forwards + s->backward.count;
    if (made == to->actions) {
        assert_true(to->count < ORDERS);
        memcpy(to->action[to->count++], s->order, sizeof s->order);
        return;
    }
    for (int a = 0; a < passes + forwards; a++) {
        bool there = a < passes || (to->repeats >> (a - passes) & 1u) != 0;
        if (there && (ran >> a & 1u) == 0 && may_run(s, stage, a, so_far)) {
            done next = so_far;
            s->order[made] = a;
            if (a < forwards) {
                next.forward |= s->forward.of[a];
            } else if (a < passes) {
                next.backward |= s->backward.of[a - forwards];
            } else {
                next.again |= s->forward.of[a - passes];
            }
            make_orders(s, stage, made + 1, ran | 1u << a, next);
        }
    }
}

static double run_s(const search *s, const int at[STAGES])
{
    double end_s[STAGES][ACTIONS];
    double free_s[STAGES] = {0.0};
    int next[STAGES] = {0};
    unsigned ended[STAGES] = {0};
    int left = 0;
    for (int stage = 0; stage < s->t->stages; stage++) {
        left += s->of[stage].actions;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int stage = 0; stage < s->t->stages; stage++) {
            while (next[stage] < s->of[stage].actions) {
                int a = s->of[stage].action[at[stage]][next[stage]];
                int from = a < s->forward.count ? stage - 1 : stage + 1;
                double ready_s = free_s[stage];
                bool passes = a < s->forward.count + s->backward.count;
                if (passes && from >= 0 && from < s->t->stages) {
                    if ((ended[from] >> a & 1u) == 0) {
                        break;
                    }
                    ready_s = fmax(ready_s, end_s[from][a] + s->t->p2p_s);
                }
                free_s[stage] = end_s[stage][a] = ready_s + s->time_s[stage][a];
                ended[stage] |= 1u << a;
                next[stage]++;
                left--;
                moved = true;
            }
        }
    }
    double step_s = left == 0 ? 0.0 : HUGE_VAL;
    for (int stage = 0; stage < s->t->stages; stage++) {
        step_s = fmax(step_s, free_s[stage] + s->t->tail_s[stage]);
    }
    return step_s;
}

// Every choice of repeats on every stage, then every order.
static void run_all(search *s, int stage, int at[STAGES])
{
    if (stage == s->t->stages) {
        s->least_s = fmin(s->least_s, run_s(s, at));
        return;
    }
    orders *of = &s->of[stage];
    unsigned choices = s->t->repeats ? 1u << s->forward.count : 1u;
    for (of->repeats = 0; of->repeats < choices; of->repeats++) {
        of->count = 0;
        of->actions = s->forward.count + s->backward.count + tokens_of(of->repeats);
        make_orders(s, stage, 0, 0, (done){0});
        for (at[stage] = 0; at[stage] < of->count; at[stage]++) {
            run_all(s, stage + 1, at);
        }
    }
}

static void set_time(search *s, int stage, int action, bool backward, unsigned units)
{
    const sp_least_work *c = &s->t->stage[stage].least;
    s->time_s[stage][action] = backward ? c->b_pack_s : c->f_pack_s;
    for (int u = 0; u < s->t->units; u++) {
        double square = 2.0 * s->t->place_of[u] + 1.0;
        if ((units >> u & 1u) != 0) {
            s->time_s[stage][action] += backward ? c->b_token_s + square * c->b_square_s
                                                 : c->f_token_s + square * c->f_square_s;
        }
    }
}

static bool is_whole(const tiny *t, const packs *p)
{
    for (int k = 0; k < p->count; k++) {
        for (int u = 0; u < t->units; u++) {
            if ((p->of[k] >> u & 1u) != 0 &&
                (waits(t, u, true, ~p->of[k]) || waits(t, u, false, ~p->of[k]))) {
                return false;
            }
        }
    }
    return true;
}

static void search_packs(search *s)
{
    const tiny *t = s->t;
    if (t->whole && !(is_whole(t, &s->forward) && is_whole(t, &s->backward))) {
        return;
    }
    int passes = s->forward.count + s->backward.count;
    for (int stage = 0; stage < t->stages; stage++) {
        for (int k = 0; k < s->forward.count; k++) {
            set_time(s, stage, k, false, s->forward.of[k]);
            set_time(s, stage, passes + k, false, s->forward.of[k]);
        }
        for (int k = 0; k < s->backward.count; k++) {
            set_time(s, stage, s->forward.count + k, true, s->backward.of[k]);
        }
    }
    int at[STAGES];
    run_all(s, 0, at);
}

// Each partition of the units from `unit` on.
static void each_packing(search *s, packs *pass, int unit)
{
    if (unit < s->t->units) {
        for (int k = 0; k <= pass->count; k++) {
            packs before = *pass;
            pass->count += k == pass->count;
            pass->of[k] |= 1u << unit;
            each_packing(s, pass, unit + 1);
            *pass = before;
        }
    } else if (pass == &s->forward) {
        each_packing(s, &s->backward, 0);
    } else {
        search_packs(s);
    }
}

// HUGE_VAL: nothing fits.
static double least_s(const tiny *t)
{
    search s = {.t = t, .least_s = HUGE_VAL};
    each_packing(&s, &s.forward, 0);
    return s.least_s;
}

static double one_of(sp_prng *prng, double a, double b, double c)
{
    uint64_t at = sp_prng_below(prng, 3);
    return at == 0 ? a : at == 1 ? b : c;
}

static tiny draw(sp_prng *prng, bool repeats)
{
    tiny t = {.stages = 1 + prng_below(prng, repeats ? 2 : STAGES),
              .whole = prng_below(prng, 2) == 0,
              .repeats = repeats};
    int units = t.stages == STAGES || repeats ? 2 : UNITS;
    double square_s = one_of(prng, 0.0, 0.0, 2.0);
    t.p2p_s = one_of(prng, 0.0, 0.0, 2.0);
    for (int s = 0; s < t.stages; s++) {
        sp_bound_stage *stage = &t.stage[s];
        sp_least_work *c = &stage->least;
        stage->rank = s;
        stage->held_bytes = one_of(prng, 1.0, 1.0, 2.0);
        stage->repeated_bytes = one_of(prng, 0.0, 0.25, 0.5) * stage->held_bytes;
        stage->f_bytes = one_of(prng, 0.0, 0.0, 0.5);
        stage->i_bytes = one_of(prng, 0.0, 0.5, 1.0);
        c->f_token_s = one_of(prng, 1.0, 2.0, 4.0);
        c->b_token_s = c->f_token_s * one_of(prng, 1.0, 2.0, 2.0);
        c->f_square_s = square_s;
        c->b_square_s = 2.0 * square_s;
        c->f_pack_s = one_of(prng, 0.0, 1.0, 4.0);
        c->b_pack_s = one_of(prng, 0.0, 2.0, 5.0);
        c->i_token_s = c->b_token_s;
        c->i_square_s = c->b_square_s;
        c->i_pack_s = c->b_pack_s;
        t.tail_s[s] = one_of(prng, 0.0, 0.0, 3.0);
    }
    while (t.units < units) {
        t.samples[t.count] = 1 + prng_below(prng, units - t.units);
        for (int place = 0; place < t.samples[t.count]; place++) {
            t.sample_of[t.units] = t.count;
            t.place_of[t.units++] = place;
        }
        t.count++;
    }
    return t;
}

static void check_orders(bool repeats, int rounds)
{
    sp_prng prng = prng_seeded(7);
    int cases = 0;
    int limited = 0;
    int reached = 0;
    double share = 0.0;
    for (int round = 0; round < test_rounds(rounds); round++) {
        tiny t = draw(&prng, repeats);
        double endless_s = bound_of(&t, NULL);
        for (int half = 1; half <= 4 * UNITS; half++) {
            for (int s = 0; s < t.stages; s++) {
                t.room_bytes[s] = half * 0.5 * t.stage[s].held_bytes;
            }
            double bound_s = bound_of(&t, t.room_bytes);
            double optimum_s = least_s(&t);
            must_hold(bound_s <= optimum_s * (1.0 + 1e-12),
                      "round %d, room %.1f: bound %.6f above %.6f", round, half * 0.5, bound_s,
                      optimum_s);
            assert_true(bound_s >= endless_s);
            if (isfinite(optimum_s)) {
                cases++;
                limited += bound_s > endless_s * (1.0 + 1e-12);
                reached += bound_s > optimum_s * (1.0 - 1e-9);
                share += bound_s / optimum_s;
            }
        }
    }
    print_message("%d cases, %d limited by memory, mean %.3f of the optimum, reached in %d\n",
                  cases, limited, share / cases, reached);
    assert_true(limited > cases / 20 && reached > 0);
}

TEST_CALL(no_order_in_little_memory_is_faster, check_orders(false, 150))
TEST_CALL(nor_is_any_with_repeats, check_orders(true, 300))

// ---- closed forms ----

// Three samples of one token, and room for one: each goes through the pipeline and back alone.
TEST(one_token_at_a_time_is_all_of_it)
{
    tiny t = {.stages = 2, .count = 3, .units = 3, .samples = {1, 1, 1}, .p2p_s = 0.5};
    t.whole = true;
    for (int s = 0; s < t.stages; s++) {
        t.stage[s] = (sp_bound_stage){.rank = s,
                                      .least = {.f_token_s = 2.0,
                                                .b_token_s = 4.0,
                                                .i_token_s = 4.0,
                                                .f_pack_s = 1.0,
                                                .b_pack_s = 1.5,
                                                .i_pack_s = 1.5},
                                      .held_bytes = 8.0,
                                      .i_bytes = 2.0};
        t.room_bytes[s] = 10.0;
        t.sample_of[s] = s;
    }
    t.sample_of[2] = 2;
    double passes_s = 3.0 * (2.0 * (3.0 + 5.5) + 2.0 * 0.5);
    assert_within(least_s(&t), passes_s, 1e-12);
    // Of ten bytes eight are held all the time, and two only while the first stage runs backward.
    double area = 3.0 * (8.0 * (2.0 * 8.5 + 2.0 * 0.5) + 2.0 * 5.5);
    assert_within(bound_of(&t, t.room_bytes), area / 10.0, 1e-9);
    t.stage[0].i_bytes = t.stage[1].i_bytes = 0.0;
    t.room_bytes[0] = t.room_bytes[1] = 8.0;
    assert_within(bound_of(&t, t.room_bytes), passes_s, 1e-9);
}

// Samples of n tokens on one stage are held for half of their own work; in room for one of them
// the ramps of the first and of the last are what is left of it.
TEST(long_samples_hold_a_stage_for_half_of_their_work)
{
    enum { SAMPLES = 4, LENGTH = 1000 };
    int64_t tokens[SAMPLES] = {LENGTH, LENGTH, LENGTH, LENGTH};
    const sp_bound_stage stage = {.least = {.f_token_s = 1.0, .b_token_s = 2.0, .i_token_s = 2.0},
                                  .held_bytes = 1.0};
    double room = LENGTH;
    double tail_s = 0.0;
    const sp_bound_memory memory = {
        .stage = &stage, .stages = 1, .ranks = 1, .room_bytes = &room, .tail_s = &tail_s};
    const sp_bound_batch batch = {.tokens = tokens, .count = SAMPLES, .ranks = 1};
    // Memory alone asks for (4 + 1)/2 of a sample's work, less than the work.
    assert_within(sp_bound_memory_s(&memory, &batch), SAMPLES * 3.0 * LENGTH, 1e-9);
    room = LENGTH / 4.0;
    double area = SAMPLES * 1.5 * LENGTH * LENGTH;
    assert_within(sp_bound_memory_s(&memory, &batch), area / room + 1.5 * room, 1e-9);
}

// A sample that two ranks share: each of them holds half of it, for half of its passes, in room for
// no more.
TEST(ranks_that_share_a_whole_sample_hold_it_for_their_part)
{
    int64_t tokens = 1000;
    const sp_bound_stage stage = {.least = {.f_token_s = 1.0, .b_token_s = 2.0, .i_token_s = 2.0},
                                  .held_bytes = 1.0};
    double room = 500.0;
    double tail_s = 0.0;
    const sp_bound_memory memory = {.stage = &stage,
                                    .stages = 1,
                                    .ranks = 1,
                                    .room_bytes = &room,
                                    .tail_s = &tail_s,
                                    .whole = true};
    const sp_bound_batch batch = {.tokens = &tokens, .count = 1, .ranks = 2, .merged = true};
    assert_within(sp_bound_memory_s(&memory, &batch), 1500.0, 1e-9);
}

TEST_ROUNDS(more_memory_asks_for_no_more_time, 11, test_rounds(400))
{
    tiny t = draw(prng, round % 2 == 0);
    double before_s = HUGE_VAL;
    for (double room = 0.25; room < 40.0; room *= 1.1) {
        for (int s = 0; s < t.stages; s++) {
            t.room_bytes[s] = room;
        }
        double bound_s = bound_of(&t, t.room_bytes);
        assert_true(bound_s <= before_s * (1.0 + 1e-12));
        before_s = bound_s;
    }
    assert_true(before_s == bound_of(&t, NULL));
}
