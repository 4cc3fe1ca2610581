// Fuzz entry: a line of JSON with the variables, then a template. What renders is UTF-8 within the
// limits, and its marks lie in it in order; all else is refused with the template's name.
#include "base/format/json.h"
#include "data/jinja.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void render(arena *a, const char *source, int64_t bytes, const json *values)
{
    jinja_template *t = NULL;
    jinja_variable variables[8];
    jinja_result out = {.out = {.a = NULL}};
    jinja_context c = {.variables = variables, .limited = "m", .list_limit = 2};
    int64_t last = 0;
    for (int64_t i = 0; i < json_count(values) && i < COUNT_OF(variables); i++) {
        const json *v = NULL;
        const char *name = json_key_at(values, i, &v);
        if (name != NULL)
            variables[c.variable_count++] = (jinja_variable){.name = name, .value = v};
    }
    if (jinja_parse(a, source, bytes, "template", &t) != ST_OK ||
        jinja_render(t, a, &c, &out) != ST_OK) {
        const error_record *e = error_last();
        ASSERT(e->code == ST_NO_MEMORY || e->code == ST_DOES_NOT_FIT || e->code == ST_DATA);
        ASSERT(e->code != ST_DATA || strncmp(e->text, "template:", 9) == 0);
        return;
    }
    ASSERT(out.out.length <= JINJA_OUTPUT_BYTES_MAX);
    ASSERT(text_is_utf8(out.out.bytes, out.out.length));
    for (int64_t i = 0; i < out.mark_count; i++) {
        ASSERT(out.marks[i].begin >= last && out.marks[i].end >= out.marks[i].begin);
        last = out.marks[i].end;
    }
    ASSERT(last <= out.out.length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *a = NULL;
    json *values = NULL;
    const char *bytes = (const char *)data;
    const char *line = size > 0 ? memchr(bytes, '\n', size) : NULL;
    if (line == NULL || json_parse(bytes, line - bytes, "values", &values) != ST_OK) return 0;
    if (arena_create("fuzz", 64 << 20, &a) == ST_OK) {
        if (json_kind_of(values) == JSON_MAP) {
            render(a, line + 1, (int64_t)size - (line + 1 - bytes), values);
        }
        arena_destroy(a);
    }
    json_free(values);
    return 0;
}
