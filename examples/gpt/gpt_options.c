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

/* One option: its name, the variable for its value, and its help. */
struct option {
    const char *name;
    const char **text;
    long *number;
    double *real;
    const char *help;
};

static const struct option known[] = {
    {"--text", &gpt_options.text, NULL, NULL, "the file to train on"},
    {"--hook", &gpt_options.hook, NULL, NULL, "how gradients travel; `tally hooks` lists them"},
    {"--optimizer", &gpt_options.optimizer, NULL, NULL,
     "the optimizer; `tally optimizers` lists them"},
    {"--mixed", &gpt_options.mixed, NULL, NULL, "bf16: mixed precision with bf16"},
    {"--zero", NULL, &gpt_options.zero, NULL,
     "1: every rank keeps only its share of the optimizer's state"},
    {"--start", NULL, &gpt_options.start, NULL, "post-local SGD from this step on, with --period"},
    {"--group", NULL, &gpt_options.group, NULL,
     "ranks that still exchange gradients after --start; 0: none"},
    {"--period", NULL, &gpt_options.period, NULL,
     "steps between averages over all ranks after --start"},
    {"--layers", NULL, &gpt_options.layers, NULL, "layers of the model"},
    {"--heads", NULL, &gpt_options.heads, NULL, "attention heads of each layer"},
    {"--width", NULL, &gpt_options.width, NULL, "width of the model, a multiple of --heads"},
    {"--context", NULL, &gpt_options.context, NULL, "bytes that the model sees at once"},
    {"--batch", NULL, &gpt_options.batch, NULL, "sequences in a step, over all ranks"},
    {"--steps", NULL, &gpt_options.steps, NULL, "steps to train"},
    {"--lr", NULL, NULL, &gpt_options.lr, "the highest learning rate"},
    {"--clip", NULL, NULL, &gpt_options.clip, "the largest norm of the gradient; 0: no limit"},
    {"--seed", NULL, &gpt_options.seed, NULL, "seed of the initial values and of the batches"},
    {"--every", NULL, &gpt_options.every, NULL,
     "steps between lines of output, and between checkpoints"},
    {"--checkpoint", &gpt_options.checkpoint, NULL, NULL,
     "directory to save to and to continue from"},
    {"--sample", NULL, &gpt_options.sample, NULL, "bytes of text to generate at the end"},
    {"--crash-at", NULL, &gpt_options.crash_at, NULL,
     "kill the last rank at this step, in the first attempt"},
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
                                "no such option, or its value is missing");
        }
        if (o->text) {
            *o->text = argv[i];
        } else if (o->number) {
            *o->number = strtol(argv[i], &end, 10);
        } else {
            *o->real = strtod(argv[i], &end);
        }
        if (end && (*end || end == argv[i])) {
            return gpt_complain(o->name, "its value is not a number");
        }
    }
    return gpt_options.mixed && strcmp(gpt_options.mixed, "bf16") != 0
               ? gpt_complain("--mixed", "accepts only bf16")
               : 0;
}
