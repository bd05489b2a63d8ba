// The prefill section of a scenario, read and written.
#include "sim/scenario/scenario_private.h"

const char *const sp_i_prefill_names[] = {"dense",       "sample",     "minference",
                                          "flexprefill", "xattention", NULL};
_Static_assert(SP_PREFILL_DENSE == 0 && SP_PREFILL_XATTENTION == 4, "prefill.attention");

const char *const sp_i_deal_names[] = {"cost", "heads", NULL};
_Static_assert(SP_PREFILL_BY_COST == 0 && SP_PREFILL_BY_HEADS == 1, "prefill.deal");

// The paper's near-lossless threshold, and the window and the share of sampled rows that a review
// of it and its ablation name (arXiv 2406.15486v2).
#define USUAL_ALPHA 0.95
#define USUAL_WINDOW_SHARE 0.08
#define USUAL_ROW_SHARE 0.05

void sp_i_scenario_read_prefill(sp_i_scenario_reader *reader)
{
    sp_prefill_spec *prefill = &reader->scenario->prefill;
    sp_object object;
    prefill->given = sp_object_member(&reader->root, "prefill", &object);
    prefill->attention =
        (sp_prefill_method)sp_object_enum(&object, "attention", sp_i_prefill_names, 0);
    prefill->alpha = sp_object_real(&object, "alpha", USUAL_ALPHA, 0.0, 1.0);
    prefill->window_share = sp_object_real(&object, "window_share", USUAL_WINDOW_SHARE, 0.0, 1.0);
    prefill->row_share = sp_object_real(&object, "row_share", USUAL_ROW_SHARE, 0.0, 1.0);
    prefill->stripe_share = sp_object_real(&object, "stripe_share", -1.0, 0.0, 1.0);
    prefill->fixed_us = sp_object_real(&object, "fixed_us", -1.0, 0.0, 1e6);
    prefill->deal = (sp_prefill_deal)sp_object_enum(&object, "deal", sp_i_deal_names, 0);
    prefill->chunk_tokens = sp_object_tokens(&object, "chunk_tokens", 0, 1, SP_MAX_LENGTH_TOKENS);
    prefill->together = sp_object_bool(&object, "together", false);
    prefill->dense_below = sp_object_tokens(&object, "dense_below", 0, 0, SP_MAX_LENGTH_TOKENS);
    sp_object_end(&object);
}

json_t *sp_i_prefill_to_json(const sp_prefill_spec *prefill)
{
    sp_json_builder b = sp_json_build();
    sp_json_add_text(&b, "attention", sp_i_prefill_names[prefill->attention]);
    sp_json_add_real(&b, "alpha", prefill->alpha);
    sp_json_add_real(&b, "window_share", prefill->window_share);
    sp_json_add_real(&b, "row_share", prefill->row_share);
    if (prefill->stripe_share >= 0.0) {
        sp_json_add_real(&b, "stripe_share", prefill->stripe_share);
    }
    if (prefill->fixed_us >= 0.0) {
        sp_json_add_real(&b, "fixed_us", prefill->fixed_us);
    }
    sp_json_add_text(&b, "deal", sp_i_deal_names[prefill->deal]);
    if (prefill->chunk_tokens > 0) {
        sp_json_add_int(&b, "chunk_tokens", prefill->chunk_tokens);
    }
    if (prefill->together) {
        sp_json_add_bool(&b, "together", true);
    }
    if (prefill->dense_below > 0) {
        sp_json_add_int(&b, "dense_below", prefill->dense_below);
    }
    return sp_json_built(b);
}
