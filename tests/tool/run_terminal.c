/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_terminal N KEYS COMMAND...: runs the command at a new terminal. When N lines that contain
 * "ready" have come out, presses the keys. Prints the output of the terminal, and exits with the
 * command's status; 99 when the deadline passes first. The command is killed with its terminal.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEADLINE_MS 60000
#define LATE 99

static _Noreturn void run_command(int master, char **command)
{
    int terminal;

    (void)setsid();
    terminal = open(ptsname(master), O_RDWR);
    if (terminal < 0 || ioctl(terminal, TIOCSCTTY, 0) != 0) {
        _exit(LATE);
    }
    for (int fd = 0; fd <= 2; fd++) {
        (void)dup2(terminal, fd);
    }
    (void)close(terminal);
    (void)close(master);
    (void)signal(SIGINT, SIG_DFL); /* a shell without job control ignores it for us */
    (void)signal(SIGQUIT, SIG_DFL);
    (void)execvp(command[0], command);
    _exit(LATE);
}

static int count_ready(const char *text)
{
    int n = 0;

    while ((text = strstr(text, "ready")) != NULL) {
        text += strlen("ready");
        n++;
    }
    return n;
}

/* Until the command has closed the terminal; false when it takes too long. */
static bool watch(int master, int n_ready, const char *keys)
{
    static char seen[1 << 16];
    size_t n = 0;
    bool pressed = false;
    struct pollfd polled = {.fd = master, .events = POLLIN};

    while (poll(&polled, 1, DEADLINE_MS) == 1) {
        ssize_t got = read(master, seen + n, sizeof seen - 1 - n);

        if (got <= 0) {
            return true;
        }
        (void)fwrite(seen + n, 1, (size_t)got, stdout);
        n += (size_t)got;
        seen[n] = '\0';
        if (!pressed && count_ready(seen) >= n_ready) {
            pressed = write(master, keys, strlen(keys)) > 0;
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    int status = 0;
    pid_t pid;

    if (argc < 4 || master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
        return LATE;
    }
    pid = fork();
    if (pid == 0) {
        run_command(master, argv + 3);
    }
    if (!watch(master, (int)strtol(argv[1], NULL, 10), argv[2])) {
        (void)kill(pid, SIGKILL);
    }
    (void)waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : LATE;
}
