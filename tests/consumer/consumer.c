// A program outside the repository: every header of the install, and calls into the library.
#include <stdio.h>
#include <string.h>

#include "sim/base/json.h"
#include "sim/base/prng.h"
#include "sim/engine/engine.h"
#include "sim/metrics/export.h"
#include "sim/metrics/metrics.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/distribution.h"

int main(void)
{
    static const char text[] = "{\"pp\": 8}";
    sp_error err = {0};
    json_t *root = NULL;
    if (sp_json_read_text(text, strlen(text), "text", &root, &err) != SP_OK) {
        fprintf(stderr, "%s\n", err.message[0]);
        return 1;
    }
    sp_object object;
    sp_object_begin(&object, root, "text", "", &err);
    int64_t pp = sp_object_int(&object, "pp", 1, 1, 512);
    sp_object_end(&object);
    json_decref(root);

    sp_prng prng;
    sp_prng_seed(&prng, 1);
    const sp_distribution *distribution = sp_distribution_at(0);
    bool drawn = sp_distribution_sample(distribution, &prng) >= 1;
    puts(pp == 8 && drawn && err.count == 0 ? "consumer works" : "consumer fails");
    return 0;
}
