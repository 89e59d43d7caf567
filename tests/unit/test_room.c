/* SPDX-License-Identifier: Apache-2.0 */
/* The available memory, according to fake trees of /proc and /sys/fs/cgroup. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <tally.h>

#include "base/room.h"

#define MIB (UINT64_C(1) << 20)
#define MEMINFO "proc/meminfo=MemFree: 1 kB\nMemAvailable: 1048576 kB\nSwapFree: 1024 kB\n"
#define MACHINE_BYTES (1025 * MIB)

/* A tree as "path=text" pairs; texts hold what files hold. */
struct tree {
    const char *name;
    const char *files[12];
    uint64_t bytes;
    uint64_t limit;
    const char *cgroup;
};

static const struct tree trees[] = {
    {"nothing", {NULL}, UINT64_MAX, 0, ""},
    {"no cgroups", {MEMINFO}, MACHINE_BYTES, 0, ""},
    {"no limit",
     {MEMINFO, "proc/self/cgroup=0::/a\n", "sys/fs/cgroup/a/memory.max=max\n",
      "sys/fs/cgroup/a/memory.current=4096\n"},
     MACHINE_BYTES,
     0,
     ""},
    {"version 2",
     {MEMINFO, "proc/self/cgroup=0::/a/b\n", "sys/fs/cgroup/a/b/memory.max=335544320\n",
      "sys/fs/cgroup/a/b/memory.current=104857600\n",
      "sys/fs/cgroup/a/b/memory.stat=anon 1\ninactive_file 1048576\nactive_file 2097152\n"},
     (320 - 100 + 3 - 10) * MIB,
     320 * MIB,
     "/a/b"},
    {"a parent's limit",
     {MEMINFO, "proc/self/cgroup=0::/a/b\n", "sys/fs/cgroup/a/b/memory.max=max\n",
      "sys/fs/cgroup/a/memory.max=335544320\n", "sys/fs/cgroup/a/memory.current=0\n"},
     310 * MIB,
     320 * MIB,
     "/a"},
    {"a container, which sees its own cgroup as the root",
     {MEMINFO, "proc/self/cgroup=0::/\n", "sys/fs/cgroup/memory.max=33554432\n",
      "sys/fs/cgroup/memory.current=1048576\n"},
     30 * MIB,
     32 * MIB,
     "/"},
    {"more used than allowed",
     {MEMINFO, "proc/self/cgroup=0::/\n", "sys/fs/cgroup/memory.max=33554432\n",
      "sys/fs/cgroup/memory.current=33554432\n"},
     0,
     32 * MIB,
     "/"},
    {"a large limit on a small machine",
     {MEMINFO, "proc/self/cgroup=0::/a\n", "sys/fs/cgroup/a/memory.max=1099511627776\n"},
     MACHINE_BYTES,
     0,
     ""},
    {"both versions mounted, memory in 1",
     {MEMINFO, "proc/self/cgroup=4:cpu,memory:/job\n3:cpuset:/\n1:name=memory:/x\n0::/unified\n",
      "sys/fs/cgroup/memory/job/memory.limit_in_bytes=67108864\n",
      "sys/fs/cgroup/memory/job/memory.usage_in_bytes=20971520\n",
      "sys/fs/cgroup/memory/job/memory.stat=inactive_file 5\ntotal_inactive_file 3145728\n",
      "sys/fs/cgroup/memory/memory.limit_in_bytes=9223372036854771712\n"},
     (64 - 20 + 3 - 2) * MIB,
     64 * MIB,
     "/job"},
    {"version 1 in a container that has the machine's name for its cgroup",
     {MEMINFO, "proc/self/cgroup=4:memory:/docker/0123\n",
      "sys/fs/cgroup/memory/memory.limit_in_bytes=67108864\n",
      "sys/fs/cgroup/memory/memory.usage_in_bytes=0\n"},
     62 * MIB,
     64 * MIB,
     "/"},
    {"version 2 under a folder of its own",
     {MEMINFO, "proc/self/cgroup=0::/a\n", "sys/fs/cgroup/unified/a/memory.max=67108864\n"},
     62 * MIB,
     64 * MIB,
     "/a"},
    {"outside of the namespace",
     {MEMINFO, "proc/self/cgroup=0::/../../other\n", "sys/fs/cgroup/memory.max=67108864\n"},
     62 * MIB,
     64 * MIB,
     "/"},
    {"nonsense",
     {"proc/meminfo=MemAvailable:\n", "proc/self/cgroup=:\n::\n0\n0::/a\n",
      "sys/fs/cgroup/a/memory.max=\n"},
     UINT64_MAX,
     0,
     ""},
};

static char root[64];

/* Makes the folders of a path, then the file. */
static void write_file(const char *file)
{
    char path[512];
    const char *text = strchr(file, '=') + 1;
    FILE *stream;

    (void)snprintf(path, sizeof path, "%s/%.*s", root, (int)(text - 1 - file), file);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        assert_true(mkdir(path, S_IRWXU) == 0 || errno == EEXIST);
        *slash = '/';
    }
    stream = fopen(path, "w");
    assert_non_null(stream);
    assert_true(fputs(text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
}

static void remove_root(void)
{
    char command[100];

    (void)snprintf(command, sizeof command, "rm -r '%s'", root);
    assert_int_equal(system(command), 0); // NOLINT: the name is ours
}

static void test_trees(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        const struct tree *tree = &trees[i];
        struct tally__room room;

        (void)snprintf(root, sizeof root, "/tmp/tally-room-XXXXXX");
        assert_non_null(mkdtemp(root));
        for (size_t f = 0; tree->files[f]; f++) {
            write_file(tree->files[f]);
        }
        tally__find_room(root, &room);
        if (room.bytes != tree->bytes || room.limit != tree->limit ||
            strcmp(room.cgroup, tree->cgroup) != 0) {
            fail_msg("%s: %llu bytes, limit %llu of '%s'", tree->name,
                     (unsigned long long)room.bytes, (unsigned long long)room.limit, room.cgroup);
        }
        remove_root();
    }
}

/* The values of this machine can be read. */
static void test_here(void **state)
{
    struct tally__room room;

    (void)state;
    tally__find_room("", &room);
    assert_true(room.bytes > 0);
}

struct taking {
    uint64_t taken;
    uint64_t fails_at;
    int error;
};

static int take(void *user, uint64_t offset, uint64_t bytes)
{
    struct taking *taking = user;

    assert_int_equal(offset, taking->taken);
    assert_true(bytes > 0);
    taking->taken += bytes;
    return taking->taken > taking->fails_at ? taking->error : 0;
}

static void test_collectives(void **state)
{
    struct taking all = {.fails_at = UINT64_MAX};
    struct taking some = {.fails_at = 20 * MIB, .error = ENOSPC};
    struct taking closed = {.error = EBADF};
    struct taking none = {.fails_at = UINT64_MAX};

    (void)state;
    assert_int_equal(tally__take_memory(100 * MIB + 1, 1, take, &all, "it"), TALLY_OK);
    assert_int_equal(all.taken, 100 * MIB + 1);
    assert_int_equal(tally__take_memory(100 * MIB, 1, take, &some, "it"), TALLY_NOMEM);
    assert_true(some.taken < 40 * MIB);
    assert_non_null(strstr(tally_last_error(), "cannot reserve 104857600 bytes of it"));
    /* A descriptor that the program has closed is not a lack of memory. */
    assert_int_equal(tally__take_memory(MIB, 1, take, &closed, "it"), TALLY_SYSTEM);
    assert_int_equal(tally__take_memory(UINT64_C(1) << 60, 1, take, &none, "it"), TALLY_NOMEM);
    assert_int_equal(none.taken, 0);
    assert_non_null(strstr(tally_last_error(), "bytes of it: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trees),
        cmocka_unit_test(test_here),
        cmocka_unit_test(test_collectives),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
