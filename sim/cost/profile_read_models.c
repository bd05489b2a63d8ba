#include "sim/base/setting.h"
#include "sim/cost/cost_private.h"

#define MOST_US 1e12
#define MOST_GROWTH 10.0

// Rows of the optional sections. Absent numbers have no effect, but for those of unfused_attention.
#define NUMBER(key_, least_, most_, member)                                 \
    {                                                                       \
        .key = (key_), SP_REAL(least_, most_), SP_FIELD(sp_profile, member) \
    }
#define TIME_US(key_, member)                                                                   \
    {                                                                                           \
        .key = (key_), SP_REAL(0, MOST_US), SP_FIELD(sp_profile, member), .unit = SP_I_S_PER_US \
    }

// clang-format off
static const sp_setting gemm_rows[] = {
    {.key = "gemm_model.tflops", SP_REAL(SP_I_PROFILE_LEAST, SP_I_PROFILE_MOST),
     SP_FIELD(sp_profile, gemm_model.flops_per_s), .unit = SP_I_FLOPS_PER_TFLOP, .required = true},
    NUMBER("gemm_model.half_rate_k", 0, 1e6, gemm_model.half_rate_k),
    NUMBER("gemm_model.unaligned_share", 0, 1, gemm_model.unaligned_share),
    TIME_US("gemm_model.fixed_us", gemm_model.fixed_s),
    {.key = "gemm_model.sms", SP_INT(0, 4096), SP_FIELD(sp_profile, gemm_model.sms)},
};
static const sp_setting host_rows[] = {
    TIME_US("host.layer_us", host.layer_s),
    NUMBER("host.tp_growth", 0, MOST_GROWTH, host.tp_growth),
    TIME_US("host.unfused_softmax_us", host.softmax_s),
    TIME_US("host.tp_rank_us", host.tp_rank_s),
    TIME_US("host.cp_step_us", host.cp_step_s),
    TIME_US("host.head_us", host.head_s),
    NUMBER("host.overlap_power", 0, 100, host.overlap_power),
    TIME_US("host.unit_us", host.unit_s),
    TIME_US("host.iteration_us", host.iteration_s),
};
static const sp_setting interference_rows[] = {
    NUMBER("interference.overlap_share", 0, 1, interference.overlap_share),
    TIME_US("interference.tight_microbatch_us", interference.tight_microbatch_s),
    NUMBER("interference.doubling_share", 0, 1, interference.doubling_share),
};
static const sp_setting decode_rows[] = {
    TIME_US("decode.call_us", decode.call_s),
    TIME_US("decode.graph_miss_us", decode.graph_miss_s),
    TIME_US("decode.kernel_us", decode.kernel_s),
};
static const sp_setting score_rows[] = {
    {.key = "unfused_attention.traffic_factor", SP_REAL(SP_I_PROFILE_LEAST, 1e3),
     SP_FIELD(sp_profile, scores.factor), .usual = 1},
    NUMBER("unfused_attention.traffic_growth", 0, MOST_GROWTH, scores.growth),
    {.key = "unfused_attention.growth_from_keys", SP_REAL(1, 1e9),
     SP_FIELD(sp_profile, scores.from_keys), .usual = 1024},
    {.key = "unfused_attention.growth_to_keys", SP_REAL(1, 1e9),
     SP_FIELD(sp_profile, scores.to_keys), .usual = 2048},
};
static const sp_setting loss_rows[] = {
    {.key = "loss.bytes_per_logit", SP_REAL(SP_I_PROFILE_LEAST, 1e6),
     SP_FIELD(sp_profile, loss_bytes_per_logit), .required = true},
};
// No time is computed from it: it has a level for people.
static const sp_setting reference_rows[] = {
    {.key = "reference.us", SP_REAL(SP_I_PROFILE_LEAST, MOST_US), SP_FIELD(sp_profile, reference_s),
     .unit = SP_I_S_PER_US, .required = true},
    NUMBER("reference.drift", 0, SP_I_PROFILE_MOST, reference_drift),
};
static const sp_setting group_rows[] = {
    TIME_US("node_collectives.latency_us", groups.latency_s),
    TIME_US("node_collectives.latency_per_doubling_us", groups.doubling_s),
    TIME_US("node_collectives.between_latency_us", groups.between_s),
};
// clang-format on

static void read_tiles(sp_object *object, sp_gemm_model *model)
{
    const json_t *tiles = sp_object_get(object, "tiles");
    size_t count = json_array_size(tiles);
    if (tiles != NULL && (!json_is_array(tiles) || count > SP_GEMM_TILES)) {
        sp_object_error(object, "tiles", "expected an array of at most %d tiles [m, n, efficiency]",
                        (int)SP_GEMM_TILES);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *tile = json_array_get(tiles, i);
        json_int_t m = json_integer_value(json_array_get(tile, 0));
        json_int_t n = json_integer_value(json_array_get(tile, 1));
        double efficiency = json_number_value(json_array_get(tile, 2));
        if (json_array_size(tile) != 3 || m < 1 || m > 4096 || n < 1 || n > 4096 ||
            !(efficiency >= 0.01 && efficiency <= 10.0)) {
            sp_object_expected(object, "tiles", tile,
                               "[m, n, efficiency] with edges from 1 to 4096 and an efficiency "
                               "from 0.01 to 10");
            return;
        }
        model->tiles[i].m = (int)m;
        model->tiles[i].n = (int)n;
        model->tiles[i].efficiency = efficiency;
    }
    model->tile_count = (int)count;
    if (model->sms > 0 && count == 0) {
        sp_object_error(object, "tiles", "is missing: waves over sms need at least one tile");
    }
}

static void read_points(sp_object *object, sp_group_model *groups)
{
    int before = object->err->count + object->err->dropped;
    sp_i_profile_points(object, "gb_per_s", SP_I_BYTES_PER_GB, &groups->bytes_per_s);
    if (object->err->count + object->err->dropped == before) {
        sp_i_profile_monotone(&groups->bytes_per_s, MOST_GROWTH, false);
    }
}

static void check_power(sp_object *object, const sp_host_model *host)
{
    if (host->overlap_power > 0.0 && host->overlap_power < 1.0) {
        sp_object_error(object, "overlap_power",
                        "expected 0 (the larger of GPU and host) or at least 1 (their sum)");
    }
}

void sp_i_profile_read_models(sp_object *root, sp_profile *profile)
{
    sp_level unused;
    const struct {
        sp_setting_table table;
        sp_level *level;
        char *source;
    } sections[] = {
        {SP_SETTING_TABLE("gemm_model", gemm_rows), &profile->gemm_model.level, NULL},
        {SP_SETTING_TABLE("host", host_rows), &profile->host.level, NULL},
        {SP_SETTING_TABLE("interference", interference_rows), &profile->interference.level, NULL},
        {SP_SETTING_TABLE("decode", decode_rows), &profile->decode.level, profile->decode.source},
        {SP_SETTING_TABLE("unfused_attention", score_rows), &profile->scores.level, NULL},
        {SP_SETTING_TABLE("loss", loss_rows), &profile->loss_level, NULL},
        {SP_SETTING_TABLE("reference", reference_rows), &unused, NULL},
        {SP_SETTING_TABLE("node_collectives", group_rows), &profile->groups.bytes_per_s.level,
         profile->groups.bytes_per_s.source},
    };
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        const sp_setting *rows = sections[i].table.rows;
        sp_object object;
        if (!sp_object_member(root, sections[i].table.section, &object)) {
            continue;
        }
        sp_settings_init(sections[i].table, profile);
        sp_settings_read(&object, sections[i].table, profile, NULL);
        if (rows == gemm_rows) {
            read_tiles(&object, &profile->gemm_model);
        } else if (rows == host_rows) {
            check_power(&object, &profile->host);
        } else if (rows == group_rows) {
            read_points(&object, &profile->groups);
        }
        *sections[i].level = sp_i_profile_provenance(&object, sections[i].source);
        sp_object_end(&object);
    }
}
