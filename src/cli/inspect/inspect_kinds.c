// The kinds, in the order of the checks: folders, files with a magic number, files with a known
// name, texts.
#include "cli/inspect/inspect.h"

#include "data/tokens.h"

#include <string.h>

bool inspect_has(const inspect_probe *p, const char *name)
{
    for (int64_t i = 0; i < p->names.count; i++) {
        if (strcmp(p->names.names[i], name) == 0) return true;
    }
    return false;
}

bool inspect_ends(const inspect_probe *p, const char *end)
{
    const size_t n = strlen(p->name), m = strlen(end);
    return n >= m && strcmp(p->name + n - m, end) == 0;
}

static bool has_ending(const inspect_probe *p, const char *end)
{
    const size_t m = strlen(end);
    for (int64_t i = 0; i < p->names.count; i++) {
        const size_t n = strlen(p->names.names[i]);
        if (n >= m && strcmp(p->names.names[i] + n - m, end) == 0) return true;
    }
    return false;
}

// ---- folders ------------------------------------------------------------------------------------

static bool is_folder(const inspect_probe *p)
{
    return p->info.kind == FILE_KIND_FOLDER;
}

static bool is_run(const inspect_probe *p)
{
    return is_folder(p) && inspect_has(p, "run.json");
}

static bool is_checkpoint(const inspect_probe *p)
{
    return is_folder(p) && inspect_has(p, "manifest.json");
}

static bool is_hf_folder(const inspect_probe *p)
{
    return is_folder(p) && (inspect_has(p, "config.json") || inspect_has(p, "model.safetensors") ||
                            inspect_has(p, "model.safetensors.index.json"));
}

static bool is_tokenizer_folder(const inspect_probe *p)
{
    return is_folder(p) && (inspect_has(p, "tokenizer.json") || has_ending(p, "vocab.json") ||
                            has_ending(p, "encoder.json"));
}

static status look_folder(inspect_report *r, const inspect_probe *p)
{
    TRY(inspect_add_int(r, "entries", p->names.count));
    for (int64_t i = 0; i < min_i64(p->names.count, 1); i++) {
        TRY(inspect_add(r, "such as", "%s", p->names.names[i]));
    }
    return inspect_add(r, "note", "no run, checkpoint, model or tokenizer; inspect a file in it");
}

// ---- files by their first bytes -----------------------------------------------------------------

static const struct {
    const char *bytes;
    int64_t count, offset;
    const char *what, *remedy;
} strangers[] = {
    {"GGUF", 4, 0, "a GGUF model (llama.cpp)", "take the model's safetensors"},
    {"lmgg", 4, 0, "a GGML model (llama.cpp)", "take the model's safetensors"},
    {"tjgg", 4, 0, "a GGJT model (llama.cpp)", "take the model's safetensors"},
    {"\x80\x02", 2, 0, "a Python pickle",
     "it is a program and never run; convert it to safetensors"},
    {"\x80\x03", 2, 0, "a Python pickle",
     "it is a program and never run; convert it to safetensors"},
    {"\x80\x04", 2, 0, "a Python pickle",
     "it is a program and never run; convert it to safetensors"},
    {"\x80\x05", 2, 0, "a Python pickle",
     "it is a program and never run; convert it to safetensors"},
    {"PK\x03\x04", 4, 0, "a zip archive: a PyTorch checkpoint (pickle inside) or .npz",
     "it may hold programs and is never run; convert it to safetensors"},
    {"\x89HDF\r\n\x1a\n", 8, 0, "an HDF5 file (Keras)", "convert it to safetensors"},
    {"\x93NUMPY", 6, 0, "a NumPy array", "save token ids as uint16 without a header (.bin)"},
    {"PAR1", 4, 0, "a Parquet file", "write its texts as JSON lines"},
    {"ARROW1", 6, 0, "an Arrow file", "write its texts as JSON lines"},
    {"BZh", 3, 0, "a bzip2 file", "compress with gzip or zstd"},
    {"\xfd"
     "7zXZ",
     5, 0, "an xz file", "compress with gzip or zstd"},
    {"\x04\x22\x4d\x18", 4, 0, "an lz4 file", "compress with gzip or zstd"},
    {"ustar", 5, 257, "a tar archive", "unpack it"},
    {"SQLite format 3", 15, 0, "an SQLite database", "write its texts as JSON lines"},
    {"\x7f"
     "ELF",
     4, 0, "a program", "it is neither a model nor data"},
};

static int64_t stranger_of(const inspect_probe *p)
{
    for (int64_t i = 0; i < COUNT_OF(strangers); i++) {
        const int64_t end = strangers[i].offset + strangers[i].count;
        if (p->head_bytes < end) continue;
        if (memcmp(p->head + strangers[i].offset, strangers[i].bytes, (size_t)strangers[i].count) ==
            0) {
            return i;
        }
    }
    return -1;
}

static bool is_stranger(const inspect_probe *p)
{
    return !is_folder(p) && stranger_of(p) >= 0;
}

static status look_stranger(inspect_report *r, const inspect_probe *p)
{
    const int64_t i = stranger_of(p);
    TRY(inspect_add_int(r, "bytes", p->info.bytes));
    TRY(inspect_add(r, "it is", "%s", strangers[i].what));
    return inspect_add(r, "readable", "no; %s", strangers[i].remedy);
}

// An ONNX file is a protobuf without a magic number: field 1 (ir_version, a small number), then
// more fields.
static bool is_onnx(const inspect_probe *p)
{
    return inspect_ends(p, ".onnx") && p->head_bytes > 2 && p->head[0] == 0x08;
}

static status look_onnx(inspect_report *r, const inspect_probe *p)
{
    TRY(inspect_add_int(r, "bytes", p->info.bytes));
    return inspect_add(r, "readable", "no; take the model's safetensors");
}

static bool is_safetensors(const inspect_probe *p)
{
    uint64_t length = 0;
    if (is_folder(p)) return false;
    if (inspect_ends(p, ".safetensors") || inspect_ends(p, ".safetensors.index.json")) return true;
    if (p->head_bytes < 10 || p->head[8] != '{') return false;
    for (int i = 7; i >= 0; i--) length = length << 8 | p->head[i];
    return length <= (uint64_t)p->info.bytes && length <= 100000000;
}

static bool is_tokens(const inspect_probe *p)
{
    return p->is_tokens;
}

static bool is_tfevents(const inspect_probe *p)
{
    return !is_folder(p) && strstr(p->name, "tfevents") != NULL;
}

// ---- files by their names -----------------------------------------------------------------------

static bool is_config(const inspect_probe *p)
{
    return !is_folder(p) && (inspect_ends(p, ".yaml") || inspect_ends(p, ".yml"));
}

static bool is_metrics(const inspect_probe *p)
{
    static const char begin[] = "{\"step\": ";
    return !is_folder(p) && inspect_ends(p, ".jsonl") &&
           memcmp(p->head, begin, sizeof(begin) - 1) == 0;
}

static bool is_tokenizer(const inspect_probe *p)
{
    return !is_folder(p) && (inspect_ends(p, "tokenizer.json") || inspect_ends(p, "vocab.json") ||
                             inspect_ends(p, "encoder.json") || inspect_ends(p, "vocab.bpe") ||
                             inspect_ends(p, "merges.txt"));
}

static bool is_json(const inspect_probe *p)
{
    return !is_folder(p) && inspect_ends(p, ".json");
}

static bool is_text(const inspect_probe *p)
{
    if (is_folder(p)) return false;
    if (inspect_ends(p, ".gz") || inspect_ends(p, ".zst") || inspect_ends(p, ".jsonl")) return true;
    return memchr(p->head, '\0', (size_t)p->head_bytes) == NULL;
}

static bool is_any(const inspect_probe *p)
{
    (void)p;
    return true;
}

static status look_any(inspect_report *r, const inspect_probe *p)
{
    char hex[64] = "";
    TRY(inspect_add_int(r, "bytes", p->info.bytes));
    if (p->info.kind != FILE_KIND_REGULAR) return inspect_add(r, "note", "no regular file");
    for (int64_t i = 0; i < min_i64(p->head_bytes, 16); i++) {
        static const char digits[] = "0123456789abcdef";
        hex[i * 3] = digits[p->head[i] >> 4];
        hex[i * 3 + 1] = digits[p->head[i] & 15];
        hex[i * 3 + 2] = ' ';
    }
    return inspect_add(r, "begins with", "%s", hex);
}

static const inspect_kind kinds[] = {
    {"run", is_run, inspect_run},
    {"checkpoint", is_checkpoint, inspect_checkpoint},
    {"Hugging Face folder", is_hf_folder, inspect_hf_folder},
    {"tokenizer", is_tokenizer_folder, inspect_tokenizer},
    {"folder", is_folder, look_folder},
    {"not ours", is_stranger, look_stranger},
    {"ONNX model", is_onnx, look_onnx},
    {"safetensors", is_safetensors, inspect_safetensors},
    {"token file", is_tokens, inspect_tokens},
    {"TensorBoard events", is_tfevents, inspect_tfevents},
    {"configuration", is_config, inspect_config},
    {"metrics", is_metrics, inspect_metrics},
    {"tokenizer", is_tokenizer, inspect_tokenizer},
    {"JSON", is_json, inspect_json},
    {"text", is_text, inspect_text},
    {"unknown bytes", is_any, look_any},
};

const inspect_kind *inspect_kind_of(const inspect_probe *p)
{
    int64_t i = 0;
    while (!kinds[i].fits(p)) i++; // the last kind matches every file
    return &kinds[i];
}

status inspect_within(inspect_report *r, const char *path)
{
    inspect_probe *p = NULL; // too large for the stack of a recursive walk
    inspect_report inner = {.cli = r->cli, .verifies = r->verifies};
    TRY(arena_new(r->cli->a, 1, &p));
    TRY(inspect_probe_make(r->cli, path, p));
    const inspect_kind *kind = inspect_kind_of(p);
    inner.path = p->path;
    inner.kind = kind->name;
    TRY(inspect_take(r, kind->look(&inner, p)));
    if (inner.damage.length > 0) {
        r->damage.a = r->cli->a;
        TRY(text_add(&r->damage, "%s", inner.damage.bytes));
    }
    r->damage_count += inner.damage_count;
    return ST_OK;
}

status inspect_probe_make(cli_context *cli, const char *path, inspect_probe *out)
{
    const host_api *api = cli->h->api;
    inspect_probe p = {.path = path};
    char *trimmed = NULL;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    TRY(arena_format(cli->a, &trimmed, "%.*s", (int)length, path));
    p.path = trimmed;
    p.name = path_base_name(trimmed);
    TRY(api->path_info(cli->h, trimmed, &p.info));
    if (p.info.kind == FILE_KIND_NONE) return fail(ST_NOT_FOUND, "%s does not exist", path);
    if (p.info.kind == FILE_KIND_FOLDER) {
        TRY(api->path_list(cli->h, cli->a, trimmed, &p.names));
    } else if (p.info.kind == FILE_KIND_REGULAR) {
        file *f = NULL;
        TRY(api->file_open(cli->h, trimmed, FILE_READ, &f));
        p.head_bytes = min_i64(p.info.bytes, (int64_t)sizeof(p.head));
        const status st = p.head_bytes > 0 ? api->file_read(f, 0, p.head, p.head_bytes) : ST_OK;
        (void)api->file_close(f); // the file was only read
        TRY(st);
        TRY(data_tokens_probe(cli->h, trimmed, &p.is_tokens));
    }
    *out = p;
    return ST_OK;
}
