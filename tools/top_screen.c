/* SPDX-License-Identifier: Apache-2.0 */
/* Plain ANSI sequences. One thread, and the handler of signals, which only sets flags. */
#include "tools/top_screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
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
static void put_line(size_t row, size_t columns, const char *text, size_t bytes, bool is_heading)
{
    (void)printf("\033[%zu;1H%s%.*s\033[K\033[0m", row + 1, is_heading ? "\033[7m" : "",
                 (int)(bytes < columns ? bytes : columns), text);
}

/* The bytes of a sentence that go into one row: up to a blank, if there is one. */
static size_t bytes_of_row(const char *text, size_t columns)
{
    size_t n = strlen(text);
    size_t at = columns;

    if (n <= columns) {
        return n;
    }
    while (at > 0 && text[at] != ' ') {
        at--;
    }
    return at > 0 ? at : columns;
}

/* Some lines, and the rows of the screen that show them. */
struct part {
    size_t from; /* of the lines */
    size_t end;
    size_t row; /* of the screen */
    size_t n;
    size_t first; /* the first row of text that is shown */
    size_t columns;
};

/* Puts what the rows of the screen have room for, and returns the number that all of it takes. */
static size_t put_part(const struct top_lines *lines, const struct part *part)
{
    size_t n = 0;

    for (size_t line = part->from; line < part->end; line++) {
        const char *rest = lines->all[line];

        do {
            size_t bytes = line < lines->n_cut ? strlen(rest) : bytes_of_row(rest, part->columns);

            if (n >= part->first && n - part->first < part->n) {
                put_line(part->row + n - part->first, part->columns, rest, bytes, false);
            }
            n++;
            rest += bytes;
            rest += *rest == ' ';
        } while (*rest);
    }
    for (size_t row = n > part->first ? n - part->first : 0; row < part->n; row++) {
        put_line(part->row + row, part->columns, "", 0, false);
    }
    return n;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Shares room rows: sentences stay in sight below a table that is longer than the screen. Returns
 * how far it scrolls: first the table, then the sentences. */
static size_t share_room(const struct top_lines *lines, struct part *table, struct part *text,
                         size_t room, size_t first)
{
    size_t n_table;
    size_t n_text;

    table->n = text->n = 0;
    n_table = put_part(lines, table); /* without rows it only counts */
    n_text = put_part(lines, text);
    table->n = least(n_table, room - least(n_text, room / 3));
    text->n = room - table->n;
    text->row = table->row + table->n;
    table->first = least(first, n_table - table->n);
    text->first = least(first - table->first, n_text > text->n ? n_text - text->n : 0);
    return table->first + text->first;
}

void top_screen_show(const struct top_lines *lines, size_t *first)
{
    struct part table = {.from = lines->n_fixed, .end = lines->n_cut};
    struct part text = {.from = lines->n_cut, .end = lines->n};
    const char *help;
    size_t rows;

    screen_size(&table.columns, &rows);
    text.columns = table.columns;
    table.row = least(lines->n_fixed, rows - 1);
    help = share_room(lines, &table, &text, rows - 1 - table.row, SIZE_MAX) > 0
               ? "q: quit   up, down, page up, page down: more"
               : "q: quit";
    *first = share_room(lines, &table, &text, rows - 1 - table.row, *first);
    for (size_t row = 0; row < table.row; row++) {
        put_line(row, table.columns, lines->all[row], strlen(lines->all[row]),
                 row + 1 == lines->n_fixed);
    }
    (void)put_part(lines, &table);
    (void)put_part(lines, &text);
    put_line(rows - 1, table.columns, help, strlen(help), false);
    (void)fflush(stdout);
}

/* Keys that were pressed together, such as the bytes of an arrow, count as one. */
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
    if (n >= 4 && memcmp(keys, "\033[5~", 4) == 0) {
        return TOP_PAGE_UP;
    }
    if (n >= 4 && memcmp(keys, "\033[6~", 4) == 0) {
        return TOP_PAGE_DOWN;
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
