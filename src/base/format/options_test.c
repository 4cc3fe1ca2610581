// The option table: every kind reads, refuses and prints; printed values read back; documents.
#include "base/format/options.h"

#include "base/format/config.h"
#include "base/format/json.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct target {
    bool flag;
    int64_t count, size, bytes, time, wait;
    double rate, part, chance;
    const char *name, *path;
    int32_t color;
    option_list list, paths, ramp, share;
    option_range range;
} target;

#define AT(field) (int64_t) offsetof(target, field)
static const option rows[] = {
    {.key = "a.flag",
     .kind = OPTION_BOOL,
     .offset = AT(flag),
     .default_text = "false",
     .help = "f"},
    {.key = "a.count",
     .kind = OPTION_INT,
     .offset = AT(count),
     .default_text = "7",
     .min = 0,
     .max = OPTION_NO_MAX,
     .unit = "items",
     .help = "how many",
     .also = "number, amount"},
    {.key = "a.size",
     .kind = OPTION_INT,
     .offset = AT(size),
     .default_text = "all",
     .choices = "all",
     .word = -1,
     .min = 0,
     .max = 9,
     .help = "s"},
    {.key = "a.rate",
     .kind = OPTION_REAL,
     .offset = AT(rate),
     .default_text = "0.5",
     .min = -1e15,
     .max = 1e15,
     .help = "how fast",
     .also = "speed"},
    {.key = "a.part",
     .kind = OPTION_REAL,
     .offset = AT(part),
     .default_text = "0",
     .max = 1,
     .unit = "share",
     .help = "p"},
    {.key = "a.chance",
     .kind = OPTION_REAL,
     .offset = AT(chance),
     .default_text = "0",
     .max = 0.5,
     .help = "c"},
    {.key = "b.name", .kind = OPTION_TEXT, .offset = AT(name), .help = "a | bar"},
    {.key = "b.path", .kind = OPTION_PATH, .offset = AT(path), .choices = "auto", .help = "p"},
    {.key = "b.color",
     .kind = OPTION_CHOICE,
     .offset = AT(color),
     .default_text = "red",
     .choices = "red, green, blue",
     .help = "c"},
    {.key = "b.bytes", .kind = OPTION_BYTES, .offset = AT(bytes), .default_text = "0", .help = "b"},
    {.key = "b.time", .kind = OPTION_TIME, .offset = AT(time), .default_text = "0", .help = "t"},
    {.key = "b.wait",
     .kind = OPTION_TIME,
     .offset = AT(wait),
     .default_text = "1s",
     .unit = "seconds",
     .help = "w"},
    {.key = "c.list", .kind = OPTION_LIST, .offset = AT(list), .help = "l"},
    {.key = "c.paths", .kind = OPTION_PATHS, .offset = AT(paths), .help = "p"},
    {.key = "c.ramp", .kind = OPTION_RAMP, .offset = AT(ramp), .min = 1, .max = 1e6, .help = "r"},
    {.key = "c.share",
     .kind = OPTION_SHARE,
     .offset = AT(share),
     .min = 0,
     .max = 0.9,
     .help = "s"},
    {.key = "c.range", .kind = OPTION_RANGE, .offset = AT(range), .help = "r"},
};
static const option_table table = {.title = "Test", .rows = rows, .count = COUNT_OF(rows)};

static arena *new_arena(void)
{
    arena *a;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    return a;
}

static status set(arena *a, target *t, const char *key, const char *value)
{
    const option *o = option_find(&table, key);
    assert_non_null(o);
    return option_set(o, a, t, value, "here", "/folder");
}

// The config text of the value just set.
static const char *printed(arena *a, const target *t, const char *key)
{
    text out = {.a = a};
    assert_int_equal(option_print(option_find(&table, key), t, &out), ST_OK);
    return out.bytes;
}

static void values_are_read(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        // key, value, as printed
        {"a.flag", "yes", "true"},
        {"a.flag", "True", "true"},
        {"a.flag", "off", "false"},
        {"a.count", "4e6", "4000000"},
        {"a.count", "1_000", "1000"},
        {"a.count", "9223372036854775807", "9223372036854775807"},
        {"a.size", "3", "3"},
        {"a.size", "all", "all"},
        {"a.rate", "3e-4", "0.0003"},
        {"a.rate", ".5", "0.5"},
        {"a.rate", "1", "1"},
        {"a.rate", "1e-8", "1e-8"},
        {"a.part", "1%", "0.01"},
        {"a.part", "100%", "1"},
        {"a.part", "0.3", "0.3"},
        {"a.part", "yes", "1"},
        {"a.part", "False", "0"},
        {"a.chance", "12.5%", "0.125"},
        {"b.name", "no", "\"no\""},
        {"b.name", "gpt2-124m", "gpt2-124m"},
        {"b.name", "a: b # c", "\"a: b # c\""},
        {"b.name", "tab\tquote\"back\\", "\"tab\\x09quote\\\"back\\\\\""},
        {"b.path", "x/y", "/folder/x/y"},
        {"b.path", "./x", "/folder/x"},
        {"b.path", "/abs", "/abs"},
        {"b.path", ".", "/folder"},
        {"b.path", "../x", "/folder/../x"},
        {"b.path", "auto", "auto"},
        {"b.color", "blue", "blue"},
        {"b.bytes", "4GiB", "4GiB"},
        {"b.bytes", "1.5 GiB", "1536MiB"},
        {"b.bytes", "1000", "1000"},
        {"b.bytes", "2G", "1953125KiB"},
        {"b.bytes", "0", "0"},
        {"b.time", "90m", "90m"},
        {"b.time", "1h30m", "90m"},
        {"b.time", "1.5s", "1500ms"},
        {"b.time", "2d", "2d"},
        {"b.wait", "600", "10m"},
        {"b.wait", "0.25", "250ms"},
        {"b.wait", "3m", "3m"},
        {"c.list", "a, b ,c", "[a, b, c]"},
        {"c.list", "a\\, b", "[\"a, b\"]"},
        {"c.list", "", "[]"},
        {"c.paths", "x.txt", "/folder/x.txt"},
        {"c.paths", "x.txt=0.7,/y=3e-1", "[\"/folder/x.txt=0.7\", \"/y=3e-1\"]"},
        {"c.paths", "*.jsonl.gz", "\"/folder/*.jsonl.gz\""},
        {"c.ramp", "0=8, 100=16", "{0: 8, 100: 16}"},
        {"c.ramp", "0=8,1e3=1_6", "{0: 8, 1000: 16}"},
        {"c.share", "0.05", "0.05"},
        {"c.share", "v.txt", "/folder/v.txt"},
        {"c.range", "3:5", "\"3:5\""},
        {"c.range", "4", "\"4:4\""},
    };
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        arena *a = new_arena();
        target t;
        assert_int_equal(option_set_defaults(&table, a, &t), ST_OK);
        if (set(a, &t, cases[i][0], cases[i][1]) != ST_OK) fail_msg("%s", error_last()->text);
        assert_string_equal(printed(a, &t, cases[i][0]), cases[i][2]);
        arena_destroy(a);
    }
}

static void wrong_values_are_refused_and_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
        status st;
        const char *says;
    } cases[] = {
        {"a.flag", "maybe", ST_CONFIG_TYPE, "true or false"},
        {"a.flag", "", ST_CONFIG_TYPE, "true or false"},
        {"a.count", "1.5", ST_CONFIG_TYPE, "a whole number"},
        {"a.count", "", ST_CONFIG_TYPE, "a whole number"},
        {"a.count", "-1", ST_CONFIG_RANGE, "at least 0"},
        {"a.size", "-1", ST_CONFIG_RANGE, "0 to 9"}, // the word's value has no other name
        {"a.size", "al", ST_CONFIG_TYPE, "a whole number"},
        {"a.count", "99999999999999999999", ST_CONFIG_TYPE, "whole"},
        {"a.rate", "nan", ST_CONFIG_TYPE, "a number"},
        {"a.rate", "inf", ST_CONFIG_TYPE, "a number"},
        {"a.rate", "0x10", ST_CONFIG_TYPE, "a number"},
        {"a.rate", "-1e308", ST_CONFIG_RANGE, "-1e+15 to 1e+15"},
        {"a.rate", "1%", ST_CONFIG_TYPE, "a number"},
        {"a.part", "101%", ST_CONFIG_RANGE, "0 to 1"},
        {"a.part", "%", ST_CONFIG_TYPE, "a share"},
        {"a.part", "1%%", ST_CONFIG_TYPE, "a share"},
        {"a.part", "nan%", ST_CONFIG_TYPE, "a share"},
        {"a.chance", "60%", ST_CONFIG_RANGE, "0 to 0.5"},
        {"a.chance", "yes", ST_CONFIG_TYPE, "a number"},
        {"b.wait", "-5", ST_CONFIG_TYPE, "a number of seconds"},
        {"b.wait", "1e99", ST_CONFIG_TYPE, "a number of seconds"},
        {"b.path", "", ST_CONFIG_TYPE, "path"},
        {"b.color", "gren", ST_CONFIG_RANGE, "did you mean \"green\"?"},
        {"b.color", "Rod", ST_CONFIG_RANGE, "red, green, blue"},
        {"b.bytes", "4GB/s", ST_CONFIG_TYPE, "512MiB"},
        {"b.bytes", "-4", ST_CONFIG_TYPE, "512MiB"},
        {"b.bytes", "0.3B", ST_CONFIG_TYPE, "512MiB"},
        {"b.bytes", "99999999TiB", ST_CONFIG_TYPE, "512MiB"},
        {"b.time", "30", ST_CONFIG_TYPE, "30s"},
        {"b.time", "5 minutes", ST_CONFIG_TYPE, "30s"},
        {"b.time", "m", ST_CONFIG_TYPE, "30s"},
        {"c.list", "a,,b", ST_CONFIG_TYPE, "empty item"},
        {"c.list", "a,", ST_CONFIG_TYPE, "empty item"},
        {"c.paths", "x=0", ST_CONFIG_RANGE, "weight above 0"},
        {"c.paths", "x=-2", ST_CONFIG_RANGE, "weight above 0"},
        {"c.paths", "=2", ST_CONFIG_TYPE, "path"},
        {"c.ramp", "0=8,0=9", ST_CONFIG_TYPE, "ascending"},
        {"c.ramp", "8", ST_CONFIG_TYPE, "step=size"},
        {"c.ramp", "0=0", ST_CONFIG_RANGE, "1 to 1000000"},
        {"c.ramp", "-1=4", ST_CONFIG_TYPE, "ascending"},
        {"c.share", "0.95", ST_CONFIG_RANGE, "0 to 0.9"},
        {"c.range", "5:3", ST_CONFIG_TYPE, "10:20"},
        {"c.range", "0:3", ST_CONFIG_TYPE, "10:20"},
        {"c.range", "1:2:3", ST_CONFIG_TYPE, "10:20"},
    };
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        arena *a = new_arena();
        target t, before;
        assert_int_equal(option_set_defaults(&table, a, &t), ST_OK);
        before = t;
        const status st = set(a, &t, cases[i].key, cases[i].value);
        if (st != cases[i].st) fail_msg("%s = %s gave %d", cases[i].key, cases[i].value, (int)st);
        assert_non_null(strstr(error_last()->text, "here  "));
        assert_non_null(strstr(error_last()->text, cases[i].key));
        if (strstr(error_last()->text, cases[i].says) == NULL) fail_msg("%s", error_last()->text);
        assert_true(option_equal(option_find(&table, cases[i].key), &t, &before));
        arena_destroy(a);
    }
}

// A text of 0 to 11 characters, often ones that YAML or lists interpret.
static const char *random_text(uint64_t trial, uint64_t stream, char buffer[64])
{
    static const char *const parts[] = {"a",
                                        "B",
                                        "0",
                                        ",",
                                        "\\",
                                        " ",
                                        "=",
                                        ":",
                                        "#",
                                        "\"",
                                        "'",
                                        "{",
                                        "]",
                                        "-",
                                        "?",
                                        "\n",
                                        "\t",
                                        "\x7f",
                                        "\xC2\x85",
                                        "&",
                                        "\xE2\x80\xA8",
                                        "\xEF\xBB\xBF",
                                        "\xF0\x9F\x98\x80",
                                        "~",
                                        "null",
                                        "*",
                                        "!",
                                        "|",
                                        "%",
                                        "@",
                                        "`",
                                        "1e3",
                                        "."};
    const uint32_t count = rng_word(1, stream, trial * 100) % 12;
    buffer[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t pick = rng_word(1, stream, trial * 100 + 1 + i) % COUNT_OF(parts);
        const size_t length = strlen(buffer);
        (void)snprintf(buffer + length, 64 - length, "%s", parts[pick]);
    }
    return buffer;
}

static void random_target(arena *a, uint64_t trial, target *t)
{
    char buffer[64];
    char *copy;
    assert_int_equal(option_set_defaults(&table, a, t), ST_OK);
    assert_int_equal(arena_strdup(a, random_text(trial, 1, buffer), &copy), ST_OK);
    t->name = copy;
    t->flag = rng_word(1, 2, trial) % 2 == 1;
    t->count = (int64_t)((uint64_t)rng_word(1, 3, trial) << 31 | rng_word(1, 4, trial));
    t->bytes = (int64_t)rng_word(1, 5, trial) << (rng_word(1, 6, trial) % 20);
    t->time = (int64_t)rng_word(1, 7, trial) * ((int64_t[]){1, 1000, 60000000})[trial % 3];
    const uint64_t bits = (uint64_t)rng_word(1, 8, trial) << 32 | rng_word(1, 9, trial);
    memcpy(&t->rate, &bits, sizeof(bits));
    if (!(t->rate >= -1e15 && t->rate <= 1e15)) t->rate = 1.0 / 3.0;
    t->color = (int32_t)(trial % 3);
    t->range = (option_range){.begin = (int64_t)(trial % 5), .end = (int64_t)(trial % 5 + 3)};
    if (t->range.begin == 0) t->range.end = 0;
    text list = {.a = a};
    for (uint64_t i = 0; i < trial % 4; i++) {
        const char *item = random_text(trial * 4 + i, 10, buffer);
        if (*item == '\0') item = "x";
        assert_int_equal(option_add_item(&list, item, (int64_t)strlen(item)), ST_OK);
    }
    if (list.bytes == NULL) return;
    if (set(a, t, "c.list", list.bytes) != ST_OK) fail_msg("%s", error_last()->text);
    // Paths refuse some of these; an accepted one must read back too.
    (void)set(a, t, "c.paths", list.bytes);
}

static void what_is_printed_reads_back(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 400; trial++) {
        arena *a = new_arena();
        target t, again;
        text yaml = {.a = a};
        config *c;
        random_target(a, trial, &t);
        for (int64_t i = 0; i < table.count; i++) {
            assert_int_equal(text_add(&yaml, "%s: ", rows[i].key), ST_OK);
            assert_int_equal(option_print(&rows[i], &t, &yaml), ST_OK);
            assert_int_equal(text_add(&yaml, "\n"), ST_OK);
        }
        const status st = config_parse(
            a, &table,
            &(const config_input){
                .yaml = yaml.bytes, .bytes = yaml.length, .name = "t", .folder = "/other"},
            &again, &c);
        if (st != ST_OK) fail_msg("%s\n%s", error_last()->text, yaml.bytes);
        for (int64_t i = 0; i < table.count; i++) {
            if (!option_equal(&rows[i], &t, &again)) fail_msg("%s in\n%s", rows[i].key, yaml.bytes);
        }
        arena_destroy(a);
    }
}

static void the_meant_key_is_found(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"a.cuont", "a.count"},      {"a.numbr", "a.count"}, {"b.colour", "b.color"},
        {"wrong.amount", "a.count"}, {"speed", "a.rate"},    {"c.rmap", "c.ramp"},
    };
    arena *a = new_arena();
    const char *near;
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(option_nearest(&table, a, cases[i][0], &near), ST_OK);
        assert_non_null(near);
        assert_string_equal(near, cases[i][1]);
    }
    assert_int_equal(option_nearest(&table, a, "zzzzzzzzzzzz", &near), ST_OK);
    assert_null(near);
    assert_true(option_is_heading(&table, "a"));
    assert_false(option_is_heading(&table, "a.count"));
    arena_destroy(a);
}

static void documents_hold_every_row(void **state)
{
    (void)state;
    arena *a = new_arena();
    text help = {.a = a}, man = {.a = a}, markdown = {.a = a}, words = {.a = a};
    assert_int_equal(option_print_help(&table, 60, &help), ST_OK);
    assert_int_equal(option_print_man(&table, &man), ST_OK);
    assert_int_equal(option_print_markdown(&table, &markdown), ST_OK);
    assert_int_equal(option_print_words(&table, &words), ST_OK);
    for (int64_t i = 0; i < table.count; i++) {
        assert_non_null(strstr(help.bytes, rows[i].key));
        assert_non_null(strstr(man.bytes, rows[i].key));
        assert_non_null(strstr(markdown.bytes, rows[i].key));
        assert_non_null(strstr(words.bytes, rows[i].key));
    }
    assert_non_null(strstr(help.bytes, "how many (items; default 7; at least 0)"));
    assert_non_null(strstr(markdown.bytes, "a \\| bar"));
    assert_non_null(strstr(words.bytes, "b.color=green\n"));
    assert_non_null(strstr(words.bytes, "a.size=all\n"));
    for (const char *line = help.bytes; *line != '\0'; line = strchr(line, '\n') + 1) {
        assert_true(strchr(line, '\n') - line <= 60);
    }
    arena_destroy(a);
}

static void the_schema_is_json_with_headings(void **state)
{
    (void)state;
    arena *a = new_arena();
    text schema = {.a = a};
    json *root;
    assert_int_equal(option_print_json_schema(&table, &schema), ST_OK);
    if (json_parse(schema.bytes, schema.length, "schema", &root) != ST_OK) {
        fail_msg("%s\n%s", error_last()->text, schema.bytes);
    }
    const json *group = json_at(json_get(root, "allOf"), 0);
    assert_non_null(json_get(json_get(group, "properties"), "a"));
    const json *b = json_get(json_get(json_get(group, "properties"), "b"), "properties");
    assert_int_equal(json_count(b), 6);
    assert_int_equal(json_count(json_get(json_get(b, "color"), "enum")), 3);
    json_free(root);
    arena_destroy(a);
}

static void hostile_values_stay_readable_in_errors(void **state)
{
    (void)state;
    arena *a = new_arena();
    target t;
    char *long_value;
    assert_int_equal(option_set_defaults(&table, a, &t), ST_OK);
    assert_int_equal(arena_alloc(a, 200001, (void **)&long_value), ST_OK);
    for (int i = 0; i < 200000; i += 2) {
        long_value[i] = '\xC3';
        long_value[i + 1] = '\xA9';
    }
    assert_int_equal(set(a, &t, "a.count", long_value), ST_CONFIG_TYPE);
    const char *message = error_last()->text;
    assert_true(strlen(message) < 200);
    assert_true(text_is_utf8(message, (int64_t)strlen(message)));
    assert_int_equal(set(a, &t, "c.list", long_value), ST_CONFIG_RANGE);
    assert_int_equal(set(a, &t, "a.count", "\x1b[31m\n7"), ST_CONFIG_TYPE);
    assert_null(strchr(error_last()->text, '\x1b'));
    assert_null(strchr(error_last()->text, '\n'));
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read),
        cmocka_unit_test(wrong_values_are_refused_and_change_nothing),
        cmocka_unit_test(what_is_printed_reads_back),
        cmocka_unit_test(the_meant_key_is_found),
        cmocka_unit_test(documents_hold_every_row),
        cmocka_unit_test(the_schema_is_json_with_headings),
        cmocka_unit_test(hostile_values_stay_readable_in_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
