/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rejects parameters that share a name or memory: a shared array would be reduced and updated
 * twice. Sorts, so that many parameters cost n log n. The thread that creates the ddp enters.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "ddp/ddp.h"

/* ---- names ---- */

struct name {
    const char *text;
    size_t index;
};

static int compare_names(const void *a, const void *b)
{
    const struct name *x = a;
    const struct name *y = b;
    int order = strcmp(x->text, y->text);

    return order != 0 ? order : (x->index > y->index) - (x->index < y->index);
}

static int check_names(const tally_ddp *ddp)
{
    struct name *names = tally__alloc_array(ddp->n_params, sizeof *names, "parameters' names");
    size_t twin = SIZE_MAX; /* the first parameter whose name occurred before */
    size_t of_twin = 0;

    if (!names) {
        return TALLY_NOMEM;
    }
    for (size_t i = 0; i < ddp->n_params; i++) {
        names[i] = (struct name){ddp->params[i].name, i};
    }
    qsort(names, ddp->n_params, sizeof *names, compare_names);
    for (size_t k = 1; k < ddp->n_params; k++) {
        if (strcmp(names[k - 1].text, names[k].text) == 0 && names[k].index < twin) {
            twin = names[k].index;
            of_twin = names[k - 1].index;
        }
    }
    tally__free(names);
    return twin == SIZE_MAX ? TALLY_OK
                            : tally__fail(TALLY_ARG, "parameters %zu and %zu are both called '%s'",
                                          of_twin, twin, ddp->params[twin].name);
}

/* ---- memory ---- */

enum role { DATA, GRADIENT, BUFFER };

/* An array of the application's. */
struct span {
    uintptr_t start;
    uintptr_t end;
    enum role role;
    size_t index; /* of the parameter, or the buffer */
};

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a;
    const struct span *y = b;

    if (x->start != y->start) {
        return x->start > y->start ? 1 : -1;
    }
    if (x->index != y->index) {
        return x->index > y->index ? 1 : -1;
    }
    return (int)x->role - (int)y->role;
}

static void put(struct span *spans, size_t *n, const void *array, struct span span, size_t bytes)
{
    if (array && bytes > 0) {
        span.start = (uintptr_t)array;
        span.end = span.start + bytes;
        spans[(*n)++] = span;
    }
}

/* Lists all arrays that tally writes to; not those of ignored parameters. */
static size_t list_spans(const tally_ddp *ddp, struct span *spans)
{
    size_t n = 0;

    for (size_t i = 0; i < ddp->n_params; i++) {
        const struct tally__param *param = &ddp->params[i];

        if (!(param->flags & TALLY_PARAM_IGNORED)) {
            put(spans, &n, param->data, (struct span){.role = DATA, .index = i}, param->bytes);
            put(spans, &n, param->grad.array, (struct span){.role = GRADIENT, .index = i},
                param->grad.bytes);
        }
    }
    for (size_t i = 0; i < ddp->n_buffers; i++) {
        put(spans, &n, ddp->buffers[i].data, (struct span){.role = BUFFER, .index = i},
            ddp->buffers[i].bytes);
    }
    return n;
}

static void name_span(const tally_ddp *ddp, const struct span *span, char *text, size_t room)
{
    static const char *const roles[] = {"data of parameter", "grad of parameter", "data of buffer"};
    const char *name =
        span->role == BUFFER ? ddp->buffers[span->index].name : ddp->params[span->index].name;

    (void)snprintf(text, room, "%s %zu ('%.100s')", roles[span->role], span->index,
                   name ? name : "");
}

static int report_overlap(const tally_ddp *ddp, const struct span *a, const struct span *b)
{
    char of_a[160];
    char of_b[160];
    uintptr_t end = a->end < b->end ? a->end : b->end;

    name_span(ddp, a->index <= b->index ? a : b, of_a, sizeof of_a);
    name_span(ddp, a->index <= b->index ? b : a, of_b, sizeof of_b);
    if (a->start == b->start && a->end == b->end && a->role == b->role && a->role != BUFFER) {
        return tally__fail(TALLY_ARG,
                           "%s and %s are one array: a weight that is used in several places (tied "
                           "weights) is ONE parameter; give it once, and announce it after its "
                           "last contribution",
                           of_a, of_b);
    }
    return tally__fail(TALLY_ARG,
                       "%s and %s share %zu bytes of memory; every array belongs to one of them",
                       of_a, of_b, (size_t)(end - b->start));
}

static int check_apart(const tally_ddp *ddp)
{
    size_t room = 2 * ddp->n_params + ddp->n_buffers;
    struct span *spans = tally__alloc_array(room, sizeof *spans, "parameters' arrays");
    size_t n;
    size_t furthest = 0; /* the span seen so far that ends last */
    int rc = TALLY_OK;

    if (!spans) {
        return TALLY_NOMEM;
    }
    n = list_spans(ddp, spans);
    qsort(spans, n, sizeof *spans, compare_spans);
    for (size_t k = 1; k < n && rc == TALLY_OK; k++) {
        if (spans[k].start < spans[furthest].end) {
            rc = report_overlap(ddp, &spans[furthest], &spans[k]);
        }
        furthest = spans[k].end > spans[furthest].end ? k : furthest;
    }
    tally__free(spans);
    return rc;
}

/* ---- alignment ---- */

static int check_aligned(const struct tally__param *param, const char *array, const void *address,
                         int dtype)
{
    size_t bytes = tally_dtype_bytes(dtype);

    return (uintptr_t)address % bytes == 0
               ? TALLY_OK
               : tally__fail(TALLY_ARG,
                             "parameter '%s': %s is at address %p, which is not a multiple of the "
                             "%zu bytes of an element",
                             param->name, array, address, bytes);
}

int tally__params_check_arrays(const tally_ddp *ddp)
{
    TRY(check_names(ddp));
    for (size_t i = 0; i < ddp->n_params; i++) {
        const struct tally__param *param = &ddp->params[i];

        TRY(check_aligned(param, "data", param->data, param->dtype));
        TRY(check_aligned(param, "grad", param->grad.array, param->grad.dtype));
        TRY(check_aligned(param, "grad", param->grad.local, param->grad.dtype));
    }
    return check_apart(ddp);
}
