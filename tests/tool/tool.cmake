# SPDX-License-Identifier: Apache-2.0
# The command as a person meets it.
add_test(NAME tool_command_line
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tool/test_command_line.sh $<TARGET_FILE:tally_tool>)
set_tests_properties(tool_command_line PROPERTIES LABELS tool TIMEOUT 300)
foreach(list hooks optimizers plan)
  add_test(NAME tool_${list}
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tool/test_${list}.sh $<TARGET_FILE:tally_tool>)
  set_tests_properties(tool_${list} PROPERTIES LABELS tool TIMEOUT 300)
endforeach()

# After checkpoint.cmake has made the program that saves one.
add_test(NAME tool_checkpoint
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tool/test_checkpoint.sh $<TARGET_FILE:tally_tool>
    $<TARGET_FILE:make_checkpoint>)
set_tests_properties(tool_checkpoint PROPERTIES LABELS "tool;checkpoint" TIMEOUT 300)

# Traces of runs that never happened, and of a real one.
add_test(NAME tool_trace
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tool/test_trace.sh $<TARGET_FILE:tally_tool>
    $<TARGET_FILE:example_05_digits>)
set_tests_properties(tool_trace PROPERTIES LABELS tool TIMEOUT 300)
add_test(NAME tool_report_page
  COMMAND python3 -B ${CMAKE_CURRENT_SOURCE_DIR}/tool/check_page.py $<TARGET_FILE:tally_tool>)
set_tests_properties(tool_report_page PROPERTIES LABELS tool TIMEOUT 300 SKIP_RETURN_CODE 77 PROCESSORS 2)
# Status pages that no library wrote, and those of real jobs.
add_executable(make_status tool/make_status.c)
target_link_libraries(make_status PRIVATE tally_flags)
target_include_directories(make_status PRIVATE ${PROJECT_SOURCE_DIR}/src)
set_source_files_properties(tool/make_status.c PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)
add_executable(run_train tool/run_train.c)
target_link_libraries(run_train PRIVATE tally_flags tally)
# Ranks of which one is late. Serial: other programs make ranks late, too. `make soak` has the case `lane`.
add_executable(run_late tool/run_late.c)
target_link_libraries(run_late PRIVATE tally_flags tally)
set_source_files_properties(tool/run_late.c PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)
foreach(case computes lane none)
  if(TALLY_SANITIZE)
    add_test(NAME tool_straggler_${case} COMMAND sh -c "echo 'skipped: built with sanitizers'; exit 77")
  else()
    add_test(NAME tool_straggler_${case}
      COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tool/test_stragglers.sh $<TARGET_FILE:tally_tool> $<TARGET_FILE:run_late>
        5 ${case})
  endif()
  set_tests_properties(tool_straggler_${case} PROPERTIES LABELS tool TIMEOUT 300 SKIP_RETURN_CODE 77 RUN_SERIAL ON)
endforeach()
add_test(NAME tool_metrics
  COMMAND python3 -B ${CMAKE_CURRENT_SOURCE_DIR}/tool/check_metrics.py $<TARGET_FILE:tally_tool>
    $<TARGET_FILE:run_late>)
# hooks.cmake has made a locale whose numbers have a comma.
set_tests_properties(tool_metrics PROPERTIES LABELS tool TIMEOUT 300
  ENVIRONMENT LOCPATH=${CMAKE_CURRENT_BINARY_DIR}/locales)
add_test(NAME tool_report
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tool/test_report.sh $<TARGET_FILE:tally_tool> $<TARGET_FILE:run_train>)
set_tests_properties(tool_report PROPERTIES LABELS tool TIMEOUT 300)
add_test(NAME tool_top
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tool/test_top.sh $<TARGET_FILE:tally_tool>
    $<TARGET_FILE:make_status> $<TARGET_FILE:run_terminal> $<TARGET_FILE:run_train>)
set_tests_properties(tool_top PROPERTIES LABELS tool TIMEOUT 300)

# Programs that the tests of `tally run` start: ranks of a real group, and a terminal.
add_executable(run_reduce tool/run_reduce.c)
target_link_libraries(run_reduce PRIVATE tally_flags tally)
add_executable(run_alloc tool/run_alloc.c)
target_link_libraries(run_alloc PRIVATE tally_flags tally)
add_executable(run_terminal tool/run_terminal.c)
target_link_libraries(run_terminal PRIVATE tally_flags)
set_source_files_properties(tool/run_terminal.c PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)

foreach(part ranks output signals)
  add_test(NAME tool_run_${part}
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tool/test_run_${part}.sh $<TARGET_FILE:tally_tool>
      $<TARGET_FILE:run_reduce> $<TARGET_FILE:run_terminal> "${hwloc_FOUND}" $<TARGET_FILE:example_line>)
  set_tests_properties(tool_run_${part} PROPERTIES LABELS tool TIMEOUT 300)
endforeach()

# They wait most of the time, so `make test-quick` leaves them out.
set_tests_properties(tool_metrics tool_run_ranks tool_run_signals tool_straggler_computes tool_straggler_lane
  tool_straggler_none tool_top
  PROPERTIES LABELS "tool;slow")

# Limits on memory. The one by a cgroup is tested where TALLY_TEST_CGROUP says in which.
set(limit_skip "")
if(CMAKE_CROSSCOMPILING)
  set(limit_skip "cross compiling")
elseif(TALLY_SANITIZE)
  set(limit_skip "built with sanitizers, which need more")
endif()
foreach(limit address cgroup)
  if(limit_skip)
    add_test(NAME tool_limit_${limit} COMMAND sh -c "echo 'skipped: ${limit_skip}'; exit 77")
  else()
    add_test(NAME tool_limit_${limit}
      COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tool/test_limit_${limit}.sh $<TARGET_FILE:tally_tool>
        $<TARGET_FILE:run_alloc> ${PROJECT_BINARY_DIR}/src)
  endif()
  set_tests_properties(tool_limit_${limit} PROPERTIES LABELS tool TIMEOUT 300 SKIP_RETURN_CODE 77)
endforeach()

# The demo; its place is here because a terminal looks at it too.
add_test(NAME example_05_digits
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tool/test_digits.sh $<TARGET_FILE:tally_tool>
    $<TARGET_FILE:example_05_digits> $<TARGET_FILE:run_terminal> "${TALLY_SANITIZE}")
set_tests_properties(example_05_digits PROPERTIES LABELS example TIMEOUT 600)
if(TARGET example_06_gpt)
  add_test(NAME example_06_gpt
    COMMAND ${CMAKE_CURRENT_LIST_DIR}/test_gpt.sh $<TARGET_FILE:tally_tool>
    $<TARGET_FILE:example_06_gpt> "${TALLY_SANITIZE}")
  set_tests_properties(example_06_gpt PROPERTIES LABELS example TIMEOUT 300)
  add_test(NAME example_06_gpt_kills
    COMMAND ${CMAKE_CURRENT_LIST_DIR}/test_kills.sh $<TARGET_FILE:tally_tool>
    $<TARGET_FILE:example_06_gpt>)
  set_tests_properties(example_06_gpt_kills PROPERTIES LABELS "example;checkpoint" TIMEOUT 300)
endif()
