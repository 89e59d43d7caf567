# SPDX-License-Identifier: Apache-2.0
# Backend mpi, once per MPI that is installed. The tests of ranks run again under its launcher, with
# the ranks that mpirun starts instead of processes (support/ranks_mpi.c). When CI has little time,
# it runs a selection of them, which reaches every file; TALLY_MPI_TESTS=all is all of them with 1,
# 2, 3, 4 and 7 ranks.
set(TALLY_MPI_TESTS "some" CACHE STRING "Tests of ranks to run under MPI: some, or all")

set(mpi_some test_collectives test_jobs test_lanes test_caller test_split test_group_end test_rounds test_fork
  test_wait_rate test_ddp_means test_ddp_corners test_ddp_lost test_ddp_several test_ddp_alone test_power_failures
  test_layout_bits)
set(mpi_all ${mpi_some} test_reductions test_exchange test_exchange_bytes test_borrowed_lanes
  test_after_failure test_allocations test_ddp_culprit
  test_ddp_plan test_ddp_bits test_ddp_bucket test_ddp_unused test_ddp_errors test_ddp_disagree
  test_ddp_hook_errors test_ddp_join test_ddp_buffers test_ddp_helpers test_ddp_accumulate
  test_ddp_stats test_ddp_memory
  test_hook_bytes test_hook_exact test_hook_scatter test_hook_upstream test_hook_extremes
  test_hook_save test_hook_load_errors test_hook_replace test_hook_state_memory
  test_hook_feedback test_hook_objects test_hook_disagree test_hook_memory
  test_power_reference test_power_golden test_power_corners test_power_join test_power_bytes
  test_power_feedback test_power_state
  test_averager test_averager_changes test_optimizer_backward test_optimizer_groups
  test_optimizer_memory test_optimizer_overlap test_optimizer_save test_post_local
  test_zero_bits test_zero_cases test_zero_shards test_zero_failures test_zero_join test_zero_save)

include(CheckCSourceCompiles)

set(mpi_skip "")
if(CMAKE_CROSSCOMPILING)
  set(mpi_skip "cross compiling")
elseif(TALLY_SANITIZE)
  # MPI is not built with them: it leaks, and its threads' accesses are not seen.
  set(mpi_skip "built with sanitizers")
endif()

# mpi_<mpi>_<name> runs the command given, if there is this MPI.
function(tally_mpi_test mpi name)
  if(mpi_skip)
    add_test(NAME mpi_${mpi}_${name} COMMAND sh -c "echo 'skipped: ${mpi_skip}'; exit 77")
  else()
    add_test(NAME mpi_${mpi}_${name} COMMAND ${ARGN})
  endif()
  set_tests_properties(mpi_${mpi}_${name} PROPERTIES
    LABELS mpi TIMEOUT 600 PROCESSORS 2 SKIP_RETURN_CODE 77)
endfunction()

set(mpi_folder ${PROJECT_BINARY_DIR}/src)

# A program that is linked statically cannot load MPI.
set(mpi_static "")
if(NOT mpi_skip)
  set(CMAKE_REQUIRED_LINK_OPTIONS -static)
  check_c_source_compiles("int main(void) { return 0; }" TALLY_HAS_STATIC_LIBC)
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
endif()
if(TALLY_HAS_STATIC_LIBC AND NOT mpi_skip)
  add_executable(run_reduce_static tool/run_reduce.c)
  target_link_options(run_reduce_static PRIVATE -static)
  target_link_libraries(run_reduce_static PRIVATE tally_flags tally_static)
  set(mpi_static $<TARGET_FILE:run_reduce_static>)
endif()

# Calls of MPI that fail. TALLY_MPI_CALLS says how many of each entry do.
set(TALLY_MPI_CALLS 1 CACHE STRING "Calls of each of MPI's functions that fail in turn")
add_library(failing_mpi MODULE mpi/failing_mpi.c)
target_include_directories(failing_mpi PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(failing_mpi PRIVATE tally_flags ${CMAKE_DL_LIBS})
add_executable(mpi_failing mpi/mpi_failing.c)
target_link_libraries(mpi_failing PRIVATE tally_flags tally)

set(run_mpi ${CMAKE_CURRENT_SOURCE_DIR}/support/run_mpi.sh)
foreach(mpi openmpi mpich)
  set(mpi_program ${CMAKE_CURRENT_BINARY_DIR}/mpi_program_${mpi})
  set(mpi_faults ${CMAKE_CURRENT_BINARY_DIR}/mpi_faults_${mpi})
  set(mpi_poison ${CMAKE_CURRENT_BINARY_DIR}/mpi_poison_${mpi})
  if(TALLY_MPICC_${mpi} AND NOT mpi_skip)
    # Exported symbols: a program may replace functions of MPI that tally calls.
    foreach(source mpi_program mpi_faults mpi_poison)
      add_custom_command(OUTPUT ${${source}}
        COMMAND ${TALLY_MPICC_${mpi}} -O2 -std=c17 -D_DEFAULT_SOURCE -Wall -Wextra -Wshadow
          -rdynamic -I${PROJECT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR}/mpi/${source}.c
          -o ${${source}} $<TARGET_FILE:tally> -Wl,-rpath,${mpi_folder}
        DEPENDS mpi/${source}.c tally ${PROJECT_SOURCE_DIR}/include/tally.h
          ${PROJECT_SOURCE_DIR}/include/tally_extend.h
        COMMENT "Building tests/${source}_${mpi}"
        VERBATIM)
      add_custom_target(${source}_${mpi}_made ALL DEPENDS ${${source}})
    endforeach()
  endif()
  set(mpi_messages ${CMAKE_CURRENT_BINARY_DIR}/mpi_messages_${mpi})
  if(TALLY_MPICC_${mpi} AND NOT mpi_skip)
    add_custom_command(OUTPUT ${mpi_messages}
      COMMAND ${TALLY_MPICC_${mpi}} -O2 -std=c17 -Wall -Wextra -Wshadow -I${PROJECT_SOURCE_DIR}
        -I${PROJECT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR}/mpi/mpi_messages.c
        -o ${mpi_messages} ${TALLY_MPI_COUNT_${mpi}} $<TARGET_FILE:tally>
        -Wl,-rpath,${mpi_folder} -Wl,-rpath,${PROJECT_BINARY_DIR}/bench
      DEPENDS mpi/mpi_messages.c tally peer_${mpi} ${PROJECT_SOURCE_DIR}/bench/mpi_count.h
        ${PROJECT_SOURCE_DIR}/include/tally_extend.h
      COMMENT "Building tests/mpi_messages_${mpi}"
      VERBATIM)
    add_custom_target(mpi_messages_${mpi}_made ALL DEPENDS ${mpi_messages})
  endif()
  tally_mpi_test(${mpi} poison ${CMAKE_CURRENT_SOURCE_DIR}/mpi/test_mpi_poison.sh ${mpi}
    ${mpi_folder}/libtally-${mpi}.so ${mpi_poison})
  tally_mpi_test(${mpi} messages ${CMAKE_CURRENT_SOURCE_DIR}/mpi/test_mpi_messages.sh ${mpi}
    ${mpi_folder}/libtally-${mpi}.so ${mpi_messages})
  tally_mpi_test(${mpi} programs ${CMAKE_CURRENT_SOURCE_DIR}/mpi/test_mpi_programs.sh
    ${mpi} ${mpi_folder} ${mpi_program} $<TARGET_FILE:example_03_ddp>)
  tally_mpi_test(${mpi} launchers ${CMAKE_CURRENT_SOURCE_DIR}/mpi/test_mpi_launchers.sh
    ${mpi} ${mpi_folder} $<TARGET_FILE:tally_tool> $<TARGET_FILE:run_reduce> "${mpi_static}")
  tally_mpi_test(${mpi} faults ${CMAKE_CURRENT_SOURCE_DIR}/mpi/test_mpi_faults.sh
    ${mpi} ${mpi_folder} ${mpi_faults})
  tally_mpi_test(${mpi} failing ${CMAKE_CURRENT_SOURCE_DIR}/mpi/test_mpi_failing.sh ${mpi}
    ${mpi_folder} $<TARGET_FILE:failing_mpi> $<TARGET_FILE:mpi_failing> ${TALLY_MPI_CALLS})
  # Its ranks wait for deadlines most of the time.
  set_tests_properties(mpi_${mpi}_failing PROPERTIES PROCESSORS 1)
  tally_mpi_test(${mpi} hook_bits
    ${run_mpi} ${mpi} ${mpi_folder}/libtally-${mpi}.so "1 2 3 4 7" $<TARGET_FILE:test_hook_bits>)
  tally_mpi_test(${mpi} hook_bits_apart
    ${run_mpi} ${mpi} ${mpi_folder}/libtally-${mpi}.so "1 2 3 4 7" $<TARGET_FILE:test_hook_bits>)
  set_tests_properties(mpi_${mpi}_hook_bits_apart PROPERTIES ENVIRONMENT TALLY_SHARE=0)
  # As on machines with different numbers of ranks: 1 of 3 alone, 3 and 1, 5 and 2.
  foreach(test test_hook_bits test_collectives test_exchange test_split test_ddp_means test_ddp_lost)
    tally_mpi_test(${mpi} uneven_${test}
      ${run_mpi} ${mpi} ${mpi_folder}/libtally-${mpi}.so "3 4 7" $<TARGET_FILE:${test}>)
    set_tests_properties(mpi_${mpi}_uneven_${test} PROPERTIES ENVIRONMENT "TALLY_TEST_SHARES=1 1 2")
  endforeach()
  # Two machines whose ranks take turns.
  tally_mpi_test(${mpi} dealt_hook_bits
    ${run_mpi} ${mpi} ${mpi_folder}/libtally-${mpi}.so "4 7" $<TARGET_FILE:test_hook_bits>)
  set_tests_properties(mpi_${mpi}_dealt_hook_bits PROPERTIES ENVIRONMENT "TALLY_TEST_SHARES=1 2")
  # 10 ranks and 2: only the two have so many far ranks that lines are spread, but all must do it.
  tally_mpi_test(${mpi} uneven_world
    ${run_mpi} ${mpi} ${mpi_folder}/libtally-${mpi}.so "12" $<TARGET_FILE:world_rank>)
  set_tests_properties(mpi_${mpi}_uneven_world PROPERTIES ENVIRONMENT "TALLY_TEST_SHARES=1 1 1 1 1 2")
  # Enough ranks that lines are spread.
  tally_mpi_test(${mpi} world
    ${run_mpi} ${mpi} ${mpi_folder}/libtally-${mpi}.so "16" $<TARGET_FILE:world_rank>)
  set_tests_properties(mpi_${mpi}_world PROPERTIES ENVIRONMENT TALLY_SHARE=0)
  if(NOT mpi_skip)
    tally_mpi_test(${mpi} large
      ${run_mpi} ${mpi} ${mpi_folder}/libtally-${mpi}.so "2" $<TARGET_FILE:test_large>)
  endif()
  tally_mpi_test(${mpi} hosts ${CMAKE_CURRENT_SOURCE_DIR}/mpi/test_mpi_hosts.sh ${mpi}
    ${PROJECT_SOURCE_DIR} ${mpi_folder}/libtally-${mpi}.so $<TARGET_FILE:tally_tool>
    $<TARGET_FILE:example_01_allreduce> $<TARGET_FILE:test_hook_bits>)
  # After tool.cmake has made the program. Serial: what else runs here makes ranks late, too.
  tally_mpi_test(${mpi} stragglers ${CMAKE_CURRENT_SOURCE_DIR}/mpi/test_mpi_stragglers.sh ${mpi}
    ${PROJECT_SOURCE_DIR} ${mpi_folder}/libtally-${mpi}.so ${CMAKE_CURRENT_BINARY_DIR}/run_late 5)
  set_tests_properties(mpi_${mpi}_stragglers PROPERTIES RUN_SERIAL ON)
  tally_mpi_test(${mpi} srun ${CMAKE_CURRENT_SOURCE_DIR}/mpi/test_mpi_srun.sh ${mpi}
    ${PROJECT_SOURCE_DIR} ${mpi_folder}/libtally-${mpi}.so $<TARGET_FILE:run_reduce>
    $<TARGET_FILE:test_hook_bits>)
  if(TALLY_MPI_TESTS STREQUAL "all")
    set(mpi_tests ${mpi_all})
    set(mpi_worlds "1 2 3 4 7")
  else()
    set(mpi_tests ${mpi_some})
    set(mpi_worlds "2 3")
  endif()
  # All by messages; some also by shared memory, as ranks of one machine are without TALLY_SHARE=0.
  foreach(test ${mpi_tests})
    tally_mpi_test(${mpi} ${test}
      ${run_mpi} ${mpi} ${mpi_folder}/libtally-${mpi}.so ${mpi_worlds} $<TARGET_FILE:${test}>)
    set_tests_properties(mpi_${mpi}_${test} PROPERTIES ENVIRONMENT TALLY_SHARE=0)
  endforeach()
  foreach(test test_collectives test_split test_ddp_lost)
    tally_mpi_test(${mpi} shared_${test}
      ${run_mpi} ${mpi} ${mpi_folder}/libtally-${mpi}.so ${mpi_worlds} $<TARGET_FILE:${test}>)
  endforeach()
endforeach()
