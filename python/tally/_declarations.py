# SPDX-License-Identifier: Apache-2.0
"""tally's C interface for ctypes. Written by generate.py from tally.h and tally_extend.h: do not
edit. STRUCTS and FUNCTIONS have the names of the headers.
"""

import ctypes
from ctypes import (c_char, c_char_p, c_double, c_float, c_int, c_size_t, c_uint, c_ulonglong,
                    c_void_p)


TALLY_STATUS_LIST = (
    ("OK", 0, "success"),
    ("ARG", -1, "invalid argument"),
    ("STATE", -2, "not possible in this state"),
    ("NOMEM", -3, "out of memory"),
    ("SYSTEM", -4, "the operating system reported an error"),
    ("PEER", -5, "another rank failed"),
    ("TIMEOUT", -6, "another rank did not arrive in time"),
    ("ABORTED", -7, "the group was given up after an error"),
    ("MISMATCH", -8, "ranks disagree"),
    ("UNSUPPORTED", -9, "not supported"),
    ("NUMERIC", -10, "a value is infinite or not a number"),
    ("INTERNAL", -11, "internal error"),
)

TALLY_HOOK_LIST = (
    ("ALLREDUCE", 0, "allreduce"),
    ("FP16_COMPRESS", 1, "fp16"),
    ("BF16_COMPRESS", 2, "bf16"),
    ("QUANTIZE_PER_TENSOR", 3, "quantize_per_tensor"),
    ("QUANTIZE_PER_CHANNEL", 4, "quantize_per_channel"),
    ("POWER_SGD", 5, "powersgd:rank=1,start=1000"),
    ("POWER_SGD_RANK2", 6, "powersgd:rank=2,start=1000"),
    ("BATCHED_POWER_SGD", 7, "batched_powersgd:rank=1,start=1000"),
    ("BATCHED_POWER_SGD_RANK2", 8, "batched_powersgd:rank=2,start=1000"),
    ("NOOP", 9, "noop"),
)

TALLY_F32 = 0
TALLY_F64 = 1
TALLY_F16 = 2
TALLY_BF16 = 3
TALLY_I32 = 4
TALLY_I64 = 5
TALLY_U8 = 6
TALLY_PARAM_FROZEN = 1
TALLY_PARAM_IGNORED = 2
TALLY_PARAM_DELAYED = 4
TALLY_PARAM_SPARSE = 8
TALLY_LATE_NOT = 0
TALLY_LATE_COMPUTES = 1
TALLY_LATE_LANE = 2
TALLY_LATE_LINK = 3
TALLY_LOG_NONE = 0
TALLY_LOG_ERROR = 1
TALLY_LOG_WARN = 2
TALLY_LOG_INFO = 3
TALLY_LOG_DEBUG = 4
TALLY_SUM = 0
TALLY_MEAN = 1
TALLY_MIN = 2
TALLY_MAX = 3

class tally_group_config(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("backend", c_char_p), ("rank", c_int), ("world", c_int),
        ("rendezvous", c_char_p), ("timeout_s", c_double), ("open_timeout_s", c_double),
        ("lanes", c_int), ("mpi_comm", ctypes.POINTER(c_int)),
    ]


class tally_param(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("n_dims", c_int),
        ("shape", ctypes.POINTER(c_size_t)), ("strides", ctypes.POINTER(c_size_t)),
        ("dtype", c_int), ("data", c_void_p), ("grad", c_void_p), ("flags", c_uint),
    ]


class tally_buffer(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("data", c_void_p), ("bytes", c_size_t),
        ("dtype", c_int),
    ]


class tally_ddp_config(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("bucket_cap_bytes", c_size_t), ("first_bucket_bytes", c_size_t),
        ("bucket_caps", ctypes.POINTER(c_size_t)), ("n_bucket_caps", c_size_t), ("hook", c_char_p),
        ("keep_parameters", c_int), ("buffers", ctypes.POINTER(tally_buffer)),
        ("n_buffers", c_size_t), ("keep_buffers", c_int), ("buffer_hook", c_void_p),
        ("buffer_hook_user", c_void_p), ("find_unused", c_int), ("static_graph", c_int),
        ("skip_unused", c_int), ("join", c_int), ("join_stops", c_int),
        ("join_divides_by_active", c_int), ("param_dtype", c_int), ("reduce_dtype", c_int),
        ("buffer_dtype", c_int), ("reserved", c_int), ("check", c_int),
    ]


class tally_hook_info(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("help", c_char_p), ("wraps", c_int),
        ("n_options", c_size_t),
    ]


class tally_hook_option(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("accepts", c_char_p), ("fallback", c_char_p),
        ("help", c_char_p),
    ]


class tally_optimizer_group(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("text", c_char_p), ("table", c_void_p), ("user", c_void_p),
        ("lr", c_double), ("params", ctypes.POINTER(c_int)), ("n_params", c_size_t),
    ]


class tally_optimizer_config(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("groups", ctypes.POINTER(tally_optimizer_group)),
        ("n_groups", c_size_t), ("overlap", c_int), ("shard", c_int), ("release_gradients", c_int),
        ("max_norm", c_double), ("loss_scale", c_double), ("loss_scale_growth", c_double),
        ("loss_scale_backoff", c_double), ("loss_scale_interval", c_int), ("averager", c_void_p),
    ]


class tally_optimizer_info(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("help", c_char_p), ("n_options", c_size_t),
    ]


class tally_averager_level(ctypes.Structure):
    _fields_ = [
        ("period", c_int), ("group", c_int),
    ]


class tally_averager_config(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("levels", ctypes.POINTER(tally_averager_level)),
        ("n_levels", c_size_t), ("warmup", c_int), ("params", ctypes.POINTER(c_int)),
        ("n_params", c_size_t), ("hook", c_char_p), ("outer", c_char_p),
    ]


class tally_checkpoint_blob(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("data", c_void_p), ("bytes", c_size_t),
        ("loaded_bytes", c_size_t),
    ]


class tally_checkpoint_config(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("blobs", ctypes.POINTER(tally_checkpoint_blob)), ("n_blobs", c_size_t),
        ("name", c_char_p), ("keep", c_int), ("async", c_int), ("params_only", c_int),
        ("reserved", c_int),
    ]


class tally_checkpoint_info(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("step", c_ulonglong), ("world", c_int), ("n_skipped", c_int),
        ("n_params", c_size_t), ("bytes", c_size_t), ("name", c_char * 64), ("hook", c_char * 256),
        ("skipped", c_char * 512),
    ]


class tally_checkpoint_part(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("kind", c_char_p), ("name", c_char_p), ("file", c_char_p),
        ("rank", c_int), ("is_own", c_int), ("dtype", c_int), ("n_dims", c_int),
        ("shape", ctypes.POINTER(c_size_t)), ("bytes", c_size_t), ("norm", c_double),
        ("damage", c_char_p),
    ]


class tally_ddp_stats(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("step", c_ulonglong), ("rank", c_int), ("world", c_int),
        ("backend", c_char_p), ("n_params", c_size_t), ("dtypes", c_uint),
        ("gradient_bytes", c_size_t), ("buffer_bytes", c_size_t), ("first_bucket_bytes", c_size_t),
        ("bucket_cap_bytes", c_size_t), ("n_buckets", c_size_t), ("n_delayed_buckets", c_size_t),
        ("n_reduced", c_size_t), ("unused_bytes", c_size_t), ("views", c_int),
        ("find_unused", c_int), ("static_graph", c_int), ("join", c_int), ("rebuilt", c_int),
        ("hook", c_char_p), ("wire_bytes", c_ulonglong), ("total_wire_bytes", c_ulonglong),
        ("other_wire_bytes", c_ulonglong), ("total_other_wire_bytes", c_ulonglong),
        ("saturated", c_ulonglong), ("total_saturated", c_ulonglong),
        ("compressed_from", c_ulonglong), ("compressed_to", c_ulonglong),
        ("total_compressed_from", c_ulonglong), ("total_compressed_to", c_ulonglong),
        ("forward_s", c_double), ("backward_s", c_double), ("comm_s", c_double),
        ("exposed_s", c_double), ("overlap", c_double), ("mean_forward_s", c_double),
        ("mean_backward_s", c_double), ("mean_comm_s", c_double), ("mean_exposed_s", c_double),
        ("error", c_int), ("error_step", c_ulonglong), ("error_text", c_char * 256),
        ("host_bytes", c_ulonglong), ("total_host_bytes", c_ulonglong),
    ]


class tally_bucket_stats(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("measured", c_int), ("n_params", c_size_t), ("bytes", c_size_t),
        ("ready_s", c_double), ("launch_s", c_double), ("start_s", c_double), ("done_s", c_double),
        ("wire_bytes", c_ulonglong), ("host_bytes", c_ulonglong),
    ]


class tally_rank_stats(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("n_rounds", c_ulonglong), ("n_last", c_ulonglong),
        ("waited_s", c_double), ("computes_s", c_double), ("lane_s", c_double),
        ("link_s", c_double), ("step_waited_s", c_double), ("n_late_steps", c_ulonglong),
        ("cause", c_int), ("clock_known", c_int), ("clock_offset_s", c_double),
        ("clock_uncertainty_s", c_double),
    ]


class tally_bucket_choice(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("settled", c_int), ("hook", c_char_p), ("runner_up", c_char_p),
        ("predicted_s", c_double), ("measured_s", c_double), ("runner_up_s", c_double),
        ("error", c_double), ("reason", c_char * 200), ("cap_bytes", c_size_t),
        ("cap_gain", c_double),
    ]


class tally_optimizer_stats(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("step", c_ulonglong), ("skipped", c_ulonglong),
        ("loss_scale", c_double), ("norm", c_double), ("state_bytes", c_size_t),
        ("update_s", c_double), ("exposed_update_s", c_double), ("mean_update_s", c_double),
        ("mean_exposed_update_s", c_double),
    ]


class tally_averager_stats(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("step", c_ulonglong), ("n_averagings", c_ulonglong),
        ("wire_bytes", c_ulonglong), ("total_wire_bytes", c_ulonglong),
        ("total_other_wire_bytes", c_ulonglong), ("average_s", c_double),
        ("mean_average_s", c_double), ("host_bytes", c_ulonglong),
        ("total_host_bytes", c_ulonglong),
    ]


class tally_env_var(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("type", c_char_p), ("fallback", c_char_p),
        ("help", c_char_p), ("value", c_char_p),
    ]


class tally_bucket_param(ctypes.Structure):
    _fields_ = [
        ("index", c_int), ("name", c_char_p), ("n_dims", c_int),
        ("shape", ctypes.POINTER(c_size_t)), ("offset", c_size_t), ("n", c_size_t),
        ("gradient", c_void_p), ("data", c_void_p),
    ]


class tally_bucket(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("index", c_int), ("count", c_int), ("is_last", c_int),
        ("step", c_ulonglong), ("generation", c_uint), ("divisor", c_double), ("dtype", c_int),
        ("n", c_size_t), ("data", c_void_p), ("n_params", c_int),
        ("params", ctypes.POINTER(tally_bucket_param)), ("shadows", c_int), ("keeper", c_void_p),
        ("n_ranks", c_int),
    ]


class tally_hook_blob(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("data", c_void_p), ("bytes", c_size_t),
    ]


class tally_hook_table(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("concurrent", c_int), ("feedback", c_int),
        ("attach", c_void_p), ("reduce", c_void_p), ("detach", c_void_p), ("save", c_void_p),
        ("load", c_void_p), ("destroy", c_void_p), ("elementwise", c_int), ("scatter", c_void_p),
    ]


class tally_step_param(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("index", c_int), ("name", c_char_p), ("n_dims", c_int),
        ("shape", ctypes.POINTER(c_size_t)), ("first", c_size_t), ("n", c_size_t),
        ("data", ctypes.POINTER(c_float)), ("gradient", ctypes.POINTER(c_float)),
        ("state", ctypes.POINTER(c_void_p)), ("step", c_ulonglong), ("lr", c_double),
    ]


class tally_optimizer_table(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("elementwise", c_int), ("n_states", c_int),
        ("step_param", c_void_p), ("destroy", c_void_p),
    ]


tally_checkpoint_part_fn = ctypes.CFUNCTYPE(None, c_void_p, ctypes.POINTER(tally_checkpoint_part))
tally_log_fn = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)
tally_job_fn = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
tally_done_fn = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)

tally_optimizer_option = tally_hook_option
STRUCTS = {
    "tally_group_config": tally_group_config,
    "tally_param": tally_param,
    "tally_buffer": tally_buffer,
    "tally_ddp_config": tally_ddp_config,
    "tally_hook_info": tally_hook_info,
    "tally_hook_option": tally_hook_option,
    "tally_optimizer_group": tally_optimizer_group,
    "tally_optimizer_config": tally_optimizer_config,
    "tally_optimizer_info": tally_optimizer_info,
    "tally_averager_level": tally_averager_level,
    "tally_averager_config": tally_averager_config,
    "tally_checkpoint_blob": tally_checkpoint_blob,
    "tally_checkpoint_config": tally_checkpoint_config,
    "tally_checkpoint_info": tally_checkpoint_info,
    "tally_checkpoint_part": tally_checkpoint_part,
    "tally_ddp_stats": tally_ddp_stats,
    "tally_bucket_stats": tally_bucket_stats,
    "tally_rank_stats": tally_rank_stats,
    "tally_bucket_choice": tally_bucket_choice,
    "tally_optimizer_stats": tally_optimizer_stats,
    "tally_averager_stats": tally_averager_stats,
    "tally_env_var": tally_env_var,
    "tally_bucket_param": tally_bucket_param,
    "tally_bucket": tally_bucket,
    "tally_hook_blob": tally_hook_blob,
    "tally_hook_table": tally_hook_table,
    "tally_step_param": tally_step_param,
    "tally_optimizer_table": tally_optimizer_table,
    "tally_optimizer_option": tally_optimizer_option,
}

FUNCTIONS = {
    "tally_version": (c_char_p, []),
    "tally_status_name": (c_char_p, [c_int]),
    "tally_status_text": (c_char_p, [c_int]),
    "tally_last_error": (c_char_p, []),
    "tally_group_config_init": (None, [ctypes.POINTER(tally_group_config), c_size_t]),
    "tally_group_open": (c_int, [ctypes.POINTER(tally_group_config), ctypes.POINTER(c_void_p)]),
    "tally_group_open_threads": (c_int, [ctypes.POINTER(tally_group_config), c_int, ctypes.POINTER(c_void_p)]),
    "tally_group_rank": (c_int, [c_void_p]),
    "tally_group_size": (c_int, [c_void_p]),
    "tally_group_backend": (c_char_p, [c_void_p]),
    "tally_group_bytes_sent": (c_ulonglong, [c_void_p]),
    "tally_group_close": (c_int, [c_void_p]),
    "tally_group_abort": (c_int, [c_void_p, c_char_p]),
    "tally_dtype_bytes": (c_size_t, [c_int]),
    "tally_ddp_config_init": (None, [ctypes.POINTER(tally_ddp_config), c_size_t]),
    "tally_ddp_create": (c_int, [c_void_p, ctypes.POINTER(tally_param), c_size_t, ctypes.POINTER(tally_ddp_config), ctypes.POINTER(c_void_p)]),
    "tally_ddp_free": (c_int, [c_void_p]),
    "tally_ddp_n_params": (c_size_t, [c_void_p]),
    "tally_ddp_grad": (c_void_p, [c_void_p, c_int]),
    "tally_ddp_mean": (c_void_p, [c_void_p, c_int]),
    "tally_ddp_data": (c_void_p, [c_void_p, c_int]),
    "tally_ddp_broadcast": (c_int, [c_void_p, c_int]),
    "tally_ddp_grad_ready": (c_int, [c_void_p, c_int]),
    "tally_ddp_grad_absent": (c_int, [c_void_p, c_int]),
    "tally_ddp_wait": (c_int, [c_void_p]),
    "tally_ddp_is_unused": (c_int, [c_void_p, c_int, ctypes.POINTER(c_int)]),
    "tally_ddp_no_sync_begin": (c_int, [c_void_p]),
    "tally_ddp_no_sync_end": (c_int, [c_void_p]),
    "tally_ddp_zero_grad": (c_int, [c_void_p]),
    "tally_ddp_clip_grad_norm": (c_int, [c_void_p, c_double, ctypes.POINTER(c_double)]),
    "tally_ddp_mean_scalars": (c_int, [c_void_p, ctypes.POINTER(c_double), c_size_t]),
    "tally_ddp_mean_scalar": (c_int, [c_void_p, ctypes.POINTER(c_double)]),
    "tally_ddp_join": (c_int, [c_void_p]),
    "tally_ddp_reduce_delayed": (c_int, [c_void_p]),
    "tally_hook_parse": (c_int, [c_char_p, ctypes.POINTER(c_void_p)]),
    "tally_hook_free": (None, [c_void_p]),
    "tally_ddp_set_hook": (c_int, [c_void_p, c_char_p]),
    "tally_ddp_register_hook": (c_int, [c_void_p, c_int]),
    "tally_ddp_attach_hook": (c_int, [c_void_p, c_void_p]),
    "tally_hook_count": (c_size_t, []),
    "tally_hook_describe": (c_int, [c_size_t, ctypes.POINTER(tally_hook_info)]),
    "tally_hook_describe_option": (c_int, [c_size_t, c_size_t, ctypes.POINTER(tally_hook_option)]),
    "tally_optimizer_config_init": (None, [ctypes.POINTER(tally_optimizer_config), c_size_t]),
    "tally_optimizer_create": (c_int, [c_void_p, c_char_p, ctypes.POINTER(tally_optimizer_config), ctypes.POINTER(c_void_p)]),
    "tally_optimizer_free": (c_int, [c_void_p]),
    "tally_optimizer_step": (c_int, [c_void_p]),
    "tally_optimizer_set_lr": (c_int, [c_void_p, c_int, c_double]),
    "tally_optimizer_lr": (c_double, [c_void_p, c_int]),
    "tally_optimizer_loss_scale": (c_double, [c_void_p]),
    "tally_optimizer_count": (c_size_t, []),
    "tally_optimizer_describe": (c_int, [c_size_t, ctypes.POINTER(tally_optimizer_info)]),
    "tally_optimizer_describe_option": (c_int, [c_size_t, c_size_t, ctypes.POINTER(tally_optimizer_option)]),
    "tally_ddp_low": (c_void_p, [c_void_p, c_int]),
    "tally_ddp_refresh_low": (c_int, [c_void_p]),
    "tally_ddp_low_buffer": (c_void_p, [c_void_p, c_int]),
    "tally_averager_config_init": (None, [ctypes.POINTER(tally_averager_config), c_size_t]),
    "tally_averager_create": (c_int, [c_void_p, ctypes.POINTER(tally_averager_config), ctypes.POINTER(c_void_p)]),
    "tally_averager_free": (c_int, [c_void_p]),
    "tally_averager_step": (c_int, [c_void_p, ctypes.POINTER(c_int)]),
    "tally_averager_average": (c_int, [c_void_p]),
    "tally_averager_steps": (c_ulonglong, [c_void_p]),
    "tally_checkpoint_config_init": (None, [ctypes.POINTER(tally_checkpoint_config), c_size_t]),
    "tally_checkpoint_save": (c_int, [c_void_p, c_char_p, ctypes.POINTER(tally_checkpoint_config)]),
    "tally_checkpoint_load": (c_int, [c_void_p, c_char_p, ctypes.POINTER(tally_checkpoint_config), ctypes.POINTER(tally_checkpoint_info)]),
    "tally_checkpoint_wait": (c_int, [c_void_p]),
    "tally_checkpoint_inspect": (c_int, [c_char_p, c_char_p, ctypes.POINTER(tally_checkpoint_info), tally_checkpoint_part_fn, c_void_p]),
    "tally_ddp_save": (c_int, [c_void_p, c_void_p, ctypes.POINTER(c_size_t)]),
    "tally_ddp_load": (c_int, [c_void_p, ctypes.POINTER(c_void_p), ctypes.POINTER(c_size_t), c_size_t]),
    "tally_optimizer_save": (c_int, [c_void_p, c_void_p, ctypes.POINTER(c_size_t)]),
    "tally_optimizer_consolidate": (c_int, [c_void_p, c_int, c_void_p, ctypes.POINTER(c_size_t)]),
    "tally_optimizer_load": (c_int, [c_void_p, ctypes.POINTER(c_void_p), ctypes.POINTER(c_size_t), c_size_t]),
    "tally_averager_save": (c_int, [c_void_p, c_void_p, ctypes.POINTER(c_size_t)]),
    "tally_averager_load": (c_int, [c_void_p, ctypes.POINTER(c_void_p), ctypes.POINTER(c_size_t), c_size_t]),
    "tally_ddp_get_stats": (c_int, [c_void_p, ctypes.POINTER(tally_ddp_stats)]),
    "tally_ddp_get_bucket_stats": (c_int, [c_void_p, c_size_t, ctypes.POINTER(tally_bucket_stats)]),
    "tally_ddp_get_rank_stats": (c_int, [c_void_p, c_int, ctypes.POINTER(tally_rank_stats)]),
    "tally_ddp_explain": (c_int, [c_void_p, c_size_t, ctypes.POINTER(tally_bucket_choice)]),
    "tally_ddp_bucket_params": (c_size_t, [c_void_p, c_size_t, ctypes.POINTER(c_int), c_size_t]),
    "tally_ddp_ready_order": (c_size_t, [c_void_p, ctypes.POINTER(c_int), c_size_t]),
    "tally_optimizer_get_stats": (c_int, [c_void_p, ctypes.POINTER(tally_optimizer_stats)]),
    "tally_averager_get_stats": (c_int, [c_void_p, ctypes.POINTER(tally_averager_stats)]),
    "tally_trace_start": (c_int, [c_void_p, c_char_p, c_ulonglong]),
    "tally_trace_write": (c_int, [c_void_p]),
    "tally_trace_stop": (c_int, [c_void_p]),
    "tally_ddp_check": (c_int, [c_void_p]),
    "tally_log_set": (c_int, [tally_log_fn, c_void_p, c_int]),
    "tally_log_stderr": (None, [c_void_p, c_int, c_char_p]),
    "tally_env_count": (c_size_t, []),
    "tally_env_get": (c_int, [c_size_t, ctypes.POINTER(tally_env_var)]),
    "tally_env_check": (c_int, []),
    "tally_isa": (c_int, [ctypes.POINTER(c_void_p)]),
    "tally_group_split": (c_int, [c_void_p, c_int, c_int, ctypes.POINTER(c_void_p)]),
    "tally_group_alloc": (c_int, [c_void_p, c_size_t, ctypes.POINTER(c_void_p)]),
    "tally_group_free": (c_int, [c_void_p, c_void_p]),
    "tally_submit": (c_int, [c_void_p, c_int, tally_job_fn, c_void_p, ctypes.POINTER(c_void_p)]),
    "tally_future_wait": (c_int, [c_void_p]),
    "tally_future_wait_for": (c_int, [c_void_p, c_double]),
    "tally_future_test": (c_int, [c_void_p, ctypes.POINTER(c_int)]),
    "tally_future_on_done": (c_int, [c_void_p, tally_done_fn, c_void_p]),
    "tally_future_bytes_sent": (c_ulonglong, [c_void_p]),
    "tally_future_free": (None, [c_void_p]),
    "tally_lane_for": (c_void_p, [c_void_p, c_void_p]),
    "tally_lane_group": (c_void_p, [c_void_p]),
    "tally_lane_index": (c_int, [c_void_p]),
    "tally_job_fail": (c_int, [c_void_p, c_int, c_char_p]),
    "tally_shard": (None, [c_size_t, c_int, c_int, ctypes.POINTER(c_size_t), ctypes.POINTER(c_size_t)]),
    "tally_lane_all_reduce": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int]),
    "tally_lane_reduce_scatter": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int]),
    "tally_lane_all_gather": (c_int, [c_void_p, c_void_p, ctypes.POINTER(c_size_t), c_void_p]),
    "tally_lane_all_to_all": (c_int, [c_void_p, c_void_p, ctypes.POINTER(c_size_t), c_void_p, ctypes.POINTER(c_size_t)]),
    "tally_lane_broadcast": (c_int, [c_void_p, c_void_p, c_size_t, c_int]),
    "tally_lane_barrier": (c_int, [c_void_p]),
    "tally_all_reduce": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, ctypes.POINTER(c_void_p)]),
    "tally_reduce_scatter": (c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int, ctypes.POINTER(c_void_p)]),
    "tally_all_gather": (c_int, [c_void_p, c_void_p, ctypes.POINTER(c_size_t), c_void_p, ctypes.POINTER(c_void_p)]),
    "tally_all_to_all": (c_int, [c_void_p, c_void_p, ctypes.POINTER(c_size_t), c_void_p, ctypes.POINTER(c_size_t), ctypes.POINTER(c_void_p)]),
    "tally_broadcast": (c_int, [c_void_p, c_void_p, c_size_t, c_int, ctypes.POINTER(c_void_p)]),
    "tally_barrier": (c_int, [c_void_p, ctypes.POINTER(c_void_p)]),
    "tally_bucket_residual": (c_int, [ctypes.POINTER(tally_bucket), c_int, ctypes.POINTER(c_void_p)]),
    "tally_hook_create": (c_int, [ctypes.POINTER(tally_hook_table), c_void_p, ctypes.POINTER(c_void_p)]),
    "tally_hook_wrap": (c_int, [c_char_p, c_void_p, ctypes.POINTER(c_void_p)]),
    "tally_ddp_group": (c_void_p, [c_void_p]),
    "tally_ddp_param_name": (c_char_p, [c_void_p, c_int]),
    "tally_ddp_param_count": (c_size_t, [c_void_p, c_int]),
    "tally_reducer_create": (c_int, [c_void_p, ctypes.POINTER(tally_param), c_size_t, c_char_p, ctypes.POINTER(c_void_p)]),
    "tally_reducer_free": (c_int, [c_void_p]),
    "tally_reducer_reduce": (c_int, [c_void_p, ctypes.POINTER(c_int), c_size_t, c_void_p, c_int, c_double, ctypes.POINTER(c_void_p)]),
    "tally_reducer_set_hook": (c_int, [c_void_p, c_char_p]),
    "tally_reducer_attach_hook": (c_int, [c_void_p, c_void_p]),
    "tally_reducer_save": (c_int, [c_void_p, c_void_p, ctypes.POINTER(c_size_t)]),
    "tally_reducer_load": (c_int, [c_void_p, ctypes.POINTER(c_void_p), ctypes.POINTER(c_size_t), c_size_t]),
    "tally_reducer_get_stats": (c_int, [c_void_p, ctypes.POINTER(tally_ddp_stats)]),
    "tally_reducer_get_rank_stats": (c_int, [c_void_p, c_int, ctypes.POINTER(tally_rank_stats)]),
}
