// `data trace`: the documents that a step trains on, and the steps that train on a document. `data
// audit`: verifies the hashes of a corpus.
//
// The order of sequences is a function of the data and the seed, so no log of it exists: trace
// computes the places of a step's sequences again, finds their documents in the shards' lists and
// reads the names from the ledgers.
#include "cli/data/data_trace.h"
#include "checkpoint/checkpoint.h"
#include "cli/json_text.h"
#include "cli/run_folder.h"
#include "config/run_config.h"
#include "data/corpus.h"

#include <stdlib.h>
#include <string.h>

// Hides the documents that the run had left out in this step.
status data_trace_hide(trace *t, int64_t step)
{
    if (!t->is_run) return ST_OK; // a configuration's data.exclude holds for all steps
    const train_excluded *x = train_excluded_at(t->excluded, t->excluded_count, step);
    if (x == t->hidden) return ST_OK;
    t->hidden = x;
    return train_loader_exclude(t->loader, x != NULL ? x->entries : NULL, x != NULL ? x->count : 0);
}

// A run whose batch was changed on the way consumed others, which the newest checkpoint tells.
int64_t data_trace_before(const trace *t, int64_t step)
{
    int64_t sum = 0;
    for (int64_t s = 0; s + 1 < step; s++) sum += run_config_batch(t->r, s);
    return sum;
}

static status check_batches(trace *t, const char *operand)
{
    char *path = NULL;
    ckpt_info info;
    if (!t->is_run) return ST_OK;
    if (cli_checkpoint_of(t->cli, operand, &path) != ST_OK) {
        error_clear(); // a run without a checkpoint
        return ST_OK;
    }
    TRY(ckpt_info_read(t->cli->h, t->cli->a, path, &info));
    const int64_t sequences = data_trace_before(t, info.step + 1);
    if (sequences == info.sequences) return ST_OK;
    return fail(ST_UNSUPPORTED,
                "%s: after step %lld the run had consumed %lld sequences, but its configuration "
                "gives %lld: the batch was changed during the run, and the steps' sequences are "
                "not known",
                operand, (long long)info.step, (long long)info.sequences, (long long)sequences);
}

status data_trace_add_id(text *line, const char *id, int64_t bytes)
{
    return id != NULL ? cli_add_json_text(line, id, bytes) : text_add(line, "null");
}

// ---- documents of a step ------------------------------------------------------------------------

// The documents [first, last] of one shard that a sequence holds.
typedef struct wanted_documents {
    trace *t;
    const char *shard;
    const data_tokens *tokens;
    int64_t first, last;
} wanted_documents;

static status print_document(void *context, const corpus_entry *e)
{
    wanted_documents *w = context;
    trace *t = w->t;
    cli_context *cli = t->cli;
    if (e->index < w->first) return ST_OK;
    if (e->index > w->last) return ST_STOPPED; // enough was read
    int64_t begin = 0;
    TRY(data_tokens_document_begin(w->tokens, e->index, &begin));
    if (data_dataset_hides(t->d, w->tokens, begin)) return ST_OK;
    t->lines++;
    if (!t->f->json) {
        cli_print(cli, "%10lld  %s #%lld  %s:%lld  %s  %s%s%s%s%s\n", (long long)t->sequence,
                  path_base_name(w->shard), (long long)e->index, e->file, (long long)e->number,
                  e->hash, e->id != NULL ? e->id : "", e->generator != NULL ? "  written by " : "",
                  e->generator != NULL ? e->generator : "", e->review != NULL ? "  review: " : "",
                  e->review != NULL ? e->review : "");
        return ST_OK;
    }
    text line = {.a = cli->a};
    TRY(text_add(&line, "{\"step\": %lld, \"sequence\": %lld, \"shard\": ", (long long)t->step,
                 (long long)t->sequence));
    TRY(cli_add_json_text(&line, w->shard, (int64_t)strlen(w->shard)));
    TRY(text_add(&line, ", \"document\": %lld, \"file\": ", (long long)e->index));
    TRY(cli_add_json_text(&line, e->file, (int64_t)strlen(e->file)));
    TRY(text_add(&line, ", \"n\": %lld, \"hash\": \"%s\", \"id\": ", (long long)e->number,
                 e->hash));
    TRY(data_trace_add_id(&line, e->id, e->id != NULL ? (int64_t)strlen(e->id) : 0));
    if (e->generator != NULL) {
        TRY(text_add(&line, ", \"generator\": "));
        TRY(cli_add_json_text(&line, e->generator, (int64_t)strlen(e->generator)));
    }
    if (e->review != NULL) TRY(text_add(&line, ", \"review\": \"%s\"", e->review));
    TRY(text_add(&line, "}\n"));
    cli_print_text(cli, &line);
    return ST_OK;
}

// Files without a ledger are named with the numbers of their documents.
static status print_part(void *context, const data_tokens *tokens, int64_t first, int64_t count)
{
    trace *t = context;
    char *ledger = NULL;
    file_info info;
    int64_t begin = 0;
    wanted_documents w = {.t = t, .shard = data_tokens_path(tokens), .tokens = tokens};
    if (data_tokens_documents(tokens) == 0) {
        cli_print(t->cli, "%10lld  %s  tokens %lld to %lld\n", (long long)t->sequence, w.shard,
                  (long long)first, (long long)(first + count - 1));
        return ST_OK;
    }
    TRY(data_tokens_document(tokens, first, &w.first, &begin));
    TRY(data_tokens_document(tokens, first + count - 1, &w.last, &begin));
    TRY(corpus_ledger_path(t->cli->a, w.shard, &ledger));
    TRY(t->cli->h->api->path_info(t->cli->h, ledger, &info));
    if (info.kind != FILE_KIND_REGULAR) {
        cli_print(t->cli, "%10lld  %s  documents %lld to %lld\n", (long long)t->sequence, w.shard,
                  (long long)w.first, (long long)w.last);
        return ST_OK;
    }
    const status st = corpus_ledger_read(t->cli->h, ledger, print_document, &w);
    return st == ST_STOPPED ? ST_OK : st;
}

static status trace_step(trace *t)
{
    const int64_t first = data_trace_before(t, t->step);
    TRY(data_trace_hide(t, t->step));
    const int64_t count = run_config_batch(t->r, t->step - 1);
    if (!t->f->json) cli_print(t->cli, "%10s  document\n", "sequence");
    for (t->sequence = first; t->sequence < first + count; t->sequence++) {
        TRY(data_dataset_parts(t->d, t->sequence, print_part, t));
    }
    return ST_OK;
}

// ---- steps of a document ------------------------------------------------------------------------

// Tokens [begin, end) of one file: a document that was asked for.
typedef struct document_range {
    const data_tokens *tokens;
    int64_t begin, end;
} document_range;

typedef struct document_search {
    trace *t;
    const data_tokens *tokens; // of the ledger that is read
    document_range *ranges;
    int64_t count, capacity;
    bool is_hit; // the sequence holds one
} document_search;

static status match_document(void *context, const corpus_entry *e)
{
    document_search *s = context;
    const char *wanted = s->t->f->document;
    if (strcmp(e->hash, wanted) != 0 && (e->id == NULL || strcmp(e->id, wanted) != 0)) return ST_OK;
    document_range r = {.tokens = s->tokens};
    TRY(data_tokens_document_begin(s->tokens, e->index, &r.begin));
    TRY(data_tokens_document_begin(s->tokens, e->index + 1, &r.end));
    void *items = s->ranges;
    TRY(arena_grow(s->t->cli->a, &items, &s->capacity, s->count + 1, sizeof(document_range)));
    s->ranges = items;
    s->ranges[s->count++] = r;
    if (!s->t->f->json) {
        cli_print(s->t->cli, "%s #%lld  %s:%lld  %s\n", path_base_name(data_tokens_path(s->tokens)),
                  (long long)e->index, e->file, (long long)e->number, e->hash);
    }
    return ST_OK;
}

static status meet_part(void *context, const data_tokens *tokens, int64_t first, int64_t count)
{
    document_search *s = context;
    for (int64_t i = 0; i < s->count; i++) {
        const document_range *r = &s->ranges[i];
        const bool is_shown = r->tokens == tokens && r->begin < first + count && r->end > first &&
                              !data_dataset_hides(s->t->d, tokens, r->begin);
        s->is_hit = s->is_hit || is_shown;
    }
    return ST_OK;
}

// note: how the step sees it, where it is not the usual way.
void data_trace_print_hit(trace *t, const char *note)
{
    const long long step = (long long)t->step, sequence = (long long)t->sequence;
    t->lines++;
    if (t->f->json) {
        cli_print(t->cli, "{\"step\": %lld, \"sequence\": %lld%s%s%s}\n", step, sequence,
                  note != NULL ? ", \"as\": \"" : "", note != NULL ? note : "",
                  note != NULL ? "\"" : "");
    } else {
        cli_print(t->cli, "step %lld  sequence %lld%s%s\n", step, sequence,
                  note != NULL ? "  as " : "", note != NULL ? note : "");
    }
}

static status find_ranges(document_search *s)
{
    trace *t = s->t;
    int64_t ledgers = 0;
    for (int64_t i = 0; i < data_dataset_files(t->d); i++) {
        char *ledger = NULL;
        file_info info;
        s->tokens = data_dataset_file(t->d, i);
        TRY(corpus_ledger_path(t->cli->a, data_tokens_path(s->tokens), &ledger));
        TRY(t->cli->h->api->path_info(t->cli->h, ledger, &info));
        if (info.kind != FILE_KIND_REGULAR) continue;
        ledgers++;
        TRY(corpus_ledger_read(t->cli->h, ledger, match_document, s));
    }
    if (s->count > 0) return ST_OK;
    return fail(ST_NOT_FOUND,
                "no document of the name or hash \"%.100s\" in %lld ledgers of the training data; "
                "data build writes them",
                t->f->document, (long long)ledgers);
}

static status trace_document(trace *t)
{
    document_search s = {.t = t};
    int64_t sequence = 0;
    TRY(find_ranges(&s));
    for (int64_t step = 1; step <= t->r->train.steps; step++) {
        const int64_t count = run_config_batch(t->r, step - 1);
        TRY(data_trace_hide(t, step));
        for (int64_t i = 0; i < count; i++, sequence++) {
            s.is_hit = false;
            TRY(data_dataset_parts(t->d, sequence, meet_part, &s));
            if (!s.is_hit) continue;
            t->step = step;
            t->sequence = sequence;
            data_trace_print_hit(t, NULL);
        }
    }
    return ST_OK;
}

// ---- the commands -------------------------------------------------------------------------------

static status check_flags(const cli_call *call)
{
    const data_flags *f = call->flags;
    if (call->operand_count != 2)
        return fail(ST_USAGE, "data trace takes one run or configuration");
    if ((f->step > 0) == (f->document != NULL)) {
        return fail(ST_USAGE, "data trace needs --step or --document, and not both");
    }
    if (f->tokenizer != NULL || f->out != NULL || f->sequences > 0 || f->vocab > 0 ||
        f->special_tokens != RUN_SPECIAL_TEXT || f->on_error != 0) {
        return fail(ST_USAGE, "data trace takes --step, --document, --json and keys only");
    }
    return ST_OK;
}

static status run_trace(trace *t, const char *operand)
{
    char *cache = NULL;
    operand_kind kind;
    TRY(cli_operand_kind(t->cli, operand, &kind));
    t->is_run = kind == OPERAND_RUN;
    if (t->is_run) t->r->data.exclude = NULL; // the run's record counts; the list may have changed
    TRY(path_join(t->cli->a, t->r->run.dir, "cache", &cache));
    TRY(train_loader_prepare(t->loader, cache, NULL, NULL));
    t->d = train_loader_dataset(t->loader);
    t->prompts = train_loader_prompts(t->loader);
    t->step = t->f->step;
    if (t->step > t->r->train.steps) {
        return fail(ST_USAGE, "--step %lld: the run has %lld steps", (long long)t->step,
                    (long long)t->r->train.steps);
    }
    TRY(check_batches(t, operand));
    if (t->is_run) {
        TRY(train_excluded_read(t->cli->h, t->cli->a, operand, &t->excluded, &t->excluded_count));
    }
    if (t->prompts != NULL) {
        TRY(data_trace_prompts(t));
    } else if (data_dataset_samples(t->d, DATA_TRAIN) != NULL) {
        TRY(data_trace_samples(t));
    } else {
        TRY(t->f->step > 0 ? trace_step(t) : trace_document(t));
    }
    if (t->f->step > 0 || t->lines > 0 || t->f->json) return ST_OK;
    cli_print(t->cli, "no step of the run's %lld trains on it\n", (long long)t->r->train.steps);
    return ST_OK;
}

status data_trace(cli_context *cli, const cli_call *call)
{
    trace t = {.cli = cli, .f = call->flags};
    TRY(check_flags(call));
    TRY(data_loader_open(cli, call, &t.r, &t.loader));
    const status st = run_trace(&t, call->operands[1]);
    train_loader_close(t.loader);
    return st;
}

static status print_complaint(void *context, const char *path, const char *why)
{
    cli_context *cli = context;
    (void)path; // the reason names it
    cli_print(cli, "wrong  %s\n", why);
    return ST_OK;
}

status data_audit(cli_context *cli, const cli_call *call)
{
    const data_flags *f = call->flags;
    int64_t complaints = 0;
    if (f->vocab > 0 || f->json || f->special_tokens != RUN_SPECIAL_TEXT) {
        return fail(ST_USAGE, "data audit takes folders of data build and no flags");
    }
    for (int64_t i = 1; i < call->operand_count; i++) {
        corpus_audit_result r;
        char documents[32], tokens[32];
        TRY(data_corpus_audit(cli->h, cli->a, call->operands[i], print_complaint, cli, &r));
        cli_print(cli, "%s  %lld shard%s, %s documents, %s tokens, %lld input file%s",
                  call->operands[i], (long long)r.shards, text_plural(r.shards, "s"),
                  text_grouped(r.documents, documents), text_grouped(r.tokens, tokens),
                  (long long)r.inputs, text_plural(r.inputs, "s"));
        if (r.inputs_missing > 0) {
            cli_print(cli, " (%lld are no longer there)", (long long)r.inputs_missing);
        }
        cli_print(cli, ": %s\n", r.complaints == 0 ? "all right" : "not as it was built");
        complaints += r.complaints;
    }
    if (complaints == 0) return ST_OK;
    return fail(ST_ANSWER_NO, "%lld file%s not what the corpus says", (long long)complaints,
                complaints == 1 ? " is" : "s are");
}
