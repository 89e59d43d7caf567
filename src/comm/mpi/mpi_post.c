/* SPDX-License-Identifier: Apache-2.0 */
/* The post of an MPI domain. Knows messages and mirrors; nothing of rounds. */
#include "comm/mpi/mpi_post.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define MAGIC 0x796c6c74u
/* Messages taken in one go: others want the lock too. */
#define MOST_AT_ONCE 32

/* The header of a message. */
struct head {
    uint32_t magic;
    uint32_t flag;
    uint64_t offset;
    uint64_t flag_offset;
    uint64_t bytes;
};

#define LONG_BYTES (sizeof(struct head) + TALLY__POST_BYTES)

_Static_assert(sizeof(struct head) % 16 == 0, "the payload is aligned");

struct tally__post_out {
    struct tally__post_out *next;
    struct tally__mpi_handle request;
    bool is_long;
    size_t bytes; /* of the message under way */
    _Alignas(16) unsigned char message[];
};

static int break_post(struct tally__post *post, const char *what)
{
    if (!post->is_broken) {
        post->is_broken = true;
        (void)snprintf(post->why, sizeof post->why, "%s", what);
    }
    return tally__fail(TALLY_SYSTEM, "%s: %s", post->api->name, post->why);
}

static int check(struct tally__post *post)
{
    return post->is_broken ? break_post(post, "") : TALLY_OK;
}

/* ---- sending ---- */

static struct tally__post_out *make_out(bool is_long)
{
    size_t bytes = is_long ? TALLY__POST_BYTES : TALLY__POST_WORD_BYTES;
    struct tally__post_out *out =
        tally__alloc(sizeof *out + sizeof(struct head) + bytes, "a message");

    if (out) {
        out->is_long = is_long;
    }
    return out;
}

/* There are as many long ones as have been made at the beginning. */
static struct tally__post_out *take_out(struct tally__post *post, bool is_long)
{
    struct tally__post_out **list = is_long ? &post->free_long : &post->free_short;
    struct tally__post_out *out = *list;

    if (!out) {
        return is_long ? NULL : make_out(false);
    }
    *list = out->next;
    return out;
}

static void give_back(struct tally__post *post, struct tally__post_out *out)
{
    struct tally__post_out **list = out->is_long ? &post->free_long : &post->free_short;

    out->next = *list;
    *list = out;
}

/* Takes back what MPI has done with. */
static int reap(struct tally__post *post, struct tally__post_list *list, size_t *moved)
{
    while (list->first) {
        struct tally__post_out *out = list->first;
        struct tally__mpi_status status;

        if (post->api->test(&out->request, &status) != 0) {
            return break_post(post, post->api->error());
        }
        if (!status.is_done) {
            break;
        }
        list->first = out->next;
        list->n--;
        post->n_under_way--;
        *moved += out->bytes;
        give_back(post, out);
    }
    return TALLY_OK;
}

/* Sends the first bytes of put in one message, the flag with the last of them. */
static int send_first(struct tally__post *post, int rank, const unsigned char *own, size_t bytes,
                      struct tally__put *put)
{
    struct tally__post_peer *peer = &post->peers[rank];
    struct tally__post_out *out = take_out(post, bytes > TALLY__POST_WORD_BYTES);
    struct tally__post_list *list;
    const struct head head = {
        .magic = MAGIC,
        .flag = put->flag,
        .offset = put->offset,
        .flag_offset = bytes == put->bytes ? put->flag_offset : TALLY__NO_FLAG,
        .bytes = bytes,
    };

    if (!out) {
        return TALLY_NOMEM;
    }
    memcpy(out->message, &head, sizeof head);
    memcpy(out->message + sizeof head, own + put->offset, bytes);
    if (post->api->send(&post->comm, rank, out->message, sizeof head + bytes, put->is_awaited,
                        &out->request) != 0) {
        give_back(post, out);
        return break_post(post, post->api->error());
    }
    out->bytes = sizeof head + bytes;
    list = out->is_long ? &peer->longs : &peer->shorts;
    out->next = NULL;
    if (list->first) {
        list->last->next = out;
    } else {
        list->first = out;
    }
    list->last = out;
    list->n++;
    post->n_under_way++;
    put->offset += bytes;
    put->bytes -= bytes;
    return TALLY_OK;
}

int tally__post_put(struct tally__post *post, int rank, const unsigned char *own,
                    struct tally__put *put)
{
    struct tally__post_peer *peer = &post->peers[rank];
    size_t moved = 0;

    TRY(check(post));
    if (put->bytes <= TALLY__POST_WORD_BYTES) {
        TRY(post->free_short ? TALLY_OK : reap(post, &peer->shorts, &moved));
        return send_first(post, rank, own, put->bytes, put);
    }
    if (peer->longs.n == TALLY__POST_WINDOW) {
        TRY(reap(post, &peer->longs, &moved));
    }
    while (put->bytes > 0 && peer->longs.n < TALLY__POST_WINDOW && post->free_long) {
        TRY(send_first(post, rank, own,
                       put->bytes < TALLY__POST_BYTES ? put->bytes : TALLY__POST_BYTES, put));
    }
    return TALLY_OK;
}

/* ---- receiving ---- */

static bool is_in_map(const struct tally__post *post, uint64_t offset, uint64_t bytes)
{
    return offset <= post->map_bytes && bytes <= post->map_bytes - offset;
}

/* Whether a message has the form that this version of tally gives it. */
static bool is_sound(const struct tally__post *post, const struct head *head,
                     const struct tally__mpi_status *status)
{
    if (status->bytes < (int)sizeof *head || status->source < 0 ||
        status->source >= post->n_ranks || head->magic != MAGIC ||
        head->bytes != (uint64_t)status->bytes - sizeof *head) {
        return false;
    }
    return is_in_map(post, head->offset, head->bytes) &&
           (head->flag_offset == TALLY__NO_FLAG ||
            (head->flag_offset % sizeof head->flag == 0 &&
             is_in_map(post, head->flag_offset, sizeof head->flag)));
}

static int deliver(struct tally__post *post, const unsigned char *message,
                   const struct tally__mpi_status *status)
{
    unsigned char *mirror;
    struct head head = {0};

    if (status->bytes >= (int)sizeof head) {
        memcpy(&head, message, sizeof head);
    }
    if (!is_sound(post, &head, status)) {
        return break_post(post, "a message came that is not one of this version of tally");
    }
    mirror = (unsigned char *)post->base[status->source]; // NOLINT(performance-no-int-to-ptr)
    memcpy(mirror + head.offset, message + sizeof head, head.bytes);
    if (head.flag_offset != TALLY__NO_FLAG) {
        _Atomic uint32_t *word = (_Atomic uint32_t *)(void *)(mirror + head.flag_offset);

        /* Partner: whoever waits for this word, in wait.h and wait.c, as if its owner had stored
         * it. */
        atomic_store_explicit(word, head.flag, memory_order_release);
    }
    return TALLY_OK;
}

static int stand_ready(struct tally__post *post, struct tally__post_in *in)
{
    return post->api->receive(&post->comm, in->message, LONG_BYTES, &in->request) == 0
               ? TALLY_OK
               : break_post(post, post->api->error());
}

/* Receives stand in a ring, and messages of one rank match them in order: looking at the first
 * alone keeps the order. */
static int take_in(struct tally__post *post, size_t *moved)
{
    for (int i = 0; i < MOST_AT_ONCE; i++) {
        struct tally__post_in *in = &post->in[post->next_in];
        struct tally__mpi_status status;

        if (post->api->test(&in->request, &status) != 0) {
            return break_post(post, post->api->error());
        }
        if (!status.is_done) {
            break;
        }
        *moved += (size_t)status.bytes;
        TRY(deliver(post, in->message, &status));
        TRY(stand_ready(post, in));
        post->next_in = (post->next_in + 1) % TALLY__POST_RECEIVES;
    }
    return TALLY_OK;
}

int tally__post_progress(struct tally__post *post, size_t *moved)
{
    TRY(check(post));
    if (post->n_ranks == 1) {
        return TALLY_OK;
    }
    for (int r = 0; post->n_under_way > 0 && r < post->n_ranks; r++) {
        TRY(reap(post, &post->peers[r].longs, moved));
        TRY(reap(post, &post->peers[r].shorts, moved));
    }
    return take_in(post, moved);
}

/* ---- beginning and end ---- */

static int make_outs(struct tally__post *post)
{
    int n_peers = post->n_ranks - 1;
    int n_long = n_peers * TALLY__POST_WINDOW;

    int n_short = n_peers * TALLY__POST_SHORTS;

    n_long = n_long < TALLY__POST_LONGS ? n_long : TALLY__POST_LONGS;
    n_short = n_short < TALLY__POST_MOST_SHORTS ? n_short : TALLY__POST_MOST_SHORTS;
    for (int i = 0; i < n_long + n_short; i++) {
        struct tally__post_out *out = make_out(i < n_long);

        if (!out) {
            return TALLY_NOMEM;
        }
        give_back(post, out);
    }
    return TALLY_OK;
}

int tally__post_begin(struct tally__post *post)
{
    post->peers = tally__alloc_array((size_t)post->n_ranks, sizeof *post->peers, "MPI's peers");
    if (!post->peers) {
        return TALLY_NOMEM;
    }
    TRY(make_outs(post));
    for (int i = 0; post->n_ranks > 1 && i < TALLY__POST_RECEIVES; i++) {
        post->in[i].message = tally__alloc(LONG_BYTES, "a message");
        if (!post->in[i].message) {
            return TALLY_NOMEM;
        }
        if (stand_ready(post, &post->in[i]) != TALLY_OK) {
            tally__free(post->in[i].message);
            post->in[i].message = NULL;
            return TALLY_SYSTEM;
        }
    }
    return TALLY_OK;
}

static void free_list(struct tally__post_out *out)
{
    while (out) {
        struct tally__post_out *next = out->next;

        tally__free(out);
        out = next;
    }
}

void tally__post_end(struct tally__post *post)
{
    for (int i = 0; i < TALLY__POST_RECEIVES; i++) {
        struct tally__post_in *in = &post->in[i];

        if (in->message && !post->is_broken && post->api->cancel(&in->request) == 0) {
            tally__free(in->message);
        }
        in->message = NULL;
    }
    free_list(post->free_long);
    free_list(post->free_short);
    post->free_long = NULL;
    post->free_short = NULL;
    tally__free(post->peers);
    post->peers = NULL;
}
