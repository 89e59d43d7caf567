/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the size of messages by measuring. Keeps its state in the lane (messages.h). */
#include "exchange/message_size.h"

#include <assert.h>

#include "base/env.h"
#include "base/log.h"
#include "comm/messages.h"
#include "comm/mpi/mpi_messenger.h"
#include "comm/round.h"

/* Memory for messages per lane, at most. */
#define SCRATCH_BYTES ((size_t)32 << 20)
#define LEAST_MESSAGE ((size_t)4096)
#define MOST_MESSAGE ((size_t)1 << 20)
#define FIRST_SIZE 1   /* for data too small to measure, too */
#define N_EACH 3       /* exchanges per size */
#define N_EACH_SHORT 8 /* short ones vary more */
/* Exchanges per size that are not measured: the first short messages touch new memory, ours and
 * MPI's, and many messages touch more of it. */
#define N_COLD_SHORT 6

/* Small messages are fast on a slow line, where Open MPI's large ones reach half of it; large ones
 * on a fast fabric, and with MPICH. */
static const size_t sizes[TALLY__N_MESSAGE_SIZES] = {(size_t)48 << 10, (size_t)256 << 10,
                                                     MOST_MESSAGE};

/* A whole line, and just below the lengths up to which MPICH and Open MPI send at once. */
static const size_t parts[TALLY__N_MESSAGE_SIZES] = {TALLY__LINES_BYTES, 8000, 4032};

/* The best size also depends on the length of the data, because of caches and the pipeline's ends:
 * each class of lengths chooses for itself. */
static const struct {
    size_t least;
    size_t most;
    const size_t *sizes;
    int first;
    int n_each;
    int n_cold;
} classes[TALLY__N_MESSAGE_CLASSES] = {
    {TALLY__LEAST_PARTED, 6 << 10, parts, 0, N_EACH_SHORT, N_COLD_SHORT},
    {6 << 10, 12 << 10, parts, 0, N_EACH_SHORT, N_COLD_SHORT},
    {12 << 10, 24 << 10, parts, 0, N_EACH_SHORT, N_COLD_SHORT},
    {24 << 10, 40 << 10, parts, 0, N_EACH_SHORT, N_COLD_SHORT},
    {64 << 10, 384 << 10, sizes, FIRST_SIZE, N_EACH_SHORT, 0},
    {512 << 10, 2 << 20, sizes, FIRST_SIZE, N_EACH_SHORT, 0},
    {2 << 20, 8 << 20, sizes, FIRST_SIZE, N_EACH, 0},
    {8 << 20, 32 << 20, sizes, FIRST_SIZE, N_EACH, 0},
    {32 << 20, SIZE_MAX, sizes, FIRST_SIZE, N_EACH, 0},
};

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

/* The class of data of this length that has these sizes; -1: none, its messages are not measured.
 */
static int class_of(size_t bytes, const size_t *these)
{
    for (int i = 0; i < TALLY__N_MESSAGE_CLASSES; i++) {
        if (classes[i].sizes == these && bytes >= classes[i].least && bytes < classes[i].most) {
            return i;
        }
    }
    return -1;
}

static struct tally__message_class *state_of(const tally_lane *lane, int class)
{
    return &far_of(lane)->classes[class];
}

static bool is_measured(const tally_lane *lane, int class)
{
    return state_of(lane, class)->n_exchanges ==
           TALLY__N_MESSAGE_SIZES * (classes[class].n_cold + classes[class].n_each);
}

static bool is_cold(const tally_lane *lane, int class)
{
    return state_of(lane, class)->n_exchanges < TALLY__N_MESSAGE_SIZES * classes[class].n_cold;
}

/* The index of the size to use next. */
static int next_size(const tally_lane *lane, int class)
{
    const struct tally__message_class *state = state_of(lane, class);

    return is_measured(lane, class)
               ? state->choice
               : (state->n_exchanges + classes[class].first) % TALLY__N_MESSAGE_SIZES;
}

uint64_t tally__message_propose(const tally_lane *lane, size_t bytes)
{
    size_t most = tally__message_most(lane->group);
    int class = class_of(bytes, sizes);
    size_t wanted = sizes[class < 0 ? FIRST_SIZE : next_size(lane, class)];
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

/* The median: one exchange may be slow by chance, or fast because the other ranks came before. */
static double cost_of(const struct tally__message_class *state, int size)
{
    int n = state->of[size].n;

    assert(n > 0);
    return (double)state->of[size].ns[(n - 1) / 2];
}

static void choose(const tally_lane *lane, int class, size_t bytes)
{
    struct tally__message_class *state = state_of(lane, class);
    const size_t *from = classes[class].sizes;
    int best = 0;

    for (int i = 1; i < TALLY__N_MESSAGE_SIZES; i++) {
        best = cost_of(state, i) < cost_of(state, best) ? i : best;
    }
    state->choice = best;
    tally__log(TALLY_LOG_INFO,
               "messages of %zu bytes to other machines for data like these %zu: %.2f ns per byte "
               "(%zu: %.2f, %zu: %.2f, %zu: %.2f)",
               from[best], bytes, cost_of(state, best), from[0], cost_of(state, 0), from[1],
               cost_of(state, 1), from[2], cost_of(state, 2));
}

/* Rank 0 has measured the size with this index. */
static void note(const tally_lane *lane, int class, int at, size_t bytes, uint64_t ns)
{
    struct tally__message_class *state = state_of(lane, class);
    float cost = (float)ns / (float)bytes;
    float *costs = state->of[at].ns;
    int i;

    if (is_cold(lane, class)) {
        state->n_exchanges++;
        return;
    }
    i = state->of[at].n++;
    assert(i < TALLY__MOST_MEASURED);
    for (; i > 0 && costs[i - 1] > cost; i--) {
        costs[i] = costs[i - 1];
    }
    costs[i] = cost;
    state->n_exchanges++;
    if (is_measured(lane, class)) {
        choose(lane, class, bytes);
    }
}

void tally__message_note(const tally_lane *lane, size_t bytes, uint64_t ns)
{
    int class = class_of(bytes, sizes);

    if (lane->group->rank == 0 && class >= 0 && !is_measured(lane, class)) {
        note(lane, class, next_size(lane, class), bytes, ns);
    }
}

uint64_t tally__parts_choose(const tally_lane *lane, size_t bytes)
{
    int class = class_of(bytes, parts);

    far_of(lane)->part_bytes = class < 0 ? TALLY__LINES_BYTES : parts[state_of(lane, class)->part];
    return class < 0 ? 0 : (uint64_t)next_size(lane, class);
}

void tally__parts_note(const tally_lane *lane, size_t bytes, uint64_t ns)
{
    int class = class_of(bytes, parts);
    uint64_t next = tally__said(lane, 0)->word;

    if (class < 0) {
        return;
    }
    if (lane->group->rank == 0 && !is_measured(lane, class)) {
        note(lane, class, state_of(lane, class)->part, bytes, ns);
    }
    state_of(lane, class)->part = next < TALLY__N_MESSAGE_SIZES ? (int)next : 0;
}
