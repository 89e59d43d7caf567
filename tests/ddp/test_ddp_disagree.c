/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that disagree at creation: every difference there is, on the last rank only, makes all
 * ranks fail alike, with a text that names the thing and both ranks; and the caller's group is as
 * good as before.
 */
#include <stdio.h>
#include <string.h>

#include "support/ddp_model.h"

#define N 3
#define N_CAPS 40
#define LONG_BYTES 300

/* The arguments of one rank, with memory for what the differences point to. */
struct given {
    struct ddp_model model;
    size_t n;
    tally_ddp_config config;
    tally_buffer buffers[2];
    char buffer_data[64];
    float grad[4];
    size_t caps[N_CAPS];
    char long_name[LONG_BYTES];
    size_t many[24];
    size_t strides[2];
    size_t shape[DDP_MAX_DIMS];
};

static int keep_as_is(void *user, tally_lane *lane, const tally_buffer *buffers, size_t n)
{
    (void)user;
    (void)lane;
    (void)buffers;
    (void)n;
    return TALLY_OK;
}

static void fewer(struct given *given)
{
    given->n--;
}

static void name(struct given *given)
{
    given->model.params[1].name = "second";
}

static void end_of_long_name(struct given *given)
{
    given->long_name[LONG_BYTES - 2]++;
}

static void shape(struct given *given)
{
    given->shape[0] = 4;
    given->shape[1] = 3;
    given->strides[0] = 3;
}

static void n_dims(struct given *given)
{
    given->model.params[1].n_dims = 1;
    given->shape[0] = 12;
    given->strides[0] = 1;
}

static void end_of_many_dims(struct given *given)
{
    given->many[23] = 2;
    given->many[22] = 1;
}

static void dtype(struct given *given)
{
    given->model.params[1].dtype = TALLY_BF16;
}

static void no_data(struct given *given)
{
    given->model.params[1].data = NULL;
}

static void frozen(struct given *given)
{
    given->model.params[1].flags = TALLY_PARAM_FROZEN;
}

static void delayed(struct given *given)
{
    given->model.params[1].flags = TALLY_PARAM_DELAYED;
}

/* Column after column: the same elements in other places. */
static void strides(struct given *given)
{
    given->strides[0] = 1;
    given->strides[1] = 3;
}

static void find_unused(struct given *given)
{
    given->config.find_unused = 1;
}

static void static_graph(struct given *given)
{
    given->config.static_graph = 1;
}

static void skip_unused(struct given *given)
{
    given->config.skip_unused = 1;
}

static void join(struct given *given)
{
    given->config.join = 1;
}

static void join_stops(struct given *given)
{
    given->config.join_stops = 1;
}

static void join_divides(struct given *given)
{
    given->config.join_divides_by_active = 1;
}

static void keep_parameters(struct given *given)
{
    given->config.keep_parameters = 1;
}

static void keep_buffers(struct given *given)
{
    given->config.keep_buffers = 1;
}

static void buffer_hook(struct given *given)
{
    given->config.buffer_hook = keep_as_is;
}

static void n_buffers(struct given *given)
{
    given->config.n_buffers = 1;
}

static void buffer_bytes(struct given *given)
{
    given->buffers[1].bytes = 24;
}

static void buffer_name(struct given *given)
{
    given->buffers[1].name = "running variance";
}

static void cap(struct given *given)
{
    given->caps[0]++;
}

static void end_of_caps(struct given *given)
{
    given->caps[N_CAPS - 1]++;
}

static void n_caps(struct given *given)
{
    given->config.n_bucket_caps--;
}

static void no_caps(struct given *given)
{
    given->config.bucket_caps = NULL;
    given->config.n_bucket_caps = 0;
}

static void copies(struct given *given)
{
    given->model.params[0].grad = given->grad;
}

static const struct difference {
    void (*make)(struct given *given);
    const char *part; /* of the text; L is the last rank */
} differences[] = {
    {fewer, "rank 0 has 3 parameters and rank L has 2; parameter 2 'a much"},
    {name, "parameter 1 is 'weight' on rank 0 and 'second' on rank L"},
    {end_of_long_name, "parameter 2 is 'a much"},
    {shape, "parameter 1 'weight': shape is [3,4] on rank 0 and [4,3] on rank L"},
    {n_dims, "parameter 1 'weight': shape is [3,4] on rank 0 and [12] on rank L"},
    {end_of_many_dims, "parameter 0 'first': shape is [1,"},
    {dtype, "parameter 1 'weight': dtype is f32 on rank 0 and bf16 on rank L"},
    {no_data, "parameter 1 'weight': data is given on rank 0 and NULL on rank L"},
    {frozen, "parameter 1 'weight': flags is 0 on rank 0 and 1 on rank L"},
    {delayed, "parameter 1 'weight': flags is 0 on rank 0 and 4 on rank L"},
    {strides, "order of elements is row-major on rank 0 and permuted on rank L"},
    {find_unused, "config: find_unused is 0 on rank 0 and 1 on rank L"},
    {static_graph, "config: static_graph is 0 on rank 0 and 1 on rank L"},
    {skip_unused, "config: skip_unused is 0 on rank 0 and 1 on rank L"},
    {join, "config: join is 0 on rank 0 and 1 on rank L"},
    {join_stops, "config: join_stops is 0 on rank 0 and 1 on rank L"},
    {join_divides, "config: join_divides_by_active is 0 on rank 0 and 1 on rank L"},
    {keep_parameters, "config: keep_parameters is 0 on rank 0 and 1 on rank L"},
    {keep_buffers, "config: keep_buffers is 0 on rank 0 and 1 on rank L"},
    {buffer_hook, "config: buffer_hook is NULL on rank 0 and set on rank L"},
    {n_buffers, "rank 0 has 2 buffers and rank L has 1; buffer 1 'running mean' is on rank 0 only"},
    {buffer_bytes, "buffer 1 'running mean': bytes is 32 on rank 0 and 24 on rank L"},
    {buffer_name, "buffer 1 is 'running mean' on rank 0 and 'running variance' on rank L"},
    {cap, "config: bucket_caps is [1048576,"},
    {end_of_caps, "(40 entries, checksum"},
    {n_caps, "config: n_bucket_caps is 40 on rank 0 and 39 on rank L"},
    {no_caps, "config: n_bucket_caps is 40 on rank 0 and 0 on rank L"},
    {copies, "config: memory of gradients is provided by tally"},
};

static int prepare(struct given *given)
{
    static const struct ddp_spec specs[N] = {{"first", TALLY_F32, 0, 1, {2}},
                                             {"weight", TALLY_F32, 0, 2, {3, 4}},
                                             {"long", TALLY_F64, 0, 1, {5}}};

    memset(given, 0, sizeof *given);
    given->n = N;
    memset(given->long_name, 'l', LONG_BYTES - 1);
    memcpy(given->long_name, "a much too long name", 20);
    for (size_t d = 0; d < 24; d++) {
        given->many[d] = 1;
    }
    given->many[22] = 2;
    given->strides[0] = 4;
    given->strides[1] = 1;
    memcpy(given->shape, specs[1].shape, sizeof given->shape);
    for (size_t c = 0; c < N_CAPS; c++) {
        given->caps[c] = (1 << 20) + c;
    }
    given->buffers[0] =
        (tally_buffer){sizeof(tally_buffer), "counter", given->buffer_data, 8, TALLY_U8};
    given->buffers[1] =
        (tally_buffer){sizeof(tally_buffer), "running mean", given->buffer_data + 16, 32, TALLY_U8};
    tally_ddp_config_init(&given->config, sizeof given->config);
    given->config.bucket_caps = given->caps;
    given->config.n_bucket_caps = N_CAPS;
    given->config.buffers = given->buffers;
    given->config.n_buffers = 2;
    if (ddp_model_make(&given->model, specs, N, false) != 0) {
        return RANKS_FAILED;
    }
    given->model.params[0].n_dims = 24;
    given->model.params[0].shape = given->many;
    given->model.params[1].shape = given->shape;
    given->model.params[1].strides = given->strides;
    given->model.params[2].name = given->long_name;
    return 0;
}

/* The expected text with the last rank's number in it. */
static void put_last(const char *expected, int last, char *text, size_t room)
{
    const char *at = strstr(expected, "rank L");

    if (at) {
        (void)snprintf(text, room, "%.*srank %d%s", (int)(at - expected), expected, last,
                       at + strlen("rank L"));
    } else {
        (void)snprintf(text, room, "%s", expected);
    }
}

static int disagree(tally_group *group, const struct difference *difference)
{
    int last = tally_group_size(group) - 1;
    struct given given;
    tally_ddp *ddp = NULL;
    char part[160];
    void *data;
    int rc;

    CHECK(group, prepare(&given) == 0);
    data = given.model.params[1].data;
    if (tally_group_rank(group) == last && last > 0) {
        difference->make(&given);
    }
    rc = tally_ddp_create(group, given.model.params, given.n, &given.config, &ddp);
    if (last == 0) {
        CHECK_OK(group, rc);
        CHECK_OK(group, tally_ddp_free(ddp));
    } else {
        CHECK_STATUS(group, rc, TALLY_MISMATCH);
        put_last(difference->part, last, part, sizeof part);
        CHECK_TEXT(group, tally_last_error(), part);
        CHECK_TEXT(group, tally_last_error(), "all ranks must give the same");
        CHECK(group, strlen(tally_last_error()) < 400);
        CHECK(group, ddp == NULL);
    }
    ranks_note(group, 0, ranks_hash(0, tally_last_error(), strlen(tally_last_error())));
    given.model.params[0].grad = NULL;
    given.model.params[1].data = data;
    ddp_model_free(&given.model);
    return 0;
}

/* Strides without an effect are not a difference. */
static int agree(tally_group *group)
{
    static const size_t odd[DDP_MAX_DIMS] = {12, 99, 4, 1};
    static const struct ddp_spec spec = {"w", TALLY_F32, 0, 4, {2, 1, 3, 4}};
    struct ddp_model model;
    tally_ddp *ddp;

    CHECK(group, ddp_model_make(&model, &spec, 1, false) == 0);
    model.params[0].strides = tally_group_rank(group) % 2 ? odd : NULL;
    CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &ddp));
    CHECK_OK(group, ddp_right_step(group, ddp, &model, 1));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int disagree_body(tally_group *group, void *user)
{
    struct ddp_model model;
    tally_ddp *ddp;

    (void)user;
    for (size_t d = 0; d < sizeof differences / sizeof differences[0]; d++) {
        if (disagree(group, &differences[d]) != 0) {
            (void)fprintf(stderr, "difference %zu\n", d);
            return RANKS_FAILED;
        }
    }
    CHECK_OK(group, agree(group));
    CHECK(group, ddp_model_make(&model, ddp_mixed, DDP_N_MIXED, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, NULL, &ddp));
    CHECK_OK(group, ddp_right_step(group, ddp, &model, 1));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    return ddp_run("disagree", disagree_body, NULL, 1) != 0;
}
