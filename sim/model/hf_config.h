// Hugging Face's config.json: the families of models that are read (model_hf.c), and keys beside
// those that a family reads (hf_keys.c).
#ifndef SLIMPACK_SIM_MODEL_HF_CONFIG_H
#define SLIMPACK_SIM_MODEL_HF_CONFIG_H

#include <stdbool.h>

#include "sim/base/json.h"
#include "sim/model/model.h"

// `called` is the name of a file that gives none of its own; NULL: its kind.
sp_status sp_i_hf_read(const json_t *config, const char *source, const char *called,
                       sp_model *model, sp_error *err);

extern const char sp_i_hf_adapters[]; // why these are refused

// Absent, null, false, 0, and an empty text, list or object ask for nothing.
bool sp_i_hf_asks_for_nothing(const json_t *value);

// After a family has read its keys: refuses others that change parameters, bytes or time.
// `is_part`: the file around a text_config, of which nothing is read.
void sp_i_hf_refuse_keys(sp_object *object, bool is_part);

// A quantization_config of weights in FP8 (quant_method "fp8": DeepSeek-V3, Kimi K2) says how they
// are stored; another one is left to sp_i_hf_refuse_keys().
void sp_i_hf_read_quantization(sp_object *object, sp_model *model);

// Adds a key to those that a warning names, as far as they fit.
void sp_i_hf_add_key(char keys[SP_MODEL_KEYS], const char *key);
// Objects around a text_config: an encoder of pictures or sound, with its own layers.
void sp_i_hf_note_parts(const json_t *config, sp_model *model);
// Keys that were not read and may change something.
void sp_i_hf_note_unread(const sp_object *object, sp_model *model);
// A key that asks for dropout, where steps have none here.
void sp_i_hf_note_dropout(const sp_object *object, sp_model *model);

#endif
