/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings of events. A ring belongs to one thread, which alone puts events into it; one reader per
 * tracer takes them out. Rings are never freed: all of them are in one list that only grows, and a
 * thread that ends leaves its ring to the next one. At most N_RINGS exist; threads beyond put
 * nothing.
 *
 * An event is four words. The writer stores them, and then the number of events. The reader copies
 * words and then looks at the number again: it keeps an event only if the writer cannot have begun
 * to overwrite it. All words are atomic; release stores pair with acquire loads, so a reader that
 * sees a new word also sees the number that was stored before it.
 */
#include "trace/ring.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

#define N_RINGS 512
#define N_WORDS (sizeof(struct tally__trace_event) / sizeof(uint64_t))
#define NAME_WORDS (sizeof((struct tally__trace_thread *)NULL)->name / sizeof(uint64_t))
#define N_PHASES (TALLY__EVENT_DECODE - TALLY__EVENT_ENCODE + 1)

/* The ring is free; a thread writes to it; a thread is about to. */
enum ring_state { FREE, OWNED, CHANGING };

struct tally__ring {
    _Alignas(64) _Atomic uint64_t n_put;
    _Alignas(64) _Atomic uint64_t n_taken;
    _Atomic uint64_t tracer;
    _Atomic uint64_t n_before; /* events of threads that had the ring before */
    _Atomic uint64_t thread;
    _Atomic uint32_t state; /* enum ring_state */
    _Atomic uint64_t name[NAME_WORDS];
    struct tally__ring *next; /* never changes */
    _Alignas(64) _Atomic uint64_t words[TALLY__RING_EVENTS][N_WORDS];
};

struct phase {
    uint64_t first_ns;
    uint64_t sum_ns;
};

/* The state of one thread. */
struct here {
    uint64_t tracer; /* that ring is for; 0: none yet */
    struct tally__ring *ring;
    int lane; /* 1 + the number of its lane; 0: not a lane thread */
    bool counts;
    struct tally__phases_of of;
    enum tally__trace_event_kind phase;
    uint64_t since_ns;
    uint64_t longest_ns; /* wait for one rank */
    int longest_rank;
    struct tally__status_entry *status;
    struct phase phases[N_PHASES];
};

static _Thread_local struct here here;

static _Atomic(struct tally__ring *) rings;
static atomic_int n_rings;
static atomic_int n_keepers;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

static uint64_t thread_number(void)
{
    return (uint64_t)syscall(SYS_gettid);
}

/* ---- taking and leaving rings ---- */

static struct tally__ring *first_ring(void)
{
    /* Partner: the exchange in make_ring. */
    return atomic_load_explicit(&rings, memory_order_acquire);
}

/* A thread ends: its rings are free. */
static void leave_rings(void *unused)
{
    uint64_t thread = thread_number();

    (void)unused;
    for (struct tally__ring *ring = first_ring(); ring; ring = ring->next) {
        uint32_t owned = OWNED;

        if (atomic_load_explicit(&ring->thread, memory_order_relaxed) == thread) {
            /* Partner: the exchange in take_ring. */
            (void)atomic_compare_exchange_strong_explicit(
                &ring->state, &owned, FREE, memory_order_release, memory_order_relaxed);
        }
    }
    here = (struct here){0};
}

static void make_key(void)
{
    has_key = pthread_key_create(&key, leave_rings) == 0;
}

/* Whether the events in a free ring are still to be written. */
static bool is_kept(const struct tally__ring *ring)
{
    return atomic_load_explicit(&n_keepers, memory_order_relaxed) > 0 &&
           atomic_load_explicit(&ring->n_put, memory_order_relaxed) >
               atomic_load_explicit(&ring->n_taken, memory_order_relaxed);
}

static struct tally__ring *make_ring(void)
{
    struct tally__ring *ring;

    if (atomic_fetch_add_explicit(&n_rings, 1, memory_order_relaxed) >= N_RINGS) {
        atomic_fetch_sub_explicit(&n_rings, 1, memory_order_relaxed);
        return NULL;
    }
    ring = mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED) {
        atomic_fetch_sub_explicit(&n_rings, 1, memory_order_relaxed);
        return NULL;
    }
    atomic_store_explicit(&ring->state, CHANGING, memory_order_relaxed);
    ring->next = first_ring();
    while (!atomic_compare_exchange_weak_explicit(&rings, &ring->next, ring, memory_order_acq_rel,
                                                  memory_order_acquire)) {
    }
    return ring;
}

/* A free ring, in state CHANGING. If too many wait to be written, their events are lost. */
static struct tally__ring *take_ring(void)
{
    struct tally__ring *made;

    for (int loses = 0; loses < 2; loses++) {
        for (struct tally__ring *ring = first_ring(); ring; ring = ring->next) {
            uint32_t is_free = FREE;

            /* Partner: the exchange in leave_rings. */
            if (atomic_load_explicit(&ring->state, memory_order_relaxed) == FREE &&
                (loses || !is_kept(ring)) &&
                atomic_compare_exchange_strong_explicit(
                    &ring->state, &is_free, CHANGING, memory_order_acquire, memory_order_relaxed)) {
                return ring;
            }
        }
        made = make_ring();
        if (made) {
            return made;
        }
    }
    return NULL;
}

static void name_ring(struct tally__ring *ring, uint8_t ddp, uint64_t thread)
{
    char name[sizeof(uint64_t) * NAME_WORDS] = "main";
    uint64_t words[NAME_WORDS];

    if (here.lane > 0) {
        (void)snprintf(name, sizeof name, "lane %d of %s%.0d", here.lane - 1,
                       ddp ? "ddp " : "the application", ddp);
    } else if (thread != (uint64_t)getpid()) {
        (void)snprintf(name, sizeof name, "thread %llu", (unsigned long long)thread);
    }
    memcpy(words, name, sizeof words);
    for (size_t i = 0; i < NAME_WORDS; i++) {
        atomic_store_explicit(&ring->name[i], words[i], memory_order_relaxed);
    }
}

/* The ring that this thread already has for the tracer, or NULL. */
static struct tally__ring *known_ring(uint64_t tracer, uint64_t thread)
{
    for (struct tally__ring *ring = first_ring(); ring; ring = ring->next) {
        if (atomic_load_explicit(&ring->thread, memory_order_relaxed) == thread &&
            atomic_load_explicit(&ring->tracer, memory_order_relaxed) == tracer &&
            atomic_load_explicit(&ring->state, memory_order_relaxed) == OWNED) {
            return ring;
        }
    }
    return NULL;
}

/* This thread's first event for a tracer. */
static void find_ring(uint64_t tracer, uint8_t ddp)
{
    uint64_t thread = thread_number();
    struct tally__ring *ring = known_ring(tracer, thread);

    here.tracer = tracer;
    if (!ring) {
        ring = take_ring();
        (void)pthread_once(&key_once, make_key);
        if (ring && has_key) {
            (void)pthread_setspecific(key, ring);
        }
        if (ring) {
            uint64_t n = atomic_load_explicit(&ring->n_put, memory_order_relaxed);

            name_ring(ring, ddp, thread);
            atomic_store_explicit(&ring->thread, thread, memory_order_relaxed);
            atomic_store_explicit(&ring->n_taken, n, memory_order_relaxed);
            atomic_store_explicit(&ring->n_before, n, memory_order_relaxed);
            /* Partner: the load in is_of. */
            atomic_store_explicit(&ring->tracer, tracer, memory_order_release);
            atomic_store_explicit(&ring->state, OWNED, memory_order_release);
        }
    }
    here.ring = ring;
}

void tally__ring_name_lane(int lane)
{
    here.lane = lane + 1;
}

void tally__rings_release(uint64_t tracer)
{
    for (struct tally__ring *ring = first_ring(); ring; ring = ring->next) {
        uint32_t owned = OWNED;

        if (atomic_load_explicit(&ring->tracer, memory_order_relaxed) == tracer) {
            atomic_store_explicit(&ring->n_taken,
                                  atomic_load_explicit(&ring->n_put, memory_order_relaxed),
                                  memory_order_relaxed);
            /* Its thread puts no more events for this tracer, so the ring may change hands. */
            (void)atomic_compare_exchange_strong_explicit(
                &ring->state, &owned, FREE, memory_order_release, memory_order_relaxed);
        }
    }
}

void tally__rings_keep(bool more)
{
    atomic_fetch_add_explicit(&n_keepers, more ? 1 : -1, memory_order_relaxed);
}

/* ---- events ---- */

void tally__event_put(uint64_t tracer, const struct tally__trace_event *event)
{
    uint64_t words[N_WORDS];
    struct tally__ring *ring;
    uint64_t n;

    if (tracer == 0) {
        return;
    }
    if (here.tracer != tracer) {
        find_ring(tracer, event->ddp);
    }
    ring = here.ring;
    if (!ring) {
        return;
    }
    memcpy(words, event, sizeof words);
    n = atomic_load_explicit(&ring->n_put, memory_order_relaxed);
    /* Partners: the loads in copy_event. */
    for (size_t i = 0; i < N_WORDS; i++) {
        atomic_store_explicit(&ring->words[n % TALLY__RING_EVENTS][i], words[i],
                              memory_order_release);
    }
    atomic_store_explicit(&ring->n_put, n + 1, memory_order_release);
    /* Events of two steps are further apart than the caches keep lines. */
    __builtin_prefetch(&ring->words[(n + 3) % TALLY__RING_EVENTS], 1);
}

/* ---- phases ---- */

void tally__phases_begin(const struct tally__phases_of *of)
{
    here.of = *of;
    here.phase = TALLY__EVENT_NONE;
    here.longest_ns = 0;
    here.longest_rank = TALLY__NO_PEER;
    memset(here.phases, 0, sizeof here.phases);
    here.counts = of->tracer != 0;
}

/* The phase under way ends, and another begins. */
static void change_phase(enum tally__trace_event_kind phase, uint64_t now_ns)
{
    if (here.phase != TALLY__EVENT_NONE) {
        here.phases[here.phase - TALLY__EVENT_ENCODE].sum_ns += now_ns - here.since_ns;
    }
    if (phase != TALLY__EVENT_NONE && here.phases[phase - TALLY__EVENT_ENCODE].first_ns == 0) {
        here.phases[phase - TALLY__EVENT_ENCODE].first_ns = now_ns;
    }
    here.phase = phase;
    here.since_ns = now_ns;
}

enum tally__trace_event_kind tally__phase(enum tally__trace_event_kind phase)
{
    enum tally__trace_event_kind before = here.phase;

    if (here.counts && phase != before) {
        change_phase(phase, tally__now_ns());
    }
    return before;
}

void tally__waits_show(struct tally__status_entry *entry)
{
    here.status = entry;
}

struct tally__phase_wait tally__phase_wait_begin(int rank)
{
    struct tally__phase_wait wait = {.before = tally__phase(TALLY__EVENT_WAIT_RANK), .rank = rank};

    wait.begin_ns = here.since_ns;
    if (here.status) {
        atomic_store_explicit(&here.status->waits_since_ns,
                              here.counts ? wait.begin_ns : tally__now_ns(), memory_order_relaxed);
        atomic_store_explicit(&here.status->waits_for, rank, memory_order_relaxed);
    }
    return wait;
}

uint64_t tally__phase_wait_end(const struct tally__phase_wait *wait)
{
    uint64_t ns = 0;

    if (here.status) {
        atomic_store_explicit(&here.status->waits_for, TALLY__NO_PEER, memory_order_relaxed);
    }
    if (here.counts) {
        (void)tally__phase(wait->before);
        ns = here.since_ns - wait->begin_ns;
        if (ns > here.longest_ns) {
            here.longest_ns = ns;
            here.longest_rank = wait->rank;
        }
    }
    return ns;
}

uint64_t tally__phases_end(void)
{
    uint64_t now_ns = tally__now_ns();

    if (here.counts) {
        change_phase(TALLY__EVENT_NONE, now_ns);
    }
    here.counts = false;
    for (int i = 0; i < N_PHASES; i++) {
        int kind = TALLY__EVENT_ENCODE + i;

        if (here.phases[i].first_ns > 0) {
            tally__event_put(
                here.of.tracer,
                &(struct tally__trace_event){
                    .begin_ns = here.phases[i].first_ns,
                    .end_ns = here.phases[i].first_ns + here.phases[i].sum_ns,
                    .step = here.of.step,
                    .peer = kind == TALLY__EVENT_WAIT_RANK ? here.longest_rank : TALLY__NO_PEER,
                    .bucket = here.of.bucket,
                    .kind = (uint8_t)kind,
                    .ddp = here.of.ddp});
        }
    }
    return now_ns;
}

/* ---- reading ---- */

/* After the number of events was read: whether they are the tracer's. */
static bool is_of(const struct tally__ring *ring, uint64_t tracer)
{
    return atomic_load_explicit(&ring->tracer, memory_order_acquire) == tracer;
}

struct tally__ring *tally__ring_next(uint64_t tracer, const struct tally__ring *after)
{
    struct tally__ring *ring = after ? after->next : first_ring();

    while (ring && !is_of(ring, tracer)) {
        ring = ring->next;
    }
    return ring;
}

static void copy_event(const struct tally__ring *ring, uint64_t n, struct tally__trace_event *event)
{
    uint64_t words[N_WORDS] = {0};

    /* Partners: the stores in tally__event_put. */
    for (size_t i = 0; i < N_WORDS; i++) {
        words[i] =
            atomic_load_explicit(&ring->words[n % TALLY__RING_EVENTS][i], memory_order_acquire);
    }
    memcpy(event, words, sizeof words);
}

/* The first event that cannot be in the middle of being overwritten, now. */
static uint64_t first_intact(const struct tally__ring *ring)
{
    uint64_t n_put = atomic_load_explicit(&ring->n_put, memory_order_acquire);

    return n_put >= TALLY__RING_EVENTS ? n_put - TALLY__RING_EVENTS + 1 : 0;
}

/* Copies events from *first on, before end; *first moves past those that were overwritten
 * meanwhile. */
static size_t copy_events(const struct tally__ring *ring, uint64_t *first, uint64_t end,
                          struct tally__trace_event *events)
{
    uint64_t begin = *first;
    uint64_t intact;

    for (uint64_t n = begin; n < end; n++) {
        copy_event(ring, n, &events[n - begin]);
    }
    intact = first_intact(ring);
    if (intact > begin) {
        *first = intact < end ? intact : end;
        memmove(events, events + (*first - begin), (size_t)(end - *first) * sizeof *events);
    }
    return (size_t)(end - *first);
}

size_t tally__ring_take(struct tally__ring *ring, size_t n, struct tally__trace_event *events,
                        uint64_t *lost)
{
    uint64_t begin = atomic_load_explicit(&ring->n_taken, memory_order_relaxed);
    uint64_t next = begin;
    size_t n_copied = tally__ring_copy(ring, &next, n, events);

    *lost = next - begin - n_copied;
    atomic_store_explicit(&ring->n_taken, next, memory_order_relaxed);
    return n_copied;
}

uint64_t tally__ring_back(const struct tally__ring *ring, size_t n)
{
    uint64_t end = atomic_load_explicit(&ring->n_put, memory_order_acquire);
    uint64_t before = atomic_load_explicit(&ring->n_before, memory_order_relaxed);
    uint64_t first = first_intact(ring);

    first = first > before ? first : before;
    return end - first > n ? end - n : first;
}

size_t tally__ring_copy(const struct tally__ring *ring, uint64_t *next, size_t n,
                        struct tally__trace_event *events)
{
    uint64_t end = atomic_load_explicit(&ring->n_put, memory_order_acquire);
    uint64_t first = first_intact(ring);
    size_t n_copied;

    first = first > *next ? first : *next;
    end = end - first > n ? first + n : end;
    n_copied = copy_events(ring, &first, end, events);
    *next = end;
    return n_copied;
}

void tally__ring_thread(const struct tally__ring *ring, struct tally__trace_thread *thread)
{
    uint64_t words[NAME_WORDS] = {0};

    for (size_t i = 0; i < NAME_WORDS; i++) {
        words[i] = atomic_load_explicit(&ring->name[i], memory_order_relaxed);
    }
    memcpy(thread->name, words, sizeof words);
    thread->name[sizeof thread->name - 1] = '\0';
    thread->thread = atomic_load_explicit(&ring->thread, memory_order_relaxed);
}
