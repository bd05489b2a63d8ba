// Packs of the executor as cuDNN's attention takes them (attention.h): samples packed behind each
// other. The keys of earlier slices stand in blocks of their own, which one ragged tensor cannot
// name, so it serves packs of whole samples and of samples' first slices.
#ifndef SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_PACKED_H
#define SLIMPACK_BACKENDS_CUDA_ATTENTION_ATTENTION_PACKED_H

#include "backends/cuda/attention/attention.h"
#include "backends/executor/slices.h"
#include "backends/executor/stage.h"
#include "kernels/attention_shape.h"

// Does cuDNN serve the pack? Every slice begins its sample, has tokens, stands on this rank alone
// and in rows one after another, offsets fit 32 bits, and the head size is a multiple of 16: of
// others the backward of packed samples has a known defect (cudnn-frontend 1.x, the note on
// max_total_seq_len in scaled_dot_product_flash_attention.h). Then *packed is the shape of its
// plan: queries and the like as given, keys and values of all slices in one matrix [rows, key |
// value], their gradients in matrices of their own [rows, kv_heads head_dim]. Lengths are rounded
// up by less than an eighth, so that packs of much the same size share a plan.
bool sp_i_cuda_packed_shape(const sp_i_exec_slices *slices, const sp_i_exec_pack *pack,
                            const sp_kernel_attention_shape *shape,
                            sp_i_cuda_attention_shape *packed);

// The first row of the pack's i-th slice.
int64_t sp_i_cuda_packed_row(const sp_i_exec_pack *pack, int32_t i);

// Lengths and offsets of all tensors, one table behind the other, for such a pack.
int64_t sp_i_cuda_packed_index_count(const sp_i_exec_pack *pack);
void sp_i_cuda_packed_index(const sp_i_exec_slices *slices, const sp_i_exec_pack *pack,
                            const sp_i_cuda_attention_shape *packed, int32_t *index);
// Points the tensors of lengths and offsets into a copy of them.
void sp_i_cuda_packed_tensors(const sp_i_exec_pack *pack, int32_t *index,
                              void *tensors[SP_I_CUDA_ATTENTION_TENSORS]);

// What a run on a GPU settles before its first step about attention; the passes themselves are
// those of backends/executor/typed/layer.h (attend_pack, attend_pack_backward).

// Why the model's attention is not computed, as text; NULL: it is.
const char *sp_i_cuda_attention_model_refusal(const sp_model *model);

// Makes cuDNN's plans of all packs of a rank that it serves, which takes up to a second for each
// shape and would else count as time of the first step.
sp_status sp_i_cuda_attention_prepare(sp_i_cuda_attention *attention, const sp_i_exec_job *job,
                                      sp_error *err);

#endif
