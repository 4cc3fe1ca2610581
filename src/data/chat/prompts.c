// Prompts to draw completions of (data/prompts.h): lines of a file, as ids.
#include "data/prompts.h"

#include "base/rng.h"
#include "data/chat/chat_internal.h"
#include "data/chat/name_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct prompts_reader {
    arena *a;
    data_chat *chat;
    const char *path;
    int64_t line, longest;
    data_prompt *items;
    int64_t count, capacity;
    data_ids ids; // of the prompt that is read
    hash_stream *hash;
} prompts_reader;

static status line_fails(const prompts_reader *r, const char *why)
{
    return fail(ST_DATA, "%s:%lld: %s", r->path, (long long)r->line, why);
}

// The text of a prompt: the template's, or the text itself. flags: for its encoding.
static status prompt_text(const prompts_reader *r, const json *prompt, text *out, int *flags)
{
    const char *plain = json_text(prompt, "");
    const int64_t bytes = json_text_bytes(prompt);
    *flags = DATA_ENCODE_SPECIAL;
    if (json_kind_of(prompt) == JSON_LIST) return data_chat_ask(r->chat, r->a, prompt, out);
    if (json_kind_of(prompt) != JSON_TEXT) {
        return line_fails(r, "\"prompt\" is neither a text nor a list of messages");
    }
    if (r->chat->is_given && r->chat->jinja != NULL) {
        return data_chat_prompt(r->chat, r->a, NULL, plain, bytes, out);
    }
    *flags = data_tokenizer_flags(r->chat->spec.tokenizer);
    *out = (text){.a = r->a};
    return text_add_bytes(out, plain, bytes);
}

// A number stands as it is written.
static status answer_text(const prompts_reader *r, const json *answer, const char **out)
{
    const json_kind kind = json_kind_of(answer);
    char *copy = NULL;
    *out = NULL;
    if (answer == NULL || kind == JSON_NULL_VALUE) return ST_OK;
    if (kind == JSON_INT) {
        TRY(arena_format(r->a, &copy, "%lld", (long long)json_int(answer, 0)));
    } else if (kind == JSON_REAL) {
        TRY(arena_format(r->a, &copy, "%.17g", json_real(answer, 0.0)));
    } else if (kind == JSON_TEXT) {
        TRY(arena_format(r->a, &copy, "%s", json_text(answer, "")));
    } else {
        return line_fails(r, "\"answer\" is neither a text nor a number");
    }
    *out = copy;
    return ST_OK;
}

static status id_text(const prompts_reader *r, const json *id, const char **out)
{
    char *copy = NULL;
    if (json_kind_of(id) == JSON_INT) {
        TRY(arena_format(r->a, &copy, "%lld", (long long)json_int(id, 0)));
    } else if (json_kind_of(id) == JSON_TEXT) {
        TRY(arena_strdup(r->a, json_text(id, ""), &copy));
    }
    *out = copy;
    return ST_OK;
}

static status prompt_add(prompts_reader *r, const json *line)
{
    const json *prompt = json_get(line, "prompt");
    data_prompt *to = NULL;
    int32_t *ids = NULL;
    text t = {.a = r->a};
    int flags = 0;
    if (json_kind_of(line) != JSON_MAP || prompt == NULL) {
        return line_fails(r, "an object with a \"prompt\" expected");
    }
    TRY(prompt_text(r, prompt, &t, &flags));
    r->ids.count = 0;
    TRY(data_tokenizer_encode(r->chat->spec.tokenizer, t.bytes != NULL ? t.bytes : "", t.length,
                              flags, &r->ids));
    if (r->ids.count == 0) return line_fails(r, "the prompt has no token");
    if (r->ids.count > r->longest) {
        return fail(ST_DATA,
                    "%s:%lld: the prompt has %lld tokens, and train.seq less "
                    "rollout.max_tokens leaves %lld",
                    r->path, (long long)r->line, (long long)r->ids.count, (long long)r->longest);
    }
    TRY(arena_grow(r->a, (void **)&r->items, &r->capacity, r->count + 1,
                   (int64_t)sizeof(*r->items)));
    TRY(arena_new(r->a, r->ids.count, &ids));
    memcpy(ids, r->ids.items, (size_t)r->ids.count * sizeof(*ids));
    to = &r->items[r->count];
    *to = (data_prompt){.ids = ids, .count = r->ids.count, .line = r->line};
    TRY(answer_text(r, json_get(line, "answer"), &to->answer));
    TRY(id_text(r, json_get(line, "id"), &to->id));
    hash_add(r->hash, ids, r->ids.count * (int64_t)sizeof(*ids));
    if (to->answer != NULL) hash_add(r->hash, to->answer, (int64_t)strlen(to->answer) + 1);
    r->count++;
    return ST_OK;
}

static status lines_read(prompts_reader *r, const char *bytes, int64_t count)
{
    for (int64_t at = 0; at < count;) {
        const char *end = memchr(bytes + at, '\n', (size_t)(count - at));
        const int64_t next = end != NULL ? end - bytes + 1 : count;
        int64_t length = next - at;
        json *line = NULL;
        r->line++;
        while (length > 0 && text_is_blank(bytes[at + length - 1])) length--;
        if (length > 0) {
            TRY(json_parse_row(bytes + at, length, r->path, r->line, "prompt messages answer id",
                               &line));
            const status st = prompt_add(r, line);
            json_free(line);
            TRY(st);
        }
        at = next;
    }
    return r->count > 0 ? ST_OK : fail(ST_DATA, "%s has no prompts", r->path);
}

static status file_read(const host *h, const char *path, data_bytes *out)
{
    enum { PIECE = 1 << 16 };
    data_reader *reader = NULL;
    int64_t got = 1;
    char *piece = malloc(PIECE);
    if (piece == NULL) return fail(ST_NO_MEMORY, "no memory for %s", path);
    status st = data_reader_open(h, path, &reader);
    while (st == ST_OK && got > 0) {
        st = data_reader_read(reader, piece, PIECE, &got);
        if (st == ST_OK && out->count + got > DATA_WHOLE_BYTES_MAX) {
            st = fail(ST_DATA, "%s has more than %d bytes of prompts", path, DATA_WHOLE_BYTES_MAX);
        }
        if (st == ST_OK) st = data_bytes_add(out, piece, got);
    }
    data_reader_close(reader);
    free(piece);
    return st;
}

static void ends_find(const data_chat *c, data_prompts *out)
{
    const int32_t eot = data_tokenizer_eot(c->spec.tokenizer);
    out->end_count = data_chat_ends(c, out->ends);
    bool is_there = false;
    for (int64_t i = 0; i < out->end_count; i++) is_there = is_there || out->ends[i] == eot;
    if (eot >= 0 && !is_there) out->ends[out->end_count++] = eot;
}

status data_prompts_read(const host *h, arena *a, const data_chat_spec *chat, const char *path,
                         int64_t longest, data_prompts *out)
{
    prompts_reader r = {.a = a, .path = path, .longest = longest, .hash = hash_begin()};
    data_bytes bytes = {0};
    char *owned = NULL;
    if (r.hash == NULL) return fail(ST_NO_MEMORY, "no memory for the hash of prompts");
    *out = (data_prompts){.count = 0};
    status st = data_chat_open(h, a, chat, &r.chat);
    if (st == ST_OK) st = file_read(h, path, &bytes);
    if (st == ST_OK) st = lines_read(&r, bytes.items, bytes.count);
    if (st == ST_OK) ends_find(r.chat, out);
    if (st == ST_OK) st = arena_strdup(a, path, &owned);
    out->path = owned;
    out->id = hash_end(r.hash);
    out->items = r.items;
    out->count = r.count;
    for (int64_t i = 0; i < r.count; i++) out->tokens += r.items[i].count;
    data_chat_close(r.chat);
    data_ids_deinit(&r.ids);
    data_bytes_deinit(&bytes);
    return st;
}

// ---- places and exclusions ----------------------------------------------------------------------

int64_t data_prompts_at(const data_prompts *p, uint64_t seed, int64_t at)
{
    int64_t i = rng_permute(seed, (uint64_t)(at / p->count), p->count, at % p->count);
    while (p->items[i].is_hidden) i = (i + 1) % p->count; // one is not
    return i;
}

static bool is_named(const data_prompts *p, int64_t i, const name_list *l)
{
    const data_prompt *x = &p->items[i];
    return name_list_has(l, p->path, x->line, x->id, x->id != NULL ? (int64_t)strlen(x->id) : 0);
}

status data_prompts_named(const data_prompts *p, const char *name, char *flags, int64_t *found)
{
    name_list l;
    *found = 0;
    TRY(name_list_make(&name, 1, (int64_t)strlen(p->path), &l));
    for (int64_t i = 0; i < p->count; i++) {
        flags[i] = is_named(p, i, &l) ? 1 : 0;
        *found += flags[i];
    }
    name_list_free(&l);
    return ST_OK;
}

status data_prompts_exclude(data_prompts *p, const char *const *entries, int64_t count,
                            int64_t *found)
{
    name_list l;
    *found = 0;
    TRY(name_list_make(entries, count, (int64_t)strlen(p->path), &l));
    for (int64_t i = 0; i < p->count; i++) {
        p->items[i].is_hidden = is_named(p, i, &l);
        *found += p->items[i].is_hidden ? 1 : 0;
    }
    name_list_free(&l);
    if (count > 0 && *found == 0) {
        return fail(ST_NOT_FOUND,
                    "data.exclude: none of its %lld entries names a prompt of %s; an entry is "
                    "FILE:LINE or the line's \"id\"",
                    (long long)count, p->path);
    }
    if (*found < p->count) return ST_OK;
    return fail(ST_DATA, "data.exclude leaves out all %lld prompts of %s", (long long)p->count,
                p->path);
}
