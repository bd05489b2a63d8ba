#include "sim/workload/best_fit.h"

#include "sim/base/alloc.h"

void sp_best_fit_fini(sp_best_fit *fit)
{
    sp_free(fit->fitting.keys);
    sp_free(fit->waiting.keys);
    *fit = (sp_best_fit){0};
}

static void heap_reserve(sp_best_fit_heap *heap, size_t needed)
{
    SP_RESERVE(heap->keys, heap->capacity, needed);
}

static void heap_push(sp_best_fit_heap *heap, uint64_t key)
{
    size_t node = heap->count++;
    while (node > 0 && heap->keys[(node - 1) / 2] > key) {
        heap->keys[node] = heap->keys[(node - 1) / 2];
        node = (node - 1) / 2;
    }
    heap->keys[node] = key;
}

static uint64_t heap_pop(sp_best_fit_heap *heap)
{
    uint64_t least = heap->keys[0];
    uint64_t last = heap->keys[--heap->count];
    size_t node = 0;
    size_t child = 1;
    while (child < heap->count) {
        if (child + 1 < heap->count && heap->keys[child + 1] < heap->keys[child]) {
            child++;
        }
        if (heap->keys[child] >= last) {
            break;
        }
        heap->keys[node] = heap->keys[child];
        node = child;
        child = 2 * node + 1;
    }
    heap->keys[node] = last;
    return least;
}

bool sp_best_fit_take(sp_best_fit *fit, int64_t tokens, uint32_t *row)
{
    fit->tokens = tokens;
    while (fit->waiting.count > 0 && (int64_t)(~fit->waiting.keys[0] >> 32) >= tokens) {
        heap_push(&fit->fitting, ~heap_pop(&fit->waiting));
    }
    if (fit->fitting.count == 0) {
        return false;
    }
    *row = (uint32_t)(heap_pop(&fit->fitting) & UINT32_MAX);
    return true;
}

void sp_best_fit_open(sp_best_fit *fit, int64_t room, uint32_t row)
{
    // Every open row may come to fit.
    size_t open = fit->fitting.count + fit->waiting.count + 1;
    heap_reserve(&fit->fitting, open);
    heap_reserve(&fit->waiting, open);
    uint64_t key = (uint64_t)room << 32 | row;
    if (room >= fit->tokens) {
        heap_push(&fit->fitting, key);
    } else {
        heap_push(&fit->waiting, ~key);
    }
}
