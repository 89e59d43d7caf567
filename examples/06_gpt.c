/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains a small transformer to predict the next byte of a text, on all ranks. Each rank takes its
 * part of the batch, so any number of ranks reaches the loss that one rank would. Run it with
 *
 *     tally run -n 2 build/examples/06_gpt --hook bf16 --steps 200
 *
 * AdamW runs on a lane, bucket by bucket, while backward is still running. With --checkpoint DIR
 * and `tally run --max-restarts 1` a rank may be killed at any time: the job continues from the
 * last checkpoint with the same bits. The model is in gpt_model.c; this file is what a training
 * program does with tally.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tally.h>
#include <time.h>

#include "examples/gpt/gpt_model.h"
#include "examples/gpt/gpt_options.h"

/* The state of a rank. */
struct trainer {
    tally_group *group;
    int rank, size;
    struct gpt gpt;
    float *masters; /* the trained values: those of the model, or with --mixed their fp32 masters */
    float *grads;   /* with --mixed: the fp32 gradients of backward, before the cast to bf16 */
    unsigned char *text;
    size_t n_text;
    int token_of[256], n_tokens;
    unsigned char byte_of[256];
    int *tokens, *next;
    tally_ddp *ddp;
    tally_averager *averager;
    tally_optimizer *optimizer;
    long step;
};

/* Reads the text, and makes a token for every byte that occurs in it. */
static int read_text(struct trainer *t)
{
    FILE *file = fopen(gpt_options.text, "rb");
    long bytes = -1;

    if (!file) {
        return gpt_complain(gpt_options.text, "cannot be read");
    }
    if (fseek(file, 0, SEEK_END) == 0) {
        bytes = ftell(file);
        rewind(file);
    }
    t->text = bytes > 0 ? malloc((size_t)bytes) : NULL;
    t->n_text = t->text ? fread(t->text, 1, (size_t)bytes, file) : 0;
    (void)fclose(file);
    if (t->n_text < (size_t)gpt_options.context + 2) {
        return gpt_complain(gpt_options.text, "is too short for --context, or cannot be read");
    }
    for (size_t k = 0; k < t->n_text; k++) {
        t->token_of[t->text[k]] = 1;
    }
    for (int byte = 0; byte < 256; byte++) {
        if (t->token_of[byte]) {
            t->byte_of[t->n_tokens] = (unsigned char)byte;
            t->token_of[byte] = t->n_tokens++;
        }
    }
    return 0;
}

/* Picks this rank's part of the batch. The batch of a step does not depend on the number of ranks.
 */
static void pick_batch(struct trainer *t)
{
    long context = gpt_options.context, part = gpt_options.batch / t->size;

    for (long s = 0; s < part; s++) {
        long number = t->step * gpt_options.batch + t->rank * part + s;
        unsigned long long at = (unsigned long long)number;

        at = (at + (unsigned long long)gpt_options.seed * 0x9e3779b9) * 0x9e3779b97f4a7c15;
        at = (at ^ at >> 32) * 0xd6e8feb86659fd93 >> 16;
        at %= t->n_text - (size_t)context;
        for (long k = 0; k < context; k++) {
            t->tokens[s * context + k] = t->token_of[t->text[at + (size_t)k]];
            t->next[s * context + k] = t->token_of[t->text[at + (size_t)k + 1]];
        }
    }
}

/* ---- bf16 is the upper half of an fp32 ---- */

static void widen(size_t n, const unsigned short *low, float *wide)
{
    for (size_t k = 0; k < n; k++) {
        unsigned bits = (unsigned)low[k] << 16;
        memcpy(&wide[k], &bits, sizeof bits);
    }
}

static void narrow(size_t n, const float *wide, unsigned short *low)
{
    for (size_t k = 0; k < n; k++) {
        unsigned bits;
        memcpy(&bits, &wide[k], sizeof bits);
        low[k] = (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

/* ---- a step ---- */

/* Backward calls this when a gradient is complete; from here on it travels. */
static int ready(void *user, int i)
{
    struct trainer *t = user;

    if (gpt_options.mixed) {
        narrow(t->gpt.tensors[i].n, t->gpt.tensors[i].grad, tally_ddp_grad(t->ddp, i));
    }
    return tally_ddp_grad_ready(t->ddp, i);
}

/* Learning rate: rises in the first twentieth of the steps, then falls like a cosine. */
static double rate_of(long step)
{
    double done = (double)(step + 1) / (double)gpt_options.steps;

    return gpt_options.lr * (done < 0.05 ? done / 0.05 : 0.55 + 0.45 * cos(3.14159265 * done));
}

static int train_step(struct trainer *t, double *loss)
{
    int rc = tally_optimizer_set_lr(t->optimizer, -1, rate_of(t->step));

    pick_batch(t);
    for (int i = 0; i < t->gpt.n_tensors; i++) {
        struct gpt_tensor *tensor = &t->gpt.tensors[i];

        if (gpt_options.mixed) {
            widen(tensor->n, tally_ddp_low(t->ddp, i), tensor->value);
        }
        memset(tensor->grad, 0, tensor->n * sizeof *tensor->grad);
    }
    *loss = gpt_forward(&t->gpt, t->tokens, t->next);
    if (rc == TALLY_OK) {
        rc = gpt_backward(&t->gpt, ready, t);
    }
    /* When this returns, the gradients are means and AdamW has made its step. */
    return rc == TALLY_OK ? tally_ddp_wait(t->ddp) : rc;
}

/* ---- checkpoints ---- */

/* The state that tally does not know: the step, from which every batch follows. */
static tally_checkpoint_config checkpoint_of(struct trainer *t, tally_checkpoint_blob *blob)
{
    tally_checkpoint_config config;

    tally_checkpoint_config_init(&config, sizeof config);
    *blob = (tally_checkpoint_blob){sizeof *blob, "step", &t->step, sizeof t->step, 0};
    config.blobs = blob;
    config.n_blobs = 1;
    config.keep = 2;
    config.async = 1;
    return config;
}

/* Copies everything; tally writes it while training continues. */
static int save(struct trainer *t)
{
    tally_checkpoint_blob blob;
    const tally_checkpoint_config config = checkpoint_of(t, &blob);

    return tally_checkpoint_save(t->ddp, gpt_options.checkpoint, &config);
}

/* Continues from the newest checkpoint, if there is one. */
static int load(struct trainer *t)
{
    tally_checkpoint_blob blob;
    const tally_checkpoint_config config = checkpoint_of(t, &blob);

    return tally_checkpoint_load(t->ddp, gpt_options.checkpoint, &config, NULL);
}

/* ---- set-up ---- */

static int make_model(struct trainer *t)
{
    struct gpt_shape shape = {(int)gpt_options.layers,
                              (int)gpt_options.heads,
                              (int)gpt_options.width,
                              (int)gpt_options.context,
                              t->n_tokens,
                              (int)(gpt_options.batch / t->size)};
    size_t rows = (size_t)shape.batch * (size_t)shape.context;

    if (gpt_options.layers < 1 || gpt_options.heads < 1 || gpt_options.context < 1 ||
        gpt_options.every < 1 || gpt_options.width < 1 ||
        gpt_options.width % gpt_options.heads != 0) {
        return gpt_complain("the model",
                            "its sizes must be positive, and --width a multiple of --heads");
    }
    if (gpt_options.batch < 1 || gpt_options.batch % t->size != 0) {
        return gpt_complain("--batch", "must be a multiple of the number of ranks");
    }
    t->tokens = calloc(rows, sizeof *t->tokens);
    t->next = calloc(rows, sizeof *t->next);
    if (!t->tokens || !t->next || gpt_make(&t->gpt, &shape, (unsigned)gpt_options.seed) != 0) {
        return gpt_complain("the model", "not enough memory");
    }
    t->masters = t->gpt.values;
    if (gpt_options.mixed) {
        t->grads = malloc(t->gpt.n_values * sizeof *t->grads);
        t->masters = malloc(t->gpt.n_values * sizeof *t->masters);
        if (!t->grads || !t->masters) {
            return gpt_complain("the model", "not enough memory");
        }
        memcpy(t->masters, t->gpt.values, t->gpt.n_values * sizeof *t->masters);
    }
    return 0;
}

/* Gradients live in tally's buckets; with --mixed, fp32 gradients are cast into them. */
static int make_ddp(struct trainer *t)
{
    tally_param *params = calloc((size_t)t->gpt.n_tensors, sizeof *params);
    tally_ddp_config config;
    char hook[256];
    int rc;

    tally_ddp_config_init(&config, sizeof config);
    if (gpt_options.period) {
        (void)snprintf(hook, sizeof hook, "postlocal:start=%ld,group=%ld(%s)", gpt_options.start,
                       gpt_options.group, gpt_options.hook);
    } else {
        (void)snprintf(hook, sizeof hook, "%s", gpt_options.hook);
    }
    config.hook = hook;
    config.param_dtype = gpt_options.mixed ? TALLY_BF16 : 0;
    for (int i = 0; params && i < t->gpt.n_tensors; i++) {
        const struct gpt_tensor *tensor = &t->gpt.tensors[i];

        params[i] = (tally_param){.size = sizeof *params,
                                  .name = tensor->name,
                                  .n_dims = tensor->n_dims,
                                  .shape = tensor->shape,
                                  .dtype = TALLY_F32,
                                  .data = t->masters + (tensor->value - t->gpt.values)};
    }
    rc = params ? tally_ddp_create(t->group, params, (size_t)t->gpt.n_tensors, &config, &t->ddp)
                : gpt_complain("the model", "not enough memory");
    free(params);
    for (int i = 0; rc == TALLY_OK && i < t->gpt.n_tensors; i++) {
        struct gpt_tensor *tensor = &t->gpt.tensors[i];

        tensor->grad = gpt_options.mixed ? t->grads + (tensor->value - t->gpt.values)
                                         : tally_ddp_grad(t->ddp, i);
    }
    return rc;
}

static int make_optimizer(struct trainer *t)
{
    tally_optimizer_config config;
    int rc = TALLY_OK;

    if (gpt_options.period) {
        const tally_averager_level level = {(int)gpt_options.period, 0};
        tally_averager_config every;

        tally_averager_config_init(&every, sizeof every);
        every.levels = &level;
        every.n_levels = 1;
        every.warmup = (int)gpt_options.start;
        rc = tally_averager_create(t->ddp, &every, &t->averager);
    }
    tally_optimizer_config_init(&config, sizeof config);
    config.overlap = 1;
    config.shard = gpt_options.zero != 0;
    config.max_norm = gpt_options.clip;
    config.averager = t->averager;
    if (rc == TALLY_OK) {
        rc = tally_optimizer_create(t->ddp, gpt_options.optimizer, &config, &t->optimizer);
    }
    return rc == TALLY_OK && gpt_options.checkpoint ? load(t) : rc;
}

/* ---- the run ---- */

static double seconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Prints the mean loss over all ranks, and the speed since the last line. */
static int report(struct trainer *t, double loss, double *since)
{
    tally_ddp_stats stats = {.size = sizeof stats};
    double now = seconds();
    double tokens = (double)(gpt_options.every * gpt_options.batch * gpt_options.context);
    int rc = tally_ddp_mean_scalar(t->ddp, &loss);

    if (rc == TALLY_OK) {
        rc = tally_ddp_get_stats(t->ddp, &stats);
    }
    if (rc == TALLY_OK && t->rank == 0) {
        printf("step %ld: loss %.6f, %.0f tokens/s, %.0f %% of communication hidden, %llu bytes "
               "sent\n",
               t->step, loss, tokens / (now - *since), 100 * stats.overlap, stats.wire_bytes);
        fflush(stdout);
    }
    *since = now;
    return rc;
}

static int train(struct trainer *t)
{
    const char *attempt = getenv("TALLY_ATTEMPT");
    double since = seconds(), loss;
    int rc = TALLY_OK;

    while (rc == TALLY_OK && t->step < gpt_options.steps) {
        if (gpt_options.crash_at && t->step == gpt_options.crash_at && t->rank == t->size - 1 &&
            (!attempt || strcmp(attempt, "0") == 0)) {
            raise(SIGKILL);
        }
        rc = train_step(t, &loss);
        t->step++;
        if (rc == TALLY_OK && (t->step % gpt_options.every == 0 || t->step == gpt_options.steps)) {
            rc = report(t, loss, &since);
        }
        if (rc == TALLY_OK && gpt_options.checkpoint && t->step % gpt_options.every == 0) {
            rc = save(t);
        }
    }
    return rc == TALLY_OK ? tally_checkpoint_wait(t->ddp) : rc;
}

/* Continues a piece of the text byte by byte, each drawn with the model's probabilities. */
static void write_sample(struct trainer *t)
{
    int context = (int)gpt_options.context;
    unsigned seed = (unsigned)gpt_options.seed;

    for (int k = 0; k < context; k++) {
        t->tokens[k] = t->token_of[t->text[k]];
    }
    for (long written = 0; written < gpt_options.sample; written++) {
        const float *chances;
        float left;
        int token = 0;

        (void)gpt_forward(&t->gpt, t->tokens, t->next);
        chances = t->gpt.chances + (ptrdiff_t)(context - 1) * t->n_tokens;
        seed = seed * 1664525u + 1013904223u;
        left = (float)(seed >> 8) / (float)(1 << 24);
        while (token < t->n_tokens - 1 && left > chances[token]) {
            left -= chances[token++];
        }
        (void)putchar(t->byte_of[token]);
        memmove(t->tokens, t->tokens + 1, (size_t)(context - 1) * sizeof *t->tokens);
        t->tokens[context - 1] = token;
    }
    (void)putchar('\n');
}

static void end(struct trainer *t)
{
    (void)tally_optimizer_free(t->optimizer);
    (void)tally_averager_free(t->averager);
    (void)tally_ddp_free(t->ddp);
    (void)tally_group_close(t->group);
    if (t->masters != t->gpt.values) {
        free(t->masters);
    }
    gpt_free(&t->gpt);
    free(t->grads);
    free(t->text);
    free(t->tokens);
    free(t->next);
}

int main(int argc, char **argv)
{
    static struct trainer t;
    int rc = gpt_options_parse(argc, argv) == 0 ? tally_group_open(NULL, &t.group) : -1;

    if (rc == TALLY_OK) {
        t.rank = tally_group_rank(t.group);
        t.size = tally_group_size(t.group);
        rc = read_text(&t) == 0 ? make_model(&t) : -1;
    }
    if (rc == TALLY_OK) {
        rc = make_ddp(&t);
    }
    if (rc == TALLY_OK) {
        rc = make_optimizer(&t);
    }
    if (rc == TALLY_OK) {
        rc = train(&t);
    }
    if (rc == TALLY_OK && gpt_options.sample && t.rank == 0) {
        write_sample(&t);
    }
    if (rc != TALLY_OK && *tally_last_error()) {
        fprintf(stderr, "rank %d: %s: %s\n", t.rank, tally_status_name(rc), tally_last_error());
    }
    end(&t);
    return rc != TALLY_OK;
}
