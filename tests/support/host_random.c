#include "tests/support/host_random.h"

#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/plan_sample.h"
#include "tests/support/random_plan.h"
#include "tests/support/test_main.h"
#include "tests/support/unit_draw.h"

// A layout of at most four stages and its four layers in shares that need not be equal. Stages
// between the first and the last may be left without one where `empty`.
static void draw_layers(sp_prng *prng, sp_layout *layout, int *layers, int total, bool empty)
{
    int stages = sp_layout_vstages(layout);
    for (int s = 0; s < stages; s++) {
        bool end = s == 0 || s + 1 == stages;
        layers[s] = empty || (end && stages > 1) ? 0 : 1;
        total -= layers[s];
    }
    while (total > 0) {
        layers[prng_below(prng, stages)]++;
        total--;
    }
    layout->stage_layers = layers;
}

// A tensor-parallel width that the model's heads allow, with or without sequence parallelism, and
// context parallelism.
static void draw_members(sp_prng *prng, const host_random *draw, sp_layout *layout)
{
    layout->tp = 1 << prng_below(prng, draw->most_tp_bits + 1);
    layout->cp = 1 + prng_below(prng, draw->most_cp > 0 ? draw->most_cp : 1);
    layout->sequence_parallel = prng_below(prng, 2) == 0;
    layout->vocab_parallel = draw->vocab;
}

// A zone of one rank or two of those that share the pack, or none.
static int32_t draw_zone(sp_prng *prng, const sp_pack *pack)
{
    int ranks = 1 + prng_below(prng, 2);
    int first = (pack->dp_first + prng_below(prng, pack->dp_count)) / ranks * ranks;
    bool inside = first >= pack->dp_first && first + ranks <= pack->dp_first + pack->dp_count;
    return inside && pack->dp_count > 1 ? sp_zone_of(first, ranks) : 0;
}

// One for each sample; true: there is one.
static bool draw_zones(sp_prng *prng, sp_packing *packing)
{
    sp_pack_list *lists[] = {&packing->forward, &packing->backward};
    AUTO_FREE int32_t *zone = sp_calloc(packing->batch->count, sizeof *zone);
    bool any = false;
    for (size_t p = 0; p < packing->forward.count; p++) {
        const sp_pack *pack = &packing->forward.packs[p];
        for (size_t s = pack->first_slice; s < pack->first_slice + pack->slice_count; s++) {
            zone[packing->forward.slices[s].sample] = draw_zone(prng, pack);
        }
    }
    for (int side = 0; side < 2; side++) {
        for (size_t s = 0; s < lists[side]->slice_count; s++) {
            lists[side]->slices[s].zone = zone[lists[side]->slices[s].sample];
            any = any || lists[side]->slices[s].zone != 0;
        }
    }
    return any;
}

// Takes out the copies to host memory.
static void remove_copies(const sp_plan *plan)
{
    for (int s = 0; s < plan->layout.dp * plan->layout.pp; s++) {
        sp_stage_plan *stage = &plan->stages[s];
        size_t kept = 0;
        for (size_t a = 0; a < stage->count; a++) {
            bool copy =
                stage->actions[a].kind == SP_ACTION_O || stage->actions[a].kind == SP_ACTION_L;
            stage->actions[kept] = stage->actions[a];
            kept += !copy;
        }
        stage->count = kept;
    }
}

// Is there something to train, on ranks that are asked for?
static bool is_wanted(bool merges, const random_plan *r)
{
    const sp_pack_list *packs = &r->packing.forward;
    bool merged = false;
    for (size_t p = 0; p < packs->count; p++) {
        merged = merged || packs->packs[p].dp_count > 1;
    }
    return r->batch.count > 0 && packs->slice_count > 0 && (!merged || merges);
}

// A mode, or some modules.
sp_recompute host_random_mode(sp_prng *prng, const sp_model *model)
{
    sp_recompute modes[SP_RECOMPUTE_MODES];
    int count = 0;
    for (int m = 0; m < SP_RECOMPUTE_MODES; m++) {
        if (sp_recompute_lacks((sp_recompute)m, model, NULL) == NULL) {
            modes[count++] = (sp_recompute)m;
        }
    }
    return prng_below(prng, 2) == 0 ? modes[prng_below(prng, count)] : random_modules(prng, model);
}

bool host_random_plan(sp_prng *prng, int layers, int stage_layers[HOST_STAGES], random_plan *r)
{
    random_plan_make(prng, 3, 2, r);
    random_agreed_actions(prng, r);
    remove_copies(&r->plan);
    draw_layers(prng, &r->plan.layout, stage_layers, layers, true);
    return is_wanted(false, r);
}

void host_random_agree(host_random draw)
{
    const sp_backend_option options[] = {{"dropout", draw.dropout != NULL ? draw.dropout : "0"},
                                         {"attention", draw.routed ? "routed:2"
                                                       : draw.ring ? "ring"
                                                                   : "gathered"}};
    const sp_model builtin = draw.gpt ? host_gpt() : host_llama();
    const sp_model *model = draw.model != NULL ? draw.model : &builtin;
    sp_prng prng = prng_seeded(draw.seed);
    int ran = 0;
    AUTO(host_device) device = host_opened();
    while (ran < draw.count) {
        AUTO(random_plan) r;
        int layers[HOST_STAGES];
        random_plan_make(&prng, 3, 2, &r);
        random_agreed_actions(&prng, &r);
        bool empty = draw.agrees == NULL;
        bool fills = empty || sp_layout_vstages(&r.plan.layout) - 2 <= model->layers;
        draw_layers(&prng, &r.plan.layout, layers, model->layers, empty);
        draw_members(&prng, &draw, &r.plan.layout);
        r.plan.layout.zero = draw.zero > 0 ? draw.zero : 1;
        const sp_memory_options memory = {
            .recompute = host_random_mode(&prng, model),
            .offload_ratio = draw.vocab ? 0.0 : (double)prng_below(&prng, 5) / 4.0};
        const sp_run_request request = {RUN_OF(&r.plan, model, &memory), .clock = draw.clock,
                                        RUN_STEPS(draw.bf16   ? SP_BF16
                                                  : draw.fp32 ? SP_FP32
                                                              : SP_FP64,
                                                  draw.seed, 1),
                                        RUN_OPTIONS(options, 2), .memory_points = true};
        bool zoned = draw.zones && r.batch.count > 0 && draw_zones(&prng, &r.packing);
        bool wanted = fills && is_wanted(draw.merges, &r) && zoned == draw.zones &&
                      (draw.most_tokens == 0 || r.batch.total_tokens <= draw.most_tokens);
        if (wanted && draw.agrees != NULL) {
            draw.agrees(&request);
        } else if (wanted) {
            host_must_agree(&device, &request);
        }
        ran += wanted;
    }
}
