// A table from addresses to what stands for them: by open addressing with linear probing (Knuth,
// "The Art of Computer Programming", volume 3, section 6.4, algorithms L and R).
#ifndef SLIMPACK_BACKENDS_EXECUTOR_ADDRESSES_H
#define SLIMPACK_BACKENDS_EXECUTOR_ADDRESSES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct sp_i_exec_address_entry {
    const void *address; // NULL: free
    void *value;
} sp_i_exec_address_entry;

// Zeroed: empty.
typedef struct sp_i_exec_addresses {
    sp_i_exec_address_entry *entries; // [capacity], a power of 2
    size_t capacity, count;
} sp_i_exec_addresses;

void sp_i_exec_addresses_fini(sp_i_exec_addresses *table);

// Makes room for one more; false when memory ran out. Amortised O(1), as all below.
bool sp_i_exec_addresses_reserve(sp_i_exec_addresses *table);
// An address that is not there, and for which room was made.
void sp_i_exec_addresses_add(sp_i_exec_addresses *table, const void *address, void *value);
// The address is there.
void *sp_i_exec_addresses_find(const sp_i_exec_addresses *table, const void *address);
void sp_i_exec_addresses_remove(sp_i_exec_addresses *table, const void *address);

#endif
