// Blocks of samples on any rank (FCP, arXiv 2605.08524): every token once, level ranks, and rounds
// that an edge colouring of the transfers needs.
#include "sim/cost/cost_private.h"
#include "solver/strategy.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

enum { MOST_SAMPLES = 512 };

// Samples of up to `longest` tokens, evenly over the logarithm, until they fill the ranks.
static void draw_pack(sp_prng *prng, int64_t tokens, int64_t longest, sp_pack_list *list)
{
    sp_pack_list_begin(list, 0, 1);
    for (int32_t s = 0; tokens > 0 && s < MOST_SAMPLES; s++) {
        int64_t length = (int64_t)exp(log((double)longest) * sp_prng_uniform(prng)) + 1;
        length = s == MOST_SAMPLES - 1 || length > tokens ? tokens : length;
        length = length < longest ? length : longest;
        sp_pack_list_add(list, (sp_slice){s, 0, 0, length, length}, true);
        tokens -= length;
    }
}

static void free_list(sp_pack_list *list)
{
    sp_free(list->packs);
    sp_free(list->slices);
}

// Blocks cover the slices in order, none is longer than a block or crosses a multiple of it.
TEST(every_token_is_in_one_block)
{
    sp_prng prng = prng_seeded(61);
    sp_i_blocks blocks = {0};
    for (int round = 0; round < test_draws(64); round++) {
        sp_pack_list list = {0};
        int64_t block_tokens = 1 + prng_below(&prng, 600);
        int ranks = 1 + prng_below(&prng, 12);
        draw_pack(&prng, 1 + prng_below(&prng, 9000), 1 + prng_below(&prng, 3000), &list);
        const sp_pack *pack = &list.packs[0];
        sp_i_blocks_place(&list, pack, block_tokens, ranks, 1 + prng_below(&prng, ranks), &blocks);
        size_t k = 0;
        int64_t row = 0;
        for (size_t s = 0; s < pack->slice_count; s++) {
            for (int64_t at = 0; at < list.slices[s].tokens; at += blocks.block[k++].tokens) {
                const sp_i_block_of *b = &blocks.block[k];
                assert_true(k < blocks.count && b->sample == list.slices[s].sample);
                assert_true(b->context == at && b->row == row);
                assert_true(b->rank >= 0 && b->rank < ranks && b->tokens > 0);
                assert_true(at / block_tokens == (at + b->tokens - 1) / block_tokens);
                row += b->tokens;
            }
        }
        assert_int_equal(k, blocks.count);
        free_list(&list);
    }
    sp_i_blocks_free(&blocks);
}

// The paper's test: 32K tokens a GPU, samples of up to 512K, blocks of 4K; no rank has 5 % more
// attention work than the mean, or tokens.
TEST(ranks_are_level)
{
    sp_prng prng = prng_seeded(67);
    sp_i_blocks blocks = {0};
    for (int ranks = 16; ranks <= 256; ranks *= 2) {
        sp_pack_list list = {0};
        double work[256] = {0.0}, tokens[256] = {0.0}, all = 0.0;
        draw_pack(&prng, 32768 * (int64_t)ranks, 524288, &list);
        sp_i_blocks_place(&list, &list.packs[0], 4096, ranks, 8, &blocks);
        for (size_t i = 0; i < blocks.count; i++) {
            const sp_i_block_of *b = &blocks.block[i];
            double pairs = (double)b->tokens * ((double)b->context + 0.5 * (double)b->tokens);
            work[b->rank] += pairs;
            tokens[b->rank] += (double)b->tokens;
            all += pairs;
        }
        for (int r = 0; r < ranks; r++) {
            assert_true(work[r] <= 1.05 * all / ranks);
            assert_true(tokens[r] <= 1.05 * (double)blocks.tokens / ranks);
        }
        free_list(&list);
    }
    sp_i_blocks_free(&blocks);
}

// ---- rounds ----

enum { RANKS = 8, COLOURS = 256 };

// colour[way][rank][colour]: the peer of an edge of this colour at a rank as sender (0) or receiver
// (1); -1: none.
typedef struct colouring {
    int peer[2][RANKS][COLOURS];
} colouring;

static int free_colour(const colouring *c, int way, int rank)
{
    int colour = 0;
    while (c->peer[way][rank][colour] >= 0) {
        colour++;
    }
    return colour;
}

// One more edge, by an alternating path: a colour is free at the sender, another at the receiver.
static void colour_edge(colouring *c, int from, int to)
{
    int a = free_colour(c, 0, from);
    int b = free_colour(c, 1, to);
    int path[2 * RANKS + 2];
    int length = 0;
    int way = 1, at = to;
    // The path of colours a, b, a, ... from the receiver on; in a bipartite graph it does not come
    // to the sender.
    while (c->peer[way][at][length % 2 == 0 ? a : b] >= 0) {
        path[length] = at;
        at = c->peer[way][at][length % 2 == 0 ? a : b];
        way = 1 - way;
        length++;
    }
    path[length] = at;
    way = 1;
    for (int i = 0; i < length; i++, way = 1 - way) { // take away, then put back turned
        int colour = i % 2 == 0 ? a : b;
        c->peer[way][path[i]][colour] = c->peer[1 - way][path[i + 1]][colour] = -1;
    }
    way = 1;
    for (int i = 0; i < length; i++, way = 1 - way) {
        int colour = i % 2 == 0 ? b : a;
        c->peer[way][path[i]][colour] = path[i + 1];
        c->peer[1 - way][path[i + 1]][colour] = path[i];
    }
    assert_true(c->peer[0][from][a] < 0 && c->peer[1][to][a] < 0);
    c->peer[0][from][a] = to;
    c->peer[1][to][a] = from;
}

static int colours_of(const colouring *c)
{
    int most = 0;
    for (int i = 0; i < 2 * RANKS * COLOURS; i++) {
        int colour = i % COLOURS;
        most = (&c->peer[0][0][0])[i] >= 0 && colour + 1 > most ? colour + 1 : most;
    }
    return most;
}

// As many rounds as colours that the transfers need, found one by one: a rank gets each block of a
// sample before its last one of it, from where it lies.
TEST(rounds_are_an_edge_colouring)
{
    sp_prng prng = prng_seeded(71);
    sp_i_blocks blocks = {0};
    for (int round = 0; round < test_draws(64); round++) {
        sp_pack_list list = {0};
        static colouring c[2];
        double rounds[2];
        memset(c, -1, sizeof c);
        draw_pack(&prng, 2000 + prng_below(&prng, 4000), 200 + prng_below(&prng, 3000), &list);
        sp_i_blocks_place(&list, &list.packs[0], 100, RANKS, round % 2 == 0 ? RANKS : 4, &blocks);
        sp_i_blocks_rounds(&blocks, rounds);
        for (size_t i = 0; i < blocks.count; i++) {
            const sp_i_block_of *b = &blocks.block[i];
            for (int r = 0; r < RANKS; r++) {
                bool needs = false;
                for (size_t k = i + 1; k < blocks.count; k++) {
                    needs =
                        needs || (blocks.block[k].sample == b->sample && blocks.block[k].rank == r);
                }
                if (needs && r != b->rank) {
                    int across = b->rank / blocks.node_ranks != r / blocks.node_ranks;
                    colour_edge(&c[across], b->rank, r);
                }
            }
        }
        assert_int_equal((int)rounds[0], colours_of(&c[0]));
        assert_int_equal((int)rounds[1], colours_of(&c[1]));
        free_list(&list);
    }
    sp_i_blocks_free(&blocks);
}

// Two ranks, two samples of a block each: whichever rank has which, nothing is read from the other,
// and a rank moves its half of the row or nothing.
TEST(short_samples_stay)
{
    sp_pack_list list = {0};
    sp_i_blocks blocks = {0};
    double rounds[2], moved[2];
    sp_pack_list_begin(&list, 0, 2);
    sp_pack_list_add(&list, (sp_slice){0, 0, 0, 100, 100}, true);
    sp_pack_list_add(&list, (sp_slice){1, 0, 0, 100, 100}, true);
    sp_i_blocks_place(&list, &list.packs[0], 100, 2, 1, &blocks);
    assert_true(blocks.block[0].rank != blocks.block[1].rank);
    sp_i_blocks_rounds(&blocks, rounds);
    sp_i_blocks_moved(&blocks, moved);
    assert_true(rounds[0] == 0.0 && rounds[1] == 0.0 && moved[0] == 0.0);
    assert_true(moved[1] == (blocks.block[0].rank == 0 ? 0.0 : 100.0));
    free_list(&list);
    sp_i_blocks_free(&blocks);
    static const struct {
        double rounds[2], launches;
    } cases[] = {{{0, 0}, 0}, {{1, 0}, 1}, {{16, 0}, 1}, {{17, 0}, 2}, {{17, 16}, 3}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        assert_true(sp_i_blocks_launches(cases[i].rounds) == cases[i].launches);
    }
}

// ---- steps ----

#define STEP_OF(kind, beside)                                                                      \
    "{'model': {'layers': 4, 'hidden': 1024, 'ffn': 2048, 'heads': 8, 'vocab': 1000}, 'cluster': " \
    "'h100-8', 'parallel': {'dp': 4}, 'strategy': {'kind': '" kind "', 'rank_tokens': 16384}, "    \
    "'workload': {'lengths': [32768, 8192, 8192, 4096, 4096, 4096, 2048, 2048], 'context': "       \
    "32768}" beside "}"

// Blocks as long as every sample, of which each rank has one of the same length, are whole samples
// on one rank each: the attention of one takes what it takes without other ranks.
TEST(whole_samples_as_blocks)
{
    static const char text[] =
        "{'model': {'layers': 4, 'hidden': 1024, 'ffn': 2048, 'heads': 8, 'vocab': 1000}, "
        "'cluster': 'h100-8', 'parallel': {'dp': 4}, 'strategy': {'kind': '%s', 'rank_tokens': "
        "4096}, 'workload': {'lengths': [4096, 4096, 4096, 4096]}}";
    double ms[2][SP_TIME_PARTS];
    static const char *const kinds[] = {"fcp", "packed"};
    for (int i = 0; i < 2; i++) {
        SCENARIO_RUN(r, json_text(text, kinds[i]), &run_verified);
        sp_result_time_parts(&r.result, ms[i]);
    }
    assert_within(ms[0][SP_TIME_COMPUTE] / ms[1][SP_TIME_COMPUTE], 1.0, 1e-4);
    assert_true(ms[0][SP_TIME_CP] == 0.0);
}

TEST(fcp_refuses)
{
    static const struct {
        const char *text, *part;
    } cases[] = {{STEP_OF("fcp", ", 'stack': 'reference'"), "hand"},
                 {STEP_OF("fcp", ", 'network': {'detail': 'auto'}"), "network.detail"},
                 {STEP_OF("fcp", ", 'memory': {'attention': 'unfused'}"), "memory.attention"}};
    AUTO(scenario_run) r;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const char *text = json_text("%s", cases[i].text);
        must_fail_with(run_text(text, &run_verified, &r, ERR), SP_ERR_INFEASIBLE, cases[i].part);
        scenario_run_fini(&r);
    }
    run_good(json_text("%s", STEP_OF("fcp", "")), &run_verified, &r);
    assert_string_equal(r.result.cp_overlap, "blocks");
    assert_true(r.result.batches[0].facts.lower_bound_ns <=
                (double)r.result.batches[0].iteration_ns);
}

// ---- tasks ----

static const sp_i_task_bytes bytes_of = {.queries = 3.0, .results = 2.0, .keys = 5.0};

static double block_work(const sp_i_block_of *b)
{
    return (double)b->tokens * ((double)b->context + 0.5 * (double)b->tokens);
}

static int owner(const sp_i_blocks *blocks, int64_t row)
{
    int r = 0;
    while ((int64_t)(r + 1) * blocks->tokens <= row * blocks->ranks) {
        r++;
    }
    return r;
}

// A task has tokens of one rank, from which it moves to another one that then has no more than a
// tenth over the mean; a rank that has more has no task left that fits the least loaded one.
TEST(tasks_level_ranks)
{
    sp_prng prng = prng_seeded(73);
    sp_i_blocks blocks = {0};
    for (int round = 0; round < test_draws(64); round++) {
        sp_pack_list list = {0};
        int ranks = 1 + prng_below(&prng, 12);
        double load[12] = {0.0}, mean = 0.0, least = 1e30, smallest = 1e30;
        draw_pack(&prng, 3000 + prng_below(&prng, 9000), 1 + prng_below(&prng, 5000), &list);
        sp_i_tasks_place(&list, &list.packs[0], 50 + prng_below(&prng, 200), ranks, ranks,
                         &bytes_of, &blocks);
        int64_t row = 0;
        for (size_t i = 0; i < blocks.count; i++) {
            const sp_i_block_of *b = &blocks.block[i];
            assert_int_equal(b->row, row);
            assert_int_equal(b->home, owner(&blocks, row));
            assert_int_equal(b->home, owner(&blocks, row + b->tokens - 1));
            load[b->rank] += block_work(b);
            mean += block_work(b) / ranks;
            row += b->tokens;
        }
        assert_int_equal(row, blocks.tokens);
        for (int r = 0; r < ranks; r++) {
            least = load[r] < least ? load[r] : least;
        }
        for (size_t i = 0; i < blocks.count; i++) {
            const sp_i_block_of *b = &blocks.block[i];
            bool stays = b->rank == b->home && load[b->rank] > 1.1 * mean * (1.0 + 1e-9);
            smallest = stays && block_work(b) < smallest ? block_work(b) : smallest;
            assert_true(b->rank == b->home || load[b->rank] <= 1.1 * mean * (1.0 + 1e-9));
        }
        assert_true(smallest >= 1e30 || least + smallest > 1.1 * mean * (1.0 - 1e-9));
        free_list(&list);
    }
    sp_i_blocks_free(&blocks);
}

static void count_send(const sp_i_blocks *blocks, double sent[2][2][12], int from, int to,
                       double bytes)
{
    int across = from / blocks->node_ranks != to / blocks->node_ranks;
    if (from != to) {
        sent[across][0][from] += bytes;
        sent[across][1][to] += bytes;
    }
}

// Token by token: a rank gets every key before the last query that it has of a sample.
TEST(moved_bytes_of_tasks)
{
    sp_prng prng = prng_seeded(79);
    sp_i_blocks blocks = {0};
    for (int round = 0; round < test_draws(48); round++) {
        sp_pack_list list = {0};
        int ranks = 2 + prng_below(&prng, 10);
        draw_pack(&prng, 500 + prng_below(&prng, 1500), 50 + prng_below(&prng, 1500), &list);
        sp_i_tasks_place(&list, &list.packs[0], 20 + prng_below(&prng, 100), ranks,
                         1 + prng_below(&prng, ranks), &bytes_of, &blocks);
        for (int backward = 0; backward < 2; backward++) {
            double sent[2][2][12] = {{{0.0}}}, most[2], expected[2] = {0.0, 0.0};
            for (size_t i = 0; i < blocks.count; i++) {
                const sp_i_block_of *b = &blocks.block[i];
                double tokens = (double)b->tokens;
                count_send(&blocks, sent, b->home, b->rank, tokens * (backward ? 7.0 : 3.0));
                count_send(&blocks, sent, b->rank, b->home, tokens * (backward ? 3.0 : 2.0));
                for (int r = 0; r < ranks; r++) {
                    bool sees = false; // its keys
                    for (size_t k = i; k < blocks.count; k++) {
                        sees = sees ||
                               (blocks.block[k].sample == b->sample && blocks.block[k].rank == r);
                    }
                    count_send(&blocks, sent, b->home, r, sees ? 5.0 * tokens : 0.0);
                    count_send(&blocks, sent, r, b->home, sees && backward ? 5.0 * tokens : 0.0);
                }
            }
            sp_i_tasks_moved(&blocks, &bytes_of, backward, most);
            for (int i = 0; i < 2 * 2 * 12; i++) {
                double bytes = (&sent[0][0][0])[i];
                expected[i / 24] = bytes > expected[i / 24] ? bytes : expected[i / 24];
            }
            assert_within(most[0], expected[0], 1e-9 * (1.0 + expected[0]));
            assert_within(most[1], expected[1], 1e-9 * (1.0 + expected[1]));
        }
        free_list(&list);
    }
    sp_i_blocks_free(&blocks);
}

// The sample has 100 tokens in earlier packs, of which each of the four ranks is taken to have 25:
// the rank of a task gets 75, and gives away 25 to each of the three others.
TEST(keys_of_earlier_packs)
{
    sp_pack_list list = {0};
    sp_i_blocks blocks = {0};
    double most[2];
    sp_pack_list_begin(&list, 0, 4);
    sp_pack_list_add(&list, (sp_slice){0, 0, 100, 4, 4}, true);
    sp_i_tasks_place(&list, &list.packs[0], 1000, 4, 4, &bytes_of, &blocks);
    assert_int_equal(blocks.count, 4);
    sp_i_tasks_moved(&blocks, &bytes_of, false, most);
    // The last rank gets the first three tokens, too, the first rank gives its own to all others.
    assert_true(most[0] == 5.0 * (75.0 + 3.0) && most[1] == 0.0);
    free_list(&list);
    sp_i_blocks_free(&blocks);
}

// Each rank has one of four equal samples: nothing moves, and a rank takes what it takes alone.
TEST(equal_samples_stay_as_tasks)
{
    static const char text[] =
        "{'model': {'layers': 4, 'hidden': 1024, 'ffn': 2048, 'heads': 8, 'vocab': 1000}, "
        "'cluster': 'h100-8', 'profile': 'h100-burst', 'parallel': {'dp': 4}, 'strategy': {'kind': "
        "'%s', 'rank_tokens': "
        "4096}, 'workload': {'lengths': [4096, 4096, 4096, 4096]}}";
    double ms[2][SP_TIME_PARTS];
    static const char *const kinds[] = {"distca", "packed"};
    for (int i = 0; i < 2; i++) {
        SCENARIO_RUN(r, json_text(text, kinds[i]), &run_verified);
        sp_result_time_parts(&r.result, ms[i]);
    }
    // Two halves take a second launch of the attention.
    assert_true(ms[0][SP_TIME_COMPUTE] > ms[1][SP_TIME_COMPUTE]);
    assert_within(ms[0][SP_TIME_COMPUTE] / ms[1][SP_TIME_COMPUTE], 1.0, 0.03);
    assert_true(ms[0][SP_TIME_CP] == 0.0);
}

// m equal packs on p stages: the p ranks share the attention of m, which took m + p - 1 steps.
TEST(stages_share_attention)
{
    for (int pp = 2; pp <= 4; pp *= 2) {
        for (int m = 1; m <= 8; m *= 2) {
            char lengths[256] = "";
            for (int i = 0; i < m; i++) {
                put_json(lengths, "%s8192", i > 0 ? ", " : "");
            }
            SCENARIO_RUN(
                r,
                json_text("{'model': {'layers': 4, 'hidden': 1024, 'ffn': 2048, 'heads': 8, "
                          "'vocab': 1000}, 'cluster': 'h100-8', 'parallel': {'pp': %d, 'dp': "
                          "2}, 'strategy': {'kind': 'distca', 'rank_tokens': 4096}, "
                          "'workload': {'lengths': [%s], 'context': 8192}}",
                          pp, lengths),
                &run_verified);
            assert_true(r.result.has_exchange);
            assert_within(r.result.exchange_before, (m + pp - 1.0) / m, 1e-6);
            assert_within(r.result.exchange_after, 1.0, 1e-12);
            assert_true(run_warned(&r.result.warnings, "stands in no timeline"));
            assert_true(r.result.batches[0].facts.lower_bound_ns <=
                        (double)r.result.batches[0].iteration_ns);
        }
    }
}

// One pack on p stages: whichever has it computes 1/p of its attention, A of all layers. All the
// rest is te-cp's, whose stages compute the attention of their layers.
TEST(a_unit_keeps_its_part_of_the_attention)
{
    static const char *const kinds[] = {"te-cp", "distca"};
    double saved[3];
    for (int i = 0; i < 3; i++) {
        double of[2];
        for (int k = 0; k < 2; k++) {
            double ms[SP_TIME_PARTS];
            SCENARIO_RUN(
                r,
                json_text("{'model': {'layers': 4, 'hidden': 1024, 'ffn': 2048, 'heads': 8, "
                          "'vocab': 1000}, 'cluster': 'h100-8', 'parallel': {'pp': %d, 'dp': "
                          "2}, 'strategy': {'kind': '%s', 'rank_tokens': 16384}, "
                          "'workload': {'lengths': [32768], 'context': 32768}}",
                          1 << i, kinds[k]),
                &run_verified);
            sp_result_time_parts(&r.result, ms);
            of[k] = (1 << i) * ms[SP_TIME_COMPUTE]; // of all stages
        }
        saved[i] = of[0] - of[1];
    }
    // A/2 more of two stages than of one, 3A/4 more of four.
    assert_true(saved[1] > saved[0]);
    assert_within((saved[2] - saved[0]) / (saved[1] - saved[0]), 1.5, 1e-3);
}

#define PIPELINE_OF(kind, beside)                                                                  \
    "{'model': {'layers': 4, 'hidden': 1024, 'ffn': 2048, 'heads': 8, 'vocab': 1000}, 'cluster': " \
    "'h100-8', 'strategy': {'kind': '" kind "'}, 'workload': {'lengths': [4096, 4096], "           \
    "'context': 4096}, " beside "}"

TEST(distca_refuses)
{
    static const struct {
        sp_status status;
        const char *text, *part;
    } cases[] = {
        {SP_ERR_INFEASIBLE, STEP_OF("distca", ", 'stack': 'reference'"), "hand"},
        {SP_ERR_INFEASIBLE, STEP_OF("distca", ", 'network': {'detail': 'auto'}"), "network.detail"},
        {SP_ERR_INFEASIBLE, STEP_OF("distca", ", 'memory': {'attention': 'unfused'}"),
         "memory.attention"},
        {SP_ERR_INFEASIBLE,
         PIPELINE_OF("distca", "'parallel': {'pp': 2, 'dp': 2, 'stage_layers': [1, 3]}"),
         "stage_layers"},
        {SP_ERR_CONTENT,
         PIPELINE_OF("packed", "'parallel': {'pp': 2, 'dp': 2}, 'stack': {'cp_overlap': 'tasks'}"),
         "distca"}};
    scenario_run r;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const char *text = json_text("%s", cases[i].text);
        must_fail_with(run_text(text, &run_verified, &r, ERR), cases[i].status, cases[i].part);
        scenario_run_fini(&r);
    }
}
