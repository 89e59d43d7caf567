# SPDX-License-Identifier: Apache-2.0
# Groups, lanes, futures and collectives; self and thread share one domain.
target_sources(tally_objects PRIVATE
  comm/adopt.c
  comm/agree.c
  comm/ask.c
  comm/cpus.c
  comm/doing.c
  comm/ending.c
  comm/future.c
  comm/group.c
  comm/group_memory.c
  comm/mpi/mpi_domain.c
  comm/mpi/mpi_end.c
  comm/mpi/mpi_load.c
  comm/mpi/mpi_memory.c
  comm/mpi/mpi_open.c
  comm/mpi/mpi_post.c
  comm/mpi/mpi_process.c
  comm/mpi_all_reduce.c
  comm/open.c
  comm/parcel.c
  comm/collectives.c
  comm/group_config.c
  comm/round.c
  comm/shm/extents.c
  comm/shm/life.c
  comm/shm/rendezvous.c
  comm/shm/shm_domain.c
  comm/shm/unix_socket.c
  comm/shm/windows.c
  comm/split.c
  comm/thread/thread_domain.c
  comm/threads.c
  comm/wait.c
)
# Linux beyond POSIX: huge pages, memfd, futex, peer credentials, CPU sets.
set_source_files_properties(
  base/futex.c base/memory.c base/owner.c comm/cpus.c comm/mpi/mpi_domain.c comm/mpi/mpi_load.c
  comm/mpi/mpi_memory.c
  comm/mpi/mpi_process.c comm/shm/life.c comm/shm/shm_domain.c comm/shm/unix_socket.c
  comm/shm/windows.c
  PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)
include(comm/mpi/mpi_objects.cmake)
