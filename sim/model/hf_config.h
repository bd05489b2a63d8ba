// Hugging Face's config.json: the families of models that are read (hf_families.c), how most are
// (model_hf.c), and keys beside those that a family reads (hf_keys.c).
#ifndef SLIMPACK_SIM_MODEL_HF_CONFIG_H
#define SLIMPACK_SIM_MODEL_HF_CONFIG_H

#include <stdbool.h>

#include "sim/base/json.h"
#include "sim/model/model.h"

// ---- Families ----

// How attention is seen by a family whose file has no layer_types: all tokens unless
// use_sliding_window says so, a window unless it says no, or always.
typedef enum sp_i_hf_windows {
    SP_I_HF_IF_ASKED,
    SP_I_HF_IF_STATED,
    SP_I_HF_ALWAYS
} sp_i_hf_windows;

// A key with the value that the library's class has where a file does not state it; NULL: none.
typedef struct sp_i_hf_stated {
    const char *key;
    int usual;
} sp_i_hf_stated;

// A key of a size that a family calls otherwise.
typedef struct sp_i_hf_renamed {
    const char *usual, *here;
} sp_i_hf_renamed;

enum { SP_I_HF_RENAMED = 8, SP_I_HF_DROPOUTS = 4 };

typedef struct sp_i_hf_family sp_i_hf_family;
struct sp_i_hf_family {
    const char *name; // model_type
    // Reads all of the file; NULL: as most do, with the rows below.
    void (*read)(sp_object *object, const sp_i_hf_family *family, sp_model *model);
    sp_i_hf_renamed renamed[SP_I_HF_RENAMED];
    // Keys that change neither parameters nor bytes nor time, and those of what the family's model
    // has, or may have, and is not simulated. NULL: none.
    const char *const *free, *const *noted;
    const char *const *stated; // keys that must stand in the file; NULL: none but sizes
    const char *dropouts[SP_I_HF_DROPOUTS]; // keys of models whose dropout is simulated; NULL: none
    // What the library has where a file states nothing; 0: as many as heads, hidden_size over
    // heads, and of heads and vocabulary, of no window: they must be stated.
    int kv_heads, head_dim, heads, vocab;
    int window;
    sp_i_hf_windows windows;
    int pattern;                 // one layer of so many sees all tokens; 0: none does
    const char *pattern_key;     // the same in the file
    sp_i_hf_stated first_window; // layer with a window
    bool chunks;                 // layers see the chunk of attention_chunk_size, not a window
    sp_activation activation;    // SwiGLU, or another whose name must have "gelu" in it
    sp_norm norm;
    bool tied, post_norms, post_norms_alone;
    sp_blocks blocks;
    int ffn_of_hidden; // the MLP is so many hidden sizes wide where the file does not say; 0: it
                       // must
    sp_i_hf_stated soft_caps;
    sp_i_hf_stated qk_norm; // key "": always
    bool qk_norm_whole;
    bool latents; // of queries, keys and values (MLA)
    // Biases of queries, keys and values, and with `output_bias` of what is behind the attention,
    // unless this has a key of its own.
    sp_i_hf_stated attention_bias, behind_bias;
    bool output_bias;
    bool expert_biases, attention_sinks; // experts' with those of routers
    sp_i_hf_stated mlp_bias, head_bias;
    // Experts: how many, and of them for a token; the key of their width where intermediate_size
    // is that of dense layers. Of shared ones the key of their number, each as wide as an expert,
    // or of the width of all.
    sp_i_hf_stated experts, active, shared, shared_width;
    int groups, active_groups; // of experts; 0: none
    const char *expert_width;
    bool shared_gate;
    bool may_lack_experts; // 0 of them: what would be shared is the MLP
    // Of a model whose layers differ: has this one experts?
    bool (*is_routed)(sp_object *object, int layer);
    sp_i_hf_stated dense_width; // where it is not intermediate_size
    // Layers that have no attention.
    void (*read_mixers)(sp_object *object, const sp_model *model, sp_layer_mlp *of_layer);
    // What else the file may say.
    void (*finish)(sp_object *object, sp_model *model);
};
enum { SP_I_HF_FAMILIES = 82 };
extern const sp_i_hf_family sp_i_hf_families[SP_I_HF_FAMILIES];

// ---- Values of a file ----

// Sizes have no default: the library's own ones are those of one particular checkpoint.
int64_t sp_i_hf_size(sp_object *object, const char *key, int64_t max);
// What the family calls a size.
const char *sp_i_hf_key(const sp_i_hf_family *family, const char *usual);
// A number that the library's class knows: `null` is what an explicit null stands for, or
// SP_I_HF_NO_NULL where the library cannot build a model of it.
enum { SP_I_HF_NO_NULL = -1 };
int64_t sp_i_hf_number(sp_object *object, const char *key, int64_t usual, int64_t null,
                       int64_t least, int64_t most);
// hidden/heads where the file gives none.
int64_t sp_i_hf_head_dim(sp_object *object, const sp_i_hf_family *family, const sp_model *model);
void sp_i_hf_read_sizes(sp_object *object, const sp_i_hf_family *family, sp_model *model);
// Masks that the dropout of hidden states and of the attention leaves, where there is one; keys up
// to SP_I_HF_DROPOUTS, or to NULL.
void sp_i_hf_read_dropout(sp_object *object, const char *const keys[], double usual,
                          sp_model *model);
void sp_i_hf_set_biases(sp_model *model, bool all);
// Groups of experts in which a token chooses.
void sp_i_hf_read_groups(sp_object *object, const sp_i_hf_family *family, sp_model *model);
bool sp_i_hf_is_text(const json_t *value, const char *text);
// The key's array of a number or text for each layer; NULL: it has none, or of another length.
const json_t *sp_i_hf_of_layers(sp_object *object, const char *key, const sp_model *model);

// ---- A file ----

// `called` is the name of a file that gives none of its own; NULL: its kind.
sp_status sp_i_hf_read(const json_t *config, const char *source, const char *called,
                       sp_model *model, sp_error *err);

extern const char sp_i_hf_adapters[]; // what to write in place of these

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
// Objects around the text model, which has that key: an encoder of pictures or sound, with its own
// layers.
void sp_i_hf_note_parts(const json_t *config, const char *text, sp_model *model);
// Keys that were not read and may change something.
void sp_i_hf_note_unread(const sp_object *object, sp_model *model);
// A key that asks for dropout, where steps have none here.
void sp_i_hf_note_dropout(const sp_object *object, sp_model *model);

#endif
