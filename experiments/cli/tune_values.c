// The settings of a point that is tuned, in words.
#include "experiments/cli/tune_parts.h"

const cli_tune_axis cli_tune_axes[CLI_TUNE_AXES] = {
    {"parallel.tp", "tp", 3},
    {"parallel.cp", "cp", 3},
    {"parallel.pp", "pp", 3},
    {"parallel.dp", "dp", 4},
    {"parallel.zero", "zero", 4},
    {"memory.recompute", "recompute", 9},
    {"schedule.kind", "schedule", 11},
    {"parallel.chunks_per_rank", "chunks", 6},
    {"schedule.microbatch_samples", "rows", 4},
    {"strategy.rank_tokens", "rank_tokens", 11},
    {"strategy.chunk_tokens", "chunk_tokens", 12},
};

const char *cli_tune_value(const json_t *value, char text[CLI_TUNE_VALUE])
{
    snprintf(text, CLI_TUNE_VALUE, "-");
    if (json_is_integer(value)) {
        snprintf(text, CLI_TUNE_VALUE, "%lld", (long long)json_integer_value(value));
    } else if (json_is_string(value)) {
        snprintf(text, CLI_TUNE_VALUE, "%s", json_string_value(value));
    }
    return text;
}

const char *cli_tune_point(const sweep_layouts_options *options, const sweep_layouts *layouts,
                           const sweep_layout *point, char text[CLI_TUNE_POINT])
{
    size_t used = 0;
    json_t *settings = sweep_layouts_settings(layouts, point);
    text[0] = '\0';
    for (int a = 0; a < CLI_TUNE_AXES; a++) {
        char value[CLI_TUNE_VALUE];
        const json_t *json = json_object_get(settings, cli_tune_axes[a].path);
        if (json != NULL && used < CLI_TUNE_POINT) {
            used += (size_t)snprintf(text + used, CLI_TUNE_POINT - used, "%s %s, ",
                                     cli_tune_axes[a].name, cli_tune_value(json, value));
        }
    }
    if (used < CLI_TUNE_POINT) {
        snprintf(text + used, CLI_TUNE_POINT - used, "%s", options->strategies[point->strategy]);
    }
    json_decref(settings);
    return text;
}

const char *cli_tune_gib(double gib, char text[CLI_TUNE_VALUE])
{
    snprintf(text, CLI_TUNE_VALUE, gib < 1.0 ? "%.3f GiB" : "%.1f GiB", gib);
    return text;
}
