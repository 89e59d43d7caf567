/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the size of messages by measuring. Keeps its state in the lane (messages.h). */
#include "exchange/message_size.h"

#include "base/env.h"
#include "base/log.h"
#include "comm/messages.h"
#include "comm/round.h"

/* Memory for messages per lane, at most. */
#define SCRATCH_BYTES ((size_t)32 << 20)
#define LEAST_MESSAGE ((size_t)4096)
#define MOST_MESSAGE ((size_t)1 << 20)
#define N_MEASURED (3 * TALLY__N_MESSAGE_SIZES) /* per class: each size three times */
#define FIRST_SIZE 1                            /* for data too small to measure, too */

/* Small messages are fast on a slow line, where Open MPI's large ones reach half of it; large ones
 * on a fast fabric, and with MPICH. */
static const size_t sizes[TALLY__N_MESSAGE_SIZES] = {(size_t)48 << 10, (size_t)256 << 10,
                                                     MOST_MESSAGE};

/* The best size also depends on the length of the data, because of caches and the pipeline's ends:
 * each class chooses for itself. It begins at this number of bytes. */
static const size_t classes[TALLY__N_MESSAGE_CLASSES] = {(size_t)512 << 10, (size_t)2 << 20,
                                                         (size_t)8 << 20, (size_t)32 << 20};

size_t tally__message_most(const tally_group *group)
{
    size_t n_messages = TALLY__N_WINDOWS * (3 * (size_t)group->size + 1);
    size_t most = SCRATCH_BYTES / n_messages / 64 * 64;

    most = most < MOST_MESSAGE + TALLY__MARK_BYTES ? most : MOST_MESSAGE + TALLY__MARK_BYTES;
    return most > LEAST_MESSAGE + TALLY__MARK_BYTES ? most - TALLY__MARK_BYTES : LEAST_MESSAGE;
}

static struct tally__far_lane *far_of(const tally_lane *lane)
{
    return &lane->group->far->lanes[lane->index];
}

/* NULL: of too few bytes to measure. */
static struct tally__message_class *class_of(const tally_lane *lane, size_t bytes)
{
    int i = TALLY__N_MESSAGE_CLASSES - 1;

    while (i >= 0 && bytes < classes[i]) {
        i--;
    }
    return i < 0 ? NULL : &far_of(lane)->classes[i];
}

/* The index of the size to use next. */
static int next_size(const struct tally__message_class *class)
{
    if (!class) {
        return FIRST_SIZE;
    }
    return class->n_measured == N_MEASURED
               ? class->choice
               : (class->n_measured + FIRST_SIZE) % TALLY__N_MESSAGE_SIZES;
}

uint64_t tally__message_propose(const tally_lane *lane, size_t bytes)
{
    size_t most = tally__message_most(lane->group);
    size_t wanted = sizes[next_size(class_of(lane, bytes))];
    int fixed = 0;

    if (tally__env_count(TALLY__ENV_MESSAGE, &fixed) == TALLY_OK && fixed > 0) {
        wanted = (size_t)fixed / 64 * 64;
    }
    return wanted < most ? wanted : most;
}

size_t tally__message_agreed(const tally_lane *lane)
{
    uint64_t proposed = tally__said(lane, 0)->word;
    size_t most = tally__message_most(lane->group);

    if (proposed < LEAST_MESSAGE) {
        return LEAST_MESSAGE;
    }
    return proposed < most ? (size_t)proposed : most;
}

static void choose(struct tally__message_class *class, size_t bytes)
{
    int best = 0;

    for (int i = 1; i < TALLY__N_MESSAGE_SIZES; i++) {
        best = class->best[i] < class->best[best] ? i : best;
    }
    class->choice = best;
    tally__log(
        TALLY_LOG_INFO,
        "messages of %zu KiB to other machines for data like these %zu KiB: %.2f ns per byte "
        "(48 KiB %.2f, 256 KiB %.2f, 1 MiB %.2f)",
        sizes[best] / 1024, bytes / 1024, class->best[best], class->best[0], class->best[1],
        class->best[2]);
}

void tally__message_note(const tally_lane *lane, size_t bytes, uint64_t ns)
{
    struct tally__message_class *class = class_of(lane, bytes);
    double cost = (double)ns / (double)(bytes > 0 ? bytes : 1);
    int at = next_size(class);

    if (lane->group->rank != 0 || !class || class->n_measured == N_MEASURED) {
        return;
    }
    if (class->best[at] == 0 || cost < class->best[at]) {
        class->best[at] = cost;
    }
    if (++class->n_measured == N_MEASURED) {
        choose(class, bytes);
    }
}
