// Pages of results: what the block of data holds is what the documents say.
#include "experiments/report/report.h"
#include "sim/base/json.h"
#include "tests/support/scenario_run.h"
#include "tests/support/test_main.h"

typedef struct made {
    report_inputs inputs;
    report_page page;
} made;

static sp_status make(made *m, char *const *paths, int count, sp_error *err)
{
    *m = (made){0};
    sp_status status = report_inputs_read(paths, count, &m->inputs, err);
    return status == SP_OK ? report_page_init(&m->page, &m->inputs, NULL, err) : status;
}

static void made_fini(made *m)
{
    report_page_fini(&m->page);
    report_inputs_fini(&m->inputs);
}

static char *page_text(const made *m)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    must_succeed(report_page_write(file, &m->page, ERR));
    long bytes = ftell(file);
    char *text = sp_malloc((size_t)bytes + 1);
    rewind(file);
    assert_int_equal(fread(text, 1, (size_t)bytes, file), (size_t)bytes);
    text[bytes] = '\0';
    fclose(file);
    return text;
}

// The block of data of a page.
static json_t *page_data(const made *m)
{
    static const char opens[] = "<script type=\"application/json\" id=\"data\">";
    AUTO_FREE char *text = page_text(m);
    const char *from = strstr(text, opens);
    assert_non_null(from);
    from += strlen(opens);
    const char *to = strstr(from, "</script>");
    assert_non_null(to);
    json_t *data = NULL;
    must_succeed(sp_json_read_text(from, (size_t)(to - from), "page", &data, ERR));
    return data;
}

// The data is that of a text in JSON with ' in the place of ".
static void holds(const json_t *found, const char *text)
{
    json_auto_t *expected = json_document(text);
    assert_true(json_equal(found, expected));
}

// Two actions out of order, 1.5 us and 0.25 us long; two points of memory.
static const char trace[] =
    "{\"traceEvents\": [{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 7, \"tid\": 0, "
    "\"args\": {\"name\": \"dp0 pp7\"}},{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 7, "
    "\"tid\": 1, \"args\": {\"name\": \"compute\"}},{\"name\": \"B0\", \"cat\": \"backward\", "
    "\"ph\": \"X\", \"ts\": 2.5, \"dur\": 1.5, \"pid\": 7, \"tid\": 1, \"args\": {\"pack\": 0, "
    "\"waited_for\": \"B0 of dp0 pp8\"}},{\"name\": \"F0\", \"cat\": \"forward\", \"ph\": \"X\", "
    "\"ts\": 0.125, \"dur\": 0.25, \"pid\": 7, \"tid\": 1},{\"name\": \"other\", \"ph\": \"i\", "
    "\"ts\": 1, \"pid\": 7, \"tid\": 1},{\"name\": \"memory GiB\", \"ph\": \"C\", \"ts\": 1, "
    "\"pid\": 7, \"args\": {\"a\": 1.5, \"b\": 0, \"c\": 0.25}},{\"name\": \"memory GiB\", \"ph\": "
    "\"C\", \"ts\": 3, \"pid\": 7, \"args\": {\"a\": 0.5, \"b\": 2, \"c\": 0.25}}]}";

static char trace_path[] = "trace.json";
static char result_path[] = "result.json";
static char plan_path[] = "plan.json";

TEST(columns_hold_what_the_trace_says)
{
    char *const paths[] = {trace_path};
    AUTO(made) m;
    put_file(trace_path, trace);
    must_succeed(make(&m, paths, 1, ERR));
    json_auto_t *data = page_data(&m);
    const json_t *timeline = json_array_get(json_object_get(data, "timelines"), 0);
    const json_t *rank = json_array_get(json_object_get(timeline, "ranks"), 0);
    const json_t *lane = json_array_get(json_object_get(rank, "lanes"), 0);
    assert_string_equal(json_string_value(json_object_get(rank, "name")), "dp0 pp7");
    assert_string_equal(json_string_value(json_object_get(lane, "name")), "compute");
    // In order of time, nanoseconds; each start but the first as a difference.
    holds(json_object_get(lane, "start"), "[125, 2375]");
    holds(json_object_get(lane, "duration"), "[250, 1500]");
    holds(json_object_get(lane, "action"), "[1, 0]");
    holds(json_object_get(timeline, "names"), "['B0', 'F0']");
    // The second waited for the first name of the causes.
    holds(json_object_get(lane, "causes"), "[1, 0]");
    holds(json_object_get(timeline, "causes"), "['B0 of dp0 pp8']");
    // The third key never changes.
    const json_t *memory = json_array_get(json_object_get(rank, "memory"), 0);
    holds(json_object_get(memory, "kib"), "[[1572864, -1048576], [0, 2097152], [262144]]");
}

static sp_status read_bytes(const char *text, size_t bytes, report_input *input, sp_error *err)
{
    FILE *file = fmemopen((void *)text, bytes, "r");
    assert_non_null(file);
    *input = (report_input){.path = "text"};
    sp_error_clear(err);
    sp_status status = report_input_read(input, file, err);
    fclose(file);
    return status;
}

static sp_status read_text(const char *text, report_input *input, sp_error *err)
{
    return read_bytes(text, strlen(text), input, err);
}

static void drop_input(report_input *input)
{
    json_decref(input->json);
    report_timeline_free(input->timeline);
}

// Members may come in any order, and hold anything; a number's end is found by what follows it.
TEST(events_are_taken_out_of_any_document)
{
#define EVENT "{\"ph\": \"X\", \"name\": \"F0\", \"ts\": 1, \"dur\": 2}"
    static const struct {
        const char *text;
        int64_t actions;
    } good[] = {
        {"{\"traceEvents\":[]}", 0},
        {" {\"a\":1.5,\"traceEvents\" : [ " EVENT " , " EVENT "]\n}\n", 2},
        {"{\"a\":-7 ,\"b\":true,\"traceEvents\":[" EVENT "],\"c\":null}", 1},
        {"{\"a\":{\"b\":[1,2]},\"traceEvents\":[" EVENT "],\"c\":\"]}\",\"d\":1e3}", 1},
    };
    static const char *const wrong[] = {
        "",
        "{",
        "{\"traceEvents\"",
        "{\"traceEvents\":",
        "{\"traceEvents\":[",
        "{\"traceEvents\":[" EVENT,
        "{\"traceEvents\":[" EVENT "}",
        "{\"traceEvents\":[" EVENT ",]}",
        "{\"traceEvents\":[" EVENT "]",
        "{\"traceEvents\":[" EVENT "],}",
        "{\"traceEvents\":[" EVENT "]]",
        "{\"traceEvents\":[" EVENT "]} 1",
        "{\"traceEvents\":[" EVENT " " EVENT "]}",
        "{\"traceEvents\":[],\"traceEvents\":[]}",
        "{\"a\":1,\"traceEvents\":[],\"a\":2}",
        "{\"a\" 1,\"traceEvents\":[]}",
        "{a:1,\"traceEvents\":[]}",
    };
    static const char zero[] = "{\"a\":1\0,\"traceEvents\":[" EVENT "]}";
    report_input input;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        must_succeed_for(good[i].text, read_text(good[i].text, &input, ERR));
        assert_int_equal(input.kind, REPORT_TRACE);
        assert_int_equal(report_timeline_extent(input.timeline).actions, good[i].actions);
        drop_input(&input);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(read_text(wrong[i], &input, ERR), SP_ERR_SYNTAX);
        assert_int_equal(ERR->count, 1);
        drop_input(&input);
    }
    assert_int_equal(read_bytes(zero, sizeof zero - 1, &input, ERR), SP_ERR_SYNTAX);
    drop_input(&input);
    // With a schema the document is what the schema says.
    must_succeed(read_text(
        "{\"schema\":\"slimpack/result/1\",\"iteration_ms\":2,\"traceEvents\":[7]}", &input, ERR));
    assert_int_equal(input.kind, REPORT_RESULT);
    drop_input(&input);
    must_fail(read_text("{\"traceEvents\":[" EVENT ",7]}", &input, ERR), SP_ERR_CONTENT,
              "text: traceEvents[1]: expected an object, got 7");
    drop_input(&input);
}

TEST(packs_hold_the_ids_of_their_samples)
{
    char *const paths[] = {plan_path};
    AUTO(made) m;
    put_file(
        plan_path,
        "{\"schema\": \"slimpack/plan/1\", \"batches\": [{\"samples\": [{\"id\": 40, \"tokens\": "
        "5}, {\"id\": 41, \"tokens\": 6}], \"forward_packs\": [{\"slices\": [{\"sample\": 1, "
        "\"tokens\": 6}, {\"sample\": 0, \"tokens\": 5}]}], \"backward_packs\": []}]}");
    must_succeed(make(&m, paths, 1, ERR));
    json_auto_t *data = page_data(&m);
    const json_t *plan =
        json_object_get(json_array_get(json_object_get(data, "inputs"), 0), "document");
    const json_t *batch = json_array_get(json_object_get(plan, "batches"), 0);
    const json_t *pack = json_array_get(json_object_get(batch, "forward"), 0);
    holds(pack, "[2, 11, 41, 40]"); // slices, tokens, ids
}

TEST(texts_are_read_back_as_they_were)
{
    static const char text[] = "</script><!-- & \xc3\xa9 \" ' \\\x1b[2J\n";
    char *const paths[] = {result_path};
    AUTO(made) m;
    json_auto_t *result = json_pack("{s:s, s:f, s:s}", "schema", "slimpack/result/1",
                                    "iteration_ms", 1.5, "strategy", text);
    AUTO_FREE char *dumped = json_dumps(result, 0);
    assert_non_null(dumped);
    put_file(result_path, dumped);
    must_succeed(make(&m, paths, 1, ERR));
    json_auto_t *data = page_data(&m);
    json_t *document =
        json_object_get(json_array_get(json_object_get(data, "inputs"), 0), "document");
    json_object_set_new(result, "expected_ms", json_real(1.5));
    json_object_set_new(result, "risk", json_string(""));
    assert_true(json_equal(document, result));
    AUTO_FREE char *page = page_text(&m);
    assert_non_null(strstr(page, "<p id=\"answer\">&lt;/script&gt;&lt;!-- &amp; \xc3\xa9 &quot;"));
    assert_non_null(strstr(page, "&#xfffd;[2J&#xfffd;"));
    assert_null(strchr(page, '\x1b'));
}

// The first line of the page of one document.
static void answers(const char *document, const char *expected)
{
    char *const paths[] = {result_path};
    char answer[REPORT_ANSWER];
    AUTO(made) m;
    put_file(result_path, document);
    must_succeed(make(&m, paths, 1, ERR));
    assert_string_equal(report_answer(&m.page, answer), expected);
}

// A result of before results said their layout does not.
TEST(the_answer_tells_the_layout_and_the_limit)
{
    static const struct {
        const char *key, *layout;
    } cases[] = {
        {"", ""},
        {", \"layout\": {\"tp\": 2, \"cp\": 4, \"pp\": 4, \"dp\": 2, \"chunks\": 1}",
         ", tp 2, cp 4, pp 4, dp 2"},
        {", \"layout\": {\"tp\": \"two\"}", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        char expected[REPORT_ANSWER];
        snprintf(
            text, sizeof text,
            "{\"schema\": \"slimpack/result/1\", \"strategy\": \"packed\", \"schedule\": \"1f1b\", "
            "\"iteration_ms\": 20500, \"error\": {\"median\": 0.011}, \"tokens_per_s\": 512, "
            "\"tokens_per_gpu_s\": 8, \"peak_memory_gib\": 70, \"peak_memory_reserved_gib\": 75.5, "
            "\"memory_margin_gib\": 1.5, \"fits\": \"tight\"%s}",
            cases[i].key);
        snprintf(expected, sizeof expected,
                 "packed, 1f1b%s: 20.50 s \xc2\xb1"
                 "1.1 %%, 70.00 of 77.00 GiB, fits tightly",
                 cases[i].layout);
        answers(text, expected);
    }
}

// As a sweep ranks its points: a step that fits tightly runs slower than predicted. Peak and margin
// of the first line are of blocks: 75.5 + 1.5 GiB.
#define SWEPT(tp, ms, fits, more)                                                        \
    "{\"point\": {\"parallel.tp\": " #tp "}, \"status\": \"ok\", \"iteration_ms\": " #ms \
    ", \"peak_memory_gib\": 70, \"fits\": \"" fits "\"" more "}\n"

TEST(points_of_other_work_are_no_rivals)
{
    answers("{\"point\": {\"workload.context\": 8192, \"parallel.tp\": 1}, \"iteration_ms\": 40}\n"
            "{\"point\": {\"workload.context\": 4096, \"parallel.tp\": 1}, \"iteration_ms\": 30}\n"
            "{\"point\": {\"workload.context\": 8192, \"parallel.tp\": 2}, \"iteration_ms\": 50}\n",
            "fastest of 3 points: one step, context 8192, tp 1: 40.0 ms; one step, context 4096, "
            "tp 1: 30.0 ms");
}

TEST(tight_points_come_behind_all_others)
{
    answers(SWEPT(1, 20, "tight", "") SWEPT(2, 30, "yes", ", \"not_validated\": \"no such step\""),
            "fastest of 2 points: one step, tp 2: 30.0 ms (error not validated), 70.00 GiB, fits");
    answers(
        SWEPT(1, 20, "tight", ", \"peak_memory_reserved_gib\": 75.5, \"memory_margin_gib\": 1.5")
            SWEPT(2, 30, "tight", ""),
        "fastest of 2 points: one step, tp 1: 20.0 ms, 70.00 of 77.00 GiB, fits tightly");
    answers(SWEPT(1, 20, "tight",
                  ", \"peak_memory_reserved_gib\": 80, \"memory_margin_gib\": -3, "
                  "\"fit_probability\": 0.4"),
            "fastest of 1 point: one step, tp 1: 20.0 ms, 70.00 of 77.00 GiB, may not fit");
    answers(SWEPT(1, 20, "yes", ", \"over_length_share\": 0.335"),
            "fastest of 1 point: one step, tp 1: 20.0 ms, 33.5 % of tokens over the context, 70.00 "
            "GiB, fits");
    answers(SWEPT(1, 20, "yes", ", \"error\": {\"median\": 0.02}") SWEPT(2, 10, "tight", ""),
            "fastest of 2 points: one step, tp 1: 20.0 ms \xc2\xb1"
            "2.0 %, 70.00 GiB, fits");
}

// As a sweep ranks them: by time over the chance that a step runs, which 0.95 and more is certain.
TEST(points_are_ranked_by_the_chance_that_they_run)
{
    answers(SWEPT(1, 90, "yes", ", \"fit_probability\": 0.76")
                SWEPT(2, 100, "yes", ", \"fit_probability\": 0.95"),
            "fastest of 2 points: one step, tp 2: 100.0 ms, 70.00 GiB, fits");
    answers(SWEPT(1, 75, "yes", ", \"fit_probability\": 0.76")
                SWEPT(2, 100, "yes", ", \"fit_probability\": 0.99"),
            "fastest of 2 points: one step, tp 1: 75.0 ms, 70.00 GiB, fits, runs with probability "
            "0.76");
    answers("{\"schema\": \"slimpack/comparison/1\", \"rows\": [{\"strategy\": \"packed\", "
            "\"status\": \"ok\", \"iteration_ms\": 90, \"tokens_per_s\": 1000, "
            "\"fit_probability\": 0.5}, {\"strategy\": \"bfd\", \"status\": \"ok\", "
            "\"iteration_ms\": 100, \"tokens_per_s\": 900, \"peak_memory_gib\": 70, "
            "\"fit_probability\": 0.72}]}",
            "fastest of 2: bfd: 100.0 ms, 70.00 GiB, runs with probability 0.72");
    answers("{\"schema\": \"slimpack/result/1\", \"strategy\": \"packed\", \"iteration_ms\": 5, "
            "\"peak_memory_gib\": 78, \"fits\": \"no\", \"fit_probability\": 0}",
            "packed: 5.000 ms, 78.00 GiB, does not fit");
}

TEST(a_comparison_that_was_stopped_tells_of_the_rows_that_it_knows)
{
    answers("{\"schema\": \"slimpack/comparison/1\", \"baseline\": \"packed\", \"stopped\": true, "
            "\"rows\": [{\"strategy\": \"packed\", \"status\": \"oom\", \"iteration_ms\": 90}, "
            "{\"strategy\": \"bfd\", \"status\": \"ok\", \"stopped\": true, "
            "\"iteration_ms\": 100}, {\"strategy\": \"ffd\", \"status\": \"stopped\", "
            "\"iteration_ms\": null}]}",
            "stopped: 1 of 3 strategies complete, 1 in part, 1 not tried; fastest of those known: "
            "bfd: 100.0 ms");
}

TEST(a_row_that_does_not_fit_is_no_baseline)
{
    answers("{\"schema\": \"slimpack/comparison/1\", \"baseline\": \"packed\", "
            "\"baseline_oom\": true, \"rows\": [{\"strategy\": \"packed\", \"status\": \"oom\", "
            "\"iteration_ms\": 90}, {\"strategy\": \"bfd\", \"status\": \"ok\", "
            "\"iteration_ms\": 100, \"speedup\": null}]}",
            "fastest of 2: bfd: 100.0 ms, no speed-up over packed, which is out of memory");
}

// What is hidden does not follow the rest; what is held to the last byte of the limit fits.
TEST(the_answer_tells_what_limits_generated_text)
{
    answers("{\"schema\": \"slimpack/decode/1\", \"method\": \"eagle\", \"tokens_per_s\": 640.4, "
            "\"speedup_over_plain\": 2.5, \"speedup_over_eagle\": 1, \"step_ms\": 20, "
            "\"step_time_ms\": {\"draft\": 12, \"verify\": 8, \"host\": 5, \"graph_miss\": 15, "
            "\"hidden\": 20}, \"memory_gib\": {\"parameters\": 15, \"draft\": 1, \"kv_cache\": 4, "
            "\"limit\": 20}}",
            "eagle: 640 tokens/s (error not validated), 2.50x plain decoding, 1.00x EAGLE's trees, "
            "a step in 20.0 ms; a missing graph takes 75.0 % of it, 20.00 of 20.00 GiB, fits");
    answers("{\"schema\": \"slimpack/decode/1\", \"method\": \"plain\", \"tokens_per_s\": 50, "
            "\"speedup_over_plain\": 1, \"speedup_over_eagle\": null, \"step_ms\": 20000, "
            "\"step_time_ms\": {\"draft\": 0, \"verify\": 20000}, \"memory_gib\": {\"parameters\": "
            "15, \"kv_cache\": 5.5, \"limit\": 20}}",
            "plain: 50 tokens/s (error not validated), a step in 20.00 s; verification takes 100.0 "
            "% of it, 20.50 of 20.00 GiB, does not fit");
}

TEST(the_answer_tells_what_limits_prompts)
{
    answers("{\"schema\": \"slimpack/prefill/1\", \"ttft_ms\": 9, \"speedup\": 1.5, \"prompts\": "
            "[{}], \"attention\": {\"method\": \"sample\"}, \"time_breakdown_ms\": {\"linear\": 3, "
            "\"attention\": 1, \"tp_comm\": 4}, \"memory_gib\": {\"parameters\": 2, \"kv_cache\": "
            "1, \"limit\": 8, \"fits\": true}}",
            "first token: 9.000 ms (error not validated), 1.50x as fast as with dense attention, "
            "attention sample; tp takes 50.0 % of it, 3.00 of 8.00 GiB, fits");
}

TEST(executed_actions_tell_what_they_waited_for)
{
    char *const paths[] = {result_path};
    AUTO(made) m;
    put_file(result_path,
             "{\"schema\": \"slimpack/result/1\", \"iteration_ms\": 1, \"execution\": "
             "{\"batches\": [{\"ranks\": [{\"dp\": 0, \"pp\": 1, \"actions\": [[\"F0\", 1, 2, "
             "\"F0 of dp0 pp0\"], [\"B0\", 2, 4]], \"copies\": []}]}]}}");
    must_succeed(make(&m, paths, 1, ERR));
    json_auto_t *data = page_data(&m);
    const json_t *timeline = json_array_get(json_object_get(data, "timelines"), 0);
    const json_t *rank = json_array_get(json_object_get(timeline, "ranks"), 0);
    const json_t *lane = json_array_get(json_object_get(rank, "lanes"), 0);
    holds(json_object_get(lane, "causes"), "[0, 0]"); // action 0 waited for cause 0
    holds(json_object_get(timeline, "causes"), "['F0 of dp0 pp0']");
}

// ---- the head ----

TEST(the_title_tells_model_and_gpus)
{
    static const struct {
        const char *document, *title;
    } cases[] = {
        {"{'schema': 'slimpack/result/1', 'iteration_ms': 1, 'model': {'name': 'm'}, 'layout': "
         "{'tp': 2, 'cp': 3, 'pp': 5, 'dp': 7}}",
         "m on 210 GPUs"},
        {"{'schema': 'slimpack/result/1', 'iteration_ms': 1, 'model': {'name': 'm'}, 'layout': "
         "{'tp': 1, 'cp': 1, 'pp': 1, 'dp': 1}}",
         "m on 1 GPU"},
        {"{'schema': 'slimpack/result/1', 'iteration_ms': 1, 'model': {'name': 'm'}}", "m"},
        {"{'schema': 'slimpack/result/1', 'iteration_ms': 1}", "One step"},
        {"{'schema': 'slimpack/tune/1', 'question': {'model': 'm', 'gpus': 12, 'gpu': 'H100'}, "
         "'answer': {}, 'top': []}",
         "m on 12 H100 GPUs"},
        {"{'schema': 'slimpack/sweep-summary/1', 'points': 9, 'best': []}", "Sweep of 9 points"},
        {"{'point': {'parallel.tp': 1}, 'status': 'oom'}", "Sweep of 1 point"},
        // A sweep says the base of its grid: which model, and the GPU of a cluster that it names.
        {"{'schema': 'slimpack/sweep-summary/1', 'points': 9, 'settings': {'model': 'm', "
         "'cluster': "
         "'h100-8'}, 'best': [{'point': {'parallel.tp': 2}, 'tp': 2, 'cp': 3, 'pp': 5, 'dp': 7}]}",
         "m on 210 H100 GPUs: sweep of 9 points"},
        {"{'schema': 'slimpack/sweep-summary/1', 'points': 1, 'settings': {'model': {'layers': 2}, "
         "'cluster': {'gpu': 'G'}}, 'best': [{'point': {'parallel.tp': 1}, 'tp': 1, 'cp': 1, 'pp': "
         "1, 'dp': 1}, {'point': {'parallel.tp': 8}, 'tp': 8, 'cp': 1, 'pp': 1, 'dp': 1}]}",
         "custom on 1 to 8 G GPUs: sweep of 1 point"},
        // What the grid changes is not of all points.
        {"{'schema': 'slimpack/sweep-summary/1', 'points': 2, 'settings': {'model': 'm'}, 'best': "
         "[{'point': {'model': 'n'}, 'tp': 1, 'cp': 1, 'pp': 1, 'dp': 1}]}",
         "Sweep of 2 points"},
        {"{'schema': 'slimpack/sweep-summary/1', 'points': 2, 'settings': {'model': 'm', "
         "'cluster': "
         "'h100-8'}, 'best': [{'point': {'cluster': 'a100-8'}, 'tp': 4, 'cp': 1, 'pp': 1, 'dp': "
         "1}]}",
         "m on 4 GPUs: sweep of 2 points"},
        {"{'point': {'parallel.tp': 1}, 'status': 'oom', 'settings': {'model': {'name': 'm'}}}",
         "m: sweep of 1 point"},
        {"{'point': {'parallel.tp': 1}, 'status': 'oom', 'settings': 7}", "Sweep of 1 point"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *const paths[] = {result_path};
        char title[REPORT_TITLE];
        AUTO(made) m;
        json_auto_t *json = json_document(cases[i].document);
        AUTO_FREE char *text = json_dumps(json, 0);
        put_file(result_path, text);
        must_succeed(make(&m, paths, 1, ERR));
        assert_string_equal(report_title(&m.page, title), cases[i].title);
    }
}

// Launches are a part of computing, and a full memory takes time that no part tells.
TEST(parts_add_up_to_the_step)
{
    static const struct {
        const char *result, *parts;
    } cases[] = {
        {"{'iteration_ms': 10, 'time_breakdown_ms': {'compute': 6, 'launch': 1, 'bubble': 4}}",
         "{'compute': 5.0, 'launch': 1.0, 'bubble': 4.0}"},
        {"{'iteration_ms': 12, 'memory_stall_ms': 2, 'time_breakdown_ms': {'compute': 6, 'launch': "
         "0, 'bubble': 4}}",
         "{'compute': 6.0, 'launch': 0.0, 'bubble': 4.0, 'allocator': 2.0}"},
        {"{'iteration_ms': 12, 'time_breakdown_ms': {'compute': 6, 'bubble': 4}}",
         "{'compute': 6.0, 'bubble': 4.0, 'not told': 2.0}"},
        {"{'iteration_ms': null, 'time_breakdown_ms': {'compute': 6}}", NULL},
        {"{'iteration_ms': 3, 'time_breakdown_ms': [3]}", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_auto_t *result = json_document(cases[i].result);
        report_add_parts(result);
        const json_t *parts = json_object_get(result, "parts_ms");
        if (cases[i].parts == NULL) {
            assert_null(parts);
        } else {
            holds(parts, cases[i].parts);
            assert_true(report_sum(parts) == report_number(result, "iteration_ms"));
        }
    }
}

static json_t *head_of(const char *document)
{
    char *const paths[] = {result_path};
    AUTO(made) m;
    json_auto_t *json = json_document(document);
    AUTO_FREE char *text = json_dumps(json, 0);
    put_file(result_path, text);
    must_succeed(make(&m, paths, 1, ERR));
    return report_head_json(&m.page);
}

static const char *command_at(const json_t *head, size_t i)
{
    return report_string(json_array_get(json_object_get(head, "next"), i), "command");
}

TEST(commands_state_what_was_found)
{
    json_auto_t *head =
        head_of("{'point': {'parallel.tp': 4, 'model': 'my model', 'workload.seed': "
                "2}, 'status': 'ok', 'iteration_ms': 7}");
    assert_string_equal(command_at(head, 0), "slimpack simulate SCENARIO --set parallel.tp=4 --set "
                                             "'model=my model' --set workload.seed=2 --timeline");
    json_decref(head);
    head = head_of("{'schema': 'slimpack/comparison/1', 'rows': [{'strategy': 'packed', 'status': "
                   "'ok', 'iteration_ms': 9}, {'strategy': 'bfd', 'status': 'ok', 'iteration_ms': "
                   "8, 'best': {'parallel.tp': 2}}]}");
    assert_string_equal(command_at(head, 0), "slimpack simulate SCENARIO --set strategy.kind=bfd "
                                             "--set parallel.tp=2 --timeline");
    json_decref(head);
    head = head_of("{'schema': 'slimpack/comparison/1', 'rows': [{'strategy': 'packed', "
                   "'schedule': '1f1b', 'status': 'ok', 'iteration_ms': 9}, {'strategy': 'packed', "
                   "'schedule': 'zb-v', 'status': 'ok', 'iteration_ms': 8}]}");
    assert_string_equal(command_at(head, 0),
                        "slimpack simulate SCENARIO --set schedule.kind=zb-v --timeline");
    json_decref(head);
    head = head_of("{'schema': 'slimpack/tune/1', 'answer': {}, 'top': [], 'go_on': 'slimpack x'}");
    assert_string_equal(command_at(head, 0), "slimpack x");
}

// ---- sliders ----

static char scenario_path[] = "sliders.json";

// Reserved memory and stalls depend on what fits, so that all outcomes are met: 4 to 64 GPUs.
static const char slider_scenario[] =
    "{'model': 'llama-7b', 'cluster': 'a100-8', 'nodes': 2, 'parallel': {'tp': 4, 'pp': 2, 'dp': "
    "2}, 'workload': {'lengths': 'wikipedia', 'context': 8192, 'samples_per_batch': 24, 'batches': "
    "2, 'seed': 5}}";

static json_t *sliders_json(const report_sliders *sliders)
{
    AUTO_FREE char *text = NULL;
    size_t bytes;
    sp_writer out;
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    sp_writer_init(&out, file);
    report_sliders_write(&out, sliders);
    must_succeed(sp_writer_finish(&out, "sliders", ERR));
    assert_int_equal(fclose(file), 0);
    json_t *json = NULL;
    must_succeed(sp_json_read_text(text, bytes, "sliders", &json, ERR));
    return json;
}

static report_sliders *make_sliders(int64_t points, double seconds, int threads)
{
    json_auto_t *json = json_document(slider_scenario);
    AUTO_FREE char *text = json_dumps(json, 0);
    put_file(scenario_path, text);
    const report_slider_options options = {.path = scenario_path,
                                           .threads = threads,
                                           .points = points,
                                           .seconds = seconds,
                                           .quiet = true};
    report_sliders *sliders = NULL;
    must_succeed(report_sliders_new(&options, &sliders, ERR));
    return sliders;
}

// What `simulate` finds with the settings of a position stated. Only the evaluation may fail.
static sp_status simulate_at(const json_t *sliders, size_t at, sp_result *result)
{
    enum { OVERRIDES = 6, LONGEST = 64 };
    char text[OVERRIDES][LONGEST];
    const char *overrides[OVERRIDES];
    const json_t *axes = json_object_get(sliders, "axes");
    size_t left = at;
    for (size_t a = json_array_size(axes); a-- > 0;) {
        const json_t *axis = json_array_get(axes, a);
        const json_t *values = json_object_get(axis, "values");
        const json_t *value = json_array_get(values, left % json_array_size(values));
        if (a == 0) {
            snprintf(text[a], LONGEST, "nodes=%lld",
                     (long long)json_integer_value(json_array_get(json_object_get(axis, "nodes"),
                                                                  left % json_array_size(values))));
        } else if (json_is_string(value)) {
            snprintf(text[a], LONGEST, "%s=%s", report_string(axis, "key"),
                     json_string_value(value));
        } else {
            snprintf(text[a], LONGEST, "%s=%lld", report_string(axis, "key"),
                     (long long)json_integer_value(value));
        }
        overrides[a] = text[a];
        left /= json_array_size(values);
    }
    snprintf(text[OVERRIDES - 1], LONGEST, "parallel.dp=%lld",
             (long long)json_integer_value(json_array_get(json_object_get(sliders, "dp"), at)));
    overrides[OVERRIDES - 1] = text[OVERRIDES - 1];
    sp_scenario scenario = {0};
    sp_batches batches = {0};
    *result = (sp_result){0};
    sp_error err = {0};
    sp_status status = sp_scenario_read(scenario_path, overrides, OVERRIDES, &scenario, &err);
    if (status == SP_OK) {
        const sp_evaluate_options options = {.allocator_peak = true};
        status = sp_evaluate_batches(&scenario, &batches, &err);
        status =
            status == SP_OK ? sp_evaluate(&scenario, &batches, &options, result, &err) : status;
        sp_batches_fini(&batches);
        sp_scenario_fini(&scenario);
    }
    return status;
}

// A figure as a document has it: 15 digits.
static double written(double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", value);
    return isfinite(value) ? strtod(text, NULL) : value;
}

TEST_OF_VALUES(positions_are_what_simulate_finds)
{
    report_sliders *sliders = make_sliders(REPORT_MOST_POINTS, 600.0, 2);
    int64_t without_answer = 0;
    size_t count = (size_t)report_sliders_count(sliders, &without_answer);
    assert_int_equal(without_answer, 0);
    json_auto_t *json = sliders_json(sliders);
    const char *letters = report_string(json, "status");
    const json_t *times = json_object_get(json_object_get(json, "columns"), "iteration_ms");
    int met[4] = {0};
    assert_int_equal(strlen(letters), count);
    assert_int_equal(json_array_size(times), count);
    for (size_t i = 0; i < count; i += 37) {
        static const char known[] = "ytnx";
        sp_result result;
        const json_t *told = json_array_get(times, i);
        bool shared = json_integer_value(json_array_get(json_object_get(json, "dp"), i)) > 0;
        sp_status status = shared ? simulate_at(json, i, &result) : SP_ERR_CONTENT;
        char letter = 'x';
        if (status == SP_OK) {
            sp_fits fits = sp_result_fits(&result);
            letter = fits == SP_FITS_NO ? 'n' : fits == SP_FITS_TIGHT ? 't' : 'y';
            assert_true(json_real_value(told) == written(sp_result_iteration_ms(&result)));
            sp_result_fini(&result);
        } else {
            assert_true(json_is_null(told));
        }
        assert_int_equal(letters[i], letter);
        met[strchr(known, letter) - known]++;
    }
    assert_true(met[0] > 0 && met[2] > 0 && met[3] > 0);
    report_sliders_free(sliders);
}

static int count_letters(const char *text, char letter)
{
    int count = 0;
    for (; *text != '\0'; text++) {
        count += *text == letter ? 1 : 0;
    }
    return count;
}

// The scenario itself first, then its neighbours, whatever the threads.
TEST(positions_are_bounded_by_points_and_seconds)
{
    static const struct {
        int64_t points;
        double seconds;
        int answers;
    } cases[] = {{1, 600.0, 1}, {9, 600.0, 9}, {100, -1.0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        report_sliders *sliders = make_sliders(cases[i].points, cases[i].seconds, 1 + (int)i);
        int64_t without_answer = 0;
        int64_t count = report_sliders_count(sliders, &without_answer);
        json_auto_t *json = sliders_json(sliders);
        assert_int_equal(count - without_answer, cases[i].answers);
        assert_int_equal(count_letters(report_string(json, "status"), '-'), without_answer);
        assert_true(isfinite(report_sliders_base_ms(sliders)));
        report_sliders_free(sliders);
    }
}

TEST(sliders_do_not_depend_on_threads)
{
    report_sliders *one = make_sliders(200, 600.0, 1);
    report_sliders *three = make_sliders(200, 600.0, 3);
    json_auto_t *a = sliders_json(one);
    json_auto_t *b = sliders_json(three);
    assert_true(json_equal(a, b));
    report_sliders_free(one);
    report_sliders_free(three);
}

// ---- many points ----

enum { SWEPT_ROWS = 400, KEPT_ROWS = 60 };

typedef struct swept {
    int context, ms, gib;
    bool fits;
} swept;

// Is another point of the same work that fits as fast and as small, and better in one of both?
static bool is_beaten(const swept *points, const swept *point)
{
    for (int i = 0; i < SWEPT_ROWS; i++) {
        const swept *other = &points[i];
        if (other->fits && other->context == point->context && other->ms <= point->ms &&
            other->gib <= point->gib && (other->ms < point->ms || other->gib < point->gib)) {
            return true;
        }
    }
    return false;
}

TEST_ROUNDS(of_many_points_the_best_are_kept, 11, 20)
{
    static swept points[SWEPT_ROWS];
    bool kept[SWEPT_ROWS] = {false};
    json_auto_t *rows = json_array();
    for (int i = 0; i < SWEPT_ROWS; i++) {
        swept *p = &points[i];
        *p = (swept){.context = 1024 << prng_below(prng, 3),
                     .ms = 100 + prng_below(prng, 1000),
                     .gib = 1 + prng_below(prng, 90),
                     .fits = prng_below(prng, 4) > 0};
        json_array_append_new(rows, json_pack("{s:{s:i, s:i}, s:s, s:i, s:i}", "point",
                                              "workload.context", p->context, "parallel.tp", i,
                                              "status", p->fits ? "ok" : "oom", "iteration_ms",
                                              p->ms, "peak_memory_gib", p->gib));
    }
    report_bound_rows(rows, KEPT_ROWS);
    assert_int_equal(json_array_size(rows), KEPT_ROWS);
    int last = -1;
    for (size_t i = 0; i < KEPT_ROWS; i++) {
        const json_t *point = json_object_get(json_array_get(rows, i), "point");
        int at = (int)json_integer_value(json_object_get(point, "parallel.tp"));
        assert_true(at > last); // in their order
        assert_true(points[at].fits);
        kept[at] = true;
        last = at;
    }
    for (int i = 0; i < SWEPT_ROWS; i++) {
        bool on_front = points[i].fits && !is_beaten(points, &points[i]);
        for (int j = 0; j < i && on_front; j++) {
            // Of equal points one is enough.
            on_front = !points[j].fits || points[j].context != points[i].context ||
                       points[j].ms != points[i].ms || points[j].gib != points[i].gib;
        }
        assert_true(!on_front || kept[i]);
    }
}

// The answer counts all points of the file, though the page has place for some.
TEST(a_page_of_a_large_sweep_is_bounded)
{
    enum { LINES = 5 * REPORT_MOST_ROWS };
    char *const paths[] = {result_path};
    char answer[REPORT_ANSWER];
    AUTO(made) m;
    FILE *file = fopen(result_path, "w");
    assert_non_null(file);
    for (int i = 0; i < LINES; i++) {
        (void)fprintf(file,
                      "{\"point\": {\"parallel.tp\": %d}, \"status\": \"ok\", \"strategy\": "
                      "\"packed\", \"iteration_ms\": %d, \"peak_memory_gib\": 7}\n",
                      i, 100 + (i * 7919 + 1) % LINES);
    }
    assert_int_equal(fclose(file), 0);
    must_succeed(make(&m, paths, 1, ERR));
    assert_string_equal(report_answer(&m.page, answer),
                        "fastest of 20000 points: packed, tp 2321: 100.0 ms, 7.00 GiB");
    json_auto_t *data = page_data(&m);
    const json_t *input = json_array_get(json_object_get(data, "inputs"), 0);
    assert_int_equal(json_integer_value(json_object_get(input, "points")), LINES);
    assert_int_equal(json_array_size(json_object_get(input, "document")), REPORT_MOST_ROWS);
}
