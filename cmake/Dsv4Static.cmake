# Programs for a machine that lacks our libraries: everything but the C library is linked into them. Include before
# Dsv4Dependencies, which takes the libraries named here.
option(DSV4_STATIC "Link HDF5, yaml-cpp, fmt and the compiler's libraries statically" OFF)
if(NOT DSV4_STATIC)
  return()
endif()
set(HDF5_USE_STATIC_LIBRARIES ON)
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgomp.a
                OUTPUT_VARIABLE DSV4_GOMP OUTPUT_STRIP_TRAILING_WHITESPACE)
set(OpenMP_gomp_LIBRARY ${DSV4_GOMP} CACHE FILEPATH "The OpenMP library" FORCE)
# -fopenmp names the shared libgomp as well; after the static one nothing is left for it to resolve.
add_link_options(-static-libgcc -static-libstdc++ LINKER:--as-needed)
link_libraries(${DSV4_GOMP})

# dsv4_static_libraries(VARIABLE FILES...): the static file beside each shared one. HDF5's driver for object storage, which
# no program here opens, is the only user of curl and crypto: they are left out.
function(dsv4_static_libraries variable)
  set(list "")
  foreach(file ${ARGN})
    if(file MATCHES "/lib(curl|crypto)\\.")
      continue()
    endif()
    if(file MATCHES "/lib(m|dl|pthread)\\.(so|a)$")  # the C library's
      list(APPEND list ${CMAKE_MATCH_1})
      continue()
    endif()
    string(REGEX REPLACE "\\.so$" ".a" static ${file})
    if(EXISTS ${static})
      set(file ${static})
    endif()
    list(APPEND list ${file})
    if(file MATCHES "/libsz\\.a$")  # libsz.a calls libaec.a
      find_library(DSV4_AEC libaec.a REQUIRED)
      list(APPEND list ${DSV4_AEC})
    endif()
  endforeach()
  set(${variable} ${list} PARENT_SCOPE)
endfunction()
