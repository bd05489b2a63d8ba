# What SP_BARE builds in place of everything else: the CUDA backend with its tests and tools, on a
# machine without any package that slimpack needs otherwise. jansson comes with the source
# (third_party/jansson); no other part of the project is built with that copy.
set(jansson ${CMAKE_CURRENT_LIST_DIR}/third_party/jansson)
file(GLOB sources ${jansson}/*.c)
# Shared, so that a plug-in and the program that loads it have one.
add_library(slimpack_jansson SHARED ${sources})
set_target_properties(slimpack_jansson PROPERTIES C_STANDARD 99 C_EXTENSIONS ON)
target_include_directories(slimpack_jansson SYSTEM PUBLIC ${jansson})
target_compile_definitions(slimpack_jansson PRIVATE HAVE_CONFIG_H)
add_library(PkgConfig::JANSSON ALIAS slimpack_jansson)

include(kernels/cuda.cmake)
add_subdirectory(backends/executor)
add_subdirectory(backends/cuda)
add_subdirectory(backends/record)
add_subdirectory(tests/gpu)
message(STATUS "slimpack ${PROJECT_VERSION}, the CUDA backend alone")
message(STATUS "  build:       ${CMAKE_BUILD_TYPE}, ${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}")
message(STATUS "  CUDA:        ${CUDAToolkit_VERSION}")
message(STATUS "  cuDNN:       ${SP_CUDNN_INCLUDE_DIR}")
