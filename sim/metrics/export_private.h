// The window, rank labels and points of memory, for the exporters.
#ifndef SLIMPACK_SIM_METRICS_EXPORT_PRIVATE_H
#define SLIMPACK_SIM_METRICS_EXPORT_PRIVATE_H

#include "sim/base/writer.h"
#include "sim/metrics/export.h"

enum { SP_I_LABEL = 64 }; // bytes of a rank label

// "dp0 pp3", and "dp0 pp3 x4" where the entry stands for four data-parallel ranks.
void sp_i_export_label(const sp_rank_timeline *rank, char label[SP_I_LABEL]);

// Is the entry, or a data-parallel rank it stands for, selected? `window` may be NULL (all).
bool sp_i_export_has_rank(const sp_export_window *window, const sp_rank_timeline *rank);

// Does [start, end) overlap the window? An instant (start == end) overlaps where it lies inside.
bool sp_i_export_overlaps(const sp_export_window *window, int64_t start_ns, int64_t end_ns);

// The window's limits on a timeline, open ends replaced by 0 and the end of the iteration.
void sp_i_export_range(const sp_export_window *window, const sp_timeline *timeline,
                       int64_t *from_ns, int64_t *to_ns);

// False for a point that a later one of equal time replaces.
bool sp_i_export_point_holds(const sp_rank_memory *memory, size_t point);

// The end of the time in which a point's bytes are held: the next point, or the end of all time.
int64_t sp_i_export_point_end(const sp_rank_memory *memory, size_t point);

// Bytes as millionths of a GiB, to the nearest.
int64_t sp_i_export_gib(int64_t bytes);

#endif
