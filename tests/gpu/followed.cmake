# ThreadSanitizer follows the streams of the emulated GPU (support/followed.h) in programs that link
# cuda_followed. What puts work on streams, what ranks meet by and the kernels are compiled for it; what does
# the work of streams is not, and says what it touches; all else is as it is elsewhere. There is no such
# target under other sanitizers, nor where ThreadSanitizer does not run.
if(SP_EMULATED_CUDA AND SP_CUDA_HOST AND NOT SP_SANITIZE)
  include(CheckCSourceRuns)
  set(CMAKE_REQUIRED_FLAGS -fsanitize=thread)
  check_c_source_runs(
    "#include <sanitizer/tsan_interface.h>
     int main(void) { __tsan_destroy_fiber(__tsan_create_fiber(0)); return 0; }" SP_FOLLOWS_STREAMS)
  unset(CMAKE_REQUIRED_FLAGS)
endif()
if(NOT SP_FOLLOWS_STREAMS)
  return()
endif()

set(followed_options -fsanitize=thread -g1 -O2)
get_target_property(followed_sources slimpack_cuda SOURCES)
list(FILTER followed_sources INCLUDE REGEX "/backends/cuda/")
foreach(file exchange threads world)
  list(APPEND followed_sources ${PROJECT_SOURCE_DIR}/backends/ranks/${file}.c)
endforeach()
add_library(cuda_followed_kernels STATIC ${cuda_files})
sp_emulate(cuda_followed_kernels)
# Threads of a block change stacks, which ThreadSanitizer does not see: it is not told of calls in kernels.
target_compile_options(cuda_followed_kernels PRIVATE ${followed_options}
                                                     --param=tsan-instrument-func-entry-exit=0)
set(support ${CMAKE_CURRENT_LIST_DIR}/support)
add_library(cuda_followed_machine STATIC ${machine_files} ${support}/followed.c ${support}/fake_cuda.c
                                         ${support}/stream_queue.c ${support}/computing_cublas.c
                                         ${support}/emulated_backend.c)
sp_emulate(cuda_followed_machine)
sp_own_target(cuda_followed_machine)
target_link_libraries(cuda_followed_machine PUBLIC slimpack_cuda)
target_compile_definitions(cuda_followed_machine PUBLIC SP_FOLLOWED)
target_compile_options(cuda_followed_machine PRIVATE -g1 -O2)
add_library(cuda_followed OBJECT ${followed_sources})
sp_own_target(cuda_followed)
target_compile_options(cuda_followed PRIVATE ${followed_options})
target_compile_options(cuda_followed INTERFACE -g1) # reports name lines of tests, too
target_link_options(cuda_followed INTERFACE -fsanitize=thread)
target_link_libraries(cuda_followed_kernels PUBLIC cuda_followed_machine)
target_link_libraries(cuda_followed PUBLIC slimpack_cuda cuda_followed_kernels)
