// Runs the pre-tokenizers: each splits its input into pieces and hands each piece to the next one;
// the last hands words to the model. Ids so come in the order of the text without lists of words.
#include "data/tokenizer/pipeline/pipeline.h"

#include <string.h>

// Joins each run as the behaviour says, from the front or from the back. Empty pieces take
// part, as in the reference. Marks what goes away with begin == end.
static void join(pieces *list, split_behaviour how)
{
    const bool backwards = how == SPLIT_MERGED_WITH_NEXT;
    bool was_match = false;
    int64_t last = -1;
    for (int64_t k = 0; k < list->count; k++) {
        const int64_t i = backwards ? list->count - 1 - k : k;
        piece *this = &list->items[i];
        const bool joins = last >= 0 && (how == SPLIT_CONTIGUOUS ? this->is_match == was_match
                                                                 : this->is_match && !was_match);
        was_match = this->is_match;
        if (!joins) {
            last = i;
            continue;
        }
        if (backwards) {
            list->items[last].begin = this->begin;
            this->end = this->begin;
        } else {
            list->items[last].end = this->end;
            this->begin = this->end;
        }
    }
}

static void behave(splitter *s)
{
    pieces *list = &s->pieces;
    for (int64_t i = 0; i < list->count && s->invert; i++) {
        list->items[i].is_match = !list->items[i].is_match;
    }
    if (s->behaviour == SPLIT_REMOVED) {
        for (int64_t i = 0; i < list->count; i++) {
            if (list->items[i].is_match) list->items[i].end = list->items[i].begin;
        }
    } else if (s->behaviour != SPLIT_ISOLATED) {
        join(list, s->behaviour);
    }
}

static bool is_space(const pipeline *p, uint32_t point)
{
    return point < SPLIT_CLASS_POINTS && p->classes[point] == SPLIT_SPACE;
}

static bool is_cut(const pipeline *p, splitter_kind kind, uint32_t point)
{
    if (kind == SPLITTER_DIGITS) return unicode_is(UNICODE_NUMBER, point);
    if (kind == SPLITTER_WHITE_SPACE) return is_space(p, point);
    return unicode_is(UNICODE_PUNCTUATION, point);
}

// Each character that the step looks for is a match.
static status character_pieces(const pipeline *p, splitter_kind kind, const char *text,
                               int64_t count, pieces *out)
{
    out->count = 0;
    int64_t last = 0;
    for (int64_t at = 0; at < count;) {
        uint32_t point = 0;
        bool torn = false;
        const int length = utf8_next((const uint8_t *)text + at, count - at, &point, &torn);
        ASSERT(length > 0);
        if (is_cut(p, kind, point)) {
            if (last < at) TRY(pieces_add(out, last, at, false));
            TRY(pieces_add(out, at, at + length, true));
            last = at + length;
        }
        at += length;
    }
    return last < count ? pieces_add(out, last, count, false) : ST_OK;
}

typedef enum run_kind { RUN_NONE, RUN_SPACE, RUN_WORD, RUN_OTHER } run_kind;

static run_kind kind_of(const pipeline *p, uint32_t point)
{
    if (unicode_is(UNICODE_WORD, point)) return RUN_WORD;
    return is_space(p, point) ? RUN_SPACE : RUN_OTHER;
}

// Words, runs of other characters, and white space, which is a match.
static status word_pieces(const pipeline *p, const char *text, int64_t count, pieces *out)
{
    run_kind kind = RUN_NONE;
    int64_t begin = 0;
    out->count = 0;
    for (int64_t at = 0; at < count;) {
        uint32_t point = 0;
        bool torn = false;
        const int length = utf8_next((const uint8_t *)text + at, count - at, &point, &torn);
        ASSERT(length > 0);
        const run_kind this = kind_of(p, point);
        if (at > 0 && this != kind) {
            TRY(pieces_add(out, begin, at, kind == RUN_SPACE));
            begin = at;
        }
        kind = this;
        at += length;
    }
    return pieces_add(out, begin, count, kind == RUN_SPACE);
}

static status scanner_pieces(const scanner *s, const char *text, int64_t count, pieces *out)
{
    out->count = 0;
    for (int64_t at = 0; at < count;) {
        const int64_t end = s->next(s, (const uint8_t *)text, count, at);
        TRY(pieces_add(out, at, end, true));
        at = end;
    }
    return ST_OK;
}

// Blanks become the replacement, perhaps with one before the text.
static status metaspace(splitter *s, const char *text, int64_t count, bool is_start)
{
    const char *mark = s->pattern.literal;
    const int64_t bytes = s->pattern.literal_bytes;
    const bool has_mark =
        count > 0 && (text[0] == ' ' || (count >= bytes && memcmp(text, mark, (size_t)bytes) == 0));
    s->changed.count = 0;
    if (!has_mark && (s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && is_start))) {
        TRY(data_bytes_add(&s->changed, mark, bytes));
    }
    int64_t from = 0;
    for (int64_t at = 0; at <= count; at++) {
        if (at < count && text[at] != ' ') continue;
        TRY(data_bytes_add(&s->changed, text + from, at - from));
        if (at < count) TRY(data_bytes_add(&s->changed, mark, bytes));
        from = at + 1;
    }
    return ST_OK;
}

// Pieces of s->length characters.
static status length_pieces(splitter *s, const char *text, int64_t count)
{
    int64_t begin = 0, characters = 0;
    s->pieces.count = 0;
    for (int64_t at = 0; at < count;) {
        at++;
        while (at < count && ((uint8_t)text[at] & 0xc0) == 0x80) at++;
        if (++characters < s->length && at < count) continue;
        TRY(pieces_add(&s->pieces, begin, at, false));
        begin = at;
        characters = 0;
    }
    return ST_OK;
}

// A piece for each stretch of one script. As in the reference, characters of no script before the
// first of one go away.
static status script_pieces(const char *text, int64_t count, pieces *out)
{
    int64_t begin = -1;
    int script = 0;
    out->count = 0;
    for (int64_t at = 0; at < count;) {
        uint32_t point = 0;
        bool torn = false;
        const int length = utf8_next((const uint8_t *)text + at, count - at, &point, &torn);
        ASSERT(length > 0);
        const int this = unicode_script(point);
        if (this != 0 && this != script) {
            if (begin >= 0) TRY(pieces_add(out, begin, at, false));
            begin = at;
            script = this;
        }
        at += length;
    }
    return begin >= 0 ? pieces_add(out, begin, count, false) : ST_OK;
}

// The characters that spell the bytes of each piece, in place of the text.
static status spell_pieces(splitter *s, const char **text, int64_t *count)
{
    data_bytes spelled = {0};
    for (int64_t i = 0; i < s->pieces.count; i++) {
        piece *one = &s->pieces.items[i];
        const int64_t begin = spelled.count;
        for (int64_t at = one->begin; at < one->end; at++) {
            char character[2];
            const int length = bpe_spell_byte((uint8_t)(*text)[at], character);
            const status st = data_bytes_add(&spelled, character, length);
            if (st == ST_OK) continue;
            data_bytes_deinit(&spelled);
            return st;
        }
        *one = (piece){.begin = begin, .end = spelled.count, .is_match = one->is_match};
    }
    data_bytes_deinit(&s->changed);
    s->changed = spelled;
    *text = spelled.items;
    *count = spelled.count;
    return ST_OK;
}

static status prefix_space(splitter *s, const char *text, int64_t count)
{
    s->changed.count = 0;
    TRY(data_bytes_add(&s->changed, " ", 1));
    return data_bytes_add(&s->changed, text, count);
}

static status whole(splitter *s, int64_t count)
{
    s->pieces.count = 0;
    return pieces_add(&s->pieces, 0, count, false);
}

// Fills s->pieces. *text and *count change to s->changed where the step changes the text.
static status cut(pipeline *p, splitter *s, const char **text, int64_t *count, bool is_start)
{
    switch (s->kind) {
    case SPLITTER_PATTERN:
        if (s->known.next != NULL) return scanner_pieces(&s->known, *text, *count, &s->pieces);
        return pattern_pieces(&s->pattern, *text, *count, &s->pieces);
    case SPLITTER_DIGITS:
    case SPLITTER_PUNCTUATION:
    case SPLITTER_WHITE_SPACE:
        return character_pieces(p, s->kind, *text, *count, &s->pieces);
    case SPLITTER_WORDS:
        return word_pieces(p, *text, *count, &s->pieces);
    case SPLITTER_BYTE_LEVEL:
        if (s->add_prefix_space && (*text)[0] != ' ') {
            TRY(prefix_space(s, *text, *count));
            *text = s->changed.items;
            *count = s->changed.count;
        }
        if (s->splits) {
            const scanner gpt2 = scanner_gpt2(p->classes);
            TRY(scanner_pieces(&gpt2, *text, *count, &s->pieces));
        } else {
            TRY(whole(s, *count));
        }
        return p->is_byte_level ? ST_OK : spell_pieces(s, text, count);
    case SPLITTER_LENGTH:
        return length_pieces(s, *text, *count);
    case SPLITTER_SCRIPTS:
        return script_pieces(*text, *count, &s->pieces);
    case SPLITTER_METASPACE:
        TRY(metaspace(s, *text, *count, is_start));
        *text = s->changed.items;
        *count = s->changed.count;
        if (s->splits) return pattern_pieces(&s->pattern, *text, *count, &s->pieces);
        break;
    }
    return whole(s, *count);
}

// The words of a scanner go to the model, or to the one who counts words.
static status scan(pipeline *p, const uint8_t *text, int64_t count, data_ids *out)
{
    if (p->take == NULL) return bpe_encode_words(p->vocab, &p->known, text, count, out);
    for (int64_t at = 0; at < count;) {
        const int64_t end = p->known.next(&p->known, text, count, at);
        TRY(p->take(p->take_context, (const char *)text + at, end - at));
        at = end;
    }
    return ST_OK;
}

// The depth of the recursion is the number of steps, at most PIPELINE_STEPS_MAX.
status pipeline_split(pipeline *p, int step, const char *text, int64_t count, bool is_start,
                      data_ids *out)
{
    if (count == 0) return ST_OK;
    if (step == 0 && p->known.next != NULL) return scan(p, (const uint8_t *)text, count, out);
    if (step == p->splitter_count) return pipeline_word(p, text, count, out);
    splitter *s = &p->splitters[step];
    TRY(cut(p, s, &text, &count, is_start));
    behave(s);
    for (int64_t i = 0; i < s->pieces.count; i++) {
        const piece *one = &s->pieces.items[i];
        if (one->begin >= one->end) continue;
        TRY(pipeline_split(p, step + 1, text + one->begin, one->end - one->begin,
                           is_start && one->begin == 0, out));
    }
    return ST_OK;
}
