/* SPDX-License-Identifier: Apache-2.0 */
/* Plain ANSI sequences. One thread, and the handler of signals, which only sets flags. */
#include "tools/top_screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

static volatile sig_atomic_t ended; /* the signal; 0: none */
static struct termios before;
static bool has_keys;

static void note_signal(int number)
{
    if (number != SIGWINCH) {
        ended = number;
    }
}

/* Write errors of a terminal that has gone are noticed as SIGHUP. */
static void put(const char *text)
{
    (void)fputs(text, stdout);
}

bool top_screen_open(void)
{
    struct sigaction action = {.sa_handler = note_signal};
    struct termios raw;

    if (!isatty(STDOUT_FILENO)) {
        return false;
    }
    (void)sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++) {
        (void)sigaction(ending[i], &action, NULL);
    }
    (void)sigaction(SIGWINCH, &action, NULL);
    action.sa_handler = SIG_IGN; /* a stop would leave the terminal as it is */
    (void)sigaction(SIGTSTP, &action, NULL);
    has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0;
    if (has_keys) {
        raw = before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    put("\033[?1049h\033[?25l"); /* the other screen, no cursor */
    return true;
}

void top_screen_close(void)
{
    put("\033[?25h\033[?1049l");
    (void)fflush(stdout);
    if (has_keys) {
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
    }
    if (ended) {
        (void)signal((int)ended, SIG_DFL);
        (void)raise((int)ended);
    }
}

static void screen_size(size_t *columns, size_t *rows)
{
    struct winsize size;

    *columns = 80;
    *rows = 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
        *columns = size.ws_col;
        *rows = size.ws_row;
    }
}

/* One line in its place; the heading of the table is inverse. */
static void put_line(size_t row, size_t columns, const char *text, bool is_heading)
{
    (void)printf("\033[%zu;1H%s%.*s\033[K\033[0m", row + 1, is_heading ? "\033[7m" : "",
                 (int)columns, text);
}

void top_screen_show(const struct top_lines *lines, size_t *first)
{
    size_t columns;
    size_t rows;
    size_t n_fixed;
    size_t n_scrolling = lines->n - lines->n_fixed;
    size_t room;

    screen_size(&columns, &rows);
    n_fixed = lines->n_fixed < rows ? lines->n_fixed : rows;
    room = rows > n_fixed + 1 ? rows - n_fixed - 1 : 0;
    if (n_scrolling <= room) {
        *first = 0;
    } else if (*first > n_scrolling - room) {
        *first = n_scrolling - room;
    }
    for (size_t row = 0; row + 1 < rows; row++) {
        size_t line = row < n_fixed ? row : *first + row;

        put_line(row, columns, line < lines->n ? lines->all[line] : "",
                 n_fixed > 0 && row + 1 == n_fixed);
    }
    put_line(rows - 1, columns, n_scrolling > room ? "q: quit   up, down: more" : "q: quit", false);
    (void)fflush(stdout);
}

/* Keys that were pressed together, such as the three bytes of an arrow, count as one. */
static enum top_event read_key(void)
{
    char keys[16];
    ssize_t n = read(STDIN_FILENO, keys, sizeof keys);

    if (n <= 0) {
        has_keys = n < 0 && errno == EINTR; /* nothing more comes from there */
        return TOP_AGAIN;
    }
    if (memchr(keys, 'q', (size_t)n) || memchr(keys, 'Q', (size_t)n)) {
        return TOP_QUIT;
    }
    if (keys[0] == 'k' || (n >= 3 && memcmp(keys, "\033[A", 3) == 0)) {
        return TOP_UP;
    }
    return keys[0] == 'j' || (n >= 3 && memcmp(keys, "\033[B", 3) == 0) ? TOP_DOWN : TOP_AGAIN;
}

enum top_event top_screen_wait(double seconds)
{
    struct pollfd keys = {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    int n = poll(&keys, 1, (int)(seconds * 1000));

    if (ended) {
        return TOP_QUIT;
    }
    return n > 0 ? read_key() : TOP_AGAIN;
}
