# SPDX-License-Identifier: Apache-2.0
# Hooks: bucket in, mean out.
target_sources(tally_objects PRIVATE
  hook/hook.c
  hook/bucket_segments.c
  hook/hook_all_reduce.c
  hook/hook_half.c
  hook/hook_hosts.c
  hook/hook_int8.c
  hook/hook_noop.c
  hook/hook_post_local.c
  hook/hook_power.c
  hook/hook_quantize.c
  hook/hook_text.c
  hook/kinds.c
  hook/power_plan.c
  hook/power_residual.c
  hook/power_state.c
  hook/power_step.c
  hook/subgroup.c
  hook/wrapper.c
)
