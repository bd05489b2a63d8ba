# Kernels for CUDA devices. Needs nothing but CUDA and sp_own_target, so that a build without the
# project's other dependencies can include it.

# What plans launches is plain C, and there without CUDA.
add_library(slimpack_cuda_plans STATIC ${CMAKE_CURRENT_LIST_DIR}/embedding_order.c)
sp_own_target(slimpack_cuda_plans)
set_target_properties(slimpack_cuda_plans PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_include_directories(slimpack_cuda_plans PUBLIC ${PROJECT_SOURCE_DIR})

set(SP_CUDA_KERNELS "" CACHE FILEPATH "The archive of kernels of another build of this tree, in place of compiling them")
if(SP_CUDA_KERNELS)
  add_library(slimpack_cuda_kernels STATIC IMPORTED GLOBAL)
  set_target_properties(slimpack_cuda_kernels PROPERTIES IMPORTED_LOCATION ${SP_CUDA_KERNELS}
                                                         IMPORTED_LINK_INTERFACE_LANGUAGES CUDA)
  target_include_directories(slimpack_cuda_kernels INTERFACE ${PROJECT_SOURCE_DIR})
  target_link_libraries(slimpack_cuda_kernels INTERFACE slimpack_cuda_plans CUDA::cudart_static)
elseif(SP_CUDA_FOUND)
  file(GLOB cuda_files CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cu)
  add_library(slimpack_cuda_kernels STATIC ${cuda_files})
  set_target_properties(
    slimpack_cuda_kernels
    PROPERTIES CUDA_STANDARD 17
               CUDA_STANDARD_REQUIRED ON
               CUDA_EXTENSIONS OFF
               CUDA_ARCHITECTURES OFF
               CUDA_RUNTIME_LIBRARY Static
               POSITION_INDEPENDENT_CODE ON)
  target_include_directories(slimpack_cuda_kernels PUBLIC ${PROJECT_SOURCE_DIR})
  # A kernel that keeps registers in memory is many times slower. Later compilers may place
  # registers otherwise, which should not end a build.
  option(SP_CUDA_WERROR "Warnings of kernels are errors" ON)
  set(spills --warn-on-spills)
  if(SP_CUDA_WERROR AND CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.1)
    string(APPEND spills ",--warning-as-error")
  endif()
  # Code of 8.0 runs on 8.6 and 8.9 as well; newer cards compile that for 9.0 when it is loaded.
  # tests/gpu/check_registers.sh compiles for these and for 10.0.
  target_compile_options(
    slimpack_cuda_kernels
    PRIVATE --generate-code=arch=compute_80,code=sm_80
            --generate-code=arch=compute_90,code=[sm_90,compute_90]
            $<$<BOOL:${SP_CUDA_WERROR}>:--Werror=all-warnings>
            -Xptxas=${spills}
            -Xcompiler=-Wall,-Wextra,-Wshadow,-Wconversion$<$<BOOL:${SP_CUDA_WERROR}>:$<COMMA>-Werror>)
  target_link_libraries(slimpack_cuda_kernels PUBLIC slimpack_cuda_plans CUDA::cudart_static)
endif()
