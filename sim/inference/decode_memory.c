// What the GPUs of draft and target hold.
#include "sim/base/alloc.h"
#include "sim/inference/decode_private.h"
#include "sim/inference/held_memory.h"

// Beyond those of a layer with embedding and head: queries, keys and values of a second hidden
// state, and the projection, which every rank has whole, as it computes it.
static int64_t eagle_extra_parameters(const sp_forward_pricer *draft)
{
    const sp_shard shard = sp_shard_of(&draft->model, &draft->layout);
    int64_t hidden = draft->model.hidden;
    return hidden * (shard.q + 2 * shard.kv) + SP_I_EAGLE_FEATURES * hidden * hidden;
}

static sp_i_held held_by_draft(const sp_i_call_pricer *pricer, int64_t tokens)
{
    const sp_forward_pricer *draft = &pricer->draft;
    const sp_stage whole = {.layers = draft->model.layers, .embedding = true, .head = true};
    sp_i_held held = sp_i_held_by(&draft->model, &draft->layout, &whole, 0, tokens);
    bool eagle = pricer->spec->draft_kind == SP_DRAFT_EAGLE;
    held.parameters += eagle ? SP_I_BF16_BYTES * eagle_extra_parameters(draft) : 0;
    return held;
}

// The draft is where the target's last layer is (SafeAILab/EAGLE, eagle/model/ea_model.py).
static void find_fullest(const sp_i_call_pricer *pricer, const sp_stage *stages, int64_t tokens,
                         const sp_i_held *draft, sp_decode_memory *fullest)
{
    const sp_layout *layout = &pricer->target.layout;
    int last = 0;
    int chunk = 0;
    sp_layout_locate(layout, sp_layout_vstages(layout) - 1, &last, &chunk);
    *fullest = (sp_decode_memory){0};
    for (int pp = 0; pp < layout->pp; pp++) {
        sp_i_held own = sp_i_held_by(&pricer->target.model, layout, stages, pp, tokens);
        sp_decode_memory memory = {.target = own.parameters, .kv_cache = own.kv_cache};
        if (pp == last) {
            memory.draft = draft->parameters;
            memory.kv_cache += draft->kv_cache;
        }
        bool fuller = sp_decode_memory_bytes(&memory) > sp_decode_memory_bytes(fullest);
        *fullest = fuller ? memory : *fullest;
    }
}

sp_status sp_i_decode_memory(const sp_i_call_pricer *pricer, const sp_speculation *how,
                             sp_decode_memory *memory, sp_error *err)
{
    const sp_decode_spec *spec = pricer->spec;
    const sp_layout *layout = &pricer->target.layout;
    bool drafts = how->method != SP_DECODE_PLAIN;
    int64_t longest = spec->prompt_tokens + spec->output_tokens + (drafts ? how->nodes : 0);
    int64_t tokens = (spec->batch < spec->sequences ? spec->batch : spec->sequences) * longest;
    const sp_i_held none = {0};
    const sp_i_held draft = drafts ? held_by_draft(pricer, tokens) : none;
    sp_stage *stages = sp_calloc((size_t)sp_layout_vstages(layout), sizeof *stages);
    sp_status status = sp_layout_stages(layout, pricer->target.model.layers, "decode", stages, err);
    if (status == SP_OK) {
        find_fullest(pricer, stages, tokens, spec->draft_apart ? &none : &draft, memory);
        memory->apart = spec->draft_apart ? sp_i_held_bytes(&draft) : 0;
    }
    sp_free(stages);
    return status;
}
