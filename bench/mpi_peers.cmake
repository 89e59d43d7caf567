# SPDX-License-Identifier: Apache-2.0
# The programs that measure an MPI, once per MPI installed (scripts/setup --mpi): mpi_peer, for `tally
# bench collective --peer`, and mpi_compare, for bench/mpi.py, which also uses tally. Each MPI's own
# compiler wrapper makes them, apart from everything else: no part of tally sees an MPI, and where
# there is none, nothing is missing.
if(CMAKE_CROSSCOMPILING)
  return()
endif()
set(peer_flags -O3 -std=c17 -D_GNU_SOURCE
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla)
if(TALLY_WERROR)
  list(APPEND peer_flags -Werror)
endif()
foreach(mpi openmpi mpich)
  if(TALLY_MPICC_${mpi})
    set(program ${CMAKE_CURRENT_BINARY_DIR}/mpi_peer_${mpi})
    set(sources mpi_peer.c bind.c pattern.c)
    list(TRANSFORM sources PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    add_custom_command(OUTPUT ${program}
      COMMAND ${TALLY_MPICC_${mpi}} ${peer_flags} -I${PROJECT_SOURCE_DIR} ${sources} -o ${program}
      DEPENDS ${sources} bind.h pattern.h
      COMMENT "Building bench/mpi_peer_${mpi}"
      VERBATIM)

    # Counts messages in programs that are linked with it, or that preload it.
    set(TALLY_MPI_COUNT_${mpi} ${CMAKE_CURRENT_BINARY_DIR}/libmpi_count_${mpi}.so
      CACHE INTERNAL "For bench and tests")
    add_custom_command(OUTPUT ${TALLY_MPI_COUNT_${mpi}}
      COMMAND ${TALLY_MPICC_${mpi}} ${peer_flags} -fPIC -shared -I${PROJECT_SOURCE_DIR}
        ${CMAKE_CURRENT_SOURCE_DIR}/mpi_count.c -o ${TALLY_MPI_COUNT_${mpi}}
      DEPENDS mpi_count.c mpi_count.h
      COMMENT "Building bench/libmpi_count_${mpi}.so"
      VERBATIM)
    set(compare ${CMAKE_CURRENT_BINARY_DIR}/mpi_compare_${mpi})
    set(sources mpi_compare.c bind.c pattern.c)
    list(TRANSFORM sources PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    # A test that checks for memory errors has no use for it.
    if(NOT TALLY_SANITIZE)
      add_custom_command(OUTPUT ${compare}
        COMMAND ${TALLY_MPICC_${mpi}} ${peer_flags} -I${PROJECT_SOURCE_DIR}
          -I${PROJECT_SOURCE_DIR}/include ${sources} ${TALLY_MPI_COUNT_${mpi}}
          $<TARGET_FILE:tally> -o ${compare}
          -Wl,-rpath,${PROJECT_BINARY_DIR}/src -Wl,-rpath,${CMAKE_CURRENT_BINARY_DIR}
        DEPENDS ${sources} bind.h pattern.h mpi_count.h ${TALLY_MPI_COUNT_${mpi}} tally
          ${PROJECT_SOURCE_DIR}/include/tally.h ${PROJECT_SOURCE_DIR}/include/tally_extend.h
        COMMENT "Building bench/mpi_compare_${mpi}"
        VERBATIM)
      add_custom_target(compare_${mpi} ALL DEPENDS ${compare})
    endif()
    add_custom_target(peer_${mpi} ALL DEPENDS ${program} ${TALLY_MPI_COUNT_${mpi}})
  endif()
endforeach()
