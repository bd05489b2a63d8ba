// What a program does once before it calls kernels.
#ifndef SLIMPACK_KERNELS_START_H
#define SLIMPACK_KERNELS_START_H

// Makes OpenBLAS work in the calling thread alone, so that every worker of a backend computes on
// its own core and equal calls give equal bits. Call it once, before the workers start: the setting
// is one of the whole process. Kernels may then be called from any number of threads.
void sp_kernels_start(void);

// The instruction set OpenBLAS chose, such as "Haswell", for the record of a measurement; "none" in
// a build without OpenBLAS.
const char *sp_kernels_blas_core(void);

#endif
