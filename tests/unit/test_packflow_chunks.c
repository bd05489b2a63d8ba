// Closed forms of PackFlow's order with one and several chunks per rank: linear, and two as a V.
#include "tests/support/packflow_replay.h"
#include "tests/support/test_main.h"

static packflow_case c;
static packflow_run run;

static const int chunks_of[] = {1, 2, 3, 5};
enum { CHUNK_CASES = sizeof chunks_of / sizeof chunks_of[0] };

// f = i = w: from 2p packs on every rank is busy from its first forward on, as in ZB-H2 and ZB-V
// (Qi et al., arXiv 2401.10241), so the last rank, whose first forward starts last, ends at
// (p - 1) f + M v (f + i + w): no order is faster.
TEST(split_backwards_fill_idle_time)
{
    for (int i = 0; i < CHUNK_CASES; i++) {
        int v = chunks_of[i];
        for (int p = 1; p <= PACKFLOW_RANKS; p++) {
            for (int m = 2 * p; m <= PACKFLOW_PACKS; m++) {
                packflow_case_uniform(&c, p, v, m, 5, 5, 5);
                packflow_run_checked(&c, &run);
                assert_int_equal(run.makespan_ns, (p - 1) * 5 + m * v * 15);
            }
        }
    }
}

static int crossings(int p, int v)
{
    return p == 1 ? 0 : v == 2 ? 2 * p - 2 : p * v - 1;
}

// Room for one pack on one chunk, or for less: each passes all virtual stages forth and back before
// the next begins.
TEST(room_for_one_pack)
{
    const int64_t rooms[] = {0, 1, 10, 19};
    for (int i = 0; i < CHUNK_CASES; i++) {
        int v = chunks_of[i];
        for (int p = 1; p <= PACKFLOW_RANKS; p++) {
            for (size_t k = 0; k < sizeof rooms / sizeof rooms[0]; k++) {
                packflow_case_uniform(&c, p, v, 5, 3, 6, 0);
                packflow_case_transfer(&c, 2);
                packflow_case_room(&c, rooms[k]);
                packflow_run_checked(&c, &run);
                assert_int_equal(run.makespan_ns, 5 * (p * v * 9 + 2 * crossings(p, v) * 2));
                assert_int_equal(run.most_bytes[0], 10 * v);
                assert_int_equal(run.lacking_bytes, rooms[k] < 10 * v ? 10 * v - rooms[k] : 0);
            }
        }
    }
}

// The same with split backwards: the ranks run the other weight gradients while the input gradient
// goes its way, and the first virtual stage's comes before the next pack.
TEST(room_for_one_split_pack)
{
    for (int i = 0; i < CHUNK_CASES; i++) {
        int v = chunks_of[i];
        for (int p = 2; p <= PACKFLOW_RANKS; p++) {
            packflow_case_uniform(&c, p, v, 5, 3, 6, 2);
            packflow_case_transfer(&c, 2);
            packflow_case_room(&c, 10);
            packflow_run_checked(&c, &run);
            assert_int_equal(run.makespan_ns, 5 * (p * v * 9 + 2 * crossings(p, v) * 2 + 2));
            assert_int_equal(run.lacking_bytes, 10 * (v - 1));
        }
    }
}

// Every rank stays within room for n packs on all of its chunks, whatever n: chunk by chunk, room
// that the later chunks of a pack need is not given to the first chunk of another.
TEST(chunks_leave_each_other_room)
{
    for (int i = 0; i < CHUNK_CASES; i++) {
        int v = chunks_of[i];
        for (int p = 1; p <= PACKFLOW_RANKS; p++) {
            for (int64_t room = 10 * v; room <= 20 * p * v; room += 5) {
                for (int64_t w = 0; w <= 5; w += 5) {
                    packflow_case_uniform(&c, p, v, 20, 5, 10 - w, w);
                    packflow_case_room(&c, room);
                    packflow_run_checked(&c, &run);
                    assert_int_equal(run.lacking_bytes, 0);
                }
            }
        }
    }
}

// A backward that needs all forwards: all forwards, then all backwards, whatever the room. The last
// chunk going first, M packs of v chunks fill the last rank without a gap (where v > 1, M a
// multiple of p), so that linear chunks take (M v + p - 1) (f + b); the V comes back to the first
// rank and takes (2 M + 2 (p - 1)) (f + b).
TEST(forwards_first_where_needed)
{
    for (int i = 0; i < CHUNK_CASES; i++) {
        int v = chunks_of[i];
        for (int p = 1; p <= PACKFLOW_RANKS; p++) {
            for (int m = p; m <= PACKFLOW_PACKS; m += p) {
                packflow_case_uniform(&c, p, v, m, 2, 4, 0);
                for (int k = 0; k < m; k++) {
                    c.need[k] = m - 1;
                }
                int64_t fill = v == 2 ? 2 * (p - 1) : p - 1;
                for (int64_t room = -10; room <= 20; room += 10) {
                    packflow_case_room(&c, room);
                    packflow_run_checked(&c, &run);
                    assert_int_equal(run.makespan_ns, (m * v + fill) * (2 + 4));
                    assert_int_equal(run.most_bytes[p - 1], 10 * m * v);
                }
            }
        }
    }
}
