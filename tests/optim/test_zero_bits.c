/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sharded optimizer gives the bits of the plain loop, wait and step, from the first step on: for
 * every optimizer behind every kind of hook, with parameters and gradients in all memories they may
 * lie in. Its state is shared out evenly, and it sends no more than plain all-reduce would.
 */
#include <math.h>
#include <stdio.h>

#include "support/opt_model.h"

#define N_STEPS 10
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const char *const optimizers[] = {
    "sgd:lr=0.1,momentum=0.9,weight_decay=0.01",
    "adam:lr=0.01,amsgrad=1",
    "adamw:lr=0.01",
    "adagrad:lr=0.05,initial=0.1",
    "rmsprop:lr=0.01,centered=1,momentum=0.5",
    "adadelta",
    "adamax",
    "rprop:lr=0.01",
};

/* The bytes of an element on the wire, of hooks that need not send the whole mean. */
static const struct hook {
    const char *text;
    size_t bytes;
} hooks[] = {
    {"allreduce", 4}, {"fp16", 2}, {"bf16", 2}, {"int8", 0}, {"powersgd:rank=2,start=3", 0},
};

/* The memory of gradients and parameters. */
enum memory { VIEWS, COPIES, PROVIDED, N_MEMORIES };

static int start(tally_group *group, const char *optimizer, const char *hook, enum memory memory,
                 bool shard, struct opt_run *run)
{
    tally_optimizer_config config;
    const struct opt_setup setup = {.copies = memory == COPIES,
                                    .provided = memory == PROVIDED,
                                    .hook = hook,
                                    .text = optimizer,
                                    .config = &config};

    tally_optimizer_config_init(&config, sizeof config);
    config.shard = shard;
    return opt_start(group, &setup, run);
}

/* ---- figures ---- */

struct figures {
    int64_t state; /* bytes, added up over the ranks */
    int64_t most;  /* bytes, the most a rank has */
};

static int figures_job(tally_lane *lane, void *user)
{
    struct figures *figures = user;
    int rc = tally_lane_all_reduce(lane, &figures->state, 1, TALLY_I64, TALLY_SUM);

    return rc == TALLY_OK ? tally_lane_all_reduce(lane, &figures->most, 1, TALLY_I64, TALLY_MAX)
                          : rc;
}

/* The largest share of n elements that a rank may have; in cache lines if there are many. */
static size_t share_of(size_t n, size_t world)
{
    size_t unit = n <= 512 ? 1 : 64;

    return ((n + unit - 1) / unit + world - 1) / world * unit;
}

/* State is divided: no rank has more than a share of each bucket. */
static int check_state(const struct opt_run *plain, const struct opt_run *sharded)
{
    tally_group *group = plain->group;
    tally_optimizer_stats whole = {.size = sizeof whole};
    tally_optimizer_stats own = {.size = sizeof own};
    tally_bucket_stats bucket = {.size = sizeof bucket};
    struct figures figures;
    size_t n = 0;
    size_t most = 0;

    CHECK_OK(group, tally_optimizer_get_stats(plain->optimizer, &whole));
    CHECK_OK(group, tally_optimizer_get_stats(sharded->optimizer, &own));
    for (size_t b = 0; tally_ddp_get_bucket_stats(sharded->ddp, b, &bucket) == TALLY_OK; b++) {
        n += bucket.bytes / sizeof(float);
        most += share_of(bucket.bytes / sizeof(float), (size_t)tally_group_size(group));
    }
    figures = (struct figures){(int64_t)own.state_bytes, (int64_t)own.state_bytes};
    CHECK_OK(group, ranks_job(group, 0, figures_job, &figures));
    CHECK(group, (size_t)figures.state == whole.state_bytes);
    CHECK(group, (size_t)figures.most * n <= whole.state_bytes * most);
    return 0;
}

/*
 * Bytes that a rank sends for every bucket: in the first phase the elements it does not own, as the
 * hook encodes them; then the elements it owns, unchanged, to all others.
 */
static int check_bytes(const struct opt_run *plain, const struct opt_run *sharded, size_t bytes)
{
    tally_group *group = plain->group;
    size_t world = (size_t)tally_group_size(group);
    size_t rank = (size_t)tally_group_rank(group);
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_bucket_stats bucket = {.size = sizeof bucket};
    unsigned long long expected = 0;
    unsigned long long all_reduced = 0;

    for (size_t b = 0; tally_ddp_get_bucket_stats(sharded->ddp, b, &bucket) == TALLY_OK; b++) {
        size_t n = bucket.bytes / sizeof(float);
        size_t unit = n <= 512 ? 1 : 64;
        size_t n_units = (n + unit - 1) / unit;
        size_t first = n_units * rank / world * unit;
        size_t end = n_units * (rank + 1) / world * unit;
        size_t own = (end < n ? end : n) - (first < n ? first : n);
        unsigned long long sent = (n - own) * bytes + (world - 1) * own * sizeof(float);

        CHECK(group, bucket.wire_bytes == sent);
        expected += sent;
        all_reduced += n <= 512 ? (world - 1) * n : (n - own) + (world - 1) * own;
    }
    CHECK_OK(group, tally_ddp_get_stats(sharded->ddp, &stats));
    CHECK(group, stats.wire_bytes == expected);
    CHECK(group, expected <= all_reduced * sizeof(float));
    return 0;
}

/* ---- bits ---- */

static int compare(tally_group *group, const char *optimizer, const struct hook *hook,
                   enum memory memory)
{
    struct opt_run plain;
    struct opt_run sharded;

    CHECK_OK(group, start(group, optimizer, hook->text, memory, false, &plain));
    CHECK_OK(group, start(group, optimizer, hook->text, memory, true, &sharded));
    CHECK(group, opt_differ(&plain, &sharded) == 0);
    for (unsigned step = 0; step < N_STEPS; step++) {
        uint64_t before = opt_hash(&sharded);
        double lr = 0.005 * (1 + cos((double)step));

        CHECK_OK(group, tally_optimizer_set_lr(plain.optimizer, -1, lr));
        CHECK_OK(group, tally_optimizer_set_lr(sharded.optimizer, -1, lr));
        CHECK_OK(group, opt_step(&plain, step, 0));
        CHECK_OK(group, tally_optimizer_step(plain.optimizer));
        /* With half of the optimizers, as if no rank could reach another's memory. */
        ranks_stage(group, optimizer[1] == 'd');
        CHECK_OK(group, opt_step(&sharded, step, 0));
        ranks_stage(group, false);
        CHECK(group, opt_differ(&plain, &sharded) == 0);
        CHECK(group, opt_hash(&sharded) != before);
    }
    CHECK_OK(group, check_state(&plain, &sharded));
    if (hook->bytes > 0) {
        CHECK_OK(group, check_bytes(&plain, &sharded, hook->bytes));
    }
    ranks_note(group, 0, opt_hash(&sharded));
    CHECK_OK(group, opt_end(&sharded));
    CHECK_OK(group, opt_end(&plain));
    return 0;
}

/* Every optimizer with every hook; or every hook, and every memory. */
static int bits_body(tally_group *group, void *user)
{
    bool all = user != NULL;

    for (size_t o = 0; o < COUNT(optimizers); o++) {
        for (size_t h = 0; h < COUNT(hooks); h++) {
            enum memory memory = (enum memory)((o + h) % N_MEMORIES);

            if ((all || o == h) && compare(group, optimizers[o], &hooks[h], memory) != 0) {
                (void)fprintf(stderr, "with %s, hook %s, memory %d\n", optimizers[o], hooks[h].text,
                              (int)memory);
                return RANKS_FAILED;
            }
        }
    }
    return 0;
}

int main(void)
{
    static const int three[] = {3, 0};
    static const int others[] = {1, 2, 4, 7, 0};
    int all = 1;
    int n_failures = opt_worlds("all", bits_body, &all, 1, three);

    n_failures += opt_worlds("some", bits_body, NULL, 3, others);
    return n_failures != 0;
}
