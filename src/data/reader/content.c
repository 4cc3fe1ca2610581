// Recognises files by their first bytes, because names often say nothing (part-00000) or something
// false. Those of the codecs are read; all others are refused with the remedy.
//
// To add a kind: a row in `kinds`. A signature must be unlikely at the beginning of a text.
#include "data/reader/content.h"
#include "base/format/json.h"

#include <string.h>
#include <strings.h>

#define UNPACK       "unpack it, or pack it again with gzip or zstd"
#define ARCHIVE      "unpack it and give its text files"
#define EXTRACT      "extract its text first"
#define CONVERT_ROWS "write its rows as JSON lines with the key \"text\""

typedef struct kind {
    const char *bytes; // the signature
    int8_t count;
    int16_t at; // offset of the signature
    const char *name, *remedy;
} kind;

// The signature of xz is this.
#define XZ_MAGIC \
    "\xfd"       \
    "7zXZ\0"
#define SIGNATURE(text) (text), (int8_t)(sizeof(text) - 1)
static const kind kinds[] = {
    // UTF-32 before UTF-16, whose mark is its beginning.
    {SIGNATURE("\xff\xfe\0\0"), 0, "UTF-32 text", "convert it: iconv -f UTF-32 -t UTF-8"},
    {SIGNATURE("\0\0\xfe\xff"), 0, "UTF-32 text", "convert it: iconv -f UTF-32 -t UTF-8"},
    {SIGNATURE("\xff\xfe"), 0, "UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8"},
    {SIGNATURE("\xfe\xff"), 0, "UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8"},
    {SIGNATURE("]\0\0\x80\0"), 0, "lzma data", UNPACK},
    {SIGNATURE("LZIP\x01"), 0, "lzip data", UNPACK},
    {SIGNATURE("\x04\x22\x4d\x18"), 0, "lz4 data", UNPACK},
    {SIGNATURE("\x02\x21\x4c\x18"), 0, "lz4 data", UNPACK},
    {SIGNATURE("\x1f\x9d"), 0, "data of compress (.Z)", UNPACK},
    {SIGNATURE("\xff\x06\0\0sNaPpY"), 0, "snappy data", UNPACK},
    {SIGNATURE("PK\x03\x04"), 0, "a zip archive (also .docx, .xlsx, .npz, .pt)", ARCHIVE},
    {SIGNATURE("PK\x05\x06"), 0, "an empty zip archive", ARCHIVE},
    {SIGNATURE("7z\xbc\xaf\x27\x1c"), 0, "a 7z archive", ARCHIVE},
    {SIGNATURE("Rar!\x1a\x07"), 0, "a rar archive", ARCHIVE},
    {SIGNATURE("ustar\0"), 257, "a tar archive", ARCHIVE},
    {SIGNATURE("ustar  \0"), 257, "a tar archive", ARCHIVE},
    {SIGNATURE("!<arch>\n"), 0, "an ar archive", ARCHIVE},
    {SIGNATURE("%PDF-"), 0, "a PDF document", EXTRACT},
    {SIGNATURE("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), 0, "an old Office document", EXTRACT},
    {SIGNATURE("{\\rtf"), 0, "an RTF document", EXTRACT},
    {SIGNATURE("\x7f"
               "ELF"),
     0, "an ELF program or library", "give a text"},
    {SIGNATURE("\xca\xfe\xba\xbe"), 0, "a program", "give a text"},
    {SIGNATURE("\xcf\xfa\xed\xfe"), 0, "a program", "give a text"},
    {SIGNATURE("MZ\x90\0"), 0, "a Windows program", "give a text"},
    {SIGNATURE("\x89PNG\r\n\x1a\n"), 0, "a PNG picture", "give a text"},
    {SIGNATURE("\xff\xd8\xff"), 0, "a JPEG picture", "give a text"},
    {SIGNATURE("GIF89a"), 0, "a GIF picture", "give a text"},
    {SIGNATURE("GIF87a"), 0, "a GIF picture", "give a text"},
    {SIGNATURE("II*\0"), 0, "a TIFF picture", "give a text"},
    {SIGNATURE("MM\0*"), 0, "a TIFF picture", "give a text"},
    {SIGNATURE("OggS\0"), 0, "a sound or video file", "give a text"},
    {SIGNATURE("fLaC\0"), 0, "a sound file", "give a text"},
    {SIGNATURE("ID3\x03"), 0, "a sound file", "give a text"},
    {SIGNATURE("ID3\x04"), 0, "a sound file", "give a text"},
    {SIGNATURE("\x1a\x45\xdf\xa3"), 0, "a video file", "give a text"},
    {SIGNATURE("PAR1"), 0, "a Parquet file", "read it with data build, or " CONVERT_ROWS},
    {SIGNATURE("%!PS-Adobe"), 0, "a PostScript document", EXTRACT},
    {SIGNATURE("ARROW1\0"), 0, "an Arrow file", "read it with data build, or " CONVERT_ROWS},
    {SIGNATURE("\xff\xff\xff\xff"), 0, "an Arrow stream or other binary data", CONVERT_ROWS},
    {SIGNATURE("Obj\x01"), 0, "an Avro file", CONVERT_ROWS},
    {SIGNATURE("SQLite format 3\0"), 0, "an SQLite database", CONVERT_ROWS},
    {SIGNATURE("\x89HDF\r\n\x1a\n"), 0, "an HDF5 file", CONVERT_ROWS},
    {SIGNATURE("\x93NUMPY"), 0, "a NumPy array", "write its tokens raw, as uint16, to a .bin file"},
    {SIGNATURE("\x80\x02"), 0, "a pickle, which is a Python program and is never read",
     CONVERT_ROWS},
    {SIGNATURE("\x80\x03"), 0, "a pickle, which is a Python program and is never read",
     CONVERT_ROWS},
    {SIGNATURE("\x80\x04"), 0, "a pickle, which is a Python program and is never read",
     CONVERT_ROWS},
    {SIGNATURE("\x80\x05"), 0, "a pickle, which is a Python program and is never read",
     CONVERT_ROWS},
    {SIGNATURE("GGUF\x02\0"), 0, "a GGUF model, not a text", "give a text"},
    {SIGNATURE("GGUF\x03\0"), 0, "a GGUF model, not a text", "give a text"},
    {SIGNATURE("\0{\""), 7, "a safetensors file, not a text", "give a text"},
};

static bool has(const uint8_t *head, int64_t count, const char *bytes, int64_t bytes_count,
                int64_t at)
{
    return at + bytes_count <= count && memcmp(head + at, bytes, (size_t)bytes_count) == 0;
}

static bool ends_with(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);
    return n > m && strcasecmp(name + n - m, ending) == 0;
}

// ---- codecs -------------------------------------------------------------------------------------

static bool is_zstd(const uint8_t *head, int64_t count)
{
    const bool skippable = count >= 4 && (head[0] & 0xf0) == 0x50; // pzstd begins with one
    return has(head, count, "\x28\xb5\x2f\xfd", 4, 0) ||
           (skippable && has(head, count, "\x2a\x4d\x18", 3, 1));
}

static bool is_bzip2(const uint8_t *head, int64_t count)
{
    return count >= 4 && has(head, count, "BZh", 3, 0) && head[3] >= '1' && head[3] <= '9' &&
           (has(head, count, "1AY&SY", 6, 4) || has(head, count, "\x17\x72\x45\x38\x50\x90", 6, 4));
}

const data_codec *content_codec(const char *path, const uint8_t *head, int64_t count)
{
    static const struct {
        const char *ending;
        const data_codec *codec;
    } names[] = {
        {".gz", &data_codec_gzip},   {".gzip", &data_codec_gzip}, {".tgz", &data_codec_gzip},
        {".zst", &data_codec_zstd},  {".zstd", &data_codec_zstd}, {".tzst", &data_codec_zstd},
        {".bz2", &data_codec_bzip2}, {".xz", &data_codec_xz},
    };
    if (has(head, count, "\x1f\x8b", 2, 0)) return &data_codec_gzip;
    if (is_zstd(head, count)) return &data_codec_zstd;
    if (is_bzip2(head, count)) return &data_codec_bzip2;
    if (has(head, count, XZ_MAGIC, 6, 0)) return &data_codec_xz;
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        if (ends_with(path, names[i].ending)) return names[i].codec;
    }
    return &data_codec_plain;
}

// ---- texts --------------------------------------------------------------------------------------

// Text uses no control characters but white space, escape and backspace.
static bool is_control(uint8_t c)
{
    return c < 0x20 && !(c >= '\b' && c <= '\r') && c != 0x1b;
}

static status check_bytes(const char *path, const uint8_t *head, int64_t count)
{
    int64_t controls = 0, first_zero = -1, zeros[2] = {0, 0};
    for (int64_t i = 0; i < count; i++) {
        if (is_control(head[i])) controls++;
        if (head[i] != 0) continue;
        if (first_zero < 0) first_zero = i;
        zeros[i & 1]++;
    }
    // Latin letters in UTF-16 are a letter and a zero in turn.
    const int64_t most = max_i64(zeros[0], zeros[1]), least = min_i64(zeros[0], zeros[1]);
    if (count >= 4 && most >= count / 4 && least <= count / 64) {
        return fail(ST_UNSUPPORTED,
                    "%s: UTF-16 text without a byte order mark; convert it: iconv -f UTF-16%s -t "
                    "UTF-8",
                    path, zeros[1] > zeros[0] ? "LE" : "BE");
    }
    if (first_zero >= 0) {
        return fail(
            ST_DATA,
            "%s: binary data, not a text (byte 0x00 at byte %lld); give a text, JSON lines, "
            "or tokens as raw uint16 in a .bin file",
            path, (long long)first_zero);
    }
    if (controls > 8 && controls > count / 16) {
        return fail(
            ST_DATA,
            "%s: binary data, not a text (%lld control characters in its first %lld bytes); "
            "give a text, JSON lines, or tokens as raw uint16 in a .bin file",
            path, (long long)controls, (long long)count);
    }
    return ST_OK;
}

status data_tokens_check(const char *path, const uint8_t *head, int64_t count)
{
    enum { SURE_BYTES = 6 }; // shorter signatures may be tokens, except that of archives
    for (int64_t i = 0; i < COUNT_OF(kinds); i++) {
        const kind *k = &kinds[i];
        const bool is_zip = has((const uint8_t *)k->bytes, k->count, "PK\x03\x04", 4, 0);
        const bool is_sure = k->count >= SURE_BYTES || is_zip;
        if (is_sure && has(head, count, k->bytes, k->count, k->at)) {
            return fail(ST_UNSUPPORTED, "%s: %s, not raw tokens; %s", path, k->name, k->remedy);
        }
    }
    return ST_OK;
}

static int64_t skip_space(const uint8_t *head, int64_t count, int64_t at)
{
    while (at < count && (head[at] == ' ' || (head[at] >= '\t' && head[at] <= '\r'))) at++;
    return at;
}

// `[{"`, with white space or a byte order mark anywhere before the quote: no text begins so.
static bool is_array_of_objects(const uint8_t *head, int64_t count)
{
    static const char marks[] = "[{\"";
    int64_t at = has(head, count, "\xef\xbb\xbf", 3, 0) ? 3 : 0;
    for (int i = 0; i < 3; i++) {
        at = skip_space(head, count, at);
        if (at == count || head[at++] != (uint8_t)marks[i]) return false;
    }
    return true;
}

status content_check_text(const char *path, const uint8_t *head, int64_t count)
{
    for (int64_t i = 0; i < COUNT_OF(kinds); i++) {
        const kind *k = &kinds[i];
        if (has(head, count, k->bytes, k->count, k->at)) {
            return fail(ST_UNSUPPORTED, "%s: %s; %s", path, k->name, k->remedy);
        }
    }
    if (is_array_of_objects(head, count)) {
        return fail(ST_UNSUPPORTED,
                    "%s: a JSON array of objects; JSON lines hold an object on each line, as "
                    "jq -c '.[]' writes them",
                    path);
    }
    if (is_bzip2(head, count)) return fail(ST_UNSUPPORTED, "%s: bzip2 data; " UNPACK, path);
    if (has(head, count, XZ_MAGIC, 6, 0)) return fail(ST_UNSUPPORTED, "%s: xz data; " UNPACK, path);
    return check_bytes(path, head, count);
}

status data_text_check(const char *path, const char *bytes, int64_t count)
{
    const uint8_t *head = (const uint8_t *)bytes;
    const int64_t n = min_i64(count, CONTENT_HEAD_BYTES);
    if (content_codec(path, head, n) != &data_codec_plain) {
        return fail(ST_UNSUPPORTED, "%s: compressed data; unpack it", path);
    }
    return content_check_text(path, head, n);
}

// ---- JSON lines ---------------------------------------------------------------------------------

bool content_is_lines(const char *text, int64_t count, bool is_whole)
{
    static const char *const keys[] = {"text"};
    json *value = NULL;
    const char *at = text, *end = text + count;
    while (at < end && (*at == ' ' || (*at >= '\t' && *at <= '\r'))) at++;
    if (at == end || *at != '{') return false;
    const char *key = at + 1;
    while (key < end && (*key == ' ' || *key == '\t')) key++;
    if (key == end || *key != '"') return false;
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    if (newline == NULL && !is_whole) return true;
    if (newline != NULL) end = newline;
    const bool is = json_parse_members(at, end - at, "line", 1, keys, 1, &value) == ST_OK;
    if (!is) error_clear();
    json_free(value);
    return is;
}

bool content_is_lines_name(const char *path)
{
    static const char *const forms[] = {".jsonl", ".jsonlines", ".ndjson", ".json"};
    static const char *const packed[] = {"", ".gz", ".gzip", ".zst", ".zstd", ".bz2", ".xz"};
    const size_t n = strlen(path);
    for (int64_t i = 0; i < COUNT_OF(forms); i++) {
        for (int64_t k = 0; k < COUNT_OF(packed); k++) {
            const size_t m = strlen(forms[i]), c = strlen(packed[k]);
            if (n > m + c && strcasecmp(path + n - c, packed[k]) == 0 &&
                strncasecmp(path + n - c - m, forms[i], m) == 0) {
                return true;
            }
        }
    }
    return false;
}
