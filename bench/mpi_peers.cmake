# SPDX-License-Identifier: Apache-2.0
# The program that measures an MPI for `tally bench collective --peer`, once per MPI installed
# (scripts/setup --mpi). Each MPI's own compiler wrapper makes it, apart from everything else: no
# part of tally sees an MPI, and where there is none, nothing is missing.
if(CMAKE_CROSSCOMPILING)
  return()
endif()
set(peer_flags -O3 -std=c17 -D_GNU_SOURCE
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla)
if(TALLY_WERROR)
  list(APPEND peer_flags -Werror)
endif()
foreach(mpi openmpi mpich)
  find_program(TALLY_MPICC_${mpi} mpicc.${mpi})
  mark_as_advanced(TALLY_MPICC_${mpi})
  if(TALLY_MPICC_${mpi})
    set(program ${CMAKE_CURRENT_BINARY_DIR}/mpi_peer_${mpi})
    set(sources mpi_peer.c bind.c pattern.c)
    list(TRANSFORM sources PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    add_custom_command(OUTPUT ${program}
      COMMAND ${TALLY_MPICC_${mpi}} ${peer_flags} -I${PROJECT_SOURCE_DIR} ${sources} -o ${program}
      DEPENDS ${sources} bind.h pattern.h
      COMMENT "Building bench/mpi_peer_${mpi}"
      VERBATIM)
    add_custom_target(peer_${mpi} ALL DEPENDS ${program})
  endif()
endforeach()
