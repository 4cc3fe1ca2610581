// SentencePiece's tokenizer.model: a protocol buffer with the pieces, their scores, and what the
// normalizer does. Source: github.com/google/sentencepiece, src/sentencepiece_model.proto.
//
// Becomes what the reference's converters make of it: a BPE model as Llama's or Gemma's, with the
// dummy prefix before each stretch between added tokens, and a Unigram model as T5's. A merge's
// rank is the rank of the score of the token that it makes.
#include "data/tokenizer/convert/convert.h"
#include "data/tokenizer/convert/protobuf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER, PIECE_UNUSED, PIECE_BYTE };
enum { MODEL_UNIGRAM_FILE = 1, MODEL_BPE_FILE = 2 };

typedef struct piece_row {
    const char *text;
    int64_t bytes;
    float score;
    int32_t kind, id;
} piece_row;

typedef struct model_file {
    const char *path;
    piece_row *pieces; // heap
    int64_t count, capacity;
    int64_t model, unknown;
    bool byte_fallback, suffix;
    const char *charsmap;
    int64_t charsmap_bytes;
    bool adds_prefix, removes_blanks, escapes;
} model_file;

static status damaged(const model_file *m, const char *what)
{
    return fail(ST_DAMAGED, "%s: no SentencePiece model: %s", m->path, what);
}

static status unsupported(const model_file *m, const char *what, const char *expected)
{
    return fail(ST_UNSUPPORTED, "%s: %s is not supported; expected %s", m->path, what, expected);
}

// ---- reading ------------------------------------------------------------------------------------

static status read_piece(model_file *m, protobuf p)
{
    piece_row row = {.text = "", .kind = PIECE_NORMAL, .id = (int32_t)m->count};
    for (;;) {
        protobuf_field f;
        if (!protobuf_next(&p, &f)) return damaged(m, "a piece is cut short");
        if (f.number < 0) break;
        if (f.number == 1 && f.count >= 0) {
            row.text = f.bytes;
            row.bytes = f.count;
        } else if (f.number == 2) {
            const uint32_t bits = (uint32_t)f.value;
            memcpy(&row.score, &bits, sizeof(bits));
        } else if (f.number == 3) {
            row.kind = (int32_t)(f.value & 15);
        }
    }
    if (row.bytes == 0 || utf8_valid_prefix(row.text, row.bytes) != row.bytes) {
        return damaged(m, "a piece is empty or not UTF-8");
    }
    if (!isfinite(row.score)) return damaged(m, "a score is not finite");
    if (row.kind == PIECE_UNUSED) return unsupported(m, "a piece of type UNUSED", "pieces in use");
    if (m->count == TOKENIZER_IDS_MAX) return damaged(m, "too many pieces");
    if (m->count == m->capacity) {
        const int64_t grown = max_i64(1024, 2 * m->capacity);
        piece_row *moved = realloc(m->pieces, (size_t)grown * sizeof(*moved));
        if (moved == NULL) return fail(ST_NO_MEMORY, "%s: no memory to read it", m->path);
        m->pieces = moved;
        m->capacity = grown;
    }
    m->pieces[m->count++] = row;
    return ST_OK;
}

static status read_trainer(model_file *m, protobuf p)
{
    for (;;) {
        protobuf_field f;
        if (!protobuf_next(&p, &f)) return damaged(m, "trainer_spec is cut short");
        if (f.number < 0) return ST_OK;
        if (f.number == 3) m->model = (int64_t)(f.value & INT32_MAX);
        if (f.number == 24) m->suffix = f.value != 0;
        if (f.number == 35) m->byte_fallback = f.value != 0;
        if (f.number == 40) m->unknown = (int64_t)(f.value & INT32_MAX);
    }
}

static status read_normalizer(model_file *m, protobuf p)
{
    for (;;) {
        protobuf_field f;
        if (!protobuf_next(&p, &f)) return damaged(m, "normalizer_spec is cut short");
        if (f.number < 0) return ST_OK;
        if (f.number == 2 && f.count >= 0) {
            m->charsmap = f.bytes;
            m->charsmap_bytes = f.count;
        }
        if (f.number == 3) m->adds_prefix = f.value != 0;
        if (f.number == 4) m->removes_blanks = f.value != 0;
        if (f.number == 5) m->escapes = f.value != 0;
    }
}

static status read_file(model_file *m, const char *bytes, int64_t count)
{
    protobuf p = {.bytes = bytes, .count = count};
    for (;;) {
        protobuf_field f;
        if (!protobuf_next(&p, &f)) return damaged(m, "it is cut short");
        if (f.number < 0) break;
        const protobuf inner = {.bytes = f.bytes, .count = f.count};
        if (f.count < 0) continue;
        if (f.number == 1) TRY(read_piece(m, inner));
        if (f.number == 2) TRY(read_trainer(m, inner));
        if (f.number == 3) TRY(read_normalizer(m, inner));
    }
    if (m->count == 0) return damaged(m, "it has no pieces");
    if (m->model != MODEL_UNIGRAM_FILE && m->model != MODEL_BPE_FILE) {
        return unsupported(m, "a model of words or characters", "Unigram or BPE");
    }
    if (m->suffix) return unsupported(m, "treat_whitespace_as_suffix", "false");
    if (!m->escapes) return unsupported(m, "escape_whitespaces: false", "true");
    return ST_OK;
}

// ---- writing ------------------------------------------------------------------------------------

static status put_added(const model_file *m, const json *added, data_bytes *out)
{
    data_ids has = {0};
    bool is_first = true;
    status st = convert_put(out, "{\"added_tokens\":[");
    for (int64_t i = 0; i < m->count && st == ST_OK; i++) {
        const piece_row *p = &m->pieces[i];
        char digits[16];
        (void)snprintf(digits, sizeof(digits), "%d", p->id);
        const bool is_listed = json_get(added, digits) != NULL;
        if (p->kind < PIECE_UNKNOWN || p->kind > PIECE_USER || is_listed) continue;
        const convert_added one = {
            .text = p->text, .bytes = p->bytes, .id = i, .special = p->kind != PIECE_USER};
        st = convert_put_added(out, &one, is_first);
        if (st == ST_OK) st = data_ids_add(&has, &p->id, 1);
        is_first = false;
    }
    if (st == ST_OK) st = convert_put_decoder(out, m->path, added, &has, is_first);
    data_ids_deinit(&has);
    return st == ST_OK ? convert_put(out, "],") : st;
}

static status put_charsmap(const model_file *m, data_bytes *out)
{
    if (m->charsmap_bytes == 0) return ST_OK;
    TRY(convert_put(out, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":"));
    TRY(convert_put_base64(out, m->charsmap, m->charsmap_bytes));
    return convert_put(out, "},");
}

static status put_bpe_steps(const model_file *m, data_bytes *out)
{
    TRY(convert_put(out, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["));
    TRY(put_charsmap(m, out));
    if (m->removes_blanks) {
        TRY(convert_put(out, "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\A +| +\\\\z\"},"
                             "\"content\":\"\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":"
                             "\" {2,}\"},\"content\":\" \"},"));
    }
    if (m->adds_prefix) TRY(convert_put(out, "{\"type\":\"Prepend\",\"prepend\":\"\u2581\"},"));
    TRY(convert_put(out, "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                         "\"content\":\"\u2581\"}]},\"pre_tokenizer\":null,"));
    TRY(convert_put(out, "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
                         "\"pattern\":{\"String\":\"\u2581\"},\"content\":\" \"},"
                         "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}"));
    if (m->adds_prefix) {
        TRY(convert_put(out, ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}"));
    }
    return convert_put(out, "]},");
}

static status put_bpe(const model_file *m, data_bytes *out)
{
    TRY(put_bpe_steps(m, out));
    TRY(convert_put(out, "\"model\":{\"type\":\"BPE\",\"fuse_unk\":true,\"byte_fallback\":"));
    TRY(convert_put(out, m->byte_fallback ? "true" : "false"));
    if (m->unknown >= 0 && m->unknown < m->count) {
        const piece_row *unknown = &m->pieces[m->unknown];
        TRY(convert_put(out, ",\"unk_token\":"));
        TRY(convert_put_text(out, unknown->text, unknown->bytes));
    }
    TRY(convert_put(out, ",\"vocab\":{"));
    for (int64_t i = 0; i < m->count; i++) {
        if (i > 0) TRY(convert_put(out, ","));
        TRY(convert_put_text(out, m->pieces[i].text, m->pieces[i].bytes));
        TRY(convert_put(out, ":"));
        TRY(convert_put_number(out, i));
    }
    return convert_put(out, "},\"merges\":[]}}");
}

static status put_unigram(const model_file *m, data_bytes *out)
{
    const char *scheme = m->adds_prefix ? "always" : "never";
    char metaspace[160];
    (void)snprintf(metaspace, sizeof(metaspace),
                   "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"%s\","
                   "\"split\":true}",
                   scheme);
    TRY(convert_put(out, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["));
    TRY(put_charsmap(m, out));
    TRY(convert_put(out, "{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true},"
                         "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},"
                         "\"content\":\"\u2581\"}]},\"pre_tokenizer\":"));
    TRY(convert_put(out, metaspace));
    TRY(convert_put(out, ",\"decoder\":"));
    if (m->byte_fallback) {
        TRY(convert_put(out, "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},"));
    }
    TRY(convert_put(out, metaspace));
    TRY(convert_put(out, m->byte_fallback ? "]}," : ","));
    TRY(convert_put(out, "\"model\":{\"type\":\"Unigram\",\"byte_fallback\":"));
    TRY(convert_put(out, m->byte_fallback ? "true" : "false"));
    TRY(convert_put(out, ",\"unk_id\":"));
    TRY(convert_put_number(out, m->unknown));
    TRY(convert_put(out, ",\"vocab\":["));
    for (int64_t i = 0; i < m->count; i++) {
        char score[48];
        (void)snprintf(score, sizeof(score), ",%.17g]", (double)m->pieces[i].score);
        TRY(convert_put(out, i == 0 ? "[" : ",["));
        TRY(convert_put_text(out, m->pieces[i].text, m->pieces[i].bytes));
        TRY(convert_put(out, score));
    }
    return convert_put(out, "]}}");
}

static int compare_scores(const void *x, const void *y)
{
    const piece_row *a = x, *b = y;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

// Pieces of one score have one rank: of them, the leftmost pair is merged first.
static status rank_pieces(const model_file *m, data_ids *ranks)
{
    int32_t rank = -1;
    float before = 0;
    const int32_t none = -1;
    for (int64_t i = 0; i < m->count; i++) TRY(data_ids_add(ranks, &none, 1));
    qsort(m->pieces, (size_t)m->count, sizeof(piece_row), compare_scores);
    for (int64_t i = 0; i < m->count; i++) {
        const piece_row *p = &m->pieces[i];
        if (p->kind != PIECE_NORMAL) continue;
        if (rank < 0 || p->score != before) rank++;
        before = p->score;
        ranks->items[p->id] = rank;
    }
    return ST_OK;
}

bool convert_is_sentencepiece(const char *bytes, int64_t count)
{
    protobuf p = {.bytes = bytes, .count = count};
    protobuf_field f;
    if (count < 4 || bytes[0] != 0x0a || !protobuf_next(&p, &f) || f.count < 0) return false;
    protobuf inner = {.bytes = f.bytes, .count = f.count};
    return protobuf_next(&inner, &f) && f.number == 1 && f.count > 0;
}

status convert_sentencepiece(const char *path, const char *bytes, int64_t count, const json *added,
                             data_bytes *out, data_ids *ranks)
{
    // The defaults of the format.
    model_file m = {.path = path,
                    .model = MODEL_UNIGRAM_FILE,
                    .adds_prefix = true,
                    .removes_blanks = true,
                    .escapes = true};
    status st = read_file(&m, bytes, count);
    if (st == ST_OK) st = put_added(&m, added, out);
    if (st == ST_OK) st = m.model == MODEL_BPE_FILE ? put_bpe(&m, out) : put_unigram(&m, out);
    if (st == ST_OK && m.model == MODEL_BPE_FILE) st = rank_pieces(&m, ranks);
    free(m.pieces);
    return st;
}
