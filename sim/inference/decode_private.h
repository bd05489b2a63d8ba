// Private to sim/inference: what a call takes, and the calls of a batch of sequences.
#ifndef SLIMPACK_SIM_INFERENCE_DECODE_PRIVATE_H
#define SLIMPACK_SIM_INFERENCE_DECODE_PRIVATE_H

#include "sim/inference/decode.h"

// EAGLE-3's draft sees the hidden states of three of the target's layers, which one projection
// brings to the width of one, and its attention sees them beside the embedding; its head knows a
// vocabulary of 32000 (SafeAILab/EAGLE, eagle/model/cnets.py).
enum { SP_I_EAGLE_FEATURES = 3, SP_I_EAGLE_VOCAB = 32000 };

typedef struct sp_i_call_pricer {
    const sp_decode_spec *spec;
    const sp_decode_machine *machine;
    sp_forward_pricer target, draft;
    double host_s, miss_s;
    sp_uncalibrated uncalibrated; // of both; its address is kept
} sp_i_call_pricer;

void sp_i_call_pricer_init(sp_i_call_pricer *pricer, const sp_decode_spec *spec,
                           const sp_decode_machine *machine);

// A sequence that takes part in a step.
typedef struct sp_i_step_sequence {
    double context;     // its tokens so far
    int fresh;          // of these, whose features the draft has not seen
    sp_speculated call; // of the plain method nodes is 1 and depth 0
} sp_i_step_sequence;

// One target forward for `count` sequences: its shape, and the seconds of its parts in the order of
// a call.
typedef struct sp_i_call_time {
    int depth;     // forwards of the draft
    int64_t nodes; // verified, of all sequences
    double draft_s, transfer_s, verify_s, host_s;
} sp_i_call_time;

// `padded`: all trees are as deep and as wide as the largest.
void sp_i_call_price(sp_i_call_pricer *pricer, const sp_i_step_sequence *sequences, int count,
                     bool padded, sp_i_call_time *time);

// The memory of the fullest GPU at the end of the sequences, and of the draft's own.
sp_status sp_i_decode_memory(const sp_i_call_pricer *pricer, const sp_speculation *how,
                             sp_decode_memory *memory, sp_error *err);

// Generates all sequences by one method with so many graphs kept: their counts and seconds.
void sp_i_decode_steps(sp_i_call_pricer *pricer, const sp_speculation *how, int graphs,
                       const sp_acceptance *text, sp_decode_counts *counts, double *seconds);

#endif
