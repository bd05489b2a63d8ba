// What follows from all files of a job together and from what is stated beside them: how many
// replicas there are, how large a batch is, and what no file says.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/frameworks/private.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/base/writer.h"
#include "sim/model/recompute.h"

enum { TEXT = 320 };

static const char assumed_cluster[] = "h100-8";

static json_int_t fact(const framework_import *import, const char *name)
{
    return json_integer_value(json_object_get(import->facts, name));
}

static void settle_replicas(framework_import *import)
{
    const json_t *scenario = import->scenario;
    json_int_t ranks = framework_replica(scenario);
    json_int_t gpus = fact(import, "gpus");
    json_int_t rows = framework_get_int(scenario, "schedule.microbatch_samples", 1);
    json_int_t batch = framework_get_int(scenario, "workload.samples_per_batch", 0);
    json_int_t count = fact(import, "microbatches");
    json_int_t each = framework_product(count, rows, 1);
    if (framework_get(scenario, "parallel.dp") == NULL && gpus > 0 && ranks > 0) {
        if (gpus % ranks != 0) {
            sp_error_set(import->err, SP_ERR_CONTENT,
                         "%s: %lld GPUs are no multiple of tp x cp x pp, which is %lld",
                         import->source, (long long)gpus, (long long)ranks);
        } else {
            framework_put(import, "parallel.dp", json_integer(gpus / ranks));
        }
    }
    if (framework_get(scenario, "parallel.dp") == NULL && batch > 0 && each > 0 &&
        batch % each == 0) {
        framework_put(import, "parallel.dp", json_integer(batch / each));
    }
    json_int_t dp = framework_get_int(scenario, "parallel.dp", 0);
    // The batch is what these hold, by the lengths and the strategy that the scenario then has.
    if (batch == 0 && (count > 0 || dp > 0)) {
        framework_put(import, "schedule.microbatches", json_integer(count > 0 ? count : 1));
    }
    json_int_t per_node = fact(import, "gpus_per_node");
    if (per_node > 0 && per_node != 8 && framework_get(scenario, "cluster") == NULL &&
        (gpus == 0 || gpus >= per_node)) {
        framework_put(import, "cluster.name", json_string(assumed_cluster));
        json_object_set_new(import->facts, "cluster", json_string(assumed_cluster));
        framework_put(import, "cluster.gpus_per_node", json_integer(per_node));
    }
    // Instances of the optimizer, as ranks that share one.
    json_int_t instances = fact(import, "zero_instances");
    json_int_t sharing = framework_product(dp, framework_get_int(scenario, "parallel.cp", 1), 1);
    if (instances > 1 && sharing > 0 && sharing % instances == 0) {
        framework_put(import, "parallel.zero_group", json_integer(sharing / instances));
    }
}

// A batch that a file states is one of rows, which hold several documents where lengths are known
// and nothing pads: it is so many micro-batches, or where these do not divide it so many tokens.
static void settle_rows(framework_import *import)
{
    const json_t *scenario = import->scenario;
    const char *kind = json_string_value(framework_get(scenario, "strategy.kind"));
    const json_int_t batch = framework_get_int(scenario, "workload.samples_per_batch", 0);
    // Replicas that follow from nodes are not known here.
    const json_int_t replicas = framework_get(scenario, "nodes") != NULL ? 0 : 1;
    const json_int_t each =
        framework_product(framework_get_int(scenario, "parallel.dp", replicas),
                          framework_get_int(scenario, "schedule.microbatch_samples", 1), 1);
    const json_int_t tokens =
        framework_product(batch, framework_get_int(scenario, "workload.context", 0), 1);
    if (batch == 0 || framework_get(scenario, "workload.lengths") == NULL ||
        (kind != NULL && strcmp(kind, "padded") == 0)) {
        return;
    }
    json_object_del(json_object_get(scenario, "workload"), "samples_per_batch");
    if (each > 0 && batch % each == 0) {
        framework_put(import, "schedule.microbatches", json_integer(batch / each));
    } else if (tokens > 0) {
        framework_put(import, "workload.tokens_per_batch", json_integer(tokens));
    }
}

static void settle_precision(framework_import *import)
{
    const char *precision = json_string_value(json_object_get(import->scenario, "precision"));
    if (precision == NULL || strcmp(precision, "fp8") != 0) {
        json_object_del(import->scenario, "fp8_recipe");
        json_object_del(import->scenario, "fp8_params");
    }
}

// The vocabulary is the tokenizer's, which a script names by a path or a variable. What is assumed
// changes an answer by little, which is told.
static void assume_vocabulary(framework_import *import)
{
    enum { MORE = 10000 };
    char whose[FRAMEWORK_WHOSE];
    char matters[128] = "";
    sp_scenario scenario = {0};
    sp_error own = {0};
    const json_t *model = json_object_get(import->scenario, "model");
    if (json_object_get(model, "layers") == NULL || json_object_get(model, "vocab") != NULL) {
        return;
    }
    const json_int_t multiple = sp_larger(fact(import, "vocabulary_multiple"), 1);
    const json_int_t entries =
        sp_ceil_div(framework_assumed_entries(import->scenario, whose), multiple) * multiple;
    framework_put(import, "model.vocab", json_integer(entries));
    json_t *copy = json_deep_copy(import->scenario);
    if (sp_scenario_from_json(copy, "import", NULL, 0, &scenario, &own) == SP_OK) {
        const double tokens = (double)sp_larger(scenario.workload.context, 1);
        const double more = (double)scenario.model.hidden * MORE;
        const double flops = sp_model_forward_flops(&scenario.model, tokens,
                                                    sp_model_pairs2(&scenario.model, 0.0, tokens));
        snprintf(matters, sizeof matters,
                 "; each %d more are %.0f MiB of weights in BF16 and %.2g %% of a step's FLOPs",
                 MORE, (scenario.model.tied_embeddings ? 2.0 : 4.0) * more / SP_MIB,
                 100.0 * 2.0 * more * tokens / flops);
    }
    sp_scenario_fini(&scenario);
    json_decref(copy);
    framework_note(import,
                   "no file says the vocabulary, which is the tokenizer's: %lld entries are "
                   "assumed, as of %s (--set model.vocab=N)%s",
                   (long long)entries, whose, matters);
}

static void tell_assumed(framework_import *import)
{
    const json_t *scenario = import->scenario;
    if (framework_get(scenario, "parallel.dp") == NULL &&
        framework_get(scenario, "nodes") == NULL) {
        framework_note(import, "how many GPUs there are is not in the file: one replica is assumed "
                               "(--set parallel.dp=N or --set nodes=N)");
    }
    if (json_object_get(scenario, "cluster") == NULL ||
        json_equal(framework_get(scenario, "cluster.name"),
                   json_object_get(import->facts, "cluster"))) {
        framework_note(import,
                       "which GPUs there are is not in the file: %s is assumed (--set "
                       "cluster=NAME)",
                       assumed_cluster);
    }
    if (framework_get(scenario, "workload.lengths") == NULL &&
        framework_get(scenario, "workload.context") != NULL) {
        framework_note(import, "lengths of documents are not in the file: rows are full (to this "
                               "command: --set workload.lengths=NAME|FILE)");
    }
}

// Megatron-Core passes over modules that no layer has, as over norms that a product holds
// (transformer_layer.py: an IdentityOp is not run again), where a scenario refuses them.
static void settle_modules(framework_import *import)
{
    char wrong[SP_RECOMPUTE_TEXT];
    sp_recompute recompute = SP_RECOMPUTE_NONE;
    sp_scenario scenario = {0};
    sp_error own = {0};
    const json_t *stated = framework_get(import->scenario, "memory.recompute");
    if (stated == NULL || !sp_recompute_read(stated, &recompute, wrong) ||
        sp_recompute_modules(recompute) == 0) {
        return;
    }
    unsigned modules = sp_recompute_modules(recompute);
    json_t *without = json_deep_copy(import->scenario);
    if (sp_scenario_override(without, "memory.recompute=none", &own) == SP_OK &&
        sp_scenario_from_json(without, "import", NULL, 0, &scenario, &own) == SP_OK) {
        const char *module = NULL;
        const char *lacks;
        while ((lacks = sp_recompute_lacks(sp_recompute_of_modules(modules), &scenario.model,
                                           &module)) != NULL) {
            framework_note(import,
                           "recompute module \"%s\" is of %s, which the model has not: it runs "
                           "nothing again, and is left out",
                           module, lacks);
            modules &= ~sp_module_find(module);
        }
        if (module != NULL) {
            sp_json_put(json_object_get(import->scenario, "memory"), "recompute",
                        sp_recompute_json(sp_recompute_of_modules(modules)));
        }
    }
    sp_scenario_fini(&scenario);
    json_decref(without);
}

// ---- DeepSpeed's file beside the trainer's arguments ----

static json_int_t file_int(const framework_import *import, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(import->facts, "deepspeed"), key));
}

// DeepSpeed takes no other batch than rows x micro-batches x replicas (runtime/config.py:
// _batch_assertion), and makes what is not stated of the others.
static void check_batch(framework_import *import)
{
    const json_int_t batch = file_int(import, "batch");
    const json_int_t rows = file_int(import, "rows");
    const json_int_t count = file_int(import, "count");
    const json_int_t dp = framework_get_int(import->scenario, "parallel.dp", 0);
    const struct {
        const char *name;
        json_int_t number;
    } factors[] = {{"train_micro_batch_size_per_gpu ", rows},
                   {"gradient_accumulation_steps ", count},
                   {"data-parallel ranks ", dp}};
    char words[TEXT] = "";
    json_int_t product = 1;
    bool is_whole = true;
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        const json_int_t number = factors[i].number;
        is_whole = is_whole && number > 0;
        if (number > 0) {
            sp_append(words, sizeof words, "%s%s%lld", words[0] != '\0' ? " x " : "",
                      factors[i].name, (long long)number);
            product = framework_product(product, number, 1);
        }
    }
    if (batch > 0 && (product == 0 || batch % product != 0 || (is_whole && batch != product))) {
        sp_error_set(import->err, SP_ERR_CONTENT,
                     "%s: train_batch_size %lld is %s %s, which is %lld: DeepSpeed refuses it",
                     json_string_value(
                         json_object_get(json_object_get(import->facts, "deepspeed"), "source")),
                     (long long)batch, is_whole ? "not" : "no multiple of", words,
                     (long long)product);
    } else if (batch > 0 && rows == 0 && count > 0 && dp > 0 &&
               framework_get(import->scenario, "schedule.microbatch_samples") == NULL) {
        framework_put(import, "schedule.microbatch_samples", json_integer(batch / product));
    }
}

// Without a batch and a number of micro-batches DeepSpeed runs one (_set_batch_related_parameters).
// What its file leaves to the trainer by "auto" is as transformers' TrainingArguments have it by
// default where no file states it.
static void settle_auto(framework_import *import, bool states_count)
{
    enum { ROWS = 8 };
    const json_t *file = json_object_get(import->facts, "deepspeed");
    const char *names = json_string_value(json_object_get(file, "auto"));
    const json_t *scenario = import->scenario;
    const bool lacks_rows = framework_get(scenario, "schedule.microbatch_samples") == NULL;
    const bool lacks_count = !states_count && fact(import, "microbatches") == 0 &&
                             framework_get(scenario, "workload.samples_per_batch") == NULL;
    char rows[64] = "";
    if (lacks_count && file != NULL) {
        framework_put(import, "schedule.microbatches", json_integer(1));
    }
    if (names == NULL || (!lacks_rows && !lacks_count)) {
        return;
    }
    if (lacks_rows) {
        framework_put(import, "schedule.microbatch_samples", json_integer(ROWS));
        snprintf(rows, sizeof rows, "per_device_train_batch_size %d%s", ROWS,
                 lacks_count ? " and " : "");
    }
    framework_note(import,
                   "%s: \"auto\" of %s is in the trainer's arguments: %s%s assumed, as by default "
                   "(%s%s%s)",
                   json_string_value(json_object_get(file, "source")), names, rows,
                   lacks_count ? lacks_rows ? "gradient_accumulation_steps 1 are"
                                            : "gradient_accumulation_steps 1 is"
                               : " is",
                   lacks_rows ? "--set schedule.microbatch_samples=N" : "",
                   lacks_rows && lacks_count ? ", " : "",
                   lacks_count ? "--set schedule.microbatches=N" : "");
}

// A bucket that is "auto" has as many numbers as a matrix of hidden x hidden (transformers,
// integrations/deepspeed.py).
static void settle_bucket(framework_import *import)
{
    const json_t *model = json_object_get(import->scenario, "model");
    json_int_t hidden = framework_get_int(import->scenario, "model.hidden", 0);
    if (json_is_string(model)) {
        sp_model named;
        sp_error own = {0};
        bool known = false;
        if (sp_model_named(json_string_value(model), &named, &known, &own) == SP_OK && known) {
            hidden = named.hidden;
        }
    }
    if (hidden > 0) {
        framework_put(import, "stack.bucket_mib",
                      json_real((double)hidden * (double)hidden * 2.0 / SP_MIB));
    }
}

// What the files of DeepSpeed and accelerate cannot say, and no other file or option says.
static void tell_trainer(framework_import *import)
{
    const char *stack = json_string_value(framework_get(import->scenario, "stack.name"));
    stack = stack != NULL ? stack : json_string_value(json_object_get(import->scenario, "stack"));
    const bool recomputes = stack != NULL && strcmp(stack, "trl-2025") == 0;
    const struct {
        const char *key, *name, *assumed, *other;
    } rows[] = {
        {"strategy.kind", "packing", "packed", "strategy.kind=padded"},
        {"memory.recompute", "gradient checkpointing", recomputes ? "full" : "none",
         recomputes ? "memory.recompute=none" : "memory.recompute=full"},
        {"workload.context", "max_length", "the longest document", "workload.context=N"},
    };
    enum { ROWS = sizeof rows / sizeof rows[0] };
    char names[96] = "";
    char assumed[96] = "";
    char others[128] = "";
    int left = 0;
    int told = 0;
    for (int i = 0; i < ROWS; i++) {
        left += framework_get(import->scenario, rows[i].key) == NULL;
    }
    for (int i = 0; i < ROWS && json_object_get(import->facts, "trainer") != NULL; i++) {
        if (framework_get(import->scenario, rows[i].key) == NULL) {
            const char *link = told == 0 ? "" : told + 1 == left ? " and " : ", ";
            sp_append(names, sizeof names, "%s%s", link, rows[i].name);
            sp_append(assumed, sizeof assumed, "%s%s", told > 0 ? ", " : "", rows[i].assumed);
            sp_append(others, sizeof others, "%s--set %s", told > 0 ? ", " : "", rows[i].other);
            told++;
        }
    }
    if (told > 0) {
        framework_note(import,
                       "%s %s in the trainer's arguments, which no file states: %s assumed (%s)",
                       names, told > 1 ? "are" : "is", assumed, others);
    }
}

// TRL's rows that are no whole max_length are cut among ranks where they are a multiple alone, and
// refused else (DeepSpeed, runtime/sequence_parallel/ulysses_sp.py).
static void tell_row_multiple(framework_import *import)
{
    const json_int_t multiple = fact(import, "row_multiple");
    const bool shared = framework_get_int(import->scenario, "parallel.cp", 1) > 1;
    const json_int_t needed = shared ? framework_row_multiple(import->scenario) : 1;
    const char *kind = json_string_value(framework_get(import->scenario, "strategy.kind"));
    const json_int_t context = framework_get_int(import->scenario, "workload.context", 0);
    const bool whole = kind != NULL && strcmp(kind, "concat") == 0 && context % needed == 0;
    if (multiple > 0 && multiple % needed != 0 && !whole) {
        framework_note(import,
                       "pad_to_multiple_of is %lld: ranks that share a row need multiples of %lld, "
                       "which are taken",
                       (long long)multiple, (long long)needed);
    } else if (multiple > needed) {
        framework_note(import,
                       "pad_to_multiple_of is %lld: up to %lld tokens of padding in a row are not "
                       "modelled",
                       (long long)multiple, (long long)multiple - 1);
    }
}

// ---- in order ----

void framework_settle_text(framework_import *import)
{
    settle_replicas(import);
    settle_precision(import);
    settle_modules(import);
}

// The GPUs are those of the nodes that are stated beside the files, where a launcher says how many
// a node has.
static void take_nodes(framework_import *import, const char *nodes)
{
    const json_int_t gpus = framework_product(nodes != NULL ? strtoll(nodes, NULL, 10) : 0,
                                              fact(import, "gpus_per_node"), 1);
    if (gpus > 0) {
        sp_json_put(import->facts, "gpus", json_integer(gpus));
    }
}

const char *const framework_adapters[] = {"lora_rank", "lora_targets", "lora_dropout",
                                          "frozen_weights", NULL};

// A model that is stated beside the files is the shape: adapters of the files stay where it has
// none of its own.
static void keep_adapters(framework_import *import, const json_t *before)
{
    for (int i = 0; framework_adapters[i] != NULL; i++) {
        char key[64];
        const json_t *kept = json_object_get(before, framework_adapters[i]);
        snprintf(key, sizeof key, "model.%s", framework_adapters[i]);
        if (kept != NULL && json_object_get(import->scenario, "model") != NULL &&
            framework_get(import->scenario, key) == NULL) {
            framework_put(import, key, json_incref((json_t *)kept));
        }
    }
}

sp_status framework_settle(framework_import *import, const char *const *overrides, int count)
{
    sp_status status = SP_OK;
    take_nodes(import, sp_scenario_stated(overrides, count, "nodes"));
    settle_replicas(import);
    for (int i = 0; i < count && status == SP_OK; i++) {
        json_t *before = json_incref(json_object_get(import->scenario, "model"));
        status = sp_scenario_override(import->scenario, overrides[i], import->err);
        if (strncmp(overrides[i], "model=", strlen("model=")) == 0) {
            keep_adapters(import, before);
        }
        json_decref(before);
    }
    if (status != SP_OK) {
        return status;
    }
    const bool states_batch =
        sp_scenario_stated(overrides, count, "workload.samples_per_batch") != NULL ||
        sp_scenario_stated(overrides, count, "workload.tokens_per_batch") != NULL;
    const bool states_count = sp_scenario_stated(overrides, count, "schedule.microbatches") != NULL;
    if (!states_batch && !states_count &&
        sp_scenario_stated(overrides, count, "schedule.microbatch_samples") == NULL) {
        check_batch(import);
    }
    settle_auto(import, states_batch || states_count);
    if (file_int(import, "bucket") > 0 &&
        sp_scenario_stated(overrides, count, "stack.bucket_mib") == NULL) {
        settle_bucket(import);
    }
    if (!states_batch) {
        settle_rows(import);
    }
    settle_precision(import); // which an override may state
    assume_vocabulary(import);
    settle_modules(import);
    tell_trainer(import);
    tell_row_multiple(import);
    tell_assumed(import);
    return SP_OK;
}
