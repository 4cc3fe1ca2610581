// Repeated lines and stretches against slow searches over all texts, for little memory and much;
// suffix arrays against sorting.
#include "base/rng.h"
#include "data/corpus.h"
#include "data/corpus/suffix_array.h"
#include "data/tokens.h"
#include "fixtures/base/test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { DOCUMENTS = 60, DOCUMENT_BYTES = 1200 };
static char folder[64];
static arena *memory;
static char texts[DOCUMENTS][DOCUMENT_BYTES + 1];
static bool cut[DOCUMENTS][DOCUMENT_BYTES]; // as the slow search says

// ---- suffix arrays ------------------------------------------------------------------------------

static const uint8_t *sorted_text;
static int64_t sorted_count;

static int compare_suffixes(const void *left, const void *right)
{
    const int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    const int64_t n = sorted_count - max_i64(a, b);
    const int order = memcmp(sorted_text + a, sorted_text + b, (size_t)n);
    return order != 0 ? order : a > b ? -1 : 1; // the shorter one first
}

static void test_suffix_arrays(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    uint8_t body[COUNT];
    int32_t suffixes[COUNT], wanted[COUNT];
    for (int64_t k = 0; k < 400; k++) {
        const int64_t n = 1 + rng_word(1, 0, (uint64_t)k) % COUNT;
        const uint32_t alphabet = k % 3 == 0 ? 256 : 1 + (uint32_t)k % 4;
        for (int64_t i = 0; i < n; i++) {
            const int64_t from = k % 5 == 0 ? i % (1 + k % 9) : i; // periodic
            body[i] = (uint8_t)(rng_word(2, (uint64_t)k, (uint64_t)from) % alphabet);
            wanted[i] = (int32_t)i;
        }
        sorted_text = body;
        sorted_count = n;
        qsort(wanted, (size_t)n, sizeof(*wanted), compare_suffixes);
        assert_int_equal(suffix_array(body, n, suffixes), ST_OK);
        assert_memory_equal(suffixes, wanted, (size_t)n * sizeof(*wanted));
    }
}

// ---- corpora ------------------------------------------------------------------------------------

static const char *path_of(const char *name)
{
    char *path = NULL;
    assert_int_equal(path_join(memory, folder, name, &path), ST_OK);
    return path;
}

// Texts of random words that take stretches and lines of earlier ones.
static void make_texts(uint64_t seed)
{
    static const char *const words[] = {"ab",   "c",     "d\u00e9", "\u20ac",
                                        "ef\n", "g\n\n", "hh",      "i,"};
    uint64_t next = 0;
    for (int i = 0; i < DOCUMENTS; i++) {
        const int64_t wanted = 100 + rng_word(seed, 0, next++) % (DOCUMENT_BYTES - 300);
        int64_t n = 0;
        while (n < wanted) {
            if (i > 0 && rng_word(seed, 0, next++) % 20 == 0) {
                const char *from = texts[rng_word(seed, 0, next++) % (uint32_t)i];
                int64_t begin = rng_word(seed, 0, next++) % (uint32_t)strlen(from);
                while (begin > 0 && ((uint8_t)from[begin] & 0xc0) == 0x80) begin--;
                int64_t count =
                    min_i64((int64_t)strlen(from) - begin, 1 + rng_word(seed, 0, next++) % 150);
                while (((uint8_t)from[begin + count] & 0xc0) == 0x80) count--;
                memcpy(texts[i] + n, from + begin, (size_t)count);
                n += count;
            } else {
                const char *word = words[rng_word(seed, 0, next++) % COUNT_OF(words)];
                memcpy(texts[i] + n, word, strlen(word));
                n += (int64_t)strlen(word);
            }
        }
        texts[i][n] = 0;
    }
}

static void write_texts(void)
{
    arena *a = NULL;
    assert_int_equal(arena_create("texts", 0, &a), ST_OK);
    text all = {.a = a};
    for (int i = 0; i < DOCUMENTS; i++) {
        assert_int_equal(text_add(&all, "{\"text\": "), ST_OK);
        assert_int_equal(text_add_json(&all, texts[i]), ST_OK);
        assert_int_equal(text_add(&all, "}\n"), ST_OK);
    }
    assert_int_equal(host_write_all(host_real(), path_of("t.jsonl"), all.bytes, all.length), ST_OK);
    arena_destroy(a);
}

static bool is_blank_text(const char *bytes, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (!text_is_blank(bytes[i])) return false;
    }
    return true;
}

// Builds, and compares the shard with the texts without what the slow search cut.
static void expect_cuts(const char *key, int64_t memory_bytes)
{
    static int builds;
    corpus_config *c = NULL;
    corpus_result r;
    data_tokens *t = NULL;
    char out[32];
    char *out_key = NULL, *shard = NULL;
    snprintf(out, sizeof(out), "out%d", builds++);
    assert_int_equal(arena_format(memory, &out_key, "out=%s", path_of(out)), ST_OK);
    const char *keys[] = {out_key, "dedup.exact=false", "dedup.line_chars=3", key};
    assert_int_equal(
        host_write_all(host_real(), path_of("c.yaml"), "sources: {s: {paths: t.jsonl}}\n", 31),
        ST_OK);
    status st =
        corpus_config_load(host_real(), memory, path_of("c.yaml"), keys, COUNT_OF(keys), &c);
    if (st == ST_OK) c->memory_bytes = memory_bytes; // less than the key takes
    if (st == ST_OK) st = data_corpus_build(host_real(), memory, c, NULL, &r);
    if (st != ST_OK) fail_msg("%s", error_last()->text);
    assert_int_equal(arena_format(memory, &shard, "%s/s-00000.tok", path_of(out)), ST_OK);
    assert_int_equal(data_tokens_open(host_real(), memory, shard, 0, &t), ST_OK);
    int64_t at = 0, documents = 0, kept_bytes = 0, cut_bytes = 0;
    for (int i = 0; i < DOCUMENTS; i++) {
        char kept[DOCUMENT_BYTES];
        int32_t ids[DOCUMENT_BYTES + 1];
        int64_t n = 0;
        const int64_t whole = (int64_t)strlen(texts[i]);
        for (int64_t k = 0; k < whole; k++) {
            if (!cut[i][k]) kept[n++] = texts[i][k];
        }
        if (n < whole && is_blank_text(kept, n)) continue; // nothing stays
        assert_int_equal(data_tokens_read(t, at, n + 1, ids), ST_OK);
        for (int64_t k = 0; k < n; k++) assert_int_equal(ids[k], (uint8_t)kept[k]);
        assert_int_equal(ids[n], 256);
        at += n + 1;
        documents++;
        kept_bytes += n;
        cut_bytes += whole - n;
    }
    assert_int_equal(data_tokens_count(t), at);
    assert_int_equal(r.kept_documents, documents);
    assert_int_equal(r.kept_bytes, kept_bytes);
    assert_int_equal(r.cut_bytes, cut_bytes);
    data_tokens_close(t);
}

static void test_lines(void **state)
{
    (void)state;
    static char seen[DOCUMENTS * DOCUMENT_BYTES / 2][DOCUMENT_BYTES];
    for (uint64_t seed = 1; seed <= 3; seed++) {
        int64_t seen_count = 0, cuts = 0;
        make_texts(seed);
        write_texts();
        memset(cut, 0, sizeof(cut));
        for (int i = 0; i < DOCUMENTS; i++) {
            for (int64_t at = 0; texts[i][at] != 0;) {
                const int64_t n = (int64_t)strcspn(texts[i] + at, "\n");
                const int64_t end = at + n + (texts[i][at + n] != 0 ? 1 : 0);
                char line[DOCUMENT_BYTES];
                int64_t chars = 0, known = 0;
                snprintf(line, sizeof(line), "%.*s", (int)n, texts[i] + at);
                for (int64_t k = 0; k < n; k++) chars += ((uint8_t)line[k] & 0xc0) != 0x80;
                while (known < seen_count && strcmp(seen[known], line) != 0) known++;
                if (chars >= 3 && known < seen_count) memset(&cut[i][at], 1, (size_t)(end - at));
                if (chars >= 3 && known == seen_count)
                    memcpy(seen[seen_count++], line, sizeof(line));
                cuts += chars >= 3 && known < seen_count;
                at = end;
            }
        }
        assert_true(cuts > 10);
        expect_cuts("dedup.lines=true", seed == 2 ? 1 << 28 : 1000);
    }
}

// A window of L bytes at which an equal one begins earlier is cut, whole characters only.
static void slow_stretches(int64_t length)
{
    memset(cut, 0, sizeof(cut));
    for (int i = 0; i < DOCUMENTS; i++) {
        const int64_t n = (int64_t)strlen(texts[i]);
        for (int64_t at = 0; at + length <= n; at++) {
            bool known = false;
            for (int k = 0; k <= i && !known; k++) {
                const size_t before = k == i ? (size_t)(at - 1 + length) : strlen(texts[k]);
                known = memmem(texts[k], before, texts[i] + at, (size_t)length) != NULL;
            }
            if (known) memset(&cut[i][at], 1, (size_t)length);
        }
        for (int64_t begin = 0, end = 0; begin < n; begin = end + 1) {
            while (begin < n && !cut[i][begin]) begin++;
            for (end = begin; end < n && cut[i][end];) end++;
            int64_t first = begin, last = end;
            while (first < last && ((uint8_t)texts[i][first] & 0xc0) == 0x80) first++;
            while (last > first && ((uint8_t)texts[i][last] & 0xc0) == 0x80) last--;
            for (int64_t k = begin; k < first; k++) cut[i][k] = false;
            for (int64_t k = last; k < end; k++) cut[i][k] = false;
        }
    }
}

static void test_stretches(void **state)
{
    (void)state;
    const char *const keys[] = {"dedup.substring=32", "dedup.substring=50", "dedup.substring=100"};
    const int64_t lengths[] = {32, 50, 100};
    for (int k = 0; k < 3; k++) {
        int64_t cuts = 0;
        make_texts(10 + (uint64_t)k);
        write_texts();
        slow_stretches(lengths[k]);
        for (int64_t i = 0; i < DOCUMENTS * DOCUMENT_BYTES; i++) cuts += (&cut[0][0])[i];
        assert_true(cuts > 500);
        expect_cuts(keys[k], 100000); // in parts
        expect_cuts(keys[k], 1 << 28);
    }
}

static int set_up(void **state)
{
    (void)state;
    if (test_scratch(folder) == NULL) return -1;
    return arena_create("test", 0, &memory) == ST_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    test_scratch_remove(folder);
    arena_destroy(memory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suffix_arrays),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_stretches),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
