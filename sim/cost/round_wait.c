// Data-parallel ranks that share experts, or gather parameters from each other (ZeRO 3), meet in
// every layer, so that all of them are as slow as the slowest of a round. Each action is taken to
// last as long on all of them as on the one where it is longest: within it they meet several times,
// and their shares of it are alike where it is attention that differs, which is in every layer. A
// gather is there a layer before its layer needs it, so that a rank may be a layer ahead, which
// changes nothing of that. A weight gradient meets nobody for experts, but the action behind it
// does.
//
// Within each layer they also wait for the one whose experts have most rows, where routing is not
// even (expert_load.h): an action costs what it does on the mean rank, and the wait for the
// fullest.
#include <math.h>
#include <string.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "sim/cost/cost_private.h"

// A round is one call of each layer, so that packs of it with as many tokens have one overload.
static void draw_overloads(const sp_cost_model *cost, const sp_pack_list *list, sp_i_rounds *rounds)
{
    size_t *known = sp_calloc(list->count + 1, sizeof *known); // by round: pack + 1, the last drawn
    double *tokens = sp_calloc(list->count + 1, sizeof *tokens);
    for (size_t k = 0; k < list->count; k++) {
        size_t *last = &known[rounds->of.round[k]];
        int64_t own = rounds->of.tokens[k];
        tokens[k] = sp_i_group_tokens(cost->model, cost->layout, &list->packs[k], own);
        bool again = *last > 0 && tokens[*last - 1] == tokens[k];
        rounds->overload[k] = again ? rounds->overload[*last - 1]
                                    : sp_expert_load_of(cost->load, rounds->of.round[k], tokens[k]);
        rounds->held[k] = (int64_t)ceil(rounds->overload[k].held * (double)own);
        *last = k + 1;
    }
    sp_free(known);
    sp_free(tokens);
}

void sp_i_rounds_make(const sp_cost_model *cost, const sp_pack_list *list, sp_i_rounds *rounds)
{
    sp_rounds_make(cost->layout, list, sp_layout_expert_ranks(cost->layout), &rounds->of);
    rounds->overload = sp_malloc((list->count + 1) * sizeof *rounds->overload);
    rounds->held = sp_malloc((list->count + 1) * sizeof *rounds->held);
    for (size_t k = 0; k < list->count; k++) {
        rounds->overload[k] = (sp_overload){1.0, 1.0, 1.0};
        rounds->held[k] = rounds->of.tokens[k];
    }
    if (cost->load != NULL) {
        draw_overloads(cost, list, rounds);
    }
}

void sp_i_rounds_free(sp_i_rounds *rounds)
{
    sp_rounds_free(&rounds->of);
    sp_free(rounds->overload);
    sp_free(rounds->held);
}

bool sp_i_rounds_repeat(const sp_i_rounds *rounds, size_t k)
{
    return rounds->of.tokens[k - 1] == rounds->of.tokens[k] &&
           rounds->held[k - 1] == rounds->held[k] &&
           memcmp(&rounds->overload[k - 1], &rounds->overload[k], sizeof *rounds->overload) == 0;
}

void sp_i_rounds_report(const sp_i_rounds *rounds, size_t packs, sp_overload *overload)
{
    *overload = (sp_overload){0};
    for (size_t k = 0; k < packs; k++) {
        const sp_overload *of = &rounds->overload[k];
        overload->mean += of->mean / (double)packs;
        overload->most = fmax(overload->most, of->most);
        overload->held = fmax(overload->held, of->held);
    }
}

static void wait_action(const sp_rounds *rounds, sp_i_wait wait, sp_action_cost *table,
                        size_t packs, int classes, int64_t *most_ns)
{
    for (int c = 0; c < classes; c++) {
        for (int32_t i = 0; i < rounds->count; i++) {
            most_ns[i] = 0;
        }
        for (size_t k = 0; k < packs; k++) {
            int64_t *most = &most_ns[rounds->together[k]];
            *most = sp_larger(*most, sp_action_cost_ns(&table[k * (size_t)classes + (size_t)c]));
        }
        for (size_t k = 0; k < packs; k++) {
            sp_action_cost *cost = &table[k * (size_t)classes + (size_t)c];
            int64_t wait_ns = most_ns[rounds->together[k]] - sp_action_cost_ns(cost);
            if (wait == SP_I_WAIT_EXPERTS) {
                cost->ep_wait_ns += wait_ns;
                cost->ep_ns += wait_ns;
            } else {
                cost->dp_wait_ns = wait_ns;
                cost->dp_ns += wait_ns;
            }
        }
    }
}

static void wait_transfers(const sp_rounds *rounds, sp_p2p_times *times, size_t packs)
{
    sp_p2p_times *most = sp_calloc((size_t)rounds->count + 1, sizeof *most);
    for (size_t k = 0; k < packs; k++) {
        sp_p2p_times *of = &most[rounds->together[k]];
        of->ns = sp_larger(of->ns, times[k].ns);
        of->internode_ns = sp_larger(of->internode_ns, times[k].internode_ns);
    }
    for (size_t k = 0; k < packs; k++) {
        times[k] = most[rounds->together[k]];
    }
    sp_free(most);
}

static int64_t tasks_ns(const sp_layer_tasks *tasks, int kinds)
{
    int64_t sum_ns = 0;
    for (int k = 0; k < kinds; k++) {
        sum_ns += tasks[k].attention_ns + tasks[k].first_ns + tasks[k].mlp_ns + tasks[k].return_ns +
                  tasks[k].attention_weights_ns + tasks[k].mlp_weights_ns;
    }
    return sum_ns;
}

// Ranks that run an action together hide as much as the slowest of them.
static void wait_tasks(const sp_rounds *rounds, sp_layer_tasks *tasks, int kinds, size_t packs)
{
    size_t *slowest = sp_calloc((size_t)rounds->count + 1, sizeof *slowest); // pack + 1
    for (size_t k = 0; k < packs; k++) {
        size_t *most = &slowest[rounds->together[k]];
        if (*most == 0 || tasks_ns(&tasks[k * (size_t)kinds], kinds) >
                              tasks_ns(&tasks[(*most - 1) * (size_t)kinds], kinds)) {
            *most = k + 1;
        }
    }
    for (size_t k = 0; k < packs; k++) {
        size_t most = slowest[rounds->together[k]] - 1;
        if (most != k) {
            memcpy(&tasks[k * (size_t)kinds], &tasks[most * (size_t)kinds],
                   (size_t)kinds * sizeof *tasks);
        }
    }
    sp_free(slowest);
}

void sp_i_wait_in_rounds(const sp_rounds *rounds, sp_i_wait wait, int side, sp_step_costs *costs)
{
    size_t packs = costs->side[side].count;
    int64_t *most_ns = sp_calloc((size_t)rounds->count + 1, sizeof *most_ns);
    for (int kind = sp_first_kind(side); kind <= sp_last_kind(side); kind++) {
        wait_action(rounds, wait, costs->action[kind], packs, costs->classes, most_ns);
    }
    sp_layer_tasks *tasks = costs->overlap.tasks[side];
    if (tasks != NULL) {
        wait_tasks(rounds, tasks, costs->overlap.kinds, packs);
    }
    wait_transfers(rounds, costs->side[side].p2p, packs);
    sp_free(most_ns);
}
