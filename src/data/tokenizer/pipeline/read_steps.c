// Reads the normalizers, pre-tokenizers and decoders of a tokenizer.json.
#include "data/tokenizer/pipeline/pipeline.h"

#include <stdlib.h>
#include <string.h>

static bool is_absent(const json *value)
{
    return json_kind_of(value) == JSON_NONE || json_kind_of(value) == JSON_NULL_VALUE;
}

static status unsupported(const char *path, const char *what, const char *found,
                          const char *expected)
{
    return fail(ST_UNSUPPORTED, "%s: %s `%.80s` is not supported; expected %s", path, what, found,
                expected);
}

// The index of a text among names, which end with NULL; -1 for none.
static int choose(const char *text, const char *const *names)
{
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(text, names[i]) == 0) return i;
    }
    return -1;
}

status pipeline_read_text(arena *a, const char *path, const json *map, const char *key,
                          const char **out, int64_t *bytes)
{
    const json *value = json_get(map, key);
    if (json_kind_of(value) != JSON_TEXT) {
        return fail(ST_DAMAGED, "%s: `%s` of a `%.80s` is no text", path, key,
                    json_text(json_get(map, "type"), "?"));
    }
    char *copy = NULL;
    *bytes = json_text_bytes(value);
    TRY(arena_new(a, *bytes + 1, &copy));
    memcpy(copy, json_text(value, ""), (size_t)*bytes);
    *out = copy;
    return ST_OK;
}

// {"String": "..."} or {"Regex": "..."}.
static status read_pattern(const pipeline *p, arena *a, const char *path, const json *map,
                           pattern *out)
{
    const json *value = json_get(map, "pattern");
    const json *literal = json_get(value, "String"), *regex = json_get(value, "Regex");
    if (json_kind_of(literal) == JSON_TEXT) {
        return pattern_literal(a, path, json_text(literal, ""), json_text_bytes(literal), out);
    }
    if (json_kind_of(regex) == JSON_TEXT) {
        return pattern_regex(p->syntax, path, json_text(regex, ""), json_text_bytes(regex), out);
    }
    return fail(ST_DAMAGED, "%s: `pattern` of a `%.80s` has neither `String` nor `Regex`", path,
                json_text(json_get(map, "type"), "?"));
}

// A single character, such as the replacement of Metaspace.
static status check_character(const char *path, const char *what, const char *text, int64_t bytes)
{
    uint32_t point = 0;
    bool torn = false;
    if (bytes > 0 && utf8_next((const uint8_t *)text, bytes, &point, &torn) == bytes) return ST_OK;
    return fail(ST_DAMAGED, "%s: `%s` is not one character", path, what);
}

// ---- the steps of a Sequence --------------------------------------------------------------------

typedef status read_one(pipeline *p, arena *a, const char *path, const json *step);

// The reader of JSON bounds the depth of sequences within sequences.
static status read_steps(pipeline *p, arena *a, const char *path, const json *value,
                         const char *members, read_one *read)
{
    if (json_kind_of(value) != JSON_MAP) {
        return fail(ST_DAMAGED, "%s: a step of `%s` is no map", path, members);
    }
    if (strcmp(json_text(json_get(value, "type"), "?"), "Sequence") != 0) {
        return read(p, a, path, value);
    }
    const json *list = json_get(value, members);
    if (json_kind_of(list) != JSON_LIST) {
        return fail(ST_DAMAGED, "%s: a `Sequence` has no list `%s`", path, members);
    }
    for (int64_t i = 0; i < json_count(list); i++) {
        TRY(read_steps(p, a, path, json_at(list, i), members, read));
    }
    return ST_OK;
}

static status check_count(const char *path, const char *what, int count)
{
    if (count < PIPELINE_STEPS_MAX) return ST_OK;
    return fail(ST_UNSUPPORTED, "%s: more than %d steps of `%s` are not supported", path,
                PIPELINE_STEPS_MAX, what);
}

// ---- normalizers --------------------------------------------------------------------------------

static status add_normalizer(pipeline *p, const char *path, normalizer_kind kind, normalizer **out)
{
    TRY(check_count(path, "normalizer", p->normalizer_count));
    *out = &p->normalizers[p->normalizer_count++];
    **out = (normalizer){.kind = kind};
    return ST_OK;
}

// BertNormalizer is several steps in this order.
static status read_bert(pipeline *p, const char *path, const json *step)
{
    normalizer *n = NULL;
    const bool lower = json_bool(json_get(step, "lowercase"), true);
    const bool accents = json_bool(json_get(step, "strip_accents"), lower); // null: as lowercase
    if (json_bool(json_get(step, "clean_text"), true)) {
        TRY(add_normalizer(p, path, NORMALIZER_CLEAN, &n));
    }
    if (json_bool(json_get(step, "handle_chinese_chars"), true)) {
        TRY(add_normalizer(p, path, NORMALIZER_CHINESE, &n));
    }
    if (accents) {
        TRY(add_normalizer(p, path, NORMALIZER_NFD, &n));
        TRY(add_normalizer(p, path, NORMALIZER_BERT_ACCENTS, &n));
    }
    return lower ? add_normalizer(p, path, NORMALIZER_LOWERCASE, &n) : ST_OK;
}

static status read_normalizer(pipeline *p, arena *a, const char *path, const json *step)
{
    static const char *const names[] = {
        "NFC",       "NFD",          "NFKC",        "NFKD", "Replace",   "Prepend", "Strip",
        "Lowercase", "StripAccents", "Precompiled", "Nmt",  "ByteLevel", NULL};
    const char *type = json_text(json_get(step, "type"), "?");
    if (strcmp(type, "BertNormalizer") == 0) return read_bert(p, path, step);
    const int kind = choose(type, names);
    if (kind < 0) {
        return unsupported(path, "normalizer", type,
                           "NFC, NFD, NFKC, NFKD, Replace, Prepend, Strip, Lowercase, "
                           "StripAccents, BertNormalizer, Precompiled, Nmt, ByteLevel or Sequence");
    }
    normalizer *n = NULL;
    const char *table = NULL;
    int64_t bytes = 0;
    TRY(add_normalizer(p, path, (normalizer_kind)kind, &n));
    if (n->kind == NORMALIZER_PREPEND) {
        return pipeline_read_text(a, path, step, "prepend", &n->text, &n->text_bytes);
    }
    if (n->kind == NORMALIZER_REPLACE) {
        const char *regex = json_text(json_get(json_get(step, "pattern"), "Regex"), "");
        n->is_blanks = strcmp(regex, " {2,}") == 0 || strcmp(regex, " +") == 0;
        TRY(pipeline_read_text(a, path, step, "content", &n->text, &n->text_bytes));
        return read_pattern(p, a, path, step, &n->pattern);
    }
    if (n->kind == NORMALIZER_PRECOMPILED) {
        TRY(pipeline_read_text(a, path, step, "precompiled_charsmap", &table, &bytes));
        return precompiled_read(a, path, table, bytes, &n->table);
    }
    n->left = json_bool(json_get(step, "strip_left"), true);
    n->right = json_bool(json_get(step, "strip_right"), true);
    return ST_OK;
}

status pipeline_read_normalizers(pipeline *p, arena *a, const char *path, const json *value)
{
    if (is_absent(value)) return ST_OK;
    return read_steps(p, a, path, value, "normalizers", read_normalizer);
}

// ---- pre-tokenizers -----------------------------------------------------------------------------

static status read_behaviour(const char *path, const json *step, splitter *s)
{
    static const char *const names[] = {"Removed",        "Isolated",   "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous", NULL};
    const char *name = json_text(json_get(step, "behavior"), "?");
    const int chosen = choose(name, names);
    if (chosen < 0) return unsupported(path, "behavior", name, "a behaviour of Split");
    s->behaviour = (split_behaviour)chosen;
    return ST_OK;
}

// `prepend_scheme`, or in older files `add_prefix_space`.
static status read_scheme(const char *path, const json *step, int *out)
{
    static const char *const names[] = {"never", "first", "always", NULL};
    const json *scheme = json_get(step, "prepend_scheme");
    if (is_absent(scheme)) {
        const bool adds = json_bool(json_get(step, "add_prefix_space"), true);
        *out = adds ? PREPEND_ALWAYS : PREPEND_NEVER;
        return ST_OK;
    }
    *out = choose(json_text(scheme, "?"), names);
    if (*out >= 0) return ST_OK;
    return unsupported(path, "prepend_scheme", json_text(scheme, "?"), "never, first or always");
}

static status read_metaspace(const pipeline *p, arena *a, const char *path, const json *step,
                             splitter *s)
{
    const char *mark = NULL;
    int64_t bytes = 0;
    TRY(pipeline_read_text(a, path, step, "replacement", &mark, &bytes));
    TRY(check_character(path, "replacement", mark, bytes));
    TRY(pattern_literal(a, path, mark, bytes, &s->pattern));
    TRY(read_scheme(path, step, &s->prepend));
    s->splits = json_bool(json_get(step, "split"), true);
    s->behaviour = SPLIT_MERGED_WITH_NEXT;
    // Whether a stretch still begins where the text does is not known after these.
    if (s->prepend == PREPEND_FIRST && p->normalizer_count > 0 && p->splitter_count > 1) {
        return unsupported(path, "prepend_scheme", "first",
                           "`always` or `never` after normalizers and other pre_tokenizers");
    }
    for (int i = 0; i < p->normalizer_count && s->prepend == PREPEND_FIRST; i++) {
        const normalizer *n = &p->normalizers[i];
        const bool keeps = n->kind <= NORMALIZER_NFKD || n->kind == NORMALIZER_PREPEND ||
                           n->kind == NORMALIZER_LOWERCASE || n->kind == NORMALIZER_CHINESE ||
                           (n->kind == NORMALIZER_REPLACE && n->text_bytes > 0) ||
                           (n->kind == NORMALIZER_STRIP && !n->left);
        if (!keeps) {
            return unsupported(path, "prepend_scheme", "first",
                               "`always` or `never` after a normalizer that removes characters");
        }
    }
    return ST_OK;
}

static status add_splitter(pipeline *p, const char *path, splitter_kind kind, splitter **out)
{
    TRY(check_count(path, "pre_tokenizer", p->splitter_count));
    *out = &p->splitters[p->splitter_count++];
    **out = (splitter){.kind = kind, .behaviour = SPLIT_ISOLATED};
    return ST_OK;
}

// Every character is in a match of these expressions, so what lies between matches is nothing.
static status read_scanner(pipeline *p, const json *step, splitter *s)
{
    const json *regex = json_get(json_get(step, "pattern"), "Regex");
    const bool keeps =
        s->behaviour == SPLIT_ISOLATED || (s->behaviour == SPLIT_REMOVED && s->invert);
    if (!keeps || !scanner_find(json_text(regex, ""), json_text_bytes(regex), &s->known)) {
        return ST_OK;
    }
    s->known.classes = p->classes;
    if (!s->known.has_cases) return ST_OK;
    if (p->cases == NULL) {
        p->cases = malloc(SPLIT_CLASS_POINTS);
        if (p->cases == NULL) return fail(ST_NO_MEMORY, "no memory for a tokenizer");
        scanner_classes_fill(p->cases);
    }
    s->known.classes = p->cases;
    return ST_OK;
}

// The last step of byte-level tokenizers changes nothing that the model could see, so a scanner
// before it hands its words to the model.
static void choose_scanner(pipeline *p)
{
    const int last = p->splitter_count - 1;
    if (!p->is_byte_level || last > 1 || p->splitters[last].add_prefix_space) return;
    if (last == 0 && p->splitters[0].splits) p->known = scanner_gpt2(p->classes);
    if (last == 1 && !p->splitters[1].splits) p->known = p->splitters[0].known;
}

// Cuts at a character, which goes away.
static status read_delimiter(pipeline *p, arena *a, const char *path, const json *step)
{
    const char *delimiter = NULL;
    int64_t bytes = 0;
    splitter *s = NULL;
    TRY(add_splitter(p, path, SPLITTER_PATTERN, &s));
    s->behaviour = SPLIT_REMOVED;
    TRY(pipeline_read_text(a, path, step, "delimiter", &delimiter, &bytes));
    TRY(check_character(path, "delimiter", delimiter, bytes));
    return pattern_literal(a, path, delimiter, bytes, &s->pattern);
}

static status read_splitter(pipeline *p, arena *a, const char *path, const json *step)
{
    static const char *const names[] = {
        "Split",       "ByteLevel",  "Metaspace",   "Digits",         "WhitespaceSplit",
        "Punctuation", "Whitespace", "FixedLength", "UnicodeScripts", NULL};
    const char *type = json_text(json_get(step, "type"), "?");
    splitter *s = NULL;
    if (strcmp(type, "BertPreTokenizer") == 0) { // two steps
        TRY(add_splitter(p, path, SPLITTER_WHITE_SPACE, &s));
        s->behaviour = SPLIT_REMOVED;
        return add_splitter(p, path, SPLITTER_PUNCTUATION, &s);
    }
    if (strcmp(type, "CharDelimiterSplit") == 0) return read_delimiter(p, a, path, step);
    const int kind = choose(type, names);
    if (kind < 0) {
        return unsupported(
            path, "pre_tokenizer", type,
            "Split, ByteLevel, Metaspace, Digits, WhitespaceSplit, Punctuation, "
            "Whitespace, FixedLength, UnicodeScripts, CharDelimiterSplit, BertPreTokenizer or "
            "Sequence");
    }
    TRY(add_splitter(p, path, (splitter_kind)kind, &s));
    switch (s->kind) {
    case SPLITTER_PATTERN:
        TRY(read_behaviour(path, step, s));
        s->invert = json_bool(json_get(step, "invert"), false);
        TRY(read_pattern(p, a, path, step, &s->pattern));
        return read_scanner(p, step, s);
    case SPLITTER_BYTE_LEVEL:
        s->add_prefix_space = json_bool(json_get(step, "add_prefix_space"), true);
        s->splits = json_bool(json_get(step, "use_regex"), true);
        return ST_OK;
    case SPLITTER_METASPACE:
        return read_metaspace(p, a, path, step, s);
    case SPLITTER_DIGITS:
        s->behaviour = json_bool(json_get(step, "individual_digits"), false) ? SPLIT_ISOLATED
                                                                             : SPLIT_CONTIGUOUS;
        return ST_OK;
    case SPLITTER_PUNCTUATION:
        if (is_absent(json_get(step, "behavior"))) return ST_OK;
        return read_behaviour(path, step, s);
    case SPLITTER_LENGTH:
        s->length = json_int(json_get(step, "length"), 0);
        if (s->length > 0) return ST_OK;
        return fail(ST_DAMAGED, "%s: a FixedLength without a `length` of at least 1", path);
    case SPLITTER_WORDS:
    case SPLITTER_WHITE_SPACE:
        s->behaviour = SPLIT_REMOVED;
        return ST_OK;
    case SPLITTER_SCRIPTS:
        return ST_OK;
    }
    return ST_OK;
}

// Whether the program may keep bytes where the reference spells them: nothing but the model sees
// the spelling, and the model has a token for each byte.
static bool keeps_bytes(const pipeline *p, const json *model)
{
    const json *vocab = json_get(model, "vocab"), *suffix = json_get(model, "end_of_word_suffix");
    const char *type = json_text(json_get(model, "type"), "BPE");
    const int last = p->splitter_count - 1;
    if (strcmp(type, "BPE") != 0 || json_bool(json_get(model, "byte_fallback"), false))
        return false;
    if (json_text_bytes(json_get(model, "continuing_subword_prefix")) > 0) return false;
    for (int i = 0; i <= last; i++) {
        if ((p->splitters[i].kind == SPLITTER_BYTE_LEVEL) != (i == last)) return false;
    }
    for (int byte = 0; byte < 256; byte++) {
        char text[3 + 32] = "";
        const int length = bpe_spell_byte((uint8_t)byte, text);
        text[length] = 0;
        if (json_get(vocab, text) == NULL) return false;
        if (json_text_bytes(suffix) == 0) continue;
        if (json_text_bytes(suffix) > 32) return false;
        memcpy(text + length, json_text(suffix, ""), (size_t)json_text_bytes(suffix) + 1);
        if (json_get(vocab, text) == NULL) return false;
    }
    return true;
}

status pipeline_read_splitters(pipeline *p, arena *a, const char *path, const json *value,
                               const json *model)
{
    if (is_absent(value)) return ST_OK;
    TRY(read_steps(p, a, path, value, "pretokenizers", read_splitter));
    p->is_byte_level = p->splitter_count > 0 && keeps_bytes(p, model);
    choose_scanner(p);
    return ST_OK;
}

// ---- decoders -----------------------------------------------------------------------------------

static status read_strip(arena *a, const char *path, const json *step, decoder_step *s)
{
    TRY(pipeline_read_text(a, path, step, "content", &s->from, &s->from_bytes));
    TRY(check_character(path, "content", s->from, s->from_bytes));
    s->cut = json_int(json_get(step, "start"), 0);
    if (s->cut < 0 || s->cut > 1 << 16) {
        return fail(ST_DAMAGED, "%s: `start` of a decoder `Strip` is %lld; expected 0 to 65536",
                    path, (long long)s->cut);
    }
    s->cut_right = json_int(json_get(step, "stop"), 0);
    if (s->cut_right >= 0 && s->cut_right <= 1 << 16) return ST_OK;
    return fail(ST_DAMAGED, "%s: `stop` of a decoder `Strip` is %lld; expected 0 to 65536", path,
                (long long)s->cut_right);
}

static status read_replace(const pipeline *p, arena *a, const char *path, const json *step,
                           decoder_step *s)
{
    const json *wanted = json_get(step, "pattern");
    if (json_kind_of(json_get(wanted, "Regex")) == JSON_TEXT) {
        TRY(read_pattern(p, a, path, step, &s->pattern));
        return pipeline_read_text(a, path, step, "content", &s->to, &s->to_bytes);
    }
    TRY(pipeline_read_text(a, path, wanted, "String", &s->from, &s->from_bytes));
    if (s->from_bytes == 0) return unsupported(path, "decoder Replace of", "", "a text");
    return pipeline_read_text(a, path, step, "content", &s->to, &s->to_bytes);
}

// BPEDecoder and CTC.
static status read_words(arena *a, const char *path, const json *step, decoder_step *s)
{
    if (s->kind == DECODER_BPE) {
        TRY(pipeline_read_text(a, path, step, "suffix", &s->from, &s->from_bytes));
    } else {
        TRY(pipeline_read_text(a, path, step, "pad_token", &s->from, &s->from_bytes));
        TRY(pipeline_read_text(a, path, step, "word_delimiter_token", &s->to, &s->to_bytes));
        s->cleans = json_bool(json_get(step, "cleanup"), true);
        if (s->to_bytes == 0) return unsupported(path, "word_delimiter_token", "", "a text");
    }
    return s->from_bytes > 0 ? ST_OK
                             : unsupported(path, "an empty text in the decoder",
                                           json_text(json_get(step, "type"), "?"), "a text");
}

static status read_metaspace_decoder(arena *a, const char *path, const json *step, decoder_step *s)
{
    int scheme = 0;
    TRY(read_scheme(path, step, &scheme));
    s->keeps_first = scheme == PREPEND_NEVER;
    TRY(pipeline_read_text(a, path, step, "replacement", &s->from, &s->from_bytes));
    return check_character(path, "replacement", s->from, s->from_bytes);
}

static status read_decoder(pipeline *p, arena *a, const char *path, const json *step)
{
    static const char *const names[] = {"ByteLevel", "Replace",   "ByteFallback", "Fuse", "Strip",
                                        "Metaspace", "WordPiece", "BPEDecoder",   "CTC",  NULL};
    const char *type = json_text(json_get(step, "type"), "?");
    const int kind = choose(type, names);
    if (kind < 0) {
        return unsupported(path, "decoder", type,
                           "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, WordPiece, "
                           "BPEDecoder, CTC or Sequence");
    }
    TRY(check_count(path, "decoder", p->decoder_count));
    decoder_step *s = &p->decoders[p->decoder_count++];
    *s = (decoder_step){.kind = (decoder_kind)kind};
    const bool remembers =
        s->kind == DECODER_BYTE_FALLBACK || s->kind == DECODER_BPE || s->kind == DECODER_CTC;
    for (int i = 0; i + 1 < p->decoder_count; i++) {
        if (!remembers || p->decoders[i].kind != s->kind) continue;
        return unsupported(path, "a second decoder", type, "one");
    }
    switch (s->kind) {
    case DECODER_STRIP:
        return read_strip(a, path, step, s);
    case DECODER_REPLACE:
        return read_replace(p, a, path, step, s);
    case DECODER_BPE:
    case DECODER_CTC:
        return read_words(a, path, step, s);
    case DECODER_WORDPIECE:
        s->cleans = json_bool(json_get(step, "cleanup"), true);
        return pipeline_read_text(a, path, step, "prefix", &s->from, &s->from_bytes);
    case DECODER_METASPACE:
        return read_metaspace_decoder(a, path, step, s);
    case DECODER_BYTE_LEVEL:
    case DECODER_BYTE_FALLBACK:
    case DECODER_FUSE:
    case DECODER_JOIN:
        break;
    }
    return ST_OK;
}

// Steps after one that makes one text of all tokens wait for the end, but for a Strip of the front,
// which Llama's files have: it can count what it has cut.
static void find_hold(pipeline *p)
{
    p->hold = -1;
    for (int i = 0; i + 1 < p->decoder_count && p->hold < 0; i++) {
        const decoder_kind kind = p->decoders[i].kind;
        if (kind == DECODER_FUSE || kind == DECODER_BYTE_LEVEL) p->hold = i;
    }
    if (p->hold < 0 || p->hold + 2 != p->decoder_count) return;
    decoder_step *last = &p->decoders[p->decoder_count - 1];
    if (p->decoders[p->hold].kind != DECODER_FUSE || last->kind != DECODER_STRIP) return;
    if (last->cut_right > 0) return;
    last->after_fuse = true;
    p->hold = -1;
}

status pipeline_read_decoders(pipeline *p, arena *a, const char *path, const json *value)
{
    p->hold = -1;
    if (is_absent(value)) {
        p->decoders[p->decoder_count++] = (decoder_step){.kind = DECODER_JOIN};
        return ST_OK;
    }
    TRY(read_steps(p, a, path, value, "decoders", read_decoder));
    find_hold(p);
    return ST_OK;
}
