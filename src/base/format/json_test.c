// JSON: input that must be read, input that must be refused and where, and allocation failures at
// every point.
#include "base/fault.h"
#include "base/format/json.h"
#include "fixtures/base/test_paths.h"

#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static json *parse(const char *text)
{
    json *root = NULL;
    if (json_parse(text, (int64_t)strlen(text), "t", &root) != ST_OK) {
        fail_msg("%s: %s", text, error_last()->text);
    }
    return root;
}

static void values(void **state)
{
    (void)state;
    json *root = parse(" {\"n\":null,\"t\":true,\"f\":false,\"i\":-12,\"r\":1.5e1,\"s\":\"x\","
                       "\"l\":[1,[],{}],\"m\":{\"a\":{}}}\r\n\t ");
    assert_int_equal(json_kind_of(root), JSON_MAP);
    assert_int_equal(json_count(root), 8);
    assert_int_equal(json_kind_of(json_get(root, "n")), JSON_NULL_VALUE);
    assert_true(json_bool(json_get(root, "t"), false));
    assert_false(json_bool(json_get(root, "f"), true));
    assert_int_equal(json_int(json_get(root, "i"), 0), -12);
    assert_true(json_real(json_get(root, "i"), 0) == -12);
    assert_int_equal(json_kind_of(json_get(root, "r")), JSON_REAL);
    assert_int_equal(json_int(json_get(root, "r"), 0), 15); // a whole real
    assert_string_equal(json_text(json_get(root, "s"), ""), "x");
    const json *list = json_get(root, "l");
    assert_int_equal(json_count(list), 3);
    assert_int_equal(json_int(json_at(list, 0), 0), 1);
    assert_int_equal(json_kind_of(json_at(list, 1)), JSON_LIST);
    assert_null(json_at(list, 3));
    assert_null(json_at(list, -1));
    assert_null(json_get(list, "a"));
    assert_null(json_get(root, "absent"));
    assert_null(json_at(root, 0));
    // Every query of a NULL value gives the default.
    assert_int_equal(json_kind_of(NULL), JSON_NONE);
    assert_int_equal(json_count(NULL), 0);
    assert_int_equal(json_int(NULL, 7), 7);
    assert_string_equal(json_text(json_get(root, "i"), "no"), "no");
    assert_int_equal(json_text_bytes(list), 0);
    json_free(root);
    json_free(NULL);
}

static void order_is_the_files(void **state)
{
    (void)state;
    json *root = parse("{\"z\":1,\"a\":2,\"m\":3,\"\":4}");
    const char *const keys[] = {"z", "a", "m", ""};
    for (int64_t i = 0; i < 4; i++) {
        const json *value;
        assert_string_equal(json_key_at(root, i, &value), keys[i]);
        assert_int_equal(json_int(value, 0), i + 1);
        assert_ptr_equal(json_get(root, keys[i]), value);
    }
    assert_null(json_key_at(root, 4, NULL));
    assert_null(json_key_at(root, -1, NULL));
    json_free(root);
}

static void scalars_stand_alone(void **state)
{
    (void)state;
    const struct {
        const char *text;
        json_kind kind;
        double value;
    } cases[] = {
        {"0", JSON_INT, 0},
        {"-0", JSON_INT, 0},
        {"9223372036854775807", JSON_INT, 0x1p63},
        {"9223372036854775808", JSON_REAL, 0x1p63},
        {"-9223372036854775808", JSON_INT, -0x1p63},
        {"1000000000000000019884624838656", JSON_REAL, 1000000000000000019884624838656.0},
        {"1e5", JSON_REAL, 1e5},
        {"1E-5", JSON_REAL, 1e-5},
        {"-1.25e+2", JSON_REAL, -125},
        {"1e-400", JSON_REAL, 0},
    };
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        json *root = parse(cases[i].text);
        assert_int_equal(json_kind_of(root), cases[i].kind);
        assert_true(json_real(root, 1) == cases[i].value);
        json_free(root);
    }
    json *root = parse("1e300");
    assert_int_equal(json_int(root, 7), 7); // does not fit
    json_free(root);
}

static void texts_are_decoded(void **state)
{
    (void)state;
    const struct {
        const char *in, *out;
        int64_t bytes;
    } cases[] = {
        {"\"\"", "", 0},
        {"\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "a\"\\/\b\f\n\r\t", 9},
        {"\"\\u0041\\u00e9\\u20AC\"", "A\xC3\xA9\xE2\x82\xAC", 6},
        {"\"\\ud83d\\ude00\"", "\xF0\x9F\x98\x80", 4},
        {"\"\\udbff\\udfff\"", "\xF4\x8F\xBF\xBF", 4},
        {"\"a\\u0000b\"", "a\0b", 3},
        {"\"\xE2\x80\xA8\x7f\"", "\xE2\x80\xA8\x7f", 4},
    };
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        json *root = parse(cases[i].in);
        assert_int_equal(json_text_bytes(root), cases[i].bytes);
        assert_memory_equal(json_text(root, ""), cases[i].out, (size_t)cases[i].bytes + 1);
        json_free(root);
    }
}

static const char *const bad_cases[] = {
    "",
    " ",
    "{",
    "[",
    "}",
    "]",
    "\"",
    "\"\\",
    "\"\\\"",
    "nul",
    "nulll",
    "True",
    "NaN",
    "Infinity",
    "-",
    "-a",
    "+1",
    "01",
    "-01",
    "1.",
    ".5",
    "1.e5",
    "1e",
    "1e+",
    "0x1",
    "1e400",
    "-1e999",
    "1 2",
    "[1,]",
    "[,1]",
    "[1 2]",
    "[1",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{,}",
    "{a:1}",
    "{\"a\":1 \"b\":2}",
    "{1:2}",
    "{\"a\":1]",
    "[1}",
    "\"\x01\"",
    "\"\n\"",
    "\"\\x\"",
    "\"\\u12\"",
    "\"\\u12g4\"",
    "\"\\ud800\"",
    "\"\\ud800x\"",
    "\"\\ud800\\n\"",
    "\"\\ud800\\u0041\"",
    "\"\\udc00\"",
    "\"\xFF\"",
    "\"\xC3\"",
    "\"\xED\xA0\x80\"",
    "\"\xC0\x80\"",
    "{\"a\":1,\"a\":2}",
    "{\"a\":1,\"\\u0061\":2}",
    "{\"\\u0000\":1}",
    "//x\n1",
    "/**/1",
    "'a'",
    "[1]x",
    "\xEF\xBB\xBF{}",
    "\"\\ud83d\\ude0\"",
};

static void bad_input_is_refused(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(bad_cases); i++) {
        json *root = NULL;
        if (json_parse(bad_cases[i], (int64_t)strlen(bad_cases[i]), "t", &root) != ST_DAMAGED) {
            fail_msg("\"%s\" was read", bad_cases[i]);
        }
        assert_null(root);
        assert_memory_equal(error_last()->text, "t:", 2);
    }
    // A NUL byte is as invalid as any other byte outside JSON.
    json *root;
    assert_int_equal(json_parse("1\0", 2, "t", &root), ST_DAMAGED);
    assert_int_equal(json_parse("\0", 1, "t", &root), ST_DAMAGED);
    // The error names the place.
    assert_int_equal(json_parse("{\n  \"a\": 1,\n  b\n}", 17, "c.json", &root), ST_DAMAGED);
    assert_string_equal(error_last()->text, "c.json:3:3: a key in quotes expected, got 'b'");
}

// The parser must not read bytes behind the end: the copy is exact, so the sanitizer would see it.
static void every_prefix_is_safe(void **state)
{
    (void)state;
    const char text[] =
        "{\"key\\u00e9\":[1,-2.5e-3,true,null,\"\\ud83d\\ude00\"],\"b\":{\"c\":\"d\"}}";
    const int64_t count = (int64_t)strlen(text);
    for (int64_t n = 0; n <= count; n++) {
        char *copy = malloc((size_t)max_i64(n, 1));
        assert_non_null(copy);
        memcpy(copy, text, (size_t)n);
        json *root = NULL;
        const status st = json_parse(copy, n, "t", &root);
        assert_int_equal(st == ST_OK, n == count);
        json_free(root);
        free(copy);
    }
}

static void depth_is_limited(void **state)
{
    (void)state;
    char text[300];
    for (int depth = 1; depth < 130; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        json *root = NULL;
        const status st = json_parse(text, 2 * depth, "t", &root);
        assert_int_equal(st == ST_OK, depth <= 64);
        json_free(root);
    }
    static char bomb[1000000];
    memset(bomb, '[', sizeof(bomb));
    json *root;
    assert_int_equal(json_parse(bomb, sizeof(bomb), "t", &root), ST_DAMAGED);
}

static void large_maps_are_found(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    static char text[COUNT * 20];
    int64_t length = 0;
    text[length++] = '{';
    for (int i = 0; i < COUNT; i++) {
        length +=
            snprintf(text + length, 20, "%s\"k%d\":%d", i > 0 ? "," : "", i * 7919 % COUNT, i);
    }
    text[length++] = '}';
    json *root;
    assert_int_equal(json_parse(text, length, "t", &root), ST_OK);
    assert_int_equal(json_count(root), COUNT);
    for (int64_t i = 0; i < COUNT; i++) {
        const json *value;
        const char *key = json_key_at(root, i, &value);
        assert_int_equal(json_int(value, -1), i);
        assert_ptr_equal(json_get(root, key), value);
    }
    json_free(root);
}

static void files_are_limited(void **state)
{
    (void)state;
    char folder[64], path[128];
    json *root;
    assert_non_null(test_scratch(folder));
    snprintf(path, sizeof(path), "%s/a.json", folder);
    assert_int_equal(host_write_all(host_real(), path, "[1,2]", 5), ST_OK);
    assert_int_equal(json_read(host_real(), path, 4, &root), ST_DAMAGED);
    assert_int_equal(json_read(host_real(), path, 5, &root), ST_OK);
    assert_int_equal(json_count(root), 2);
    json_free(root);
    assert_int_equal(host_write_all(host_real(), path, "[1,2", 4), ST_OK);
    assert_int_equal(json_read(host_real(), path, 5, &root), ST_DAMAGED);
    assert_non_null(strstr(error_last()->text, "a.json:1:5: "));
    test_scratch_remove(folder);
}

static void no_memory_is_a_status(void **state)
{
    (void)state;
    const char text[] = "{\"a\":[1,2,{\"b\":\"c\"}],\"d\":\"e\"}";
    for (int hit = 1;; hit++) {
        char plan[32];
        json *root = NULL;
        snprintf(plan, sizeof(plan), "arena.alloc=%d", hit);
        assert_int_equal(fault_arm(plan), ST_OK);
        const status st = json_parse(text, (int64_t)strlen(text), "t", &root);
        assert_int_equal(fault_arm(NULL), ST_OK);
        json_free(root);
        if (st == ST_OK) {
            assert_true(hit > 1);
            return;
        }
        assert_int_equal(st, ST_NO_MEMORY);
    }
}

static int64_t bytes_held(void)
{
    const struct mallinfo2 m = mallinfo2(); // zero under a sanitizer
    return (int64_t)(m.uordblks + m.hblkhd);
}

// The inputs that needed the most memory: once 40 times their size, for a list of digits.
static void memory_is_four_times_the_input(void **state)
{
    (void)state;
    static const char *const pieces[] = {"1",
                                         "[]",
                                         "{}",
                                         "\"\"",
                                         "\"a\"",
                                         "[1]",
                                         "[[]]",
                                         "{\"\":1}",
                                         "1.5",
                                         "{\"a\":{}}",
                                         "-1",
                                         "1e9",
                                         "12",
                                         "[{}]",
                                         "0.1",
                                         "\"\\u0000\"",
                                         "99999999999999999999",
                                         "999999999999999999",
                                         "null",
                                         "[1,2]",
                                         "true",
                                         "{\"a\":[]}",
                                         "{\"a\":1,\"b\":2,\"c\":3}",
                                         "[\"\"]"};
    enum { TIMES = 100000 };
    char *text = malloc(TIMES * 32 + 2);
    assert_non_null(text);
    for (int64_t i = 0; i < COUNT_OF(pieces); i++) {
        const size_t length = strlen(pieces[i]);
        char *at = text;
        *at++ = '[';
        for (int64_t k = 0; k < TIMES; k++) {
            memcpy(at, pieces[i], length);
            at += length;
            *at++ = k == TIMES - 1 ? ']' : ',';
        }
        const int64_t before = bytes_held(), count = at - text;
        json *root = NULL;
        assert_int_equal(json_parse(text, count, "t", &root), ST_OK);
        const int64_t held = bytes_held() - before;
        assert_int_equal(json_count(root), TIMES);
        assert_int_equal(json_kind_of(json_at(root, TIMES - 1)), json_kind_of(json_at(root, 0)));
        if (held > 4 * count + 32768) {
            fail_msg("%s: %lld bytes for %lld", pieces[i], (long long)held, (long long)count);
        }
        json_free(root);
    }
    free(text);
}

static int64_t walk(const json *value)
{
    int64_t sum = json_kind_of(value) + json_int(value, 0) % 1000 + json_text_bytes(value);
    for (int64_t i = 0; i < json_count(value); i++) {
        const json *member = json_at(value, i);
        if (json_kind_of(value) == JSON_MAP) {
            const char *key = json_key_at(value, i, &member);
            assert_ptr_equal(json_get(value, key), member);
        }
        sum += (i % 7 + 1) * walk(member);
    }
    return sum;
}

// Lists and maps of all sizes around those where the count is stored elsewhere, nested so that open
// ones of several sizes stack up.
static void sizes_of_lists_and_maps(void **state)
{
    (void)state;
    static const int sizes[] = {0, 1, 2, 3, 5, 8190, 8191, 8192, 20000};
    char *text = malloc(1 << 20);
    assert_non_null(text);
    for (int64_t i = 0; i < COUNT_OF(sizes); i++) {
        for (int is_map = 0; is_map < 2; is_map++) {
            char *at = text + snprintf(text, 64, "[1,{\"k\":\"x\",\"l\":%c", is_map ? '{' : '[');
            for (int k = 0; k < sizes[i]; k++) {
                if (k > 0) *at++ = ',';
                at += is_map ? snprintf(at, 64, "\"%x\":[%d]", k * 7919 % 20011, k)
                             : snprintf(at, 64, "%d", k);
            }
            at += snprintf(at, 96, "%c,\"m\":-5},9223372036854775807,-9223372036854775808]",
                           is_map ? '}' : ']');
            json *root = NULL;
            assert_int_equal(json_parse(text, at - text, "t", &root), ST_OK);
            assert_int_equal(json_count(root), 4);
            assert_true(json_int(json_at(root, 2), 0) == INT64_MAX);
            assert_true(json_int(json_at(root, 3), 0) == INT64_MIN);
            const json *map = json_at(root, 1), *inner = json_get(map, "l");
            assert_int_equal(json_int(json_get(map, "m"), 0), -5);
            assert_string_equal(json_text(json_get(map, "k"), ""), "x");
            assert_int_equal(json_count(inner), sizes[i]);
            for (int k = 0; k < sizes[i]; k++) {
                char key[16];
                const json *value = json_at(inner, k);
                snprintf(key, sizeof(key), "%x", k * 7919 % 20011);
                if (is_map) value = json_at(json_get(inner, key), 0);
                assert_int_equal(json_int(value, -1), k);
            }
            assert_true(walk(root) != 0);
            json_free(root);
        }
    }
    free(text);
}

// Members that are not asked for may hold what Python writes; those that are must be right.
static void test_members(void **state)
{
    (void)state;
    static const char *const keys[] = {"text", "label"};
    static const char *const good[] = {
        "{\"text\":\"a\",\"x\":NaN}",
        "{\"x\":-Infinity,\"y\":Infinity,\"text\":\"a\"}",
        "{\"m\":{\"a\":1,\"a\":2},\"text\":\"a\"}",
        "{\"x\":1e400,\"text\":\"a\"}",
        "{\"x\":\"\\ud83d \xff\",\"text\":\"a\"}",
        " { \"y\" : \"b\" , \"x\" : [ { } , [ ] , [1,{\"k\":[2]}] ] , \"text\" : \"a\" } ",
        "{\"te\\u0078t\":\"a\"}",
    };
    static const char *const bad[] = {
        "{\"text\":\"a\",\"x\":nan}",
        "{\"text\":\"a\",\"x\":[1}",
        "{\"text\":\"a\"",
        "{\"text\":\"a\"} x",
        "{\"text\":\"a\",}",
        "{\"text\":\"a\" \"b\":1}",
        "{\"text\":\"a\",\"x\":[1,]}",
        "{\"text\":\"a\",\"x\":1.}",
        "{\"text\":\"\\ud83d\"}",
        "{\"text\":\"\xff\"}",
        "{\"text\":\"a\",\"x\":\"b}",
        "{text:\"a\"}",
        "{\"text\":\"a\",\"text\":\"b\"}",
    };
    json *found[2];
    for (int64_t i = 0; i < COUNT_OF(good); i++) {
        const status st =
            json_parse_members(good[i], (int64_t)strlen(good[i]), "w", 7, keys, 2, found);
        if (st != ST_OK) fail_msg("%s: %s", good[i], error_last()->text);
        assert_string_equal(json_text(found[0], ""), "a");
        assert_null(found[1]);
        json_free(found[0]);
    }
    for (int64_t i = 0; i < COUNT_OF(bad); i++) {
        error_clear();
        if (json_parse_members(bad[i], (int64_t)strlen(bad[i]), "w", 7, keys, 2, found) == ST_OK) {
            fail_msg("%s was taken", bad[i]);
        }
        assert_non_null(strstr(error_last()->text, "w:7:"));
    }
    char deep[4096];
    for (int levels = 1023; levels <= 1024; levels++) {
        const int n = snprintf(deep, sizeof(deep), "{\"text\":\"a\",\"x\":");
        memset(deep + n, '[', (size_t)levels + 1);
        memset(deep + n + levels + 1, ']', (size_t)levels + 1);
        deep[n + 2 * levels + 2] = '}';
        const status st = json_parse_members(deep, n + 2 * levels + 3, "w", 1, keys, 2, found);
        assert_int_equal(st, levels == 1023 ? ST_OK : ST_DAMAGED);
        if (st == ST_OK) json_free(found[0]);
    }
    // Another value than an object has no members; NaN counts as null.
    assert_int_equal(json_parse_members("[1]", 3, "w", 1, keys, 2, found), ST_OK);
    assert_null(found[0]);
    assert_int_equal(json_parse_members("{\"text\":NaN}", 12, "w", 1, keys, 1, found), ST_OK);
    assert_int_equal(json_kind_of(found[0]), JSON_NULL_VALUE);
    json_free(found[0]);
}

// The message of a lone surrogate names the place and byte where the other half is missing.
static void test_place_of_lone_surrogate(void **state)
{
    (void)state;
    json *v = NULL;
    assert_int_equal(json_parse("[\"\\ud83d tail\"]", 15, "w", &v), ST_DAMAGED);
    assert_non_null(strstr(error_last()->text, "w:1:9: a low surrogate"));
    assert_non_null(strstr(error_last()->text, "got ' '"));
    assert_int_equal(json_parse("[\"\\udc00\"]", 10, "w", &v), ST_DAMAGED);
    assert_non_null(strstr(error_last()->text, "w:1:3: a high surrogate"));
    assert_int_equal(json_parse("[\"\\u12g4\"]", 10, "w", &v), ST_DAMAGED);
    assert_non_null(strstr(error_last()->text, "w:1:7: four hexadecimal"));
    assert_non_null(strstr(error_last()->text, "got 'g'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_place_of_lone_surrogate),
        cmocka_unit_test(values),
        cmocka_unit_test(order_is_the_files),
        cmocka_unit_test(scalars_stand_alone),
        cmocka_unit_test(texts_are_decoded),
        cmocka_unit_test(bad_input_is_refused),
        cmocka_unit_test(every_prefix_is_safe),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(large_maps_are_found),
        cmocka_unit_test(files_are_limited),
        cmocka_unit_test(no_memory_is_a_status),
        cmocka_unit_test(memory_is_four_times_the_input),
        cmocka_unit_test(sizes_of_lists_and_maps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
