# SPDX-License-Identifier: Apache-2.0
# Parameters, buckets, steps.
target_sources(tally_objects PRIVATE
  ddp/averager.c
  ddp/averager_hook.c
  ddp/averager_levels.c
  ddp/averager_state.c
  ddp/averager_step.c
  ddp/blob.c
  ddp/buckets.c
  ddp/broadcast.c
  ddp/compare.c
  ddp/ddp.c
  ddp/ddp_hook.c
  ddp/ddp_load.c
  ddp/ddp_save.c
  ddp/grads.c
  ddp/join.c
  ddp/launch.c
  ddp/loss_scale.c
  ddp/mixed.c
  ddp/norm.c
  ddp/optimizer.c
  ddp/optimizer_load.c
  ddp/optimizer_save.c
  ddp/param_memory.c
  ddp/param_arrays.c
  ddp/param_compare.c
  ddp/params.c
  ddp/plan.c
  ddp/reducer.c
  ddp/stats.c
  ddp/step_end.c
  ddp/update.c
  ddp/zero.c
  ddp/zero_cut.c
  ddp/zero_state.c
)
