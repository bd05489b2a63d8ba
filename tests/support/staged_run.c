#include "tests/support/staged_run.h"

#include "tests/support/host_run.h"
#include "tests/support/initializers.h"
#include "tests/support/test_main.h"
#include "tests/support/uniform_packing.h"

void staged_run_make(staged_run *s, int tp, const int64_t *tokens, int count, sp_clock clock,
                     int steps)
{
    static const sp_memory_options memory;
    *s = (staged_run){.model = host_llama(),
                      .layout = {.tp = tp, .cp = 1, .pp = 2, .dp = 1, .chunks = 1},
                      .options = {{"cudnn", "off"}, {"clip", "0"}}};
    s->model.layers = 2;
    s->batch = (sp_batch){.ids = s->ids, .tokens = s->tokens, .count = (size_t)count};
    for (int32_t i = 0; i < count; i++) {
        s->ids[i] = i;
        s->tokens[i] = tokens[i];
        s->batch.total_tokens += tokens[i];
    }
    sp_packing_init(&s->packing, &s->batch, 1);
    for (int32_t i = 0; i < count; i++) {
        pack_sample(&s->packing.forward, 0, 1, i, tokens[i]);
    }
    must_succeed(plan_by_schedule(&s->plan, &s->layout, &s->packing, SP_SCHEDULE_1F1B, ERR));
    s->request = (sp_run_request){RUN_OF(&s->plan, &s->model, &memory), .clock = clock,
                                  RUN_STEPS(SP_BF16, 1, steps), RUN_OPTIONS(s->options, 2)};
}

void staged_run_fini(staged_run *s)
{
    sp_plan_fini(&s->plan);
    sp_packing_fini(&s->packing);
}
