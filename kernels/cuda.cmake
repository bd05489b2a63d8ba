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
  set_target_properties(slimpack_cuda_kernels PROPERTIES IMPORTED_LOCATION ${SP_CUDA_KERNELS})
  target_include_directories(slimpack_cuda_kernels INTERFACE ${PROJECT_SOURCE_DIR})
  target_link_libraries(slimpack_cuda_kernels INTERFACE slimpack_cuda_plans)
elseif(SP_CUDA_FOUND)
  file(GLOB cuda_files CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cu)
  # A kernel that keeps registers in memory is many times slower. Later compilers may place
  # registers otherwise, which should not end a build.
  option(SP_CUDA_WERROR "Warnings of kernels are errors" ON)
  set(spills --warn-on-spills)
  if(SP_CUDA_WERROR AND CUDAToolkit_VERSION VERSION_LESS 13.1)
    string(APPEND spills ",--warning-as-error")
  endif()
  # One image of all files. Code of 8.0 runs on 8.6 and 8.9 as well; drivers compile that for 9.0 on
  # cards that are newer than all. It is not compressed, which not every driver could undo.
  # tests/gpu/check_registers.sh compiles for the same architectures.
  set(image ${CMAKE_CURRENT_BINARY_DIR}/cuda_image)
  list(TRANSFORM cuda_files REPLACE "(.+)" "#include \"\\1\"" OUTPUT_VARIABLE includes)
  list(JOIN includes "\n" includes)
  file(CONFIGURE OUTPUT ${image}.cu CONTENT "${includes}\n")
  add_custom_command(
    OUTPUT ${image}.fatbin
    COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} -fatbin -std=c++17 -O3 -I${PROJECT_SOURCE_DIR}
            --no-compress
            --generate-code=arch=compute_80,code=sm_80
            --generate-code=arch=compute_90,code=[sm_90,compute_90]
            --generate-code=arch=compute_100,code=sm_100
            $<$<BOOL:${SP_CUDA_WERROR}>:--Werror=all-warnings> -Xptxas=${spills}
            -MD -MF ${image}.d -MT ${image}.fatbin -o ${image}.fatbin ${image}.cu
    DEPENDS ${image}.cu ${cuda_files}
    DEPFILE ${image}.d
    COMMENT "Compiling kernels for CUDA devices"
    VERBATIM COMMAND_EXPAND_LISTS)
  set(image_object ${CMAKE_CURRENT_LIST_DIR}/image.S)
  set_source_files_properties(${image_object} PROPERTIES OBJECT_DEPENDS ${image}.fatbin
                                              COMPILE_DEFINITIONS "SP_CUDA_IMAGE=\"${image}.fatbin\"")
  set_source_files_properties(${cuda_files} PROPERTIES LANGUAGE CXX)
  add_library(slimpack_cuda_kernels STATIC ${image_object} ${CMAKE_CURRENT_LIST_DIR}/launch.cpp ${cuda_files})
  set_target_properties(slimpack_cuda_kernels PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON
                                                         CXX_EXTENSIONS OFF
                                                         POSITION_INDEPENDENT_CODE ON)
  target_include_directories(slimpack_cuda_kernels PUBLIC ${PROJECT_SOURCE_DIR})
  target_include_directories(slimpack_cuda_kernels SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  # Nothing of C++'s library is called, so that C programs link them.
  target_compile_options(
    slimpack_cuda_kernels
    PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-xc++;-fno-exceptions;-fno-rtti;-Wall;-Wextra;-Wshadow;-Wconversion;-Wno-unknown-pragmas>
            $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SP_WERROR}>>:-Werror>)
  target_link_libraries(slimpack_cuda_kernels PUBLIC slimpack_cuda_plans)
endif()
