// Reads any bytes as the record of an execution. One that is accepted has what its plan and its
// settings ask for, and the same settings written by the program are accepted again.
#include <stdint.h>
#include <string.h>

#include "backends/record/result.h"
#include "sim/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const json_t *plan_of(const json_t *root)
{
    return json_object_get(json_object_get(root, "request"), "plan");
}

// The layout is of the caller in the program; here the scenario's own small settings.
static int dimension(const json_t *parallel, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(parallel, key));
    return value >= 1 && value <= 4 ? (int)value : 1;
}

static sp_layout layout_of(const json_t *root)
{
    const json_t *parallel =
        json_object_get(json_object_get(plan_of(root), "scenario"), "parallel");
    return (sp_layout){.tp = 1,
                       .cp = 1,
                       .pp = dimension(parallel, "pp"),
                       .dp = dimension(parallel, "dp"),
                       .chunks = dimension(parallel, "chunks_per_rank"),
                       .vocab_parallel = json_is_true(json_object_get(parallel, "vocab_parallel"))};
}

static void write_and_read_again(const sp_result_file *file, const sp_layout *layout)
{
    sp_result_file again;
    sp_error err = {0};
    json_t *document = sp_result_document(file->backend, &file->run, plan_of(file->document), NULL,
                                          SP_ERR_LIMIT, "no time");
    SP_ASSERT(sp_result_json_read(document, "again", layout, &again, &err) == SP_OK);
    SP_ASSERT(strcmp(again.backend, file->backend) == 0 && again.run.seed == file->run.seed);
    SP_ASSERT(again.run.steps == file->run.steps && again.run.clock == file->run.clock);
    SP_ASSERT(again.plans.count == file->plans.count && again.batches == NULL);
    sp_result_file_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sp_error err = {0};
    json_t *root = NULL;
    if (sp_json_read_text((const char *)data, size, "fuzz", &root, &err) != SP_OK) {
        return 0;
    }
    sp_result_file file;
    const sp_layout layout = layout_of(root);
    if (sp_result_json_read(root, "fuzz", &layout, &file, &err) == SP_OK) {
        for (int b = 0; file.status == SP_OK && b < file.plans.count; b++) {
            SP_ASSERT(file.batches[b].step_count == file.run.steps);
            SP_ASSERT(file.batches[b].step.timeline.plan == &file.plans.plans[b]);
        }
        write_and_read_again(&file, &layout);
        sp_result_file_fini(&file);
    } else {
        SP_ASSERT(err.status == SP_ERR_CONTENT && err.count > 0);
    }
    return 0;
}
