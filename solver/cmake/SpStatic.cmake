# Other libraries from their archives, so that the program runs where they are not installed. All stand at
# the end of each link line, as one group: only what is used of them is taken. A library without an archive
# stays shared, which the summary says; the C library does in any case, by which plug-ins are loaded.
set(sp_archives "")
set(sp_left_shared "")

# glpk ships no .pc file: these are what it is linked with on Debian.
set(sp_glpk_libraries glpk amd colamd suitesparseconfig gmp ltdl z)
set(sp_of_c m c dl pthread rt gcc gcc_s)
# OpenBLAS comes first: igraph and GSL name plain BLAS, which has the same functions.
set(sp_names ${OPENBLAS_STATIC_LIBRARIES} ${sp_glpk_libraries} ${IGRAPH_STATIC_LIBRARIES}
    ${GSL_STATIC_LIBRARIES} ${YAML_STATIC_LIBRARIES} ${JANSSON_STATIC_LIBRARIES}
    ${ZLIB_STATIC_LIBRARIES} quadmath)
list(REMOVE_DUPLICATES sp_names)
list(REMOVE_ITEM sp_names ${sp_of_c})
foreach(name ${sp_names})
  find_library(SP_ARCHIVE_${name} lib${name}.a HINTS ${OPENBLAS_STATIC_LIBRARY_DIRS}
               PATHS ${CMAKE_C_IMPLICIT_LINK_DIRECTORIES})
  find_library(SP_SHARED_${name} NAMES ${name} lib${name}.so.7 NAMES_PER_DIR)
  mark_as_advanced(SP_ARCHIVE_${name} SP_SHARED_${name})
  if(SP_ARCHIVE_${name})
    list(APPEND sp_archives ${SP_ARCHIVE_${name}})
  elseif(SP_SHARED_${name})
    list(APPEND sp_left_shared ${SP_SHARED_${name}})
  endif()
endforeach()

# Headers alone come from the packages.
foreach(package JANSSON IGRAPH ZLIB GSL YAML OPENBLAS)
  set_target_properties(PkgConfig::${package} PROPERTIES INTERFACE_LINK_LIBRARIES "")
endforeach()
if(NOT SP_ARCHIVE_glpk)
  message(FATAL_ERROR "SP_STATIC: there is no libglpk.a (Debian: libglpk-dev)")
endif()
set_target_properties(GLPK::GLPK PROPERTIES IMPORTED_LOCATION ${SP_ARCHIVE_glpk})
list(JOIN sp_archives " " sp_archives)
list(JOIN sp_left_shared " " sp_shared_line)
string(APPEND CMAKE_C_STANDARD_LIBRARIES " -Wl,--start-group ${sp_archives} -Wl,--end-group"
       " -Wl,--as-needed ${sp_shared_line} -static-libgcc -ldl -lpthread -lm")
