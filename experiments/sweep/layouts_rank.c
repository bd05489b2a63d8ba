// The order of the points that fit, and what is nearest where none does.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/sweep/layouts_private.h"

static int by_digest(const void *a, const void *b)
{
    const sweep_layout *p = *(sweep_layout *const *)a;
    const sweep_layout *q = *(sweep_layout *const *)b;
    return sweep_is_better(&p->digest, &q->digest)   ? -1
           : sweep_is_better(&q->digest, &p->digest) ? 1
                                                     : (p > q) - (p < q);
}

static void rank_points(sweep_layouts *all)
{
    memset(all->of_status, 0, sizeof all->of_status);
    all->ranked_count = 0;
    for (int64_t i = 0; i < all->count; i++) {
        sweep_layout *point = &all->point[i];
        all->of_status[point->digest.status] += point->evaluated;
        if (point->evaluated && point->digest.status == SWEEP_OK) {
            all->ranked[all->ranked_count++] = point;
        }
    }
    qsort((void *)all->ranked, (size_t)all->ranked_count, sizeof *all->ranked, by_digest);
}

// Those that are shown and not counted yet; room for SWEEP_I_BLOCK of them.
static int list_uncounted(const sweep_layouts_finder *f, sweep_layout **block)
{
    const sweep_layouts *all = f->layouts;
    int shown = f->options->shown > 0 ? f->options->shown : 1;
    double least_gib = (double)HUGE_VAL;
    int64_t front = 0;
    int count = 0;
    for (int64_t i = 0; i < all->ranked_count && count < SWEEP_I_BLOCK; i++) {
        sweep_layout *point = all->ranked[i];
        bool in_front = front < shown && sweep_layouts_extends(point, &least_gib);
        front += in_front;
        if ((i < shown || in_front) && sweep_layouts_must_count(f, point)) {
            block[count++] = point;
        }
    }
    return count;
}

// Ranks all, and again as long as blocks of those that are shown are to be counted.
sp_status sweep_layouts_rank(sweep_layouts_finder *f, sp_error *err)
{
    sweep_layout *block[SWEEP_I_BLOCK];
    sp_status status = SP_OK;
    int count = 1;
    for (rank_points(f->layouts); status == SP_OK && count > 0 && f->counted < SWEEP_I_MOST_COUNTED;
         rank_points(f->layouts)) {
        int alike = 0;
        count = list_uncounted(f, block);
        // Of one kind at a time: hurried searches are repeated as they were.
        for (int i = 0; i < count; i++) {
            if (block[i]->hurried == block[0]->hurried) {
                block[alike++] = block[i];
            }
        }
        if (alike > 0) {
            status = sweep_layouts_evaluate_block(
                f, block, alike, block[0]->hurried ? SWEEP_I_HURRY_PERCENT : 0, true, err);
        }
        f->counted += alike;
    }
    return status;
}

// Does a lack less memory than b, or has it a plan or a scenario at least where b has none?
static bool is_nearer(const sweep_layout *a, const sweep_layout *b)
{
    const sweep_digest *of_a = &a->digest;
    const sweep_digest *of_b = &b->digest;
    return of_a->status != of_b->status
               ? of_a->status < of_b->status
               : of_a->figure[SWEEP_MEMORY_MARGIN_GIB] > of_b->figure[SWEEP_MEMORY_MARGIN_GIB];
}

sp_status sweep_layouts_find_reason(sweep_layouts_finder *f, sp_error *err)
{
    sweep_layouts *all = f->layouts;
    const sweep_layout *nearest = NULL;
    for (int64_t i = 0; all->ranked_count == 0 && i < all->count; i++) {
        const sweep_layout *point = &all->point[i];
        bool better = nearest == NULL || is_nearer(point, nearest);
        nearest = point->evaluated && better ? point : nearest;
    }
    all->nearest = nearest;
    if (nearest == NULL) {
        return SP_OK;
    }
    sweep_digest digest;
    sweep_evaluator *evaluator = &f->evaluator[nearest->strategy];
    evaluator->options.no_causes = false;
    evaluator->options.effort_percent = nearest->hurried ? SWEEP_I_HURRY_PERCENT : 0;
    sp_status status = sweep_evaluate_point(evaluator, 0, nearest->combination, &digest, err);
    snprintf(all->reason, sizeof all->reason, "%s", digest.reason);
    return status;
}

bool sweep_layouts_extends(const sweep_layout *point, double *least_gib)
{
    double gib = point->digest.figure[SWEEP_PEAK_MEMORY_GIB];
    bool extends = point->digest.fits != SP_FITS_TIGHT && gib < *least_gib;
    *least_gib = extends ? gib : *least_gib;
    return extends;
}
