// JSON lines: an object on each line, of which one member is the text and one may name it.
#include "base/format/json.h"
#include "data/corpus/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct jsonl_state {
    json *values[2]; // text, id; of the last line
    char number[32]; // an id that is a number
} jsonl_state;

static status begin(corpus_rows *r)
{
    r->state = calloc(1, sizeof(jsonl_state));
    return r->state != NULL ? ST_OK : fail(ST_NO_MEMORY, "%s: no memory to read it", r->path);
}

static void forget(jsonl_state *s)
{
    for (int i = 0; i < 2; i++) {
        json_free(s->values[i]);
        s->values[i] = NULL;
    }
}

static void set_id(jsonl_state *s, corpus_row *out)
{
    const json *id = s->values[1];
    if (json_kind_of(id) == JSON_TEXT) {
        out->id = json_text(id, "");
        out->id_bytes = json_text_bytes(id);
    } else if (json_kind_of(id) == JSON_INT) {
        out->id_bytes = snprintf(s->number, sizeof(s->number), "%lld", (long long)json_int(id, 0));
        out->id = s->number;
    }
}

static status next(corpus_rows *r, corpus_row *out)
{
    jsonl_state *s = r->state;
    const char *line = NULL, *keys[2] = {r->o.text, r->o.id};
    int64_t count = 0, limit = 4 * r->o.document_bytes + 65536;
    bool is_large = false;
    const int key_count = r->o.id[0] != 0 && strcmp(r->o.id, r->o.text) != 0 ? 2 : 1;
    forget(s);
    TRY(rows_line(r, limit, &line, &count, &is_large));
    if (line == NULL) return ST_OK;
    while (count > 0 &&
           (line[count - 1] == ' ' || (line[count - 1] >= '\t' && line[count - 1] <= '\r'))) {
        count--;
    }
    *out = (corpus_row){.kind = is_large ? ROW_LARGE : ROW_NONE, .text = line, .text_bytes = 0};
    if (is_large || count == 0) return ST_OK;
    const status st = json_parse_members(line, count, r->path, r->line, keys, key_count, s->values);
    if (st == ST_NO_MEMORY) return st;
    if (st != ST_OK) {
        *out = rows_bad(r, "%s", error_last()->text);
        error_clear();
        return ST_OK;
    }
    if (json_kind_of(s->values[0]) != JSON_TEXT) {
        *out = rows_bad(r, "%s:%lld: %s \"%s\"; each line must be a JSON object with this key",
                        r->path, (long long)r->line,
                        s->values[0] == NULL ? "no key" : "no text under the key", r->o.text);
        return ST_OK;
    }
    *out = (corpus_row){.kind = ROW_DOCUMENT,
                        .text = json_text(s->values[0], ""),
                        .text_bytes = json_text_bytes(s->values[0])};
    set_id(s, out);
    return ST_OK;
}

static void end(corpus_rows *r)
{
    if (r->state == NULL) return;
    forget(r->state);
    free(r->state);
}

const corpus_row_format corpus_row_format_jsonl = {
    .name = "jsonl", .choice = CORPUS_FORMAT_JSONL, .begin = begin, .next = next, .end = end};
