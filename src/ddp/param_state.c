/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of one parameter in a saved state: its identity and its residual. Keeps no state. */
#include <string.h>

#include "base/status.h"
#include "ddp/ddp_state.h"

/* ---- identity ---- */

void tally__put_identity(struct tally__blob_writer *writer, const struct tally__param *param)
{
    tally__blob_put_array(writer, param->name, strlen(param->name));
    tally__blob_put_number(writer, (uint64_t)param->n_dims * sizeof(uint64_t));
    for (int d = 0; d < param->n_dims; d++) {
        tally__blob_put_number(writer, param->shape[d]);
    }
    tally__blob_put_number(writer, param->n);
    tally__blob_put_number(writer, (uint64_t)param->dtype);
    tally__blob_put_number(writer, param->strides);
}

/* Reads what follows the name; NULL: it is the same. */
static const char *find_difference(struct tally__blob_reader *reader,
                                   const struct tally__param *param)
{
    size_t shape_bytes;
    const uint64_t *shape = tally__blob_take_array(reader, &shape_bytes);
    uint64_t n = tally__blob_take_number(reader);
    uint64_t dtype = tally__blob_take_number(reader);
    uint64_t strides = tally__blob_take_number(reader);

    if (n != param->n || shape_bytes != (size_t)param->n_dims * sizeof *shape) {
        return "another shape";
    }
    for (int d = 0; d < param->n_dims; d++) {
        if (shape[d] != param->shape[d]) {
            return "another shape";
        }
    }
    if (dtype != (uint64_t)param->dtype) {
        return "another dtype";
    }
    return strides == param->strides ? NULL : "other strides";
}

int tally__check_identity(struct tally__blob_reader *reader, const struct tally__param *param,
                          size_t r)
{
    size_t bytes;
    const char *name = tally__blob_take_array(reader, &bytes);
    const char *difference = find_difference(reader, param);

    if (reader->bad) {
        return tally__state_damaged(r);
    }
    if (bytes != strlen(param->name) || memcmp(name, param->name, bytes) != 0) {
        return tally__fail(TALLY_ARG, "blob %zu has parameter '%s' where this model has '%.200s'",
                           r, tally__blob_show(name, bytes).text, param->name);
    }
    return difference ? tally__fail(TALLY_ARG, "blob %zu has parameter '%.200s' with %s", r,
                                    param->name, difference)
                      : TALLY_OK;
}

/* ---- residual ---- */

void tally__put_residual(struct tally__blob_writer *writer, const struct tally__residual *residual)
{
    uint64_t n_owned = 0;

    tally__blob_put_array(writer, residual->sent,
                          residual->sent ? residual->n * sizeof *residual->sent : 0);
    for (const struct tally__owned *owned = residual->owned; owned; owned = owned->next) {
        n_owned += owned->n > 0;
    }
    tally__blob_put_number(writer, n_owned);
    for (const struct tally__owned *owned = residual->owned; owned; owned = owned->next) {
        if (owned->n > 0) {
            tally__blob_put_number(writer, (uint64_t)owned->n_ranks);
            tally__blob_put_number(writer, owned->first);
            tally__blob_put_array(writer, owned->values + (owned->is_whole ? owned->first : 0),
                                  owned->n * sizeof *owned->values);
        }
    }
}

void tally__take_run(struct tally__blob_reader *reader, struct tally__saved_run *run)
{
    size_t bytes;

    run->n_ranks = tally__blob_take_number(reader);
    run->first = tally__blob_take_number(reader);
    run->values = tally__blob_take_array(reader, &bytes);
    run->n = bytes / sizeof *run->values;
    if (bytes == 0 || bytes % sizeof *run->values != 0) {
        reader->bad = 1;
    }
}

void tally__take_residual(struct tally__blob_reader *reader, const struct tally__param *param,
                          size_t world, struct tally__saved_residual *residual)
{
    bool is_f32 = param->dtype == TALLY_F32;
    uint64_t n_ranks = 0;
    size_t sent_bytes;

    residual->sent = tally__blob_take_array(reader, &sent_bytes);
    residual->n_owned = tally__blob_take_number(reader);
    residual->owned = *reader;
    for (uint64_t k = 0; k < residual->n_owned && !reader->bad; k++) {
        struct tally__saved_run run;

        /* Groups become larger and larger; the run lies within the parameter. */
        tally__take_run(reader, &run);
        if (!is_f32 || run.n_ranks <= n_ranks || run.n_ranks > world || run.n > param->n ||
            run.first > param->n - run.n) {
            reader->bad = 1;
        }
        n_ranks = run.n_ranks;
    }
    if (sent_bytes == 0) {
        residual->sent = NULL;
    } else if (!is_f32 || sent_bytes % sizeof *residual->sent != 0 ||
               sent_bytes / sizeof *residual->sent != param->n) {
        reader->bad = 1;
    }
}
