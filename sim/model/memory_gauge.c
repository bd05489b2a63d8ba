#include "sim/model/memory_gauge.h"

sp_i_memory_gauge sp_i_memory_gauge_at(const sp_bytes *bytes)
{
    int64_t total = sp_bytes_total(bytes);
    return (sp_i_memory_gauge){.now = *bytes, .high = *bytes, .total = total, .high_total = total};
}

void sp_i_memory_take(sp_i_memory_gauge *gauge, sp_memory_category category, int64_t bytes)
{
    gauge->now.of[category] += bytes;
    gauge->total += bytes;
    if (gauge->total > gauge->high_total) {
        gauge->high_total = gauge->total;
        gauge->high = gauge->now;
    }
}

void sp_i_memory_give(sp_i_memory_gauge *gauge, sp_memory_category category, int64_t bytes)
{
    gauge->now.of[category] -= bytes;
    gauge->total -= bytes;
}
