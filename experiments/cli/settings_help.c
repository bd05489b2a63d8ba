#include "experiments/cli/settings_help.h"

#include <string.h>

#include "experiments/cli/report.h"
#include "sim/base/json.h"
#include "sim/cost/profile.h"
#include "sim/metrics/result.h"
#include "sim/model/cluster.h"
#include "sim/model/model.h"
#include "sim/model/stack.h"
#include "sim/schedule/schedule.h"
#include "sim/workload/distribution.h"
#include "solver/strategy.h"

enum { LINE = 256, SECTION = 64, KEY_COLUMN = 38, MOST_WORDS = 64, MOST_RESULTS = 128 };

const char *cli_setting_value(const sp_setting *setting, int index)
{
    if (strcmp(setting->key, "strategy.kind") != 0) {
        return sp_setting_value(setting, index);
    }
    for (int i = 0; sp_strategy_names[i] != NULL; i++) {
        if (i == index) {
            return sp_strategy_names[i];
        }
    }
    return NULL;
}

// ---- what is built in: arrays of {"name", "summary"} ----

static void add_line(json_t *list, const char *name, const char *summary)
{
    json_array_append_new(list, json_pack("{s:s, s:s}", "name", name, "summary", summary));
}

static sp_status list_models(json_t *list, sp_error *err)
{
    sp_model model;
    sp_status status = SP_OK;
    const char *name = NULL;
    for (int i = 0; status == SP_OK && (name = sp_model_builtin_name(i)) != NULL; i++) {
        char line[LINE];
        char heads[SECTION] = "";
        char experts[SECTION] = "";
        status = sp_model_builtin(name, &model, err);
        if (model.kv_heads < model.heads) {
            snprintf(heads, sizeof heads, " (%d KV)", model.kv_heads);
        }
        if (model.experts > 0) {
            snprintf(experts, sizeof experts, ", %d experts", model.experts);
        }
        snprintf(line, sizeof line, "%.4g B parameters, %d layers, hidden %lld, %d heads%s%s",
                 (double)sp_model_parameters(&model) / 1e9, model.layers, (long long)model.hidden,
                 model.heads, heads, experts);
        add_line(list, name, line);
    }
    return status;
}

static sp_status list_clusters(json_t *list, sp_error *err)
{
    sp_cluster cluster;
    sp_status status = SP_OK;
    const char *name = NULL;
    for (int i = 0; status == SP_OK && (name = sp_cluster_builtin_name(i)) != NULL; i++) {
        char line[LINE];
        status = sp_cluster_builtin(name, &cluster, err);
        snprintf(line, sizeof line,
                 "%d x %s %.4g GiB, NVLink %.4g GB/s%s, %d x %.4g Gbit/s, profile %s",
                 cluster.gpus_per_node, cluster.gpu,
                 (double)cluster.memory_bytes / (double)(INT64_C(1) << 30),
                 cluster.nvlink_bytes_per_s / 1e9, cluster.nvls ? " (NVLS)" : "",
                 cluster.nics_per_node, cluster.nic_bytes_per_s / (1e9 / 8.0), cluster.profile);
        add_line(list, name, line);
    }
    return status;
}

static sp_status list_strategies(json_t *list, sp_error *err)
{
    (void)err;
    for (int i = 0; sp_strategy_names[i] != NULL; i++) {
        add_line(list, sp_strategy_names[i], sp_strategy_find(sp_strategy_names[i])->summary);
    }
    return SP_OK;
}

static sp_status list_schedules(json_t *list, sp_error *err)
{
    (void)err;
    for (int i = 0; sp_schedule_names[i] != NULL; i++) {
        add_line(list, sp_schedule_names[i], sp_schedule_traits_of((sp_schedule_kind)i).summary);
    }
    return SP_OK;
}

static sp_status list_stacks(json_t *list, sp_error *err)
{
    (void)err;
    for (int i = 0; sp_stack_builtin_name(i) != NULL; i++) {
        add_line(list, sp_stack_builtin_name(i), sp_stack_builtin_summary(i));
    }
    return SP_OK;
}

static sp_status list_distributions(json_t *list, sp_error *err)
{
    (void)err;
    for (int i = 0; i < sp_distribution_count(); i++) {
        add_line(list, sp_distribution_at(i)->name, sp_distribution_at(i)->title);
    }
    return SP_OK;
}

static void add_profile(void *list, const char *name)
{
    char line[LINE] = "cannot be read";
    sp_profile profile;
    if (sp_profile_load(name, &profile, NULL) == SP_OK) {
        snprintf(line, sizeof line, "%s, %s, stack %s, %s", profile.gpu,
                 sp_level_names[sp_profile_level(&profile)],
                 profile.stack.name[0] != '\0' ? profile.stack.name : "not stated",
                 profile.errors.count > 0 ? "error on logged steps known" : "error not known");
        sp_profile_fini(&profile);
    }
    add_line(list, name, line);
}

static sp_status list_results(json_t *list, sp_error *err)
{
    (void)err;
    const sp_figure *key = NULL;
    for (int i = 0; (key = sp_figure_at(i)) != NULL; i++) {
        add_line(list, key->key, key->text);
    }
    return SP_OK;
}

// Words of the tables and lines that commands print, where they are no keys of a result.
static const struct {
    const char *key, *text;
} screen_words[] = {
    {"iteration", "Milliseconds of a step, the mean over the batches: iteration_ms."},
    {"speed-up", "Time of the first row's step over this one's."},
    {"scenario", "Milliseconds of the strategy's step with the layout of the scenario."},
    {"gain", "Time with the layout of the scenario over time with the best layout."},
    {"bubble", "Share of the step in which a pipeline rank is idle: bubble_ratio."},
    {"waiting", "The bubble where there is no pipeline: data-parallel ranks wait for those with "
                "more work."},
    {"longest stage", "The bubble of the stage with the longest span, over that span: "
                      "bubble_ratio_longest_stage."},
    {"published form",
     "Closed form of the bubble in the schedule's paper: bubble_ratio_published."},
    {"pure work", "Every sample at the cheapest rates, spread evenly over data-parallel ranks, on "
                  "the pipeline rank with the most work."},
    {"packs' costs", "What packs take beyond pure work: fixed costs, sizes that are not the "
                     "cheapest, recomputation."},
    {"uneven ranks", "How much more the busiest data-parallel rank has than the mean."},
    {"idle stages", "How long the busiest stage of the busiest data-parallel rank is idle."},
    {"bound", "Time that no plan of this strategy and schedule is faster than: lower_bound_ms."},
    {"throughput", "Trained tokens a second, of all GPUs and of one: tokens_per_s, "
                   "tokens_per_gpu_s."},
    {"tokens/s/GPU", "Trained tokens a second and GPU: tokens_per_gpu_s."},
    {"TFLOP/s/GPU", "Work of a GPU, of all pairs of tokens: tflops_per_gpu."},
    {"MFU full", "MFU with all pairs counted, as Megatron and SlimPipe do: mfu_full_attention."},
    {"MFU causal", "MFU with causal pairs counted once: mfu."},
    {"lossy", "Tokens that are not trained in this step, or without the beginning of their "
              "document: left_out_share, cut_share, over_length_share."},
    {"time", "A rank's step by kind of time, the mean over ranks: time_breakdown_ms."},
    {"compute", "Kernels of the layers, and the host where it delays them."},
    {"launches", "Part of compute: the GPU waits until the host has launched kernels."},
    {"pp wait", "A pipeline rank waits for a transfer that nothing hides."},
    {"optimizer", "The optimizer's step, and sums of gradients' norms."},
    {"busy", "Milliseconds that the pipeline rank works."},
    {"span", "Milliseconds from the pipeline rank's first action to the end of its last."},
    {"units", "Most activations held: a unit is a model chunk's of one micro-batch or slice."},
    {"last rank", "Most activations that the last pipeline rank holds, in units."},
    {"peak", "GiB of tensors on the fullest rank: peak_memory_gib."},
    {"margin", "GiB left below the limit by what PyTorch reserves: memory_margin_gib."},
    {"tight", "The step fits if PyTorch's allocator frees cached blocks, which takes time."},
    {"allocated", "Blocks of PyTorch's allocator, as max_memory_allocated: "
                  "peak_memory_allocator_gib."},
    {"reserved", "What PyTorch's allocator takes from the GPU, as max_memory_reserved: "
                 "peak_memory_reserved_gib."},
    {"packs", "Forward packs of a step: microbatches."},
    {"solver", "Milliseconds that the strategy took for a batch on this machine: solver_ms."},
    {"rows", "Samples, or packed rows, of a micro-batch: schedule.microbatch_samples."},
    {"chunks", "Model chunks of each pipeline rank: parallel.chunks_per_rank."},
    {"front", "Points of which none is both faster and takes less memory."},
    {"status", "ok, or why the row has no figures."},
    {"infeasible", "The strategy or the schedule cannot run this."},
    {"invalid", "The settings are of no scenario."},
    {"out of memory", "The step needs more memory than the limit: oom."},
    {"samples", "Documents of a batch, each of some tokens."},
    {"tokens", "What samples consist of; padding is not counted."},
    {"predicted", "Computed by the program, beside what was executed or measured."},
    {"logged", "Measured steps that a profile was fitted to or compared with."},
    {"extrapolated", "Outside the lengths that the profile was measured at."},
    {"of attention", "Speed-up of attention alone over dense attention (prefill)."},
    {"worst", "The largest error of a table's rows (validate)."},
    {"bias", "The mean of a table's errors with their signs (validate)."},
    {"not validated", "Nothing was measured that is like this step: its error is not known."},
    {"measured", "Rates of a profile that were timed on the GPU itself."},
    {"published", "Rates of a profile that a paper or a data sheet states."},
    {"fitted", "Rates of a profile that make logged steps come out as they were."},
    {"assumed", "Rates of a profile that are taken over from another GPU or guessed."},
    {"first token", "Milliseconds until all prompts are read (prefill)."},
    {"dense", "Milliseconds with attention to all tokens (prefill)."},
    {"crossover", "Prompts from this length on are read faster than by dense attention (prefill)."},
    {"calls", "Forwards of the target over drafted tokens (decode)."},
    {"entropy", "How sure the draft is of its tokens; trees of drafts are chosen by it (decode)."},
    {"graphs", "Captured launches of forwards; steps without one take the host longer (decode)."},
    {"token-weighted mean", "Length of the document that a token lies in, the mean over tokens."},
};

static sp_status list_words(json_t *list, sp_error *err)
{
    (void)err;
    for (size_t i = 0; i < sizeof screen_words / sizeof screen_words[0]; i++) {
        add_line(list, screen_words[i].key, screen_words[i].text);
    }
    return SP_OK;
}

// The word that a column's heading begins with ("busy ms", "peak GiB").
static bool begins_heading(const char *word, const char *heading)
{
    size_t length = strlen(word);
    return strncmp(word, heading, length) == 0 &&
           (strcmp(heading + length, " ms") == 0 || strcmp(heading + length, " GiB") == 0);
}

static sp_status list_profiles(json_t *list, sp_error *err)
{
    return sp_profile_each_name(add_profile, list, err);
}

static sp_status list_settings(json_t *list, sp_error *err);

static const struct {
    const char *name;
    sp_status (*fill)(json_t *list, sp_error *err);
} lists[] = {
    {"settings", list_settings},   {"models", list_models},
    {"clusters", list_clusters},   {"strategies", list_strategies},
    {"schedules", list_schedules}, {"stacks", list_stacks},
    {"profiles", list_profiles},   {"distributions", list_distributions},
    {"results", list_results},     {"words", list_words},
};

enum { LISTS = sizeof lists / sizeof lists[0] };

// The first sentence alone.
static sp_status list_settings(json_t *list, sp_error *err)
{
    (void)err;
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        char line[LINE];
        const char *end = strstr(setting->text, ". ");
        snprintf(line, sizeof line, "%.*s",
                 (int)(end != NULL ? (size_t)(end - setting->text) : strlen(setting->text) - 1),
                 setting->text);
        add_line(list, setting->key, line);
    }
    return SP_OK;
}

static int print_list(int index, bool json)
{
    sp_error err;
    sp_error_clear(&err);
    json_t *list = json_array();
    if (lists[index].fill(list, &err) != SP_OK) {
        json_decref(list);
        return cli_fail(&err);
    }
    if (json) {
        return cli_print_json(list);
    }
    int column = 0;
    size_t i = 0;
    json_t *line = NULL;
    json_array_foreach (list, i, line) {
        int length = (int)strlen(json_string_value(json_object_get(line, "name"))) + 2;
        column = length > column ? length : column;
    }
    json_array_foreach (list, i, line) {
        int used = printf("%s", json_string_value(json_object_get(line, "name")));
        cli_print_wrapped(stdout, json_string_value(json_object_get(line, "summary")), used,
                          column);
    }
    json_decref(list);
    return 0;
}

// ---- settings ----

// The other names of a setting, which lie in `text`; returns their number.
static int split_aliases(const sp_setting *setting, char text[LINE], const char *words[MOST_WORDS])
{
    int count = 0;
    snprintf(text, LINE, "%s", setting->aliases != NULL ? setting->aliases : "");
    char *rest = text;
    for (char *word = strtok_r(text, " ", &rest); word != NULL && count < MOST_WORDS;
         word = strtok_r(NULL, " ", &rest)) {
        words[count++] = word;
    }
    return count;
}

static json_t *setting_json(const sp_setting *setting)
{
    char type[SP_SETTING_TYPE];
    char usual[SP_SETTING_TYPE];
    json_t *values = json_array();
    const char *value = NULL;
    for (int i = 0; (value = cli_setting_value(setting, i)) != NULL; i++) {
        json_array_append_new(values, json_string(value));
    }
    char text[LINE];
    const char *words[MOST_WORDS + 1];
    words[split_aliases(setting, text, words)] = NULL;
    return json_pack("{s:s, s:s, s:o, s:b, s:s, s:s, s:o}", "key", setting->key, "type",
                     sp_setting_type(setting, type), "values", values, "tokens",
                     setting->kind == SP_SETTING_TOKENS, "default",
                     sp_setting_default(setting, usual), "help", setting->text, "aliases",
                     sp_json_texts(words));
}

// Words with commas between, wrapped; `head` begins the first line.
static void print_words(const char *head, const char *const *words, int count)
{
    int indent = printf("%s", head);
    int used = indent;
    for (int i = 0; i < count; i++) {
        int length = (int)strlen(words[i]) + (i + 1 < count);
        if (i > 0 && used + 1 + length > 80) {
            used = printf("\n%*s", indent, "") - 1;
        } else if (i > 0) {
            used += printf(" ");
        }
        used += printf("%s%s", words[i], i + 1 < count ? "," : "");
    }
    putchar('\n');
}

static void print_values(const sp_setting *setting)
{
    const char *words[MOST_WORDS];
    int count = 0;
    const char *value = NULL;
    while (count < MOST_WORDS && (value = cli_setting_value(setting, count)) != NULL) {
        words[count++] = value;
    }
    // Of other kinds the type says the values.
    if (count > 0 && setting->kind == SP_SETTING_OTHER) {
        print_words("built in: ", words, count);
    }
}

static void print_aliases(const sp_setting *setting)
{
    char text[LINE];
    const char *words[MOST_WORDS];
    print_words("elsewhere called ", words, split_aliases(setting, text, words));
}

static void print_setting(const sp_setting *setting)
{
    char text[SP_SETTING_TYPE];
    int used = printf("%s: ", setting->key);
    cli_print_wrapped(stdout, sp_setting_type(setting, text), used, 0);
    if (setting->kind == SP_SETTING_TOKENS) {
        puts("         128K stands for 131072 tokens, 1M for 1048576");
    }
    used = printf("default: ");
    cli_print_wrapped(stdout, sp_setting_default(setting, text), used, used);
    putchar('\n');
    cli_print_wrapped(stdout, setting->text, 0, 0);
    putchar('\n');
    if (setting->aliases != NULL) {
        print_aliases(setting);
    }
    print_values(setting);
    printf("override: --set %s=VALUE\n", setting->key);
}

static bool in_section(const sp_setting *setting, const char *section)
{
    size_t length = strlen(section);
    return strncmp(setting->key, section, length) == 0 && setting->key[length] == '.';
}

static void print_section(const char *section)
{
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        if (in_section(setting, section)) {
            int used = printf("%s", setting->key);
            cli_print_wrapped(stdout, setting->text, used, KEY_COLUMN);
        }
    }
}

static json_t *topic_json(const char *section, const sp_setting *page)
{
    json_t *list = json_array();
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        if (setting == page || (section != NULL && in_section(setting, section))) {
            json_array_append_new(list, setting_json(setting));
        }
    }
    return list;
}

static bool is_section(const char *topic)
{
    const sp_setting *setting = NULL;
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        if (in_section(setting, topic)) {
            return true;
        }
    }
    return false;
}

// What is built in by that name, each with the list it is in: a strategy may have a schedule of its
// name.
static int print_items(const char *topic, bool json)
{
    sp_error err;
    sp_error_clear(&err);
    json_t *found = json_array();
    for (int i = 0; i < LISTS; i++) {
        size_t n = 0;
        json_t *item = NULL;
        json_t *list = json_array();
        if (lists[i].fill(list, &err) != SP_OK) {
            json_decref(found);
            json_decref(list);
            return cli_fail(&err);
        }
        json_array_foreach (list, n, item) {
            const char *name = json_string_value(json_object_get(item, "name"));
            const char *dot = strrchr(name, '.');
            bool ends_so =
                lists[i].fill != list_models && dot != NULL && strcmp(dot + 1, topic) == 0;
            bool heads_so = lists[i].fill == list_words && begins_heading(name, topic);
            if (sp_same_name(name, topic) || ends_so || heads_so) {
                sp_json_put(item, "list", json_string(lists[i].name));
                json_array_append(found, item);
            }
        }
        json_decref(list);
    }
    if (json_array_size(found) == 0) {
        json_decref(found);
        return CLI_PROCEED;
    }
    if (json) {
        return cli_print_json(found);
    }
    size_t n = 0;
    json_t *item = NULL;
    json_array_foreach (found, n, item) {
        const char *list = json_string_value(json_object_get(item, "list"));
        int used = printf("%s: ", json_string_value(json_object_get(item, "name")));
        cli_print_wrapped(stdout, json_string_value(json_object_get(item, "summary")), used, 0);
        printf("all %s: slimpack help %s\n", list, list);
    }
    json_decref(found);
    return 0;
}

int cli_help_topic(const char *topic, bool json)
{
    for (int i = 0; i < LISTS; i++) {
        if (strcmp(lists[i].name, topic) == 0) {
            return print_list(i, json);
        }
    }
    const char *section = is_section(topic) ? topic : NULL;
    const sp_setting *page = sp_setting_find(topic);
    // A section is no short form of a key elsewhere (`model` of memory.model).
    page = page != NULL && section != NULL && strcmp(page->key, topic) != 0 ? NULL : page;
    if (page == NULL && section == NULL) {
        return print_items(topic, json);
    }
    if (json) {
        return cli_print_json(topic_json(section, page));
    }
    if (page != NULL) {
        print_setting(page);
    }
    if (section != NULL) {
        fputs(page != NULL ? "\n" : "", stdout);
        print_section(section);
    }
    return 0;
}

const char *cli_help_topic_at(int index)
{
    return index >= 0 && index < LISTS ? lists[index].name : NULL;
}

const char *cli_nearest_topic(const char *topic)
{
    const char *names[LISTS];
    for (int i = 0; i < LISTS; i++) {
        names[i] = lists[i].name;
    }
    const char *near = sp_setting_near(topic);
    const char *list = sp_nearest_name(topic, names, LISTS);
    const char *results[MOST_RESULTS];
    int count = 0;
    for (const sp_figure *key; count < MOST_RESULTS && (key = sp_figure_at(count)) != NULL;
         count++) {
        results[count] = key->key;
    }
    list = list != NULL ? list : near == NULL ? sp_nearest_name(topic, results, count) : NULL;
    return near != NULL && (list == NULL || strchr(topic, '.') != NULL) ? near : list;
}

// ---- Markdown ----

static void put_values(FILE *out, const sp_setting *setting)
{
    const char *value = NULL;
    if (setting->kind != SP_SETTING_NAME) {
        char type[SP_SETTING_TYPE];
        fputs(sp_setting_type(setting, type), out);
        fputs(setting->kind == SP_SETTING_TOKENS ? "; `128K` is 131072" : "", out);
        return;
    }
    for (int i = 0; (value = cli_setting_value(setting, i)) != NULL; i++) {
        fprintf(out, "%s`%s`", i > 0 ? ", " : "", value);
    }
}

static void put_row(FILE *out, const sp_setting *setting)
{
    fprintf(out, "| `%s` | ", setting->key);
    put_values(out, setting);
    char usual[SP_SETTING_TYPE];
    fprintf(out, " | %s | %s", sp_setting_default(setting, usual), setting->text);
    char text[LINE];
    const char *words[MOST_WORDS];
    int count = split_aliases(setting, text, words);
    for (int i = 0; i < count; i++) {
        fprintf(out, "%s`%s`", i > 0 ? ", " : " Elsewhere: ", words[i]);
    }
    fputs(count > 0 ? ". |\n" : " |\n", out);
}

void cli_print_settings_markdown(FILE *out)
{
    const sp_setting *setting = NULL;
    char before[SECTION] = "";
    for (int i = 0; (setting = sp_setting_at(i)) != NULL; i++) {
        char section[SECTION];
        snprintf(section, sizeof section, "%.*s", (int)strcspn(setting->key, "."), setting->key);
        bool own = sp_setting_section(setting->key) > 0 || is_section(section);
        const char *title = own ? section : "the document itself";
        if (strcmp(title, before) != 0) {
            fputs(i > 0 ? "\n" : "", out);
            fprintf(out,
                    "## %s%s%s\n\n| key | values | default | what it does |\n| --- | --- | "
                    "--- | --- |\n",
                    own ? "`" : "", title, own ? "`" : "");
            snprintf(before, sizeof before, "%s", title);
        }
        put_row(out, setting);
    }
}
