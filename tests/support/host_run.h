// Runs of the CPU executor whose gradients are compared.
#ifndef SLIMPACK_TESTS_SUPPORT_HOST_RUN_H
#define SLIMPACK_TESTS_SUPPORT_HOST_RUN_H

#include "backends/api/proof.h"
#include "tests/support/test_main.h"

OWNS(sp_run)

// A model small enough for thousands of runs: 4 layers, hidden 32, 4 heads, 2 key and value heads,
// vocabulary 61. Llama style, or GPT-2 style with biases, learned positions and a tied table.
sp_model host_llama(void);
sp_model host_gpt(void);

// The Llama with layers of three kinds: a window of 5 tokens, chunks of 7 beside a wider MLP, all
// tokens.
sp_model host_kinds(void);

// The Llama with a dense layer, one of 4 experts of which a token has 2, and two of 6 and 3 with
// shared experts, in the last one behind a gate.
sp_model host_routed(void);

// Latent attention in every layer, with a latent of the queries or without, and experts in some.
sp_model host_latent(bool of_queries);

typedef struct host_device {
    sp_registry *registry;
    const sp_backend *backend;
} host_device;

void host_open(host_device *device);
host_device host_opened(void);
void host_device_fini(host_device *device);

// Runs the request; fails the test case where it does not end well.
sp_run *host_run(const host_device *device, const sp_run_request *request);

// Fails the test case where it cannot be made.
typedef sp_plain_step host_plain;

void host_plain_make(const sp_run_request *request, host_plain *plain);
void host_plain_fini(host_plain *plain);

// Largest relative error, |a - b| / |b| over each tensor whose name begins with `prefix`, of two
// runs of one model; a tensor whose values are all zero must be so in both.
double host_distance(const sp_run *a, const sp_run *b, const char *prefix);

// Runs the request, of one step, and its plain step and holds loss and every gradient against the
// bound of the precision (backends/api/proof.h).
void host_must_agree(const host_device *device, const sp_run_request *request);

// The elements of a tensor, and of the one of the same name in another folder; for sp_free.
double *host_tensor(const sp_run *run, const sp_tensor_info *info);
double *host_tensor_of(const sp_run *run, const char *folder, const sp_tensor_info *info);

#endif
