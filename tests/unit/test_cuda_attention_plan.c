// Plans of attention's launches: every row of every slice and key block in one tile, the pairs of
// all tiles those of the pack, and tables that break a rule refused.
#include "kernels/cuda_attention.h"
#include "tests/support/attention_tiles.h"
#include "tests/support/test_main.h"

enum { SLICES = 3, KEYS = 4, GROUPS = 2, ROOM = 64 };

typedef struct fixture {
    sp_kernel_attention_shape shape;
    sp_cuda_attention_slice slices[SLICES];
    sp_cuda_attention_keys keys[KEYS];
    sp_cuda_attention_group groups[GROUPS];
    sp_cuda_attention_tile query_tiles[ROOM], key_tiles[ROOM];
    sp_cuda_attention_tables tables;
} fixture;

static void set_up(fixture *f)
{
    memset(f, 0, sizeof *f);
    f->shape = (sp_kernel_attention_shape){.heads = 4,
                                           .kv_heads = 2,
                                           .head_dim = 128,
                                           .q_stride = 512,
                                           .kv_stride = 256,
                                           .out_stride = 512,
                                           .scale = 0.125};
    f->slices[0] = (sp_cuda_attention_slice){.query_begin = 100, .queries = 300};
    f->slices[1] = (sp_cuda_attention_slice){.query_begin = 600, .queries = 1};
    f->slices[2] = (sp_cuda_attention_slice){.query_begin = 0, .queries = 1000, .group = 1};
    f->keys[0] = (sp_cuda_attention_keys){.key_begin = 0, .keys = 400};
    f->keys[1] = (sp_cuda_attention_keys){.key_begin = 400, .keys = 201};
    f->keys[2] = (sp_cuda_attention_keys){.key_begin = 500, .keys = 500, .group = 1};
    f->keys[3] = (sp_cuda_attention_keys){.key_begin = 0, .keys = 500, .group = 1};
    f->groups[0] = (sp_cuda_attention_group){0, 2, 0, 2};
    f->groups[1] = (sp_cuda_attention_group){2, 1, 2, 2};
    f->tables = (sp_cuda_attention_tables){.slices = f->slices,
                                           .keys = f->keys,
                                           .groups = f->groups,
                                           .query_tiles = f->query_tiles,
                                           .key_tiles = f->key_tiles,
                                           .slice_count = SLICES,
                                           .key_count = KEYS,
                                           .group_count = GROUPS};
    count_attention_tiles(&f->tables);
}

// Pairs of a group by counting them.
static int64_t pairs_of(const fixture *f, int64_t group)
{
    int64_t pairs = 0;
    for (int s = 0; s < SLICES; s++) {
        for (int k = 0; k < KEYS; k++) {
            if (f->slices[s].group != group || f->keys[k].group != group) {
                continue;
            }
            for (int64_t q = 0; q < f->slices[s].queries; q++) {
                for (int64_t j = 0; j < f->keys[k].keys; j++) {
                    pairs += f->keys[k].key_begin + j <= f->slices[s].query_begin + q;
                }
            }
        }
    }
    return pairs;
}

TEST(tiles_cover_every_row)
{
    fixture f;
    set_up(&f);
    assert_int_equal(f.tables.query_tile_count, 3 + 1 + 8);
    assert_int_equal(f.tables.key_tile_count, 4 + 2 + 4 + 4);
    assert_int_equal(sp_cuda_attention_plan(&f.shape, &f.tables), 0);
    int query_seen[SLICES][8] = {{0}};
    int key_seen[KEYS][8] = {{0}};
    for (int64_t i = 0; i < f.tables.query_tile_count; i++) {
        assert_int_equal(f.query_tiles[i].begin % SP_CUDA_ATTENTION_TILE, 0);
        query_seen[f.query_tiles[i].owner][f.query_tiles[i].begin / SP_CUDA_ATTENTION_TILE]++;
    }
    for (int64_t i = 0; i < f.tables.key_tile_count; i++) {
        key_seen[f.key_tiles[i].owner][f.key_tiles[i].begin / SP_CUDA_ATTENTION_TILE]++;
    }
    for (int t = 0; t < 8; t++) {
        for (int s = 0; s < SLICES; s++) {
            assert_int_equal(query_seen[s][t], t * SP_CUDA_ATTENTION_TILE < f.slices[s].queries);
        }
        for (int k = 0; k < KEYS; k++) {
            assert_int_equal(key_seen[k][t], t * SP_CUDA_ATTENTION_TILE < f.keys[k].keys);
        }
    }
}

TEST(tiles_hold_the_packs_pairs)
{
    fixture f;
    set_up(&f);
    assert_int_equal(sp_cuda_attention_plan(&f.shape, &f.tables), 0);
    int64_t of_queries = 0, of_keys = 0;
    for (int64_t i = 0; i < f.tables.query_tile_count; i++) {
        of_queries += f.query_tiles[i].pairs;
        assert_true(i == 0 || f.query_tiles[i - 1].pairs >= f.query_tiles[i].pairs);
    }
    for (int64_t i = 0; i < f.tables.key_tile_count; i++) {
        of_keys += f.key_tiles[i].pairs;
        assert_true(i == 0 || f.key_tiles[i - 1].pairs >= f.key_tiles[i].pairs);
    }
    assert_int_equal(of_queries, pairs_of(&f, 0) + pairs_of(&f, 1));
    assert_int_equal(of_keys, of_queries);
}

TEST(nothing_to_do)
{
    sp_cuda_attention_tables none = {0};
    fixture f;
    set_up(&f);
    assert_int_equal(sp_cuda_attention_plan(&f.shape, &none), 0);
}

static void assert_refused(fixture *f)
{
    assert_int_equal(sp_cuda_attention_plan(&f->shape, &f->tables), 1);
    set_up(f);
    assert_int_equal(sp_cuda_attention_plan(&f->shape, &f->tables), 0);
}

TEST(shapes_that_do_not_fit)
{
    fixture f;
    set_up(&f);
    f.shape.kv_heads = 3;
    assert_refused(&f);
    f.shape.head_dim = 136;
    assert_refused(&f);
    f.shape.head_dim = 60;
    assert_refused(&f);
    f.shape.kv_stride = 260;
    assert_refused(&f);
    f.shape.scale = 0;
    assert_refused(&f);
}

TEST(tables_that_do_not_fit)
{
    fixture f;
    set_up(&f);
    f.slices[1].group = 1; // whose slices are others
    assert_refused(&f);
    f.keys[0].group = 2;
    assert_refused(&f);
    f.groups[1].key_blocks = 3;
    assert_refused(&f);
    f.slices[0].q = (const sp_bf16 *)(uintptr_t)4104; // 8 bytes off
    assert_refused(&f);
    f.keys[3].dv = (float *)(uintptr_t)4100;
    assert_refused(&f);
    f.slices[2].query_begin = -1;
    assert_refused(&f);
}
