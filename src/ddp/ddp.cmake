# SPDX-License-Identifier: Apache-2.0
# Parameters, buckets, steps.
target_sources(tally_objects PRIVATE
  ddp/buckets.c
  ddp/broadcast.c
  ddp/check.c
  ddp/compare.c
  ddp/ddp.c
  ddp/ddp_hook.c
  ddp/ddp_state.c
  ddp/ddp_access.c
  ddp/grad_cast.c
  ddp/join.c
  ddp/launch.c
  ddp/observer.c
  ddp/param_memory.c
  ddp/param_arrays.c
  ddp/param_compare.c
  ddp/param_state.c
  ddp/params.c
  ddp/plan.c
  ddp/reducer.c
  ddp/stats.c
  ddp/step_end.c
)
