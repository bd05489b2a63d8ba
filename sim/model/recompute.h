// What a backward computes again in place of keeping it, as sets of operations of a layer: named
// modes, and sets of the modules of Megatron-LM's --recompute-modules. FLOPs and operators, saved
// tensors, the allocator's program, peaks and what the executor runs again follow from the set.
#ifndef SLIMPACK_SIM_MODEL_RECOMPUTE_H
#define SLIMPACK_SIM_MODEL_RECOMPUTE_H

#include <stdbool.h>

#include <jansson.h>

#include "sim/model/layer.h"
#include "sim/model/model.h"

// The modes: identifier, name, the operations that run again before the backward, whether `tune`
// tries them by itself, and the set of modules that a mode is another name of (0: it is none). A
// new mode is a new row, before FULL, and one of SP_CAPABILITY_LIST (backend.h).
#define SP_RECOMPUTE_ROWS(ROW)                                                               \
    ROW(NONE, "none", 0, true, 0)                                                            \
    ROW(ACTIVATION, "activation",                                                            \
        SP_LAYER_NORM1 | SP_LAYER_NORM2 | SP_LAYER_ACTIVATION | SP_LAYER_SHARED_ACTIVATION | \
            SP_LAYER_JOINED,                                                                 \
        false, 0)                                                                            \
    ROW(PARTIAL_FC1, "partial-fc1",                                                          \
        SP_LAYER_NORM1 | SP_LAYER_NORM2 | SP_LAYER_FC1 | SP_LAYER_ACTIVATION |               \
            SP_LAYER_SHARED_FC1 | SP_LAYER_SHARED_ACTIVATION | SP_LAYER_JOINED,              \
        false, 0)                                                                            \
    ROW(ATTENTION, "attention", SP_LAYER_CORE, true, SP_MODULE_CORE_ATTN)                    \
    ROW(MLA_UP_PROJ, "mla-up-proj", SP_LAYER_QKV, true, SP_MODULE_MLA_UP_PROJ)               \
    ROW(FULL, "full", SP_LAYER_ALL, true, 0)

// The modules, by the name that Megatron-LM has for them (core/transformer/transformer_config.py,
// recompute_modules): identifier, name, what a model must have, the capability of a backend, then
// twice what the module repeats in layers that have all of some conditions and none of others.
// Layers: core/transformer/{transformer_layer,multi_latent_attention}.py, transformer/moe/. A norm
// is a module by itself in front of latent attention and of experts; others are a part of the
// projection behind them (core/models/gpt/gpt_layer_specs.py, TELayerNormColumnParallelLinear), and
// run again with the MLP whose first one that is. Mla_up_proj drops queries, keys and values and
// the normed latents that they are made from. A dense MLP and experts are kinds of layers of their
// own: mlp is of the one, moe and moe_act of the other.
#define SP_MODULE_ROWS(ROW)                                                                    \
    ROW(CORE_ATTN, "core_attn", "attention (model.mixer)", ATTENTION, SP_LAYER_CORE,           \
        SP_IF_ATTENTION, 0, 0, 0)                                                              \
    ROW(LAYERNORM, "layernorm",                                                                \
        "norms by themselves, those of latent attention or in front of experts "               \
        "(model.kv_lora_rank, model.experts)",                                                 \
        ACTIVATION, SP_LAYER_NORM1, SP_IF_LATENT, 0, SP_LAYER_NORM2,                           \
        SP_IF_ROUTED | SP_IF_NORMED_INPUTS)                                                    \
    ROW(MLA_UP_PROJ, "mla_up_proj", "latent attention (model.kv_lora_rank)", MLA_UP_PROJ,      \
        SP_LAYER_QKV, SP_IF_LATENT, 0, 0, 0)                                                   \
    ROW(MLP, "mlp", "layers with a dense MLP", MLP,                                            \
        SP_LAYER_NORM2 | SP_LAYER_FC1 | SP_LAYER_ACTIVATION | SP_LAYER_FC2, SP_IF_MLP,         \
        SP_IF_ROUTED, 0, 0)                                                                    \
    ROW(MOE, "moe", "experts (model.experts)", MOE,                                            \
        SP_LAYER_ROUTER | SP_LAYER_PERMUTATION | SP_LAYER_FC1 | SP_LAYER_ACTIVATION |          \
            SP_LAYER_FC2 | SP_LAYER_SHARED,                                                    \
        SP_IF_ROUTED, 0, 0, 0)                                                                 \
    ROW(MOE_ACT, "moe_act", "experts (model.experts)", ACTIVATION, SP_LAYER_ACTIVATION,        \
        SP_IF_ROUTED, 0, 0, 0)                                                                 \
    ROW(SHARED_EXPERTS, "shared_experts", "shared experts (model.shared_ffn)", SHARED_EXPERTS, \
        SP_LAYER_SHARED, SP_IF_SHARED, 0, 0, 0)

#define SP_MODULE_PLACE(identifier, ...) SP_MODULE_AT_##identifier,
enum { SP_MODULE_ROWS(SP_MODULE_PLACE) SP_MODULES };
#undef SP_MODULE_PLACE

// Bits above the modes, so that a set of modules is no mode.
#define SP_MODULE_IDENTIFIER(identifier, ...) \
    SP_MODULE_##identifier = 1 << (SP_MODULE_AT_##identifier + 3),
typedef enum sp_module { SP_MODULE_ROWS(SP_MODULE_IDENTIFIER) SP_MODULE_NONE = 0 } sp_module;
#undef SP_MODULE_IDENTIFIER

// A mode, or a set of modules that has no name: SP_MODULE_MLP | SP_MODULE_LAYERNORM.
#define SP_RECOMPUTE_IDENTIFIER(identifier, ...) SP_RECOMPUTE_##identifier,
typedef enum sp_recompute {
    SP_RECOMPUTE_ROWS(SP_RECOMPUTE_IDENTIFIER) SP_RECOMPUTE_MODES,
    SP_RECOMPUTE_SETS = 1 << (SP_MODULES + 3) // above all sets
} sp_recompute;
#undef SP_RECOMPUTE_IDENTIFIER

// Of modes, NULL-terminated, in the order of the enum.
extern const char *const sp_recompute_names[];

// The mode with this name, or the set of these modules, of which the modes have some.
sp_recompute sp_recompute_of_modules(unsigned modules);
// The modules of a set, or of a mode that is another name of some; 0: none.
unsigned sp_recompute_modules(sp_recompute recompute);
const char *sp_module_name(int place); // NULL past the last
// The bit of a module, but for case, hyphens and underscores of its name; 0: there is none.
unsigned sp_module_find(const char *name);

// The operations that run again in layers that are all as those of `alike`.
unsigned sp_recompute_operations(sp_recompute recompute, const sp_model *alike);
// Does it run the operation again, in any layer?
bool sp_recompute_repeats(sp_recompute recompute, sp_layer_operation operation);
// Does it rebuild whole layers from their input?
bool sp_recompute_is_whole(sp_recompute recompute);
// What it repeats and no layer of the model has; NULL: the model has all of it. `module`, where it
// is not NULL, is which of its modules that is of.
const char *sp_recompute_lacks(sp_recompute recompute, const sp_model *model, const char **module);
bool sp_recompute_is_tried(sp_recompute recompute); // by `tune`

// The name of a mode, or those of modules with commas between them; returns text.
enum { SP_RECOMPUTE_TEXT = 96 };
const char *sp_recompute_text(sp_recompute recompute, char text[SP_RECOMPUTE_TEXT]);
// As documents state it: a name, or an array of names, which the caller owns.
json_t *sp_recompute_json(sp_recompute recompute);
// Reads the name of a mode, an array of modules, or their names with commas between them. False: it
// is none of these, and `wrong` says the value, or which of the names is not one.
bool sp_recompute_read(const json_t *value, sp_recompute *recompute, char wrong[SP_RECOMPUTE_TEXT]);

#endif
