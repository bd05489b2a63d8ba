// The most that the executor holds while each of its actions runs, beside what the predictor says
// for the very same timeline: equal to the byte, rank by rank, and in each category at the peak.
#include "tests/support/host_memory.h"
#include "tests/support/test_main.h"

// The largest total of any moment from the start to the end of a span: what was held when it began
// is the last point before.
static int64_t most_during(const sp_rank_memory *memory, const sp_span *span)
{
    int64_t most = 0;
    for (size_t i = 0; i < memory->point_count; i++) {
        bool ended = i + 1 < memory->point_count && memory->points[i + 1].time_ns < span->start_ns;
        if (!ended && memory->points[i].time_ns <= span->end_ns) {
            int64_t total = sp_bytes_total(&memory->points[i].bytes);
            most = total > most ? total : most;
        }
    }
    return most;
}

static void is_equal(const host_memory *memory)
{
    for (size_t i = 0; i < memory->rank->count; i++) {
        const sp_span *span = &memory->rank->spans[i];
        int64_t mine = most_during(memory->measured, span);
        int64_t theirs = most_during(memory->predicted, span);
        if (mine != theirs) {
            host_memory_differs(memory, span->action, "peak", mine, theirs);
        }
    }
    for (int k = 0; k < SP_MEM_CATEGORIES; k++) {
        int64_t mine = memory->measured->peak.of[k];
        int64_t theirs = memory->predicted->peak.of[k];
        if (mine != theirs) {
            host_memory_differs(memory, memory->measured->peak_action, sp_memory_category_names[k],
                                mine, theirs);
        }
    }
}

static const char *const modes[] = {"none", "activation", "partial-fc1", "attention", "full"};

enum { MODES = sizeof modes / sizeof modes[0] };

// Every model and every mode, on one and on two data-parallel ranks in turn; every pair of them in
// a full run.
static void peaks_agree(int pp, const char *layout, const char *plan)
{
    for (int m = 0; m < HOST_MODELS; m++) {
        for (int mode = 0; mode < MODES; mode++) {
            if (!test_is_full() && mode % HOST_MODELS != m) {
                continue;
            }
            char parallel[128], more[256];
            snprintf(parallel, sizeof parallel, "{'pp': %d, 'dp': %d%s}", pp,
                     1 + (test_is_full() ? m + mode : m) % 2, layout);
            snprintf(more, sizeof more, "'memory': {'recompute': '%s'}, %s", modes[mode], plan);
            assert_float_equal(host_memory_compare(host_models[m], parallel, more, is_equal), 0.0,
                               0.0);
        }
    }
}

TEST_CALL(one_stage, peaks_agree(1, "", "'schedule': {'kind': 'gpipe'}"))

TEST(one_forward_one_backward)
{
    peaks_agree(2, "", "'schedule': {'kind': '1f1b'}");
    peaks_agree(4, ", 'zero': 0", "'strategy': {'kind': 'padded'}");
}

TEST_CALL(chunks, peaks_agree(2, ", 'chunks_per_rank': 2",
                              "'schedule': {'kind': 'interleaved', 'group': 'even'}"))

TEST(split_backwards)
{
    peaks_agree(2, "", "'schedule': {'kind': 'zb-h1'}");
    peaks_agree(2, "", "'schedule': {'kind': 'zb-v'}");
}

TEST(slices)
{
    peaks_agree(2, "", "'schedule': {'kind': 'seq1f1b', 'slices': 4}");
    peaks_agree(2, "", "'strategy': {'kind': 'slimpipe'}, 'schedule': {'slices': 4}");
}

TEST_CALL(forwards_that_run_again,
          peaks_agree(2, "", "'strategy': {'kind': 'chunkflow', 'chunk_tokens': 16}"))

TEST(regrouped_packs)
{
    peaks_agree(2, "", "'strategy': {'kind': 'slimpack'}");
    peaks_agree(2, "", "'strategy': {'kind': 'slimpack', 'slice_tokens': 16}");
}

TEST_CALL(regrouped_packs_with_split_backwards,
          peaks_agree(2, "", "'strategy': {'kind': 'slimpack-zb', 'slice_tokens': 16}"))

// Slices, padding and packs that no strategy makes.
TEST_CALL(random_plans, host_memory_compare_random_plans(is_equal))
