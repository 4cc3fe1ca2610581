// Mixes give each source its share to less than one sequence, phases follow each other without a
// gap, and best fit packs every document once, as a slow search for the best row does.
#include "base/rng.h"
#include "data/dataset.h"
#include "data/dataset/mix.h"
#include "data/dataset/pack.h"
#include "fixtures/base/test_paths.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static arena *memory;
static data_tokenizer *tokenizer;

// ---- mixes --------------------------------------------------------------------------------------

enum { SOURCES_MAX = 8 };

// Plays sequences [first, first + count), whose shares must be met at every moment.
static void play(const mix *m, int64_t first, int64_t count, const double *shares, int64_t *next)
{
    int64_t counts[SOURCES_MAX] = {0};
    for (int64_t k = 0; k < count; k++) {
        int64_t i = -1, number = -1;
        mix_place(m, first + k, &i, &number);
        assert_in_range(i, 0, m->source_count - 1);
        assert_int_equal(number, next[i]++); // none is left out, none comes twice
        counts[i]++;
        for (int64_t s = 0; s < m->source_count; s++) {
            const double owed = shares[s] * (double)(k + 1);
            assert_true(fabs((double)counts[s] - owed) < 1.0);
        }
    }
}

static void test_shares_are_met_at_every_moment(void **state)
{
    (void)state;
    const double weights[][5] = {{1, 1, 1, 1, 1},         {0.7, 0.2, 0.1, 0, 0}, {5, 0, 3, 0, 1},
                                 {0.001, 0.999, 0, 0, 0}, {1, 2, 3, 4, 5},       {0, 0, 1, 0, 0}};
    for (int64_t k = 0; k < COUNT_OF(weights); k++) {
        mix m = {.source_count = 5};
        double shares[5], sum = 0.0;
        int64_t next[SOURCES_MAX] = {0};
        for (int i = 0; i < 5; i++) sum += weights[k][i];
        for (int i = 0; i < 5; i++) shares[i] = weights[k][i] / sum;
        assert_int_equal(mix_add(memory, &m, 0, weights[k]), ST_OK);
        play(&m, 0, 3000, shares, next);
    }
}

// Shares that no round gives exactly are met to one sequence in the longest round.
static void test_odd_shares(void **state)
{
    (void)state;
    const double weights[3] = {sqrt(2), sqrt(3), sqrt(5)};
    const double sum = weights[0] + weights[1] + weights[2];
    const double shares[3] = {weights[0] / sum, weights[1] / sum, weights[2] / sum};
    mix m = {.source_count = 3};
    int64_t next[SOURCES_MAX] = {0};
    assert_int_equal(mix_add(memory, &m, 0, weights), ST_OK);
    assert_int_equal(m.phases[0].round, DATA_MIX_ROUND_MAX);
    play(&m, 0, 20000, shares, next);
}

static void test_phases_follow_each_other(void **state)
{
    (void)state;
    const double first[3] = {0.5, 0.5, 0}, second[3] = {0.1, 0.2, 0.7}, third[3] = {0, 0, 1};
    mix m = {.source_count = 3};
    int64_t next[SOURCES_MAX] = {0};
    assert_int_equal(mix_add(memory, &m, 0, first), ST_OK);
    assert_int_equal(mix_add(memory, &m, 777, second), ST_OK);
    assert_int_equal(mix_add(memory, &m, 5000, third), ST_OK);
    play(&m, 0, 777, first, next);
    play(&m, 777, 5000 - 777, second, next);
    play(&m, 5000, 300, third, next);
    int64_t i = 0, number = 0;
    mix_place(&m, 776, &i, &number); // any order of questions gives the same answers
    assert_true(i < 2 && number < 777);
}

// ---- best fit -----------------------------------------------------------------------------------

// The row with the fewest free tokens that are enough, found by looking at all rows.
static int64_t slow_best_fit(const int64_t *lengths, int64_t count, int64_t seq, int64_t *rows)
{
    int64_t *left = calloc((size_t)count + 1, sizeof(*left)), opened = 0;
    bool *done = calloc((size_t)count + 1, sizeof(*done));
    for (int64_t n = 0; n < count; n++) {
        int64_t longest = -1, best = -1;
        for (int64_t i = 0; i < count; i++) {
            if (!done[i] && (longest < 0 || lengths[i] > lengths[longest])) longest = i;
        }
        done[longest] = true;
        for (int64_t r = 0; r < opened; r++) {
            if (left[r] >= lengths[longest] && (best < 0 || left[r] < left[best])) best = r;
        }
        if (best < 0) left[best = opened++] = seq;
        left[best] -= lengths[longest];
        rows[longest] = best;
    }
    free(left);
    free(done);
    return opened;
}

static void test_best_fit_is_the_slow_one(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    int64_t lengths[COUNT], rows[COUNT], slow[COUNT];
    const int64_t seqs[] = {1, 7, 64, 65, 4096, 5000};
    for (int64_t k = 0; k < 60; k++) {
        const int64_t seq = seqs[k % COUNT_OF(seqs)],
                      count = 1 + rng_word(3, 0, (uint64_t)k) % COUNT;
        int64_t row_count = 0, filled[COUNT] = {0}, slow_filled[COUNT] = {0};
        for (int64_t i = 0; i < count; i++) {
            const uint32_t word = rng_word(4, (uint64_t)k, (uint64_t)i);
            lengths[i] = 1 + word % (uint32_t)(k % 2 == 0 ? seq : (seq + 3) / 4);
        }
        assert_int_equal(pack_best_fit(lengths, count, seq, rows, &row_count), ST_OK);
        assert_int_equal(slow_best_fit(lengths, count, seq, slow), row_count);
        for (int64_t i = 0; i < count; i++) {
            filled[rows[i]] += lengths[i];
            slow_filled[slow[i]] += lengths[i];
        }
        // Rows with equally many free tokens are interchangeable; these numbers are not.
        int64_t sums[2] = {0, 0};
        for (int64_t r = 0; r < row_count; r++) {
            assert_in_range(filled[r], 1, seq);
            sums[0] += filled[r] * filled[r];
            sums[1] += slow_filled[r] * slow_filled[r];
        }
        assert_int_equal(sums[0], sums[1]);
    }
}

// ---- packed datasets ----------------------------------------------------------------------------

// Writes a shard of documents whose tokens are consecutive letters, ended by end of text.
static const char *write_documents(const char *name, const int64_t *lengths, int64_t count)
{
    data_shard_writer *w = NULL;
    char *path = NULL;
    int32_t id = 0;
    assert_int_equal(path_join(memory, folder, name, &path), ST_OK);
    assert_int_equal(data_shard_create(host_real(), path, tokenizer, &w), ST_OK);
    for (int64_t i = 0; i < count; i++) {
        for (int64_t t = 0; t < lengths[i]; t++, id = (id + 1) % 251) {
            assert_int_equal(data_shard_add(w, &id, 1), ST_OK);
        }
        assert_int_equal(data_shard_end_document(w), ST_OK);
    }
    assert_int_equal(data_shard_finish(w), ST_OK);
    return path;
}

static data_dataset *open_packed(const char *const *train, int64_t count, int64_t seq)
{
    data_dataset *d = NULL;
    const data_dataset_spec spec = {.train = train,
                                    .train_count = count,
                                    .seq = seq,
                                    .packing = DATA_PACKING_BEST_FIT,
                                    .seed = 5,
                                    .tokenizer = tokenizer,
                                    .cache_folder = folder};
    const status st = data_dataset_open(host_real(), memory, &spec, &d);
    if (st != ST_OK) fail_msg("%s", error_last()->text);
    return d;
}

// Each token of each document comes once in an epoch, predicted from the one before it in the same
// document: the sums of ids and of labels are those of the documents alone.
static void test_rows_hold_each_document_once(void **state)
{
    (void)state;
    enum { COUNT = 500, SEQ = 32 };
    int64_t lengths[COUNT], ids_sum = 0, labels_sum = 0, tokens = 0;
    int32_t id = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        lengths[i] = 1 + rng_word(9, 0, (uint64_t)i) % (i % 50 == 0 ? 150 : 20);
        for (int64_t t = 0; t <= lengths[i]; t++) {
            const int32_t token = t == lengths[i] ? 256 : id;
            ids_sum += token;
            labels_sum += t > 0 ? token : 0; // the first token of a document is no label
            if (t < lengths[i]) id = (id + 1) % 251;
        }
        tokens += lengths[i] + 1;
    }
    const char *train[] = {write_documents("once-0.tok", lengths, 200),
                           write_documents("once-1.tok", lengths + 200, COUNT - 200)};
    // The second file begins with id 0 again; so do the sums.
    ids_sum = labels_sum = 0;
    for (int64_t f = 0; f < 2; f++) {
        id = 0;
        for (int64_t i = f == 0 ? 0 : 200; i < (f == 0 ? 200 : COUNT); i++) {
            for (int64_t t = 0; t <= lengths[i]; t++) {
                const int32_t token = t == lengths[i] ? 256 : id;
                ids_sum += token;
                labels_sum += t > 0 ? token : 0;
                if (t < lengths[i]) id = (id + 1) % 251;
            }
        }
    }
    data_dataset *d = open_packed(train, 2, SEQ);
    const int64_t n = data_dataset_sequences(d, DATA_TRAIN);
    assert_int_equal(data_dataset_tokens(d, DATA_TRAIN), tokens);
    static int32_t ids[SEQ], labels[SEQ], positions[SEQ], documents[SEQ];
    const data_rows rows = {ids, labels, positions, documents};
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        int64_t ids_seen = 0, labels_seen = 0, cells = 0;
        for (int64_t k = 0; k < n; k++) {
            assert_int_equal(data_batch_fill(d, DATA_TRAIN, epoch * n + k, 1, &rows), ST_OK);
            const int32_t last = documents[SEQ - 1];
            bool is_padding = true; // of the last document
            for (int64_t t = 0; t < SEQ; t++) {
                if (documents[t] == last) is_padding = is_padding && labels[t] < 0 && ids[t] == 256;
            }
            for (int64_t t = 0; t < SEQ; t++) {
                const bool begins = t == 0 || documents[t] != documents[t - 1];
                assert_int_equal(positions[t], begins ? 0 : positions[t - 1] + 1);
                if (is_padding && documents[t] == last && (t == 0 || last > 0)) continue;
                ids_seen += ids[t];
                cells++;
                labels_seen += labels[t] >= 0 ? labels[t] : 0;
                if (!begins && labels[t - 1] >= 0) assert_int_equal(labels[t - 1], ids[t]);
            }
        }
        assert_int_equal(cells, tokens);
        assert_int_equal(ids_seen, ids_sum);
        assert_int_equal(labels_seen, labels_sum);
    }
    data_dataset_close(d);
}

// Lengths as texts have them, log-normal: less than 1% of the cells is padding.
static void test_padding_is_small(void **state)
{
    (void)state;
    enum { COUNT = 6000 };
    int64_t lengths[COUNT], tokens = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        double normal = 0.0; // sum of uniform numbers
        for (uint64_t k = 0; k < 12; k++) {
            normal += (double)rng_word(11, k, (uint64_t)i) / 4294967296.0;
        }
        lengths[i] = max_i64(1, (int64_t)exp(6.2 + 1.1 * (normal - 6.0)));
        tokens += lengths[i] + 1;
    }
    const char *train[] = {write_documents("many.tok", lengths, COUNT)};
    const int64_t seqs[] = {2048, 8192};
    for (int64_t i = 0; i < COUNT_OF(seqs); i++) {
        data_dataset *d = open_packed(train, 1, seqs[i]);
        const int64_t cells = data_dataset_sequences(d, DATA_TRAIN) * seqs[i];
        const double padding = 1.0 - (double)tokens / (double)cells;
        printf("sequences of %lld: %.3f%% padding\n", (long long)seqs[i], 100.0 * padding);
        assert_true(padding >= 0.0 && padding < 0.01);
        data_dataset_close(d);
    }
}

// A sequence is the same in any batch, whatever was asked for before.
static void test_batches_do_not_matter(void **state)
{
    (void)state;
    enum { COUNT = 400, SEQ = 64, ROWS = 30 };
    int64_t lengths[COUNT];
    for (int64_t i = 0; i < COUNT; i++) lengths[i] = 1 + rng_word(12, 0, (uint64_t)i) % 90;
    char *weighted[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            arena_format(memory, &weighted[i], "%s=%d",
                         write_documents(i == 0 ? "b0.tok" : "b1.tok", lengths + 200 * i, 200),
                         2 - i),
            ST_OK);
    }
    const char *train[] = {weighted[0], weighted[1]};
    static int32_t all[4][ROWS * SEQ], one[4][SEQ];
    data_dataset *d = open_packed(train, 2, SEQ), *again = open_packed(train, 2, SEQ);
    const data_rows whole = {all[0], all[1], all[2], all[3]},
                    single = {one[0], one[1], one[2], one[3]};
    assert_int_equal(data_batch_fill(d, DATA_TRAIN, 0, ROWS, &whole), ST_OK);
    for (int64_t k = ROWS; k-- > 0;) {
        assert_int_equal(data_batch_fill(again, DATA_TRAIN, k, 1, &single), ST_OK);
        for (int c = 0; c < 4; c++) assert_memory_equal(one[c], all[c] + k * SEQ, sizeof(one[c]));
    }
    const hash128 id = data_dataset_id(d), same = data_dataset_id(again);
    assert_memory_equal(&id, &same, sizeof(id));
    data_dataset_close(d);
    data_dataset_close(again);
}

// ---- weights of entries -------------------------------------------------------------------------

static void test_epochs_and_temperature(void **state)
{
    (void)state;
    const int64_t long_text[] = {4000}, short_text[] = {1000};
    const char *a = write_documents("long.tok", long_text, 1);
    const char *b = write_documents("short.tok", short_text, 1);
    char *twice = NULL, *weighted = NULL;
    assert_int_equal(arena_format(memory, &twice, "%s=2x", b), ST_OK);
    assert_int_equal(arena_format(memory, &weighted, "%s=2", b), ST_OK);
    const struct {
        const char *second;
        double temperature, ratio; // sequences of the first for each of the second
    } cases[] = {{twice, 0.0, 40.0 / 20.0},
                 {b, 1.0, 4001.0 / 1001.0},
                 {b, 2.0, 1.99925},
                 {weighted, 1.0, 0.5}};
    for (int64_t k = 0; k < COUNT_OF(cases); k++) {
        const char *train[] = {a, cases[k].second};
        data_dataset *d = NULL;
        const data_dataset_spec spec = {.train = train,
                                        .train_count = 2,
                                        .seq = 100,
                                        .seed = 5,
                                        .temperature = cases[k].temperature,
                                        .tokenizer = tokenizer,
                                        .cache_folder = folder};
        assert_int_equal(data_dataset_open(host_real(), memory, &spec, &d), ST_OK);
        int64_t counts[2] = {0};
        for (int64_t n = 0; n < 3000; n++) counts[data_dataset_place(d, DATA_TRAIN, n).source]++;
        const double first = 3000.0 * cases[k].ratio / (1.0 + cases[k].ratio);
        assert_true(fabs((double)counts[0] - first) < 1.0);
        data_dataset_close(d);
    }
    const char *both[] = {twice, weighted};
    data_dataset *d = NULL;
    const data_dataset_spec spec = {.train = both,
                                    .train_count = 2,
                                    .seq = 100,
                                    .tokenizer = tokenizer,
                                    .cache_folder = folder};
    assert_int_equal(data_dataset_open(host_real(), memory, &spec, &d), ST_CONFIG_CONFLICT);
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
        cmocka_unit_test(test_shares_are_met_at_every_moment),
        cmocka_unit_test(test_odd_shares),
        cmocka_unit_test(test_phases_follow_each_other),
        cmocka_unit_test(test_best_fit_is_the_slow_one),
        cmocka_unit_test(test_rows_hold_each_document_once),
        cmocka_unit_test(test_padding_is_small),
        cmocka_unit_test(test_batches_do_not_matter),
        cmocka_unit_test(test_epochs_and_temperature),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
