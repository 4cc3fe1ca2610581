// Facts and damage, printed as an aligned table or as one JSON object.
#include "cli/inspect/inspect.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FACT_BYTES = 1024, DAMAGE_SHOWN = 20 };

static status fact_put(inspect_report *r, const char *name, const char *value, bool is_number)
{
    char *copy = NULL;
    TRY(arena_grow(r->cli->a, (void **)&r->facts, &r->fact_capacity, r->fact_count + 1,
                   (int64_t)sizeof(*r->facts)));
    TRY(arena_strdup(r->cli->a, value, &copy));
    r->facts[r->fact_count++] = (inspect_fact){.name = name, .value = copy, .is_number = is_number};
    return ST_OK;
}

status inspect_add(inspect_report *r, const char *name, const char *format, ...)
{
    char value[FACT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(value, sizeof(value), format, args);
    va_end(args);
    return fact_put(r, name, value, false);
}

status inspect_add_int(inspect_report *r, const char *name, int64_t value)
{
    char digits[32];
    (void)snprintf(digits, sizeof(digits), "%lld", (long long)value);
    return fact_put(r, name, digits, true);
}

status inspect_add_tensor(inspect_report *r, const inspect_tensor *t)
{
    TRY(arena_grow(r->cli->a, (void **)&r->tensors, &r->tensor_capacity, r->tensor_count + 1,
                   (int64_t)sizeof(*r->tensors)));
    r->tensors[r->tensor_count++] = *t;
    return ST_OK;
}

status inspect_checked(inspect_report *r, const char *format, ...)
{
    char value[FACT_BYTES], *copy = NULL;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(value, sizeof(value), format, args);
    va_end(args);
    TRY(arena_strdup(r->cli->a, value, &copy));
    r->checked = copy;
    return ST_OK;
}

status inspect_damage(inspect_report *r, const char *format, ...)
{
    char line[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (r->damage_count++ >= DAMAGE_SHOWN) return ST_OK;
    r->damage.a = r->cli->a;
    return text_add(&r->damage, "%s\n", line);
}

status inspect_take(inspect_report *r, status st)
{
    if (st != ST_DAMAGED && st != ST_DATA && st != ST_MODEL && st != ST_SECURITY) return st;
    TRY(inspect_damage(r, "%s", error_last()->text));
    error_clear();
    return ST_OK;
}

// ---- for people ---------------------------------------------------------------------------------

static void print_tensors(const inspect_report *r)
{
    cli_print(r->cli, "%-46s %-5s %-16s %9s\n", "tensor", "type", "shape", "bytes");
    for (int64_t i = 0; i < r->tensor_count; i++) {
        const inspect_tensor *t = &r->tensors[i];
        char shape[128] = "";
        int used = 0;
        for (int k = 0; k < t->ndim && used < (int)sizeof(shape) - 24; k++) {
            used += snprintf(shape + used, sizeof(shape) - (size_t)used,
                             k == 0 ? "%lld" : " x %lld", (long long)t->dims[k]);
        }
        cli_print(r->cli, "%-46s %-5s %-16s %9lld\n", t->name, dtype_name(t->type),
                  t->ndim == 0 ? "scalar" : shape, (long long)t->bytes);
    }
}

static void print_verdict(const inspect_report *r)
{
    if (r->damage_count == 0 && r->checked == NULL) {
        cli_print(r->cli, "%-12snot possible\n", "verified");
        return;
    }
    if (r->damage_count == 0) {
        cli_print(r->cli, "%-12sok: %s\n", "verified", r->checked);
        return;
    }
    cli_print(r->cli, "%-12sNO: %lld damage%s\n", "verified", (long long)r->damage_count,
              text_plural(r->damage_count, "s"));
    const char *line = r->damage.bytes;
    while (line != NULL && *line != '\0') {
        const char *end = strchr(line, '\n');
        const int length = end == NULL ? (int)strlen(line) : (int)(end - line);
        cli_print(r->cli, "  %.*s\n", length, line);
        line = end == NULL ? NULL : end + 1;
    }
    if (r->damage_count > DAMAGE_SHOWN) {
        cli_print(r->cli, "  and %lld more\n", (long long)(r->damage_count - DAMAGE_SHOWN));
    }
}

void inspect_print_facts(const inspect_report *r, const char *indent)
{
    for (int64_t i = 0; i < r->fact_count; i++) {
        cli_print(r->cli, "%s%-12s%s\n", indent, r->facts[i].name, r->facts[i].value);
    }
}

void inspect_print(const inspect_report *r)
{
    cli_print(r->cli, "%s\n%-12s%s\n", r->path, "kind", r->kind);
    inspect_print_facts(r, "");
    if (r->lists) print_tensors(r);
    if (r->verifies) print_verdict(r);
}

// ---- for programs -------------------------------------------------------------------------------

// "largest id" -> "largest_id"
static status add_key(text *t, const char *name)
{
    char key[64];
    (void)snprintf(key, sizeof(key), "%s", name);
    for (char *c = key; *c != '\0'; c++) {
        if (*c == ' ') *c = '_';
    }
    return text_add_json(t, key);
}

// A name from a file may not be UTF-8, which JSON requires.
static status add_text(text *t, const char *value)
{
    if (text_is_utf8(value, (int64_t)strlen(value))) return text_add_json(t, value);
    return text_add_json(t, "(no UTF-8)");
}

static status json_tensors(const inspect_report *r, text *t)
{
    TRY(text_add(t, ",\n \"tensors\": ["));
    for (int64_t i = 0; i < r->tensor_count; i++) {
        const inspect_tensor *e = &r->tensors[i];
        TRY(text_add(t, "%s\n  {\"name\": ", i == 0 ? "" : ","));
        TRY(add_text(t, e->name));
        TRY(text_add(t, ", \"type\": \"%s\", \"shape\": [", dtype_name(e->type)));
        for (int k = 0; k < e->ndim; k++) {
            TRY(text_add(t, k == 0 ? "%lld" : ", %lld", (long long)e->dims[k]));
        }
        TRY(text_add(t, "], \"offset\": %lld, \"bytes\": %lld", (long long)e->offset,
                     (long long)e->bytes));
        if (e->file != NULL) {
            TRY(text_add(t, ", \"file\": "));
            TRY(add_text(t, e->file));
        }
        TRY(text_add(t, "}"));
    }
    return text_add(t, "]");
}

static status json_damage(const inspect_report *r, text *t)
{
    TRY(text_add(t, ",\n \"verified\": %s,\n \"damage\": [",
                 r->damage_count > 0 ? "false" : (r->checked != NULL ? "true" : "null")));
    const char *line = r->damage.bytes;
    for (int64_t i = 0; line != NULL && *line != '\0'; i++) {
        const char *end = strchr(line, '\n');
        char *one = NULL;
        TRY(arena_format(r->cli->a, &one, "%.*s", (int)(end - line), line));
        TRY(text_add(t, "%s\n  ", i == 0 ? "" : ","));
        TRY(add_text(t, one));
        line = end + 1;
    }
    return text_add(t, "]");
}

status inspect_add_json(const inspect_report *r, text *t)
{
    TRY(text_add(t, "{\n \"path\": "));
    TRY(add_text(t, r->path));
    TRY(text_add(t, ",\n \"kind\": "));
    TRY(text_add_json(t, r->kind));
    TRY(text_add(t, ",\n \"facts\": {"));
    for (int64_t i = 0; i < r->fact_count; i++) {
        TRY(text_add(t, "%s\n  ", i == 0 ? "" : ","));
        TRY(add_key(t, r->facts[i].name));
        TRY(text_add(t, ": "));
        if (r->facts[i].is_number) {
            TRY(text_add(t, "%s", r->facts[i].value));
        } else {
            TRY(add_text(t, r->facts[i].value));
        }
    }
    TRY(text_add(t, "}"));
    if (r->lists) TRY(json_tensors(r, t));
    if (r->verifies) TRY(json_damage(r, t));
    return text_add(t, "\n}");
}
