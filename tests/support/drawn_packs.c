#include "tests/support/drawn_packs.h"

#include "sim/plan/packing.h"
#include "tests/support/test_main.h"

const sp_i_work drawn_work = {{2e-4, 1e-6, 1e-10}, {4e-4, 2e-6, 2.5e-10}, NULL};

void drawn_batch_of(drawn_batch *d, size_t count)
{
    d->batch = (sp_batch){.ids = d->ids, .tokens = d->tokens, .count = count};
    for (size_t i = 0; i < count; i++) {
        d->ids[i] = (int64_t)i;
        d->batch.total_tokens += d->tokens[i];
        size_t k = i;
        for (; k > 0 && d->tokens[d->order[k - 1]] < d->tokens[i]; k--) {
            d->order[k] = d->order[k - 1];
        }
        d->order[k] = (int32_t)i;
    }
}

void draw_batch(sp_prng *prng, uint64_t longest, drawn_batch *d)
{
    size_t count = 1 + (size_t)sp_prng_below(prng, DRAWN_SAMPLES);
    for (size_t i = 0; i < count; i++) {
        uint64_t most = sp_prng_below(prng, 8) == 0 ? longest : longest / 20 + 1;
        d->tokens[i] = 1 + (int64_t)sp_prng_below(prng, most);
    }
    drawn_batch_of(d, count);
}

sp_i_taper draw_taper(sp_prng *prng)
{
    bool rises = sp_prng_below(prng, 3) > 0;
    bool falls = sp_prng_below(prng, 3) > 0;
    sp_i_taper taper = {.rise = rises ? 1 + (int)sp_prng_below(prng, 12) : 0,
                        .flat = (int)sp_prng_below(prng, 17),
                        .fall = falls ? 1 + (int)sp_prng_below(prng, 12) : 0,
                        .grow = 1.0 + 0.5 * sp_prng_uniform(prng),
                        .shrink = 1.0 + 0.5 * sp_prng_uniform(prng)};
    taper.flat += sp_i_taper_packs(&taper) == 0;
    return taper;
}

sp_i_shape draw_shape(sp_prng *prng)
{
    return (sp_i_shape){.forward = draw_taper(prng),
                        .regrouped = sp_prng_below(prng, 2) == 0,
                        .backward = draw_taper(prng),
                        .shorts_first = sp_prng_uniform(prng),
                        .slice_tokens = 1 + (int64_t)sp_prng_below(prng, 600),
                        .doublings = (int)sp_prng_below(prng, 4)};
}

sp_i_rank_samples drawn_samples(const drawn_batch *d, int dp_first, int dp_count)
{
    return (sp_i_rank_samples){d->order, d->batch.count, dp_first, dp_count};
}

typedef struct seen_sample {
    int64_t done; // tokens
    size_t pack, forward_slices;
    int dp_first, dp_count;
} seen_sample;

static void assert_forward(const sp_packing *packing, seen_sample *samples)
{
    const sp_pack_list *list = &packing->forward;
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        assert_true(pack->slice_count > 0);
        for (size_t i = 0; i < pack->slice_count; i++) {
            const sp_slice *slice = &list->slices[pack->first_slice + i];
            seen_sample *sample = &samples[slice->sample];
            assert_true(slice->tokens > 0);
            assert_int_equal(slice->computed_tokens, slice->tokens);
            assert_int_equal(slice->begin, sample->done);
            assert_true(slice->begin == 0 || k >= sample->pack);
            if (slice->begin == 0) {
                sample->dp_first = pack->dp_first;
                sample->dp_count = pack->dp_count;
            }
            assert_int_equal(pack->dp_first, sample->dp_first);
            assert_int_equal(pack->dp_count, sample->dp_count);
            sample->done += slice->tokens;
            sample->pack = k;
            sample->forward_slices++;
        }
    }
}

static void assert_backward(const sp_packing *packing, seen_sample *samples)
{
    const sp_pack_list *list = &packing->backward;
    for (size_t k = 0; k < list->count; k++) {
        const sp_pack *pack = &list->packs[k];
        assert_true(pack->slice_count > 0);
        for (size_t i = pack->slice_count; i > 0; i--) {
            const sp_slice *slice = &list->slices[pack->first_slice + i - 1];
            seen_sample *sample = &samples[slice->sample];
            assert_int_equal(slice->computed_tokens, slice->tokens);
            assert_int_equal(slice->begin + slice->tokens, sample->done);
            assert_int_equal(pack->dp_first, sample->dp_first);
            assert_int_equal(pack->dp_count, sample->dp_count);
            sample->done = slice->begin;
            assert_true(sample->forward_slices-- > 0);
        }
    }
}

static bool has_slice(const sp_pack_list *list, const sp_pack *pack, const sp_slice *wanted)
{
    for (size_t i = 0; i < pack->slice_count; i++) {
        const sp_slice *slice = &list->slices[pack->first_slice + i];
        if (slice->sample == wanted->sample && slice->begin == wanted->begin) {
            return slice->tokens == wanted->tokens;
        }
    }
    return false;
}

void assert_pack_rules(const sp_packing *packing)
{
    size_t count = packing->batch->count;
    seen_sample *samples = sp_calloc(count + 1, sizeof *samples);
    assert_forward(packing, samples);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(samples[i].done, packing->batch->tokens[i]);
    }
    assert_backward(packing, samples);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(samples[i].done, 0);
        assert_int_equal(samples[i].forward_slices, 0);
    }
    free(samples);
    AUTO_FREE int32_t *forward = NULL;
    sp_regroup(packing, &forward);
    for (size_t i = 0; i < packing->backward.slice_count; i++) {
        assert_true(has_slice(&packing->forward, &packing->forward.packs[forward[i]],
                              &packing->backward.slices[i]));
    }
}

void assert_cuts(const sp_packing *packing, int64_t slice_tokens)
{
    for (size_t i = 0; i < packing->forward.slice_count; i++) {
        const sp_slice *slice = &packing->forward.slices[i];
        int64_t end = slice->begin + slice->tokens;
        assert_true(end % slice_tokens == 0 || end == packing->batch->tokens[slice->sample]);
    }
}

void assert_needs(const sp_packing *packing, const sp_i_needs *needs)
{
    AUTO_FREE int32_t *forward = NULL;
    sp_regroup(packing, &forward);
    assert_int_equal(needs->count, packing->backward.count);
    int32_t need = 0;
    for (size_t k = 0; k < packing->backward.count; k++) {
        const sp_pack *pack = &packing->backward.packs[k];
        for (size_t i = 0; i < pack->slice_count; i++) {
            int32_t at = forward[pack->first_slice + i];
            need = at > need ? at : need;
        }
        assert_int_equal(needs->pack[k], need);
    }
}

static void assert_nearest(const double *from, size_t count, const double *to, size_t to_count,
                           double tolerance)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        while (at + 1 < to_count && fabs(to[at + 1] - from[i]) <= fabs(to[at] - from[i])) {
            at++;
        }
        must_hold(fabs(to[at] - from[i]) <= tolerance,
                  "%zu of %zu: %g is %g off the nearest, more than %g", i, count, from[i],
                  to[at] - from[i], tolerance);
    }
}

void assert_ends_meet(const double *end, size_t ends, const double *target, size_t targets,
                      double tolerance)
{
    assert_nearest(end, ends, target, targets, tolerance);
    assert_nearest(target, targets, end, ends, tolerance);
}

double backward_work_s(const sp_i_work *work, int64_t begin, int64_t tokens)
{
    double l = (double)tokens;
    return work->backward.token_s * l + work->backward.pair_s * (l * (double)begin + 0.5 * l * l);
}

void pack_ends(const sp_i_work *work, const sp_pack_list *list, bool backward, double *end_s)
{
    double sum_s = 0.0;
    for (size_t k = 0; k < list->count; k++) {
        for (size_t i = 0; i < list->packs[k].slice_count; i++) {
            const sp_slice *slice = &list->slices[list->packs[k].first_slice + i];
            sum_s += backward ? backward_work_s(work, slice->begin, slice->tokens)
                              : sp_i_slice_work_s(work, slice->begin, slice->tokens);
        }
        end_s[k] = sum_s;
    }
}
