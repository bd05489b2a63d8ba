// What a run on a GPU settles before its first step about attention; the passes themselves are
// those of backends/executor/typed/layer.h (attend_pack, attend_pack_backward).
#ifndef SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_PREPARE_H
#define SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_PREPARE_H

#include "backends/cuda/attention/attention.h"
#include "backends/executor/stage.h"

// Why the model's attention is not computed, as text; NULL: it is.
const char *sp_i_cuda_attention_model_refusal(const sp_model *model);

// Makes cuDNN's plans of all packs of a rank that it serves, which takes up to a second for each
// shape and would else count as time of the first step.
sp_status sp_i_cuda_attention_prepare(sp_i_cuda_attention *attention, const sp_i_exec_job *job,
                                      sp_error *err);

#endif
