// Training of Unigram tokenizers: seeds and scores against naive references, the file's properties,
// and equal files for any number of threads.
#include "base/format/json.h"
#include "data/tokenizer/train/train_pieces.h"
#include "fixtures/base/test_paths.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[64];

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

// Words of `letters` letters, among them one of two bytes.
static void random_words(uint32_t seed, int64_t count, int longest, uint32_t letters,
                         train_words *out)
{
    static const char *const all[] = {"a", "b", "\u00e9", "c"};
    for (int64_t i = 0; i < count; i++) {
        char word[64] = "";
        const int length = 1 + (int)(next_random(&seed) % (uint32_t)longest);
        for (int k = 0; k < length; k++) strcat(word, all[next_random(&seed) % letters]);
        assert_int_equal(
            train_words_add(out, word, (int64_t)strlen(word), 1 + next_random(&seed) % 3), ST_OK);
    }
}

// ---- seeds --------------------------------------------------------------------------------------

static bool begins_character(const char *at)
{
    return ((uint8_t)*at & 0xc0) != 0x80;
}

// How often a text occurs in the units, and with which character after it: -1 for several.
static int64_t occurrences(const train_units *u, const char *text, int64_t bytes, int *after)
{
    int64_t count = 0;
    *after = -2;
    for (int64_t i = 0; i < u->count; i++) {
        const char *unit = u->text.items + u->items[i].at;
        for (int32_t k = 0; k + bytes <= u->items[i].bytes; k++) {
            if (memcmp(unit + k, text, (size_t)bytes) != 0) continue;
            count += u->items[i].count;
            const int next = unit[k + bytes] & 0xff; // characters differ in their first byte here
            *after = next == 0 || (*after != -2 && *after != next) ? -1 : next;
        }
    }
    return count;
}

static bool has_piece(const train_units *u, const train_pieces *p, const char *text, int64_t bytes)
{
    for (int64_t i = 0; i < p->count; i++) {
        const train_piece *one = &p->items[i];
        if (one->bytes == bytes && memcmp(u->text.items + one->at, text, (size_t)bytes) == 0) {
            return true;
        }
    }
    return false;
}

// Every substring of whole characters is a seed exactly if it occurs twice and several things
// follow it (or it is as long as pieces are).
static void test_seeds(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        train_words words = {0};
        train_units units = {.count = 0};
        train_pieces pieces = {0};
        int64_t seen = 0;
        random_words(seed, 1 + seed % 7, seed % 3 == 0 ? 24 : 6, 1 + seed % 4, &words);
        assert_int_equal(train_units_make(&words, 100, &units), ST_OK);
        assert_int_equal(train_seeds(&units, 0, &pieces), ST_OK);
        for (int64_t i = 0; i < units.count; i++) {
            const char *unit = units.text.items + units.items[i].at;
            for (int32_t from = 0; from < units.items[i].bytes; from++) {
                if (!begins_character(unit + from)) continue;
                int characters = 0;
                for (int32_t to = from + 1; to <= units.items[i].bytes; to++) {
                    int after = 0;
                    if (!begins_character(unit + to)) continue;
                    characters++;
                    if (characters < 2 || characters > PIECE_CHARACTERS_MAX) continue;
                    const int64_t count = occurrences(&units, unit + from, to - from, &after);
                    const bool is_longest = characters == PIECE_CHARACTERS_MAX;
                    const bool wanted = count >= 2 && (after == -1 || is_longest);
                    assert_int_equal(has_piece(&units, &pieces, unit + from, to - from), wanted);
                    seen += wanted;
                }
            }
        }
        assert_true(seen > 0 || seed % 7 == 0);
        for (int64_t i = 1; i < pieces.count; i++) { // in order, each once
            assert_true(
                train_piece_compare(&pieces.items[i - 1], &pieces.items[i], units.text.items) < 0);
        }
        free(pieces.items);
        train_units_deinit(&units);
        train_words_deinit(&words);
    }
}

// ---- expectation and maximization ---------------------------------------------------------------

typedef struct naive {
    const train_units *u;
    const train_pieces *p;
    double expected[4096];
    int32_t way[UNIT_CHARACTERS_MAX];
} naive;

// Walks over all ways to write [at, end) and returns the sum of their probabilities; with all > 0
// it adds each way's share to its pieces.
static double all_ways(naive *n, const char *at, const char *end, double probability, int depth,
                       double times)
{
    double sum = 0.0;
    if (at == end) {
        for (int i = 0; i < depth; i++) n->expected[n->way[i]] += probability * times;
        return probability;
    }
    for (int64_t i = 0; i < n->p->count; i++) {
        const train_piece *one = &n->p->items[i];
        if (one->bytes > end - at) continue;
        if (memcmp(n->u->text.items + one->at, at, (size_t)one->bytes) != 0) continue;
        n->way[depth] = (int32_t)i;
        sum += all_ways(n, at + one->bytes, end, probability * exp(one->score), depth + 1, times);
    }
    return sum;
}

// The slope of lgamma by its difference, an independent form of digamma.
static double slope(double x)
{
    const double step = 1e-4;
    return (lgamma(x + step) - lgamma(x - step)) / (2.0 * step);
}

static void naive_round(const train_units *u, train_pieces *p)
{
    naive n = {.u = u, .p = p};
    double sum = 0.0;
    int64_t kept = 0;
    assert_true(p->count <= COUNT_OF(n.expected));
    for (int64_t i = 0; i < u->count; i++) {
        const char *at = u->text.items + u->items[i].at;
        const double all = all_ways(&n, at, at + u->items[i].bytes, 1.0, 0, 0.0);
        (void)all_ways(&n, at, at + u->items[i].bytes, 1.0, 0, (double)u->items[i].count / all);
    }
    for (int64_t i = 0; i < p->count; i++) {
        double expected = n.expected[i];
        if (expected < 0.5 && !p->items[i].is_character) continue;
        expected = fmax(expected, 0.5);
        p->items[kept] = p->items[i];
        p->items[kept++].score = slope(expected);
        sum += expected;
    }
    p->count = kept;
    for (int64_t i = 0; i < kept; i++) p->items[i].score -= slope(sum);
}

// With enough tokens for all seeds the trainer is two rounds of expectation and maximization.
static void test_scores(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 4; seed++) {
        train_words words = {0};
        train_units units = {.count = 0}, same = {.count = 0};
        train_pieces wanted = {0}, got = {0};
        const data_train_options o = {.kind = DATA_TRAIN_UNIGRAM, .threads = 2};
        random_words(seed, 30, 7, 2 + seed % 3, &words);
        assert_int_equal(train_units_make(&words, 2000, &units), ST_OK);
        assert_int_equal(train_seeds(&units, 0, &wanted), ST_OK);
        for (int i = 0; i < 2; i++) naive_round(&units, &wanted);
        assert_int_equal(train_unigram(&words, 4000, &o, &same, &got), ST_OK);
        qsort_r(got.items, (size_t)got.count, sizeof(*got.items), train_piece_compare,
                same.text.items);
        assert_int_equal(got.count, wanted.count);
        for (int64_t i = 0; i < got.count; i++) {
            assert_int_equal(got.items[i].bytes, wanted.items[i].bytes);
            assert_memory_equal(same.text.items + got.items[i].at,
                                units.text.items + wanted.items[i].at, (size_t)got.items[i].bytes);
            assert_true(fabs(got.items[i].score - wanted.items[i].score) < 1e-4);
        }
        free(wanted.items);
        free(got.items);
        train_units_deinit(&units);
        train_units_deinit(&same);
        train_words_deinit(&words);
    }
}

// ---- the file -----------------------------------------------------------------------------------

static const char *in_folder(const char *name, char buffer[128])
{
    snprintf(buffer, 128, "%s/%s", folder, name);
    return buffer;
}

static const char *const end_of_text[] = {"<|endoftext|>"};

static char *text_file(int64_t bytes, char path[128])
{
    static const char *const parts[] = {"the ", "then ",   "other ",     "and ",
                                        "sand", "\n",      "caf\u00e9 ", "42 ",
                                        "(a)",  "\u4f60 ", "  ",         "an other "};
    char *text = malloc((size_t)bytes + 32);
    uint32_t random = 5;
    int64_t at = 0;
    assert_non_null(text);
    while (at < bytes) {
        const char *part = parts[next_random(&random) % COUNT_OF(parts)];
        memcpy(text + at, part, strlen(part) + 1);
        at += (int64_t)strlen(part);
    }
    assert_int_equal(host_write_all(host_real(), in_folder("text.txt", path), text, at), ST_OK);
    return text;
}

static void train_file_of(const char *path, const data_train_options *o, const char *name,
                          data_train_result *r)
{
    char out[128];
    if (data_tokenizer_train(host_real(), &path, 1, o, in_folder(name, out), r) != ST_OK) {
        fail_msg("%s", error_last()->text);
    }
}

static void expect_same(arena *a, const char *name, const char *other)
{
    char path[128], *x = NULL, *y = NULL;
    int64_t n = 0, m = 0;
    assert_int_equal(host_read_own(host_real(), a, in_folder(name, path), 1 << 24, &x, &n), ST_OK);
    assert_int_equal(host_read_own(host_real(), a, in_folder(other, path), 1 << 24, &y, &m), ST_OK);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, (size_t)n);
}

// Equal files for any number of threads, also where words are forgotten; texts come back whole,
// those that spell tokens too.
static void test_file(void **state)
{
    (void)state;
    static const char *const texts[] = {"the other sand\n\n  and then",
                                        "<0x41> <unk> <|endoftext|>",
                                        "\u00e9\u4f60\u597d \U0001f600 <0x0A>", ""};
    char path[128];
    arena *a = NULL;
    data_tokenizer *t = NULL;
    data_train_result r;
    data_train_options o = {.kind = DATA_TRAIN_UNIGRAM,
                            .vocab_size = 330,
                            .special = end_of_text,
                            .special_count = 1,
                            .threads = 1};
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    free(text_file(3 << 20, path));
    train_file_of(path, &o, "one.json", &r);
    assert_int_equal(r.vocab_size, 330);
    o.threads = 3;
    train_file_of(path, &o, "three.json", &r);
    expect_same(a, "one.json", "three.json");
    o.words_max = 12;
    train_file_of(path, &o, "few_three.json", &r);
    assert_true(r.words <= 12 && r.words_dropped > 0);
    o.threads = 1;
    train_file_of(path, &o, "few_one.json", &r);
    expect_same(a, "few_one.json", "few_three.json");

    assert_int_equal(data_tokenizer_open(host_real(), a, in_folder("one.json", path), &t), ST_OK);
    assert_int_equal(data_tokenizer_eot(t), 329);
    assert_true(data_tokenizer_find(t, "\u2581other") > 256);
    data_ids ids = {0};
    data_bytes back = {0};
    for (int64_t i = 0; i < COUNT_OF(texts); i++) {
        const int64_t count = (int64_t)strlen(texts[i]);
        ids.count = back.count = 0;
        assert_int_equal(data_tokenizer_encode(t, texts[i], count, 0, &ids), ST_OK);
        assert_int_equal(data_tokenizer_decode(t, ids.items, ids.count, 0, &back), ST_OK);
        assert_int_equal(back.count, count);
        assert_memory_equal(back.items, texts[i], (size_t)count);
    }
    ids.count = 0;
    assert_int_equal(
        data_tokenizer_encode(t, "an other<|endoftext|>", 21, DATA_ENCODE_SPECIAL, &ids), ST_OK);
    assert_int_equal(ids.items[ids.count - 1], 329);
    data_ids_deinit(&ids);
    data_bytes_deinit(&back);
    data_tokenizer_close(t);
    arena_destroy(a);
}

// Runs of one character, NUL, and texts without anything.
static void test_odd_texts(void **state)
{
    (void)state;
    char path[128], *text = malloc(1 << 20);
    data_train_result r;
    const data_train_options o = {.kind = DATA_TRAIN_UNIGRAM, .vocab_size = 400, .threads = 2};
    assert_non_null(text);
    memset(text, 'a', 1 << 20);
    for (int kind = 0; kind < 3; kind++) {
        static const int64_t counts[] = {1 << 20, 1, 100};
        if (kind == 2) snprintf(text, 101, "%-99s\n", "{\"text\": \"a\\u0000b a\\u0000b\"}");
        assert_int_equal(
            host_write_all(host_real(), in_folder("odd.txt", path), text, counts[kind]), ST_OK);
        train_file_of(path, &o, "odd.json", &r);
        assert_true(r.vocab_size >= 256 + 1 + 22);
    }
    free(text);
}

static int make_folder(void **state)
{
    (void)state;
    return test_scratch(folder) == NULL ? -1 : 0;
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
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_odd_texts),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
