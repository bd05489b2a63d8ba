// The arena's table of addresses against an array.
#include "backends/executor/addresses.h"
#include "sim/base/alloc.h"
#include "tests/support/test_main.h"

enum { ADDRESSES = 700, ROUNDS = 50000 };

TEST(finds_what_is_there)
{
    static char memory[ADDRESSES * 64];
    bool there[ADDRESSES] = {false};
    int value[ADDRESSES];
    size_t count = 0;
    sp_i_exec_addresses table = {0};
    sp_prng prng = prng_seeded(3);
    for (int round = 0; round < ROUNDS; round++) {
        size_t i = (size_t)sp_prng_below(&prng, ADDRESSES);
        const void *address = memory + 64 * i;
        if (there[i]) {
            assert_ptr_equal(sp_i_exec_addresses_find(&table, address), &value[i]);
            sp_i_exec_addresses_remove(&table, address);
            count--;
        } else {
            assert_true(sp_i_exec_addresses_reserve(&table));
            sp_i_exec_addresses_add(&table, address, &value[i]);
            count++;
        }
        there[i] = !there[i];
        assert_int_equal(table.count, count);
    }
    for (size_t i = 0; i < ADDRESSES; i++) {
        if (there[i]) {
            assert_ptr_equal(sp_i_exec_addresses_find(&table, memory + 64 * i), &value[i]);
        }
    }
    sp_i_exec_addresses_fini(&table);
}
