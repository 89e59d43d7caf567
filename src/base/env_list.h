/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every environment variable tally reads, declared once: X(id, name, kind, accepts, fallback,
 * help). kind says how the text is read (base/env.h); for CHOICE, accepts lists the words in the
 * order of the numbers they stand for. A fallback of "" means "not set".
 */
#ifndef TALLY_BASE_ENV_LIST_H
#define TALLY_BASE_ENV_LIST_H

#define TALLY__ENV_LIST(X)                                                                         \
    X(ISA, "TALLY_ISA", CHOICE, "auto|ref|avx2|avx512|neon", "auto",                               \
      "instruction set to compute with; auto takes the best this CPU has")                         \
    X(LOG, "TALLY_LOG", CHOICE, "none|error|warn|info|debug", "",                                  \
      "least urgent messages for the log callback, or for stderr if the program sets none")        \
    X(BACKEND, "TALLY_BACKEND", CHOICE, "auto|self|shm|mpi", "auto",                               \
      "how ranks talk to one another; auto takes what fits the launcher")                          \
    X(RANK, "TALLY_RANK", COUNT, "a whole number", "", "this process's rank; set by tally run")    \
    X(WORLD, "TALLY_WORLD", COUNT, "a whole number", "", "number of ranks; set by tally run")      \
    X(RENDEZVOUS, "TALLY_RENDEZVOUS", TEXT, "a socket's path, or @name", "",                       \
      "where the ranks of one job meet; set by tally run")                                         \
    X(ATTEMPT, "TALLY_ATTEMPT", COUNT, "a whole number", "0",                                      \
      "how often tally run has restarted this job; set by tally run")                              \
    X(HOOK, "TALLY_HOOK", TEXT, "a hook, as tally hooks lists them", "allreduce",                  \
      "how gradients travel where the program does not say")                                       \
    X(CHECK, "TALLY_CHECK", COUNT, "a whole number", "0",                                          \
      "N above 0: check mode; ranks' parameters are compared every N steps")                       \
    X(TRACE, "TALLY_TRACE", TEXT, "a file; %r is the rank", "",                                    \
      "where each rank writes what it does; without %r, .RANK is appended")                        \
    X(TRACE_BYTES, "TALLY_TRACE_BYTES", COUNT, "a whole number", "67108864",                       \
      "the most bytes of a rank's trace file; the oldest steps go first")                          \
    X(EVENTS, "TALLY_EVENTS", COUNT, "a whole number", "1",                                        \
      "0: ranks keep no events, so traces have none; to measure what events cost")                 \
    X(REPORT_DIR, "TALLY_REPORT_DIR", TEXT, "a folder", "",                                        \
      "where each rank writes a report when its group fails")                                      \
    X(METRICS, "TALLY_METRICS", TEXT, "a file; %r is the rank", "",                                \
      "where each rank writes its totals for a monitor, every 15 s; a.prom becomes a.RANK.prom")   \
    X(LANES, "TALLY_LANES", COUNT, "a whole number", "1",                                          \
      "lane threads of a group; 0 runs jobs inside tally_future_wait")                             \
    X(TIMEOUT, "TALLY_TIMEOUT", SECONDS, "seconds above 0", "600",                                 \
      "how long an operation waits for another rank")                                              \
    X(OPEN_TIMEOUT, "TALLY_OPEN_TIMEOUT", SECONDS, "seconds above 0", "60",                        \
      "how long opening a group waits for all ranks")                                              \
    X(OTHER_RANK, "RANK", COUNT, "a whole number", "", "rank, as other launchers set it")          \
    X(OTHER_WORLD, "WORLD_SIZE", COUNT, "a whole number", "",                                      \
      "number of ranks, as other launchers set it")                                                \
    X(OTHER_LOCAL_RANK, "LOCAL_RANK", COUNT, "a whole number", "",                                 \
      "rank on this machine, as other launchers set it")                                           \
    X(OTHER_LOCAL_WORLD, "LOCAL_WORLD_SIZE", COUNT, "a whole number", "",                          \
      "number of ranks on this machine, as other launchers set it")                                \
    X(MASTER_ADDR, "MASTER_ADDR", TEXT, "any text", "", "part of the job's id with WORLD_SIZE")    \
    X(MASTER_PORT, "MASTER_PORT", TEXT, "any text", "", "part of the job's id with WORLD_SIZE")    \
    X(RUN_ID, "TORCHELASTIC_RUN_ID", TEXT, "any text", "", "part of the job's id with WORLD_SIZE") \
    X(MPI, "TALLY_MPI", TEXT, "auto|openmpi|mpich, or a path", "auto",                             \
      "which MPI backend mpi uses; auto takes the program's, or the launcher's")                   \
    X(SHARE, "TALLY_SHARE", COUNT, "a whole number", "1",                                          \
      "under MPI, ranks of one machine that have the same number share memory; 0: none")           \
    X(MESSAGE, "TALLY_MESSAGE", COUNT, "a whole number", "0",                                      \
      "bytes per message of large data over MPI; 0: chosen by measuring")                          \
    X(OMPI_WORLD, "OMPI_COMM_WORLD_SIZE", COUNT, "a whole number", "",                             \
      "number of ranks under Open MPI's mpirun; above 1, backend auto is mpi")                     \
    X(PMI_WORLD, "PMI_SIZE", COUNT, "a whole number", "",                                          \
      "number of ranks under MPICH's mpiexec; above 1, backend auto is mpi")                       \
    X(SLURM_WORLD, "SLURM_STEP_NUM_TASKS", COUNT, "a whole number", "",                            \
      "number of ranks under srun; above 1, backend auto is mpi")

#endif
