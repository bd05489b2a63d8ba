#include "backends/executor/addresses.h"

#include <stdint.h>

#include "sim/base/alloc.h"
#include "sim/base/status.h"

enum { FIRST_CAPACITY = 64 };

void sp_i_exec_addresses_fini(sp_i_exec_addresses *table)
{
    sp_free(table->entries);
    *table = (sp_i_exec_addresses){0};
}

// Where a search begins: multiplicative hashing, the high bits.
static size_t home_of(const sp_i_exec_addresses *table, const void *address)
{
    uint64_t hash = (uint64_t)(uintptr_t)address * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(hash >> 32) & (table->capacity - 1);
}

// Its entry, or the free one where it would stand.
static size_t place_of(const sp_i_exec_addresses *table, const void *address)
{
    size_t i = home_of(table, address);
    while (table->entries[i].address != NULL && table->entries[i].address != address) {
        i = (i + 1) & (table->capacity - 1);
    }
    return i;
}

bool sp_i_exec_addresses_reserve(sp_i_exec_addresses *table)
{
    if (2 * (table->count + 1) <= table->capacity) {
        return true;
    }
    sp_i_exec_addresses larger = {.capacity =
                                      table->capacity > 0 ? 2 * table->capacity : FIRST_CAPACITY};
    larger.entries = sp_calloc(larger.capacity, sizeof *larger.entries);
    if (larger.entries == NULL) {
        return false;
    }
    for (size_t i = 0; i < table->capacity; i++) {
        if (table->entries[i].address != NULL) {
            sp_i_exec_addresses_add(&larger, table->entries[i].address, table->entries[i].value);
        }
    }
    sp_free(table->entries);
    *table = larger;
    return true;
}

void sp_i_exec_addresses_add(sp_i_exec_addresses *table, const void *address, void *value)
{
    size_t i = place_of(table, address);
    SP_ASSERT(table->entries[i].address == NULL);
    table->entries[i] = (sp_i_exec_address_entry){address, value};
    table->count++;
}

void *sp_i_exec_addresses_find(const sp_i_exec_addresses *table, const void *address)
{
    size_t i = place_of(table, address);
    SP_ASSERT(table->entries[i].address != NULL);
    return table->entries[i].value;
}

// Moves those that would no longer be found into the gap.
void sp_i_exec_addresses_remove(sp_i_exec_addresses *table, const void *address)
{
    size_t mask = table->capacity - 1;
    size_t gap = place_of(table, address);
    SP_ASSERT(table->entries[gap].address != NULL);
    for (size_t i = (gap + 1) & mask; table->entries[i].address != NULL; i = (i + 1) & mask) {
        size_t home = home_of(table, table->entries[i].address);
        if (((i - home) & mask) >= ((i - gap) & mask)) {
            table->entries[gap] = table->entries[i];
            gap = i;
        }
    }
    table->entries[gap] = (sp_i_exec_address_entry){0};
    table->count--;
}
