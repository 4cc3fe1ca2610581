// Bytes of texts and of files: UTF-8, and base64.
//
// UTF-8 is read as the reference does: U+FFFD replaces malformed bytes, one for each "maximal part"
// (the longest beginning of a character, else one byte). Unicode 3.9, table 3-7.
#include "data/tokenizer/family.h"

int utf8_next(const uint8_t *bytes, int64_t count, uint32_t *point, bool *torn)
{
    const uint8_t lead = bytes[0];
    *torn = false;
    if (lead < 0x80) {
        *point = lead;
        return 1;
    }
    if (lead < 0xc2 || lead > 0xf4) return -1;
    const int length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    // The second byte's limits exclude overlong forms, surrogates and code points beyond U+10FFFF.
    uint8_t low = 0x80, high = 0xbf;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
    uint32_t value = lead & (length == 2 ? 0x1fu : length == 3 ? 0x0fu : 0x07u);
    for (int i = 1; i < length; i++) {
        if (i >= count) {
            *torn = true;
            return -i;
        }
        if (bytes[i] < low || bytes[i] > high) return -i;
        value = value << 6 | (bytes[i] & 0x3fu);
        low = 0x80;
        high = 0xbf;
    }
    *point = value;
    return length;
}

int64_t utf8_valid_prefix(const char *bytes, int64_t count)
{
    const uint8_t *b = (const uint8_t *)bytes;
    int64_t at = 0;
    while (at < count) {
        uint64_t words[4];
        if (at + 32 <= count) { // ASCII bytes, 32 or at least eight at once
            __builtin_memcpy(words, b + at, sizeof(words));
            if (((words[0] | words[1] | words[2] | words[3]) & 0x8080808080808080u) == 0) {
                at += 32;
                continue;
            }
            if ((words[0] & 0x8080808080808080u) == 0) {
                at += 8;
                continue;
            }
        }
        uint32_t point;
        bool torn;
        const int length = utf8_next(b + at, count - at, &point, &torn);
        if (length < 0) break;
        at += length;
    }
    return at;
}

status utf8_repair(const char *bytes, int64_t count, data_bytes *out)
{
    int64_t at = 0;
    while (at < count) {
        const int64_t valid = utf8_valid_prefix(bytes + at, count - at);
        TRY(data_bytes_add(out, bytes + at, valid));
        at += valid;
        if (at == count) break;
        uint32_t point;
        bool torn;
        const int length = utf8_next((const uint8_t *)bytes + at, count - at, &point, &torn);
        TRY(data_bytes_add(out, "\xef\xbf\xbd", 3));
        at += -length;
    }
    return ST_OK;
}

static status add_whole_characters(data_decoder *d, const char *bytes, int64_t count,
                                   data_bytes *out)
{
    for (int64_t i = 0; i < count; i++) {
        d->pending[d->pending_count++] = (uint8_t)bytes[i];
        // At most two iterations: a byte that breaks a character may itself begin one.
        while (d->pending_count > 0) {
            uint32_t point;
            bool torn;
            const int length = utf8_next(d->pending, d->pending_count, &point, &torn);
            if (length < 0 && torn) break;
            if (length > 0) {
                TRY(data_bytes_add(out, d->pending, length));
            } else {
                TRY(data_bytes_add(out, "\xef\xbf\xbd", 3));
            }
            const int used = length > 0 ? length : -length;
            d->pending_count -= used;
            for (int k = 0; k < d->pending_count; k++) d->pending[k] = d->pending[k + used];
        }
    }
    return ST_OK;
}

// The row's own decoder; id -1: the end.
static status decode_with_row(data_decoder *d, const data_tokenizer *t, int32_t id, int flags,
                              data_bytes *out)
{
    data_bytes raw = {0};
    status st = id >= 0 ? t->row->decode(t, d, id, flags, &raw) : t->row->decode_end(t, d, &raw);
    if (st == ST_OK) st = add_whole_characters(d, raw.items, raw.count, out);
    data_bytes_deinit(&raw);
    return st;
}

status data_decoder_next(data_decoder *d, const data_tokenizer *t, int32_t id, int flags,
                         data_bytes *out)
{
    d->t = t;
    if (t->row->decode != NULL) {
        return id >= 0 ? decode_with_row(d, t, id, flags, out) : ST_OK;
    }
    const char *token = NULL;
    int64_t count = 0;
    bool special = false;
    t->row->token(t, id, &token, &count, &special);
    if (special && (flags & DATA_DECODE_SKIP_SPECIAL) != 0) return ST_OK;
    return add_whole_characters(d, token, count, out);
}

status data_decoder_end(data_decoder *d, data_bytes *out)
{
    status st = ST_OK;
    if (d->t != NULL && d->t->row->decode != NULL) st = decode_with_row(d, d->t, -1, 0, out);
    // The pending bytes are always one maximal part: the beginning of one character.
    if (st == ST_OK && d->pending_count > 0) st = data_bytes_add(out, "\xef\xbf\xbd", 3);
    data_decoder_deinit(d);
    return st;
}

void data_decoder_deinit(data_decoder *d)
{
    data_bytes_deinit(&d->run);
    data_bytes_deinit(&d->held);
    data_bytes_deinit(&d->last);
    data_bytes_deinit(&d->ahead);
    *d = (data_decoder){.pending_count = 0};
}

static int digit64(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

status tokenizer_base64(const char *text, int64_t count, data_bytes *out, bool *valid)
{
    uint32_t bits = 0;
    int held = 0;
    while (count > 0 && text[count - 1] == '=') count--;
    *valid = false;
    for (int64_t i = 0; i < count; i++) {
        const int digit = digit64(text[i]);
        if (digit < 0) return ST_OK;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held < 8) continue;
        held -= 8;
        const char byte = (char)(bits >> held & 0xff);
        TRY(data_bytes_add(out, &byte, 1));
    }
    *valid = true;
    return ST_OK;
}
