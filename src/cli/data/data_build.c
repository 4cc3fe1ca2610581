// `data build`: makes a corpus of training shards, and shows its progress and its result.
#include "cli/data/data_commands.h"
#include "cli/data/data_quality.h"
#include "cli/train/signals.h"
#include "data/corpus.h"

status data_build_progress(void *context, corpus_pass pass, int64_t done, int64_t all,
                           int64_t tokens)
{
    static const char *const names[] = {"reading", "comparing", "writing shards"};
    data_building *b = context;
    char have[32], whole[32], speed[32], rate[32], left[32];
    if (cli_signals_asked()) {
        return fail(ST_STOPPED, "stopped; the same command continues");
    }
    const int64_t now = b->cli->h->api->monotonic_ns(b->cli->h);
    if (!b->has_begun || b->pass != pass) {
        b->has_begun = true;
        b->pass = pass;
        b->begin_ns = now;
        b->begin_done = done;
        b->begin_tokens = tokens;
    }
    if (!b->cli->live_err) return ST_OK;
    const double seconds = (double)(now - b->begin_ns) / 1e9 + 1e-9;
    const double rate_bytes_per_s = (double)(done - b->begin_done) / seconds;
    const double eta_s = rate_bytes_per_s > 0.0 ? (double)(all - done) / rate_bytes_per_s : 0.0;
    if (pass == CORPUS_DEDUP) {
        (void)fprintf(b->cli->err, "\r%s  %lld of %lld\033[K", names[pass], (long long)done,
                      (long long)all);
        return ST_OK;
    }
    (void)fprintf(b->cli->err, "\r%s  %s of %s  %s/s", names[pass], text_bytes_human(done, have),
                  text_bytes_human(all, whole), text_bytes_human((int64_t)rate_bytes_per_s, speed));
    if (pass == CORPUS_SHARDS) {
        const double tokens_per_s = (double)(tokens - b->begin_tokens) / seconds;
        (void)fprintf(b->cli->err, "  %s tokens/s", text_count_human(tokens_per_s, rate));
    }
    (void)fprintf(b->cli->err, "  %s left\033[K", text_duration_human(eta_s, left));
    return ST_OK;
}

static void print_row(cli_context *cli, const char *name, int64_t documents, int64_t bytes,
                      int64_t all)
{
    char count[32], size[32];
    cli_print(cli, "%-28s %14s  %12s  %6.2f%%\n", name, text_grouped(documents, count),
              text_bytes_human(bytes, size),
              all > 0 ? 100.0 * (double)documents / (double)all : 0.0);
}

static void print_result(cli_context *cli, const corpus_config *c, const corpus_result *r,
                         double seconds)
{
    char tokens[32], input[32], speed[32], rate[32], duration[32];
    cli_print(cli, "%-28s %14s  %12s  %7s\n", "", "documents", "text", "share");
    print_row(cli, "read", r->documents, r->text_bytes, r->documents);
    for (int64_t i = 0; i < r->drop_count; i++) {
        const corpus_drop *d = &r->drops[i];
        if (d->documents > 0) print_row(cli, d->rule, d->documents, d->bytes, r->documents);
    }
    print_row(cli, "kept", r->kept_documents, r->kept_bytes, r->documents);
    if (r->changed_documents > 0) {
        cli_print(cli, "%-28s %14s\n", "changed by a filter",
                  text_grouped(r->changed_documents, tokens));
    }
    if (r->cut_documents > 0) {
        cli_print(cli, "%-28s %14s  %12s\n", "repeated parts cut",
                  text_grouped(r->cut_documents, tokens), text_bytes_human(r->cut_bytes, input));
    }
    cli_print(cli, "%s tokens in %lld shard%s of %s, from %lld file%s (%s)\n",
              text_grouped(r->tokens, tokens), (long long)r->shards, text_plural(r->shards, "s"),
              c->out, (long long)r->files, text_plural(r->files, "s"),
              text_bytes_human(r->input_bytes, input));
    if (r->was_complete) {
        cli_print(cli, "note   an earlier call finished this corpus; no file was changed\n");
    } else if (seconds > 0.0) {
        cli_print(cli, "%s, %s/s, %s tokens/s\n", text_duration_human(seconds, duration),
                  text_bytes_human((int64_t)((double)r->text_bytes / seconds), speed),
                  text_count_human((double)r->tokens / seconds, rate));
    }
}

status data_keys(cli_context *cli)
{
    option_table table;
    text t = {.a = cli->a};
    TRY(corpus_config_table(cli->a, &table));
    TRY(option_print_markdown(&table, &t));
    TRY(text_add(&t, "\n| filter | |\n| --- | --- |\n"));
    for (int64_t i = 0; data_filters[i] != NULL; i++) {
        TRY(text_add(&t, "| `%s` | %s |\n", data_filters[i]->name, data_filters[i]->about));
    }
    cli_print_text(cli, &t);
    return ST_OK;
}

status data_build(cli_context *cli, const cli_call *call)
{
    corpus_config *c = NULL;
    filter_scorer scorer;
    corpus_result r;
    data_building b = {.cli = cli};
    const corpus_progress progress = {.report = data_build_progress, .context = &b};
    if (call->operand_count != 2) return fail(ST_USAGE, "data build takes one configuration");
    if (((const data_flags *)call->flags)->sequences > 0) {
        return fail(ST_USAGE, "data build takes no --sequences");
    }
    TRY(corpus_config_load(cli->h, cli->a, call->operands[1], call->keys, call->key_count, &c));
    data_quality_init(cli, &scorer);
    c->filter.quality.scorer = &scorer;
    const int64_t begin_ns = cli->h->api->monotonic_ns(cli->h);
    cli_signals_begin_quiet();
    status st = data_corpus_build(cli->h, cli->a, c, &progress, &r);
    cli_signals_end();
    if (cli->live_err) (void)fprintf(cli->err, "\r\033[K");
    TRY(st);
    print_result(cli, c, &r, (double)(cli->h->api->monotonic_ns(cli->h) - begin_ns) / 1e9);
    if (r.unapplied != NULL) {
        cli_warn(cli, "%s asks for %s, which a corpus leaves out", c->tokenizer, r.unapplied);
    }
    char *key = NULL;
    const char *quoted = NULL;
    text list = {.a = cli->a};
    TRY(option_add_item(&list, c->out, (int64_t)strlen(c->out)));
    TRY(arena_format(cli->a, &key, "data.train=%s", list.bytes));
    TRY(text_quote(cli->a, key, &quoted));
    cli_print(cli, "next   trireme train CONFIG %s\n", quoted);
    return ST_OK;
}
