# SPDX-License-Identifier: Apache-2.0
# Tests with ranks, as threads and as processes.

add_library(tally_rank_support STATIC support/ranks.c support/ranks_mpi.c
  support/ranks_worlds.c support/rank_checks.c support/rank_staging.c support/oracle.c)
target_include_directories(tally_rank_support PUBLIC
  ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(tally_rank_support PRIVATE tally_flags)
# Beyond POSIX: memory that a process shares with its children.
set_source_files_properties(support/ranks.c PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)

# A separate program tests/<folder>/<name>.c, and the support libraries it needs: 0 is success. It
# sees the tally__ functions and counts allocations. Its ranks need all CPUs. Its label is the folder.
function(tally_rank_test folder name)
  add_executable(${name} ${folder}/${name}.c)
  target_link_libraries(${name} PRIVATE tally_flags ${ARGN}
    tally_rank_support tally_test_support tally_static PkgConfig::cmocka m)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${folder} TIMEOUT 300 PROCESSORS 2)
endfunction()

function(tally_multi_test name)
  tally_rank_test(multi ${name})
endfunction()

tally_multi_test(test_reductions)
tally_multi_test(test_group_end)
tally_multi_test(test_collectives)
tally_multi_test(test_exchange)
tally_multi_test(test_exchange_bytes)
tally_multi_test(test_wide_stages)
tally_multi_test(test_jobs)
tally_multi_test(test_lanes)
tally_multi_test(test_caller)
target_sources(test_caller PRIVATE ${num_env})
tally_multi_test(test_split)
tally_multi_test(test_borrowed_lanes)
tally_multi_test(test_rank_numbers)
tally_multi_test(test_after_failure)
tally_multi_test(test_rounds)
tally_multi_test(test_wait_rate)
tally_multi_test(test_allocations)
if(NOT TALLY_SANITIZE MATCHES "thread") # which does not follow fork
  tally_multi_test(test_fork)
  target_compile_definitions(test_fork PRIVATE
    TALLY_TESTS_INCLUDE="${PROJECT_SOURCE_DIR}/include")
endif()
if(NOT TALLY_SANITIZE)
  tally_multi_test(test_large)
  set_tests_properties(test_large PROPERTIES SKIP_RETURN_CODE 77)
endif()
