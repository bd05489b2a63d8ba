// The fat binary of all kernels, in the section where NVIDIA's tools look for one.
    .section .nv_fatbin, "a"
    .balign 8
    .globl sp_cuda_image
    .hidden sp_cuda_image
sp_cuda_image:
    .incbin SP_CUDA_IMAGE
    .section .note.GNU-stack, "", %progbits
