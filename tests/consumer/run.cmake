# Installs BUILD below WORK, then builds and runs the consumer twice: with the CMake package and
# with pkg-config.
set(prefix ${WORK}/prefix)
file(REMOVE_RECURSE ${WORK})

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(run_consumer program)
  run(${program})
  if(NOT output STREQUAL "consumer works\n")
    message(FATAL_ERROR "${program} printed: ${output}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
foreach(file bin/slimpack include/slimpack/sim/base/status.h share/man/man1/slimpack.1
             share/bash-completion/completions/slimpack)
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "not installed: ${file}")
  endif()
endforeach()

set(flags "")
if(SANITIZE)
  set(flags -fsanitize=${SANITIZE})
endif()
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/cmake -DCMAKE_PREFIX_PATH=${prefix}
    -DCMAKE_C_COMPILER=${COMPILER} -DCMAKE_C_FLAGS=${flags})
run(${CMAKE_COMMAND} --build ${WORK}/cmake)
run_consumer(${WORK}/cmake/consumer)

set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
run(pkg-config --cflags --libs slimpack)
separate_arguments(arguments UNIX_COMMAND "${output}")
run(${COMPILER} ${flags} -o ${WORK}/by_pkg_config ${SOURCE}/consumer.c ${arguments}
    -Wl,-rpath,${prefix}/${LIBDIR})
run_consumer(${WORK}/by_pkg_config)
