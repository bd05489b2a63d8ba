// calibrate FOLDER [PARTITIONS]: measures the first GPU, or one of as many partitions of it beside
// busy others, and writes FOLDER/NAME.json, a profile named after it; the same as `slimpack
// calibrate --backend cuda`, from the backend alone. Started as several processes with a GPU each
// (torchrun --no-python --nproc-per-node 8 calibrate FOLDER) it times NCCL's collectives too, and
// the first process writes. Exit status: 0 written, 1 failed, 2 wrong usage, 77 no GPU.
#include <stdio.h>
#include <stdlib.h>

#include "backends/cuda/calibrate/calibrate.h"
#include "backends/cuda/calibrate/calibration.h"
#include "backends/cuda/distributed/multi_process.h"
#include "sim/cost/profile.h"

// Of a partition less is measured: what it is beside the whole.
#define LIMIT_S 40.0
#define PARTITION_LIMIT_S 20.0

static int fail(const sp_error *err)
{
    fprintf(stderr, "calibrate: %s\n", err->message[0]);
    return 1;
}

typedef struct output {
    char file[SP_PROFILE_PATH];
    int written;
} output;

// What is cut off leaves what it has measured.
static void write_file(void *context, const json_t *document)
{
    output *o = context;
    o->written = json_dump_file(document, o->file, JSON_INDENT(2) | JSON_REAL_PRECISION(5));
}

int main(int argc, char **argv)
{
    sp_i_cuda_api api;
    sp_i_cuda_info info;
    sp_error err = {0};
    char reason[SP_I_CUDA_TEXT];
    int count = 0;
    char *end = "";
    long partitions = argc == 3 ? strtol(argv[2], &end, 10) : 1;
    if (argc < 2 || argc > 3 || *end != '\0' || partitions < 1 ||
        partitions > SP_I_CUDA_MOST_PLACES) {
        fprintf(stderr, "calibrate FOLDER [PARTITIONS]\n");
        return 2;
    }
    sp_i_cuda_api_init(&api);
    const sp_i_cuda_device device = {&api, 0};
    if (sp_i_cuda_device_count(&api, &count, reason, &err) != SP_OK) {
        return fail(&err);
    }
    if (count == 0) {
        printf("no GPU: %s\n", reason);
        return 77;
    }
    json_t *document;
    sp_profile profile;
    sp_i_place place;
    char name[64];
    output o = {.written = 0};
    const sp_calibration_request request = {.part = write_file,
                                            .part_context = &o,
                                            .precision = SP_BF16,
                                            .seed = 1,
                                            .limit_s = partitions > 1 ? PARTITION_LIMIT_S : LIMIT_S,
                                            .partitions = (int)partitions};
    if (sp_i_place_read(getenv, &place, &err) != SP_OK ||
        sp_i_cuda_device_info(&device, &info, &err) != SP_OK) {
        return fail(&err);
    }
    sp_i_cuda_profile_name(info.name, (int)partitions, name, sizeof name);
    snprintf(o.file, sizeof o.file, "%s/%s.json", argv[1], name);
    if (sp_i_cuda_calibrate(0, &request, &document, &err) != SP_OK) {
        return fail(&err);
    }
    if (place.rank > 0) {
        json_decref(document);
        return 0;
    }
    // What cannot be read back is no profile.
    sp_status status = sp_profile_from_json(document, "the profile", &profile, &err);
    if (status == SP_OK) {
        sp_profile_fini(&profile);
    }
    write_file(&o, document);
    json_decref(document);
    if (o.written != 0) {
        fprintf(stderr, "calibrate: cannot write %s\n", o.file);
        return 1;
    }
    printf("%s\n", o.file);
    return status == SP_OK ? 0 : fail(&err);
}
