/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks by text: names with options (base/text.h), and inner hooks in brackets. A text is read to
 * its end before the first hook is made; hooks are made from the inside out. Any thread enters.
 */
#include <string.h>

#include "base/status.h"
#include "hook/hook.h"
#include "hook/kind.h"

#define PLAIN "allreduce"

/* A chain of hooks, the outermost first; one more than a text may have, for PLAIN. */
struct chain {
    size_t n;
    struct tally__setting link[TALLY__MAX_HOOK_DEPTH + 1];
};

static struct tally__list wrappers_of(const struct tally__rows *rows)
{
    struct tally__list list = {""};

    for (size_t k = 0; k < rows->n; k++) {
        if (tally__hook_kind_of(rows->row[k])->wraps) {
            tally__list_name(&list, rows->row[k]->name);
        }
    }
    return list;
}

/* ---- reading ---- */

/* Whether a bracket opens another hook. */
static int read_bracket(struct tally__scan *scan, const struct chain *chain, bool *opened)
{
    const struct tally__row *row = chain->link[chain->n - 1].row;

    *opened = tally__scan_mark(scan, '(');
    if (*opened && !tally__hook_kind_of(row)->wraps) {
        return TALLY__FAIL_AT(scan, scan->at - 1, "%s takes no hook in brackets; wrappers are %s",
                              row->name, wrappers_of(scan->rows).text);
    }
    if (*opened && chain->n == TALLY__MAX_HOOK_DEPTH) {
        return TALLY__FAIL_AT(scan, scan->at - 1, "more than %d hooks inside one another",
                              TALLY__MAX_HOOK_DEPTH);
    }
    return TALLY_OK;
}

/* Reads the closing brackets of all hooks except the first, and the end; reports another bracket
 * only if brackets is set. */
static int read_end(struct tally__scan *scan, const struct chain *chain, bool brackets)
{
    const struct tally__setting *last = &chain->link[chain->n - 1];
    struct tally__list accepted = tally__setting_marks(last);

    if (tally__hook_kind_of(last->row)->wraps && brackets) {
        tally__list_name(&accepted, "'('");
    }
    for (size_t k = 1; k < chain->n; k++) {
        if (!tally__scan_mark(scan, ')')) {
            tally__list_name(&accepted, "')'");
            return TALLY__FAIL_AT(scan, scan->at, "accepted here: %s", accepted.text);
        }
        accepted = (struct tally__list){""};
    }
    return tally__scan_end(scan, &accepted);
}

static int read_chain(struct tally__scan *scan, struct chain *chain)
{
    bool opened;

    chain->n = 0;
    do {
        TRY(tally__setting_read(scan, &chain->link[chain->n++]));
        TRY(read_bracket(scan, chain, &opened));
    } while (opened);
    return read_end(scan, chain, true);
}

/* ---- making ---- */

static int name_link(const struct tally__rows *rows, const struct tally__setting *link,
                     const tally_hook *inner, struct tally__name *name)
{
    *name = (struct tally__name){.length = 0};
    TRY(tally__name_add_setting(name, rows, link));
    /* The application's hook may have the same name. */
    if (inner && !(inner->kind && strcmp(inner->table.name, PLAIN) == 0)) {
        tally__name_add(name, "(");
        tally__name_add(name, inner->table.name);
        tally__name_add(name, ")");
    }
    return tally__name_check(name, rows);
}

static int make_link(const struct tally__rows *rows, const struct tally__setting *link,
                     tally_hook *inner, tally_hook **hook)
{
    struct tally__name name;
    int rc;

    TRY(name_link(rows, link, inner, &name));
    rc = tally__hook_kind_of(link->row)->make(name.text, link, inner, hook);
    if (rc == TALLY_OK) {
        (*hook)->kind = tally__hook_kind_of(link->row);
    }
    return rc == TALLY_ARG ? tally__fail(rc, "hook '%s': %s", name.text, tally_last_error()) : rc;
}

/* Makes the hooks of the chain from the inside out, around made, which may be NULL. Takes over the
 * caller's hold on made. */
static int make_chain(const struct tally__rows *rows, const struct chain *chain, tally_hook *made,
                      tally_hook **hook)
{
    for (size_t k = chain->n; k-- > 0;) {
        tally_hook *outer = NULL;
        int rc = make_link(rows, &chain->link[k], made, &outer);

        tally_hook_free(made);
        TRY(rc);
        made = outer;
    }
    *hook = made;
    return TALLY_OK;
}

static int check_arguments(const char *function, const struct tally__rows *rows, const char *text,
                           tally_hook *const *hook)
{
    if (text && !hook) {
        return tally__fail(TALLY_ARG, "%s: hook is NULL", function);
    }
    return tally__text_check(function, rows, text);
}

int tally__hook_parse_in(const struct tally__rows *rows, const char *text, tally_hook **hook)
{
    struct tally__scan scan = {.rows = rows, .text = text};
    struct tally__scan plain = {.rows = rows, .text = PLAIN};
    struct chain chain;

    TRY(check_arguments("tally_hook_parse", rows, text, hook));
    TRY(read_chain(&scan, &chain));
    if (tally__hook_kind_of(chain.link[chain.n - 1].row)->wraps) {
        TRY(tally__setting_read(&plain, &chain.link[chain.n++]));
    }
    return make_chain(rows, &chain, NULL, hook);
}

int tally__hook_wrap_in(const struct tally__rows *rows, const char *text, tally_hook *inner,
                        tally_hook **hook)
{
    struct tally__scan scan = {.rows = rows, .text = text};
    struct chain chain = {.n = 1};
    struct tally__setting *link = &chain.link[0];

    TRY(check_arguments("tally_hook_wrap", rows, text, hook));
    if (!inner) {
        return tally__fail(TALLY_ARG, "tally_hook_wrap: inner is NULL");
    }
    TRY(tally__setting_read(&scan, link));
    if (!tally__hook_kind_of(link->row)->wraps) {
        return TALLY__FAIL_AT(&scan, link->at, "%s is not a wrapper; wrappers are %s",
                              link->row->name, wrappers_of(rows).text);
    }
    TRY(read_end(&scan, &chain, false));
    tally__hook_hold(inner);
    return make_chain(rows, &chain, inner, hook);
}

int tally_hook_parse(const char *text, tally_hook **hook)
{
    return tally__hook_parse_in(&tally__hook_kinds, text, hook);
}

int tally_hook_wrap(const char *text, tally_hook *inner, tally_hook **hook)
{
    return tally__hook_wrap_in(&tally__hook_kinds, text, inner, hook);
}
