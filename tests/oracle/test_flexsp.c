// FlexSP's published speed-ups (Wang et al., ASPLOS'25, arXiv 2412.01523; figure of the artifact,
// github PKU-DAIR/Hetu-Galvatron, branch flexsp) for GPT-6.7B on 64 A100, 512 Wikipedia documents a
// step, from the cost constants of the artifact's solver.py: FlexSP over DeepSpeed's static degree
// 1.72 at 192K and 1.46 at 384K, and over FlexSP-BatchAda, the best one degree for each batch,
// 1.72 / 1.34 = 1.28 and 1.46 / 1.32 = 1.11.
//
// The published bars are measured steps; the constants leave out whatever a step has apart from its
// micro-batches. Over five seeds of lengths drawn from the built-in quantiles of the list the model
// gives, of BatchAda over static, 1.33 to 1.42 at both limits (1.29 and 1.28 from the first 300,000
// documents of the list itself; published 1.34 and 1.32), and of FlexSP over static 1.83 to 1.95
// (1.81 from the list; published 1.72) at 192K: both within 15 %. At 384K it gives 1.77 to 1.92
// (1.77; published 1.46), which is not reproduced: the measured step of FlexSP grows by 18 % where
// only the few documents above 192K come in, the modelled one by about 5 %; the last two tests show
// why no such model can follow.
#include "sim/workload/distribution.h"
#include "solver/flexsp/flexsp.h"
#include "tests/support/test_main.h"

// Static steps of the figure at both limits, read by eye. The constants leave a step 14 % short of
// them at either: its packs are as long as memory holds, whatever the limit.
#define STATIC_MS 8000.0

enum { RANKS = 64, DEGREES = 7, SAMPLES = 512, BATCHES = 40 };

// Of the model with 32 layers, hidden 4096, in ms per token^2, per token and per micro-batch.
#define PER_SQUARE_MS 5.128e-6
#define PER_TOKEN_MS 0.1839576
#define PER_MICROBATCH_MS 629.4
#define ACTIVATION_MB 4.480 // per token
#define MEMORY_GB 29.0      // the scripts set 28 to 30 of the 40

// All-to-all in GB/s per GPU with two InfiniBand adapters in a node.
static const double bandwidth[DEGREES] = {0.0, 119.5, 104.1, 96.5, 10.33, 5.94, 4.87};

static void artifact_problem(double billions, sp_i_flexsp_problem *p)
{
    double states_mb = billions * 16.0 * 1024.0 / RANKS; // ZeRO-3
    *p = (sp_i_flexsp_problem){.ranks = RANKS, .degrees = DEGREES, .count = SAMPLES};
    p->rank_tokens = (int64_t)((MEMORY_GB * 1024.0 - states_mb) / ACTIVATION_MB);
    for (int k = 0; k < DEGREES; k++) {
        int degree = 1 << k;
        // Four tensors, forward and backward, of every layer, in two bytes.
        double bytes = 4.0 * 2.0 * 32.0 * 4096.0 * 2.0 / degree;
        double exchange_ms = k == 0 ? 0.0 : bytes / (bandwidth[k] * 1e9) * 1e3;
        p->times[k] = (sp_i_flexsp_time){.degree = degree,
                                         .per_square = PER_SQUARE_MS / degree,
                                         .per_token = PER_TOKEN_MS / degree + exchange_ms,
                                         .per_pack = PER_MICROBATCH_MS};
    }
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

// The artifact pads to a multiple of twice the ranks and drops what is longer than the limit.
static void draw_batch(sp_prng *prng, int64_t limit, int64_t tokens[SAMPLES])
{
    const sp_distribution *wikipedia = sp_distribution_find("wikipedia");
    for (int i = 0; i < SAMPLES;) {
        int64_t padded = (sp_distribution_sample(wikipedia, prng) + 127) / 128 * 128;
        if (padded <= limit - 128) {
            tokens[i++] = padded;
        }
    }
    qsort(tokens, SAMPLES, sizeof *tokens, descending);
}

// One degree for the batch: best-fit decreasing into packs of 0.9 of the room (or all of it, for a
// sample that needs it), the packs longest first side by side. HUGE_VAL where a sample is too long.
static double one_degree(const sp_i_flexsp_problem *p, int k)
{
    const sp_i_flexsp_time *t = &p->times[k];
    double time[SAMPLES];
    int64_t room[SAMPLES];
    int packs = 0;
    int64_t whole = p->rank_tokens * t->degree;
    int64_t usual = whole / 10 * 9;
    if (p->tokens[0] > whole) {
        return HUGE_VAL;
    }
    for (int i = 0; i < SAMPLES; i++) {
        double n = (double)p->tokens[i];
        int best = -1;
        for (int j = 0; j < packs; j++) {
            if (room[j] >= p->tokens[i] && (best < 0 || room[j] < room[best])) {
                best = j;
            }
        }
        if (best < 0) {
            best = packs++;
            room[best] = p->tokens[i] > usual ? whole : usual;
            time[best] = t->per_pack;
        }
        room[best] -= p->tokens[i];
        time[best] += (t->per_square * n + t->per_token) * n;
    }
    double sum = 0.0;
    int side_by_side = RANKS / t->degree;
    for (int done = 0; done < packs; done++) {
        int most = done;
        for (int j = done + 1; j < packs; j++) {
            most = time[j] > time[most] ? j : most;
        }
        double longest = time[most];
        time[most] = time[done];
        time[done] = longest;
        sum += done % side_by_side == 0 ? longest : 0.0;
    }
    return sum;
}

typedef struct step_times {
    double flexsp, fixed, adaptive;
} step_times;

static step_times mean_times(double billions, int64_t limit)
{
    sp_prng prng = prng_seeded(1);
    step_times sum = {0};
    sp_i_flexsp_problem p;
    artifact_problem(billions, &p);
    for (int batch = 0; batch < BATCHES; batch++) {
        int64_t tokens[SAMPLES];
        AUTO(sp_i_flexsp_plan) plan;
        draw_batch(&prng, limit, tokens);
        p.tokens = tokens;
        assert_int_equal(sp_i_flexsp_solve(&p, &plan, NULL), SP_OK);
        sum.flexsp += plan.time;
        double best = HUGE_VAL;
        for (int k = 0; k < DEGREES; k++) {
            best = fmin(best, one_degree(&p, k));
        }
        sum.adaptive += best;
        sum.fixed += one_degree(&p, DEGREES - 1);
    }
    return sum;
}

static void assert_share(const char *what, double value, double published, double share)
{
    print_message("%s: %.3f, published %.2f\n", what, value, published);
    must_hold(fabs(value / published - 1.0) <= share, "%s: %.3f, published %.2f", what, value,
              published);
}

TEST(wikipedia_192k)
{
    step_times t = mean_times(7.12, 192000);
    assert_share("static step, ms", t.fixed / BATCHES, STATIC_MS, 0.15);
    assert_share("flexsp over static", t.fixed / t.flexsp, 1.72, 0.15);
    assert_share("best degree over static", t.fixed / t.adaptive, 1.34, 0.10);
}

TEST(wikipedia_384k)
{
    step_times t = mean_times(7.85, 384000);
    assert_share("static step, ms", t.fixed / BATCHES, STATIC_MS, 0.15);
    assert_share("best degree over static", t.fixed / t.adaptive, 1.32, 0.10);
    print_message("flexsp over static: %.3f, published 1.46\n", t.fixed / t.flexsp);
    assert_true(t.flexsp < t.adaptive && t.adaptive < t.fixed);
}

// Why 384K is not reproduced. Only documents of 192K to 384K tell the two limits apart. They run on
// all 64 ranks in every system, in a micro-batch that no assignment makes shorter, so that they add
// the same time G to static, best degree and FlexSP. From the bars at 192K (static = 1.72 FlexSP =
// 1.34 best degree) the bar of FlexSP at 384K gives G, and G the bar of the best degree: 1.24,
// where 1.32 is published. Rounding of the bars explains 0.01 of it. The three bars contradict each
// other under any cost constants.
TEST(long_documents_do_not_explain_384k)
{
    double most = 0.0;
    for (int corner = 0; corner < 8; corner++) {
        double fixed = 1.72 + (corner & 1 ? 0.005 : -0.005); // FlexSP at 192K takes 1
        double adaptive = fixed / (1.34 + (corner & 2 ? 0.005 : -0.005));
        double published = 1.46 + (corner & 4 ? 0.005 : -0.005);
        double longest = (fixed - published) / (published - 1.0);
        most = fmax(most, (fixed + longest) / (adaptive + longest));
    }
    print_message("best degree over static by the bar of FlexSP: at most %.3f, published 1.32\n",
                  most);
    assert_true(most < 1.32 - 0.05);
}

// Nor are there as many: a longest document takes 13 to 16 s on 64 ranks. FlexSP's measured step
// grows by 18 % (1.72 / 1.46 at equal static steps, read as 8 s at both limits, so 0.8 s a step or
// 33 s in the 40), and of the 20,480 documents of 40 steps the list has fewer than one between the
// limits.
TEST(long_documents_are_too_few_for_384k)
{
    enum { DRAWN = 4000000 };
    sp_i_flexsp_problem p;
    artifact_problem(7.85, &p);
    const sp_i_flexsp_time *t = &p.times[DEGREES - 1];
    const sp_distribution *wikipedia = sp_distribution_find("wikipedia");
    sp_prng prng = prng_seeded(1);
    double added_ms = 0.0;
    int64_t added = 0;
    for (int i = 0; i < DRAWN; i++) {
        double n = (double)sp_distribution_sample(wikipedia, &prng);
        if (n > 192000.0 && n <= 384000.0) {
            added_ms += (t->per_square * n + t->per_token) * n + t->per_pack;
            added++;
        }
    }
    double share = (double)(BATCHES * SAMPLES) / DRAWN;
    double published_ms = BATCHES * STATIC_MS * (1.0 / 1.46 - 1.0 / 1.72);
    print_message("%.2f documents and %.1f s more in %d steps, published %.1f s\n",
                  (double)added * share, added_ms * share / 1e3, BATCHES, published_ms / 1e3);
    assert_true(added > 0 && added_ms * share < published_ms / 3.0);
}
