// Parses and prints a manifest. The parser trusts no input: it checks first the checksum at the
// end, then the form, then every name, size and place. It uses sorted lists, so that no input costs
// n * n.
#include "checkpoint/manifest.h"

#include "base/format/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char tail_begin[] = " \"manifest\": \"", tail_end[] = "\"\n}\n";
enum { HEX_DIGITS = 32, TAIL_BYTES = sizeof(tail_begin) - 1 + HEX_DIGITS + sizeof(tail_end) - 1 };

typedef struct parsing {
    arena *a;
    const char *what;
    const json *root;
    ckpt_manifest *out;
} parsing;

static status check_tail(const char *bytes, int64_t count, const char *what)
{
    char hex[HEX_DIGITS + 1];
    const char *tail = count >= TAIL_BYTES ? bytes + count - TAIL_BYTES : NULL;
    if (tail == NULL || memcmp(tail, tail_begin, sizeof(tail_begin) - 1) != 0 ||
        memcmp(tail + TAIL_BYTES - (sizeof(tail_end) - 1), tail_end, sizeof(tail_end) - 1) != 0) {
        return fail(ST_DAMAGED,
                    "%s: its last line is not its checksum; it was cut short or is not a %s", what,
                    CKPT_FORMAT);
    }
    (void)hash128_text(hash128_of(bytes, count - TAIL_BYTES), hex);
    const char *want = tail + sizeof(tail_begin) - 1;
    if (memcmp(hex, want, HEX_DIGITS) != 0) {
        return fail(ST_DAMAGED, "%s: its checksum is %s, its last line says %.32s", what, hex,
                    want);
    }
    return ST_OK;
}

static bool hex_parse(const char *digits, hash128 *out)
{
    uint64_t parts[2] = {0, 0};
    if (digits == NULL || strlen(digits) != HEX_DIGITS) return false;
    for (int i = 0; i < HEX_DIGITS; i++) {
        const char c = digits[i];
        const int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (value < 0) return false;
        parts[i / 16] = parts[i / 16] << 4 | (uint64_t)value;
    }
    *out = (hash128){.high = parts[0], .low = parts[1]};
    return true;
}

// Copies a string without NUL bytes; *out is NULL if the value is not one.
static status text_of(const parsing *p, const json *map, const char *key, char **out)
{
    const json *value = json_get(map, key);
    const char *bytes = json_text(value, NULL);
    *out = NULL;
    if (bytes == NULL || (int64_t)strlen(bytes) != json_text_bytes(value)) return ST_OK;
    return arena_strdup(p->a, bytes, out);
}

// File names hold letters, digits, '.', '-', '_' and no leading dot. A name that would leave the
// folder gets a different error from one that is merely malformed.
static status check_file_name(const parsing *p, const char *name)
{
    if (name == NULL) return fail(ST_DAMAGED, "%s: a file has no name", p->what);
    if (strchr(name, '/') != NULL || strcmp(name, "..") == 0 || strcmp(name, ".") == 0) {
        return fail(ST_SECURITY,
                    "%s: it names the file \"%.200s\"; only plain names of files in its own folder "
                    "are allowed",
                    p->what, name);
    }
    bool plain = name[0] != '\0' && name[0] != '.' && strlen(name) <= 255;
    for (const char *c = name; *c != '\0'; c++) {
        plain = plain && ((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                          (*c >= '0' && *c <= '9') || *c == '.' || *c == '-' || *c == '_');
    }
    if (!plain || strcmp(name, CKPT_MANIFEST_NAME) == 0) {
        return fail(ST_DAMAGED, "%s: \"%.200s\" is not a valid file name", p->what, name);
    }
    return ST_OK;
}

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const ckpt_file *)a)->name, ((const ckpt_file *)b)->name);
}

static status read_files(const parsing *p, const char *key, bool is_state, ckpt_file **out,
                         int64_t *out_count)
{
    const json *list = json_get(p->root, key);
    if (json_kind_of(list) != JSON_LIST) {
        return fail(ST_DAMAGED, "%s: \"%s\" is not a list", p->what, key);
    }
    const int64_t count = json_count(list);
    ckpt_file *files = NULL;
    TRY(arena_new(p->a, count, &files));
    for (int64_t i = 0; i < count; i++) {
        const json *line = json_at(list, i);
        char *name = NULL;
        TRY(text_of(p, line, "name", &name));
        TRY(check_file_name(p, name));
        files[i] = (ckpt_file){.name = name,
                               .bytes = json_int(json_get(line, "bytes"), -1),
                               .head_bytes = json_int(json_get(line, "head_bytes"), 0)};
        const char *sum = json_text(json_get(line, is_state ? "head_xxh128" : "xxh128"), NULL);
        if (files[i].bytes < 0 || files[i].head_bytes < 0 || files[i].head_bytes > files[i].bytes ||
            !hex_parse(sum, &files[i].checksum)) {
            return fail(ST_DAMAGED, "%s: the file %s has no size or no checksum", p->what, name);
        }
    }
    if (count > 1) qsort(files, (size_t)count, sizeof(*files), compare_files);
    for (int64_t i = 1; i < count; i++) {
        if (strcmp(files[i - 1].name, files[i].name) == 0) {
            return fail(ST_DAMAGED, "%s: it lists the file %s twice", p->what, files[i].name);
        }
    }
    *out = files;
    *out_count = count;
    return ST_OK;
}

static const ckpt_file *file_find(const ckpt_file *files, int64_t count, const char *name)
{
    if (count == 0 || name == NULL) return NULL;
    const ckpt_file key = {.name = name};
    return bsearch(&key, files, (size_t)count, sizeof(key), compare_files);
}

// Reads type and shape and checks that they give the size in bytes.
static status read_shape(const parsing *p, const json *line, ckpt_tensor *t)
{
    const json *shape = json_get(line, "shape");
    int64_t bytes = 0;
    bool good = dtype_parse(json_text(json_get(line, "type"), ""), &t->type) &&
                json_kind_of(shape) == JSON_LIST && json_count(shape) <= SAFETENSORS_MAX_DIMS;
    if (good) bytes = dtype_bytes(t->type);
    for (int64_t i = 0; good && i < json_count(shape); i++) {
        t->dims[i] = json_int(json_at(shape, i), -1);
        good = t->dims[i] >= 0 && size_mul(bytes, t->dims[i], &bytes);
    }
    t->ndim = good ? (int)json_count(shape) : 0;
    t->bytes = json_int(json_get(line, "bytes"), -1);
    if (good && bytes == t->bytes) return ST_OK;
    return fail(ST_DAMAGED, "%s: tensor %s: type, shape and bytes do not agree", p->what, t->name);
}

static status read_tensor(const parsing *p, const json *line, ckpt_tensor *t)
{
    const ckpt_manifest *m = p->out;
    char *name = NULL, *file_name = NULL;
    TRY(text_of(p, line, "name", &name));
    if (name == NULL || name[0] == '\0' || strlen(name) > CKPT_MAX_NAME_BYTES) {
        return fail(ST_DAMAGED, "%s: a tensor has no name, or one of more than %d bytes", p->what,
                    CKPT_MAX_NAME_BYTES);
    }
    t->name = name;
    TRY(read_shape(p, line, t));
    TRY(text_of(p, line, "file", &file_name));
    TRY(check_file_name(p, file_name));
    const ckpt_file *f = file_find(m->state, m->state_count, file_name);
    if (f == NULL) {
        return fail(ST_DAMAGED, "%s: tensor %s lies in %s, which is not listed", p->what, name,
                    file_name);
    }
    t->file = f->name;
    t->offset = json_int(json_get(line, "offset"), -1);
    if (t->offset < f->head_bytes || t->offset > f->bytes || t->bytes > f->bytes - t->offset) {
        return fail(ST_DAMAGED, "%s: tensor %s: %lld bytes at %lld do not lie in the data of %s",
                    p->what, name, (long long)t->bytes, (long long)t->offset, f->name);
    }
    if (hex_parse(json_text(json_get(line, "xxh128"), NULL), &t->checksum)) return ST_OK;
    return fail(ST_DAMAGED, "%s: tensor %s has no checksum", p->what, name);
}

static int compare_tensors(const void *a, const void *b)
{
    return strcmp((*(const ckpt_tensor *const *)a)->name, (*(const ckpt_tensor *const *)b)->name);
}

static status read_tensors(const parsing *p)
{
    ckpt_manifest *m = p->out;
    const json *list = json_get(p->root, "tensors");
    if (json_kind_of(list) != JSON_LIST) {
        return fail(ST_DAMAGED, "%s: \"tensors\" is not a list", p->what);
    }
    m->tensor_count = json_count(list);
    TRY(arena_new(p->a, m->tensor_count, &m->tensors));
    TRY(arena_new(p->a, m->tensor_count, &m->sorted));
    for (int64_t i = 0; i < m->tensor_count; i++) {
        TRY(read_tensor(p, json_at(list, i), &m->tensors[i]));
        m->sorted[i] = &m->tensors[i];
    }
    if (m->tensor_count > 1) {
        qsort(m->sorted, (size_t)m->tensor_count, sizeof(*m->sorted), compare_tensors);
    }
    for (int64_t i = 1; i < m->tensor_count; i++) {
        if (strcmp(m->sorted[i - 1]->name, m->sorted[i]->name) == 0) {
            return fail(ST_DAMAGED, "%s: it lists the tensor %s twice", p->what,
                        m->sorted[i]->name);
        }
    }
    return ST_OK;
}

// A run counts up: each step takes at least one sequence and at most 2^24, each with at most 2^24
// tokens (the limits of train.global_batch and train.seq). Numbers beyond that are from no run, and
// would overflow in computations with them.
static status check_counts(const parsing *p, const ckpt_info *info)
{
    enum { STEP_DIGITS = 12, BITS_OF_BATCH = 24, BITS_OF_SEQ = 24, MAX_BITS = 62 };
    int64_t most_steps = 1;
    for (int i = 0; i < STEP_DIGITS; i++) most_steps *= 10;
    const bool steps = info->step <= most_steps;
    const bool sequences = info->sequences >= info->step &&
                           info->sequences >> BITS_OF_BATCH <= info->step &&
                           (info->step > 0 || info->sequences == 0);
    const bool tokens = info->tokens >> BITS_OF_SEQ <= info->sequences &&
                        (info->sequences > 0 || info->tokens == 0) && info->tokens >> MAX_BITS == 0;
    if (!steps || !sequences || !tokens) {
        return fail(ST_DAMAGED,
                    "%s: step %lld, %lld sequences and %lld tokens are not the counts of one run",
                    p->what, (long long)info->step, (long long)info->sequences,
                    (long long)info->tokens);
    }
    if (info->seed < 0 || info->world < 1 || info->world > INT32_MAX || info->whole_from < 0) {
        return fail(ST_DAMAGED, "%s: seed %lld, world %lld or whole_from %lld is out of range",
                    p->what, (long long)info->seed, (long long)info->world,
                    (long long)info->whole_from);
    }
    return ST_OK;
}

static status read_record(const parsing *p)
{
    static const char *const counts[] = {"step", "sequences", "tokens", "seed"};
    int64_t values[COUNT_OF(counts)];
    for (int i = 0; i < COUNT_OF(counts); i++) {
        const json *value = json_get(p->root, counts[i]);
        values[i] = json_int(value, 0);
        if (json_kind_of(value) != JSON_INT || (values[i] < 0 && i < 3)) {
            return fail(ST_DAMAGED, "%s: \"%s\" is not a count", p->what, counts[i]);
        }
    }
    char *numerics = NULL, *best = NULL, *config_digest = NULL, *data = NULL;
    char *tokenizer = NULL;
    TRY(text_of(p, p->root, "numerics", &numerics));
    TRY(text_of(p, p->root, "best", &best));
    TRY(text_of(p, p->root, "config", &config_digest));
    TRY(text_of(p, p->root, "data", &data));
    TRY(text_of(p, p->root, "tokenizer", &tokenizer));
    if (best != NULL) TRY(check_file_name(p, best));
    p->out->info =
        (ckpt_info){.step = values[0],
                    .sequences = values[1],
                    .tokens = values[2],
                    .seed = values[3],
                    .world = json_int(json_get(p->root, "world"), 1),
                    .val_loss = json_real(json_get(p->root, "val_loss"), (double)NAN),
                    .best_val_loss = json_real(json_get(p->root, "best_val_loss"), (double)NAN),
                    .best = best,
                    .numerics = numerics != NULL ? numerics : "",
                    .config = config_digest != NULL ? config_digest : "",
                    .data = data,
                    .tokenizer = tokenizer,
                    .whole_from = json_int(json_get(p->root, "whole_from"), 0)};
    return check_counts(p, &p->out->info);
}

// ---- the tree -----------------------------------------------------------------------------------

// Leaves and nodes begin with different bytes, so that no node can pass for a leaf.
static hash128 leaf_hash(const ckpt_tensor *t)
{
    const uint8_t kind = 0;
    hash128 out = {0};
    hash_stream *hash = hash_begin();
    if (hash == NULL) return out;
    hash_add(hash, &kind, 1);
    hash_add(hash, t->name, (int64_t)strlen(t->name) + 1);
    hash_add(hash, dtype_name(t->type), (int64_t)strlen(dtype_name(t->type)) + 1);
    for (int i = 0; i < t->ndim; i++) hash_add(hash, &t->dims[i], (int64_t)sizeof(t->dims[i]));
    hash_add(hash, &t->checksum, (int64_t)sizeof(t->checksum));
    return hash_end(hash);
}

static hash128 node_hash(hash128 left, hash128 right)
{
    uint8_t bytes[1 + 2 * sizeof(hash128)] = {1};
    memcpy(bytes + 1, &left, sizeof(left));
    memcpy(bytes + 1 + sizeof(left), &right, sizeof(right));
    return hash128_of(bytes, (int64_t)sizeof(bytes));
}

// Completed subtrees wait like the digits of a binary counter; at the end they are joined from the
// right.
hash128 ckpt_manifest_root(const ckpt_tensor *tensors, int64_t count)
{
    hash128 waiting[64] = {{0}}, root = {0};
    bool has_root = false;
    for (int64_t i = 0; i < count; i++) {
        hash128 node = leaf_hash(&tensors[i]);
        int level = 0;
        for (; (i >> level & 1) != 0; level++) node = node_hash(waiting[level], node);
        waiting[level] = node;
    }
    for (int level = 0; level < 63; level++) {
        if ((count >> level & 1) == 0) continue;
        root = has_root ? node_hash(waiting[level], root) : waiting[level];
        has_root = true;
    }
    return root;
}

// Checkpoints of before the field have none.
static status root_read(const parsing *p)
{
    ckpt_manifest *m = p->out;
    const char *given = json_text(json_get(p->root, "root"), NULL);
    hash128 root;
    m->root = ckpt_manifest_root(m->tensors, m->tensor_count);
    if (given == NULL) return ST_OK;
    if (hex_parse(given, &root) && root.high == m->root.high && root.low == m->root.low) {
        return ST_OK;
    }
    return fail(ST_DAMAGED, "%s: its root is not that of its tensors", p->what);
}

static status read_all(const parsing *p)
{
    ckpt_manifest *m = p->out;
    const char *format = json_text(json_get(p->root, "format"), "");
    if (strcmp(format, CKPT_FORMAT) != 0) {
        return fail(ST_DAMAGED, "%s: format is \"%.60s\", expected \"%s\"", p->what, format,
                    CKPT_FORMAT);
    }
    TRY(read_record(p));
    TRY(read_files(p, "state", true, &m->state, &m->state_count));
    TRY(read_files(p, "files", false, &m->extras, &m->extra_count));
    for (int64_t i = 0; i < m->extra_count; i++) {
        if (file_find(m->state, m->state_count, m->extras[i].name) != NULL) {
            return fail(ST_DAMAGED, "%s: it lists the file %s twice", p->what, m->extras[i].name);
        }
    }
    TRY(read_tensors(p));
    if (!hex_parse(json_text(json_get(p->root, "digest"), NULL), &m->digest)) {
        return fail(ST_DAMAGED, "%s: it has no digest", p->what);
    }
    return root_read(p);
}

status ckpt_manifest_parse(arena *a, const char *bytes, int64_t count, const char *what,
                           ckpt_manifest *out)
{
    json *root = NULL;
    *out = (ckpt_manifest){0};
    TRY(check_tail(bytes, count, what));
    TRY(json_parse(bytes, count, what, &root));
    const parsing p = {.a = a, .what = what, .root = root, .out = out};
    const status st = read_all(&p);
    json_free(root);
    return st;
}

const ckpt_tensor *ckpt_manifest_find(const ckpt_manifest *m, const char *name)
{
    if (m->tensor_count == 0) return NULL;
    const ckpt_tensor key = {.name = name}, *wanted = &key;
    const ckpt_tensor **found =
        bsearch(&wanted, m->sorted, (size_t)m->tensor_count, sizeof(*m->sorted), compare_tensors);
    return found != NULL ? *found : NULL;
}

// ---- printing -----------------------------------------------------------------------------------

static status real_or_null(text *t, const char *name, double value)
{
    if (!isfinite(value)) return text_add(t, " \"%s\": null,\n", name);
    return text_add(t, " \"%s\": %.17g,\n", name, value);
}

static status text_or_null(text *t, const char *name, const char *value)
{
    TRY(text_add(t, " \"%s\": ", name));
    TRY(value != NULL ? text_add_json(t, value) : text_add(t, "null"));
    return text_add(t, ",\n");
}

static status print_record(const ckpt_info *info, text *t)
{
    TRY(text_add(t, "{\n \"format\": \"%s\",\n \"step\": %lld,\n", CKPT_FORMAT,
                 (long long)info->step));
    TRY(text_add(t, " \"sequences\": %lld,\n \"tokens\": %lld,\n \"seed\": %lld,\n",
                 (long long)info->sequences, (long long)info->tokens, (long long)info->seed));
    TRY(text_add(t, " \"world\": %lld,\n", (long long)max_i64(info->world, 1)));
    TRY(real_or_null(t, "val_loss", info->val_loss));
    TRY(real_or_null(t, "best_val_loss", info->best_val_loss));
    TRY(text_or_null(t, "best", info->best));
    if (info->whole_from > 0) {
        TRY(text_add(t, " \"whole_from\": %lld,\n", (long long)info->whole_from));
    }
    TRY(text_or_null(t, "numerics", info->numerics));
    TRY(text_or_null(t, "config", info->config));
    if (info->tokenizer != NULL) TRY(text_or_null(t, "tokenizer", info->tokenizer));
    return text_or_null(t, "data", info->data);
}

static status print_tensor(const ckpt_tensor *tensor, text *t)
{
    char hex[33];
    TRY(text_add(t, "  {\"name\": "));
    TRY(text_add_json(t, tensor->name));
    TRY(text_add(t, ", \"type\": \"%s\", \"shape\": [", dtype_name(tensor->type)));
    for (int i = 0; i < tensor->ndim; i++) {
        TRY(text_add(t, i == 0 ? "%lld" : ", %lld", (long long)tensor->dims[i]));
    }
    return text_add(t,
                    "], \"file\": \"%s\", \"offset\": %lld, \"bytes\": %lld, \"xxh128\": \"%s\"}",
                    tensor->file, (long long)tensor->offset, (long long)tensor->bytes,
                    hash128_text(tensor->checksum, hex));
}

status ckpt_manifest_print(const ckpt_manifest *m, text *out)
{
    char hex[33];
    TRY(print_record(&m->info, out));
    TRY(text_add(out, " \"state\": [\n"));
    for (int64_t i = 0; i < m->state_count; i++) {
        const ckpt_file *f = &m->state[i];
        TRY(text_add(out, "  {\"name\": \"%s\", \"bytes\": %lld, \"head_bytes\": %lld, ", f->name,
                     (long long)f->bytes, (long long)f->head_bytes));
        TRY(text_add(out, "\"head_xxh128\": \"%s\"}%s\n", hash128_text(f->checksum, hex),
                     i + 1 < m->state_count ? "," : ""));
    }
    TRY(text_add(out, " ],\n \"tensors\": [\n"));
    for (int64_t i = 0; i < m->tensor_count; i++) {
        TRY(print_tensor(&m->tensors[i], out));
        TRY(text_add(out, i + 1 < m->tensor_count ? ",\n" : "\n"));
    }
    TRY(text_add(out, " ],\n \"files\": [\n"));
    for (int64_t i = 0; i < m->extra_count; i++) {
        const ckpt_file *f = &m->extras[i];
        TRY(text_add(out, "  {\"name\": \"%s\", \"bytes\": %lld, \"xxh128\": \"%s\"}%s\n", f->name,
                     (long long)f->bytes, hash128_text(f->checksum, hex),
                     i + 1 < m->extra_count ? "," : ""));
    }
    TRY(text_add(out, " ],\n \"digest\": \"%s\",\n", hash128_text(m->digest, hex)));
    const hash128 root = ckpt_manifest_root(m->tensors, m->tensor_count);
    TRY(text_add(out, " \"root\": \"%s\",\n", hash128_text(root, hex)));
    const hash128 sum = hash128_of(out->bytes, out->length);
    return text_add(out, "%s%s%s", tail_begin, hash128_text(sum, hex), tail_end);
}
