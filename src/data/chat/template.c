// The chat template of a tokenizer, and the two built-in ones.
#include "data/chat/chat_internal.h"

#include <string.h>

enum { CONFIG_BYTES_MAX = 64 << 20 };

typedef struct built_in {
    const char *name, *eos, *source;
} built_in;

static const built_in built_ins[] = {
    {"chatml", "<|im_end|>",
     "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
     "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    {"llama3", "<|eot_id|>",
     "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
     "'<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
     "{% endif %}"},
};

static status parse(arena *a, data_chat *c, const char *source, int64_t bytes, const char *name)
{
    c->name = name;
    return jinja_parse(a, source, bytes, name, &c->jinja);
}

// A token of tokenizer_config.json: a text, or an object with its content.
static status token_text(arena *a, const json *config, const char *key, const char **out)
{
    const json *v = json_get(config, key);
    if (json_kind_of(v) == JSON_MAP) v = json_get(v, "content");
    char *copy = NULL;
    if (json_kind_of(v) != JSON_TEXT) return ST_OK;
    TRY(arena_strdup(a, json_text(v, ""), &copy));
    *out = copy;
    return ST_OK;
}

// chat_template: a text, or a list of named ones, of which "default" counts.
static const json *template_of(const json *config)
{
    const json *v = json_get(config, "chat_template");
    for (int64_t i = 0; json_kind_of(v) == JSON_LIST && i < json_count(v); i++) {
        const json *one = json_at(v, i);
        if (strcmp(json_text(json_get(one, "name"), ""), "default") == 0) {
            v = json_get(one, "template");
        }
    }
    return json_kind_of(v) == JSON_TEXT ? v : NULL;
}

static status read_config(arena *a, data_chat *c, bool wants_template)
{
    char *path = NULL;
    file_info info;
    json *config = NULL;
    TRY(path_join(a, c->spec.folder, "tokenizer_config.json", &path));
    TRY(c->h->api->path_info(c->h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    TRY(json_read(c->h, path, CONFIG_BYTES_MAX, &config));
    const json *source = wants_template ? template_of(config) : NULL;
    status st = token_text(a, config, "bos_token", &c->bos);
    if (st == ST_OK) st = token_text(a, config, "eos_token", &c->eos);
    if (st == ST_OK && source != NULL) {
        st = parse(a, c, json_text(source, ""), json_text_bytes(source), path);
    }
    json_free(config);
    return st;
}

static status read_file(arena *a, data_chat *c, const char *path)
{
    char *bytes = NULL;
    int64_t count = 0;
    TRY(host_read_text(c->h, a, path, JINJA_SOURCE_BYTES_MAX, &bytes, &count));
    return parse(a, c, bytes, count, path);
}

// Newer folders hold the template in a file of its own, which counts before tokenizer_config.json.
static status read_folder(arena *a, data_chat *c)
{
    char *path = NULL;
    file_info info;
    TRY(path_join(a, c->spec.folder, "chat_template.jinja", &path));
    TRY(c->h->api->path_info(c->h, path, &info));
    const bool has_file = info.kind == FILE_KIND_REGULAR;
    TRY(read_config(a, c, !has_file));
    return has_file ? read_file(a, c, path) : ST_OK;
}

status template_open(arena *a, data_chat *c)
{
    const char *source = c->spec.source;
    const bool is_auto = source == NULL || strcmp(source, "auto") == 0;
    c->name = "none";
    c->bos = c->eos = "";
    c->is_given = !is_auto;
    if (is_auto) return c->spec.folder != NULL ? read_folder(a, c) : ST_OK;
    if (c->spec.folder != NULL) TRY(read_config(a, c, false));
    if (strcmp(source, "none") == 0) return ST_OK;
    for (int64_t i = 0; i < COUNT_OF(built_ins); i++) {
        const built_in *b = &built_ins[i];
        if (strcmp(source, b->name) != 0) continue;
        c->eos = b->eos;
        return parse(a, c, b->source, (int64_t)strlen(b->source), b->name);
    }
    return read_file(a, c, source);
}

status data_chat_folder(const host *h, arena *a, const char *tokenizer, const char **out)
{
    file_info info;
    char *folder = NULL;
    *out = NULL;
    if (tokenizer == NULL || strcmp(tokenizer, "bytes") == 0) return ST_OK;
    TRY(h->api->path_info(h, tokenizer, &info));
    *out = tokenizer;
    if (info.kind == FILE_KIND_FOLDER) return ST_OK;
    const int64_t length = path_base_name(tokenizer) - tokenizer;
    TRY(arena_format(a, &folder, "%.*s", (int)length, tokenizer));
    *out = length > 0 ? folder : ".";
    return ST_OK;
}
