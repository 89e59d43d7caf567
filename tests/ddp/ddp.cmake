# SPDX-License-Identifier: Apache-2.0
# Tests of the ddp: parameters, buckets, steps, hooks, with ranks as threads and as processes.

add_library(tally_ddp_support STATIC support/ddp_model.c)
target_include_directories(tally_ddp_support PUBLIC
  ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(tally_ddp_support PRIVATE tally_flags)

# A program tests/ddp/<name>.c of its own, as in multi.cmake.
function(tally_ddp_test name)
  add_executable(${name} ddp/${name}.c)
  target_link_libraries(${name} PRIVATE tally_flags
    tally_ddp_support tally_rank_support tally_test_support tally_static PkgConfig::cmocka m)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ddp TIMEOUT 300 PROCESSORS 2)
endfunction()

tally_ddp_test(test_ddp_plan)
tally_ddp_test(test_ddp_means)
tally_ddp_test(test_ddp_bits)
tally_ddp_test(test_ddp_bucket)
tally_ddp_test(test_ddp_unused)
tally_ddp_test(test_ddp_errors)
tally_ddp_test(test_ddp_disagree)
tally_ddp_test(test_ddp_hook_errors)
