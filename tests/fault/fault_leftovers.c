/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks for what ranks may have left behind: processes, names in /dev/shm, sockets, descriptors.
 * One thread enters.
 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/fault_support.h"

static struct {
    int n_descriptors;
    bool dev_shm_is_ours;
} before;

bool fault_private_dev_shm(const char *size)
{
    char options[64];

    (void)snprintf(options, sizeof options, "size=%s", size);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/dev/shm", "tmpfs", 0, options) != 0) {
        return false;
    }
    before.dev_shm_is_ours = true;
    return true;
}

/* Entries of a folder whose names contain a word; the last one's name goes to found. */
static int count_entries(const char *folder, const char *word, char *found, size_t bytes)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    int n = 0;

    if (!dir) {
        return 0;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.' && strstr(entry->d_name, word)) {
            (void)snprintf(found, bytes, "%s/%s", folder, entry->d_name);
            n++;
        }
    }
    (void)closedir(dir);
    return n;
}

int fault_count_descriptors(void)
{
    char last[300];

    return count_entries("/proc/self/fd", "", last, sizeof last);
}

void fault_leftovers_begin(void)
{
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    before.n_descriptors = fault_count_descriptors();
}

static bool has_socket(const char *name, char *line, size_t bytes)
{
    FILE *file = fopen("/proc/net/unix", "r");
    bool found = false;

    if (!file) {
        return false;
    }
    while (!found && fgets(line, (int)bytes, file)) {
        found = strstr(line, name) != NULL;
    }
    (void)fclose(file);
    return found;
}

/*
 * A child or orphan that exists, or 0. The leak check of AddressSanitizer runs in a separate
 * process, which survives a rank killed at that moment for an instant.
 */
static pid_t find_child(void)
{
    /* Without the sanitizer one look is enough. */
    uint64_t end = fault_now_ns() + FAULT_HAS_ASAN * 2000 * FAULT_NS_PER_MS;
    pid_t child;

    do {
        child = waitpid(-1, NULL, WNOHANG);
        if (child < 0 && errno == ECHILD) {
            return 0;
        }
        fault_sleep_ns(FAULT_HAS_ASAN * FAULT_NS_PER_MS);
    } while (fault_now_ns() < end);
    return child > 0 ? child : -1;
}

const char *fault_leftovers(const char *name)
{
    static char text[700];
    char found[300] = "";
    pid_t child = find_child();

    if (child != 0) {
        (void)snprintf(text, sizeof text, "a process is left (%d)", (int)child);
        return text;
    }
    if (count_entries("/dev/shm", before.dev_shm_is_ours ? "" : "tally", found, sizeof found)) {
        (void)snprintf(text, sizeof text, "%s is left", found);
        return text;
    }
    if (has_socket(name, found, sizeof found)) {
        (void)snprintf(text, sizeof text, "a socket is left: %s", found);
        return text;
    }
    if (fault_count_descriptors() != before.n_descriptors) {
        (void)snprintf(text, sizeof text, "%d descriptors are open, not %d as before",
                       fault_count_descriptors(), before.n_descriptors);
        return text;
    }
    return NULL;
}
