// What one call takes of draft, target and host.
#include "sim/inference/decode_private.h"
#include "sim/inference/held_memory.h"

static sp_model eagle_draft(const sp_model *target)
{
    sp_model draft = *target;
    draft.layers = 1;
    draft.experts = 0;
    draft.experts_per_token = 0;
    draft.vocab = target->vocab < SP_I_EAGLE_VOCAB ? target->vocab : SP_I_EAGLE_VOCAB;
    return draft;
}

void sp_i_call_pricer_init(sp_i_call_pricer *pricer, const sp_decode_spec *spec,
                           const sp_decode_machine *machine)
{
    const sp_decode_model *host = &machine->profile->decode;
    sp_model draft = spec->draft_kind == SP_DRAFT_EAGLE ? eagle_draft(machine->model) : spec->draft;
    sp_layout alone = *machine->layout;
    alone.tp = spec->draft_tp;
    alone.pp = 1;
    alone.chunks = 1;
    alone.stage_layers = NULL;
    pricer->spec = spec;
    pricer->machine = machine;
    pricer->host_s = spec->call_ms >= 0.0 ? 1e-3 * spec->call_ms : host->call_s;
    pricer->miss_s = spec->graph_miss_ms >= 0.0 ? 1e-3 * spec->graph_miss_ms : host->graph_miss_s;
    sp_forward_pricer_init(&pricer->target, machine->profile, machine->cluster, machine->stack,
                           machine->model, machine->layout);
    sp_forward_pricer_init(&pricer->draft, machine->profile, machine->cluster, machine->stack,
                           &draft, &alone);
    pricer->target.timer.graphed = spec->graphs > 0;
    pricer->draft.timer.graphed = spec->graphs > 0;
    pricer->uncalibrated = (sp_uncalibrated){0};
    pricer->target.timer.uncalibrated = &pricer->uncalibrated;
    pricer->draft.timer.uncalibrated = &pricer->uncalibrated;
}

static double eagle_extra_s(const sp_i_call_pricer *pricer, double rows, bool first)
{
    const sp_forward_pricer *draft = &pricer->draft;
    double hidden = (double)draft->model.hidden;
    const sp_shard shard = sp_shard_of(&draft->model, &draft->layout);
    double qkv = (double)(shard.q + 2 * shard.kv);
    double both = sp_time_gemm(&draft->timer, SP_GEMM_TOKENS_OUT, rows, qkv, 2.0 * hidden);
    double one = sp_time_gemm(&draft->timer, SP_GEMM_TOKENS_OUT, rows, qkv, hidden);
    double joined =
        sp_time_gemm(&draft->timer, SP_GEMM_TOKENS_OUT, rows, hidden, SP_I_EAGLE_FEATURES * hidden);
    return both - one + (first ? joined : 0.0);
}

static double draft_forward_s(sp_i_call_pricer *pricer, const sp_forward *forward, bool first)
{
    double extra_s = pricer->spec->draft_kind == SP_DRAFT_EAGLE
                         ? eagle_extra_s(pricer, forward->rows, first)
                         : 0.0;
    return sp_forward_s(&pricer->draft, forward) + extra_s;
}

// The first forward is over what the target has accepted, the others over the K nodes of a layer.
static double draft_s(sp_i_call_pricer *pricer, const sp_i_turn *turns, int count, int deepest,
                      bool padded)
{
    double sum = 0.0;
    for (int layer = 0; layer < deepest; layer++) {
        sp_forward forward = {0};
        for (int i = 0; i < count; i++) {
            if (layer < turns[i].call.depth || padded) {
                int rows = layer == 0 ? turns[i].fresh : pricer->spec->how.top_k;
                forward.rows += rows;
                forward.kv_tokens += turns[i].context;
                forward.pairs += rows * turns[i].context;
            }
        }
        sum += draft_forward_s(pricer, &forward, layer == 0);
    }
    return sum;
}

// The features of the accepted tokens go to the draft, its tokens come back.
static double transfer_s(const sp_i_call_pricer *pricer, const sp_i_turn *turns, int count)
{
    double rows = 0.0;
    for (int i = 0; i < count; i++) {
        rows += turns[i].fresh;
    }
    double features = pricer->spec->draft_kind == SP_DRAFT_EAGLE ? SP_I_EAGLE_FEATURES : 0;
    double bytes = SP_I_BF16_BYTES * rows * features * (double)pricer->machine->model->hidden;
    return sp_time_p2p(&pricer->target.timer, bytes, 0) +
           sp_time_p2p(&pricer->target.timer, 0.0, 0);
}

void sp_i_call_price(sp_i_call_pricer *pricer, const sp_i_turn *turns, int count, bool padded,
                     sp_i_call_time *time)
{
    int depth = 0;
    int widest = 0;
    sp_forward verified = {0};
    for (int i = 0; i < count; i++) {
        depth = turns[i].call.depth > depth ? turns[i].call.depth : depth;
        widest = turns[i].call.nodes > widest ? turns[i].call.nodes : widest;
    }
    for (int i = 0; i < count; i++) {
        int rows = padded ? widest : turns[i].call.nodes;
        verified.rows += rows;
        verified.kv_tokens += turns[i].context;
        verified.pairs += rows * (turns[i].context + 0.5 * rows);
    }
    *time = (sp_i_call_time){.depth = depth,
                             .nodes = (int64_t)verified.rows,
                             .verify_s = sp_forward_s(&pricer->target, &verified)};
    if (depth > 0) {
        time->draft_s = draft_s(pricer, turns, count, depth, padded);
        time->transfer_s = pricer->spec->draft_apart ? transfer_s(pricer, turns, count) : 0.0;
        time->host_s = pricer->host_s;
    }
}
