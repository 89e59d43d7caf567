# SPDX-License-Identifier: Apache-2.0
# tally_find_late_program(VARIABLE NAME): as find_program(VARIABLE NAME), for a program that may be
# installed, or removed, between two builds: the next build then configures again.
function(tally_find_late_program variable name)
  if(IS_ABSOLUTE "${${variable}}" AND NOT EXISTS "${${variable}}")
    unset(${variable} CACHE)
  endif()
  find_program(${variable} ${name})
  mark_as_advanced(${variable})
  # Every build looks whether these exist, and configures if an answer has changed.
  cmake_path(CONVERT "$ENV{PATH}" TO_CMAKE_PATH_LIST places)
  list(APPEND places /usr/local/bin /usr/bin)
  list(REMOVE_DUPLICATES places)
  list(TRANSFORM places APPEND /${name})
  file(GLOB found CONFIGURE_DEPENDS ${places})
endfunction()
