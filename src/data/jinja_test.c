// Templates: small ones with the text that the reference renders, refusals with their places, and
// the reference cases of published kinds of templates.
#include "data/jinja.h"

#include "base/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: %s\n%s\n", __FILE__, __LINE__, #condition, message()); \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

static const char *message(void)
{
    return error_last()->text;
}

static status render(arena *a, const char *source, int64_t bytes, const json *values,
                     jinja_result *out)
{
    jinja_template *t = NULL;
    jinja_variable variables[16];
    jinja_context c = {.variables = variables, .unix_s = 1700000000};
    for (int64_t i = 0; i < json_count(values) && i < COUNT_OF(variables); i++) {
        const json *v = NULL;
        const char *name = json_key_at(values, i, &v);
        variables[c.variable_count++] = (jinja_variable){.name = name, .value = v, .string = NULL};
    }
    TRY(jinja_parse(a, source, bytes, "t", &t));
    return jinja_render(t, a, &c, out);
}

typedef struct small_case {
    const char *source, *values, *expected; // expected: what is printed, or the error after "!"
} small_case;

static const small_case cases[] = {
    {"a{{ 1 }}b\n", "{}", "a1b"},
    {"a\n\n", "{}", "a\n"},
    {"{% if false %}{{ 1|nothing }}{% endif %}a", "{}", "a"},
    {"{% if true %}{{ 1|nothing }}{% endif %}a", "{}", "!the filter nothing is not supported"},
    {"{{ 1|nothing if false else 2 }}", "{}", "2"},
    {"{% if false %}{{ 1 is nothing }}{% endif %}a", "{}", "a"},
    {"{% if false %}{% for i in [1] %}{{ i|nothing }}{% endfor %}{% endif %}", "{}",
     "!the filter nothing is not supported"},
    {"{% if false %}{% for i in 1|nothing %}{{ i }}{% endfor %}{% endif %}b", "{}", "b"},
    {"{% if true %}\nx\n{% endif %}\ny", "{}", "x\ny"},
    {"  {% if true %}x{% endif %}", "{}", "x"},
    {"z  {% if true %}x{% endif %}", "{}", "z  x"},
    {"  {%+ if true %}x{% endif %}", "{}", "  x"},
    {"a \n {%- if true -%} \n b \n{% endif %}", "{}", "ab \n"},
    {"{# no #}\nx", "{}", "x"},
    {"{% raw %}{{ x }}{% endraw %}", "{}", "{{ x }}"},
    {"{{ '\\n\\t\\x41\\u00e9\\q' }}", "{}", "\n\tA\xc3\xa9\\q"},
    {"{{ \"a\" 'b' }}", "{}", "ab"},
    {"{{ 1 + 2 * 3 - 4 // 3 % 2 }}", "{}", "6"},
    {"{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }}", "{}", "-4 2 3.5 1024"},
    {"{{ 1e16 }} {{ 1e-5 }} {{ 0.1 }} {{ 3.0 }} {{ 123456789.25 }}", "{}",
     "1e+16 1e-05 0.1 3.0 123456789.25"},
    {"{{ 'a' ~ 1 ~ none ~ true }}", "{}", "a1NoneTrue"},
    {"{{ [1, 'a', none, {'k': 2.5}, (1,)] }}", "{}", "[1, 'a', None, {'k': 2.5}, (1,)]"},
    {"{{ \"it's\" | list | length }} {{ [\"it's\"] }}", "{}", "4 [\"it's\"]"},
    {"{{ 1 < 2 < 3 and not 3 in [1, 2] and 4 not in [1] }}", "{}", "True"},
    {"{{ 'x' if false }}|{{ 'x' if false else 'y' }}", "{}", "|y"},
    {"{{ a.b.c }} {{ a['b'] }} {{ a.items() | list }}", "{\"a\": {\"b\": {\"c\": 1}}}",
     "1 {'c': 1} [('b', {'c': 1})]"},
    {"{{ nothing }}|{{ nothing is defined }}|{{ a.x is undefined }}", "{\"a\": {}}", "|False|True"},
    {"{% for x in [1,2,3] %}{{ loop.index }}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}",
     "{}", "11,22,33"},
    {"{% for x in [] %}x{% else %}none{% endfor %}", "{}", "none"},
    {"{% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}{% endfor %}", "{}", "a=1"},
    {"{% for x in range(5) if x % 2 %}{{ x }}{{ loop.length }}{% endfor %}", "{}", "1232"},
    {"{% for x in range(9) %}{% if x == 1 %}{% continue %}{% endif %}{% if x > 3 %}{% break %}"
     "{% endif %}{{ x }}{% endfor %}",
     "{}", "023"},
    {"{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}", "{}", "1"},
    {"{% set n = namespace(x=1) %}{% for i in [1] %}{% set n.x = 2 %}{% endfor %}{{ n.x }}", "{}",
     "2"},
    {"{% set x %}a{{ 1 }}{% endset %}{{ x | upper }}", "{}", "A1"},
    {"{% set a, b = 1, 2 %}{{ a + b }}", "{}", "3"},
    {"{% macro m(a, b='x') %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(2, b='y') }}", "{}",
     "1x2y"},
    {"{% filter upper %}ab{{ 'c' }}{% endfilter %}", "{}", "ABC"},
    {"{{ 'abcde'[1:3] }}{{ 'abcde'[::-1] }}{{ [1,2,3][-1] }}{{ [1,2,3][:-1] }}", "{}",
     "bcedcba3[1, 2]"},
    {"{{ ' a b '.strip() }}|{{ 'a,b'.split(',') }}|{{ 'a b  c'.split() }}", "{}",
     "a b|['a', 'b']|['a', 'b', 'c']"},
    {"{{ 'x</think>y'.split('</think>')[-1].lstrip('\\n') }}", "{}", "y"},
    {"{{ 'abc'.startswith('a') }} {{ 'abc'.endswith(('x', 'c')) }}", "{}", "True True"},
    {"{{ v | tojson }}", "{\"v\": {\"a\": [1, 2.0, \"\\u00e9<\", null, true]}}",
     "{\"a\": [1, 2.0, \"\xc3\xa9<\", null, true]}"},
    {"{{ v | tojson(indent=2) }}", "{\"v\": {\"a\": [1], \"b\": {}}}",
     "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}"},
    {"{{ [3,1,2] | sort | join('-') }} {{ ['b','A'] | sort | first }}", "{}", "1-2-3 A"},
    {"{{ v | selectattr('r', 'equalto', 'u') | map(attribute='c') | list }}",
     "{\"v\": [{\"r\": \"u\", \"c\": 1}, {\"r\": \"x\", \"c\": 2}]}", "[1]"},
    {"{{ v | map('upper') | join }} {{ v | reject('in', ['a']) | list }}",
     "{\"v\": [\"a\", \"b\"]}", "AB ['b']"},
    {"{{ x | default('d') }} {{ '' | default('d', true) }} {{ none | default('d') }}", "{}",
     "d d None"},
    {"{{ 'a\\nb' | indent(2) }}", "{}", "a\n  b"},
    {"{{ '%s-%d-%.2f-%%' % ('a', 3, 1.005) }}", "{}", "a-3-1.00-%"},
    {"{{ '{}:{}'.format('a', 1) }}", "{}", "a:1"},
    {"{{ strftime_now('%Y-%m-%d') }}", "{}", "2023-11-14"},
    {"{{ 3 is odd }} {{ 4 is divisibleby 2 }} {{ 'a' is string }} {{ x is not none }}", "{}",
     "True True True True"},
    {"{{ messages[1:] | length }}", "{\"messages\": [1, 2, 3]}", "2"},
    {"{% generation %}a{% endgeneration %}", "{}", "a"},
    // refusals
    {"{% for x in y recursive %}{% endfor %}", "{}", "!t:1:15: recursive"},
    {"a\n {% include 'x' %}", "{}", "!t:2:5: the statement include is not supported"},
    {"{{ x | nope }}", "{}", "!t:1:8: the filter nope is not supported"},
    {"{{ x is nope }}", "{}", "!t:1:9: the test nope is not supported"},
    {"{{ x.append(1) }}", "{\"x\": []}", "!append is an undefined value"},
    {"{{ nothing.x }}", "{}", "!x of an undefined value"},
    {"{{ 'a' + 1 }}", "{}", "!a text + an integer"},
    {"{{ 1 / 0 }}", "{}", "!division by zero"},
    {"{% if x %}", "{}", "!has no {% endif %}"},
    {"{{ x", "{}", "!t:1:1: this tag has no end"},
    {"{{ raise_exception('no ' ~ 1) }}", "{}", "!the template refuses the messages: no 1"},
    {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}", "!nested deeper"},
    {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "{}",
     "!more than 4000000 steps"},
    {"{{ 'a' * 999999999 }}", "{}", "!repetitions"},
    {"{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = [n.x] %}{% endfor %}",
     "{}", "!nested deeper"},
    {"{% break %}", "{}", "!break outside"},
};

static void small(void)
{
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        const small_case *s = &cases[i];
        arena *a = NULL;
        json *values = NULL;
        jinja_result r = {.out = {.a = NULL}};
        CHECK(arena_create("test", 1 << 30, &a) == ST_OK);
        CHECK(json_parse(s->values, (int64_t)strlen(s->values), "values", &values) == ST_OK);
        const status st = render(a, s->source, (int64_t)strlen(s->source), values, &r);
        if (s->expected[0] == '!') {
            if (st != ST_DATA || strstr(message(), s->expected + 1) == NULL) {
                fprintf(stderr, "%s: %s expected, got %s\n", s->source, s->expected,
                        st == ST_OK ? r.out.bytes : message());
                exit(1);
            }
        } else if (st != ST_OK || strcmp(r.out.bytes, s->expected) != 0) {
            fprintf(stderr, "%s: %s expected, got %s\n", s->source, s->expected,
                    st == ST_OK ? r.out.bytes : message());
            exit(1);
        }
        json_free(values);
        arena_destroy(a);
    }
}

static void marks(void)
{
    static const char source[] =
        "u{% for m in ['x', 'yz'] %}<{% generation %}{{ m }}{% endgeneration %}>{% endfor %}";
    arena *a = NULL;
    jinja_result r = {.out = {.a = NULL}};
    CHECK(arena_create("test", 1 << 30, &a) == ST_OK);
    CHECK(render(a, source, sizeof(source) - 1, NULL, &r) == ST_OK);
    CHECK(strcmp(r.out.bytes, "u<x><yz>") == 0);
    CHECK(r.mark_count == 2 && r.marks[0].begin == 2 && r.marks[0].end == 3);
    CHECK(r.marks[1].begin == 5 && r.marks[1].end == 7);
    arena_destroy(a);
}

static void golden_line(const char *line, int64_t bytes)
{
    json *all = NULL;
    arena *a = NULL;
    jinja_result r = {.out = {.a = NULL}};
    CHECK(json_parse(line, bytes, "templates.jsonl", &all) == ST_OK);
    CHECK(arena_create("test", 1 << 30, &a) == ST_OK);
    const json *source = json_get(all, "template"), *rendered = json_get(all, "rendered");
    const char *error = json_text(json_get(all, "error"), NULL);
    const status st = render(a, json_text(source, ""), json_text_bytes(source), all, &r);
    if (error != NULL) {
        CHECK(st == ST_DATA && strstr(message(), error) != NULL);
    } else {
        CHECK(st == ST_OK);
        CHECK(r.out.length == json_text_bytes(rendered));
        CHECK(memcmp(r.out.bytes, json_text(rendered, ""), (size_t)r.out.length) == 0);
    }
    json_free(all);
    arena_destroy(a);
}

static void golden(void)
{
    char path[4096];
    const char *shared = getenv("TRIREME_SHARED");
    const host *h = host_real();
    arena *a = NULL;
    file_info info;
    char *bytes = NULL;
    int64_t count = 0, lines = 0;
    (void)snprintf(path, sizeof(path), "%s/golden/chat/templates.jsonl",
                   shared != NULL ? shared : "../shared");
    CHECK(h->api->path_info(h, path, &info) == ST_OK);
    if (info.kind != FILE_KIND_REGULAR) return;
    CHECK(arena_create("test", 0, &a) == ST_OK);
    CHECK(host_read_all(h, a, path, 64 << 20, &bytes, &count) == ST_OK);
    for (int64_t begin = 0, end = 0; begin < count; begin = end + 1, lines++) {
        for (end = begin; end < count && bytes[end] != '\n';) end++;
        golden_line(bytes + begin, end - begin);
    }
    printf("%lld reference cases\n", (long long)lines);
    CHECK(lines > 40);
    arena_destroy(a);
}

int main(void)
{
    small();
    marks();
    golden();
    return 0;
}
