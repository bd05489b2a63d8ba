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
foreach(file bin/slimpack include/slimpack/slimpack.h share/man/man1/slimpack.1
             share/bash-completion/completions/slimpack share/doc/slimpack/examples/plan_batch.c
             share/doc/slimpack/examples/loader.py share/doc/slimpack/examples/demo.json)
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "not installed: ${file}")
  endif()
endforeach()

# Every header that is installed includes none that is not. They are read together below.
file(GLOB_RECURSE headers RELATIVE ${prefix}/include/slimpack ${prefix}/include/slimpack/*.h)
set(all_headers "")
foreach(header IN LISTS headers)
  file(STRINGS ${prefix}/include/slimpack/${header} lines REGEX "^#include \"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"(.*)\".*" "\\1" included "${line}")
    if(NOT EXISTS ${prefix}/include/slimpack/${included})
      message(FATAL_ERROR "${header} includes ${included}, which is not installed")
    endif()
  endforeach()
  string(APPEND all_headers "#include \"${header}\"\n")
endforeach()
file(WRITE ${WORK}/all_headers.c "${all_headers}int main(void) { return 0; }\n")

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
run(${COMPILER} -std=c17 -fsyntax-only ${WORK}/all_headers.c ${arguments})

# Exported is what slimpack.h marks, and no test hook is in the library. A static library has hidden
# symbols, too: they do not leave a shared object that is made of it.
file(GLOB library ${prefix}/${LIBDIR}/libslimpack.so ${prefix}/${LIBDIR}/libslimpack.a)
list(GET library 0 library)
run(nm --defined-only ${library})
if(NOT output MATCHES "sp_scenario_read" OR output MATCHES "fail_after")
  message(FATAL_ERROR "${library} has no sp_scenario_read, or a test hook")
endif()
set(shared ${library})
if(library MATCHES "a$")
  set(shared ${WORK}/libshared.so)
  run(${COMPILER} ${flags} -shared -o ${shared} -Wl,--whole-archive ${library}
      -Wl,--no-whole-archive)
endif()
run(nm -D --defined-only ${shared})
string(REGEX MATCHALL "[^ \n]+\n" exported "${output}")
list(FILTER exported EXCLUDE REGEX "^sp_[a-hj-z]")
list(FILTER exported EXCLUDE REGEX "^(_init|_fini|_edata|_end|__bss_start)\n")
if(exported AND NOT SANITIZE)
  message(FATAL_ERROR "${shared} exports more than slimpack.h: ${exported}")
endif()

# The same program in C++, against the library and against its exported symbols alone.
get_filename_component(directory ${COMPILER} DIRECTORY)
get_filename_component(name ${COMPILER} NAME)
string(REGEX REPLACE "clang" "clang++" name ${name})
string(REGEX REPLACE "gcc" "g++" name ${name})
string(REGEX REPLACE "^cc$" "c++" name ${name})
find_program(cxx ${name} HINTS ${directory} REQUIRED)
run(${cxx} ${flags} -std=c++11 -Wall -Wextra -Wpedantic -Werror -o ${WORK}/in_cxx
    ${SOURCE}/consumer.cpp ${arguments} -Wl,-rpath,${prefix}/${LIBDIR})
run_consumer(${WORK}/in_cxx)
list(TRANSFORM arguments REPLACE "^-lslimpack$" "${shared}")
run(${cxx} ${flags} -std=c++11 -o ${WORK}/in_cxx_exported ${SOURCE}/consumer.cpp ${arguments}
    -Wl,-rpath,${WORK}:${prefix}/${LIBDIR})
run_consumer(${WORK}/in_cxx_exported)

# The installed example: demo.json trains both batches, and drops the sample over its context.
set(examples ${prefix}/share/doc/slimpack/examples)
run(${COMPILER} ${flags} -o ${WORK}/plan_batch ${examples}/plan_batch.c ${arguments}
    -lpthread -Wl,-rpath,${prefix}/${LIBDIR})
run(${WORK}/plan_batch ${examples}/demo.json "5321 812 40960" "300000 250000 700 16000")
foreach(line "step 0: 3 samples in 1 packs, predicted" "pack 0 on rank 0: 0.0..5321. 1.0..812. 2"
        "step 1: 3 samples in 2 packs, predicted" "pack 1 on rank 1: 3.0..16000.")
  if(NOT output MATCHES "${line}")
    message(FATAL_ERROR "plan_batch printed no '${line}':\n${output}")
  endif()
endforeach()

# The loader plans on a thread of its own.
run(${COMPILER} ${flags} -std=c17 -Wall -Wextra -Wpedantic -Werror -o ${WORK}/loader ${examples}/loader.c
    ${arguments} -lpthread -Wl,-rpath,${prefix}/${LIBDIR})
run(${WORK}/loader ${examples}/demo.json 3 16 60)
if(NOT output MATCHES "\n3 plans: waited .* ms behind steps, waited [0-9.]+ ms, [0-9.]+ % hidden\n$")
  message(FATAL_ERROR "loader told no figure:\n${output}")
endif()

# The program finds its data beside it after the prefix has been moved. What it is asked for below
# stands nowhere else.
set(moved ${WORK}/moved)
file(RENAME ${prefix} ${moved})
set(data ${moved}/share/slimpack)
file(WRITE ${data}/profiles/moved-only.json
     [[{"schema": "slimpack/profile/1", "name": "moved-only", "extends": "h800"}]])
foreach(kind csv json)
  file(COPY_FILE ${data}/published/zb_v.${kind} ${data}/published/moved_only.${kind})
endforeach()
file(WRITE ${data}/plots/timeline.gp "set print outfile; print 'moved'")
unset(ENV{SLIMPACK_PROFILE_PATH})
set(demo ${moved}/share/doc/slimpack/examples/demo.json --set strategy.kind=packed --set
         workload.batches=1 --quiet)
set(program ${moved}/bin/slimpack)
run(${program} simulate ${demo} --set profile=moved-only)
if(NOT output MATCHES "profile moved-only")
  message(FATAL_ERROR "the profile beside the moved program is not used:\n${output}")
endif()
run(${program} validate --published --table moved_only)
if(NOT output MATCHES "moved_only")
  message(FATAL_ERROR "the table beside the moved program is not used:\n${output}")
endif()
file(COPY_FILE ${data}/figures/zb_v.json ${data}/figures/moved_figure.json)
run(${program} reproduce moved_figure)
if(NOT output MATCHES "moved_figure: ")
  message(FATAL_ERROR "the figure beside the moved program is not used:\n${output}")
endif()
# A plug-in, too, which stands nowhere else.
file(COPY ${BUILD}/tests/plugins/libslimpack-backend-sample.so
     DESTINATION ${moved}/${LIBDIR}/slimpack)
unset(ENV{SLIMPACK_BACKEND_PATH})
run(${program} plan ${demo} --set nodes=1 --set parallel.tp=1 --set parallel.pp=4
    --set parallel.sequence_parallel=false --set parallel.zero=0 --set memory.recompute=none
    --set workload.context=4096 --set workload.samples_per_batch=16 -o ${WORK}/plan.json)
run(${program} run ${WORK}/plan.json --backend sample --clock virtual)
find_program(gnuplot gnuplot)
if(gnuplot)
  run(${program} simulate ${demo} --plot ${WORK}/timeline.svg)
  file(READ ${WORK}/timeline.svg drawn)
  if(NOT drawn STREQUAL "moved\n")
    message(FATAL_ERROR "the plot script beside the moved program is not used:\n${drawn}")
  endif()
endif()
