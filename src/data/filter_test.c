// Each filter on texts for which its rules are known, by hand; and all filters on random bytes: no
// text is read past its end, and the same text gives the same verdict.
#include "base/rng.h"
#include "data/filter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// A run of one filter with its default parameters and those given as "key=value".
static filter_run *open_run(arena *a, filter_config *c, const char *name, const char *const *values)
{
    const data_filter *f = data_filter_find(name);
    filter_run *r = NULL;
    assert_non_null(f);
    memset(c, 0, sizeof(*c));
    for (int64_t i = 0; i < f->row_count; i++) {
        const option *o = &f->rows[i];
        const char *value = o->default_text;
        for (int k = 0; values != NULL && values[k] != NULL; k++) {
            const size_t n = strlen(o->key);
            if (strncmp(values[k], o->key, n) == 0 && values[k][n] == '=')
                value = values[k] + n + 1;
        }
        if (value == NULL) continue;
        assert_int_equal(option_set(o, a, c, value, NULL, NULL), ST_OK);
    }
    const char *items[] = {name};
    const option_list names = {.items = items, .count = 1};
    const status st = filter_run_open(host_real(), c, &names, &r);
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
    return r;
}

typedef struct filter_case {
    const char *filter, *value; // value: "key=value" or NULL
    const char *text;
    const char *rule; // that drops it; NULL: it stays
    const char *made; // the text that stays; NULL: as it was
} filter_case;

#define PROSE                                                                                   \
    "The quick brown fox was seen by all of the people that have lived with it in the village " \
    "near the old mill. They said that it would be back again before the winter came to them. " \
    "No one knew where it went to in the summer, and few of them had ever looked for its den. "

static const filter_case cases[] = {
    {"length", "length.min_chars=5", "\u00fcber", "too-short", NULL},
    {"length", "length.min_chars=4", "\u00fcber", NULL, NULL},
    {"length", "length.max_words=2", "one two three", "too-long", NULL},
    {"gopher", NULL, PROSE, NULL, NULL},
    {"gopher", NULL, "The quick brown fox and the dog", "too-few-words", NULL},
    {"gopher", "gopher.min_words=3", "The #tag #with #words that follow and many of them",
     "symbols", NULL},
    {"gopher", "gopher.min_words=3", "a b c d e f the of", "word-length", NULL},
    {"gopher", "gopher.min_words=3", "Lorem ipsum dolor sit amet", "no-stop-words", NULL},
    {"gopher", "gopher.min_words=3", "The 12345 6789 of 1234 5678", "not-words", NULL},
    {"gopher", "gopher.min_words=3",
     "- the one and only of them all here\n- that of thousands and more\n* with many of them",
     "bullets", NULL},
    {"gopher", "gopher.max_symbols=5", PROSE "...\n" PROSE "\u2026", "ellipses", NULL},
    {"repetition", NULL, PROSE, NULL, NULL},
    {"repetition", NULL, "one line\none line\none line\nanother line here", "lines", NULL},
    {"repetition", "repetition.max_lines=1", "one line\none line\nx\ny\nz", "line-chars", NULL},
    {"repetition", NULL, "buy now buy now buy now buy now and then think", "top-ngram", NULL},
    {"c4", NULL, "One sentence is here now. Another one is there. And a third one stands.\nMenu",
     NULL, "One sentence is here now. Another one is there. And a third one stands."},
    {"c4", NULL, "Menu\nHome\nContact", "few-sentences", NULL},
    {"c4", NULL, "if (a) { b(); }", "curly-brace", NULL},
    {"c4", NULL, "Lorem Ipsum dolor sit amet.", "lorem-ipsum", NULL},
    {"fineweb", NULL, PROSE, NULL, NULL},
    {"fineweb", NULL, "a\nb\nc\nd\ne\nf\ng\nh\ni\nj", "short-lines", NULL},
    {"fineweb", NULL,
     "no mark at the end of this quite long line\nneither at the end of this one here",
     "no-end-marks", NULL},
    {"fineweb", NULL,
     "A line that is long enough and ends well.\nA line that is long enough and ends well.",
     "duplicate-lines", NULL},
    {"repair", NULL, "caf\u00c3\u00a9 \u00e2\u20ac\u2122s \u00c3\u00a9t\u00c3\u00a9", NULL,
     "caf\u00e9 \u2019s \u00e9t\u00e9"},
    {"repair", NULL, "e\u0301 \u00c5", NULL, "\u00e9 \u00c5"},
    {"repair", NULL, "a\r\nb\rc\x01", NULL, "a\nb\nc"},
    {"repair", "repair.max_malformed=0.5", "abc\xff", NULL, "abc\ufffd"},
    {"repair", NULL, "ab\xff\xfe\xfd", "not-utf8", NULL},
    {"regex", "regex.drop=^secret", "line\nsecret", "drop", NULL},
    {"regex", "regex.drop=^secret", "no secret", NULL, NULL},
    {"regex", "regex.keep=\\d+", "no number", "keep", NULL},
    {"regex", "regex.keep=\\d+", "number 7", NULL, NULL},
    {"code", NULL, "// Copyright 2020 A. Body\n// All rights.\n\nint main(void)\n{\n}\n", NULL,
     "int main(void)\n{\n}\n"},
    {"code", NULL, "#!/bin/sh\n# a copyright of none\necho hello world\n", NULL, NULL},
    {"code", NULL, "# generated by a tool\nx = 1\n", "generated", NULL},
    {"code", "code.max_line_chars=20", "int abcdefghij = 1234567;\n", "minified", NULL},
    {"code", NULL, "{}[]();;;;;;====a", "not-code", NULL},
    {"pii", NULL, "mail jo.e+x@sub.example.org, thanks", NULL, "mail email@example.com, thanks"},
    {"pii", NULL, "not@mail and a@b.c, x@y.com.", NULL, "not@mail and a@b.c, email@example.com."},
    {"pii", NULL, "from 8.8.8.8 to 10.0.0.1, v1.2.3.4.5", NULL,
     "from 192.0.2.1 to 10.0.0.1, v1.2.3.4.5"},
    {"pii", NULL, "call +49 30 1234567 or 1234567", NULL, "call +1 555 0100 or 1234567"},
    {"pii", NULL, "pay 4111 1111 1111 1111, not 4111 1111 1111 1112", NULL,
     "pay <NUMBER>, not 4111 1111 1111 1112"},
    {"pii", NULL, "to DE89 3704 0044 0532 0130 00 now", NULL, "to <NUMBER> now"},
    {"language", NULL, PROSE, NULL, NULL},
    {"language", NULL,
     "Der Fuchs ist nicht in dem Wald und auch nicht auf der Wiese, die an das Dorf grenzt.",
     "other", NULL},
    {"language", "language.keep=de,ja",
     "Der Fuchs ist nicht in dem Wald und auch nicht auf der Wiese, die an das Dorf grenzt.", NULL,
     NULL},
    {"language", "language.keep=ja", "\u3053\u308c\u306f\u65e5\u672c\u8a9e\u3067\u3059", NULL,
     NULL},
    {"language", NULL, "xkqcd qwzxk vlpqnk frqbncxt zzqwk", "unsure", NULL},
    {"language", "language.keep=cs",
     "V\u0160ICHNI LID\u00c9 SE ROD\u00cd SVOBODN\u00cd A SOB\u011a ROVN\u00cd", NULL, NULL},
    {"language", "language.keep=sv,nb",
     "Alla m\u00e4nniskor \u00e4r f\u00f6dda fria och lika i v\u00e4rde", NULL, NULL},
    {"language", "language.keep=uk",
     "\u0412\u0441\u0456 \u043b\u044e\u0434\u0438 \u043d\u0430\u0440\u043e\u0434\u0436\u0443\u044e\u0442\u044c\u0441\u044f \u0432\u0456\u043b\u044c\u043d\u0438\u043c\u0438",
     NULL, NULL},
    {"language", "language.keep=ru",
     "\u0412\u0441\u0456 \u043b\u044e\u0434\u0438 \u043d\u0430\u0440\u043e\u0434\u0436\u0443\u044e\u0442\u044c\u0441\u044f \u0432\u0456\u043b\u044c\u043d\u0438\u043c\u0438",
     "other", NULL},
    {"language", "language.keep=es", "Todos los seres humanos nacen libres e iguales en dignidad",
     NULL, NULL},
    {"language", "language.keep=pt", "Todos los seres humanos nacen libres e iguales en dignidad",
     "other", NULL},
    {"language", "language.keep=sk",
     "V\u0161etci \u013eudia sa rodia slobodn\u00ed a sebe rovn\u00ed, \u010do sa t\u00fdka ich d\u00f4stojnosti",
     NULL, NULL},
    {"language", "language.keep=cs",
     "V\u0161etci \u013eudia sa rodia slobodn\u00ed a sebe rovn\u00ed, \u010do sa t\u00fdka ich d\u00f4stojnosti",
     "other", NULL},
    {"language", "language.keep=sl",
     "Vsi ljudje se rodijo svobodni in imajo enako dostojanstvo in enake pravice", NULL, NULL},
    {"language", "language.keep=hr",
     "Vsi ljudje se rodijo svobodni in imajo enako dostojanstvo in enake pravice", "other", NULL},
    {"language", "language.keep=lt",
     "Lietuva yra valstyb\u0117 Europoje, prie Baltijos j\u016bros, jos sostin\u0117 yra Vilnius",
     NULL, NULL},
    {"language", "language.keep=lv",
     "Lietuva yra valstyb\u0117 Europoje, prie Baltijos j\u016bros, jos sostin\u0117 yra Vilnius",
     "other", NULL},
    {"language", "language.keep=gl",
     "Todos os seres humanos nacen libres e iguais en dignidade e dereitos", NULL, NULL},
    {"language", "language.keep=pt",
     "Todos os seres humanos nacen libres e iguais en dignidade e dereitos", "other", NULL},
    {"language", "language.keep=bg",
     "\u0412\u0441\u0438\u0447\u043a\u0438 \u0445\u043e\u0440\u0430 \u0441\u0435 \u0440\u0430\u0436\u0434\u0430\u0442 \u0441\u0432\u043e\u0431\u043e\u0434\u043d\u0438 \u0438 \u0440\u0430\u0432\u043d\u0438 \u043f\u043e \u0434\u043e\u0441\u0442\u043e\u0439\u043d\u0441\u0442\u0432\u043e \u0438 \u043f\u0440\u0430\u0432\u0430",
     NULL, NULL},
    {"language", "language.keep=ru",
     "\u0412\u0441\u0438\u0447\u043a\u0438 \u0445\u043e\u0440\u0430 \u0441\u0435 \u0440\u0430\u0436\u0434\u0430\u0442 \u0441\u0432\u043e\u0431\u043e\u0434\u043d\u0438 \u0438 \u0440\u0430\u0432\u043d\u0438 \u043f\u043e \u0434\u043e\u0441\u0442\u043e\u0439\u043d\u0441\u0442\u0432\u043e \u0438 \u043f\u0440\u0430\u0432\u0430",
     "other", NULL},
    {"language", NULL, "12 34 56", "unsure", NULL},
};

static void known_texts(void **state)
{
    (void)state;
    int64_t failures = 0;
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        const filter_case *k = &cases[i];
        arena *a = NULL;
        filter_config c;
        filter_verdict v;
        const char *values[] = {k->value, NULL};
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        filter_run *r = open_run(a, &c, k->filter, values);
        const char *bytes = k->text;
        int64_t count = (int64_t)strlen(k->text);
        assert_int_equal(filter_run_apply(r, false, &bytes, &count, &v), ST_OK);
        const char *rule = v.filter != NULL ? v.filter->rules[v.rule] : NULL;
        const bool rule_fits =
            rule == NULL || k->rule == NULL ? rule == k->rule : strcmp(rule, k->rule) == 0;
        const char *wanted = k->made != NULL ? k->made : k->text;
        const bool text_fits = k->rule != NULL || (count == (int64_t)strlen(wanted) &&
                                                   memcmp(bytes, wanted, (size_t)count) == 0);
        if (!rule_fits || !text_fits) {
            print_error("case %lld (%s) \"%s\": rule %s, text \"%.*s\"\n", (long long)i, k->filter,
                        k->text, rule != NULL ? rule : "none", (int)count, bytes);
        }
        const bool changed_fits = k->rule != NULL || v.changed == (k->made != NULL);
        failures += !rule_fits || !text_fits || !changed_fits;
        filter_run_close(r);
        arena_destroy(a);
    }
    assert_int_equal(failures, 0);
}

// An evaluation set of one text and one line of JSON.
static void evaluation_sets(void **state)
{
    (void)state;
    arena *a = NULL;
    filter_config c;
    filter_verdict v;
    char path[] = "/tmp/filter_test_XXXXXX";
    const char *items =
        "{\"question\": \"Which of the \\\"seven\\\" ships left\\nthe old harbour on the first day of "
        "spring, and why?\", \"n\": 3}\nshort one\n";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(host_write_all(host_real(), path, items, (int64_t)strlen(items)), ST_OK);
    char value[128];
    assert_true(snprintf(value, sizeof(value), "decontaminate.files=%s", path) > 0);
    const char *values[] = {value, NULL};
    static const struct {
        const char *text;
        bool dropped;
    } texts[] = {
        {"He asked: which of the seven ships left the old harbour, on the FIRST day of spring?",
         true},
        {"which of the seven ships left the old harbour on the second day of spring", false},
        {"a short one", false},
        {"", false},
    };
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    filter_run *r = open_run(a, &c, "decontaminate", values);
    for (int64_t i = 0; i < COUNT_OF(texts); i++) {
        const char *bytes = texts[i].text;
        int64_t count = (int64_t)strlen(bytes);
        assert_int_equal(filter_run_apply(r, false, &bytes, &count, &v), ST_OK);
        assert_int_equal(v.filter != NULL, texts[i].dropped);
    }
    filter_run_close(r);
    arena_destroy(a);
    assert_int_equal(host_real()->api->path_remove(host_real(), path), ST_OK);
}

// Bytes that are likely to be the beginning or the end of something.
static int64_t random_text(uint64_t seed, char *out)
{
    static const char pieces[][8] = {"a",        " ",        "\n",   "@",  ".",        "1",
                                     "\xc3",     "\xe2\x80", "the ", "+4", "/*",       "4111",
                                     "\xf0\x9f", "\"",       "{",    "#",  "e\xcc\x81"};
    const uint32_t counter[4] = {(uint32_t)seed, 1, 2, 3}, key[2] = {4, 5};
    int64_t n = 0;
    for (uint32_t i = 0; i < 60; i++) {
        const uint32_t at[4] = {counter[0], i, 0, 0};
        const philox_words w = philox4x32_10(at, key);
        const char *piece = pieces[w.w[0] % COUNT_OF(pieces)];
        const int64_t length = (int64_t)strlen(piece);
        memcpy(out + n, piece, (size_t)length);
        n += length;
        if (w.w[1] % 40 == 0) break;
    }
    return n;
}

// A scorer of bits: one for each digit that a text begins with.
static status open_digits(void *context, const char *model, void **out)
{
    assert_string_equal(model, "own");
    *out = context;
    return ST_OK;
}

static status score_digits(void *opened, const char *bytes, int64_t count, double *bits,
                           bool *is_known)
{
    int64_t n = 0;
    assert_ptr_equal(opened, &data_filters);
    while (n < count && bytes[n] >= '0' && bytes[n] <= '9') n++;
    *bits = (double)n;
    *is_known = count > 1;
    return ST_OK;
}

static void close_digits(void *opened)
{
    assert_ptr_equal(opened, &data_filters);
}

static const filter_scorer digit_scorer = {.context = (void *)(uintptr_t)&data_filters,
                                           .open = open_digits,
                                           .score = score_digits,
                                           .close = close_digits};

static void scored_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rule; // -1: it stays
    } scored[] = {{"1", -1}, {"abc", 1}, {"12x", -1}, {"123456", 0}, {"12345678901234567890", 0}};
    static const char *const values[] = {"quality.model=own", "quality.max_bits=4",
                                         "quality.min_bits=1", "quality.bytes=16", NULL};
    arena *a = NULL;
    filter_config c;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    filter_run *r = open_run(a, &c, "quality", values);
    const char *bytes = "text";
    int64_t count = 4;
    filter_verdict v;
    assert_int_equal(filter_run_apply(r, false, &bytes, &count, &v), ST_UNSUPPORTED);
    c.quality.scorer = &digit_scorer;
    for (int64_t i = 0; i < COUNT_OF(scored); i++) {
        bytes = scored[i].text;
        count = (int64_t)strlen(bytes);
        assert_int_equal(filter_run_apply(r, false, &bytes, &count, &v), ST_OK);
        assert_int_equal(v.rule, scored[i].rule);
        bytes = scored[i].text;
        count = (int64_t)strlen(bytes);
        assert_int_equal(filter_run_apply(r, true, &bytes, &count, &v), ST_OK); // overruled
        assert_null(v.filter);
    }
    filter_run_close(r);
    arena_destroy(a);
}

static void random_texts(void **state)
{
    (void)state;
    static const char *const values[] = {"regex.drop=the the", "language.keep=en",
                                         "quality.model=own", NULL};
    for (int64_t f = 0; data_filters[f] != NULL; f++) {
        arena *a = NULL;
        filter_config c;
        if (strcmp(data_filters[f]->name, "decontaminate") == 0) continue;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        filter_run *r = open_run(a, &c, data_filters[f]->name, values);
        c.quality.scorer = &digit_scorer;
        for (uint64_t seed = 0; seed < 2000; seed++) {
            char body[600];
            filter_verdict first, second;
            const int64_t n = random_text(seed, body);
            char *exact = malloc((size_t)n + 1); // reads past the end are found
            assert_non_null(exact);
            memcpy(exact, body, (size_t)n);
            const char *bytes = exact;
            int64_t count = n;
            assert_int_equal(filter_run_apply(r, false, &bytes, &count, &first), ST_OK);
            const int64_t made = count;
            const uint64_t hash = hash64(bytes, count, 0);
            bytes = exact;
            count = n;
            assert_int_equal(filter_run_apply(r, false, &bytes, &count, &second), ST_OK);
            assert_ptr_equal(first.filter, second.filter);
            assert_int_equal(first.rule, second.rule);
            assert_int_equal(made, count);
            assert_true(hash == hash64(bytes, count, 0));
            free(exact);
        }
        filter_run_close(r);
        arena_destroy(a);
    }
}

static void lists_of_filters(void **state)
{
    (void)state;
    const filter_config c = {.length = {.min_chars = 0}};
    const char *unknown[] = {"lenght"}, *twice[] = {"length", "length"};
    const option_list names[] = {{.items = unknown, .count = 1}, {.items = twice, .count = 2}};
    filter_run *r = NULL;
    assert_int_equal(filter_run_open(host_real(), &c, &names[0], &r), ST_CONFIG_RANGE);
    assert_non_null(strstr(error_last()->text, "did you mean \"length\""));
    assert_int_equal(filter_run_open(host_real(), &c, &names[1], &r), ST_CONFIG_CONFLICT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_texts),      cmocka_unit_test(evaluation_sets),
        cmocka_unit_test(scored_texts),     cmocka_unit_test(random_texts),
        cmocka_unit_test(lists_of_filters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
