/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says of every line it reads, "hook TEXT" or "optimizer TEXT", whether tally accepts that text:
 * "ok", or the error. For the tests of the pages. One thread.
 */
#include <stdio.h>
#include <string.h>
#include <tally.h>

static int is_hook(const char *text)
{
    tally_hook *hook;
    int rc = tally_hook_parse(text, &hook);

    if (rc == TALLY_OK) {
        tally_hook_free(hook);
    }
    return rc;
}

static int is_optimizer(tally_ddp *ddp, const char *text)
{
    tally_optimizer *optimizer;
    int rc = tally_optimizer_create(ddp, text, NULL, &optimizer);

    return rc == TALLY_OK ? tally_optimizer_free(optimizer) : rc;
}

int main(void)
{
    float value = 0;
    const tally_param param = {
        .size = sizeof param, .name = "value", .dtype = TALLY_F32, .data = &value};
    tally_group *group = NULL;
    tally_ddp *ddp = NULL;
    char line[1024];

    if (tally_group_open(NULL, &group) != TALLY_OK ||
        tally_ddp_create(group, &param, 1, NULL, &ddp) != TALLY_OK) {
        fprintf(stderr, "text_forms: %s\n", tally_last_error());
        return 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        const char *text = strchr(line, ' ');
        int rc = TALLY_ARG;

        line[strcspn(line, "\n")] = '\0';
        if (text) {
            rc = line[0] == 'h' ? is_hook(text + 1) : is_optimizer(ddp, text + 1);
        }
        puts(rc == TALLY_OK ? "ok" : tally_last_error());
        fflush(stdout); /* the caller waits for the answer */
    }
    tally_ddp_free(ddp);
    tally_group_close(group);
    return 0;
}
