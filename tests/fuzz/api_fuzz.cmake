# SPDX-License-Identifier: Apache-2.0
# The fuzzer of call sequences, with a list of all public functions from the headers: one that it
# never calls is a failure.

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/include/tally.h ${PROJECT_SOURCE_DIR}/include/tally_extend.h)
file(STRINGS ${PROJECT_SOURCE_DIR}/include/tally.h api_lines REGEX "^TALLY_API ")
file(STRINGS ${PROJECT_SOURCE_DIR}/include/tally_extend.h extend_lines REGEX "^TALLY_API ")
set(api_list "")
foreach(line ${api_lines} ${extend_lines})
  string(REGEX MATCH "(tally_[a-z_0-9]+)\\(" found "${line}")
  string(APPEND api_list "    \"${CMAKE_MATCH_1}\",\n")
endforeach()
file(CONFIGURE OUTPUT api_names.c CONTENT
"/* SPDX-License-Identifier: Apache-2.0 */
/* Made from the public headers by fuzz/api_fuzz.cmake. */
#include \"fuzz/api_rank.h\"

const char *const api_names[] = {
@api_list@};
const size_t api_n_names = sizeof api_names / sizeof api_names[0];
" @ONLY)

add_executable(api_fuzz
  fuzz/api_checkpoints.c
  fuzz/api_ddp.c
  fuzz/api_facts.c
  fuzz/api_fuzz.c
  fuzz/api_groups.c
  fuzz/api_hooks.c
  fuzz/api_model.c
  fuzz/api_rank.c
  fuzz/api_reducer.c
  fuzz/api_state.c
  ${CMAKE_CURRENT_BINARY_DIR}/api_names.c
)
target_compile_definitions(api_fuzz PRIVATE _DEFAULT_SOURCE)
target_link_libraries(api_fuzz PRIVATE
  tally_flags tally_test_support tally_static PkgConfig::cmocka m)
add_test(NAME api_fuzz COMMAND api_fuzz)
set_tests_properties(api_fuzz PROPERTIES LABELS api TIMEOUT 600)
