// The inputs of a stage: its rows of the file, the contents of every file that these name, the
// digests of the stages before it, the version of the program. Paths of results are no part of it,
// so a chain can move.
#include "cli/stages/stages.h"

#include "checkpoint/checkpoint.h"
#include "config/run_config.h"
#include "data/corpus.h"
#include "infer/task.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct inputs {
    stages *v;
    int64_t i; // the stage
    text all;
} inputs;

static status line_add(inputs *in, const char *what, const char *value)
{
    return value != NULL ? text_add(&in->all, "%s %s\n", what, value) : ST_OK;
}

static bool is_result(const stages *v, const char *path)
{
    const size_t n = strlen(v->dir);
    return strncmp(path, v->dir, n) == 0 && path[n] == '/';
}

// The content of a file or a folder. What stages made counts by their digests, and what does not
// exist is an error of the command.
static status content_add(inputs *in, const char *what, const char *path)
{
    cli_context *cli = in->v->cli;
    char hash[GATE_HEX_BYTES];
    file_info info;
    if (path == NULL || is_result(in->v, path)) return ST_OK;
    TRY(cli->h->api->path_info(cli->h, path, &info));
    if (info.kind == FILE_KIND_REGULAR) {
        TRY(gate_hash_file(cli, path, hash));
    } else if (info.kind == FILE_KIND_FOLDER) {
        TRY(gate_hash_folder(cli, path, hash));
    } else {
        return ST_OK;
    }
    return line_add(in, what, hash);
}

// A path, a pattern, or either with a weight.
static status paths_add(inputs *in, const char *what, const option_list *list)
{
    cli_context *cli = in->v->cli;
    for (int64_t i = 0; i < list->count; i++) {
        char *path = NULL;
        file_names names;
        TRY(arena_strdup(cli->a, list->items[i], &path));
        char *equals = strrchr(path, '=');
        if (equals != NULL) *equals = 0;
        if (strpbrk(path, "*?[") == NULL) {
            TRY(content_add(in, what, path));
            continue;
        }
        TRY(cli->h->api->path_glob(cli->h, cli->a, path, &names));
        for (int64_t k = 0; k < names.count; k++) TRY(content_add(in, what, names.names[k]));
    }
    return ST_OK;
}

static status task_add(inputs *in, const char *path)
{
    task_spec spec = {.file = NULL};
    TRY(task_load(in->v->cli->h, in->v->cli->a, path, &spec));
    TRY(content_add(in, "task", path));
    TRY(content_add(in, "task data", spec.data));
    return content_add(in, "task shots", spec.shots_data);
}

static status tasks_add(inputs *in, const option_list *list)
{
    for (int64_t i = 0; i < list->count; i++) TRY(task_add(in, list->items[i]));
    return ST_OK;
}

static status expanded(stages *v, int64_t i, const char *word, const char **out);

static status keys_expand(stages *v, int64_t i, const char ***out)
{
    const stage *s = &v->list[i];
    TRY(arena_new(v->cli->a, s->keys.count + 1, out));
    for (int64_t k = 0; k < s->keys.count; k++) TRY(expanded(v, i, s->keys.items[k], &(*out)[k]));
    return ST_OK;
}

// Every file that a key of the run names.
static status run_add(inputs *in)
{
    cli_context *cli = in->v->cli;
    const stage *s = &in->v->list[in->i];
    const char **keys = NULL;
    run_config *r = NULL;
    config *c = NULL;
    TRY(keys_expand(in->v, in->i, &keys));
    TRY(arena_new(cli->a, 1, &r));
    TRY(config_load(cli->h, cli->a, &run_config_table, s->config, keys, s->keys.count, r, &c));
    for (int64_t k = 0; k < run_config_table.count; k++) {
        const option *o = &run_config_table.rows[k];
        const char *at = (const char *)r + o->offset;
        if (strcmp(o->key, "run.dir") == 0 || strcmp(o->key, "eval.tasks") == 0) continue;
        if (o->kind == OPTION_PATH) {
            const char *path = NULL;
            memcpy(&path, at, sizeof(path));
            TRY(content_add(in, o->key, path));
        } else if (o->kind == OPTION_PATHS || o->kind == OPTION_SHARE) {
            option_list list;
            memcpy(&list, at, sizeof(list));
            TRY(paths_add(in, o->key, &list));
        }
    }
    return tasks_add(in, &r->eval.tasks);
}

static status corpus_add(inputs *in)
{
    cli_context *cli = in->v->cli;
    const stage *s = &in->v->list[in->i];
    const char **keys = NULL;
    corpus_config *c = NULL;
    TRY(keys_expand(in->v, in->i, &keys));
    TRY(corpus_config_load(cli->h, cli->a, s->config, keys, s->keys.count, &c));
    for (int64_t k = 0; k < c->source_count; k++) {
        TRY(paths_add(in, "source", &c->sources[k].paths));
    }
    TRY(content_add(in, "review", c->review.file));
    return content_add(in, "tokenizer", c->tokenizer);
}

static status policy_add(inputs *in)
{
    gate_policy p = {.path = NULL};
    const stage *s = &in->v->list[in->i];
    TRY(gate_policy_load(in->v->cli, s->policy, &p));
    TRY(content_add(in, "policy", s->policy));
    TRY(content_add(in, "signers", p.signers));
    TRY(content_add(in, "baseline", p.baseline));
    return tasks_add(in, &p.tasks);
}

static status stage_add(inputs *in, const char *what, const char *name)
{
    const stage *s = stages_find(in->v, name, in->i);
    return s != NULL ? line_add(in, what, s->digest) : ST_OK;
}

// The stages that words name in braces.
static status words_add(inputs *in, const char *what, const option_list *words)
{
    for (int64_t k = 0; k < words->count; k++) {
        TRY(line_add(in, what, words->items[k]));
        for (int64_t i = 0; i < in->i; i++) {
            char *braces = NULL;
            TRY(arena_format(in->v->cli->a, &braces, "{%s}", in->v->list[i].name));
            if (strstr(words->items[k], braces) != NULL) {
                TRY(line_add(in, braces, in->v->list[i].digest));
            }
        }
    }
    return ST_OK;
}

status stage_key(stages *v, int64_t i)
{
    stage *s = &v->list[i];
    inputs in = {.v = v, .i = i, .all = {.a = v->cli->a}};
    TRY(text_add(&in.all, "trireme %s\nstage %s\n", TRIREME_VERSION, stage_kind_name(s->kind)));
    TRY(content_add(&in, "config", s->config));
    TRY(words_add(&in, "key", &s->keys));
    TRY(words_add(&in, "flag", &s->flags));
    TRY(stage_add(&in, "from", s->from));
    TRY(stage_add(&in, "data", s->data));
    TRY(stage_add(&in, "of", s->of));
    TRY(stage_add(&in, "gate", s->gate));
    TRY(tasks_add(&in, &s->tasks));
    if (stage_is_training(s)) TRY(run_add(&in));
    if (s->kind == STAGE_DATA) TRY(corpus_add(&in));
    if (s->kind == STAGE_GATE) TRY(policy_add(&in));
    gate_hash_text(in.all.bytes, in.all.length, s->key);
    TRY(arena_format(v->cli->a, &s->folder, "%s/%s-%.*s", v->dir, s->name, STAGE_KEY_SHOWN,
                     s->key));
    return path_join(v->cli->a, s->folder, "out", &s->out);
}

// ---- words of commands --------------------------------------------------------------------------

// The result of a stage, as a command takes it: a corpus's folder, a run's newest checkpoint, a
// folder.
static status result_of(stages *v, const stage *s, const char **out)
{
    char *path = NULL;
    if (!stage_is_training(s)) {
        *out = s->out;
        return ST_OK;
    }
    TRY(cli_checkpoint_of(v->cli, s->out, &path));
    *out = path;
    return ST_OK;
}

static status expanded(stages *v, int64_t i, const char *word, const char **out)
{
    text t = {.a = v->cli->a};
    TRY(text_add(&t, "%s", ""));
    while (*word != 0) {
        const char *end = *word == '{' ? strchr(word, '}') : NULL;
        char name[STAGE_NAME_BYTES_MAX + 1] = "";
        if (end != NULL && end - word - 1 <= STAGE_NAME_BYTES_MAX) {
            memcpy(name, word + 1, (size_t)(end - word - 1));
        }
        const stage *s = stages_find(v, name, i);
        if (s == NULL) {
            TRY(text_add_bytes(&t, word++, 1));
            continue;
        }
        const char *result = NULL;
        TRY(result_of(v, s, &result));
        TRY(text_add(&t, "%s", result));
        word = end + 1;
    }
    *out = t.bytes;
    return ST_OK;
}

typedef struct word_list {
    arena *a;
    char **items;
    int64_t count, capacity;
} word_list;

static status word_add(word_list *l, const char *format, ...) PRINTF_LIKE(2, 3);
static status word_add(word_list *l, const char *format, ...)
{
    char line[8192], *kept = NULL;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (n < 0 || n >= (int)sizeof(line)) return fail(ST_USAGE, "a word of a command is too long");
    TRY(arena_strdup(l->a, line, &kept));
    TRY(arena_grow(l->a, (void **)&l->items, &l->capacity, l->count + 2, (int64_t)sizeof(char *)));
    l->items[l->count++] = kept;
    l->items[l->count] = NULL;
    return ST_OK;
}

static status expanded_add(stages *v, int64_t i, const option_list *words, word_list *l)
{
    for (int64_t k = 0; k < words->count; k++) {
        const char *word = NULL;
        TRY(expanded(v, i, words->items[k], &word));
        TRY(word_add(l, "%s", word));
    }
    return ST_OK;
}

static status training_words(stages *v, int64_t i, word_list *l)
{
    const stage *s = &v->list[i];
    const char *path = NULL;
    TRY(word_add(l, "train"));
    TRY(word_add(l, "%s", s->config));
    TRY(word_add(l, "--quiet"));
    TRY(expanded_add(v, i, &s->keys, l));
    TRY(word_add(l, "run.dir=%s", s->out));
    if (s->kind >= STAGE_PRETRAIN) {
        TRY(word_add(l, "train.objective=%s", stage_kind_name(s->kind)));
    }
    if (s->from != NULL) {
        TRY(result_of(v, stages_find(v, s->from, i), &path));
        TRY(word_add(l, "model.from=%s", path));
    }
    if (s->data == NULL) return ST_OK;
    TRY(result_of(v, stages_find(v, s->data, i), &path));
    text list = {.a = v->cli->a};
    TRY(option_add_item(&list, path, (int64_t)strlen(path)));
    return word_add(l, "data.train=%s", list.bytes);
}

status stage_words(stages *v, int64_t i, char ***out)
{
    const stage *s = &v->list[i];
    word_list l = {.a = v->cli->a};
    const stage *of = stages_find(v, s->of, i);
    TRY(word_add(&l, "trireme"));
    if (stage_is_training(s)) {
        TRY(training_words(v, i, &l));
    } else if (s->kind == STAGE_DATA) {
        TRY(word_add(&l, "data"));
        TRY(word_add(&l, "build"));
        TRY(word_add(&l, "%s", s->config));
        TRY(expanded_add(v, i, &s->keys, &l));
        TRY(word_add(&l, "out=%s", s->out));
    } else if (s->kind == STAGE_EVAL) {
        TRY(word_add(&l, "eval"));
        TRY(word_add(&l, "%s", of->out));
        TRY(word_add(&l, "--json"));
        for (int64_t k = 0; k < s->tasks.count; k++)
            TRY(word_add(&l, "--task=%s", s->tasks.items[k]));
    } else if (s->kind == STAGE_GATE) {
        TRY(word_add(&l, "gate"));
        TRY(word_add(&l, "%s", of->out));
        TRY(word_add(&l, "--policy=%s", s->policy));
        TRY(word_add(&l, "--record=%s/record.json", s->out));
    } else {
        TRY(word_add(&l, "export"));
        TRY(word_add(&l, "%s", of->out));
        TRY(word_add(&l, "%s", s->out));
        TRY(word_add(&l, "--force"));
        if (s->gate != NULL) {
            TRY(word_add(&l, "--gated"));
            TRY(word_add(&l, "--record=%s/record.json", stages_find(v, s->gate, i)->out));
        }
    }
    TRY(expanded_add(v, i, &s->flags, &l));
    *out = l.items;
    return ST_OK;
}

// ---- digests ------------------------------------------------------------------------------------

// The shards of a corpus; its other files name paths.
static status corpus_digest(stages *v, stage *s)
{
    text all = {.a = v->cli->a};
    file_names names;
    TRY(v->cli->h->api->path_list(v->cli->h, v->cli->a, s->out, &names));
    for (int64_t i = 0; i < names.count; i++) {
        const size_t n = strlen(names.names[i]);
        char *path = NULL, hash[GATE_HEX_BYTES];
        if (n < 4 || strcmp(names.names[i] + n - 4, ".tok") != 0) continue;
        TRY(path_join(v->cli->a, s->out, names.names[i], &path));
        TRY(gate_hash_file(v->cli, path, hash));
        TRY(text_add(&all, "%s %s\n", names.names[i], hash));
    }
    gate_hash_text(all.length > 0 ? all.bytes : "", all.length, s->digest);
    return ST_OK;
}

// A gate's statement without the hash of the model's files, which hold paths and times; the digest
// of the model's stage stands for them in the key.
static status gate_digest(stages *v, stage *s)
{
    enum { STATEMENT_BYTES_MAX = 1 << 24 };
    char *path = NULL, *bytes = NULL;
    int64_t count = 0;
    TRY(path_join(v->cli->a, s->out, "statement", &path));
    TRY(host_read_all(v->cli->h, v->cli->a, path, STATEMENT_BYTES_MAX, &bytes, &count));
    const char *policy = strstr(bytes, "\npolicy ");
    if (policy == NULL) return fail(ST_DAMAGED, "%s is no statement of a gate", path);
    gate_hash_text(policy, count - (policy - bytes), s->digest);
    return ST_OK;
}

status stage_digest(stages *v, stage *s)
{
    cli_context *cli = v->cli;
    char *path = NULL, hex[33];
    hash128 digest;
    if (stage_is_training(s)) {
        TRY(cli_checkpoint_of(cli, s->out, &path));
        TRY(ckpt_digest(cli->h, cli->a, path, &digest));
        (void)hash128_text(digest, hex);
        (void)snprintf(s->digest, sizeof(s->digest), "%s", hex);
        return ST_OK;
    }
    if (s->kind == STAGE_DATA) return corpus_digest(v, s);
    if (s->kind == STAGE_EXPORT) return gate_hash_folder(cli, s->out, s->digest);
    if (s->kind == STAGE_GATE) return gate_digest(v, s);
    TRY(path_join(cli->a, s->out, "results.json", &path));
    return gate_hash_file(cli, path, s->digest);
}
