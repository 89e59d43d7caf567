# SPDX-License-Identifier: Apache-2.0
# What follows the mean: optimizers, mixed precision, averagers.
target_sources(tally_objects PRIVATE
  train/averager.c
  train/averager_hook.c
  train/averager_levels.c
  train/averager_state.c
  train/averager_step.c
  train/loss_scale.c
  train/mixed.c
  train/norm.c
  train/optimizer.c
  train/optimizer_state.c
  train/training.c
  train/update.c
  train/zero.c
  train/zero_shards.c
  train/zero_state.c
)
