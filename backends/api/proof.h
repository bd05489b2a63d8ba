// Whether a plan trains what it should: loss and gradients of its step beside those of the plain
// step, tensor by tensor.
#ifndef SLIMPACK_BACKENDS_API_PROOF_H
#define SLIMPACK_BACKENDS_API_PROOF_H

#include "backends/api/device.h"

// The step of a request without slices and without parallelism: one rank, a pack for each sample
// that the request's packing trains, nothing repeated or moved; in fp64 where the request's
// precision is bf16.
typedef struct sp_plain_step {
    sp_layout layout;
    sp_packing packing;
    sp_plan plan;
    sp_run_request request; // reads all of the above, which must stay where it is
} sp_plain_step;

// sp_plain_step_fini in any case.
sp_status sp_plain_step_make(const sp_run_request *request, sp_plain_step *plain, sp_error *err);
void sp_plain_step_fini(sp_plain_step *plain);

// Relative errors of gradients. What rounding changes in fp64 and fp32 is far below these bounds,
// and what a plan that loses a token changes far above.
#define SP_PROOF_FP64_BOUND 1e-10
#define SP_PROOF_FP32_BOUND 1e-4

// What bf16 explains comes from fp64 alone: gradients of the plain step change by some distance
// when its parameters are rounded to bf16. Each product of a layer then reads one tensor that was
// rounded, 4 forward and the same 4 backward. A step in bf16 rounds about 12 tensors of hidden
// states in a layer forward and 13 backward, every one by the same relative error, and errors that
// know nothing of each other add in squares: the step is off by sqrt(25/8) = 1.8 times that
// distance, for each tensor its own. The bound is 3 times it for weights. Biases are sums over
// tokens that nearly cancel, while rounded parameters are off by the same for all tokens: 5 times.
#define SP_PROOF_BF16_WEIGHT_BOUND 3.0 // of the distance that rounded parameters make
#define SP_PROOF_BF16_BIAS_BOUND 5.0
// The loss is a mean over tokens, whose logits have a spread of about a tenth (tables start with
// 0.02 in 32 features) and are off by a hundredth of that: 1e-3, less by the square root of their
// number, of a loss of about 4.
#define SP_PROOF_BF16_LOSS_BOUND 2e-4 // relative

typedef struct sp_proven_tensor {
    char name[SP_TENSOR_NAME]; // "gradients/NAME"; of the loss "loss"
    int64_t elements;
    double error;   // |a - b| over |b|, of all elements together; 0 where both are zero
    double largest; // of one element, over the largest element of the plain step's
    double bound;   // that the error may have
} sp_proven_tensor;

// The step of a plan beside the plain step.
typedef struct sp_proof {
    sp_proven_tensor *tensors; // [count], the loss behind the gradients; owned
    size_t count;
    size_t worst; // the tensor of the largest error over its bound, the last of equal ones
    double loss, plain_loss;
    bool holds; // no error is above its bound
} sp_proof;

// What errors are bounded by is the precision's own; SP_BF16 also takes the plain step from
// parameters that were not rounded (`unrounded`, else NULL). A tensor that the run lacks, or whose
// elements are no finite numbers, has an infinite error. Of the runs' first steps. The caller calls
// sp_proof_fini whatever is returned. O(elements).
sp_status sp_proof_compare(const sp_run *run, const sp_run *plain, const sp_run *unrounded,
                           sp_precision precision, sp_proof *proof, sp_error *err);

// Runs the request (of one step; in bf16 from rounded parameters) on a device, and its plain step
// on the first device of another backend (the same one, or the CPU's), with the options that both
// know, and compares the two. Errors: those of sp_backend_run.
sp_status sp_proof_run(const sp_backend *backend, int device, const sp_backend *plain_backend,
                       const sp_run_request *request, sp_proof *proof, sp_error *err);
void sp_proof_fini(sp_proof *proof);

// The error of one tensor of two runs, as above.
sp_status sp_proof_tensor(const sp_run *run, const sp_run *plain, const sp_tensor_info *info,
                          sp_proven_tensor *tensor, sp_error *err);

#endif
