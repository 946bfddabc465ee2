# Interface targets that every target of the project links: warnings, strict floating point, sanitizers.

# Strict floating point: no contraction, no reassociation, no flush to zero. The last two flags change no
# value: they let the compiler vectorise straight-line code whose results are the same either way.
add_library(dsv4_strict INTERFACE)
target_compile_options(dsv4_strict INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off -fno-fast-math -fno-math-errno -fno-trapping-math>)

add_library(dsv4_warnings INTERFACE)
target_compile_options(dsv4_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>)

add_library(dsv4_sanitize INTERFACE)
if(DSV4_SANITIZE)
  target_compile_options(dsv4_sanitize INTERFACE -fsanitize=${DSV4_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(dsv4_sanitize INTERFACE -fsanitize=${DSV4_SANITIZE})
endif()

# dsv4_add_library(NAME SOURCES... [PUBLIC deps...] [PRIVATE deps...]): a static library under src/.
function(dsv4_add_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC dsv4_strict dsv4_sanitize ${ARG_PUBLIC} PRIVATE dsv4_warnings ${ARG_PRIVATE})
endfunction()

# dsv4_add_test(NAME SOURCES... LIBS... LABELS...): one Catch2 program, one CTest entry, run from the source tree.
function(dsv4_add_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE dsv4_catch_main dsv4_strict dsv4_sanitize dsv4_warnings ${ARG_LIBS})
  target_precompile_headers(${name} REUSE_FROM dsv4_catch_header)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  foreach(label ${ARG_LABELS})  # `ninja tests_unit` builds every test of that label
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()
endfunction()
