// Token files: round trips of native shards, each foreign format, and headers with false values.
#include "base/fault.h"
#include "base/rng.h"
#include "data/tokens.h"
#include "fixtures/base/test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static arena *memory;
static data_tokenizer *tokenizer;

static const char *path_of(const char *name)
{
    char *path = NULL;
    assert_int_equal(path_join(memory, folder, name, &path), ST_OK);
    return path;
}

static const char *write_file(const char *name, const void *bytes, int64_t count)
{
    const char *path = path_of(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, (size_t)count, f), count);
    assert_int_equal(fclose(f), 0);
    return path;
}

static data_tokens *open_tokens(const char *path, int64_t vocab)
{
    data_tokens *t = NULL;
    const status st = data_tokens_open(host_real(), memory, path, vocab, &t);
    if (st != ST_OK) fail_msg("%s", error_last()->text);
    return t;
}

static void expect_refusal(const char *path, int64_t vocab, status wanted, const char *words)
{
    data_tokens *t = NULL;
    error_clear();
    assert_int_equal(data_tokens_open(host_real(), memory, path, vocab, &t), wanted);
    if (strstr(error_last()->text, words) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", error_last()->text, words);
    }
}

typedef struct boundary_list {
    int64_t at[16], count;
} boundary_list;

static void add_boundary(void *context, int64_t token)
{
    boundary_list *list = context;
    assert_true(list->count < COUNT_OF(list->at));
    list->at[list->count++] = token;
}

static void expect_boundaries(const data_tokens *t, int64_t first, int64_t count,
                              const int64_t *wanted, int64_t wanted_count)
{
    boundary_list list = {.count = 0};
    assert_int_equal(data_tokens_boundaries(t, first, count, add_boundary, &list), ST_OK);
    assert_int_equal(list.count, wanted_count);
    for (int64_t i = 0; i < wanted_count; i++) assert_int_equal(list.at[i], wanted[i]);
}

// ---- own shards ---------------------------------------------------------------------------------

static const char *make_shard(const char *name)
{
    const char *path = path_of(name);
    data_shard_writer *w = NULL;
    assert_int_equal(data_shard_create(host_real(), path, tokenizer, &w), ST_OK);
    assert_int_equal(data_shard_add(w, (int32_t[]){1, 2, 3}, 3), ST_OK);
    assert_int_equal(data_shard_end_document(w), ST_OK);
    assert_int_equal(data_shard_end_document(w), ST_OK); // an empty one adds no token
    assert_int_equal(data_shard_add(w, (int32_t[]){255}, 1), ST_OK);
    assert_int_equal(data_shard_end_document(w), ST_OK);
    assert_int_equal(data_shard_add(w, (int32_t[]){7, 8}, 2), ST_OK); // its end is implied
    assert_int_equal(data_shard_finish(w), ST_OK);
    return path;
}

static void test_shard_there_and_back(void **state)
{
    (void)state;
    data_tokens *t = open_tokens(make_shard("a.tok"), 0);
    assert_string_equal(data_tokens_format(t), "trireme");
    assert_int_equal(data_tokens_vocab(t), 257);
    assert_int_equal(data_tokens_documents(t), 3);
    static const int32_t wanted[] = {1, 2, 3, 256, 255, 256, 7, 8, 256};
    int32_t got[9];
    assert_int_equal(data_tokens_count(t), 9);
    assert_int_equal(data_tokens_read(t, 0, 9, got), ST_OK);
    assert_memory_equal(got, wanted, sizeof(wanted));
    assert_int_equal(data_tokens_read(t, 4, 2, got), ST_OK);
    assert_memory_equal(got, wanted + 4, 8);
    expect_boundaries(t, 0, 8, (int64_t[]){4, 6}, 2);
    expect_boundaries(t, 0, 3, NULL, 0);
    expect_boundaries(t, 3, 1, (int64_t[]){4}, 1);
    expect_boundaries(t, 4, 1, NULL, 0);
    assert_int_equal(data_tokens_verify(t), ST_OK);
    data_tokens_close(t);
    // A model may have more ids than the tokenizer, but not fewer.
    data_tokens_close(open_tokens(path_of("a.tok"), 50304));
    expect_refusal(path_of("a.tok"), 256, ST_DATA, "vocabulary of 257");
}

// Changes each byte in turn: open or verify must detect it, and no read hands out a changed byte.
static void test_shard_damage(void **state)
{
    (void)state;
    char *bytes = NULL;
    int64_t count = 0;
    assert_int_equal(
        host_read_all(host_real(), memory, make_shard("b.tok"), 1 << 20, &bytes, &count), ST_OK);
    for (int64_t at = 0; at < count; at++) {
        bytes[at] = (char)(bytes[at] ^ 0x41);
        const char *path = write_file("broken.bin", bytes, count);
        bytes[at] = (char)(bytes[at] ^ 0x41);
        data_tokens *t = NULL;
        if (data_tokens_open(host_real(), memory, path, 0, &t) != ST_OK) continue;
        // The remaining bytes are tokens, padding, the list of documents, or the block's hash.
        int32_t ids[9];
        boundary_list list = {.count = 0};
        assert_int_equal(data_tokens_verify(t), ST_DAMAGED);
        assert_int_equal(data_tokens_read(t, 0, 9, ids), ST_DAMAGED);
        assert_int_equal(data_tokens_read(t, 8, 1, ids), ST_DAMAGED);
        assert_int_equal(data_tokens_boundaries(t, 0, 8, add_boundary, &list), ST_DAMAGED);
        assert_non_null(strstr(error_last()->text, "broken.bin"));
        assert_true(at >= 64 && at < count - 64);
        data_tokens_close(t);
    }
    for (int64_t cut = 8; cut < count; cut++) {
        expect_refusal(write_file("cut.tok", bytes, cut), 0, ST_DAMAGED, "cut.tok");
    }
}

static void test_shard_faults(void **state)
{
    (void)state;
    const char *path = path_of("fault.tok");
    for (int k = 1; k < 200; k++) {
        char plan[32];
        snprintf(plan, sizeof(plan), "*=%d", k);
        assert_int_equal(fault_arm(plan), ST_OK);
        data_shard_writer *w = NULL;
        status st = data_shard_create(host_real(), path, tokenizer, &w);
        if (st == ST_OK) {
            st = data_shard_add(w, (int32_t[]){1, 2, 3}, 3);
            if (st == ST_OK) {
                st = data_shard_finish(w);
            } else {
                data_shard_abandon(w);
            }
        }
        assert_int_equal(fault_arm(NULL), ST_OK);
        file_names names;
        assert_int_equal(host_real()->api->path_list(host_real(), memory, folder, &names), ST_OK);
        for (int64_t i = 0; i < names.count; i++) {
            // Only a failing removal may leave a temporary file, and the removal is not the first
            // failure here.
            assert_null(strstr(names.names[i], ".tmp"));
        }
        file_info info;
        assert_int_equal(host_real()->api->path_info(host_real(), path, &info), ST_OK);
        // A complete shard.
        if (info.kind == FILE_KIND_REGULAR) data_tokens_close(open_tokens(path, 0));
        if (st == ST_OK) {
            assert_true(k > 5);
            return;
        }
        assert_true(error_last()->code != ST_OK);
    }
    fail_msg("faults never ended");
}

// ---- foreign formats ----------------------------------------------------------------------------

static void test_nanogpt(void **state)
{
    (void)state;
    static const uint16_t tokens[] = {1, 50256, 3, 65535, 5};
    const char *path = write_file("n.bin", tokens, sizeof(tokens));
    int32_t got[5];
    data_tokens *t = open_tokens(path, 65536);
    assert_string_equal(data_tokens_format(t), "nanogpt");
    assert_int_equal(data_tokens_count(t), 5);
    assert_int_equal(data_tokens_documents(t), 0);
    assert_int_equal(data_tokens_read(t, 0, 5, got), ST_OK);
    for (int i = 0; i < 5; i++) assert_int_equal(got[i], tokens[i]);
    data_tokens_close(t);
    t = open_tokens(path, 50257);
    assert_int_equal(data_tokens_read(t, 0, 3, got), ST_OK);
    error_clear();
    assert_int_equal(data_tokens_read(t, 1, 4, got), ST_DATA);
    assert_non_null(strstr(error_last()->text, "token 3 at byte 6 is 65535"));
    data_tokens_close(t);
    expect_refusal(path, 0, ST_DATA, "model.vocab");
    expect_refusal(write_file("odd.bin", tokens, 5), 10, ST_DAMAGED, "5 bytes");
}

// Raw tokens of another width, which would be read as twice or four times as many, and files of
// another kind under the name.
static void test_nanogpt_of_another_width(void **state)
{
    (void)state;
    uint32_t wide[64];
    int64_t wider[64];
    uint16_t right[64];
    for (int i = 0; i < 64; i++) {
        wide[i] = (uint32_t)i * 7;
        wider[i] = i * 7;
        right[i] = (uint16_t)(i % 2 == 0 ? i : 0); // every second token is 0 in a true file too
    }
    expect_refusal(write_file("wide.bin", wide, sizeof(wide)), 50257, ST_DATA, "uint32 numbers");
    expect_refusal(write_file("wider.bin", wider, sizeof(wider)), 50257, ST_DATA, "int64 numbers");
    right[33] = 5;
    const char *path = write_file("right.bin", right, sizeof(right));
    data_tokens_close(open_tokens(path, 50257));
    expect_refusal(path, 128256, ST_DATA, "cannot name the tokenizer's 128256");
    memcpy(right, "PK\x03\x04", 4);
    expect_refusal(write_file("pytorch_model.bin", right, sizeof(right)), 50257, ST_UNSUPPORTED,
                   "zip archive");
    memcpy(right, "\x93NUMPY", 6);
    expect_refusal(write_file("array.bin", right, sizeof(right)), 50257, ST_UNSUPPORTED, "NumPy");
}

static const char *write_llmc(int32_t magic, int32_t version, int32_t count, const void *tokens,
                              int64_t bytes)
{
    static uint8_t all[2048];
    memset(all, 0, sizeof(all));
    const int32_t header[3] = {magic, version, count};
    memcpy(all, header, sizeof(header));
    memcpy(all + 1024, tokens, (size_t)bytes);
    return write_file("l.bin", all, 1024 + bytes);
}

static void test_llmc(void **state)
{
    (void)state;
    static const uint16_t narrow[] = {50256, 1, 2};
    static const uint32_t wide[] = {128000, 1, 2};
    int32_t got[3];
    data_tokens *t = open_tokens(write_llmc(20240520, 1, 3, narrow, 6), 50257);
    assert_string_equal(data_tokens_format(t), "llm.c");
    assert_int_equal(data_tokens_read(t, 0, 3, got), ST_OK);
    assert_int_equal(got[0], 50256);
    data_tokens_close(t);
    t = open_tokens(write_llmc(20240801, 7, 3, wide, 12), 0);
    assert_int_equal(data_tokens_count(t), 3);
    assert_int_equal(data_tokens_read(t, 0, 3, got), ST_OK);
    assert_int_equal(got[0], 128000);
    data_tokens_close(t);
    expect_refusal(write_llmc(20240522, 1, 3, narrow, 6), 0, ST_UNSUPPORTED, "evaluation");
    expect_refusal(write_llmc(20240520, 7, 3, narrow, 6), 0, ST_DAMAGED, "byte 4");
    expect_refusal(write_llmc(20240520, 1, -1, narrow, 6), 0, ST_DAMAGED, "byte 8");
    expect_refusal(write_llmc(20240520, 1, INT32_MAX, narrow, 6), 0, ST_DAMAGED, "2147483647");
    expect_refusal(write_llmc(20240520, 1, 2, narrow, 6), 0, ST_DAMAGED, "1030 bytes");
    expect_refusal(write_llmc(20240801, 7, 3, narrow, 6), 0, ST_DAMAGED, "of 4 bytes");
}

typedef struct idx {
    uint64_t version, sequences, marks;
    uint8_t code;
    int32_t lengths[3];
    int64_t pointers[3];
    int64_t documents[3];
    int64_t cut; // bytes to cut off at the end
} idx;

// Two documents: sequences 0 and 1, then sequence 2.
static const idx good_idx = {1, 3, 3, 8, {2, 3, 1}, {0, 4, 10}, {0, 2, 3}, 0};

static void write_idx(const idx *x)
{
    uint8_t all[256];
    int64_t n = 0;
    const struct {
        const void *from;
        size_t bytes;
    } parts[] = {{"MMIDIDX\0", 9}, {&x->version, 8}, {&x->code, 1},     {&x->sequences, 8},
                 {&x->marks, 8},   {x->lengths, 12}, {x->pointers, 24}, {x->documents, 24}};
    for (int64_t i = 0; i < COUNT_OF(parts); i++) {
        memcpy(all + n, parts[i].from, parts[i].bytes);
        n += (int64_t)parts[i].bytes;
    }
    (void)write_file("m.idx", all, n - x->cut);
}

static void test_megatron_types(void **state)
{
    (void)state;
    static const struct {
        uint8_t code;
        int64_t width;
    } types[] = {{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}};
    for (int64_t i = 0; i < COUNT_OF(types); i++) {
        const int64_t w = types[i].width;
        uint8_t tokens[48] = {0};
        for (int64_t k = 0; k < 6; k++) tokens[k * w] = (uint8_t)(k + 1);
        (void)write_file("m.bin", tokens, 6 * w);
        idx x = good_idx;
        x.code = types[i].code;
        x.pointers[1] = 2 * w;
        x.pointers[2] = 5 * w;
        write_idx(&x);
        for (int by = 0; by < 2; by++) {
            data_tokens *t = open_tokens(path_of(by == 0 ? "m.idx" : "m.bin"), 100);
            assert_string_equal(data_tokens_format(t), "megatron");
            assert_int_equal(data_tokens_count(t), 6);
            assert_int_equal(data_tokens_documents(t), 2);
            int32_t got[6];
            assert_int_equal(data_tokens_read(t, 0, 6, got), ST_OK);
            for (int k = 0; k < 6; k++) assert_int_equal(got[k], k + 1);
            expect_boundaries(t, 0, 5, (int64_t[]){5}, 1);
            data_tokens_close(t);
        }
    }
    // A negative id, and one beyond 32 bits.
    const int64_t bad[6] = {0, 1, -5, INT64_C(1) << 40, 4, 5};
    (void)write_file("m.bin", bad, sizeof(bad));
    idx x = good_idx;
    x.code = 5;
    x.pointers[1] = 16;
    x.pointers[2] = 40;
    write_idx(&x);
    data_tokens *t = open_tokens(path_of("m.idx"), 100);
    int32_t got[6];
    error_clear();
    assert_int_equal(data_tokens_read(t, 0, 3, got), ST_DATA);
    assert_non_null(strstr(error_last()->text, "token 2 at byte 16 is -5"));
    assert_int_equal(data_tokens_read(t, 3, 1, got), ST_DATA);
    assert_int_equal(data_tokens_read(t, 4, 2, got), ST_OK);
    data_tokens_close(t);
}

static void test_megatron_damage(void **state)
{
    (void)state;
    static const uint16_t tokens[6] = {1, 2, 3, 4, 5, 6};
    (void)write_file("m.bin", tokens, sizeof(tokens));
    const struct {
        idx x;
        const char *words;
    } rows[] = {
        {{2, 3, 3, 8, {2, 3, 1}, {0, 4, 10}, {0, 2, 3}, 0}, "version 2"},
        {{1, UINT64_MAX, 3, 8, {2, 3, 1}, {0, 4, 10}, {0, 2, 3}, 0}, "byte 18"},
        {{1, UINT64_C(1) << 61, 3, 8, {2, 3, 1}, {0, 4, 10}, {0, 2, 3}, 0}, "byte 18"},
        {{1, 3, UINT64_MAX, 8, {2, 3, 1}, {0, 4, 10}, {0, 2, 3}, 0}, "byte 26"},
        {{1, 3, 2, 8, {2, 3, 1}, {0, 4, 10}, {0, 2, 3}, 0}, "byte 26"},
        {{1, 5, 0, 8, {2, 3, 1}, {0, 4, 10}, {0, 2, 3}, 0}, "no document marks"},
        {{1, 3, 3, 6, {2, 3, 1}, {0, 4, 10}, {0, 2, 3}, 0}, "type code 6 at byte 17"},
        {{1, 3, 3, 7, {2, 3, 1}, {0, 4, 10}, {0, 2, 3}, 0}, "type code 7"},
        {{1, 3, 3, 200, {2, 3, 1}, {0, 4, 10}, {0, 2, 3}, 0}, "type code 200"},
        {{1, 3, 3, 8, {2, -3, 1}, {0, 4, 10}, {0, 2, 3}, 0}, "length -3 at byte 38"},
        {{1, 3, 3, 8, {2, 3, 1}, {0, 6, 10}, {0, 2, 3}, 0}, "lies at 6"},
        {{1, 3, 3, 8, {2, 3, 1}, {0, 4, INT64_MIN}, {0, 2, 3}, 0}, "sequence 2"},
        {{1, 3, 3, 8, {2, 3, 1}, {0, 4, 10}, {0, 9, 3}, 0}, "sequence 9"},
        {{1, 3, 3, 8, {2, 3, 1}, {0, 4, 10}, {0, 2, 4}, 0}, "0 to 4"},
        {{1, 3, 3, 8, {2, 3, 1}, {0, 4, 10}, {1, 2, 3}, 0}, "1 to 3"},
        {{1, 3, 3, 8, {2, 3, 2}, {0, 4, 10}, {0, 2, 3}, 0}, "12 bytes, but 7 tokens"},
        {{1, 3, 3, 8, {INT32_MAX, 3, 1}, {0, 4, 10}, {0, 2, 3}, 0}, "sequence 1"},
        {{1, 3, 3, 8, {2, 3, 1}, {0, 4, 10}, {0, 2, 3}, 1}, "do not fit"},
        {{1, 3, 3, 8, {2, 3, 1}, {0, 4, 10}, {0, 2, 3}, 70}, "a header of 34"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        write_idx(&rows[i].x);
        expect_refusal(path_of("m.idx"), 100, ST_DAMAGED, rows[i].words);
    }
    (void)write_file("m.idx", "MMIDIDY and more than thirty-four bytes", 39);
    expect_refusal(path_of("m.idx"), 100, ST_DAMAGED, "byte 0");
    // Empty documents in any place.
    const idx empty = {1, 3, 3, 8, {2, 3, 1}, {0, 4, 10}, {0, 3, 3}, 0};
    write_idx(&empty);
    data_tokens *t = open_tokens(path_of("m.idx"), 100);
    expect_boundaries(t, 0, 5, NULL, 0);
    data_tokens_close(t);
    assert_int_equal(remove(path_of("m.idx")), 0);
}

// A file that is cut while it is open gives an error with file and offset, and no signal.
static void test_cut_under_the_run(void **state)
{
    (void)state;
    uint16_t tokens[5000];
    for (int i = 0; i < 5000; i++) tokens[i] = (uint16_t)(i % 100);
    const char *path = write_file("cut.bin", tokens, sizeof(tokens));
    data_tokens *t = open_tokens(path, 100);
    int32_t got[5000];
    assert_int_equal(data_tokens_read(t, 0, 5000, got), ST_OK);
    assert_int_equal(truncate(path, 4000), 0);
    assert_int_equal(data_tokens_read(t, 0, 2000, got), ST_OK);
    error_clear();
    const status st = data_tokens_read(t, 1000, 3000, got);
    assert_int_equal(status_exit_code(st), 5);
    assert_non_null(strstr(error_last()->text, "cut.bin"));
    data_tokens_close(t);
}

// A native shard may be cut too, because other processes write to the disk of the cache. The
// program once mapped shards, and reading a cut one then raised SIGBUS.
static void test_own_shard_cut_under_the_run(void **state)
{
    (void)state;
    enum { DOCUMENTS = 700 };
    const char *path = path_of("own-cut.tok");
    data_shard_writer *w = NULL;
    assert_int_equal(data_shard_create(host_real(), path, tokenizer, &w), ST_OK);
    for (int i = 0; i < DOCUMENTS; i++) {
        assert_int_equal(data_shard_add(w, (int32_t[]){1, 2, 3, 4, 5, 6, 7, 8}, 8), ST_OK);
        assert_int_equal(data_shard_end_document(w), ST_OK);
    }
    assert_int_equal(data_shard_finish(w), ST_OK);
    data_tokens *t = open_tokens(path, 0);
    const int64_t per = data_tokens_count(t) / DOCUMENTS;
    int64_t wanted[16], count = 0; // boundaries in the middle of the file's list
    for (int64_t i = 401; i < 401 + COUNT_OF(wanted); i++) wanted[count++] = i * per;
    expect_boundaries(t, 400 * per, count * per, wanted, count);
    assert_int_equal(data_tokens_verify(t), ST_OK);
    // A file with no page in memory; its first block is whole, but its hash is gone.
    assert_int_equal(truncate(path, 4160), 0);
    int32_t got[64];
    boundary_list list = {.count = 0};
    assert_int_equal(data_tokens_read(t, 0, 64, got), ST_DAMAGED);
    assert_int_equal(data_tokens_read(t, data_tokens_count(t) - 64, 64, got), ST_DAMAGED);
    assert_non_null(strstr(error_last()->text, "own-cut.tok: ends at byte 4160"));
    assert_int_equal(data_tokens_boundaries(t, 0, 10, add_boundary, &list), ST_DAMAGED);
    assert_int_equal(data_tokens_verify(t), ST_DAMAGED);
    data_tokens_close(t);
}

// Another shard of the same size, written over an open one in place, is no longer the same data,
// although its own hashes are right.
static void test_shard_overwritten_under_the_run(void **state)
{
    (void)state;
    enum { COUNT = 5000 }; // three blocks
    data_tokens *t = NULL;
    int32_t ids[COUNT], got[COUNT];
    const char *const names[] = {"first.tok", "other.tok"};
    for (int k = 0; k < 2; k++) {
        data_shard_writer *w = NULL;
        for (int i = 0; i < COUNT; i++) ids[i] = (i + (i >= 4000 ? k : 0)) % 256;
        assert_int_equal(data_shard_create(host_real(), path_of(names[k]), tokenizer, &w), ST_OK);
        assert_int_equal(data_shard_add(w, ids, COUNT), ST_OK);
        assert_int_equal(data_shard_finish(w), ST_OK);
    }
    char *bytes = NULL;
    int64_t count = 0;
    t = open_tokens(path_of(names[0]), 0);
    assert_int_equal(data_tokens_read(t, 0, COUNT, got), ST_OK);
    assert_int_equal(host_read_all(host_real(), memory, path_of(names[1]), 1 << 20, &bytes, &count),
                     ST_OK);
    (void)write_file(names[0], bytes, count);
    // The first block's tokens did not change, but it is not known what it belongs to.
    assert_int_equal(data_tokens_read(t, 0, 8, got), ST_DAMAGED);
    assert_int_equal(data_tokens_read(t, 4500, 8, got), ST_DAMAGED);
    assert_non_null(strstr(error_last()->text, "first.tok"));
    assert_non_null(strstr(error_last()->text, "changed during the run"));
    data_tokens_close(t);
}

// Shards of version 1 have no hashes of blocks.
static void test_earlier_shard(void **state)
{
    (void)state;
    char *bytes = NULL;
    int64_t count = 0;
    int32_t got[9];
    assert_int_equal(
        host_read_all(host_real(), memory, make_shard("v2.tok"), 1 << 20, &bytes, &count), ST_OK);
    bytes[7] = '1';
    const uint64_t hash = hash64(bytes, 56, 0);
    memcpy(bytes + 56, &hash, sizeof(hash));
    memmove(bytes + count - 72, bytes + count - 64, 64); // over the hash of the only block
    data_tokens *t = open_tokens(write_file("v1.tok", bytes, count - 8), 0);
    assert_string_equal(data_tokens_format(t), "trireme");
    assert_int_equal(data_tokens_malformed(t), -1);
    assert_int_equal(data_tokens_read(t, 0, 9, got), ST_OK);
    assert_int_equal(got[4], 255);
    expect_boundaries(t, 0, 8, (int64_t[]){4, 6}, 2);
    assert_int_equal(data_tokens_verify(t), ST_OK);
    data_tokens_close(t);
}

// ---- preparing ----------------------------------------------------------------------------------

typedef struct progress_count {
    int64_t calls, done, all;
    status answer;
} progress_count;

static status count_progress(void *context, const char *path, int64_t done, int64_t all)
{
    progress_count *c = context;
    assert_non_null(strstr(path, ".txt"));
    c->calls++;
    c->done = done;
    c->all = all;
    return c->answer;
}

static void test_prepare(void **state)
{
    (void)state;
    const char *text_path = write_file("p.txt", "hello\n", 6);
    const char *cache = path_of("cache/deep");
    progress_count c = {.answer = ST_STOPPED};
    const data_progress progress = {
        .report = count_progress, .skipped = NULL, .malformed = NULL, .context = &c};
    const data_prepare_options options = {.cache_folder = cache, .progress = &progress};
    char *shard = NULL, *again = NULL;
    assert_int_equal(data_prepare(host_real(), memory, tokenizer, text_path, &options, &shard),
                     ST_STOPPED);
    c.answer = ST_OK;
    assert_int_equal(data_prepare(host_real(), memory, tokenizer, text_path, &options, &shard),
                     ST_OK);
    assert_int_equal(c.calls, 2);
    assert_int_equal(c.done, 6);
    assert_int_equal(c.all, 6);
    data_tokens *t = open_tokens(shard, 0);
    int32_t got[7];
    assert_int_equal(data_tokens_count(t), 7);
    assert_int_equal(data_tokens_read(t, 0, 7, got), ST_OK);
    assert_int_equal(got[0], 'h');
    assert_int_equal(got[6], 256);
    data_tokens_close(t);
    // The second time no text is read; a damaged shard is rebuilt, and so is the shard of a changed
    // text.
    assert_int_equal(data_prepare(host_real(), memory, tokenizer, text_path, &options, &again),
                     ST_OK);
    assert_string_equal(shard, again);
    assert_int_equal(c.calls, 2);
    assert_int_equal(truncate(shard, 100), 0);
    assert_int_equal(data_prepare(host_real(), memory, tokenizer, text_path, &options, &again),
                     ST_OK);
    assert_int_equal(c.calls, 3);
    (void)write_file("p.txt", "hello!\n", 7);
    assert_int_equal(data_prepare(host_real(), memory, tokenizer, text_path, &options, &again),
                     ST_OK);
    assert_string_not_equal(shard, again);
    file_names names;
    assert_int_equal(host_real()->api->path_list(host_real(), memory, cache, &names), ST_OK);
    assert_int_equal(names.count, 2); // no temporary file is left
}

static int64_t malformed_at(const char *name, const char *bytes, int64_t count)
{
    const data_prepare_options options = {.cache_folder = path_of("cache/utf8")};
    char *shard = NULL;
    const char *path = write_file(name, bytes, count);
    const status st = data_prepare(host_real(), memory, tokenizer, path, &options, &shard);
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
    data_tokens *t = open_tokens(shard, 0);
    const int64_t at = data_tokens_malformed(t);
    data_tokens_close(t);
    return at;
}

// A shard knows whether its text was UTF-8, wherever the reader cut it into pieces.
static void test_malformed_text(void **state)
{
    (void)state;
    enum { LONG = 3000001 };
    char *text = malloc(LONG);
    assert_non_null(text);
    for (int i = 0; i + 1 < LONG; i += 2) memcpy(text + i, "\xc3\xa9", 2);
    text[LONG - 1] = '\n';
    assert_int_equal(malformed_at("long.txt", text, LONG), -1);
    text[2000001] = 'x';
    assert_int_equal(malformed_at("long-bad.txt", text, LONG), 2000000);
    free(text);
    assert_int_equal(malformed_at("latin1.txt", "caf\xe9 au lait\n", 13), 3);
    assert_int_equal(malformed_at("torn.txt", "caf\xc3", 4), 3);
}

static int set_up(void **state)
{
    (void)state;
    if (test_scratch(folder) == NULL || arena_create("test", 0, &memory) != ST_OK) return -1;
    return data_tokenizer_open(host_real(), memory, "bytes", &tokenizer) == ST_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    test_scratch_remove(folder);
    data_tokenizer_close(tokenizer);
    arena_destroy(memory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shard_there_and_back),
        cmocka_unit_test(test_shard_damage),
        cmocka_unit_test(test_shard_faults),
        cmocka_unit_test(test_nanogpt),
        cmocka_unit_test(test_nanogpt_of_another_width),
        cmocka_unit_test(test_llmc),
        cmocka_unit_test(test_megatron_types),
        cmocka_unit_test(test_megatron_damage),
        cmocka_unit_test(test_cut_under_the_run),
        cmocka_unit_test(test_own_shard_cut_under_the_run),
        cmocka_unit_test(test_shard_overwritten_under_the_run),
        cmocka_unit_test(test_earlier_shard),
        cmocka_unit_test(test_prepare),
        cmocka_unit_test(test_malformed_text),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
