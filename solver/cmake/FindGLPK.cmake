# GLPK, which ships neither a CMake package nor a .pc file. Sets GLPK_FOUND and GLPK_VERSION and
# defines GLPK::GLPK.
find_path(GLPK_INCLUDE_DIR glpk.h PATH_SUFFIXES glpk)
find_library(GLPK_LIBRARY glpk)
mark_as_advanced(GLPK_INCLUDE_DIR GLPK_LIBRARY)

if(GLPK_INCLUDE_DIR)
  file(STRINGS ${GLPK_INCLUDE_DIR}/glpk.h sp_glpk_lines REGEX "^#define GLP_M[AI][JN]OR_VERSION")
  string(REGEX REPLACE ".*MAJOR_VERSION[ \t]+([0-9]+).*" "\\1" sp_glpk_major "${sp_glpk_lines}")
  string(REGEX REPLACE ".*MINOR_VERSION[ \t]+([0-9]+).*" "\\1" sp_glpk_minor "${sp_glpk_lines}")
  set(GLPK_VERSION ${sp_glpk_major}.${sp_glpk_minor})
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(GLPK REQUIRED_VARS GLPK_LIBRARY GLPK_INCLUDE_DIR
                                  VERSION_VAR GLPK_VERSION)
if(GLPK_FOUND AND NOT TARGET GLPK::GLPK)
  add_library(GLPK::GLPK UNKNOWN IMPORTED)
  set_target_properties(GLPK::GLPK PROPERTIES IMPORTED_LOCATION ${GLPK_LIBRARY}
                                              INTERFACE_INCLUDE_DIRECTORIES ${GLPK_INCLUDE_DIR})
endif()
