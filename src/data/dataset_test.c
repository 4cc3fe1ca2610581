// Datasets: the order is a permutation that does not depend on the batch size, rows hold the right
// tokens, training never sees the held-out part, weights are met, and bad data is an error with its
// place.
#include "base/fault.h"
#include "base/rng.h"
#include "data/dataset.h"
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

// A nanoGPT file of `count` tokens whose values are first, first + 1, ...
static const char *write_counting(const char *name, int64_t first, int64_t count)
{
    uint16_t *tokens = malloc((size_t)count * 2);
    assert_non_null(tokens);
    for (int64_t i = 0; i < count; i++) tokens[i] = (uint16_t)(first + i);
    const char *path = write_file(name, tokens, 2 * count);
    free(tokens);
    return path;
}

static data_dataset_spec spec_of(const char *const *train, int64_t count, int64_t seq)
{
    return (data_dataset_spec){.train = train,
                               .train_count = count,
                               .seq = seq,
                               .packing = DATA_PACKING_PLAIN,
                               .seed = 17,
                               .vocab = 65536,
                               .cache_folder = path_of("cache")};
}

static data_dataset *open_dataset(const data_dataset_spec *spec)
{
    data_dataset *d = NULL;
    const status st = data_dataset_open(host_real(), memory, spec, &d);
    if (st != ST_OK) fail_msg("%s", error_last()->text);
    return d;
}

static void expect_refusal(const data_dataset_spec *spec, status wanted, const char *words)
{
    data_dataset *d = NULL;
    error_clear();
    assert_int_equal(data_dataset_open(host_real(), memory, spec, &d), wanted);
    if (strstr(error_last()->text, words) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", error_last()->text, words);
    }
}

enum { ROWS_MAX = 4096 };
static int32_t ids[ROWS_MAX], labels[ROWS_MAX], positions[ROWS_MAX], documents[ROWS_MAX];
static const data_rows rows = {ids, labels, positions, documents};

static void fill(const data_dataset *d, data_split split, int64_t first, int64_t count)
{
    assert_true(count * data_dataset_seq(d) <= ROWS_MAX);
    const status st = data_batch_fill(d, split, first, count, &rows);
    if (st != ST_OK) fail_msg("%s", error_last()->text);
}

// ---- order --------------------------------------------------------------------------------------

static void test_each_epoch_is_a_permutation(void **state)
{
    (void)state;
    const char *train[] = {write_counting("a.bin", 0, 1000), write_counting("b.bin", 1000, 501)};
    const data_dataset_spec spec = spec_of(train, 2, 4);
    data_dataset *d = open_dataset(&spec);
    const int64_t n = data_dataset_sequences(d, DATA_TRAIN);
    assert_int_equal(n, 375); // 1501 tokens in one stream
    assert_int_equal(data_dataset_sequences(d, DATA_VALID), 0);
    int64_t order[3][375];
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        bool seen[375] = {false};
        for (int64_t i = 0; i < n; i++) {
            fill(d, DATA_TRAIN, epoch * n + i, 1);
            const int64_t sequence = ids[0] / 4, shift = ids[0] % 4;
            assert_true(epoch > 0 || shift == 0);
            assert_false(seen[sequence]);
            seen[sequence] = true;
            order[epoch][i] = sequence;
            for (int t = 0; t < 4; t++) {
                assert_int_equal(ids[t], 4 * sequence + shift + t);
                assert_int_equal(labels[t], 4 * sequence + shift + t + 1);
                assert_int_equal(positions[t], t);
                assert_int_equal(documents[t], 0);
            }
            const data_place place = data_dataset_place(d, DATA_TRAIN, epoch * n + i);
            assert_int_equal(place.epoch, epoch);
            assert_int_equal(place.sequence, sequence);
            assert_int_equal(place.shift, shift);
        }
    }
    assert_memory_not_equal(order[0], order[1], sizeof(order[0]));
    assert_memory_not_equal(order[1], order[2], sizeof(order[0]));
    data_dataset_close(d);
}

// In each later epoch all rows but the last of their stretch begin the same number of tokens later.
// Over many epochs every number occurs. No row reads or predicts held-out data.
static void test_later_epochs_cut_elsewhere(void **state)
{
    (void)state;
    const char *train[] = {write_counting("a.bin", 0, 404)};
    data_dataset_spec spec = spec_of(train, 1, 4);
    spec.valid = "0.1";
    data_dataset *d = open_dataset(&spec);
    const int64_t n = data_dataset_sequences(d, DATA_TRAIN);
    const int64_t end_of_all = 4 * (n + data_dataset_sequences(d, DATA_VALID));
    bool held_out[405] = {false}, shifts[4] = {false};
    for (int64_t k = 0; k < data_dataset_sequences(d, DATA_VALID); k++) {
        fill(d, DATA_VALID, k, 1);
        for (int t = 0; t < 4; t++) held_out[ids[t]] = true;
    }
    for (int64_t epoch = 0; epoch < 30; epoch++) {
        int64_t shift = 0, whole = 0;
        for (int64_t i = 0; i < n; i++) {
            const data_place place = data_dataset_place(d, DATA_TRAIN, epoch * n + i);
            fill(d, DATA_TRAIN, epoch * n + i, 1);
            assert_int_equal(ids[0], 4 * place.sequence + place.shift);
            for (int t = 0; t < 4; t++) {
                assert_false(held_out[ids[t]]);
                assert_true(labels[t] == DATA_LABEL_IGNORED || !held_out[labels[t]]);
            }
            const int64_t end = 4 * place.sequence + 4;
            const bool last = end >= end_of_all || held_out[end];
            if (place.shift == 0) whole += last ? 0 : 1;
            if (place.shift > 0) {
                assert_false(last);
                assert_true(shift == 0 || place.shift == shift);
                shift = place.shift;
            }
        }
        assert_true(shift == 0 || whole == 0);
        assert_true(epoch > 0 || shift == 0);
        shifts[shift] = true;
    }
    for (int i = 0; i < 4; i++) assert_true(shifts[i]);
    data_dataset_close(d);
}

// The same sequence numbers give the same rows, however the calls group them. Another seed gives
// another order.
static void test_grouping_keeps_the_order(void **state)
{
    (void)state;
    const char *train[] = {write_counting("a.bin", 0, 2000)};
    data_dataset_spec spec = spec_of(train, 1, 8);
    data_dataset *d = open_dataset(&spec);
    static int32_t whole[24 * 8];
    fill(d, DATA_TRAIN, 100, 24);
    memcpy(whole, ids, sizeof(whole));
    for (int64_t part = 1; part <= 12; part++) {
        for (int64_t at = 0; at < 24; at += part) {
            const int64_t count = part < 24 - at ? part : 24 - at;
            fill(d, DATA_TRAIN, 100 + at, count);
            assert_memory_equal(ids, whole + at * 8, (size_t)count * 32);
        }
    }
    const hash128 id = data_dataset_id(d);
    data_dataset_close(d);
    d = open_dataset(&spec); // and in another run
    fill(d, DATA_TRAIN, 100, 24);
    assert_memory_equal(ids, whole, sizeof(whole));
    hash128 other = data_dataset_id(d);
    assert_memory_equal(&id, &other, sizeof(id));
    data_dataset_close(d);
    spec.seed++;
    d = open_dataset(&spec);
    fill(d, DATA_TRAIN, 100, 24);
    assert_memory_not_equal(ids, whole, sizeof(whole));
    other = data_dataset_id(d);
    assert_memory_not_equal(&id, &other, sizeof(id));
    data_dataset_close(d);
}

static void test_weights(void **state)
{
    const int64_t round_size = 4096;
    (void)state;
    char *train[3];
    assert_int_equal(arena_format(memory, &train[0], "%s=3", write_counting("a.bin", 0, 401)),
                     ST_OK);
    assert_int_equal(arena_format(memory, &train[1], "%s=0.5", write_counting("b.bin", 1000, 4001)),
                     ST_OK);
    train[2] = NULL;
    assert_int_equal(arena_strdup(memory, write_counting("c.bin", 20000, 41), &train[2]), ST_OK);
    const char *const list[] = {train[0], train[1], train[2]};
    data_dataset_spec spec = spec_of(list, 3, 4);
    data_dataset *d = open_dataset(&spec);
    assert_int_equal(data_dataset_sources(d), 3);
    // In each round: 3 to 0.5 to 1 of 4.5, exactly.
    for (int64_t round = 0; round < 3; round++) {
        int64_t counts[3] = {0}, next[3] = {0};
        for (int64_t n = 0; n < round_size; n++) {
            const data_place p = data_dataset_place(d, DATA_TRAIN, round * round_size + n);
            counts[p.source]++;
            next[p.source] = p.epoch > next[p.source] ? p.epoch : next[p.source];
        }
        assert_in_range(counts[0], 2730, 2731);
        assert_in_range(counts[1], 455, 456);
        assert_in_range(counts[2], 910, 911);
        assert_int_equal(counts[0] + counts[1] + counts[2], round_size);
    }
    // Each source has its own epochs: each of its first 10 sequences comes once.
    bool seen[10] = {false};
    int64_t found = 0;
    for (int64_t n = 0; found < 10; n++) {
        const data_place p = data_dataset_place(d, DATA_TRAIN, n);
        if (p.source != 2 || p.epoch != 0) continue;
        assert_false(seen[p.sequence]);
        seen[p.sequence] = true;
        found++;
        fill(d, DATA_TRAIN, n, 1);
        assert_int_equal(ids[0], 20000 + 4 * p.sequence);
    }
    data_dataset_close(d);
    const char *const bad[][1] = {{"x=0"}, {"x=-1"}, {"x=1e-400"}};
    for (int64_t i = 0; i < 2; i++) {
        spec = spec_of(bad[i], 1, 4);
        expect_refusal(&spec, ST_CONFIG_RANGE, "weight");
    }
}

// A tiny weight still gets its place in each round, and the round keeps its length.
static void test_extreme_weights(void **state)
{
    const int64_t round_size = DATA_MIX_ROUND_MAX;
    (void)state;
    char *train[40];
    for (int i = 0; i < 40; i++) {
        assert_int_equal(arena_format(memory, &train[i], "%s=%s", write_counting("a.bin", 0, 41),
                                      i == 0 ? "1e12" : "1e-9"),
                         ST_OK);
    }
    const char *list[40];
    memcpy(list, train, sizeof(list));
    const data_dataset_spec spec = spec_of(list, 40, 4);
    data_dataset *d = open_dataset(&spec);
    int64_t counts[40] = {0};
    for (int64_t n = 0; n < round_size; n++) {
        counts[data_dataset_place(d, DATA_TRAIN, n).source]++;
    }
    assert_int_equal(counts[0], round_size - 39);
    for (int i = 1; i < 40; i++) assert_int_equal(counts[i], 1);
    data_dataset_close(d);
}

// ---- held out -----------------------------------------------------------------------------------

static void test_held_out_share(void **state)
{
    (void)state;
    const char *train[] = {write_counting("a.bin", 0, 8003)};
    static const char *const shares[] = {"0.05", "0.001", "0.3", "0.9"};
    for (int64_t i = 0; i < COUNT_OF(shares); i++) {
        data_dataset_spec spec = spec_of(train, 1, 4);
        spec.valid = shares[i];
        data_dataset *d = open_dataset(&spec);
        const int64_t n[2] = {data_dataset_sequences(d, DATA_TRAIN),
                              data_dataset_sequences(d, DATA_VALID)};
        assert_int_equal(n[0] + n[1], 2000);
        const double share = (double)n[1] / 2000.0;
        assert_true(share > strtod(shares[i], NULL) - 0.01);
        assert_true(share < strtod(shares[i], NULL) + 0.01);
        // No token that one split reads or predicts is in the other's sequences.
        int8_t owner[8004];
        memset(owner, -1, sizeof(owner));
        for (int split = 0; split < 2; split++) {
            for (int64_t k = 0; k < n[split]; k++) {
                fill(d, (data_split)split, k, 1);
                for (int t = 0; t < 4; t++) {
                    assert_int_equal(owner[ids[t]], -1); // each once
                    owner[ids[t]] = (int8_t)split;
                }
            }
        }
        for (int split = 0; split < 2; split++) {
            for (int64_t k = 0; k < n[split]; k++) {
                fill(d, (data_split)split, k, 1);
                for (int t = 0; t < 4; t++) {
                    if (labels[t] == DATA_LABEL_IGNORED) {
                        assert_int_equal(t, 3);
                        assert_int_not_equal(owner[ids[t] + 1], split);
                    } else {
                        assert_int_equal(labels[t], ids[t] + 1);
                        assert_true(owner[labels[t]] == split || labels[t] == 8000);
                    }
                }
            }
        }
        // Fixed batches that start over at the end and do not depend on the seed.
        fill(d, DATA_VALID, 0, 1);
        const int32_t first = ids[0];
        fill(d, DATA_VALID, n[1], 1);
        assert_int_equal(ids[0], first);
        data_dataset_close(d);
        spec.seed = 99;
        d = open_dataset(&spec);
        fill(d, DATA_VALID, 0, 1);
        assert_int_equal(ids[0], first);
        data_dataset_close(d);
    }
    data_dataset_spec spec = spec_of(train, 1, 4);
    spec.valid = "1";
    expect_refusal(&spec, ST_CONFIG_RANGE, "data.valid");
    spec.valid = "-0.1";
    expect_refusal(&spec, ST_CONFIG_RANGE, "data.valid");
    spec.valid = "0.9999";
    expect_refusal(&spec, ST_DATA, "none to train on");
    spec.valid = "0";
    data_dataset *d = open_dataset(&spec);
    assert_int_equal(data_dataset_sequences(d, DATA_VALID), 0);
    data_dataset_close(d);
}

static void test_held_out_file(void **state)
{
    (void)state;
    const char *train[] = {write_counting("a.bin", 0, 401)};
    data_dataset_spec spec = spec_of(train, 1, 4);
    spec.valid = write_counting("v.bin", 5000, 45);
    data_dataset *d = open_dataset(&spec);
    assert_int_equal(data_dataset_sequences(d, DATA_TRAIN), 100);
    assert_int_equal(data_dataset_sequences(d, DATA_VALID), 11);
    bool seen[11] = {false};
    for (int64_t k = 0; k < 11; k++) {
        fill(d, DATA_VALID, k, 1);
        const int32_t sequence = (ids[0] - 5000) / 4;
        assert_false(seen[sequence]);
        seen[sequence] = true;
        assert_int_equal(labels[3], ids[3] + 1);
    }
    data_dataset_close(d);
    spec.valid = write_counting("short.bin", 0, 4);
    expect_refusal(&spec, ST_DATA, "4 tokens");
}

// ---- packing ------------------------------------------------------------------------------------

// Compares rows with the definition, computed from the text itself.
static void check_rows(const data_dataset *d, const int32_t *all, int64_t seq, int32_t eot)
{
    for (int64_t n = 0; n < data_dataset_sequences(d, DATA_TRAIN); n++) {
        fill(d, DATA_TRAIN, n, 1);
        const int64_t begin = data_dataset_place(d, DATA_TRAIN, n).sequence * seq;
        int32_t document = 0, position = 0;
        for (int64_t t = 0; t < seq; t++) {
            assert_int_equal(ids[t], all[begin + t]);
            assert_int_equal(documents[t], document);
            assert_int_equal(positions[t], position);
            position++;
            const bool ends = all[begin + t] == eot;
            assert_int_equal(labels[t], ends ? DATA_LABEL_IGNORED : all[begin + t + 1]);
            if (ends) {
                document++;
                position = 0;
            }
        }
    }
}

static void test_masked_packing(void **state)
{
    (void)state;
    // Lines of 1 to 12 letters, a document each. Some are empty and give no token.
    char lines[8192];
    int32_t all[4096];
    int64_t n = 0, count = 0;
    for (uint64_t i = 0; i < 200; i++) {
        const int64_t length = rng_word(5, 0, i) % 13;
        n += snprintf(lines + n, sizeof(lines) - (size_t)n, "{\"text\": \"");
        for (int64_t k = 0; k < length; k++) {
            lines[n] = (char)('a' + k);
            all[count++] = lines[n++];
        }
        if (length > 0) all[count++] = 256;
        n += snprintf(lines + n, sizeof(lines) - (size_t)n, "\"}\n");
    }
    const char *train[] = {write_file("docs.jsonl", lines, n)};
    for (int64_t seq = 1; seq <= 40; seq += 13) {
        data_dataset_spec spec = spec_of(train, 1, seq);
        spec.tokenizer = tokenizer;
        spec.vocab = 0;
        spec.packing = DATA_PACKING_MASKED;
        data_dataset *d = open_dataset(&spec);
        assert_int_equal(data_dataset_sequences(d, DATA_TRAIN), (count - 1) / seq);
        check_rows(d, all, seq, 256);
        // Without positions and documents the other arrays stay the same.
        fill(d, DATA_TRAIN, 3, 1);
        int32_t other_ids[64], other_labels[64], other_documents[64];
        data_rows few = {other_ids, other_labels, NULL, NULL};
        assert_int_equal(data_batch_fill(d, DATA_TRAIN, 3, 1, &few), ST_OK);
        assert_memory_equal(labels, other_labels, (size_t)seq * 4);
        few.documents = other_documents;
        assert_int_equal(data_batch_fill(d, DATA_TRAIN, 3, 1, &few), ST_OK);
        assert_memory_equal(documents, other_documents, (size_t)seq * 4);
        data_dataset_close(d);
    }
}

// Files without a list of documents: the end-of-text token is the boundary, and so is a file's end.
static void test_masked_packing_of_token_files(void **state)
{
    (void)state;
    uint16_t tokens[300];
    int32_t all[300];
    for (int i = 0; i < 300; i++) {
        tokens[i] = (uint16_t)(rng_word(6, 0, (uint64_t)i) % 7 == 0 ? 256 : 'a' + i % 20);
        all[i] = tokens[i];
    }
    tokens[299] = 256;
    all[299] = 256;
    const char *train[] = {write_file("t.bin", tokens, sizeof(tokens))};
    data_dataset_spec spec = spec_of(train, 1, 16);
    spec.tokenizer = tokenizer;
    spec.packing = DATA_PACKING_MASKED;
    data_dataset *d = open_dataset(&spec);
    check_rows(d, all, 16, 256);
    data_dataset_close(d);

    const char *two[] = {write_counting("x.bin", 0, 10), write_counting("y.bin", 100, 10)};
    spec = spec_of(two, 2, 19);
    spec.packing = DATA_PACKING_MASKED; // no tokenizer: no end-of-text token
    d = open_dataset(&spec);
    fill(d, DATA_TRAIN, 0, 1);
    for (int t = 0; t < 19; t++) {
        assert_int_equal(ids[t], t < 10 ? t : 90 + t);
        assert_int_equal(documents[t], t < 10 ? 0 : 1);
        assert_int_equal(positions[t], t < 10 ? t : t - 10);
        assert_int_equal(labels[t], t == 9 ? DATA_LABEL_IGNORED : ids[t] + 1);
    }
    data_dataset_close(d);
}

// ---- files --------------------------------------------------------------------------------------

static void test_globs_and_refusals(void **state)
{
    (void)state;
    (void)write_file("g1.txt", "first file", 10);
    (void)write_file("g2.txt", "second", 6);
    const char *train[] = {path_of("g*.txt")};
    data_dataset_spec spec = spec_of(train, 1, 17);
    spec.tokenizer = tokenizer;
    data_dataset *d = open_dataset(&spec);
    assert_int_equal(data_dataset_tokens(d, DATA_TRAIN), 17);
    assert_int_equal(data_dataset_documents(d), 2);
    fill(d, DATA_TRAIN, 0, 1);
    assert_int_equal(ids[0], 'f'); // names in order
    assert_int_equal(ids[10], 256);
    assert_int_equal(labels[16], 256);
    data_dataset_close(d);
    spec.seq = 18;
    expect_refusal(&spec, ST_DATA, "18 tokens in 2 files");
    spec.vocab = 100;
    expect_refusal(&spec, ST_CONFIG_CONFLICT, "257");
    spec.vocab = 0;
    spec.tokenizer = NULL;
    expect_refusal(&spec, ST_CONFIG, "data.tokenizer");
    const struct {
        const char *path, *words;
        status wanted;
    } bad[] = {{"/no/such/file", "no such file", ST_NOT_FOUND},
               {"/no/such/*.txt", "glob", ST_NOT_FOUND},
               {path_of(""), "folder", ST_DATA},
               {write_file("meta.pkl", "x", 1), "pickle", ST_UNSUPPORTED},
               {write_file("a.parquet", "PAR1", 4), "Parquet", ST_UNSUPPORTED},
               {write_file("z.tar.gz", "x", 1), "archives", ST_UNSUPPORTED},
               {write_file("odd.bin", "xyz", 3), "3 bytes", ST_DAMAGED}};
    for (int64_t i = 0; i < COUNT_OF(bad); i++) {
        const char *one[] = {bad[i].path};
        spec = spec_of(one, 1, 4);
        expect_refusal(&spec, bad[i].wanted, bad[i].words);
    }
    spec.seq = 0;
    expect_refusal(&spec, ST_CONFIG_RANGE, "train.seq");
}

static void test_token_beyond_vocabulary(void **state)
{
    (void)state;
    const char *train[] = {write_counting("big.bin", 0, 101)};
    data_dataset_spec spec = spec_of(train, 1, 10);
    spec.vocab = 57;
    data_dataset *d = open_dataset(&spec);
    int64_t failed = 0;
    for (int64_t n = 0; n < 10; n++) {
        error_clear();
        const status st = data_batch_fill(d, DATA_TRAIN, n, 1, &rows);
        const int64_t sequence = data_dataset_place(d, DATA_TRAIN, n).sequence;
        assert_int_equal(st, sequence < 5 ? ST_OK : ST_DATA);
        if (st == ST_OK) continue;
        failed++;
        assert_non_null(strstr(error_last()->text, "big.bin: token "));
        if (sequence == 5) assert_non_null(strstr(error_last()->text, "57 at byte 114 is 57"));
    }
    assert_int_equal(failed, 5);
    data_dataset_close(d);
}

// The dataset does not reuse shards of another tokenizer.
static void test_shard_of_another_tokenizer(void **state)
{
    (void)state;
    char *shard = NULL;
    const char *text_path = write_file("t.txt", "some text", 9);
    assert_int_equal(data_prepare(host_real(), memory, tokenizer, text_path,
                                  &(const data_prepare_options){.cache_folder = path_of("cache")},
                                  &shard),
                     ST_OK);
    const char *train[] = {shard};
    data_dataset_spec spec = spec_of(train, 1, 4);
    spec.tokenizer = tokenizer;
    data_dataset_close(open_dataset(&spec));
    // A second tokenizer: the shared one of GPT-2, if it exists.
    char shared[1024];
    file_info info;
    test_shared("data/gpt2_vocab.bpe", shared);
    assert_int_equal(host_real()->api->path_info(host_real(), shared, &info), ST_OK);
    if (info.kind == FILE_KIND_NONE) {
        printf("skipped: %s is not there\n", shared);
        skip();
    }
    data_tokenizer *other = NULL;
    assert_int_equal(data_tokenizer_open(host_real(), memory, shared, &other), ST_OK);
    spec.tokenizer = other;
    expect_refusal(&spec, ST_DATA, "another tokenizer");
    data_tokenizer_close(other);
}

static void test_faults(void **state)
{
    (void)state;
    (void)write_file("f1.txt", "first file", 10);
    const char *train[] = {path_of("f*.txt")};
    for (int k = 1; k < 200; k++) {
        char plan[32], cache[32];
        snprintf(plan, sizeof(plan), "*=%d", k);
        snprintf(cache, sizeof(cache), "cache%d", k);
        data_dataset_spec spec = spec_of(train, 1, 4);
        spec.tokenizer = tokenizer;
        spec.cache_folder = path_of(cache);
        spec.valid = "0.5";
        assert_int_equal(fault_arm(plan), ST_OK);
        data_dataset *d = NULL;
        const status st = data_dataset_open(host_real(), memory, &spec, &d);
        assert_int_equal(fault_arm(NULL), ST_OK);
        if (st == ST_OK) {
            data_dataset_close(d);
            // Only the removal of a killed run's files may fail without an error.
            if (k > 30) return;
        }
    }
    fail_msg("faults never ended");
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
        cmocka_unit_test(test_each_epoch_is_a_permutation),
        cmocka_unit_test(test_later_epochs_cut_elsewhere),
        cmocka_unit_test(test_grouping_keeps_the_order),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_extreme_weights),
        cmocka_unit_test(test_held_out_share),
        cmocka_unit_test(test_held_out_file),
        cmocka_unit_test(test_masked_packing),
        cmocka_unit_test(test_masked_packing_of_token_files),
        cmocka_unit_test(test_globs_and_refusals),
        cmocka_unit_test(test_token_beyond_vocabulary),
        cmocka_unit_test(test_shard_of_another_tokenizer),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
