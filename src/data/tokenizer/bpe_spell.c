// The spelling of bytes in byte-level vocabularies (bytes_to_unicode of GPT-2): printable bytes
// stand for themselves, and U+0100 and up for the other 68, in order.
#include "data/tokenizer/bpe.h"

enum { SPELL_POINTS = 324 };

int bpe_spelled_byte(uint32_t point)
{
    if (point >= SPELL_POINTS) return -1;
    if ((point >= 33 && point <= 126) || (point >= 161 && point <= 172) ||
        (point >= 174 && point <= 255)) {
        return (int)point;
    }
    if (point < 256) return -1;
    const int n = (int)point - 256;
    return n < 33 ? n : n < 33 + 34 ? 127 + (n - 33) : 173;
}

int64_t bpe_unspell(const char *text, int64_t count, char *bytes)
{
    int64_t n = 0;
    for (int64_t at = 0; at < count;) {
        uint32_t point = 0;
        bool torn = false;
        const int length = utf8_next((const uint8_t *)text + at, count - at, &point, &torn);
        const int byte = length > 0 ? bpe_spelled_byte(point) : -1;
        if (byte < 0) return -1;
        bytes[n++] = (char)byte;
        at += length;
    }
    return n;
}

int bpe_spell_byte(uint8_t byte, char out[2])
{
    const bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int point = prints        ? byte
                      : byte < 33   ? 256 + byte
                      : byte == 173 ? 256 + 33 + 34
                                    : 256 + 33 + byte - 127;
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    out[0] = (char)(0xc0 | point >> 6);
    out[1] = (char)(0x80 | (point & 0x3f));
    return 2;
}
