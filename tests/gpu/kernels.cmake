# The suite of the CUDA kernels, once for a CUDA device (a command of gpu_check, label gpu; skipped with
# the reason where there is none) and once as a program on the CPU that emulates one (label unit).
# Needs neither a test library nor a BLAS.
set(kernels_folder ${CMAKE_CURRENT_LIST_DIR})
file(GLOB kernels_suite CONFIGURE_DEPENDS ${kernels_folder}/kernels_*.c)
list(FILTER kernels_suite EXCLUDE REGEX "kernels_device_[a-z]*\\.c$")

# The fp64 references, and fp32's for the tables that kernels read.
foreach(bits 32 64)
  add_library(gpu_reference_f${bits} STATIC)
  sp_own_target(gpu_reference_f${bits})
  foreach(file elementwise norms vocabulary vector)
    target_sources(gpu_reference_f${bits} PRIVATE ${PROJECT_SOURCE_DIR}/kernels/${file}.c)
  endforeach()
  target_include_directories(gpu_reference_f${bits} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(gpu_reference_f${bits} PRIVATE SP_KERNEL_BITS=${bits})
endforeach()

# A test for each case, by a command that the case's name follows.
function(sp_add_kernel_cases entry_prefix label)
  foreach(file IN LISTS kernels_suite)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(STRINGS ${file} lines REGEX "KERNEL_CASE\\(")
    string(REGEX MATCHALL "KERNEL_CASE\\([a-z0-9_]+" calls "${lines}")
    foreach(call IN LISTS calls)
      string(REGEX REPLACE ".*\\(" "" case ${call})
      add_test(NAME ${entry_prefix}.${case} COMMAND ${ARGN} ${case})
      set_tests_properties(${entry_prefix}.${case} PROPERTIES TIMEOUT 120 LABELS ${label}
                                                              SKIP_RETURN_CODE 77)
    endforeach()
  endforeach()
endfunction()

if(TARGET gpu_check)
  target_sources(gpu_check PRIVATE ${kernels_suite} ${kernels_folder}/kernels_device_cuda.c)
  target_link_libraries(gpu_check PRIVATE gpu_reference_f64 gpu_reference_f32)
  sp_add_kernel_cases(gpu.kernels gpu gpu_check kernels_test)
endif()

# The kernels' own source, as C++ for the CPU that emulates a device.
function(sp_emulate target)
  set_target_properties(${target} PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_definitions(
    ${target} PRIVATE _XOPEN_SOURCE=700 "SP_CUDA_MACHINE=\"tests/support/emulated_cuda/runtime.h\"")
  # Devices read elements of any type as words.
  target_compile_options(
    ${target}
    PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-xc++> -fno-strict-aliasing -ffp-contract=off -Wall -Wextra
            -Wshadow -Wconversion $<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-pragmas>
            $<$<BOOL:${SP_WERROR}>:-Werror> $<$<CONFIG:Debug>:-O2> ${sp_sanitize_flags})
  target_link_libraries(${target} PUBLIC slimpack_cuda_plans)
endfunction()

if(SP_EMULATED_CUDA)
  file(GLOB cuda_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/*.cu)
  file(GLOB machine_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/emulated_cuda/*.cpp)
  set_source_files_properties(${cuda_files} PROPERTIES LANGUAGE CXX)
  add_library(emulated_cuda_kernels STATIC ${cuda_files} ${machine_files})
  sp_emulate(emulated_cuda_kernels)
  # AddressSanitizer looks at the kernels. The machine stands for the device: it checks the addresses
  # that it is given by itself, and took half of the time of every test that runs kernels.
  if(SP_SANITIZE MATCHES "address")
    set_source_files_properties(${machine_files} PROPERTIES COMPILE_OPTIONS -fno-sanitize=all
                                                            COMPILE_DEFINITIONS SP_EMULATED_ASAN)
  endif()
  add_executable(emulated_kernels ${kernels_suite} ${kernels_folder}/attention_reference.c
                                  ${kernels_folder}/kernels_device_emulated.c)
  sp_own_target(emulated_kernels)
  target_link_libraries(emulated_kernels PRIVATE emulated_cuda_kernels gpu_reference_f64
                                                 gpu_reference_f32
                                                 $<$<BOOL:${SP_MATH_LIBRARY}>:m>)
  sp_add_kernel_cases(unit.cuda_kernels unit emulated_kernels)
endif()
