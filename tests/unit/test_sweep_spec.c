// The condition and the grid of a sweep.
#include <jansson.h>

#include "experiments/sweep/sweep.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

static sp_status read_spec(const char *text, sweep_spec *spec, sp_error *err)
{
    sp_error_clear(err);
    return sweep_spec_from_json(json_document(text), "sweep.json", spec, err);
}

static void must_read(const char *text, sweep_spec *spec)
{
    must_succeed(read_spec(text, spec, ERR));
}

// ---- the condition ----

#define GRID_OF_LAYOUTS                                                                          \
    "{'base': {'model': 'llama-13b', 'parallel': {'dp': 4}, 'workload': {'seed': 3, 'context': " \
    "'8K'}}, "                                                                                   \
    "'grid': {'parallel.tp': [1, 2, 8], 'parallel.pp': [1, 4], 'memory.recompute': "             \
    "['none', 'full'], 'parallel.sequence_parallel': [null, true, false]}"

// The value of a condition for the combination tp 8, pp 4, recompute full, sequence_parallel true.
static sp_status holds(const char *where, bool *value, sp_error *err)
{
    static const int64_t digit[SWEEP_AXES] = {2, 1, 1, 1};
    AUTO(sweep_spec) spec;
    sweep_where *condition = NULL;
    must_read(GRID_OF_LAYOUTS "}", &spec);
    sp_error_clear(err);
    sp_status status =
        sweep_where_parse(where, "sweep.json", "where", &spec.symbols, &condition, err);
    if (status == SP_OK) {
        status = sweep_where_holds(condition, digit, value, err);
    }
    sweep_where_free(condition);
    return status;
}

TEST(where_is_true_or_false)
{
    static const struct {
        const char *text;
        bool value;
    } cases[] = {
        {"tp * pp * dp == 128", true}, // dp of the base
        {"parallel.tp == 8 && parallel.pp == 4", true},
        {"cp == 1 && parallel.cp == 1", true}, // set nowhere
        {"tp == 8 || 1 / 0 == 1", true},       // decided by the left side
        {"tp == 1 && 1 / 0 == 1", false},
        {"recompute == 'full'", true},
        {"recompute != \"full\"", false},
        {"recompute < 'none'", true},
        {"seed == 3", true},
        {"model == 'llama-13b'", true},
        {"sequence_parallel", true},
        {"!sequence_parallel", false},
        {"sequence_parallel == true", true},
        {"sequence_parallel == null", false},
        {"(tp == 8) == 'full'", false}, // of different kinds
        {"recompute == 'FULL' && recompute != 'selective' && model == 'LLaMA_13B'", true},
        {"tp >= 1 && seed >= 0 && tp <= 4096", true}, // whatever they are
        {"tp - pp - 1 == 3", true},
        {"64 / tp / pp == 2", true},
        {"2 + 3 * 4 == 14 && (2 + 3) * 4 == 20", true},
        {"7 % 4 == 3 && -7 % 4 == -3", true}, // sign of the dividend, as in C
        {"1.5e1 == 15 && .5 == 1 / 2", true},
        {"!(tp >= 8) || tp <= 7", false},
        {"(1 < 2) == true", true},
        {" \t( ( tp ) ) ", true},
        {"--1 == 1 && !!tp", true},
        {"context == 8192 && context == '8K' && context == 8K && '8192' == context", true},
        {"context > 8192 || context < 8192 || context != 8k", false},
        {"context <= 128K && context < 1M && 1m == 1048576", true},
        {"2 * context == 16K && context / 1K == 8 && -context == -8192", true},
        {"'8K' == '8192' && '8k' == '8K' && 'K' != 1024", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool value = !cases[i].value;
        sp_status status = holds(cases[i].text, &value, ERR);
        must_hold(status == SP_OK && value == cases[i].value, "%s: %s", cases[i].text,
                  status != SP_OK ? ERR->message[0] : "wrong value");
    }
}

// sweep.txt of the golden cases has whole messages.
TEST(where_errors_name_the_character)
{
    static const struct {
        const char *text;
        int at;
        const char *message;
    } cases[] = {
        {"", 1, "expected a number, a string, a name or '(', got the end"},
        {"tp *", 5, "expected a number"},
        {"(tp", 4, "expected an operator or ')'"},
        {"tp pp", 4, "expected an operator or the end"},
        {"1 < tp < 9", 8, "expected '&&' or '||'"},
        {"'none", 6, "expected the closing quote"},
        {"8Kb", 1, "expected a decimal number, got '8K'"},
        {"12abc", 1, "expected a decimal number, got '12a'"},
        {"0x10", 1, "expected a decimal number, got '0x'"},
        {"1e999", 1, "expected a decimal number, got '1e999'"},
        {"dpx == 1", 1, "unknown name 'dpx' (did you mean 'dp'?)"},
        {"parallel.tpp", 1, "unknown name 'parallel.tpp' (did you mean 'parallel.tp'?)"},
        {"xylophone", 1, "'xylophone' is set neither by the grid nor by the base"},
        {"tp == xylophone", 7, "'xylophone' is set neither by the grid nor by the base; a text"},
        {"1 / (tp - 8)", 3, "division by zero"},
        {"1 % 0", 3, "division by zero"},
        {"recompute < 1", 11, "'<' needs two numbers or two strings, got a number"},
        {"-recompute == 1", 1, "'-' needs a number, got a string"},
        {"recompute && tp", 11, "'&&' needs true, false or a number, got a string"},
        {"recompute", 1, "'where' needs true, false or a number, got a string"},
        // Whatever the points: the table of settings decides.
        {"recompute == 8", 1, "this never holds: 'recompute' is one of \"none\", \"activation\""},
        {"tp == 8 && recompute != 'ful'", 12,
         "this always holds (did you mean 'full'?): 'recompute'"},
        {"100000 < tp", 10, "this never holds: 'tp' is an integer from 1 to 4096"},
        {"tp == 'two'", 1, "this never holds: 'tp' is an integer from 1 to 4096"},
        {"sequence_parallel == 'true'", 1,
         "this never holds (did you mean 'true'?): 'sequence_parallel' is true"},
        {"\x01", 1, "expected a number, a string, a name or '(', got byte 0x01"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char expected[SP_ERROR_TEXT];
        bool value = false;
        snprintf(expected, sizeof expected, "sweep.json: where: character %d: %s", cases[i].at,
                 cases[i].message);
        must_fail_with(holds(cases[i].text, &value, ERR), SP_ERR_CONTENT, expected);
        assert_int_equal(ERR->count, 1);
    }
}

TEST(where_bounds_nesting_and_length)
{
    char text[SWEEP_WHERE_BYTES + 2];
    bool value = false;
    memset(text, '(', sizeof text);
    text[1000] = '\0';
    must_fail_with(holds(text, &value, ERR), SP_ERR_CONTENT, "less nesting");
    memset(text, '!', sizeof text);
    text[1000] = '\0';
    assert_int_equal(holds(text, &value, ERR), SP_ERR_CONTENT);
    // A chain is no nesting.
    for (int i = 0; i < SWEEP_WHERE_BYTES; i++) {
        text[i] = i % 2 == 0 ? '1' : '+';
    }
    text[SWEEP_WHERE_BYTES - 1] = '\0';
    must_succeed(holds(text, &value, ERR));
    memset(text, ' ', sizeof text);
    text[SWEEP_WHERE_BYTES + 1] = '\0';
    assert_int_equal(holds(text, &value, ERR), SP_ERR_CONTENT);
}

typedef enum random_op { OR, AND, EQ, NE, LE, GE, LT, GT, ADD, SUB, MUL, DIV, MOD } random_op;

static double apply(random_op op, double a, double b)
{
    switch (op) {
    case OR:
        return a != 0.0 || b != 0.0;
    case AND:
        return a != 0.0 && b != 0.0;
    case EQ:
        return a >= b && a <= b;
    case NE:
        return a < b || a > b;
    case LE:
        return a <= b;
    case GE:
        return a >= b;
    case LT:
        return a < b;
    case GT:
        return a > b;
    case ADD:
        return a + b;
    case SUB:
        return a - b;
    case MUL:
        return a * b;
    case DIV:
        return a / b;
    case MOD:
        return fmod(a, b);
    }
    return 0.0;
}

// Writes a random expression of a truth value or a number with as few brackets as the grammar
// allows, for a place that binds as tightly as `binds`, and works it out on the way.
static double random_expression(sp_prng *prng, int depth, bool truth, int binds, char *out,
                                size_t room)
{
    static const struct {
        const char *text;
        int binds;
    } operators[] = {{"||", 1}, {"&&", 2}, {"==", 3}, {"!=", 3}, {"<=", 3}, {">=", 3}, {"<", 3},
                     {">", 3},  {"+", 4},  {"-", 4},  {"*", 5},  {"/", 5},  {"%", 5}};
    if (depth == 0 || sp_prng_below(prng, 5) == 0) {
        int number = (int)sp_prng_below(prng, truth ? 2 : 5);
        bool minus = sp_prng_below(prng, 4) == 0;
        if (truth) {
            snprintf(out, room, "%s%s", minus ? "!" : "", number == 1 ? "true" : "false");
            return minus ? 1 - number : number;
        }
        snprintf(out, room, "%s%d", minus ? "-" : "", number);
        return minus ? -number : number;
    }
    random_op op = (random_op)(truth ? sp_prng_below(prng, ADD) : ADD + sp_prng_below(prng, 5));
    int own = operators[op].binds;
    bool of_truths = op == OR || op == AND || (op < LE && sp_prng_below(prng, 2) == 0);
    char left[2048], right[2048];
    // Left-associative, but for comparisons, which need brackets on both sides.
    double a = random_expression(prng, depth - 1, of_truths, own == 3 ? 4 : own, left, sizeof left);
    double b = random_expression(prng, depth - 1, of_truths, own + 1, right, sizeof right);
    if (op >= DIV && apply(EQ, b, 0.0) != 0.0) {
        snprintf(right, sizeof right, "3");
        b = 3.0;
    }
    const char *blank = sp_prng_below(prng, 2) == 0 ? " " : "";
    snprintf(out, room, "%s%s%s%s%s%s%s", own < binds ? "(" : "", left, blank, operators[op].text,
             blank, right, own < binds ? ")" : "");
    return apply(op, a, b);
}

TEST(where_agrees_with_an_independent_evaluation)
{
    sp_prng prng = prng_seeded(20251);
    int trues = 0;
    for (int i = 0; i < 3000; i++) {
        char text[8192];
        bool value = false;
        bool expected = random_expression(&prng, 4, true, 0, text, sizeof text) != 0.0;
        must_hold(holds(text, &value, ERR) == SP_OK && value == expected, "%s", text);
        trues += expected;
    }
    assert_in_range(trues, 500, 2500);
}

TEST(where_names_may_be_ambiguous)
{
    AUTO(sweep_spec) spec;
    must_fail(read_spec("{'base': {'a': {'kind': 1}, 'b': {'kind': 2}}, 'grid': {}, "
                        "'where': 'kind == 1'}",
                        &spec, ERR),
              SP_ERR_CONTENT, "sweep.json: where: character 1: 'kind' may be 'a.kind' or 'b.kind'");
    must_read("{'base': {'a': {'kind': 1}, 'b': {'kind': 2}}, 'grid': {}, "
              "'where': 'a.kind == 1 && b.kind == 2'}",
              &spec);
    int64_t points = 0;
    must_succeed(sweep_spec_count(&spec, &points, ERR));
    assert_int_equal(points, 1);
}

// ---- the grid ----

// Those of which no golden case has the message.
TEST(spec_errors)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"[]", "expected an object, got []"},
        {"{'grid': {}}", "key 'base' is missing"},
        {"{'base': {}}", "key 'grid' is missing"},
        {"{'base': {}, 'grid': {'parallel.tp': []}}", "grid.parallel.tp: expected an array of 1"},
        {"{'base': {}, 'grid': {'cluster.nics_per_node': [1], 'cluster': ['h100-8']}}",
         "grid.cluster.nics_per_node: lies inside 'cluster'"},
        {"{'base': {'model': 'llama-13b'}, 'grid': {'model.name': ['llama-7b']}}",
         "grid.model.name: is only what a model is called"},
        {"{'base': {'model': 'lama-13b'}, 'grid': {'model.layers': [8]}}",
         "base: unknown model 'lama-13b' (did you mean 'llama-13b'?)"},
        {"{'base': {'cluster': 'h101-8'}, 'grid': {'cluster.nics_per_node': [8]}}",
         "base: unknown cluster 'h101-8' (did you mean 'h100-8'?)"},
        {"{'base': {}, 'grid': {'cluster.nics_per_node': [1], 'profile': ['h100']}}",
         "grid.cluster.nics_per_node: lies inside the cluster of a profile"},
        {"{'base': {}, 'grid': {}, 'where': 3}", "where: expected a string, got 3"},
        {"{'base': {}, 'grid': {'parallel.tp': [2, 1, 2]}}", "grid.parallel.tp: has 2 twice"},
        {"{'base': {}, 'grid': {'workload': [{'context': 8192}, {'context': '8K'}]}}",
         "grid.workload: has {\"context\":8192} and {\"context\":\"8K\"}, which are one value"},
        {"{'base': {}, 'grid': {'memory.recompute': ['attention', 'Selective']}}",
         "grid.memory.recompute: has \"attention\" and \"Selective\", which are one value"},
        {"{'base': {}, 'grid': {'strategy.kind': ['dp-balanced', 'DP_balanced']}}",
         "grid.strategy.kind: has \"dp-balanced\" and \"DP_balanced\", which are one value"},
        {"{'base': {}, 'grid': {'model': ['llama-7b', 'LLaMA-7B']}}",
         "grid.model: has \"llama-7b\" and \"LLaMA-7B\", which are one value"},
        {"{'base': {}, 'grid': {'memory.offload_ratio': [1, 1.0]}}",
         "grid.memory.offload_ratio: has 1 and 1.0, which are one value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char expected[SP_ERROR_TEXT];
        sweep_spec spec;
        snprintf(expected, sizeof expected, "sweep.json: %s", cases[i].message);
        must_fail_with(read_spec(cases[i].text, &spec, ERR), SP_ERR_CONTENT, expected);
    }
}

// What a point sets inside a name is what --set would, in whichever order the axes come.
TEST(axes_reach_into_names)
{
    static const char *const bases[] = {
        "{'model': 'llama-13b', 'cluster': 'a100-8', 'stack': 'megatron-core-2024'}",
        "{'model': 'llama3-70b', 'cluster': {'name': 'h100-8'}, 'stack': {'name': 'fsdp-2024'}}",
        "{'model': {'layers': 3}}",
        "{'model': 'gpt-175b', 'profile': 'a100'}",
    };
    static const char *const axes[] = {
        "'cluster.nics_per_node': [1, 4]",
        "'model.layers': [8, 16]",
        "'stack.hide_forward_gather': [true, false]",
    };
    for (size_t i = 0; i < sizeof bases / sizeof bases[0] * 3; i++) {
        char text[512];
        AUTO(sweep_spec) spec;
        snprintf(text, sizeof text, "{'base': %s, 'grid': {%s, %s, %s}}", bases[i / 3], axes[i % 3],
                 axes[(i + 1) % 3], axes[(i + 2) % 3]);
        must_read(text, &spec);
        for (int64_t combination = 0; combination < spec.combinations; combination++) {
            int64_t digit[SWEEP_AXES];
            json_auto_t *expected = json_document(bases[i / 3]);
            sweep_spec_digits(&spec, combination, digit);
            json_auto_t *found = sweep_spec_scenario(&spec, spec.document, digit);
            for (int a = 0; a < spec.axis_count; a++) {
                AUTO_FREE char *value = json_dumps(
                    json_array_get(spec.axes[a].values, (size_t)digit[a]), JSON_ENCODE_ANY);
                snprintf(text, sizeof text, "%s=%s", spec.axes[a].path, value);
                must_succeed(sp_scenario_override(expected, text, ERR));
            }
            assert_true(json_equal(found, expected));
        }
    }
}

// Sixteen axes of ten values are 1e16 combinations, more than a number of JSON holds exactly.
TEST(spec_bounds_the_combinations)
{
    char text[2048] = "{'base': {}, 'grid': {";
    for (int a = 0; a < 16; a++) {
        const char *axis =
            json_text("%s'k%d': [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]", a > 0 ? ", " : "", a);
        strcat(text, axis);
    }
    strcat(text, "}}");
    sweep_spec spec;
    assert_int_equal(read_spec(text, &spec, ERR), SP_ERR_LIMIT);
}

TEST(scenario_of_a_point_leaves_the_base_alone)
{
    static const int64_t digit[SWEEP_AXES] = {1, 0, 1};
    AUTO(sweep_spec) spec;
    must_read("{'base': {'model': 'm', 'parallel': {'tp': 3, 'dp': 5}, 'memory': null}, 'grid': "
              "{'parallel.tp': [1, 2], 'memory.recompute': ['full'], 'model': ['a', {'layers': "
              "4}]}}",
              &spec);
    AUTO_FREE char *before = json_dumps(spec.document, JSON_COMPACT);
    json_auto_t *scenario = sweep_spec_scenario(&spec, spec.document, digit);
    json_auto_t *point = sweep_spec_point(&spec, digit);
    json_auto_t *expected =
        json_document("{'model': {'layers': 4}, 'parallel': {'tp': 2, 'dp': 5}, "
                      "'memory': {'recompute': 'full'}}");
    json_auto_t *expected_point =
        json_document("{'parallel.tp': 2, 'memory.recompute': 'full', 'model': {'layers': 4}}");
    assert_true(json_equal(scenario, expected));
    assert_true(json_equal(point, expected_point));
    AUTO_FREE char *after = json_dumps(spec.document, JSON_COMPACT);
    assert_string_equal(before, after);
}

// Objects as values: the condition sees what is inside them, and 1 for a missing tp.
TEST(axes_may_hold_objects)
{
    AUTO(sweep_spec) spec;
    int64_t points = 0;
    must_read("{'base': {'parallel': {'tp': 64}}, 'grid': {'parallel': [{'tp': 2, 'pp': 4}, {'pp': "
              "8}, {'tp': 8}]}, 'where': 'tp * pp * dp == 8'}",
              &spec);
    must_succeed(sweep_spec_count(&spec, &points, ERR));
    assert_int_equal(points, 3);
}
