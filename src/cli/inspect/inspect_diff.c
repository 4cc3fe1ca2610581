// Compares two models or checkpoints, tensor by tensor and key by key: tensors that only one has,
// different shapes and types, the number of bitwise equal tensors, and the differences of the rest,
// worst first.
//
// Values are compared as doubles. The relative difference is relative to the largest magnitude in
// the first model's tensor, so a few tiny weights do not look like damage.
#include "cli/inspect/inspect.h"
#include "cli/run_folder.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct side {
    const char *path; // a file, a Hugging Face folder, a checkpoint
    safetensors *files;
    ckpt_reader *checkpoint; // exactly one of the two is set
    void *buffer;            // the last tensor read from `files`
} side;

typedef struct entry {
    const char *name;
    dtype type;
    int ndim;
    const int64_t *dims;
    int64_t bytes;
} entry;

typedef struct difference {
    const char *name;
    double largest, relative;
    int64_t elements, differing;
    bool same_type;
} difference;

// Other differences, a line each, in this order.
typedef enum other_kind {
    OTHER_STEP,
    OTHER_KEY,
    OTHER_MISSING,
    OTHER_SHAPE,
    OTHER_TYPE
} other_kind;
enum { OTHER_KINDS = OTHER_TYPE + 1 };
typedef struct other {
    other_kind kind;
    const char *line;
} other;

typedef struct comparing {
    cli_context *cli;
    side a, b;
    difference *items; // tensors of equal shape with different bits
    int64_t count, capacity;
    int64_t compared, equal;
    other *others;
    int64_t other_count, other_capacity;
} comparing;

// ---- sides --------------------------------------------------------------------------------------

static status side_open(cli_context *cli, const char *path, side *out)
{
    inspect_probe *p = NULL;
    char *folder = NULL;
    TRY(arena_new(cli->a, 1, &p));
    TRY(inspect_probe_make(cli, path, p));
    const char *kind = inspect_kind_of(p)->name;
    out->path = p->path;
    if (strcmp(kind, "safetensors") == 0 || strcmp(kind, "Hugging Face folder") == 0) {
        return safetensors_open(cli->h, path, &out->files);
    }
    if (strcmp(kind, "run") != 0 && strcmp(kind, "checkpoint") != 0) {
        return fail(ST_USAGE,
                    "%s is not a model: %s; --diff compares safetensors, Hugging Face "
                    "folders, checkpoints and runs",
                    path, kind);
    }
    TRY(cli_checkpoint_of(cli, path, &folder));
    out->path = folder;
    return ckpt_reader_open(cli->h, folder, &out->checkpoint);
}

static void side_close(side *s)
{
    free(s->buffer);
    safetensors_close(s->files);
    ckpt_reader_close(s->checkpoint);
}

static int64_t side_count(const side *s)
{
    return s->files != NULL ? safetensors_count(s->files) : ckpt_reader_count(s->checkpoint);
}

static entry entry_of_files(const safetensors_entry *e)
{
    return (entry){e->name, e->type, e->ndim, e->dims, e->bytes};
}

static entry entry_of_checkpoint(const ckpt_tensor *t)
{
    return (entry){t->name, t->type, t->ndim, t->dims, t->bytes};
}

static entry side_at(const side *s, int64_t i)
{
    return s->files != NULL ? entry_of_files(safetensors_at(s->files, i))
                            : entry_of_checkpoint(ckpt_reader_at(s->checkpoint, i));
}

static bool side_find(const side *s, const char *name, entry *out)
{
    if (s->files != NULL) {
        const safetensors_entry *e = safetensors_find(s->files, name);
        if (e != NULL) *out = entry_of_files(e);
        return e != NULL;
    }
    const ckpt_tensor *t = ckpt_reader_find(s->checkpoint, name);
    if (t != NULL) *out = entry_of_checkpoint(t);
    return t != NULL;
}

static status side_data(side *s, const char *name, const void **out)
{
    if (s->files == NULL) {
        return ckpt_reader_data(s->checkpoint, ckpt_reader_find(s->checkpoint, name), out);
    }
    const safetensors_entry *e = safetensors_find(s->files, name);
    free(s->buffer);
    s->buffer = malloc((size_t)max_i64(1, e->bytes));
    if (s->buffer == NULL) return fail(ST_NO_MEMORY, "no memory to read %s", name);
    *out = s->buffer;
    return safetensors_read(s->files, e, 0, s->buffer, e->bytes);
}

// ---- values -------------------------------------------------------------------------------------

typedef struct widths {
    dtype a, b;
} widths;

// Compares bits, so that -0 differs from 0 and a NaN equals itself.
static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

// Copies pieces, because an entry of a file may be unaligned.
static void values_compare(widths types, const char *a, const char *b, int64_t count,
                           difference *out)
{
    enum { PIECE = 1024 };
    double x[PIECE], y[PIECE];
    double largest = 0.0, magnitude = 0.0;
    const int64_t wide_a = dtype_bytes(types.a), wide_b = dtype_bytes(types.b);
    for (int64_t at = 0; at < count; at += PIECE) {
        const int64_t n = min_i64(PIECE, count - at);
        memcpy(x, a + at * wide_a, (size_t)(n * wide_a));
        memcpy(y, b + at * wide_b, (size_t)(n * wide_b));
        for (int64_t i = 0; i < n; i++) {
            const double p = dtype_load(types.a, x, i), q = dtype_load(types.b, y, i);
            if (fabs(p) > magnitude && isfinite(p)) magnitude = fabs(p);
            if (bits_of(p) == bits_of(q)) continue;
            out->differing++;
            const double by = p == q ? 0.0 : fabs(p - q);
            if (!(by <= largest)) largest = isnan(by) ? (double)INFINITY : by;
        }
    }
    out->elements = count;
    out->largest = largest;
    out->relative = largest == 0.0 ? 0.0 : largest / magnitude;
}

static status other_add(comparing *c, other_kind kind, const char *format, ...) PRINTF_LIKE(3, 4);
static status other_add(comparing *c, other_kind kind, const char *format, ...)
{
    char line[512], *copy = NULL;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    TRY(arena_strdup(c->cli->a, line, &copy));
    TRY(arena_grow(c->cli->a, (void **)&c->others, &c->other_capacity, c->other_count + 1,
                   (int64_t)sizeof(*c->others)));
    c->others[c->other_count++] = (other){kind, copy};
    return ST_OK;
}

static const char *shape_text(const entry *e, char buffer[160])
{
    size_t used = 0;
    buffer[0] = '\0';
    for (int i = 0; i < e->ndim && used < 120; i++) {
        used += (size_t)snprintf(buffer + used, 160 - used, i == 0 ? "%lld" : " x %lld",
                                 (long long)e->dims[i]);
    }
    return e->ndim == 0 ? "scalar" : buffer;
}

static status tensor_compare(comparing *c, const entry *a, const entry *b)
{
    const void *bytes_a = NULL, *bytes_b = NULL;
    char shape_a[160], shape_b[160];
    if (a->ndim != b->ndim || memcmp(a->dims, b->dims, (size_t)a->ndim * sizeof(*a->dims)) != 0) {
        return other_add(c, OTHER_SHAPE, "%s: shape %s -> %s", a->name, shape_text(a, shape_a),
                         shape_text(b, shape_b));
    }
    TRY(side_data(&c->a, a->name, &bytes_a));
    TRY(side_data(&c->b, b->name, &bytes_b));
    c->compared++;
    if (a->type == b->type && (a->bytes == 0 || memcmp(bytes_a, bytes_b, (size_t)a->bytes) == 0)) {
        c->equal++;
        return ST_OK;
    }
    difference d = {.name = a->name, .same_type = a->type == b->type};
    values_compare((widths){a->type, b->type}, bytes_a, bytes_b, a->bytes / dtype_bytes(a->type),
                   &d);
    if (!d.same_type) {
        TRY(other_add(c, OTHER_TYPE, "%s: type %s -> %s", a->name, dtype_name(a->type),
                      dtype_name(b->type)));
    }
    TRY(arena_grow(c->cli->a, (void **)&c->items, &c->capacity, c->count + 1,
                   (int64_t)sizeof(*c->items)));
    c->items[c->count++] = d;
    return ST_OK;
}

static status tensors_compare(comparing *c)
{
    for (int64_t i = 0; i < side_count(&c->a); i++) {
        const entry a = side_at(&c->a, i);
        entry b;
        if (side_find(&c->b, a.name, &b)) {
            TRY(tensor_compare(c, &a, &b));
        } else {
            TRY(other_add(c, OTHER_MISSING, "%s: only in %s", a.name, c->a.path));
        }
    }
    for (int64_t i = 0; i < side_count(&c->b); i++) {
        const entry b = side_at(&c->b, i);
        entry a;
        if (!side_find(&c->a, b.name, &a)) {
            TRY(other_add(c, OTHER_MISSING, "%s: only in %s", b.name, c->b.path));
        }
    }
    return ST_OK;
}

// ---- records ------------------------------------------------------------------------------------

static status key_add(void *context, const char *line)
{
    return other_add(context, OTHER_KEY, "%s", line);
}

static status infos_compare(comparing *c)
{
    if (c->a.checkpoint == NULL || c->b.checkpoint == NULL) return ST_OK;
    const ckpt_info *a = ckpt_reader_info(c->a.checkpoint), *b = ckpt_reader_info(c->b.checkpoint);
    const struct {
        const char *name;
        int64_t was, is;
    } facts[] = {{"step", a->step, b->step},
                 {"sequences", a->sequences, b->sequences},
                 {"tokens", a->tokens, b->tokens},
                 {"seed", a->seed, b->seed}};
    for (int64_t i = 0; i < COUNT_OF(facts); i++) {
        if (facts[i].was == facts[i].is) continue;
        TRY(other_add(c, OTHER_STEP, "%s: %lld -> %lld", facts[i].name, (long long)facts[i].was,
                      (long long)facts[i].is));
    }
    return ST_OK;
}

// ---- output -------------------------------------------------------------------------------------

static int worse_first(const void *x, const void *y)
{
    const difference *a = x, *b = y;
    if (a->relative != b->relative) return a->relative < b->relative ? 1 : -1;
    return strcmp(a->name, b->name);
}

static void print_others(const comparing *c, other_kind kind, int64_t shown)
{
    int64_t count = 0;
    for (int64_t i = 0; i < c->other_count; i++) {
        if (c->others[i].kind != kind) continue;
        if (count++ < shown) cli_print(c->cli, "%s\n", c->others[i].line);
    }
    if (count > shown) cli_print(c->cli, "%lld more such lines\n", (long long)(count - shown));
}

static void print_table(const comparing *c, int64_t shown)
{
    cli_context *cli = c->cli;
    cli_print(cli, "%-12s%s\n%-12s%s\n", "a", c->a.path, "b", c->b.path);
    cli_print(cli, "%-12s%lld tensors of both, %lld equal to the bit\n", "compared",
              (long long)c->compared, (long long)c->equal);
    if (c->count > 0) {
        cli_print(cli, "%-40s %9s %9s %10s\n", "tensor, worst first", "largest", "relative",
                  "elements");
    }
    for (int64_t i = 0; i < min_i64(c->count, shown); i++) {
        const difference *d = &c->items[i];
        cli_print(cli, "%-40s %9.2e %9.2e %lld of %lld\n", d->name, d->largest, d->relative,
                  (long long)d->differing, (long long)d->elements);
    }
    if (c->count > shown) cli_print(cli, "%lld more differ\n", (long long)(c->count - shown));
    for (int kind = 0; kind < OTHER_KINDS; kind++) print_others(c, (other_kind)kind, shown);
}

static double for_json(double value)
{
    return isfinite(value) ? value : 1e300;
}

static status print_json(const comparing *c)
{
    text t = {.a = c->cli->a};
    TRY(text_add(&t, "{\n \"same\": %s,\n \"compared\": %lld,\n \"equal\": %lld,\n \"tensors\": [",
                 c->count + c->other_count == 0 ? "true" : "false", (long long)c->compared,
                 (long long)c->equal));
    for (int64_t i = 0; i < c->count; i++) {
        const difference *d = &c->items[i];
        TRY(text_add(&t, "%s\n  {\"name\": ", i == 0 ? "" : ","));
        TRY(text_add_json(&t, d->name));
        TRY(text_add(&t, ", \"largest\": %.9g, \"relative\": %.9g, \"differing\": %lld}",
                     for_json(d->largest), for_json(d->relative), (long long)d->differing));
    }
    TRY(text_add(&t, "],\n \"others\": ["));
    for (int64_t i = 0; i < c->other_count; i++) {
        TRY(text_add(&t, "%s\n  ", i == 0 ? "" : ","));
        TRY(text_add_json(&t, c->others[i].line));
    }
    TRY(text_add(&t, "]\n}\n"));
    cli_print_text(c->cli, &t);
    return ST_OK;
}

static status compare(comparing *c, const char *a, const char *b)
{
    TRY(side_open(c->cli, a, &c->a));
    TRY(side_open(c->cli, b, &c->b));
    if ((c->a.files == NULL) != (c->b.files == NULL)) {
        return fail(ST_USAGE,
                    "%s and %s name their tensors differently; compare a checkpoint with "
                    "a checkpoint, or with `trireme export` of it",
                    a, b);
    }
    TRY(infos_compare(c));
    TRY(tensors_compare(c));
    TRY(inspect_diff_configs(c->cli, c->a.path, c->b.path, key_add, c));
    if (c->count > 0) qsort(c->items, (size_t)c->count, sizeof(*c->items), worse_first);
    return ST_OK;
}

status inspect_diff(cli_context *cli, const char *a, const char *b,
                    const inspect_diff_options *options)
{
    comparing *c = NULL;
    TRY(arena_new(cli->a, 1, &c));
    c->cli = cli;
    status st = compare(c, a, b);
    if (st == ST_OK && options->json) {
        st = print_json(c);
    } else if (st == ST_OK) {
        print_table(c, options->shown);
    }
    const int64_t differing = c->count + c->other_count;
    side_close(&c->a);
    side_close(&c->b);
    TRY(st);
    if (differing == 0) return ST_OK;
    return fail(ST_ANSWER_NO, "%s and %s differ: %lld tensors in values, %lld in other things", a,
                b, (long long)c->count, (long long)c->other_count);
}
