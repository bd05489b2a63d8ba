#include "sim/model/layout.h"
#include "tests/support/test_main.h"

static sp_layout layout_of(int tp, int cp, int pp, int dp, int chunks)
{
    return (sp_layout){.tp = tp, .cp = cp, .pp = pp, .dp = dp, .chunks = chunks, .zero = 1};
}

static sp_model llama_13b(void)
{
    sp_model model;
    assert_int_equal(sp_model_builtin("llama-13b", &model, NULL), SP_OK);
    return model;
}

// Header: linear is c*p + r; V is r and 2p-1-r.
TEST(placements_follow_their_formulas)
{
    for (int p = 1; p <= 9; p++) {
        for (int r = 0; r < p; r++) {
            sp_layout v = layout_of(1, 1, p, 1, 2);
            v.placement = SP_PLACE_V;
            assert_int_equal(sp_layout_vstage(&v, r, 0), r);
            assert_int_equal(sp_layout_vstage(&v, r, 1), 2 * p - 1 - r);
            sp_layout linear = layout_of(1, 1, p, 1, 5);
            for (int c = 0; c < 5; c++) {
                assert_int_equal(sp_layout_vstage(&linear, r, c), c * p + r);
            }
        }
    }
}

TEST_ROUNDS(locate_inverts_vstage, 3, 500)
{
    int pp = 1 + prng_below(prng, 32);
    sp_layout layout = layout_of(1, 1, pp, 1, 1 + prng_below(prng, 8));
    if (sp_prng_below(prng, 2) == 1) {
        layout.placement = SP_PLACE_V;
        layout.chunks = 2;
    }
    int s = (int)sp_prng_below(prng, (uint64_t)sp_layout_vstages(&layout));
    int rank = -1, chunk = -1;
    sp_layout_locate(&layout, s, &rank, &chunk);
    assert_in_range(rank, 0, layout.pp - 1);
    assert_in_range(chunk, 0, layout.chunks - 1);
    assert_int_equal(sp_layout_vstage(&layout, rank, chunk), s);
}

TEST(stages_share_layers_and_ends)
{
    sp_stage stages[16];
    sp_layout layout = layout_of(1, 1, 4, 1, 2);
    assert_int_equal(sp_layout_stages(&layout, &(sp_model){.layers = 40}, "s.json", stages, NULL),
                     SP_OK);
    for (int s = 0; s < 8; s++) {
        assert_int_equal(stages[s].layers, 5);
        assert_int_equal(stages[s].embedding, s == 0);
        assert_int_equal(stages[s].head, s == 7);
    }
}

// Every pipeline rank holds one share of the embedding and one of the head.
TEST(vocabulary_parallel_stages)
{
    for (int v_shape = 0; v_shape < 2; v_shape++) {
        sp_stage stages[16];
        sp_layout layout = layout_of(1, 1, 4, 1, 2);
        layout.vocab_parallel = true;
        layout.placement = v_shape ? SP_PLACE_V : SP_PLACE_LINEAR;
        assert_int_equal(
            sp_layout_stages(&layout, &(sp_model){.layers = 8}, "s.json", stages, NULL), SP_OK);
        for (int r = 0; r < 4; r++) {
            int first = sp_layout_vstage(&layout, r, 0);
            int last = sp_layout_vstage(&layout, r, 1);
            assert_true(stages[first].embedding && !stages[first].head);
            assert_true(stages[last].head && !stages[last].embedding);
        }
    }
}

TEST(uneven_layers_are_an_error)
{
    sp_stage stages[24];
    sp_layout layout = layout_of(1, 1, 8, 1, 3);
    must_fail(sp_layout_stages(&layout, &(sp_model){.layers = 40}, "scenario.json", stages, ERR),
              SP_ERR_CONTENT,
              "scenario.json: parallel.pp: 40 layers cannot be split "
              "into 8 x 3 equal chunks (parallel.stage_layers \"auto\" "
              "spreads them)");
    sp_error_clear(ERR);
    layout.chunks = 1;
    must_fail(sp_layout_stages(&layout, &(sp_model){.layers = 42}, "scenario.json", stages, ERR),
              SP_ERR_CONTENT,
              "scenario.json: parallel.pp: 42 layers cannot be split into 8 equal stages "
              "(parallel.stage_layers \"auto\" spreads them)");
}

// The least possible largest load, by trying every split.
static double best_load(int layers, int stages, double head)
{
    if (stages == 1) {
        return layers + head;
    }
    double best = 1e9;
    for (int first = 0; first <= layers; first++) {
        double rest = best_load(layers - first, stages - 1, head);
        double load = first > rest ? first : rest;
        best = load < best ? load : best;
    }
    return best;
}

TEST(spread_layers_level_the_stages)
{
    sp_model model = llama_13b();
    for (int vocab = 1000; vocab <= 1000000; vocab *= 10) {
        model.vocab = vocab;
        double head =
            (double)vocab * (double)model.hidden / (double)sp_model_layer_parameters(&model);
        for (int pp = 1; pp <= 4; pp++) {
            for (model.layers = pp; model.layers <= 11; model.layers++) {
                sp_layout layout = layout_of(1, 1, pp, 1, 1);
                int stage_layers[4];
                int sum = 0;
                double most = 0.0;
                sp_layout_spread(&layout, &model, stage_layers);
                for (int s = 0; s < pp; s++) {
                    double load = stage_layers[s] + (s == pp - 1 ? head : 0.0);
                    sum += stage_layers[s];
                    most = load > most ? load : most;
                    assert_true(stage_layers[s] > 0 || s == pp - 1);
                }
                assert_int_equal(sum, model.layers);
                assert_within(most, best_load(model.layers, pp, head), 1e-9);
            }
        }
    }
}

// A stage's last layer is the first that takes the sum of loads beyond the stage's share; what is
// behind that layer goes on to the next stage.
TEST(filled_stages_reach_their_share)
{
    sp_model model = llama_13b();
    for (int vocab = 1000; vocab <= 1000000; vocab *= 10) {
        model.vocab = vocab;
        double head =
            (double)vocab * (double)model.hidden / (double)sp_model_layer_parameters(&model);
        for (int pp = 1; pp <= 16; pp++) {
            sp_layout layout = layout_of(1, 1, pp, 1, 1);
            int stage_layers[16];
            int sum = 0;
            sp_layout_fill(&layout, &model, stage_layers);
            for (int s = 0; s < pp; s++) {
                double share = (model.layers + head) * (s + 1) / pp;
                sum += stage_layers[s];
                assert_true(stage_layers[s] == 0 || s == pp - 1 || sum - 1 <= share);
                assert_true(sum == model.layers || sum > share);
            }
            assert_int_equal(sum, model.layers);
        }
    }
}

TEST(a_shared_vocabulary_burdens_no_stage)
{
    sp_model model = llama_13b();
    sp_layout layout = layout_of(1, 1, 4, 1, 1);
    int stage_layers[4];
    layout.vocab_parallel = true;
    model.vocab = 1000000;
    sp_layout_spread(&layout, &model, stage_layers);
    for (int s = 0; s < 4; s++) {
        assert_int_equal(stage_layers[s], model.layers / 4);
    }
}

TEST(stated_layers_are_taken_over)
{
    static const int layers[] = {0, 7, 1, 6, 9, 2, 13, 2};
    static const int equal[] = {5, 5, 5, 5, 5, 5, 5, 5};
    sp_stage stages[8];
    sp_layout layout = layout_of(1, 1, 4, 1, 2);
    assert_true(sp_layout_is_even(&layout));
    layout.stage_layers = layers;
    assert_false(sp_layout_is_even(&layout));
    assert_int_equal(sp_layout_stages(&layout, &(sp_model){.layers = 40}, "s.json", stages, NULL),
                     SP_OK);
    for (int s = 0; s < 8; s++) {
        assert_int_equal(stages[s].layers, layers[s]);
        assert_int_equal(stages[s].embedding, s == 0);
        assert_int_equal(stages[s].head, s == 7);
    }
    layout.stage_layers = equal;
    assert_true(sp_layout_is_even(&layout));
}

TEST(stated_layers_must_fit)
{
    static const struct {
        int layers[4];
        const char *message;
    } cases[] = {
        {{10, 10, 10, 9}, "s.json: parallel.stage_layers: add up to 39 layers, the model has 40"},
        {{2147483647, 2147483647, 2147483647, 2147483647},
         "s.json: parallel.stage_layers: add up to 8589934588 layers, the model has 40"},
        {{20, -2, 12, 10}, "s.json: parallel.stage_layers[1]: expected at least 0 layers, got -2"},
        {{20, 11, 10, -1}, "s.json: parallel.stage_layers[3]: expected at least 0 layers, got -1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_stage stages[4];
        sp_layout layout = layout_of(1, 1, 4, 1, 1);
        layout.stage_layers = cases[i].layers;
        must_fail(sp_layout_stages(&layout, &(sp_model){.layers = 40}, "s.json", stages, ERR),
                  SP_ERR_CONTENT, cases[i].message);
        assert_int_equal(ERR->count, 1);
    }
}

TEST(checks_report_every_finding)
{
    sp_model model = llama_13b();
    sp_layout good = layout_of(8, 2, 4, 3, 1);
    must_succeed(sp_layout_check(&good, &model, "s.json", ERR));
    assert_int_equal(sp_layout_ranks(&good), 192);

    sp_layout zeros = layout_of(0, 1, 0, 1, 1);
    zeros.zero = 4;
    assert_int_equal(sp_layout_check(&zeros, &model, "s.json", ERR), SP_ERR_CONTENT);
    assert_int_equal(ERR->count, 3);
    assert_string_equal(ERR->message[0],
                        "s.json: parallel.tp: expected an integer from 1 to 1048576, got 0");

    sp_error_clear(ERR);
    sp_layout thirds = layout_of(3, 1, 1, 1, 3); // 40 heads, 40 kv heads; 13824 = 3 * 4608
    thirds.placement = SP_PLACE_V;
    assert_int_equal(sp_layout_check(&thirds, &model, "s.json", ERR), SP_ERR_CONTENT);
    assert_int_equal(ERR->count, 3);
    assert_string_equal(ERR->message[0],
                        "s.json: parallel.tp: 40 attention heads cannot be split over 3 ranks");
    assert_string_equal(
        ERR->message[2],
        "s.json: parallel.chunks_per_rank: the V placement has 2 chunks per rank, got 3");

    sp_error_clear(ERR);
    sp_layout huge = layout_of(1 << 20, 1 << 20, 1 << 20, 1 << 20, 1);
    assert_int_equal(sp_layout_check(&huge, &model, "s.json", ERR), SP_ERR_CONTENT);
}

// tp above kv_heads replicates keys and values and is allowed where it is a multiple.
TEST(grouped_queries_may_be_replicated)
{
    sp_model model;
    assert_int_equal(sp_model_builtin("llama-70b", &model, NULL), SP_OK);
    sp_layout layout = layout_of(16, 1, 1, 1, 1);
    assert_int_equal(sp_layout_check(&layout, &model, "s.json", NULL), SP_OK);
    model.kv_heads = 6;
    model.heads = 48;
    assert_int_equal(sp_layout_check(&layout, &model, "s.json", NULL), SP_ERR_CONTENT);
}
