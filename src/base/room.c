/* SPDX-License-Identifier: Apache-2.0 */
/* Free memory of the machine and of the memory cgroups around this process. Stateless. */
#include "base/room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"

#define PATH_BYTES 1024
#define TEXT_BYTES 8192
#define PIECE_BYTES (UINT64_C(8) << 20)
/* A limit of this size or above means no limit: version 1 writes the largest number of pages. */
#define NO_LIMIT (UINT64_C(1) << 60)
/* The kernel charges its own needs, such as page tables, to the cgroup too. */
#define KERNEL_SHARE 32
#define MOST_FOR_KERNEL (UINT64_C(64) << 20)

/* Reads a file, with a line feed in front so that every line begins after one; "" on failure. */
static void read_text(const char *folder, const char *name, char *text)
{
    char path[PATH_BYTES + 64];
    ssize_t n = 0;
    int fd;

    text[0] = '\n';
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, text + 1, TEXT_BYTES - 2);
        (void)close(fd);
    }
    text[n > 0 ? n + 1 : 0] = '\0';
}

/* The number after a text such as "\nSwapFree:"; nothing if the text or the number is missing. */
static uint64_t number_after(const char *text, const char *name, uint64_t nothing)
{
    const char *at = strstr(text, name);
    char *end;
    unsigned long long number;

    if (!at) {
        return nothing;
    }
    at += strlen(name);
    number = strtoull(at, &end, 10);
    return end == at ? nothing : number;
}

static uint64_t room_of_machine(const char *root)
{
    char folder[PATH_BYTES];
    char text[TEXT_BYTES];
    uint64_t available;

    (void)snprintf(folder, sizeof folder, "%s/proc", root);
    read_text(folder, "meminfo", text);
    available = number_after(text, "\nMemAvailable:", UINT64_MAX);
    return available == UINT64_MAX ? available
                                   : 1024 * (available + number_after(text, "\nSwapFree:", 0));
}

/* The names of the files in one version of cgroups. */
struct version {
    const char *limit;
    const char *usage;
    const char *reclaimable[2]; /* lines of memory.stat */
};

static const struct version version_1 = {"memory.limit_in_bytes",
                                         "memory.usage_in_bytes",
                                         {"\ntotal_inactive_file ", "\ntotal_active_file "}};
static const struct version version_2 = {
    "memory.max", "memory.current", {"\ninactive_file ", "\nactive_file "}};

/* Lowers room to that of one cgroup, if the cgroup has less. */
static void look_at_cgroup(const struct version *version, const char *folder, const char *name,
                           struct tally__room *room)
{
    char text[TEXT_BYTES];
    uint64_t limit;
    uint64_t used;
    uint64_t free_bytes = 0;
    uint64_t for_kernel;

    read_text(folder, version->limit, text);
    limit = number_after(text, "\n", NO_LIMIT); /* "max" is not a number */
    read_text(folder, version->usage, text);
    used = number_after(text, "\n", 0);
    if (limit >= NO_LIMIT) {
        return;
    }
    for_kernel = limit / KERNEL_SHARE < MOST_FOR_KERNEL ? limit / KERNEL_SHARE : MOST_FOR_KERNEL;
    read_text(folder, "memory.stat", text);
    for (int i = 0; i < 2; i++) {
        uint64_t reclaimable = number_after(text, version->reclaimable[i], 0);

        used -= reclaimable < used ? reclaimable : used;
    }
    if (limit > used + for_kernel) {
        free_bytes = limit - used - for_kernel;
    }
    if (free_bytes < room->bytes) {
        room->bytes = free_bytes;
        room->limit = limit;
        (void)snprintf(room->cgroup, sizeof room->cgroup, "%s", *name ? name : "/");
    }
}

/* Looks at a cgroup and all its ancestors, up to the mount. In a container the name may be known
 * only outside; then the mount is the container's own cgroup. */
static void look_up_from(const struct version *version, const char *mount, const char *name,
                         struct tally__room *room)
{
    char folder[PATH_BYTES];
    size_t mount_bytes = strlen(mount);
    int n = snprintf(folder, sizeof folder, "%s%s", mount, name);

    if (n < 0 || (size_t)n >= sizeof folder || strstr(name, "/..")) {
        folder[0] = '\0';
        (void)snprintf(folder, sizeof folder, "%.*s", (int)sizeof folder - 1, mount);
    }
    for (;;) {
        size_t length = strlen(folder);

        while (length > mount_bytes && folder[length - 1] == '/') {
            folder[--length] = '\0';
        }
        look_at_cgroup(version, folder, folder + mount_bytes, room);
        if (length <= mount_bytes) {
            return;
        }
        *strrchr(folder, '/') = '\0';
    }
}

static bool has_memory(const char *controllers)
{
    char list[PATH_BYTES];

    (void)snprintf(list, sizeof list, ",%.*s,", (int)sizeof list - 3, controllers);
    return strstr(list, ",memory,") != NULL;
}

/* Reads a line of /proc/self/cgroup: "number:controllers:name"; version 2 has no controllers there.
 */
static void look_at_line(const char *root, char *line, struct tally__room *room)
{
    char *controllers = strchr(line, ':');
    char *name = controllers ? strchr(controllers + 1, ':') : NULL;
    char mount[PATH_BYTES];

    if (!name) {
        return;
    }
    *name++ = '\0';
    controllers++;
    if (*controllers == '\0') {
        (void)snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
        look_up_from(&version_2, mount, name, room);
        (void)snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/unified", root);
        look_up_from(&version_2, mount, name, room);
    } else if (has_memory(controllers)) {
        (void)snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/memory", root);
        look_up_from(&version_1, mount, name, room);
    }
}

void tally__find_room(const char *root, struct tally__room *room)
{
    char folder[PATH_BYTES];
    char text[TEXT_BYTES];
    char *rest = text;
    char *line;

    *room = (struct tally__room){.bytes = room_of_machine(root)};
    (void)snprintf(folder, sizeof folder, "%s/proc/self", root);
    read_text(folder, "cgroup", text);
    while ((line = strtok_r(rest, "\n", &rest)) != NULL) {
        look_at_line(root, line, room);
    }
}

static int report_lack(uint64_t bytes, const struct tally__room *room, const char *what)
{
    if (room->limit > 0) {
        return tally__fail(TALLY_NOMEM,
                           "cannot reserve %llu bytes of %s: memory cgroup %s has %llu of its %llu "
                           "bytes left for all ranks in it",
                           (unsigned long long)bytes, what, room->cgroup,
                           (unsigned long long)room->bytes, (unsigned long long)room->limit);
    }
    return tally__fail(TALLY_NOMEM,
                       "cannot reserve %llu bytes of %s: this machine has %llu left for all ranks",
                       (unsigned long long)bytes, what, (unsigned long long)room->bytes);
}

static bool is_lack(int error)
{
    return error == ENOMEM || error == ENOSPC || error == EDQUOT || error == EFBIG;
}

int tally__take_memory(uint64_t bytes, int n_takers, tally__take_fn *take, void *user,
                       const char *what)
{
    uint64_t done = 0;
    uint64_t until = 0;

    while (done < bytes) {
        uint64_t part = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        int error;

        if (done + part > until) {
            struct tally__room room;
            uint64_t share;

            tally__find_room("", &room);
            share = room.bytes / (uint64_t)n_takers;
            if (share < part || (done == 0 && room.bytes < bytes)) {
                return report_lack(bytes, &room, what);
            }
            /* Check again when half of a fair share is taken. */
            until = done + (share / 2 > part ? share / 2 : part);
        }
        error = take(user, done, part);
        if (error != 0) {
            return tally__fail_errno(is_lack(error) ? TALLY_NOMEM : TALLY_SYSTEM, error,
                                     "cannot reserve %llu bytes of %s", (unsigned long long)bytes,
                                     what);
        }
        done += part;
    }
    return TALLY_OK;
}
