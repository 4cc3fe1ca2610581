// Training data: token files of all formats, texts.
#include "cli/inspect/inspect.h"
#include "data/reader.h"
#include "data/tokens.h"

#include <string.h>

// ---- tokens -------------------------------------------------------------------------------------

// Reads every id, which also checks it against the vocabulary.
static status tokens_scan(const inspect_report *r, const data_tokens *t, int32_t *largest)
{
    enum { SCAN_TOKENS = 1 << 16 };
    int32_t *ids = NULL;
    const int64_t count = data_tokens_count(t);
    *largest = -1;
    TRY(arena_new(r->cli->a, SCAN_TOKENS, &ids));
    for (int64_t at = 0; at < count; at += SCAN_TOKENS) {
        const int64_t n = min_i64(SCAN_TOKENS, count - at);
        TRY(data_tokens_read(t, at, n, ids));
        for (int64_t i = 0; i < n; i++) {
            if (ids[i] > *largest) *largest = ids[i];
        }
    }
    return ST_OK;
}

static void no_mark(void *context, int64_t token)
{
    (void)context;
    (void)token;
}

static status tokens_check(const inspect_report *r, const data_tokens *t, int32_t *largest)
{
    TRY(data_tokens_verify(t));
    TRY(data_tokens_boundaries(t, 0, data_tokens_count(t), no_mark, NULL));
    return tokens_scan(r, t, largest);
}

static status tokens_tell(inspect_report *r, const data_tokens *t, bool knows_vocab)
{
    int32_t largest = -1;
    char hex[33];
    const hash128 made_with = data_tokens_tokenizer(t);
    const bool is_own = made_with.high != 0 || made_with.low != 0;
    const bool reads = r->verifies || r->scans;
    status st = reads ? tokens_check(r, t, &largest) : ST_OK;
    if (st != ST_OK && r->scans) return st;
    TRY(inspect_take(r, st));
    TRY(inspect_add(r, "format", "token file, %s", data_tokens_format(t)));
    TRY(inspect_add_int(r, "tokens", data_tokens_count(t)));
    if (data_tokens_documents(t) > 0) {
        TRY(inspect_add_int(r, "documents", data_tokens_documents(t)));
    } else {
        TRY(inspect_add(r, "documents", "not stated by the file"));
    }
    if (knows_vocab && data_tokens_vocab(t) > 0) {
        TRY(inspect_add_int(r, "vocabulary", data_tokens_vocab(t)));
    } else {
        TRY(inspect_add(r, "vocabulary", "not stated by the file"));
    }
    if (reads) TRY(inspect_add_int(r, "largest id", largest));
    if (is_own) TRY(inspect_add(r, "tokenizer", "%s", hash128_text(made_with, hex)));
    if (is_own && reads && st == ST_OK) TRY(inspect_add(r, "checksum", "right"));
    return inspect_checked(r, "%severy id of %lld tokens", is_own ? "the checksum and " : "",
                           (long long)data_tokens_count(t));
}

status inspect_tokens(inspect_report *r, const inspect_probe *p)
{
    enum { UINT16_IDS = 1 << 16 };
    data_tokens *t = NULL;
    bool knows_vocab = true;
    status st = data_tokens_open(r->cli->h, r->cli->a, p->path, r->vocab, &t);
    // NanoGPT's files have no vocabulary, so all ids that fit are allowed.
    if (st == ST_DATA && r->vocab == 0) {
        knows_vocab = false;
        st = data_tokens_open(r->cli->h, r->cli->a, p->path, UINT16_IDS, &t);
    }
    TRY(st);
    st = tokens_tell(r, t, knows_vocab);
    data_tokens_close(t);
    return st;
}

// ---- texts --------------------------------------------------------------------------------------

typedef struct text_facts {
    int64_t documents, bytes, tokens;
    bool is_utf8, is_whole;
} text_facts;

static status text_scan(inspect_report *r, data_documents *d, data_ids *ids, text_facts *out)
{
    enum { LOOK_BYTES = 64 << 20 }; // limit without --verify
    *out = (text_facts){.is_utf8 = true};
    while (r->scans || r->verifies || out->bytes < LOOK_BYTES) {
        data_piece piece;
        TRY(data_documents_next(d, &piece));
        out->is_whole = piece.bytes == NULL;
        if (out->is_whole) return ST_OK;
        out->bytes += piece.count;
        if (piece.ends_document) out->documents++;
        if (!text_is_utf8(piece.bytes, piece.count)) out->is_utf8 = false;
        if (r->tokenizer == NULL) continue;
        ids->count = 0;
        TRY(data_tokenizer_encode(r->tokenizer, piece.bytes, piece.count,
                                  data_tokenizer_flags(r->tokenizer) | data_piece_flags(&piece),
                                  ids));
        out->tokens += ids->count;
    }
    return ST_OK;
}

status inspect_text(inspect_report *r, const inspect_probe *p)
{
    data_documents *d = NULL;
    data_ids ids = {0};
    text_facts facts = {0};
    char human[32];
    const int cuts = r->tokenizer == NULL ? DATA_CUT_ANYWHERE : data_tokenizer_cuts(r->tokenizer);
    TRY(data_documents_open(r->cli->h, p->path, cuts, &d));
    if (data_documents_are_lines(d)) r->kind = "JSON lines";
    const int64_t file_bytes = data_reader_file_bytes(data_documents_reader(d));
    status st = text_scan(r, d, &ids, &facts);
    data_documents_close(d);
    data_ids_deinit(&ids);
    // Other programs' JSON lines are valid files, but no training data.
    if (r->scans || st != ST_DATA) TRY(st);
    if (st != ST_OK) TRY(inspect_add(r, "usable", "no: %s", error_last()->text));
    TRY(inspect_take(r, st));
    TRY(inspect_add(r, "format", "text, %s", text_bytes_human(file_bytes, human)));
    if (!facts.is_whole) TRY(inspect_add(r, "read", "in part; so far:"));
    TRY(inspect_add_int(r, "documents", facts.documents));
    TRY(inspect_add_int(r, "bytes", facts.bytes));
    TRY(inspect_add(r, "encoding", facts.is_utf8 ? "UTF-8" : "not all of it UTF-8"));
    if (r->tokenizer != NULL) { // adds an end of text for each document
        TRY(inspect_add_int(r, "tokens", facts.tokens));
    }
    return inspect_checked(r, "every document of %lld", (long long)facts.documents);
}
