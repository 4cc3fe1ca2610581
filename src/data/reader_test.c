// Readers: the same documents from every form and codec, cuts that change no token, damaged files.
#include "base/fault.h"
#include "base/rng.h"
#include "data/reader.h"
#include "fixtures/base/test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

static char folder[64];

static const char *write_file(const char *name, const void *bytes, int64_t count)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "wb"); // not host_write_all, whose syncs would take seconds
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, (size_t)count, f), count);
    assert_int_equal(fclose(f), 0);
    return path;
}

static int64_t gzip(const void *from, int64_t count, uint8_t *to, int64_t capacity)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    uint8_t copy[1 << 16];
    assert_true(count <= (int64_t)sizeof(copy));
    memcpy(copy, from, (size_t)count);
    z.next_in = copy;
    z.avail_in = (uInt)count;
    z.next_out = to;
    z.avail_out = (uInt)capacity;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    const int64_t made = (int64_t)z.total_out;
    deflateEnd(&z);
    return made;
}

static int64_t zstd(const void *from, int64_t count, uint8_t *to, int64_t capacity)
{
    const size_t made = ZSTD_compress(to, (size_t)capacity, from, (size_t)count, 3);
    assert_false(ZSTD_isError(made));
    return (int64_t)made;
}

// All documents of a file, each ended by '\x01'.
static status read_documents(const char *path, int flags, data_bytes *out)
{
    data_documents *d = NULL;
    TRY(data_documents_open(host_real(), path, flags, &d));
    status st = ST_OK;
    for (;;) {
        data_piece piece;
        TRY_TO(close_documents, data_documents_next(d, &piece));
        if (piece.bytes == NULL) break;
        TRY_TO(close_documents, data_bytes_add(out, piece.bytes, piece.count));
        if (piece.ends_document) TRY_TO(close_documents, data_bytes_add(out, "\x01", 1));
    }
close_documents:
    data_documents_close(d);
    return st;
}

static void expect_documents(const char *path, const char *wanted, int64_t count)
{
    data_bytes got = {0};
    const status st = read_documents(path, DATA_CUT_BLANKS, &got);
    if (st != ST_OK) fail_msg("%s", error_last()->text);
    assert_int_equal(got.count, count);
    if (count > 0) assert_memory_equal(got.items, wanted, (size_t)count);
    data_bytes_deinit(&got);
}

static void expect_failure(const char *path, status wanted, const char *words)
{
    data_bytes got = {0};
    error_clear();
    assert_int_equal(read_documents(path, DATA_CUT_BLANKS, &got), wanted);
    if (strstr(error_last()->text, words) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", error_last()->text, words);
    }
    data_bytes_deinit(&got);
}

#define TEXT_AND_BYTES(text) (text), (int64_t)sizeof(text) - 1

static void test_forms_and_codecs(void **state)
{
    (void)state;
    static const char lines[] = "{\"text\": \"one \\u00e9\"}\n\n{\"id\": 2, \"text\": \"\"}\r\n"
                                "  {\"text\": \"a\\u0000b\\n\"}";
    static const char wanted[] = "one \xc3\xa9\x01\x01"
                                 "a\0b\n\x01";
    static const char plain[] = "one\ntext\n";
    static const char *const line_names[] = {"a.jsonl", "a.ndjson", "a.json"};
    uint8_t packed[4096];
    for (int64_t i = 0; i < COUNT_OF(line_names); i++) {
        char name[32];
        expect_documents(write_file(line_names[i], TEXT_AND_BYTES(lines)), TEXT_AND_BYTES(wanted));
        snprintf(name, sizeof(name), "%s.gz", line_names[i]);
        int64_t n = gzip(TEXT_AND_BYTES(lines), packed, sizeof(packed));
        expect_documents(write_file(name, packed, n), TEXT_AND_BYTES(wanted));
        snprintf(name, sizeof(name), "%s.zst", line_names[i]);
        n = zstd(TEXT_AND_BYTES(lines), packed, sizeof(packed));
        expect_documents(write_file(name, packed, n), TEXT_AND_BYTES(wanted));
    }
    expect_documents(write_file("a.txt", TEXT_AND_BYTES(plain)), TEXT_AND_BYTES("one\ntext\n\x01"));
    expect_documents(write_file("a", TEXT_AND_BYTES(plain)), TEXT_AND_BYTES("one\ntext\n\x01"));
    expect_documents(write_file("empty.txt", "", 0), "", 0);
    expect_documents(write_file("empty.jsonl", "", 0), "", 0);
    expect_documents(write_file("blank.jsonl", "\n \n", 3), "", 0);
    // Several members and frames, one of them skippable, one empty.
    int64_t n = gzip("ab", 2, packed, sizeof(packed));
    n += gzip("", 0, packed + n, (int64_t)sizeof(packed) - n);
    n += gzip("cd", 2, packed + n, (int64_t)sizeof(packed) - n);
    expect_documents(write_file("m.txt.gz", packed, n), TEXT_AND_BYTES("abcd\x01"));
    n = zstd("ab", 2, packed, sizeof(packed));
    memcpy(packed + n, "\x50\x2a\x4d\x18\x03\x00\x00\x00xyz", 11);
    n += 11;
    n += zstd("", 0, packed + n, (int64_t)sizeof(packed) - n);
    n += zstd("cd", 2, packed + n, (int64_t)sizeof(packed) - n);
    expect_documents(write_file("m.txt.zst", packed, n), TEXT_AND_BYTES("abcd\x01"));
}

// Cuts off or changes every byte of a packed file: an error or the same text, never a crash.
static void test_damaged_codecs(void **state)
{
    (void)state;
    char plain[3000];
    for (size_t i = 0; i < sizeof(plain); i++) {
        plain[i] = (char)('a' + rng_word(1, 0, i / 3) % 20);
    }
    uint8_t packed[4096], broken[4096];
    for (int codec = 0; codec < 2; codec++) {
        const char *name = codec == 0 ? "d.txt.gz" : "d.txt.zst";
        const int64_t n = codec == 0 ? gzip(plain, sizeof(plain), packed, sizeof(packed))
                                     : zstd(plain, sizeof(plain), packed, sizeof(packed));
        for (int64_t cut = 0; cut < n; cut += cut < 40 || cut > n - 40 ? 1 : 37) {
            expect_failure(write_file(name, packed, cut), ST_DAMAGED, "damaged at byte");
        }
        for (int64_t at = 0; at < n; at += at < 40 ? 1 : 29) {
            memcpy(broken, packed, (size_t)n);
            broken[at] ^= 0x55;
            data_bytes got = {0};
            const status st = read_documents(write_file(name, broken, n), DATA_CUT_BLANKS, &got);
            assert_true(st == ST_OK || st == ST_DAMAGED);
            data_bytes_deinit(&got);
        }
    }
    // A window of 256 MiB is more than a file may request.
    static const uint8_t window[] = {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x90, 0x01, 0x00, 0x00};
    expect_failure(write_file("w.txt.zst", window, sizeof(window)), ST_DAMAGED, "zstd");
    expect_failure(write_file("x.txt.gz", TEXT_AND_BYTES("not gzip")), ST_DAMAGED, "byte");
    expect_failure(write_file("x.txt.zst", TEXT_AND_BYTES("not zstd")), ST_DAMAGED, "byte");
}

static void test_bad_lines(void **state)
{
    (void)state;
    const struct {
        const char *lines, *words;
        status wanted;
    } rows[] = {
        {"{\"text\": \"a\"}\n{\"text\": 1}\n", ":2: \"text\" is not a string", ST_DATA},
        {"{\"text\": \"a\"}\n{\"txt\": \"b\"}\n", ":2: no key \"text\"", ST_DATA},
        {"[1]\n", ":1: no object", ST_DATA},
        {"{\"text\": \"a\"}\n\n{\"text\": \"a\n", ":3", ST_DAMAGED},
        {"{\"text\": \"a\"} {\"text\": \"a\"}\n", ":1", ST_DAMAGED},
        {"{\"text\": \"\xff\"}\n", ":1", ST_DAMAGED},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        expect_failure(write_file("b.jsonl", rows[i].lines, (int64_t)strlen(rows[i].lines)),
                       rows[i].wanted, rows[i].words);
    }
    expect_failure("/no/such/file", ST_NOT_FOUND, "/no/such/file");
    expect_failure("/dev/zero", ST_DAMAGED, "/dev/zero");
}

// The content of a file decides how it is read, whatever its name says.
static void test_form_by_content(void **state)
{
    (void)state;
    static const char lines[] = "{\"text\": \"one\"}\n{\"id\": NaN, \"text\": \"two\"}\n";
    static const char *const names[] = {"part-00000", "P.JSONL", "p.jsonlines", "p.txt",
                                        "P.JSONL.GZ", "p.gzip",  "shard",       "p.zstd"};
    uint8_t packed[4096];
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        expect_documents(write_file(i < 4 ? names[i] : "plain", TEXT_AND_BYTES(lines)),
                         TEXT_AND_BYTES("one\x01two\x01"));
        int64_t n = gzip(TEXT_AND_BYTES(lines), packed, sizeof(packed));
        expect_documents(write_file(names[i], packed, n), TEXT_AND_BYTES("one\x01two\x01"));
        n = zstd(TEXT_AND_BYTES(lines), packed, sizeof(packed));
        expect_documents(write_file(names[i], packed, n), TEXT_AND_BYTES("one\x01two\x01"));
    }
    expect_documents(write_file("mark.jsonl", TEXT_AND_BYTES("\xef\xbb\xbf{\"text\": \"a\"}\n")),
                     TEXT_AND_BYTES("a\x01"));
    expect_documents(write_file("mark.txt", TEXT_AND_BYTES("\xef\xbb\xbf"
                                                           "a b")),
                     TEXT_AND_BYTES("a b\x01"));
    // Texts that look like something else.
    static const char *const texts[] = {"{ x }\n",
                                        "{\"a\n",
                                        "BZh is no bzip2",
                                        "{}\n{\"text\": 1}\n",
                                        "A giant WAVE and 12345678 ftyp, GGUF is a format\n",
                                        "caf\xe9 \x1b[1m\n"};
    for (int64_t i = 0; i < COUNT_OF(texts); i++) {
        char wanted[64];
        const int n = snprintf(wanted, sizeof(wanted), "%s\x01", texts[i]);
        expect_documents(write_file("t", texts[i], (int64_t)strlen(texts[i])), wanted, n);
    }
    expect_failure(write_file("part-1", TEXT_AND_BYTES("{\"content\": \"a\"}\n")), ST_DATA,
                   "no key \"text\"");
}

static void test_files_that_are_no_text(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        int64_t count;
        const char *words;
    } rows[] = {
        {TEXT_AND_BYTES("\x04\x22\x4d\x18"), "lz4 data; unpack it"},
        {TEXT_AND_BYTES("PK\x03\x04"), "zip archive"},
        {TEXT_AND_BYTES("%PDF-1.7\n"), "PDF document; extract its text"},
        {TEXT_AND_BYTES("\x7f"
                        "ELF"),
         "ELF program"},
        {TEXT_AND_BYTES("\x89PNG\r\n\x1a\n"), "PNG picture"},
        {TEXT_AND_BYTES("PAR1"), "Parquet file; read it with data build"},
        {TEXT_AND_BYTES("%!PS-Adobe-3.0\n"), "PostScript document"},
        {TEXT_AND_BYTES("[\n  {\n    \"text\": \"a\"}]\n"), "JSON array of objects"},
        {TEXT_AND_BYTES("\xef\xbb\xbf[{\"text\": \"a\"}]"), "JSON array of objects"},
        {TEXT_AND_BYTES("\xff\xfe"
                        "a\0b\0"),
         "UTF-16 text; convert it"},
        {TEXT_AND_BYTES("\xfe\xff\0"
                        "a\0b"),
         "UTF-16 text; convert it"},
        {TEXT_AND_BYTES("\xff\xfe\0\0"
                        "a\0\0\0"),
         "UTF-32 text; convert it"},
        {TEXT_AND_BYTES("\0\0\xfe\xff\0\0\0"
                        "a"),
         "UTF-32 text; convert it"},
        {TEXT_AND_BYTES("a\0b\0c\0d\0"), "UTF-16 text without a byte order mark"},
        {TEXT_AND_BYTES("text and \0 in it"), "byte 0x00 at byte 9"},
        {TEXT_AND_BYTES("\x01\x02\x03\x04\x05\x06\x07\x0e\x0f\x10"), "10 control characters"},
    };
    uint8_t packed[4096];
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const char *path = write_file("a.txt", rows[i].head, rows[i].count);
        data_reader *r = NULL;
        error_clear();
        assert_int_not_equal(data_reader_open(host_real(), path, &r), ST_OK);
        if (strstr(error_last()->text, rows[i].words) == NULL) {
            fail_msg("\"%s\" lacks \"%s\"", error_last()->text, rows[i].words);
        }
        const int64_t n = gzip(rows[i].head, rows[i].count, packed, sizeof(packed));
        assert_int_not_equal(data_reader_open(host_real(), write_file("b", packed, n), &r), ST_OK);
        assert_non_null(strstr(error_last()->text, rows[i].words));
    }
}

// Bad lines are counted and left out, and the first is kept; a damaged file stays an error.
static void test_bad_lines_skipped(void **state)
{
    (void)state;
    static const char lines[] = "{\"text\": \"a\"}\n{\"text\": \"b\n[1]\n{\"text\": NaN}\n"
                                "{\"text\": \"\\ud83d x\"}\n{\"text\": \"c\"}\n";
    const char *path = write_file("s.jsonl", TEXT_AND_BYTES(lines)), *first = NULL;
    data_documents *d = NULL;
    data_piece piece;
    assert_int_equal(data_documents_open(host_real(), path, DATA_SKIP_BAD_LINES, &d), ST_OK);
    assert_int_equal(data_documents_next(d, &piece), ST_OK);
    assert_memory_equal(piece.bytes, "a", 1);
    assert_int_equal(data_documents_next(d, &piece), ST_OK);
    assert_memory_equal(piece.bytes, "c", 1);
    assert_int_equal(data_documents_next(d, &piece), ST_OK);
    assert_null(piece.bytes);
    assert_int_equal(data_documents_skipped(d, &first), 4);
    assert_non_null(strstr(first, "s.jsonl:2:12"));
    data_documents_close(d);
    uint8_t packed[4096];
    const int64_t n = gzip(TEXT_AND_BYTES(lines), packed, sizeof(packed));
    data_bytes got = {0};
    assert_int_equal(read_documents(write_file("s.gz", packed, n - 9), DATA_SKIP_BAD_LINES, &got),
                     ST_DAMAGED);
    data_bytes_deinit(&got);
}

// The pieces of a long text make up the text, each cut is before white space that follows another
// character, and there are several pieces.
static void test_cuts(void **state)
{
    (void)state;
    enum { BYTES = 3 * DATA_PIECE_BYTES + 12345 };
    char *all = malloc(BYTES);
    assert_non_null(all);
    static const char *const words[] = {"a",
                                        "word",
                                        " ",
                                        "\n",
                                        "  ",
                                        "\xe4\xb8\xad",
                                        "\xc2\xa0",
                                        "\xe3\x80\x80",
                                        "\xe2\x80\x83",
                                        "\xe3\x80\x82",
                                        "'s",
                                        "7"};
    int64_t n = 0;
    for (uint64_t i = 0; n < BYTES; i++) {
        const char *word = words[rng_word(3, 0, i) % COUNT_OF(words)];
        for (; *word != 0 && n < BYTES; word++) all[n++] = *word;
    }
    const char *path = write_file("long.txt", all, BYTES);
    data_documents *d = NULL;
    assert_int_equal(data_documents_open(host_real(), path, DATA_CUT_BLANKS, &d), ST_OK);
    int64_t at = 0, pieces = 0;
    for (;;) {
        data_piece piece;
        assert_int_equal(data_documents_next(d, &piece), ST_OK);
        if (piece.bytes == NULL) break;
        assert_true(piece.count <= BYTES - at);
        assert_memory_equal(piece.bytes, all + at, (size_t)piece.count);
        at += piece.count;
        pieces++;
        assert_int_equal(piece.ends_document, at == BYTES);
        if (at == BYTES) continue;
        assert_non_null(strchr(" \n", all[at]));
        assert_null(strchr(" \n", all[at - 1]));
        assert_int_not_equal((uint8_t)all[at - 1], 0xa0); // U+00A0
        assert_memory_not_equal(all + at - 3, "\xe3\x80\x80", 3);
        assert_memory_not_equal(all + at - 3, "\xe2\x80\x83", 3);
    }
    assert_int_equal(at, BYTES);
    assert_true(pieces >= 3);
    data_documents_close(d);
    // Without permission to cut, and without a place for a cut, the text stays whole.
    data_bytes got = {0};
    assert_int_equal(read_documents(path, 0, &got), ST_OK);
    assert_int_equal(got.count, BYTES + 1);
    data_bytes_deinit(&got);
    memset(all, 'x', BYTES);
    data_bytes whole = {0};
    assert_int_equal(read_documents(write_file("long.txt", all, BYTES), DATA_CUT_BLANKS, &whole),
                     ST_OK);
    assert_int_equal(whole.count, BYTES + 1);
    data_bytes_deinit(&whole);
    free(all);
}

// Fails the 1st, 2nd, ... point in turn until the run reaches none: each time a clean status and no
// leak.
static void test_faults(void **state)
{
    (void)state;
    uint8_t packed[256];
    const int64_t n = gzip(TEXT_AND_BYTES("{\"text\": \"a\"}\n"), packed, sizeof(packed));
    const char *path = write_file("f.jsonl.gz", packed, n);
    for (int k = 1; k < 100; k++) {
        char plan[32];
        snprintf(plan, sizeof(plan), "*=%d", k);
        assert_int_equal(fault_arm(plan), ST_OK);
        data_bytes got = {0};
        const status st = read_documents(path, DATA_CUT_BLANKS, &got);
        data_bytes_deinit(&got);
        assert_int_equal(fault_arm(NULL), ST_OK);
        if (st == ST_OK) {
            assert_true(k > 4);
            return;
        }
    }
    fail_msg("faults never ended");
}

static int make_folder(void **state)
{
    (void)state;
    return test_scratch(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    test_scratch_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms_and_codecs),  cmocka_unit_test(test_damaged_codecs),
        cmocka_unit_test(test_bad_lines),         cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_form_by_content),   cmocka_unit_test(test_files_that_are_no_text),
        cmocka_unit_test(test_bad_lines_skipped), cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
