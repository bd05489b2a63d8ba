// The arena of a rank: what it counts, its limit, and memory that is used again.
#include <errno.h>

#include "backends/executor/stage.h"
#include "backends/host/cpu_runtime.h"
#include "tests/support/test_main.h"

OWNS(sp_i_exec_arena)

static const sp_i_exec_width width = {.real_bytes = 8, .table_bytes = 2};

static int64_t held(const sp_i_exec_arena *arena, sp_i_exec_measure measure, sp_memory_category of)
{
    return sp_i_exec_held(arena, measure)->of[of];
}

TEST(counts_both_ways)
{
    OWNED(sp_i_exec_arena) arena = sp_i_exec_arena_new(sp_runtime_cpu(), SP_I_EXEC_TABLE, 0);
    void *a = sp_i_exec_take(arena, SP_MEM_ACTIVATIONS, 100, width);
    void *b = sp_i_exec_take_zeroed(arena, SP_MEM_LOGITS, 7, width);
    assert_int_equal(held(arena, SP_I_EXEC_REAL, SP_MEM_ACTIVATIONS), 800);
    assert_int_equal(held(arena, SP_I_EXEC_TABLE, SP_MEM_ACTIVATIONS), 200);
    assert_int_equal(held(arena, SP_I_EXEC_TABLE, SP_MEM_LOGITS), 14);
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_int_equal((uintptr_t)b % 64, 0);
    for (int i = 0; i < 7; i++) {
        assert_true(((const double *)b)[i] == 0.0);
    }
    sp_i_exec_recount(arena, b, SP_MEM_WORKSPACE, 7, (sp_i_exec_width){8, 4});
    assert_int_equal(held(arena, SP_I_EXEC_TABLE, SP_MEM_LOGITS), 0);
    assert_int_equal(held(arena, SP_I_EXEC_TABLE, SP_MEM_WORKSPACE), 28);
    sp_i_exec_give(arena, b);
    assert_false(sp_i_exec_give_part(arena, a, 60, width));
    assert_int_equal(held(arena, SP_I_EXEC_REAL, SP_MEM_ACTIVATIONS), 320);
    assert_int_equal(sp_i_exec_blocks(arena), 1);
    assert_true(sp_i_exec_give_part(arena, a, 40, width));
    assert_int_equal(sp_bytes_total(sp_i_exec_held(arena, SP_I_EXEC_REAL)), 0);
    assert_int_equal(sp_i_exec_blocks(arena), 0);
    sp_i_exec_give(arena, NULL);
}

// What is taken is whole blocks, 256 bytes or a size of the row above that, also while they are
// kept for use again; a view takes nothing.
TEST(counts_what_it_takes)
{
    static const sp_i_exec_width bytes = {1, 1};
    OWNED(sp_i_exec_arena) arena = sp_i_exec_arena_new(sp_runtime_cpu(), SP_I_EXEC_TAKEN, 1024);
    void *a = sp_i_exec_take(arena, SP_MEM_ACTIVATIONS, 1, bytes);
    void *b = sp_i_exec_take(arena, SP_MEM_LOGITS, 700, bytes);
    assert_int_equal(held(arena, SP_I_EXEC_TAKEN, SP_MEM_ACTIVATIONS), 256);
    assert_int_equal(held(arena, SP_I_EXEC_TAKEN, SP_MEM_LOGITS), 768);
    void *view = sp_i_exec_view(arena, b, 0, 8, bytes);
    assert_int_equal(sp_bytes_total(sp_i_exec_held(arena, SP_I_EXEC_TAKEN)), 1024);
    assert_null(sp_i_exec_take(arena, SP_MEM_WORKSPACE, 1, bytes));
    sp_i_exec_give(arena, view);
    sp_i_exec_give(arena, a);
    assert_int_equal(held(arena, SP_I_EXEC_TAKEN, SP_MEM_WORKSPACE), 256);
    a = sp_i_exec_take(arena, SP_MEM_KV_CACHE, 100, bytes);
    assert_non_null(sp_i_exec_recount(arena, b, SP_MEM_ACTIVATIONS, 10, bytes));
    assert_int_equal(held(arena, SP_I_EXEC_TAKEN, SP_MEM_KV_CACHE), 256);
    assert_int_equal(held(arena, SP_I_EXEC_TAKEN, SP_MEM_ACTIVATIONS), 768);
    assert_int_equal(sp_bytes_total(sp_i_exec_held(arena, SP_I_EXEC_TAKEN)), 1024);
}

// The measures may have their highest moments apart.
TEST(keeps_the_highest_moment)
{
    OWNED(sp_i_exec_arena) arena = sp_i_exec_arena_new(sp_runtime_cpu(), SP_I_EXEC_TABLE, 0);
    void *a = sp_i_exec_take(arena, SP_MEM_ACTIVATIONS, 10, (sp_i_exec_width){1, 8});
    sp_i_exec_mark(arena);
    sp_i_exec_give(arena, a);
    void *b = sp_i_exec_take(arena, SP_MEM_LOGITS, 10, (sp_i_exec_width){8, 1});
    assert_int_equal(sp_i_exec_high(arena, SP_I_EXEC_TABLE)->of[SP_MEM_ACTIVATIONS], 80);
    assert_int_equal(sp_i_exec_high(arena, SP_I_EXEC_TABLE)->of[SP_MEM_LOGITS], 0);
    assert_int_equal(sp_i_exec_high(arena, SP_I_EXEC_REAL)->of[SP_MEM_LOGITS], 80);
    sp_i_exec_give(arena, b);
    sp_i_exec_mark(arena);
    assert_int_equal(sp_bytes_total(sp_i_exec_high(arena, SP_I_EXEC_TABLE)), 0);
}

TEST(stops_at_the_limit)
{
    char text[128];
    OWNED(sp_i_exec_arena) arena = sp_i_exec_arena_new(sp_runtime_cpu(), SP_I_EXEC_TABLE, 100);
    void *a = sp_i_exec_take(arena, SP_MEM_ACTIVATIONS, 40, width);
    assert_non_null(a);
    assert_null(sp_i_exec_take(arena, SP_MEM_WORKSPACE, 11, width));
    assert_int_equal(sp_i_exec_arena_failure(arena, text, sizeof text), SP_ERR_INFEASIBLE);
    assert_string_equal(text, "it needs 102 bytes, over the limit of 100");
    assert_int_equal(sp_bytes_total(sp_i_exec_held(arena, SP_I_EXEC_TABLE)), 80);
    assert_non_null(sp_i_exec_take(arena, SP_MEM_WORKSPACE, 10, width));
    sp_i_exec_arena_free(arena);

    arena = sp_i_exec_arena_new(sp_runtime_cpu(), SP_I_EXEC_REAL, 100);
    assert_null(sp_i_exec_take(arena, SP_MEM_ACTIVATIONS, 13, width));
}

// Views of a block count nothing, and keep it from being free.
TEST(views_are_inside_a_block)
{
    OWNED(sp_i_exec_arena) arena = sp_i_exec_arena_new(sp_runtime_cpu(), SP_I_EXEC_TABLE, 0);
    int64_t room = sp_i_exec_view_room(10 * width.real_bytes);
    char *holder = sp_i_exec_take(arena, SP_MEM_WORKSPACE, 1, (sp_i_exec_width){2 * room, 7});
    for (int round = 0; round < 3; round++) {
        char *a = sp_i_exec_view(arena, holder, 0, 10, width);
        char *b = sp_i_exec_view(arena, holder, room, 10, width);
        assert_true(a > holder && a + 80 <= b && b + 80 <= holder + 2 * room);
        assert_int_equal(sp_i_exec_views(arena, holder), 2);
        assert_int_equal(sp_i_exec_blocks(arena), 3);
        assert_int_equal(sp_bytes_total(sp_i_exec_held(arena, SP_I_EXEC_TABLE)), 7);
        memset(b, round, 80);
        char *own = sp_i_exec_recount(arena, b, SP_MEM_ACTIVATIONS, 10, width);
        assert_true(own < holder || own >= holder + 2 * room);
        assert_int_equal(own[79], round);
        sp_i_exec_give(arena, own);
        assert_int_equal(sp_i_exec_views(arena, holder), 1);
        sp_i_exec_give(arena, a);
        assert_int_equal(sp_i_exec_views(arena, holder), 0);
    }
    sp_i_exec_give(arena, holder);
    assert_int_equal(sp_i_exec_blocks(arena), 0);
}

enum { BLOCKS = 64 };

// Blocks never overlap, sums stay right, and a size that was given back needs no new memory.
TEST(holds_under_random_use)
{
    unsigned char *block[BLOCKS] = {NULL};
    int64_t size[BLOCKS] = {0};
    sp_prng prng = prng_seeded(1);
    OWNED(sp_i_exec_arena) arena = sp_i_exec_arena_new(sp_runtime_cpu(), SP_I_EXEC_TABLE, 0);
    const sp_i_exec_width bytes = {1, 1};
    int64_t sum = 0;
    for (int round = 0; round < 20000; round++) {
        size_t i = (size_t)sp_prng_below(&prng, BLOCKS);
        if (block[i] != NULL) {
            for (int64_t b = 0; b < size[i]; b++) {
                assert_int_equal(block[i][b], i);
            }
            sp_i_exec_give(arena, block[i]);
            block[i] = NULL;
            sum -= size[i];
        } else {
            size[i] = (int64_t)(sp_prng_below(&prng, 64) * sp_prng_below(&prng, 64));
            block[i] = sp_i_exec_take(arena, SP_MEM_ACTIVATIONS, size[i], bytes);
            assert_non_null(block[i]);
            memset(block[i], (int)i, (size_t)size[i]);
            sum += size[i];
        }
        assert_int_equal(sp_bytes_total(sp_i_exec_held(arena, SP_I_EXEC_REAL)), sum);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        sp_i_exec_give(arena, block[i]);
    }
}

static void *no_block(sp_runtime *runtime, int64_t bytes)
{
    errno = ENOSPC;
    return NULL;
}

static void *no_host_block(sp_runtime *runtime, int64_t bytes)
{
    errno = ENOMEM;
    return NULL;
}

// A device whose memory is full has no room for this plan; a host may have some another time.
TEST(says_whose_memory_ran_out)
{
    sp_runtime_ops ops = *sp_runtime_cpu()->ops;
    sp_runtime runtime = {.ops = &ops};
    char text[128];
    ops.plain_memory = false;
    ops.allocate = no_block;
    ops.allocate_host = no_host_block;
    OWNED(sp_i_exec_arena) arena = sp_i_exec_arena_new(&runtime, SP_I_EXEC_TABLE, 50);
    OWNED(sp_i_exec_arena) host = sp_i_exec_arena_new_host(&runtime);
    assert_null(sp_i_exec_take(arena, SP_MEM_WORKSPACE, 25, width));
    assert_int_equal(sp_i_exec_arena_failure(arena, text, sizeof text), SP_ERR_INFEASIBLE);
    assert_string_equal(text, "out of memory: the device has no 256 bytes in one piece");
    ops.allocate = no_host_block; // its records
    assert_null(sp_i_exec_take(arena, SP_MEM_WORKSPACE, 25, width));
    assert_int_equal(sp_i_exec_arena_failure(arena, text, sizeof text), SP_ERR_NO_MEMORY);
    assert_null(sp_i_exec_take(host, SP_MEM_OFFLOADED, 25, width));
    assert_int_equal(sp_i_exec_arena_failure(host, text, sizeof text), SP_ERR_NO_MEMORY);
    assert_null(sp_i_exec_take(arena, SP_MEM_WORKSPACE, 26, width));
    assert_int_equal(sp_i_exec_arena_failure(arena, text, sizeof text), SP_ERR_INFEASIBLE);
    assert_string_equal(text, "it needs 52 bytes, over the limit of 50");
    ops.plain_memory = true;
    assert_null(sp_i_exec_take(arena, SP_MEM_WORKSPACE, 25, width));
    assert_int_equal(sp_i_exec_arena_failure(arena, text, sizeof text), SP_ERR_NO_MEMORY);
}
