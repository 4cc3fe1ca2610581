// The keys of a tokenizer in GGUF: tokens, their kinds, merges, special tokens, the chat template.
//
// llama.cpp knows how a text is cut into words by a name, not by an expression, so the
// pre-tokenizer must be one of those that have a name. Two families are written:
//
//   gpt2    byte-level BPE: GPT-2, Llama 3, Qwen 2, SmolLM
//   llama   SentencePiece's BPE with byte fallback: Llama 2, Mistral. It merges by the score of the
//           result, for which the rank of the first merge that gives it stands
//
// Other tokenizers are refused; --tokenizer none writes a file without a vocabulary.
#include "cli/export/export_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX_BYTES = 256 << 20, TEMPLATE_MAX_BYTES = 1 << 20, TEMPLATES_MAX = 64 };
// Kinds of tokens, by their numbers in files.
enum {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6
};

#define LLAMA3_WORDS                                                          \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" \
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN2_WORDS                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" \
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

typedef struct gguf_words {
    export_job *v;
    gguf_writer *w;
    const json *root, *model;
    data_tokenizer *t;
    int64_t vocab;
    const char **tokens;
    int32_t *kinds;
    float *scores;
    bool is_llama;                        // SentencePiece's BPE
    const char *templates[TEMPLATES_MAX]; // names of chat templates other than the default
    int64_t template_count;
    bool has_template; // the default
} gguf_words;

static bool has_type(const json *value, const char *type)
{
    return strcmp(json_text(json_get(value, "type"), ""), type) == 0;
}

static bool is_null(const json *value)
{
    return value == NULL || json_kind_of(value) == JSON_NULL_VALUE;
}

// ---- what llama.cpp has -------------------------------------------------------------------------

static bool is_byte_level(const json *p, bool cuts)
{
    return has_type(p, "ByteLevel") && json_bool(json_get(p, "use_regex"), true) == cuts &&
           !json_bool(json_get(p, "add_prefix_space"), true);
}

// Returns llama.cpp's name of a byte-level pre-tokenizer; NULL: it has none. Llama 3 takes a whole
// word that is a token before it merges; smaug-bpe cuts the same words and merges them.
static const char *words_name(const json *p, bool ignores_merges)
{
    const json *list = json_get(p, "pretokenizers");
    if (is_byte_level(p, true)) return ignores_merges ? NULL : "gpt-2";
    if (!has_type(p, "Sequence") || json_count(list) != 2) return NULL;
    const json *first = json_at(list, 0), *second = json_at(list, 1);
    if (has_type(first, "Digits")) {
        const bool each = json_bool(json_get(first, "individual_digits"), false);
        return each && !ignores_merges && is_byte_level(second, true) ? "smollm" : NULL;
    }
    const char *words = json_text(json_get(json_get(first, "pattern"), "Regex"), "");
    if (!has_type(first, "Split") || !is_byte_level(second, false)) return NULL;
    if (strcmp(json_text(json_get(first, "behavior"), ""), "Isolated") != 0) return NULL;
    if (strcmp(words, LLAMA3_WORDS) == 0) return ignores_merges ? "llama-bpe" : "smaug-bpe";
    return strcmp(words, QWEN2_WORDS) == 0 && !ignores_merges ? "qwen2" : NULL;
}

// Blanks become U+2581, and one is put before a text: as a normalizer, or as a Metaspace.
static bool is_sentencepiece(const json *root)
{
    const json *list = json_get(json_get(root, "normalizer"), "normalizers");
    const json *words = json_get(root, "pre_tokenizer");
    if (!json_bool(json_get(json_get(root, "model"), "byte_fallback"), false)) return false;
    if (is_null(words)) {
        return json_count(list) == 2 && has_type(json_at(list, 0), "Prepend") &&
               has_type(json_at(list, 1), "Replace");
    }
    return has_type(words, "Metaspace") && is_null(json_get(root, "normalizer"));
}

static status refused(const char *what)
{
    return fail(ST_UNSUPPORTED,
                "--format gguf: llama.cpp has no name for this tokenizer's %s; --tokenizer none "
                "writes the file without a vocabulary",
                what);
}

static status family_find(gguf_words *g, const char **words)
{
    const json *normalizer = json_get(g->root, "normalizer");
    const bool ignores = json_bool(json_get(g->model, "ignore_merges"), false);
    if (!has_type(g->model, "BPE")) return refused("model, which is no BPE");
    g->is_llama = is_sentencepiece(g->root);
    *words = g->is_llama ? "default" : words_name(json_get(g->root, "pre_tokenizer"), ignores);
    if (*words == NULL) return refused("pre-tokenizer");
    // llama.cpp normalizes no text; texts are in the form NFC almost everywhere.
    const bool keeps = g->is_llama || is_null(normalizer) || has_type(normalizer, "NFC");
    return keeps ? ST_OK : refused("normalizer");
}

// ---- tokens -------------------------------------------------------------------------------------

static status token_set(gguf_words *g, const char *spelling, int64_t id, int32_t kind)
{
    if (id < 0 || id >= g->vocab) {
        return fail(ST_MODEL, "the tokenizer has a token of id %lld, and the model %lld rows",
                    (long long)id, (long long)g->vocab);
    }
    g->tokens[id] = spelling;
    g->kinds[id] = kind;
    return ST_OK;
}

static int32_t kind_of(const gguf_words *g, const char *spelling)
{
    const char *unknown = json_text(json_get(g->model, "unk_token"), NULL);
    if (!g->is_llama) return TOKEN_NORMAL;
    if (unknown != NULL && strcmp(spelling, unknown) == 0) return TOKEN_UNKNOWN;
    const bool is_byte =
        strlen(spelling) == 6 && strncmp(spelling, "<0x", 3) == 0 && spelling[5] == '>';
    return is_byte ? TOKEN_BYTE : TOKEN_NORMAL;
}

static status tokens_read(gguf_words *g)
{
    const json *vocab = json_get(g->model, "vocab"), *added = json_get(g->root, "added_tokens");
    for (int64_t i = 0; i < json_count(vocab); i++) {
        const json *id = NULL;
        const char *spelling = json_key_at(vocab, i, &id);
        TRY(token_set(g, spelling, json_int(id, -1), kind_of(g, spelling)));
    }
    for (int64_t i = 0; i < json_count(added); i++) {
        const json *token = json_at(added, i);
        const char *spelling = json_text(json_get(token, "content"), "");
        const bool special = json_bool(json_get(token, "special"), false);
        int32_t kind = special ? TOKEN_CONTROL : TOKEN_USER;
        if (kind_of(g, spelling) == TOKEN_UNKNOWN) kind = TOKEN_UNKNOWN;
        TRY(token_set(g, spelling, json_int(json_get(token, "id"), -1), kind));
    }
    for (int64_t i = 0; i < g->vocab; i++) { // rows of the model without a token
        char *name = NULL;
        if (g->tokens[i] != NULL) continue;
        TRY(arena_format(g->v->cli->a, &name, "[PAD%lld]", (long long)i));
        TRY(token_set(g, name, i, TOKEN_UNUSED));
    }
    return ST_OK;
}

// A merge is "a b", or a list of a and b.
static status merge_text(gguf_words *g, const json *merge, const char *between, const char **out)
{
    const char *spelling = json_text(merge, NULL),
               *space = spelling != NULL ? strchr(spelling, ' ') : NULL;
    char *made = NULL;
    if (spelling != NULL && space != NULL) {
        TRY(arena_format(g->v->cli->a, &made, "%.*s%s%s", (int)(space - spelling), spelling,
                         between, space + 1));
    } else {
        TRY(arena_format(g->v->cli->a, &made, "%s%s%s", json_text(json_at(merge, 0), ""), between,
                         json_text(json_at(merge, 1), "")));
    }
    *out = made;
    return ST_OK;
}

static status merges_write(gguf_words *g)
{
    const json *merges = json_get(g->model, "merges");
    const char **texts = NULL;
    TRY(arena_new(g->v->cli->a, max_i64(json_count(merges), 1), &texts));
    for (int64_t i = 0; i < json_count(merges); i++) {
        TRY(merge_text(g, json_at(merges, i), " ", &texts[i]));
    }
    return gguf_key_texts(g->w, "tokenizer.ggml.merges", texts, json_count(merges));
}

// Tokens that no merge gives are never the result of one; their score says nothing.
static status scores_write(gguf_words *g)
{
    const json *merges = json_get(g->model, "merges");
    TRY(arena_new(g->v->cli->a, g->vocab, &g->scores));
    for (int64_t i = 0; i < g->vocab; i++) g->scores[i] = -1e9f;
    for (int64_t i = json_count(merges) - 1; i >= 0; i--) {
        const char *spelling = NULL;
        TRY(merge_text(g, json_at(merges, i), "", &spelling));
        const int64_t id = json_int(json_get(json_get(g->model, "vocab"), spelling), -1);
        if (id >= 0 && id < g->vocab) g->scores[id] = -(float)i;
    }
    return gguf_key_f32s(g->w, "tokenizer.ggml.scores", g->scores, g->vocab);
}

// ---- special tokens -----------------------------------------------------------------------------

// The ids that the tokenizer puts before and after a text; -1: none.
static status around_find(gguf_words *g, int32_t *before, int32_t *after)
{
    data_ids plain = {0}, whole = {0};
    *before = *after = -1;
    status st = data_tokenizer_encode(g->t, "a", 1, 0, &plain);
    if (st == ST_OK) st = data_tokenizer_encode(g->t, "a", 1, DATA_ENCODE_ADD, &whole);
    if (st == ST_OK && whole.count > plain.count && plain.count > 0) {
        if (whole.items[0] != plain.items[0]) *before = whole.items[0];
        if (whole.items[whole.count - 1] != plain.items[plain.count - 1]) {
            *after = whole.items[whole.count - 1];
        }
    }
    data_ids_deinit(&plain);
    data_ids_deinit(&whole);
    return st;
}

static status special_write(gguf_words *g)
{
    const decoder_spec *s = &g->v->model.spec;
    int32_t before = -1, after = -1;
    TRY(around_find(g, &before, &after));
    const int32_t begin = before >= 0 ? before : s->bos_token;
    const int32_t end = s->ends.count > 0 ? s->ends.ids[0] : data_tokenizer_eot(g->t);
    if (begin >= 0) TRY(gguf_key_u32(g->w, "tokenizer.ggml.bos_token_id", (uint32_t)begin));
    if (end >= 0) TRY(gguf_key_u32(g->w, "tokenizer.ggml.eos_token_id", (uint32_t)end));
    if (s->pad_token >= 0) {
        TRY(gguf_key_u32(g->w, "tokenizer.ggml.padding_token_id", (uint32_t)s->pad_token));
    }
    TRY(gguf_key_bool(g->w, "tokenizer.ggml.add_bos_token", before >= 0));
    TRY(gguf_key_bool(g->w, "tokenizer.ggml.add_eos_token", after >= 0));
    return g->is_llama ? gguf_key_bool(g->w, "tokenizer.ggml.add_space_prefix", true) : ST_OK;
}

static status file_read(const export_job *v, const char *name, char **bytes, int64_t *count)
{
    char *path = NULL;
    bool there = false;
    *bytes = NULL;
    TRY(cli_has_file(v->cli, v->work, name, &there));
    if (!there) return ST_OK;
    TRY(path_join(v->cli->a, v->work, name, &path));
    return host_read_text(v->cli->h, v->cli->a, path, TEMPLATE_MAX_BYTES, bytes, count);
}

// ---- chat templates -----------------------------------------------------------------------------

typedef struct gguf_template {
    const char *name;
    int64_t length; // of the name
    const char *bytes;
    int64_t count;
} gguf_template;

// As llama.cpp's own converter writes names: other bytes than letters and digits are '_'.
static status template_name(gguf_words *g, const gguf_template *t, char **out)
{
    TRY(arena_format(g->v->cli->a, out, "%.*s", (int)t->length, t->name));
    for (char *c = *out; *c != '\0'; c++) {
        const bool is_kept =
            (*c >= '0' && *c <= '9') || (*c >= 'A' && *c <= 'Z') || (*c >= 'a' && *c <= 'z');
        if (!is_kept) *c = '_';
    }
    return **out != '\0' ? ST_OK : fail(ST_DATA, "a chat template of the tokenizer has no name");
}

// is_second: one of that name counts before it.
static status template_add(gguf_words *g, const gguf_template *t, bool is_second)
{
    static const char key[] = "tokenizer.chat_template";
    char *name = NULL, *named = NULL;
    TRY(template_name(g, t, &name));
    const bool is_default = strcmp(name, "default") == 0;
    bool is_there = is_default && g->has_template;
    for (int64_t i = 0; i < g->template_count; i++) {
        is_there = is_there || strcmp(g->templates[i], name) == 0;
    }
    if (is_there && is_second) return ST_OK;
    if (is_there) {
        return fail(ST_UNSUPPORTED, "--format gguf: two chat templates would be called %s", name);
    }
    if (is_default) {
        g->has_template = true;
        return gguf_key_text(g->w, key, t->bytes, t->count);
    }
    if (g->template_count == TEMPLATES_MAX) {
        return fail(ST_UNSUPPORTED, "--format gguf: more than %d named chat templates",
                    (int)TEMPLATES_MAX);
    }
    g->templates[g->template_count++] = name;
    TRY(arena_format(g->v->cli->a, &named, "%s.%s", key, name));
    return gguf_key_text(g->w, named, t->bytes, t->count);
}

// chat_template: a text, or a list of named ones. Files count before them.
static status config_templates_write(gguf_words *g, const json *chat)
{
    if (json_kind_of(chat) == JSON_TEXT) {
        const gguf_template one = {"default", 7, json_text(chat, ""), json_text_bytes(chat)};
        return template_add(g, &one, true);
    }
    for (int64_t i = 0; json_kind_of(chat) == JSON_LIST && i < json_count(chat); i++) {
        const char *name = json_text(json_get(json_at(chat, i), "name"), NULL);
        const json *source = json_get(json_at(chat, i), "template");
        if (name == NULL || json_kind_of(source) != JSON_TEXT) continue;
        const gguf_template one = {name, (int64_t)strlen(name), json_text(source, ""),
                                   json_text_bytes(source)};
        TRY(template_add(g, &one, true));
    }
    return ST_OK;
}

static status config_write(gguf_words *g)
{
    char *bytes = NULL;
    int64_t count = 0;
    json *root = NULL;
    TRY(file_read(g->v, "tokenizer_config.json", &bytes, &count));
    if (bytes == NULL) return ST_OK;
    TRY(json_parse(bytes, count, "tokenizer_config.json", &root));
    const status st = config_templates_write(g, json_get(root, "chat_template"));
    json_free(root);
    return st;
}

static status folder_templates_write(gguf_words *g)
{
    static const char end[] = ".jinja";
    const host_api *api = g->v->cli->h->api;
    char *folder = NULL;
    file_info info;
    file_names names;
    TRY(path_join(g->v->cli->a, g->v->work, EXPORT_TEMPLATES, &folder));
    TRY(api->path_info(g->v->cli->h, folder, &info));
    if (info.kind != FILE_KIND_FOLDER) return ST_OK;
    TRY(api->path_list(g->v->cli->h, g->v->cli->a, folder, &names));
    for (int64_t i = 0; i < names.count; i++) {
        char *path = NULL, *bytes = NULL;
        gguf_template one = {.name = names.names[i]};
        one.length = (int64_t)(strlen(one.name) - strlen(end));
        TRY(path_join(g->v->cli->a, EXPORT_TEMPLATES, one.name, &path));
        TRY(file_read(g->v, path, &bytes, &one.count));
        one.bytes = bytes;
        TRY(template_add(g, &one, false));
    }
    return ST_OK;
}

static status templates_write(gguf_words *g)
{
    char *bytes = NULL;
    int64_t count = 0;
    TRY(file_read(g->v, "chat_template.jinja", &bytes, &count));
    if (bytes != NULL) {
        TRY(template_add(g, &(const gguf_template){"default", 7, bytes, count}, false));
    }
    TRY(folder_templates_write(g));
    TRY(config_write(g));
    if (g->template_count == 0) return ST_OK;
    return gguf_key_texts(g->w, "tokenizer.chat_templates", g->templates, g->template_count);
}

// ---- all ----------------------------------------------------------------------------------------

static status words_write(gguf_words *g)
{
    const char *words = NULL, *model = NULL;
    TRY(family_find(g, &words));
    TRY(arena_new(g->v->cli->a, g->vocab, &g->tokens));
    TRY(arena_new(g->v->cli->a, g->vocab, &g->kinds));
    TRY(tokens_read(g));
    model = g->is_llama ? "llama" : "gpt2";
    TRY(gguf_key_text(g->w, "tokenizer.ggml.model", model, (int64_t)strlen(model)));
    TRY(gguf_key_text(g->w, "tokenizer.ggml.pre", words, (int64_t)strlen(words)));
    TRY(gguf_key_texts(g->w, "tokenizer.ggml.tokens", g->tokens, g->vocab));
    TRY(gguf_key_i32s(g->w, "tokenizer.ggml.token_type", g->kinds, g->vocab));
    TRY(g->is_llama ? scores_write(g) : merges_write(g));
    TRY(special_write(g));
    return templates_write(g);
}

status export_gguf_tokenizer(export_job *v, gguf_writer *w)
{
    gguf_words g = {.v = v, .w = w, .vocab = v->model.spec.vocab};
    char *path = NULL;
    json *root = NULL;
    bool there = false;
    TRY(cli_has_file(v->cli, v->work, "tokenizer.json", &there));
    if (v->tokenizer == NULL) return gguf_key_text(w, "tokenizer.ggml.model", "no_vocab", 8);
    if (!there) {
        return fail(ST_UNSUPPORTED,
                    "--format gguf: the tokenizer %s has no tokenizer.json; save it with "
                    "transformers, or write none with --tokenizer none",
                    v->tokenizer);
    }
    TRY(path_join(v->cli->a, v->work, "tokenizer.json", &path));
    TRY(json_read(v->cli->h, path, FILE_MAX_BYTES, &root));
    g.root = root;
    g.model = json_get(root, "model");
    status st = data_tokenizer_open(v->cli->h, v->cli->a, path, &g.t);
    if (st == ST_OK) st = words_write(&g);
    data_tokenizer_close(g.t);
    json_free(root);
    return st;
}
