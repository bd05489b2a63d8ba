# The CPU executor for the bare build, which holds a GPU's gradients against its fp64: the sources of
# backends/ and kernels/ as they are, but for products without a BLAS.
file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/*.c)
list(FILTER kernels EXCLUDE REGEX "/(start|gemm|attention_tiles|attention_plan|embedding_order)[.]c$")
file(GLOB typed CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/backends/host/typed/*.c)
set(backends ${PROJECT_SOURCE_DIR}/backends)
file(GLOB sources CONFIGURE_DEPENDS ${backends}/comm/attention*.c
     ${backends}/host/*.c ${backends}/host/calibrate/*.c)
add_library(bare_host STATIC ${sources} plain_start.c
                             ${PROJECT_SOURCE_DIR}/kernels/attention_tiles.c)
sp_own_target(bare_host)
foreach(bits 32 64)
  sp_add_precision(bare_host_f${bits} ${bits} ${typed} ${kernels} plain_gemm.c)
  target_sources(bare_host PRIVATE $<TARGET_OBJECTS:bare_host_f${bits}>)
endforeach()
target_link_libraries(bare_host PUBLIC slimpack_plain)
