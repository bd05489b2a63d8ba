#include <sys/resource.h>
#include <unistd.h>

#include "tests/support/flat_profile.h"
#include "tests/support/test_main.h"

#include "sim/base/data_folder.h"
#include "sim/cost/profile.h"

// The message of the only error of the flat profile with one override.
static const char *message_of(const char *override)
{
    const char *overrides[] = {override, NULL};
    sp_profile profile;
    must_fail_with(flat_profile(overrides, &profile, ERR), SP_ERR_CONTENT, "");
    assert_int_equal(ERR->count, 1);
    assert_int_equal(profile.gemm_rate.points, 0);
    return ERR->message[0];
}

TEST(reads_units)
{
    AUTO(sp_profile) profile;
    const char *overrides[] = {
        "gemm_rate.points=[[1024,177],[2048,677]]",
        "gemm_rate.level=published",
        "kernel.us=2.5",
        "gemm=[{\"n\":4096,\"k\":1024,\"level\":\"measured\",\"source\":\"s\","
        "\"points\":[[128,20],[256,30]]}]",
        "collectives.all_gather={\"level\":\"measured\",\"source\":\"s\",\"points\":[[1024,0.5]]}",
        "stack=megatron-core-2024",
        NULL};
    must_succeed(flat_profile(overrides, &profile, ERR));
    assert_string_equal(profile.name, "flat");
    assert_string_equal(profile.stack.name, "megatron-core-2024");
    assert_int_equal(profile.gemm_rate.points, 2);
    assert_int_equal(profile.gemm_rate.level, SP_LEVEL_PUBLISHED);
    assert_true(profile.gemm_rate.x[1] == 2048.0);
    assert_true(profile.gemm_rate.y[0] == 177e12);
    assert_within(profile.gemm_rate.slope[0], log2(677.0 / 177.0), 1e-12);
    assert_int_equal(profile.gemm_tables, 1);
    assert_int_equal(profile.gemm[0].n, 4096);
    assert_within(profile.gemm[0].time_s.y[1], 30e-6, 1e-15);
    assert_within(profile.kernel_s, 2.5e-6, 1e-15);
    assert_true(profile.collective[SP_ALL_GATHER].y[0] == 0.5e9);
    assert_int_equal(profile.collective[SP_ALL_REDUCE].points, 0);
    assert_true(profile.nvlink_bytes_per_s == 200e9);
    assert_true(profile.nic_efficiency == 0.8);
    assert_true(profile.optimizer_bytes_per_parameter == 30.0);
    assert_false(profile.has_cluster);
}

TEST(reads_cluster)
{
    AUTO(sp_profile) profile;
    const char *overrides[] = {"cluster={\"name\":\"mine\",\"gpu\":\"X\",\"peak_tflops\":100,"
                               "\"memory_gib\":24,\"hbm_gb_per_s\":900,\"gpus_per_node\":4,"
                               "\"nvlink_gb_per_s\":50,\"nics_per_node\":2,\"nic_gbit_per_s\":100}",
                               NULL};
    must_succeed(flat_profile(overrides, &profile, ERR));
    assert_true(profile.has_cluster);
    assert_string_equal(profile.cluster.name, "mine");
    assert_int_equal(profile.cluster.gpus_per_node, 4);
    assert_true(profile.cluster.nic_bytes_per_s == 12.5e9);
    assert_non_null(
        strstr(message_of("cluster={\"name\":\"h800-8\",\"gpus_pernode\":8}"), "'gpus_per_node'"));
}

TEST(rejects_content)
{
    assert_string_equal(message_of("gemm_rate.points=[[1,2],[1,3]]"),
                        "flat: gemm_rate.points[1]: expected a larger x than the point before, "
                        "got [1,3]");
    assert_non_null(strstr(message_of("gemm_rate.points=[[1,0]]"), "gemm_rate.points[0]"));
    assert_non_null(strstr(message_of("gemm_rate.points=[[1,-2]]"), "gemm_rate.points[0]"));
    assert_non_null(strstr(message_of("gemm_rate.points=[[1e300,2]]"), "gemm_rate.points[0]"));
    assert_non_null(strstr(message_of("gemm_rate.points=[[1,2,3]]"), "gemm_rate.points[0]"));
    assert_non_null(strstr(message_of("gemm_rate.points=[5]"), "gemm_rate.points[0]"));
    assert_non_null(strstr(message_of("gemm_rate.points=[]"), "gemm_rate.points"));
    assert_non_null(strstr(message_of("gemm_rate.points={}"), "gemm_rate.points"));
    assert_non_null(strstr(message_of("gemm_rate.level=measurd"), "did you mean \"measured\""));
    assert_non_null(strstr(message_of("gemm_rates={}"), "did you mean 'gemm_rate'"));
    assert_non_null(strstr(message_of("schema=slimpack/profile/2"), "slimpack/profile/1"));
    assert_non_null(strstr(message_of("attention.forward_causal=null"), "'forward_causal'"));
    assert_non_null(strstr(message_of("memory=null"), "key 'memory' is missing"));
    assert_non_null(strstr(message_of("memory.source=null"), "key 'source' is missing"));
    assert_non_null(strstr(message_of("links.nic_efficiency=1.5"), "links.nic_efficiency"));
    assert_non_null(strstr(message_of("gemm=7"), "flat: gemm: expected an array"));
    assert_non_null(strstr(message_of("gemm=[{\"n\":0,\"k\":1,\"level\":\"measured\","
                                      "\"source\":\"\",\"points\":[[1,1]]}]"),
                           "gemm[0].n"));
    assert_non_null(strstr(message_of("gemm=[{\"n\":2,\"k\":1,\"level\":\"measured\","
                                      "\"source\":\"\",\"points\":[[1,1]]},"
                                      "{\"n\":2,\"k\":1,\"level\":\"measured\","
                                      "\"source\":\"\",\"points\":[[1,1]]}]"),
                           "given already"));
    assert_non_null(strstr(message_of("collectives.all_reduse={}"), "did you mean 'all_reduce'"));
}

// A rate may not grow faster than the work: 2^3 per doubling of the cube edge, 2 per doubling of
// the length or the bytes; times may not fall.
TEST(levels_noise)
{
    AUTO(sp_profile) profile;
    const char *overrides[] = {
        "gemm_rate.points=[[1024,10],[2048,100]]",
        "attention.forward_causal.points=[[1024,10],[2048,30]]",
        "collectives.all_reduce={\"level\":\"measured\",\"source\":\"s\","
        "\"points\":[[1024,1],[4096,4.5],[16384,8]]}",
        "gemm=[{\"n\":4096,\"k\":1024,\"level\":\"measured\",\"source\":\"s\","
        "\"points\":[[128,20],[256,19],[512,40]]}]",
        NULL};
    must_succeed(flat_profile(overrides, &profile, ERR));
    assert_within(profile.gemm_rate.y[1] / 80e12, 1.0, 1e-12);
    assert_within(profile.attention[0][SP_PAIRS_CAUSAL].y[1] / 20e12, 1.0, 1e-12);
    assert_within(profile.collective[SP_ALL_REDUCE].y[1] / 4e9, 1.0, 1e-12);
    assert_within(profile.collective[SP_ALL_REDUCE].y[2] / 8e9, 1.0, 1e-12);
    assert_within(profile.gemm[0].time_s.y[1] / 20e-6, 1.0, 1e-12);
}

TEST(weakest_level)
{
    const char *overrides[] = {"gemm_rate.level=measured",
                               "attention.forward_causal.level=measured",
                               "attention.backward_causal.level=published",
                               "memory.level=measured",
                               "kernel.level=measured",
                               "links.level=measured",
                               NULL,
                               NULL};
    AUTO(sp_profile) profile;
    must_succeed(flat_profile(overrides, &profile, ERR));
    assert_int_equal(sp_profile_level(&profile), SP_LEVEL_PUBLISHED);
    sp_profile_fini(&profile);
    overrides[6] = "collectives.all_to_all={\"level\":\"fitted\",\"source\":\"s\","
                   "\"points\":[[1,1]]}";
    must_succeed(flat_profile(overrides, &profile, ERR));
    assert_int_equal(sp_profile_level(&profile), SP_LEVEL_FITTED);
}

static void write_profile(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s.json", folder, name);
    put_file(path, text);
}

static void write_flat(const char *folder, const char *name)
{
    write_profile(folder, name, flat_profile_text);
}

static void remove_flat(const char *folder, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s.json", folder, name);
    assert_int_equal(remove(path), 0);
}

// The sections of a profile stand in place of those that it extends; what those say of themselves
// goes, unless the profile is another name for them.
TEST(extends_another)
{
    static const char faster[] =
        "{\"schema\": \"slimpack/profile/1\", \"extends\": \"base\", \"memory\": {\"gb_per_s\": "
        "3000, \"level\": \"assumed\", \"source\": \"test\"}, \"host\": {\"unit_us\": 5, "
        "\"level\": "
        "\"assumed\", \"source\": \"test\"}}";
    static const char fastest[] = "{\"schema\": \"slimpack/profile/1\", \"extends\": \"faster\", "
                                  "\"host\": null, \"kernel\": {\"us\": 2, \"level\": "
                                  "\"assumed\", \"source\": \"test\"}}";
    static const char other_name[] =
        "{\"schema\": \"slimpack/profile/1\", \"name\": \"alias\", \"extends\": \"base\"}";
    char folder[] = "/tmp/sp_profile_XXXXXX";
    char base[sizeof flat_profile_text + 200];
    AUTO(sp_profile) profile;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("SLIMPACK_PROFILE_PATH", folder, 1), 0);
    snprintf(base, sizeof base,
             "%.*s, \"for_stack\": {\"ours\": \"faster\"}, \"fit\": {\"constants\": {\"a\": 1}}}",
             (int)strlen(flat_profile_text) - 1, flat_profile_text);
    write_profile(folder, "base", base);
    write_profile(folder, "faster", faster);
    write_profile(folder, "fastest", fastest);
    write_profile(folder, "alias", other_name);
    must_succeed(sp_profile_load("faster", &profile, ERR));
    assert_string_equal(profile.name, "faster");
    assert_true(profile.memory_bytes_per_s == 3e12 && fabs(profile.host.unit_s - 5e-6) < 1e-15);
    assert_true(profile.kernel_s == 0.0 && profile.nvlink_bytes_per_s == 2e11);
    assert_int_equal(profile.for_stacks + profile.fitted_constants, 0);
    sp_profile_fini(&profile);
    must_succeed(sp_profile_load("fastest", &profile, ERR));
    assert_true(profile.memory_bytes_per_s == 3e12 && fabs(profile.kernel_s - 2e-6) < 1e-15);
    assert_true(profile.host.unit_s == 0.0);
    sp_profile_fini(&profile);
    must_succeed(sp_profile_load("alias", &profile, ERR));
    assert_string_equal(profile.name, "alias");
    assert_int_equal(profile.fitted_constants, 1);
    assert_int_equal(profile.for_stacks, 1);
    assert_string_equal(profile.for_stack[0].stack, "ours");
    assert_string_equal(profile.for_stack[0].profile, "faster");
    sp_profile_fini(&profile);
    // A path leads from the profile's own folder, wherever the program runs.
    char path[64];
    write_profile(folder, "by_path",
                  "{\"schema\": \"slimpack/profile/1\", \"name\": \"by_path\", "
                  "\"extends\": \"./base.json\"}");
    snprintf(path, sizeof path, "%s/by_path.json", folder);
    must_succeed(sp_profile_load(path, &profile, ERR));
    assert_int_equal(profile.fitted_constants, 1);
    static const char *const names[] = {"base", "faster", "fastest", "alias", "by_path"};
    for (size_t i = 0; i < 5; i++) {
        remove_flat(folder, names[i]);
    }
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(unsetenv("SLIMPACK_PROFILE_PATH"), 0);
}

TEST(wrong_extensions_are_refused)
{
    const struct {
        const char *text, *message;
    } wrong[] = {
        {"{\"extends\": 3}", "extends: expected the name of a profile"},
        {"{\"extends\": \"itself\"}",
         "extends: expected at most 4 profiles that extend each other"},
        {"{\"extends\": \"h10-burst\"}", "unknown profile 'h10-burst' (did you mean 'h100-burst'?"},
        {"{\"extends\": \"h100-burst\", \"memry\": {}}", "unknown key 'memry'"},
        {"{\"extends\": \"h100-burst\", \"for_stack\": {\"megatron\": \"a\"}}",
         "for_stack.megatron: no stack has this name"},
        {"{\"extends\": \"h100-burst\", \"interference\": {\"overlap_share\": 2}}",
         "interference.overlap_share: expected"},
    };
    char folder[] = "/tmp/sp_profile_XXXXXX";
    sp_profile profile;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("SLIMPACK_PROFILE_PATH", folder, 1), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        bool said = false;
        write_profile(folder, "itself", wrong[i].text);
        must_fail_with(sp_profile_load("itself", &profile, ERR), SP_ERR_CONTENT, "");
        for (int m = 0; m < ERR->count; m++) {
            said = said || strstr(ERR->message[m], wrong[i].message) != NULL;
        }
        must_hold(said, "%s", ERR->message[0]);
    }
    remove_flat(folder, "itself");
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(unsetenv("SLIMPACK_PROFILE_PATH"), 0);
}

TEST(finds_names)
{
    char first[] = "/tmp/sp_profile_XXXXXX";
    char second[] = "/tmp/sp_profile_XXXXXX";
    char variable[128], path[128];
    sp_profile profile;
    assert_non_null(mkdtemp(first));
    assert_non_null(mkdtemp(second));
    write_flat(first, "zeta-gpu");
    write_flat(second, "yotta-gpu");
    snprintf(variable, sizeof variable, ":%s::%s:", first, second);
    assert_int_equal(setenv("SLIMPACK_PROFILE_PATH", variable, 1), 0);
    must_succeed(sp_profile_load("zeta-gpu", &profile, ERR));
    sp_profile_fini(&profile);
    must_succeed(sp_profile_load("yotta-gpu", &profile, ERR));
    sp_profile_fini(&profile);

    must_fail_with(sp_profile_load("zeta-cpu", &profile, ERR), SP_ERR_CONTENT,
                   "unknown profile 'zeta-cpu' (did you mean 'zeta-gpu'?");
    assert_non_null(strstr(ERR->message[0], "yotta-gpu, zeta-gpu"));

    must_succeed(sp_profile_load("Zeta_GPU", &profile, ERR));
    sp_profile_fini(&profile);

    // A list that cannot be read whole is none.
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = files.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    sp_status listed = sp_profile_load("zeta-cpu", &profile, ERR);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    assert_int_equal(listed, SP_ERR_SYSTEM);
    sp_error_clear(ERR);

    snprintf(path, sizeof path, "%s/zeta-gpu.json", first);
    must_succeed(sp_profile_load(path, &profile, ERR));
    sp_profile_fini(&profile);
    assert_int_equal(sp_profile_load("./no-such-file.json", &profile, ERR), SP_ERR_IO);

    remove_flat(first, "zeta-gpu");
    remove_flat(second, "yotta-gpu");
    assert_int_equal(rmdir(first), 0);
    assert_int_equal(rmdir(second), 0);
    assert_int_equal(unsetenv("SLIMPACK_PROFILE_PATH"), 0);
}

// Anchors: cuDNN 9.19 on H200 (NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training), H100 GEMM
// (zzc0721/torch-performance-test-data, issue 79), nccl-tests and copy rates of the Azure
// AI-benchmarking-guide. Limits: dense bf16 peaks of the data sheets.
TEST(shipped_profiles)
{
    const struct {
        const char *name;
        double peak;
    } shipped[] = {{"a100-burst", 312e12},
                   {"h100-burst", 989.4e12},
                   {"h800-burst", 989.4e12},
                   {"h200-burst", 989.4e12},
                   {"host", 5e10}};
    for (size_t i = 0; i < sizeof shipped / sizeof shipped[0]; i++) {
        AUTO(sp_profile) profile;
        must_succeed(sp_profile_load(shipped[i].name, &profile, ERR));
        assert_string_equal(profile.name, shipped[i].name);
        const sp_curve *curves[] = {&profile.gemm_rate, &profile.attention[0][SP_PAIRS_CAUSAL],
                                    &profile.attention[0][SP_PAIRS_FULL],
                                    &profile.attention[1][SP_PAIRS_CAUSAL],
                                    &profile.attention[1][SP_PAIRS_FULL]};
        for (size_t j = 0; j < 5; j++) {
            assert_true(curves[j]->points > 0);
            assert_true(strlen(curves[j]->source) > 0);
            for (int k = 0; k < curves[j]->points; k++) {
                assert_true(curves[j]->y[k] < shipped[i].peak);
            }
        }
        const sp_curve *causal = &profile.attention[0][SP_PAIRS_CAUSAL];
        for (int k = 0; k < causal->points; k++) {
            assert_true(profile.attention[1][SP_PAIRS_CAUSAL].y[k] <= causal->y[k]);
            assert_true(causal->y[k] <= profile.attention[0][SP_PAIRS_FULL].y[k]);
        }
        sp_level level =
            strcmp(shipped[i].name, "host") == 0 ? SP_LEVEL_ASSUMED : SP_LEVEL_PUBLISHED;
        assert_int_equal(sp_profile_level(&profile), level);
    }
    AUTO(sp_profile) profile;
    must_succeed(sp_profile_load("h200-burst", &profile, ERR));
    assert_true(profile.attention[0][SP_PAIRS_CAUSAL].x[2] == 8192.0);
    assert_true(profile.attention[0][SP_PAIRS_CAUSAL].y[2] == 644e12);
    assert_true(profile.attention[1][SP_PAIRS_FULL].y[4] == 572e12);
    assert_true(profile.memory_bytes_per_s == 4010e9);
    sp_profile_fini(&profile);
    must_succeed(sp_profile_load("h100-burst", &profile, ERR));
    assert_true(profile.gemm_rate.x[2] == 4096.0 && profile.gemm_rate.y[2] == 789e12);
}

static void assert_changed(const json_t *document, const char *constant)
{
    AUTO(sp_profile) profile;
    must_succeed(sp_profile_from_json(document, "edited", &profile, ERR));
    assert_int_equal(profile.errors.count, 0);
    assert_string_equal(profile.changed, constant);
}

// A copy whose constant is not the fit's any more, or is gone, has errors of its own, which nobody
// knows.
TEST(errors_are_of_the_numbers_that_were_fitted)
{
    json_auto_t *document = NULL;
    char file[SP_PROFILE_PATH];
    AUTO(sp_profile) profile;
    must_succeed(sp_profile_document("h100", &document, file, ERR));
    must_succeed(sp_profile_from_json(document, file, &profile, ERR));
    assert_true(profile.errors.count > 0);
    assert_string_equal(profile.changed, "");
    json_t *model = json_object_get(document, "gemm_model");
    json_real_set(json_object_get(model, "tflops"), 300.0);
    assert_changed(document, "gemm_model.tflops");
    json_real_set(json_object_get(model, "tflops"), 687.173);
    json_object_del(json_object_get(document, "interference"), "overlap_share");
    assert_changed(document, "interference.overlap_share");
}

static const char *const told[] = {"measured", "published", "fitted", "assumed", "computed"};

// The word with which a text, of so many bytes, says where a number is from.
static const char *word_in(const char *text, size_t bytes)
{
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        const char *at = strstr(text, told[i]);
        if (at != NULL && (size_t)(at - text) < bytes) {
            return told[i];
        }
    }
    return NULL;
}

// Does "tflops, half_rate_k: where they are from" begin with a list in which the constant is?
static bool is_named(const char *clause, const char *key)
{
    size_t length = strlen(key);
    for (const char *at = clause; at != NULL && strstr(at, ": ") != NULL; at += 2) {
        size_t word = strcspn(at, ",: ");
        if (word == length && strncmp(at, key, length) == 0) {
            return true;
        }
        if (strncmp(at + word, ", ", 2) != 0) {
            return false;
        }
        at += word;
    }
    return false;
}

// What a section says of a constant: in the clause that names it, else behind the last "else", else
// by its level, unless that is of a fit's constants alone.
static const char *word_of(const json_t *section, const char *key)
{
    const char *text = json_string_value(json_object_get(section, "source"));
    const char *fit = strstr(text, ": slimpack calibrate, fitted to ");
    bool of_a_fit = fit != NULL && fit < text + strcspn(text, ";");
    const char *word = of_a_fit ? NULL : json_string_value(json_object_get(section, "level"));
    for (const char *clause = text; clause != NULL;) {
        const char *end = strstr(clause, "; ");
        while (strncmp(clause, "else ", 5) == 0) {
            word = word_in(clause, strcspn(clause, ":"));
            clause += strcspn(clause, ":") + 2;
        }
        if (is_named(clause, key)) {
            const char *own =
                word_in(clause, end != NULL ? (size_t)(end - clause) : strlen(clause));
            return own != NULL ? own : word;
        }
        clause = end != NULL ? end + 2 : NULL;
    }
    return word;
}

typedef struct profile_folder {
    const char *path, *meanings;
    int constants;
} profile_folder;

static void check_constants(profile_folder *folder, const char *file, const char *path,
                            json_t *section)
{
    const char *key;
    json_t *member;
    bool has_source = json_object_get(section, "level") != NULL;
    json_object_foreach (section, key, member) {
        char below[96], short_name[64];
        snprintf(below, sizeof below, "%.40s.%.40s", path, key);
        if (json_is_object(member)) {
            check_constants(folder, file, below, member);
        } else if (has_source && strcmp(key, "level") != 0 && strcmp(key, "source") != 0) {
            const char *word = word_of(section, key);
            must_hold(word != NULL, "%s: %s: nothing says where it is from", file, below);
            snprintf(short_name, sizeof short_name, "`.%.40s`", key);
            must_hold(strcmp(key, "points") == 0 || strstr(folder->meanings, below) != NULL ||
                          strstr(folder->meanings, short_name) != NULL,
                      "%s: %s: README.md says no meaning", file, below);
            folder->constants++;
        }
    }
}

static void check_file(void *context, const char *name)
{
    profile_folder *folder = context;
    char path[SP_DATA_PATH + 80];
    snprintf(path, sizeof path, "%s/%s.json", folder->path, name);
    json_auto_t *root = json_load_file(path, 0, NULL);
    const char *key;
    json_t *member;
    json_object_foreach (root, key, member) {
        if (json_is_object(member) && strcmp(key, "fit") != 0) {
            check_constants(folder, name, key, member);
        }
    }
}

// Each constant of each shipped profile has a meaning in the page and says where it is from; which
// numbers only a fit explains can be read so.
TEST(each_constant_says_where_it_is_from)
{
    char path[SP_DATA_PATH], page[SP_DATA_PATH + 16];
    static char meanings[1 << 18];
    FILE *file = NULL;
    for (int n = 0; file == NULL && sp_data_folder("profiles", n, path); n++) {
        snprintf(page, sizeof page, "%s/README.md", path);
        file = fopen(page, "r");
    }
    assert_non_null(file);
    meanings[fread(meanings, 1, sizeof meanings - 1, file)] = '\0';
    assert_int_equal(fclose(file), 0);
    profile_folder folder = {.path = path, .meanings = meanings};
    sp_data_each_document(path, check_file, &folder);
    assert_true(folder.constants > 200);
}

// The reading of texts: what a fit names, what is named beside it, all others, none.
TEST(reads_where_a_constant_is_from)
{
    const struct {
        const char *text, *key, *word;
    } cases[] = {
        {"a: slimpack calibrate, fitted to t; else assumed: b: computed of c", "a", "fitted"},
        {"a: slimpack calibrate, fitted to t; else assumed: b: computed of c", "b", "computed"},
        {"a: slimpack calibrate, fitted to t; else assumed: b: computed of c", "d", "assumed"},
        {"a, b: slimpack calibrate, fitted to t; else measured: on it", "b", "fitted"},
        {"a: slimpack calibrate, fitted to t", "b", NULL},
        {"a manual, page 3: so much", "a", "published"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_auto_t *section = json_pack("{s:s,s:s}", "level", i < 5 ? "fitted" : "published",
                                         "source", cases[i].text);
        const char *word = word_of(section, cases[i].key);
        must_hold(word == cases[i].word ||
                      (word != NULL && cases[i].word != NULL && strcmp(word, cases[i].word) == 0),
                  "%s of '%s': %s", cases[i].key, cases[i].text, word != NULL ? word : "none");
    }
}
