# SPDX-License-Identifier: Apache-2.0
# The calls of MPI as a shared object per MPI that is installed: libtally-openmpi.so and
# libtally-mpich.so, side by side, from one source. Each MPI's own compiler wrapper makes it; where
# there is none, nothing is missing but backend mpi. The same libtally loads either.
if(CMAKE_CROSSCOMPILING)
  return()
endif()
set(mpi_flags -O2 -std=c17 -D_POSIX_C_SOURCE=200809L -fPIC -shared -fvisibility=hidden
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla)
if(TALLY_WERROR)
  list(APPEND mpi_flags -Werror)
endif()
# Flags of the user, or of a package, for all C files and shared objects.
separate_arguments(mpi_user_flags UNIX_COMMAND "${CMAKE_C_FLAGS} ${CMAKE_SHARED_LINKER_FLAGS}")
# Each object has its own copy of the clock: it uses no symbol of libtally.
set(mpi_sources ${CMAKE_CURRENT_SOURCE_DIR}/comm/mpi/mpi_object.c ${CMAKE_CURRENT_SOURCE_DIR}/base/clock.c)
foreach(mpi openmpi mpich)
  find_program(TALLY_MPICC_${mpi} mpicc.${mpi})
  mark_as_advanced(TALLY_MPICC_${mpi})
  if(TALLY_MPICC_${mpi})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/libtally-${mpi}.so)
    add_custom_command(OUTPUT ${object}
      COMMAND ${TALLY_MPICC_${mpi}} ${mpi_flags} ${mpi_user_flags} -I${CMAKE_CURRENT_SOURCE_DIR} ${mpi_sources}
        -Wl,-soname,libtally-${mpi}.so -o ${object}
      DEPENDS ${mpi_sources} ${CMAKE_CURRENT_SOURCE_DIR}/base/clock.h ${CMAKE_CURRENT_SOURCE_DIR}/comm/mpi/mpi_api.h
      COMMENT "Building libtally-${mpi}.so"
      VERBATIM)
    add_custom_target(tally_${mpi} ALL DEPENDS ${object})
    if(TALLY_INSTALL)
      install(PROGRAMS ${object} DESTINATION ${CMAKE_INSTALL_LIBDIR})
    endif()
  endif()
endforeach()
