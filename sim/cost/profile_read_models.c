#include "sim/cost/cost_private.h"

#define MOST_US 1e12
#define MOST_GROWTH 10.0

// An optional number of a section, in the unit of its key.
typedef struct constant {
    const char *key;
    double *value;
    double unit, fallback, least, most;
} constant;

static void read_constants(sp_object *object, const constant *constants, int count)
{
    for (int i = 0; i < count; i++) {
        const constant *c = &constants[i];
        *c->value = c->unit * sp_object_real(object, c->key, c->fallback, c->least, c->most);
    }
}

#define READ_CONSTANTS(object, constants) \
    read_constants(object, constants, (int)(sizeof(constants) / sizeof(constants)[0]))

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

static void read_gemm_model(sp_object *root, sp_gemm_model *model)
{
    sp_object object;
    if (!sp_object_member(root, "gemm_model", &object)) {
        return;
    }
    model->flops_per_s =
        SP_I_FLOPS_PER_TFLOP *
        sp_i_profile_number(&object, "tflops", SP_I_PROFILE_LEAST, SP_I_PROFILE_MOST);
    const constant constants[] = {
        {"half_rate_k", &model->half_rate_k, 1.0, 0.0, 0.0, 1e6},
        {"fixed_us", &model->fixed_s, SP_I_S_PER_US, 0.0, 0.0, MOST_US},
    };
    READ_CONSTANTS(&object, constants);
    model->sms = (int)sp_object_int(&object, "sms", 0, 0, 4096);
    read_tiles(&object, model);
    model->level = sp_i_profile_provenance(&object, NULL);
    sp_object_end(&object);
}

static void read_decode(sp_object *root, sp_decode_model *decode)
{
    sp_object object;
    if (!sp_object_member(root, "decode", &object)) {
        return;
    }
    const constant constants[] = {
        {"call_us", &decode->call_s, SP_I_S_PER_US, 0.0, 0.0, MOST_US},
        {"graph_miss_us", &decode->graph_miss_s, SP_I_S_PER_US, 0.0, 0.0, MOST_US},
        {"kernel_us", &decode->kernel_s, SP_I_S_PER_US, 0.0, 0.0, MOST_US},
    };
    READ_CONSTANTS(&object, constants);
    decode->level = sp_i_profile_provenance(&object, decode->source);
    sp_object_end(&object);
}

static void read_host(sp_object *root, sp_host_model *host)
{
    sp_object object;
    if (!sp_object_member(root, "host", &object)) {
        return;
    }
    const constant constants[] = {
        {"layer_us", &host->layer_s, SP_I_S_PER_US, 0.0, 0.0, MOST_US},
        {"tp_growth", &host->tp_growth, 1.0, 0.0, 0.0, MOST_GROWTH},
        {"unfused_softmax_us", &host->softmax_s, SP_I_S_PER_US, 0.0, 0.0, MOST_US},
        {"tp_rank_us", &host->tp_rank_s, SP_I_S_PER_US, 0.0, 0.0, MOST_US},
        {"cp_step_us", &host->cp_step_s, SP_I_S_PER_US, 0.0, 0.0, MOST_US},
        {"head_us", &host->head_s, SP_I_S_PER_US, 0.0, 0.0, MOST_US},
        {"overlap_power", &host->overlap_power, 1.0, 0.0, 0.0, 100.0},
        {"unit_us", &host->unit_s, SP_I_S_PER_US, 0.0, 0.0, MOST_US},
        {"iteration_us", &host->iteration_s, SP_I_S_PER_US, 0.0, 0.0, MOST_US},
    };
    READ_CONSTANTS(&object, constants);
    if (host->overlap_power > 0.0 && host->overlap_power < 1.0) {
        sp_object_error(&object, "overlap_power",
                        "expected 0 (the larger of GPU and host) or at least 1 (their sum)");
    }
    host->level = sp_i_profile_provenance(&object, NULL);
    sp_object_end(&object);
}

static void read_interference(sp_object *root, sp_interference_model *interference)
{
    sp_object object;
    if (!sp_object_member(root, "interference", &object)) {
        return;
    }
    const constant constants[] = {
        {"overlap_share", &interference->overlap_share, 1.0, 0.0, 0.0, 1.0},
        {"tight_microbatch_us", &interference->tight_microbatch_s, SP_I_S_PER_US, 0.0, 0.0,
         MOST_US},
        {"doubling_share", &interference->doubling_share, 1.0, 0.0, 0.0, 1.0},
    };
    READ_CONSTANTS(&object, constants);
    interference->level = sp_i_profile_provenance(&object, NULL);
    sp_object_end(&object);
}

static void read_scores(sp_object *root, sp_score_model *scores)
{
    sp_object object;
    if (!sp_object_member(root, "unfused_attention", &object)) {
        return;
    }
    const constant constants[] = {
        {"traffic_factor", &scores->factor, 1.0, 1.0, SP_I_PROFILE_LEAST, 1e3},
        {"traffic_growth", &scores->growth, 1.0, 0.0, 0.0, MOST_GROWTH},
        {"growth_from_keys", &scores->from_keys, 1.0, 1024.0, 1.0, 1e9},
        {"growth_to_keys", &scores->to_keys, 1.0, 2048.0, 1.0, 1e9},
    };
    READ_CONSTANTS(&object, constants);
    scores->level = sp_i_profile_provenance(&object, NULL);
    sp_object_end(&object);
}

static void read_loss(sp_object *root, sp_profile *profile)
{
    sp_object object;
    if (sp_object_member(root, "loss", &object)) {
        profile->loss_bytes_per_logit =
            sp_i_profile_number(&object, "bytes_per_logit", SP_I_PROFILE_LEAST, 1e6);
        profile->loss_level = sp_i_profile_provenance(&object, NULL);
        sp_object_end(&object);
    }
}

// No time is computed from it: it has a level for people.
static void read_reference(sp_object *root, sp_profile *profile)
{
    sp_object object;
    if (sp_object_member(root, "reference", &object)) {
        profile->reference_s =
            SP_I_S_PER_US * sp_i_profile_number(&object, "us", SP_I_PROFILE_LEAST, MOST_US);
        profile->reference_drift = sp_object_real(&object, "drift", 0.0, 0.0, SP_I_PROFILE_MOST);
        sp_i_profile_provenance(&object, NULL);
        sp_object_end(&object);
    }
}

static void read_groups(sp_object *root, sp_group_model *groups)
{
    sp_object object;
    if (!sp_object_member(root, "node_collectives", &object)) {
        return;
    }
    const constant constants[] = {
        {"latency_us", &groups->latency_s, SP_I_S_PER_US, 0.0, 0.0, MOST_US},
        {"latency_per_doubling_us", &groups->doubling_s, SP_I_S_PER_US, 0.0, 0.0, MOST_US},
        {"between_latency_us", &groups->between_s, SP_I_S_PER_US, 0.0, 0.0, MOST_US},
    };
    READ_CONSTANTS(&object, constants);
    int before = object.err->count + object.err->dropped;
    sp_i_profile_points(&object, "gb_per_s", SP_I_BYTES_PER_GB, &groups->bytes_per_s);
    if (object.err->count + object.err->dropped == before) {
        sp_i_profile_monotone(&groups->bytes_per_s, MOST_GROWTH, false);
    }
    groups->bytes_per_s.level = sp_i_profile_provenance(&object, groups->bytes_per_s.source);
    sp_object_end(&object);
}

void sp_i_profile_read_models(sp_object *root, sp_profile *profile)
{
    read_gemm_model(root, &profile->gemm_model);
    read_host(root, &profile->host);
    read_interference(root, &profile->interference);
    read_decode(root, &profile->decode);
    read_scores(root, &profile->scores);
    read_loss(root, profile);
    read_reference(root, profile);
    read_groups(root, &profile->groups);
}
