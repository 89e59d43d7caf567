# SPDX-License-Identifier: Apache-2.0
# Ranks that die, stop, lie or come from elsewhere. All but the last start processes, which makes no
# sense under ThreadSanitizer nor under an emulator.

add_library(tally_fault_support STATIC
  fault/fault_leftovers.c
  fault/fault_op.c
  fault/fault_stream.c
  fault/fault_support.c
)
target_compile_definitions(tally_fault_support PRIVATE _GNU_SOURCE)
target_include_directories(tally_fault_support PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(tally_fault_support PRIVATE tally_flags PUBLIC tally_static m)

set(fault_skip "")
if(CMAKE_CROSSCOMPILING)
  set(fault_skip "cross compiling")
elseif(TALLY_SANITIZE MATCHES "thread")
  set(fault_skip "built with ThreadSanitizer")
endif()

# tests/fault/<name>.c and what else it needs; not run where a reason to skip is given.
function(tally_fault_test name skip)
  add_executable(${name} fault/${name}.c ${ARGN})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  target_link_libraries(${name} PRIVATE tally_flags tally_fault_support PkgConfig::cmocka)
  if(skip)
    add_test(NAME ${name} COMMAND sh -c "echo 'skipped: ${skip}'; exit 77")
  else()
    add_test(NAME ${name} COMMAND ${name})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS fault TIMEOUT 300 SKIP_RETURN_CODE 77)
endfunction()

tally_fault_test(test_fault_trials "${fault_skip}" fault/fault_trial.c)
tally_fault_test(test_fault_open "${fault_skip}" fault/fault_opening.c)
tally_fault_test(test_fault_rendezvous "${fault_skip}" fault/fault_opening.c)
tally_fault_test(test_fault_user "${fault_skip}" fault/fault_opening.c)
tally_fault_test(test_fault_strangers "${fault_skip}" fault/fault_opening.c)
tally_fault_test(test_fault_descriptors "${fault_skip}")
tally_fault_test(test_fault_zero "${fault_skip}")
tally_fault_test(test_fault_pause "${fault_skip}")
tally_fault_test(test_fault_exit "${fault_skip}")
tally_fault_test(test_fault_threads "")
tally_fault_test(test_fault_memory "${fault_skip}")

# Calls that fail when a test says so: every function of a row "WRAP(type, name, ..." or "OWN(type, name, ..." is wrapped.
file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/support/failing_calls.c failing_rows REGEX "^(WRAP|OWN)\\(")
set(failing_options "")
foreach(row ${failing_rows})
  string(REGEX MATCH "^[A-Z]+\\([^,]+, ([a-z0-9_]+)," found "${row}")
  list(APPEND failing_options "LINKER:--wrap=${CMAKE_MATCH_1}")
endforeach()

function(tally_failing_calls name)
  target_sources(${name} PRIVATE support/failing_calls.c)
  target_link_options(${name} PRIVATE ${failing_options})
endfunction()

tally_fault_test(test_failing_open "${fault_skip}")
tally_failing_calls(test_failing_open)
