# SPDX-License-Identifier: Apache-2.0
# Tests of tally's own hooks, with ranks as threads and as processes.

add_library(tally_hook_support STATIC
  support/hook_rules.c support/hook_model.c support/hook_states.c
  support/power_reference.c support/power_model.c support/guest_model.c)
target_include_directories(tally_hook_support PUBLIC
  ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(tally_hook_support PRIVATE tally_flags)

# A separate program tests/hook/<name>.c, as in multi.cmake.
function(tally_hook_test name)
  add_executable(${name} hook/${name}.c)
  target_link_libraries(${name} PRIVATE tally_flags tally_hook_support
    tally_ddp_support tally_rank_support tally_test_support tally_static PkgConfig::cmocka m)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS hook TIMEOUT 300 PROCESSORS 2)
endfunction()

tally_hook_test(test_power_reference)
tally_hook_test(test_power_golden)
tally_hook_test(test_power_corners)
tally_hook_test(test_power_join)
tally_hook_test(test_power_bytes)
tally_hook_test(test_power_failures)
tally_hook_test(test_power_feedback)
tally_hook_test(test_power_state)
tally_hook_test(test_hook_bytes)
tally_hook_test(test_hook_bits)
tally_hook_test(test_layout_bits)
tally_hook_test(test_hook_exact)
tally_hook_test(test_hook_scatter)
tally_hook_test(test_hook_upstream)
tally_hook_test(test_hook_stack)
tally_hook_test(test_hook_extremes)
tally_hook_test(test_hook_save)
tally_hook_test(test_hook_load_errors)
tally_hook_test(test_hook_replace)
tally_hook_test(test_hook_namesake)
tally_hook_test(test_hook_state_memory)
tally_hook_test(test_hook_feedback)
tally_hook_test(test_hook_objects)
tally_hook_test(test_hook_disagree)
tally_hook_test(test_hook_memory)
tally_hook_test(test_hosts)
tally_hook_test(test_hosts_late)
tally_hook_test(test_post_local)
tally_hook_test(test_post_local_state)
tally_hook_test(test_post_local_replace)
tally_hook_test(test_post_local_run)
tally_hook_test(test_auto)
tally_hook_test(test_reducer)
tally_hook_test(test_reducer_bits)
tally_hook_test(test_reducer_memory)
