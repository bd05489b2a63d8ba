#include "sim/scenario/decode_scenario.h"

sp_decode_machine sp_decode_machine_of(const sp_scenario *scenario)
{
    return (sp_decode_machine){.model = &scenario->model,
                               .cluster = &scenario->cluster,
                               .profile = &scenario->profile,
                               .stack = &scenario->memory.stack,
                               .layout = &scenario->layout,
                               .memory_limit_bytes = scenario->memory_limit_bytes};
}

sp_status sp_decode_scenario(const sp_scenario *scenario, sp_decode_result *result, sp_error *err)
{
    if (scenario->decode == NULL) {
        return sp_error_in(
            err, SP_ERR_CONTENT, scenario->source, "decode",
            "is missing: expected an object that says how text is generated, {} with "
            "the defaults");
    }
    if (scenario->jitter.gpu_cv > 0.0) {
        return sp_error_in(err, SP_ERR_CONTENT, scenario->source, "jitter.gpu_cv",
                           "GPUs of one speed generate text, expected 0, got %g",
                           scenario->jitter.gpu_cv);
    }
    sp_decode_machine machine = sp_decode_machine_of(scenario);
    sp_status status = sp_scenario_check_shares(scenario, err);
    return status == SP_OK ? sp_decode_run(scenario->decode, &machine, result, err) : status;
}
