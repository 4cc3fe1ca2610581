// `data review`: asks a person about documents that filters drop, and about a share of those that
// stay, and keeps the answers in the file that the next build applies.
//
// Answers come from standard input, a line each, so a script can give them too. Each answer is
// written at once: a review can be left at any time, and the same command goes on.
#include "cli/data/data_commands.h"
#include "cli/data/data_look.h"
#include "cli/data/data_quality.h"
#include "cli/train/signals.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHOWN_BYTES = 2000, // of a text, unless all of it is asked for
    EDITED_BYTES_MAX = 16 << 20
};

typedef struct reviewing {
    cli_context *cli;
    const corpus_config *c;
    char *line; // of standard input
    size_t line_capacity;
    int64_t counts[REVIEW_DECISIONS]; // decided now
    int64_t asked, all;
} reviewing;

// *found = false: the end of the input. Without the line end.
static status read_line(reviewing *w, bool *found)
{
    errno = 0;
    cli_push(w->cli);
    ssize_t count = getline(&w->line, &w->line_capacity, stdin);
    *found = count >= 0;
    if (count < 0 && (ferror(stdin) || errno == ENOMEM)) {
        return fail(ST_IO, "standard input cannot be read");
    }
    while (count > 0 && (w->line[count - 1] == '\n' || w->line[count - 1] == '\r')) {
        w->line[--count] = 0;
    }
    return ST_OK;
}

static status show_text(const reviewing *w, const review_item *item, int64_t most)
{
    data_bytes shown = {0};
    int64_t count = min_i64(most, item->text_bytes);
    while (count > 0 && count < item->text_bytes && ((uint8_t)item->text[count] & 0xc0) == 0x80) {
        count--;
    }
    const status st = data_bytes_add(&shown, item->text, count);
    if (st == ST_OK) data_print_visible(w->cli, &shown);
    data_bytes_deinit(&shown);
    cli_print(w->cli, "\n");
    if (count < item->text_bytes) {
        cli_print(w->cli, "... %lld more bytes; t shows all\n",
                  (long long)(item->text_bytes - count));
    }
    return st;
}

static status show_item(const reviewing *w, const review_item *item)
{
    cli_context *cli = w->cli;
    cli_print(cli, "---- %lld of %lld  %s  %s:%lld%s%s\n", (long long)w->asked, (long long)w->all,
              item->source, item->file, (long long)item->number, item->id != NULL ? "  " : "",
              item->id != NULL ? item->id : "");
    if (item->generator != NULL) cli_print(cli, "     written by %s\n", item->generator);
    cli_print(cli, "     %s%s\n", item->rule != NULL ? "dropped by " : "kept by all filters",
              item->rule != NULL ? item->rule : "");
    return show_text(w, item, SHOWN_BYTES);
}

// The new text: the file that the command names, or lines up to one that is only a dot.
static status read_edit(reviewing *w, const char *path, arena *a, char **out)
{
    text t = {.a = a};
    int64_t bytes = 0;
    if (path[0] != 0) return host_read_text(w->cli->h, a, path, EDITED_BYTES_MAX, out, &bytes);
    cli_print(w->cli, "the new text; a line with only a dot ends it\n");
    for (;;) {
        bool found = false;
        TRY(read_line(w, &found));
        if (!found) return fail(ST_USAGE, "the new text ends without a line with only a dot");
        if (strcmp(w->line, ".") == 0) break;
        TRY(text_add(&t, "%s%s", t.length > 0 ? "\n" : "", w->line));
        if (t.length > EDITED_BYTES_MAX) return fail(ST_USAGE, "the new text is too long");
    }
    *out = t.bytes;
    return ST_OK;
}

static status decide(reviewing *w, const review_item *item, review_decision decision,
                     const char *edited)
{
    TRY(corpus_review_decide(w->cli->h, w->c->review.file, item->hash, decision, edited));
    w->counts[decision]++;
    return ST_OK;
}

static status edit(reviewing *w, const review_item *item, const char *path)
{
    arena *a = NULL;
    char *edited = NULL;
    TRY(arena_create("edited text", 0, &a));
    status st = read_edit(w, path, a, &edited);
    if (st == ST_OK && (edited == NULL || edited[0] == 0)) {
        st = fail(ST_USAGE, "an empty text; r rejects the document");
    }
    if (st == ST_OK) st = decide(w, item, REVIEW_EDIT, edited);
    arena_destroy(a);
    return st;
}

static status ask(void *context, const review_item *item)
{
    reviewing *w = context;
    bool found = false;
    w->asked++;
    TRY(show_item(w, item));
    for (;;) {
        cli_print(w->cli, "accept, reject, edit [FILE], skip, text, quit (a r e s t q)> ");
        TRY(read_line(w, &found));
        if (!w->cli->live) cli_print(w->cli, "\n");
        if (!found || w->line[0] == 'q') return ST_STOPPED;
        const char *rest = w->line + strcspn(w->line, " ");
        while (*rest == ' ') rest++;
        switch (w->line[0]) {
        case 'a':
            return decide(w, item, REVIEW_ACCEPT, NULL);
        case 'r':
            return decide(w, item, REVIEW_REJECT, NULL);
        case 'e':
            return edit(w, item, rest);
        case 's':
            return ST_OK;
        case 't':
            TRY(show_text(w, item, item->text_bytes));
            break;
        default:
            break;
        }
    }
}

static status find_more(cli_context *cli, const corpus_config *c, int64_t *added)
{
    data_building b = {.cli = cli};
    const corpus_progress progress = {.report = data_build_progress, .context = &b};
    cli_signals_begin_quiet();
    const status st = corpus_review_queue(cli->h, cli->a, c, &progress, added);
    cli_signals_end();
    if (cli->live_err) (void)fprintf(cli->err, "\r\033[K");
    return st;
}

static void print_counts(cli_context *cli, const corpus_config *c)
{
    const corpus_review *r = c->review.decisions;
    cli_print(cli, "%s: %lld documents wait, %lld accepted, %lld rejected, %lld edited\n",
              c->review.file, (long long)corpus_review_count(r, REVIEW_NONE),
              (long long)corpus_review_count(r, REVIEW_ACCEPT),
              (long long)corpus_review_count(r, REVIEW_REJECT),
              (long long)corpus_review_count(r, REVIEW_EDIT));
}

static status ask_all(cli_context *cli, const corpus_config *c)
{
    reviewing w = {
        .cli = cli, .c = c, .all = corpus_review_count(c->review.decisions, REVIEW_NONE)};
    status st = corpus_review_each(cli->h, c->review.file, c->review.decisions, ask, &w);
    if (st == ST_STOPPED) st = ST_OK;
    free(w.line);
    TRY(st);
    if (w.counts[REVIEW_ACCEPT] + w.counts[REVIEW_REJECT] + w.counts[REVIEW_EDIT] == 0) {
        return ST_OK;
    }
    cli_print(cli,
              "decided now: %lld accepted, %lld rejected, %lld edited; the next build applies "
              "them\n",
              (long long)w.counts[REVIEW_ACCEPT], (long long)w.counts[REVIEW_REJECT],
              (long long)w.counts[REVIEW_EDIT]);
    return ST_OK;
}

status data_review(cli_context *cli, const cli_call *call)
{
    corpus_config *c = NULL;
    filter_scorer scorer;
    int64_t added = 0;
    if (call->operand_count != 2) return fail(ST_USAGE, "data review takes one configuration");
    TRY(corpus_config_load(cli->h, cli->a, call->operands[1], call->keys, call->key_count, &c));
    data_quality_init(cli, &scorer);
    c->filter.quality.scorer = &scorer;
    if (c->review.file == NULL) {
        return fail(ST_CONFIG_KEY, "%s: data review needs review.file, the file of the decisions",
                    call->operands[1]);
    }
    if (corpus_review_count(c->review.decisions, REVIEW_NONE) == 0) {
        TRY(find_more(cli, c, &added));
        TRY(corpus_review_open(cli->h, cli->a, c->review.file, &c->review.decisions));
    }
    print_counts(cli, c);
    return ask_all(cli, c);
}
