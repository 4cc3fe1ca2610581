// The small files of an exported folder: config.json, the tokenizer's, generation_config.json.
//
// The command copies a tokenizer's files byte for byte from the run's tokenizer folder and gives
// GPT-2's two files the names that transformers expects. The bytes tokenizer has no file, so this
// code writes its tokenizer.json: a byte-level BPE of 256 characters without merges, which gives
// the same ids.
#include "cli/export/export.h"

#include <stdlib.h>
#include <string.h>

typedef struct wanted_file {
    const char *from; // end of the file's name, or its whole name
    const char *to;
    bool is_end;
} wanted_file;

static const wanted_file wanted[] = {
    {"tokenizer.json", "tokenizer.json", false},
    {"tokenizer_config.json", "tokenizer_config.json", false},
    {"special_tokens_map.json", "special_tokens_map.json", false},
    {"added_tokens.json", "added_tokens.json", false},
    {"chat_template.jinja", "chat_template.jinja", false},
    {"chat_template.json", "chat_template.json", false},
    {"generation_config.json", "generation_config.json", false},
    {"vocab.json", "vocab.json", true},
    {"encoder.json", "vocab.json", true},
    {"merges.txt", "merges.txt", true},
    {"vocab.bpe", "merges.txt", true},
};

// ---- one file -----------------------------------------------------------------------------------

static status put(const export_job *v, const char *name, const text *t)
{
    char *path = NULL;
    TRY(path_join(v->cli->a, v->work, name, &path));
    return host_write_all(v->cli->h, path, t->bytes, t->length);
}

static status has(const export_job *v, const char *name, bool *out)
{
    return cli_has_file(v->cli, v->work, name, out);
}

static status copy(const export_job *v, const char *folder, const char *name, const char *as)
{
    enum { PIECE = 1 << 20 };
    const host_api *api = v->cli->h->api;
    char *from = NULL, *to = NULL, *buffer = NULL;
    file *in = NULL, *out = NULL;
    int64_t bytes = 0;
    status st = ST_OK;
    TRY(path_join(v->cli->a, folder, name, &from));
    TRY(path_join(v->cli->a, v->work, as, &to));
    TRY(arena_new(v->cli->a, PIECE, &buffer));
    TRY(api->file_open(v->cli->h, from, FILE_READ_OWN, &in));
    TRY_TO(close_in, api->file_open(v->cli->h, to, FILE_WRITE, &out));
    TRY_TO(close_out, api->file_size(in, &bytes));
    for (int64_t at = 0; at < bytes; at += PIECE) {
        const int64_t n = min_i64(PIECE, bytes - at);
        TRY_TO(close_out, api->file_read(in, at, buffer, n));
        TRY_TO(close_out, api->file_write(out, buffer, n));
    }
    st = api->file_sync(out);
close_out:
    if (st == ST_OK) {
        st = api->file_close(out);
    } else {
        (void)api->file_close(out); // reports only the first error
    }
close_in:
    (void)api->file_close(in); // the file was only read
    return st;
}

// ---- the tokenizer ------------------------------------------------------------------------------

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

// Copies `name` of `folder` into the exported folder of templates, as `as`.
static status template_copy(export_job *v, const char *folder, const char *name, const char *as)
{
    char *templates = NULL, *to = NULL;
    TRY(path_join(v->cli->a, v->work, EXPORT_TEMPLATES, &templates));
    TRY(v->cli->h->api->path_mkdir(v->cli->h, templates));
    TRY(path_join(v->cli->a, EXPORT_TEMPLATES, as, &to));
    TRY(copy(v, folder, name, to));
    v->tokenizer_files++;
    return v->cli->h->api->path_sync(v->cli->h, templates);
}

// The named chat templates, from their folder or from a checkpoint.
static status templates_copy(export_job *v, const char *folder, const file_names *names)
{
    static const char flat[] = EXPORT_TEMPLATES "-";
    const host_api *api = v->cli->h->api;
    char *templates = NULL;
    file_info info;
    file_names inside;
    for (int64_t i = 0; i < names->count; i++) {
        const char *name = names->names[i];
        if (strncmp(name, flat, strlen(flat)) != 0 || !ends_with(name, ".jinja")) continue;
        TRY(template_copy(v, folder, name, name + strlen(flat)));
    }
    TRY(path_join(v->cli->a, folder, EXPORT_TEMPLATES, &templates));
    TRY(api->path_info(v->cli->h, templates, &info));
    if (info.kind != FILE_KIND_FOLDER) return ST_OK;
    TRY(api->path_list(v->cli->h, v->cli->a, templates, &inside));
    for (int64_t i = 0; i < inside.count; i++) {
        if (!ends_with(inside.names[i], ".jinja")) continue;
        TRY(template_copy(v, templates, inside.names[i], inside.names[i]));
    }
    return ST_OK;
}

static status folder_copy(export_job *v, const char *folder)
{
    file_names names;
    TRY(v->cli->h->api->path_list(v->cli->h, v->cli->a, folder, &names));
    for (int64_t k = 0; k < COUNT_OF(wanted); k++) {
        for (int64_t i = 0; i < names.count; i++) {
            const wanted_file *f = &wanted[k];
            bool there = false;
            if (f->is_end ? !ends_with(names.names[i], f->from)
                          : strcmp(names.names[i], f->from) != 0) {
                continue;
            }
            TRY(has(v, f->to, &there)); // prefers the plain name to one with a prefix
            if (there) continue;
            TRY(copy(v, folder, names.names[i], f->to));
            v->tokenizer_files++;
        }
    }
    return templates_copy(v, folder, &names);
}

// GPT-2's characters for bytes: printable bytes are themselves, the others follow from 256.
static int32_t character_of(int byte)
{
    int32_t others = 256;
    for (int i = 0; i <= byte; i++) {
        const bool prints = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174;
        if (i == byte) return prints ? i : others;
        if (!prints) others++;
    }
    return others;
}

static status bytes_write(export_job *v)
{
    static const char head[] =
        "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
        "  \"added_tokens\": [\n"
        "    {\"id\": 256, \"content\": \"<|endoftext|>\", \"single_word\": false, "
        "\"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}\n  ],\n"
        "  \"normalizer\": null,\n"
        "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": true, \"use_regex\": true},\n"
        "  \"post_processor\": null,\n"
        "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
        "\"trim_offsets\": true, \"use_regex\": true},\n"
        "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
        "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
        "\"fuse_unk\": false, \"byte_fallback\": false, \"vocab\": {\n";
    text t = {.a = v->cli->a};
    TRY(text_add(&t, "%s", head));
    for (int i = 0; i < 256; i++) {
        const int32_t c = character_of(i);
        char utf8[3] = {(char)c, 0, 0};
        if (c >= 128) {
            utf8[0] = (char)(0xc0 | (c >> 6));
            utf8[1] = (char)(0x80 | (c & 63));
        }
        TRY(text_add(&t, "    "));
        TRY(text_add_json(&t, utf8));
        TRY(text_add(&t, ": %d%s\n", i, i < 255 ? "," : ""));
    }
    TRY(text_add(&t, "  }, \"merges\": []}\n}\n"));
    v->tokenizer_files++;
    return put(v, "tokenizer.json", &t);
}

// Writes the keys by which transformers finds the class, if the run's files lack them.
static status class_write(export_job *v, const char *end_of_text)
{
    text t = {.a = v->cli->a}, map = {.a = v->cli->a};
    bool there = false, whole = false;
    TRY(has(v, "tokenizer.json", &whole));
    TRY(has(v, "tokenizer_config.json", &there));
    if (!there) {
        TRY(text_add(&t, "{\n  \"tokenizer_class\": \"%s\",\n  \"model_max_length\": %lld",
                     whole ? "PreTrainedTokenizerFast" : "GPT2Tokenizer",
                     (long long)v->model.spec.context));
        if (end_of_text != NULL) {
            TRY(text_add(&t, ",\n  \"eos_token\": "));
            TRY(text_add_json(&t, end_of_text));
        }
        TRY(text_add(&t, ",\n  \"clean_up_tokenization_spaces\": false\n}\n"));
        TRY(put(v, "tokenizer_config.json", &t));
        v->tokenizer_files++;
    }
    TRY(has(v, "special_tokens_map.json", &there));
    if (there || end_of_text == NULL) return ST_OK;
    TRY(text_add(&map, "{\n  \"eos_token\": "));
    TRY(text_add_json(&map, end_of_text));
    TRY(text_add(&map, "\n}\n"));
    v->tokenizer_files++;
    return put(v, "special_tokens_map.json", &map);
}

// A model that was trained here ends its texts with the tokenizer's id, whatever its preset has.
static void end_of_text_set(export_job *v, int32_t id)
{
    if (!v->model.is_fresh || id < 0 || id >= v->model.spec.vocab) return;
    v->model.spec.ends = (model_ends){{id}, 1};
    v->model.spec.bos_token = -1;
}

// The text of the tokenizer's end-of-text token, or NULL.
static status end_of_text_find(export_job *v, const char **out)
{
    data_tokenizer *t = NULL;
    data_bytes bytes = {0};
    char *copy_of = NULL;
    *out = NULL;
    TRY(data_tokenizer_open(v->cli->h, v->cli->a, v->tokenizer, &t));
    const int32_t id = data_tokenizer_eot(t);
    const int64_t ids = data_tokenizer_vocab_size(t);
    end_of_text_set(v, id);
    const bool is_own = v->tokenizer == v->model.tokenizer;
    status st = is_own ? cli_tokenizer_check(&v->model, v->tokenizer, t) : ST_OK;
    // A tokenizer other than the run's must fit: ids without rows in the model would fail only at
    // their use.
    if (st == ST_OK && !is_own && ids > v->model.spec.vocab) {
        st = fail(ST_USAGE, "the tokenizer %s has %lld ids, the model %lld; give another, or none",
                  v->tokenizer, (long long)ids, (long long)v->model.spec.vocab);
    }
    if (st == ST_OK && id >= 0) st = data_tokenizer_decode(t, &id, 1, 0, &bytes);
    if (st == ST_OK && bytes.count > 0 && text_is_utf8(bytes.items, bytes.count)) {
        st = arena_format(v->cli->a, &copy_of, "%.*s", (int)bytes.count, bytes.items);
        *out = copy_of;
    }
    data_bytes_deinit(&bytes);
    data_tokenizer_close(t);
    return st;
}

static status tokenizer_write(export_job *v)
{
    const char *end_of_text = NULL;
    file_info info;
    if (v->tokenizer == NULL) return ST_OK;
    if (strcmp(v->tokenizer, "bytes") == 0) {
        TRY(end_of_text_find(v, &end_of_text)); // the token has an id and no spelling
        TRY(bytes_write(v));
        return class_write(v, "<|endoftext|>");
    }
    TRY(v->cli->h->api->path_info(v->cli->h, v->tokenizer, &info));
    if (info.kind == FILE_KIND_NONE) {
        return fail(ST_NOT_FOUND,
                    "the tokenizer %s does not exist; give --tokenizer PATH, or "
                    "--tokenizer none to leave it out",
                    v->tokenizer);
    }
    TRY(end_of_text_find(v, &end_of_text));
    if (info.kind == FILE_KIND_FOLDER) {
        TRY(folder_copy(v, v->tokenizer));
        return class_write(v, end_of_text);
    }
    const char *base = path_base_name(v->tokenizer);
    char *folder = NULL;
    TRY(arena_format(v->cli->a, &folder, "%.*s.", (int)(base - v->tokenizer), v->tokenizer));
    bool is_named = false; // it belongs to its folder, like the folder's other files
    for (int64_t i = 0; i < COUNT_OF(wanted); i++) {
        if (wanted[i].is_end && ends_with(base, wanted[i].from)) is_named = true;
    }
    if (strcmp(base, "tokenizer.json") == 0) is_named = true;
    if (is_named) {
        TRY(folder_copy(v, folder));
    } else {
        TRY(copy(v, folder, base, "tokenizer.json"));
        v->tokenizer_files++;
    }
    return class_write(v, end_of_text);
}

// ---- all files ----------------------------------------------------------------------------------

static status generation_write(const export_job *v)
{
    static const char name[] = "generation_config.json";
    text t = {.a = v->cli->a};
    bool there = false, is_imported = false;
    TRY(has(v, name, &there));
    if (there) return ST_OK;
    // `import` keeps the file with the weights, whatever tokenizer is exported.
    TRY(cli_has_file(v->cli, v->model.folder, name, &is_imported));
    if (is_imported) return copy(v, v->model.folder, name, name);
    TRY(text_add(&t, "{\n  \"_from_model_config\": true"));
    if (v->model.spec.bos_token >= 0) {
        TRY(text_add(&t, ",\n  \"bos_token_id\": %d", v->model.spec.bos_token));
    }
    if (v->model.spec.ends.count > 0) TRY(model_ends_add(&t, &v->model.spec.ends));
    TRY(text_add(&t, "\n}\n"));
    return put(v, name, &t);
}

status export_files_write(export_job *v)
{
    text t = {.a = v->cli->a};
    TRY(tokenizer_write(v)); // sets the end of text if it knows it
    decoder_spec spec = v->model.spec;
    spec.saved = v->type;
    if (!model_has_files(&spec)) {
        return fail(ST_UNSUPPORTED,
                    "no model type of other software has softmax scores together with a bias for "
                    "the choice of experts, or with such dense layers and shared experts; export "
                    "models with model.router.score=sigmoid, which GLM-4.5 has");
    }
    TRY(model_spec_print_json(&spec, &t));
    TRY(put(v, "config.json", &t));
    return generation_write(v);
}
