// What became of generated text, as a document (slimpack/decode/1).
#ifndef SLIMPACK_SIM_INFERENCE_DECODE_JSON_H
#define SLIMPACK_SIM_INFERENCE_DECODE_JSON_H

#include <jansson.h>

#include "sim/inference/decode.h"

// What no prediction of this kind knows of, NULL-terminated.
extern const char *const sp_decode_not_modelled[];

// Are the trees others than those that acceptance is fitted to?
bool sp_decode_extrapolates(const sp_decode_spec *spec);

// What a reader should be warned of, NULL behind the last.
enum { SP_DECODE_WARNINGS = 4 };
void sp_decode_warnings(const sp_decode_spec *spec, const sp_decode_result *result,
                        const char *texts[SP_DECODE_WARNINGS + 1]);

// Milliseconds of one forward of the target with all that belongs to it.
double sp_decode_step_ms(const sp_decode_result *result);

// Share of that in which the target verifies.
double sp_decode_verify_share(const sp_decode_result *result);

// Share of it that is the host's, capture of graphs included.
double sp_decode_host_share(const sp_decode_result *result);

// Share of the calls in the bins of low entropy.
double sp_decode_low_share(const sp_decode_result *result);

// Of the tokens that were asked for, by all replicas, until the last of them is done.
double sp_decode_tokens_per_s(const sp_decode_result *result);

json_t *sp_decode_result_json(const sp_decode_spec *spec, const sp_decode_machine *machine,
                              const sp_decode_result *result);

#endif
