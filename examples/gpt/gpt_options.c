/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/gpt/gpt_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpt_options gpt_options = {.text = "/usr/share/common-licenses/GPL-3",
                                  .hook = "allreduce",
                                  .optimizer = "adamw:beta2=0.95,weight_decay=0.1",
                                  .layers = 3,
                                  .heads = 4,
                                  .width = 96,
                                  .context = 64,
                                  .batch = 12,
                                  .steps = 200,
                                  .seed = 1,
                                  .every = 20,
                                  .lr = 3e-3};

/* One option: its name, where its value goes, and what it is for. */
struct option {
    const char *name;
    const char **text;
    long *number;
    double *real;
    const char *help;
};

static const struct option known[] = {
    {"--text", &gpt_options.text, NULL, NULL, "the file to learn"},
    {"--hook", &gpt_options.hook, NULL, NULL, "how gradients travel, as `tally hooks` lists them"},
    {"--optimizer", &gpt_options.optimizer, NULL, NULL, "as `tally optimizers` lists them"},
    {"--mixed", &gpt_options.mixed, NULL, NULL, "bf16: forward, backward and gradients in bf16"},
    {"--zero", NULL, &gpt_options.zero, NULL,
     "1: every rank keeps its share of AdamW's state only"},
    {"--start", NULL, &gpt_options.start, NULL, "post-local SGD from this step on, with --period"},
    {"--group", NULL, &gpt_options.group, NULL,
     "ranks that go on exchanging gradients then; 0: none"},
    {"--period", NULL, &gpt_options.period, NULL, "steps between averages of all ranks then"},
    {"--layers", NULL, &gpt_options.layers, NULL, "of the model"},
    {"--heads", NULL, &gpt_options.heads, NULL, "of each layer"},
    {"--width", NULL, &gpt_options.width, NULL, "of the model, a multiple of --heads"},
    {"--context", NULL, &gpt_options.context, NULL, "bytes it looks back"},
    {"--batch", NULL, &gpt_options.batch, NULL, "sequences in a step, on all ranks together"},
    {"--steps", NULL, &gpt_options.steps, NULL, "to train for"},
    {"--lr", NULL, NULL, &gpt_options.lr, "the highest learning rate"},
    {"--clip", NULL, NULL, &gpt_options.clip, "the largest norm of the gradient; 0: any"},
    {"--seed", NULL, &gpt_options.seed, NULL, "of the model and of what it reads"},
    {"--every", NULL, &gpt_options.every, NULL, "steps between lines of output, and checkpoints"},
    {"--checkpoint", &gpt_options.checkpoint, NULL, NULL, "a directory to save to, and go on from"},
    {"--sample", NULL, &gpt_options.sample, NULL, "bytes to write at the end"},
    {"--crash-at", NULL, &gpt_options.crash_at, NULL, "kill the last rank here, the first time"},
};
#define N_KNOWN (sizeof known / sizeof known[0])

int gpt_complain(const char *what, const char *why)
{
    fprintf(stderr, "06_gpt: %s: %s\n", what, why);
    return -1;
}

int gpt_options_parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const struct option *o = known;
        char *end = NULL;

        while (o < known + N_KNOWN && strcmp(o->name, argv[i]) != 0) {
            o++;
        }
        if (o == known + N_KNOWN || ++i == argc) {
            for (o = known; o < known + N_KNOWN; o++) {
                fprintf(stderr, "  %-14s %s\n", o->name, o->help);
            }
            return gpt_complain(argv[i < argc ? i : argc - 1],
                                "no such option, or without a value");
        }
        if (o->text) {
            *o->text = argv[i];
        } else if (o->number) {
            *o->number = strtol(argv[i], &end, 10);
        } else {
            *o->real = strtod(argv[i], &end);
        }
        if (end && (*end || end == argv[i])) {
            return gpt_complain(o->name, "not a number");
        }
    }
    return gpt_options.mixed && strcmp(gpt_options.mixed, "bf16") != 0
               ? gpt_complain("--mixed", "only bf16")
               : 0;
}
