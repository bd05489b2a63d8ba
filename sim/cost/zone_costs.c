// What zones exchange, as a step's costs keep it for flows over links.
#include "sim/cost/cost_private.h"
#include "sim/cost/zone_time.h"

void sp_i_zone_costs_note(sp_step_costs *costs, const sp_i_pack_time *time, bool backward, size_t k)
{
    const sp_i_zones *zones = time->zones;
    const sp_pack_zones ***table = backward ? &costs->zones_b : &costs->zones_f;
    if (zones == NULL) {
        return;
    }
    if (*table == NULL) {
        size_t packs = backward ? costs->backward_packs : costs->forward_packs;
        *table = sp_arena_take(&costs->zone_work, packs, sizeof(sp_pack_zones *));
    }
    sp_pack_zones *of = sp_arena_take(&costs->zone_work, 1, sizeof *of);
    sp_zone_exchange *exchanges = sp_arena_take(&costs->zone_work, zones->count, sizeof *exchanges);
    sp_zone_move *moves = sp_arena_take(&costs->zone_work, (size_t)zones->moves + 1, sizeof *moves);
    for (size_t z = 0; z < zones->count; z++) {
        const sp_i_zone_part *part = &zones->part[z];
        exchanges[z] = (sp_zone_exchange){
            part->first,
            part->ranks,
            {part->exchange[backward ? SP_PASS_I : SP_PASS_F], part->exchange[SP_PASS_RECOMPUTE]}};
    }
    for (int m = 0; m < zones->moves; m++) {
        moves[m] = (sp_zone_move){zones->move[m].from, zones->move[m].to, zones->move[m].tokens};
    }
    bool again = backward && time->recomputes_attention;
    *of = (sp_pack_zones){.zones = exchanges,
                          .moves = moves,
                          .zone_count = zones->count,
                          .move_count = (size_t)zones->moves,
                          .node_ranks = zones->one_nic ? 1 : zones->node_ranks,
                          .token_bytes = 0.5 * zones->gpu_bytes,
                          .moves_s = {zones->moves_s, again ? zones->moves_s : 0.0}};
    (*table)[k] = of;
}

void sp_i_zone_costs_repeat(const sp_pack_zones **zones, size_t k)
{
    if (zones != NULL) {
        zones[k] = zones[k - 1];
    }
}
