# SPDX-License-Identifier: Apache-2.0
# The library as others see it: header, exported symbols, installation, and the scripts that keep
# the tree in order. The same for every build of this machine's compiler, so a cross build and the
# sanitizers skip it.

set(interop_skip "")
if(CMAKE_CROSSCOMPILING)
  set(interop_skip "cross compiling")
elseif(TALLY_SANITIZE)
  set(interop_skip "built with sanitizers")
endif()

# interop_<name> runs tests/interop/<name>.sh with the arguments given.
function(tally_interop_test name)
  if(interop_skip)
    add_test(NAME interop_${name} COMMAND sh -c "echo 'skipped: ${interop_skip}'; exit 77")
  else()
    add_test(NAME interop_${name}
      COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/interop/${name}.sh ${ARGN})
  endif()
  set_tests_properties(interop_${name} PROPERTIES LABELS interop TIMEOUT 300 SKIP_RETURN_CODE 77)
endfunction()

tally_interop_test(header_alone ${CMAKE_C_COMPILER} ${PROJECT_SOURCE_DIR}/include)
tally_interop_test(exported_symbols ${CMAKE_C_COMPILER} ${CMAKE_NM}
  ${PROJECT_SOURCE_DIR}/include/tally_extend.h $<TARGET_FILE:tally>)
tally_interop_test(soname ${CMAKE_READELF} $<TARGET_FILE:tally> ${PROJECT_VERSION})
if(interop_skip)
  add_test(NAME interop_abi COMMAND sh -c "echo 'skipped: ${interop_skip}'; exit 77")
else()
  add_test(NAME interop_abi COMMAND python3 -B ${CMAKE_CURRENT_SOURCE_DIR}/interop/abi.py
    ${CMAKE_CURRENT_SOURCE_DIR}/interop/abi_${PROJECT_VERSION_MAJOR}.txt ${CMAKE_READELF} $<TARGET_FILE:tally>
    ${PROJECT_SOURCE_DIR}/include/tally.h ${PROJECT_SOURCE_DIR}/include/tally_extend.h)
endif()
set_tests_properties(interop_abi PROPERTIES LABELS "interop;unit" TIMEOUT 300 SKIP_RETURN_CODE 77)
tally_interop_test(abi_changes ${CMAKE_CURRENT_SOURCE_DIR}/interop/abi.py
  ${CMAKE_CURRENT_SOURCE_DIR}/interop/abi_${PROJECT_VERSION_MAJOR}.txt ${CMAKE_READELF} $<TARGET_FILE:tally>
  ${PROJECT_SOURCE_DIR}/include)
tally_interop_test(tree_checks ${PROJECT_SOURCE_DIR}/scripts)
tally_interop_test(examples_in_order ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
tally_interop_test(setup_options ${PROJECT_SOURCE_DIR}/scripts/setup)
tally_interop_test(late_mpi ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})

set(interop_scratch ${PROJECT_BINARY_DIR}/interop)
tally_interop_test(source_archive ${PROJECT_SOURCE_DIR} ${PROJECT_VERSION})
tally_interop_test(user_of_sources ${CMAKE_C_COMPILER} ${interop_scratch} ${PROJECT_SOURCE_DIR}
  ${CMAKE_CURRENT_SOURCE_DIR}/interop/embedded)

# A user's project after an installation: one finds tally with pkg-config, one with CMake.
tally_interop_test(installation ${PROJECT_BINARY_DIR} ${interop_scratch}
  ${PROJECT_SOURCE_DIR} ${PROJECT_VERSION})
tally_interop_test(user_of_pkgconfig ${CMAKE_C_COMPILER} ${interop_scratch} ${PROJECT_VERSION})
tally_interop_test(user_of_cmake ${CMAKE_C_COMPILER} ${interop_scratch} ${PROJECT_VERSION}
  ${CMAKE_CURRENT_SOURCE_DIR}/interop/consumer)
set_tests_properties(interop_installation PROPERTIES FIXTURES_SETUP installation)
# The installation begins with an empty folder.
set_tests_properties(interop_user_of_pkgconfig interop_user_of_cmake interop_user_of_sources PROPERTIES
  FIXTURES_REQUIRED installation)
# They take seconds each, so `make test-quick` leaves them out.
set_tests_properties(interop_user_of_sources interop_abi_changes PROPERTIES LABELS "interop;slow")
