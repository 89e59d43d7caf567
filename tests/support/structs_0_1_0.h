/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The structs of the public header as they were in version 0.1.0, with the prefix v010_ in place of
 * tally_. Programs built with that header are in use: this file never changes.
 */
#ifndef TALLY_TESTS_STRUCTS_0_1_0_H
#define TALLY_TESTS_STRUCTS_0_1_0_H

#include <tally_extend.h>

struct v010_group_config {
    size_t size;
    const char *backend;
    int rank;
    int world;
    const char *rendezvous;
    double timeout_s;
    double open_timeout_s;
    int lanes;
    const int *mpi_comm;
};

struct v010_param {
    size_t size;
    const char *name;
    int n_dims;
    const size_t *shape;
    const size_t *strides;
    int dtype;
    void *data;
    void *grad;
    unsigned flags;
};

struct v010_buffer {
    size_t size;
    const char *name;
    void *data;
    size_t bytes;
    int dtype;
};

struct v010_ddp_config {
    size_t size;
    size_t bucket_cap_bytes;
    size_t first_bucket_bytes;
    const size_t *bucket_caps;
    size_t n_bucket_caps;
    const char *hook;
    int keep_parameters;
    const struct v010_buffer *buffers;
    size_t n_buffers;
    int keep_buffers;
    int (*buffer_hook)(void *user, tally_lane *lane, const struct v010_buffer *buffers, size_t n);
    void *buffer_hook_user;
    int find_unused;
    int static_graph;
    int skip_unused;
    int join;
    int join_stops;
    int join_divides_by_active;
    int param_dtype;
    int reduce_dtype;
    int buffer_dtype;
};

struct v010_bucket_param {
    int index;
    const char *name;
    int n_dims;
    const size_t *shape;
    size_t offset;
    size_t n;
    void *gradient;
    void *data;
};

struct v010_bucket {
    size_t size;
    int index;
    int count;
    int is_last;
    unsigned long long step;
    unsigned generation;
    double divisor;
    int dtype;
    size_t n;
    void *data;
    int n_params;
    const struct v010_bucket_param *params;
    int shadows;
    void *keeper;
    int n_ranks;
};

struct v010_hook_blob {
    size_t size;
    const void *data;
    size_t bytes;
};

struct v010_hook_table {
    size_t size;
    const char *name;
    int concurrent;
    int feedback;
    int (*attach)(void *state, tally_ddp *ddp);
    int (*reduce)(void *state, tally_lane *lane, const struct v010_bucket *bucket);
    void (*detach)(void *state, tally_ddp *ddp);
    int (*save)(void *state, void *blob, size_t *bytes);
    int (*load)(void *state, const struct v010_hook_blob *blobs, size_t n_blobs);
    void (*destroy)(void *state);
};

struct v010_hook_info {
    size_t size;
    const char *name;
    const char *help;
    int wraps;
    size_t n_options;
};

struct v010_hook_option {
    size_t size;
    const char *name;
    const char *accepts;
    const char *fallback;
    const char *help;
};

struct v010_env_var {
    size_t size;
    const char *name;
    const char *type;
    const char *fallback;
    const char *help;
    const char *value;
};

struct v010_averager_level {
    int period;
    int group;
};

struct v010_averager_config {
    size_t size;
    const struct v010_averager_level *levels;
    size_t n_levels;
    int warmup;
    const int *params;
    size_t n_params;
    const char *hook;
    const char *outer;
};

struct v010_averager_stats {
    size_t size;
    unsigned long long step;
    unsigned long long n_averagings;
    unsigned long long wire_bytes;
    unsigned long long total_wire_bytes;
    unsigned long long total_other_wire_bytes;
    double average_s;
    double mean_average_s;
};

struct v010_step_param {
    size_t size;
    int index;
    const char *name;
    int n_dims;
    const size_t *shape;
    size_t first;
    size_t n;
    float *data;
    const float *gradient;
    float *const *state;
    unsigned long long step;
    double lr;
};

struct v010_optimizer_table {
    size_t size;
    const char *name;
    int elementwise;
    int n_states;
    int (*step_param)(void *user, const struct v010_step_param *param);
    void (*destroy)(void *user);
};

struct v010_optimizer_info {
    size_t size;
    const char *name;
    const char *help;
    size_t n_options;
};

struct v010_optimizer_group {
    size_t size;
    const char *text;
    const struct v010_optimizer_table *table;
    void *user;
    double lr;
    const int *params;
    size_t n_params;
};

struct v010_optimizer_config {
    size_t size;
    const struct v010_optimizer_group *groups;
    size_t n_groups;
    int overlap;
    int shard;
    int release_gradients;
    double max_norm;
    double loss_scale;
    double loss_scale_growth;
    double loss_scale_backoff;
    int loss_scale_interval;
    tally_averager *averager;
};

struct v010_optimizer_stats {
    size_t size;
    unsigned long long step;
    unsigned long long skipped;
    double loss_scale;
    double norm;
    size_t state_bytes;
    double update_s;
    double exposed_update_s;
    double mean_update_s;
    double mean_exposed_update_s;
};

struct v010_ddp_stats {
    size_t size;
    unsigned long long step;
    int rank;
    int world;
    const char *backend;
    size_t n_params;
    unsigned dtypes;
    size_t gradient_bytes;
    size_t buffer_bytes;
    size_t first_bucket_bytes;
    size_t bucket_cap_bytes;
    size_t n_buckets;
    size_t n_delayed_buckets;
    size_t n_reduced;
    size_t unused_bytes;
    int views;
    int find_unused;
    int static_graph;
    int join;
    int rebuilt;
    const char *hook;
    unsigned long long wire_bytes;
    unsigned long long total_wire_bytes;
    unsigned long long other_wire_bytes;
    unsigned long long total_other_wire_bytes;
    unsigned long long saturated;
    unsigned long long total_saturated;
    unsigned long long compressed_from;
    unsigned long long compressed_to;
    unsigned long long total_compressed_from;
    unsigned long long total_compressed_to;
    double forward_s;
    double backward_s;
    double comm_s;
    double exposed_s;
    double overlap;
    double mean_forward_s;
    double mean_backward_s;
    double mean_comm_s;
    double mean_exposed_s;
    int error;
    unsigned long long error_step;
    char error_text[256];
};

struct v010_bucket_stats {
    size_t size;
    int measured;
    size_t n_params;
    size_t bytes;
    double ready_s;
    double launch_s;
    double start_s;
    double done_s;
    unsigned long long wire_bytes;
};

#endif
