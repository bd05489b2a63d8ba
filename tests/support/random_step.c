#include "tests/support/random_step.h"

#include "tests/support/test_main.h"

static int64_t draw(sp_prng *prng, int64_t below)
{
    return (int64_t)sp_prng_below(prng, (uint64_t)below);
}

static sp_action_cost draw_cost(sp_prng *prng)
{
    int64_t launch_ns = draw(prng, 300);
    int64_t kernels_ns = draw(prng, 5000);
    return (sp_action_cost){.compute_ns = 1 + launch_ns + kernels_ns,
                            .tp_ns = draw(prng, 500),
                            .cp_ns = draw(prng, 300),
                            .dp_ns = draw(prng, 200),
                            .launch_ns = launch_ns,
                            .again_ns = kernels_ns / 3};
}

static void draw_bytes(sp_prng *prng, sp_bytes *bytes)
{
    for (int c = 0; c < SP_MEM_CATEGORIES; c++) {
        bytes->of[c] = draw(prng, 1000);
    }
}

static sp_action_cost sum(sp_action_cost a, sp_action_cost b)
{
    return (sp_action_cost){.compute_ns = a.compute_ns + b.compute_ns,
                            .tp_ns = a.tp_ns + b.tp_ns,
                            .cp_ns = a.cp_ns + b.cp_ns,
                            .dp_ns = a.dp_ns + b.dp_ns,
                            .launch_ns = a.launch_ns + b.launch_ns,
                            .again_ns = a.again_ns + b.again_ns};
}

void random_costs(sp_prng *prng, const sp_layout *layout, const sp_packing *packing, int kinds,
                  sp_step_costs *costs)
{
    size_t vstages = (size_t)sp_layout_vstages(layout);
    size_t forward = packing->forward.count;
    size_t backward = sp_packing_backward(packing)->count;
    size_t classes = vstages > 1 ? 2 : 1;
    sp_i_step_costs_init(costs, layout, packing, (int)classes, false);
    costs->stages[vstages - 1].cost_class = (int)classes - 1;
    costs->side[0].unit = sp_calloc(forward * classes, sizeof *costs->side[0].unit);
    if (packing->backward.count > 0) {
        costs->side[1].unit = sp_calloc(backward * classes, sizeof *costs->side[1].unit);
    }
    for (size_t k = 0; k < forward; k++) {
        // The row to repeat: the first pack of the same kind on the same place of its rank.
        size_t same = kinds > 0 ? k / (size_t)layout->dp % (size_t)kinds * (size_t)layout->dp : k;
        bool copy = same < k;
        for (size_t c = 0; c < classes; c++) {
            size_t at = k * classes + c;
            size_t from = same * classes + c;
            costs->action[SP_ACTION_F][at] =
                copy ? costs->action[SP_ACTION_F][from] : draw_cost(prng);
            if (copy) {
                costs->side[0].unit[at] = costs->side[0].unit[from];
            } else {
                draw_bytes(prng, &costs->side[0].unit[at].held);
                draw_bytes(prng, &costs->side[0].unit[at].weights);
                draw_bytes(prng, &costs->side[0].unit[at].forward);
                draw_bytes(prng, &costs->side[0].unit[at].backward);
                costs->side[0].unit[at].loaded_backward = costs->side[0].unit[at].backward;
            }
        }
        costs->side[0].p2p[k].ns = copy ? costs->side[0].p2p[same].ns : draw(prng, 400);
        costs->side[0].p2p[k].internode_ns =
            copy ? costs->side[0].p2p[same].internode_ns : draw(prng, 4000);
    }
    for (size_t k = 0; k < backward; k++) {
        size_t same = kinds > 0 ? k / (size_t)layout->dp % (size_t)kinds * (size_t)layout->dp : k;
        bool copy = same < k;
        for (size_t c = 0; c < classes; c++) {
            size_t at = k * classes + c;
            size_t from = same * classes + c;
            costs->action[SP_ACTION_I][at] =
                copy ? costs->action[SP_ACTION_I][from] : draw_cost(prng);
            costs->action[SP_ACTION_W][at] =
                copy ? costs->action[SP_ACTION_W][from] : draw_cost(prng);
            costs->action[SP_ACTION_B][at] =
                sum(costs->action[SP_ACTION_I][at], costs->action[SP_ACTION_W][at]);
            if (costs->side[1].unit != NULL) {
                draw_bytes(prng, &costs->side[1].unit[at].backward);
                costs->side[1].unit[at].loaded_backward = costs->side[1].unit[at].backward;
            }
        }
        costs->side[1].p2p[k].ns = copy ? costs->side[1].p2p[same].ns : draw(prng, 400);
        costs->side[1].p2p[k].internode_ns =
            copy ? costs->side[1].p2p[same].internode_ns : draw(prng, 4000);
    }
    for (int r = 0; r < layout->pp; r++) {
        costs->crosses_nodes[r] = (uint8_t)draw(prng, 2);
        costs->ranks[r].epilogue = (sp_epilogue_cost){.grad_reduce_ns = draw(prng, 9000),
                                                      .optimizer_ns = draw(prng, 900),
                                                      .param_gather_ns = draw(prng, 9000)};
        draw_bytes(prng, &costs->ranks[r].states);
    }
}
