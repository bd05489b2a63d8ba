// The parts of a calibration that are the same on every device: which products a model has and
// which of them a table of a profile prices, how curves of attention follow from measured times,
// and sections of the document. The backend times single operations.
#ifndef SLIMPACK_BACKENDS_EXECUTOR_CALIBRATE_H
#define SLIMPACK_BACKENDS_EXECUTOR_CALIBRATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/api/backend.h"
#include "sim/model/model.h"

// Seconds of one piece of work, and half the distance between the quartiles of its repeats as a
// share of them.
typedef struct sp_i_timing {
    double seconds, spread;
} sp_i_timing;

typedef enum sp_i_product {
    SP_I_PRODUCT_FORWARD, // y = x W^T
    SP_I_PRODUCT_INPUT,   // dx = dy W
    SP_I_PRODUCT_WEIGHT,  // dW += dy^T x
    SP_I_PRODUCTS
} sp_i_product;

// A calibration under way.
typedef struct sp_i_calibrator {
    const void *calibration; // the backend's, of `measured`
    void *context;           // of the other functions
    const sp_model *model;
    json_t *document;
    // {"level": "measured", "source": text that says of `what` how it was measured}; NULL where
    // that is no UTF-8.
    json_t *(*measured)(const void *calibration, const char *what, double spread);

    // ---- products ----
    const char *products_by; // such as "products by cuBLASLt"
    const char *cubes_by;    // of as many tokens as inputs and outputs
    int most_tp;             // products of a rank in groups up to this size
    int64_t least_tokens, most_tokens, least_edge, most_edge;
    double table_s, rate_s; // for each measurement of a table, and of the rates
    // Makes matrices for products of up to `tokens` tokens, which time_product times; end_product
    // frees them, also after a failure.
    sp_status (*begin_product)(void *context, int64_t in, int64_t out, int64_t tokens,
                               sp_error *err);
    void (*end_product)(void *context);
    sp_status (*time_product)(void *context, sp_i_product kind, int64_t tokens, double budget_s,
                              sp_i_timing *timing, sp_error *err);

    // ---- attention of one sample ----
    const char *attention_by;
    int64_t least_length, longest;
    // The least that a slice behind a context is taken to need beyond a sample of its own length,
    // as a share of its time: it is the difference of two measured times.
    double least_share;
    // A rate grows at most with the length, that of blocks with its square (profiles/README.md):
    // where a measured one grows faster, that of the shorter length is raised.
    bool limits_growth;
    // The last `queries` of `keys` tokens of a sample.
    sp_status (*time_attention)(void *context, bool backward, int64_t queries, int64_t keys,
                                sp_i_timing *timing, sp_error *err);
    // As many earlier keys as queries, in a call of its own; NULL: not timed.
    sp_status (*time_attention_block)(void *context, bool backward, int64_t length,
                                      sp_i_timing *timing, sp_error *err);
} sp_i_calibrator;

// "gemm_rate", by the edge of a cube for products of any shape.
sp_status sp_i_calibrate_product_rates(const sp_i_calibrator *c, sp_error *err);
// "gemm": times over tokens for each (n, k) of the model's layers and LM head.
sp_status sp_i_calibrate_product_tables(const sp_i_calibrator *c, sp_error *err);
// "attention" at the model's heads: causal; the rectangle of a slice over as much context as it has
// tokens, which is what it takes beyond a sample of its own length; and the rectangle as a block.
sp_status sp_i_calibrate_attention(const sp_i_calibrator *c, sp_error *err);

// Runs a part of a calibration, which leaves a profile in the document.
typedef sp_status sp_i_run_part(void *calibration, int part, sp_error *err);
// Seconds of the reference work, of which `by` says in words what it is.
typedef sp_status sp_i_time_reference(void *calibration, double *seconds, sp_error *err);

// Runs all parts, up to SP_I_CALIBRATION_PARTS, looks before, between and behind them at the
// machine's speed, which makes the section "reference", and calls the request's `part` after each.
enum { SP_I_CALIBRATION_PARTS = 8 };
sp_status sp_i_calibrate_parts(void *calibration, int count, sp_i_run_part *run,
                               sp_i_time_reference *reference, const char *by,
                               const sp_calibration_request *request, json_t *document,
                               sp_error *err);

// Puts {"level", "source", key: value} into the document as `section`.
sp_status sp_i_calibration_value(const sp_i_calibrator *c, const char *section, const char *key,
                                 double value, const char *what, double spread, sp_error *err);
sp_status sp_i_calibration_unwritable(sp_error *err);

#endif
