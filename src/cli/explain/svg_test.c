// Tests that pictures are valid XML whatever text they contain.
#include "cli/explain/svg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void labels_are_escaped(void **state)
{
    (void)state;
    const svg_font font = {.size = 10, .bold = true, .colour = 0x123456, .anchor = SVG_END};
    arena *a;
    assert_int_equal(arena_create("svg test", 0, &a), ST_OK);
    text t = {.a = a};
    assert_int_equal(svg_begin(&t, 10, 20, "a < b"), ST_OK);
    assert_int_equal(svg_label(&t, 1, 2, &font, "%s & \"%d\" > \x01", "<x>", 7), ST_OK);
    assert_int_equal(svg_end(&t), ST_OK);
    assert_non_null(strstr(t.bytes, "<title>a &lt; b</title>"));
    assert_non_null(strstr(t.bytes, ">&lt;x&gt; &amp; &quot;7&quot; &gt; ?</text>"));
    assert_non_null(strstr(t.bytes, "viewBox=\"0 0 10 20\""));
    assert_non_null(strstr(t.bytes, "fill=\"#123456\" font-weight=\"600\" text-anchor=\"end\""));
    arena_destroy(a);
}

static void shapes_are_computed(void **state)
{
    (void)state;
    static const double box[4] = {1, 2, 3.25, 4}, line[4] = {0, 1, 2, 3};
    arena *a;
    assert_int_equal(arena_create("svg test", 0, &a), ST_OK);
    text t = {.a = a};
    assert_int_equal(svg_box(&t, box, 0.0, 0xabcdef, -1), ST_OK);
    assert_string_equal(
        t.bytes, "<rect x=\"1.0\" y=\"2.0\" width=\"3.2\" height=\"4.0\" fill=\"#abcdef\"/>\n");
    t.length = 0;
    assert_int_equal(svg_box(&t, box, 2.0, 0, 0xff), ST_OK);
    assert_non_null(strstr(t.bytes, "rx=\"2.0\" fill=\"#000000\" stroke=\"#0000ff\""));
    t.length = 0;
    assert_int_equal(svg_line(&t, line, 0x10, 1.5, true), ST_OK);
    assert_non_null(strstr(
        t.bytes, "x2=\"2.0\" y2=\"3.0\" stroke=\"#000010\" stroke-width=\"1.5\" stroke-dash"));
    arena_destroy(a);
}

static void colours_go_to_white(void **state)
{
    (void)state;
    assert_int_equal(svg_lighter(0x204060, 0.0), 0x204060);
    assert_int_equal(svg_lighter(0x204060, 1.0), 0xffffff);
    assert_int_equal(svg_lighter(0x000000, 0.5), 0x808080);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test(shapes_are_computed),
        cmocka_unit_test(colours_go_to_white),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
